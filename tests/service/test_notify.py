"""What the service manager is told, and what it gives."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from router.service.notify import Notifier, inherited_sockets

OTHER = str(os.getpid() + 1)


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(tmp_path / "notify"))
    sock.setblocking(False)
    return sock


def heard(manager: socket.socket) -> list[str]:
    lines = []
    while True:
        try:
            lines += manager.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


def test_it_reads_the_environment_and_leaves_nothing_for_children() -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "3000000", "PATH": "/bin"}
    notifier = Notifier.of(environment)
    assert (notifier.path, notifier.watchdog_seconds) == ("/run/x", 3.0)
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": OTHER},
    ],
)
def test_a_watchdog_that_is_off_or_another_processs_is_none_of_ours(
    environment: dict[str, str],
) -> None:
    assert Notifier.of(environment).watchdog_seconds is None


def test_it_tells_of_readiness_reload_and_end(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())
    notifier.succeeding()
    notifier.ready()
    notifier.reloading()
    notifier.stopping()
    main, ready, process, reloading, since, stopping = heard(manager)
    assert main == process
    assert (ready, process) == ("READY=1", f"MAINPID={os.getpid()}")
    assert reloading == "RELOADING=1"
    assert since.startswith("MONOTONIC_USEC=")
    assert stopping == "STOPPING=1"


def test_abstract_sockets_are_known_and_absent_managers_no_trouble() -> None:
    name = f"router-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        Notifier(f"@{name}").tell("STATUS=here")
        assert manager.recv(100) == b"STATUS=here"
    Notifier(f"@{name}").ready()
    Notifier(None).ready()


async def test_it_speaks_twice_as_often_as_the_watchdog_wants_to_hear(
    manager: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    with trio.move_on_after(9.5):
        await Notifier(manager.getsockname(), watchdog_seconds=2).watch()
    assert heard(manager) == ["WATCHDOG=1"] * 10
    await Notifier(manager.getsockname()).watch()
    assert heard(manager) == []


INHERIT = """
import os, sys
from router.service.notify import inherited_sockets
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[1]))
found = inherited_sockets(os.environ)
print([sock.getsockname()[1] for sock in found], [sock.get_inheritable() for sock in found])
print([name for name in os.environ if name.startswith("LISTEN_")])
"""


@pytest.mark.parametrize("is_for_us", [True, False])
def test_sockets_that_were_opened_for_this_process_are_taken(is_for_us: bool) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        # descriptors 3 and 4 are where systemd leaves them
        command = f'exec "$@" 3<&{listening.fileno()} 4<&{other.fileno()}'
        ended = subprocess.run(
            ["bash", "-c", command, "-", sys.executable, "-c", INHERIT, str(int(not is_for_us))],
            pass_fds=(listening.fileno(), other.fileno()),
            env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"},
            capture_output=True,
            text=True,
            check=True,
        )
        port = listening.getsockname()[1]
    found = f"[{port}] [False]" if is_for_us else "[] []"
    assert ended.stdout.splitlines() == [found, "[]"]


def test_without_a_service_manager_there_are_none() -> None:
    assert inherited_sockets({}) == []
