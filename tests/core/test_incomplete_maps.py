"""Unsettled maps that do not fit a frame: how long it takes until both are complete (§2.6.13).

The peers here answer at once, so that each second that passes is the router's.
"""

import pytest

from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, DeliveryState
from router.routes.route import Endpoint, Guarantee, Route
from tests.core.test_resume import body
from tests.support.play import Play, ReceiverEnd, SenderEnd

FROM_EAST = Route(address="orders", from_=Endpoint("east"), guarantee=Guarantee.EXACTLY_ONCE)
TO_EAST = Route(address="orders", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE)

FRAME_OCTETS = 180
"""Frames that take an attach of ours with two entries in its map."""

Map = dict[DeliveryTag, DeliveryState | None]


def two_of(unsettled: Map) -> Map:
    """Returns the first two entries of a map, and moves them to its end."""
    listed = {tag: unsettled[tag] for tag in list(unsettled)[:2]}
    for tag in listed:
        unsettled[tag] = unsettled.pop(tag)
    return listed


def seconds_until_detached(play: Play, end: SenderEnd | ReceiverEnd) -> float:
    """Waits until the router ends a round, and returns how long that takes."""
    began = play.now
    while not end.is_detached():
        play.wait(0.25)
        assert play.now < began + 300, "it waits for nothing"
    return play.now - began


@pytest.mark.parametrize("unknown", [0, 3, 12])
def test_what_a_source_has_settled_is_given_up_two_by_two_without_longer_and_longer_pauses(
    unknown: int,
) -> None:
    """It has something else that never arrived, so that its map shows nothing to be settled."""
    play = Play(FROM_EAST, frame_octets=FRAME_OCTETS)
    there = play.connect("shop").attach_receiver(name="in", second=True, credit=50)
    sending = play.dial("east").answer_sender()
    known: Map = {DeliveryTag(b"known-%d" % number): None for number in range(12)}
    for tag in known:
        sending.send(body(tag.decode()), tag=tag)
    sending.peer.lose()
    east = play.dial("east")
    for _ in range(6):  # it resumes all of them, and the target takes its time
        (asked,) = east.asked.values()
        end = east.answer_sender(unsettled=two_of(known), incomplete_unsettled=True)
        for tag in (tag for tag in asked.unsettled or () if tag in known):
            end.send(body(tag.decode()), tag=tag, resume=True)
        end.give_back_credit()
        seconds_until_detached(play, end)
    there.update(*there.unsettled, settled=False)
    east.lose()  # it has read all outcomes, and settled; that was lost
    theirs: Map = {DeliveryTag(b"lost-%d" % number): None for number in range(unknown)}
    east = play.dial("east")
    began = play.now
    while True:
        (asked,) = east.asked.values()
        if not asked.incomplete_unsettled:  # nothing of it has arrived: it is to be sent anew
            theirs.clear()
        is_incomplete = len(theirs) > 2
        end = east.answer_sender(unsettled=two_of(theirs), incomplete_unsettled=is_incomplete)
        if not (asked.incomplete_unsettled or is_incomplete):
            break
        if end.was_drained() and end.credit:
            end.give_back_credit()
        seconds_until_detached(play, end)
    assert play.now - began < 12
    assert not there.unsettled
    assert end.credit > 0


@pytest.mark.parametrize("unknown", [0, 3, 12])
def test_what_a_target_alone_has_is_settled_two_by_two_without_longer_and_longer_pauses(
    unknown: int,
) -> None:
    """It has outcomes of what is settled here, and has never had the rest."""
    play = Play(TO_EAST, frame_octets=FRAME_OCTETS)
    here = play.connect("app").attach_sender(name="out", second=True)
    east = play.dial("east")
    first = east.answer_receiver(credit=9)
    numbers = here.send(*(body(str(number)) for number in range(9)))
    tags = [delivery.tag for delivery in first.received]
    east.lose()
    theirs: Map = {DeliveryTag(b"settled-%d" % number): ACCEPTED for number in range(unknown)}
    theirs |= dict.fromkeys(tags[4:], ACCEPTED)
    east = play.dial("east")
    began = play.now
    while True:
        (asked,) = east.asked.values()
        if not asked.incomplete_unsettled:
            ours = asked.unsettled or {}
            theirs = {tag: state for tag, state in theirs.items() if tag in ours}
        is_incomplete = len(theirs) > 2
        end = east.answer(unsettled=two_of(theirs), incomplete_unsettled=is_incomplete)
        assert isinstance(end, ReceiverEnd)
        if not (asked.incomplete_unsettled or is_incomplete):
            break
        end.grant(9)
        for delivery in end.received:
            assert delivery.resume
            if delivery.settled:
                theirs.pop(delivery.tag, None)
        answered = [number for number in numbers if here.outcome(number) == (ACCEPTED, False)]
        here.settle(*(number for number in answered if number in here.unsettled))
        for number, tag in end.unsettled.copy().items():
            assert end.told_last(number) == (ACCEPTED, True), tag
        for delivery in end.received:
            if delivery.number not in end.unsettled:
                theirs.pop(delivery.tag, None)
        assert seconds_until_detached(play, end) <= 4
    assert play.now - began < 12
    end.grant(9)
    assert sorted(end.payloads) == [body(str(number)) for number in range(4)]
