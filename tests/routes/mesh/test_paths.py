"""The one question: which next hops, at which cost, may this delivery take?"""

import pytest

from router.routes.mesh.events import (
    AddressAttached,
    AddressDetached,
    AddressKept,
    LinkHeldAt,
    LoadTold,
    NeighborLost,
    Reconfigured,
    TreeReady,
)
from router.routes.mesh.nouns import Addresses, Entry, Kind, Links, Prefixes, RouterId
from router.routes.mesh.paths import (
    HOPS_MOST,
    Dropped,
    Multicast,
    Nobody,
    Order,
    Pending,
    Through,
    Unreachable,
    Way,
    Ways,
    may_pass,
)
from router.routes.mesh.policy import Policy
from router.routes.mesh.site import ADDRESSES_MOST
from tests.routes.mesh.scripted import ME, Scripted

A, B, FAR = RouterId("a"), RouterId("b"), RouterId("far")


def three() -> Scripted:
    """``me`` has links to ``a`` and ``b`` at 10 each; ``far`` is behind ``b``, 1 from there."""
    scripted = Scripted()
    scripted.greet(A, B)
    scripted.say(B, B, Links({ME: 10, FAR: 1}), sequence=2)
    scripted.say(B, FAR, Links({B: 1}))
    scripted.wait(0.5)
    return scripted


def hops(scripted: Scripted, address: str, order: Order = Order.CLOSEST) -> list[tuple[str, int]]:
    found = scripted.mesh.paths.find(address, order)
    assert isinstance(found, Ways), found
    return [(way.egress, way.cost) for way in found.ways]


def test_closest_is_the_cost_to_the_egress() -> None:
    scripted = three()
    scripted.say(B, FAR, Prefixes(("orders.#",)), sequence=2)
    scripted.say(A, A, Prefixes(("orders.#",)), sequence=2)
    assert hops(scripted, "orders.eu") == [("a", 10), ("far", 11)]
    found = scripted.mesh.paths.hop_to(FAR)
    assert found == Way(egress=FAR, through=Through.ROUTER, hop=B, cost=11)


def test_balanced_adds_the_load_that_the_egress_has_told() -> None:
    scripted = three()
    scripted.say(B, FAR, Prefixes(("orders.#",)), sequence=2)
    scripted.say(A, A, Prefixes(("orders.#",)), sequence=2)
    assert hops(scripted, "orders.eu", Order.BALANCED)[0] == ("a", 10)
    scripted.tell(LoadTold(A, "orders.eu", 5))
    assert hops(scripted, "orders.eu", Order.BALANCED)[0] == ("far", 11)
    assert hops(scripted, "orders.us", Order.BALANCED)[0] == ("a", 10)
    scripted.tell(LoadTold(A, "orders.eu", 0))
    assert hops(scripted, "orders.eu", Order.BALANCED)[0] == ("a", 10)


def test_the_most_specific_pattern_wins_however_far_it_is() -> None:
    scripted = three()
    scripted.say(A, A, Prefixes(("orders.#",)), sequence=2)
    scripted.say(B, FAR, Prefixes(("orders.eu",)), sequence=2)
    assert hops(scripted, "orders.eu") == [("far", 11)]
    assert hops(scripted, "orders.us") == [("a", 10)]


def test_an_egress_that_cannot_be_reached_is_told_and_nobody_else_stands_in() -> None:
    scripted = three()
    scripted.say(A, A, Prefixes(("orders.#",)), sequence=2)
    scripted.say(B, FAR, Prefixes(("orders.eu",)), sequence=2)
    scripted.tell(NeighborLost(B))
    scripted._up.remove(B)
    scripted.wait(0.5)
    assert scripted.mesh.paths.find("orders.eu", Order.CLOSEST) == Unreachable((FAR,))
    assert hops(scripted, "orders.us") == [("a", 10)]
    assert scripted.mesh.paths.find("prices.eu", Order.CLOSEST) == Nobody()


def test_siblings_edges_and_sites_are_answered_alike() -> None:
    scripted = three()
    scripted.say(A, A, Addresses(("jobs",)), sequence=2)
    scripted.tell(AddressAttached("jobs", "/2", 7))
    scripted.tell(AddressAttached("jobs"))
    scripted.tell(AddressAttached("jobs", "edge:sidecar"))
    scripted.tell(LinkHeldAt(A, "/3"))
    found = scripted.mesh.paths.find("jobs", Order.CLOSEST)
    assert isinstance(found, Ways)
    assert [(way.through, way.hop, way.place, way.cost) for way in found.ways] == [
        (Through.HERE, "", "", 0),
        (Through.SIBLING, "/2", "", 1),
        (Through.EDGE, "sidecar", "", 2),
        (Through.ROUTER, "a", "/3", 10),
    ]
    balanced = scripted.mesh.paths.find("jobs", Order.BALANCED)
    assert isinstance(balanced, Ways)
    assert [way.hop for way in balanced.ways] == ["", "sidecar", "/2", "a"]
    for place in ("", "/2", "edge:sidecar"):
        scripted.tell(AddressDetached("jobs", place))
    assert hops(scripted, "jobs") == [("a", 10)]


def test_a_site_without_receivers_of_its_own_prefix_comes_last() -> None:
    scripted = Scripted(advertise=("orders.#",))
    scripted.greet(A)
    assert hops(scripted, "orders.eu") == [("me", 0)]
    scripted.say(A, A, Prefixes(("orders.#",)), sequence=2)
    assert hops(scripted, "orders.eu") == [("a", 10), ("me", 0)]
    scripted.say(A, A, Prefixes(("#",)), sequence=3)
    assert hops(scripted, "orders.eu") == [("me", 0)]


def test_a_multicast_that_enters_here_goes_to_all_sites_of_all_patterns() -> None:
    scripted = three()
    scripted.say(A, A, Prefixes(("prices.#",)), sequence=2)
    scripted.say(B, B, Prefixes(("#",)), sequence=3)
    scripted.say(B, FAR, Addresses(("prices.eu",)), sequence=2)
    scripted.tell(AddressAttached("prices.eu", "/1"))
    found = scripted.mesh.paths.branches("prices.eu", ME, None)
    assert isinstance(found, Multicast)
    assert found.branches == {A: (A,), B: (B, FAR)}
    assert [way.hop for way in found.local] == ["/1"]
    assert found.unreachable == ()
    assert scripted.mesh.paths.branches("prices.eu", ME, A) == Dropped("it came back from a")


def test_a_multicast_in_transit_follows_the_tree_of_its_origin() -> None:
    scripted = three()
    scripted.say(B, FAR, Prefixes(("prices.#",)), sequence=2)
    scripted.say(A, A, Prefixes(("prices.#",)), sequence=2)
    paths = scripted.mesh.paths
    assert paths.branches("prices.eu", FAR, B) == Pending(FAR)
    scripted.wait(1.0)
    assert TreeReady(FAR) in scripted.orders
    found = paths.branches("prices.eu", FAR, B)
    assert isinstance(found, Multicast)
    assert found.branches == {A: (A,)}
    dropped = paths.branches("prices.eu", FAR, A)
    assert dropped == Dropped("it came from a; the tree of far has b")
    scripted.say(B, B, Links({ME: 10, FAR: 2}), sequence=3)
    scripted.wait(0.5)
    assert paths.branches("prices.eu", FAR, B) == Pending(FAR)  # the tree was of another topology


@pytest.mark.parametrize(
    ("passed", "rule"),
    [
        ([], None),
        (["x"] * (HOPS_MOST - 1), None),
        (["x"] * HOPS_MOST, "the delivery has passed 32 routers"),
        (["x", "me"], "the delivery has passed me before"),
    ],
)
def test_a_delivery_that_loops_is_released(passed: list[str], rule: str | None) -> None:
    assert may_pass(ME, passed) == rule


def own(scripted: Scripted, kind: Kind) -> list[Entry]:
    return [
        one for one in scripted.entries_to(A) if one.key.origin == ME and one.key.kind == kind.value
    ]


def test_an_address_under_a_prefix_of_the_site_is_told_to_nobody() -> None:
    scripted = Scripted(advertise=("orders.#",))
    scripted.greet(A)
    scripted.sent.clear()
    for number in range(1_000):
        scripted.tell(AddressAttached(f"orders.{number}"))
        scripted.tell(AddressDetached(f"orders.{number}"))
    scripted.wait(2.0)
    assert scripted.entries_to(A) == []


def test_single_addresses_are_announced_up_to_a_bound_and_what_is_beyond_is_named() -> None:
    scripted = Scripted()
    scripted.greet(A)
    for number in range(ADDRESSES_MOST + 2):
        scripted.tell(AddressAttached(f"queue.{number}"))
    scripted.wait(0.5)
    rule = (
        f"{ADDRESSES_MOST} single addresses are announced already; "
        "name a prefix that covers it in mesh.advertise"
    )
    assert scripted.of(AddressKept) == [
        AddressKept(f"queue.{ADDRESSES_MOST}", rule),
        AddressKept(f"queue.{ADDRESSES_MOST + 1}", rule),
    ]
    assert len(own(scripted, Kind.ADDRESSES)) <= 16  # one entry a part, however many there are
    scripted.sent.clear()
    scripted.tell(AddressDetached("queue.5"))
    scripted.wait(0.5)
    assert 1 <= len(own(scripted, Kind.ADDRESSES)) <= 2  # its part, and that of one that waited
    site = scripted.mesh._site
    announced = {address for part in site._parts.values() for address in part}
    assert f"queue.{ADDRESSES_MOST}" in announced
    assert len(announced) == ADDRESSES_MOST


def test_single_addresses_are_withdrawn_when_a_prefix_comes_to_cover_them() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.tell(AddressAttached("queue.1"))
    scripted.tell(AddressAttached("other.1"))
    scripted.wait(0.5)
    scripted.tell(Reconfigured({}, ("queue.#",), Policy.parse({})))
    scripted.wait(0.5)
    announced = {address for part in scripted.mesh._site._parts.values() for address in part}
    assert announced == {"other.1"}
    scripted.tell(Reconfigured({}, (), Policy.parse({})))
    scripted.wait(0.5)
    announced = {address for part in scripted.mesh._site._parts.values() for address in part}
    assert announced == {"other.1", "queue.1"}


def test_a_site_has_a_bounded_number_of_prefixes() -> None:
    scripted = Scripted()
    many = tuple(f"p{number}.#" for number in range(1_025))
    with pytest.raises(ValueError, match="at most 1024 prefixes"):
        scripted.tell(Reconfigured({}, many, Policy.parse({})))
    scripted.tell(Reconfigured({}, many[:1_024], Policy.parse({})))
    scripted.greet(A)
    scripted.wait(0.5)
    assert len(own(scripted, Kind.PREFIXES)) == 8
