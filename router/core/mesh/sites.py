"""The sites of the mesh and the nodes here: what is announced, and what changes with the paths.

Addresses of direct routes that have receivers here are announced to the machine, which tells the
mesh of those that no prefix of this site covers (``routes.mesh.site``). When the answers of the
mesh have changed, all nodes that may have links to other sites ask again, some at a time; their
uplinks change to other next hops, and what was sent on links that are gone is sent again.

A transit that knows no way any more returns what it holds, though not at once: routers learn of a
cut one after the other, and the ingress is to know another way by then.

Neighbors attach chains (``mesh.ways``): at the egress a link of a chain leads to the node of its
address, and elsewhere to the chain's own node. So do other workers of this router, for what enters
the mesh there.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from router.core.alarms import Alarm
from router.core.mesh.chains import find_fault, vouch
from router.core.mesh.control import SLICE_SECONDS, Control
from router.core.mesh.names import (
    address_of,
    ending_chain,
    is_edge,
    is_exact,
    maker_named,
    read_chain,
)
from router.core.mesh.ways import is_direct, is_sharable, is_shared, is_shared_route
from router.core.node import Direction, Node, NodeKey
from router.core.reach import Reach, is_sibling
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.attaches import read_number
from router.links.link import Connection, OutgoingLink
from router.model.condition import INVALID_FIELD, NOT_ALLOWED, NOT_FOUND, Condition
from router.model.events import LinkAttached
from router.model.terminus import Role, SenderSettleMode
from router.routes.mesh.events import AddressAttached, AddressDetached
from router.routes.route import Guarantee, Route

PATIENCE_SECONDS: Final = 0.5
"""How long a transit without a way waits: longer than news take to all routers, and trees."""

NODES_IN_SLICE: Final = 25
"""Nodes that ask again at a time: some 1 ms."""

_UNFIT: Final = Condition(NOT_ALLOWED, "between sites, links are attached by who sends")


class Sites:
    """Keeps nodes and mesh in step."""

    def __init__(self, state: State, control: Control, reach: Reach, uplinks: Uplinks) -> None:
        self._registry = state.registry
        self._settings = state.settings
        self._alarms = state.alarms
        self._turn = state.turn
        self._control = control
        self._reach = reach
        self._uplinks = uplinks
        self._announced: dict[str, None] = {}
        self._received: dict[tuple[str, str], None] = {}
        self._waiting: dict[NodeKey, None] = {}
        self._alarm: Alarm | None = None
        self.on_edges: Callable[[str, bool], None] = _ignore
        control.followers.append(self.paths_changed)
        control.on_edge = self._edge_serves

    # Chains that neighbors attach

    def enter(
        self, event: LinkAttached, *, is_own: bool
    ) -> tuple[NodeKey, Route] | str | Condition:
        """Finds the node for a link that a neighbor attaches, or another worker.

        Args:
            event: the attach.
            is_own: another worker of this router attaches.

        Returns:
            A chain's node and its route, where this router is transit; where it is the egress, the
            address; or why the link is refused.
        """
        address = address_of(event)
        if event.role is not Role.RECEIVER or address is None:
            return _UNFIT
        chain = read_chain(event.properties)
        if chain is None:
            return Condition(INVALID_FIELD, "a link between sites names its ingress and egress")
        own = self._settings.router_id
        if chain.ingress == own and not is_own:
            return Condition(NOT_ALLOWED, f"the chain has come back to its ingress {own}")
        if chain.egress == own:
            return self._enter_here(address, is_exactly_once=is_exact(event))
        is_lossy = event.sender_settle_mode is SenderSettleMode.SETTLED
        guarantee = Guarantee.AT_MOST_ONCE if is_lossy else Guarantee.AT_LEAST_ONCE
        key = NodeKey(address, Direction.TRANSIT, chain=chain)
        return key, Route(address=address, guarantee=guarantee)

    def _enter_here(self, address: str, *, is_exactly_once: bool) -> str | Condition:
        match = self._registry.table.lookup(address)
        if not is_sharable(address) or (match is not None and not is_direct(match.route)):
            return Condition(NOT_FOUND, f"'{address}' is not shared with other sites")
        here = Guarantee.AT_LEAST_ONCE if match is None else match.route.guarantee
        if is_exactly_once is not (here is Guarantee.EXACTLY_ONCE):
            there = "" if is_exactly_once else "not "
            reason = f"'{address}' is {here.value} here, and {there}exactly-once at the ingress"
            return Condition(NOT_ALLOWED, f"{reason}: the routes of both sites are to agree")
        return address

    def ends_here(self, event: LinkAttached) -> bool:
        """Returns whether an attach is that of an exactly-once chain that ends at this site."""
        return ending_chain(event, self._settings.router_id) is not None

    def vouch(self, event: LinkAttached) -> dict[object, object]:
        """Returns the property by which this router vouches for a chain of another worker's."""
        chain, number = read_chain(event.properties), read_number(event.properties)
        assert chain is not None
        assert number is not None, "it leads on"
        assert self._reach.sites is not None
        notary = self._reach.sites.find_notary()
        return vouch(notary, chain, str(address_of(event)), number)

    def find_fault(self, event: LinkAttached) -> Condition | None:
        """Returns why an exactly-once chain may not end here; None: it may."""
        address = address_of(event)
        if event.role is not Role.RECEIVER or address is None:
            return _UNFIT
        chain = read_chain(event.properties)
        assert chain is not None
        assert self._reach.sites is not None
        return find_fault(self._reach.sites.find_notary(), chain, address, event)

    def lead(self, connection: Connection, event: LinkAttached) -> str | Condition | None:
        """Returns where an exactly-once chain leads on, if it is a neighbor's or another worker's.

        Returns:
            The name of the next hop; why there is none; None: it is no exactly-once chain, or ends
            here.
        """
        chain = read_chain(event.properties)
        own = self._settings.router_id
        if chain is None or not is_exact(event) or chain.egress == own:
            return None
        if chain.ingress == own and not is_sibling(connection):
            return Condition(NOT_ALLOWED, f"the chain has come back to its ingress {own}")
        if event.role is not Role.RECEIVER:
            return _UNFIT
        hop = None if self._reach.sites is None else self._reach.sites.hop_to(chain.egress)
        if hop is None or hop == connection.configured or not self._control.is_served(hop):
            return Condition(NOT_FOUND, f"{own} knows no way on to {chain.egress} at present")
        return hop

    # Receivers here

    def review(self, moved: Iterable[Node]) -> None:
        """Announces addresses that have got receivers here, or have lost them."""
        if self._control.machine is None:
            return
        for node in moved:
            address = node.key.address
            if not self._is_shared(node) or self._is_made_elsewhere(address):
                continue
            if _has_receivers(node) is (address in self._announced):
                continue
            if address in self._announced:
                del self._announced[address]
                self._control.tell(AddressDetached(address))
            else:
                self._announced[address] = None
                self._control.tell(AddressAttached(address))

    def begin(self) -> None:
        """Announces what has receivers already."""
        self.review(self._registry.nodes.values())
        for address, siblings in self._reach.receivers.items():
            for sibling in siblings:
                self.received_elsewhere(address, sibling, True)

    def received_elsewhere(self, address: str, sibling: str, is_received: bool) -> None:
        """Announces what has got receivers at another worker, or has lost them there."""
        if self._control.machine is None:
            return
        match = self._registry.table.lookup(address)
        is_here = (
            is_received
            and match is not None
            and is_shared_route(address, match.route)
            and not self._is_made_elsewhere(address)
        )
        key = (address, sibling)
        if is_here and key not in self._received:
            self._received[key] = None
            self._control.tell(AddressAttached(address, sibling))
        elif not is_here and self._received.pop(key, "") is None:
            self._control.tell(AddressDetached(address, sibling))

    def _edge_serves(self, edge: str, address: str, is_served: bool) -> None:
        """Has an address lead to an edge of this router, too, or not any more."""
        assert self._reach.sites is not None
        edges = self._reach.sites.edges
        served = edges.setdefault(address, {})
        had_any = bool(served)
        if is_served:
            served[edge] = None
        else:
            served.pop(edge, None)
        if not served:
            del edges[address]
        if had_any is not bool(served):
            self.on_edges(address, bool(served))
        self._uplinks.reconsider(self._registry.find(address))

    def _is_shared(self, node: Node) -> bool:
        """Returns whether other routers may hear of a node's address.

        An edge and its hub promise each other no exactly-once.
        """
        return is_shared(node) and not (node.is_exact and self._control.edge is not None)

    def _is_made_elsewhere(self, address: str) -> bool:
        """Returns whether an address is that of another router's dynamic node, or an ended one's.

        Its deliveries are for who made it; nobody else may attract them.
        """
        router = maker_named(address)
        return router is not None and (
            self._reach.sites is not None
            and router != self._settings.router_id
            and self._reach.sites.knows(router)
        )

    # Changed paths

    def paths_changed(self) -> None:
        """Has all nodes ask again, soon."""
        self._waiting.update(dict.fromkeys(self._registry.nodes))
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and self._alarm is None:
            self._alarm = self._alarms.set(self._turn.now + SLICE_SECONDS, self._ask_again)

    def _ask_again(self) -> None:
        self._alarm = None
        for _ in range(min(NODES_IN_SLICE, len(self._waiting))):
            key, _ = self._waiting.popitem()
            node = self._registry.nodes.get(key)
            if node is None or not (key.chain is not None or is_shared(node)):
                continue
            if key.chain is not None and not self._has_way(node):
                at = self._turn.now + PATIENCE_SECONDS
                self._alarms.set(at, partial(self._give_back, node))
            else:
                self._uplinks.reconsider(node)
                self._count_costs(node)
        self._go_on()

    def _has_way(self, node: Node) -> bool:
        return self._reach.sites is not None and any(self._reach.sites.ends(node))

    def _give_back(self, node: Node) -> None:
        """Has a transit that still knows no way return what it holds."""
        if self._registry.nodes.get(node.key) is node:
            self._uplinks.reconsider(node)

    def _count_costs(self, node: Node) -> None:
        for link in node.outgoing:
            if link.chain is not None:
                self._reach.weigh_way(link)


def _has_receivers(node: Node) -> bool:
    """Returns whether a node has receivers at this site, attached or suspended."""
    suspended = (
        each for each in node.returning if isinstance(each, OutgoingLink) and each.chain is None
    )
    return any(map(_is_receiver, node.outgoing)) or any(suspended)


def _is_receiver(link: OutgoingLink) -> bool:
    connection = link.connection
    return link.chain is None and not (is_sibling(connection) or is_edge(connection))


def _ignore(*news: object) -> None:
    """Stands for nobody who wants to know."""
