"""References: what a worker reads out of the log's files is what it would get over the socket."""

import errno
import os
import random
from array import array
from pathlib import Path

import pytest

from router.journal.block import BlockError, open_block
from router.journal.bulk import shortcuts
from router.journal.record import NO_TTL, RecordError
from router.journal.segment import segment_name
from router.journal.store import place, references, runs
from router.journal.store.asks import AnswerReader, AnswerWriter
from router.journal.store.place import place_octets, places_of, position_of
from router.journal.store.queues import Bounds
from router.journal.store.reading import StoredMessage
from router.journal.store.references import CachedDisk, RunReader, RunReference, Spot
from router.journal.store.store import MessageStore
from tests.support.journal import DIRECTORY, FakeDisk
from tests.support.stored import ROUTE, Custodian, numbers, queue

SECOND_NS = 1_000_000_000


def custodian(count: int = 40, *, segment_octets: int = 1 << 20, **fields: object) -> Custodian:
    """Gives a store with messages."""
    made = Custodian(FakeDisk(), segment_octets=segment_octets)
    made.open()
    for number in range(count):
        made.put(number, **fields)  # type: ignore[arg-type]
    assert made.commit()
    return made


def reference(made: Custodian, count: int = 1000, **of: object) -> RunReference | None:
    """Takes messages, and gives where they stand as a worker hears it."""
    found = made.store.refer(queue(**of), count, made.now_ns)  # type: ignore[arg-type]
    if found is None:
        return None
    writer = AnswerWriter()
    writer.answer(found)
    (answer,) = AnswerReader().answers_of(open_block(writer.take()))
    assert answer == found
    assert found.messages == len(found.places)
    return found


def read(made: Custodian, found: RunReference | None) -> list[StoredMessage]:
    """Reads messages as the worker does."""
    assert found is not None
    run = RunReader(made.log._disk, DIRECTORY).run(found)
    assert (run.route, run.queue, run.address) == (found.route, found.queue, found.address)
    assert [each.claim.place for each in run.messages] == found.places
    return run.messages


def on_files(made: Custodian, directory: Path) -> RunReader:
    """Gives what reads the same segments as files of the system, in one call for each run."""
    disk = made.log._disk
    for name in disk.names(DIRECTORY):
        (directory / name).write_bytes(disk.read(DIRECTORY / name))
    return RunReader(CachedDisk(), directory)


needs_files = pytest.mark.skipif(
    shortcuts is None or not hasattr(os, "RWF_NOWAIT"), reason="runs are read in pieces here"
)


def test_a_worker_reads_what_the_store_reads() -> None:
    made = custodian()
    assert read(made, reference(made)) == custodian().read()


def test_a_reference_goes_on_where_the_one_before_it_ended() -> None:
    made = custodian()
    assert numbers(read(made, reference(made, 10))) == list(range(10))
    assert numbers(read(made, reference(made, 10))) == list(range(10, 20))
    assert numbers(made.read()) == list(range(20, 40))


def test_blocks_that_follow_each_other_are_checked_with_few_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = custodian(0)
    for number in range(20):
        made.put(number)
        assert made.commit()
    reads: list[int] = []
    whole = FakeDisk.read_into

    def read_into(self: FakeDisk, path: Path, offset: int, room: memoryview) -> int:
        reads.append(offset)
        return whole(self, path, offset, room)

    monkeypatch.setattr(FakeDisk, "read_into", read_into)
    found = reference(made)
    assert found is not None
    assert found.messages == len(found.pieces) == 20
    assert len(reads) == 1


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("stretch", [1, 3, 40])
def test_messages_of_several_addresses_are_read_however_they_alternate(
    stretch: int, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    made, draw = custodian(0), random.Random(stretch)
    expected: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    number = 0
    for _ in range(12):
        for _ in range(10):
            address = draw.choice("abc")
            for _ in range(draw.randint(1, stretch)):
                made.put(number, address=address, octets=draw.randint(8, 300))
                expected[address].append(number)
                number += 1
        assert made.commit()
    if not is_compiled:
        monkeypatch.setattr(references, "shortcuts", None)
        monkeypatch.setattr(runs, "shortcuts", None)
    for address, wanted in expected.items():
        assert numbers(read(made, reference(made, 5000, address=address))) == wanted


@pytest.mark.skipif(shortcuts is None, reason="the shortcuts were not built")
@pytest.mark.parametrize("seed", range(10))
def test_rows_are_pointed_to_their_strings_alike_with_and_without_shortcuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, draw = custodian(0), random.Random(seed)
    for number in range(60):
        ttl = 5000 if seed % 3 == 0 and draw.random() < 0.1 else NO_TTL
        made.put(number, octets=draw.randint(8, 900), ttl_milliseconds=ttl)
    (sealed,) = made.writer.take_blocks()
    rows = open_block(memoryview(sealed.octets)).rows
    for _ in range(30):
        first = draw.randrange(60)
        part = rows[first * 80 : draw.randint(first + 1, 60) * 80]
        one, other = bytearray(part), bytearray(part)
        if draw.random() < 0.3:
            at = draw.randrange(len(one))
            one[at] = other[at] = draw.randrange(256)
        found = references.strings_of(memoryview(one), 77)
        with monkeypatch.context() as patch:
            patch.setattr(references, "shortcuts", None)
            assert references.strings_of(memoryview(other), 77) == found
        assert found is None or one == other


@pytest.mark.skipif(shortcuts is None, reason="the shortcuts were not built")
def test_places_are_written_alike_with_and_without_shortcuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    positions = array("I", [16, 96, 1 << 20, 0xFFFFFFF0]).tobytes()
    found = place_octets(7, positions)
    monkeypatch.setattr(place, "shortcuts", None)
    assert place_octets(7, positions) == found
    assert [*memoryview(found).cast("Q")] == places_of(7, positions)


@pytest.mark.parametrize(
    "unusual",
    [{"ttl_milliseconds": 5000}, {"octets": (1 << 20) + 1}],
    ids=["time to live", "in parts"],
)
def test_what_is_unusual_is_referred_to_by_nothing_and_read_all_the_same(
    unusual: dict[str, int],
) -> None:
    made = custodian(10, segment_octets=4 << 20)
    made.put(10, **unusual)  # type: ignore[arg-type]
    made.put(11)
    assert made.commit()
    assert numbers(read(made, reference(made))) == list(range(10))
    assert reference(made) is None
    assert numbers(made.read(1)) == [10]
    assert numbers(read(made, reference(made))) == [11]


def test_what_is_too_old_dropped_or_given_back_is_referred_to_by_nothing() -> None:
    made = custodian()
    made.bound(Bounds(age_ns=SECOND_NS))
    made.now_ns += 2 * SECOND_NS
    assert reference(made) is None
    made = custodian()
    messages = read(made, reference(made, 10))
    made.store.give_back(messages[3].claim)
    assert reference(made) is None
    assert numbers(made.read(1)) == [3]
    assert numbers(read(made, reference(made, 10))) == list(range(10, 20))


def test_references_go_on_in_the_next_segment() -> None:
    made = Custodian(FakeDisk(), segment_octets=6000, reserve_octets=1024)
    made.open()
    for number in range(200):
        made.put(number)
        if number % 10 == 9:
            assert made.commit()
    found: list[int] = []
    while len(found) < 200:
        found += numbers(read(made, reference(made)))
    assert found == list(range(200))
    assert len(made.store.holdings.segments) > 3


def damage(made: Custodian, at: int) -> None:
    """Changes an octet of a message's row on the disk."""
    path = DIRECTORY / segment_name(at >> 32)
    octets = bytearray(made.log._disk.read(path))
    octets[position_of(at) + 70] ^= 0xFF  # type: ignore[arg-type]
    made.log._disk.put(path, bytes(octets))  # type: ignore[attr-defined]


def test_what_was_damaged_since_it_was_written_is_not_referred_to_but_listed() -> None:
    made = custodian(10)
    made.put(10)
    assert made.commit()
    places = [each.place for each in made.store.claims(ROUTE)]
    damage(made, places[3])
    assert reference(made) is None
    assert numbers(made.read()) == [10]
    assert made.store.lost == 10
    assert made.store.losses


def test_a_worker_reads_no_block_that_was_damaged_since_the_store_has_checked_it() -> None:
    made = custodian(0)
    for number in range(40):
        made.put(number, address="ab"[number % 2])  # the worker reads whole blocks
    assert made.commit()
    found = reference(made, address="a")
    assert found is not None
    damage(made, found.places[3])
    with pytest.raises(BlockError):
        read(made, found)


def test_a_worker_reads_no_row_that_is_not_as_its_reference_says() -> None:
    made = custodian()
    found = reference(made)
    assert found is not None
    shifted = [Spot(each.offset, each.heap, each.positions[4:]) for each in found.pieces]
    moved = bytearray(shifted[0].positions)
    for at in range(0, len(moved), 4):
        moved[at : at + 4] = (int.from_bytes(moved[at : at + 4], "little") + 8).to_bytes(
            4, "little"
        )
    with pytest.raises(RecordError):
        read(made, found._replace(pieces=[shifted[0]._replace(positions=bytes(moved))]))
    with pytest.raises(FileNotFoundError):
        read(made, found._replace(segment=77))


@needs_files
@pytest.mark.parametrize("stretch", [1, 3, 40])
def test_what_is_read_in_one_call_is_what_is_read_piece_by_piece(
    stretch: int, tmp_path: Path
) -> None:
    made, draw = custodian(0), random.Random(stretch)
    for number in range(400):
        for _ in range(draw.randint(1, stretch)):
            made.put(number, address=draw.choice("ab"), octets=draw.randint(8, 300))
        if number % 40 == 39:
            assert made.commit()
    pieces, whole = RunReader(made.log._disk, DIRECTORY), on_files(made, tmp_path)
    for count in (1, 7, 5000):
        for address in "ab":
            found = reference(made, count, address=address)
            assert found is not None
            one, other = pieces.run(found), whole.run(found)
            assert [*map(bytes, (one.rows, one.heap, one.places))] == [
                *map(bytes, (other.rows, other.heap, other.places))
            ]


@needs_files
def test_what_cannot_be_read_in_one_call_is_told_apart(tmp_path: Path) -> None:
    made = custodian(400)
    whole, found = on_files(made, tmp_path), reference(made)
    assert found is not None
    shifted = bytearray(found.pieces[0].positions)
    for at in range(0, len(shifted), 4):
        moved = int.from_bytes(shifted[at : at + 4], "little") + 8
        shifted[at : at + 4] = moved.to_bytes(4, "little")
    with pytest.raises(RecordError):
        whole.run(found._replace(pieces=[found.pieces[0]._replace(positions=bytes(shifted))]))
    with pytest.raises(FileNotFoundError):
        whole.run(found._replace(segment=77))
    path = tmp_path / segment_name(found.segment)
    os.truncate(path, position_of(found.places[200]))
    with pytest.raises(BlockError):
        whole.run(found)
    assert whole.is_able
    path.unlink()
    path.mkdir()  # the system cannot tell whether it would have to wait for that
    with pytest.raises(OSError, match="not supported"):
        whole.run(found)
    assert not whole.is_able


@pytest.mark.parametrize("cut", [0, 3, 20, 30])
def test_a_malformed_reference_is_refused(cut: int) -> None:
    made = custodian()
    found = reference(made)
    assert found is not None
    with pytest.raises(RecordError):
        RunReference.decoded(found.route, found.queue, found.encoded()[:cut])
    with pytest.raises(RecordError):
        RunReference.decoded(found.route, found.queue, found.encoded() + b"\0\0\0\0")


def test_memory_is_used_again_and_let_go_of() -> None:
    made = custodian(100)
    reader = RunReader(made.log._disk, DIRECTORY)
    kept = []
    for _ in range(5):
        found = reference(made, 10)
        assert found is not None
        kept.append(reader.run(found))
    assert [numbers(run.messages) for run in kept] == [
        list(range(first, first + 10)) for first in range(0, 50, 10)
    ]
    del kept
    for _ in range(5):
        found = reference(made, 10)
        assert found is not None
        reader.run(found)
    assert len(reader._rooms) == 5
    reader.rest()
    assert reader._rooms
    reader.rest()
    assert not reader._rooms


# --- the disk -------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot tell")
def test_what_is_in_the_systems_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(200)))
    room = memoryview(bytearray(50))
    assert CachedDisk().read_into(tmp_path / "file", 100, room) == 50
    assert bytes(room) == bytes(range(100, 150))
    assert CachedDisk().read_part(tmp_path / "file", 190, 50) == bytes(range(190, 200))


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot tell")
def test_what_would_have_to_be_waited_for_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "later")

    (tmp_path / "file").write_bytes(b"abc")
    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(BlockingIOError):
        CachedDisk().read_into(tmp_path / "file", 0, memoryview(bytearray(3)))


@pytest.mark.parametrize(
    ("code", "is_able"), [(errno.EOPNOTSUPP, False), (errno.EINVAL, False), (errno.EIO, True)]
)
def test_where_the_system_cannot_tell_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_able: bool
) -> None:
    def preadv(*_: object) -> int:
        raise OSError(code, "not here")

    (tmp_path / "file").write_bytes(b"abc")
    disk = CachedDisk()
    disk.is_able = True
    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(OSError, match="not here"):
        disk.read_into(tmp_path / "file", 0, memoryview(bytearray(3)))
    assert RunReader(disk, tmp_path).is_able == is_able


def test_a_log_that_is_in_no_files_is_not_referred_to() -> None:
    class Elsewhere(FakeDisk):
        has_files = False

    assert MessageStore(DIRECTORY, disk=FakeDisk(), incarnation=1).has_files
    assert not MessageStore(DIRECTORY, disk=Elsewhere(), incarnation=1).has_files
