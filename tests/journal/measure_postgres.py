"""Measures the store on PostgreSQL beside raw inserts of the same blocks, in one run.

    python tests/journal/measure_postgres.py [SECONDS] [ROUNDS]

A server of its own (tests/support/postgres.py), its data in the directory for temporary files. Raw:
as many connections in pipeline mode insert the same octets into a table of one bytea column; no
lease, no partitions. Each has one insert on its way, and so has each of the store's; a row is one
block in both. The store has as many blocks again in memory: it waits for its durable prefix.
"""

import selectors
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from router.journal.block import open_block
from router.journal.keys import LinkKey
from router.journal.postgres.lease import LeaseFile
from router.journal.postgres.log import PIPES, PostgresLog
from router.journal.postgres.pipe import Octets, Pipe, PipeState
from router.journal.postgres.storage import conninfo, init
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from tests.support.postgres import postgres_server

RECORDS = 1024


def block_of(writer: RecordWriter) -> bytes:
    """Gives a block of ``RECORDS`` records."""
    for number in range(RECORDS // 2):
        key = DeliveryKey(number.to_bytes(16, "big"))
        writer.sent(time.time_ns(), key, LinkKey(1), LinkKey(2), bytes(8))
        writer.outcome(time.time_ns(), key, LinkKey(1), LinkKey(2), 0x24, flags=1)
    (block,) = writer.take_blocks()
    return block.octets


def wait(pipes: Sequence[Pipe]) -> None:
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            if pipe.waits is not None:
                selector.register(*pipe.waits)
        selector.select(0.5)


def measure_raw(url: str, seconds: float) -> tuple[float, list[float]]:
    """Gives records a second, and the time of each insert."""
    pipes = [Pipe(conninfo(url)) for _ in range(PIPES)]
    for pipe in pipes:
        pipe.start()
    while any(pipe.state is not PipeState.READY for pipe in pipes):
        for pipe in pipes:
            pipe.advance()
        wait(pipes)
    writer = RecordWriter(worker=1, incarnation=1)
    began, count, times = time.perf_counter(), 0, list[float]()
    while time.perf_counter() - began < seconds:
        for pipe in pipes:
            for answer in pipe.advance():
                assert answer.error is None, answer.error
                times.append(time.perf_counter() - answer.request)
                count += 1
            if not pipe.in_flight:
                block = Octets(block_of(writer))
                pipe.send(time.perf_counter(), "INSERT INTO raw VALUES ($1::bytea)", [block])
        wait(pipes)
    passed = time.perf_counter() - began
    for pipe in pipes:
        pipe.close()
    return count * RECORDS / passed, times


def measure_store(url: str, folder: Path, seconds: float) -> tuple[float, list[float]]:
    """Gives records a second, and the time from append to durable of each block."""
    log = PostgresLog(
        url, "dc1", incarnation=time.time_ns(), holder="one", lease=LeaseFile(folder / "lease")
    )
    log.group_octets = 1  # a row for each block
    log.open(time.time_ns())
    writer = RecordWriter(worker=1, incarnation=log.incarnation)
    origin, sent = open_block(memoryview(block_of(writer))).origin, list[tuple[int, float]]()
    writer = RecordWriter(worker=1, incarnation=log.incarnation)
    log.admit(origin, 1)
    while not log.commit(time.time_ns()):
        log.wait(0.5)
    began, durable, times = time.perf_counter(), 0, list[float]()
    while time.perf_counter() - began < seconds:
        while len(sent) < 2 * PIPES:
            octets = block_of(writer)
            log.append(octets, [open_block(memoryview(octets))])
            sent.append((writer.next_sequence, time.perf_counter()))
            log.commit(time.time_ns())
        log.commit(time.time_ns())
        while sent and sent[0][0] <= log.durable[origin]:
            times.append(time.perf_counter() - sent.pop(0)[1])
            durable += RECORDS
        log.wait(0.5)
    passed = time.perf_counter() - began
    log.close(time.time_ns())
    return durable / passed, times


def main() -> None:
    """Prints a line for each of both in each round."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with postgres_server() as server, tempfile.TemporaryDirectory() as folder:
        url = server.new_database("measured")
        init(url, "dc1", None)
        server.run("CREATE TABLE raw (octets bytea)", "measured")
        server.run("ALTER TABLE raw ALTER octets SET STORAGE EXTERNAL", "measured")
        for _ in range(rounds):
            for name in ("raw", "store"):
                if name == "raw":
                    rate, times = measure_raw(url, seconds)
                else:
                    rate, times = measure_store(url, Path(folder), seconds)
                times.sort()
                p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
                print(f"{name:6} {rate:10,.0f} records/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")


if __name__ == "__main__":
    main()
