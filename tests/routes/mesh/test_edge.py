"""An edge has one active uplink and warm ones; its hub speaks for it."""

import pytest

from router.routes.mesh.edge import Edge
from router.routes.mesh.events import (
    AddressAttached,
    AddressDetached,
    AddressKept,
    CloseConnection,
    Event,
    LinkChanged,
    MessageBroken,
    MessageReceived,
    NeighborConnected,
    NeighborLost,
    Order,
    RouterRefused,
    SendMessage,
)
from router.routes.mesh.mesh import Mesh, Settings
from router.routes.mesh.messages import EDGE_ADDRESSES_MOST
from router.routes.mesh.nouns import Ask, EdgeAddresses, Hello, Message, RouterId
from router.routes.mesh.paths import Nobody, Through, Ways
from router.routes.mesh.paths import Order as By
from router.routes.mesh.policy import Policy
from tests.routes.mesh.simulator import notary_for

EDGE, ONE, TWO, FAR = RouterId("edge"), RouterId("hub-1"), RouterId("hub-2"), RouterId("far")
HUBS = (ONE, TWO)


class Town:
    """An edge and two hubs, joined without delay; a link may be silent.

    Attributes:
        sent: messages other than hellos, by their ends.
    """

    def __init__(self, policy: Policy | None = None, advertise: tuple[str, ...] = ()) -> None:
        self.now = 50.0
        self.edge = Edge(EDGE, 1, HUBS)
        self.machines: dict[RouterId, Edge | Mesh] = {EDGE: self.edge}
        self.hubs: dict[RouterId, Mesh] = {}
        for router in HUBS:
            settings = Settings(
                router=router,
                epoch=1,
                policy=Policy.parse({}) if policy is None else policy,
                advertise=advertise,
            )
            self.hubs[router] = Mesh(settings, notary_for(router), self.now)
        self.machines |= self.hubs
        self.silent: set[RouterId] = set()
        self.open: set[frozenset[RouterId]] = set()
        self.sent: list[tuple[RouterId, RouterId, Message]] = []
        self.orders: list[tuple[RouterId, Order]] = []
        self.join(ONE, TWO)

    def active(self) -> RouterId | None:
        """Returns the edge's active uplink."""
        return self.edge.active

    def join(self, one: RouterId, other: RouterId) -> None:
        self.open.add(frozenset((one, other)))
        self.tell(one, NeighborConnected(other))
        self.tell(other, NeighborConnected(one))

    def cut(self, one: RouterId, other: RouterId) -> None:
        self.open.discard(frozenset((one, other)))
        self.tell(one, NeighborLost(other))
        self.tell(other, NeighborLost(one))

    def tell(self, router: RouterId, event: Event) -> None:
        self._keep(router, self.machines[router].handle(event, self.now))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            for router, machine in self.machines.items():
                while machine.deadline is not None and machine.deadline <= self.now:
                    self._keep(router, machine.handle_deadline(self.now))

    def ways(self, hub: RouterId, address: str) -> str:
        found = self.hubs[hub].paths.find(address, By.CLOSEST)
        if not isinstance(found, Ways):
            return type(found).__name__
        return f"{found.ways[0].through.value} {found.ways[0].hop}"

    def of(self, router: RouterId, kind: type[Order]) -> list[Order]:
        return [order for one, order in self.orders if one == router and isinstance(order, kind)]

    def _keep(self, router: RouterId, orders: list[Order]) -> None:
        for order in orders:
            if not isinstance(order, SendMessage):
                self.orders.append((router, order))
                continue
            if not isinstance(order.message, Hello):
                self.sent.append((router, order.neighbor, order.message))
            ends = frozenset((router, order.neighbor))
            if ends in self.open and not (self.silent & ends):
                self.tell(order.neighbor, MessageReceived(router, order.message))


def town(policy: Policy | None = None, advertise: tuple[str, ...] = ()) -> Town:
    found = Town(policy, advertise)
    found.tell(EDGE, AddressAttached("jobs.a"))
    for hub in HUBS:
        found.join(EDGE, hub)
    found.wait(1.0)
    return found


def test_the_first_uplink_is_active_and_the_hub_speaks_for_the_edge() -> None:
    one = town()
    assert one.edge.active == ONE
    assert one.ways(ONE, "jobs.a") == "edge edge"
    assert one.ways(TWO, "jobs.a") == "router hub-1"
    way = one.edge.way()
    assert way is not None
    assert (way.egress, way.through) == (ONE, Through.ROUTER)
    assert EDGE not in one.hubs[ONE].paths.tree.costs


def test_the_first_of_the_list_has_a_second_to_come_up_when_an_edge_starts() -> None:
    one = Town()
    one.tell(EDGE, AddressAttached("jobs.a"))
    one.join(EDGE, TWO)
    one.wait(0.9)
    assert one.active() is None
    one.join(EDGE, ONE)
    assert one.active() == ONE
    one.wait(5.0)
    assert one.active() == ONE
    one.cut(EDGE, ONE)
    assert one.active() == TWO  # at once, from now on


def test_an_edge_whose_first_uplink_is_away_starts_with_the_next() -> None:
    one = Town()
    one.tell(EDGE, AddressAttached("jobs.a"))
    one.join(EDGE, TWO)
    one.wait(1.1)
    assert one.active() == TWO
    assert one.ways(TWO, "jobs.a") == "edge edge"
    one.join(EDGE, ONE)
    one.wait(5.0)
    assert one.active() == TWO


def test_an_uplink_that_is_lost_before_it_was_chosen_leaves_nothing_due() -> None:
    one = Town()
    one.join(EDGE, TWO)
    one.wait(0.5)
    one.cut(EDGE, TWO)
    assert one.edge.deadline is None
    one.join(EDGE, TWO)
    one.wait(0.9)
    assert one.active() is None
    one.wait(0.2)
    assert one.active() == TWO


def test_addresses_of_an_edge_come_and_go() -> None:
    one = town()
    one.tell(EDGE, AddressAttached("jobs.b"))
    one.tell(EDGE, AddressAttached("jobs.b"))
    one.tell(EDGE, AddressDetached("jobs.a"))
    one.tell(EDGE, AddressDetached("jobs.a"))
    one.wait(0.5)
    assert one.ways(TWO, "jobs.b") == "router hub-1"
    assert one.ways(ONE, "jobs.a") == "Nobody"
    assert one.ways(TWO, "jobs.a") == "Nobody"


def test_addresses_of_an_edge_under_a_prefix_of_the_hub_are_told_to_nobody() -> None:
    one = town(advertise=("jobs.#",))
    one.wait(1.0)
    one.sent.clear()
    for number in range(100):
        one.tell(EDGE, AddressAttached(f"jobs.{number}"))
    one.wait(0.5)
    assert {ends[:2] for ends in one.sent} == {(EDGE, ONE)}
    assert one.ways(ONE, "jobs.7") == "edge edge"


def test_the_next_uplink_takes_over_at_once_when_a_connection_is_lost() -> None:
    one = town()
    one.cut(EDGE, ONE)
    assert one.edge.active == TWO
    one.wait(0.2)
    assert one.ways(TWO, "jobs.a") == "edge edge"
    assert one.ways(ONE, "jobs.a") == "router hub-2"
    one.join(EDGE, ONE)
    one.wait(5.0)
    assert one.edge.active == TWO  # it does not go back of its own accord
    one.cut(EDGE, TWO)
    assert one.edge.active == ONE


def test_silence_of_the_active_uplink_is_noticed_after_three_seconds() -> None:
    one = town()
    one.silent.add(ONE)
    one.wait(2.0)
    assert one.edge.active == ONE
    one.wait(2.0)
    assert one.edge.active == TWO
    assert one.ways(TWO, "jobs.a") == "edge edge"
    assert one.ways(ONE, "jobs.a") in ("Nobody", "Unreachable")


def test_without_an_uplink_there_is_no_way() -> None:
    one = town()
    one.cut(EDGE, ONE)
    one.cut(EDGE, TWO)
    assert one.edge.way() is None
    one.tell(EDGE, AddressDetached("jobs.a"))
    one.tell(EDGE, AddressAttached("jobs.c"))
    one.join(EDGE, TWO)
    one.wait(0.5)
    assert one.ways(ONE, "jobs.a") == "Nobody"
    assert one.ways(ONE, "jobs.c") == "router hub-2"


def test_a_hub_that_misses_a_message_asks_for_all_addresses() -> None:
    one = town()
    one.tell(ONE, MessageReceived(EDGE, EdgeAddresses(9, False, ("jobs.x",))))
    one.wait(0.5)
    assert one.ways(ONE, "jobs.x") == "Nobody"
    one.tell(EDGE, AddressAttached("jobs.y"))
    one.wait(0.5)
    assert one.ways(ONE, "jobs.a") == "edge edge"
    assert one.ways(ONE, "jobs.y") == "edge edge"


def test_what_an_edge_may_serve_is_the_hubs_policy() -> None:
    one = town(Policy.parse({"edge": ("jobs.a",)}))
    one.tell(EDGE, AddressAttached("bank.a"))
    one.wait(0.5)
    assert isinstance(one.hubs[ONE].paths.find("bank.a", By.CLOSEST), Nobody)
    rule = "the policy does not let edge advertise the address 'bank.a'"
    assert one.of(ONE, RouterRefused) == [RouterRefused(EDGE, EDGE, rule, 1)]
    assert one.ways(ONE, "jobs.a") == "edge edge"


def test_an_edge_has_a_bounded_number_of_addresses_and_sends_them_in_pieces() -> None:
    one = town()
    for number in range(EDGE_ADDRESSES_MOST):
        one.tell(EDGE, AddressAttached(f"many.{number}"))
    kept = one.of(EDGE, AddressKept)
    assert kept == [
        AddressKept(f"many.{EDGE_ADDRESSES_MOST - 1}", "an edge has at most 1024 addresses")
    ]
    one.cut(EDGE, ONE)
    one.wait(0.5)
    assert one.ways(TWO, "many.1000") == "edge edge"


def test_an_uplink_that_is_none_is_closed() -> None:
    one = town()
    one.tell(EDGE, NeighborConnected(FAR))
    assert one.of(EDGE, CloseConnection) == [CloseConnection(FAR, "far is no uplink of this edge")]


@pytest.mark.parametrize(
    ("sender", "message", "rule"),
    [
        (EDGE, Ask(()), "a message of a router by an edge"),
        (TWO, EdgeAddresses(1, True, ()), "a message of an edge by a router"),
    ],
)
def test_edges_and_routers_keep_to_their_messages(
    sender: RouterId, message: Message, rule: str
) -> None:
    one = town()
    one.tell(ONE, MessageReceived(sender, message))
    assert one.of(ONE, RouterRefused) == [RouterRefused(sender, sender, rule, 1)]
    assert one.of(ONE, CloseConnection) == [CloseConnection(sender, rule)]


def test_a_broken_message_of_an_uplink_closes_it_and_the_next_takes_over() -> None:
    one = town()
    one.tell(EDGE, MessageBroken(ONE, "hello.epoch is missing"))
    assert one.edge.active == TWO
    assert one.of(EDGE, CloseConnection) == [CloseConnection(ONE, "hello.epoch is missing")]


def test_an_edge_that_was_paused_keeps_its_uplink() -> None:
    one = town()
    one.orders.clear()
    one.now += 60.0
    for router, machine in one.machines.items():
        one._keep(router, machine.handle_deadline(one.now))
    one.wait(5.0)
    assert one.edge.active == ONE
    assert one.of(EDGE, LinkChanged) == []
