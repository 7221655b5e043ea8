"""The links on which the core hands messages to the store, and when they are accepted.

    SendDeliveries --STORED records--> waiting --durable--> accepted, and credit for others

On exactly-once routes the store settles second. It names a delivery, by link and key, until the
core has settled it; the delivery-tag is the key, so none is ever used twice. When the core attaches
the link again, after either side was lost, its unsettled map is compared with those names:

    in the core's map   named here   then
    yes                 yes          the answer's map says accepted: the core settles it
    yes                 no           the store never had it: the core sends it again
    no                  yes          the core has settled it: the store forgets the name

    AttachLink --what was written before is durable--> UNSETTLED asked --answered--> LinkAttached

What goes before all that is stored of its address is stored with the messages that go first: those
of the name that its route had before, if there are any.

A link has credit for ``room.WINDOW`` messages that are not durable, or for its share of what its
route may still store. It has none while its route is full, or while the store cannot write or has
more to write than it should; what comes with credit granted before is stored all the same.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from router.journal.client import ClientState
from router.journal.keys import NO_LINK, LinkKey, link_key
from router.journal.protocol import Health
from router.journal.record import NO_KEY, NO_TTL, PROTOCOL_CODES, GuaranteeCode
from router.journal.store.asks import AskUnsettled, RouteNews, UnsettledKeys
from router.journal.store.client import StoreClient
from router.journal.store.queues import (
    UNBOUNDED,
    Bounds,
    RouteKey,
    rank_of,
    record_octets,
    route_key,
)
from router.model.commands import AttachLink
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesUpdated, Event, LinkAttached
from router.model.identity import ContainerId, DeliveryKey, DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, DeliveryState, is_outcome
from router.model.terminus import ReceiverSettleMode, Role, Target
from router.net.store.inlets import Inlets
from router.net.store.room import Room
from router.wire.priority import priority_in

_LONG_AGO: Final = 0.0
_NAMER: Final = ContainerId("message-store")
"""Stands for the store in the names by which its log knows links."""


@attrs.define(eq=False)
class Shelf:
    """A link on which messages come.

    Attributes:
        link: the core's name for it.
        route: whose messages they are.
        address: of the messages.
        name: by which the store knows the link in every life; None: it settles first.
        unsettled: deliveries that the core is to settle, by number.
        waiting: messages that are not durable.
    """

    link: LinkId
    route: RouteKey
    address: str
    name: LinkKey | None = None
    unsettled: dict[DeliveryNumber, DeliveryKey] = attrs.field(factory=dict)
    waiting: int = 0


@attrs.define(eq=False)
class _Asked:
    """An attach of the core that is not answered yet.

    Attributes:
        command: the attach.
        route: whose messages the link will bring.
        name: as that of a shelf.
        sequence: when all records up to this one are durable, the log is asked what is unsettled.
        keys: what is unsettled, as far as the log has told.
        is_told: it has told all.
    """

    command: AttachLink
    route: RouteKey
    name: LinkKey | None
    sequence: int
    keys: list[DeliveryKey] = attrs.field(factory=list)
    is_asked: bool = False
    is_told: bool = False


@attrs.define(eq=False)
class _Batch:
    """Messages of one address that are handed to the store together.

    Attributes:
        route: whose messages they are in the store.
        octets: of their records.
    """

    route: RouteKey
    messages: int = 0
    octets: int = 0

    def add(self, octets: int) -> None:
        """Counts a message with a payload of so many octets."""
        self.messages += 1
        self.octets += octets


class Shelves:
    """All links on which messages come.

    Attributes:
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
        self.full: set[RouteKey] = set()
        self._client = client
        self._emit = emit
        self._clock_ns = clock_ns
        self._inlets = inlets
        self._by_link: dict[LinkId, Shelf] = {}
        self._bounded: frozenset[RouteKey] = frozenset()
        self._known: set[RouteKey] = set()
        self._unanswered: dict[LinkId, _Asked] = {}
        self._seen: tuple[bool, frozenset[RouteKey], int] = (True, frozenset(), 0)
        self._waiting: deque[tuple[int, Shelf, list[DeliveryNumber], list[_Batch]]] = deque()
        self._rooms: dict[RouteKey, Room] = {}
        self._due: dict[Shelf, None] = {}
        self._stirred: set[RouteKey] = set()
        self._looked_at: dict[RouteKey, float] = {}  # when a room is to be looked at again

    def bound(self, bounds: Mapping[RouteKey, Bounds]) -> None:
        """Bounds the routes, and no others, from now on."""
        self._bounded = frozenset(bounds)
        for route in {*self._rooms, *bounds}:
            self._room(route).bounds = bounds.get(route, UNBOUNDED)
        self._due.update(dict.fromkeys(self._by_link.values()))

    def _room(self, route: RouteKey) -> Room:
        room = self._rooms.get(route)
        if room is None:
            room = self._rooms[route] = Room()
        return room

    def heard(self, news: RouteNews) -> None:
        """Records what the store says of a route."""
        if news.is_full:
            self.full.add(news.route)
        else:
            self.full.discard(news.route)
        self._room(news.route).told(news)
        self._stirred.add(news.route)

    def gone(self, route: RouteKey, messages: int) -> None:
        """Records that it is durable that messages of a route are gone."""
        self._room(route).left(messages)
        self._stirred.add(route)

    def attach(self, command: AttachLink, route: str) -> None:
        """Answers the core's attach of a link with messages of a route.

        The core then knows which addresses of the route have stored messages: an inlet was attached
        for each. So before the log has told them, the attach waits.
        """
        name = None
        if command.receiver_settle_mode is ReceiverSettleMode.SECOND:
            name = link_key(ContainerId(""), _NAMER, command.name, is_incoming=True)
        asked = _Asked(command, route_key(route), name, self._client.appended_sequence)
        self._unanswered[command.link] = asked
        self._ask_unsettled(self._client.durable_sequence)
        self._answer_known()

    def known(self, route: RouteKey) -> None:
        """Records that the log has told of all messages of a route."""
        self._known.add(route)
        self._answer_known()

    def told(self, answer: UnsettledKeys) -> None:
        """Records what the log has of a link that its senders have not settled."""
        for asked in self._unanswered.values():
            if asked.name == answer.link and asked.is_asked:
                asked.keys += answer.keys
                asked.is_told = not answer.has_more
        self._answer_known()

    def _ask_unsettled(self, sequence: int) -> None:
        for asked in self._unanswered.values():
            if asked.name is not None and not asked.is_asked and asked.sequence <= sequence:
                asked.is_asked = True
                self._client.ask(AskUnsettled(asked.name))

    def _answer_known(self) -> None:
        for link, asked in tuple(self._unanswered.items()):
            is_known = asked.route in self._known or asked.route not in self._bounded
            if is_known and (asked.name is None or asked.is_told):
                del self._unanswered[link]
                self._answer(asked)

    def _answer(self, asked: _Asked) -> None:
        command, route = asked.command, asked.route
        target = command.target
        assert isinstance(target, Target)
        assert target.address is not None
        shelf = Shelf(command.link, route, target.address, asked.name)
        self._by_link[command.link] = shelf
        unsettled: dict[DeliveryTag, DeliveryState | None] | None = None
        if asked.name is not None:
            theirs = command.unsettled or {}
            unsettled = {tag: ACCEPTED for tag in map(DeliveryTag, asked.keys) if tag in theirs}
            self._settle(shelf, [key for key in asked.keys if DeliveryTag(key) not in theirs])
        self._emit(
            LinkAttached(
                link=command.link,
                name=command.name,
                role=Role.SENDER,
                is_answer=True,
                source=command.source,
                target=command.target,
                sender_settle_mode=command.sender_settle_mode,
                receiver_settle_mode=command.receiver_settle_mode,
                unsettled=unsettled,
            )
        )
        self._due[shelf] = None

    def detach(self, link: LinkId) -> bool:
        """Ends a link; what came on it is stored; returns whether it is one of these."""
        is_one = self._unanswered.pop(link, None) is not None
        shelf = self._by_link.pop(link, None)
        if shelf is None:
            return is_one
        self._room(shelf.route).shares.leave(link)
        self._due.pop(shelf, None)
        self._stirred.add(shelf.route)
        return True

    def store(self, link: LinkId, deliveries: Iterable[OutgoingDelivery], now: float) -> None:
        """Hands messages to the store; the core hears of each when it is durable."""
        shelf = self._by_link.get(link)
        if shelf is None:
            return
        now_ns, records = self._clock_ns(), self._client.records
        numbers: list[DeliveryNumber] = []
        address, route = shelf.address.encode(), shelf.route
        elders = _Batch(self._inlets.links.first_of(route, address))
        count = octets = sequence = concluded = 0
        for delivery in deliveries:
            if delivery.resume and (delivery.settled or is_outcome(delivery.state)):
                self._conclude(shelf, delivery)
                concluded += 1
                continue
            is_exact = shelf.name is not None and not delivery.settled
            assert not is_exact or len(delivery.tag) == len(NO_KEY), "its tag is its key"
            ttl = delivery.ttl_milliseconds
            priority = priority_in(delivery.protocol, delivery.payload)
            sequence = records.stored(
                now_ns,
                DeliveryKey(delivery.tag) if is_exact else delivery.key or NO_KEY,
                shelf.name or NO_LINK,
                b"",
                delivery.payload,
                route=elders.route if delivery.elder else route,
                address=shelf.address,
                priority=rank_of(priority, delivery.elder),
                guarantee=GuaranteeCode.EXACTLY_ONCE if is_exact else GuaranteeCode.AT_LEAST_ONCE,
                protocol=PROTOCOL_CODES[delivery.protocol],
                message_format=delivery.message_format,
                delivery_count=delivery.delivery_count or 0,
                ttl_milliseconds=NO_TTL if ttl is None else min(ttl, NO_TTL - 1),
            )
            count += 1
            octets += len(delivery.payload)
            if delivery.elder:
                elders.add(len(delivery.payload))
            if not delivery.settled:
                numbers.append(delivery.number)
            if is_exact:
                shelf.unsettled[delivery.number] = DeliveryKey(delivery.tag)
        self._room(route).shares.used(link, count + concluded, now, waiting=count)
        if not count:
            return
        shelf.waiting += count
        others = _Batch(route, count - elders.messages, octets - elders.octets)
        batches = [each for each in (elders, others) if each.messages]
        for batch in batches:
            batch.octets += batch.messages * record_octets(0, len(address))
            self._room(batch.route).came(batch.messages, batch.octets)
        self._waiting.append((sequence, shelf, numbers, batches))
        if elders.messages:
            self._inlets.await_elders(elders.route, address, elders.messages)

    def _conclude(self, shelf: Shelf, delivery: OutgoingDelivery) -> None:
        """Handles a delivery that the core resumes to tell how it ended (§3.4.6)."""
        key = DeliveryKey(delivery.tag)
        if delivery.settled:
            self._settle(shelf, [key])
            return
        shelf.unsettled[delivery.number] = key
        if delivery.state != ACCEPTED:  # a person has decided otherwise: their word stands
            self.settled(shelf.link, [delivery.number])
            self._emit(DeliveriesUpdated(shelf.link, [delivery.number], delivery.state, True))

    def settled(self, link: LinkId, numbers: Sequence[DeliveryNumber]) -> None:
        """Forgets the names of deliveries that the core has settled."""
        shelf = self._by_link.get(link)
        if shelf is not None:
            take = shelf.unsettled.pop
            self._settle(shelf, [key for each in numbers if (key := take(each, None)) is not None])

    def _settle(self, shelf: Shelf, keys: list[DeliveryKey]) -> None:
        if keys and shelf.name is not None:
            self._client.records.settled_run(self._clock_ns(), shelf.name, NO_LINK, keys)

    def durable(self, sequence: int) -> None:
        """Accepts the messages that are durable now."""
        self._ask_unsettled(sequence)
        accepted: dict[LinkId, list[DeliveryNumber]] = {}
        while self._waiting and self._waiting[0][0] <= sequence:
            _, shelf, numbers, batches = self._waiting.popleft()
            for batch in batches:
                shelf.waiting -= batch.messages
                self._room(batch.route).stored(batch.messages, batch.octets)
                self._room(shelf.route).shares.done(shelf.link, batch.messages)
                self._inlets.stored(batch.route, shelf.address.encode(), batch.messages)
            if self._by_link.get(shelf.link) is shelf:
                accepted.setdefault(shelf.link, []).extend(numbers)
        for link, numbers in accepted.items():
            if numbers:
                is_settled = self._by_link[link].name is None
                self._emit(DeliveriesUpdated(link, numbers, ACCEPTED, is_settled))
            self._due[self._by_link[link]] = None

    @property
    def deadline(self) -> float | None:
        """When ``review`` has something to do; None: nothing that is known now."""
        if self._due or self._stirred:
            return _LONG_AGO
        return min(self._looked_at.values(), default=None)

    def review(self, now: float) -> None:
        """Grants credit, or takes it back, as there is room, and as the store can write."""
        seen = (self._is_writing, frozenset(self.full), self._inlets.turns.count)
        if seen != self._seen:
            self._seen = seen
            self._due.update(dict.fromkeys(self._by_link.values()))
        for shelf in self._due:
            room, link = self._room(shelf.route), shelf.link
            self._stirred.add(shelf.route)
            if self._is_open(shelf):
                if link not in room.shares:
                    room.shares.join(link, now, shelf.waiting)
            elif link in room.shares:
                room.shares.leave(link)
                self._emit(CreditGranted(link, 0))
        self._due.clear()
        self._stirred.update(route for route, at in self._looked_at.items() if at <= now)
        for route in self._stirred:
            room = self._room(route)
            for link in room.shares.review(room.free, now):
                self._emit(CreditGranted(link, room.shares.credit(link)))
            deadline = room.shares.deadline
            if deadline is None:
                self._looked_at.pop(route, None)
            else:
                self._looked_at[route] = deadline
        self._stirred.clear()

    @property
    def _is_writing(self) -> bool:
        """Whether the store can write, and has no more to write than it should."""
        client = self._client
        is_writing = client.state is ClientState.OPEN and client.health is Health.WRITING
        return is_writing and not client.is_over_budget

    def _is_open(self, shelf: Shelf) -> bool:
        """Returns whether messages of a link may be stored now."""
        if not self._is_writing or shelf.route in self.full:
            return False
        return not self._inlets.is_turning(shelf.route, shelf.address.encode())
