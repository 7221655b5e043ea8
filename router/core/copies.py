"""Which copies of a multicast go where routers reach the same receivers on several ways.

Where all routers name all others, each would send a copy to every other one, and each of these to
the rest. So a node assigns each end of its ways, a node with receivers, to one of its links: the
one on which it is nearest. A link to which no end is assigned gets no copy. The copy on each of the
others carries the ends to which that link leads, too, among the stops that it has passed, so nobody
sends it there.
"""

from collections.abc import Iterator, Sequence

import attrs

from router.core.node import Node
from router.core.reach import is_end, is_sibling, reported_ways, sender_stop
from router.links.link import IncomingLink, OutgoingLink
from router.model.delivery import ReceivedDelivery
from router.model.ways import Stop, Way

Served = dict[OutgoingLink, tuple[Stop, ...]]
"""The links that get a copy, each with the ends that copies on other links are for."""


def assign(
    node: Node,
    links: Sequence[OutgoingLink],
    incoming: IncomingLink,
    delivery: ReceivedDelivery,
) -> Served:
    """Returns which links get a copy of a delivery.

    Args:
        node: the delivery's.
        links: those of its receivers, in order.
        incoming: the delivery's sender.
        delivery: what is to be copied.
    """
    far = [link for link in links if link.chain is None and not is_end(link)]
    if len(far) < 2:
        return dict.fromkeys(links, ())
    ways = {link: list(_onward(node, link, incoming, delivery)) for link in far}
    nearest: dict[Stop, tuple[int, int]] = {}
    for place, link in enumerate(far):
        for length, way in ways[link]:
            known = nearest.get(way.stops[-1])
            nearest[way.stops[-1]] = min(known or (length, place), (length, place))
    served: Served = {}
    for link in links:
        if link not in ways:
            served[link] = ()
            continue
        place = far.index(link)
        own = [way for _, way in ways[link] if nearest[way.stops[-1]][1] == place]
        is_own = is_sibling(link.connection)  # its receivers are no other's
        if own or is_own or not ways[link]:
            passed = {stop for way in own for stop in way.stops}
            ends = dict.fromkeys(way.stops[-1] for _, way in ways[link])
            served[link] = tuple(end for end in ends if end not in passed)
    return served


def _onward(
    node: Node, link: OutgoingLink, incoming: IncomingLink, delivery: ReceivedDelivery
) -> Iterator[tuple[int, Way]]:
    """Yields the ways by a link to receivers of other nodes, and how many stops are on them."""
    is_same_stop, sender = is_sibling(link.connection), sender_stop(incoming)
    for way in reported_ways(node, link):
        is_back = sender in way.stops or any(stop in delivery.hops for stop in way.stops)
        is_here = way.stops[-1] == node.stop if is_same_stop else node.stop in way.stops
        if not (is_back or is_here):
            yield len(way.stops) + (not is_same_stop), way


def with_ends(delivery: ReceivedDelivery, ends: Sequence[Stop], limit: int) -> ReceivedDelivery:
    """Returns a delivery as if it had passed some ends, before its other stops.

    Args:
        delivery: what is to be copied.
        ends: that other copies are for; of many the first ones.
        limit: how many stops a delivery may have passed.
    """
    most = max(0, limit - len(delivery.hops)) // 2
    return attrs.evolve(delivery, hops=(*ends[:most], *delivery.hops)) if ends else delivery
