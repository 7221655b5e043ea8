"""What exactly-once routes write down, what waits for it, and what comes back after a crash."""

import attrs
import pytest

from router.core.listing import Filter
from router.core.repeats import UNREAD_SECONDS
from router.core.resolve import Decision
from router.core.settings import CoreSettings
from router.journal.block import open_block
from router.journal.keys import NO_LINK, LinkKey
from router.journal.record import RecordFlag, RecordKind
from router.links.position import position_at_end
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.events import LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome, Rejected
from router.model.terminus import ExpiryPolicy, Role
from router.routes.route import (
    Deduplication,
    Distribution,
    Endpoint,
    Guarantee,
    InDoubt,
    Route,
    Unroutable,
)
from tests.support.journaled import EXACT, Journaled
from tests.support.play import AMQP, Peer, ReceiverEnd, SenderEnd

KEPT = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
TAG = DeliveryTag(b"a")
EXACT_ELSEWHERE = attrs.evolve(EXACT, address="elsewhere")


def sender(peer: Peer, **fields: object) -> SenderEnd:
    return peer.attach_sender(name="out", second=True, **{**KEPT, **fields})  # type: ignore[arg-type]


def receiver(peer: Peer, **fields: object) -> ReceiverEnd:
    asked = {"credit": 10, **KEPT, **fields}
    return peer.attach_receiver(name="in", second=True, **asked)  # type: ignore[arg-type]


def journaled() -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"))
    sending = sender(play.connect("west"))
    return play, sending, receiving


def who_told(play: Journaled) -> list[LinkKey]:
    """The links that the outcomes on record were told on, oldest first."""
    return [
        record.outgoing
        for sealed in play.blocks
        for record in open_block(memoryview(sealed.octets)).records()
        if record.kind is RecordKind.OUTCOME
    ]


# What waits


def test_no_transfer_goes_out_before_its_record_is_durable() -> None:
    play, sending, receiving = journaled()
    sending.send("one")
    assert receiving.payloads == []
    play.flush()
    assert receiving.payloads == [b"one"]


def test_no_sender_hears_an_outcome_before_it_is_durable() -> None:
    play, sending, receiving = journaled()
    (number,) = sending.send("one")
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    assert sending.outcome(number) is None
    play.flush()
    assert sending.outcome(number) == (ACCEPTED, False)


def test_what_is_ordered_later_for_a_link_stays_behind_what_waits() -> None:
    play, sending, receiving = journaled()
    sending.send("one")
    receiving.grant(9, drain=True)
    assert receiving.drains_answered == 0
    play.flush()
    assert receiving.payloads == [b"one"]
    assert receiving.drains_answered == 1


def test_credit_counts_the_deliveries_that_wait() -> None:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"), credit=2)
    sending = sender(play.connect("west"))
    sending.send("one", "two")
    receiving.grant(2)
    sending.send("three")
    play.flush()
    assert receiving.payloads == [b"one", b"two"]


def test_a_transfer_to_one_of_several_receivers_says_so() -> None:
    play = Journaled(attrs.evolve(EXACT, distribution=Distribution.MULTICAST), EXACT_ELSEWHERE)
    for name in ("east", "north"):
        receiver(play.connect(name))
    receiver(play.connect("south"), address="elsewhere")
    sender(play.connect("west")).send("one")
    sender(play.connect("source"), address="elsewhere").send("two")
    play.flush()
    rows = [
        row
        for sealed in play.blocks
        for row in open_block(memoryview(sealed.octets)).unpacked_rows()
        if row[0] == RecordKind.SENT
    ]
    assert sorted(row[4] & RecordFlag.FANNED for row in rows) == [0, *2 * [RecordFlag.FANNED]]


def test_other_routes_wait_for_nothing() -> None:
    play = Journaled("orders")
    receiving = play.connect("east").attach_receiver(credit=10)
    sending = play.connect("west").attach_sender()
    sending.send("one")
    assert receiving.payloads == [b"one"]
    assert play.writer.next_sequence == 1


def test_what_was_never_sent_goes_to_the_next_receiver_as_if_for_the_first_time() -> None:
    play, sending, receiving = journaled()
    sending.send("one")
    other = play.connect("north").attach_receiver(name="in", credit=10, second=True)
    receiving.peer.lose()
    play.flush()
    assert receiving.payloads == []
    assert other.payloads == [b"one"]
    assert other.last.delivery_count is None


def multicast() -> tuple[Journaled, SenderEnd, ReceiverEnd, ReceiverEnd]:
    """A delivery to two receivers that neither has been sent yet."""
    play = Journaled(attrs.evolve(EXACT, distribution=Distribution.MULTICAST))
    one = receiver(play.connect("east"))
    other = receiver(play.connect("north"))
    sending = sender(play.connect("west"))
    sending.send(b"one", tag=TAG)
    assert not one.received
    return play, sending, one, other


def test_a_multicast_that_one_receiver_was_never_sent_goes_to_the_other_once() -> None:
    play, sending, one, other = multicast()
    one.detach()
    play.flush()
    assert len(other.received) == 1
    other.accept()
    play.flush()
    assert sending.outcome(DeliveryNumber(0)) == (ACCEPTED, False)


def test_a_receiver_that_comes_back_gets_the_multicast_that_it_was_never_sent() -> None:
    play, sending, one, other = multicast()
    one.peer.lose()
    play.flush()
    assert len(other.received) == 1
    back = receiver(play.connect("east"), unsettled={})
    play.flush()
    assert [delivery.payload for delivery in back.received] == [b"one"]
    back.accept()
    other.accept()
    play.flush()
    assert sending.outcome(DeliveryNumber(0)) == (ACCEPTED, False)


def test_a_delivery_that_went_all_its_way_leaves_nothing() -> None:
    play, sending, receiving = journaled()
    (number,) = sending.send("one")
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    play.flush()
    assert len(play.remembered()) == 1
    sending.settle(number, state=ACCEPTED)
    play.flush()
    assert receiving.told_last(receiving.last.number) == (ACCEPTED, True)
    assert not play.remembered()


def test_nothing_is_asked_of_senders_while_the_journal_is_stuck() -> None:
    play = Journaled(EXACT)
    play.carry_out(play.core.journal_stuck(True, play.now))
    receiver(play.connect("east"))
    sending = sender(play.connect("west"))
    assert sending.credit == 0
    play.carry_out(play.core.journal_stuck(False, play.now))
    assert sending.credit == 10


def test_another_identity_with_the_same_names_has_books_of_its_own() -> None:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"))
    mine = sender(play.connect("west", user="alice"))
    (number,) = mine.send("one")
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    theirs = sender(play.connect("west", user="mallory"))
    (other,) = theirs.send("two")
    play.flush()
    known = {each.payload: place for place, each in play.remembered().items()}
    receiving.update(receiving.last.number, settled=False)
    mine.settle(number, state=ACCEPTED)
    play.flush()
    assert list(play.remembered()) == [known[b"two"]]
    theirs.settle(other, state=ACCEPTED)
    play.flush()
    assert not play.remembered()


def test_a_link_that_took_the_place_of_a_held_one_keeps_its_deliveries() -> None:
    """The target forgets with its connection: the old link is held, the new one has its name."""
    route = Route(
        address="orders",
        to=(Endpoint("target"),),
        guarantee=Guarantee.EXACTLY_ONCE,
        in_doubt=InDoubt.HOLD,
    )
    play = Journaled(route)
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one", tag=TAG)
    play.flush()
    assert target.payloads == [b"one"]
    target.peer.lose()
    again = play.dial("target")
    again.refuse(Condition(NOT_IMPLEMENTED))
    play.wait(60)
    new = again.answer_receiver("orders", credit=5)
    sending.send("two", tag=DeliveryTag(b"b"))
    play.flush()
    assert new.payloads == [b"two"]
    count, orders = play.core.resolve(TAG, None, Decision.ACCEPT, play.now)
    play.carry_out(orders)
    assert count == 1
    doubtful = [each for each in play.remembered().values() if each.is_in_doubt]
    assert [each.payload for each in doubtful] == [b"two"]


TARGET = attrs.evolve(EXACT, to=(Endpoint("target"),))


def test_a_receiver_hears_its_own_outcome_again_when_that_is_durable() -> None:
    """It settles and forgets what it hears of then."""
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    tag = receiving.last.tag
    receiving.peer.lose()
    again = receiver(play.connect("east"), unsettled={tag: ACCEPTED})
    assert again.received == []
    play.flush()
    assert [(each.tag, each.state, each.resume) for each in again.received] == [
        (tag, ACCEPTED, True)
    ]


def test_a_target_hears_its_own_outcome_again_when_that_is_durable() -> None:
    play = Journaled(TARGET)
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one", tag=TAG)
    play.flush()
    tag = target.last.tag
    target.peer.lose()
    again = play.dial("target").answer("orders", unsettled={tag: ACCEPTED})
    assert isinstance(again, ReceiverEnd)
    again.grant(5)
    assert again.received == []
    play.flush()
    assert [(each.tag, each.state, each.resume) for each in again.received] == [
        (tag, ACCEPTED, True)
    ]


DEDUPLICATED = [
    attrs.evolve(TARGET, dedup=Deduplication("message-id")),
    attrs.evolve(TARGET, deduplicates="message-id"),  # as its container says
]


@pytest.mark.parametrize("is_killed", [False, True], ids=["lost", "killed"])
@pytest.mark.parametrize("route", DEDUPLICATED, ids=["dedup", "deduplicates"])
def test_a_target_that_drops_repeats_is_sent_again_what_is_in_doubt(
    route: Route, is_killed: bool
) -> None:
    play = Journaled(route)
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one", "id=7 two")
    play.flush()
    target.peer.lose()
    if is_killed:
        play = play.crash()
    again = play.dial("target").answer_receiver("orders", credit=5)
    play.flush()
    assert again.payloads == target.payloads
    assert again.payloads[0].startswith(b"id=")  # by the key of the delivery, having none
    again.accept()
    play.flush()
    assert not [each for each in play.remembered().values() if each.is_in_doubt]


@pytest.mark.parametrize("route", DEDUPLICATED, ids=["dedup", "deduplicates"])
@pytest.mark.parametrize("state", [ACCEPTED, MODIFIED_FAILED], ids=repr)
def test_what_was_in_doubt_is_no_failed_attempt_of_its_target(route: Route, state: Outcome) -> None:
    """The target may have it: told that it has failed, its sender would send it as a new one."""
    play = Journaled(route, settings=CoreSettings(router_id="dc1", attempts=3))
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("id=7 two")
    play.flush()
    for _ in range(5):
        target.peer.lose()
        target = play.dial("target").answer_receiver("orders", credit=5)
        play.flush()
        assert target.payloads == [b"id=7 two"]
        assert not sending.told
    assert target.last.delivery_count == 5  # it may be told that it is a repeat
    target.update(*target.unsettled, state=state)
    play.flush()
    assert [each[0][0] for each in sending.told.values()] == [state]


@pytest.mark.parametrize("is_killed", [False, True], ids=["lost", "killed"])
def test_a_target_that_drops_repeats_is_sent_nothing_again_where_a_person_decides(
    is_killed: bool,
) -> None:
    play = Journaled(attrs.evolve(DEDUPLICATED[0], in_doubt=InDoubt.HOLD))
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("id=7 two")
    play.flush()
    target.peer.lose()
    if is_killed:
        play = play.crash()
    again = play.dial("target").answer_receiver("orders", credit=5)
    play.flush()
    assert not again.payloads


def test_what_a_sender_settles_early_is_settled_with_its_receiver_when_that_is_durable() -> None:
    """The state that the sender names is no outcome of the receiver, which is on no record."""
    play, sending, receiving = journaled()
    (number,) = sending.send("one", tag=TAG)
    play.flush()
    sending.settle(number, state=ACCEPTED)
    assert receiving.told_last(receiving.last.number) is None
    play.flush()
    assert receiving.told_last(receiving.last.number) == (ACCEPTED, True)


def test_what_a_sender_resumes_as_decided_is_settled_with_its_receiver_when_that_is_durable() -> (
    None
):
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    sending.peer.lose()
    again = sender(play.connect("west"), unsettled={TAG: ACCEPTED})
    play.flush()
    (number,) = again.send(b"", tag=TAG, resume=True, state=ACCEPTED)
    assert (again.outcome(number), receiving.told_last(receiving.last.number)) == (None, None)
    play.flush()
    assert again.outcome(number) == (ACCEPTED, True)
    assert receiving.told_last(receiving.last.number) == (ACCEPTED, True)


@pytest.mark.parametrize("state", [None, ACCEPTED], ids=repr)
def test_a_multicast_that_is_settled_early_is_so_with_each_receiver_when_that_is_durable(
    state: Outcome | None,
) -> None:
    play, sending, one, other = multicast()
    play.flush()
    one.update(one.last.number, settled=False)
    assert one.told_last(one.last.number) is None
    play.flush()
    assert one.told_last(one.last.number) == (ACCEPTED, True)
    sending.settle(DeliveryNumber(0), state=state)
    assert other.told_last(other.last.number) is None
    play.flush()
    assert other.told_last(other.last.number) == (state, True)


def test_what_a_receiver_answers_before_its_end_is_aborted_when_the_outcome_is_durable() -> None:
    """It forgets an aborted delivery, and would be sent it again after a crash."""
    play, sending, receiving = journaled()
    sending.send("a", tag=TAG, more=True)
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    assert not receiving.aborted
    play.flush()
    assert receiving.aborted == [receiving.last.number]


def test_no_map_lacks_what_is_not_durably_settled_with_a_receiver() -> None:
    """The sender settles before it has an answer, and so before a flush."""
    play, sending, receiving = journaled()
    (number,) = sending.send("one", tag=TAG)
    play.flush()
    tag = receiving.last.tag
    sending.settle(number)
    assert receiving.told_last(receiving.last.number) is None
    receiving.peer.lose()
    again = receiver(play.connect("east"), unsettled={tag: None})
    early = again.attach
    play.flush()
    assert early is None
    assert again.attach is not None
    assert not again.attach.unsettled


def test_no_attach_of_ours_lacks_what_is_not_durably_settled_with_a_target() -> None:
    play = Journaled(TARGET)
    sending = sender(play.connect("west"))
    target = play.dial("target").answer_receiver("orders", credit=5)
    (number,) = sending.send("one", tag=TAG)
    play.flush()
    sending.settle(number)
    assert target.told_last(target.last.number) is None
    target.peer.lose()
    again = play.dial("target")
    assert not again.asked
    play.flush()
    (asked,) = again.asked.values()
    assert not asked.unsettled


# After a crash


def test_what_was_not_sent_is_sent_by_the_next_life_without_its_sender() -> None:
    play = Journaled(EXACT)
    sending = sender(play.connect("west"))
    receiving = receiver(play.connect("east"), credit=1)
    sending.send("one", "two")
    play.flush()
    after = play.crash()
    again = receiver(after.connect("east"), unsettled={receiving.last.tag: None})
    after.flush()
    assert [each.payload for each in again.received if not each.resume] == [b"two"]


def test_a_sender_that_resumes_need_not_send_again_what_is_here() -> None:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"), credit=1)
    sending = sender(play.connect("west"))
    payload = b"\x00\x53\x75\xa0\x03one"
    sending.send(payload, tag=TAG)
    after = play.crash()
    again = sender(after.connect("west"), unsettled={TAG: None})
    assert again.attach is not None
    assert again.attach.unsettled == {TAG: position_at_end(payload)}
    assert receiving.received == []


def test_an_outcome_in_the_receivers_map_reaches_the_sender_and_nothing_is_sent_again() -> None:
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    tag = receiving.last.tag
    after = play.crash()
    back = sender(after.connect("west"), unsettled={TAG: None})
    (delivery,) = [back.delivery(b"", tag=TAG, resume=True)]
    back.peer.happens(back.run([delivery]))
    again = receiver(after.connect("east"), unsettled={tag: ACCEPTED})
    after.flush()
    assert back.outcome(delivery.number) == (ACCEPTED, False)
    assert [link == NO_LINK for link in who_told(after)] == [False]
    back.settle(delivery.number, state=ACCEPTED)
    after.flush()
    assert [each.payload for each in again.received] == [b""]
    assert again.told_last(again.last.number) == (ACCEPTED, True)
    assert not after.remembered()


def test_what_the_receiver_never_got_is_sent_once() -> None:
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    tag = receiving.last.tag
    after = play.crash()
    again = receiver(after.connect("east"), unsettled={})
    after.flush()
    assert [(each.tag, each.payload, each.resume) for each in again.received] == [
        (tag, b"one", False)
    ]


def test_an_outcome_that_was_durable_and_not_told_is_told_by_the_next_life() -> None:
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    receiving.update(receiving.last.number, state=Rejected(), settled=False)
    after = play.crash()
    back = sender(after.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: Rejected()}
    delivery = back.delivery(b"", tag=TAG, resume=True)
    back.peer.happens(back.run([delivery]))
    after.flush()
    assert back.outcome(delivery.number) == (Rejected(), False)


def test_what_is_answered_takes_nothing_of_the_budgets_of_the_next_life() -> None:
    play, sending, receiving = journaled()
    sending.send("one", tag=TAG)
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    after = play.crash()
    back = sender(after.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: ACCEPTED}
    assert after.core._registry.process.used == 0


def test_what_its_sender_has_settled_does_not_come_back() -> None:
    play, sending, receiving = journaled()
    (number,) = sending.send("one", tag=TAG)
    play.flush()
    receiving.update(receiving.last.number, settled=False)
    play.flush()
    sending.settle(number, state=ACCEPTED)
    after = play.crash()
    assert not after.remembered()
    again = receiver(after.connect("east"), unsettled={receiving.last.tag: ACCEPTED})
    assert again.received == []


def test_a_crash_before_the_record_is_handed_in_leaves_all_with_the_sender() -> None:
    play, sending, _ = journaled()
    sending.send("one", tag=TAG)
    after = play.crash(loses_unhanded=True)
    again = receiver(after.connect("east"), unsettled={})
    back = sender(after.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {}
    back.send("one", tag=TAG)
    after.flush()
    assert again.payloads == [b"one"]


def test_a_delivery_in_parts_comes_back_whole_or_not_at_all() -> None:
    play = Journaled(EXACT)
    receiver(play.connect("east"), credit=0)
    sending = sender(play.connect("west"))
    sending.credit = 2
    sending.send(b"first ", tag=b"a", more=True)
    sending.go_on(b"last", more=False)
    sending.send(b"unfinished ", tag=b"b", more=True)
    after = play.crash()
    again = receiver(after.connect("east"), unsettled={})
    after.flush()
    assert again.payloads == [b"first last"]


# Held deliveries


def in_doubt(play: Journaled) -> list[str]:
    page = play.core.lister.deliveries(Filter(in_doubt=True), 100, None, play.now)
    return [record.tag for record in page.deliveries]


def doubtful(decides: InDoubt = InDoubt.HOLD) -> tuple[Journaled, SenderEnd]:
    """A life that begins with a delivery of which the receiver keeps no state."""
    play = Journaled(attrs.evolve(EXACT, in_doubt=decides))
    receiver(play.connect("east"))
    sending = sender(play.connect("west"))
    sending.send("one", tag=TAG)
    play.flush()
    after = play.crash()
    return after, sender(after.connect("west"), unsettled={TAG: None})


def test_what_may_have_arrived_is_held_and_listed() -> None:
    after, _ = doubtful()
    again = receiver(after.connect("east"))
    after.flush()
    assert again.received == []
    assert in_doubt(after) == [TAG.hex()]


@pytest.mark.parametrize("settles_second", [True, False])
def test_what_is_in_doubt_since_an_earlier_life_is_not_hidden_by_the_same_tag_given_out_anew(
    settles_second: bool,
) -> None:
    bridge = attrs.evolve(
        EXACT, from_=Endpoint("east"), to=(Endpoint("west"),), in_doubt=InDoubt.HOLD
    )
    play = Journaled(bridge)
    capabilities = attrs.evolve(AMQP, settles_second=settles_second)
    for life in range(3):
        east, west = play.dial("east", capabilities=capabilities), play.dial("west")
        source = east.answer_sender("orders")
        west.answer_receiver("orders", credit=10)
        source.send(b"payload", tag=TAG)
        play.flush()
        play = play.crash()
        found = play.core.lister.deliveries(Filter(in_doubt=True), 10, None, play.now).deliveries
        assert [each.tag for each in found] == [TAG.hex()] * (life + 1)


def test_what_is_in_doubt_is_listed_after_a_restart_though_its_sender_is_gone_for_good() -> None:
    play = Journaled(attrs.evolve(EXACT, in_doubt=InDoubt.HOLD))
    receiving = play.connect("east").attach_receiver(credit=10)
    sending = sender(play.connect("west"))
    sending.send("one", tag=TAG)
    play.flush()
    receiving.peer.lose()
    sending.detach(closed=True)
    assert in_doubt(play) == [TAG.hex()]
    for _ in range(2):
        play = play.crash()
        assert in_doubt(play) == [TAG.hex()]
    count, orders = play.core.resolve(TAG, None, Decision.ACCEPT, play.now)
    play.carry_out(orders)
    assert (count, in_doubt(play)) == (1, [])
    assert in_doubt(play.crash()) == []
    assert not play.remembered()


def test_what_a_sender_settles_by_itself_while_its_receiver_is_away_does_not_come_back() -> None:
    play, sending, receiving = journaled()
    (number,) = sending.send("one", tag=TAG)
    play.flush()
    receiving.peer.lose()
    sending.settle(number)
    play.wait(600)
    assert in_doubt(play) == []
    assert not play.remembered()
    assert in_doubt(play.crash()) == []


def test_a_person_has_it_sent_again() -> None:
    after, _ = doubtful()
    again = receiver(after.connect("east"))
    count, orders = after.core.resolve(TAG, None, Decision.RESEND, after.now)
    after.carry_out(orders)
    after.flush()
    assert count == 1
    assert again.payloads == [b"one"]
    assert in_doubt(after) == []


def test_a_person_takes_it_for_accepted_and_the_sender_hears_so() -> None:
    after, back = doubtful()
    receiver(after.connect("east"))
    delivery = back.delivery(b"", tag=TAG, resume=True)
    back.peer.happens(back.run([delivery]))
    _, orders = after.core.resolve(TAG, None, Decision.ACCEPT, after.now)
    after.carry_out(orders)
    after.flush()
    assert back.outcome(delivery.number) == (ACCEPTED, False)
    back.settle(delivery.number, state=ACCEPTED)
    assert not after.remembered()


def test_a_route_that_resends_does_so_and_says_that_it_is_not_the_first_time() -> None:
    after, _ = doubtful(InDoubt.RESEND)
    again = receiver(after.connect("east"))
    after.flush()
    assert again.payloads == [b"one"]
    assert again.last.delivery_count == 1


def test_a_target_that_finds_duplicates_gets_the_same_id_whenever_it_is_sent_to() -> None:
    route = attrs.evolve(
        EXACT, in_doubt=InDoubt.RESEND, dedup=Deduplication("message-id"), name="deduplicated"
    )
    play = Journaled(route)
    receiving = receiver(play.connect("east"))
    sender(play.connect("west")).send("one", "id=7 two")
    play.flush()
    after = play.crash()
    again = receiver(after.connect("east"))
    after.flush()
    assert receiving.payloads[0].startswith(b"id=")
    assert receiving.payloads[1] == b"id=7 two"
    assert again.payloads == receiving.payloads


# Senders that bring again what they did not hear settled


def redelivering() -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"), credit=100)
    return play, play.connect("broker").attach_sender(name="queue"), receiving


def test_a_repeat_of_what_was_answered_is_answered_and_not_sent() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    receiving.accept()
    sending.peer.lose()
    play.flush()
    again = play.connect("broker").attach_sender(name="queue")
    (number,) = again.send("id=1 one")
    play.flush()
    assert again.outcome(number) == (ACCEPTED, True)
    assert receiving.payloads == [b"id=1 one"]


def test_a_repeat_is_known_after_a_crash_too() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    receiving.accept()
    play.flush()
    after = play.crash()
    other = receiver(after.connect("east"), unsettled={})
    (number,) = after.connect("broker").attach_sender(name="queue").send("id=1 one")
    after.flush()
    again = next(iter(list(after.peers.values())[-1].sends.values()))
    assert again.outcome(number) == (ACCEPTED, True)
    assert other.received == []


def test_a_repeat_of_what_is_under_way_waits_for_its_outcome() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    sending.peer.lose()
    again = play.connect("broker").attach_sender(name="queue")
    (number,) = again.send("id=1 one")
    play.flush()
    assert receiving.payloads == [b"id=1 one"]
    receiving.accept()
    play.flush()
    assert again.outcome(number) == (ACCEPTED, True)


def test_a_repeat_on_the_same_attachment_gets_the_same_answer() -> None:
    play, sending, receiving = redelivering()
    first, second = sending.send("id=1 one", "id=1 one")
    play.flush()
    receiving.accept()
    play.flush()
    assert receiving.payloads == [b"id=1 one"]
    assert sending.outcome(first) == sending.outcome(second) == (ACCEPTED, True)


def test_repeats_of_one_breath_get_the_answer_that_is_known_each() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    receiving.accept()
    play.flush()
    repeats = sending.send("id=1 one", "id=1 one", "id=1 one")
    play.flush()
    assert [sending.outcome(number) for number in repeats] == [(ACCEPTED, True)] * 3
    assert receiving.payloads == [b"id=1 one"]


def test_repeats_of_one_breath_and_of_the_one_before_get_the_same_answer() -> None:
    play, sending, receiving = redelivering()
    numbers = [*sending.send("id=1 one"), *sending.send("id=1 one", "id=1 one", "id=2 two")]
    play.flush()
    receiving.accept()
    play.flush()
    assert receiving.payloads == [b"id=1 one", b"id=2 two"]
    assert [sending.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 4


def test_repeats_of_one_breath_leave_nothing_that_another_sender_stumbles_on() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    receiving.accept()
    play.flush()
    sending.send("id=1 one", "id=1 one")
    other = play.connect("other").attach_sender(name="other")
    (number,) = other.send("id=2 two")
    play.flush()
    receiving.accept()
    play.flush()
    assert other.outcome(number) == (ACCEPTED, True)


def test_repeats_of_one_breath_that_come_back_all_get_the_answer() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one")
    play.flush()
    sending.peer.lose()
    again = play.connect("broker").attach_sender(name="queue")
    repeats = again.send("id=1 one", "id=1 one")
    play.flush()
    assert receiving.payloads == [b"id=1 one"]
    receiving.accept()
    play.flush()
    assert [again.outcome(number) for number in repeats] == [(ACCEPTED, True)] * 2


def test_a_repeat_of_a_lost_attachment_is_not_answered_on_the_next() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=1 one", "id=1 one", "id=1 one")
    play.flush()
    sending.peer.lose()
    again = play.connect("broker").attach_sender(name="queue")
    one, two, three = again.send("id=1 one", "id=2 two", "id=3 three")
    play.flush()
    receiving.accept(receiving.received[0].number)
    play.flush()
    assert again.outcome(one) == (ACCEPTED, True)
    assert (again.outcome(two), again.outcome(three)) == (None, None)


def test_repeats_of_one_breath_that_have_been_here_before_are_given_back_too() -> None:
    play, sending, receiving = redelivering()
    numbers = sending.send("id=1 one", "id=1 one", hops=("dc2", "dc1"))
    play.flush()
    assert [sending.outcome(number) for number in numbers] == [(RELEASED, True)] * 2
    assert not receiving.received


def test_what_nobody_has_acted_upon_may_come_again() -> None:
    play, sending, receiving = redelivering()
    (number,) = sending.send("id=1 one")
    play.flush()
    receiving.update(receiving.last.number, state=RELEASED)
    play.flush()
    assert sending.outcome(number) == (RELEASED, True)
    sending.send("id=1 one")
    receiving.grant(10)
    play.flush()
    assert receiving.payloads == [b"id=1 one", b"id=1 one"]


def test_ids_are_forgotten_when_the_answer_must_have_been_read() -> None:
    play, sending, receiving = redelivering()
    for count in range(2500):
        sending.send(f"id={count} x")
        play.flush()
        receiving.accept()
        receiving.grant(100)
        play.flush()
    assert len(play.remembered()) <= 2001


def answered_and_lost(play: Journaled, sending: SenderEnd, receiving: ReceiverEnd) -> SenderEnd:
    """An answer is lost with its connection; the next one brings much else, as long as nobody there
    has noticed that.
    """
    sending.send("id=lost x")
    play.flush()
    receiving.accept()
    sending.peer.lose()
    play.flush()
    return others(play, receiving, "some")


def others(play: Journaled, receiving: ReceiverEnd, name: str) -> SenderEnd:
    again = play.connect("broker").attach_sender(name="queue")
    move(play, again, receiving, name)
    return again


def move(play: Journaled, sending: SenderEnd, receiving: ReceiverEnd, name: str) -> None:
    for count in range(2500):
        sending.send(f"id={name}-{count} x")
        play.flush()
        receiving.accept()
        receiving.grant(100)
        play.flush()


def times_sent(receiving: ReceiverEnd) -> int:
    return receiving.payloads.count(b"id=lost x")


@pytest.mark.parametrize("losses", [1, 2])
def test_a_broker_that_notices_late_that_it_was_cut_off_brings_no_duplicate(losses: int) -> None:
    play, sending, receiving = redelivering()
    again = answered_and_lost(play, sending, receiving)
    for loss in range(losses):
        if loss:
            again.peer.lose()
            again = others(play, receiving, f"more-{loss}")
        (number,) = again.send("id=lost x")
        play.flush()
        assert again.outcome(number) == (ACCEPTED, True)
    assert times_sent(receiving) == 1


def test_a_broker_that_notices_late_that_the_router_was_killed_brings_no_duplicate() -> None:
    play, sending, receiving = redelivering()
    sending.send("id=lost x")
    play.flush()
    receiving.accept()
    play.flush()
    after = play.crash()
    receiving = receiver(after.connect("east"), credit=100, unsettled={})
    again = others(after, receiving, "some")
    (number,) = again.send("id=lost x")
    after.flush()
    assert again.outcome(number) == (ACCEPTED, True)
    assert times_sent(receiving) == 0


def test_ids_whose_answer_was_lost_are_forgotten_when_the_broker_must_have_noticed() -> None:
    play, sending, receiving = redelivering()
    again = answered_and_lost(play, sending, receiving)
    assert len(play.remembered()) == 2002
    play.wait(UNREAD_SECONDS)
    move(play, again, receiving, "more")
    assert len(play.remembered()) == 2001


def test_what_waits_unsent_of_a_lost_broker_is_left_to_the_broker() -> None:
    play = Journaled(EXACT)
    play.connect("east").attach_receiver(name="in", second=True, credit=0)
    sending = play.connect("broker").attach_sender(name="queue")
    sending.credit = 1
    sending.send("id=1 one")
    sending.peer.lose()
    play.flush()
    assert not play.remembered()


def test_what_a_leaving_sender_sent_in_the_same_breath_is_with_its_receiver() -> None:
    """Nothing is on record as sent when its sender leaves; it was taken for unsent, and raised."""
    play, sending, receiving = redelivering()
    run = sending.run([sending.delivery("id=1 one"), sending.delivery("id=2 two")])
    sending.peer.happens(run, LinkDetached(sending.link, closed=True))
    play.flush()
    assert receiving.payloads == [b"id=1 one", b"id=2 two"]
    receiving.accept()
    play.flush()
    assert not receiving.unsettled


def test_dead_letters_on_their_way_go_on_in_the_next_life() -> None:
    letters = Route(
        address="orders",
        unroutable=Unroutable.DEAD_LETTER,
        dead_letter=Endpoint("east", "dead"),
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    play = Journaled(letters)
    sending = sender(play.connect("s"), address=None)
    sending.send("x", tag=TAG, address="orders")
    play.flush()
    first = play.dial("east").answer_receiver("dead", credit=5)
    play.flush()
    assert first.payloads == [b"x"]
    after = play.crash()
    east = after.dial("east")
    again = east.answer("dead", Role.SENDER, unsettled={})
    assert isinstance(again, ReceiverEnd)
    again.grant(5)
    after.flush()
    assert again.name == first.name
    assert [(each.tag, each.payload) for each in again.received] == [(first.last.tag, b"x")]
