"""Settlement: carries receivers' outcomes to senders, and senders' settlement to receivers.

How an outcome travels, by the incoming link's rcv-settle-mode (§2.8.3) and the receiver's action::

    mode first,  receiver settled      outcome to the sender, settled; done
    mode first,  receiver did not      outcome to the sender, settled; settle towards the
                                       receiver; done
    mode second, receiver settled      outcome to the sender, unsettled; done when the sender
                                       settles
    mode second, receiver did not      outcome to the sender, unsettled; when the sender settles,
                                       settle towards the receiver; done

Released, and modified that asks for no change that only the sender can make, send the delivery to
the next receiver before the sender gets an outcome. States that are no outcomes are passed on
unchanged.

A sender only gets an outcome that its source lists (§3.5.3): the nearest one. If none is near, the
delivery is settled without a state, which means the source's default-outcome. A source without a
default-outcome could take that for acceptance, so its link is detached with an error instead.

A delivery in custody has no sender that could send it again. When receivers return it, it is
offered to all of them in turn, then from the first one again. If it fails too often and the route
has dead letters, it goes there. If it is rejected, it goes there too, or is dropped and counted. A
receiver of a multicast is sent again the deliveries that it returns itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from router.core import bulk
from router.core.node import Direction, Feed, Node, feed_of, in_custody
from router.core.outcomes import count, default_outcome, must_be_told, narrow
from router.core.state import State
from router.links import life
from router.links.link import IncomingLink, OutgoingLink, is_away
from router.links.pairing import UNNUMBERED, Pairing, octets_of
from router.model.commands import AbortDelivery
from router.model.condition import RESOURCE_LIMIT_EXCEEDED
from router.model.delivery import Elder, ReceivedDelivery
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryNumber
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    UNSENT,
    Accepted,
    DeliveryState,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    is_outcome,
    may_go_on,
)
from router.routes.distribution import merge_outcomes


class Settler:
    """Carries states and settlement between senders and receivers."""

    def __init__(self, state: State) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._ledger = state.ledger
        self._notices = state.notices
        self._rejections = state.rejections
        self._process = state.registry.process
        self._returned: dict[Pairing, None] = {}
        self._dead: list[Pairing] = []
        self._unlisted: dict[IncomingLink, tuple[Pairing, Outcome]] = {}
        self._stored_again: dict[Node, int] = {}
        self._postponed: list[tuple[Pairing, OutgoingLink | None]] = []

    # Receivers' updates

    def receiver_updated(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        """Handles a receiver's states and settlement of deliveries that we sent."""
        state = event.state
        if not isinstance(state, Accepted | Rejected):
            for number in event.numbers:
                pairing = link.unsettled.get(number)
                if pairing is not None:
                    self._handle_update(link, pairing, state, event.settled)
            return
        unsettled = link.unsettled
        if bulk.shortcuts is not None and isinstance(event.numbers, list):
            answered = bulk.shortcuts.answered(event.numbers, unsettled)
            if answered is not None:
                self._report_run(link, event, *answered)
                return
        run: list[Pairing] = []
        source: IncomingLink | None = None
        is_settled = False
        for number in event.numbers:
            pairing = unsettled.get(number)
            if pairing is None:
                continue
            if pairing.is_unusual or pairing.outcome is not None:
                self._handle_update(link, pairing, state, event.settled)
                continue
            incoming = pairing.incoming
            if incoming is not source or pairing.is_settled is not is_settled:
                if source is not None:
                    self._report_pairings(link, event, source, run)
                source, run, is_settled = incoming, [], pairing.is_settled
            run.append(pairing)
        if source is not None:
            self._report_pairings(link, event, source, run)

    def _report_pairings(
        self,
        link: OutgoingLink,
        event: DeliveriesUpdated,
        incoming: IncomingLink,
        run: list[Pairing],
    ) -> None:
        numbers = [pairing.number for pairing in run]
        octets = sum([len(pairing.delivery.payload) for pairing in run])
        self._report_run(link, event, incoming, run, numbers, octets)

    def _report_run(  # noqa: PLR0917  what is told, and to whom
        self,
        link: OutgoingLink,
        event: DeliveriesUpdated,
        incoming: IncomingLink,
        run: list[Pairing],
        numbers: list[DeliveryNumber],
        octets: int,
    ) -> None:
        """Carries one outcome of a run of ordinary deliveries back to their one sender."""
        if run[0].is_settled:
            self._end_custody(link, event, incoming, run, octets)
            return
        outcome = event.state
        listed = narrow(outcome, incoming.outcomes)
        if listed is None:
            for pairing in run:
                self._handle_update(link, pairing, outcome, event.settled)
            return
        count(link.tally, outcome, len(run))
        count(incoming.tally, outcome, len(run))
        self._rejections.by_peer(link, outcome, len(run))
        self.release_octets(incoming, octets)
        if incoming.settles_second:
            if bulk.shortcuts is not None and not event.settled:
                bulk.shortcuts.answer(run, listed)
            else:
                life.answer_run(run, listed)
                if event.settled:
                    for pairing in run:
                        life.forget(link, pairing)
            self._turn.update(incoming, numbers, listed, False)
            return
        life.settle_run(incoming, link, run)
        self._turn.update(incoming, numbers, listed, True)
        if not event.settled:
            self._turn.update(link, [pairing.outgoing_number for pairing in run], outcome, True)

    def _end_custody(
        self,
        link: OutgoingLink,
        event: DeliveriesUpdated,
        incoming: IncomingLink,
        run: list[Pairing],
        octets: int,
    ) -> None:
        """Ends a run of ordinary deliveries in custody that a receiver has accepted."""
        if not isinstance(event.state, Accepted):
            for pairing in run:
                self._handle_update(link, pairing, event.state, event.settled)
            return
        count(link.tally, event.state, len(run))
        self.release_octets(incoming, octets)
        life.end_run(link, run)
        if not event.settled:
            self._turn.update(link, [pairing.outgoing_number for pairing in run], event.state, True)

    def _handle_update(
        self, link: OutgoingLink, pairing: Pairing, state: DeliveryState | None, settled: bool
    ) -> None:
        """Handles a receiver's state or settlement of one delivery."""
        if not settled and not is_outcome(state):
            self._carry_back(pairing, state)
            return
        outcome = state if is_outcome(state) else default_outcome(link)
        if pairing.outcome is not None:  # the sender has been told and is yet to settle
            if settled:
                life.forget(link, pairing)
            return
        count(link.tally, outcome, 1)
        self._rejections.by_peer(link, outcome)
        if link.partial is pairing:
            self.interrupt(link, pairing)
            self.try_elsewhere(pairing, link, outcome, again=may_go_on(outcome))
        elif pairing.fan is not None:
            self._leave(link, pairing, outcome, settled)
            if life.take_refusal(pairing) is not None:
                self._postponed.append((pairing, link))
            elif not self._give_again(link, pairing, outcome):
                self._branch_done(pairing, outcome)
        elif may_go_on(outcome):
            self._leave(link, pairing, outcome, settled)
            self._note_returned(link, pairing)
            self.try_elsewhere(pairing, link, outcome, again=True)
        else:
            if settled or pairing.is_settled or not _settles_second(pairing):
                self._leave(link, pairing, outcome, settled)
            self._note_given_back(pairing, outcome)
            self.report_outcome(pairing, outcome)

    def waits_for_sender(self, pairing: Pairing, outcome: DeliveryState | None) -> bool:
        """Returns whether the receiver stays unsettled until the sender has settled."""
        three_ways = _settles_second(pairing) and not pairing.is_settled
        return three_ways and pairing.fan is None and not may_go_on(outcome)

    def receiver_settled(
        self, link: OutgoingLink, pairing: Pairing, outcome: DeliveryState | None
    ) -> None:
        """Handles the outcome of a delivery that its receiver has settled and forgotten."""
        outcome = RELEASED if outcome == UNSENT else outcome
        count(link.tally, outcome, 1)
        self._rejections.by_peer(link, outcome)
        if pairing.fan is not None or may_go_on(outcome):
            self._note_returned(link, pairing)
            self.try_elsewhere(pairing, link, outcome, again=True)
        else:
            self._note_given_back(pairing, outcome)
            self.report_outcome(pairing, outcome)

    def _note_returned(self, link: OutgoingLink, pairing: Pairing) -> None:
        """Counts what targets return of a route that may store; it may go to others first."""
        node = feed_of(pairing).node
        if node.taker is not None and not link.keeps:
            self._stored_again[node] = self._stored_again.get(node, 0) + 1

    def _note_given_back(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Counts what goes back to the store because its targets do not take it."""
        node = feed_of(pairing).node
        if node.key.direction is Direction.STORED and isinstance(outcome, Released | Modified):
            self._stored_again[node] = self._stored_again.get(node, 0) + 1

    def take_back(self, link: OutgoingLink, count: int) -> int:
        """Takes back deliveries about to be sent, the last first, and offers them to other links.

        When a receiver revokes credit during a turn, that credit no longer covers them and may
        never be granted again.

        Returns:
            how many there were; those begun in parts, or sent settled, are sent all the same.
        """
        back = self._turn.take_back(link, count)
        for delivery in back:
            pairing = link.unsettled[delivery.number]
            life.forget(link, pairing)
            self.send_again(pairing, link, has_failed=False)
        return len(back)

    def was_not_sent(self, link: OutgoingLink, numbers: Iterable[DeliveryNumber]) -> None:
        """Queues deliveries again that another worker has not passed on to their receiver."""
        found = [each for number in numbers if (each := link.unsettled.get(number)) is not None]
        self._ledger.all_sent_again(link, found, is_unsent=True)
        for pairing in found:
            if pairing.fan is not None:
                life.send_again(link, pairing)
                self._turn.resume(link)
            else:
                life.forget(link, pairing)
                self.send_again(pairing, link, has_failed=False)

    def take_back_unsent(self, link: OutgoingLink, pairing: Pairing, settled: bool) -> None:
        """Ends a delivery at another worker or router, which has sent it to nobody."""
        count(link.tally, UNSENT, 1)
        self._leave(link, pairing, UNSENT, settled)

    def _leave(
        self, link: OutgoingLink, pairing: Pairing, state: DeliveryState | None, settled: bool
    ) -> None:
        """Ends a delivery at the receiver, which has settled it or is sent the settlement now."""
        if not settled:
            self._turn.update(link, (pairing.outgoing_number,), state, True)
        life.forget(link, pairing)

    def _carry_back(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Passes a state that is no outcome to the sender, unless there are several receivers."""
        incoming = pairing.incoming
        if pairing.fan is None and pairing.number in incoming.unsettled:
            life.report(pairing, state)
            self._turn.update(incoming, (pairing.number,), state, False)

    # The next receiver, or the sender

    def interrupt(self, link: OutgoingLink, sink: Pairing) -> None:
        """Aborts an unfinished delivery at one receiver, which settles it too (§2.7.5)."""
        trunk = trunk_of(sink)
        if trunk.parts is not None and sink in trunk.parts.sinks:
            trunk.parts.sinks.remove(sink)
        if link.partial is sink:
            link.partial = None
            if link.link is not None:
                self._turn.order(link, AbortDelivery(link.link, sink.outgoing_number))
            else:
                self._ledger.forgotten(link, sink)  # what was not finished was not acted upon
            self._turn.touch(feed_of(sink).node)
        life.forget(link, sink)
        self._turn.stream_moved(trunk)

    def try_elsewhere(
        self,
        pairing: Pairing,
        link: OutgoingLink,
        outcome: DeliveryState | None,
        *,
        again: bool,
    ) -> None:
        """Continues with a delivery that is no longer at a receiver.

        Args:
            pairing: the delivery, or a branch of it.
            link: where it was.
            outcome: the sender's outcome if no other receiver takes it.
            again: another receiver may be tried.
        """
        parts = pairing.parts
        if pairing.fan is not None:
            self._branch_done(pairing, outcome)
        elif again and (parts is None or (parts.is_whole and not parts.has_verdict)):
            self._try_next(pairing, link, outcome)
        elif pairing.is_settled:
            self.answer(pairing, RELEASED)
        else:
            self.report_outcome(pairing, outcome)

    def _try_next(
        self, pairing: Pairing, link: OutgoingLink, outcome: DeliveryState | None
    ) -> None:
        """Offers a delivery that a receiver returned to the other receivers."""
        life.give_back(pairing, link.trial, outcome)
        _rank(pairing, link, Elder.RETURNED)
        pairing.parts_sent = 0
        self._returned[pairing] = None

    @property
    def returned(self) -> Collection[Pairing]:
        """Deliveries returned during the turn that are not in a queue yet."""
        return self._returned

    @property
    def has_left(self) -> bool:
        """Whether deliveries are to be queued again, buried or postponed."""
        return bool(self._returned or self._dead or self._postponed)

    def flush_returned(self) -> Mapping[Feed, Sequence[Pairing]]:
        """Queues the deliveries returned during the turn, in their order; returns them."""
        returned, self._returned = self._returned, {}
        feeds: dict[Feed, list[Pairing]] = {}
        for pairing in returned:
            has_end = not in_custody(pairing) or _has_dead_letters(pairing)
            if has_end and _failures(pairing) >= self._settings.attempts:
                self.give_up(pairing)
            else:
                feeds.setdefault(feed_of(pairing), []).append(pairing)
        for feed, pairings in feeds.items():
            feed.node.put_back(feed, sorted(pairings, key=lambda p: p.sequence))
            self._turn.touch(feed.node)
        return feeds

    def send_again(
        self,
        pairing: Pairing,
        link: OutgoingLink | None = None,
        *,
        has_failed: bool,
        elder: Elder = Elder.TAKEN_BACK,
    ) -> None:
        """Queues a delivery again that its receiver does not know.

        Args:
            pairing: the delivery, at no receiver any more.
            link: where it was, or was to go; None: in parts to several.
            has_failed: it may have arrived there nevertheless.
            elder: what it is then, if its route stores.
        """
        if link is not None:
            _rank(pairing, link, elder)
        if has_failed:
            life.fail(pairing, MODIFIED_FAILED)
        pairing.parts_sent = 0
        self._returned[pairing] = None

    def count_failure(self, pairing: Pairing) -> bool:
        """Counts an attempt in doubt; False, without counting: it was the last permitted one."""
        is_exact = feed_of(pairing).node.is_exact
        if not is_exact and pairing.attempts + 1 >= self._settings.attempts:
            return False
        life.fail_in_doubt(pairing)
        return True

    # Deliveries that are put off

    def take_postponed(self) -> list[tuple[Pairing, OutgoingLink | None]]:
        """Returns deliveries to put off, each with the receiver of a multicast that refused it."""
        postponed, self._postponed = self._postponed, []
        return postponed

    def postpone(self, pairing: Pairing) -> None:
        """Puts a delivery off that nobody takes now."""
        self._postponed.append((pairing, None))

    def bury(self, pairing: Pairing) -> None:
        """Has a delivery that nobody takes go to the dead letters of its route."""
        self._dead.append(pairing)

    def release_branch(self, branch: Pairing) -> None:
        """Ends a multicast's delivery to one receiver, which is gone and was never sent it."""
        self._branch_done(branch, RELEASED)

    def try_anew(self, pairing: Pairing, link: OutgoingLink | None) -> None:
        """Offers a delivery again: to every receiver, or to one receiver of a multicast."""
        if link is None:
            life.try_again_from_first(pairing)
            self._returned[pairing] = None
        elif is_away(link):
            self._branch_done(pairing, RELEASED)
        else:
            life.send_again(link, pairing)
            self._turn.resume(link)

    def give_up(self, pairing: Pairing) -> None:
        """Sends the outcome of a delivery that no receiver will take; a refused one is put off."""
        refusal = life.take_refusal(pairing)
        if refusal is None:
            outcome = RELEASED if pairing.failure is None else pairing.failure
            self._note_given_back(pairing, outcome)
            self.answer(pairing, outcome)
        elif refusal is life.REFUSED and feed_of(pairing).node.route.dead_letter is not None:
            self.bury(pairing)
        else:
            self.postpone(pairing)

    def give_up_all(self, node: Node) -> None:
        """Sends the outcomes of deliveries queued at a node that gets no receivers any more."""
        for pairing in [each for each in self._returned if feed_of(each).node is node]:
            del self._returned[pairing]
            self.give_up(pairing)
        for feed in tuple(node.rotation):
            for pairing in tuple(feed.waiting):
                node.withdraw(feed, pairing)
                self.give_up(pairing)

    def expire(self, pairing: Pairing) -> None:
        """Sends the outcome of a delivery whose time to live ended before it was forwarded."""
        pairing.incoming.tally.expired += 1
        self.answer(pairing, MODIFIED_UNDELIVERABLE)

    def answer(self, pairing: Pairing, outcome: Outcome) -> None:
        """Ends a delivery that is at no receiver with an outcome, which is the router's own."""
        self._rejections.by_router(pairing, outcome)
        self._answer(pairing, outcome)

    def _answer(self, pairing: Pairing, outcome: Outcome) -> None:
        if not pairing.is_settled:
            self.report_outcome(pairing, outcome)
            return
        if isinstance(outcome, Rejected):
            self._rejections.untold(pairing)
        if in_custody(pairing) and _has_dead_letters(pairing):
            self._dead.append(pairing)
        else:
            self.free(pairing)
            self._ledger.dropped(pairing, outcome)
            if _is_repeated(pairing):
                return
            tally = pairing.incoming.tally
            tally.dropped += 1
            self._notices.add(
                "delivery.dropped",
                link=pairing.incoming.key.name,
                address=pairing.delivery.address or pairing.incoming.address,
                condition=str(outcome),
            )

    def turn_away(self, incoming: IncomingLink, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Drops settled deliveries for which there is no memory."""
        tally = incoming.tally
        tally.deliveries += len(deliveries)
        tally.settled += len(deliveries)
        tally.octets += sum([len(delivery.payload) for delivery in deliveries])
        tally.dropped += len(deliveries)
        self._notices.add(
            "delivery.dropped",
            link=incoming.key.name,
            address=incoming.address,
            condition=RESOURCE_LIMIT_EXCEEDED,
            count=len(deliveries),
        )

    def take_dead(self) -> list[Pairing]:
        """Returns and removes deliveries in custody that must go to their routes' dead letters."""
        dead, self._dead = self._dead, []
        return dead

    def report_outcome(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Sends the outcome, or keeps it until the sender resumes.

        A delivery that is still arriving is answered after its last part.
        """
        incoming, parts = pairing.incoming, pairing.parts
        if parts is not None and not parts.is_complete:
            parts.verdict, parts.has_verdict = outcome, True
            self.account(incoming, -parts.kept_octets)
            parts.drop()
            self._turn.stream_moved(pairing)
            return
        if pairing.is_settled:
            if in_custody(pairing) and isinstance(outcome, Rejected | Released | Modified):
                self._answer(pairing, outcome)
            else:
                self.free(pairing)
            return
        self.free(pairing)
        count(incoming.tally, outcome, 1)
        listed = narrow(outcome, incoming.outcomes)
        is_here = pairing.number in incoming.unsettled
        if (
            listed is None
            and isinstance(outcome, Outcome)
            and is_here
            and must_be_told(incoming, outcome)
        ):
            life.report_settled(pairing)
            self._unlisted.setdefault(incoming, (pairing, outcome))
            self._settle_receiver(pairing, outcome)
        else:
            self.send_outcome(pairing, listed)

    def take_stored_again(self) -> Mapping[Node, int]:
        """Returns how many deliveries of stored routes were given back, by their nodes."""
        again, self._stored_again = self._stored_again, {}
        return again

    def take_unlisted(self) -> Mapping[IncomingLink, tuple[Pairing, Outcome]]:
        """Returns senders whose source lists no fitting outcome, each with such a delivery."""
        unlisted, self._unlisted = self._unlisted, {}
        return unlisted

    def send_outcome(self, pairing: Pairing, outcome: DeliveryState | None) -> None:
        """Sends the outcome to the sender now, or keeps it until the delivery is resumed."""
        incoming = pairing.incoming
        if pairing.number == UNNUMBERED:
            life.answer(pairing, ACCEPTED if outcome is None else outcome)  # settled: it was taken
            self._ledger.kept(pairing, outcome)
        elif _settles_second(pairing) and outcome is not None:
            life.answer(pairing, outcome)
            life.report(pairing, outcome)
            self._turn.update(incoming, (pairing.number,), outcome, False)
        else:
            life.report_settled(pairing)
            self._turn.update(incoming, (pairing.number,), outcome, True)
            if pairing.fan is None:  # it may have been kept for a sender that was away
                self._settle_receiver(pairing, outcome)

    # Several receivers

    def fanned_out(self, trunk: Pairing) -> None:
        """Ends a multicast at once if no receiver's outcome is awaited."""
        fan, parts = trunk.fan, trunk.parts
        if fan is None or fan.branches or (parts is not None and parts.sinks):
            return
        outcome = merge_outcomes(fan.outcomes)
        if in_custody(trunk):
            self._ledger.fan_ended(trunk)
        elif trunk.is_settled:
            self._ledger.kept(trunk, outcome)  # a sender that redelivers may bring it again
        self.report_outcome(trunk, outcome)

    def _give_again(
        self, link: OutgoingLink, branch: Pairing, outcome: DeliveryState | None
    ) -> bool:
        """Sends a returned delivery to its multicast receiver again; False: it must not be sent."""
        parts = branch.parts
        if (
            not in_custody(branch)
            or not may_go_on(outcome)
            or life.bars(outcome)
            or is_away(link)
            or link.ways == ()
            or (parts is not None and not (parts.is_whole and parts.is_complete))
        ):
            return False
        life.count_failure(branch, outcome)
        branch.parts_sent = 0
        life.send_again(link, branch)
        self._turn.resume(link)
        return True

    def _branch_done(self, branch: Pairing, outcome: DeliveryState | None) -> None:
        """Handles the outcome of one of several receivers."""
        fan = branch.fan
        assert fan is not None
        fan.branches.discard(branch)
        if outcome is None:
            outcome = ACCEPTED  # settled without a word: it has been taken
        if isinstance(outcome, Outcome):
            fan.outcomes.append(outcome)
        self.fanned_out(fan.trunk)

    def sent_settled(self, pairing: Pairing) -> None:
        """Records that a delivery was sent settled: no disposition will follow."""
        if pairing.fan is not None:
            pairing.fan.outcomes.append(ACCEPTED)
        elif pairing.is_settled:
            self.free(pairing)
        else:
            self.report_outcome(pairing, ACCEPTED)

    # Senders' updates

    def sender_updated(self, incoming: IncomingLink, event: DeliveriesUpdated) -> None:
        """Handles a sender's states and settlement of deliveries that it sent."""
        unsettled, state = incoming.unsettled, event.state
        if not event.settled:
            for number in event.numbers:
                if (pairing := unsettled.get(number)) is not None:
                    self._carry_on(pairing, state)
            return
        if bulk.shortcuts is not None and isinstance(event.numbers, list):
            ended = bulk.shortcuts.settled_by_sender(event.numbers, unsettled, state)
            if ended is not None:
                receiver, outcome, numbers = ended
                self._turn.update(receiver, numbers, outcome, True)
                return
        link: OutgoingLink | None = None
        final: DeliveryState | None = None
        settling: list[DeliveryNumber] = []
        for number in event.numbers:
            pairing = life.settled_by_sender(incoming, number)
            if pairing is None:
                continue
            known = pairing.outcome if state is None else state
            if pairing.is_unusual or pairing.outgoing is None or pairing.outcome is None:
                self.sender_settled(pairing, state)
                continue
            if pairing.outgoing is not link or known is not final:
                if link is not None:
                    self._turn.update(link, settling, final, True)
                link, final, settling = pairing.outgoing, known, []
            settling.append(pairing.outgoing_number)
            life.set_settled(pairing)
            life.forget(link, pairing)
        if link is not None:
            self._turn.update(link, settling, final, True)

    def sender_settled(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Ends a delivery that its sender has settled, as in step three of mode second.

        A delivery without an outcome is in custody from now on; except with exactly-once, where the
        sender may reuse the tag by which the receiver knows it.
        """
        life.set_settled(pairing)
        final = state if state is not None else pairing.outcome
        fan, link, parts = pairing.fan, pairing.outgoing, pairing.parts
        if final is None:
            life.take_custody(pairing)
            if in_custody(pairing) and not feed_of(pairing).node.is_exact:
                return
        if parts is not None and parts.sinks:
            return  # it goes on to its end; nobody waits for the outcome
        if fan is not None:
            for branch in list(fan.branches):
                self._settle_unanswered(branch, final)
            fan.branches.clear()
        elif link is not None and pairing.outcome is None:
            self._settle_unanswered(pairing, final)
        elif link is not None:
            self._settle_receiver(pairing, final)
        elif pairing.outcome is None and is_outcome(state):
            self.withdraw(pairing)
        else:  # answered and done; or still queued
            life.take_custody(pairing)
            return
        self.free(pairing)

    def orphan(self, pairing: Pairing) -> None:
        """Lets a delivery without a sender run to its outcome at the receiver."""
        life.orphan(pairing)
        if pairing.outcome is not None:
            self.sender_settled(pairing, None)

    def _settle_unanswered(self, pairing: Pairing, state: DeliveryState | None) -> None:
        if pairing.outgoing is not None:
            self._ledger.settles_early(pairing.outgoing)
        self._settle_receiver(pairing, state)

    def _settle_receiver(self, pairing: Pairing, state: DeliveryState | None) -> None:
        link = pairing.outgoing
        if link is None or link.partial is pairing:
            return
        if pairing.outgoing_number != UNNUMBERED:
            self._turn.update(link, (pairing.outgoing_number,), state, True)
        elif not is_away(link) or link.is_resuming:
            return  # it is about to be resumed, and is settled by that
        else:
            self._ledger.forgotten(link, pairing)
        life.forget(link, pairing)

    def withdraw(self, pairing: Pairing) -> None:
        """Removes a delivery from its queue, if it waits there or is about to."""
        self._returned.pop(pairing, None)
        feed = feed_of(pairing)
        feed.node.withdraw(feed, pairing)
        self._turn.review_credit(feed.incoming)

    def _carry_on(self, pairing: Pairing, state: DeliveryState | None) -> None:
        """Passes a sender's state, settled by neither side yet, to the receivers.

        Positions of ``received`` are not passed on: they are between sender and router (§3.4.1).
        """
        if isinstance(state, Received):
            return
        pairing.delivery.state = state
        attempts = pairing.fan.branches if pairing.fan is not None else (pairing,)
        for attempt in attempts:
            if attempt.outgoing is not None:
                self._turn.update(attempt.outgoing, (attempt.outgoing_number,), state, False)

    # Octets

    def account(self, incoming: IncomingLink, octets: int) -> None:
        """Counts payload of deliveries without an outcome."""
        incoming.octets += octets
        self._process.used += octets
        if incoming.connection is not None:
            incoming.connection.octets.used += octets
            if octets < 0 and (incoming.is_over or incoming.connection.is_ahead):
                self._turn.review_credit(incoming)

    def release_octets(self, incoming: IncomingLink, octets: int) -> None:
        """Uncounts payload that is no longer needed."""
        self.account(incoming, -octets)

    def free(self, pairing: Pairing) -> None:
        """Drops a delivery's payload, including parts that are still to arrive."""
        self.account(pairing.incoming, -octets_of(pairing))
        pairing.delivery.payload = b""
        pairing.parts = None


def _rank(pairing: Pairing, link: OutgoingLink, elder: Elder) -> None:
    """Lets what comes back from a target of a stored route go before what is stored since."""
    if not link.keeps and feed_of(pairing).node.taker is not None:
        life.set_elder(pairing, elder)


def _failures(pairing: Pairing) -> int:
    """Returns how many attempts count against the limit.

    With exactly-once an attempt in doubt does not: its sender would hear that a message has failed
    that its target may have. With at-least-once it does: a message may be what ends its receivers.
    """
    is_exact = feed_of(pairing).node.is_exact
    return pairing.attempts - pairing.doubts if is_exact else pairing.attempts


def _settles_second(pairing: Pairing) -> bool:
    delivery = pairing.delivery
    if delivery.settles_first:
        return False
    return pairing.incoming.settles_second or delivery.settles_second


def trunk_of(pairing: Pairing) -> Pairing:
    """Returns the pairing that the sender knows."""
    return pairing if pairing.fan is None else pairing.fan.trunk


def _is_repeated(pairing: Pairing) -> bool:
    """Returns whether the router that has sent a delivery, and has no outcome, sends it again."""
    return pairing.incoming.node is not None and not pairing.delivery.settled


def _has_dead_letters(pairing: Pairing) -> bool:
    """Returns whether a delivery can go to its route's dead letters: it must be complete here."""
    parts = pairing.parts
    is_here = parts is None or (parts.is_whole and not parts.has_verdict)
    return is_here and feed_of(pairing).node.route.dead_letter is not None
