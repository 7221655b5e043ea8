"""Addresses of others, through a running router of two workers, on every protocol."""

import contextlib
import itertools
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import Role, Source, Target
from router.net.client.conversation import Conversation, Dialing
from router.net.client.receiver import ReceivingLink
from router.routes.route import Guarantee
from router.wire.engine import Engine, EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.framing import LONG_SIZE, START
from router.wire.fast.framing import frame as fast_frame
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.framing import METHOD, PROTOCOL_HEADER, frame
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.performatives import Attach, Detach
from tests.support.clients import Receiver, attach_of, sending
from tests.support.framed import Framed
from tests.support.planes import dial
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

pytestmark = pytest.mark.long

FILE = """
router: {{id: under-test, workers: 2, admin: off, management: true, drain_seconds: 2}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: "#"}}]
policy: {{rules: [{{name: all, send: ["#"], receive: [{receive}]}}]}}
"""
COUNT = 40
SECONDS = 60


@contextlib.contextmanager
def router_for(folder: Path, receive: str = '"#"') -> Iterator[tuple[RunningRouter, str]]:
    with running_router(FILE.format(receive=receive), folder) as router:
        router.wait_for('"container": "$management"')
        yield router, address_of(router)


@attrs.define(eq=False)
class Thief:
    """A client of any protocol that would receive from an address.

    Attributes:
        taken: how many deliveries it has got.
        reason: why it gets none, once it has been told.
    """

    protocol: Protocol
    router: str
    address: str
    taken: int = 0
    reason: str = ""

    async def run(self) -> None:
        lost: list[str] = []
        machine = ReceivingLink(
            name=LinkName("thief"),
            address=self.address,
            take=self._take,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        dialing = Dialing(
            dial=lambda: dial(self.router),
            make_engine=self._engine,
            patience_seconds=1,
            on_lost=lost.append,
        )
        with contextlib.suppress(Exception):
            await Conversation(dialing, machine).run()
        self.reason = str(machine.failure or lost)

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        self.taken += 1
        return ACCEPTED

    def _engine(self, link_ids: Iterator[LinkId]) -> Engine:
        settings = EngineSettings(
            is_server=False,
            container="thief",
            link_ids=link_ids,
            hostname=vhost_to_ask_for(self.protocol, None, "localhost"),
            sasl_client=lambda: MechanismClient(user=None, password=None),
            handshake_seconds=60,
        )
        return PROTOCOLS[self.protocol].make(settings, None)


async def steal(router: str, address: str) -> list[Thief]:
    """Has clients of every protocol try, at both workers; returns when all have been told."""
    thieves = [Thief(protocol, router, address) for protocol in PROTOCOLS for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for each in thieves:
            nursery.start_soon(each.run)
        with trio.move_on_after(SECONDS):
            while not all(each.reason for each in thieves):
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    return thieves


@attrs.define(eq=False)
class Asker(Receiver):
    """Receives from a dynamic node of its own.

    Attributes:
        node: its address.
    """

    node: str = ""

    def react(self, event: Event) -> None:
        if isinstance(event, LinkAttached) and event.source is not None:
            self.node = event.source.address or ""
        super().react(event)


@contextlib.asynccontextmanager
async def asking(router: str) -> AsyncIterator[Asker]:
    attach = attach_of(Role.RECEIVER, "", "asker")
    assert attach.source is not None
    source = attrs.evolve(attach.source, address=None, dynamic=True)
    engine = Engine10(EngineSettings(is_server=False, container="asker", hostname="localhost"))
    client = Asker(engine, await dial(router), attrs.evolve(attach, source=source))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        await client.wait_until(lambda: bool(client.node))
        yield client
        nursery.cancel_scope.cancel()


async def test_replies_go_to_who_asked_and_nobody_else_on_any_protocol_at_any_worker(
    tmp_path: Path,
) -> None:
    with router_for(tmp_path) as (_, router):
        async with asking(router) as asker:
            thieves = await steal(router, asker.node)
            assert not [each for each in thieves if not each.reason]
            bodies = [b"%d" % number for number in range(COUNT)]
            for _ in range(2):  # from each worker
                async with sending(router, asker.node, bodies) as source:
                    await source.wait_until(lambda: source.outcomes["Accepted"] == COUNT)
            assert Counter(asker.bodies) == Counter(bodies * 2)
            assert sum(each.taken for each in thieves) == 0


async def test_requests_go_to_the_management_node_and_nobody_else(tmp_path: Path) -> None:
    with router_for(tmp_path) as (_, router):
        thieves = await steal(router, "$management")
        assert not [each for each in thieves if not each.reason or each.taken]


# Queues and temporary destinations of the protocols before 1.0


class Basic:
    """A client of 0-9-1, over a socket."""

    def __init__(self, router: str) -> None:
        host, _, port = router.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.settimeout(SECONDS)
        self._octets = b""
        self._socket.sendall(PROTOCOL_HEADER)
        start = m.ConnectionStartOk(client_properties={}, response=b"\0guest\0guest")
        self.say(0, start, m.ConnectionTuneOk(255, 4096, 0), m.ConnectionOpen())
        self.say(1, m.ChannelOpen())
        self.say(2, m.ChannelOpen())
        self.hear(5)

    def say(self, channel: int, *methods: m.Method) -> None:
        self._socket.sendall(b"".join(frame(METHOD, channel, CODEC.encode(x)) for x in methods))

    def hear(self, count: int) -> list[m.Method]:
        """The next methods, of all channels."""
        found: list[m.Method] = []
        while len(found) < count:
            while len(self._octets) < 8 or len(self._octets) < self._size():
                octets = self._socket.recv(65536)
                assert octets, found
                self._octets += octets
            method = CODEC.decode(self._octets, 7, self._size() - 1)
            assert method is not None
            found.append(method)
            self._octets = self._octets[self._size() :]
        return found

    def _size(self) -> int:
        return int.from_bytes(self._octets[3:7], "big") + 8

    def close(self) -> None:
        self._socket.close()


def consumed(router: str, queue: str) -> m.Method:
    """What a client hears that consumes."""
    client = Basic(router)
    client.say(1, m.BasicConsume(queue=queue, no_ack=True))
    (answer,) = client.hear(1)
    client.close()
    return answer


@pytest.mark.parametrize("is_exclusive", [True, False], ids=["exclusive", "not exclusive"])
async def test_a_server_named_queue_is_open_to_others_unless_it_is_exclusive(
    tmp_path: Path, is_exclusive: bool
) -> None:
    with router_for(tmp_path) as (_, router):
        owner = Basic(router)
        owner.say(1, m.QueueDeclare(queue="", exclusive=is_exclusive, auto_delete=True))
        (declared,) = owner.hear(1)
        assert isinstance(declared, m.QueueDeclareOk)
        name = declared.queue
        for _ in range(2):
            answer = consumed(router, name)
            if is_exclusive:
                assert isinstance(answer, m.ChannelClose)
                assert (answer.reply_code, answer.class_id) == (405, 60)
            else:
                assert isinstance(answer, m.BasicConsumeOk)
        owner.close()


ROUNDS = 25


@pytest.mark.parametrize("protocol", ["0-9-1", "1.0", "Fast"])
async def test_a_made_node_is_known_at_every_worker_when_its_name_is_told(
    tmp_path: Path, protocol: str
) -> None:
    """Of two connections each is at another worker, so one of them is at that without the node."""
    with router_for(tmp_path) as (_, router):
        port = int(router.rpartition(":")[2])
        makers = [await maker_of(protocol, router, number) for number in range(2)]
        askers = [await Framed.dial(port, f"asker{number}") for number in range(2)]
        for handle in range(1 if protocol == "Fast" else ROUNDS):  # a queue for each connection
            for make in makers:
                name = await make()
                for asker in askers:
                    source = Source(address="here")
                    await asker.send(
                        Attach(
                            name=name,
                            handle=handle,
                            role=Role.SENDER,
                            source=source,
                            target=Target(address=name),
                            initial_delivery_count=0,
                        )
                    )
                for asker in askers:
                    answer = await asker.expect_attach()
                    assert isinstance(answer.target, Target), f"not known: {name}, {handle}"
                    await asker.send(Detach(handle=handle, closed=True))
                    await asker.expect(Detach)


async def maker_of(protocol: str, router: str, number: int) -> Callable[[], Awaitable[str]]:
    """A client that makes nodes; it returns their names."""
    if protocol == "1.0":
        client = await Framed.dial(int(router.rpartition(":")[2]), f"maker{number}")
        handles = itertools.count()

        async def attach() -> str:
            link = Attach(
                name=f"made{next(names)}",
                handle=next(handles),
                role=Role.RECEIVER,
                source=Source(dynamic=True),
            )
            await client.send(link)
            answer = await client.expect_attach()
            assert isinstance(answer.source, Source)
            return str(answer.source.address)

        return attach
    basic = None if protocol == "Fast" else Basic(router)

    async def declare() -> str:
        if basic is None:
            peer, name = temporary_queue(router)
            peers_kept.append(peer)
            return name
        basic.say(1, m.QueueDeclare(queue="", auto_delete=True))
        (declared,) = basic.hear(1)
        assert isinstance(declared, m.QueueDeclareOk)
        return declared.queue

    return declare


names = itertools.count()
peers_kept: list[socket.socket] = []


def temporary_queue(router: str) -> tuple[socket.socket, str]:
    """A client of AMQP/Fast that has opened a temporary queue; returns its name, too."""
    host, _, port = router.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.settimeout(SECONDS)
    said = (
        c.ConnectionResponse("ANONYMOUS"),
        c.ConnectionTune(65536, 10, 100, 0),
        c.ConnectionOpen(1, "/", "asker"),
        c.ChannelOpen(1),
        c.HandleOpen(1, 1, 1, producer=True, consumer=True, temporary=True),
    )
    peer.sendall(START + b"".join(fast_frame(each) for each in said))
    octets, at = b"", 0
    while True:
        octets += peer.recv(65536)
        while len(octets) - at >= 2:
            size = int.from_bytes(octets[at : at + 2], "big")
            assert size != LONG_SIZE
            stop = at + 2 + size
            if stop > len(octets):
                break
            command = c.decode_command(octets, at + 2, stop - 1)
            if isinstance(command, c.HandleCreated):
                return peer, command.dest_name
            at = stop


async def test_only_the_client_that_opened_a_temporary_queue_consumes_from_it(
    tmp_path: Path,
) -> None:
    """AMQP/Fast §3.5.2.2."""
    with router_for(tmp_path) as (_, router):
        peer, name = temporary_queue(router)
        thieves = await steal(router, name)
        assert not [each for each in thieves if not each.reason or each.taken]
        peer.close()


# Bindings


@pytest.mark.parametrize("receive", ["", "other.#"], ids=["nothing", "something else"])
async def test_who_may_receive_nothing_binds_no_pattern_on_any_channel(
    tmp_path: Path, receive: str
) -> None:
    with router_for(tmp_path, receive) as (_, router):
        for _ in range(2):
            client = Basic(router)
            client.say(1, m.QueueDeclare(queue="mine.q", durable=True))
            (declared,) = client.hear(1)
            assert isinstance(declared, m.QueueDeclareOk)
            bind = m.QueueBind(queue="mine.q", exchange="amq.topic", routing_key="kern.#")
            octets = CODEC.encode(bind)
            both = b"".join(frame(METHOD, channel, octets) for channel in (1, 2))
            client._socket.sendall(both)
            answers = client.hear(2)
            closes = [each for each in answers if isinstance(each, m.ChannelClose)]
            codes = [(each.reply_code, each.class_id, each.method_id) for each in closes]
            assert codes == [(403, 50, 20)] * 2
            client.close()
