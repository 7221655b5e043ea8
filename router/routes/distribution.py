"""Which receivers get the next delivery, and what the sender hears of several outcomes.

The balanced rule, exactly as every implementation has to follow it (the express lane has it in C)::

    load of a candidate = (unsettled + elsewhere) / receivers, rounded down

    best = none
    for candidate in candidates, in the order in which they were added:
        if candidate.credit <= 0: skip it
        if best is none
           or candidate.load < best.load
           or (candidate.load == best.load and candidate.last_used < best.last_used):
            best = candidate
    if best is not none: turn += 1; best.last_used = turn; send to best

``turn`` is a counter of the node, 64 bits, starting at 0; a candidate never used has ``last_used``
0. So two candidates compare equal only if neither was ever used, and then the one added first
wins: the rule leaves nothing to chance. ``closest`` is the same with ``cost`` compared before
``load``.

A link to another worker stands for all that worker's receivers: ``receivers`` is their number, and
``elsewhere`` what others than this worker have sent them that is unsettled (``core.loads``). Of any
other link these are 1 and 0, and its load is what is unsettled on it.

Queues of several senders are served in rotation, a share each: of what the receivers can take
together, divided by the queues that wait, but no less than ``LEAST_SHARE``: each turn of a sender
costs it and the router a disposition and a write, which a few deliveries do not pay for.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar
from typing import Protocol as Interface

from router.model.outcome import RELEASED, Accepted, Modified, Outcome, Rejected
from router.routes.route import Distribution

LEAST_SHARE: Final = 128
"""Deliveries; at two million a second a hundred senders still take turns every 7 ms."""


def share(room: int, waiting: int) -> int:
    """Returns how many deliveries a queue may send before the next one's turn.

    Args:
        room: what the receivers can take together.
        waiting: queues in rotation, 1 or more.
    """
    return max(LEAST_SHARE, room // waiting)


class Candidate(Interface):
    """An outgoing link, as far as the choice is concerned."""

    @property
    def credit(self) -> int:
        """Deliveries that may still be sent on it (§2.6.7)."""

    @property
    def unsettled(self) -> int:
        """Deliveries sent on it and not settled."""

    @property
    def elsewhere(self) -> int:
        """Deliveries that others have sent to those behind it, and that are not settled."""

    @property
    def receivers(self) -> int:
        """How many receive by it, 1 or more."""

    @property
    def last_used(self) -> int:
        """The turn in which it was last chosen; 0: never."""

    @property
    def cost(self) -> int:
        """0: attached to this worker; 1: to a sibling; more: over other routers."""


C = TypeVar("C", bound=Candidate)


def load(candidate: Candidate) -> int:
    """Returns how many deliveries are unsettled at each of those behind a link, on average."""
    return (candidate.unsettled + candidate.elsewhere) // candidate.receivers


def balanced(candidates: Iterable[C]) -> C | None:
    """Chooses the candidate with credit that has the fewest unsettled deliveries."""
    best: C | None = None
    for candidate in candidates:
        if candidate.credit <= 0:
            continue
        if (
            best is None
            or load(candidate) < load(best)
            or (load(candidate) == load(best) and candidate.last_used < best.last_used)
        ):
            best = candidate
    return best


def closest(candidates: Iterable[C]) -> C | None:
    """Chooses, among the candidates with credit, balanced between those of the lowest cost."""
    able = [candidate for candidate in candidates if candidate.credit > 0]
    if not able:
        return None
    lowest = min(candidate.cost for candidate in able)
    return balanced(candidate for candidate in able if candidate.cost == lowest)


def multicast(candidates: Sequence[C]) -> Sequence[C]:
    """Chooses all, or none while any of them lacks credit: the slowest sets the pace."""
    return candidates if all(candidate.credit > 0 for candidate in candidates) else ()


def choose(distribution: Distribution, candidates: Sequence[C]) -> Sequence[C]:
    """Returns the candidates that get the next delivery; none: it has to wait for credit."""
    match distribution:
        case Distribution.MULTICAST:
            return multicast(candidates)
        case Distribution.BALANCED:
            one = balanced(candidates)
        case Distribution.CLOSEST:
            one = closest(candidates)
    return () if one is None else (one,)


def width(distribution: Distribution, candidates: Sequence[C]) -> int:
    """Returns how many deliveries the candidates can take together before any must wait."""
    if distribution is Distribution.MULTICAST:
        return max(0, min((candidate.credit for candidate in candidates), default=0))
    return sum(max(0, candidate.credit) for candidate in candidates)


def merge_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Returns the one outcome that the sender of a multicast delivery hears.

    Rejected before accepted before modified before released: one receiver that finds the message
    invalid is worth knowing; otherwise one that took it means that it must not be sent again.
    The first ``rejected`` gives the error. ``modified`` says failed if any receiver does,
    undeliverable here only if all say so (a released one might still take it), and carries the
    annotations of all, later ones winning. No outcome at all, as with no receivers: released.
    """
    given = list(outcomes)
    for outcome in given:
        if isinstance(outcome, Rejected):
            return outcome
    for outcome in given:
        if isinstance(outcome, Accepted):
            return outcome
    modified = [outcome for outcome in given if isinstance(outcome, Modified)]
    return _merge_modified(modified, len(modified) == len(given)) if modified else RELEASED


def _merge_modified(outcomes: Sequence[Modified], nobody_released: bool) -> Modified:
    annotations: dict[object, object] = {}
    for outcome in outcomes:
        annotations |= outcome.message_annotations or {}
    return Modified(
        delivery_failed=any(outcome.delivery_failed for outcome in outcomes),
        undeliverable_here=nobody_released
        and all(outcome.undeliverable_here for outcome in outcomes),
        message_annotations=annotations or None,
    )
