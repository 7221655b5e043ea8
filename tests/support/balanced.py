"""The rules of ``routes.distribution``, one delivery at a time, as they read."""

from collections.abc import Iterable, Sequence
from typing import Protocol as Interface
from typing import TypeVar

from router.routes.route import Distribution


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
    """Gives how many deliveries are unsettled at each of those behind a link, on average."""
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
    """Gives the candidates that get the next delivery; none: it has to wait for credit."""
    match distribution:
        case Distribution.MULTICAST:
            return multicast(candidates)
        case Distribution.BALANCED:
            one = balanced(candidates)
        case Distribution.CLOSEST:
            one = closest(candidates)
    return () if one is None else (one,)
