"""``router run`` with several workers: one router from outside, whatever happens to a worker."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.clients import Sender, receiving, sending
from tests.support.commands import run
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import (
    address_of,
    greet,
    kill,
    lines,
    processes,
    spread,
    wait_gone,
)

FILE = """
router: {id: under-test, workers: 2, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "q.#"}]
"""


def _is_through(sender: Sender) -> bool:
    return sender.outcomes["Accepted"] == 2000


async def test_it_is_one_router_from_outside_and_ends_with_all_its_workers(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        workers = processes(router)
        assert set(workers) == {1, 2}
        address = address_of(router)
        bodies = [b"%d" % number for number in range(2000)]
        async with (
            receiving(address, "q.near") as near,
            receiving(address, "q.far") as far,
            sending(address, "q.near", bodies) as one,
            sending(address, "q.far", bodies) as two,
            sending(address, "q.near", bodies) as three,
        ):
            for sender in (one, two, three):
                await sender.wait_until(partial(_is_through, sender))
            assert len(near.bodies) == 4000
            assert far.bodies == bodies
            assert set(spread(router).values()) == {2, 3}
        assert router.stop() == 0
        for process in workers.values():
            await wait_gone(process)


@pytest.mark.parametrize("count", [16, 500])
def test_connections_are_spread_within_a_tenth(tmp_path: Path, count: int) -> None:
    with running_router(FILE.replace("workers: 2", "workers: 3"), tmp_path) as router:
        address = address_of(router)
        peers = [greet(address, f"client-{number}") for number in range(count)]
        deadline = time.monotonic() + 10  # the log is read by another thread
        while sum((shares := spread(router)).values()) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        for peer in peers:
            peer.close()
    assert sum(shares.values()) == count
    mean = count / 3
    assert all(abs(share - mean) <= max(1, mean / 10) for share in shares.values())


async def test_a_dead_worker_is_replaced_and_its_clients_find_the_others(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        address = address_of(router)
        first = greet(address, "first")
        router.wait_for('"container": "first"')
        (number,) = spread(router)
        began = time.monotonic()
        kill(processes(router)[int(str(number))])
        assert first.recv(1) == b""  # its connection has gone with the worker
        again = greet(address, "again")
        assert time.monotonic() - began < 20  # 0.1 s on a quiet machine
        router.wait_for('"worker.ended"')  # the log is read by another thread
        reason = lines(router, "worker.ended")[0]["reason"]
        assert reason == "signal SIGKILL"
        with trio.fail_after(90):
            while len(lines(router, "worker.started")) < 3 or len(processes(router)) < 2:
                await trio.sleep(0.05)
        again.close()
        async with receiving(address, "q.a") as sink:
            async with (
                sending(address, "q.a", [b"a"]) as one,
                sending(address, "q.a", [b"b"]) as two,
            ):
                await one.wait_until(lambda: one.outcomes["Accepted"] == 1)
                await two.wait_until(lambda: two.outcomes["Accepted"] == 1)
            assert sorted(sink.bodies) == [b"a", b"b"]


async def test_the_status_says_that_a_worker_died_and_how_often(tmp_path: Path) -> None:
    admin = free_port()
    with running_router(FILE.replace("admin: off", f'admin: "127.0.0.1:{admin}"'), tmp_path) as one:
        for times in (1, 2):
            kill(processes(one)[2])
            with trio.fail_after(90):
                while True:
                    status = await trio.to_thread.run_sync(read_status, admin)
                    restarts = {each["worker"]: each["restarts"] for each in status["workers"]}
                    if restarts.get(2) == times:
                        break
                    assert restarts.get(1, 0) == 0
                    await trio.sleep(0.05)
            (told,) = [each for each in status["problems"] if "signal SIGKILL" in each["text"]]
            assert (told["subject"], told["name"]) == ("worker", "2")
            assert ("once" if times == 1 else "2 times") in told["text"]
            with trio.fail_after(90):
                while len(lines(one, "worker.started")) < 2 + times:
                    await trio.sleep(0.05)


def read_status(admin: int) -> Any:
    """Asks the router for its status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/v1/status", timeout=30) as answer:
        return json.load(answer)


async def test_workers_end_with_their_supervisor_and_a_new_one_serves_again(tmp_path: Path) -> None:
    port = free_port()
    file = FILE.replace("127.0.0.1:0", f"127.0.0.1:{port}")
    with running_router(file, tmp_path) as router:
        workers = processes(router)
        router.kill()
        for process in workers.values():
            await wait_gone(process)
    with running_router(file, tmp_path) as router:
        greet(address_of(router), "again").close()


def test_a_second_sigterm_ends_all_at_once_with_1(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        peer = greet(address_of(router), "holds on")  # never answers a close
        began = time.monotonic()
        router.process.send_signal(signal.SIGTERM)
        router.wait_for("router.draining")
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(60) == 1
        assert time.monotonic() - began < 20  # drain_seconds is 30
        peer.close()


DIES_EARLY = """
import os, sys

if "router.service.worker_program" in sys.orig_argv:
    os._exit(3)
"""


def dying(folder: Path) -> AbstractContextManager[RunningRouter]:
    """Runs a router whose workers die before they serve."""
    (folder / "sitecustomize.py").write_text(DIES_EARLY)
    return running_router(FILE, folder, {"PYTHONPATH": str(folder)}, until="worker.ended")


def test_one_sigterm_ends_a_router_whose_workers_die_at_each_start(tmp_path: Path) -> None:
    with dying(tmp_path) as router:
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(15) in (0, 1), "1: the fifth worker had died by then"


def test_a_router_whose_workers_die_at_each_start_fails_after_some(tmp_path: Path) -> None:
    with dying(tmp_path) as router:
        failed = json.loads(router.wait_for("router.failed"))
        assert router.process.wait(15) == 1
        ended = lines(router, "worker.ended")
    assert failed["reason"].endswith(
        ": its process has ended 5 times before all served: exit code 3"
    )
    assert 5 <= len(ended) <= 10
    assert {line["reason"] for line in ended} <= {"exit code 3", "signal SIGKILL"}


async def test_a_reload_is_applied_by_all_workers_or_by_none(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        address = address_of(router)
        (tmp_path / "bad.pem").write_text("nothing")
        text = FILE + 'containers: {east: {url: "amqps://x", tls: {cert: bad.pem, key: bad.pem}}}\n'
        (tmp_path / "router.yaml").write_text(text.replace('"q.#"', '"new.#"'))
        router.process.send_signal(signal.SIGHUP)
        assert "containers.east.tls.cert" in router.wait_for("config.refused")
        (tmp_path / "router.yaml").write_text(FILE.replace('"q.#"', '"q.#"}, {address: "new.#"'))
        for _ in range(2):  # the sender's worker, and the other one
            async with sending(address, "new.a", []) as refused:
                await refused.wait_until(lambda: refused.detached is not None)
        router.process.send_signal(signal.SIGHUP)
        router.wait_for("config.reloaded")
        (change,) = lines(router, "config.changed")
        assert (change["section"], change["name"]) == ("routes", "new.#")
        async with receiving(address, "new.a") as sink, sending(address, "new.a", [b"a"]) as source:
            await source.wait_until(lambda: source.outcomes["Accepted"] == 1)
            assert sink.bodies == [b"a"]


def test_a_reload_that_names_another_number_of_workers_keeps_those_that_run(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        (tmp_path / "router.yaml").write_text(FILE.replace("workers: 2", "workers: 1"))
        for times in (1, 2):  # one that is replaced would take the others' deliveries for its own
            before = len(router.log)
            router.process.send_signal(signal.SIGHUP)
            router.wait_for("config.reloaded", since=before)
            deferred = lines(router, "config.deferred")
            assert [line["options"] for line in deferred] == [["workers"]] * times


async def test_a_container_has_one_owner_and_another_one_when_that_dies(tmp_path: Path) -> None:
    (tmp_path / "east").mkdir()
    with running_router(FILE.replace("workers: 2", "workers: 1"), tmp_path / "east") as east:
        file = FILE + f'containers: {{east: {{url: "amqp://{address_of(east)}"}}}}\n'
        with running_router(file, tmp_path) as router:
            first = await _owner(router, 1)
            kill(processes(router)[first])
            second = await _owner(router, 2)
            assert second != first


async def _owner(router: RunningRouter, times: int) -> int:
    """The worker that is the n-th to reach the container."""
    with trio.fail_after(20):
        while True:
            opened = lines(router, "connection.opened")
            found = [line["worker"] for line in opened if line["container"] == "east"]
            assert len(found) <= times
            if len(found) == times:
                return int(str(found[-1]))
            await trio.sleep(0.02)


def test_the_service_manager_gives_sockets_and_hears_how_it_fares(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        port = listening.getsockname()[1]
        (tmp_path / "router.yaml").write_text(FILE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        become = f"""import os
os.dup2({listening.fileno()}, 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "router", "run", "router.yaml"])
"""
        process = subprocess.Popen(
            [sys.executable, "-c", become],
            cwd=tmp_path,
            pass_fds=(listening.fileno(),),
            env={
                **os.environ,
                "PYTHONPATH": str(Path.cwd()),
                "LISTEN_FDS": "1",
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "WATCHDOG_USEC": "200000",
            },
            stdout=subprocess.DEVNULL,
        )
        try:
            heard = b""
            while b"READY=1" not in heard:
                heard += manager.recv(4096) + b"\n"
            assert b"WATCHDOG=1" in heard
            greet(f"127.0.0.1:{port}", "activated").close()
            process.send_signal(signal.SIGTERM)
            while b"STOPPING=1" not in heard:
                heard += manager.recv(4096)
            assert process.wait(15) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_new_process_takes_the_sockets_over_and_nobody_is_refused(
    tmp_path: Path, workers: int
) -> None:
    port = free_port()
    file = FILE.replace("127.0.0.1:0", f"127.0.0.1:{port}").replace("s: 2", f"s: {workers}")
    dials = 0
    with running_router(file, tmp_path) as old:
        done, has_ended = trio.Event(), trio.Event()

        async def keep_dialing() -> None:
            nonlocal dials
            while not done.is_set():
                peer = await trio.to_thread.run_sync(greet, f"127.0.0.1:{port}", "dials")
                peer.close()
                dials += 1
                await trio.sleep(0.01)
            has_ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_dialing)
            with await trio.to_thread.run_sync(_enter, file, tmp_path) as new:
                assert await trio.to_thread.run_sync(old.process.wait, 120) == 0
                assert "router.drained" in old.log[-1]
                await trio.sleep(0.2)
                done.set()
                await has_ended.wait()  # the new one is to live until the last has been answered
                assert lines(new, "listener.opened")
    assert dials > 10  # each was answered, or ``greet`` would have failed


def _refused_beside(running: RunningRouter, folder: Path, text: str) -> dict[str, Any]:
    """Runs another router, which must fail, beside a running one, which must not be drained.

    Returns:
        the last line of its log, which says why it failed.
    """
    running.wait_for("router.ready")
    other = folder / "other.yaml"
    other.write_text(text)
    ended = run("run", str(other))
    assert ended.returncode == 1
    assert running.process.poll() is None
    assert not [line for line in running.log if "router.draining" in line]
    failed: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert failed["event"] == "router.failed"
    return failed


def test_another_file_without_an_id_does_not_take_the_place_of_a_running_router(
    tmp_path: Path,
) -> None:
    file = re.sub(r"id: [^,}]+, ", "", FILE.replace("workers: 2", "workers: 1"))
    assert "id:" not in file
    with running_router(file, tmp_path) as running:
        failed = _refused_beside(running, tmp_path, file)
        assert f"it runs with {tmp_path / 'router.yaml'}" in failed["reason"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_another_router_on_the_state_directory_of_a_running_one_is_refused(
    tmp_path: Path, guarantee: str
) -> None:
    promised = f'"q.#", guarantee: {guarantee}'
    file = FILE.replace("workers: 2", "workers: 1").replace('"q.#"', promised)
    with running_router(file, tmp_path) as running:
        failed = _refused_beside(running, tmp_path, re.sub(r"id: [^,}]+", "id: other", file))
        assert "give every router a directory of its own" in failed["reason"]
        assert f"process {running.process.pid}" in failed["reason"]


def _enter(file: str, folder: Path) -> "_Entered":
    """Starts a router, in a thread: it takes its time until it is ready."""
    running = running_router(file, folder)
    return _Entered(running.__enter__(), running)


class _Entered:
    def __init__(
        self, router: RunningRouter, running: AbstractContextManager[RunningRouter]
    ) -> None:
        self.router, self.running = router, running

    def __enter__(self) -> RunningRouter:
        return self.router

    def __exit__(self, *reason: object) -> None:
        self.running.__exit__(None, None, None)
