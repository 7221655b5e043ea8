"""Values in lines of the log: nothing is written as Python writes it."""

import enum
import errno
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.model.condition import Condition
from router.model.log_values import printable, reason_of, show_columns
from router.model.place import TcpAddress


class Health(enum.Enum):
    """Values that are no words."""

    DISK_FULL = 2


class Level(enum.StrEnum):
    """Values that are words."""

    INFO = "info"


@attrs.frozen
class GoneError(Exception):
    """An error with words of its own."""

    def __str__(self) -> str:
        return "it is gone"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Health.DISK_FULL, "disk_full"),
        (Level.INFO, "info"),
        (b"\x00\xff", "00ff"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/x"), "Permission denied: /x"),
        (OSError("no number"), "no number"),
        (GoneError(), "it is gone"),
        (TimeoutError(), "TimeoutError"),
        (TcpAddress("::1", 5672), "[::1]:5672"),
        (Path("/x"), "/x"),
        (Condition("amqp:not-found", "no"), "amqp:not-found: no"),
        ((1, (Health.DISK_FULL, True)), [1, ["disk_full", True]]),
        ({"a": b"\x01"}, {"a": "01"}),
        (None, None),
    ],
)
def test_a_value_is_worded(value: Any, written: Any) -> None:
    assert printable(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (["127.0.0.1:5672", "[::1]:5672"], "127.0.0.1:5672,[::1]:5672"),
        ([], "none"),
        (True, "true"),
        (0.25, "0.25"),
        ("worker 2", '"worker 2"'),
        ("it's", "it's"),
        ("", '""'),
        ({"a": 1, "b": [2, 3]}, "a:1,b:2,3"),
    ],
)
def test_columns_have_no_brackets_and_no_quotes_of_python(value: Any, written: str) -> None:
    line = show_columns(None, "info", {"event": "router.ready", "value": value})
    assert repr(line["value"]) == written
    assert line["event"] == "router.ready"


def test_an_error_of_the_system_has_no_number() -> None:
    with pytest.raises(OSError, match="Errno") as raised:
        Path("/no/such/file").read_bytes()
    assert reason_of(raised.value) == "No such file or directory: /no/such/file"
