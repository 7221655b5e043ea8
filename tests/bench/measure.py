"""Puts loads on subjects and takes the figures down."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tests.bench import subjects
from tests.bench.cases import Case
from tests.bench.programs import congestion, program
from tests.bench.subjects import Subject

Figures = dict[str, float]

LOAD_SECONDS = 60.0
"""A run of the load program that takes longer than this, beside its own time, has failed."""

START_SECONDS = 3.0
"""Until a case's subjects are ready, usually."""

RECEIVING_SECONDS = 0.5
"""Until receivers have attached."""

RUN_SECONDS = 0.3
"""Of a run of the load program, beside the time that is measured: attaching, and ending."""

_serial = iter(range(1, 1 << 30))


@attrs.frozen(kw_only=True)
class Conditions:
    """Under which everything is measured.

    Attributes:
        subject_core, load_core: processor cores; None: not pinned.
        runs: how many; the median counts.
        seconds: of each run, after a quarter of that to warm up.
        against: URLs of other routers.
    """

    subject_core: int | None
    load_core: int | None
    runs: int
    seconds: float
    against: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Result:
    """What a case came to: the medians, by subject.

    Attributes:
        spread: largest difference between two runs of the router, as a part of the median.
    """

    case: Case
    figures: dict[str, Figures]
    spread: float = 0.0

    @property
    def router(self) -> Figures:
        """This router's figures."""
        return self.figures["router"]

    def of_relay(self, key: str = "messages_per_second") -> float | None:
        """A figure of the router as a part of the relay's; None if there is none."""
        relay = self.figures.get("relay")
        return self.router[key] / relay[key] if relay and relay.get(key) else None


def measure(case: Case, conditions: Conditions) -> Result:
    """Runs a case on the relay, on this router and on the others, by turns."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        core = conditions.subject_core
        under_load = [
            stack.enter_context(subjects.relay(case, core, directory)),
            stack.enter_context(subjects.router(case, core, directory)),
            *(subjects.another(case, url) for url in conditions.against),
        ]
        if case.tls and subjects.has_haproxy():
            under_load.append(stack.enter_context(subjects.haproxy(case, core, directory)))
        if case.idle:
            for subject in under_load[1:]:
                options = {"mode": "idle", "receivers": case.idle, "port": subject.port}
                stack.enter_context(staying(options, conditions))
        runs: dict[str, list[Figures]] = {subject.name: [] for subject in under_load}
        for _ in range(conditions.runs):
            for subject in under_load:
                runs[subject.name].append(run_load(subject, conditions))
    rates = [each["messages_per_second"] for each in runs["router"]]
    return Result(
        case=case,
        figures={name: _medians(each) for name, each in runs.items()},
        spread=(max(rates) - min(rates)) / (statistics.median(rates) or 1),
    )


def _medians(runs: Sequence[Figures]) -> Figures:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def command(options: dict[str, object], conditions: Conditions, name: str = "load") -> list[str]:
    """Returns what starts a load program."""
    core = conditions.load_core
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    # Addresses are new each time: nobody gets what an earlier run has left behind.
    fixed = {"congestion": congestion(), "address": f"run.{os.getpid()}.{next(_serial)}.%d"}
    both = fixed | options
    return [*pinned, program(name), *(f"{key}={value}" for key, value in both.items())]


def run_load(
    subject: Subject, conditions: Conditions, *, of: str = "messages_per_second"
) -> Figures:
    """One run of the load program; ``of`` is what must not be nothing."""
    options = subject.options | {
        "port": subject.port,
        "watch": subject.process,
        "seconds": conditions.seconds,
        "warmup": conditions.seconds / 4,
    }
    done = subprocess.run(
        command(options, conditions, subject.program),
        capture_output=True,
        text=True,
        check=False,
        timeout=LOAD_SECONDS + 4 * conditions.seconds,
    )
    if done.returncode:
        raise RuntimeError(f"{subject.name}: {done.stderr[-500:]!r}")
    figures: Figures = json.loads(done.stdout)
    if not figures[of]:
        raise RuntimeError(f"{subject.name}: nothing arrived")
    if subject.process:
        figures["cpu_ns_per_message"] = figures["watched_cpu"] / figures[of] * 1e9
    return figures


@contextlib.contextmanager
def receiving(options: dict[str, object], conditions: Conditions) -> Iterator[None]:
    """Receivers that take whatever there is, until the end of the block."""
    with subprocess.Popen(command(options, conditions), stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(RECEIVING_SECONDS)
            yield
        finally:
            process.kill()


def runs_within(seconds: float, conditions: Conditions) -> int:
    """Tells how many runs of a case fit into a time, one at least and those asked for at most."""
    each = (2 + len(conditions.against)) * (conditions.seconds * 1.25 + RUN_SECONDS)
    return max(1, min(conditions.runs, int((seconds - START_SECONDS) / each)))


@contextlib.contextmanager
def staying(options: dict[str, object], conditions: Conditions) -> Iterator[Figures]:
    """A load that has been brought about and stays as it is; gives what it took."""
    with subprocess.Popen(
        command(options, conditions),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{options}: {process.wait()}")
        yield json.loads(line)
        process.stdin.close()


# --- memory, and what else a router feels ---------------------------------------------------------


def resident_octets(process: int) -> int:
    """Tells how much memory a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def _probe(subject: Subject, log: Path) -> Figures:
    """Has the probe inside the router report."""
    before = log.stat().st_size
    os.kill(subject.process, signal.SIGUSR1)
    for _ in range(3000):
        for line in log.read_bytes()[before:].splitlines(keepends=True):
            if line.startswith(b'{"timer') and line.endswith(b"\n"):
                figures: Figures = json.loads(line)
                return figures
        time.sleep(0.01)
    raise RuntimeError("the probe does not answer")


def measure_idle(count: int, conditions: Conditions, *, tls: bool = False) -> Figures:
    """Measures what an idle connection with a session and a link costs."""
    case = Case(name="idle", tls=tls)
    with (
        tempfile.TemporaryDirectory() as directory,
        subjects.router(case, conditions.subject_core, Path(directory)) as router,
    ):
        options: dict[str, object] = {"mode": "idle", "port": router.port, "tls": int(tls)}
        with staying(options | {"receivers": 10}, conditions):
            before = resident_octets(router.process)
            with staying(options | {"receivers": count}, conditions):
                after = resident_octets(router.process)
    return {"octets_each": (after - before) / count}


STORM_SECONDS = 6.0
"""Traffic while a storm goes on, one second before it included."""


def measure_storm(count: int, conditions: Conditions) -> Figures:
    """Measures how long it takes many TLS clients to come in at once, and what traffic feels."""
    case = Case(name="storm", tls=True, rate=100_000)
    with (
        tempfile.TemporaryDirectory() as directory,
        subjects.router(case, conditions.subject_core, Path(directory)) as router,
    ):
        options = router.options | {"port": router.port, "seconds": STORM_SECONDS, "warmup": 0.5}
        load = subprocess.Popen(
            command(options, conditions), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            time.sleep(1.5)
            storm: dict[str, object] = {"mode": "idle", "storm": 1, "tls": 1, "receivers": count}
            with staying(storm | {"port": router.port}, conditions) as opened:
                text, error = load.communicate(timeout=LOAD_SECONDS)
        finally:
            load.kill()
            load.wait()
    if load.returncode:
        raise RuntimeError(f"storm: {error[-500:]!r}")
    felt: Figures = json.loads(text)
    keys = ("messages_per_second", "longest_gap_us", "longest_pause_us", "one_way_p99_us")
    return {"seconds": opened["opening_seconds"]} | {key: felt[key] for key in keys}


def measure_unsettled(count: int, conditions: Conditions) -> Figures:
    """Measures what an unsettled delivery costs beside its payload, and a garbage collection."""
    links, size = 10, 100
    case = Case(name="unsettled")
    options: dict[str, object] = {"senders": links, "receivers": links, "size": size}
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "router.log"
        core = conditions.subject_core
        with subjects.router(case, core, Path(directory), probed=True) as router:
            options["port"] = router.port
            with staying(options | {"hold": 100}, conditions):
                before = resident_octets(router.process)
                with staying(options | {"hold": count // links}, conditions):
                    after = resident_octets(router.process)
                    probed = _probe(router, log)
    payload = size + 5
    return {"octets_each": (after - before) / count - payload} | probed


def measure_timer(conditions: Conditions) -> Figures:
    """Measures how late a task of the worker wakes at full load."""
    case = Case(name="timer")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "router.log"
        core = conditions.subject_core
        with subjects.router(case, core, Path(directory), probed=True) as router:
            run_load(router, conditions)
            _probe(router, log)
            load = subprocess.Popen(
                command(
                    router.options | {"port": router.port, "seconds": 60, "warmup": 0}, conditions
                ),
                stdout=subprocess.DEVNULL,
            )
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    load.wait(1)
                _probe(router, log)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    load.wait(max(2, conditions.seconds))
                figures: Figures = _probe(router, log)
            finally:
                load.kill()
                load.wait()
    return figures
