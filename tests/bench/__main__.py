"""The benchmark: ``python -m tests.bench --help``."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from tests.bench import history, show
from tests.bench.beside import measure_beside
from tests.bench.cases import CASES, Case
from tests.bench.crossing import measure_crossing
from tests.bench.exact import measure_exact
from tests.bench.goals import Report
from tests.bench.hops import measure_hops
from tests.bench.measure import (
    Conditions,
    Figures,
    Result,
    measure,
    measure_idle,
    measure_storm,
    measure_timer,
    measure_unsettled,
    runs_within,
)
from tests.bench.programs import RESULTS
from tests.bench.shovel import measure_shovel
from tests.bench.stored import measure_stored
from tests.bench.tables import measure_tables
from tests.bench.workers import measure_workers


def _measure_postgres(conditions: Conditions, _: bool) -> Figures:
    # needs the extra router[postgres], which nothing else here does
    from tests.bench.postgres import measure_postgres

    return measure_postgres(conditions)


OTHERS: Mapping[str, Callable[[Conditions, bool], Figures]] = {
    "timer": lambda conditions, _: measure_timer(conditions),
    "idle": lambda conditions, quick: measure_idle(1000 if quick else 10_000, conditions),
    "idle TLS": lambda conditions, quick: measure_idle(  # more take longer than the idle time-out
        1000 if quick else 3000, conditions, tls=True
    ),
    "storm": lambda conditions, quick: measure_storm(200 if quick else 1000, conditions),
    "unsettled": lambda conditions, quick: measure_unsettled(
        100_000 if quick else 1_000_000, conditions
    ),
    "stored": lambda conditions, _: measure_stored(conditions),
    "stored, beside": lambda conditions, _: measure_beside(conditions),
    "exact": lambda conditions, _: measure_exact(conditions),
    "workers": lambda conditions, _: measure_workers(2 * conditions.seconds),
    "crossing": lambda conditions, _: measure_crossing(conditions),
    "hops": lambda conditions, _: measure_hops(conditions),
    "shovel": lambda conditions, _: measure_shovel(100, conditions.runs),
    "shovel, 10 KB": lambda conditions, _: measure_shovel(10_000, conditions.runs),
    "postgres": _measure_postgres,
    "tables": lambda conditions, quick: measure_tables(conditions, quick=quick),
}
"""What is no load that a rate is measured of: name → how it is measured, the short way or not."""

LONG: Final = frozenset({"shovel", "shovel, 10 KB", "postgres"})
"""Those that take minutes, and RabbitMQ or PostgreSQL: measured only if they are asked for."""

WHOLE: Final = frozenset({"crossing", "hops"})
"""Those that start several routers or workers: measured in the short run only if asked for."""


def _core(text: str) -> int | None:
    return None if text == "any" else int(text)


@click.command()
@click.option("--quick", is_flag=True, help="the short run: a few cases, once, two seconds each")
@click.option("--only", multiple=True, metavar="TEXT", help="cases whose name contains it")
@click.option("--runs", type=int, help="per case; the median counts; default: 3, quick: 1")
@click.option("--seconds", type=float, default=1.5, help="of each run; default: 1.5")
@click.option("--minutes", type=float, default=11, help="runs get fewer to fit in; default: 11")
@click.option("--against", multiple=True, metavar="URL", help="another router, amqp://HOST:PORT")
@click.option("--subject-core", default="0", help="core of relay and router, or any; default: 0")
@click.option("--load-core", default="1", help="core of the load program, or any; default: 1")
@click.option("--json", "output", type=click.Path(path_type=Path), help="file for the figures")
@click.option("--plot", type=click.Path(path_type=Path), help="file for a plot, as SVG")
@click.option("--list", "listing", is_flag=True, help="name the cases, and measure nothing")
def main(
    *,
    quick: bool,
    only: Sequence[str],
    runs: int | None,
    seconds: float,
    minutes: float,
    against: tuple[str, ...],
    subject_core: str,
    load_core: str,
    output: Path | None,
    plot: Path | None,
    listing: bool,
) -> None:
    """Measure throughput and latency of the router beside an octet relay.

    Prints a table, writes results/latest.json and results/latest.svg, and adds to
    results/history.jsonl, with which the next run is compared. A case that cannot be measured is
    named at the end, and stops nothing.
    """
    cases = [case for case in CASES if case.is_quick or not quick]
    left_out = LONG | WHOLE if quick else LONG
    others = [name for name in OTHERS if name not in left_out]
    if only:
        cases = [case for case in CASES if any(text in case.name for text in only)]
        others = [name for name in OTHERS if any(text in name for text in only)]
    if listing:
        click.echo("\n".join([case.name for case in cases] + others))
        return
    one_core = os.cpu_count() == 1
    conditions = Conditions(
        subject_core=None if one_core else _core(subject_core),
        load_core=None if one_core else _core(load_core),
        runs=runs or (1 if quick else 3),
        seconds=seconds,
        against=against,
    )
    report = _measure_all(cases, others, conditions, quick, time.monotonic() + minutes * 60)
    entry = history.entry(report)
    changed = history.changes(entry)
    history.append(entry)
    text = json.dumps(entry, indent=1)
    for file in filter(None, (RESULTS / "latest.json", output)):
        file.write_text(text + "\n")
    show.print_report(report, changed)
    if report.results:
        for file in filter(None, (RESULTS / "latest.svg", plot)):
            show.plot(report.results, file)


def _measure_all(
    cases: Sequence[Case],
    others: Sequence[str],
    conditions: Conditions,
    quick: bool,
    until: float,
) -> Report:
    """Measures everything, each case with as many runs as the time that is left allows."""
    results: dict[str, Result] = {}
    measured: dict[str, Figures] = {}
    failed: dict[str, str] = {}
    for name in others:  # first: what they take does not depend on the number of runs
        click.echo(f"{name} ...", err=True)
        try:
            measured[name] = OTHERS[name](conditions, quick)
        except Exception as error:  # noqa: BLE001  the rest is worth having
            failed[name] = _reason(error)
    for number, case in enumerate(cases):
        share = (until - time.monotonic()) / (len(cases) - number)
        runs = runs_within(share, conditions)
        click.echo(f"{case.name} ... ({runs})", err=True)
        try:
            results[case.name] = measure(case, attrs.evolve(conditions, runs=runs))
        except Exception as error:  # noqa: BLE001  as above
            failed[case.name] = _reason(error)
    return Report(results=results, others=measured, failed=failed)


def _reason(error: Exception) -> str:
    reason = " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    click.echo(f"failed: {reason}", err=True)
    return reason


if __name__ == "__main__":
    main()
