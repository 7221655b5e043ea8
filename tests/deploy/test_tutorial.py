"""The tutorial, copied from its page: every command is run, in order, with the wheel."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support import page, peers
from tests.support.installed import NOBODY, as_nobody
from tests.support.ports import free_port

PAGE: Final = Path("docs/tutorial.md")
SECONDS: Final = 540.0


@pytest.mark.installed
def test_the_tutorial_does_what_it_says(distributions: Path) -> None:
    peers.need_rabbitmq()
    home = distributions / "tutorial"
    home.mkdir()
    (wheel,) = distributions.glob("*.whl")
    shutil.copy(wheel, home)
    if os.getuid() == 0:
        os.chown(home, NOBODY, NOBODY)
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "ERL_EPMD_PORT": str(free_port()),
    }
    blocks = page.blocks(PAGE)
    assert _in_use() == [], "the ports of the page are in use"
    try:
        done = _run([*as_nobody(), "bash", "-c", page.script(blocks)], home, environment)
    finally:  # what the brokers have started and leave to others
        _run(["epmd", "-kill"], home, environment)
    printed = page.outputs(done.stdout)
    lacking = {
        f"{PAGE}:{block.line}": page.missing(block, printed.get(block.line, "")) for block in blocks
    }
    assert done.returncode == 0, done.stdout[-5000:]
    assert {place: lines for place, lines in lacking.items() if lines} == {}, done.stdout


def _in_use() -> list[int]:
    """Returns the ports of the page on which somebody listens."""
    ports = set(map(int, re.findall(r"127\.0\.0\.1:(\d+)", PAGE.read_text())))
    found = []
    for port in sorted(ports):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


def _run(
    command: list[str], folder: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Runs a command in a process group of its own, of which nothing is left behind."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, said)


def test_the_page_has_commands_and_says_what_most_of_them_print() -> None:
    blocks = page.blocks(PAGE)
    assert len(blocks) > 10
    assert sum(bool(block.printed) for block in blocks) > len(blocks) / 2


def test_a_line_that_was_not_printed_is_missed_and_one_in_the_wrong_order_too() -> None:
    block = page.Block(1, "", ("sent … of 5", "done"))
    assert page.missing(block, "x\nsent 5  of 5, fine\ndone\n") == []
    assert page.missing(block, "done\nsent 5 of 5\n") == ["done"]
    assert page.missing(block, "") == ["sent … of 5", "done"]


@pytest.mark.processes
def test_a_page_whose_command_fails_ends_there() -> None:
    blocks = [page.Block(3, "sleep 60 & echo one"), page.Block(7, "false"), page.Block(9, "echo x")]
    done = subprocess.run(
        ["bash", "-c", page.script(blocks)], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert page.outputs(done.stdout)[3] == "one\n"
    assert 9 not in page.outputs(done.stdout)
