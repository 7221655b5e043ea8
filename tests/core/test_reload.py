"""Reloading the routing table: only the difference acts."""

from router.model.condition import NOT_ALLOWED, RESOURCE_DELETED
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.play import Play, table

TO_EAST = Route(address="orders", to=(Endpoint("east"),))


def reload(play: Play, *routes: Route | str) -> int:
    before = len(play.orders)
    play.carry_out(play.core.configure(table(*routes), play.now))
    return len(play.orders) - before


def test_same_table_orders_nothing() -> None:
    play = Play("orders", Route(address="bills", to=(Endpoint("east"),)))
    east = play.dial("east")
    client = play.connect()
    client.attach_receiver("orders", credit=3)
    client.attach_sender("orders")
    client.attach_sender("bills")
    east.answer_receiver(credit=4)
    assert reload(play, "orders", Route(address="bills", to=(Endpoint("east"),))) == 0


def test_new_route_is_served() -> None:
    play = Play("orders")
    client = play.connect()
    assert client.attach_sender("bills").refused is not None
    reload(play, "orders", "bills")
    assert client.attach_sender("bills").refused is None


def test_new_bridge_is_attached() -> None:
    play = Play()
    east, west = play.dial("east"), play.dial("west")
    reload(play, Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),)))
    assert east.asked
    assert west.asked


def test_removed_route_detaches_its_links() -> None:
    play = Play("orders", "bills")
    client = play.connect()
    gone = client.attach_sender("orders")
    receiver = client.attach_receiver("orders", credit=1)
    stays = client.attach_sender("bills")
    reload(play, "bills")
    assert gone.detached is not None
    assert gone.detached.condition is not None
    assert gone.detached.condition.name == RESOURCE_DELETED
    assert receiver.detached is not None
    assert stays.detached is None


def test_removed_bridge_detaches_at_both_ends() -> None:
    play = Play(Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),)))
    east, west = play.dial("east"), play.dial("west")
    source, target = east.answer_sender(), west.answer_receiver(credit=5)
    reload(play)
    assert source.detached is not None
    assert target.detached is not None
    play.wait(1000)
    assert not east.asked
    assert not play.core._registry.nodes


def test_bridge_with_another_target_keeps_its_source() -> None:
    play = Play(Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),)))
    east, west = play.dial("east"), play.dial("west")
    source, target = east.answer_sender(), west.answer_receiver(credit=5)
    north = play.dial("north")
    reload(play, Route(address="orders", from_=Endpoint("east"), to=(Endpoint("north"),)))
    assert source.detached is None
    assert target.detached is not None
    other = north.answer_receiver(credit=9)
    source.send("x")
    assert other.payloads == [b"x"]


def test_direct_route_that_becomes_one_to_a_container_detaches_its_links() -> None:
    play = Play("orders")
    east = play.dial("east")
    client = play.connect()
    sender = client.attach_sender()
    reload(play, TO_EAST)
    assert sender.detached is not None
    again = client.attach_sender()
    east.answer_receiver(credit=2)
    assert again.credit == 2


def test_direct_route_that_becomes_a_bridge_keeps_senders_and_ends_receivers() -> None:
    play = Play("orders")
    client = play.connect()
    sender, receiver = client.attach_sender(), client.attach_receiver()
    reload(play, Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),)))
    assert sender.detached is None
    assert receiver.detached is not None
    assert receiver.detached.condition is not None
    assert receiver.detached.condition.name == NOT_ALLOWED


def test_new_rules_hold_for_links_that_stay() -> None:
    play = Play("orders")
    client = play.connect()
    one, two = (client.attach_receiver(credit=5) for _ in range(2))
    sender = client.attach_sender()
    reload(play, Route(address="orders", distribution=Distribution.MULTICAST))
    sender.send("x")
    assert one.payloads == two.payloads == [b"x"]
    reload(play, Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE))
    sender.send("y")
    assert (one.received + two.received)[-1].settled or one.last.settled


def test_more_specific_route_takes_its_addresses() -> None:
    play = Play("orders.*")
    east = play.dial("east")
    client = play.connect()
    eu, us = client.attach_sender("orders.eu"), client.attach_sender("orders.us")
    reload(play, "orders.*", Route(address="orders.eu", to=(Endpoint("east"),)))
    assert eu.detached is not None
    assert us.detached is None
    client.attach_sender("orders.eu")
    assert east.asked


def test_dynamic_nodes_stay() -> None:
    play = Play("orders")
    inbox = play.connect().attach_receiver(None, dynamic=True, credit=5)
    reload(play)
    assert inbox.detached is None


def test_pause_outlives_a_reload_and_moves_nothing() -> None:
    play = Play("orders")
    client = play.connect()
    receiver = client.attach_receiver(credit=5)
    sender = client.attach_sender()
    play.carry_out(play.core.pause("orders", play.now))
    reload(play, Route(address="orders", ttl_seconds=50))
    sender.send("x")
    assert not receiver.received
    play.carry_out(play.core.resume("orders", play.now))
    assert receiver.payloads == [b"x"]
