"""The far end of a 0-9-1 engine under test: sends frames as told, and reads what comes back."""

import itertools
from collections.abc import Iterator
from typing import Any, Self

import attrs

from router.model.commands import AttachLink, Command
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role, SenderSettleMode, Source, Target
from router.wire.engine import EngineSettings
from router.wire.sasl import SaslClient, SaslServer
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.client import ClientEngine
from router.wire.v0_9_1.codec import MethodCodec
from router.wire.v0_9_1.content import (
    Properties,
    decode_properties,
    encode_content_header,
    encode_properties,
)
from router.wire.v0_9_1.framing import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
)
from router.wire.v0_9_1.server import ServerEngine


@attrs.frozen
class Content:
    """A method with the content behind it."""

    method: m.Method
    properties: Properties
    body: bytes


Received = tuple[int, m.Method | Content | None]
"""Channel and what came on it; None is a heartbeat."""


class Peer:
    """What stands opposite an engine.

    Attributes:
        engine: the engine under test.
        now: the clock that both live by.
        events: everything the engine has told and nobody has taken.
    """

    def __init__(
        self, engine: ServerEngine | ClientEngine, codec: MethodCodec | None = None
    ) -> None:
        self.engine = engine
        self.framing = engine.framing
        self.codec = codec or engine.first_codec
        self.now = 0.0
        self.events: list[Event] = []
        self._pending: dict[int, list[Any]] = {}
        self._octets = b""

    # --- to the engine ----------------------------------------------------------------------------

    def feed(self, octets: bytes) -> list[Event]:
        """Gives the engine octets; returns the events, which ``events`` keeps, too."""
        events = self.engine.receive_data(octets, self.now)
        self.events += events
        return events

    def send(self, number: int, *methods: m.Method) -> list[Event]:
        """Sends methods in one piece."""
        frame, encode = self.framing.frame, self.codec.encode
        return self.feed(b"".join(frame(METHOD, number, encode(one)) for one in methods))

    def content(
        self,
        number: int,
        method: m.Method,
        body: bytes = b"",
        properties: Properties | None = None,
        frame_max: int = 4096,
    ) -> bytes:
        """Makes the frames of a method with content."""
        header = encode_content_header(len(body), encode_properties(properties or Properties()))
        return self.framing.frame(METHOD, number, self.codec.encode(method)) + self.content_frames(
            number, header, body, frame_max
        )

    def content_frames(self, number: int, header: bytes, body: bytes, frame_max: int) -> bytes:
        """Makes the frames of a content."""
        return content_frames(number, header, body, frame_max)

    def do(self, *commands: Command) -> list[Event]:
        """Has the engine execute commands, and takes the events that they bring about."""
        for command in commands:
            self.engine.execute(command)
        deadline = self.engine.deadline
        events = []
        while deadline is not None and deadline <= self.now:
            more = self.engine.handle_deadline(self.now)
            if not more:
                break
            events += more
            deadline = self.engine.deadline
        self.events += events
        return events

    def wait(self, seconds: float) -> list[Event]:
        """Lets time pass, deadline by deadline."""
        until = self.now + seconds
        events = []
        while True:
            deadline = self.engine.deadline
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            events += self.engine.handle_deadline(self.now)
        self.now = until
        self.events += events
        return events

    def take_events(self) -> list[Event]:
        """Takes what the engine has told so far."""
        events, self.events = self.events, []
        return events

    # --- from the engine --------------------------------------------------------------------------

    def octets(self) -> bytes:
        """Takes everything that the engine has to send."""
        parts = []
        while view := self.engine.data_to_send():
            parts.append(bytes(view))
            self.engine.bytes_sent(len(view))
        return b"".join(parts)

    def received(self) -> list[Received]:
        """Reads what the engine has sent since the last call."""
        octets = self._octets + self.octets()
        found: list[Received] = []
        at = 0
        while len(octets) - at >= self.framing.overhead_octets:
            kind, number, size = self.framing.head.unpack_from(octets, at)
            start = at + self.framing.head_octets
            end = start + size
            if end >= len(octets):
                break
            assert octets[end] == 0xCE
            found += self._read(kind, number, octets[start:end])
            at = end + 1
        self._octets = octets[at:]
        return found

    def methods(self) -> list[m.Method | Content | None]:
        """As ``received``, without the channel numbers."""
        return [one for _, one in self.received()]

    def _read(self, kind: int, number: int, payload: bytes) -> list[Received]:
        if kind == HEARTBEAT:
            return [(number, None)]
        if kind == METHOD:
            method = self.codec.decode(payload, 0, len(payload))
            assert method is not None
            if not self.codec.spec_of(type(method)).has_content:
                return [(number, method)]
            self._pending[number] = [method]
            return []
        pending = self._pending[number]
        if kind == HEADER:
            size = int.from_bytes(payload[4:12], "big")
            pending += [decode_properties(payload, 12, len(payload)), size, b""]
        else:
            assert kind == BODY
            pending[3] += payload
        method, properties, size, body = pending
        if len(body) < size:
            return []
        del self._pending[number]
        return [(number, Content(method, properties, body))]


def settings(**options: Any) -> EngineSettings:
    """Settings of a server, unless told otherwise."""
    return attrs.evolve(EngineSettings(is_server=True, container="router"), **options)


class ClientPeer(Peer):
    """A client, opposite a ``ServerEngine``."""

    engine: ServerEngine
    header = PROTOCOL_HEADER

    def __init__(self, sasl: SaslServer | None = None, **options: Any) -> None:
        made = settings(sasl_server=None if sasl is None else lambda: sasl, **options)
        super().__init__(self.make(made))

    def make(self, made: EngineSettings) -> ServerEngine:
        """Makes the engine under test."""
        return ServerEngine(made)

    def open(self, *channels: int, capabilities: bool = True, **tune: int) -> Self:
        """Goes through the handshake and opens channels."""
        self.feed(self.header)
        told = {
            "consumer_cancel_notify": True,
            "authentication_failure_close": True,
            "connection.blocked": True,
        }
        capabilities = capabilities and self.codec.has_booleans
        self.send(
            0,
            m.ConnectionStartOk(
                client_properties={"capabilities": told} if capabilities else {},
                mechanism="PLAIN",
                response=b"\0guest\0guest",
            ),
            m.ConnectionTuneOk(**{"channel_max": 255, "frame_max": 4096, "heartbeat": 0} | tune),
            m.ConnectionOpen("/"),
        )
        for number in channels:
            self.send(number, m.ChannelOpen())
        self.received()
        self.take_events()
        return self

    def publish(
        self,
        number: int,
        body: bytes = b"",
        *,
        exchange: str = "",
        routing_key: str = "q",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> list[Event]:
        """Publishes a message."""
        method = m.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        return self.feed(self.content(number, method, body, properties))

    def attached(self) -> LinkAttached:
        """Finds the one link that the engine has asked for and that was not taken yet."""
        [event] = [event for event in self.events if isinstance(event, LinkAttached)]
        self.events.remove(event)
        return event

    def accept(
        self,
        event: LinkAttached | None = None,
        max_message_octets: int = 0,
        ttl_seconds: float | None = None,
        *,
        is_exact: bool = False,
    ) -> LinkId:
        """Answers an attach as the core would; returns the link."""
        event = event or self.attached()
        source = event.source
        if event.role is Role.SENDER and source is not None and source.dynamic:
            source = Source(address=f"router/temp/{event.link}", dynamic=True)
        self.do(
            AttachLink(
                link=event.link,
                name=event.name,
                role=event.role,
                source=source,
                target=event.target,
                max_message_octets=max_message_octets,
                ttl_seconds=ttl_seconds,
                is_exact=is_exact,
            )
        )
        return event.link


class BrokerPeer(Peer):
    """A broker, opposite a ``ClientEngine``."""

    engine: ClientEngine
    header = PROTOCOL_HEADER
    version = (0, 9)

    def __init__(self, sasl: SaslClient | None = None, **options: Any) -> None:
        client = None if sasl is None else lambda: sasl
        made = settings(is_server=False, sasl_client=client, **options)
        super().__init__(self.make(made))
        assert self.octets() == self.header
        self.links: Iterator[LinkId] = map(LinkId, itertools.count(1))

    def make(self, made: EngineSettings) -> ClientEngine:
        """Makes the engine under test."""
        return ClientEngine(made)

    def open(self, **tune: int) -> Self:
        """Goes through the handshake."""
        self.send(
            0,
            m.ConnectionStart(
                version_major=self.version[0],
                version_minor=self.version[1],
                server_properties={"product": "RabbitMQ", "cluster_name": "rabbit@host"},
                mechanisms=b"AMQPLAIN PLAIN",
            ),
        )
        self.send(
            0,
            m.ConnectionTune(**{"channel_max": 2047, "frame_max": 131072, "heartbeat": 60} | tune),
        )
        self.send(0, m.ConnectionOpenOk())
        self.received()
        self.take_events()
        return self

    def answer(self, number: int, *methods: m.Method) -> list[Event]:
        """Sends answers one by one, as the engine asks one by one."""
        events = []
        for method in methods:
            events += self.send(number, method)
        return events


def attach(
    role: Role,
    address: str | None,
    link: int = 1,
    mode: SenderSettleMode = SenderSettleMode.MIXED,
    **properties: Any,
) -> AttachLink:
    """The core's wish for a link to or from an address of a broker."""
    return AttachLink(
        link=LinkId(link),
        name=LinkName(f"link{link}"),
        role=role,
        source=Source(address="here") if role is Role.SENDER else Source(address=address),
        target=Target(address=address) if role is Role.SENDER else Target(address="here"),
        sender_settle_mode=mode,
        properties=dict(properties.items()),
    )
