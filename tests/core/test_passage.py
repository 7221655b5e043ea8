"""Exactly-once links lead through to the first worker, so that they are found again."""

import pytest

from router.core.passage import HOME_WAIT_SECONDS
from router.core.policy import Policy, PolicyRule
from router.core.polls import SENDERS_SECONDS
from router.model.condition import CONNECTION_FORCED, DETACH_FORCED, UNAUTHORIZED_ACCESS
from router.model.events import DeliveriesReceived, LinkDetached
from router.model.identity import ConnectionId, DeliveryTag
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState
from router.model.terminus import ExpiryPolicy
from router.routes.route import Guarantee, Route
from tests.support.fleet import Fleet
from tests.support.journaled import Journaled
from tests.support.play import ReceiverEnd, SenderEnd

EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
TO_ORDERS = b"\x00\x53\x73\xc0\x0b\x03\x40\x40\xa1\x06orders\x00\x53\x75\xa0\x01a"
"""A message whose properties say where it goes."""

Map = dict[DeliveryTag, DeliveryState | None]


def sender(
    fleet: Fleet, worker: int, unsettled: Map | None = None, address: str | None = "orders"
) -> SenderEnd:
    end = (
        fleet[worker]
        .connect("shop")
        .attach_sender(
            address,
            name="out",
            second=True,
            unsettled={} if unsettled is None else unsettled,
            seconds=300,
            policy=ExpiryPolicy.CONNECTION_CLOSE,
        )
    )
    fleet.settle()
    return end


def receiver(
    fleet: Fleet, worker: int, unsettled: Map | None = None, *, second: bool = True
) -> ReceiverEnd:
    end = (
        fleet[worker]
        .connect("store")
        .attach_receiver(
            "orders",
            name="in",
            second=second,
            unsettled={} if unsettled is None else unsettled,
            seconds=300,
            policy=ExpiryPolicy.CONNECTION_CLOSE,
            credit=10,
        )
    )
    fleet.settle()
    return end


def finish(fleet: Fleet, source: SenderEnd, sink: ReceiverEnd) -> None:
    """Lets both ends settle all that they have."""
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    source.settle(*source.unsettled)
    fleet.settle()


@pytest.mark.parametrize("places", [(1, 2), (2, 1), (2, 2), (2, 3), (3, 1)])
def test_it_goes_from_any_worker_to_any(places: tuple[int, int]) -> None:
    fleet = Fleet(3, EXACT)
    sink, source = receiver(fleet, places[1]), sender(fleet, places[0])
    assert source.credit == 10
    numbers = source.send("a", "b")
    fleet.settle()
    assert sink.payloads == [b"a", b"b"]
    finish(fleet, source, sink)
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 2
    assert not sink.unsettled
    home = fleet[1].core._registry
    assert all(not link.unsettled for link in home.attached.values())
    for play in (fleet[2], fleet[3]):
        assert not play.core._registry.nodes


@pytest.mark.parametrize("comes_back", [1, 2, 3])
def test_a_sender_that_comes_back_by_another_worker_finds_its_link(comes_back: int) -> None:
    fleet = Fleet(3, EXACT)
    sink, source = receiver(fleet, 1), sender(fleet, 2)
    source.send("a", "b")
    fleet.settle()
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    source.peer.lose()
    fleet.settle()
    told: Map = dict.fromkeys(source.unsettled.values())
    back = sender(fleet, comes_back, told)
    assert back.attach is not None
    assert back.attach.unsettled == dict.fromkeys(told, ACCEPTED)
    assert sink.payloads == [b"a", b"b"]


@pytest.mark.parametrize("comes_back", [1, 2, 3])
def test_a_receiver_that_comes_back_by_another_worker_gets_nothing_twice(comes_back: int) -> None:
    fleet = Fleet(3, EXACT)
    sink, source = receiver(fleet, 2), sender(fleet, 3)
    source.send("a", "b")
    fleet.settle()
    sink.peer.lose()
    fleet.settle()
    back = receiver(fleet, comes_back, dict.fromkeys(sink.unsettled.values(), ACCEPTED))
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert set(back.attach.unsettled) == set(sink.unsettled.values())
    source.settle(*source.unsettled)
    fleet.settle()
    assert b"a" not in back.payloads
    assert not fleet[1].core._registry.suspended


def test_when_a_worker_dies_that_only_passes_on_nothing_is_lost() -> None:
    fleet = Fleet(2, EXACT)
    sink, source = receiver(fleet, 1), sender(fleet, 2)
    source.send("a")
    fleet.settle()
    fleet.cut(1, 2)
    assert len(fleet[1].core._registry.suspended) == 1
    assert not fleet[1].core._registry.guests
    back = sender(fleet, 1, dict.fromkeys(source.unsettled.values()))
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    assert back.attach is not None
    assert sink.payloads == [b"a"]


@pytest.mark.parametrize("second", [True, False])
def test_what_a_receiver_said_as_the_home_was_lost_is_never_sent_again(second: bool) -> None:
    """A receiver that settles second says it again; of one that settles first nobody knows."""
    fleet = Fleet(2, EXACT)
    source, sink = sender(fleet, 1), receiver(fleet, 2, second=second)
    numbers = source.send("a", "b")
    fleet.settle()
    told: Map = dict.fromkeys(sink.unsettled.values(), ACCEPTED)
    sink.update(*sink.unsettled, state=ACCEPTED, settled=not second)
    fleet.cut(1, 2)  # before the home has heard it
    fleet.join(1, 2)
    back = receiver(fleet, 2, told if second else {}, second=second)
    assert not [each for each in back.payloads if each]
    outcome = (ACCEPTED, False) if second else None
    assert [source.outcome(number) for number in numbers] == [outcome] * 2


def test_when_the_home_dies_peers_are_sent_away_and_their_attach_waits_for_it() -> None:
    fleet = Fleet(2, EXACT)
    source = sender(fleet, 2)
    fleet.cut(1, 2)
    closed = source.peer.closed
    assert closed is not None
    assert closed.condition is not None
    assert closed.condition.name == CONNECTION_FORCED
    back = sender(fleet, 2)
    answers = [back.attach]
    fleet.join(1, 2)
    answers.append(back.attach)
    assert [answer is not None for answer in answers] == [False, True]


def test_patience_with_a_home_that_does_not_come_has_an_end() -> None:
    fleet = Fleet(2, EXACT)
    fleet.cut(1, 2)
    source = sender(fleet, 2)
    fleet.wait(HOME_WAIT_SECONDS)
    assert source.refused is not None
    assert source.refused.name == DETACH_FORCED


def test_other_links_stay_where_they_are() -> None:
    fleet = Fleet(2, EXACT, "plain.#")
    client = fleet[2].connect()
    sink, source = client.attach_receiver("plain.a", credit=5), client.attach_sender("plain.a")
    source.send("x")
    assert sink.payloads == [b"x"]
    assert not fleet[2].core._parts.passages.count


def test_messages_with_an_address_of_their_own_go_home_too() -> None:
    fleet = Fleet(2, EXACT, "plain.#")
    sink, source = receiver(fleet, 2), sender(fleet, 2, address=None)
    source.send(TO_ORDERS, address="orders")
    fleet.settle()
    assert sink.payloads == [TO_ORDERS]


def test_a_message_without_an_address_that_is_aborted_at_once_never_was() -> None:
    """§2.7.5; its address could not be read yet, and its link goes on."""
    fleet = Fleet(2, EXACT)
    sink, source = receiver(fleet, 2), sender(fleet, 2, address=None)
    source.send(TO_ORDERS[:-1], address="orders", more=True)
    source.abort()
    source.send(TO_ORDERS, address="orders")
    fleet.settle()
    assert sink.payloads == [TO_ORDERS]
    assert source.detached is None


def test_a_guest_may_do_no_more_than_at_its_own_worker() -> None:
    fleet = Fleet(2, EXACT, "plain.#")
    rules = Policy((PolicyRule(name="shop", send=("plain.#",)),))
    for play in fleet.plays.values():
        play.carry_out(play.core.govern(rules, {}, play.now))
    refused = sender(fleet, 2).refused
    assert refused is not None
    assert refused.name == UNAUTHORIZED_ACCESS
    anonymous = sender(fleet, 2, address=None)
    (number,) = anonymous.send(TO_ORDERS, address="orders")
    fleet.settle()
    assert "Rejected" in str(anonymous.outcome(number))


def test_parts_credit_given_back_and_detaching_are_passed_on() -> None:
    fleet = Fleet(2, EXACT)
    sink, source = receiver(fleet, 2), sender(fleet, 2)
    source.send("ab", more=True)
    source.go_on(b"cd", more=False)
    fleet.settle()
    assert b"".join(sink.bodies.values()) == b"abcd"
    finish(fleet, source, sink)
    sink.grant(10, drain=True)
    fleet.settle()
    fleet.wait(SENDERS_SECONDS)
    assert sink.credit == 0
    sink.detach()
    source.detach()
    fleet.settle()
    assert not fleet[1].core._registry.attached
    assert not fleet[1].core._registry.guests
    assert not fleet[2].core._parts.passages.count


def hand_over(source: SenderEnd, *payloads: str) -> None:
    """A publisher that asked for no confirms leaves: what it has left goes on without credit."""
    deliveries = [source.delivery(payload, settled=True) for payload in payloads]
    source.peer.sends.pop(source.link)
    source.peer.happens(
        DeliveriesReceived(source.link, deliveries), LinkDetached(source.link, closed=True)
    )


@pytest.mark.parametrize("credit", [0, 2, 10])
def test_what_a_sender_hands_over_as_it_leaves_goes_on_as_credit_comes(credit: int) -> None:
    fleet = Fleet(2, EXACT)
    source = fleet[2].connect("shop").attach_sender("orders", name="out")
    fleet.settle()
    if credit:
        fleet[1].connect("early").attach_receiver("orders", credit=credit)
        fleet.settle()
    hand_over(source, "a", "b", "c")
    fleet.settle()
    sink = fleet[1].connect("store").attach_receiver("orders", credit=10)
    fleet.settle()
    early = fleet[1].peers[ConnectionId(2)].receives if credit else {}
    got = [payload for end in (sink, *early.values()) for payload in end.payloads]
    assert sorted(got) == [b"a", b"b", b"c"]
    assert fleet[2].core._parts.passages.count == 0


def test_what_is_handed_over_before_the_home_has_answered_goes_on_too() -> None:
    fleet = Fleet(2, EXACT)
    source = fleet[2].connect("shop").attach_sender("orders", name="out")
    hand_over(source, "a")
    fleet.settle()
    sink = fleet[1].connect("store").attach_receiver("orders", credit=10)
    fleet.settle()
    assert sink.payloads == [b"a"]
    assert fleet[2].core._parts.passages.count == 0


def test_what_waits_in_a_passage_when_the_home_dies_is_gone_with_it() -> None:
    fleet = Fleet(2, EXACT)
    source = fleet[2].connect("shop").attach_sender("orders", name="out")
    fleet.settle()
    hand_over(source, "a")
    fleet.cut(1, 2)
    fleet.settle()
    assert fleet[2].core._parts.passages.count == 0


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_on_its_way_to_a_receiver_that_leaves_is_not_in_doubt(is_lost: bool) -> None:
    fleet = Fleet(2, EXACT)
    leaving = fleet[2].connect("office").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source = sender(fleet, 1)
    numbers = [source.send(payload)[0] for payload in "abc"]
    if is_lost:
        leaving.peer.lose()
    else:
        leaving.detach()
    sink = receiver(fleet, 1)
    assert (leaving.payloads, sink.payloads) == ([], [b"a", b"b", b"c"])
    finish(fleet, source, sink)
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 3
    assert fleet[2].core._parts.passages.count == 0
    assert list(fleet[1].core._registry.guests) == []


def test_what_is_on_its_way_when_the_last_receiver_leaves_was_not_sent() -> None:
    fleet = Fleet(2, EXACT)
    leaving = fleet[2].connect("office").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source = fleet[1].connect("shop").attach_sender("orders", name="out")
    numbers = [source.send(payload)[0] for payload in "abc"]
    leaving.detach()
    fleet.settle()
    assert [source.outcome(number) for number in numbers] == [(RELEASED, True)] * 3


def test_a_receiver_that_comes_back_at_once_gets_what_was_on_its_way() -> None:
    fleet = Fleet(2, EXACT)
    leaving = fleet[2].connect("office").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source = fleet[1].connect("shop").attach_sender("orders", name="out")
    source.send("a")
    leaving.detach()
    back = leaving.peer.attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source.send("b")
    fleet.settle()
    assert (leaving.payloads, back.payloads) == ([], [b"a", b"b"])
    assert fleet[2].core._parts.passages.count == 1


@pytest.mark.parametrize("drain", [False, True])
def test_what_crosses_with_the_end_of_a_receivers_credit_goes_to_others(drain: bool) -> None:
    fleet = Fleet(2, EXACT)
    idle = fleet[2].connect("office").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source = sender(fleet, 1)
    for payload in "abc":
        source.send(payload)
    idle.grant(0, drain=drain)
    fleet.settle()
    sink = receiver(fleet, 1)
    assert (idle.payloads, sink.payloads) == ([], [b"a", b"b", b"c"])
    idle.grant(10)
    fleet.settle()
    source.send("d")
    source.send("e")
    fleet.settle()
    assert sorted([*idle.payloads, *sink.payloads]) == [b"a", b"b", b"c", b"d", b"e"]
    assert idle.payloads


def test_what_crosses_with_the_end_of_credit_waits_for_the_only_receiver() -> None:
    fleet = Fleet(2, EXACT)
    only = fleet[2].connect("office").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    source = sender(fleet, 1)
    numbers = [source.send(payload)[0] for payload in "abc"]
    only.grant(0)
    fleet.settle()
    assert [source.outcome(number) for number in numbers] == [None] * 3
    only.grant(10)
    fleet.settle()
    assert only.payloads == [b"a", b"b", b"c"]


def test_through_another_worker_nothing_passes_before_it_is_durable_at_the_first() -> None:
    """A transfer, an outcome, a settlement, a map, and a resumed transfer."""
    fleet = Fleet(2, EXACT, make=Journaled)
    first, second = fleet[1], fleet[2]
    assert isinstance(first, Journaled)
    assert isinstance(second, Journaled)

    def flush() -> None:
        fleet.settle()
        first.flush()
        fleet.settle()

    store, shop = receiver(fleet, 2), sender(fleet, 2)
    (number,) = shop.send(TO_ORDERS, tag=DeliveryTag(b"a"))
    fleet.settle()
    assert not store.received
    flush()
    tag = store.last.tag
    store.update(store.last.number, settled=False)
    fleet.settle()
    assert shop.outcome(number) is None
    store.peer.lose()
    fleet.settle()
    store = receiver(fleet, 2, {tag: ACCEPTED})
    assert not store.received
    flush()
    assert shop.outcome(number) == (ACCEPTED, False)
    assert [(each.resume, each.state) for each in store.received] == [(True, ACCEPTED)]
    (early,) = shop.send(TO_ORDERS, tag=DeliveryTag(b"b"))
    flush()
    shop.settle(early, state=ACCEPTED)
    fleet.settle()
    assert store.told_last(store.last.number) is None
    tag = store.last.tag
    store.peer.lose()
    fleet.settle()
    store = receiver(fleet, 2, {tag: None})
    before = store.attach
    flush()
    assert before is None
    assert store.attach is not None
    assert tag not in (store.attach.unsettled or {})
    assert second.writer.next_sequence == 1, "all of it is on record at the first"
