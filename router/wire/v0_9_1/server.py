"""The serving side: channels, links, and the core's commands.

Theory of operation. A client's methods become events of links: publishes of *inlets*, consumers of
*outlets* (``publishing``, ``queues``). The core's commands are passed to the owner of the link. Its
answers to attaches answer questions of a channel (``asking``): the channel continues and handles
parked frames, so a command can cause events and output.

A command that finds the client at fault (a queue that it requested is not routed) closes the
channel or the connection, as a frame from the client would.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from router.model.commands import AddressesChanged, AttachLink
from router.model.condition import Condition
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED
from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import ChannelPhase, End, Expect
from router.wire.v0_9_1.framing import END_OCTET, METHOD
from router.wire.v0_9_1.outlets import Outlet, Taker
from router.wire.v0_9_1.posts import Commit, Inlet
from router.wire.v0_9_1.publish_lane import PublishLane
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9_1.server_links import ServerLinks

_ACK_FRAME: Final = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""Size, class and method of a frame of ``basic.ack``."""
_ACK_OCTETS: Final = 21

_COMMIT: Final = (90, 20)
"""Class and method of ``tx.commit``."""


class ServerEngine(ServerLinks):
    """One connection that a client dialed; implements ``router.wire.engine.Engine``."""

    faults = (PeerError,)

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
        """Checks the options of a channel.open."""

    # --- the fast lane ----------------------------------------------------------------------------

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles publishes and acknowledgments until another frame follows."""
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
        """Returns the publisher of a channel; None if there is no such channel."""
        channel = self.channels.get(number)
        return channel.publishing if isinstance(channel, ServerChannel) else None

    def forget_shapes(self) -> None:
        """Records that a publish's octets may mean something else now."""
        self._lane.forget()

    # --- commands ---------------------------------------------------------------------------------

    def at_fault(self, fault: Exception, inlet: Inlet) -> None:
        """Ends the channel or connection of a client found at fault about an inlet."""
        if isinstance(fault, PeerError):
            self.fault(fault, inlet.publishing.channel)

    def watch_output(self) -> None:
        """Reports congested output to the core, and blocked reading to the client."""
        self._notify_blocked()
        super().watch_output()

    def attached(self, command: AttachLink) -> bool:
        """Handles the core's acceptance of a link that is no inlet; returns whether it is known."""
        outlet = self.outlets.get(command.link)
        if outlet is not None and isinstance(outlet.owner, Queue):
            outlet.owner.attached(outlet, command)
        questions = self._questions.pop(command.link, None)
        for question in questions or ():
            self.guard(question.asker, question.accepted, command)
        return questions is not None

    def refused(self, link: LinkId, condition: Condition) -> None:
        """Handles the core's refusal of a link other than an inlet."""
        watched = self.watches.pop(link, None)
        for waiter in [] if watched is None else watched.watch.take_waiting():
            refusal = partial(waiter.refused, condition)
            self.guard(waiter.channel, waiter.channel.go_on, refusal)
        for question in self._questions.pop(link, ()):
            self.guard(question.asker, question.refused, condition)

    def follow(self, command: AddressesChanged) -> None:
        """Attaches a queue to the addresses of a pattern that are in use, and to no others."""
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

    def lost(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the end of an outlet, as ordered by the core."""
        owner, questions = outlet.owner, self._questions.pop(outlet.link, ())
        if isinstance(owner, Queue):
            self._lose(owner, outlet, condition)
        elif isinstance(owner, Taker):
            owner.lost(condition)
        for question in questions:
            self.guard(question.asker, question.refused, condition)

    def recorded(self, outlet: Outlet, waiters: Sequence[tuple[Publishing, Commit]]) -> None:
        """Continues commits: what they acknowledge on a link is on record."""
        for publishing, commit in waiters:
            commit.unrecorded -= 1
            self.guard(publishing.channel, publishing.finish_commits)
        if isinstance(outlet.owner, Queue):
            outlet.owner.detach_if_done(outlet)

    def unknown(
        self,
        outlet: Outlet,
        waiters: Sequence[tuple[Publishing, Commit]],
        condition: Condition,
    ) -> None:
        """Fails commits: a link has ended before the core has reported that it is on record."""
        text = f"{condition}; whether acknowledgments for {outlet.address!r} count is unknown"
        for publishing, commit in waiters:
            if commit in publishing.commits:
                error = PeerError(channel_reply(condition), text, *_COMMIT)
                self.fault(error, publishing.channel)

    def _lose(self, queue: Queue, outlet: Outlet, condition: Condition) -> None:
        """Handles the end of a queue's link."""
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
        """When ``handle_deadline`` is due; in the past if something is pending."""
        if self._reviews or self._pumps or self._left_waiting:
            return -math.inf
        own = super().deadline
        at = min((purge.at for purge in self.purges), default=math.inf)
        at = min(at, self._wakes_at)
        return own if at == math.inf else min(at, math.inf if own is None else own)

    def on_time(self, now: float) -> None:
        """Continues purges, and ends expired deliveries of queues and channels."""
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
        """Hands on held deliveries, and grants credit as far as consumers have capacity."""
        left_waiting, self._left_waiting = self._left_waiting, []
        for waiter in left_waiting:  # for a watch that another channel has ended
            self.guard(waiter.channel, waiter.channel.go_on, waiter.accepted)
        pumps, self._pumps = self._pumps, {}
        for publishing in pumps.values():
            self.guard(publishing.channel, publishing.on_time)
        reviews, self._reviews = self._reviews, {}
        for queue in reviews.values():
            queue.review()
        self.watch_output()

    def _notify_blocked(self) -> None:
        """Notifies a client with the extension when reading is blocked, and unblocked."""
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
        """Handles the client's close, after its earlier publishes are handed on."""
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

    def drained(self) -> None:
        """Records that a channel holds no publishes any more."""
        close = self._closing
        if close is not None and not any(self._busy()):
            self._closing = None
            super().take_close(close)

    def give_up_waiting(self) -> None:
        """Ends overdue waits: the handshake, our close, or a client's deferred close."""
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
        """Ends all channels; an orderly end first returns unhandled deliveries."""
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
