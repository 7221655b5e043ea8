"""The control plane of one router: links, entries, own tree, and the answers for the data plane.

Theory of operation. A shell connects to the configured neighbors, by mTLS, and carries messages.
The machine gets events with the time, and returns orders; ``deadline`` says when it wants to be
called again. It never waits, reads no clock, and works in slices (``work``).

=============  ===============================================================  ===========
what           who learns it, and how                                           module
=============  ===============================================================  ===========
links          all: flooded by sequence, one entry a router                     flooding
prefixes       all: flooded likewise; policy checked by each receiver           flooding
addresses      all, but only those that no prefix of their site covers          site
loads          only the ingresses that use them, from the egress                paths
paths          nobody: each router computes its own tree, 50 ms after a change  tree
=============  ===============================================================  ===========

A change is one entry of one origin under a new sequence. It crosses each link once, or once in each
direction if both ends learn of it at the same time. It is not acknowledged: connections do not lose
what they carry, a gap in the numbers shows a message that was lost in the peer, and digests in the
hellos show everything else (``comparing``).

What may never happen
    * An entry replaces one with a greater version, or is used with a wrong signature.
    * A link counts that only one end claims.
    * A slice grows with the number of routers, prefixes or addresses.
    * An address under a prefix causes a message to another site.

Lies. A router can say nothing about others: entries are signed by their origin, and a link counts
only if both ends name it. What it says about itself is checked against the policy of each receiver.
Who breaks a rule is named by ``RouterRefused`` and what it said has no effect; a neighbor that
breaks the rules of messages is told why and its connection is closed.

Edges are neighbors that are outside of all this: they get hellos only. The hub takes an edge's
addresses as receivers at its own site, so it announces them like others (``hub``).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import attrs

from router.routes.match import canonical, parse_pattern
from router.routes.mesh.bodies import Notary
from router.routes.mesh.comparing import (
    Comparer,
    holdings_for,
    missing_here,
    missing_there,
)
from router.routes.mesh.events import (
    AddressAttached,
    AddressDetached,
    AddressKept,
    CloseConnection,
    EdgeServes,
    EpochRaised,
    Event,
    LinkChanged,
    LinkHeldAt,
    LoadTold,
    MessageBroken,
    MessageReceived,
    NeighborConnected,
    NeighborLost,
    Order,
    PathsChanged,
    Reconfigured,
    SendMessage,
    TreeReady,
)
from router.routes.mesh.flooding import KNOWN_UNITS, OPEN_UNITS, UNITS, Flood
from router.routes.mesh.hub import Hub
from router.routes.mesh.neighbors import HELLO_SECONDS, Neighbor
from router.routes.mesh.nouns import (
    DEFAULT_COST,
    Ask,
    Carried,
    EdgeAddresses,
    EdgeAsk,
    Entries,
    Entry,
    Hello,
    Holdings,
    Message,
    Refusal,
    Role,
    RouterId,
    Summary,
    Unknown,
)
from router.routes.mesh.paths import Paths
from router.routes.mesh.policy import Policy
from router.routes.mesh.refusals import Refusals
from router.routes.mesh.site import Site
from router.routes.mesh.survey import LinkState, SiteState, Survey
from router.routes.mesh.topology import Topology
from router.routes.mesh.work import Work

LATE_SECONDS: Final = 0.5
"""A call that comes so much later than asked for shows that this router was paused."""

HELD_UNITS: Final = 30
"""A message of a comparison: up to 256 entries."""


@attrs.frozen(kw_only=True)
class Settings:
    """What the configuration says.

    Attributes:
        router: this router's id.
        epoch: above that of all earlier starts; from the journal's lease.
        costs: the links that are configured → cost. A neighbor that is not among them costs what
            it says itself.
        advertise: patterns that this site serves.
        policy: what others may advertise.
    """

    router: RouterId
    epoch: int
    costs: Mapping[RouterId, int] = attrs.field(factory=dict)
    advertise: tuple[str, ...] = ()
    policy: Policy = attrs.field(factory=lambda: Policy.parse({}))


class Mesh:
    """The control plane of one router.

    Attributes:
        paths: answers the data plane.
    """

    def __init__(self, settings: Settings, notary: Notary, now: float) -> None:
        """Makes the machine.

        Raises:
            PatternError: a pattern of ``advertise`` is none, or two are equal.
        """
        self._router = settings.router
        self._life = settings.epoch
        self._costs = settings.costs
        self._orders: list[Order] = []
        self._neighbors: dict[RouterId, Neighbor] = {}
        self._comparers: dict[RouterId, Comparer] = {}
        self._work = Work()
        self._refusals = Refusals()
        self._site = Site(settings.router, settings.epoch)
        self._flood = Flood(
            settings.router, notary, settings.policy, partial(self._refuse, now), self._offer
        )
        self._hub = Hub(self._site, self._tell_edge)
        self._patterns = settings.advertise
        self._topology = Topology(settings.router)
        self._notary = notary
        self.paths = Paths(self._site, self._flood.index, self._topology.tree, self._topology.ask)
        self._timer: float | None = None
        self._expected_at = now
        self._is_raised = False
        self._site.begin(now)
        self._site.advertise(settings.advertise, now)
        self._wake_by(now)

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is to be called; in the past: as soon as may be."""
        return self._timer

    def handle(self, event: Event, now: float) -> list[Order]:
        """Handles an event."""
        self._begin(now)
        match event:
            case MessageReceived(neighbor, message):
                self._on_message(neighbor, message, now)
            case MessageBroken(neighbor, rule):
                self._expel(neighbor, rule, now)
            case NeighborConnected(neighbor):
                self._on_connected(neighbor, now)
            case NeighborLost(neighbor):
                self._drop(neighbor, "the connection is lost", now)
            case AddressAttached(address, place, load):
                self._tell_kept(address, self._site.attach(address, place, load, now))
            case AddressDetached(address, place):
                self._site.detach(address, place, now)
            case LoadTold(egress, address, load):
                self.paths.tell_load(egress, address, load)
            case LinkHeldAt(neighbor, place):
                self.paths.hold_at(neighbor, place)
            case Reconfigured():
                self._reconfigure(event, now)
        return self._finish(now)

    def handle_deadline(self, now: float) -> list[Order]:
        """Handles timers, and does a slice of what is left."""
        self._begin(now)
        return self._finish(now)

    def survey(self) -> Survey:
        """Returns what people see of the mesh. It takes a step for each router and entry."""
        flood, tree = self._flood, self.paths.tree
        served = flood.served()
        routers = {self._router, *flood.claims, *served}
        return Survey(
            router=self._router,
            links=tuple(
                self._link_state(router) for router in sorted({*self._costs, *self._neighbors})
            ),
            sites=tuple(
                SiteState(
                    router=router,
                    cost=tree.costs.get(router),
                    hop=tree.hops.get(router, ""),
                    links=tuple(sorted(flood.claims.get(router, {}).items())),
                    prefixes=tuple(sorted(served.get(router, ([], 0))[0])),
                    addresses=served.get(router, ([], 0))[1],
                )
                for router in sorted(routers)
            ),
        )

    def _link_state(self, router: RouterId) -> LinkState:
        one = self._neighbors.get(router)
        if one is None:
            return LinkState(router=router, cost=self._costs[router], is_up=False)
        return LinkState(
            router=router,
            cost=self._costs.get(router, one.cost),
            is_up=one.is_up,
            role=one.role,
            is_active=one.is_active if one.role is Role.EDGE else one.is_up,
        )

    # Neighbors

    def _on_connected(self, id: RouterId, now: float) -> None:
        if id == self._router:
            self._orders.append(CloseConnection(id, "this is the router's own id"))
            return
        self._drop(id, "it has connected again", now)
        self._neighbors[id] = Neighbor(id, now)
        self._comparers[id] = Comparer()
        self._greet(self._neighbors[id], now)

    def _on_message(self, id: RouterId, message: Message, now: float) -> None:
        neighbor = self._neighbors.get(id)
        if neighbor is None:
            return
        if isinstance(message, Hello):
            self._on_hello(neighbor, message, now)
        elif isinstance(message, Refusal):
            self._drop(id, f"it refuses this router: {message.rule}", now)
            self._orders.append(CloseConnection(id, message.rule))
        elif not neighbor.epoch:
            self._expel(id, "a message before its hello", now)
        elif neighbor.role is Role.EDGE:
            self._on_edge_message(neighbor, message, now)
        else:
            self._on_router_message(neighbor, message, now)

    def _on_hello(self, neighbor: Neighbor, hello: Hello, now: float) -> None:
        was_up, was_heard = neighbor.is_up, bool(neighbor.epoch)
        rule = neighbor.hear(hello, self._life, now)
        if rule is not None:
            self._expel(neighbor.id, rule, now)
            return
        if not was_heard:
            self._greet(neighbor, now)
        if neighbor.is_up and not was_up:
            self._orders.append(LinkChanged(neighbor.id, True, "both ends have said hello"))
            self._relink(now)
        if neighbor.role is Role.EDGE:
            if self._hub.note(neighbor, is_active=neighbor.is_active):
                self._advertise(now)
            self._work.add(self._hub.hear(neighbor, now))
        elif not (self._work or neighbor.outbox) and self._router < neighbor.id:
            self._compare_by_hello(neighbor, now)

    def _compare_by_hello(self, neighbor: Neighbor, now: float) -> None:
        if self._comparers[neighbor.id].hear(neighbor.digest, self._flood.database, now):
            self._send(neighbor.id, Summary(tuple(self._flood.database.digests)))

    def _on_router_message(self, neighbor: Neighbor, message: Message, now: float) -> None:
        match message:
            case Entries(number, carried):
                if neighbor.count(number):
                    if self._comparers[neighbor.id].begin(self._flood.database, now):
                        self._send(neighbor.id, Summary(tuple(self._flood.database.digests)))
                self._work.add(self._take_all(neighbor, carried, now))
            case Summary():
                self._work.add(self._answer_summary(neighbor, message))
            case Holdings():
                self._work.add(self._answer_holdings(neighbor, message))
            case Ask(keys):
                for key in keys:
                    entry = self._flood.database.get(key)
                    if entry is not None:
                        neighbor.offer(entry)
            case EdgeAddresses() | EdgeAsk():
                self._expel(neighbor.id, "a message of an edge by a router", now)
            case Unknown():
                pass

    def _on_edge_message(self, neighbor: Neighbor, message: Message, now: float) -> None:
        match message:
            case EdgeAddresses():
                if neighbor.follows(message):
                    self._work.add(self._take_addresses(neighbor, message, now))
                else:
                    self._send(neighbor.id, EdgeAsk())
            case Unknown():
                pass
            case _:
                self._expel(neighbor.id, "a message of a router by an edge", now)

    def _take_addresses(
        self, neighbor: Neighbor, message: EdgeAddresses, now: float
    ) -> Iterator[int]:
        for address, rule in self._hub.take(neighbor, message, self._flood.policy, now):
            if rule is not None:
                self._refuse(now, neighbor.id, neighbor.id, rule)
            elif address is not None:
                self._tell_kept(address, self._hub.kept.pop(address, None))
            yield KNOWN_UNITS

    def _greet(self, neighbor: Neighbor, now: float) -> None:
        neighbor.hello_at = now + HELLO_SECONDS
        self._wake_by(neighbor.hello_at)
        hello = Hello(
            router=self._router,
            epoch=self._life,
            heard=neighbor.epoch,
            cost=self._costs.get(neighbor.id, DEFAULT_COST),
            digest=self._flood.database.digest,
        )
        self._send(neighbor.id, hello)

    def _drop(self, id: RouterId, reason: str, now: float) -> None:
        neighbor = self._neighbors.pop(id, None)
        if neighbor is None:
            return
        del self._comparers[id]
        if neighbor.role is Role.EDGE:
            if self._hub.note(neighbor, is_active=False):
                self._advertise(now)
            self._work.add(self._hub.lose(neighbor, now))
        if neighbor.is_up:
            self._orders.append(LinkChanged(id, False, reason))
            self._relink(now)

    def _expel(self, id: RouterId, rule: str, now: float) -> None:
        """Tells a neighbor which rule it broke, and closes the connection."""
        if id in self._neighbors:
            self._refuse(now, id, id, rule)
            self._send(id, Refusal(rule))
            self._drop(id, rule, now)
            self._orders.append(CloseConnection(id, rule))

    def _relink(self, now: float) -> None:
        up = (one for one in self._neighbors.values() if one.is_up and one.role is Role.ROUTER)
        self._site.link({one.id: self._costs.get(one.id, one.cost) for one in up}, now)

    # Entries

    def _take_all(
        self, neighbor: Neighbor, carried: tuple[Carried, ...], now: float
    ) -> Iterator[int]:
        for one in carried:
            neighbor.has(one.entry)
            if one.entry.key.origin == self._router:
                self._take_own(one.entry, neighbor.id, now)
                yield KNOWN_UNITS
            else:
                yield from self._flood.take(one, neighbor.id, now)

    def _take_own(self, entry: Entry, via: RouterId, now: float) -> None:
        """Handles what a neighbor knows of this router: perhaps from an earlier life."""
        if self._flood.is_foreign(entry) and self._site.outlive(entry.version, now):
            if self._is_raised:
                rule = "entries of another life again: another router may have the same id"
                self._refuse(now, self._router, via, rule)
            self._is_raised = True
            self._orders.append(EpochRaised(self._site.epoch))

    def _offer(self, entry: Entry, via: RouterId | None) -> None:
        for neighbor in self._neighbors.values():
            if neighbor.id != via:
                neighbor.offer(entry)

    def _answer_summary(self, neighbor: Neighbor, summary: Summary) -> Iterator[int]:
        for holdings in holdings_for(summary, self._flood.database):
            self._send(neighbor.id, holdings)
            yield HELD_UNITS

    def _answer_holdings(self, neighbor: Neighbor, holdings: Holdings) -> Iterator[int]:
        comparer = self._comparers.get(neighbor.id)
        if comparer is None:
            return
        for ask in missing_here(holdings, self._flood.database):
            self._send(neighbor.id, ask)
        yield HELD_UNITS
        before = comparer.collect(holdings)
        if before is not None:
            for entry in missing_there(holdings, before, self._flood.database):
                neighbor.offer(entry)
            yield HELD_UNITS

    def _say(self, now: float) -> Iterator[int]:
        for key, version, body in self._site.due(now):
            entry = self._notary.seal(key, version, body)
            yield OPEN_UNITS
            yield from self._flood.keep(entry, body, None, now)

    def _reconfigure(self, event: Reconfigured, now: float) -> None:
        self._costs = event.costs
        self._relink(now)
        self._patterns = event.advertise
        self._advertise(now)
        if event.policy != self._flood.policy:
            self._flood.policy = event.policy
            self._work.add(self._flood.judge_again())

    def _advertise(self, now: float) -> None:
        """Says which prefixes this site serves, those of its edges among them."""
        known = {canonical(parse_pattern(text)): text for text in self._hub.prefixes}
        known |= {canonical(parse_pattern(text)): text for text in self._patterns}
        self._site.advertise(tuple(known.values()), now)
        self._work.add(self._review(now))

    def _tell_edge(self, edge: RouterId, address: str, is_served: bool) -> None:
        self._orders.append(EdgeServes(edge, address, is_served))

    def _review(self, now: float) -> Iterator[int]:
        for address, rule in self._site.review(now):
            self._tell_kept(address, rule)
            yield KNOWN_UNITS

    # Turns

    def _begin(self, now: float) -> None:
        self._flood.refuse = partial(self._refuse, now)
        late = now - self._expected_at
        if late > LATE_SECONDS:
            for neighbor in self._neighbors.values():
                neighbor.excuse(late)

    def _finish(self, now: float) -> list[Order]:
        if self._timer is not None and now >= self._timer:
            self._fire(now)
        units = self._work.run(UNITS)
        flood = self._flood
        if flood.topology_changed:
            flood.topology_changed = False
            self._topology.changed(now)
        if (units > 0 and not self._work) or self._topology.is_overdue(now):
            self._compute(max(units, 1), now)
        if flood.paths_changed and not self._work:
            flood.paths_changed = False
            self._orders.append(PathsChanged(self.paths.tree.topology))
        is_behind = self._flush(now)
        busy = self._work or is_behind or self._topology.is_due(now)
        for timer in (now if busy else None, self._site.due_at, self._topology.due_at):
            if timer is not None:
                self._wake_by(timer)
        self._expected_at = now if self._timer is None else max(now, self._timer)
        orders, self._orders = self._orders, []
        return orders

    def _fire(self, now: float) -> None:
        """Handles the timers that are due, and finds the next one."""
        if self._site.due_at is not None and now >= self._site.due_at and not self._work:
            self._work.add(self._say(now))
        for origin in self._flood.database.expired(now):
            self._work.add(self._flood.forget(origin, now))
        for neighbor in list(self._neighbors.values()):
            if now >= neighbor.dead_at:
                reason = f"nothing was heard for {neighbor.silence(now):.1f} s"
                self._drop(neighbor.id, reason, now)
                self._orders.append(CloseConnection(neighbor.id, reason))
            elif now >= neighbor.hello_at:
                self._greet(neighbor, now)
        self._timer = None
        for neighbor in self._neighbors.values():
            self._wake_by(min(neighbor.hello_at, neighbor.dead_at))
        for timer in (self._flood.database.next_expiry(), self._topology.denial_at):
            if timer is not None:
                self._wake_by(timer)

    def _compute(self, units: int, now: float) -> None:
        """Does a part of the trees."""
        for done in self._topology.run(self._flood.claims, units, now):
            if done.branches is not None:
                self.paths.publish_branches(done.branches)
                self._orders.append(TreeReady(done.branches.origin))
            if done.tree is not None:
                self.paths.publish(done.tree)
                self._flood.database.mark_reached(done.tree.costs, now)
                self._orders.append(PathsChanged(done.tree.topology))
        for router, neighbor in self._topology.denied(now):
            self._refuse(now, router, router, f"a link to {neighbor}, which {neighbor} denies")

    def _flush(self, now: float) -> bool:
        """Sends a message of each outbox; returns whether more is left."""
        idle = partial(self._idle, now)
        is_behind = False
        for neighbor in self._neighbors.values():
            if neighbor.outbox:
                entries = neighbor.next_entries(idle)
                if entries is not None:
                    self._send(neighbor.id, entries)
                is_behind = is_behind or bool(neighbor.outbox)
        return is_behind

    def _idle(self, now: float, origin: RouterId) -> int:
        return self._flood.database.idle_seconds(origin, now)

    def _send(self, id: RouterId, message: Message) -> None:
        self._orders.append(SendMessage(id, message))

    def _refuse(self, now: float, router: RouterId, via: RouterId, rule: str) -> None:
        self._orders += self._refusals.name(router, via, rule, now)

    def _tell_kept(self, address: str, rule: str | None) -> None:
        if rule is not None:
            self._orders.append(AddressKept(address, rule))

    def _wake_by(self, at: float) -> None:
        if self._timer is None or at < self._timer:
            self._timer = at
