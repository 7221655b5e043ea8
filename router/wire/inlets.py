"""Inlets: incoming links of peers that name an address with each message.

Theory of operation. The core moves messages over links; before AMQP 1.0 a client publishes to one
address after the other. So an engine attaches an *inlet*, an incoming link, on the first publish to
an address, and keeps it for later messages. A channel or a session keeps ``INLETS_KEPT``; beyond
that the oldest are detached when another is created. All protocols use the same rule: an inlet
stays as long as

- the core has not answered its attach,
- a message that was handed on by it has no outcome,
- a message waits for it: for credit, or for the commit of its transaction.

A message that needs no outcome is settled, and does not always wait for credit: where the core
accepts settled messages *ahead* of it (``GrantCredit.ahead``) all that have been read are handed
on, unless held messages that need credit precede them; and when the core wants no more the
connection is not read.

So there are more inlets while more are in use, as in a transaction over many addresses.
``take_surplus`` checks ``INLETS_KEPT`` at a time, and moves those that stay to the end: the next
call checks others, and no call costs more than that.

An inlet's *owner* sends by it (``publishing``); the connection's machine passes the core's commands
about the inlet to the owner (``serving``).
"""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from typing import Protocol as Interface

import attrs

from router.model.commands import AttachLink
from router.model.condition import CONNECTION_FORCED, DETACH_FORCED, Condition
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import RELEASED, DeliveryState, Rejected

INLETS_KEPT: Final = 64
"""Inlets that a channel, or a session, keeps without anything under way on them."""

_PASSING: Final = frozenset((DETACH_FORCED, CONNECTION_FORCED))
"""Reasons that say nothing about the message: the router stops, or a worker is not there."""


@attrs.define(eq=False)
class Inlet:
    """An incoming link for one channel's or session's publishes to one address.

    Attributes:
        publishing: its owner.
        credit: deliveries that may still be handed on; 0 while ``reserve`` is in use.
        reserve: the saved credit while the core holds the link's window; None: it does not.
        ahead: settled messages that may be handed on beyond the credit (``GrantCredit``).
        max_message_octets: the largest message that the core accepts; 0: any.
        ttl_seconds: the longest life of a message on its route; None: the message's own ttl only.
        refusal: why the core refuses it; None: it is accepted, or not answered yet.
        is_attached: the core has accepted it.
    """

    link: LinkId
    address: str
    publishing: "InletOwner" = attrs.field(kw_only=True)
    credit: int = 0
    reserve: int | None = None
    ahead: int | None = None
    max_message_octets: int = 0
    ttl_seconds: float | None = None
    refusal: Condition | None = None
    is_attached: bool = False

    @property
    def goes_ahead(self) -> bool:
        """Whether settled messages are handed on whatever the credit."""
        return self.ahead is not None and self.reserve is None

    @property
    def is_spent(self) -> bool:
        """Whether the core accepts settled messages ahead of credit, and its limit is reached."""
        return self.ahead == 0 or (self.ahead is not None and self.reserve is not None)

    @property
    def is_busy(self) -> bool:
        """Whether a message depends on it: one without an outcome, or one that is held for it."""
        raise NotImplementedError

    def known(self, numbers: Sequence[DeliveryNumber]) -> Sequence[DeliveryNumber]:
        """Returns those of its deliveries whose outcome is not known yet."""
        return numbers

    def ends_at(self, now: float, ttl_milliseconds: int | None) -> float:
        """Returns when a message that waits from now on expires, by its own ttl and the route's."""
        own = math.inf if ttl_milliseconds is None else ttl_milliseconds / 1000
        return now + (own if self.ttl_seconds is None else min(own, self.ttl_seconds))

    def give_back(self) -> None:
        """Returns the credit to the core, used or not (§2.6.7, drain)."""
        self.credit = 0
        if self.reserve is not None:
            self.reserve = 0

    def hold(self, held: bool) -> bool:
        """Saves the credit, or restores it; returns whether it may be used again."""
        if held and self.reserve is None:
            self.reserve, self.credit = self.credit, 0
        elif not held and self.reserve is not None:
            self.credit, self.reserve = self.reserve, None
            return True
        return False

    def suspend(self) -> None:
        """Records that its connection is gone, and that it will be requested again."""
        self.is_attached = False
        self.credit = 0
        self.ahead = self.reserve = None

    def refuse(self, condition: Condition) -> None:
        """Records that the core refuses the inlet, or has ended it."""
        self.refusal = condition
        self.credit = 0


def outcome_of(refusal: Condition) -> DeliveryState:
    """Returns the outcome of messages that were not handed on because their inlet is refused.

    Over AMQP 1.0 the sender would still have them, so what passes is no rejection: rejected
    messages are not sent again, or become dead letters.
    """
    return RELEASED if refusal.name in _PASSING else Rejected(refusal)


class InletOwner(Interface):
    """The owner of an inlet.

    Its methods take ``Any`` inlet, because each protocol's has more attributes.
    """

    def attached(self, inlet: Any, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""

    def refused(self, inlet: Any, condition: Condition) -> None:
        """Handles the core's refusal of an inlet."""

    def lost(self, inlet: Any, condition: Condition) -> None:
        """Handles the end of an inlet, as ordered by the core."""

    def granted(self, inlet: Any, credit: int, drain: bool) -> None:
        """Handles credit, or its end."""

    def hold(self, inlet: Any, held: bool) -> None:
        """Stops or resumes handing messages on, whatever the credit."""

    def decided(self, inlet: Any, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, and settles them."""

    def recorded(self, inlet: Any) -> None:
        """Handles the core's report that settled deliveries are on record (``RecordAwaited``)."""


@attrs.define(eq=False)
class CountedInlet(Inlet):
    """An inlet of a channel, which counts its messages.

    Attributes:
        unsettled: number of deliveries without an outcome.
        waiting: number of messages that wait for credit.
        posted: number of messages that wait for the commit of their transaction.
    """

    unsettled: int = 0
    waiting: int = 0
    posted: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether a message depends on it."""
        return bool(self.unsettled or self.waiting or self.posted)


InletT = TypeVar("InletT", bound=Inlet)


def take_surplus(inlets: dict[str, InletT]) -> list[InletT]:
    """Removes surplus inlets, so that another fits; the caller detaches them.

    Args:
        inlets: address → inlet, oldest first.

    Returns:
        the removed inlets; none while all are in use.
    """
    surplus = len(inlets) + 1 - INLETS_KEPT
    taken: list[InletT] = []
    for inlet in list(islice(inlets.values(), INLETS_KEPT)) if surplus > 0 else ():
        del inlets[inlet.address]
        if inlet.is_busy or not inlet.is_attached:
            inlets[inlet.address] = inlet
            continue
        taken.append(inlet)
        if len(taken) == surplus:
            break
    return taken
