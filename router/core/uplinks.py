"""Uplinks of a worker: which each node has, when one is needed no more, and how it ends.

``uplink_needs`` knows what a node asks for, ``uplink_course`` takes each from step to step.
"""

from collections.abc import Callable, Iterator
from functools import partial

from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.lanes import Lanes
from router.core.mesh.names import is_edge_name, is_neighbor_name
from router.core.node import Direction, Node, NodeKey
from router.core.reach import Reach, is_sibling, is_sibling_name
from router.core.resume import Resumer
from router.core.state import State
from router.core.suspend import Suspender
from router.core.uplink import Step, Uplink
from router.core.uplink_course import Courses
from router.core.uplink_needs import Needs, is_same, is_taken
from router.links.link import Connection, IncomingLink, Link, LinkKey, OutgoingLink
from router.model.commands import DetachLink
from router.model.events import LinkAttached, LinkDetached, SubscriptionEnded
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role
from router.routes.route import Endpoint, Route
from router.routes.table import Match

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
        self._alarms = state.alarms
        self._granter = granter
        self._detacher = detacher
        self._lanes = lanes
        self._reach = reach
        self._of_node: dict[Node, list[Uplink]] = {}
        self._containers: dict[str, Connection] = {}
        self._unclaimed: dict[Node, list[OutgoingLink]] = {}
        self._needs = Needs(state, reach)
        self._courses = Courses(
            state,
            granter,
            detacher,
            containers=self._containers,
            needs=self._needs,
            suspender=suspender,
            reach=reach,
            resumer=resumer,
            link_ids=link_ids,
            random=random,
        )
        self.redirects = self._courses.redirects

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

    def links_of(self, node: Node) -> Iterator[Link]:
        """Yields a node's links to containers, attached or suspended.

        Also those of earlier lives by which its route leads no more.
        """
        for uplink in self.of(node):
            last = uplink.link or uplink.kept
            yield from uplink.restored if last is None else (last, *uplink.restored)
        yield from self._unclaimed.get(node, ())

    def is_cut_off(self, node: Node) -> bool:
        """Returns whether a node's messages are for a site of the mesh to which no way leads.

        Copies of a multicast, too: it goes to the others, and nothing waits for that site.
        """
        if node.key.chain is not None:  # in transit: that is for the ingress to say
            return False
        if self._reach.sites is not None and self._reach.sites.missed_by(node):
            return True
        chained = (uplink for uplink in self.of(node) if uplink.terms.chain is not None)
        return any(self._needs.find_hop(uplink) is None for uplink in chained)

    def is_attaching(self, node: Node, role: Role) -> bool:
        """Returns whether an attach of ours, in a role at a node, waits for its answer."""
        uplinks = (uplink for uplink in self.of(node) if uplink.role is role)
        return any(uplink.step is Step.ATTACHING for uplink in uplinks)

    def used(self, node: Node) -> None:
        """Records an attach to a node."""
        for uplink in self._uplinks_of(node):
            is_far = is_sibling_name(uplink.container) or is_neighbor_name(uplink.container)
            if self._needs.is_needed(uplink) or self._needs.is_bound(uplink) or not is_far:
                self._courses.want(uplink)

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
            if uplink.is_wanted and not self._needs.is_needed(uplink):
                is_own = node.key.reader is not None  # a filter may lock a session, or a place
                linger = 0.0 if is_own else self._settings.linger_seconds
                self._alarms.set(self._turn.now + linger, partial(self._let_go, uplink))

    def owns(self, link: Link) -> bool:
        """Returns whether a link is an uplink."""
        return link.link is not None and self._courses.find(link.link) is not None

    def shut(self, link: LinkId) -> None:
        """Records that a link, which may be an uplink, is being closed."""
        uplink = self._courses.find(link)
        if uplink is not None:
            self._courses.shut(uplink)

    def restart(self, link: LinkId) -> None:
        """Attaches an uplink again that was just detached for that purpose."""
        uplink = self._courses.find(link)
        if uplink is not None:
            self._courses.restart(uplink)

    def answered(self, connection: Connection, event: LinkAttached) -> None:
        """Handles the answer to an attach of ours."""
        uplink = self._courses.find(event.link)
        if uplink is None or not self._courses.answered(uplink, connection, event):
            return
        if uplink.is_to_meet:
            uplink.is_to_meet = False
            self.unused(uplink.node)
        if uplink.role is Role.RECEIVER:
            self.used(uplink.node)  # receivers on other workers get its deliveries, too
        if uplink.is_finishing:
            self.refit(uplink.node)

    def detached(self, event: LinkDetached) -> bool:
        """Records that the peer has ended, or refused, a link of ours; False: it is not ours."""
        uplink = self._courses.find(event.link)
        if uplink is not None:
            self._courses.detached(uplink, event)
        return uplink is not None

    def drain(self) -> None:
        """Attaches nothing any more: the router is about to end."""
        self._courses.is_draining = True

    @property
    def is_draining(self) -> bool:
        """Whether the router is about to end."""
        return self._courses.is_draining

    def refit(self, node: Node) -> None:
        """Changes a node's uplinks to those that its route names now."""
        known = self._of_node.get(node)
        if known is None:
            return
        named: dict[LinkName, list[Uplink]] = {}
        for uplink in known:
            named.setdefault(uplink.name, []).append(uplink)
        chosen: dict[Uplink, None] = {}
        for endpoint, role in self._needs.ends(node):
            fresh = self._make(node, endpoint, role)
            alike = (old for old in named.get(fresh.name, ()) if old not in chosen)
            old = next((old for old in alike if is_same(old, fresh)), None)
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
        kept = [each for each in chosen if each not in made or not is_taken(each, ending)]
        self._of_node[node] = kept
        node.has_uplinks = bool(kept)
        for uplink in made.intersection(kept):
            self._adopt(uplink)
        for uplink in kept:
            self._review_fallback(uplink)
            self._courses.review_way(uplink)
            uplink.is_eager = self._needs.is_eager(node, uplink.container)
            if self._needs.is_needed(uplink) or self._needs.is_bound(uplink):
                self._courses.want(uplink)

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
        is_fallback = self._needs.is_fallback(uplink.node, Endpoint(uplink.container), uplink.role)
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
        if link is None:
            return self._is_awaited(uplink)
        finishes = isinstance(link, OutgoingLink) and (
            uplink.is_fallback
            or link.keeps
            or link.chain is not None
            or is_edge_name(uplink.container)
            or uplink.node.taker is not None
            or uplink.node.is_exact
        )
        if not (finishes or is_sibling(link.connection)):
            return False
        if isinstance(link, OutgoingLink) and finishes:
            uplink.node.remove_outgoing(link)
            self._granter.receivers_changed(uplink.node)
            self._turn.touch(uplink.node)
        if link.is_express:
            self._lanes.refresh((uplink.node,))
        is_first, uplink.is_finishing = not uplink.is_finishing, True
        is_busy_on_lane = link.is_express and (is_first or link.lane_unsettled)
        if not (link.unsettled or link.adrift or is_busy_on_lane):
            return False
        self._alarms.set(self._turn.now + FINISH_SECONDS, partial(self.refit, uplink.node))
        return True

    def _is_awaited(self, uplink: Uplink) -> bool:
        """Returns whether an absent container may have what is promised exactly once.

        It is asked when it is back, though the route leads elsewhere by now.
        """
        if not (uplink.node.is_exact and uplink.role is Role.SENDER and uplink.is_open):
            return False
        uplink.is_finishing = True
        self._courses.expect_no_more(uplink)
        return True

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
            if link is not None and (link.unsettled or link.adrift):
                found.append(link)
                self._courses.set_aside(uplink, link)
        self.remove(node)
        return found

    def _drop(self, uplink: Uplink) -> None:
        """Ends an uplink in any state."""
        ends = self._ends_subscription(uplink)
        if not self._courses.end(uplink, unsubscribes=ends) and ends:
            assert uplink.subscription is not None
            self._queue_left(uplink.container, uplink.subscription, uplink.address)

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
        is_claimed = False
        for uplink in self._uplinks_of(node):
            if uplink.name == link.key.name and uplink.role is role:
                is_claimed = True
                if uplink.kept is None:
                    uplink.kept = link
                else:
                    uplink.restored.append(link)
                self._courses.want(uplink)
        if not is_claimed and node.is_exact and isinstance(link, OutgoingLink):
            self._unclaimed.setdefault(node, []).append(link)

    def _adopt(self, uplink: Uplink) -> None:
        """Has a new uplink resume the link of an earlier life that no route led to meanwhile."""
        for link in tuple(self._unclaimed.get(uplink.node, ())):
            is_same_link = uplink.role is link.key.role and uplink.name == link.key.name
            if is_same_link and self._registry.suspended.get(link.key) is link:
                uplink.kept = link
                self._unclaimed[uplink.node].remove(link)

    def _claim(self, connection: Connection) -> None:
        """Makes the uplinks by which a container is asked for what routes sent it in earlier lives.

        They lead elsewhere now, so nothing else is sent on these.
        """
        unclaimed, self._unclaimed = self._unclaimed, {}
        for node, link in ((node, link) for node, links in unclaimed.items() for link in links):
            uplinks = self._uplinks_of(node)
            is_suspended = self._registry.suspended.get(link.key) is link
            if not is_suspended or any(each.name == link.key.name for each in uplinks):
                continue  # a person has decided, or a route leads there again
            uplink = self._needs.make_for(node, link, connection)
            if uplink is None:
                self._unclaimed.setdefault(node, []).append(link)
                continue
            uplink.kept, uplink.is_finishing = link, True
            uplinks.append(uplink)
            node.has_uplinks = uplink.is_wanted = True

    def meet(self, node: Node, key: LinkKey) -> None:
        """Has a link of an earlier life attached once more, to say that nothing is unsettled."""
        for uplink in self._uplinks_of(node):
            if uplink.name == key.name and uplink.role is key.role:
                uplink.is_to_meet = True
                self._courses.want(uplink)

    def remember(self, key: LinkKey) -> None:
        """Records that the journal knows a link of ours, and all that is unsettled on it."""
        self._courses.remember(key)

    def _uplinks_of(self, node: Node) -> list[Uplink]:
        uplinks = self._of_node.get(node)
        if uplinks is None:
            ends = self._needs.ends(node)
            uplinks = [self._make(node, endpoint, role) for endpoint, role in ends]
            self._of_node[node] = uplinks
            node.has_uplinks = bool(uplinks)
        return uplinks

    def _make(self, node: Node, endpoint: Endpoint, role: Role) -> Uplink:
        uplink = self._needs.make(node, endpoint, role)
        if uplink.connection in self._containers:
            uplink.step = Step.IDLE
        return uplink

    def _let_go(self, uplink: Uplink) -> None:
        """Ends a lazy uplink, unless it is needed again or has unfinished deliveries."""
        if not uplink.is_wanted or self._needs.is_needed(uplink) or uplink.is_to_meet:
            return
        if uplink.is_open:
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
        self._claim(connection)
        for uplink in self._all(name):
            self._courses.came(uplink)

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
        return self._courses.requests.of(uplink).failover_seconds

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
            self._courses.left(uplink)
        self.place_lost(name)

    def place_lost(self, name: str) -> None:
        """Has the links return that were redirected to a place where nothing is connected."""
        for uplink in self._all(name):
            self._courses.place_lost(uplink)

    def _all(self, connection: str) -> list[Uplink]:
        every = (uplink for uplinks in self._of_node.values() for uplink in uplinks)
        return [uplink for uplink in every if uplink.connection == connection]

    # All of them

    def attach_waiting(self) -> None:
        """Attaches the uplinks that waited for the journal's unsettled deliveries."""
        for uplinks in list(self._of_node.values()):
            for uplink in uplinks:
                if uplink.node.is_exact:
                    self._courses.attach(uplink)

    def refusals(self, address: str) -> dict[str, str]:
        """Returns why other sites refuse links for an address, by the site's router."""
        return {
            uplink.terms.chain.egress: str(uplink.error)
            for node, uplinks in self._of_node.items()
            for uplink in (uplinks if node.key.address == address else ())
            if uplink.terms.chain is not None and uplink.error is not None
            if not self._courses.stands(uplink)
        }
