"""Lists of connections, links and deliveries, a page at a time.

Theory of operation. A page begins after a *position*, where the previous page ended, so lists may
change in between: removed items are missing, and new items are found if they sort after the
position. Links are in the order of their attaching, suspended ones last. Deliveries are oldest
first: each link keeps its unsettled ones in order of arrival, and those of all links are merged
until the page is full. No page examines more than ``LOOKS_MOST`` deliveries; a page that stopped
there is marked (``is_cut``).

What is on the express lane is listed as it is there, without bringing it to the core, up to
``LANE_MOST`` deliveries; more are only counted (``on_lane``). When they arrived is known as well as
``ages`` has it.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

import attrs

from router.core.ages import LaneAges
from router.core.lanes import Lanes
from router.core.node import Node, feed_of, in_custody
from router.core.reach import is_sibling
from router.core.registry import Registry
from router.core.retired import as_totals, route_name
from router.core.snapshot import DYNAMIC, Totals
from router.links.link import Connection, IncomingLink, Link, OutgoingLink, unnumbered
from router.links.pairing import Pairing, doubts, octets_of
from router.model.lane import LaneDelivery
from router.model.terminus import Role

LOOKS_MOST: Final = 20_000
"""Most deliveries examined for one page: some 10 ms."""

LANE_MOST: Final = 5_000
"""Most deliveries on the express lane that are listed one by one: some 10 ms."""


@attrs.frozen(kw_only=True)
class ConnectionRecord:
    """One connection that has opened, as the core sees it.

    Attributes:
        container: the peer's container-id.
        configured: the name of the container in the configuration, if we dialed it.
        user: authenticated identity; None: anonymous.
        senders, receivers: attached links on which we receive, or send.
        incoming_unsettled, outgoing_unsettled: deliveries on these links.
        payload_octets: received on it and kept until outcomes are known.
        is_congested: its output has piled up; no payload is sent on it meanwhile.
        is_held: its octet budget, or that of the process, is spent.
    """

    connection: int
    container: str
    configured: str | None
    user: str | None
    protocol: str
    is_router: bool
    senders: int
    receivers: int
    incoming_unsettled: int
    outgoing_unsettled: int
    payload_octets: int
    is_congested: bool
    is_held: bool


@attrs.frozen(kw_only=True)
class LinkRecord:
    """One link.

    Attributes:
        link: our id; None for a suspended one, whose peer is away.
        connection: None for a suspended one.
        container: the peer's container-id.
        configured: the name of the container in the configuration, if we dialed it.
        role: our end's.
        address: of the node; None: the anonymous terminus.
        route: name of its route.
        credit: that its sender has left.
        queued: deliveries received on it that wait to be forwarded.
        unsettled: deliveries unsettled on this link.
        oldest_seconds: age of the oldest of these, counted from its arrival at this router.
        payload_octets: of deliveries received on it, kept until their outcome is known.
        is_held: its window is held: a budget is spent, or its receivers are congested.
    """

    link: int | None
    connection: int | None
    container: str
    configured: str | None
    name: str
    role: Role
    address: str | None
    route: str
    credit: int
    queued: int = 0
    unsettled: int = 0
    oldest_seconds: float | None = None
    payload_octets: int = 0
    is_draining: bool = False
    is_held: bool = False
    totals: Totals


@attrs.frozen
class LinkPosition:
    """The end of a page of links: the last one's id, or key if it is suspended."""

    link: int = 0
    suspended: tuple[str, str, str] | None = None


@attrs.frozen(order=True)
class DeliveryPosition:
    """Sort key of deliveries; begins with the arrival time on the core's clock."""

    arrived: float
    container: str
    link: str
    sequence: int


@attrs.frozen(kw_only=True)
class DeliveryRecord:
    """One unsettled delivery.

    Attributes:
        tag: its delivery-tag as received, in hexadecimal digits.
        container, link: its sender: container-id and link name.
        state: partial: still arriving; queued: waits to be forwarded; sent: the receiver's outcome
            is awaited; answered: the outcome was sent and the sender has to settle; in doubt: sent,
            and the connection was lost before the outcome arrived.
        to_container, to_link: its receiver: container-id and link name.
        age_seconds: since it arrived.
        octets: payload that is kept.
        attempts: number of failed attempts to forward it.
        in_custody: its sender has settled it, and the router itself is responsible for it.
    """

    tag: str
    route: str
    address: str
    container: str
    link: str
    state: str
    to_container: str | None
    to_link: str | None
    age_seconds: float
    octets: int
    attempts: int
    in_custody: bool = False
    position: DeliveryPosition


@attrs.frozen
class ConnectionPage:
    """A page of connections, and the number of the last one; None: there are no more."""

    connections: tuple[ConnectionRecord, ...]
    next: int | None


@attrs.frozen
class LinkPage:
    """A page of links, and its end position; None: there are no more."""

    links: tuple[LinkRecord, ...]
    next: LinkPosition | None


@attrs.frozen
class DeliveryPage:
    """A page of deliveries; the next page begins after the last one's position.

    Attributes:
        has_more: there is a next page.
        is_cut: there were so many candidates that the rest was not examined.
        on_lane: unsettled deliveries on the express lane that are only counted.
        gaps: parts of the journal that are missing; deliveries in doubt that were recorded only
            there are not listed.
    """

    deliveries: tuple[DeliveryRecord, ...]
    has_more: bool
    is_cut: bool = False
    on_lane: int = 0
    gaps: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Filter:
    """Which links or deliveries to list; None: all.

    Attributes:
        route: name of the route.
        container: container-id of the peer, or its configured name; for deliveries, that of the
            sender or of the receiver.
        in_doubt: lists only deliveries in doubt.
        tag: delivery-tag as received, in hexadecimal digits.
    """

    route: str | None = None
    container: str | None = None
    in_doubt: bool = False
    tag: str | None = None


class Lister:
    """Lists the connections, links and deliveries of one core.

    Attributes:
        gaps: missing parts of the restored journal, for people.
    """

    def __init__(self, registry: Registry, lanes: Lanes, ages: LaneAges) -> None:
        self.gaps: tuple[str, ...] = ()
        self._ages = ages
        self._registry = registry
        self._lanes = lanes

    def connections(self, wanted: Filter, most: int, after: int) -> ConnectionPage:
        """Returns up to ``most`` connections after a number, in the order of their arrival."""
        self._lanes.refresh()
        numbers = sorted(number for number in self._registry.connections if number > after)
        found: list[ConnectionRecord] = []
        for number in numbers:
            if len(found) == most:
                return ConnectionPage(tuple(found), found[-1].connection)
            connection = self._registry.connections[number]
            if wanted.container in (None, connection.container, connection.configured):
                found.append(_connection_record(connection))
        return ConnectionPage(tuple(found), None)

    # Links

    def links(self, wanted: Filter, most: int, after: LinkPosition, now: float) -> LinkPage:
        """Returns up to ``most`` links after a position."""
        self._lanes.refresh()
        found: list[LinkRecord] = []
        last = after
        for link, position in self._links_behind(after):
            if len(found) == most:
                return LinkPage(tuple(found), last)
            if _is_wanted_link(link, wanted):
                found.append(_link_record(link, now))
                last = position
        return LinkPage(tuple(found), None)

    def _links_behind(self, after: LinkPosition) -> Iterator[tuple[Link, LinkPosition]]:
        if after.suspended is None:
            attached: list[tuple[int, Link]] = []
            for connection in self._registry.parties:
                for incoming in connection.incoming.items():
                    if incoming[0] > after.link:
                        attached.append(incoming)
                for outgoing in connection.outgoing.items():
                    if outgoing[0] > after.link:
                        attached.append(outgoing)
            heapq.heapify(attached)
            while attached:
                number, link = heapq.heappop(attached)
                yield link, LinkPosition(number)
        suspended = [(_suspended_key(link), link) for link in self._registry.waiting()]
        for key, link in sorted(suspended, key=lambda each: each[0]):
            if after.suspended is None or key > after.suspended:
                yield link, LinkPosition(suspended=key)

    # Deliveries

    def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None, now: float
    ) -> DeliveryPage:
        """Returns up to ``most`` unsettled deliveries after a position, oldest first."""
        page = self._deliveries(wanted, most, after, now)
        return attrs.evolve(page, gaps=self.gaps) if wanted.in_doubt and self.gaps else page

    def _deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None, now: float
    ) -> DeliveryPage:
        found: list[DeliveryRecord] = []
        on_lane, lane = (0, []) if wanted.in_doubt else self._on_lane(wanted, now)
        sources: list[Iterator[tuple[DeliveryPosition, Pairing | DeliveryRecord]]]
        sources = [*self._sources(wanted), iter(lane)]
        merged = heapq.merge(*sources, key=lambda each: each[0])
        for looked, (position, pairing) in enumerate(merged):
            if len(found) == most:
                return DeliveryPage(tuple(found), True, on_lane=on_lane)
            if looked == LOOKS_MOST:
                return DeliveryPage(tuple(found), False, is_cut=True, on_lane=on_lane)
            if after is not None and position <= after:
                continue
            if isinstance(pairing, DeliveryRecord):
                found.append(pairing)
            elif _is_wanted_delivery(pairing, wanted):
                found.append(_delivery_record(pairing, now))
        return DeliveryPage(tuple(found), False, on_lane=on_lane)

    def _on_lane(
        self, wanted: Filter, now: float
    ) -> tuple[int, list[tuple[DeliveryPosition, DeliveryRecord]]]:
        """Lists what is on the express lane, and counts what is not listed."""
        total = self._count_on_lane(wanted)  # refreshes what links know of their lanes
        found: list[tuple[DeliveryPosition, DeliveryRecord]] = []
        arrivals: dict[IncomingLink, Callable[[int], float]] = {}
        left, counted = LANE_MOST, 0
        for node in self._lanes.nodes:
            if wanted.route not in (None, _route_name(node)):
                continue
            listed = self._lanes.listed(node, left)
            left -= len(listed)
            for incoming, each, outgoing in listed:
                counted += not (is_sibling(incoming.connection) or each.is_settled)
                names = (*_names(incoming), *(() if outgoing is None else _names(outgoing)))
                if wanted.container is not None and wanted.container not in names:
                    continue
                arrived_at = arrivals.get(incoming)
                if arrived_at is None:
                    arrived_at = arrivals[incoming] = self._ages.arrivals(incoming, now)
                record = _lane_record(node, incoming, each, outgoing, now, arrived_at(each.place))
                found.append((record.position, record))
        found.sort(key=lambda each: each[0])
        return (0 if left else max(0, total - counted)), found

    def _count_on_lane(self, wanted: Filter) -> int:
        self._lanes.refresh()
        return sum(
            link.lane_unsettled
            for connection in self._registry.parties
            if not is_sibling(connection)  # counted at the worker where it entered the router
            for link in connection.incoming.values()
            if link.lane_unsettled and _is_wanted_link(link, wanted)
        )

    def _sources(self, wanted: Filter) -> list[Iterator[tuple[DeliveryPosition, Pairing]]]:
        if wanted.in_doubt:
            lost = (pairing for link in self._receivers() for pairing in doubts(link))
            return [iter(sorted(_positions(islice(lost, LOOKS_MOST)), key=lambda each: each[0]))]
        links = self._registry.waiting()
        for connection in self._registry.parties:
            links += connection.incoming.values()
        found = [
            _positions(_pairings(link))
            for link in links
            if isinstance(link, IncomingLink)
            and (link.unsettled or link.adrift or link.unconfirmed)
        ]
        owned = islice(self._owned(), LOOKS_MOST)
        return [*found, iter(sorted(_positions(owned), key=lambda each: each[0]))]

    def _owned(self) -> Iterator[Pairing]:
        """Yields the deliveries that stand in no map of their senders, who have settled them.

        They wait at a node, or are with a receiver; those of a multicast are with several.
        """
        for node in self._registry.nodes.values():
            if node.rotation:
                for feed in node.rotation:
                    yield from (pairing for pairing in feed.waiting if pairing.is_settled)
        trunks: dict[Pairing, None] = {}
        for link in self._receivers():
            for pairing in _pairings(link):
                if pairing.fan is not None:
                    if pairing.fan.trunk.is_settled:
                        trunks[pairing.fan.trunk] = None
                elif pairing.is_settled:
                    yield pairing
        yield from trunks

    def _receivers(self) -> Iterator[OutgoingLink]:
        """Yields the receivers' links, attached or not: either may have deliveries in doubt."""
        for link in self._registry.absent():
            if isinstance(link, OutgoingLink):
                yield link
        for connection in self._registry.parties:
            yield from connection.outgoing.values()


def _pairings(link: Link) -> Iterator[Pairing]:
    """Returns the unsettled deliveries of a link; of an incoming one in order of arrival."""
    return chain(unnumbered(link), link.unsettled.values())


def _positions(pairings: Iterable[Pairing]) -> Iterator[tuple[DeliveryPosition, Pairing]]:
    for pairing in pairings:
        yield _position(pairing), pairing


def _position(pairing: Pairing) -> DeliveryPosition:
    key = pairing.incoming.key
    return DeliveryPosition(pairing.arrived, key.container, key.name, pairing.sequence)


def _suspended_key(link: Link) -> tuple[str, str, str]:
    return (str(link.key.container), str(link.key.name), link.key.role.value)


def _is_wanted_link(link: Link, wanted: Filter) -> bool:
    if wanted.route is not None and route_name(link) != wanted.route:
        return False
    return wanted.container is None or wanted.container in _names(link)


def _names(link: Link) -> tuple[str | None, str | None]:
    connection = link.connection
    return (link.key.container, None if connection is None else connection.configured)


def _is_wanted_delivery(pairing: Pairing, wanted: Filter) -> bool:
    if wanted.tag is not None and pairing.delivery.tag.hex() != wanted.tag:
        return False
    if wanted.route is not None and _route_of(pairing) != wanted.route:
        return False
    if wanted.container is None:
        return True
    links: list[Link] = [pairing.incoming]
    if pairing.outgoing is not None:
        links.append(pairing.outgoing)
    return any(wanted.container in _names(link) for link in links)


def _route_of(pairing: Pairing) -> str:
    """Returns the name of a delivery's route, even if its link is to the anonymous terminus."""
    return _route_name(feed_of(pairing).node)


def _route_name(node: Node) -> str:
    return DYNAMIC if node.is_dynamic else node.route.name


def _connection_record(connection: Connection) -> ConnectionRecord:
    incoming, outgoing = connection.incoming.values(), connection.outgoing.values()
    return ConnectionRecord(
        connection=connection.id,
        container=connection.container,
        configured=connection.configured,
        user=connection.user,
        protocol=connection.capabilities.protocol.value,
        is_router=connection.capabilities.is_router,
        senders=len(incoming),
        receivers=len(outgoing),
        incoming_unsettled=sum(len(link.unsettled) + link.lane_unsettled for link in incoming),
        outgoing_unsettled=sum(len(link.unsettled) + link.lane_unsettled for link in outgoing),
        payload_octets=connection.octets.used + sum(link.lane_octets for link in incoming),
        is_congested=connection.is_congested,
        is_held=connection.is_held,
    )


def _link_record(link: Link, now: float) -> LinkRecord:
    connection = link.connection
    first = next(_pairings(link), None)
    return LinkRecord(
        link=link.link,
        connection=None if connection is None else connection.id,
        container=link.key.container,
        configured=None if connection is None else connection.configured,
        name=link.key.name,
        role=link.key.role,
        address=link.address,
        route=route_name(link),
        credit=link.credit,
        queued=link.queued if isinstance(link, IncomingLink) else 0,
        unsettled=len(link.unsettled) + len(unnumbered(link)) + link.lane_unsettled,
        oldest_seconds=None if first is None else now - first.arrived,
        payload_octets=link.octets + link.lane_octets if isinstance(link, IncomingLink) else 0,
        is_draining=link.is_draining,
        is_held=isinstance(link, IncomingLink) and bool(link.holds),
        totals=as_totals(link.tally),
    )


def _delivery_record(pairing: Pairing, now: float) -> DeliveryRecord:
    outgoing = pairing.outgoing
    return DeliveryRecord(
        tag=pairing.delivery.tag.hex(),
        route=_route_of(pairing),
        address=feed_of(pairing).node.key.address,
        container=pairing.incoming.key.container,
        link=pairing.incoming.key.name,
        state=_state(pairing),
        to_container=None if outgoing is None else outgoing.key.container,
        to_link=None if outgoing is None else outgoing.key.name,
        age_seconds=now - pairing.arrived,
        octets=octets_of(pairing),
        attempts=pairing.attempts,
        in_custody=in_custody(pairing),
        position=_position(pairing),
    )


def _lane_record(  # noqa: PLR0917  a delivery on the lane, and where it is
    node: Node,
    incoming: IncomingLink,
    delivery: LaneDelivery,
    outgoing: OutgoingLink | None,
    now: float,
    arrived: float,
) -> DeliveryRecord:
    key = incoming.key
    state = "queued" if delivery.outgoing is None else "sent"
    return DeliveryRecord(
        tag=delivery.tag.hex(),
        route=_route_name(node),
        address=node.key.address,
        container=key.container,
        link=key.name,
        state="answered" if delivery.is_answered else state,
        to_container=None if outgoing is None else outgoing.key.container,
        to_link=None if outgoing is None else outgoing.key.name,
        age_seconds=max(0.0, now - arrived),
        octets=delivery.octets,
        attempts=0,
        in_custody=delivery.is_settled and not node.is_lossy,
        position=DeliveryPosition(arrived, key.container, key.name, delivery.place),
    )


def _state(pairing: Pairing) -> str:
    if pairing.parts is not None and not pairing.parts.is_complete:
        return "partial"
    if pairing.outcome is not None:
        return "answered"
    if pairing.outgoing is not None:
        return "in doubt" if pairing.outgoing_tag in pairing.outgoing.adrift else "sent"
    if pairing.fan is not None:
        return "sent"
    return "queued"
