"""The errors that peers are sent: conditions of AMQP 1.0, and the codes of the other protocols."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from router.model import condition as conditions
from router.wire.fast import reply as fast
from router.wire.v0_9_1 import reply as v0_9_1
from router.wire.v0_10 import reply as v0_10
from router.wire.v1_0.faults import Rule
from tests.reference.explained import explanations
from tests.reference.text import code, page, table

EXPLAINED: Final = Path("tests/reference/conditions.yaml")

_FOLDERS: Final = ("core", "net", "service", "routes", "wire/v1_0")
_NOT_THE_ROUTER: Final = Path("router/net/client")


def names() -> frozenset[str]:
    """Returns every condition that ``router.model.condition`` names."""
    found = {value for name, value in vars(conditions).items() if name.isupper()}
    return frozenset(map(str, found))


def explained() -> dict[str, str]:
    """Returns what to do about each condition, as the file says."""
    return explanations(EXPLAINED)


def reasons() -> dict[str, list[str]]:
    """Returns the descriptions that come with each condition, sorted; ``…`` stands for a name."""
    found: dict[str, set[str]] = {}
    for rule in Rule:
        found.setdefault(rule.condition, set()).add(rule.phrase)
    for folder in _FOLDERS:
        for path in sorted(Path("router", folder).rglob("*.py")):
            if not path.is_relative_to(_NOT_THE_ROUTER):
                for name, text in _described(path):
                    found.setdefault(name, set()).add(text)
    return {name: sorted(texts) for name, texts in found.items()}


def _described(path: Path) -> Iterator[tuple[str, str]]:
    """Yields condition and description of each ``Condition(NAME, "text")`` of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="Condition"), args=[ast.Name(id=name), described]) if (
                hasattr(conditions, name)
            ):
                text = _text(described)
                if text:
                    yield getattr(conditions, name), text


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts
            )
    return None


def errors_page() -> str:
    """Returns the page."""
    said, advice = reasons(), explained()
    rows = [
        (code(name), advice.get(name, ""), "<br>".join(said.get(name, ())))
        for name in sorted(names() & (said.keys() | advice.keys()))
    ]
    lines = [
        "What a peer is sent when a connection, session, link or delivery ends with an error, and"
        " what `router status`, the console and the log show as `condition`.",
        "",
        "## Problems of a configuration",
        "",
        "`router check`, `router run` and a reload print each problem as"
        " `FILE:LINE:COLUMN: problem`, all of them at once, and name the nearest known key."
        " The exit code is 2; a reload leaves the configuration in force as it was.",
        "",
        "## AMQP 1.0",
        "",
        "`…` stands for a name or a number. A container's own conditions and descriptions are"
        " passed on as they are.",
        "",
        *table(("condition", "cause, and what to do", "descriptions"), rows),
    ]
    lines += _codes("AMQP 0-9-1 and 0.9r1", "reply code", v0_9_1.Reply, v0_9_1._CONDITIONS)
    lines += [
        "The codes "
        + ", ".join(str(int(each)) for each in sorted(v0_9_1.HARD_ERRORS))
        + " end the connection, the others a channel.",
        "",
    ]
    lines += _codes(
        "AMQP 0-10", "error code of a session", v0_10.ErrorCode, v0_10._ERROR_CONDITIONS
    )
    lines += table(
        ("close code of a connection", "name", "condition"),
        _rows(v0_10.CloseCode, v0_10._CLOSE_CONDITIONS),
    )
    lines += _codes("AMQP/Fast", "reply code", fast.Reply, fast._CONDITIONS)
    return page(
        "Errors",
        "`router/model/condition.py`, the tables of codes and the calls in `router/`",
        lines,
    )


def _codes(
    title: str,
    head: str,
    codes: type[v0_9_1.Reply | v0_10.ErrorCode | fast.Reply],
    translated: Mapping[int, str],
) -> list[str]:
    rows = _rows(codes, translated)
    return [f"## {title}", "", *table((head, "name", "condition"), rows)]


def _rows(
    codes: type[v0_9_1.Reply | v0_10.ErrorCode | v0_10.CloseCode | fast.Reply],
    translated: Mapping[int, str],
) -> list[tuple[str, str, str]]:
    return [
        (str(int(each)), each.name.lower().replace("_", "-"), code(translated.get(each, "")))
        for each in codes
        if each in translated
    ]
