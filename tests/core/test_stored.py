"""Stored routes in the core: what senders send goes to the store, what it sends to the targets."""

import attrs
import pytest

from router.core.dead_letters import DEAD_LETTERS
from router.core.stored import STORE, STORED
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED
from router.routes.route import Endpoint, Route, Storing
from router.routes.table import RoutingTable
from tests.support.play import Peer, Play, SenderEnd

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(always=True),
    dead_letter=Endpoint("cloud", "dead"),
)
BRIDGE = Route(
    address="orders",
    from_=Endpoint("east"),
    to=(Endpoint("cloud"),),
    store=Storing(always=True),
    dead_letter=Endpoint("cloud", "dead"),
)


def stored_sender(store: Peer, address: str = "telemetry.a", *, is_dead: bool = False) -> SenderEnd:
    """The store attaches a link for messages of an address."""
    properties: dict[object, object] = {DEAD_LETTERS: True} if is_dead else {}
    return store.attach_sender(address, properties=properties)


def test_senders_send_to_the_store_and_hear_that_it_has_accepted() -> None:
    play = Play(ROUTE)
    play.dial("cloud")
    store = play.dial(STORE)
    sender = play.connect().attach_sender("telemetry.a")
    shelf = store.answer_receiver("telemetry.a", credit=10)
    assert shelf.attach is not None
    assert shelf.attach.properties[STORED] == "telemetry.#"
    (number,) = sender.send("1")
    assert shelf.payloads == [b"1"]
    shelf.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_senders_get_no_credit_while_the_store_is_away_though_the_target_is_there() -> None:
    play = Play(ROUTE)
    play.dial("cloud")
    sender = play.connect().attach_sender("telemetry.a")
    assert sender.credit == 0


def test_what_the_store_sends_goes_to_the_target_and_not_back_to_the_store() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    assert inlet.credit == 0
    target = cloud.answer_receiver("telemetry.a", credit=5)
    assert inlet.credit == 5
    (number,) = inlet.send("1")
    target.accept()
    assert inlet.outcome(number) == (ACCEPTED, True)
    assert store.wants_receiver() is None


def test_the_store_hears_of_what_a_target_returns() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    target = cloud.answer_receiver("telemetry.a", credit=5)
    (number,) = inlet.send("1")
    target.update(target.last.number, state=RELEASED, settled=True)
    assert inlet.outcome(number) == (RELEASED, True)


@pytest.mark.parametrize("credit", [3, 9], ids=["no-credit-left", "credit-left"])
def test_nothing_overtakes_a_delivery_that_goes_back_to_the_store_except_what_was_sent(
    credit: int,
) -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    target = cloud.answer_receiver("telemetry.a", credit=5)
    first, *_ = inlet.send("1", "2", "3")
    target.grant(0)
    waiting = inlet.send("4", "5")
    play.core.pause("telemetry.#", play.now)
    target.grant(credit - 3)
    target.update(DeliveryNumber(target.last.number - 2), state=RELEASED, settled=True)
    play.carry_out(play.core.resume("telemetry.#", play.now))
    assert target.payloads == [b"1", b"2", b"3"]
    assert [inlet.outcome(each) for each in (first, *waiting)] == [(RELEASED, True)] * 3
    assert inlet.was_drained()
    (under_way,) = inlet.send("6")
    assert inlet.outcome(under_way) == (RELEASED, True)
    inlet.give_back_credit()
    assert inlet.was_drained()  # it has not heard of the last one
    inlet.give_back_credit()
    inlet.send("1", "4", "5")
    assert target.payloads == [b"1", b"2", b"3", b"1", b"4", b"5"][: credit if credit > 3 else 3]


def test_dead_letters_of_the_store_go_where_the_route_says() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store, is_dead=True)
    target = cloud.answer_receiver("dead", credit=5)
    inlet.send("1")
    assert target.payloads == [b"1"]


def test_a_route_of_which_only_dead_letters_are_under_way_names_its_own_target() -> None:
    play = Play(ROUTE)
    stored_sender(play.dial(STORE), is_dead=True)
    (record,) = play.core.surveyor.survey(play.now).routes
    assert (record.name, record.to) == ("telemetry.#", ("cloud",))


def test_a_bridge_stores_what_it_pulls() -> None:
    play = Play(BRIDGE)
    store, east, cloud = play.dial(STORE), play.dial("east"), play.dial("cloud")
    source = east.answer_sender("orders")
    shelf = store.answer_receiver("orders", credit=5)
    (number,) = source.send("1")
    assert shelf.payloads == [b"1"]
    shelf.accept()
    assert source.outcome(number) == (ACCEPTED, True)
    inlet = stored_sender(store, "orders")
    target = cloud.answer_receiver("orders", credit=5)
    inlet.send("1")
    assert target.payloads == [b"1"]


def test_the_store_is_told_how_long_a_message_may_live_and_how_often_it_has_failed() -> None:
    play = Play(attrs.evolve(ROUTE, ttl_seconds=8.0))
    store = play.dial(STORE)
    sender = play.connect().attach_sender("telemetry.a")
    shelf = store.answer_receiver("telemetry.a", credit=5)
    sender.send("1", ttl_milliseconds=5000, delivery_count=2)
    assert (shelf.last.ttl_milliseconds, shelf.last.delivery_count) == (5000, 2)
    sender.send("2", ttl_milliseconds=60_000)
    assert shelf.last.ttl_milliseconds == 8000


def test_the_header_of_a_stored_message_is_written_anew() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    target = cloud.answer_receiver("telemetry.a", credit=5)
    inlet.send("1", ttl_milliseconds=700, delivery_count=3)
    assert (target.last.ttl_milliseconds, target.last.delivery_count) == (700, 3)
    inlet.send("2")
    assert (target.last.ttl_milliseconds, target.last.delivery_count) == (None, None)


def test_a_route_that_stores_no_more_is_sent_what_is_stored_all_the_same() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    target = cloud.answer_receiver("telemetry.a", credit=5)
    plain = attrs.evolve(ROUTE, store=None, dead_letter=None)
    play.carry_out(play.core.configure(RoutingTable([plain]), play.now))
    inlet.send("1")
    assert target.payloads == [b"1"]
    sender = play.connect().attach_sender("telemetry.a")
    direct = cloud.answer_receiver("telemetry.a", credit=5)
    assert direct.name != target.name
    sender.send("2")
    assert direct.payloads == []  # what is stored goes first
    target.accept()
    inlet.detach()
    assert direct.payloads == [b"2"]
    assert store.wants_receiver() is None


def test_what_is_stored_for_an_address_without_a_target_is_refused_and_stays_stored() -> None:
    play = Play(Route(address="telemetry.#"))
    store = play.dial(STORE)
    assert stored_sender(store).refused is not None


def test_nobody_else_can_send_to_the_node_of_stored_messages() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    client = play.connect().attach_sender("telemetry.a", properties={STORED: "telemetry.#"})
    assert cloud.wants_receiver() is None
    store.answer_receiver("telemetry.a", credit=5)
    assert client.credit == 5


def test_what_is_queued_after_a_restart_goes_back_to_the_store_without_waiting_for_receivers() -> (
    None
):
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    inlet = stored_sender(store)
    target = cloud.answer_receiver("telemetry.a", credit=1)
    target.grant(0)
    (number,) = inlet.send("1")
    (node,) = [each for each in play.core._registry.nodes.values() if each.rotation]
    play.core._parts.routeless.wait_for_receivers(node)  # as whoever restores it does
    target.grant(1)
    target.update(target.last.number, state=RELEASED, settled=True)
    assert inlet.outcome(number) == (RELEASED, True)
