"""A client's queues: the links behind them, and the consumers before them.

Theory of operation. A router stores nothing, so a *queue* here is a name, the addresses that it
receives from, and the consumers that take turns. Its own name is one address; each binding adds
one. There are two kinds:

- a *routed* queue is an address of the routing table: shared, durable and held by whoever is behind
  the route. Its outlets (outgoing links) exist while it has consumers;
- a *local* queue lasts as long as this connection: server-named, exclusive or auto-delete. Its
  outlets exist from the beginning, and accept ``LOCAL_CREDIT`` deliveries before there is a
  consumer, so that messages between declare, bind and consume are not lost.

Deliveries from all outlets form one queue, ``backlog``; a consumer with capacity gets the next one.

Ownership. An unsettled delivery belongs to its sender: the sender gets the client's outcome, and a
delivery that the client returns goes back to the core. A settled delivery belongs to the queue, so
the queue keeps it until it is acknowledged: a returned one is requeued at the head, redelivered. A
publish of this connection to a local queue of its own is settled when it is in the queue: publisher
and queue last equally long. (If others may receive from the same address, it is put there in
another way, see ``keeping``.) The octets that a queue keeps are limited by ``KEPT_OCTETS``.

Capacity is 0-9-1's credit: a consumer's prefetch less its unacknowledged deliveries, and likewise
the channel's. An outlet is granted the capacity of all consumers. With several outlets the same
capacity is granted to each, and surplus deliveries wait in the backlog; that is bounded, and no
address starves another.

    credit falls  with each delivery
    credit rises  when half of the capacity is free again, or when there was none at all
    credit ends   when consumers pause (channel.flow) or leave
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final
from typing import Protocol as Interface

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import CreditGranted, LinkDetached
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
)
from router.model.text import decode_text
from router.wire import hub
from router.wire.runs import Runs
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.backlog import NEW, Backlog
from router.wire.v0_9_1.exchanges import Binding, Exchanges, Gate, Reach
from router.wire.v0_9_1.limits import UNLIMITED, Limits
from router.wire.v0_9_1.outlets import Outlet, OutletOwner
from router.wire.v0_9_1.posts import DROPPED
from router.wire.v0_9_1.prefetch import UNBOUNDED_CAPACITY, Window
from router.wire.v0_9_1.waiting import Watch

LOCAL_CREDIT: Final = 100
"""Deliveries of others that a local queue accepts while it has no consumer."""

KEPT_OCTETS: Final = 16 << 20
"""Octets of its own that a queue keeps; above it accepts no more until some are acknowledged."""

_KEPT_OVERHEAD: Final = 512
"""Octets of a kept delivery besides its payload."""

BOUNDED_MOST: Final = 10_000
"""Deliveries of others that a queue accepts which drops, or refuses, surplus by itself."""


class QueueKeeper(Interface):
    """The part of a connection that its queues use."""

    runs: Runs
    now: float
    exchanges: Exchanges
    outlets: dict[LinkId, Outlet]

    @property
    def protocol(self) -> Protocol:
        """The encoding of payloads."""

    def next_link(self) -> LinkId:
        """Returns a new link id."""

    def ask_for_outlet(self, outlet: Outlet, name: str) -> None:
        """Asks the core for an outgoing link."""

    def settle(self, outlet: Outlet, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        """Reports to the core the outcome of deliveries, and settles them."""

    def refuse(self, outlet: Outlet, delivery: OutgoingDelivery, error: TranslationError) -> None:
        """Refuses a delivery that cannot be sent to the client."""

    def is_own(self, payload: bytes) -> bool:
        """Returns whether this connection published a message, to one of its local queues."""

    def end_watch(self, watch: Watch) -> None:
        """Ends a watch with the core."""

    def forget_queue(self, queue: "Queue") -> None:
        """Records that a queue is gone."""

    def review(self, queue: "Queue") -> None:
        """Reviews a queue's credit at the end of the turn."""

    def wake_at(self, at: float) -> None:
        """Schedules a check of waiting deliveries for this time."""


class ConsumerChannel(Interface):
    """The channel of a consumer.

    Attributes:
        window: the prefetch of all its consumers together.
    """

    window: Window

    def deliver(self, consumer: Any, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to a consumer."""

    def cancelled(self, consumer: Any, condition: Condition | None) -> None:
        """Notifies the client that a consumer's queue is gone."""


class QueueConsumer(Interface):
    """A consumer of a queue (``consumers``)."""

    window: Window
    priority: int
    is_exclusive: bool

    @property
    def channel(self) -> ConsumerChannel:
        """The channel that it consumes on."""

    @property
    def capacity(self) -> int:
        """Number of deliveries that the consumer accepts now."""


class Offering(Interface):
    """Offers the kept messages of a shared queue to receivers elsewhere (``keeping``)."""

    def review(self) -> None:
        """Attaches the link, hands on as far as it has credit, or detaches it."""

    def end(self) -> None:
        """Detaches the link."""


class Queue(OutletOwner):
    """A queue of this connection (see the module).

    Attributes:
        is_local: it lasts as long as the connection.
        bindings: as the client declared them.
        reached: the addresses and patterns of the bindings, through other exchanges, too
            (``exchanges``).
        outlets: by address.
        watches: by pattern.
        consumers: in the order of their turns.
        backlog: waiting deliveries.
        kept_octets: settled payload here, and at clients that may return it.
        auto_delete: it is deleted with its last consumer.
        priority: of its links: that of the first consumer.
        has_priorities: its consumers' priorities differ.
        own_address: the address of its name: the name itself if a route has it, a dynamic node for
            a local queue without a route; empty: it receives only by its bindings.
        is_deleted: it is deleted, though it may still be referenced.
        may_reduce: the next review may reduce credit, because a consumer paused or left.
        limits: of a local queue, from its arguments.
        offer: of a shared queue: offers its kept messages.
    """

    def __init__(
        self,
        engine: QueueKeeper,
        name: str,
        *,
        is_local: bool,
        is_exclusive: bool = False,
        auto_delete: bool = False,
        limits: Limits = UNLIMITED,
    ) -> None:
        self._engine = engine
        self.name = name
        self.is_local = is_local
        self.is_exclusive = is_exclusive
        self.auto_delete = auto_delete
        self.bindings: list[Binding] = []
        self.reached: list[Reach] = []
        self.outlets: dict[str, Outlet] = {}
        self.watches: dict[str, Watch] = {}
        self.consumers: deque[QueueConsumer] = deque()
        self.limits = limits
        self.backlog = Backlog(limits)
        self.kept_octets = 0
        self.priority = 0
        self.has_priorities = False
        self.own_address = name
        self.offer: Offering | None = None
        self.may_reduce = False
        self.is_deleted = False
        self._used_at = engine.now

    @property
    def addresses(self) -> set[str]:
        """The addresses that the queue receives from, except patterns."""
        own = {self.own_address} if self.own_address else set()
        return own | {each.address for each in self.reached if not each.is_pattern}

    @property
    def is_open(self) -> bool:
        """Whether its links exist: a local queue's always, others while there is a consumer."""
        return self.is_local or bool(self.consumers)

    @property
    def keeps(self) -> bool:
        """Whether it keeps its connection's publishes to its name while it has no consumer."""
        return self.is_shared and self.offer is not None and self.kept_octets <= KEPT_OCTETS

    @property
    def may_be_shared(self) -> bool:
        """Whether its name may have consumers on other connections, too."""
        own = self.outlets.get(self.own_address)
        return not self.is_local or (own is not None and own.is_shared)

    @property
    def is_shared(self) -> bool:
        """Whether it is local, but messages to its name wait for consumers anywhere."""
        return self.is_local and self.may_be_shared and not self.consumers

    @property
    def _keeps(self) -> bool:
        """Whether waiting deliveries stay when their binding is removed."""
        return self.is_local and not self.is_deleted

    @property
    def patterns(self) -> set[str]:
        """The patterns that the queue receives from."""
        return {each.address for each in self.reached if each.is_pattern}

    @property
    def usable_outlets(self) -> list[Outlet]:
        """Its attached links that are not leaving."""
        return [one for one in self.outlets.values() if one.is_attached and not one.is_leaving]

    @property
    def has_capacity(self) -> bool:
        """Whether the queue accepts more deliveries without further credit."""
        return self._capacity()[0] > 0

    def wants(self, address: str) -> bool:
        """Returns whether the queue receives from an address, by its name or by a binding."""
        return address == self.own_address or bool(self._gates_at(address))

    def _gates_at(self, address: str) -> list[tuple[Gate, ...]]:
        """Returns the gates of each way in which the queue receives from an address."""
        found = []
        for each in self.reached:
            if each.is_pattern:
                watch = self.watches.get(each.address)
                if watch is None or address not in watch.addresses:
                    continue
            gates = each.gates_at(address)
            if gates is not None:
                found.append(gates)
        return found

    def work_out(self) -> list[Reach]:
        """Resolves the bindings again, and closes outlets that are no longer needed.

        Returns:
            the addresses and patterns that are new.
        """
        reached: list[Reach] = []
        for binding in self.bindings:
            reached += [
                each for each in self._engine.exchanges.reached(binding) if each not in reached
            ]
        before, self.reached = self.reached, reached
        for pattern in self.watches.keys() - self.patterns:
            self.end_watch(self.watches[pattern])
        for outlet in list(self.outlets.values()):
            self.let_go(outlet.address)
            self._filter(outlet)
        return [each for each in reached if each not in before]

    def _filter(self, outlet: Outlet) -> None:
        """Sets the filters of an outlet from the bindings."""
        gates = self._gates_at(outlet.address)
        is_all = outlet.address == self.own_address or () in gates
        outlet.filters = [] if is_all else gates

    # --- links ------------------------------------------------------------------------------------

    def open_outlet(self, address: str, name: str) -> Outlet:
        """Requests a link from an address; "" for a dynamic node.

        Args:
            address: where it is to receive from.
            name: prefix of the link's name.
        """
        outlet = self.outlets.get(address)
        if outlet is not None:
            outlet.is_leaving = False
            return outlet
        outlet = Outlet(self._engine.next_link(), self, address)
        outlet.name_route(address)
        self._filter(outlet)
        self.outlets[address] = outlet
        self._engine.ask_for_outlet(outlet, name)
        return outlet

    def attached(self, outlet: Outlet, answer: AttachLink) -> None:
        """Applies the core's answer for a link; ``move``: each message to one receiver."""
        source, outlet.is_exact = answer.source, answer.is_exact
        outlet.is_shared = (
            self.is_local
            and not self.is_exclusive
            and outlet.address == self.own_address != ""
            and source is not None
            and source.distribution_mode == "move"
            and not source.dynamic
        )

    def close_outlet(self, outlet: Outlet) -> None:
        """Detaches a link as soon as nothing on it is unsettled."""
        if outlet.credit and outlet.is_attached:
            outlet.credit = 0
            self._engine.runs.add(CreditGranted(outlet.link, 0))
        outlet.is_leaving = True
        outlet.end_drain()
        if not self._keeps:
            self.release(outlet)
        self.detach_if_done(outlet)

    def drain(self, outlet: Outlet) -> None:
        """Asks the core to drain a link."""
        self._engine.runs.add(CreditGranted(outlet.link, outlet.credit, drain=True))

    def drained(self, outlet: Outlet) -> None:
        """Records that the core has nothing more for a link."""
        outlet.credit = 0
        self._engine.review(self)
        outlet.end_drain()

    def let_go(self, address: str) -> None:
        """Closes the outlet of an address that the queue no longer receives from."""
        outlet = self.outlets.get(address)
        if outlet is not None and not self.wants(address):
            self.close_outlet(outlet)

    def end_watch(self, watch: Watch) -> None:
        """Ends the watch of a pattern."""
        if self.watches.pop(watch.pattern, None) is None:
            return
        self._engine.end_watch(watch)
        for address in watch.addresses:
            self.let_go(address)

    def detach_if_done(self, outlet: Outlet) -> None:
        """Detaches a link that is leaving, has nothing unsettled, and that no commit waits for."""
        is_in_use = outlet.unsettled or outlet.unrecorded
        if outlet.is_leaving and outlet.is_attached and not is_in_use:
            self.forget(outlet)
            self._engine.runs.add(LinkDetached(outlet.link, closed=True))

    def forget(self, outlet: Outlet) -> None:
        """Records that a link is gone."""
        if self.outlets.get(outlet.address) is outlet:
            del self.outlets[outlet.address]
        self._engine.outlets.pop(outlet.link, None)
        outlet.is_attached = False
        outlet.end_drain()
        self._take_out(outlet)

    def release(self, outlet: Outlet) -> None:
        """Returns the waiting deliveries of a link to the core, except the queue's own."""
        numbers = self._take_out(outlet)
        if numbers:
            self._engine.settle(outlet, numbers, RELEASED)

    def _take_out(self, outlet: Outlet) -> list[DeliveryNumber]:
        """Removes a link's unsettled deliveries from the backlog; returns their numbers."""
        found = [one for each, one, _ in self.backlog if each is outlet and not one.settled]
        if found:
            kept = [one for one in self.backlog if one[0] is not outlet or one[1].settled]
            self.backlog.clear()
            self.backlog.extend(kept)
        return [delivery.number for delivery in found]

    # --- deliveries -------------------------------------------------------------------------------

    def take(self, outlet: Outlet, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        engine = self._engine
        for delivery in deliveries:
            outlet.credit -= 1
            if not delivery.settled:
                outlet.unsettled += 1
            is_own = not outlet.is_shared and self.is_local and engine.is_own(delivery.payload)
            if outlet.filters and not self._matches(outlet, delivery):
                if not delivery.settled:
                    self._engine.settle(outlet, [delivery.number], MODIFIED_UNDELIVERABLE)
                continue
            if self.limits.rejects and self._is_full():
                if not delivery.settled:
                    self._engine.settle(outlet, [delivery.number], DROPPED)
                continue
            if is_own and not delivery.settled:
                self._engine.settle(outlet, [delivery.number], ACCEPTED)
                delivery.settled = True
            if delivery.settled:
                self.kept_octets += len(delivery.payload) + _KEPT_OVERHEAD
            self.backlog.append((outlet, delivery, NEW))
        if outlet.is_leaving and not self._keeps:
            self.release(outlet)
        self.dispatch()
        if self.limits.is_bounded:
            self._drop(self.backlog.take_surplus())
        self.may_reduce = self.may_reduce or self.kept_octets > KEPT_OCTETS
        if self.may_reduce or self.backlog or self.needs_review(outlet):
            self._engine.review(self)

    def keep(self, deliveries: list[ReceivedDelivery]) -> tuple[list[int], list[int]]:
        """Keeps publishes of its own connection, without the core (``keeping``).

        Returns:
            the numbers of accepted and of refused publishes, without settled ones.
        """
        outlet = self.outlets[self.own_address]
        taken: list[int] = []
        refused: list[int] = []
        for one in deliveries:
            has_capacity = not (self.limits.rejects and self.backlog.is_full)
            if not one.settled:
                (taken if has_capacity else refused).append(one.number)
            if has_capacity:
                self.kept_octets += len(one.payload) + _KEPT_OVERHEAD
                self.backlog.append((outlet, _kept(one), NEW))
                if self.limits.is_bounded:
                    self._drop(self.backlog.take_surplus())
        self._engine.review(self)
        return taken, refused

    def _is_full(self) -> bool:
        """Returns whether the backlog is full even after dispatching to consumers with capacity."""
        if self.backlog.is_full:
            self.dispatch()
        return self.backlog.is_full

    def _drop(self, entries: Iterable[tuple[Outlet, OutgoingDelivery]]) -> None:
        """Drops deliveries that may not wait any longer; their senders get the outcome."""
        for outlet, delivery in entries:
            if delivery.settled:
                self.finish_delivery(delivery)
            else:
                self._engine.settle(outlet, [delivery.number], DROPPED)

    def take_next(self) -> tuple[Outlet, OutgoingDelivery] | None:
        """Removes and returns the oldest delivery that has not expired; None if there is none."""
        self._drop(self.backlog.take_ended(self._engine.now))
        if not self.backlog:
            return None
        outlet, delivery, _ = self.backlog.popleft()
        return outlet, delivery

    def take_back(
        self, entries: Sequence[tuple[Outlet, OutgoingDelivery]], state: DeliveryState
    ) -> None:
        """Requeues returned deliveries of the queue's own at the head, in order."""
        for _, delivery in entries:
            failed = 1 if state == MODIFIED_FAILED else 0
            delivery.delivery_count = max((delivery.delivery_count or 0) + failed, 1)
        self.backlog.extendleft((outlet, delivery, NEW) for outlet, delivery in reversed(entries))

    def adopt(self, outlet: Outlet, delivery: OutgoingDelivery) -> Outlet:
        """Keeps a settled delivery that arrived by another link, so that it may be returned.

        Returns:
            the outlet that represents that link here; the link itself if enough is kept already.
        """
        if self.kept_octets > KEPT_OCTETS:
            return outlet
        self.kept_octets += len(delivery.payload) + _KEPT_OVERHEAD
        return Outlet(outlet.link, self, outlet.address, route=outlet.route)

    def finish_delivery(self, delivery: OutgoingDelivery) -> None:
        """Records that a delivery of the queue's own is done."""
        self.kept_octets -= len(delivery.payload) + _KEPT_OVERHEAD

    def _matches(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Returns whether a binding matches a message; invalid messages pass."""
        try:
            content = hub.translate(delivery.payload, delivery.protocol, self._engine.protocol)
            is_taken = _passes(outlet.filters, content)
        except (TranslationError, DecodeError):
            return True
        delivery.payload, delivery.protocol = content, self._engine.protocol
        return is_taken

    def takes_all(self, address: str) -> bool:
        """Returns whether every publish to an address will be in the queue."""
        return address == self.own_address or () in self._gates_at(address)

    def would_take(self, address: str, content: bytes) -> bool:
        """Returns whether a publish to an address will be in the queue."""
        return _passes(self._gates_at(address), content)

    def dispatch(self) -> None:
        """Sends waiting deliveries to consumers with capacity, in turn."""
        backlog, consumers = self.backlog, self.consumers
        while backlog:
            consumer = self._next_consumer()
            if consumer is None:
                return
            outlet, delivery, ends_at = backlog.popleft()
            if NEW < ends_at <= self._engine.now:
                self._drop([(outlet, delivery)])
                continue
            try:
                consumer.channel.deliver(consumer, outlet, delivery)
            except TranslationError as error:
                self._engine.refuse(outlet, delivery, error)
            if len(consumers) > 1:
                consumers.rotate(-1)

    def _next_consumer(self) -> QueueConsumer | None:
        consumers = self.consumers
        first = next((one for one in consumers if one.capacity > 0), None)
        if first is None:
            return None
        if self.has_priorities:
            able = (one for one in consumers if one.capacity > 0)
            first = max(able, key=lambda one: one.priority)
        while consumers[0] is not first:
            consumers.rotate(-1)
        return first

    # --- credit -----------------------------------------------------------------------------------

    def review(self) -> None:
        """Grants credit as far as consumers have capacity, and revokes credit beyond it."""
        if self.is_local or self.backlog:
            self._keep_time()
        if self.offer is not None:
            self.offer.review()
        capacity, most = self._capacity()
        for outlet in self.outlets.values():
            if outlet.is_attached and not outlet.is_leaving and not outlet.draining:
                own = self._capacity_of(outlet, capacity)
                if self._is_due(outlet, own, most) or (self.may_reduce and own < outlet.credit):
                    outlet.credit = own
                    self._engine.runs.add(CreditGranted(outlet.link, own))
        self.may_reduce = False

    def needs_review(self, outlet: Outlet) -> bool:
        """Returns whether a review would grant an outlet more credit."""
        capacity, most = self._capacity()
        return self._is_due(outlet, self._capacity_of(outlet, capacity), most)

    def _capacity_of(self, outlet: Outlet, capacity: int) -> int:
        """Returns how much of the capacity one outlet is granted."""
        return 0 if outlet.is_shared and not self.consumers else capacity

    @staticmethod
    def _is_due(outlet: Outlet, capacity: int, most: int) -> bool:
        gain = capacity - outlet.credit
        return gain > 0 and (outlet.credit <= 0 or 2 * gain >= most)

    def _capacity(self) -> tuple[int, int]:
        """Returns how many more deliveries are accepted, and the greatest number there could be."""
        if self.kept_octets > KEPT_OCTETS:
            return 0, 1
        if self.is_local and self.limits.is_bounded:
            # It drops old ones by itself, so nobody has to wait for its consumers.
            most = min(self.limits.length or 0, BOUNDED_MOST) + LOCAL_CREDIT
            return max(most - len(self.backlog), 0), most
        if self.is_local and not self.consumers:
            others = sum(outlet.unsettled for outlet in self.outlets.values())
            return max(LOCAL_CREDIT - others, 0), LOCAL_CREDIT
        capacity, most = -len(self.backlog), 0
        for consumer in self.consumers:
            capacity += max(consumer.capacity, 0)
            most += consumer.window.limit or consumer.channel.window.limit or UNBOUNDED_CAPACITY
        return max(capacity, 0), most

    # --- time -------------------------------------------------------------------------------------

    def used(self) -> None:
        """Records that the queue is used."""
        self._used_at = self._engine.now
        if self.limits.unused_seconds is not None:
            self._engine.review(self)

    def _keep_time(self) -> None:
        """Drops expired deliveries, and deletes the queue if it was unused for too long."""
        now = self._engine.now
        self.backlog.look(now)
        self._drop(self.backlog.take_ended(now))
        ends_at = self._unused_at
        if now >= ends_at and not self.is_deleted:
            self.delete()
            return
        self._engine.wake_at(min(self.backlog.ends_at, ends_at))

    @property
    def _unused_at(self) -> float:
        """When the queue will have been unused for too long."""
        if self.limits.unused_seconds is None or self.consumers:
            return math.inf
        return self._used_at + self.limits.unused_seconds

    # --- end --------------------------------------------------------------------------------------

    def remove_consumer(self, consumer: QueueConsumer) -> None:
        """Removes a consumer; a queue without consumers may be deleted."""
        self.consumers.remove(consumer)
        self.used()
        if not self.consumers:
            if not self.is_local:
                self._close_all()
            elif self.auto_delete:
                self.delete()
        self.may_reduce = True
        self._engine.review(self)

    def delete(self, condition: Condition | None = None) -> int:
        """Deletes the queue; returns how many deliveries waited in it.

        Args:
            condition: the reason, if it was not the client's request.
        """
        waiting = len(self.backlog)
        self.is_deleted = True
        self._close_all()
        self.backlog.clear()
        if self.offer is not None:
            self.offer.end()
        for consumer in list(self.consumers):
            self.consumers.remove(consumer)
            consumer.channel.cancelled(consumer, condition)
        self._engine.forget_queue(self)
        return waiting

    def _close_all(self) -> None:
        for watch in list(self.watches.values()):
            self.end_watch(watch)
        for outlet in list(self.outlets.values()):
            self.close_outlet(outlet)

    def purge(self) -> int:
        """Drops waiting deliveries, as if they had been consumed; returns their number."""
        waiting = list(self.backlog)
        self.backlog.clear()
        for outlet, delivery, _ in waiting:
            if delivery.settled:
                self.finish_delivery(delivery)
            else:
                self._engine.settle(outlet, [delivery.number], ACCEPTED)
        self._engine.review(self)
        return len(waiting)


def _kept(delivery: ReceivedDelivery) -> OutgoingDelivery:
    """Creates the queue's own delivery of a publish to it."""
    return OutgoingDelivery(
        delivery.number,
        delivery.tag,
        delivery.payload,
        delivery.protocol,
        settled=True,
        ttl_milliseconds=delivery.ttl_milliseconds,
    )


def _passes(ways: Sequence[tuple[Gate, ...]], content: bytes) -> bool:
    """Returns whether a message passes all gates of one of several ways.

    Raises:
        DecodeError: its properties are invalid.
    """
    found = contents.properties_of(content, contents.content_layout(content))
    headers: dict[str, Any] = found.headers or {}
    key = decode_text(contents.content_route(content)[1])
    return any(all(gate.lets(key, headers) for gate in gates) for gates in ways)
