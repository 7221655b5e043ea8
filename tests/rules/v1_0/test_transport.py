"""Rules of the transport (part 2) that no other test shows: a scripted peer against the engine."""

from typing import Any

import pytest

from router.model.commands import (
    AbortDelivery,
    AttachLink,
    CloseConnection,
    GrantCredit,
    SendDeliveries,
)
from router.model.condition import (
    CONNECTION_REDIRECT,
    DETACH_FORCED,
    ILLEGAL_STATE,
    UNATTACHED_HANDLE,
    Condition,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.wire.mechanisms import MechanismClient
from router.wire.v1_0.connection import CLOSE_SECONDS
from router.wire.v1_0.frames import AMQP_HEADER, SASL, SASL_HEADER, frame
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
    encode,
)
from tests.support.peer import Peer, attached, begun, opened

BEGIN = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
EMPTY = frame(0, b"")


def own(link: int, role: Role) -> AttachLink:
    """An attach of our own."""
    return AttachLink(
        link=LinkId(link),
        name=LinkName(f"own-{link}"),
        role=role,
        source=Source(address="a"),
        target=Target(address="b"),
    )


def delivery(number: int, payload: bytes = b"x") -> OutgoingDelivery:
    return OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"%d" % number), payload)


# --- connections (2.4, 2.7.1, 2.7.9) --------------------------------------------------------------


@pytest.mark.parametrize(
    "first", [BEGIN, Attach(name="l", handle=0, role=Role.SENDER), End(), Detach(0)]
)
def test_a_first_frame_that_is_no_open_closes_the_connection(first: Any) -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(first)
    peer.expect_octets(AMQP_HEADER)
    _, close = peer.expect(Open, Close)
    assert close.error.name == ILLEGAL_STATE


def test_our_first_frame_is_the_open() -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer"), BEGIN)
    peer.expect_octets(AMQP_HEADER)
    peer.expect(Open, Begin)


def test_nothing_is_written_behind_a_close() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10)
    peer.engine.execute(CloseConnection(Condition(DETACH_FORCED)))
    peer.expect(Close)
    peer.engine.execute(SendDeliveries(LinkId(1), [delivery(1)]))
    peer.engine.execute(own(9, Role.SENDER))
    peer.flow(handle=0, link_credit=20, echo=True)
    peer.wait(CLOSE_SECONDS - 0.1)
    peer.expect_nothing()


def test_no_empty_frame_follows_a_close() -> None:
    peer = Peer(idle_seconds=0.0)
    peer.greet(idle_time_out=1000)
    peer.wait(1.0)
    assert peer.take_octets() == EMPTY
    peer.engine.execute(CloseConnection())
    peer.expect(Close)
    peer.wait(CLOSE_SECONDS - 0.1)
    peer.expect_nothing()


def test_empty_frames_are_taken_before_the_open_and_ours_go_out_on_channel_0() -> None:
    peer = Peer(idle_seconds=0.0)
    peer.send_octets(AMQP_HEADER + EMPTY + frame(0, b""))
    peer.send(Open(container_id="peer", idle_time_out=1000, channel_max=7))
    peer.take_octets()
    peer.wait(1.0)
    assert peer.take_octets() == EMPTY


@pytest.mark.parametrize("channel", [0, 3])
def test_a_close_is_taken_on_any_channel_and_answered_on_channel_0(channel: int) -> None:
    peer = opened(channel_max=3)
    peer.send(Close(), channel=channel)
    peer.expect_octets(frame(0, encode(Close())))


def test_frames_of_512_octets_are_taken_however_small_the_limit() -> None:
    peer = attached(max_frame_octets=512)
    fields = encode(Transfer(0, 0, b"0", 0, False))
    payload = b"\x00\x53\x75\xb0" + (512 - 8 - len(fields) - 8).to_bytes(4, "big")
    payload += bytes(512 - 8 - len(fields) - len(payload))
    octets = frame(0, fields, payload)
    assert len(octets) == 512
    peer.send_octets(octets)
    assert peer.take_event(DeliveriesReceived).deliveries[0].payload == payload


def test_an_open_without_a_host_name_is_for_the_default_host() -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer", hostname=None))
    assert peer.take_event(ConnectionOpened).hostname is None


def test_an_open_names_the_host_that_the_sasl_layer_has_named() -> None:
    peer = Peer(
        is_server=False,
        hostname="vhost",
        sasl_client=lambda: MechanismClient(user="app", password="secret"),
    )
    peer.expect_octets(SASL_HEADER)
    peer.send_octets(SASL_HEADER)
    peer.send(SaslMechanisms(("PLAIN",)), kind=SASL)
    (init,) = peer.expect(SaslInit)
    assert init.hostname == "vhost"
    peer.send(SaslOutcome(SaslCode.OK), kind=SASL)
    peer.send_octets(AMQP_HEADER)
    peer.expect_octets(AMQP_HEADER)
    assert peer.expect_one(Open).hostname == "vhost"


@pytest.mark.parametrize("locales", [None, ("de-DE",), ("de-DE", "fr-FR")])
def test_texts_are_in_en_us_whatever_a_peer_would_like(locales: tuple[str, ...] | None) -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="peer", incoming_locales=locales or ()))
    peer.expect_octets(AMQP_HEADER)
    assert peer.expect_one(Open).outgoing_locales in {(), ("en-US",)}
    peer.send(BEGIN, channel=2)
    peer.take_octets()
    peer.flow(channel=9)
    error = peer.expect_one(Close).error
    assert error is not None
    assert error.description is not None
    assert "session" in error.description


# --- sessions (2.5.6, 2.7.2) ----------------------------------------------------------------------


def test_a_flow_brings_the_counts_of_the_session_up_to_date() -> None:
    peer = attached(credit=10)
    peer.transfer(0)
    (state,) = (each.owner.state for each in peer.engine.carried.sessions.values())
    assert (state.next_incoming_id, state.remote_outgoing_window) == (1, 999)
    peer.flow(next_outgoing_id=7, outgoing_window=50, echo=True)
    assert (state.next_incoming_id, state.remote_outgoing_window) == (7, 50)
    assert peer.expect_one(Flow).next_incoming_id == 7


def test_our_flows_acknowledge_what_has_come_and_wait_for_the_peers_begin() -> None:
    peer = opened()
    peer.engine.execute(own(1, Role.RECEIVER))
    peer.engine.execute(GrantCredit(LinkId(1), 10))
    begin, attach = peer.expect(Begin, Attach)
    assert begin.remote_channel is None
    peer.send(Begin(remote_channel=0, next_outgoing_id=5, incoming_window=9, outgoing_window=9))
    peer.expect_nothing()
    peer.attach(Role.SENDER, name="own-1")
    flow = peer.expect_one(Flow)
    assert flow.next_incoming_id == 5
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (attach.handle, 0, 10)


# --- links (2.6, 2.7.3) ---------------------------------------------------------------------------


def test_a_link_that_ended_with_an_error_may_be_resumed_at_once_with_a_map() -> None:
    peer = attached(credit=0)
    peer.transfer(0)
    peer.expect(Detach)
    peer.take_events()
    peer.attach(handle=1, unsettled={b"0": None})
    assert peer.take_event(LinkAttached).unsettled == {b"0": None}


def test_an_initial_delivery_count_of_a_receiver_is_ignored() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER, initial_delivery_count=7)
    peer.answer()
    peer.flow(handle=0, link_credit=1, echo=True)
    assert peer.expect_one(Flow).delivery_count == 0


# --- flows (2.7.4) --------------------------------------------------------------------------------


def test_a_flow_for_a_handle_that_no_link_has_ends_the_session() -> None:
    peer = begun()
    peer.flow(handle=3, link_credit=1)
    error = peer.expect_one(End).error
    assert error is not None
    assert error.name == UNATTACHED_HANDLE


@pytest.mark.parametrize("field", ["delivery_count", "link_credit", "drain"])
def test_what_a_flow_says_of_a_link_that_it_does_not_name_ends_the_session(field: str) -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(**{field: 1 if field != "drain" else True})
    assert peer.expect_one(End).error is not None


@pytest.mark.parametrize("fields", [{"available": 3}, {"properties": {"x": 1}}])
def test_what_changes_nothing_in_a_flow_without_a_link_is_passed_over(
    fields: dict[str, Any],
) -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(**fields)
    peer.expect_nothing()


def test_our_flow_of_a_session_says_nothing_of_links() -> None:
    peer = attached(session_window_frames=4, credit=100)
    peer.transfer(0)
    peer.transfer(1)
    flow = peer.expect_one(Flow)
    assert flow.handle is None
    told = (flow.delivery_count, flow.link_credit, flow.available, flow.properties)
    assert told == (None, None, None, None)
    assert not flow.drain
    assert not flow.echo


def test_our_flows_tell_the_delivery_count_of_either_end() -> None:
    peer = attached(credit=5)
    peer.transfer(0)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    assert peer.expect_one(Flow).delivery_count == 1
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=5)
    peer.engine.execute(SendDeliveries(LinkId(1), [delivery(1), delivery(2)]))
    peer.expect(Transfer, Transfer)
    peer.flow(handle=0, link_credit=5, echo=True)
    assert peer.expect_one(Flow).delivery_count == 2


# --- transfers (2.7.5) ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_what_names_a_delivery_is_on_its_first_transfer(count: int) -> None:
    peer = Peer()
    peer.greet(max_frame_size=512)
    peer.begin()
    peer.attach(Role.RECEIVER)
    peer.answer()
    peer.flow(handle=0, link_credit=5)
    payload = b"x" * (400 * count)
    peer.engine.execute(SendDeliveries(LinkId(1), [delivery(1, payload)]))
    first, *others = peer.expect(*[Transfer] * count)
    assert (first.delivery_id, first.delivery_tag, first.message_format) == (0, b"1", 0)
    assert [each.more for each in (first, *others)] == [True] * (count - 1) + [False]


@pytest.mark.parametrize("delivery_id", [0, 300])
def test_a_message_format_that_is_left_out_is_0_and_so_is_settled_false(delivery_id: int) -> None:
    peer = attached()
    peer.send(Transfer(handle=0, delivery_id=delivery_id, delivery_tag=b"t"), payload=b"x")
    (received,) = peer.take_event(DeliveriesReceived).deliveries
    assert (received.message_format, received.settled) == (0, False)


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_aborted_transfer_is_the_last_whatever_its_more_says(more: bool, is_first: bool) -> None:
    peer = attached()
    if not is_first:
        peer.transfer(0, b"begun", more=True)
        peer.take_events()
    number = 0 if is_first else None
    peer.transfer(number, b"void", aborted=True, more=more)
    *told, aborted = peer.take_events()
    assert aborted == DeliveryAborted(LinkId(1), DeliveryNumber(0))
    received = [each for event in told for each in getattr(event, "deliveries", ())]
    assert not any(each.payload for each in received)
    peer.transfer(1, b"next")
    assert peer.take_event(DeliveriesReceived).deliveries[0].payload == b"next"


# --- dispositions, redirects (2.7.6, 2.8.16) ------------------------------------------------------


def test_a_disposition_touches_only_links_of_its_role() -> None:
    peer = attached()
    peer.attach(Role.RECEIVER, name="back", handle=1)
    back = peer.answer()
    peer.flow(handle=1, link_credit=5)
    peer.transfer(0)
    peer.engine.execute(SendDeliveries(back, [delivery(1)]))
    (sent,) = peer.expect(Transfer)
    peer.take_events()
    assert sent.delivery_id == 0, "both directions have a delivery 0"
    peer.send(Disposition(Role.SENDER, 0, settled=True))
    assert peer.take_event(DeliveriesUpdated).link == LinkId(1)
    peer.send(Disposition(Role.RECEIVER, 0, settled=True, state=ACCEPTED))
    assert peer.take_event(DeliveriesUpdated).link == back


def test_a_redirect_ends_the_connection_with_its_condition() -> None:
    peer = Peer(is_server=False)
    peer.greet()
    redirect = Condition(CONNECTION_REDIRECT, "elsewhere", {"hostname": "h", "port": 5672})
    peer.send(Close(redirect))
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(redirect, by_peer=True)
    assert peer.engine.finished


def test_our_transfer_that_aborts_has_nothing_behind_it() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=5)
    begun_delivery = delivery(1)
    begun_delivery.more = True
    peer.engine.execute(SendDeliveries(LinkId(1), [begun_delivery]))
    peer.engine.execute(AbortDelivery(LinkId(1), DeliveryNumber(1)))
    first, last = peer.expect(Transfer, Transfer)
    assert (first.more, first.aborted) == (True, False)
    assert (last.more, last.aborted) == (False, True)
