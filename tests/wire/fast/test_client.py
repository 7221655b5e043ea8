"""Links of the core's to a server: opening, credit, outcomes, faults (RFC 006, client's side)."""

import pytest

from router.model import condition as conditions
from router.model.commands import (
    AttachLink,
    CloseConnection,
    DetachLink,
    GrantCredit,
    HoldWindow,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import NOT_FOUND, UNAUTHORIZED_ACCESS, Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Coordinator, Role, SenderSettleMode, Source, Target
from router.wire.fast import commands as c
from router.wire.fast.framing import START, frame
from router.wire.fast.handle import Service
from router.wire.fast.names import Destination, destination
from router.wire.fast.server_receiver import LEAST_PREFETCH
from router.wire.fast.server_sender import WINDOW
from router.wire.holding import HOLD_SECONDS
from router.wire.mechanisms import MechanismClient
from tests.support.fast_peer import Server, message, outgoing

# --- opening --------------------------------------------------------------------------------------


def test_the_handshake_is_that_of_the_document() -> None:
    """§3.2.10."""
    server = Server(hostname="/test")
    assert server.octets() == START
    server.send(c.ConnectionChallenge(1, "PLAIN ANONYMOUS"))
    assert server.read() == [c.ConnectionResponse("ANONYMOUS", {})]
    server.send(c.ConnectionTune(8192, 100, 0, 30))
    assert server.read() == [
        c.ConnectionTune(8192, 100, 256, 60),
        c.ConnectionOpen(1, "/test", "router"),
    ]
    (opened,) = server.send(c.ConnectionReply(1, 200))
    assert isinstance(opened, ConnectionOpened)


def test_a_server_without_anonymous_clients_gets_the_usual_guest() -> None:
    server = Server()
    server.octets()
    server.send(c.ConnectionChallenge(1, "PLAIN"))
    assert server.read() == [
        c.ConnectionResponse("PLAIN", {"LOGIN": b"guest", "PASSWORD": b"guest"})
    ]


def test_a_login_is_a_table_of_login_and_password() -> None:
    """0.7d0."""
    server = Server(sasl_client=MechanismClient(user="app", password="sesame"))
    server.octets()
    server.send(c.ConnectionChallenge(1, "PLAIN"))
    assert server.read() == [
        c.ConnectionResponse("PLAIN", {"LOGIN": b"app", "PASSWORD": b"sesame"})
    ]
    server.engine.receive_eof(1.0)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (c.ConnectionChallenge(2, "ANONYMOUS"), conditions.NOT_IMPLEMENTED),
        (c.ConnectionChallenge(1, "TLS"), UNAUTHORIZED_ACCESS),
        (c.ConnectionClose(403, "no"), UNAUTHORIZED_ACCESS),
    ],
)
def test_what_cannot_go_on_is_over(command: c.Command, name: str) -> None:
    server = Server()
    (closed,) = server.send(command)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == name
    assert server.engine.finished


def test_a_server_that_hangs_up_during_the_login_has_refused_it() -> None:
    server = Server()
    server.send(c.ConnectionChallenge(1, "ANONYMOUS"))
    (closed,) = server.engine.receive_eof(1.0)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == UNAUTHORIZED_ACCESS


@pytest.mark.parametrize("frame_max", [0, 1023])
def test_a_frame_max_that_is_too_small_is_refused(frame_max: int) -> None:
    """§3.2.5: "may not be zero ... not less than 1024"."""
    server = Server()
    server.octets()
    server.send(c.ConnectionChallenge(1, "ANONYMOUS"))
    server.send(c.ConnectionTune(frame_max, 0, 0, 0))
    close = server.read()[-1]
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 502


def test_nothing_larger_than_4096_octets_is_taken_before_tuning() -> None:
    """§3.2.3-5: "The maximum allowed size"; then what was agreed holds."""
    server = Server()
    server.feed(frame(c.ConnectionChallenge(1, "ANONYMOUS", {"x": bytes(5000)})))
    (closed,) = server.events
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert "4096" in str(closed.condition)


def test_an_open_that_is_refused_is_told() -> None:
    server = Server()
    server.send(c.ConnectionChallenge(1, "ANONYMOUS"))
    server.send(c.ConnectionTune(4096, 0, 0, 0))
    (closed,) = server.send(c.ConnectionReply(1, 402, "no such path"))
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition == Condition(NOT_FOUND, "402 no such path")


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "capabilities", "found"),
    [
        ("orders", (), Destination(Service.QUEUE, "orders")),
        ("/queue/orders", (), Destination(Service.QUEUE, "orders")),
        ("/topic/news", (), Destination(Service.TOPIC, "news")),
        ("news", ("topic",), Destination(Service.TOPIC, "news")),
        ("/topic/", (), Destination(Service.QUEUE, "/topic/")),
    ],
)
def test_addresses_name_destinations(
    address: str, capabilities: tuple[str, ...], found: Destination
) -> None:
    assert destination(address, capabilities) == found


def test_a_link_is_a_channel_and_a_handle() -> None:
    server = Server().open()
    server.attach(Role.SENDER, "/topic/news")
    assert server.read() == [
        c.ChannelOpen(1, 1, restartable=True),
        c.HandleOpen(1, 1, 2, 2, producer=True, dest_name="news"),
    ]
    assert server.take_events() == []
    server.send(c.ChannelReply(1, 1, 200))
    server.send(c.HandleReply(1, 2, 200))
    attached, granted = server.take_events()
    assert isinstance(attached, LinkAttached)
    assert isinstance(granted, CreditGranted)
    assert granted.credit == WINDOW


@pytest.mark.parametrize(
    "command",
    [
        c.HandleClose(1, 404, "none"),
        c.ChannelClose(1, 404, "none"),
        c.HandleReply(1, 2, 404, "none"),
    ],
)
def test_a_link_that_is_refused_is_answered_without_terminus(command: c.Command) -> None:
    server = Server().open()
    link = server.attach(Role.SENDER)
    server.read()
    attached, detached = server.send(command)
    assert isinstance(attached, LinkAttached)
    assert attached.target is None
    assert detached == LinkDetached(link, True, Condition(NOT_FOUND, "404 none"))
    answers = server.read()
    assert answers
    if not isinstance(command, c.ChannelClose):
        assert isinstance(answers[-1], c.ChannelClose)
        server.send(c.ChannelClose(1, 200))
    link = server.attach(Role.SENDER)
    assert server.read()[0] == c.ChannelOpen(2, 1, restartable=True)


@pytest.mark.parametrize("address", ["/peer/clock", "bad\0name", "x" * 256])
def test_what_cannot_be_named_or_answered_is_refused_here(address: str) -> None:
    server = Server().open()
    server.attach(Role.SENDER, address)
    attached, detached = server.take_events()
    assert isinstance(attached, LinkAttached)
    assert attached.target is None
    assert isinstance(detached, LinkDetached)
    assert server.read() == []


def test_transactions_are_refused_here() -> None:
    server = Server().open()
    link = AttachLink(
        link=LinkId(9), name=LinkName("x"), role=Role.SENDER, source=Source(), target=Coordinator()
    )
    _, detached = server.do(link)
    assert isinstance(detached, LinkDetached)
    assert detached.condition is not None
    assert detached.condition.name == conditions.NOT_IMPLEMENTED


def test_no_more_links_than_the_server_takes() -> None:
    server = Server().open()
    for _ in range(10):
        server.attach(Role.SENDER)
    server.take_events()
    server.attach(Role.SENDER)
    _, detached = server.take_events()
    assert isinstance(detached, LinkDetached)
    assert detached.condition is not None
    assert detached.condition.name == conditions.RESOURCE_LIMIT_EXCEEDED


def test_a_temporary_destination_gets_the_servers_name() -> None:
    """§3.5.10."""
    server = Server().open()
    server.attach(Role.RECEIVER, None, dynamic=True)
    opened = server.read()[1]
    assert isinstance(opened, c.HandleOpen)
    assert opened.temporary
    server.send(c.HandleCreated(1, "tmp.1"), c.HandleReply(1, 2, 200))
    (attached,) = server.take_events()
    assert isinstance(attached, LinkAttached)
    assert attached.source is not None
    assert attached.source.address == "tmp.1"


def test_a_link_of_the_cores_is_ended_by_its_channel() -> None:
    server = Server().open()
    link = server.attached(Role.SENDER)
    (detached,) = server.do(DetachLink(link, True))
    assert detached == LinkDetached(link, True, None)
    assert server.read() == [c.ChannelClose(1, 200)]
    server.send(c.HandleReply(1, 16, 200), c.HandleClose(1, 404))  # under way
    assert server.take_events() == [detached]
    server.send(c.ChannelClose(1, 200))
    assert not server.engine.finished


def test_an_orderly_close_of_the_servers_is_told_with_a_reason() -> None:
    server = Server().open()
    link = server.attached(Role.RECEIVER)
    server.send(c.HandleClose(1, 200))
    assert server.read() == [c.HandleClose(1, 200), c.ChannelClose(1, 200)]
    assert server.take_events() == [LinkDetached(link, True, None)]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (507, conditions.DETACH_FORCED),
        (403, UNAUTHORIZED_ACCESS),
        (404, NOT_FOUND),
    ],
)
def test_what_is_forbidden_for_the_time_being_may_be_tried_again(code: int, name: str) -> None:
    server = Server().open()
    link = server.attached(Role.SENDER)
    server.send(c.HandleClose(1, code, "so"))
    server.read()
    (ended,) = server.take_events()
    assert ended == LinkDetached(link, True, Condition(name, f"{code} so"))


def test_a_server_that_ends_the_connection_for_the_time_being_is_dialed_again() -> None:
    server = Server().open()
    server.send(c.ConnectionClose(507, "going home"))
    assert [
        each.condition for each in server.take_events() if isinstance(each, ConnectionClosed)
    ] == [Condition(conditions.CONNECTION_FORCED, "507 going home")]


# --- sending --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (200, ACCEPTED),
        (507, RELEASED),
        (404, Rejected(Condition(NOT_FOUND, "404 so"))),
        (403, Rejected(Condition(UNAUTHORIZED_ACCESS, "403 so"))),
        (999, Rejected(Condition(conditions.INTERNAL_ERROR, "999 so"))),
    ],
)
def test_the_reply_to_a_send_is_its_outcome(code: int, state: DeliveryState) -> None:
    server = Server().open()
    link = server.attached(Role.SENDER)
    server.do(SendDeliveries(link, [outgoing(71, b"a"), outgoing(72, b"b")]))
    (first, _), (second, octets) = server.fragments()
    assert isinstance(first, c.HandleSend)
    assert isinstance(second, c.HandleSend)
    assert octets == message(b"b")
    assert first.confirm_tag != second.confirm_tag
    server.take_events()
    server.send(c.HandleReply(1, second.confirm_tag, code, "so"))
    (update,) = server.take_events()
    assert update == DeliveriesUpdated(link, [72], state, True)  # type: ignore[list-item]
    assert server.send(c.HandleReply(1, second.confirm_tag, code, "so")) == []


def test_settled_deliveries_are_not_confirmed() -> None:
    server = Server().open()
    link = server.attached(Role.SENDER)
    server.do(SendDeliveries(link, [outgoing(1, settled=True)]))
    ((command, _),) = server.fragments()
    assert command.confirm_tag == 0


def test_credit_comes_back_with_confirmations() -> None:
    server = Server().open()
    link = server.attached(Role.SENDER)
    server.do(SendDeliveries(link, [outgoing(each) for each in range(WINDOW)]))
    server.take_events()
    tags = [each[0].confirm_tag for each in server.fragments()]
    assert len(set(tags)) == WINDOW
    server.send(*(c.HandleReply(1, tag, 200) for tag in tags[: WINDOW // 2]))
    server.settle()
    granted = [event for event in server.take_events() if isinstance(event, CreditGranted)]
    assert granted[-1].credit == WINDOW // 2


def test_the_anonymous_terminus_names_each_destination() -> None:
    """§3.5.2.3: open (empty name), send pets."""
    server = Server().open()
    link = server.attached(Role.SENDER, None)
    one, nowhere = outgoing(1), outgoing(2)
    one.address, nowhere.address = "/queue/pets", ""
    server.take_events()
    events = server.do(SendDeliveries(link, [one, nowhere]))
    ((command, _),) = server.fragments()
    assert command.dest_name == "pets"
    (update,) = [event for event in events if isinstance(event, DeliveriesUpdated)]
    assert list(update.numbers) == [2]
    assert isinstance(update.state, Rejected)


# --- receiving ------------------------------------------------------------------------------------


def notify(number: int, body: bytes = b"", **options: bool) -> tuple[c.Command, bytes]:
    octets = message(body)
    return (
        c.HandleNotify(1, number, len(octets), delivered=True, dest_name="orders", **options),
        octets,
    )


def consuming(credit: int = 100, **options: object) -> tuple[Server, LinkId]:
    server = Server().open()
    link = server.attached(Role.RECEIVER)
    server.do(GrantCredit(link, credit))
    server.read()
    return server, link


def numbers(server: Server) -> list[int]:
    return [
        each.number
        for event in server.take_events()
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]


def test_the_first_credit_is_the_prefetch() -> None:
    """§3.5.4."""
    server = Server().open()
    link = server.attached(Role.RECEIVER)
    server.do(GrantCredit(link, 200))
    assert server.read() == [c.HandleConsume(1, 4, 200)]
    server.do(GrantCredit(link, 300))
    assert server.read() == []


def test_what_is_ahead_of_the_credit_is_held() -> None:
    server, link = consuming(2)
    server.send(*(notify(each) for each in (1, 2, 3, 4)))
    assert numbers(server) == [1, 2]
    server.do(HoldWindow(link, True), GrantCredit(link, 10))
    assert numbers(server) == []
    server.do(HoldWindow(link, False))
    assert numbers(server) == [3, 4]
    assert LEAST_PREFETCH > 2


def test_an_ack_waits_for_what_is_before_it() -> None:
    """§3.3.3: it acknowledges everything up to its number."""
    server, link = consuming()
    server.send(*(notify(each) for each in (1, 2, 3, 4)))
    server.do(UpdateDeliveries(link, [2, 3], ACCEPTED, True))  # type: ignore[list-item]
    assert server.read() == []
    server.do(UpdateDeliveries(link, [1], ACCEPTED, True))  # type: ignore[list-item]
    assert server.read() == [c.ChannelAck(1, 0, 3)]
    server.do(UpdateDeliveries(link, [4], ACCEPTED, True))  # type: ignore[list-item]
    assert server.read() == [c.ChannelAck(1, 0, 4)]


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED, REJECTED])
def test_what_is_not_accepted_is_ungot_before_the_ack_that_covers_it(
    state: DeliveryState,
) -> None:
    """§3.5.7: 'unget 3' followed by 'ack 4'."""
    server, link = consuming()
    server.send(*(notify(each) for each in (1, 2, 3, 4)))
    server.do(UpdateDeliveries(link, [1, 2, 4], ACCEPTED, True))  # type: ignore[list-item]
    server.do(UpdateDeliveries(link, [3], state, True))  # type: ignore[list-item]
    assert server.read() == [c.HandleUnget(1, 0, 3), c.ChannelAck(1, 0, 4)]


def test_what_is_rejected_again_ends() -> None:
    """UNGET would have the server give it again for ever."""
    server, link = consuming()
    server.send(notify(1), notify(2, redelivered=True), notify(3, redelivered=True))
    server.do(UpdateDeliveries(link, [1, 2], REJECTED, True))  # type: ignore[list-item]
    assert server.read() == [c.HandleUnget(1, 0, 1), c.ChannelAck(1, 0, 2)]
    server.do(UpdateDeliveries(link, [3], MODIFIED_FAILED, True))  # type: ignore[list-item]
    assert server.read() == [c.HandleUnget(1, 0, 3), c.ChannelAck(1, 0, 3)]


def test_a_topic_takes_nothing_back() -> None:
    server = Server().open()
    link = server.attached(Role.RECEIVER, "/topic/news")
    server.do(GrantCredit(link, 10))
    server.send(notify(1))
    server.read()
    server.do(UpdateDeliveries(link, [1], RELEASED, True))  # type: ignore[list-item]
    assert server.read() == [c.ChannelAck(1, 0, 1)]


def test_an_outcome_that_is_not_settled_is_settled_by_being_told() -> None:
    server, link = consuming()
    server.send(notify(1))
    server.take_events()
    events = server.do(UpdateDeliveries(link, [1], ACCEPTED, False))  # type: ignore[list-item]
    assert events == [DeliveriesUpdated(link, [1], ACCEPTED, True)]  # type: ignore[list-item]
    assert server.read() == [c.ChannelAck(1, 0, 1)]


def test_a_drain_is_exact() -> None:
    server, link = consuming(2)
    server.do(GrantCredit(link, 2, drain=True))
    assert server.read() == [c.HandleFlow(1, 3, True)]
    server.send(*(notify(each) for each in (1, 2, 3)))  # were under way
    assert numbers(server) == [1, 2]
    server.send(c.HandleReply(1, 3, 200))
    assert server.take_events() == [CreditReturned(link, 0)]
    assert server.read() == []
    server.do(GrantCredit(link, 5))
    assert server.read() == [c.HandleFlow(1, 0, False)]
    server.send(notify(4))
    assert numbers(server) == [3, 4]


def test_a_pause_returns_nothing_that_nobody_has_refused() -> None:
    """§3.5.7: UNGET says that a client was unable to process the message; it counts there."""
    server, link = consuming(2)
    server.send(*(notify(each) for each in (1, 2, 3, 4)))
    assert numbers(server) == [1, 2]
    for each in (3, 4):
        server.do(UpdateDeliveries(link, [each - 2], ACCEPTED, True))  # type: ignore[list-item]
        server.do(GrantCredit(link, 0, drain=True))
        server.send(c.HandleReply(1, 3, 200))
        server.read()
        server.do(GrantCredit(link, 1))
        assert numbers(server) == [each]
        assert not any(isinstance(said, c.HandleUnget) for said in server.read())


def test_what_is_held_goes_back_with_what_receivers_return() -> None:
    """Nobody takes it then."""
    server, link = consuming(2)
    server.send(*(notify(each) for each in (1, 2, 3, 4)))
    server.do(GrantCredit(link, 0, drain=True))
    server.send(c.HandleReply(1, 3, 200))
    server.read()
    server.do(UpdateDeliveries(link, [1], REJECTED, True))  # type: ignore[list-item]
    assert server.read() == [c.HandleUnget(1, 0, 1), c.ChannelAck(1, 0, 1)]
    server.do(UpdateDeliveries(link, [2], RELEASED, True))  # type: ignore[list-item]
    assert server.read() == [
        *(c.HandleUnget(1, 0, each) for each in (2, 3, 4)),
        c.ChannelAck(1, 0, 4),
    ]


def test_what_is_held_goes_back_when_nobody_grants_credit_for_long() -> None:
    """Others may be waiting for it."""
    server, link = consuming(1)
    server.send(notify(1), notify(2))
    server.do(GrantCredit(link, 0, drain=True))
    server.send(c.HandleReply(1, 3, 200))
    server.read()
    server.wait(HOLD_SECONDS - 0.01)
    assert not any(isinstance(said, c.HandleUnget) for said in server.read())
    server.wait(0.02)
    assert c.HandleUnget(1, 0, 2) in server.read()


def test_a_pause_loses_nothing_of_a_topic() -> None:
    """It accepts nothing back, so what is held would be acknowledged unseen."""
    server = Server().open()
    link = server.attached(Role.RECEIVER, "/topic/news")
    server.do(GrantCredit(link, 1))
    server.send(notify(1), notify(2))
    server.do(GrantCredit(link, 0, drain=True))
    server.send(c.HandleReply(1, 3, 200))
    server.read()
    assert numbers(server) == [1]
    server.do(GrantCredit(link, 1))
    assert numbers(server) == [2]


def test_redelivery_is_read() -> None:
    server, _ = consuming()
    server.send(notify(1, redelivered=True))
    (run,) = [event for event in server.take_events() if isinstance(event, DeliveriesReceived)]
    assert run.deliveries[0].delivery_count == 1


def test_pre_settled_links_are_unreliable_subscriptions() -> None:
    server = Server().open()
    link = LinkId(500)
    server.do(
        AttachLink(
            link=link,
            name=LinkName("x"),
            role=Role.RECEIVER,
            source=Source(address="orders"),
            target=Target(),
            sender_settle_mode=SenderSettleMode.SETTLED,
        )
    )
    server.send(c.HandleReply(1, 2, 200))
    server.do(GrantCredit(link, 100))
    consume = server.read()[-1]
    assert isinstance(consume, c.HandleConsume)
    assert consume.unreliable
    server.take_events()
    server.send(notify(1))
    (run,) = server.take_events()
    assert isinstance(run, DeliveriesReceived)
    assert run.deliveries[0].settled


@pytest.mark.parametrize(
    ("command", "octets"),
    [
        (c.HandleNotify(1, 1, 0), b""),
        (c.HandleNotify(1, 1, 20, delivered=True), b"\xff" * 20),
        (c.HandleNotify(1, 1, 5, out_of_band=True), b""),
        (c.HandleNotify(1, 1, 0, streaming=True, partial=True), b""),
        (c.HandleIndex(1, 0, b"1"), b""),
        (c.HandleReady(1, 0), b""),
    ],
)
def test_a_broken_message_ends_its_link_and_no_more(command: c.Command, octets: bytes) -> None:
    server, link = consuming()
    server.take_events()
    server.send((command, octets))
    (detached,) = server.take_events()
    assert isinstance(detached, LinkDetached)
    assert detached.link == link
    assert detached.condition is not None
    closes = server.read()
    assert [type(each) for each in closes] == [c.ChannelClose]


def test_a_number_that_comes_twice_is_a_fault() -> None:
    server, _ = consuming()
    server.send(notify(1), notify(1))
    assert isinstance(server.take_events()[-1], LinkDetached)


@pytest.mark.parametrize(
    "command", [c.HandleClose(9, 200), c.ChannelClose(9, 200), c.HandleReply(9, 1, 200)]
)
def test_what_is_not_open_ends_the_connection(command: c.Command) -> None:
    server, _ = consuming()
    server.send(command)
    (close,) = server.read()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code in (504, 505)


def test_a_close_of_the_connection_flushes_acknowledgements() -> None:
    server, link = consuming()
    server.send(notify(1))
    server.engine.execute(UpdateDeliveries(link, [1], ACCEPTED, True))  # type: ignore[list-item]
    server.engine.execute(CloseConnection())
    assert server.read() == [c.ChannelAck(1, 0, 1), c.ConnectionClose(200)]
