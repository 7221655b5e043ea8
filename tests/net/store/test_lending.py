"""What the store has lent an inlet waits for credit there, and nothing overtakes it."""

import struct

import pytest

from router.journal.store.queues import Bounds, QueueKey
from router.journal.store.references import RunReference, Spot
from router.model.identity import LinkId
from router.net.store.inlet import Inlet, Name
from router.net.store.lending import AHEAD, SLICE_OCTETS, Lending
from router.net.store.patience import HOLD_MESSAGES, HOLD_SECONDS
from tests.support.kernel import needs_kernel
from tests.support.stored import ROUTE
from tests.support.stored_lane import StoredLane

pytestmark = needs_kernel

CREDIT = 100
WIDE = 1000
SECOND_NS = 1_000_000_000


def lent(count: int = 3000, bounds: Bounds | None = None, **fields: object) -> StoredLane:
    """Begins with messages of which the target takes some; the store has lent many more."""
    lane = StoredLane("cython", credit=CREDIT)
    lane.fill(range(count), **fields)  # type: ignore[arg-type]
    lane.connect(bounds)
    lane.dial()
    lane.settle_down()
    for _ in range(3):  # the node is on the lane by now
        lane.answer()
        lane.grant(CREDIT)
        lane.settle_down()
    assert lane.brought
    assert taken(lane) > 10 * CREDIT
    return lane


def taken(lane: StoredLane) -> int:
    """Returns how many messages the worker has, for all that the store knows."""
    return lane.host.log.store.taken


def drained(lane: StoredLane, credit: int = CREDIT) -> None:
    """The target takes all that is stored."""
    for _ in range(1000):
        if not lane.messages:
            return
        lane.answer()
        lane.grant(credit)
        lane.settle_down()
        lane.wait(0.5)
    raise AssertionError(f"{lane.messages} messages stay")


def test_messages_are_lent_far_ahead_of_credit_and_read_with_it() -> None:
    lane = lent(2 * AHEAD)
    assert taken(lane) <= AHEAD + CREDIT * 10
    assert len(lane.received()) <= 6 * CREDIT
    drained(lane)
    assert lane.received() == [*range(2 * AHEAD)]


def reference(segment: int, first: int, count: int) -> RunReference:
    """Refers to messages of one block that stand side by side."""
    positions = struct.pack(f"<{count}I", *range(80 * first, 80 * (first + count), 80))
    spots = [Spot(40, 4000, positions)]
    return RunReference(ROUTE, QueueKey(1), b"a", segment, 8 << 20, spots)


def test_what_is_lent_of_one_segment_is_read_in_slices_of_one_size() -> None:
    lending, inlet = Lending(), Inlet(Name(ROUTE, b"a", False), LinkId(1), announced={4})
    for each in (reference(3, 1, 100), reference(3, 101, 450), reference(4, 1, 30)):
        lending.add(inlet, each)
    lending.was_read(inlet, 1, SLICE_OCTETS // 400)
    taken = []
    while (found := lending.take(inlet, 1000)) is not None:
        taken.append(found)
    assert [(each.segment, each.messages) for each in taken] == [(3, 275), (3, 275), (4, 30)]
    places = [place for each in taken for place in each.places]
    assert places == sorted(places)
    assert len(set(places)) == 580
    assert not lending.has(inlet)


def test_what_is_more_urgent_goes_before_what_is_lent() -> None:
    lane = lent()
    before = len(lane.received())
    lane.fill(range(3000, 3010), priority=9)
    drained(lane)
    received = lane.received()
    urgent = [received.index(each) for each in range(3000, 3010)]
    assert max(urgent) < before + 2 * CREDIT
    assert [each for each in received if each < 3000] == [*range(3000)]


def test_what_the_core_is_told_of_takes_credit_before_it_has_it() -> None:
    lane = StoredLane("cython", credit=0)
    lane.fill(range(6000), has_key=True)  # the lane leaves these to the core
    lane.connect()
    lane.dial()
    lane.settle_down()
    lane.grant(1200)  # a link is granted 1000 at once
    lane.settle_down()
    assert lane.received() == [*range(1200)]
    lane.fill(range(6000, 6010), priority=9, has_key=True)
    drained(lane)
    received = lane.received()
    urgent = [received.index(each) for each in range(6000, 6010)]
    assert max(urgent) < 2 * 1000 + CREDIT
    assert [each for each in received if each < 6000] == [*range(6000)]


def test_what_is_not_usual_stays_between_what_is_lent() -> None:
    lane = StoredLane("cython", credit=CREDIT)
    lane.fill(range(500))
    lane.fill(range(500, 510), ttl_milliseconds=10_000_000)
    lane.fill(range(510, 1500))
    lane.connect()
    lane.dial()
    lane.settle_down()
    drained(lane)
    assert lane.brought
    assert lane.received() == [*range(1500)]


@pytest.mark.parametrize("usual", [70, 500])
@pytest.mark.parametrize("event", ["urgent", "disk", "old", "lost"])
def test_nothing_that_waits_overtakes_what_is_lent_and_recalled(event: str, usual: int) -> None:
    lane = StoredLane("cython", credit=0)
    lane.fill(range(usual))
    lane.fill(range(usual, usual + 10), ttl_milliseconds=10_000_000)
    lane.fill(range(usual + 10, 1500))
    lane.connect(Bounds(age_ns=10_000 * SECOND_NS))
    lane.dial()
    lane.settle_down()
    for _ in range(3):
        lane.grant(20)
        lane.settle_down()
        lane.answer()
        lane.settle_down()
    match event:
        case "urgent":
            lane.fill([1500], priority=9)
        case "disk":
            lane.waits_for_disk = True
            lane.grant(1)
            lane.settle_down()
            lane.waits_for_disk = False
        case "old":
            for _ in range(3):
                lane.wait(2.0)
        case _:
            lane.lose_cloud()
            lane.dial()
    lane.settle_down()
    drained(lane)
    assert [each for each in lane.received() if each < 1500] == [*range(1500)]


def test_what_cannot_be_lent_does_not_come_ahead_of_credit() -> None:
    lane = StoredLane("cython", credit=0)
    lane.fill(range(6000), ttl_milliseconds=10_000_000)
    lane.connect()
    lane.dial()
    lane.settle_down()
    for _ in range(5):
        lane.grant(CREDIT)
        lane.settle_down()
        lane.answer()
        lane.settle_down()
        assert taken(lane) <= 2 * CREDIT
    drained(lane)
    assert lane.received() == [*range(6000)]


def test_what_is_lent_becomes_too_old_while_the_target_takes_nothing() -> None:
    lane = lent(bounds=Bounds(age_ns=20 * SECOND_NS))
    had = len(lane.received())
    for _ in range(15):
        lane.wait(2.0)
    for _ in range(400):
        lane.answer(address="dead")
        lane.grant(CREDIT)
        lane.settle_down()
        lane.wait(2.0)
        if len(lane.received("dead")) >= 3000 - had:
            break
    assert sorted({*lane.received("dead")} | {*range(had)}) == [*range(3000)]


def test_the_disk_is_waited_for_by_the_store_alone() -> None:
    lane = lent()
    for step in range(12):
        lane.waits_for_disk = step % 3 == 1
        lane.answer()
        lane.grant(CREDIT)
        lane.settle_down()
    assert lane.unread
    lane.waits_for_disk = False
    drained(lane)
    assert lane.received() == [*range(3000)]


def test_what_is_lent_to_a_worker_that_is_lost_is_sent_by_the_next_connection() -> None:
    lane = lent()
    lane.lose_store(1)
    lane.connect()
    lane.wait(1.0)
    drained(lane)
    assert [*dict.fromkeys(lane.received())] == [*range(3000)]


def test_that_messages_are_gone_is_told_after_a_moment() -> None:
    lane = lent()
    lane.wait(2 * HOLD_SECONDS)
    held = lane.messages
    lane.answer(10)
    lane.settle_down()
    assert lane.messages == held
    lane.wait(2 * HOLD_SECONDS)
    assert lane.messages == held - 10


def test_an_address_gets_credit_when_little_is_left_and_reads_many_messages_at_once() -> None:
    lane = StoredLane("cython", credit=WIDE, window=50)
    lane.fill(range(4 * AHEAD))
    lane.connect()
    lane.dial()
    lane.settle_down()
    drained(lane, WIDE)
    assert lane.received() == [*range(4 * AHEAD)]
    assert lane.referred <= 30


def test_that_many_messages_are_gone_is_told_at_once() -> None:
    lane = lent(3 * HOLD_MESSAGES)
    lane.wait(2 * HOLD_SECONDS)
    held = lane.messages
    for _ in range(2 * HOLD_MESSAGES // CREDIT):
        lane.answer()
        lane.grant(CREDIT)
        lane.settle_down()
    assert lane.messages <= held - HOLD_MESSAGES


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_lent_to_a_target_that_is_lost_comes_in_order(seed: int) -> None:
    lane = lent()
    lane.lose_cloud()
    lane.settle_down()
    lane.wait(float(seed))
    lane.dial()
    lane.wait(1.0)
    drained(lane)
    assert [*dict.fromkeys(lane.received())] == [*range(3000)]
