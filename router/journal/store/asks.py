"""What a worker asks of the message store's process, and what that answers, between the records.

Both are rows (``router.journal.record``) in blocks that are never stored, over the same socket as
the records: asks in blocks with the flag ASKS, answers in blocks with the flag OWN. An answer
begins with "J" as every block does, a reply about durability (``router.journal.protocol``) never.

    ask       incoming  outgoing    message octets   further
    BOUND     route     messages    octets           time: greatest age in ns; 0: no bound;
                                                     outcome: 0 refuse, 1 drop the oldest
    FLOW      route     0           messages         address: read so many more of it;
                                                     flag OVERDUE: of what is overdue, any address
    BACK      place     queue       octets           a message that was taken is given back
    RETURN    segment   queue       messages         likewise several of one segment, which are
                                                     read in their turn; body: the octets at which
                                                     their rows begin, u32 each
    SURVEY    0         0           0                asks for a ROUTE of every route with messages
    RECALL    place     route       0                the message at that place, or that it is gone
    UNSETTLED link      0           0                which deliveries of a link are not settled
    READS     0         0           1: yes, 0: no    this worker reads the files of the log itself
    HALT      route     0           0                address: nothing more of it until the next FLOW

    answer
    QUEUE     route     queue       messages         address; outcome: priority; it has so many
    ROUTE     route     octets      messages         flag HELD: it is full, senders wait; time: when
                                                     the oldest message came, 0: there is none;
                                                     body: how many came, how many left, u64 each,
                                                     since the process started
    MESSAGE   source    route       of the message   as STORED; before the tag is a claim: place,
                                                     queue, octets, u64 each; CLOUDED, OVERDUE
    RUN                                              several of one queue, see ``runs``
    REFERENCE route     queue       messages         likewise, where they stand, see ``references``
    HALTED    route     0           0                address: answers HALT
    SWEPT                                            a MESSAGE in answer to a FLOW with OVERDUE
    RECALLED                                         a MESSAGE in answer to a RECALL
    GONE      place     route       0                the other answer to a RECALL
    UNREAD    0         0           0                body: what the disk does not give, in words;
                                                     empty: nothing; with a SURVEY, if that is news
    UNSETTLED link      0           0                body: the keys of its deliveries, 16 octets
                                                     each; MORE: others follow
    PART      source    0           0                the next part of a MESSAGE that said MORE
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from router.journal.block import OWN_WORKER, Block, BlockFlag
from router.journal.keys import LinkKey
from router.journal.record import (
    NO_TTL,
    RecordError,
    RecordFlag,
    RecordKind,
    Row,
    heap_strings,
)
from router.journal.store import looking
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import Bounds, Claim, Full, QueueKey, RouteKey
from router.journal.store.reading import StoredMessage, is_free
from router.journal.store.references import POSITION_OCTETS, RunReference
from router.journal.store.runs import MessagesRead, StoredRun, is_run, run_in, write_run
from router.journal.writer import PART_OCTETS, RecordWriter
from router.model.identity import DeliveryKey


class AskKind(enum.IntEnum):
    """Rows that are said and not stored; apart from the numbers of ``RecordKind``."""

    BOUND = 64
    FLOW = 65
    BACK = 66
    QUEUE = 67
    ROUTE = 68
    MESSAGE = 69
    SWEPT = 70
    SURVEY = 71
    RECALL = 72
    RECALLED = 73
    GONE = 74
    UNSETTLED = 75
    READS = 77  # 76 is a run's
    HALT = 78
    HALTED = 79
    REFERENCE = 87  # those before are of ``looking``
    UNREAD = 88
    RETURN = 89


ROOM_OCTETS: Final = 4 << 20
"""Memory of answers beyond this is let go of: they were unusually long."""

_CLAIM: Final = struct.Struct("<QQQ")
_TURNOVER: Final = struct.Struct("<QQQ")  # came, left, condemned
_FULL: Final = {Full.REFUSE: 0, Full.DROP_OLDEST: 1}
_FULLS: Final = {code: full for full, code in _FULL.items()}
_MORE: Final = int(RecordFlag.MORE)
_KEY_OCTETS: Final = 16
_KEYS: Final = PART_OCTETS // _KEY_OCTETS  # of one row


@attrs.frozen
class Bound:
    """A route may store so much from now on."""

    route: RouteKey
    bounds: Bounds


@attrs.frozen
class Flow:
    """The worker reads so many more messages.

    Attributes:
        route: of the messages.
        address: of the messages; None: whatever is overdue.
        count: how many more than were asked for before.
    """

    route: RouteKey
    address: bytes | None
    count: int


@attrs.frozen
class Back:
    """A message that was taken is given back."""

    claim: Claim


@attrs.frozen
class Return:
    """Messages of one segment and queue that were taken are given back, in their order.

    Attributes:
        positions: of the messages, u32 each, ascending; at least one.
    """

    segment: int
    queue: QueueKey
    positions: bytes


@attrs.frozen
class Survey:
    """The worker wants to know what every route holds."""


@attrs.frozen
class Recall:
    """The worker wants a message that an earlier life of it may have sent."""

    route: RouteKey
    place: Place


@attrs.frozen
class AskUnsettled:
    """The worker wants to know what of a link is stored and not settled by its sender."""

    link: LinkKey


@attrs.frozen
class Reads:
    """The worker reads the files of the log itself, or does not any more."""

    is_able: bool = True


@attrs.frozen
class Halt:
    """The worker wants nothing more of an address that it has asked for, until it asks again."""

    route: RouteKey
    address: bytes


Ask = Bound | Flow | Back | Return | Survey | Recall | AskUnsettled | Reads | Halt | looking.LookAsk


@attrs.frozen
class QueueNews:
    """What a queue holds, read or not: the first messages have come, or the last one is gone."""

    route: RouteKey
    address: bytes
    priority: int
    messages: int


@attrs.frozen
class RouteNews:
    """What a route holds, and whether that is as much as it may.

    Attributes:
        oldest_ns: when its oldest message came; 0: it has none.
        came, left: how many messages did since the process started.
        condemned: its messages up to here were dropped as the oldest.
    """

    route: RouteKey
    messages: int
    octets: int
    is_full: bool
    oldest_ns: int = 0
    came: int = 0
    left: int = 0
    condemned: Place = BEGINNING


@attrs.frozen
class UnreadableNews:
    """What the disk does not give now, in words for people; empty: nothing."""

    words: str


@attrs.frozen
class MessageRead:
    """A message that was asked for.

    Attributes:
        is_swept: it answers a ``Flow`` for what is overdue.
        is_recalled: it answers a ``Recall``.
    """

    route: RouteKey
    message: StoredMessage
    is_swept: bool = False
    is_recalled: bool = False


@attrs.frozen
class Gone:
    """A message that was recalled is in the store no more."""

    route: RouteKey
    place: Place


@attrs.frozen
class UnsettledKeys:
    """Deliveries of a link that are, or were, stored and that their sender has not settled.

    Attributes:
        has_more: another answer has more of them.
    """

    link: LinkKey
    keys: tuple[DeliveryKey, ...]
    has_more: bool = False


@attrs.frozen
class Halted:
    """All that was read of an address has been answered; nothing more is."""

    route: RouteKey
    address: bytes


Said = (
    QueueNews
    | RouteNews
    | UnreadableNews
    | MessageRead
    | RunReference
    | Gone
    | UnsettledKeys
    | Halted
    | looking.LookAnswer
)
Answer = Said | MessagesRead


class AskWriter(RecordWriter):
    """Writes asks or answers into blocks; times and sequences mean nothing in them."""

    def __init__(self, flag: BlockFlag) -> None:
        """Begins without a block; ``flag`` is ASKS or OWN."""
        super().__init__(worker=OWN_WORKER, incarnation=0)
        self._flags = int(flag)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written since it was taken."""
        return not (self._rows_octets or self._sealed)

    def take_octets(self) -> bytes:
        """Returns all that was written, as it is sent."""
        return b"".join(block.octets for block in self.take_blocks())

    def ask(self, ask: Ask) -> None:
        """Writes an ask."""
        match ask:
            case Bound(route, bounds):
                self.append(
                    AskKind.BOUND,
                    bounds.age_ns or 0,
                    incoming=LinkKey(route),
                    outgoing=LinkKey(bounds.messages or 0),
                    outcome=_FULL[bounds.full],
                    message_octets=bounds.octets or 0,
                )
            case Flow(route, address, count):
                self._named(AskKind.FLOW, route, 0, count, address or b"", is_any=address is None)
            case Back(claim):
                self.append(
                    AskKind.BACK,
                    0,
                    incoming=LinkKey(claim.place),
                    outgoing=LinkKey(claim.queue),
                    message_octets=claim.octets,
                )
            case Return(segment, queue, positions):
                self.append(
                    AskKind.RETURN,
                    0,
                    incoming=LinkKey(segment),
                    outgoing=LinkKey(queue),
                    message_octets=len(positions) // POSITION_OCTETS,
                    body=positions,
                )
            case Survey():
                self.append(AskKind.SURVEY, 0)
            case Recall(route, place):
                self._placed(AskKind.RECALL, route, place)
            case AskUnsettled(link):
                self.append(AskKind.UNSETTLED, 0, incoming=link)
            case Reads(is_able):
                self.append(AskKind.READS, 0, message_octets=int(is_able))
            case Halt(route, address):
                self._named(AskKind.HALT, route, 0, 0, address)
            case looking.Look() | looking.Drop():
                looking.write_ask(self, ask)

    def answer(self, answer: Said) -> None:
        """Writes an answer."""
        match answer:
            case QueueNews(route, address, priority, messages):
                self._named(AskKind.QUEUE, route, priority, messages, address)
            case RouteNews(route, messages, octets, is_full, oldest_ns, came, left, condemned):
                self.append(
                    AskKind.ROUTE,
                    oldest_ns,
                    incoming=LinkKey(route),
                    outgoing=LinkKey(octets),
                    flags=RecordFlag.HELD if is_full else 0,
                    message_octets=messages,
                    body=_TURNOVER.pack(came, left, condemned),
                )
            case UnreadableNews(words):
                self.append(AskKind.UNREAD, 0, body=words.encode())
            case MessageRead(route, message, is_swept, is_recalled):
                kind = AskKind.SWEPT if is_swept else AskKind.MESSAGE
                self._read(AskKind.RECALLED if is_recalled else kind, route, message)
            case Gone(route, place):
                self._placed(AskKind.GONE, route, place)
            case UnsettledKeys(link, keys):
                self._unsettled(link, keys)
            case RunReference(route=route, queue=queue):
                self.append(
                    AskKind.REFERENCE,
                    0,
                    incoming=LinkKey(route),
                    outgoing=LinkKey(queue),
                    message_octets=answer.messages,
                    body=answer.encoded(),
                )
            case Halted(route, address):
                self._named(AskKind.HALTED, route, 0, 0, address)
            case _:
                looking.write_answer(self, answer)

    def _placed(self, kind: AskKind, route: RouteKey, place: Place) -> None:
        self.append(kind, 0, incoming=LinkKey(place), outgoing=LinkKey(route))

    def _unsettled(self, link: LinkKey, keys: Sequence[DeliveryKey]) -> None:
        for first in range(0, max(1, len(keys)), _KEYS):
            last = first + _KEYS
            self.append(
                AskKind.UNSETTLED,
                0,
                incoming=link,
                flags=RecordFlag.MORE if last < len(keys) else 0,
                body=b"".join(keys[first:last]),
            )

    def _named(
        self,
        kind: AskKind,
        route: RouteKey,
        priority: int,
        count: int,
        address: bytes,
        *,
        is_any: bool = False,
    ) -> None:
        self.append(
            kind,
            0,
            incoming=LinkKey(route),
            outcome=priority,
            flags=RecordFlag.OVERDUE if is_any else 0,
            message_octets=count,
            body=address,
        )

    def _read(self, kind: AskKind, route: RouteKey, message: StoredMessage) -> None:
        flags = RecordFlag.CLOUDED if message.is_clouded else 0
        ttl = message.ttl_milliseconds
        self._message(
            kind,
            message.time_ns,
            message.key,
            message.incoming,
            _CLAIM.pack(*message.claim) + message.tag,
            message.payload,
            address=message.address,
            outgoing=LinkKey(route),
            outcome=message.priority,
            guarantee=message.guarantee,
            protocol=message.protocol,
            flags=flags | (RecordFlag.OVERDUE if message.is_overdue else 0),
            message_format=message.message_format,
            delivery_count=message.delivery_count,
            ttl_milliseconds=NO_TTL if ttl is None else ttl,
        )


class AnswerWriter(AskWriter):
    """Writes answers for one worker into memory that is used again and again."""

    def __init__(self) -> None:
        """Begins without an answer."""
        super().__init__(BlockFlag.OWN)
        self._room = bytearray()
        self._end = 0

    def run(self, run: StoredRun) -> None:
        """Writes messages of one queue."""
        self._gather()
        begin = self._claim(run.octets)
        write_run(run, self._room, begin)

    def take(self) -> memoryview:
        """Returns all that was written; it stays as it is until the next is written."""
        self._gather()
        end, self._end = self._end, 0
        return memoryview(self._room)[:end]

    def _gather(self) -> None:
        for block in self.take_blocks():
            begin = self._claim(len(block.octets))
            self._room[begin : self._end] = block.octets

    def _claim(self, octets: int) -> int:
        """Makes room for so many octets, and returns where they begin."""
        begin, self._end = self._end, self._end + octets
        if not begin and (len(self._room) > ROOM_OCTETS or not is_free(self._room)):
            self._room = bytearray()
        if self._end > len(self._room):
            self._room.extend(bytes(self._end - len(self._room)))
        return begin


def asks_of(block: Block) -> Iterator[Ask]:
    """Yields the asks in a block; others than these are of a later version, and left out."""
    for row in block.unpacked_rows():
        match row[0]:
            case AskKind.BOUND:
                bounds = Bounds(
                    octets=row[10] or None,
                    messages=row[9] or None,
                    age_ns=row[6] or None,
                    full=_FULLS.get(row[1], Full.REFUSE),
                )
                yield Bound(RouteKey(row[8]), bounds)
            case AskKind.FLOW:
                is_any = bool(row[4] & RecordFlag.OVERDUE)
                address = None if is_any else heap_strings(row, block.heap)[2]
                yield Flow(RouteKey(row[8]), address, row[10])
            case AskKind.BACK:
                yield Back(Claim(Place(row[8]), QueueKey(row[9]), row[10]))
            case AskKind.RETURN:
                positions = heap_strings(row, block.heap)[2]
                if not positions or len(positions) % POSITION_OCTETS:
                    raise RecordError("messages are given back that have no places")
                yield Return(row[8], QueueKey(row[9]), positions)
            case AskKind.SURVEY:
                yield Survey()
            case AskKind.RECALL:
                yield Recall(RouteKey(row[9]), Place(row[8]))
            case AskKind.UNSETTLED:
                yield AskUnsettled(LinkKey(row[8]))
            case AskKind.READS:
                yield Reads(bool(row[10]))
            case AskKind.HALT:
                yield Halt(RouteKey(row[8]), heap_strings(row, block.heap)[2])
            case _:
                ask = looking.ask_of(row, heap_strings(row, block.heap)[2])
                if ask is not None:
                    yield ask


class AnswerReader:
    """Puts answers together; a long message comes in parts, over several blocks."""

    def __init__(self) -> None:
        self._row: Row | None = None
        self._strings: tuple[bytes, str] = b"", ""
        self._pieces: list[bytes] = []

    def answers_of(self, block: Block) -> Iterator[Answer]:
        """Yields the answers that a block completes."""
        if is_run(block):
            yield run_in(block)
            return
        for row in block.unpacked_rows():
            tag, address, body = heap_strings(row, block.heap)
            match row[0]:
                case AskKind.QUEUE:
                    yield QueueNews(RouteKey(row[8]), body, row[1], row[10])
                case AskKind.ROUTE:
                    is_full = bool(row[4] & RecordFlag.HELD)
                    came, left, condemned = _TURNOVER.unpack(body)
                    turnover = came, left, Place(condemned)
                    yield RouteNews(RouteKey(row[8]), row[10], row[9], is_full, row[6], *turnover)
                case AskKind.REFERENCE:
                    yield RunReference.decoded(RouteKey(row[8]), QueueKey(row[9]), body)
                    continue
                case AskKind.HALTED:
                    yield Halted(RouteKey(row[8]), body)
                    continue
                case AskKind.UNREAD:
                    yield UnreadableNews(body.decode(errors="replace"))
                    continue
                case AskKind.GONE:
                    yield Gone(RouteKey(row[9]), Place(row[8]))
                    continue
                case AskKind.UNSETTLED:
                    yield UnsettledKeys(LinkKey(row[8]), _keys_in(body), bool(row[4] & _MORE))
                    continue
                case AskKind.MESSAGE | AskKind.SWEPT | AskKind.RECALLED:
                    self._row, self._strings, self._pieces = row, (tag, address), [body]
                case RecordKind.PART:
                    self._pieces.append(body)
                case _:
                    answer = looking.answer_of(row, body)
                    if answer is not None:
                        yield answer
                    continue
            if self._row is not None and not row[4] & _MORE:
                yield self._finished(self._row)
                self._row = None

    def _finished(self, row: Row) -> MessageRead:
        tag, address = self._strings
        place, queue, octets = _CLAIM.unpack_from(tag)
        message = StoredMessage(
            claim=Claim(Place(place), QueueKey(queue), octets),
            time_ns=row[6],
            key=DeliveryKey(row[7]),
            incoming=LinkKey(row[8]),
            tag=tag[_CLAIM.size :],
            address=address,
            priority=row[1],
            guarantee=row[2],
            protocol=row[3],
            message_format=row[11],
            delivery_count=row[12],
            ttl_milliseconds=None if row[13] == NO_TTL else row[13],
            payload=b"".join(self._pieces),
            is_overdue=bool(row[4] & RecordFlag.OVERDUE),
            is_clouded=bool(row[4] & RecordFlag.CLOUDED),
        )
        route, is_swept = RouteKey(row[9]), row[0] == AskKind.SWEPT
        return MessageRead(route, message, is_swept, row[0] == AskKind.RECALLED)


def _keys_in(octets: bytes) -> tuple[DeliveryKey, ...]:
    starts = range(0, len(octets), _KEY_OCTETS)
    return tuple(DeliveryKey(octets[at : at + _KEY_OCTETS]) for at in starts)
