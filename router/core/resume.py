"""Resuming links: unsettled maps are joined, each delivery goes on where it stood (§2.6.13).

The map in a peer's own attach may be outdated (``links.attaches``): until ``AttachConfirmed``
nothing irrevocable is done because of it. A map in the answer to our attach is never outdated.

Where we receive, the sender decides. It has settled the deliveries that its map lacks; these are
kept until ``AttachConfirmed`` (``Unconfirmed.absent``). It resumes each delivery that both ends
know with a transfer, which gives the delivery a number again. Then an outcome that was kept is
sent, an interrupted delivery continues at the end of the payload that is here, and any other
payload is ignored.

Where we send, ``links.recovery`` decides for each delivery. The transfers that this takes are sent
in the order of the deliveries, within the receiver's credit, before any new delivery::

    SendAnew     the receiver never had it: back into its queue. But a receiver that keeps no map,
                 or settles first, may have had it and forgotten it: that is a failed attempt, or
                 in doubt where the route promises exactly-once
    ResumeFrom   the payload is sent from the receiver's position on
    Settle       the outcome goes to our sender; if the sender settles first (§2.8.3, second), the
                 receiver is settled after that
    Restate      as Settle, with the outcome that we have already sent
    Abort        the receiver forgets it
    Forget       the receiver has forgotten it

Until ``AttachConfirmed``, ``SendAnew`` means on this link and with the delivery's tag: a receiver
that has the delivery reports so in its next map. Actions that would end a delivery or send it on
another link wait (``Unconfirmed.states``).
"""

from collections import deque

from router.core.credit import Granter
from router.core.forms import Forms
from router.core.node import Node, feed_of, is_free, is_given_back_whole
from router.core.reducing import Reducer
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams
from router.core.suspend import Suspender, must_hold
from router.errors import RouterError
from router.links import life
from router.links.attaches import PeerMap, lacking, may_be_done_unconfirmed
from router.links.link import IncomingLink, OutgoingLink, Unconfirmed
from router.links.pairing import Pairing, joined
from router.links.position import octets_before
from router.links.recovery import (
    ABSENT,
    START,
    Abort,
    Absent,
    Forget,
    Restate,
    ResumeFrom,
    SendAnew,
    Settle,
    resume,
)
from router.links.unsettled import ALL, is_whole, sent_state
from router.model.capabilities import Protocol
from router.model.commands import AbortDelivery
from router.model.delivery import Elder, OutgoingDelivery, ReceivedDelivery
from router.model.events import LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    MODIFIED_FAILED,
    DeliveryState,
    Received,
    is_outcome,
    may_go_on,
)
from router.wire.v1_0.head import as_sent


class Resumer:
    """Brings suspended links back.

    Attributes:
        reducer: makes our maps, and knows links whose maps do not fit a frame.
    """

    def __init__(
        self,
        state: State,
        settler: Settler,
        granter: Granter,
        streams: Streams,
        *,
        suspender: Suspender,
        forms: Forms,
    ) -> None:
        self.reducer = Reducer(state)
        self._forms = forms
        self._registry = state.registry
        self._turn = state.turn
        self._ledger = state.ledger
        self._notices = state.notices
        self._orphans = state.orphans
        self._settler = settler
        self._rejections = state.rejections
        self._granter = granter
        self._streams = streams
        self._suspender = suspender
        self._resuming: dict[OutgoingLink, None] = {}
        self._anew: list[tuple[Pairing, bool]] = []

    # Where we receive

    def sender_back(
        self,
        link: IncomingLink,
        theirs: PeerMap | None,
        *,
        is_incomplete: bool,
        may_be_late: bool = False,
    ) -> None:
        """Joins the maps of a suspended link that is about to be attached again.

        Args:
            link: its deliveries adrift are those that both maps may have, afterwards.
            theirs: the sender's map; None: it keeps no state.
            is_incomplete: what it lacks may be unsettled all the same.
            may_be_late: the sender's map may be old.
        """
        self._suspender.release(link)
        self.reducer.begin_comparing(link)
        if may_be_late and link.adrift:
            link.unconfirmed = Unconfirmed()
        if is_incomplete:
            settled = self.reducer.settled(link, theirs or {})
        else:
            settled = lacking(list(link.adrift), theirs)
        absent = life.take_absent(link, settled)
        if link.unconfirmed is not None:
            link.unconfirmed.absent = absent
        else:
            self._forget_absent(link, list(absent.values()))
        self._note("link.resumed", link)

    def sender_confirmed(self, link: IncomingLink) -> None:
        """Records that a sender has read our attach: what its map lacks it has settled."""
        unconfirmed, link.unconfirmed = link.unconfirmed, None
        if unconfirmed is not None and unconfirmed.absent:
            self._forget_absent(link, list(unconfirmed.absent.values()))

    def _forget_absent(self, link: IncomingLink, pairings: list[Pairing]) -> None:
        """Ends deliveries that their sender has forgotten; it may give their tags out anew."""
        if not pairings:
            return
        for pairing in pairings:
            self._sender_forgot(pairing, None)
        self._ledger.sender_forgot(link, pairings)
        self._orphans.leave(link, pairings)
        link.tag_prefix = self._orphans.prefix(link.key)

    def _sender_forgot(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Ends a delivery that its sender has settled, or will not finish."""
        if pairing.parts is not None and not pairing.parts.is_complete:
            self._streams.drop(pairing)
        elif pairing.outcome is not None or is_outcome(state):
            self._settler.sender_settled(pairing, state)
        else:
            self._settler.orphan(pairing)

    def resumed(self, incoming: IncomingLink, delivery: ReceivedDelivery) -> None:
        """Handles a delivery that its sender resumes; one that is not known is ignored (§2.7.5)."""
        pairing = life.back(incoming, delivery.tag)
        if pairing is None:
            incoming.discarding = delivery.number if delivery.more else None
            return
        if pairing.parts is not None and not pairing.parts.is_complete and not delivery.settled:
            self._go_on(incoming, pairing, delivery)
            return
        incoming.discarding = delivery.number if delivery.more else None
        state = delivery.state
        if delivery.settled:
            self._sender_forgot(pairing, state)
        elif is_outcome(state):  # the outcome takes effect there: it is echoed, and settled
            self._turn.update(incoming, (delivery.number,), state, True)
            self._sender_forgot(pairing, state)
        else:
            life.renumber(pairing, delivery.number)
            if pairing.outcome is not None:
                outcome = life.recall(pairing)
                self._settler.send_outcome(pairing, outcome)
                if may_go_on(outcome) and is_given_back_whole(feed_of(pairing).node):
                    self._granter.rewind(incoming)

    def _go_on(self, incoming: IncomingLink, pairing: Pairing, delivery: ReceivedDelivery) -> None:
        """Goes on with a delivery that was cut off in the middle."""
        parts = pairing.parts
        assert parts is not None
        start = delivery.state if isinstance(delivery.state, Received) else START
        here = octets_before(parts.joined(), start)
        life.renumber(pairing, delivery.number)
        self._streams.resumed(pairing, delivery, -1 if here is None else parts.octets - here)

    # Where we send

    def receiver_back(
        self,
        link: OutgoingLink,
        theirs: PeerMap | None,
        *,
        is_incomplete: bool,
    ) -> None:
        """Joins the maps of a suspended link that has just been attached again.

        Args:
            link: joins its node by this; unconfirmed if the receiver's map may be old.
            theirs: the receiver's map; None: it keeps no state.
            is_incomplete: what it lacks may be unsettled all the same.
        """
        self._suspender.release(link)
        self.reducer.begin_comparing(link)
        node = self._registry.enter(link)
        known = theirs or {}
        adrift = link.adrift
        reduces = self.reducer.must_reduce(link, theirs, is_incomplete=is_incomplete)
        listed = [tag for tag in known if tag in adrift] if is_incomplete else adrift
        for tag, pairing in sorted([(tag, adrift[tag]) for tag in listed], key=_by_sequence):
            state: DeliveryState | Absent | None = known.get(tag, ABSENT)
            if link.unconfirmed is None:
                self._decide(link, pairing, state, has_map=theirs is not None)
                if reduces and state is ABSENT and tag in adrift:
                    self.reducer.is_absent(link, pairing)
            elif (reduces and state is ABSENT) or not self._do_unconfirmed(link, pairing, state):
                link.unconfirmed.states[tag] = state
        self._record_anew(link)
        self._note("link.resumed", link)
        if link.resuming:
            self._resuming[link] = None
        if self.reducer.begin(link, theirs, is_incomplete=is_incomplete):
            _hold_back_anew(link)
        else:
            node.returning.discard(link)
            self._registry.join(node, link)
            self._granter.receivers_changed(node)
        self._turn.touch(node)

    def _decide(
        self,
        link: OutgoingLink,
        pairing: Pairing,
        state: DeliveryState | Absent | None,
        *,
        has_map: bool,
    ) -> None:
        """Does what follows from what a receiver's map says of a delivery, and is not old."""
        action = resume(sent_state(pairing), state)
        if isinstance(action, SendAnew):
            self._send_anew(link, pairing, is_sure=has_map and link.settles_second)
        elif isinstance(action, Forget):
            self._ledger.forgotten(link, pairing)
            life.forget(link, pairing)
        else:
            link.postpone(pairing, action)

    def _do_unconfirmed(
        self, link: OutgoingLink, pairing: Pairing, state: DeliveryState | Absent | None
    ) -> bool:
        """Does what follows from a map that may be old, if that does no harm; returns whether."""
        assert link.unconfirmed is not None
        ours = sent_state(pairing)
        action = resume(ours, state)
        if not may_be_done_unconfirmed(ours, action):
            return False
        if isinstance(action, SendAnew):
            if pairing.fan is None and not is_whole(pairing):
                return False
            is_sure = link.unconfirmed.has_map and link.settles_second
            if not is_sure and must_hold(pairing, link):
                return False
            if not is_sure and not self._settler.count_failure(pairing):
                return False
        link.postpone(pairing, action)
        return True

    def receiver_confirmed(self, link: OutgoingLink) -> None:
        """Records that a receiver has read our attach: its map was not old.

        What it lacks and has not been sent again may go to anybody now.
        """
        unconfirmed, link.unconfirmed = link.unconfirmed, None
        if unconfirmed is None:
            return
        anew = [
            pairing
            for pairing, action in link.resuming
            if isinstance(action, SendAnew)
            and pairing.fan is None
            and link.adrift.get(pairing.outgoing_tag) is pairing
        ]
        self._ledger.all_sent_again(link, anew, is_unsent=True)
        for pairing in anew:
            life.forget(link, pairing)
            self._settler.send_again(pairing, link, has_failed=False, elder=Elder.LOST)
        for tag, state in unconfirmed.states.items():
            left = link.adrift.get(tag)
            if left is not None:
                self._decide(link, left, state, has_map=unconfirmed.has_map)
                if link.is_reducing and state is ABSENT and tag in link.adrift:
                    self.reducer.is_absent(link, left)
        self._record_anew(link)
        if link.is_reducing:
            _hold_back_anew(link)
        if link.resuming:
            self._resuming[link] = None
        node = self._registry.node_of(link)
        if node is not None:
            self._turn.touch(node)

    def _send_anew(self, link: OutgoingLink, pairing: Pairing, *, is_sure: bool) -> None:
        """Sends a delivery again of which the receiver knows nothing.

        Args:
            link: it stays adrift there if it is in doubt.
            pairing: the delivery.
            is_sure: the receiver never had it; otherwise it may have settled and forgotten it.
        """
        if not is_sure and must_hold(pairing, link):
            return
        if pairing.fan is not None:
            link.postpone(pairing, SendAnew())  # of a multicast, others have theirs
            return
        self._anew.append((pairing, is_sure))
        life.forget(link, pairing)
        if is_whole(pairing):
            self._settler.send_again(pairing, link, has_failed=not is_sure, elder=Elder.LOST)
            if not is_sure:
                life.end_doubt(pairing)
        else:
            self._settler.try_elsewhere(pairing, link, MODIFIED_FAILED, again=False)

    def _record_anew(self, link: OutgoingLink) -> None:
        """Records which deliveries have left a link to be sent again (YoungestTakenBackFirst)."""
        for pairing, is_sure in reversed(self._anew):
            self._ledger.sent_again(link, pairing, is_unsent=is_sure)
        self._anew.clear()

    def review_doubts(self, node: Node) -> None:
        """Sends again what is in doubt on attached links of a node whose rules want that now."""
        for link in node.outgoing:
            if link.resuming or link.unconfirmed is not None:
                continue  # the maps are still being gone through, by the rules of now
            for pairing in list(link.adrift.values()):
                self._send_anew(link, pairing, is_sure=False)
            self._record_anew(link)
            if link.resuming:
                self._resuming[link] = None

    def pump(self) -> None:
        """Does what is still to be done about resumed deliveries, as far as credit goes."""
        if self._turn.has_resuming:
            self._resuming.update(self._turn.take_resuming())
        if self._resuming:
            for link in list(self._resuming):
                if link.link is not None:
                    self._pump(link)
                if not link.resuming:
                    del self._resuming[link]
        self.reducer.pump()

    def _pump(self, link: OutgoingLink) -> None:
        while link.resuming and is_free(link):
            pairing, action = link.resuming.popleft()
            number = DeliveryNumber(link.next_number)
            if not life.take_up(link, pairing, number):
                continue  # settled by its sender meanwhile, or decided by a person
            link.use_credit(1)
            outgoing = OutgoingDelivery(
                number,
                pairing.outgoing_tag,
                b"",
                pairing.delivery.protocol,
                pairing.delivery.message_format,
                resume=True,
            )
            match action:
                case ResumeFrom(position=position):
                    self._resume_from(link, pairing, number, position)
                case Settle(outcome=outcome) | Restate(outcome=outcome):
                    self._resume_decided(link, pairing, outgoing, outcome)
                case Abort():
                    self._resume_to_abort(link, pairing, outgoing)
                case SendAnew():
                    self._resume_anew(link, pairing, number)
                case Forget():
                    raise AssertionError("needs no transfer")
        if not link.resuming:
            node = self._registry.node_of(link)
            if node is not None:
                self._turn.touch(node)

    def _resume_anew(self, link: OutgoingLink, pairing: Pairing, number: DeliveryNumber) -> None:
        """Sends the whole message once more, by the tag that it has had here."""
        self._turn.flush_link(link)  # it may have been given back just now, and has the same tag
        if link.unconfirmed is not None:
            link.unconfirmed.again.add(number)
        link.tally.redelivered += bool(pairing.attempts)
        outgoing = self._forms.outgoing(link, pairing, number)
        outgoing.tag = pairing.outgoing_tag
        if pairing.parts is not None:
            outgoing.payload, outgoing.state = joined(pairing), None
        self._send_resumed(link, pairing, outgoing)

    def _resume_from(
        self, link: OutgoingLink, pairing: Pairing, number: DeliveryNumber, position: Received
    ) -> None:
        """Sends the payload again, from where the receiver wants it.

        The position is one in the message as it was sent to the receiver: with the sections that
        this router has added.
        """
        parts = pairing.parts
        outgoing = self._forms.outgoing(link, pairing, number)
        outgoing.tag, outgoing.resume, outgoing.state = pairing.outgoing_tag, True, None
        if position == ALL:  # it has all of it, even if the sender has not sent us the rest again
            outgoing.payload, outgoing.state = b"", ALL
            outgoing.ttl_milliseconds = outgoing.delivery_count = None  # they are in its header
            life.track(link, pairing)
            self._turn.send(link, outgoing)
            return
        if parts is not None:
            outgoing.payload = joined(pairing)
        if position != START:
            sent = _as_sent(link, outgoing)
            start = octets_before(sent, position)
            is_unknown = start is None and parts is not None and not parts.is_complete
            if is_unknown or _is_amid_ttl(outgoing, position):
                outgoing.payload = b""
                self._resume_to_abort(link, pairing, outgoing)
                return
            if start is None:
                start = len(sent)  # beyond all that there is: it has everything
            outgoing.payload, outgoing.state = sent[start:], position
            if _is_1_0(link):
                outgoing.protocol = Protocol.AMQP_1_0
        self._send_resumed(link, pairing, outgoing)

    def _send_resumed(
        self, link: OutgoingLink, pairing: Pairing, outgoing: OutgoingDelivery
    ) -> None:
        life.track(link, pairing)
        if pairing.parts is None:
            self._turn.send(link, outgoing)
        else:
            self._streams.start_again(link, pairing, outgoing)

    def _resume_decided(
        self,
        link: OutgoingLink,
        pairing: Pairing,
        outgoing: OutgoingDelivery,
        outcome: DeliveryState,
    ) -> None:
        """Names a delivery whose outcome is known, so that it can be settled."""
        outgoing.state = outcome
        is_known = pairing.outcome is not None
        if not is_known:
            self._ledger.decided(link, pairing, outcome)
        waits = is_known or self._settler.waits_for_sender(pairing, outcome)
        outgoing.settled = pairing.is_settled or not waits
        self._turn.send(link, outgoing)
        if outgoing.settled:
            life.forget(link, pairing)
        else:
            life.track(link, pairing)
        if not is_known and outgoing.settled:
            self._settler.receiver_settled(link, pairing, outcome)
        elif not is_known:
            self._rejections.by_peer(link, outcome)
            self._settler.report_outcome(pairing, outcome)

    def _resume_to_abort(
        self, link: OutgoingLink, pairing: Pairing, outgoing: OutgoingDelivery
    ) -> None:
        """Has the receiver drop what it has of a delivery, which has failed."""
        outgoing.more = True
        self._turn.send(link, outgoing)
        assert link.link is not None
        self._turn.order(link, AbortDelivery(link.link, outgoing.number))
        is_known = pairing.outcome is not None
        life.forget(link, pairing)
        if not is_known:
            self._settler.try_elsewhere(pairing, link, MODIFIED_FAILED, again=False)

    def _note(self, event: str, link: IncomingLink | OutgoingLink) -> None:
        self._notices.add(
            event,
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            count=len(link.adrift),
        )


def knows_nothing(link: IncomingLink, event: LinkAttached) -> bool:
    """Returns whether a sender that comes back knows nothing of what is unsettled on its link.

    Then there is nothing to resume, and the link is a new one: tags that the sender gives out from
    now on may be those of deliveries that it has forgotten, and that are under way here.
    """
    theirs = event.unsettled
    if event.incomplete_unsettled or not link.adrift:
        return False
    return theirs is None or theirs.keys().isdisjoint(link.adrift)


def _hold_back_anew(link: OutgoingLink) -> None:
    """Leaves adrift what may not be sent before both maps are complete (§2.7.3)."""
    kept = [each for each in link.resuming if not isinstance(each[1], SendAnew)]
    if len(kept) < len(link.resuming):
        link.resuming = deque(kept)


def _by_sequence(entry: tuple[DeliveryTag, Pairing]) -> int:
    return entry[1].sequence


def _is_1_0(link: OutgoingLink) -> bool:
    connection = link.connection
    return connection is not None and connection.capabilities.protocol is Protocol.AMQP_1_0


def _as_sent(link: OutgoingLink, outgoing: OutgoingDelivery) -> bytes:
    """Returns the octets in which a receiver's positions count."""
    if link.connection is None or not _is_1_0(link):
        return outgoing.payload
    try:
        return as_sent(outgoing, link.connection.capabilities.traces)
    except RouterError:
        return outgoing.payload  # nothing of it can have been sent


def _is_amid_ttl(outgoing: OutgoingDelivery, position: Received) -> bool:
    """Returns whether a position lies in a header whose ttl is another one by now."""
    return outgoing.ttl_milliseconds is not None and not position.section_number
