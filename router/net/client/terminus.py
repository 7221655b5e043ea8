"""The termini that both link machines ask the other end for (§3.5)."""

from typing import Final

import attrs

from router.model.condition import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    LINK_REDIRECT,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    Condition,
)
from router.model.events import LinkDetached
from router.model.terminus import (
    ALL_OUTCOMES,
    Durability,
    ExpiryPolicy,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
)
from router.routes.route import Guarantee

TERMINUS_SECONDS: Final = 300
"""How long the other end is asked to remember the link after a connection is lost."""

PASSING: Final = frozenset((DETACH_FORCED, CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED))
"""Reasons for a detach after which attaching again may help."""


@attrs.frozen(kw_only=True)
class Terms:
    """How a link is asked for.

    Attributes:
        address: of the node at the other end.
        name: of the node at ours: the link's own name.
        guarantee: decides the settle modes, and whether the other end is asked to keep its
            state beyond a crash.
        expiry_seconds: how long the other end is asked to remember the link without a connection.
    """

    address: str
    name: str
    guarantee: Guarantee
    expiry_seconds: int = TERMINUS_SECONDS

    @property
    def sender_mode(self) -> SenderSettleMode:
        """Settled on send only where loss is allowed."""
        if self.guarantee is Guarantee.AT_MOST_ONCE:
            return SenderSettleMode.SETTLED
        return SenderSettleMode.UNSETTLED

    @property
    def receiver_mode(self) -> ReceiverSettleMode:
        """Second where a delivery must not arrive twice: the sender settles first."""
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            return ReceiverSettleMode.SECOND
        return ReceiverSettleMode.FIRST

    def source(self, address: str) -> Source:
        """Makes the source, theirs or ours."""
        return Source(
            address=address,
            durability=self._durability(address),
            expiry_policy=ExpiryPolicy.CONNECTION_CLOSE,
            expiry_seconds=self.expiry_seconds,
            outcomes=ALL_OUTCOMES,
        )

    def target(self, address: str) -> Target:
        """Makes the target, theirs or ours."""
        return Target(
            address=address,
            durability=self._durability(address),
            expiry_policy=ExpiryPolicy.CONNECTION_CLOSE,
            expiry_seconds=self.expiry_seconds,
        )

    def _durability(self, address: str) -> Durability:
        """Asks for durable state over there; ours lives as long as this process."""
        wanted = address == self.address and self.guarantee is Guarantee.EXACTLY_ONCE
        return Durability.UNSETTLED_STATE if wanted else Durability.NONE


def settles_first(terms: Terms, answered: ReceiverSettleMode) -> Condition | None:
    """Returns the reason why exactly-once cannot be had, if the answer to an attach shows one."""
    if answered is terms.receiver_mode or terms.guarantee is not Guarantee.EXACTLY_ONCE:
        return None
    return Condition(
        NOT_IMPLEMENTED,
        "exactly-once needs receiver-settle-mode second, and the other end settles first",
    )


def lacks_durability(terms: Terms, terminus: object) -> Condition | None:
    """Returns the reason why exactly-once cannot be had, if an answer's terminus shows one.

    A peer that does not keep the unsettled state durably cannot resume the link after a crash.
    """
    if terms.guarantee is not Guarantee.EXACTLY_ONCE:
        return None
    if getattr(terminus, "durability", None) is Durability.UNSETTLED_STATE:
        return None
    return Condition(
        NOT_IMPLEMENTED,
        "exactly-once needs a peer that keeps the link's unsettled state durably, and this address"
        " does not: a route of the router needs guarantee: exactly-once",
    )


def is_passing(event: LinkDetached) -> bool:
    """Returns whether a link that the other end detached may be attached again."""
    if event.condition is None:
        return not event.closed
    return event.condition.name in PASSING


def is_moved(event: LinkDetached) -> bool:
    """Returns whether the other end has sent a link elsewhere (§2.8.18)."""
    return event.condition is not None and event.condition.name == LINK_REDIRECT


def keeps_no_state(event: LinkDetached) -> bool:
    """Returns whether the other end refuses what it does not implement: resuming, perhaps."""
    return event.condition is not None and event.condition.name == NOT_IMPLEMENTED
