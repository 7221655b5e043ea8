"""What a node asks of its uplinks: where they lead, their names, and whether anybody needs them."""

from collections.abc import Iterable

from router.core.mesh.names import is_edge_name, link_name
from router.core.node import Direction, Node
from router.core.pull_plan import is_spread, pulls_here, scatters, subscription_name
from router.core.reach import Reach, enters_here, is_sibling, is_sibling_name, router_of
from router.core.state import State
from router.core.stored import STORE, targets_of
from router.core.uplink import Uplink
from router.links.link import Connection, OutgoingLink
from router.model.identity import LinkName
from router.model.terminus import Role
from router.model.ways import Chain
from router.routes.pulling import TargetNames, is_exchange
from router.routes.route import Endpoint
from router.routes.vhost import outside


class Needs:
    """Knows which uplinks the nodes of a worker ask for."""

    def __init__(self, state: State, reach: Reach) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._reach = reach

    def ends(self, node: Node) -> list[tuple[Endpoint, Role]]:
        """Returns where a node's uplinks lead from this worker, and our role on them."""
        is_scattered = pulls_here(node) and scatters(node.route, self._registry.terms)
        targets = targets_of(node, has_store=self._reach.owns(STORE))
        ends = _endpoints(node, targets, is_scattered=is_scattered)
        return self._reach.uplink_ends(node, ends)

    def make(self, node: Node, endpoint: Endpoint, role: Role) -> Uplink:
        """Returns a new uplink of a node."""
        is_to_sibling = is_sibling_name(endpoint.container) and endpoint.terms.chain is None
        chain = endpoint.terms.chain
        address = node.key.address
        if chain is not None or is_edge_name(endpoint.container):
            address = outside(address)
        elif node.key.container is not None or not is_to_sibling:  # dead letters, or a container
            assert node.match is not None, "nodes with containers behind them come from the table"
            address = node.match.address if is_to_sibling else node.match.address_at(endpoint)
        uplink = Uplink(
            node=node,
            container=endpoint.container,
            address=address,
            role=role,
            name=self._name(node, endpoint, role, address),
            is_eager=self.is_eager(node, endpoint.container),
            scatters=node.key.direction is Direction.FALLBACK
            or (role is Role.RECEIVER and scatters(node.route, self._registry.terms)),
            is_fallback=self.is_fallback(node, endpoint, role),
            subscription=self._subscription(node, role) if is_exchange(address) else None,
            terms=endpoint.terms,
            roams=chain is not None and node.key.chain is None and node.is_exact,
        )
        if uplink.roams:
            uplink.connection = self.find_hop(uplink) or uplink.connection
        if is_spread(node, endpoint, role) and not is_to_sibling:
            uplink.names = TargetNames(node.route, endpoint)
        return uplink

    def make_for(self, node: Node, link: OutgoingLink, connection: Connection) -> Uplink | None:
        """Returns an uplink for a link that a node had to a container; None: to another one.

        The container is the one that it was then, and the name says by which address.
        """
        name = connection.configured
        if connection.container != link.key.container or name is None or is_sibling_name(name):
            return None
        end = Endpoint(name)
        begin = self._name(node, end, Role.SENDER, "")
        if not link.key.name.startswith(begin):
            return None
        return Uplink(
            node=node,
            container=end.container,
            address=link.key.name.removeprefix(begin),
            role=Role.SENDER,
            name=link.key.name,
            is_eager=False,
        )

    def _name(self, node: Node, endpoint: Endpoint, role: Role, address: str) -> LinkName:
        is_to_sibling = is_sibling_name(endpoint.container) and endpoint.terms.chain is None
        settings = self._settings
        # a container's links keep their names when another worker comes to dial it
        owner = f"{settings.router_id}/{settings.worker}" if is_to_sibling else settings.router_id
        arrow = self._arrow(node, endpoint, role)
        name = f"{owner}:{node.key.address}{arrow}{endpoint.container}/{address}"
        if node.key.reader is not None:
            name = f"{name}#{node.key.reader}"
        if endpoint.terms.chain is not None:
            name = link_name(_entrance(node, endpoint.terms.chain), address)
        return LinkName(name if node.key.reader else endpoint.terms.link_name or name)

    def _arrow(self, node: Node, endpoint: Endpoint, role: Role) -> str:
        """Returns what keeps links apart that lead to one address of one container."""
        if node.key.container is not None:
            return "!>"  # dead letters and messages may lead to the same address
        if node.key.direction is Direction.STORED:
            return "$>"  # so may what is stored, after a reload
        arrow = ">" if role is Role.SENDER else "<"
        is_to_sibling = is_sibling_name(endpoint.container) and endpoint.terms.chain is None
        is_led_elsewhere = self.is_fallback(node, endpoint, role) and not is_to_sibling
        takes_back = node.key.direction is Direction.FALLBACK
        return f"~{arrow}" if is_led_elsewhere or takes_back else arrow

    def _subscription(self, node: Node, role: Role) -> str | None:
        if role is Role.SENDER or not pulls_here(node):
            return None
        return subscription_name(self._settings.router_id, node.route)

    def find_hop(self, uplink: Uplink) -> str | None:
        """Returns the neighbor by which a link to another site leads; None: no way is known."""
        chain, sites = uplink.terms.chain, self._reach.sites
        return None if chain is None or sites is None else sites.hop_to(chain.egress)

    def is_fallback(self, node: Node, end: Endpoint, role: Role) -> bool:
        """Returns whether a node's link to a container, or a sibling, is for its fallback."""
        if end.terms.chain is not None or is_edge_name(end.container):
            return False
        if node.route.fallback is None or node.key.direction is not Direction.MEETING:
            return False
        if role is Role.RECEIVER:
            return False
        name = end.container
        return not (is_sibling_name(name) and self._reach.is_receiving(node, name))

    def is_eager(self, node: Node, container: str) -> bool:
        """Returns whether a node's links to a container are attached while the route exists."""
        source = node.route.from_
        return (
            source is not None
            and self._reach.owns(source.container)
            and not (is_sibling_name(container) and not node.route.is_bridge)
        )

    def is_needed(self, uplink: Uplink) -> bool:
        """Returns whether somebody at its node has a use for an uplink."""
        node = uplink.node
        if uplink.is_eager:
            return True
        if uplink.role is Role.SENDER:
            feeds = (*node.feeds, *(feed.incoming for feed in node.rotation))
            if uplink.terms.chain is not None and node.key.chain is None:
                return any(map(enters_here, feeds))
            if is_edge_name(uplink.container):  # what an edge or a hub has sent does not go back
                names = (each.connection and each.connection.configured for each in feeds)
                return any(name != uplink.container for name in names)
            if is_sibling_name(uplink.container):  # a sibling's deliveries go to no other sibling
                return any(not is_sibling(incoming.connection) for incoming in feeds)
            return bool(node.feeds or node.rotation)
        return bool(node.outgoing) or node.is_sought

    @staticmethod
    def is_bound(uplink: Uplink) -> bool:
        """Returns whether deliveries wait for another site, which has them or may have."""
        link = uplink.link or uplink.kept
        return uplink.roams and link is not None and bool(link.unsettled or link.adrift)


def is_same(old: Uplink, fresh: Uplink) -> bool:
    """Returns whether an uplink is what its node's route asks for."""
    return (
        old.name == fresh.name
        and old.scatters == fresh.scatters
        and (old.names is None) is (fresh.names is None)
        and old.subscription == fresh.subscription
        and old.roams == fresh.roams
        and (old.container, old.role, old.address) == (fresh.container, fresh.role, fresh.address)
        and old.terms == fresh.terms
    )


def is_taken(fresh: Uplink, ending: Iterable[Uplink]) -> bool:
    """Returns whether the name of an uplink is still another one's, which is to end."""
    named = (fresh.container, fresh.role, fresh.name)
    return any((each.container, each.role, each.name) == named for each in ending)


def _entrance(node: Node, chain: Chain) -> Chain:
    """Returns a chain as the names of its links have it.

    Where other workers' deliveries leave the ingress they have a link beside that of its own.
    """
    is_lent = node.key.chain is not None and router_of(node.stop) == chain.ingress
    return Chain(f"{chain.ingress}/", chain.egress) if is_lent else chain


def _endpoints(
    node: Node, targets: Iterable[Endpoint], *, is_scattered: bool
) -> list[tuple[Endpoint, Role]]:
    """Returns where a node's uplinks lead, and our role on them.

    Args:
        node: the node.
        targets: where messages that it is sent go next.
        is_scattered: deliveries that are pulled for it go to other nodes.
    """
    route = node.route
    match node.key.direction:
        case Direction.TOWARDS | Direction.STORED:
            return [(endpoint, Role.SENDER) for endpoint in targets]
        case Direction.PULL:
            return [(endpoint, Role.RECEIVER) for endpoint in route.to]
        case Direction.TRANSIT:
            return []
        case Direction.FALLBACK:
            return [] if route.from_ is None else [(route.from_, Role.RECEIVER)]
        case Direction.MEETING:
            if route.fallback is not None:
                return [(route.fallback, Role.SENDER)]
            sources = []
            if route.from_ is not None and pulls_here(node):
                sources = [(route.from_, Role.RECEIVER)]
            if is_scattered:
                return sources
            return sources + [(endpoint, Role.SENDER) for endpoint in targets]
