"""`router status` of a router of two workers: what is broken, rejected, away, or one of 5,000."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from rich.console import Console

from router.cli import screen
from tests.support.clients import receiving, sending
from tests.support.commands import run
from tests.support.fleets import FakeControl, Site, core, fleet, route, worker_snapshot
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

FILE = """\
router: {{id: seen, workers: 2, admin: "unix:admin.sock"}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers: {{gone: {{url: "amqp://127.0.0.1:1"}}}}
routes:
  - {{address: orders.#}}
  - {{address: away.#, to: gone}}
  - {{address: refused.#, unroutable: reject}}
{more}
"""


@attrs.frozen
class House:
    folder: Path
    url: str

    def run(self, *arguments: str, columns: int | None = None) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        environment.pop("COLUMNS", None)
        if columns is not None:
            environment["COLUMNS"] = str(columns)
        done = run(*arguments, folder=self.folder, environment=environment)
        return done.returncode, done.stdout

    def status(self, *options: str, columns: int | None = None) -> tuple[int, str]:
        return self.run("status", "--config", "router.yaml", *options, columns=columns)

    def deliveries(self, *options: str, columns: int | None = None) -> tuple[int, str]:
        return self.run("deliveries", "--config", "router.yaml", *options, columns=columns)

    def until(self, pattern: str, *options: str, columns: int | None = None) -> tuple[int, str]:
        """Asks until the answer matches: a snapshot from before is good for a while."""
        deadline = time.monotonic() + 60
        while True:
            code, shown = self.status(*options, columns=columns)
            if re.search(pattern, shown, re.MULTILINE):
                return code, shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)

    def reject(self, address: str, count: int) -> None:
        receiver = subprocess.Popen(
            [
                *(sys.executable, "-m", "router", "receive", self.url, address),
                *("--count", str(count), "--outcome", "rejected", "--timeout", "60"),
            ],
            stdout=subprocess.DEVNULL,
        )
        self.run("send", self.url, address, "--count", str(count), "--timeout", "60")
        assert receiver.wait(60) == 0


def house(folder: Path, more: str = "") -> Iterator[House]:
    port = free_port()
    with running_router(FILE.format(port=port, more=more), folder) as router:
        router.wait_for("connector.failed")
        yield House(folder, f"amqp://127.0.0.1:{port}")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield from house(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    names = (f"very.long.name.of.a.route.that.nobody.reads.to.the.end.{n}" for n in range(5000))
    more = "\n".join(f"  - {{address: {name}}}" for name in names)
    yield from house(tmp_path_factory.mktemp("huge"), more)


def test_what_was_rejected_is_a_problem_with_route_count_reason_and_peer(small: House) -> None:
    small.reject("orders.rejected", 7)
    code, shown = small.until(r"^orders\.# +rejecting .* 7$")
    assert code == 0
    assert re.match(r"seen  ready, \d problems", shown)
    assert re.search(
        r"route orders\.# 7 deliveries were rejected by router-receive-\S+, the last \S+ m?s ago at"
        r" 'orders.rejected': no reason was given",
        shown,
    )
    code, shown = small.status("--check")
    assert code == 1
    assert "orders.rejected" in shown
    assert "in/s" not in shown


def test_what_the_router_rejects_itself_is_a_problem_too(small: House) -> None:
    small.run("send", small.url, "refused.x", "--timeout", "60")
    _, shown = small.until(r"refused\.# 1 delivery was rejected by the router, from router-send")
    assert "let somebody receive there" in shown
    log = json.loads(small.status("--json")[1])
    (route,) = (each for each in log["routes"] if each["name"] == "refused.#")
    assert route["rejection"]["by_router"] is True
    assert route["rejection"]["reason"] == "amqp:not-found: nobody receives here"


def test_a_route_to_a_container_that_is_away_says_so(small: House) -> None:
    _, shown = small.until(r"^away\.#  > gone +away ")
    assert "container gone is not connected" in shown


async def test_what_both_workers_hold_is_listed_and_counted_alike(small: House) -> None:
    where = small.url.removeprefix("amqp://")
    async with AsyncExitStack() as stack:
        for number in range(6):
            address = f"orders.held.{number}"
            sink = await stack.enter_async_context(receiving(where, address, window=3))
            sink.is_paused = True
            source = await stack.enter_async_context(sending(where, address, [b"x"] * 3))
            await source.wait_until(partial(_has_sent, source, 3))
        deadline = trio.current_time() + 60
        while True:
            overview = json.loads((await _asked(small.status, "--json"))[1])
            if overview["status"]["unsettled"] == 18:
                break
            assert trio.current_time() < deadline, overview["status"]
        workers = {each["worker"] for each in overview["status"]["workers"]}
        assert workers == {1, 2}
        assert sum(each["incoming_unsettled"] for each in overview["routes"]) == 18
        _, shown = await _asked(small.status)
        assert ", 18 unsettled" in shown.splitlines()[0]
        assert re.search(r"^orders\.# .* 18 +\S+ m?s? +0 +\d+$", shown, re.MULTILINE), shown
        listed = json.loads((await _asked(small.deliveries, "--json"))[1])
        from_clients = [each for each in listed if "/" not in each["container"]]
        assert {each["address"] for each in from_clients} == {
            f"orders.held.{number}" for number in range(6)
        }
        assert len(from_clients) == 18
        _, shown = await _asked(partial(small.deliveries, columns=80))
        lines = shown.splitlines()
        assert lines[0].split() == [
            "tag", "age", "state", "route", "from", "to", "octets", "attempts",
        ]  # fmt: skip
        assert all(len(line) <= 80 for line in lines)
        assert all(re.search(r" \d+ B +0$", line) for line in lines[1:])
        assert "express lane" not in shown


def _has_sent(source: Any, count: int) -> bool:
    return len(source.sent) == count


async def _asked(ask: Any, *options: str) -> tuple[int, str]:
    answer: tuple[int, str] = await trio.to_thread.run_sync(lambda: ask(*options))
    return answer


def test_nothing_is_broken_with_a_healthy_router(tmp_path: Path) -> None:
    text = """\
router: {id: well, workers: 2, admin: "unix:admin.sock"}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "#"}]
"""
    with running_router(text, tmp_path):
        well = House(tmp_path, "")
        code, shown = well.status("--check")
        assert code == 0
        assert shown.startswith("well  ready")
        assert not re.search("^error ", shown, re.MULTILINE)  # a busy machine may add a warning


def test_of_5000_routes_what_is_broken_is_shown_and_what_is_idle_is_counted(huge: House) -> None:
    huge.reject("very.long.name.of.a.route.that.nobody.reads.to.the.end.4321", 3)
    _, shown = huge.until("rejecting")
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("route "))
    assert re.search(r"to\.the\.end\.4321 +rejecting ", lines[at + 1])
    assert re.match(r"away\.# .* away ", lines[at + 2])
    assert lines[at + 3] == "and 5,001 more routes: 5,001 idle"


def test_all_of_5000_routes_are_shown_on_demand(huge: House) -> None:
    _, shown = huge.status("--all")
    assert len(re.findall(r"^very\.long\.name\S* ", shown, re.MULTILINE)) == 5000
    assert "more routes" not in shown


def test_long_names_leave_every_column_its_width_on_80_columns(huge: House) -> None:
    huge.reject("very.long.name.of.a.route.that.nobody.reads.to.the.end.17", 3)
    _, shown = huge.until("end.17 +rejecting", columns=80)
    lines = shown.splitlines()
    head = next(line for line in lines if line.startswith("route "))
    assert head.split() == [
        "route", "state", "in/s", "out/s", "unsettled", "oldest", "in", "doubt", "rejected",
    ]  # fmt: skip
    row = next(line for line in lines if "end.17" in line and "rejecting" in line)
    assert re.match(r"very\S+…\S+end\.17 +rejecting +\S+ +\S+ +0 +- +0 +3$", row)
    assert len(row) <= 80


def test_problems_that_the_answer_does_not_list_are_counted() -> None:
    paused = (route(f"p{number}", is_paused=True) for number in range(300))
    fares = worker_snapshot(core=core(*paused))

    async def ask() -> Any:
        site = Site(fleet(FakeControl(fares=fares)))
        return (await site.get("/api/v1/overview?most=20")).json

    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(screen.overview(console, trio.run(ask), 40))
    told = console.export_text()
    assert "ready, 300 problems" in told
    shown = told.count(" is paused")
    assert 0 < shown <= 20
    assert f"and {300 - shown} more problems" in told
