"""The log: its form, and the gate that keeps floods out."""

import contextlib
import io
import json
from collections.abc import Iterator

import pytest
import structlog
import trio
from trio.testing import MockClock

from router.model.condition import Condition
from router.service.log import (
    BURST,
    PERIOD_SECONDS,
    FloodGate,
    configure_logging,
    report_floods,
)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_event_level_time_and_fields() -> None:
    stream = io.StringIO()
    configure_logging(is_json=True, stream=stream)
    structlog.get_logger().info("link.resumed", link=7, condition=None)
    (line,) = lines_of(stream)
    assert line.pop("timestamp")
    assert line == {"event": "link.resumed", "level": "info", "link": 7}


def test_the_console_form_names_event_and_fields() -> None:
    stream = io.StringIO()
    configure_logging(is_json=False, stream=stream)
    structlog.get_logger().warning("link.resumed", link=7)
    assert "link.resumed" in stream.getvalue()
    assert "link=7" in stream.getvalue()


def test_neither_form_shows_how_python_writes_a_value() -> None:
    for is_json in (True, False):
        stream = io.StringIO()
        configure_logging(is_json=is_json, stream=stream)
        structlog.get_logger().info(
            "router.ready",
            listeners=["127.0.0.1:5672"],
            containers=(),
            unfinished=False,
            error=OSError(13, "Permission denied", "/x"),
            tag=b"\x01",
        )
        line = stream.getvalue()
        for sign in ("['", "()", "False", "[Errno", "b'", "OSError"):
            assert sign not in line
        assert "Permission denied: /x" in line


def test_what_is_less_severe_than_the_level_is_not_shown() -> None:
    stream = io.StringIO()
    configure_logging(is_json=True, level="warning", stream=stream)
    structlog.get_logger().info("link.resumed")
    structlog.get_logger().warning("link.refused")
    assert [line["event"] for line in lines_of(stream)] == ["link.refused"]


@pytest.mark.parametrize("is_json", [True, False])
def test_a_traceback_never_shows_the_values_of_variables(is_json: bool) -> None:
    stream = io.StringIO()
    configure_logging(is_json=is_json, stream=stream)

    def fail() -> None:
        payload = "hunter" + "2"
        raise ZeroDivisionError(len(payload))

    try:
        fail()
    except ZeroDivisionError as error:
        structlog.get_logger().error("connection.failed", exc_info=error)
    assert "ZeroDivisionError" in stream.getvalue()
    assert "in fail" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "one\ntwo\r\n2026-01-01 [error] forged",
    "\u202egnol",
    "\0\x7f\x9b",
    "t\udcff\ud800",
    "x" * 100_000,
)


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_peers_say_is_one_printable_line_in_either_form(is_json: bool, text: str) -> None:
    octets = io.BytesIO()
    stream = io.TextIOWrapper(octets, "utf-8", write_through=True)
    configure_logging(is_json=is_json, stream=stream)
    structlog.get_logger().info(
        "link.refused", container=text, link=[text], condition=Condition("x", text), more={text: 1}
    )
    (line,) = octets.getvalue().decode().splitlines()
    assert line.isprintable()
    assert len(line) < 6000
    if is_json:
        told = json.loads(line)
        assert all(str(value).isprintable() for value in told.values())
        assert told["link"][0] == told["container"]


@pytest.mark.parametrize("is_json", [True, False])
def test_a_traceback_has_its_lines_and_nothing_that_steers_a_terminal(is_json: bool) -> None:
    octets = io.BytesIO()
    stream = io.TextIOWrapper(octets, "utf-8", write_through=True)
    configure_logging(is_json=is_json, stream=stream)
    structlog.get_logger().error("connection.failed", exc_info=ValueError("bad \x1b[2J t\udcff"))
    text = octets.getvalue().decode()
    if is_json:
        text = json.loads(text)["exception"]
    assert "ValueError: bad \\x1b[2J t\\xff" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_flood_of_one_kind_is_cut_and_its_next_line_tells_how_much() -> None:
    now = 0.0
    gate = FloodGate(lambda: now)
    passed = []

    def log(event: str, **fields: object) -> None:
        with contextlib.suppress(structlog.DropEvent):
            passed.append(gate(None, "info", {"event": event, **fields}))

    for _ in range(BURST + 7):
        log("connection.refused", listener="a")
    log("connection.refused", listener="b")
    log("connection.closed", listener="a")
    assert len(passed) == BURST + 2
    now = PERIOD_SECONDS
    log("connection.refused", listener="a")
    assert passed[-1] == {"event": "connection.refused", "listener": "a", "suppressed": 7}
    log("connection.refused", listener="a")
    assert "suppressed" not in passed[-1]


def test_what_was_held_back_is_told_even_if_no_line_of_the_kind_follows() -> None:
    now = 0.0
    gate = FloodGate(lambda: now)
    for _ in range(BURST):
        gate(None, "info", {"event": "x"})
    for _ in range(3):
        with pytest.raises(structlog.DropEvent):
            gate(None, "info", {"event": "x"})
    assert gate.overdue() == []
    now = PERIOD_SECONDS
    assert gate.overdue() == [("x", 3)]
    assert gate.overdue() == []


async def test_held_back_lines_are_reported_as_time_passes(autojump_clock: MockClock) -> None:
    stream = io.StringIO()
    gate = configure_logging(is_json=True, stream=stream)
    gate.clock = trio.current_time
    for _ in range(BURST + 5):
        structlog.get_logger().info("connection.refused")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report_floods, gate)
        await trio.sleep(PERIOD_SECONDS * 2.5)
        nursery.cancel_scope.cancel()
    last = lines_of(stream)[-1]
    assert (last["event"], last["of"], last["count"]) == (
        "lines.suppressed",
        "connection.refused",
        5,
    )
