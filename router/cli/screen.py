"""Numbers and tables for ``status``, ``top`` and ``deliveries``."""

from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.model.text import SHOWN_MOST, shown

STATE_STYLES: Final = {
    "stalled": "bold red",
    "broken": "bold red",
    "paused": "yellow",
    "waiting": "yellow",
    "flowing": "green",
    "idle": "dim",
}
SEVERITY_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "blue"}


def told(text: Any, style: str = "", most: int = SHOWN_MOST) -> Text:
    """Makes text of a foreign value, with control sequences and rich markup escaped."""
    return Text(shown(str(text), most), style)


def show_count(number: float) -> str:
    """Formats a count: 0, 1,234, 56.7k, 1.2M."""
    if number < 100_000:
        return f"{number:,.0f}"
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.1f}k"


def show_rate(number: float | None) -> str:
    """Formats deliveries per second; None: not known yet."""
    if number is None:
        return "-"
    return f"{number:.1f}" if 0 < number < 10 else show_count(number)


def show_seconds(seconds: float | None) -> str:
    """Formats a duration: 12 ms, 1.5 s, 32 s, 5 min, 3.5 h, 2 d; None: there is none."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"


def show_octets(octets: float) -> str:
    """Formats a size: 512 B, 3.4 KiB, 12 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if octets < 1024:
            return f"{octets:.0f} {unit}" if unit == "B" or octets >= 10 else f"{octets:.1f} {unit}"
        octets /= 1024
    return f"{octets:.1f} TiB"


NARROW_COLUMNS: Final = 110
"""Width below which the table of routes omits its least important columns."""

_FEW_NUMBERS, _ALL_NUMBERS = 58, 98
"""Width of the table of routes without the names."""

_SENTENCE_MOST: Final = 1000
"""Most characters of a sentence that contains names."""

_CONTAINERS_SHOWN: Final = 5
_ROUTES_LEAST: Final = 3


def overview(console: Console, shown: Any, height: int | None) -> RenderableType:
    """Renders the overview: problems, then routes and containers, each worst first.

    Args:
        console: the terminal.
        shown: the answer of the router.
        height: available lines; None: unlimited.
    """
    status, all_routes, all_containers = shown["status"], shown["routes"], shown["containers"]
    wrong, rows, boxes = len(status["problems"]), len(all_routes), len(all_containers)
    parts = [heading(status), Text()]
    if height is not None:
        boxes = min(boxes, _CONTAINERS_SHOWN)
        room = height - len(console.render_lines(parts[0])) - boxes - _SPARE_LINES
        wrong = _fitting(console, status, room - _ROUTES_LEAST)
        rows = max(_ROUTES_LEAST, room - len(console.render_lines(problems(status, wrong))))
    parts += [problems(status, wrong), Text()]
    hidden = shown["hidden_routes"] + max(0, len(all_routes) - rows)
    parts.append(routes(all_routes[:rows], hidden, console.width))
    if boxes:
        away = shown["hidden_containers"] + len(all_containers) - boxes
        parts += [Text(), containers(all_containers[:boxes], away)]
    return Group(*parts)


_SPARE_LINES: Final = 8
"""Lines for blank lines, headings of tables, notes of omissions, and the prompt."""


def _fitting(console: Console, status: Any, room: int) -> int:
    """Returns how many problems fit into ``room`` lines; at least one is shown."""
    most = len(status["problems"])
    while most > 1 and len(console.render_lines(problems(status, most))) > room:
        most -= 1
    return most


def heading(status: Any) -> RenderableType:
    """Renders the first line: the router and its state."""
    line = Text()
    line.append_text(told(status["id"], "bold"))
    if status["is_draining"]:
        line.append("  draining", "yellow")
    elif status["is_ready"]:
        line.append("  ready", "green")
    else:
        reasons = "; ".join(status["reasons"])
        line.append_text(told(f"  not ready: {reasons}", "bold red", _SENTENCE_MOST))
    workers = len(status["workers"])
    rates = status["rates"] or {}
    facts = [
        f"up {show_seconds(status['uptime_seconds'])}",
        f"{workers} worker{'' if workers == 1 else 's'}",
        f"{show_count(status['connections'])} connections",
        f"in {show_rate(rates.get('received'))}/s",
        f"out {show_rate(rates.get('sent'))}/s",
        f"{show_count(status['unsettled'])} unsettled",
    ]
    if status["in_doubt"]:
        facts.append(f"{show_count(status['in_doubt'])} in doubt")
    line.append("  " + ", ".join(facts))
    return line


def problems(status: Any, most: int) -> RenderableType:
    """Renders the problems, worst first."""
    found = status["problems"]
    if not found:
        return Text("nothing is wrong", "green")
    table = Table.grid(padding=(0, 1))
    for each in found[:most]:
        severity = Text(each["severity"], SEVERITY_STYLES[each["severity"]])
        text = Text.assemble(
            f"{each['subject']} ",
            told(each["name"]),
            told(f" {each['text']}", most=_SENTENCE_MOST),
            "\n",
            told(each["advice"], "dim", _SENTENCE_MOST),
        )
        table.add_row(severity, text)
    if len(found) > most:
        return Group(table, Text(f"and {len(found) - most} more problems", "dim"))
    return table


def routes(shown: list[Any], hidden: int, width: int) -> RenderableType:
    """Renders the table of routes for a width."""
    is_narrow = width < NARROW_COLUMNS
    links = () if is_narrow else ("senders", "receivers", "queued")
    table = _table("route", "state", "in/s", "out/s", *links, "unsettled", "oldest", "in doubt")
    table.columns[0].max_width = max(12, width - (_FEW_NUMBERS if is_narrow else _ALL_NUMBERS))
    for each in shown:
        rates = each["rates"] or {}
        state = each["state"]
        waiting = each["blocked_senders"]
        senders = f"{each['senders']} ({waiting} wait)" if waiting else str(each["senders"])
        links = () if is_narrow else (senders, str(each["receivers"]), show_count(each["queued"]))
        table.add_row(
            _name_of(each, is_narrow),
            Text(state, STATE_STYLES[state]),
            show_rate(rates.get("received")),
            show_rate(rates.get("sent")),
            *links,
            show_count(each["incoming_unsettled"]),
            show_seconds(each["oldest_seconds"]),
            Text(show_count(each["in_doubt"]), "bold red" if each["in_doubt"] else ""),
        )
    return _with_rest(table, hidden, "routes")


def _name_of(route: Any, is_narrow: bool) -> Text:
    name = told(route["name"], "bold")
    if is_narrow:
        return name
    way = ""
    if route["from"] and route["to"]:
        way = f"  {route['from']} > {', '.join(route['to'])}"
    elif route["from"]:
        way = f"  {route['from']} >"
    elif route["to"]:
        way = f"  > {', '.join(route['to'])}"
    return name.append_text(told(way, "not bold dim"))


def containers(shown: list[Any], hidden: int) -> RenderableType:
    """Renders the table of configured containers."""
    table = _table("container", "state", "for", "connected", "failed")
    table.add_column("where or why not", overflow="fold")
    for each in shown:
        is_connected = each["is_connected"]
        state = Text("connected", "green") if is_connected else Text("away", "bold red")
        table.add_row(
            told(each["name"], "bold"),
            state,
            show_seconds(each["seconds"]),
            str(each["opened"]),
            str(each["failed"]),
            told(
                each["address"] if is_connected else each["error"] or ", ".join(each["urls"]),
                most=_SENTENCE_MOST,
            ),
        )
    return _with_rest(table, hidden, "containers")


def deliveries(shown: list[Any]) -> RenderableType:
    """Renders the table of deliveries, oldest first."""
    table = _table("tag", "age", "state", "route", "from", "to", "octets", "attempts")
    for each in shown:
        to = each["to_container"]
        target = Text.assemble(told(to), " ", told(each["to_link"])) if to else Text("-")
        table.add_row(
            told(each["tag"]),
            show_seconds(each["age_seconds"]),
            Text(each["state"], "bold red" if each["state"] == "in doubt" else ""),
            told(each["route"]),
            Text.assemble(told(each["container"]), " ", told(each["link"])),
            target,
            show_octets(each["octets"]),
            str(each["attempts"]),
        )
    return table


_TEXTS: Final = frozenset(
    ("route", "state", "container", "tag", "from", "to")
)  # the other columns hold numbers


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        is_text = name in _TEXTS
        table.add_column(
            name,
            justify="left" if is_text else "right",
            no_wrap=True,
            min_width=12 if name == "route" else None,
            overflow="ellipsis" if is_text else "fold",
        )
    return table


def _with_rest(table: Table, hidden: int, what: str) -> RenderableType:
    if not hidden:
        return table
    return Group(table, Text(f"and {hidden} more {what}", "dim"))
