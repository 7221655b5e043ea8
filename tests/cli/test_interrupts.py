"""Commands that are interrupted: just before they wait, and before they begin."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from router.cli.interrupts import INTERRUPTED, until_interrupted, until_told
from router.cli.main import Program, main
from tests.support.ports import free_port

FILE = """\
router: {{id: early, workers: 1, admin: "127.0.0.1:{port}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: "#"}}]
"""


def interrupt_unseen() -> None:
    """Interrupts as if just before a system call: the call is not broken off for it."""
    other = threading.Thread(
        target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    )
    other.start()  # the kernel has the thread itself handle it; Python tells the main thread


def test_ctrl_c_just_before_a_wait_ends_the_wait() -> None:
    """Without the timer this reads for ever."""
    readable, writable = os.pipe()
    began = time.monotonic()
    seen: list[bytes] = []
    with until_interrupted():
        timer = threading.Timer(0.05, interrupt_unseen)
        timer.start()
        seen.append(os.read(readable, 1))
    assert not seen
    assert time.monotonic() - began < 30
    os.close(readable)
    os.close(writable)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_who_is_asked_often_hears_of_it() -> None:
    former = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        for each in former:
            goes_on = until_told()
            assert goes_on()
            signal.raise_signal(each)
            assert not goes_on()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), BaseExceptionGroup("nursery", [KeyboardInterrupt()])]
)
def test_a_command_that_is_interrupted_before_its_time_ends_quietly_with_130(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    @click.command("status")
    def command() -> None:
        raise error

    monkeypatch.setattr(Program, "get_command", lambda *_: command)
    done = CliRunner().invoke(main, ["status"])
    assert (done.exit_code, done.output) == (INTERRUPTED, "")


def run_signalled(folder: Path, *numbers: signal.Signals, code: str = "") -> subprocess.Popen[str]:
    """Starts ``router run``; the signals come while it reads its file."""
    file = folder / "router.yaml"
    file.write_text(FILE.format(port=free_port()))
    program = f"""\
import signal
from router.service import credentials
load = credentials.load_usable
def load_late(path):
    for number in {[int(each) for each in numbers]}:
        signal.raise_signal(number)
    credentials.load_usable = load
    return load(path)
credentials.load_usable = load_late
from router.cli.main import main
main(["run", {str(file)!r}])
"""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_router_that_is_ended_while_it_reads_its_file_ends_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    with run_signalled(tmp_path, number) as router:
        told, _ = router.communicate(timeout=120)
        assert router.returncode == 0, told
    assert "Traceback" not in told


def test_a_router_that_is_reloaded_while_it_reads_its_file_lives(tmp_path: Path) -> None:
    with run_signalled(tmp_path, signal.SIGHUP) as router:
        assert router.stdout is not None
        lines = iter(router.stdout.readline, "")
        assert any("config.reloaded" in line for line in lines)
        router.send_signal(signal.SIGTERM)
        router.communicate(timeout=120)
        assert router.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_router_that_takes_long_to_read_its_file_ends_at_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = """\
import time
from router.service import credentials
def load_slowly(path):
    print("reading", flush=True)
    time.sleep(300)
credentials.load_usable = load_slowly
from router.cli.main import main
main(["run"])
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as router:
        assert router.stdout is not None
        try:
            assert router.stdout.readline() == "reading\n"
            router.send_signal(number)
            told, _ = router.communicate(timeout=60)
            assert (router.returncode, told) == (0, "")
        finally:
            router.kill()
