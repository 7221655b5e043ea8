"""The links on which the core hands messages to the store, and when they are accepted.

    SendDeliveries --STORED records--> waiting --durable--> accepted, and credit for others

A link has credit for ``WINDOW`` messages that are not durable. It has none while its route is full,
or while the store cannot write or has more to write than it should; what comes with credit granted
before is stored all the same.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from router.journal.client import ClientState
from router.journal.keys import NO_LINK
from router.journal.protocol import Health
from router.journal.record import NO_KEY, NO_TTL, PROTOCOL_CODES
from router.journal.store.client import StoreClient
from router.journal.store.queues import UNBOUNDED, Bounds, RouteKey, route_key
from router.model.commands import AttachLink
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesUpdated, Event, LinkAttached
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Target
from router.net.store.inlets import Inlets
from router.wire.priority import priority_in

WINDOW: Final = 1000
"""Messages that may be on their way to the disk on one link."""

_PART: Final = 4  # a route with few messages gives no link credit for more than a fourth of them


@attrs.define(eq=False)
class Shelf:
    """A link on which messages come.

    Attributes:
        link: the core's name for it.
        route: whose messages they are.
        address: of the messages.
        waiting: messages that are not durable.
        window: of them and of the credit that the core knows of.
    """

    link: LinkId
    route: RouteKey
    address: str
    waiting: int = 0
    window: int = 0


class Shelves:
    """All links on which messages come.

    Attributes:
        bounds: of routes.
        full: routes that have stored as much as they may.
    """

    def __init__(
        self,
        client: StoreClient,
        emit: Callable[[Event], None],
        clock_ns: Callable[[], int],
        inlets: Inlets,
    ) -> None:
        """Begins without a link.

        Args:
            client: takes the records.
            emit: takes events for the core.
            clock_ns: nanoseconds since 1970.
            inlets: on which the messages are sent.
        """
        self.bounds: dict[RouteKey, Bounds] = {}
        self.full: set[RouteKey] = set()
        self._client = client
        self._emit = emit
        self._clock_ns = clock_ns
        self._inlets = inlets
        self._by_link: dict[LinkId, Shelf] = {}
        self._known: set[RouteKey] = set()
        self._unanswered: dict[LinkId, tuple[AttachLink, RouteKey]] = {}
        self._seen: tuple[bool, frozenset[RouteKey], int] = (True, frozenset(), 0)
        self._waiting: deque[tuple[int, Shelf, list[DeliveryNumber], int]] = deque()

    def attach(self, command: AttachLink, route: str) -> None:
        """Answers the core's attach of a link with messages of a route.

        The core then knows which addresses of the route have stored messages: an inlet was attached
        for each. So before the log has told them, the attach waits.
        """
        key = route_key(route)
        if key in self._known:
            self._answer(command, key)
        else:
            self._unanswered[command.link] = command, key

    def known(self, route: RouteKey) -> None:
        """Records that the log has told of all messages of a route."""
        self._known.add(route)
        for link, (command, key) in tuple(self._unanswered.items()):
            if key == route:
                del self._unanswered[link]
                self._answer(command, key)

    def _answer(self, command: AttachLink, route: RouteKey) -> None:
        target = command.target
        assert isinstance(target, Target)
        assert target.address is not None
        shelf = Shelf(command.link, route, target.address)
        self._by_link[command.link] = shelf
        self._emit(
            LinkAttached(
                link=command.link,
                name=command.name,
                role=Role.SENDER,
                is_answer=True,
                source=command.source,
                target=command.target,
                sender_settle_mode=command.sender_settle_mode,
            )
        )
        self._grant(shelf)

    def detach(self, link: LinkId) -> bool:
        """Ends a link; what came on it is stored; returns whether it is one of these."""
        is_one = self._unanswered.pop(link, None) is not None
        return self._by_link.pop(link, None) is not None or is_one

    def store(self, link: LinkId, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Hands messages to the store; the core hears of each when it is durable."""
        shelf = self._by_link.get(link)
        if shelf is None:
            return
        now_ns, records = self._clock_ns(), self._client.records
        numbers: list[DeliveryNumber] = []
        count = sequence = 0
        for delivery in deliveries:
            ttl = delivery.ttl_milliseconds
            sequence = records.stored(
                now_ns,
                delivery.key or NO_KEY,
                NO_LINK,
                b"",
                delivery.payload,
                route=shelf.route,
                address=shelf.address,
                priority=priority_in(delivery.protocol, delivery.payload),
                protocol=PROTOCOL_CODES[delivery.protocol],
                message_format=delivery.message_format,
                delivery_count=delivery.delivery_count or 0,
                ttl_milliseconds=NO_TTL if ttl is None else min(ttl, NO_TTL - 1),
            )
            count += 1
            if not delivery.settled:
                numbers.append(delivery.number)
        if count:
            shelf.waiting += count
            self._waiting.append((sequence, shelf, numbers, count))

    def durable(self, sequence: int) -> None:
        """Accepts the messages that are durable now."""
        accepted: dict[LinkId, list[DeliveryNumber]] = {}
        while self._waiting and self._waiting[0][0] <= sequence:
            _, shelf, numbers, count = self._waiting.popleft()
            shelf.waiting -= count
            self._inlets.stored(shelf.route, shelf.address.encode(), count)
            if self._by_link.get(shelf.link) is shelf:
                accepted.setdefault(shelf.link, []).extend(numbers)
        for link, numbers in accepted.items():
            if numbers:
                self._emit(DeliveriesUpdated(link, numbers, ACCEPTED, True))
            self._grant(self._by_link[link])

    def review(self) -> None:
        """Grants credit, or takes it back, where a route or the store is not what it was."""
        seen = (self._is_writing, frozenset(self.full), self._inlets.turns)
        if seen == self._seen:
            return
        self._seen = seen
        for shelf in self._by_link.values():
            if shelf.window != self._window(shelf):
                self._grant(shelf)

    @property
    def _is_writing(self) -> bool:
        """Whether the store can write, and has no more to write than it should."""
        client = self._client
        is_writing = client.state is ClientState.OPEN and client.health is Health.WRITING
        return is_writing and not client.is_over_budget

    def _grant(self, shelf: Shelf) -> None:
        shelf.window = self._window(shelf)
        self._emit(CreditGranted(shelf.link, max(0, shelf.window - shelf.waiting)))

    def _window(self, shelf: Shelf) -> int:
        """Returns how many messages of a link may wait for the disk."""
        if not self._is_writing or shelf.route in self.full:
            return 0
        if self._inlets.is_turning(shelf.route, shelf.address.encode()):
            return 0
        most = self.bounds.get(shelf.route, UNBOUNDED).messages
        return WINDOW if most is None else min(WINDOW, max(1, most // _PART))
