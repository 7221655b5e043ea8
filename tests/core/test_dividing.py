"""Senders of a stored route with few messages share what the store takes."""

import attrs

from router.core.dividing import LOOK_SECONDS
from router.core.settings import CoreSettings
from router.core.stored import STORE
from router.links.sharing import IDLE_SECONDS
from router.routes.route import Endpoint, Route, Storing
from tests.support.play import Play, SenderEnd

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(messages=100, always=True),
    dead_letter=Endpoint("cloud", "dead"),
)
ADDRESS = "telemetry.a"


class Stage:
    """A store, and senders of one address."""

    def __init__(self, senders: int, *, credit: int, route: Route = ROUTE) -> None:
        self.play = Play(route, settings=CoreSettings(router_id="dc1", link_credit=1000))
        self.store = self.play.dial(STORE)
        self.senders = [self.play.connect().attach_sender(ADDRESS) for _ in range(senders)]
        self.shelf = self.store.answer_receiver(ADDRESS, credit=credit)
        self.room = credit

    @property
    def granted(self) -> int:
        return sum(each.credit for each in self.senders)

    def send(self, which: int, count: int) -> None:
        """A sender sends; the store has as much less room."""
        self.senders[which].send(*["x"] * count)
        self.room -= count
        self.shelf.accept()
        self.shelf.grant(self.room)

    def wait(self, seconds: float) -> None:
        """Time passes; senders answer."""
        while seconds > 0:
            self.play.wait(LOOK_SECONDS)
            seconds -= LOOK_SECONDS
            for each in self.senders:
                give_back(each)


def give_back(sender: SenderEnd) -> None:
    """A sender answers if it is asked for its credit."""
    if sender.drained:
        sender.drained = False
        sender.give_back_credit()


def test_senders_together_are_granted_what_the_store_takes() -> None:
    stage = Stage(4, credit=100)
    assert [each.credit for each in stage.senders] == [25] * 4
    for turn in range(200):
        which = max(range(4), key=lambda each: stage.senders[each].credit)
        if not stage.senders[which].credit:
            break
        stage.send(which, 1 + turn % stage.senders[which].credit)
        assert stage.granted <= stage.room
    assert stage.room == stage.granted == 0


def test_credit_that_a_sender_does_not_use_goes_to_another_one() -> None:
    stage = Stage(4, credit=100)
    begin = stage.play.now
    while stage.room > 4:
        if stage.senders[0].credit:
            stage.send(0, stage.senders[0].credit)
        else:
            stage.wait(IDLE_SECONDS)
        assert stage.play.now < begin + 10
        assert stage.granted <= stage.room


def test_a_sender_that_comes_gets_a_part_of_what_another_one_has() -> None:
    stage = Stage(1, credit=100)
    assert stage.senders[0].credit == 100
    stage.senders.append(stage.play.connect().attach_sender(ADDRESS))
    stage.wait(2 * LOOK_SECONDS)
    assert [each.credit for each in stage.senders] == [50, 50]


def test_what_the_store_takes_back_senders_are_asked_for() -> None:
    stage = Stage(2, credit=100)
    stage.shelf.grant(10)
    stage.wait(LOOK_SECONDS)
    assert stage.granted <= 10


def test_a_route_that_does_not_count_messages_grants_each_sender_all() -> None:
    stage = Stage(2, credit=100, route=attrs.evolve(ROUTE, store=Storing(always=True)))
    assert [each.credit for each in stage.senders] == [100, 100]
