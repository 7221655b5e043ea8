"""An exporter of spans whose collector is away for long: memory, disk, and what is counted."""

import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from router.journal.block import open_block
from router.journal.disk import Disk
from router.journal.keys import LinkKey
from router.journal.log import Log
from router.journal.record import GuaranteeCode, OutcomeCode
from router.journal.segment import segment_name
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from router.model.trace import Hop
from router.pipeline import otel, spans
from router.pipeline.collector import Answer
from router.pipeline.otel import Exporter, Health

SEGMENT_OCTETS, BUFFER_OCTETS = 1 << 20, 4 << 20
ROUNDS = 20
"""Segments that are written while the collector is away; a tenth of them may be kept."""

SOURCE, TARGET = LinkKey(1), LinkKey(2)
SETTLED = 1


class Traffic:
    """A journal with traced deliveries, which lets its segments go as soon as they are full."""

    def __init__(self, state: Path) -> None:
        self.state, self.count = state, 0
        (self.state / "spans").mkdir()
        self.log = Log(
            self.state / "journal", "r", disk=Disk(), incarnation=1,
            segment_octets=SEGMENT_OCTETS, reserve_octets=32 << 10,
        )  # fmt: skip
        self.log.open(time.time_ns())
        self.writer = RecordWriter(worker=1, incarnation=1)

    def fill(self) -> None:
        """Writes until a segment is full, and removes the one before."""
        number = self.log.number
        while self.log.number == number:
            now_ns = time.time_ns()
            for _ in range(200):
                self.count += 1
                key = DeliveryKey(self.count.to_bytes(16, "big"))
                hop = Hop(trace=key, span=key[8:], parent=bytes(7) + b"p")
                self.writer.traced(now_ns, key, SOURCE, hop, guarantee=GuaranteeCode.AT_LEAST_ONCE)
                self.writer.sent_run(now_ns, SOURCE, TARGET, [key], [b"t"])
                accepted = OutcomeCode.ACCEPTED
                self.writer.outcome(now_ns, key, SOURCE, TARGET, accepted, flags=SETTLED)
                self.writer.settled(now_ns, key, SOURCE)
            for each in self.writer.take_blocks():
                self.log.append(each.octets, [open_block(memoryview(each.octets))])
            self.log.commit(now_ns)
        (self.state / "journal" / segment_name(number)).unlink()

    @property
    def kept_octets(self) -> int:
        """Octets of the segments that are kept for the exporter."""
        return sum(each.stat().st_size for each in (self.state / "spans").glob("segment*"))


def test_memory_and_disk_are_bounded_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal goes on between two tries; the collector is away again after a moment."""
    monkeypatch.setattr(otel, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(otel, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(spans, "OPEN_MOST", 1000)  # so that a backlog is sent while it is read
    traffic = Traffic(tmp_path)
    seen: set[int] = set()
    told: list[Health] = []
    memory: list[int] = []
    disk: list[int] = []

    def send(batch: Sequence[Any]) -> Answer:
        if len(memory) < ROUNDS or (len(seen) > 3000 and len(memory) < 2 * ROUNDS):
            traffic.fill()
            memory.append(tracemalloc.get_traced_memory()[0])
            disk.append(traffic.kept_octets)
            return Answer(reason="away", is_temporary=True)
        seen.update(each.context.trace_id for each in batch)
        return Answer()

    exporter = Exporter(
        state=tmp_path,
        send=send,
        where="collector",
        buffer_octets=BUFFER_OCTETS,
        report=told.append,
        is_wanted=lambda: max(seen, default=0) < traffic.count,
    )
    traffic.fill()
    tracemalloc.start()
    try:
        exporter.run(follows=True)
    finally:
        tracemalloc.stop()
    assert max(disk) <= BUFFER_OCTETS + 2 * SEGMENT_OCTETS
    for first in (0, ROUNDS):
        away = memory[first + ROUNDS // 4 : first + ROUNDS]
        assert max(away) - away[0] < 1 << 18, "it does not grow while the collector is away"
    assert max(memory) < 20 << 20
    assert any(each.trouble for each in told)
    dropped = told[-1].dropped
    assert 2 * ROUNDS - 8 <= dropped <= 2 * ROUNDS + 1
    assert max(seen) == traffic.count, "the latest are there"
    share = traffic.count // (2 * ROUNDS + 1)
    assert len(seen) + dropped * share == pytest.approx(traffic.count, rel=0.1)
