"""The serving side: channels, handles, links, and the core's commands.

Theory of operation. A client's commands become events of links: its messages of *inlets*
(``publishing``), its subscriptions of *outlets* (``consuming``). The core's commands are passed to
the owner of the link; its answers to attaches let handles continue, so a command can cause events
and output, and may find the client at fault as a frame would.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from router.model.commands import AbortDelivery, AttachLink, ContinueDelivery, MemoryFound
from router.model.condition import Condition
from router.model.identity import LinkId
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.area import Area
from router.wire.fast.confirming import Confirmation, Confirming
from router.wire.fast.consuming import Outlet
from router.wire.fast.handle import Handle, HandleChannel, HandleState
from router.wire.fast.lane import SendLane
from router.wire.fast.line import Line
from router.wire.fast.reply import Level, PeerError, Reply
from router.wire.fast.server_channel import ServerChannel
from router.wire.fast.server_handshake import ServerHandshake
from router.wire.fast.server_links import ServerLinks
from router.wire.machine import MachinePhase, Steps

_OnHandle = (
    c.HandleConsume
    | c.HandleCancel
    | c.HandleFlow
    | c.HandleUnget
    | c.HandleQuery
    | c.HandleBrowse
    | c.HandleReady
)


class ServerEngine(ServerLinks):
    """One connection that a client dialed; implements ``router.wire.engine.Engine``.

    Attributes:
        channels: by number.
    """

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, area)
        self.channels: dict[int, ServerChannel] = {}
        self._closing: c.ConnectionClose | None = None
        self._lane = SendLane(self)

    def lines(self) -> Iterator[Line]:
        """All lines of outgoing messages."""
        return (channel.receiving.line for channel in self.channels.values())

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles runs of common messages."""
        if self.phase is not MachinePhase.OPENED:
            return at
        while True:
            after = self._lane.take(octets, at, end)
            if after == at:
                return at
            at = after

    # --- the client's commands --------------------------------------------------------------------

    def opened(self) -> None:
        """Records that the handshake is over."""
        super().opened()
        self.outgoing.limit = self.frame_max

    def _open_channel(self, command: c.ChannelOpen) -> None:
        number = command.channel_id
        channel = self.channels.get(number)
        if channel is not None:
            if channel.is_open:
                text = f"channel {number} is open"
                self.fault(PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL), channel, None)
            return
        if not number or len(self.channels) >= self.channel_max:
            text = f"channel {number}; channels 1 to {self.channel_max} are allowed"
            raise PeerError(Reply.CHANNEL_NOT_READY, text, Level.CONNECTION)
        channel = self.channels[number] = ServerChannel(self, command)
        if command.out_of_band:
            text = "out-of-band transfers"
            self.fault(PeerError(Reply.NOT_IMPLEMENTED, text, Level.CHANNEL), channel, None)
            return
        channel.reply(command.confirm_tag)

    def _on_channel(self, command: c.ChannelAck | c.ChannelCommit | c.ChannelRollback) -> None:
        channel = self._channel(command.channel_id)
        if channel.is_open:
            self.guard(lambda: channel.take(command), channel, None)

    def _close_channel(self, command: c.ChannelClose) -> None:
        self._channel(command.channel_id).take_close()

    def _channel(self, number: int) -> ServerChannel:
        channel = self.channels.get(number)
        if channel is None:
            text = f"channel {number} is not open"
            raise PeerError(Reply.CHANNEL_NOT_READY, text, Level.CONNECTION)
        return channel

    def _open_handle(self, command: c.HandleOpen) -> None:
        channel = self._channel(command.channel_id)
        handle = self.handles.get(command.handle_id)
        if handle is not None:
            if handle.is_open:
                text = f"handle {handle.id} is open"
                self.fault(PeerError(Reply.NOT_VALID_NOW, text), handle.channel, handle)
            return
        handle = Handle(channel, command)
        self.handles[handle.id] = channel.handles[handle.id] = handle
        if not channel.is_open:
            handle.state = HandleState.CLOSING  # its commands are discarded, like the channel's
            return
        if len(self.handles) > self.handle_max:
            text = f"at most {self.handle_max} handles are allowed"
            self.fault(PeerError(Reply.INSUFFICIENT_RESOURCES, text), channel, handle)
            return
        opened = handle
        self.guard(lambda: channel.open_handle(opened), channel, handle)

    def _handle(self, number: int) -> Handle:
        handle = self.handles.get(number)
        if handle is None:
            text = f"handle {number} is not open"
            raise PeerError(Reply.HANDLE_NOT_READY, text, Level.CONNECTION)
        return handle

    def _on_handle(self, command: _OnHandle) -> None:
        handle = self._handle(command.handle_id)
        if handle.state is HandleState.OPEN:
            channel = handle.channel
            self.guard(lambda: channel.take(command, handle), channel, handle)

    def _on_handle_with_fragment(
        self, command: c.HandleSend | c.HandlePrepare, fragment: bytes
    ) -> None:
        handle = self._handle(command.handle_id)
        if handle.state is HandleState.OPEN:
            channel = handle.channel
            self.guard(lambda: channel.take(command, handle, fragment), channel, handle)

    def _close_handle(self, command: c.HandleClose) -> None:
        handle = self._handle(command.handle_id)
        handle.channel.take_handle_close(handle)

    # --- the core's commands ----------------------------------------------------------------------

    def attached(self, command: AttachLink) -> bool:
        """Handles the core's acceptance of an outlet; returns whether it is known."""
        outlet = self.outlets.get(command.link)
        if outlet is None:
            return False
        source = command.source
        address = None if source is None else source.address
        mode = None if source is None else source.distribution_mode
        outlet.is_exact = command.is_exact
        outlet.handle.channel.attached(outlet, address, mode)
        return True

    def refused(self, link: LinkId, condition: Condition) -> None:
        """Handles the core's refusal of an outlet."""
        outlet = self.outlets.pop(link, None)
        if outlet is not None:
            self.lost(outlet, condition)

    def lost(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the end of an outlet, as ordered by the core."""
        outlet.handle.channel.refused(outlet, condition)

    def recorded(self, outlet: Outlet, waiters: Sequence[tuple[Confirming, Confirmation]]) -> None:
        """Sends replies: what they confirm on a link is on record."""
        for confirming, confirmation in waiters:
            confirming.recorded(confirmation)
        channel = outlet.handle.channel
        if outlet.is_leaving and isinstance(channel, ServerChannel):
            channel.receiving.let_go(outlet)

    def unknown(
        self,
        outlet: Outlet,
        waiters: Sequence[tuple[Confirming, Confirmation]],
        condition: Condition,
    ) -> None:
        """Fails replies: a link has ended before the core has reported that it is on record."""
        for confirming, confirmation in waiters:
            confirming.unknown(confirmation, outlet.address, condition)

    def stream(self, command: ContinueDelivery | AbortDelivery) -> None:
        """Handles a further part of an answer, or its end."""
        outlet = self.outlets.get(command.link)
        if outlet is None:
            return
        if isinstance(command, AbortDelivery):
            outlet.abort(command.number)
        else:
            outlet.go_on(command.number, command.payload, command.more)

    def found(self, command: MemoryFound) -> None:
        """Handles parts of a message that siblings have kept."""
        for channel in list(self.channels.values()):
            self.guard(partial(channel.sending.found, command.key), channel, None)

    # --- turns ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if something is pending."""
        if self._reviews or self._pumps:
            return -math.inf
        own = super().deadline
        if self._wakes_at == math.inf:
            return own
        return self._wakes_at if own is None else min(own, self._wakes_at)

    def on_time(self, now: float) -> None:
        """Drops expired messages, and hands on those that may be."""
        super().on_time(now)
        if now >= self._wakes_at:
            self._wakes_at = math.inf
            for channel in self.channels.values():
                if channel.publishing.held:
                    self.pump_later(channel, channel.publishing.on_time)

    def end_turn(self) -> None:
        """Hands on held messages, and grants credit as far as there is capacity."""
        pumps, self._pumps = self._pumps, {}
        for channel, pump in pumps.items():
            self.guard(pump, channel, None)
        reviews, self._reviews = self._reviews, {}
        for outlet in reviews.values():
            outlet.review()
        self.watch_output()

    # --- ends -------------------------------------------------------------------------------------

    def take_close(self, close: c.ConnectionClose) -> None:
        """Handles the client's close, after its earlier messages are handed on."""
        if self.phase is MachinePhase.OPENED and self._is_busy():
            self._closing = close
            self.await_drained()
            return
        super().take_close(close)

    def _is_busy(self) -> bool:
        return any(channel.is_busy for channel in self.channels.values())

    def drained(self) -> None:
        """Records that a wait is over."""
        close = self._closing
        if close is not None and not self._is_busy():
            self._closing = None
            super().take_close(close)

    def give_up_waiting(self) -> None:
        """Ends overdue waits: the handshake, our close, or a client's deferred close."""
        if self.phase is not MachinePhase.OPENED:
            super().give_up_waiting()
            return
        self.gives_up_at = float("inf")
        close, self._closing = self._closing, None
        if close is not None:
            super().take_close(close)
            return
        for channel in list(self.channels.values()):
            for handle in list(channel.handles.values()):
                if handle.state is HandleState.LEAVING:
                    channel.finish_handle(handle)
            if channel.has_left:
                channel.finish_close()

    def free_channel(self, channel: HandleChannel) -> None:
        """Records that the numbers of a channel, and of its handles, are free."""
        self.channels.pop(channel.id, None)
        for number in channel.handles:
            self.handles.pop(number, None)
        channel.handles.clear()

    def end_channels(self, close: c.ConnectionClose | None) -> None:
        """Ends all channels; an orderly end returns unacknowledged messages."""
        for channel in list(self.channels.values()):
            if close is not None:
                channel.sending.end_stream(is_orderly=close.reply_code == Reply.OK)
            channel.ended(is_orderly=close is not None)
        self.channels.clear()
        self.handles.clear()
        self.inlets.clear()
        self.outlets.clear()
        self._reviews.clear()

    steps: ClassVar[Steps] = {
        **ServerHandshake.steps,
        (MachinePhase.OPENED, c.ChannelOpen): _open_channel,
        (MachinePhase.OPENED, c.ChannelAck): _on_channel,
        (MachinePhase.OPENED, c.ChannelCommit): _on_channel,
        (MachinePhase.OPENED, c.ChannelRollback): _on_channel,
        (MachinePhase.OPENED, c.ChannelClose): _close_channel,
        (MachinePhase.OPENED, c.HandleOpen): _open_handle,
        (MachinePhase.OPENED, c.HandleSend): _on_handle_with_fragment,
        (MachinePhase.OPENED, c.HandleConsume): _on_handle,
        (MachinePhase.OPENED, c.HandleCancel): _on_handle,
        (MachinePhase.OPENED, c.HandleFlow): _on_handle,
        (MachinePhase.OPENED, c.HandleUnget): _on_handle,
        (MachinePhase.OPENED, c.HandleQuery): _on_handle,
        (MachinePhase.OPENED, c.HandleBrowse): _on_handle,
        (MachinePhase.OPENED, c.HandlePrepare): _on_handle_with_fragment,
        (MachinePhase.OPENED, c.HandleReady): _on_handle,
        (MachinePhase.OPENED, c.HandleClose): _close_handle,
    }
