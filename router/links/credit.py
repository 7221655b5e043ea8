"""How much credit a sending peer is granted: never more than the receivers can take.

The rule, the same on the general path and in the express lane::

    W = min(link_credit, width)
    width  = sum over the receivers of the credit that their last grant gave
             (multicast: the smallest)
    queued = deliveries of the link that wait here
    credit = what the peer may still send

    while no receiver has credit: grant nothing
    otherwise, when credit + queued <= W / 2: grant so that credit + queued = W

So senders to an address without receivers get no credit, a slow receiver slows its senders, and at
most W deliveries wait here per incoming link (plus those in transit when a receiver left). If the
route rejects unroutable deliveries, or sends them to dead letters, none of them waits, and without
receivers W = link_credit.

The payload of deliveries without an outcome is kept, within two budgets, one of the connection and
one of the process. A link that keeps much gets no further credit as soon as little is left, so that
receivers which read nothing do not stop others (dynamic thresholds: Choudhury and Hahne, 1998)::

    left = what is left of the budget of which less is left
    a link has no further credit while the octets that it keeps >= max(reserve, SHARE * left)

So n links whose deliveries are never settled keep SHARE * budget / (1 + SHARE * n) each, and a
SHARE-th of that is left for others; even when nothing is left of the process' budget, each link
has the reserve. A connection's budget is a limit for all its links together, without a reserve.
"""

import enum
from typing import Final

SHARE: Final = 8
"""How many times what is left of a budget one link may keep."""

RESERVE_OCTETS: Final = 64 << 10
"""Payload that each link may keep when the process' budget is spent, unless that is small."""


class Hold(enum.IntFlag):
    """Why an incoming link's window is held."""

    BUDGET = 1  # the octet budget of its connection, or of the process and its reserve, is spent
    PARTS = 2  # what its partial delivery feeds is congested, or nobody takes it yet


def grant(link_credit: int, width: int, credit: int, queued: int) -> int | None:
    """Returns the credit that a link is to have from now on (module docstring).

    The caller checks whether any receiver has credit.

    Returns:
        The new credit; None: leave it.
    """
    wanted = width if width < link_credit else link_credit
    if wanted <= 0 or (credit + queued) * 2 > wanted:
        return None
    return wanted - queued


def reserve(limit: int) -> int:
    """Returns the octets that each link may keep in any case; ``limit``: the process' budget."""
    return min(RESERVE_OCTETS, limit >> 12)


def is_over(octets: int, left: int, reserved: int) -> bool:
    """Returns whether a link keeps too much to be granted more (module docstring).

    Args:
        octets: that the link keeps.
        left: octets that are left of the budgets, the lesser number; negative if they are exceeded.
        reserved: see ``reserve``.
    """
    return octets >= max(reserved, SHARE * left)
