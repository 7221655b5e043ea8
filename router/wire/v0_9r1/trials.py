"""Class test: checks of the other side's codec (see ``optional``).

Strings and tables are processed as octets, so nothing depends on their encoding.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from router.model.text import encode_text
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9r1 import optional as o
from router.wire.v1_0.types import Int

_T = TypeVar("_T", int, bytes)

ADD, LEAST, GREATEST = 1, 2, 3
"""Operations."""

_INTEGER: Final[dict[int, Callable[[Sequence[int]], int]]] = {ADD: sum, LEAST: min, GREATEST: max}
_STRING: Final[dict[int, Callable[[Sequence[bytes]], bytes]]] = {
    ADD: b"".join,
    LEAST: lambda each: min(each, key=len),
    GREATEST: lambda each: max(each, key=len),
}

_U64: Final = (1 << 64) - 1


def _apply(
    operations: dict[int, Callable[[Sequence[_T]], _T]], code: int, values: Sequence[_T], none: _T
) -> _T:
    operation = operations.get(code)
    if operation is None:
        raise PeerError(Reply.SYNTAX_ERROR, f"operation {code}; there are 1, 2 and 3")
    return operation(values) if values else none


def integer(method: o.TestInteger) -> o.TestIntegerOk:
    """Answers ``test.integer``; of a sum above 64 bits the highest bits are lost."""
    values = [method.integer_1, method.integer_2, method.integer_3, method.integer_4]
    return o.TestIntegerOk(_apply(_INTEGER, method.operation, values, 0) & _U64)


def string(method: o.TestString) -> o.TestStringOk:
    """Answers ``test.string``."""
    values = [encode_text(method.string_1), method.string_2]
    return o.TestStringOk(_apply(_STRING, method.operation, values, b""))


def table(method: o.TestTable) -> o.TestTableOk:
    """Answers ``test.table``: integers and strings of the table itself, not of tables in it."""
    values: list[Any] = list(method.table.values())
    integers = [int(each) for each in values if type(each) is Int]
    strings = [encode_text(each) for each in values if type(each) is str]
    return o.TestTableOk(
        _apply(_INTEGER, method.integer_op, integers, 0) & _U64,
        _apply(_STRING, method.string_op, strings, b""),
    )


def checksum(body: bytes) -> int:
    """Returns the sum of a content's octets, in 32 bits."""
    return sum(body) & 0xFFFF_FFFF
