"""On exactly-once routes a commit is answered when what it acknowledges is on record."""

from router.model.commands import DetachLink, ReportRecorded, ReturnCredit
from router.model.condition import DETACH_FORCED, RESOURCE_DELETED, Condition
from router.model.events import DeliveriesUpdated, Event, LinkDetached, RecordAwaited
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.reply import Reply
from tests.support.basic_peer import ClientPeer
from tests.wire.v0_9_1.test_consuming import deliver, updated

GONE = Condition(RESOURCE_DELETED, "the route is gone")


def transacted(*queues: str, is_exact: bool = True) -> tuple[ClientPeer, list[LinkId]]:
    """A client with a transaction, and a consumer of each queue, each with a delivery or two."""
    peer = ClientPeer().open(1)
    peer.send(1, m.TxSelect())
    links = []
    for queue in queues:
        peer.send(1, m.BasicConsume(queue=queue, consumer_tag=queue))
        links.append(peer.accept(is_exact=is_exact))
    for link in links:
        deliver(peer, link, 1, 2)
    peer.received()
    peer.take_events()
    return peer, links


def of(events: list[Event], *kinds: type) -> list[Event]:
    return [event for event in events if isinstance(event, kinds)]


def test_the_core_is_asked_behind_the_outcomes_and_answers_before_the_client_is() -> None:
    peer, (link,) = transacted("q")
    events = peer.send(1, m.BasicAck(1), m.BasicAck(2), m.TxCommit())
    assert of(events, DeliveriesUpdated, RecordAwaited) == [
        updated([1, 2], ACCEPTED, link),
        RecordAwaited(link),
    ]
    peer.send(1, m.BasicQos())
    assert peer.methods() == []
    peer.do(ReportRecorded(link))
    assert peer.methods() == [m.TxCommitOk(), m.BasicQosOk()]


def test_every_link_has_to_answer() -> None:
    peer, (one, other) = transacted("q", "r")
    events = peer.send(1, m.BasicAck(4, multiple=True), m.TxCommit())
    assert of(events, RecordAwaited) == [RecordAwaited(one), RecordAwaited(other)]
    peer.do(ReportRecorded(other))
    assert peer.methods() == []
    peer.do(ReportRecorded(one))
    assert peer.methods() == [m.TxCommitOk()]


def test_a_commit_asks_only_where_it_acknowledges() -> None:
    peer, (one, _) = transacted("q", "r")
    events = peer.send(1, m.BasicAck(1), m.TxCommit())
    assert of(events, RecordAwaited) == [RecordAwaited(one)]
    peer.do(ReportRecorded(one))
    assert peer.methods() == [m.TxCommitOk()]
    assert of(peer.send(1, m.TxCommit()), RecordAwaited) == []
    assert peer.methods() == [m.TxCommitOk()]


def test_on_other_routes_a_commit_waits_for_nothing() -> None:
    peer, _ = transacted("q", is_exact=False)
    assert of(peer.send(1, m.BasicAck(2, multiple=True), m.TxCommit()), RecordAwaited) == []
    assert peer.methods() == [m.TxCommitOk()]


def test_acknowledgments_that_nothing_confirms_ask_for_nothing() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    link = peer.accept(is_exact=True)
    deliver(peer, link, 1)
    assert of(peer.send(1, m.BasicAck(1)), RecordAwaited) == []


def test_a_message_that_was_got_is_acknowledged_on_record_too() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.TxSelect(), m.BasicGet(queue="q"))
    link = peer.accept(is_exact=True)
    deliver(peer, link, 1)
    peer.do(ReturnCredit(link))
    peer.received()
    events = peer.send(1, m.BasicAck(1), m.TxCommit())
    assert of(events, RecordAwaited) == [RecordAwaited(link)]
    assert peer.methods() == []
    peer.do(ReportRecorded(link))
    assert peer.methods() == [m.TxCommitOk()]


def test_two_channels_on_one_link_are_answered_in_turn() -> None:
    peer, (link,) = transacted("q")
    peer.send(2, m.ChannelOpen())
    peer.send(2, m.TxSelect(), m.BasicConsume(queue="q", consumer_tag="d"))
    deliver(peer, link, 3, 4)
    got = [one.method.consumer_tag for one in peer.methods() if not isinstance(one, m.Method)]  # type: ignore[union-attr]
    assert set(got) == {"d", "q"}
    assert of(peer.send(1, m.BasicAck(1), m.TxCommit()), RecordAwaited) == [RecordAwaited(link)]
    assert of(peer.send(2, m.BasicAck(1), m.TxCommit()), RecordAwaited) == []
    assert of(peer.do(ReportRecorded(link)), RecordAwaited) == [RecordAwaited(link)]
    assert peer.received() == [(1, m.TxCommitOk())]
    peer.do(ReportRecorded(link))
    assert peer.received() == [(2, m.TxCommitOk())]


def test_a_link_that_is_left_stays_until_it_has_answered() -> None:
    peer, (link,) = transacted("q")
    peer.send(1, m.BasicAck(2, multiple=True), m.BasicCancel("q"))
    events = peer.send(1, m.TxCommit())
    assert of(events, RecordAwaited, LinkDetached) == [RecordAwaited(link)]
    assert LinkDetached(link, closed=True) in peer.do(ReportRecorded(link))
    assert peer.methods() == [m.BasicCancelOk("q"), m.TxCommitOk()]


def test_a_link_that_ends_before_it_has_answered_fails_the_commit() -> None:
    peer, (link,) = transacted("q")
    peer.send(1, m.BasicAck(1), m.TxCommit())
    peer.do(DetachLink(link, False, Condition(DETACH_FORCED, "somebody has taken it")))
    closes = [one for one in peer.methods() if isinstance(one, m.ChannelClose | m.TxCommitOk)]
    (close,) = closes
    assert isinstance(close, m.ChannelClose)
    assert (close.class_id, close.method_id) == (90, 20)
    peer.do(ReportRecorded(link))
    assert peer.methods() == []


def test_a_commit_fails_whose_link_has_ended_before_it() -> None:
    peer, (link, _) = transacted("q", "r")
    peer.send(1, m.BasicAck(1))
    peer.do(DetachLink(link, True, GONE))
    peer.received()
    peer.send(1, m.TxCommit())
    (close,) = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == Reply.PRECONDITION_FAILED


def test_a_channel_that_ends_meanwhile_is_told_nothing_more() -> None:
    peer, (link,) = transacted("q")
    peer.send(1, m.BasicAck(1), m.TxCommit())
    peer.send(0, m.ConnectionClose())
    peer.wait(30.0)
    assert peer.methods() == [m.ConnectionCloseOk()]
    peer.do(ReportRecorded(link))
    assert peer.methods() == []
