"""How long a terminus outlives its link (§3.5.6)."""

from typing import Final

import attrs

from router.model.terminus import ExpiryPolicy

FOREVER: Final = float("inf")


@attrs.frozen
class Keeping:
    """What is kept of a terminus whose peer is away.

    Attributes:
        policy: when the countdown begins.
        seconds: how long it lasts.
    """

    policy: ExpiryPolicy
    seconds: int


NOT_KEPT: Final = Keeping(ExpiryPolicy.LINK_DETACH, 0)
"""For links that end when they are detached."""

NEVER_EXPIRES: Final = Keeping(ExpiryPolicy.NEVER, 0)
"""For links that we alone decide about."""


def agree(policy: ExpiryPolicy, seconds: int, limit_seconds: int) -> Keeping:
    """Gives what we really keep when a peer asks for ``policy`` and ``seconds``.

    Asked for longer than ``limit_seconds`` it is cut to that, and so is ``never``, as one that
    ends ``limit_seconds`` after the connection: the attach that answers must not promise more.
    """
    if policy is ExpiryPolicy.NEVER:
        return Keeping(ExpiryPolicy.CONNECTION_CLOSE, limit_seconds)
    return Keeping(policy, min(seconds, limit_seconds))


def seconds_left(keeping: Keeping, *, connection_lost: bool) -> float:
    """Tells how long a terminus lives on from the moment at which its link was detached.

    A detached link whose connection lives on begins its countdown only with ``link-detach``; the
    session is taken to live as long as its connection here, because sessions stay inside engines,
    so ``session-end`` begins no earlier than it may.

    Returns:
        Seconds; ``FOREVER`` if the countdown does not begin with this event, or never.
    """
    if keeping.policy is ExpiryPolicy.NEVER:
        return FOREVER
    if connection_lost or keeping.policy is ExpiryPolicy.LINK_DETACH:
        return float(keeping.seconds)
    return FOREVER
