"""Traffic over real sockets: with the express lane's carrier, without it, and with the lane off.

The same inside TLS, whose streams the carrier calls, or the data plane.

What clients send arrives once and in order, however the stream is cut into pieces, whatever of it
is not the lane's, and however slowly the other side reads.
"""

import itertools
import random
import select
import socket
import threading
import time
from collections import defaultdict

import attrs
import pytest
import trio

from router.errors import MisuseError
from router.model.events import ConnectionClosed
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.net.connection import Connection
from router.net.dataplane import DataPlane
from router.net.poller import default_poller
from router.net.switchboard import Switchboard
from router.net.tls import TlsSession
from router.net.tls_stream import TlsStream
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express
from tests.support.exchange import Client, Exchange, Receiver, Sender, message, number_of
from tests.support.kernel import MODES, make_kernel, needs_kernel
from tests.support.lane_sockets import CarriedWorld
from tests.support.lane_world import data_section, transfer
from tests.support.plain import stream_pair
from tests.support.tls_ends import KINDS, Contexts, make_contexts, make_stream

Line = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@attrs.frozen(eq=False)
class Secured:
    """Puts TLS on connections; the router's ends have streams of one kind."""

    kind: str
    contexts: Contexts

    async def secure(
        self, here: socket.socket, there: trio.SocketStream
    ) -> tuple[trio.SSLStream[trio.SocketStream], TlsStream]:
        session = TlsSession(self.contexts.server)
        peer = trio.SSLStream(there, self.contexts.client, server_hostname="localhost")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.shake_hands, here, b"", trio.Lock())
            await peer.do_handshake()
        return peer, make_stream(self.kind, session, here)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return make_contexts(tmp_path_factory.mktemp("papers"))


LONG_MS = 600_000
"""A time to live that does not end in a test, however busy the machine is."""


class Worker(Exchange):
    """A data plane with a real core, and clients at the other ends of its sockets."""

    def __init__(
        self, mode: str, nursery: trio.Nursery, seed: int, secured: "Secured | None" = None
    ) -> None:
        super().__init__(mode)
        self.secured = secured
        self.nursery = nursery
        self.choice = random.Random(seed)
        self.switchboard = Switchboard(self.core, self.express)
        self.plane = DataPlane(self.switchboard, default_poller(nursery))
        self.wakes: dict[int, trio.Event] = {}
        self.ends: dict[int, Connection] = {}
        self.progress = trio.Event()

    async def plug(self, buffer_octets: int | None) -> Client:
        number = next(self._connection_ids)
        ours = EngineSettings(is_server=True, container="router", link_ids=self._link_ids)
        theirs = EngineSettings(
            is_server=False, container=f"client {number}", link_ids=self._client_ids
        )
        router = Engine10(ours, self.express)
        here, there = stream_pair(buffer_octets)
        plain = trio.SocketStream(trio.socket.from_stdlib_socket(there))
        stream: Line = plain
        tls = None
        if self.secured is not None:
            stream, tls = await self.secured.secure(here, plain)
        self.ends[number] = self.plane.add(here, router, address="client", stream=tls)
        client = Client(self.ends[number].id, Engine10(theirs), router)
        self.clients[client.id] = client
        self.wakes[client.id] = trio.Event()
        self.nursery.start_soon(self._read, client, stream)
        self.nursery.start_soon(self._write, client, stream)
        while not client.engine.carried.is_open:
            await self.progress.wait()
        return client

    async def _read(self, client: Client, stream: Line) -> None:
        while octets := await stream.receive_some(self.choice.choice((50, 5000, 70_000))):
            for event in client.engine.receive_data(bytes(octets), 0.0):
                self._tell(client, event)
                if isinstance(event, ConnectionClosed):
                    return
            self.wake(client)
            self.progress.set()
            self.progress = trio.Event()
            if self.choice.random() < 0.2:
                await trio.lowlevel.checkpoint()

    async def _write(self, client: Client, stream: Line) -> None:
        while True:
            if not client.engine.output_octets:
                self.wakes[client.id] = trio.Event()
                await self.wakes[client.id].wait()
            most = self.choice.choice((7, 100, 5000, 1 << 20, 1 << 20))
            octets = bytes(client.engine.data_to_send()[:most])
            await stream.send_all(octets)
            client.engine.bytes_sent(len(octets))

    def wake(self, client: Client) -> None:
        self.wakes[client.id].set()


@attrs.define
class Traffic:
    """What a seed makes of senders, receivers and messages."""

    worker: Worker
    receivers: list[Receiver] = attrs.field(factory=list)
    senders: list[Sender] = attrs.field(factory=list)

    async def attach(self, addresses: int) -> None:
        choice, worker = self.worker.choice, self.worker
        for number in range(addresses):
            buffer = choice.choice((None, None, 4096))
            receiver = worker.attach_receiver(await worker.plug(buffer), f"address{number}")
            self.receivers.append(receiver)
            worker.wake(receiver.client)
            while not receiver.is_attached:
                await self.worker.progress.wait()
            receiver.grant(200)
            worker.wake(receiver.client)
        for number in range(addresses + 2):
            buffer = choice.choice((None, None, 4096))
            sender = worker.attach_sender(await worker.plug(buffer), f"address{number % addresses}")
            self.senders.append(sender)
            worker.wake(sender.client)

    async def run(self, messages: int) -> None:
        """Has every sender send so many messages, and waits for all outcomes."""
        choice = self.worker.choice
        numbers = itertools.count()
        left = dict.fromkeys(range(len(self.senders)), messages)
        while not all(each.settled for sender in self.senders for each in sender.sent) or any(
            left.values()
        ):
            for index, sender in enumerate(self.senders):
                count = min(left[index], sender.credit, choice.choice((1, 5, 50)))
                sizes = [choice.choice((8, 8, 300, 3000, 100_000)) for _ in range(count)]
                payloads = [
                    message(97 * next(numbers), size, ttl=LONG_MS if choice.random() < 0.02 else 0)
                    for size in sizes
                ]
                if payloads and choice.random() < 0.1 and sender.credit > count:
                    sender.begin(message(97 * next(numbers), 80_000), False)
                    sender.abort()
                sender.send(payloads, False)
                left[index] -= count
                self.worker.wake(sender.client)
            for receiver in self.receivers:
                receiver.answer(1 << 30, True)
                receiver.grant(200)
                self.worker.wake(receiver.client)
            await self.worker.progress.wait()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
async def test_everything_arrives_once_and_in_order(mode: str, seed: int) -> None:
    await _exchange(mode, seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
async def test_inside_tls_everything_arrives_once_and_in_order(
    mode: str, kind: str, seed: int, contexts: Contexts
) -> None:
    await _exchange(mode, seed, Secured(kind, contexts))


async def _exchange(mode: str, seed: int, secured: Secured | None = None) -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            worker = Worker(mode, nursery, seed, secured)
            await nursery.start(worker.plane.run)
            traffic = Traffic(worker)
            await traffic.attach(3)
            await traffic.run(150)
            ends = list(worker.ends.values())
            nursery.cancel_scope.cancel()
    got: dict[str, list[int]] = defaultdict(list)
    for receiver in traffic.receivers:
        got[receiver.address] += [number_of(each) for each in receiver.received]
    for sender in traffic.senders:
        sent = [number_of(each.payload) for each in sender.sent if not each.is_aborted]
        mine = set(sent)
        assert [each for each in got[sender.address] if each in mine] == sent
        assert all(each.state == ACCEPTED for each in sender.sent if not each.is_aborted)
    assert worker.express is None or worker.express.kept_octets == 0
    assert sum(end.octets_in for end in ends) > sum(map(len, _payloads(traffic)))
    assert sum(end.octets_out for end in ends) > sum(map(len, _payloads(traffic)))


def _payloads(traffic: Traffic) -> list[bytes]:
    return [each for receiver in traffic.receivers for each in receiver.received]


@needs_kernel
async def test_the_carrier_moves_what_is_the_lanes() -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            worker = Worker("cython", nursery, 1)
            await nursery.start(worker.plane.run)
            traffic = Traffic(worker)
            await traffic.attach(1)
            await traffic.run(100)
            ends = list(worker.ends.values())
            nursery.cancel_scope.cancel()
    assert sum(end.octets_in - end.read_octets for end in ends) > 100_000
    assert sum(end.octets_out for end in ends) > 100_000


@needs_kernel
@pytest.mark.skipif("openssl" not in KINDS, reason="it was not built, or cannot be used here")
async def test_inside_tls_the_carrier_moves_what_is_the_lanes(contexts: Contexts) -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            worker = Worker("cython", nursery, 1, Secured("openssl", contexts))
            await nursery.start(worker.plane.run)
            traffic = Traffic(worker)
            await traffic.attach(1)
            await traffic.run(100)
            ends = list(worker.ends.values())
            nursery.cancel_scope.cancel()
    carried = sum(end.carried.octets_in for end in ends if end.carried is not None)
    assert carried > 100_000
    assert sum(end.octets_in for end in ends) > carried
    assert sum(end.octets_out for end in ends) > 100_000


@needs_kernel
async def test_a_stream_that_breaks_ends_its_connection_only() -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            worker = Worker("cython", nursery, 2)
            await nursery.start(worker.plane.run)
            traffic = Traffic(worker)
            await traffic.attach(2)
            await traffic.run(20)
            connection, other = list(worker.ends.values())[:2]
            worker.plane._fail(connection.socket.fileno(), ConnectionResetError(104, "reset"))
            assert connection.failure == "reset"
            assert worker.plane.connection_count == len(worker.ends) - 1
            worker.plane._fail(other.socket.fileno(), MisuseError("a defect"))
            worker.plane.flush(0.0)
            assert other.failure is not None
            assert "a defect" in other.failure
            worker.plane._fail(10_000, MisuseError("long gone"))
            nursery.cancel_scope.cancel()


@needs_kernel
def test_a_carrier_rests_until_a_socket_is_ready_or_others_have_something_to_do() -> None:
    poller, taken = select.epoll(), []
    ours, peers = socket.socketpair()
    others, signals = socket.socketpair()
    with poller, ours, peers, others, signals:
        poller.register(ours, select.EPOLLIN)
        carrier = make_kernel().make_carrier(
            poller.fileno(), lambda *each: taken.append(each), lambda *_: None, others.fileno()
        )
        assert carrier is not None
        now = time.monotonic()
        assert not carrier.turn(now, now + 60, True)
        assert not carrier.rested
        assert not carrier.turn(now, now + 60, False, lambda: 60)  # there is other work
        assert not carrier.rested
        assert not carrier.turn(now, now + 60, True, lambda: 0.02)  # their time comes
        assert carrier.rested >= 0.02
        timer = threading.Timer(0.02, peers.send, (b"x",))
        timer.start()
        now = time.monotonic()
        assert carrier.turn(now, now + 0.001, True, lambda: 60)  # what it rests is no work
        assert taken == [(ours.fileno(), select.EPOLLIN, None)]
        assert carrier.has_called
        timer.join()
        ours.recv(10)
        signals.send(b"x")
        now = time.monotonic()
        assert not carrier.turn(now, now + 60, True, lambda: 60)


@needs_kernel
def test_a_carrier_whose_time_is_up_goes_on_while_others_have_nothing_to_do() -> None:
    others, signals = socket.socketpair()
    with others, signals, CarriedWorld(make_kernel(), 1, others=others.fileno()) as world:
        sender, receiver = world.connect(), world.connect()
        lane = world.open_lane()
        world.join(lane, world.attach(receiver, Role.SENDER, credit=100))
        world.join(lane, world.attach(sender, Role.RECEIVER, credit=100))
        world.end_turn()
        world.there[sender].send(transfer(0, 0, data_section(100)))
        now = time.monotonic()
        assert world.carrier.turn(now, now - 1, True)  # nobody knows what others have to do
        assert world.carrier.turn(now, now - 1, True, lambda: 0.0)  # their time has come
        signals.send(b"x")
        assert world.carrier.turn(now, now - 1, True, lambda: 60)  # something has come for them
        assert not world.connections[receiver].octets_out
        others.recv(1)
        assert world.carrier.turn(now, now - 1, True, lambda: 0.02)
        assert world.connections[receiver].octets_out
        assert not world.carrier.has_called


class TcpWorld(CarriedWorld):
    """Its sockets take more than is read at once."""

    def __init__(self, express: Express, seed: int) -> None:
        super().__init__(express, seed)
        self.ended: list[int] = []

    def _take(self, descriptor: int, readiness: int, octets: bytes | None) -> None:
        index = self.by_descriptor[descriptor]
        is_readable = octets is None and readiness & select.EPOLLIN
        if is_readable and not self.here[index].recv(1, socket.MSG_PEEK):
            self.ended.append(index)
        else:
            super()._take(descriptor, readiness, octets)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            there = socket.create_connection(server.getsockname())
            here, _ = server.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        return here, there


@needs_kernel
def test_a_socket_whose_reads_empty_it_is_watched_for_edges_and_none_is_missed() -> None:
    with TcpWorld(make_kernel(), 1) as world:
        sender, receiver = world.connect(window=1 << 20), world.connect(window=1 << 20)
        lane = world.open_lane(credit=10_000)
        world.join(lane, world.attach(receiver, Role.SENDER, credit=10_000))
        world.join(lane, world.attach(sender, Role.RECEIVER, credit=10_000))
        world.end_turn()
        state, out = world.connections[sender], world.connections[receiver]
        ids = itertools.count()

        def send(count: int) -> None:
            each = [transfer(0, next(ids), data_section(1000)) for _ in range(count)]
            world.there[sender].setblocking(True)
            world.there[sender].sendall(b"".join(each))
            world.there[sender].setblocking(False)

        def move(octets: int) -> None:
            until = time.monotonic() + 60
            while state.octets_in < octets:
                assert time.monotonic() < until
                world.carrier.turn(0.0, 60.0)
                world.end_turn()
                world.send(receiver)

        sent = 0
        for _ in range(10):
            send(1)
            sent += 1
            move(len(transfer(0, 0, data_section(1000))) * sent)
        assert state.is_edged
        size = state.octets_in // 10
        for count in (2, 600, 1):  # 600 are more than a read takes
            send(count)
            sent += count
            move(sent * size)
        world.drain()
        assert out.octets_out > sent * 1000
        for _ in range(10):
            send(1)
            sent += 1
            move(sent * size)
        assert state.is_edged
        send(1)
        world.there[sender].shutdown(socket.SHUT_WR)  # with octets before the end of the stream
        until = time.monotonic() + 60
        while sender not in world.ended:
            assert time.monotonic() < until
            world.carrier.turn(0.0, 60.0)
        assert world.lanes[lane].statistics(world.links[1].link).deliveries == sent + 1


@needs_kernel
def test_a_carrier_refuses_what_it_cannot_carry() -> None:
    express = make_kernel()
    carrier = express.make_carrier(0, lambda *_: None, lambda *_: None)
    assert carrier is not None
    state = express.states.ConnectionState()
    with pytest.raises(MisuseError):
        carrier.watch(-1, state)
    state.output.append(b"octets")
    with pytest.raises(MisuseError):
        carrier.write(state)
    ours, peers = stream_pair()
    carrier.watch(ours.fileno(), state)
    with pytest.raises(MisuseError):
        carrier.watch(ours.fileno(), state)
    assert carrier.write(state)
    assert peers.recv(10) == b"octets"
    peers.close()
    state.output.append(b"octets")
    with pytest.raises(OSError, match="Broken pipe"):
        carrier.write(state)
    carrier.forget(state)
    carrier.forget(state)
    ours.close()
