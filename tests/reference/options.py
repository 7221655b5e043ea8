"""The options of ``router.yaml``: a page, and a manual page in section 5."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from router.service.config.file import ConfigFile
from router.service.config.kinds import ListOf, MapOf
from router.service.config.options import Option, Placed, Section, options_of
from router.service.difference import AT_RESTART
from tests.reference.text import code, page, table

_LARGE: Final = 1_000_000
"""A maximum from which on it only bounds what a number may be, and tells nobody anything."""


@attrs.frozen
class Part:
    """A section of the file.

    Attributes:
        path: the keys that lead to it, ``[]`` for an item of a list.
        help: what the option that holds it says of it.
    """

    path: str
    help: str
    options: tuple[Option, ...]


def parts() -> list[Part]:
    """Returns every section, each before those inside of it."""
    return list(_parts("", "the whole file; every key may be left out", ConfigFile))


def _parts(path: str, help_text: str, model: type[Placed]) -> Iterator[Part]:
    options = options_of(model)
    yield Part(path, help_text, options)
    for each in options:
        inner, suffix = _inner(each.kind)
        if inner is not None:
            name = f"{path}.{each.key}" if path else each.key
            yield from _parts(name + suffix, each.help, inner)


def _inner(kind: Any) -> tuple[type[Placed] | None, str]:
    """Returns the section that a kind holds, and how its path is written."""
    suffix = ""
    while not isinstance(kind, Section) and hasattr(kind, "kind"):
        if isinstance(kind, ListOf):
            suffix += "[]"
        elif isinstance(kind, MapOf):
            suffix += ".NAME"
        kind = kind.kind
    return (kind.model, suffix) if isinstance(kind, Section) else (None, "")


def values(option: Option) -> str:
    """Returns the words or the range that an option accepts; empty if it is neither."""
    return " or ".join(dict.fromkeys(_values(option.kind.schema())))


def _values(schema: Any) -> Iterator[str]:
    if "enum" in schema:
        yield ", ".join(str(word) for word in schema["enum"] if word is not False)
    if schema.get("type") == "boolean":
        yield "true, false"
    if schema.get("maximum", _LARGE) < _LARGE and "minimum" in schema:
        yield f"{schema['minimum']:g} to {schema['maximum']:g}"
    if "items" in schema:
        yield from _values(schema["items"])
    for each in schema.get("anyOf", ()):
        yield from _values(each)


def default(option: Option) -> str:
    """Returns the default, in words."""
    return "required" if option.default is None else option.default


def options_page() -> str:
    """Returns the page."""
    lines = [
        "Every key of `router.yaml`, by section; `[]` stands for an item of a list, `NAME` for a"
        " name of yours.",
        "Durations are written `250ms`, `30s`, `5m`, `1h` or `1d`, sizes `64KiB`, `1MiB` or `2GB`;"
        " a bare number has the unit of the column.",
        "`${NAME}` is replaced by the environment variable, `${file:PATH}` by the content of the"
        " file; `$${` is a plain `${`.",
        "",
        "[deploy/router.yaml](../../deploy/router.yaml) has each key with a value, `man 5"
        " router.yaml` this text. `router check --schema` prints the JSON Schema, and",
        "[Editors](../install.md#editors) says how an editor uses it.",
        "",
    ]
    for part in parts():
        lines += [f"## {code(part.path) or 'The file'}", "", f"{_sentence(part.help)}", ""]
        rows = [
            (code(each.key), help_of(part, each), each.unit or "", values(each), default(each))
            for each in part.options
        ]
        lines += table(("key", "meaning", "unit", "values", "default"), rows)
    return page("Options", "the classes of `router/service/config`", lines)


def help_of(part: Part, each: Option) -> str:
    """Returns what an option does, and that a reload leaves it alone if it does."""
    is_kept = each.attribute in AT_RESTART.get(part.path, ())
    return _sentence(each.help) + (" Takes effect when the router starts." if is_kept else "")


def _sentence(text: str) -> str:
    return text + ("" if text.endswith(".") else ".")
