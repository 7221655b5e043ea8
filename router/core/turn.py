"""The turn under way: what time it is, what has been ordered, what is still to be looked at.

One call of the core is one turn. Deliveries towards one link, and outcomes towards one link,
gather during the turn and go out as runs, one order each, before any other order for that link
and at the latest when the turn ends.
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
    """Who takes note of what is about to go out; see ``Ledger``."""

    def sending(self, link: OutgoingLink, run: list[OutgoingDelivery]) -> None:
        """A run of deliveries is ordered."""

    def aborting(self, link: Link, number: DeliveryNumber) -> None:
        """A delivery in parts is given up."""

    def telling(
        self,
        link: Link,
        numbers: list[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """An update is ordered; repeats may be added to ``numbers``."""


class Turn:
    """Orders of the current call.

    Attributes:
        gate: holds orders back until the journal has what they depend on.
        now: on the clock of whoever calls, in seconds; ``begin`` sets it.
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
        self._telling: list[Link] = []

    def begin(self, now: float) -> None:
        """Begins a turn at a time of the caller's clock, in seconds."""
        self.now = now

    def watched_by(self, watch: Watch) -> None:
        """Reports deliveries and updates to ``watch`` from now on, before they are ordered."""
        self._watch = watch

    # What is to be looked at before the turn ends

    def touch(self, node: Node) -> None:
        """Marks a node: it may be able to send on, or to ask for more."""
        self._touched[node] = None

    def take_touched(self) -> dict[Node, None]:
        """Returns the nodes that were touched, and unmarks them."""
        touched, self._touched = self._touched, {}
        return touched

    def leave(self, node: Node) -> None:
        """Marks a node that somebody has left: perhaps nothing needs it any more."""
        self._left[node] = None

    def take_left(self) -> dict[Node, None]:
        """Returns the nodes that somebody has left, and unmarks them."""
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
        """Marks a delivery in parts, some of which have come or gone, or may go."""
        self._streams[pairing] = None

    def take_streams(self) -> dict[Pairing, None]:
        """Returns the deliveries in parts that have moved, and unmarks them."""
        streams, self._streams = self._streams, {}
        return streams

    def resume(self, link: OutgoingLink) -> None:
        """Marks a link with deliveries that go out before anything new."""
        self._resuming[link] = None

    @property
    def has_resuming(self) -> bool:
        """Whether a link has deliveries that go out before anything new."""
        return bool(self._resuming)

    def take_resuming(self) -> dict[OutgoingLink, None]:
        """Returns the links with deliveries that go out before anything new, and unmarks them."""
        resuming, self._resuming = self._resuming, {}
        return resuming

    def mention(self, link: Link) -> None:
        """Marks a detached link of whose deliveries something was said: perhaps none is left."""
        self._mentioned[link] = None

    @property
    def has_mentioned(self) -> bool:
        """Whether something was said of deliveries of a detached link."""
        return bool(self._mentioned)

    def take_mentioned(self) -> dict[Link, None]:
        """Returns the detached links of whose deliveries something was said, and unmarks them."""
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
        """Orders something at once, before what has gathered."""
        self._orders.append((connection, command))

    def unsent(self, link: OutgoingLink) -> int:
        """Returns how many deliveries of this turn no engine has counted so far."""
        ordered = 0 if link.link is None else self._ordered[link.link]
        return len(link.run) + ordered

    def take_back(self, link: OutgoingLink, count: int) -> list[OutgoingDelivery]:
        """Takes back deliveries of this turn that were to be sent on a link, the last ones first.

        Those stay that are written down already, or cannot wait.
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
        """Takes the run that has gathered for a link that is ending, and returns it."""
        run, link.run = link.run, []
        return run

    def flush(self) -> None:
        """Orders the runs that have gathered."""
        for sending in self._sending:
            self._flush_sending(sending)
        self._sending.clear()
        for telling in self._telling:
            self._flush_telling(telling)
        self._telling.clear()

    def order(self, link: Link, command: Command) -> None:
        """Orders something that concerns a link, after what has gathered for it."""
        self.flush_link(link)
        if self._watch is not None and isinstance(command, AbortDelivery):
            self._watch.aborting(link, command.number)
        if link.connection is not None and not link.connection.is_gone:
            self._issue(link, link.connection, command)

    def order_connection(self, connection: Connection, command: Command) -> None:
        """Orders something that concerns a whole connection."""
        self.flush()
        if not connection.is_gone:
            self._orders.append((connection.id, command))

    def order_attach(self, whose: Hashable, connection: Connection, command: Command) -> None:
        """Orders something of a link of ours that is not attached yet; it may have to wait."""
        self.flush()
        if not connection.is_gone and not self.gate.holds(whose, connection.id, command):
            self._orders.append((connection.id, command))

    def flush_link(self, link: Link) -> None:
        """Orders the runs that have gathered for one link."""
        if isinstance(link, OutgoingLink) and link.run:
            self._flush_sending(link)
        if link.told:
            self._flush_telling(link)

    def send(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        """Adds a delivery to the link's run."""
        if not link.run:
            self._sending.append(link)
        link.run.append(delivery)

    def run_of(self, link: OutgoingLink) -> list[OutgoingDelivery]:
        """Returns the link's run, to be added to at once."""
        if not link.run:
            self._sending.append(link)
        return link.run

    def tell(
        self,
        link: Link,
        numbers: Iterable[DeliveryNumber],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        """Adds deliveries to the link's run of updates."""
        if link.told and (
            link.told_settled is not settled
            or (link.told_state is not state and link.told_state != state)
        ):
            self.flush_link(link)
        if not link.told:
            self._telling.append(link)
            if link.is_detached:
                self.mention(link)
            link.told_state = state
            link.told_settled = settled
        link.told.extend(numbers)

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

    def _flush_telling(self, link: Link) -> None:
        numbers = link.told
        if not numbers:
            return
        link.told = []
        connection = link.connection
        if self._watch is not None:
            self._watch.telling(link, numbers, link.told_state, link.told_settled)
        if connection is not None and link.link is not None and not connection.is_gone:
            update = UpdateDeliveries(link.link, numbers, link.told_state, link.told_settled)
            self._issue(link, connection, update)

    def _issue(self, link: Link, connection: Connection, command: Command) -> None:
        if not self.gate.holds(link, connection.id, command):
            self._orders.append((connection.id, command))
            if isinstance(command, SendDeliveries):
                self._ordered[command.link] += len(command.deliveries)
