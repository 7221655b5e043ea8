"""How the inlets send: what waits as deliveries for the core, runs by the express lane.

    a run --bring--> the lane: no object is made of a message
       '-----------> waiting --credit--> sent, as deliveries to the core
    lent --credit--> read, a run
    held -----------> resumed (``resuming``)

All of one address goes in one order, by priority and place (``rank``).
"""

import bisect
import struct
from collections.abc import Callable
from typing import Final

from router.journal.record import NO_KEY, PROTOCOLS
from router.journal.store.reading import StoredMessage
from router.journal.store.runs import MessagesRead
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesReceived, Event
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.serial import MASK
from router.net.store.dropping import Dropping
from router.net.store.fetching import Fetching
from router.net.store.inlet import Inlet, Roll, rank
from router.net.store.lane import LaneSession
from router.net.store.leaving import Leaving

_TAG: Final = struct.Struct(">Q")
_NANOSECONDS_A_MILLISECOND: Final = 1_000_000


class InletSending:
    """Sends the messages of all inlets."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        clock_ns: Callable[[], int],
        *,
        roll: Roll,
        fetching: Fetching,
        dropping: Dropping,
        leaving: Leaving,
        lane: LaneSession | None,
    ) -> None:
        """Begins with nothing sent.

        Args:
            emit: takes events for the core.
            clock_ns: nanoseconds since 1970.
            roll: all inlets.
            fetching: what is lent.
            dropping: takes out what must not be sent.
            leaving: messages that are gone as soon as their records are durable.
            lane: brings what it can; None: the core is told of everything.
        """
        self._emit = emit
        self._clock_ns = clock_ns
        self._roll = roll
        self._fetching = fetching
        self._dropping = dropping
        self._leaving = leaving
        self._lane = lane
        self._number = 0

    def send_all(self, inlet: Inlet) -> None:
        """Sends what waits and what is lent, in their order, as far as there is credit."""
        if inlet.waiting:
            self._send(inlet)
        lending = self._fetching.lending
        while (credit := inlet.credit) > 0:
            reference = lending.take(inlet, credit)
            run = None if reference is None else self._fetching.read(inlet, reference)
            if run is None:
                return
            lending.was_read(inlet, len(run), len(run.heap))
            self.handle_run(inlet, run)
            if inlet.waiting:
                self._dropping.bury_late(inlet)
                self._send(inlet)

    def _send(self, inlet: Inlet) -> None:
        """Sends what waits and goes before what is lent, as far as there is credit."""
        most, lent = inlet.credit, self._fetching.lending.rank(inlet)
        if lent is not None:
            most = min(most, bisect.bisect_left(inlet.waiting, lent, key=rank))
        run, inlet.waiting = inlet.waiting[:most], inlet.waiting[most:]
        if not run:
            return
        inlet.credit -= len(run)
        first = self._next_number(inlet, len(run))
        numbers = [DeliveryNumber(each & MASK) for each in range(first, first + len(run))]
        inlet.sent.update(zip(numbers, run, strict=True))
        is_dead = inlet.name.is_dead
        pairs = zip(numbers, run, strict=True)
        deliveries = [self._delivery(number, each, is_dead) for number, each in pairs]
        self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _next_number(self, inlet: Inlet, count: int) -> int:
        """Returns the number of the first of some deliveries that are sent now."""
        if self._lane is not None:
            return self._lane.sends(inlet, count)
        first, self._number = self._number, (self._number + count) & MASK
        return first

    def _delivery(
        self, number: DeliveryNumber, message: StoredMessage, is_dead: bool
    ) -> ReceivedDelivery:
        place = message.claim.place
        made = ReceivedDelivery(
            number,
            DeliveryTag(_TAG.pack(place)),
            message.payload,
            PROTOCOLS[message.protocol],
            message.message_format,
        )
        ends_ns, most = message.ttl_ends_ns, message.ttl_milliseconds
        if ends_ns is not None and most is not None and not is_dead:
            left = -((self._clock_ns() - ends_ns) // _NANOSECONDS_A_MILLISECOND)  # rounded up
            made.ttl_milliseconds = min(max(1, left), most)  # the clock may have been set back
        made.delivery_count = message.delivery_count + self._roll.attempts.get(place, 0)
        if message.key != NO_KEY:
            made.key = message.key
        return made

    def handle_run(self, inlet: Inlet, answer: MessagesRead) -> None:
        """Has the lane send messages that were read, or keeps them as those that wait."""
        if inlet.elders:
            inlet.has_read(answer.messages)
        brought = self._bring(inlet, answer)
        messages = answer.messages[brought:] if brought < len(answer) else []
        if not messages:
            return
        if not inlet.waiting or rank(inlet.waiting[-1]) < rank(messages[0]):
            inlet.waiting += messages
        else:
            for message in messages:
                inlet.put_back(message)

    def _bring(self, inlet: Inlet, run: MessagesRead) -> int:
        """Has the express lane send a run, as far as it can; returns how many it has taken."""
        if (
            self._lane is None
            or inlet.state is None
            or inlet.elders
            or inlet in self._roll.resting
            or (inlet.waiting and rank(inlet.waiting[0]) < run.last_rank)
            or (inlet.sentence is not None and run.place(0) <= inlet.sentence.place)
            or not self._dropping.overdue.are_early(inlet.name.route, run)
        ):
            return 0
        return self._lane.bring(inlet, run)

    def resume(self, inlet: Inlet) -> None:
        """Resumes what is held, as far as it is known what became of it."""
        deliveries = []
        for place, message in tuple(inlet.held.items()):
            if message is None or not inlet.credit:
                continue
            is_gone = not isinstance(message, StoredMessage)
            if is_gone and self._leaving.is_going(place):
                continue
            del inlet.held[place]
            inlet.credit -= 1
            number = DeliveryNumber(self._next_number(inlet, 1))
            if isinstance(message, StoredMessage):
                inlet.sent[number] = message
                inlet.recalled.add(place)
            tag = DeliveryTag(place.to_bytes(8, "big"))
            deliveries.append(ReceivedDelivery(number, tag, b"", settled=is_gone, resume=True))
        if deliveries:
            self._emit(DeliveriesReceived(inlet.link, deliveries))
