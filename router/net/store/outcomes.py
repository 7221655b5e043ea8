"""What becomes of messages that were sent.

    outcome                           the message
    accepted                          is gone
    released                          is sent again, before all behind it, after a pause
    modified, with delivery-failed    likewise, ATTEMPTS times; then it is a dead letter
    rejected, or undeliverable here   is a dead letter; the core says the latter of what is too old
    any, of a dead letter             unless accepted, it is sent again after a pause

What the express lane has noted as accepted is gone by parts of runs; any other outcome comes as a
command. On exactly-once routes a message is settled with the core when it is gone for good, or
waits again.
"""

from collections.abc import Callable, Sequence
from typing import Final

from router.journal.record import OutcomeCode
from router.journal.store.queues import RouteKey
from router.journal.store.reading import StoredMessage
from router.model.events import DeliveriesUpdated, Event
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, Accepted, DeliveryState, Modified, Rejected
from router.net.store.burials import Burials, Cause
from router.net.store.dropping import Dropping
from router.net.store.inlet import Inlet, Roll
from router.net.store.lane import LaneSession
from router.net.store.leaving import Leaving
from router.net.store.links import InletLinks
from router.net.store.turns import Turns

ATTEMPTS: Final = 10
"""How often a message that fails at its target is sent."""

PAUSE_SECONDS: Final = 1.0
PAUSE_LIMIT_SECONDS: Final = 30.0
"""An address whose message came back rests that long; doubled each time until one is accepted."""


class Outcomes:
    """Handles the outcomes of what all inlets have sent."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        *,
        roll: Roll,
        links: InletLinks,
        dropping: Dropping,
        burials: Burials,
        leaving: Leaving,
        turns: Turns,
        lane: LaneSession | None,
    ) -> None:
        """Begins without an outcome.

        Args:
            emit: takes events for the core.
            roll: all inlets.
            links: of the inlets.
            dropping: says why messages are overdue, and drops what comes back and was dropped.
            burials: dead letters that wait.
            leaving: messages that are gone as soon as their records are durable.
            turns: addresses that are about to become empty.
            lane: notes what was accepted; None: the core tells everything.
        """
        self._emit = emit
        self._roll = roll
        self._links = links
        self._dropping = dropping
        self._burials = burials
        self._leaving = leaving
        self._turns = turns
        self._lane = lane

    def updated(
        self,
        link: LinkId,
        numbers: Sequence[DeliveryNumber],
        state: DeliveryState | None,
        now: float,
        *,
        settled: bool,
    ) -> None:
        """Handles the outcome of messages; if they are not settled yet, they are when it lasts."""
        inlet = self._roll.by_link[link]
        if settled and isinstance(state, Accepted) and not self._roll.attempts:
            taken = [self._take(inlet, each) for each in numbers]
            self._all_accepted(inlet, [each for each in taken if each is not None], now)
            return
        back: list[DeliveryNumber] = []
        for number in numbers:
            message = self._take(inlet, number)
            if message is None:
                continue
            sequence = self._judge(inlet, message, state, now)
            if not settled and sequence is not None:
                self._leaving.settle(sequence, link, number)
                inlet.settling += 1
            elif not settled:
                back.append(number)
        if back:
            self._emit(DeliveriesUpdated(link, back, state, True))
        self._roll.stir(inlet)
        self._links.close_idle(inlet)

    def _take(self, inlet: Inlet, number: DeliveryNumber) -> StoredMessage | None:
        """Takes a message out of those without an outcome."""
        message = inlet.sent.pop(number, None)
        if self._lane is not None and (message is None or inlet.state is not None):
            found = self._lane.take(inlet, number)
            return found if message is None else message
        return message

    def follow_lane(self, now: float) -> None:
        """Handles what the express lane has noted."""
        if self._lane is None:
            return
        by_link, accepted = self._roll.by_link, dict[Inlet, int]()
        for link, first, last in self._lane.take_notes():
            if link is None:
                self._accepted(first, last, now, accepted)
            elif link in by_link:
                self._roll.stir(by_link[link])
        for inlet, count in accepted.items():
            inlet.pauses, inlet.accepted_at = 0, now
            self._links.uncount(inlet.name, count)
            self._links.close_idle(inlet)

    def _accepted(self, first: int, last: int, now: float, accepted: dict[Inlet, int]) -> None:
        """Handles that deliveries with numbers from ``first`` to ``last`` were accepted.

        Args:
            first: of the deliveries.
            last: of the deliveries.
            now: the time.
            accepted: counts those of runs.
        """
        assert self._lane is not None
        for found in self._lane.sent_between(first, last):
            if len(found) == 2:  # they came to the lane by the core
                inlet, numbers = found
                self.updated(inlet.link, numbers, ACCEPTED, now, settled=True)
                continue
            run, begin, end = found
            inlet, count = run.inlet, 0
            for one, other in run.end(begin, end):
                self._leaving.forward_run(run.read, one, other, OutcomeCode.ACCEPTED)
                count += other - one
            accepted[inlet] = accepted.get(inlet, 0) + count
            self._roll.stir(inlet)
            if self._burials.has_swept:
                for claim in run.read.claims(begin, end):
                    self._burials.was_swept(claim.place, inlet.name.route)
            self._lane.ended(run)

    def _all_accepted(self, inlet: Inlet, messages: list[StoredMessage], now: float) -> None:
        """Handles messages that were accepted; as ``_judge`` does, for a run of them."""
        if messages:
            inlet.pauses = 0
            inlet.accepted_at = now
            outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
            self._leaving.forward([each.claim for each in messages], outcome, inlet.name.route)
            self._left(inlet, messages)
        self._roll.stir(inlet)
        self._links.close_idle(inlet)

    def _judge(
        self, inlet: Inlet, message: StoredMessage, state: DeliveryState | None, now: float
    ) -> int | None:
        """Handles the outcome of one message.

        Returns:
            The number of the record that says that it is gone; None: it is not.
        """
        place, is_dead = message.claim.place, inlet.name.is_dead
        if state is None or isinstance(state, Accepted):
            inlet.pauses = 0
            inlet.accepted_at = now
            self._roll.attempts.pop(place, None)
            return self._gone(inlet, message)
        sentence = inlet.sentence
        if sentence is not None and place <= sentence.place:
            stays = self._dropping.drop_one(inlet, message, sentence)
            if stays is None:
                return None
            message = stays
        if isinstance(state, Modified) and state.delivery_failed:
            self._roll.attempts[place] = self._roll.attempts.get(place, 0) + 1
        is_undeliverable = isinstance(state, Modified) and state.undeliverable_here
        if not is_dead:
            overdue = self._dropping.overdue
            if is_undeliverable and overdue.is_late(inlet.name.route, message):
                message = message._replace(is_overdue=True)
            cause = self._cause(inlet, message, state)
            if cause is not None:
                self._roll.attempts.pop(place, None)
                self._burials.bury(self._links.of(inlet.name.twin), message, cause)
                return None
        inlet.put_back(message)
        if inlet not in self._roll.resting:
            pause = PAUSE_SECONDS * 2.0 ** min(inlet.pauses, 16)
            inlet.rests_until = now + min(pause, PAUSE_LIMIT_SECONDS)
            inlet.pauses += 1
            self._roll.resting[inlet] = None
            self._turns.end(inlet)
        return None

    def _cause(
        self, inlet: Inlet, message: StoredMessage, state: DeliveryState | None
    ) -> Cause | None:
        """Returns why a message that comes back is a dead letter; None: it is none."""
        if isinstance(state, Rejected):
            return Cause.REJECTED
        if message.is_overdue:
            return self._dropping.cause(inlet.name.route, message)
        if not isinstance(state, Modified):
            return None
        is_last = self._roll.attempts.get(message.claim.place, 0) >= ATTEMPTS
        return Cause.REJECTED if state.undeliverable_here or is_last else None

    def _gone(self, inlet: Inlet, message: StoredMessage) -> int:
        """Records that a message has arrived, at its target or at the dead letters'."""
        outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
        sequence = self._leaving.forward((message.claim,), outcome, inlet.name.route)
        inlet.recalled.discard(message.claim.place)
        self._left(inlet, (message,))
        return sequence

    def _left(self, inlet: Inlet, messages: Sequence[StoredMessage]) -> None:
        """Counts messages of an inlet that have arrived."""
        route, is_dead = inlet.name.route, inlet.name.is_dead
        self._links.uncount(inlet.name._replace(is_dead=False), len(messages))
        if is_dead:
            for message in messages:
                self._burials.unbury(message, route)
        else:
            for message in messages:
                self._burials.was_swept(message.claim.place, route)

    def durable(self, sequence: int) -> dict[RouteKey, int]:
        """Records up to which record everything is durable.

        Returns:
            How many messages are gone now, by route.
        """
        gone, settled = self._leaving.durable(sequence)
        for link, numbers in settled.items():
            inlet = self._roll.by_link.get(link)
            if inlet is not None:
                inlet.settling -= len(numbers)
                self._emit(DeliveriesUpdated(link, numbers, ACCEPTED, True))
                self._links.close_idle(inlet)
        if gone:
            self._roll.stirred.update((e, None) for e in self._roll.by_link.values() if e.held)
        return {route: count for route, count in gone.items() if route is not None}
