"""Rules of classes exchange and queue, on octets of 0-10 before a core."""

from typing import Any

import pytest

from router.routes.route import Distribution, Route
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import decode_struct
from router.wire.v0_10.reply import ErrorCode
from tests.support.peer_0_10 import Peer, Transfer
from tests.support.worker_0_10 import Client, Worker

ROUTES = [Route(address="orders"), Route(address="amq.*/#"), Route(address="shop/#")]
OWN = r.QueueDeclare(queue="own", exclusive=True)
TYPES = ["direct", "fanout", "topic", "headers"]


def connected() -> Client:
    client = Worker(*ROUTES).connect()
    client.command(OWN)
    client.read()
    return client


def error(peer: Peer) -> int | None:
    (found,) = peer.said(r.ExecutionException)
    return found.error_code


def result(peer: Peer) -> Any:
    (found,) = peer.said(r.ExecutionResult)
    return decode_struct(found.value or b"", 0, len(found.value or b""))


def is_well(peer: Peer) -> bool:
    return peer.said(r.ExecutionException) == []


# --- exchanges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_exchanges_of_every_standard_type_may_be_declared(kind: str) -> None:
    client = connected()
    client.command(r.ExchangeDeclare(exchange="e", type=kind), r.ExchangeQuery("e"))
    assert result(client).type == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", "direct"), *((f"amq.{kind}", kind) for kind in TYPES), ("amq.match", "headers")],
)
def test_an_exchange_of_every_type_is_there_before_anybody_declares_it(
    name: str, kind: str
) -> None:
    client = connected()
    client.command(r.ExchangeQuery(name))
    assert result(client) == r.ExchangeQueryResult(type=kind, durable=True)


@pytest.mark.parametrize("kind", TYPES)
def test_a_queue_may_be_bound_to_each_of_them(kind: str) -> None:
    worker = Worker(Route(address="#", distribution=Distribution.MULTICAST))
    client, publisher = worker.connect(), worker.connect()
    client.command(OWN)
    client.command(r.ExchangeBind(queue="own", exchange=f"amq.{kind}", binding_key="k"))
    assert is_well(client)
    client.subscribe("own")
    told = r.DeliveryProperties(routing_key="k")
    publisher.transfer(b"1", told, command=r.MessageTransfer(f"amq.{kind}", 1, 0))
    assert client.got() == [(b"1", False)]


@pytest.mark.parametrize(
    "command",
    [
        r.ExchangeDeclare(type="direct"),
        r.ExchangeDelete(),
        r.ExchangeBind(queue="own", binding_key="k"),
        r.ExchangeUnbind(queue="own", binding_key="k"),
    ],
)
def test_the_default_exchange_cannot_be_named(command: r.Command) -> None:
    client = connected()
    client.command(command)
    assert error(client) == ErrorCode.INVALID_ARGUMENT


def test_more_than_sixteen_exchanges_may_be_declared() -> None:
    client = connected()
    client.command(*[r.ExchangeDeclare(exchange=f"e{n}", type="topic") for n in range(100)])
    assert is_well(client)


@pytest.mark.parametrize("durable", [True, False])
def test_exchanges_may_be_durable_or_not_and_a_second_declare_changes_nothing(
    durable: bool,
) -> None:
    client = connected()
    for flag in (durable, not durable):
        client.command(
            r.ExchangeDeclare(exchange="e", type="topic", durable=flag, auto_delete=flag)
        )
    client.command(r.ExchangeQuery("e"))
    assert result(client) == r.ExchangeQueryResult(type="topic", durable=durable)


def test_an_alternate_exchange_is_refused() -> None:
    client = connected()
    client.command(r.ExchangeDeclare(exchange="e", type="topic", alternate_exchange="amq.fanout"))
    assert error(client) == ErrorCode.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    "command",
    [
        r.ExchangeDeclare(exchange="e", type="topic", arguments={"qpid.ive": 1}),
        r.ExchangeBind(
            queue="own", exchange="amq.topic", binding_key="k", arguments={"selector": "a=1"}
        ),
        r.QueueDeclare(queue="orders", durable=True, arguments={"qpid.max_size": 1}),
        r.QueueDeclare(queue="other", exclusive=True, arguments={"qpid.max_size": 1}),
    ],
)
def test_arguments_that_mean_nothing_here_are_refused(command: r.Command) -> None:
    client = connected()
    client.command(command)
    assert error(client) == ErrorCode.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    "command",
    [
        r.ExchangeDeclare(exchange="amq.topic", passive=True, arguments={"x": 1}),
        r.QueueDeclare(queue="orders", passive=True, arguments={"x": 1}),
    ],
)
def test_arguments_of_a_passive_declare_are_ignored(command: r.Command) -> None:
    client = connected()
    client.command(command)
    assert is_well(client)


def test_deleting_an_exchange_ends_its_bindings() -> None:
    client = connected()
    bind = r.ExchangeBind(queue="own", exchange="shop", binding_key="eu")
    client.command(r.ExchangeDeclare(exchange="shop", type="direct"), bind)
    client.command(r.ExchangeDelete("shop"), r.ExchangeUnbind("own", "shop", "eu"))
    assert error(client) == ErrorCode.NOT_FOUND


def test_an_exchange_in_use_is_not_deleted_if_that_is_asked_for() -> None:
    client = connected()
    bind = r.ExchangeBind(queue="own", exchange="shop", binding_key="eu")
    client.command(r.ExchangeDeclare(exchange="shop", type="direct"), bind)
    client.command(r.ExchangeUnbind("own", "shop", "eu"), r.ExchangeDelete("shop", True))
    assert is_well(client)
    client.command(r.ExchangeDeclare(exchange="shop", type="direct"), bind)
    client.command(r.ExchangeDelete("shop", True))
    assert error(client) == ErrorCode.PRECONDITION_FAILED


# --- bindings -------------------------------------------------------------------------------------


def test_binding_again_is_no_error_and_changes_no_arguments() -> None:
    client = connected()
    for value in ("a", "b"):
        client.command(
            r.ExchangeBind(
                queue="own", exchange="amq.match", binding_key="k", arguments={"h": value}
            )
        )
    assert is_well(client)
    for value, is_bound in (("a", True), ("b", False)):
        client.command(
            r.ExchangeBound(
                exchange="amq.match", queue="own", binding_key="k", arguments={"h": value}
            )
        )
        assert result(client).args_not_matched is not is_bound


def test_a_queue_takes_many_bindings() -> None:
    client = connected()
    for exchange in ("amq.direct", "amq.topic", "amq.fanout", "shop"):
        for key in "abc":
            client.command(r.ExchangeBind(queue="own", exchange=exchange, binding_key=key))
    assert is_well(client)


def test_a_message_that_matches_several_bindings_comes_once() -> None:
    worker = Worker(Route(address="amq.topic/#", distribution=Distribution.MULTICAST))
    client, publisher = worker.connect(), worker.connect()
    client.command(OWN)
    for key in ("animals.dogs", "animals.*", "animals.#", "#"):
        client.command(r.ExchangeBind(queue="own", exchange="amq.topic", binding_key=key))
    client.subscribe("own")
    told = r.DeliveryProperties(routing_key="animals.dogs")
    publisher.transfer(b"1", told, command=r.MessageTransfer("amq.topic", 1, 0))
    assert client.got() == [(b"1", False)]


@pytest.mark.parametrize("name", ["", "nowhere", "orders"])
@pytest.mark.parametrize("verb", ["bind", "unbind", "delete", "purge"])
def test_a_queue_that_is_not_there_or_not_the_sessions_own_is_refused_by_its_code(
    name: str, verb: str
) -> None:
    commands: dict[str, r.Command] = {
        "bind": r.ExchangeBind(queue=name, exchange="amq.direct", binding_key="k"),
        "unbind": r.ExchangeUnbind(name, "amq.direct", "k"),
        "delete": r.QueueDelete(name),
        "purge": r.QueuePurge(name),
    }
    client = connected()
    client.command(commands[verb])
    assert (
        error(client)
        == {
            "": ErrorCode.INVALID_ARGUMENT,
            "nowhere": ErrorCode.NOT_FOUND,
            "orders": ErrorCode.NOT_ALLOWED,
        }[name]
    )


@pytest.mark.parametrize("command", [r.ExchangeBind, r.ExchangeUnbind])
def test_an_exchange_that_no_route_gives_cannot_be_bound_to(command: Any) -> None:
    client = connected()
    client.command(command(queue="own", exchange="none", binding_key="k"))
    assert error(client) == ErrorCode.NOT_FOUND


def test_unbinding_by_another_key_is_not_found() -> None:
    client = connected()
    client.command(
        r.ExchangeBind(queue="own", exchange="amq.direct", binding_key="k"),
        r.ExchangeUnbind("own", "amq.direct", "other"),
    )
    assert error(client) == ErrorCode.NOT_FOUND


# --- queues ---------------------------------------------------------------------------------------


def test_more_than_256_queues_may_be_declared() -> None:
    client = Worker().connect()
    for number in range(300):
        client.command(r.QueueDeclare(queue=f"q{number}", exclusive=True))
    assert is_well(client)
    client.command(r.QueueQuery("q299"))
    assert result(client).queue == "q299"


def test_messages_and_packets_go_to_one_queue_in_any_mix() -> None:
    client = connected()
    client.publish("own", b"1", mode=1)
    client.packet(o.StreamPublish(routing_key="own"), b"2")
    client.subscribe("own")
    client.publish("own", b"3", mode=1)
    assert [body for body, _ in client.got()] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("name", "code"), [("own", None), ("orders", None), ("none", ErrorCode.NOT_FOUND)]
)
def test_a_passive_declare_tells_whether_the_queue_is_there(name: str, code: int | None) -> None:
    client = connected()
    client.command(r.QueueDeclare(queue=name, passive=True))
    assert [each.error_code for each in client.said(r.ExecutionException)] == (
        [] if code is None else [code]
    )


def test_flags_of_a_second_declare_change_nothing() -> None:
    client = connected()
    client.command(r.QueueDeclare(queue="own", exclusive=True, durable=True, auto_delete=True))
    client.command(r.QueueQuery("own"))
    found = result(client)
    assert (found.durable, found.auto_delete, found.exclusive) == (False, False, True)


def test_a_routed_queue_is_durable_and_shared_and_a_sessions_own_is_neither() -> None:
    client = connected()
    client.command(r.QueueDeclare(queue="orders", durable=True), r.QueueQuery("orders"))
    found = result(client)
    assert (found.durable, found.exclusive) == (True, False)
    client.command(r.QueueQuery("own"))
    found = result(client)
    assert (found.durable, found.exclusive) == (False, True)


def test_an_alternate_exchange_of_a_queue_is_refused() -> None:
    client = connected()
    client.command(r.QueueDeclare(queue="q", exclusive=True, alternate_exchange="amq.fanout"))
    assert error(client) == ErrorCode.NOT_IMPLEMENTED


def test_an_exclusive_queue_ends_with_its_session() -> None:
    client = connected()
    client.publish("own", b"1", mode=1)
    client.control(r.SessionDetach(b"s%d" % client.id))
    client.attach(b"next")
    client.command(r.QueueQuery("own"))
    assert result(client) == r.QueueQueryResult()


def test_an_auto_delete_queue_goes_with_its_last_subscription_and_not_before_one_came() -> None:
    client = connected()
    client.command(r.QueueDeclare(queue="q", auto_delete=True), r.QueueQuery("q"))
    assert result(client).queue == "q"
    client.subscribe("q")
    client.command(r.MessageCancel("q"), r.QueueQuery("q"))
    assert result(client) == r.QueueQueryResult()


def test_another_connection_has_a_queue_of_its_own_by_the_same_name() -> None:
    worker = Worker()
    first, second = worker.connect(), worker.connect()
    for client in (first, second):
        client.command(OWN)
        assert is_well(client)
    first.publish("own", b"1", mode=1)
    second.subscribe("own")
    assert second.got() == []


def test_a_queue_with_subscriptions_is_not_deleted_if_unused_is_asked_for() -> None:
    client = connected()
    client.subscribe("own")
    client.command(r.QueueDelete("own", if_unused=True))
    assert error(client) == ErrorCode.PRECONDITION_FAILED


def test_a_queue_with_messages_is_not_deleted_if_empty_is_asked_for() -> None:
    client = connected()
    client.publish("own", b"1", mode=1)
    client.command(r.QueueDelete("own", if_empty=True))
    assert error(client) == ErrorCode.PRECONDITION_FAILED


def test_purging_empties_a_queue_and_leaves_what_was_sent() -> None:
    client = connected()
    client.publish("own", b"1", b"2", b"3", mode=1)
    client.subscribe("own", messages=1)
    client.read()
    client.command(r.QueuePurge("own"), r.QueueQuery("own"))
    assert result(client).message_count == 0
    client.command(r.MessageRelease(((0, 0),)), r.MessageFlow("own", 0, 9))
    assert client.got() == [(b"1", False)]


def test_what_is_subscribed_to_a_deleted_queue_is_sent_nothing_more() -> None:
    client = connected()
    client.subscribe("own")
    client.command(r.QueueDelete("own"))
    client.publish("own", b"1", mode=1)
    assert client.said(Transfer) == []
