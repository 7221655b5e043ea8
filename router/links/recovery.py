"""What a sender does with each unsettled delivery when a link is resumed (§2.6.13, §3.4.6).

Theory of operation. On resumption each side has sent the other its unsettled map. For
every tag of its own map the sender looks up the receiver's state and takes one action.
``resume`` is the specification's table of examples as one function; the numbers are the
delivery-tags there::

    ours              theirs: absent  null           Received(q)              outcome
    null               1 SendAnew     4 ResumeFrom   2 ResumeFrom             3 Settle
    Received(p), p>0   5 SendAnew     9 Abort        6 ResumeFrom if q >= p   8 Settle
                                                     7 Abort if q < p
    outcome           10 Forget      14 Abort       11 Abort                 12 Settle if equal,
                                                                             13 Restate if not

``Received(0, 0)`` means null. A state that is neither an outcome nor ``Received`` (an open
transaction, a state of an unknown type) says nothing about the payload and counts as null.

Deliveries that only the receiver's map contains must be treated as settled by the receiver
(§2.6.13); the sender does nothing, so the table omits them. If a map is incomplete, absence means
nothing: callers must not ask about such tags.
"""

import enum
from typing import Final

import attrs

from router.model.outcome import DeliveryState, Received, is_outcome

START: Final = Received(0, 0)
"""The first octet of a message."""


class Absent(enum.Enum):
    """Says that a map has no entry; null would be an entry."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@attrs.frozen
class SendAnew:
    """Transfer the whole message, not marked as resumed: the receiver knows nothing of it."""


@attrs.frozen
class ResumeFrom:
    """Transfer with ``resume``, the payload from this point (or from before it) on."""

    position: Received


@attrs.frozen
class Settle:
    """Transfer with ``resume``, settled, without payload: both agree on the outcome."""

    outcome: DeliveryState


@attrs.frozen
class Restate:
    """Transfer with ``resume``, unsettled, without payload: our outcome stands, not theirs."""

    outcome: DeliveryState


@attrs.frozen
class Abort:
    """Transfer with ``resume`` and ``aborted``: the delivery cannot be completed."""


@attrs.frozen
class Forget:
    """Settle without sending anything: the receiver has settled."""


Action = SendAnew | ResumeFrom | Settle | Restate | Abort | Forget


def resume(ours: DeliveryState | None, theirs: DeliveryState | Absent | None) -> Action:
    """Returns what the sender does with one delivery of its unsettled map.

    Args:
        ours: the state in the sender's map: null, or the first point from which it can still send,
            or a final outcome.
        theirs: the state in the receiver's map.
    """
    if ours is not None and is_outcome(ours):
        return _resume_decided(ours, theirs)
    if isinstance(theirs, Absent):
        return SendAnew()
    if theirs is not None and is_outcome(theirs):
        return Settle(theirs)
    first = _position(ours)
    expected = _position(theirs)
    return ResumeFrom(expected) if _is_within(expected, first) else Abort()


def _resume_decided(ours: DeliveryState, theirs: DeliveryState | Absent | None) -> Action:
    if isinstance(theirs, Absent):
        return Forget()
    if theirs is None or not is_outcome(theirs):
        return Abort()
    return Settle(ours) if theirs == ours else Restate(ours)


def _position(state: DeliveryState | None) -> Received:
    return state if isinstance(state, Received) else START


def _is_within(expected: Received, first: Received) -> bool:
    """Returns whether a point lies at or behind the first from which the sender can send."""
    return (expected.section_number, expected.section_offset) >= (
        first.section_number,
        first.section_offset,
    )
