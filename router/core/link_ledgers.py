"""The ledger's memory of each link: its records, and the deliveries that are not forgotten.

A link has one such memory, whatever connection it is attached on. The memory outlives the link: a
link that is resumed, or attached again under its name, finds it by the link's key in the journal.

    incoming   entries of received deliveries, by key, until they cannot be asked for any more
               numbered, by the engine's number: those of the present attachment
               answered: their senders may have read the outcome, or may send them again
               A link to the anonymous terminus may have such a memory at every worker
               (``branches``), under one key. The first worker alone says when it has ended: else
               one would say so of a link on which another still records deliveries
    outgoing   numbered: deliveries sent on the present attachment and not settled there
               adrift, by tag: the same of earlier attachments
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import attrs

from router.core.node import Node
from router.core.records import (
    EncodeState,
    GiveId,
    Identify,
    JoinTrace,
    Records,
    no_change,
    no_id,
    no_state,
    no_trace,
    outcome_fields,
)
from router.core.terms import encode_terms
from router.core.turn import Turn
from router.journal.keys import NO_LINK, DeliveryKeys, LinkKey, hop_identity, link_key
from router.journal.record import LinkDescription, Resolution
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.delivery import ReceivedDelivery
from router.model.identity import ContainerId, DeliveryKey, DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import DeliveryState, may_go_on
from router.model.trace import Splice

_NANOSECONDS: Final = 1_000_000_000

LinkKeys = tuple[LinkKey, ...]


@attrs.define(eq=False)
class Entry:
    """The ledger's record of a delivery that is not forgotten yet.

    Attributes:
        key: its delivery key.
        source: the incoming link.
        tag: on the incoming link.
        pairing: its pairing in the core, while it is under way.
        waits: its route promises exactly-once, so orders wait for its records.
        outcome: ``recorded`` is an outcome that the sender would get after a restart.
        recorded: the outcome last put on record.
        sent_on: outgoing links on which it is not settled.
        answered_at: the number of deliveries received on its link when its sender got the outcome;
            -1: the sender has none yet; less: it may have lost it, see ``IncomingLedger.unread``.
        followers: repeats on the same attachment, which get its outcome.
    """

    key: DeliveryKey
    source: LinkKey
    tag: DeliveryTag
    pairing: Pairing | None = None
    waits: bool = True
    outcome: bool = False
    recorded: DeliveryState | None = None
    sent_on: LinkKeys = ()
    answered_at: int = -1
    followers: list[DeliveryNumber] | None = None

    def is_answered_by(self, state: DeliveryState | None) -> bool:
        """Returns whether one receiver's state is the outcome that a restart would send the sender.

        It is not if the delivery may go to another receiver, or if outcomes are merged, until the
        merged one is recorded. Without exactly-once no delivery survives a restart.
        """
        if not self.waits:
            return True
        is_fanned = self.pairing is not None and self.pairing.fan is not None
        return not (is_fanned or may_go_on(state))

    def add_link(self, key: LinkKey) -> None:
        """Records that it is sent on a link."""
        if key not in self.sent_on:
            self.sent_on = (*self.sent_on, key)

    def drop_link(self, key: LinkKey) -> None:
        """Records that it is settled on a link, or taken back from it."""
        self.sent_on = tuple([each for each in self.sent_on if each != key])


@attrs.define(eq=False)
class IncomingLedger:
    """The ledger of an incoming link.

    Attributes:
        key: of the link.
        names: assigns keys to its deliveries.
        entries: the deliveries that are not forgotten.
        numbered: entries by the engine's number, of the present attachment.
        answered: entries with an outcome that must still be recognized, oldest first.
        unread: those whose senders may not have read it before they were lost (``repeats``): the
            time that is waited, the mark in ``answered_at``, and the entry, oldest first.
        attachment: the present one, or the last on which something came.
        attachments: how many there were.
        sequence: sequence number of the last recorded outcome that an order waits for.
        count: deliveries received.
    """

    key: LinkKey
    names: DeliveryKeys
    entries: dict[DeliveryKey, Entry] = attrs.Factory(dict)
    numbered: dict[DeliveryNumber, Entry] = attrs.Factory(dict)
    answered: deque[Entry] = attrs.Factory(deque)
    unread: deque[tuple[float, int, Entry]] = attrs.Factory(deque)
    attachment: LinkId | None = None
    attachments: int = 0
    sequence: int = 0
    count: int = 0


@attrs.define(eq=False)
class OutgoingLedger:
    """The ledger of an outgoing link.

    Attributes:
        key: of the link.
        sent_on: ``Entry.sent_on`` of deliveries that are on this link alone.
        numbered: its unsettled entries by our number, of the present attachment.
        adrift: the same by tag, of earlier attachments.
        sequence: sequence number of the last recorded outcome.
        is_early: what its receiver has not answered is about to be settled there.
    """

    key: LinkKey
    sent_on: LinkKeys = attrs.field(init=False)
    numbered: dict[DeliveryNumber, Entry] = attrs.Factory(dict)
    adrift: dict[DeliveryTag, Entry] = attrs.Factory(dict)
    sequence: int = 0
    is_early: bool = False

    def __attrs_post_init__(self) -> None:
        self.sent_on = (self.key,)

    def drop_all(self, entries: Iterable[Entry]) -> None:
        """Deliveries leave the link."""
        sent_on = self.sent_on
        for entry in entries:
            if entry.sent_on is sent_on:
                entry.sent_on = ()
            else:
                entry.drop_link(self.key)

    def drop(self, entry: Entry) -> None:
        """A delivery leaves the link."""
        self.drop_all((entry,))


class LinkLedgers:
    """What the ledger remembers, of all links of a worker.

    Attributes:
        is_on: there is a journal.
        records: of the journal.
        identify: finds ids in payloads.
        give_id: puts ids into payloads.
        join_trace: joins the traces of messages.
        incoming: by the link's key in the journal; ``outgoing`` likewise.
        leads: of the links to the anonymous terminus, which have homes at all workers, this one
            puts beginning and end on record; or another does, False. None: each has one home.
        is_stuck: the journal cannot write. What need not be recorded is not, meanwhile.
        unrecorded: deliveries that came meanwhile and are on no record.
        of_incoming: by link, of those that are not gone; ``of_outgoing`` likewise.
        ended_sequence: number of the last record by which a delivery is done at a receiver, or
            leaves it.
        received_sequence: number of the last record of a delivery, or a part, that was received.
        alone: deliveries that are to be sent, for the first time or again, and that no sender
            knows any more.
    """

    def __init__(self, turn: Turn, local: ContainerId) -> None:
        """Begins without a journal.

        Args:
            turn: tells the time.
            local: our container-id.
        """
        self.is_on = False
        self.records: Records
        self.identify: Identify = no_id
        self.give_id: GiveId = no_change
        self.incoming: dict[LinkKey, IncomingLedger] = {}
        self.outgoing: dict[LinkKey, OutgoingLedger] = {}
        self.of_incoming: dict[IncomingLink, IncomingLedger] = {}
        self.of_outgoing: dict[OutgoingLink, OutgoingLedger] = {}
        self.alone: dict[DeliveryKey, Entry] = {}
        self._turn = turn
        self._local = local
        self.join_trace: JoinTrace = no_trace
        self.leads: bool | None = None
        self._encode: EncodeState = no_state
        self._epoch_ns = 0
        self._arrivals = 0
        self.is_stuck = False
        self.unrecorded = 0
        self.ended_sequence = 0
        self.received_sequence = 0
        self._unrecorded = 0
        self._recent: deque[tuple[int, LinkKey, Sequence[DeliveryKey]]] = deque()

    def open(
        self,
        records: Records,
        epoch_ns: int,
        *,
        identify: Identify,
        give_id: GiveId,
        encode: EncodeState,
        join_trace: JoinTrace,
    ) -> None:
        """Begins to write; see ``Ledger.open``."""
        self.records = records
        self.identify = identify
        self.give_id = give_id
        self._encode = encode
        self.join_trace = join_trace
        self._epoch_ns = epoch_ns
        self.is_on = True

    def now_ns(self) -> int:
        """Returns the time of the turn in nanoseconds since 1970."""
        return int(self._turn.now * _NANOSECONDS) + self._epoch_ns

    def arrivals(self, count: int) -> int:
        """Reserves numbers of arrival; returns the first."""
        first = self._arrivals
        self._arrivals += count
        return first

    def outcome_fields(self, state: DeliveryState | None) -> tuple[int, int, bytes]:
        """Returns what an outcome's record says of it."""
        return outcome_fields(state, self._encode)

    # Links

    def incoming_ledger(self, link: IncomingLink) -> IncomingLedger:
        """Returns the ledger of an attached link; it is opened if need be."""
        ledger = self.of_incoming.get(link)
        if ledger is None:
            key = self._key(link)
            ledger = self.ledger_of_source(link, key)
            ledger.numbered = {}
            self.records.link_attached(self.now_ns(), describe(self._local, key, link))
        return ledger

    def _key(self, link: Link) -> LinkKey:
        key = link.key
        return link_key(
            self._local,
            key.container,
            key.name,
            is_incoming=isinstance(link, IncomingLink),
            identity=key.user or "",
            vhost=key.vhost,
        )

    def ledger_of_source(self, link: IncomingLink, key: LinkKey) -> IncomingLedger:
        """Returns the ledger of a link whose key is known."""
        ledger = self.incoming.get(key)
        if ledger is None:
            names = DeliveryKeys(link.key.container, link.key.name, self.records.incarnation)
            ledger = self.incoming[key] = IncomingLedger(key, names)
        self.of_incoming[link] = ledger
        return ledger

    def outgoing_ledger(self, link: OutgoingLink) -> OutgoingLedger:
        """Returns the ledger of an attached link; it is opened if need be."""
        ledger = self.of_outgoing.get(link)
        if ledger is None:
            key = self._key(link)
            ledger = self.ledger_of_target(link, key)
            ledger.numbered = {}
            self.records.link_attached(self.now_ns(), describe(self._local, key, link))
        return ledger

    def ledger_of_target(self, link: OutgoingLink, key: LinkKey) -> OutgoingLedger:
        """Returns the ledger of a link whose key is known."""
        ledger = self.outgoing.get(key)
        if ledger is None:
            ledger = self.outgoing[key] = OutgoingLedger(key)
        self.of_outgoing[link] = ledger
        return ledger

    def attached(self, link: Link) -> int:
        """Records that a link is attached that has a ledger, or is to be remembered without one.

        Returns:
            The sequence number of what tells so; 0: nothing does.
        """
        if not self.is_on:
            return 0
        known: IncomingLedger | OutgoingLedger | None
        if isinstance(link, IncomingLink):
            known = self.of_incoming.get(link)
        else:
            known = self.of_outgoing.get(link)
        is_remembered = link.number is not None or _answers_for(link)
        is_led = bool(self.leads) and link.address is None and isinstance(link, IncomingLink)
        if known is None and not (is_led or (is_remembered and is_exact(link))):
            return 0
        if link.unconfirmed is not None and link.unconfirmed.older is not None:
            return 0  # what is on record is still that of the link it may take the place of
        if known is None and isinstance(link, IncomingLink):
            known = self.ledger_of_source(link, self._key(link))
            known.numbered = {}
        elif known is None and isinstance(link, OutgoingLink):
            known = self.ledger_of_target(link, self._key(link))
            known.numbered = {}
        assert known is not None
        described = describe(self._local, known.key, link)
        return self.records.link_attached(self.now_ns(), described)

    def suspended(self, link: Link) -> None:
        """Records that a link is about to be suspended; its deliveries have their numbers."""
        if isinstance(link, IncomingLink):
            incoming = self.of_incoming.get(link)
            if incoming is not None:
                incoming.numbered = {}
                self.records.link_suspended(self.now_ns(), incoming=incoming.key)
            return
        outgoing = self.of_outgoing.get(link)
        if outgoing is None:
            return
        now_ns = self.now_ns()
        for number, pairing in link.unsettled.items():
            entry = outgoing.numbered.pop(number, None)
            if entry is not None:
                outgoing.adrift[pairing.outgoing_tag] = entry
                if not entry.outcome:
                    self.records.in_doubt(now_ns, entry.key, entry.source, outgoing.key)
        self.records.link_suspended(now_ns, outgoing=outgoing.key)

    def gone(self, link: Link) -> None:
        """Records that a link is over; its deliveries have been seen to."""
        if isinstance(link, IncomingLink):
            incoming = self.of_incoming.pop(link, None)
            if incoming is not None:
                self._sender_gone(link, incoming)
            return
        outgoing = self.of_outgoing.pop(link, None)
        if outgoing is None or outgoing in self.of_outgoing.values():
            return  # the peer is attached anew by that name: the ledger is that link's
        now_ns = self.now_ns()
        entries = (*outgoing.numbered.values(), *outgoing.adrift.values())
        self.settled_with_receiver(outgoing, [entry for entry in entries if entry.outcome])
        for entry in reversed(entries):  # YoungestTakenBackFirst
            if not entry.outcome:
                self.records.resolved(
                    now_ns, entry.key, entry.source, outgoing.key, Resolution.SEND_AGAIN
                )
                outgoing.drop(entry)
                self.sent_again(entry)
        self.records.link_expired(now_ns, outgoing=outgoing.key)
        del self.outgoing[outgoing.key]

    def _sender_gone(self, link: IncomingLink, ledger: IncomingLedger) -> None:
        """Forgets entries that cannot be asked for any more; a redelivering sender asks again."""
        if redelivers(link):
            ledger.numbered = {}
            self.settled_with_sender(ledger, [e for e in ledger.entries.values() if not e.waits])
            return
        if ledger.entries:
            self.records.settled_run(self.now_ns(), ledger.key, NO_LINK, list(ledger.entries))
        if link.address is not None or self.leads is not False:
            self.records.link_expired(self.now_ns(), incoming=ledger.key)
        self.incoming.pop(ledger.key, None)

    # Deliveries

    def settled_with_sender(self, ledger: IncomingLedger, entries: Sequence[Entry]) -> None:
        """Forgets deliveries that their sender has settled, or need not hear of any more."""
        keys = []
        known = ledger.entries
        for entry in entries:
            if known.pop(entry.key, None) is not None:
                entry.pairing = None
                keys.append(entry.key)
        self.forgotten(ledger, keys)

    def forgotten(self, ledger: IncomingLedger, keys: Sequence[DeliveryKey]) -> None:
        """Records what has left a ledger because it is settled with its sender."""
        if keys:
            self.records.settled_run(self.now_ns(), ledger.key, NO_LINK, keys)

    def settled_with_receiver(self, ledger: OutgoingLedger, entries: Sequence[Entry]) -> None:
        """Records that deliveries are settled with their receiver."""
        now_ns = self.now_ns()
        for source, keys in by_source(entries).items():
            self.ended_sequence = self.records.settled_run(now_ns, source, ledger.key, keys)
        ledger.drop_all(entries)

    def in_custody(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns those of the entries that no ledger of a sender has."""
        found = []
        for entry in entries:
            source = self.incoming.get(entry.source)
            if source is None or entry.key not in source.entries:
                found.append(entry)
        return found

    def sent_again(self, entry: Entry) -> None:
        """Keeps a delivery that is to be sent again and that no ledger of a sender has any more."""
        for each in self.in_custody((entry,)):
            self.alone[each.key] = each

    def decided(
        self, entry: Entry, outgoing: LinkKey, state: DeliveryState | None, now_ns: int
    ) -> None:
        """Records an outcome that came with no disposition."""
        code, flags, octets = self.outcome_fields(state)
        sequence = self.records.outcome(
            now_ns, entry.key, entry.source, outgoing, code, flags=flags, state=octets
        )
        entry.outcome = not outgoing or entry.is_answered_by(state)
        entry.recorded = state
        source, target = self.incoming.get(entry.source), self.outgoing.get(outgoing)
        if source is not None and entry.waits:
            source.sequence = sequence
            self.must_be_durable(sequence, entry.source, (entry.key,))
        if target is not None:
            target.sequence = self.ended_sequence = sequence

    def must_be_durable(self, sequence: int, source: LinkKey, keys: Sequence[DeliveryKey]) -> None:
        """Records that the outcomes of a link's deliveries are durable when ``sequence`` is."""
        recent, durable = self._recent, self._turn.gate.durable
        while recent and recent[0][0] <= durable:
            recent.popleft()
        recent.append((sequence, source, keys))

    def undurable(self, link: Link) -> frozenset[DeliveryKey]:
        """Returns the deliveries of a link whose outcomes are not durable, so it may not know them.

        What the message store sends has the key that it had on the link that it came on.
        """
        ledger = self.of_incoming.get(link) if isinstance(link, IncomingLink) else None
        if ledger is None:
            return frozenset()
        durable = self._turn.gate.durable
        recent = (
            keys
            for sequence, source, keys in self._recent
            if sequence > durable and source == ledger.key
        )
        return frozenset(chain.from_iterable(recent))

    # After a restart

    def restore(
        self,
        entry: Entry,
        sent_on: Iterable[tuple[LinkKey, DeliveryTag]],
        *,
        is_alone: bool = False,
    ) -> None:
        """Enters a delivery that the journal remembers, and where it is not settled.

        Args:
            entry: the delivery.
            sent_on: where it is not settled.
            is_alone: it is to be sent again, and its sender has forgotten it.
        """
        source = self.incoming[entry.source]
        if is_alone:
            self.alone[entry.key] = entry
        else:
            source.entries[entry.key] = entry
        if entry.outcome and entry.pairing is None:
            entry.answered_at = 0
            source.answered.append(entry)
        for key, tag in sent_on:
            target = self.outgoing.get(key)
            if target is not None:
                target.adrift[tag] = entry
                entry.add_link(key)

    def splice(self, delivery: ReceivedDelivery, source: LinkKey, payload: bytes) -> Splice | None:
        """Returns how a delivery that came in parts has left before (``RecordFlag.SPLICED``).

        Args:
            delivery: that the journal remembers.
            source: the link it came over.
            payload: its parts so far.
        """
        assert delivery.key is not None
        identity = hop_identity(source, delivery.key)
        joined = self.join_trace(delivery.protocol, payload, identity, True, False)
        return None if joined is None else joined.splice

    def stand_in(self, link: OutgoingLink, key: LinkKey | None) -> LinkKey:
        """Opens a ledger for a link of which nothing is known but what was sent on it.

        Args:
            link: it stands in for the one that was there.
            key: of that one, if it is known.

        Returns:
            Its key.
        """
        key = self._key(link) if key is None else key
        self.ledger_of_target(link, key)
        self.records.link_attached(self.now_ns(), describe(self._local, key, link))
        return key

    def may_be_sent(self, entry: Entry, outgoing: LinkKey, tag: DeliveryTag) -> None:
        """Puts on record that a delivery may have been sent on a link."""
        self.records.sent_run(self.now_ns(), entry.source, outgoing, [entry.key], [tag])

    def write_off(self, key: DeliveryKey, source: LinkKey, sent_on: Iterable[LinkKey]) -> None:
        """Records that nothing need be remembered of a delivery.

        Args:
            key: the delivery.
            source: the link it came over.
            sent_on: the links on which it is not settled.
        """
        now_ns, records = self.now_ns(), self.records
        for outgoing in sent_on:
            records.settled(now_ns, key, source, outgoing)
        records.settled(now_ns, key, source)

    # Gaps

    def stuck(self, is_stuck: bool) -> None:
        """Records that the journal cannot write, or that it can again."""
        self.is_stuck = is_stuck
        if not is_stuck and self._unrecorded:
            self.records.gap(self.now_ns(), self._unrecorded)
            self._unrecorded = 0

    def missed(self, count: int) -> None:
        """Records deliveries that are not recorded because the journal is stuck."""
        self.unrecorded += count
        self._unrecorded += count


def by_source(entries: Sequence[Entry]) -> dict[LinkKey, list[DeliveryKey]]:
    """Returns the keys of deliveries by the links that they came from; of one link, mostly."""
    if not entries:
        return {}
    first = entries[0].source
    keys = [entry.key for entry in entries if entry.source == first]
    if len(keys) == len(entries):
        return {first: keys}
    found: dict[LinkKey, list[DeliveryKey]] = {}
    for entry in entries:
        found.setdefault(entry.source, []).append(entry.key)
    return found


def redelivers(link: IncomingLink) -> bool:
    """Returns whether a sender brings again, as something new, what it did not hear settled."""
    return not link.settles_second or link.may_lose_map


def describe(local: ContainerId, key: LinkKey, link: Link) -> LinkDescription:
    """Returns what the journal should know of a link."""
    return LinkDescription(
        key=key,
        is_incoming=isinstance(link, IncomingLink),
        local=local,
        remote=link.key.container,
        name=link.key.name,
        address=link.address or "",
        identity=link.key.user or "",
        terminus=encode_terms(link),
        is_router=link.connection is not None and link.connection.capabilities.routes_by_key,
    )


def _answers_for(link: Link) -> bool:
    """Returns whether our next attach of a link says what is unsettled, even if nothing is."""
    return link.is_ours and isinstance(link, IncomingLink) and link.settles_second


def is_exact(link: Link) -> bool:
    """Returns whether a link belongs to a route that promises exactly-once."""
    node = link.group if isinstance(link, OutgoingLink) else getattr(link.queue, "node", None)
    return isinstance(node, Node) and node.is_exact
