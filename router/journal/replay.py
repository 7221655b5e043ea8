"""Replay: reads a journal's store and returns the unsettled deliveries, as far as durable.

    newest snapshot, if there is one  ->  every later segment, oldest first  ->  Replayed

A torn tail is ignored: it was never durable; a segment that was closed in order has none
(``ending``). Missing records that were durable (a gap
in an origin's sequence, a damaged part of a segment or a missing segment) are reported, and cloud
the deliveries that they may have concerned: those of the origin's worker, or all of them if the
origin is unknown.

Other workers may write to the store meanwhile, through the journal's process, and old segments may
be removed. Segments are removed only after a newer snapshot exists, so if a snapshot has appeared
or a segment has vanished, the replay starts over.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.block import Block
from router.journal.disk import Disk
from router.journal.ending import NO_ENDING, Ending
from router.journal.files import FileStorage
from router.journal.memory import Memory
from router.journal.segment import (
    Chain,
    Damage,
    SegmentScan,
    numbered,
    segment_name,
    snapshot_name,
)
from router.journal.sequence import Hole, SequenceFollower
from router.journal.storage import Readable
from router.journal.unsettled import Unsettled

_TRIES: Final = 10  # each one needs a reclaim to end just meanwhile: minutes of traffic apart


class ReplayError(RouterError):
    """The store does not hold still: its segments vanish faster than they can be read."""


@attrs.define(kw_only=True)
class Replayed:
    """What a journal tells.

    Attributes:
        memory: the unsettled deliveries, and the links.
        chain: of the segments; tells which are missing.
        follower: next sequence number of each origin, and the holes.
        damage: file name and place of durable octets that cannot be read.
        torn_octets: cut off the ends of segments.
        segments: how many were read.
        last_segment: number of the last one, or of the snapshot, or 0.
    """

    memory: Memory = attrs.Factory(Memory)
    chain: Chain = attrs.Factory(Chain)
    follower: SequenceFollower = attrs.Factory(SequenceFollower)
    damage: list[tuple[str, Damage]] = attrs.Factory(list)
    torn_octets: int = 0
    segments: int = 0
    last_segment: int = 0

    @property
    def gaps(self) -> list[str]:
        """What was durable and is missing, for people; none: the memory is whole."""
        found = [f"segment {number} is missing" for number in self.chain.missing]
        for hole in self.holes:
            count = hole.last - hole.first + 1
            records = "1 record" if count == 1 else f"{count:,} records"
            found.append(f"{records} of worker {hole.origin.worker} are missing")
        if self.memory.misplaced_parts:
            count = self.memory.misplaced_parts
            parts = "1 part of a message stands" if count == 1 else f"{count:,} parts stand"
            found.append(f"{parts} behind missing ones")
        for name, damage in self.damage:
            if damage.is_end:
                found.append(f"the end of {name} is missing")
            if damage.octets:
                found.append(f"{damage.octets:,} octets of {name} cannot be read")
        return found

    @property
    def holes(self) -> list[Hole]:
        """Records that are missing."""
        return self.follower.holes

    @property
    def unsettled(self) -> list[Unsettled]:
        """The deliveries that have to be taken over, oldest first."""
        return self.memory.oldest_first()

    def take_snapshot(self, name: str, scan: SegmentScan) -> None:
        """Reads a snapshot: it stands for all segments up to its number."""
        for _, block in _blocks_of(scan):
            if block.is_own:
                self.follower.is_new(block)
            else:
                self.memory.apply(block)
        scan.end_snapshot()
        self._note_end(name, scan, 0)

    def take_segment(self, number: int, scan: SegmentScan, ending: Ending = NO_ENDING) -> None:
        """Reads the segment that follows what was read before.

        Args:
            number: of the segment.
            scan: of its file.
            ending: of the last one that was closed in order.
        """
        name, known_damage = segment_name(number), 0
        for _, block in _blocks_of(scan):
            known_damage = self._note_damage(name, scan, known_damage)
            if self.chain.follow(number, block):
                self.memory.cloud()
            known_holes = len(self.holes)
            if not self.follower.is_new(block):
                continue
            for hole in self.holes[known_holes:]:
                self.memory.cloud(hole.origin.worker)
            self.memory.apply(block)
        if scan.is_foreign:
            scan.damage.append(Damage(0, len(scan.octets)))
        elif number == ending.segment and (cut := ending.cut(scan)) is not None:
            scan.damage.append(cut)
        self._note_end(name, scan, known_damage)
        self.chain.last = max(self.chain.last, number)  # its head may be damaged
        self.segments += 1

    def take_newest(self, number: int) -> None:
        """Handles the number of the newest segment that held something durable."""
        if self.chain.end(number):
            self.memory.cloud()

    def _note_damage(self, name: str, scan: SegmentScan, known: int) -> int:
        for damage in scan.damage[known:]:
            self.damage.append((name, damage))
            self.memory.cloud()
        return len(scan.damage)

    def _note_end(self, name: str, scan: SegmentScan, known_damage: int) -> None:
        self._note_damage(name, scan, known_damage)
        self.memory.make()
        self.torn_octets += scan.torn_octets


def _blocks_of(scan: SegmentScan) -> Iterable[tuple[int, Block]]:
    """Returns the blocks of a file; none of another version's."""
    return () if scan.is_foreign else scan.blocks()


def replay(directory: Path, *, through: int | None = None, disk: Disk | None = None) -> Replayed:
    """Reads the journal in ``directory``.

    Args:
        directory: of the segments.
        through: number of the last segment to read; default: all.
        disk: the operating system's, or a test's.

    Raises:
        OSError: a file cannot be read; that the directory is missing is one.
        ReplayError: files vanish faster than they can be read.
    """
    return replay_from(FileStorage(directory, disk), through=through)


def replay_from(storage: Readable, *, through: int | None = None) -> Replayed:
    """Reads the journal in a store.

    Args:
        storage: the store.
        through: number of the last segment to read; default: all.

    Raises:
        OSError: the store cannot be read.
        ReplayError: segments vanish faster than they can be read.
    """
    for _ in range(_TRIES):
        newest = storage.newest() if through is None else 0  # before what is newer
        ending = storage.ended()
        names = storage.names()
        with contextlib.suppress(FileNotFoundError):
            replayed = _replay_once(storage, names, through, ending)
            replayed.take_newest(newest)
            before, after = numbered(names, "snapshot"), storage.names()
            if numbered(after, "snapshot")[-1:] == before[-1:]:
                return replayed
    raise ReplayError(f"{storage} does not hold still")


def _replay_once(
    storage: Readable, names: list[str], through: int | None, ending: Ending
) -> Replayed:
    replayed = Replayed()
    snapshots = [n for n in numbered(names, "snapshot") if through is None or n <= through]
    if snapshots:
        replayed.last_segment = snapshots[-1]
        name = snapshot_name(replayed.last_segment)
        replayed.take_snapshot(name, SegmentScan(storage.read(name)))
        replayed.chain.last = replayed.last_segment
    for number in numbered(names, "segment"):
        if number > replayed.last_segment and (through is None or number <= through):
            scan = SegmentScan(storage.read(segment_name(number)))
            replayed.take_segment(number, scan, ending)
            replayed.last_segment = number
    replayed.memory.forget_links()
    return replayed
