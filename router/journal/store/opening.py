"""Finds out what a message store holds when its process starts.

    newest head with a commit behind it  ->  the records behind it, oldest first  ->  Holdings

Usually that is one segment: the others are not read. If heads are damaged, an earlier one is the
base; if there is none at all, every segment is read. Then, and whenever records are missing that
were durable, messages may have been forwarded though no record says so: they are *clouded*.

    file, which the state                      means
    names and which is there                   its messages are read when their turn comes
    names and which is missing                 lost, unless all its messages are gone by now
    does not name, before the base             all its messages are gone: it can be removed
    does not name, the base or behind it       its records are applied
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import attrs

from router.journal.block import Block, BlockFlag
from router.journal.disk import Disk
from router.journal.ending import Ending, read_ending
from router.journal.record import RecordError, RecordFlag, RecordKind, heap_strings
from router.journal.segment import (
    NEWEST_NAME,
    Chain,
    ForeignFileError,
    SegmentScan,
    numbered,
    read_newest,
    segment_name,
)
from router.journal.sequence import SequenceFollower
from router.journal.store.holdings import Holdings
from router.journal.store.index import SegmentIndex, StoredRow, Unsettled, rows_of
from router.journal.store.place import Place
from router.journal.store.state import StateError, StateVersionError, decode_state


@attrs.define(eq=False, kw_only=True)
class Found:
    """What a store's directory holds.

    Attributes:
        holdings: the counts.
        indexes: of the segments that were read, by number.
        leftovers: segments whose messages are all gone.
        losses: what was durable and is missing, for people.
        missing: segments with messages that are not gone, whose files are, and how many.
    """

    holdings: Holdings
    indexes: dict[int, SegmentIndex] = attrs.field(factory=dict)
    leftovers: list[int] = attrs.field(factory=list)
    losses: list[str] = attrs.field(factory=list)
    missing: dict[int, int] = attrs.field(factory=dict)


def read_store(directory: Path, disk: Disk) -> Found:
    """Reads the store in ``directory``.

    Raises:
        OSError: a file cannot be read.
        ForeignFileError: a later version wrote one; nothing was changed.
    """
    numbers = numbered(disk.names(directory), "segment")
    base, found = _find_base(directory, numbers, disk)
    chain, follower = Chain(base or 0), SequenceFollower()
    ending = read_ending(disk, directory)
    for number in numbers:
        if base is None or number >= base:
            scan = _apply(directory, number, found, chain, follower, disk)
            if number == ending.segment:
                _compare(scan, ending, found)
        elif number not in found.holdings.segments:
            found.leftovers.append(number)
    if numbers and chain.end(_newest(directory, disk)):
        found.holdings.cloud()
    found.losses += [f"segment {number} is missing" for number in chain.missing]
    _find_missing(found, numbers)
    for hole in follower.holes:
        count = hole.last - hole.first + 1
        found.losses.append(f"{count:,} records of worker {hole.origin.worker} are missing")
    if found.losses or found.missing:
        found.holdings.cloud()
    return found


def state_of(blocks: Iterable[tuple[int, Block]]) -> Holdings | None:
    """Returns the state in the head of a segment; None: there is none that is whole.

    Raises:
        StateVersionError: it is of a later version.
    """
    pieces: list[bytes] = []
    for _, block in blocks:
        if not block.flags & BlockFlag.OWN:
            continue
        for row in block.unpacked_rows():
            if row[0] != RecordKind.STATE:
                continue
            with contextlib.suppress(RecordError):
                pieces.append(heap_strings(row, block.heap)[2])
            if not row[4] & RecordFlag.MORE:
                with contextlib.suppress(StateError):
                    return decode_state(b"".join(pieces))
                return None
    return None


def _find_base(directory: Path, numbers: list[int], disk: Disk) -> tuple[int | None, Found]:
    """Returns the newest segment with a state, and what that says."""
    for number in reversed(numbers):
        path = directory / segment_name(number)
        scan = SegmentScan(disk.read(path))
        if scan.is_foreign:
            raise ForeignFileError(path)
        try:
            holdings = state_of(scan.blocks())
        except StateVersionError as error:
            raise ForeignFileError(path) from error
        if holdings is not None and _is_committed(scan):
            return number, Found(holdings=holdings)
    return None, Found(holdings=Holdings())


def _is_committed(scan: SegmentScan) -> bool:
    """Returns whether a segment was written to after it had been made.

    One that was only made may have been given up, because the disk was full for example, and the
    segment before was written on: what its head says is then out of date.
    """
    fence = RecordKind.FENCE
    committed = [
        not block.flags & BlockFlag.OWN or any(row[0] == fence for row in block.unpacked_rows())
        for _, block in scan.blocks()
    ]
    return any(committed) or bool(scan.damage)


def _apply(  # noqa: PLR0917
    directory: Path,
    number: int,
    found: Found,
    chain: Chain,
    follower: SequenceFollower,
    disk: Disk,
) -> SegmentScan:
    """Applies the records of a segment that no state speaks of."""
    holdings = found.holdings
    scan = SegmentScan(disk.read(directory / segment_name(number)))
    segment = holdings.segment(number)
    index = found.indexes[number] = SegmentIndex(number)
    for offset, block in scan.blocks():
        chain.follow(number, block)
        if not follower.is_new(block):
            continue
        index.holds(offset, block)
        for row in rows_of(number, offset, block):
            if isinstance(row, StoredRow):
                entry = row.entry
                queue = holdings.queue(
                    row.route, row.address, row.priority, behind=Place(entry.place - 1)
                )
                holdings.stored(queue, entry.place, entry.octets, entry.time_ns)
                index.add(entry, is_unusual=row.is_unusual)
                if row.unsettled is not None:
                    holdings.unsettle(row.unsettled)
            elif isinstance(row, Unsettled):
                holdings.settle(row)
            else:
                holdings.forwarded(row)
    segment.end = scan.end
    chain.last = max(chain.last, number)
    found.losses += [f"{damage} of {segment_name(number)} cannot be read" for damage in scan.damage]
    return scan


def _compare(scan: SegmentScan, ending: Ending, found: Found) -> None:
    """Lists what a segment that was closed in order lacks at its end."""
    cut = ending.cut(scan)
    if cut is not None:
        messages = ending.messages - found.holdings.segment(ending.segment).stored
        held = f", which held {messages:,} messages" if messages > 0 else ""
        found.losses.append(f"{cut} of {segment_name(ending.segment)} cannot be read{held}")


def _find_missing(found: Found, numbers: list[int]) -> None:
    """Lists the segments whose files are gone before their messages are."""
    there = set(numbers)
    for segment in list(found.holdings.segments.values()):
        if segment.number in there:
            continue
        if not segment.is_done:
            found.missing[segment.number] = segment.stored - segment.gone
        del found.holdings.segments[segment.number]


def _newest(directory: Path, disk: Disk) -> int:
    try:
        return read_newest(disk.read(directory / NEWEST_NAME))
    except FileNotFoundError:
        return 0
