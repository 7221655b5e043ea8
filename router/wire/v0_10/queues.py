"""A client's queues: the links behind them, and the subscriptions before them.

Theory of operation. A router stores nothing, so a *queue* here is a name, the addresses that it
receives from, and the subscriptions that take turns. There are two kinds:

- a *routed* queue is an address of the routing table: shared, durable and held by whoever is behind
  the route. Each subscription has a link of its own to it;
- a *local* queue lasts as long as its session: exclusive or auto-delete. Its own name is one
  address, each binding adds one; its outlets (outgoing links) exist from the beginning, and accept
  ``LOCAL_CREDIT`` deliveries before there is a subscription; except from the name of a queue that
  is not exclusive, because others may receive from that.

Deliveries from all outlets form one list, ``backlog``; a subscription with capacity gets the next
one. Expired deliveries are dropped at the head.

A transfer of its own connection, by name, to a local queue that only this connection can reach by
that name (it is exclusive, or no route has the name) does not pass the core: it is *own*. It
belongs to the queue at once, so its transfer is complete; a released one returns to the head; and
it ends with the queue. ``KEPT_OCTETS`` limits it.

An outlet is granted the capacity of all subscriptions (``subscription``). With several outlets the
same capacity is granted to each, and surplus deliveries wait in the backlog; that is bounded.

    flush      every outlet is drained; complete when all drains are
    stop       credit is void at once; the backlog of a routed queue is returned to the core
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
from router.wire import hub
from router.wire.recording import Unrecorded
from router.wire.v0_10 import message as messages
from router.wire.v0_10.bindings import Binding, headers_match
from router.wire.v0_10.outgoing import refusal
from router.wire.v0_10.reply import ErrorCode, SessionFaultError
from router.wire.v0_10.session import SessionConnection
from router.wire.v0_10.types import Table

LOCAL_CREDIT: Final = 100
"""Deliveries of others that a local queue accepts while it has no subscription."""

KEPT_OCTETS: Final = 16 << 20
"""Octets of its own that a queue keeps."""

_KEPT_OVERHEAD: Final = 512
"""Octets of a kept delivery besides its payload."""

_NOBODY: Final[frozenset["QueueSubscription"]] = frozenset()

REJECTED: Final = Rejected()

EXPIRED: Final = Modified(delivery_failed=True, undeliverable_here=True)
"""Outcome of a delivery of others whose ttl ends here."""


@attrs.define(eq=False)
class Outlet:
    """An outgoing link behind a queue.

    Attributes:
        address: the address that it receives from.
        filters: arguments of headers bindings, of which one must match; empty: no filter.
        credit: deliveries that the core may still send.
        unsettled: number of unsettled deliveries.
        resumed: number of deliveries that the core has to name again, for which it needs credit.
        unnamed: their tags, each with the client's outcome since; None: none.
        confirms_outcomes: an outcome is kept until the core has settled the delivery.
        told: such outcomes, each with its delivery's tag.
        is_exact: its route promises exactly-once.
        unrecorded: commands that are complete when outcomes are on record.
        is_attached: the core has accepted it.
        is_leaving: it is detached when nothing is unsettled.
        is_draining: the core has been asked to drain.
        home: the worker that keeps it; None: this one.
        is_own: it is no link, but represents the queue's own deliveries.
        is_shared: others may receive from the queue's name.
    """

    link: LinkId
    queue: "Queue"
    address: str
    filters: list[Table] = attrs.field(factory=list)
    credit: int = 0
    unsettled: int = 0
    resumed: int = 0
    unnamed: dict[DeliveryTag, DeliveryState | None] = attrs.field(factory=dict)
    confirms_outcomes: bool = False
    told: dict[DeliveryNumber, tuple[DeliveryTag, DeliveryState]] = attrs.field(factory=dict)
    is_exact: bool = False
    unrecorded: Unrecorded[int] = attrs.field(factory=Unrecorded)
    is_attached: bool = False
    is_leaving: bool = False
    is_draining: bool = False
    home: str | None = None
    is_own: bool = False
    is_shared: bool = False

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
        self.queue.take(self, deliveries)

    def drained(self) -> None:
        """Records that the core has nothing more."""
        self.queue.drained(self)

    def accepted(self, answer: AttachLink) -> None:
        """Records the core's acceptance."""
        self.is_attached = True
        self.confirms_outcomes = answer.confirms_outcomes
        self.is_exact = answer.is_exact

    @property
    def has_told_all(self) -> bool:
        """Whether the core has been told all the client's outcomes."""
        return self.is_attached and not any(self.unnamed.values())

    def suspend(self) -> None:
        """Records that the session has lost its channel; the home may lack what it was told."""
        self.is_attached = self.is_draining = False
        self.credit = 0
        self.unnamed |= dict(self.told.values())
        self.told.clear()
        self.unrecorded.suspend()


@attrs.define(eq=False)
class Waiting:
    """A delivery in a queue.

    Attributes:
        outlet: the link that brought it.
        ends_at: when its ttl ends; None: not computed, since it may be sent at once.
    """

    outlet: Outlet
    delivery: OutgoingDelivery
    ends_at: float | None = None


@attrs.define(eq=False)
class Watch:
    """A binding with wildcards, from whose addresses a queue receives.

    Attributes:
        link: its id with the core.
        addresses: those in use.
        unanswered: outlets that the core must answer before ``accepted`` is called.
        accepted, refused: one is called once, with the core's answer; None afterwards.
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
    """The part of a client's connection that its queues use."""

    outlets: dict[LinkId, Outlet]

    def next_link(self) -> LinkId:
        """Returns a new link id."""

    def forget_shapes(self) -> None:
        """Clears cached meanings of transfers: queues have changed."""


class QueueWatching(Interface):
    """The patterns of one session's queues (``watching``)."""

    def follow(self, watch: Watch, command: AddressesChanged) -> None:
        """Attaches a queue to the addresses that are in use, and to no others."""

    def end(self, watch: Watch) -> None:
        """Ends the watch of a pattern."""


class QueueSession(Interface):
    """The part of a session that its queues use."""

    name: bytes
    queues: "dict[str, Queue]"

    @property
    def link_prefix(self) -> str:
        """What the names of its links begin with."""

    @property
    def engine(self) -> SessionConnection:
        """The connection that carries the session, or carried it last."""

    @property
    def server(self) -> QueueServer:
        """The same, as a client's."""

    @property
    def watching(self) -> QueueWatching:
        """The patterns of its queues."""

    @property
    def is_attached(self) -> bool:
        """Whether it has a channel."""

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its channel."""

    @property
    def expiry_seconds(self) -> int:
        """How long its links outlive it, in AMQP 1.0's form (§3.5.3, timeout)."""

    def complete_all(self, numbers: Iterable[int]) -> None:
        """Records that commands are carried out."""

    def review(self, queue: "Queue") -> None:
        """Reviews a queue's credit at the end of the turn."""

    def settle(
        self, outlet: Outlet, tag: DeliveryTag, number: DeliveryNumber, state: DeliveryState
    ) -> None:
        """Reports to the core the outcome of a delivery."""

    def decide(
        self,
        outlet: Outlet,
        tag: DeliveryTag,
        number: DeliveryNumber | None,
        state: DeliveryState,
    ) -> None:
        """Reports the outcome of a delivery to the core, or keeps it until the core asks."""

    def ask_for_record(self, outlet: Outlet) -> None:
        """Asks the core to report when the client's outcomes are on record, if a command waits."""

    def tags_of(self, outlet: Outlet) -> list[DeliveryTag]:
        """Returns the tags, of a link that comes back, that the client or the backlog has."""

    def resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Handles the core's new number for a delivery; returns whether the client has it."""

    def lose(self, outlet: Outlet, condition: Condition) -> None:
        """Records that the core has detached a link."""

    def finished(self, number: int) -> None:
        """Records that one of the things is done that a command waits for."""

    def unknown(self, outlet: Outlet, number: int, condition: Condition) -> None:
        """Handles that nobody will know whether a command's outcomes are on record."""


class SubscriptionSession(Interface):
    """The session of a subscription."""

    def deliver(self, subscription: Any, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Sends a delivery to a subscription; returns whether its credit allowed it."""


class QueueSubscription(Interface):
    """A subscription to a queue (``subscription``)."""

    label: str
    is_exclusive: bool
    flushes: list[int]
    is_active: bool

    @property
    def codes(self) -> tuple[int, int]:
        """Class and code of the subscribing command."""

    @property
    def session(self) -> SubscriptionSession:
        """The session of the subscription."""

    @property
    def capacity(self) -> int:
        """Number of messages that the subscription accepts now."""

    def void(self) -> None:
        """Revokes all credit."""


class Queue:
    """A queue of a session (see the module).

    Attributes:
        is_local: it lasts as long as the session.
        outlets: by address.
        watches: bindings with wildcards, by pattern.
        subscriptions: in the order of their turns.
        backlog: waiting deliveries.
        auto_delete: it is deleted with its last subscription.
        has_own_address: its name is an address; not so for a local queue without a route.
        takes_own: its connection's transfers by name do not pass the core.
        own: represents the link of these transfers.
        kept_octets: own deliveries here, and at clients that may return them.
        may_reduce: the next review may reduce credit.
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
        self._route_ttl: float | None = None
        self.takes_own = False
        self.own = Outlet(LinkId(0), self, "", is_own=True)
        self.kept_octets = 0
        self._kept_count = 0
        self._kept_until: dict[int, float] = {}
        self.may_reduce = False
        self._tried: dict[tuple[Outlet, DeliveryTag], set[QueueSubscription]] = {}

    @property
    def addresses(self) -> set[str]:
        """The addresses that the queue receives from."""
        own = {self.name} if self.has_own_address else set()
        return own | {each.address for each in self.bindings if not each.is_pattern}

    def wants(self, address: str) -> bool:
        """Returns whether the queue receives from an address, by itself or by a pattern."""
        if address in self.addresses:
            return True
        return any(address in watch.addresses for watch in self.watches.values())

    # --- links ------------------------------------------------------------------------------------

    def open_outlet(self, address: str, label: str) -> Outlet:
        """Requests a link from an address.

        Args:
            address: the address.
            label: distinguishes the links of several subscriptions to one address.
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
        """Requests a link, perhaps one that the core has known before.

        Args:
            outlet: the link.
            label: as with ``open_outlet``.
            is_back: the session has come back with all its received deliveries: those that it does
                not list it never had (§2.6.13, as in receiver-settle-mode second).
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
                name=LinkName(f"{session.link_prefix}<{label}<{outlet.address}"),
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
        """Handles the core's acceptance of a link, and whether its address is exclusive."""
        outlet.accepted(answer)
        source = answer.source
        if not self.is_local or outlet.address != self.name or source is None:
            return
        goes_to_one = source.distribution_mode == "move"
        self.takes_own = self.is_exclusive and goes_to_one and not answer.is_exact
        self._route_ttl = answer.ttl_seconds
        outlet.is_shared = not self.is_exclusive and goes_to_one

    @property
    def label(self) -> str:
        """Prefix of its links' names: the label of a routed queue's only subscription."""
        if self.is_local or not self.subscriptions:
            return self.name
        return self.subscriptions[0].label

    def close_outlet(self, outlet: Outlet) -> None:
        """Detaches a link as soon as nothing on it is unsettled."""
        if outlet.credit and outlet.is_attached:
            outlet.credit = 0
            self.session.engine.runs.add(CreditGranted(outlet.link, 0))
        outlet.is_leaving = True
        self.release(outlet)
        self.detach_if_done(outlet)

    def let_go(self, address: str) -> None:
        """Closes the outlet of an address that the queue no longer receives from."""
        outlet = self.outlets.get(address)
        if outlet is not None and not self.wants(address):
            self.close_outlet(outlet)

    def detach_if_done(self, outlet: Outlet) -> None:
        """Detaches a link that is leaving, has nothing unsettled, and that no command waits for."""
        is_in_use = outlet.unsettled or outlet.told or outlet.unrecorded
        if outlet.is_leaving and outlet.is_attached and not is_in_use:
            self.forget(outlet)
            self.session.engine.runs.add(LinkDetached(outlet.link, closed=True))

    def forget(self, outlet: Outlet) -> None:
        """Records that a link is gone."""
        if self.outlets.get(outlet.address) is outlet:
            del self.outlets[outlet.address]
        self.session.server.outlets.pop(outlet.link, None)
        outlet.is_attached = False
        outlet.unnamed.clear()
        outlet.told.clear()
        self.backlog = deque(each for each in self.backlog if each.outlet is not outlet)
        for key in [key for key in self._tried if key[0] is outlet]:
            del self._tried[key]

    def release(self, outlet: Outlet) -> None:
        """Returns the waiting deliveries of a link to the core."""
        back = [each.delivery for each in self.backlog if each.outlet is outlet]
        back = [each for each in back if not each.settled]
        self.backlog = deque(each for each in self.backlog if each.outlet is not outlet)
        for each in back:
            self.session.decide(outlet, each.tag, each.number, RELEASED)

    # --- deliveries -------------------------------------------------------------------------------

    def take(self, outlet: Outlet, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
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
                    session.settle(outlet, delivery.tag, delivery.number, MODIFIED_UNDELIVERABLE)
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
                self.session.settle(outlet, delivery.tag, delivery.number, state)
            self.session.ask_for_record(outlet)
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
            self.session.settle(outlet, delivery.tag, delivery.number, RELEASED)

    def confirmed(self, outlet: Outlet, numbers: Iterable[DeliveryNumber]) -> None:
        """Records that the home of a link has settled deliveries: it has their outcomes."""
        for number in numbers:
            outlet.told.pop(number, None)
        self.detach_if_done(outlet)

    def _matches(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Returns whether a headers binding matches; invalid messages pass, to be refused later."""
        try:
            content = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_10)
            found = messages.read_content(content)
        except (TranslationError, DecodeError):
            return True
        headers: dict[str, Any] = found.message.application_headers or {}
        return any(headers_match(arguments, headers) for arguments in outlet.filters)

    @property
    def is_shared_here(self) -> bool:
        """Whether several subscriptions take turns on one link."""
        return self.is_local and len(self.subscriptions) > 1

    def take_back(
        self, outlet: Outlet, delivery: OutgoingDelivery, subscription: QueueSubscription
    ) -> bool:
        """Puts a delivery that a subscription has released at the head, for the others.

        Returns:
            False: all subscriptions have had it.
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
        """Keeps a transfer of its own connection.

        Raises:
            SessionFaultError: too much is kept.
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
        seconds = [each for each in (self._route_ttl, ttl and ttl / 1000) if each is not None]
        if seconds:
            self._kept_until[number] = self._now + min(seconds)
        delivery = OutgoingDelivery(
            number, DeliveryTag(b""), content, Protocol.AMQP_0_10, settled=True
        )
        self.backlog.append(self._kept(delivery))
        self.dispatch()

    def _kept(self, delivery: OutgoingDelivery) -> Waiting:
        return Waiting(self.own, delivery, self._kept_until.get(delivery.number, math.inf))

    def decided(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        """Handles the outcome of the queue's own delivery; a returned one is the next again.

        One that may not be delivered here again is dropped: only this connection reaches the queue.
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
        """Computes the expiry of new deliveries, which are at either end of the backlog."""
        for line in (reversed(self.backlog), self.backlog):
            for waiting in line:
                if waiting.ends_at is not None:
                    break
                ttl = waiting.delivery.ttl_milliseconds
                if ttl is None:
                    ttl = _ttl_of(waiting.delivery)
                waiting.ends_at = math.inf if ttl is None else self._now + ttl / 1000

    def drop_expired(self) -> None:
        """Drops expired deliveries at the head."""
        backlog = self.backlog
        while backlog and (ends_at := backlog[0].ends_at) is not None and ends_at <= self._now:
            self._end(backlog.popleft(), EXPIRED, REJECTED)

    def drop_all_expired(self) -> None:
        """Drops all expired deliveries, before the backlog is counted."""
        now, backlog = self._now, self.backlog
        self.backlog = deque()
        for waiting in backlog:
            if waiting.ends_at is not None and waiting.ends_at <= now:
                self._end(waiting, EXPIRED, REJECTED)
            else:
                self.backlog.append(waiting)

    def _end(self, waiting: Waiting, state: DeliveryState, own: DeliveryState) -> None:
        """Ends a delivery, with another outcome if it is the queue's own."""
        outlet, delivery = waiting.outlet, waiting.delivery
        if outlet.is_own:
            self.decided(delivery, own)
        elif not delivery.settled:
            self.done(outlet, delivery.tag)
            self.session.decide(outlet, delivery.tag, delivery.number, state)

    def shift(self, seconds: float) -> None:
        """Moves all times by the difference to another worker's clock."""
        for waiting in self.backlog:
            if waiting.ends_at is not None:
                waiting.ends_at += seconds
        for number in self._kept_until:
            self._kept_until[number] += seconds

    # --- to subscriptions -------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Sends waiting deliveries to subscriptions with capacity, in turn."""
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
            if tried and tried.issuperset(subscriptions):  # the others have left
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
        """Records that a delivery is done, so that its releases need not be remembered."""
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
        """Grants credit as far as subscriptions have capacity, and revokes credit beyond it."""
        for outlet in self.outlets.values():
            if not outlet.is_attached or outlet.is_leaving or outlet.is_draining:
                continue
            capacity = self._capacity(outlet)
            if self._is_due(outlet, capacity) or (self.may_reduce and capacity < outlet.credit):
                outlet.credit = capacity
                credit = capacity + outlet.resumed
                self.session.engine.runs.add(CreditGranted(outlet.link, credit))
        self.may_reduce = False

    def grant_resumed(self, outlet: Outlet) -> None:
        """Grants a resumed link the credit that it needs to name deliveries again."""
        outlet.credit = max(self._capacity(outlet), 0)
        credit = outlet.credit + outlet.resumed
        self.session.engine.runs.add(CreditGranted(outlet.link, credit))

    def _needs_review(self, outlet: Outlet) -> bool:
        """Returns whether a review would grant an outlet more credit."""
        return self._is_due(outlet, self._capacity(outlet))

    @staticmethod
    def _is_due(outlet: Outlet, capacity: int) -> bool:
        gain = capacity - outlet.credit
        return gain > 0 and (outlet.credit <= 0 or 2 * gain >= capacity)

    def _capacity(self, outlet: Outlet) -> int:
        """Returns how many more deliveries are accepted; 0 while there is a backlog."""
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
        """Revokes a subscription's credit (0-10 message.stop)."""
        subscription.void()
        self.may_reduce = True
        self.review()
        if not self.is_local:
            for outlet in list(self.outlets.values()):
                self.release(outlet)

    def drain(self, subscription: QueueSubscription, number: int) -> bool:
        """Has every outlet's credit used up or returned (0-10 message.flush).

        Returns:
            whether that is still under way; ``drained`` reports the end.
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
        self.may_reduce = True
        self.session.review(self)

    # --- end --------------------------------------------------------------------------------------

    def remove(self, subscription: QueueSubscription) -> None:
        """Removes a subscription; a queue without any may be deleted."""
        subscription.is_active = False
        self.subscriptions.remove(subscription)
        self.session.complete_all(subscription.flushes)
        if not self.subscriptions:
            if not self.is_local:
                for outlet in list(self.outlets.values()):
                    self.close_outlet(outlet)
            elif self.auto_delete and not self.is_exclusive:
                self.delete()  # an exclusive queue is deleted with its session
        self.may_reduce = True
        self.session.review(self)

    def delete(self) -> None:
        """Deletes a local queue, and its subscriptions."""
        for watch in list(self.watches.values()):
            self.session.watching.end(watch)
        for outlet in list(self.outlets.values()):
            self.close_outlet(outlet)
        self.session.queues.pop(self.name, None)
        self.takes_own = False
        self.session.server.forget_shapes()

    def purge(self) -> None:
        """Drops waiting deliveries, as if they had been received."""
        backlog, self.backlog = self.backlog, deque()
        for waiting in backlog:
            self._end(waiting, ACCEPTED, ACCEPTED)
        self.session.review(self)


def _ttl_of(delivery: OutgoingDelivery) -> int | None:
    """Returns a message's ttl in milliseconds; None if it has none, or an invalid one."""
    try:
        content = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_10)
        layout = messages.content_layout(content)
        properties = messages.delivery_properties(content[layout.header_at : layout.body_at])
    except (TranslationError, DecodeError):
        return None  # the subscriber's side refuses it
    return None if properties is None else messages.milliseconds_left(properties)


def gone(queue: Queue, condition: Condition) -> str:
    """Describes why a queue is gone."""
    return f"queue {queue.name!r}: {condition}"
