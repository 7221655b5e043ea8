"""What is given back costs steps for itself, and none for what waits behind it."""

from collections import deque
from collections.abc import Iterable, Iterator

import pytest

from router.links.pairing import Pairing
from router.model.outcome import MODIFIED_FAILED, RELEASED
from router.routes.route import Route
from tests.support.play import Play


class Counted(deque[Pairing]):
    """A queue that counts how many of its deliveries are looked at or moved."""

    steps = 0

    def __iter__(self) -> Iterator[Pairing]:
        for pairing in super().__iter__():
            self.steps += 1
            yield pairing

    def __contains__(self, pairing: object) -> bool:
        return any(each is pairing for each in self)

    def popleft(self) -> Pairing:
        self.steps += 1
        return super().popleft()

    def remove(self, pairing: Pairing) -> None:
        self.steps += 1 + next(place for place, each in enumerate(self) if each is pairing)
        super().remove(pairing)

    def extendleft(self, pairings: Iterable[Pairing]) -> None:
        each = tuple(pairings)
        self.steps += len(each)
        super().extendleft(each)


def steps_of(waiting: int, *, has_credit: bool) -> int:
    """Counts the steps of what a receiver gives back before a queue of some length."""
    play = Play(Route(address="x"))
    consumer = play.connect("consumer").attach_receiver("x", credit=20)
    sender = play.connect("sender").attach_sender("x")
    for first in range(0, waiting + 20, 500):
        count = min(500, waiting + 20 - first)
        sender.send(*map(str, range(first, first + count)), settled=True)
    (node,) = play.core._registry.nodes.values()
    (feed,) = node.rotation
    assert len(feed.waiting) == waiting
    queue = feed.waiting = Counted(feed.waiting)
    for turn in range(10):
        number = min(consumer.unsettled)
        consumer.update(number, state=MODIFIED_FAILED if turn % 2 else RELEASED)
        if has_credit:
            consumer.grant(1)
    assert feed.waiting is queue, "it is not copied either"
    return queue.steps


@pytest.mark.parametrize("has_credit", [True, False])
def test_what_is_given_back_costs_the_same_however_much_waits(has_credit: bool) -> None:
    few, many = (steps_of(count, has_credit=has_credit) for count in (100, 10_000))
    assert few == many <= 400


def test_a_look_is_for_what_was_given_back_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(Route(address="x"))
    first = play.connect("first").attach_receiver("x", credit=500)
    sender = play.connect("sender").attach_sender("x")
    numbers = sender.send(*map(str, range(500)))
    second = play.connect("second").attach_receiver("x", credit=0)
    first.update(*list(first.unsettled)[:400], state=RELEASED)
    looks = 0
    forwarder = play.core._forwarder
    has_hope = forwarder._has_hope

    def counted(*args: object) -> bool:
        nonlocal looks
        looks += 1
        return has_hope(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(forwarder, "_has_hope", counted)
    for number in list(first.unsettled)[:10]:
        first.update(number, state=RELEASED)
    assert looks == 10
    second.detach()
    assert looks == 10 + 410, "once for each when a receiver has left"
    assert [sender.outcome(number) for number in numbers[:410]] == [(RELEASED, True)] * 410
    assert sender.outcome(numbers[410]) is None
