"""What the journal on PostgreSQL costs: its inserts beside bare ones, and deliveries beside files.

A bare insert has the octets of a group, and as many are in flight, each on a connection of its own
in pipeline mode; what the log does beside that is the fence, the look at the lease, and order. The
server has a synchronous standby and TLS, as the documentation asks for.
"""

import contextlib
import selectors
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from router.journal.block import Origin, open_block
from router.journal.postgres.lease import LeaseFile
from router.journal.postgres.log import PIPES, PostgresLog
from router.journal.postgres.pipe import Octets, Pipe, PipeState
from router.journal.postgres.storage import init
from tests.bench import subjects
from tests.bench.cases import CASES
from tests.bench.measure import Conditions, Figures, run_load
from tests.support.journal import START_NS, new_writer, write_life
from tests.support.postgres import Server, replicated_servers

GROUP_OCTETS: Final = 16 << 10
"""What the journal's process has at hand when many deliveries are under way."""

WINDOWS: Final = (64, 4096)
ROUTER: Final = "bench"

INSERT: Final = "INSERT INTO bare (number, octets) VALUES ($1, $2)"


def measure_postgres(conditions: Conditions) -> Figures:
    """Measures the log and bare inserts by turns, then exactly-once deliveries on both stores.

    Returns:
        ``groups_per_second`` of the log and ``inserts_per_second``, each of ``GROUP_OCTETS``, and
        ``of_bare``, the one by the other. For each of ``WINDOWS`` deliveries a second and the 99th
        percentile of a round trip in microseconds: ``postgres_64_per_second``, ``files_64_p99_us``
        and so on.
    """
    found: Figures = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(replicated_servers(directory)).primary
        groups, inserts = [], []
        for number in range(max(3, conditions.runs)):
            groups.append(_groups(server, directory, number, conditions.seconds))
            inserts.append(_inserts(server, number, conditions.seconds))
        found["groups_per_second"] = statistics.median(groups)
        found["inserts_per_second"] = statistics.median(inserts)
        found["of_bare"] = statistics.median(
            one / other for one, other in zip(groups, inserts, strict=True)
        )
        for window in WINDOWS:
            found |= _deliveries(server, directory / f"{window}", window, conditions)
    return found


# Groups and bare inserts


def _blocks() -> bytes:
    """Makes blocks of records of some ``GROUP_OCTETS``."""
    writer, octets, number = new_writer(), b"", 0
    while len(octets) < GROUP_OCTETS:
        write_life(writer, number, payload=bytes(100))
        number += 1
        if number % 10 == 0:
            octets += b"".join(each.octets for each in writer.take_blocks())
    return octets


def _groups(server: Server, directory: Path, number: int, seconds: float) -> float:
    """Measures groups of the log that become durable in a second."""
    url = server.new_database(f"log{number}")
    init(url, ROUTER, None)
    lease = LeaseFile(directory / f"lease{number}")
    log = PostgresLog(url, ROUTER, incarnation=START_NS, holder="bench", lease=lease)
    log.open(time.time_ns())
    log.group_octets = GROUP_OCTETS
    octets = _blocks()
    block = open_block(memoryview(octets))
    log.admit(Origin(block.origin.worker, block.origin.incarnation), 1)
    begun, warm_at = 0, time.monotonic() + seconds / 4
    start = until = 0.0
    while not until or time.monotonic() < until:
        while log.pending_octets < 2 * PIPES * len(octets):
            log.append(octets, [block])
        log.commit(START_NS)
        log.wait(0.05)
        if not until and time.monotonic() >= warm_at and log.commits:
            begun, start = log.commits, time.monotonic()
            until = start + seconds
    rate = (log.commits - begun) / (time.monotonic() - start)
    log.close(START_NS)
    return rate


def _inserts(server: Server, number: int, seconds: float) -> float:
    """Measures bare inserts of the same size, as many in flight."""
    url = server.new_database(f"bare{number}")
    server.run("CREATE TABLE bare (number bigint PRIMARY KEY, octets bytea)", f"bare{number}")
    octets, count, done, start = Octets(_blocks()), 0, 0, 0.0
    with _pipes(url) as pipes:
        warm_at = time.monotonic() + seconds / 4
        while not start or time.monotonic() < start + seconds:
            for pipe in pipes:
                done += len(pipe.advance())
                assert pipe.state is not PipeState.LOST, pipe.trouble
                if pipe.state is PipeState.READY and not pipe.in_flight:
                    count += 1
                    pipe.send(count, INSERT, [b"%d" % count, octets])
            _await(pipes)
            if not start and time.monotonic() >= warm_at:
                done, start = 0, time.monotonic()
        return done / (time.monotonic() - start)


@contextlib.contextmanager
def _pipes(url: str) -> Iterator[list[Pipe]]:
    pipes = [Pipe(url) for _ in range(PIPES)]
    try:
        for pipe in pipes:
            pipe.start()
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()


def _await(pipes: Sequence[Pipe]) -> None:
    with selectors.DefaultSelector() as selector:
        for descriptor, events in filter(None, (pipe.waits for pipe in pipes)):
            selector.register(descriptor, events)
        selector.select(0.05)


# Deliveries


def _deliveries(server: Server, directory: Path, window: int, conditions: Conditions) -> Figures:
    """Measures exactly-once deliveries with the journal on PostgreSQL and in files."""
    url = server.new_database(f"deliveries{window}")
    init(url, ROUTER, None)
    case = next(each for each in CASES if each.name == "exactly-once, window 64")
    case = attrs.evolve(case, window=window)
    found: Figures = {}
    for store, adapt in (("files", str), ("postgres", partial(_on_postgres, url=url))):
        folder = directory / store
        folder.mkdir(parents=True)
        runs: list[dict[str, Any]] = []
        with subjects.router(case, conditions.subject_core, folder, adapt=adapt) as router:
            runs += [run_load(router, conditions) for _ in range(conditions.runs)]
        for name, of in (("per_second", "messages_per_second"), ("p99_us", "round_trip_p99_us")):
            found[f"{store}_{window}_{name}"] = statistics.median(each[of] for each in runs)
    return found


def _on_postgres(text: str, url: str) -> str:
    head, listeners, rest = text.partition("listeners:\n")
    return f"{head}  journal: {{store: '{url}'}}\n{listeners}{rest}"
