"""Runs: what is read together is what would be read one by one."""

import random
from array import array

import attrs
import pytest

from router.journal.block import Block, open_block
from router.journal.bulk import shortcuts
from router.journal.keys import NO_LINK
from router.journal.record import NO_TTL, ROW, RecordError
from router.journal.store import gone, index, runs
from router.journal.store import segments as stored_segments
from router.journal.store.asks import AnswerReader, AnswerWriter
from router.journal.store.gone import GoneColumns, claims_in
from router.journal.store.index import SegmentIndex, StoredRow, columns_of, rows_of
from router.journal.store.place import (
    BEGINNING,
    Place,
    place_of,
    places_of,
    position_of,
    row_position,
)
from router.journal.store.queues import Bounds, Claim, QueueKey, RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.records import StoreWriter
from router.journal.store.runs import MessagesRead, StoredRun, piece_of, write_run
from router.journal.store.segments import StoredSegment
from tests.support.journal import SOURCE, FakeDisk, key
from tests.support.stored import ROUTE, Custodian, claims, numbers, queue

SECOND_NS = 1_000_000_000

needs_shortcuts = pytest.mark.skipif(shortcuts is None, reason="the shortcuts were not built")


def custodian(count: int = 40, **fields: object) -> Custodian:
    """Gives a store with messages, written in one block."""
    made = Custodian(FakeDisk(), segment_octets=1 << 20)
    made.open()
    for number in range(count):
        made.put(number, **fields)  # type: ignore[arg-type]
    assert made.commit()
    return made


def run_of(made: Custodian, count: int = 1000, **of: object) -> StoredRun | None:
    """Takes a run."""
    return made.store.read_run(queue(**of), count, made.now_ns)  # type: ignore[arg-type]


def block_of(run: StoredRun | None) -> Block:
    """Gives the block in which a run is sent."""
    assert run is not None
    writer = AnswerWriter()
    writer.run(run)
    return open_block(writer.take(), is_checked=True)


def sent(run: StoredRun | None) -> list[StoredMessage]:
    """Gives the messages of a run as they are after their way over the socket."""
    (answer,) = AnswerReader().answers_of(block_of(run))
    assert isinstance(answer, MessagesRead)
    assert answer.route == ROUTE
    return answer.messages


def test_a_run_has_the_messages_that_are_read_one_by_one() -> None:
    assert sent(run_of(custodian())) == custodian().read()


def test_a_run_goes_on_where_the_one_before_it_ended() -> None:
    made = custodian()
    assert numbers(sent(run_of(made, 10))) == list(range(10))
    assert numbers(sent(run_of(made, 10))) == list(range(10, 20))
    assert numbers(made.read()) == list(range(20, 40))


def test_a_run_has_messages_of_one_queue_among_those_of_others() -> None:
    made = custodian(0)
    draw = random.Random(3)
    expected: dict[tuple[str, int], list[int]] = {}
    for number in range(200):
        address, priority = draw.choice("ab"), draw.choice([4, 9])
        made.put(number, address=address, priority=priority, octets=draw.randint(8, 90))
        expected.setdefault((address, priority), []).append(number)
    assert made.commit()
    for (address, priority), wanted in expected.items():
        messages = sent(run_of(made, address=address, priority=priority))
        assert numbers(messages) == wanted
        assert {(each.address, each.priority) for each in messages} == {(address, priority)}


@pytest.mark.parametrize(
    "unusual",
    [{"ttl_milliseconds": 5000}, {"octets": (1 << 20) + 1}],
    ids=["time to live", "in parts"],
)
def test_what_is_unusual_goes_in_no_run_and_is_read_all_the_same(unusual: dict[str, int]) -> None:
    made = custodian(10)
    made.put(10, **unusual)  # type: ignore[arg-type]
    assert made.commit()
    found: list[int] = []
    while len(found) < 11:
        run = run_of(made, 11 - len(found))
        found += numbers(made.read(1) if run is None else sent(run))
    assert found == list(range(11))


def test_what_is_too_old_or_dropped_goes_in_no_run() -> None:
    made = custodian()
    made.bound(Bounds(age_ns=SECOND_NS))
    made.now_ns += 2 * SECOND_NS
    assert run_of(made) is None
    assert all(each.is_overdue for each in made.read())
    made = custodian()
    made.store.drop(next(made.store.entries(ROUTE, made.read(1)[0].claim.place))[0])
    assert run_of(made) is None


def test_what_was_given_back_is_read_before_what_would_be_the_next_run() -> None:
    made = custodian()
    messages = sent(run_of(made, 10))
    made.store.give_back(messages[3].claim)
    assert run_of(made) is None
    assert numbers(made.read(1)) == [3]
    assert numbers(sent(run_of(made, 10))) == list(range(10, 20))


def test_what_a_person_has_dropped_ahead_is_in_no_run() -> None:
    made = custodian()
    assert numbers(sent(run_of(made, 4))) == [0, 1, 2, 3]
    made.forward([list(made.store.claims(ROUTE))[20]])
    assert made.commit()
    found: list[int] = []
    while len(found) < 35:
        run = run_of(made, 36)
        found += numbers(made.read(1) if run is None else sent(run))
    assert found == [each for each in range(4, 40) if each != 20]


def test_messages_of_a_run_are_given_back_when_their_reader_is_lost() -> None:
    made = custodian()
    messages = sent(run_of(made, 10))
    made.forward(claims(messages[:5]))
    assert made.commit()
    made.store.give_back_all(ROUTE)
    assert numbers(made.read()) == [*range(5, 10), *range(10, 40)]


def test_a_run_goes_on_in_the_next_segment() -> None:
    made = Custodian(FakeDisk(), segment_octets=6000, reserve_octets=1024)
    made.open()
    for number in range(200):
        made.put(number)
        if number % 10 == 9:
            assert made.commit()
    found: list[int] = []
    while len(found) < 200:
        found += numbers(sent(run_of(made)))
    assert found == list(range(200))
    assert len(made.store.holdings.segments) > 3


@needs_shortcuts
@pytest.mark.parametrize("seed", range(20))
def test_columns_say_what_rows_say(seed: int) -> None:
    """The shortcut against its reference, which it leaves what it does not know."""
    draw = random.Random(seed)
    writer = StoreWriter(worker=1, incarnation=1)
    for number in range(draw.randint(1, 300)):
        if draw.random() < 0.1:
            writer.forwarded(number, [Claim(Place(number), QueueKey(7), 100)], 0x24)
        if seed % 5 == 0 and draw.random() < 0.05:
            writer.settled_run(number, SOURCE, NO_LINK, [key(number)])
        writer.stored(
            draw.randrange(1 << 63),
            key(number),
            SOURCE,
            bytes(draw.randint(0, 20)),
            bytes(draw.choice([0, 1, 100, 3000])),
            route=RouteKey(draw.choice([1, 2])),
            address=draw.choice(["a", "b", "ab", "\u00e4" * 40]),
            priority=draw.choice([4, 9]),
            guarantee=3 if seed % 4 == 1 and draw.random() < 0.1 else 2,
        )
    if seed % 7 == 0:
        big = bytes(3 << 20)
        writer.stored(1, key(1), SOURCE, b"", big, route=ROUTE, address="a", priority=4)
    offset = 4096
    for sealed in writer.take_blocks():
        block = open_block(memoryview(sealed.octets))
        rows = list(rows_of(3, offset, block))
        stored = [each for each in rows if isinstance(each, StoredRow)]
        others = [each for each in rows if not isinstance(each, StoredRow | Claim)]
        columns = columns_of(offset, block)
        if others or any(each.unsettled for each in stored):
            assert columns is None
            continue
        assert columns is not None
        found, reference = SegmentIndex(3), SegmentIndex(3)
        for each in stored:
            reference.add(each.entry)
        found.add_columns(columns)
        found.add_columns(columns)
        for each in stored:
            reference.add(each.entry)
        queues = {each.entry.queue for each in stored}
        for name in (None, *queues):
            entries = found.entries(BEGINNING, name)
            assert list(entries) == list(reference.entries(BEGINNING, name))
        by_queue = {each.queue: each for each in columns.queues}
        assert by_queue.keys() == queues
        for each in stored:
            known = by_queue[each.entry.queue]
            assert (known.route, known.address, known.priority) == each[1:4]
        for known in columns.queues:
            octets = sum(each.entry.octets for each in stored if each.entry.queue == known.queue)
            assert known.octets == octets


@needs_shortcuts
@pytest.mark.parametrize("seed", range(10))
def test_a_run_is_sent_alike_with_and_without_shortcuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    made = custodian(0)
    blocks, offset = [], 4096
    for _ in range(5):
        for number in range(100):
            ttl = 5000 if draw.random() < 0.03 else NO_TTL
            made.put(number, octets=draw.randint(8, 900), ttl_milliseconds=ttl)
        (sealed,) = made.writer.take_blocks()
        blocks.append((offset, open_block(memoryview(sealed.octets))))
        offset += len(sealed.octets)
    for _ in range(50):
        pieces, places = [], []
        for offset, block in blocks:
            chosen = sorted(draw.sample(range(100), draw.randint(1, 20)))
            positions = array("I", [row_position(offset, each) for each in chosen])
            found = piece_of(block, offset, positions.tobytes())
            with monkeypatch.context() as patch:
                patch.setattr(runs, "shortcuts", None)
                assert piece_of(block, offset, positions.tobytes()) == found
            if found is not None:
                pieces.append(found)
                places += [place_of(7, each) for each in positions]
        if not pieces:
            continue
        run = StoredRun(ROUTE, QueueKey(5), places, pieces)
        rooms = bytearray(b"\xff" * (run.octets + 8)), bytearray(b"\xff" * (run.octets + 8))
        assert write_run(run, rooms[0], 8) == len(rooms[0])
        with monkeypatch.context() as patch:
            patch.setattr(runs, "shortcuts", None)
            write_run(run, rooms[1], 8)
        assert rooms[0] == rooms[1]
        assert open_block(memoryview(rooms[0]), 8, is_checked=True).row_count == len(places) + 1


@needs_shortcuts
@pytest.mark.parametrize("seed", range(10))
def test_messages_are_chosen_alike_with_and_without_shortcuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    made = custodian(0)
    found, reference = SegmentIndex(3), SegmentIndex(3)
    marks, offset = StoredSegment(number=3), 4096
    for _ in range(5):
        for number in range(draw.randint(1, 60)):
            made.put(number, address=draw.choice("ab"))
        (sealed,) = made.writer.take_blocks()
        block = open_block(memoryview(sealed.octets))
        found.add_block(offset, block)
        with monkeypatch.context() as patch:
            patch.setattr(index, "shortcuts", None)
            reference.add_block(offset, block)
        offset += block.octets
    entries = list(reference.entries(BEGINNING))
    assert list(found.entries(BEGINNING)) == entries
    for each in draw.sample(entries, len(entries) // 5):
        marks.mark_gone(position_of(each.place))
    for _ in range(50):
        after, count = draw.choice([BEGINNING, draw.choice(entries).place]), draw.randint(1, 99)
        name = QueueKey(queue(address=draw.choice("ab")))
        chosen = found.run(after, name, count)
        with monkeypatch.context() as patch:
            patch.setattr(index, "shortcuts", None)
            assert reference.run(after, name, count) == chosen
        behind = list(reference.entries(after, name))
        assert found.count_behind(after, name) == len(behind)
        if chosen is None:
            assert not behind
            continue
        positions = b"".join(each for _, each in chosen[0])
        assert places_of(3, positions) == [each.place for each in behind[:count]]
        is_gone = any(marks.is_gone(position_of(each)) for each in places_of(3, positions))
        assert marks.is_any_gone(positions) == is_gone
        with monkeypatch.context() as patch:
            patch.setattr(stored_segments, "shortcuts", None)
            assert marks.is_any_gone(positions) == is_gone


@needs_shortcuts
@pytest.mark.parametrize("seed", range(10))
def test_what_is_gone_is_read_and_counted_alike_with_and_without_shortcuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    writer = StoreWriter(worker=1, incarnation=1)
    segments = [StoredSegment(number=3, stored=900), StoredSegment(number=3, stored=900)]
    for _ in range(draw.randint(1, 40)):
        first, name = draw.randrange(100), QueueKey(draw.randrange(3))
        numbers = range(first, first + draw.randint(1, 30))
        if draw.random() < 0.5:
            body = array("I", [96 + 80 * each for each in numbers])
            body.extend(draw.randrange(5000) for _ in numbers)
            body = body[: draw.choice([None, None, None, -1])]
            writer.forwarded_run(1, GoneColumns(draw.choice([3, 4]), name, body.tobytes()), 0x24)
        else:
            segments_of = [draw.choice([3, 3, 4]) for _ in numbers]
            places = map(place_of, segments_of, [96 + 80 * each for each in numbers])
            writer.forwarded(1, [Claim(each, name, draw.randrange(5000)) for each in places], 0x24)
        if draw.random() < 0.2:
            writer.stored(1, key(1), SOURCE, b"", b"x", route=ROUTE, address="a", priority=4)
    for sealed in writer.take_blocks():
        block = open_block(memoryview(sealed.octets))
        found = claims_in(block)
        with monkeypatch.context() as patch:
            patch.setattr(gone, "shortcuts", None)
            assert claims_in(block) == found
        for run in found:
            counts = [segments[0].mark_run(run.positions, run.octets)]
            with monkeypatch.context() as patch:
                patch.setattr(stored_segments, "shortcuts", None)
                counts.append(segments[1].mark_run(run.positions, run.octets))
            assert counts[0] == counts[1]
    assert (segments[0].gone, segments[0].marks) == (segments[1].gone, segments[1].marks)


def test_a_run_has_messages_of_several_blocks_and_ends_before_one_that_is_unusual() -> None:
    made = Custodian(FakeDisk(), segment_octets=1 << 20)
    made.open()
    for number in range(60):
        made.put(number, ttl_milliseconds=5000 if number == 45 else NO_TTL)
        if number % 10 == 9:
            assert made.commit()
    run = run_of(made)
    assert run is not None
    assert len(run.pieces) == 5
    assert numbers(sent(run)) == list(range(45))
    assert run_of(made) is None
    assert numbers(made.read(1)) == [45]
    assert numbers(sent(run_of(made))) == list(range(46, 60))


@needs_shortcuts
def test_a_block_that_points_outside_of_its_heap_has_no_columns_and_no_run() -> None:
    made = custodian(0)
    for number in range(5):
        made.put(number)
    (sealed,) = made.writer.take_blocks()
    block = open_block(memoryview(sealed.octets))
    for at in (68, 72, 76):  # octets of the tag, where the strings begin, and their octets
        rows = bytearray(block.rows)
        rows[ROW.size + at + 3] = 0x7F
        damaged = attrs.evolve(block, rows=memoryview(bytes(rows)))
        assert columns_of(0, damaged) is None
        positions = array("I", [row_position(0, each) for each in range(3)]).tobytes()
        assert at == 68 or piece_of(damaged, 0, positions) is None


@pytest.mark.parametrize("at", range(0, 480, 7))
def test_a_damaged_run_is_an_error_or_other_messages_and_nothing_else(at: int) -> None:
    run = run_of(custodian(5))
    assert run is not None
    block = block_of(run)
    rows = bytearray(block.rows)
    rows[at] ^= 0xFF
    damaged = attrs.evolve(block, rows=memoryview(bytes(rows)))
    try:
        for answer in AnswerReader().answers_of(damaged):
            assert not isinstance(answer, MessagesRead) or len(answer.messages) == 5
    except RecordError:
        pass


@pytest.mark.parametrize("is_compiled", [pytest.param(True, marks=needs_shortcuts), False])
def test_what_of_a_run_is_gone_is_named_by_columns(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = custodian(40)
    (answer,) = AnswerReader().answers_of(block_of(run_of(made)))
    assert isinstance(answer, MessagesRead)
    if not is_compiled:
        monkeypatch.setattr(runs, "shortcuts", None)
    named = answer.gone(7, 19)
    assert (named.messages, named.claims) == (12, answer.claims(7, 19))
