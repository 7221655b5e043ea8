"""On exactly-once routes what its sender has settled beforehand outlives the worker."""

import attrs
import pytest

from router.model.outcome import MODIFIED_FAILED, RELEASED, DeliveryState, Rejected
from router.routes.route import Endpoint, InDoubt, Unroutable
from tests.support.journaled import EXACT, Journaled

RESEND = attrs.evolve(EXACT, in_doubt=InDoubt.RESEND)


def test_what_waits_is_there_after_a_crash() -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=1, second=True)
    sending = play.connect("west").attach_sender()
    sending.send("one", "two", settled=True)
    play.flush()
    assert receiving.payloads == [b"one"]
    receiving.accept()
    play.flush()
    after = play.crash()
    late = after.connect("east").attach_receiver(credit=5, second=True)
    after.flush()
    assert late.payloads == [b"two"]
    late.accept()
    after.flush()
    assert not after.remembered()


def test_what_a_receiver_had_is_in_doubt_after_a_crash_and_sent_again_if_the_route_says_so() -> (
    None
):
    play = Journaled(RESEND)
    play.connect("east").attach_receiver(credit=5)
    play.connect("west").attach_sender().send("one", settled=True)
    play.flush()
    after = play.crash()
    after.wait(1)
    late = after.connect("east").attach_receiver(credit=5)
    after.flush()
    assert late.payloads == [b"one"]
    assert late.last.delivery_count
    late.accept()
    after.flush()
    assert not after.remembered()


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED])
@pytest.mark.parametrize("settled", [True, False])
def test_what_a_receiver_gave_back_is_there_after_a_crash(
    state: DeliveryState, settled: bool
) -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=1)
    play.connect("west").attach_sender().send("one", settled=True)
    play.flush()
    receiving.update(receiving.last.number, state=state, settled=settled)
    play.flush()
    after = play.crash()
    late = after.connect("north").attach_receiver(credit=5)
    after.flush()
    assert late.payloads == [b"one"]
    late.accept()
    after.flush()
    assert not after.remembered()


def test_it_is_sent_again_to_the_same_receiver_after_that_has_been_settled_for() -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=10)
    play.connect("west").attach_sender().send("one", settled=True)
    play.flush()
    for _ in range(3):
        receiving.update(receiving.last.number, state=RELEASED, settled=False)
        play.flush()
    assert receiving.payloads == [b"one"] * 4
    receiving.accept()
    play.flush()
    assert not play.remembered()


def test_what_is_rejected_is_forgotten() -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=1)
    play.connect("west").attach_sender().send("one", settled=True)
    play.flush()
    receiving.update(receiving.last.number, state=Rejected())
    play.flush()
    assert not play.remembered()


def test_what_is_rejected_is_on_its_way_to_dead_letters_after_a_crash() -> None:
    route = attrs.evolve(
        EXACT, unroutable=Unroutable.DEAD_LETTER, dead_letter=Endpoint("morgue", "dead")
    )
    play = Journaled(route)
    receiving = play.connect("east").attach_receiver(credit=1)
    play.connect("west").attach_sender().send("one", settled=True)
    play.flush()
    receiving.update(receiving.last.number, state=Rejected())
    play.flush()
    assert len(play.remembered()) == 1


def test_its_parts_are_there_after_a_crash_when_all_have_come() -> None:
    play = Journaled(EXACT)
    sending = play.connect("west").attach_sender()
    play.connect("east").attach_receiver(credit=1).detach()
    sending.send("a", more=True, settled=True)
    sending.go_on(b"b", more=False)
    play.flush()
    after = play.crash()
    late = after.connect("east").attach_receiver(credit=5)
    after.flush()
    assert late.payloads == [b"ab"]


def test_what_its_sender_gives_up_in_parts_is_forgotten() -> None:
    play = Journaled(EXACT)
    sending = play.connect("west").attach_sender()
    sending.send("a", more=True, settled=True)
    sending.abort()
    play.flush()
    assert not play.remembered()


def test_the_same_tag_may_come_again_while_a_receiver_has_the_first() -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=5)
    sending = play.connect("west").attach_sender()
    sending.send("one", settled=True, tag=b"same")
    sending.send("two", settled=True, tag=b"same")
    play.flush()
    assert receiving.payloads == [b"one", b"two"]
    receiving.accept()
    play.flush()
    assert not play.remembered()
