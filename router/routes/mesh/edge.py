"""An edge: the sidecar beside an application, with one active uplink and others that are warm.

An edge knows no mesh: it floods nothing, has no tree, and sends whatever is not for its own
receivers to its active uplink (the default route). The hub there speaks for it (``hub``).

Uplinks are in the order of the configuration. Each has a connection and hellos all the time, so a
fail-over needs no handshake::

    DOWN -- connected --> CONNECTED -- hello that has heard us --> WARM -- chosen --> ACTIVE
      ^                      |                                      |                   |
      +----------------------+-- connection lost, or silence -------+-------------------+

The first choice waits a second for uplinks that precede the one that is warm: they may start at the
same time. When the active uplink is lost the first warm one becomes active at once, and gets all
addresses in one message or several; changes follow by number, and a hub that misses one asks for
the whole. A lost connection counts at once, silence after 3 s. An edge does not go back to an
uplink of its own accord: it would move all of its traffic for nothing. At most one uplink is
active; the hello that says so goes to the new one only after the old one was told otherwise, if
that still listens.
"""

from collections.abc import Iterator, Sequence

from router.routes.mesh.events import (
    AddressAttached,
    AddressDetached,
    AddressKept,
    CloseConnection,
    Event,
    LinkChanged,
    MessageBroken,
    MessageReceived,
    NeighborConnected,
    NeighborLost,
    Order,
    Reconfigured,
    RouterRefused,
    SendMessage,
)
from router.routes.mesh.mesh import LATE_SECONDS
from router.routes.mesh.messages import EDGE_ADDRESSES_MOST
from router.routes.mesh.neighbors import HELLO_SECONDS, Neighbor
from router.routes.mesh.nouns import (
    DEFAULT_COST,
    EdgeAddresses,
    EdgeAsk,
    Hello,
    Message,
    Refusal,
    Role,
    RouterId,
)
from router.routes.mesh.paths import Through, Way
from router.routes.mesh.survey import LinkState, Survey

ADDRESSES_IN_MESSAGE = 256

PREFERENCE_SECONDS = 1.0
"""How long the first choice waits for an uplink that precedes the ones that are up."""


class Edge:
    """The control plane of one edge.

    Attributes:
        router: its id.
        active: the uplink to which everything goes; None: there is none, so no credit is granted.
    """

    def __init__(self, router: RouterId, epoch: int, uplinks: Sequence[RouterId]) -> None:
        """Makes the machine.

        Args:
            router: the edge's id.
            epoch: above that of all earlier starts.
            uplinks: ids of the hubs, the preferred one first.
        """
        self.router, self._epoch = router, epoch
        self._order = tuple(uplinks)
        self._neighbors: dict[RouterId, Neighbor] = {}
        self._addresses: dict[str, dict[str, None]] = {}
        self._orders: list[Order] = []
        self._number = 0
        self._expected_at: float | None = None
        self._choose_at: float | None = None
        self._has_chosen = False
        self.active: RouterId | None = None

    @property
    def preferred(self) -> RouterId:
        """The first uplink of the configuration."""
        return self._order[0]

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is to be called."""
        timers = [min(one.hello_at, one.dead_at) for one in self._neighbors.values()]
        if self._choose_at is not None:
            timers.append(self._choose_at)
        return min(timers, default=None)

    def way(self) -> Way | None:
        """Returns the default route: where all goes that is not for the edge's own receivers."""
        if self.active is None:
            return None
        cost = self._neighbors[self.active].cost
        return Way(egress=self.active, through=Through.ROUTER, hop=self.active, cost=cost)

    def handle(self, event: Event, now: float) -> list[Order]:
        """Handles an event."""
        self._excuse(now)
        match event:
            case NeighborConnected(uplink):
                self._on_connected(uplink, now)
            case NeighborLost(uplink):
                self._drop(uplink, "the connection is lost", now)
            case MessageReceived(uplink, message):
                self._on_message(uplink, message, now)
            case MessageBroken(uplink, rule):
                self._expel(uplink, rule, now)
            case AddressAttached(address, place):
                self._attach(address, place)
            case AddressDetached(address, place):
                self._detach(address, place)
            case Reconfigured(uplinks=uplinks):
                self._follow(uplinks, now)
            case _:
                pass  # an edge has no loads
        return self._finish(now)

    def handle_deadline(self, now: float) -> list[Order]:
        """Handles timers."""
        self._excuse(now)
        for uplink in list(self._neighbors.values()):
            if now >= uplink.dead_at:
                reason = f"nothing was heard for {uplink.silence(now):.1f} s"
                self._drop(uplink.id, reason, now)
                self._orders.append(CloseConnection(uplink.id, reason))
            elif now >= uplink.hello_at:
                self._greet(uplink, now)
        if self._choose_at is not None and now >= self._choose_at:
            self._choose(now)
        return self._finish(now)

    def serves(self, address: str) -> bool:
        """Returns whether an address has receivers here."""
        return address in self._addresses

    def survey(self) -> Survey:
        """Returns what people see of the mesh: the uplinks."""
        up = {id for id, one in self._neighbors.items() if one.is_up}
        links = (
            LinkState(
                router=id,
                cost=self._neighbors[id].cost if id in up else DEFAULT_COST,
                is_up=id in up,
                is_active=id == self.active,
            )
            for id in self._order
        )
        return Survey(router=self.router, links=tuple(links), sites=(), is_edge=True)

    def _follow(self, uplinks: tuple[RouterId, ...], now: float) -> None:
        """Adopts other uplinks; one that is gone is left."""
        gone = set(self._order) - set(uplinks)
        self._order = uplinks
        for id in gone & self._neighbors.keys():
            reason = f"{id} is no uplink of this edge any more"
            self._drop(id, reason, now)
            self._orders.append(CloseConnection(id, reason))

    def _on_connected(self, id: RouterId, now: float) -> None:
        if id not in self._order:
            reason = f"{id} is no uplink of this edge"
            self._orders.append(CloseConnection(id, reason))
            return
        self._drop(id, "it has connected again", now)
        self._neighbors[id] = Neighbor(id, now)
        self._greet(self._neighbors[id], now)

    def _on_message(self, id: RouterId, message: Message, now: float) -> None:
        uplink = self._neighbors.get(id)
        if uplink is None:
            return
        match message:
            case Hello():
                self._on_hello(uplink, message, now)
            case Refusal(rule):
                self._drop(id, f"it refuses this edge: {rule}", now)
                self._orders.append(CloseConnection(id, rule))
            case EdgeAsk() if id == self.active:
                self._send_all()
            case _:
                pass  # a hub sends nothing else to an edge; it is of a later version

    def _on_hello(self, uplink: Neighbor, hello: Hello, now: float) -> None:
        was_up, was_heard = uplink.is_up, bool(uplink.epoch)
        rule = uplink.hear(hello, self._epoch, now)
        if rule is None and hello.role is not Role.ROUTER:
            rule = f"{uplink.id} is an edge, too, and cannot be an uplink"
        if rule is not None:
            self._expel(uplink.id, rule, now)
            return
        if not was_heard:
            self._greet(uplink, now)
        if uplink.is_up and not was_up:
            self._orders.append(LinkChanged(uplink.id, True, "both ends have said hello"))
            self._choose(now)

    def _choose(self, now: float) -> None:
        """Makes the first uplink that is up the active one, if there is none."""
        if self.active is not None:
            return
        up = (id for id in self._order if id in self._neighbors and self._neighbors[id].is_up)
        chosen = next(up, None)
        if chosen is None:
            self._choose_at = None
        if chosen is None or self._waits_for_another(chosen, now):
            return
        self.active, self._has_chosen, self._choose_at = chosen, True, None
        self._greet(self._neighbors[chosen], now)
        self._send_all()

    def _waits_for_another(self, warm: RouterId, now: float) -> bool:
        """Returns whether uplinks that precede a warm one have time left to come up."""
        if self._has_chosen or warm == self.preferred:
            return False
        if self._choose_at is None:
            self._choose_at = now + PREFERENCE_SECONDS
        return now < self._choose_at

    def _drop(self, id: RouterId, reason: str, now: float) -> None:
        uplink = self._neighbors.pop(id, None)
        if uplink is None:
            return
        if self.active == id:
            self.active = None
            self._greet(uplink, now)  # it may hear that it is not active any more
        if uplink.is_up:
            self._orders.append(LinkChanged(id, False, reason))
        self._choose(now)

    def _expel(self, id: RouterId, rule: str, now: float) -> None:
        self._orders += [
            RouterRefused(id, id, rule, 1),
            SendMessage(id, Refusal(rule)),
        ]
        self._drop(id, rule, now)
        self._orders.append(CloseConnection(id, rule))

    def _greet(self, uplink: Neighbor, now: float) -> None:
        uplink.hello_at = now + HELLO_SECONDS
        hello = Hello(
            router=self.router,
            epoch=self._epoch,
            heard=uplink.epoch,
            role=Role.EDGE,
            is_active=uplink.id == self.active,
        )
        self._orders.append(SendMessage(uplink.id, hello))

    def _attach(self, address: str, place: str) -> None:
        if address in self._addresses:
            self._addresses[address][place] = None
            return
        if len(self._addresses) >= EDGE_ADDRESSES_MOST:
            rule = f"an edge has at most {EDGE_ADDRESSES_MOST} addresses"
            self._orders.append(AddressKept(address, rule))
            return
        self._addresses[address] = {place: None}
        self._tell(EdgeAddresses(self._next(), False, (address,)))

    def _detach(self, address: str, place: str) -> None:
        places = self._addresses.get(address, {})
        if places.pop(place, "") is None and not places:
            del self._addresses[address]
            self._tell(EdgeAddresses(self._next(), False, (), (address,)))

    def _send_all(self) -> None:
        """Tells the active uplink all addresses: the first message replaces what it knew."""
        self._number = 0
        for at, piece in enumerate(_pieces(tuple(self._addresses))):
            self._tell(EdgeAddresses(self._next(), at == 0, piece))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _tell(self, message: EdgeAddresses) -> None:
        if self.active is not None:
            self._orders.append(SendMessage(self.active, message))

    def _excuse(self, now: float) -> None:
        if self._expected_at is not None and now - self._expected_at > LATE_SECONDS:
            for uplink in self._neighbors.values():
                uplink.excuse(now - self._expected_at)

    def _finish(self, now: float) -> list[Order]:
        deadline = self.deadline
        self._expected_at = None if deadline is None else max(now, deadline)
        orders, self._orders = self._orders, []
        return orders


def _pieces(addresses: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield addresses[:ADDRESSES_IN_MESSAGE]
    for at in range(ADDRESSES_IN_MESSAGE, len(addresses), ADDRESSES_IN_MESSAGE):
        yield addresses[at : at + ADDRESSES_IN_MESSAGE]
