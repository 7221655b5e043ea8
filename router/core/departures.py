"""What goes out at recorded nodes, and what receivers say of it, on its way to the journal.

One half of ``ledger``. On exactly-once routes peers wait for what is written here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from router.core import bulk
from router.core.books import Books, Entry, IncomingBook, OutgoingBook, by_source, redelivers
from router.core.gate import Gate
from router.core.node import Node, feed_of
from router.core.records import GUARANTEE_CODES
from router.core.repeats import Repeats
from router.journal.keys import NO_LINK, LinkKey
from router.journal.record import RecordFlag, Resolution
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.delivery import OutgoingDelivery
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag
from router.model.outcome import RELEASED, Accepted, DeliveryState, is_outcome, may_go_on

_SETTLED_FLAG: Final = int(RecordFlag.SETTLED)
_FANNED_FLAG: Final = int(RecordFlag.FANNED)


class Departures:
    """Writes down what goes out."""

    def __init__(self, books: Books, repeats: Repeats, gate: Gate) -> None:
        self._books = books
        self._repeats = repeats
        self._gate = gate

    def receiver_updated(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        """Records what a receiver says, before the core acts upon it."""
        book = self._books.out_books.get(link)
        if book is None or not (event.settled or is_outcome(event.state)):
            return
        state = _outcome_told(link, event)
        if not isinstance(state, Accepted | None):  # settled without a word: it has been taken
            self._keep(book, event.numbers)
        if self._heard(link, book, event):
            return
        take = book.numbered.pop if event.settled else book.numbered.get
        entries = [entry for number in event.numbers if (entry := take(number, None)) is not None]
        if not entries:
            return
        self._outcome(link, book, event.settled, state, by_source(entries))
        for entry in entries:
            entry.outcome, entry.told = entry.is_answered_by(state), state
        if event.settled:
            book.drop_all(entries)
        self._repeats.outcome_told(entries)

    def _keep(self, book: OutgoingBook, numbers: Iterable[DeliveryNumber]) -> None:
        """Keeps deliveries in custody that a receiver has not accepted, for whoever is next."""
        find = book.numbered.get
        entries = [entry for number in numbers if (entry := find(number)) is not None]
        for entry in self._books.in_custody(entries):
            self._books.alone[entry.key] = entry
            self._books.records.resolved(
                self._books.now_ns(), entry.key, entry.source, NO_LINK, Resolution.SEND_AGAIN
            )

    def _heard(self, link: OutgoingLink, book: OutgoingBook, event: DeliveriesUpdated) -> bool:
        """Takes the short way of ``receiver_updated``, if there is one for what a receiver says."""
        if bulk.shortcuts is None or not isinstance(event.numbers, list):
            return False
        state = _outcome_told(link, event)
        if may_go_on(state):
            return False
        heard = bulk.shortcuts.heard(event.numbers, book.numbered, event.settled, state)
        if heard is None:
            return False
        entries, keys, is_away = heard
        if entries:
            self._outcome(link, book, event.settled, state, {entries[0].source: keys})
            if event.settled:
                book.drop_all(entries)
            if is_away:
                self._repeats.outcome_told(entries)
        return True

    def _outcome(
        self,
        link: OutgoingLink,
        book: OutgoingBook,
        settled: bool,
        state: DeliveryState | None,
        told: Mapping[LinkKey, Sequence[DeliveryKey]],
    ) -> None:
        """Puts what a receiver told on record, by the sources of the deliveries."""
        code, flags, octets = self._books.outcome_fields(state)
        if settled:
            flags |= _SETTLED_FLAG
        now_ns, record = self._books.now_ns(), self._books.records.outcome_run
        for source, keys in told.items():
            book.sequence = record(now_ns, source, book.key, keys, code, flags=flags, state=octets)
            sender = self._books.incoming.get(source)
            if sender is not None and link.carries_tags:
                sender.sequence = book.sequence
                self._books.must_be_durable(book.sequence, keys)

    def give_id(self, pairing: Pairing, outgoing: OutgoingDelivery) -> None:
        """Gives a message an id if its target finds duplicates by one, and it has none.

        The id is the delivery's key, so it is the same whenever the delivery is sent again.
        """
        dedup, key = feed_of(pairing).node.route.dedup, pairing.delivery.key
        if dedup is None or key is None or not outgoing.payload:
            return
        changed = self._books.give_id(outgoing.protocol, outgoing.payload, dedup.property, key)
        if changed is not None:
            outgoing.protocol, outgoing.payload = changed

    def sending(self, link: OutgoingLink, run: Sequence[OutgoingDelivery]) -> None:
        """Records a run that is ordered; on exactly-once routes it waits for its record."""
        if self._sending(link, run):
            return
        unsettled, in_books, alone = link.unsettled, self._books.in_books, self._books.alone
        book: OutgoingBook | None = None
        node: Node | None = None
        groups: dict[LinkKey, tuple[list[DeliveryKey], list[bytes]]] = {}
        incoming: IncomingLink | None = None
        source: IncomingBook | None = None
        known: Mapping[DeliveryKey, Entry] = {}
        for delivery in run:
            number = delivery.number
            pairing = unsettled.get(number)
            if pairing is None or pairing.delivery.key is None:
                self._sending_settled(link, delivery)
                continue
            if pairing.incoming is not incoming:
                incoming = pairing.incoming
                source = in_books.get(incoming)
                known = {} if source is None else source.entries
            entry = known.get(pairing.delivery.key) or alone.get(pairing.delivery.key)
            if pairing.fan is None:  # else others may be sent it, too
                alone.pop(pairing.delivery.key, None)
            if entry is None:
                continue
            keys, tags = groups.setdefault(entry.source, ([], []))
            if book is None:
                book = self._books.out_book(link)
                node = feed_of(pairing).node
            book.numbered[number] = entry
            if book.adrift:
                book.adrift.pop(delivery.tag, None)
            if delivery.resume:
                continue
            if entry.legs:
                entry.add_leg(book.key)
            else:
                entry.legs = book.legs
            entry.outcome = False
            keys.append(entry.key)
            tags.append(delivery.tag)
        if book is not None and node is not None and groups:
            self._sent(link, book, node, groups)

    def _sending(self, link: OutgoingLink, run: Sequence[OutgoingDelivery]) -> bool:
        """Takes the short way of ``sending``, if there is one for a run."""
        first = link.unsettled.get(run[0].number)
        book = self._books.out_books.get(link)
        if bulk.shortcuts is None or first is None or book is None or book.adrift:
            return False
        incoming = first.incoming
        source = self._books.in_books.get(incoming)
        if source is None or not isinstance(run, list):
            return False
        made = bulk.shortcuts.sending(
            run, link.unsettled, incoming, source.entries, book.numbered, book.legs
        )
        if made is not None:
            self._sent(link, book, feed_of(first).node, {source.key: made})
        return made is not None

    def _sent(
        self,
        link: OutgoingLink,
        book: OutgoingBook,
        node: Node,
        groups: dict[LinkKey, tuple[list[DeliveryKey], list[bytes]]],
    ) -> None:
        now_ns, sequence = self._books.now_ns(), 0
        guarantee = GUARANTEE_CODES[node.route.guarantee]
        flags = _FANNED_FLAG if node.is_multicast else 0
        for source, (keys, tags) in groups.items():
            if not keys:
                continue
            sequence = self._books.records.sent_run(
                now_ns, source, book.key, keys, tags, guarantee=guarantee, flags=flags
            )
        if link.carries_tags:
            self._gate.wait(link, sequence)

    def sent_settled(self, link: OutgoingLink, run: Sequence[tuple[Pairing, DeliveryTag]]) -> None:
        """Records deliveries that go out settled and come from one sender."""
        first, _ = run[0]
        source = self._books.in_books.get(first.incoming)
        key = None if source is None else source.key
        named = [(each.delivery.key, tag) for each, tag in run if each.delivery.key is not None]
        if first.fan is None:
            alone = [self._books.alone.pop(name, None) for name, _ in named]
            key = next((entry.source for entry in alone if entry is not None), key)
        if key is None or not named:
            return
        node = feed_of(first).node
        self._books.records.sent_run(
            self._books.now_ns(),
            key,
            self._books.out_book(link).key,
            [key for key, _ in named],
            [tag for _, tag in named],
            guarantee=GUARANTEE_CODES[node.route.guarantee],
            flags=_SETTLED_FLAG | (_FANNED_FLAG if node.is_multicast else 0),
        )

    def dropped(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Records that nobody takes a delivery of which nobody wants to know."""
        key = pairing.delivery.key
        if key is None:
            return
        source, entry = self._books.in_books.get(pairing.incoming), self._books.alone.pop(key, None)
        if entry is not None:
            from_ = entry.source
        elif source is not None and key not in source.entries:
            from_ = source.key
        else:
            return
        code, flags, octets = self._books.outcome_fields(outcome or RELEASED)
        now_ns, records = self._books.now_ns(), self._books.records
        records.outcome(now_ns, key, from_, NO_LINK, code, flags=flags, state=octets)
        records.settled(now_ns, key, from_)

    def fan_ended(self, trunk: Pairing) -> None:
        """Forgets a multicast delivery whose sender has settled it and that all have answered."""
        key = trunk.delivery.key
        if key is not None:
            self._books.alone.pop(key, None)

    def _sending_settled(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        """Records a resumed delivery that is settled with its receiver by this (§3.4.6)."""
        book = self._books.out_books.get(link)
        entry = None if book is None else book.adrift.pop(delivery.tag, None)
        if book is None or entry is None:
            return
        self._books.settled_with_receiver(book, [entry])
        self._gate.wait(link, book.sequence)

    def kept(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Records an outcome that a sender which is away will find in our map (§2.6.13)."""
        book, key = self._books.in_books.get(pairing.incoming), pairing.delivery.key
        entry = None if book is None or key is None else book.entries.get(key)
        if entry is not None and entry.waits:
            self._decide(entry, state)

    def _decide(self, entry: Entry, state: DeliveryState | None) -> None:
        """Records what a sender is told, unless a restart would tell it the same anyway."""
        if not entry.outcome or (entry.told is not state and entry.told != state):
            self._books.decided(entry, NO_LINK, state, self._books.now_ns())

    def telling(
        self,
        link: Link,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Records what is about to be told; outcomes wait until they are durable.

        Repeats of what is settled with its sender are added to ``numbers``.
        """
        if not settled and not is_outcome(state):
            return
        if isinstance(link, IncomingLink):
            book = self._books.in_books.get(link)
            if book is not None:
                self._telling_sender(link, book, numbers, state, settled)
            return
        outgoing = self._books.out_books.get(link)
        if outgoing is None or not settled:
            return
        self._telling_receiver(outgoing, numbers)
        if link.carries_tags:
            self._gate.wait(link, outgoing.sequence)

    def _telling_receiver(self, book: OutgoingBook, numbers: list[DeliveryNumber]) -> None:
        if bulk.shortcuts is not None:
            short = bulk.shortcuts.settle_with_receiver(numbers, book.numbered, book.legs)
            if short is not None:
                source, keys = short
                self._books.records.settled_run(self._books.now_ns(), source, book.key, keys)
                return
        take = book.numbered.pop
        entries = [entry for number in numbers if (entry := take(number, None)) is not None]
        self._books.settled_with_receiver(book, entries)

    def _telling_sender(
        self,
        link: IncomingLink,
        book: IncomingBook,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        numbered = book.numbered
        if bulk.shortcuts is not None and not settled:
            if bulk.shortcuts.is_told(numbers, numbered, state):
                self._gate.wait(link, book.sequence)
                return
        found: list[Entry] = []
        for number in numbers:
            entry = numbered.get(number)
            if entry is None:
                continue
            self._decide(entry, state)
            found.append(entry)
        if settled:
            for number in numbers:
                numbered.pop(number, None)
            self._told_settled(link, book, found, numbers)
        self._gate.wait(link, book.sequence)

    def _told_settled(
        self,
        link: IncomingLink,
        book: IncomingBook,
        entries: Sequence[Entry],
        numbers: list[DeliveryNumber],
    ) -> None:
        """Records that deliveries are settled with their sender, which may not hear it."""
        keeps = redelivers(link)
        ended: list[Entry] = []
        for entry in entries:
            entry.pairing = None
            if entry.followers is not None:
                numbers += entry.followers
                entry.followers = None
            if keeps and entry.waits:
                if entry.answered_at < 0:
                    book.answered.append(entry)
                entry.answered_at = book.count
            else:
                ended.append(entry)
        self._books.settled_with_sender(book, ended)


def _outcome_told(link: OutgoingLink, event: DeliveriesUpdated) -> DeliveryState | None:
    """Returns the outcome that a receiver means (§3.5.3, default-outcome)."""
    if is_outcome(event.state):
        return event.state
    return None if link.source is None else link.source.default_outcome
