"""Tables for people, and a plot."""

import html
import math
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.goals import GOALS, Report
from tests.bench.history import NOTABLE
from tests.bench.measure import Result

COLORS = ("#999", "#36c", "#e80", "#393", "#a3a")
BAR_PIXELS = 18
LABEL_PIXELS = 230
POWER_PIXELS = 90
"""For each power of ten."""


def table(report: Report, changed: Mapping[str, float]) -> Table:
    """One line per case and subject; ``by CPU`` compares the time that a message takes."""
    shown = Table("case", "through", title="throughput and latency")
    for head in ("msg/s", "MiB/s", "of relay", "ns CPU", "by CPU", "spread"):
        shown.add_column(head, justify="right")
    for head in ("p50", "p99", "p99.9"):
        shown.add_column(f"{head} us", justify="right")
    shown.add_column("since", justify="right")
    for name, result in report.results.items():
        by_time = report.share_by_time(name)
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
                f"{by_time:.2f}" if is_router and by_time else "",
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
    for name, reason in report.failed.items():
        console.print(f"{name}: not measured: {reason}", style="red", markup=False)
    notable = {name: each for name, each in changed.items() if abs(each) > NOTABLE}
    for name, change in notable.items():
        console.print(f"[bold]{name}[/]: {change:+.0%} against the relay since the last time here")


def plot(results: Mapping[str, Result], file: Path) -> None:
    """Draws messages per second of each case and subject, to the power of ten, as SVG."""
    subjects = list(dict.fromkeys(s for result in results.values() for s in result.figures))
    colors = {subject: COLORS[at % len(COLORS)] for at, subject in enumerate(subjects)}
    bars = [
        (name, subject, figures["messages_per_second"])
        for name, result in results.items()
        for subject, figures in result.figures.items()
    ]
    powers = math.ceil(math.log10(max(10.0, *(rate for _, _, rate in bars))))
    shapes: list[str] = []
    y = 2 * BAR_PIXELS
    for power in range(1, powers + 1):
        x = LABEL_PIXELS + power * POWER_PIXELS
        shapes.append(f'<line x1="{x}" x2="{x}" y1="{y}" y2="100%" stroke="#ddd"/>')
        shapes.append(_text(x - 8, BAR_PIXELS, f"10^{power}"))
    last = None
    for name, subject, rate in bars:
        if name != last:
            y += BAR_PIXELS // 2
            shapes.append(_text(4, y + BAR_PIXELS - 4, name))
            last = name
        width = POWER_PIXELS * math.log10(max(1.0, rate))
        shapes.append(
            f'<rect class="bar" x="{LABEL_PIXELS}" y="{y}" width="{width:.0f}" '
            f'height="{BAR_PIXELS - 2}" fill="{colors[subject]}"/>'
        )
        shapes.append(_text(LABEL_PIXELS + round(width) + 4, y + BAR_PIXELS - 4, f"{rate:,.0f}"))
        y += BAR_PIXELS
    for at, subject in enumerate(subjects):
        shapes.append(_text(4 + at * 180, y + 2 * BAR_PIXELS, subject, colors[subject]))
    width, height = LABEL_PIXELS + (powers + 1) * POWER_PIXELS, y + 3 * BAR_PIXELS
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    file.write_text(
        "\n".join((f'{head} font-family="sans-serif" font-size="12">', *shapes, "</svg>\n"))
    )


def _text(x: int, y: int, text: str, color: str = "black") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}">{html.escape(text)}</text>'
