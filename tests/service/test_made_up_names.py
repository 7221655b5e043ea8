"""Clients without a container-id are never taken for each other, whatever their workers count."""

from pathlib import Path

import pytest

from router.wire.v0_9_1 import methods as m
from tests.support.basic_socket import BasicSocket
from tests.support.running import running_router
from tests.support.workers import address_of

pytestmark = pytest.mark.long

FILE = """
router: {id: under-test, workers: 2, admin: off, state: ./state}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "exact.#", guarantee: exactly-once}, {address: "plain.#"}]
"""
CLIENTS = 6


def test_publishers_and_consumers_at_two_workers_keep_their_links_on_every_route(
    tmp_path: Path,
) -> None:
    """On exactly-once routes all links lead to one worker; names counted by each one met there."""
    with running_router(FILE, tmp_path) as router:
        port = int(address_of(router).rpartition(":")[2])
        for queue in ("plain.orders", "exact.orders"):
            clients = []
            for number in range(CLIENTS):
                publisher = BasicSocket(port).open(1)
                publisher.publish(b"%d" % number, queue)
                publisher.rest(0.1)
                clients.append(publisher)
            taken = []
            for _ in range(CLIENTS):
                consumer = BasicSocket(port).open(1)
                answer = consumer.ask(m.BasicConsume(queue=queue, no_ack=True))
                assert isinstance(answer, m.BasicConsumeOk)
                clients.append(consumer)
            for consumer in clients[CLIENTS:]:
                taken += consumer.rest()
            assert sorted(each.body for each in taken) == [b"%d" % n for n in range(CLIENTS)]
            for client in clients:
                client.socket.close()
        assert not [line for line in router.log if "link.stolen" in line]
