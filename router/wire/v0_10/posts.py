"""What a client transfers, while it waits here and until it is answered.

A *post* is one transfer, in the form that it goes on in; an *inlet* the link that it goes on; its
*terms* say how its client wants to be answered. Transfers that are alike share a *shape*.
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
    """How a transfer wants to be answered.

    Attributes:
        accept_mode: explicit, none, or None: the client does not say.
        discards: discard-unroutable.
        codes: class and code of the command.
    """

    accept_mode: int | None
    discards: bool
    codes: tuple[int, int] = (4, 1)

    @property
    def is_explicit(self) -> bool:
        """Whether the client hears of the outcome."""
        return self.accept_mode == ACCEPT_EXPLICIT

    @property
    def is_unasked(self) -> bool:
        """Whether the client does not want to hear of it: the transfer is accepted as it comes."""
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
"""Terms of all files and packets; what comes back of them is remembered apart."""


@attrs.frozen
class PostShape:
    """What a transfer's command and delivery-properties mean, whatever else it says.

    Attributes:
        address: where it goes.
        exchange: as a content begins with it.
        queue: takes it, past the core; None: none does.
    """

    address: str
    exchange: bytes
    terms: Terms
    ttl: int | None
    queue: Queue | None = None


@attrs.define
class Post:
    """A transfer that waits: for credit, for the core's answer, or for the commit.

    Attributes:
        queue: takes it, past the core; None: none does.
        ends_at: when its ttl has ended, by its engine's clock.
    """

    number: int
    address: str
    content: bytes
    terms: Terms
    ttl: int | None
    failures: int = 0
    queue: Queue | None = None
    ends_at: float = math.inf

    def start_ttl(self, now: float) -> None:
        """Begins to count its ttl, if it has one."""
        if self.ttl is not None:
            self.ends_at = now + self.ttl / 1000


@attrs.define(eq=False)
class Inlet(inlets.Inlet):
    """An incoming link for what one session transfers to one address.

    Attributes:
        open: transfers handed on whose outcome is not known, rising.
        home: the worker that keeps what is open on it; None: this one.
    """

    publishing: "InletOwner" = attrs.field(kw_only=True)
    open: dict[int, Post] = attrs.field(factory=dict)
    home: str | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a transfer depends on it."""
        publishing, address = self.publishing, self.address
        return bool(self.open) or address in publishing.held or address in publishing.enlisted

    def known(self, numbers: Sequence[DeliveryNumber]) -> Sequence[DeliveryNumber]:
        """Returns those of its deliveries whose outcome is still to come."""
        return [number for number in numbers if number in self.open]


class InletOwner(inlets.InletOwner, Interface):
    """Whoever transfers by an inlet (``publishing``).

    Attributes:
        held: address → transfers that wait for an answer or for credit.
        enlisted: the addresses that transfers of the transaction are for.
    """

    held: dict[str, deque[Post]]
    enlisted: set[str]

    @property
    def session(self) -> Session:
        """The session that ends if a command finds its client at fault."""

    def on_time(self) -> None:
        """Drops what has waited for longer than its ttl, and hands on what may go."""


def tag_of(number: int) -> DeliveryTag:
    """Makes the tag of a transfer: its command-id in the long form."""
    return DeliveryTag(number.to_bytes(8, "big"))


def received(post: Post, now: float, *, settled: bool = False) -> ReceivedDelivery:
    """Makes the delivery of a transfer; what it has waited is taken off its ttl."""
    ttl, content = post.ttl, post.content
    if ttl is not None and post.ends_at < now + ttl / 1000:
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
