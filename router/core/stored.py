"""Stored routes: their messages go to the message store, and come from there to their targets.

The store is a container to the core. Its connection (``net.store``) has links like any other::

    senders ──▶ Node TOWARDS, or MEETING of a bridge ──uplink──▶ store: durable, accepted
    store   ──▶ Node STORED ──uplinks──▶ the targets that the route names in ``to``
    store   ──▶ the node of the route's dead letters (``dead_letters``)

So credit, settlement and recovery work as they do everywhere. The store attaches links to the two
lower nodes by the address of its messages, whether or not their route stores messages still: what
is stored is forwarded. It tells by a property of its attach which of the two it means.

What a target returns, and no other one takes, goes back to the store with all that stands behind it
at the node ``STORED``. So does all that comes until the store, or the worker in between, has heard
of that: it is asked for its credit, behind the outcomes, and whatever it had sent comes before its
answer (``Granter.rewind``). Otherwise newcomers on their way would be sent before.

On exactly-once routes custody of a delivery changes hands at the store. Towards it the tag of a
delivery is its key, and the store resumes its links at both ends (``net.store.shelves``,
``net.store.inlets``), so ``resume`` and the journal treat it as any peer that does.
"""

from typing import Final

from router.core.dead_letters import find_dead_letters
from router.core.node import Direction, Node, NodeKey, Taker
from router.core.reach import is_sibling
from router.links.link import Connection
from router.model.identity import LinkName
from router.routes.route import Endpoint, Route
from router.routes.table import Match

STORE: Final = "$store"
"""Name of the message store among the containers; no configured one can have it."""

HERE: Final = "$here"
"""Container as which a worker knows itself as a sender; it may send what a container may."""

FORWARDED: Final = "router:forwarded"
"""Property of the attach of a link between workers: it brings what was stored."""

STORED: Final = "router:stored"
"""Property of the attach of an uplink to the store: the name of the route whose messages it has."""


def is_store(connection: Connection | None) -> bool:
    """Returns whether a connection leads to the message store."""
    return connection is not None and connection.configured == STORE


def is_within(connection: Connection) -> bool:
    """Returns whether what a connection brings has entered this router before."""
    return is_sibling(connection) or connection.configured in {STORE, HERE}


def is_named_for_store(name: LinkName, node: Node) -> bool:
    """Returns whether a link's name is that of a node's uplink to the message store."""
    return f":{node.key.address}>{STORE}/" in name


def find_stored(match: Match, *, is_dead: bool) -> tuple[NodeKey, Route] | None:
    """Returns the node for messages that the store sends.

    Args:
        match: the route of their address.
        is_dead: they are dead letters.

    Returns:
        None: the route has no such place.
    """
    if is_dead:
        return find_dead_letters(match)
    if not match.route.to:
        return None
    return NodeKey(match.address, Direction.STORED), match.route


def targets_of(node: Node, *, has_store: bool) -> tuple[Endpoint, ...]:
    """Returns where the messages that a node is sent go next.

    Args:
        node: the node.
        has_store: the message store is this worker's; the others reach it, and what is stored or
            passed through, by that worker.
    """
    route = node.route
    if node.taker is Taker.ELDERS:
        return (Endpoint(STORE), *route.to)
    if route.store is None or node.key.direction is Direction.STORED:
        return route.to
    if has_store and route.passes_through:
        return (Endpoint(STORE), *route.to)
    return (Endpoint(STORE),)
