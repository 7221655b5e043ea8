"""The state of a message store, as the head of each segment holds it.

It says all that has to be known of the segments before, so only the last one is read at a start.
Numbers are little-endian.

    octet 0                                8                                16
         +---------+----------------------+--------------------------------+
         | version | zeros                | messages before this place may |
         | u8      |                      | have been forwarded, u64       |
    16   +---------+----------------------+--------------------------------+
         | latest time, u64               | queues, u32    | segments, u32 |
    32   +--------------------------------+----------------+---------------+
         | routes that dropped their oldest messages, u32  | unsettled, u32|
    40   +-------------------------------------------------+---------------+

    each queue with messages:      route u64, messages u64, octets u64, address octets u16,
                                   priority u8, five zeros, the last place that somebody dropped
                                   u64; address
    each segment with messages     number u32, end u32, stored u32, gone u32, first time u64,
    that are not gone:             last time u64, queues u32 (2^32-1: too many), octets of the
                                   marks u32; its queues, u64 each; its marks, compressed
    each of these routes:          route u64, the last place dropped u64, and of the messages up to
                                   there those not gone: how many u64, octets u64

    each delivery that its sender  link u64, key of the delivery, 16 octets
    has not settled:

Version 1 has no place that somebody dropped, version 2 nothing unsettled; a log whose heads have
version 3 has no FORWARDED_RUN. A reader that finds a later version changes nothing.
"""

import struct
import zlib
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.block import OWN_WORKER
from router.journal.keys import LinkKey
from router.journal.record import RecordFlag, RecordKind
from router.journal.store.holdings import Holdings
from router.journal.store.index import Unsettled
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import QueueKey, RouteKey, StoredQueue
from router.journal.store.segments import StoredSegment
from router.journal.writer import PART_OCTETS, RecordWriter

VERSION: Final = 4
_HEADER: Final = struct.Struct("<B7xQQIIII")
_QUEUE: Final = struct.Struct("<QQQHB5xQ")
_QUEUE_1: Final = struct.Struct("<QQQHB5x")
_SEGMENT: Final = struct.Struct("<IIIIQQII")
_ROUTE: Final = struct.Struct("<QQQQ")
_UNSETTLED: Final = struct.Struct("<Q16s")
_UNLISTED: Final = 0xFFFFFFFF
_FAST: Final = 1  # zlib's level


@attrs.frozen
class StateVersionError(RouterError):
    """A later version of the router wrote the store."""

    version: int

    def __str__(self) -> str:
        return f"its state has version {self.version}; this router reads {VERSION}"


class StateError(RouterError):
    """The octets are no state, though their checksum is right."""


def state_blocks(holdings: Holdings, incarnation: int, now_ns: int) -> bytes:
    """Returns the blocks with the state of ``holdings``."""
    octets = encode_state(holdings)
    writer = RecordWriter(worker=OWN_WORKER, incarnation=incarnation, is_own=True)
    for start in range(0, len(octets), PART_OCTETS):
        end = start + PART_OCTETS
        flags = RecordFlag.MORE if end < len(octets) else 0
        writer.append(RecordKind.STATE, now_ns, flags=flags, body=octets[start:end])
    return b"".join(block.octets for block in writer.take_blocks())


def encode_state(holdings: Holdings) -> bytes:
    """Returns the octets drawn above."""
    queues = [each for each in holdings.queues.values() if each.messages]
    segments = [each for each in holdings.segments.values() if not each.is_done]
    routes = [each for each in holdings.routes.values() if each.condemned != BEGINNING]
    pieces = [
        _HEADER.pack(
            VERSION,
            holdings.clouded,
            holdings.clock_ns,
            len(queues),
            len(segments),
            len(routes),
            sum(map(len, holdings.unsettled.values())),
        )
    ]
    for queue in queues:
        pieces += (
            _QUEUE.pack(
                queue.route,
                queue.messages,
                queue.octets,
                len(queue.address),
                queue.priority,
                queue.condemned,
            ),
            queue.address,
        )
    for segment in segments:
        pieces += _segment_pieces(segment)
    for route in routes:
        dropped = (route.condemned_messages, route.condemned_octets)
        pieces.append(_ROUTE.pack(route.key, route.condemned, *dropped))
    for link, keys in holdings.unsettled.items():
        pieces += [_UNSETTLED.pack(link, key) for key in keys]
    return b"".join(pieces)


def _segment_pieces(segment: StoredSegment) -> tuple[bytes, bytes, bytes]:
    marks = zlib.compress(segment.marks, _FAST) if segment.gone else b""
    queues = () if segment.queues is None else sorted(segment.queues)
    head = _SEGMENT.pack(
        segment.number,
        segment.end,
        segment.stored,
        segment.gone,
        segment.first_ns,
        segment.last_ns,
        _UNLISTED if segment.queues is None else len(queues),
        len(marks),
    )
    return head, struct.pack(f"<{len(queues)}Q", *queues), marks


def decode_state(octets: bytes) -> Holdings:
    """Returns the holdings of a state.

    Raises:
        StateVersionError: it is of a later version.
        StateError: it is none.
    """
    if octets[:1] > bytes((VERSION,)):
        raise StateVersionError(octets[0])
    try:
        return _decode(octets)
    except (struct.error, zlib.error) as error:
        raise StateError(f"the state cannot be read: {error}") from error


def _decode(octets: bytes) -> Holdings:
    holdings = Holdings()
    version, clouded, holdings.clock_ns, queues, segments, routes, unsettled = _HEADER.unpack_from(
        octets
    )
    holdings.clouded = Place(clouded)
    at = _HEADER.size
    for _ in range(queues):
        at = _decode_queue(octets, at, holdings, version)
    for _ in range(segments):
        at = _decode_segment(octets, at, holdings)
    for key, place, messages, dropped in _ROUTE.iter_unpack(octets[at : at + routes * _ROUTE.size]):
        route = holdings.route(RouteKey(key))
        route.condemned = Place(place)
        route.condemned_messages, route.condemned_octets = messages, dropped
    at += routes * _ROUTE.size
    for link, key in _UNSETTLED.iter_unpack(octets[at : at + unsettled * _UNSETTLED.size]):
        holdings.unsettle(Unsettled(LinkKey(link), key))
    if len(octets) != at + unsettled * _UNSETTLED.size:
        raise StateError("the state has another length than its counts")
    return holdings


def _decode_queue(octets: bytes, at: int, holdings: Holdings, version: int) -> int:
    address_octets: int
    layout = _QUEUE if version > 1 else _QUEUE_1
    route, messages, count, address_octets, priority, *dropped = layout.unpack_from(octets, at)
    at += layout.size
    address = octets[at : at + address_octets]
    queue: StoredQueue = holdings.queue(RouteKey(route), address, priority)
    queue.messages, queue.octets = messages, count
    queue.condemned = Place(dropped[0]) if dropped else BEGINNING
    of_route = holdings.route(RouteKey(route))
    of_route.messages += messages
    of_route.octets += count
    return at + address_octets


def _decode_segment(octets: bytes, at: int, holdings: Holdings) -> int:
    marks_octets: int
    number, end, stored, gone, first_ns, last_ns, count, marks_octets = _SEGMENT.unpack_from(
        octets, at
    )
    at += _SEGMENT.size
    queues: set[QueueKey] | None = None
    if count != _UNLISTED:
        queues = set(map(QueueKey, struct.unpack_from(f"<{count}Q", octets, at)))
        at += 8 * count
    packed = octets[at : at + marks_octets]
    holdings.segments[number] = StoredSegment(
        number=number,
        end=end,
        stored=stored,
        gone=gone,
        first_ns=first_ns,
        last_ns=last_ns,
        queues=queues,
        marks=bytearray(zlib.decompress(packed) if packed else b""),
    )
    return at + marks_octets
