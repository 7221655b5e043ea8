"""`router send` with messages from a file or standard input, against a running router."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.wire.protocols import PROTOCOLS
from tests.support.commands import begin_octets
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

CONFIG = """\
router: {{id: input, admin: off}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: "#"
"""

READ_AHEAD = 900_000
"""The least that is read before there is credit: 1 MiB less what a pipe holds, 4 to 64 KiB."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    with running_router(CONFIG.format(port=port), tmp_path_factory.mktemp("input")):
        yield f"amqp://127.0.0.1:{port}"


def run(*arguments: str, octets: bytes = b"") -> tuple[int, str, list[str]]:
    process = begin_octets(*arguments)
    output, errors = process.communicate(octets, timeout=120)
    return process.returncode, output.decode(), complaints(errors)


def complaints(errors: bytes) -> list[str]:
    """What a command says, but for why it waits: on a busy machine others may be slow to come."""
    lines = errors.decode().splitlines()
    return [line for line in lines if not line.startswith("router send: it ")]


@contextlib.contextmanager
def receiving(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = begin_octets("receive", *arguments, "--timeout", "60")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def bodies(receiver: subprocess.Popen[bytes]) -> list[str]:
    """Returns the bodies that a receiver has shown, without its account."""
    output, errors = receiver.communicate(timeout=120)
    assert (receiver.returncode, errors) == (0, b"")
    return output.decode().splitlines()[:-1]


def test_each_line_of_standard_input_is_a_message(url: str) -> None:
    with receiving(url, "lines", "--count", "4", "--show") as receiver:
        code, output, errors = run("send", url, "lines", "--lines", octets=b"one\n\ntwo \nthree")
        assert (code, errors) == (0, [])
        assert output.startswith("sent 4, accepted 4 in ")
        assert bodies(receiver) == ["one", "", "two ", "three"]


def test_each_line_of_a_file_is_a_message(url: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"one\ntwo\n")
    with receiving(url, "file.lines", "--count", "2", "--show") as receiver:
        assert run("send", url, "file.lines", "--lines", "--file", str(path))[0] == 0
        assert bodies(receiver) == ["one", "two"]


@pytest.mark.parametrize("source", ["file", "-"])
def test_a_file_or_standard_input_is_one_body(url: str, tmp_path: Path, source: str) -> None:
    octets = "a line\nund grüezi\n".encode()
    path = tmp_path / "input"
    path.write_bytes(octets)
    name = str(path) if source == "file" else source
    with receiving(url, "whole", "--count", "1", "--show") as receiver:
        assert run("send", url, "whole", "--file", name, octets=octets)[0] == 0
        assert bodies(receiver) == ["a line\\nund grüezi\\n"]


def test_input_without_a_line_sends_nothing_and_is_done(url: str) -> None:
    code, output, errors = run("send", url, "lines.none", "--lines", "--json")
    assert (code, errors) == (0, [])
    assert json.loads(output)["sent"] == 0


def test_many_lines_come_in_order_and_none_is_missing(url: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(20_000)]
    path = tmp_path / "input"
    path.write_text("\n".join(lines))
    with receiving(url, "lines.many", "--count", "20000", "--show") as receiver:
        with path.open("rb") as file:
            sender = begin_octets("send", url, "lines.many", "--lines", stdin=file.fileno())
        assert bodies(receiver) == lines
        output, errors = sender.communicate(timeout=60)
    assert sender.returncode == 0, errors
    assert output.startswith(b"sent 20,000, accepted 20,000 in ")


def test_a_line_is_sent_before_the_next_one_is_written(url: str) -> None:
    with receiving(url, "lines.slow", "--count", "1", "--show") as receiver:
        sender = begin_octets("send", url, "lines.slow", "--lines")
        assert sender.stdin is not None
        sender.stdin.write(b"first\n")
        sender.stdin.flush()
        assert bodies(receiver) == ["first"]
        output, errors = sender.communicate(timeout=60)
    assert sender.returncode == 0, errors
    assert output.startswith(b"sent 1, accepted 1 in ")


def test_a_router_without_credit_stops_who_writes(url: str) -> None:
    sender = begin_octets("send", url, "lines.nobody", "--lines")
    assert sender.stdin is not None
    os.set_blocking(sender.stdin.fileno(), False)
    written, still = 0, 0
    end = time.monotonic() + 60
    while (written <= READ_AHEAD or still < 50) and time.monotonic() < end:  # 50 in a row: 1 s
        try:
            written += os.write(sender.stdin.fileno(), b"x" * 999 + b"\n")
            still = 0
        except BlockingIOError:
            still += 1
            time.sleep(0.02)
        assert written < 8 << 20, "reading does not stop"
    assert written > READ_AHEAD
    sender.send_signal(signal.SIGINT)
    assert sender.wait(60) == 1
    assert sender.stdout is not None
    assert sender.stderr is not None
    assert sender.stdout.read().startswith(b"nothing in ")
    assert b"standard input: the end was not reached; before it 0 were sent" in sender.stderr.read()
    with contextlib.suppress(BrokenPipeError):
        sender.stdin.close()
    sender.stdout.close()
    sender.stderr.close()


@pytest.mark.parametrize(
    ("protocol", "address"),
    [
        *((str(each), f"plain.{each}") for each in PROTOCOLS),
        ("amqp-0-9-1", "shop/eu"),
        ("amqp-0-9r1", "shop9/eu"),
        ("amqp-0-10", "shop10/eu"),
    ],
)
def test_lines_go_over_every_protocol_and_to_an_exchange_with_a_key(
    url: str, protocol: str, address: str
) -> None:
    with receiving(url, address, "--count", "2", "--show") as receiver:
        code, _, errors = run(
            "send", url, address, "--lines", "--protocol", protocol, octets=b"one\ntwo\n"
        )
        assert (code, errors) == (0, [])
        assert bodies(receiver) == ["one", "two"]


@pytest.mark.parametrize("arguments", [[], ["--settle", "exactly-once"], ["--durable"]])
def test_piped_input_that_no_option_takes_is_refused(arguments: list[str]) -> None:
    code, output, errors = run("send", "amqp://127.0.0.1:1", "a", *arguments, octets=b"hi\n")
    assert (code, output) == (2, "")
    assert "--lines" in " ".join(errors)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--lines", "--count", "2"], "--count does not go with input"),
        (["--file", "-", "--body", "a"], "--body does not go with input"),
        (["--file", "/nowhere"], "does not exist"),
        (["--property", "name"], "'name' is no NAME=VALUE"),
        (["--property", "a=1", "--property", "a=2"], "'a' is given twice"),
        (["--ttl", "-1"], "--ttl"),
        (["--priority", "256"], "--priority"),
        (["--content-type", "grün"], "it is not ASCII"),
    ],
)
def test_options_that_contradict_each_other_end_with_2(arguments: list[str], problem: str) -> None:
    code, output, errors = run("send", "amqp://127.0.0.1:1", "a", *arguments)
    assert (code, output) == (2, "")
    assert problem in " ".join(" ".join(errors).split())
