"""Reading messages for `router send`, without a process."""

import os
from pathlib import Path

import pytest
import trio

from router.cli import intake as reading
from router.cli.intake import AHEAD_OCTETS, Intake, LineError, has_input
from router.cli.stamps import head_of
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties


def intake(descriptor: int = -1, is_by_line: bool = True) -> Intake:
    return Intake(descriptor=descriptor, name="input", encode=upper, is_by_line=is_by_line)


def upper(line: bytes) -> bytes:
    if line == b"bad":
        raise LineError("it is bad")
    return line.upper()


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_whole_however_they_are_read(size: int) -> None:
    octets = b"one\n\ntwo\nthree"
    lines = intake()
    for start in range(0, len(octets), size):
        lines.take(octets[start : start + size])
    lines.take(b"")
    assert list(lines) == [b"ONE", b"", b"TWO", b"THREE"]
    assert (lines.count, lines.problem) == (4, None)


def test_nothing_is_no_line_and_one_empty_body() -> None:
    lines, whole = intake(), intake(is_by_line=False)
    lines.take(b"")
    whole.take(b"")
    assert (list(lines), list(whole)) == ([], [b""])


def test_a_whole_file_is_one_message() -> None:
    whole = intake(is_by_line=False)
    for octets in (b"one\n", b"two", b""):
        whole.take(octets)
    assert list(whole) == [b"ONE\nTWO"]


def test_what_is_not_read_yet_is_none_and_not_the_end() -> None:
    lines = intake()
    assert next(lines) is None
    lines.take(b"one\ntw")
    assert [next(lines), next(lines)] == [b"ONE", None]


def test_a_bad_line_ends_the_reading_and_is_named_by_its_number() -> None:
    lines = intake()
    lines.take(b"one\nbad\ntwo\n")
    assert lines.problem == "input, line 2: it is bad"
    assert list(lines) == [b"ONE"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MESSAGE_OCTETS", 10)
    lines = intake()
    lines.take(b"x" * 10)
    assert lines.problem is None
    lines.take(b"x")
    assert lines.problem == "input, line 1: it is longer than 10 octets"


async def test_reading_pauses_until_what_was_read_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * 999 + b"\n")
    path.write_bytes(path.read_bytes() * (4 * AHEAD_OCTETS // 1000))
    descriptor = os.open(path, os.O_RDONLY)
    lines = intake(descriptor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.run, lambda: None)
        await trio.testing.wait_all_tasks_blocked()
        while lines.count * 999 < AHEAD_OCTETS * 0.9:
            await trio.sleep(0)
        await trio.sleep(0.05)  # a thread reads: there is no clock of ours to turn
        assert lines.count * 999 < AHEAD_OCTETS * 1.2
        taken = 0
        while not lines.has_ended or next(lines, None) is not None:
            taken += 1
            next(lines, None)
            await trio.sleep(0)
    assert lines.count == 4 * AHEAD_OCTETS // 1000
    os.close(descriptor)


def test_input_is_a_pipe_or_file_that_has_something_or_may_yet_have(tmp_path: Path) -> None:
    near, far = os.pipe()
    assert has_input(near), "somebody may write"
    os.write(far, b"x")
    os.close(far)
    assert has_input(near)
    os.read(near, 1)
    assert not has_input(near)
    os.close(near)
    path = tmp_path / "input"
    for octets in (b"", b"x"):
        path.write_bytes(octets)
        with path.open("rb") as file:
            assert has_input(file.fileno()) is bool(octets)
    with open(os.devnull, "rb") as file:
        assert not has_input(file.fileno())
    assert not has_input(-1)


PLAIN = dict.fromkeys(
    [
        *("message_id", "correlation_id", "subject", "reply_to", "user_id", "content_type"),
        *("content_encoding", "group_id", "group_sequence", "ttl", "priority"),
    ]
) | {"durable": False, "property": {}}


def test_nothing_said_is_no_section() -> None:
    assert head_of(PLAIN) == AnnotatedMessage()


def test_options_become_header_properties_and_application_properties() -> None:
    said = {
        "durable": True,
        "priority": 0,
        "ttl": 1.5,
        "user_id": "me",
        "group_sequence": 0,
        "content_type": "text/plain",
        "property": {"a": "1"},
    }
    assert head_of(PLAIN | said) == AnnotatedMessage(
        header=Header(durable=True, priority=0, ttl_ms=1500),
        properties=Properties(user_id=b"me", group_sequence=0, content_type="text/plain"),
        application_properties={"a": "1"},
    )
