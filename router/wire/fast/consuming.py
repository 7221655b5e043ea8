"""A client's subscriptions: a link for each, and its capacity (RFC 006 §3.5.4-11).

Theory of operation. HANDLE CONSUME creates an *outlet*, an outgoing link from one address. Its
prefetch is the protocol's credit: how many messages may be unacknowledged. A temporary destination,
and the reply destination of a peer service, are outlets that exist before there is a consumer;
messages meanwhile wait in the outlet's ``backlog``, which can be queried and browsed.

    credit falls  with each delivery
    credit rises  when half of the capacity is free again, or when there was none at all
    credit ends   when the handle is paused (HANDLE FLOW), or closed
"""

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from typing import Protocol as Interface

import attrs

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber, LinkId
from router.wire.fast.framing import END
from router.wire.fast.reply import PeerError, Reply
from router.wire.fast.types import encode_short
from router.wire.recording import Unrecorded
from router.wire.runs import Runs

UNRELIABLE_CAPACITY: Final = 1000
"""Capacity of a subscription without acknowledgements; bounds the deliveries under way to it."""

BACKLOG_CAPACITY: Final = 100
"""Deliveries that a temporary destination accepts while it has no consumer."""


class Kind(enum.Enum):
    """The purpose of an outlet."""

    SUBSCRIPTION = "subscription"
    TEMPORARY = "temporary destination"
    ANSWERS = "answers to a peer's calls"


@attrs.define(eq=False)
class Outlet:
    """An outgoing link of a handle.

    Attributes:
        address: the address; empty until the core has created a dynamic node.
        prefetch: messages that may be unacknowledged; 0: no consumer yet.
        is_unreliable: nothing is acknowledged.
        confirm_tag: of the requesting command, until it is answered.
        credit: credit granted to the core and not used.
        unacknowledged: messages sent and not acknowledged.
        backlog: waiting deliveries, each with its number for browsing.
        stream: the current answer without a known end.
        tail: the destination's name and the end octet, the end of HANDLE NOTIFY.
        may_reduce: the next review may reduce credit.
        asked: answers to HANDLE QUERY and BROWSE of a handle's own destination, in order; the first
            waits for its channel's earlier messages there (``Receiving``).
        follows: it waits until the channel has handed those on.
        drains: it waits until the core has sent them; no credit is granted meanwhile.
        is_exact: its route promises exactly-once.
        unrecorded: replies that wait until outcomes are on record.
        is_leaving: its handle has ended; it is detached when no transaction and no reply needs it.
    """

    link: LinkId
    handle: "OutletHandle"
    kind: Kind
    address: str
    prefetch: int = 0
    is_unreliable: bool = False
    confirm_tag: int = 0
    credit: int = 0
    unacknowledged: int = 0
    is_attached: bool = False
    may_reduce: bool = False
    backlog: deque[tuple[int, OutgoingDelivery]] = attrs.field(factory=deque)
    stream: "OutletStream | None" = None
    tail: bytes = b""
    asked: deque[Callable[[], None]] = attrs.field(factory=deque)
    follows: bool = False
    drains: bool = False
    is_exact: bool = False
    unrecorded: Unrecorded[Any] = attrs.field(factory=Unrecorded)
    is_leaving: bool = False

    def name(self, address: str) -> None:
        """Sets the destination's name."""
        self.address = address
        shown = address.encode()[:255].decode("utf-8", "ignore").replace("\0", "")
        self.tail = encode_short(shown) + END

    @property
    def most(self) -> int:
        """Capacity without deliveries under way."""
        if self.kind is Kind.ANSWERS or self.is_unreliable:
            return UNRELIABLE_CAPACITY
        return self.prefetch or BACKLOG_CAPACITY

    @property
    def capacity(self) -> int:
        """Number of deliveries, under way or not, that it accepts now."""
        if self.handle.is_paused:
            return 0
        return max(self.most - self.unacknowledged - len(self.backlog), 0)

    @property
    def can_deliver(self) -> bool:
        """Whether a message may be sent to the client now."""
        if self.handle.is_paused or not self.is_attached:
            return False
        if self.kind is Kind.ANSWERS or self.is_unreliable:
            return True
        return self.prefetch > self.unacknowledged

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
        self.credit -= len(deliveries)
        channel = self.handle.channel
        if self.is_leaving:
            channel.receiving.give_back(self, deliveries)
            return
        for delivery in deliveries:
            if not self.backlog and self.can_deliver:
                channel.receiving.deliver(self, delivery)
            else:
                self.backlog.append((channel.engine.next_browsed(), delivery))
        if self.follows:
            channel.receiving.pumped(self)
        self._review_if_due()

    def go_on(self, number: DeliveryNumber, payload: bytes, more: bool) -> None:
        """Handles a further part of an answer."""
        stream = self.stream
        if stream is not None and stream.delivery.number == number:
            stream.push(payload, more)

    def abort(self, number: DeliveryNumber) -> None:
        """Records that the sender of an answer has aborted it."""
        stream = self.stream
        if stream is not None and stream.delivery.number == number:
            stream.abort()

    def drained(self) -> None:
        """Records that a drain is complete and the credit used up."""
        self.handle.channel.receiving.drained(self)

    def dispatch(self) -> None:
        """Sends waiting deliveries as far as the client accepts them."""
        while self.backlog and self.can_deliver:
            _, delivery = self.backlog.popleft()
            self.handle.channel.receiving.deliver(self, delivery)
        self._review_if_due()

    def _review_if_due(self) -> None:
        if self._is_due(self.capacity):
            self.handle.channel.engine.review(self)

    def _is_due(self, capacity: int) -> bool:
        gain = capacity - self.credit
        return gain > 0 and (self.credit <= 0 or 2 * gain >= self.most)

    def review(self) -> None:
        """Grants credit as far as there is capacity, and revokes credit beyond the capacity."""
        if not self.is_attached or self.drains or self.is_leaving:
            return
        capacity = self.capacity
        if self._is_due(capacity) or (self.may_reduce and capacity < self.credit):
            self.credit = capacity
            self.handle.channel.engine.runs.add(CreditGranted(self.link, capacity))
        self.may_reduce = False


class OutletStream(Interface):
    """The current answer without a known end (``downstream``)."""

    @property
    def delivery(self) -> OutgoingDelivery:
        """The delivery of the answer."""

    def push(self, payload: bytes, more: bool) -> None:
        """Handles a further part."""

    def abort(self) -> None:
        """Records that its sender has aborted it."""

    def given_up(self) -> None:
        """Records that the client refuses the rest of it."""

    def ended(self) -> None:
        """Records that nothing more of it is sent."""


class OutletEngine(Interface):
    """The part of a connection that its outlets use."""

    runs: Runs

    def next_browsed(self) -> int:
        """Returns the number of the next message for browsing."""

    def review(self, outlet: Outlet) -> None:
        """Reviews a link's credit at the end of the turn."""


class OutletReceiving(Interface):
    """Sends the deliveries of an outlet (``receiving``)."""

    def deliver(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to the client; one that cannot be sent is refused."""

    def give_back(self, outlet: Outlet, deliveries: list[OutgoingDelivery]) -> None:
        """Returns deliveries that the client was not sent."""

    def pumped(self, own: Outlet) -> None:
        """Records that messages to a handle's own destination may have been handed on."""

    def drained(self, own: Outlet) -> None:
        """Records that a drain is complete and the credit used up."""


class OutletChannel(Interface):
    """The part of a channel that its outlets use."""

    id: int

    @property
    def engine(self) -> OutletEngine:
        """The connection."""

    @property
    def receiving(self) -> OutletReceiving:
        """The receiving part of the channel."""

    def attached(self, outlet: Outlet, address: str | None, mode: str | None) -> None:
        """Handles the core's acceptance of an outlet."""

    def refused(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the refusal or the end of an outlet."""


class OutletHandle(Interface):
    """The part of a handle that its outlets use."""

    id: int
    is_paused: bool

    @property
    def service(self) -> enum.IntEnum | None:
        """The service type."""

    @property
    def channel(self) -> OutletChannel:
        """The channel that the handle was opened on."""

    @property
    def is_open(self) -> bool:
        """Whether commands may still be sent on the handle."""

    def reply(self, confirm_tag: int, code: int = Reply.OK, text: str = "") -> None:
        """Confirms a command, if requested (§3.2.11)."""

    def close(self, error: PeerError) -> None:
        """Closes the handle for a fault."""
