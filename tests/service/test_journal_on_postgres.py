"""Routers whose journal is on PostgreSQL: processes, databases and whole routers that end."""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from router.cli.main import main
from router.journal.replay import replay, replay_from
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import Open, encode
from tests.support.journal import SOURCE, START_NS, append, key, new_writer
from tests.support.ports import free_port
from tests.support.postgres import Server, postgres_server, replicated_servers
from tests.support.running import RunningRouter, running_router
from tests.support.storages import Files, Postgres, commit
from tests.support.workers import lines

COUNT = 400
SECONDS = 120

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


def config_of(url: str, port: int, state: Path, *, store: bool = True) -> str:
    journal = f'{{store: "{url}"}}' if store else "{store: files}"
    return f"""
router:
  id: dc1
  workers: 1
  state: {state}
  admin: off
  log_format: json
  journal: {journal}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - {{address: orders, guarantee: exactly-once}}
  - {{address: plain}}
"""


def new_store(server: Server, tmp_path: Path, port: int, state: str = "a") -> str:
    """Makes a database with tables, and gives the configuration of a router that uses it."""
    url = server.new_database(f"journal_{time.time_ns()}")
    config = config_of(url, port, tmp_path / state)
    file = tmp_path / "init.yaml"
    file.write_text(config)
    done = CliRunner().invoke(main, ["journal", "init", str(file)])
    assert done.exit_code == 0, done.output
    return config


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "router", *arguments]


class Traffic:
    """``router send`` and ``router receive`` with numbered lines, until all have come."""

    def __init__(self, port: int, address: str, count: int, folder: Path) -> None:
        self._count = count
        self._result = folder / f"{address}.json"
        self._account = folder / f"{address}.sender"
        self._out = folder / f"{address}-{count}.lines"
        settle = "exactly-once" if address == "orders" else "at-least-once"
        url = f"amqp://127.0.0.1:{port}"
        self._receiver = subprocess.Popen(
            command(
                "receive",
                url,
                address,
                "--count",
                str(count),
                "--settle",
                settle,
                "--show",
                "--wait",
                "90",
            ),
            stdout=self._out.open("wb"),
            stderr=subprocess.DEVNULL,
        )
        self._sender = subprocess.Popen(
            command("send", url, address, "--lines", "--json", "--settle", settle, "--wait", "90"),
            stdin=subprocess.PIPE,
            stdout=self._result.open("wb"),
            stderr=self._account.open("wb"),
        )

    def write(self, numbers: range) -> None:
        assert self._sender.stdin is not None
        self._sender.stdin.write("".join(f"line {each}\n" for each in numbers).encode())
        self._sender.stdin.flush()

    def received(self) -> list[str]:
        lines = self._out.read_bytes().splitlines()
        return [line.decode() for line in lines if line.startswith(b"line ")]

    def await_received(self, count: int, seconds: float = 60.0) -> None:
        give_up_at = time.monotonic() + seconds
        while len(self.received()) < count:
            assert time.monotonic() < give_up_at, f"{len(self.received())} of {count} came"
            time.sleep(0.05)

    def finish(self, seconds: float = 90.0) -> None:
        """Waits until each line has ended: accepted and received once, or released and not at all.

        While the only receiver is away, what was certainly not sent is released.
        """
        assert self._sender.stdin is not None
        self._sender.stdin.close()
        code = self._sender.wait(seconds)
        ends = json.loads(self._result.read_text())["outcomes"]
        released = ends.get("released", 0)
        assert ends.get("accepted", 0) + released == self._count, ends
        assert (code == 0) == (not released), self._account.read_text()
        self.await_received(self._count - released)
        received = self.received()
        assert len(received) == len(set(received)) == self._count - released
        if not released:
            assert self._receiver.wait(seconds) == 0

    def account(self) -> str:
        """Gives what the sender has said."""
        return self._account.read_text()

    def end(self) -> None:
        for each in (self._sender, self._receiver):
            if each.poll() is None:
                each.kill()
                each.wait()


@contextmanager
def traffic(port: int, address: str, count: int, folder: Path) -> Iterator[Traffic]:
    running = Traffic(port, address, count, folder)
    try:
        yield running
    finally:
        running.end()


def journal_process(router: RunningRouter) -> int:
    started = [json.loads(line) for line in router.log if '"journal.started"' in line]
    return int(started[-1]["process"])


def test_a_killed_process_of_the_journal_loses_and_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port)
    with running_router(config, tmp_path) as router, traffic(port, "orders", COUNT, tmp_path) as t:
        t.write(range(COUNT // 2))
        t.await_received(COUNT // 8)
        os.kill(journal_process(router), signal.SIGKILL)
        t.write(range(COUNT // 2, COUNT))
        t.finish()
        router.wait_for('"journal.ended"')


def test_a_stopped_process_of_the_journal_cuts_the_connections_that_another_may_have(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port)
    with running_router(config, tmp_path) as router, traffic(port, "orders", COUNT, tmp_path) as t:
        t.write(range(COUNT // 2))
        t.await_received(COUNT // 8)
        os.kill(journal_process(router), signal.SIGSTOP)
        router.wait_for('"lease.expired"')
        os.kill(journal_process(router), signal.SIGCONT)
        t.write(range(COUNT // 2, COUNT))
        t.finish()


def test_another_machine_takes_over_what_a_lost_one_promised(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port, "a")
    other = config.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    (tmp_path / "other").mkdir()
    with traffic(port, "orders", COUNT, tmp_path) as t:
        with running_router(config, tmp_path) as router:
            t.write(range(COUNT // 2))
            t.await_received(COUNT // 8)
            journal = journal_process(router)
            router.kill()
            os.kill(journal, signal.SIGKILL)
        t.write(range(COUNT // 2, COUNT))
        with running_router(other, tmp_path / "other") as router:
            t.finish()
            assert router.wait_for('"journal.replayed"')


def test_without_its_database_a_router_ends_exactly_once_connections_and_serves_the_rest(
    tmp_path: Path,
) -> None:
    port = free_port()
    with postgres_server() as server:
        config = new_store(server, tmp_path, port)
        with (
            running_router(config, tmp_path) as router,
            traffic(port, "orders", COUNT, tmp_path) as exact,
            traffic(port, "plain", COUNT, tmp_path) as plain,
        ):
            exact.write(range(50))
            exact.await_received(50)
            plain.write(range(50))
            plain.await_received(50)
            server.stop(signal.SIGQUIT)
            router.wait_for('"lease.expired"')
            exact.write(range(50, COUNT))
            plain.write(range(50, COUNT))
            plain.finish()
            assert len(exact.received()) == 50
            server.start()
            exact.finish()


def test_a_router_that_was_taken_over_ends_and_says_why(server: Server, tmp_path: Path) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port)
    with running_router(config, tmp_path) as router:
        database = config.partition(f":{server.port}/")[2].partition('"')[0]
        server.run("UPDATE router_journal.lease SET epoch = epoch + 1, holder = 'other'", database)
        assert router.process.wait(60) != 0
    assert any("has taken the journal over" in line for line in router.log)


def test_a_reload_that_names_another_store_keeps_the_one_in_use(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port)
    with running_router(config, tmp_path) as router:
        (tmp_path / "router.yaml").write_text(config_of("", port, tmp_path / "a", store=False))
        router.process.send_signal(signal.SIGHUP)
        assert '"journal"' in router.wait_for('"config.deferred"')
        with traffic(port, "orders", 20, tmp_path) as t:
            t.write(range(20))
            t.finish()
    assert not list((tmp_path / "a" / "journal").glob("*.segment"))


def test_a_second_router_waits_while_the_first_one_leads(server: Server, tmp_path: Path) -> None:
    port, another = free_port(), free_port()
    config = new_store(server, tmp_path, port, "a")
    other = config.replace(str(tmp_path / "a"), str(tmp_path / "b")).replace(
        f'127.0.0.1:{port}"}}', f'127.0.0.1:{another}"}}'
    )
    (tmp_path / "other").mkdir()
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until='"journal.refused"') as second,
    ):
        assert "leads since" in second.wait_for('"journal.refused"')
        first.stop()
        second.wait_for('"journal.replayed"')


def pair(server: Server, tmp_path: Path) -> tuple[str, str, int, int]:
    """Gives two configurations of one router with ``standby``, and the ports of their admins."""
    port, another, admin, other_admin = (free_port() for _ in range(4))
    config = new_store(server, tmp_path, port, "a")
    config = config.replace('"}\nlisteners', '", standby: true}\nlisteners')
    config = config.replace("admin: off", f"admin: 127.0.0.1:{admin}")
    other = config.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    other = other.replace(f":{port}", f":{another}").replace(f":{admin}", f":{other_admin}")
    (tmp_path / "other").mkdir()
    return config, other, admin, other_admin


def status_of(admin: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{admin}"
    done = CliRunner().invoke(main, ["status", "--admin", url, "--json", "--check"])
    assert done.exit_code == 0, done.output
    status: dict[str, Any] = json.loads(done.output)["status"]
    return status


@pytest.mark.long
def test_whoever_has_the_lease_leads_after_a_failover_and_back(
    server: Server, tmp_path: Path
) -> None:
    config, other, admin, other_admin = pair(server, tmp_path)
    with running_router(other, tmp_path / "other") as second:
        with running_router(config, tmp_path, until="standby.began") as first:
            leads = status_of(other_admin)
            while not (waits := status_of(admin))["lease"]["place"]:
                time.sleep(0.05)  # it connects to the database
            assert leads["is_ready"]
            assert leads["lease"]["leads"]
            assert waits["is_standby"]
            assert "it is a standby" in waits["reasons"][0]
            assert not waits["lease"]["leads"]
            assert waits["lease"]["place"] == leads["lease"]["place"]
            assert waits["lease"]["epoch"] == leads["lease"]["epoch"]
            second.process.send_signal(signal.SIGSTOP)
            first.wait_for("router.ready")
            second.process.send_signal(signal.SIGCONT)
            second.wait_for('"standby.fenced"')
            second.wait_for('"standby.began"', since=_place(second, '"standby.fenced"'))
            assert status_of(admin)["lease"]["epoch"] > leads["lease"]["epoch"]
            assert first.stop() == 0
        second.wait_for("router.ready", since=_place(second, '"standby.fenced"'))
        assert len(lines(second, "router.started")) == 2
        assert second.stop() == 0


@pytest.mark.long
def test_clients_of_the_command_line_find_the_leader_before_and_after_a_failover(
    server: Server, tmp_path: Path
) -> None:
    config, other, *_ = pair(server, tmp_path)
    bind = re.compile(r'bind: "127.0.0.1:(\d+)')
    port, another = (bind.findall(each)[0] for each in (config, other))
    config = config.replace(f'{port}"}}]', f'{port}", failover: ["127.0.0.1:{another}"]}}]')
    other = other.replace(f'{another}"}}]', f'{another}", failover: ["127.0.0.1:{port}"]}}]')
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until="standby.began") as second,
        traffic(int(another), "orders", COUNT, tmp_path) as t,
    ):
        t.write(range(COUNT // 2))
        t.await_received(COUNT // 2)  # by the leader, to which the standby has redirected them
        first.process.kill()
        t.write(range(COUNT // 2, COUNT))
        second.wait_for("router.ready")
        t.finish()
        assert f"redirected to 127.0.0.1:{port}" in t.account()


def _place(router: RunningRouter, text: str) -> int:
    return next(number for number, line in enumerate(router.log) if text in line)


def test_check_says_that_a_standby_goes_on_by_itself_and_what_it_does_not_have(
    server: Server, tmp_path: Path
) -> None:
    config, *_ = pair(server, tmp_path)
    file = tmp_path / "pair.yaml"
    stored = "  - {address: kept, to: east, store: {octets: 1GiB}, dead_letter: local/plain}\n"
    containers = 'containers: {east: {url: "amqp://127.0.0.1:1"}}\n'
    file.write_text(config)
    shown = CliRunner().invoke(main, ["check", str(file)]).output
    assert "goes on by itself, some five seconds" in shown
    assert "no other router has them" not in shown
    file.write_text(config + stored + containers)
    assert "no other router has them" in CliRunner().invoke(main, ["check", str(file)]).output


@pytest.mark.long
def test_a_leader_hands_over_to_its_standby_and_becomes_one(server: Server, tmp_path: Path) -> None:
    config, other, admin, other_admin = pair(server, tmp_path)
    command = ["drain", "--to-standby", "--admin"]
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until="standby.began") as second,
    ):
        refused = CliRunner().invoke(main, [*command, f"http://127.0.0.1:{other_admin}"])
        assert refused.exit_code == 1
        assert "it is a standby" in refused.output
        for options in ([], ["--dry-run"]):
            reload = ["reload", *options, "--admin", f"http://127.0.0.1:{other_admin}"]
            refused = CliRunner().invoke(main, reload)
            assert refused.exit_code == 1
            assert "this router is a standby" in refused.output
        done = CliRunner().invoke(main, [*command, f"http://127.0.0.1:{admin}"])
        assert done.exit_code == 0, done.output
        assert "this one is its standby" in done.output
        second.wait_for("router.ready")
        assert status_of(other_admin)["lease"]["leads"]
        assert status_of(admin)["is_standby"]
        assert not lines(second, "standby.fenced") + lines(first, "standby.fenced")


@contextmanager
def holding_up(config: str) -> Iterator[None]:
    """A peer that does not answer a close: a drain waits for it."""
    (port,) = re.findall(r'bind: "127.0.0.1:(\d+)', config)
    with socket.create_connection(("127.0.0.1", int(port))) as peer:
        opening = encode(Open(container_id="mute", hostname=None))
        peer.sendall(AMQP_HEADER + frame(0, opening))
        answer = b""
        while b"dc1" not in answer:
            answer += peer.recv(4096)
        yield


@pytest.mark.long
def test_a_second_hand_over_changes_nothing_about_the_first(server: Server, tmp_path: Path) -> None:
    config, other, admin, other_admin = pair(server, tmp_path)
    command = ["drain", "--to-standby", "--admin", f"http://127.0.0.1:{admin}"]
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until="standby.began") as second,
    ):
        began = _place(first, "router.ready")
        with holding_up(config):
            asked = CliRunner().invoke(main, [*command, "--no-wait"])
            assert asked.exit_code == 0, asked.output
            first.wait_for("router.draining")
            again = CliRunner().invoke(main, [*command, "--no-wait"])
            assert again.exit_code == 0, again.output
            first.process.send_signal(signal.SIGHUP)
            assert not lines(first, "router.drained")
        first.wait_for("standby.began", since=began)
        second.wait_for("router.ready")
        assert status_of(other_admin)["lease"]["leads"]
        assert status_of(admin)["is_standby"]
        assert not lines(first, "config.reloaded")
        assert second.stop() == 0
        first.wait_for("config.reloaded")  # once it serves again


@pytest.mark.long
def test_a_new_process_may_take_the_place_of_one_that_hands_over(
    server: Server, tmp_path: Path
) -> None:
    config, _, admin, _ = pair(server, tmp_path)
    command = ["drain", "--to-standby", "--no-wait", "--admin", f"http://127.0.0.1:{admin}"]
    with running_router(config, tmp_path) as router, holding_up(config):
        assert CliRunner().invoke(main, command).exit_code == 0
        router.wait_for("router.draining")
        with running_router(config, tmp_path / "other", until="handover.taken") as successor:
            router.wait_for("handover.ended")
            refused = CliRunner().invoke(main, command)
            assert refused.exit_code == 1, refused.output
            assert router.process.wait(SECONDS) == 0
            successor.wait_for("router.ready")
            assert status_of(admin)["lease"]["leads"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["drain", "signal"])
def test_a_router_that_is_told_to_end_while_it_hands_over_ends(
    server: Server, tmp_path: Path, how: str
) -> None:
    config, _, admin, _ = pair(server, tmp_path)
    at = ["--admin", f"http://127.0.0.1:{admin}", "--no-wait"]
    with running_router(config, tmp_path) as router:
        with holding_up(config):
            assert CliRunner().invoke(main, ["drain", "--to-standby", *at]).exit_code == 0
            router.wait_for("router.draining")
            if how == "drain":
                assert CliRunner().invoke(main, ["drain", *at]).exit_code == 0
            else:
                router.process.send_signal(signal.SIGTERM)
            refused = CliRunner().invoke(main, ["drain", "--to-standby", *at])
            assert refused.exit_code == 1
            assert "it ends" in refused.output
        assert router.process.wait(SECONDS) == 0


@pytest.mark.long
def test_a_leader_without_a_standby_leads_again_after_a_hand_over(
    server: Server, tmp_path: Path
) -> None:
    config, _, admin, _ = pair(server, tmp_path)
    with running_router(config, tmp_path) as router:
        command = ["drain", "--to-standby", "--admin", f"http://127.0.0.1:{admin}"]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 1
        assert "no standby has taken the lease" in done.output
        assert router.process.poll() is None
        assert status_of(admin)["lease"]["leads"]


def test_a_standby_ends_in_order(server: Server, tmp_path: Path) -> None:
    config, other, *_ = pair(server, tmp_path)
    with (
        running_router(config, tmp_path),
        running_router(other, tmp_path / "other", until="standby.began") as second,
    ):
        assert second.stop() == 0
        assert not lines(second, "standby.ended")


@pytest.mark.long
@pytest.mark.parametrize("event", ["journal.opened", "journal.replayed", "standby.ended"])
def test_a_signal_to_end_during_a_takeover_is_obeyed(
    server: Server, tmp_path: Path, event: str
) -> None:
    config, other, *_ = pair(server, tmp_path)
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until="standby.began") as second,
    ):
        first.kill()
        second.wait_for(f'"event": "{event}"')
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(SECONDS) == 0
        assert lines(second, "router.drained")


def test_a_journal_moves_to_postgresql_and_back(server: Server, tmp_path: Path) -> None:
    url = server.new_database(f"moved_{time.time_ns()}")
    file = tmp_path / "router.yaml"
    file.write_text(config_of(url, free_port(), tmp_path / "state"))
    runner = CliRunner()
    assert runner.invoke(main, ["journal", "init", str(file)]).exit_code == 0
    files, store = Files(tmp_path / "state" / "journal"), Postgres(url, tmp_path)
    log, writer = files.new_log(), new_writer()
    log.open(START_NS)
    for number in range(5):
        writer.received(START_NS, key(number), SOURCE, b"t", payload=b"held %d" % number)
    append(log, writer)
    commit(log)
    assert log.close(START_NS)
    before = replay(files.directory).memory.deliveries
    assert len(before) == 5
    move = ["journal", "move", str(file), "--to"]
    done = runner.invoke(main, [*move, "postgresql"])
    assert done.exit_code == 0, done.output
    assert "5 deliveries" in done.output
    assert not files.directory.exists()
    assert replay_from(store.storage()).memory.deliveries == before
    inspected = runner.invoke(main, ["journal", "inspect", "--config", str(file)])
    assert inspected.exit_code == 0, inspected.output
    assert inspected.output.count(" received ") == 5
    again = runner.invoke(main, [*move, "postgresql"])
    assert again.exit_code == 1
    assert "there is no journal" in again.output
    back = runner.invoke(main, [*move, "files"])
    assert back.exit_code == 0, back.output
    read = replay(files.directory)
    assert read.memory.deliveries == before
    assert not read.gaps
    assert not store.storage().names()
    fresh = tmp_path / "fresh.yaml"
    fresh.write_text(config_of(url, free_port(), tmp_path / "another"))
    found = runner.invoke(main, ["check", str(fresh), "--connect"])
    assert found.exit_code == 1, found.output
    assert f"moved to files: {platform.node()}, {tmp_path / 'state'}" in found.output
    with pytest.raises(OSError, match="moved to files"):
        store.new_log().open(START_NS)
    assert runner.invoke(main, [*move, "postgresql"]).exit_code == 0, "and there again"
    assert runner.invoke(main, ["check", str(fresh), "--connect"]).exit_code == 0
    log = store.new_log()
    log.open(START_NS)
    assert log.close(START_NS)


def test_a_router_that_began_on_postgresql_does_not_begin_another_journal_in_files(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port, "state")
    with running_router(config, tmp_path) as router:
        router.stop()
    file, runner = tmp_path / "files.yaml", CliRunner()
    file.write_text(config_of("", port, tmp_path / "state", store=False))
    done = runner.invoke(main, ["check", str(file)])
    assert done.exit_code == 2, done.output
    assert "router journal move" in done.output
    started = subprocess.run(
        command("run", str(file)), capture_output=True, text=True, check=False, timeout=60
    )
    assert started.returncode
    assert "router journal move" in started.stdout + started.stderr
    moved = runner.invoke(main, ["journal", "move", str(tmp_path / "init.yaml"), "--to", "files"])
    assert moved.exit_code == 0, moved.output
    assert runner.invoke(main, ["check", str(file)]).exit_code == 0


def test_a_router_refuses_a_journal_in_both_stores(server: Server, tmp_path: Path) -> None:
    port = free_port()
    config = new_store(server, tmp_path, port, "state")
    files = Files(tmp_path / "state" / "journal")
    log, writer = files.new_log(), new_writer()
    log.open(START_NS)
    writer.received(START_NS, key(1), SOURCE, b"t", payload=b"held")
    append(log, writer)
    commit(log)
    assert log.close(START_NS)
    file = tmp_path / "router.yaml"
    file.write_text(config)
    done = subprocess.run(
        command("run", str(file)), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode
    assert "router journal move" in done.stdout + done.stderr


def test_check_says_what_is_survived(server: Server, tmp_path: Path) -> None:
    new_store(server, tmp_path, free_port())
    file = str(tmp_path / "init.yaml")
    assert (
        "survives this process and this machine" in CliRunner().invoke(main, ["check", file]).output
    )
    assert "when a router is started there" in CliRunner().invoke(main, ["check", file]).output
    found = CliRunner().invoke(main, ["check", file, "--connect"])
    assert found.exit_code == 0, found.output
    assert "not the loss of the database's host" in found.output


def test_check_names_the_right_that_the_role_lacks(server: Server, tmp_path: Path) -> None:
    database, role = f"rights_{time.time_ns()}", f"router_{time.time_ns()}"
    owner = server.new_database(database)
    server.run(f"CREATE ROLE {role} LOGIN")
    file = tmp_path / "rights.yaml"
    file.write_text(config_of(server.url(database, role), free_port(), tmp_path / "state"))
    runner, check = CliRunner(), ["check", str(file), "--connect"]
    init = ["journal", "init", str(file), "--url", owner, "--role", role]
    assert runner.invoke(main, init).exit_code == 0
    assert runner.invoke(main, check).exit_code == 0
    server.run(f"REVOKE UPDATE (renewed) ON router_journal.lease FROM {role}", database)
    found = runner.invoke(main, check)
    assert found.exit_code == 1, found.output
    assert "lacks UPDATE (renewed) on table router_journal.lease" in found.output
    assert "router journal init --role" in found.output
    assert runner.invoke(main, init).exit_code == 0
    assert runner.invoke(main, check).exit_code == 0


def test_check_sees_the_synchronous_standby_with_the_least_rights(tmp_path: Path) -> None:
    """Whether one is connected a role without ``pg_read_all_stats`` cannot see."""
    with replicated_servers(tmp_path) as servers:
        servers.primary.run("CREATE ROLE least LOGIN")
        file = tmp_path / "least.yaml"
        url = servers.primary.url(user="least")
        file.write_text(config_of(url, free_port(), tmp_path / "state"))
        runner, check = CliRunner(), ["check", str(file), "--connect"]
        init = ["journal", "init", str(file), "--url", servers.primary.url(), "--role", "least"]
        assert runner.invoke(main, init).exit_code == 0
        found = runner.invoke(main, check)
        assert found.exit_code == 0, found.output
        assert "the database's host: commits wait for *" in found.output
        servers.standby.stop()
        found = runner.invoke(main, check)
        assert found.exit_code == 1, found.output
        assert "no synchronous standby of * acknowledges them" in found.output


def test_a_standby_is_ready_when_it_serves_and_not_when_it_has_the_lease(
    server: Server, tmp_path: Path
) -> None:
    admin = free_port()
    config = new_store(server, tmp_path, free_port())
    config = config.replace("admin: off", f"admin: 127.0.0.1:{admin}")
    config = config.replace('"}\n', '", standby: true}\n').replace("workers: 1", "workers: 2")
    with running_router(config, tmp_path, until="standby.began"):
        give_up_at = time.monotonic() + SECONDS
        while not (status := status_of(admin))["is_ready"]:
            assert time.monotonic() < give_up_at, status
        assert len(status["workers"]) == 2, "these are still those that turn peers away"


def test_a_router_says_why_its_database_refuses_it_and_goes_on_by_itself(
    server: Server, tmp_path: Path
) -> None:
    """Each reason is one line of the log, and the same reason stands in status and readiness."""
    admin, role = free_port(), f"router_{time.time_ns()}"
    config = new_store(server, tmp_path, free_port())
    database = config.partition(f":{server.port}/")[2].partition('"')[0]
    server.run(f"CREATE ROLE {role} LOGIN PASSWORD 'hush'")
    file, owner = str(tmp_path / "init.yaml"), server.url(database)
    grant = ["journal", "init", file, "--url", owner, "--role", role]
    assert CliRunner().invoke(main, grant).exit_code == 0
    url = server.url(database, f"{role}:hush")
    config = config.replace(owner, url).replace("admin: off", f"admin: 127.0.0.1:{admin}")
    with running_router(config, tmp_path) as router:
        _await_ready(admin, "")
        for process in _with_children(journal_process(router)):
            for name in ("environ", "cmdline"):
                assert b"hush" not in Path(f"/proc/{process}/{name}").read_bytes()
        server.run(f"REVOKE UPDATE (renewed) ON router_journal.lease FROM {role}", database)
        _await_ready(admin, "permission denied for table lease")
        server.run(f"ALTER ROLE {role} NOLOGIN")
        ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        server.run(ends)
        _await_ready(admin, "is not permitted to log in")
        os.kill(journal_process(router), signal.SIGKILL)  # one that starts anew says the same
        router.wait_for('"journal.ended"')
        _await_ready(admin, "is not permitted to log in")
        server.run(f"ALTER ROLE {role} LOGIN")
        server.run(f"GRANT UPDATE (renewed) ON router_journal.lease TO {role}", database)
        _await_ready(admin, "")
        failed = [each["reason"] for each in lines(router, "journal.failed")]
        assert len(failed) == len(set(failed)), failed
        assert not any("hush" in line for line in router.log)
        router.stop()


def _with_children(process: int) -> list[int]:
    """Lists a process and those that it has started."""
    found = [process]
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        found += map(int, each.read_text().split())
    return found


def _await_ready(admin: int, reason: str) -> None:
    """Waits until a router says that it is ready (an empty reason), or why it is not."""
    give_up_at, found = time.monotonic() + 60, ""
    while time.monotonic() < give_up_at:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=30):
                found = ""
        except urllib.error.HTTPError as error:
            found = error.read().decode()
        if (reason in found) if reason else not found:
            assert "hush" not in found
            return
        time.sleep(0.05)
    raise AssertionError(f"{reason or 'ready'} is not what it says: {found}")


def test_a_router_that_waits_for_the_lease_waits_in_one_process_and_says_for_whom(
    server: Server, tmp_path: Path
) -> None:
    admin, another = free_port(), free_port()
    config = new_store(server, tmp_path, free_port(), "a")
    first_port = config.partition("bind: ")[2].partition('"}')[0].rpartition(":")[2]
    other = config.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    other = other.replace(f":{first_port}", f":{another}")
    other = other.replace("admin: off", f"admin: 127.0.0.1:{admin}")
    (tmp_path / "other").mkdir()
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until='"router.ready"') as second,
    ):
        _await_ready(admin, f"process {first.process.pid} leads since")
        with traffic(another, "plain", 20, tmp_path) as t:
            t.write(range(20))
            t.finish()
        until = time.monotonic() + 6
        while time.monotonic() < until:
            _await_ready(admin, f"process {first.process.pid} leads since")
            time.sleep(0.5)
        assert len(lines(second, "journal.started")) == 1
        assert len(lines(second, "journal.refused")) == 1
        first.stop()
        second.wait_for('"journal.opened"')
        _await_ready(admin, "")
        with traffic(another, "orders", 20, tmp_path) as t:
            t.write(range(20))
            t.finish()


def test_a_standby_that_does_not_see_the_database_does_not_say_how_far_behind_it_is(
    server: Server, tmp_path: Path
) -> None:
    role = f"router_{time.time_ns()}"
    config, other, _, other_admin = pair(server, tmp_path)
    database = config.partition(f":{server.port}/")[2].partition('"')[0]
    server.run(f"CREATE ROLE {role} LOGIN")
    grant = ["--url", server.url(database), "--role", role]
    done = CliRunner().invoke(main, ["journal", "init", str(tmp_path / "init.yaml"), *grant])
    assert done.exit_code == 0, done.output
    other = other.replace(server.url(database), server.url(database, role))
    with (
        running_router(config, tmp_path) as first,
        running_router(other, tmp_path / "other", until="standby.began"),
    ):
        _await_ready(other_admin, f"process {first.process.pid} leads")
        assert status_of(other_admin)["lease"]["age_seconds"] < 5
        server.run(f"ALTER ROLE {role} NOLOGIN")
        server.run(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        )
        _await_ready(other_admin, "is not permitted to log in")
        url = f"http://127.0.0.1:{other_admin}"
        shown = CliRunner().invoke(main, ["status", "--admin", url, "--json"])
        lease = json.loads(shown.output)["status"]["lease"]
        assert lease["age_seconds"] is None
        assert 0 < lease["seen"] <= time.time()
        assert "is not permitted to log in" in lease["trouble"]
        told = CliRunner().invoke(main, ["status", "--admin", url]).output
        assert "whether it still leads is not known" in " ".join(told.split())
        server.run(f"ALTER ROLE {role} LOGIN")
        _await_ready(other_admin, f"process {first.process.pid} leads")
        assert status_of(other_admin)["lease"]["age_seconds"] < 5
