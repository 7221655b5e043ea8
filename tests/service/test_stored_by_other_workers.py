"""A stored exactly-once route whose router is killed, and comes back with other workers each time.

Senders and the receiver resume their links; the target is another router. What is stored and what
is in doubt at the target moves with its address, whatever the route is called by then.
"""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState
from tests.support.chaos import Books, number_of, numbered, receiving, sending
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port

pytestmark = pytest.mark.long

NEAR = """
router: {{id: near, workers: {workers}, admin: off, homes: {homes}, state: {folder}/near-state,
  log_format: json}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers: {{cloud: {{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s, resumes: true}}}}
routes:
  - {{name: {name}, address: telemetry.#, to: cloud, guarantee: exactly-once{store}}}
"""
STORE = ", store: {always: false}, dead_letter: cloud/dead"

FAR = """
router: {{id: far, workers: 1, admin: off, state: {folder}/far-state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{far}"}}]
routes:
  - {{address: telemetry.#, guarantee: exactly-once}}
  - {{address: dead}}
"""

SENDERS = 4
EACH = 800
STEP = 10_000
PATIENCE_SECONDS = 300


@attrs.define(eq=False)
class Places:
    """The two routers."""

    folder: Path
    homes: str
    near: int = attrs.field(factory=free_port)
    far: int = attrs.field(factory=free_port)

    def write(self, which: str, text: str, **fields: object) -> Path:
        """Writes the file of one of them, and returns its path."""
        path = self.folder / f"{which}.yaml"
        path.write_text(
            text.format(
                folder=self.folder, near=self.near, far=self.far, homes=self.homes, **fields
            )
        )
        return path


@attrs.define(eq=False)
class Phase:
    """One life of the router.

    Attributes:
        workers: how many it has.
        name: of the route.
        store: of the route.
        has_target: the target is there.
        share: how much has been sent, or, if the target is there, taken, when it ends.
    """

    workers: int
    name: str
    store: str
    has_target: bool
    share: float


def phases(name: str, store: str) -> list[Phase]:
    """Returns lives of which the first one has the route as it was."""
    return [
        Phase(1, "telemetry", STORE, True, 0.1),
        Phase(2, "telemetry", STORE, False, 0.5),
        Phase(4, name, store, True, 0.4),
        Phase(1, name, store, True, 1.0),
    ]


async def until_steady(progress: Books, count: int) -> None:
    """Waits until so many messages were sent, or senders wait."""
    before = -1
    while len(progress.sent) < count and len(progress.sent) != before:
        before = len(progress.sent)
        await trio.sleep(4.0)


@pytest.mark.parametrize(
    ("name", "store", "homes"),
    [
        ("telemetry", STORE, "all"),
        ("renamed", STORE, "first"),
        ("telemetry", "", "first"),
        ("renamed", "", "all"),
    ],
    ids=["as-before", "renamed", "stores-no-more", "renamed-and-stores-no-more"],
)
async def test_nothing_is_lost_doubled_or_reordered_though_the_number_of_workers_changes(
    tmp_path: Path, name: str, store: str, homes: str
) -> None:
    places, books, order = Places(tmp_path, homes), Books(), list[int]()

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    def numbers(sender: int) -> Iterator[int]:
        return books.count(iter(range(sender * STEP, sender * STEP + EACH)))

    far = MortalRouter(places.write("far", FAR))
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await far.start(nursery)
            nursery.start_soon(receiving("receiver", "telemetry.a", places.far, take).run)
            for sender in range(SENDERS):
                supply = numbered(numbers(sender), 100)
                client = sending(f"s{sender}", "telemetry.a", places.near, supply, window=50)
                nursery.start_soon(client.run)
            for phase in phases(name, store):
                if not phase.has_target:
                    await far.kill()
                path = places.write(
                    "near", NEAR, workers=phase.workers, name=phase.name, store=phase.store
                )
                near = MortalRouter(path)
                await near.start(nursery)
                goal = int(phase.share * SENDERS * EACH)
                if phase.has_target:
                    while len(order) < goal:
                        await trio.sleep(0.02)
                else:
                    await until_steady(books, goal)
                if phase.share < 1:
                    await near.kill()
                if not phase.has_target:
                    await far.start(nursery)
            await trio.sleep(2.0)
            await near.kill()
            await far.kill()
            nursery.cancel_scope.cancel()
    assert not books.duplicated
    assert not books.lost
    for sender in range(SENDERS):
        mine = [number for number in order if number // STEP == sender]
        assert mine == sorted(mine)
