"""How values are written in lines of the log: never as Python writes them.

Texts are escaped (``router.model.text``), an enumeration's member is its word, octets are
hexadecimal digits, an error of the system is its message without number. In columns a list is its
items with commas between, true and false are words, and a text with blanks stands in double quotes.
"""

import enum
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from router.model.text import shown

TEXT_MOST: Final = 1000
"""Longest value, in characters."""

TRACEBACK_MOST: Final = 10_000
"""Longest line of a traceback, in characters."""

_OWN_COLUMNS: Final = frozenset(("event", "level", "timestamp", "exception"))
"""Keys that the columns of a console show without their names."""

Line = MutableMapping[str, Any]


def show_values(logger: Any, method: str, line: Line) -> Line:
    """Makes every value of a line printable; a structlog processor."""
    return {
        key: _traceback(value) if key == "exception" else printable(value)
        for key, value in line.items()
    }


def show_columns(logger: Any, method: str, line: Line) -> Line:
    """Words every value for columns; a structlog processor behind ``show_values``."""
    return {
        key: value if key in _OWN_COLUMNS else _Worded(_word(value)) for key, value in line.items()
    }


def printable(value: Any) -> Any:
    """Returns a value as JSON can write it."""
    match value:
        case enum.Enum():
            return value.value if isinstance(value.value, str) else value.name.lower()
        case None | bool() | int() | float():
            return value
        case bytes() | bytearray() | memoryview():
            return shown(value.hex(), TEXT_MOST)
        case BaseException():
            return shown(reason_of(value), TEXT_MOST)
        case Mapping():
            return {shown(str(key), TEXT_MOST): printable(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [printable(each) for each in value]
        case _:
            return shown(str(value), TEXT_MOST)


def reason_of(error: BaseException) -> str:
    """Returns an error's message: for one of the system, its words and the file concerned."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__


def _traceback(value: Any) -> str:
    """Makes the lines of a traceback printable and keeps its line breaks."""
    return "\n".join(shown(line, TRACEBACK_MOST) for line in str(value).split("\n"))


class _Worded:
    """A value in columns: what renders columns writes the ``repr`` of whatever is no text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{_word(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list):
        return ",".join(map(_word, value)) or "none"
    text = str(value)
    if text and not set(text) & {" ", '"', "="}:
        return text
    return '"' + text.replace('"', "'") + '"'
