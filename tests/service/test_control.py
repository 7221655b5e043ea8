"""What a worker in this process answers, over real sockets."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from router.core.listing import Filter, LinkPosition
from router.core.resolve import Decision
from router.core.snapshot import RouteRecord
from router.core.trace import TraceLine
from router.net.listener import Listeners
from router.routes.match import PatternError
from router.service.assembly import named_listeners
from router.service.config import read
from router.service.control import LocalControl, UnknownRouteError
from router.service.worker import Worker, make_worker
from tests.support.clients import receiving, sending

BASIC = """
router: {id: under-test, workers: 1, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes:
  - {address: orders, stall_seconds: 500ms}
  - {address: "#"}
"""

WITH_CONTAINER = (
    BASIC
    + """
containers:
  east: {url: "amqp://app:secret@127.0.0.1:1"}
"""
)

EVERYTHING = Filter()


@attrs.define(eq=False)
class Running:
    worker: Worker
    control: LocalControl
    listeners: Listeners

    @property
    def address(self) -> str:
        return self.listeners.addresses[0]


@contextlib.asynccontextmanager
async def running(text: str = BASIC) -> AsyncIterator[Running]:
    worker = make_worker(read(text, "router.yaml", Path(), {}))
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        control = LocalControl(worker, 7)
        await nursery.start(control.run)
        listeners = Listeners(worker.admit, nursery)
        named = named_listeners(worker.assembly.config)
        await listeners.configure({name: each.bind for name, each in named.items()})
        yield Running(worker, control, listeners)
        listeners.close()
        nursery.cancel_scope.cancel()


def fresh(router: Running) -> None:
    """Makes the next snapshot a new one."""
    router.control._taken_at = float("-inf")


async def until(is_true: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Looks again and again, for a while."""
    with trio.fail_after(seconds):
        while not await is_true():
            await trio.sleep(0.02)


async def test_a_snapshot_tells_of_containers_and_the_process() -> None:
    async with running(WITH_CONTAINER) as router:
        snapshot = await router.control.snapshot()
        assert snapshot.worker == 7
        assert snapshot.core.routes == ()
        (east,) = snapshot.containers
        assert (east.name, east.is_connected) == ("east", False)
        assert east.urls == ("amqp://app:***@127.0.0.1:1",)
        assert snapshot.vitals.resident_octets > 0


async def test_a_snapshot_is_good_for_a_moment_however_many_ask() -> None:
    async with running() as router:
        first = await router.control.snapshot()
        assert await router.control.snapshot() is first
        fresh(router)
        assert await router.control.snapshot() is not first


async def test_traffic_is_counted() -> None:
    async with (
        running() as router,
        receiving(router.address, "prices") as sink,
        sending(router.address, "prices", [b"x"] * 500) as source,
    ):
        await source.wait_until(lambda: source.outcomes["Accepted"] == 500)
        assert len(sink.bodies) == 500
        (route,) = [each for each in await routes_of(router) if each.name == "#"]
        assert (route.received.deliveries, route.sent.deliveries) == (500, 500)
        assert (route.received.accepted, route.sent.accepted) == (500, 500)


async def test_connections_links_and_deliveries_are_listed() -> None:
    async with (
        running() as router,
        receiving(router.address, "prices", window=5) as sink,
    ):
        sink.is_paused = True  # reads nothing more, so accepts nothing
        async with sending(router.address, "prices", [b"payload"] * 20) as source:
            await source.wait_until(lambda: bool(source.sent))
            page = await router.control.connections(EVERYTHING, 10, 0)
            assert {entry.record.container for entry in page.entries} == {
                sink.attach.name,
                source.attach.name,
            }
            assert all(entry.octets_in > 0 for entry in page.entries)
            assert all(entry.listener for entry in page.entries)
            links = await router.control.links(EVERYTHING, 10, LinkPosition())
            assert {link.address for link in links.links} == {"prices"}

            async def is_listed() -> bool:
                found = await router.control.deliveries(EVERYTHING, 10, None)
                return len(found.deliveries) + found.on_lane > 0

            await until(is_listed)
        sink.is_paused = False
        sink.pulse()


async def test_a_stall_is_logged_once_and_so_is_its_end() -> None:
    async with running() as router:
        with capture_logs() as logs:
            async with sending(router.address, "orders", [b"x"] * 3) as source:

                async def is_told() -> bool:
                    fresh(router)
                    await router.control.snapshot()
                    return any(line["event"] == "route.stalled" for line in logs)

                await until(is_told)
                await trio.sleep(0.6)
                async with receiving(router.address, "orders") as sink:
                    await source.wait_until(lambda: source.outcomes["Accepted"] == 3)
                    assert len(sink.bodies) == 3
                    fresh(router)
                    snapshot = await router.control.snapshot()
        told = [line for line in logs if line["event"].startswith("route.")]
        assert [line["event"] for line in told] == ["route.stalled", "route.moved_again"]
        assert told[0]["route"] == "orders"
        assert told[0]["reason"] == "1 sender waits: nobody receives from it"
        assert snapshot.stalls == {"orders": 1}


async def test_a_paused_route_holds_its_senders_until_it_goes_on() -> None:
    async with (
        running() as router,
        receiving(router.address, "prices") as sink,
    ):
        await router.control.pause("#")
        async with sending(router.address, "prices", [b"x"] * 10) as source:
            await source.wait_until(lambda: source.is_attached)
            await trio.sleep(0.1)
            assert not source.sent
            paused = {route.name: route.is_paused for route in await routes_of(router)}
            assert paused == {"#": True}
            await router.control.resume("#")
            await source.wait_until(lambda: source.outcomes["Accepted"] == 10)
            assert len(sink.bodies) == 10


async def routes_of(router: Running) -> list[RouteRecord]:
    fresh(router)
    return list((await router.control.snapshot()).core.routes)


async def test_a_route_that_does_not_exist_is_refused() -> None:
    async with running() as router:
        with pytest.raises(UnknownRouteError):
            await router.control.pause("nothing")
        with pytest.raises(UnknownRouteError):
            await router.control.resume("nothing")


async def test_nothing_in_doubt_is_nothing_to_resolve() -> None:
    async with running() as router:
        assert await router.control.resolve(b"tag", None, Decision.ACCEPT) == 0


async def test_a_trace_follows_deliveries_to_their_end_and_traffic_goes_on() -> None:
    async with (
        running() as router,
        receiving(router.address, "prices") as sink,
        sending(
            router.address, "prices", (b"secret %d" % number for number in range(50))
        ) as source,
    ):
        await source.wait_until(lambda: source.outcomes["Accepted"] == 50)
        lines: list[TraceLine] = []
        async with (
            router.control.trace("prices", 3) as feed,
            sending(router.address, "prices", [b"secret"] * 20) as other,
        ):
            with trio.fail_after(60):
                while taken := await feed.take():
                    lines += taken
            await other.wait_until(lambda: other.outcomes["Accepted"] == 20)
        assert len(sink.bodies) == 70
        of_first = [(line.what, line.is_incoming) for line in lines if line.delivery == 1]
        assert of_first == [
            ("transfer", True),
            ("decision", None),
            ("transfer", False),
            ("disposition", True),
            ("disposition", False),
        ]
        assert max(line.delivery or 0 for line in lines) == 3
        assert "secret" not in str(lines)


async def test_a_trace_that_nothing_comes_for_can_be_left() -> None:
    async with running() as router:
        with trio.move_on_after(0.2) as patience:
            async with router.control.trace("prices", 3) as feed:
                await feed.take()
        assert patience.cancelled_caught
        async with (
            receiving(router.address, "prices"),
            sending(router.address, "prices", [b"x"]) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == 1)


async def test_a_trace_of_no_pattern_is_refused() -> None:
    async with running() as router:
        with pytest.raises(PatternError):
            async with router.control.trace("a.#b", 3):
                pass
