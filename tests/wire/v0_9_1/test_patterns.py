"""Topic bindings with wildcards: a queue follows the addresses of a pattern (0-9-1 §3.1.3.3)."""

import attrs

from router.model import condition as conditions
from router.model.commands import AddressesChanged, RefuseLink, SendDeliveries
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    AddressesReached,
    AddressesWatched,
    CreditGranted,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.terminus import Source
from router.wire.v0_9_1 import methods as m
from tests.support.basic_peer import ClientPeer

BIND = m.QueueBind(queue="mine", exchange="amq.topic", routing_key="kern.*")


def with_queue() -> ClientPeer:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueDeclare(queue="mine", exclusive=True))
    peer.accept()
    peer.received()
    peer.take_events()
    return peer


def watched(peer: ClientPeer) -> AddressesWatched:
    [event] = [event for event in peer.events if isinstance(event, AddressesWatched)]
    peer.events.remove(event)
    return event


def changed(
    peer: ClientPeer, link: LinkId, *come: str, gone: tuple[str, ...] = ()
) -> list[LinkAttached]:
    peer.do(AddressesChanged(link, come, gone))
    attached = [event for event in peer.events if isinstance(event, LinkAttached)]
    peer.events = [event for event in peer.events if event not in attached]
    return attached


def bound() -> tuple[ClientPeer, LinkId]:
    peer = with_queue()
    peer.send(1, BIND)
    watch = watched(peer)
    assert watch.pattern == "amq.topic/kern.*"
    assert changed(peer, watch.link) == []
    assert peer.methods() == [m.QueueBindOk()]
    return peer, watch.link


def test_a_binding_waits_until_all_that_is_sent_to_is_attached() -> None:
    peer = with_queue()
    peer.send(1, BIND)
    first, second = changed(peer, watched(peer).link, "amq.topic/kern.a", "amq.topic/kern.b")
    assert first.source == Source(address="amq.topic/kern.a")
    peer.accept(first)
    assert peer.methods() == []
    peer.accept(second)
    assert peer.methods() == [m.QueueBindOk()]


def test_an_address_that_may_not_be_received_from_does_not_spoil_the_binding() -> None:
    peer = with_queue()
    peer.send(1, BIND)
    [only] = changed(peer, watched(peer).link, "amq.topic/kern.secret")
    peer.do(RefuseLink(only.link, Condition(conditions.UNAUTHORIZED_ACCESS, "not for you")))
    assert peer.methods() == [m.QueueBindOk()]


def test_a_pattern_that_no_route_is_for_is_not_found() -> None:
    peer = with_queue()
    peer.send(1, BIND)
    peer.do(RefuseLink(watched(peer).link, Condition(conditions.NOT_FOUND, "no route")))
    [close] = peer.methods()
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 50, 20)


def test_a_queue_follows_senders_that_come_and_go() -> None:
    peer, watch = bound()
    [come] = changed(peer, watch, "amq.topic/kern.disk")
    link = peer.accept(come)
    [grant] = [event for event in peer.take_events() if isinstance(event, CreditGranted)]
    assert grant.link == link
    assert changed(peer, watch, gone=("amq.topic/kern.disk",)) == []
    assert LinkDetached(link, closed=True) in peer.take_events()


def test_the_core_hears_when_nothing_is_left_to_attach() -> None:
    peer, watch = bound()
    peer.take_events()
    [come] = changed(peer, watch, "amq.topic/kern.disk")
    assert AddressesReached(watch) not in peer.take_events()
    peer.accept(come)
    assert AddressesReached(watch) in peer.take_events()


def test_the_core_hears_at_once_when_an_address_is_bound_by_its_name_too() -> None:
    peer, watch = bound()
    peer.send(1, m.QueueBind(queue="mine", exchange="amq.topic", routing_key="kern.disk"))
    peer.accept()
    peer.take_events()
    assert changed(peer, watch, "amq.topic/kern.disk") == []
    assert AddressesReached(watch) in peer.take_events()


def test_what_is_bound_by_its_name_too_stays_when_its_senders_have_gone() -> None:
    peer, watch = bound()
    [come] = changed(peer, watch, "amq.topic/kern.disk")
    peer.accept(come)
    peer.send(1, m.QueueBind(queue="mine", exchange="amq.topic", routing_key="kern.disk"))
    peer.take_events()
    changed(peer, watch, gone=("amq.topic/kern.disk",))
    assert not any(isinstance(event, LinkDetached) for event in peer.take_events())


def test_unbinding_ends_the_watch_and_its_links() -> None:
    peer, watch = bound()
    [come] = changed(peer, watch, "amq.topic/kern.disk")
    link = peer.accept(come)
    peer.take_events()
    peer.send(1, m.QueueUnbind(queue="mine", exchange="amq.topic", routing_key="kern.*"))
    ended = [event for event in peer.take_events() if isinstance(event, LinkDetached)]
    assert {event.link for event in ended} == {watch, link}


def test_messages_keep_the_key_that_they_were_published_with() -> None:
    peer, watch = bound()
    [come] = changed(peer, watch, "amq.topic/kern.disk")
    link = peer.accept(come)
    peer.send(1, m.BasicConsume(queue="mine", consumer_tag="c"))
    peer.received()
    body = b"\x00\x53\x75\xa0\x02hi"
    delivery = OutgoingDelivery(DeliveryNumber(0), DeliveryTag(b"t"), body)
    peer.do(SendDeliveries(link, [delivery]))
    [content] = peer.methods()
    assert content is not None
    assert not isinstance(content, m.Method)
    assert content.method == m.BasicDeliver(
        consumer_tag="c", delivery_tag=1, exchange="", routing_key="amq.topic/kern.disk"
    )


def test_a_shared_queue_watches_while_it_is_consumed() -> None:
    peer = ClientPeer().open(1)
    peer.send(1, m.QueueBind(queue="shared", exchange="amq.topic", routing_key="#"))
    peer.accept()  # the queue is there
    probe = watched(peer)
    assert probe.pattern == "amq.topic/#"
    assert changed(peer, probe.link, "amq.topic/kern.disk") == []
    assert peer.methods() == [m.QueueBindOk()]
    assert LinkDetached(probe.link, closed=True) in peer.take_events()
    peer.send(1, m.BasicConsume(queue="shared", consumer_tag="c"))
    peer.accept()
    watch = watched(peer)
    assert changed(peer, watch.link) == []
    assert peer.methods() == [m.BasicConsumeOk("c")]
    peer.send(1, m.BasicCancel(consumer_tag="c"))
    assert LinkDetached(watch.link, closed=True) in peer.take_events()


def test_an_exchange_whose_name_is_a_wildcard_has_its_own_messages_alone() -> None:
    for exchange, pattern in (("*", "*/eu.*"), ("#", "#/eu.*"), ("**", "*/eu.*")):
        peer = with_queue()
        declare = m.ExchangeDeclare(exchange=exchange, type="topic")
        peer.send(1, declare, m.QueueBind(queue="mine", exchange=exchange, routing_key="eu.*"))
        watch = watched(peer)
        assert watch.pattern == pattern
        own, others = f"{exchange}/eu.1", ("shop/eu.1", "eu.1", f"{exchange}x/eu.1")
        [come] = changed(peer, watch.link, own, *others)
        assert come.source == Source(address=own)
        peer.accept(come)
        assert isinstance(peer.methods()[-1], m.QueueBindOk)


def test_all_keys_of_an_exchange_are_those_behind_its_name_and_none() -> None:
    peer = with_queue()
    declare = m.ExchangeDeclare(exchange="*", type="topic")
    peer.send(1, declare, m.QueueBind(queue="mine", exchange="*", routing_key="#"))
    come = changed(peer, watched(peer).link, "*", "*/eu", "shop", "shop/eu")
    assert {each.source.address for each in come if each.source} == {"*", "*/eu"}


# Two channels that bind at once


def two_channels() -> ClientPeer:
    peer = with_queue()
    peer.send(2, m.ChannelOpen())
    peer.received()
    return peer


def by_channel(peer: ClientPeer) -> dict[int, m.Method]:
    """The one answer that each channel has got."""
    told = peer.received()
    answers = {channel: each for channel, each in told if isinstance(each, m.Method)}
    assert len(answers) == len(told)
    return answers


def test_of_two_bindings_at_once_neither_is_answered_before_the_core_allows_them() -> None:
    for bind in (BIND, m.QueueBind(queue="mine", exchange="amq.topic", routing_key="kern.a")):
        peer = two_channels()
        peer.send(1, bind)
        peer.send(2, bind)
        assert by_channel(peer) == {}
        denied = Condition(conditions.UNAUTHORIZED_ACCESS, "not for you")
        (asked,) = peer.take_events()
        assert isinstance(asked, AddressesWatched | LinkAttached)
        peer.do(RefuseLink(asked.link, denied))
        answers = by_channel(peer)
        assert set(answers) == {1, 2}
        for close in answers.values():
            assert isinstance(close, m.ChannelClose)
            assert (close.reply_code, close.class_id, close.method_id) == (403, 50, 20)
        assert not peer.engine.queues["mine"].bindings


def test_two_channels_that_ask_for_one_binding_are_both_told_that_it_is_there() -> None:
    peer = two_channels()
    peer.send(1, BIND)
    peer.send(2, BIND)
    (first,) = changed(peer, watched(peer).link, "amq.topic/kern.a")
    assert by_channel(peer) == {}
    peer.accept(first)
    assert by_channel(peer) == {1: m.QueueBindOk(), 2: m.QueueBindOk()}
    assert len(peer.engine.queues["mine"].bindings) == 1


def test_bindings_of_one_pattern_that_differ_are_answered_with_the_pattern() -> None:
    peer = two_channels()
    peer.send(1, BIND)
    peer.send(2, attrs.evolve(BIND, arguments={"x": 1}))
    watch = watched(peer)
    assert by_channel(peer) == {}
    peer.do(RefuseLink(watch.link, Condition(conditions.UNAUTHORIZED_ACCESS, "not for you")))
    answers = by_channel(peer)
    assert {channel: type(each) for channel, each in answers.items()} == dict.fromkeys(
        (1, 2), m.ChannelClose
    )
    assert not peer.engine.queues["mine"].bindings


def test_a_channel_goes_on_whose_watch_another_channel_has_ended() -> None:
    peer = two_channels()
    peer.send(1, BIND)
    peer.send(2, m.QueueUnbind(queue="mine", exchange="amq.topic", routing_key="kern.*"))
    peer.wait(0)
    assert by_channel(peer) == {1: m.QueueBindOk(), 2: m.QueueUnbindOk()}
    peer.send(1, BIND)
    peer.send(2, m.QueueDelete(queue="mine"))
    peer.wait(0)
    assert by_channel(peer)[1] == m.QueueBindOk()
    assert "mine" not in peer.engine.queues


def test_of_two_exchange_bindings_at_once_neither_is_answered_before_the_core_allows_them() -> None:
    peer = two_channels()
    peer.send(1, m.ExchangeDeclare(exchange="inner", type="fanout"))
    peer.received()
    bind = m.ExchangeBind(destination="inner", source="amq.topic", routing_key="kern.*")
    peer.take_events()
    peer.send(1, bind)
    peer.send(2, bind)
    assert by_channel(peer) == {}
    denied = Condition(conditions.UNAUTHORIZED_ACCESS, "not for you")
    peer.do(RefuseLink(watched(peer).link, denied))
    answers = by_channel(peer)
    assert {channel: type(each) for channel, each in answers.items()} == dict.fromkeys(
        (1, 2), m.ChannelClose
    )
    assert not peer.engine.exchanges.bindings
