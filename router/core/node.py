"""A routed address, as far as this worker is concerned: who sends to it, who receives from it.

One node is one direction of one address. Its incoming links have a queue each; its outgoing links
take from the queues in rotation. Nothing else stands between: whatever can be sent on is sent on
in the turn in which it came.
"""

import enum
from collections import deque
from collections.abc import Collection, Mapping
from hashlib import blake2s
from itertools import takewhile

import attrs

from router.core.alarms import Alarm
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.links.pairing import Pairing, Queue
from router.model.delivery import Elder
from router.model.idle import NOTHING
from router.model.sparse import SparseSet
from router.model.ways import Chain, Stop
from router.routes.route import Distribution, Guarantee, Route
from router.routes.table import Match


class Direction(enum.Enum):
    """Which of an address' nodes."""

    MEETING = "meeting"  # senders and receivers meet here; bridges and auto-links too
    TOWARDS = "towards"  # from local senders to containers
    PULL = "pull"  # from containers to local receivers
    STORED = "stored"  # from the message store to containers
    TRANSIT = "transit"  # from one site to another (``mesh.ways``)
    FALLBACK = "fallback"  # from a fallback's queue to the nodes of its messages


class Taker(enum.Enum):
    """Who is sent the messages of a stored route; see ``storing``."""

    TARGETS = "targets"
    STORE = "store"
    NOBODY = "nobody"
    ELDERS = "elders"  # the store, which is sent nothing but what goes before all that is stored


@attrs.frozen
class NodeKey:
    """Names a node.

    Attributes:
        container: set for dead letters on their way to that container.
        reader: set for a receiver with filters of its own, which shares the node with nobody.
        chain: set for what passes between two other sites.
    """

    address: str
    direction: Direction = Direction.MEETING
    container: str | None = None
    reader: str | None = None
    chain: Chain | None = None


@attrs.frozen
class Maker:
    """Who made a dynamic node, and may receive from it whichever of its connections it uses.

    Attributes:
        mark: stands for its identity and container-id (``mark_of``); None: for nobody, as it is a
            connection without a container-id, at another worker.
        is_open: others may receive from it, too.
        is_lone: it has no container-id of its own, so it is known at its own worker alone.
    """

    mark: str | None
    is_open: bool = False
    is_lone: bool = False

    def is_same(self, connection: Connection) -> bool:
        """Returns whether a connection is the maker's."""
        return self.mark == mark_of(connection)


def mark_of(connection: Connection) -> str:
    """Returns what stands for a peer's identity and container-id: short, and text in any case."""
    who = repr((connection.user, connection.container))
    return blake2s(who.encode(errors="backslashreplace"), digest_size=16).hexdigest()


@attrs.define(eq=False)
class Feed(Queue):
    """The deliveries of one incoming link at one node.

    Attributes:
        put_off: how many deliveries, beside those in the queue, are put off (``postponing``).
    """

    node: "Node"
    put_off: int = 0


@attrs.define(eq=False, kw_only=True)
class Node:
    """One direction of one address.

    Attributes:
        match: the result of the address look-up; None: a peer asked us to make the node, or its
            route is gone.
        route: its route.
        is_unrestricted: any receiver may get any delivery unchanged.
        is_exact: its route promises exactly-once.
        is_lossy: its route promises at-most-once: every delivery is sent settled.
        is_recorded: its deliveries are recorded, if there is a journal.
        feeds: its feeds by incoming link.
        rotation: feeds with queued deliveries, the next one first.
        outgoing: attached outgoing links, in the order of their attaches.
        returning: outgoing links that are expected to return: suspended ones, and those towards
            containers while these are away. As long as there are any, deliveries wait.
        pending: uplinks being attached to siblings with receivers. A multicast waits for them, or
            these receivers would miss it.
        awaited: watchers (``watch``) just informed of the address, which are about to attach. A
            multicast waits for them, and so do deliveries without another receiver.
        filters: those that its receiver asks its containers for (``filtering``).
        is_sought: that receiver waits for their answer.
        message_limit: octets of the largest message that every receiver accepts; 0: no limit.
        expiry: the earliest expiry of a queued delivery.
        width: sum (multicast: minimum) of the receivers' last grants.
        turn: counts choices, see ``routes.distribution``.
        granted_width: the width from which its senders' credit was last computed.
        uncredited: incoming links without credit, because no receiver could take more.
        is_paused: an operator has paused its route.
        given_back: deliveries queued again after a receiver returned them, still to be checked for
            another receiver.
        hopeful: the returned deliveries that another receiver may still take.
        is_express: it is on the express lane (``lanes``).
        has_uplinks: it has uplinks to containers, attached or not.
        owner: of a dynamic node: the link for which it was made, later, if it outlives that, its
            lifetime; None: it was made elsewhere, or has ended.
        lifetime: of a dynamic node that was made here (``lifetime``).
        look: when a dynamic node is next checked for its end.
        maker: the peer that made a dynamic node.
        stop: its name towards other routers.
        gains: how many receivers have attached that are no routers, and no siblings.
        standby: attached links to the route's fallback; they are in ``outgoing``, too, while nobody
            else receives (``fallback``).
        taker: who is sent the messages of a stored route; None: it has no choice (``storing``).
        aside: attached links that are not in ``outgoing`` because another one is the taker.
        twin: of a node towards containers, the node that pulls from them; and vice versa.
        has_ways: a receiver is a router, or a sibling that has reported ways.
        is_peopled: besides, there are receivers here or behind one of them.
    """

    key: NodeKey
    route: Route
    match: Match | None = None
    is_unrestricted: bool = attrs.field(init=False)
    is_multicast: bool = attrs.field(init=False)
    is_exact: bool = attrs.field(init=False)
    is_lossy: bool = attrs.field(init=False)
    is_recorded: bool = attrs.field(init=False)
    feeds: dict[IncomingLink, Feed] = attrs.field(factory=dict, init=False)
    rotation: deque[Feed] = attrs.field(default=NOTHING, init=False)
    outgoing: list[OutgoingLink] = attrs.field(factory=list, init=False)
    returning: SparseSet[object] = attrs.field(factory=SparseSet, init=False)
    pending: SparseSet[object] = attrs.field(factory=SparseSet, init=False)
    awaited: SparseSet[object] = attrs.field(factory=SparseSet, init=False)
    filters: Mapping[object, object] | None = attrs.field(default=None, init=False)
    is_sought: bool = attrs.field(default=False, init=False)
    width: int = attrs.field(default=0, init=False)
    message_limit: int = attrs.field(default=0, init=False)
    expiry: Alarm | None = attrs.field(default=None, init=False)
    places: int = attrs.field(default=0, init=False)
    turn: int = attrs.field(default=0, init=False)
    granted_width: int = attrs.field(default=0, init=False)
    uncredited: dict[IncomingLink, None] = attrs.field(factory=dict, init=False)
    has_uplinks: bool = attrs.field(default=False, init=False)
    is_paused: bool = attrs.field(default=False, init=False)
    given_back: dict[Pairing, None] = attrs.field(factory=dict, init=False)
    hopeful: dict[Pairing, None] = attrs.field(factory=dict, init=False)
    is_express: bool = attrs.field(default=False, init=False)
    owner: object | None = None
    lifetime: object | None = attrs.field(default=None, init=False)
    look: Alarm | None = attrs.field(default=None, init=False)
    maker: Maker | None = attrs.field(default=None, init=False)
    stop: Stop = ""
    gains: int = attrs.field(default=0, init=False)
    has_ways: bool = attrs.field(default=False, init=False)
    is_peopled: bool = attrs.field(default=False, init=False)
    twin: "Node | None" = attrs.field(default=None, init=False)
    standby: tuple[OutgoingLink, ...] = attrs.field(default=(), init=False)
    taker: "Taker | None" = attrs.field(default=None, init=False)
    aside: tuple[OutgoingLink, ...] = attrs.field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        self.follow(self.route)

    def follow(self, route: Route) -> None:
        """Adopts the rules of a route."""
        self.route = route
        self.is_multicast = route.distribution is Distribution.MULTICAST
        self.is_exact = route.guarantee is Guarantee.EXACTLY_ONCE
        self.is_lossy = route.guarantee is Guarantee.AT_MOST_ONCE
        self.is_recorded = self.is_exact or route.is_recorded or route.archive
        self.is_unrestricted = not (
            self.is_multicast or self.is_paused or route.ttl_seconds is not None
        )
        for link in {*self.outgoing, *self.standby, *self.aside}:
            self.look_at(link)
        self.look_again()

    def pause(self, paused: bool) -> None:
        """Pauses or resumes forwarding; the senders' credit is left to the core."""
        self.is_paused = paused
        self.follow(self.route)

    @property
    def is_routeless(self) -> bool:
        """Whether its route is gone, and what is unsettled here waits for one (``routeless``)."""
        return self.match is None and self.is_exact

    @property
    def is_dynamic(self) -> bool:
        """Whether a peer asked us to make it."""
        return self.match is None and not self.is_exact

    @property
    def can_send(self) -> bool:
        """Whether some receiver has credit (multicast: every one)."""
        if self.is_multicast:
            credits = [link.credit > 0 for link in self.outgoing if link.ways != ()]
            return bool(credits) and all(credits) and not (self.pending or self.awaited)
        return any(link.credit > 0 for link in self.outgoing)

    @property
    def is_vacant(self) -> bool:
        """Whether nobody receives or is expected, and the route answers what comes all the same."""
        return self.route.answers_vacant and not (
            self.outgoing or self.returning or self.pending or self.awaited
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left that needs it."""
        return self.owner is None and not (
            self.feeds or self.outgoing or self.returning or self.rotation or self.has_uplinks
        )

    def measure(self) -> None:
        """Works ``width`` out anew; a multicast waits for no router without receivers."""
        self.has_ways = any(
            link.traces or link.is_traced or link.ways is not None for link in self.outgoing
        )
        self.is_peopled = self.has_ways and any(link.ways != () for link in self.outgoing)
        if self.is_multicast:
            widths = (link.width for link in self.outgoing if link.ways != ())
            self.width = min(widths, default=0)
        else:
            self.width = sum(link.width for link in self.outgoing)
        limits = [link.max_message_octets for link in self.outgoing if link.max_message_octets]
        self.message_limit = min(limits, default=0)

    def add_outgoing(self, link: OutgoingLink) -> None:
        """Adds a receiver."""
        self.places += 1
        link.place = self.places
        self.outgoing.append(link)
        self.look_at(link)
        self.measure()
        self.look_again()

    def stand_by(self, link: OutgoingLink) -> None:
        """Adds a link to the route's fallback."""
        if link not in self.standby:
            self.standby += (link,)
        self.look_at(link)

    def look_at(self, link: OutgoingLink) -> None:
        """Finds out whether deliveries must be looked at before they go out on a link."""
        route = self.route
        link.carries_tags = self.is_exact
        link.is_recorded = self.is_recorded
        link.settles_on_send = link.wants_settled or self.is_lossy
        link.carries_keys = link.is_router and (self.is_recorded or self.key.chain is not None)
        link.is_unrestricted = not (
            link.settles_on_send
            or link.names is not None
            or link.keeps
            or link.is_fallback
            or link.is_traced
            or route.ttl_seconds is not None
            or (link.carries_tags and route.target_id is not None)
        )

    def remove_outgoing(self, link: OutgoingLink) -> None:
        """Removes a receiver."""
        if link in self.standby:
            self.standby = tuple(each for each in self.standby if each is not link)
        if link in self.aside:
            self.aside = tuple(each for each in self.aside if each is not link)
        self.leave_out(link)

    def put_aside(self, link: OutgoingLink) -> None:
        """Keeps a link for later, on which nothing new is sent now."""
        self.leave_out(link)
        if link not in self.aside:
            self.aside += (link,)
        self.look_at(link)

    def take_up(self, link: OutgoingLink) -> None:
        """Sends on a link that was put aside."""
        self.aside = tuple(each for each in self.aside if each is not link)
        self.add_outgoing(link)

    def leave_out(self, link: OutgoingLink) -> None:
        """Sends no more new deliveries on a link."""
        if link in self.outgoing:
            self.outgoing.remove(link)
            self.measure()
            self.look_again()

    def look_again(self) -> None:
        """Has everything looked at that was given back, as the receivers are others now."""
        if self.hopeful:
            self.given_back.update(self.hopeful)
            self.hopeful.clear()

    def forget_given_back(self, pairing: Pairing) -> None:
        """Records that a delivery does not wait here any more."""
        if pairing.tried is not None:
            self.given_back.pop(pairing, None)
            self.hopeful.pop(pairing, None)

    def put(self, feed: Feed, pairing: Pairing) -> None:
        """Adds a delivery at the end of its queue."""
        if not feed.waiting:
            self.line_up(feed)
        feed.waiting.append(pairing)
        feed.incoming.queued += 1

    @staticmethod
    def count_sent(feed: Feed, count: int) -> None:
        """Records that deliveries were taken out of a queue and sent on."""
        feed.incoming.queued -= count

    @staticmethod
    def hand_over(feed: Feed) -> None:
        """Empties the queue of a link whose deliveries wait on the express lane from now on."""
        feed.waiting.clear()
        feed.incoming.queued = 0

    def put_back(self, feed: Feed, pairings: list[Pairing]) -> None:
        """Returns deliveries, given in their order, to their places in the queue.

        That costs a step for each delivery that stands before the last of these places.
        """
        if not pairings:
            return
        waiting = feed.waiting
        if not waiting:
            self.line_up(feed)
        placed, last = pairings, pairings[-1].sequence
        before: list[Pairing] = []
        while waiting and waiting[0].sequence < last:
            before.append(waiting.popleft())
        if before:
            placed = sorted([*before, *pairings], key=by_sequence)
        waiting.extendleft(reversed(placed))
        feed.incoming.queued += len(pairings)
        for pairing in pairings:
            if pairing.tried is not None:
                self.given_back[pairing] = None

    def line_up(self, feed: Feed) -> None:
        """Adds a feed to the rotation."""
        if self.rotation is NOTHING:
            self.rotation = deque()
        self.rotation.append(feed)

    def withdraw(self, feed: Feed, pairing: Pairing) -> None:
        """Removes one delivery from its queue."""
        if pairing in feed.waiting:
            feed.waiting.remove(pairing)
            feed.incoming.queued -= 1
            if not feed.waiting:
                self.rotation.remove(feed)
        self.forget_given_back(pairing)

    def withdraw_all(self, feed: Feed, pairings: Collection[Pairing]) -> None:
        """Removes deliveries from a queue.

        That costs a step for each delivery up to the last of them.
        """
        missing, waiting = set(pairings), feed.waiting
        kept: list[Pairing] = []
        feed.incoming.queued -= len(missing)
        while missing:
            pairing = waiting.popleft()
            if pairing in missing:
                missing.remove(pairing)
                self.forget_given_back(pairing)
            else:
                kept.append(pairing)
        waiting.extendleft(reversed(kept))
        if not waiting:
            self.rotation.remove(feed)


def by_sequence(pairing: Pairing) -> int:
    """Returns the place of a delivery among those of its link."""
    return pairing.sequence


def feed_of(pairing: Pairing) -> Feed:
    """Returns the feed of a pairing."""
    feed = pairing.queue
    assert isinstance(feed, Feed), "the core makes no other queues"
    return feed


def feed_of_link(incoming: IncomingLink) -> Feed:
    """Returns the only feed of a link that is not attached to the anonymous terminus."""
    feed = incoming.queue
    assert isinstance(feed, Feed), "a link with an address has a feed"
    return feed


def count_elders(feed: Feed, least: Elder = Elder.TAKEN_BACK) -> int:
    """Returns how many deliveries at the head of a queue go before all that is stored.

    Args:
        feed: has the queue.
        least: no elders below this.
    """
    return sum(1 for _ in takewhile(lambda pairing: pairing.elder >= least, feed.waiting))


def has_elders(node: Node) -> bool:
    """Returns whether deliveries wait at a node that go before all that is stored."""
    return any(bool(feed.waiting[0].elder) for feed in node.rotation)


def is_given_back_whole(node: Node) -> bool:
    """Returns whether nothing may overtake a delivery that goes back to where it came from.

    So it is with the message store, which sends it again before all that stand behind it.
    """
    return node.key.direction is Direction.STORED


def in_custody(pairing: Pairing) -> bool:
    """Returns whether the router alone is responsible for a delivery: its sender has settled it.

    Routes that promise at-most-once take no custody.
    """
    return pairing.delivery.settled and not feed_of(pairing).node.is_lossy


def is_free(link: OutgoingLink) -> bool:
    """Returns whether a delivery can be sent on a link right now."""
    connection = link.connection
    return (
        link.credit > 0
        and link.partial is None
        and connection is not None
        and not connection.is_congested
        and not connection.is_leaving
    )


def is_able(link: OutgoingLink) -> bool:
    """Returns whether a new delivery may be sent on a link right now; resumed ones go first."""
    return is_free(link) and not link.resuming
