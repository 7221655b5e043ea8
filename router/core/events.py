"""Dispatch of the events of connections.

Before a machine acts on an event, other machines may pass it on or hold it: events of links that
live on another worker are sent there (``passage``), siblings exchange advertisements and state
(``network``, ``memories``), events of peers behind a sibling are handled as if the peers were
connected here (guests), and a receiver's attach may wait until siblings know of it (``announce``).
All other events are dispatched by the table.

A link is looked up among those of the event's connection: an event of an ended link has no effect.
States and settlement also apply to links that are only detached.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs

from router.core.announce import Announcer
from router.core.attach import Attacher
from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.dial_in import DialIns
from router.core.filtering import Filtering
from router.core.forward import Forwarder
from router.core.govern import Governor
from router.core.guests import Guests
from router.core.lanes import Lanes
from router.core.memories import Memories
from router.core.mesh.control import Control
from router.core.mesh.names import is_neighbor, is_site
from router.core.network import Network
from router.core.node import Feed
from router.core.passage import Passages
from router.core.pulls import Pulls
from router.core.reach import is_sibling, is_told
from router.core.refusals import Refusals
from router.core.relay import Relay
from router.core.restore_wait import RestoreWait
from router.core.resume import Resumer
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams
from router.core.surplus import Surplus, is_between_routers
from router.core.uplinks import Uplinks
from router.core.watch import Watchers
from router.core.ways import WayFinder
from router.links.link import Connection, IncomingLink, Octets, OutgoingLink
from router.model.commands import CloseConnection, ReportRecorded
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    AddressesReached,
    AddressesWatched,
    AttachConfirmed,
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    CreditReturned,
    DeliveriesAdopted,
    DeliveriesRecalled,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
    MemoryLeft,
    MemorySought,
    MessageUnrouted,
    OutputPending,
    PartsTaken,
    RecordAwaited,
    SessionEnded,
    SubscriptionEnded,
    WaitingReported,
    WaysAdvertised,
)
from router.model.identity import ConnectionId, DeliveryNumber
from router.model.outcome import UNSENT

OVERRUN: Final = 2
"""How many times the budget of octets may be used by what publishers leave behind as they go."""


TOLD_MOST: Final = 1000
"""Addresses without a route that are logged; messages to others are only counted."""


@attrs.define(eq=False, kw_only=True)
class Events:
    """Dispatches the events of all connections to the core's machines.

    Attributes:
        dialed: connections that we dialed and that have not opened: the container's name of each.
        unrouted: how many messages no route took whose senders have not been told.
    """

    _state: State
    _announcer: Announcer
    _attacher: Attacher
    _detacher: Detacher
    _dial_ins: DialIns
    _filtering: Filtering
    _forwarder: Forwarder
    _governor: Governor
    _granter: Granter
    _guests: Guests
    _lanes: Lanes
    _memories: Memories
    _mesh: Control
    _network: Network
    _passages: Passages
    _pulls: Pulls
    _refusals: Refusals
    _relay: Relay
    _restore_wait: RestoreWait
    _resumer: Resumer
    _settler: Settler
    _streams: Streams
    _surplus: Surplus
    _uplinks: Uplinks
    _watchers: Watchers
    _ways: WayFinder
    dialed: dict[ConnectionId, str] = attrs.field(factory=dict, init=False)
    unrouted: int = attrs.field(default=0, init=False)
    _told: set[str] = attrs.field(factory=set, init=False)
    _table: dict[type[Event], Callable[[Connection, Event], None]] = attrs.field(init=False)

    @_table.default
    def _make_table(self) -> dict[type[Event], Callable[[Connection, Event], None]]:
        return {
            DeliveriesAdopted: self._adopted,
            DeliveriesReceived: self._received,
            DeliveriesUpdated: self._updated,
            DeliveryContinued: self._continued,
            DeliveryAborted: self._aborted,
            PartsTaken: self._parts_taken,
            CreditGranted: self._credit_granted,
            CreditReturned: self._credit_returned,
            RecordAwaited: self._record_awaited,
            WaysAdvertised: self._ways.advertised,
            WaitingReported: self._surplus.reported,
            DeliveriesRecalled: self._surplus.recalled,
            LinkAttached: self._attached,
            AttachConfirmed: self._attach_confirmed,
            LinkDetached: self._detached,
            SessionEnded: self._session_ended,
            SubscriptionEnded: self._subscription_ended,
            MessageUnrouted: self._unrouted,
            AddressesWatched: self._watchers.begin,
            AddressesReached: self._watchers.reached,
            OutputPending: self._output_pending,
            MemorySought: self._memories.sought,
            MemoryLeft: self._memories.memory_left,
            ConnectionClosed: self._closed,
        }

    def receive(self, connection: ConnectionId, events: Sequence[Event]) -> None:
        """Handles events of one connection, in their order."""
        known = self._state.registry.connections.get(connection)
        for event in events:
            if known is None:
                if isinstance(event, ConnectionOpened):
                    known = self._admit(connection, event)
                continue
            if self._passages.handle(known, event):
                continue
            if known.configured is not None:
                if self._network.handle(known, event) or self._memories.handle(known, event):
                    continue
                if self._mesh.handle(known, event):
                    continue
                leads_through = is_sibling(known) or is_site(known)
                if leads_through and (guest := self._guests.find(known, event)) is not None:
                    if not self._restore_wait.holds(guest, event):
                        self._handle_guest(guest, event)
                    continue
            self._consider(known, event)

    def _consider(self, connection: Connection, event: Event) -> None:
        """Handles an event, unless its link's attach waits."""
        if not (
            self._restore_wait.holds(connection, event)
            or self._filtering.holds(connection, event)
            or self._announcer.holds(connection, event)
        ):
            self.act(connection, event)

    def release_waiting(self) -> None:
        """Handles the events that waited for the journal's unsettled deliveries."""
        for connection, event in self._restore_wait.take():
            if connection.is_gone:
                continue
            if connection.guest is not None:
                self._handle_guest(connection, event)
            else:
                self._consider(connection, event)

    def act(self, connection: Connection, event: Event) -> None:
        """Does what an event asks for."""
        handler = self._table.get(type(event))
        if handler is not None:
            handler(connection, event)

    def _handle_guest(self, guest: Connection, event: Event) -> None:
        self.act(guest, event)
        if isinstance(event, LinkAttached | LinkDetached):
            self._guests.left(guest, event.link)

    def lost(self, connection: ConnectionId) -> None:
        """Records that a connection's socket is gone."""
        self.dialed.pop(connection, None)
        known = self._state.registry.connections.get(connection)
        if known is not None:
            self._closed(known, ConnectionClosed())

    # --- connections ------------------------------------------------------------------------------

    def _admit(self, connection: ConnectionId, event: ConnectionOpened) -> Connection | None:
        """Admits a connection, unless a limit forbids it; then its further events are ignored."""
        if connection in self.dialed:
            return self._opened(connection, event)
        site = self._mesh.name_of(event)
        if isinstance(site, str):
            return self._opened(connection, event, site=site)
        if site is not None:
            self._turn_away(connection, site)
            return None
        refusal = self._governor.judge(connection, event)
        if refusal is not None:
            self._state.turn.issue(connection, CloseConnection(refusal))
            return None
        found = self._dial_ins.find(event)
        if isinstance(found, Condition):
            self._turn_away(connection, found)
            return None
        opened = self._opened(connection, event, found)
        self._governor.admitted(opened, event)
        return opened

    def _turn_away(self, connection: ConnectionId, reason: Condition) -> None:
        self._governor.turned_away(connection, reason)
        self._state.turn.issue(connection, CloseConnection(reason))

    def _opened(
        self,
        connection: ConnectionId,
        event: ConnectionOpened,
        dialed_in: str | None = None,
        *,
        site: str | None = None,
    ) -> Connection:
        """Records a connection that has opened.

        Args:
            connection: its id.
            event: what the peer has said.
            dialed_in: the container that has dialed in.
            site: the router of the mesh that has dialed.
        """
        opened = Connection(
            id=connection,
            container=event.container,
            user=event.user,
            capabilities=event.capabilities,
            octets=Octets(self._state.settings.connection_octets),
            configured=self.dialed.pop(connection, dialed_in or site),
            has_dialed_in=dialed_in is not None,
        )
        self._state.registry.connections[connection] = opened
        if self._passages.leads_here(opened):
            self._passages.joined(opened)
            return opened
        if is_neighbor(opened):
            self._site_opened(opened, is_ours=site is None)
        elif opened.has_dialed_in:
            self._dial_ins.came(opened)
        elif opened.configured is not None:
            self._uplinks.came(opened)
            self._network.reviewed(opened)
        if is_sibling(opened):
            self._network.joined(opened)
            self._passages.joined(opened)
            self._memories.joined(opened)
        return opened

    def _site_opened(self, opened: Connection, *, is_ours: bool) -> None:
        """Has a connection serve the mesh, unless there is a better one to the same router."""
        reason = self._mesh.opened(opened, is_ours=is_ours)
        if reason is None:
            self._passages.joined(opened)
            self._uplinks.came(opened)
        else:
            self._state.turn.order_connection(opened, CloseConnection(reason))

    def _closed(self, connection: Connection, event: Event) -> None:
        connection.is_gone = True
        self._state.registry.connections.pop(connection.id, None)
        self._governor.left(connection.id)
        self._uplinks.left(connection)
        self._network.reviewed(connection)
        self._dial_ins.left(connection)
        self._network.left(connection)
        self._mesh.left(connection)
        self._watchers.connection_lost(connection)
        self._passages.left(connection)
        self._memories.left(connection)
        for each in (connection, *self._guests.of(connection)):
            each.is_gone = True
            self._filtering.connection_lost(each)
            self._detacher.connection_lost(each)
            self._granter.connection_lost(each)

    # --- links ------------------------------------------------------------------------------------

    def _attached(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, LinkAttached)
        if event.is_answer:
            self._uplinks.answered(connection, event)
        else:
            self._attacher.requested(connection, event)
        link = connection.incoming.get(event.link) or connection.outgoing.get(event.link)
        if link is not None:
            link.session = None if connection.guest is not None else event.session
            if event.is_answer:
                self._state.ledger.attached(link)
            self._lanes.attached(link)
            self._surplus.attached(link)

    def _attach_confirmed(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, AttachConfirmed)
        link = connection.incoming.get(event.link) or connection.outgoing.get(event.link)
        if link is not None:
            self._attacher.confirmed(link)

    def _detached(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, LinkDetached)
        if self._uplinks.detached(event) or self._watchers.end(event.link):
            return
        link = connection.incoming.get(event.link) or connection.outgoing.get(event.link)
        if link is not None:
            if event.condition is None and not event.closed:
                self._resumer.reducer.left(link, by_peer=True)
            self._detacher.lost(
                link,
                closed=event.closed,
                condition=event.condition,
                is_numbered=event.is_numbered and link.session is not None,
            )
        elif event.link in connection.detached:
            self._detacher.part(connection.detached[event.link])

    def _session_ended(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, SessionEnded)
        self._detacher.session_ended(connection, event.session)

    def _subscription_ended(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, SubscriptionEnded)
        self._uplinks.subscription_ended(connection, event)

    def _unrouted(self, connection: Connection, event: Event) -> None:
        """Counts a message that no route took, and logs each address once."""
        assert isinstance(event, MessageUnrouted)
        self.unrouted += 1
        if event.address in self._told or len(self._told) >= TOLD_MOST:
            return
        self._told.add(event.address)
        self._state.notices.warn(
            "delivery.unrouted",
            connection=connection.id,
            container=connection.container,
            address=event.address,
            condition=str(event.condition),
        )

    # --- deliveries -------------------------------------------------------------------------------

    def _received(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, DeliveriesReceived)
        incoming = connection.incoming.get(event.link)
        if incoming is None:
            return
        feed = incoming.queue
        was_express = incoming.is_express
        if isinstance(feed, Feed) and feed.node.is_express:
            if self._lanes.take(feed, event.deliveries):
                return
        if not was_express:  # else it has just come off the lane, which has counted them
            if len(event.deliveries) > incoming.credit and self._is_too_much(event.deliveries):
                self._state.turn.review_credit(incoming)
                self._settler.turn_away(incoming, event.deliveries)
                return
            is_guest = connection.guest is not None
            incoming.use_credit(len(event.deliveries), counts_ahead=is_guest)
            if connection.pace is not None and incoming.is_draining:
                connection.pace.charge(len(event.deliveries), self._state.turn.now)
        self._state.turn.review_credit(incoming)
        if incoming.names is not None:
            self._pulls.received(incoming, event.deliveries)
        elif isinstance(feed, Feed):
            self._lanes.consider(feed.node)
            self._forwarder.received(feed, event.deliveries)
        else:
            self._relay.received(incoming, event.deliveries)

    def _is_too_much(self, deliveries: Sequence[ReceivedDelivery]) -> bool:
        """Returns whether there is no memory left for what a publisher leaves behind as it goes."""
        process = self._state.registry.process
        return process.used >= OVERRUN * process.limit and all(each.settled for each in deliveries)

    def _adopted(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, DeliveriesAdopted)
        self._lanes.adopt(event.pairs)

    def _continued(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, DeliveryContinued)
        incoming = connection.incoming.get(event.link)
        if incoming is not None:
            self._state.ledger.continued(incoming, event)
            self._streams.continued(incoming, event)

    def _aborted(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, DeliveryAborted)
        incoming = connection.incoming.get(event.link)
        if incoming is not None:
            self._state.ledger.aborted(incoming, event.number)
            self._streams.aborted(incoming, event)

    def _parts_taken(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, PartsTaken)
        link = connection.outgoing.get(event.link)
        node = None if link is None else self._state.registry.node_of(link)
        if link is not None and node is not None:
            link.takes_parts = True
            self._state.turn.touch(node)

    def _updated(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, DeliveriesUpdated)
        outgoing = connection.outgoing.get(event.link)
        if outgoing is not None:
            if outgoing.unconfirmed is not None:
                event = _without(event, outgoing.unconfirmed.again)
            self._receiver_updated(outgoing, event)
            return
        incoming = connection.incoming.get(event.link)
        if incoming is not None:
            self._sender_updated(incoming, event)
            return
        detached = connection.detached.get(event.link)
        if detached is None:
            return
        if isinstance(detached, IncomingLink):
            if event.settled:
                self._streams.settled_unfinished(detached, event.numbers)
            self._sender_updated(detached, event)
        else:
            self._receiver_updated(detached, event)
        self._state.turn.mention(detached)

    def _receiver_updated(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        is_guest = link.connection is not None and link.connection.guest
        is_unsent = event.state == UNSENT
        if (is_unsent and is_guest) or (event.is_unsent and self._is_alone(link)):
            self._settler.was_not_sent(link, event.numbers)
            return
        if is_unsent and is_between_routers(link):
            self._surplus.returned(link, event)
            return
        for each in self._refusals.read(link, event):
            self._state.ledger.receiver_updated(link, each)
            self._settler.receiver_updated(link, each)
        if link.keeps and (node := self._state.registry.node_of(link)) is not None:
            self._state.turn.touch(node)  # what is stored may have waited for these

    def _is_alone(self, link: OutgoingLink) -> bool:
        """Returns whether deliveries of a link that promises exactly-once are nobody else's."""
        node = self._state.registry.node_of(link)
        return link.carries_tags and node is not None and not node.is_multicast

    def _sender_updated(self, link: IncomingLink, event: DeliveriesUpdated) -> None:
        self._state.ledger.sender_updated(link, event)
        self._settler.sender_updated(link, event)

    # --- credit and congestion --------------------------------------------------------------------

    def _credit_granted(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, CreditGranted)
        link = connection.outgoing.get(event.link)
        node = None if link is None else self._state.registry.node_of(link)
        if link is None or node is None:
            return
        if not is_told(link, event.credit):
            self._state.registry.opened[node] = None
        if node.is_express and self._lanes.credit_granted(node, link, event):
            return
        turn = self._state.turn
        spare = event.credit - turn.gate.held_deliveries(link) - turn.unsent(link)
        if spare < 0:
            spare += self._settler.take_back(link, -spare)
        link.grant(max(0, spare), width=event.credit, drains=event.drain)
        node.measure()
        self._lanes.consider(node)
        self._granter.receivers_changed(node)
        turn.touch(node)

    def _credit_returned(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, CreditReturned)
        incoming = connection.incoming.get(event.link)
        if incoming is not None:
            self._granter.returned(incoming, event.credit)

    def _record_awaited(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, RecordAwaited)
        link = connection.incoming.get(event.link) or connection.outgoing.get(event.link)
        if link is not None:
            self._state.ledger.await_record(link)
            self._state.turn.order(link, ReportRecorded(event.link))

    def _output_pending(self, connection: Connection, event: Event) -> None:
        assert isinstance(event, OutputPending)
        self._congested(connection, event.congested)
        if is_sibling(connection) or is_site(connection):
            for guest in self._guests.of(connection):
                self._congested(guest, event.congested)
            if not event.congested:
                self._passages.eased(connection)

    def _congested(self, connection: Connection, congested: bool) -> None:
        connection.is_congested = congested
        if not congested:
            for link in connection.outgoing.values():
                if link.partial is not None:
                    self._streams.flow(link.partial)
                node = self._state.registry.node_of(link)
                if node is not None and node.rotation:
                    self._state.turn.touch(node)


def _without(event: DeliveriesUpdated, numbers: Collection[DeliveryNumber]) -> DeliveriesUpdated:
    """Leaves out what an engine gives back unsent of what a receiver may have nevertheless."""
    left = [number for number in event.numbers if number not in numbers]
    return attrs.evolve(event, numbers=left)
