"""Received dispositions, and updates of ours (§2.6.12, §2.7.6); ``settling`` sends ours.

Theory of operation. A peer's range is intersected with the unsettled deliveries before it is
iterated, at the cost of the smaller of the two; settled deliveries are ignored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from router.model import serial
from router.model.identity import DeliveryNumber
from router.model.outcome import DeliveryState
from router.model.terminus import Role
from router.wire.v1_0 import bulk
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.link import IncomingLink, Link, OutgoingLink
from router.wire.v1_0.outgoing import forget
from router.wire.v1_0.performatives import Disposition
from router.wire.v1_0.session import Session


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
    """Applies our update to received deliveries; returns the ids to report to the peer."""
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
    """Applies our update to sent deliveries; returns the ids to report to the peer."""
    if settled:
        return forget(link, numbers)
    known = link.ids
    return [known[number] for number in numbers if number in known]


# --- the peer's word ------------------------------------------------------------------------------

Report = Callable[[Link, list[DeliveryNumber], DeliveryState | None, bool], None]


def take_disposition(session: Session, disposition: Disposition, report: Report) -> None:
    """Handles a peer's disposition and reports each run of one link (§2.7.6).

    Raises:
        Fault: if the range is reversed.
    """
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    if disposition.role is Role.RECEIVER:
        if first == last:
            _take_one_from_receiver(session, disposition, first, report)
        else:
            _take_from_receiver(session, disposition, first, last, report)
    else:
        _take_from_sender(session, disposition, first, last, report)


def _take_one_from_receiver(
    session: Session, disposition: Disposition, delivery_id: int, report: Report
) -> None:
    """Handles one delivery as ``_take_from_receiver`` does: many receivers send no ranges."""
    link = session.outgoing.get(delivery_id)
    if link is None:
        return
    number = session.numbers[delivery_id]
    if disposition.settled:
        del session.outgoing[delivery_id], session.numbers[delivery_id]
        link.ids.pop(number, None)
    report(link, [number], disposition.state, disposition.settled)


def _take_from_receiver(
    session: Session, disposition: Disposition, first: int, last: int, report: Report
) -> None:
    outgoing = session.outgoing
    numbers = session.numbers
    state = disposition.state
    settled = disposition.settled
    if bulk.shortcuts is not None:
        taken = bulk.shortcuts.take_from_receiver(outgoing, numbers, first, last, settled)
        if taken is not None:
            report(*taken, state, settled)
            return
    run: list[DeliveryNumber] = []
    current: OutgoingLink | None = None
    for each in unsettled_in(outgoing, first, last):
        link = outgoing[each]
        if link is not current:
            if current is not None:
                report(current, run, state, settled)
            current = link
            run = []
        number = numbers[each]
        run.append(number)
        if settled:
            del outgoing[each], numbers[each]
            link.ids.pop(number, None)
    if current is not None:
        report(current, run, state, settled)


def _take_from_sender(
    session: Session, disposition: Disposition, first: int, last: int, report: Report
) -> None:
    incoming = session.incoming
    state = disposition.state
    settled = disposition.settled
    if bulk.shortcuts is not None:
        taken = bulk.shortcuts.take_from_sender(incoming, first, last, settled)
        if taken is not None:
            report(*taken, state, settled)
            return
    run: list[DeliveryNumber] = []
    current: IncomingLink | None = None
    for each in unsettled_in(incoming, first, last):
        link = incoming[each]
        if link is not current:
            if current is not None:
                report(current, run, state, settled)
            current = link
            run = []
        run.append(DeliveryNumber(each))
        if settled:
            del incoming[each]
    if current is not None:
        report(current, run, state, settled)
