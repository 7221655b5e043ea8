"""Connections are cut and held up, workers and the router die and are replaced: once means once.

What was sent is compared with what was taken (``ChaosRun``); ``tests/pipeline`` has the ledger of
such a run audited, with a million deliveries.

About a minute by default; ``ROUTER_CHAOS_SECONDS`` or ``ROUTER_CHAOS_DELIVERIES`` make it
longer, and ``ROUTER_CHAOS_SEED`` different.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos_run import ChaosRun

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("ROUTER_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
DELIVERIES = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "0"))


async def test_every_delivery_arrives_once_whatever_happens_to_connections_and_the_router(
    tmp_path: Path,
) -> None:
    chaos = ChaosRun(folder=tmp_path, seed=SEED, seconds=SECONDS, deliveries=DELIVERIES)
    await chaos.run()
    print(chaos.told())
    chaos.check()


EACH = [f"{workers}\n  homes: {scope}" for workers in (4, 3, 2) for scope in ("all", "first")]
SPREAD = ["4\n  homes: all", "3\n  homes: all"]
FOUR_AND_ONE = ["4\n  homes: all", "1"]


async def move(tmp_path: Path, sizes: list[str], **more: Any) -> None:
    """Has each start have other workers, and other homes."""
    chaos = ChaosRun(
        folder=tmp_path,
        seed=SEED,
        seconds=SECONDS,
        deliveries=DELIVERIES,
        sizes=sizes,
        **more,
    )
    await chaos.run()
    print(chaos.told())
    chaos.check()


@pytest.mark.parametrize("sizes", [EACH, FOUR_AND_ONE], ids=["each", "four-and-one"])
async def test_once_means_once_while_addresses_move_from_worker_to_worker(
    tmp_path: Path, sizes: list[str]
) -> None:
    """These addresses have their homes at any of four workers."""
    await move(tmp_path, sizes, kills=5, addresses=("orders.1", "orders.eu"))


@pytest.mark.parametrize("sizes", [SPREAD, FOUR_AND_ONE], ids=["spread", "four-and-one"])
async def test_once_means_once_for_senders_to_the_anonymous_terminus(
    tmp_path: Path, sizes: list[str]
) -> None:
    """One unsettled map spreads over four homes, three after a restart, or one."""
    addresses = ("orders.1", "orders.2")
    await move(tmp_path, sizes, kills=3, addresses=addresses, is_anonymous=True)
