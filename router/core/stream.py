"""Large messages, part by part (§2.6.14).

An incomplete delivery is paired like any other as soon as a receiver that takes parts has credit.
From then on each part is forwarded on arrival, and the receiver's link is sent nothing else until
the last part. While the receiver's connection is congested, or no receiver has credit, parts are
kept, and beyond ``part_octets`` the sender's window is held: octets are bounded by windows, as
deliveries are by credit.

A receiver that takes no parts is sent the whole message, gathered here up to ``gather_octets``. If
a receiver is lost in the middle and all parts are still here (``keep_octets``), the delivery starts
again with another receiver; otherwise it has failed, and the sender gets that outcome after its
last part. If the sender is lost in the middle, or aborts, the delivery is aborted at the receivers.
A sender that pauses in the middle blocks its receiver's link. That is reported after
``stall_seconds``, and if other deliveries wait for the receiver, the unfinished one is taken back
from it.
"""

from collections.abc import Sequence
from functools import partial

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.node import Node, feed_of, in_custody
from router.core.settle import Settler, trunk_of
from router.core.state import State
from router.links import life
from router.links.credit import Hold
from router.links.link import IncomingLink, OutgoingLink, is_away
from router.links.pairing import UNNUMBERED, Pairing, joined
from router.links.partial import Parts
from router.model.commands import ContinueDelivery
from router.model.condition import MESSAGE_SIZE_EXCEEDED, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import DeliveryAborted, DeliveryContinued
from router.model.identity import DeliveryNumber
from router.model.outcome import MODIFIED_FAILED, Rejected


class Streams:
    """Forwards deliveries that arrive in parts."""

    def __init__(self, state: State, settler: Settler, granter: Granter) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._ledger = state.ledger
        self._watched: dict[Pairing, Alarm] = {}
        self._settler = settler
        self._rejections = state.rejections
        self._granter = granter

    # From the sender

    def begun(self, pairing: Pairing) -> None:
        """Queues a delivery, already paired, with its first part."""
        delivery, incoming = pairing.delivery, pairing.incoming
        life.mark_unusual(pairing)
        settings = self._settings
        # No sender can send a delivery in custody again, so as much is kept as may be gathered.
        keep_octets = settings.gather_octets if in_custody(pairing) else settings.keep_octets
        parts = pairing.parts = Parts(keep_octets)
        parts.add(delivery.payload, True)
        delivery.payload = b""
        incoming.partial = pairing

    def continued(self, incoming: IncomingLink, event: DeliveryContinued) -> None:
        """Handles a further part."""
        pairing = incoming.partial
        if pairing is None or not _is_known_by(pairing, event.number):
            self._discard(incoming, event)
            return
        if not event.more:
            incoming.partial = None
        parts = pairing.parts
        if event.settled and not pairing.is_settled:
            life.settle_unfinished(pairing)
        if parts is None:
            return  # settled beforehand, and dropped
        if parts.has_verdict:
            self._end_with_verdict(pairing, parts, event.more)
            return
        self._add(pairing, parts, event.payload, event.more)

    def _end_with_verdict(self, pairing: Pairing, parts: Parts, more: bool) -> None:
        """Throws a part away, and reports the outcome, which is known, after the last one."""
        parts.is_complete = not more
        if parts.is_complete:
            self._settler.report_outcome(pairing, parts.verdict)

    def _add(self, pairing: Pairing, parts: Parts, payload: bytes, more: bool) -> None:
        """Adds a part, and forwards it if possible."""
        incoming = pairing.incoming
        if incoming.skip_octets:
            skipped = min(incoming.skip_octets, len(payload))
            incoming.skip_octets -= skipped
            payload = payload[skipped:]
            if incoming.skip_octets and not more:  # it ends before what is here
                self._fail(pairing, parts, more)
                return
        parts.add(payload, more)
        incoming.tally.octets += len(payload)
        self._settler.account(incoming, len(payload))
        if parts.sinks:
            self.flow(pairing)
        elif pairing.outgoing is None:
            self._gather(pairing, parts)
            self._turn.touch(feed_of(pairing).node)
        self._turn.stream_moved(pairing)

    @staticmethod
    def _discard(incoming: IncomingLink, event: DeliveryContinued) -> None:
        if incoming.discarding == event.number and not event.more:
            incoming.discarding = None

    def _gather(self, pairing: Pairing, parts: Parts) -> None:
        """Keeps a part that cannot be forwarded yet."""
        node = feed_of(pairing).node
        if parts.is_complete:
            self._turn.touch(node)
        elif node.outgoing and not streaming(node):
            if parts.octets > self._settings.gather_octets:
                limit = self._settings.gather_octets
                reason = f"the receiver takes whole messages only, and {limit} octets at most"
                self._settler.withdraw(pairing)
                self._settler.answer(pairing, Rejected(Condition(MESSAGE_SIZE_EXCEEDED, reason)))

    def aborted(self, incoming: IncomingLink, event: DeliveryAborted) -> None:
        """Handles an abort by the sender: the delivery never was (§2.7.5)."""
        if incoming.discarding == event.number:
            incoming.discarding = None
        pairing = incoming.partial
        if pairing is not None and _is_known_by(pairing, event.number):
            incoming.partial = None
            life.leave(pairing)
            self.drop(pairing)
        elif (resumed := life.settled_by_sender(incoming, event.number)) is not None:
            self._settler.orphan(resumed)  # it was resumed only to be given up

    def sender_lost(self, incoming: IncomingLink) -> None:
        """Drops the unfinished delivery of a lost sender."""
        pairing, incoming.partial = incoming.partial, None
        if pairing is not None:
            life.leave(pairing)
            self.drop(pairing)

    def sender_suspended(self, incoming: IncomingLink) -> None:
        """Keeps the unfinished delivery of a suspended sender, if all received parts are here."""
        pairing, incoming.partial = incoming.partial, None
        if pairing is None:
            return
        parts = pairing.parts
        if pairing.is_settled or parts is None or parts.has_verdict or not parts.is_whole:
            life.leave(pairing)
            self.drop(pairing)
            return
        for sink in list(parts.sinks):
            if sink.outgoing is not None:
                self._settler.interrupt(sink.outgoing, sink)
        self._settler.withdraw(pairing)
        pairing.fan = None
        pairing.parts_sent = 0

    def settled_unfinished(self, incoming: IncomingLink, numbers: Sequence[DeliveryNumber]) -> None:
        """Drops an unfinished delivery that the sender of a detached link settles (§2.7.6)."""
        for number in numbers:
            pairing = incoming.unsettled.get(number)
            if pairing is not None and pairing.parts and not pairing.parts.is_complete:
                life.leave(pairing)
                self.drop(pairing)

    def resumed(self, pairing: Pairing, delivery: ReceivedDelivery, skip_octets: int) -> None:
        """Continues an interrupted delivery.

        Args:
            pairing: adrift until now.
            delivery: its next part.
            skip_octets: how many octets of the transfer are here already; negative: that many are
                missing. A transfer with fewer octets than are here is not the whole message.
        """
        incoming, parts = pairing.incoming, pairing.parts
        assert parts is not None
        incoming.partial = pairing if delivery.more else None
        if parts.has_verdict:  # its receiver has all of it, or wants no more
            self._end_with_verdict(pairing, parts, delivery.more)
            return
        ends_early = not delivery.more and len(delivery.payload) < skip_octets
        is_lost = not (parts.is_whole or parts.sinks)  # sinks have been sent what is gone here
        if skip_octets < 0 or ends_early or is_lost:
            self._fail(pairing, parts, delivery.more)
            return
        incoming.skip_octets = skip_octets
        self._ledger.gone_on(pairing, delivery.payload[skip_octets:], more=delivery.more)
        if pairing.outgoing is None and pairing.fan is None:  # else its receiver goes on with it
            feed = feed_of(pairing)
            feed.node.put_back(feed, [pairing])
            self._turn.touch(feed.node)
        self._add(pairing, parts, delivery.payload, delivery.more)

    def _fail(self, pairing: Pairing, parts: Parts, more: bool) -> None:
        """Ends an interrupted delivery with which its sender goes on, but not where it stands."""
        pairing.incoming.skip_octets = 0
        pairing.archived_octets = None
        for sink in list(parts.sinks):
            if sink.outgoing is not None:
                self._settler.interrupt(sink.outgoing, sink)
        self._settler.withdraw(pairing)
        self._settler.report_outcome(pairing, MODIFIED_FAILED)
        if not more:
            parts.is_complete = True
            self._settler.report_outcome(pairing, MODIFIED_FAILED)

    def drop(self, pairing: Pairing) -> None:
        """Ends an unfinished delivery everywhere; no outcome is sent."""
        life.drop(pairing)
        parts = pairing.parts
        if parts is not None:
            for sink in list(parts.sinks):
                if sink.outgoing is not None:
                    self._settler.interrupt(sink.outgoing, sink)
        self._settler.withdraw(pairing)
        self._settler.free(pairing)
        if pairing.outgoing is not None:  # who comes back, and may have begun to take it
            pairing.parts = Parts.lost()
        self._turn.stream_moved(pairing)

    # To the receivers

    def start(self, link: OutgoingLink, pairing: Pairing, outgoing: OutgoingDelivery) -> None:
        """Sends the received parts of an incomplete delivery.

        Args:
            link: has credit and takes parts.
            pairing: one receiver's attempt: the pairing itself, or a branch.
            outgoing: the delivery without its payload.
        """
        parts = pairing.parts
        assert parts is not None
        outgoing.payload = joined(pairing)
        outgoing.more = True
        pairing.parts_sent = parts.count
        parts.sinks.append(pairing)
        link.partial = pairing
        link.tally.octets += len(outgoing.payload)
        self._turn.send(link, outgoing)
        enter = life.pass_settled if outgoing.settled else life.send
        enter(link, pairing, outgoing.number, outgoing.tag)
        self._turn.stream_moved(trunk_of(pairing))

    def start_again(self, link: OutgoingLink, pairing: Pairing, outgoing: OutgoingDelivery) -> None:
        """Sends a delivery in parts again whose receiver has had some of them.

        Args:
            link: takes parts.
            pairing: the delivery; all received parts are here.
            outgoing: with the payload to send.
        """
        parts = pairing.parts
        assert parts is not None
        self._turn.send(link, outgoing)
        pairing.parts_sent = parts.count
        if not parts.is_complete:
            outgoing.more = True
            parts.sinks.append(pairing)
            link.partial = pairing
        self._turn.stream_moved(pairing)

    def receiver_suspended(self, link: OutgoingLink) -> None:
        """Keeps the unfinished delivery of a suspended receiver, if all received parts are here."""
        sink, link.partial = link.partial, None
        if sink is None:
            return
        parts = sink.parts
        is_kept = sink.outgoing_number in link.unsettled and sink.fan is None
        if is_kept and parts is not None and parts.is_whole and not parts.has_verdict:
            parts.sinks.remove(sink)
            self._turn.stream_moved(sink)
        else:
            self._settler.interrupt(link, sink)
            self._settler.try_elsewhere(sink, link, MODIFIED_FAILED, again=True)

    def flow(self, pairing: Pairing) -> None:
        """Sends received parts to every receiver that is not congested."""
        trunk = trunk_of(pairing)
        parts = trunk.parts
        if parts is None:
            return
        for sink in list(parts.sinks):
            link = sink.outgoing
            assert link is not None
            limit = link.max_message_octets
            if limit and parts.octets > limit:
                self._settler.interrupt(link, sink)
                outcome = Rejected(too_large(link))
                self._rejections.by_router(trunk, outcome)
                self._settler.try_elsewhere(sink, link, outcome, again=True)
            elif link.connection is not None and not link.connection.is_congested:
                self._flow_to(sink, link, parts)
        self._turn.stream_moved(trunk)

    def _flow_to(self, sink: Pairing, link: OutgoingLink, parts: Parts) -> None:
        assert link.link is not None
        pieces = parts.since(sink.parts_sent)
        for index, piece in enumerate(pieces, 1):
            more = not (parts.is_complete and index == len(pieces))
            self._turn.order(link, ContinueDelivery(link.link, sink.outgoing_number, piece, more))
            link.tally.octets += len(piece)
        sink.parts_sent = parts.count
        if parts.is_complete:
            parts.sinks.remove(sink)
            self._end(sink, link)

    def _end(self, sink: Pairing, link: OutgoingLink) -> None:
        """Frees a receiver's link for the next delivery."""
        link.partial = None
        node = feed_of(sink).node
        self._turn.touch(node)
        if sink.outgoing_number not in link.unsettled:  # it went out settled
            life.lose(sink)
            self._settler.sent_settled(sink)

    def review(self) -> None:
        """Applies the limits at the end of a turn in which parts were received or sent."""
        streams = self._turn.take_streams()
        for trunk in streams:
            self._watch(trunk)
            self._granter.hold(trunk.incoming, Hold.PARTS, self._must_wait(trunk))

    def _watch(self, trunk: Pairing) -> None:
        """Sets an alarm for a sender that pauses in the middle of a delivery."""
        parts = trunk.parts
        is_under_way = parts is not None and not parts.is_complete and bool(parts.sinks)
        self._alarms.cancel(self._watched.pop(trunk, None))
        if is_under_way:
            at = self._turn.now + feed_of(trunk).node.route.stall_seconds
            self._watched[trunk] = self._alarms.set(at, partial(self._stalled, trunk))

    def _stalled(self, trunk: Pairing) -> None:
        """Reports a stalled delivery; if others wait for its receiver, they go first."""
        self._watched.pop(trunk, None)
        parts, node = trunk.parts, feed_of(trunk).node
        if parts is None or not parts.sinks:
            return
        incoming = trunk.incoming
        links = [sink.outgoing for sink in parts.sinks if sink.outgoing is not None]
        is_ours = incoming.holds or any(_is_congested(link) for link in links)
        if is_ours or not node.rotation:
            self._turn.stream_moved(trunk)  # looked at again later
        if is_ours:
            return
        self._notices.add(
            "delivery.stalled",
            container=incoming.key.container,
            link=incoming.key.name,
            address=node.key.address,
            tag=trunk.delivery.tag.hex(),
            octets=parts.octets,
            seconds=node.route.stall_seconds,
        )
        if node.rotation:
            self._step_back(trunk, parts)

    def _step_back(self, trunk: Pairing, parts: Parts) -> None:
        """Takes an unfinished delivery back from its receivers until its sender continues."""
        for sink in list(parts.sinks):
            if sink.outgoing is not None:
                self._settler.interrupt(sink.outgoing, sink)
        if not parts.is_whole:
            self._settler.report_outcome(trunk, MODIFIED_FAILED)
            return
        parts.is_stalled = True
        trunk.fan = None
        self._settler.send_again(trunk, has_failed=False)

    def _must_wait(self, trunk: Pairing) -> bool:
        """Returns whether a sender must wait before sending further parts."""
        parts = trunk.parts
        if parts is None or parts.has_verdict:
            return False
        if trunk.outgoing is not None and is_away(trunk.outgoing):  # it waits for it to return
            return not parts.is_complete and parts.kept_octets > self._settings.part_octets
        if parts.sinks or trunk.outgoing is not None or trunk.fan is not None:
            self._settler.account(trunk.incoming, -parts.forget_sent())
            if parts.is_complete and not parts.sinks and trunk.fan is not None:
                self._settler.fanned_out(trunk)
            return bool(parts.sinks) and parts.backlog_octets() > self._settings.part_octets
        node = feed_of(trunk).node
        if parts.is_complete or (node.outgoing and not streaming(node)):
            return False  # it is gathered
        return parts.kept_octets > self._settings.part_octets


def _is_known_by(pairing: Pairing, number: DeliveryNumber) -> bool:
    """Returns whether a number is that of the delivery whose parts are coming on its link.

    A sender may settle it before the last part (§2.6.12); the delivery has no number then, and a
    link has one delivery in parts at a time (§2.6.14).
    """
    return pairing.number in (number, UNNUMBERED)


def _is_congested(link: OutgoingLink) -> bool:
    return link.connection is not None and link.connection.is_congested


def streaming(node: Node) -> bool:
    """Returns whether a node's receivers take parts: any of them, or all if all get everything."""
    able = (takes_parts(link) for link in node.outgoing)
    return bool(node.outgoing) and all(able) if node.is_multicast else any(able)


def takes_parts(link: OutgoingLink) -> bool:
    """Returns whether a receiver accepts a delivery part by part.

    To a fallback only whole messages go: their addresses are put into them.
    """
    if link.connection is None or link.is_fallback:
        return False
    return link.takes_parts or link.connection.capabilities.streams


def too_large(link: OutgoingLink) -> Condition:
    """Returns the condition for a message that exceeds a receiver's max-message-size."""
    limit = link.max_message_octets
    return Condition(MESSAGE_SIZE_EXCEEDED, f"the receiver takes {limit} octets at most")
