"""What comes back from the express lane: order, credit and width, as without it."""

import random
from collections.abc import Sequence

import pytest

from router.model.outcome import RELEASED
from router.model.terminus import Role
from tests.support.kernel import MODES
from tests.support.lane_reference import Worker
from tests.support.lane_world import HEADER_TTL, disposition, transfer
from tests.support.one_line import grant, one_line, payload, received, send


def _release(worker: Worker, numbers: Sequence[int]) -> None:
    for each in numbers:
        worker.feed(0, disposition(Role.RECEIVER, each, each, True, RELEASED, 0))
    worker.end_turn()


@pytest.mark.parametrize("in_turns", [False, True], ids=["together", "each"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_what_is_given_back_goes_on_as_it_came(mode: str, seed: int, in_turns: bool) -> None:
    worker = one_line(mode, 40)
    send(worker, range(3), settled=True)  # on the lane, then adopted
    worker.demote()
    send(worker, range(3, 6), settled=True)  # the core's
    send(worker, range(6, 9), settled=True)  # on the lane again
    worker.feed(
        1, transfer(0, 9, HEADER_TTL + payload(9), settled=True)
    )  # judged by the core meanwhile
    worker.end_turn()
    send(worker, range(10, 13), settled=True)
    worker.hear()
    grant(worker, 0)
    numbers = list(range(13))
    random.Random(seed).shuffle(numbers)
    for part in [[each] for each in numbers] if in_turns else [numbers]:
        _release(worker, part)
    grant(worker, 40)
    got = [each.removeprefix(HEADER_TTL) for each in received(worker)]
    assert got == [payload(each) for each in range(13)]


@pytest.mark.parametrize("mode", MODES)
def test_what_waits_for_window_in_an_engine_has_taken_its_credit(mode: str) -> None:
    worker = one_line(mode, 10)
    send(worker, range(2))
    grant(worker, 10, window=0)
    for number in (2, 3):  # judged by the core, which gives them to the engine
        worker.feed(1, transfer(0, number, HEADER_TTL + payload(number)))
        worker.end_turn()
    worker.core._lanes.refresh()
    (node,) = worker.core._registry.nodes.values()
    assert node.outgoing[0].credit == 8


@pytest.mark.parametrize("credit", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_a_receiver_that_repeats_what_credit_it_has_left_wants_no_more(
    mode: str, credit: int
) -> None:
    worker = one_line(mode, 10)
    send(worker, range(10 - credit))
    worker.demote()
    grant(worker, credit)
    (node,) = worker.core._registry.nodes.values()
    assert node.width == credit
