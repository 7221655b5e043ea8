"""Lost senders and receivers, and what they leave behind."""

from router.model.condition import STOLEN
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED
from tests.support.play import Play


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
