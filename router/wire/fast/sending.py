"""A channel's incoming messages: common, announced ones, streams (RFC 006 §3.5.3, §3.5.13).

Theory of operation. Fragments are reassembled (``gather``); a complete message is validated, gets
the settings of its handle, and is passed to ``publishing``. A stream is not reassembled
(``stream``). Messages that need a name that the core has yet to create wait in their handle.
"""

from typing import Any, ClassVar

from router.errors import MisuseError
from router.model.events import MemorySought, PartsTaken
from router.wire.fast import commands as c
from router.wire.fast import marks
from router.wire.fast.area import STORE, PartKey
from router.wire.fast.gather import Gatherer
from router.wire.fast.handle import MAX_ROUTES, Handle, HandleChannel, HandleState, Service
from router.wire.fast.inlet import Inlet, SendShape
from router.wire.fast.message import (
    KNOWN_OCTETS,
    body_octets,
    decode_head,
    encode_head,
    head_octets,
    payload_prefix,
)
from router.wire.fast.publishing import Post, Publishing
from router.wire.fast.reply import Level, PeerError, Reply
from router.wire.fast.server_links import ServerLinks
from router.wire.fast.stream import Stream, first_part
from router.wire.fast.types import fits_short
from router.wire.machine import Handlers


class Sending:
    """The sending part of one channel.

    Attributes:
        stream: the current message without end, by ``stream_handle``.
    """

    def __init__(
        self,
        engine: ServerLinks,
        channel: HandleChannel,
        publishing: Publishing,
        *,
        is_restartable: bool,
    ) -> None:
        self.engine = engine
        self.channel = channel
        self._publishing = publishing
        self.gatherer = Gatherer(
            engine.budget, engine.area, engine.owner, is_restartable=is_restartable
        )
        self.stream: Stream | None = None
        self.stream_handle: Handle | None = None
        self._sought: tuple[Handle, PartKey] | None = None

    def take(self, command: Any, *arguments: Any) -> None:
        """Handles a command on one of the channel's handles."""
        self.handlers[type(command)](self, *arguments, command)

    @property
    def is_plain(self) -> bool:
        """Whether a complete message may be handed on at once."""
        return (
            self.channel.is_open
            and self.stream_handle is None
            and self.gatherer.handle is None
            and self._publishing.transaction is None
        )

    def is_waited_for(self, handle: Handle | None) -> bool:
        """Whether a stream of a handle, or of any if None, has parts to be handed on."""
        if self.stream is None or (handle is not None and self.stream_handle is not handle):
            return False
        return self.stream.waits

    def end_handle(self, handle: Handle, *, is_orderly: bool) -> None:
        """Ends the messages of a handle.

        Args:
            handle: the handle.
            is_orderly: the client's request; else its stream is aborted.
        """
        if self.gatherer.handle == handle.id:
            self.gatherer.keep()
        if self.stream_handle is handle:
            self.end_stream(is_orderly=is_orderly)
        self._publishing.drop(handle)

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
        """Handles a fragment of a message without end (§3.5.3.1)."""
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
            number = self._publishing.next_number()
            self.stream = Stream(self.engine, inlet, number, head)
            if handle.own is not None and handle.own.is_attached:
                self.engine.runs.add(PartsTaken(handle.own.link))
        self.stream.push(fragment)
        handle.reply(confirm_tag)

    def pump_stream(self) -> None:
        """Continues the message without end, if there is one."""
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
        key = self.gatherer.lacks
        if key is not None and self.engine.area.moves.siblings:
            self._sought = handle, key
            self.engine.runs.add(MemorySought(STORE, key.encode()))
        else:
            self._sought = None
            self.engine.send(c.HandleReady(handle.id, size))

    def found(self, octets: bytes) -> None:
        """Answers a prepare when other workers have answered.

        Args:
            octets: of the key of the request.
        """
        if self._sought is None or self._sought[1].encode() != octets:
            return
        (handle, key), self._sought = self._sought, None
        if handle.state is HandleState.OPEN and self.gatherer.lacks == key:
            size = self.gatherer.refill()
            self.engine.send(c.HandleReady(handle.id, size))

    def take_message(self, handle: Handle, name: str, confirm_tag: int, message: bytes) -> None:
        """Handles a complete message.

        Raises:
            PeerError: it is invalid, or names no destination.
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
            handle.shapes[name.encode()] = SendShape(inlet, prefix, message[4:size], ttl)
        self._publishing.submit(Post(handle, inlet, prefix + message, ttl, confirm_tag))

    def _route(self, handle: Handle, name: str) -> tuple[Inlet, bytes]:
        address = handle.prefix + name
        if not address:
            text = "no name: a router cannot know all destinations there are"
            raise PeerError(Reply.NOT_FOUND, text)
        inlet = self._publishing.inlet(address)
        shown = address if fits_short(address) else ""
        route = (inlet, payload_prefix(shown))
        if len(handle.routes) >= MAX_ROUTES:
            handle.forget_routes()
        handle.routes[name] = route
        return route

    def _completed(self, handle: Handle, message: bytes, size: int) -> bytes:
        """Adds the handle's settings for all its messages (§3.4.4)."""
        head = decode_head(message, 0, size)[0]
        head.mime_type = head.mime_type or handle.command.mime_type
        head.encoding = head.encoding or handle.command.encoding
        if handle.service is Service.PEER and handle.own is not None:
            head.headers.setdefault(marks.REPLY_TO, handle.own.address.encode())
        try:
            return encode_head(head, body_octets(message, 0)) + message[size:]
        except MisuseError as error:
            text = f"the address of the answer does not fit: {error.reason}"
            raise PeerError(Reply.CONTENTS_INVALID, text) from error

    handlers: ClassVar[Handlers] = {
        c.HandleSend: _send,
        c.HandlePrepare: _prepare,
    }
