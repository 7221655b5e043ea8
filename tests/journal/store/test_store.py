import errno
import random
from pathlib import Path
from typing import Any

import pytest

from router.journal.block import HEADER, open_block, salted
from router.journal.keys import NO_LINK
from router.journal.protocol import Health
from router.journal.record import ROW
from router.journal.segment import (
    ForeignFileError,
    segment_head,
    segment_header,
    segment_name,
)
from router.journal.store import indexes, state
from router.journal.store.gone import GoneColumns
from router.journal.store.holdings import Holdings
from router.journal.store.place import BEGINNING
from router.journal.store.queues import Bounds, Full
from router.journal.store.reading import SegmentReader
from router.journal.store.state import decode_state, encode_state
from router.journal.writer import PART_OCTETS
from tests.support.journal import DIRECTORY, SECOND_NS, SOURCE, FakeDisk, Fault, key
from tests.support.stored import OTHER, ROUTE, Custodian, claims, columns, numbers, queue


def opened(disk: FakeDisk | None = None, **options: Any) -> Custodian:
    custodian = Custodian(disk or FakeDisk(), **options)
    custodian.open()
    return custodian


def stored(custodian: Custodian, count: int, *, first: int = 0, **fields: object) -> None:
    """Stores messages, each with a commit of its own."""
    for number in range(first, first + count):
        custodian.put(number, **fields)  # type: ignore[arg-type]
        assert custodian.commit()


def reopened(disk: FakeDisk, life: int = 1, seed: int = 0, **options: int) -> Custodian:
    """Opens what a crash has left."""
    return opened(disk.crashed(random.Random(seed)), life=life, **options)


def is_full(custodian: Custodian) -> bool:
    """Tells whether the route's senders have to wait."""
    return custodian.store.holdings.routes[ROUTE].is_full


def writes(custodian: Custodian) -> bool:
    """Tells whether the disk takes everything."""
    return custodian.log.health is Health.WRITING


# ------------------------------------------------------------------ order


def test_messages_come_out_whole_and_in_the_order_in_which_they_came() -> None:
    custodian = opened()
    custodian.put(1, octets=300, priority=7, ttl_milliseconds=5000)
    assert custodian.commit()
    (message,) = custodian.read(of=queue(priority=7))
    assert (message.key, message.tag, message.address) == (key(1), b"tag-1", "telemetry.a")
    assert (message.priority, message.guarantee, message.protocol) == (7, 2, 1)
    assert message.payload == b"00000001".ljust(300, b".")
    assert message.ttl_ends_ns == custodian.now_ns + 5 * SECOND_NS
    assert (message.is_overdue, message.is_clouded) == (False, False)


def test_nothing_is_shown_before_it_is_durable() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    custodian.put(1)
    custodian.append()
    assert custodian.read() == []
    disk.faults.append(Fault("flush", errno.EIO))
    assert not custodian.commit()
    assert custodian.read() == []
    custodian.now_ns += SECOND_NS
    assert custodian.commit()
    assert numbers(custodian.read()) == [1]


def test_each_address_and_each_priority_is_a_queue_of_its_own() -> None:
    custodian = opened()
    for number in range(60):
        custodian.put(number, address=f"a.{number % 3}", priority=4 + number % 2)
        custodian.commit()
    assert custodian.log.number > 2, "over several segments"
    for address in range(3):
        for priority in range(2):
            expected = [n for n in range(60) if n % 3 == address and n % 2 == priority]
            read = custodian.read(of=queue(f"a.{address}", 4 + priority))
            assert numbers(read) == expected


def test_reading_goes_on_where_it_stopped_and_takes_each_message_once() -> None:
    custodian = opened()
    stored(custodian, 50)
    assert numbers(custodian.read(20)) == [*range(20)]
    stored(custodian, 5, first=50)
    assert numbers(custodian.read(30)) == [*range(20, 50)]
    assert numbers(custodian.read()) == [*range(50, 55)]
    assert custodian.read() == []


def test_what_is_given_back_is_read_again_before_what_stands_behind_it() -> None:
    custodian = opened()
    stored(custodian, 40)
    read = custodian.read(30)
    for message in (read[21], read[3], read[7]):
        custodian.store.give_back(message.claim)
    assert numbers(custodian.read(5)) == [3, 7, 21, 30, 31]


def test_a_lost_reader_gives_everything_back_but_what_it_said_to_be_gone() -> None:
    custodian = opened()
    stored(custodian, 10)
    read = custodian.read(6)
    custodian.forward(claims(read[1:3]))
    custodian.append()
    custodian.store.give_back_all(ROUTE)
    assert numbers(custodian.read()) == [0, 3, 4, 5, 6, 7, 8, 9]
    assert custodian.commit()
    assert custodian.store.taken == 8


def test_what_was_handed_in_as_gone_is_not_read_while_the_disk_does_not_take_that() -> None:
    disk = FakeDisk()
    first = opened(disk)
    for number in range(4):
        first.put(number)
    first.commit()
    messages = first.read(2)
    second = reopened(disk)
    second.forward(claims(messages))
    second.append()
    assert numbers(second.read()) == [2, 3]


def test_a_long_message_stays_whole_however_its_records_arrive() -> None:
    """OneSegment."""
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    custodian.put(1, octets=(5 << 20) + 17)
    custodian.put(2)
    blocks = custodian.writer.take_blocks()
    assert len(blocks) > 3
    for sealed in blocks[:-1]:
        custodian.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
        assert custodian.log.commit(custodian.now_ns)
        assert custodian.store.holdings.queues == {}
    assert custodian.log.appended[custodian.writer_origin] == blocks[-2].last_sequence + 1
    assert custodian.log.durable[custodian.writer_origin] == 1
    custodian.log.append(blocks[-1].octets, [open_block(memoryview(blocks[-1].octets))])
    assert custodian.log.commit(custodian.now_ns)
    again = reopened(disk)
    for each in (custodian, again):
        long, short = each.read()
        assert long.payload == b"00000001".ljust((5 << 20) + 17, b".")
        assert numbers([short]) == [2]


def test_what_a_worker_leaves_unfinished_is_not_stored() -> None:
    custodian = opened()
    custodian.put(1, octets=3 << 20)
    first, *_ = custodian.writer.take_blocks()
    custodian.log.append(first.octets, [open_block(memoryview(first.octets))])
    custodian.log.admit(custodian.writer_origin, 1)
    assert custodian.log.appended == custodian.log.durable
    assert custodian.log.commit(custodian.now_ns)
    assert custodian.read() == []


# ------------------------------------------------------------------ segments


def test_a_segment_goes_when_all_in_it_is_gone_and_a_later_head_is_durable() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    stored(custodian, 60)
    assert custodian.log.number > 2
    custodian.forward(claims(custodian.read()))
    custodian.append()
    assert custodian.store.removable() == []
    assert custodian.commit()
    assert custodian.store.remove_done() > 0
    custodian.commit()
    left = [path.name for path in disk.paths if path.suffix == ".segment"]
    assert left == [segment_name(custodian.log.number)]
    assert reopened(disk).read() == []


def test_one_message_that_stays_holds_its_own_segment_and_no_other() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    stored(custodian, 30)
    kept, *others = custodian.read()
    custodian.forward(claims(others))
    custodian.commit()
    for first in range(100, 1000, 30):
        stored(custodian, 30, first=first)
        custodian.forward(claims(custodian.read()))
        custodian.commit()
        custodian.store.remove_done()
    left = [path for path in disk.paths if path.suffix == ".segment"]
    assert len(left) <= 4, "its own, the open one, and what the last round filled"
    assert numbers(reopened(disk).read()) == [0]
    custodian.forward([kept.claim])
    custodian.commit()
    custodian.store.remove_done()
    assert DIRECTORY / segment_name(1) not in disk.paths


def test_the_memory_for_what_is_stored_does_not_grow_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "_ENTRIES_KEPT", 500)
    custodian = opened(segment_octets=20_000)
    stored(custodian, 1500)
    holdings = custodian.store.holdings
    assert len(holdings.segments) > 15
    assert len(holdings.queues) == 1
    assert len(custodian.store.indexes) <= 9
    assert not any(segment.marks for segment in holdings.segments.values())
    assert numbers(custodian.read(2000)) == [*range(1500)]


def test_a_segment_of_very_many_queues_lists_none_and_is_read_all_the_same() -> None:
    custodian = opened(segment_octets=1 << 20)
    for number in range(600):
        custodian.put(number, address=f"a.{number % 300}")
    custodian.commit()
    (segment,) = custodian.store.holdings.segments.values()
    assert segment.queues is None
    assert numbers(custodian.read(of=queue("a.299"))) == [299, 599]


# ------------------------------------------------------------------ crashes


def test_a_new_process_reads_the_last_segment_alone_and_knows_everything() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    stored(custodian, 100)
    custodian.forward(claims(custodian.read(35)))
    assert custodian.commit()
    after = disk.crashed(random.Random(3))
    read: list[Path] = []
    plain = after.read

    def noted(path: Path) -> bytes:
        read.append(path)
        return plain(path)

    after.read = noted  # type: ignore[method-assign]
    again = opened(after, life=1)
    assert len({path for path in read if path.suffix == ".segment"}) <= 2
    assert again.store.losses == []
    holding = again.store.holdings.routes[ROUTE]
    assert (holding.messages, holding.octets) == (65, 65 * (80 + 6 + 11 + 20))
    assert numbers(again.read()) == [*range(35, 100)]


def test_what_is_gone_stays_gone_when_its_segment_was_removed() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 12)
    assert len(custodian.store.holdings.segments) > 1
    custodian.forward(claims(custodian.read(8)))
    custodian.commit()
    assert custodian.store.remove_done() > 0
    disk.sync_directory(DIRECTORY)
    again = reopened(disk)
    assert again.store.losses == []
    assert again.store.holdings.routes[ROUTE].messages == 4
    assert numbers(again.read()) == [8, 9, 10, 11]


def test_nothing_is_too_old_for_a_clock_that_was_set_back() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    custodian.bound(Bounds(age_ns=10 * SECOND_NS))
    custodian.now_ns += 3600 * SECOND_NS
    stored(custodian, 1)
    again = Custodian(disk.crashed(random.Random(0)), life=1)
    again.open()
    again.bound(Bounds(age_ns=10 * SECOND_NS))
    assert again.overdue() == [], "an hour earlier by the clock"
    again.now_ns += 3611 * SECOND_NS
    assert numbers(again.overdue()) == [0]


def test_the_store_of_a_later_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    with monkeypatch.context() as later:
        later.setattr(state, "VERSION", state.VERSION + 1)
        custodian = opened(disk)
        stored(custodian, 3)
        custodian.log.close(custodian.now_ns)
    before = {path: disk.content(path) for path in disk.paths}
    with pytest.raises(ForeignFileError, match=segment_name(1)):
        Custodian(disk, life=1).open()
    assert {path: disk.content(path) for path in disk.paths} == before


def test_a_segment_that_was_made_and_given_up_does_not_hide_what_was_stored_after_it() -> None:
    """The disk was full when it was made, and a crash brought its name back."""
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    stored(custodian, 3)
    head = segment_head(
        number=2,
        router="dc1",
        incarnation=custodian.writer.incarnation,
        time_ns=custodian.now_ns,
        marks=custodian.log.durable,
        links=(),
        previous=1,
    )
    given_up = head + custodian.store.head(custodian.now_ns)
    stored(custodian, 3, first=3)
    salt = 7
    disk.put(
        DIRECTORY / segment_name(2), segment_header(salt) + salted(given_up, salt) + bytes(500)
    )
    again = reopened(disk)
    assert numbers(again.read()) == [0, 1, 2, 3, 4, 5]
    assert again.store.losses == []


def test_the_store_of_the_version_before_is_read() -> None:
    """Version 1 ends each queue before the last place that somebody dropped."""
    holdings = Holdings()
    holdings.queue(ROUTE, b"telemetry.a", 4).messages = 3
    octets = bytearray(encode_state(holdings))
    place = octets.index(b"telemetry.a")
    octets[0] = 1
    del octets[place - 8 : place]
    (read,) = decode_state(bytes(octets)).queues.values()
    assert (read.address, read.messages, read.condemned) == (b"telemetry.a", 3, 0)


def test_a_log_of_version_3_is_read_and_goes_on_with_what_is_gone_by_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FakeDisk()
    with monkeypatch.context() as earlier:
        earlier.setattr(state, "VERSION", 3)
        custodian = opened(disk)
        stored(custodian, 9)
        for claim in claims(custodian.read(4)):
            custodian.forward([claim])
        custodian.commit()
    disk = disk.crashed(random.Random(0))
    later = opened(disk, life=1)
    later.forward(claims(later.read(3)))
    later.commit()
    again = reopened(disk, life=2)
    assert numbers(again.read()) == [7, 8]
    assert again.store.losses == []
    monkeypatch.setattr(state, "VERSION", 3)
    with pytest.raises(ForeignFileError):
        reopened(disk, life=3)


class Many(GoneColumns):
    """As many messages as make it seem right in 64 bits."""

    @property
    def messages(self) -> int:
        return super().messages + (1 << 61)


def test_a_row_that_is_not_as_long_as_it_says_names_nothing() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    stored(custodian, 3)
    named = columns(claims(custodian.read()))
    custodian.writer.forwarded_run(1, named._replace(body=named.body[:-1]), 0x24)
    custodian.writer.forwarded_run(1, Many(*named), 0x24)
    custodian.commit()
    assert numbers(reopened(disk).read()) == [0, 1, 2]


def test_what_is_unsettled_is_known_though_its_segment_is_gone() -> None:
    """KnownUntilSettled."""
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2000)
    for number in range(30):
        custodian.put(number, guarantee=3)
        custodian.commit()
    custodian.writer.settled_run(custodian.now_ns, SOURCE, NO_LINK, [key(7), key(29)])
    custodian.forward(claims(custodian.read()))
    custodian.commit()
    stored(custodian, 20, first=30)
    assert custodian.store.remove_done() > 1
    custodian.commit()
    again = reopened(disk)
    expected = {key(number) for number in range(30) if number not in {7, 29}}
    assert {*again.store.holdings.unsettled[SOURCE]} == expected


# ------------------------------------------------------------------ damage


def spoil(disk: FakeDisk, number: int, offset: int, octets: int = 1) -> None:
    """Damages a segment, durably."""
    path = DIRECTORY / segment_name(number)
    content = bytearray(disk.content(path))
    for at in range(offset, offset + octets):
        content[at] ^= 0xFF
    disk.put(path, bytes(content))


def test_a_damaged_block_costs_what_it_held_and_is_listed() -> None:
    """DamageIsListed."""
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=30_000)
    for first in range(0, 60, 6):
        for number in range(first, first + 6):
            custodian.put(number)
        custodian.commit()
    content = disk.content(DIRECTORY / segment_name(1))
    spoil(disk, 1, content.index(b"00000013"))
    lost = {12, 13, 14, 15, 16, 17}
    assert numbers(custodian.read()) == [n for n in range(60) if n not in lost]
    assert custodian.store.lost == 6
    assert "block is wrong" in custodian.store.losses[0]
    assert custodian.store.holdings.routes[ROUTE].messages == 54


LONG = {"segment_octets": 8 << 20, "reserve_octets": 16 << 20}


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_damaged_block_of_a_message_in_parts_costs_the_message(
    number: int, reopens: bool
) -> None:
    disk = FakeDisk()
    custodian = opened(disk, **LONG)
    custodian.put(2, octets=3 * PART_OCTETS + 7)
    blocks = custodian.writer.take_blocks()
    assert len(blocks) == 4
    for sealed in blocks:
        custodian.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
    for other in (3, 4):
        assert custodian.commit()
        custodian.put(other)
    assert custodian.commit()
    row = blocks[number].octets[HEADER.size : HEADER.size + ROW.size]
    spoil(disk, 1, disk.content(DIRECTORY / segment_name(1)).index(row))
    again = reopened(disk, **LONG) if reopens else custodian
    left = numbers(again.read())
    assert left == [3, 4]
    assert again.store.losses


@pytest.mark.parametrize("missing", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("resumes", [False, True])
def test_a_message_in_parts_some_of_which_the_log_never_got_is_lost(
    missing: tuple[int, ...], resumes: bool
) -> None:
    """However it came to that: it is not forwarded cut short."""
    custodian = opened(FakeDisk(), **LONG)
    custodian.put(1, octets=3 * PART_OCTETS + 7)
    blocks = custodian.writer.take_blocks()
    assert len(blocks) == 4
    for number, sealed in enumerate(blocks):
        if number not in missing:
            custodian.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
    custodian.log.commit(custodian.now_ns)
    place = next(custodian.store.entries(ROUTE, BEGINNING))[0].place
    if resumes:
        assert custodian.store.recall(place, custodian.now_ns) is None
    else:
        assert custodian.read() == []
    assert custodian.store.lost == 1
    (loss,) = custodian.store.losses
    assert loss.endswith("is lost, of telemetry.a (1): a part of a message is missing")


def test_damage_of_a_segment_that_is_not_read_yet_is_found_when_its_turn_comes() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 40)
    content = disk.content(DIRECTORY / segment_name(1))
    spoil(disk, 1, content.index(b"00000001"))
    again = reopened(disk, segment_octets=2500)
    assert again.store.losses == []
    read = again.read()
    assert numbers(read) == [0, *range(2, 40)]
    assert again.store.lost == 1
    assert again.store.losses == [f"1 message of {segment_name(1)} is lost, of telemetry.a (1)"]
    assert again.store.holdings.routes[ROUTE].messages == 39
    assert read[1].is_clouded, "what was damaged may have said that it is gone"


def test_where_the_newest_head_is_damaged_an_earlier_one_serves_and_all_is_clouded() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 40)
    custodian.forward(claims(custodian.read(10)))
    custodian.commit()
    custodian.now_ns += SECOND_NS
    number = custodian.log.number
    after = disk.crashed(random.Random(1))
    spoil(after, number, 60, 200)
    again = opened(after, life=1, segment_octets=2500)
    read = again.read()
    assert set(range(10, 30)) <= set(numbers(read)), "what stood in other segments"
    assert numbers(read) == sorted(numbers(read))
    assert again.store.losses
    assert all(message.is_clouded for message in read)


def test_a_missing_segment_is_listed_and_costs_what_it_held() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 40)
    after = disk.crashed(random.Random(1))
    after.remove(DIRECTORY / segment_name(2))
    again = opened(after, life=1, segment_octets=2500)
    read = numbers(again.read())
    lost = 40 - len(read)
    assert again.store.losses == [
        f"segment 2 is missing with {lost} messages, of telemetry.a ({lost})"
    ]
    assert 0 < len(read) < 40
    assert again.store.holdings.routes[ROUTE].messages == len(read)


def test_a_missing_segment_is_told_at_one_start_and_not_at_the_next() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 40)
    custodian.log.close(custodian.now_ns)
    disk.remove(DIRECTORY / segment_name(2))
    again = opened(disk, life=1, segment_octets=2500)
    assert len(again.store.losses) == 1
    left = again.store.holdings.routes[ROUTE].messages
    last = reopened(disk, life=2, segment_octets=2500)
    assert last.store.losses == []
    assert len(last.read()) == left


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_loss_that_was_told_is_not_told_again_after_a_restart(*, is_missing: bool) -> None:
    disk = FakeDisk()
    custodian = spread(disk)
    path = DIRECTORY / segment_name(2)
    if is_missing:
        disk.remove(path)
    else:
        second = custodian.store.holdings.segments[1].stored + 1
        spoil(disk, 2, disk.content(path).index(b"%08d" % second))
    read = custodian.read(of=queue("a"))
    assert len(custodian.store.losses) == 1
    assert f"of a ({30 - len(read)})" in custodian.store.losses[0]
    assert custodian.log.deadline_ns == 0, "the next head says it"
    custodian.forward(claims(read))
    custodian.commit()
    custodian.store.remove_done()
    again = reopened(disk, life=2, segment_octets=2500)
    assert again.store.losses == []
    assert again.read(of=queue("a")) == []
    assert numbers(again.read(of=queue("b"))) == [*range(100, 110)]
    assert again.store.losses == []


@pytest.mark.parametrize("is_missing", [True, False])
def test_what_is_lost_while_it_is_read_is_one_line_for_a_block_or_a_file(
    *, is_missing: bool
) -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    for number in range(40):
        custodian.put(number, address=f"a.{number % 7 if number < 20 else 0}", octets=20_000)
        if number % 20 == 19:
            custodian.commit()
    path = DIRECTORY / segment_name(1)
    (first,) = custodian.read(1, of=queue("a.0"))
    if is_missing:
        disk.remove(path)
    else:
        spoil(disk, 1, disk.content(path).index(b"00000013"))
    custodian.store.indexes.reader = SegmentReader(disk, DIRECTORY)  # without what it has in memory
    found = [len(custodian.read(of=queue(f"a.{number}"))) for number in range(7)]
    lost = 39 if is_missing else 19
    assert sum(found) == 39 - lost
    (loss,) = custodian.store.losses
    assert loss.startswith(f"{lost} messages of {path.name} are lost, of a.")
    assert "a.1 (3)" in loss
    assert "2 others (" in loss
    assert custodian.store.lost == lost
    custodian.store.give_back(first.claim)
    assert custodian.store.holdings.routes[ROUTE].messages == 40 - lost


def cut_end(disk: FakeDisk, number: int) -> int:
    """Cuts a segment to its half, durably; gives the octets that are left."""
    path = DIRECTORY / segment_name(number)
    content = disk.content(path)
    disk.put(path, content[: len(content) // 2])
    return len(content) // 2


def test_what_is_missing_at_the_end_of_a_store_that_was_closed_is_told_once() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    stored(custodian, 40)
    custodian.log.close(custodian.now_ns)
    octets = cut_end(disk, 1)
    again = opened(disk, life=1, segment_octets=1 << 20)
    (loss,) = again.store.losses
    left = again.read()
    assert 0 < len(left) < 40
    assert loss.endswith(
        f"of {segment_name(1)} cannot be read, which held {40 - len(left)} messages"
    )
    assert 0 < octets - int(loss.split()[4]) < 300, "from the last whole block on"
    assert all(each.is_clouded for each in left), "what is missing may have said that they are gone"
    assert reopened(disk, life=2).store.losses == []


def test_what_is_missing_is_told_though_the_router_was_started_and_stopped_since() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    stored(custodian, 40)
    custodian.log.close(custodian.now_ns)
    again = opened(disk, life=1, segment_octets=1 << 20)
    again.log.close(again.now_ns)
    cut_end(disk, 1)
    losses = opened(disk, life=2).store.losses
    assert "cannot be read, which held" in losses[0]
    assert losses[1].endswith("records of worker 1 are missing"), "by the marks of the next segment"


def test_a_torn_tail_after_a_crash_is_no_loss_whatever_was_closed_before() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=1 << 20)
    stored(custodian, 5)
    custodian.log.close(custodian.now_ns)
    again = opened(disk, life=1, segment_octets=1 << 20)
    stored(again, 5, first=5)
    cut = disk.crashed(random.Random(1))
    path = DIRECTORY / segment_name(2)
    whole = cut.content(path).rstrip(b"\0")
    cut.put(path, whole + bytes(-len(whole) % 8) + b"torn")
    last = opened(cut, life=2)
    assert last.store.losses == []
    assert numbers(last.read()) == [*range(10)]


def test_a_head_that_has_no_room_is_written_when_there_is_some() -> None:
    disk = FakeDisk()
    custodian = spread(disk)
    disk.remove(DIRECTORY / segment_name(2))
    custodian.read(of=queue("a"))
    disk.faults.append(Fault("create", errno.ENOSPC))
    custodian.commit()
    custodian.commit()
    assert not writes(custodian)
    custodian.now_ns += 2 * SECOND_NS
    custodian.commit()
    assert writes(custodian)
    assert reopened(disk, life=2, segment_octets=2500).store.losses == []


# ------------------------------------------------------------------ bounds


def test_a_route_is_full_at_its_messages_or_its_octets_and_no_other_route_is() -> None:
    custodian = opened()
    holdings = custodian.store.holdings
    custodian.bound(Bounds(messages=5))
    stored(custodian, 4)
    stored(custodian, 9, first=100, route=OTHER)
    assert not is_full(custodian)
    stored(custodian, 1, first=4)
    assert is_full(custodian)
    assert not holdings.routes[OTHER].is_full
    custodian.forward(claims(custodian.read(1)))
    custodian.commit()
    assert not is_full(custodian)
    custodian.bound(Bounds(octets=holdings.routes[ROUTE].octets))
    assert is_full(custodian)


def test_the_oldest_messages_are_dropped_for_the_newest_if_the_route_says_so() -> None:
    custodian = opened()
    custodian.bound(Bounds(messages=10, full=Full.DROP_OLDEST))
    stored(custodian, 12)
    assert not is_full(custodian)
    dropped = custodian.overdue()
    assert numbers(dropped) == [0, 1]
    assert all(message.is_overdue for message in dropped)
    stored(custodian, 1, first=12)
    assert is_full(custodian), "its dead letters go nowhere"
    custodian.forward(claims(dropped))
    custodian.commit()
    assert not is_full(custodian)
    assert numbers(custodian.overdue()) == [2]
    assert numbers(custodian.read()) == [*range(3, 13)]


def test_what_was_dropped_stays_dropped_after_a_crash() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    custodian.bound(Bounds(messages=10, full=Full.DROP_OLDEST))
    stored(custodian, 13)
    custodian.overdue()
    custodian.log.close(custodian.now_ns)
    again = opened(disk, life=1)
    again.log.close(again.now_ns)  # its head says what the last life knew
    last = opened(disk, life=2)
    last.bound(Bounds(messages=10, full=Full.DROP_OLDEST))
    assert numbers(last.overdue()) == [0, 1, 2]


def test_what_is_too_old_is_taken_as_overdue_from_all_queues_in_order_of_arrival() -> None:
    custodian = opened()
    custodian.bound(Bounds(age_ns=10 * SECOND_NS))
    for number in range(20):
        custodian.now_ns += SECOND_NS
        stored(custodian, 1, first=number, address=f"a.{number % 2}")
    custodian.now_ns += 2 * SECOND_NS
    assert numbers(custodian.overdue(4)) == [0, 1, 2, 3]
    assert numbers(custodian.overdue()) == [*range(4, 12)]
    assert custodian.overdue() == []
    assert numbers(custodian.read(of=queue("a.0"))) == [12, 14, 16, 18]


def test_an_overdue_message_that_is_given_back_is_taken_as_overdue_again() -> None:
    custodian = opened()
    custodian.bound(Bounds(age_ns=SECOND_NS))
    stored(custodian, 5)
    custodian.now_ns += SECOND_NS
    custodian.store.give_back(custodian.overdue()[2].claim)
    assert numbers(custodian.overdue()) == [2]
    assert custodian.read() == []


def test_a_message_whose_time_to_live_has_ended_is_shown_as_overdue_in_its_turn() -> None:
    custodian = opened()
    stored(custodian, 1, ttl_milliseconds=2000)
    stored(custodian, 1, first=1)
    custodian.now_ns += 2 * SECOND_NS
    assert [message.is_overdue for message in custodian.read()] == [True, False]


# ------------------------------------------------------------------ the disk


def test_on_a_full_disk_nothing_is_lost_and_forwarding_makes_room() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=4000, reserve_octets=8000)
    disk.capacity_octets = 60_000
    number = 0
    while writes(custodian):
        custodian.put(number)
        custodian.commit()
        number += 1
    custodian.commit()
    held = numbers(custodian.read(10))
    custodian.store.give_back_all(ROUTE)
    for _ in range(400):
        read = custodian.read(5)
        custodian.forward(claims(read))
        custodian.now_ns += SECOND_NS
        custodian.commit()
        custodian.store.remove_done()
        if writes(custodian) and not read:
            break
    assert writes(custodian)
    assert held == [*range(10)]
    assert not any(route.messages for route in custodian.store.holdings.routes.values())


@pytest.mark.parametrize("spare_octets", [30_000, 1 << 30])
def test_it_takes_no_more_while_less_of_the_disk_is_free_than_is_to_be_left(
    spare_octets: int,
) -> None:
    disk = FakeDisk()
    custodian = opened(disk, reserve_octets=2000, spare_octets=spare_octets)
    disk.capacity_octets = 400_000
    number = 0
    while writes(custodian):
        stored(custodian, 1, first=number)
        number += 1
    free, octets = disk.room(DIRECTORY) or (0, 0)
    assert 20_000 < free < min(spare_octets, octets // 8)
    assert custodian.log.errno == errno.ENOSPC
    stored(custodian, 20, first=number)  # what comes all the same is durable
    assert not writes(custodian)
    while read := custodian.read(5):
        custodian.forward(claims(read))
        custodian.now_ns += SECOND_NS
        assert custodian.commit()
        custodian.store.remove_done()
    assert custodian.log.deadline_ns is not None
    custodian.now_ns += 2 * SECOND_NS
    custodian.commit()
    assert writes(custodian)


def test_a_disk_that_does_not_give_a_message_now_gives_it_later_in_its_turn() -> None:
    disk = FakeDisk()
    custodian = opened(disk)
    stored(custodian, 5)
    disk.faults.append(Fault("read_part", errno.EIO))
    assert custodian.read() == []
    assert custodian.read() == [], "it is not asked before the pause has ended"
    rest(custodian)
    assert numbers(custodian.read()) == [*range(5)]
    assert custodian.store.losses == []


def rest(custodian: Custodian) -> None:
    """Lets the longest pause pass before what could not be read is tried again."""
    custodian.store.look_again(custodian.now_ns)
    custodian.now_ns += 8 * SECOND_NS
    custodian.store.look_again(custodian.now_ns)


def spread(disk: FakeDisk) -> Custodian:
    """Stores 30 messages of ``a`` in segments 1 to 3, and 10 of ``b`` behind them; reopens that."""
    custodian = opened(disk, segment_octets=2500)
    stored(custodian, 30, address="a")
    stored(custodian, 10, first=100, address="b")
    custodian.now_ns += SECOND_NS
    custodian.log.close(custodian.now_ns)
    return opened(disk, life=1, segment_octets=2500)


def test_a_segment_that_cannot_be_read_waits_and_others_go_on() -> None:
    """UnreadableWaits."""
    disk = FakeDisk()
    custodian = spread(disk)
    store, path = custodian.store, DIRECTORY / segment_name(2)
    disk.unreadable[path] = errno.EIO
    first = numbers(custodian.read(of=queue("a")))
    assert first == [*range(first[-1] + 1)], "what stands before it"
    assert 0 < len(first) < 30
    waiting = store.holdings.segments[2].stored
    assert store.unreadable.take_news() == [(2, "Input/output error")]
    assert store.unreadable_words() == (
        f"{path.name}: Input/output error; {waiting} messages wait for it"
    )
    stored(custodian, 5, first=30, address="a")
    assert custodian.read(of=queue("a")) == [], "newcomers queue behind it"
    assert numbers(custodian.read(of=queue("b"))) == [*range(100, 110)]
    rest(custodian)
    assert store.unreadable.take_news() == [], "it is told once"
    assert store.ages.oldest_ns(ROUTE) is not None
    del disk.unreadable[path]
    rest(custodian)
    assert store.unreadable.take_news() == [(2, None)]
    assert numbers(custodian.read(of=queue("a"))) == [*range(len(first), 35)]
    assert (store.losses, store.unreadable_words()) == ([], "")


def test_what_a_segment_holds_that_cannot_be_read_is_overdue_when_it_comes_back() -> None:
    disk = FakeDisk()
    custodian = spread(disk)
    custodian.bound(Bounds(age_ns=20 * SECOND_NS))
    disk.unreadable[DIRECTORY / segment_name(2)] = errno.EIO
    custodian.now_ns += 30 * SECOND_NS
    early = numbers(custodian.overdue())
    assert set(early) > set(range(100, 110)), "other queues become too old meanwhile"
    assert not set(early) & set(range(20, 30)), "what stands behind it in its queue does not"
    assert custodian.store.ages.becomes_old_ns(ROUTE) is None
    disk.unreadable.clear()
    rest(custodian)
    late = numbers(custodian.overdue())
    assert sorted(early + late) == [*range(30), *range(100, 110)]


def test_a_route_drops_nothing_across_a_segment_that_cannot_be_read() -> None:
    disk = FakeDisk()
    custodian = spread(disk)
    disk.unreadable[DIRECTORY / segment_name(1)] = errno.EIO
    custodian.bound(Bounds(messages=10, full=Full.DROP_OLDEST))
    assert custodian.overdue() == []
    assert is_full(custodian)
    disk.unreadable.clear()
    rest(custodian)
    assert numbers(custodian.overdue()) == [*range(30)]


@pytest.mark.parametrize("code", [errno.EISDIR, errno.ENOTDIR, errno.ENOENT])
def test_an_error_that_does_not_end_by_itself_costs_what_the_segment_held(code: int) -> None:
    disk = FakeDisk()
    custodian = spread(disk)
    held = custodian.store.holdings.segments[2].stored
    disk.unreadable[DIRECTORY / segment_name(2)] = code
    read = numbers(custodian.read(of=queue("a")))
    assert len(read) == 30 - held
    assert custodian.store.lost == held
    assert len(custodian.store.losses) == 1
    assert custodian.store.unreadable_words() == ""


def test_the_counts_wait_for_a_segment_that_cannot_be_read() -> None:
    """One segment is missing, so all are counted anew; another one cannot be read."""
    disk = FakeDisk()
    custodian = spread(disk)
    custodian.log.close(custodian.now_ns)
    held = custodian.store.holdings.segments[1].stored
    disk.unreadable[DIRECTORY / segment_name(2)] = errno.EIO
    disk.remove(DIRECTORY / segment_name(1))
    again = opened(disk, life=2, segment_octets=2500)
    assert again.store.holdings.routes[ROUTE].messages == 40
    disk.unreadable.clear()
    rest(again)
    assert again.store.holdings.routes[ROUTE].messages == 40 - held
    assert numbers(again.read(of=queue("a"))) == [*range(held, 30)]


def test_a_disk_that_gives_nothing_is_not_asked_for_each_segment() -> None:
    disk = FakeDisk()
    custodian = opened(disk, segment_octets=700)
    for number in range(200):
        stored(custodian, 1, first=number, address=f"a.{number}")
    custodian.log.close(custodian.now_ns)
    again = opened(disk, life=1, segment_octets=700)
    assert len(again.store.holdings.segments) > 100
    disk.faults.append(Fault("read_part", errno.EIO, times=10**6))
    for number in range(200):
        assert again.read(of=queue(f"a.{number}")) == []
    assert len(again.store.unreadable) == 64
    disk.faults.clear()
    rest(again)
    assert all(again.read(of=queue(f"a.{number}")) for number in range(200))
