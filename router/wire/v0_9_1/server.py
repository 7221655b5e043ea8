"""The side that clients dial: channels, links, and the core's commands.

Theory of operation. What a client says becomes events of links: publishes of *inlets*, consumers
of *outlets* (``publishing``, ``queues``). What the core says is handed to whoever owns the link.
Its answers to attaches are questions of a channel answered (``asking``): the channel goes on,
and what was parked meanwhile is taken up, so a command can bring about events and output.

A command that finds the client at fault (a queue it asked for is not routed) closes the channel or
the connection, as a frame of the client's would.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Final, assert_never

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
from router.model.events import (
    DeliveriesUpdated,
    LinkDetached,
)
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED, is_outcome
from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import ChannelPhase, End, Expect
from router.wire.v0_9_1.framing import END_OCTET, METHOD
from router.wire.v0_9_1.outlets import Outlet, Taker
from router.wire.v0_9_1.publish_lane import PublishLane
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9_1.server_links import ServerLinks

DRAIN_SECONDS: Final = 10.0
"""How long a client's close waits for what it published before; then that is void."""

_ACK_FRAME: Final = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""Size, class and method of a frame of ``basic.ack``."""
_ACK_OCTETS: Final = 21


class ServerEngine(ServerLinks):
    """One connection that a client dialed; shows the face of ``router.wire.engine.Engine``."""

    channel_type: ClassVar[type[ServerChannel]] = ServerChannel

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._lane = PublishLane(self, self.publishing_of)
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
        if self.phase is not MachinePhase.OPENED:
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

    def _send(self, command: SendDeliveries) -> None:
        outlet = self.outlets.get(command.link)
        if outlet is None:
            return
        owner = outlet.owner
        if isinstance(owner, Queue):
            owner.take(outlet, command.deliveries)
        elif isinstance(owner, Taker):
            for delivery in command.deliveries:
                self.guard(owner.channel, owner.got, delivery)

    def _return(self, link: LinkId) -> None:
        outlet = self.outlets.get(link)
        if outlet is None:
            return
        owner = outlet.owner
        if isinstance(owner, Queue):
            owner.drained(outlet)
        elif isinstance(owner, Taker):
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
            inlet.ahead = command.ahead
            self.go_on_reading(inlet)
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
        watched = self.watches.pop(command.link, None)
        for waiter in [] if watched is None else watched.watch.take_waiting():
            refusal = partial(waiter.refused, command.condition)
            self.guard(waiter.channel, waiter.channel.go_on, refusal)
        for question in self._questions.pop(command.link, ()):
            self.guard(question.asker, question.refused, command.condition)

    def _follow(self, command: AddressesChanged) -> None:
        """Attaches a queue to addresses of a pattern that are in use now, and to no others."""
        watched = self.watches.get(command.link)
        if watched is None:
            return
        watch, queue, follower = watched.watch, watched.queue, watched.follower
        for address in command.gone:
            watch.addresses.discard(address)
            queue.let_go(address)
        for address in () if watch.is_probe else command.come:
            watch.addresses.add(address)
            follower.reach(queue, watch, address)
        self.guard(follower.channel, follower.settle_down, watch)

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
        elif isinstance(outlet.owner, Taker):
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
        if self.input_waits is self._is_blocked or self.phase is not MachinePhase.OPENED:
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
        if self.phase is MachinePhase.OPENED and any(self._busy()):
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
        if self.phase is not MachinePhase.OPENED:
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
