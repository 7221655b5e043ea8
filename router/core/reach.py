"""Reachability: what can be reached through which worker or router, by their advertisements.

Look-up tables; ``network`` keeps them up to date, and ``uplink`` uses them to find where a node's
links must lead. A sibling has a name like a configured container's: a slash, which no configured
name contains, and the worker's number.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from router.core.mesh.names import comes_by_mesh
from router.core.mesh.ways import SiteWays
from router.core.node import Direction, Maker, Node
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.links.ways import leads_back, leads_past
from router.model.terminus import Role
from router.model.ways import NODE, Stop, Way, Ways, rounded
from router.routes.match import Pattern, PatternTree, canonical, parse_pattern
from router.routes.route import Endpoint

SIBLING_COST = 1
"""Cost of a hop to another worker of this router."""

ROUTER_COST = 10
"""Cost of a hop to another router: more than any number of workers."""

UplinkEnd = tuple[Endpoint, Role]
"""The peer of a link that we attach, and our role on it."""


def sibling_name(worker: int) -> str:
    """Returns the name by which another worker appears among containers."""
    return f"/{worker}"


def is_sibling_name(container: str | None) -> bool:
    """Returns whether a container's name is that of another worker."""
    return container is not None and container.startswith("/")


def is_sibling(connection: Connection | None) -> bool:
    """Returns whether a connection leads to another worker."""
    return connection is not None and is_sibling_name(connection.configured)


def is_end(link: OutgoingLink) -> bool:
    """Returns whether the receiver of a link is an end: no router, and no sibling."""
    return not (link.traces or is_sibling(link.connection))


def meet(
    link: IncomingLink | OutgoingLink, connection: Connection, properties: Mapping[object, object]
) -> None:
    """Records, at each attachment of a link, whether the peer is a router, and its node.

    Args:
        link: the link being attached.
        connection: its connection.
        properties: the properties of the peer's attach.
    """
    is_neighbor = connection.capabilities.traces and not is_sibling(connection)
    stop = properties.get(NODE)
    link.node = stop if is_neighbor and isinstance(stop, str) else None
    link.ways, link.is_traced = None, False
    if isinstance(link, OutgoingLink):
        link.traces = is_neighbor
        link.is_traced = is_neighbor and link.node is None  # an older router does not name its node
        link.is_router = connection.capabilities.is_router
        link.cost = cost_of(link)


def introduction(node: Stop, connection: Connection) -> dict[object, object]:
    """Returns the link property that names our node to a router."""
    is_neighbor = connection.capabilities.traces and not is_sibling(connection)
    return {NODE: node} if is_neighbor else {}


def ways_through(link: OutgoingLink) -> Ways | None:
    """Returns the ways on which a link leads to receivers; None: the peer is no router.

    A router that reports no ways counts as the place of its receivers; an older router, which does
    not name its nodes, has one stop, its id.
    """
    if link.ways is None and link.traces:
        return (Way((link.node or link.key.container,)),)
    return link.ways


def cost_of(link: OutgoingLink) -> int:
    """Returns the cost of reaching the nearest receiver behind a link."""
    if link.chain is not None:
        return link.elsewhere
    hops = min(map(_routers_on, ways_through(link) or ()), default=1 if link.traces else 0)
    if not is_sibling(link.connection):
        return hops * ROUTER_COST
    return SIBLING_COST + max(0, hops - 1) * ROUTER_COST  # its ways begin with this router


def _routers_on(way: Way) -> int:
    """Returns how many routers a way passes; it may pass two nodes of one router."""
    return len(list(groupby(map(router_of, way.stops))))


def receivers_for(node: Node, incoming: IncomingLink) -> list[OutgoingLink]:
    """Returns the links on which deliveries of an incoming link may be sent.

    Deliveries from a sibling stay at this worker, unless they have turned.
    Deliveries from a router do not go back to it at the same node, nor to a link whose receivers
    are all behind it. Routers without receivers are left out where some other link has receivers,
    and by a multicast always. A multicast from here passes by what is reached by turning alone; it
    waits if nothing else is reached (``open_links``).
    """
    links = node.outgoing
    if incoming.takes_back:
        links = [link for link in links if not link.is_fallback]
    if not (is_sibling(incoming.connection) or node.has_ways):
        return links
    links = [link for link in links if can_lead_on(node, link, incoming)]
    return (node.is_multicast and _led_to(links, incoming)) or links


def can_lead_on(node: Node, link: OutgoingLink, incoming: IncomingLink) -> bool:
    """Returns whether deliveries of a sender may be sent on a link, as far as ways say."""
    is_far, sender = stays_here(node, incoming), sender_stop(incoming)
    return not is_out_of_reach(node, link, incoming, is_far) and _leads_on(node, link, sender)


def leads_straight(node: Node) -> bool:
    """Returns whether a node only passes on what one peer sends to one other, without a choice.

    Other workers make a choice, too, and receivers on the way back (``turning``).
    """
    if len(node.feeds) != 1 or len(node.outgoing) != 1 or node.twin is not None:
        return False
    (incoming,), (link,) = node.feeds, node.outgoing
    return not (is_sibling(incoming.connection) or is_sibling(link.connection))


def stays_here(node: Node, incoming: IncomingLink) -> bool:
    """Returns whether deliveries of a link stay at this worker, because they came from another.

    What has turned (``turning``) was at no worker yet where it is pulled.
    """
    if not is_sibling(incoming.connection):
        return False
    pulls = node.key.direction is Direction.PULL
    return not (pulls and node.twin is not None and incoming in node.twin.feeds)


def is_out_of_reach(node: Node, link: OutgoingLink, incoming: IncomingLink, is_far: bool) -> bool:
    """Returns whether an incoming link's deliveries must not be sent on a link to another worker.

    Nor on one to another site, if they came over the mesh, as this is their egress, or from another
    worker, which has links to other sites of its own. Transit sends them on, but not back.

    A worker that sent what has turned here has tried its own receivers. (A multicast did not turn
    there, so it goes to them from here.)

    Args:
        node: where the deliveries are.
        link: the link.
        incoming: that the deliveries came on.
        is_far: ``stays_here`` of them.
    """
    if link.chain is not None:
        if node.key.chain is None:
            return not enters_here(incoming)
        return link.connection is incoming.connection
    if not is_sibling(link.connection):
        return False
    return is_far or (link.connection is incoming.connection and not node.is_multicast)


def enters_here(incoming: IncomingLink) -> bool:
    """Returns whether deliveries of a link come from neither another site nor another worker."""
    return not (comes_by_mesh(incoming) or is_sibling(incoming.connection))


def sender_stop(incoming: IncomingLink) -> Stop | None:
    """Returns the stop from which a link's deliveries come; None: the sender is no router.

    A client of ours that the policy trusts is none: it has no receivers of its own.
    """
    connection = incoming.connection
    if incoming.node is not None or connection is None or is_sibling(connection):
        return incoming.node
    return connection.container if connection.capabilities.is_neighbor else None


def comes_far(incoming: IncomingLink) -> bool:
    """Returns whether a link's deliveries come from another worker or a router."""
    return is_sibling(incoming.connection) or sender_stop(incoming) is not None


def _leads_on(node: Node, link: OutgoingLink, sender: Stop | None) -> bool:
    """Returns whether a link leads beyond the sender's node."""
    ways = ways_through(link)
    if ways is None:
        return True
    if not ways:
        return not (node.is_multicast or node.is_peopled)
    return sender is None or leads_past(ways, sender)


def is_back(link: OutgoingLink, hops: Collection[Stop]) -> bool:
    """Returns whether a link leads only to stops of a delivery; an older router is its own stop."""
    ways = ways_through(link)
    if ways is None:
        return False
    return (link.traces and link.key.container in hops) or leads_back(ways, hops)


def are_back(links: Collection[OutgoingLink], hops: Collection[Stop]) -> bool:
    """Returns whether all receivers of some links are at stops of a delivery; no links: False."""
    peopled = [link for link in links if link.ways != ()]
    return bool(peopled) and all(is_back(link, hops) for link in peopled)


def leads_on(node: Node, hops: Collection[Stop]) -> bool:
    """Returns whether a link of a node leads on an open way past all stops of a delivery."""
    return any(
        way.is_open and not any(stop in hops for stop in way.stops)
        for link in node.outgoing
        for way in reported_ways(node, link)
    )


def router_of(stop: Stop) -> str:
    """Returns the id of a stop's router."""
    return stop.rpartition("#")[0] or stop


def leads_to(node: Node, router: str) -> bool:
    """Returns whether a link of a node leads to a router, from here or from another worker."""
    for link in node.outgoing:
        if link.traces and link.key.container == router:
            return True
        if is_sibling(link.connection) and link.ways:
            beyond = (way.stops[1] for way in link.ways if len(way.stops) > 1)
            if any(router_of(stop) == router for stop in beyond):
                return True
    return False


def turns(node: Node, incoming: IncomingLink) -> bool:
    """Returns whether deliveries of a link may go to the receivers here, see ``turning``.

    A multicast turns only at the worker that dials a container of the route: a message pulled from
    there goes on to all workers. A message that another worker turned would miss their receivers.
    """
    if node.twin is None or node.key.direction is not Direction.TOWARDS or not node.outgoing:
        return False
    if node.is_multicast and all(is_sibling(link.connection) for link in node.outgoing):
        return False
    return comes_far(incoming) and all(ways_through(link) is not None for link in node.outgoing)


def is_told(link: OutgoingLink, credit: int) -> bool:
    """Returns whether a grant of a receiver changes nothing about what routers are told of it."""
    if link.is_express:
        return credit > 0
    return rounded(link.width) == rounded(credit)


def granted_on(link: OutgoingLink) -> int | None:
    """Returns what a receiver's last grant gave, rounded up; None: only the lane knows."""
    return None if link.is_express else rounded(link.width)


def granted_by_ends(node: Node) -> int | None:
    """Returns what the ends that receive from a node grant together; None: only the lane knows.

    For a multicast this is the least that one of them grants.
    """
    granted = [granted_on(link) for link in node.outgoing if is_end(link)]
    known = [credit for credit in granted if credit is not None]
    if node.is_multicast:
        return min(known, default=None if granted else 0)
    return sum(known) if len(known) == len(granted) else None


def has_own_alone(ways: Ways) -> bool:
    """Returns whether ways lead no farther than to the receivers of the node that reports them."""
    return all(len(way.stops) == 1 for way in ways)


def reported_ways(node: Node, link: OutgoingLink) -> Ways:
    """Returns the ways that a router or a sibling has reported on a link.

    What a sibling grants for its own receivers alone depends on nobody else, so the credit says
    what these grant.
    """
    ways = ways_through(link)
    if ways is None:
        return (Way((node.stop,), credit=granted_on(link)),)
    if is_sibling(link.connection) and link.chain is None and has_own_alone(ways):
        return tuple(Way(way.stops, way.gains, granted_on(link)) for way in ways)
    return ways


def _credited_for(node: Node, incoming: IncomingLink) -> list[OutgoingLink]:
    """Returns those of ``receivers_for`` whose credit counts: those on an open way.

    A multicast from here waits for all that it is led to.

    Routers of which each has another one's credit would grant it to each other for ever, in a
    circle, after the receivers' own has gone. Whether a way is open is told along the way itself,
    which is no circle.
    """
    receivers = receivers_for(node, incoming)
    if node.is_multicast and not comes_far(incoming):
        return _led_to(receivers, incoming)
    return [link for link in receivers if is_end(link) or any(_open_ways(node, link, incoming))]


def open_links(
    node: Node, links: list[OutgoingLink], incoming: IncomingLink, hops: Collection[Stop] = ()
) -> list[OutgoingLink]:
    """Returns those of some links on which a delivery gets to receivers that grant credit.

    A link whose credit is for others only, as its open ways lead back, would keep it waiting there.
    A multicast waits for closed ways, but not for those of others.

    Args:
        node: where the delivery is.
        links: to choose from, all of ``receivers_for``.
        incoming: the delivery's sender.
        hops: the stops that it has passed.
    """
    if not node.has_ways:
        return links
    if node.is_multicast:
        return _led_to(links, incoming)
    return [
        link
        for link in links
        if is_end(link)
        or any(
            not any(stop in hops for stop in way.stops) for way in _open_ways(node, link, incoming)
        )
    ]


def _open_ways(node: Node, link: OutgoingLink, incoming: IncomingLink) -> Iterator[Way]:
    """Yields the open ways by a link for a sender that lead back neither to it nor to this node.

    What a sender here sends does not turn at another worker (``turning``), and would be released.
    """
    is_same_stop = is_sibling(link.connection) and link.chain is None
    sender, turns_there = sender_stop(incoming), comes_far(incoming)
    for way in reported_ways(node, link):
        if way.is_open and sender not in way.stops:
            if is_same_stop:
                if turns_there or not _has_turned(way):
                    yield way
            elif node.stop not in way.stops:
                yield way


def _led_to(links: list[OutgoingLink], incoming: IncomingLink) -> list[OutgoingLink]:
    """Returns those of some links that lead a sender's deliveries to more than a turn elsewhere."""
    if comes_far(incoming):
        return links
    return [link for link in links if not leads_by_turning_alone(link)]


def leads_by_turning_alone(link: OutgoingLink) -> bool:
    """Returns whether another worker leads nowhere but to what turns there (``turning``)."""
    return (
        is_sibling(link.connection) and bool(link.ways) and all(map(_has_turned, link.ways or ()))
    )


def _has_turned(way: Way) -> bool:
    """Returns whether a way, as another worker reports it, begins with both nodes of its route."""
    return len(way.stops) > 1 and router_of(way.stops[0]) == router_of(way.stops[1])


def width_for(node: Node, incoming: IncomingLink) -> int:
    """Returns the part of ``Node.width`` that applies to a sender."""
    if not (is_sibling(incoming.connection) or node.has_ways):
        return node.width
    if node.is_multicast:
        turned = width_for(node.twin, incoming) if node.twin and turns(node, incoming) else 0
        asked = _asked(_credited_for(node, incoming), incoming)
        return min((link.width for link in asked), default=0) + turned
    return sum(_width_by_end(node, incoming).values())


def _width_by_end(node: Node, incoming: IncomingLink) -> dict[Stop, int]:
    """Returns the credit for a sender, by the nodes whose receivers have granted it.

    Of two ways to one node, one counts: routers that name each other would else add what each has
    of the others' credit to its own, round by round. A link counts no more than was granted on it.
    """
    by_end = {node.stop: 0}
    for link in _credited_for(node, incoming):
        if is_end(link):
            by_end[node.stop] += link.width
            continue
        left = link.width
        for way in _open_ways(node, link, incoming):
            end, granted = way.stops[-1], left if way.credit is None else min(way.credit, left)
            left -= granted
            if end == node.stop:  # other receivers than those of any other worker
                by_end[end] += granted
            else:
                by_end[end] = max(granted, by_end.get(end, 0))
    if node.twin is not None and turns(node, incoming):
        for end, granted in _width_by_end(node.twin, incoming).items():
            by_end[end] = max(granted, by_end.get(end, 0))
    return by_end


def can_send_for(node: Node, incoming: IncomingLink) -> bool:
    """Returns whether a receiver (multicast: every one) has credit for a sender's deliveries."""
    if not (is_sibling(incoming.connection) or node.has_ways):
        return node.can_send
    if node.twin is not None and turns(node, incoming) and can_send_for(node.twin, incoming):
        return True
    receivers = _credited_for(node, incoming)
    if node.is_multicast:
        is_far = stays_here(node, incoming)
        waits = node.awaited or (node.pending and not is_far)
        asked = _asked(receivers, incoming)
        return bool(asked) and all(link.credit > 0 for link in asked) and not waits
    return any(link.credit > 0 for link in receivers)


def _asked(receivers: Sequence[OutgoingLink], incoming: IncomingLink) -> Sequence[OutgoingLink]:
    """Returns the receivers whose credit counts for a multicast's sender.

    For a sender at this worker these are all. For a router or sibling only local ends count:
    routers that wait for each other's credit in a circle would wait forever. Where there are no
    ends, the first receiver with credit counts; the delivery then waits here for the others.
    """
    if not comes_far(incoming):
        return receivers
    ends = [link for link in receivers if is_end(link)]
    return ends or sorted(receivers, key=_credit_of)[-1:]


def _credit_of(link: OutgoingLink) -> tuple[int, int]:
    return link.credit, link.width


def _at(endpoint: Endpoint, instance: str) -> Endpoint:
    if instance == endpoint.container:
        return endpoint
    return attrs.evolve(endpoint, container=instance)


@attrs.define(eq=False)
class Reach:
    """The tables of reachability.

    Attributes:
        owned: configured containers that this worker dials; None: all.
        receivers: by address, the siblings with receivers, each with its cost.
        containers: by name, the siblings that it is connected to, each with its cost.
        identities: by name, the siblings where it has connections, each with their number plus one.
        made: by address of a living dynamic node, the sibling that created it.
        counts: by address, the siblings with several receivers, each with their number plus one.
        loads: by address, the siblings at whose receivers deliveries of others are unsettled, each
            with their number plus one.
        patterns: by pattern, the siblings with a receiver of all matching addresses.
        makers: by address of a sibling's dynamic node, its maker.
        dial_ins: names of the containers that dial in.
        attached: by name of such a container, the instances that are connected here (``dial_in``).
        sites: the ways to other sites of the mesh.
    """

    owned: frozenset[str] | None = None
    sites: SiteWays | None = None
    receivers: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    containers: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    identities: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    made: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    counts: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    loads: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    patterns: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    makers: dict[str, Maker] = attrs.field(factory=dict, init=False)
    dial_ins: Collection[str] = attrs.field(default=(), init=False)
    attached: dict[str, dict[str, None]] = attrs.field(factory=dict, init=False)
    _tree: tuple[PatternTree, list[dict[str, int]]] | None = attrs.field(default=None, init=False)

    def owns(self, container: str) -> bool:
        """Returns whether this worker dials a container, or has it, or waits for it to dial in."""
        if self.owned is None or container in self.attached:
            return True
        is_elsewhere = container in self.dial_ins and container in self.containers
        return container in self.owned and not is_elsewhere

    def uplink_ends(self, node: Node, wanted: Iterable[UplinkEnd]) -> list[UplinkEnd]:
        """Returns where a node's uplinks must lead, from this worker.

        Containers that another worker dials are reached through it; while they are not connected
        there, the node waits for them as for any container that is away. A container that feeds a
        route concerns only its owner, which finds the receivers wherever they are.

        Args:
            node: the node.
            wanted: the destinations of its route.
        """
        uplink_ends = dict.fromkeys(self._towards_containers(node, wanted))
        if node.key.direction is Direction.MEETING and not node.route.is_bridge:
            for sibling in self.receivers.get(node.key.address, ()):
                uplink_ends[Endpoint(sibling), Role.SENDER] = None
            for sibling in self._watching(node):
                uplink_ends[Endpoint(sibling), Role.SENDER] = None
        for site in () if self.sites is None else self.sites.ends(node):
            uplink_ends[site, Role.SENDER] = None
        return list(uplink_ends)

    def know_maker(self, address: str, maker: Maker | None) -> None:
        """Records the maker of another worker's dynamic node; None: the node has ended."""
        if maker is None:
            self.makers.pop(address, None)
        else:
            self.makers[address] = maker

    def is_receiving(self, node: Node, sibling: str) -> bool:
        """Returns whether a sibling has receivers of a node's address."""
        known = self.receivers.get(node.key.address, ())
        return sibling in known or sibling in self._watching(node)

    def connections_of(self, identity: str) -> int:
        """Returns how many connections an identity has at other workers, if that is limited."""
        known = self.identities.get(identity)
        return sum(count - SIBLING_COST for count in known.values()) if known else 0

    def weigh(self, link: OutgoingLink, address: str) -> None:
        """Records how many receivers a link to a sibling has, and their load from others."""
        assert link.connection is not None
        sibling = link.connection.configured
        assert sibling is not None
        cost = self.counts.get(address, {}).get(sibling, 1 + SIBLING_COST)
        link.receivers = max(1, cost - SIBLING_COST)
        cost = self.loads.get(address, {}).get(sibling, SIBLING_COST)
        link.elsewhere = cost - SIBLING_COST

    def weigh_way(self, link: OutgoingLink) -> None:
        """Records the cost of the way to the site that a link leads to."""
        if self.sites is not None and link.chain is not None:
            link.elsewhere = link.cost = self.sites.cost_to(link.chain.egress)

    def patterns_changed(self) -> None:
        """Records that the keys of ``patterns`` have changed."""
        self._tree = None

    def _watching(self, node: Node) -> Iterator[str]:
        """Returns the siblings that receive from a node through a pattern."""
        if not self.patterns or node.route.to:
            return
        if self._tree is None:
            equal: dict[object, tuple[Pattern, dict[str, int]]] = {}
            for text, ways in self.patterns.items():
                pattern = parse_pattern(text)
                equal.setdefault(canonical(pattern), (pattern, {}))[1].update(ways)
            tree = PatternTree(pattern for pattern, _ in equal.values())
            self._tree = tree, [ways for _, ways in equal.values()]
        tree, ways_of = self._tree
        for index in tree.find_all(node.key.address):
            yield from ways_of[index]

    def _others(self, container: str, role: Role) -> Iterator[UplinkEnd]:
        """Returns the siblings that have instances of a container."""
        for sibling in self.containers.get(container, ()):
            yield Endpoint(sibling), role

    def _towards_containers(self, node: Node, wanted: Iterable[UplinkEnd]) -> Iterator[UplinkEnd]:
        feeds = node.key.direction is Direction.MEETING
        for endpoint, role in wanted:
            if self.owns(endpoint.container):
                for instance in self.attached.get(endpoint.container, (endpoint.container,)):
                    yield _at(endpoint, instance), role
                if endpoint.container in self.attached and not feeds:
                    yield from self._others(endpoint.container, role)
            elif endpoint.container in self.dial_ins and not feeds:
                others = list(self._others(endpoint.container, role))
                yield from others or [(endpoint, role)]
            elif not (feeds and role is Role.RECEIVER):
                known = self.containers.get(endpoint.container)
                yield (Endpoint(min(known, key=known.__getitem__)) if known else endpoint), role
