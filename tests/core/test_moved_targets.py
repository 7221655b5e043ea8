"""A reload moves an exactly-once route to another container, and back."""

import pytest

from router.links.link import OutgoingLink
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd, table


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


@pytest.mark.parametrize("had_it", [False, True])
def test_what_a_container_had_been_sent_that_was_away_at_the_reload_is_asked_for_when_it_is_back(
    had_it: bool,
) -> None:
    play = Journaled(to("first"))
    sending = play.connect("west").attach_sender("orders", name="out", second=True)
    dialed = play.dial("first")
    first = dialed.answer_receiver("orders", credit=5)
    play.flush()
    (number,) = sending.send("one", tag=DeliveryTag(b"1"))
    play.flush()
    tag = first.received[0].tag
    dialed.lose()
    move(play, "second")
    second = play.dial("second").answer_receiver("orders", credit=5)
    play.wait(60)
    sending.send("two", tag=DeliveryTag(b"2"))
    play.flush()
    assert second.payloads == [b"two"]
    back = play.dial("first").answer(unsettled={tag: ACCEPTED} if had_it else {})
    assert isinstance(back, ReceiverEnd)
    back.grant(5)
    play.flush()
    if had_it:
        assert sending.outcome(number) == (ACCEPTED, False)
        sending.settle(number)
        play.flush()
    assert second.payloads == ([b"two"] if had_it else [b"two", b"one"])
    assert b"one" not in back.payloads
    play.wait(60)
    play.flush()
    assert back.is_detached()


@pytest.mark.parametrize("had_it", [False, True])
def test_what_a_container_had_been_sent_before_a_restart_with_another_file_is_asked_for(
    had_it: bool,
) -> None:
    play = Journaled(to("first"))
    sending = play.connect("west").attach_sender("orders", name="out", second=True)
    first = play.dial("first").answer_receiver("orders", credit=5)
    play.flush()
    sending.send("one", tag=DeliveryTag(b"1"))
    play.flush()
    tag = first.received[0].tag
    play.routes = (to("second"),)
    play = play.crash()
    play.flush()
    second = play.dial("second").answer_receiver("orders", credit=5)
    play.flush()
    assert not second.payloads
    back = play.dial("first").answer(unsettled={tag: ACCEPTED} if had_it else {})
    assert isinstance(back, ReceiverEnd)
    back.grant(5)
    play.flush()
    play.wait(60)
    play.flush()
    assert second.payloads == ([] if had_it else [b"one"])
    assert b"one" not in back.payloads
    assert not any(
        isinstance(link, OutgoingLink) for link in play.core._registry.suspended.values()
    )


def test_what_a_container_had_been_sent_is_asked_for_though_the_sender_does_not_come_back() -> None:
    play = Journaled(to("first"))
    west = play.connect("west")
    sending = west.attach_sender("orders", name="out", second=True)
    dialed = play.dial("first")
    first = dialed.answer_receiver("orders", credit=5)
    play.flush()
    sending.send("one", tag=DeliveryTag(b"1"))
    play.flush()
    dialed.lose()
    west.lose()
    for _ in range(40):
        play.wait(10)
        play.flush()
    (asked,) = play.dial("first").asked.values()
    assert asked.unsettled == {first.received[0].tag: None}
