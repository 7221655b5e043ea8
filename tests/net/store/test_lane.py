"""What is stored leaves by the express lane: the same becomes of it as on the general path."""

import random

import pytest

from router.model.outcome import MODIFIED_FAILED, RELEASED, Rejected
from tests.support.kernel import needs_kernel
from tests.support.stored_lane import StoredLane

pytestmark = needs_kernel

MODES = ("off", "cython")


def begun(mode: str = "cython", count: int = 3000, **fields: object) -> StoredLane:
    """Begins with messages that are stored, a store and a target."""
    lane = StoredLane(mode)
    lane.fill(range(count), **fields)  # type: ignore[arg-type]
    lane.connect()
    lane.dial()
    lane.settle_down()
    return lane


def drained(lane: StoredLane) -> None:
    """The target takes all that is stored."""
    for _ in range(1000):
        if not lane.messages:
            return
        lane.answer()
        lane.grant(lane.credit)
        lane.settle_down()
        lane.wait(1.0)
    raise AssertionError(f"{lane.messages} messages stay")


def test_messages_leave_by_the_lane_in_their_order_and_are_gone() -> None:
    lane = begun()
    assert lane.brought >= 1000
    drained(lane)
    assert lane.received() == [*range(3000)]


def test_what_the_worker_cannot_read_itself_comes_over_the_socket_in_its_order() -> None:
    lane = StoredLane("cython", credit=300)
    lane.fill(range(3000))
    lane.connect()
    lane.dial()
    for step in range(20):
        lane.waits_for_disk = step % 2 == 1
        lane.settle_down()
        lane.answer(200)
        lane.grant(300)
    lane.waits_for_disk = False
    drained(lane)
    assert 0 < lane.unread < lane.referred
    assert lane.received() == [*range(3000)]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_worker_that_cannot_tell_whether_it_would_wait_gets_runs_over_the_socket(
    *, is_known: bool
) -> None:
    lane = StoredLane("cython", credit=300)
    lane.fill(range(3000))
    lane.waits_for_disk = lane.becomes_unable = True
    lane.is_unable = is_known
    lane.connect()
    lane.dial()
    lane.settle_down()
    drained(lane)
    assert lane.referred == (0 if is_known else 1)
    assert lane.received() == [*range(3000)]
    assert lane.brought > 1000


@pytest.mark.parametrize("octets", [1, 40, 1000, 30_000])
def test_messages_arrive_as_they_were_stored(octets: int) -> None:
    lanes = [begun(mode, 40, size=max(8, octets)) for mode in MODES]
    for lane in lanes:
        drained(lane)
    assert lanes[0].received() == lanes[1].received() == [*range(40)]


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED])
def test_what_the_target_returns_is_sent_again_first(state: object) -> None:
    lane = begun(count=2000)
    lane.answer(3)
    lane.settle_down()
    lane.answer(2, state)  # type: ignore[arg-type]
    lane.settle_down()
    lane.wait(1.0)
    drained(lane)
    assert [*dict.fromkeys(lane.received())] == [*range(2000)]
    again = [each for each in range(2000) if lane.received().count(each) > 1]
    assert again == [3, 4]


def test_what_the_target_rejects_is_a_dead_letter() -> None:
    lane = begun(count=2000)
    lane.answer(5)
    rejected = lane.answer(2, Rejected())
    lane.settle_down()
    assert rejected == [5, 6]
    drained(lane)
    assert sorted(lane.received("dead")) == [5, 6]
    assert lane.received() == [*range(2000)]


def test_what_does_not_fit_the_lane_takes_its_turn() -> None:
    """Messages with a time to live, with a key, of an earlier failure, and of another protocol."""
    lanes = []
    for mode in MODES:
        lane = StoredLane(mode)
        lane.fill(range(100))
        lane.fill(range(100, 110), ttl_milliseconds=10_000_000)
        lane.fill(range(110, 300))
        lane.fill(range(300, 310), has_key=True)
        lane.fill(range(310, 500))
        lane.fill(range(500, 510), delivery_count=2)
        lane.fill(range(510, 700))
        lane.connect()
        lane.dial()
        lane.settle_down()
        drained(lane)
        lanes.append(lane)
    assert lanes[1].brought
    assert lanes[0].received() == lanes[1].received() == [*range(700)]


def test_what_a_lost_target_had_is_sent_to_the_next_one_in_order() -> None:
    lane = begun()
    lane.answer(10)
    lane.settle_down()
    lane.lose_cloud()
    lane.settle_down()
    lane.dial()
    lane.wait(1.0)
    drained(lane)
    assert lane.received()[-2990:] == [*range(10, 3000)]


def test_what_was_accepted_in_the_turn_in_which_the_store_is_lost_is_not_sent_again() -> None:
    lane = begun()
    lane.answer(100)
    lane.hear_cloud()  # the lane has noted the outcomes, and the store has not been told
    lane.lose_store(1)
    lane.connect()
    lane.wait(1.0)
    drained(lane)
    again = [number for number in range(3000) if lane.received().count(number) > 1]
    assert not [number for number in again if number < 100]
    assert [*dict.fromkeys(lane.received())] == [*range(3000)]


@pytest.mark.parametrize("block", range(4))
def test_whatever_happens_messages_leave_in_order_as_on_the_general_path(block: int) -> None:
    lanes = 0
    for seed in range(block * 5, block * 5 + 5):
        reference, found = conversation("off", seed), conversation("cython", seed)
        assert ends(reference) == ends(found)
        lanes += found.brought
    assert lanes, "the lane was not tried"


@pytest.mark.slow
def test_whatever_happens_in_many_conversations_messages_leave_in_order() -> None:
    for seed in range(1000, 1400):
        assert ends(conversation("off", seed)) == ends(conversation("cython", seed))


def ends(lane: StoredLane) -> dict[str, list[int]]:
    """Returns what came, in the order in which it first did, by address; wants that in order."""
    addresses = {place.address for cloud in lane.clouds for place in cloud.places.values()}
    found = {address: [*dict.fromkeys(lane.received(address))] for address in addresses}
    assert all(numbers == sorted(numbers) for numbers in found.values()), "first in first out"
    return found


def conversation(mode: str, seed: int) -> StoredLane:
    """Has a target and a store do what they like, until all that was stored has left."""
    chance = random.Random(seed)
    reads_files = chance.random() < 0.8
    lane = StoredLane(mode, credit=chance.choice([20, 300, 1000]), reads_files=reads_files)
    addresses = ["telemetry.a", "telemetry.b", "telemetry.c"][: chance.randint(1, 3)]
    number = 0
    for _ in range(chance.randint(4, 9)):
        count = chance.choice([3, 30, 300, 600])
        fields = chance.choice([{}, {}, {}, {"has_key": True}, {"delivery_count": 1}])
        lane.fill(range(number, number + count), chance.choice(addresses), **fields)  # type: ignore[arg-type]
        number += count
    lane.connect()
    lane.dial()
    losses = chance.randint(0, 3)
    for _ in range(60):
        lane.settle_down() if chance.random() < 0.5 else lane.end_turn()
        lane.is_committing = chance.random() < 0.8
        lane.waits_for_disk = chance.random() < 0.1
        match chance.randint(0, 11):
            case 0 if losses:
                losses -= 1
                lane.lose_cloud()
                lane.settle_down()
                lane.dial()
            case 1 if losses:
                losses -= 1
                lane.lose_store(chance.randint(1, 1000))
                lane.connect()
            case 2:
                lane.grant(chance.choice([1, 50, lane.credit]))
            case 3:
                lane.hear_store()
            case 4:
                lane.hear_cloud()
            case 5:
                lane.answer(chance.randint(1, 5), RELEASED)
            case 6:
                lane.wait(chance.choice([0.2, 1.0, 2.0]))
            case 7:
                lane.commit()
            case _:
                lane.answer(chance.randint(1, 400))
    lane.is_committing, lane.waits_for_disk = True, False
    lane.commit()
    drained(lane)
    return lane
