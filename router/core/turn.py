"""The current turn: its time, its orders, and the nodes and links to review before it ends.

One call of the core is one turn. Deliveries for one link, and updates for one link, are gathered
during the turn and ordered as runs, one order each, before any other order for that link and at the
latest when the turn ends.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, KeysView
from typing import Protocol as Interface

from router.core.gate import Gate
from router.core.node import Node
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.commands import AbortDelivery, Command, SendDeliveries, UpdateDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.identity import ConnectionId, DeliveryNumber, LinkId
from router.model.outcome import DeliveryState

Order = tuple[ConnectionId, Command]


class Watch(Interface):
    """Records deliveries and updates before they are ordered; see ``Ledger``."""

    def sending(self, link: OutgoingLink, run: list[OutgoingDelivery]) -> None:
        """A run of deliveries is ordered."""

    def aborting(self, link: Link, number: DeliveryNumber) -> None:
        """A delivery in parts is given up."""

    def updating(
        self,
        link: Link,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """An update is ordered; repeats may be added to ``numbers``."""


class Turn:
    """The orders of the current call.

    Attributes:
        gate: holds orders back until the records that they depend on are durable.
        now: the caller's clock, in seconds; ``begin`` sets it.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.gate = Gate()
        self._watch: Watch | None = None
        self._orders: list[Order] = []
        self._touched: dict[Node, None] = {}
        self._streams: dict[Pairing, None] = {}
        self._left: dict[Node, None] = {}
        self._grantable: dict[IncomingLink, None] = {}
        self._resuming: dict[OutgoingLink, None] = {}
        self._mentioned: dict[Link, None] = {}
        self._ordered: Counter[LinkId] = Counter()
        self._sending: list[OutgoingLink] = []
        self._updating: list[Link] = []

    def begin(self, now: float) -> None:
        """Begins a turn at a time of the caller's clock, in seconds."""
        self.now = now

    def watched_by(self, watch: Watch) -> None:
        """Reports deliveries and updates to ``watch`` from now on, before they are ordered."""
        self._watch = watch

    # Nodes and links to review before the turn ends

    def touch(self, node: Node) -> None:
        """Marks a node that may be able to forward deliveries or to grant credit."""
        self._touched[node] = None

    def take_touched(self) -> dict[Node, None]:
        """Returns the nodes that were touched, and unmarks them."""
        touched, self._touched = self._touched, {}
        return touched

    def leave(self, node: Node) -> None:
        """Marks a node that a link has left: it may not be needed any more."""
        self._left[node] = None

    def take_left(self) -> dict[Node, None]:
        """Returns and unmarks the nodes that links have left."""
        left, self._left = self._left, {}
        return left

    def review_credit(self, incoming: IncomingLink) -> None:
        """Marks a link that may be granted credit."""
        self._grantable[incoming] = None

    def review_credits(self, links: Iterable[IncomingLink]) -> None:
        """Marks links that may be granted credit."""
        self._grantable.update(dict.fromkeys(links))

    @property
    def grantable(self) -> KeysView[IncomingLink]:
        """Links that may be granted credit."""
        return self._grantable.keys()

    def take_grantable(self) -> dict[IncomingLink, None]:
        """Returns the links that may be granted credit, and unmarks them."""
        grantable, self._grantable = self._grantable, {}
        return grantable

    def stream_moved(self, pairing: Pairing) -> None:
        """Marks a delivery in parts of which some were received or sent, or may be sent."""
        self._streams[pairing] = None

    def take_streams(self) -> dict[Pairing, None]:
        """Returns the deliveries in parts that have moved, and unmarks them."""
        streams, self._streams = self._streams, {}
        return streams

    def resume(self, link: OutgoingLink) -> None:
        """Marks a link with deliveries to resume before any new delivery."""
        self._resuming[link] = None

    @property
    def has_resuming(self) -> bool:
        """Whether a link has deliveries that go out before anything new."""
        return bool(self._resuming)

    def take_resuming(self) -> dict[OutgoingLink, None]:
        """Returns and unmarks the links with deliveries to resume."""
        resuming, self._resuming = self._resuming, {}
        return resuming

    def mention(self, link: Link) -> None:
        """Marks a detached link after a disposition for its deliveries: none may be left."""
        self._mentioned[link] = None

    @property
    def has_mentioned(self) -> bool:
        """Whether there were dispositions for deliveries of a detached link."""
        return bool(self._mentioned)

    def take_mentioned(self) -> dict[Link, None]:
        """Returns and unmarks the detached links with dispositions for their deliveries."""
        mentioned, self._mentioned = self._mentioned, {}
        return mentioned

    # Orders

    def take_orders(self) -> list[Order]:
        """Ends the turn."""
        self.flush()
        orders, self._orders = self._orders, []
        self._ordered.clear()
        return orders

    def issue(self, connection: ConnectionId, command: Command) -> None:
        """Orders a command at once, before the gathered runs."""
        self._orders.append((connection, command))

    def unsent(self, link: OutgoingLink) -> int:
        """Returns how many deliveries of this turn no engine has counted yet."""
        ordered = 0 if link.link is None else self._ordered[link.link]
        return len(link.run) + ordered

    def take_back(self, link: OutgoingLink, count: int) -> list[OutgoingDelivery]:
        """Takes back deliveries of this turn that were to be sent on a link, the last ones first.

        Deliveries that are recorded already, or cannot wait, stay.
        """
        runs = [link.run]
        if not link.is_recorded:
            for _, command in reversed(self._orders):
                if isinstance(command, SendDeliveries) and command.link == link.link:
                    runs.append(command.deliveries)
        back: list[OutgoingDelivery] = []
        for run in runs:
            while run and len(back) < count:
                delivery = run[-1]
                pairing = link.unsettled.get(delivery.number)
                if pairing is None or pairing.fan is not None or delivery.resume or delivery.more:
                    return back
                back.append(run.pop())
        return back

    @staticmethod
    def recall(link: OutgoingLink) -> list[OutgoingDelivery]:
        """Removes and returns the gathered run of a link that is ending."""
        run, link.run = link.run, []
        return run

    def flush(self) -> None:
        """Orders all gathered runs."""
        for sending in self._sending:
            self._flush_sending(sending)
        self._sending.clear()
        for updating in self._updating:
            self._flush_updates(updating)
        self._updating.clear()

    def order(self, link: Link, command: Command) -> None:
        """Orders a command for a link, after its gathered runs."""
        self.flush_link(link)
        if self._watch is not None and isinstance(command, AbortDelivery):
            self._watch.aborting(link, command.number)
        if link.connection is not None and not link.connection.is_gone:
            self._issue(link, link.connection, command)

    def order_connection(self, connection: Connection, command: Command) -> None:
        """Orders a command for a connection."""
        self.flush()
        if not connection.is_gone:
            self._orders.append((connection.id, command))

    def order_attach(self, whose: Hashable, connection: Connection, command: Command) -> None:
        """Orders the attach of an uplink; it may have to wait."""
        self.flush()
        if not connection.is_gone and not self.gate.holds(whose, connection.id, command):
            self._orders.append((connection.id, command))

    def flush_link(self, link: Link) -> None:
        """Orders the gathered runs of one link."""
        if isinstance(link, OutgoingLink) and link.run:
            self._flush_sending(link)
        if link.update_numbers:
            self._flush_updates(link)

    def send(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        """Adds a delivery to the link's run."""
        if not link.run:
            self._sending.append(link)
        link.run.append(delivery)

    def run_of(self, link: OutgoingLink) -> list[OutgoingDelivery]:
        """Returns the link's run; the caller must add to it at once."""
        if not link.run:
            self._sending.append(link)
        return link.run

    def update(
        self,
        link: Link,
        numbers: Iterable[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Adds deliveries to the link's run of updates."""
        if link.update_numbers and (
            link.update_settled is not settled
            or (link.update_state is not state and link.update_state != state)
        ):
            self.flush_link(link)
        if not link.update_numbers:
            self._updating.append(link)
            if link.is_detached:
                self.mention(link)
            link.update_state = state
            link.update_settled = settled
        link.update_numbers.extend(numbers)

    def _flush_sending(self, link: OutgoingLink) -> None:
        run = link.run
        if not run:
            return
        link.run = []
        connection = link.connection
        if connection is not None and link.link is not None and not connection.is_gone:
            if self._watch is not None and link.is_recorded:
                self._watch.sending(link, run)
            self._issue(link, connection, SendDeliveries(link.link, run))

    def _flush_updates(self, link: Link) -> None:
        numbers = link.update_numbers
        if not numbers:
            return
        link.update_numbers = []
        connection = link.connection
        if self._watch is not None:
            self._watch.updating(link, numbers, link.update_state, link.update_settled)
        if connection is not None and link.link is not None and not connection.is_gone:
            update = UpdateDeliveries(link.link, numbers, link.update_state, link.update_settled)
            self._issue(link, connection, update)

    def _issue(self, link: Link, connection: Connection, command: Command) -> None:
        if not self.gate.holds(link, connection.id, command):
            self._orders.append((connection.id, command))
            if isinstance(command, SendDeliveries):
                self._ordered[command.link] += len(command.deliveries)
