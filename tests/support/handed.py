"""Two workers of one router in one process, on real sockets, with clients of every protocol.

Addresses of exactly-once routes have their homes at both (``home_of``), and connections are handed
from one worker to the other as in ``router run``. There is no journal.
"""

import itertools
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing

from router.core.core import Core
from router.core.homes import Homes, rendezvous
from router.core.policy import OPEN, Policy
from router.core.reach import sibling_name
from router.core.settings import CoreSettings
from router.model.capabilities import Protocol
from router.model.commands import AttachLink, Command, GrantCredit
from router.model.events import Event
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role, Source, Target
from router.net.dataplane import DataPlane
from router.net.handing import Handing, make_pair
from router.net.poller import default_poller
from router.net.reception import ListenerSettings, Reception, Transport
from router.net.siblings import make_sibling_engine
from router.net.switchboard import Switchboard
from router.routes.route import Guarantee, Route
from router.routes.table import RoutingTable
from router.wire.detect import Door, TlsOffer
from router.wire.engine import Engine, EngineSettings
from router.wire.protocols import PROTOCOLS, load_engines
from router.wire.sasl import SaslClient, SaslServer
from router.wire.v1_0.express import Express, make_express

EXACT = Route(address="q.#", guarantee=Guarantee.EXACTLY_ONCE)
LISTENER = "front"

Login = Callable[[], SaslServer] | None


def home_of(worker: int) -> str:
    """Returns an address that a worker, of two, is the home of."""
    names = (f"q.{number}" for number in itertools.count())
    return next(name for name in names if rendezvous(name, 2) == worker)


@attrs.define(eq=False)
class Node:
    """One worker.

    Attributes:
        settings: of its listener; None: it accepts none from its sibling.
        engine_settings: of the engines of its clients; a test may change them.
    """

    number: int
    core: Core
    plane: DataPlane
    reception: Reception
    express: Express | None
    engine_settings: EngineSettings
    login: Login = None
    handing: Handing | None = None
    is_closed: bool = False

    def listener(self, name: str) -> ListenerSettings | None:
        """Returns how clients are received."""
        if self.is_closed:
            return None
        return ListenerSettings(
            listener=LISTENER,
            door=Door(
                protocols=frozenset(PROTOCOLS),
                tls=TlsOffer.NONE,
                sasl_required=self.engine_settings.sasl_required,
            ),
            make_engine=self._make_engine,
        )

    def _make_engine(self, protocol: Protocol, transport: Transport) -> Engine:
        settings = self.engine_settings
        login, around = self.login, transport.login
        if login is not None:
            settings = attrs.evolve(
                settings, sasl_server=lambda: login() if around is None else around(login())
            )
        return PROTOCOLS[protocol].make(settings, self.express)

    def connect(self) -> socket.socket:
        """Returns the peer's end of a new connection."""
        ours, theirs = socket.socketpair()
        settings = self.listener(LISTENER)
        assert settings is not None
        self.reception.admit(ours, settings)
        theirs.setblocking(False)
        return theirs

    @property
    def clients(self) -> int:
        """How many connections of clients its core knows."""
        known = self.core._registry.connections.values()
        return sum(each.configured is None for each in known)


async def quiet() -> None:
    """Returns when nobody has anything more to do."""
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked(0.001)


@asynccontextmanager
async def two_workers(
    *,
    express: str = "off",
    policy: Policy = OPEN,
    login: Login = None,
    seconds: float = 0.0,
) -> AsyncIterator[tuple[Node, Node]]:
    """Runs two workers that are joined.

    Args:
        express: the express lane of both.
        policy: of both.
        login: makes what authenticates clients; None: nothing does.
        seconds: of silence after which clients are given up; 0: never.
    """
    load_engines()
    async with trio.open_nursery() as nursery:
        nodes = []
        for number in (1, 2):
            nodes.append(
                await _node(
                    nursery, number, express=express, policy=policy, login=login, seconds=seconds
                )
            )
        one, other = nodes
        ends, hands = socket.socketpair(), make_pair()
        for node, end, hand in zip(nodes, ends, hands, strict=True):
            sibling = 3 - node.number
            _join(node, sibling, end)
            hand.setblocking(False)
            node.handing = Handing(
                sibling=sibling,
                pair=hand,
                plane=node.plane,
                reception=node.reception,
                settings=node.listener,
            )
            node.plane.switchboard.offer = _offering(node.handing)
            node.reception.hands_on = True
            nursery.start_soon(node.handing.run)
        await quiet()
        assert one.core.acquainted
        assert other.core.acquainted
        yield one, other
        nursery.cancel_scope.cancel()


def _offering(handing: Handing) -> Callable[..., bool]:
    return lambda connection, home: handing.offer(connection)


async def _node(
    nursery: trio.Nursery,
    number: int,
    *,
    express: str,
    policy: Policy,
    login: Login,
    seconds: float,
) -> Node:
    lane = make_express(express)
    link_ids = map(LinkId, itertools.count(1))
    memory: dict[str, object] = {}
    core = Core(
        CoreSettings(router_id="dc1", worker=str(number)),
        RoutingTable((EXACT, Route(address="plain.#"))),
        link_ids,
        lane,
        containers=frozenset(),
        homes=Homes(number, 2, are_spread=True),
        memory=memory,
        policy=policy,
        now=trio.current_time(),
    )
    plane = DataPlane(Switchboard(core, lane), default_poller(nursery))
    await nursery.start(plane.run)
    settings = EngineSettings(
        is_server=True,
        container="dc1",
        link_ids=link_ids,
        life=f"{number}.",
        idle_seconds=seconds,
        sasl_required=login is not None,
        memory=memory,
        is_router=True,
    )
    return Node(number, core, plane, Reception(plane, nursery), lane, settings, login)


def _join(node: Node, sibling: int, end: socket.socket) -> None:
    end.setblocking(False)
    settings = attrs.evolve(
        node.engine_settings, is_server=node.number == 1, idle_seconds=0.0, memory={}
    )
    node.plane.add(
        end,
        make_sibling_engine(settings, node.number, node.express),
        address=f"worker {sibling}",
        container=sibling_name(sibling),
    )


@attrs.define(eq=False)
class Talker:
    """A client that speaks by our own engine.

    Attributes:
        said, heard: all octets so far.
        events: all that its engine has told.
    """

    sock: socket.socket
    engine: Engine
    said: bytearray = attrs.field(factory=bytearray)
    heard: bytearray = attrs.field(factory=bytearray)
    events: list[Event] = attrs.field(factory=list)
    is_over: bool = False

    async def order(self, *commands: Command) -> None:
        """Executes commands, and converses until nobody says more."""
        for command in commands:
            self.engine.execute(command)
        await self.converse()

    async def converse(self) -> None:
        """Says and hears octets until nobody says more."""
        while True:
            while output := self.engine.data_to_send():
                octets = bytes(output)
                del output
                self.sock.sendall(octets)
                self.engine.bytes_sent(len(octets))
                self.said += octets
            await quiet()
            now = trio.current_time()
            due = self.engine.deadline
            if due is not None and due <= now:
                self.events += self.engine.handle_deadline(now)
            heard = hear(self.sock)
            if not heard:
                self.is_over = heard is None
                return
            self.heard += heard
            self.events += self.engine.receive_data(heard, trio.current_time())

    def told(self, kind: type[Event]) -> list[Event]:
        """Returns the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


def hear(sock: socket.socket) -> bytes | None:
    """Returns what has come; None: the end of the stream."""
    heard = bytearray()
    while True:
        try:
            octets = sock.recv(65536)
        except BlockingIOError:
            return bytes(heard)
        except ConnectionResetError:
            return bytes(heard) or None
        if not octets:
            return bytes(heard) or None
        heard += octets


def talker(
    node: Node,
    protocol: Protocol,
    container: str = "client",
    *,
    seconds: float = 0.0,
    login: Callable[[], SaslClient] | None = None,
    memory: dict[str, object] | None = None,
) -> Talker:
    """Connects a client.

    Args:
        node: the worker that accepts it.
        protocol: that it speaks.
        container: its container-id.
        seconds: of silence after which it gives the router up; 0: never.
        login: how it logs in; None: it does not.
        memory: what it keeps from one connection to the next; None: nothing.
    """
    settings = EngineSettings(
        is_server=False,
        container=container,
        hostname="/",
        link_ids=map(LinkId, itertools.count(1)),
        idle_seconds=seconds,
        sasl_client=login,
        memory={} if memory is None else memory,
    )
    return Talker(node.connect(), PROTOCOLS[protocol].make(settings, None))


def attach(address: str | None, role: Role, link: int = 1) -> Sequence[Command]:
    """Returns the commands that attach a client's link; a receiver has credit."""
    is_sender = role is Role.SENDER
    asked = AttachLink(
        link=LinkId(link),
        name=LinkName(f"{role.name} {link}"),
        role=role,
        source=Source() if is_sender else Source(address=address),
        target=Target(address=address) if is_sender else Target(),
    )
    return (asked,) if is_sender else (asked, GrantCredit(LinkId(link), 10))
