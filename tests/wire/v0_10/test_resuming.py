"""Sessions that come back: replay, duplicates, gaps, timeouts (0-10 session)."""

import attrs
import pytest

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    MemoryFound,
    ReportRecorded,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    MemorySought,
    RecordAwaited,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, Accepted
from router.model.terminus import ExpiryPolicy, Role, Source, Target
from router.wire.memory import Moves, Refusal
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command, encode_struct
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.keeping import Kept
from router.wire.v0_10.reply import DetachCode
from tests.support.peer_0_10 import Peer, Transfer, broker, server

Memory = dict[str, object]


def lost(peer: Peer) -> None:
    peer.take(peer.engine.receive_eof(peer.now))
    assert peer.of(ConnectionClosed)


def inlet(peer: Peer) -> LinkId:
    return [event.link for event in peer.of(LinkAttached) if event.role is Role.RECEIVER][-1]


def outlet(peer: Peer) -> LinkId:
    return [event.link for event in peer.of(LinkAttached) if event.role is Role.SENDER][-1]


def received(peer: Peer) -> list[bytes]:
    runs = [event.deliveries for event in peer.of(DeliveriesReceived)]
    return [each.payload[-3:] for run in runs for each in run if not each.resume]


def delivery(number: int, body: bytes, *, resume: bool = False) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(b"tag%d" % number),
        messages.make_content(b"", b"", body),
        Protocol.AMQP_0_10,
        resume=resume,
    )


# --- where we receive -----------------------------------------------------------------------------


def test_a_timeout_is_granted_as_far_as_anything_is_kept_here() -> None:
    peer = server()
    assert r.SessionTimeout(60) in peer.attach(timeout=60)
    peer.control(r.SessionRequestTimeout(100_000))
    peer.control(r.SessionRequestTimeout(None))
    assert peer.said(r.SessionTimeout) == [r.SessionTimeout(600), r.SessionTimeout(600)]


def test_a_timeout_asked_for_too_late_is_not_granted() -> None:
    peer = server()
    peer.attach()
    peer.publish("orders", b"one")
    peer.read()
    peer.control(r.SessionRequestTimeout(60))
    assert peer.said(r.SessionTimeout) == [r.SessionTimeout(0)]


def test_a_new_session_expects_nothing_and_one_that_is_kept_expects_the_next_command() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60, point=None)
    peer.control(r.SessionFlush(expected=True))
    assert peer.said(r.SessionExpected) == [r.SessionExpected(())]
    peer.control(r.SessionCommandPoint(0, 0))
    peer.publish("orders", b"one", b"two")
    lost(peer)
    again = server(memory)
    again.attach(timeout=60, point=None)
    again.control(r.SessionFlush(expected=True))
    assert again.said(r.SessionExpected) == [r.SessionExpected(((2, 2),))]


def test_replayed_commands_are_recognized_and_dropped() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one", b"two")
    assert received(peer) == [b"one", b"two"]
    lost(peer)
    again = server(memory)
    again.attach(timeout=60)  # from command 0 on, as if nothing had arrived
    again.publish("orders", b"one", b"two", b"new")
    assert received(again) == [b"new"]


def test_what_is_not_on_record_when_its_session_is_lost_is_complete_when_it_is() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.is_exact = True
    peer.attach(timeout=60)
    peer.publish("orders", b"one", b"two", mode=1)
    assert [each.link for each in peer.of(RecordAwaited)] == [inlet(peer)]
    assert not peer.said(r.SessionCompleted)
    lost(peer)
    again = server(memory)
    again.is_exact = True
    again.attach(timeout=60, point=2)
    (asked,) = again.of(RecordAwaited)
    assert asked.link == inlet(again)
    assert received(again) == []
    again.control(r.SessionExpected(((0, 0),)))
    again.read()
    again.engine.execute(ReportRecorded(asked.link))
    assert again.said(r.SessionCompleted)[-1].commands == ((0, 1),)


def test_what_is_not_on_record_when_its_link_ends_is_complete_all_the_same() -> None:
    peer = server()
    peer.is_exact = True
    peer.attach()
    peer.publish("orders", b"one", mode=1)
    peer.engine.execute(DetachLink(inlet(peer), closed=True))
    assert peer.said(r.SessionCompleted)[-1].commands == ((0, 0),)


def test_open_transfers_are_resumed_by_tag_and_answered() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one", b"two")
    first = peer.of(LinkAttached)[0]
    assert first.target == Target(
        address="orders", expiry_policy=ExpiryPolicy.LINK_DETACH, expiry_seconds=60
    )
    run = peer.of(DeliveriesReceived)[0].deliveries
    lost(peer)
    again = server(memory)
    again.attach(timeout=60)
    back = again.of(LinkAttached)[0]
    assert back.name == first.name
    tags = [DeliveryTag(bytes(8)), DeliveryTag(bytes(7) + b"\1")]
    assert run[0].tag == tags[0]
    assert back.unsettled == dict.fromkeys(tags)
    resumed = [each for event in again.of(DeliveriesReceived) for each in event.deliveries]
    assert [(each.resume, each.tag) for each in resumed] == [
        (True, tags[0]),
        (True, tags[1]),
    ]
    numbers = [each.number for each in resumed]
    again.engine.execute(UpdateDeliveries(back.link, numbers, ACCEPTED, True))
    assert again.said(r.SessionCompleted) == []  # answers come first
    again.control(r.SessionExpected(((0, 0),)))
    said = [each for _, each in again.read()]
    assert r.MessageAccept(((0, 1),)) in said
    assert r.SessionCompleted(((0, 1),)) in said


def test_an_answer_that_was_lost_is_given_again() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    number = peer.of(DeliveriesReceived)[0].deliveries[0].number
    peer.engine.execute(UpdateDeliveries(inlet(peer), [number], ACCEPTED, True))
    peer.engine.data_to_send()  # written, and lost with the connection
    lost(peer)
    again = server(memory)
    again.attach(timeout=60, point=None)
    again.control(r.SessionExpected(((0, 0),)))  # the client awaits our command 0
    said = [each for _, each in again.read()]
    assert r.SessionCommandPoint(0, 0) in said
    assert r.MessageAccept(((0, 0),)) in said
    again.control(r.SessionCommandPoint(0, 0))
    again.publish("orders", b"one")  # and sends its own again
    assert received(again) == []
    assert r.SessionCompleted(((0, 0),)) in again.said(r.SessionCompleted)


def test_a_command_that_waits_for_the_core_was_never_received() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.events.clear()
    events = peer.engine.receive_data(b"", 0.0)
    assert events == []
    silent = _silent(peer)
    silent.command(r.QueueQuery("orders"), r.ExecutionSync())
    lost(silent)
    again = server(memory)
    again.attach(timeout=60, point=None)
    again.control(r.SessionFlush(expected=True))
    assert again.said(r.SessionExpected) == [r.SessionExpected(((0, 0),))]


@pytest.mark.parametrize("takes", [True, False])
def test_a_transfer_of_a_transaction_that_was_not_answered_is_answered_when_the_session_is_back(
    takes: bool,
) -> None:
    memory: Memory = {}
    peer = _silent(server(memory))
    peer.attach(timeout=60)
    peer.command(r.TxSelect())
    peer.publish("orders", b"one")
    assert peer.said(r.MessageAccept) == []
    lost(peer)
    again = server(memory)
    if not takes:
        again.refuses.add("orders")
    again.attach(timeout=60, point=None)
    again.control(r.SessionExpected(((0, 0),)))
    said = [each for _, each in again.read()]
    answers = [each for each in said if isinstance(each, r.MessageAccept | r.MessageReject)]
    assert [type(each) for each in answers] == [r.MessageAccept if takes else r.MessageReject]
    again.control(r.SessionCommandPoint(2, 0))
    again.command(r.TxCommit())
    assert received(again) == ([b"one"] if takes else [])


def _silent(peer: Peer) -> Peer:
    """Has a core that answers nothing."""
    peer._answer = lambda event: None  # type: ignore[method-assign]
    return peer


def test_a_session_is_forgotten_after_its_timeout() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    lost(peer)
    again = server(memory)
    again.now = 61.0
    again.attach(timeout=60, point=None)
    again.control(r.SessionFlush(expected=True))
    assert again.said(r.SessionExpected) == [r.SessionExpected(())]


def test_a_session_without_timeout_is_forgotten_at_once() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach()
    peer.publish("orders", b"one")
    lost(peer)
    again = server(memory)
    again.attach(point=None)
    again.control(r.SessionFlush(expected=True))
    assert again.said(r.SessionExpected) == [r.SessionExpected(())]


def test_a_session_belongs_to_its_identity() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    lost(peer)
    other = server(memory)
    other.engine.user = "mallory"  # type: ignore[union-attr]
    other.attach(timeout=60, point=None)
    other.control(r.SessionFlush(expected=True))
    assert other.said(r.SessionExpected) == [r.SessionExpected(())]


def test_a_session_that_is_attached_elsewhere_is_busy_unless_forced() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    peer.read()
    other = server(memory)
    assert r.SessionDetached(b"s", DetachCode.SESSION_BUSY) in other.attach(point=None)
    said = other.attach(point=None, force=True)
    assert r.SessionAttached(b"s") in said
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"s", DetachCode.SESSION_BUSY)]
    other.control(r.SessionFlush(expected=True))
    assert other.said(r.SessionExpected) == [r.SessionExpected(((1, 1),))]


def test_a_session_of_a_client_that_has_left_is_free_and_what_came_before_goes_on() -> None:
    """The end of the stream is known, and what stands before it is yet to be read."""
    memory: Memory = {}
    peer = server(memory)
    peer.attach()
    peer.publish("orders", b"one")
    peer.engine.peer_left()
    other = server(memory)
    assert r.SessionAttached(b"s") in other.attach()
    other.publish("orders", b"two")
    names = [[each.name for each in end.of(LinkAttached)] for end in (peer, other)]
    assert names[0] != names[1], "or else its link would be stolen"
    peer.publish("orders", b"six")
    assert (received(peer), received(other)) == ([b"one", b"six"], [b"two"])
    lost(peer)
    third = server(memory)
    assert r.SessionDetached(b"s", DetachCode.SESSION_BUSY) in third.attach(point=None)


def test_a_kept_session_leaves_the_connection_that_its_client_has_left() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    peer.engine.peer_left()
    other = server(memory)
    assert r.SessionAttached(b"s") in other.attach(timeout=60, point=None)
    other.control(r.SessionFlush(expected=True))
    assert other.said(r.SessionExpected) == [r.SessionExpected(((1, 1),))]


def kept_at(peer: Peer) -> Kept:
    """Returns the sessions of a client's worker."""
    return Kept.of(peer.engine.settings)


def elsewhere(timeout: int = 0) -> tuple[Peer, MemorySought]:
    """Returns a client that asks for its session at a worker with a sibling."""
    memory: Memory = {}
    Moves.of(memory).siblings.add("/1")
    peer = server(memory)
    peer.attach(timeout=timeout, point=None)
    (sought,) = peer.of(MemorySought)
    return peer, sought


def test_a_session_of_a_client_that_has_left_another_worker_is_free_there() -> None:
    peer = server({})
    peer.attach()
    peer.publish("orders", b"one")
    other, sought = elsewhere()
    assert kept_at(peer).give(sought.key, force=False, now=1.0) is Refusal.BUSY
    peer.engine.peer_left()
    assert kept_at(peer).give(sought.key, force=False, now=1.0) is Refusal.NOTHING
    other.engine.execute(MemoryFound(sought.store, sought.key))
    assert other.said(r.SessionAttached) == [r.SessionAttached(b"s")]
    peer.publish("orders", b"six")
    assert received(peer) == [b"one", b"six"]


def test_a_kept_session_of_a_client_that_has_left_another_worker_moves_here() -> None:
    peer = server({})
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    other, sought = elsewhere(timeout=60)
    assert kept_at(peer).give(sought.key, force=False, now=1.0) is Refusal.BUSY
    peer.engine.peer_left()
    assert kept_at(peer).give(sought.key, force=False, now=1.0) is Refusal.LEAVING
    given = kept_at(peer).give(sought.key, force=False, now=1.0)
    assert isinstance(given, bytes)
    kept_at(other).take(sought.key, given, "/1", 1.0)
    other.engine.execute(MemoryFound(sought.store, sought.key))
    other.control(r.SessionFlush(expected=True))
    assert other.said(r.SessionExpected) == [r.SessionExpected(((1, 1),))]


def test_a_client_that_has_left_keeps_nobody_from_asking_other_workers_for_its_session() -> None:
    memory: Memory = {}
    Moves.of(memory).siblings.add("/1")
    peers = [server(memory) for _ in range(3)]
    peers[0].attach(point=None)
    busy = r.SessionDetached(b"s", DetachCode.SESSION_BUSY)
    assert busy in peers[1].attach(point=None)
    peers[0].engine.peer_left()
    peers[2].attach(point=None)
    (sought,) = peers[2].of(MemorySought)
    peers[2].engine.execute(MemoryFound(sought.store, sought.key))
    assert peers[2].said(r.SessionAttached) == [r.SessionAttached(b"s")]


def test_a_gap_counts_as_completed_and_is_passed_over() -> None:
    peer = server()
    peer.attach()
    peer.control(r.SessionGap(((0, 4),)))
    peer.publish("orders", b"six")
    assert received(peer) == [b"six"]
    assert peer.of(DeliveriesReceived)[0].deliveries[0].number == 5
    assert r.SessionCompleted(((0, 4),)) in peer.said(r.SessionCompleted)


def test_a_gap_ends_a_command_that_has_begun() -> None:
    peer = server()
    peer.attach()
    whole = _transfer_octets(b"x" * 9000, frame_max=4096)
    peer.feed(whole[: whole.rindex(b"\x05\x03")])  # all but the last frame
    peer.control(r.SessionGap(((0, 0),)))
    peer.publish("orders", b"new")
    assert received(peer) == [b"new"]


def _transfer_octets(body: bytes, frame_max: int) -> bytes:
    header = messages.write_header(r.DeliveryProperties(routing_key="orders"), None)
    head = encode_command(r.MessageTransfer("", 0, 0))
    return assembly(COMMAND, 1, head, frame_max, (header, body))


def test_commands_before_a_command_point_are_refused() -> None:
    peer = server()
    peer.attach(point=None)
    peer.command(r.ExecutionSync())
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"s", DetachCode.UNKNOWN_IDS)]


def test_command_ids_wrap() -> None:
    peer = server()
    peer.attach(point=0xFFFF_FFFF)
    peer.publish("orders", b"one", b"two")
    numbers = [each.number for event in peer.of(DeliveriesReceived) for each in event.deliveries]
    peer.engine.execute(UpdateDeliveries(inlet(peer), numbers, ACCEPTED, True))
    said = [each for _, each in peer.read()]
    assert r.MessageAccept(((0xFFFF_FFFF, 0),)) in said


# --- where we send --------------------------------------------------------------------------------


def test_transfers_that_were_lost_are_sent_again_by_their_numbers() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.subscribe("orders")
    link = outlet(peer)
    peer.engine.execute(SendDeliveries(link, [delivery(n, b"m%d" % n) for n in range(3)]))
    assert [each.body for each in peer.said(Transfer)] == [b"m0", b"m1", b"m2"]
    lost(peer)
    again = server(memory)
    again.attach(timeout=60, point=None)
    back = again.of(LinkAttached)[0]
    assert back.role is Role.SENDER
    assert back.unsettled == {DeliveryTag(b"tag%d" % n): None for n in range(3)}
    assert any(event.credit >= 3 for event in again.of(CreditGranted))
    again.control(r.SessionExpected(((1, 1),)))  # the client has command 0 alone
    said = [each for _, each in again.read()]
    assert r.SessionCommandPoint(1, 0) in said
    assert [each.body for each in said if isinstance(each, Transfer)] == [b"m1", b"m2"]
    run = [delivery(n, b"", resume=True) for n in range(3)]
    for at, each in enumerate(run):
        each.number = DeliveryNumber(10 + at)
    again.engine.execute(SendDeliveries(back.link, run))
    assert again.said(Transfer) == []  # the client has them already
    again.control(r.SessionCommandPoint(4, 0))
    again.command(r.MessageAccept(((0, 2),)))
    (told,) = again.of(DeliveriesUpdated)
    assert (told.link, told.numbers, told.state) == (back.link, [10, 11, 12], ACCEPTED)


def test_what_the_client_completed_is_not_kept() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.subscribe("orders")
    peer.engine.execute(SendDeliveries(outlet(peer), [delivery(n, b"m") for n in range(3)]))
    peer.control(r.SessionCompleted(((0, 1),), timely_reply=True))
    assert peer.said(r.SessionKnownCompleted) == [r.SessionKnownCompleted(((0, 1),))]
    lost(peer)
    again = server(memory)
    again.attach(timeout=60, point=None)
    again.control(r.SessionExpected(((2, 2),)))
    assert len(again.said(Transfer)) == 1


def test_sets_of_a_peer_are_never_walked_number_by_number() -> None:
    peer = server()
    peer.attach()
    peer.subscribe("orders")
    peer.engine.execute(SendDeliveries(outlet(peer), [delivery(0, b"m")]))
    most = tuple((n * 1_000_000, n * 1_000_000 + 999_990) for n in range(2000))
    peer.control(r.SessionCompleted(most))
    peer.control(r.SessionKnownCompleted(most))
    peer.command(r.MessageAccept(most))
    (told,) = peer.of(DeliveriesUpdated)
    assert told.numbers == [0]


# --- towards a broker -----------------------------------------------------------------------------


def _attach(role: Role, unsettled: dict[DeliveryTag, None] | None = None) -> AttachLink:
    keeps = {"expiry_policy": ExpiryPolicy.CONNECTION_CLOSE, "expiry_seconds": 60}
    return AttachLink(
        link=LinkId(7 if unsettled is None else 8),
        name=LinkName("up"),
        role=role,
        source=Source(address="q" if role is Role.RECEIVER else None, **keeps),  # type: ignore[arg-type]
        target=Target(address="q" if role is Role.SENDER else None, **keeps),  # type: ignore[arg-type]
        unsettled=unsettled,
    )


def _found(peer: Peer, *, expected: int | None = None) -> None:
    """Says yes to everything that a link's session asks."""
    for _ in range(12):
        for channel, each in peer.read():
            if isinstance(each, r.SessionAttach):
                peer.control(r.SessionAttached(each.name), channel)
                peer.control(r.SessionCommandPoint(0, 0), channel)
            elif isinstance(each, r.SessionRequestTimeout):
                peer.control(r.SessionTimeout(each.timeout), channel)
            elif isinstance(each, r.SessionFlush) and each.expected:
                ranges = () if expected is None else ((expected, expected),)
                peer.control(r.SessionExpected(ranges), channel)
            elif isinstance(each, r.ExchangeQuery | r.QueueQuery):
                number, result = 0, encode_struct(r.ExchangeQueryResult(not_found=True))
                if isinstance(each, r.QueueQuery):
                    found = r.QueueQueryResult(queue="q", message_count=0, subscriber_count=0)
                    number, result = 1, encode_struct(found)
                peer.command(r.ExecutionResult(number, result), channel=channel)
                peer.control(r.SessionCompleted(((0, number),)), channel)
            elif isinstance(each, r.MessageSubscribe | r.MessageSetFlowMode | r.MessageFlow):
                peer.control(r.SessionCompleted(((0, 6),)), channel)


def test_a_senders_session_is_resumed_at_the_broker() -> None:
    memory: Memory = {}
    peer = broker(memory)
    peer.engine.execute(_attach(Role.SENDER))
    _found(peer)
    assert peer.of(LinkAttached)[0].unsettled == {}
    peer.engine.execute(SendDeliveries(LinkId(7), [delivery(n, b"m%d" % n) for n in range(3)]))
    channel = next(channel for channel, each in peer.read() if isinstance(each, Transfer))
    peer.control(r.SessionCommandPoint(2, 0), channel)
    peer.command(r.MessageAccept(((2, 2),)), channel=channel)
    assert [event.numbers for event in peer.of(DeliveriesUpdated)] == [[0]]
    lost(peer)
    again = broker(memory)
    tags = {DeliveryTag(b"tag1"): None, DeliveryTag(b"tag2"): None}
    again.engine.execute(_attach(Role.SENDER, tags))
    for channel, each in again.read():
        assert isinstance(each, r.SessionAttach)
        assert each.force
        again.control(r.SessionAttached(each.name), channel)
    (flush,) = again.said(r.SessionFlush)
    assert flush.expected
    again.control(r.SessionExpected(((4, 4),)), channel)  # it has had m0 and m1
    said = [each for _, each in again.read()]
    assert [each.body for each in said if isinstance(each, Transfer)] == [b"m2"]
    assert r.SessionCommandPoint(4, 0) in said
    (answer,) = again.of(LinkAttached)
    assert answer.unsettled == tags
    run = [delivery(n, b"", resume=True) for n in (1, 2)]
    again.engine.execute(SendDeliveries(LinkId(8), run))
    assert again.said(Transfer) == []
    again.control(r.SessionCommandPoint(3, 0), channel)
    again.command(r.MessageAccept(((3, 4),)), channel=channel)
    (told,) = again.of(DeliveriesUpdated)
    assert told.numbers == [1, 2]
    assert isinstance(told.state, Accepted)


def test_a_broker_that_keeps_nothing_is_told_from_one_that_does() -> None:
    memory: Memory = {}
    peer = broker(memory)
    peer.engine.execute(_attach(Role.SENDER))
    _found(peer)
    peer.engine.execute(SendDeliveries(LinkId(7), [delivery(0, b"m0")]))
    lost(peer)
    again = broker(memory)
    again.engine.execute(_attach(Role.SENDER, {DeliveryTag(b"tag0"): None}))
    _found(again, expected=None)
    (answer,) = again.of(LinkAttached)
    assert answer.unsettled == {}


def test_a_session_is_resumed_at_its_own_broker_and_at_no_other() -> None:
    memory: Memory = {}
    a, b = ({"product": "qpid-cpp", "qpid.federation_tag": tag} for tag in ("a", "b"))
    peer = broker(memory, a)
    peer.engine.execute(_attach(Role.SENDER))
    _found(peer)
    peer.engine.execute(SendDeliveries(LinkId(7), [delivery(0, b"m0")]))
    lost(peer)
    tags = {DeliveryTag(b"tag0"): None}
    other = broker(memory, b)
    other.engine.execute(_attach(Role.SENDER, tags))
    _found(other)
    assert other.of(LinkAttached)[0].unsettled == {}
    assert other.said(Transfer) == []
    lost(other)
    back = broker(memory, a)
    back.engine.execute(_attach(Role.SENDER, tags))
    _found(back, expected=2)
    assert back.of(LinkAttached)[0].unsettled == tags


def test_a_receivers_session_is_resumed_at_the_broker() -> None:
    memory: Memory = {}
    peer = broker(memory)
    peer.engine.execute(_attach(Role.RECEIVER))
    _found(peer)
    channel = 0
    peer.engine.execute(GrantCredit(LinkId(7), 5))
    peer.read()
    for body in (b"one", b"two"):
        peer.transfer(body, command=r.MessageTransfer("router", 0, 0), channel=channel)
    first = peer.of(DeliveriesReceived)
    run = [each for event in first for each in event.deliveries]
    assert len(run) == 2
    lost(peer)
    again = broker(memory)
    tags: dict[DeliveryTag, None] = {each.tag: None for each in run}
    again.engine.execute(_attach(Role.RECEIVER, tags))
    _found(again, expected=6)
    (answer,) = again.of(LinkAttached)
    assert answer.unsettled == tags
    resumed = [each for event in again.of(DeliveriesReceived) for each in event.deliveries]
    assert [(each.resume, each.tag) for each in resumed] == [(True, tag) for tag in tags]
    again.engine.execute(
        UpdateDeliveries(LinkId(8), [each.number for each in resumed], ACCEPTED, True)
    )
    numbers = [each.number for each in run]
    assert r.MessageAccept(((numbers[0], numbers[1]),)) in again.said(r.MessageAccept)


# --- what must not pile up, or be mixed up --------------------------------------------------------


def test_a_session_that_ended_by_an_exception_is_a_new_one_when_attached_again() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    peer.command(r.MessageCancel("none"))
    again = server(memory)
    again.attach(timeout=60, point=None)
    again.control(r.SessionFlush(expected=True))
    assert again.said(r.SessionExpected) == [r.SessionExpected(())]


def test_a_forced_attach_of_a_session_that_is_not_kept_begins_anew() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach()
    peer.publish("orders", b"one")
    other = server(memory)
    assert r.SessionAttached(b"s") in other.attach(point=None, force=True)
    other.control(r.SessionFlush(expected=True))
    assert other.said(r.SessionExpected) == [r.SessionExpected(())]


def test_transfers_that_the_core_has_forgotten_are_offered_again_as_failed() -> None:
    memory: Memory = {}
    peer = server(memory)
    peer.attach(timeout=60)
    peer.publish("orders", b"one")
    lost(peer)
    again = server(memory)
    told = again._answer
    again._answer = lambda event: told(  # type: ignore[method-assign]
        attrs.evolve(event, unsettled={})
    )
    again.attach(timeout=60)
    (run,) = again.of(DeliveriesReceived)
    (delivery,) = run.deliveries
    assert (delivery.resume, delivery.delivery_count, delivery.payload[-3:]) == (False, 1, b"one")


def test_a_client_that_completes_nothing_costs_nothing_unless_its_session_is_kept() -> None:
    peer = server()
    peer.attach()
    peer.subscribe("orders", messages=0xFFFF_FFFF)
    for at in range(10):
        peer.engine.execute(
            SendDeliveries(outlet(peer), [delivery(100 * at + n, b"m") for n in range(100)])
        )
        peer.command(r.MessageAccept(((0, 1000),)))
        peer.read()
    (session,) = peer.engine.sessions.values()
    assert not session.outstanding


def test_a_client_of_a_kept_session_is_asked_and_then_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.wire.v0_10.session.REPLAY_LIMIT_OCTETS", 10_000)
    peer = server()
    peer.attach(timeout=60)
    peer.subscribe("orders", messages=0xFFFF_FFFF)
    for at in range(11):
        peer.engine.execute(
            SendDeliveries(outlet(peer), [delivery(100 * at + n, b"m") for n in range(100)])
        )
        peer.command(r.MessageAccept(((0, 2000),)))
    said = [each for _, each in peer.read()]
    assert r.SessionFlush(completed=True) in said
    assert [each.error_code for each in said if isinstance(each, r.ExecutionException)] == [506]
