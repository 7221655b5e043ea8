"""Five sites: paths are cut, sites parted, routers killed and stopped: once means once.

``ROUTER_MESH_FAULTS`` and ``ROUTER_MESH_DELIVERIES`` make the run longer (the slow one has 1,000
faults and a million deliveries), ``ROUTER_MESH_SEED`` different. ``ROUTER_MESH_WORKERS`` says how
many workers each router has, ``ROUTER_MESH_PAUSE`` how many seconds lie between two faults at most,
and ``ROUTER_MESH_SECONDS`` after how many the trouble ends in any case.
"""

import itertools
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from router.core.homes import rendezvous
from router.routes.route import Guarantee
from tests.support.mesh_run import MeshRun

FAULTS = int(os.environ.get("ROUTER_MESH_FAULTS", "12"))
DELIVERIES = int(os.environ.get("ROUTER_MESH_DELIVERIES", "0"))
WORKERS = int(os.environ.get("ROUTER_MESH_WORKERS", "1"))
PAUSE = float(os.environ.get("ROUTER_MESH_PAUSE", "1.5"))
SECONDS = float(os.environ.get("ROUTER_MESH_SECONDS", "inf"))
SEED = int(os.environ.get("ROUTER_MESH_SEED", "1"))


async def run(folder: Path, **changes: Any) -> None:
    """Runs, and checks; ``changes`` are to what the environment asks for."""
    asked = {"faults": FAULTS, "deliveries": DELIVERIES, "workers": WORKERS, **changes}
    mesh = MeshRun(
        folder=folder,
        seed=SEED,
        pause_seconds=PAUSE,
        most_seconds=SECONDS,
        tell=partial(print, flush=True),
        **asked,
    )
    await mesh.run()
    print(mesh.told())
    mesh.check()


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_every_delivery_arrives_once_whatever_happens_to_paths_and_routers(
    tmp_path: Path,
) -> None:
    await run(tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_the_same_where_the_worker_with_the_neighbors_is_not_the_address_s_home(
    tmp_path: Path,
) -> None:
    workers = max(WORKERS, 2)
    address = next(
        each for each in map("orders.{}".format, itertools.count()) if rendezvous(each, workers) > 1
    )
    await run(tmp_path, workers=workers, address=address, more="  homes: all")


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_at_least_once_nothing_is_lost_that_its_sender_does_not_know_of(
    tmp_path: Path,
) -> None:
    await run(tmp_path, guarantee=Guarantee.AT_LEAST_ONCE)


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
async def test_a_million_deliveries_through_a_thousand_faults(tmp_path: Path) -> None:
    await run(tmp_path, faults=1_000, deliveries=1_000_000)
