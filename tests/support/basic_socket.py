"""A client of 0-9-1 on a real socket, frame by frame: it says right and wrong things alike."""

import contextlib
import struct
from typing import Any, Final, Self

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC, MethodCodec
from router.wire.v0_9_1.content import (
    Properties,
    decode_properties,
    encode_content_header,
    encode_properties,
)
from router.wire.v0_9_1.framing import (
    BODY,
    FRAMING,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Framing,
)
from tests.support.answer_socket import QUIET_SECONDS, SECONDS, AnswerSocket
from tests.support.basic_peer import Content

CAPABILITIES: Final = {"consumer_cancel_notify": True, "connection.blocked": True}

Answer = m.Method | Content | None
"""A method, with its content if it has one; None: a heartbeat."""


class BasicSocket(AnswerSocket[tuple[int, Answer]]):
    """One connection; what it receives are channels and answers.

    Attributes:
        start, tune: what the server has offered.
    """

    header: bytes = PROTOCOL_HEADER
    framing: Framing = FRAMING
    codec: MethodCodec = CODEC

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.start: Any = None
        self.tune: Any = None
        self._pending: dict[int, list[Any]] = {}

    def open(self, *channels: int, vhost: str = "/", **tune: int) -> Self:
        """Goes through the handshake and opens channels."""
        self.write(self.header)
        self.start = self.take()
        self.login()
        self.tune = self.take()
        limits = {"channel_max": 100, "frame_max": 4096, "heartbeat": 0} | tune
        self.send(0, m.ConnectionTuneOk(**limits), m.ConnectionOpen(vhost))
        self.take()
        for number in channels:
            self.ask(m.ChannelOpen(), number)
        return self

    def login(self, mechanism: str = "PLAIN", response: bytes = b"\0guest\0guest") -> None:
        """Answers the server's start."""
        told = {"capabilities": CAPABILITIES} if self.codec.has_booleans else {}
        self.send(
            0,
            m.ConnectionStartOk(
                client_properties=dict(told), mechanism=mechanism, response=response
            ),
        )

    # --- out --------------------------------------------------------------------------------------

    def frame(self, kind: int, number: int, payload: bytes) -> bytes:
        """Makes a frame."""
        return self.framing.frame(kind, number, payload)

    def send(self, number: int, *methods: m.Method) -> Self:
        """Sends methods in one piece."""
        encode = self.codec.encode
        return self.write(b"".join(self.frame(METHOD, number, encode(one)) for one in methods))

    def content(
        self,
        method: m.Method,
        body: bytes = b"",
        properties: Properties | None = None,
        number: int = 1,
    ) -> bytes:
        """Makes the frames of a method with content."""
        header = encode_content_header(len(body), encode_properties(properties or Properties()))
        octets = self.frame(METHOD, number, self.codec.encode(method))
        return octets + self.framing.content_frames(number, header, body, 4096)

    def publish(
        self,
        body: bytes,
        key: str,
        *,
        exchange: str = "",
        mandatory: bool = False,
        properties: Properties | None = None,
        number: int = 1,
    ) -> Self:
        """Publishes a message."""
        method = m.BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory)
        return self.write(self.content(method, body, properties, number))

    # --- in ---------------------------------------------------------------------------------------

    def ask(self, method: m.Method, number: int = 1) -> Any:
        """Sends a method and takes the next answer, whatever it is."""
        self.send(number, method)
        return self.take()

    def code(self, method: m.Method, number: int = 1) -> int:
        """Sends a method; returns the code of the close that answers it, 0 for any other answer.

        A channel that was closed is opened again.
        """
        answer = self.ask(method, number)
        if isinstance(answer, m.ChannelClose):
            self.send(number, m.ChannelCloseOk())
            self.ask(m.ChannelOpen(), number)
        is_end = isinstance(answer, m.ChannelClose | m.ConnectionClose)
        return answer.reply_code if is_end else 0

    def take(self, seconds: float = SECONDS) -> Any:
        """Takes the next answer, without its channel.

        Raises:
            AssertionError: none came in time, or the server has ended the stream.
        """
        return self.take_next(seconds)[1]

    def rest(self, seconds: float = QUIET_SECONDS) -> list[Any]:
        """Takes all that comes until nothing has come for a while."""
        return [answer for _, answer in self.take_rest(seconds)]

    def bodies(self, count: int, seconds: float = SECONDS) -> list[bytes]:
        """Takes the bodies of as many contents as are waited for, and those that follow at once."""
        found: list[bytes] = []
        while len(found) < count:
            one = self.take(seconds)
            if isinstance(one, Content):
                found.append(one.body)
        return found + [one.body for one in self.rest(0.2) if isinstance(one, Content)]

    def end(self, seconds: float = SECONDS) -> list[Any]:
        """Waits for the end of the stream; returns what came before."""
        return [answer for _, answer in self.take_end(seconds)]

    def raw(self, seconds: float = SECONDS) -> bytes:
        """Takes octets as they come, until the end of the stream or as long as it takes."""
        self.socket.settimeout(seconds)
        parts = [self._octets]
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while octets := self.socket.recv(65536):
                parts.append(octets)
            self.is_over = True
        self._octets = b""
        return b"".join(parts)

    def _take_answers(self) -> bool:
        before, head = len(self.received), self.framing.head
        while len(self._octets) >= self.framing.overhead_octets:
            kind, number, size = head.unpack_from(self._octets)
            start = self.framing.head_octets
            if len(self._octets) <= start + size:
                break
            assert self._octets[start + size] == 0xCE
            self._take_frame(kind, number, self._octets[start : start + size])
            self._octets = self._octets[start + size + 1 :]
        return len(self.received) > before

    def _take_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            self.received.append((number, None))
        elif kind == METHOD:
            method = self.codec.decode(payload, 0, len(payload))
            assert method is not None
            if self.codec.spec_of(type(method)).has_content:
                self._pending[number] = [method]
            else:
                self.received.append((number, method))
        else:
            self._take_content(kind, number, payload)

    def _take_content(self, kind: int, number: int, payload: bytes) -> None:
        pending = self._pending[number]
        if kind == HEADER:
            pending += [*self._read_header(payload), b""]
        else:
            assert kind == BODY
            pending[3] += payload
        method, properties, octets, body = pending
        if len(body) == octets:
            del self._pending[number]
            self.received.append((number, Content(method, properties, body)))

    def _read_header(self, payload: bytes) -> tuple[Properties, int]:
        octets = struct.unpack_from(">Q", payload, 4)[0]
        return decode_properties(payload, 12, len(payload)), octets
