"""The log of a message store: whole messages alone are appended to it (**OneSegment**)."""

import errno
from pathlib import Path
from typing import Final

from router.journal.block import Block, BlockFlag, Origin
from router.journal.disk import Disk
from router.journal.flusher import Flusher
from router.journal.log import RETRY_SECONDS, ROTATE_SECONDS, Log
from router.journal.protocol import Health
from router.journal.record import ROW, RecordFlag, RecordKind, Row
from router.journal.segment import own_block
from router.journal.segment_file import SegmentFile
from router.journal.store.store import (
    STORE_RESERVE_OCTETS,
    STORE_SEGMENT_OCTETS,
    MessageStore,
)

SPARE_OCTETS: Final = 128 << 20
"""So much of the disk is left free, but no more than an eighth of it: two segments of a journal,
which has to record on the same disk what leaves the store of an exactly-once route."""

_SPARE_SHARE: Final = 8

_PARTED: Final = frozenset({int(RecordKind.STORED), int(RecordKind.PART)})
_MORE: Final = int(RecordFlag.MORE)
_OWN: Final = int(BlockFlag.OWN)


class StoreLog(Log):
    """A log whose blocks wait until the message that they end in is whole.

    Attributes:
        store: what it holds.
    """

    def __init__(
        self,
        directory: Path,
        router: str,
        *,
        disk: Disk,
        incarnation: int,
        segment_octets: int = STORE_SEGMENT_OCTETS,
        reserve_octets: int = STORE_RESERVE_OCTETS,
        rotate_seconds: float = ROTATE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        flusher: Flusher | None = None,
        spare_octets: int = 0,
    ) -> None:
        """Makes a closed log; see ``Log``.

        With less than ``spare_octets`` of the disk free its health is DISK_FULL; what comes all
        the same is written.
        """
        self._spare_octets = spare_octets
        self.store = MessageStore(directory, disk=disk, incarnation=incarnation)
        self._held: dict[Origin, tuple[bytes, list[Block]]] = {}
        super().__init__(
            directory,
            router,
            disk=disk,
            incarnation=incarnation,
            segment_octets=segment_octets,
            reserve_octets=reserve_octets,
            rotate_seconds=rotate_seconds,
            retry_seconds=retry_seconds,
            contents=self.store,
            flusher=flusher,
        )

    @property
    def appended(self) -> dict[Origin, int]:
        """Next sequence number of each origin that wrote, held back or not."""
        held = {origin: blocks[-1].last_sequence + 1 for origin, (_, blocks) in self._held.items()}
        return {**super().appended, **held}

    @property
    def deadline_ns(self) -> int | None:
        """When ``commit`` should be called; at once if the store wants its state written."""
        due_ns = super().deadline_ns
        is_due = self._written is None and (
            self.store.changes.wants_head or self.store.changes.owes_head
        )
        return 0 if is_due and self.health is Health.WRITING else due_ns

    def append(self, octets: bytes, blocks: list[Block]) -> None:
        """Accepts whole blocks of one origin; those that end in no whole message are held back."""
        origin = blocks[0].origin
        before, earlier = self._held.pop(origin, (b"", []))
        octets, blocks = before + octets, earlier + blocks
        count = len(blocks)
        while count and _is_cut(blocks[count - 1]):
            count -= 1
        end = sum(block.octets for block in blocks[:count])
        if count < len(blocks):
            self._held[origin] = octets[end:], blocks[count:]
        if count:
            super().append(octets[:end], blocks[:count])
            self.store.appended(blocks[:count])

    def _commit(self, now_ns: int) -> bool:
        has_space = super()._commit(now_ns)
        if not has_space or self._has_spare():
            return has_space
        self.health, self.errno = Health.DISK_FULL, errno.ENOSPC
        if now_ns >= self._full_until_ns:
            self._full_until_ns = now_ns + self._retry_ns
        return False

    def _begin_segment(self, now_ns: int) -> SegmentFile:
        is_wanted = self.store.changes.wants_head
        try:
            return super()._begin_segment(now_ns)
        except OSError:
            self.store.changes.wants_head |= is_wanted  # its head was lost with the segment
            raise

    def _messages_in(self, number: int) -> int:
        return self.store.holdings.segment(number).stored

    def _has_spare(self) -> bool:
        """Returns whether as much of the disk is free as is to be left."""
        room = self._disk.room(self.directory) if self._spare_octets else None
        return room is None or room[0] >= min(self._spare_octets, room[1] // _SPARE_SHARE)

    def _is_due(self, segment: SegmentFile, now_ns: int) -> bool:
        return self.store.changes.wants_head or super()._is_due(segment, now_ns)

    def _next_group(self, segment: SegmentFile, now_ns: int) -> bytearray:
        group = super()._next_group(segment, now_ns)
        if (
            not group and self.store.changes.owes_head
        ):  # the flush of a fence makes the head durable
            octets = segment.flushed_octets
            group += own_block(RecordKind.FENCE, self.incarnation, now_ns, durable_octets=octets)
        return group

    def admit(self, origin: Origin, first_sequence: int) -> None:
        """Admits ``origin``, which sends what was held back again; see ``Log.admit``."""
        for other in [each for each in self._held if each.worker == origin.worker]:
            del self._held[other]
        super().admit(origin, first_sequence)


def _is_cut(block: Block) -> bool:
    """Returns whether the message that a block ends in goes on in the next one."""
    if block.flags & _OWN or not block.row_count:
        return False
    row: Row = ROW.unpack_from(block.rows, (block.row_count - 1) * ROW.size)
    return row[0] in _PARTED and bool(row[4] & _MORE)
