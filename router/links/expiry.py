"""How long a terminus outlives its link (§3.5.6)."""

import enum
from typing import Final

import attrs

from router.model.terminus import ExpiryPolicy

FOREVER: Final = float("inf")


@attrs.frozen
class Keeping:
    """How long the terminus of an absent peer is kept.

    Attributes:
        policy: when the countdown begins.
        seconds: how long it lasts.
    """

    policy: ExpiryPolicy
    seconds: int


NOT_KEPT: Final = Keeping(ExpiryPolicy.LINK_DETACH, 0)
"""For links that end when they are detached."""

WHILE_SPOKEN_OF: Final = Keeping(ExpiryPolicy.SESSION_END, 0)
"""The default of termini (§3.5.3, §3.5.4)."""

NEVER_EXPIRES: Final = Keeping(ExpiryPolicy.NEVER, 0)
"""For links whose lifetime only this router decides."""


def agree(policy: ExpiryPolicy, seconds: int, limit_seconds: int) -> Keeping:
    """Returns the expiry that we grant when a peer asks for ``policy`` and ``seconds``.

    A longer time than ``limit_seconds`` is cut to that. ``never`` becomes ``limit_seconds`` after
    the end of the connection: the answering attach must not promise more.
    """
    if policy is ExpiryPolicy.NEVER:
        return Keeping(ExpiryPolicy.CONNECTION_CLOSE, limit_seconds)
    return Keeping(policy, min(seconds, limit_seconds))


class End(enum.IntEnum):
    """What has ended around a detached link, from least to most."""

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
    """Returns how long a terminus lives on after the loss ``end`` of its link.

    Returns:
        Seconds; ``FOREVER`` if that loss does not begin the countdown.
    """
    begins = _BEGINS.get(keeping.policy)
    return FOREVER if begins is None or end < begins else float(keeping.seconds)
