"""Records for the journal, and the orders that wait for them (``router/journal/INVARIANTS``).

Theory of operation. The ledger watches a recorded node from both ends: deliveries received, and the
updates of receivers and senders, before the core acts upon them; and the orders for its links, at
the moment at which they would be carried out. From these it writes the life of each delivery:

    a delivery is received      TRACED, if it is part of a trace that its route records;
                                RECEIVED, with its payload
    a later transfer says that it is settled: RECEIVED once more, settled and without a payload
    SendDeliveries              SENT; the run waits for it                 DurableBeforeSend
    a receiver sends an outcome OUTCOME
    UpdateDeliveries to sender  OUTCOME if the core decided it by itself; waits for it
                                                                           OutcomeBeforeAnswer
    UpdateDeliveries to receiver, settled: SETTLED towards it; waits for the outcome, or for
                            SETTLED if the receiver has not answered       OutcomeBeforeSettle
    AbortDelivery           SETTLED; waits for what the receiver may have answered
                                                                           OutcomeBeforeSettle
    a resumed transfer that states an outcome, or an attach to a receiver with our unsettled map:
                            waits for what the receiver forgets by it      OutcomeBeforeSettle
    a sender settles            SETTLED                                    SettleSecond
    ReportRecorded to sender    waits for all RECEIVED so far              ReceivedBeforeConfirm
    ReportRecorded to receiver  waits for the last OUTCOME of its link     OutcomeBeforeConfirm
    a link ends for good        its open deliveries are settled, or sent again

It keeps an *entry* for every delivery that is not forgotten (``link_ledgers``). ``arrivals``
handles incoming deliveries, ``departures`` outgoing ones, and ``repeats`` senders that redeliver
messages for which they had no outcome. The ``Gate`` holds the orders that wait.

**Routes that do not promise exactly-once** are recorded if the configuration says so. Their
deliveries get the same records, without the payload, and no order waits for them. A delivery that
is received settled has no entry: RECEIVED and SENT say settled, and that is its life. While the
journal is stuck, such deliveries are not recorded but counted: GAP has their number, once it moves
again.

Without a journal the ledger does nothing.
"""

from collections.abc import Hashable, Sequence

from router.core.archive import Archive
from router.core.arrivals import Arrivals
from router.core.departures import Departures
from router.core.gate import Gate
from router.core.link_ledgers import LinkLedgers, is_exact, redelivers
from router.core.node import Node
from router.core.numbers import Count
from router.core.records import EncodeState, GiveId, Identify, JoinTrace, Records, no_trace
from router.core.repeats import Repeats
from router.core.turn import Turn
from router.journal.record import Resolution
from router.links.attaches import AttachNumber
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.identity import ContainerId, DeliveryNumber
from router.model.outcome import DeliveryState


class Ledger:
    """Writes the lives of deliveries down.

    Attributes:
        gate: where orders wait.
        count: draws the numbers of our own attaches.
        is_restoring: what the journal keeps of earlier lives has not been restored yet.
        now_ns, suspended, gone, stuck, restore, splice, write_off ...: of ``LinkLedgers``.
        abandoned: of ``Repeats``.
        screen, received, continued, gone_on, aborted, sender_updated: of ``Arrivals``.
        receiver_updated, give_id, sending, sent_settled, dropped, telling, kept: of
            ``Departures``.
    """

    def __init__(self, turn: Turn, local: ContainerId, archive: Archive) -> None:
        """Begins without a journal.

        Args:
            turn: tells the time; what is ordered in it passes the gate.
            local: our container-id.
            archive: keeps what comes to nodes whose routes are archived.
        """
        self.gate: Gate = turn.gate
        self.count = Count()
        self.is_restoring = False
        self._turn = turn
        self._ledgers = ledgers = LinkLedgers(turn, local)
        repeats = Repeats(ledgers, turn)
        arrivals = Arrivals(ledgers, repeats, archive)
        departures = Departures(ledgers, repeats, turn.gate)
        self.now_ns = ledgers.now_ns
        self.suspended = ledgers.suspended
        self.gone = ledgers.gone
        self.restore = ledgers.restore
        self.restore_incoming = ledgers.ledger_of_source
        self.restore_outgoing = ledgers.ledger_of_target
        self.splice = ledgers.splice
        self.stand_in = ledgers.stand_in
        self.may_be_sent = ledgers.may_be_sent
        self.write_off = ledgers.write_off
        self.stuck = ledgers.stuck
        self.abandoned = repeats.abandoned
        self.screen = arrivals.screen
        self.received = arrivals.received
        self.continued = arrivals.continued
        self.gone_on = arrivals.gone_on
        self.aborted = arrivals.aborted
        self.sender_updated = arrivals.sender_updated
        self.receiver_updated = departures.receiver_updated
        self.give_id = departures.give_id
        self.sending = departures.sending
        self.sent_settled = departures.sent_settled
        self.dropped = departures.dropped
        self.fan_ended = departures.fan_ended
        self.updating = departures.updating
        self.kept = departures.kept
        self.undurable = ledgers.undurable

    @property
    def is_on(self) -> bool:
        """Whether there is a journal."""
        return self._ledgers.is_on

    @property
    def is_stuck(self) -> bool:
        """Whether the journal cannot write: senders should be asked for nothing it must have."""
        return self._ledgers.is_stuck

    @property
    def unrecorded(self) -> int:
        """How many deliveries came while it was stuck, and are on no record."""
        return self._ledgers.unrecorded

    def open(
        self,
        records: Records,
        epoch_ns: int,
        *,
        identify: Identify,
        give_id: GiveId,
        encode: EncodeState,
        join_trace: JoinTrace = no_trace,
    ) -> None:
        """Begins to write.

        Args:
            records: of the journal.
            epoch_ns: nanoseconds since 1970 at the core's time 0.
            identify: finds ids in payloads.
            give_id: puts ids into payloads.
            encode: encodes states.
            join_trace: joins the traces of messages.
        """
        self._ledgers.open(
            records,
            epoch_ns,
            identify=identify,
            give_id=give_id,
            encode=encode,
            join_trace=join_trace,
        )

    def share_links(self, *, leads: bool) -> None:
        """Records that links to the anonymous terminus have homes at all workers, see ``leads``."""
        self._ledgers.leads = leads

    def attached(self, link: Link, *, shows_map: bool = False) -> None:
        """Records that a link is attached; its answer waits for a number to be durable.

        Args:
            link: it is attached.
            shows_map: the answer tells a receiver our unsettled map, see ``show_map``.
        """
        sequence = self._ledgers.attached(link)
        if link.number is not None:
            self.gate.wait(link, sequence)
        if shows_map and is_exact(link):
            self.show_map(link)

    def await_record(self, link: Link) -> None:
        """Has the next order for a link wait until what its peer has sent on it is durable.

        From a sender these are deliveries, from a receiver outcomes.
        """
        if isinstance(link, IncomingLink):
            self.gate.wait(link, self._ledgers.received_sequence)
        elif link.carries_tags and (ledger := self._ledgers.of_outgoing.get(link)) is not None:
            self.gate.wait(link, ledger.sequence)

    def show_map(self, whose: Hashable) -> None:
        """Has an attach to a receiver wait until all is durable that our map may lack.

        What our map lacks, the receiver forgets (OutcomeBeforeSettle).

        Args:
            whose: what the attach is ordered for, see ``Gate``; of a route that promises
                exactly-once.
        """
        self.gate.wait(whose, self._ledgers.ended_sequence)

    def draw_number(self, whose: Hashable) -> AttachNumber | None:
        """Draws a number for an attach of ours, which waits for it to be durable.

        Args:
            whose: what the attach is ordered for, see ``Gate``.

        Returns:
            None: there is no journal.
        """
        if not self.is_on:
            return None
        number = self.count.draw(self._ledgers.records, self.now_ns())
        self.gate.wait(whose, self.count.sequence)
        return number

    def records(self, node: Node) -> bool:
        """Returns whether what comes to a node is written down."""
        return self._ledgers.is_on and node.is_recorded

    # Deliveries that go another way

    def recall(self, link: Link, *, is_lost: bool) -> list[Pairing]:
        """Takes back deliveries that an ending link was to send and has not sent (KnownNotSent).

        Those of a multicast stay on record as sent: they are this receiver's.

        Args:
            link: still attached.
            is_lost: the peer has ended it, or its connection is gone.
        """
        connection = None if link.connection is None else link.connection.id
        recalled = self.gate.recall(link, connection, is_lost=is_lost)
        if not isinstance(link, OutgoingLink):
            return []
        if self.is_on and link.carries_tags:
            recalled += self._turn.recall(link)
        found: list[Pairing] = []
        again = () if link.unconfirmed is None else link.unconfirmed.again
        for delivery in recalled:
            pairing = link.unsettled.get(delivery.number)
            if delivery.number in again:
                continue  # the receiver may have it from an earlier attachment
            if pairing is not None and not delivery.resume and not delivery.more:
                found.append(pairing)
        alone = [each for each in found if each.fan is None]  # others of a multicast have theirs
        self.all_sent_again(link, alone, is_unsent=True)
        return found

    def aborting(self, link: Link, number: DeliveryNumber) -> None:
        """Records that a delivery in parts is given up at its receiver, and settled (§2.7.5).

        The receiver may have answered it before its end: the abort waits for that outcome.
        """
        ledger = self._ledgers.of_outgoing.get(link) if isinstance(link, OutgoingLink) else None
        entry = None if ledger is None else ledger.numbered.pop(number, None)
        if ledger is not None and entry is not None:
            self._ledgers.settled_with_receiver(ledger, [entry])
            if entry.waits:
                self.gate.wait(link, ledger.sequence)

    def decided(self, link: OutgoingLink, pairing: Pairing, outcome: DeliveryState) -> None:
        """Records an outcome that a receiver's unsettled map tells (§2.6.13)."""
        ledger = self._ledgers.of_outgoing.get(link)
        entry = None if ledger is None else ledger.adrift.get(pairing.outgoing_tag)
        if ledger is not None and entry is not None:
            self._ledgers.decided(entry, ledger.key, outcome, self.now_ns())

    def settles_early(self, link: OutgoingLink) -> None:
        """Records that a sender's settlement is about to go to a receiver that has not answered.

        Whatever state it names, no outcome of the receiver is on record: it waits for SETTLED.
        """
        ledger = self._ledgers.of_outgoing.get(link)
        if ledger is not None:
            ledger.is_early = True

    def forgotten(self, link: OutgoingLink, pairing: Pairing) -> None:
        """Records that a receiver has settled a delivery on an earlier attachment (§2.6.13)."""
        ledger = self._ledgers.of_outgoing.get(link)
        entry = None if ledger is None else ledger.adrift.pop(pairing.outgoing_tag, None)
        if ledger is not None and entry is not None:
            self._ledgers.settled_with_receiver(ledger, [entry])

    def sender_forgot(self, link: IncomingLink, pairings: Sequence[Pairing]) -> None:
        """Records that a sender's unsettled map shows what it has settled (§2.6.13)."""
        ledger = self._ledgers.of_incoming.get(link)
        if ledger is None or redelivers(link):
            return
        keys = [pairing.delivery.key for pairing in pairings]
        entries = [entry for key in keys if key and (entry := ledger.entries.get(key)) is not None]
        self._ledgers.settled_with_sender(ledger, entries)

    def sent_again(self, link: OutgoingLink, pairing: Pairing, *, is_unsent: bool) -> None:
        """Records that a delivery leaves a receiver, to be sent again.

        Args:
            link: that it was to be sent on, or was sent on.
            pairing: the delivery.
            is_unsent: the receiver certainly does not have it: sending it is no further attempt.
        """
        self.resolved(link, pairing, Resolution.SEND_AGAIN, is_unsent=is_unsent)

    def all_sent_again(
        self, link: OutgoingLink, pairings: Sequence[Pairing], *, is_unsent: bool
    ) -> None:
        """Does the same for several, given in their order (YoungestTakenBackFirst)."""
        for pairing in reversed(pairings):
            self.sent_again(link, pairing, is_unsent=is_unsent)

    def resolved(
        self,
        link: OutgoingLink,
        pairing: Pairing,
        resolution: Resolution,
        *,
        by_person: bool = False,
        is_unsent: bool = False,
    ) -> None:
        """Records what becomes of a delivery that is in doubt."""
        ledger = self._ledgers.of_outgoing.get(link)
        if ledger is None:
            return
        entry = ledger.numbered.pop(pairing.outgoing_number, None)
        entry = ledger.adrift.pop(pairing.outgoing_tag, None) or entry
        if entry is not None:
            ledger.drop(entry)
            self._ledgers.ended_sequence = self._ledgers.records.resolved(
                self.now_ns(),
                entry.key,
                entry.source,
                ledger.key,
                resolution,
                by_person=by_person,
                is_unsent=is_unsent,
            )
            if resolution is Resolution.SEND_AGAIN and pairing.fan is None:
                self._ledgers.sent_again(entry)
