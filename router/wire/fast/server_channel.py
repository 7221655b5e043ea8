"""A client's channel on the serving side, and its handles.

Theory of operation. A channel handles its commands in order; only the close of a handle or channel
waits, for earlier messages, and CHANNEL COMMIT's answer. Questions to the routing table are
attaches, answered when the core has; the client may continue meanwhile, as the protocol requires
(§2.2.10).

Requests that a router cannot meet are refused::

    temporary destinations with a name of the client's    403   it could not be kept for the client
    a topic that is not multicast, a queue that is        401
    other services than the three                         401
    names without a route                                 404
"""

from typing import Any

from router.model.condition import Condition
from router.wire.fast import commands as c
from router.wire.fast.consuming import Kind, Outlet
from router.wire.fast.handle import Handle, HandleChannel, HandleState, Service
from router.wire.fast.publishing import Publishing
from router.wire.fast.receiving import Receiving
from router.wire.fast.reply import PeerError, Reply, reply_of
from router.wire.fast.sending import Sending
from router.wire.fast.server_links import ServerLinks
from router.wire.fast.types import fits_short


class ServerChannel(HandleChannel):
    """One channel of a client."""

    engine: ServerLinks
    publishing: Publishing
    sending: Sending
    receiving: Receiving

    def __init__(self, engine: ServerLinks, command: c.ChannelOpen) -> None:
        super().__init__(command.channel_id, transacted=command.transacted)
        is_restartable = command.restartable
        self.engine = engine
        self.publishing = publishing = Publishing(engine, self, transacted=command.transacted)
        self.sending = Sending(engine, self, publishing, is_restartable=is_restartable)
        self.receiving = Receiving(engine, self, publishing, is_restartable=is_restartable)

    def take(self, command: Any, *arguments: Any) -> None:
        """Handles a command on the channel, or on one of its handles."""
        room = self.sending if type(command) in Sending.handlers else self.receiving
        room.take(command, *arguments)

    # --- handles ----------------------------------------------------------------------------------

    def open_handle(self, handle: Handle) -> None:
        """Opens a handle (§3.5.2).

        Raises:
            PeerError: it cannot be opened as requested.
        """
        command = handle.command
        try:
            service = handle.service = Service(command.service_type)
        except ValueError:
            text = f"service-type {command.service_type}"
            raise PeerError(Reply.SERVICE_NOT_VALID, text) from None
        if service is Service.PEER:
            if command.temporary:
                raise PeerError(Reply.NOT_VALID_NOW, "a peer service is never temporary (§3.5.2)")
            self._open_own(handle, Kind.ANSWERS)
            handle.reply(command.confirm_tag)
        elif command.temporary:
            if command.dest_name:
                text = f"{command.dest_name!r} could not be kept for one client; ask without a name"
                raise PeerError(Reply.ACCESS_REFUSED, text)
            outlet = self._open_own(handle, Kind.TEMPORARY)
            outlet.confirm_tag = command.confirm_tag
        else:
            handle.reply(command.confirm_tag)

    def _open_own(self, handle: Handle, kind: Kind) -> Outlet:
        outlet = Outlet(self.engine.next_link(), handle, kind, "")
        handle.own = outlet
        handle.later = []
        self.engine.ask_for_outlet(outlet)
        return outlet

    def attached(self, outlet: Outlet, address: str | None, mode: str | None) -> None:
        """Handles the core's acceptance of a link.

        Args:
            outlet: the link.
            address: the name of a node created by it.
            mode: ``copy`` or ``move``, its distribution mode; None: unknown.
        """
        handle = outlet.handle
        assert isinstance(handle, Handle)
        if outlet.kind is Kind.SUBSCRIPTION:
            wanted = "copy" if handle.service is Service.TOPIC else "move"
            if mode is not None and mode != wanted:
                text = f"{outlet.address!r} is {'a topic' if mode == 'copy' else 'a queue'} here"
                self.engine.drop_outlet(outlet)
                self._fault(PeerError(Reply.SERVICE_NOT_VALID, text), handle)
                return
            outlet.name(outlet.address)
        else:
            made = address or f"temporary-{outlet.link}"
            if not fits_short(made):
                self.engine.drop_outlet(outlet)
                text = "the destination's name fits no short string"
                self._fault(PeerError(Reply.INTERNAL_ERROR, text), handle)
                return
            outlet.name(made)
        outlet.is_attached = True
        if outlet.kind is Kind.TEMPORARY:
            handle.prefix = outlet.address
            self.engine.send(c.HandleCreated(handle.id, outlet.address))
        tag, outlet.confirm_tag = outlet.confirm_tag, 0
        handle.reply(tag)
        if outlet.kind is not Kind.SUBSCRIPTION:
            later, handle.later = handle.later or [], None
            for action in later:
                if handle.is_open:
                    self.engine.guard(action, self, handle)
        self.engine.review(outlet)
        self.drained()

    def refused(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the core's refusal of a link, or its end."""
        outlet.is_attached = False
        self.receiving.lose(outlet)
        if outlet.handle.is_open:
            outlet.handle.close(PeerError(reply_of(condition), str(condition)))

    def _fault(self, error: PeerError, handle: Handle) -> None:
        self.engine.fault(error, self, handle)

    def close_handle(self, handle: Handle, error: PeerError) -> None:
        """Closes a handle, for a fault or on our own initiative; awaits the client's close."""
        self._end_handle(handle, is_orderly=error.code == Reply.OK)
        handle.state = HandleState.CLOSING
        self.engine.send(c.HandleClose(handle.id, error.code, str(error)))

    def take_handle_close(self, handle: Handle) -> None:
        """Handles the client's close of a handle: its request, or its answer to ours (§3.5.16)."""
        if handle.state is HandleState.OPEN:
            handle.state = HandleState.LEAVING
            if self._is_waited_for(handle):
                self.engine.await_drained()
                return
            self.finish_handle(handle)
        elif handle.state is HandleState.CLOSING:
            self._free(handle)

    def _is_waited_for(self, handle: Handle) -> bool:
        if handle.later or (handle.own is not None and handle.own.asked):
            return True
        if self.sending.is_waited_for(handle):
            return True
        return any(post.handle is handle for post, _ in self.publishing.held)

    def finish_handle(self, handle: Handle) -> None:
        """Ends a handle that the client has closed."""
        self._end_handle(handle, is_orderly=True)
        self.engine.send(c.HandleClose(handle.id, Reply.OK))
        self._free(handle)

    def _free(self, handle: Handle) -> None:
        handle.state = HandleState.GONE
        self.handles.pop(handle.id, None)
        self.engine.handles.pop(handle.id, None)

    def _end_handle(self, handle: Handle, *, is_orderly: bool) -> None:
        self.sending.end_handle(handle, is_orderly=is_orderly)
        self.receiving.end_handle(handle)

    # --- end --------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the client's messages are still to be handed on."""
        if self.publishing.is_busy or self.sending.is_waited_for(None):
            return True
        if self.receiving.confirming.line:
            return True
        return any(
            each.later or (each.own is not None and each.own.asked)
            for each in self.handles.values()
        )

    def take_close(self) -> None:
        """Handles the client's close, after its earlier messages are handed on (§3.3.7)."""
        if self.is_closing:
            self.engine.free_channel(self)
        elif not self.has_left:
            self.has_left = True
            if self.is_busy:
                self.engine.await_drained()
            else:
                self.finish_close()

    def pumped(self) -> None:
        """Continues a stream when held messages may have been handed on."""
        self.sending.pump_stream()
        self.drained()

    def committed(self, confirm_tag: int) -> None:
        """Settles the transaction's acknowledgments: its messages are all decided."""
        self.receiving.committed(confirm_tag)

    def drained(self) -> None:
        """Records that a wait is over."""
        for handle in list(self.handles.values()):
            if handle.own is not None:
                self.receiving.pumped(handle.own)
        for handle in list(self.handles.values()):
            if handle.state is HandleState.LEAVING and not self._is_waited_for(handle):
                self.finish_handle(handle)
        if self.has_left and not self.is_busy:
            self.finish_close()
        self.engine.drained()

    def finish_close(self) -> None:
        """Ends a channel that the client has closed."""
        if self.engine.channels.get(self.id) is not self:
            return
        self.sending.end_stream(is_orderly=True)
        self.ended(is_orderly=True)
        self.engine.send(c.ChannelClose(self.id, Reply.OK))
        self.engine.free_channel(self)

    def close(self, error: PeerError) -> None:
        """Closes the channel, for a fault or on our own initiative; awaits the client's close."""
        self.ended(is_orderly=True)
        self.is_closing = True
        for handle in self.handles.values():
            handle.state = HandleState.CLOSING
        self.engine.send(c.ChannelClose(self.id, error.code, str(error)))

    def ended(self, *, is_orderly: bool) -> None:
        """Ends everything on the channel; unacknowledged messages are returned.

        Args:
            is_orderly: each link's end is reported to the core; else the connection's end implies
                it.
        """
        self.sending.gatherer.keep()
        if is_orderly:
            self.receiving.roll_back_all()
            self.receiving.let_go_all()
            for handle in list(self.handles.values()):
                self._end_handle(handle, is_orderly=False)
        self.receiving.unacked.clear()
        self.receiving.confirming.line.clear()
        self.publishing.ended(is_orderly=is_orderly)
