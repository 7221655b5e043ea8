"""An edge as a process beside its application: over TLS, with two hubs, one of which is killed."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.net.client.sender import SendingLink
from tests.support import commands
from tests.support.mesh_certificates import Authority
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import Steady

pytestmark = pytest.mark.long

SITE = """
router: {{id: {name}, workers: {workers}, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
mesh:
  listen: 127.0.0.1:{mesh}
  links: {{{links}}}
  tls: {{cert: {pem}, key: {key}, ca: {ca}}}
  advertise: ["{name}.#"]
routes: [{{address: "#"}}]
"""

APP = """
router: {{id: app, workers: 1, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
mesh:
  edge: ["localhost:{one}", "localhost:{two}"]
  tls: {{cert: {pem}, key: {key}, ca: {ca}}}
routes: [{{address: "#"}}]
"""

LINKS = {"hub1": ("hub2", "far"), "hub2": ("far",), "far": ()}
MESSAGES = 4_000
SECONDS = 120.0


@attrs.frozen
class Place:
    """One of the routers."""

    router: RunningRouter
    address: str
    admin: str


@contextlib.contextmanager
def running_town(folder: Path, workers: int) -> Iterator[dict[str, Place]]:
    """Runs two hubs, a site behind them, and an edge of both."""
    authority = Authority(folder)
    ports = {name: free_port() for name in LINKS}
    with contextlib.ExitStack() as stack:
        places: dict[str, Place] = {}
        for name in (*LINKS, "app"):
            (folder / name).mkdir()
            pem = authority.issue(name, name, "localhost")
            port, admin = free_port(), free_port()
            known = {"pem": pem, "key": pem.with_suffix(".key"), "ca": authority.pem}
            if name == "app":
                text = APP.format(
                    port=port, admin=admin, one=ports["hub1"], two=ports["hub2"], **known
                )
            else:
                links = ", ".join(
                    f'{other}: {{host: "127.0.0.1:{ports[other]}"}}' for other in LINKS[name]
                )
                text = SITE.format(
                    name=name,
                    workers=workers,
                    port=port,
                    admin=admin,
                    mesh=ports[name],
                    links=links,
                    **known,
                )
            router = stack.enter_context(running_router(text, folder / name))
            places[name] = Place(router, f"127.0.0.1:{port}", f"127.0.0.1:{admin}")
        yield places


async def shown(place: Place, *words: str) -> str:
    """Gives what ``router mesh`` says, once it says some words."""
    with trio.fail_after(SECONDS):
        while True:
            ask = partial(commands.run, "mesh", "--admin", place.admin)
            found = (await trio.to_thread.run_sync(ask)).stdout
            if all(word in found for word in words):
                return found
            await trio.sleep(0.1)


def settled(client: Steady) -> int:
    assert isinstance(client.machine, SendingLink)
    return client.machine.report.settled


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_edge_uses_one_hub_and_the_other_when_that_is_killed(
    tmp_path: Path, workers: int
) -> None:
    running = running_town(tmp_path, workers)
    places = await trio.to_thread.run_sync(running.__enter__)
    try:
        await shown(places["app"], "an edge", "up, in use", "up, in reserve")
        await shown(places["hub1"], "edge app  up, in use", "site far  over far")
        await shown(places["hub2"], "edge app  up, in reserve")
        far, app = places["far"].address, places["app"].address
        receivers = [
            Steady.receiver(far, "r-far", "far.orders"),
            Steady.receiver(app, "r-app", "replies"),
        ]
        senders = [
            Steady.sender(app, "s-app", "far.orders", MESSAGES),
            Steady.sender(far, "s-far", "replies", MESSAGES),
        ]
        async with trio.open_nursery() as nursery:
            for each in receivers:
                nursery.start_soon(each.run)
            async with trio.open_nursery() as sending:
                for each in senders:
                    sending.start_soon(each.run)
                with trio.fail_after(SECONDS):
                    while min(map(settled, senders)) < MESSAGES // 4:
                        await trio.sleep(0.02)
                places["hub1"].router.kill()
            nursery.cancel_scope.cancel()
        found = await shown(places["app"], "down", "up, in use")
        assert found.index("down") < found.index("up, in use")
        for sender, receiver in zip(senders, receivers, strict=True):
            assert isinstance(sender.machine, SendingLink)
            outcomes = sender.machine.report.outcomes
            returned = outcomes["modified"] + outcomes["released"]
            assert outcomes["rejected"] == 0
            assert outcomes["accepted"] + returned == MESSAGES
            assert len(receiver.taken) >= outcomes["accepted"]
            assert len(receiver.taken) >= MESSAGES - returned
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)
