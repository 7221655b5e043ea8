"""Two routers take turns at the place of a container; processes, signals and journals are real."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from router.cli.main import main
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

COUNT = 20
SECONDS = 60.0

pytestmark = pytest.mark.processes


def east(name: str, port: int, folder: Path) -> str:
    return f"""
router: {{id: {name}, workers: 1, state: {folder / name}, admin: off, log_format: json}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: orders, guarantee: exactly-once}}]
"""


def west(port: int, to: int, admin: int, folder: Path) -> str:
    return f"""
router:
  {{id: west, workers: 1, state: {folder / "west"}, admin: "127.0.0.1:{admin}", log_format: json}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers: {{east: {{url: "amqp://127.0.0.1:{to}", retry_limit_seconds: 0.5, resumes: true}}}}
routes: [{{address: orders, to: east, guarantee: exactly-once}}]
"""


@contextmanager
def running_east(name: str, port: int, folder: Path) -> Iterator[RunningRouter]:
    place = folder / f"{name}-{time.time_ns()}"
    place.mkdir()
    with running_router(east(name, port, folder), place) as router:
        yield router


@contextmanager
def client(*arguments: str, out: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "router", *arguments, "--settle", "exactly-once"]
    with out.open("wb") as file:
        process = subprocess.Popen([*command, "--wait", "90"], stdout=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(is_reached: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + SECONDS
    while not is_reached():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def listed(admin: int, *options: str) -> list[str]:
    """The containers that unsettled deliveries were sent to."""
    url = f"http://127.0.0.1:{admin}"
    shown = CliRunner().invoke(main, ["deliveries", "--json", "--admin", url, *options])
    assert shown.exit_code == 0, shown.output
    return [each["to_container"] for each in json.loads(shown.output)]


@pytest.mark.long
def test_what_one_router_has_is_never_sent_to_the_next_one_at_its_place(tmp_path: Path) -> None:
    here, there, admin = free_port(), free_port(), free_port()
    near, far = (f"amqp://127.0.0.1:{port}" for port in (here, there))
    of_a, of_b, sent = (tmp_path / name for name in ("of-a", "of-b", "sent"))

    def send(body: str, count: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        options = ["--body", body, "--count", str(count), "--json"]
        return client("send", near, "orders", *options, out=sent)

    def doubts() -> list[str]:
        return listed(admin, "--in-doubt")

    with (
        running_router(west(here, there, admin, tmp_path), tmp_path),
        client("receive", far, "orders", "--show", "--name", "in", out=of_a) as receiver,
        ExitStack() as stack,
    ):
        with running_east("a", there, tmp_path) as a:
            with send("first", 1) as sender:
                assert sender.wait(SECONDS) == 0
            receiver.send_signal(signal.SIGSTOP)
            sender = stack.enter_context(send("later", COUNT))
            until(lambda: listed(admin).count("a") == COUNT)
            a.kill()
        with (
            running_east("b", there, tmp_path),
            client("receive", far, "orders", "--show", out=of_b),
        ):
            until(lambda: len(doubts()) == COUNT)
            assert set(doubts()) == {"a"}
            with client("send", near, "orders", "--body", "new", out=tmp_path / "new") as other:
                assert other.wait(SECONDS) == 0
            assert of_b.read_text() == "new\n"
        with running_east("a", there, tmp_path):
            receiver.send_signal(signal.SIGCONT)
            assert sender.wait(SECONDS) == 0
            until(lambda: not doubts())
            until(lambda: of_a.read_text() == "first\n" + "later\n" * COUNT)
    assert json.loads(sent.read_text())["outcomes"] == {"accepted": COUNT}
