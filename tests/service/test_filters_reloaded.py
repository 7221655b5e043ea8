"""A filter that changes at a reload: the link is attached anew, and nothing is lost or doubled."""

import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import ACCEPTED, DeliveryState
from tests.support.chaos import receiving
from tests.support.container import Container, filter_named
from tests.support.ports import free_port
from tests.support.running import router_beside

CONFIG = """\
router: {{admin: off, workers: {workers}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers: {{hub: {{url: "amqp://127.0.0.1:{hub}", retry_seconds: 50ms}}}}
routes:
  - address: telemetry
    from: {{container: hub, address: q, filter: {{selector: "region = '{region}'"}}}}
"""

REGIONS = ("eu", "us", "eu", "asia")
COUNT = 500
"""Messages that the container has when the filter changes, each time."""

SELECTOR = "selector"


def has_attached(hub: Container, count: int) -> bool:
    return len(hub.attached) >= count


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_what_was_under_way_when_a_filter_changed_arrives_once(
    tmp_path: Path, workers: int
) -> None:
    hub, port, read = Container(redelivers=True), free_port(), Counter[str]()

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        (text,) = re.findall(rb"reading [0-9]+!", bytes(delivery.payload))
        read[text.decode()] += 1
        return ACCEPTED

    def config(region: str) -> str:
        return CONFIG.format(workers=workers, port=port, hub=hub.port, region=region)

    texts = [f"reading {number}!" for number in range(len(REGIONS) * COUNT)]
    with trio.fail_after(120):
        async with (
            hub.listening(),
            router_beside(config(REGIONS[0]), tmp_path) as router,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(receiving("reader", "telemetry", port, take, window=10).run)
            for number, region in enumerate(REGIONS):
                if number:
                    (tmp_path / "router.yaml").write_text(config(region))
                    router.process.send_signal(signal.SIGHUP)
                await hub.until(partial(has_attached, count=number + 1))
                assert region in str(filter_named(hub.attached[-1], SELECTOR))
                hub.messages["q"] += texts[number * COUNT : (number + 1) * COUNT]
                while len(read) < number * COUNT + COUNT // 2:
                    await trio.sleep(0.005)
            while len(read) < len(texts):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert {*read} == {*texts}
    assert set(read.values()) == {1}
    assert len(hub.attached) == len(REGIONS)
    assert len(hub.detached) >= len(REGIONS) - 1
