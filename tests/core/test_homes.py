"""Which worker keeps an exactly-once address, and what becomes of that when workers come or go."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest

from router.core.homes import FIRST, Homes, group, rendezvous
from router.core.passage import HOME_WAIT_SECONDS
from router.core.terms import decode_terms
from router.journal.keys import LinkKey
from router.journal.record import GuaranteeCode, LinkDescription
from router.journal.unsettled import LinkMemory, LinkStage, Unsettled
from router.journal.writer import RecordWriter
from router.links.attaches import ATTACH
from router.model.condition import STOLEN
from router.model.identity import DeliveryKey, DeliveryTag
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, Route
from router.routes.table import RoutingTable
from router.service.placement import share_out
from tests.core.test_late_attaches import late as silent
from tests.support.addressed import properties_to
from tests.support.fleet import Fleet
from tests.support.journaled import EPOCH_NS, Journaled
from tests.support.play import Peer, ReceiverEnd, SenderEnd

ADDRESSES = [f"orders.{number}" for number in range(6000)]
EXACT = Route(address="orders.#", guarantee=Guarantee.EXACTLY_ONCE)
TO_EAST = Route(address="east.#", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE)
PLACES = [(near, home) for near in (1, 2, 3) for home in (1, 2, 3)]

Map = dict[DeliveryTag, DeliveryState | None]


def at_home(worker: int, workers: int = 3) -> str:
    """An address that a worker is the home of."""
    return next(each for each in ADDRESSES if rendezvous(each, workers) == worker)


def message_to(address: str) -> bytes:
    """A message whose properties say where it goes (§3.2.4)."""
    return properties_to(address) + b"\x00\x53\x75\xa0\x01a"


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 16])
def test_addresses_spread_evenly(workers: int) -> None:
    counts = Counter(rendezvous(address, workers) for address in ADDRESSES)
    mean = len(ADDRESSES) / workers
    assert set(counts) == set(range(1, workers + 1))
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_only_addresses_of_the_worker_that_comes_or_goes_move(workers: int) -> None:
    moved = [
        (rendezvous(address, workers), after)
        for address in ADDRESSES
        if (after := rendezvous(address, workers + 1)) != rendezvous(address, workers)
    ]
    assert {after for _, after in moved} == {workers + 1}
    share = len(ADDRESSES) / (workers + 1)
    assert abs(len(moved) - share) < 5 * share**0.5


def test_the_table_of_homes() -> None:
    address = at_home(3)
    stored = attrs.evolve(EXACT, dead_letter=Endpoint("east"))
    all_, first = Homes(2, 3, are_spread=True), Homes(2, 3)
    for route, home in ((EXACT, 3), (None, 3), (TO_EAST, FIRST), (stored, FIRST)):
        assert all_.of(address, route) == home
        assert first.of(address, route) == FIRST
    assert all_.of(None, None) == FIRST
    assert all_.elsewhere(address, EXACT) == "/3"
    assert all_.elsewhere(at_home(2), EXACT) is None
    assert [Homes().is_only, Homes(1, 3).is_only, Homes(1, 3, are_spread=True).is_only] == [
        True,
        True,
        False,
    ]
    assert [Homes(2, 3).has_any, Homes(2, 3, are_spread=True).has_any] == [False, True]


def bridge(name: str, from_: str, *to: str, **more: Any) -> Route:
    ends = tuple(Endpoint(each, name) for each in to)
    kept = {"guarantee": Guarantee.EXACTLY_ONCE, **more}
    return Route(address=name, from_=Endpoint(from_, name), to=ends, **kept)


def test_containers_that_bridges_connect_have_one_home() -> None:
    bridges = bridge("a", "east", "west"), bridge("b", "south", "west"), bridge("c", "up", "down")
    loose = bridge("d", "far", "away", guarantee=Guarantee.AT_LEAST_ONCE)
    ties = {"east": "east", "west": "east", "south": "east", "up": "down", "down": "down"}
    assert group([*bridges, loose, EXACT]) == ties
    assert group([*bridges, Route(address="e", to=(Endpoint("up"),))]) == ties
    lone = {name: least for name, least in ties.items() if least == "east"}
    to_up = Route(address="e", to=(Endpoint("up"),), guarantee=Guarantee.EXACTLY_ONCE)
    assert group([*bridges, to_up]) == lone
    assert group([*bridges, bridge("e", "up", "x", dead_letter=Endpoint("local", "f"))]) == lone


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_a_bridge_has_its_home_where_its_containers_are_dialed(workers: int) -> None:
    routes = [bridge(f"b{n}", f"from{n}", f"to{n}") for n in range(40)]
    homes = Homes.among(workers, routes)
    names = [f"{end}{n}" for n in range(40) for end in ("from", "to")]
    placed = share_out([*names, "other"], routes, [workers], {}, homes)
    for number, route in enumerate(routes):
        home = homes.of(route.address, route)
        assert placed[f"from{number}"] == placed[f"to{number}"] == home
    assert {homes.of(route.address, route) for route in routes} == set(range(1, workers + 1))
    first = share_out(names, routes, [workers], {}, Homes(1, workers))
    assert set(first.values()) == {FIRST}


# --- links ----------------------------------------------------------------------------------------


def sender(
    fleet: Fleet,
    worker: int,
    address: str | None,
    unsettled: Map | None = None,
    *,
    number: int | None = None,
    peer: Peer | None = None,
) -> Any:
    end: SenderEnd = (peer or fleet[worker].connect("shop")).attach_sender(
        address,
        name=f"out {address}",
        second=True,
        unsettled={} if unsettled is None else unsettled,
        seconds=300,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        properties=None if number is None else {ATTACH: [1, number]},
    )
    fleet.settle()
    return end


def receiver(fleet: Fleet, worker: int, address: str, unsettled: Map | None = None) -> Any:
    end: ReceiverEnd = (
        fleet[worker]
        .connect("store")
        .attach_receiver(
            address,
            name=f"in {address}",
            second=True,
            unsettled={} if unsettled is None else unsettled,
            seconds=300,
            policy=ExpiryPolicy.CONNECTION_CLOSE,
            credit=10,
        )
    )
    fleet.settle()
    return end


@pytest.mark.parametrize(("near", "home"), PLACES)
def test_senders_and_receivers_meet_at_the_home_of_their_address(near: int, home: int) -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    address = at_home(home)
    sink, source = receiver(fleet, 1 + near % 3, address), sender(fleet, near, address)
    numbers = source.send("a", "b")
    fleet.settle()
    assert sink.payloads == [b"a", b"b"]
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 2
    source.settle(*source.unsettled)
    fleet.settle()
    assert not sink.unsettled
    for number, play in fleet.plays.items():
        assert bool(play.core._registry.nodes) is (number == home)


@pytest.mark.parametrize(("back_at", "home"), PLACES)
def test_a_peer_that_comes_back_by_any_worker_finds_its_link(back_at: int, home: int) -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    address = at_home(home)
    sink, source = receiver(fleet, 2, address), sender(fleet, 2, address)
    source.send("a", "b")
    fleet.settle()
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    source.peer.lose()
    sink.peer.lose()
    fleet.settle()
    told: Map = dict.fromkeys(source.unsettled.values())
    back = sender(fleet, back_at, address, told)
    assert back.attach.unsettled == dict.fromkeys(told, ACCEPTED)
    again = receiver(fleet, back_at, address, dict.fromkeys(sink.unsettled.values(), ACCEPTED))
    assert set(again.attach.unsettled) == set(sink.unsettled.values())
    assert not [payload for payload in again.payloads if payload]


@pytest.mark.parametrize("home", [1, 2])
def test_attaches_wait_for_the_home_of_their_address_and_for_no_other(home: int) -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    gone, there = at_home(home), at_home(2 if home == 1 else 1)
    fleet.cut(home, 3)
    waiting, served = sender(fleet, 3, gone), sender(fleet, 3, there)
    assert (waiting.attach, served.attach is not None) == (None, True)
    fleet.join(home, 3)
    assert waiting.attach is not None


@pytest.mark.parametrize("near", [1, 2, 3])
def test_a_sender_without_an_address_reaches_the_home_of_each_of_its_messages(near: int) -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    addresses = [at_home(worker) for worker in (1, 2, 3)]
    sinks = {address: receiver(fleet, 1, address) for address in addresses}
    source = sender(fleet, near, None)
    assert source.credit == 250
    numbers = [source.send(message_to(each), address=each)[0] for each in (*addresses, *addresses)]
    fleet.settle()
    for address, sink in sinks.items():
        assert sink.payloads == [message_to(address)] * 2
        sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 6
    source.settle(*source.unsettled)
    fleet.settle()
    assert not any(sink.unsettled for sink in sinks.values())
    for number, play in fleet.plays.items():
        kept = {key.address for key in play.core._registry.nodes}
        assert kept == {addresses[number - 1]}


@pytest.mark.parametrize(("near", "back_at"), PLACES)
def test_a_sender_without_an_address_that_comes_back_finds_what_each_home_has(
    near: int, back_at: int
) -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    addresses = [at_home(worker) for worker in (1, 2, 3)]
    sinks = {address: receiver(fleet, 1, address) for address in addresses}
    source = sender(fleet, near, None)
    for address in addresses:
        source.send(message_to(address), address=address)
    fleet.settle()
    sink = sinks[addresses[1]]
    sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    source.peer.lose()
    fleet.settle()
    unsettled: Map = dict.fromkeys(source.unsettled.values())
    lost = DeliveryTag(b"never arrived")
    back = sender(fleet, back_at, None, {**unsettled, lost: None})
    assert back.attach.unsettled.keys() == unsettled.keys()
    assert back.attach.unsettled[list(unsettled)[1]] == ACCEPTED
    for tag, address in zip(unsettled, addresses, strict=True):
        back.send(message_to(address), tag=tag, address=address, resume=True)
    fleet.settle()
    assert [len(each.payloads) for each in sinks.values()] == [1, 1, 1]
    for each in (sinks[addresses[0]], sinks[addresses[2]]):
        each.update(*each.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    assert {told[-1] for told in back.told.values()} == {(ACCEPTED, False)}


def test_credit_without_an_address_is_what_the_home_with_the_least_has_left() -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    source = sender(fleet, 2, None)
    busy, idle = at_home(3), at_home(1)
    for _ in range(100):
        source.send(message_to(busy), address=busy)
    fleet.settle()
    assert source.credit == 150
    for _ in range(30):
        source.send(message_to(idle), address=idle)
    fleet.settle()
    assert source.credit in {120, 150}  # the idle one has 220, which must not be granted
    sink = receiver(fleet, 2, busy)
    for _ in range(10):
        sink.grant(10)
        sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
        fleet.settle()
    assert source.credit <= 250


def test_a_sender_to_many_homes_gets_credit_before_any_of_them_grants_it_anew() -> None:
    fleet = Fleet(4, EXACT, are_spread=True)
    source = sender(fleet, 2, None)
    addresses = [at_home(worker, 4) for worker in (1, 2, 3, 4)]
    for number in range(1000):
        assert source.credit > 0, number
        address = addresses[number % 4]
        source.send(message_to(address), address=address)
        if not number % 10:
            fleet.settle()


def test_messages_of_routes_without_the_promise_and_of_none_are_for_the_first_worker() -> None:
    fleet = Fleet(2, EXACT, "plain.#", are_spread=True)
    sink = fleet[1].connect("store").attach_receiver("plain.a", credit=5)
    source = sender(fleet, 2, None)
    (good,) = source.send(message_to("plain.a"), address="plain.a")
    (bad,) = source.send(message_to("none"), address="none")
    (lost,) = source.send(b"\x00\x53\x75\xa0\x01a")
    fleet.settle()
    assert sink.payloads == [message_to("plain.a")]
    sink.update(*sink.unsettled, state=ACCEPTED, settled=True)
    fleet.settle()
    assert source.outcome(good) == (ACCEPTED, False)
    assert "Rejected" in str(source.outcome(bad))
    assert "Rejected" in str(source.outcome(lost))


def test_parts_and_aborted_deliveries_go_where_they_began() -> None:
    fleet = Fleet(2, EXACT, are_spread=True)
    address = at_home(2, 2)
    sink, source = receiver(fleet, 1, address), sender(fleet, 1, None)
    message = message_to(address)
    source.send(message[:-1], address=address, more=True)
    source.go_on(message[-1:], more=False)
    source.send(message[:-1], address=address, more=True)
    source.abort()
    source.send(message, address=address)
    fleet.settle()
    assert [body for body in sink.bodies.values() if body] == [message] * 2
    assert source.detached is None


def test_a_sender_without_an_address_may_detach_and_speak_of_its_deliveries_later() -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    addresses = [at_home(worker) for worker in (1, 2, 3)]
    sinks = [receiver(fleet, 1, address) for address in addresses]
    source = sender(fleet, 2, None)
    for address in addresses:
        source.send(message_to(address), address=address)
    fleet.settle()
    source.leave()
    fleet.settle()
    for sink in sinks:
        sink.update(*sink.unsettled, state=ACCEPTED, settled=False)
    fleet.settle()
    assert [source.outcome(number) for number in source.unsettled] == [(ACCEPTED, False)] * 3
    source.settle(*source.unsettled)
    fleet.settle()
    assert not any(sink.unsettled for sink in sinks)
    back = sender(fleet, 3, None)
    assert back.attach.unsettled == {}
    back.detach()
    fleet.settle()
    for number, play in fleet.plays.items():
        assert play.core._parts.passages.count == (2 if number == 1 else 0)  # those of the sinks
        assert not play.core._parts.passages._branches
        guests = play.core._registry.guests.values()
        assert all(guest.container == "store" for guest in guests)


@pytest.mark.parametrize("numbers", [(1, 2, 1, 3), (None,) * 4], ids=["numbered", "not numbered"])
def test_a_late_attach_without_an_address_changes_nothing_at_any_home(
    numbers: tuple[int | None, ...],
) -> None:
    """It may steal the link from its successor, and its map lacks what that has sent."""
    fleet = Fleet(3, EXACT, are_spread=True)
    addresses = [at_home(worker) for worker in (1, 2, 3)]
    sinks = [receiver(fleet, 1, address) for address in addresses]
    first, second, late, last = numbers
    source = sender(fleet, 1, None, number=first)
    for address in addresses:
        source.send(message_to(address), tag=b"1 %s" % address.encode(), address=address)
    fleet.settle()
    source.peer.lose()
    fleet.settle()
    old: Map = dict.fromkeys(source.unsettled.values())
    back = sender(fleet, 3, None, old, number=second)
    for tag, address in zip(old, addresses, strict=True):
        back.send(message_to(address), tag=tag, address=address, resume=True)
        back.send(message_to(address), tag=b"2 %s" % address.encode(), address=address)
    fleet.settle()
    shown: Map = {next(iter(old)): None}
    overtaken = sender(fleet, 2, None, shown, number=late, peer=silent(fleet[2], "shop"))
    fleet.settle()
    overtaken.peer.lose()
    fleet.settle()
    if back.is_live() and not back.is_detached():
        back.peer.lose()
        fleet.settle()
    again = sender(fleet, 2, None, dict.fromkeys(back.unsettled.values()), number=last)
    assert again.attach.unsettled.keys() == set(back.unsettled.values())
    assert [len(sink.payloads) for sink in sinks] == [2, 2, 2]


def test_when_one_home_is_lost_the_peer_of_a_link_without_an_address_is_sent_away() -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    source = sender(fleet, 2, None)
    fleet.cut(2, 3)
    assert source.peer.closed is not None
    waiting = sender(fleet, 2, None)
    answers = [waiting.attach]
    fleet.join(2, 3)
    answers.append(waiting.attach)
    assert [answer is not None for answer in answers] == [False, True]
    assert waiting.credit == 250


def test_a_link_without_an_address_that_a_home_refuses_is_refused_once() -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    fleet.cut(1, 3)
    waiting = sender(fleet, 1, None)
    fleet.wait(HOME_WAIT_SECONDS)
    assert waiting.refused is not None
    assert waiting.attach is None
    for play in fleet.plays.values():
        assert not play.core._parts.passages.count
        assert not play.core._registry.guests


def test_a_home_that_ends_a_link_without_an_address_ends_it_everywhere() -> None:
    fleet = Fleet(3, EXACT, are_spread=True)
    source = sender(fleet, 2, None)
    fleet.settle()
    source.send(message_to("none"), address="none", settled=True)
    fleet.settle()
    assert source.detached is not None
    assert "none" in str(source.detached.condition)
    for play in fleet.plays.values():
        assert not play.core._registry.guests
        assert not play.core._parts.passages.count


# --- after a restart ------------------------------------------------------------------------------

OWN = b'{"own":true,"node":["orders.1","meeting",null]}'
BRIDGE = bridge("b", "from", "to")
BRIDGED = b'{"own":true,"node":["b","meeting",null]}'
AT = b'{"node":["%s","%s",null]}'


def memory(number: int, terminus: bytes) -> LinkMemory:
    key = LinkKey(number)
    described = LinkDescription(
        key=key, is_incoming=True, local="dc1", remote="b", name="l", terminus=terminus
    )
    return LinkMemory(description=described, stage=LinkStage.SUSPENDED, worker=1, since_ns=0)


def known() -> tuple[Mapping[LinkKey, LinkMemory], list[Unsettled]]:
    """Links to addresses, to none and of ours, with what two workers wrote of them."""
    links = {
        LinkKey(number): memory(number, AT % (address.encode(), b"meeting"))
        for number, address in enumerate(ADDRESSES[:300], 1)
    }
    links[LinkKey(900)] = memory(900, b"{}")
    links[LinkKey(901)] = memory(901, OWN)
    links[LinkKey(903)] = memory(903, BRIDGED)
    links[LinkKey(902)] = memory(902, AT % (b"east.a", b"towards"))
    deliveries = [
        Unsettled(
            key=DeliveryKey(b"%016d" % number),
            incoming=link,
            worker=1 + number % 2,
            tag=DeliveryTag(b"t"),
            received_ns=number,
            guarantee=GuaranteeCode.EXACTLY_ONCE,
            address=f"orders.{number}" if link == 900 else "",
        )
        for number, link in enumerate([*links, *[LinkKey(900)] * 50, LinkKey(77)])
    ]
    return links, deliveries


def shares(workers: int, *, are_spread: bool) -> Iterator[tuple[int, list[Unsettled]]]:
    links, deliveries = known()
    table = RoutingTable((EXACT, TO_EAST, BRIDGE))
    for own in range(1, workers + 1):
        homes = Homes.among(workers, table.routes, own=own) if are_spread else Homes(own, workers)
        yield own, list(homes.inherits(deliveries, links, table))


@pytest.mark.parametrize("are_spread", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_delivery_is_taken_over_by_one_worker_the_home_of_its_links(
    workers: int, are_spread: bool
) -> None:
    links, deliveries = known()
    found: dict[bytes, int] = {}
    for own, share in shares(workers, are_spread=are_spread):
        for each in share:
            assert each.key not in found
            found[each.key] = own
            if each.incoming not in links:
                continue
            terms = decode_terms(links[each.incoming].description.terminus)
            address = each.address if terms.node is None else terms.node.address
            if address == "b":
                home = Homes.among(workers, [BRIDGE]).of("b", BRIDGE) if are_spread else FIRST
            else:
                route = TO_EAST if address.startswith("east") else EXACT
                home = Homes(own, workers, are_spread).of(address, route)
            if terms.is_own and address != "b":
                home = each.worker if each.worker <= workers else FIRST
            assert home == own
    assert len(found) == len(deliveries)


def test_the_worker_that_wrote_what_is_only_recorded_takes_it_over() -> None:
    links, deliveries = known()
    recorded = [attrs.evolve(d, guarantee=GuaranteeCode.AT_LEAST_ONCE) for d in deliveries]
    table = RoutingTable((EXACT, TO_EAST))
    for own, workers, whose in ((1, 2, {1}), (2, 2, {2}), (1, 1, {1, 2}), (3, 4, set())):
        share = Homes(own, workers, are_spread=True).inherits(recorded, links, table)
        assert {each.worker for each in share} == whose


# --- links that several homes write about ---------------------------------------------------------


def numbered_sender(play: Journaled, number: int, unsettled: Map) -> SenderEnd:
    end = play.connect("shop").attach_sender(
        None,
        name="out",
        second=True,
        unsettled=unsettled,
        seconds=300,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        properties={ATTACH: [1, number]},
    )
    play.flush()
    return end


def test_what_another_home_says_of_its_end_does_not_make_a_link_forget_its_number() -> None:
    """Nothing was unsettled there, so that the link was gone as soon as the connection was."""
    play = Journaled(attrs.evolve(EXACT, address="orders.#"))
    source = numbered_sender(play, 2, {})
    source.send(message_to("orders.1"), address="orders.1")
    ((key, _),) = play.remembered()
    other = RecordWriter(worker=1, incarnation=1)
    other.link_expired(EPOCH_NS, incoming=key)
    play.blocks += other.take_blocks()
    following = play.crash()
    late = numbered_sender(following, 1, {})
    assert late.refused is not None
    assert late.refused.name == STOLEN
    back = numbered_sender(following, 3, dict.fromkeys(source.unsettled.values()))
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert back.attach.unsettled.keys() == set(source.unsettled.values())


@pytest.mark.parametrize("leads", [True, False])
def test_the_first_worker_alone_says_when_a_link_of_all_homes_begins_and_ends(leads: bool) -> None:
    play = Journaled(attrs.evolve(EXACT, address="orders.#"))
    play.core._ledger.share_links(leads=leads)
    source = numbered_sender(play, 1, {})
    play.hand_in()
    assert len(play.memory().links) == leads
    source.send(message_to("orders.1"), address="orders.1")
    source.detach()
    play.hand_in()
    (link,) = play.memory().links.values()
    assert link.stage is (LinkStage.EXPIRED if leads else LinkStage.ATTACHED)
