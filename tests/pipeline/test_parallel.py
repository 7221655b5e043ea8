"""Several links read one address, each in a task of its own; whatever dies, each row comes once."""

import os
import pickle
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyarrow import fs

from router.net.client.message import numbered
from router.pipeline.amqp import parallel
from router.pipeline.amqp.dialogue import PeerError
from router.pipeline.amqp.options import OptionError, Options, read_options
from router.pipeline.amqp.parallel import ParallelStreamReader
from router.pipeline.amqp.sink import AmqpBatchWriter, AmqpStreamWriter
from router.pipeline.amqp.source import AmqpBatchReader, AmqpStreamReader, has_one_link
from router.pipeline.amqp.wal import LogError
from router.pipeline.store import LocalStore, RemoteStore, Store, open_store
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.spark_jobs import Taken, receiver, sender

CONFIG = """
router: {{id: spark, workers: 1, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes:
  - {{address: "weak.#", guarantee: at-least-once}}
  - {{address: "#", guarantee: exactly-once, unroutable: hold}}
"""
EXACTLY = {"deliveryGuarantee": "exactly-once", "amqp.dialTimeoutMs": 5000}
SEED = int(os.environ.get("ROUTER_CHAOS_SEED", "1"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("router"), free_port()
    with running_router(CONFIG.format(state=folder / "state", port=port), folder):
        yield f"amqp://127.0.0.1:{port}"


def options(url: str, address: str, wal: Path | str, **more: Any) -> Options:
    given = {"amqp.url": url, "address": address, "walDir": str(wal), "idleTimeoutMs": "300"}
    return read_options(given | {name: str(value) for name, value in more.items()})


@attrs.define(eq=False)
class Query:
    """Calls a reader as Spark does, and keeps what Spark keeps: the checkpoint, and the rows."""

    given: Options
    offset: Any = None
    planned: Any = None
    rows: list[tuple[str, int]] = attrs.field(factory=list)
    reader: Any = None

    def start(self) -> None:
        """Begins anew with the checkpoint, as after a crash."""
        self.reader = ParallelStreamReader(self.given)
        self.offset = self.offset or self.reader.initialOffset()

    def batch(self) -> int:
        """Processes one batch; returns the number of its rows."""
        if self.planned is None:
            limit = self.reader.getDefaultReadLimit()
            self.planned = self.reader.latestOffset(self.offset, limit)
            if self.planned == self.offset:
                self.planned = None
                return 0
            if self.offset["batch"]:
                self.reader.commit(self.offset)
        found: list[tuple[str, int]] = []
        for partition in self.reader.partitions(self.offset, self.planned):
            task = pickle.loads(pickle.dumps((self.reader, partition)))
            found += rows_of(task[0].read(task[1]))
        self.rows += found
        self.offset, self.planned = self.planned, None
        return len(found)


def rows_of(batches: Iterator[Any]) -> list[tuple[str, int]]:
    return [(row["message_id"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


def assert_each_once(rows: Sequence[tuple[str, int]], count: int) -> None:
    assert Counter(int(name) for name, _ in rows) == Counter(range(count))
    assert len({sequence for _, sequence in rows}) == len(rows), "sequence numbers are unique"


def test_links_share_what_there_is_and_accept_it_when_spark_has_committed(
    url: str, tmp_path: Path
) -> None:
    offered = sender(url, "shared", numbered(b"body", 300))
    query = Query(options(url, "shared", tmp_path, minPartitions=3, maxDeliveriesPerTrigger=90))
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    sizes: list[int] = []
    while (size := query.batch()) or len(sizes) < 3:
        sizes.append(size)
        assert not offered.is_over, "the last batch is not committed"
    assert max(sizes) <= 90
    assert_each_once(query.rows, 300)
    offered.wait_end()  # the batch without rows has accepted the last ones
    assert not any(
        name.startswith("batch-") for name, n in LocalStore(tmp_path).sizes().items() if n
    )


def test_a_batch_that_is_read_again_gives_the_same_rows(url: str, tmp_path: Path) -> None:
    offered = sender(url, "again", numbered(b"body", 20))
    query = Query(options(url, "again", tmp_path, minPartitions=2))
    query.start()
    begin = query.offset
    assert query.batch() == 20
    query.planned, query.offset = query.offset, begin  # Spark died before it wrote commits/N
    query.start()
    before = list(query.rows)
    query.rows.clear()
    assert query.batch() == 20
    assert query.rows == before
    assert query.batch() == 0
    offered.wait_end()


class Dying(Exception):  # noqa: N818
    """Stands for the end of a process."""


@pytest.mark.parametrize("is_remote", [False, True])
def test_whatever_dies_each_row_comes_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    chance = random.Random(SEED + is_remote)
    monkeypatch.setattr(parallel, "SETTLE_SECONDS", 3.0)
    count, deaths = 400, Counter[str]()

    class Frail:
        """A store whose user dies before or after an operation that chance chooses."""

        def __init__(self, store: Store) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            done = getattr(self.store, name)

            def call(*args: Any) -> Any:
                when = chance.random()
                if when < 0.02:
                    deaths[f"before {name}"] += 1
                    raise Dying
                result = done(*args)
                if when > 0.98:
                    deaths[f"after {name}"] += 1
                    raise Dying
                return result

            return call

    def opened(place: str) -> Any:
        if is_remote:
            return Frail(RemoteStore(fs.LocalFileSystem(), place))
        return Frail(open_store(place))

    monkeypatch.setattr(parallel, "open_store", opened)
    address = f"frail{is_remote}"
    offered = sender(url, address, numbered(b"body", count))
    query = Query(
        options(
            url, address, tmp_path, minPartitions=3, maxDeliveriesPerTrigger=60, idleTimeoutMs=50
        )
    )
    query.reader = None
    until = time.monotonic() + 300
    while not offered.is_over and time.monotonic() < until:
        try:
            if query.reader is None:
                query.start()
            query.batch()
        except Dying:
            query.reader = None
    offered.wait_end()
    assert_each_once(query.rows, count)
    assert sum(deaths.values()) > 5, deaths


def test_at_least_once_accepts_what_is_in_the_file(url: str, tmp_path: Path) -> None:
    offered = sender(url, "weakly", numbered(b"body", 30))
    query = Query(
        options(url, "weakly", tmp_path, minPartitions=2, deliveryGuarantee="at-least-once")
    )
    query.start()
    while not offered.is_over:
        query.batch()
    assert_each_once(query.rows, 30)


def test_a_log_is_one_query_s_and_one_address_s(url: str, tmp_path: Path) -> None:
    given = options(url, "mine", tmp_path, minPartitions=2)
    query, other = Query(given), Query(given)
    query.start()
    query.batch()
    other.start()
    other.batch()
    with pytest.raises(LogError, match="used by another query"):
        query.batch()
    with pytest.raises(LogError, match="another address, mine"):
        Query(options(url, "yours", tmp_path, minPartitions=2)).start()
    with pytest.raises(LogError, match="not the log that this checkpoint"):
        other.reader.partitions({"wal": "x", "batch": 1}, {"wal": "x", "batch": 2})
    other.reader.commit({"wal": "x", "batch": 9})
    with pytest.raises(LogError, match="the checkpoint is at batch 1"):
        other.batch()


def test_a_log_stays_what_its_first_reader_made_it(tmp_path: Path) -> None:
    one = options("amqp://x", "a", tmp_path / "one")
    AmqpStreamReader(one).initialOffset()
    assert has_one_link(attrs.evolve(one, partitions=4))
    many = options("amqp://x", "a", tmp_path / "many", minPartitions=4)
    assert not has_one_link(many)
    ParallelStreamReader(many).initialOffset()
    assert not has_one_link(attrs.evolve(many, partitions=1))
    fewer = ParallelStreamReader(attrs.evolve(many, partitions=1))
    start = fewer.initialOffset()
    assert len(fewer.partitions(start, {**start, "batch": 1})) == 4
    with pytest.raises(OptionError, match="dedupe needs one link"):
        ParallelStreamReader(attrs.evolve(many, dedupe=True))
    assert not has_one_link(options("amqp://x", "a", "s3a://bucket/wal"))
    with pytest.raises(OptionError, match="s3a://bucket/wal is not a directory of this machine"):
        options("amqp://x", "a", "s3a://bucket/wal").log  # noqa: B018
    local = options("amqp://x", "a", f"file://{tmp_path}/one")
    assert local.log == tmp_path / "one"


def test_a_batch_consumes_by_several_links_and_keeps_files_a_day(url: str, tmp_path: Path) -> None:
    offered = sender(url, "consumed", numbered(b"body", 50))
    given = options(
        url, "consumed", tmp_path, minPartitions=3, mode="consume", maxDeliveriesPerTrigger=100
    )
    reader = AmqpBatchReader(given)
    partitions = reader.partitions()
    assert len(partitions) == 3
    rows = [row for each in partitions for row in rows_of(reader.read(each))]
    assert_each_once(rows, 50)
    offered.wait_end()
    assert rows == [row for each in partitions for row in rows_of(reader.read(each))], "run again"
    files = list((tmp_path / "reads").iterdir())
    for file in files:
        os.utime(file, (1, 1))
    assert AmqpBatchReader(given).partitions()
    assert files
    assert not any((tmp_path / "reads").iterdir())


def test_a_browse_needs_no_directory(url: str, tmp_path: Path) -> None:
    offered = sender(url, "browsed", numbered(b"body", 10))
    given = attrs.evolve(options(url, "browsed", tmp_path, minPartitions=2), store=None)
    reader = AmqpBatchReader(attrs.evolve(given, most_rows=10, idle_seconds=20))
    partitions = reader.partitions()
    assert len(partitions) == 2
    rows = [row for each in partitions for row in rows_of(reader.read(each))]
    assert_each_once(rows, 10)
    assert not offered.is_over
    offered.leave()
    assert not any(tmp_path.iterdir())


def test_a_batch_that_is_written_leaves_no_folder_behind(url: str, tmp_path: Path) -> None:
    taken = Taken()
    receiving = receiver(url, "written", taken)
    given = options(url, "written", tmp_path / "wal")
    writer = AmqpBatchWriter(given, {})
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"], "message_id": ["0", "1"]})
    writer.commit([writer.write(iter([batch])), writer.write(iter([]))])
    receiving.end()
    assert len(taken.payloads) == 2
    assert not (tmp_path / "wal").exists()
    aborted = AmqpBatchWriter(given, {})
    aborted.abort([aborted.write(iter([batch])), None])
    assert not (tmp_path / "wal").exists()
    dead = tmp_path / "wal/write-dead"
    dead.mkdir(parents=True)
    (dead / "x.spool").touch()
    AmqpBatchWriter(given, {})
    assert dead.exists(), "it may be at work"
    for each in (dead / "x.spool", dead):
        os.utime(each, (1, 1))
    AmqpBatchWriter(given, {})
    assert not dead.exists()


def read_all(reader: Any) -> list[Any]:
    return [row for each in reader.partitions() for row in rows_of(reader.read(each))]


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_batch_is_not_read_exactly_once_where_the_route_does_not_give_it(
    url: str, tmp_path: Path, mode: str
) -> None:
    reader = AmqpBatchReader(options(url, "weak.read", tmp_path, mode=mode, **EXACTLY))
    with pytest.raises(PeerError, match="exactly-once needs"):
        read_all(reader)
    weaker = options(url, "weak.read", tmp_path, mode=mode, deliveryGuarantee="at-least-once")
    reader = AmqpBatchReader(weaker)
    assert read_all(reader) == []


def test_nothing_is_written_exactly_once_where_the_route_does_not_give_it(
    url: str, tmp_path: Path
) -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a"]})
    given = options(url, "weak.write", tmp_path, **EXACTLY)
    writer = AmqpBatchWriter(given, {})
    spooled = writer.write(iter([batch]))
    with pytest.raises(PeerError, match="exactly-once needs"):
        writer.commit([spooled])
    assert list(tmp_path.glob("write-*")) == []
    stream = AmqpStreamWriter(given, {"checkpointLocation": str(tmp_path / "checkpoint")})
    spooled = stream.write(iter([batch]))
    with pytest.raises(PeerError, match="exactly-once needs"):
        stream.commit([spooled], 0)


def test_a_stream_is_not_read_exactly_once_where_the_route_does_not_give_it(
    url: str, tmp_path: Path
) -> None:
    query = Query(options(url, "weak.stream", tmp_path / "many", minPartitions=2))
    query.start()
    with pytest.raises(PeerError, match="exactly-once needs"):
        query.batch()
    reader = AmqpStreamReader(options(url, "weak.stream", tmp_path / "one"))
    with pytest.raises(PeerError, match="exactly-once needs"):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
