"""Direct routes: deliveries go to who can take them, in order, as far as credit goes."""

from router.model.condition import NOT_FOUND
from router.model.events import CreditGranted
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from tests.support.play import Play


def test_receivers_of_a_lower_priority_get_what_those_above_have_no_credit_for() -> None:
    play = Play("orders")
    low = play.connect().attach_receiver(credit=10, priority=-1)
    usual = play.connect().attach_receiver(credit=2)
    high = play.connect().attach_receiver(credit=1, priority=5)
    play.connect().attach_sender().send("a", "b", "c", "d")
    assert (high.payloads, usual.payloads, low.payloads) == ([b"a"], [b"b", b"c"], [b"d"])
    high.grant(1)
    low.peer.play.connect().attach_sender().send("e")
    assert high.payloads == [b"a", b"e"]


def test_delivery_goes_from_sender_to_receiver_and_its_outcome_back() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver("orders", credit=10)
    sender = play.connect().attach_sender("orders")
    (number,) = sender.send("hello")
    assert receiver.payloads == [b"hello"]
    assert sender.outcome(number) is None
    receiver.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_address_without_a_route_is_refused() -> None:
    play = Play("orders")
    sender = play.connect().attach_sender("bills")
    assert sender.refused is not None
    assert sender.refused.name == NOT_FOUND
    assert "bills" in str(sender.refused)
    receiver = play.connect().attach_receiver("bills")
    assert receiver.refused is not None


def test_no_receiver_no_credit() -> None:
    play = Play("orders")
    sender = play.connect().attach_sender("orders")
    assert sender.credit == 0
    receiver = play.connect().attach_receiver("orders")
    assert sender.credit == 0
    receiver.grant(10)
    assert sender.credit == 10


def test_what_credit_does_not_cover_any_more_in_the_same_breath_goes_to_others() -> None:
    play = Play("orders")
    peer = play.connect()
    receiver = peer.attach_receiver("orders", credit=4)
    sender = peer.attach_sender("orders")
    run = sender.run([sender.delivery(body) for body in "abc"])
    receiver.credit = 1
    peer.happens(run, CreditGranted(receiver.link, 1))
    assert receiver.payloads == [b"a"]
    other = play.connect().attach_receiver("orders", credit=5)
    assert other.payloads == [b"b", b"c"]


def test_runs_stay_runs() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver("orders", credit=100)
    sender = play.connect().attach_sender("orders")
    numbers = sender.send(*(str(n) for n in range(50)))
    assert receiver.runs == [50]
    before = len(play.orders)
    receiver.accept()
    assert len(play.orders) == before + 1
    assert all(sender.outcome(number) == (ACCEPTED, True) for number in numbers)


def test_balanced_goes_to_the_fewest_unsettled() -> None:
    play = Play("orders")
    first = play.connect().attach_receiver("orders", credit=100)
    second = play.connect().attach_receiver("orders", credit=100)
    sender = play.connect().attach_sender("orders")
    sender.send(*"abcdef")
    assert first.payloads == [b"a", b"c", b"e"]
    assert second.payloads == [b"b", b"d", b"f"]
    second.accept()
    sender.send(*"ghi")
    assert first.payloads == [b"a", b"c", b"e"]
    assert second.payloads[3:] == [b"g", b"h", b"i"]


def test_delivery_under_way_is_released_when_the_last_receiver_leaves() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver("orders", credit=1)
    sender = play.connect().attach_sender("orders")
    sender.send("sent")
    receiver.accept()
    receiver.grant(10)
    receiver.detach()
    assert sender.credit == 0
    assert sender.was_drained()
    (late,) = sender.send("late")
    assert sender.outcome(late) == (RELEASED, True)


def test_rejection_reaches_the_sender_with_its_error() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver("orders", credit=1)
    sender = play.connect().attach_sender("orders")
    (number,) = sender.send("bad")
    rejected = Rejected(None)
    receiver.update(receiver.last.number, state=rejected)
    assert sender.outcome(number) == (rejected, True)
