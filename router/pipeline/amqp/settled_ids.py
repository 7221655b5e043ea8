"""Ids of recently settled messages, which a peer that missed the settlement may send again.

walDir/ids, one entry after the other:

    0        8        12       12 + n
    +--------+--------+--------+
    | number | n      | id     |     number: in the log; id: with its type, UTF-8
    +--------+--------+--------+

An entry is durable before the segment with its message is removed. An entry torn by a crash at the
end is cut off. When the file has twice as many entries as are kept, it is rewritten.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from router.journal.disk import Disk

IDS_MOST: Final = 100_000
"""Ids that are kept; some 5 MB."""

_HEAD: Final = struct.Struct(">QI")


@attrs.define(eq=False)
class SettledIds:
    """The file ``path``; its writer must have locked the log.

    Attributes:
        most: ids that are kept.
    """

    path: Path
    most: int = IDS_MOST
    _count: int = attrs.field(default=0, init=False)

    def load(self) -> list[tuple[int, str]]:
        """Returns the latest ids with their numbers, oldest first; repairs the file."""
        try:
            octets = self.path.read_bytes()
        except FileNotFoundError:
            return []
        entries, at = [], 0
        while at + _HEAD.size <= len(octets):
            number, length = _HEAD.unpack_from(octets, at)
            end = at + _HEAD.size + length
            if end > len(octets):
                break
            entries.append((number, octets[at + _HEAD.size : end].decode()))
            at = end
        if at < len(octets):
            os.truncate(self.path, at)
        self._count = len(entries)
        if self._count > 2 * self.most:
            self._write_anew(entries[-self.most :])
        return entries[-self.most :]

    def add(self, entries: Iterable[tuple[int, str]]) -> None:
        """Adds ids; durable on return."""
        octets = _encoded(entries := list(entries))
        with self.path.open("ab") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        self._count += len(entries)
        if self._count > 2 * self.most:
            self.load()

    def _write_anew(self, entries: list[tuple[int, str]]) -> None:
        aside = self.path.with_name(".ids.unfinished")
        with aside.open("wb") as file:
            file.write(_encoded(entries))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path)
        Disk().sync_directory(self.path.parent)
        self._count = len(entries)


def _encoded(entries: Iterable[tuple[int, str]]) -> bytes:
    parts = []
    for number, text in entries:
        octets = text.encode()
        parts += [_HEAD.pack(number, len(octets)), octets]
    return b"".join(parts)
