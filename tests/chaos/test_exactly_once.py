"""Connections are cut, workers and the router are killed at random: exactly once means once.

What was sent is compared with what was taken (``ChaosRun``); ``tests/pipeline`` has the ledger of
such a run audited.

Under a minute by default; ``ROUTER_CHAOS_SECONDS`` and ``ROUTER_CHAOS_SEED`` make it longer, and
different.
"""

import os
from pathlib import Path

from tests.support.chaos_run import ChaosRun

SECONDS = float(os.environ.get("ROUTER_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))
DELIVERIES = int(os.environ.get("ROUTER_CHAOS_DELIVERIES", "0"))


async def test_every_delivery_arrives_once_though_connections_and_the_router_die(
    tmp_path: Path,
) -> None:
    chaos = ChaosRun(folder=tmp_path, seed=SEED, seconds=SECONDS, deliveries=DELIVERIES)
    await chaos.run()
    print(chaos.told())
    chaos.check()
