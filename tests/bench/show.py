"""Tables for people, and a plot where matplotlib is installed."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.goals import GOALS, Report
from tests.bench.history import NOTABLE
from tests.bench.measure import Result


def table(report: Report, changed: Mapping[str, float]) -> Table:
    """One line per case and subject."""
    shown = Table("case", "through", title="throughput and latency")
    for head in ("msg/s", "MiB/s", "of relay", "ns CPU", "spread"):
        shown.add_column(head, justify="right")
    for head in ("p50", "p99", "p99.9"):
        shown.add_column(f"{head} us", justify="right")
    shown.add_column("since", justify="right")
    for name, result in report.results.items():
        for subject, figures in result.figures.items():
            is_router = subject == "router"
            share = result.of_relay() if is_router else None
            shown.add_row(
                name if subject == "relay" else "",
                subject,
                f"{figures['messages_per_second']:,.0f}",
                f"{figures['octets_per_second'] / (1 << 20):,.0f}",
                f"{share:.2f}" if share is not None else "",
                f"{figures.get('cpu_ns_per_message', 0):,.0f}",
                f"{result.spread:.0%}" if is_router else "",
                *(f"{figures[f'one_way_{key}_us']:,.0f}" for key in ("p50", "p99", "p999")),
                _change(changed.get(name)) if is_router else "",
            )
    return shown


def _change(change: float | None) -> str:
    if change is None:
        return ""
    style = "default" if abs(change) <= NOTABLE else "red" if change < 0 else "green"
    return f"[{style}]{change:+.0%}[/]"


def goals(report: Report) -> Table:
    """What was asked for, and whether it was reached."""
    shown = Table("goal", title="goals")
    for head in ("bound", "measured"):
        shown.add_column(head, justify="right")
    shown.add_column("")
    for goal in GOALS:
        value = goal.value(report)
        if value is None:
            continue
        is_reached = value <= goal.bound if goal.is_upper else value >= goal.bound
        shown.add_row(
            goal.text,
            f"{'≤' if goal.is_upper else '≥'} {goal.bound:,.6g}",
            f"{value:,.2f}" if value < 100 else f"{value:,.0f}",
            "[green]reached[/]" if is_reached else "[red]missed[/]",
        )
    return shown


def print_report(report: Report, changed: Mapping[str, float]) -> None:
    """Prints the tables."""
    console = Console(width=None if Console().is_terminal else 150)
    if report.results:
        console.print(table(report, changed))
    for name, figures in report.others.items():
        console.print(name, {key: round(value, 1) for key, value in figures.items()})
    console.print(goals(report))
    notable = {name: each for name, each in changed.items() if abs(each) > NOTABLE}
    for name, change in notable.items():
        console.print(f"[bold]{name}[/]: {change:+.0%} against the relay since the last time here")


def plot(results: Mapping[str, Result], file: Path) -> None:
    """Draws messages per second of each case and subject.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib import pyplot  # type: ignore[import-not-found]

    names = list(results)
    subjects = list(dict.fromkeys(s for result in results.values() for s in result.figures))
    figure, axes = pyplot.subplots(figsize=(9, 0.5 + 0.45 * len(names)))
    height = 0.8 / len(subjects)
    for index, subject in enumerate(subjects):
        rates = [
            results[name].figures.get(subject, {}).get("messages_per_second", 0) for name in names
        ]
        axes.barh(
            [place + index * height for place in range(len(names))], rates, height, label=subject
        )
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("messages per second")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
