"""The audit's report: one HTML file that contains its plots and needs no network."""

import html
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from router.model.text import SHOWN_MOST, shown
from router.pipeline.audit import Audit, Flow
from router.pipeline.clocks import Clock
from router.pipeline.coverage import Reach
from router.pipeline.deliveries import OFFENDERS
from router.pipeline.offenders import Offender
from router.pipeline.stories import iso
from router.pipeline.tally import Rate

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
table.story td{vertical-align:top;border-left:1px solid #e2e8f0}td.t{white-space:nowrap}
h3{font-size:1rem}
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
            *coverage(audit),
            "<h2>Verdicts</h2>",
            *_verdict(audit),
            verdict_chart(audit.verdicts),
            *_carried(audit),
            *_corrections(audit),
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
    yield "<h1>Delivery audit</h1>"
    yield (
        f"<p class=note>{_moment(audit.since)} to {_moment(audit.until)} UTC;"
        f" {audit.records:,} records in {audit.files:,} files.</p>"
    )


def _verdict(audit: Audit) -> Iterator[str]:
    failures = audit.failures
    if failures:
        yield f"<p class=bad><b>Lost or duplicated: {_counted(failures, 'delivery')}.</b></p>"
    else:
        yield (
            "<p class=good><b>Nothing was lost, nothing was duplicated,"
            " as far as the ledgers reach.</b></p>"
        )


def _counted(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def _carried(audit: Audit) -> Iterator[str]:
    carried = {name: count for name, count in audit.carried.items() if count}
    if carried:
        told = ", ".join(f"{count:,} {name}" for name, count in carried.items())
        yield f"<p class=note>May still change, and is judged again next time: {told}.</p>"
    totals = {name: count for name, count in audit.totals.items() if count}
    if audit.totals and totals != _added(audit.verdicts, carried):
        told = ", ".join(f"{count:,} {name}" for name, count in totals.items())
        yield f"<p class=note>All runs together: {told}.</p>"


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    names = (*one, *(name for name in other if name not in one))
    sums = {name: one.get(name, 0) + other.get(name, 0) for name in names}
    return {name: count for name, count in sums.items() if count}


def _corrections(audit: Audit) -> Iterator[str]:
    if not audit.corrected:
        return
    yield "<h3>Corrected</h3>"
    yield "<p class=note>Verdicts of earlier runs that later files contradict.</p>"
    yield "<table><tr><th>was<th>is<th class=n>deliveries</tr>"
    for each in audit.corrected:
        yield (
            f"<tr><td>{_text(each.before)}<td>{_text(each.after)}"
            f"<td class=n>{each.deliveries:,}</tr>"
        )
    yield "</table>"


def coverage(audit: Audit) -> Iterator[str]:
    """Says which router's ledger reaches where, by which clock, and what is missing from it."""
    yield "<h2>Coverage</h2>"
    yield (
        "<p class=note>Verdicts hold as far as the ledgers of all routers that had a delivery"
        " reach; what is beyond is open, or a ledger gap. Bars are drawn by the reference's clock,"
        " with gaps in red; times below are by the router's own.</p>"
    )
    clocks = {each.router: each for each in audit.clocks}
    compared = {each.reference for each in audit.clocks if each.reference != each.router}
    yield coverage_chart(audit.reaches, clocks)
    yield "<table><tr><th>router<th>begins<th>reaches to<th>state<th>its clock<th class=n>gaps</tr>"
    for each in audit.reaches[:_ROUTERS_MOST]:
        yield (
            f"<tr><td>{_cell(each.router)}<td>{_moment(iso(each.begun_ns))}"
            f"<td>{_moment(iso(each.reach_ns)) if each.reach_ns else 'nowhere'}"
            f"<td>{_state(each)}<td>{_clock(each.router, clocks, compared)}"
            f"<td class=n>{len(each.holes):,}</tr>"
        )
    for router in audit.unseen[:_ROUTERS_MOST]:
        yield f"<tr><td>{_cell(router)}<td><td class=bad>no ledger of it was read<td><td><td></tr>"
    yield "</table>"
    if max(len(audit.reaches), len(audit.unseen)) > _ROUTERS_MOST:
        yield f"<p class=note>{len(audit.reaches):,} routers in all.</p>"
    yield from _files("Too late, beyond the horizon, and not read", audit.too_late)
    yield from _files("Of the far future, so no sign of how far a ledger reaches", audit.future)


_ROUTERS_MOST: Final = 200
_FILES_MOST: Final = 20


def _state(reach: Reach) -> str:
    if reach.has_ended:
        return "ended"
    return "said to have ended" if reach.is_declared else "not ended"


def _clock(router: str, clocks: Mapping[str, Clock], references: Collection[str]) -> str:
    clock = clocks.get(router)
    if clock is None or clock.reference == router:
        return "reference" if router in references else "not compared"
    return (
        f"{clock.ahead_ns / 1e9:+,.3f} s from {_text(clock.reference)},"
        f" within {clock.within_ns / 1e9:,.3f} s"
    )


def _files(told: str, files: Sequence[str]) -> Iterator[str]:
    if not files:
        return
    yield f"<p class=bad>{told}: {_counted(len(files), 'file')}.</p><ul>"
    for file in files[:_FILES_MOST]:
        yield f"<li><code>{_text(file, _LINE_MOST)}</code></li>"
    yield "</ul>"


def coverage_chart(reaches: Sequence[Reach], clocks: Mapping[str, Clock]) -> str:
    """Draws a bar for each router, from where its ledger begins to where it ends, gaps in red."""
    spans = [
        (each, each.begun_ns - ahead_ns, each.reach_ns - ahead_ns, ahead_ns)
        for each in reaches[:_BARS_MOST]
        if each.reach_ns
        for ahead_ns in [_ahead_ns(each.router, clocks)]
    ]
    if not spans:
        return ""
    first, last = min(begun for _, begun, _, _ in spans), max(end for _, _, end, _ in spans)
    left, right = 180, _WIDTH - 20
    bottom = 8 + len(spans) * 24

    def x_of(at_ns: int) -> float:
        return left + (min(max(at_ns, first), last) - first) / max(last - first, 1) * (right - left)

    shapes = []
    for index, (each, begun, end, ahead_ns) in enumerate(spans):
        y = 8 + index * 24
        name = shown(each.router)
        shapes += [
            f"<text x={left - 10} y={y + 12} text-anchor=end>{_text(name, _NAME_MOST)}</text>",
            f"<rect x={x_of(begun):.1f} y={y} height=16 rx=3 fill='#3182ce'"
            f" width={max(x_of(end) - x_of(begun), 1):.1f} />",
        ]
        for after, before in each.holes:
            start = x_of(after - ahead_ns)
            stop = x_of(end if before is None else before - ahead_ns)
            shapes.append(
                f"<rect x={start:.1f} y={y} height=16 fill='#c53030'"
                f" width={max(stop - start, 2):.1f} />"
            )
    shapes += [
        f"<text x={left} y={bottom + 12}>{_moment(iso(first))}</text>",
        f"<text x={right} y={bottom + 12} text-anchor=end>{_moment(iso(last))}</text>",
    ]
    return _svg(bottom + 22, shapes)


_BARS_MOST: Final = 50
_NAME_MOST: Final = 24


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
        return
    told = sum(
        {**audit.verdicts, **_added(audit.verdicts, audit.carried)}.get(name, 0)
        for name in OFFENDERS
    )
    if told > len(audit.offenders):
        yield f"<p class=note>The first {len(audit.offenders):,} of {told:,}.</p>"
    clocks = {each.router: each for each in audit.clocks}
    for offender in audit.offenders:
        yield from _offender(offender, clocks)


def _offender(offender: Offender, clocks: Mapping[str, Clock]) -> Iterator[str]:
    """Draws a story as a table with a column for each router, in the order of one clock."""
    yield (
        f"<details><summary><b style='color:{COLORS[offender.verdict]}'>{offender.verdict}</b>"
        f" <code>{offender.key}</code> {_text(offender.address)}</summary>"
    )
    if not offender.history:
        yield "<p class=note>The files with its records are no longer there.</p></details>"
        return
    routers = sorted({each.router for each in offender.history}, key=_first_of(offender, clocks))
    reference = shown(_reference(routers[0], clocks))
    names = "".join(f"<th>{_text(router)}" for router in routers)
    yield f"<table class=story><tr><th>time at {_text(reference)}{names}</tr>"
    for event in offender.history:
        cells = "<td>" * routers.index(event.router)
        ahead_ns = _ahead_ns(event.router, clocks)
        own = f"; {_clock_time(event.at)} by its own clock" if ahead_ns else ""
        yield (
            f"<tr><td class=t>{_clock_time(iso(event.time_ns - ahead_ns))}{cells}"
            f"<td>{_text(event.text, _LINE_MOST)}"
            f"<span class=note> worker {event.worker}, record {event.sequence:,}{own}</span>"
            f"{'<td>' * (len(routers) - routers.index(event.router) - 1)}</tr>"
        )
    yield "</table></details>"


def _first_of(offender: Offender, clocks: Mapping[str, Clock]) -> Callable[[str], int]:
    """Orders routers by their first event."""
    order: dict[str, int] = {}
    for event in offender.history:
        order.setdefault(event.router, event.time_ns - _ahead_ns(event.router, clocks))
    return order.__getitem__


def _reference(router: str, clocks: Mapping[str, Clock]) -> str:
    return clocks[router].reference if router in clocks else router


def _ahead_ns(router: str, clocks: Mapping[str, Clock]) -> int:
    return clocks[router].ahead_ns if router in clocks else 0


def _clock_time(at: str) -> str:
    return at.replace("T", " ").removesuffix("Z")


def _hole_table(audit: Audit) -> Iterator[str]:
    if audit.unrecorded:
        yield f"<p>{audit.unrecorded:,} deliveries were not recorded: the journal was stuck.</p>"
    if not audit.holes:
        yield "<p class=good>The sequence of every router is whole.</p>"
        return
    yield "<table><tr><th>router<th>records of<th class=n>first missing<th class=n>last</tr>"
    for hole in audit.holes[:200]:
        where = "journal: segments" if hole.is_of_segments else f"worker {hole.worker}"
        yield (
            f"<tr><td>{_cell(hole.router)}<td>{where}"
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
