"""Deliveries with keys between routers go and come in runs, as one at a time would."""

from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest

from router.errors import DecodeError
from router.model.commands import SendDeliveries
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import DeliveriesReceived
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag, LinkId
from router.model.terminus import Role
from router.wire.v1_0 import bulk
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import frame
from router.wire.v1_0.head import (
    KEY_ANNOTATION,
    KEY_LEAD,
    KeyMemory,
    fill,
    place_of_key,
    rewritten,
)
from router.wire.v1_0.incoming import Receiving
from router.wire.v1_0.outgoing import FRAMES_A_TURN, RUN_A_TURN, Outgoing
from router.wire.v1_0.performatives import Transfer, encode_transfer
from router.wire.v1_0.sections import rewrite
from tests.support.peer import Peer, settings

KEY = DeliveryKey(bytes(range(16)))
BODY = b"\x00\x53\x75\xa0\x04body"

HEADERS = {
    "none": b"",
    "empty": b"\x00\x53\x70\x45",
    "durable": b"\x00\x53\x70\xc0\x02\x01\x41",
    "ttl": b"\x00\x53\x70\xc0\x05\x03\x40\x40\x52\x09",
    "wide": b"\x00\x53\x70\xd0\0\0\0\x05\0\0\0\x01\x41",
    "wide descriptor": b"\x00\x80\0\0\0\0\0\0\0\x70\x45",
    "no count": b"\x00\x53\x70\xc0\x00",
    "of another type": b"\x00\x53\x70\xa0\x01x",
    "too long": b"\x00\x53\x70\xc0\xf0\x01\x41",
    "a field that is none": b"\x00\x53\x70\xc0\x02\x01\xff",
}
ANNOTATIONS = {
    "none": b"",
    "key": KEY_LEAD + KEY,
    "short key": KEY_LEAD[:3] + b"\xc1\x18\x02" + KEY_LEAD[6:-1] + b"\x03abc",
    "other": b"\x00\x53\x71\xc1\x07\x02\xa3\x01x\xa1\x01y",
    "empty": b"\x00\x53\x71\xc1\x01\x00",
}
BODIES = {
    "data": BODY,
    "message annotations": b"\x00\x53\x72\xc1\x01\x00" + BODY,
    "value": b"\x00\x53\x77\x40",
    "none": b"",
    "cut": b"\x00\x53\x75",
    "no section": b"\x00\x53\x79\xa0\x00",
    "other descriptor": b"\x00\xa3\x0eamqp:data:list\xa0\x00",
    "octets": bytes(range(255, 200, -1)),
}
HEADS = [
    pytest.param(header + annotations, id=f"header {one}, annotations {other}")
    for one, header in HEADERS.items()
    for other, annotations in ANNOTATIONS.items()
]


def result(of: Callable[[], bytes]) -> bytes | str:
    """What is returned, or why nothing is."""
    try:
        return of()
    except DecodeError as error:
        return error.rule


@pytest.mark.parametrize("head", HEADS)
def test_a_key_is_put_where_a_changed_head_has_it(head: bytes) -> None:
    for body in BODIES.values():
        payload = head + body
        delivery = OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"t"), payload, key=KEY)

        def changed(payload: bytes = payload) -> bytes:
            return rewrite(payload, delivery_annotations={KEY_ANNOTATION: KEY})

        assert result(lambda: rewritten(delivery.payload, delivery, True)) == result(changed)  # noqa: B023  called here
        at = place_of_key(payload)
        assert at < 0 or changed() == payload[:at] + KEY_LEAD + KEY + payload[at:]


def test_a_usual_message_is_not_taken_apart_for_its_key() -> None:
    for header in ("none", "empty", "durable", "ttl"):
        delivery = OutgoingDelivery(
            DeliveryNumber(1), DeliveryTag(b"t"), HEADERS[header] + BODY, key=KEY
        )
        with patch("router.wire.v1_0.head.rewrite", None):
            assert rewritten(delivery.payload, delivery, True).endswith(KEY_LEAD + KEY + BODY)


# --- sending --------------------------------------------------------------------------------------


FIRST = 300
"""Of delivery-ids: those below 256 are not written in runs."""


def neighbor(links: int = 1, *, window: int = 1000) -> tuple[Peer, list[LinkId]]:
    """A trusted router that receives on so many links."""
    engine = Engine10(settings(peer_is_trusted_router=True), initial_id=FIRST)
    peer = Peer(engine)
    peer.greet(properties={"product": "router"})
    peer.begin()
    found = []
    for handle in range(links):
        peer.attach(Role.RECEIVER, name=f"{handle}", handle=handle)
        found.append(peer.answer())
        peer.flow(
            next_incoming_id=FIRST,
            incoming_window=window,
            handle=handle,
            link_credit=1000,
            delivery_count=FIRST,
        )
        peer.take_events()
    return peer, found


def keyed(*payloads: bytes, **changes: Any) -> list[OutgoingDelivery]:
    return [
        OutgoingDelivery(
            DeliveryNumber(number), DeliveryTag(b"%04d" % number), payload, key=KEY, **changes
        )
        for number, payload in enumerate(payloads)
    ]


EVERYTHING = [
    header + annotations + body
    for header in HEADERS.values()
    for annotations in ANNOTATIONS.values()
    for body in BODIES.values()
]


@pytest.mark.parametrize("window", [0, 1000])
def test_runs_with_keys_are_written_as_single_transfers_would_be(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play() -> tuple[bytes, object]:
        peer, (link,) = neighbor(window=window)
        run = keyed(*EVERYTHING, settled=False)
        run[5].key = None
        run[9].key = DeliveryKey(b"short")
        run[17].hops = ("dc1",)
        run[23].settled = True
        peer.engine.execute(SendDeliveries(link, run))
        peer.flow(next_incoming_id=300, incoming_window=10_000)
        octets = peer.take_octets()
        state = peer.engine._endpoints.live(link)
        assert state is not None
        return octets, (state.state.payload_octets, state.state.deliveries)

    compiled = play()
    monkeypatch.setattr(bulk, "shortcuts", None)
    assert play() == compiled
    monkeypatch.setattr(Outgoing, "_send_common", lambda self, link, deliveries, start: 0)
    assert play() == compiled


@pytest.mark.parametrize("window", [0, 1000])
def test_usual_deliveries_with_keys_are_sent_in_runs(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, (link,) = neighbor(window=window)
    monkeypatch.setattr(Outgoing, "_send_first", None)
    usual = [HEADERS[each] + BODY for each in ("none", "empty", "durable", "ttl")]
    peer.engine.execute(SendDeliveries(link, keyed(*usual)))
    peer.flow(next_incoming_id=300, incoming_window=1000)
    assert [each.payload for each in peer.take_frames()] == [
        payload[: -len(BODY)] + KEY_LEAD + KEY + BODY for payload in usual
    ]


def test_waiting_links_send_runs_by_turns() -> None:
    peer, links = neighbor(2, window=0)
    for link in links:
        peer.engine.execute(SendDeliveries(link, keyed(*[BODY] * 100)))
    peer.expect_nothing()
    peer.flow(next_incoming_id=300, incoming_window=150)
    transfers = [each.performative for each in peer.take_frames()]
    handles = [each.handle for each in transfers if isinstance(each, Transfer)]
    turn = RUN_A_TURN
    assert handles == [0] * turn + [1] * turn + [0] * (150 - 2 * turn)
    peer.flow(next_incoming_id=450, incoming_window=1000)
    assert len(peer.take_frames()) == 50
    assert peer.engine._endpoints.waiting_octets == 0


def test_a_run_has_no_more_octets_than_a_turn_of_full_frames() -> None:
    peer, links = neighbor(2, window=0)
    full = BODY[:3] + b"\xb0\0\0\xe0\0" + bytes(0xE000)
    for link in links:
        peer.engine.execute(SendDeliveries(link, keyed(*[full] * 20)))
    peer.flow(next_incoming_id=300, incoming_window=4 * FRAMES_A_TURN)
    transfers = [each.performative for each in peer.take_frames()]
    handles = [each.handle for each in transfers if isinstance(each, Transfer)]
    most = max(len(list(run)) for run in _runs(handles))
    assert most <= 2 * FRAMES_A_TURN
    assert set(handles) == {0, 1}


def _runs(handles: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for handle in handles:
        if not runs or runs[-1][0] != handle:
            runs.append([])
        runs[-1].append(handle)
    return runs


# --- receiving ------------------------------------------------------------------------------------


def sender(links: int = 1) -> tuple[Peer, list[LinkId]]:
    """A trusted router that sends on so many links."""
    peer = Peer(peer_is_trusted_router=True)
    peer.greet(properties={"product": "router"})
    peer.begin()
    found = []
    for handle in range(links):
        peer.attach(name=f"{handle}", handle=handle)
        found.append(peer.answer(10_000))
        peer.take_events()
    return peer, found


def one(delivery_id: int, payload: bytes, handle: int = 0) -> bytes:
    """A delivery in one frame."""
    return frame(0, encode_transfer(handle, delivery_id, b"%d" % delivery_id, 0, False), payload)


def test_deliveries_with_keys_are_read_as_one_at_a_time_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = list(chain.from_iterable((each, each, EVERYTHING[0]) for each in EVERYTHING))

    def play() -> list[ReceivedDelivery]:
        peer, _ = sender()
        for number, payload in enumerate(again, 300):
            peer.transfer(number, payload)
            peer.take_octets()  # a flow renews the window
        return [
            each
            for event in peer.take_events()
            if isinstance(event, DeliveriesReceived)
            for each in event.deliveries
        ]

    compiled = play()
    assert len(compiled) == len(again)
    monkeypatch.setattr(bulk, "shortcuts", None)
    assert play() == compiled
    for delivery, payload in zip(compiled, again, strict=True):
        alone = ReceivedDelivery(delivery.number, delivery.tag, payload)
        alone.settles_second = delivery.settles_second
        fill(alone, is_anonymous=False, reads_annotations=True)
        assert alone == delivery


@pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")
def test_a_header_and_what_annotates_a_key_are_decoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled: list[bytes] = []
    fill_one = KeyMemory.fill

    def counted(memory: KeyMemory, delivery: ReceivedDelivery) -> None:
        filled.append(delivery.payload)
        fill_one(memory, delivery)

    monkeypatch.setattr(KeyMemory, "fill", counted)
    peer, _ = sender()
    payloads = [HEADERS[each] + KEY_LEAD + KEY + BODY for each in ("none", "ttl")]
    run = [payloads[0]] * 4 + [payloads[1]] * 4
    peer.send_octets(one(299, BODY))  # its shape is learned
    peer.take_events()
    peer.send_octets(b"".join(one(300 + at, each) for at, each in enumerate(run)))
    (event,) = [each for each in peer.take_events() if isinstance(each, DeliveriesReceived)]
    assert [each.ttl_milliseconds for each in event.deliveries] == [None] * 4 + [9] * 4
    assert {each.key for each in event.deliveries} == {KEY}
    assert filled == [payloads[1]]


def test_each_links_run_is_read_at_once_though_anothers_was_before_it() -> None:
    peer, _ = sender(2)
    for number, handle in ((300, 0), (301, 1)):  # their shapes are learned
        peer.send_octets(one(number, BODY, handle))
    peer.take_events()
    octets = b"".join(one(number, BODY, number // 10 % 2) for number in range(302, 342))
    with patch.object(Receiving, "take", None):
        peer.send_octets(octets)
    events = [each for each in peer.take_events() if isinstance(each, DeliveriesReceived)]
    assert sum(len(each.deliveries) for each in events) == 40
