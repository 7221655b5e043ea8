"""The commands that talk to a running router, as a user types them."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner, Result

from router.cli.admin import AdminError
from router.cli.deliveries import resolve_all
from router.cli.main import main
from router.model.events import DeliveriesReceived, Event
from tests.support.clients import Receiver, receiving, receiving_as, sending
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

FILE = """
router: {id: under-test, workers: 1, admin: "unix:admin.sock"}
listeners: [{bind: "127.0.0.1:0"}]
containers: {east: {url: "amqp://app:secret@127.0.0.1:1"}}
routes:
  - {address: orders, to: east}
  - {address: "#", name: everything else, stall_seconds: 500ms}
"""


@attrs.define(eq=False)
class Setup:
    """A router, and the options that lead to it."""

    router: RunningRouter
    folder: Path

    @property
    def address(self) -> str:
        return str(json.loads(self.router.wait_for("router.ready"))["listeners"][0])

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--config", str(self.folder / "router.yaml")])

    def ok(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output


@contextmanager
def setup(folder: Path, text: str = FILE) -> Iterator[Setup]:
    with running_router(text, folder) as router:
        yield Setup(router, folder)


async def in_thread(made: Setup, *arguments: str) -> str:
    """Runs a command beside the clients of a test."""
    return await trio.to_thread.run_sync(lambda: made.ok(*arguments))


# Status and top


async def test_status_says_what_is_wrong_first(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        made.router.wait_for("connector.failed")
        await trio.sleep(0.6)  # a snapshot from before is good for half a second
        shown = made.ok("status")
        lines = shown.splitlines()
        assert lines[0].startswith("under-test  ready")
        # a busy machine adds a warning below, a longer word than "error"
        assert re.match("error +container east is not connected", lines[2])
        assert "is it running, is the port right?" in lines[3]
        assert re.search(r"^everything else +idle", shown, re.MULTILINE)
        assert re.search(r"^east +away .*Connection refused", shown, re.MULTILINE)
        assert "secret" not in shown


def test_status_as_json_is_what_the_api_says(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        overview = json.loads(made.ok("status", "--json"))
        assert overview["status"]["id"] == "under-test"
        assert {route["name"] for route in overview["routes"]} == {"orders", "everything else"}


def test_top_looks_as_often_as_asked(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        shown = made.ok("top", "--count", "2", "--every", "0.5")
        assert "under-test" in shown
        assert "everything else" in shown


def test_a_command_that_reaches_another_router_than_its_file_names_does_nothing(
    tmp_path: Path,
) -> None:
    with setup(tmp_path):
        other = tmp_path / "other.yaml"
        other.write_text(FILE.replace("under-test", "other"))
        for command in (["status"], ["drain"], ["pause", "orders"], ["store"], ["mesh"]):
            refused = CliRunner().invoke(main, [*command, "--config", str(other)])
            assert refused.exit_code == 1, refused.output
            assert "admin.sock: this is router under-test, not other\n" in refused.stderr
            assert "router.admin of its own" in refused.stderr
        unnamed = tmp_path / "unnamed.yaml"
        unnamed.write_text(FILE.replace("id: under-test, ", ""))
        asked = CliRunner().invoke(main, ["status", "--config", str(unnamed)])
        assert asked.output.startswith("under-test  ready")


# Deliveries


async def test_deliveries_that_wait_are_listed(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        assert "nothing is listed as unsettled" in made.ok("deliveries")
        assert "nothing is in doubt" in made.ok("deliveries", "--in-doubt")
        mistaken = made.run("deliveries", "--in-doubt", "--route", "everything")
        assert (mistaken.exit_code, mistaken.stdout) == (1, "")
        assert "there is no route named 'everything'" in mistaken.stderr
        async with receiving(made.address, "prices", window=3) as sink:
            sink.is_paused = True
            async with sending(made.address, "prices", [b"x"] * 3) as source:
                await source.wait_until(lambda: len(source.sent) == 3)
                for _ in range(100):
                    shown = await in_thread(made, "deliveries", "--route", "everything else")
                    if "nothing is listed" not in shown or "express lane" in shown:
                        break
                    await trio.sleep(0.05)
                else:
                    raise AssertionError(shown)
            sink.is_paused = False
            sink.pulse()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["zz", "--accept"], "hexadecimal digits"),
        (["00"], "one of --resend, --discard and --accept"),
        (["00", "--accept", "--discard"], "one of --resend, --discard and --accept"),
        (["--accept"], "give a TAG, or --route or --container"),
        (["--accept", "--yes"], "give a TAG, or --route or --container"),
        (["--accept", "--route", "a", "--link", "b"], "--link goes with a TAG only"),
        (["00", "--accept", "--route", "a"], "do not go with a TAG"),
        (["00", "--accept", "--yes"], "do not go with a TAG"),
    ],
)
def test_resolve_wants_a_tag_and_a_decision(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["deliveries", "resolve", *arguments])
    assert result.exit_code == 2
    assert reason in result.output


def test_resolving_what_is_not_in_doubt_fails(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        result = made.run("deliveries", "resolve", "0a0b", "--discard")
        assert result.exit_code == 1
        assert "no delivery in doubt has the tag '0a0b'" in result.output


@attrs.define(eq=False)
class Undecided(Receiver):
    """Receives, and sends no outcome."""

    count: int = 0

    def react(self, event: Event) -> None:
        if isinstance(event, DeliveriesReceived):
            self.count += len(event.deliveries)
        else:
            super().react(event)


IN_DOUBT = """
router: {id: under-test, workers: 1, admin: "unix:admin.sock"}
listeners: [{bind: "127.0.0.1:0"}]
routes:
  - {address: first, guarantee: exactly-once}
  - {address: second, guarantee: exactly-once}
"""


async def leave_in_doubt(made: Setup, address: str, count: int) -> None:
    """Has a receiver leave that has received deliveries and settled none."""
    async with (
        receiving_as(Undecided, made.address, address) as sink,
        sending(made.address, address, [b"x"] * count),
    ):
        await sink.wait_until(lambda: sink.count == count)
    for _ in range(300):
        shown = await in_thread(made, "deliveries", "--in-doubt", "--route", address, "--json")
        if len(json.loads(shown)) == count:
            return
        await trio.sleep(0.1)
    raise AssertionError(shown)


async def test_all_in_doubt_of_a_route_are_resolved_and_no_others(tmp_path: Path) -> None:
    with setup(tmp_path, IN_DOUBT) as made:
        await leave_in_doubt(made, "first", 3)
        await leave_in_doubt(made, "second", 2)
        resolve = ("deliveries", "resolve", "--discard", "--route", "first", "--yes")
        assert await in_thread(made, *resolve) == "3 deliveries resolved: discard\n"
        left = json.loads(await in_thread(made, "deliveries", "--in-doubt", "--json"))
        assert [each["route"] for each in left] == ["second"] * 2
        resolve = (*resolve[:3], "--container", left[0]["container"], "--yes")
        assert await in_thread(made, *resolve) == "2 deliveries resolved: discard\n"
        assert "nothing is in doubt" in await in_thread(made, "deliveries", "--in-doubt")


class Doubtful:
    """An admin client whose router has two deliveries in doubt, of links of one name."""

    def __init__(self, *tags: str) -> None:
        self.rows = [
            {
                **{"tag": tag, "route": route, "address": route, "container": f"app {route}"},
                **{"link": "out", "to_container": None, "to_link": None},
            }
            for tag, route in zip(tags, ("first", "second"), strict=True)
        ]
        self.resolved: list[str] = []

    def get(self, path: str, **query: Any) -> Any:
        rows = [each for each in self.rows if query.get("route") in (None, each["route"])]
        return {"deliveries": rows, "next": None, "is_cut": False}

    def post(self, path: str, body: Any) -> Any:
        if path == "deliveries/ff/resolve":
            raise AdminError("no delivery in doubt has that tag", 404)
        self.resolved.append(path)
        return {"resolved": 1}


def test_no_delivery_of_another_route_is_resolved_by_a_shared_tag_and_link_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Doubtful("00", "00")
    with pytest.raises(SystemExit):
        resolve_all(client, "accept", {"route": "first", "container": None}, is_meant=True)  # type: ignore[arg-type]
    assert not client.resolved
    assert "resolve by TAG" in capsys.readouterr().err


def test_what_filters_choose_is_counted_and_resolved_once_that_is_confirmed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Doubtful("00", "01")
    chosen = {"route": "second", "container": None}
    with pytest.raises(SystemExit):
        resolve_all(client, "discard", chosen, is_meant=False)  # type: ignore[arg-type]
    assert not client.resolved
    said = capsys.readouterr().err
    assert "1 delivery: with --yes the decision is discard for all of them" in said
    assert resolve_all(client, "discard", chosen, is_meant=True) == 1  # type: ignore[arg-type]
    assert client.resolved == ["deliveries/01/resolve"]


def test_a_route_of_which_nothing_is_in_doubt_has_nothing_resolved(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        result = made.run("deliveries", "resolve", "--accept", "--route", "orders", "--yes")
        assert result.exit_code == 1
        assert "nothing that --route and --container choose is in doubt" in result.output


def test_what_is_settled_meanwhile_is_not_counted() -> None:
    client = Doubtful("ff", "01")
    chosen = {"route": None, "container": "app first"}
    assert resolve_all(client, "accept", chosen, is_meant=True) == 1  # type: ignore[arg-type]
    assert client.resolved == ["deliveries/01/resolve"]


# Pause, reload, drain, trace


def test_pause_and_resume_name_the_route(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        assert made.ok("pause", "everything else") == "route everything else is paused\n"
        lines = [line.split() for line in made.ok("status").splitlines()]
        assert ["note", "route", "everything", "else", "is", "paused"] in lines
        assert made.ok("resume", "everything else") == "route everything else is resumed\n"
        missing = made.run("pause", "nothing")
        assert (missing.exit_code, missing.output) == (1, "there is no route named 'nothing'\n")


def test_reload_prints_the_difference(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        assert made.ok("reload") == "nothing has changed\n"
        changed = FILE.replace("500ms", "5s").replace("id: under-test", "id: renamed")
        (tmp_path / "router.yaml").write_text(changed + "  - {address: new}\n")
        assert made.ok("reload").splitlines() == [
            "~ router: id (waits for a restart)",
            "~ routes #: stall_seconds",
            "+ routes new",
            "    takes this address from route 'everything else'",
            "reloaded: 1 added, 1 changed, 1 waiting for a restart",
        ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dry_run_prints_what_a_reload_would_do_and_does_nothing(
    tmp_path: Path, workers: int
) -> None:
    text = FILE.replace("workers: 1", f"workers: {workers}")
    with setup(tmp_path, text) as made:
        assert made.ok("reload", "--dry-run") == "a reload would change nothing\n"
        changed = text.replace("127.0.0.1:1", "127.0.0.1:2").replace("id: under-test", "id: other")
        (tmp_path / "router.yaml").write_text(changed.replace("to: east", "to: east/o"))
        told = [
            "~ router: id (waits for a restart)",
            "~ containers east: url",
            "    its connection is closed and dialed anew; its links are attached again",
            "~ routes orders: to",
            "    link to east ends",
            "    link to east/o is new",
        ]
        last = "a reload would do this: 2 changed, 1 waiting for a restart; nothing was changed"
        for _ in range(2):  # the first has changed nothing
            assert made.ok("reload", "--dry-run").splitlines() == [*told, last]
        assert "config." not in "".join(made.router.log)
        done = "reloaded: 2 changed, 1 waiting for a restart"
        assert made.ok("reload").splitlines() == [*told, done]


def test_a_dry_run_of_a_bad_file_prints_its_problems_and_exits_with_2(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        (tmp_path / "router.yaml").write_text(FILE + "nonsense: 1\n")
        result = made.run("reload", "--dry-run")
        assert result.exit_code == 2
        assert "router.yaml:8:1: unknown key 'nonsense'" in result.output


@pytest.mark.parametrize("arguments", [("reload", "--dry-run"), ("reload",)])
def test_a_reload_to_a_port_in_use_is_refused_at_its_place(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with setup(tmp_path) as made, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "router.yaml").write_text(FILE.replace("127.0.0.1:0", place))
        result = made.run(*arguments)
        assert result.exit_code == 2
        assert f"router.yaml:3:20: listener {place}: Address already in use; " in result.output
        assert "bind another port" in result.output


def test_reload_of_a_bad_file_prints_its_problems_and_exits_with_2(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        (tmp_path / "router.yaml").write_text(FILE + "nonsense: 1\n")
        result = made.run("reload")
        assert result.exit_code == 2
        assert "router.yaml:8:1: unknown key 'nonsense'" in result.output


def test_drain_waits_for_the_end(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        assert made.ok("drain").splitlines() == [
            "under-test drains: 0 connections, 0 unsettled",
            "it has ended",
        ]
        assert made.router.process.wait(10) == 0


async def test_trace_shows_frames_and_decisions_and_no_payload(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        async with receiving(made.address, "prices"), trio.open_nursery() as nursery:
            shown: list[str] = []

            async def follow() -> None:
                shown.append(await in_thread(made, "trace", "prices", "--count", "1"))

            async def send_one() -> None:
                async with sending(made.address, "prices", [b"secret"]) as source:
                    await source.wait_until(lambda: source.outcomes["Accepted"] == 1)

            nursery.start_soon(follow)
            while not shown:  # whenever it begins to follow, a delivery comes
                await send_one()
        (text,) = shown
        assert "transfer: tag" in text
        assert "the only receiver" in text
        assert "disposition: accepted, settled" in text
        assert "secret" not in text


def test_a_trace_of_nothing_says_so(tmp_path: Path) -> None:
    with setup(tmp_path) as made:
        assert "no delivery arrived at prices" in made.ok("trace", "prices", "--seconds", "0.2")


# Finding the router


def test_nobody_there_is_said_in_a_line_with_what_to_do() -> None:
    result = CliRunner().invoke(main, ["status", "--admin", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no router answers at 127.0.0.1:1: Connection refused" in result.output
    assert "--admin" in result.output


def test_top_says_in_lines_that_nobody_is_there() -> None:
    result = CliRunner().invoke(main, ["top", "--count", "1", "--admin", "127.0.0.1:1"])
    assert "\\n" not in result.output
    assert "is it running?" in result.output


@pytest.mark.parametrize("admin", ["nonsense", "127.0.0.1:99999", "unix:"])
def test_an_address_that_is_none_is_bad_usage(admin: str) -> None:
    result = CliRunner().invoke(main, ["status", "--admin", admin])
    assert result.exit_code == 2


def test_a_file_that_turns_the_endpoint_off_says_so(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("router: {admin: off}\n")
    result = CliRunner().invoke(main, ["status", "--config", str(file)])
    assert result.exit_code == 2
    assert "turns the admin endpoint off" in result.output


def test_secrets_of_other_sections_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(
        "router: {admin: '127.0.0.1:1'}\ncontainers: {east: {url: 'amqp://a:${ABSENT}@east'}}\n"
    )
    result = CliRunner().invoke(main, ["status", "--config", str(file)])
    assert result.exit_code == 1
    assert "no router answers at 127.0.0.1:1" in result.output


def test_a_token_that_cannot_be_read_asks_for_the_option(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("router: {admin: {bind: '0.0.0.0:8672', token: '${ABSENT}'}}\n")
    result = CliRunner().invoke(main, ["status", "--config", str(file)])
    assert result.exit_code == 2
    assert "router.admin.token" in result.output
    assert "give --admin and --token" in result.output


def test_the_token_is_taken_from_the_file_or_the_environment(tmp_path: Path) -> None:
    text = FILE.replace('"unix:admin.sock"', "{bind: 'unix:admin.sock', token: s3cret}")
    with setup(tmp_path, text) as made:
        assert "under-test" in made.ok("status")
        admin = f"unix:{tmp_path}/admin.sock"
        refused = CliRunner().invoke(main, ["status", "--admin", admin])
        assert refused.exit_code == 1
        assert "ROUTER_ADMIN_TOKEN" in refused.output
        given = CliRunner().invoke(
            main, ["status", "--admin", admin], env={"ROUTER_ADMIN_TOKEN": "s3cret"}
        )
        assert given.exit_code == 0


def test_a_trace_ends_quietly_with_ctrl_c(tmp_path: Path) -> None:
    with setup(tmp_path):
        asked = ("trace", "prices", "--seconds", "600", "--config", "router.yaml")
        process = subprocess.Popen(
            [sys.executable, "-m", "router", *asked],
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path.cwd())},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline() == "following prices for 600 s at most; Ctrl-C ends it\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0
        assert told == "no delivery arrived at prices within 600 s\n"
