"""The draft's commits wait for the record, too; later methods of the channel do not."""

from router.model.commands import ReportRecorded
from router.model.events import RecordAwaited
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9r1 import methods as d
from tests.support.draft_peer import DraftClientPeer
from tests.wire.v0_9r1.test_server import send


def test_a_commit_is_answered_when_what_it_acknowledges_is_on_record() -> None:
    peer = DraftClientPeer().open(1)
    peer.send(1, m.TxSelect(), d.BasicConsume(queue="q"))
    link = peer.accept(is_exact=True)
    send(peer, link, 1, b"x")
    send(peer, link, 2, b"y")
    peer.received()
    peer.take_events()
    peer.send(1, m.BasicAck(1), m.TxCommit(), m.BasicAck(2), m.TxCommit())
    assert [one for one in peer.take_events() if isinstance(one, RecordAwaited)] == [
        RecordAwaited(link)
    ]
    assert peer.methods() == []
    events = peer.do(ReportRecorded(link))
    assert peer.methods() == [m.TxCommitOk()]
    assert RecordAwaited(link) in events
    peer.do(ReportRecorded(link))
    assert peer.methods() == [m.TxCommitOk()]
