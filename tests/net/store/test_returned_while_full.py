"""What a target returns while its route is full is neither lost nor overtaken."""

import pytest

from router.journal.store.queues import Bounds, Full
from router.model.outcome import RELEASED
from router.routes.route import Guarantee
from tests.net.store.test_bounds_while_away import Stage, bodies, got
from tests.support.play import Peer, ReceiverEnd

GUARANTEES = pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
BEFORE, ROOM = 3, 4


class Returning(Stage):
    """The target takes three messages at first, and answers nothing."""

    credit = BEFORE

    def receive(self, peer: Peer) -> None:
        while peer.asked:
            peer.answer_receiver(credit=self.credit)
            self.work()

    def fill(self) -> None:
        """Three messages are at the target, and behind them the store is full."""
        self.receive(self.target)
        for each in bodies(0, BEFORE):
            self.send(each.decode())
        self.wait(15)
        self.credit = 0  # of the links on which it gets what is stored
        for each in bodies(BEFORE, BEFORE + ROOM):
            self.send(each.decode())
        self.receive(self.target)
        assert got(self.target) == bodies(0, BEFORE)

    def ends(self) -> list[ReceiverEnd]:
        return list(self.target.receives.values())

    def give_back(self, count: int) -> None:
        """The target returns what it got last."""
        (end,) = [each for each in self.ends() if each.payloads]
        end.update(*list(end.unsettled)[-count:], state=RELEASED)
        self.work()

    def take_all(self) -> list[bytes]:
        """The target takes messages again, one by one; returns what it gets from now on."""
        before = {id(end): len(end.payloads) for end in self.ends()}
        order: list[bytes] = []
        self.credit = 1
        for _ in range(80):
            self.receive(self.target)
            for end in self.ends():
                known = before.get(id(end), 0)
                order += end.payloads[known:]
                before[id(end)] = len(end.payloads)
                end.accept(*list(end.unsettled))
                end.grant(1)
                self.work()
            self.wait(1)
        return order


@GUARANTEES
@pytest.mark.parametrize("count", [1, 3])
def test_a_full_route_forwards_what_its_target_has_returned_before_what_is_stored(
    guarantee: Guarantee, count: int
) -> None:
    stage = Returning(guarantee, Bounds(messages=ROOM), always=False)
    stage.fill()
    stage.give_back(count)
    assert stage.take_all() == bodies(BEFORE - count, BEFORE + ROOM)
    assert stage.dead == 0


@GUARANTEES
def test_a_route_that_drops_its_oldest_drops_none_that_its_target_has_returned(
    guarantee: Guarantee,
) -> None:
    stage = Returning(guarantee, Bounds(messages=ROOM, full=Full.DROP_OLDEST), always=False)
    stage.fill()
    stage.give_back(1)
    found = stage.take_all()
    assert found == sorted(found)
    assert len(found) + stage.dead == ROOM + 1
