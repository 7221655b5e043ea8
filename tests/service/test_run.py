"""``router run`` as a process: ready, reload, drain, exit codes, memory."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog
import trio

from router.model.terminus import Role, Source, Target
from router.service import run as running
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import Attach, Begin, Open, encode
from tests.support.by_hand import ATTACH, CLOSE, DETACH, FLOW, RECEIVER, SENDER, Hand
from tests.support.clients import receiving, sending
from tests.support.commands import run
from tests.support.kernel import needs_kernel
from tests.support.running import RunningRouter, running_router

FILE = """
router: {id: under-test, workers: 1, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "#"}]
"""


def address_of(router: RunningRouter) -> str:
    line = json.loads(router.wait_for("router.ready"))
    return str(line["listeners"][0])


def events(router: RunningRouter) -> list[dict[str, object]]:
    return [json.loads(line) for line in tuple(router.log) if line.startswith("{")]


def run_to_end(tmp_path: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "router.yaml").write_text(text)
    return run("run", *options, folder=tmp_path)


async def test_messages_pass_and_sigterm_drains_and_exits_with_0(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        address = address_of(router)
        async with (
            receiving(address, "orders") as sink,
            sending(address, "orders", [b"%d" % number for number in range(1000)]) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == 1000)
            router.process.send_signal(signal.SIGTERM)
            await sink.wait_until(lambda: sink.closed is not None)
        assert router.process.wait(15) == 0
        assert "router.drained" in [line["event"] for line in events(router)]


NOTHING_COMPILED = """
import sys

for name in ("core._bulk", "journal._bulk", "wire.v0_9_1._quick", "wire.v1_0._bulk",
             "wire.v1_0._express"):
    sys.modules[f"router.{name}"] = None
"""


@pytest.mark.parametrize("is_built", [False, pytest.param(True, marks=needs_kernel)])
async def test_messages_pass_where_nothing_was_compiled_and_the_log_says_so_once(
    tmp_path: Path, is_built: bool
) -> None:
    if not is_built:
        (tmp_path / "sitecustomize.py").write_text(NOTHING_COMPILED)
    with running_router(FILE, tmp_path, {"PYTHONPATH": str(tmp_path)}) as router:
        address = address_of(router)
        async with (
            receiving(address, "orders"),
            sending(address, "orders", [b"%d" % number for number in range(1000)]) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == 1000)
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(30) == 0
        told = [line for line in events(router) if line["event"] == "express.slower"]
        (ready,) = [line for line in events(router) if line["event"] == "router.ready"]
    assert len(told) == (not is_built)
    assert ready["express"] == ("cython" if is_built else "off")


def test_the_lane_in_python_is_refused_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTER_EXPRESS", "python")
    ended = run_to_end(tmp_path, FILE)
    assert ended.returncode == 2
    assert "write off for the general path, or cython" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_second_sigterm_ends_at_once_with_1(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        host, _, port = address_of(router).rpartition(":")
        with socket.create_connection((host, int(port))) as peer:  # never answers a close
            peer.sendall(b"AMQP\x00\x01\x00\x00")
            assert peer.recv(8) == b"AMQP\x00\x01\x00\x00"
            started = time.monotonic()
            router.process.send_signal(signal.SIGTERM)
            router.wait_for("router.draining")
            router.process.send_signal(signal.SIGTERM)
            assert router.process.wait(15) == 1
            assert time.monotonic() - started < 3


def test_a_drain_does_not_wait_long_for_peers_that_owe_nothing_and_answer_nothing(
    tmp_path: Path,
) -> None:
    with running_router(FILE, tmp_path) as router:
        port = int(address_of(router).rpartition(":")[2])
        receiver, sender = Hand.greet(port, "receiver"), Hand.greet(port, "sender")
        receiver.attach(RECEIVER, "orders")
        receiver.hear(ATTACH)
        receiver.flow(0, 0, 10)
        sender.attach(SENDER, "orders")
        sender.hear(FLOW)  # credit, which it keeps
        started = time.monotonic()
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(30) == 0
        assert time.monotonic() - started < 8  # of 30
        for peer in (receiver, sender):
            peer.hear(DETACH)
            peer.hear(CLOSE)


def test_sigint_drains_as_well(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        router.process.send_signal(signal.SIGINT)
        assert router.process.wait(15) == 0


def test_sighup_applies_a_good_file_and_prints_each_difference(tmp_path: Path) -> None:
    with running_router(FILE, tmp_path) as router:
        first = address_of(router)
        (tmp_path / "router.yaml").write_text(
            FILE.replace('[{address: "#"}]', '[{address: "#"}, {address: new}]')
            .replace("[{bind:", "[{bind: 'unix:second.sock'}, {bind:")
            .replace("id: under-test", "id: renamed")
        )
        router.process.send_signal(signal.SIGHUP)
        router.wait_for("config.reloaded")
        told = [
            (line["event"], line["section"], line.get("name"), line["change"])
            for line in events(router)
            if "change" in line
        ]
        assert told == [
            ("config.deferred", "router", None, "changed"),
            ("config.changed", "listeners", f"unix:{tmp_path}/second.sock", "added"),
            ("config.changed", "routes", "new", "added"),
        ]
        assert (tmp_path / "second.sock").exists()
        host, _, port = first.rpartition(":")
        socket.create_connection((host, int(port))).close()
    assert not (tmp_path / "second.sock").exists()  # taken away on the way out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FILE + "nonsense: 1\n", "router.yaml:5:1: "),
        ("", "router.yaml:1:1: the file is empty: "),
        (FILE.replace("127.0.0.1:0", "192.0.2.1:5672"), "listener 192.0.2.1:5672: Cannot assign"),
        (
            FILE.replace('0"}', '0", tls: {cert: bad.pem, key: bad.pem}}'),
            "listeners[0].tls.cert: ",
        ),
    ],
)
def test_sighup_refuses_a_bad_file_says_why_and_changes_nothing(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with running_router(FILE, tmp_path) as router:
        address = address_of(router)
        (tmp_path / "router.yaml").write_text(text)
        router.process.send_signal(signal.SIGHUP)
        assert reason in str(json.loads(router.wait_for("config.refused"))["reason"])
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port))).close()
        assert "config.reloaded" not in [line["event"] for line in events(router)]


def test_a_bad_file_from_the_start_exits_with_2_and_a_line_for_each_problem(
    tmp_path: Path,
) -> None:
    ended = run_to_end(tmp_path, "listener: []\nroutes: 3\n")
    assert ended.returncode == 2
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 2
    assert all(re.match(r"router\.yaml:\d+:\d+: ", line) for line in lines)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_in_use_is_told_in_one_line_before_any_worker_starts(
    tmp_path: Path, workers: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        text = FILE.replace("127.0.0.1:0", bind).replace("workers: 1", f"workers: {workers}")
        ended = run_to_end(tmp_path, text)
    assert (ended.returncode, ended.stderr) == (1, "")
    started, failed = map(json.loads, ended.stdout.splitlines())
    assert (started["event"], started["workers"]) == ("router.started", workers)
    assert (failed["event"], failed["level"]) == ("router.failed", "error")
    assert re.fullmatch(
        rf"router\.yaml:\d+:\d+: listener {bind}: Address already in use;"
        r" another program listens there \('ss -ltnp' shows which\): end it, or bind another port",
        failed["reason"],
    )


def test_an_address_that_this_machine_does_not_have_is_told_with_what_to_bind(
    tmp_path: Path,
) -> None:
    ended = run_to_end(tmp_path, FILE.replace("127.0.0.1:0", "192.0.2.1:5672"))
    (failed,) = map(json.loads, ended.stdout.splitlines()[1:])
    assert ended.returncode == 1
    assert "no network interface of this machine has that address" in failed["reason"]


def test_a_certificate_that_cannot_be_used_exits_with_2_and_names_option_and_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    ended = run_to_end(tmp_path, FILE.replace('0"}', '0", tls: {cert: bad.pem, key: bad.pem}}'))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert re.match(r"router\.yaml:\d+:\d+: listeners\[0\]\.tls\.cert: .*bad\.pem", ended.stderr)


def test_ready_waits_for_the_containers_that_it_is_told_to_wait_for(tmp_path: Path) -> None:
    with socket.socket() as unreachable:
        unreachable.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{unreachable.getsockname()[1]}"
        text = FILE + f"containers: {{east: {{url: '{url}', retry_seconds: 0.05s}}}}\n"
        (tmp_path / "router.yaml").write_text(text)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "router", "run", "--wait-for", "east"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert waiting.stdout is not None
        seen = list(itertools.islice(waiting.stdout, 8))
        waiting.send_signal(signal.SIGTERM)
        seen += list(waiting.stdout)
        assert waiting.wait(15) == 0
        waiting.stdout.close()
    assert any("connector.failed" in line for line in seen)
    assert not any("router.ready" in line for line in seen)
    with running_router(FILE, tmp_path / "..") as east:
        url = f"amqp://{address_of(east)}"
        text = FILE + f"containers: {{east: {{url: '{url}', retry_seconds: 0.05s}}}}\n"
        with running_router(text.replace("workers", "wait_for: [east], workers"), tmp_path) as near:
            assert json.loads(near.wait_for("router.ready"))["containers"] == ["east"]


def test_a_container_to_wait_for_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    ended = run_to_end(tmp_path, FILE, "--wait-for", "nowhere")
    assert ended.returncode == 2
    assert "--wait-for: there is no container 'nowhere'" in ended.stderr


def test_an_idle_connection_with_a_link_costs_less_than_16_kib(tmp_path: Path) -> None:
    greeting = AMQP_HEADER + b"".join(
        frame(0, encode(each))
        for each in (
            Open(container_id="idle"),
            Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100),
            Attach(
                name="link",
                handle=0,
                role=Role.SENDER,
                source=Source(address="here"),
                target=Target(address="there"),
                initial_delivery_count=0,
            ),
        )
    )
    text = FILE + "limits: {idle_seconds: 0s}\n"
    peers: list[socket.socket] = []

    def connect(address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        for _ in range(count):
            peer = socket.create_connection((host, int(port)))
            peers.append(peer)
            peer.sendall(greeting)
            answer = b""
            while b"there" not in answer:
                answer += peer.recv(4096)

    with running_router(text, tmp_path) as router:
        address = address_of(router)
        connect(address, 100)
        before = router.resident_octets()
        connect(address, 800)
        each = (router.resident_octets() - before) / 800
        for peer in peers:
            peer.close()
    assert each < 16 * 1024, each


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_signal_to_end_that_comes_while_a_life_ends_for_the_next_one_is_obeyed(
    is_ending: bool,
) -> None:
    life = object.__new__(running._Steering)
    life._kept, life._is_ending, life.exit_code = running._Kept([socket.socket()]), is_ending, 1
    kept = life.take_kept()
    if is_ending:
        assert kept is None
        assert life.exit_code == running.DONE
    else:
        assert kept is not None
        kept.listeners[0].close()
        assert life.take_kept() is None


async def test_a_second_signal_to_end_leaves_no_next_life() -> None:
    life = object.__new__(running._Steering)
    life._kept, life._is_ending, life.exit_code = running._Kept([]), True, running.FAILED
    life._log = structlog.get_logger()
    async with trio.open_nursery() as life._nursery:
        await life._take_signal(signal.SIGTERM)
    assert life.take_kept() is None
    assert life.exit_code == running.FAILED
