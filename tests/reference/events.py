"""The events of the log: found in the code, explained in ``events.yaml``."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from router.service.journal import Store
from tests.reference.explained import explanations
from tests.reference.text import code, page, table

EXPLAINED: Final = Path("tests/reference/events.yaml")
_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "exception")
_EVENT: Final = re.compile(r"[a-z_]+\.[a-z_]+")


@attrs.frozen
class Call:
    """One place where the code logs an event."""

    event: str
    level: str
    fields: tuple[str, ...]


@cache
def calls() -> tuple[Call, ...]:
    """Returns every call in the code that logs something."""
    return tuple(call for path in sorted(Path("router").rglob("*.py")) for call in _calls(path))


def _calls(path: Path) -> Iterator[Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            level = _level(node.func)
            if level is not None:
                fields = [word.arg for word in node.keywords if word.arg not in _INNER]
                for event in _events(node.args[0]):
                    yield Call(event, level, tuple(field for field in fields if field))


_INNER: Final = frozenset({None, "exc_info", "is_warning"})


def _level(function: ast.expr) -> str | None:
    """Returns the severity that a call logs with; None: it does not log.

    The core has no logger: it adds notices, or warns with them, and the shell logs them.
    """
    if isinstance(function, ast.Name) and function.id == "Notice":
        return "warning"
    if not isinstance(function, ast.Attribute):
        return None
    receiver = ast.unparse(function.value)
    if "notices" in receiver:
        return {"add": "info", "warn": "warning"}.get(function.attr)
    if function.attr == "_note" and receiver == "self":
        return "info"
    if "log" in receiver and function.attr in _LEVELS:
        return "error" if function.attr == "exception" else function.attr
    return None


def _events(argument: ast.expr) -> Iterator[str]:
    match argument:
        case ast.Constant(value=str(text)) if _EVENT.fullmatch(text):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _events(body)
            yield from _events(other)
        case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(rest))]):
            for store in Store:
                yield f"{store.value}{rest}"


def explained() -> dict[str, str]:
    """Returns what each event means, as the file says."""
    return explanations(EXPLAINED)


def events_page() -> str:
    """Returns the page."""
    meanings = explained()
    rows = []
    for event in sorted({call.event for call in calls()}):
        ours = [call for call in calls() if call.event == event]
        levels = dict.fromkeys(call.level for call in ours)
        fields = dict.fromkeys(field for call in ours for field in call.fields)
        rows.append((code(event), ", ".join(levels), ", ".join(fields), meanings.get(event, "")))
    lines = [
        "The router logs to standard output, a JSON object a line or, on a terminal, columns"
        " (`router.log_format`). Every line has `event`, `level` and `timestamp`, and with several"
        " workers `worker`; fields without a value are left out.",
        "`router.log_level` sets the least severity. Of each event 50 lines pass in ten seconds;"
        " the next line tells how many were suppressed (`suppressed`).",
        "Lines never contain payload or passwords.",
        "",
        *table(("event", "level", "fields", "meaning"), rows),
    ]
    return page("Log events", "the calls in `router/` and `tests/reference/events.yaml`", lines)
