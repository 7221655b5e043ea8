"""The shared state of a client's connection: exchanges, queues, links, and pending questions.

The parts of its channels (``publishing``, ``asking``, ``getting`` …) use it; frames and commands
are handled above it (``server``).
"""

import math
from collections.abc import Callable, Iterable
from typing import ParamSpec
from typing import Protocol as Interface

import attrs

from router.errors import TranslationError
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import AddressesWatched, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import DeliveryState
from router.model.terminus import OPEN, PRIORITY, Role, Source, Target
from router.wire.asking import Question
from router.wire.engine import EngineSettings
from router.wire.exchange_names import address_of
from router.wire.machine import HELD_STOP_OCTETS
from router.wire.serving import ServingMachine
from router.wire.topics import watchable
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.exchanges import Exchanges
from router.wire.v0_9_1.outgoing import refusal
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.posts import ChannelPublisher, Inlet
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError
from router.wire.v0_9_1.server_handshake import ServerHandshake
from router.wire.v0_9_1.waiting import Attempt, Waiter, Watch

_P = ParamSpec("_P")


class Follower(Interface):
    """Attaches a queue to the addresses in use of a pattern, for one channel."""

    @property
    def channel(self) -> Channel:
        """The channel that the queue was bound on."""

    def reach(self, queue: Queue, watch: Watch, address: str) -> None:
        """Attaches a watch's queue to an address that now has a sender."""

    def settle_down(self, watch: Watch) -> None:
        """Continues what waits for a watch, if all its outlets are attached."""


@attrs.frozen
class Watched:
    """A watch registered with the core.

    Attributes:
        queue: the queue with the pattern.
        follower: attaches the queue.
    """

    watch: Watch
    queue: Queue
    follower: Follower


class Purging(Interface):
    """A purge that is under way (``purging``).

    Attributes:
        at: when its next action is due.
    """

    at: float

    @property
    def channel(self) -> Channel:
        """The channel that waits for the purge."""

    def on_time(self) -> None:
        """Starts the drain, after the time for publishers."""

    def leave(self) -> None:
        """Detaches the link."""


class ServerLinks(ServingMachine[Inlet, Outlet], ServerHandshake):
    """The shared state of one connection's channels.

    Attributes:
        exchanges: the exchanges of this connection.
        attempts: bindings that the core has not answered yet.
        queues: those consumed from, bound or created here, by name.
        has_local: some of them are local.
        own: unsettled publishes of this connection, by identity, while ``has_local``.
        keepers: shared queues of this connection, by address (``keeping``).
        watches: patterns of queues.
        purges: those under way.
        confirms_due: channel → publisher with confirms to write.
    """

    spoken = "AMQP 0-9-1"

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.exchanges = Exchanges()
        self.attempts: list[Attempt] = []
        self.queues: dict[str, Queue] = {}
        self.has_local = False
        self.own: dict[int, bytes] = {}
        self._own_settled: dict[int, bytes] = {}
        self._own_settled_octets = 0
        self.keepers: dict[str, Queue] = {}
        self.inlets: dict[LinkId, Inlet] = {}
        self.outlets: dict[LinkId, Outlet] = {}
        self.watches: dict[LinkId, Watched] = {}
        self.purges: list[Purging] = []
        self.confirms_due: dict[int, ChannelPublisher] = {}
        self._questions: dict[LinkId, list[Question[Channel]]] = {}
        self._reviews: dict[int, Queue] = {}
        self._pumps: dict[int, ChannelPublisher] = {}
        self._left_waiting: list[Waiter] = []
        self._wakes_at = math.inf

    def guard(
        self,
        channel: Channel,
        action: Callable[_P, object],
        *arguments: _P.args,
        **options: _P.kwargs,
    ) -> None:
        """Runs code that may find the peer at fault."""
        try:
            action(*arguments, **options)
        except PeerError as error:
            self.fault(error, channel)

    def forget_shapes(self) -> None:
        """Records that a publish's octets may mean something else now."""
        raise NotImplementedError

    def drained(self) -> None:
        """Records that a channel holds no publishes any more."""
        raise NotImplementedError

    # --- queues -----------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> None:
        """Registers a queue by its name."""
        queue.used()
        self.queues[queue.name] = queue
        self.has_local = self.has_local or queue.is_local
        self.forget_shapes()

    def known_queue(self, name: str) -> Queue:
        """Returns a queue; an unknown one is registered as a routed queue."""
        queue = self.queues.get(name)
        if queue is None:
            queue = Queue(self, name, is_local=False)
            self.add_queue(queue)
        return queue

    def forget_queue(self, queue: Queue) -> None:
        """Records that a queue is gone."""
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
        self.has_local = any(each.is_local for each in self.queues.values())
        if self.keepers.get(queue.own_address) is queue:
            del self.keepers[queue.own_address]
        self.forget_shapes()

    def work_out_all(self) -> None:
        """Resolves the bindings of all queues again, after a change of an exchange."""
        for queue in self.queues.values():
            queue.work_out()

    def address_of(self, exchange: str, routing_key: str) -> str:
        """Returns the address of a publish."""
        if exchange:
            return address_of(exchange, routing_key, self.exchanges.get(exchange))
        queue = self.queues.get(routing_key)
        return queue.own_address if queue is not None and queue.own_address else routing_key

    def is_own(self, payload: bytes) -> bool:
        """Returns whether a message was published on this connection, to one of its local queues.

        For a publish without confirms it returns True once only.
        """
        if self._own_settled.pop(id(payload), None) is not None:
            self._own_settled_octets -= len(payload)
            return True
        return id(payload) in self.own

    def has_local_at(self, address: str) -> bool:
        """Returns whether a local queue of this connection receives from an address."""
        return any(queue.is_local and address in queue.outlets for queue in self.queues.values())

    def note_own(self, deliveries: Iterable[ReceivedDelivery]) -> None:
        """Records publishes without confirms to an address of a local queue.

        Those that went to another receiver are forgotten when there are too many.
        """
        known = self._own_settled
        for delivery in deliveries:
            known[id(delivery.payload)] = delivery.payload
            self._own_settled_octets += len(delivery.payload)
        while self._own_settled_octets > HELD_STOP_OCTETS and len(known) > 1:
            self._own_settled_octets -= len(known.pop(next(iter(known))))

    # --- links ------------------------------------------------------------------------------------

    def ask(self, link: LinkId, question: Question[Channel]) -> None:
        """Records who waits for the core's answer."""
        self._questions.setdefault(link, []).append(question)

    def ask_for_outlet(self, outlet: Outlet, name: str) -> None:
        """Asks the core for an outgoing link."""
        self.outlets[outlet.link] = outlet
        self.runs.add(
            LinkAttached(
                link=outlet.link,
                name=LinkName(f"{name}:{outlet.link}"),
                role=Role.SENDER,
                is_answer=False,
                source=Source(address=outlet.address) if outlet.address else Source(dynamic=True),
                target=Target(),
                properties=_asked_of(outlet),
            )
        )

    def settle(self, outlet: Outlet, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        """Reports to the core the outcome of deliveries, and settles them."""
        outlet.unsettled -= len(numbers)
        self.runs.update(outlet.link, numbers, state, True)
        if outlet.is_leaving and isinstance(outlet.owner, Queue):
            outlet.owner.detach_if_done(outlet)

    def refuse(self, outlet: Outlet, delivery: OutgoingDelivery, error: TranslationError) -> None:
        """Refuses a delivery that cannot be sent to the client."""
        if not delivery.settled:
            self.settle(outlet, [delivery.number], refusal(error))
        elif isinstance(outlet.owner, Queue):
            outlet.owner.finish_delivery(delivery)

    def review(self, queue: Queue) -> None:
        """Reviews a queue's credit at the end of the turn."""
        self._reviews[id(queue)] = queue

    def begin_watch(self, watch: Watch, queue: Queue, follower: Follower) -> None:
        """Asks the core which addresses of a pattern are in use."""
        self.watches[watch.link] = Watched(watch, queue, follower)
        self.runs.add(AddressesWatched(watch.link, watchable(watch.pattern)))

    def end_watch(self, watch: Watch) -> None:
        """Ends a watch with the core."""
        if self.watches.pop(watch.link, None) is not None:
            self.runs.add(LinkDetached(watch.link, closed=True))
            self._left_waiting += watch.take_waiting()

    # --- turns ------------------------------------------------------------------------------------

    def wake_at(self, at: float) -> None:
        """Schedules a check of waiting and held deliveries for this time."""
        self._wakes_at = min(self._wakes_at, at)

    def pump_later(self, publishing: ChannelPublisher) -> None:
        """Hands on held deliveries at the end of the turn, with the time of the turn."""
        self._pumps[publishing.channel.number] = publishing


def _asked_of(outlet: Outlet) -> dict[object, object]:
    """Returns a link's properties: a queue that is not exclusive is for all."""
    owner = outlet.owner
    asked: dict[object, object] = {PRIORITY: owner.priority} if owner.priority else {}
    if isinstance(owner, Queue) and not (outlet.address or owner.is_exclusive):
        asked[OPEN] = True
    return asked
