"""The records of the journal and their octets.

A record is one row of 80 octets, and up to three strings in the heap of its block. All rows have
the same width and all numbers are little-endian, so that the pipeline reads the rows of a block as
one array and never walks them one by one, and a kernel can write them in runs. A row:

    octet  0        1        2          3         4        6              8
          +--------+--------+----------+---------+--------+--------------+-----------------------+
          | kind   | outcome| guarantee| protocol| flags  | address      | time: nanoseconds     |
          | u8     | u8     | u8       | u8      | u16    | octets, u16  | since 1970, u64       |
     16   +--------+--------+----------+---------+--------+--------------+-----------------------+
          | delivery key, 16 octets                                                              |
     32   +----------------------------------------------+---------------------------------------+
          | incoming link key, u64                       | outgoing link key, u64                |
     48   +----------------------------------------------+---------------------------------------+
          | message octets, u64                          | message format, u32 | delivery count, |
          |                                              |                     | u32             |
     64   +-----------------------+----------------------+---------------------+-----------------+
          | ttl in ms, u32        | tag octets, u32      | heap offset, u32    | heap octets, u32|
          | 2^32-1: none          |                      |                     |                 |
     80   +-----------------------+----------------------+---------------------+-----------------+

    heap, from heap offset, heap octets long:   tag | address | body

The kind decides what ``body`` and the two link keys mean:

    kind              incoming  outgoing  body
    RECEIVED          source    0         payload or its first part, if HELD
    PART              source    0         next part of a payload that said MORE (message octets: how
                                            many octets of the payload stand before it, if PLACED)
    SENT              source    target    -
    OUTCOME           source    target    delivery state, as AMQP 1.0 encodes it
                      source    0         the same, decided by the router without a target
    SETTLED           source    target    -                  towards the receiver
                      source    0         -                  towards the sender
    IN_DOUBT          source    target    -
    RESOLVED          source    target    - (outcome: a Resolution)
    LINK_ATTACHED     its key in one of   names and terminus, see LinkDescription
    LINK_SUSPENDED    the two, by its     -
    LINK_EXPIRED      role                -
    WORKER_ENDED      0         0         -
    TRACED            source    0         span of this hop, see encode_hop; stands before RECEIVED
    GAP               0         0         - (message octets: deliveries that came and that no record
                                            speaks of; the journal could not take them)
    NUMBERS           0         0         epoch, u64 (message octets: attaches of ours may have had
                                            numbers of this epoch below this, see ``core.numbers``)

in the archive, whose segments hold PART and GAP besides (``router.core.archive``):

    ARCHIVED          source    0         message or its first part; the address is always there

in a message store, whose segments hold PART besides (``router.journal.store``):

    STORED            source    route     as ARCHIVED (outcome: the message's priority)
    FORWARDED         place     queue     - (outcome: how it ended, an OutcomeCode; message octets:
                                            what the message's records take in the store)
    FORWARDED_RUN     place     queue     columns, see ``store.gone`` (of the place only the
                                            segment counts; message octets: how many)
    SETTLED           link      0         - (of a delivery that is, or was, stored)

and of the journal itself, in blocks with the flag OWN:

    SEGMENT           previous  0         router id (message octets: number of the segment, as
                                            previous is; 0: none, or an earlier version wrote it)
    MARK              worker    incarn.   - (message octets: next sequence number of that origin)
    FENCE             0         0         - (message octets: this much of the segment is durable)
    SEGMENT_END       0         0         -
    SNAPSHOT          0         0         router id (message octets: last segment that it covers)
    STATE             0         0         of a message store: its state, or a part of that if MORE

(incoming link key, delivery key) identifies an unsettled delivery: every hop inside one router is
a link of its own, so two workers that both carry a delivery never use the same pair.
"""

import enum
import struct
from collections.abc import Mapping
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.keys import NO_LINK, LinkKey
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey
from router.model.trace import SPAN_OCTETS, TRACE_OCTETS, Hop


class RecordKind(enum.IntEnum):
    """What a record tells; the numbers are part of the format."""

    RECEIVED = 1
    PART = 2
    SENT = 3
    OUTCOME = 4
    SETTLED = 5
    IN_DOUBT = 6
    RESOLVED = 7
    LINK_ATTACHED = 16
    LINK_SUSPENDED = 17
    LINK_EXPIRED = 18
    WORKER_ENDED = 24
    GAP = 25
    ARCHIVED = 26
    NUMBERS = 27
    STORED = 28
    FORWARDED = 29
    TRACED = 30
    FORWARDED_RUN = 31
    SEGMENT = 32
    MARK = 33
    FENCE = 34
    SEGMENT_END = 35
    SNAPSHOT = 36
    STATE = 37


class RecordFlag(enum.IntFlag):
    """Facts of a record, one bit each.

    Attributes:
        SETTLED: RECEIVED, SENT: the delivery went settled; OUTCOME: the peer settled with it.
        HELD: the payload is in the journal, so that it can be sent again after a crash.
        MORE: a part of the payload follows as PART.
        RESUMED: the delivery is one that was unsettled before (§2.6.13), not a new one. RECEIVED
            with SETTLED: one of its later transfers says so (§2.7.5).
        DELIVERY_FAILED: of the modified outcome (§3.4.5).
        UNDELIVERABLE_HERE: of the modified outcome (§3.4.5).
        BY_PERSON: decided by somebody, not by the router.
        COPY: written before; repeated so that a segment or a snapshot is complete by itself.
        CLOUDED: in a snapshot: records that may have concerned this delivery are missing.
        FANNED: SENT: to one of several receivers that each get the message.
        ROUTER: LINK_ATTACHED: the peer is a trusted router, so deliveries keep their keys there.
        UNSENT: RESOLVED, to be sent again: the receiver certainly does not have the delivery.
            Earlier versions do not write it: there a delivery may always have arrived.
        OVERDUE: of a stored message: it goes to the dead letters.
        SPLICED: RECEIVED: the payload is as it came, and leaves with the context of its hop
            (``wire.tracing``).
        PLACED: PART: message octets say where it belongs. The version before did not write it, and
            does not look at it.
    """

    SETTLED = 0x0001
    HELD = 0x0002
    MORE = 0x0004
    RESUMED = 0x0008
    DELIVERY_FAILED = 0x0010
    UNDELIVERABLE_HERE = 0x0020
    BY_PERSON = 0x0040
    COPY = 0x0080
    CLOUDED = 0x0100
    FANNED = 0x0200
    ROUTER = 0x0400
    UNSENT = 0x0800
    OVERDUE = 0x1000
    SPLICED = 0x2000
    PLACED = 0x4000


class OutcomeCode(enum.IntEnum):
    """Low octet of the state's descriptor (§3.4, §4.5), where it has one."""

    NONE = 0x00
    RECEIVED = 0x23
    ACCEPTED = 0x24
    REJECTED = 0x25
    RELEASED = 0x26
    MODIFIED = 0x27
    DECLARED = 0x33
    TRANSACTIONAL = 0x34
    UNKNOWN = 0xFF


class Resolution(enum.IntEnum):
    """How a delivery ceases to be in doubt: it is sent again, or taken for one of the outcomes."""

    SEND_AGAIN = 1
    ACCEPT = OutcomeCode.ACCEPTED
    REJECT = OutcomeCode.REJECTED
    RELEASE = OutcomeCode.RELEASED


class GuaranteeCode(enum.IntEnum):
    """The promise of the route that took the delivery."""

    UNKNOWN = 0
    AT_MOST_ONCE = 1
    AT_LEAST_ONCE = 2
    EXACTLY_ONCE = 3


PROTOCOL_CODES: Final[Mapping[Protocol, int]] = {
    Protocol.AMQP_1_0: 1,
    Protocol.AMQP_0_9_1: 2,
    Protocol.AMQP_0_10: 3,
    Protocol.AMQP_0_9R1: 4,
    Protocol.AMQP_FAST: 5,
}
PROTOCOLS: Final[Mapping[int, Protocol]] = {code: name for name, code in PROTOCOL_CODES.items()}

ROW: Final = struct.Struct("<BBBBHHQ16sQQQIIIIII")
NO_KEY: Final = DeliveryKey(bytes(16))
NO_TTL: Final = 0xFFFFFFFF

_KINDS: Final[Mapping[int, RecordKind]] = {kind.value: kind for kind in RecordKind}
DELIVERY_KINDS: Final = frozenset(
    {
        RecordKind.RECEIVED,
        RecordKind.PART,
        RecordKind.SENT,
        RecordKind.OUTCOME,
        RecordKind.SETTLED,
        RecordKind.IN_DOUBT,
        RecordKind.RESOLVED,
    }
)

Row = tuple[int, int, int, int, int, int, int, bytes, int, int, int, int, int, int, int, int, int]
"""A row as ``ROW`` unpacks it, in the order of the drawing."""


class RecordError(RouterError):
    """Octets that pass their checksum and still are no record: written by another format."""


@attrs.define(kw_only=True)
class Record:
    """One record as it is read back; a value, slotted because there are many.

    Attributes:
        sequence: gapless per (worker, incarnation), from 1; 0 in the journal's own records.
        worker: who wrote it.
        incarnation: which life of that worker.
        kind: a ``RecordKind``, or the bare number if it is of a later version.
        time_ns: since 1970.
        flags: ``RecordFlag`` bits.
        outcome: an ``OutcomeCode``; in RESOLVED a ``Resolution``.
        guarantee: a ``GuaranteeCode``.
        protocol: encoding of the payload, one of ``PROTOCOL_CODES``; 0 where it does not matter.
        key: which delivery.
        incoming: link that it came from, 0 for none.
        outgoing: link that it went to, 0 for none.
        message_octets: size of the message, 0 if not known yet.
        message_format: §2.8.11.
        delivery_count: earlier failed attempts.
        ttl_milliseconds: header.ttl, None if absent.
        tag: on the link that the record speaks of.
        address: of this delivery, where it is not its link's.
        body: see the table of the module.
    """

    sequence: int
    worker: int
    incarnation: int
    kind: int
    time_ns: int
    flags: int = 0
    outcome: int = 0
    guarantee: int = 0
    protocol: int = 0
    key: DeliveryKey = NO_KEY
    incoming: LinkKey = NO_LINK
    outgoing: LinkKey = NO_LINK
    message_octets: int = 0
    message_format: int = 0
    delivery_count: int = 0
    ttl_milliseconds: int | None = None
    tag: bytes = b""
    address: str = ""
    body: bytes = b""


def record_from_row(
    row: Row, heap: bytes | memoryview, *, sequence: int, worker: int, incarnation: int
) -> Record:
    """Makes the noun of a row that was unpacked with ``ROW``.

    Raises:
        RecordError: the row points outside of its block's heap, or its address is not UTF-8.
    """
    kind, outcome, guarantee, protocol, flags = row[:5]
    time_ns, key, incoming, outgoing, message_octets = row[6:11]
    message_format, delivery_count, ttl = row[11:14]
    tag, address, body = heap_strings(row, heap)
    return Record(
        sequence=sequence,
        worker=worker,
        incarnation=incarnation,
        kind=_KINDS.get(kind, kind),
        time_ns=time_ns,
        flags=flags,
        outcome=outcome,
        guarantee=guarantee,
        protocol=protocol,
        key=DeliveryKey(key),
        incoming=LinkKey(incoming),
        outgoing=LinkKey(outgoing),
        message_octets=message_octets,
        message_format=message_format,
        delivery_count=delivery_count,
        ttl_milliseconds=None if ttl == NO_TTL else ttl,
        tag=tag,
        address=address,
        body=body,
    )


def heap_strings(row: Row, heap: bytes | memoryview) -> tuple[bytes, str, bytes]:
    """Cuts tag, address and body of ``row`` out of ``heap``.

    Raises:
        RecordError: the row points outside of its block's heap, or its address is not UTF-8.
    """
    address_octets, (tag_octets, start, octets) = row[5], row[14:17]
    if start + octets > len(heap) or tag_octets + address_octets > octets:
        raise RecordError("a row points outside of its heap")
    address_start = start + tag_octets
    body_start = address_start + address_octets
    try:
        address = str(heap[address_start:body_start], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError("an address is not UTF-8") from error
    return bytes(heap[start:address_start]), address, bytes(heap[body_start : start + octets])


_EPOCH: Final = struct.Struct("<Q")


def encode_epoch(epoch: int) -> bytes:
    """Returns the body of NUMBERS."""
    return _EPOCH.pack(epoch)


def epoch_from_body(body: bytes) -> int:
    """Reads the body of NUMBERS.

    Raises:
        RecordError: it is not one.
    """
    try:
        (epoch,) = _EPOCH.unpack(body)
    except struct.error as error:
        raise RecordError("an epoch cannot be read") from error
    return int(epoch)


_HOP: Final = struct.Struct("<16s8s8sB24s")
_NO_SPAN: Final = bytes(SPAN_OCTETS)
_NO_CREATOR: Final = bytes(TRACE_OCTETS + SPAN_OCTETS)


def encode_hop(hop: Hop) -> bytes:
    """Returns the body of TRACED.

    trace-id, 16 octets; span-id and parent-id, 8 each; flags, 1; trace-id and span-id of the
    creator, 24; tracestate in UTF-8. What there is not is zeros.
    """
    return (
        _HOP.pack(
            hop.trace, hop.span, hop.parent or _NO_SPAN, hop.flags, hop.creator or _NO_CREATOR
        )
        + hop.state.encode()
    )


def hop_from_body(body: bytes) -> Hop:
    """Reads the body of TRACED.

    Raises:
        RecordError: it is not one.
    """
    try:
        trace, span, parent, flags, creator = _HOP.unpack_from(body)
        state = str(body[_HOP.size :], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError("the span of a hop cannot be read") from error
    return Hop(
        trace=trace,
        span=span,
        parent=b"" if parent == _NO_SPAN else parent,
        flags=flags,
        creator=b"" if creator == _NO_CREATOR else creator,
        state=state,
    )


_LINK_NAMES: Final = struct.Struct("<HHHHH")


@attrs.frozen(kw_only=True)
class LinkDescription:
    """What must be known of a link to find and resume it after a crash, and to name it in an audit.

    Body of LINK_ATTACHED: five lengths as u16, the five strings as UTF-8, the terminus octets.

    Attributes:
        key: its name in all other records.
        is_incoming: deliveries come in over it: our end is the receiver.
        local: our container-id.
        remote: the peer's container-id.
        name: of the link (§2.6.1).
        address: of the terminus.
        identity: who the peer proved to be; a resume is taken only from the same.
        terminus: source, target and settle modes in the caller's encoding; opaque here.
        is_router: the peer is a trusted router; a flag of the record, not in its body.
    """

    key: LinkKey
    is_incoming: bool
    local: str
    remote: str
    name: str
    address: str = ""
    identity: str = ""
    terminus: bytes = b""
    is_router: bool = False

    def encoded(self) -> bytes:
        """Returns the body of LINK_ATTACHED.

        Raises:
            RecordError: a name is longer than 65,535 octets.
        """
        names = [
            name.encode()
            for name in (self.local, self.remote, self.name, self.address, self.identity)
        ]
        try:
            lengths = _LINK_NAMES.pack(*(len(name) for name in names))
        except struct.error as error:
            raise RecordError("a name of a link is too long") from error
        return lengths + b"".join(names) + self.terminus


def link_from_record(
    incoming: LinkKey, outgoing: LinkKey, body: bytes, flags: int = 0
) -> LinkDescription:
    """Reads the body of a LINK_ATTACHED record.

    Raises:
        RecordError: the body is not one that ``LinkDescription.encoded`` wrote.
    """
    try:
        lengths = _LINK_NAMES.unpack_from(body)
        names, start = [], _LINK_NAMES.size
        for length in lengths:
            if start + length > len(body):
                raise RecordError("a name of a link is cut short")
            names.append(str(body[start : start + length], "utf-8"))
            start += length
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError("a link's names cannot be read") from error
    local, remote, name, address, identity = names
    return LinkDescription(
        key=incoming or outgoing,
        is_incoming=bool(incoming),
        local=local,
        remote=remote,
        name=name,
        address=address,
        identity=identity,
        terminus=body[start:],
        is_router=bool(flags & RecordFlag.ROUTER),
    )
