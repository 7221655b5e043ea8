"""Two routers that name each other, as processes: receivers on one side, the other, both, later."""

import contextlib
import re
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest
import trio

from tests.support.clients import Receiver, Sender, receiving, sending
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

FILE = """
router: {{id: {name}, workers: {workers}, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers:
  {other}: {{url: "amqp://127.0.0.1:{other_port}", is_router: true, retry_limit_seconds: 1s}}
routes:
{routes}
policy: {{rules: [{{name: all, send: ["#"], receive: ["#"], is_router: {is_trusted}}}]}}
"""
COUNT = 400
SECONDS = 60

FORMS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "each has its own": {
        "dc1": ["{address: dc1.#}", "{address: dc2.#, to: dc2}"],
        "dc2": ["{address: dc2.#}", "{address: dc1.#, to: dc1}"],
    },
    "each names the other": {
        "dc1": ["{address: dc2.#, to: dc2}"],
        "dc2": ["{address: dc2.#, to: dc1}"],
    },
    "each pulls from the other": {
        "dc1": ["{address: dc2.x, from: dc2}"],
        "dc2": ["{address: dc2.x, from: dc1}"],
    },
}
MULTICAST: Mapping[str, Sequence[str]] = {
    "dc1": ["{address: dc2.#, to: dc2, distribution: multicast}"],
    "dc2": ["{address: dc2.#, to: dc1, distribution: multicast}"],
}
CONNECTIONS = 3
"""From a site's clients; its workers are handed them in turn, so none of two is left out."""


@attrs.frozen
class Site:
    """One of the routers."""

    router: RunningRouter
    port: int
    admin: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self, outcome: str) -> int:
        """How many deliveries ended so at its routes, as its metrics say."""
        return self._sum(rf'^router_\w*{{[^}}]*outcome="{outcome}"[^}}]*}} (\d+)')

    def credit(self) -> int:
        """How many deliveries its receivers would take now."""
        return self._sum(r'^router_route_credit{[^}]*direction="outgoing"[^}]*} (\d+)')

    def _sum(self, pattern: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics") as answer:
            return sum(map(int, re.findall(pattern, answer.read().decode(), re.MULTILINE)))


@contextlib.contextmanager
def sites(
    folder: Path,
    routes: Mapping[str, Sequence[str]],
    workers: int,
    is_trusted: bool,
    *,
    early: Sequence[str] = (),
) -> Iterator[dict[str, Site]]:
    """Both routers, when each has dialed the other.

    Args:
        folder: for their files.
        routes: of each.
        workers: how many each has.
        is_trusted: each takes the other for a router of ours.
        early: routers to which somebody connects before the other one does, whom another worker
            gets then.
    """
    ports = {name: free_port() for name in ("dc1", "dc2")}
    with contextlib.ExitStack() as stack:
        found = {}
        for name, other in (("dc1", "dc2"), ("dc2", "dc1")):
            text = FILE.format(
                name=name,
                workers=workers,
                admin=(admin := free_port()),
                port=ports[name],
                other=other,
                other_port=ports[other],
                routes="\n".join(f"  - {each}" for each in routes[name]),
                is_trusted=str(is_trusted).lower(),
            )
            (folder / name).mkdir()
            router = stack.enter_context(running_router(text, folder / name))
            found[name] = Site(router, ports[name], admin)
            if name in early:
                stack.enter_context(socket.create_connection(("127.0.0.1", ports[name])))
        for name, other in (("dc1", "dc2"), ("dc2", "dc1")):
            found[name].router.wait_for(f'"address": "127.0.0.1:{ports[other]}", "protocol"')
        yield found


async def settle(
    senders: Sequence[Sender], receivers: Sequence[Receiver], count: int, sent: int = COUNT
) -> None:
    with trio.move_on_after(SECONDS):
        while sum(len(each.bodies) for each in receivers) < count or any(
            each.outcomes.total() < sent for each in senders
        ):
            await trio.sleep(0.05)


async def without_receivers(found: Mapping[str, Site]) -> None:
    """Waits until each site knows that no receiver is left, here or there."""
    with trio.fail_after(SECONDS):
        while any(site.credit() for site in found.values()):
            await trio.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize(("workers", "is_trusted"), [(1, True), (2, False)])
@pytest.mark.parametrize("form", FORMS)
async def test_messages_come_once_on_this_side_the_other_both_and_later(
    tmp_path: Path, form: str, workers: int, is_trusted: bool
) -> None:
    with sites(tmp_path, FORMS[form], workers, is_trusted) as found:
        for number, places in enumerate((["dc1"], ["dc2"], ["dc1", "dc2"])):
            bodies = [b"%d %d" % (number, each) for each in range(COUNT)]
            async with contextlib.AsyncExitStack() as stack:
                receivers = [
                    await stack.enter_async_context(
                        receiving(found[place].address, "dc2.x", window=50)
                    )
                    for place in places
                ]
                source = await stack.enter_async_context(
                    sending(found["dc1"].address, "dc2.x", bodies)
                )
                await settle([source], receivers, COUNT)
                got = Counter(body for each in receivers for body in each.bodies)
                assert source.outcomes == {"Accepted": COUNT}
                assert got == Counter(bodies), places
        await without_receivers(found)
        late = [b"late %d" % each for each in range(COUNT)]
        async with sending(found["dc1"].address, "dc2.x", late) as source:
            await trio.sleep(1)
            assert not source.outcomes
            async with receiving(found["dc2"].address, "dc2.x", window=50) as sink:
                await settle([source], [sink], COUNT)
                assert source.outcomes == {"Accepted": COUNT}
                assert Counter(sink.bodies) == Counter(late)
        for site in found.values():
            assert site.count("accepted") > 0
            assert site.count("rejected") == 0
            assert site.count("released") <= COUNT // 10  # what was under way when receivers left
            assert not [line for line in site.router.log if "Traceback" in line]


@pytest.mark.parametrize(
    ("places", "workers", "early"),
    [
        (("dc1", "dc2"), 1, ()),
        (("dc1", "dc2"), 2, ()),
        (("dc1", "dc2"), 2, ("dc1",)),
        (("dc1", "dc2"), 2, ("dc2",)),
        (("dc1",), 2, ("dc1", "dc2")),
    ],
)
async def test_a_multicast_comes_once_to_every_receiver_at_any_worker(
    tmp_path: Path, places: Sequence[str], workers: int, early: Sequence[str]
) -> None:
    with sites(tmp_path, MULTICAST, workers, is_trusted=True, early=early) as found:
        async with contextlib.AsyncExitStack() as stack:
            receivers = [
                await stack.enter_async_context(receiving(found[place].address, "dc2.x", window=50))
                for place in list(places) * CONNECTIONS
            ]
            await trio.sleep(1)  # until the other router knows of them all
            sent = Counter[bytes]()
            for number in range(CONNECTIONS):
                bodies = [b"%d %d" % (number, each) for each in range(COUNT // 4)]
                sent.update(bodies)
                async with sending(found["dc1"].address, "dc2.x", bodies) as source:
                    count = len(receivers) * sent.total()
                    await settle([source], receivers, count, len(bodies))
                    assert source.outcomes == {"Accepted": len(bodies)}
            assert [Counter(each.bodies) for each in receivers] == [sent] * len(receivers)
