"""Channels and sessions: what a channel carries, with every control of class session."""

import pytest

from router.model.condition import FRAMING_ERROR
from router.model.events import ConnectionClosed, LinkDetached
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import CONTROLS, encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.message import write_header
from router.wire.v0_10.reply import DetachCode, ErrorCode
from router.wire.v0_10.server import On, ServerEngine
from tests.support.peer_0_10 import Peer, server

SESSION_CONTROLS = [spec.record for spec in CONTROLS if spec.class_code == 2]


def carrying(on: On) -> Peer:
    peer = server()
    if on is not On.NOTHING:
        peer.attach()
    if on is On.ENDED:
        peer.command(r.MessageCancel("none"))
    peer.read()
    return peer


def made(record: type) -> r.Control:
    if record in (r.SessionAttach, r.SessionDetach, r.SessionDetached, r.SessionAttached):
        named: r.Control = record(b"s")
        return named
    if record is r.SessionCommandPoint:
        return r.SessionCommandPoint(0, 0)
    plain: r.Control = record()
    return plain


ANSWERS: dict[tuple[On, type], list[r.Control]] = {
    (On.NOTHING, r.SessionAttach): [r.SessionAttached(b"s")],
    (On.NOTHING, r.SessionDetach): [r.SessionDetached(b"s", 0)],
    (On.NOTHING, r.SessionDetached): [],
    (On.SESSION, r.SessionAttach): [r.SessionAttached(b"s")],
    (On.SESSION, r.SessionDetach): [r.SessionDetached(b"s", 0)],
    (On.SESSION, r.SessionDetached): [],
    (On.ENDED, r.SessionAttach): [r.SessionAttached(b"s")],
    (On.ENDED, r.SessionDetach): [r.SessionDetached(b"s", 0)],
    (On.ENDED, r.SessionDetached): [],
    (On.SESSION, r.SessionRequestTimeout): [r.SessionTimeout(600)],
}


@pytest.mark.parametrize("on", On)
@pytest.mark.parametrize("record", SESSION_CONTROLS)
def test_every_control_is_answered_as_the_table_says(on: On, record: type) -> None:
    peer = carrying(on)
    peer.control(made(record))
    said = [each for _, each in peer.read()]
    assert not peer.of(ConnectionClosed)
    if (on, record) in ServerEngine.channel_steps or (on, record) in ANSWERS:
        assert said == ANSWERS[on, record]
    elif on is On.NOTHING:
        assert said == [r.SessionDetached(b"", DetachCode.NOT_ATTACHED)]
    elif on is On.ENDED:
        assert said == []
    else:
        assert not any(isinstance(each, r.SessionDetached) for each in said)


def test_a_command_for_a_channel_without_session_is_answered() -> None:
    peer = server()
    peer.command(r.ExecutionSync())
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"", DetachCode.NOT_ATTACHED)]


def test_a_second_session_on_a_channel_is_refused() -> None:
    peer = server()
    peer.attach(b"one")
    peer.control(r.SessionAttach(b"two"))
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"two", DetachCode.TRANSPORT_BUSY)]


def test_a_session_on_two_channels_is_refused() -> None:
    peer = server()
    peer.attach(b"one")
    peer.control(r.SessionAttach(b"one"), 2)
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"one", DetachCode.SESSION_BUSY)]


def test_an_exception_ends_the_session_and_no_more() -> None:
    peer = server()
    peer.attach(b"one")
    peer.attach(b"two", channel=2)
    peer.publish("orders", b"x")
    peer.command(r.MessageFlow("nothing", 0, 1))
    said = [each for _, each in peer.read()]
    (exception,) = [each for each in said if isinstance(each, r.ExecutionException)]
    assert exception.error_code == ErrorCode.NOT_FOUND
    assert (exception.command_id, exception.class_code, exception.command_code) == (1, 4, 10)
    assert said[-1] == r.SessionDetach(b"one")
    assert len(peer.of(LinkDetached)) == 1
    peer.command(r.ExecutionSync())  # behind our detach: dropped
    assert peer.read() == []
    peer.control(r.SessionDetached(b"one", 0))
    assert r.SessionAttached(b"three") in peer.attach(b"three")
    peer.command(r.ExecutionSync(), channel=2, sync=True)
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 0),))]


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("0601 0100 0000", ErrorCode.NOT_IMPLEMENTED),
        ("090e 0100 0000", ErrorCode.COMMAND_INVALID),
        ("0a09 0100 0000", ErrorCode.COMMAND_INVALID),
        ("0b01 0100 0000", ErrorCode.COMMAND_INVALID),
        ("0499 0100 0000", ErrorCode.COMMAND_INVALID),
        ("0402 0100 0100 00", ErrorCode.COMMAND_INVALID),
        ("0402 00", ErrorCode.COMMAND_INVALID),
        ("04", ErrorCode.COMMAND_INVALID),
    ],
)
def test_commands_that_are_none_end_the_session_by_their_code(head: str, code: ErrorCode) -> None:
    peer = server()
    peer.attach()
    octets = bytes.fromhex(head.replace(" ", ""))
    size = (12 + len(octets)).to_bytes(2, "big")
    peer.feed(b"\x0f\x01" + size + b"\0\1\0\1" + bytes(4) + octets)
    (exception,) = peer.said(r.ExecutionException)
    assert exception.error_code == code


def test_content_behind_a_command_that_has_none_is_refused() -> None:
    from router.wire.v0_10.codec import encode_command
    from router.wire.v0_10.framing import COMMAND, assembly

    peer = server()
    peer.attach()
    peer.feed(assembly(COMMAND, 1, encode_command(r.ExecutionSync()), 4096, (b"", b"x")))
    (exception,) = peer.said(r.ExecutionException)
    assert exception.error_code == ErrorCode.COMMAND_INVALID


def test_assemblies_of_all_channels_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.wire.v0_10.machine.GATHER_LIMIT_OCTETS", 2500)
    peer = server()
    for channel in (1, 2, 3):
        peer.attach(channel=channel, name=b"s%d" % channel)
    head = encode_command(r.MessageTransfer("", 0, 0))
    header = write_header(r.DeliveryProperties(routing_key="orders"), None)

    def begin(channel: int) -> bytes:
        """Transfers 1,200 octets in two frames, and keeps the second one back."""
        octets = assembly(COMMAND, channel, head, 1012, (header, bytes(1200)))
        peer.feed(octets[:-212])
        return octets[-212:]

    for _ in range(5):  # what is complete counts no more
        peer.feed(begin(1))
    begin(1)
    peer.control(r.SessionGap())  # nor what will not go on
    begin(1)
    begin(2)
    assert not peer.of(ConnectionClosed)
    begin(3)
    (closed,) = peer.of(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == FRAMING_ERROR
