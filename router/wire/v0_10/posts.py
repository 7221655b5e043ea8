"""A client's transfers, while they wait here and until they are answered.

A *post* is one transfer, in the form in which it is handed on; an *inlet* the link that it is
handed on by; its *terms* say how the client wants it answered. Similar transfers share a *shape*.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final
from typing import Protocol as Interface

import attrs

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire import inlets
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10.optional import FILE_CLASS, STREAM_CLASS
from router.wire.v0_10.queues import Queue
from router.wire.v0_10.session import Session

ACCEPT_EXPLICIT, ACCEPT_NONE = 0, 1
"""Values of accept-mode."""


@attrs.frozen
class Terms:
    """How a transfer is to be answered.

    Attributes:
        accept_mode: explicit, none, or None: absent.
        discards: discard-unroutable.
        codes: class and code of the command.
    """

    accept_mode: int | None
    discards: bool
    codes: tuple[int, int] = (4, 1)

    @property
    def is_explicit(self) -> bool:
        """Whether the client gets the outcome."""
        return self.accept_mode == ACCEPT_EXPLICIT

    @property
    def is_unasked(self) -> bool:
        """Whether the client wants no outcome: the transfer is accepted on arrival."""
        return self.accept_mode == ACCEPT_NONE


TERMS: Final = {
    (mode, discards): Terms(mode, discards)
    for mode in (ACCEPT_EXPLICIT, ACCEPT_NONE, None)
    for discards in (True, False)
}
"""Accept-mode and discard-unroutable → terms of a transfer."""

TERMS_OF: Final[dict[type, Terms]] = {
    o.FilePublish: Terms(None, discards=True, codes=(FILE_CLASS, 9)),
    o.StreamPublish: Terms(ACCEPT_NONE, discards=True, codes=(STREAM_CLASS, 6)),
}
"""Terms of all files and packets; whether they are returned is recorded separately."""


@attrs.frozen
class PostShape:
    """The cached meaning of a transfer's command and delivery-properties.

    Attributes:
        address: its address.
        exchange: first octets of the content.
        queue: the queue that accepts it, without the core; None: none.
    """

    address: str
    exchange: bytes
    terms: Terms
    ttl: int | None
    queue: Queue | None = None


@attrs.define
class Post:
    """A transfer that waits for credit, for the core's answer, or for the commit.

    Attributes:
        queue: the queue that accepts it, without the core; None: none.
        begins_at: when its life began, by its engine's clock.
        ends_at: when its ttl ends, its own or, once it waits, that of its route.
    """

    number: int
    address: str
    content: bytes
    terms: Terms
    ttl: int | None
    failures: int = 0
    queue: Queue | None = None
    ends_at: float = math.inf
    begins_at: float = 0.0

    def start_ttl(self, now: float) -> None:
        """Starts its life, and its ttl if it has one."""
        self.begins_at = now
        if self.ttl is not None:
            self.ends_at = now + self.ttl / 1000

    def follow(self, inlet: inlets.Inlet) -> None:
        """Ends its life no later than the route lets it."""
        self.ends_at = min(self.ends_at, inlet.ends_at(self.begins_at, None))


@attrs.define(eq=False)
class Inlet(inlets.Inlet):
    """An incoming link for one session's transfers to one address.

    Attributes:
        open: transfers handed on whose outcome is not known, ascending.
        home: the worker that keeps its open transfers; None: this one.
        is_exact: its route promises exactly-once.
        unrecorded: settled transfers handed on that may not be on record yet, in order.
        awaited: so many of them, the first ones, the core has been asked about.
    """

    publishing: "InletOwner" = attrs.field(kw_only=True)
    open: dict[int, Post] = attrs.field(factory=dict)
    home: str | None = None
    is_exact: bool = False
    unrecorded: list[int] = attrs.field(factory=list)
    awaited: int = 0

    def suspend(self) -> None:
        """Records that its connection is gone; the core is asked again when it is back."""
        super().suspend()
        self.awaited = 0

    @property
    def is_busy(self) -> bool:
        """Whether it has transfers that are not complete."""
        publishing, address = self.publishing, self.address
        is_used = bool(self.open or self.unrecorded)
        return is_used or address in publishing.held or address in publishing.enlisted

    def known(self, numbers: Sequence[DeliveryNumber]) -> Sequence[DeliveryNumber]:
        """Returns those of its deliveries whose outcome is not known yet."""
        return [number for number in numbers if number in self.open]


class InletOwner(inlets.InletOwner, Interface):
    """The owner of an inlet (``publishing``).

    Attributes:
        held: address → transfers that wait for the attach or for credit.
        enlisted: the addresses of the transaction's transfers.
    """

    held: dict[str, deque[Post]]
    enlisted: set[str]

    @property
    def session(self) -> Session:
        """The session that ends if the client is at fault."""

    def on_time(self) -> None:
        """Drops expired transfers, and hands on those that may be."""


def tag_of(number: int) -> DeliveryTag:
    """Returns the tag of a transfer: its command-id in the long form."""
    return DeliveryTag(number.to_bytes(8, "big"))


def received(post: Post, now: float, *, settled: bool = False) -> ReceivedDelivery:
    """Creates the delivery of a transfer; its ttl is reduced by the time it was held."""
    ttl, content = post.ttl, post.content
    if post.ends_at < now + (math.inf if ttl is None else ttl / 1000):
        ttl = max(0, round(1000 * (post.ends_at - now)))
        content = messages.with_ttl(content, ttl)
    return ReceivedDelivery(
        DeliveryNumber(post.number),
        DeliveryTag(post.number.to_bytes(8, "big")),
        content,
        Protocol.AMQP_0_10,
        settled=settled,
        ttl_milliseconds=ttl,
        delivery_count=post.failures,
    )
