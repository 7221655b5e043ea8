"""The core: handles the events of all connections of a worker, and issues orders for all of them.

It is one synchronous machine composed of smaller ones (``parts``), each in its own module:

    attach    answers peers that attach links            uplinks   keeps our links to containers
    forward   sends deliveries on                        settle    carries outcomes back
    credit    grants and takes back credit               detach    what a lost link leaves behind

``handle`` has ``events`` run each event through them, then ends the turn: what was given back is
queued again, every node that was touched is pumped, credit is granted, runs become orders. No event
of one connection is looked at before the orders of the event before it are complete, so a shell
that carries orders out in their order and hands events over one batch at a time has no races.
"""

import random as random_numbers
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

from router.core.archive import ArchiveRecords, ToSections
from router.core.dial_in import DialedIn
from router.core.homes import FIRST, Homes
from router.core.lanes import Express
from router.core.link_ledgers import is_exact
from router.core.mesh.control import Control, Plan
from router.core.orphans import Orphans
from router.core.parts import Parts
from router.core.policy import OPEN, Policy
from router.core.reach import is_sibling
from router.core.records import EncodeState, GiveId, Identify, JoinTrace, Records, no_trace
from router.core.registry import Registry
from router.core.resolve import Decision
from router.core.restore import DecodeState, Restored
from router.core.settings import ContainerTerms, CoreSettings
from router.core.state import State
from router.core.trace import Tracer
from router.core.turn import Order
from router.core.unroutable import naming
from router.journal.keys import LinkKey as JournalLinkKey
from router.journal.unsettled import LinkMemory, NumbersMemory, Unsettled
from router.links.expiry import NEVER_EXPIRES
from router.links.link import Link
from router.model.condition import NOT_ALLOWED, Condition
from router.model.events import Event, LinkAttached
from router.model.identity import ConnectionId, DeliveryTag, LinkId
from router.model.outcome import Rejected
from router.routes.mesh.events import Event as MeshEvent
from router.routes.table import RoutingTable
from router.routes.vhost import inside

_ALONE: Final = Homes()


def _make_token() -> str:
    """Returns an unguessable name for a dynamic node."""
    return secrets.token_hex(16)


class Core:
    """The machine in which all connections of a worker meet.

    Attributes:
        notices: events for the log; the shell removes and logs them.
        surveyor: surveys routes, containers and links.
        lister: lists links and deliveries.
        redirects: the places to which containers have sent links, for the shell to dial.
        mesh: the control plane of the mesh.
    """

    def __init__(
        self,
        settings: CoreSettings,
        table: RoutingTable,
        link_ids: Iterator[LinkId],
        express: Express | None = None,
        *,
        containers: frozenset[str] | None = None,
        homes: Homes = _ALONE,
        memory: dict[str, object] | None = None,
        policy: Policy = OPEN,
        terms: Mapping[str, ContainerTerms] = MappingProxyType({}),
        random: Callable[[], float] = random_numbers.random,
        make_token: Callable[[], str] = _make_token,
        now: float = 0.0,
    ) -> None:
        """Makes a core.

        Args:
            settings: limits and periods.
            table: the initial routes.
            link_ids: shared with the engines, so that ids are unique in the worker.
            express: the worker's express lane, shared with the engines; None: there is none.
            containers: names of the containers that this worker dials; None: all, it is alone.
            homes: which worker keeps exactly-once links.
            memory: the state that the worker's engines keep for absent peers; None: none.
            policy: the permissions by identity.
            terms: of configured containers, by name; those of the others are in ``settings``.
            random: numbers from 0 up to 1, for jitter.
            make_token: returns unguessable names for dynamic nodes.
            now: the time of the clock that all later calls use.
        """
        state = State(
            settings=settings, registry=Registry(settings, table), orphans=Orphans(make_token)
        )
        state.registry.process.lanes = express
        state.registry.policy = policy
        state.registry.terms = terms
        if homes.are_many:
            state.ledger.share_links(leads=homes.own == FIRST)
        self._parts = parts = Parts(
            state=state,
            link_ids=link_ids,
            express=express,
            containers=containers,
            homes=homes,
            memory={} if memory is None else memory,
            random=random,
            make_token=make_token,
        )
        self.notices = state.notices
        self.surveyor = parts.surveyor
        self.lister = parts.lister
        self.redirects = parts.uplinks.redirects
        self.mesh: Control = parts.mesh
        self._tracers: list[Tracer] = []
        self._restored_orders: list[Order] = []
        state.turn.begin(now)
        parts.dial_ins.govern(terms)
        # What each turn needs is at hand; ``parts`` has the rest, and any order is as good.
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._registry = state.registry
        self._events = parts.events
        self._announcer = parts.announcer
        self._attacher = parts.attacher
        self._detacher = parts.detacher
        self._filtering = parts.filtering
        self._fallbacks = parts.fallbacks
        self._forwarder = parts.forwarder
        self._governor = parts.governor
        self._granter = parts.granter
        self._lanes = parts.lanes
        self._loads = parts.loads
        self._memories = parts.memories
        self._network = parts.network
        self._polls = parts.polls
        self._postponer = parts.postponer
        self._resumer = parts.resumer
        self._settler = parts.settler
        self._sites = parts.sites
        self._storer = parts.storer
        self._strander = parts.strander
        self._streams = parts.streams
        self._turner = parts.turner
        self._uplinks = parts.uplinks
        self._watchers = parts.watchers
        self._ways = parts.ways
        for route in table.routes:
            self._uplinks.follow(route, table.lookup(route.address))

    # Interface of the shell

    def dialed(self, connection: ConnectionId, container_name: str) -> None:
        """Records that we dialed a connection; call before its first event."""
        self._events.dialed[connection] = container_name

    def await_store(self, now: float) -> None:
        """Records, before anything is restored, that there is a message store to be connected."""
        self._turn.begin(now)
        self._storer.await_store()

    def expect(self, connection: ConnectionId) -> None:
        """Records, before its first event, that a sibling has admitted a connection."""
        self._governor.expected.add(connection)

    def find_better_worker(self, connection: ConnectionId, attach: LinkAttached) -> str | None:
        """Returns the sibling that a new connection is to be handed to: the home of its first link.

        None: it stays, because the link's home is here or is not connected, or because the
        connection is no client's.
        """
        known = self._registry.connections.get(connection)
        if known is None or known.configured is not None or known.is_leaving:
            return None
        return self._parts.passages.find_home(known, attach)

    def join_mesh(self, plan: Plan, now: float) -> list[Order]:
        """Joins the mesh; call before a connection of it opens."""
        self._turn.begin(now)
        self.mesh.begin(plan)
        self._parts.path_reporter.begin()
        self._sites.begin()
        return self._end_turn()

    def mesh_refusals(self, address: str) -> dict[str, str]:
        """Returns why other sites refuse links for an address, by the site's router."""
        return self._uplinks.refusals(inside("", address))

    def tell_mesh(self, event: MeshEvent, now: float) -> list[Order]:
        """Hands an event to the machine of the mesh."""
        self._turn.begin(now)
        self.mesh.tell(event)
        return self._end_turn()

    def handle(self, connection: ConnectionId, events: Sequence[Event], now: float) -> list[Order]:
        """Handles events of one connection; returns orders for any connection."""
        self._turn.begin(now)
        self._lanes.promote_due()
        for tracer in self._tracers:
            tracer.happened(connection, events, now)
        self._events.receive(connection, events)
        return self._end_turn()

    def orders_done(self) -> None:
        """Records that all orders have been carried out, so that lanes may be opened."""
        self._lanes.promote_due()

    def take_awakened(self) -> list[object]:
        """Returns engines that have output or events although nothing was received for them."""
        return self._memories.take_awakened()

    def connection_lost(self, connection: ConnectionId, now: float) -> list[Order]:
        """Records that a connection's socket is gone; no news after ``ConnectionClosed``."""
        self._turn.begin(now)
        self._events.lost(connection)
        return self._end_turn()

    def place_lost(self, name: str, now: float) -> list[Order]:
        """Records that a place of ``redirects`` could not be dialed, or is connected no longer."""
        self._turn.begin(now)
        self._uplinks.place_lost(name)
        return self._end_turn()

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` must be called; None: never."""
        return self._alarms.deadline

    def handle_deadline(self, now: float) -> list[Order]:
        """Runs due alarms."""
        self._turn.begin(now)
        while (action := self._alarms.pop_due(now)) is not None:
            action()
        return self._end_turn()

    def pause(self, route: str, now: float) -> list[Order]:
        """Pauses a route.

        Raises:
            KeyError: there is no route of that name.
        """
        self._turn.begin(now)
        if not self._parts.pauser.knows(route):
            raise KeyError(route)
        self._parts.pauser.pause(route)
        return self._end_turn()

    def resume(self, route: str, now: float) -> list[Order]:
        """Resumes a paused route.

        Raises:
            KeyError: there is no route of that name.
        """
        self._turn.begin(now)
        if not self._parts.pauser.knows(route):
            raise KeyError(route)
        self._parts.pauser.resume(route)
        return self._end_turn()

    def journal(
        self,
        records: Records,
        epoch_ns: int,
        *,
        identify: Identify,
        give_id: GiveId,
        encode: EncodeState,
        join_trace: JoinTrace = no_trace,
        restores: bool = False,
    ) -> None:
        """Records deliveries from now on, for exactly-once routes and for the ledger.

        Args:
            records: the journal's writer.
            epoch_ns: nanoseconds since 1970 at time 0 of the clock that all calls here use.
            identify: returns the id in a payload.
            give_id: adds an id to a payload that has none.
            encode: returns delivery states in AMQP 1.0's encoding.
            join_trace: joins the trace of a message.
            restores: ``restore`` follows; links of exactly-once routes wait for it.
        """
        self._ledger.is_restoring = restores
        self._ledger.open(
            records,
            epoch_ns,
            identify=identify,
            give_id=give_id,
            encode=encode,
            join_trace=join_trace,
        )
        self._turn.watched_by(self._ledger)
        self._lanes.stop("ledger")  # recorded nodes leave the lane; the others continue
        self._lanes.go_on("ledger")

    def archive(self, records: ArchiveRecords, epoch_ns: int, to_sections: ToSections) -> None:
        """Archives the messages of archived routes from now on; call after ``journal``.

        Args:
            records: the archive's writer.
            epoch_ns: as with ``journal``.
            to_sections: returns messages as AMQP 1.0 sections.
        """
        self._parts.state.archive.open(records, epoch_ns, to_sections)

    def archive_stuck(self, is_stuck: bool, now: float) -> list[Order]:
        """Counts messages instead of archiving them while the archive is stuck."""
        self._turn.begin(now)
        self._parts.state.archive.stuck(is_stuck)
        return []

    def restore(
        self,
        deliveries: Sequence[Unsettled],
        links: Mapping[JournalLinkKey, LinkMemory],
        now: float,
        *,
        decode: DecodeState,
        numbers: NumbersMemory | None = None,
    ) -> Restored:
        """Restores unsettled deliveries of earlier lives.

        Call it before a link of an exactly-once route is attached: before a connection opens, or
        after ``journal(restores=True)``; then ``resume_attaching`` returns the orders.
        """
        self._turn.begin(now)
        if numbers is not None:
            self._ledger.count.restore(numbers.epoch, numbers.limit)
        restorer = self._parts.restorer(decode)
        restored = restorer.restore(deliveries, links, self._ledger.now_ns())
        self._restored_orders = self._end_turn()
        return restored

    def resume_attaching(self, now: float) -> list[Order]:
        """Attaches the links that waited for ``restore``; returns the orders of both."""
        orders, self._restored_orders = self._restored_orders, []
        self._turn.begin(now)
        self._ledger.is_restoring = False
        self._uplinks.attach_waiting()
        self._events.release_waiting()
        return [*orders, *self._end_turn()]

    def durable(self, sequence: int, now: float) -> list[Order]:
        """Returns the orders that waited for records up to ``sequence`` to be durable."""
        orders = self._turn.gate.let_go(sequence)
        for tracer in self._tracers:
            tracer.released(orders, now)
        return orders

    def exact_connections(self) -> list[ConnectionId]:
        """Returns the peers' connections that carry links of exactly-once routes."""
        found = self._parts.passages.peers()
        for connection in self._registry.connections.values():
            links: list[Link] = [*connection.incoming.values(), *connection.outgoing.values()]
            if not is_sibling(connection) and any(map(is_exact, links)):
                found.add(connection.id)
        ingresses = (guest.id for guest in self._registry.guests.values() if guest.is_ingress)
        known = self._registry.connections
        found.update(each for each in ingresses if not is_sibling(known.get(each)))
        return list(found)

    def journal_stuck(self, is_stuck: bool, now: float) -> list[Order]:
        """Grants no credit for journaled deliveries while the journal is stuck."""
        self._turn.begin(now)
        if is_stuck is not self._ledger.is_stuck:
            self._ledger.stuck(is_stuck)
            for connection in self._registry.parties:
                self._turn.review_credits(connection.incoming.values())
        return self._end_turn()

    @property
    def unrecorded(self) -> int:
        """How many deliveries are missing from the ledger, which has gaps for them."""
        return self._ledger.unrecorded

    @property
    def payload_octets(self) -> int:
        """Octets of payload that core and lane keep for deliveries without an outcome."""
        return self._registry.process.kept

    @property
    def unrouted(self) -> int:
        """How many messages no route took whose senders have not been told."""
        return self._events.unrouted

    def configure(self, table: RoutingTable, now: float) -> list[Order]:
        """Puts a new routing table into force; only what differs is touched."""
        self._turn.begin(now)
        self._parts.reloader.configure(table)
        self._filtering.review()
        self._fallbacks.configure()
        self._registry.moved.update(dict.fromkeys(self._registry.nodes.values()))
        return self._end_turn()

    @property
    def dialed_in(self) -> Mapping[str, DialedIn]:
        """The containers that dial in, as this worker knows them, by name."""
        return self._parts.dial_ins.known

    @property
    def kept(self) -> Mapping[str, int]:
        """Unsettled deliveries that the last ``configure`` left without a route, by its pattern."""
        return self._parts.routeless.kept

    def turn_away(self, reason: Callable[[ConnectionId], Condition]) -> None:
        """Serves nobody: each peer that opens a connection is told why, and the connection ends."""
        self._governor.turn_away = reason

    def govern(
        self, policy: Policy, terms: Mapping[str, ContainerTerms], now: float
    ) -> list[Order]:
        """Puts another policy, and other terms of containers, into force.

        Links that are no longer allowed are detached; other changes apply from now on.
        """
        self._turn.begin(now)
        self._parts.dial_ins.govern(terms)
        self._governor.govern(policy)
        return self._end_turn()

    def own(self, containers: frozenset[str], now: float) -> list[Order]:
        """Records which containers this worker dials from now on; the others are others'."""
        self._turn.begin(now)
        self._network.own(containers)
        self._fallbacks.configure()
        return self._end_turn()

    def drain(self, now: float) -> list[Order]:
        """Begins to stop: no new deliveries are accepted, and open ones run to their outcome."""
        self._turn.begin(now)
        self._attacher.is_draining = True
        self._parts.drainer.start()
        return self._end_turn()

    def abandon(self) -> None:
        """Reports, after a drain, deliveries in custody that no receiver has accepted."""
        self._parts.drainer.abandon()

    def dismiss(self, connection: ConnectionId, condition: Condition, now: float) -> list[Order]:
        """Closes one connection as soon as its open deliveries have ended; see ``dismiss``."""
        self._turn.begin(now)
        self._parts.dismisser.dismiss(connection, condition)
        return self._end_turn()

    @property
    def acquainted(self) -> frozenset[str]:
        """Names of the siblings whose first advertisement has arrived."""
        return self._network.acquainted

    @property
    def is_drained(self) -> bool:
        """Whether, after ``drain``, no link is left."""
        return self._parts.drainer.is_drained

    def resolve(
        self, tag: DeliveryTag, link: str | None, decision: Decision, now: float
    ) -> tuple[int, list[Order]]:
        """Resolves the deliveries in doubt with a tag; see ``Resolver``.

        Returns:
            How many there were, and the orders.
        """
        self._turn.begin(now)
        count = self._parts.resolver.resolve(tag, link, decision)
        self._detacher.review_held()
        return count, self._end_turn()

    def trace(self, pattern: str, most: int, now: float) -> Tracer:
        """Begins to trace the next deliveries of some addresses; see ``Tracer``.

        Raises:
            PatternError: it is not a valid pattern.
        """
        self._turn.begin(now)
        self._lanes.stop("trace")
        tracer = Tracer(self._registry, pattern, most, now)
        self._tracers.append(tracer)
        return tracer

    def end_trace(self, tracer: Tracer) -> None:
        """Ends the trace."""
        self._tracers.remove(tracer)
        if not self._tracers:
            self._lanes.go_on("trace")

    # The end of a turn

    def _end_turn(self) -> list[Order]:
        turn, settler = self._turn, self._settler
        for connection, event in chain(self._filtering.take_ready(), self._announcer.take_ready()):
            if not connection.is_gone:
                self._events.act(connection, event)
        self._watchers.expect()
        if settler.has_left:
            self._queue_returned()
        self._resume()
        self._polls.take_newcomers()
        self._ways.review()  # before anything goes back for that nobody receives here
        self._fallbacks.look()
        self._storer.look()
        while touched := turn.take_touched():
            self._resume()
            self._lanes.review(touched)
            for node in touched:
                self._turner.review(node)
                self._fallbacks.review(node)
                self._storer.review(node)
                self._forwarder.pump(node)
                self._strander.review(node)
                self._postponer.review(node)
                if node.uncredited and node.is_vacant:
                    self._granter.receivers_changed(node)
                self._polls.review(node)
                if not (node.feeds or node.rotation):
                    self._registry.fed[node] = None  # deliveries of senders that left may be gone
            self._lanes.review_judged()
            if settler.has_left:
                self._put_away()
                self._queue_returned()
        for node, count in settler.take_stored_again().items():
            self._storer.returned(node, count)
        self._end_unlisted()
        self._attach_once_more()
        for identity, connections in self._governor.take_counts():
            self._network.count(identity, connections)
        self._fallbacks.pull()
        self._ways.review()
        self._loads.review()
        self._sites.review(self._registry.moved)
        self._network.review()
        self._watchers.review()
        self._streams.review()
        self._lanes.refresh_for(turn.grantable)
        self._granter.review()
        self._detacher.review_detached()
        for node in turn.take_left():
            self._uplinks.unused(node)
            self._registry.prune(node)
        orders = turn.take_orders()
        for tracer in self._tracers:
            tracer.ordered(orders)
        return orders

    def _end_unlisted(self) -> None:
        """Detaches senders whose source lists no fitting outcome of a delivery (§3.5.3)."""
        for link, (pairing, outcome) in self._settler.take_unlisted().items():
            if link.link is not None:
                reason = outcome.error if isinstance(outcome, Rejected) else None
                kind = type(outcome).__name__.lower()
                text = f"the outcome is {kind}, which the source does not list"
                self._detacher.detach(link, naming(pairing, reason or Condition(NOT_ALLOWED, text)))

    def _resume(self) -> None:
        """Goes on with resumed deliveries; what comes back is queued before others are sent."""
        self._resumer.pump()
        if self._settler.has_left:
            self._put_away()
            self._queue_returned()

    def _put_away(self) -> None:
        """Buries dead deliveries, and puts off those that wait for another attempt."""
        self._strander.bury(self._settler.take_dead())
        self._postponer.take()

    def _queue_returned(self) -> None:
        """Queues returned deliveries; those without a sender may need uplinks again."""
        feeds = self._settler.flush_returned()
        self._forwarder.returned(feeds)
        for feed in feeds:
            if feed.incoming.is_gone:
                self._uplinks.used(feed.node)

    def _attach_once_more(self) -> None:
        """Detaches links whose unsettled maps were incomplete, once they have become smaller."""
        for link in self._resumer.reducer.over():
            assert link.link is not None
            self._resumer.reducer.left(link, by_peer=False)
            attachment = link.link
            keeping = NEVER_EXPIRES if self._uplinks.owns(link) else None
            self._detacher.detach(link, None, closed=False, keeping=keeping)
            self._uplinks.restart(attachment)
