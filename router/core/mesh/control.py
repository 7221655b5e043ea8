"""The control plane over AMQP: the machine of the mesh, and its links to neighbors.

``routes.mesh.mesh.Mesh`` decides; this room gives it events and the time, and carries out its
orders. Neighbors exchange messages on a link in each direction to the address ``CONTROL``; a
message is one delivery, settled by its sender, with an ``amqp-value``.

One connection a neighbor. Both routers may dial each other. Of two connections in different
directions the one is kept that the router with the lesser id has dialed: both ends see that alike,
whichever opened first. Of two in the same direction the older one is stale, and is closed.

A connection of the mesh is authenticated by its certificate: the identity is the router's id, and
the container-id is the same. Where the file says ``tls: off`` the container-id alone is believed.

An edge has dialed its hubs by their places, and knows their ids when they have opened; to its
machine a hub is its place. A router is an edge to its hub if its open says so.

A neighbor that is silent for 3 s is dropped by the machine; its connection is closed, and nothing
is sent on it any more, whether or not the close arrives.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.joint import AMQP_VALUE, Joint
from router.core.mesh.names import (
    CONTROL,
    EDGE,
    edge_name,
    is_edge_name,
    is_neighbor,
    router_named,
    site_name,
    with_dynamic,
)
from router.core.mesh_octets import MESSAGE_OCTETS_MOST, decode_message, encode_message
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import Connection
from router.model import commands
from router.model.condition import CONNECTION_FORCED, NOT_ALLOWED, Condition
from router.model.events import (
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveryContinued,
    LinkAttached,
    LinkDetached,
)
from router.model.events import Event as ConnectionEvent
from router.model.identity import ConnectionId, LinkId
from router.model.terminus import SenderSettleMode
from router.routes.mesh.bodies import Notary
from router.routes.mesh.edge import Edge
from router.routes.mesh.events import (
    AddressKept,
    CloseConnection,
    EdgeServes,
    EpochRaised,
    Event,
    LinkChanged,
    MessageBroken,
    MessageReceived,
    NeighborConnected,
    NeighborLost,
    Order,
    PathsChanged,
    Reconfigured,
    RouterRefused,
    SendMessage,
    TreeReady,
)
from router.routes.mesh.mesh import Mesh, Settings
from router.routes.mesh.nouns import Hello, Role, RouterId

SLICE_SECONDS: Final = 0.001
"""Pause between two slices of the machine's work, in which connections have their turns."""


@attrs.frozen(kw_only=True)
class Plan:
    """What the mesh of a router is made with.

    Attributes:
        settings: what the configuration says, and the epoch of this life.
        notary: signs for this router, and verifies what others have signed.
        uplinks: of an edge: its hubs, the preferred one first; empty: it is no edge.
    """

    settings: Settings
    notary: Notary
    uplinks: tuple[RouterId, ...] = ()


@attrs.define(eq=False)
class _Joint(Joint):
    """A connection to a neighbor, and the exchange on it.

    Attributes:
        router: the neighbor's id.
        is_ours: this router has dialed.
        waiting: messages that wait for credit.
        begun: what has arrived of a message in parts.
    """

    router: RouterId = attrs.field(default=RouterId(""))
    is_ours: bool = False
    waiting: deque[bytes] = attrs.field(factory=deque)
    begun: bytearray = attrs.field(factory=bytearray)


class Control:
    """The control plane of this router.

    Attributes:
        mesh: the machine; None: this router is in no mesh, or is an edge.
        edge: that of an edge.
        notary: signs for this router, and verifies what others have signed; None: there is no mesh.
        followers: called when the answers of ``mesh.paths`` may have changed, or an edge's uplink.
        on_edge: called with an edge of this router, an address, and whether it is served there.
    """

    def __init__(self, state: State, uplinks: Uplinks, link_ids: Iterator[LinkId]) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._uplinks = uplinks
        self._link_ids = link_ids
        self._joints: dict[RouterId, _Joint] = {}
        self._alarm: Alarm | None = None
        self._active: RouterId | None = None
        self.mesh: Mesh | None = None
        self.notary: Notary | None = None
        self.edge: Edge | None = None
        self.on_edge: Callable[[str, str, bool], None] = _ignore
        self.followers: list[Callable[[], None]] = []

    def begin(self, plan: Plan) -> None:
        """Joins the mesh."""
        settings = plan.settings
        if plan.uplinks:
            self.edge = Edge(settings.router, settings.epoch, plan.uplinks)
            return
        own = with_dynamic(settings.router, settings.advertise)
        settings = attrs.evolve(settings, advertise=own)
        self.mesh = Mesh(settings, plan.notary, self._turn.now)
        self.notary = plan.notary
        self._wake()

    @property
    def machine(self) -> Mesh | Edge | None:
        """Decides for this router; None: it is in no mesh."""
        return self.mesh or self.edge

    # Connections

    def name_of(self, event: ConnectionOpened) -> str | Condition | None:
        """Returns the name of a neighbor that has connected to the listener of the mesh.

        None: the connection is no part of the mesh.
        """
        if not event.capabilities.is_site:
            return None
        wrong = self._find_wrong(event)
        if wrong is not None:
            return wrong
        is_edge = bool(event.properties.get(EDGE))
        return edge_name(event.container) if is_edge else site_name(event.container)

    def _find_wrong(self, event: ConnectionOpened) -> Condition | None:
        if self.mesh is None:
            return Condition(NOT_ALLOWED, "this router is in no mesh, or an edge")
        if not event.capabilities.is_neighbor:
            return Condition(NOT_ALLOWED, "only routers of the mesh connect here")
        if event.container == self._settings.router_id:
            return Condition(NOT_ALLOWED, f"{event.container} is this router's own id")
        if event.user is not None and event.user != event.container:
            reason = f"the certificate is that of {event.user}, not of {event.container}"
            return Condition(NOT_ALLOWED, reason)
        return None

    def opened(self, connection: Connection, *, is_ours: bool) -> Condition | None:
        """Records a connection to a neighbor that has opened.

        Returns:
            Why it is to be closed; None: it is the neighbor's from now on.
        """
        assert connection.configured is not None
        wrong = self._find_unfit(connection)
        router = router_named(connection.configured)
        older = self._joints.get(router)
        if wrong is None and older is not None:
            is_preferred = is_ours is (self._settings.router_id < router)
            if is_ours is not older.is_ours and not is_preferred:
                wrong = Condition(CONNECTION_FORCED, f"{router} and this router are connected")
        if wrong is not None:
            return wrong
        if older is not None:
            self._close(older, f"{router} has connected again")
        joint = _Joint(
            connection, connection.configured, CONTROL, self._turn, router=router, is_ours=is_ours
        )
        self._joints[router] = joint
        joint.attach(next(self._link_ids), SenderSettleMode.SETTLED)
        self.tell(NeighborConnected(router))
        return None

    def _find_unfit(self, connection: Connection) -> Condition | None:
        """Returns why a router that was dialed is not the one that the file names."""
        assert connection.configured is not None
        router = router_named(connection.configured)
        here = str(connection.container)
        if self.edge is not None and here == self._settings.router_id:
            return Condition(NOT_ALLOWED, f"{router} has this router's own id, {here}")
        if self.edge is None and here != router:
            return Condition(NOT_ALLOWED, f"{router} was dialed, and {here} is here")
        if not connection.capabilities.is_neighbor:
            return Condition(NOT_ALLOWED, f"{router} is no router of a mesh")
        return None

    def left(self, connection: Connection) -> None:
        """Records that a connection is gone."""
        joint = self._joint_of(connection)
        if joint is not None:
            del self._joints[joint.router]
            self.tell(NeighborLost(joint.router))

    def is_connected(self, router: RouterId) -> bool:
        """Returns whether there is a connection to a neighbor."""
        return router in self._joints

    def is_served(self, container: str) -> bool:
        """Returns whether a container is a neighbor that is connected."""
        joint = self._joints.get(router_named(container))
        return joint is not None and joint.name == container

    @property
    def connections(self) -> dict[RouterId, ConnectionId]:
        """The connection to each neighbor."""
        return {router: joint.connection.id for router, joint in self._joints.items()}

    def _joint_of(self, connection: Connection) -> _Joint | None:
        if not is_neighbor(connection) or connection.configured is None:
            return None
        joint = self._joints.get(router_named(connection.configured))
        return joint if joint is not None and joint.connection is connection else None

    def _close(self, joint: _Joint, reason: str) -> None:
        """Sends nothing more on a connection, and has it closed."""
        self._joints.pop(joint.router, None)
        self._uplinks.part(joint.connection)
        close = commands.CloseConnection(Condition(CONNECTION_FORCED, reason))
        self._turn.order_connection(joint.connection, close)

    # Messages

    def handle(self, connection: Connection, event: ConnectionEvent) -> bool:
        """Handles an event of the exchange with a neighbor; returns False for other events."""
        joint = self._joint_of(connection)
        if joint is None:
            return False
        match event:
            case LinkAttached(is_answer=True, link=link) if link == joint.ours:
                return True
            case LinkAttached() if joint.is_theirs(event):
                joint.accept(event)
            case CreditGranted(link=link, credit=credit) if link == joint.ours:
                joint.credit = credit
                self._flush(joint)
            case LinkDetached(link=link) if link in (joint.ours, joint.theirs):
                self._close(joint, "the link of the mesh's control plane is detached")
                self.tell(NeighborLost(joint.router))
            case DeliveriesReceived(link=link) if link == joint.theirs:
                self._receive(joint, event)
            case DeliveryContinued(link=link) if link == joint.theirs:
                self._continue(joint, event.payload, more=event.more)
            case _:
                return False
        return True

    def _receive(self, joint: _Joint, event: DeliveriesReceived) -> None:
        joint.received(len(event.deliveries))
        for delivery in event.deliveries:
            joint.begun.clear()
            self._continue(joint, delivery.payload, more=delivery.more)

    def _continue(self, joint: _Joint, payload: bytes, *, more: bool) -> None:
        """Adds a part of a message, and hands the message over when it is whole."""
        joint.begun += payload
        is_too_large = len(joint.begun) > MESSAGE_OCTETS_MOST + len(AMQP_VALUE)
        if more and not is_too_large:
            return
        octets = bytes(joint.begun)
        joint.begun.clear()
        if is_too_large:
            message = f"a message has at most {MESSAGE_OCTETS_MOST} octets"
            self.tell(MessageBroken(joint.router, message))
        elif not octets.startswith(AMQP_VALUE):
            self.tell(MessageBroken(joint.router, "a message is an amqp-value"))
        else:
            found = decode_message(octets[len(AMQP_VALUE) :])
            if isinstance(found, Hello):
                found = self._known(joint, found)
            is_broken = isinstance(found, str)
            make = MessageBroken if is_broken else MessageReceived
            self.tell(make(joint.router, found))  # type: ignore[arg-type]

    def _known(self, joint: _Joint, hello: Hello) -> Hello | str:
        """Returns a hello as the machine knows its sender, or the rule that it breaks."""
        if self.edge is None:
            is_edge = hello.role is Role.EDGE
            is_same = is_edge is is_edge_name(joint.name)
            return hello if is_same else f"a hello as {hello.role}, unlike its open"
        here = str(joint.connection.container)
        if hello.router != here:
            return f"a hello of {hello.router} on the connection of {here}"
        return attrs.evolve(hello, router=joint.router)

    def _send(self, router: RouterId, octets: bytes) -> None:
        joint = self._joints.get(router)
        if joint is not None:
            joint.waiting.append(octets)
            self._flush(joint)

    def _flush(self, joint: _Joint) -> None:
        ready = min(joint.credit, len(joint.waiting))
        if ready:
            joint.send([joint.waiting.popleft() for _ in range(ready)], settled=True)

    # The machine

    def tell(self, event: Event) -> None:
        """Hands an event to the machine, and carries out its orders."""
        if isinstance(event, Reconfigured):
            own = with_dynamic(self._settings.router_id, event.advertise)
            event = attrs.evolve(event, advertise=own)
        if self.machine is not None:
            self._carry_out(self.machine.handle(event, self._turn.now))
            self._wake()

    def _due(self) -> None:
        self._alarm = None
        if self.machine is not None:
            self._carry_out(self.machine.handle_deadline(self._turn.now))
            self._wake()

    def _wake(self) -> None:
        """Sets the alarm of the machine's next deadline."""
        assert self.machine is not None
        deadline = self.machine.deadline
        if deadline is None:
            return
        at = max(deadline, self._turn.now + SLICE_SECONDS)
        if self._alarm is None or self._alarm.at != at:
            self._alarms.cancel(self._alarm)
            self._alarm = self._alarms.set(at, self._due)

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case SendMessage(router, message):
                    self._send(router, AMQP_VALUE + encode_message(message))
                case CloseConnection(router, reason):
                    if router in self._joints:
                        self._close(self._joints[router], reason)
                case PathsChanged():
                    self._follow()
                case EdgeServes(edge, address, is_served):
                    self.on_edge(edge_name(edge), address, is_served)
                case TreeReady():
                    pass  # multicasts are sent to each egress on a link of its own
                case _:
                    self._report(order)
        if self.edge is not None and self.edge.active != self._active:
            self._active = self.edge.active
            self._follow()

    def _follow(self) -> None:
        for follow in self.followers:
            follow()

    def _report(self, order: LinkChanged | RouterRefused | AddressKept | EpochRaised) -> None:
        """Has an order logged that is for people."""
        match order:
            case LinkChanged(router, True, _):
                self._notices.add("mesh.link_up", container=router)
            case LinkChanged(router, False, reason):
                self._notices.warn("mesh.link_down", container=router, condition=reason)
            case RouterRefused(router, via, rule, times):
                self._notices.warn(
                    "mesh.refused", container=router, peer=via, condition=rule, count=times
                )
            case AddressKept(address, rule):
                self._notices.warn("mesh.address_kept", address=address, condition=rule)
            case EpochRaised(epoch):
                self._notices.warn("mesh.epoch_raised", count=epoch)


def _ignore(*news: object) -> None:
    """Stands for nobody who wants to know."""
