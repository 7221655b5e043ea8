"""What a table of many routes costs at the start and at a reload, and the seconds after a start."""

import os
import signal
import tempfile
import time
from pathlib import Path

from tests.bench import subjects
from tests.bench.cases import Case
from tests.bench.measure import Conditions, Figures, run_load
from tests.bench.subjects import Subject
from tests.bench.workers import cpu_seconds

FEW = 10_000
MANY = 100_000
LATER_SECONDS = 4.0
"""After that nothing of the start is under way any more."""

RELOAD_SECONDS = 600.0
"""Of which a busy machine may need some."""


def measure_tables(conditions: Conditions, *, quick: bool) -> Figures:
    """Measures processor time of each route, with few and with many, and the first seconds.

    Returns:
        ``start_few_us``, ``start_many_us``, ``reload_few_us``, ``reload_many_us``: of the router
        for each route; ``start_growth``, ``reload_growth``: many's by few's, 1 if it is linear.
        ``first_part``: messages per second in the first seconds after the router began to answer,
        as a part of the rate later; not in the short run, nor the figures of many routes.
    """
    found: Figures = {}
    for name, routes in (("few", FEW),) if quick else (("few", FEW), ("many", MANY)):
        case = Case(name="tables", routes=routes, program="lean")
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            with subjects.router(case, conditions.subject_core, directory) as router:
                used = cpu_seconds(router.process)
                if routes == MANY:
                    found["first_part"] = _first_part(router, conditions)
                bare = _start_seconds(conditions)
                found[f"start_{name}_us"] = (used - bare) / routes * 1e6
                found[f"reload_{name}_us"] = _reload(router, case, directory) / routes * 1e6
    for what in () if quick else ("start", "reload"):
        found[f"{what}_growth"] = found[f"{what}_many_us"] / found[f"{what}_few_us"]
    return found


def _first_part(router: Subject, conditions: Conditions) -> float:
    first = run_load(router, conditions)
    time.sleep(LATER_SECONDS)
    return first["messages_per_second"] / run_load(router, conditions)["messages_per_second"]


def _start_seconds(conditions: Conditions) -> float:
    """Tells what a start takes without a table: processes, imports, the journal."""
    case = Case(name="bare", routes=1)
    with (
        tempfile.TemporaryDirectory() as directory,
        subjects.router(case, conditions.subject_core, Path(directory)) as router,
    ):
        return cpu_seconds(router.process)


def _reload(router: Subject, case: Case, directory: Path) -> float:
    """Reloads a file with one route more; returns the processor time that it took."""
    file, log = directory / "router.yaml", directory / "router.log"
    before, seen = cpu_seconds(router.process), log.stat().st_size
    with file.open("a") as added:
        added.write("  - address: another\n")
    os.kill(router.process, signal.SIGHUP)
    until = time.monotonic() + RELOAD_SECONDS
    while b"config.reloaded" not in log.read_bytes()[seen:]:
        if time.monotonic() > until:
            raise RuntimeError(f"{case.routes} routes were not reloaded")
        time.sleep(0.05)
    return cpu_seconds(router.process) - before
