"""How long a terminus outlives its link (§3.5.6)."""

import enum
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

WHILE_SPOKEN_OF: Final = Keeping(ExpiryPolicy.SESSION_END, 0)
"""What termini have that are not asked for anything else (§3.5.3, §3.5.4)."""

NEVER_EXPIRES: Final = Keeping(ExpiryPolicy.NEVER, 0)
"""For links that we alone decide about."""


def agree(policy: ExpiryPolicy, seconds: int, limit_seconds: int) -> Keeping:
    """Returns what we really keep when a peer asks for ``policy`` and ``seconds``.

    Asked for longer than ``limit_seconds`` it is cut to that, and so is ``never``, as one that
    ends ``limit_seconds`` after the connection: the attach that answers must not promise more.
    """
    if policy is ExpiryPolicy.NEVER:
        return Keeping(ExpiryPolicy.CONNECTION_CLOSE, limit_seconds)
    return Keeping(policy, min(seconds, limit_seconds))


class End(enum.IntEnum):
    """What a detached link has lost, the least first."""

    LINK = 0
    SESSION = 1
    CONNECTION = 2


_BEGINS: Final = {
    ExpiryPolicy.LINK_DETACH: End.LINK,
    ExpiryPolicy.SESSION_END: End.SESSION,
    ExpiryPolicy.CONNECTION_CLOSE: End.CONNECTION,
}
"""Policy → the loss that begins the countdown."""


def seconds_left(keeping: Keeping, end: End) -> float:
    """Returns how long a terminus lives on from the moment at which its link lost ``end``.

    Returns:
        Seconds; ``FOREVER`` if the countdown does not begin with that, or never.
    """
    begins = _BEGINS.get(keeping.policy)
    return FOREVER if begins is None or end < begins else float(keeping.seconds)
