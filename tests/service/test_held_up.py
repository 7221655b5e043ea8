"""A router that was held up takes what has arrived meanwhile before it calls anybody silent.

Over AMQP 1.0 alone can this be seen from outside: in the other protocols both ends agree on one
interval, so the peer is as impatient as the router.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.commands import begin, begun
from tests.support.ports import free_port
from tests.support.running import running_router

IDLE_SECONDS = 2

CONFIG = """\
router: {{id: held, admin: off, workers: {workers}}}
limits: {{idle_seconds: {idle}s}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: orders
"""


def _with_children(pid: int) -> list[int]:
    """The process and those that it has started."""
    told = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [pid, *map(int, told.stdout.split())]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_router_that_was_stopped_keeps_the_connections_of_those_who_went_on(
    tmp_path: Path, workers: int
) -> None:
    port = free_port()
    config = CONFIG.format(idle=IDLE_SECONDS, port=port, workers=workers)
    with running_router(config, tmp_path) as router:
        url = f"amqp://127.0.0.1:{port}"
        held = _with_children(router.process.pid)

        def send_one() -> None:
            assert begin("send", url, "orders", "--count", "1", "--timeout", "60").wait(90) == 0

        words = ["--count", "2", "--json", "--timeout", "60"]
        with begun("receive", url, "orders", *words) as receiver:
            send_one()
            for pid in held:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(IDLE_SECONDS + 2)
            for pid in held:
                os.kill(pid, signal.SIGCONT)
            send_one()
            output, _ = receiver.communicate(timeout=90)
    assert json.loads(output)["connections"] == 1
