"""Content headers that nobody could read, and such with more than one word of flags (§4.2.6.1)."""

from typing import Any

import pytest

from router.model.commands import GrantCredit
from router.model.events import ConnectionClosed, DeliveriesReceived
from router.model.identity import LinkId
from router.model.terminus import Role
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_receiver import CONSUMER_TAG
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.framing import BODY, HEADER, METHOD
from router.wire.v0_9r1 import methods as d
from tests.support.basic_peer import BrokerPeer, ClientPeer, attach
from tests.support.draft_peer import DraftBrokerPeer, DraftClientPeer

TYPED = b"\x04text"

BROKEN = {
    "a property ends beyond its frame": b"\x80\x00\x09text",
    "octets follow the last property": b"\x80\x00" + TYPED + b"\x00",
    "no property has this flag": b"\x80\x02" + TYPED,
    "nor any in a second word": b"\x80\x01\x80\x00" + TYPED + TYPED,
    "the words of flags do not end": b"\x00\x01",
    "a table ends beyond the octets": b"\x20\x00\x00\x00\x00\x09\x01nS",
    "a value has an unknown letter": b"\x20\x00\x00\x00\x00\x03\x01nZ",
    "a timestamp has three octets": b"\x00\x40\x00\x00\x00",
}

SOUND = {
    "one more word": b"\x80\x01\x00\x00" + TYPED,
    "two more words": b"\x80\x01\x00\x01\x00\x00" + TYPED,
    "none": b"\x80\x00" + TYPED,
}

CLIENTS: dict[str, type[ClientPeer]] = {"0-9-1": ClientPeer, "0.9r1": DraftClientPeer}

PUBLISH = m.BasicPublish(routing_key="q")


def framed(peer: Any, method: m.Method, properties: bytes, body: bytes = b"x") -> bytes:
    """Frames of a method whose content has properties as told, flags first."""
    class_id = peer.codec.spec_of(m.BasicPublish).class_id
    header = class_id.to_bytes(2, "big") + b"\0\0" + len(body).to_bytes(8, "big") + properties
    frame = peer.framing.frame
    frames: list[bytes] = [frame(METHOD, 1, peer.codec.encode(method)), frame(HEADER, 1, header)]
    return b"".join([*frames, frame(BODY, 1, body)])


def publisher(peer: ClientPeer) -> ClientPeer:
    """A client that may publish to ``q``, which has credit."""
    peer.open(1).publish(1, b"first")
    peer.do(GrantCredit(peer.accept(), 100))
    peer.take_events()
    return peer


def payloads(peer: Any) -> list[bytes]:
    runs = [event for event in peer.take_events() if isinstance(event, DeliveriesReceived)]
    return [delivery.payload for run in runs for delivery in run.deliveries]


@pytest.mark.parametrize("protocol", CLIENTS)
@pytest.mark.parametrize("properties", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_publish_whose_properties_cannot_be_read_ends_the_connection(
    protocol: str, properties: bytes, before: int
) -> None:
    peer = publisher(CLIENTS[protocol]())
    good = framed(peer, PUBLISH, b"\x80\x00" + TYPED)
    peer.feed(before * good + framed(peer, PUBLISH, properties) + good)
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 502
    spec = peer.codec.spec_of(m.BasicPublish)
    assert (close.class_id, close.method_id) == (spec.class_id, spec.method_id)
    assert isinstance(peer.events[-1], ConnectionClosed)
    assert len(payloads(peer)) == before


@pytest.mark.parametrize("properties", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_not_confirmed_by_the_clients_own_queue(properties: bytes) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="q", exclusive=True), m.ConfirmSelect())
    peer.feed(framed(peer, PUBLISH, properties))
    peer.accept()
    assert not any(isinstance(one, m.BasicAck) for one in peer.methods())


@pytest.mark.parametrize("protocol", CLIENTS)
@pytest.mark.parametrize("properties", SOUND.values(), ids=SOUND)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_flags_that_go_on_in_another_word_are_read_and_handed_on_in_one(
    protocol: str, properties: bytes, before: int
) -> None:
    peer = publisher(CLIENTS[protocol]())
    good = framed(peer, PUBLISH, b"\x80\x00" + TYPED)
    peer.feed(before * good + framed(peer, PUBLISH, properties) + good)
    assert peer.methods() == []
    found = payloads(peer)
    assert len(found) == before + 2
    assert len(set(found)) == 1
    layout = contents.content_layout(found[0])
    assert contents.properties_of(found[0], layout) == Properties(content_type="text")
    assert found[0][layout.body_start :] == b"x"


def consuming() -> tuple[BrokerPeer, list[m.Method]]:
    """A broker of 0-9-1 with a consumer, and two deliveries to it."""
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
    peer.do(GrantCredit(LinkId(1), 10))
    peer.answer(1, m.BasicQosOk(), m.BasicConsumeOk(CONSUMER_TAG))
    return peer, [m.BasicDeliver(consumer_tag=CONSUMER_TAG, delivery_tag=n) for n in (1, 2)]


def consuming_draft() -> tuple[BrokerPeer, list[Any]]:
    """The same of the draft."""
    peer = DraftBrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"), GrantCredit(LinkId(1), 10))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"), d.BasicConsumeOk(77))
    return peer, [d.BasicDeliver(consumer_tag=77, delivery_tag=n) for n in (1, 2)]


@pytest.mark.parametrize("begin", [consuming, consuming_draft])
@pytest.mark.parametrize("properties", SOUND.values(), ids=SOUND)
def test_so_are_those_of_what_a_broker_delivers(begin: Any, properties: bytes) -> None:
    peer, methods = begin()
    peer.take_events()
    for method in methods:
        peer.feed(framed(peer, method, properties))
    found = payloads(peer)
    assert len(found) == len(methods)
    for content in found:
        layout = contents.content_layout(content)
        assert contents.properties_of(content, layout) == Properties(content_type="text")
