"""rhea (Node), unmodified, against the listener."""

import json
import subprocess
import uuid
from typing import Any

import pytest

from tests.interop.conftest import Reachable
from tests.support import peers

pytestmark = pytest.mark.interop

OUTCOMES = ("accepted", "rejected", "released", "modified")


def exchange(port: int, count: int, answer: str) -> dict[str, Any]:
    """Lets rhea send ``count`` messages to itself through the router, answering each."""
    peers.need_node("rhea")
    address = f"rhea.{uuid.uuid4().hex}"
    finished = subprocess.run(
        ["node", "tests/interop/node/exchange.js", str(port), address, str(count), answer],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    report: dict[str, Any] = json.loads(finished.stdout)
    return report


@pytest.mark.parametrize("answer", OUTCOMES)
def test_every_outcome_comes_back(reachable: Reachable, answer: str) -> None:
    report = exchange(reachable.port, 25, answer)
    assert {outcome: report[outcome] for outcome in OUTCOMES} == {
        **dict.fromkeys(OUTCOMES, 0),
        answer: 25,
    }
    assert report["error"] == ("test:no" if answer == "rejected" else None)


def test_two_thousand_messages_come_once_and_in_order(reachable: Reachable) -> None:
    report = exchange(reachable.port, 2000, "accepted")
    assert report["received"] == list(range(2000))
    assert report["accepted"] == 2000
