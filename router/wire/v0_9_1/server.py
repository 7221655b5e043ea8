"""The side that clients dial: channels, links, and the core's commands.

Theory of operation. What a client says becomes events of links: publishes of *inlets*, consumers
of *outlets* (``publishing``, ``queues``). What the core says is handed to whoever owns the link.
Its answers to attaches are questions of a channel answered (``asking``): the channel goes on,
and what was parked meanwhile is taken up, so a command can bring about events and output.

A command that finds the client at fault (a queue it asked for is not routed) closes the channel or
the connection, as a frame of the client's would.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Final, ParamSpec, assert_never

from router.errors import TranslationError
from router.model import condition as conditions
from router.model.commands import (
    AbortDelivery,
    AddressesChanged,
    AttachLink,
    CloseConnection,
    Command,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    MemoryFound,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    TellHeard,
    TellWays,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    AddressesWatched,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState, is_outcome
from router.model.terminus import OPEN, PRIORITY, Role, Source, Target
from router.wire.asking import Question
from router.wire.engine import EngineSettings
from router.wire.machine import HELD_STOP_OCTETS, Phase
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.binding import Attempt
from router.wire.v0_9_1.channel import End, Expect
from router.wire.v0_9_1.channel import Phase as ChannelPhase
from router.wire.v0_9_1.exchanges import Exchanges
from router.wire.v0_9_1.framing import END_OCTET, METHOD
from router.wire.v0_9_1.names import address_of
from router.wire.v0_9_1.outgoing import refusal
from router.wire.v0_9_1.outlets import Outlet, Waiter, Watch
from router.wire.v0_9_1.posts import Inlet
from router.wire.v0_9_1.publish_lane import PublishLane
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.purging import Purge
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9_1.server_handshake import ServerHandshake

_P = ParamSpec("_P")

DRAIN_SECONDS: Final = 10.0
"""How long a client's close waits for what it published before; then that is void."""

_ACK_FRAME: Final = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""Size, class and method of a frame of ``basic.ack``."""
_ACK_OCTETS: Final = 21


class ServerEngine(ServerHandshake):
    """One connection that a client dialed; shows the face of ``router.wire.engine.Engine``.

    Attributes:
        exchanges: those that this connection knows.
        attempts: bindings that the core has yet to allow.
        queues: those consumed from, bound or made here, by name.
        has_local: among them are local ones.
        own: what was published here and is unsettled, by identity, while ``has_local``.
        keepers: shared queues of this connection, by address (``keeping``).
        inlets, outlets: links, by identity.
        watches: patterns that queues stand for, each with the channel that it was bound on.
        purges: those under way.
        confirms_due: channel → publishes with confirms to be written.
    """

    channel_type: ClassVar[type[ServerChannel]] = ServerChannel

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
        self.watches: dict[LinkId, tuple[Watch, ServerChannel]] = {}
        self.purges: list[Purge] = []
        self.confirms_due: dict[int, Publishing] = {}
        self._questions: dict[LinkId, list[Question[ServerChannel]]] = {}
        self._reviews: dict[int, Queue] = {}
        self._pumps: dict[int, Publishing] = {}
        self._left_waiting: list[Waiter] = []
        self._wakes_at = math.inf
        self._lane = PublishLane(self)
        self._closing: m.ConnectionClose | None = None
        self._is_blocked = False

    def take_unknown_channel(
        self, kind: int, number: int, octets: bytes, start: int, end: int
    ) -> None:
        """Opens a channel."""
        if kind == METHOD and self.record_at(octets, start) is m.ChannelOpen:
            self.check_open(self.decode_method(octets, start, end)[1])
            if number > self.channel_max:
                raise PeerError(
                    Reply.CHANNEL_ERROR, f"channel {number}, channel-max is {self.channel_max}"
                )
            self.channels[number] = self.channel_type(self, number)
            self.send_method(number, m.ChannelOpenOk())
            return
        super().take_unknown_channel(kind, number, octets, start, end)

    def check_open(self, method: m.ChannelOpen) -> None:
        """Looks at what a client wants of a channel."""

    # --- the fast lane ----------------------------------------------------------------------------

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Takes publishes and acknowledgments as long as nothing else comes."""
        lane = self._lane
        while end - at > _ACK_OCTETS and octets[at] == METHOD:
            if octets.startswith(_ACK_FRAME, at + 3):
                after = self._take_ack(octets, at)
            else:
                after = lane.take(octets, at, end)
            if after == at:
                return at
            at = after
        return at

    def _take_ack(self, octets: bytes, at: int) -> int:
        channel = self.channels.get(octets[at + 1] << 8 | octets[at + 2])
        if (
            not isinstance(channel, ServerChannel)
            or channel.waits
            or channel.expect is not Expect.METHOD
            or channel.phase is not ChannelPhase.OPEN
            or octets[at + 20] != END_OCTET
        ):
            return at
        tag = int.from_bytes(octets[at + 11 : at + 19], "big")
        if tag not in channel.acknowledging.unacked:
            return at
        channel.acknowledging.acknowledge(tag, bool(octets[at + 19] & 1), ACCEPTED)
        return at + _ACK_OCTETS

    def publishing_of(self, number: int) -> Publishing | None:
        """Finds what is published on a channel; None if there is no such channel."""
        channel = self.channels.get(number)
        return channel.publishing if isinstance(channel, ServerChannel) else None

    def forget_shapes(self) -> None:
        """Takes note that a publish's octets may mean something else now."""
        self._lane.forget()

    # --- commands ---------------------------------------------------------------------------------

    def execute(self, command: Command) -> None:
        """Carries out a command."""
        if isinstance(command, CloseConnection):
            self.close(command.condition)
            return
        if self.phase is not Phase.OPENED:
            return
        match command:
            case SendDeliveries():
                self._send(command)
            case UpdateDeliveries():
                self._update(command)
            case GrantCredit():
                self._grant(command)
            case AttachLink():
                self._attach(command)
            case RefuseLink():
                self._refuse(command)
            case AddressesChanged():
                self._follow(command)
            case DetachLink():
                self._detach(command)
            case ReturnCredit(link=link):
                self._return(link)
            case HoldWindow(link=link, held=held):
                inlet = self.inlets.get(link)
                if inlet is not None:
                    self.guard(inlet.publishing.channel, inlet.publishing.hold, inlet, held)
            case ContinueDelivery() | AbortDelivery() | MemoryFound() | TellHeard() | TellWays():
                pass  # the core streams to no engine that does not offer it; no sibling is here
            case _:
                assert_never(command)
        self._tell_blocked()
        self.watch_output()

    def guard(
        self,
        channel: ServerChannel,
        action: Callable[_P, object],
        *arguments: _P.args,
        **options: _P.kwargs,
    ) -> None:
        """Does what may find the peer at fault."""
        try:
            action(*arguments, **options)
        except PeerError as error:
            self.fault(error, channel)

    def _send(self, command: SendDeliveries) -> None:
        outlet = self.outlets.get(command.link)
        if outlet is None:
            return
        owner = outlet.owner
        if isinstance(owner, Queue):
            owner.take(outlet, command.deliveries)
            return
        for delivery in command.deliveries:
            self.guard(owner.channel, owner.got, delivery)

    def _return(self, link: LinkId) -> None:
        outlet = self.outlets.get(link)
        if outlet is None:
            return
        owner = outlet.owner
        if isinstance(owner, Queue):
            owner.drained(outlet)
        else:
            self.guard(owner.channel, owner.got_nothing)

    def _update(self, command: UpdateDeliveries) -> None:
        inlet = self.inlets.get(command.link)
        if inlet is None:
            return
        state = command.state
        if not command.settled:
            if not is_outcome(state):
                return
            # The publisher settles nothing itself: what it is told is the end of it.
            self.runs.add(DeliveriesUpdated(command.link, command.numbers, state, True))
        publishing = inlet.publishing
        self.guard(publishing.channel, publishing.decided, inlet, command.numbers, state)

    def _grant(self, command: GrantCredit) -> None:
        inlet = self.inlets.get(command.link)
        if inlet is not None:
            publishing = inlet.publishing
            self.guard(publishing.channel, publishing.granted, inlet, command.credit, command.drain)

    def _attach(self, command: AttachLink) -> None:
        inlet = self.inlets.get(command.link)
        if inlet is not None:
            publishing = inlet.publishing
            octets = command.max_message_octets
            inlet.is_exact = command.is_exact
            self.guard(publishing.channel, publishing.attached, inlet, octets)
            return
        outlet = self.outlets.get(command.link)
        if outlet is not None and isinstance(outlet.owner, Queue):
            outlet.owner.attached(outlet, command)
        questions = self._questions.pop(command.link, None)
        if questions is None:
            text = f"a client of {self.protocol} takes no links"
            self.decline(command, Condition(conditions.NOT_IMPLEMENTED, text))
            return
        for question in questions:
            self.guard(question.asker, question.accepted, command)

    def _refuse(self, command: RefuseLink) -> None:
        inlet = self.inlets.get(command.link)
        if inlet is not None:
            publishing = inlet.publishing
            self.guard(publishing.channel, publishing.refused, inlet, command.condition)
            return
        watch, _ = self.watches.pop(command.link, (None, None))
        for waiter in [] if watch is None else watch.take_waiting():
            refusal = partial(waiter.refused, command.condition)
            self.guard(waiter.channel, waiter.channel.go_on, refusal)
        for question in self._questions.pop(command.link, ()):
            self.guard(question.asker, question.refused, command.condition)

    def _follow(self, command: AddressesChanged) -> None:
        """Attaches a queue to addresses of a pattern that are in use now, and to no others."""
        watch, channel = self.watches.get(command.link, (None, None))
        if watch is None or channel is None:
            return
        for address in command.gone:
            watch.addresses.discard(address)
            watch.queue.let_go(address)
        for address in () if watch.is_probe else command.come:
            watch.addresses.add(address)
            channel.asking.reach(watch, address)
        self.guard(channel, channel.asking.settle_down, watch)

    def begin_watch(self, watch: Watch, channel: ServerChannel) -> None:
        """Asks the core which addresses of a pattern are sent to."""
        self.watches[watch.link] = (watch, channel)
        self.runs.add(AddressesWatched(watch.link, watch.pattern))

    def end_watch(self, watch: Watch) -> None:
        """Tells the core that nobody wants to know any more."""
        if self.watches.pop(watch.link, None) is not None:
            self.runs.add(LinkDetached(watch.link, closed=True))
            self._left_waiting += watch.take_waiting()

    def _detach(self, command: DetachLink) -> None:
        condition = command.condition or Condition(conditions.DETACH_FORCED, "the route is gone")
        inlet = self.inlets.get(command.link)
        outlet = self.outlets.pop(command.link, None)
        if inlet is None and outlet is None:
            return
        self.runs.add(LinkDetached(command.link, command.closed, command.condition))
        if inlet is not None:
            publishing = inlet.publishing
            self.guard(publishing.channel, publishing.refused, inlet, condition)
        if outlet is None:
            return
        questions = self._questions.pop(command.link, ())
        if isinstance(outlet.owner, Queue):
            self._lose(outlet.owner, outlet, condition)
        else:
            outlet.owner.lost(condition)
        for question in questions:
            self.guard(question.asker, question.refused, condition)

    def _lose(self, queue: Queue, outlet: Outlet, condition: Condition) -> None:
        """Takes note that the core took a queue's link away."""
        outlet.unsettled = 0
        for channel in self.channels.values():
            if isinstance(channel, ServerChannel):
                channel.lost(outlet)
        queue.forget(outlet)
        if not (queue.outlets or queue.watches or outlet.is_leaving):
            queue.delete(condition)

    # --- queues -----------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> None:
        """Knows a queue from now on, by its name."""
        queue.used()
        self.queues[queue.name] = queue
        self.has_local = self.has_local or queue.is_local
        self.forget_shapes()

    def known_queue(self, name: str) -> Queue:
        """Finds a queue; one that is not known yet is taken for a routed one."""
        queue = self.queues.get(name)
        if queue is None:
            queue = Queue(self, name, is_local=False)
            self.add_queue(queue)
        return queue

    def forget_queue(self, queue: Queue) -> None:
        """Takes note that a queue is gone."""
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
        self.has_local = any(each.is_local for each in self.queues.values())
        if self.keepers.get(queue.own_address) is queue:
            del self.keepers[queue.own_address]
        self.forget_shapes()

    def work_out_all(self) -> None:
        """Works out anew what all queues stand for: an exchange leads elsewhere."""
        for queue in self.queues.values():
            queue.work_out()

    def address_of(self, exchange: str, routing_key: str) -> str:
        """Finds the address that a publish means."""
        if exchange:
            return address_of(exchange, routing_key, self.exchanges.get(exchange))
        queue = self.queues.get(routing_key)
        return queue.own_address if queue is not None and queue.own_address else routing_key

    def is_own(self, payload: bytes) -> bool:
        """Tells whether a message was published on this connection, to a local queue of it.

        What was published without confirms is asked for once.
        """
        if self._own_settled.pop(id(payload), None) is not None:
            self._own_settled_octets -= len(payload)
            return True
        return id(payload) in self.own

    def has_local_at(self, address: str) -> bool:
        """Tells whether a local queue of this connection receives from an address."""
        return any(queue.is_local and address in queue.outlets for queue in self.queues.values())

    def note_own(self, deliveries: Iterable[ReceivedDelivery]) -> None:
        """Remembers what was published without confirms to an address of a local queue.

        What went to somebody else is forgotten when there is too much.
        """
        known = self._own_settled
        for delivery in deliveries:
            known[id(delivery.payload)] = delivery.payload
            self._own_settled_octets += len(delivery.payload)
        while self._own_settled_octets > HELD_STOP_OCTETS and len(known) > 1:
            self._own_settled_octets -= len(known.pop(next(iter(known))))

    # --- links ------------------------------------------------------------------------------------

    def next_link(self) -> LinkId:
        """Names a link to come."""
        return next(self.settings.link_ids)

    def ask(self, link: LinkId, question: Question[ServerChannel]) -> None:
        """Remembers who waits for the core's answer."""
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
        """Tells the core the outcome of deliveries, and settles them."""
        outlet.unsettled -= len(numbers)
        self.runs.update(outlet.link, numbers, state, True)
        if outlet.is_leaving and isinstance(outlet.owner, Queue):
            outlet.owner.detach_if_done(outlet)

    def refuse(self, outlet: Outlet, delivery: OutgoingDelivery, error: TranslationError) -> None:
        """Answers for a delivery that cannot be sent to the client."""
        if not delivery.settled:
            self.settle(outlet, [delivery.number], refusal(error))
        elif isinstance(outlet.owner, Queue):
            outlet.owner.let_off(delivery)

    def review(self, queue: Queue) -> None:
        """Looks at a queue's credit when the turn ends."""
        self._reviews[id(queue)] = queue

    # --- turns ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if something waits for it."""
        if self._reviews or self._pumps or self._left_waiting:
            return -math.inf
        own = super().deadline
        at = min((purge.at for purge in self.purges), default=math.inf)
        at = min(at, self._wakes_at)
        return own if at == math.inf else min(at, math.inf if own is None else own)

    def wake_at(self, at: float) -> None:
        """Looks at what waits, in queues and to be handed on, at a time or before."""
        self._wakes_at = min(self._wakes_at, at)

    def on_time(self, now: float) -> None:
        """Goes on with purges, and with what ends in queues and in the lines of channels."""
        for purge in [each for each in self.purges if each.at <= now]:
            purge.on_time()
        if now >= self._wakes_at:
            self._wakes_at = math.inf
            for queue in self.queues.values():
                if queue.is_local or queue.backlog:
                    self.review(queue)
            for channel in self.channels.values():
                if isinstance(channel, ServerChannel) and channel.publishing.held:
                    self.pump_later(channel.publishing)

    def pump_later(self, publishing: Publishing) -> None:
        """Hands on what waits when the turn ends, by the time that it is then."""
        self._pumps[publishing.channel.number] = publishing

    def end_turn(self) -> None:
        """Hands on what waits, and grants what consumers have room for now."""
        left_waiting, self._left_waiting = self._left_waiting, []
        for waiter in left_waiting:  # for a watch that another channel has ended
            self.guard(waiter.channel, waiter.channel.go_on, waiter.accepted)
        pumps, self._pumps = self._pumps, {}
        for publishing in pumps.values():
            self.guard(publishing.channel, publishing.on_time)
        reviews, self._reviews = self._reviews, {}
        for queue in reviews.values():
            queue.review()
        self._tell_blocked()
        self.watch_output()

    def _tell_blocked(self) -> None:
        """Tells a client that knows the extension why nothing is read, and that it is again."""
        if self.input_waits is self._is_blocked or self.phase is not Phase.OPENED:
            return
        if not self.client_can("connection.blocked"):
            return
        self._is_blocked = self.input_waits
        blocked = m.ConnectionBlocked("receivers are slower than what is published")
        self.send_method(0, blocked if self._is_blocked else m.ConnectionUnblocked())

    def flush(self) -> None:
        """Writes the confirms that are due."""
        if self.confirms_due:
            for publishing in self.confirms_due.values():
                publishing.flush()
            self.confirms_due.clear()

    # --- ends -------------------------------------------------------------------------------------

    def take_close(self, close: m.ConnectionClose) -> None:
        """Takes the client's close, when what it published before is handed on."""
        for channel in self.channels.values():
            if isinstance(channel, ServerChannel):
                channel.publishing.hand_over(is_last=False)
        if self.phase is Phase.OPENED and any(self._busy()):
            self._closing = close
            self.await_drained()
            return
        super().take_close(close)

    def _busy(self) -> Iterator[bool]:
        return (
            channel.is_busy
            for channel in self.channels.values()
            if isinstance(channel, ServerChannel)
        )

    def await_drained(self) -> None:
        """Bounds how long a close waits."""
        self.gives_up_at = min(self.gives_up_at, self.now + DRAIN_SECONDS)

    def drained(self) -> None:
        """Takes note that a channel has nothing held any more."""
        close = self._closing
        if close is not None and not any(self._busy()):
            self._closing = None
            super().take_close(close)

    def give_up_waiting(self) -> None:
        """Ends what waits too long: the handshake, our close, or a client's that was put off."""
        if self.phase is not Phase.OPENED:
            super().give_up_waiting()
            return
        self.gives_up_at = math.inf
        for channel in list(self.channels.values()):
            if isinstance(channel, ServerChannel):
                channel.finish_close()
        close, self._closing = self._closing, None
        if close is not None:
            super().take_close(close)

    def end_channels(self, reason: End | None = None) -> None:
        """Ends all channels; in order, what nobody has taken up is given back first."""
        if reason is not None:
            for queue in list(self.queues.values()):
                for outlet in list(queue.outlets.values()):
                    queue.release(outlet)
        super().end_channels(reason)
        self.inlets.clear()
        self.outlets.clear()
        self.queues.clear()
        self.keepers.clear()
        self._questions.clear()
        self._reviews.clear()
        self._pumps.clear()
        self._left_waiting.clear()
        self.attempts.clear()
        self._wakes_at = math.inf
        self.purges.clear()
        self._lane.forget()
        self.confirms_due.clear()


def _asked_of(outlet: Outlet) -> dict[object, object]:
    """Gives the properties of a link from the core: a queue that is not exclusive is for all."""
    owner = outlet.owner
    asked: dict[object, object] = {PRIORITY: owner.priority} if owner.priority else {}
    if isinstance(owner, Queue) and not (outlet.address or owner.is_exclusive):
        asked[OPEN] = True
    return asked
