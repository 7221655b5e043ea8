"""The benchmark: ``python -m tests.bench --help``."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from tests.bench import history, show
from tests.bench.cases import CASES
from tests.bench.goals import Report
from tests.bench.measure import (
    Conditions,
    Figures,
    Result,
    measure,
    measure_idle,
    measure_timer,
    measure_unsettled,
)
from tests.bench.programs import RESULTS

OTHERS = ("timer", "idle", "unsettled")


def _core(text: str) -> int | None:
    return None if text == "any" else int(text)


@click.command()
@click.option("--quick", is_flag=True, help="the short run: a few cases, once, two seconds each")
@click.option("--only", multiple=True, metavar="TEXT", help="cases whose name contains it")
@click.option("--runs", type=int, help="per case; the median counts; default: 3, quick: 1")
@click.option("--seconds", type=float, help="of each run; default: 3, quick: 2")
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
    seconds: float | None,
    against: tuple[str, ...],
    subject_core: str,
    load_core: str,
    output: Path | None,
    plot: Path | None,
    listing: bool,
) -> None:
    """Measure throughput and latency of the router beside an octet relay.

    Prints a table, writes results/latest.json, and adds to results/history.jsonl, with which the
    next run is compared.
    """
    cases = [case for case in CASES if case.is_quick or not quick]
    others = list(OTHERS)
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
        seconds=seconds or (2 if quick else 3),
        against=against,
    )
    results: dict[str, Result] = {}
    for case in cases:
        click.echo(f"{case.name} ...", err=True)
        results[case.name] = measure(case, conditions)
    report = Report(results=results, others=_measure_others(others, conditions, quick))
    entry = history.entry(report)
    changed = history.changes(entry)
    history.append(entry)
    text = json.dumps(entry, indent=1)
    for file in filter(None, (RESULTS / "latest.json", output)):
        file.write_text(text + "\n")
    show.print_report(report, changed)
    if plot is not None:
        show.plot(results, plot)


def _measure_others(
    names: Sequence[str], conditions: Conditions, quick: bool
) -> dict[str, Figures]:
    measured: dict[str, Figures] = {}
    for name in names:
        click.echo(f"{name} ...", err=True)
        if name == "timer":
            measured[name] = measure_timer(conditions)
        elif name == "idle":
            measured[name] = measure_idle(1000 if quick else 10_000, conditions)
        else:
            measured[name] = measure_unsettled(100_000 if quick else 1_000_000, conditions)
    return measured


if __name__ == "__main__":
    main()
