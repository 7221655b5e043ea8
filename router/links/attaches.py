"""Attaches that may be late: attach numbers, and what is kept until confirmation (§2.6.13).

Theory of operation. AMQP identifies a link by names only. An attach that was delayed, by a
proxy or a paused process, can arrive after its successor: it steals the link (§2.6.1) and carries
an outdated map, or none. If such a map were believed, deliveries that it lacks would be forgotten
here, and arrive a second time with the next attach; and a state that it reports may belong to
another delivery with the same tag. Two rules prevent that, each for the cases that it can detect:

*Forget only after AttachConfirmed.* Deliveries that a map lacks are kept, and nothing irrevocable
is done because of the map, until the peer proves that it has read our answer to that attach
(``AttachConfirmed``). A peer that has moved on to another connection does not read the answer. No
decision depends on time: the state of a peer that never returns ends with its terminus.

*Numbers.* Ends of this program number their attaches with the link property ``router:attach``, a
list of two unsigned integers::

    [epoch, n]      compared in this order; both rise

    n        counts the attaches of the process that keeps the link's unsettled state, on whatever
             connection; no two attaches of a link have the same n, before or after a crash
    epoch    when that state was begun, in nanoseconds since 1970. A process that takes the state
             over or begins anew uses a greater epoch, which shuts out an outdated copy

The receiving end keeps the greatest number with the link's unsettled state, equally durable,
and refuses lower ones with ``amqp:link:stolen``; nothing else changes. An attach without a number
is accepted: an end without a durable state of its links sends none.
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
    """Numbers the attaches of links that are not resumed after this process has ended.

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
    """Returns the epoch of a new state, or of a state taken over from another epoch."""
    return now_ns if last is None else max(now_ns, last + 1)


def lacking(tags: Iterable[_Tag], theirs: Mapping[_Tag, object] | None) -> list[_Tag]:
    """Returns the tags, unsettled here, that a sender's map does not have.

    The sender has settled them (§2.6.13), or, before ``AttachConfirmed``, its map may be outdated.
    """
    known = theirs or {}
    return [tag for tag in tags if tag not in known]


def may_be_done_unconfirmed(ours: DeliveryState | None, action: Action) -> bool:
    """Returns whether a sender may take an action although the receiver's map may be outdated.

    Sending the delivery once more, with its tag and on its link, does no harm: a peer that has
    moved on to another connection does not read it, and its next map reports its state.

    Args:
        ours: the state in our map.
        action: what ``recovery.resume`` says. ``SendAnew`` means on this link and by this tag:
            until ``AttachConfirmed``, the delivery must not be sent on any other link.
    """
    match action:
        case SendAnew() | ResumeFrom() | Restate():
            return True
        case Settle():
            return ours is not None and is_outcome(ours)
        case _:
            return False
