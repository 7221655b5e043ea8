"""The client engine of 0-9-1 against RabbitMQ, over a plain blocking socket."""

import itertools
import random
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest

from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import (
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, REJECTED, RELEASED, DeliveryState, Rejected
from router.model.terminus import Role, SenderSettleMode
from router.wire.mechanisms import MechanismClient
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.client import ClientEngine
from router.wire.v0_9_1.content import Properties, content_layout, properties_of
from router.wire.v0_9_1.types import Seconds, TableDecimal
from router.wire.v1_0.types import Byte, Float, Int, Short
from tests.support import rabbitmq
from tests.support.amqp_values import same
from tests.support.basic_messages import content
from tests.support.basic_peer import attach
from tests.support.basic_peer import settings as engine_settings

pytestmark = [pytest.mark.interop, pytest.mark.long]


@pytest.fixture(scope="module")
def node(rabbit_node: rabbitmq.RabbitNode) -> rabbitmq.RabbitNode:
    return rabbit_node


class Dialer:
    """A connection to a broker, driven by hand."""

    def __init__(self, port: int, **options: Any) -> None:
        made = engine_settings(
            is_server=False,
            container="router-under-test",
            sasl_client=lambda: MechanismClient(user="guest", password="guest"),
            **options,
        )
        self.engine = ClientEngine(made)
        self.events: list[Event] = []
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(0.2)

    def do(self, *commands: Command) -> None:
        for command in commands:
            self.engine.execute(command)
        self.flush()

    def flush(self) -> None:
        while view := self.engine.data_to_send():
            self.engine.bytes_sent(self.socket.send(view))

    def turn(self) -> None:
        """Sends, waits a little for octets, and does what time asks for."""
        self.flush()
        now = time.monotonic()
        try:
            octets = self.socket.recv(1 << 18)
        except TimeoutError:
            octets = None
        if octets == b"":
            self.events += self.engine.receive_eof(now)
        elif octets is not None:
            self.events += self.engine.receive_data(octets, now)
        deadline = self.engine.deadline
        if deadline is not None and deadline <= now:
            self.events += self.engine.handle_deadline(now)

    def until(self, is_there: Callable[[], object], seconds: float = 30.0) -> None:
        """Turns until something is there."""
        give_up_at = time.monotonic() + seconds
        while not is_there():
            assert time.monotonic() < give_up_at, self.events[-5:]
            self.turn()
        self.flush()

    def find(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def received(self) -> list[ReceivedDelivery]:
        return [one for event in self.find(DeliveriesReceived) for one in event.deliveries]

    def outcomes(self) -> dict[int, DeliveryState | None]:
        return {
            number: event.state
            for event in self.find(DeliveriesUpdated)
            for number in event.numbers
        }

    def attached(self, link: int) -> bool:
        return any(event.link == link for event in self.find(LinkAttached))

    def close(self) -> None:
        self.do(CloseConnection())
        self.until(lambda: self.engine.finished)
        self.socket.close()


@pytest.fixture
def dialer(node: rabbitmq.RabbitNode) -> Iterator[Dialer]:
    one = Dialer(node.port)
    one.until(lambda: one.find(ConnectionOpened))
    yield one
    if not one.engine.finished:
        one.close()


def delivery(number: int, payload: bytes, **options: Any) -> OutgoingDelivery:
    return OutgoingDelivery(
        DeliveryNumber(number), DeliveryTag(b"t"), payload, Protocol.AMQP_0_9_1, **options
    )


def bodies(deliveries: list[ReceivedDelivery]) -> list[bytes]:
    return [one.payload[content_layout(one.payload).body_start :] for one in deliveries]


def declared(dialer: Dialer, queue: str, link: int = 1) -> None:
    dialer.do(attach(Role.SENDER, queue, link, declare={"durable": False}))
    dialer.until(lambda: dialer.find(CreditGranted))


def publish(dialer: Dialer, payloads: list[bytes], link: int = 1) -> None:
    dialer.do(SendDeliveries(LinkId(link), [delivery(n, one) for n, one in enumerate(payloads, 1)]))
    dialer.until(lambda: len(dialer.outcomes()) == len(payloads))


def settle(dialer: Dialer, link: int, state: DeliveryState | None, *numbers: int) -> None:
    given = [DeliveryNumber(number) for number in numbers]
    dialer.do(UpdateDeliveries(LinkId(link), given, state, True))


def test_the_broker_tells_who_it_is(dialer: Dialer) -> None:
    [opened] = dialer.find(ConnectionOpened)
    assert opened.properties["product"] == "RabbitMQ"
    assert opened.container.startswith("east-")
    dialer.close()
    assert dialer.find(ConnectionClosed) == [ConnectionClosed(None, False)]


def test_a_wrong_password_is_an_unauthorized_access(node: rabbitmq.RabbitNode) -> None:
    one = Dialer(node.port)
    one.engine = ClientEngine(
        attrs.evolve(
            one.engine.settings,
            sasl_client=lambda: MechanismClient(user="guest", password="wrong"),
        )
    )
    one.until(lambda: one.engine.finished)
    [ended] = one.find(ConnectionClosed)
    assert ended.condition.name == conditions.UNAUTHORIZED_ACCESS
    one.socket.close()


def test_a_host_that_is_not_there_is_refused(node: rabbitmq.RabbitNode) -> None:
    one = Dialer(node.port, hostname="nowhere")
    one.until(lambda: one.engine.finished)
    [ended] = one.find(ConnectionClosed)
    assert ended.by_peer
    assert "nowhere" in str(ended.condition.description)
    one.socket.close()


@pytest.mark.parametrize("role", [Role.SENDER, Role.RECEIVER])
@pytest.mark.parametrize("address", ["no-queue", "no-exchange/key"])
def test_what_is_not_there_is_refused_and_the_connection_goes_on(
    dialer: Dialer, role: Role, address: str
) -> None:
    dialer.do(attach(role, address))
    dialer.until(lambda: dialer.find(LinkDetached))
    [detached] = dialer.find(LinkDetached)
    assert detached.condition.name == conditions.NOT_FOUND
    declared(dialer, "there", 2)


def test_a_thousand_messages_go_there_and_back_octet_by_octet(dialer: Dialer) -> None:
    rng = random.Random(1)
    declared(dialer, "thousand")
    payloads = [
        content(
            Properties(message_id=str(n), content_type="a/b", delivery_mode=1 + n % 2),
            rng.randbytes(rng.choice((0, 10, 1000, 200_000 if n % 100 == 0 else 5))),
            routing_key=b"thousand",
        )
        for n in range(1000)
    ]
    publish(dialer, payloads)
    assert set(dialer.outcomes().values()) == {ACCEPTED}
    dialer.events.clear()
    dialer.do(attach(Role.RECEIVER, "thousand", 2), GrantCredit(LinkId(2), 100))
    seen: list[ReceivedDelivery] = []

    def all_there() -> bool:
        new = dialer.received()
        dialer.events.clear()
        if new:
            seen.extend(new)
            settle(dialer, 2, ACCEPTED, *(one.number for one in new))
            dialer.do(GrantCredit(LinkId(2), 100))
        return len(seen) == 1000

    dialer.until(all_there)
    assert [one.payload for one in seen] == payloads


HEADERS = {
    "bool": True,
    "byte": Byte(-5),
    "short": Short(-500),
    "int": Int(-50_000),
    "long": -5_000_000_000,
    "float": Float(0.5),
    "double": 0.25,
    "text": "é",
    "octets": b"\xff\x00",
    "list": [1, "two", [True]],
    "table": {"a": {"b": None}},
    "void": None,
    "time": Seconds(1_700_000_000),
    "decimal": TableDecimal(2, -123),
}


def test_every_type_of_a_header_survives_the_broker(dialer: Dialer) -> None:
    declared(dialer, "headers")
    told = Properties(
        headers=HEADERS,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="600000",
        timestamp=Seconds(1_700_000_000),
        type="t",
        app_id="a",
    )
    publish(dialer, [content(told, b"body")])
    dialer.do(attach(Role.RECEIVER, "headers", 2), GrantCredit(LinkId(2), 1))
    dialer.until(dialer.received)
    [one] = dialer.received()
    found = properties_of(one.payload, content_layout(one.payload))
    assert found.headers is not None
    assert same(sorted(found.headers.items()), sorted(HEADERS.items()))
    assert attrs.evolve(found, headers=None) == attrs.evolve(told, headers=None)
    assert one.ttl_milliseconds == 600_000


def test_what_no_binding_takes_comes_back_as_not_found(dialer: Dialer) -> None:
    dialer.do(attach(Role.SENDER, "amq.direct/nowhere"))
    dialer.until(lambda: dialer.find(CreditGranted))
    payloads = [content(Properties(message_id=str(n)), b"same") for n in range(50)]
    publish(dialer, payloads)
    for state in dialer.outcomes().values():
        assert isinstance(state, Rejected)
        assert state.error is not None
        assert state.error.name == conditions.NOT_FOUND


def test_rejected_is_dropped_and_released_comes_again_marked(dialer: Dialer) -> None:
    declared(dialer, "outcomes")
    publish(dialer, [content(Properties(), b"%d" % n) for n in range(4)])
    dialer.do(attach(Role.RECEIVER, "outcomes", 2), GrantCredit(LinkId(2), 4))
    dialer.until(lambda: len(dialer.received()) == 4)
    numbers = [one.number for one in dialer.received()]
    dialer.events.clear()
    settle(dialer, 2, REJECTED, numbers[0])
    settle(dialer, 2, ACCEPTED, numbers[1])
    settle(dialer, 2, RELEASED, numbers[2])
    settle(dialer, 2, None, numbers[3])
    dialer.do(GrantCredit(LinkId(2), 4))
    dialer.until(lambda: len(dialer.received()) == 2)
    again = dialer.received()
    assert sorted(bodies(again)) == [b"2", b"3"]
    assert [one.delivery_count for one in again] == [1, 1]


def test_what_was_not_settled_comes_again_after_the_link_is_detached(dialer: Dialer) -> None:
    declared(dialer, "unsettled")
    publish(dialer, [content(Properties(), b"%d" % n) for n in range(3)])
    dialer.do(attach(Role.RECEIVER, "unsettled", 2), GrantCredit(LinkId(2), 3))
    dialer.until(lambda: len(dialer.received()) == 3)
    settle(dialer, 2, ACCEPTED, dialer.received()[1].number)
    dialer.do(DetachLink(LinkId(2), True))
    dialer.until(lambda: dialer.find(LinkDetached))
    dialer.events.clear()
    dialer.do(attach(Role.RECEIVER, "unsettled", 3), GrantCredit(LinkId(3), 9, drain=True))
    dialer.until(lambda: dialer.find(CreditReturned))
    assert bodies(dialer.received()) == [b"0", b"2"]


def test_credit_is_never_exceeded_and_a_drain_is_exact(dialer: Dialer) -> None:
    declared(dialer, "credit")
    publish(dialer, [content(Properties(), b"%d" % n) for n in range(20)])
    dialer.do(attach(Role.RECEIVER, "credit", 2), GrantCredit(LinkId(2), 5))
    dialer.until(lambda: len(dialer.received()) == 5)
    settle(dialer, 2, ACCEPTED, *(one.number for one in dialer.received()))
    for _ in range(5):
        dialer.turn()
    assert len(dialer.received()) == 5
    dialer.do(GrantCredit(LinkId(2), 3))
    dialer.until(lambda: len(dialer.received()) == 8)
    dialer.do(GrantCredit(LinkId(2), 100, drain=True))
    dialer.until(lambda: dialer.find(CreditReturned))
    assert bodies(dialer.received()) == [b"%d" % n for n in range(20)]


def test_credit_taken_back_lets_others_have_what_was_prefetched(
    dialer: Dialer, node: rabbitmq.RabbitNode
) -> None:
    declared(dialer, "shared")
    publish(dialer, [content(Properties(), b"%d" % n) for n in range(10)])
    dialer.do(attach(Role.RECEIVER, "shared", 2), GrantCredit(LinkId(2), 4))
    dialer.until(lambda: len(dialer.received()) == 4)
    settle(dialer, 2, ACCEPTED, *(one.number for one in dialer.received()))
    dialer.do(GrantCredit(LinkId(2), 0, drain=True))
    dialer.until(lambda: dialer.find(CreditReturned))
    other = Dialer(node.port)
    other.until(lambda: other.find(ConnectionOpened))
    other.do(attach(Role.RECEIVER, "shared", 1), GrantCredit(LinkId(1), 10))

    def are_there() -> bool:
        dialer.turn()  # what it holds goes back after a while
        return len(other.received()) == 6

    other.until(are_there)
    assert sorted(bodies(other.received())) == [b"%d" % n for n in range(4, 10)]
    other.close()


def test_a_settled_link_sends_and_takes_without_outcomes(dialer: Dialer) -> None:
    declared(dialer, "settled")
    mode = SenderSettleMode.SETTLED
    dialer.do(attach(Role.SENDER, "settled", 2, mode))
    dialer.until(lambda: len(dialer.find(CreditGranted)) == 2)
    dialer.do(
        SendDeliveries(
            LinkId(2),
            [delivery(n, content(Properties(), b"%d" % n), settled=True) for n in range(10)],
        )
    )
    dialer.do(attach(Role.RECEIVER, "settled", 3, mode), GrantCredit(LinkId(3), 4))
    dialer.until(lambda: len(dialer.received()) == 4)
    dialer.do(GrantCredit(LinkId(3), 6))
    dialer.until(lambda: len(dialer.received()) == 10)
    assert all(one.settled for one in dialer.received())
    assert dialer.outcomes() == {}


def test_an_exchange_is_a_source_of_what_is_published_from_now_on(dialer: Dialer) -> None:
    dialer.do(attach(Role.RECEIVER, "amq.topic/kern.*", 1), GrantCredit(LinkId(1), 10))
    dialer.until(lambda: dialer.attached(1))
    dialer.do(attach(Role.SENDER, "amq.topic/kern.warn", 2))
    dialer.until(lambda: dialer.find(CreditGranted))
    publish(dialer, [content(Properties(), b"warned")], link=2)
    dialer.until(dialer.received)
    assert bodies(dialer.received()) == [b"warned"]


def test_a_queue_deleted_under_a_consumer_ends_its_link(
    dialer: Dialer, node: rabbitmq.RabbitNode
) -> None:
    told = {"durable": False, "auto-delete": True, "arguments": {"x-expires": 1000}}
    dialer.do(attach(Role.RECEIVER, "short-lived", 1, declare=told))
    dialer.until(lambda: dialer.attached(1))
    dialer.do(GrantCredit(LinkId(1), 1))
    dialer.turn()
    other = Dialer(node.port)
    other.until(lambda: other.find(ConnectionOpened))
    delete_queue(other, "short-lived")
    dialer.until(lambda: dialer.find(LinkDetached))
    [detached] = dialer.find(LinkDetached)
    assert detached.condition.name == conditions.RESOURCE_DELETED
    other.close()


def test_a_queue_deleted_under_a_publisher_ends_its_link_and_rejects_nothing(
    dialer: Dialer, node: rabbitmq.RabbitNode
) -> None:
    declared(dialer, "deleted")
    publish(dialer, [content(Properties(), b"there")])
    assert set(dialer.outcomes().values()) == {ACCEPTED}
    dialer.events.clear()
    other = Dialer(node.port)
    other.until(lambda: other.find(ConnectionOpened))
    delete_queue(other, "deleted")
    for link in itertools.count(2):  # until it is gone
        other.do(attach(Role.RECEIVER, "deleted", link))
        other.until(partial(other.attached, link))
        if other.find(LinkDetached):
            break
    other.close()
    publish(dialer, [content(Properties(), b"%d" % number) for number in range(50)])
    assert set(dialer.outcomes().values()) == {RELEASED}
    dialer.until(lambda: dialer.find(LinkDetached))
    assert dialer.find(LinkDetached)[0].condition.name == conditions.NOT_FOUND


def delete_queue(dialer: Dialer, queue: str) -> None:
    """Deletes a queue behind the engine's back, on a channel of its own."""
    dialer.do(attach(Role.RECEIVER, queue, 1))
    dialer.until(lambda: dialer.attached(1))
    dialer.engine.send_method(1, m.QueueDelete(queue=queue, no_wait=True))
    dialer.flush()


def test_a_user_id_of_somebody_else_does_not_cost_the_channel(dialer: Dialer) -> None:
    declared(dialer, "users")
    publish(
        dialer,
        [content(Properties(user_id=user, message_id=user), b"") for user in ("guest", "root")],
    )
    assert set(dialer.outcomes().values()) == {ACCEPTED}
    dialer.do(attach(Role.RECEIVER, "users", 2), GrantCredit(LinkId(2), 2))
    dialer.until(lambda: len(dialer.received()) == 2)
    found = [properties_of(one.payload, content_layout(one.payload)) for one in dialer.received()]
    assert found[0] == Properties(user_id="guest", message_id="guest")
    assert found[1] == Properties(message_id="root", headers={"x-amqp-user-id": "root"})


@pytest.mark.parametrize(
    "odd", [Properties(expiration="tomorrow"), Properties(headers={"CC": "no list"})]
)
def test_a_message_that_the_broker_objects_to_is_rejected_in_its_words(
    dialer: Dialer, odd: Properties
) -> None:
    declared(dialer, "objections")
    publish(dialer, [content(odd, b"odd")])
    [state] = dialer.outcomes().values()
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.name == conditions.PRECONDITION_FAILED
    dialer.until(lambda: dialer.find(LinkDetached))
    dialer.events.clear()
    declared(dialer, "objections", 2)
    publish(dialer, [content(Properties(), b"plain")], 2)
    assert set(dialer.outcomes().values()) == {ACCEPTED}
