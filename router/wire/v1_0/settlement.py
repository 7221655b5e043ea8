"""Dispositions, in both directions (§2.6.12, §2.7.6).

Theory of operation. What the core updates is not sent at once: ``Settling`` gathers one direction
of one session until output is asked for, so that neighbours become ranges, whichever link and
command they came from. Two updates of one delivery must keep their order; the first can only be an
unsettled one, so what is gathered is sent before an update of another kind, settled or not, joins.

What a peer tells is cut to what is unsettled before it is walked, at the cost of the smaller of the
two; what is settled already is passed over in silence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from router.model import serial
from router.model.identity import DeliveryNumber
from router.model.outcome import DeliveryState
from router.model.terminus import Role
from router.wire.v1_0 import bulk
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.fitting import fit_settlement, fit_state
from router.wire.v1_0.link import IncomingLink, Link, OutgoingLink
from router.wire.v1_0.outgoing import forget
from router.wire.v1_0.performatives import Disposition, encode_disposition
from router.wire.v1_0.session import Session

KINDS: Final = 16
"""Different states gathered at once; rejections each with its own reason would grow a long list."""

_HEAD_OCTETS: Final = 32
"""More than a disposition has without its state."""


class Settling:
    """Dispositions of one direction of one session, until they are sent."""

    __slots__ = ("_kinds", "_role", "_settled")

    def __init__(self, role: Role) -> None:
        self._role = role
        self._settled = True
        self._kinds: list[tuple[DeliveryState | None, list[int]]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered."""
        return not self._kinds

    def must_send_before(self, state: DeliveryState | None, settled: bool) -> bool:
        """Tells whether what is gathered must be sent before such an update joins."""
        if not self._kinds:
            return False
        if settled is not self._settled or len(self._kinds) >= KINDS:
            return True
        return not settled and self._find(state) is None

    def add(self, ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """Gathers an update of deliveries; the list is taken over."""
        self._settled = settled
        found = self._find(state)
        if found is None:
            self._kinds.append((state, ids))
        else:
            found.extend(ids)

    def _find(self, state: DeliveryState | None) -> list[int] | None:
        for kind, ids in self._kinds:
            if kind is state or (type(kind) is type(state) and kind == state):
                return ids
        return None

    def send(self, session: Session) -> None:
        """Sends what is gathered, in ranges."""
        kinds = self._kinds
        self._kinds = []
        for state, ids in kinds:
            for first, last in ranges(ids):
                self._send_range(session, first, None if first == last else last, state)

    def _send_range(
        self, session: Session, first: int, last: int | None, state: DeliveryState | None
    ) -> None:
        body = encode_disposition(self._role, first, last, self._settled, state)
        room = session.room_octets
        if len(body) > room:
            fit = fit_settlement if self._settled else fit_state
            short = fit(state, room - _HEAD_OCTETS)
            body = encode_disposition(self._role, first, last, self._settled, short)
        session.send(body)


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Puts different delivery-ids in serial order and joins neighbours; both ends are included."""
    first = ids[0]
    count = len(ids)
    if count == 1:
        return [(first, first)]
    if ids[-1] - first == count - 1 and ids == list(range(first, first + count)):
        return [(first, ids[-1])]
    ids.sort()
    if ids[-1] - ids[0] >= serial.HALF:
        # The ids lie around 2^32: those of the upper half come first.
        ids.sort(key=lambda each: (each + serial.HALF) & serial.MASK)
    joined: list[tuple[int, int]] = []
    first = last = ids[0]
    for each in ids[1:]:
        if each == (last + 1) & serial.MASK:
            last = each
        else:
            joined.append((first, last))
            first = last = each
    joined.append((first, last))
    return joined


def unsettled_in(unsettled: Mapping[int, object], first: int, last: int) -> Sequence[int]:
    """Returns the ids from ``first`` to ``last`` that are unsettled, in serial order.

    Takes time in proportion to the smaller of the range and the map.

    Raises:
        Fault: if the range is reversed.
    """
    if first == last:
        return (first,) if first in unsettled else ()
    span = serial.distance(first, last)
    if span < 0:
        raise Fault(Rule.DISPOSITION_RANGE, f"{first} to {last}")
    if span < len(unsettled):
        if last >= first:
            return [each for each in range(first, last + 1) if each in unsettled]
        wanted = ((first + step) & serial.MASK for step in range(span + 1))
        return [each for each in wanted if each in unsettled]
    found = [each for each in unsettled if (each - first) & serial.MASK <= span]
    found.sort(key=lambda each: (each - first) & serial.MASK)
    return found


# --- our word -------------------------------------------------------------------------------------


def update_incoming(
    link: IncomingLink, numbers: Iterable[DeliveryNumber], settled: bool
) -> list[int]:
    """Applies our word on deliveries that we received; returns the ids to be told the peer."""
    unsettled = link.session.incoming
    if bulk.shortcuts is not None and isinstance(numbers, list):
        return bulk.shortcuts.unsettled_of(link, unsettled, numbers, settled)
    ids: list[int] = [each for each in numbers if unsettled.get(each) is link]
    if settled:
        for each in ids:
            del unsettled[each]
    return ids


def update_outgoing(
    link: OutgoingLink, numbers: Sequence[DeliveryNumber], settled: bool
) -> list[int]:
    """Applies our word on deliveries that we sent; returns the ids to be told the peer."""
    if settled:
        return forget(link, numbers)
    known = link.ids
    return [known[number] for number in numbers if number in known]


# --- the peer's word ------------------------------------------------------------------------------

Tell = Callable[[Link, list[DeliveryNumber], DeliveryState | None, bool], None]


def take_disposition(session: Session, disposition: Disposition, tell: Tell) -> None:
    """Takes a peer's disposition in and tells each run of one link (§2.7.6).

    Raises:
        Fault: if the range is reversed.
    """
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    if disposition.role is Role.RECEIVER:
        if first == last:
            _take_one_from_receiver(session, disposition, first, tell)
        else:
            _take_from_receiver(session, disposition, first, last, tell)
    else:
        _take_from_sender(session, disposition, first, last, tell)


def _take_one_from_receiver(
    session: Session, disposition: Disposition, delivery_id: int, tell: Tell
) -> None:
    """Does what ``_take_from_receiver`` does, for one delivery: many receivers tell no ranges."""
    link = session.outgoing.get(delivery_id)
    if link is None:
        return
    number = session.numbers[delivery_id]
    if disposition.settled:
        del session.outgoing[delivery_id], session.numbers[delivery_id]
        link.ids.pop(number, None)
    tell(link, [number], disposition.state, disposition.settled)


def _take_from_receiver(
    session: Session, disposition: Disposition, first: int, last: int, tell: Tell
) -> None:
    outgoing = session.outgoing
    numbers = session.numbers
    state = disposition.state
    settled = disposition.settled
    if bulk.shortcuts is not None:
        taken = bulk.shortcuts.take_from_receiver(outgoing, numbers, first, last, settled)
        if taken is not None:
            tell(*taken, state, settled)
            return
    run: list[DeliveryNumber] = []
    current: OutgoingLink | None = None
    for each in unsettled_in(outgoing, first, last):
        link = outgoing[each]
        if link is not current:
            if current is not None:
                tell(current, run, state, settled)
            current = link
            run = []
        number = numbers[each]
        run.append(number)
        if settled:
            del outgoing[each], numbers[each]
            link.ids.pop(number, None)
    if current is not None:
        tell(current, run, state, settled)


def _take_from_sender(
    session: Session, disposition: Disposition, first: int, last: int, tell: Tell
) -> None:
    incoming = session.incoming
    state = disposition.state
    settled = disposition.settled
    if bulk.shortcuts is not None:
        taken = bulk.shortcuts.take_from_sender(incoming, first, last, settled)
        if taken is not None:
            tell(*taken, state, settled)
            return
    run: list[DeliveryNumber] = []
    current: IncomingLink | None = None
    for each in unsettled_in(incoming, first, last):
        link = incoming[each]
        if link is not current:
            if current is not None:
                tell(current, run, state, settled)
            current = link
            run = []
        run.append(DeliveryNumber(each))
        if settled:
            del incoming[each]
    if current is not None:
        tell(current, run, state, settled)
