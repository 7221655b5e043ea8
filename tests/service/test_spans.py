"""Spans of records, and the follower that reads them, without a router."""

import json
import os
from pathlib import Path

import pytest

from router.journal.block import Block, BlockFlag, open_block
from router.journal.disk import Disk
from router.journal.following import Cursor, Follower
from router.journal.keys import NO_LINK, LinkKey
from router.journal.log import Log
from router.journal.record import GuaranteeCode, LinkDescription, OutcomeCode, Resolution
from router.journal.segment import numbered, segment_name
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from router.model.trace import Hop
from router.pipeline.spans import LINGER_NS, OPEN_NS, Passing, Spans

HOP = Hop(trace=b"t" * 16, span=b"s" * 8, parent=b"p" * 8)
KEY, OTHER = DeliveryKey(b"k" * 16), DeliveryKey(b"o" * 16)
SOURCE, EAST, WEST = LinkKey(1), LinkKey(2), LinkKey(3)
LEAST, EXACT = GuaranteeCode.AT_LEAST_ONCE, GuaranteeCode.EXACTLY_ONCE
SETTLED, FANNED = 1, 0x200
ACCEPTED, REJECTED = OutcomeCode.ACCEPTED, OutcomeCode.REJECTED


def writer(incarnation: int = 1, worker: int = 1) -> RecordWriter:
    return RecordWriter(worker=worker, incarnation=incarnation)


def blocks(written: RecordWriter) -> list[Block]:
    return [open_block(memoryview(each.octets)) for each in written.take_blocks()]


def spans_of(*writers: RecordWriter) -> Spans:
    spans = Spans()
    for each in writers:
        for block in blocks(each):
            spans.take(block)
    return spans


def done(spans: Spans, now_ns: int = LINGER_NS + 100) -> list[Passing]:
    spans.tick(now_ns)
    found, spans.done = spans.done, []
    return found


def test_a_delivery_is_done_a_second_after_both_ends_have_settled() -> None:
    written = writer()
    for link, is_incoming in ((SOURCE, True), (EAST, False)):
        described = LinkDescription(
            key=link, is_incoming=is_incoming, local="r", remote=f"c{link}", name=f"l{link}",
            address="orders",
        )  # fmt: skip
        written.link_attached(1, described)
    written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST, message_octets=7)
    written.sent_run(2, SOURCE, EAST, [KEY], [b""])
    written.outcome(3, KEY, SOURCE, EAST, ACCEPTED)
    written.settled(4, KEY, SOURCE, EAST)
    written.settled(5, KEY, SOURCE)
    spans = spans_of(written)
    assert done(spans, 5 + LINGER_NS - 1) == []
    [passing] = done(spans, 5 + LINGER_NS)
    [attempt] = passing.attempts
    assert (passing.received_ns, passing.settled_ns, passing.octets) == (1, 5, 7)
    assert (attempt.sent_ns, attempt.ended_ns, attempt.outcome) == (2, 3, ACCEPTED)
    assert (passing.remote, passing.address, attempt.remote) == ("c1", "orders", "c2")
    assert not passing.is_unfinished
    assert not spans.open


def test_a_multicast_has_an_attempt_for_each_receiver() -> None:
    written = writer()
    written.traced(1, KEY, SOURCE, HOP, flags=SETTLED)
    written.sent_run(2, SOURCE, EAST, [KEY], [b""], flags=SETTLED | FANNED)
    spans = spans_of(written)
    more = writer()
    more.next_sequence = written.next_sequence
    more.sent_run(3, SOURCE, WEST, [KEY], [b""], flags=FANNED)
    for block in blocks(more):
        spans.take(block)
    assert done(spans) == []
    last = writer()
    last.outcome(4, KEY, SOURCE, WEST, ACCEPTED, flags=SETTLED)
    for block in blocks(last):
        spans.take(block)
    [passing] = done(spans)
    assert [each.target for each in passing.attempts] == [EAST, WEST]
    assert len({each.span for each in passing.attempts}) == 2


def test_a_delivery_that_is_sent_again_has_a_span_for_each_attempt() -> None:
    written = writer()
    written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    written.sent_run(2, SOURCE, EAST, [KEY], [b""])
    written.in_doubt(3, KEY, SOURCE, EAST)
    written.resolved(4, KEY, SOURCE, EAST, Resolution.SEND_AGAIN)
    written.sent_run(5, SOURCE, EAST, [KEY], [b""])
    written.outcome(6, KEY, SOURCE, EAST, ACCEPTED, flags=SETTLED)
    written.settled(6, KEY, SOURCE)
    [passing] = done(spans_of(written))
    first, second = passing.attempts
    assert (first.was_in_doubt, first.outcome, first.ended_ns) == (True, 0, 4)
    assert (second.was_in_doubt, second.outcome) == (False, ACCEPTED)
    assert first.span != second.span


def test_of_two_copies_on_one_link_each_has_its_own_end() -> None:
    written = writer()
    for _ in range(2):  # the store had it twice, and sends both in one turn
        written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    written.sent_run(2, SOURCE, EAST, [KEY, KEY], [b"", b""])
    written.outcome_run(3, SOURCE, EAST, [KEY], ACCEPTED, flags=SETTLED)
    written.outcome_run(4, SOURCE, EAST, [KEY], REJECTED, flags=SETTLED)
    written.settled(4, KEY, SOURCE)
    [passing] = done(spans_of(written))
    assert [(each.outcome, each.ended_ns) for each in passing.attempts] == [
        (ACCEPTED, 3),
        (REJECTED, 4),
    ]
    assert not passing.is_unfinished


def test_an_outcome_of_the_router_alone_completes_a_delivery() -> None:
    written = writer()
    written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    written.outcome(2, KEY, SOURCE, NO_LINK, REJECTED)
    written.settled(2, KEY, SOURCE)
    [passing] = done(spans_of(written))
    assert (passing.outcome, passing.attempts) == (REJECTED, [])


@pytest.mark.parametrize("guarantee", [LEAST, EXACT])
def test_what_dies_with_its_worker_ends_and_what_is_exact_goes_on(guarantee: int) -> None:
    written, following = writer(), writer(2)
    written.traced(1, KEY, SOURCE, HOP, guarantee=guarantee)
    written.sent_run(2, SOURCE, EAST, [KEY], [b""])
    following.gap(3, 1)
    spans = spans_of(written, following)
    ended = done(spans)
    assert [each.is_unfinished for each in ended] == ([True] if guarantee == LEAST else [])
    if guarantee == EXACT:
        going_on = writer(2)
        going_on.outcome(4, KEY, SOURCE, EAST, ACCEPTED, flags=SETTLED)
        going_on.settled(5, KEY, SOURCE)
        for block in blocks(going_on):
            spans.take(block)
        [passing] = done(spans)
        assert not passing.is_unfinished


def test_another_worker_s_new_life_ends_nothing() -> None:
    written, other = writer(), writer(9, worker=2)
    written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    other.gap(3, 1)
    assert done(spans_of(written, other)) == []


def test_what_stays_open_for_an_hour_ends_as_it_is() -> None:
    written = writer()
    written.traced(1, KEY, SOURCE, HOP, guarantee=EXACT)
    spans = spans_of(written)
    assert done(spans, OPEN_NS) == []
    [passing] = done(spans, OPEN_NS + 1)
    assert passing.is_unfinished


def test_what_is_open_is_kept_beside_the_cursor() -> None:
    written, following = writer(), writer()
    written.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    written.sent_run(2, SOURCE, EAST, [KEY], [b""])
    written.traced(1, OTHER, SOURCE, HOP, flags=SETTLED)
    written.sent_run(2, SOURCE, EAST, [OTHER], [b""], flags=SETTLED)
    before = spans_of(written)
    after = Spans()
    after.load(json.loads(json.dumps(before.dump())))
    assert after.dump() == before.dump()
    [complete] = done(after)
    assert complete.key == OTHER
    following.outcome(4, KEY, SOURCE, EAST, ACCEPTED, flags=SETTLED)
    following.settled(5, KEY, SOURCE)
    for block in blocks(following):
        after.take(block)
    [passing] = done(after)
    assert passing.hop == HOP
    assert passing.attempts[0].outcome == ACCEPTED


def test_records_about_what_is_not_traced_cost_nothing() -> None:
    written = writer()
    written.received(1, KEY, SOURCE, b"")
    written.sent_run(2, SOURCE, EAST, [KEY], [b""])
    written.settled(3, KEY, SOURCE)
    spans = spans_of(written)
    assert (spans.open, done(spans)) == ({}, [])


# The follower


class Stage:
    """A state directory that a log writes, and a follower of it."""

    def __init__(self, state: Path, *, buffer_octets: int = 1 << 30) -> None:
        self.state = state
        (state / "spans").mkdir(parents=True)
        self.log = Log(
            state / "journal", "r", disk=Disk(), incarnation=1, segment_octets=1 << 20,
            reserve_octets=32 << 10,
        )  # fmt: skip
        self.log.open(1)
        self.writer = writer()
        self.follower = Follower(state, state / "spans", buffer_octets)
        self.cursor = Cursor()

    def write(self, count: int) -> None:
        for _ in range(count):
            self.writer.gap(1, 1)
        for each in self.writer.take_blocks():
            self.log.append(each.octets, [open_block(memoryview(each.octets))])
        self.log.commit(1)

    def fill(self) -> int:
        """Writes until another segment begins; returns how many records."""
        number, count = self.log.number, 0
        while self.log.number == number:
            self.write(1000)
            count += 1000
        return count

    def read(self) -> int:
        """How many records of workers are behind the cursor, which moves there."""
        self.follower.look(self.cursor)
        count = 0
        for block, cursor in self.follower.blocks(self.cursor):
            self.cursor = cursor
            count += 0 if block.flags & BlockFlag.OWN else block.row_count
        return count

    @property
    def kept(self) -> list[int]:
        return numbered(os.listdir(self.state / "spans"), "segment")


def test_a_follower_reads_each_record_once_while_the_log_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.read() == 0
    for count in (1, 7, 3000):
        stage.write(count)
        assert stage.read() == count
        assert stage.read() == 0
    count = stage.fill() + stage.fill()
    stage.write(5)
    assert stage.read() == count + 5
    assert stage.read() == 0


def test_unread_segments_are_kept_when_the_journal_lets_them_go(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write(3)
    stage.follower.look(stage.cursor)
    count = 3 + stage.fill()
    (tmp_path / "journal" / segment_name(1)).unlink()
    stage.write(2)
    assert stage.read() == count + 2
    stage.follower.look(stage.cursor)
    assert stage.kept == [stage.log.number]
    assert stage.follower.dropped == 0


def test_beyond_the_bound_the_oldest_unread_segments_are_dropped_and_counted(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, buffer_octets=2 << 20)
    for _ in range(4):
        last = stage.fill()
        stage.follower.look(stage.cursor)
    assert stage.follower.dropped > 0
    assert stage.kept[-1] == stage.log.number
    assert sum((tmp_path / "spans" / segment_name(n)).stat().st_size for n in stage.kept) <= 2 << 20
    assert last <= stage.read() < 4 * last


def test_a_follower_that_begins_again_goes_on_at_its_cursor_and_knows_the_links(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    described = LinkDescription(
        key=SOURCE, is_incoming=True, local="r", remote="client", name="l", address="orders"
    )
    stage.writer.link_attached(1, described)
    stage.write(3)
    assert stage.read() == 4
    stage.write(2)
    again, spans = Follower(tmp_path, tmp_path / "spans", 1 << 30), Spans()
    again.look(stage.cursor)
    for block in again.heads(stage.cursor):
        spans.learn(block)
    stage.writer.traced(1, KEY, SOURCE, HOP, guarantee=LEAST)
    stage.write(0)
    found = [block for block, _ in again.blocks(stage.cursor)]
    for block in found:
        spans.take(block)
    assert sum(block.row_count for block in found if not block.flags & BlockFlag.OWN) == 3
    [passing] = spans.open.values()
    assert (passing.remote, passing.address) == ("client", "orders")
    assert spans.router == "r"


def test_records_behind_damage_are_read_once_the_segment_is_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write(1)
    path = tmp_path / "journal" / segment_name(1)
    at = path.read_bytes().rstrip(b"\0").rindex(b"JBLK")
    stage.write(2)
    stage.write(4)
    with path.open("r+b") as file:
        file.seek(at + 50)
        file.write(b"damage")
    stage.follower.look(stage.cursor)
    count = stage.fill()
    stage.log.close(2)
    assert stage.read() == count + 6
