"""Surveys: a core's counts and totals, taken link by link so that traffic goes on in between.

Theory of operation. ``steps`` is a generator: it visits some links, yields, and continues when it
is resumed; the shell runs other tasks meanwhile. Changes between two steps may be missed or counted
as they were. Totals never decrease because of that: the totals of ended links are read last,
without the amounts of links that this survey had visited before they ended.

Links between the workers of one router are internal: routes count deliveries that enter and leave
the router, so these links count only for their connection, and for stalls.

The cost is a few microseconds for each link, however many deliveries it has: links keep counts, and
ages are read from the old end of the unsettled maps, which are in order of arrival. Deliveries
younger than the first bound of the histogram are never examined (see ``ages``). Unused routes cost
nothing: a table may have a hundred thousand of them.
"""

from collections.abc import Generator
from itertools import chain
from typing import Final

import attrs

from router.core.ages import LaneAges, count_ages
from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.node import Node
from router.core.reach import is_sibling
from router.core.retired import Passed, add, as_totals, node_of, subtract
from router.core.snapshot import (
    AGE_BOUNDS_SECONDS,
    ANONYMOUS,
    DYNAMIC,
    OTHERS,
    PEERS_MOST,
    UPLINKS_MOST,
    PeerRecord,
    Rejection,
    RouteRecord,
    Snapshot,
    Stall,
    UplinkRecord,
)
from router.core.stall import NodeSum, StallWatch, describe, movement
from router.core.state import State
from router.core.uplink import Step, Uplink
from router.core.uplinks import Uplinks
from router.links.credit import SHARE
from router.links.link import (
    Connection,
    IncomingLink,
    Link,
    OutgoingLink,
    is_away,
    unnumbered,
)
from router.links.pairing import count_doubts
from router.model.steps import at_once
from router.model.terminus import Role
from router.routes.route import Route
from router.routes.table import RoutingTable

STEP_LINKS: Final = 100
"""Links visited, or records made, in one step: less than a millisecond."""


@attrs.define(eq=False)
class _RouteSum:
    """The sums for one route."""

    route: Route
    addresses: int = 0
    senders: int = 0
    receivers: int = 0
    suspended: int = 0
    blocked: int = 0
    incoming_credit: int = 0
    outgoing_credit: int = 0
    queued: int = 0
    postponed: int = 0
    incoming_unsettled: int = 0
    outgoing_unsettled: int = 0
    in_doubt: int = 0
    unreachable: int = 0
    rejection: Rejection | None = None
    octets: int = 0
    oldest: float | None = None
    ages: list[int] = attrs.field(factory=lambda: [0] * (len(AGE_BOUNDS_SECONDS) + 1))
    passed: Passed = attrs.field(factory=Passed)
    troubled: list[Uplink] = attrs.field(factory=list)
    untroubled: list[Uplink] = attrs.field(factory=list)
    stall: Stall | None = None


@attrs.define(eq=False)
class _PeerSum:
    """The sums for one container."""

    connections: int = 0
    senders: int = 0
    receivers: int = 0
    incoming_credit: int = 0
    outgoing_credit: int = 0
    incoming_unsettled: int = 0
    outgoing_unsettled: int = 0
    octets: int = 0
    congested: int = 0
    held: int = 0
    incoming_routes: dict[str, None] = attrs.field(factory=dict)
    outgoing_routes: dict[str, None] = attrs.field(factory=dict)
    passed: Passed = attrs.field(factory=Passed)


_PeerKey = tuple[str, bool]


class Surveyor:
    """Surveys one core repeatedly.

    Attributes:
        ages: of what is on the express lane.
    """

    def __init__(self, state: State, uplinks: Uplinks, granter: Granter, lanes: Lanes) -> None:
        self._registry = state.registry
        self._rejections = state.rejections
        self._uplinks = uplinks
        self._granter = granter
        self._lanes = lanes
        self._watch = StallWatch()
        self.ages = LaneAges()

    def survey(self, now: float) -> Snapshot:
        """Surveys the core in one go."""
        return at_once(self.steps(now))

    def steps(self, now: float) -> Generator[None, None, Snapshot]:
        """Surveys the core, yielding after each ``STEP_LINKS`` links.

        Only one survey at a time: a second one begun before the first has ended spoils its stalls.

        Args:
            now: on the core's clock, seconds.
        """
        stock = _Stock(now)
        self._lanes.refresh()
        self._watch.begin()
        self.ages.begin()
        self._registry.retired.survey_begins()
        for connection in tuple(self._registry.parties):
            peer = stock.peer(connection)
            links: list[Link] = [*connection.incoming.values(), *connection.outgoing.values()]
            for link in links:
                if link.connection is connection and stock.comes_by(link):
                    self._look_at(link, peer, stock)
                    if len(stock.seen) % STEP_LINKS == 0:
                        yield
        for link in self._registry.absent():
            if is_away(link) and stock.comes_by(link):
                self._look_at_suspended(link, stock)
                if len(stock.seen) % STEP_LINKS == 0:
                    yield
        for number, node in enumerate(tuple(self._registry.nodes.values()), 1):
            self._look_at_node(node, stock)
            if number % STEP_LINKS == 0:
                yield
        return (yield from self._finish(stock))

    def _look_at(self, link: Link, peer: _PeerSum, stock: "_Stock") -> None:
        found, route = stock.address(node_of(link))
        is_far = is_sibling(link.connection)
        tally = link.tally
        if tally.deliveries or tally.octets:
            add(peer.passed.of(link), self._registry.retired.since_counted(link))
            if not is_far:
                add(route.passed.of(link), tally)
            found.moved += movement(tally)
        if isinstance(link, IncomingLink):
            peer.incoming_routes[route.route.name] = None
            _look_at_incoming(link, peer, found)
            if not link.credit and self._is_pulled(link):
                found.pulled += 1
            route.octets += link.octets + link.lane_octets
            if not is_far:
                _add_incoming(link, route)
                self._count_unsettled(link, route, stock.now)
        else:
            peer.outgoing_routes[route.route.name] = None
            _look_at_outgoing(link, peer, found)
            found.vacant += self._is_vacant(link)
            route.in_doubt += count_doubts(link)
            if not is_far:
                _add_outgoing(link, route)

    def _is_pulled(self, link: IncomingLink) -> bool:
        """Returns whether a link pulls from a container."""
        return not is_sibling(link.connection) and self._uplinks.owns(link)

    def _is_vacant(self, link: OutgoingLink) -> bool:
        """Returns whether a container has no receiver yet, as far as it has said."""
        if link.credit or not (link.ways == () or not link.tally.deliveries):
            return False
        return not is_sibling(link.connection) and self._uplinks.owns(link)

    def _look_at_suspended(self, link: Link, stock: "_Stock") -> None:
        found, route = stock.address(node_of(link))
        route.suspended += 1
        if not self._registry.retired.is_far(link):
            add(route.passed.of(link), link.tally)
        if isinstance(link, IncomingLink):
            route.octets += link.octets
            found.unsettled += len(link.unsettled) + len(link.adrift)
            self._count_unsettled(link, route, stock.now)
        else:
            unsettled = len(link.unsettled) + len(link.adrift)
            route.outgoing_unsettled += unsettled
            route.in_doubt += count_doubts(link)
            found.sent_unsettled += unsettled

    def _count_unsettled(self, link: IncomingLink, route: "_RouteSum", now: float) -> None:
        waiting = unnumbered(link)
        count = len(link.unsettled) + len(waiting)
        route.incoming_unsettled += count + link.lane_unsettled
        if count:
            pairings = chain(waiting, link.unsettled.values())
            route.oldest = max(route.oldest or 0.0, count_ages(pairings, count, now, route.ages))
        if link.lane_unsettled:
            route.oldest = max(route.oldest or 0.0, self.ages.count(link, now, route.ages))

    def _look_at_node(self, node: Node, stock: "_Stock") -> None:
        found, route = stock.address(node)
        if node.is_express:
            found.queued = sum(link.queued for link in node.feeds)
        elif node.rotation:
            found.queued = sum(len(feed.waiting) for feed in node.rotation)
        for feed in node.feeds.values():
            route.postponed += feed.put_off
        route.queued += found.queued
        route.addresses += 1
        found.is_bridge = node.route.is_bridge
        uplinks = self._uplinks.of(node)
        route.unreachable += self._uplinks.is_cut_off(node)
        for uplink in uplinks:
            is_well = uplink.step in (Step.ATTACHED, Step.IDLE)
            kept = route.untroubled if is_well else route.troubled
            if len(kept) < UPLINKS_MOST:
                kept.append(uplink)
        seconds = self._watch.look(node, found, stock.now)
        if seconds is not None and (route.stall is None or seconds > route.stall.seconds):
            route.stall = describe(node, found, seconds, uplinks)

    def _finish(self, stock: "_Stock") -> Generator[None, None, Snapshot]:
        registry = self._registry
        self._take_unlinked(stock)
        for name, passed in registry.retired.containers.items():
            peer = stock.peers.setdefault((name, True), _PeerSum())
            self._add_retired(peer.passed, passed, stock)
        routes = []
        for name, found in stock.routes.items():
            routes.append(_route_record(name, found, name in registry.paused))
            if len(routes) % STEP_LINKS == 0:
                yield
        return Snapshot(
            at=stock.now,
            is_draining=self._granter.is_draining,
            connections=sum(not is_sibling(each) for each in registry.connections.values()),
            routes=tuple(routes),
            peers=tuple(_peer_record(key, each) for key, each in stock.peers.items()),
            payload_octets=registry.process.kept,
            payload_limit_octets=registry.process.limit,
        )

    def _take_unlinked(self, stock: "_Stock") -> None:
        """Adds facts of routes that need not have an address in use."""
        registry = self._registry
        for name in registry.paused:
            stock.named(name, registry.table)
        for name in self._rejections.names():
            found = stock.named(name, registry.table)
            if found is not None:  # else a reload has removed the route
                found.rejection = self._rejections.of(name, stock.now)
        for name, passed in registry.retired.routes.items():
            found = stock.named(name, registry.table)
            if found is not None:
                self._add_retired(found.passed, passed, stock)

    def _add_retired(self, into: Passed, passed: Passed, stock: "_Stock") -> None:
        """Adds the totals of ended links, except those counted before the links ended."""
        add(into.received, passed.received)
        add(into.sent, passed.sent)
        for addition in self._registry.retired.additions:
            if addition.totals is passed and addition.link in stock.seen:
                subtract(into.of(addition.link), addition.tally)


@attrs.define(eq=False)
class _Stock:
    """The findings of one survey so far."""

    now: float
    seen: set[Link] = attrs.field(factory=set)
    routes: dict[str, _RouteSum] = attrs.field(factory=dict)
    peers: dict[_PeerKey, _PeerSum] = attrs.field(factory=dict)
    addresses: dict[Node | None, tuple[NodeSum, _RouteSum]] = attrs.field(factory=dict)

    def comes_by(self, link: Link) -> bool:
        """Records a link; False: the survey has visited it before, in another place."""
        before = len(self.seen)
        self.seen.add(link)
        return len(self.seen) > before

    def address(self, node: Node | None) -> tuple[NodeSum, _RouteSum]:
        """Returns the sums of an address (None: the anonymous terminus) and of its route."""
        found = self.addresses.get(node)
        if found is None:
            found = self.addresses[node] = (NodeSum(), self._route(node))
        return found

    def named(self, name: str, table: RoutingTable) -> _RouteSum | None:
        """Returns the sums of a route that was seen or is in the table; None: there is none."""
        found = self.routes.get(name)
        route = None if found is not None else table.by_name.get(name)
        if found is None and route is None and name in (ANONYMOUS, DYNAMIC):
            route = Route(address=name)
        if route is not None:
            found = self.routes[name] = _RouteSum(route)
        return found

    def _route(self, node: Node | None) -> _RouteSum:
        if node is None:
            return self.routes.setdefault(ANONYMOUS, _RouteSum(Route(address=ANONYMOUS)))
        if node.is_dynamic:
            return self.routes.setdefault(DYNAMIC, _RouteSum(Route(address=DYNAMIC)))
        name = node.route.name
        found = self.routes.get(name)
        if found is None:
            route = node.route
            if node.key.container is not None and node.match is not None:
                route = node.match.route  # that of dead letters leads to another place
            found = self.routes[name] = _RouteSum(route)
        return found

    def peer(self, connection: Connection) -> _PeerSum:
        """Counts a connection, and returns the sum of its container."""
        key: _PeerKey = (str(connection.container), False)
        if connection.configured is not None:
            key = (connection.configured, True)
        elif key not in self.peers and len(self.peers) >= PEERS_MOST:
            key = (OTHERS, False)
        peer = self.peers.get(key)
        if peer is None:
            peer = self.peers[key] = _PeerSum()
        peer.connections += 1
        peer.congested += connection.is_congested
        octets = connection.octets.used + sum(
            link.lane_octets for link in connection.incoming.values()
        )
        peer.held += connection.is_held or octets * (SHARE + 1) >= connection.octets.limit * SHARE
        peer.octets += octets
        return peer


def idle_record(route: Route) -> RouteRecord:
    """Makes the record of an unused route."""
    return _route_record(route.name, _RouteSum(route), is_paused=False)


def _look_at_incoming(link: IncomingLink, peer: _PeerSum, found: NodeSum) -> None:
    unsettled = len(link.unsettled) + link.lane_unsettled
    peer.senders += 1
    peer.incoming_credit += link.credit
    peer.incoming_unsettled += unsettled
    found.senders += 1
    found.unsettled += unsettled
    found.blocked += not link.credit
    if link.partial is not None:
        found.partial.append(str(link.key.container))


def _add_incoming(link: IncomingLink, route: _RouteSum) -> None:
    route.senders += 1
    route.incoming_credit += link.credit
    route.blocked += not link.credit


def _look_at_outgoing(link: OutgoingLink, peer: _PeerSum, found: NodeSum) -> None:
    unsettled = len(link.unsettled) + link.lane_unsettled
    peer.receivers += 1
    peer.outgoing_credit += link.credit
    peer.outgoing_unsettled += unsettled
    found.receivers += 1
    found.sent_unsettled += unsettled
    found.outgoing_credit += link.credit


def _add_outgoing(link: OutgoingLink, route: _RouteSum) -> None:
    route.receivers += not link.is_fallback
    route.outgoing_credit += link.credit
    route.outgoing_unsettled += len(link.unsettled) + link.lane_unsettled


def _route_record(name: str, found: _RouteSum, is_paused: bool) -> RouteRecord:
    route = found.route
    uplinks = (*found.troubled, *found.untroubled)[:UPLINKS_MOST]
    return RouteRecord(
        name=name,
        address=route.address,
        from_=None if route.from_ is None else str(route.from_),
        to=tuple(map(str, route.to)),
        fallback=None if route.fallback is None else str(route.fallback),
        distribution=route.distribution.value,
        guarantee=route.guarantee.value,
        is_paused=is_paused,
        addresses=found.addresses,
        senders=found.senders,
        receivers=found.receivers,
        suspended=found.suspended,
        blocked_senders=found.blocked,
        incoming_credit=found.incoming_credit,
        outgoing_credit=found.outgoing_credit,
        queued=found.queued,
        postponed=found.postponed,
        incoming_unsettled=found.incoming_unsettled,
        outgoing_unsettled=found.outgoing_unsettled,
        in_doubt=found.in_doubt,
        unreachable=found.unreachable,
        payload_octets=found.octets,
        oldest_seconds=found.oldest,
        ages=tuple(found.ages),
        received=as_totals(found.passed.received),
        sent=as_totals(found.passed.sent),
        uplinks=tuple(map(_uplink_record, uplinks)),
        stall=found.stall,
        rejection=found.rejection,
    )


def _uplink_record(uplink: Uplink) -> UplinkRecord:
    return UplinkRecord(
        container=uplink.container,
        address=uplink.address,
        role=uplink.role,
        step=uplink.step.value,
        failures=uplink.failures,
        error=None if uplink.error is None else str(uplink.error),
    )


def _peer_record(key: _PeerKey, found: _PeerSum) -> PeerRecord:
    container, is_configured = key
    return PeerRecord(
        container=container,
        is_configured=is_configured,
        connections=found.connections,
        routes=(
            *((name, Role.RECEIVER) for name in found.incoming_routes),
            *((name, Role.SENDER) for name in found.outgoing_routes),
        ),
        senders=found.senders,
        receivers=found.receivers,
        incoming_credit=found.incoming_credit,
        outgoing_credit=found.outgoing_credit,
        incoming_unsettled=found.incoming_unsettled,
        outgoing_unsettled=found.outgoing_unsettled,
        payload_octets=found.octets,
        congested=found.congested,
        held=found.held,
        received=as_totals(found.passed.received),
        sent=as_totals(found.passed.sent),
    )
