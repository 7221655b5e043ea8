"""Between workers: a sender asks to hear when what it has sent is on record."""

from router.model.commands import AwaitRecord, ReportRecorded, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import DeliveriesReceived, DeliveriesRecorded, RecordAwaited
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.terminus import Role
from router.wire.v1_0.flowing import RECORDED
from router.wire.v1_0.performatives import Flow, Transfer
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
