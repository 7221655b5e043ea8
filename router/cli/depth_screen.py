"""Tables for ``store``."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from router.cli.columns import Columns
from router.cli.screen import escaped, show_count, show_octets, show_rate, show_seconds

_FULL_SHARE = 0.9


def routes(found: Any, width: int) -> RenderableType:
    """Renders the table of stored routes for a width, and below it what they wait for."""
    some = found["routes"]
    if found["is_connected"] is False:
        trouble = Text("the message store does not answer: stored routes get no credit", "bold red")
        return Group(trouble, _table(some, width)) if some else trouble
    if found["trouble"] is not None:
        words = f"the message store cannot write: {found['trouble']}; senders wait"
        return Group(escaped(words, "bold red"), _table(some, width))
    if found["unreadable"] is not None:
        words = f"the message store cannot read {found['unreadable']}"
        return Group(escaped(words, "bold red"), _table(some, width))
    if not some:
        return Text("no route stores anything")
    return _table(some, width)


def _table(some: list[Any], width: int) -> RenderableType:
    table = Columns(
        "route",
        "messages",
        "size",
        "oldest",
        "in/s",
        "out/s",
        "empty in",
        "full",
        "dead letters",
        names=("route",),
        width=width,
    )
    for each in some:
        share = each["share"]
        table.add(
            _name(each),
            show_count(each["messages"]),
            show_octets(each["octets"]),
            show_seconds(each["oldest_seconds"]),
            show_rate(each["stored_rate"]),
            show_rate(each["forwarded_rate"]),
            show_seconds(each["drain_seconds"]) if each["messages"] else "-",
            Text(
                "-" if share is None else f"{share:.0%}",
                "bold red" if each["is_full"] else "yellow" if (share or 0) > _FULL_SHARE else "",
            ),
            "-" if each["dead"] is None else show_count(each["dead"]),
        )
    waiting = [line for each in some for line in (*_reasons(each), *_deaths(each))]
    return Group(table.table(), Text(), *waiting) if waiting else table.table()


def _name(each: Any) -> Text:
    return Text("(no route)", "dim") if each["route"] is None else escaped(each["route"], "bold")


def _reasons(each: Any) -> list[Text]:
    reasons = list(each["waits_for"])
    if each["is_full"] and each["when_full"] == "refuse":
        reasons.append("room: it is full, and its senders wait")
    return [
        Text.assemble(_name(each), " waits for ", escaped(reason, "yellow")) for reason in reasons
    ]


_CAUSES = {"rejected": "its target rejected", "expired": "were too old", "dropped": "were dropped"}


def _deaths(each: Any) -> list[Text]:
    """Says what has become a dead letter, by cause; nothing if nothing has, or nobody knows."""
    counts = {words: each.get(cause) or 0 for cause, words in _CAUSES.items()}
    if each["dead"] is None or not any(counts.values()):
        return []
    words = ", ".join(f"{count:,} that {words}" for words, count in counts.items() if count)
    return [Text.assemble(_name(each), f" has made dead letters of {words}")]


def route(found: Any, width: int) -> RenderableType:
    """Renders one stored route and its deepest addresses."""
    table = Columns("address", "messages", "size", "oldest", names=("address",), width=width)
    for each in found["addresses"]:
        table.add(
            escaped(each["address"]),
            show_count(each["messages"]),
            show_octets(each["octets"]),
            show_seconds(each["oldest_seconds"]),
        )
    parts: list[RenderableType] = [_table([found["route"]], width), Text(), table.table()]
    if found["hidden"]:
        parts.append(Text(f"and {found['hidden']:,} more addresses; --limit shows more", "dim"))
    return Group(*parts)
