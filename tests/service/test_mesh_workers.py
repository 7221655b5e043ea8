"""A mesh of three routers with two workers each, as processes, each of which is killed."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from router.net.client.report import Report
from router.net.client.sender import SendingLink
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import Steady, kill, processes

pytestmark = pytest.mark.long

FILE = """
router: {{id: {name}, workers: 2, admin: off}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
mesh:
  listen: 127.0.0.1:{mesh}
  links: {{{links}}}
  advertise: ["{name}.#"]
routes:
  - {{address: "prices.#", distribution: multicast}}
  - {{address: "#"}}
"""

NAMES = ("dc1", "dc2", "dc3")
MESSAGES = 6_000
SECONDS = 120.0


@attrs.frozen
class Site:
    """One of the routers."""

    router: RunningRouter
    port: int

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def running_line(folder: Path) -> Iterator[dict[str, Site]]:
    """Runs three routers in a line; each dials the next one."""
    ports = {name: free_port() for name in NAMES}
    with contextlib.ExitStack() as stack:
        sites: dict[str, Site] = {}
        for number, name in enumerate(NAMES):
            (folder / name).mkdir()
            following = NAMES[number + 1 : number + 2]
            port = free_port()
            text = FILE.format(
                name=name,
                port=port,
                mesh=ports[name],
                links=", ".join(f'{n}: {{host: "127.0.0.1:{ports[n]}"}}' for n in following),
            )
            router = stack.enter_context(running_router(text, folder / name))
            sites[name] = Site(router, port)
        for one, other in (("dc1", "dc2"), ("dc2", "dc3")):
            up = f'"container": "{other}", "event": "mesh.link_up"'
            sites[one].router.wait_for(up, SECONDS)
        yield sites


def report_of(sender: Steady) -> Report:
    assert isinstance(sender.machine, SendingLink)
    return sender.machine.report


def settled(senders: list[Steady]) -> int:
    return sum(report_of(each).settled for each in senders)


async def both_workers_of(site: Site) -> None:
    with trio.fail_after(SECONDS):
        while len(processes(site.router)) < 2:
            await trio.sleep(0.05)


async def test_clients_of_all_workers_are_served_while_each_worker_is_killed(
    tmp_path: Path,
) -> None:
    running = running_line(tmp_path)
    sites = await trio.to_thread.run_sync(running.__enter__)
    try:
        there = sites["dc3"].address
        receivers = [Steady.receiver(there, f"r{n}", "dc3.a") for n in range(4)]
        senders = [
            Steady.sender(sites["dc1"].address, f"s{n}", "dc3.a", MESSAGES) for n in range(4)
        ]
        async with trio.open_nursery() as nursery:
            for each in receivers:
                nursery.start_soon(each.run)
            async with trio.open_nursery() as sending:
                for each in senders:
                    sending.start_soon(each.run)
                for turn, (name, number) in enumerate(itertools.product(NAMES, (1, 2)), 1):
                    await both_workers_of(sites[name])
                    with trio.fail_after(SECONDS):
                        while settled(senders) < turn * len(senders) * MESSAGES // 8:
                            await trio.sleep(0.02)
                    kill(processes(sites[name].router)[number])
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)
    assert settled(senders) == len(senders) * MESSAGES
    outcomes = sum((report_of(each).outcomes for each in senders), Counter[str]())
    assert outcomes["rejected"] == 0
    accepted, lost = outcomes["accepted"], outcomes["modified"] + outcomes["released"]
    arrived = sum((each.taken for each in receivers), Counter[int]())
    assert len(arrived) == MESSAGES  # the senders number their messages alike
    assert arrived.total() >= accepted
    assert accepted + lost == len(senders) * MESSAGES
