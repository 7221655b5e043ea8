"""Deliveries that their senders give up (§2.7.5, aborted), on the express lane and off it.

Whatever an aborted delivery does to links and windows, what comes after it must get through, and
its sender must get back the credit that it took.
"""

import pytest

from router.model.outcome import ACCEPTED
from tests.support.exchange import Sender, message, number_of
from tests.support.kernel import MODES, needs_kernel
from tests.support.lane_meeting import Meeting

PART = 70_000
"""More than a frame."""


def abort(meeting: Meeting, sender: Sender, parts: int, *, apart: bool) -> None:
    """Begins a delivery, goes on with it and gives it up."""
    assert sender.begin(message(0, PART), False)
    for _ in range(parts - 1):
        if apart:
            meeting.settle_down()
        sender.go_on(bytes(PART), more=True)
    if apart:
        meeting.settle_down()
    sender.abort()


def replace_lost_credit(meeting: Meeting, credit: int) -> None:
    """Has the receiver give anew what was taken by deliveries that it has seen the beginning of."""
    receiver = meeting.receiver
    if receiver.aborted:
        receiver.aborted = 0
        receiver.grant(credit)
        meeting.settle_down()


def finish(meeting: Meeting, *others: Sender) -> None:
    """Has what follows go through, and finds every delivery where it belongs."""
    sender = meeting.sender
    for size in (8, PART, 8):
        meeting.receiver.grant(100)
        meeting.settle_down()
        before = len(meeting.receiver.received)
        meeting.send(3, size=size)
        meeting.accept()
        assert len(meeting.receiver.received) >= before + 3
    whole = [each for each in sender.sent if not each.is_aborted]
    assert [each.state for each in whole] == [ACCEPTED] * len(whole)
    sizes = [len(each.payload) for each in whole]
    sizes += [len(each.payload) for other in others for each in other.sent]
    assert sorted(sizes) == sorted(len(each) for each in meeting.receiver.received)
    express = meeting.exchange.express
    assert express is None or express.kept_octets == 0
    assert meeting.exchange.core._registry.process.used == 0


@pytest.mark.thorough
@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize("parts", [1, 2, 3, 40])
@pytest.mark.parametrize("credit", [1, 3, 100])
@pytest.mark.parametrize("mode", MODES)
def test_the_credit_that_aborted_deliveries_took_comes_back(
    mode: str, credit: int, parts: int, apart: bool
) -> None:
    meeting = Meeting(mode, credit=credit)
    meeting.send(1)
    meeting.accept()
    meeting.receiver.grant(credit)
    meeting.settle_down()
    for _ in range(8 if credit < 100 else 60):
        assert meeting.sender.credit > 0
        abort(meeting, meeting.sender, parts, apart=apart)
        meeting.settle_down()
        replace_lost_credit(meeting, credit)
    finish(meeting)


@pytest.mark.parametrize("mode", MODES)
def test_several_aborted_deliveries_in_one_read_give_their_credit_back(mode: str) -> None:
    meeting = Meeting(mode, credit=3)
    meeting.send(1)
    meeting.accept()
    meeting.receiver.grant(3)
    meeting.settle_down()
    sender = meeting.sender
    for _ in range(10):
        assert sender.begin(message(0, PART), False)
        meeting.settle_down()  # the first of them on the lane, what follows behind its abort
        sender.abort()
        while sender.credit:
            abort(meeting, sender, 2, apart=False)
        meeting.settle_down()
        replace_lost_credit(meeting, 3)
        assert sender.credit > 0
    finish(meeting)


@pytest.mark.parametrize("mode", MODES)
def test_an_abort_voids_a_delivery_while_nobody_has_credit(mode: str) -> None:
    meeting = Meeting(mode, credit=5)
    meeting.send(1)
    meeting.accept()
    other = meeting.attach_sender()
    other.send([message(0, 8)] * 5, False)
    meeting.settle_down()
    abort(meeting, meeting.sender, 3, apart=True)
    meeting.settle_down()
    meeting.receiver.grant(1)
    meeting.settle_down()
    finish(meeting, other)


@pytest.mark.parametrize("mode", MODES)
def test_an_abort_voids_a_delivery_whose_receiver_is_congested(mode: str) -> None:
    meeting = Meeting(mode)
    exchange, sender = meeting.exchange, meeting.sender
    meeting.send(1)
    meeting.accept()
    for _ in range(3):
        sender.send([message(97, PART)] * 30, False)
        exchange.push(sender.client)
        assert sender.begin(message(0, PART), False)
        exchange.push(sender.client)
        sender.go_on(bytes(PART), more=True)
        exchange.push(sender.client)
        sender.abort()
        exchange.push(sender.client)
        sender.send([message(97, 8)] * 5, False)
        meeting.settle_down()
        meeting.accept()
        meeting.receiver.grant(100)
        meeting.settle_down()
    finish(meeting)


@pytest.mark.parametrize("mode", MODES)
def test_a_delivery_that_is_being_streamed_is_aborted_and_more_follow(mode: str) -> None:
    meeting = Meeting(mode)
    exchange, sender = meeting.exchange, meeting.sender
    meeting.send(1)
    meeting.accept()
    for _ in range(3):
        assert sender.begin(message(0, 3_000_000), False)  # more than a lane gathers
        meeting.settle_down()
        assert meeting.receiver.partial
        sender.go_on(bytes(1_000_000), more=True)
        exchange.push(sender.client)
        sender.abort()
        sender.send([message(97, 8)] * 5, False)
        assert sender.begin(message(0, PART), False)
        sender.abort()
        meeting.settle_down()
        assert not meeting.receiver.partial
        meeting.accept()
    finish(meeting)


@needs_kernel
def test_deliveries_that_the_core_judges_give_their_credit_back() -> None:
    meeting = Meeting("cython", credit=3000)
    meeting.promote()
    for _ in range(1200):
        meeting.send(1, ttl=1000)
        meeting.accept()
    assert meeting.is_on_lane()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent
    assert [number_of(e) for e in meeting.receiver.received] == [97 * e for e in range(1202)]
