"""Registry of connections, links and nodes."""

from collections.abc import Mapping
from hashlib import blake2s
from typing import Final
from typing import Protocol as Interface

import attrs

from router.core.node import Direction, Feed, Node, NodeKey, feed_of
from router.core.policy import DIALED, OPEN, Permissions, Policy
from router.core.reach import is_end
from router.core.retired import Retired
from router.core.settings import ContainerTerms, CoreSettings
from router.links.link import Connection, IncomingLink, Link, LinkKey, Octets, OutgoingLink
from router.model.identity import ConnectionId, LinkId
from router.model.ways import Stop
from router.routes.route import Route
from router.routes.table import Match, RoutingTable

_TWINS: Final = {Direction.TOWARDS: Direction.PULL, Direction.PULL: Direction.TOWARDS}


class _Keeper(Interface):
    """Who else keeps payload within the budget: the express lane."""

    @property
    def kept_octets(self) -> int:
        """How much it keeps."""

    def keep_beside(self, octets: int) -> None:
        """Records how much the core keeps."""


@attrs.define(eq=False)
class ProcessOctets(Octets):
    """The budget of the worker, which the core shares with the express lane.

    Attributes:
        lanes: the express lane; None: there is none.
    """

    lanes: _Keeper | None = None
    _reported: int = attrs.field(default=0, init=False)

    @property
    def kept(self) -> int:
        """What both keep."""
        return self.used + (0 if self.lanes is None else self.lanes.kept_octets)

    @property
    def left(self) -> int:
        """What is left of the budget for both; negative if it is exceeded."""
        return self.limit - self.kept

    def report(self) -> None:
        """Tells the lane how much the core keeps."""
        if self.lanes is not None and self.used != self._reported:
            self._reported = self.used
            self.lanes.keep_beside(self.used)


class Registry:
    """The look-up tables of a core.

    Attributes:
        attached: attached links by key (§2.6.1: a second attach steals the link).
        suspended: links whose peer is away and whose terminus is kept.
        behind: the same, where a later link of the key has been suspended, whose attach may have
            been late.
        held: links that are kept for what is in doubt on them, though their time is over; another
            link of the same key may have been suspended since.
        retired: totals of links that are gone.
        paused: names of paused routes.
        policy: the permissions by identity.
        terms: of configured containers, by name.
        permissions_by_id: the permissions of connections that dialed us.
        guests: peers whose links lead here through siblings, by the link (``passage``).
        hosted: the permissions of guests that dialed the sibling.
        moved: nodes whose receivers have come or gone; ``network`` takes them.
        sought: nodes with a waiting receiver, whose uplinks have changed; ``filtering`` takes them.
        heard: addresses whose receivers at siblings have come or gone; ``fallback`` takes them.
        fed: nodes whose senders, or last deliveries, have come or gone; ``watch`` takes them.
        opened: nodes of which a receiver grants more or less than before; ``ways`` takes them.
        named: keys of links that have been attached or detached; ``network`` takes them.
    """

    def __init__(self, settings: CoreSettings, table: RoutingTable) -> None:
        self.table = table
        self.process = ProcessOctets(settings.process_octets)
        self._router_id = settings.router_id
        self.connections: dict[ConnectionId, Connection] = {}
        self.nodes: dict[NodeKey, Node] = {}
        self.attached: dict[LinkKey, Link] = {}
        self.suspended: dict[LinkKey, Link] = {}
        self.behind: dict[LinkKey, Link] = {}
        self.held: dict[OutgoingLink, None] = {}
        self.retired = Retired()
        self.paused: set[str] = set()
        self.policy: Policy = OPEN
        self.terms: Mapping[str, ContainerTerms] = {}
        self.permissions_by_id: dict[ConnectionId, Permissions] = {}
        self.guests: dict[LinkId, Connection] = {}
        self.hosted: dict[Connection, Permissions] = {}
        self.moved: dict[Node, None] = {}
        self.sought: dict[Node, None] = {}
        self.heard: dict[str, None] = {}
        self.fed: dict[Node, None] = {}
        self.opened: dict[Node, None] = {}
        self.named: dict[LinkKey, None] = {}

    def node(self, key: NodeKey, route: Route, match: Match | None) -> Node:
        """Returns a node, which is made if there is none."""
        node = self.nodes.get(key)
        if node is None:
            stop = self.stop_of(key)
            node = self.nodes[key] = Node(key=key, route=route, match=match, stop=stop)
            self._find_twin(node)
            if match is not None and route.name in self.paused:
                node.pause(True)
        return node

    def stop_of(self, key: NodeKey) -> Stop:
        """Returns the stop that names a node to other routers: our id, and which of our nodes."""
        name = f"{key.direction.value} {key.container or ''} {key.address}{key.reader or ''}"
        if key.chain is not None:
            name = f"{name} {' '.join(key.chain)}"
        which = blake2s(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        return f"{self._router_id}#{which}"

    def permissions(self, connection: Connection) -> Permissions:
        """Returns the permissions of a connection."""
        if connection.guest is not None:
            return self.hosted.get(connection, DIALED)
        return self.permissions_by_id.get(connection.id, DIALED)

    @property
    def parties(self) -> list[Connection]:
        """All connections with links here: peers and guests."""
        return [*self.connections.values(), *self.guests.values()]

    def find(self, address: str) -> Node | None:
        """Returns the node where senders and receivers of an address meet, if there is one."""
        return self.nodes.get(NodeKey(address))

    def keep(self, node: Node) -> Node:
        """Enters a node again that may have been forgotten; returns the one of its key by now."""
        known = self.nodes.setdefault(node.key, node)
        if known is node:
            self._find_twin(node)
        return known

    def enter(self, link: OutgoingLink) -> Node:
        """Returns the node of a receiver that has been away.

        A link that is held for what is in doubt keeps its node for nobody else: it may have been
        forgotten, and others may have made one of the same key since. Then what is in doubt goes
        on there.
        """
        before = self.node_of(link)
        assert before is not None, "a suspended receiver keeps its node"
        node = self.keep(before)
        if node is not before:
            before.returning.discard(link)
            link.group = node
            for feed in dict.fromkeys(map(feed_of, link.adrift.values())):
                if feed.node is before:
                    self.move(feed, node)
        return node

    def seek(self, node: Node) -> None:
        """Has the receiver that waits at a node looked at again when the turn ends."""
        self.sought[node] = None

    def _find_twin(self, node: Node) -> None:
        other = _TWINS.get(node.key.direction)
        if other is not None and node.key.container is None and node.key.reader is None:
            node.twin = self.nodes.get(NodeKey(node.key.address, other))
            if node.twin is not None:
                node.twin.twin = node

    def attach(self, connection: Connection, link: Link) -> None:
        """Enters a link that has just been attached."""
        assert link.link is not None
        link.connection = connection
        if isinstance(link, IncomingLink):
            connection.incoming[link.link] = link
            self.fed.update((feed.node, None) for feed in self.feeds_of(link))
        else:
            connection.outgoing[link.link] = link
        self.attached[link.key] = link
        self.named[link.key] = None

    def detach(self, link: Link) -> None:
        """Removes a link that has lost its peer."""
        self.retired.detached(link)
        connection = link.connection
        if connection is not None and link.link is not None:
            if isinstance(link, IncomingLink):
                connection.incoming.pop(link.link, None)
            else:
                connection.outgoing.pop(link.link, None)
            if connection.guest is not None:
                self.guests.pop(link.link, None)
                self.hosted.pop(connection, None)
        if self.attached.get(link.key) is link:
            del self.attached[link.key]
            self.named[link.key] = None
        link.connection = None
        link.link = None

    def suspend(self, link: Link) -> None:
        """Moves a link that has lost its peer to the suspended ones."""
        self.detach(link)
        older = self.suspended.get(link.key)
        if older is not None and older is not link:
            self.behind[link.key] = older
        self.suspended[link.key] = link

    def set_apart(self, link: Link) -> None:
        """Suspends a link whose deliveries are still spoken of on its session."""
        connection, attachment = link.connection, link.link
        assert connection is not None
        assert attachment is not None
        self.suspend(link)
        link.connection, link.link, link.is_detached = connection, attachment, True
        connection.detached[attachment] = link

    def part(self, link: Link) -> None:
        """Removes such a link from its connection."""
        assert link.connection is not None
        assert link.link is not None
        del link.connection.detached[link.link]
        link.connection = link.link = None
        link.is_detached = False

    def release(self, link: Link) -> None:
        """Removes a link from the suspended ones."""
        for waiting in (self.suspended, self.behind):
            if waiting.get(link.key) is link:
                del waiting[link.key]

    def kept(self, key: LinkKey) -> list[Link]:
        """Returns the suspended links of a key, the latest first."""
        return [kept for waiting in (self.suspended, self.behind) if (kept := waiting.get(key))]

    def waiting(self) -> list[Link]:
        """Returns all suspended links."""
        return [*self.suspended.values(), *self.behind.values()]

    def absent(self) -> list[Link]:
        """Returns the links whose peer is away: suspended ones and held ones."""
        return [*dict.fromkeys((*self.waiting(), *self.held))]

    def join(self, node: Node, link: OutgoingLink) -> None:
        """Adds an outgoing link to a node."""
        link.group = node
        if link.is_fallback:
            node.stand_by(link)
            self.moved[node] = None
            return
        if node.taker is None:
            node.add_outgoing(link)
        else:
            node.put_aside(link)
        node.gains += is_end(link)
        self.moved[node] = None

    def leave(self, link: OutgoingLink) -> Node | None:
        """Removes an outgoing link from its node; returns the node."""
        node = self.node_of(link)
        if node is not None:
            node.remove_outgoing(link)
            self.moved[node] = None
        return node

    def feed(self, node: Node, link: IncomingLink) -> Feed:
        """Adds an incoming link to a node."""
        feed = node.feeds[link] = Feed(link, node)
        self.fed[node] = None
        return feed

    def starve(self, node: Node, link: IncomingLink) -> None:
        """Removes an incoming link from a node."""
        node.feeds.pop(link, None)
        self.fed[node] = None

    def move(self, feed: Feed, node: Node) -> None:
        """Moves a feed, with its queued deliveries, to another node."""
        before = feed.node
        if feed in before.rotation:
            before.rotation.remove(feed)
            node.line_up(feed)
        feed.node = node
        for pairing in (*before.given_back, *before.hopeful):
            if pairing.queue is feed:
                before.forget_given_back(pairing)
                node.given_back[pairing] = None
        if before.feeds.get(feed.incoming) is feed:
            self.starve(before, feed.incoming)
            node.feeds[feed.incoming] = feed
            self.fed[node] = None

    @staticmethod
    def node_of(link: OutgoingLink) -> Node | None:
        """Returns the node of an outgoing link."""
        return link.group if isinstance(link.group, Node) else None

    @staticmethod
    def feeds_of(link: IncomingLink) -> list[Feed]:
        """Returns all the feeds of a link."""
        queues = [link.queue, *link.queues.values()]
        return [queue for queue in queues if isinstance(queue, Feed)]

    def prune(self, node: Node) -> None:
        """Forgets a node that is not needed."""
        if node.is_idle and self.nodes.get(node.key) is node:
            del self.nodes[node.key]
            if node.twin is not None:
                node.twin.twin = None
                node.twin = None
