"""Messages that are stored for receivers at another site, to which they go over the mesh.

A direct route has no store. A stored route whose container is the router itself leads to a direct
route, which reaches over the mesh: senders go on while the other site, or the line to it, is away.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState
from router.routes.route import Guarantee
from tests.support.chaos import Books, number_of, numbered, receiving, sending
from tests.support.cuttable import Cuttable, cuttable
from tests.support.mortal import MortalRouter
from tests.support.ports import free_port

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 240

NEAR = """
router: {{id: dc1, workers: {workers}, admin: off, state: {folder}/state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
mesh: {{links: {{dc2: {{host: "127.0.0.1:{line}"}}}}}}
containers: {{here: {{url: "amqp://127.0.0.1:{near}", resumes: true}}}}
routes:
  - address: telemetry.#
    to: here/dc2.telemetry.#
    guarantee: {guarantee}
    store: {{always: {always}}}
    dead_letter: local/dead
  - {{address: dc2.#, guarantee: {guarantee}}}
  - address: dead
"""

FAR = """
router: {{id: dc2, workers: 1, admin: off, state: {folder}/state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{far}"}}]
mesh: {{listen: "127.0.0.1:{mesh}", advertise: [dc2.#]}}
routes:
  - {{address: dc2.#, guarantee: {guarantee}}}
"""


@attrs.define(eq=False)
class TwoSites:
    """Two sites, with a line that may be cut; everybody receives at the far one.

    Attributes:
        order: the numbers of the messages as they came to the receiver.
    """

    guarantee: Guarantee
    line: Cuttable
    near: MortalRouter
    far: MortalRouter
    near_port: int
    far_port: int
    nursery: trio.Nursery
    books: Books = attrs.field(factory=Books)
    order: list[int] = attrs.field(factory=list)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        self.order.append(number_of(delivery))
        return self.books.take(delivery)

    async def send(self, first: int, last: int) -> None:
        """Returns when all of these messages have been accepted."""
        supply = numbered(self.books.count(iter(range(first, last))), 100)
        name = f"sender-{first}"
        await sending(name, "telemetry.a", self.near_port, supply, guarantee=self.guarantee).run()

    def receive(self) -> None:
        """Has somebody receive at the far site."""
        receiver = receiving(
            "receiver", "dc2.telemetry.a", self.far_port, self.take, guarantee=self.guarantee
        )
        self.nursery.start_soon(receiver.run)

    async def begin(self, *, passes: bool) -> None:
        """Has a receiver take 100 messages, and waits until others pass the store by, if so."""
        self.receive()
        await self.send(0, 100)
        await self.until_taken(100)
        while passes and not self.near.matching("store.passed"):
            await trio.sleep(0.02)

    async def until_taken(self, count: int) -> None:
        while len(self.books.taken) < count:
            await trio.sleep(0.02)

    async def until_stored(self) -> None:
        """Waits until messages pass the store by no longer."""
        while "store.passed" in (self.near.matching("store.passed", "store.used") or [""])[-1]:
            await trio.sleep(0.02)

    def audit(self) -> None:
        """Compares what came with the 12,000 that were sent; second copies may come late.

        The first two senders wait for what was under way to the site that was lost, and go on with
        others meanwhile. The later ones begin when those before have been accepted.
        """
        firsts = list(dict.fromkeys(self.order))
        for numbers in (range(8000), range(8000, 8500), range(8500, 12_000)):
            assert [each for each in firsts if each in numbers] == [*numbers]
        assert len(firsts) == 12_000
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            assert len(self.order) == 12_000

    async def go(self, fault: str) -> None:
        """Has the far site, or the line to it, go away."""
        self.line.refuse = True
        if fault == "kill":
            await self.far.kill()
        assert self.line.cut() <= 1

    async def come_back(self, fault: str) -> None:
        """Has it come back."""
        if fault == "kill":
            await self.far.start(self.nursery)
        self.line.refuse = False


@asynccontextmanager
async def two_sites(
    folder: Path, guarantee: Guarantee, *, always: bool, workers: int = 1
) -> AsyncIterator[TwoSites]:
    """Runs both."""
    near, far, mesh = free_port(), free_port(), free_port()
    async with cuttable(mesh) as line, trio.open_nursery() as nursery:
        routers = []
        for name, text in (("dc1", NEAR), ("dc2", FAR)):
            (folder / name).mkdir()
            config = folder / name / "router.yaml"
            config.write_text(
                text.format(
                    folder=folder / name,
                    near=near,
                    far=far,
                    mesh=mesh,
                    line=line.port,
                    guarantee=guarantee.value,
                    always=str(always).lower(),
                    workers=workers,
                )
            )
            routers.append(MortalRouter(config))
        async with trio.open_nursery() as starting:
            for router in routers:
                starting.start_soon(router.start, nursery)
        try:
            yield TwoSites(guarantee, line, routers[0], routers[1], near, far, nursery)
        finally:
            with trio.CancelScope(shield=True):
                codes = [await router.end() for router in routers]
        nursery.cancel_scope.cancel()
    assert codes == [0, 0]


@pytest.mark.parametrize(
    ("fault", "guarantee", "always"),
    [
        ("kill", Guarantee.AT_LEAST_ONCE, True),
        ("cut", Guarantee.AT_LEAST_ONCE, False),
        ("kill", Guarantee.EXACTLY_ONCE, False),
        ("cut", Guarantee.EXACTLY_ONCE, True),
    ],
)
async def test_senders_go_on_while_a_site_of_the_mesh_is_away_and_its_receivers_get_all_in_order(
    tmp_path: Path, fault: str, guarantee: Guarantee, always: bool
) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with two_sites(tmp_path, guarantee, always=always) as sites:
            await sites.begin(passes=not always)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sites.send, 100, 8000)
                await sites.until_taken(600)
                await sites.go(fault)
                nursery.start_soon(sites.send, 8000, 8500)
                await sites.until_stored()
                await sites.send(8500, 9000)
                assert len(sites.books.taken) < 8000
                nursery.start_soon(sites.send, 9000, 12_000)
                await sites.come_back(fault)
            await sites.until_taken(12_000)
            await trio.sleep(0.5)  # there may be more than there should be
    sites.audit()


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_is_stored_for_a_site_of_the_mesh_outlives_the_router_that_stores_it(
    tmp_path: Path, workers: int
) -> None:
    once = Guarantee.EXACTLY_ONCE
    with trio.fail_after(PATIENCE_SECONDS):
        async with two_sites(tmp_path, once, always=False, workers=workers) as sites:
            await sites.begin(passes=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sites.send, 100, 8000)
                await sites.until_taken(600)
                await sites.go("cut")
                nursery.start_soon(sites.send, 8000, 8500)
                await sites.until_stored()
                await sites.send(8500, 9000)
                assert len(sites.books.taken) < 8000
                await sites.near.kill()
                await sites.near.start(sites.nursery)
                nursery.start_soon(sites.send, 9000, 12_000)
                await sites.come_back("cut")
            await sites.until_taken(12_000)
            await trio.sleep(0.5)  # there may be more than there should be
    sites.audit()


async def test_what_nobody_at_any_site_receives_yet_is_stored(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with two_sites(tmp_path, Guarantee.EXACTLY_ONCE, always=False) as sites:
            await sites.send(0, 500)
            assert not sites.order
            sites.receive()
            await sites.send(500, 1000)
            await sites.until_taken(1000)
            await trio.sleep(0.5)  # there may be more than there should be
    assert sites.order == [*range(1000)]
