"""Topic exchanges bridged by routers with two workers; the brokers are one more router."""

import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest

from router.wire.v0_9_1 import methods as m
from tests.support.basic_peer import Content
from tests.support.basic_socket import BasicSocket
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

COUNT = 500
BOUND = [f"eu.k{number}" for number in range(8)]
"""Keys to which the queue of the far end is bound."""

UNBOUND = ["nowhere.a", "nowhere.b"]
"""Keys to which nothing is."""

BROKERS = """\
router: {{id: brokers, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - {{address: prices/#, unroutable: reject}}
  - {{address: source/#, distribution: multicast}}
  - address: "#"
"""

BRIDGE = """\
router: {{id: dc1, workers: 2, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{port}", protocol: {protocol}}}
  west: {{url: "amqp://guest:guest@127.0.0.1:{port}", protocol: {protocol}}}
routes:
  - address: source/#
    from: east/source/#
    to: west/prices/#
    unroutable: drop
"""

NEAR = """\
router: {{id: dc1, workers: 2, admin: off}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://guest:guest@127.0.0.1:{port}", protocol: amqp-0-9-1}}
  dc2: {{url: "amqp://127.0.0.1:{far}"}}
routes:
  - address: source/#
    from: east/source/#
    to: dc2/prices/#
"""

FAR = """\
router: {{id: dc2, workers: 2, admin: off}}
listeners: [{{bind: "127.0.0.1:{far}"}}]
containers:
  west: {{url: "amqp://guest:guest@127.0.0.1:{port}", protocol: amqp-0-9-1}}
routes:
  - address: prices/#
    to: west
"""

ATTACHED = '"link": "dc1:source/#<east/source/#"'


class Ends:
    """A publisher to the exchange of one end, and a queue that is bound to that of the other."""

    def __init__(self, port: int) -> None:
        self._publisher = BasicSocket(port).open(1)
        self._consumer = BasicSocket(port).open(1)
        queue = self._consumer.ask(m.QueueDeclare(exclusive=True)).queue
        for key in BOUND:
            self._consumer.ask(m.QueueBind(queue=queue, exchange="prices", routing_key=key))
        self._consumer.ask(m.BasicConsume(queue=queue, no_ack=True))

    def publish(self, keys: Iterable[str]) -> None:
        for number, key in enumerate(keys):
            self._publisher.publish(b"%d" % number, key, exchange="source")

    def take(self, count: int) -> list[tuple[str, str, int]]:
        """Returns exchange, key and number of the messages that arrive."""
        found: list[tuple[str, str, int]] = []
        while len(found) < count:
            one = self._consumer.take(120)
            assert isinstance(one, Content)
            assert isinstance(one.method, m.BasicDeliver)
            found.append((one.method.exchange, one.method.routing_key, int(one.body)))
        assert not self._consumer.rest(0.2)
        return found


def assert_each_key_in_order(found: list[tuple[str, str, int]], keys: list[str]) -> None:
    for key in BOUND:
        wanted = [number for number, each in enumerate(keys) if each == key]
        assert [number for _, each, number in found if each == key] == wanted
    assert {exchange for exchange, _, _ in found} == {"prices"}


def unroutable(admin: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    beginning = 'router_route_unroutable_total{route="source/#"} '
    return sum(float(line.removeprefix(beginning)) for line in lines if line.startswith(beginning))


@pytest.mark.parametrize("protocol", ["amqp-0-9-1", "amqp-0-9r1"])
def test_each_message_keeps_its_key_and_unbound_ones_are_counted(
    tmp_path: Path, protocol: str
) -> None:
    port, admin = free_port(), free_port()
    (tmp_path / "brokers").mkdir()
    every = BOUND + UNBOUND
    keys = [every[number % len(every)] for number in range(COUNT)]
    bound = sum(key in BOUND for key in keys)
    with running_router(BROKERS.format(port=port), tmp_path / "brokers"):
        ends = Ends(port)
        with running_router(
            BRIDGE.format(port=port, admin=admin, protocol=protocol), tmp_path
        ) as router:
            router.wait_for(ATTACHED)
            ends.publish(keys)
            assert_each_key_in_order(ends.take(bound), keys)
            deadline = time.monotonic() + 120
            while unroutable(admin) < COUNT - bound and time.monotonic() < deadline:
                time.sleep(0.1)
            assert unroutable(admin) == COUNT - bound


def test_exchange_and_key_are_kept_on_the_way_through_two_routers(tmp_path: Path) -> None:
    port, far = free_port(), free_port()
    for name in ("brokers", "dc2"):
        (tmp_path / name).mkdir()
    keys = [BOUND[number % len(BOUND)] for number in range(COUNT)]
    with running_router(BROKERS.format(port=port), tmp_path / "brokers"):
        ends = Ends(port)
        with (
            running_router(FAR.format(port=port, far=far), tmp_path / "dc2"),
            running_router(NEAR.format(port=port, far=far), tmp_path) as near,
        ):
            near.wait_for(ATTACHED)
            ends.publish(keys)
            assert_each_key_in_order(ends.take(COUNT), keys)
