"""A scripted peer of AMQP 0-10 opposite an engine, and a core behind it that says yes."""

import socket
from collections.abc import Sequence
from typing import Any, TypeVar

from router.model.commands import GrantCredit, RefuseLink
from router.model.condition import NOT_FOUND, Condition
from router.model.events import Event, LinkAttached
from router.model.terminus import Role
from router.wire.engine import EngineSettings
from router.wire.v0_10 import records as r
from router.wire.v0_10.client import ClientEngine
from router.wire.v0_10.codec import (
    decode_command_head,
    decode_control,
    encode_command,
    encode_control,
    encode_struct,
)
from router.wire.v0_10.framing import COMMAND, CONTROL, FRAME, PROTOCOL_HEADER, assembly
from router.wire.v0_10.message import write_header
from router.wire.v0_10.optional import OptionalCommand, StreamProperties, StreamPublish
from router.wire.v0_10.server import ServerEngine
from router.wire.v0_10.types import with_size
from tests.support.accepting import accepting

Kind = TypeVar("Kind")


def settings(*, is_server: bool, memory: dict[str, object] | None = None) -> EngineSettings:
    """Makes settings; engines with the same memory belong to one worker."""
    return EngineSettings(
        is_server=is_server,
        container="router-1",
        memory=memory if memory is not None else {},
        expiry_seconds=600,
    )


class Transfer:
    """A transfer, or another command with content, as the peer has got it."""

    def __init__(self, command: Any, header: bytes, body: bytes) -> None:
        self.command = command
        self.header = header
        self.body = body


class Peer:
    """What stands opposite an engine.

    Attributes:
        engine: the engine under test.
        now: the clock that both live by.
        events: everything the engine has told and nobody has taken.
        refuses: addresses that the core knows no route for.
        credit: what the core grants to senders.
        is_exact: all routes promise exactly-once.
    """

    is_exact = False

    def __init__(self, engine: ServerEngine | ClientEngine, *, credit: int = 100) -> None:
        self.engine = engine
        self.now = 0.0
        self.events: list[Event] = []
        self.refuses: set[str] = set()
        self.credit = credit
        self._octets = b""

    # --- to the engine ----------------------------------------------------------------------------

    def feed(self, octets: bytes) -> list[Event]:
        """Gives the engine octets, and lets the core answer."""
        return self.take(self.engine.receive_data(octets, self.now))

    def take(self, events: list[Event]) -> list[Event]:
        """Lets the core answer events."""
        self.events += events
        for event in events:
            if isinstance(event, LinkAttached) and not event.is_answer:
                self._answer(event)
        due = self.engine.deadline
        if due is not None and due <= self.now:
            more = self.engine.handle_deadline(self.now)
            if more:
                events = events + self.take(more)
        return events

    def _answer(self, event: LinkAttached) -> None:
        terminus = event.target if event.role is Role.RECEIVER else event.source
        address = getattr(terminus, "address", None)
        if address in self.refuses:
            condition = Condition(NOT_FOUND, f"no route for {address!r}")
            self.engine.execute(RefuseLink(event.link, condition))
            return
        self.engine.execute(
            accepting(
                event,
                unsettled=event.unsettled,
                is_exact=self.is_exact,
            )
        )
        if event.role is Role.RECEIVER and self.credit:
            self.engine.execute(GrantCredit(event.link, self.credit))

    def control(self, control: r.Control, channel: int = 1) -> list[Event]:
        """Sends a control."""
        return self.feed(assembly(CONTROL, channel, encode_control(control), 65535))

    def command(
        self, *commands: r.Command | OptionalCommand, channel: int = 1, sync: bool = False
    ) -> list[Event]:
        """Sends commands in one piece."""
        return self.feed(
            b"".join(
                assembly(COMMAND, channel, encode_command(each, sync=sync), 65535)
                for each in commands
            )
        )

    def transfer(
        self,
        body: bytes = b"",
        delivery: r.DeliveryProperties | None = None,
        message: r.MessageProperties | None = None,
        *,
        command: r.MessageTransfer | None = None,
        channel: int = 1,
        frame_max: int = 65535,
    ) -> list[Event]:
        """Sends a transfer."""
        head = encode_command(command or r.MessageTransfer("", 0, 0))
        content = (write_header(delivery, message), body)
        return self.feed(assembly(COMMAND, channel, head, frame_max, content))

    def packet(
        self, command: StreamPublish, body: bytes = b"", told: StreamProperties | None = None
    ) -> list[Event]:
        """Publishes a packet of a stream."""
        header = with_size(encode_struct(told or StreamProperties()), 4)
        content = (header, body)
        return self.feed(assembly(COMMAND, 1, encode_command(command), 65535, content))

    def publish(self, key: str, *bodies: bytes, mode: int | None = 0) -> list[Event]:
        """Transfers messages to the default exchange."""
        events: list[Event] = []
        for body in bodies:
            events += self.transfer(
                body,
                r.DeliveryProperties(routing_key=key),
                command=r.MessageTransfer("", mode, 0),
            )
        return events

    # --- from the engine --------------------------------------------------------------------------

    def read(self) -> list[tuple[int, Any]]:
        """Takes what the engine has sent: channel, and control, command or transfer."""
        self._octets += bytes(self.engine.data_to_send())
        self.engine.bytes_sent(len(self.engine.data_to_send()))
        found, self._octets = read_stream(self._octets)
        return found

    def said(self, kind: type[Kind]) -> list[Kind]:
        """Takes what the engine has sent, and gives what of it is of one kind."""
        return [each for _, each in self.read() if isinstance(each, kind)]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Gives the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    # --- shortcuts --------------------------------------------------------------------------------

    def open(self, properties: dict[str, Any] | None = None) -> None:
        """Goes through the handshake; ``properties`` are the server's."""
        if isinstance(self.engine, ServerEngine):
            self.feed(PROTOCOL_HEADER)
            self.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
            self.control(r.ConnectionTuneOk(10), 0)
            self.control(r.ConnectionOpen("/"), 0)
        else:
            self.feed(PROTOCOL_HEADER)
            self.control(r.ConnectionStart(properties, ["ANONYMOUS"], ["en_US"]), 0)
            tune = r.ConnectionTune(
                channel_max=10, max_frame_size=65535, heartbeat_min=0, heartbeat_max=0
            )
            self.control(tune, 0)
            self.control(r.ConnectionOpenOk(), 0)
        self.read()
        self.events.clear()

    def attach(
        self,
        name: bytes = b"s",
        *,
        channel: int = 1,
        timeout: int = 0,
        point: int | None = 0,
        force: bool = False,
    ) -> list[Any]:
        """Attaches a session to a server; returns what it says."""
        self.control(r.SessionAttach(name, force), channel)
        if timeout:
            self.control(r.SessionRequestTimeout(timeout), channel)
        if point is not None:
            self.control(r.SessionCommandPoint(point, 0), channel)
        return [each for _, each in self.read()]

    def subscribe(
        self, queue: str, *, messages: int = 10, octets: int | None = None, **fields: Any
    ) -> list[Event]:
        """Subscribes, to a destination named like the queue, and grants credit."""
        return self.command(
            r.MessageSubscribe(
                queue=queue,
                destination=queue,
                **{"accept_mode": 0, "acquire_mode": 0, **fields},
            ),
            r.MessageSetFlowMode(queue, 0),
            r.MessageFlow(queue, 1, octets),
            r.MessageFlow(queue, 0, messages),
        )


def read_stream(octets: bytes) -> tuple[list[tuple[int, Any]], bytes]:
    """Reads assemblies, each with its channel; gives them and the octets of what is not whole."""
    found: list[tuple[int, Any]] = []
    segments: list[tuple[int, bytes]] = []
    at = whole = 8 if octets.startswith(b"AMQP") else 0
    while len(octets) - at >= 12:
        flags, kind, size, _, track, channel = FRAME.unpack_from(octets, at)
        if len(octets) - at < size:
            break
        payload = octets[at + 12 : at + size]
        at += size
        if flags & 2:
            segments.append((kind, payload))
        else:
            segments[-1] = (kind, segments[-1][1] + payload)
        if flags & 5 == 5:
            found.append((channel, _decode(track, segments)))
            segments = []
            whole = at
    return found, octets[whole:]


class Line:
    """A client, by script, at a real socket with a time-out; everything happens on channel 1."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._octets = b""
        self._found: list[Any] = []

    def control(self, control: r.Control, channel: int = 1) -> None:
        """Sends a control."""
        self._socket.sendall(assembly(CONTROL, channel, encode_control(control), 65535))

    def command(self, *commands: r.Command, sync: bool = False) -> None:
        """Sends commands; ``sync`` asks to hear when the last one is complete."""
        for at, each in enumerate(commands, 1):
            head = encode_command(each, sync=sync and at == len(commands))
            self._socket.sendall(assembly(COMMAND, 1, head, 65535))

    def transfer(self, key: str, body: bytes) -> None:
        """Transfers a message to the default exchange, accept-mode explicit."""
        header = write_header(r.DeliveryProperties(routing_key=key), None)
        head = encode_command(r.MessageTransfer("", 0, 0))
        self._socket.sendall(assembly(COMMAND, 1, head, 65535, (header, body)))

    def await_(self, kind: type[Kind]) -> Kind:
        """Waits for the next control, command or transfer of a kind; others stay for later."""
        while True:
            for at, each in enumerate(self._found):
                if isinstance(each, kind):
                    del self._found[at]
                    return each
            self._receive(kind.__name__)

    def next(self) -> Any:
        """Waits for the next control, command or transfer."""
        while not self._found:
            self._receive("anything")
        return self._found.pop(0)

    def _receive(self, what: str) -> None:
        octets = self._socket.recv(65536)
        if not octets:
            raise EOFError(f"closed while {what} was awaited, after {self._found}")
        found, self._octets = read_stream(self._octets + octets)
        self._found += [each for _, each in found]

    def send(self, octets: bytes) -> None:
        """Sends octets as they are."""
        self._socket.sendall(octets)

    def shut(self) -> None:
        """Ends the connection for whoever waits on it."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection without a word."""
        self._socket.close()

    def open(self) -> None:
        """Goes through the handshake."""
        self._socket.sendall(PROTOCOL_HEADER)
        self.await_(r.ConnectionStart)
        self.control(r.ConnectionStartOk(mechanism="ANONYMOUS", response=b""), 0)
        self.await_(r.ConnectionTune)
        self.control(r.ConnectionTuneOk(10), 0)
        self.control(r.ConnectionOpen("/"), 0)
        self.await_(r.ConnectionOpenOk)


def _decode(track: int, segments: Sequence[tuple[int, bytes]]) -> Any:
    head = segments[0][1]
    if track == CONTROL:
        found = decode_control(head)
        assert found is not None
        return found[1]
    row = decode_command_head(head)
    assert row.row is not None
    command = row.row.decode(head, row.fields_at, len(head))
    if row.row.spec.has_content:
        parts = dict(segments[1:])
        return Transfer(command, parts.get(2, b""), parts.get(3, b""))
    return command


def server(memory: dict[str, object] | None = None, *, credit: int = 100) -> Peer:
    """A client, by script, with an open connection to a server engine."""
    peer = Peer(ServerEngine(settings(is_server=True, memory=memory)), credit=credit)
    peer.open()
    return peer


def broker(
    memory: dict[str, object] | None = None, properties: dict[str, Any] | None = None
) -> Peer:
    """A broker, by script, with an open connection from a client engine."""
    peer = Peer(ClientEngine(settings(is_server=False, memory=memory)))
    peer.open(properties)
    return peer
