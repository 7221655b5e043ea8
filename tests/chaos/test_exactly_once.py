"""Connections are cut, workers and the router are killed at random: exactly once means once.

Two senders, two receivers, our own client, which resumes its links; every connection goes through
a relay that cuts it now and then. `router run` has two workers; one of them, or all of it, is
killed with SIGKILL now and then, and its file is changed and loaded again. What was sent is
compared with what was taken.

Under a minute by default; ``ROUTER_CHAOS_SECONDS`` and ``ROUTER_CHAOS_SEED`` make it longer, and
different.
"""

import itertools
import os
import random
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from tests.support.chaos import (
    START_SECONDS,
    Books,
    Client,
    MortalRouter,
    from_number,
    numbered,
    receiving,
    sending,
    watch,
)
from tests.support.cuttable import Cuttable, cuttable
from tests.support.rabbitmq import free_port

SECONDS = float(os.environ.get("ROUTER_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
DELIVERIES = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "0"))
STALL_SECONDS = 2 * START_SECONDS
"""Longer than a start of the router, during which nothing moves."""
SETTLE_SECONDS = 1.0
"""For receivers to hear of the last settlements."""

CONFIG = """
router:
  id: chaos
  workers: 2
  admin: off
  log_format: json
  state: {state}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: orders
    guarantee: exactly-once
    unroutable: hold
"""


async def _make_trouble(
    chance: random.Random, router: MortalRouter, relays: list[Cuttable], nursery: trio.Nursery
) -> None:
    text = router.config.read_text()
    until = trio.current_time() + SECONDS
    while trio.current_time() < until:
        await trio.sleep(chance.uniform(0.2, 1.5))
        dice = chance.random()
        if dice < 0.15:
            await router.kill()
            await trio.sleep(chance.uniform(0.0, 0.5))
            await router.start(nursery)
        elif dice < 0.3:
            router.kill_worker(chance.choice((1, 2)))
        elif dice < 0.4:
            router.config.write_text(text + chance.choice(("", "  - address: other\n")))
            router.reload()
        else:
            chance.choice(relays).cut()


async def test_every_delivery_arrives_once_though_connections_and_the_router_die(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    port = free_port()
    config = tmp_path / "router.yaml"
    config.write_text(CONFIG.format(port=port, state=tmp_path / "state"))
    router = MortalRouter(config)
    books = Books()
    is_over = False

    def until_over(first: int) -> "itertools.takewhile[int]":
        return itertools.takewhile(
            lambda _: not is_over and (not DELIVERIES or len(books.sent) < DELIVERIES),
            from_number(first, 2),
        )

    async with trio.open_nursery() as nursery:
        await router.start(nursery)
        async with AsyncExitStack() as stack:
            relays = [await stack.enter_async_context(cuttable(port)) for _ in range(4)]
            senders = [
                sending(
                    f"sender-{index}",
                    "orders",
                    relays[index].port,
                    numbered(books.count(until_over(index)), 50),
                )
                for index in range(2)
            ]
            receivers = [
                receiving(f"receiver-{index}", "orders", relays[2 + index].port, books.take)
                for index in range(2)
            ]
            clients: list[Client] = [*senders, *receivers]
            async with trio.open_nursery() as running:
                running.start_soon(
                    watch, lambda: sum(c.machine.report.progress for c in clients), STALL_SECONDS
                )
                for receiver in receivers:
                    running.start_soon(receiver.run)
                async with trio.open_nursery() as traffic:
                    for sender in senders:
                        traffic.start_soon(sender.run)
                    await _make_trouble(chance, router, relays, nursery)
                    is_over = True
                await trio.sleep(SETTLE_SECONDS)
                for receiver in receivers:
                    receiver.conversation.finish()
                running.cancel_scope.cancel()
        code = await router.end()
        nursery.cancel_scope.cancel()

    print(
        f"seed {SEED}: {len(books.sent)} sent, {len(books.taken)} taken, {router.kills} kills,"
        f" {router.worker_kills} of workers, {len(router.matching('config.reloaded'))} reloads,"
        f" {sum(relay.cuts for relay in relays)} cuts,"
        f" resumed {[c.machine.report.resumed for c in clients]},"
        f" resent {[c.machine.report.resent for c in clients]}"
    )
    failed = router.matching('"level": "error"', "Traceback", "defect")
    failed = [line for line in failed if "worker.ended" not in line]
    assert not failed, failed[:5]
    assert code == 0
    assert not books.lost, f"{len(books.lost)} lost: {sorted(books.lost)[:5]}"
    assert not books.duplicated, f"{len(books.duplicated)} duplicated"
    assert [c.machine.report.in_doubt for c in clients] == [0, 0, 0, 0]
    assert router.kills + router.worker_kills > 0
