from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.confirms import Confirms, Unconfirmed, encode_ack, encode_nack
from router.wire.v0_9_1.framing import METHOD, frame


def acks(octets: bytes) -> Iterator[m.BasicAck | m.BasicNack]:
    """Reads frames of acks and nacks."""
    for start in range(0, len(octets), 21):
        method = CODEC.decode(octets, start + 7, start + 20)
        assert isinstance(method, m.BasicAck | m.BasicNack)
        yield method


@pytest.mark.parametrize("number", [1, 255, 1 << 40])
@pytest.mark.parametrize("multiple", [True, False])
def test_hand_made_frames_are_those_of_the_table(number: int, multiple: bool) -> None:
    assert encode_ack(7, number, multiple) == frame(
        METHOD, 7, CODEC.encode(m.BasicAck(number, multiple))
    )
    for requeue in (True, False):
        assert encode_nack(7, number, multiple, requeue) == frame(
            METHOD, 7, CODEC.encode(m.BasicNack(number, multiple, requeue))
        )


def test_what_is_decided_in_order_is_one_frame() -> None:
    confirms = Confirms()
    confirms.decide([1, 2], True)
    confirms.decide(range(3, 6), True)
    assert confirms.is_due
    assert list(acks(confirms.frames(1))) == [m.BasicAck(5, True)]
    confirms.decide([6], True)
    assert list(acks(confirms.frames(1))) == [m.BasicAck(6, False)]


def test_what_is_decided_early_is_told_at_once_and_never_again() -> None:
    confirms = Confirms()
    confirms.decide([1, 2, 3, 5], True)
    assert list(acks(confirms.frames(1))) == [m.BasicAck(5, False), m.BasicAck(3, True)]
    confirms.decide([4], True)
    assert list(acks(confirms.frames(1))) == [m.BasicAck(4, False)]
    confirms.decide([6, 7], True)
    assert list(acks(confirms.frames(1))) == [m.BasicAck(7, True)]


def test_a_nack_is_told_before_the_ack_that_passes_it() -> None:
    confirms = Confirms()
    confirms.decide([2], False)
    confirms.decide([1, 3], True)
    assert list(acks(confirms.frames(1))) == [m.BasicNack(2, False, False), m.BasicAck(3, True)]


@given(st.data(), st.integers(1, 40))
def test_a_publisher_learns_every_outcome_once_whatever_the_order(
    data: st.DataObject, count: int
) -> None:
    outcomes = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    order = data.draw(st.permutations(range(1, count + 1)))
    confirms = Confirms()
    publisher: Unconfirmed[int] = Unconfirmed()
    for number in range(1, count + 1):
        publisher.publish(number)
    learned: dict[int, bool] = {}
    while order:
        size = data.draw(st.integers(1, len(order)))
        run, order = order[:size], order[size:]
        for number in run:
            confirms.decide([number], outcomes[number - 1])
        for method in acks(confirms.frames(1)):
            for number in publisher.decided(method.delivery_tag, method.multiple):
                assert number not in learned
                learned[number] = isinstance(method, m.BasicAck)
    assert learned == {number: outcomes[number - 1] for number in range(1, count + 1)}
    assert not publisher.open


def test_a_broker_may_decide_all_and_may_repeat_itself() -> None:
    publisher: Unconfirmed[str] = Unconfirmed()
    for item in "abc":
        publisher.publish(item)
    assert publisher.decided(2, False) == ["b"]
    assert publisher.decided(2, False) == []
    assert publisher.decided(99, False) == []
    assert publisher.decided(0, True) == ["a", "c"]
    assert publisher.decided(3, True) == []
