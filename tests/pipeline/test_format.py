"""``format("amqp")`` in Spark's hands: batches, a stream that ends, and what is refused."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.errors import StreamingQueryException

from router.net.client.message import numbered
from router.pipeline.amqp.dialogue import Dialogue
from router.wire.v1_0.sections import decode_message
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.spark_jobs import SLOW_WORKER, Taken, receiver, sender

pytestmark = pytest.mark.long

CONFIG = """
router: {{id: spark, workers: 1, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes: [{{address: "#", guarantee: exactly-once, unroutable: hold}}]
"""
COUNT = 20
PATIENT = {"idleTimeoutMs": 120_000}
"""A read ends with its last delivery, however long a busy machine takes to bring it."""


@attrs.frozen
class Bench:
    """A router, and a directory for one test."""

    spark: Any
    url: str
    folder: Path

    def offer(self, address: str) -> Dialogue:
        """Has messages wait at an address; the dialogue ends when all of them were accepted."""
        return sender(self.url, address, numbered(b"body", COUNT))

    def options(self, address: str, **more: Any) -> dict[str, str]:
        given = {"amqp.url": self.url, "address": address, "walDir": str(self.folder / "wal")}
        return given | {name: str(value) for name, value in more.items()}

    def read(self, address: str, **more: Any) -> list[Any]:
        rows = self.spark.read.format("amqp").options(**self.options(address, **more)).load()
        found: list[Any] = rows.select("message_id", "body", "address", "message").collect()
        return found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("router"), free_port()
    with running_router(CONFIG.format(state=folder / "state", port=port), folder):
        yield f"amqp://127.0.0.1:{port}"


@pytest.fixture
def bench(spark: Any, url: str, tmp_path: Path) -> Bench:
    return Bench(spark, url, tmp_path)


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(row.message_id) for row in rows)


def test_a_batch_browses_and_gives_back_or_consumes_what_is_there_and_no_more(
    bench: Bench,
) -> None:
    offered = bench.offer("lot")
    browsed = bench.read("lot", maxDeliveriesPerTrigger=15, minPartitions=2, **PATIENT)
    assert numbers(browsed) == list(range(15)), "bounded"
    assert {(bytes(row.body), row.address) for row in browsed} == {(b"body", "lot")}
    assert not offered.is_over, "given back: nobody has accepted anything"
    taken = bench.read("lot", mode="consume", maxDeliveriesPerTrigger=15, **PATIENT)
    rest = bench.read("lot", mode="consume", maxDeliveriesPerTrigger=5, **PATIENT)
    assert numbers([*taken, *rest]) == list(range(COUNT))
    offered.wait_end()
    assert bench.read("lot", mode="consume", idleTimeoutMs=200) == []


def test_a_batch_is_written_from_columns_and_from_whole_messages(bench: Bench) -> None:
    taken = Taken()
    receiving = receiver(bench.url, "made", taken)
    rows = bench.spark.createDataFrame(
        [(str(number), f"text {number}", "letter") for number in range(COUNT)],
        "message_id string, value string, subject string",
    )
    rows.write.format("amqp").options(**bench.options("made")).mode("append").save()
    assert sorted(taken.numbers.elements()) == list(range(COUNT)), "all were accepted on return"
    made = [decode_message(payload) for payload in taken.payloads]
    assert {each.properties.subject for each in made if each.properties} == {"letter"}
    assert {b"".join(each.data) for each in made} == {b"text %d" % n for n in range(COUNT)}
    receiving.end()

    offered = bench.offer("one")
    options = bench.options("one", mode="consume", maxDeliveriesPerTrigger=COUNT, **PATIENT)
    read = bench.spark.read.format("amqp").options(**options).load()
    again = Taken()
    receiving = receiver(bench.url, "two", again)
    other = bench.options("two") | {"walDir": str(bench.folder / "other")}
    read.select("message").write.format("amqp").options(**other).mode("append").save()
    offered.wait_end()
    receiving.end()
    assert sorted(map(bare, again.payloads)) == sorted(map(bare, numbered(b"body", COUNT)))


def bare(payload: bytes) -> bytes:
    """Gives a message without what each hop may change."""
    return payload[payload.index(b"\x00\x53\x73") :]


def test_a_stream_at_least_once_ends_settled_and_tells_its_backlog(bench: Bench) -> None:
    offered = bench.offer("flow")
    options = bench.options(
        "flow", deliveryGuarantee="at-least-once", maxDeliveriesPerTrigger=8, idleTimeoutMs=2000
    )
    told: list[Any] = []
    while not offered.is_over:  # the settle tick has the last ones accepted
        query = (
            bench.spark.readStream.format("amqp")
            .options(**options)
            .load()
            .select("message_id")
            .writeStream.format("parquet")
            .option("path", str(bench.folder / "out"))
            .option("checkpointLocation", str(bench.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with contextlib.suppress(StreamingQueryException):
            assert query.awaitTermination(600)
        failure = query.exception()
        assert failure is None or SLOW_WORKER in str(failure), failure
        told += query.recentProgress
    found = bench.spark.read.parquet(str(bench.folder / "out")).collect()
    assert set(numbers(found)) == set(range(COUNT))
    backlogs = [json.loads(each["sources"][0]["latestOffset"]) for each in told]
    assert all({"seq", "waiting", "uncommitted", "unsettled"} <= each.keys() for each in backlogs)
    assert max(each["uncommitted"] for each in backlogs) > 0
    assert max(each["seq"] for each in backlogs) >= COUNT


def test_a_stream_by_several_links_has_each_message_once_and_ends_settled(bench: Bench) -> None:
    offered = bench.offer("wide")
    options = bench.options("wide", minPartitions=2, maxDeliveriesPerTrigger=12, idleTimeoutMs=1000)
    while not offered.is_over:  # a machine too slow for Spark's workers has it begun again
        query = (
            bench.spark.readStream.format("amqp")
            .options(**options)
            .load()
            .select("message_id", "sequence")
            .writeStream.format("parquet")
            .option("path", str(bench.folder / "out"))
            .option("checkpointLocation", str(bench.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with contextlib.suppress(StreamingQueryException):
            assert query.awaitTermination(600)
        failure = query.exception()
        assert failure is None or SLOW_WORKER in str(failure), failure
    found = bench.spark.read.parquet(str(bench.folder / "out")).collect()
    assert numbers(found) == list(range(COUNT))
    assert len({row.sequence for row in found}) == COUNT


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda given: given.pop("walDir"), "option walDir is missing"),
        (lambda given: given.update(wallDir="x"), "option walldir is not known"),
        (lambda given: given.update(deliveryGuarantee="twice"), "'twice' is none of exactly-once"),
        (lambda given: given.update({"amqp.url": "http://x"}), "does not begin with amqp://"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    bench: Bench, change: Callable[[dict[str, str]], Any], reason: str
) -> None:
    given = bench.options("none")
    change(given)
    with pytest.raises(Exception, match=reason):
        bench.spark.read.format("amqp").options(mode="consume", **given).load().collect()
