"""Between workers: who has sent deliveries, or outcomes, asks to hear when they are on record."""

from router.model.commands import (
    AwaitRecord,
    GrantCredit,
    ReportRecorded,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    DeliveriesReceived,
    DeliveriesRecorded,
    DeliveriesUpdated,
    RecordAwaited,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v1_0.flowing import OUTCOMES_RECORDED, RECORDED
from router.wire.v1_0.performatives import Disposition, Flow, Transfer
from tests.support.peer import Peer, begun

LINK = LinkId(1)
BODY = b"\x00\x53\x75\xa0\x01a"


def sibling(role: Role) -> Peer:
    """Another worker, with a link on which it has this role."""
    peer = begun(peer_is_trusted_router=True)
    peer.attach(role)
    peer.answer(credit=5 if role is Role.SENDER else 0)
    peer.take_events()
    return peer


def test_the_question_is_a_flow_of_the_link() -> None:
    peer = sibling(Role.RECEIVER)
    peer.take_frames()
    peer.engine.execute(AwaitRecord(LINK))
    flow = peer.expect_one(Flow)
    assert (flow.handle is not None, flow.properties) == (True, {RECORDED: True})
    peer.flow(handle=0, delivery_count=0, link_credit=5, properties={RECORDED: True})
    assert DeliveriesRecorded(LINK) in peer.take_events()


def test_it_stands_behind_what_waits_for_the_window() -> None:
    peer = sibling(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=0, link_credit=5, incoming_window=1)
    peer.take_frames()
    run = [
        OutgoingDelivery(DeliveryNumber(n), DeliveryTag(b"%d" % n), BODY, settled=True)
        for n in range(2)
    ]
    peer.engine.execute(SendDeliveries(LINK, run))
    peer.engine.execute(AwaitRecord(LINK))
    peer.expect_one(Transfer)
    peer.flow(next_incoming_id=1)
    _, flow = peer.expect(Transfer, Flow)
    assert flow.properties == {RECORDED: True}


def test_who_is_asked_answers_with_a_flow() -> None:
    peer = sibling(Role.SENDER)
    peer.transfer(0, BODY, settled=True)
    peer.flow(handle=0, delivery_count=1, properties={RECORDED: True})
    events = [type(each) for each in peer.take_events()]
    assert events == [DeliveriesReceived, RecordAwaited]
    peer.take_frames()
    peer.engine.execute(ReportRecorded(LINK))
    assert peer.expect_one(Flow).properties == {RECORDED: True}


def test_others_cannot_ask() -> None:
    peer = begun()
    peer.attach(Role.SENDER)
    peer.answer(credit=5)
    peer.flow(handle=0, delivery_count=0, properties={RECORDED: True})
    assert not [each for each in peer.take_events() if isinstance(each, RecordAwaited)]


# Outcomes


def test_a_question_about_outcomes_stands_behind_them() -> None:
    peer = sibling(Role.SENDER)
    peer.transfer(0, BODY)
    number = peer.take_event(DeliveriesReceived).deliveries[0].number
    peer.take_frames()
    peer.engine.execute(UpdateDeliveries(LINK, [number], ACCEPTED, settled=True))
    peer.engine.execute(AwaitRecord(LINK))
    _, flow = peer.expect(Disposition, Flow)
    assert (flow.handle is not None, flow.properties) == (True, {OUTCOMES_RECORDED: True})
    peer.flow(handle=0, delivery_count=1, properties={OUTCOMES_RECORDED: True})
    assert DeliveriesRecorded(LINK) in peer.take_events()


def test_who_is_asked_about_outcomes_answers_with_a_flow() -> None:
    peer = sibling(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=0, link_credit=5)
    delivery = OutgoingDelivery(DeliveryNumber(7), DeliveryTag(b"7"), BODY)
    peer.engine.execute(SendDeliveries(LINK, [delivery]))
    peer.take_frames()
    peer.take_events()
    peer.send(Disposition(role=Role.RECEIVER, first=0, settled=True, state=ACCEPTED))
    peer.flow(handle=0, delivery_count=1, link_credit=4, properties={OUTCOMES_RECORDED: True})
    events = [type(each) for each in peer.take_events()]
    assert events[:2] == [DeliveriesUpdated, RecordAwaited]
    peer.engine.execute(ReportRecorded(LINK))
    assert peer.expect_one(Flow).properties == {OUTCOMES_RECORDED: True}


def test_a_question_about_outcomes_leaves_a_drain_as_it_is() -> None:
    peer = sibling(Role.SENDER)
    peer.engine.execute(GrantCredit(LINK, 5, drain=True))
    assert peer.expect_one(Flow).drain
    peer.engine.execute(AwaitRecord(LINK))
    assert peer.expect_one(Flow).drain


def test_others_cannot_ask_about_outcomes() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, delivery_count=0, properties={OUTCOMES_RECORDED: True})
    assert not [each for each in peer.take_events() if isinstance(each, RecordAwaited)]
