"""The far end of an AMQP/Fast engine under test: sends commands as told, reads what comes back."""

import itertools
from typing import Any

import attrs

from router.model.capabilities import Protocol
from router.model.commands import AttachLink, Command, GrantCredit
from router.model.delivery import OutgoingDelivery
from router.model.events import Event, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.terminus import Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.area import Area
from router.wire.fast.client import ClientEngine
from router.wire.fast.commands import decode_command
from router.wire.fast.framing import LONG_SIZE, START, frame
from router.wire.fast.message import Head, encode_head, payload_prefix
from router.wire.fast.server import ServerEngine
from router.wire.sasl import SaslClient, SaslServer

Received = c.Command | tuple[c.Command, bytes]
"""A command, with the message octets behind it if there are any."""


def message(body: bytes = b"", **head: Any) -> bytes:
    """Head and body of a message."""
    return encode_head(Head(**head), len(body)) + body


def outgoing(
    number: int, body: bytes = b"", *, settled: bool = False, **head: Any
) -> OutgoingDelivery:
    """A delivery for the engine to send."""
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(number.to_bytes(4, "big")),
        payload_prefix("") + message(body, **head),
        Protocol.AMQP_FAST,
        settled=settled,
    )


class Peer:
    """What stands opposite an engine.

    Attributes:
        engine: the engine under test.
        now: the clock that both live by.
        events: everything the engine has told and nobody has taken.
    """

    def __init__(self, engine: ServerEngine | ClientEngine) -> None:
        self.engine = engine
        self.now = 0.0
        self.events: list[Event] = []
        self._octets = b""

    # --- to the engine ----------------------------------------------------------------------------

    def feed(self, octets: bytes) -> list[Event]:
        """Gives the engine octets; returns the events, which ``events`` keeps, too."""
        events = self.engine.receive_data(octets, self.now)
        self.events += events
        return events

    def send(self, *commands: c.Command | tuple[c.Command, bytes]) -> list[Event]:
        """Sends commands in one piece, each with the message octets that belong to it."""
        octets = b""
        for each in commands:
            command, fragment = each if isinstance(each, tuple) else (each, b"")
            octets += frame(command) + fragment
        return self.feed(octets)

    def do(self, *commands: Command) -> list[Event]:
        """Has the engine execute commands, and takes the events that they bring about."""
        for command in commands:
            self.engine.execute(command)
        return self.settle()

    def settle(self) -> list[Event]:
        """Does what is due at once."""
        events = []
        deadline = self.engine.deadline
        while deadline is not None and deadline <= self.now:
            events += self.engine.handle_deadline(self.now)
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
        """Takes what the engine has sent."""
        taken = b""
        while True:
            shown = bytes(self.engine.data_to_send())
            if not shown:
                return taken
            taken += shown
            self.engine.bytes_sent(len(shown))

    def read(self) -> list[Received]:
        """Takes what the engine has sent, as commands."""
        octets = self._octets + self.octets()
        found: list[Received] = []
        at = 0
        while len(octets) - at >= 2:
            start = at + 2
            size = int.from_bytes(octets[at:start], "big")
            if size == LONG_SIZE:
                start = at + 6
                size = int.from_bytes(octets[at + 2 : start], "big")
            stop = start + size
            assert octets[stop - 1] == 0xCE
            command = decode_command(octets, start, stop - 1)
            at = stop
            if isinstance(command, c.HandleSend | c.HandleNotify | c.HandlePrepare):
                at += command.fragment_size
                assert at <= len(octets)
                found.append((command, octets[stop:at]))
            else:
                found.append(command)
        self._octets = octets[at:]
        return found

    def fragments(self) -> list[tuple[Any, bytes]]:
        """Takes what the engine has sent, which is nothing but messages and parts of them."""
        found = self.read()
        assert all(isinstance(each, tuple) for each in found)
        return [each for each in found if isinstance(each, tuple)]


class Client(Peer):
    """A client opposite a server engine; its core says yes unless told otherwise.

    Attributes:
        refusing: addresses that the core refuses, and why.
        credit: what the core grants each link that the client sends by.
        links: those that the core was asked for and took, by address.
        is_exact: all routes promise exactly-once.
    """

    is_exact = False

    engine: ServerEngine

    def __init__(
        self,
        *,
        credit: int = 100,
        client_name: str = "",
        frame_max: int = 65536,
        server: EngineSettings | None = None,
        area: Area | None = None,
        sasl_server: SaslServer | None = None,
    ) -> None:
        settings = server or EngineSettings(is_server=True, container="router")
        if sasl_server is not None:
            settings = attrs.evolve(settings, sasl_server=lambda: sasl_server)
        super().__init__(ServerEngine(settings, area or Area()))
        self.credit = credit
        self.modes: dict[str, str] = {}
        self.names = itertools.count(1)
        self._client_name = client_name
        self._frame_max = frame_max

    def open(self) -> "Client":
        """Goes through the handshake."""
        self.feed(START)
        self.send(c.ConnectionResponse("ANONYMOUS"))
        self.send(
            c.ConnectionTune(self._frame_max, 10, 100, 0),
            c.ConnectionOpen(1, "/", self._client_name),
        )
        self.read()
        self.take_events()
        return self

    def channel(self, number: int = 1, **options: Any) -> "Client":
        """Opens a channel."""
        self.send(c.ChannelOpen(number, **options))
        return self

    def handle(
        self,
        number: int = 1,
        dest_name: str = "",
        *,
        channel: int = 1,
        service: int = 1,
        **options: Any,
    ) -> "Client":
        """Opens a handle for everything, unless options say otherwise."""
        options = {"producer": True, "consumer": True, "browser": True, **options}
        if service == 3:
            options = {**options, "producer": False, "consumer": False, "browser": False}
        self.send(c.HandleOpen(channel, number, service, dest_name=dest_name, **options))
        return self

    def say_yes(self) -> list[LinkAttached]:
        """Has the core take every link that it was asked for, and grant credit; returns them."""
        asked = [event for event in self.events if isinstance(event, LinkAttached)]
        self.events = [event for event in self.events if not isinstance(event, LinkAttached)]
        for event in asked:
            source = event.source
            if source is not None and source.dynamic:
                source = attrs.evolve(source, address=f"made/{next(self.names)}")
            elif source is not None and source.address in self.modes:
                source = attrs.evolve(source, distribution_mode=self.modes[source.address])
            answer = AttachLink(
                link=event.link,
                name=event.name,
                role=event.role,
                source=source,
                target=event.target,
                is_exact=self.is_exact,
            )
            commands: list[Command] = [answer]
            if event.role is Role.RECEIVER:
                commands.append(GrantCredit(event.link, self.credit))
            self.do(*commands)
        return asked

    def post(
        self,
        body: bytes = b"",
        *,
        handle: int = 1,
        tag: int = 0,
        dest_name: str = "",
        **head: Any,
    ) -> list[Event]:
        """Sends a message in one fragment."""
        octets = message(body, **head)
        return self.send((c.HandleSend(handle, tag, len(octets), dest_name=dest_name), octets))


class Server(Peer):
    """A server opposite a client engine."""

    engine: ClientEngine

    def __init__(
        self, *, area: Area | None = None, sasl_client: SaslClient | None = None, **settings: Any
    ) -> None:
        made = EngineSettings(is_server=False, container="router", **settings)
        if sasl_client is not None:
            made = attrs.evolve(made, sasl_client=lambda: sasl_client)
        super().__init__(ClientEngine(made, area or Area()))
        self._links = map(LinkId, itertools.count(1))

    def open(self, frame_max: int = 65536) -> "Server":
        """Goes through the handshake."""
        assert self.octets() == START
        self.send(c.ConnectionChallenge(1, "ANONYMOUS"))
        self.send(c.ConnectionTune(frame_max, 10, 10, 0))
        self.send(c.ConnectionReply(1, 200))
        self.read()
        self.take_events()
        return self

    def attach(self, role: Role, address: str | None = "orders", **options: Any) -> LinkId:
        """Has the engine attach a link."""
        link = next(self._links)
        terminus = {"source": Source(), "target": Target()}
        if role is Role.SENDER:
            terminus["target"] = Target(address=address, **options)
        else:
            terminus["source"] = Source(address=address, **options)
        self.do(AttachLink(link=link, name=LinkName(f"link-{link}"), role=role, **terminus))  # type: ignore[arg-type]
        return link

    def attached(self, role: Role, address: str | None = "orders", **options: Any) -> LinkId:
        """Has the engine attach a link, and confirms it as the first of this connection."""
        link = self.attach(role, address, **options)
        self.send(c.ChannelReply(1, 1, 200), c.HandleReply(1, 2, 200))
        self.settle()
        self.read()
        self.take_events()
        return link
