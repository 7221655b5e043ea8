"""Rules of classes message and tx, on octets of 0-10 before a core."""

from typing import Any

import pytest

from router.errors import DecodeError
from router.routes.route import Route
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct, encode_command, encode_struct
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.queues import KEPT_OCTETS
from router.wire.v0_10.reply import ErrorCode
from router.wire.v0_10.types import with_size
from tests.support.peer_0_10 import Peer, Transfer, server
from tests.support.worker_0_10 import Client, Worker

ORDERS = Route(address="orders")
OWN = r.QueueDeclare(queue="own", exclusive=True)


def two() -> tuple[Client, Client]:
    """A publisher, and a subscriber to orders."""
    worker = Worker(ORDERS)
    return worker.connect(), worker.connect()


def own() -> Client:
    client = Worker(ORDERS).connect()
    client.command(OWN)
    client.read()
    return client


def result(peer: Peer) -> Any:
    (found,) = peer.said(r.ExecutionResult)
    return decode_struct(found.value or b"", 0, len(found.value or b""))


def error(peer: Peer) -> int | None:
    (found,) = peer.said(r.ExecutionException)
    return found.error_code


def told_of(transfer: Transfer) -> tuple[r.DeliveryProperties, r.MessageProperties]:
    delivery, message, _ = messages.read_header(transfer.header)
    return delivery, message


# --- what a message says --------------------------------------------------------------------------


def test_messages_of_equal_priority_keep_their_order_whatever_their_delivery_mode() -> None:
    publisher, subscriber = two()
    for number in range(6):
        told = r.DeliveryProperties(routing_key="orders", priority=4, delivery_mode=1 + number % 2)
        publisher.transfer(b"%d" % number, told)
    subscriber.subscribe("orders")
    assert [body for body, _ in subscriber.got()] == [b"%d" % number for number in range(6)]


def test_priorities_arrive_as_they_were_and_change_no_order() -> None:
    client = own()
    for priority in (0, 9, 4):
        client.transfer(
            b"%d" % priority, r.DeliveryProperties(routing_key="own", priority=priority)
        )
    client.subscribe("own")
    got = client.said(Transfer)
    assert [each.body for each in got] == [b"0", b"9", b"4"]
    assert [told_of(each)[0].priority for each in got] == [0, 9, 4]


def test_a_persistent_message_is_not_discarded_when_much_waits() -> None:
    client = own()
    told = r.DeliveryProperties(routing_key="own", delivery_mode=2)
    count = KEPT_OCTETS >> 20
    for _ in range(count):  # the last one is too much, and is refused by name
        client.transfer(bytes(1 << 20), told)
    assert error(client) == ErrorCode.RESOURCE_LIMIT_EXCEEDED


def test_what_nobody_receives_stays_its_publishers_and_is_not_complete() -> None:
    publisher, subscriber = two()
    publisher.transfer(b"1", r.DeliveryProperties(routing_key="orders", delivery_mode=2))
    assert publisher.said(r.SessionCompleted) == []
    subscriber.subscribe("orders")
    subscriber.command(r.MessageAccept(((0, 0),)))
    assert publisher.said(r.MessageAccept) == [r.MessageAccept(((0, 0),))]


def test_a_redelivered_mark_of_the_publisher_stays() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders")
    publisher.transfer(b"1", r.DeliveryProperties(routing_key="orders", redelivered=True))
    assert subscriber.got() == [(b"1", True)]


def test_what_a_session_left_unaccepted_comes_back_redelivered() -> None:
    publisher, first = two()
    first.subscribe("orders")
    publisher.publish("orders", b"1", mode=1)
    assert first.got() == [(b"1", False)]
    first.control(r.SessionDetach(b"s%d" % first.id))
    second = publisher.worker.connect()
    second.subscribe("orders")
    assert second.got() == [(b"1", True)]


def test_the_exchange_of_a_delivery_is_the_destination_of_its_transfer() -> None:
    worker = Worker(Route(address="amq.direct/#"))
    client, publisher = worker.connect(), worker.connect()
    client.command(OWN, r.ExchangeBind(queue="own", exchange="amq.direct", binding_key="k"))
    client.subscribe("own")
    client.read()
    told = r.DeliveryProperties(routing_key="k", exchange="a lie")
    publisher.transfer(b"1", told, command=r.MessageTransfer("amq.direct", 0, 0))
    (transfer,) = client.said(Transfer)
    assert (told_of(transfer)[0].exchange, told_of(transfer)[0].routing_key) == ("amq.direct", "k")


def test_message_properties_arrive_octet_for_octet() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders")
    message = r.MessageProperties(
        content_length=1,
        correlation_id=b"\xff",
        reply_to=r.ReplyTo("amq.direct", "k"),
        content_type="text/plain",
        app_id=b"app",
        application_headers={"k": 1},
    )
    publisher.transfer(b"1", r.DeliveryProperties(routing_key="orders"), message)
    (transfer,) = subscriber.said(Transfer)
    assert with_size(encode_struct(message), 4) in transfer.header


@pytest.mark.parametrize(("first", "last"), [(True, False), (False, True), (False, False)])
def test_fragments_of_a_message_are_refused(first: bool, last: bool) -> None:
    peer = server()
    peer.attach()
    parts = (
        r.DeliveryProperties(routing_key="orders"),
        r.FragmentProperties(first=first, last=last),
    )
    header = b"".join(with_size(encode_struct(each), 4) for each in parts)
    peer.feed(_transfer(header))
    assert error(peer) == ErrorCode.NOT_IMPLEMENTED


def test_a_fragment_that_is_the_whole_message_is_one() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders")
    parts = (
        r.DeliveryProperties(routing_key="orders"),
        r.FragmentProperties(first=True, last=True),
    )
    publisher.feed(_transfer(b"".join(with_size(encode_struct(each), 4) for each in parts)))
    assert subscriber.got() == [(b"x", False)]


def _transfer(header: bytes) -> bytes:
    return assembly(COMMAND, 1, encode_command(r.MessageTransfer("", 0, 0)), 65535, (header, b"x"))


def test_broken_fragment_properties_are_refused() -> None:
    broken = with_size(messages.FRAGMENT_PROPERTIES + b"\x04\x00", 4)
    with pytest.raises(DecodeError):
        messages.is_fragment(broken)
    peer = server()
    peer.attach()
    peer.feed(_transfer(broken))
    assert error(peer) == ErrorCode.COMMAND_INVALID


# --- acquiring, rejecting, releasing --------------------------------------------------------------


def test_a_reject_of_what_is_not_acquired_is_ignored() -> None:
    client = own()
    client.publish("own", b"1", mode=1)
    client.subscribe("own", acquire_mode=1)
    client.read()
    client.command(r.MessageReject(((0, 0),)), r.MessageAcquire(((0, 0),)))
    assert result(client) == r.Acquired(((0, 0),))


def test_what_is_not_acquired_is_released_unmarked() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders", acquire_mode=1)
    publisher.publish("orders", b"1", mode=1)
    subscriber.read()
    subscriber.command(r.MessageRelease(((0, 0),), set_redelivered=True))
    assert subscriber.got() == [(b"1", False)]


@pytest.mark.parametrize("numbers", [(), ((0, 0),), ((0, 7),)])
def test_every_acquire_has_one_answer_even_an_empty_one(
    numbers: tuple[tuple[int, int], ...],
) -> None:
    client = own()
    client.publish("own", b"1", mode=1)
    client.subscribe("own", acquire_mode=1)
    client.read()
    client.command(r.MessageAcquire(numbers))
    assert result(client) == r.Acquired(((0, 0),) if numbers else ())


def test_what_is_only_shown_without_being_accepted_cannot_be_acquired_and_stays() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders", acquire_mode=1, accept_mode=1)
    publisher.publish("orders", b"1", mode=1)
    assert subscriber.got() == [(b"1", False)]
    subscriber.command(r.MessageAcquire(((0, 0),)))
    assert result(subscriber) == r.Acquired(())
    other = publisher.worker.connect()
    other.subscribe("orders")
    subscriber.command(r.MessageCancel("orders"))
    assert other.got() == [(b"1", False)]


@pytest.mark.parametrize(
    "outcome",
    [
        r.MessageAccept(((0, 0),)),
        r.MessageReject(((0, 0),)),
        r.MessageRelease(((0, 0),)),
        r.MessageAcquire(((0, 0),)),
    ],
)
def test_a_transfer_of_a_cancelled_subscription_may_still_be_decided(outcome: r.Command) -> None:
    client = own()
    client.publish("own", b"1", mode=1)
    client.subscribe("own")
    client.read()
    client.command(r.MessageCancel("own"), outcome)
    assert client.said(r.ExecutionException) == []
    client.command(r.QueueQuery("own"))
    assert result_of_query(client) == (1 if isinstance(outcome, r.MessageRelease) else 0)


def result_of_query(client: Peer) -> int | None:
    found = client.said(r.ExecutionResult)[-1]
    told: r.QueueQueryResult = decode_struct(found.value or b"", 0, len(found.value or b""))
    return told.message_count


def test_released_messages_go_before_those_that_were_not_delivered() -> None:
    client = own()
    client.publish("own", b"1", b"2", b"3", b"4", mode=1)
    client.subscribe("own", messages=2)
    client.read()
    client.command(r.MessageRelease(((0, 1),)), r.MessageFlow("own", 0, 4))
    assert [body for body, _ in client.got()] == [b"1", b"2", b"3", b"4"]


# --- subscriptions --------------------------------------------------------------------------------


def test_a_queue_takes_more_than_sixteen_subscriptions() -> None:
    client = own()
    for number in range(20):
        client.command(
            r.MessageSubscribe(queue="own", destination=str(number), accept_mode=0, acquire_mode=0),
            r.MessageFlow(str(number), 1, None),
            r.MessageFlow(str(number), 0, 1),
        )
    assert client.said(r.ExecutionException) == []
    client.publish("own", *[b"x"] * 20, mode=1)
    destinations = {each.command.destination for each in client.said(Transfer)}
    assert destinations == {str(number) for number in range(20)}


def test_a_subscription_begins_without_credit_in_window_mode() -> None:
    client = own()
    client.publish("own", b"1", b"2", mode=1)
    subscribe = r.MessageSubscribe(queue="own", destination="d", accept_mode=0, acquire_mode=0)
    client.command(subscribe)
    client.command(r.MessageFlow("d", 0, 1))
    assert client.got() == []
    client.command(r.MessageFlow("d", 1, 1000))
    assert [body for body, _ in client.got()] == [b"1"]
    client.control(r.SessionCompleted(((0, 0),)))
    assert [body for body, _ in client.got()] == [b"2"]


def test_credit_in_octets_counts_header_and_body_without_frame_headers() -> None:
    client = own()
    client.publish("own", b"1", mode=1)
    client.subscribe("own")
    (transfer,) = client.said(Transfer)
    size = len(transfer.header) + 1
    client.command(r.MessageCancel("own"))
    client.publish("own", b"2", b"3", mode=1)
    client.subscribe("own", octets=2 * size - 1)
    assert [body for body, _ in client.got()] == [b"2"]
    client.command(r.MessageFlow("own", 1, 1))
    assert [body for body, _ in client.got()] == [b"3"]


def test_a_flow_mode_is_changed_behind_stop() -> None:
    client = own()
    client.subscribe("own", octets=100)
    client.command(r.MessageStop("own"), r.MessageSetFlowMode("own", 1))
    assert client.said(r.ExecutionException) == []
    client.publish("own", b"1", mode=1)
    assert client.got() == []


def test_resume_knows_no_resume_id_and_asks_for_an_exchange_that_is_there() -> None:
    peer = server()
    peer.attach()
    peer.refuses.add("shop")
    peer.command(r.MessageResume("amq.direct", "r-1"))
    assert result(peer) == r.MessageResumeResult(0)
    peer.command(r.MessageResume("shop", "r-1"))
    assert error(peer) == ErrorCode.NOT_FOUND


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_is_not_selected_beside_a_subscription_of_accept_mode_none() -> None:
    client = own()
    client.subscribe("own", accept_mode=1)
    client.command(r.TxSelect())
    assert error(client) == ErrorCode.NOT_ALLOWED


def test_one_may_be_selected_when_that_subscription_is_cancelled() -> None:
    client = own()
    client.subscribe("own", accept_mode=1)
    client.command(r.MessageCancel("own"), r.TxSelect())
    assert client.said(r.ExecutionException) == []


def test_what_is_published_in_a_transaction_is_there_when_it_commits() -> None:
    publisher, subscriber = two()
    subscriber.subscribe("orders")
    publisher.command(r.TxSelect())
    publisher.publish("orders", b"1")
    assert subscriber.got() == []
    publisher.command(r.TxCommit())
    assert subscriber.got() == [(b"1", False)]


def test_what_was_rolled_back_is_complete_before_the_rollback_and_still_acquired() -> None:
    client = own()
    client.publish("own", b"1", mode=1)
    client.subscribe("own")
    client.command(r.TxSelect())
    client.publish("own", b"2", mode=1)
    client.command(r.MessageAccept(((0, 0),)))
    client.read()
    client.command(r.TxRollback())
    assert client.said(r.SessionCompleted)[-1].commands is not None
    assert client.got() == []
    client.command(r.MessageRelease(((0, 0),)))
    assert client.got() == [(b"1", False)]
