"""Runs what the tests of net/ need beneath them: a data plane, listeners, peers, certificates."""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import trio
import trustme

from router.model.capabilities import Protocol
from router.model.place import BindAddress, TcpAddress
from router.net.dataplane import DataPlane
from router.net.listener import Listeners
from router.net.poller import default_poller
from router.net.reception import ListenerSettings, MakeEngine, Reception, Transport
from router.net.switchboard import Switchboard
from router.net.tls_files import TlsContext, TlsFiles
from router.wire.detect import Door, TlsOffer
from router.wire.engine import Engine
from tests.support.plain import PlainCore, PlainEngine, Rule, echo

ANYWHERE = TcpAddress("127.0.0.1", 0)
HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def make_plain(protocol: Protocol, transport: Transport) -> Engine:
    """Makes a plain engine whatever is asked for."""
    return PlainEngine()


def listener_settings(
    make_engine: MakeEngine = make_plain,
    tls: TlsContext | None = None,
    offer: TlsOffer = TlsOffer.OFFERED,
) -> ListenerSettings:
    """Serves AMQP 1.0 and nothing else."""
    return ListenerSettings(
        listener="test",
        door=Door(
            protocols=frozenset({Protocol.AMQP_1_0}),
            tls=TlsOffer.NONE if tls is None else offer,
        ),
        make_engine=make_engine,
        tls=None if tls is None else tls.current,
    )


@attrs.define(eq=False)
class House:
    """A data plane behind a reception."""

    core: PlainCore
    plane: DataPlane
    reception: Reception
    listeners: Listeners
    listener_settings: dict[str, ListenerSettings]

    async def listen(self, how: ListenerSettings, bind: BindAddress = ANYWHERE) -> str:
        """Opens the listener ``test``; returns its address."""
        self.listener_settings["test"] = how
        await self.listeners.configure({"test": bind})
        return self.listeners.addresses[0]

    async def dial(self) -> trio.SocketStream:
        """Connects to the first listener."""
        return await dial(self.listeners.addresses[0])


@contextlib.asynccontextmanager
async def house(rule: Rule = echo) -> AsyncIterator[House]:
    """Runs a data plane and a reception for the length of the block."""
    core = PlainCore(rule)
    async with trio.open_nursery() as nursery:
        plane = DataPlane(Switchboard(core), default_poller(nursery))
        await nursery.start(plane.run)
        reception = Reception(plane, nursery)
        listener_settings: dict[str, ListenerSettings] = {}
        listeners = Listeners(
            lambda sock, name: reception.admit(sock, listener_settings[name]),
            nursery,
            ready=plane.wait_for_capacity,
        )
        yield House(core, plane, reception, listeners, listener_settings)
        listeners.close()
        nursery.cancel_scope.cancel()
    assert reception.handshake_count == 0
    assert plane.connection_count == 0


def set_clock(plane: DataPlane, clock: Callable[[], float]) -> None:
    """Has a data plane live by another clock."""
    plane.clock = plane.slicer.clock = plane.slicer.busy_clock = clock
    plane.endings.clock = clock


async def dial(address: str) -> trio.SocketStream:
    """Connects to ``host:port`` or ``unix:/path``."""
    if address.startswith("unix:"):
        sock = trio.socket.socket(socket.AF_UNIX)
        await sock.connect(address.removeprefix("unix:"))
        return trio.SocketStream(sock)
    host, _, port = address.rpartition(":")
    return await trio.open_tcp_stream(host.strip("[]"), int(port))


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """Gives a port that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def receive_exactly(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    """Reads ``count`` octets; fails if the stream ends before."""
    received = b""
    while len(received) < count:
        octets = await stream.receive_some(count - len(received))
        assert octets, f"the stream ended after {len(received)} of {count} octets"
        received += octets
    return received


async def receive_some(stream: trio.abc.ReceiveStream) -> bytes:
    """Reads what comes next."""
    return bytes(await stream.receive_some())


async def receive_rest(stream: trio.abc.ReceiveStream) -> bytes:
    """Reads to the end of the stream."""
    received = b""
    while octets := await stream.receive_some():
        received += octets
    return received


@attrs.define(eq=False)
class Papers:
    """A certificate authority and what it signed, as files.

    Attributes:
        server, client: certificate, chain and key in one file.
    """

    authority: trustme.CA
    authorities: Path
    server: Path
    client: Path

    def write_server(
        self, name: str = "localhost", days: float = 30.0, *, begins: float = -90.0
    ) -> None:
        """Signs a new certificate for the server, which begins and ends in so many days."""
        now = datetime.now(UTC)
        issued = self.authority.issue_cert(
            name,
            "127.0.0.1",
            not_before=now + timedelta(days=begins),
            not_after=now + timedelta(days=days),
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.server))

    def write_client(self, days: float = 30.0, *, begins: float = -90.0) -> None:
        """Signs a new certificate for the client, which begins and ends in so many days."""
        now = datetime.now(UTC)
        issued = self.authority.issue_cert(
            "client.example",
            "app@client.example",
            common_name="app",
            not_before=now + timedelta(days=begins),
            not_after=now + timedelta(days=days),
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.client))

    def client_context(self) -> ssl.SSLContext:
        """What a client that trusts the authority dials with."""
        context = ssl.create_default_context(cafile=str(self.authorities))
        context.load_cert_chain(self.client)
        return context

    def server_files(self, *, verify: bool = False) -> TlsFiles:
        """What a listener is configured with."""
        return TlsFiles(
            option="listeners[0].tls",
            certificate=self.server,
            authorities=self.authorities if verify else None,
            verify=ssl.CERT_REQUIRED if verify else ssl.CERT_NONE,
        )


def papers(folder: Path) -> Papers:
    """Makes a new authority and certificates in ``folder``."""
    authority = trustme.CA()
    made = Papers(
        authority, folder / "authorities.pem", folder / "server.pem", folder / "client.pem"
    )
    authority.cert_pem.write_to_path(str(made.authorities))
    made.write_server()
    made.write_client()
    return made
