"""`router check --connect` at RabbitMQ: it finds, and makes and takes nothing."""

import base64
import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from router.cli.main import main
from tests.support import rabbitmq

pytestmark = [pytest.mark.interop, pytest.mark.long]


@pytest.fixture(scope="module")
def node(rabbit_node: rabbitmq.RabbitNode) -> rabbitmq.RabbitNode:
    return rabbit_node


def ask(node: rabbitmq.RabbitNode, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", node.management_port, timeout=30)
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection.request(method, f"/api/{path}", None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    octets = answer.read()
    assert answer.status < 300, octets
    return json.loads(octets) if octets else None


def names(node: rabbitmq.RabbitNode) -> set[str]:
    return {each["name"] for each in ask(node, "GET", "queues")}


def check(folder: Path, text: str) -> Result:
    file = folder / "router.yaml"
    file.write_text(text)
    return CliRunner().invoke(main, ["check", "--connect", str(file)])


@pytest.fixture
def queue(node: rabbitmq.RabbitNode) -> str:
    name = "check-connect"
    ask(node, "PUT", f"queues/%2f/{name}", {"durable": True})
    published = {
        "properties": {},
        "routing_key": name,
        "payload": "x",
        "payload_encoding": "string",
    }
    ask(node, "POST", "exchanges/%2f/amq.default/publish", published)
    return name


def test_queues_and_exchanges_are_found_and_nothing_is_made_or_taken(
    tmp_path: Path, node: rabbitmq.RabbitNode, queue: str
) -> None:
    before = names(node)
    url = f"amqp://guest:guest@127.0.0.1:{node.port}"
    result = check(
        tmp_path,
        f"""\
containers:
  basic: {{url: "{url}", protocol: amqp-0-9-1}}
  one: {{url: "{url}"}}
routes:
  - {{address: a, to: [basic/{queue}, basic/amq.topic/key]}}
  - {{address: b, from: basic/{queue}}}
  - {{address: c, from: basic/amq.topic/key}}
  - {{address: d, to: basic/unmade, declare: durable}}
  - {{address: e, from: basic/unmade}}
  - {{address: f, to: basic/unmade-exchange/key}}
  - {{address: g, from: one/{queue}}}
  - {{address: h, from: one/unmade}}
  - {{address: i, from: one//amq/queue/{queue}}}
""",
    )
    assert result.exit_code == 1
    told = result.output
    assert told.count("open over amqp-0-9-1 as guest; it is ") == 1
    for found in (
        f"route a: to basic/{queue}: found '{queue}'",
        "route a: to basic/amq.topic/key: found 'amq.topic/key'",
        f"route b: from basic/{queue}: found '{queue}'",
        "route c: from basic/amq.topic/key: found",
        "route d: to basic/unmade: 'unmade' is not there yet; the route declares it",
        "route e: from basic/unmade: amqp:not-found: 404 NOT_FOUND - no queue 'unmade'",
        "route f: to basic/unmade-exchange/key: amqp:not-found: 404",
        f"write /amq/queue/{queue} in the route",
        "route h: from one/unmade: amqp:not-found",
        f"route i: from one//amq/queue/{queue}: found",
        "2 containers dialed, 4 problems",
    ):
        assert found in told
    assert names(node) == before
    # what is counted is late by the interval at which nodes gather it, so a message is taken
    got = ask(
        node,
        "POST",
        f"queues/%2f/{queue}/get",
        {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"},
    )
    assert [(each["payload"], each["redelivered"]) for each in got] == [("x", False)]


def test_the_port_of_its_management_is_told(tmp_path: Path, node: rabbitmq.RabbitNode) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{node.management_port}"
    result = check(
        tmp_path,
        f"""\
containers:
  one: {{url: "{url}"}}
  basic: {{url: "{url}", protocol: amqp-0-9-1}}
""",
    )
    assert result.exit_code == 1
    assert result.output.count("the peer speaks HTTP") == 2
    assert result.output.count("write the port of AMQP, usually 5672") == 2
