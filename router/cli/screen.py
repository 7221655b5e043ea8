"""Numbers and tables for ``status``, ``top`` and ``deliveries``."""

from collections import Counter
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.cli.columns import Columns, shorten
from router.model.text import SHOWN_MOST, shown

STATE_STYLES: Final = {
    "stalled": "bold red",
    "broken": "bold red",
    "rejecting": "bold red",
    "away": "red",
    "paused": "yellow",
    "waiting": "yellow",
    "flowing": "green",
    "idle": "dim",
}
SEVERITY_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "blue"}


def escaped(text: Any, style: str = "", most: int = SHOWN_MOST) -> Text:
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


NARROW_COLUMNS: Final = 125
"""Width below which the table of routes omits its least important columns."""

_SENTENCE_MOST: Final = 1000
"""Most characters of a sentence that contains names."""

_CONTAINERS_SHOWN: Final = 5
_ROUTES_LEAST: Final = 3

REST_SHOWN: Final = 20
"""Routes, and containers, up to which those at rest are shown like the others."""

PROBLEMS_SHOWN: Final = 50
"""Most problems without a terminal."""


def overview(
    console: Console, shown: Any, height: int | None, *, show_all: bool = False
) -> RenderableType:
    """Renders the overview: problems, then routes and containers, each worst first.

    Args:
        console: the terminal.
        shown: the answer of the router.
        height: available lines; None: unlimited.
        show_all: what is at rest is not left out, however much of it there is.
    """
    status, all_routes, all_containers = shown["status"], shown["routes"], shown["containers"]
    some_routes, some_containers = all_routes, all_containers
    if not show_all and len(all_routes) + shown["hidden_routes"] > REST_SHOWN:
        some_routes = [each for each in all_routes if each["state"] != "idle"]
    if not show_all and len(all_containers) + shown["hidden_containers"] > REST_SHOWN:
        some_containers = [each for each in all_containers if not each["is_connected"]]
    wrong, rows, boxes = len(status["problems"]), len(some_routes), len(some_containers)
    if not show_all:
        wrong = min(wrong, PROBLEMS_SHOWN)
    unlisted = shown["hidden_problems"]
    parts = [heading(status, unlisted), Text()]
    if height is not None:
        boxes = min(boxes, _CONTAINERS_SHOWN)
        lines = height - len(console.render_lines(parts[0])) - boxes - _SPARE_LINES
        wrong = _fitting(console, status, unlisted, lines - _ROUTES_LEAST)
        used = len(console.render_lines(problems(status, wrong, unlisted)))
        rows = max(_ROUTES_LEAST, lines - used)
    parts += [problems(status, wrong, unlisted), Text()]
    rest = Counter(shown["hidden_states"])
    rest.update(each["state"] for each in all_routes)
    rest.subtract(each["state"] for each in some_routes[:rows])
    parts.append(routes(some_routes[:rows], +rest, console.width))
    if all_containers:
        away = shown["hidden_containers"] + len(all_containers) - boxes
        parts += [Text(), containers(some_containers[:boxes], away, console.width)]
    return Group(*parts)


_SPARE_LINES: Final = 8
"""Lines for blank lines, headings of tables, notes of omissions, and the prompt."""


def _fitting(console: Console, status: Any, unlisted: int, lines: int) -> int:
    """Returns how many problems fit into this many lines; at least one is shown."""
    most = max(1, min(len(status["problems"]), lines))  # one takes a line at least
    while most > 1 and len(console.render_lines(problems(status, most, unlisted))) > lines:
        most -= 1
    return most


def heading(status: Any, unlisted: int = 0) -> RenderableType:
    """Renders the first line: the router, its state and the number of its problems.

    Args:
        status: of the router.
        unlisted: problems that it does not list.
    """
    line = Text()
    line.append_text(escaped(status["id"], "bold"))
    if status["is_draining"]:
        line.append("  draining", "yellow")
    elif status["is_ready"]:
        line.append("  ready", "green")
    elif status.get("is_standby"):
        line.append("  standby", "green")
    else:
        line.append("  not ready", "bold red")
    if count := len(status["problems"]) + unlisted:
        style = "bold red" if status["is_broken"] else "yellow"
        line.append(f", {count:,} problem{'' if count == 1 else 's'}", style)
    if not status["is_ready"] and not status["is_draining"]:
        reasons = "; ".join(status["reasons"])
        line.append_text(escaped(f": {reasons}", "bold red", _SENTENCE_MOST))
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
    if status.get("queued"):
        facts.append(f"{show_count(status['queued'])} queued")
    restarts = sum(each.get("restarts", 0) for each in status["workers"])
    if restarts:
        facts.append(f"{restarts} worker restart{'' if restarts == 1 else 's'}")
    if status["in_doubt"]:
        facts.append(f"{show_count(status['in_doubt'])} in doubt")
    if status.get("lease"):
        facts.append(_lease(status["lease"], status["at"]))
    line.append("  " + ", ".join(facts))
    return line


def _lease(lease: Any, at: float) -> str:
    """Says since when this router leads, in which epoch, or how it stands with the leader."""
    if lease["since"] is None:
        return "none has led yet"
    age = lease["age_seconds"]
    renewed = "released" if age is None else f"renewed {show_seconds(age)} ago"
    if lease.get("trouble") and not lease["leads"]:
        seen = show_seconds(max(0.0, at - lease["seen"])) if lease.get("seen") else "some time"
        renewed = f"unseen for {seen}: whether it still leads is not known"
    led = f"{show_seconds(max(0.0, at - lease['since']))} ago in epoch {lease['epoch']}"
    verb = "took the lease" if lease["leads"] else f"{lease['place']} took the lease"
    return f"{verb} {led}, {renewed}"


def problems(status: Any, most: int, unlisted: int = 0) -> RenderableType:
    """Renders the problems, worst first.

    Args:
        status: of the router.
        most: problems that are shown.
        unlisted: problems that the status does not list.
    """
    found = status["problems"]
    if not found:
        return Text("nothing is wrong", "green")
    table = Table.grid(padding=(0, 1))
    for each in found[:most]:
        severity = Text(each["severity"], SEVERITY_STYLES[each["severity"]])
        text = Text.assemble(
            f"{each['subject']} ",
            escaped(each["name"]),
            escaped(f" {each['text']}", most=_SENTENCE_MOST),
            "\n",
            escaped(each["advice"], "dim", _SENTENCE_MOST),
        )
        table.add_row(severity, text)
    rest = max(0, len(found) - most) + unlisted
    if rest:
        return Group(table, Text(f"and {rest:,} more problems", "dim"))
    return table


def routes(shown: list[Any], rest: Counter[str], width: int) -> RenderableType:
    """Renders the table of routes for a width.

    Args:
        shown: the rows.
        rest: how many others there are in each state.
        width: of the terminal.
    """
    is_narrow = width < NARROW_COLUMNS
    links = () if is_narrow else ("senders", "receivers", "queued")
    table = Columns(
        "route",
        "state",
        "in/s",
        "out/s",
        *links,
        "unsettled",
        "oldest",
        "in doubt",
        "rejected",
        names=("route",),
        texts=("state",),
        width=width,
    )
    for each in shown:
        rates = each["rates"] or {}
        state = each["state"]
        waiting = each["blocked_senders"]
        senders = f"{each['senders']} ({waiting} wait)" if waiting else str(each["senders"])
        links = () if is_narrow else (senders, str(each["receivers"]), show_count(each["queued"]))
        rejected = 0 if each["rejection"] is None else each["rejection"]["count"]
        table.add(
            _name_of(each, is_narrow),
            Text(state, STATE_STYLES[state]),
            show_rate(rates.get("received")),
            show_rate(rates.get("sent")),
            *links,
            show_count(each["incoming_unsettled"]),
            show_seconds(each["oldest_seconds"]),
            Text(show_count(each["in_doubt"]), "bold red" if each["in_doubt"] else ""),
            Text(show_count(rejected), STATE_STYLES[state] if state == "rejecting" else ""),
        )
    count = rest.total()
    if not count:
        return table.table()
    states = [f"{number:,} {state}" for state, number in rest.most_common()]
    if not shown:
        counted = f"{count:,} routes: {', '.join(states)}"
        return Text(f"{counted}; --all lists them", "dim")
    return Group(table.table(), Text(f"and {count:,} more routes: {', '.join(states)}", "dim"))


def _name_of(route: Any, is_narrow: bool) -> Text:
    name = escaped(route["name"], "bold")
    if is_narrow:
        return name
    way = ""
    if route["from"] and route["to"]:
        way = f"  {route['from']} > {', '.join(route['to'])}"
    elif route["from"]:
        way = f"  {route['from']} >"
    elif route["to"]:
        way = f"  > {', '.join(route['to'])}"
    return name.append_text(escaped(way, "not bold dim"))


def containers(shown: list[Any], hidden: int, width: int) -> RenderableType:
    """Renders the table of configured containers for a width."""
    note = Text(f"and {hidden:,} more containers", "dim")
    if not shown:
        return Text(f"{hidden:,} containers, all connected", "dim")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("container", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("for", "connected", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("where or why not", overflow="fold")
    for each in shown:
        is_connected = each["is_connected"]
        state = Text("connected", "green") if is_connected else Text("away", "bold red")
        table.add_row(
            shorten(escaped(each["name"], "bold"), max(_NAME_LEAST, width // 4)),
            state,
            show_seconds(each["seconds"]),
            str(each["opened"]),
            str(each["failed"]),
            escaped(
                _reached(each) if is_connected else each["error"] or _place_of(each),
                most=_SENTENCE_MOST,
            ),
        )
    return Group(table, note) if hidden else table


def _reached(container: Any) -> str:
    """Says where a connection leads, and who has named that place."""
    source = container.get("redirected_from")
    way = f", redirected from {source}" if source else ""
    others = ", ".join(container.get("others") or ())
    return f"{container['address']}{way}{f'; else {others}' if others else ''}"


def _place_of(container: Any) -> str:
    return ", ".join(container["urls"]) or "dials in"


_NAME_LEAST: Final = 12


def deliveries(shown: list[Any], width: int) -> RenderableType:
    """Renders the table of deliveries, oldest first, for a width."""
    columns = ("tag", "age", "state", "route", "from", "to", "octets", "attempts")
    table = Columns(*columns, names=("tag", "route", "from", "to"), texts=("state",), width=width)
    for each in shown:
        table.add(
            escaped(each["tag"]),
            show_seconds(each["age_seconds"]),
            Text(_state_of(each), "bold red" if each["state"] == "in doubt" else ""),
            escaped(each["route"]),
            _link_of(each["container"], each["link"]),
            _link_of(each["to_container"], each["to_link"]),
            show_octets(each["octets"]),
            str(each["attempts"]),
        )
    return table.table()


def _state_of(delivery: Any) -> str:
    """Returns the state of a delivery; ``own`` if the router is responsible for it."""
    state = str(delivery["state"])
    return f"{state}, own" if delivery["in_custody"] else state


def _link_of(container: str | None, link: str | None) -> Text:
    """Returns the names of a link, or the one name that it and its container share."""
    if container is None:
        return Text("-")
    if link in (None, container):
        return escaped(container)
    return Text.assemble(escaped(container), " ", escaped(link))
