"""Reclaim: writes a snapshot of all unsettled deliveries, and removes the segments before it.

    1  replay the newest snapshot and the segments up to ``through``
    2  keep the snapshot of that, which is durable as soon as it is seen
    3  hand each segment that the snapshot covers to the pipeline, or delete it
    4  delete the older snapshots

A crash between two steps leaves a journal that replays to the same state, because segments at or
before the newest snapshot are not read; the next run continues where this one stopped. ``through``
must be a segment that is no longer written. A snapshot has the form of a sealed segment:

    "AMQPJNL1", salt, salt | SNAPSHOT, MARK ... (OWN) | blocks of the workers | SEGMENT_END (OWN)

Its blocks belong to the workers that have to take the deliveries over, and have no sequence.
Reclaim runs as a process of its own at low priority, so that the log never waits for it.
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from router.journal.block import OWN_WORKER, salted
from router.journal.disk import Disk
from router.journal.files import FileStorage
from router.journal.record import RecordKind
from router.journal.replay import Replayed, replay_from
from router.journal.segment import append_marks, numbered, own_block, segment_header
from router.journal.snapshot import write_memory
from router.journal.storage import Storage
from router.journal.writer import RecordWriter
from router.model.log_values import reason_of

NICENESS: Final = 10
WORTHWHILE_SEGMENTS: Final = 2
"""Closed segments of full size that are worth a snapshot, if the pipeline does not need them."""


@attrs.frozen(kw_only=True)
class Reclaimed:
    """The result of one run.

    Attributes:
        snapshot: its number, or None if the run had nothing to do.
        segments: numbers of the removed segments.
        deliveries: how many deliveries the snapshot holds.
        octets: length of the snapshot.
        is_whole: nothing was missing or damaged in the removed segments.
    """

    snapshot: int | None
    segments: tuple[int, ...] = ()
    deliveries: int = 0
    octets: int = 0
    is_whole: bool = True


def is_worthwhile(storage: Storage, through: int, *, least_octets: int) -> bool:
    """Returns whether to reclaim now.

    A snapshot larger than the space it frees is not written repeatedly: deliveries held for days
    are copied only each time the log grows by half.

    Args:
        storage: the journal's store.
        through: number of the last segment that is no longer written.
        least_octets: closed segments that are not worth a run; 0: the pipeline or a full disk
            needs one as soon as possible.
    """
    closed_octets = snapshot_octets = 0
    for name, octets in storage.sizes():
        if [n for n in numbered([name], "segment") if n <= through]:
            closed_octets += octets
        elif numbered([name], "snapshot"):
            snapshot_octets = max(snapshot_octets, octets)
    return closed_octets > max(least_octets, snapshot_octets // 2)


def reclaim(
    directory: Path,
    through: int,
    *,
    now_ns: int,
    archive: Path | None = None,
    disk: Disk | None = None,
) -> Reclaimed:
    """Removes all segments up to ``through`` from the store of files in a directory.

    Args:
        directory: of the segments.
        through: number of a segment that is no longer written.
        now_ns: nanoseconds since 1970.
        archive: directory for removed segments; None: they are deleted. It may be on another disk.
        disk: the operating system's, or a test's.

    Raises:
        BlockingIOError: another run is under way.
        OSError: the disk failed; nothing is lost, run it again.
    """
    return reclaim_from(FileStorage(directory, disk), through, now_ns=now_ns, archive=archive)


def reclaim_from(
    storage: Storage, through: int, *, now_ns: int, archive: Path | None = None
) -> Reclaimed:
    """Removes all segments up to ``through`` from a store.

    Args:
        storage: the store.
        through: number of a segment that is no longer written.
        now_ns: nanoseconds since 1970.
        archive: directory for removed segments; None: they are deleted.

    Raises:
        BlockingIOError: another run is under way.
        OSError: the store failed; nothing is lost, run it again.
    """
    with storage.lock():
        return _reclaim(storage, through, now_ns, archive)


def _reclaim(storage: Storage, through: int, now_ns: int, archive: Path | None) -> Reclaimed:
    names = storage.names()
    snapshots = [0, *numbered(names, "snapshot")]
    closed = [number for number in numbered(names, "segment") if number <= through]
    if not closed:
        return Reclaimed(snapshot=None)
    number, replayed, octets = snapshots[-1], Replayed(), b""
    if closed[-1] > number:
        number = closed[-1]
        replayed = replay_from(storage, through=number)
        octets = snapshot_octets(replayed, number, now_ns)
        storage.keep_snapshot(number, octets)
    for segment in closed:
        storage.let_go(segment, archive)
    for old in snapshots[1:]:
        if old < number:
            storage.drop_snapshot(old)
    storage.sync()
    return Reclaimed(
        snapshot=number,
        segments=tuple(closed),
        deliveries=len(replayed.memory.deliveries),
        octets=len(octets),
        is_whole=not replayed.gaps,
    )


def snapshot_octets(replayed: Replayed, number: int, now_ns: int) -> bytes:
    """Returns the snapshot that stands for ``replayed``, which ended with segment ``number``."""
    own = RecordWriter(worker=OWN_WORKER, incarnation=now_ns, is_own=True)
    own.append(RecordKind.SNAPSHOT, now_ns, message_octets=number)
    append_marks(own, now_ns, replayed.follower.expected)
    blocks, last = [block.octets for block in own.take_blocks()], own
    writers: dict[int, RecordWriter] = {}

    def writer_of(worker: int) -> RecordWriter:
        """Ends the block of another worker: what arrived in turn at both keeps its order."""
        nonlocal last
        if worker not in writers:
            writers[worker] = RecordWriter(worker=worker, incarnation=0)
        if last is not writers[worker]:
            blocks.extend(block.octets for block in last.take_blocks())
            last = writers[worker]
        return last

    write_memory(replayed.memory, writer_of)
    blocks += [block.octets for block in last.take_blocks()]
    end = own_block(RecordKind.SEGMENT_END, now_ns, now_ns)
    salt = secrets.randbits(32)
    return segment_header(salt) + salted(b"".join((*blocks, end)), salt)


def main(arguments: Sequence[str] | None = None) -> int:
    """Reclaims once; the journal's process starts it as ``-m router.journal.reclaim``.

    Returns:
        0 if it is done, 1 if the disk failed or another run is under way.
    """
    parser = argparse.ArgumentParser(prog="python -m router.journal.reclaim")
    parser.add_argument("directory", type=Path, help="of the segments")
    parser.add_argument("--through", type=int, required=True, help="last segment to let go")
    parser.add_argument("--archive", type=Path, help="where segments go; default: deleted")
    options = parser.parse_args(arguments)
    os.nice(NICENESS)
    try:
        reclaim(options.directory, options.through, now_ns=time.time_ns(), archive=options.archive)
    except BlockingIOError:
        print("another run is under way", file=sys.stderr)  # noqa: T201 - its parent logs it
        return 1
    except OSError as error:
        print(reason_of(error), file=sys.stderr)  # noqa: T201 - its parent logs it
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
