"""Cursors: the position where a page of a list ended, as an opaque text.

A cursor is JSON in URL-safe base64, so that clients do not construct their own:
``[worker, position]``, or, for deliveries, whose pages come from all workers at once,
``[[worker, position], ...]``.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from router.core.listing import DeliveryPosition, LinkPosition
from router.errors import RouterError

Position = TypeVar("Position")

_NO_CURSOR = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""Errors that decoding an invalid cursor may raise."""


@attrs.frozen
class CursorError(RouterError):
    """The text is not a cursor of that list."""

    def __str__(self) -> str:
        return "this is no cursor of this list"


def encode(number: int, position: object) -> str:
    """Encodes where a page ended: the worker and the position in its list."""
    fields = attrs.astuple(position) if attrs.has(type(position)) else position  # type: ignore[arg-type]
    return _write([number, fields])


def decode(
    cursor: str | None, read: Callable[[Any], Position], beginning: Position
) -> tuple[int, Position]:
    """Decodes where a page ended; None: this is the first page.

    Raises:
        CursorError: the text is not such a cursor.
    """
    if cursor is None:
        return 0, beginning
    try:
        number, position = _read(cursor)
        return int(number), read(position)
    except _NO_CURSOR:
        raise CursorError from None


def read_number(position: Any) -> tuple[int]:
    """Reads the position in a list of connections."""
    (number,) = position
    return (int(number),)


def read_link_position(position: Any) -> LinkPosition:
    """Reads the position in a list of links."""
    link, suspended = position
    if suspended is None:
        return LinkPosition(int(link))
    container, name, role = map(str, suspended)
    return LinkPosition(int(link), (container, name, role))


def read_positions(cursor: str | None) -> dict[int, DeliveryPosition]:
    """Decodes where a page of deliveries ended on each worker.

    Raises:
        CursorError: the text is not such a cursor.
    """
    if cursor is None:
        return {}
    try:
        found = _read(cursor)
        if not isinstance(found, list) or not found:
            raise CursorError
        return {
            int(number): DeliveryPosition(float(arrived), str(container), str(link), int(sequence))
            for number, (arrived, container, link, sequence) in found
        }
    except _NO_CURSOR:
        raise CursorError from None


def write_positions(positions: Mapping[int, DeliveryPosition]) -> str:
    """Encodes where a page of deliveries ended on each worker."""
    return _write([(number, attrs.astuple(each)) for number, each in positions.items()])


def _write(value: object) -> str:
    octets = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _read(cursor: str) -> Any:
    octets = cursor.encode() + b"=" * (-len(cursor) % 4)
    return json.loads(base64.urlsafe_b64decode(octets))
