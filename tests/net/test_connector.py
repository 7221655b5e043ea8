"""Connectors: failover, waits that grow and start anew, TLS, and being stopped."""

import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from router.net import connector as connector_module
from router.net.connector import STABLE_SECONDS, Connector, Endpoint
from router.net.tls_files import TlsContext, TlsFiles
from tests.support.plain import PlainEngine
from tests.support.planes import House, Papers, house, nobody, papers, receive_exactly
from tests.support.tls_ends import KINDS, make_stream


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


@attrs.define(eq=False)
class Broker:
    """Accepts, says hello unless told otherwise, and can cut.

    Attributes:
        met: when connections came.
    """

    port: int
    says_hello: bool = True
    met: list[float] = attrs.field(factory=list)
    streams: list[trio.SocketStream] = attrs.field(factory=list)
    arrival: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.met.append(trio.current_time())
        self.streams.append(stream)
        self.arrival.set()
        self.arrival = trio.Event()
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            if self.says_hello:
                await stream.send_all(b"hello")
            while await stream.receive_some():
                pass
            await stream.aclose()

    async def wait_for(self, count: int) -> None:
        while len(self.met) < count:
            await self.arrival.wait()

    async def cut(self) -> None:
        await trio.aclose_forcefully(self.streams[-1])


@contextlib.asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        made = Broker(listeners[0].socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, made.serve, listeners)
        yield made
        nursery.cancel_scope.cancel()


def endpoint(port: int, tls: TlsContext | None = None, name: str | None = None) -> Endpoint:
    return Endpoint(
        host="127.0.0.1",
        port=port,
        make_engine=PlainEngine,
        tls=None if tls is None else tls.current,
        server_name=name,
    )


@contextlib.asynccontextmanager
async def connecting(at: House, *endpoints: Endpoint) -> AsyncIterator[Connector]:
    connector = Connector(
        container="east",
        endpoints=endpoints,
        plane=at.plane,
        retry_seconds=1,
        retry_limit_seconds=8,
        random=lambda: 1.0,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connector.run)
        yield connector
        connector.stop()
    await at.plane.wait_empty()


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    autojump_clock.autojump_threshold = 0.01  # time for loopback
    return autojump_clock


async def test_a_lost_connection_is_dialed_again_and_again(clock: MockClock) -> None:
    async with broker() as east, house() as at, connecting(at, endpoint(east.port)) as connector:
        for cut in range(1, 5):
            await east.wait_for(cut)
            await trio.sleep(0.1)
            assert connector.is_connected
            assert list(at.plane.switchboard.connections)[-1] == cut
            assert at.core.dialed_containers[list(at.core.dialed_containers)[-1]] == "east"
            await east.cut()
            await trio.sleep(0.1)
            assert len(at.core.lost) == cut
            assert not at.plane.switchboard.connections
        await east.wait_for(5)
        waits = [later - earlier for earlier, later in itertools.pairwise(east.met)]
        assert waits == pytest.approx([1, 2, 4, 8], abs=0.3)


async def test_waits_start_anew_after_a_connection_that_stood_a_while(clock: MockClock) -> None:
    async with broker() as east, house() as at, connecting(at, endpoint(east.port)):
        for count in (1, 2, 3):
            await east.wait_for(count)
            await trio.sleep(0.1)
            await east.cut()
        await east.wait_for(4)
        await trio.sleep(STABLE_SECONDS + 1)
        cut_at = trio.current_time()
        await east.cut()
        await east.wait_for(5)
        assert east.met[-1] - cut_at == pytest.approx(1, abs=0.3)


async def test_an_unreachable_container_is_dialed_for_ever_with_waits_that_stay_bounded(
    clock: MockClock,
) -> None:
    with nobody() as port, capture_logs() as lines:
        async with house() as at, connecting(at, endpoint(port)) as connector:
            await trio.sleep(100)
            assert connector.last_error == "Connection refused"
    waits = [line["seconds"] for line in lines if line["event"] == "connector.paused"]
    assert waits[:5] == [1, 2, 4, 8, 8]
    assert 13 <= len(waits) <= 15
    failures = [line for line in lines if line["event"] == "connector.failed"]
    assert failures[0]["address"] == f"127.0.0.1:{port}"
    assert failures[0]["reason"] == "Connection refused"


async def test_endpoints_are_tried_in_order_without_pause_and_the_first_is_preferred(
    clock: MockClock,
) -> None:
    with nobody() as port:
        async with (
            broker() as second,
            house() as at,
            connecting(at, endpoint(port), endpoint(second.port)),
        ):
            started = trio.current_time()
            await second.wait_for(1)
            assert second.met[0] - started < 0.5
    async with (
        broker() as first,
        broker() as second,
        house() as at,
        connecting(at, endpoint(first.port), endpoint(second.port)),
    ):
        await first.wait_for(1)
        await trio.sleep(0.1)
        await first.cut()
        await first.wait_for(2)
        assert not second.met


async def test_a_container_that_accepts_but_never_opens_is_passed_over(clock: MockClock) -> None:
    async with broker() as mute, broker() as second, house() as at:
        mute.says_hello = False
        async with connecting(at, endpoint(mute.port), endpoint(second.port)) as connector:
            await mute.wait_for(1)
            await mute.cut()
            await second.wait_for(1)
            await trio.sleep(0.1)
            assert connector.is_connected
            assert len(mute.met) == 1


async def test_a_stopped_connector_closes_its_connection_orderly_and_dials_no_more(
    clock: MockClock,
) -> None:
    async with broker() as east, house() as at:
        async with connecting(at, endpoint(east.port)) as connector:
            await east.wait_for(1)
            await trio.sleep(0.1)
            connection = next(iter(at.plane.switchboard.connections.values()))
            connector.stop()
            await at.plane.wait_empty()
            await trio.sleep(60)
        assert connection.failure is None
        assert len(east.met) == 1


def wrong_name(port: int, signed: Papers) -> Endpoint:
    trusting = TlsFiles(option="containers.east.tls", authorities=signed.authorities)
    return endpoint(port, TlsContext(trusting, TlsFiles.client_context), "elsewhere.example")


def unknown_authority(port: int, signed: Papers) -> Endpoint:
    files = TlsFiles(option="containers.east.tls")
    return endpoint(port, TlsContext(files, TlsFiles.client_context))


def right(port: int, signed: Papers) -> Endpoint:
    trusting = TlsFiles(option="containers.east.tls", authorities=signed.authorities)
    return endpoint(port, TlsContext(trusting, TlsFiles.client_context))


async def serve_tls(
    signed: Papers, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(b"hello")
            received = await receive_exactly(stream, 5)
            await stream.send_all(received * 40_000)
            while await stream.receive_some():
                pass
            await stream.aclose()

    context = signed.server_files().server_context()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(serve, [trio.SSLListener(each, context) for each in listeners])


async def test_a_container_is_dialed_over_tls_and_its_name_verified(signed: Papers) -> None:
    async with house() as at, trio.open_nursery() as nursery:
        port = await nursery.start(serve_tls, signed)
        async with connecting(at, right(port, signed)) as connector:
            while not at.plane.switchboard.connections:
                await trio.sleep(0.01)
            connection = next(iter(at.plane.switchboard.connections.values()))
            while connection.octets_in < 200_000:
                await trio.sleep(0.01)
            assert connector.is_connected
        assert connection.failure is None
        nursery.cancel_scope.cancel()


async def serve_briefly(
    contexts: list[ssl.SSLContext],
    resumed: list[bool],
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves with a context each, the last for ever; says hello and leaves."""

    async def serve(plain: trio.SocketStream) -> None:
        context = contexts[min(len(resumed), len(contexts) - 1)]
        stream = trio.SSLStream(plain, context, server_side=True)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.do_handshake()
            resumed.append(bool(stream.session_reused))
            await stream.send_all(b"hello")
            await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(serve, listeners)


async def met(
    signed: Papers, contexts: list[ssl.SSLContext], count: int, **fields: Any
) -> list[bool]:
    """Returns which of the first sessions of a connector were resumed."""
    resumed: list[bool] = []
    async with house() as at, trio.open_nursery() as nursery:
        port = await nursery.start(serve_briefly, contexts, resumed)
        place = attrs.evolve(right(port, signed), **fields)
        connector = Connector(
            container="east", endpoints=(place,), plane=at.plane, retry_seconds=0.01
        )
        nursery.start_soon(connector.run)
        while len(resumed) < count:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return resumed[:count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_container_that_is_dialed_again_resumes_the_session(
    signed: Papers, kind: str, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_module, "open_stream", partial(make_stream, kind))
    context = signed.server_files().server_context()
    context.maximum_version = version
    assert await met(signed, [context], 3) == [False, True, True]


async def test_a_server_that_has_forgotten_the_session_gets_a_full_handshake(
    signed: Papers,
) -> None:
    one, other = (signed.server_files().server_context() for _ in range(2))
    assert await met(signed, [one, other], 3) == [False, False, True]


async def test_a_session_of_replaced_files_is_not_resumed(signed: Papers) -> None:
    context = signed.server_files().server_context()
    files = TlsFiles(option="containers.east.tls", authorities=signed.authorities)
    assert await met(signed, [context], 3, tls=files.client_context) == [False, False, False]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            wrong_name,
            "the peer's certificate is refused: Hostname mismatch, certificate is not valid for"
            " 'elsewhere.example'.",
        ),
        (
            unknown_authority,
            "the peer's certificate is refused: unable to get local issuer certificate",
        ),
    ],
)
async def test_a_peer_that_cannot_be_verified_is_refused_with_the_reason(
    signed: Papers, make: Callable[[int, Papers], Endpoint], reason: str
) -> None:
    async with house() as at, trio.open_nursery() as nursery:
        port = await nursery.start(serve_tls, signed)
        async with connecting(at, make(port, signed)) as connector:
            while connector.last_error is None:
                await trio.sleep(0.01)
            assert connector.last_error == reason
        nursery.cancel_scope.cancel()


async def test_a_handshake_that_takes_too_long_is_a_failure(
    signed: Papers, clock: MockClock
) -> None:
    async with broker() as mute, house() as at:
        mute.says_hello = False
        secure = attrs.evolve(right(mute.port, signed), tls=lambda: _CLIENT)
        async with connecting(at, secure) as connector:
            await trio.sleep(15.5)
            assert connector.last_error == "no TLS handshake within 15 s"


_CLIENT = TlsFiles(option="containers.east.tls").client_context()


async def test_its_standing_tells_since_when_where_how_often_and_why(clock: MockClock) -> None:
    async with broker() as east, house() as at:
        with nobody() as closed:
            places = (endpoint(closed), endpoint(east.port))
            async with connecting(at, *places) as connector:
                first = connector.status
                assert (first.is_connected, first.address, first.opened) == (False, None, 0)
                await east.wait_for(1)
                await trio.sleep(5)
                status = connector.status
                assert status.is_connected
                assert status.address == f"127.0.0.1:{east.port}"
                assert status.seconds == pytest.approx(5, abs=0.5)
                assert (status.opened, status.failed) == (1, 1)
                assert status.error == "Connection refused"
                await east.cut()
                await trio.sleep(0.5)
                lost = connector.status
                assert not lost.is_connected
                assert lost.seconds == pytest.approx(0.5, abs=0.4)
                assert (lost.opened, lost.failed) == (1, 1)
                assert lost.error
                await east.wait_for(2)
                await trio.sleep(0.1)
                assert (connector.status.opened, connector.status.failed) == (2, 2)
