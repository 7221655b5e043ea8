"""Suspended links and what both sides do when they come back (§2.6.13)."""

import attrs
import pytest

from router.core.resolve import Decision
from router.core.settings import CoreSettings
from router.links.tags import derived_tag, tag_prefix
from router.model.capabilities import Capabilities, Protocol
from router.model.condition import NOT_IMPLEMENTED, STOLEN, Condition
from router.model.identity import ContainerId, DeliveryTag, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Received,
)
from router.model.terminus import ExpiryPolicy, ReceiverSettleMode
from router.routes.route import Distribution, Endpoint, Guarantee, InDoubt, Route
from tests.support.play import AMQP, RESUMING, Peer, Play, ReceiverEnd, SenderEnd

EXACTLY = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
TO_EAST = Route(address="orders", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE)
FROM_EAST = Route(address="orders", from_=Endpoint("east"), guarantee=Guarantee.EXACTLY_ONCE)
T0, T1, T2, T3 = (DeliveryTag(b"t%d" % n) for n in range(4))
ALL = Received(1, 0)
"""Where a message of one section ends."""


def body(text: str) -> bytes:
    """Encodes a message of one data section."""
    octets = text.encode()
    return b"\x00\x53\x75\xa0" + bytes([len(octets)]) + octets


def sender(
    play: Play,
    unsettled: dict[DeliveryTag, DeliveryState | None] | None = None,
    *,
    second: bool = True,
    user: str | None = None,
    incomplete: bool = False,
) -> SenderEnd:
    return play.connect("app", user=user).attach_sender(
        name="out",
        second=second,
        unsettled=unsettled,
        seconds=300,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        incomplete=incomplete,
    )


def receiver(
    play: Play,
    unsettled: dict[DeliveryTag, DeliveryState | None] | None = None,
    *,
    second: bool = True,
    credit: int = 10,
    seconds: int = 300,
    incomplete: bool = False,
) -> ReceiverEnd:
    return play.connect("shop").attach_receiver(
        name="in",
        second=second,
        unsettled=unsettled,
        seconds=seconds,
        credit=credit,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        incomplete=incomplete,
    )


def answered_map(end: SenderEnd | ReceiverEnd) -> dict[DeliveryTag, DeliveryState | None] | None:
    assert end.attach is not None
    return None if end.attach.unsettled is None else dict(end.attach.unsettled)


def tag_of(end: ReceiverEnd, payload: bytes) -> DeliveryTag:
    return next(d.tag for d in end.received if end.bodies[d.number] == payload)


def answer_receiver(
    peer: Peer, unsettled: dict[DeliveryTag, DeliveryState | None], credit: int = 9
) -> ReceiverEnd:
    """Answers our attach with a map, and grants credit."""
    end = peer.answer(unsettled=unsettled)
    assert isinstance(end, ReceiverEnd)
    end.grant(credit)
    return end


# Senders that come back


def test_first_attach_without_a_map_is_answered_without_one() -> None:
    assert answered_map(sender(Play(EXACTLY))) is None


def test_attach_with_a_map_is_answered_with_one_even_if_nothing_is_known() -> None:
    back = sender(Play(EXACTLY), {T0: None})
    assert answered_map(back) == {}


def test_outcome_that_came_while_the_sender_was_away_waits_for_it() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    there.update(there.last.number, settled=False)
    assert not there.told
    back = sender(play, {T0: None})
    assert answered_map(back) == {T0: ACCEPTED}
    (number,) = back.send(b"", tag=T0, resume=True, state=ACCEPTED, settled=True)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert not there.unsettled
    assert back.outcome(number) is None
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("is_dialed_first", [True, False])
def test_an_outcome_of_a_target_that_settles_first_waits_for_its_sender_on_an_exact_route(
    is_dialed_first: bool,
) -> None:
    play = Play(attrs.evolve(TO_EAST, in_doubt=InDoubt.HOLD))
    basic = Capabilities(protocol=Protocol.AMQP_0_9_1)
    east = play.dial("east", capabilities=basic) if is_dialed_first else None
    away = sender(play)
    east = east or play.dial("east", capabilities=basic)
    there = east.answer_receiver(credit=9)
    assert away.attach is not None
    assert away.attach.receiver_settle_mode is ReceiverSettleMode.SECOND
    (number,) = away.send(body("x"))
    there.accept(there.last.number)
    assert away.outcome(number) == (ACCEPTED, False)
    away.peer.lose()  # before it has read that
    back = sender(play, {T0: None})
    assert answered_map(back) == {T0: ACCEPTED}
    back.send(b"", tag=T0, resume=True, state=ACCEPTED, settled=True)
    assert len(there.received) == 1
    assert play.core._registry.process.used == 0


def test_waiting_outcome_is_told_to_a_sender_that_resumes_unsettled() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    there.update(there.last.number, settled=False)
    back = sender(play, {T0: None})
    (number,) = back.send(b"", tag=T0, resume=True)
    assert back.told[number] == [(ACCEPTED, False)]
    back.settle(number)
    assert there.told_last(there.last.number) == (ACCEPTED, True)


def test_waiting_outcome_in_mode_first_is_told_settled() -> None:
    play = Play("orders")
    there = receiver(play, second=False)
    away = sender(play, second=False)
    away.send(body("x"))
    away.peer.lose()
    there.accept()
    back = sender(play, {T0: None}, second=False)
    (number,) = back.send(b"", tag=T0, resume=True)
    assert back.told[number] == [(ACCEPTED, True)]


def test_delivery_that_is_still_under_way_goes_on_under_its_new_number() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    back = sender(play, {T0: None})
    assert answered_map(back) == {T0: ALL}
    (number,) = back.send(body("x"), tag=T0, resume=True)
    assert len(there.received) == 1
    there.update(there.last.number, settled=False)
    assert back.told[number] == [(ACCEPTED, False)]
    back.settle(number)
    assert not there.unsettled


def test_what_the_sender_has_forgotten_is_settled() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    (number,) = away.send(body("x"))
    there.update(there.last.number, settled=False)
    assert away.outcome(number) == (ACCEPTED, False)
    away.peer.lose()  # and the settling with it
    back = sender(play, {})
    assert answered_map(back) == {}
    assert there.told_last(there.last.number) == (ACCEPTED, True)


def test_sender_without_state_starts_afresh_and_what_is_under_way_runs_to_its_end() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    back = sender(play)
    assert answered_map(back) is None
    there.update(there.last.number, settled=False)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    (number,) = back.send(body("y"), tag=T0)
    there.update(there.last.number, settled=False)
    assert back.outcome(number) == (ACCEPTED, False)


def test_delivery_that_waited_goes_on_while_its_sender_is_away() -> None:
    play = Play(EXACTLY)
    there = receiver(play, credit=1)
    away = sender(play)
    away.send(body("x"))
    away.send(body("y"))
    away.peer.lose()
    there.grant(1)
    assert there.payloads == [body("x"), body("y")]
    there.update(there.last.number, settled=False)
    back = sender(play, {T0: None, T1: None})
    assert answered_map(back) == {T0: ALL, T1: ACCEPTED}


def test_resumed_delivery_that_is_not_known_is_ignored() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    back = sender(play, {T3: None})
    back.unsettled.clear()
    back.send(body("x"), tag=T3, resume=True, more=True)
    back.go_on(b"more", more=False)
    assert not there.received
    back.unsettled.clear()
    back.send(body("y"), tag=T1)
    assert there.payloads == [body("y")]


def test_sender_that_restates_another_outcome_has_it_echoed_and_settled() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    there.update(there.last.number, settled=False)
    back = sender(play, {T0: REJECTED})
    (number,) = back.send(b"", tag=T0, resume=True, state=REJECTED)
    assert back.told[number] == [(REJECTED, True)]
    assert there.told_last(there.last.number) == (REJECTED, True)


def test_sender_that_aborts_what_it_resumes_hears_no_more() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    back = sender(play, {T0: REJECTED})
    back.send(b"", tag=T0, resume=True, more=True)
    back.abort()
    there.update(there.last.number, settled=False)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert play.core._registry.process.used == 0


def test_partly_sent_delivery_goes_on_from_what_is_here() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    whole = body("0123456789")
    away = sender(play)
    away.send(whole[:8], more=True)
    assert there.partial is not None
    away.peer.lose()
    assert there.aborted == [0]
    back = sender(play, {T0: None})
    assert answered_map(back) == {T0: Received(0, 8)}
    (number,) = back.send(whole[8:12], tag=T0, resume=True, state=Received(0, 8), more=True)
    back.go_on(whole[12:], more=False)
    assert there.payloads == [whole]
    there.update(there.last.number, settled=False)
    assert back.outcome(number) == (ACCEPTED, False)


def test_partly_sent_delivery_that_starts_over_is_taken_up_where_it_was() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    whole = body("0123456789")
    away = sender(play)
    away.send(whole[:8], more=True)
    away.peer.lose()
    back = sender(play, {T0: None})
    back.send(whole[:3], tag=T0, resume=True, more=True)
    back.go_on(whole[3:9])
    back.go_on(whole[9:], more=False)
    assert there.payloads == [whole]


def test_partly_sent_delivery_with_a_gap_has_failed() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("0123456789")[:8], more=True)
    away.peer.lose()
    back = sender(play, {T0: Received(0, 12)})
    (number,) = back.send(b"xx", tag=T0, resume=True, state=Received(0, 12))
    assert back.outcome(number) == (MODIFIED_FAILED, False)
    assert there.aborted == [0]
    assert not there.payloads


def test_partly_sent_delivery_of_which_too_much_is_gone_is_forgotten() -> None:
    play = Play(EXACTLY, settings=CoreSettings(router_id="dc1", keep_octets=4))
    receiver(play)
    away = sender(play)
    away.send(body("0123456789"), more=True)
    away.go_on(b"x")
    away.peer.lose()
    assert answered_map(sender(play, {T0: None})) == {}
    assert play.core._registry.process.used == 0


def test_partly_sent_delivery_is_dropped_if_its_sender_never_returns() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("0123456789")[:8], more=True)
    away.peer.lose()
    play.wait(301)
    assert play.core._registry.process.used == 0
    assert not there.payloads


def test_sender_that_never_returns_frees_its_receivers() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"), body("y"))
    away.peer.lose()
    there.update(there.received[0].number, settled=False)
    play.wait(299)
    assert not there.told
    play.wait(2)
    assert there.told_last(there.received[0].number) == (ACCEPTED, True)
    there.update(there.received[1].number, settled=False)
    assert there.told_last(there.received[1].number) == (ACCEPTED, True)
    assert not play.core._registry.suspended
    assert answered_map(sender(play, {T0: None})) == {}


def test_terminus_without_time_is_not_kept() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    client = play.connect("app")
    client.attach_sender(name="out", second=True).send(body("x"))
    client.lose()
    there.update(there.last.number, settled=False)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert not play.core._registry.suspended


def test_terminus_counts_from_the_end_of_its_connection() -> None:
    play = Play(EXACTLY)
    receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.detach(closed=False)
    play.wait(10_000)
    assert play.core._registry.suspended
    away.peer.lose()
    play.wait(299)
    assert play.core._registry.suspended
    play.wait(2)
    assert not play.core._registry.suspended


def test_terminus_with_link_detach_counts_at_once() -> None:
    play = Play(EXACTLY)
    receiver(play)
    client = play.connect("app")
    away = client.attach_sender(name="out", policy=ExpiryPolicy.LINK_DETACH, seconds=5)
    away.send(body("x"))
    away.detach(closed=False)
    play.wait(6)
    assert not play.core._registry.suspended


def test_closed_link_is_not_kept() -> None:
    play = Play(EXACTLY)
    receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.detach(closed=True)
    assert not play.core._registry.suspended


def test_other_identity_gets_nothing() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play, user="alice")
    away.send(body("x"))
    away.peer.lose()
    there.update(there.last.number, settled=False)
    spoofed = sender(play, {T0: None}, user="mallory")
    assert answered_map(spoofed) == {}
    back = sender(play, {T0: None}, user="alice")
    assert answered_map(back) == {T0: ACCEPTED}


def test_link_that_steals_takes_over_what_is_unsettled() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    old = sender(play)
    old.send(body("x"))
    new = sender(play, {T0: None})
    assert old.detached is not None
    assert old.detached.condition is not None
    assert old.detached.condition.name == STOLEN
    assert answered_map(new) == {T0: ALL}
    (number,) = new.send(b"", tag=T0, resume=True)
    there.update(there.last.number, settled=False)
    assert new.outcome(number) == (ACCEPTED, False)


def test_name_for_another_address_is_another_link() -> None:
    play = Play(EXACTLY, "bills")
    receiver(play)
    away = sender(play)
    away.send(body("x"))
    away.peer.lose()
    other = play.connect("app").attach_sender("bills", name="out", unsettled={})
    assert answered_map(other) == {}
    assert not play.core._registry.suspended


def test_resumed_link_gets_credit_for_what_it_resumes_though_nobody_receives() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"), body("y"))
    away.peer.lose()
    there.update(*(d.number for d in there.received), settled=False)
    there.peer.lose()
    back = sender(play, {T0: None, T1: None})
    assert back.credit == 2
    one, two = (back.send(b"", tag=tag, resume=True)[0] for tag in (T0, T1))
    assert back.outcome(one) == back.outcome(two) == (ACCEPTED, False)


def test_anonymous_sender_resumes_too() -> None:
    play = Play("orders")
    there = receiver(play, second=False)
    client = play.connect("app")
    away = client.attach_sender(None, name="out", seconds=60)
    away.send(body("x"), address="orders")
    client.lose()
    there.accept()
    back = play.connect("app").attach_sender(None, name="out", unsettled={T0: None}, seconds=60)
    assert answered_map(back) == {T0: ACCEPTED}


# Receivers that come back


def test_receiver_that_never_got_it_is_sent_it_anew() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.peer.lose()
    assert here.outcome(number) is None
    back = receiver(play, {})
    assert answered_map(back) == {tag: None}
    assert back.payloads == [body("x")]
    assert back.last.tag == tag
    assert not back.last.resume
    assert back.last.delivery_count is None


def test_receiver_that_has_the_outcome_is_settled_when_the_sender_has() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.peer.lose()
    back = receiver(play, {tag: ACCEPTED})
    (resumed,) = back.received
    assert (resumed.tag, resumed.resume, resumed.payload) == (tag, True, b"")
    assert (resumed.state, resumed.settled) == (ACCEPTED, False)
    assert here.outcome(number) == (ACCEPTED, False)
    here.settle(number)
    assert back.told_last(resumed.number) == (ACCEPTED, True)
    assert play.core._registry.process.used == 0


def test_receiver_that_has_the_outcome_in_mode_first_is_settled_by_the_transfer() -> None:
    play = Play("orders")
    away = receiver(play, second=False)
    here = sender(play, second=False)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.peer.lose()
    back = receiver(play, {tag: ACCEPTED}, second=False)
    (resumed,) = back.received
    assert (resumed.resume, resumed.settled, resumed.state) == (True, True, ACCEPTED)
    assert here.outcome(number) == (ACCEPTED, True)


def test_outcome_that_we_knew_is_named_again() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.update(away.last.number, settled=False)
    away.peer.lose()
    back = receiver(play, {tag: ACCEPTED})
    assert answered_map(back) == {tag: ACCEPTED}
    (resumed,) = back.received
    assert (resumed.resume, resumed.settled, resumed.state) == (True, False, ACCEPTED)
    here.settle(number)
    assert back.told_last(resumed.number) == (ACCEPTED, True)


def test_sender_that_settled_while_the_receiver_was_away_is_final() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.update(away.last.number, settled=False)
    away.peer.lose()
    here.settle(number)
    back = receiver(play, {tag: ACCEPTED})
    assert answered_map(back) == {}
    assert not back.received


def test_receiver_that_thinks_otherwise_is_told_what_we_have_told() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.update(away.last.number, settled=False)
    away.peer.lose()
    back = receiver(play, {tag: RELEASED})
    (resumed,) = back.received
    assert (resumed.state, resumed.settled) == (ACCEPTED, False)
    back.update(resumed.number, state=ACCEPTED)
    here.settle(number)
    assert not back.unsettled


def test_receiver_that_forgot_what_it_had_decided_is_left_alone() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    away.update(away.last.number, settled=False)
    away.peer.lose()
    back = receiver(play, {})
    assert not back.received
    here.settle(number)
    assert not play.core._registry.process.used


def test_receiver_that_has_part_of_it_is_sent_the_rest() -> None:
    play = Play(EXACTLY)
    whole = body("0123456789")
    away = receiver(play)
    here = sender(play)
    here.send(whole)
    tag = away.last.tag
    away.peer.lose()
    back = receiver(play, {tag: Received(0, 9)})
    (resumed,) = back.received
    assert resumed.resume
    assert resumed.payload == whole[9:]
    assert resumed.state == Received(0, 9)


def test_receiver_that_knows_only_that_it_began_is_sent_the_whole() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    sender(play).send(body("x"))
    tag = away.last.tag
    away.peer.lose()
    back = receiver(play, {tag: None})
    (resumed,) = back.received
    assert (resumed.resume, resumed.state, resumed.payload) == (True, None, body("x"))


def test_receiver_that_has_partial_state_of_what_was_decided_is_aborted() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    tag = away.last.tag
    away.update(away.last.number, settled=False)
    away.peer.lose()
    back = receiver(play, {tag: Received(0, 2)})
    assert back.aborted == [back.last.number]
    here.settle(number)


def test_delivery_cut_off_on_its_way_out_goes_on_while_more_comes_in() -> None:
    play = Play(EXACTLY)
    whole = body("0123456789")
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(whole[:8], more=True)
    tag = away.last.tag
    away.peer.lose()
    here.go_on(whole[8:10])
    back = receiver(play, {tag: Received(0, 6)})
    assert back.bodies[back.last.number] == whole[6:10]
    here.go_on(whole[10:], more=False)
    assert back.bodies[back.last.number] == whole[6:]
    back.update(back.last.number, settled=False)
    assert here.outcome(number) == (ACCEPTED, False)


def test_delivery_cut_off_on_its_way_out_that_came_in_whole_meanwhile() -> None:
    play = Play(EXACTLY)
    whole = body("0123456789")
    away = receiver(play)
    here = sender(play)
    here.send(whole[:8], more=True)
    tag = away.last.tag
    away.peer.lose()
    here.go_on(whole[8:], more=False)
    back = receiver(play, {tag: Received(0, 6)})
    assert back.payloads == [whole[6:]]


def test_delivery_too_large_to_be_kept_fails_if_the_receiver_lacks_it() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", keep_octets=4))
    away = receiver(play)
    here = sender(play, second=False)
    (number,) = here.send(body("0123456789"), more=True)
    here.go_on(b"", more=False)
    away.peer.lose()
    assert here.outcome(number) is None
    back = receiver(play, {})
    assert not back.received
    assert here.outcome(number) == (MODIFIED_FAILED, True)


def test_delivery_too_large_to_be_kept_is_resumed_if_the_receiver_has_it() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", keep_octets=4))
    away = receiver(play)
    here = sender(play, second=False)
    (number,) = here.send(body("0123456789"), more=True)
    here.go_on(b"", more=False)
    tag = away.last.tag
    away.peer.lose()
    back = receiver(play, {tag: ACCEPTED})
    assert back.last.resume
    assert here.outcome(number) == (ACCEPTED, True) or here.outcome(number) is None


def test_resumed_deliveries_wait_for_credit_and_go_before_new_ones() -> None:
    play = Play(EXACTLY)
    away = receiver(play, credit=10)
    here = sender(play)
    here.send(body("1"), body("2"))
    tags = [delivery.tag for delivery in away.received]
    away.peer.lose()
    here.send(body("3"))
    back = receiver(play, dict.fromkeys(tags), credit=0)
    back.grant(1)
    assert back.payloads == [body("1")]
    back.grant(5)
    assert back.payloads == [body("1"), body("2"), body("3")]
    assert [d.resume for d in back.received] == [True, True, False]


def test_absent_receiver_keeps_what_it_was_sent_and_not_what_waits() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    here.send(body("sent"))
    away.peer.lose()
    here.send(body("waits"))
    other = play.connect("other").attach_receiver(credit=5, second=True)
    assert other.payloads == [body("waits")]


def test_absent_receiver_that_never_returns_gives_up_at_least_once() -> None:
    play = Play("orders")
    away = receiver(play, second=False)
    other = play.connect("other").attach_receiver(credit=0)
    here = sender(play, second=False)
    (number,) = here.send(body("x"))
    away.peer.lose()
    play.wait(301)
    other.grant(1)
    assert other.payloads == [body("x")]
    assert other.last.delivery_count == 1
    other.accept()
    assert here.outcome(number) == (ACCEPTED, True)


def test_receiver_in_mode_first_that_has_forgotten_may_have_had_it() -> None:
    play = Play("orders")
    away = receiver(play, second=False)
    here = sender(play, second=False)
    here.send(body("x"))
    away.peer.lose()
    back = receiver(play, {}, second=False)
    assert back.payloads == [body("x")]
    assert back.last.delivery_count == 1


def test_multicast_receiver_that_returns_is_sent_its_copy() -> None:
    play = Play(
        Route(
            address="orders",
            distribution=Distribution.MULTICAST,
            guarantee=Guarantee.EXACTLY_ONCE,
        )
    )
    away = receiver(play)
    other = play.connect("other").attach_receiver(credit=5, second=True)
    here = sender(play)
    (number,) = here.send(body("x"))
    away.peer.lose()
    other.update(other.last.number, settled=False)
    assert here.outcome(number) is None
    back = receiver(play, {})
    assert back.payloads == [body("x")]
    back.update(back.last.number, settled=False)
    assert here.outcome(number) == (ACCEPTED, False)


# In doubt


def test_receiver_without_state_leaves_exactly_once_in_doubt() -> None:
    play = Play(EXACTLY)
    away = receiver(play)
    here = sender(play)
    (number,) = here.send(body("x"))
    away.peer.lose()
    back = receiver(play)
    assert not back.received
    assert here.outcome(number) is None
    _, orders = play.core.resolve(T0, None, Decision.RESEND, play.now)
    play.carry_out(orders)
    assert back.payloads == [body("x")]


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [(Decision.ACCEPT, ACCEPTED), (Decision.DISCARD, None)],
)
def test_receiver_that_never_returns_leaves_exactly_once_in_doubt(
    decision: Decision, outcome: DeliveryState | None
) -> None:
    play = Play(EXACTLY)
    away = receiver(play, seconds=0)
    other = play.connect("other").attach_receiver(credit=5)
    here = sender(play)
    first, second = here.send(body("x"), body("y"))
    tag = T0 if away.payloads == [body("x")] else T1
    number = first if tag == T0 else second
    away.peer.lose()
    play.wait(100_000)
    assert here.outcome(number) is None
    assert len(other.received) == 1
    assert "link.held" in play.events()
    _, orders = play.core.resolve(tag, "out", decision, play.now)
    play.carry_out(orders)
    told = here.outcome(number)
    assert told is not None
    assert outcome is None or told[0] == outcome
    assert not play.core._registry.suspended


def test_in_doubt_resend_is_sent_again() -> None:
    play = Play(attrs.evolve(EXACTLY, in_doubt=InDoubt.RESEND))
    away = receiver(play, seconds=0)
    here = sender(play)
    here.send(body("x"))
    away.peer.lose()
    other = play.connect("other").attach_receiver(credit=5)
    assert other.payloads == [body("x")]  # it has waited: nobody was there when it was lost
    assert not here.told
    other.accept()
    away = receiver(play, seconds=0)
    here.send(body("y"))
    taken = away if away.received else other
    spare = other if taken is away else away
    taken.peer.lose()
    assert spare.payloads[-1:] == [body("y")]


# Our own links


def test_uplink_resumes_what_it_sent() -> None:
    play = Play(TO_EAST)
    east = play.dial("east")
    here = sender(play)
    target = east.answer_receiver(credit=5)
    (number,) = here.send(body("x"))
    tag = target.last.tag
    assert tag == derived_tag(tag_prefix(ContainerId("app"), LinkName("out")), T0)
    east.lose()
    east = play.dial("east")
    (asked,) = east.asked.values()
    assert asked.unsettled == {tag: None}
    assert asked.target is not None
    back = answer_receiver(east, {tag: ACCEPTED})
    assert back.last.resume
    assert here.outcome(number) == (ACCEPTED, False)
    here.settle(number)
    assert not back.unsettled


def test_uplink_resumes_a_second_and_a_third_time() -> None:
    play = Play(TO_EAST)
    east = play.dial("east")
    here = sender(play)
    target = east.answer_receiver(credit=5)
    (number,) = here.send(body("x"))
    tag = target.last.tag
    for _ in range(3):
        east.lose()
        east = play.dial("east")
        back = answer_receiver(east, {tag: None})
        assert back.payloads == [body("x")]
        assert back.last.tag == tag
    back.update(back.last.number, settled=False)
    assert here.outcome(number) == (ACCEPTED, False)


def test_uplink_with_nothing_unsettled_still_says_that_it_resumes() -> None:
    play = Play(TO_EAST)
    east = play.dial("east")
    sender(play)
    east.answer_receiver(credit=5)
    east.lose()
    (asked,) = play.dial("east").asked.values()
    assert asked.unsettled == {}


def test_container_that_does_not_implement_resuming_is_asked_without_a_map() -> None:
    play = Play(TO_EAST)
    east = play.dial("east")
    here = sender(play)
    target = east.answer_receiver(credit=5)
    (number,) = here.send(body("x"))
    assert target.received
    east.lose()
    east = play.dial("east")
    east.refuse(Condition(NOT_IMPLEMENTED))
    play.wait(2)
    (asked,) = east.asked.values()
    assert asked.unsettled is None
    again = east.answer_receiver(credit=5)
    assert not again.received
    assert here.outcome(number) is None  # in doubt
    _, orders = play.core.resolve(T0, None, Decision.RESEND, play.now)
    play.carry_out(orders)
    assert again.payloads == [body("x")]


def test_uplink_that_receives_tells_what_it_has() -> None:
    play = Play(FROM_EAST)
    east = play.dial("east")
    there = receiver(play)
    source = east.answer_sender()
    source.send(body("x"), body("y"))
    there.update(there.received[0].number, settled=False)
    east.lose()
    east = play.dial("east")
    (asked,) = east.asked.values()
    assert asked.unsettled == {T0: ACCEPTED, T1: ALL}
    back = east.answer_sender(unsettled={T0: None, T1: None})
    back.send(b"", tag=T0, resume=True, state=ACCEPTED, settled=True)
    assert there.told_last(there.received[0].number) == (ACCEPTED, True)
    (two,) = back.send(b"", tag=T1, resume=True)
    there.update(there.received[1].number, settled=False)
    assert back.outcome(two) == (ACCEPTED, False)
    back.settle(two)
    assert not there.unsettled


def test_at_least_once_resumes_with_peers_that_are_known_to() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east", capabilities=RESUMING)
    here = sender(play, second=False)
    target = east.answer_receiver(credit=5)
    (number,) = here.send(body("x"))
    tag = target.last.tag
    east.lose()
    east = play.dial("east", capabilities=RESUMING)
    back = answer_receiver(east, {tag: ACCEPTED})
    assert here.outcome(number) == (ACCEPTED, True)
    assert back.last.settled


def test_at_least_once_gives_a_resuming_peer_up_in_the_end() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east", capabilities=RESUMING)
    here = sender(play, second=False)
    east.answer_receiver(credit=5)
    (number,) = here.send(body("x"))
    east.lose()
    play.wait(61)
    assert here.outcome(number) == (MODIFIED_FAILED, True)


# Incomplete maps

FEW, FEW_ASKED = 130, 180
"""Octets of frames that take an answer, and an attach of ours, with two entries in their maps."""


def test_uplink_with_more_than_a_frame_takes_reduces_and_attaches_again() -> None:
    play = Play(TO_EAST, frame_octets=FEW_ASKED)
    east = play.dial("east")
    here = sender(play)
    target = east.answer_receiver(credit=9)
    numbers = here.send(*(body(str(n)) for n in range(3)))
    tags = [delivery.tag for delivery in target.received]
    east.lose()
    here.send(body("new"))
    east = play.dial("east")
    (asked,) = east.asked.values()
    assert asked.incomplete_unsettled
    assert asked.unsettled == dict.fromkeys(tags[:2])
    first = answer_receiver(east, dict.fromkeys(tags, ACCEPTED))
    assert all(delivery.resume for delivery in first.received)
    assert [here.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 3
    assert not first.is_detached()
    here.settle(*numbers)
    assert first.is_detached()
    (asked,) = east.asked.values()
    assert not asked.incomplete_unsettled
    second = answer_receiver(east, {})
    assert second.payloads == [body("new")]


def test_sender_with_an_incomplete_map_has_settled_nothing_by_silence() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    away = sender(play)
    away.send(body("x"), body("y"))
    away.peer.lose()
    back = sender(play, {T0: None}, incomplete=True)
    assert answered_map(back) == {T0: ALL, T1: ALL}
    (number,) = back.send(b"", tag=T0, resume=True)
    there.update(there.received[0].number, settled=False)
    back.settle(number)
    assert back.was_drained()  # it sees that we have the other one as well, and may resume it
    assert not back.is_detached()
    back.give_back_credit()
    assert back.is_detached()
    last = sender(play, {T1: None})
    assert answered_map(last) == {T1: ALL}


def test_a_link_that_is_new_here_gets_nothing_new_after_an_incomplete_map() -> None:
    """§2.7.3: "a sending endpoint MUST NOT send any new deliveries"; it is to attach again."""
    play = Play(EXACTLY)
    here = sender(play)
    end = receiver(play, {T1: ACCEPTED}, incomplete=True)
    here.send(body("new"))
    assert [delivery.tag for delivery in end.received if not delivery.resume] == []
    assert end.is_detached()
    again = receiver(play, {})
    here.send(body("newer"))
    assert [delivery.payload for delivery in again.received] == [body("newer")]


def test_attach_tells_no_more_than_a_frame_takes() -> None:
    play = Play(EXACTLY, frame_octets=FEW)
    receiver(play)
    away = sender(play)
    away.send(*(body(str(n)) for n in range(3)))
    away.peer.lose()
    back = sender(play, {T0: None, T1: None, T2: None})
    assert back.attach is not None
    assert back.attach.incomplete_unsettled
    assert list(answered_map(back) or ()) == [T0, T1]


# Both ends


@pytest.mark.parametrize("lost", ["sender", "receiver", "both"])
@pytest.mark.parametrize("when", ["sent", "answered", "settled"])
def test_exactly_once_survives_whoever_is_lost_whenever(lost: str, when: str) -> None:
    play = Play(EXACTLY)
    there, here = receiver(play), sender(play)
    (number,) = here.send(body("x"))
    tag = there.last.tag
    decided: DeliveryState | None = None
    if when in ("answered", "settled"):
        there.update(there.last.number, settled=False)
        decided = ACCEPTED
    if when == "settled":
        here.settle(number)
        assert not there.unsettled
        decided = None
    arrived = 1
    if lost in ("receiver", "both"):
        there.peer.lose()
    if lost in ("sender", "both"):
        here.peer.lose()
        here = sender(play, {} if when == "settled" else {T0: None})
        if when != "settled" and T0 in (answered_map(here) or {}):
            (number,) = here.send(body("x"), tag=T0, resume=True)
    if lost in ("receiver", "both"):
        theirs = {} if when == "settled" else {tag: decided}
        there = receiver(play, theirs)
        if there.received and decided is None:
            assert there.payloads == [body("x")]
            assert there.last.resume
    if when == "sent":
        there.update(there.last.number, settled=False)
    if when != "settled":
        assert here.outcome(number) == (ACCEPTED, False)
        here.settle(number)
    assert arrived == 1
    assert not there.unsettled
    assert not here.unsettled
    assert play.core._registry.process.used == 0
    assert AMQP.settles_second
