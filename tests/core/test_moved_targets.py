"""A reload moves an exactly-once route to another container, and back."""

import pytest

from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.journaled import Journaled
from tests.support.play import table


def to(container: str) -> Route:
    return Route(address="orders", to=(Endpoint(container),), guarantee=Guarantee.EXACTLY_ONCE)


def move(play: Journaled, container: str) -> None:
    play.routes = (to(container),)
    play.carry_out(play.core.configure(table(*play.routes), play.now))
    play.flush()


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_the_container_had_been_sent_is_waited_for_and_sent_to_nobody_else(
    comes_back: bool,
) -> None:
    play = Journaled(to("first"))
    sending = play.connect("west").attach_sender("orders", name="out", second=True)
    first = play.dial("first").answer_receiver("orders", credit=5)
    play.flush()
    (number,) = sending.send("one", tag=DeliveryTag(b"1"))
    play.flush()
    move(play, "second")
    second = play.dial("second").answer_receiver("orders", credit=5)
    play.flush()
    if comes_back:
        move(play, "first")
    sending.send("two", tag=DeliveryTag(b"2"))
    play.wait(1)
    play.flush()
    first_bodies, second_bodies = [b"one"], [b"two"]
    if comes_back:
        first_bodies, second_bodies = [b"one", b"two"], []
    assert (first.payloads, second.payloads) == (first_bodies, second_bodies)
    assert not first.is_detached()
    first.accept()
    play.flush()
    assert sending.outcome(number) == (ACCEPTED, False)
    play.wait(60)
    play.flush()
    assert first.is_detached() is not comes_back
