"""Publishes that are read in runs become what they become frame by frame."""

import pytest

from router.model.commands import GrantCredit
from router.model.events import DeliveriesReceived, Event
from router.model.identity import DeliveryNumber
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9r1.framing import FRAMING, FrameType
from tests.support.draft_peer import DraftClientPeer, wire
from tests.wire.v0_9r1.test_content import made

COMMIT = m.TxCommit()
PLAIN = m.BasicPublish(routing_key="q")
MANDATORY = m.BasicPublish(routing_key="q", mandatory=True)


def opened() -> DraftClientPeer:
    """A client whose publishes to q have come before, in transactions."""
    peer = DraftClientPeer().open(1)
    peer.send(1, m.TxSelect())
    for method in (PLAIN, MANDATORY):
        peer.feed(peer.content(1, method, b"first") + frame(peer, COMMIT))
    link = peer.accept()
    peer.do(GrantCredit(link, 1000))
    peer.received()
    peer.take_events()
    return peer


def frame(peer: DraftClientPeer, method: m.Method, number: int = 1) -> bytes:
    return FRAMING.frame(FrameType.METHOD, number, peer.codec.encode(method))


def stories(peer: DraftClientPeer) -> dict[str, bytes]:
    """What a client may send, in octets."""
    one = peer.content(1, MANDATORY, b"one", Properties(message_id="1"))
    two = peer.content(1, PLAIN, b"two", Properties(headers={"n": "2"}))
    commit = frame(peer, COMMIT)
    publish = frame(peer, MANDATORY)
    header = FRAMING.frame(FrameType.HEADER, 1, made(b"abcdef").header)
    return {
        "each in a transaction": (one + commit + two + commit) * 3,
        "several in one": one + two + one + commit + two + commit,
        "without a body": peer.content(1, PLAIN, b"") + one + commit,
        "a body in two frames": publish
        + header
        + FRAMING.frame(FrameType.BODY, 1, b"abc")
        + FRAMING.frame(FrameType.BODY, 1, b"def")
        + one
        + commit,
        "children": one + publish + wire(1, made(b"x", made(b"y"))) + two + commit,
        "a header too many": one + publish + header + header,
        "a body too long": publish + header + FRAMING.frame(FrameType.BODY, 1, b"abcdefg") + one,
        "a body that does not end": one + (publish + header)[:-1] + b"\x00" + one,
        "a body of another channel": publish + header + FRAMING.frame(FrameType.BODY, 2, b"abcdef"),
        "a channel that is not open": one + frame(peer, MANDATORY, 2) + one,
        "refused, and what follows": one
        + peer.content(1, m.BasicPublish(routing_key="q", immediate=True), b"x")
        + one
        + commit,
        "a cycle": b"".join(bytes((each[0], 7)) + each[2:] for each in (publish, header))
        + FRAMING.frame(FrameType.BODY, 1, b"abcdef")
        + commit,
    }


def told(events: list[Event]) -> list[object]:
    """Gives events, deliveries one by one."""
    found: list[object] = []
    for event in events:
        if isinstance(event, DeliveriesReceived):
            found += [(event.link, each) for each in event.deliveries]
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("name", list(stories(DraftClientPeer())))
def test_a_run_is_what_its_frames_are(name: str) -> None:
    whole, by_octet = opened(), opened()
    story = stories(whole)[name]
    whole.feed(story)
    for at in range(len(story)):
        by_octet.feed(story[at : at + 1])
    assert told(whole.take_events()) == told(by_octet.take_events())
    assert whole.octets() == by_octet.octets()


def test_what_was_published_in_a_run_has_its_number_and_body() -> None:
    peer = opened()
    peer.feed(stories(peer)["each in a transaction"])
    deliveries = [
        each
        for event in peer.take_events()
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]
    assert [each.number for each in deliveries] == [DeliveryNumber(n) for n in range(3, 9)]
    assert [each.payload[-3:] for each in deliveries] == [b"one", b"two"] * 3


def test_a_run_ends_where_a_method_comes_that_is_no_publish() -> None:
    peer = opened()
    one = peer.content(1, MANDATORY, b"one")
    run = one + one
    octets = run + frame(peer, COMMIT)
    assert peer.engine.take_run(octets, 0, len(octets)) == len(run)
    assert peer.engine.take_run(octets, len(run), len(octets)) == len(run)
