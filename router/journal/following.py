"""Follows a journal's segments while the router writes them.

The follower reads the blocks of each segment as they are written, and remembers where it is as a
*cursor*: the number of a segment and an offset in it. The journal lets segments go that it no
longer needs, so the follower keeps a hard link of each that it has not read, in a directory of its
own beside the journal, up to a number of octets; beyond that the oldest unread ones are dropped and
counted. So a reader that waits costs disk, within a bound, and the journal waits for nobody. While
the reader's process is away, another one keeps the links from where the reader was (``saved``).

    STATE/journal, STATE/segments    what the journal writes, and what it has handed over
    STATE/spans                      hard links of segments that are unread
    STATE/spans/cursor.json          {"segment", "offset", ...}: where the reader is
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from router.journal.block import BLOCK_OCTETS_LIMIT, Block, BlockError, open_block
from router.journal.record import RecordKind
from router.journal.segment import (
    SEGMENT_HEADER_OCTETS,
    SEGMENT_MAGIC,
    SegmentScan,
    numbered,
    segment_name,
)

_SOURCES: Final = ("segments", "journal")
SPANS_FOLDER: Final = "spans"
"""Folder of a state directory in which the exporter of spans keeps what is its own."""

_SAVED: Final = "cursor.json"
_CHUNK_OCTETS: Final = 2 * BLOCK_OCTETS_LIMIT
"""Read at a time: any block fits."""


@attrs.frozen(order=True)
class Cursor:
    """Where a reader is: everything before it was read.

    Attributes:
        segment: number of a segment.
        offset: in it; 0: its beginning.
    """

    segment: int = 0
    offset: int = 0


def saved(keep: Path) -> dict[str, Any] | None:
    """Returns what a reader has written about where it is; None: it has not begun."""
    try:
        found: dict[str, Any] = json.loads((keep / _SAVED).read_text())
    except FileNotFoundError:
        return None
    return found


def saved_cursor(keep: Path) -> Cursor:
    """Returns where a reader is, from what it has written."""
    found = saved(keep)
    return Cursor() if found is None else Cursor(found["segment"], found["offset"])


def save(keep: Path, cursor: Cursor, **more: object) -> None:
    """Writes where a reader is, and what it needs beside that."""
    path = keep / _SAVED
    unfinished = path.with_suffix(".unfinished")
    found = {"segment": cursor.segment, "offset": cursor.offset, **more}
    unfinished.write_text(json.dumps(found))
    unfinished.rename(path)


@attrs.define(eq=False)
class Follower:
    """Reads a state directory's segments.

    Attributes:
        state: the router's state directory.
        keep: directory for the hard links.
        buffer_octets: most octets of segments that are kept unread.
        dropped: segments that were dropped unread, or had vanished.
    """

    state: Path
    keep: Path
    buffer_octets: int
    dropped: int = 0
    _paths: dict[int, Path] = attrs.field(factory=dict, init=False)

    def look(self, cursor: Cursor) -> None:
        """Finds new segments, keeps those that are unread, and lets go of the others."""
        for source in _SOURCES:
            directory = self.state / source
            names = os.listdir(directory) if directory.is_dir() else []
            for number in numbered(names, "segment"):
                if number >= cursor.segment and number not in self._paths:
                    self._hold(number, directory / segment_name(number))
        for number in numbered(os.listdir(self.keep), "segment"):
            self._paths.setdefault(number, self.keep / segment_name(number))
        for number in [each for each in self._paths if each < cursor.segment]:
            self._let_go(number)
        self._drop_oldest()

    def _hold(self, number: int, path: Path) -> None:
        kept = self.keep / path.name
        try:
            os.link(path, kept)
        except FileExistsError:
            pass
        except FileNotFoundError:
            return  # it has gone meanwhile
        except OSError:  # a file system without hard links: it is read where it is
            kept = path
        self._paths[number] = kept

    def _let_go(self, number: int) -> None:
        path = self._paths.pop(number)
        if path.parent == self.keep:
            path.unlink(missing_ok=True)

    def _drop_oldest(self) -> None:
        """Drops unread segments beyond the bound; the last one is being written."""
        octets = {number: _octets_of(path) for number, path in self._paths.items()}
        for number in sorted(self._paths)[:-1]:
            if sum(octets.values()) <= self.buffer_octets:
                return
            del octets[number]
            self._let_go(number)
            self.dropped += 1

    def heads(self, cursor: Cursor) -> Iterator[Block]:
        """Yields what the cursor's segment says of links before it, for a reader that has begun."""
        path = self._paths.get(cursor.segment)
        if path is None or not cursor.offset:
            return
        for block, after in self._segment(cursor.segment, path, 0, is_last=True):
            if after.segment == cursor.segment and after.offset > cursor.offset:
                return
            if block.may_define:
                yield block

    def blocks(self, cursor: Cursor) -> Iterator[tuple[Block, Cursor]]:
        """Yields each block that is written behind the cursor, and the cursor behind it."""
        ahead = sorted(number for number in self._paths if number >= cursor.segment)
        for number in ahead:
            offset = cursor.offset if number == cursor.segment else 0
            path = self._paths.get(number)
            if path is None:  # dropped, while the reader was busy with a block
                continue
            try:
                yield from self._segment(number, path, offset, is_last=number == ahead[-1])
            except FileNotFoundError:
                if self._paths.pop(number, None) is not None:
                    self.dropped += 1

    def _segment(
        self, number: int, path: Path, offset: int, *, is_last: bool
    ) -> Iterator[tuple[Block, Cursor]]:
        with path.open("rb") as file:
            header = file.read(SEGMENT_HEADER_OCTETS)
            if not header.startswith(SEGMENT_MAGIC):
                return  # not begun yet, or of another version
            salt = int.from_bytes(header[8:12], "little")
            offset = max(offset, SEGMENT_HEADER_OCTETS)
            while True:
                file.seek(offset)
                chunk = memoryview(file.read(_CHUNK_OCTETS))
                at = 0
                with contextlib.suppress(BlockError):
                    while True:
                        block = open_block(chunk, at, salt=salt)
                        at += block.octets
                        if _is_end(block):
                            yield block, Cursor(number + 1)
                            return
                        yield block, Cursor(number, offset + at)
                offset += at
                if not at:
                    break
        if not is_last:  # nothing more is written here: what follows is damage, or nothing
            for place, block in SegmentScan(path.read_bytes()).blocks():
                if place >= offset:
                    yield block, Cursor(number, place + block.octets)


def _is_end(block: Block) -> bool:
    return block.is_own and any(row[0] == RecordKind.SEGMENT_END for row in block.unpacked_rows())


def _octets_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
