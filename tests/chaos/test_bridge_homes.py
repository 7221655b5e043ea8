"""Bridges whose homes are at several workers, each of which is killed while messages flow."""

import itertools
import random
from pathlib import Path

import pytest
import trio

from router.core.homes import Homes
from router.service.config import read
from router.service.placement import find_homes
from tests.support.chaos import Books, Client, numbered, receiving, sending, watch
from tests.support.running import router_beside
from tests.support.workers import address_of, kill, processes

pytestmark = pytest.mark.long

BROKER = """
router: {id: broker, workers: 1, admin: off, log_format: json}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "q.#", guarantee: exactly-once, unroutable: hold}]
"""

BRIDGES = ("a", "b", "c")
MESSAGES = 1500
KILLS = 4
STALL_SECONDS = 120.0


def bridging(port: str) -> str:
    """A router with a pair of containers for each bridge; all of them are the broker."""
    ends = [f"{name}{side}" for name in BRIDGES for side in ("from", "to")]
    dialed = "".join(
        f'  {end}: {{url: "amqp://127.0.0.1:{port}", is_router: true, retry_limit_seconds: 1}}\n'
        for end in ends
    )
    routes = "".join(
        f"  - {{address: {name}, from: {name}from/q.{name}.in, to: {name}to/q.{name}.out,"
        " guarantee: exactly-once}\n"
        for name in BRIDGES
    )
    own = "router: {id: bridge, workers: 3, homes: all, admin: off, log_format: json}\n"
    return f"{own}listeners: []\ncontainers:\n{dialed}routes:\n{routes}"


def homes_in(text: str) -> set[int]:
    """The workers that are the homes of the bridges."""
    config = read(text, "router.yaml", Path(), {})
    homes: Homes = find_homes(config, 3)
    return {homes.of(route.address, route) for route in config.table.routes}


async def test_what_crosses_a_bridge_comes_once_though_its_home_is_killed(tmp_path: Path) -> None:
    chance, books = random.Random(3), Books()
    (tmp_path / "broker").mkdir()
    (tmp_path / "bridge").mkdir()
    async with router_beside(BROKER, tmp_path / "broker") as broker:
        port = address_of(broker).rpartition(":")[2]
        text = bridging(port)
        homes = sorted(homes_in(text))
        assert len(homes) > 1
        async with router_beside(text, tmp_path / "bridge") as bridge:
            senders, receivers = _clients(books, int(port))
            async with trio.open_nursery() as running:
                running.start_soon(watch, lambda: sum(books.taken.values()), STALL_SECONDS)
                for receiver in receivers:
                    running.start_soon(receiver.run)
                async with trio.open_nursery() as traffic:
                    for sender in senders:
                        traffic.start_soon(sender.run)
                    for _, home in zip(range(KILLS), itertools.cycle(homes), strict=False):
                        await trio.sleep(chance.uniform(0.2, 0.8))
                        while home not in processes(bridge):
                            await trio.sleep(0.05)
                        kill(processes(bridge)[home])
                while books.lost:
                    await trio.sleep(0.05)
                running.cancel_scope.cancel()
    assert len(books.sent) == len(BRIDGES) * MESSAGES
    assert not books.duplicated


def _clients(books: Books, port: int) -> tuple[list[Client], list[Client]]:
    senders = [
        sending(
            f"sender-{name}",
            f"q.{name}.in",
            port,
            numbered(books.count(iter(range(index * MESSAGES, (index + 1) * MESSAGES))), 50),
            window=50,
        )
        for index, name in enumerate(BRIDGES)
    ]
    receivers = [receiving(f"receiver-{n}", f"q.{n}.out", port, books.take) for n in BRIDGES]
    return senders, receivers
