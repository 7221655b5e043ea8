"""One message that is larger than the router's memory, past a receiver that stops reading."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

FILE = """
router: {id: narrow, workers: 1, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: large}]
"""
MEMORY_OCTETS = 200 << 20


def client(router: RunningRouter, verb: str, *options: str) -> "subprocess.Popen[str]":
    (address,) = json.loads(router.wait_for("router.ready"))["listeners"]
    return subprocess.Popen(
        [sys.executable, "-m", "router", verb, f"amqp://{address}", "large", "--json", *options],
        env=router.environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def account(process: "subprocess.Popen[str]") -> dict[str, object]:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return dict(json.loads(output))


@pytest.mark.parametrize(
    "octets", [256 << 20, pytest.param(1 << 30, marks=pytest.mark.slow)], ids=["256MiB", "1GiB"]
)
def test_a_message_larger_than_memory_passes_in_parts(tmp_path: Path, octets: int) -> None:
    with running_router(FILE, tmp_path) as router:
        idle_octets = router.resident_octets()
        receiver = client(router, "receive", "--count", "2")
        try:
            account(client(router, "send", "--count", "1", "--size", "1"))  # now it is attached
            receiver.send_signal(signal.SIGSTOP)
            sender = client(router, "send", "--count", "1", "--size", str(octets))
            while router.resident_octets() < idle_octets + (8 << 20):
                assert sender.poll() is None
                time.sleep(0.01)
            time.sleep(1)  # what the sender may send meanwhile piles up in the router
            receiver.send_signal(signal.SIGCONT)
            sent, received = account(sender), account(receiver)
        finally:
            receiver.kill()  # stopped, it would end by no other signal
            receiver.wait(30)
        assert sent["outcomes"] == {"accepted": 1}
        assert received["outcomes"] == {"accepted": 2}
        assert int(str(sent["octets"])) < int(str(received["octets"]))
        assert router.peak_octets() < MEMORY_OCTETS
