"""Uplinks of a worker: when each is attached, and when it ends.

``uplink`` has the states and the table; ``attach_requests`` composes the attach; ``joining`` adds
an answered link to its node.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from router.core.attach_requests import AttachRequests
from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.joining import Joiner
from router.core.lanes import Lanes
from router.core.mesh.names import is_edge_name, is_neighbor_name, link_name
from router.core.node import Direction, Node, NodeKey
from router.core.pull_plan import is_spread, pulls_here, scatters, subscription_name
from router.core.reach import Reach, enters_here, is_sibling, is_sibling_name, router_of
from router.core.redirects import Redirects
from router.core.resume import Resumer
from router.core.state import State
from router.core.stored import STORE, targets_of
from router.core.successors import Successors
from router.core.suspend import Suspender
from router.core.uplink import Input, Step, Uplink, next_step
from router.links.backoff import pause_seconds
from router.links.expiry import NEVER_EXPIRES, NOT_KEPT, WHILE_SPOKEN_OF
from router.links.link import Connection, IncomingLink, Link, LinkKey, OutgoingLink
from router.model.commands import AttachLink, DetachLink
from router.model.condition import (
    DETACH_FORCED,
    NO_REASON,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Condition,
)
from router.model.events import LinkAttached, LinkDetached, SubscriptionEnded
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role
from router.model.ways import Chain
from router.routes.pulling import TargetNames, is_exchange
from router.routes.route import Endpoint, Guarantee, Route
from router.routes.table import Match
from router.routes.vhost import outside

REFUSED_SECONDS = 5.0
"""Until then a refusal of the egress has come back over all transits."""

_REFUSALS = frozenset((NOT_FOUND, NOT_ALLOWED, NOT_IMPLEMENTED))

FINISH_SECONDS = 0.25
"""Pause between checks of an unneeded link for outcomes still expected."""

SETTLE_SECONDS = 10.0
"""How long a link from a container that another takes the place of waits for outcomes, at most."""


class Uplinks:
    """Keeps all uplinks of a worker.

    Attributes:
        redirects: knows which of them are elsewhere.
    """

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        *,
        lanes: Lanes,
        suspender: Suspender,
        reach: Reach,
        resumer: Resumer,
        link_ids: Iterator[LinkId],
        random: Callable[[], float],
    ) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._registry = state.registry
        self._notices = state.notices
        self._ledger = state.ledger
        self._alarms = state.alarms
        self._granter = granter
        self._detacher = detacher
        self._lanes = lanes
        self._reach = reach
        notary = _no_notary if reach.sites is None else reach.sites.find_notary
        self._attach_requests = AttachRequests(state, resumer.reducer, notary)
        self._joiner = Joiner(
            state, granter, detacher, reach=reach, resumer=resumer, offers=self._attach_requests
        )
        self._successors = Successors(state, detacher, suspender, self._attach_requests)
        self._reducer = resumer.reducer
        self.redirects = Redirects(state)
        self._link_ids = link_ids
        self._random = random
        self._of_node: dict[Node, list[Uplink]] = {}
        self._by_id: dict[LinkId, Uplink] = {}
        self._containers: dict[str, Connection] = {}
        self.is_draining = False

    # Routes and nodes

    def follow(self, route: Route, match: Match | None) -> None:
        """Makes the uplinks that a route needs even if no peer is attached."""
        if route.from_ is None or not self._reach.owns(route.from_.container):
            return
        if match is not None and match.route is route:
            self.used(self._registry.node(NodeKey(route.address), route, match))

    def of(self, node: Node) -> list[Uplink]:
        """Returns the uplinks of a node."""
        return self._of_node.get(node, [])

    def is_cut_off(self, node: Node) -> bool:
        """Returns whether a node's messages are for a site of the mesh to which no way leads.

        Copies of a multicast, too: it goes to the others, and nothing waits for that site.
        """
        if node.key.chain is not None:  # in transit: that is for the ingress to say
            return False
        if self._reach.sites is not None and self._reach.sites.missed_by(node):
            return True
        chained = (uplink for uplink in self.of(node) if uplink.terms.chain is not None)
        return any(self._find_hop(uplink) is None for uplink in chained)

    def is_attaching(self, node: Node, role: Role) -> bool:
        """Returns whether an attach of ours, in a role at a node, waits for its answer."""
        uplinks = (uplink for uplink in self.of(node) if uplink.role is role)
        return any(uplink.step is Step.ATTACHING for uplink in uplinks)

    def used(self, node: Node) -> None:
        """Records an attach to a node."""
        for uplink in self._uplinks_of(node):
            is_far = is_sibling_name(uplink.container) or is_neighbor_name(uplink.container)
            if self._is_needed(uplink) or self._is_bound(uplink) or not is_far:
                self._want(uplink)

    def reconsider(self, node: Node | None) -> None:
        """Records that other workers, or what can be reached through them, have changed."""
        if node is not None:
            self.refit(node)
            self._turn.touch(node)  # deliveries may wait no longer for what was reached here
            if node.feeds or node.outgoing or node.rotation:
                self.used(node)

    def unused(self, node: Node) -> None:
        """Records a detach from a node; lazy uplinks stay for a while."""
        if not self._of_node.get(node, True):
            del self._of_node[node]
        for uplink in self._of_node.get(node, ()):
            if uplink.is_wanted and not self._is_needed(uplink):
                is_own = node.key.reader is not None  # a filter may lock a session, or a place
                linger = 0.0 if is_own else self._settings.linger_seconds
                self._alarms.set(self._turn.now + linger, partial(self._let_go, uplink))

    def owns(self, link: Link) -> bool:
        """Returns whether a link is an uplink."""
        return link.link is not None and link.link in self._by_id

    def shut(self, link: LinkId) -> None:
        """Records that a link, which may be an uplink, is being closed."""
        uplink = self._by_id.get(link)
        if uplink is not None:
            self._forget_id(uplink)
            self._step(uplink, Input.UNWANTED)

    def refit(self, node: Node) -> None:
        """Changes a node's uplinks to those that its route names now."""
        known = self._of_node.get(node)
        if known is None:
            return
        named: dict[LinkName, list[Uplink]] = {}
        for uplink in known:
            named.setdefault(uplink.name, []).append(uplink)
        chosen: dict[Uplink, None] = {}
        for endpoint, role in self._uplink_ends(node):
            fresh = self._make(node, endpoint, role)
            alike = (old for old in named.get(fresh.name, ()) if old not in chosen)
            old = next((old for old in alike if _is_same(old, fresh)), None)
            if old is not None and old.is_finishing:
                old.is_finishing, old.finishes_at = False, None
                self._use_again(node, old.link)
            chosen[old or fresh] = None
        for uplink in known:
            if uplink in chosen:
                continue
            if self._is_finishing(uplink) or self._is_settling(uplink):
                chosen[uplink] = None
            else:
                self._drop(uplink)
        made = set(chosen).difference(known)
        ending = [each for each in chosen if each.is_finishing]
        kept = [each for each in chosen if each not in made or not _is_taken(each, ending)]
        self._of_node[node] = kept
        node.has_uplinks = bool(kept)
        for uplink in kept:
            self._review_fallback(uplink)
            self._review_way(uplink)
            uplink.is_eager = self._is_eager(node, uplink.container)
            if self._is_needed(uplink) or self._is_bound(uplink):
                self._want(uplink)

    def _review_way(self, uplink: Uplink) -> None:
        """Attaches a link to another site by another neighbor, if that is the next hop now.

        As long as no way is known, it stays where it is: a chain may outlast the news of its path.
        """
        hop = self._find_hop(uplink) if uplink.roams else None
        if hop is None or hop == uplink.connection:
            return
        link = uplink.link
        if link is not None:
            self._detacher.detach(link, None, closed=False, keeping=NEVER_EXPIRES)
            uplink.kept = link if self._registry.suspended.get(link.key) is link else None
        elif uplink.id is not None:
            self._order(uplink, DetachLink(uplink.id, False))
        self._alarms.cancel(uplink.retry)
        self._forget_id(uplink)
        self._step(uplink, Input.LEFT)
        uplink.connection, uplink.failures = hop, 0
        if hop in self._containers:
            self._step(uplink, Input.CAME)
        self._expect(uplink)
        self._attach(uplink)

    def _find_hop(self, uplink: Uplink) -> str | None:
        """Returns the neighbor by which a link to another site leads; None: no way is known."""
        chain, sites = uplink.terms.chain, self._reach.sites
        return None if chain is None or sites is None else sites.hop_to(chain.egress)

    def _is_settling(self, uplink: Uplink) -> bool:
        """Returns whether an unneeded link from a container still has deliveries to settle.

        Its container would send them again, on the link that takes its place, for example with
        another filter. So it gets no more credit, and ends when they have their outcomes, or after
        ``SETTLE_SECONDS``; the other one is attached then.
        """
        link = uplink.link
        if not isinstance(link, IncomingLink) or is_sibling(link.connection):
            return False
        if link.connection is None or uplink.node.key.direction is Direction.FALLBACK:
            return False
        self._lanes.demote(uplink.node)
        if uplink.finishes_at is None and link.unsettled:
            uplink.is_finishing = True
            uplink.finishes_at = self._turn.now + SETTLE_SECONDS
            link.is_closing = True
            self._granter.withdraw(link)
        if not link.unsettled or self._turn.now >= (uplink.finishes_at or 0.0):
            return False
        self._alarms.set(self._turn.now + FINISH_SECONDS, partial(self.refit, uplink.node))
        return True

    def _use_again(self, node: Node, link: Link | None) -> None:
        """Uses a link again that was to end when its last outcome had come."""
        if isinstance(link, IncomingLink):
            link.is_closing = False
            self._turn.review_credit(link)
        known = (*node.outgoing, *node.aside, *node.standby)
        if isinstance(link, OutgoingLink) and link not in known:
            self._registry.join(node, link)
            self._granter.receivers_changed(node)
            self._turn.touch(node)

    def _review_fallback(self, uplink: Uplink) -> None:
        """Finds out whether a link leads to the route's fallback, or to receivers, from now on."""
        if uplink.terms.chain is not None:
            return
        is_fallback = self._is_fallback(uplink.node, Endpoint(uplink.container), uplink.role)
        if is_fallback is uplink.is_fallback or uplink.is_finishing:
            return
        node, link = uplink.node, uplink.link
        uplink.is_fallback = is_fallback
        if isinstance(link, OutgoingLink):
            node.remove_outgoing(link)
            link.is_fallback = is_fallback
            self._registry.join(node, link)
            self._granter.receivers_changed(node)
            self._turn.touch(node)

    def _is_fallback(self, node: Node, end: Endpoint, role: Role) -> bool:
        """Returns whether a node's link to a container, or a sibling, is for its fallback."""
        if end.terms.chain is not None or is_edge_name(end.container):
            return False
        if node.route.fallback is None or node.key.direction is not Direction.MEETING:
            return False
        if role is Role.RECEIVER:
            return False
        name = end.container
        return not (is_sibling_name(name) and self._reach.is_receiving(node, name))

    def _is_finishing(self, uplink: Uplink) -> bool:
        """Returns whether an unneeded link still waits for outcomes.

        Such links lead to siblings, to a fallback, to a taker of a stored route (``storing``), or
        to another site, on a way that is not the best one any more; or the route promises
        exactly-once: a container that forgets its end would be sent again what it has had.

        If so, it is checked again later. The sibling grants it no more credit meanwhile. A link on
        the lane is checked at least twice: the sibling may still be sending outcomes that the lane
        counts no longer.
        """
        link = uplink.link
        finishes = isinstance(link, OutgoingLink) and (
            uplink.is_fallback
            or link.keeps
            or link.chain is not None
            or is_edge_name(uplink.container)
            or uplink.node.taker is not None
            or uplink.node.is_exact
        )
        if link is None or not (finishes or is_sibling(link.connection)):
            return False
        if isinstance(link, OutgoingLink) and finishes:
            uplink.node.remove_outgoing(link)
            self._granter.receivers_changed(uplink.node)
            self._turn.touch(uplink.node)
        if link.is_express:
            self._lanes.refresh((uplink.node,))
        is_first, uplink.is_finishing = not uplink.is_finishing, True
        if not link.unsettled and not (link.is_express and (is_first or link.lane_unsettled)):
            return False
        self._alarms.set(self._turn.now + FINISH_SECONDS, partial(self.refit, uplink.node))
        return True

    def _uplink_ends(self, node: Node) -> list[tuple[Endpoint, Role]]:
        """Returns where a node's uplinks lead from this worker, and our role on them."""
        is_scattered = pulls_here(node) and scatters(node.route, self._registry.terms)
        targets = targets_of(node, has_store=self._reach.owns(STORE))
        ends = _endpoints(node, targets, is_scattered=is_scattered)
        return self._reach.uplink_ends(node, ends)

    def _is_eager(self, node: Node, container: str) -> bool:
        """Returns whether a node's links to a container are attached while the route exists."""
        source = node.route.from_
        return (
            source is not None
            and self._reach.owns(source.container)
            and not (is_sibling_name(container) and not node.route.is_bridge)
        )

    def remove(self, node: Node) -> None:
        """Ends all uplinks of a node."""
        for uplink in self._of_node.pop(node, ()):
            self._drop(uplink)
        node.has_uplinks = False

    def suspend(self, node: Node) -> list[Link]:
        """Ends all uplinks of a node; links on which something is unsettled are kept suspended.

        Returns:
            Those links.
        """
        found = []
        for uplink in self._of_node.get(node, ()):
            found += uplink.restored
            uplink.restored.clear()
            link = uplink.link or uplink.kept
            if link is None or not (link.unsettled or link.adrift):
                continue
            found.append(link)
            if link is uplink.link:
                self._forget_id(uplink)
                self._detacher.detach(link, None, closed=False, keeping=NEVER_EXPIRES)
            uplink.kept = None
        self.remove(node)
        return found

    def _drop(self, uplink: Uplink) -> None:
        """Ends an uplink in any state."""
        uplink.is_wanted = False
        self._expect_no_more(uplink)
        self._alarms.cancel(uplink.retry)
        uplink.is_to_meet = False
        link, attachment = uplink.link or uplink.kept, uplink.id
        self._forget_id(uplink)
        uplink.kept = None
        while uplink.restored:
            self._detacher.expire(uplink.restored.pop())
        ends = self._ends_subscription(uplink)
        if link is not None:
            attachment = link.link
            self._detacher.detach(link, None, unsubscribes=ends)
        elif attachment is not None:
            self._order(uplink, DetachLink(attachment, True, unsubscribes=ends))
        if ends and attachment is None:
            assert uplink.subscription is not None
            self._queue_left(uplink.container, uplink.subscription, uplink.address)
        self._step(uplink, Input.UNWANTED)
        self.redirects.leave(uplink)

    def _ends_subscription(self, uplink: Uplink) -> bool:
        """Returns whether no route needs the binding of an uplink's queue any more."""
        if not uplink.is_subscribed:
            return False
        table = self._registry.table
        route = table.by_name.get(uplink.node.route.name)
        if route is None or route.from_ is None or route.from_.container != uplink.container:
            return True
        match = table.lookup(route.address)
        if match is None or match.route is not route:
            return True
        return match.address_at(route.from_) != uplink.address

    def subscription_ended(self, connection: Connection, event: SubscriptionEnded) -> None:
        """Reports a queue that fed a route, and that stays at its container."""
        if not event.is_unbound:
            self._queue_left(connection.configured, event.queue, event.address)
            return
        self._notices.add(
            "queue.unbound",
            container=connection.configured,
            queue=event.queue,
            address=event.address,
            count=event.messages,
        )

    def _queue_left(self, container: str | None, queue: str, address: str) -> None:
        """Warns of a queue that is still bound and that nobody consumes."""
        self._notices.warn("queue.left", container=container, queue=queue, address=address)

    def forsake(self, node: Node) -> bool:
        """Takes back what absent targets have not settled, unless it is promised exactly once.

        Returns:
            whether there was any.
        """
        kept = [u for u in self.of(node) if isinstance(u.kept, OutgoingLink) and not node.is_exact]
        for uplink in kept:
            link, uplink.kept = uplink.kept, None
            assert link is not None
            self._detacher.expire(link)
        return bool(kept)

    def settle_second(self, route: Route) -> bool:
        """Returns whether the containers behind a route can settle second, as far as is known."""
        connections = (self._containers.get(endpoint.container) for endpoint in route.to)
        return all(c.capabilities.settles_second for c in connections if c is not None)

    def restored(self, node: Node, link: Link) -> None:
        """Records that a link of ours was suspended when the last life of this worker ended."""
        role, link.is_ours = link.key.role, True
        if isinstance(link, OutgoingLink) and link.chain is not None:
            self.refit(node)  # it is what binds the node to that site
        for uplink in self._uplinks_of(node):
            if uplink.name == link.key.name and uplink.role is role:
                if uplink.kept is None:
                    uplink.kept = link
                else:
                    uplink.restored.append(link)
                self._want(uplink)

    def meet(self, node: Node, key: LinkKey) -> None:
        """Has a link of an earlier life attached once more, to say that nothing is unsettled."""
        for uplink in self._uplinks_of(node):
            if uplink.name == key.name and uplink.role is key.role:
                uplink.is_to_meet = True
                self._want(uplink)

    def remember(self, key: LinkKey) -> None:
        """Records that the journal knows a link of ours, and all that is unsettled on it."""
        self._successors.remember(key)

    def _uplinks_of(self, node: Node) -> list[Uplink]:
        uplinks = self._of_node.get(node)
        if uplinks is None:
            uplinks = self._of_node[node] = [
                self._make(node, endpoint, role) for endpoint, role in self._uplink_ends(node)
            ]
            node.has_uplinks = bool(uplinks)
        return uplinks

    def _make(self, node: Node, endpoint: Endpoint, role: Role) -> Uplink:
        is_to_sibling = is_sibling_name(endpoint.container) and endpoint.terms.chain is None
        is_dead_letters = node.key.container is not None
        takes_back = node.key.direction is Direction.FALLBACK
        address = node.key.address
        chain = endpoint.terms.chain
        if chain is not None or is_edge_name(endpoint.container):
            address = outside(address)
        elif is_dead_letters or not is_to_sibling:
            assert node.match is not None, "nodes with containers behind them come from the table"
            address = node.match.address if is_to_sibling else node.match.address_at(endpoint)
        arrow = ">" if role is Role.SENDER else "<"
        is_fallback = self._is_fallback(node, endpoint, role)
        if is_dead_letters:
            arrow = "!>"  # dead letters and messages may lead to the same address
        elif node.key.direction is Direction.STORED:
            arrow = "$>"  # so may what is stored, after a reload
        elif (is_fallback and not is_to_sibling) or takes_back:
            arrow = f"~{arrow}"
        settings = self._settings
        # a container's links keep their names when another worker comes to dial it
        owner = f"{settings.router_id}/{settings.worker}" if is_to_sibling else settings.router_id
        name = f"{owner}:{node.key.address}{arrow}{endpoint.container}/{address}"
        if node.key.reader is not None:
            name = f"{name}#{node.key.reader}"
        if chain is not None:
            name = link_name(_entrance(node, chain), address)
        uplink = Uplink(
            node=node,
            container=endpoint.container,
            address=address,
            role=role,
            name=LinkName(name if node.key.reader else endpoint.terms.link_name or name),
            is_eager=self._is_eager(node, endpoint.container),
            scatters=takes_back
            or (role is Role.RECEIVER and scatters(node.route, self._registry.terms)),
            is_fallback=is_fallback,
            subscription=self._subscription(node, role) if is_exchange(address) else None,
            terms=endpoint.terms,
            roams=chain is not None and node.key.chain is None and node.is_exact,
        )
        if uplink.roams:
            uplink.connection = self._find_hop(uplink) or uplink.connection
        if is_spread(node, endpoint, role) and not is_to_sibling:
            uplink.names = TargetNames(node.route, endpoint)
        if uplink.connection in self._containers:
            uplink.step = Step.IDLE
        return uplink

    def _subscription(self, node: Node, role: Role) -> str | None:
        if role is Role.SENDER or not pulls_here(node):
            return None
        return subscription_name(self._settings.router_id, node.route)

    def _is_needed(self, uplink: Uplink) -> bool:
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
    def _is_bound(uplink: Uplink) -> bool:
        """Returns whether deliveries wait for another site, which has them or may have."""
        link = uplink.link or uplink.kept
        return uplink.roams and link is not None and bool(link.unsettled or link.adrift)

    def _want(self, uplink: Uplink) -> None:
        if not uplink.is_wanted:
            uplink.is_wanted = True
            self._expect(uplink)
        self._attach(uplink)

    def _let_go(self, uplink: Uplink) -> None:
        """Ends a lazy uplink, unless it is needed again or has unfinished deliveries."""
        if not uplink.is_wanted or self._is_needed(uplink) or uplink.is_to_meet:
            return
        link = uplink.link
        is_open = link is not None and bool(link.unsettled or link.adrift)
        if is_open or self._is_bound(uplink):
            if uplink.node.key.reader is None:
                self.unused(uplink.node)  # checked again later
            else:
                self._alarms.set(self._turn.now + FINISH_SECONDS, partial(self._let_go, uplink))
            return
        self._drop(uplink)
        if not any(each.is_wanted for each in self._of_node.get(uplink.node, ())):
            self._of_node.pop(uplink.node, None)
            uplink.node.has_uplinks = False
            self._registry.prune(uplink.node)

    # Containers

    def came(self, connection: Connection) -> None:
        """Records that a configured container is connected."""
        name = connection.configured
        assert name is not None
        older = self._containers.get(name)
        if older is not None:  # its loss has not been noticed yet
            self.part(older)
        self._containers[name] = connection
        for uplink in self._all(name):
            if not uplink.is_elsewhere:
                uplink.failures = 0
            if self._step(uplink, Input.CAME):
                self._attach(uplink)

    def part(self, connection: Connection) -> None:
        """Detaches the links to a connection that is the container no longer, though it lives."""
        for uplink in self._all(connection.configured or ""):
            if uplink.id is not None:
                self._turn.order_connection(connection, DetachLink(uplink.id, False))
        self.left(connection)

    def may_filter(self, container: str) -> bool:
        """Returns whether a container applies filters, as far as is known."""
        connection = self._containers.get(container)
        return connection is None or connection.capabilities.filters

    def failover_seconds(self, uplink: Uplink) -> float | None:
        """Returns how long what needs an uplink waits for its container; None: forever."""
        return self._attach_requests.of(uplink).failover_seconds

    def connection_of(self, container: str) -> Connection | None:
        """Returns the connection of a configured container to this worker."""
        return self._containers.get(container)

    def is_connected(self, container: str) -> bool:
        """Returns whether a configured container is connected to this worker."""
        return container in self._containers

    def left(self, connection: Connection) -> None:
        """Records that a configured container's connection has ended."""
        name = connection.configured
        if name is None or self._containers.get(name) is not connection:
            return
        del self._containers[name]
        for uplink in self._all(name):
            if uplink.link is not None and uplink.link.connection is not None:
                self._lose(uplink, uplink.link, closed=False, condition=None)
            self._alarms.cancel(uplink.retry)
            self._forget_id(uplink)
            self._step(uplink, Input.LEFT)
            self._expect(uplink)
            if not uplink.is_elsewhere:
                self.redirects.leave(uplink)
            self._review_way(uplink)
        self.place_lost(name)

    def place_lost(self, name: str) -> None:
        """Has the links return that were redirected to a place where nothing is connected."""
        for uplink in self._all(name):
            if uplink.is_elsewhere and not uplink.roams and uplink.step is Step.AWAY:
                self._step(uplink, Input.ENDED)
                self._pause(uplink)

    def _lose(
        self,
        uplink: Uplink,
        link: Link,
        *,
        closed: bool,
        condition: Condition | None,
        is_numbered: bool = False,
    ) -> None:
        """Records that an uplink is detached; the state that it can resume is kept.

        Deliveries for which the container may still send dispositions (§2.7.6) are kept until the
        link is attached again.
        """
        is_numbered = is_numbered and not is_sibling(link.connection)
        is_kept = not closed and self._attach_requests.is_kept(uplink, link.connection)
        keeping = WHILE_SPOKEN_OF if is_numbered else NOT_KEPT
        self._detacher.lost(
            link,
            closed=closed,
            condition=condition,
            keeping=NEVER_EXPIRES if is_kept else keeping,
            is_numbered=is_numbered,
        )
        if self._registry.suspended.get(link.key) is link:
            uplink.kept = link

    def restart(self, link: LinkId) -> None:
        """Attaches an uplink again that was just detached for that purpose."""
        uplink = self._by_id.get(link)
        if uplink is None:
            return
        kept = uplink.link
        if kept is not None and self._registry.suspended.get(kept.key) is kept:
            uplink.kept = kept
        self._forget_id(uplink)
        self._step(uplink, Input.ENDED)
        self._expect(uplink)
        self._try_again(uplink)

    def _all(self, connection: str) -> list[Uplink]:
        every = (uplink for uplinks in self._of_node.values() for uplink in uplinks)
        return [uplink for uplink in every if uplink.connection == connection]

    # Attaching

    def _attach(self, uplink: Uplink) -> None:
        connection = self._containers.get(uplink.connection)
        if self.is_draining or not uplink.is_wanted or connection is None:
            return
        if self._ledger.is_restoring and uplink.node.is_exact:
            return  # ``attach_waiting`` does; the link may have unsettled deliveries
        if uplink.roams and not self._ledger.is_on:
            return  # nothing is promised without a journal
        if not self._step(uplink, Input.WANTED):
            return
        self._successors.meet(uplink, connection)
        self._end_detached(uplink, connection)
        uplink.id = next(self._link_ids)
        self._by_id[uplink.id] = uplink
        is_to_receivers = uplink.role is Role.SENDER and not uplink.is_fallback
        is_far = is_sibling_name(uplink.container) or is_neighbor_name(uplink.container)
        if is_far and is_to_receivers:
            uplink.node.pending.add(uplink)
        command = self._attach_requests.attach(uplink, uplink.id, connection)
        self._order(uplink, command)

    def attach_waiting(self) -> None:
        """Attaches the uplinks that waited for the journal's unsettled deliveries."""
        for uplinks in list(self._of_node.values()):
            for uplink in uplinks:
                if uplink.node.is_exact:
                    self._attach(uplink)

    def _end_detached(self, uplink: Uplink, connection: Connection) -> None:
        """Forgets what awaits dispositions (§2.7.6) on a link about to be attached again."""
        kept = uplink.kept
        if kept is not None and kept.is_detached:
            self._detacher.part(kept)
            if not self._attach_requests.is_kept(uplink, connection):
                self._detacher.expire(kept)
        if kept is not None and kept.is_gone:
            uplink.kept = None

    def answered(self, connection: Connection, event: LinkAttached) -> None:
        """Handles the answer to an attach of ours."""
        uplink = self._by_id.get(event.link)
        if uplink is None:
            return
        ours = event.target if uplink.role is Role.SENDER else event.source
        if ours is None or not self._step(uplink, Input.ANSWERED):
            return  # refused; the detach has the reason
        ignored = self._attach_requests.find_ignored(uplink, event.source)
        if ignored is not None:
            self._decline(uplink, event.link, ignored)
            return
        uplink.attached_at = self._turn.now
        uplink.there.was_attached = True
        subscribes = connection.capabilities.subscribes
        uplink.is_subscribed = uplink.subscription is not None and subscribes
        uplink.node.pending.discard(uplink)
        self._expect_no_more(uplink)
        uplink.link = self._joiner.join(uplink, connection, event)
        self._turn.touch(uplink.node)
        if uplink.is_to_meet:
            uplink.is_to_meet = False
            self.unused(uplink.node)
        if uplink.role is Role.RECEIVER:
            self.used(uplink.node)  # receivers on other workers get its deliveries, too
        self._notices.add(
            "link.attached",
            connection=connection.id,
            container=uplink.connection,
            link=uplink.name,
            address=uplink.address_there,
        )

    def detached(self, event: LinkDetached) -> bool:
        """Records that the peer has ended, or refused, a link of ours; False: it is not ours."""
        uplink = self._by_id.get(event.link)
        if uplink is None:
            return False
        link = uplink.link
        self._forget_id(uplink)
        uplink.error = event.condition
        is_routine = event.condition is not None and event.condition.name == DETACH_FORCED
        if link is not None and event.condition is None and not event.closed:
            is_routine = self._reducer.left(link, by_peer=True)
        if link is not None:
            self._lose(
                uplink,
                link,
                closed=event.closed,
                condition=event.condition,
                is_numbered=event.is_numbered,
            )
        elif uplink.has_map:
            self._is_not_resumed(uplink, event)
        if uplink.node.key.chain is not None:
            self._pass_refusal_back(uplink.node, event.condition)
        since = self._turn.now if uplink.attached_at is None else uplink.attached_at
        terms = self._attach_requests.of(uplink)
        lasted = self._turn.now - since >= terms.retry_limit_seconds
        was_attached = uplink.step is Step.ATTACHED
        self._step(uplink, Input.ENDED)
        if was_attached and (is_routine or lasted):
            uplink.failures = 0
        if was_attached and self._turn.now - since >= REFUSED_SECONDS:
            uplink.told.clear()
        if was_attached and lasted:
            self.redirects.stood(uplink)
        if self.redirects.follow(uplink, event.condition):
            self._move(uplink)
        elif was_attached and is_routine:
            self._expect(uplink)
            self._try_again(uplink)
        else:
            self._pause(uplink)
        return True

    def _pass_refusal_back(self, node: Node, reason: Condition | None) -> None:
        """Tells the ingress of a chain why the egress, or a router before it, refuses it."""
        if not _is_refusal(reason):
            return
        for incoming in tuple(node.feeds):
            self._detacher.detach(incoming, reason)

    def refusals(self, address: str) -> dict[str, str]:
        """Returns why other sites refuse links for an address, by the site's router."""
        return {
            uplink.terms.chain.egress: str(uplink.error)
            for node, uplinks in self._of_node.items()
            for uplink in (uplinks if node.key.address == address else ())
            if uplink.terms.chain is not None and uplink.error is not None
            if not self._stands(uplink)
        }

    def _stands(self, uplink: Uplink) -> bool:
        """Returns whether a link is attached, and not only until a transit hears of a refusal."""
        if uplink.step is not Step.ATTACHED or uplink.attached_at is None:
            return False
        return self._turn.now - uplink.attached_at >= REFUSED_SECONDS

    def _move(self, uplink: Uplink) -> None:
        """Attaches a link where a redirect leads, now or when the place has been reached."""
        self._expect(uplink)
        if uplink.connection in self._containers:
            self._try_again(uplink)
        else:
            self._step(uplink, Input.LEFT)

    def _decline(self, uplink: Uplink, link: LinkId, reason: Condition) -> None:
        """Detaches a link whose container does not apply all of its filters (§3.5.3)."""
        self._order(uplink, DetachLink(link, True, reason))
        self._forget_id(uplink)
        uplink.error = reason
        self._step(uplink, Input.ENDED)
        self._pause(uplink)

    def _pause(self, uplink: Uplink) -> None:
        """Attaches an uplink again after a pause, which grows with each failure.

        One that was redirected returns to its container.
        """
        terms = self._attach_requests.of(uplink)
        uplink.failures += 1
        pause = pause_seconds(
            uplink.failures, terms.retry_seconds, terms.retry_limit_seconds, self._random
        )
        reason = NO_REASON if uplink.error is None else str(uplink.error)
        is_passed_back = uplink.node.key.chain is not None and _is_refusal(uplink.error)
        if not is_passed_back and uplink.is_news(reason):  # the ingress says what it is told
            self._notices.warn(
                "link.failed",
                container=uplink.connection,
                link=uplink.name,
                address=uplink.address_there,
                condition=reason,
                seconds=round(pause, 3),
            )
        if not uplink.roams:
            self.redirects.leave(uplink)
        self._expect(uplink)
        at = self._turn.now + pause
        uplink.retry = self._alarms.set(at, partial(self._try_again, uplink))

    def _is_not_resumed(self, uplink: Uplink, event: LinkDetached) -> None:
        """Records that a container has refused an attach with an unsettled map."""
        reason = event.condition
        if reason is not None and reason.name == NOT_IMPLEMENTED:
            uplink.there.resumes = False
            kept, uplink.kept = uplink.kept, None
            if kept is not None:
                self._detacher.expire(kept)

    def _try_again(self, uplink: Uplink) -> None:
        if self._step(uplink, Input.TIME):
            if uplink.connection not in self._containers:  # it left while the link was elsewhere
                self._step(uplink, Input.LEFT)
            self._attach(uplink)

    def _forget_id(self, uplink: Uplink) -> None:
        if uplink.id is not None:
            self._by_id.pop(uplink.id, None)
            self._turn.gate.recall(uplink, is_lost=True)
        uplink.id = None
        uplink.link = None
        if isinstance(uplink.kept, OutgoingLink):
            uplink.kept.is_resuming = False
        if uplink in uplink.node.pending:
            self._wait_not_for(uplink)

    def _wait_not_for(self, uplink: Uplink) -> None:
        """Stops a multicast's wait for a sibling that has not answered."""
        node = uplink.node
        node.pending.discard(uplink)
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)
        self._turn.touch(node)

    def _step(self, uplink: Uplink, happening: Input) -> bool:
        step = next_step(uplink.step, happening)
        if step is not None:
            uplink.step = step
            if uplink.node.is_sought:
                self._registry.seek(uplink.node)
        return step is not None

    def _order(self, uplink: Uplink, command: AttachLink | DetachLink) -> None:
        connection = self._containers.get(uplink.connection)
        if connection is not None:
            self._turn.order_attach(uplink, connection, command)

    # Waiting for a container

    def _expect(self, uplink: Uplink) -> None:
        """Makes deliveries wait for a container, for a limited time."""
        node = uplink.node
        if uplink.role is Role.RECEIVER or not uplink.is_wanted or uplink.failover is not None:
            return
        is_lent = is_sibling_name(uplink.container) and uplink.terms.chain is None
        if is_lent and uplink.step is not Step.IDLE:
            return  # a sibling that ends a link or goes away has no receivers any more
        node.returning.add(uplink)
        seconds = self._attach_requests.of(uplink).failover_seconds
        if seconds is None:
            return
        at = self._turn.now + seconds
        uplink.failover = self._alarms.set(at, partial(self._give_up, uplink))

    def _expect_no_more(self, uplink: Uplink) -> None:
        self._alarms.cancel(uplink.failover)
        uplink.failover = None
        uplink.node.returning.discard(uplink)

    def _give_up(self, uplink: Uplink) -> None:
        """Ends the wait; ``failover`` stays set, so that no new wait begins."""
        uplink.node.returning.discard(uplink)
        kept, guarantee = uplink.kept, uplink.node.route.guarantee
        if isinstance(kept, OutgoingLink) and guarantee is not Guarantee.EXACTLY_ONCE:
            uplink.kept = None
            self._detacher.expire(kept)
        self._wait_not_for(uplink)


def _is_refusal(reason: Condition | None) -> bool:
    """Returns whether a router refuses a chain, of which its ingress is told."""
    return reason is not None and reason.name in _REFUSALS


def _no_notary() -> None:
    """Stands for the notary of a router that knows of no mesh."""


def _entrance(node: Node, chain: Chain) -> Chain:
    """Returns a chain as the names of its links have it.

    Where other workers' deliveries leave the ingress they have a link beside that of its own.
    """
    is_lent = node.key.chain is not None and router_of(node.stop) == chain.ingress
    return Chain(f"{chain.ingress}/", chain.egress) if is_lent else chain


def _is_taken(fresh: Uplink, ending: Iterable[Uplink]) -> bool:
    """Returns whether the name of an uplink is still another one's, which is to end."""
    named = (fresh.container, fresh.role, fresh.name)
    return any((each.container, each.role, each.name) == named for each in ending)


def _is_same(old: Uplink, fresh: Uplink) -> bool:
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
