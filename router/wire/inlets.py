"""Inlets: the links that an engine makes because its peer names an address with each message.

Theory of operation. The core moves messages over links; before AMQP 1.0 a client publishes to one
address after the other. So an engine attaches an *inlet*, an incoming link, when an address is
first published to, and keeps it for the messages to come. A channel or a session keeps
``INLETS_KEPT``; those beyond that are detached when another is made, the oldest first. All
protocols do so by one rule: an inlet stays as long as

- the core has not answered its attach,
- a message that was handed on by it has no outcome,
- a message waits for it: for credit, or for the commit of its transaction.

What needs no outcome is settled, and does not always wait for credit: where the core takes it
*ahead* of that (``GrantCredit.ahead``) all that has been read is handed on, unless something that
needs credit waits before it; and when the core wants no more the connection is not read.

So there are more while more are in use, as in a transaction over many addresses. ``take_surplus``
looks at ``INLETS_KEPT`` at a time, and moves those that stay behind all others: the next one finds
others to look at, and none costs more than that.

Who sends by inlets is its *owner* (``publishing``); the machine of the connection hands it what the
core says of them (``serving``).
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from typing import Protocol as Interface

import attrs

from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import DeliveryState

INLETS_KEPT: Final = 64
"""Inlets that a channel, or a session, keeps though nothing is under way on them."""


@attrs.define(eq=False)
class Inlet:
    """An incoming link for what is published to one address on one channel or session.

    Attributes:
        publishing: whose it is.
        credit: deliveries that may still be handed on; 0 while ``reserve`` is in use.
        reserve: the credit meanwhile, while the core holds the link's window; None: it does not.
        ahead: settled messages that may be handed on beyond the credit (``GrantCredit``).
        max_message_octets: the largest message that the core takes; 0: any.
        refusal: why the core does not take it; None: it does, or has not answered.
        is_attached: the core has answered and takes it.
    """

    link: LinkId
    address: str
    publishing: "InletOwner" = attrs.field(kw_only=True)
    credit: int = 0
    reserve: int | None = None
    ahead: int | None = None
    max_message_octets: int = 0
    refusal: Condition | None = None
    is_attached: bool = False

    @property
    def goes_ahead(self) -> bool:
        """Whether settled messages are handed on whatever the credit."""
        return self.ahead is not None and self.reserve is None

    @property
    def is_spent(self) -> bool:
        """Whether settled messages are the core's ahead of credit, and it wants no more of them."""
        return self.ahead == 0 or (self.ahead is not None and self.reserve is not None)

    @property
    def is_busy(self) -> bool:
        """Whether a message depends on it: one that has no outcome, or one that waits for it."""
        raise NotImplementedError

    def known(self, numbers: Sequence[DeliveryNumber]) -> Sequence[DeliveryNumber]:
        """Returns those of its deliveries whose outcome is still to come."""
        return numbers

    def give_back(self) -> None:
        """Records that the credit is the core's again, used or not (§2.6.7, drain)."""
        self.credit = 0
        if self.reserve is not None:
            self.reserve = 0

    def hold(self, held: bool) -> bool:
        """Puts the credit by, or takes it up again; returns whether it may be used again."""
        if held and self.reserve is None:
            self.reserve, self.credit = self.credit, 0
        elif not held and self.reserve is not None:
            self.credit, self.reserve = self.reserve, None
            return True
        return False

    def suspend(self) -> None:
        """Records that its connection is gone, and that it will be asked for again."""
        self.is_attached = False
        self.credit = 0
        self.ahead = self.reserve = None

    def refuse(self, condition: Condition) -> None:
        """Records that the core does not take what is sent by it, or no more."""
        self.refusal = condition
        self.credit = 0


class InletOwner(Interface):
    """Whoever sends by an inlet.

    Its methods take ``Any`` inlet, as each protocol's has more than others'.
    """

    def attached(self, inlet: Any, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""

    def refused(self, inlet: Any, condition: Condition) -> None:
        """Handles the core's refusal of an inlet."""

    def lost(self, inlet: Any, condition: Condition) -> None:
        """Handles the end of an inlet, on the core's word."""

    def granted(self, inlet: Any, credit: int, drain: bool) -> None:
        """Handles credit, or its end."""

    def hold(self, inlet: Any, held: bool) -> None:
        """Stops or resumes handing on, whatever the credit."""

    def decided(self, inlet: Any, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, which it settles."""


@attrs.define(eq=False)
class CountedInlet(Inlet):
    """An inlet of a channel, whose messages remember it while they wait.

    Attributes:
        unsettled: deliveries handed on whose outcome is not known.
        waiting: messages that wait for credit.
        posted: messages that wait for the commit of their transaction.
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
    """Takes out the inlets that make room for one more; the caller detaches them.

    Args:
        inlets: address → inlet, the oldest first.

    Returns:
        those that were taken out; none while all are in use.
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
