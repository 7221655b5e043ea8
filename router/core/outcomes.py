"""Outcomes: which of them a source lists, what is meant without one, and how links count them.

A receiver may settle with any outcome, and a sender may list those that it takes (§3.5.3), or have
a settlement without a state mean one.
"""

from collections.abc import Sequence

from router.links.link import IncomingLink, OutgoingLink, Tally
from router.model.condition import NOT_ALLOWED, Condition
from router.model.outcome import (
    RELEASED,
    UNSENT,
    Accepted,
    DeliveryState,
    Modified,
    Outcome,
    Rejected,
    Released,
)

_DESCRIPTORS = {
    Accepted: "amqp:accepted:list",
    Rejected: "amqp:rejected:list",
    Released: "amqp:released:list",
    Modified: "amqp:modified:list",
}


def default_outcome(link: OutgoingLink) -> DeliveryState | None:
    """Returns the outcome of a settlement without a state (§3.5.3, default-outcome)."""
    return link.source.default_outcome if link.source is not None else None


def must_be_told(incoming: IncomingLink, outcome: Outcome) -> bool:
    """Returns whether an outcome would be lost if its delivery were settled without a state."""
    source = incoming.source
    return not (isinstance(outcome, Accepted) or (source is not None and source.default_outcome))


def narrow(outcome: DeliveryState | None, outcomes: Sequence[str]) -> DeliveryState | None:
    """Returns the nearest outcome that a source lists; an empty list allows all (§3.5.3).

    Returns:
        the outcome; None if no outcome of the list is near.
    """
    descriptor = _DESCRIPTORS.get(type(outcome))
    if not outcomes or descriptor is None or descriptor in outcomes:
        return outcome
    if isinstance(outcome, Released) and _DESCRIPTORS[Modified] in outcomes:
        return Modified()
    if isinstance(outcome, Modified | Rejected) and _DESCRIPTORS[Released] in outcomes:
        return RELEASED
    if isinstance(outcome, Accepted):
        return None
    if _DESCRIPTORS[Modified] in outcomes:
        return Modified(delivery_failed=True, undeliverable_here=True)
    if _DESCRIPTORS[Rejected] in outcomes:
        return Rejected(Condition(NOT_ALLOWED, f"the outcome was {descriptor}"))
    return None


def count(tally: Tally, outcome: DeliveryState | None, deliveries: int) -> None:
    """Adds outcomes to a link's totals."""
    match RELEASED if outcome == UNSENT else outcome:
        case Accepted():
            tally.accepted += deliveries
        case Rejected():
            tally.rejected += deliveries
        case Released():
            tally.released += deliveries
        case Modified():
            tally.modified += deliveries
        case _:
            pass
