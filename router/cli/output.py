"""What commands print: lines for people, in which no foreign name is obeyed, and JSON for programs.

Whatever a peer chose (container-ids, names of links, addresses, error texts) is printed through
``tell``, or by ``screen`` in cells; both ask ``router.model.text.shown``.
"""

import json
from typing import Any, Final

import click

from router.model.text import is_text, shown

_ESCAPED_MOST: Final = 10
"""Characters that one may become."""

LINE_MOST: Final = 4000
"""Characters of a line."""


def tell(*lines: str, err: bool = False) -> None:
    """Prints lines; a line break inside of one is shown as such.

    Args:
        lines: without any style.
        err: to standard error.
    """
    for line in lines:
        click.echo(shown(line, LINE_MOST), err=err)


def tell_body(text: str) -> None:
    """Prints a body, one a line, however long."""
    click.echo(shown(text, len(text) * _ESCAPED_MOST))


def tell_json(value: Any, *, indent: int | None = None) -> None:
    """Prints JSON, in which everything but printable ASCII is escaped."""
    click.echo(json_text(value, indent=indent))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Writes JSON, in which everything but printable ASCII is escaped."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


class TextParameter(click.ParamType[str]):
    """An argument that is sent somewhere, and so has to be text: a name, an address."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuses octets that are not UTF-8."""
        text = str(value)
        if not is_text(text):
            self.fail(f"{shown(text)!r} is not UTF-8.", param, ctx)
        return text


TEXT: Final = TextParameter()
