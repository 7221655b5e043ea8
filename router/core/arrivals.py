"""Records what recorded nodes receive: deliveries, their parts, and their senders' dispositions.

The incoming half of ``ledger``.
"""

from collections.abc import Sequence
from typing import Final

from router.core import bulk
from router.core.archive import Archive
from router.core.link_ledgers import Entry, IncomingLedger, LinkLedgers, redelivers
from router.core.node import Feed, Node, feed_of, in_custody
from router.core.reach import is_sibling
from router.core.records import GUARANTEE_CODES
from router.core.repeats import Repeats
from router.core.stored import is_store
from router.journal.keys import LinkKey, hop_identity
from router.journal.record import NO_KEY, NO_TTL, PROTOCOL_CODES, RecordFlag
from router.links.link import IncomingLink
from router.links.pairing import Pairing
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesUpdated, DeliveryContinued
from router.model.identity import DeliveryKey, DeliveryNumber
from router.model.outcome import is_outcome
from router.model.trace import Sampling
from router.routes.vhost import inside

_SETTLED_FLAG: Final = int(RecordFlag.SETTLED)


def is_archived(feed: Feed) -> bool:
    """Returns whether what comes is kept.

    What the store sends was, when its sender sent it; and what another worker sends, at that one.
    """
    connection = feed.incoming.connection
    return feed.node.route.archive and not (is_store(connection) or is_sibling(connection))


class Arrivals:
    """Writes the records of incoming deliveries."""

    def __init__(self, ledgers: LinkLedgers, repeats: Repeats, archive: Archive) -> None:
        self._ledgers = ledgers
        self._repeats = repeats
        self._archive = archive

    def screen(
        self, feed: Feed, deliveries: Sequence[ReceivedDelivery]
    ) -> Sequence[ReceivedDelivery]:
        """Assigns each delivery its key; answers and drops repeats.

        Args:
            feed: of a recorded node.
            deliveries: just received.

        Returns:
            The deliveries that the core should handle.
        """
        if self._ledgers.is_stuck and not feed.node.is_exact:
            self._ledgers.missed(len(deliveries))
            return deliveries
        unnamed = fresh = deliveries
        if feed.node.is_exact and redelivers(feed.incoming):
            fresh, unnamed = self._repeats.screen(feed, deliveries)
        self._name(feed.incoming, unnamed)
        if feed.node.route.tracing is not None:
            self._join_traces(feed, fresh, is_always=feed.node.route.tracing is Sampling.ALWAYS)
        return fresh

    def _join_traces(
        self, feed: Feed, deliveries: Sequence[ReceivedDelivery], *, is_always: bool
    ) -> None:
        """Joins the traces that are recorded; messages leave with the context of this hop."""
        source = self._ledgers.incoming_ledger(feed.incoming).key
        now_ns, guarantee = self._ledgers.now_ns(), GUARANTEE_CODES[feed.node.route.guarantee]
        # what the store is given back it sends again, and that is another hop
        since_ns = now_ns if is_store(feed.incoming.connection) else 0
        for delivery in deliveries:
            key, payload, protocol = delivery.key, delivery.payload, delivery.protocol
            if key is None or delivery.resume or delivery.message_format:
                continue
            identity = hop_identity(source, key, since_ns)
            joined = self._ledgers.join_trace(
                protocol, payload, identity, is_always, not delivery.more
            )
            if joined is None:
                continue
            delivery.protocol, delivery.payload = joined.protocol, joined.payload
            delivery.splice = joined.splice
            self._ledgers.records.traced(
                now_ns,
                key,
                source,
                joined.hop,
                guarantee=guarantee,
                protocol=PROTOCOL_CODES[protocol],
                flags=_SETTLED_FLAG if delivery.settled else 0,
                address=_own_address(feed.incoming, delivery),
                message_octets=len(payload),
            )

    def _name(self, incoming: IncomingLink, deliveries: Sequence[ReceivedDelivery]) -> None:
        count = len(deliveries)
        keys, first = self._ledgers.incoming_ledger(incoming).names, self._ledgers.arrivals(count)
        if bulk.shortcuts is not None and isinstance(deliveries, list):
            if bulk.shortcuts.name(deliveries, keys.prefix, first):
                return
        names = keys.arrived(first, count)
        for delivery, name in zip(deliveries, names, strict=True):
            if delivery.resume:
                self._resumed(incoming, delivery)
            elif delivery.key is None:
                delivery.key = name

    def received(self, feed: Feed, pairings: Sequence[Pairing]) -> None:
        """Records received deliveries that have their keys from ``screen``, and pairings."""
        incoming, node = feed.incoming, feed.node
        if self._ledgers.is_stuck and not node.is_exact:
            if is_archived(feed):
                self._archive.miss(len(pairings))
            return
        ledger = self._ledgers.incoming_ledger(incoming)
        if pairings:
            self._record(feed, ledger, pairings)
        self._repeats.entered(incoming, ledger)

    def _record(self, feed: Feed, ledger: IncomingLedger, pairings: Sequence[Pairing]) -> None:
        incoming, node = feed.incoming, feed.node
        entries, numbered, source, waits = (
            ledger.entries,
            ledger.numbered,
            ledger.key,
            node.is_exact,
        )
        protocol = pairings[0].delivery.protocol
        usual = None
        if bulk.shortcuts is not None and isinstance(pairings, list):
            has_address = incoming.address is not None and incoming.names is None
            usual = bulk.shortcuts.enter(
                pairings, entries, numbered, source, waits, protocol, has_address
            )
        if usual is None:
            self._enter(feed, ledger, pairings)
        else:
            self._received_run(source, node, protocol, *usual)
        if self._archive.is_on and is_archived(feed):
            self._archive.received(node, source, pairings)
        ledger.count += len(pairings)

    def _enter(self, feed: Feed, ledger: IncomingLedger, pairings: Sequence[Pairing]) -> None:
        """Enters deliveries into the ledger of their link, and into the journal."""
        incoming, node = feed.incoming, feed.node
        entries, numbered, source, waits = (
            ledger.entries,
            ledger.numbered,
            ledger.key,
            node.is_exact,
        )
        protocol = pairings[0].delivery.protocol
        run: list[ReceivedDelivery] = []
        for pairing in pairings:
            delivery = pairing.delivery
            key = delivery.key
            if key is None:
                continue
            entry = Entry(key, source, delivery.tag, pairing, waits)
            if not pairing.is_settled:
                entries[key] = numbered[pairing.number] = entry
            elif in_custody(pairing):
                self._ledgers.alone[key] = entry
                if pairing.parts is not None:
                    numbered[pairing.number] = entry
            if (
                pairing.parts is None
                and not pairing.is_settled
                and delivery.ttl_milliseconds is None
                and not (delivery.delivery_count or delivery.message_format)
                and delivery.protocol is protocol
                and not _own_address(incoming, delivery)
            ):
                run.append(delivery)
                continue
            self._received_usual(source, node, run)
            self._received_unusual(incoming, source, pairing, node)
            run = []
        self._received_usual(source, node, run)

    def _received_usual(self, source: LinkKey, node: Node, run: Sequence[ReceivedDelivery]) -> None:
        if run:
            keys = [delivery.key or NO_KEY for delivery in run]
            tags = [delivery.tag for delivery in run]
            payloads = [delivery.payload for delivery in run]
            self._received_run(source, node, run[0].protocol, keys, tags, payloads)

    def _received_run(  # noqa: PLR0917  what the records say
        self,
        source: LinkKey,
        node: Node,
        protocol: Protocol,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> None:
        self._ledgers.received_sequence = self._ledgers.records.received_run(
            self._ledgers.now_ns(),
            source,
            keys,
            tags,
            payloads,
            guarantee=GUARANTEE_CODES[node.route.guarantee],
            protocol=PROTOCOL_CODES[protocol],
            is_held=node.is_exact,
        )

    def _received_unusual(
        self, incoming: IncomingLink, source: LinkKey, pairing: Pairing, node: Node
    ) -> None:
        delivery, parts, ttl = pairing.delivery, pairing.parts, pairing.delivery.ttl_milliseconds
        assert delivery.key is not None
        is_held = node.is_exact
        payload = delivery.payload if parts is None else b""
        flags = _SETTLED_FLAG if pairing.is_settled else 0
        if is_held and parts is not None:
            flags |= RecordFlag.MORE
        if delivery.splice is not None:
            flags |= RecordFlag.SPLICED
        record, now_ns = self._ledgers.records, self._ledgers.now_ns()
        self._ledgers.received_sequence = record.received(
            now_ns,
            delivery.key,
            source,
            delivery.tag,
            guarantee=GUARANTEE_CODES[node.route.guarantee],
            protocol=PROTOCOL_CODES[delivery.protocol],
            flags=flags,
            address=_own_address(incoming, delivery),
            payload=payload if is_held else None,
            message_octets=len(payload),
            message_format=delivery.message_format,
            delivery_count=delivery.delivery_count,
            ttl_milliseconds=NO_TTL if ttl is None else ttl,
        )
        if is_held and parts is not None:
            self._ledgers.received_sequence = record.part(
                now_ns, delivery.key, source, parts.joined(), more=True, offset=0
            )

    def continued(self, incoming: IncomingLink, event: DeliveryContinued) -> None:
        """Records a further part, if it is one of the delivery that is coming on its link.

        A sender that resumes, or redelivers, may send once more what is all here: that is thrown
        away (``Streams``).
        """
        ledger, pairing = self._ledgers.of_incoming.get(incoming), incoming.partial
        payload = event.payload[incoming.skip_octets :]  # what comes before is recorded
        more = event.more or len(event.payload) < incoming.skip_octets
        if ledger is not None and self._archive.is_on and pairing is not None:
            self._archive.continued(ledger.key, pairing, payload, more=more)
        entry = None if ledger is None else ledger.numbered.get(event.number)
        parts = None if pairing is None else pairing.parts
        is_part = entry is not None and entry.waits and entry.pairing is pairing
        if entry is not None and is_part and parts is not None and not parts.has_verdict:
            self._ledgers.received_sequence = self._ledgers.records.part(
                self._ledgers.now_ns(),
                entry.key,
                entry.source,
                payload,
                more=more,
                offset=parts.octets,
            )
        if ledger is not None and entry is not None and is_part and event.settled:
            self._settled_unfinished(ledger, entry)
        if ledger is not None and entry is not None and not event.more:
            if entry.key not in ledger.entries:
                del ledger.numbered[event.number]

    def _settled_unfinished(self, ledger: IncomingLedger, entry: Entry) -> None:
        """Records that one of a delivery's transfers says settled (§2.7.5): it came settled."""
        pairing = entry.pairing
        if pairing is None or ledger.entries.pop(entry.key, None) is None:
            return
        if not entry.sent_on or pairing.fan is not None:
            self._ledgers.alone[entry.key] = entry
        self._ledgers.received_sequence = self._ledgers.records.received(
            self._ledgers.now_ns(),
            entry.key,
            entry.source,
            entry.tag,
            guarantee=GUARANTEE_CODES[feed_of(pairing).node.route.guarantee],
            protocol=PROTOCOL_CODES[pairing.delivery.protocol],
            flags=_SETTLED_FLAG | RecordFlag.RESUMED,
        )

    def gone_on(self, pairing: Pairing, payload: bytes, *, more: bool) -> None:
        """Records what is new in the transfer by which a delivery in parts is resumed."""
        ledger, key = self._ledgers.of_incoming.get(pairing.incoming), pairing.delivery.key
        feed = feed_of(pairing)
        if ledger is not None and self._archive.is_on and is_archived(feed):
            self._archive.gone_on(feed.node, ledger.key, pairing, payload, more=more)
        entry = None if ledger is None or key is None else ledger.entries.get(key)
        if entry is not None and entry.waits and pairing.parts is not None:
            self._ledgers.received_sequence = self._ledgers.records.part(
                self._ledgers.now_ns(),
                entry.key,
                entry.source,
                payload,
                more=more,
                offset=pairing.parts.octets,
            )

    def aborted(self, incoming: IncomingLink, number: DeliveryNumber) -> None:
        """Records that a sender has aborted a delivery (§2.7.5)."""
        ledger = self._ledgers.of_incoming.get(incoming)
        entry = None if ledger is None else ledger.numbered.pop(number, None)
        if ledger is not None and entry is not None:
            if self._ledgers.alone.pop(entry.key, None) is not None:
                self._ledgers.forgotten(ledger, [entry.key])
            self._ledgers.settled_with_sender(ledger, [entry])

    def _resumed(self, incoming: IncomingLink, delivery: ReceivedDelivery) -> None:
        """Records the new number of a resumed delivery (§2.6.13)."""
        ledger = self._ledgers.of_incoming.get(incoming)
        pairing = incoming.adrift.get(delivery.tag)
        if ledger is None or pairing is None or pairing.delivery.key is None:
            return
        entry = ledger.entries.get(pairing.delivery.key)
        if entry is None:
            return
        ledger.numbered[delivery.number] = entry
        if delivery.settled or is_outcome(delivery.state):
            self._ledgers.settled_with_sender(ledger, [entry])

    def sender_updated(self, incoming: IncomingLink, event: DeliveriesUpdated) -> None:
        """Records what a sender has settled, before the core acts upon it."""
        ledger = self._ledgers.of_incoming.get(incoming)
        if ledger is None or not event.settled:
            return
        if bulk.shortcuts is not None and isinstance(event.numbers, list):
            keys = bulk.shortcuts.settle_with_sender(event.numbers, ledger.numbered, ledger.entries)
            self._ledgers.forgotten(ledger, keys)
            return
        take = ledger.numbered.pop
        entries = [entry for number in event.numbers if (entry := take(number, None)) is not None]
        self._ledgers.settled_with_sender(ledger, entries)


def _own_address(incoming: IncomingLink, delivery: ReceivedDelivery) -> str:
    """Returns a delivery's address if it has one beside its link's; otherwise ``""``."""
    if not delivery.address:
        return ""
    if incoming.names is not None:
        return delivery.address
    if incoming.address is not None:
        return ""
    return inside(incoming.key.vhost, delivery.address)
