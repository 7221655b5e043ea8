"""AMQP over WebSocket as an engine around an engine (AMQP WebSocket Binding 1.0, RFC 6455).

Theory of operation. ``Frames`` reads and writes WebSocket frames once the connection is upgraded
(``upgrade``). The payload of binary messages is one stream of octets: message boundaries and
fragments mean nothing to AMQP, and a frame that is not complete is read as far as it has come.
``WebSocketEngine`` passes that stream to the inner engine, and puts what the inner engine shows
into messages of up to ``MESSAGE_OCTETS``, all output of a turn in as few as possible. TLS, if
there is any, lies below.

Nothing is compressed, as no extension is offered or accepted. A ping is answered by a pong; of
several that came at once only the latest is (RFC 6455 §5.5.3), so pings cannot fill the output.
Either end closes by a close frame, which is the last one that it sends. The engine sends it behind
the last output of the inner engine; what breaks the rules of RFC 6455 ends the connection with the
close code that is meant for it.

Shown output has been put into frames and cannot be withdrawn, so the inner engine forgets it at
once; the octets that the socket has not accepted yet wait here.
"""

from typing import Final

import attrs
from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from router.model.condition import CONNECTION_FORCED, FRAMING_ERROR, Condition
from router.model.events import ConnectionClosed, Event
from router.model.text import shown
from router.net.around import EngineAround

MESSAGE_OCTETS: Final = 32 * 1024
"""Payload of one message, at most: some brokers refuse more than 64 KiB."""

SHOWN_OCTETS: Final = 256 * 1024
"""Frames made ahead of what the socket takes, at most (and one message)."""

_ORDERLY: Final = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD)
_NOTHING: Final = memoryview(b"")


@attrs.frozen
class Ending:
    """How a WebSocket connection has ended.

    Attributes:
        code: the close code that the peer sent, or that it gets.
        reason: in words, perhaps none.
        by_peer: the peer has sent a close frame; otherwise it has broken the rules.
    """

    code: int
    reason: str
    by_peer: bool

    @property
    def condition(self) -> Condition | None:
        """The condition to report; None: the end was orderly."""
        reason = shown(self.reason)
        if not self.by_peer:
            return Condition(FRAMING_ERROR, f"WebSocket: {reason}")
        if self.code in _ORDERLY:
            return None
        said = f": {reason}" if reason else ""
        return Condition(CONNECTION_FORCED, f"the peer closed the WebSocket with {self.code}{said}")


@attrs.define(eq=False, init=False)
class Frames:
    """The frames of one connection, in both directions.

    Attributes:
        ending: how it ended; None: it has not.
    """

    ending: Ending | None
    _protocol: FrameProtocol
    _pong: bytes | None
    _close: bytes | None
    _is_closed: bool

    def __init__(self, *, is_client: bool) -> None:
        """Begins right behind the upgrade; a client masks what it sends (RFC 6455 §5.3)."""
        self.ending = None
        self._protocol = FrameProtocol(is_client, [])
        self._pong = None
        self._close = None
        self._is_closed = False

    def receive(self, octets: bytes | memoryview) -> bytes:
        """Returns the payload of binary messages, as far as it has come.

        After a close frame, or what breaks the rules, ``ending`` is set and the rest is ignored.
        """
        if self.ending is not None:
            return b""
        payloads: list[bytes] = []
        self._protocol.receive_bytes(bytes(octets))
        try:
            for frame in self._protocol.received_frames():
                if frame.opcode is Opcode.BINARY:
                    assert isinstance(frame.payload, bytes)
                    payloads.append(frame.payload)
                elif not self._goes_on(frame):
                    break
        except ParseFailed as error:
            self._end(Ending(int(error.code), str(error), by_peer=False))
        return payloads[0] if len(payloads) == 1 else b"".join(payloads)

    def wrap(self, octets: bytes | memoryview) -> bytearray:
        """Puts octets into one binary message."""
        return self._protocol.send_data(bytearray(octets))

    @property
    def has_answers(self) -> bool:
        """Whether a ping, a close frame or broken rules have to be answered."""
        return not self._is_closed and (self._pong is not None or self._close is not None)

    def take_answers(self) -> bytes:
        """Returns these answers, once."""
        if self._is_closed:
            return b""
        answers = b""
        if self._pong is not None:
            answers = bytes(self._protocol.pong(self._pong))
            self._pong = None
        if self._close is not None:
            self._is_closed = True
            answers += self._close
        return answers

    def close(self) -> bytes:
        """Returns our close frame; nothing if it has been sent."""
        if self._is_closed:
            return b""
        self._is_closed = True
        return self._close or bytes(self._protocol.close(CloseReason.NORMAL_CLOSURE))

    def _goes_on(self, frame: Frame) -> bool:
        """Handles a frame without AMQP; false: nothing may follow it."""
        match frame.opcode:
            case Opcode.PING:
                assert isinstance(frame.payload, bytes)
                self._pong = frame.payload
            case Opcode.TEXT:
                reason = "AMQP is binary, and the peer sent text"
                self._end(Ending(CloseReason.UNSUPPORTED_DATA, reason, by_peer=False))
            case Opcode.CLOSE:
                assert isinstance(frame.payload, tuple)
                code, reason = frame.payload
                self._end(Ending(int(code), reason or "", by_peer=True))
            case _:  # a pong
                pass
        return self.ending is None

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        reason = None if ending.by_peer else ending.reason
        self._close = bytes(self._protocol.close(CloseReason(_answer_to(ending)), reason))


def _answer_to(ending: Ending) -> int:
    """Returns the code of our close frame: the peer's own, where a server may send it."""
    if not ending.by_peer:
        return ending.code
    return ending.code if ending.code in _ORDERLY[:2] else CloseReason.NORMAL_CLOSURE


@attrs.define(eq=False)
class WebSocketEngine(EngineAround):
    """Has the interface of an engine; speaks WebSocket outside, and ``inner`` speaks its protocol.

    Attributes:
        frames: the connection has been upgraded.
        early: payload that has been read from the frames before; the first input begins with it.
    """

    frames: Frames
    early: bytes = b""
    _waiting: memoryview = attrs.field(default=_NOTHING, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    @property
    def deadline(self) -> float | None:
        """The inner engine's."""
        return self.inner.deadline

    @property
    def finished(self) -> bool:
        """Whether the inner engine is finished, or the WebSocket is closed."""
        return self.inner.finished or self._is_over

    @property
    def output_octets(self) -> int:
        """Frames that wait, and what the inner engine has to send."""
        return len(self._waiting) + self.inner.output_octets + self.frames.has_answers

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Reads frames and passes their payload to the inner engine."""
        payload = self.frames.receive(octets)
        if self.early:
            payload, self.early = self.early + payload, b""
        events = self.inner.receive_data(payload, now) if payload else []
        if self.frames.ending is not None and not self._is_over:
            events += self._end(now)
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """Ends the inner stream, with or without the peer's close frame."""
        return self._end(now)

    def data_to_send(self) -> memoryview:
        """Shows frames, made of what the inner engine has to send."""
        if not self._waiting:
            octets = bytearray()
            while len(octets) < SHOWN_OCTETS and self._wrap_some(octets):
                pass
            octets += self.frames.take_answers()
            if self.finished and not self.inner.output_octets:
                octets += self.frames.close()
            if octets:
                self._waiting = memoryview(octets)
        return self._waiting

    def bytes_sent(self, count: int) -> None:
        """Forgets frames."""
        self._waiting = self._waiting[count:] if count < len(self._waiting) else _NOTHING

    def handle_deadline(self, now: float) -> list[Event]:
        """Hands the time in."""
        return self.inner.handle_deadline(now)

    def _wrap_some(self, octets: bytearray) -> bool:
        """Appends one message; returns whether there was anything for it."""
        if self._is_over:
            return False
        output = self.inner.data_to_send()
        count = min(len(output), MESSAGE_OCTETS)
        if not count:
            return False
        octets += self.frames.wrap(output[:count])
        del output
        self.inner.bytes_sent(count)
        return True

    def _end(self, now: float) -> list[Event]:
        """Ends the input; output can still be sent, unless a close frame has ended it, too."""
        events = self.inner.receive_eof(now)
        ending = self.frames.ending
        self._is_over = ending is not None
        condition = None if ending is None else ending.condition
        if ending is None or condition is None:
            return events
        return [_explained(event, condition, by_peer=ending.by_peer) for event in events]


def _explained(event: Event, condition: Condition, *, by_peer: bool) -> Event:
    """Puts the reason of the WebSocket's end into the connection's."""
    if not isinstance(event, ConnectionClosed) or not event.by_peer:
        return event
    return attrs.evolve(event, condition=condition, by_peer=by_peer)
