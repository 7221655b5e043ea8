"""Lost senders and receivers, and what they leave behind."""

from typing import Any

import pytest

from router.model.condition import STOLEN
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Route
from tests.support.journaled import EXACT, Journaled
from tests.support.play import Play, ReceiverEnd

KEPT: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}


def test_lost_receivers_deliveries_go_to_the_next_with_the_count_raised() -> None:
    play = Play("orders")
    first, second = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    sender.send(*"1234")
    assert first.payloads == [b"1", b"3"]
    first.peer.lose()
    assert second.payloads == [b"2", b"4", b"1", b"3"]
    assert [d.delivery_count for d in second.received] == [None, None, 1, 1]


def test_lost_last_receiver_released_if_never_sent_failed_if_sent() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    (sent,) = sender.send("sent")
    receiver.grant(0)
    (waiting,) = sender.send("waiting")
    receiver.peer.lose()
    assert sender.outcome(sent) == (MODIFIED_FAILED, True)
    assert sender.outcome(waiting) == (RELEASED, True)


def test_lost_senders_deliveries_run_to_their_end() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2)
    sender = play.connect("s").attach_sender()
    sender.send(*"123")
    sender.peer.lose()
    receiver.update(receiver.received[0].number, settled=False)
    assert receiver.told_last(receiver.received[0].number) == (ACCEPTED, True)
    receiver.accept()
    receiver.grant(5)
    assert receiver.payloads == [b"1", b"2", b"3"]
    assert not receiver.last.settled
    receiver.accept()
    assert not receiver.unsettled
    assert play.core._registry.process.used == 0


def test_lost_senders_delivery_still_tries_the_next_receiver() -> None:
    play = Play("orders")
    first, second = (play.connect(name).attach_receiver(credit=2) for name in "ab")
    sender = play.connect("s").attach_sender()
    sender.send("1")
    sender.detach()
    first.update(first.last.number, state=RELEASED)
    assert second.payloads == [b"1"]
    second.peer.lose()
    assert play.core._registry.process.used == 0


def test_lost_sender_in_mode_second_frees_its_receivers() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2, second=True)
    sender = play.connect("s").attach_sender(second=True)
    sender.send("1", "2")
    receiver.update(receiver.received[0].number, settled=False)
    sender.peer.lose()
    assert receiver.told_last(receiver.received[0].number) == (ACCEPTED, True)
    receiver.update(receiver.received[1].number, settled=False)
    assert not receiver.unsettled


def test_lost_receiver_that_had_answered_does_not_change_the_outcome() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2, second=True)
    sender = play.connect("s").attach_sender(second=True)
    (number,) = sender.send("1")
    receiver.update(receiver.last.number, settled=False)
    receiver.peer.lose()
    assert sender.told[number] == [(ACCEPTED, False)]
    sender.settle(number)


def test_closed_connection_is_as_good_as_a_lost_one() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2)
    sender = play.connect("s").attach_sender()
    receiver.peer.close()
    assert sender.credit == 0
    play.carry_out(play.core.connection_lost(receiver.peer.id, play.now))


def test_nothing_is_left_when_everybody_has_gone() -> None:
    play = Play("orders")
    for _ in range(3):
        receiver = play.connect("r").attach_receiver(credit=2)
        sender = play.connect("s").attach_sender()
        sender.send(*"123")
        sender.peer.lose()
        receiver.peer.lose()
    registry = play.core._registry
    assert not registry.connections
    assert not registry.nodes
    assert not registry.attached
    assert registry.process.used == 0


def test_same_name_from_the_same_container_steals_the_link() -> None:
    play = Play("orders")
    play.connect("r").attach_receiver(credit=20)
    old = play.connect("app").attach_sender(name="the-link")
    new = play.connect("app").attach_sender(name="the-link")
    assert old.detached is not None
    assert old.detached.condition is not None
    assert old.detached.condition.name == STOLEN
    assert new.credit == 20
    assert "link.stolen" in play.events()


def test_same_name_in_the_other_direction_is_another_link() -> None:
    play = Play("orders")
    app = play.connect("app")
    receiver = app.attach_receiver(name="pair", credit=3)
    sender = app.attach_sender(name="pair")
    sender.send("x")
    assert receiver.payloads == [b"x"]


def test_same_container_with_another_identity_is_somebody_else() -> None:
    play = Play("orders")
    old = play.connect("app", user="alice").attach_sender(name="the-link")
    play.connect("app", user="mallory").attach_sender(name="the-link")
    assert old.detached is None


def test_detached_link_is_noted_with_its_totals() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=20)
    sender = play.connect("s").attach_sender()
    sender.send("abc", "de")
    sender.detach()
    (notice,) = (n for n in play.noticed if n.event == "link.detached")
    assert notice.fields["count"] == 2
    assert notice.fields["octets"] == 5
    assert notice.fields["address"] == "orders"
    assert receiver.payloads == [b"abc", b"de"]


# Links that are detached, and whose deliveries can still be spoken of (§2.7.6)


@pytest.mark.parametrize("second", [True, False])
def test_an_outcome_after_a_detach_reaches_the_sender(second: bool) -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1, second=second, session=0)
    sender = play.connect("s").attach_sender(second=second)
    (number,) = sender.send("1")
    receiver.leave()
    receiver.update(receiver.last.number, state=REJECTED, settled=False)
    assert sender.outcome(number) == (REJECTED, not second)
    if second:
        assert receiver.told_last(receiver.last.number) is None
        sender.settle(number)
    assert receiver.told_last(receiver.last.number) == (REJECTED, True)
    assert play.core._registry.process.used == 0


def test_a_sender_that_has_detached_is_told_and_settles() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2, second=True)
    sender = play.connect("s").attach_sender(second=True, session=0)
    one, two = sender.send("1", "2")
    receiver.update(receiver.received[0].number, settled=False)
    sender.leave()
    sender.settle(one)
    assert receiver.told_last(receiver.received[0].number) == (ACCEPTED, True)
    receiver.update(receiver.received[1].number, state=REJECTED, settled=False)
    assert sender.outcome(two) == (REJECTED, False)
    sender.settle(two)
    assert not receiver.unsettled
    assert not sender.peer.play.core._registry.suspended
    assert play.core._registry.process.used == 0


def test_a_detached_sender_counts_on_its_connection_until_it_has_settled() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2)
    sender = play.connect("s").attach_sender(session=0, **KEPT)
    sender.send("12345")
    (connection,) = [c for c in play.core._registry.connections.values() if c.incoming]
    sender.leave()
    assert connection.octets.used == 5
    receiver.accept()
    assert connection.octets.used == 0


def test_a_detached_sender_is_granted_nothing() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender(session=0, **KEPT)
    sender.send("1")
    sender.leave()
    receiver.grant(9)  # an order for the link would fail the play
    receiver.accept()
    assert not play.core._registry.suspended


def test_a_detached_receiver_on_which_nothing_is_left_is_not_waited_for() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1, session=0)
    sender = play.connect("s").attach_sender()
    sender.send("1")
    receiver.leave()
    receiver.accept()
    (number,) = sender.send("2")
    assert sender.outcome(number) == (RELEASED, True)


@pytest.mark.parametrize("how", ["session", "connection", "numbers"])
def test_what_was_not_spoken_of_is_as_on_a_lost_link_when_that_cannot_be_any_more(
    how: str,
) -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1, session=3)
    other = play.connect("o").attach_receiver(credit=0)
    sender = play.connect("s").attach_sender()
    sender.send("1")
    receiver.leave()
    other.grant(1)
    assert other.received == []
    if how == "session":
        receiver.peer.end_session(4)
        assert other.received == []
        receiver.peer.end_session(3)
        play.wait(0)
    elif how == "connection":
        receiver.peer.lose()
        play.wait(0)
    else:  # the terminus stays until the session ends, but nothing is heard of it
        receiver.detach(closed=False)
        receiver.update(receiver.last.number)
        assert sender.outcome(0) is None  # type: ignore[arg-type]
        receiver.peer.end_session(3)
        play.wait(0)
    assert other.payloads == [b"1"]
    assert other.last.delivery_count == 1


def test_a_link_that_is_attached_again_has_what_was_not_settled_after_its_detach() -> None:
    play = Play(EXACT)
    fields: dict[str, Any] = {"name": "in", "second": True, "credit": 9, "session": 0, **KEPT}
    receiver = play.connect("r").attach_receiver(**fields)
    sender = play.connect("s").attach_sender(second=True)
    sender.send("1", "2", "3")
    one, two, three = receiver.received
    receiver.leave()
    receiver.update(one.number, settled=True)
    receiver.update(two.number, settled=False)
    del receiver.peer.left[receiver.link]
    again = receiver.peer.attach_receiver(unsettled={two.tag: ACCEPTED, three.tag: None}, **fields)
    assert again.attach is not None
    assert again.attach.unsettled == {two.tag: ACCEPTED, three.tag: None}
    assert [(each.tag, each.resume) for each in again.received] == [
        (two.tag, True),
        (three.tag, True),
    ]


def test_a_container_that_detaches_plainly_is_heard_until_we_attach_again() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east")
    sender = play.connect("s").attach_sender()
    target = east.answer(session=0)
    assert isinstance(target, ReceiverEnd)
    target.grant(5)
    one, two = sender.send("1", "2")
    target.leave()
    target.update(target.received[0].number, state=REJECTED)
    assert sender.outcome(one) == (REJECTED, True)
    assert sender.outcome(two) is None
    play.wait(2)
    again = east.answer_receiver(credit=5)
    assert again.payloads == [b"2"]


def test_an_outcome_after_a_detach_is_durable() -> None:
    play = Journaled(EXACT)
    receiver = play.connect("r").attach_receiver(
        credit=2, name="in", second=True, session=0, **KEPT
    )
    sender = play.connect("s").attach_sender(name="out", second=True, **KEPT)
    one, two = sender.send("1", "2")
    play.flush()
    receiver.leave()
    receiver.update(receiver.received[0].number, settled=False)
    assert sender.outcome(one) is None  # not before it is on disk
    play.flush()
    assert sender.outcome(one) == (ACCEPTED, False)
    receiver.update(receiver.received[1].number, state=REJECTED, settled=True)
    play = play.crash()
    back = play.connect("s").attach_sender(
        name="out",
        second=True,
        unsettled={DeliveryTag(b"t0"): None, DeliveryTag(b"t1"): None},
        **KEPT,
    )
    assert back.attach is not None
    assert back.attach.unsettled == {DeliveryTag(b"t0"): ACCEPTED, DeliveryTag(b"t1"): REJECTED}
    assert two == 1
