"""Which receivers get the next delivery, and which of several outcomes the sender is sent.

This is the balanced rule. ``core.forward.allot`` implements it for whole runs, the express lane in
C (``kernel/choice.pxi``); tests compare both with the rule as written here::

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
wins: the rule is deterministic. ``closest`` is the same rule with ``cost`` compared before
``load``.

A link to another worker represents all receivers of that worker: ``receivers`` is their number, and
``elsewhere`` counts the unsettled deliveries that other workers than this one have sent them
(``core.loads``). For any other link these are 1 and 0, and its load is its number of unsettled
deliveries.

Queues of several senders are served in rotation. The share of each queue is the credit of all
receivers, divided by the number of waiting queues, but at least ``LEAST_SHARE``: each turn of a
sender costs one disposition and one write at both ends, too much for only a few deliveries.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from router.model.outcome import RELEASED, Accepted, Modified, Outcome, Rejected

LEAST_SHARE: Final = 128
"""Deliveries; at two million a second a hundred senders still take turns every 7 ms."""


def share(credit: int, waiting: int) -> int:
    """Returns how many deliveries a queue may send before the next one's turn.

    Args:
        credit: how many deliveries the receivers can take together.
        waiting: queues in rotation, 1 or more.
    """
    return max(LEAST_SHARE, credit // waiting)


def merge_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Returns the one outcome that the sender of a multicast delivery is sent.

    The precedence is rejected, accepted, modified, released: the sender should learn that a
    receiver finds the message invalid; otherwise, if one receiver accepted the message, it must not
    be sent again. The error is that of the first ``rejected``. ``modified`` is delivery-failed if
    any receiver says so, undeliverable-here only if all do (a receiver that released it might still
    accept it), and carries the annotations of all, later ones winning. Without any outcome, as
    without receivers, the result is released.
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
