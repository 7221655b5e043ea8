"""What several workers are worth.

::

    python -m tests.bench.workers [scale|homes|reload] [seconds] [runs]

``scale`` puts the same load on one worker and on two, once with each sender beside its receiver and
once with every pair apart, so that all deliveries cross. The supervisor hands connections out by
turns and the load program opens all receivers before all senders: an even number of pairs is local,
an odd number crosses. Processor time for each delivery says what a core is good for whoever else
uses the machine; the rate says what this machine had left.

``homes`` has exactly-once deliveries of many addresses pass one worker, two and four, with all
addresses kept by the first worker or each by one of all. Processor time is that of all processes,
the journal's included, while messages flow: connecting clients is no part of a delivery's cost. The
greatest part that one worker has of it bounds the rate: a worker has one core. Each client has one
address and is handed to its home. Clients are four programs, and with several homes all of a
program are at one: a program that had clients at each would write to all workers a little at a
time, and have the system go from one to the next with that. What a home among four costs beside the
only one is told with all programs at that one home. What four homes cost that share the load is
told three times: beside one with the same load altogether, of which each home has a part, in
smaller batches; with the same load for each home; and beside four routers of one worker and one
program each, which have nothing in common but the machine.

``reload`` sends 100,000 messages a second through two workers, adds 1,000 routes in the middle, and
tells the longest time in which a receiver got nothing, beside that of runs without a reload: what
the two have in common is the machine's.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from router.core.homes import rendezvous
from tests.bench.programs import congestion, program
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of, processes

RATE = 100_000
ROUTES = 1_000

_serial = itertools.count()

_TICKS = os.sysconf("SC_CLK_TCK")


def file(
    workers: int, routes: int = 0, *, more: str = "", route: str = "", admin: str = "off"
) -> str:
    """Gives a configuration with so many routes beside the one that takes everything.

    Args:
        workers: how many.
        routes: how many others.
        more: further options of the router.
        route: further options of that route.
        admin: where the admin endpoint is.
    """
    others = "".join(f"  - address: other.{number}\n" for number in range(routes))
    return (
        f"router: {{id: bench, workers: {workers}, admin: {admin}{more}}}\n"
        'listeners: [{bind: "127.0.0.1:0"}]\nlimits: {link_credit: 2000}\n'
        f'routes:\n  - address: "#"\n{route}{others}'
    )


def options(router: RunningRouter, pairs: int, seconds: float, **more: object) -> list[str]:
    """Gives the command of a load."""
    port = address_of(router).rpartition(":")[2]
    address = f"q{next(_serial)}.%d"  # nobody gets what an earlier load has left behind
    asked: dict[str, object] = {"senders": pairs, "receivers": pairs, "window": 256, "warmup": 0.5}
    asked |= {"address": address, **more}
    asked |= {"port": port, "seconds": seconds, "congestion": congestion()}
    return [program("load"), *(f"{key}={value}" for key, value in asked.items())]


@attrs.frozen
class Load:
    """A load whose warmup is over.

    What clients cost as they connect and leave is no part of a delivery's: whoever measures between
    the warmup and ``wait`` measures the same time as the load does.
    """

    process: subprocess.Popen[str]

    def wait(self) -> dict[str, float]:
        """Returns what the load tells; its connections stay, silent, until the load is left."""
        assert self.process.stdout is not None
        told: dict[str, float] = json.loads(self.process.stdout.readline())
        return told


@contextlib.contextmanager
def loaded(*commands: list[str]) -> Iterator[list[Load]]:
    """Runs loads at one time, and goes on when they begin to measure.

    Raises:
        RuntimeError: one has ended before that.
    """
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen([*command, "marks=1"], stdin=pipe, stdout=pipe, text=True)
            )
            for command in commands
        ]
        for each in running:
            assert each.stdout is not None
            if not each.stdout.readline():
                raise RuntimeError(f"the load ended: {each.wait()}")
        yield [Load(each) for each in running]


def cpu_seconds(process: int) -> float:
    """Tells how much processor time a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def serving(
    workers: int, *, more: str = "", route: str = "", admin: str = "off"
) -> Iterator[RunningRouter]:
    """Runs a router in a directory of its own."""
    text = file(workers, more=more, route=route, admin=admin)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROUTER_TCP_CONGESTION"] = congestion()
        with running_router(text, Path(folder)) as router:
            yield router


SPREADS = (
    ("1 worker", 1, 10),
    ("2 workers, local", 2, 10),
    ("2 workers, crossing", 2, 11),
)
"""Name, workers, and pairs: an odd number crosses."""


def spread(workers: int, pairs: int, seconds: float) -> tuple[float, list[float]]:
    """Returns deliveries per second, and processor time for each by process, in microseconds."""
    with serving(workers) as router:
        watched = list(processes(router).values()) or [router.process.pid]
        with loaded(options(router, pairs, seconds)) as (load,):
            before = [cpu_seconds(each) for each in watched]
            told = load.wait()
            used = [cpu_seconds(each) - then for each, then in zip(watched, before, strict=True)]
    return told["messages_per_second"], [cpu / told["measured"] * 1e6 for cpu in used]


def measure_workers(seconds: float) -> dict[str, float]:
    """Measures processor time of a delivery within one worker, and crossing between two."""
    (_, one), (_, local), (_, crossing) = (
        spread(workers, pairs, seconds) for _, workers, pairs in SPREADS
    )
    return {
        "one_us": sum(one),
        "local_us": sum(local),
        "crossing_us": sum(crossing),
        "of_one": sum(one) / sum(crossing),
    }


def scale(seconds: float, runs: int) -> None:
    """Prints what one worker and two do with local and with crossing traffic."""
    for name, workers, pairs in SPREADS:
        for _ in range(runs):  # each a new router: the turns begin with the first worker
            rate, each_us = spread(workers, pairs, seconds)
            print(
                f"{name:20} {rate:>10,.0f} /s  processor time for each delivery"
                f" {sum(each_us):.3f} us, by worker {[round(each, 3) for each in each_us]}",
                flush=True,
            )


GROUP = 4
"""Addresses of one program, with a pair of clients for each."""


@attrs.frozen
class Setting:
    """What exactly-once deliveries pass.

    Attributes:
        routers: how many, each with its part of the programs.
        workers: of each router.
        homes: which of them keep addresses.
        programs: of clients.
        at: the one home of all programs; 0: each is at the next one.
    """

    routers: int = 1
    workers: int = 1
    homes: str = "first"
    programs: int = 4
    at: int = 0

    def names(self, number: int) -> str:
        """Returns a pattern of addresses for a program; with several homes all have the same."""
        home = self.at or number % self.workers + 1
        for serial in _serial:
            name = f"q{serial}.%d"
            homes = {rendezvous(name % at, self.workers) for at in range(GROUP)}
            if self.homes == "first" or homes == {home}:
                return name
        raise AssertionError("there is no end of numbers")


ALONE = "1 worker"
LESS = "1 worker, a quarter"
SPREAD = "4 workers, all"
TOGETHER = "4 workers, all at one"
APART = "4 routers"

HOMES = {
    ALONE: Setting(),
    "2 workers, first": Setting(workers=2),
    "2 workers, all": Setting(workers=2, homes="all"),
    "4 workers, first": Setting(workers=4),
    SPREAD: Setting(workers=4, homes="all"),
    TOGETHER: Setting(workers=4, homes="all", at=2),
    LESS: Setting(programs=1),
    APART: Setting(routers=4),
}


@attrs.frozen
class Cost:
    """What exactly-once deliveries have cost.

    Attributes:
        rate: deliveries per second.
        all_us: processor time of all processes for each delivery, in microseconds.
        busiest_us: of the worker that needs most.
        journal_us: of the processes that are no workers; all but nothing is the journal's.
        switches: deliveries for each time that a process has waited, or was made to.
        forced: the part of these times in which it was made to, because others wanted its core.
        block_octets: of one write of the journal's.
    """

    rate: float
    all_us: float
    busiest_us: float
    journal_us: float
    switches: float
    forced: float
    block_octets: float


def exact(setting: Setting, seconds: float) -> Cost:
    """Measures exactly-once deliveries."""
    promise, more = "    guarantee: exactly-once\n", f", homes: {setting.homes}"
    with contextlib.ExitStack() as stack:
        serves = [
            stack.enter_context(serving(setting.workers, more=more, route=promise))
            for _ in range(setting.routers)
        ]
        commands = [
            options(
                serves[number % setting.routers],
                GROUP,
                seconds,
                settle="second",
                address=setting.names(number),
            )
            for number in range(setting.programs)
        ]
        loads = stack.enter_context(loaded(*commands))
        return cost_of(loads, *serves)


def cost_of(loads: list[Load], *routers: RunningRouter) -> Cost:
    """Returns what loads cost routers from now until they end."""
    mains = {each.process.pid for each in routers}
    busy = {worker for each in routers for worker in processes(each).values()} or mains
    everybody = {*mains, *(child for main in mains for child in children(main))}
    before = {each: Use.of(each) for each in everybody}
    told = [load.wait() for load in loads]
    used = {each: Use.of(each).since(then) for each, then in before.items()}
    count = sum(each["measured"] for each in told)
    others = [use for each, use in used.items() if each not in busy]
    switches = max(1, sum(use.waits + use.forced for use in used.values()))
    return Cost(
        rate=sum(each["messages_per_second"] for each in told),
        all_us=sum(use.seconds for use in used.values()) / count * 1e6,
        busiest_us=max(used[each].seconds for each in busy) / count * 1e6,
        journal_us=sum(use.seconds for use in others) / count * 1e6,
        switches=count / switches,
        forced=sum(use.forced for use in used.values()) / switches,
        block_octets=sum(use.octets for use in others) / max(1, sum(use.writes for use in others)),
    )


@attrs.frozen
class Use:
    """What a process has used.

    Attributes:
        seconds: of a processor.
        waits: how often it has given its core away.
        forced: how often its core was taken from it.
        octets, writes: what it wrote to files, and how often.
    """

    seconds: float
    waits: int
    forced: int
    octets: int
    writes: int

    @classmethod
    def of(cls, process: int) -> "Use":
        """Returns what a process has used so far."""
        status = _fields(Path(f"/proc/{process}/status"))
        written = _fields(Path(f"/proc/{process}/io"))
        return cls(
            cpu_seconds(process),
            int(status["voluntary_ctxt_switches"]),
            int(status["nonvoluntary_ctxt_switches"]),
            int(written["wchar"]),
            int(written["syscw"]),
        )

    def since(self, then: "Use") -> "Use":
        """Returns what it has used since then."""
        return Use(
            self.seconds - then.seconds,
            self.waits - then.waits,
            self.forced - then.forced,
            self.octets - then.octets,
            self.writes - then.writes,
        )


def _fields(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def children(process: int) -> list[int]:
    """Returns the processes that a process has started."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for path in lists for each in path.read_text().split()]


def homes(seconds: float, runs: int) -> None:
    """Prints what exactly-once costs with one worker and with several.

    The cases take turns. Processes that share cores displace each other from them, and from their
    caches: the least of several runs is what the work itself takes, the median what it took here.
    """
    found: dict[str, list[Cost]] = {name: [] for name in HOMES}
    for _ in range(runs):
        for name, setting in HOMES.items():
            found[name].append(exact(setting, seconds))
    for name, costs in found.items():
        least = min(costs, key=lambda cost: cost.all_us)
        median_us = statistics.median(cost.all_us for cost in costs)
        print(
            f"{name:21} {max(cost.rate for cost in costs):>10,.0f} /s  processor time for each"
            f" delivery {least.all_us:.2f} us, median {median_us:.2f}; of the busiest worker"
            f" {least.busiest_us:.2f}, of the journal {least.journal_us:.2f};"
            f" {least.switches:.0f} deliveries a switch ({least.forced:.0%} of them forced),"
            f" {least.block_octets:,.0f} octets a write",
            flush=True,
        )
    least_us = {name: min(cost.all_us for cost in costs) for name, costs in found.items()}
    part = least_us[TOGETHER] / least_us[ALONE]
    print(f"4 workers cost {part:.2f} of 1 if all clients are at one home", flush=True)
    readings = {
        "1 with the same load altogether": ALONE,
        "1 with the same load for each home": LESS,
        "4 routers of one worker": APART,
    }
    for reading, other in readings.items():
        part = least_us[SPREAD] / least_us[other]
        print(f"spread over 4 homes, of {reading}: {part:.2f}", flush=True)


def reload(seconds: float, runs: int) -> None:
    """Prints the longest gaps at receivers with a reload in the middle, and without."""
    for name, routes in (("quiet", 0), ("reload", ROUTES)):
        gaps, own = [], []
        for _ in range(runs):
            with serving(2) as router:
                told = one_reload(router, seconds, routes)
            gaps.append(told["longest_gap_us"] / 1e3)
            own.append(told["longest_pause_us"] / 1e3)
            assert not told["skipped"], "deliveries are missing"
        gaps.sort()
        print(
            f"{name:8} longest gap at the receivers: median {statistics.median(gaps):.1f} ms,"
            f" all {[round(gap, 1) for gap in gaps]}; of the load program itself"
            f" {[round(each, 1) for each in own]}",
            flush=True,
        )


def one_reload(
    router: RunningRouter, seconds: float, routes: int, rate: int = RATE
) -> dict[str, float]:
    """Has messages flow and so many routes added meanwhile; gives what the load program tells."""
    command = options(router, 8, seconds, rate=rate)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        time.sleep(0.5 + seconds / 3)
        if routes:
            (path,) = Path(f"/proc/{router.process.pid}/cwd").resolve().glob("router.yaml")
            path.write_text(file(2, routes))
            router.process.send_signal(1)
            router.wait_for("config.reloaded")
        output, _ = load.communicate()
        assert load.returncode == 0, output
    told: dict[str, float] = json.loads(output)
    return told


if __name__ == "__main__":
    what, length, times = [*sys.argv[1:], *("scale", "3", "3")[len(sys.argv) - 1 :]][:3]
    {"scale": scale, "homes": homes, "reload": reload}[what](float(length), int(times))
