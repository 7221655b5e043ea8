"""Rules of classes session and execution, on octets of 0-10."""

import pytest

from router.model.commands import UpdateDeliveries
from router.model.events import DeliveriesReceived, LinkAttached
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, FRAME, assembly
from router.wire.v0_10.message import write_header
from router.wire.v0_10.reply import CloseCode, DetachCode, ErrorCode
from tests.support.peer_0_10 import Peer, Transfer, server
from tests.support.worker_0_10 import Worker


def test_commands_before_a_command_point_detach_the_session() -> None:
    peer = server()
    peer.attach(point=None)
    peer.command(r.ExecutionSync())
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"s", DetachCode.UNKNOWN_IDS)]
    peer.control(r.SessionFlush(completed=True))
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"", DetachCode.NOT_ATTACHED)]


def test_behind_a_command_point_the_next_frame_begins_a_command() -> None:
    peer = server()
    peer.attach()
    head = encode_command(r.MessageTransfer("", 0, 0))
    header = write_header(r.DeliveryProperties(routing_key="orders"), None)
    octets = assembly(COMMAND, 1, head, 65535, (header, b"body"))
    begun = 12 + len(head)
    peer.feed(octets[:begun])
    peer.control(r.SessionCommandPoint(0, 0))
    peer.feed(octets[begun:])
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == CloseCode.FRAMING_ERROR
    assert not peer.of(DeliveriesReceived)


def test_a_command_point_within_a_command_is_refused_as_no_part_was_ever_expected() -> None:
    peer = server()
    peer.attach(point=None)
    peer.control(r.SessionCommandPoint(0, 1))
    (close,) = peer.said(r.ConnectionClose)
    assert close.reply_code == CloseCode.FRAMING_ERROR


def test_a_session_name_on_its_own_channel_is_attached_again_and_again() -> None:
    peer = server()
    assert peer.attach(b"s")[0] == r.SessionAttached(b"s")
    for _ in range(2):
        peer.control(r.SessionAttach(b"s"))
        assert peer.said(r.SessionAttached) == [r.SessionAttached(b"s")]


@pytest.mark.parametrize("timeout", [0, 5, 601, None])
def test_the_timeout_that_is_granted_is_told_and_never_more_than_was_asked_for(
    timeout: int | None,
) -> None:
    peer = server()
    peer.attach()
    peer.control(r.SessionRequestTimeout(timeout))
    (told,) = peer.said(r.SessionTimeout)
    assert told.timeout == (600 if timeout is None else min(timeout, 600))


@pytest.mark.parametrize("timely", [True, False])
def test_known_completed_covers_what_the_client_has_completed(timely: bool) -> None:
    client = Worker().connect()
    client.command(*[r.ExchangeQuery("amq.direct")] * 1024)
    client.read()
    client.control(r.SessionCompleted(((0, 511),), timely))
    told = client.said(r.SessionKnownCompleted)
    assert told == ([r.SessionKnownCompleted(((0, 511),))] if timely else [])
    client.control(r.SessionCompleted(((0, 1023),), timely))
    last = client.said(r.SessionKnownCompleted)
    assert last == ([r.SessionKnownCompleted(((0, 1023),))] if timely else [])


def test_completions_that_need_no_timely_reply_are_answered_together() -> None:
    peer = server()
    peer.attach(timeout=60)
    peer.command(*[r.ExchangeQuery("amq.direct")] * 1100)
    peer.read()
    for last in range(99, 1100, 100):
        peer.control(r.SessionCompleted(((0, last),)))
    assert len(peer.said(r.SessionKnownCompleted)) == 1


def test_flush_is_answered_with_each_set_that_was_asked_for() -> None:
    peer = server()
    peer.attach()
    peer.command(r.ExecutionSync())
    peer.read()
    peer.control(r.SessionFlush(expected=True, confirmed=True, completed=True))
    assert [each for _, each in peer.read()] == [
        r.SessionExpected(((1, 1),)),
        r.SessionConfirmed(((0, 0),)),
        r.SessionCompleted(((0, 0),)),
    ]


def test_a_transfer_is_confirmed_when_its_outcome_is_known_and_not_before() -> None:
    peer = server()
    peer.attach()
    peer.publish("orders", b"one")
    peer.read()
    peer.control(r.SessionFlush(confirmed=True))
    assert peer.said(r.SessionConfirmed) == [r.SessionConfirmed(())]
    (link,) = [each.link for each in peer.of(LinkAttached) if each.role is Role.RECEIVER]
    peer.engine.execute(UpdateDeliveries(link, [DeliveryNumber(0)], ACCEPTED, True))
    peer.control(r.SessionFlush(confirmed=True))
    assert peer.said(r.SessionConfirmed) == [r.SessionConfirmed(((0, 0),))]


def test_a_gap_over_what_is_complete_changes_nothing_of_that() -> None:
    peer = server()
    peer.attach()
    peer.command(r.ExecutionSync(), r.ExecutionSync())
    peer.read()
    peer.control(r.SessionGap(((0, 1),)))
    peer.control(r.SessionFlush(completed=True))
    assert peer.said(r.SessionCompleted)[-1] == r.SessionCompleted(((0, 1),))
    peer.command(r.ExchangeQuery("amq.direct"))
    assert [each.command_id for each in peer.said(r.ExecutionResult)] == [2]


def test_an_exception_names_the_command_its_class_and_code_and_says_why() -> None:
    peer = server()
    peer.attach()
    peer.command(r.ExecutionSync(), r.MessageCancel("nobody"))
    (told,) = peer.said(r.ExecutionException)
    assert (told.error_code, told.command_id) == (ErrorCode.NOT_FOUND, 1)
    assert (told.class_code, told.command_code) == (4, 8)
    assert (told.description or "").isascii()


def test_bodies_of_transfers_are_whole_whatever_their_frames() -> None:
    peer = Peer(server().engine)
    peer.attach()
    peer.transfer(bytes(10_000), r.DeliveryProperties(routing_key="orders"), frame_max=4096)
    (run,) = peer.of(DeliveriesReceived)
    assert run.deliveries[0].payload.endswith(bytes(10_000))


def test_frames_of_two_channels_may_be_interleaved() -> None:
    peer = server()
    peer.attach(b"a", channel=1)
    peer.attach(b"b", channel=2)
    octets = [
        assembly(
            COMMAND,
            channel,
            encode_command(r.MessageTransfer("", 0, 0)),
            4096,
            (write_header(r.DeliveryProperties(routing_key="orders"), None), bytes(9000)),
        )
        for channel in (1, 2)
    ]
    frames: list[list[bytes]] = [[], []]
    for mine, rest in zip(frames, octets, strict=True):
        left = rest
        while left:
            size = FRAME.unpack_from(left)[2]
            mine.append(left[:size])
            left = left[size:]
    peer.feed(b"".join(one + other for one, other in zip(*frames, strict=True)))
    assert sum(len(each.deliveries) for each in peer.of(DeliveriesReceived)) == 2
    assert not peer.said(Transfer)
