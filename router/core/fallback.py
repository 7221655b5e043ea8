"""Fallbacks: a route's deliveries that no receiver takes wait in a container's queue.

A route between senders and receivers of this router may name a queue as its ``fallback``. The
worker that dials the queue's container has two kinds of links to it::

    senders ──▶ node of X ──▶ receivers of X            while there are any
                     └──────▶ fallback's queue          while there are none, and for what all of
                                                        them have returned
    receivers of X ◀── node of X ◀── fallback's queue   while there are any

The link towards the queue stands by (``Node.standby``) as long as the address has senders. While
nobody else receives it is among the node's receivers: so credit, outcomes, budgets, and the wait
for a container that is away are those of any receiver, and the sender's outcome is the fallback's.
Each message carries its address there (``wire.original``).

One link pulls from each queue while an address that it serves has receivers, here or at another
worker. Each message goes to the node of its own address, as from the anonymous terminus, ahead of
what waits there of others. It never goes to the fallback again: if its receivers have left it is
put off, and what is pulled is released when the last address has none::

    CLOSED ── a receiver came ──▶ PULLING ── the last one left ──▶ CLOSING: no credit; what waits
       ▲                             ▲                              │       here is released
       │                             └──── a receiver came ─────────┤
       └──────────── receivers have settled all that they had ──────┘

Other workers reach the fallback through the one that dials it, by a link to the same address. That
link, too, is used only while nobody receives (``Uplinks``).
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.node import Direction, Feed, Node, NodeKey, feed_of_link
from router.core.postponing import Postponer
from router.core.pull_plan import names_each
from router.core.reach import Reach
from router.core.settle import Settler
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import IncomingLink
from router.model.delivery import ReceivedDelivery
from router.model.outcome import RELEASED
from router.routes.match import has_wildcards
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from router.routes.table import Match
from router.routes.vhost import inside
from router.wire.original import address_in, without_address

LOOK_SECONDS: Final = 0.25
"""Pause between checks whether receivers have settled what was pulled."""

DRAIN_SECONDS: Final = 5.0
"""How long the queue may take to return its credit. Until then what it sends is released one by
one: RabbitMQ 3 does not requeue what is unsettled on a link of AMQP 1.0 that is detached."""

REST_SECONDS: Final = 1.0
"""How long after its last message from the fallback a node is free for the express lane."""

Place = tuple[str, str]
"""A queue: its container, and its name there."""


@attrs.define(eq=False)
class _Queue:
    """A queue that is pulled from.

    Attributes:
        node: the node of the link that pulls.
        addresses: served ones with receivers.
        vhosts: of the routes that it serves.
        only: the address of all its messages; None: each must carry its own.
        closes_at: while closing, when the answer to the drain is not waited for any more.
        look: the alarm of the next check whether it can be closed.
    """

    node: Node
    addresses: dict[str, None] = attrs.field(factory=dict)
    vhosts: dict[str, None] = attrs.field(factory=dict)
    only: str | None = None
    closes_at: float | None = None
    look: Alarm | None = None


class Fallbacks:
    """Uses the fallbacks of routes, and pulls back from them."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        granter: Granter,
        uplinks: Uplinks,
        *,
        lanes: Lanes,
        postponer: Postponer,
        reach: Reach,
    ) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._settler = settler
        self._granter = granter
        self._uplinks = uplinks
        self._lanes = lanes
        self._postponer = postponer
        self._reach = reach
        self._queues: dict[Place, _Queue] = {}
        self._places: dict[str, Place] = {}
        self._due: dict[str, None] = {}
        self._fed: dict[Feed, float] = {}

    # Towards the fallback

    def look(self) -> None:
        """Has the nodes reviewed whose receivers have come or gone; called as a turn ends."""
        for node in self._registry.moved:
            if node.standby or node.route.fallback is not None:
                self._turn.touch(node)

    def review(self, node: Node) -> None:
        """Adds a node's fallback to its receivers if there are no others, or removes it."""
        if node.key.direction is not Direction.MEETING:
            return
        if node.route.fallback is not None or node.key.address in self._places:
            self._due[node.key.address] = None
        if not node.standby:
            return
        is_used = not _has_others(node)
        changed = [link for link in node.standby if (link in node.outgoing) is not is_used]
        if not changed:
            return
        self._lanes.demote(node)
        for link in changed:
            if is_used:
                node.add_outgoing(link)
            else:
                node.leave_out(link)
        self._notices.add(
            "fallback.used" if is_used else "fallback.unused",
            route=node.route.name,
            address=node.key.address,
            container=changed[0].key.container,
        )
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)
        self._lanes.consider(node)

    # Back from it

    def configure(self) -> None:
        """Follows another routing table, or another share of the containers."""
        for node in self._registry.nodes.values():
            if node.route.fallback is not None:
                self._due[node.key.address] = None
        self._due.update(dict.fromkeys(self._places))
        self._due.update(dict.fromkeys(self._reach.receivers))

    def pull(self) -> None:
        """Begins or ends pulling where receivers have come or gone; called as a turn ends."""
        heard, self._registry.heard = self._registry.heard, {}
        due, self._due = self._due, {}
        for address in (*due, *heard):
            self._follow(address)

    def _follow(self, address: str) -> None:
        match = self._registry.table.lookup(address)
        place = None if match is None else self._place_of(match)
        if match is not None and place is not None and self._is_received(address):
            self._serve(address, place, match)
            return
        before = self._places.pop(address, None)
        if before is not None:
            self._leave(address, before)

    def _place_of(self, match: Match) -> Place | None:
        """Returns the fallback's queue of an address, if this worker dials its container."""
        endpoint = match.route.fallback
        if endpoint is None or not self._reach.owns(endpoint.container):
            return None
        return endpoint.container, match.address_at(endpoint)

    def _is_received(self, address: str) -> bool:
        """Returns whether an address has receivers, here or at another worker."""
        if address in self._reach.receivers:
            return True
        node = self._registry.find(address)
        return node is not None and any(
            not link.is_fallback and link.ways != () for link in node.outgoing
        )

    def _serve(self, address: str, place: Place, match: Match) -> None:
        before = self._places.get(address)
        if before is not None and before != place:
            self._leave(address, before)
        self._places[address] = place
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = self._open(place, match)
        self._adopt(queue, address, place, match)
        self._alarms.cancel(queue.look)
        queue.look = queue.closes_at = None
        for link in self._links(queue):
            if link.is_closing:
                link.is_closing = False
                self._turn.review_credit(link)

    def _open(self, place: Place, match: Match) -> _Queue:
        key = NodeKey("/".join(place), Direction.FALLBACK)
        node = self._registry.node(key, _pulling(match.route, place), match)
        self._uplinks.used(node)
        return _Queue(node)

    @staticmethod
    def _adopt(queue: _Queue, address: str, place: Place, match: Match) -> None:
        """Notes that a queue serves an address of a route."""
        route, endpoint = match.route, match.route.fallback
        queue.addresses[address] = None
        queue.vhosts[route.vhost] = None
        is_only = endpoint is not None and names_each(endpoint)
        queue.only = address if is_only or not has_wildcards(route.address) else None
        if queue.node.match is not match:
            queue.node.match = match
            queue.node.follow(_pulling(route, place))

    def _leave(self, address: str, place: Place) -> None:
        queue = self._queues[place]
        queue.addresses.pop(address, None)
        if not queue.addresses:
            self._close(place)

    def _close(self, place: Place) -> None:
        """Stops pulling from a queue, and ends its link when receivers have settled."""
        queue = self._queues.get(place)
        if queue is None or queue.addresses:
            return
        links = self._links(queue)
        for link in links:
            link.is_closing = True
            self._granter.withdraw(link)
            self._release(link)
        if queue.closes_at is None:
            queue.closes_at = self._turn.now + DRAIN_SECONDS
        is_late = self._turn.now >= queue.closes_at
        if any(link.unsettled or (link.is_draining and not is_late) for link in links):
            self._alarms.cancel(queue.look)
            at = self._turn.now + LOOK_SECONDS
            queue.look = self._alarms.set(at, partial(self._close, place))
            return
        del self._queues[place]
        self._uplinks.remove(queue.node)
        self._registry.prune(queue.node)

    def _release(self, link: IncomingLink) -> None:
        """Returns to the queue what was pulled and is at no receiver."""
        self._postponer.free(link)
        for pairing in tuple(link.unsettled.values()):
            is_whole = pairing.parts is None or pairing.parts.is_complete
            if pairing.outgoing is None and pairing.fan is None and is_whole:
                self._settler.withdraw(pairing)
                self._settler.answer(pairing, RELEASED)

    @staticmethod
    def _links(queue: _Queue) -> list[IncomingLink]:
        return list(queue.node.feeds)

    def restore(self, incoming: IncomingLink, delivery: ReceivedDelivery) -> None:
        """Gives a delivery that was pulled its address, and the form in which it was sent."""
        node = feed_of_link(incoming).node
        place = self._place(node)
        queue = None if place is None else self._queues.get(place)
        if queue is not None and queue.node is not node:
            queue = None  # what an earlier link to the same queue has left
        incoming.tally.fallback += 1
        carried = None
        if not delivery.message_format:
            carried = address_in(delivery.protocol, delivery.payload)
        named = carried or delivery.address
        delivery.address = None
        if queue is None:
            return
        for vhost in queue.vhosts if named is not None else ():
            address = inside(vhost, named or "")
            match = self._registry.table.lookup(address)
            if match is not None and self._place_of(match) == place:
                delivery.address = address
        if delivery.address is None:
            delivery.address = queue.only
        if carried is not None and not delivery.more:
            made = without_address(delivery.protocol, delivery.payload, carried)
            delivery.protocol, delivery.payload = made

    @staticmethod
    def _place(node: Node) -> Place | None:
        source = node.route.from_
        return None if source is None else (source.container, source.address or "")

    # The express lane

    def fed(self, feeds: Iterable[Feed]) -> None:
        """Records that deliveries from a fallback have come to nodes."""
        if not self._fed:
            self._alarms.set(self._turn.now + REST_SECONDS, self._rest)
        self._fed.update(dict.fromkeys(feeds, self._turn.now))

    def _rest(self) -> None:
        """Removes the link that pulls from nodes for which nothing has come for a while."""
        for feed, since in tuple(self._fed.items()):
            is_empty = not (feed.waiting or feed.put_off)
            if is_empty and self._turn.now - since >= REST_SECONDS:
                del self._fed[feed]
                incoming, node = feed.incoming, feed.node
                if incoming.queues.get(node.key.address) is feed:
                    del incoming.queues[node.key.address]
                    self._registry.starve(node, incoming)
                    self._lanes.consider(node)
                    self._turn.leave(node)
        if self._fed:
            self._alarms.set(self._turn.now + REST_SECONDS, self._rest)


def _pulling(route: Route, place: Place) -> Route:
    """Returns the rules of the link that pulls from a route's fallback."""
    is_lossy = route.guarantee is Guarantee.AT_MOST_ONCE
    return attrs.evolve(
        route,
        from_=Endpoint(*place),
        fallback=None,
        dead_letter=None,
        distribution=Distribution.BALANCED,
        guarantee=Guarantee.AT_LEAST_ONCE if is_lossy else route.guarantee,
        ttl_seconds=None,
        unroutable=Unroutable.HOLD,
    )


def _has_others(node: Node) -> bool:
    """Returns whether somebody receives from a node, or is about to, beside its fallback."""
    if node.awaited or node.route.fallback is None:
        return True
    if any(not link.is_fallback and link.ways != () for link in node.outgoing):
        return True
    expected = (*node.returning, *node.pending)
    return any(not getattr(each, "is_fallback", False) for each in expected)
