"""The management node of a running router, asked by proton."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.interop

SECONDS = 60
FILE = """
router: {{id: managed, workers: {workers}, admin: off, management: true}}
listeners:
  - bind: 127.0.0.1:{port}
    sasl: {{mechanisms: [PLAIN], users: {{boss: pw, app: pw}}}}
routes:
  - address: orders
policy:
  rules:
    - {{name: bosses, users: [boss], send: [$management], receive: ["managed.temp.#", "#"]}}
    - {{name: apps, users: [app], send: [orders], receive: ["#"]}}
"""


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    peers.need_python("proton")
    number = free_port()
    with running_router(FILE.format(workers=request.param, port=number), tmp_path) as router:
        router.wait_for('"container": "$management"')
        yield number


def ask(port: int, body: Any = None, **asked: Any) -> Any:
    from proton import Message
    from proton.utils import BlockingConnection, LinkDetached, SyncRequestResponse

    give_up_at = time.monotonic() + SECONDS
    while True:
        connection = BlockingConnection(f"amqp://boss:pw@127.0.0.1:{port}", timeout=SECONDS)
        try:
            client = SyncRequestResponse(connection, "$management")
            return client.call(Message(properties=asked, body=body))
        except LinkDetached:  # a worker that has not heard yet who answers
            assert time.monotonic() < give_up_at
        finally:
            connection.close()


def test_proton_queries_and_reads(port: int) -> None:
    answer = ask(
        port,
        {"attributeNames": ["name", "state"]},
        operation="QUERY",
        type="org.amqp.management",
        entityType="router.route",
    )
    assert answer.properties["statusCode"] == 200
    assert [row[0] for row in answer.body["results"]][:2] == ["orders", "$management"]
    answer = ask(port, operation="READ", type="router.router", name="managed")
    assert answer.properties["statusCode"] == 200
    assert answer.body["is_ready"] is True
    for _ in range(40):  # whichever worker takes the connection, and more than the agent's credit
        answer = ask(port, operation="READ", type="router.queue", name="x")
        assert answer.properties["statusCode"] == 400


def test_policy_says_who_may_ask(port: int) -> None:
    from proton import ProtonException
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"amqp://app:pw@127.0.0.1:{port}", timeout=SECONDS)
    with pytest.raises(ProtonException, match="apps"):
        connection.create_sender("$management")
    connection.close()
