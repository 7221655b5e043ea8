"""On exactly-once routes a command that settles is complete when its outcomes are on record."""

import attrs
import pytest

from router.model.commands import (
    DetachLink,
    ReportRecorded,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import CONNECTION_FORCED, RESOURCE_DELETED, Condition
from router.model.events import (
    ConnectionClosed,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    RecordAwaited,
)
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState
from router.wire.v0_10 import records as r
from router.wire.v0_10.packing import pack, unpack
from tests.support.accepting import accepting
from tests.support.peer_0_10 import Peer, Transfer, server
from tests.wire.v0_10.test_resuming import Memory, delivery, lost, outlet


def subscribed(
    memory: Memory | None = None,
    *,
    is_exact: bool = True,
    timeout: int = 0,
    transacted: bool = False,
) -> tuple[Peer, LinkId, int]:
    """A subscriber that has three transfers; returns its link, and the number of its commands."""
    peer = server(memory)
    peer.is_exact = is_exact
    peer.attach(timeout=timeout)
    begin = (r.TxSelect(),) if transacted else ()
    peer.command(
        *begin,
        r.MessageSubscribe(queue="orders", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, 50),
    )
    link = outlet(peer)
    peer.engine.execute(SendDeliveries(link, [delivery(n, b"%03d" % n) for n in range(3)]))
    assert len(peer.said(Transfer)) == 3
    peer.events.clear()
    return peer, link, 3 + len(begin)


def complete(peer: Peer) -> list[tuple[int, int]]:
    """Ranges of complete commands, as said last."""
    said = peer.said(r.SessionCompleted)
    return list(said[-1].commands or ()) if said else []


def answer(peer: Peer, link: LinkId) -> None:
    peer.engine.execute(ReportRecorded(link))
    peer.take(peer.engine.handle_deadline(peer.now))


def asked(peer: Peer) -> list[LinkId]:
    return [event.link for event in peer.of(RecordAwaited)]


OUTCOMES: list[tuple[r.Command, DeliveryState | None]] = [
    (r.MessageAccept(((0, 1),)), ACCEPTED),
    (r.MessageRelease(((0, 1),)), RELEASED),
    (r.MessageRelease(((0, 1),), True), MODIFIED_FAILED),
    (r.MessageReject(((0, 1),), 0, ""), None),
]


@pytest.mark.parametrize(("command", "state"), OUTCOMES)
def test_what_settles_is_complete_when_it_is_on_record(
    command: r.Command, state: DeliveryState | None
) -> None:
    peer, link, count = subscribed()
    peer.command(command)
    (update,) = peer.of(DeliveriesUpdated)
    assert sorted(update.numbers) == [0, 1]
    assert state in (None, update.state)
    assert asked(peer) == [link]
    assert complete(peer) == []
    answer(peer, link)
    assert complete(peer) == [(0, count)]


def test_a_sync_behind_it_waits_as_well() -> None:
    peer, link, count = subscribed()
    peer.command(r.MessageAccept(((0, 1),)), r.ExecutionSync(), sync=True)
    assert complete(peer) == []
    answer(peer, link)
    assert complete(peer) == [(0, count + 1)]


def test_many_accepts_are_asked_for_together() -> None:
    peer, link, count = subscribed()
    for number in range(3):
        peer.command(r.MessageAccept(((number, number),)))
    assert asked(peer) == [link]
    peer.events.clear()
    answer(peer, link)
    assert complete(peer) == [(0, count)]
    assert asked(peer) == [link]
    answer(peer, link)
    assert complete(peer) == [(0, count + 2)]


def test_on_other_routes_it_is_complete_at_once() -> None:
    peer, _, count = subscribed(is_exact=False)
    peer.command(r.MessageAccept(((0, 1),)))
    assert asked(peer) == []
    assert complete(peer) == [(0, count)]


def test_a_commit_is_complete_when_what_it_accepts_is_on_record() -> None:
    peer, link, count = subscribed(transacted=True)
    peer.command(r.MessageAccept(((0, 1),)), r.TxCommit(), r.ExecutionSync())
    assert asked(peer) == [link]
    assert complete(peer) == [(0, count)]
    answer(peer, link)
    assert complete(peer) == [(0, count + 2)]


def test_a_commit_waits_for_its_transfers_as_well() -> None:
    peer, link, count = subscribed(transacted=True)
    peer.command(r.MessageAccept(((0, 1),)))
    peer.publish("bills", b"one")
    peer.command(r.TxCommit())
    peer.read()
    answer(peer, link)
    assert all(last < count + 2 for _, last in complete(peer))
    (inlet,) = peer.engine.inlets  # type: ignore[union-attr]
    (number,) = next(iter(peer.engine.inlets.values())).open  # type: ignore[union-attr]
    peer.engine.execute(UpdateDeliveries(inlet, [DeliveryNumber(number)], ACCEPTED, True))
    assert complete(peer) == [(0, count + 2)]


def test_a_link_that_is_left_stays_until_it_has_answered() -> None:
    peer, link, _ = subscribed()
    peer.command(r.MessageAccept(((0, 2),)), r.MessageCancel("d"))
    assert not peer.of(LinkDetached)
    answer(peer, link)
    assert peer.of(LinkDetached) == [LinkDetached(link, closed=True)]


def test_a_detach_follows_completion() -> None:
    peer, link, count = subscribed()
    peer.command(r.MessageAccept(((0, 2),)))
    peer.control(r.SessionDetach(b"s"))
    assert peer.read() == []
    answer(peer, link)
    _, (_, done), (_, end) = [(0, None), *peer.read()]
    assert done == r.SessionCompleted(((0, count),))
    assert isinstance(end, r.SessionDetached)


def test_a_link_that_ends_before_ends_the_session() -> None:
    peer, link, _ = subscribed()
    peer.command(r.MessageAccept(((0, 1),)))
    peer.engine.execute(DetachLink(link, True, Condition(RESOURCE_DELETED, "the route is gone")))
    said = [each for _, each in peer.read()]
    assert [type(each) for each in said][-2:] == [r.ExecutionException, r.SessionDetach]
    assert not [each for each in said if isinstance(each, r.SessionCompleted) and _has(each, 3)]


def _has(done: r.SessionCompleted, number: int) -> bool:
    return any(first <= number <= last for first, last in done.commands or ())


def test_before_the_connection_ends_nothing_is_said() -> None:
    peer, link, _ = subscribed()
    peer.command(r.MessageAccept(((0, 1),)))
    peer.engine.execute(DetachLink(link, False, Condition(CONNECTION_FORCED, "the router stops")))
    assert [type(each) for _, each in peer.read()] == []


@pytest.mark.parametrize("moves", [False, True])
def test_a_session_that_is_lost_meanwhile_is_told_when_it_is_back(moves: bool) -> None:
    memory: Memory = {}
    peer, _, count = subscribed(memory, timeout=60)
    peer.command(r.MessageAccept(((0, 1),)))
    lost(peer)
    if moves:
        kept = peer.engine.kept  # type: ignore[union-attr]
        (entry,) = kept._places.values()
        entry.session = unpack(pack(entry.session, 60.0))[1]
    again = server(memory)
    again.is_exact = True
    again.attach(timeout=60, point=None)
    (back,) = [event.link for event in again.of(LinkAttached)]
    assert asked(again) == [back]
    again.control(r.SessionExpected(((3, 3),)))
    assert not any(_has(each, count) for each in again.said(r.SessionCompleted))
    answer(again, back)
    assert _has(again.said(r.SessionCompleted)[-1], count)


def test_a_link_that_is_refused_when_the_session_is_back_ends_it() -> None:
    memory: Memory = {}
    peer, _, _ = subscribed(memory, timeout=60)
    peer.command(r.MessageAccept(((0, 1),)))
    lost(peer)
    again = server(memory)
    again.refuses.add("orders")
    said = again.attach(timeout=60, point=None)
    assert [type(each) for each in said][-1] is r.SessionDetach


def test_what_is_accepted_before_the_core_has_named_it_again_is_asked_behind_it() -> None:
    memory: Memory = {}
    peer, _, count = subscribed(memory, timeout=60)
    lost(peer)
    again = server(memory)
    again.is_exact = True
    again.attach(timeout=60, point=count)
    again.control(r.SessionExpected(((3, 3),)))
    (back,) = [event.link for event in again.of(LinkAttached)]
    again.command(r.MessageAccept(((0, 0),)))  # its tag has not been named
    assert asked(again) == []
    named = delivery(0, b"", resume=True)
    again.engine.execute(SendDeliveries(back, [named]))
    again.take(again.engine.handle_deadline(again.now))
    assert asked(again) == [back]
    again.command(r.MessageAccept(((1, 1),)))
    answer(again, back)
    assert asked(again) == [back], "the second is not named yet"
    again.engine.execute(SendDeliveries(back, [delivery(1, b"", resume=True)]))
    again.take(again.engine.handle_deadline(again.now))
    assert asked(again) == [back, back]
    answer(again, back)
    assert _has(again.said(r.SessionCompleted)[-1], count + 1)


# Links that lead through to another worker


def far() -> Peer:
    """A session whose links have their home elsewhere: outcomes stay here until it has them."""
    peer = server({})

    def confirm(event: LinkAttached) -> None:
        answer = accepting(event, unsettled=event.unsettled, is_exact=True)
        peer.engine.execute(attrs.evolve(answer, confirms_outcomes=True))

    peer._answer = confirm  # type: ignore[method-assign]
    peer.attach(timeout=60)
    return peer


def test_through_another_worker_it_is_asked_behind_the_outcome() -> None:
    peer = far()
    peer.command(
        r.MessageSubscribe(queue="orders", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, 50),
    )
    link = outlet(peer)
    peer.engine.execute(SendDeliveries(link, [delivery(0, b"000")]))
    peer.read()
    peer.events.clear()
    peer.command(r.MessageAccept(((0, 0),)))
    kinds = [type(event) for event in peer.events]
    assert kinds == [DeliveriesUpdated, RecordAwaited]
    assert not peer.of(DeliveriesUpdated)[0].settled
    answer(peer, link)
    assert complete(peer) == [(0, 3)]
    peer.engine.execute(UpdateDeliveries(link, [DeliveryNumber(0)], ACCEPTED, True))
    assert not peer.of(ConnectionClosed)
