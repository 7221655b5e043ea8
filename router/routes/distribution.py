"""Which receivers get the next delivery, and what the sender hears of several outcomes.

The balanced rule, exactly as each implementation follows it: ``core.forward.allot`` for whole
runs, and the express lane in C (``kernel/choice.pxi``); tests hold both against it as it reads::

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
from typing import Final

from router.model.outcome import RELEASED, Accepted, Modified, Outcome, Rejected

LEAST_SHARE: Final = 128
"""Deliveries; at two million a second a hundred senders still take turns every 7 ms."""


def share(room: int, waiting: int) -> int:
    """Returns how many deliveries a queue may send before the next one's turn.

    Args:
        room: what the receivers can take together.
        waiting: queues in rotation, 1 or more.
    """
    return max(LEAST_SHARE, room // waiting)


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
