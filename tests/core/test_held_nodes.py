"""Receivers that are held for what is in doubt, and their addresses, which others use meanwhile."""

import attrs
import pytest

from router.core.listing import Filter
from router.core.resolve import Decision
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, RELEASED
from router.routes.route import Guarantee, InDoubt, Route
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd, SenderEnd, table

EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
BODIES = [b"m0", b"m1", b"m2"]
TAGS = [DeliveryTag(b"%d" % number) for number in range(len(BODIES))]


def sender(play: Journaled) -> SenderEnd:
    return play.connect("west").attach_sender("orders", name="out", second=True)


def receiver(play: Journaled, **fields: object) -> ReceiverEnd:
    return play.connect("east").attach_receiver("orders", name="in", second=True, **fields)  # type: ignore[arg-type]


def in_doubt(play: Journaled) -> int:
    return len(play.core.lister.deliveries(Filter(in_doubt=True), 100, None, play.now).deliveries)


def all_gone() -> tuple[Journaled, list[DeliveryTag]]:
    """Some deliveries are in doubt; sender and receiver are lost, and nobody uses the address."""
    play = Journaled(EXACT)
    receiving = receiver(play, credit=10)
    sending = sender(play)
    for body, tag in zip(BODIES, TAGS, strict=True):
        sending.send(body, tag=tag)
    play.flush()
    assert receiving.payloads == BODIES
    tags = list(receiving.unsettled.values())
    sending.peer.lose()
    receiving.peer.lose()
    play.wait(1)
    assert in_doubt(play) == len(BODIES)
    return play, tags


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("is_first", [False, True], ids=["receiver first", "sender first"])
def test_senders_reach_a_receiver_that_comes_back_to_what_is_in_doubt(
    is_first: bool, crashes: bool
) -> None:
    play, _ = all_gone()
    if crashes:
        play = play.crash()
        play.wait(1000)
    sending = None
    if is_first:
        sending = sender(play)
        play.flush()
        assert sending.credit == 0
    receiving = receiver(play, credit=10)
    play.flush()
    if sending is None:
        sending = sender(play)
        play.flush()
    assert sending.credit == 10
    sending.send("next", tag=DeliveryTag(b"next"))
    play.flush()
    assert receiving.payloads == [b"next"]
    assert in_doubt(play) == len(BODIES)
    receiving.accept()
    play.flush()
    assert sending.outcome(max(sending.told)) == (ACCEPTED, False)


def test_what_the_receiver_returns_goes_to_those_who_receive_there_now() -> None:
    play, tags = all_gone()
    other = play.connect("north").attach_receiver("orders", name="other", second=True, credit=10)
    play.flush()
    receiver(play, credit=len(tags), unsettled=dict.fromkeys(tags, RELEASED))
    play.flush()
    assert other.payloads == BODIES
    other.accept()
    play.flush()
    assert in_doubt(play) == 0


def test_what_a_person_has_sent_again_goes_to_those_who_receive_there_now() -> None:
    play, _ = all_gone()
    other = play.connect("north").attach_receiver("orders", name="other", second=True, credit=10)
    play.flush()
    for tag in TAGS:
        count, orders = play.core.resolve(tag, None, Decision.RESEND, play.now)
        play.carry_out(orders)
        assert count == 1
    play.flush()
    assert other.payloads == BODIES


@pytest.mark.parametrize("is_other_first", [False, True])
def test_what_was_in_doubt_is_sent_again_when_the_route_says_so_now(is_other_first: bool) -> None:
    play, _ = all_gone()
    routes = (attrs.evolve(EXACT, in_doubt=InDoubt.RESEND),)
    others: list[ReceiverEnd] = []

    def attach() -> None:
        peer = play.connect("north")
        others.append(peer.attach_receiver("orders", name="other", second=True, credit=10))
        play.flush()

    if is_other_first:
        attach()
    play.routes = routes
    play.carry_out(play.core.configure(table(*routes), play.now))
    play.flush()
    if not is_other_first:
        attach()
    assert others[0].payloads == BODIES
    assert in_doubt(play) == 0


def test_an_address_that_nobody_uses_is_forgotten_again_after_a_reload() -> None:
    play, _ = all_gone()
    routes = (attrs.evolve(EXACT, ttl_seconds=1000.0),)
    play.routes = routes
    play.carry_out(play.core.configure(table(*routes), play.now))
    play.flush()
    assert in_doubt(play) == len(BODIES)
    assert play.core._registry.find("orders") is None
