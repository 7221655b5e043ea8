"""A container that dials in, as target and as source, through reloads, kills and reconnects."""

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import ACCEPTED, DeliveryState
from tests.service.test_dial_in import CONFIG, EXACT, connected
from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.container import Container
from tests.support.ports import free_port
from tests.support.running import RunningRouter, router_beside
from tests.support.workers import kill, lines, processes

PATIENCE_SECONDS = 240
ROUND = 300
"""Messages of each direction that are on their way at each fault."""

EXACTLY = 3000
"""Messages of an exactly-once route."""

IN_DOUBT_MOST = 250
"""So many may be repeated by a fault: the credit of both links, and what waits in between."""


@pytest.mark.long
async def test_nothing_is_lost_whatever_is_reloaded_killed_or_cut(tmp_path: Path) -> None:
    port, plants, admin = free_port(), free_port(), free_port()
    config = CONFIG.format(workers=2, port=port, plants=plants, admin=admin, several="refuse")
    plant = Plant(Container(name="gateway", redelivers=True), plants)
    books, read = Books(), Counter[str]()

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        (text,) = re.findall(rb"reading [0-9]+!", bytes(delivery.payload))
        read[text.decode()] += 1
        return ACCEPTED

    faults = (reload, kill_worker(1), lose, kill_worker(2))
    texts = [f"reading {number}!" for number in range(len(faults) * ROUND)]
    with trio.fail_after(PATIENCE_SECONDS):
        async with router_beside(config, tmp_path) as router, trio.open_nursery() as nursery:
            nursery.start_soon(plant.run)
            nursery.start_soon(receiving("reader", "readings", port, take).run)
            for number, fault in enumerate(faults):
                await connected(admin)
                first, after = number * ROUND, (number + 1) * ROUND
                plant.container.messages["sensors"] += texts[first:after]
                supply = numbered(books.count(iter(range(first, after))), 100)
                nursery.start_soon(sending(f"sender-{number}", "orders", port, supply).run)
                while len(plant.orders) < first + 20:
                    await trio.sleep(0.002)
                await fault(router, tmp_path, plant)
                while len(read) < after or len(plant.orders) < after:
                    await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert {*plant.orders} == books.sent == {*range(len(texts))}
    assert {*read} == {*texts}
    for times in (plant.orders, read):
        assert sum(times.values()) - len(times) <= 3 * IN_DOUBT_MOST, "what was in doubt at most"


class Plant:
    """A container that dials in again and again."""

    def __init__(self, container: Container, port: int) -> None:
        self.container = container
        self.port = port
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        """Dials in, for ever."""
        while True:
            self.scope = trio.CancelScope()
            with self.scope, contextlib.suppress(OSError):
                async with self.container.dialed_in(self.port, "plant7") as line:
                    await line.over.wait()
            await trio.sleep(0.05)

    @property
    def orders(self) -> Counter[int]:
        """Counts the messages that have come, by their numbers."""
        return Counter(int(payload[-20:]) for payload in self.container.received["orders"])


Fault = Callable[[RunningRouter, Path, Plant], Awaitable[None]]


async def reload(router: RunningRouter, folder: Path, plant: Plant) -> None:
    """The file has another route, and the plant's routes have other limits."""
    path = folder / "router.yaml"
    text = path.read_text().replace("to: plant7}", "to: plant7, link_credit: 50}")
    path.write_text(text + "  - {address: more}\n")
    router.process.send_signal(signal.SIGHUP)
    await trio.to_thread.run_sync(router.wait_for, "config.reloaded")


async def lose(router: RunningRouter, folder: Path, plant: Plant) -> None:
    """The plant's connection is lost."""
    plant.scope.cancel()


def kill_worker(number: int) -> Fault:
    """A worker ends by SIGKILL; the plant may be connected to it, or the clients."""

    async def fault(router: RunningRouter, folder: Path, plant: Plant) -> None:
        known = len(lines(router, "worker.started"))
        kill(processes(router)[number])
        while len(lines(router, "worker.started")) <= known:
            await trio.sleep(0.02)

    return fault


@pytest.mark.long
@pytest.mark.parametrize("is_source", [False, True], ids=["target", "source"])
async def test_exactly_once_holds_through_kills_of_the_router_that_it_dials(
    tmp_path: Path, is_source: bool
) -> None:
    """The plant is a router behind a firewall; the hub begins anew on its state directory."""
    ports = {"hub": free_port(), "plant": free_port()}
    login = ", sasl: {mechanisms: [PLAIN, ANONYMOUS], users: {plant7: plant7}}"
    dials = "plant7: {dials_in: true, identity: plant7, resumes: true}"
    there = f'hub: {{url: "amqp://plant7:plant7@127.0.0.1:{ports["hub"]}", retry_seconds: 20ms}}'
    configs = {
        "hub": EXACT.format(
            name="hub", port=ports["hub"], sasl=login, containers=dials, to=", to: plant7"
        ),
        "plant": EXACT.format(
            name="plant", port=ports["plant"], sasl="", containers=there, to=""
        ),
    }  # fmt: skip
    for name in configs:
        (tmp_path / name).mkdir()
    books = Books()
    near, far = ("plant", "hub") if is_source else ("hub", "plant")
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            AsyncExitStack() as stack,
            router_beside(configs["plant"], tmp_path / "plant"),
            trio.open_nursery() as nursery,
        ):
            hub = await stack.enter_async_context(router_beside(configs["hub"], tmp_path / "hub"))
            supply = numbered(books.count(iter(range(EXACTLY))), 100)
            nursery.start_soon(receiving("reader", "plant7/q", ports[far], books.take).run)
            nursery.start_soon(sending("writer", "plant7/q", ports[near], supply).run)
            for kill_number in range(1, 4):
                while len(books.taken) < kill_number * EXACTLY // 5:
                    await trio.sleep(0.002)
                hub.kill()
                again = router_beside(configs["hub"], tmp_path / "hub")
                hub = await stack.enter_async_context(again)
            while len(books.taken) < EXACTLY:
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert not books.lost
    assert not books.duplicated
