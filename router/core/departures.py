"""Records what recorded nodes send: deliveries, their receivers' outcomes, and settlement.

The outgoing half of ``ledger``. On exactly-once routes nothing is sent to peers before its record
is durable.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from router.core import bulk
from router.core.gate import Gate
from router.core.link_ledgers import (
    Entry,
    IncomingLedger,
    LinkLedgers,
    OutgoingLedger,
    by_source,
    redelivers,
)
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
_RESUMED_FLAG: Final = int(RecordFlag.RESUMED)

_Groups = dict[LinkKey, tuple[list[DeliveryKey], list[bytes]]]
"""Keys and tags of deliveries, by the links that they came from."""


class Departures:
    """Writes the records of outgoing deliveries."""

    def __init__(self, ledgers: LinkLedgers, repeats: Repeats, gate: Gate) -> None:
        self._ledgers = ledgers
        self._repeats = repeats
        self._gate = gate

    def receiver_updated(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        """Records a receiver's disposition before the core handles it."""
        ledger = self._ledgers.of_outgoing.get(link)
        if ledger is None or not (event.settled or is_outcome(event.state)):
            return
        state = _outcome_of(link, event)
        if not isinstance(state, Accepted | None):  # settled without an outcome counts as accepted
            self._keep(ledger, event.numbers)
        if self._record_run(link, ledger, event):
            return
        take = ledger.numbered.pop if event.settled else ledger.numbered.get
        entries = [entry for number in event.numbers if (entry := take(number, None)) is not None]
        if not entries:
            return
        self._outcome(link, ledger, event.settled, state, by_source(entries))
        for entry in entries:
            entry.outcome, entry.recorded = entry.is_answered_by(state), state
        if event.settled:
            ledger.drop_all(entries)
        self._repeats.outcomes_recorded(entries)

    def _keep(self, ledger: OutgoingLedger, numbers: Iterable[DeliveryNumber]) -> None:
        """Keeps deliveries that a receiver has not accepted in custody for the next receiver."""
        find = ledger.numbered.get
        entries = [entry for number in numbers if (entry := find(number)) is not None]
        for entry in self._ledgers.in_custody(entries):
            self._ledgers.alone[entry.key] = entry
            self._ledgers.records.resolved(
                self._ledgers.now_ns(), entry.key, entry.source, NO_LINK, Resolution.SEND_AGAIN
            )

    def _record_run(
        self, link: OutgoingLink, ledger: OutgoingLedger, event: DeliveriesUpdated
    ) -> bool:
        """Records a receiver's update with the compiled shortcut; False: nothing was recorded."""
        if bulk.shortcuts is None or not isinstance(event.numbers, list):
            return False
        state = _outcome_of(link, event)
        if may_go_on(state):
            return False
        found = bulk.shortcuts.record_outcome(event.numbers, ledger.numbered, event.settled, state)
        if found is None:
            return False
        entries, keys, is_away = found
        if entries:
            self._outcome(link, ledger, event.settled, state, {entries[0].source: keys})
            if event.settled:
                ledger.drop_all(entries)
            if is_away:
                self._repeats.outcomes_recorded(entries)
        return True

    def _outcome(
        self,
        link: OutgoingLink,
        ledger: OutgoingLedger,
        settled: bool,
        state: DeliveryState | None,
        by_source: Mapping[LinkKey, Sequence[DeliveryKey]],
    ) -> None:
        """Records a receiver's outcome, by the sources of the deliveries."""
        code, flags, octets = self._ledgers.outcome_fields(state)
        if settled:
            flags |= _SETTLED_FLAG
        now_ns, record = self._ledgers.now_ns(), self._ledgers.records.outcome_run
        for source, keys in by_source.items():
            ledger.sequence = self._ledgers.ended_sequence = record(
                now_ns, source, ledger.key, keys, code, flags=flags, state=octets
            )
            sender = self._ledgers.incoming.get(source)
            if sender is not None and link.carries_tags:
                sender.sequence = ledger.sequence
                self._ledgers.must_be_durable(ledger.sequence, source, keys)

    def give_id(self, pairing: Pairing, outgoing: OutgoingDelivery) -> None:
        """Adds an id to a message that has none, if its target detects duplicates by one.

        The id is the delivery's key, so it is the same whenever the delivery is sent again.
        """
        name, key = feed_of(pairing).node.route.target_id, pairing.delivery.key
        if name is None or key is None or not outgoing.payload:
            return
        changed = self._ledgers.give_id(outgoing.protocol, outgoing.payload, name, key)
        if changed is not None:
            outgoing.protocol, outgoing.payload = changed

    def sending(self, link: OutgoingLink, run: Sequence[OutgoingDelivery]) -> None:
        """Records a run to be sent; on exactly-once routes it is sent once that is durable."""
        if self._sending(link, run):
            return
        unsettled, of_incoming, alone = (
            link.unsettled,
            self._ledgers.of_incoming,
            self._ledgers.alone,
        )
        ledger: OutgoingLedger | None = None
        node: Node | None = None
        groups: _Groups = {}
        again: _Groups = {}
        incoming: IncomingLink | None = None
        source: IncomingLedger | None = None
        known: Mapping[DeliveryKey, Entry] = {}
        for delivery in run:
            number = delivery.number
            pairing = unsettled.get(number)
            if pairing is None or pairing.delivery.key is None:
                self._sending_settled(link, delivery)
                continue
            if pairing.incoming is not incoming:
                incoming = pairing.incoming
                source = of_incoming.get(incoming)
                known = {} if source is None else source.entries
            entry = known.get(pairing.delivery.key) or alone.get(pairing.delivery.key)
            if pairing.fan is None:  # otherwise other receivers may be sent it, too
                alone.pop(pairing.delivery.key, None)
            if entry is None:
                continue
            if ledger is None:
                ledger = self._ledgers.outgoing_ledger(link)
                node = feed_of(pairing).node
            ledger.numbered[number] = entry
            was_here = bool(ledger.adrift) and ledger.adrift.pop(delivery.tag, None) is entry
            if delivery.resume:
                if is_outcome(delivery.state):  # which the receiver forgets when it reads this
                    self._gate.wait(link, ledger.sequence)
                continue
            if entry.sent_on:
                entry.add_link(ledger.key)
            else:
                entry.sent_on = ledger.sent_on
            entry.outcome = False
            is_again = was_here and not _may_have_arrived(link, number)
            keys, tags = (again if is_again else groups).setdefault(entry.source, ([], []))
            keys.append(entry.key)
            tags.append(delivery.tag)
        if ledger is not None and node is not None:
            self._sent(link, ledger, node, again, _RESUMED_FLAG)
            self._sent(link, ledger, node, groups)

    def _sending(self, link: OutgoingLink, run: Sequence[OutgoingDelivery]) -> bool:
        """Records a run with the compiled shortcut of ``sending``; False: nothing was recorded."""
        first = link.unsettled.get(run[0].number)
        ledger = self._ledgers.of_outgoing.get(link)
        if bulk.shortcuts is None or first is None or ledger is None or ledger.adrift:
            return False
        incoming = first.incoming
        source = self._ledgers.of_incoming.get(incoming)
        if source is None or not isinstance(run, list):
            return False
        made = bulk.shortcuts.sending(
            run, link.unsettled, incoming, source.entries, ledger.numbered, ledger.sent_on
        )
        if made is not None:
            self._sent(link, ledger, feed_of(first).node, {source.key: made})
        return made is not None

    def _sent(
        self,
        link: OutgoingLink,
        ledger: OutgoingLedger,
        node: Node,
        groups: _Groups,
        flags: int = 0,
    ) -> None:
        now_ns, sequence = self._ledgers.now_ns(), 0
        guarantee = GUARANTEE_CODES[node.route.guarantee]
        if node.is_multicast:
            flags |= _FANNED_FLAG
        for source, (keys, tags) in groups.items():
            sequence = self._ledgers.records.sent_run(
                now_ns, source, ledger.key, keys, tags, guarantee=guarantee, flags=flags
            )
        if link.carries_tags and sequence:
            self._gate.wait(link, sequence)

    def sent_settled(self, link: OutgoingLink, run: Sequence[tuple[Pairing, DeliveryTag]]) -> None:
        """Records deliveries of one sender that are sent settled."""
        first, _ = run[0]
        source = self._ledgers.of_incoming.get(first.incoming)
        key = None if source is None else source.key
        named = [(each.delivery.key, tag) for each, tag in run if each.delivery.key is not None]
        if first.fan is None:
            alone = [self._ledgers.alone.pop(name, None) for name, _ in named]
            key = next((entry.source for entry in alone if entry is not None), key)
        if key is None or not named:
            return
        node = feed_of(first).node
        self._ledgers.records.sent_run(
            self._ledgers.now_ns(),
            key,
            self._ledgers.outgoing_ledger(link).key,
            [key for key, _ in named],
            [tag for _, tag in named],
            guarantee=GUARANTEE_CODES[node.route.guarantee],
            flags=_SETTLED_FLAG | (_FANNED_FLAG if node.is_multicast else 0),
        )

    def dropped(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Records that a settled delivery is dropped."""
        key = pairing.delivery.key
        if key is None:
            return
        source, entry = (
            self._ledgers.of_incoming.get(pairing.incoming),
            self._ledgers.alone.pop(key, None),
        )
        if entry is not None:
            from_ = entry.source
        elif source is not None and key not in source.entries:
            from_ = source.key
        else:
            return
        code, flags, octets = self._ledgers.outcome_fields(outcome or RELEASED)
        now_ns, records = self._ledgers.now_ns(), self._ledgers.records
        records.outcome(now_ns, key, from_, NO_LINK, code, flags=flags, state=octets)
        records.settled(now_ns, key, from_)

    def fan_ended(self, trunk: Pairing) -> None:
        """Forgets a multicast delivery that its sender settled and all receivers answered."""
        key = trunk.delivery.key
        if key is not None:
            self._ledgers.alone.pop(key, None)

    def _sending_settled(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        """Records that a resumed delivery is settled with its receiver by being sent (§3.4.6)."""
        ledger = self._ledgers.of_outgoing.get(link)
        entry = None if ledger is None else ledger.adrift.pop(delivery.tag, None)
        if ledger is None or entry is None:
            return
        self._ledgers.settled_with_receiver(ledger, [entry])
        self._gate.wait(link, ledger.sequence)

    def kept(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Records an outcome that a disconnected sender will find in our map (§2.6.13)."""
        ledger, key = self._ledgers.of_incoming.get(pairing.incoming), pairing.delivery.key
        entry = None if ledger is None or key is None else ledger.entries.get(key)
        if entry is not None and entry.waits:
            self._decide(entry, state)

    def _decide(self, entry: Entry, state: DeliveryState | None) -> None:
        """Records the outcome for a sender, unless a restart would send the same anyway."""
        if not entry.outcome or (entry.recorded is not state and entry.recorded != state):
            self._ledgers.decided(entry, NO_LINK, state, self._ledgers.now_ns())

    def updating(
        self,
        link: Link,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Records updates about to be sent; outcomes are sent once they are durable.

        If deliveries are settled with their sender, the numbers of their repeats are added to
        ``numbers``.
        """
        if not settled and not is_outcome(state):
            return
        if isinstance(link, IncomingLink):
            ledger = self._ledgers.of_incoming.get(link)
            if ledger is not None:
                self._updating_sender(link, ledger, numbers, state, settled)
            return
        outgoing = self._ledgers.of_outgoing.get(link)
        if outgoing is None or not settled:
            return
        self._updating_receiver(outgoing, numbers)
        is_early, outgoing.is_early = outgoing.is_early, False
        if link.carries_tags:
            self._gate.wait(link, self._ledgers.ended_sequence if is_early else outgoing.sequence)

    def _updating_receiver(self, ledger: OutgoingLedger, numbers: list[DeliveryNumber]) -> None:
        if bulk.shortcuts is not None:
            short = bulk.shortcuts.settle_with_receiver(numbers, ledger.numbered, ledger.sent_on)
            if short is not None:
                source, keys = short
                self._ledgers.ended_sequence = self._ledgers.records.settled_run(
                    self._ledgers.now_ns(), source, ledger.key, keys
                )
                return
        take = ledger.numbered.pop
        entries = [entry for number in numbers if (entry := take(number, None)) is not None]
        self._ledgers.settled_with_receiver(ledger, entries)

    def _updating_sender(
        self,
        link: IncomingLink,
        ledger: IncomingLedger,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        numbered = ledger.numbered
        if bulk.shortcuts is not None and not settled:
            if bulk.shortcuts.is_recorded(numbers, numbered, state):
                self._gate.wait(link, ledger.sequence)
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
            self._settling_with_sender(link, ledger, found, numbers)
        self._gate.wait(link, ledger.sequence)

    def _settling_with_sender(
        self,
        link: IncomingLink,
        ledger: IncomingLedger,
        entries: Sequence[Entry],
        numbers: list[DeliveryNumber],
    ) -> None:
        """Records that deliveries are settled with their sender, which may miss the settlement."""
        keeps = redelivers(link)
        ended: list[Entry] = []
        for entry in entries:
            entry.pairing = None
            if entry.followers is not None:
                numbers += entry.followers
                entry.followers = None
            if keeps and entry.waits:
                if entry.answered_at < 0:
                    ledger.answered.append(entry)
                entry.answered_at = ledger.count
            else:
                ended.append(entry)
        self._ledgers.settled_with_sender(ledger, ended)


def _may_have_arrived(link: OutgoingLink, number: DeliveryNumber) -> bool:
    """Returns whether a delivery is sent once more because of a map that may be old."""
    return link.unconfirmed is not None and number in link.unconfirmed.again


def _outcome_of(link: OutgoingLink, event: DeliveriesUpdated) -> DeliveryState | None:
    """Returns a receiver's outcome, or the default if it states none (§3.5.3)."""
    if is_outcome(event.state):
        return event.state
    return None if link.source is None else link.source.default_outcome
