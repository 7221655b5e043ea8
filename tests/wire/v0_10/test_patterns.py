"""Topic bindings with wildcards: queues follow a pattern's addresses (0-10 exchange.bind)."""

import pytest

from router.model.commands import AddressesChanged, RefuseLink, SendDeliveries
from router.model.condition import NOT_FOUND, UNAUTHORIZED_ACCESS, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import AddressesWatched, CreditGranted, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.wire.v0_10 import records as r
from router.wire.v0_10.reply import ErrorCode
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, Transfer, settings

KERNEL = "amq.topic/kern.*"
DISK, CPU = "amq.topic/kern.disk", "amq.topic/kern.cpu"
BIND = r.ExchangeBind(queue="mine", exchange="amq.topic", binding_key="kern.*")


def with_queue(memory: dict[str, object] | None = None, timeout: int = 0) -> Peer:
    peer = Peer(ServerEngine(settings(is_server=True, memory=memory)))
    peer.open()
    peer.attach(timeout=timeout)
    peer.command(r.QueueDeclare(queue="mine", exclusive=True))
    peer.read()
    peer.events.clear()
    return peer


def watched(peer: Peer) -> LinkId:
    """Takes what the core was asked to watch."""
    [event] = peer.of(AddressesWatched)
    assert event.pattern == KERNEL
    peer.events.clear()
    return event.link


def change(peer: Peer, link: LinkId, *come: str, gone: tuple[str, ...] = ()) -> dict[str, LinkId]:
    """Lets the core tell of addresses; gives the links that were then attached, by address."""
    peer.events.clear()
    peer.engine.execute(AddressesChanged(link, come, gone))
    peer.feed(b"")
    return {
        event.source.address: event.link
        for event in peer.of(LinkAttached)
        if event.source is not None and event.source.address is not None
    }


def bound(memory: dict[str, object] | None = None, timeout: int = 0) -> tuple[Peer, LinkId]:
    peer = with_queue(memory, timeout)
    peer.command(BIND)
    link = watched(peer)
    assert not completed(peer)
    assert change(peer, link) == {}
    assert completed(peer)
    return peer, link


def completed(peer: Peer) -> bool:
    """Tells whether the second command, the binding, is said to be complete."""
    return any((0, 1) in (each.commands or ()) for each in peer.said(r.SessionCompleted))


def ended(peer: Peer) -> set[LinkId]:
    return {event.link for event in peer.of(LinkDetached)}


def test_a_binding_is_complete_when_all_that_is_sent_to_is_attached() -> None:
    peer = with_queue()
    peer.command(BIND)
    link = watched(peer)
    assert not completed(peer)
    assert change(peer, link, DISK, CPU).keys() == {DISK, CPU}
    assert completed(peer)
    assert {event.link for event in peer.of(CreditGranted)} == {
        event.link for event in peer.of(LinkAttached)
    }


def test_an_address_that_may_not_be_received_from_does_not_spoil_the_binding() -> None:
    peer = with_queue()
    peer.command(BIND)
    link = watched(peer)
    engine = peer.engine
    engine.execute(AddressesChanged(link, (DISK,)))
    [asked] = [each for each in engine.receive_data(b"", 0.0) if isinstance(each, LinkAttached)]
    engine.execute(RefuseLink(asked.link, Condition(UNAUTHORIZED_ACCESS, "not for you")))
    assert completed(peer)


def test_a_pattern_that_no_route_is_for_is_not_found() -> None:
    peer = with_queue()
    peer.command(BIND)
    peer.engine.execute(RefuseLink(watched(peer), Condition(NOT_FOUND, "no route")))
    [exception] = peer.said(r.ExecutionException)
    assert (exception.error_code, exception.class_code, exception.command_code) == (
        ErrorCode.NOT_FOUND,
        7,
        4,
    )


def test_what_follows_a_binding_waits_for_it() -> None:
    peer = with_queue()
    peer.command(BIND, r.QueueQuery("mine"))
    assert not peer.said(r.ExecutionResult)
    change(peer, watched(peer))
    assert peer.said(r.ExecutionResult)


def test_a_queue_follows_senders_that_come_and_go() -> None:
    peer, watch = bound()
    links = change(peer, watch, DISK)
    assert change(peer, watch, gone=(DISK,)) == {}
    assert ended(peer) == {links[DISK]}


def test_what_is_bound_by_its_name_too_stays_when_its_senders_have_gone() -> None:
    peer, watch = bound()
    change(peer, watch, DISK)
    peer.command(r.ExchangeBind(queue="mine", exchange="amq.topic", binding_key="kern.disk"))
    change(peer, watch, gone=(DISK,))
    assert not ended(peer)


def test_unbinding_ends_the_watch_and_its_links() -> None:
    peer, watch = bound()
    links = change(peer, watch, DISK)
    peer.command(r.ExchangeUnbind(queue="mine", exchange="amq.topic", binding_key="kern.*"))
    assert ended(peer) == {watch, links[DISK]}


def test_deleting_the_queue_ends_the_watch_and_its_links() -> None:
    peer, watch = bound()
    links = change(peer, watch, DISK)
    peer.command(r.QueueDelete(queue="mine"))
    assert {watch, links[DISK]} <= ended(peer)


def test_the_sessions_end_ends_the_watch() -> None:
    peer, watch = bound()
    peer.control(r.SessionDetach(b"s"))
    assert watch in ended(peer)


def test_messages_of_all_addresses_come_to_one_subscription() -> None:
    peer, watch = bound()
    links = change(peer, watch, DISK, CPU)
    peer.subscribe("mine")
    peer.read()
    for number, link in enumerate(links.values()):
        payload = b"\x00\x53\x75\xa0\x01%d" % number
        delivery = OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"%d" % number), payload)
        peer.engine.execute(SendDeliveries(link, [delivery]))
    assert [each.body for each in peer.said(Transfer)] == [b"0", b"1"]


def test_a_session_that_comes_back_watches_again() -> None:
    memory: dict[str, object] = {}
    peer, watch = bound(memory, timeout=60)
    change(peer, watch, DISK, CPU)
    peer.take(peer.engine.receive_eof(peer.now))

    again = Peer(ServerEngine(settings(is_server=True, memory=memory)))
    again.open()
    again.control(r.SessionAttach(b"s", False))
    [event] = again.of(AddressesWatched)
    links = {
        each.source.address: each.link for each in again.of(LinkAttached) if each.source is not None
    }
    assert {DISK, CPU} < links.keys()
    assert change(again, event.link, CPU) == {}  # it has that link; nobody sends to the other
    assert ended(again) == {links[DISK]}


def test_a_binding_that_was_not_answered_when_the_connection_broke_is_not_there() -> None:
    memory: dict[str, object] = {}
    peer = with_queue(memory, timeout=60)
    peer.command(BIND)
    peer.take(peer.engine.receive_eof(peer.now))

    again = Peer(ServerEngine(settings(is_server=True, memory=memory)))
    again.open()
    again.control(r.SessionAttach(b"s", False))
    assert not again.of(AddressesWatched)
    again.control(r.SessionCommandPoint(1, 0))
    again.command(BIND)
    assert again.of(AddressesWatched)


# --- exchanges and keys that look like patterns -----------------------------------------------


@pytest.mark.parametrize(
    ("exchange", "key", "pattern"),
    [("*", "eu.*", "*/eu.*"), ("#", "eu.*", "#/eu.*"), ("a.**", "eu.*", "a.*/eu.*")],
)
def test_an_exchange_whose_name_looks_like_a_pattern_has_its_own_messages_alone(
    exchange: str, key: str, pattern: str
) -> None:
    peer = with_queue()
    peer.command(r.ExchangeDeclare(exchange=exchange, type="topic"))
    peer.command(r.ExchangeBind(queue="mine", exchange=exchange, binding_key=key))
    [event] = peer.of(AddressesWatched)
    assert event.pattern == pattern
    own, others = f"{exchange}/eu.1", ("shop/eu.1", "eu.1", f"{exchange}x/eu.1", "a.b/eu.1")
    assert change(peer, event.link, own, *others).keys() == {own}


def test_the_words_of_a_key_are_parted_by_dots_alone() -> None:
    peer, link = bound()
    others = ("amq.topic/kern/disk", "amq.topic.kern.disk", "amq/topic/kern.disk")
    assert change(peer, link, DISK, *others).keys() == {DISK}


def test_a_word_that_merely_contains_a_wildcard_is_that_word() -> None:
    peer = with_queue()
    peer.command(r.ExchangeBind(queue="mine", exchange="amq.topic", binding_key="a*.*"))
    [event] = peer.of(AddressesWatched)
    assert event.pattern == "amq.topic/*.*"
    come = change(peer, event.link, "amq.topic/a*.b", "amq.topic/ab.b")
    assert come.keys() == {"amq.topic/a*.b"}
