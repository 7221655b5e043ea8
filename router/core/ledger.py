"""What goes to the journal, and what has to wait until it is there (``router/journal/INVARIANTS``).

Theory of operation. The ledger watches a journaled node from both ends: what comes in and what
receivers and senders say, before the core acts upon it; and the orders for its links, at the moment
at which they would go out. From these it writes the life of each delivery:

    a delivery comes            RECEIVED, with its payload
    SendDeliveries              SENT; the run waits for it                 DurableBeforeSend
    a receiver tells an outcome OUTCOME
    UpdateDeliveries to sender  OUTCOME if the core decided it by itself; waits for it
                                                                           OutcomeBeforeAnswer
    UpdateDeliveries to receiver, settled: SETTLED towards it; waits for the outcome
                                                                           OutcomeBeforeSettle
    a sender settles            SETTLED                                    SettleSecond
    a link ends for good        what was open there is settled, or to be sent again

It keeps an *entry* for every delivery that is not forgotten, by its key. Waiting is the affair of
the ``Gate``, which holds the orders.

**Senders that cannot settle second** (a broker that redelivers what it did not hear settled, as a
new delivery, on another connection). The answer may be lost with the connection and nobody would
know. So deliveries of such a link are named by the id that their message carries, their entries
outlive the answer, and a delivery with the same name is a *repeat*: it gets the outcome that is
known, or takes the place of the one that is under way; it is not sent again. An entry is forgotten
when so many further deliveries have come on its link that the sender must have read the answer:
it cannot have sent these without credit that was granted behind it.

Without a journal nothing here does anything.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from typing import Protocol as Interface

import attrs

from router.core.gate import Gate
from router.core.node import Feed, feed_of
from router.core.terms import encode_terms
from router.core.turn import Turn
from router.journal.keys import NO_LINK, DeliveryKeys, LinkKey, link_key
from router.journal.record import (
    NO_TTL,
    PROTOCOL_CODES,
    GuaranteeCode,
    LinkDescription,
    OutcomeCode,
    RecordFlag,
    Resolution,
)
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing, octets_of
from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import DeliveriesUpdated, DeliveryContinued
from router.model.identity import ContainerId, DeliveryKey, DeliveryNumber, DeliveryTag
from router.model.outcome import (
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
    is_outcome,
)
from router.routes.vhost import inside

Identify = Callable[[Protocol, bytes, str], bytes | None]
"""Gives the id that a payload carries as ``message-id``, or as a property of that name, if any."""

GiveId = Callable[[Protocol, bytes, str, bytes], "tuple[Protocol, bytes] | None"]
"""Puts an id under a name into a payload that has none; gives encoding and payload, or None."""

EncodeState = Callable[[DeliveryState], bytes]
"""Gives a state in AMQP 1.0's encoding."""

_NANOSECONDS: Final = 1_000_000_000


class Records(Interface):
    """What is asked of ``router.journal.writer.RecordWriter``."""

    def received(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        payload: bytes | memoryview | None = None,
        message_octets: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """A delivery, or its first part, came in."""

    def part(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        payload: bytes | memoryview,
        *,
        more: bool,
    ) -> int:
        """Another part came in."""

    def sent(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        tag: bytes,
        *,
        guarantee: int = 0,
    ) -> int:
        """A delivery goes out."""

    def outcome(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        outcome: int,
        *,
        flags: int = 0,
        state: bytes = b"",
    ) -> int:
        """An outcome was learned, or decided here."""

    def settled(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
    ) -> int:
        """A delivery is settled with the receiver, or with the sender."""

    def in_doubt(self, time_ns: int, key: DeliveryKey, incoming: LinkKey, outgoing: LinkKey) -> int:
        """The connection was lost after the transfer and before an outcome."""

    def resolved(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        resolution: Resolution,
        *,
        by_person: bool = False,
    ) -> int:
        """The doubt has been ended."""

    def link_attached(self, time_ns: int, link: LinkDescription, *, flags: int = 0) -> int:
        """A link is attached."""

    def link_suspended(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """A link keeps its terminus."""

    def link_expired(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """A terminus is gone."""


@attrs.define(eq=False)
class Entry:
    """A delivery that is not forgotten.

    Attributes:
        key: which delivery.
        source: the incoming link.
        tag: on the incoming link.
        outcome: an outcome is on record, so the sender may hear it; ``told`` then says which.
        told: the outcome last put on record.
        legs: outgoing links on which it is not settled.
        answered_at: how many deliveries had come on its link when its sender was answered; -1: it
            has not been.
        pairing: what it is in the core, as long as it is under way.
        followers: repeats on the same attachment, answered when it is.
    """

    key: DeliveryKey
    source: LinkKey
    tag: DeliveryTag
    outcome: bool = False
    told: DeliveryState | None = None
    legs: set[LinkKey] = attrs.Factory(set)
    answered_at: int = -1
    pairing: Pairing | None = None
    followers: list[DeliveryNumber] | None = None


@attrs.define(eq=False)
class _Incoming:
    """The book of an incoming link, whatever connection it is attached by.

    Attributes:
        key: of the link.
        names: gives its deliveries their keys.
        entries: what is not forgotten.
        numbered: by the engine's number, of the present attachment.
        answered: those that are answered and must still be known again, oldest first.
        sequence: of the last outcome on record.
        count: deliveries that have come.
    """

    key: LinkKey
    names: DeliveryKeys
    entries: dict[DeliveryKey, Entry] = attrs.Factory(dict)
    numbered: dict[DeliveryNumber, Entry] = attrs.Factory(dict)
    answered: deque[Entry] = attrs.Factory(deque)
    sequence: int = 0
    count: int = 0


@attrs.define(eq=False)
class _Outgoing:
    """The book of an outgoing link.

    Attributes:
        key: of the link.
        numbered: by our number, of the present attachment: what it has not settled.
        adrift: the same by tag, of earlier attachments.
        sequence: of the last outcome on record.
    """

    key: LinkKey
    numbered: dict[DeliveryNumber, Entry] = attrs.Factory(dict)
    adrift: dict[DeliveryTag, Entry] = attrs.Factory(dict)
    sequence: int = 0


class Ledger:
    """Writes the lives of deliveries down.

    Attributes:
        gate: where orders wait.
        is_on: there is a journal.
        is_stuck: the journal cannot write; nothing should be asked of senders meanwhile.
    """

    def __init__(self, turn: Turn, local: ContainerId) -> None:
        """Begins without a journal.

        Args:
            turn: tells the time; what is ordered in it passes the gate.
            local: our container-id.
        """
        self.gate: Gate = turn.gate
        self.is_on = False
        self.is_stuck = False
        self._turn = turn
        self._local = local
        self._records: Records
        self._identify: Identify = _no_id
        self._give_id: GiveId = _no_change
        self._encode: EncodeState = _no_state
        self._epoch_ns = 0
        self._incoming: dict[LinkKey, _Incoming] = {}
        self._outgoing: dict[LinkKey, _Outgoing] = {}
        self._in_books: dict[IncomingLink, _Incoming] = {}
        self._out_books: dict[OutgoingLink, _Outgoing] = {}
        self._twins: dict[DeliveryKey, list[DeliveryNumber]] = {}

    def open(
        self,
        records: Records,
        epoch_ns: int,
        *,
        identify: Identify,
        give_id: GiveId,
        encode: EncodeState,
    ) -> None:
        """Begins to write.

        Args:
            records: of the journal.
            epoch_ns: nanoseconds since 1970 at the core's time 0.
            identify: finds ids in payloads.
            give_id: puts ids into payloads.
            encode: encodes states.
        """
        self._records = records
        self._epoch_ns = epoch_ns
        self._identify = identify
        self._give_id = give_id
        self._encode = encode
        self.is_on = True

    def now_ns(self) -> int:
        """Gives the time of the turn in nanoseconds since 1970."""
        return int(self._turn.now * _NANOSECONDS) + self._epoch_ns

    # Links

    def _in_book(self, link: IncomingLink) -> _Incoming:
        book = self._in_books.get(link)
        if book is None:
            key = link_key(self._local, link.key.container, link.key.name, is_incoming=True)
            book = self._book_of_source(link, key)
            book.numbered = {}
            self._records.link_attached(self.now_ns(), describe(self._local, key, link))
        return book

    def _book_of_source(self, link: IncomingLink, key: LinkKey) -> _Incoming:
        book = self._incoming.get(key)
        if book is None:
            names = DeliveryKeys(link.key.container, link.key.name)
            book = self._incoming[key] = _Incoming(key, names)
        self._in_books[link] = book
        return book

    def _out_book(self, link: OutgoingLink) -> _Outgoing:
        book = self._out_books.get(link)
        if book is None:
            key = link_key(self._local, link.key.container, link.key.name, is_incoming=False)
            book = self._outgoing.setdefault(key, _Outgoing(key))
            book.numbered = {}
            self._out_books[link] = book
            self._records.link_attached(self.now_ns(), describe(self._local, key, link))
        return book

    def attached(self, link: Link) -> None:
        """Takes note that a link which may have been suspended is attached again."""
        known = (
            self._in_books.get(link)
            if isinstance(link, IncomingLink)
            else (self._out_books.get(link))
        )
        if known is not None:
            self._records.link_attached(self.now_ns(), describe(self._local, known.key, link))

    def suspended(self, link: Link) -> None:
        """Takes note that a link is about to be suspended; its deliveries have their numbers."""
        if isinstance(link, IncomingLink):
            incoming = self._in_books.get(link)
            if incoming is not None:
                incoming.numbered = {}
                self._records.link_suspended(self.now_ns(), incoming=incoming.key)
            return
        outgoing = self._out_books.get(link)
        if outgoing is None:
            return
        now_ns = self.now_ns()
        for number, pairing in link.unsettled.items():
            entry = outgoing.numbered.pop(number, None)
            if entry is not None:
                outgoing.adrift[pairing.outgoing_tag] = entry
                if not entry.outcome:
                    self._records.in_doubt(now_ns, entry.key, entry.source, outgoing.key)
        self._records.link_suspended(now_ns, outgoing=outgoing.key)

    def gone(self, link: Link) -> None:
        """Takes note that a link is over; its deliveries have been seen to."""
        if isinstance(link, IncomingLink):
            incoming = self._in_books.pop(link, None)
            if incoming is not None:
                self._sender_gone(link, incoming)
            return
        outgoing = self._out_books.pop(link, None)
        if outgoing is None:
            return
        now_ns = self.now_ns()
        for entry in (*outgoing.numbered.values(), *outgoing.adrift.values()):
            self._records.resolved(
                now_ns, entry.key, entry.source, outgoing.key, Resolution.SEND_AGAIN
            )
            entry.legs.discard(outgoing.key)
        self._records.link_expired(now_ns, outgoing=outgoing.key)
        del self._outgoing[outgoing.key]

    def _sender_gone(self, link: IncomingLink, book: _Incoming) -> None:
        """Forgets what nobody will ask for; a sender that redelivers will."""
        if self._redelivers(link):
            book.numbered = {}
            return
        now_ns = self.now_ns()
        for entry in book.entries.values():
            self._records.settled(now_ns, entry.key, entry.source)
        self._records.link_expired(now_ns, incoming=book.key)
        self._incoming.pop(book.key, None)

    def abandoned(self, link: IncomingLink) -> list[Pairing]:
        """Gives what waits unsent of a sender that is gone and will bring it again."""
        book = self._in_books.get(link)
        if book is None or not self._redelivers(link):
            return []
        found = [
            (entry, entry.pairing)
            for entry in book.entries.values()
            if entry.pairing is not None and not entry.legs and not entry.outcome
        ]
        for entry, _ in found:
            self._sender_settled(book, entry)
        return [pairing for _, pairing in found]

    @staticmethod
    def _redelivers(link: IncomingLink) -> bool:
        return not link.settles_second

    # What comes in

    def screen(
        self, feed: Feed, deliveries: Sequence[ReceivedDelivery]
    ) -> Sequence[ReceivedDelivery]:
        """Gives every delivery its key; answers repeats and leaves them out.

        Args:
            feed: of a journaled node.
            deliveries: that have just come.

        Returns:
            Those that the core should take.
        """
        incoming = feed.incoming
        book = self._in_book(incoming)
        if not self._redelivers(incoming):
            self._name(incoming, deliveries)
            return deliveries
        route = feed.node.route
        name = "message-id" if route.dedup is None else route.dedup.property
        fresh: list[ReceivedDelivery] = []
        in_run: set[DeliveryKey] = set()
        unnamed: list[ReceivedDelivery] = []
        for delivery in deliveries:
            is_known = delivery.settled or delivery.resume
            found = None if is_known else self._find_id(delivery, name)
            if found is None:
                unnamed.append(delivery)
                fresh.append(delivery)
                continue
            delivery.key = book.names.name(found, 0)
            if delivery.key in in_run:
                self._twins.setdefault(delivery.key, []).append(delivery.number)
                continue
            in_run.add(delivery.key)
            entry = book.entries.get(delivery.key)
            if entry is None or not self._repeat(incoming, book, entry, delivery):
                fresh.append(delivery)
        self._name(incoming, unnamed)
        return fresh

    def _find_id(self, delivery: ReceivedDelivery, name: str) -> DeliveryTag | None:
        found = self._identify(delivery.protocol, delivery.payload, name)
        return None if found is None else DeliveryTag(found)

    def _name(self, incoming: IncomingLink, deliveries: Iterable[ReceivedDelivery]) -> None:
        name, now_ns = self._in_book(incoming).names.name, self.now_ns()
        for delivery in deliveries:
            if delivery.resume:
                self._resumed(incoming, delivery)
            elif delivery.key is None:
                delivery.key = name(delivery.tag, now_ns)

    def _repeat(
        self, incoming: IncomingLink, book: _Incoming, entry: Entry, delivery: ReceivedDelivery
    ) -> bool:
        """Takes in a delivery that has been here before; tells whether it need not be sent."""
        number, pairing = delivery.number, entry.pairing
        if entry.outcome and not isinstance(entry.told, Released | Modified):
            book.numbered[number] = entry
            self._turn.tell(incoming, (number,), entry.told, True)
        elif pairing is None or not _is_under_way(pairing):
            del book.entries[entry.key]  # nobody has acted upon it: it may go as a new one
            return False
        elif incoming.unsettled.get(pairing.number) is pairing:
            entry.followers = entry.followers or []
            entry.followers.append(number)
        else:
            book.numbered[number] = entry
            self._take_over(incoming, pairing, delivery)
        incoming.tally.deliveries += 1
        return True

    @staticmethod
    def _take_over(incoming: IncomingLink, pairing: Pairing, delivery: ReceivedDelivery) -> None:
        """Lets a delivery under way be the one that has come again."""
        before, octets = pairing.incoming, octets_of(pairing)
        for link, change in ((before, -octets), (incoming, octets)):
            link.octets += change
            if link.connection is not None:
                link.connection.octets.used += change
        before.adrift.pop(pairing.delivery.tag, None)
        pairing.incoming = incoming
        pairing.number = delivery.number
        pairing.delivery.tag = delivery.tag
        pairing.is_settled = pairing.delivery.settled = False
        pairing.is_unusual = True
        incoming.unsettled[delivery.number] = pairing

    def received(self, feed: Feed, pairings: Sequence[Pairing]) -> None:
        """Takes note of deliveries that have come, named by ``screen`` and paired."""
        incoming = feed.incoming
        book = self._in_book(incoming)
        entries, numbered, source = book.entries, book.numbered, book.key
        record, now_ns = self._records.received, self.now_ns()
        for pairing in pairings:
            delivery = pairing.delivery
            key = delivery.key
            if pairing.is_settled or key is None:
                continue
            parts = pairing.parts
            ttl = delivery.ttl_milliseconds
            entries[key] = numbered[pairing.number] = Entry(
                key, source, delivery.tag, pairing=pairing
            )
            payload = delivery.payload if parts is None else b""
            record(
                now_ns,
                key,
                source,
                delivery.tag,
                guarantee=_EXACTLY_ONCE,
                protocol=PROTOCOL_CODES[delivery.protocol],
                flags=0 if parts is None else RecordFlag.MORE,
                address=_own_address(incoming, delivery),
                payload=payload,
                message_octets=len(payload),
                message_format=delivery.message_format,
                delivery_count=delivery.delivery_count,
                ttl_milliseconds=NO_TTL if ttl is None else ttl,
            )
            if parts is not None:
                self._records.part(now_ns, key, source, parts.joined(), more=True)
        for key, numbers in self._twins.items():  # repeats that came in the same breath
            entries[key].followers = numbers
        self._twins.clear()
        book.count += len(pairings)
        if book.answered:
            self._forget_answered(incoming, book)

    def _forget_answered(self, incoming: IncomingLink, book: _Incoming) -> None:
        """Forgets answered deliveries that cannot come again."""
        answered, now_ns = book.answered, self.now_ns()
        surely_read = book.count - 2 * max(incoming.link_credit, 1)
        while answered and answered[0].answered_at < surely_read:
            entry = answered.popleft()
            if book.entries.get(entry.key) is entry:
                del book.entries[entry.key]
                self._records.settled(now_ns, entry.key, entry.source)

    def continued(self, incoming: IncomingLink, event: DeliveryContinued) -> None:
        """Takes note of a further part."""
        book = self._in_books.get(incoming)
        entry = None if book is None else book.numbered.get(event.number)
        if entry is not None:
            self._records.part(
                self.now_ns(), entry.key, entry.source, event.payload, more=event.more
            )

    def aborted(self, incoming: IncomingLink, number: DeliveryNumber) -> None:
        """Takes note that a sender has given a delivery up (§2.7.5)."""
        book = self._in_books.get(incoming)
        entry = None if book is None else book.numbered.pop(number, None)
        if book is not None and entry is not None:
            self._sender_settled(book, entry)

    def _resumed(self, incoming: IncomingLink, delivery: ReceivedDelivery) -> None:
        """Takes note that a delivery is known by another number now (§2.6.13)."""
        book = self._in_books.get(incoming)
        pairing = incoming.adrift.get(delivery.tag)
        if book is None or pairing is None or pairing.delivery.key is None:
            return
        entry = book.entries.get(pairing.delivery.key)
        if entry is None:
            return
        book.numbered[delivery.number] = entry
        if delivery.settled or is_outcome(delivery.state):
            self._sender_settled(book, entry)

    # What peers say

    def receiver_updated(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        """Takes note of what a receiver says, before the core acts upon it."""
        book = self._out_books.get(link)
        if book is None or not (event.settled or is_outcome(event.state)):
            return
        numbered, now_ns, target = book.numbered, self.now_ns(), book.key
        state = event.state
        if state is None and link.source is not None:
            state = link.source.default_outcome
        code, flags, octets = self._encoded(state)
        if event.settled:
            flags |= _SETTLED_FLAG
        record = self._records.outcome
        for number in event.numbers:
            entry = numbered.get(number)
            if entry is None:
                continue
            if event.settled:
                del numbered[number]
                entry.legs.discard(target)
            book.sequence = record(
                now_ns, entry.key, entry.source, target, code, flags=flags, state=octets
            )
            entry.outcome, entry.told = True, state
            source = self._incoming.get(entry.source)
            if source is not None:
                source.sequence = book.sequence
                if entry.answered_at < 0 and entry.pairing is not None and entry.pairing.is_settled:
                    entry.answered_at = source.count  # its sender is away, and may redeliver it
                    source.answered.append(entry)

    def sender_updated(self, incoming: IncomingLink, event: DeliveriesUpdated) -> None:
        """Takes note of what a sender has settled, before the core acts upon it."""
        book = self._in_books.get(incoming)
        if book is None or not event.settled:
            return
        for number in event.numbers:
            entry = book.numbered.pop(number, None)
            if entry is not None:
                self._sender_settled(book, entry)

    def _sender_settled(self, book: _Incoming, entry: Entry) -> None:
        if book.entries.pop(entry.key, None) is not None:
            entry.pairing = None
            self._records.settled(self.now_ns(), entry.key, entry.source)

    def _encoded(self, state: DeliveryState | None) -> tuple[int, int, bytes]:
        """Gives code, flags and, where these do not say it all, octets of an outcome."""
        match state:
            case None:
                return OutcomeCode.NONE, 0, b""
            case Accepted():
                return OutcomeCode.ACCEPTED, 0, b""
            case Released():
                return OutcomeCode.RELEASED, 0, b""
            case Rejected(error=error):
                octets = b"" if error is None else self._encode(state)
                return OutcomeCode.REJECTED, 0, octets
            case Modified():
                flags = RecordFlag.DELIVERY_FAILED if state.delivery_failed else 0
                if state.undeliverable_here:
                    flags |= RecordFlag.UNDELIVERABLE_HERE
                octets = self._encode(state) if state.message_annotations else b""
                return OutcomeCode.MODIFIED, flags, octets
            case _:
                return OutcomeCode.UNKNOWN, 0, self._encode(state)

    # What is about to go out

    def give_id(self, pairing: Pairing, outgoing: OutgoingDelivery) -> None:
        """Gives a message an id if its target finds duplicates by one, and it has none.

        The id is the delivery's key, so it is the same whenever the delivery is sent again.
        """
        dedup, key = feed_of(pairing).node.route.dedup, pairing.delivery.key
        if dedup is None or key is None or not outgoing.payload:
            return
        changed = self._give_id(outgoing.protocol, outgoing.payload, dedup.property, key)
        if changed is not None:
            outgoing.protocol, outgoing.payload = changed

    def sending(self, link: OutgoingLink, run: Sequence[OutgoingDelivery]) -> None:
        """Takes note of a run that is ordered; it waits until that is durable."""
        record, now_ns = self._records.sent, self.now_ns()
        book: _Outgoing | None = None
        sequence = 0
        for delivery in run:
            pairing = link.unsettled.get(delivery.number)
            if pairing is None or pairing.delivery.key is None:
                self._sending_settled(link, delivery)
                continue
            source = self._in_books.get(pairing.incoming)
            entry = None if source is None else source.entries.get(pairing.delivery.key)
            if entry is None:
                continue
            if book is None:
                book = self._out_book(link)
            book.numbered[delivery.number] = entry
            book.adrift.pop(delivery.tag, None)
            if delivery.resume:
                if is_outcome(delivery.state) and not entry.outcome:
                    self._decided(entry, book.key, delivery.state, now_ns)
                continue
            entry.legs.add(book.key)
            entry.outcome = False
            sequence = record(
                now_ns, entry.key, entry.source, book.key, delivery.tag, guarantee=_EXACTLY_ONCE
            )
        if sequence:
            self.gate.wait(link, sequence)

    def _sending_settled(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        """Takes note of a resumed delivery that is settled with its receiver by this (§3.4.6)."""
        book = self._out_books.get(link)
        entry = None if book is None else book.adrift.pop(delivery.tag, None)
        if book is None or entry is None:
            return
        now_ns = self.now_ns()
        if not entry.outcome:
            self._decided(entry, book.key, delivery.state, now_ns)
        self._records.settled(now_ns, entry.key, entry.source, book.key)
        entry.legs.discard(book.key)
        self.gate.wait(link, book.sequence)

    def _decided(
        self, entry: Entry, outgoing: LinkKey, state: DeliveryState | None, now_ns: int
    ) -> None:
        """Puts an outcome on record that no disposition told."""
        code, flags, octets = self._encoded(state)
        sequence = self._records.outcome(
            now_ns, entry.key, entry.source, outgoing, code, flags=flags, state=octets
        )
        entry.outcome, entry.told = True, state
        source, target = self._incoming.get(entry.source), self._outgoing.get(outgoing)
        if source is not None:
            source.sequence = sequence
        if target is not None:
            target.sequence = sequence

    def telling(
        self,
        link: Link,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Takes note of what is about to be told; outcomes wait until they are durable.

        Repeats of what is settled with its sender are added to ``numbers``.
        """
        if not settled and not is_outcome(state):
            return
        if isinstance(link, IncomingLink):
            book = self._in_books.get(link)
            if book is not None:
                self._telling_sender(link, book, numbers, state, settled)
            return
        outgoing = self._out_books.get(link)
        if outgoing is None or not settled:
            return
        now_ns, record, target = self.now_ns(), self._records.settled, outgoing.key
        for number in numbers:
            entry = outgoing.numbered.pop(number, None)
            if entry is not None:
                record(now_ns, entry.key, entry.source, target)
                entry.legs.discard(target)
        self.gate.wait(link, outgoing.sequence)

    def _telling_sender(
        self,
        link: IncomingLink,
        book: _Incoming,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        numbered, now_ns = book.numbered, self.now_ns()
        keeps = self._redelivers(link)
        for number in tuple(numbers):
            entry = numbered.get(number)
            if entry is None:
                continue
            if not entry.outcome or entry.told != state:
                self._decided(entry, NO_LINK, state, now_ns)
            if not settled:
                continue
            del numbered[number]
            entry.pairing = None
            if entry.followers is not None:
                numbers += entry.followers
                entry.followers = None
            if keeps:
                if entry.answered_at < 0:
                    book.answered.append(entry)
                entry.answered_at = book.count
            else:
                self._sender_settled(book, entry)
        self.gate.wait(link, book.sequence)

    # Deliveries that go another way

    def recall(self, link: Link, *, is_lost: bool) -> list[Pairing]:
        """Takes back what a link that is ending was to be sent and was not (KnownNotSent).

        Args:
            link: still attached.
            is_lost: the peer has ended it, or its connection is gone.
        """
        recalled = self.gate.recall(link, is_lost=is_lost)
        if not isinstance(link, OutgoingLink):
            return []
        if self.is_on and link.carries_tags:
            recalled += link.run
            link.run = []
        found: list[Pairing] = []
        for delivery in recalled:
            pairing = link.unsettled.get(delivery.number)
            if pairing is not None and not delivery.resume and not delivery.more:
                self.sent_again(link, pairing)
                found.append(pairing)
        return found

    def aborting(self, link: Link, number: DeliveryNumber) -> None:
        """Takes note that a delivery in parts is given up at its receiver, and settled (§2.7.5)."""
        book = self._out_books.get(link) if isinstance(link, OutgoingLink) else None
        entry = None if book is None else book.numbered.pop(number, None)
        if book is not None and entry is not None:
            self._leg_settled(book, entry)

    def forgotten(self, link: OutgoingLink, pairing: Pairing) -> None:
        """Takes note that a receiver has settled a delivery on an earlier attachment (§2.6.13)."""
        book = self._out_books.get(link)
        entry = None if book is None else book.adrift.pop(pairing.outgoing_tag, None)
        if book is not None and entry is not None:
            self._leg_settled(book, entry)

    def _leg_settled(self, book: _Outgoing, entry: Entry) -> None:
        self._records.settled(self.now_ns(), entry.key, entry.source, book.key)
        entry.legs.discard(book.key)

    def sent_again(self, link: OutgoingLink, pairing: Pairing, *, by_person: bool = False) -> None:
        """Takes note that a delivery leaves a receiver that does not have it, to be sent again."""
        self.resolved(link, pairing, Resolution.SEND_AGAIN, by_person=by_person)

    def resolved(
        self,
        link: OutgoingLink,
        pairing: Pairing,
        resolution: Resolution,
        *,
        by_person: bool = False,
    ) -> None:
        """Takes note of what becomes of a delivery that is in doubt."""
        book = self._out_books.get(link)
        if book is None:
            return
        entry = book.numbered.pop(pairing.outgoing_number, None)
        entry = book.adrift.pop(pairing.outgoing_tag, None) or entry
        if entry is not None:
            entry.legs.discard(book.key)
            self._records.resolved(
                self.now_ns(), entry.key, entry.source, book.key, resolution, by_person=by_person
            )

    # After a restart

    def restore_incoming(self, link: IncomingLink, key: LinkKey) -> None:
        """Opens the book of a link that the journal remembers."""
        self._book_of_source(link, key)

    def restore_outgoing(self, link: OutgoingLink, key: LinkKey) -> None:
        """Opens the book of a link that the journal remembers."""
        book = self._outgoing.setdefault(key, _Outgoing(key))
        self._out_books[link] = book

    def restore(self, entry: Entry, legs: Iterable[tuple[LinkKey, DeliveryTag]]) -> None:
        """Enters a delivery that the journal remembers, and where it is not settled."""
        source = self._incoming[entry.source]
        source.entries[entry.key] = entry
        if entry.outcome and entry.pairing is None:
            entry.answered_at = 0
            source.answered.append(entry)
        for key, tag in legs:
            target = self._outgoing.get(key)
            if target is not None:
                target.adrift[tag] = entry
                entry.legs.add(key)

    def write_off(self, key: DeliveryKey, source: LinkKey, legs: Iterable[LinkKey]) -> None:
        """Takes note that nothing need be remembered of a delivery.

        Args:
            key: the delivery.
            source: the link it came over.
            legs: the links on which it is not settled.
        """
        now_ns = self.now_ns()
        for leg in legs:
            self._records.settled(now_ns, key, source, leg)
        self._records.settled(now_ns, key, source)


_SETTLED_FLAG: Final = int(RecordFlag.SETTLED)
_EXACTLY_ONCE: Final = int(GuaranteeCode.EXACTLY_ONCE)


def _no_id(protocol: Protocol, payload: bytes, name: str) -> bytes | None:
    return None


def _no_change(
    protocol: Protocol, payload: bytes, name: str, key: bytes
) -> tuple[Protocol, bytes] | None:
    return None


def _no_state(state: DeliveryState) -> bytes:
    return b""


def _is_under_way(pairing: Pairing) -> bool:
    """Tells whether a delivery is with a receiver or waits for one."""
    if pairing.outgoing is not None or pairing.fan is not None:
        return True
    return pairing in feed_of(pairing).waiting


def _own_address(incoming: IncomingLink, delivery: ReceivedDelivery) -> str:
    """Gives the address of a delivery that came by the anonymous terminus; else it is empty."""
    if incoming.address is not None or not delivery.address:
        return ""
    return inside(incoming.key.vhost, delivery.address)


def describe(local: ContainerId, key: LinkKey, link: Link) -> LinkDescription:
    """Gives what the journal should know of a link."""
    return LinkDescription(
        key=key,
        is_incoming=isinstance(link, IncomingLink),
        local=local,
        remote=link.key.container,
        name=link.key.name,
        address=link.address or "",
        identity=link.key.user or "",
        terminus=encode_terms(link),
    )
