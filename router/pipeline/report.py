"""The audit's report: one HTML file that contains its plots and needs no network."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from router.model.text import SHOWN_MOST, shown
from router.pipeline.audit import Audit, Flow, Offender, Rate

COLORS: Final[Mapping[str, str]] = {
    "delivered-once": "#2f855a",
    "duplicated": "#c53030",
    "lost": "#822727",
    "in-doubt": "#dd6b20",
    "rejected": "#6b46c1",
    "released": "#3182ce",
    "expired": "#718096",
    "open": "#a0aec0",
    "ledger-gap": "#d69e2e",
    "continued": "#cbd5e0",
}
_WIDTH: Final = 900
_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;color:#1a202c;max-width:960px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:13px}td,th{padding:.3rem .5rem;text-align:left;
border-bottom:1px solid #e2e8f0}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code,pre{font:12px/1.5 ui-monospace,monospace}pre{background:#f7fafc;padding:.6rem;overflow-x:auto}
.good{color:#2f855a}.bad{color:#c53030}.note{color:#4a5568}
svg{max-width:100%;height:auto;overflow:visible}
summary{cursor:pointer}
"""


def render(audit: Audit) -> str:
    """Returns the page."""
    return "\n".join(
        (
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width,initial-scale=1'>",
            f"<title>Audit of {_text(', '.join(audit.routers))}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *_head(audit),
            "<h2>Verdicts</h2>",
            verdict_chart(audit.verdicts),
            *_carried(audit),
            "<h2>Deliveries over time</h2>",
            rate_chart(audit.rates),
            "<h2>Latency by route and places</h2>",
            latency_chart(audit.flows[:20]),
            *_flow_table(audit.flows),
            "<h2>Offenders</h2>",
            *_offender_list(audit),
            "<h2>Ledger gaps</h2>",
            *_hole_table(audit),
            "</body></html>",
        )
    )


def _head(audit: Audit) -> Iterator[str]:
    failures = audit.failures
    yield "<h1>Delivery audit</h1>"
    if failures:
        yield f"<p class=bad><b>{failures:,} deliveries were lost or duplicated.</b></p>"
    else:
        yield "<p class=good><b>Nothing was lost, nothing was duplicated.</b></p>"
    yield (
        f"<p class=note>{_moment(audit.since)} to {_moment(audit.until)} UTC;"
        f" routers: {_text(', '.join(audit.routers))};"
        f" {audit.records:,} records in {audit.files:,} files.</p>"
    )


def _carried(audit: Audit) -> Iterator[str]:
    carried = {name: count for name, count in audit.carried.items() if count}
    if carried:
        told = ", ".join(f"{count:,} {name}" for name, count in carried.items())
        yield f"<p class=note>May still change, and is judged again next time: {told}.</p>"


def verdict_chart(verdicts: Mapping[str, int]) -> str:
    """Draws a bar for each verdict, of logarithmic length, so that one in a million is visible."""
    rows = [(name, count) for name, count in verdicts.items() if count]
    most = max((count for _, count in rows), default=1)
    shapes = []
    for index, (name, count) in enumerate(rows):
        y = 8 + index * 26
        length = 4 + 560 * math.log1p(count) / math.log1p(most)
        shapes += [
            f"<text x=120 y={y + 14} text-anchor=end>{name}</text>",
            f"<rect x=130 y={y} width={length:.1f} height=18 rx=3 fill='{COLORS[name]}'/>",
            f"<text x={138 + length:.1f} y={y + 14}>{count:,}</text>",
        ]
    return _svg(16 + len(rows) * 26, shapes)


def rate_chart(rates: Sequence[Rate]) -> str:
    """Draws stacked bars: deliveries received per second, by verdict."""
    if not rates:
        return "<p class=note>None.</p>"
    height, left = 180, 60
    most = max(sum(rate.verdicts.values()) for rate in rates)
    width = (_WIDTH - left - 10) / len(rates)
    seconds = rates[0].seconds
    shapes = [
        f"<text x={left - 6} y=18 text-anchor=end>{most / seconds:,.1f}/s</text>",
        f"<text x={left - 6} y={height} text-anchor=end>0</text>",
        f"<text x={left} y={height + 18}>{_moment(rates[0].start)}</text>",
        f"<text x={_WIDTH - 10} y={height + 18} text-anchor=end>{_moment(rates[-1].start)}</text>",
    ]
    for index, rate in enumerate(rates):
        y = float(height)
        told = ", ".join(f"{count:,} {name}" for name, count in rate.verdicts.items())
        shapes.append(f"<g><title>{_moment(rate.start)}: {told}</title>")
        for name in COLORS:
            size = rate.verdicts.get(name, 0) / most * (height - 10)
            y -= size
            if size:
                shapes.append(
                    f"<rect x={left + index * width:.2f} y={y:.2f} height={size:.2f}"
                    f" width={max(width - 0.5, 0.5):.2f} fill='{COLORS[name]}'/>"
                )
        shapes.append("</g>")
    return _svg(height + 28, shapes)


def latency_chart(flows: Sequence[Flow]) -> str:
    """Draws, for each flow, a line from the median to 99.9 percent with a mark at 90 and 99."""
    if not flows:
        return "<p class=note>Nothing was delivered.</p>"
    least = min(max(flow.milliseconds[0], 0.01) for flow in flows)
    most = max(*(flow.milliseconds[-1] for flow in flows), least * 10)
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    left, right = 330, _WIDTH - 20

    def x_of(milliseconds: float) -> float:
        exponent = math.log10(max(milliseconds, 10.0**first))
        return left + (exponent - first) / max(last - first, 1) * (right - left)

    shapes = []
    bottom = 10 + len(flows) * 24
    for exponent in range(first, last + 1):
        x = x_of(10.0**exponent)
        shapes += [
            f"<line x1={x:.1f} x2={x:.1f} y1=4 y2={bottom} stroke='#e2e8f0'/>",
            f"<text x={x:.1f} y={bottom + 16} text-anchor=middle>{_span(10.0**exponent)}</text>",
        ]
    for index, flow in enumerate(flows):
        y = 18 + index * 24
        middle, high, higher, highest = (x_of(each) for each in flow.milliseconds)
        told = ", ".join(
            f"{name} {_span(value)}"
            for name, value in zip(_PERCENT_NAMES, flow.milliseconds, strict=True)
        )
        shapes += [
            f"<g><title>{_text(told)}</title>",
            f"<text x={left - 10} y={y + 4} text-anchor=end>{_text(_place(flow))}</text>",
            f"<line x1={middle:.1f} x2={highest:.1f} y1={y} y2={y} stroke='#4a5568'/>",
            f"<circle cx={middle:.1f} cy={y} r=5 fill='#2f855a'/>",
            f"<circle cx={high:.1f} cy={y} r=4 fill='#3182ce'/>",
            f"<circle cx={higher:.1f} cy={y} r=4 fill='#dd6b20'/>",
            f"<circle cx={highest:.1f} cy={y} r=4 fill='#c53030'/></g>",
        ]
    key = "<p class=note>Green: half of the deliveries; blue 90 %, orange 99 %, red 99.9 %.</p>"
    return _svg(bottom + 24, shapes) + key


_PERCENT_NAMES: Final = ("50 %", "90 %", "99 %", "99.9 %")


def _place(flow: Flow) -> str:
    name = shown(f"{flow.address}: {flow.source} > {flow.target}")
    return name if len(name) <= 48 else f"{name[:47]}…"


def _flow_table(flows: Sequence[Flow]) -> Iterator[str]:
    yield (
        "<table><tr><th>address<th>from<th>to<th class=n>delivered<th class=n>octets"
        + "".join(f"<th class=n>{name}" for name in _PERCENT_NAMES)
        + "</tr>"
    )
    for flow in flows[:200]:
        yield (
            f"<tr><td>{_cell(flow.address)}"
            f"<td>{_cell(flow.source)} <span class=note>at {_text(flow.from_router)}</span>"
            f"<td>{_cell(flow.target)} <span class=note>at {_text(flow.to_router)}</span>"
            f"<td class=n>{flow.deliveries:,}<td class=n>{flow.octets:,}"
            + "".join(f"<td class=n>{_span(each)}" for each in flow.milliseconds)
            + "</tr>"
        )
    yield "</table>"


def _offender_list(audit: Audit) -> Iterator[str]:
    if not audit.offenders:
        yield "<p class=good>None.</p>"
    for offender in audit.offenders:
        yield from _offender(offender)


def _offender(offender: Offender) -> Iterator[str]:
    yield (
        f"<details><summary><b style='color:{COLORS[offender.verdict]}'>{offender.verdict}</b>"
        f" <code>{offender.key}</code> {_text(offender.address)}</summary><pre>"
    )
    told = offender.history or ["its records are in files of earlier runs"]
    yield "\n".join(_text(line, _LINE_MOST) for line in told)
    yield "</pre></details>"


def _hole_table(audit: Audit) -> Iterator[str]:
    if audit.unrecorded:
        yield f"<p>{audit.unrecorded:,} deliveries were not recorded: the journal was stuck.</p>"
    if not audit.holes:
        yield "<p class=good>The sequence of every router is whole.</p>"
        return
    yield "<table><tr><th>router<th>worker<th class=n>first missing<th class=n>last</tr>"
    for hole in audit.holes[:200]:
        yield (
            f"<tr><td>{_cell(hole.router)}<td>{hole.worker}"
            f"<td class=n>{hole.first:,}<td class=n>{hole.last:,}</tr>"
        )
    yield "</table>"


def _svg(height: float, shapes: Sequence[str]) -> str:
    return (
        f"<svg viewBox='0 0 {_WIDTH} {height:.0f}' width={_WIDTH} height={height:.0f}"
        " font-size=12 font-family='system-ui,sans-serif' fill='#1a202c'>"
        + "".join(shapes)
        + "</svg>"
    )


def _span(milliseconds: float) -> str:
    """Formats a duration with three digits in a suitable unit."""
    value, unit = (milliseconds, "ms") if milliseconds < 1000 else (milliseconds / 1000, "s")
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _moment(iso: str) -> str:
    return iso[:19].replace("T", " ")


_LINE_MOST: Final = 1000
"""Characters of a line of a history."""


def _text(text: str, most: int = SHOWN_MOST) -> str:
    """Escapes a name or text that peers may have chosen."""
    return html.escape(shown(text, most))


def _cell(text: str) -> str:
    """Escapes a name as a cell that a spreadsheet does not take for a formula."""
    return _text(f"'{text}" if text.startswith(_FORMULAS) else text)


_FORMULAS: Final = ("=", "+", "-", "@")
"""First characters of cells that spreadsheets evaluate."""
