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
"""

import enum


class Hold(enum.IntFlag):
    """Why an incoming link's window is held."""

    BUDGET = 1  # the octet budget of its connection, or of the process, is spent
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
