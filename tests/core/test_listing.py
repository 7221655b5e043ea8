"""Pages of links and of unsettled deliveries."""

import pytest

from router.core import listing
from router.core.listing import (
    DeliveryPage,
    DeliveryPosition,
    DeliveryRecord,
    Filter,
    LinkPosition,
    LinkRecord,
    Lister,
)
from router.model.terminus import Role
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.play import Play

EVERYTHING = Filter()


def lister(play: Play) -> Lister:
    return play.core.lister


def links(play: Play, wanted: Filter = EVERYTHING) -> list[LinkRecord]:
    return list(lister(play).links(wanted, 1000, LinkPosition(), play.now).links)


def page(
    play: Play,
    wanted: Filter = EVERYTHING,
    most: int = 1000,
    after: DeliveryPosition | None = None,
) -> DeliveryPage:
    return lister(play).deliveries(wanted, most, after, play.now)


def deliveries(play: Play, wanted: Filter = EVERYTHING) -> list[DeliveryRecord]:
    return list(page(play, wanted).deliveries)


def test_a_link_is_told_with_its_peer_route_and_state() -> None:
    play = Play("orders.*")
    play.connect("in").attach_receiver("orders.eu", credit=5, name="pull")
    sender = play.connect("out").attach_sender("orders.eu", name="push")
    sender.send(b"one", b"two")
    play.wait(3)
    receiving, sending = links(play)
    assert (receiving.container, receiving.name, receiving.role) == ("in", "pull", Role.SENDER)
    assert (receiving.credit, receiving.unsettled, receiving.oldest_seconds) == (3, 2, 3)
    assert (sending.container, sending.name, sending.role) == ("out", "push", Role.RECEIVER)
    assert (sending.address, sending.route) == ("orders.eu", "orders.*")
    assert (sending.payload_octets, sending.totals.deliveries) == (6, 2)
    assert sending.configured is None


def test_links_are_paged_in_the_order_of_their_attaching() -> None:
    play = Play("orders.#")
    one, other = play.connect("one"), play.connect("other")
    for number in range(10):
        (one, other)[number % 2].attach_sender(f"orders.{number}")
    position: LinkPosition | None = LinkPosition()
    seen: list[str | None] = []
    while position is not None:
        found = lister(play).links(EVERYTHING, 3, position, play.now)
        assert len(found.links) <= 3
        seen += [link.address for link in found.links]
        position = found.next
    assert seen == [f"orders.{number}" for number in range(10)]


def test_a_link_that_goes_between_two_pages_hides_no_other() -> None:
    play = Play("orders.#")
    clients = [play.connect(f"client-{number}") for number in range(4)]
    for number, client in enumerate(clients):
        client.attach_sender(f"orders.{number}")
    first = lister(play).links(EVERYTHING, 2, LinkPosition(), play.now)
    clients[1].lose()
    assert first.next is not None
    second = lister(play).links(EVERYTHING, 2, first.next, play.now)
    assert [link.address for link in second.links] == ["orders.2", "orders.3"]


def test_links_are_found_by_route_and_by_either_name_of_their_container() -> None:
    play = Play("orders", Route(address="prices", to=(Endpoint("east"),)))
    east = play.dial("east")
    play.connect("out").attach_sender("orders")
    play.connect("trader").attach_sender("prices")
    east.answer_receiver(credit=1)
    assert [link.container for link in links(play, Filter(route="prices"))] == [
        "trader",
        "east-id",
    ]
    for name in ("east", "east-id"):
        assert [link.configured for link in links(play, Filter(container=name))] == ["east"]
    assert links(play, Filter(route="none")) == []


def test_deliveries_of_all_links_are_listed_oldest_first() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=10, name="pull")
    first = play.connect("first").attach_sender("orders", name="a")
    second = play.connect("second").attach_sender("orders", name="b")
    for number in range(3):
        first.send(b"x" * number, tag=b"f%d" % number)
        play.wait(1)
        second.send(b"y", tag=b"s%d" % number)
        play.wait(1)
    found = deliveries(play)
    assert [bytes.fromhex(each.tag).decode() for each in found] == [
        "f0", "s0", "f1", "s1", "f2", "s2",
    ]  # fmt: skip
    assert [each.age_seconds for each in found] == [6, 5, 4, 3, 2, 1]
    assert found[4] == DeliveryRecord(
        tag=b"f2".hex(),
        route="orders",
        address="orders",
        container="first",
        link="a",
        state="sent",
        to_container="in",
        to_link="pull",
        age_seconds=2,
        octets=2,
        attempts=0,
        position=DeliveryPosition(1004.0, "first", "a", 3),
    )


def test_pages_of_deliveries_leave_nothing_out_and_repeat_nothing() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=100)
    for name in ("a", "b", "c"):
        play.connect(name).attach_sender("orders").send(*[name.encode()] * 7)  # all at one time
    position: DeliveryPosition | None = None
    seen: list[tuple[str, str]] = []
    while True:
        found = page(play, most=4, after=position)
        seen += [(each.container, each.tag) for each in found.deliveries]
        if not found.has_more:
            break
        position = found.deliveries[-1].position
    assert len(seen) == len(set(seen)) == 21


def test_the_states_of_a_delivery_are_told_apart() -> None:
    play = Play("orders", "parts", "seconds")
    sink = play.connect("in")
    receiver = sink.attach_receiver("orders", credit=1)
    sink.attach_receiver("parts", credit=10)
    answering = sink.attach_receiver("seconds", credit=10)
    source = play.connect("out")
    sender = source.attach_sender("orders")
    sender.send(b"sent")
    receiver.grant(0)
    sender.send(b"queued")
    source.attach_sender("parts").send(b"begun", more=True)
    source.attach_sender("seconds", second=True).send(b"told")
    answering.accept()
    assert sorted((each.address, each.state) for each in deliveries(play)) == [
        ("orders", "queued"),
        ("orders", "sent"),
        ("parts", "partial"),
        ("seconds", "answered"),
    ]


def test_deliveries_are_found_by_route_and_by_where_they_came_from_or_went() -> None:
    play = Play("orders", "prices")
    sink = play.connect("in")
    sink.attach_receiver("orders", credit=10)
    play.connect("else").attach_receiver("prices", credit=10)
    source = play.connect("out")
    source.attach_sender("orders").send(b"order")
    source.attach_sender("prices").send(b"price")
    assert [each.route for each in deliveries(play, Filter(route="prices"))] == ["prices"]
    assert [each.route for each in deliveries(play, Filter(container="in"))] == ["orders"]
    assert len(deliveries(play, Filter(container="out"))) == 2
    assert deliveries(play, Filter(in_doubt=True)) == []


def test_a_page_never_looks_at_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKS_MOST", 10)
    play = Play("orders", "prices")
    sink = play.connect("in")
    sink.attach_receiver("orders", credit=100)
    sink.attach_receiver("prices", credit=100)
    source = play.connect("out")
    source.attach_sender("orders").send(*[b"x"] * 20)
    play.wait(1)
    source.attach_sender("prices").send(b"y")
    found = page(play, Filter(route="prices"))
    assert found.is_cut
    assert found.deliveries == ()
    assert not found.has_more


def test_connections_are_paged_in_the_order_of_their_coming() -> None:
    play = Play("orders")
    for number in range(5):
        play.connect(f"client-{number}", user=f"user-{number}")
    position: int | None = 0
    seen: list[str] = []
    while position is not None:
        found = lister(play).connections(EVERYTHING, 2, position)
        seen += [connection.container for connection in found.connections]
        position = found.next
    assert seen == [f"client-{number}" for number in range(5)]


def test_a_connection_is_told_with_its_identity_and_what_it_holds() -> None:
    play = Play("orders", Route(address="prices", to=(Endpoint("east"),)))
    east = play.dial("east")
    sink, source = play.connect("in"), play.connect("out", user="alice")
    sink.attach_receiver("orders", credit=5)
    source.attach_sender("orders").send(b"1234")
    source.attach_sender("prices")
    east.answer_receiver()
    east.congest()
    (found,) = lister(play).connections(Filter(container="out"), 10, 0).connections
    assert (found.user, found.protocol, found.configured) == ("alice", "amqp-1.0", None)
    assert (found.senders, found.receivers) == (2, 0)
    assert (found.incoming_unsettled, found.payload_octets) == (1, 4)
    (dialed,) = lister(play).connections(Filter(container="east"), 10, 0).connections
    assert (dialed.container, dialed.configured, dialed.receivers) == ("east-id", "east", 1)
    assert dialed.is_congested
    assert not dialed.is_held


def test_what_its_sender_has_settled_is_listed_as_the_routers_own() -> None:
    play = Play("orders")
    sink = play.connect("in").attach_receiver("orders", credit=1, name="pull")
    sender = play.connect("out").attach_sender("orders", name="push")
    sender.send(b"one", tag=b"1", settled=True)
    play.wait(1)
    sender.send(b"two", tag=b"2", settled=True)
    play.wait(1)
    sender.send(b"three", tag=b"3")
    found = [
        (bytes.fromhex(each.tag), each.state, each.in_custody, each.age_seconds)
        for each in deliveries(play)
    ]
    assert found == [(b"1", "sent", True, 2), (b"2", "queued", True, 1), (b"3", "queued", False, 0)]
    one = deliveries(play)[0]
    assert (one.container, one.link, one.to_container, one.to_link) == ("out", "push", "in", "pull")
    sink.accept(sink.last.number)
    assert [bytes.fromhex(each.tag) for each in deliveries(play)] == [b"2", b"3"]


def test_what_the_router_owns_is_listed_when_its_sender_has_gone() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=1, name="pull")
    sender = play.connect("out").attach_sender("orders", name="push")
    sender.send(b"one", b"two", settled=True)
    sender.peer.lose()
    found = [(each.state, each.in_custody, each.container) for each in deliveries(play)]
    assert found == [("sent", True, "out"), ("queued", True, "out")]


def test_a_multicast_that_the_router_owns_is_listed_once() -> None:
    play = Play(Route(address="orders", distribution=Distribution.MULTICAST))
    for number in range(3):
        play.connect(f"in{number}").attach_receiver("orders", credit=1)
    play.connect("out").attach_sender("orders").send(b"one", settled=True)
    assert [(each.state, each.in_custody) for each in deliveries(play)] == [("sent", True)]


def test_what_an_at_most_once_route_holds_is_listed_and_nobodys() -> None:
    play = Play(Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    play.connect("in").attach_receiver("orders", credit=1)
    play.connect("out").attach_sender("orders").send(b"one", b"two", settled=True)
    assert [(each.state, each.in_custody) for each in deliveries(play)] == [("queued", False)]


def test_pages_of_what_the_router_owns_leave_nothing_out_and_repeat_nothing() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=4)
    sender = play.connect("out").attach_sender("orders")
    for number in range(10):
        sender.send(b"x", tag=bytes([number]), settled=bool(number % 2))
        play.wait(1)
    seen: list[int] = []
    after: DeliveryPosition | None = None
    while True:
        found = page(play, most=3, after=after)
        seen += [bytes.fromhex(each.tag)[0] for each in found.deliveries]
        if not found.has_more:
            break
        after = found.deliveries[-1].position
    assert seen == list(range(10))
