"""``dead_letter: local/ADDRESS``: dead letters wait, and are received, at the router itself."""

from pathlib import Path

import pytest
import trio

from tests.support.chaos import Books, numbered, receiving, sending
from tests.support.ports import free_port
from tests.support.running import router_beside

PATIENCE_SECONDS = 120

STORED = """
router: {{id: near, workers: {workers}, admin: off, state: {folder}/state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers: {{cloud: {{url: "amqp://127.0.0.1:{far}"}}}}
routes:
  - address: telemetry.#
    to: cloud
    store: {{age: 1s}}
    dead_letter: local/dead
  - address: dead
policy: {{rules: [{{name: everybody, send: [telemetry.#], receive: [dead]}}]}}
"""


async def until_taken(books: Books, count: int) -> None:
    while len(books.taken) < count:
        await trio.sleep(0.02)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
async def test_stored_messages_that_are_too_old_are_received_at_the_router(
    tmp_path: Path, workers: int
) -> None:
    near, dead, sent = free_port(), Books(), Books()
    text = STORED.format(workers=workers, folder=tmp_path, near=near, far=free_port())
    with trio.fail_after(PATIENCE_SECONDS):
        async with router_beside(text, tmp_path), trio.open_nursery() as nursery:
            supply = numbered(sent.count(iter(range(200))), 100)
            await sending("sender", "telemetry.a", near, supply).run()
            await trio.sleep(2)  # nobody receives them meanwhile
            for number in range(2):
                receiver = receiving(f"receiver {number}", "dead", near, dead.take)
                nursery.start_soon(receiver.run)
            await until_taken(dead, 200)
            nursery.cancel_scope.cancel()
    assert set(dead.taken) == set(range(200))
    assert not dead.duplicated
