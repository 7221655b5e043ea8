"""Receivers that poll a queue of RabbitMQ through the router: it must be granted credit first."""

import time
from pathlib import Path

import pytest

from tests.interop.test_rabbitmq_bridge import fill, waiting
from tests.support import peers
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

CONFIG = """\
router: {{admin: off, workers: 2, wait_for: [east]}}
listeners: [{{bind: 127.0.0.1:{port}}}]
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{east}", protocol: {protocol}}}
routes:
  - address: polled
    to: east/{queue}
"""

TIMEOUT_SECONDS = 30
EMPTY_SECONDS = 5.0
"""Far more than the bound within which a drain is answered, for machines that are busy."""


@pytest.mark.parametrize(
    ("protocol", "queue"), [("amqp-1.0", "/amq/queue/polled"), ("amqp-0-9-1", "polled")]
)
@pytest.mark.parametrize("clients", [1, 4])  # on one worker, on both
def test_polls_get_what_is_in_the_queue_and_are_told_when_nothing_is(
    rabbit_nodes: tuple[RabbitNode, RabbitNode],
    tmp_path: Path,
    protocol: str,
    queue: str,
    clients: int,
) -> None:
    peers.need_python("pika")
    peers.need_python("proton")
    from proton.utils import BlockingConnection

    east, _ = rabbit_nodes
    fill(east, "polled", 8)
    port = free_port()
    config = CONFIG.format(port=port, east=east.port, protocol=protocol, queue=queue)
    with running_router(config, tmp_path):
        connections = [
            BlockingConnection(f"127.0.0.1:{port}", timeout=TIMEOUT_SECONDS) for _ in range(clients)
        ]
        receivers = [each.create_receiver("polled", credit=0) for each in connections]

        def poll(number: int) -> int:
            receiver = receivers[number % clients]
            receiver.link.drain(1)
            connections[number % clients].wait(
                lambda: receiver.link.credit == 0, timeout=TIMEOUT_SECONDS
            )
            count = 0
            while receiver.fetcher.has_message:
                receiver.fetcher.pop()
                receiver.accept()
                count += 1
            return count

        got = polls = 0
        while got < 8 and polls < 100:
            got += poll(polls)
            polls += 1
        assert got == 8
        for number in range(clients):
            began = time.monotonic()
            assert poll(number) == 0
            assert time.monotonic() - began < EMPTY_SECONDS
        for each in connections:
            each.close()
    assert waiting(east, "polled") == 0
