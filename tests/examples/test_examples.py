"""Each example runs as its reader would run it, and does what it says."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import peers

pytestmark = pytest.mark.long

EXAMPLES = Path("examples")
SECONDS = 240

TOLD = {
    "auto_link": ["sent 100, accepted 100", "first: received ", "second: received "],
    "behind_firewall": [
        "hub: sent 1,000, accepted 1,000",
        "plant: received 1,000, accepted 1,000",
        "plant: received 500, accepted 500",
        "hub: sent 500, accepted 500",
        "hub: received 1,000, accepted 1,000",
    ],
    "bridge_rabbitmq": ["sent 5,000, accepted 5,000", "received 5,000, accepted 5,000"],
    "fallback": [
        "jobs: sent 1,000, accepted 1,000",
        "first:  received 400, accepted 400",
        "second: received 600, accepted 600",
        "jobs: sent 500, accepted 500",
        "third:  received 500, accepted 500",
    ],
    "link_route": [
        "sent 1,000, accepted 1,000",
        "received 1,000, accepted 1,000",
        "amqp:not-found: no route for the address 'secrets'",
    ],
    "mesh": [
        f"{address}: {what} 2,000, accepted 2,000"
        for address in ("dc2.orders", "dc1.orders")
        for what in ("sent", "received")
    ],
    "multicast": [f"{name}: received 100, accepted 100" for name in ("first", "second", "third")],
    "sites": [
        "site dc4  over dc2, cost 30",
        "dc1: sent 1,000, accepted 1,000",
        "dc4: received 1,000, accepted 1,000",
        "it has ended",
        "app: sent 1,000, accepted 1,000",
        "site dc4  over dc5, cost 60",
    ],
    "sidecar": ["application: sent 10,000, accepted 10,000", "consumer:    received 10,000"],
    "websocket": ["plant: sent 2,000, accepted 2,000", "cloud: received 2,000, accepted 2,000"],
}
"""What each example must have said by its end."""

WITH_RABBITMQ = {"bridge_rabbitmq", "fallback"}


def run(example: str) -> tuple[int, str]:
    """Runs an example in a process group of its own, so that nothing of it is left behind."""
    process = subprocess.Popen(
        [str((EXAMPLES / example / "run").resolve())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
    return process.returncode, output


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=pytest.mark.interop) if name in WITH_RABBITMQ else name
        for name in TOLD
    ],
)
def test_it_does_what_it_says(example: str) -> None:
    if example in WITH_RABBITMQ:
        peers.need_rabbitmq()
    code, output = run(example)
    assert code == 0, output
    for told in TOLD[example]:
        assert told in output


def test_every_example_is_run_here() -> None:
    assert {script.parent.name for script in EXAMPLES.glob("*/run")} == set(TOLD)


def test_no_state_is_left_in_the_repository() -> None:
    assert not list(EXAMPLES.glob("*/router-state"))
