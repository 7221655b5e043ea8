"""``router reload`` of very many differences, and of a router that is slow to answer."""

import pytest
import trio
from click.testing import CliRunner, Result

from router.cli import reload
from router.cli.main import main
from router.service.certificates import TlsRecord
from router.service.difference import Change, Difference
from router.service.fleet import ReloadReport
from tests.support.fleets import FakeSteering, fleet
from tests.support.served import Served, serving


def run(up: Served, *arguments: str) -> Result:
    place = up.url.removeprefix("http://").rstrip("/")
    return CliRunner().invoke(main, ["reload", *arguments, "--admin", place])


def test_of_very_many_differences_it_prints_some_and_counts_all() -> None:
    known = fleet()
    known.steering.report = ReloadReport(
        differences=tuple(
            Difference(section="routes", name=f"r{n}", change=Change.ADDED) for n in range(3000)
        )
    )
    with serving(known) as up:
        done = run(up)
        assert done.exit_code == 0
        assert done.output.splitlines() == [
            *(f"+ routes r{n}" for n in range(1000)),
            "and 2,000 more",
            "reloaded: 3,000 added",
        ]
        last = run(up, "--dry-run").output.splitlines()[-2:]
        assert last == [
            "and 2,000 more",
            "a reload would do this: 3,000 added; nothing was changed",
        ]


def test_it_says_which_tls_files_are_not_used() -> None:
    reason = "listeners[0].tls.cert: a.pem expired on 2026-01-01 00:00 UTC"
    known = fleet()
    known.steering.tls = TlsRecord(refused=(reason,))
    with serving(known) as up:
        said = f"an older certificate stays in use: {reason}"
        assert run(up).output.splitlines() == [said, "nothing has changed"]
        assert run(up, "--dry-run").output.splitlines()[0] == said


def test_it_says_that_a_reload_without_an_answer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(steering: FakeSteering, *_: object) -> ReloadReport:
        await trio.sleep(0.5)
        return steering.report

    monkeypatch.setattr(FakeSteering, "reload", never)
    monkeypatch.setattr(reload, "RELOAD_SECONDS", 0.1)
    with serving(fleet()) as up:
        done = run(up)
        assert done.exit_code == 1
        assert "timed out" in done.output
        assert "a reload that it has begun goes on" in done.output
