"""What a router makes of a client's commands (0-10 classes execution to queue)."""

from typing import Any

import pytest

from router.model.capabilities import Protocol
from router.model.commands import (
    DetachLink,
    GrantCredit,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import (
    DETACH_FORCED,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_DELETED,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct
from router.wire.v0_10.framing import PROTOCOL_HEADER
from router.wire.v0_10.publishing import ATTEMPTS
from router.wire.v0_10.reply import ErrorCode
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, Transfer, server, settings


def attached(*, credit: int = 100) -> Peer:
    peer = server(credit=credit)
    peer.attach()
    return peer


def links(peer: Peer, role: Role) -> list[LinkId]:
    return [event.link for event in peer.of(LinkAttached) if event.role is role]


def outgoing(number: int, body: bytes = b"x", *, settled: bool = False) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number),
        DeliveryTag(b"%d" % number),
        messages.make_content(b"", b"", body),
        Protocol.AMQP_0_10,
        settled=settled,
    )


def send(peer: Peer, *deliveries: OutgoingDelivery) -> list[Transfer]:
    peer.engine.execute(SendDeliveries(links(peer, Role.SENDER)[-1], list(deliveries)))
    peer.take([])
    return peer.said(Transfer)


def decide(peer: Peer, numbers: list[int], state: DeliveryState) -> list[Any]:
    link = links(peer, Role.RECEIVER)[-1]
    named = [DeliveryNumber(number) for number in numbers]
    peer.engine.execute(UpdateDeliveries(link, named, state, True))
    return [each for _, each in peer.read()]


def exception(peer: Peer) -> r.ExecutionException:
    (found,) = peer.said(r.ExecutionException)
    return found


def result(peer: Peer) -> Any:
    (found,) = peer.said(r.ExecutionResult)
    return decode_struct(found.value or b"", 0, len(found.value or b""))


def credits(peer: Peer) -> list[tuple[int, bool]]:
    return [(event.credit, event.drain) for event in peer.of(CreditGranted)]


# --- transfers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (ACCEPTED, r.MessageAccept(((0, 1),))),
        (RELEASED, r.MessageRelease(((0, 1),))),
        (MODIFIED_FAILED, r.MessageRelease(((0, 1),), True)),
        (
            Rejected(Condition(NOT_FOUND, "no")),
            r.MessageReject(((0, 1),), 1, "amqp:not-found: no"),
        ),
        (
            Rejected(Condition(INTERNAL_ERROR, "no")),
            r.MessageReject(((0, 1),), 0, "amqp:internal-error: no"),
        ),
        (Rejected(), r.MessageReject(((0, 1),), 0)),
    ],
)
def test_outcomes_of_explicit_transfers_are_told_before_completion(
    state: DeliveryState, answer: r.Command
) -> None:
    peer = attached()
    peer.publish("orders", b"one", b"two")
    said = decide(peer, [0, 1], state)
    assert said[-2:] == [answer, r.SessionCompleted(((0, 1),))]


def test_transfers_of_accept_mode_none_are_settled_and_completed_as_soon_as_the_core_has_them() -> (
    None
):
    peer = attached()
    peer.publish("orders", b"one", b"two", mode=1)
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 1),))]
    deliveries = [each for run in peer.of(DeliveriesReceived) for each in run.deliveries]
    assert [each.settled for each in deliveries] == [True, True]


def test_transfers_of_accept_mode_none_that_have_no_credit_are_not_complete() -> None:
    peer = attached(credit=0)
    peer.publish("orders", b"one", mode=1)
    assert peer.said(r.SessionCompleted) == []
    peer.engine.execute(GrantCredit(links(peer, Role.RECEIVER)[0], 5))
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 0),))]


def test_a_lost_connection_hands_over_what_is_of_accept_mode_none() -> None:
    peer = attached(credit=0)
    peer.publish("orders", b"asked")
    peer.publish("orders", b"one", mode=1)
    peer.events.clear()
    peer.events += peer.engine.receive_eof(peer.now)
    (run,) = peer.of(DeliveriesReceived)
    assert [each.payload[-3:] for each in run.deliveries] == [b"one"]
    assert run.deliveries[0].settled
    assert isinstance(peer.events[-1], ConnectionClosed)


def test_a_client_that_names_no_accept_mode_hears_of_completion_alone() -> None:
    peer = attached()
    peer.publish("orders", b"one", mode=None)
    assert decide(peer, [0], ACCEPTED) == [r.SessionCompleted(((0, 0),))]


def test_such_a_client_is_never_told_complete_what_was_refused() -> None:
    peer = attached()
    peer.publish("orders", b"one", mode=None)
    said = decide(peer, [0], Rejected(Condition(MESSAGE_SIZE_EXCEEDED, "too large")))
    (told,) = [each for each in said if isinstance(each, r.ExecutionException)]
    assert (told.error_code, told.command_id) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, 0)
    assert r.SessionCompleted(((0, 0),)) not in said


def test_what_is_given_back_is_offered_again_for_such_a_client() -> None:
    peer = attached()
    peer.publish("orders", b"one", b"two", mode=None)
    assert decide(peer, [0, 1], RELEASED) == []
    peer.take(peer.engine.receive_data(b"", 0.0))
    again = peer.of(DeliveriesReceived)[-1].deliveries
    assert [each.number for each in again] == [0, 1]
    assert decide(peer, [0, 1], ACCEPTED) == [r.SessionCompleted(((0, 1),))]


def test_what_fails_is_offered_again_marked_and_not_for_ever() -> None:
    peer = attached()
    peer.publish("orders", b"one", mode=None)
    for attempt in range(1, ATTEMPTS):
        assert decide(peer, [0], MODIFIED_FAILED) == []
        peer.take(peer.engine.receive_data(b"", 0.0))
        (again,) = peer.of(DeliveriesReceived)[-1].deliveries
        assert again.delivery_count == attempt
        assert messages.read_content(again.payload).delivery.redelivered
    decide(peer, [0], MODIFIED_FAILED)
    peer.take(peer.engine.receive_data(b"", 0.0))
    assert peer.of(LinkDetached)


def test_an_unroutable_message_that_may_be_discarded_is_accepted() -> None:
    peer = attached()
    told = r.DeliveryProperties(routing_key="nowhere", discard_unroutable=True)
    peer.refuses.add("nowhere")
    peer.transfer(b"x", told)
    assert peer.said(r.MessageAccept) == [r.MessageAccept(((0, 0),))]


def test_an_unroutable_message_is_rejected_as_such() -> None:
    peer = attached()
    peer.refuses.add("nowhere")
    peer.publish("nowhere", b"x")
    (told,) = peer.said(r.MessageReject)
    assert told.code == 1


def test_a_transfer_without_any_destination_is_unroutable() -> None:
    peer = attached()
    peer.transfer(b"x")
    (told,) = peer.said(r.MessageReject)
    assert told.code == 1


@pytest.mark.parametrize("mode", [1, None])
@pytest.mark.parametrize("exchange", ["", "amq.direct"])
def test_what_no_route_takes_is_dropped_unless_its_accept_mode_is_explicit(
    exchange: str, mode: int | None
) -> None:
    peer = attached()
    peer.refuses |= {"nowhere", "amq.direct/nowhere"}
    told = r.DeliveryProperties(routing_key="nowhere")
    peer.transfer(b"x", told, command=r.MessageTransfer(exchange, mode, 0))
    assert [each for _, each in peer.read()] == [r.SessionCompleted(((0, 0),))]


@pytest.mark.parametrize("mode", [0, 1, None])
@pytest.mark.parametrize("discards", [False, True])
def test_an_exchange_that_is_not_there_ends_the_session(mode: int | None, discards: bool) -> None:
    peer = attached()
    peer.refuses.add("shop/eu")
    told = r.DeliveryProperties(routing_key="eu", discard_unroutable=discards)
    peer.transfer(b"x", told, command=r.MessageTransfer("shop", mode, 0))
    found = exception(peer)
    assert (found.error_code, found.command_id) == (ErrorCode.NOT_FOUND, 0)


def test_an_exchange_that_was_declared_is_there_though_no_route_takes_the_key() -> None:
    peer = attached()
    peer.refuses.add("shop/eu")
    peer.command(r.ExchangeDeclare(exchange="shop", type="direct"))
    told = r.DeliveryProperties(routing_key="eu")
    peer.transfer(b"x", told, command=r.MessageTransfer("shop", 0, 0))
    assert [each.code for each in peer.said(r.MessageReject)] == [1]


@pytest.mark.parametrize(("mode", "is_rejected"), [(0, True), (1, False), (None, False)])
def test_what_no_route_takes_is_no_fault_of_its_transaction(
    mode: int | None, is_rejected: bool
) -> None:
    peer = attached()
    peer.refuses.add("nowhere")
    peer.command(r.TxSelect())
    peer.publish("nowhere", b"one", mode=mode)
    peer.publish("orders", b"two", mode=mode)
    said = [each for _, each in peer.read()]
    rejected = [each.transfers for each in said if isinstance(each, r.MessageReject)]
    accepted = [each.transfers for each in said if isinstance(each, r.MessageAccept)]
    assert rejected == ([((1, 1),)] if is_rejected else [])
    assert accepted == ([((2, 2),)] if mode == 0 else [])
    peer.command(r.TxCommit())
    assert handed_on(peer) == [b"o"]  # the last octet of "two"
    assert decide(peer, [2], ACCEPTED)[-1] == r.SessionCompleted(((0, 3),))


@pytest.mark.parametrize("answers", [True, False])
def test_a_commit_may_come_before_the_core_has_said_whether_a_route_takes_what_it_commits(
    answers: bool,
) -> None:
    peer = attached()
    peer._answer = lambda event: None  # type: ignore[method-assign]
    peer.command(r.TxSelect())
    peer.publish("orders", b"one")
    peer.command(r.TxCommit())
    (asked,) = peer.of(LinkAttached)
    if answers:
        Peer._answer(peer, asked)
        peer.take(peer.engine.receive_data(b"", 0.0))
        said = decide(peer, [1], ACCEPTED)
        assert said[-2:] == [r.MessageAccept(((1, 1),)), r.SessionCompleted(((0, 2),))]
    else:
        peer.engine.execute(RefuseLink(asked.link, Condition(NOT_FOUND, "no")))
        said = [each for _, each in peer.read()]
        assert [each.transfers for each in said if isinstance(each, r.MessageReject)] == [((1, 1),)]
        assert said[-1] == r.SessionCompleted(((0, 2),))


@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize(
    ("condition", "is_rejected"), [(DETACH_FORCED, False), (RESOURCE_DELETED, True)]
)
def test_what_a_router_that_stops_has_not_handed_on_is_released(
    condition: str, is_rejected: bool, is_attached: bool
) -> None:
    peer = attached(credit=0)
    if not is_attached:
        peer._answer = lambda event: None  # type: ignore[method-assign]
    peer.publish("orders", b"x")
    (asked,) = peer.of(LinkAttached)
    reason = Condition(condition, "the router is about to stop")
    ends = DetachLink(asked.link, False, reason) if is_attached else RefuseLink(asked.link, reason)
    peer.engine.execute(ends)
    said = [each for _, each in peer.read()]
    outcome = r.MessageReject if is_rejected else r.MessageRelease
    assert [type(each) for each in said if not isinstance(each, r.SessionCommandPoint)] == [
        outcome,
        r.SessionCompleted,
    ]


def test_what_is_not_allowed_ends_the_session() -> None:
    peer = attached()
    peer._answer = lambda event: peer.engine.execute(  # type: ignore[method-assign]
        RefuseLink(event.link, Condition(UNAUTHORIZED_ACCESS, "no"))
    )
    peer.publish("orders", b"x")
    assert exception(peer).error_code == ErrorCode.UNAUTHORIZED_ACCESS


def test_immediate_is_refused() -> None:
    peer = attached()
    peer.transfer(b"x", r.DeliveryProperties(routing_key="orders", immediate=True))
    assert exception(peer).error_code == ErrorCode.NOT_IMPLEMENTED


def handed_on(peer: Peer) -> list[bytes]:
    return [each.payload[-1:] for event in peer.of(DeliveriesReceived) for each in event.deliveries]


def grant(peer: Peer, place: int, credit: int) -> None:
    peer.engine.execute(GrantCredit(links(peer, Role.RECEIVER)[place], credit))
    peer.take(peer.engine.receive_data(b"", 0.0))


def test_a_transfer_that_waits_for_credit_holds_up_those_of_its_address_alone() -> None:
    peer = attached(credit=0)
    peer.publish("a", b"1")
    peer.publish("b", b"2")
    peer.publish("a", b"3")
    assert handed_on(peer) == []
    grant(peer, 1, 5)
    assert handed_on(peer) == [b"2"]
    peer.publish("b", b"4")
    assert handed_on(peer) == [b"2", b"4"]
    grant(peer, 0, 1)
    assert handed_on(peer) == [b"2", b"4", b"1"]
    grant(peer, 0, 1)
    assert handed_on(peer) == [b"2", b"4", b"1", b"3"]


def test_what_went_past_a_waiting_transfer_completes_before_it() -> None:
    peer = attached(credit=0)
    peer.publish("a", b"1")
    peer.publish("b", b"2")
    grant(peer, 1, 5)
    assert decide(peer, [1], ACCEPTED)[-2:] == [
        r.MessageAccept(((1, 1),)),
        r.SessionCompleted(((1, 1),)),
    ]
    peer.command(r.ExecutionSync(), sync=True)
    assert peer.said(r.SessionCompleted) == []
    grant(peer, 0, 5)
    first = links(peer, Role.RECEIVER)[0]
    peer.engine.execute(UpdateDeliveries(first, [DeliveryNumber(0)], ACCEPTED, True))
    assert peer.said(r.SessionCompleted)[-1] == r.SessionCompleted(((0, 2),))


def test_a_refused_address_answers_its_own_line_alone() -> None:
    peer = attached(credit=0)
    peer.publish("a", b"1")
    peer.publish("b", b"2")
    peer.publish("a", b"3")
    first = links(peer, Role.RECEIVER)[0]
    peer.engine.execute(DetachLink(first, True, Condition(NOT_FOUND, "no")))
    peer.take(peer.engine.receive_data(b"", 0.0))
    assert peer.said(r.MessageReject)[-1].transfers == ((0, 0), (2, 2))
    grant(peer, 1, 5)
    assert handed_on(peer) == [b"2"]


def test_a_commit_is_answered_when_the_slowest_address_has_taken_its_part() -> None:
    peer = attached(credit=0)
    peer.command(r.TxSelect())
    peer.publish("a", b"1")
    peer.publish("b", b"2")
    peer.command(r.TxCommit())
    grant(peer, 1, 5)
    assert handed_on(peer) == [b"2"]
    decide(peer, [2], ACCEPTED)
    peer.command(r.ExchangeQuery("shop"))
    assert not peer.said(r.ExecutionResult)  # behind the commit, which waits
    grant(peer, 0, 5)
    first = links(peer, Role.RECEIVER)[0]
    peer.engine.execute(UpdateDeliveries(first, [DeliveryNumber(1)], ACCEPTED, True))
    assert peer.said(r.ExecutionResult)


def test_too_much_that_waits_stops_reading() -> None:
    peer = attached(credit=0)
    peer.publish("a", *[bytes(1 << 20)] * 5)
    assert peer.engine.input_waits
    peer.engine.execute(GrantCredit(links(peer, Role.RECEIVER)[0], 5))
    assert not peer.engine.input_waits


def test_a_user_id_of_another_ends_the_session() -> None:
    peer = attached()
    peer.engine.named = "app"  # type: ignore[union-attr]
    told = r.DeliveryProperties(routing_key="orders")
    peer.transfer(b"x", told, r.MessageProperties(user_id=b"app"))
    assert peer.of(DeliveriesReceived)
    peer.transfer(b"x", told, r.MessageProperties(user_id=b"root"))
    assert exception(peer).error_code == ErrorCode.UNAUTHORIZED_ACCESS


@pytest.mark.parametrize(
    ("login", "user_id", "is_taken"),
    [
        (r.ConnectionStartOk(mechanism="ANONYMOUS"), b"", True),
        (r.ConnectionStartOk(mechanism="ANONYMOUS"), b"app", False),
        (r.ConnectionStartOk(mechanism="PLAIN", response=b"\0app\0secret"), b"app", True),
        (r.ConnectionStartOk(mechanism="PLAIN", response=b"\0app\0secret"), b"root", False),
    ],
)
def test_where_nobody_has_to_prove_a_name_a_client_speaks_for_the_one_it_gave(
    login: r.ConnectionStartOk, user_id: bytes, is_taken: bool
) -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(PROTOCOL_HEADER)
    peer.control(login, 0)
    peer.control(r.ConnectionTuneOk(10), 0)
    peer.control(r.ConnectionOpen("/"), 0)
    peer.attach()
    told = r.DeliveryProperties(routing_key="orders")
    for _ in range(2):  # the second is known by the first
        peer.transfer(b"x", told, r.MessageProperties(user_id=user_id))
    exceptions = peer.said(r.ExecutionException)
    assert bool(peer.of(DeliveriesReceived)) is is_taken
    assert [each.error_code for each in exceptions] == (
        [] if is_taken else [ErrorCode.UNAUTHORIZED_ACCESS]
    )


def test_sync_is_complete_when_all_before_it_is() -> None:
    peer = attached()
    peer.publish("orders", b"one")
    peer.command(r.ExecutionSync(), sync=True)
    assert peer.said(r.SessionCompleted) == []
    assert decide(peer, [0], ACCEPTED)[-1] == r.SessionCompleted(((0, 1),))


def test_completed_leaves_out_what_the_client_knows() -> None:
    peer = attached()
    peer.command(r.ExecutionSync(), r.ExecutionSync())
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 1),))]
    peer.control(r.SessionKnownCompleted(((0, 1),)))
    peer.command(r.ExecutionSync())
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((2, 2),))]
    peer.control(r.SessionFlush(confirmed=True, completed=True))
    said = [each for _, each in peer.read()]
    assert said == [r.SessionConfirmed(((2, 2),)), r.SessionCompleted(((2, 2),))]


def test_a_client_that_says_nothing_is_asked_what_it_knows() -> None:
    peer = attached(credit=300)
    peer.publish("orders", *[b"x"] * 200)
    asked = False
    for number in range(0, 200, 2):
        said = decide(peer, [number], ACCEPTED)
        asked = asked or any(getattr(each, "timely_reply", False) for each in said)
    assert asked


# --- subscriptions --------------------------------------------------------------------------------


def test_credit_in_messages_is_the_links_credit() -> None:
    peer = attached()
    peer.command(r.MessageSubscribe(queue="q", destination="d", accept_mode=0, acquire_mode=0))
    assert credits(peer) == []
    peer.command(r.MessageFlow("d", 0, 3))
    assert credits(peer) == []  # no octets, no messages
    peer.command(r.MessageFlow("d", 1, 0xFFFF_FFFF))
    assert credits(peer) == [(3, False)]


def test_a_message_larger_than_the_octets_left_waits() -> None:
    peer = attached()
    peer.subscribe("q", messages=10, octets=10)
    assert [each.body for each in send(peer, outgoing(1, b"12345"), outgoing(2, b"123456"))] == [
        b"12345"
    ]
    peer.command(r.MessageFlow("q", 1, 1))
    assert [each.body for each in peer.said(Transfer)] == [b"123456"]


def test_a_window_opens_when_transfers_are_completed_and_not_when_accepted() -> None:
    peer = attached()
    peer.command(
        r.MessageSubscribe(queue="q", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, 100),
        r.MessageFlow("d", 0, 2),
    )
    peer.events = [event for event in peer.events if not isinstance(event, CreditGranted)]
    send(peer, outgoing(1, b"x" * 60), outgoing(2, b"y" * 40))
    peer.command(r.MessageAccept(((0, 0),)))
    assert credits(peer) == []
    peer.control(r.SessionCompleted(((0, 1),)))
    assert credits(peer) == [(2, False)]
    assert len(send(peer, outgoing(3, b"z" * 100))) == 1


def test_stop_takes_credit_away_and_gives_back_what_waits() -> None:
    peer = attached()
    peer.subscribe("q", messages=10, octets=1)
    assert send(peer, outgoing(1, b"too long")) == []
    peer.command(r.MessageStop("q"))
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state) == ([1], RELEASED)
    assert credits(peer)[-1] == (0, False)
    assert r.SessionCompleted(((0, 4),)) in peer.said(r.SessionCompleted)


def test_flush_drains_and_is_complete_when_nothing_is_left() -> None:
    peer = attached()
    peer.subscribe("q", messages=10)
    peer.read()
    peer.command(r.MessageFlush("q"))
    assert credits(peer)[-1] == (10, True)
    assert len(send(peer, outgoing(1))) == 1
    assert peer.said(r.SessionCompleted) == []
    peer.engine.execute(ReturnCredit(links(peer, Role.SENDER)[0]))
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 4),))]


def test_flush_without_credit_is_complete_at_once() -> None:
    peer = attached()
    peer.subscribe("q", messages=0)
    peer.read()
    peer.command(r.MessageFlush("q"))
    assert peer.said(r.SessionCompleted) == [r.SessionCompleted(((0, 4),))]


def test_the_flow_mode_changes_only_without_credit() -> None:
    peer = attached()
    peer.subscribe("q", messages=1)
    peer.command(r.MessageSetFlowMode("q", 1))
    assert exception(peer).error_code == ErrorCode.ILLEGAL_STATE


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (r.MessageAccept(((0, 0),)), ACCEPTED),
        (r.MessageRelease(((0, 0),)), RELEASED),
        (r.MessageRelease(((0, 0),), True), MODIFIED_FAILED),
        (r.MessageReject(((0, 0),), 0), Rejected()),
        (r.MessageReject(((0, 0),), 1, "no"), Rejected(Condition(NOT_FOUND, "no"))),
    ],
)
def test_a_clients_outcome_is_the_deliverys(command: r.Command, state: DeliveryState) -> None:
    peer = attached()
    peer.subscribe("q")
    send(peer, outgoing(7))
    peer.command(command)
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state, told.settled) == ([7], state, True)


def test_releases_are_told_in_reverse_so_that_order_is_kept() -> None:
    peer = attached()
    peer.subscribe("q")
    send(peer, outgoing(1), outgoing(2), outgoing(3))
    peer.command(r.MessageRelease(((0, 2),)))
    (told,) = peer.of(DeliveriesUpdated)
    assert told.numbers == [3, 2, 1]


def test_accept_mode_none_counts_as_accepted_when_sent() -> None:
    peer = attached()
    peer.subscribe("q", accept_mode=1)
    (transfer,) = send(peer, outgoing(1))
    assert transfer.command.accept_mode == 1
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state) == ([1], ACCEPTED)


def test_what_is_not_acquired_cannot_be_accepted_and_goes_back() -> None:
    peer = attached()
    peer.subscribe("q", acquire_mode=1)
    assert [each.command.acquire_mode for each in send(peer, outgoing(1), outgoing(2))] == [1, 1]
    peer.command(r.MessageAcquire(((0, 0),)))
    assert result(peer) == r.Acquired(((0, 0),))
    peer.command(r.MessageCancel("q"))
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state) == ([2], RELEASED)
    peer.command(r.MessageAccept(((0, 0),)))
    assert peer.of(DeliveriesUpdated)[-1].state == ACCEPTED


def test_accepting_what_is_not_acquired_ends_the_session() -> None:
    peer = attached()
    peer.subscribe("q", acquire_mode=1)
    send(peer, outgoing(1))
    peer.command(r.MessageAccept(((0, 0),)))
    assert exception(peer).error_code == ErrorCode.ILLEGAL_STATE


def test_after_cancel_what_was_sent_may_still_be_accepted() -> None:
    peer = attached()
    peer.subscribe("q")
    send(peer, outgoing(1))
    peer.command(r.MessageCancel("q"))
    assert not peer.of(LinkDetached)
    peer.command(r.MessageAccept(((0, 0),)))
    assert peer.of(LinkDetached)


def test_a_queue_that_goes_away_ends_the_session() -> None:
    peer = attached()
    peer.subscribe("q")
    link = links(peer, Role.SENDER)[0]
    peer.engine.execute(DetachLink(link, True, Condition(RESOURCE_DELETED, "gone")))
    assert exception(peer).error_code == ErrorCode.RESOURCE_DELETED


def test_subscribers_hear_nothing_from_a_router_that_is_about_to_stop() -> None:
    """It closes the connection next, and says why: their queues are not gone."""
    peer = attached()
    peer.subscribe("q")
    peer.read()
    peer.engine.execute(DetachLink(links(peer, Role.SENDER)[0], False))
    assert peer.read() == []


def test_a_resume_id_is_told_with_every_transfer_and_nothing_is_kept_under_it() -> None:
    peer = attached()
    peer.subscribe("q", resume_id="r-1", resume_ttl=5)
    (transfer,) = send(peer, outgoing(1))
    delivery, _, _ = messages.read_header(transfer.header)
    assert (delivery.resume_id, delivery.resume_ttl) == ("r-1", 5)
    peer.command(r.MessageResume("q", "r-1"))
    assert result(peer) == r.MessageResumeResult(0)


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([r.MessageSubscribe(queue="none", destination="d")], ErrorCode.NOT_FOUND),
        ([r.MessageSubscribe(queue="q", destination="d")] * 2, ErrorCode.NOT_ALLOWED),
        (
            [r.MessageSubscribe(queue="q", destination="d", exclusive=True)],
            ErrorCode.RESOURCE_LOCKED,
        ),
        (
            [r.MessageSubscribe(queue="q", destination="d", arguments={"selector": "a=1"})],
            ErrorCode.NOT_IMPLEMENTED,
        ),
        ([r.MessageCancel("d")], ErrorCode.NOT_FOUND),
        ([r.MessageFlow("d", 0, 1)], ErrorCode.NOT_FOUND),
        ([r.MessageFlush("d")], ErrorCode.NOT_FOUND),
        ([r.MessageStop("d")], ErrorCode.NOT_FOUND),
        ([r.MessageSetFlowMode("d", 0)], ErrorCode.NOT_FOUND),
        ([r.TxCommit()], ErrorCode.ILLEGAL_STATE),
        ([r.TxRollback()], ErrorCode.ILLEGAL_STATE),
        ([r.TxSelect(), r.TxSelect()], ErrorCode.ILLEGAL_STATE),
        (
            [r.TxSelect(), r.MessageSubscribe(queue="q", destination="d", accept_mode=1)],
            ErrorCode.NOT_ALLOWED,
        ),
        ([r.QueueDeclare(queue="none")], ErrorCode.NOT_FOUND),
        ([r.QueueDeclare()], ErrorCode.INVALID_ARGUMENT),
        ([r.QueueDeclare(queue="amq.x")], ErrorCode.NOT_ALLOWED),
        ([r.QueueDeclare(queue="amq.x", exclusive=True)], ErrorCode.NOT_ALLOWED),
        (
            [r.QueueDeclare(queue="own", exclusive=True, arguments={"qpid.max_count": 1})],
            ErrorCode.NOT_IMPLEMENTED,
        ),
        ([r.QueueDelete("q")], ErrorCode.NOT_ALLOWED),
        ([r.QueuePurge("q")], ErrorCode.NOT_ALLOWED),
        ([r.ExchangeDeclare(exchange="e", type="odd")], ErrorCode.NOT_FOUND),
        ([r.ExchangeDeclare(exchange="amq.e", type="topic")], ErrorCode.NOT_ALLOWED),
        ([r.ExchangeDeclare(type="topic")], ErrorCode.INVALID_ARGUMENT),
        ([r.ExchangeDeclare(exchange="none", passive=True)], ErrorCode.NOT_FOUND),
        (
            [
                r.ExchangeDeclare(exchange="e", type="topic"),
                r.ExchangeDeclare(exchange="e", type="fanout"),
            ],
            ErrorCode.NOT_ALLOWED,
        ),
        ([r.ExchangeDelete("e")], ErrorCode.NOT_FOUND),
        ([r.ExchangeDelete("amq.topic")], ErrorCode.NOT_ALLOWED),
        ([r.ExchangeBind(queue="q", exchange="e", binding_key="k")], ErrorCode.NOT_ALLOWED),
        (
            [
                r.QueueDeclare(queue="own", exclusive=True),
                r.ExchangeUnbind("own", "e", "k"),
            ],
            ErrorCode.NOT_FOUND,
        ),
    ],
)
def test_what_a_router_cannot_do_is_refused_by_its_code(
    commands: list[r.Command], code: ErrorCode
) -> None:
    peer = attached()
    peer.refuses.add("none")
    for command in commands:
        peer.command(command)
    assert exception(peer).error_code == code


# --- queries --------------------------------------------------------------------------------------


def test_queries_are_answered_by_what_is_routed() -> None:
    peer = attached()
    peer.refuses.add("none")
    peer.command(r.QueueQuery("orders"))
    assert result(peer) == r.QueueQueryResult(
        queue="orders", durable=True, message_count=0, subscriber_count=0
    )
    peer.command(r.QueueQuery("none"))
    assert result(peer) == r.QueueQueryResult()
    peer.command(r.ExchangeQuery("amq.fanout"))
    assert result(peer) == r.ExchangeQueryResult(type="fanout", durable=True)
    peer.command(r.ExchangeQuery("shop"))
    assert result(peer) == r.ExchangeQueryResult(not_found=True)
    peer.command(r.ExchangeDeclare(exchange="shop", type="topic"), r.ExchangeQuery("shop"))
    assert result(peer) == r.ExchangeQueryResult(type="topic")


def test_bound_tells_what_of_the_question_does_not_hold() -> None:
    peer = attached()
    peer.refuses.add("none")
    peer.command(
        r.ExchangeDeclare(exchange="shop", type="direct"),
        r.QueueDeclare(queue="own", exclusive=True, auto_delete=True),
        r.ExchangeBind(queue="own", exchange="shop", binding_key="eu"),
    )

    def asked(**fields: Any) -> Any:
        peer.command(r.ExchangeBound(**fields))
        return result(peer)

    held = r.ExchangeBoundResult()
    assert asked(exchange="shop", queue="own", binding_key="eu") == held
    assert asked(exchange="shop", queue="own", binding_key="us") == r.ExchangeBoundResult(
        key_not_matched=True
    )
    assert asked(exchange="amq.topic", queue="own") == r.ExchangeBoundResult(queue_not_matched=True)
    assert asked(exchange="odd", binding_key="k") == r.ExchangeBoundResult(
        exchange_not_found=True, key_not_matched=True
    )
    peer.command(r.ExchangeBind(queue="own", exchange="routed", binding_key="k"))
    assert asked(exchange="routed", queue="own", binding_key="k") == held
    assert asked(queue="orders", binding_key="orders") == held
    assert asked(queue="none") == r.ExchangeBoundResult(queue_not_found=True)


def test_a_local_queue_takes_what_its_bindings_name() -> None:
    peer = attached()
    peer.refuses.add("own")
    peer.command(
        r.ExchangeDeclare(exchange="shop", type="direct"),
        r.QueueDeclare(queue="own", exclusive=True, auto_delete=True),
        r.ExchangeBind(queue="own", exchange="shop", binding_key="eu"),
        r.QueueQuery("own"),
    )
    assert result(peer).exclusive
    granted = peer.of(CreditGranted)[-1]
    sources = {event.link: event.source for event in peer.of(LinkAttached)}
    source = sources[granted.link]
    assert source is not None
    assert source.address == "shop/eu"
    peer.engine.execute(SendDeliveries(granted.link, [outgoing(1, b"kept")]))
    peer.subscribe("own")
    assert [each.body for each in peer.said(Transfer)] == [b"kept"]
    peer.command(r.QueueDelete("own"))
    peer.command(r.MessageAccept(((1, 1),)))
    assert granted.link in {event.link for event in peer.of(LinkDetached)}


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_hands_on_at_commit_and_commits_when_all_is_taken() -> None:
    peer = attached()
    peer.command(r.TxSelect())
    peer.publish("orders", b"one", b"two")
    said = [each for _, each in peer.read()]
    assert r.MessageAccept(((1, 2),)) in said or r.MessageAccept(((1, 1),)) in said
    assert not peer.of(DeliveriesReceived)
    peer.command(r.TxCommit(), r.ExecutionSync())
    assert [len(event.deliveries) for event in peer.of(DeliveriesReceived)] in ([2], [1, 1])
    assert peer.said(r.SessionCompleted) == []
    assert decide(peer, [1, 2], ACCEPTED)[-1] == r.SessionCompleted(((0, 4),))


def test_a_transaction_of_which_something_was_not_taken_ends_the_session() -> None:
    peer = attached()
    peer.command(r.TxSelect())
    peer.publish("orders", b"one")
    peer.command(r.TxCommit())
    peer.read()
    said = decide(peer, [1], RELEASED)
    (told,) = [each for each in said if isinstance(each, r.ExecutionException)]
    assert (told.error_code, told.command_id) == (ErrorCode.PRECONDITION_FAILED, 2)


def test_accepts_count_at_commit_and_are_void_after_rollback() -> None:
    peer = attached()
    peer.command(r.TxSelect())
    peer.subscribe("q")
    send(peer, outgoing(1))
    peer.command(r.MessageAccept(((0, 0),)), r.TxRollback())
    assert not peer.of(DeliveriesUpdated)
    peer.command(r.MessageAccept(((0, 0),)))
    assert not peer.of(DeliveriesUpdated)
    peer.command(r.TxCommit())
    (told,) = peer.of(DeliveriesUpdated)
    assert told.state == ACCEPTED


def test_what_was_accepted_in_a_transaction_may_still_be_released() -> None:
    peer = attached()
    peer.command(r.TxSelect())
    peer.subscribe("q")
    send(peer, outgoing(1))
    peer.command(r.MessageAccept(((0, 0),)), r.MessageRelease(((0, 0),), True), r.TxRollback())
    (told,) = peer.of(DeliveriesUpdated)
    assert told.state == MODIFIED_FAILED


# --- ends -----------------------------------------------------------------------------------------


def test_an_orderly_detach_gives_back_what_was_not_settled() -> None:
    peer = attached()
    peer.subscribe("q")
    send(peer, outgoing(1), outgoing(2))
    peer.control(r.SessionDetach(b"s"))
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state) == ([2, 1], MODIFIED_FAILED)
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"s", 0)]


def test_a_detach_waits_for_what_was_transferred_before_it() -> None:
    peer = attached(credit=0)
    peer.publish("orders", b"one")
    peer.control(r.SessionDetach(b"s"))
    assert peer.said(r.SessionDetached) == []
    peer.engine.execute(GrantCredit(links(peer, Role.RECEIVER)[0], 5))
    assert peer.said(r.SessionDetached) == [r.SessionDetached(b"s", 0)]


def test_a_close_does_not_wait_for_ever() -> None:
    peer = attached(credit=0)
    peer.publish("orders", b"one")
    peer.control(r.ConnectionClose(200, ""), 0)
    assert not peer.engine.finished
    due = peer.engine.deadline
    assert due is not None
    peer.now = due
    peer.take(peer.engine.handle_deadline(due))
    assert peer.engine.finished


def test_a_settled_delivery_needs_no_answer() -> None:
    peer = attached()
    peer.subscribe("q")
    assert len(send(peer, outgoing(1, settled=True))) == 1
    peer.command(r.MessageAccept(((0, 0),)))
    assert not peer.of(DeliveriesUpdated)
