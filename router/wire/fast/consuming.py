"""What a client receives: a link for each subscription, and how much it takes (RFC 006 §3.5.4-11).

Theory of operation. HANDLE CONSUME makes an *outlet*, an outgoing link from one address. Its
prefetch is the protocol's credit: how many messages may be unacknowledged. A temporary destination,
and the place where a peer service's answers come to, are outlets that are there before anybody
consumes; what comes meanwhile lies in the outlet's ``backlog``, which can be queried and browsed.

    credit falls  with each delivery
    credit rises  when half of the capacity is free again, or when there was none at all
    credit ends   when the handle is paused (HANDLE FLOW), or closed
"""

import enum
from collections import deque
from collections.abc import Callable
from typing import Final
from typing import Protocol as Interface

import attrs

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber, LinkId
from router.wire.fast.framing import END
from router.wire.fast.reply import PeerError, Reply
from router.wire.fast.types import encode_short
from router.wire.runs import Runs

UNRELIABLE_CAPACITY: Final = 1000
"""Capacity of a subscription without acknowledgements; bounds the deliveries under way to it."""

BACKLOG_CAPACITY: Final = 100
"""Deliveries that a temporary destination takes while nobody consumes from it."""


class Kind(enum.Enum):
    """What an outlet is for."""

    SUBSCRIPTION = "subscription"
    TEMPORARY = "temporary destination"
    ANSWERS = "answers to a peer's calls"


@attrs.define(eq=False)
class Outlet:
    """An outgoing link of a handle.

    Attributes:
        address: what it receives from; empty until the core has made it, for a dynamic one.
        prefetch: messages that may be unacknowledged; 0: nobody consumes yet.
        is_unreliable: nothing is acknowledged.
        confirm_tag: of the command that asked for it, until it is answered.
        credit: what the core was granted and has not used.
        unacknowledged: messages sent and not acknowledged.
        backlog: deliveries that nobody has capacity for, each with the number it can be browsed by.
        stream: an answer without a known end that is going out.
        tail: the destination's name and the end octet, as HANDLE NOTIFY ends with them.
        may_fall: at the next review credit may be taken back.
        asked: what answers HANDLE QUERY and BROWSE of a handle's own destination, in order; the
            first waits for what its channel has sent there before (``Receiving``).
        follows: it waits until the channel has handed that on.
        drains: it waits until the core has sent it; no credit is granted meanwhile.
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
    may_fall: bool = False
    backlog: deque[tuple[int, OutgoingDelivery]] = attrs.field(factory=deque)
    stream: "OutletStream | None" = None
    tail: bytes = b""
    asked: deque[Callable[[], None]] = attrs.field(factory=deque)
    follows: bool = False
    drains: bool = False

    def name(self, address: str) -> None:
        """Sets the destination's name."""
        self.address = address
        shown = address.encode()[:255].decode("utf-8", "ignore").replace("\0", "")
        self.tail = encode_short(shown) + END

    @property
    def most(self) -> int:
        """How much it takes at most."""
        if self.kind is Kind.ANSWERS or self.is_unreliable:
            return UNRELIABLE_CAPACITY
        return self.prefetch or BACKLOG_CAPACITY

    @property
    def capacity(self) -> int:
        """How much it takes now, of what is under way and what is not."""
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
        """Handles what the core sends."""
        self.credit -= len(deliveries)
        channel = self.handle.channel
        for delivery in deliveries:
            if not self.backlog and self.can_deliver:
                channel.receiving.deliver(self, delivery)
            else:
                self.backlog.append((channel.engine.next_browsed(), delivery))
        if self.follows:
            channel.receiving.pumped(self)
        self._review_if_due()

    def go_on(self, number: DeliveryNumber, payload: bytes, more: bool) -> None:
        """Takes a further part of an answer."""
        stream = self.stream
        if stream is not None and stream.delivery.number == number:
            stream.push(payload, more)

    def abort(self, number: DeliveryNumber) -> None:
        """Records that the sender of an answer has given it up."""
        stream = self.stream
        if stream is not None and stream.delivery.number == number:
            stream.abort()

    def drained(self) -> None:
        """Records that the core has sent all that it had, and that the credit is used up."""
        self.handle.channel.receiving.drained(self)

    def dispatch(self) -> None:
        """Sends what waits, as far as the client takes it."""
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
        if not self.is_attached or self.drains:
            return
        capacity = self.capacity
        if self._is_due(capacity) or (self.may_fall and capacity < self.credit):
            self.credit = capacity
            self.handle.channel.engine.runs.add(CreditGranted(self.link, capacity))
        self.may_fall = False


class OutletStream(Interface):
    """An answer without a known end that is going out (``downstream``)."""

    @property
    def delivery(self) -> OutgoingDelivery:
        """What is answered."""

    def push(self, payload: bytes, more: bool) -> None:
        """Takes a further part."""

    def abort(self) -> None:
        """Takes note that its sender has given it up."""

    def given_up(self) -> None:
        """Takes note that the client does not want any more of it."""

    def ended(self) -> None:
        """Takes note that nothing more is sent of it."""


class OutletEngine(Interface):
    """What an outlet asks of its connection."""

    runs: Runs

    def next_browsed(self) -> int:
        """Numbers a message that may be browsed."""

    def review(self, outlet: Outlet) -> None:
        """Looks at a link's credit when the turn ends."""


class OutletReceiving(Interface):
    """Sends what an outlet has taken (``receiving``)."""

    def deliver(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to the client; one that cannot be sent is refused."""

    def pumped(self, own: Outlet) -> None:
        """Records that what was sent to a handle's own destination may have been handed on."""

    def drained(self, own: Outlet) -> None:
        """Records that the core has sent all that it had, and that the credit is used up."""


class OutletChannel(Interface):
    """What an outlet asks of its channel."""

    id: int

    @property
    def engine(self) -> OutletEngine:
        """The connection."""

    @property
    def receiving(self) -> OutletReceiving:
        """What the client receives on the channel."""

    def attached(self, outlet: Outlet, address: str | None, mode: str | None) -> None:
        """Takes the core's consent to an outlet."""

    def refused(self, outlet: Outlet, condition: Condition) -> None:
        """Takes the end of an outlet."""


class OutletHandle(Interface):
    """What an outlet asks of its handle."""

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
        """Whether the client may still be told anything by it."""

    def reply(self, confirm_tag: int, code: int = Reply.OK, text: str = "") -> None:
        """Confirms a command, if that was asked for (§3.2.11)."""

    def close(self, error: PeerError) -> None:
        """Closes the handle for a fault."""
