"""What is measured: the octet relay, this router, and any other that already listens somewhere."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from tests.bench.cases import Case
from tests.bench.programs import congestion, program
from tests.support.ports import free_port

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

START_SECONDS = 120.0
"""A table of 100,000 routes takes a while to read."""


@attrs.frozen(kw_only=True)
class Subject:
    """Something under load.

    Attributes:
        port: where it accepts connections.
        process: to be watched; 0: it is somebody else's.
        options: of the load program, beside those of the case.
    """

    name: str
    port: int
    process: int = 0
    options: dict[str, object] = attrs.field(factory=dict)


@contextlib.contextmanager
def _running(
    command: list[str], core: int | None, **options: object
) -> Iterator[subprocess.Popen[str]]:
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    with subprocess.Popen([*pinned, *command], text=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_answer(port: int, process: subprocess.Popen[str]) -> None:
    """Waits until AMQP is spoken at a port: a socket is open before somebody serves it."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(AMQP_HEADER)
            if sock.recv(len(AMQP_HEADER)):
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not speak AMQP on port {port}")


@contextlib.contextmanager
def relay(case: Case, core: int | None) -> Iterator[Subject]:
    """The yardstick."""
    port, back = free_port(), free_port()
    with _running([program("relay"), str(port), str(back), congestion()], core) as process:
        time.sleep(0.1)
        yield Subject(
            name="relay",
            port=port,
            process=process.pid,
            options=case.relay_load | {"mode": "raw", "back": back},
        )


def configuration(case: Case, port: int, state: Path) -> str:
    """A routing table for a case: one route takes everything, the others are only there."""
    others = "".join(f"  - address: other.{number}\n" for number in range(case.routes - 1))
    return (
        f"router:\n  id: bench\n  workers: 1\n  state: {state}\n"
        f"listeners:\n  - bind: 127.0.0.1:{port}\n"
        f"limits:\n  link_credit: {max(1000, case.window)}\n  connections: 30000\n"
        f'routes:\n  - address: "#"\n    guarantee: {case.guarantee}\n{others}'
    )


@contextlib.contextmanager
def router(
    case: Case, core: int | None, directory: Path, *, probed: bool = False
) -> Iterator[Subject]:
    """This router, one worker."""
    port = free_port()
    file = directory / "router.yaml"
    file.write_text(configuration(case, port, directory / "state"))
    environment = os.environ | {"ROUTER_TCP_CONGESTION": congestion()}
    if case.express:
        environment |= {"ROUTER_EXPRESS": case.express}
    module = "tests.bench.probe" if probed else "router"
    command = [sys.executable, "-m", module, "run", str(file)]
    with (
        (directory / "router.log").open("w") as log,
        _running(command, core, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            _await_answer(port, process)
        except RuntimeError as error:
            error.add_note((directory / "router.log").read_text()[-2000:])
            raise
        yield Subject(name="router", port=port, process=process.pid, options=case.load)


def another(case: Case, url: str) -> Subject:
    """Somebody else's router, as ``amqp://127.0.0.1:PORT``; one that wants SASL gets ANONYMOUS."""
    parts = urlsplit(url)
    sasl = 1 if parts.username else 0
    return Subject(
        name=url,
        port=parts.port or 5672,
        options=case.load | {"host": parts.hostname or "127.0.0.1", "sasl": sasl},
    )
