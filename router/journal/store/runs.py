"""Runs: messages of one queue that stand in one segment of the log, as they go to their reader.

A run is cut out, sent and taken apart by columns, so a message costs a fraction of what one costs
that is composed by itself: each octet of it is copied once, from the block in the store's memory
into what is sent. It answers a FLOW, in a block of its own::

    RUN       route     queue       messages         body: their places, u64 each
    STORED    as in the segment, but for where its strings are; one for each message

Only what has nothing unusual about it goes in runs: no message in parts or with a time to live,
none that is overdue or clouded. Anything else, and what was given back, is read message by message
(``reading``), which is the reference.
"""

import struct
import sys
from array import array
from itertools import accumulate
from typing import Final, NamedTuple

from router.journal.block import HEADER, MAGIC, OWN_WORKER, Block, BlockFlag
from router.journal.bulk import Octets, shortcuts
from router.journal.keys import LinkKey
from router.journal.record import NO_KEY, NO_TTL, ROW, RecordError, RecordFlag, RecordKind, Row
from router.journal.store.gone import GoneColumns
from router.journal.store.place import Place, places_of, position_of, segment_of
from router.journal.store.queues import Claim, QueueKey, RouteKey
from router.journal.store.reading import StoredMessage
from router.model.identity import DeliveryKey

RUN: Final = 76
"""Kind of the first row; apart from those of ``AskKind``."""

_STORED: Final = int(RecordKind.STORED)
_MORE: Final = int(RecordFlag.MORE)
_PLACE: Final = struct.Struct("<Q")
PLACE_OCTETS: Final = _PLACE.size
_ROW_QUADS: Final = ROW.size // 8
_TIME_QUAD: Final = 1
_PRIORITY_OCTET: Final = 1
_ROW_WORDS: Final = ROW.size // 4
_FLAGS_HALF: Final = 2  # columns of a row, counted in units of 2 octets ...
_TTL_WORD: Final = 16  # ... and of 4
_OFFSET_WORD: Final = 18
_HEAP_WORD: Final = 19
_IS_LITTLE: Final = sys.byteorder == "little"


class Piece(NamedTuple):
    """Messages of a run that stand in one block.

    Attributes:
        block: of the log.
        offset: of the block in its segment.
        positions: of the messages in the segment, u32 each, ascending; at least one.
        octets: of their strings.
    """

    block: Block
    offset: int
    positions: bytes
    octets: int


class StoredRun(NamedTuple):
    """Messages of one queue that stand in one segment, in their order.

    Attributes:
        route: of the queue.
        queue: that they are in.
        places: of the messages.
        pieces: where they are to be read.
    """

    route: RouteKey
    queue: QueueKey
    places: list[Place]
    pieces: list[Piece]

    @property
    def string_octets(self) -> int:
        """Octets of their strings."""
        return sum([piece.octets for piece in self.pieces])

    @property
    def octets(self) -> int:
        """Octets of the block in which it is sent."""
        count = len(self.places)
        octets = HEADER.size + (count + 1) * ROW.size + self.string_octets + count * _PLACE.size
        return octets + -octets % 8


class MessagesRead:
    """Messages of one address that were asked for, none of them overdue.

    Attributes:
        route: of the messages.
        queue: that they are in.
        places: of the messages, u64 each.
        rows: of the messages, one after the other.
        heap: their strings.
    """

    __slots__ = ("_messages", "heap", "places", "queue", "route", "rows")

    def __init__(
        self, route: RouteKey, queue: QueueKey, places: Octets, rows: Octets, heap: Octets
    ) -> None:
        self.route = route
        self.queue = queue
        self.places = places
        self.rows = rows
        self.heap = heap
        self._messages: list[StoredMessage] | None = None

    def __len__(self) -> int:
        return len(self.places) // _PLACE.size

    @property
    def address(self) -> bytes:
        """The address of all of them.

        Raises:
            RecordError: the first row is malformed.
        """
        row: Row = ROW.unpack_from(self.rows)
        begin = row[15] + row[14]
        if begin + row[5] > len(self.heap):
            raise RecordError("a row of a run points outside of its heap")
        return bytes(self.heap[begin : begin + row[5]])

    @property
    def messages(self) -> list[StoredMessage]:
        """The messages, one by one.

        Raises:
            RecordError: a row is malformed.
        """
        if self._messages is None:
            self._messages = _messages_of(self)
        return self._messages

    def place(self, number: int) -> Place:
        """Returns where a message stands."""
        return Place(_PLACE.unpack_from(self.places, number * _PLACE.size)[0])

    @property
    def last_rank(self) -> tuple[int, Place]:
        """What the last of them is sorted by among all of the address, see ``net.store.inlet``."""
        return -self.rows[_PRIORITY_OCTET], self.place(len(self) - 1)

    def claims(self, begin: int, end: int) -> list[Claim]:
        """Names some of the messages towards the store."""
        claims = []
        for number in range(begin, end):
            row: Row = ROW.unpack_from(self.rows, number * ROW.size)
            octets = ROW.size + row[5] + row[14] + row[10]
            claims.append(Claim(self.place(number), self.queue, octets))
        return claims

    def gone(self, begin: int, end: int) -> GoneColumns:
        """Names some of the messages likewise, by columns; at least one, of one segment."""
        segment = segment_of(self.place(begin))
        if shortcuts is not None:
            body = shortcuts.gone_body(self.rows, self.places, begin, end - begin)
        else:
            claims = self.claims(begin, end)
            numbers = [position_of(each.place) for each in claims]
            numbers += [each.octets for each in claims]
            body = struct.pack(f"<{len(numbers)}I", *numbers)
        return GoneColumns(segment, self.queue, body)

    @property
    def oldest_ns(self) -> int:
        """When the oldest of them arrived."""
        return min(memoryview(self.rows).cast("Q")[_TIME_QUAD::_ROW_QUADS].tolist())


def piece_of(block: Block, offset: int, positions: bytes) -> Piece | None:
    """Returns messages of a block; None: something about them is unusual.

    Args:
        block: of the log.
        offset: of the block in its segment.
        positions: of the messages there, u32 each, ascending; at least one.
    """
    if not _IS_LITTLE:
        return None
    if shortcuts is not None:
        octets = shortcuts.usual_octets(block.rows, block.heap, positions, offset + HEADER.size)
        return None if octets < 0 else Piece(block, offset, positions, octets)
    found = cut(block, row_numbers(positions, offset))
    return None if found is None else Piece(block, offset, positions, len(found[1]))


def cut(block: Block, numbers: list[int], base: int = 0) -> tuple[bytearray, bytes] | None:
    """Cuts messages out of a block of the log.

    Args:
        block: of the log.
        numbers: of their rows, ascending; at least one.
        base: octets of other strings that will stand before theirs.

    Returns:
        Their rows, which point into their strings, and these; None: something is unusual.
    """
    view, size = block.rows, ROW.size
    count = len(numbers)
    rows = bytearray().join([view[each * size : each * size + size] for each in numbers])
    if len(rows) != count * size or rows[::size].count(_STORED) != count:
        return None
    words = memoryview(rows).cast("I")
    flags = memoryview(rows).cast("H")[_FLAGS_HALF :: ROW.size // 2].tolist()
    if any(each & _MORE for each in flags):
        return None
    if words[_TTL_WORD::_ROW_WORDS].tolist().count(NO_TTL) != count:
        return None
    starts = words[_OFFSET_WORD::_ROW_WORDS].tolist()
    octets = words[_HEAP_WORD::_ROW_WORDS].tolist()
    heap = block.heap
    if max(map(int.__add__, starts, octets)) > len(heap):
        return None
    words[_OFFSET_WORD::_ROW_WORDS] = memoryview(array("I", accumulate(octets[:-1], initial=base)))
    pairs = zip(starts, octets, strict=True)
    return rows, b"".join([heap[start : start + length] for start, length in pairs])


def write_run(run: StoredRun, room: bytearray, at: int) -> int:
    """Writes the block in which a run is sent; returns where it ends.

    Its CRC is 0: what it has was checked when it was read.

    Args:
        run: a run.
        room: of ``run.octets`` at least from ``at`` on.
        at: an octet of it.
    """
    count, strings = len(run.places), run.string_octets
    end, rows_at = at + run.octets, at + HEADER.size + ROW.size
    HEADER.pack_into(
        room, at, MAGIC, 0, run.octets, strings + count * _PLACE.size, 1, 0, OWN_WORKER,
        int(BlockFlag.OWN), count + 1,
    )  # fmt: skip
    ROW.pack_into(
        room, at + HEADER.size, RUN, 0, 0, 0, 0, 0, 0, NO_KEY, run.route, run.queue, count,
        0, 0, NO_TTL, 0, strings, count * _PLACE.size,
    )  # fmt: skip
    compose(room, rows_at, run.pieces, segment_of(run.places[0]), count, strings)
    padding = -(HEADER.size + ROW.size + count * (ROW.size + _PLACE.size) + strings) % 8
    room[end - padding : end] = bytes(padding)
    return end


def compose(  # noqa: PLR0917  as the shortcut
    room: bytearray, at: int, pieces: list[Piece], segment: int, count: int, strings: int
) -> None:
    """Writes the rows of a run, their strings and their places.

    Args:
        room: where they go.
        at: the octet of it at which the first row goes.
        pieces: of the run.
        segment: that they stand in.
        count: of all messages.
        strings: octets of all their strings.
    """
    if shortcuts is None:
        written = at + count * (ROW.size + _PLACE.size) + strings
        room[at:written] = _composed(pieces, segment)
        return
    found: list[tuple[Octets, Octets, Octets, int]] = [
        (block.rows, block.heap, positions, offset + HEADER.size)
        for block, offset, positions, _ in pieces
    ]
    shortcuts.compose_run(room, at, found, count, strings, segment)


def _composed(pieces: list[Piece], segment: int) -> bytes:
    rows, heap, base = [], [], 0
    for block, offset, positions, octets in pieces:
        found = cut(block, row_numbers(positions, offset), base)
        assert found is not None
        rows.append(found[0])
        heap.append(found[1])
        base += octets
    places = places_of(segment, b"".join([piece.positions for piece in pieces]))
    return b"".join([*rows, *heap, struct.pack(f"<{len(places)}Q", *places)])


def is_run(block: Block) -> bool:
    """Returns whether a block is a run."""
    return bool(block.row_count) and block.rows[0] == RUN


def run_in(block: Block) -> MessagesRead:
    """Reads a run, which keeps the octets of its block.

    Raises:
        RecordError: it is malformed.
    """
    head: Row = ROW.unpack_from(block.rows)
    count, start, octets = head[10], head[15], head[16]
    if (
        not count
        or count != block.row_count - 1
        or octets != _PLACE.size * count
        or start + octets > len(block.heap)
    ):
        raise RecordError("a run is not as long as it says")
    return MessagesRead(
        RouteKey(head[8]),
        QueueKey(head[9]),
        block.heap[start : start + octets],
        block.rows[ROW.size :],
        block.heap[:start],
    )


def _messages_of(run: MessagesRead) -> list[StoredMessage]:
    """Takes a run apart.

    Raises:
        RecordError: it is malformed.
    """
    heap, queue, end = run.heap, run.queue, len(run.heap)
    places = struct.unpack(f"<{len(run)}Q", run.places)
    address_octets, address = 0, ""
    messages: list[StoredMessage] = []
    append, size = messages.append, ROW.size
    for place, row in zip(places, ROW.iter_unpack(run.rows), strict=True):
        (
            _, priority, guarantee, protocol, _, length, time_ns, key, incoming, _, total,
            message_format, delivery_count, _, tags, at, held,
        ) = row  # fmt: skip
        begin = at + tags + length
        if at + held > end or begin > at + held:
            raise RecordError("a row of a run points outside of its heap")
        if not messages:
            address_octets, address = length, _address(bytes(heap[at + tags : begin]))
        elif length != address_octets:
            raise RecordError("the messages of a run have several addresses")
        append(
            StoredMessage(
                Claim(Place(place), queue, size + length + tags + total),
                time_ns,
                DeliveryKey(key),
                LinkKey(incoming),
                bytes(heap[at : at + tags]),
                address,
                priority,
                guarantee,
                protocol,
                message_format,
                delivery_count,
                None,
                bytes(heap[begin : at + held]),
            )
        )
    return messages


def row_numbers(positions: bytes, block_offset: int) -> list[int]:
    """Returns which rows of a block stand at positions, u32 each, of its segment."""
    start, size = block_offset + HEADER.size, ROW.size
    return [(each - start) // size for each in memoryview(positions).cast("I")]


def _address(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise RecordError("an address is not UTF-8") from error
