"""What is measured: the octet relay, this router, and any other that already listens somewhere."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import trustme

from tests.bench.cases import Case
from tests.bench.programs import congestion, program
from tests.support.ports import free_port

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

START_SECONDS = 300.0
"""A table of 100,000 routes takes a while to read."""


@attrs.frozen(kw_only=True)
class Subject:
    """Something under load.

    Attributes:
        port: where it accepts connections.
        process: to be watched; 0: it is somebody else's.
        program: the load program.
        options: of the load program, beside those of the case.
    """

    name: str
    port: int
    process: int = 0
    program: str = "load"
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


def _await_answer(port: int, process: subprocess.Popen[str], *, tls: bool) -> None:
    """Waits until AMQP is spoken at a port: a socket is open before somebody serves it."""
    until = time.monotonic() + START_SECONDS
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            if tls:
                sock = stack.enter_context(context.wrap_socket(sock))
            sock.sendall(AMQP_HEADER)
            if sock.recv(len(AMQP_HEADER)):
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not speak AMQP on port {port}")


def certificate(directory: Path) -> Path:
    """Returns a file of a server's key and certificate, made when it is first asked for."""
    file = directory / "server.pem"
    if not file.exists():
        made = trustme.CA().issue_cert("localhost")
        made.private_key_and_cert_chain_pem.write_to_path(str(file))
    return file


@contextlib.contextmanager
def relay(case: Case, core: int | None, directory: Path) -> Iterator[Subject]:
    """The yardstick."""
    port, back = free_port(), free_port()
    secured = [str(certificate(directory))] if case.tls else []
    command = [program("relay"), str(port), str(back), congestion(), *secured]
    with _running(command, core) as process:
        time.sleep(0.1)
        yield Subject(
            name="relay",
            port=port,
            process=process.pid,
            program=case.program,
            options=case.relay_load | _raw(back, *secured),
        )


def _raw(back: int, *secured: str) -> dict[str, object]:
    options: dict[str, object] = {"mode": "raw", "back": back}
    return options | ({"certificate": secured[0]} if secured else {})


def has_haproxy() -> bool:
    """Tells whether TLS can be measured beside HAProxy, too."""
    return shutil.which("haproxy") is not None


@contextlib.contextmanager
def haproxy(case: Case, core: int | None, directory: Path) -> Iterator[Subject]:
    """Another TLS relay, with one thread; its sockets have the system's congestion control."""
    port, back = free_port(), free_port()
    file, secured = directory / "haproxy.cfg", str(certificate(directory))
    file.write_text(
        "global\n  nbthread 1\n  maxconn 4000\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
        f"listen relay\n  bind 127.0.0.1:{port} ssl crt {secured}\n"
        f"  server next 127.0.0.1:{back} ssl verify none\n"
    )
    with _running(["haproxy", "-f", str(file), "-db"], core) as process:
        time.sleep(0.5)
        yield Subject(
            name="haproxy",
            port=port,
            process=process.pid,
            program=case.program,
            options=case.relay_load | _raw(back, secured),
        )


def configuration(case: Case, port: int, state: Path) -> str:
    """A routing table for a case: one route takes everything, the others are only there."""
    file = state.with_name("server.pem")
    tls = f"    tls: {{cert: {file}, key: {file}}}\n" if case.tls else ""
    others = "".join(f"  - address: other.{number}\n" for number in range(case.routes - 1))
    dialed, to = _dialing_itself(case, file) if case.dials else ("", "")
    return (
        f"router:\n  id: bench\n  workers: 1\n  state: {state}\n"
        f"listeners:\n  - bind: 127.0.0.1:{port}\n{tls}{dialed}"
        f"limits:\n  link_credit: {max(1000, case.window)}\n  connections: 30000\n"
        f'routes:\n  - address: "#"\n    guarantee: {case.guarantee}\n{to}{others}'
    )


def _dialing_itself(case: Case, file: Path) -> tuple[str, str]:
    """A listener that the router dials itself, and what has all messages pass through it."""
    port = free_port()
    listener = (
        f"  - bind: 127.0.0.1:{port}\n"
        f"    tls: {{cert: {file}, key: {file}, required: true}}\n    websocket: {{}}\n"
    )
    url = f"{case.dials}://127.0.0.1:{port}"
    containers = f'containers:\n  self: {{url: "{url}", tls: {{verify: false}}}}\n'
    return listener + containers, '    to: "self/dialed.#"\n  - address: dialed.#\n'


@contextlib.contextmanager
def router(
    case: Case,
    core: int | None,
    directory: Path,
    *,
    probed: bool = False,
    adapt: Callable[[str], str] = str,
    port: int | None = None,
) -> Iterator[Subject]:
    """This router, one worker, with a file that ``adapt`` has changed."""
    port = port or free_port()
    file = directory / "router.yaml"
    if case.tls or case.dials:
        certificate(directory)
    file.write_text(adapt(configuration(case, port, directory / "state")))
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
            _await_answer(port, process, tls=case.tls)
        except RuntimeError as error:
            error.add_note((directory / "router.log").read_text()[-2000:])
            raise
        yield Subject(
            name="router",
            port=port,
            process=process.pid,
            program=case.program,
            options=case.load,
        )


def pin_children(process: int, core: int | None) -> None:
    """Has the processes that a router has started, as its store's, on a core of theirs."""
    if core is None:
        return
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text().split():
            for each in Path(f"/proc/{child}/task").iterdir():
                os.sched_setaffinity(int(each.name), {core})


def another(case: Case, url: str) -> Subject:
    """Somebody else's router, as ``amqp://127.0.0.1:PORT``; one that wants SASL gets ANONYMOUS."""
    parts = urlsplit(url)
    sasl = 1 if parts.username else 0
    return Subject(
        name=url,
        port=parts.port or 5672,
        program=case.program,
        options=case.load | {"host": parts.hostname or "127.0.0.1", "sasl": sasl},
    )
