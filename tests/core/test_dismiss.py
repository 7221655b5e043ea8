"""Closing one connection without losing a delivery."""

from router.core.dismiss import PATIENCE_SECONDS, REVIEW_SECONDS
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.outcome import ACCEPTED
from tests.support.play import Peer, Play

WHY = Condition(CONNECTION_FORCED, "the certificate was replaced")


def dismiss(play: Play, peer: Peer) -> None:
    play.carry_out(play.core.dismiss(peer.id, WHY, play.now))


def is_closed(peer: Peer) -> bool:
    peer.play.wait(REVIEW_SECONDS)
    return peer.closed is not None


def test_a_connection_without_links_is_closed_at_once_with_the_reason() -> None:
    play = Play("orders")
    peer = play.connect("idle")
    dismiss(play, peer)
    assert peer.closed is not None
    assert peer.closed.condition == WHY


def test_a_sender_gives_its_credit_back_and_hears_all_outcomes_first() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    leaving = play.connect("s")
    sender = leaving.attach_sender()
    (before,) = sender.send("before")
    dismiss(play, leaving)
    assert sender.was_drained()
    assert not is_closed(leaving)
    (late,) = sender.send("late")
    sender.give_back_credit()
    assert sender.credit == 0
    assert not is_closed(leaving)
    receiver.accept()
    assert [sender.outcome(n) for n in (before, late)] == [(ACCEPTED, True)] * 2
    assert is_closed(leaving)


def test_a_receiver_gets_nothing_new_and_others_go_on() -> None:
    play = Play("orders")
    leaving = play.connect("r1")
    first = leaving.attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    sender.send("one")
    dismiss(play, leaving)
    second = play.connect("r2").attach_receiver(credit=10)
    sender.send("two", "three")
    assert first.payloads == [b"one"]
    assert second.payloads == [b"two", b"three"]
    assert not is_closed(leaving)
    first.accept()
    assert is_closed(leaving)


def test_what_waits_for_the_only_receiver_waits_for_the_next_one() -> None:
    play = Play("orders")
    leaving = play.connect("r1")
    leaving.attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    dismiss(play, leaving)
    sender.send("kept")
    play.wait(REVIEW_SECONDS)
    second = play.connect("r2").attach_receiver(credit=10)
    assert second.payloads == [b"kept"]


def test_who_takes_too_long_is_closed_all_the_same() -> None:
    play = Play("orders")
    leaving = play.connect("r")
    leaving.attach_receiver(credit=10)
    play.connect("s").attach_sender().send("x")
    dismiss(play, leaving)
    play.wait(PATIENCE_SECONDS - 1)
    assert leaving.closed is None
    play.wait(1.1)
    assert leaving.closed is not None


def test_a_second_dismissal_and_one_of_nobody_change_nothing() -> None:
    play = Play("orders")
    peer = play.connect("idle")
    dismiss(play, peer)
    dismiss(play, peer)
    peer.lose()
    dismiss(play, peer)
