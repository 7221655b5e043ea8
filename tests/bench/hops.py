"""What a hop between the sites of a mesh costs.

::

    python -m tests.bench.hops [seconds] [runs]

A *hop* is a passage from one router to the next over a link of the mesh. Four routers stand in a
line, with one worker each, on one machine and without TLS::

    senders ── a ── b ── c ── d

Senders are always connected to ``a``; receivers to ``a``, ``b``, ``c`` or ``d``, so messages of 100
octets pass one router and no hop, two routers and one hop, and so on up to four routers and three
hops. Only the routers on the way have work, and each is asked for the octets that it has received:
one that a message should have passed and did not, or the other way round, is an error.

Processor time is that of each router for each message, its journal's included. The router that has
both ends costs least (``alone``); what all routers take beyond that is the hops', and ``hop_us`` is
that by the number of hops. ``growth`` is ``hop_us`` at three hops by that at one: 1 if each further
hop costs what the first one does. The rates are measured twice: with all routers on one core, where
they share it and the rate says what all of them cost, and with no process pinned.
"""

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.bench.listed import ADMIN, listed
from tests.bench.measure import Conditions, Figures
from tests.bench.programs import congestion
from tests.bench.workers import children, cpu_seconds, loaded, options
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

SITES: Final = ("a", "b", "c", "d")
PAIRS: Final = 10
OCTETS: Final = 100
WINDOWS: Final = {"at-least-once": 256, "exactly-once": 410}
"""Unsettled deliveries of each sender by guarantee, as in the cases ``links 10`` and
``exactly-once, 10 links``."""

_serial = itertools.count()

SETTLING: Final = {"at-least-once": "unsettled", "exactly-once": "second"}


def configuration(site: str, ports: Mapping[str, int]) -> str:
    """Returns the file of one router of the line; each dials the next one."""
    following = SITES[SITES.index(site) + 1 :][:1]
    links = "".join(f'{each}: {{host: "127.0.0.1:{ports[each]}"}}' for each in following)
    return (
        f"router: {{id: {site}, workers: 1, admin: {ADMIN}, drain_seconds: 1s}}\n"
        'listeners: [{bind: "127.0.0.1:0"}]\nlimits: {link_credit: 2000}\n'
        f"mesh:\n  listen: 127.0.0.1:{ports[site]}\n  links: {{{links}}}\n"
        f"  advertise: [{site}.#]\n"
        'routes:\n  - address: "*.exactly-once.#"\n    guarantee: exactly-once\n'
        '  - address: "#"\n'
    )


@contextlib.contextmanager
def line() -> Iterator[list[RunningRouter]]:
    """Runs the routers, each in a directory of its own."""
    ports = {site: free_port() for site in SITES}
    environment = {"ROUTER_TCP_CONGESTION": congestion()}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        routers: list[RunningRouter] = []
        for site in reversed(SITES):  # whoever is dialed is there
            own = Path(folder) / site
            own.mkdir()
            running = running_router(configuration(site, ports), own, environment)
            routers.insert(0, stack.enter_context(running))
        yield routers


def family(router: RunningRouter) -> list[int]:
    """Returns the processes of a router."""
    return [router.process.pid, *children(router.process.pid)]


def pin(router: RunningRouter, core: int | None) -> None:
    """Has all threads of a router on a core; None: on any."""
    cores = set(range(os.cpu_count() or 1)) if core is None else {core}
    for process in family(router):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(thread.name), cores)


@attrs.frozen
class Passed:
    """What messages cost that have passed so many hops.

    Attributes:
        rate: messages per second.
        each_us: processor time of each router on the way for a message, in microseconds.
    """

    rate: float
    each_us: tuple[float, ...]

    @property
    def all_us(self) -> float:
        """Processor time of all routers on the way."""
        return sum(self.each_us)


def received_octets(router: RunningRouter) -> dict[tuple[int, int], int]:
    """Returns what each connection of a router has brought."""
    return {
        (each["worker"], each["connection"]): each["octets_in"]
        for each in listed(router, "connections")
    }


def astray(grown: Sequence[int], hops: int, octets: int) -> list[str]:
    """Returns the routers that messages have passed and should not have, or the other way round.

    Args:
        grown: octets that each router of the line has received.
        hops: so many from the first.
        octets: of all messages.
    """
    found = []
    for number, (site, each) in enumerate(zip(SITES, grown, strict=True)):
        if number <= hops and each < octets:
            found.append(f"{site} has received {each:,} octets of {octets:,}")
        elif number > hops and each > octets / 10:
            found.append(f"{site} has received {each:,} octets, and is not on the way")
    return found


def measure_line(
    routers: Sequence[RunningRouter],
    hops: int,
    guarantee: str,
    seconds: float,
    load_core: int | None = None,
) -> Passed:
    """Measures messages from the first router of a line to one so many hops further.

    Raises:
        RuntimeError: messages have gone another way.
    """
    load = options(
        routers[0],
        PAIRS,
        seconds,
        settle=SETTLING[guarantee],
        window=WINDOWS[guarantee],
        size=OCTETS,
        address=f"{SITES[hops]}.{guarantee}.{next(_serial)}.%d",
        take_port=address_of(routers[hops]).rpartition(":")[2],
    )
    if load_core is not None:
        load = ["taskset", "-c", str(load_core), *load]
    before = [received_octets(router) for router in routers]
    with loaded(load) as (running,):
        on_way = [family(router) for router in routers[: hops + 1]]
        then = [sum(map(cpu_seconds, each)) for each in on_way]
        told = running.wait()
        used = [sum(map(cpu_seconds, each)) - at for each, at in zip(on_way, then, strict=True)]
        grown = [
            sum(octets - old.get(each, 0) for each, octets in received_octets(router).items())
            for router, old in zip(routers, before, strict=True)
        ]
    if wrong := astray(grown, hops, int(told["received"]) * OCTETS):
        raise RuntimeError("; ".join(wrong))
    each_us = tuple(cpu / told["measured"] * 1e6 for cpu in used)
    return Passed(told["messages_per_second"], each_us)


def least(runs: Sequence[Passed]) -> Passed:
    """Returns the run with the least processor time: others who use the machine only add to it."""
    return min(runs, key=lambda passed: passed.all_us)


def hop_us(found: Mapping[int, Passed], hops: int) -> float:
    """Returns what one of so many hops costs: what all routers take beyond one that is alone."""
    return (found[hops].all_us - found[0].all_us) / hops


def growth(found: Mapping[int, Passed]) -> float:
    """Returns what one of three hops costs by what the only one costs."""
    return hop_us(found, 3) / hop_us(found, 1)


def measure_hops(conditions: Conditions) -> Figures:
    """Measures routers that share a core.

    Returns:
        ``alone_us``, ``hop_us`` (of three), ``hop_part``, the second by the first, ``growth``, and
        ``rate_part``, the rate of three hops by that of one; of exactly-once messages with
        ``exact_`` before.
    """
    figures: Figures = {}
    with line() as routers:
        for router in routers:
            pin(router, conditions.subject_core)
        for guarantee, prefix in (("at-least-once", ""), ("exactly-once", "exact_")):
            runs: dict[int, list[Passed]] = {hops: [] for hops in (0, 1, 3)}
            for _ in range(conditions.runs):
                for hops, passed in runs.items():
                    core = conditions.load_core
                    passed.append(measure_line(routers, hops, guarantee, conditions.seconds, core))
            found = {hops: least(passed) for hops, passed in runs.items()}
            figures[f"{prefix}alone_us"] = found[0].all_us
            figures[f"{prefix}hop_us"] = hop_us(found, 3)
            figures[f"{prefix}hop_part"] = hop_us(found, 3) / found[0].all_us
            figures[f"{prefix}growth"] = growth(found)
            figures[f"{prefix}rate_part"] = found[3].rate / found[1].rate
    return figures


def show(guarantee: str, place: str, runs: Mapping[int, Sequence[Passed]]) -> None:
    """Prints what was found of one guarantee."""
    found = {hops: least(passed) for hops, passed in runs.items()}
    for hops, passed in found.items():
        rates = [each.rate for each in runs[hops]]
        more = f"; a hop {hop_us(found, hops):.3f}" if hops else ""
        print(
            f"{guarantee}, {place}, {hops} hops: {statistics.median(rates):>9,.0f} /s"
            f"  processor time for each message {passed.all_us:.3f} us, by router"
            f" {[round(each, 3) for each in passed.each_us]}{more}",
            flush=True,
        )
    medians = {hops: statistics.median(each.rate for each in runs[hops]) for hops in found}
    print(
        f"{guarantee}, {place}: a hop of three costs {growth(found):.2f} of the only one; all"
        f" routers of three hops {found[3].all_us / found[1].all_us:.2f} of those of one, and the"
        f" rate is {medians[3] / medians[1]:.2f}",
        flush=True,
    )


def main(seconds: float, runs: int) -> None:
    """Prints what messages cost over no hop to three, with all routers on one core and on any."""
    many = os.cpu_count() != 1
    with line() as routers:
        for guarantee in SETTLING:
            for place in ("one core", "any core")[: 1 + many]:
                cores = (0, 1) if many and place == "one core" else (None, None)
                for router in routers:
                    pin(router, cores[0])
                found: dict[int, list[Passed]] = {hops: [] for hops in range(len(SITES))}
                for _ in range(runs):
                    for hops, passed in found.items():
                        passed.append(measure_line(routers, hops, guarantee, seconds, cores[1]))
                show(guarantee, place, found)


if __name__ == "__main__":
    length, times = [*sys.argv[1:], *("2", "3")[len(sys.argv) - 1 :]][:2]
    main(float(length), int(times))
