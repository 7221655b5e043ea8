"""Limits and expiry of local queues: RabbitMQ's optional arguments.

A local queue lives in the router, which applies these arguments; those of a routed queue are
applied by whoever holds it::

    x-message-ttl        milliseconds that a message may wait, at least 0
    x-expires            milliseconds without consumers, gets and declares, at least 1
    x-max-length         messages that may wait
    x-max-length-bytes   octets of these messages, properties counted
    x-overflow           drop-head (default): drops the oldest; reject-publish: rejects the newest

Arguments that need a message store, and queue types other than classic, are refused.
"""

from typing import Any, Final

import attrs

from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.types import Table

STORAGE_ARGUMENTS: Final = frozenset(
    {
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-max-priority",
        "x-single-active-consumer",
    }
)
"""Arguments that need a message store."""

OVERFLOWS: Final = ("drop-head", "reject-publish")

QUEUE_TYPES: Final = (None, "classic")
"""Queue types that may be exclusive, or deleted automatically, with RabbitMQ, too."""


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of a local queue; None: no limit.

    Attributes:
        ttl_seconds: how long a message may wait.
        unused_seconds: how long the queue is kept unused.
        length: how many messages may wait.
        octets: octets of waiting messages.
        rejects: a full queue rejects new messages instead of dropping the oldest.
    """

    ttl_seconds: float | None = None
    unused_seconds: float | None = None
    length: int | None = None
    octets: int | None = None
    rejects: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether a message may be dropped because of others."""
        return self.length is not None or self.octets is not None


UNLIMITED: Final = Limits()


def limits_of(arguments: Table) -> Limits:
    """Reads the arguments of a local queue.

    Raises:
        PeerError: an argument is not supported, or invalid.
    """
    asked = STORAGE_ARGUMENTS.intersection(arguments)
    if asked:
        raise PeerError(Reply.PRECONDITION_FAILED, f"{min(asked)}: a router stores no messages")
    kind = arguments.get("x-queue-type")
    if kind not in QUEUE_TYPES:
        raise PeerError(
            Reply.PRECONDITION_FAILED, f"x-queue-type: {kind!r} is no queue of one connection"
        )
    overflow = arguments.get("x-overflow", OVERFLOWS[0])
    if overflow not in OVERFLOWS:
        raise PeerError(
            Reply.PRECONDITION_FAILED, f"x-overflow: {overflow!r} is none of {', '.join(OVERFLOWS)}"
        )
    return Limits(
        ttl_seconds=_seconds(arguments, "x-message-ttl", 0),
        unused_seconds=_seconds(arguments, "x-expires", 1),
        length=_number(arguments, "x-max-length", 0),
        octets=_number(arguments, "x-max-length-bytes", 0),
        rejects=overflow == "reject-publish",
    )


def _seconds(arguments: Table, name: str, least: int) -> float | None:
    milliseconds = _number(arguments, name, least)
    return None if milliseconds is None else milliseconds / 1000


def _number(arguments: Table, name: str, least: int) -> int | None:
    value: Any = arguments.get(name)
    if name not in arguments:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PeerError(
            Reply.PRECONDITION_FAILED, f"{name}: {value!r} is no whole number of {least} or more"
        )
    return value
