"""Large messages go through part by part."""

import attrs
import pytest

from router.core.settings import CoreSettings
from router.model.condition import MESSAGE_SIZE_EXCEEDED
from router.model.events import PartsTaken
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import SenderSettleMode
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.play import AMQP, Play, ReceiverEnd, SenderEnd

WHOLE_ONLY = attrs.evolve(AMQP, streams=False)
SMALL = CoreSettings(router_id="dc1", keep_octets=10, part_octets=20, gather_octets=30)
MULTICAST = Route(address="orders", distribution=Distribution.MULTICAST)


def pair(play: Play, **fields: bool) -> tuple[SenderEnd, ReceiverEnd]:
    receiver = play.connect("r").attach_receiver(credit=10)
    return play.connect("s").attach_sender(), receiver


def test_parts_go_through_as_they_come() -> None:
    sender, receiver = pair(Play("orders"))
    (number,) = sender.send("one ", more=True)
    assert receiver.bodies == {0: b"one "}
    sender.go_on(b"two ")
    assert receiver.bodies == {0: b"one two "}
    assert receiver.partial is not None
    sender.go_on(b"three", more=False)
    assert receiver.payloads == [b"one two three"]
    receiver.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_run_that_ends_in_a_first_part() -> None:
    sender, receiver = pair(Play("orders"))
    deliveries = [sender.delivery("a"), sender.delivery("b"), sender.delivery("c", more=True)]
    sender.peer.happens(sender.run(deliveries))
    assert receiver.bodies == {0: b"a", 1: b"b", 2: b"c"}


def test_receiver_takes_nothing_else_meanwhile() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    one, two = (play.connect(name).attach_sender() for name in "st")
    one.send("large", more=True)
    two.send("small")
    assert len(receiver.received) == 1
    one.go_on(b"!", more=False)
    assert receiver.payloads == [b"large!", b"small"]


def test_others_go_round_a_receiver_that_is_busy() -> None:
    play = Play("orders")
    busy, free = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    one, two = (play.connect(name).attach_sender() for name in "st")
    one.send("large", more=True)
    two.send("x", "y")
    assert busy.partial is not None
    assert free.payloads == [b"x", b"y"]


def test_large_delivery_waits_for_credit_with_a_held_window() -> None:
    play = Play("orders", settings=SMALL)
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("x")
    sender.send(b"0123456789", more=True)
    assert not sender.is_held()
    sender.go_on(b"0123456789A")
    assert sender.is_held()
    receiver.grant(1)
    assert receiver.bodies[1] == b"01234567890123456789A"
    assert not sender.is_held()


def test_congested_receiver_holds_the_senders_window() -> None:
    play = Play("orders", settings=SMALL)
    sender, receiver = pair(play)
    sender.send(b"begin", more=True)
    receiver.peer.congest()
    sender.go_on(b"a" * 20)
    assert not sender.is_held()
    sender.go_on(b"b")
    assert sender.is_held()
    sender.go_on(b"c", more=False)
    receiver.peer.congest(False)
    assert not sender.is_held()
    assert receiver.payloads == [b"begin" + b"a" * 20 + b"bc"]


def test_memory_is_bounded_while_a_huge_delivery_goes_through() -> None:
    play = Play("orders", settings=SMALL)
    sender, receiver = pair(play)
    sender.send(b"x" * 100, more=True)
    for _ in range(1000):
        sender.go_on(b"x" * 100)
    assert play.core._registry.process.used <= 100
    sender.go_on(b"", more=False)
    assert len(receiver.payloads[0]) == 100_100


def test_abort_passes_through() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    sender.send("one", more=True)
    sender.abort()
    assert receiver.aborted == [0]
    assert not receiver.unsettled
    sender.send("next")
    assert receiver.payloads == [b"next"]
    receiver.accept()
    assert play.core._registry.process.used == 0


def test_abort_of_what_waits_leaves_nothing() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    sender.send("x")
    sender.send("one", more=True)
    sender.abort()
    receiver.grant(5)
    assert receiver.payloads == [b"x"]
    receiver.accept()
    assert play.core._registry.process.used == 0


def test_receiver_that_takes_no_parts_is_sent_the_whole() -> None:
    play = Play("orders")
    receiver = play.connect("r", capabilities=WHOLE_ONLY).attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("one ", more=True)
    sender.go_on(b"two")
    assert not receiver.received
    sender.go_on(b"!", more=False)
    assert receiver.payloads == [b"one two!"]
    assert not receiver.last.more


def test_a_receiver_takes_parts_from_when_it_says_so() -> None:
    play = Play("orders")
    receiver = play.connect("r", capabilities=WHOLE_ONLY).attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    sender.send("one ", more=True)
    assert not receiver.received
    receiver.peer.happens(PartsTaken(receiver.link))
    assert receiver.bodies == {0: b"one "}
    sender.go_on(b"two")
    assert receiver.bodies == {0: b"one two"}


def test_a_link_that_is_gone_takes_nothing() -> None:
    play = Play("orders")
    receiver = play.connect("r", capabilities=WHOLE_ONLY).attach_receiver(credit=5)
    receiver.detach()
    assert receiver.peer.happens(PartsTaken(receiver.link)) == []


def test_what_cannot_be_gathered_is_rejected_when_it_has_come() -> None:
    play = Play("orders", settings=SMALL)
    receiver = play.connect("r", capabilities=WHOLE_ONLY).attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x" * 20, more=True)
    sender.go_on(b"x" * 20)
    assert sender.outcome(number) is None
    assert not sender.is_held()
    sender.go_on(b"x", more=False)
    outcome = sender.outcome(number)
    assert outcome is not None
    assert isinstance(outcome[0], Rejected)
    assert outcome[0].error is not None
    assert outcome[0].error.name == MESSAGE_SIZE_EXCEEDED
    assert not receiver.received
    assert play.core._registry.process.used == 0


def test_receiver_lost_in_the_middle_while_all_is_kept_starts_with_the_next() -> None:
    play = Play("orders")
    first, second = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("one ", more=True)
    first.peer.lose()
    assert second.bodies == {0: b"one "}
    sender.go_on(b"two", more=False)
    assert second.payloads == [b"one two"]
    assert second.last.delivery_count == 1
    second.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_receiver_lost_after_all_came_and_all_is_kept_starts_with_the_next() -> None:
    play = Play("orders")
    first, second = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    sender.send("one ", more=True)
    sender.go_on(b"two", more=False)
    first.peer.lose()
    assert second.payloads == [b"one two"]


def test_receiver_lost_in_the_middle_of_more_than_is_kept_fails_at_the_end() -> None:
    play = Play("orders", settings=SMALL)
    first, second = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x" * 15, more=True)
    sender.go_on(b"x")
    first.peer.lose()
    sender.go_on(b"x")
    assert sender.outcome(number) is None
    sender.go_on(b"x", more=False)
    assert sender.outcome(number) == (MODIFIED_FAILED, True)
    assert not second.received
    assert play.core._registry.process.used == 0


def test_sender_lost_in_the_middle_aborts_at_the_receiver() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    sender.send("one ", more=True)
    sender.peer.lose()
    assert receiver.aborted == [0]
    assert play.core._registry.process.used == 0


def test_early_rejection_is_told_when_the_last_part_has_come() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    (number,) = sender.send("one ", more=True)
    receiver.update(receiver.last.number, state=REJECTED)
    assert receiver.aborted == [0]
    sender.go_on(b"two")
    assert sender.outcome(number) is None
    sender.go_on(b"!", more=False)
    assert sender.outcome(number) == (REJECTED, True)


def test_early_release_starts_with_the_next() -> None:
    play = Play("orders")
    first, second = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("one ", more=True)
    first.update(first.last.number, state=RELEASED)
    sender.go_on(b"two", more=False)
    assert second.payloads == [b"one two"]
    second.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_message_grown_beyond_what_the_receiver_takes_goes_to_another() -> None:
    play = Play("orders")
    small = play.connect("a").attach_receiver(credit=10, max_message_octets=8)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x" * 5, more=True)
    large = play.connect("b").attach_receiver(credit=10)
    sender.go_on(b"x" * 10)
    assert small.aborted == [0]
    sender.go_on(b"", more=False)
    assert large.payloads == [b"x" * 15]
    large.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_message_that_is_too_large_for_everybody_is_rejected() -> None:
    play = Play("orders")
    small = play.connect("a").attach_receiver(credit=10, max_message_octets=8)
    sender = play.connect("s").attach_sender()
    (one, two) = sender.send("x" * 9, "y")
    assert small.payloads == [b"y"]
    outcome = sender.outcome(one)
    assert outcome is not None
    assert isinstance(outcome[0], Rejected)
    small.accept()
    assert sender.outcome(two) == (ACCEPTED, True)


def test_parts_settled_beforehand() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    sender.send("a", more=True, settled=True)
    sender.go_on(b"b", more=False)
    assert receiver.payloads == [b"ab"]
    assert not receiver.last.settled
    receiver.accept()
    assert play.core._registry.process.used == 0


def test_sender_may_settle_with_the_last_part() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    (number,) = sender.send("a", more=True)
    del sender.unsettled[number]
    sender.go_on(b"b", more=False, settled=True)
    receiver.accept()
    assert sender.outcome(number) is None
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize("state", [None, ACCEPTED])
def test_sender_may_settle_before_the_last_part(
    state: DeliveryState | None, guarantee: Guarantee
) -> None:
    play = Play(Route(address="orders", guarantee=guarantee))
    sender, receiver = pair(play)
    (number,) = sender.send("a", more=True)
    if number in sender.unsettled:
        sender.settle(number, state=state)
    sender.go_on(b"b")
    sender.go_on(b"c", more=False)
    sender.send("next")
    assert receiver.payloads == [b"abc", b"next"]
    if receiver.unsettled:
        receiver.accept()
    assert play.core._registry.process.used == 0


def test_what_its_sender_has_settled_may_still_be_aborted() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    (number,) = sender.send("a", more=True)
    sender.settle(number)
    sender.go_on(b"b")
    sender.abort()
    assert receiver.aborted == [0]
    sender.send("next")
    assert receiver.payloads == [b"next"]
    receiver.accept()
    assert play.core._registry.process.used == 0


def test_parts_to_a_receiver_that_wants_everything_settled() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5, mode=SenderSettleMode.SETTLED)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("a", more=True)
    assert sender.outcome(number) is None
    sender.go_on(b"b", more=False)
    assert receiver.payloads == [b"ab"]
    assert sender.outcome(number) == (ACCEPTED, True)


def test_multicast_in_parts_reaches_all_at_their_own_pace() -> None:
    play = Play(MULTICAST, settings=SMALL)
    fast, slow = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("one ", more=True)
    slow.peer.congest()
    sender.go_on(b"x" * 30)
    assert sender.is_held()
    assert fast.bodies[0] == b"one " + b"x" * 30
    assert slow.bodies[0] == b"one "
    sender.go_on(b"!", more=False)
    slow.peer.congest(False)
    assert not sender.is_held()
    assert fast.payloads == slow.payloads
    fast.accept()
    assert sender.outcome(number) is None
    slow.accept()
    assert sender.outcome(number) == (ACCEPTED, True)
    assert play.core._registry.process.used == 0


def test_multicast_in_parts_outlives_one_of_its_receivers() -> None:
    play = Play(MULTICAST)
    one, two = (play.connect(name).attach_receiver(credit=10) for name in "ab")
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("one ", more=True)
    one.peer.lose()
    sender.go_on(b"two", more=False)
    assert two.payloads == [b"one two"]
    two.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_multicast_to_one_that_takes_no_parts_is_gathered_for_all() -> None:
    play = Play(MULTICAST)
    whole = play.connect("a", capabilities=WHOLE_ONLY).attach_receiver(credit=10)
    other = play.connect("b").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    sender.send("one ", more=True)
    assert not other.received
    sender.go_on(b"two", more=False)
    assert whole.payloads == other.payloads == [b"one two"]


def test_multicast_abort_reaches_all() -> None:
    play = Play(MULTICAST)
    receivers = [play.connect(name).attach_receiver(credit=10) for name in "ab"]
    sender = play.connect("s").attach_sender()
    sender.send("one ", more=True)
    sender.abort()
    assert all(receiver.aborted == [0] for receiver in receivers)
    assert play.core._registry.process.used == 0


def test_last_receiver_lost_in_the_middle_and_another_comes() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    (number,) = sender.send("one ", more=True)
    receiver.peer.lose()
    sender.go_on(b"two", more=False)
    assert sender.outcome(number) == (MODIFIED_FAILED, True)


def test_silent_sender_is_reported_and_blocks_nobody_who_does_not_wait() -> None:
    play = Play("orders")
    sender, receiver = pair(play)
    sender.send("one ", more=True)
    play.wait(59)
    assert "delivery.stalled" not in play.events()
    play.wait(2)
    assert play.events().count("delivery.stalled") == 1
    assert not receiver.aborted
    sender.go_on(b"two", more=False)
    assert receiver.payloads == [b"one two"]
    assert play.core.deadline is None


def test_others_go_before_a_sender_that_fell_silent() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    silent, other = (play.connect(name).attach_sender() for name in "st")
    (number,) = silent.send("one ", more=True)
    other.send("small")
    play.wait(61)
    assert receiver.aborted == [0]
    assert receiver.payloads == [b"small"]
    silent.go_on(b"two", more=False)
    assert receiver.payloads == [b"small", b"one two"]
    receiver.accept()
    assert silent.outcome(number) == (ACCEPTED, True)


def test_silent_sender_of_more_than_is_kept_has_failed_if_others_wait() -> None:
    play = Play("orders", settings=SMALL)
    receiver = play.connect("r").attach_receiver(credit=10)
    silent, other = (play.connect(name).attach_sender() for name in "st")
    (number,) = silent.send("x" * 15, more=True)
    silent.go_on(b"x")
    other.send("small")
    play.wait(61)
    assert receiver.payloads == [b"small"]
    silent.go_on(b"x", more=False)
    assert silent.outcome(number) == (MODIFIED_FAILED, True)


def test_sender_that_is_held_by_us_is_not_called_silent() -> None:
    play = Play("orders", settings=SMALL)
    sender, receiver = pair(play)
    sender.send("one ", more=True)
    receiver.peer.congest()
    sender.go_on(b"x" * 30)
    play.wait(200)
    assert "delivery.stalled" not in play.events()
    receiver.peer.congest(False)
    sender.go_on(b"!", more=False)
    assert receiver.payloads == [b"one " + b"x" * 30 + b"!"]


def test_settled_parts_whose_receiver_is_lost_with_nothing_kept_leave_nothing() -> None:
    play = Play("orders", settings=SMALL)
    sender, receiver = pair(play)
    sender.send("x" * 5, more=True, settled=True)
    sender.go_on(b"x" * 60)
    receiver.peer.lose()
    sender.go_on(b"x" * 6, more=False)
    assert play.core._registry.process.used == 0
    assert "delivery.dropped" in play.events()


def test_a_broken_delivery_of_a_container_that_was_to_get_it_itself_goes_nowhere() -> None:
    """Its link as a receiver is lost first: for a moment the delivery has no receiver."""
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east")
    sender = east.attach_sender("orders")
    receiver = east.answer_receiver("orders", credit=10)
    sender.send(b"half", more=True)
    assert receiver.partial is not None
    east.lose()
    other = play.connect("other").attach_sender("orders")
    again = play.dial("east").answer_receiver("orders", credit=10)
    other.send(b"whole")
    assert again.payloads == [b"whole"]
