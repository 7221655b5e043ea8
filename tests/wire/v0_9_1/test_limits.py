"""A local queue keeps to the limits that its client declared it with."""

from typing import Any

import pytest

from router.model.capabilities import Protocol
from router.model.commands import AttachLink, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, DeliveriesUpdated, Event, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.terminus import Source
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.posts import DROPPED
from router.wire.v0_9_1.queues import BOUNDED_MOST, LOCAL_CREDIT
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from tests.support.basic_messages import content
from tests.support.basic_peer import ClientPeer, Content


def local(**arguments: Any) -> tuple[ClientPeer, LinkId, str]:
    """A client with a queue of its own."""
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(exclusive=True, arguments=arguments))
    link = peer.accept()
    [declared] = peer.methods()
    assert isinstance(declared, m.QueueDeclareOk)
    return peer, link, declared.queue


def deliver(
    peer: ClientPeer, link: LinkId, *numbers: int, body: bytes = b"", **properties: Any
) -> list[Event]:
    return peer.do(
        SendDeliveries(
            link,
            [
                OutgoingDelivery(
                    DeliveryNumber(number),
                    DeliveryTag(b"t"),
                    content(Properties(**properties), body or b"%d" % number),
                    Protocol.AMQP_0_9_1,
                )
                for number in numbers
            ],
        )
    )


def bodies(peer: ClientPeer) -> list[bytes]:
    return [one.body for one in peer.methods() if isinstance(one, Content)]


def dropped(events: list[Event]) -> list[int]:
    """Numbers of what was not taken."""
    return [
        number
        for event in events
        if isinstance(event, DeliveriesUpdated) and event.state == DROPPED
        for number in event.numbers
    ]


def waiting(peer: ClientPeer, name: str) -> int:
    peer.send(1, m.QueueDeclare(queue=name, passive=True))
    [declared] = peer.methods()
    assert isinstance(declared, m.QueueDeclareOk)
    return declared.message_count


def consume(peer: ClientPeer, name: str, prefetch: int = 0) -> list[bytes]:
    if prefetch:
        peer.send(1, m.BasicQos(prefetch_count=prefetch))
    peer.send(1, m.BasicConsume(queue=name, consumer_tag="c"))
    return bodies(peer)


# --- time -----------------------------------------------------------------------------------------


def test_a_message_waits_no_longer_than_its_queue_lets_it() -> None:
    peer, link, name = local(**{"x-message-ttl": 1000})
    deliver(peer, link, 1)
    assert dropped(peer.wait(0.6)) == []
    deliver(peer, link, 2)
    assert dropped(peer.wait(0.6)) == [1]
    assert waiting(peer, name) == 1
    assert dropped(peer.wait(0.6)) == [2]
    assert peer.engine.deadline is None


def test_time_is_counted_from_the_arrival_though_nothing_was_heard_of_the_client_since() -> None:
    peer, link, name = local(**{"x-message-ttl": 1000})
    peer.now += 3600
    deliver(peer, link, 1)
    peer.wait(0.5)
    assert consume(peer, name) == [b"1"]


def test_a_message_waits_no_longer_than_it_says_itself() -> None:
    peer, link, name = local()
    deliver(peer, link, 1, expiration="400")
    deliver(peer, link, 2, expiration="tomorrow")
    deliver(peer, link, 3)
    assert dropped(peer.wait(0.5)) == [1]
    assert waiting(peer, name) == 2


def test_a_message_of_another_protocol_waits_no_longer_than_it_says_itself() -> None:
    peer, link, name = local()
    octets = encode_message(AnnotatedMessage(header=Header(ttl_ms=400), data=[b"x"]))
    peer.do(SendDeliveries(link, [OutgoingDelivery(DeliveryNumber(1), DeliveryTag(b"t"), octets)]))
    assert dropped(peer.wait(0.5)) == [1]
    assert waiting(peer, name) == 0


def test_what_stands_behind_is_dropped_when_it_is_its_turn() -> None:
    peer, link, name = local()
    deliver(peer, link, 1, expiration="10000")
    deliver(peer, link, 2, expiration="400")
    deliver(peer, link, 3)
    assert dropped(peer.wait(0.5)) == []
    peer.take_events()
    assert consume(peer, name) == [b"1", b"3"]
    assert dropped(peer.events) == [2]


def test_a_get_gives_nothing_whose_time_has_ended() -> None:
    peer, link, name = local()
    deliver(peer, link, 1)
    deliver(peer, link, 2, expiration="400")
    peer.wait(0.5)
    peer.send(1, m.BasicGet(queue=name), m.BasicGet(queue=name))
    got, empty = peer.methods()
    assert isinstance(got, Content)
    assert empty == m.BasicGetEmpty()


def test_a_ttl_of_nothing_leaves_what_nobody_takes_at_once() -> None:
    peer, link, name = local(**{"x-message-ttl": 0})
    assert dropped(deliver(peer, link, 1)) == [1]
    consume(peer, name, prefetch=1)
    assert dropped(deliver(peer, link, 2, 3)) == [3]
    assert bodies(peer) == [b"2"]


def test_what_is_the_queues_own_is_kept_no_longer_either() -> None:
    peer, link, name = local(**{"x-message-ttl": 1000})
    payload = content(Properties(), b"mine")
    settled = OutgoingDelivery(
        DeliveryNumber(1), DeliveryTag(b"t"), payload, Protocol.AMQP_0_9_1, settled=True
    )
    peer.do(SendDeliveries(link, [settled]))
    assert peer.engine.queues[name].kept_octets > 0
    peer.wait(0.9)
    peer.send(1, m.BasicGet(queue=name), m.BasicNack(1, requeue=True))  # its time begins anew
    peer.received()
    peer.wait(0.9)
    assert waiting(peer, name) == 1
    peer.wait(0.2)
    assert waiting(peer, name) == 0
    assert peer.engine.queues[name].kept_octets == 0


def test_a_queue_that_nobody_uses_goes() -> None:
    peer, link, name = local(**{"x-expires": 1000})
    peer.wait(0.9)
    assert waiting(peer, name) == 0  # which uses it
    peer.wait(0.9)
    peer.send(1, m.BasicGet(queue=name))
    peer.wait(0.9)
    consume(peer, name)
    peer.wait(5)
    peer.send(1, m.BasicCancel("c"))
    peer.take_events()
    peer.wait(0.9)
    assert name in peer.engine.queues
    assert LinkDetached(link, closed=True) in peer.wait(0.2)
    assert name not in peer.engine.queues


# --- length ---------------------------------------------------------------------------------------


def test_the_oldest_make_room_in_a_full_queue() -> None:
    peer, link, name = local(**{"x-max-length": 2})
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT + 2)]
    assert dropped(deliver(peer, link, 1, 2, 3)) == [1]
    assert consume(peer, name) == [b"2", b"3"]


def test_a_full_queue_takes_what_its_consumers_have_room_for() -> None:
    peer, link, name = local(**{"x-max-length": 1})
    consume(peer, name, prefetch=2)
    assert dropped(deliver(peer, link, 1, 2, 3, 4)) == [3]
    assert bodies(peer) == [b"1", b"2"]
    peer.send(1, m.BasicAck(1))
    assert bodies(peer) == [b"4"]


def test_a_queue_that_makes_room_by_itself_has_nobody_wait_for_its_consumers() -> None:
    peer, link, name = local(**{"x-max-length": 3})
    consume(peer, name, prefetch=1)
    credit = 0
    for number in range(1, 1000):
        deliver(peer, link, number)
        granted = [one for one in peer.take_events() if isinstance(one, CreditGranted)]
        credit = granted[-1].credit if granted else (credit or LOCAL_CREDIT + 3) - 1
        assert credit > 0
    peer.received()
    assert waiting(peer, name) == 3


def test_octets_bound_a_queue_too() -> None:
    peer, link, name = local(**{"x-max-length-bytes": 1000})
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT)]
    assert dropped(deliver(peer, link, 1, 2, 3, body=b"x" * 400)) == [1]
    assert waiting(peer, name) == 2


def test_the_newest_may_be_refused_instead() -> None:
    peer, link, name = local(**{"x-max-length": 2, "x-overflow": "reject-publish"})
    assert dropped(deliver(peer, link, 1, 2, 3)) == [3]
    assert consume(peer, name, prefetch=1) == [b"1"]
    assert dropped(deliver(peer, link, 4, 5)) == [5]


def test_however_long_a_queue_may_get_what_it_takes_ahead_is_bounded() -> None:
    peer, link, _ = local(**{"x-max-length": 1 << 40})
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT + BOUNDED_MOST)]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "1000"},
        {"x-expires": 0},
        {"x-max-length": True},
        {"x-max-length-bytes": 1.5},
        {"x-overflow": "reject-publish-dlx"},
        {"x-queue-type": "quorum"},
        {"x-dead-letter-exchange": "x"},
    ],
)
def test_what_is_no_limit_is_refused(arguments: dict[str, Any]) -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(exclusive=True, arguments=arguments))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)


def test_arguments_that_promise_nothing_are_taken() -> None:
    local(**{"x-queue-type": "classic", "x-queue-mode": "lazy", "x-anything": None})


def test_a_queue_declared_anew_with_other_limits_is_refused() -> None:
    peer, _, name = local(**{"x-message-ttl": 1000})
    peer.send(1, m.QueueDeclare(queue=name, exclusive=True, arguments={"x-message-ttl": 1000}))
    assert peer.methods() == [m.QueueDeclareOk(name, 0, 0)]
    peer.send(1, m.QueueDeclare(queue=name, exclusive=True))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)


# --- shared names ---------------------------------------------------------------------------------


def shared(mode: str, **options: Any) -> tuple[ClientPeer, LinkId]:
    """A client with a queue by a name that others may know, too."""
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="replies", **({"auto_delete": True} | options)))
    event = peer.attached()
    answer(peer, event, mode)
    assert peer.methods() == [m.QueueDeclareOk("replies", 0, 0)]
    return peer, event.link


def answer(peer: ClientPeer, event: LinkAttached, mode: str) -> None:
    assert event.source is not None
    source = Source(address=event.source.address, distribution_mode=mode)
    peer.do(
        AttachLink(link=event.link, name=event.name, role=event.role, source=source, target=None)
    )


def test_a_shared_queue_takes_nothing_for_a_connection_that_does_not_consume() -> None:
    peer, link = shared("move")
    assert peer.take_events() == []
    peer.send(1, m.BasicConsume(queue="replies", consumer_tag="c"))
    assert CreditGranted(link, 1000) in peer.take_events()


@pytest.mark.parametrize(("mode", "options"), [("copy", {}), ("move", {"exclusive": True})])
def test_what_would_be_lost_is_gathered_and_so_is_what_is_for_nobody_else(
    mode: str, options: dict[str, bool]
) -> None:
    peer, link = shared(mode, **options)
    assert peer.take_events() == [CreditGranted(link, LOCAL_CREDIT)]


def test_a_get_of_a_shared_queue_asks_for_one() -> None:
    peer, link = shared("move")
    peer.send(1, m.BasicGet(queue="replies"))
    event = peer.attached()
    answer(peer, event, "move")
    assert CreditGranted(event.link, 1, drain=True) in peer.take_events()
    assert event.link != link
    deliver(peer, event.link, 1)
    assert bodies(peer) == [b"1"]
