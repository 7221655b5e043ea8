"""Selection of an archive's messages: reassembled, each delivery once.

An archive (``router.core.archive``) holds the messages received on routes with ``archive: true``,
as segments of a journal. Reading it needs no extra; what sends the selection does
(``router.pipeline.replay``).
"""

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.block import BlockFlag, Origin
from router.journal.disk import Disk
from router.journal.ending import read_ending
from router.journal.files import FileStorage
from router.journal.record import PROTOCOL_CODES, Record, RecordError, RecordFlag, RecordKind
from router.journal.segment import Chain, ForeignFileError, SegmentScan, numbered, segment_name
from router.journal.sequence import SequenceFollower
from router.model.capabilities import Protocol

_SECTIONS: Final = PROTOCOL_CODES[Protocol.AMQP_1_0]


class ArchiveError(RouterError):
    """There is no archive, or the directory belongs to another replay."""


@attrs.frozen(kw_only=True)
class Selection:
    """Which messages to send.

    Attributes:
        since_ns: nanoseconds since 1970; None: from the first.
        until_ns: end of the time range, exclusive; None: to the last.
        address: pattern with ``*`` and ``?`` of the addresses that the messages were sent to.
        key: beginning of the delivery key, in hexadecimal digits.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    address: str = "*"
    key: str = ""

    def has(self, record: Record) -> bool:
        """Returns whether a message is selected, by its first record."""
        if self.since_ns is not None and record.time_ns < self.since_ns:
            return False
        if self.until_ns is not None and record.time_ns >= self.until_ns:
            return False
        if not record.key.hex().startswith(self.key):
            return False
        return fnmatch.fnmatchcase(record.address, self.address)


@attrs.define(kw_only=True)
class Selected:
    """The selected messages.

    Attributes:
        payloads: messages by address, oldest first.
        repeated: copies, beyond the first, of deliveries that the archive has more than once.
        foreign: messages in the encoding of another protocol, which are not sent.
        unfinished: messages of which a part is missing.
        missing: records missing, by their sequence numbers; a message has one or several.
        missing_segments: segments missing, each with records of which nothing is known, as far as
            the others say. Further ones may be missing before it.
        damaged_octets: octets that had been durable and cannot be read.
    """

    payloads: dict[str, list[bytes]] = attrs.Factory(dict)
    repeated: int = 0
    foreign: int = 0
    unfinished: int = 0
    missing: int = 0
    missing_segments: int = 0
    damaged_octets: int = 0

    @property
    def count(self) -> int:
        """Number of messages to send."""
        return sum(map(len, self.payloads.values()))

    def losses(self) -> Iterator[str]:
        """Yields what of the archive is not selected, for people."""
        for value, one, several in (
            (self.repeated, "further copy of a delivery", "further copies of deliveries"),
            (self.foreign, "message of another protocol", "messages of other protocols"),
            (self.unfinished, "unfinished message", "unfinished messages"),
        ):
            if value:
                yield f"{value:,} {one if value == 1 else several} left out"
        for value, noun in (
            (self.missing, "record"),
            (self.missing_segments, "segment"),
        ):
            if value:
                yield f"{value:,} {noun}{'' if value == 1 else 's'} missing"
        if self.damaged_octets:
            yield f"{self.damaged_octets:,} octets cannot be read"


@attrs.define
class _Begun:
    """A message whose last part has not been read yet."""

    address: str
    origin: Origin | None
    parts: list[bytes]
    octets: int


class Keeping:
    """Puts the messages of an archive together.

    A message that goes on after its worker was killed is kept anew, from its beginning. One of
    which a part is missing is not selected. (The version before did not write where parts belong:
    there records that are missing by their numbers tell.)

    Attributes:
        selected: what there is so far.
    """

    def __init__(self, selection: Selection) -> None:
        self.selected = Selected()
        self._selection = selection
        self._seen: set[bytes] = set()
        self._begun: dict[tuple[int, bytes], _Begun] = {}
        self._given_up: set[tuple[int, bytes]] = set()

    def take(self, record: Record, origin: Origin | None = None) -> None:
        """Handles the next record, which a worker wrote."""
        is_more = bool(record.flags & RecordFlag.MORE)
        name, selected = (record.incoming, bytes(record.key)), self.selected
        if record.kind == RecordKind.ARCHIVED:
            if not (name in self._begun or self._selection.has(record)):
                return
            if name in self._given_up:  # it was sent again, and is kept anew
                self._given_up.remove(name)
                self._seen.discard(record.key)
            if record.key in self._seen and name not in self._begun:
                selected.repeated += 1
            elif record.protocol != _SECTIONS:
                selected.foreign += 1
            elif is_more:
                self._begun[name] = _Begun(record.address, origin, [record.body], len(record.body))
            else:
                self._begun.pop(name, None)
                selected.payloads.setdefault(record.address, []).append(record.body)
            self._seen.add(record.key)
        elif record.kind == RecordKind.PART and name in self._begun:
            self._go_on(name, record, origin, is_whole=not is_more)

    def _go_on(
        self, name: tuple[int, bytes], record: Record, origin: Origin | None, *, is_whole: bool
    ) -> None:
        """Adds a part to a message, unless what stands before it is missing."""
        begun = self._begun[name]
        if record.flags & RecordFlag.PLACED:
            is_next = record.message_octets == begun.octets
        else:
            is_next = origin == begun.origin
        if not is_next:
            self._give_up(name)
            return
        begun.parts.append(record.body)
        begun.octets += len(record.body)
        if is_whole:
            del self._begun[name]
            self.selected.payloads.setdefault(begun.address, []).append(b"".join(begun.parts))

    def misses(self, origin: Origin) -> None:
        """Gives up the messages of which records may be missing that a worker wrote."""
        for name in [name for name, each in self._begun.items() if each.origin == origin]:
            self._give_up(name)

    def _give_up(self, name: tuple[int, bytes]) -> None:
        del self._begun[name]
        self._given_up.add(name)

    def finish(self) -> Selected:
        """Returns what was selected, when all records were taken."""
        self.selected.unfinished = len(self._begun) + len(self._given_up)
        return self.selected


def select(archive: Path, selection: Selection) -> Selected:
    """Reads an archive.

    Args:
        archive: directory of its segments, or the state directory of a router.
        selection: which messages to select.

    Raises:
        ArchiveError: there is no archive.
        OSError: the archive cannot be read.
    """
    keeping, follower, holes = Keeping(selection), SequenceFollower(), 0
    segments = _Segments(archive / "archive" if (archive / "archive").is_dir() else archive)
    for origin, record in segments.records(follower):
        for hole in follower.holes[holes:]:
            keeping.misses(hole.origin)
        holes = len(follower.holes)
        keeping.take(record, origin)
    selected = keeping.finish()
    selected.missing = sum(hole.last - hole.first + 1 for hole in follower.holes)
    selected.missing_segments = len(segments.chain.missing)
    selected.damaged_octets = segments.damaged_octets
    return selected


@attrs.define(eq=False)
class _Segments:
    """The segments of an archive, read in their order.

    Attributes:
        directory: that they stand in.
        chain: which of them are missing.
        damaged_octets: octets that had been durable and cannot be read.
    """

    directory: Path
    chain: Chain = attrs.Factory(Chain)
    damaged_octets: int = 0

    def records(self, follower: SequenceFollower) -> Iterator[tuple[Origin, Record]]:
        """Yields the records, each once, with who wrote it.

        Raises:
            ArchiveError: there are none, or they cannot be understood.
            OSError: they cannot be read.
        """
        storage, ending = FileStorage(self.directory), read_ending(Disk(), self.directory)
        numbers = numbered(os.listdir(self.directory), "segment")
        if not numbers:
            raise ArchiveError(f"{self.directory}: no archive here")
        for number in numbers:
            path = self.directory / segment_name(number)
            scan = SegmentScan(path.read_bytes())
            if scan.is_foreign:
                raise ArchiveError(str(ForeignFileError(path)))
            for _, block in scan.blocks():
                self.chain.follow(number, block)
                if follower.is_new(block) and not block.flags & BlockFlag.OWN:
                    try:
                        for record in block.records():
                            yield block.origin, record
                    except RecordError as error:
                        raise ArchiveError(f"{segment_name(number)}: {error}") from error
            self.chain.last = max(self.chain.last, number)  # its head may be damaged
            self.damaged_octets += sum(damage.octets for damage in scan.damage)
            if number == ending.segment and (cut := ending.cut(scan)) is not None:
                self.damaged_octets += cut.octets
        self.chain.end(storage.newest())
