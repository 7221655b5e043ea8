"""What a client receives: queues, the links behind them, and subscriptions before them.

Theory of operation. A router stores nothing, so a *queue* here is a name, the addresses that it
stands for, and the subscriptions that take turns. There are two kinds:

- a *routed* queue is an address of the routing table: shared, durable and kept by whoever is
  behind the route. Each subscription has a link of its own to it;
- a *local* queue lives and dies with its session: exclusive or auto-delete. Its own name is one
  address, each binding adds one; its outlets (outgoing links) are there from the beginning, and
  take ``LOCAL_CREDIT`` deliveries before anybody subscribes; but not what is sent to the name of
  one that is not exclusive, for others may receive that.

Deliveries from all outlets form one line, ``backlog``; whoever has capacity takes the next one.
What waits longer than its ttl goes when it stands at the head of the line.

What its own connection transfers by name to a local queue that nobody else reaches by that name (it
is exclusive, or no route takes the name) goes past the core: it is *own*. It is the queue's as soon
as it is there, so its transfer is complete; what is released stands at the head of the line again;
and it ends with the queue. ``KEPT_OCTETS`` bounds it.

An outlet is granted as much as all subscriptions have capacity for (``subscription``). With several
outlets the same capacity is granted to each, and what comes too much waits in the backlog; that is
bounded.

    flush      every outlet is drained; complete when all have said that nothing is left
    stop       credit is void at once; what waits in a routed queue's backlog is given back
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Set
from typing import Any, Final
from typing import Protocol as Interface

import attrs

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.commands import AddressesChanged, AttachLink
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
)
from router.model.terminus import ExpiryPolicy, ReceiverSettleMode, Role, Source, Target
from router.model.text import name_of
from router.wire import hub
from router.wire.v0_10 import message as messages
from router.wire.v0_10.bindings import Binding, headers_match
from router.wire.v0_10.outgoing import refusal
from router.wire.v0_10.reply import ErrorCode, SessionFaultError
from router.wire.v0_10.session import SessionConnection
from router.wire.v0_10.types import Table

LOCAL_CREDIT: Final = 100
"""Deliveries of others that a local queue takes while nobody is subscribed to it."""

KEPT_OCTETS: Final = 16 << 20
"""What a queue keeps of its own."""

_KEPT_OVERHEAD: Final = 512
"""Octets that a kept delivery takes besides its payload."""

_NOBODY: Final[frozenset["QueueSubscription"]] = frozenset()

REJECTED: Final = Rejected()

EXPIRED: Final = Modified(delivery_failed=True, undeliverable_here=True)
"""What becomes of a delivery of others whose ttl ends here."""


@attrs.define(eq=False)
class Outlet:
    """An outgoing link behind a queue.

    Attributes:
        address: where it receives from.
        filters: arguments of headers bindings, of which one must match; empty: no filter.
        credit: deliveries that the core may still send.
        unsettled: numbers of deliveries without an outcome.
        resumed: deliveries that the core is to name again, for which it needs credit.
        unnamed: their tags, each with what the client has said of it meanwhile; None: nothing.
        is_attached: the core has answered and gives it.
        is_leaving: to be detached when nothing is unsettled.
        is_draining: the core has been asked to use the credit up.
        home: the worker that keeps it; None: this one.
        is_own: it is no link, but stands for what is the queue's own.
        is_shared: others may receive what is sent to the queue's name.
    """

    link: LinkId
    queue: "Queue"
    address: str
    filters: list[Table] = attrs.field(factory=list)
    credit: int = 0
    unsettled: int = 0
    resumed: int = 0
    unnamed: dict[DeliveryTag, DeliveryState | None] = attrs.field(factory=dict)
    is_attached: bool = False
    is_leaving: bool = False
    is_draining: bool = False
    home: str | None = None
    is_own: bool = False
    is_shared: bool = False

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        self.queue.take(self, deliveries)

    def drained(self) -> None:
        """Records that the core has sent all that it had."""
        self.queue.drained(self)


@attrs.define(eq=False)
class Waiting:
    """A delivery in a queue.

    Attributes:
        outlet: the link that brought it.
        ends_at: when its ttl ends; None: nobody has looked, as it may go on at once.
    """

    outlet: Outlet
    delivery: OutgoingDelivery
    ends_at: float | None = None


@attrs.define(eq=False)
class Watch:
    """A binding with wildcards, whose addresses a queue stands for.

    Attributes:
        link: names it to the core.
        addresses: those that somebody sends to.
        unanswered: outlets that the core has yet to answer before ``accepted`` is called.
        accepted, refused: called once, with the core's answer; None when that has been.
    """

    session: "QueueSession"
    link: LinkId
    queue: "Queue"
    binding: Binding
    addresses: set[str] = attrs.field(factory=set)
    unanswered: int = 0
    accepted: Callable[[], None] | None = None
    refused: Callable[[Condition], None] | None = None


class QueueServer(Interface):
    """What a queue asks of its client's connection."""

    outlets: dict[LinkId, Outlet]

    def next_link(self) -> LinkId:
        """Names a link to come."""

    def forget_shapes(self) -> None:
        """Forgets what transfers mean: queues have come or gone."""


class QueueWatching(Interface):
    """The patterns of one session's queues (``watching``)."""

    def follow(self, watch: Watch, command: AddressesChanged) -> None:
        """Attaches a queue to addresses that are in use now, and to no others."""

    def end(self, watch: Watch) -> None:
        """Watches a pattern no more."""


class QueueSession(Interface):
    """What a queue asks of its session."""

    name: bytes
    queues: "dict[str, Queue]"

    @property
    def engine(self) -> SessionConnection:
        """The connection that carries the session, or carried it last."""

    @property
    def server(self) -> QueueServer:
        """The same, as a client's."""

    @property
    def watching(self) -> QueueWatching:
        """The patterns that its queues stand for."""

    @property
    def is_attached(self) -> bool:
        """Whether it has a channel."""

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its channel."""

    @property
    def expiry_seconds(self) -> int:
        """How long its links outlive it, in the form of AMQP 1.0 (§3.5.3, timeout)."""

    def complete_all(self, numbers: Iterable[int]) -> None:
        """Records that commands are carried out."""

    def review(self, queue: "Queue") -> None:
        """Looks at a queue's credit when the turn ends."""

    def settle(self, outlet: Outlet, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        """Tells the core the outcome of deliveries."""

    def decide(
        self,
        outlet: Outlet,
        tag: DeliveryTag,
        number: DeliveryNumber | None,
        state: DeliveryState,
    ) -> None:
        """Tells the core the outcome of a delivery, or remembers it until the core asks."""

    def tags_of(self, outlet: Outlet) -> list[DeliveryTag]:
        """What the client, or the backlog, holds of a link that comes back."""

    def resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Handles the core's new number for what the client has; returns whether it has it."""

    def lose(self, outlet: Outlet, condition: Condition) -> None:
        """Records that the core took a link away."""


class SubscriptionSession(Interface):
    """The session of a subscription."""

    def deliver(self, subscription: Any, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Sends a delivery to a subscription; returns whether its credit allowed that."""


class QueueSubscription(Interface):
    """Whoever is subscribed to a queue (``subscription``)."""

    label: str
    is_exclusive: bool
    flushes: list[int]
    is_active: bool

    @property
    def codes(self) -> tuple[int, int]:
        """Class and code of the command that asked for it."""

    @property
    def session(self) -> SubscriptionSession:
        """The session that it is of."""

    @property
    def capacity(self) -> int:
        """How many messages it takes now."""

    def void(self) -> None:
        """Takes all credit away."""


class Queue:
    """A queue, as its session knows it (see the module).

    Attributes:
        is_local: it lives and dies with the session.
        outlets: by address.
        watches: by pattern, what bindings with wildcards stand for.
        subscriptions: those that take turns, the next one first.
        backlog: deliveries that nobody had capacity for.
        auto_delete: it goes when its last subscription does.
        has_own_address: its name is an address, too; not so for a local queue that no route names.
        takes_own: what its connection transfers by its name goes past the core.
        own: stands for the link that this would come by.
        kept_octets: what is own here, and with clients that may give it back.
        may_fall: at the next review credit may be taken back.
    """

    def __init__(
        self,
        session: QueueSession,
        name: str,
        *,
        is_local: bool,
        is_exclusive: bool = False,
        auto_delete: bool = False,
    ) -> None:
        self.session = session
        self.name = name
        self.is_local = is_local
        self.is_exclusive = is_exclusive
        self.auto_delete = auto_delete
        self.bindings: list[Binding] = []
        self.outlets: dict[str, Outlet] = {}
        self.watches: dict[str, Watch] = {}
        self.subscriptions: deque[QueueSubscription] = deque()
        self.backlog: deque[Waiting] = deque()
        self.has_own_address = True
        self.takes_own = False
        self.own = Outlet(LinkId(0), self, "", is_own=True)
        self.kept_octets = 0
        self._kept_count = 0
        self._kept_until: dict[int, float] = {}
        self.may_fall = False
        self._tried: dict[tuple[Outlet, DeliveryTag], set[QueueSubscription]] = {}

    @property
    def addresses(self) -> set[str]:
        """What the queue stands for."""
        own = {self.name} if self.has_own_address else set()
        return own | {each.address for each in self.bindings if not each.is_pattern}

    def wants(self, address: str) -> bool:
        """Returns whether the queue stands for an address, by itself or by a pattern."""
        if address in self.addresses:
            return True
        return any(address in watch.addresses for watch in self.watches.values())

    # --- links ------------------------------------------------------------------------------------

    def open_outlet(self, address: str, label: str) -> Outlet:
        """Asks the core for a link from an address.

        Args:
            address: where it is to receive from.
            label: tells the links of several subscriptions to one address apart.
        """
        outlet = self.outlets.get(address)
        if outlet is not None:
            outlet.is_leaving = False
            return outlet
        outlet = Outlet(self.session.server.next_link(), self, address)
        self.outlets[address] = outlet
        self.ask(outlet, label)
        return outlet

    def ask(self, outlet: Outlet, label: str, *, is_back: bool = False) -> None:
        """Asks the core for a link, perhaps one that it has known before.

        Args:
            outlet: the link.
            label: as with ``open_outlet``.
            is_back: the session has come back, and knows all that it was sent on the link: what it
                does not name it never had (§2.6.13, as in receiver-settle-mode second).
        """
        session = self.session
        session.server.outlets[outlet.link] = outlet
        unsettled = None
        if session.is_kept:
            unsettled = {tag: outlet.unnamed.get(tag) for tag in session.tags_of(outlet)}
            unsettled |= {tag: state for tag, state in outlet.unnamed.items() if state is not None}
            outlet.unnamed = dict(unsettled)
            outlet.resumed = len(unsettled)
        session.engine.runs.add(
            LinkAttached(
                link=outlet.link,
                name=LinkName(f"{name_of(session.name)}<{label}<{outlet.address}"),
                role=Role.SENDER,
                is_answer=False,
                source=Source(
                    address=outlet.address,
                    expiry_policy=ExpiryPolicy.LINK_DETACH,
                    expiry_seconds=session.expiry_seconds,
                ),
                target=Target(),
                receiver_settle_mode=ReceiverSettleMode(int(is_back)),
                unsettled=unsettled,
                home=outlet.home,
            )
        )

    def attached(self, outlet: Outlet, answer: AttachLink) -> None:
        """Notes that the core gives a link, and whether what is sent to its name is its alone."""
        outlet.is_attached = True
        source = answer.source
        if not self.is_local or outlet.address != self.name or source is None:
            return
        goes_to_one = source.distribution_mode == "move"
        self.takes_own = self.is_exclusive and goes_to_one and not answer.is_exact
        outlet.is_shared = not self.is_exclusive and goes_to_one

    @property
    def label(self) -> str:
        """Begins the names of its links: what a routed queue's only subscription is called."""
        if self.is_local or not self.subscriptions:
            return self.name
        return self.subscriptions[0].label

    def close_outlet(self, outlet: Outlet) -> None:
        """Lets a link go as soon as nothing on it is unsettled."""
        if outlet.credit and outlet.is_attached:
            outlet.credit = 0
            self.session.engine.runs.add(CreditGranted(outlet.link, 0))
        outlet.is_leaving = True
        self.release(outlet)
        self.detach_if_done(outlet)

    def let_go(self, address: str) -> None:
        """Closes the outlet of an address that the queue stands for no more."""
        outlet = self.outlets.get(address)
        if outlet is not None and not self.wants(address):
            self.close_outlet(outlet)

    def detach_if_done(self, outlet: Outlet) -> None:
        """Detaches a link that is leaving and has nothing unsettled."""
        if outlet.is_leaving and outlet.is_attached and not outlet.unsettled:
            self.forget(outlet)
            self.session.engine.runs.add(LinkDetached(outlet.link, closed=True))

    def forget(self, outlet: Outlet) -> None:
        """Records that a link is gone."""
        if self.outlets.get(outlet.address) is outlet:
            del self.outlets[outlet.address]
        self.session.server.outlets.pop(outlet.link, None)
        outlet.is_attached = False
        outlet.unnamed.clear()
        self.backlog = deque(each for each in self.backlog if each.outlet is not outlet)
        for key in [key for key in self._tried if key[0] is outlet]:
            del self._tried[key]

    def release(self, outlet: Outlet) -> None:
        """Gives back what of a link waits here."""
        back = [each.delivery for each in self.backlog if each.outlet is outlet]
        back = [each for each in back if not each.settled]
        self.backlog = deque(each for each in self.backlog if each.outlet is not outlet)
        for each in back:
            self.session.decide(outlet, each.tag, each.number, RELEASED)

    # --- deliveries -------------------------------------------------------------------------------

    def take(self, outlet: Outlet, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        session = self.session
        for delivery in deliveries:
            if delivery.resume:
                self._resumed(outlet, delivery)
                continue
            outlet.credit -= 1
            if not delivery.settled:
                outlet.unsettled += 1
            if outlet.filters and not self._matches(outlet, delivery):
                if not delivery.settled:
                    session.settle(outlet, [delivery.number], MODIFIED_UNDELIVERABLE)
                continue
            self.backlog.append(Waiting(outlet, delivery))
        if outlet.is_leaving:
            self.release(outlet)
        self.dispatch()
        if self._needs_review(outlet):
            session.review(self)

    def _resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Handles the core's new number for a delivery that the client has, or that waits here."""
        outlet.resumed = max(outlet.resumed - 1, 0)
        state = outlet.unnamed.pop(delivery.tag, None)
        if state is not None:
            if delivery.settled:
                outlet.unsettled -= 1
                self.detach_if_done(outlet)
            else:
                self.session.settle(outlet, [delivery.number], state)
            return
        if self.session.resumed(outlet, delivery):
            return
        for at, waiting in enumerate(self.backlog):
            if waiting.outlet is outlet and waiting.delivery.tag == delivery.tag:
                if delivery.settled:
                    del self.backlog[at]
                    outlet.unsettled -= 1
                else:
                    waiting.delivery.number = delivery.number
                return
        if not delivery.settled:
            outlet.unsettled += 1
            self.session.settle(outlet, [delivery.number], RELEASED)

    def _matches(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Tells whether a headers binding takes a message; what is broken goes on to be refused."""
        try:
            content = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_10)
            found = messages.read_content(content)
        except (TranslationError, DecodeError):
            return True
        headers: dict[str, Any] = found.message.application_headers or {}
        return any(headers_match(arguments, headers) for arguments in outlet.filters)

    @property
    def is_shared_here(self) -> bool:
        """Whether several subscriptions take turns at one link."""
        return self.is_local and len(self.subscriptions) > 1

    def take_back(
        self, outlet: Outlet, delivery: OutgoingDelivery, subscription: QueueSubscription
    ) -> bool:
        """Puts what a subscription has released at the head of the line, for the others.

        Returns:
            false: all have had it.
        """
        tried = self._tried.setdefault((outlet, delivery.tag), set())
        tried.add(subscription)
        if outlet.is_leaving or tried.issuperset(self.subscriptions):
            self.done(outlet, delivery.tag)
            return False
        self.backlog.appendleft(Waiting(outlet, delivery))
        self.dispatch()
        return True

    # --- what is the queue's own ------------------------------------------------------------------

    def keep(self, content: bytes, ttl: int | None) -> None:
        """Handles what its connection transfers to it.

        Raises:
            SessionFaultError: there is too much of it.
        """
        octets = len(content) + _KEPT_OVERHEAD
        if self.kept_octets + octets > KEPT_OCTETS:
            self.drop_all_expired()
        if self.kept_octets + octets > KEPT_OCTETS:
            raise SessionFaultError(
                ErrorCode.RESOURCE_LIMIT_EXCEEDED,
                f"queue {self.name!r} keeps no more than {KEPT_OCTETS} octets",
            )
        self.kept_octets += octets
        self._kept_count += 1
        number = DeliveryNumber(self._kept_count)
        if ttl is not None:
            self._kept_until[number] = self._now + ttl / 1000
        delivery = OutgoingDelivery(
            number, DeliveryTag(b""), content, Protocol.AMQP_0_10, settled=True
        )
        self.backlog.append(self._kept(delivery))
        self.dispatch()

    def _kept(self, delivery: OutgoingDelivery) -> Waiting:
        return Waiting(self.own, delivery, self._kept_until.get(delivery.number, math.inf))

    def decided(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        """Handles the outcome of what is the queue's own; what is given back is the next again.

        What may not come here again ends: nobody else reaches the queue.
        """
        is_refused = isinstance(state, Modified) and state.undeliverable_here
        if is_refused or isinstance(state, Accepted | Rejected):
            self.kept_octets -= len(delivery.payload) + _KEPT_OVERHEAD
            self._kept_until.pop(delivery.number, None)
            return
        if isinstance(state, Modified) and state.delivery_failed:
            delivery.delivery_count = (delivery.delivery_count or 0) + 1
        self.backlog.appendleft(self._kept(delivery))
        if self.session.is_attached:
            self.dispatch()

    @property
    def _now(self) -> float:
        return self.session.engine.now

    def _look(self) -> None:
        """Works out when the ttl of what is new ends; that is at either end of the line."""
        for line in (reversed(self.backlog), self.backlog):
            for waiting in line:
                if waiting.ends_at is not None:
                    break
                ttl = waiting.delivery.ttl_milliseconds
                if ttl is None:
                    ttl = _ttl_of(waiting.delivery)
                waiting.ends_at = math.inf if ttl is None else self._now + ttl / 1000

    def drop_expired(self) -> None:
        """Takes out what stands at the head of the line and whose ttl has ended."""
        backlog = self.backlog
        while backlog and (ends_at := backlog[0].ends_at) is not None and ends_at <= self._now:
            self._end(backlog.popleft(), EXPIRED, REJECTED)

    def drop_all_expired(self) -> None:
        """Takes out all whose ttl has ended, wherever it stands, before what is here is counted."""
        now, backlog = self._now, self.backlog
        self.backlog = deque()
        for waiting in backlog:
            if waiting.ends_at is not None and waiting.ends_at <= now:
                self._end(waiting, EXPIRED, REJECTED)
            else:
                self.backlog.append(waiting)

    def _end(self, waiting: Waiting, state: DeliveryState, own: DeliveryState) -> None:
        """Ends a delivery that nobody is to have, by another outcome if it is the queue's own."""
        outlet, delivery = waiting.outlet, waiting.delivery
        if outlet.is_own:
            self.decided(delivery, own)
        elif not delivery.settled:
            self.done(outlet, delivery.tag)
            self.session.decide(outlet, delivery.tag, delivery.number, state)

    def shift(self, seconds: float) -> None:
        """Moves all times: another worker has another clock."""
        for waiting in self.backlog:
            if waiting.ends_at is not None:
                waiting.ends_at += seconds
        for number in self._kept_until:
            self._kept_until[number] += seconds

    # --- to subscriptions -------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Sends what waits to those who have capacity, in turns."""
        self._dispatch()
        if self.backlog:
            self._look()

    def _dispatch(self) -> None:
        backlog, subscriptions = self.backlog, self.subscriptions
        while True:
            self.drop_expired()
            if not backlog:
                return
            outlet, delivery = backlog[0].outlet, backlog[0].delivery
            tried = self._tried.get((outlet, delivery.tag), _NOBODY) if self._tried else _NOBODY
            if tried and tried.issuperset(subscriptions):  # those who had not had it have left
                backlog.popleft()
                self.done(outlet, delivery.tag)
                self.session.decide(outlet, delivery.tag, delivery.number, RELEASED)
                continue
            subscription = self._next_subscription(tried)
            if subscription is None:
                return
            try:
                if not subscription.session.deliver(subscription, outlet, delivery):
                    return
            except TranslationError as error:
                self._end(backlog[0], refusal(error), REJECTED)
            backlog.popleft()
            if len(subscriptions) > 1:
                subscriptions.rotate(-1)

    def done(self, outlet: Outlet, tag: DeliveryTag) -> None:
        """Records that a delivery is done with: nobody asks any more who has released it."""
        if self._tried:
            self._tried.pop((outlet, tag), None)

    def _next_subscription(self, tried: Set[QueueSubscription]) -> QueueSubscription | None:
        subscriptions = self.subscriptions
        for _ in range(len(subscriptions)):
            if subscriptions[0].capacity > 0 and subscriptions[0] not in tried:
                return subscriptions[0]
            subscriptions.rotate(-1)
        return None

    # --- credit -----------------------------------------------------------------------------------

    def review(self) -> None:
        """Grants what subscriptions have capacity for, and takes back what they have not."""
        for outlet in self.outlets.values():
            if not outlet.is_attached or outlet.is_leaving or outlet.is_draining:
                continue
            capacity = self._capacity(outlet)
            if self._is_due(outlet, capacity) or (self.may_fall and capacity < outlet.credit):
                outlet.credit = capacity
                credit = capacity + outlet.resumed
                self.session.engine.runs.add(CreditGranted(outlet.link, credit))
        self.may_fall = False

    def grant_resumed(self, outlet: Outlet) -> None:
        """Grants a link that has come back what it needs to name deliveries again."""
        outlet.credit = max(self._capacity(outlet), 0)
        credit = outlet.credit + outlet.resumed
        self.session.engine.runs.add(CreditGranted(outlet.link, credit))

    def _needs_review(self, outlet: Outlet) -> bool:
        """Returns whether a review would grant an outlet more."""
        return self._is_due(outlet, self._capacity(outlet))

    @staticmethod
    def _is_due(outlet: Outlet, capacity: int) -> bool:
        gain = capacity - outlet.credit
        return gain > 0 and (outlet.credit <= 0 or 2 * gain >= capacity)

    def _capacity(self, outlet: Outlet) -> int:
        """Works out how many more deliveries are taken; none where others may be waiting."""
        if self.is_local and not self.subscriptions:
            if outlet.is_shared:
                return 0
            waiting = sum(not each.outlet.is_own for each in self.backlog)
            return max(LOCAL_CREDIT - waiting, 0)
        capacity = -len(self.backlog)
        for subscription in self.subscriptions:
            capacity += max(subscription.capacity, 0)
        return max(capacity, 0)

    def stop(self, subscription: QueueSubscription) -> None:
        """Takes a subscription's credit away (0-10 message.stop)."""
        subscription.void()
        self.may_fall = True
        self.review()
        if not self.is_local:
            for outlet in list(self.outlets.values()):
                self.release(outlet)

    def drain(self, subscription: QueueSubscription, number: int) -> bool:
        """Has every outlet's credit used up or given back (0-10 message.flush).

        Returns:
            whether that takes time; ``drained`` says when it is done.
        """
        capacity = subscription.capacity
        waits = False
        for outlet in self.outlets.values():
            if outlet.is_attached and not outlet.is_leaving and capacity > 0:
                outlet.is_draining = waits = True
                outlet.credit = capacity
                self.session.engine.runs.add(
                    CreditGranted(outlet.link, capacity + outlet.resumed, drain=True)
                )
        if waits:
            subscription.flushes.append(number)
        return waits

    def drained(self, outlet: Outlet) -> None:
        """Records that a link has nothing more to send."""
        outlet.credit = 0
        outlet.is_draining = False
        if any(each.is_draining for each in self.outlets.values()):
            return
        self.dispatch()
        for subscription in self.subscriptions:
            if subscription.flushes:
                subscription.void()
                flushes, subscription.flushes = subscription.flushes, []
                self.session.complete_all(flushes)
        if not self.is_local:
            for each in list(self.outlets.values()):
                self.release(each)
        self.may_fall = True
        self.session.review(self)

    # --- end --------------------------------------------------------------------------------------

    def remove(self, subscription: QueueSubscription) -> None:
        """Takes a subscription out; a queue without any may go."""
        subscription.is_active = False
        self.subscriptions.remove(subscription)
        self.session.complete_all(subscription.flushes)
        if not self.subscriptions:
            if not self.is_local:
                for outlet in list(self.outlets.values()):
                    self.close_outlet(outlet)
            elif self.auto_delete and not self.is_exclusive:
                self.delete()  # an exclusive one goes with its session
        self.may_fall = True
        self.session.review(self)

    def delete(self) -> None:
        """Ends a local queue, and with it the subscriptions to it."""
        for watch in list(self.watches.values()):
            self.session.watching.end(watch)
        for outlet in list(self.outlets.values()):
            self.close_outlet(outlet)
        self.session.queues.pop(self.name, None)
        self.takes_own = False
        self.session.server.forget_shapes()

    def purge(self) -> None:
        """Drops what waits, as if it had been received."""
        backlog, self.backlog = self.backlog, deque()
        for waiting in backlog:
            self._end(waiting, ACCEPTED, ACCEPTED)
        self.session.review(self)


def _ttl_of(delivery: OutgoingDelivery) -> int | None:
    """Reads a message's ttl in milliseconds; None if it has none that can be read."""
    try:
        content = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_10)
        layout = messages.content_layout(content)
        properties = messages.delivery_properties(content[layout.header_at : layout.body_at])
    except (TranslationError, DecodeError):
        return None  # whoever it is sent to finds out
    return None if properties is None else messages.milliseconds_left(properties)


def gone(queue: Queue, condition: Condition) -> str:
    """Words why a queue is not there any more."""
    return f"queue {queue.name!r}: {condition}"
