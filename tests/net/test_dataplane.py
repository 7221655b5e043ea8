"""The data plane over socket pairs, with a plain engine and a plain core."""

import contextlib
import gc
import math
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from router.model.commands import Command, SendDeliveries
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveriesReceived, Event, OutputPending
from router.model.identity import ConnectionId, DeliveryNumber, DeliveryTag
from router.net.connection import Connection, Stage
from router.net.dataplane import (
    FINISH_SECONDS,
    LINGER_SECONDS,
    OUTPUT_STOP_OCTETS,
    DataPlane,
)
from router.net.poller import ENDED, EpollPoller, Poller, TaskPoller
from router.net.slicing import SLICE_OCTETS
from router.net.switchboard import CORE_REST_SECONDS, Lanes, Switchboard
from router.wire.v1_0.express import make_express
from tests.support.kernel import MODES
from tests.support.plain import LINK, PlainCore, PlainEngine, Rule, echo, send, stream_pair
from tests.support.planes import set_clock

MakePoller = Callable[[trio.Nursery], Poller]


@attrs.define(eq=False)
class Bench:
    """A data plane at work, and peers plugged into it."""

    plane: DataPlane
    core: PlainCore
    ended: list[Connection] = attrs.field(factory=list)

    def plug(
        self,
        engine: PlainEngine | None = None,
        *,
        buffer_octets: int | None = None,
        container: str | None = None,
    ) -> tuple[Connection, PlainEngine, trio.SocketStream]:
        """Hands one end of a new pair to the data plane; returns the peer's end as a stream."""
        engine = engine or PlainEngine()
        ours, peers = stream_pair(buffer_octets)
        connection = self.plane.add(
            ours, engine, address="peer", container=container, on_end=self.ended.append
        )
        return connection, engine, trio.SocketStream(trio.socket.from_stdlib_socket(peers))


@contextlib.asynccontextmanager
async def bench(
    make_poller: MakePoller, rule: Rule = echo, lanes: Lanes | None = None
) -> AsyncIterator[Bench]:
    core = PlainCore(rule)
    async with trio.open_nursery() as nursery:
        plane = DataPlane(Switchboard(core, lanes), make_poller(nursery))
        await nursery.start(plane.run)
        yield Bench(plane, core)
        nursery.cancel_scope.cancel()
    assert plane.connection_count == 0


@pytest.fixture(params=["epoll", "task"])
def make_poller(request: pytest.FixtureRequest) -> MakePoller:
    return TaskPoller if request.param == "task" else lambda nursery: EpollPoller()


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        octets = await stream.receive_some(65536)
        assert octets, f"the stream ended after {len(received)} of {count} octets"
        received += octets
    return bytes(received)


async def test_octets_reach_the_engine_and_its_output_the_peer(make_poller: MakePoller) -> None:
    async with bench(make_poller) as on:
        connection, engine, peer = on.plug()
        for _ in range(3):
            await peer.send_all(b"ping")
            assert await receive_exactly(peer, 4) == b"ping"
        assert engine.received == b"pingpingping"
        assert (connection.octets_in, connection.octets_out) == (12, 12)


async def test_octets_read_before_the_hand_over_come_first(make_poller: MakePoller) -> None:
    async with bench(make_poller) as on:
        ours, peers = stream_pair()
        peer = trio.SocketStream(trio.socket.from_stdlib_socket(peers))
        await peer.send_all(b"second")
        on.plane.add(ours, PlainEngine(), address="peer", octets=b"first ")
        assert await receive_exactly(peer, 12) == b"first second"


async def test_an_order_for_another_connection_leaves_with_the_same_turn(
    make_poller: MakePoller,
) -> None:
    def cross(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        return [(ConnectionId(3 - connection), octets)]

    async with bench(make_poller, cross) as on:
        _, _, left = on.plug()
        _, _, right = on.plug()
        await left.send_all(b"to the right")
        await right.send_all(b"to the left")
        assert await receive_exactly(right, 12) == b"to the right"
        assert await receive_exactly(left, 11) == b"to the left"


async def test_many_deliveries_of_one_turn_leave_with_one_send(make_poller: MakePoller) -> None:
    def gather(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        return [(ConnectionId(1), octets)] if connection > 1 else []

    sends = 0

    class CountingEngine(PlainEngine):
        def bytes_sent(self, count: int) -> None:
            nonlocal sends
            sends += 1
            super().bytes_sent(count)

    async with bench(make_poller, gather) as on:
        _, _, sink = on.plug(CountingEngine())
        set_clock(on.plane, lambda: 0.0)  # or a slow machine ends the turn half-way
        pairs = [stream_pair() for _ in range(20)]
        for ours, _ in pairs:
            on.plane.add(ours, PlainEngine(), address="peer")
        for _, peers in pairs:  # nothing is awaited: they are all ready at once
            peers.send(b"x" * 100)
        await receive_exactly(sink, 2000)
        assert sends == 1
        for _, peers in pairs:
            peers.close()


@attrs.define(eq=False)
class PlainLanes:
    """Hands what one engine has received to another, past the core."""

    source: PlainEngine
    sink: PlainEngine
    turns: int = 0

    def make_carrier(self, poller: int, take: object, fail: object, others: int = -1) -> None:
        """Carries nothing."""

    def end_turn(self) -> list[object]:
        self.turns += 1
        if not self.source.received:
            return []
        self.sink.output += self.source.received
        self.source.received.clear()
        return [self.sink, PlainEngine()]  # the second one's connection is gone


async def test_output_from_the_express_lane_leaves_with_the_turn_that_made_it(
    make_poller: MakePoller,
) -> None:
    def hold(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        return []

    lanes = PlainLanes(PlainEngine(), PlainEngine())
    async with bench(make_poller, hold, lanes) as on:
        _, _, source = on.plug(lanes.source)
        _, _, sink = on.plug(lanes.sink)
        for _ in range(3):
            await source.send_all(b"express")
            assert await receive_exactly(sink, 7) == b"express"
        await wait_all_tasks_blocked()
        turns = lanes.turns
        await wait_all_tasks_blocked()
        assert lanes.turns == turns


@attrs.define(eq=False)
class HeldCarrier:
    """Has sockets to serve from an earlier poll, and no time for them until it gets a new turn."""

    turns: int = 0
    has_called: bool = False
    is_midway: bool = False
    rested: float = 0.0

    def turn(
        self,
        now: float,
        until: float,
        is_alone: bool = False,
        idle_seconds: Callable[[], float] | None = None,
    ) -> bool:
        self.turns += 1
        assert self.turns < 10_000, "it is asked again and again, and its time never comes"
        return now > until

    def watch(self, descriptor: int, state: object, pipe: object = None) -> None: ...

    def forget(self, state: object) -> None: ...

    def forsake(self, state: object) -> None: ...

    def write(self, state: object) -> bool:
        return True


@attrs.define(eq=False)
class HeldLanes:
    """Lanes whose carrier is a ``HeldCarrier``."""

    carrier: HeldCarrier = attrs.field(factory=HeldCarrier)

    def make_carrier(
        self, poller: int, take: object, fail: object, others: int = -1
    ) -> HeldCarrier:
        return self.carrier

    def end_turn(self) -> list[object]:
        return []


async def test_a_carrier_whose_time_is_up_gets_new_time_though_no_socket_is_ready() -> None:
    lanes = HeldLanes()
    async with bench(lambda nursery: EpollPoller(), lanes=lanes) as on:
        on.plane._yield_at = -math.inf
        with trio.fail_after(60):
            await wait_all_tasks_blocked(0.01)
        assert lanes.carrier.turns < 10_000


async def test_what_the_socket_does_not_take_follows_when_it_does(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        connection, engine, peer = on.plug(buffer_octets=4096)
        octets = bytes(range(128, 256)) * 4000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, octets)
            assert await receive_exactly(peer, len(octets)) == octets
        assert engine.output_octets == 0
        await wait_all_tasks_blocked()
        assert connection.interest == 1


async def test_the_core_hears_that_output_has_gone_though_the_peer_says_nothing(
    make_poller: MakePoller,
) -> None:
    class TellingEngine(PlainEngine):
        """Has news when its output has gone, as real engines have (``OutputPending``)."""

        def bytes_sent(self, count: int) -> None:
            super().bytes_sent(count)
            if not self.output:
                self.deadline = -math.inf

        def handle_deadline(self, now: float) -> list[Event]:
            self.deadline = None
            return [OutputPending(False)]

    async with bench(make_poller) as on:
        connection, _, peer = on.plug(TellingEngine(), buffer_octets=4096)
        octets = bytes(400_000)
        on.plane.carry_out([(connection.id, send(octets))])
        await wait_all_tasks_blocked()
        assert not on.core.events
        await receive_exactly(peer, len(octets))
        await wait_all_tasks_blocked()
        assert on.core.events == [(connection.id, OutputPending(False))]


async def test_a_peer_that_asks_and_never_reads_has_its_own_input_stopped(
    make_poller: MakePoller,
) -> None:
    def amplify(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        return [(connection, octets * 64)]

    async with bench(make_poller, amplify) as on:
        connection, engine, peer = on.plug(buffer_octets=4096)
        with trio.move_on_after(0.5) as waiting:
            while True:
                await peer.send_all(b"more" * 1024)
        assert waiting.cancelled_caught
        largest = engine.output_octets
        assert OUTPUT_STOP_OCTETS < largest < OUTPUT_STOP_OCTETS + 64 * 256 * 1024
        assert not connection.interest & 1
        _, _, other = on.plug()
        await other.send_all(b"x")
        await receive_exactly(other, 64)
        await receive_exactly(peer, largest)
        await peer.send_all(b"x")
        await wait_all_tasks_blocked()
        assert connection.interest & 1


async def test_an_engine_that_has_enough_is_not_read_for_until_a_command_frees_it(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        connection, engine, peer = on.plug()
        engine.has_enough = True
        await peer.send_all(b"first")
        await receive_exactly(peer, 5)
        assert not connection.interest & 1
        await peer.send_all(b"second")
        await wait_all_tasks_blocked()
        assert bytes(engine.received) == b"first"
        engine.has_enough = False
        on.plane.carry_out([(connection.id, SendDeliveries(LINK, []))])
        assert await receive_exactly(peer, 6) == b"second"


async def test_an_engine_that_has_enough_is_told_that_its_peer_has_left() -> None:
    """What the peer sent before is read later."""
    async with bench(lambda nursery: EpollPoller()) as on:
        connection, engine, peer = on.plug()
        engine.has_enough = True
        await peer.send_all(b"first")
        await receive_exactly(peer, 5)
        await peer.send_all(b"second")
        await wait_all_tasks_blocked()
        assert connection.interest == ENDED
        await peer.send_eof()
        with trio.fail_after(10):
            while not connection.has_left:
                await trio.sleep(0.01)
        await wait_all_tasks_blocked()
        assert engine.has_left
        assert connection.interest == 0, "it would be told in each turn"
        assert (bytes(engine.received), engine.saw_eof) == (b"first", False)
        engine.has_enough = False
        on.plane.carry_out([(connection.id, SendDeliveries(LINK, []))])
        assert await receive_exactly(peer, 6) == b"second"
        await on.plane.wait_empty()
        assert engine.saw_eof


async def test_the_end_of_the_stream_reaches_engine_core_and_supervisor(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        connection, engine, peer = on.plug(container="east")
        assert on.core.dialed_containers == {connection.id: "east"}
        await peer.send_all(b"x")
        await receive_exactly(peer, 1)
        with capture_logs() as lines:
            await peer.aclose()
            await on.plane.wait_empty()
        assert engine.saw_eof
        assert on.core.lost == [connection.id]
        assert on.ended == [connection]
        assert connection.stage is Stage.GONE
        (line,) = [line for line in lines if line["event"] == "connection.closed"]
        assert line["container"] == "east"
        assert line["condition"] == "amqp:connection:framing-error: the stream ended"
        assert (line["octets_in"], line["octets_out"]) == (1, 1)


async def test_all_who_wait_for_a_turn_or_for_the_last_socket_to_go_are_told() -> None:
    async with bench(lambda nursery: EpollPoller()) as on:
        _, _, peer = on.plug()
        async with trio.open_nursery() as nursery:
            for wait in (on.plane.wait_turn, on.plane.wait_turn, on.plane.wait_empty):
                nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 3
            await peer.send_all(b"\x80")
            with trio.fail_after(60):
                while len(nursery.child_tasks) > 1:
                    await trio.sleep(0.001)
            nursery.start_soon(on.plane.wait_empty)
            await peer.aclose()


async def test_a_finished_engine_has_its_last_words_sent_and_the_stream_shut(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        connection, _, peer = on.plug(PlainEngine(farewell=b"bye"))
        await peer.send_all(b"!")
        assert await receive_exactly(peer, 4) == b"bye!"
        assert await peer.receive_some() == b""
        assert on.core.lost == [connection.id]
        assert connection.stage is Stage.LINGERING
        await peer.send_all(b"too late, and thrown away")
        await peer.aclose()
        await on.plane.wait_empty()
        assert connection.failure is None


async def test_last_words_are_not_destroyed_by_input_that_nobody_read(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        listener = socket.create_server(("127.0.0.1", 0))
        peer = await trio.open_tcp_stream(*listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        on.plane.add(accepted, PlainEngine(farewell=b"reason"), address="peer")
        await peer.send_all(b"!" + b"x" * 100_000)
        received = b""
        while octets := await peer.receive_some():
            received += octets
        assert received.startswith(b"reason")
        listener.close()


async def test_a_peer_that_never_ends_its_stream_is_given_up_after_a_while(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    async with bench(make_poller) as on:
        _, _, peer = on.plug(PlainEngine(farewell=b"bye"))
        started = trio.current_time()
        await peer.send_all(b"!")
        await on.plane.wait_empty()
        assert trio.current_time() - started == pytest.approx(LINGER_SECONDS)
        await peer.aclose()


async def test_a_peer_that_never_reads_its_last_words_is_given_up_after_a_while(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    async with bench(make_poller) as on:
        connection, _, peer = on.plug(PlainEngine(farewell=b"x" * 500_000), buffer_octets=4096)
        started = trio.current_time()
        await peer.send_all(b"!")
        await on.plane.wait_empty()
        assert trio.current_time() - started == pytest.approx(FINISH_SECONDS)
        assert on.core.lost == [connection.id]
        await peer.aclose()


async def test_a_reset_ends_the_connection_with_the_reason(make_poller: MakePoller) -> None:
    async with bench(make_poller) as on:
        listener = socket.create_server(("127.0.0.1", 0))
        peer = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        engine = PlainEngine()
        connection = on.plane.add(accepted, engine, address="peer")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await on.plane.wait_empty()
        assert connection.failure == "Connection reset by peer"
        assert engine.saw_eof  # it may hold what others wait for, such as a name
        assert on.core.lost == [connection.id]
        listener.close()


@attrs.define(eq=False)
class PartingEngine(PlainEngine):
    """Is over when it is told to send something, and has one more delivery to tell of then."""

    def execute(self, command: Command) -> None:
        self.finished = True
        self.deadline = float("-inf")

    def receive_eof(self, now: float) -> list[Event]:
        waiting, self.deadline = self.deadline is not None, None
        last = ReceivedDelivery(DeliveryNumber(0), DeliveryTag(b"t"), b"last words")
        return [DeliveriesReceived(LINK, [last])] if waiting else []


async def test_what_an_engine_tells_when_a_command_ends_it_is_heard(
    make_poller: MakePoller,
) -> None:
    def cross(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        return [(ConnectionId(3 - connection), octets)]

    async with bench(make_poller, cross) as on:
        _, _, other = on.plug(PartingEngine())
        _, _, peer = on.plug()
        await peer.send_all(b"part")
        assert await other.receive_some() == b""
        assert await receive_exactly(peer, 10) == b"last words"


async def test_a_defect_of_one_engine_ends_its_connection_and_no_other(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        broken, _, victim = on.plug()
        _, _, bystander = on.plug()
        with capture_logs() as lines:
            await victim.send_all(b"?")
            assert await victim.receive_some() == b""
        assert broken.failure == "defect: ZeroDivisionError: a defect"
        assert on.core.lost == [broken.id]
        assert [line["event"] for line in lines] == ["connection.failed", "connection.closed"]
        await bystander.send_all(b"still here")
        assert await receive_exactly(bystander, 10) == b"still here"


async def test_a_defect_of_the_core_ends_the_connection_that_met_it(
    make_poller: MakePoller,
) -> None:
    def choke(connection: ConnectionId, octets: bytes) -> list[tuple[ConnectionId, bytes]]:
        if octets == b"poison":
            raise ZeroDivisionError("a defect")
        return echo(connection, octets)

    async with bench(make_poller, choke) as on:
        broken, _, victim = on.plug()
        _, _, bystander = on.plug()
        await victim.send_all(b"poison")
        assert await victim.receive_some() == b""
        assert on.core.lost == [broken.id]
        await bystander.send_all(b"still here")
        assert await receive_exactly(bystander, 10) == b"still here"


async def test_an_engine_is_woken_at_its_deadline_and_not_before(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    async with bench(make_poller) as on:
        _, engine, peer = on.plug(PlainEngine(idle_seconds=60))
        for _ in range(5):
            await peer.send_all(b"x")
            await receive_exactly(peer, 1)
            await trio.sleep(50)
        last = trio.current_time() - 50
        assert await peer.receive_some() == b""
        assert engine.fired == [pytest.approx(last + 60)]


async def test_a_deadline_that_comes_nearer_is_kept(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    async with bench(make_poller) as on:
        _, engine, peer = on.plug(PlainEngine(idle_seconds=60))
        started = trio.current_time()
        await peer.send_all(b"x")
        await receive_exactly(peer, 1)
        engine.idle_seconds = 2
        await peer.send_all(b"x")
        await receive_exactly(peer, 1)
        assert await peer.receive_some() == b""
        assert engine.fired == [pytest.approx(started + 2)]


async def test_a_deadline_that_comes_nearer_with_what_is_not_answered_is_kept(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    class SilentEngine(PlainEngine):
        """Takes note of what comes, and puts off what it does about it."""

        def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
            events = super().receive_data(octets, now)
            return events if len(self.received) == 1 else []

    async with bench(make_poller) as on:
        _, engine, peer = on.plug(SilentEngine(idle_seconds=60))
        started = trio.current_time()
        await peer.send_all(b"x")
        await receive_exactly(peer, 1)
        engine.idle_seconds = 2
        await peer.send_all(b"x")
        assert await peer.receive_some() == b""
        assert engine.fired == [pytest.approx(started + 2)]


async def test_the_core_is_woken_at_its_deadline_and_its_notices_are_logged(
    make_poller: MakePoller, autojump_clock: MockClock
) -> None:
    async with bench(make_poller) as on:
        on.core.deadline = trio.current_time() + 7
        on.plane.carry_out([])
        due = on.core.deadline
        with capture_logs() as lines:
            await trio.sleep(10)
        assert on.core.fired == [pytest.approx(due)]
        assert [line["event"] for line in lines] == ["core.woken"]


async def test_a_defect_of_the_core_by_time_is_logged_and_tried_again(
    make_poller: MakePoller, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PlainCore, now: float) -> list[object]:
        self.fired.append(now)
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(PlainCore, "handle_deadline", fail)
    async with bench(make_poller) as on:
        on.core.deadline = trio.current_time()
        on.plane.carry_out([])
        with capture_logs() as lines:
            await trio.sleep(CORE_REST_SECONDS * 2.5)
        assert [line["event"] for line in lines] == ["core.failed"] * 3
        _, _, peer = on.plug()
        await peer.send_all(b"still here")
        assert await receive_exactly(peer, 10) == b"still here"


async def test_other_tasks_run_while_peers_keep_all_sockets_busy(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller) as on:
        peers = [on.plug()[2] for _ in range(10)]

        async def flood(peer: trio.SocketStream) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drain, peer)
                while True:
                    await peer.send_all(b"x" * 10_000)

        async def drain(peer: trio.SocketStream) -> None:
            while True:
                await peer.receive_some(65536)

        overshoots = []
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(flood, peer)
            for _ in range(20):
                started = trio.current_time()
                await trio.sleep(0.005)
                overshoots.append(trio.current_time() - started - 0.005)
            nursery.cancel_scope.cancel()
        assert sorted(overshoots)[10] < 0.1


async def test_connections_cost_no_trio_task_each() -> None:
    async with bench(lambda nursery: EpollPoller()) as on:
        before = trio.lowlevel.current_statistics().tasks_living
        streams = [on.plug() for _ in range(100)]
        assert trio.lowlevel.current_statistics().tasks_living == before
        for _, _, peer in streams:
            await peer.aclose()
        await on.plane.wait_empty()


async def test_an_idle_connection_costs_less_than_4_kib_beside_its_engine() -> None:
    count = 500
    async with bench(lambda nursery: EpollPoller()) as on:
        engines = [PlainEngine(idle_seconds=60) for _ in range(count)]
        pairs = [stream_pair() for _ in range(count)]
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for engine, (ours, _) in zip(engines, pairs, strict=True):
            on.plane.add(ours, engine, address="127.0.0.1:12345", octets=b"x")
        await wait_all_tasks_blocked()
        on.core.events.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (after - before) / count < 4096
        for _, peers in pairs:
            peers.close()
        await on.plane.wait_empty()


@attrs.define(eq=False)
class SlowEngine(PlainEngine):
    """Takes a millisecond for each KiB, on a clock of its own."""

    clock: list[float] = attrs.field(factory=lambda: [0.0])
    runs: list[tuple[float, int]] = attrs.field(factory=list)

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        self.clock[0] += len(octets) / 1024 / 1000
        self.runs.append((now, len(octets)))
        return super().receive_data(octets, now)


@pytest.mark.parametrize("mode", MODES)
async def test_a_flood_that_takes_long_is_cut_and_others_are_served_between(
    make_poller: MakePoller, mode: str
) -> None:
    async with bench(make_poller, lambda *_: [], make_express(mode)) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0] + trio.current_time())
        flooded, other = SlowEngine(clock=clock), SlowEngine(clock=clock)
        flood, peer = on.plug(flooded)[2], on.plug(other)[2]
        octets = bytes(range(65, 91)) * 8000  # 203 KiB: 203 ms
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood.send_all, octets)
            while not flooded.received:
                await trio.sleep(0)
            await peer.send_all(b"in between")
            while len(flooded.received) < len(octets):
                await trio.sleep(0)
        assert flooded.received == octets
        assert other.received == b"in between"
        longest = max(count for _, count in flooded.runs)
        assert longest <= SLICE_OCTETS
        before = sum(count for now, count in flooded.runs if now < other.runs[0][0])
        assert before < len(octets) / 2  # long before the flood was worked through
        await flood.send_all(b"more")
        while not flooded.received.endswith(b"more"):
            await trio.sleep(0)


async def test_talkers_wait_while_the_account_is_empty_and_a_newcomer_is_heard_at_once(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller, lambda *_: []) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0])  # by which nothing is ever earned
        flooded, other = SlowEngine(clock=clock), SlowEngine(clock=clock)
        flood = on.plug(flooded)[2]
        octets = bytes(range(65, 91)) * 8000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood.send_all, octets)
            while not on.plane.allowance.is_empty:
                await trio.sleep(0)
            heard = len(flooded.received)
            peer = on.plug(other)[2]
            await peer.send_all(b"hello")
            while not other.received:
                await trio.sleep(0)
            assert len(flooded.received) == heard < len(octets)
            clock[0] += 1.0  # of rest
            while len(flooded.received) < len(octets):
                clock[0] += 0.001
                await trio.sleep(0)
        assert flooded.received == octets


async def test_a_clock_that_jumps_makes_no_lasting_talker_of_who_moves_payload(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller, lambda *_: []) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0])
        slow = SlowEngine(clock=clock)
        connection, engine, peer = on.plug(slow)
        await peer.send_all(bytes(6 * 1024))  # as if others had the core for 6 ms
        while len(engine.received) < 6 * 1024:
            await trio.sleep(0)

        def talks() -> bool:
            return connection.talk.is_long

        assert talks()
        for count in range(1, 1000):  # one delivery each, in next to no time
            await peer.send_all(b"x")
            while len(engine.received) < 6 * 1024 + count:
                await trio.sleep(0)
            if not talks():
                break
        assert not talks()
        assert count < 100


async def test_a_talker_whose_stream_breaks_is_left_alone_until_it_is_heard() -> None:
    async with bench(lambda nursery: EpollPoller(), lambda *_: []) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0])
        connection, flooded, flood = on.plug(SlowEngine(clock=clock))
        octets = bytes(150_000)
        await flood.send_all(octets)
        while not on.plane.allowance.is_empty:
            await trio.sleep(0)
        await flood.aclose()
        while not connection.is_unwatched:
            await trio.sleep(0)
        assert on.plane.poller.poll() == []
        while not on.ended:
            clock[0] += 0.001
            await trio.sleep(0)
        assert flooded.received == octets
        assert flooded.saw_eof


async def test_what_waits_of_a_flood_goes_before_the_end_of_the_stream(
    make_poller: MakePoller,
) -> None:
    async with bench(make_poller, rule=lambda *_: []) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0] + trio.current_time())
        _, flooded, flood = on.plug(SlowEngine(clock=clock))
        octets = bytes(200_000)
        await flood.send_all(octets)
        await flood.aclose()
        while not on.ended:
            await trio.sleep(0)
        assert flooded.received == octets
        assert flooded.saw_eof


@attrs.define(eq=False)
class HeavyEngine(PlainEngine):
    """Takes 3 ms for the end of its stream, as if thousands of deliveries went back with it."""

    clock: list[float] = attrs.field(kw_only=True)

    def receive_eof(self, now: float) -> list[Event]:
        self.clock[0] += 0.003
        return super().receive_eof(now)


@attrs.define(eq=False)
class AnsweringEngine(PlainEngine):
    """Notes how many connections had ended when it had sent ``more``."""

    ended: list[Connection] = attrs.field(kw_only=True)
    ended_before: int | None = attrs.field(default=None, init=False)

    def bytes_sent(self, count: int) -> None:
        if self.output.startswith(b"more"):
            self.ended_before = len(self.ended)
        super().bytes_sent(count)


@pytest.mark.parametrize("how", ["end of stream", "reset", "sent to"])
async def test_others_are_served_while_many_connections_end_at_once(
    make_poller: MakePoller, how: str
) -> None:
    """A peer's end that closes with octets unread is a reset to ours."""
    async with bench(make_poller) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0] + trio.current_time())
        plugs = [on.plug(HeavyEngine(clock=clock)) for _ in range(40)]
        _, _, other = on.plug(engine := AnsweringEngine(ended=on.ended))
        await other.send_all(b"once")
        assert await receive_exactly(other, 4) == b"once"
        if how == "reset":
            on.plane.carry_out([(connection.id, send(b"unread")) for connection, _, _ in plugs])
        for _, _, peer in plugs:
            peer.socket.close()
        if how == "sent to":
            on.plane.carry_out([(connection.id, send(b"gone")) for connection, _, _ in plugs])
        await other.send_all(b"more")
        assert await receive_exactly(other, 4) == b"more"
        assert engine.ended_before is not None
        assert engine.ended_before < 20  # two a turn, and tasks that poll need a few turns
        with trio.fail_after(20):
            while len(on.ended) < 40:
                await trio.sleep(0.001)
        failures = {
            "end of stream": None,
            "reset": "Connection reset by peer",
            "sent to": "Broken pipe",
        }
        assert {each.failure for each in on.ended} == {failures[how]}
        assert sorted(on.core.lost) == [connection.id for connection, _, _ in plugs]
        assert not on.plane.endings


async def test_the_ends_that_wait_when_the_plane_stops_are_heard(make_poller: MakePoller) -> None:
    clock = [0.0]
    async with bench(make_poller) as on:
        set_clock(on.plane, lambda: clock[0] + trio.current_time())
        plugs = [on.plug(HeavyEngine(clock=clock)) for _ in range(40)]
        for _, _, peer in plugs:
            peer.socket.close()
        while not on.plane.endings:
            await trio.sleep(0)
        waiting = {each.id for each, _, _ in plugs if each in on.plane.endings}
        assert waiting
        assert waiting <= on.core.congested  # nothing that others leave goes there
    assert all(engine.saw_eof for _, engine, _ in plugs)
    assert len(on.core.lost) == 40


async def test_a_connection_that_ends_leaves_nothing_of_its_flood(make_poller: MakePoller) -> None:
    async with bench(make_poller, rule=lambda *_: []) as on:
        clock = [0.0]
        set_clock(on.plane, lambda: clock[0] + trio.current_time())
        connection, flooded, flood = on.plug(SlowEngine(clock=clock))
        await flood.send_all(bytes(20_000) + b"!" + bytes(100_000))
        while connection.stage is Stage.OPEN:
            await trio.sleep(0)
        assert not on.plane.slicer.is_behind(connection)
        assert flooded.finished
