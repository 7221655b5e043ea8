"""The supervisor of the exporter of spans: what it keeps while there is none."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from router.journal.following import SPANS_FOLDER, Follower, saved_cursor
from router.journal.segment import segment_name
from router.service import tracing
from router.service.config.process import Tracing
from router.service.tracing import TracingHealth
from tests.service.test_spans import Stage

SECONDS = 60.0
REPORT: dict[str, object] = {
    "exported": 0,
    "dropped": 0,
    "refused": 0,
    "refusal": None,
    "trouble": None,
}


@attrs.define(eq=False)
class Exporters:
    """Stand-ins for the exporter's processes; each lives until it is killed."""

    started: int = 0
    killed: trio.Event = attrs.field(factory=trio.Event)

    async def run_once(self, *_: object) -> int:
        self.started += 1
        self.killed = trio.Event()
        await self.killed.wait()
        return -9


async def until(is_so: Callable[[], object]) -> None:
    with trio.fail_after(SECONDS):
        while not is_so():
            await trio.sleep(0.01)


@asynccontextmanager
async def supervised(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[tuple[TracingHealth, Exporters]]:
    monkeypatch.setattr(tracing, "RESPAWN_SECONDS", 0.01)
    monkeypatch.setattr(tracing, "HOLD_SECONDS", 0.01)
    monkeypatch.setattr(tracing, "_is_installed", lambda: True)
    health, exporters = TracingHealth(), Exporters()
    monkeypatch.setattr(TracingHealth, "_run_once", exporters.run_once)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.run, folder, Tracing(endpoint="http://localhost", **options))
        await until(lambda: exporters.started == 1)
        yield health, exporters
        nursery.cancel_scope.cancel()


def held(folder: Path, number: int) -> bool:
    return (folder / SPANS_FOLDER / segment_name(number)).exists()


async def test_segments_that_go_while_the_exporter_is_away_are_read_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with supervised(tmp_path, monkeypatch) as (health, exporters):
        health._note(REPORT)
        exporters.killed.set()
        await until(lambda: exporters.started == 2)
        await until(lambda: health.holds)  # until the next one has reported
        stage.write(3)
        count = 3 + stage.fill()
        await until(lambda: held(tmp_path, 1))
        (tmp_path / "journal" / segment_name(1)).unlink()
        stage.write(2)
        health._note(REPORT)
        assert not health.holds
    following = Follower(tmp_path, tmp_path / SPANS_FOLDER, 1 << 30)
    following.look(saved_cursor(tmp_path / SPANS_FOLDER))
    stage.follower = following
    assert stage.read() == count + 2
    assert following.dropped == 0


async def test_what_is_dropped_meanwhile_is_counted_with_what_exporters_drop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    async with supervised(tmp_path, monkeypatch, buffer_octets=2 << 20) as (health, exporters):
        for _ in range(4):
            stage.fill()
            await until(lambda: held(tmp_path, stage.log.number))
        await until(lambda: health.dropped)
        dropped = health.dropped
        health._note({**REPORT, "dropped": 1})
        assert health.dropped == dropped + 1
        exporters.killed.set()
        await until(lambda: exporters.started == 2)
        health._note({**REPORT, "dropped": 1})
        assert health.dropped >= dropped + 2


async def test_refused_spans_are_counted_over_exporters_and_logged_once() -> None:
    health = TracingHealth()
    health.holds = True
    with capture_logs() as log:
        health._note({**REPORT, "refused": 2, "refusal": "HTTP 400"})
        health._note({**REPORT, "refused": 2, "refusal": "HTTP 400", "exported": 1})
        health.holds = True  # another exporter begins
        health._note(REPORT)
        health._note({**REPORT, "refused": 1, "refusal": "HTTP 413"})
    assert (health.refused, health.refusal, health.trouble) == (3, "HTTP 413", None)
    told = [each for each in log if each["event"] == "spans.refused"]
    assert [(each["spans"], each["reason"]) for each in told] == [(2, "HTTP 400"), (1, "HTTP 413")]
