"""Manual pages in roff: one for each command, and one for the configuration file."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from router import __version__
from tests.reference import commands, options

_EXIT_STATUS: Final = "0: done; 1: failed while running; 2: bad usage or configuration."


def pages() -> Iterator[tuple[str, str]]:
    """Yields each manual page, by its place below ``share/man``."""
    every = commands.entries()
    for each in every:
        name = each.name.replace(" ", "-")
        yield f"man1/{name}.1", _command(name, each, every)
    yield "man5/router.yaml.5", _configuration()


def _command(name: str, entry: commands.Entry, every: Iterable[commands.Entry]) -> str:
    summary, *rest = entry.text
    first, _, _ = summary.partition(". ")
    synopsis = [".SH SYNOPSIS", f".B {_plain(entry.name)}", _plain(entry.usage)]
    lines = [*_head(name, 1, first.rstrip(".")), *synopsis, ".SH DESCRIPTION"]
    for paragraph in [summary, *rest]:
        lines += [".PP", _plain(paragraph)]
    lines.append(".SH OPTIONS")
    for option, text in entry.options:
        lines += [".TP", f"\\fB{_plain(option)}\\fR", _plain(text)]
    inner = [each for each in every if each.name.rpartition(" ")[0] == entry.name]
    if inner:
        lines.append(".SH COMMANDS")
        for each in inner:
            lines += [".TP", f"\\fB{_plain(each.name)}\\fR", _plain(each.text[0])]
    lines += [
        ".SH EXIT STATUS",
        _plain(entry.command.epilog or _EXIT_STATUS),
        ".SH SEE ALSO",
        ".BR router (1),",
        ".BR router.yaml (5)",
    ]
    return "\n".join(lines) + "\n"


def _configuration() -> str:
    lines = [
        *_head("router.yaml", 5, "configuration of the AMQP message router"),
        ".SH DESCRIPTION",
        _plain(
            "A YAML file; every key may be left out. Durations are written 250ms, 30s, 5m, 1h or"
            " 1d, sizes 64KiB, 1MiB or 2GB. ${NAME} is replaced by the environment variable,"
            " ${file:PATH} by the content of the file. [] stands for an item of a list, NAME for a"
            " name of yours."
        ),
        ".PP",
        _plain("router check FILE validates a file; router check --schema prints its schema."),
    ]
    for part in options.parts():
        lines += [f'.SH "{_plain(part.path) or "THE FILE"}"', _plain(part.help)]
        for each in part.options:
            facts = [each.unit, options.values(each), f"default: {options.default(each)}"]
            lines += [".TP", f"\\fB{_plain(each.key)}\\fR"]
            told = "; ".join(fact for fact in facts if fact)
            lines.append(_plain(f"{options.help_of(part, each).removesuffix('.')} [{told}]"))
    lines += [".SH SEE ALSO", ".BR router (1),", ".BR router-check (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, section: int, summary: str) -> list[str]:
    title = f'.TH "{name.upper()}" "{section}" "" "router {__version__}" "AMQP message router"'
    return [title, ".ad l", ".SH NAME", f"{_plain(name)} \\- {_plain(summary)}"]


def _plain(text: str) -> str:
    """Escapes a text for roff: no character of it is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
