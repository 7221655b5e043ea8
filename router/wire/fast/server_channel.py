"""A channel of a client that dialed us: every command, and what a router makes of it.

Theory of operation. A channel takes its commands in order; nothing waits but the close of a handle
or channel, for what was sent before, and CHANNEL COMMIT's answer. What depends on the routing table
is asked of the core by attaching, and answered when the core has; the client may go on meanwhile,
as the protocol wants it (§2.2.10).

What a router cannot promise it refuses, with the code that says so::

    durable subscriptions (identifier), no-local, selectors      540   nothing keeps or reads them
    HANDLE QUERY of a destination that is not the handle's own   540   a router holds no queue
    HANDLE BROWSE of a message that is not here                  310   as reply, the handle stays
    temporary destinations under a name of the client's          403   it could not be kept for it
    a topic that is not multicast, a queue that is               401
    names that no route takes                                    404
    out-of-band transfers                                        540

Acknowledgements are of the channel: all messages up to a number, of whatever handle (§3.3.3). What
a handle or channel leaves unacknowledged at its end is given back. Which messages CHANNEL COMMIT
confirms the document says twice and differently (§3.3.4): those that were acknowledged, or all that
were sent. Here a client that acknowledges gets the first and one that never does the second.
"""

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from router.errors import TranslationError
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState
from router.model.serial import distance
from router.wire.fast import commands as c
from router.wire.fast.consuming import Kind, Outlet
from router.wire.fast.gather import Gatherer
from router.wire.fast.handle import MAX_ROUTES, Handle, Service, State
from router.wire.fast.lane import Shape
from router.wire.fast.line import Line
from router.wire.fast.message import (
    KNOWN_OCTETS,
    body_octets,
    decode_head,
    encode_head,
    head_octets,
    payload_prefix,
)
from router.wire.fast.outgoing import Ready, refusal
from router.wire.fast.publishing import Inlet, Post, Publishing
from router.wire.fast.reply import Level, PeerError, Reply, reply_of
from router.wire.fast.stream import Stream, first_part
from router.wire.fast.types import fits_short
from router.wire.v1_0.runs import Runs

if TYPE_CHECKING:
    from router.wire.fast.server import ServerEngine

REPLY_TO: Final = "x-amqp-reply-to"

_NOTIFY: Final = struct.Struct(">HBHIIB").pack
_PARTIAL, _RECOVERY, _DELIVERED, _REDELIVERED = 1, 4, 8, 16

_MASK: Final = 0xFFFF_FFFF


@attrs.define(eq=False)
class Unacked:
    """A message that the client has and has not acknowledged.

    Attributes:
        number: the core's; None if the core has settled it already.
    """

    outlet: Outlet
    number: DeliveryNumber | None


@attrs.define(eq=False)
class Notice:
    """A message on its way to the client, a ``Parcel``.

    Attributes:
        delivery: what it is of; None for one that is browsed.
        message_nbr: its number, given when it begins.
    """

    channel: "ServerChannel"
    outlet: Outlet
    delivery: OutgoingDelivery | None
    ready: Ready
    message_nbr: int = 0

    @property
    def handle(self) -> int:
        """The handle that it goes out by."""
        return self.outlet.handle.id

    @property
    def head(self) -> bytes:
        """The message's head."""
        return self.ready.head

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.ready.body

    def begin(self) -> bool:
        """Numbers the message, and counts it as sent."""
        if not self.outlet.handle.is_open:
            return False
        if self.delivery is not None:
            self.message_nbr = self.channel.begun(self.outlet, self.delivery)
        return True

    def frame(self, size: int, partial: bool, recovery: bool) -> bytes:
        """Makes the frame of HANDLE NOTIFY."""
        tail = b"\x00\xce" if partial else self.outlet.tail
        bits = partial | recovery << 2 | self.ready.redelivered << 4
        if self.delivery is not None:
            bits |= _DELIVERED
        number = self.message_nbr & _MASK
        return _NOTIFY(12 + len(tail), 41, self.outlet.handle.id, number, size, bits) + tail


class ServerChannel:
    """One channel of a client.

    Attributes:
        publishing: what the client sends on it.
        handles: by number.
        stream: the message without end that is being sent, by ``stream_handle``.
        unacked: by message number, rising; numbers are not cut to 32 bits here.
        is_closing: we have closed it, and the client has not yet.
        has_left: the client has closed it, and something is still to be handed on.
        transacted: it has transactions.
    """

    steps: ClassVar[dict[type, str]] = {
        c.ChannelAck: "_ack",
        c.ChannelCommit: "_commit",
        c.ChannelRollback: "_roll_back",
        c.HandleSend: "_send",
        c.HandleConsume: "_consume",
        c.HandleCancel: "_cancel",
        c.HandleFlow: "_flow",
        c.HandleUnget: "_unget",
        c.HandleQuery: "_query",
        c.HandleBrowse: "_browse",
        c.HandlePrepare: "_prepare",
        c.HandleReady: "_ready",
    }

    def __init__(self, engine: "ServerEngine", command: c.ChannelOpen) -> None:
        self.engine = engine
        self.id = command.channel_id
        self.transacted = command.transacted
        self.publishing = Publishing(engine, self, transacted=command.transacted)
        self.gatherer = Gatherer(
            engine.budget, engine.area, engine.owner, is_restartable=command.restartable
        )
        self.line = Line(engine.output.append, engine.frame_max, is_restartable=command.restartable)
        self.handles: dict[int, Handle] = {}
        self.unacked: dict[int, Unacked] = {}
        self.stream: Stream | None = None
        self.stream_handle: Handle | None = None
        self.is_closing = False
        self.has_left = False
        self._last = 0
        self._has_acked = False
        self._done: dict[int, Unacked] = {}  # acknowledged in the transaction
        self._back: dict[int, Unacked] = {}  # given back in it
        self._committing: list[tuple[dict[int, Unacked], dict[int, Unacked]]] = []

    @property
    def is_open(self) -> bool:
        """Whether commands are taken."""
        return not (self.is_closing or self.has_left)

    def take(self, command: Any, *arguments: Any) -> None:
        """Takes a command on the channel, or on one of its handles."""
        getattr(self, self.steps[type(command)])(*arguments, command)

    def reply(self, confirm_tag: int) -> None:
        """Confirms a command of the channel, if that was asked for (§3.3.8)."""
        if confirm_tag:
            self.engine.send(c.ChannelReply(self.id, confirm_tag, Reply.OK))

    # --- handles ----------------------------------------------------------------------------------

    def open_handle(self, handle: Handle) -> None:
        """Opens a handle (§3.5.2).

        Raises:
            PeerError: it cannot be opened as asked for.
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
        """Takes the core's consent to a link.

        Args:
            outlet: the link.
            address: the name of a node that it made.
            mode: ``copy`` or ``move``, how it shares messages out; None: it does not say.
        """
        handle = outlet.handle
        if outlet.kind is Kind.SUBSCRIPTION:
            wanted = "copy" if handle.service is Service.TOPIC else "move"
            if mode is not None and mode != wanted:
                text = f"{outlet.address!r} is {'a topic' if mode == 'copy' else 'a queue'} here"
                self.engine.drop_outlet(outlet)
                self._fault(PeerError(Reply.SERVICE_NOT_VALID, text), handle)
                return
            outlet.name(outlet.address)
        else:
            outlet.name(address or f"temporary-{outlet.link}")
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
        """Takes the core's no to a link, or its end."""
        outlet.is_attached = False
        self._lose(outlet)
        if outlet.handle.is_open:
            self._fault(PeerError(reply_of(condition), str(condition)), outlet.handle)

    def _lose(self, outlet: Outlet) -> None:
        """Takes note that a link is gone, and what was unsettled on it with it."""
        for entries in self._all_unacked():
            for entry in entries.values():
                if entry.outlet is outlet:
                    entry.number = None
        outlet.backlog.clear()

    def _all_unacked(self) -> list[dict[int, Unacked]]:
        found = [self.unacked, self._done, self._back]
        for done, back in self._committing:
            found += (done, back)
        return found

    def _fault(self, error: PeerError, handle: Handle) -> None:
        self.engine.fault(error, self, handle)

    def close_handle(self, handle: Handle, error: PeerError) -> None:
        """Closes a handle for a fault, or a wish, of ours; the client's close is awaited."""
        self._end_handle(handle, is_orderly=False)
        handle.state = State.CLOSING
        self.engine.send(c.HandleClose(handle.id, error.code, str(error)))

    def take_handle_close(self, handle: Handle) -> None:
        """Takes the client's close of a handle: its wish, or its answer to ours (§3.5.16)."""
        if handle.state is State.OPEN:
            handle.state = State.LEAVING
            if self._is_waited_for(handle):
                self.engine.await_drained()
                return
            self.finish_handle(handle)
        elif handle.state is State.CLOSING:
            self._free(handle)

    @property
    def _stream_waits(self) -> bool:
        return self.stream is not None and self.stream.waits

    def _is_waited_for(self, handle: Handle) -> bool:
        if handle.later or (self.stream_handle is handle and self._stream_waits):
            return True
        return any(post.handle is handle for post, _ in self.publishing.held)

    def finish_handle(self, handle: Handle) -> None:
        """Ends a handle that the client has closed."""
        self._end_handle(handle, is_orderly=True)
        self.engine.send(c.HandleClose(handle.id, Reply.OK))
        self._free(handle)

    def _free(self, handle: Handle) -> None:
        handle.state = State.GONE
        self.handles.pop(handle.id, None)
        self.engine.handles.pop(handle.id, None)

    def _end_handle(self, handle: Handle, *, is_orderly: bool) -> None:
        """Ends what lives on a handle: what it has not acknowledged is given back.

        Args:
            handle: which.
            is_orderly: the client's wish; else a stream that it sends is aborted.
        """
        if self.gatherer.handle == handle.id:
            self.gatherer.keep()
        if self.stream_handle is handle:
            self.end_stream(is_orderly=is_orderly)
        self.publishing.drop(handle)
        for parcel in self.line.drop(handle.id):
            if isinstance(parcel, Notice) and parcel.delivery is not None:
                parcel.outlet.unacknowledged -= 1
                self._give_back(parcel.outlet, [parcel.delivery])
        for outlet in handle.all_outlets():
            entries = {
                number: entry for number, entry in self.unacked.items() if entry.outlet is outlet
            }
            for number in entries:
                del self.unacked[number]
            self._settle(entries, RELEASED)
            self._give_back(outlet, [delivery for _, delivery in outlet.backlog])
            outlet.backlog.clear()
            self.engine.drop_outlet(outlet)
        handle.outlets.clear()
        handle.own = None
        handle.later = None

    def _give_back(self, outlet: Outlet, deliveries: list[OutgoingDelivery]) -> None:
        numbers = [delivery.number for delivery in deliveries if not delivery.settled]
        if numbers and outlet.is_attached:
            self.engine.runs.update(outlet.link, numbers, RELEASED, True)

    @property
    def is_plain(self) -> bool:
        """Whether a whole message may be handed on as it comes."""
        return (
            self.is_open
            and self.stream_handle is None
            and self.gatherer.handle is None
            and self.publishing.transaction is None
        )

    # --- sending ----------------------------------------------------------------------------------

    def _send(self, handle: Handle, fragment: bytes, command: c.HandleSend) -> None:
        if command.out_of_band:
            raise PeerError(Reply.NOT_IMPLEMENTED, "out-of-band transfers")
        if not (handle.command.producer or handle.service is Service.PEER):
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a producer's")
        if command.streaming or self.stream_handle is not None:
            self._stream_on(handle, fragment, command)
            return
        try:
            message = self.gatherer.take(
                handle.id, fragment, partial=command.partial, recovery=command.recovery
            )
        except PeerError as error:
            if error.code is not Reply.CONTENTS_INVALID or not command.confirm_tag:
                raise
            handle.reply(command.confirm_tag, error.code, str(error))
            return
        if message is not None:
            self.take_message(handle, command.dest_name, command.confirm_tag, message)

    def _stream_on(self, handle: Handle, fragment: bytes, command: c.HandleSend) -> None:
        """Takes a fragment of a message without end (§3.5.3.1)."""
        stream_handle = self.stream_handle
        is_other = stream_handle is not None and stream_handle is not handle
        if is_other or not command.streaming or self.gatherer.handle is not None:
            text = "a channel that streams carries nothing else (§3.5.3.1)"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        if handle.service is not Service.PEER:
            raise PeerError(Reply.NOT_VALID_NOW, "streaming is for peer services only (§3.5.3.1)")
        if command.recovery or not command.partial:
            raise PeerError(Reply.SYNTAX_ERROR, "streaming goes with partial, not with recovery")
        self.stream_handle = handle
        if handle.later is not None:
            handle.later.append(lambda: self._stream(handle, fragment, command.confirm_tag))
        else:
            self._stream(handle, fragment, command.confirm_tag)

    def _stream(self, handle: Handle, fragment: bytes, confirm_tag: int) -> None:
        if self.stream is None:
            size = head_octets(fragment, 0, len(fragment))
            if size is not None:
                self.engine.heads.look_at(fragment[4:size])
                fragment = self._completed(handle, fragment, size)
            inlet, prefix = self._route(handle, "")
            head, fragment = first_part(prefix, fragment)
            inlet.handles[handle] = None
            number = self.publishing.next_number()
            self.stream = Stream(self.engine, inlet, number, head)
        self.stream.push(fragment)
        handle.reply(confirm_tag)

    def pump_stream(self) -> None:
        """Goes on with the message without end, if there is one."""
        if self.stream is not None:
            self.stream.pump()

    def end_stream(self, *, is_orderly: bool) -> None:
        """Ends the message without end, or aborts it."""
        stream, self.stream, self.stream_handle = self.stream, None, None
        if stream is not None:
            stream.end(is_orderly=is_orderly)

    def _prepare(self, handle: Handle, fragment: bytes, command: c.HandlePrepare) -> None:
        if not (handle.command.producer or handle.service is Service.PEER):
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a producer's")
        if self.stream_handle is not None:
            text = "a channel that streams carries nothing else (§3.5.3.1)"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)
        size = self.gatherer.prepare(handle.id, fragment, command.content_hash)
        self.engine.send(c.HandleReady(handle.id, size))

    def take_message(self, handle: Handle, name: str, confirm_tag: int, message: bytes) -> None:
        """Takes a whole message.

        Raises:
            PeerError: it is broken, or names no destination.
        """
        if handle.later is not None:
            handle.later.append(lambda: self._post(handle, name, confirm_tag, message))
            return
        self._post(handle, name, confirm_tag, message)

    def _post(self, handle: Handle, name: str, confirm_tag: int, message: bytes) -> None:
        size = head_octets(message, 0, len(message))
        if size is None:
            raise PeerError(Reply.SYNTAX_ERROR, "the message ends in its head")
        if body_octets(message, 0) != len(message) - size:
            text = f"body-size {body_octets(message, 0)}, and {len(message) - size} octets of body"
            raise PeerError(Reply.CONTENTS_INVALID, text)
        ttl, _ = self.engine.heads.look_at(message[4:size])
        opened = handle.command
        is_whole = not (opened.mime_type or opened.encoding or handle.service is Service.PEER)
        if not is_whole:
            message = self._completed(handle, message, size)
        inlet, prefix = handle.routes.get(name) or self._route(handle, name)
        inlet.handles[handle] = None
        if is_whole and size <= KNOWN_OCTETS:
            handle.shapes[name.encode()] = Shape(inlet, prefix, message[4:size], ttl)
        self.publishing.submit(Post(handle, inlet, prefix + message, ttl, confirm_tag))

    def _route(self, handle: Handle, name: str) -> tuple[Inlet, bytes]:
        address = handle.prefix + name
        if not address:
            text = "no name: a router cannot know all destinations there are"
            raise PeerError(Reply.NOT_FOUND, text)
        inlet = self.publishing.inlet(address)
        shown = address if fits_short(address) else ""
        route = (inlet, payload_prefix(shown))
        if len(handle.routes) >= MAX_ROUTES:
            handle.forget_routes()
        handle.routes[name] = route
        return route

    def _completed(self, handle: Handle, message: bytes, size: int) -> bytes:
        """Puts in what the handle says of all its messages (§3.4.4)."""
        head = decode_head(message, 0, size)[0]
        head.mime_type = head.mime_type or handle.command.mime_type
        head.encoding = head.encoding or handle.command.encoding
        if handle.service is Service.PEER and handle.own is not None:
            head.headers.setdefault(REPLY_TO, handle.own.address.encode())
        return encode_head(head, body_octets(message, 0)) + message[size:]

    # --- receiving --------------------------------------------------------------------------------

    def _not_for_peers(self, handle: Handle, command: str) -> None:
        if handle.service is Service.PEER:
            text = f"HANDLE {command} is not valid for peer services"
            raise PeerError(Reply.NOT_VALID_NOW, text)

    def _consume(self, handle: Handle, command: c.HandleConsume) -> None:
        self._not_for_peers(handle, "CONSUME")
        if not handle.command.consumer:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a consumer's")
        if not command.prefetch:
            raise PeerError(Reply.SYNTAX_ERROR, "prefetch: 0; at least 1 is needed")
        if command.identifier:
            if handle.service is Service.QUEUE:
                raise PeerError(Reply.SYNTAX_ERROR, "identifier: queues have no subscriptions")
            raise PeerError(Reply.NOT_IMPLEMENTED, "durable subscriptions: a router keeps nothing")
        if command.selector:
            raise PeerError(Reply.NOT_IMPLEMENTED, "selectors")
        if command.no_local:
            raise PeerError(Reply.NOT_IMPLEMENTED, "no-local: a router does not know its own")
        if handle.own is not None:
            if command.dest_name not in ("", handle.own.address):
                raise PeerError(Reply.NOT_FOUND, f"{command.dest_name!r} is not this handle's")
            outlet, is_new = handle.own, False
        else:
            address = handle.prefix + command.dest_name
            if not address:
                text = "no name: a router cannot know all destinations there are"
                raise PeerError(Reply.NOT_FOUND, text)
            found = handle.outlets.get(address)
            is_new = found is None
            outlet = found or Outlet(self.engine.next_link(), handle, Kind.SUBSCRIPTION, address)
        outlet.prefetch = command.prefetch
        outlet.is_unreliable = command.unreliable
        outlet.may_fall = True
        if is_new:
            outlet.confirm_tag = command.confirm_tag
            handle.outlets[outlet.address] = outlet
            self.engine.ask_for_outlet(outlet)
            return
        handle.reply(command.confirm_tag)
        outlet.dispatch()
        self.engine.review(outlet)

    def _cancel(self, handle: Handle, command: c.HandleCancel) -> None:
        if handle.service is not Service.TOPIC:
            raise PeerError(Reply.NOT_VALID_NOW, "HANDLE CANCEL is valid for topics only")
        raise PeerError(Reply.NOT_FOUND, f"no durable subscription {command.identifier!r}")

    def _flow(self, handle: Handle, command: c.HandleFlow) -> None:
        self._not_for_peers(handle, "FLOW")
        handle.is_paused = command.flow_pause
        handle.reply(command.confirm_tag)
        for outlet in handle.all_outlets():
            outlet.may_fall = True
            outlet.dispatch()
            self.engine.review(outlet)

    def deliver(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to the client; one that cannot be sent is refused."""
        try:
            ready = self.engine.outgoing.ready(delivery)
        except TranslationError as error:
            if not delivery.settled:
                self.engine.runs.update(outlet.link, [delivery.number], refusal(error), True)
            return
        outlet.unacknowledged += 1
        self.line.send(Notice(self, outlet, delivery, ready))

    def begun(self, outlet: Outlet, delivery: OutgoingDelivery) -> int:
        """Numbers a message that goes out, and remembers what has to be acknowledged."""
        self._last += 1
        if outlet.is_unreliable or outlet.kind is Kind.ANSWERS:
            outlet.unacknowledged -= 1
            if not delivery.settled:
                self.engine.runs.update(outlet.link, [delivery.number], ACCEPTED, True)
        else:
            number = None if delivery.settled else delivery.number
            self.unacked[self._last] = Unacked(outlet, number)
        return self._last

    # --- browsing ---------------------------------------------------------------------------------

    def _query(self, handle: Handle, command: c.HandleQuery) -> None:
        self._not_for_peers(handle, "QUERY")
        if not handle.command.browser:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a browser's")
        if command.selector:
            raise PeerError(Reply.NOT_IMPLEMENTED, "selectors")
        own = handle.own
        if own is None or command.dest_name not in ("", own.address):
            text = "a router holds no queue that could be listed"
            raise PeerError(Reply.NOT_IMPLEMENTED, text)
        found = [number for number, _ in own.backlog if number > command.message_nbr]
        listed, more = list_of(found)
        self.engine.send(c.HandleIndex(handle.id, more, listed))

    def _browse(self, handle: Handle, command: c.HandleBrowse) -> None:
        self._not_for_peers(handle, "BROWSE")
        if not handle.command.browser:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a browser's")
        own = handle.own
        for number, delivery in () if own is None else own.backlog:
            if number == command.message_nbr:
                assert own is not None
                self._show(own, number, delivery, command.confirm_tag)
                return
        text = f"message {command.message_nbr} is not here"
        self.engine.send(
            c.HandleReply(handle.id, command.confirm_tag, Reply.MESSAGE_NOT_FOUND, text)
        )

    def _show(
        self, outlet: Outlet, number: int, delivery: OutgoingDelivery, confirm_tag: int
    ) -> None:
        try:
            ready = self.engine.outgoing.ready(delivery)
        except TranslationError as error:
            outlet.handle.reply(confirm_tag, Reply.CONTENTS_INVALID, str(error))
            return
        outlet.handle.reply(confirm_tag)
        self.line.send(Notice(self, outlet, None, ready, number))

    def _ready(self, handle: Handle, command: c.HandleReady) -> None:
        self.line.ready(handle.id, command.message_size)

    # --- acknowledging ----------------------------------------------------------------------------

    def _ack(self, command: c.ChannelAck) -> None:
        self._has_acked = True
        entries = self._up_to(command.message_nbr)
        if self.transacted:
            self._done.update(entries)
        else:
            self._settle(entries, ACCEPTED)
        self.reply(command.confirm_tag)

    def _up_to(self, message_nbr: int) -> dict[int, Unacked]:
        """Takes out what was sent up to a number, which need not exist (§3.3.3)."""
        behind = distance(message_nbr, self._last & _MASK)
        limit = self._last - behind if behind > 0 else self._last
        taken = []
        for number in self.unacked:
            if number > limit:
                break
            taken.append(number)
        return {number: self.unacked.pop(number) for number in taken}

    def _unget(self, handle: Handle, command: c.HandleUnget) -> None:
        if handle.service is not Service.QUEUE:
            raise PeerError(Reply.NOT_VALID_NOW, "HANDLE UNGET is valid for queues only")
        behind = distance(command.message_nbr, self._last & _MASK)
        number = self._last - behind
        entry = self.unacked.get(number)
        if entry is None or entry.outlet.handle is not handle:
            text = f"message {command.message_nbr} is not to be given back"
            raise PeerError(Reply.MESSAGE_NOT_FOUND, text)
        del self.unacked[number]
        if self.transacted:
            self._back[number] = entry
        else:
            self._settle({number: entry}, MODIFIED_FAILED)
        handle.reply(command.confirm_tag)

    def _settle(self, entries: dict[int, Unacked], state: DeliveryState) -> None:
        """Tells the core what became of deliveries, and makes room for others."""
        runs: Runs = self.engine.runs
        outlets: dict[int, Outlet] = {}
        for entry in entries.values():
            outlet = entry.outlet
            outlet.unacknowledged -= 1
            outlets[id(outlet)] = outlet
            if entry.number is not None and outlet.is_attached:
                runs.update(outlet.link, [entry.number], state, True)
        for outlet in outlets.values():
            if outlet.is_attached:
                outlet.dispatch()

    # --- transactions -----------------------------------------------------------------------------

    def _check_transacted(self, command: str) -> None:
        if not self.transacted:
            text = f"CHANNEL {command} on a channel without transactions"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)

    def _commit(self, command: c.ChannelCommit) -> None:
        self._check_transacted("COMMIT")
        if not self._has_acked:
            self._done.update(self.unacked)
            self.unacked = {}
        self._committing.append((self._done, self._back))
        self._done, self._back = {}, {}
        self.publishing.commit(command.confirm_tag)

    def committed(self, confirm_tag: int) -> None:
        """Takes note that all messages of the oldest commit were taken."""
        done, back = self._committing.pop(0)
        self._settle(done, ACCEPTED)
        self._settle(back, MODIFIED_FAILED)
        self.reply(confirm_tag)
        self.drained()

    def _roll_back(self, command: c.ChannelRollback) -> None:
        self._check_transacted("ROLLBACK")
        self.publishing.roll_back()
        entries = {**self._done, **self._back, **self.unacked}
        self._done, self._back, self.unacked = {}, {}, {}
        self._settle(dict(sorted(entries.items())), MODIFIED_FAILED)
        self.reply(command.confirm_tag)

    # --- end --------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something that the client sent is still to be handed on."""
        if self.publishing.is_busy or self._stream_waits:
            return True
        return any(each.later for each in self.handles.values())

    def take_close(self) -> None:
        """Takes the client's close, when what it sent before is handed on (§3.3.7)."""
        if self.is_closing:
            self.engine.free_channel(self)
        elif not self.has_left:
            self.has_left = True
            if self.is_busy:
                self.engine.await_drained()
            else:
                self.finish_close()

    def drained(self) -> None:
        """Takes note that something that was waited for is done."""
        for handle in list(self.handles.values()):
            if handle.state is State.LEAVING and not self._is_waited_for(handle):
                self.finish_handle(handle)
        if self.has_left and not self.is_busy:
            self.finish_close()
        self.engine.drained()

    def finish_close(self) -> None:
        """Ends a channel that the client has closed."""
        if self.engine.channels.get(self.id) is not self:
            return
        self.end_stream(is_orderly=True)
        self.ended(is_orderly=True)
        self.engine.send(c.ChannelClose(self.id, Reply.OK))
        self.engine.free_channel(self)

    def close(self, error: PeerError) -> None:
        """Closes the channel for a fault, or a wish, of ours; the client's close is awaited."""
        self.ended(is_orderly=True)
        self.is_closing = True
        for handle in self.handles.values():
            handle.state = State.CLOSING
        self.engine.send(c.ChannelClose(self.id, error.code, str(error)))

    def ended(self, *, is_orderly: bool) -> None:
        """Ends what lives on the channel; what the client had not acknowledged is given back.

        Args:
            is_orderly: the core is to be told of each link; else the connection's end says it all.
        """
        self.gatherer.keep()
        if is_orderly:
            for entries in self._all_unacked()[1:]:
                self.unacked.update(entries)
            self._done, self._back, self._committing = {}, {}, []
            for handle in list(self.handles.values()):
                self._end_handle(handle, is_orderly=False)
        self.unacked.clear()
        self.publishing.ended(is_orderly=is_orderly)


def list_of(numbers: list[int]) -> tuple[bytes, int]:
    """Writes a message-list, "5,9,15-40,80", and the highest number if not all fit (§3.5.12)."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words: list[str] = []
    octets = 0
    for first, last in ranges:
        word = str(first) if first == last else f"{first}-{last}"
        octets += len(word) + 1
        if octets > LIST_OCTETS:
            return ",".join(words).encode(), int(words[-1].rpartition("-")[2])
        words.append(word)
    return ",".join(words).encode(), 0


LIST_OCTETS: Final = 1024
"""How long a message-list may be: its command must fit any frame."""
