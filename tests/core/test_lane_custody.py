"""Deliveries that their senders settle before they hear an outcome (§2.6.12), on the lane and off.

They are in the router's custody from then on: what a receiver gives back goes to it again, for the
sender would not know it any more.
"""

import pytest

from router.model.outcome import ACCEPTED, RELEASED, DeliveryState
from router.model.terminus import Role
from tests.support.kernel import MODES
from tests.support.lane_reference import Worker
from tests.support.lane_world import disposition
from tests.support.one_line import grant, one_line, payload, received, send


def _settle(worker: Worker, first: int, last: int, state: DeliveryState | None) -> None:
    worker.feed(1, disposition(Role.SENDER, first, last, True, state, 0))
    worker.end_turn()


def _give_back(worker: Worker, first: int, last: int) -> None:
    worker.feed(0, disposition(Role.RECEIVER, first, last, True, RELEASED, 0))
    worker.end_turn()


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_settled_unanswered_is_sent_again_when_it_is_given_back(
    mode: str, second: bool
) -> None:
    worker = one_line(mode, 10, second=second)
    send(worker, range(4))
    assert len(received(worker)) == 4
    _settle(worker, 0, 3, None)
    _give_back(worker, 0, 3)
    grant(worker, 10)
    assert received(worker) == [payload(each) for each in range(4)]


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_settled_while_it_waits_is_sent_again_when_it_is_given_back(
    mode: str, second: bool
) -> None:
    worker = one_line(mode, 10, second=second)
    grant(worker, 1)
    send(worker, range(4))
    assert len(received(worker)) == 1
    _settle(worker, 2, 3, None)
    grant(worker, 10)
    assert received(worker) == [payload(each) for each in (1, 2, 3)]
    _give_back(worker, 0, 3)
    grant(worker, 10)
    told = worker.hear()
    again = [each.payload for each in told[0].deliveries[0]]
    assert [each for each in again if each in {payload(2), payload(3)}] == [
        payload(2),
        payload(3),
    ]
    assert not {each[2] for each in told[1].said} & {2, 3}


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_settled_with_an_outcome_while_it_waits_is_sent_to_nobody(
    mode: str, second: bool
) -> None:
    worker = one_line(mode, 10, second=second)
    grant(worker, 1)
    send(worker, range(4))
    worker.hear()
    _settle(worker, 1, 2, ACCEPTED)
    grant(worker, 10)
    assert received(worker) == [payload(3)]
