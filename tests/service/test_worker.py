"""A whole worker over real sockets: engines, core, data plane, listeners, connectors."""

import contextlib
import itertools
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from router.model.capabilities import Protocol
from router.model.condition import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
)
from router.model.events import DeliveriesReceived, Event
from router.net.dataplane import DataPlane
from router.net.listener import Listeners
from router.service.assembly import named_listeners
from router.service.config import RouterConfig, read
from router.service.worker import Worker, make_worker
from tests.support.clients import Receiver, receiving, receiving_as, sending
from tests.support.cuttable import cuttable
from tests.support.planes import dial, papers, receive_exactly, receive_rest, receive_some

BASIC = """
router: {id: under-test, workers: 1, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "#"}]
"""


@attrs.define(eq=False)
class Running:
    """A worker with its listeners."""

    worker: Worker
    listeners: Listeners

    @property
    def address(self) -> str:
        return self.listeners.addresses[0]


def config(text: str, directory: Path = Path()) -> RouterConfig:
    return read(text, "router.yaml", directory, {})


@contextlib.asynccontextmanager
async def running(text: str = BASIC, directory: Path = Path()) -> AsyncIterator[Running]:
    worker = make_worker(config(text, directory))
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        listeners = Listeners(worker.admit, nursery)
        named = named_listeners(worker.assembly.config)
        await listeners.configure({name: each.bind for name, each in named.items()})
        yield Running(worker, listeners)
        listeners.close()
        nursery.cancel_scope.cancel()
    assert worker.plane.connection_count == 0


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_ten_thousand_messages_pass_in_order_each_accepted_once() -> None:
    bodies = numbered(10_000)
    async with running() as router, receiving(router.address, "orders") as sink:
        async with sending(router.address, "orders", bodies) as source:
            await source.wait_until(lambda: source.outcomes["Accepted"] == len(bodies))
            assert not source.sent
        assert sink.bodies == bodies
        assert source.outcomes == {"Accepted": len(bodies)}


async def test_many_pairs_at_once_do_not_mix() -> None:
    pairs = 8

    async def one_pair(router: str, number: int) -> None:
        bodies = [b"%d/%d" % (number, index) for index in range(500)]
        address = f"queue.{number}"
        async with (
            receiving(router, address) as sink,
            sending(router, address, bodies) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == len(bodies))
            assert sink.bodies == bodies

    async with running() as router, trio.open_nursery() as nursery:
        for number in range(pairs):
            nursery.start_soon(one_pair, router.address, number)


async def test_a_sender_without_a_receiver_waits_and_goes_on_when_one_comes() -> None:
    async with running() as router, sending(router.address, "late", numbered(50)) as source:
        await source.wait_until(lambda: source.is_attached)
        assert not source.sent
        async with receiving(router.address, "late") as sink:
            await source.wait_until(lambda: source.outcomes["Accepted"] == 50)
            assert sink.bodies == numbered(50)


async def test_what_was_accepted_did_arrive_though_receivers_are_cut_off_again_and_again() -> None:
    bodies = numbered(3000)
    received: list[bytes] = []
    async with running() as router:
        async with sending(router.address, "orders", bodies) as source:
            for cut_at in (500, 1200, 2000):
                async with receiving(router.address, "orders", window=50) as sink:
                    wanted = cut_at - len(received)
                    await sink.wait_until(lambda: len(sink.bodies) >= wanted)  # noqa: B023
                    sink.cut()
                received += sink.bodies
            async with receiving(router.address, "orders") as sink:
                await source.wait_until(lambda: source.outcomes.total() == len(bodies))
                received += sink.bodies
        assert not source.sent
        assert set(source.accepted) <= set(received)
        assert len(source.accepted) > 2500
        assert source.outcomes.keys() <= {"Accepted", "Modified", "Released"}


async def test_a_sender_that_is_cut_off_disturbs_nobody_else() -> None:
    async with running() as router, receiving(router.address, "orders") as sink:
        async with sending(router.address, "orders", itertools.repeat(b"x")) as rude:
            await sink.wait_until(lambda: len(sink.bodies) > 300)
            rude.cut()
        before = len(sink.bodies)
        async with sending(router.address, "orders", numbered(100)) as source:
            await source.wait_until(lambda: source.outcomes["Accepted"] == 100)
        assert len(sink.bodies) >= before + 100


async def test_a_receiver_that_does_not_read_holds_up_its_own_sender_only() -> None:
    body = b"x" * 50_000
    async with (
        running() as router,
        receiving(router.address, "slow", window=1000) as slow,
        sending(router.address, "slow", itertools.repeat(body)) as eager,
    ):
        await slow.wait_until(lambda: len(slow.bodies) > 10)
        slow.is_paused = True
        await trio.sleep(0.5)
        engines = [each.engine for each in router.worker.plane.switchboard.connections.values()]
        assert max(each.output_octets for each in engines) < 64 << 20
        stuck_at = next(eager._numbers)
        async with (
            receiving(router.address, "quick") as quick,
            sending(router.address, "quick", numbered(2000)) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == 2000)
            assert quick.bodies == numbered(2000)
        assert next(eager._numbers) - stuck_at < 100
        slow.is_paused = False
        slow.pulse()
        await slow.wait_until(lambda: len(slow.bodies) > stuck_at)


async def test_random_octets_on_a_thousand_connections_leave_the_others_alone() -> None:
    draw = random.Random(1)
    headers = [b"", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"AMQP", b"\x16\x03\x01"]

    async def babble(router: str) -> None:
        peer = await dial(router)
        said = draw.choice(headers) + draw.randbytes(draw.randrange(2000))
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.send_all(said)
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.send_eof()
            answer = await receive_rest(peer)
            is_fast = said[:1] == b"\x80"
            assert is_fast or answer[:4] in (b"", b"AMQP"), (said[:8], answer)
        await trio.aclose_forcefully(peer)

    async with running() as router, receiving(router.address, "orders") as sink:
        async with (
            sending(router.address, "orders", numbered(20_000)) as source,
            trio.open_nursery() as nursery,
        ):
            for _ in range(1000):
                nursery.start_soon(babble, router.address)
            await source.wait_until(lambda: source.outcomes["Accepted"] == 20_000)
        assert sink.bodies == numbered(20_000)
        with trio.fail_after(20):
            while router.worker.plane.connection_count > 1:
                await trio.sleep(0.05)


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    autojump_clock.autojump_threshold = 0.02  # time for loopback
    return autojump_clock


async def test_a_peer_that_breaks_the_framing_is_told_the_condition(clock: MockClock) -> None:
    async with running() as router:
        peer = await dial(router.address)
        await peer.send_all(b"AMQP\x00\x01\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00")
        answer = await receive_rest(peer)
        assert answer.startswith(b"AMQP\x00\x01\x00\x00")
        assert FRAMING_ERROR.encode() in answer


async def test_a_peer_that_never_opens_is_closed_after_the_handshake_time(
    clock: MockClock,
) -> None:
    async with running() as router:
        peer = await dial(router.address)
        await peer.send_all(b"AMQP\x00\x01\x00\x00")
        assert await receive_exactly(peer, 8) == b"AMQP\x00\x01\x00\x00"
        started = trio.current_time()
        assert b"amqp:" in await receive_some(peer)
        assert trio.current_time() - started == pytest.approx(15, abs=0.5)
        assert await receive_rest(peer) == b""


@pytest.mark.long
async def test_a_silent_peer_is_given_up_and_one_that_shows_life_is_not(
    clock: MockClock,
) -> None:
    async with (
        running() as router,
        receiving(router.address, "orders") as lively,  # its engine sends heartbeats
        receiving(router.address, "orders") as dead,
    ):
        dead.is_paused = True
        connections = router.worker.plane.switchboard.connections
        with trio.fail_after(600):
            while len(connections) > 1:
                await trio.sleep(1)
        dead.is_paused = False
        dead.pulse()
        await dead.wait_until(lambda: dead.closed is not None)
        await trio.sleep(600)
        assert lively.closed is None
        async with sending(router.address, "orders", numbered(10)) as source:
            await source.wait_until(lambda: source.outcomes["Accepted"] == 10)


async def test_above_the_limit_a_connection_is_refused_with_the_limit_named() -> None:
    text = BASIC + "limits: {connections: 1}\n"
    async with (
        running(text) as router,
        receiving(router.address, "orders"),
        receiving(router.address, "orders") as refused,
    ):
        assert refused.closed is not None
        assert refused.closed.condition is not None
        assert refused.closed.condition.name == RESOURCE_LIMIT_EXCEEDED
        assert refused.closed.condition.description == "limits.connections: 1 are open"


BRIDGE = """
router: {{id: near, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers: {{far: {{url: "amqp://127.0.0.1:{port}", retry_seconds: 0.05s}}}}
routes: [{{address: "orders.#", to: far}}]
"""


async def test_a_container_is_dialed_again_after_the_first_second_and_third_cut() -> None:
    bodies = numbered(4000)
    async with (
        running() as far,
        cuttable(int(far.address.rpartition(":")[2])) as line,
        running(BRIDGE.format(port=line.port)) as near,
        receiving(far.address, "orders.eu", window=100) as sink,
        sending(near.address, "orders.eu", bodies) as source,
    ):
        for cut in (1, 2, 3):
            await sink.wait_until(lambda: len(sink.bodies) >= cut * 700)  # noqa: B023
            assert line.cut() == 1
            with trio.fail_after(20):
                while near.worker.connected_containers != {"far"}:
                    await trio.sleep(0.01)
        await source.wait_until(lambda: source.outcomes["Accepted"] == len(bodies), 60)
        assert set(sink.bodies) == set(bodies)


SECURED = """
router: {{id: far, workers: 1, admin: off}}
listeners:
  - bind: "127.0.0.1:0"
  - bind: "127.0.0.1:0"
    tls: {{cert: server.pem, key: server.pem}}
    sasl: {{mechanisms: [PLAIN], users: {{app: pencil}}}}
routes: [{{address: "orders.#"}}]
"""


@pytest.mark.parametrize(
    ("password", "authority", "reason"),
    [
        ("pencil", "authorities.pem", None),
        ("wrong", "authorities.pem", "amqp:unauthorized-access"),
        ("pencil", None, "the peer's certificate is refused"),
    ],
)
async def test_a_bridge_over_tls_with_a_password(
    tmp_path: Path, password: str, authority: str | None, reason: str | None
) -> None:
    papers(tmp_path)
    ca = "" if authority is None else f", tls: {{ca: {authority}}}"
    async with running(SECURED.format(), tmp_path) as far:
        plain, secured = far.listeners.addresses
        text = (
            "router: {id: near, workers: 1, admin: off}\n"
            'listeners: [{bind: "127.0.0.1:0"}]\n'
            f'containers: {{far: {{url: "amqps://app:{password}@{secured}"{ca}}}}}\n'
            'routes: [{address: "orders.#", to: far}]\n'
        )
        async with (
            running(text, tmp_path) as near,
            receiving(plain, "orders.eu") as sink,
            sending(near.address, "orders.eu", numbered(2000)) as source,
        ):
            if reason is None:
                await source.wait_until(lambda: source.outcomes["Accepted"] == 2000)
                assert sink.bodies == numbered(2000)
                return
            connector = near.worker.connectors["far"]
            with trio.fail_after(60):
                while connector.last_error is None:
                    await trio.sleep(0.01)
            assert reason in connector.last_error
            assert not near.worker.connected_containers


GUARDED = """
router: {id: far, workers: 1, admin: off}
listeners: [{bind: "127.0.0.1:0", sasl: {mechanisms: [PLAIN], users: {app: pencil}}}]
routes: [{address: "orders.#"}]
"""


@pytest.mark.parametrize("protocol", list(Protocol))
async def test_a_wrong_password_is_a_warning_and_the_reason_until_a_login_succeeds(
    protocol: Protocol,
) -> None:
    async with running(GUARDED) as far:

        def near(password: str) -> str:
            url = f"amqp://app:{password}@{far.address}"
            return BRIDGE.replace("amqp://127.0.0.1:{port}", f'{url}", protocol: "{protocol}')

        with capture_logs() as lines:
            async with running(near("wrong").format()) as router:
                connector = router.worker.connectors["far"]
                with trio.fail_after(60):
                    while connector.status.failed < 2:
                        await trio.sleep(0.01)
                reason = connector.status.error
                assert reason is not None
                assert "amqp:unauthorized-access" in reason
                failed = [each for each in lines if each["event"] == "connector.failed"]
                assert {each["log_level"] for each in failed} == {"warning"}
                assert {(each["container"], each["reason"]) for each in failed} == {("far", reason)}
                router.worker.apply(router.worker.prepare(config(near("pencil").format())))
                with trio.fail_after(60):
                    while router.worker.connected_containers != {"far"}:
                        await trio.sleep(0.01)


async def test_a_reload_touches_only_what_differs() -> None:
    async with (
        running() as router,
        receiving(router.address, "orders.eu") as sink,
        sending(router.address, "orders.eu", numbered(10)) as source,
    ):
        await source.wait_until(lambda: source.outcomes["Accepted"] == 10)
        text = BASIC.replace('[{address: "#"}]', '[{address: "orders.#"}, {address: new}]')
        router.worker.apply(router.worker.prepare(config(text)))
        assert sink.closed is None
        assert sink.detached is None
        async with receiving(router.address, "new") as other:
            assert other.detached is None


async def test_draining_finishes_what_is_under_way_and_closes_with_the_reason() -> None:
    async with (
        running() as router,
        receiving(router.address, "orders") as sink,
        sending(router.address, "orders", itertools.repeat(b"x")) as source,
    ):
        await sink.wait_until(lambda: len(sink.bodies) > 200)
        with trio.fail_after(20):
            assert await router.worker.drain()
        await source.wait_until(lambda: source.closed is not None)
        assert source.closed is not None
        assert source.closed.condition is not None
        assert source.closed.condition.name == CONNECTION_FORCED
        assert source.closed.condition.description == "the router is shutting down"
        assert source.outcomes == {"Accepted": len(sink.bodies)}
        assert not source.sent


class Silent(Receiver):
    """Receives, and says nothing."""

    def react(self, event: Event) -> None:
        if isinstance(event, DeliveriesReceived):
            self.bodies += [delivery.payload for delivery in event.deliveries]
        else:
            Receiver.react(self, event)


async def test_a_drain_takes_no_longer_than_it_may_though_peers_do_not_answer_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = BASIC.replace("admin: off", "admin: off, drain_seconds: 4")
    async with (
        running(text) as router,
        receiving_as(Silent, router.address, "orders") as sink,
        sending(router.address, "orders", numbered(5)),
    ):
        await sink.wait_until(lambda: len(sink.bodies) == 5)
        monkeypatch.setattr(DataPlane, "wait_empty", lambda _: trio.sleep_forever())
        began = trio.current_time()
        assert not await router.worker.drain()
        assert 2.5 < trio.current_time() - began < 4.5


async def test_a_drain_takes_no_longer_than_it_may_though_the_journal_is_away(
    tmp_path: Path,
) -> None:
    text = BASIC.replace("admin: off", f"admin: off, drain_seconds: 2, state: {tmp_path}")
    text = text.replace('{address: "#"}', '{address: "#", guarantee: exactly-once}')
    async with running(text) as router:
        began = trio.current_time()
        assert await router.worker.drain()
        assert 1.9 < trio.current_time() - began < 3.0


async def test_a_socket_that_comes_while_draining_is_closed() -> None:
    async with running() as router:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(router.worker.drain)
            await trio.lowlevel.checkpoint()
            peer = await dial(router.address)
            assert await receive_rest(peer) == b""
        with capture_logs() as lines:
            router.worker.admit(socket.socket(), "no such listener")
        assert not lines
