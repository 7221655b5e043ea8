"""Attaches that may be late: numbers, and what waits until the peer is heard (§2.6.13).

Theory of operation. AMQP knows a link by names alone. An attach that was held up on its way, by a
proxy or a paused process, can arrive behind its successor: it steals the link (§2.6.1) and shows a
map that is old, or none. Taken at its word, what its map lacks would be forgotten here, and come a
second time with the next attach; what it calls decided may be another delivery of the same tag. Two
rules, each of which suffices for what it can see:

*Forget only when spoken to.* What a map lacks is kept, and what it says is not acted upon for good,
until the peer shows that it has read our answer to that attach (``PeerHeard``). Who has sent an
attach and gone on to another connection reads no answer to it. Nothing is decided by time: a peer
that never speaks again is let go with its terminus.

*Numbers.* Ends of this program number their attaches with the link property ``router:attach``, a
list of two unsigned integers::

    [epoch, n]      compared in this order; both rise

    n        counts the attaches of whoever remembers the link's unsettled state, on whatever
             connection; no two attaches of a link have the same, before or after a crash
    epoch    of that memory: when it was begun, in nanoseconds since 1970. Whoever takes it over
             or begins anew has a greater one, so that a memory that was left behind is shut out

The receiving end keeps the greatest number with the link's unsettled state, as durably as that,
and refuses lower ones with ``amqp:link:stolen``; nothing else changes. An attach without a number
is accepted: whoever has no durable memory of its links sends none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import attrs

from router.links.recovery import Action, Restate, ResumeFrom, SendAnew, Settle
from router.model.identity import DeliveryTag
from router.model.outcome import DeliveryState, is_outcome

ATTACH: Final = "router:attach"
"""Property of an attach: its number."""

_LARGEST: Final = (1 << 64) - 1

PeerMap = Mapping[DeliveryTag, DeliveryState | None]


class AttachNumber(NamedTuple):
    """Number of an attach; a tuple because it is compared."""

    epoch: int
    n: int


DrawNumber = Callable[[], AttachNumber | None]
"""Draws the number of the next attach, durable by then; None: this end numbers none."""

_Tag = TypeVar("_Tag")


def no_number() -> None:
    """Draws nothing: an end without a durable memory of its links."""


@attrs.define
class LifeCount:
    """Numbers the attaches of links that nobody takes up again when this process has ended.

    Attributes:
        epoch: when they were begun, in nanoseconds since 1970.
    """

    epoch: int
    _n: int = attrs.field(default=0, init=False)

    def draw(self) -> AttachNumber:
        """Draws the next number."""
        self._n += 1
        return AttachNumber(self.epoch, self._n)


def properties_of(number: AttachNumber | None) -> dict[object, object]:
    """Returns the link properties that carry a number."""
    return {} if number is None else {ATTACH: list(number)}


def read_number(properties: Mapping[object, object]) -> AttachNumber | None:
    """Reads the number of an attach; None: it has none.

    Raises:
        ValueError: it is not two unsigned integers.
    """
    value = properties.get(ATTACH)
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2:
        epoch, n = value
        if _is_unsigned(epoch) and _is_unsigned(n):
            return AttachNumber(epoch, n)
    raise ValueError(f"{ATTACH} is not a list of two unsigned integers")


def _is_unsigned(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def is_late(number: AttachNumber | None, greatest: AttachNumber | None) -> bool:
    """Returns whether an attach was overtaken by one that has been seen already."""
    return number is not None and greatest is not None and number < greatest


def next_epoch(last: int | None, now_ns: int) -> int:
    """Returns the epoch of a memory that is begun, or taken over from one of another epoch."""
    return now_ns if last is None else max(now_ns, last + 1)


def lacking(tags: Iterable[_Tag], theirs: Mapping[_Tag, object] | None) -> list[_Tag]:
    """Returns the tags, unsettled here, that a sender's map does not have.

    The sender has settled them (§2.6.13); or its map is old, as long as it has not been heard.
    """
    known = theirs or {}
    return [tag for tag in tags if tag not in known]


def may_be_done_unheard(ours: DeliveryState | None, action: Action) -> bool:
    """Returns whether a sender may do this about a delivery though the receiver's map may be old.

    What only sends the delivery once more, by its tag and on its link, does no harm: who has gone
    on to another connection does not read it, and the next map tells how it stands.

    Args:
        ours: the state in our map.
        action: what ``recovery.resume`` says. ``SendAnew`` means on this link and by this tag:
            until the receiver has been heard, the delivery must go to nobody else.
    """
    match action:
        case SendAnew() | ResumeFrom() | Restate():
            return True
        case Settle():
            return ours is not None and is_outcome(ours)
        case _:
            return False
