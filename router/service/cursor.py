"""Cursors: where a page of a list ended, as an opaque text.

JSON in URL-safe base64, so that nobody is tempted to make one up: ``[worker, position]``, or for
deliveries, whose pages come from all workers at once, ``[[worker, position], ...]``.
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
"""What reading a text that is none of ours may raise."""


@attrs.frozen
class CursorError(RouterError):
    """The text is no cursor of that list."""

    def __str__(self) -> str:
        return "this is no cursor of this list"


def encode(number: int, position: object) -> str:
    """Writes where a page ended: on which worker, and at which position there."""
    fields = attrs.astuple(position) if attrs.has(type(position)) else position  # type: ignore[arg-type]
    return _write([number, fields])


def decode(
    cursor: str | None, read: Callable[[Any], Position], beginning: Position
) -> tuple[int, Position]:
    """Reads where a page ended; None: nothing was before it.

    Raises:
        CursorError: it is no such cursor.
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
    """Reads where a page of deliveries ended on each worker.

    Raises:
        CursorError: it is no such cursor.
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
    """Writes where a page of deliveries ended on each worker."""
    return _write([(number, attrs.astuple(each)) for number, each in positions.items()])


def _write(value: object) -> str:
    octets = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _read(cursor: str) -> Any:
    octets = cursor.encode() + b"=" * (-len(cursor) % 4)
    return json.loads(base64.urlsafe_b64decode(octets))
