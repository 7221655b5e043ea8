"""Transfers of three frames, read in one go, mean what they mean frame by frame."""

import pytest

from router.model.events import DeliveriesReceived, LinkAttached
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.message import write_header
from tests.support.peer_0_10 import Peer, server


def transfers(count: int, key: str = "orders", body: bytes = b"body") -> bytes:
    header = write_header(r.DeliveryProperties(routing_key=key), None)
    head = encode_command(r.MessageTransfer("shop", 0, 0))
    return b"".join(
        assembly(COMMAND, 1, head, 65535, (header, body + b"%d" % at)) for at in range(count)
    )


def payloads(peer: Peer) -> list[bytes]:
    return [each.payload for event in peer.of(DeliveriesReceived) for each in event.deliveries]


@pytest.mark.parametrize("chunk", [1, 7, 40, 1 << 20])
def test_octets_may_be_cut_anywhere(chunk: int) -> None:
    octets = transfers(5)
    peer = server()
    peer.attach()
    for at in range(0, len(octets), chunk):
        peer.feed(octets[at : at + chunk])
    found = payloads(peer)
    assert [each[-1:] for each in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert len({each[:-1] for each in found}) == 1


def test_a_message_without_body_and_one_cut_into_frames_are_taken_between_others() -> None:
    header = write_header(r.DeliveryProperties(routing_key="orders"), None)
    head = encode_command(r.MessageTransfer("shop", 0, 0))
    peer = server()
    peer.attach()
    peer.feed(
        transfers(1)
        + assembly(COMMAND, 1, head, 65535, (header, b""))
        + assembly(COMMAND, 1, head, 4096, (header, bytes(9000)))
        + transfers(1)
    )
    sizes = [len(each) for each in payloads(peer)]
    assert sizes == [sizes[0], sizes[0] - 5, sizes[0] - 5 + 9000, sizes[0]]


def test_what_a_header_means_changes_with_the_exchange() -> None:
    peer = server()
    peer.attach()
    peer.feed(transfers(1))
    peer.command(r.ExchangeDeclare(exchange="shop", type="fanout"))
    peer.feed(transfers(1))
    peer.command(r.ExchangeDelete("shop"))
    peer.feed(transfers(1))
    targets = [event.target for event in peer.of(LinkAttached)]
    assert [getattr(each, "address", None) for each in targets] == ["shop/orders", "shop"]
    links = [event.link for event in peer.of(DeliveriesReceived)]
    assert links[0] == links[2] != links[1]
