"""Output of commands: lines for people, with foreign names escaped, and JSON for programs.

Texts that a peer chose (container-ids, link names, addresses, error texts) are printed through
``print_lines``, or by ``screen`` in cells; both escape them with ``router.model.text.shown``.
"""

import json
import os
from typing import TYPE_CHECKING, Any, Final

import click

from router.model.text import is_text, shown

if TYPE_CHECKING:
    from rich.console import Console

_ESCAPED_MOST: Final = 10
"""Most characters that the escape of one character takes."""

LINE_MOST: Final = 4000
"""Most characters of a line."""


def print_lines(*lines: str, err: bool = False) -> None:
    """Prints lines; a line break within a line is escaped.

    Args:
        lines: unstyled text.
        err: to standard error.
    """
    for line in lines:
        click.echo(shown(line, LINE_MOST), err=err)


def one_line(text: str) -> str:
    """Returns a message body on one line, however long."""
    return shown(text, len(text) * _ESCAPED_MOST)


def print_json(value: Any, *, indent: int | None = None, err: bool = False) -> None:
    """Prints JSON with everything but printable ASCII escaped."""
    click.echo(json_text(value, indent=indent), err=err)


def make_console(width: int) -> "Console":
    """Makes a console for tables.

    Args:
        width: without a terminal, unless COLUMNS says another.
    """
    from rich.console import Console  # noqa: PLC0415  commands start in a third of the time without

    console = Console(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = width
    return console


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Returns JSON with everything but printable ASCII escaped."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


class TextParameter(click.ParamType[str]):
    """An argument that is sent to a peer and must therefore be UTF-8: a name, an address."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuses octets that are not UTF-8."""
        text = str(value)
        if not is_text(text):
            self.fail(f"{shown(text)!r} is not UTF-8.", param, ctx)
        return text


TEXT: Final = TextParameter()
