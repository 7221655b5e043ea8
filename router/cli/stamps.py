"""Options of ``router send`` for the header and the properties of its messages."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from router.cli.output import TEXT
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties

Command = TypeVar("Command", bound=Callable[..., Any])

TTL_SECONDS_MOST: Final = 0xFFFF_FFFF / 1000
"""The field counts milliseconds in 32 bits (§3.2.1)."""

_PROPERTIES: Final = (
    "message_id",
    "correlation_id",
    "subject",
    "reply_to",
    "user_id",
    "content_type",
    "content_encoding",
    "group_id",
    "group_sequence",
)
_SYMBOLS: Final = ("content_type", "content_encoding")


def _read_property(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parts names from values."""
    found: dict[str, str] = {}
    for each in values:
        name, sign, value = each.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{each!r} is no NAME=VALUE", context, parameter)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", context, parameter)
        found[name] = value
    return found


def _read_symbol(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None and not value.isascii():
        raise click.BadParameter("it is not ASCII", context, parameter)
    return value


def stamp_options(command: Command) -> Command:
    """Adds the options; the command gets them as keyword arguments for ``head_of``."""
    decorators = [
        click.option(
            "--property",
            metavar="NAME=VALUE",
            type=TEXT,
            multiple=True,
            callback=_read_property,
            help="Application property of each message, a string; may be repeated; default: none.",
        ),
        *(_text_option(name) for name in _PROPERTIES if name != "group_sequence"),
        click.option(
            "--group-sequence",
            metavar="NUMBER",
            type=click.IntRange(min=0, max=0xFFFF_FFFF),
            help="Property group-sequence of each message; default: none.",
        ),
        click.option(
            "--ttl",
            metavar="SECONDS",
            type=click.FloatRange(min=0, max=TTL_SECONDS_MOST),
            help="Time to live of each message; default: for ever.",
        ),
        click.option(
            "--priority",
            metavar="NUMBER",
            type=click.IntRange(min=0, max=255),
            help="Priority of each message, 0 the lowest, 255 the highest; default: none, which"
            " stands for 4.",
        ),
        click.option("--durable", is_flag=True, help="Mark each message as durable; default: off."),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _text_option(name: str) -> Callable[[Command], Command]:
    field = name.replace("_", "-")
    more = "; default: its number, counted from 0" if name == "message_id" else "; default: none"
    where = " with --count" if name == "message_id" else ""
    return click.option(
        f"--{field}",
        metavar="TEXT",
        type=TEXT,
        callback=_read_symbol if name in _SYMBOLS else None,
        help=f"Property {field} of each message{more}{where}.",
    )


def given(stamps: Mapping[str, Any]) -> list[str]:
    """Returns the options that were given, as users spell them."""
    return [
        f"--{name.replace('_', '-')}"
        for name, value in stamps.items()
        if value is not None and value is not False and value != {}
    ]


def head_of(stamps: Mapping[str, Any]) -> AnnotatedMessage:
    """Makes the sections before the body; those that nothing was said about are absent.

    Args:
        stamps: the options by their names in Python.
    """
    fields = {name: stamps[name] for name in _PROPERTIES if stamps[name] is not None}
    if "user_id" in fields:
        fields["user_id"] = fields["user_id"].encode()
    header = None
    if stamps["durable"] or stamps["priority"] is not None or stamps["ttl"] is not None:
        ttl = stamps["ttl"]
        header = Header(
            durable=stamps["durable"],
            priority=stamps["priority"],
            ttl_ms=None if ttl is None else round(ttl * 1000),
        )
    return AnnotatedMessage(
        header=header,
        properties=Properties(**fields) if fields else None,
        application_properties=stamps["property"] or None,
    )
