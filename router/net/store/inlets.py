"""The links on which the store sends messages to the core.

One *inlet* for each address of a route with messages, and one for its dead letters. An inlet asks
the store for as many messages as the core has granted credit for, and sends them in their order.

    store --MESSAGE--> waiting --credit--> sent --outcome--> gone, waiting again, or a dead letter

    outcome                           the message
    accepted                          is gone
    released                          is sent again, before all behind it, after a pause
    modified, with delivery-failed    likewise, ATTEMPTS times; then it is a dead letter
    rejected, or undeliverable here   is a dead letter
    any, of a dead letter             unless accepted, it is sent again after a pause

Messages that are too old, or were dropped, come as dead letters from the store.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import attrs

from router.journal.record import NO_KEY, PROTOCOLS, OutcomeCode
from router.journal.store.asks import Flow, MessageRead
from router.journal.store.client import StoreClient
from router.journal.store.place import Place
from router.journal.store.queues import Claim, RouteKey
from router.journal.store.reading import StoredMessage
from router.model.commands import GrantCredit
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    CreditReturned,
    DeliveriesReceived,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import Accepted, DeliveryState, Modified, Rejected
from router.model.terminus import Role, SenderSettleMode, Source, Target

WINDOW: Final = 256
"""Messages of one address that are asked for at once."""

OVERDUE_WINDOW: Final = 64
"""Messages of one route that are too old, or were dropped, and are asked for at once."""

BACKLOG: Final = 1000
"""Dead letters of one route that wait here; while there are more, it is asked for nothing."""

ATTEMPTS: Final = 10
"""How often a message that fails at its target is sent."""

PAUSE_SECONDS: Final = 1.0
PAUSE_LIMIT_SECONDS: Final = 30.0
"""An address whose message came back rests that long; doubled each time until one is accepted."""

REFUSED_SECONDS: Final = 5.0
"""Pause before an inlet that was refused is attached again."""

_TTL_MOST: Final = 0xFFFF_FFFF
_NANOSECONDS_A_MILLISECOND: Final = 1_000_000


class Name(NamedTuple):
    """Names an inlet."""

    route: RouteKey
    address: bytes
    is_dead: bool


@attrs.define(eq=False)
class Inlet:
    """A link on which messages are sent.

    Attributes:
        name: of the inlet.
        link: the core's name for it.
        is_attached: the core has answered.
        is_announced: the store has messages for it.
        credit: deliveries that may still be sent.
        waiting: messages to be sent, in their order.
        sent: those without an outcome, by number.
        rests_until: while it rests nothing is sent before that time.
        pauses: how often it has rested since a message was accepted.
    """

    name: Name
    link: LinkId
    is_attached: bool = False
    is_announced: bool = False
    credit: int = 0
    waiting: list[StoredMessage] = attrs.field(factory=list)
    sent: dict[DeliveryNumber, StoredMessage] = attrs.field(factory=dict)
    rests_until: float = 0.0
    pauses: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has, and expects, no message."""
        return not (self.is_announced or self.waiting or self.sent)

    def put_back(self, message: StoredMessage) -> None:
        """Puts a message in its place among those that wait."""
        bisect.insort(self.waiting, message, key=_place)


class Inlets:
    """All links on which messages are sent.

    Attributes:
        going: messages that are gone as soon as their records are durable, with the records.
        dead: how many messages have become dead letters.
    """

    def __init__(
        self,
        client: StoreClient,
        emit: Callable[[Event], None],
        clock_ns: Callable[[], int],
        link_ids: Iterator[LinkId],
        properties: Callable[[bool], dict[object, object]],
    ) -> None:
        """Begins without a link.

        Args:
            client: asks the store.
            emit: takes events for the core.
            clock_ns: nanoseconds since 1970.
            link_ids: shared with the worker's other engines.
            properties: of an attach; whether it is for dead letters.
        """
        self.going: list[tuple[int, Claim, int]] = []
        self.dead = 0
        self._client = client
        self._emit = emit
        self._clock_ns = clock_ns
        self._link_ids = link_ids
        self._properties = properties
        self._by_name: dict[Name, Inlet] = {}
        self._by_link: dict[LinkId, Inlet] = {}
        self._again: dict[Name, float] = {}
        self._asked: dict[tuple[RouteKey, bytes], int] = {}
        self._backlog: dict[RouteKey, int] = {}
        self._attempts: dict[Place, int] = {}
        self._swept: set[Place] = set()
        self._stirred: dict[Inlet, None] = {}
        self._resting: dict[Inlet, None] = {}
        self._number = 0

    # The store's side

    def announced(self, route: RouteKey, address: bytes, messages: int) -> None:
        """Records that the store has messages for an address, or has none any more."""
        name = Name(route, address, False)
        inlet = self._by_name.get(name)
        if messages:
            inlet = self._inlet(name)
            inlet.is_announced = True
            self._stirred[inlet] = None
        elif inlet is not None:
            inlet.is_announced = False
            self._close_idle(inlet)

    def read(self, answer: MessageRead) -> None:
        """Handles a message that the store has read."""
        message, route = answer.message, answer.route
        name = route, message.address.encode()
        if answer.is_swept:
            self._swept.add(message.claim.place)
        else:
            left = self._asked.pop(name, 0) - 1
            if left > 0:
                self._asked[name] = left
        inlet = self._inlet(Name(*name, message.is_overdue))
        if message.is_overdue:
            self._bury(inlet, message)
        else:
            inlet.put_back(message)
        self._stirred[inlet] = None

    # The core's side

    def owns(self, link: LinkId) -> bool:
        """Returns whether a link is one of these."""
        return link in self._by_link

    def attached(self, link: LinkId) -> None:
        """Records the core's answer to an attach."""
        self._by_link[link].is_attached = True

    def ended(self, link: LinkId, now: float) -> None:
        """Records that the core has refused or ended a link; what is left is sent on another."""
        inlet = self._by_link.pop(link)
        self._forget(inlet)
        messages = sorted([*inlet.waiting, *inlet.sent.values()], key=_place)
        self._again[inlet.name] = now + REFUSED_SECONDS
        if messages or inlet.is_announced:
            following = self._inlet(inlet.name)
            following.waiting, following.is_announced = messages, inlet.is_announced

    def granted(self, command: GrantCredit) -> None:
        """Handles credit from the core, or that it wants it back."""
        inlet = self._by_link[command.link]
        inlet.credit = command.credit
        self._stirred[inlet] = None
        if command.drain:
            inlet.credit = 0
            self._emit(CreditReturned(inlet.link, 0))

    def updated(
        self,
        link: LinkId,
        numbers: Sequence[DeliveryNumber],
        state: DeliveryState | None,
        now: float,
    ) -> None:
        """Handles the outcome of messages."""
        inlet = self._by_link[link]
        for number in numbers:
            message = inlet.sent.pop(number, None)
            if message is not None:
                self._ended(inlet, message, state, now)
        self._stirred[inlet] = None
        self._close_idle(inlet)

    def review(self, now: float) -> None:
        """Sends and asks for what there is credit for; attaches what has rested enough."""
        for name, at in list(self._again.items()):
            if at <= now:
                del self._again[name]
                if name in self._by_name:
                    self._attach(self._by_name[name])
        for inlet in [each for each in self._resting if each.rests_until <= now]:
            del self._resting[inlet]
            self._stirred[inlet] = None
        stirred, self._stirred = self._stirred, {}
        for inlet in stirred:
            if inlet.credit > 0 and inlet not in self._resting:
                self._send(inlet)
                self._ask(inlet)

    @property
    def is_stirred(self) -> bool:
        """Whether ``review`` has something to do now."""
        return bool(self._stirred)

    def deadline(self) -> float | None:
        """Returns when ``review`` has something to do by time; None: never."""
        due = [*self._again.values(), *(inlet.rests_until for inlet in self._resting)]
        return min(due, default=None)

    # Inside

    def _inlet(self, name: Name) -> Inlet:
        inlet = self._by_name.get(name)
        if inlet is None:
            inlet = self._by_name[name] = Inlet(name, next(self._link_ids))
            if name not in self._again:
                self._attach(inlet)
        return inlet

    def _attach(self, inlet: Inlet) -> None:
        self._by_link[inlet.link] = inlet
        address = inlet.name.address.decode()
        letter = "!" if inlet.name.is_dead else ""
        self._emit(
            LinkAttached(
                link=inlet.link,
                name=LinkName(f"{inlet.name.route:016x}{letter}:{address}"),
                role=Role.RECEIVER,
                is_answer=False,
                source=Source(address=address),
                target=Target(address=address),
                sender_settle_mode=SenderSettleMode.UNSETTLED,
                properties=self._properties(inlet.name.is_dead),
            )
        )

    def _close_idle(self, inlet: Inlet) -> None:
        if inlet.is_idle and self._by_name.get(inlet.name) is inlet:
            self._forget(inlet)
            if self._by_link.pop(inlet.link, None) is not None:
                self._emit(LinkDetached(inlet.link, True))

    def _forget(self, inlet: Inlet) -> None:
        del self._by_name[inlet.name]
        self._stirred.pop(inlet, None)
        self._resting.pop(inlet, None)

    def _send(self, inlet: Inlet) -> None:
        run, inlet.waiting = inlet.waiting[: inlet.credit], inlet.waiting[inlet.credit :]
        if not run:
            return
        inlet.credit -= len(run)
        deliveries = []
        for message in run:
            self._number += 1
            number = DeliveryNumber(self._number)
            inlet.sent[number] = message
            deliveries.append(self._delivery(number, message, is_dead=inlet.name.is_dead))
        self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _delivery(
        self, number: DeliveryNumber, message: StoredMessage, *, is_dead: bool
    ) -> ReceivedDelivery:
        ends_ns, ttl = message.ttl_ends_ns, None
        if ends_ns is not None and not is_dead:
            left = (ends_ns - self._clock_ns()) // _NANOSECONDS_A_MILLISECOND
            ttl = min(max(1, left), _TTL_MOST)
        return ReceivedDelivery(
            number,
            DeliveryTag(message.claim.place.to_bytes(8, "big")),
            message.payload,
            PROTOCOLS[message.protocol],
            message.message_format,
            ttl_milliseconds=ttl,
            delivery_count=message.delivery_count + self._attempts.get(message.claim.place, 0),
            key=None if message.key == NO_KEY else message.key,
        )

    def _ask(self, inlet: Inlet) -> None:
        route, address, is_dead = inlet.name
        if is_dead or not inlet.is_announced or self._backlog.get(route, 0) > BACKLOG:
            return
        asked = self._asked.get((route, address), 0)
        more = min(inlet.credit, WINDOW) - asked - len(inlet.waiting)
        if more > 0 and (not asked or more >= WINDOW // 8):
            self._asked[route, address] = asked + more
            self._client.ask(Flow(route, address, more))

    def _ended(
        self, inlet: Inlet, message: StoredMessage, state: DeliveryState | None, now: float
    ) -> None:
        """Handles the outcome of one message."""
        place, is_dead = message.claim.place, inlet.name.is_dead
        if state is None or isinstance(state, Accepted):
            inlet.pauses = 0
            self._attempts.pop(place, None)
            self._gone(inlet, message)
            return
        if isinstance(state, Modified) and state.delivery_failed:
            self._attempts[place] = self._attempts.get(place, 0) + 1
        fails = isinstance(state, Rejected) or (
            isinstance(state, Modified)
            and (state.undeliverable_here or self._attempts.get(place, 0) >= ATTEMPTS)
        )
        if fails and not is_dead:
            self._attempts.pop(place, None)
            self._bury(self._inlet(inlet.name._replace(is_dead=True)), message)
            return
        inlet.put_back(message)
        if inlet not in self._resting:
            pause = PAUSE_SECONDS * 2.0 ** min(inlet.pauses, 16)
            inlet.rests_until = now + min(pause, PAUSE_LIMIT_SECONDS)
            inlet.pauses += 1
            self._resting[inlet] = None

    def _bury(self, inlet: Inlet, message: StoredMessage) -> None:
        route = inlet.name.route
        self.dead += 1
        self._backlog[route] = self._backlog.get(route, 0) + 1
        inlet.put_back(message)
        self._stirred[inlet] = None

    def _gone(self, inlet: Inlet, message: StoredMessage) -> None:
        """Records that a message has arrived, at its target or at the dead letters'."""
        route, is_dead = inlet.name.route, inlet.name.is_dead
        outcome = OutcomeCode.REJECTED if is_dead else OutcomeCode.ACCEPTED
        self.forward(message.claim, outcome)
        if is_dead:
            self._backlog[route] -= 1
            if self._backlog[route] == BACKLOG:  # the route was asked for nothing meanwhile
                self._stirred.update(
                    (each, None) for each in self._by_link.values() if each.name.route == route
                )
            if message.claim.place in self._swept:
                self._swept.discard(message.claim.place)
                self._client.ask(Flow(route, None, 1))

    def forward(self, claim: Claim, outcome: int) -> None:
        """Has the store forget a message."""
        sequence = self._client.records.forwarded(self._clock_ns(), (claim,), outcome)
        self.going.append((sequence, claim, outcome))

    def durable(self, sequence: int) -> None:
        """Records up to which record everything is durable."""
        count = bisect.bisect_right(self.going, sequence, key=lambda each: each[0])
        del self.going[:count]


def _place(message: StoredMessage) -> Place:
    return message.claim.place
