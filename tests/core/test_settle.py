"""Settlement: what receivers say reaches senders, in both receiver modes, and the other way."""

import pytest

from router.core.outcomes import narrow
from router.core.settings import CoreSettings
from router.model.condition import NOT_ALLOWED, Condition
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    UnknownState,
)
from router.model.terminus import SenderSettleMode, Source
from router.routes.route import Distribution, Guarantee, Route
from tests.support.play import Play, ReceiverEnd, SenderEnd

MULTICAST = Route(address="prices", distribution=Distribution.MULTICAST)


def pair(play: Play, second: bool = False) -> tuple[SenderEnd, ReceiverEnd]:
    receiver = play.connect("r").attach_receiver(credit=100, second=second)
    return play.connect("s").attach_sender(second=second), receiver


# Mode first


@pytest.mark.parametrize("outcome", [ACCEPTED, REJECTED, Rejected(Condition("a:b", "no"))])
def test_outcome_is_told_settled(outcome: DeliveryState) -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, state=outcome)
    assert sender.told[number] == [(outcome, True)]


def test_receiver_that_does_not_settle_is_settled_for() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, settled=False)
    assert sender.told[number] == [(ACCEPTED, True)]
    assert receiver.told[receiver.last.number] == [(ACCEPTED, True)]
    assert not receiver.unsettled


def test_outcomes_of_several_senders_in_one_disposition_go_to_each() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=100)
    senders = [play.connect(f"s{n}").attach_sender() for n in range(3)]
    sent = [sender.send("a", "b") for sender in senders]
    before = len(play.orders)
    receiver.accept()
    assert len(play.orders) - before == 3
    for sender, numbers in zip(senders, sent, strict=True):
        assert [sender.outcome(n) for n in numbers] == [(ACCEPTED, True)] * 2


def test_settled_without_a_state_means_the_default_outcome_of_the_source() -> None:
    play = Play("orders")
    source = Source(address="orders", default_outcome=RELEASED)
    receiver = play.connect().attach_receiver(source=source, credit=5)
    sender = play.connect().attach_sender()
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, state=None)
    assert sender.outcome(number) == (RELEASED, True)


def test_settled_without_a_state_and_without_a_default_is_told_as_it_is() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, state=None)
    assert sender.outcome(number) == (None, True)


# Mode second


def test_three_ways_of_mode_second() -> None:
    sender, receiver = pair(Play("orders"), second=True)
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, settled=False)
    assert sender.told[number] == [(ACCEPTED, False)]
    assert receiver.last.number not in receiver.told
    sender.settle(number, state=ACCEPTED)
    assert receiver.told[receiver.last.number] == [(ACCEPTED, True)]
    assert not receiver.unsettled


def test_mode_second_with_a_receiver_that_settles_first() -> None:
    sender, receiver = pair(Play("orders"), second=True)
    (number,) = sender.send("x")
    receiver.accept()
    assert sender.told[number] == [(ACCEPTED, False)]
    sender.settle(number)
    assert not receiver.told


def test_receiver_that_settles_after_it_told_needs_no_answer() -> None:
    sender, receiver = pair(Play("orders"), second=True)
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, settled=False)
    receiver.accept()
    sender.settle(number)
    assert not receiver.told


def test_single_delivery_may_ask_for_mode_second() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x", settles_second=True)
    receiver.accept()
    assert sender.told[number] == [(ACCEPTED, False)]


def test_single_delivery_may_ask_for_mode_first() -> None:
    """A sender that asked for it does not settle before it has heard that we have (§2.7.5)."""
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=10, second=True)
    sender = play.connect().attach_sender(second=True)
    (number,) = sender.send("one", settles_first=True)
    receiver.update(receiver.last.number, settled=False)
    assert sender.outcome(number) == (ACCEPTED, True)
    assert receiver.told_last(receiver.last.number) == (ACCEPTED, True)


def test_answer_says_whether_mode_second_is_kept() -> None:
    sender, _ = pair(Play("orders"), second=True)
    assert sender.attach is not None
    assert sender.attach.receiver_settle_mode == 1


# States that are no outcomes, and senders that speak up


@pytest.mark.parametrize("state", [Received(2, 10), UnknownState(b"\x00\x53\x99\x45")])
def test_state_that_is_no_outcome_is_carried(state: DeliveryState) -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, state=state, settled=False)
    assert sender.told[number] == [(state, False)]
    receiver.accept()
    assert sender.told[number] == [(state, False), (ACCEPTED, True)]


def test_outcome_of_the_sender_is_carried_and_confirmed() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    expired = Modified(undeliverable_here=True)
    sender.update(number, state=expired)
    assert receiver.told[receiver.last.number] == [(expired, False)]
    receiver.update(receiver.last.number, state=REJECTED)
    assert sender.told[number] == [(REJECTED, True)]


def test_how_far_a_sender_thinks_the_router_has_come_is_carried_to_nobody() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    sender.update(number, state=Received(1, 0))
    assert receiver.told == {}


def test_state_of_the_first_transfer_is_carried() -> None:
    sender, receiver = pair(Play("orders"))
    state = UnknownState(b"\x00\x53\x99\x45")
    sender.send("x", state=state)
    assert receiver.last.state == state


def test_sender_that_settles_before_the_outcome_settles_the_receiver() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("x")
    sender.settle(number, state=RELEASED)
    assert receiver.told[receiver.last.number] == [(RELEASED, True)]
    assert not receiver.unsettled


def test_delivery_settled_while_it_waits_is_the_routers_from_then_on() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=1)
    sender = play.connect().attach_sender()
    sender.send("x")
    play.core.handle(sender.peer.id, [], play.now)
    (waiting,) = sender.send("y")
    sender.settle(waiting)
    receiver.grant(5)
    assert not receiver.last.settled
    assert receiver.payloads == [b"x", b"y"]


def test_delivery_that_its_sender_resolves_while_it_waits_is_not_sent() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=1)
    sender = play.connect().attach_sender()
    sender.send("x")
    (waiting,) = sender.send("y")
    sender.settle(waiting, state=RELEASED)
    receiver.grant(5)
    assert receiver.payloads == [b"x"]


# Settled beforehand


def test_receiver_that_wants_everything_settled_answers_for_it_at_once() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5, mode=SenderSettleMode.SETTLED)
    sender = play.connect().attach_sender()
    (number,) = sender.send("x")
    assert receiver.last.settled
    assert sender.outcome(number) == (ACCEPTED, True)


def test_at_most_once_settles_when_it_sends() -> None:
    play = Play(Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender()
    (number,) = sender.send("x")
    assert receiver.last.settled
    assert sender.outcome(number) == (ACCEPTED, True)


# The next candidate


def test_released_delivery_tries_the_next_receiver_before_the_sender_hears() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    second = play.connect("b").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    first.update(first.last.number, state=RELEASED)
    assert second.payloads == [b"x"]
    assert second.last.delivery_count is None
    assert sender.outcome(number) is None
    second.update(second.last.number, state=RELEASED)
    assert sender.told[number] == [(RELEASED, True)]


def test_released_unsettled_is_settled_back_before_it_goes_on() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    second = play.connect("b").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("x")
    first.update(first.last.number, state=RELEASED, settled=False)
    assert first.told[first.last.number] == [(RELEASED, True)]
    assert second.payloads == [b"x"]


def test_modified_failed_raises_the_count_for_the_next() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    second = play.connect("b").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x", delivery_count=2)
    first.update(first.last.number, state=MODIFIED_FAILED)
    assert second.last.delivery_count == 3
    second.update(second.last.number, state=RELEASED)
    assert sender.told[number] == [(MODIFIED_FAILED, True)]


def test_undeliverable_here_excludes_that_receiver_only() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    second = play.connect("b").attach_receiver()
    sender = play.connect("s").attach_sender()
    (number, after) = sender.send("x", "y")
    assert first.payloads == [b"x", b"y"]
    first.update(first.received[0].number, state=Modified(undeliverable_here=True))
    first.update(first.received[1].number)
    assert sender.outcome(number) is None
    assert sender.outcome(after) == (ACCEPTED, True)
    second.grant(1)
    assert second.payloads == [b"x"]
    second.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_delivery_that_is_stepped_over_keeps_its_place() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=1)
    second = play.connect("b").attach_receiver(credit=0)
    sender = play.connect("s").attach_sender()
    sender.send("1")
    sender.send("2")
    first.update(first.last.number, state=RELEASED)
    first.grant(1)
    assert first.payloads == [b"1", b"2"]
    second.grant(5)
    assert second.payloads == [b"1"]


def test_changes_to_the_message_are_for_its_sender_to_make() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    second = play.connect("b").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    outcome = Modified(message_annotations={"x-opt-why": "because"})
    first.update(first.last.number, state=outcome)
    assert sender.told[number] == [(outcome, True)]
    assert not second.received


def test_released_run_goes_on_in_its_order() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send(*"abcde")
    second = play.connect("b").attach_receiver(credit=5)
    first.update(*(d.number for d in first.received), state=RELEASED)
    assert second.payloads == [b"a", b"b", b"c", b"d", b"e"]


def test_delivery_is_given_up_after_so_many_attempts() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", attempts=3))
    sender = None
    receivers = [play.connect(f"r{n}").attach_receiver(credit=5) for n in range(5)]
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("poison")
    for receiver in receivers[:3]:
        assert sender.outcome(number) is None
        receiver.update(receiver.last.number, state=MODIFIED_FAILED)
    assert sender.outcome(number) == (MODIFIED_FAILED, True)


# Several receivers


def test_multicast_reaches_all_and_merges_outcomes() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(f"r{n}").attach_receiver("prices", credit=5) for n in range(3)]
    sender = play.connect("s").attach_sender("prices")
    (number,) = sender.send("x")
    assert [r.payloads for r in receivers] == [[b"x"]] * 3
    receivers[0].update(receivers[0].last.number, state=RELEASED)
    receivers[1].accept()
    assert sender.outcome(number) is None
    receivers[2].update(receivers[2].last.number, state=MODIFIED_FAILED)
    assert sender.told[number] == [(ACCEPTED, True)]


def test_multicast_rejection_wins() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(f"r{n}").attach_receiver("prices", credit=5) for n in range(2)]
    sender = play.connect("s").attach_sender("prices")
    (number,) = sender.send("x")
    rejected = Rejected(Condition("my:error"))
    receivers[0].update(receivers[0].last.number, state=rejected)
    receivers[1].accept()
    assert sender.outcome(number) == (rejected, True)


def test_multicast_receiver_that_leaves_counts_as_failed() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(f"r{n}").attach_receiver("prices", credit=5) for n in range(2)]
    sender = play.connect("s").attach_sender("prices")
    (number,) = sender.send("x")
    receivers[0].detach()
    receivers[1].update(receivers[1].last.number, state=RELEASED)
    assert sender.outcome(number) == (MODIFIED_FAILED, True)


def test_multicast_waits_for_the_slowest() -> None:
    play = Play(MULTICAST)
    fast = play.connect("a").attach_receiver("prices", credit=50)
    slow = play.connect("b").attach_receiver("prices", credit=2)
    sender = play.connect("s").attach_sender("prices")
    assert sender.credit == 2
    sender.send("1", "2")
    sender.send("3")
    assert len(fast.received) == 2
    slow.grant(2)
    assert len(fast.received) == len(slow.received) == 3


def test_multicast_in_mode_second_waits_for_the_sender() -> None:
    play = Play(MULTICAST)
    receivers = [
        play.connect(f"r{n}").attach_receiver("prices", credit=5, second=True) for n in range(2)
    ]
    sender = play.connect("s").attach_sender("prices", second=True)
    (number,) = sender.send("x")
    for receiver in receivers:
        receiver.update(receiver.last.number, settled=False)
        assert receiver.told_last(receiver.last.number) == (ACCEPTED, True)
    assert sender.told[number] == [(ACCEPTED, False)]
    sender.settle(number)
    assert not sender.unsettled


def test_multicast_sender_that_settles_with_an_outcome_settles_all() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(f"r{n}").attach_receiver("prices", credit=5) for n in range(2)]
    sender = play.connect("s").attach_sender("prices")
    (number,) = sender.send("x")
    sender.settle(number, state=ACCEPTED)
    assert not any(receiver.unsettled for receiver in receivers)


# What a source can be told


@pytest.mark.parametrize(
    ("outcome", "allowed", "told"),
    [
        (RELEASED, (), RELEASED),
        (RELEASED, ("amqp:released:list",), RELEASED),
        (RELEASED, ("amqp:modified:list",), Modified()),
        (MODIFIED_FAILED, ("amqp:released:list", "amqp:accepted:list"), RELEASED),
        (REJECTED, ("amqp:released:list",), RELEASED),
        (REJECTED, ("amqp:modified:list",), Modified(True, True)),
        (
            RELEASED,
            ("amqp:accepted:list", "amqp:rejected:list"),
            Rejected(Condition(NOT_ALLOWED, "the outcome was amqp:released:list")),
        ),
        (None, ("amqp:accepted:list",), None),
        (ACCEPTED, ("amqp:released:list", "amqp:modified:list", "amqp:rejected:list"), None),
        (RELEASED, ("amqp:accepted:list",), None),
        (REJECTED, ("amqp:accepted:list",), None),
    ],
)
def test_outcome_is_narrowed_to_what_the_source_knows(
    outcome: DeliveryState | None, allowed: tuple[str, ...], told: DeliveryState | None
) -> None:
    assert narrow(outcome, allowed) == told


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_what_a_source_cannot_be_told_is_settled_without_a_word_if_it_has_a_default(
    second: bool, settled: bool
) -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender(
        outcomes=("amqp:accepted:list",), default_outcome=ACCEPTED, second=second
    )
    (number,) = sender.send("x")
    receiver.update(*receiver.unsettled, state=REJECTED, settled=settled)
    assert sender.told[number] == [(None, True)]
    assert not sender.unsettled
    assert not receiver.unsettled
    assert not sender.is_detached()


@pytest.mark.parametrize("outcome", [REJECTED, RELEASED])
@pytest.mark.parametrize("second", [True, False])
def test_the_link_of_a_source_that_cannot_be_told_and_has_no_default_ends(
    outcome: DeliveryState, second: bool
) -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender(outcomes=("amqp:accepted:list",), second=second)
    first, refused, last = sender.send("first", "refused", "last")
    numbers = list(receiver.unsettled)
    receiver.update(numbers[0])
    receiver.update(numbers[1], state=outcome)
    assert [state for state, _ in sender.told[first]] == [ACCEPTED]
    assert refused not in sender.told
    assert last not in sender.told
    assert sender.detached is not None
    assert sender.detached.condition is not None
    assert sender.detached.condition.info is not None
    assert sender.detached.condition.info["delivery-tag"] == b"t1"
    receiver.update(numbers[2])
    assert not receiver.unsettled


@pytest.mark.parametrize("second", [True, False])
def test_a_source_that_does_not_list_accepted_is_settled_without_a_word(second: bool) -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender(outcomes=("amqp:released:list",), second=second)
    (number,) = sender.send("x")
    receiver.accept()
    assert sender.told[number] == [(None, True)]
    assert not receiver.unsettled


def test_sender_without_rejected_is_told_released() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=5)
    sender = play.connect().attach_sender(outcomes=("amqp:accepted:list", "amqp:released:list"))
    (number,) = sender.send("x")
    receiver.update(receiver.last.number, state=REJECTED)
    assert sender.outcome(number) == (RELEASED, True)


def test_equal_outcomes_that_are_not_one_object_still_make_one_run() -> None:
    play = Play("orders")
    receiver = play.connect().attach_receiver(credit=100)
    sender = play.connect().attach_sender()
    sender.send(*"ab")
    from router.model.events import DeliveriesUpdated

    one, two = (delivery.number for delivery in receiver.received)
    receiver.unsettled.clear()
    orders = receiver.peer.happens(
        DeliveriesUpdated(receiver.link, [one], Accepted(), True),
        DeliveriesUpdated(receiver.link, [two], Accepted(), True),
    )
    assert len(orders) == 1
