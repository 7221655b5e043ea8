"""Receiving deliveries: transfers are combined into runs of deliveries (§2.6.12, §2.6.14).

Theory of operation. Each transfer is checked against the session (window, delivery-id) and its link
(credit, tag, format, settlement, size). A delivery of a single transfer joins the run of its link
at once. A delivery of several transfers is gathered while they arrive in one receive, and the
gathered part is reported when the receive ends: the first part as a delivery with ``more``, the
others as its continuations. So a message that arrives complete is reported complete, and no message
is held back, except for a head that is needed for routing and is incomplete.

A delivery's number is its delivery-id.

Credit is enforced loosely. RabbitMQ renews its queues' credit while deliveries are on their way to
its session, which has not counted them; so with each flow it sends some deliveries too many, and
any number from a long queue. §2.6.7 allows us to accept them; the bound is the session's window,
which the core can hold. Deliveries before any credit was granted, or far beyond the credit, are a
fault.

``take_run`` handles the common case: consecutive transfers of one link, each a complete delivery.
They differ only in size, delivery-id, tag and payload. The rest is learned from one transfer that
was decoded field by field (``TransferShape``), and the next ones are only compared with it. The
function has no rules of its own: a transfer that differs, or might violate a rule, is left to
``take``.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import attrs

from router.model import serial
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.events import AttachConfirmed, CreditReturned, DeliveryAborted, DeliveryContinued
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import RELEASED, DeliveryState, Received, TransactionalState
from router.model.terminus import ReceiverSettleMode, SenderSettleMode
from router.wire.runs import Runs
from router.wire.v1_0 import bulk, windows
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.head import (
    HEAD_OCTETS,
    KEY_LEAD,
    HeaderMemory,
    KeyMemory,
    fill,
    is_head_whole,
)
from router.wire.v1_0.link import IncomingLink, LinkPhase, Partial
from router.wire.v1_0.performatives import Transfer
from router.wire.v1_0.session import Session
from router.wire.v1_0.state import ConnectionState, LinkState, SessionState

_MIXED: Final = SenderSettleMode.MIXED.value
_SETTLED: Final = SenderSettleMode.SETTLED.value

SHAPES: Final = 256
"""Most shapes cached per connection; a peer that exceeds it makes the cache start anew."""


@attrs.frozen(eq=False)
class TransferShape:
    """The constant parts of one link's transfers: all but size, delivery-id, tag and payload.

    Attributes:
        link: the link.
        settled: whether they are settled.
        head: from after the frame's size to the constructor of the delivery-id.
        tag_head: constructor and size of the tag.
        tail: message-format, settled and so on.
        unpack: reads size, ``head``, delivery-id, ``tag_head``, tag and ``tail``.
        octets: size of the frame without payload.
    """

    link: IncomingLink
    settled: bool
    head: bytes
    tag_head: bytes
    tail: bytes
    unpack: Callable[[bytes, int], tuple[Any, ...]]
    octets: int


def shape_of(link: IncomingLink, transfer: Transfer, frame: bytes) -> TransferShape | None:
    """Derives the shape of a link's transfers from one; None if it is not of the common kind.

    Args:
        link: the link on which it arrived.
        transfer: the decoded transfer.
        frame: its octets without payload, in a frame without extended header.
    """
    tag = transfer.delivery_tag
    delivery_id = transfer.delivery_id
    if (
        tag is None
        or delivery_id is None
        or transfer.more
        or transfer.aborted
        or transfer.resume
        or transfer.message_format
        or transfer.state is not None
        or transfer.rcv_settle_mode is not None
    ):
        return None
    middle = struct.pack(f">BI2s{len(tag)}s", 0x70, delivery_id, b"\xa0%c" % len(tag), tag)
    at = frame.find(middle, _LEAST_HEAD, _MOST_HEAD + len(middle))
    if at < 0:
        return None
    head, tail = frame[4 : at + 1], frame[at + len(middle) :]
    reader = struct.Struct(f">I{len(head)}sI2s{len(tag)}s{len(tail)}s")
    return TransferShape(
        link,
        transfer.settled is True,
        head,
        b"\xa0%c" % len(tag),
        tail,
        reader.unpack_from,
        reader.size,
    )


_LEAST_HEAD: Final = 15
_MOST_HEAD: Final = 25
"""Greatest offset of the delivery-id's constructor in a frame, by the forms of list and handle."""


class Receiving:
    """Handles the transfers of one connection.

    Attributes:
        gathering: links with a delivery that is not completely reported yet.
        overtaken: links on a lane with deliveries that the core must see first; the lane skips them
            until it has, so that nothing overtakes those deliveries.
        touched: sessions whose window has been used.
        reads_annotations: the peer is a router, so the stops of its deliveries are read.
        believes_keys: the peer is a trusted router, so its ledger keys are accepted.
        releases_late: what comes on a link that we have detached is released, not only discarded.
    """

    __slots__ = (
        "_answers_drains",
        "_headers",
        "_keyed",
        "_runs",
        "_shapes",
        "believes_keys",
        "gathering",
        "overtaken",
        "reads_annotations",
        "releases_late",
        "touched",
    )

    def __init__(self, runs: Runs, *, answers_drains: bool = False) -> None:
        self._runs = runs
        self._answers_drains = answers_drains
        self._shapes: dict[bytes, TransferShape] = {}
        self._headers = HeaderMemory()
        self._keyed = KeyMemory()
        self.gathering: dict[IncomingLink, None] = {}
        self.overtaken: dict[IncomingLink, None] = {}
        self.touched: dict[Session, None] = {}
        self.reads_annotations = False
        self.believes_keys = False
        self.releases_late = False

    # --- runs of usual transfers ------------------------------------------------------------------

    def take_run(self, connection: ConnectionState, octets: bytes, at: int, end: int) -> int:
        """Handles transfers of a known shape; returns the offset of the first that it leaves.

        Args:
            connection: the connection on which they arrived.
            octets: the octets received.
            at: where a frame begins.
            end: where the octets end.
        """
        shape = self._shapes.get(octets[at + 4 : at + 16])
        if shape is None:
            return at
        link = shape.link
        state = link.state
        session = state.session
        first = session.next_incoming_delivery
        if (
            first is None
            or link.phase is not LinkPhase.ATTACHED
            or not session.is_open
            or link.partial is not None
            or link.takes_resumed_only
            or link.is_asking
            or not self._may_be(link, shape.settled)
        ):
            return at
        largest = connection.max_incoming_frame_octets
        most = min(
            session.incoming_window,
            state.allowance + link.excess,
            serial.MASK + 1 - first,
        )
        after, run = self._read_run(shape, octets, at, end, largest, most)
        if run:
            self._enter_run(shape, session, first, run)
        return after

    @staticmethod
    def _may_be(link: IncomingLink, settled: bool) -> bool:
        mode = link.state.sender_settle_mode
        return mode == _MIXED or settled is (mode == _SETTLED)

    def _read_run(  # noqa: PLR0917  where the run is, and its bounds
        self, shape: TransferShape, octets: bytes, at: int, end: int, largest: int, most: int
    ) -> tuple[int, list[ReceivedDelivery]]:
        link = shape.link
        settled = shape.settled
        reads_all = link.is_anonymous or self._reads_annotations(link)
        is_second = link.state.settles_second and not settled
        if link.state.max_message_octets:
            largest = min(largest, link.state.max_message_octets + shape.octets)
        known = self._headers
        delivery_id = link.state.session.next_incoming_delivery
        assert delivery_id is not None, "the caller has looked"
        has_keys = reads_all and self.believes_keys and not link.is_anonymous
        if bulk.shortcuts is not None and (has_keys or not reads_all):
            return bulk.shortcuts.read_run(
                octets, at, end, largest, most, shape.head, shape.tag_head, shape.tail,
                delivery_id, settled, is_second, self._keyed if has_keys else known,
                len(KEY_LEAD) if has_keys else 0,
            )  # fmt: skip
        unpack, head, tag_head, tail = shape.unpack, shape.head, shape.tag_head, shape.tail
        least = shape.octets
        run: list[ReceivedDelivery] = []
        last = end - least
        while at <= last and len(run) < most:
            size, a_head, an_id, a_tag_head, tag, a_tail = unpack(octets, at)
            after = at + size
            if (
                an_id != delivery_id
                or a_tail != tail
                or a_head != head
                or a_tag_head != tag_head
                or not least <= size <= largest
                or after > end
            ):
                break
            payload = octets[at + least : after]
            delivery = ReceivedDelivery(
                an_id, tag, payload, Protocol.AMQP_1_0, 0, settled, False, None, False, is_second
            )
            if reads_all:
                self._fill(link, delivery)
            elif not payload.startswith(known.last):
                known.fill(delivery)
            elif known.has_ttl_or_count:
                delivery.ttl_milliseconds, delivery.delivery_count = known.ttl_and_count
            run.append(delivery)
            delivery_id += 1
            at = after
        return at, run

    def _fill(self, link: IncomingLink, delivery: ReceivedDelivery) -> None:
        """Sets the delivery's fields from its head."""
        fill(delivery, link.is_anonymous, self._reads_annotations(link), self.believes_keys)

    def _reads_annotations(self, link: IncomingLink) -> bool:
        """Returns whether a router's annotations on the link's deliveries are used."""
        return self.reads_annotations and (self.believes_keys or link.is_traced)

    def _enter_run(
        self, shape: TransferShape, session: SessionState, first: int, run: list[ReceivedDelivery]
    ) -> None:
        """Counts a run and enters it into the unsettled map."""
        link = shape.link
        state = link.state
        count = len(run)
        session.next_incoming_delivery = serial.add(first, count)
        octets = sum([len(each.payload) for each in run])
        windows.count(session, count, octets)
        state.delivery_count = serial.add(state.delivery_count, count)
        state.allowance -= count
        state.credit = max(0, state.credit - count)
        state.deliveries += count
        state.payload_octets += octets
        if not shape.settled:
            link.session.incoming.update(dict.fromkeys(range(first, first + count), link))
        self.touched[link.session] = None
        if state.lane is not None:
            self._keep_lane_away(link)
        self._runs.receive_all(state.link, run)
        if link.is_draining and not self._may_send(state):
            self._end_drain(link)

    def learn(self, session: Session, transfer: Transfer, frame: bytes) -> None:
        """Caches the shape of a transfer that was decoded field by field and accepted."""
        state = session.state.links.get(transfer.handle)
        if state is None or not isinstance(state.owner, IncomingLink) or frame[4] != 2:
            return
        shape = shape_of(state.owner, transfer, frame)
        if shape is not None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            self._shapes[frame[4:16]] = shape

    # --- the express lane -------------------------------------------------------------------------

    def _keep_lane_away(self, link: IncomingLink) -> None:
        state = link.state
        state.in_progress = True
        state.lane.came(state)  # it uses credit, which only the lane renews
        self.overtaken[link] = None

    def release_lanes(self) -> None:
        """Records that the core has seen all reported events, so lanes may continue."""
        for link in self.overtaken:
            link.state.in_progress = link.partial is not None
        self.overtaken.clear()

    # --- one transfer -----------------------------------------------------------------------------

    def take(self, session: Session, transfer: Transfer, payload: bytes) -> None:
        """Handles a transfer.

        Raises:
            Fault: if it violates a rule.
        """
        state = session.state
        if state.incoming_window <= 0:
            raise Fault(Rule.WINDOW, f"transfer {state.next_incoming_id}")
        windows.count(state, 1, len(payload))
        self.touched[session] = None
        link_state = state.links.get(transfer.handle)
        if link_state is None:
            raise session.unknown(transfer.handle)
        link = link_state.owner
        if link.phase is not LinkPhase.ATTACHED:
            link.receive_frame()
        if not isinstance(link, IncomingLink):
            raise Fault(Rule.TRANSFER_ROLE, link=link)
        if link_state.lane is not None:
            self._keep_lane_away(link)
        if not link.is_live:
            self._pass_over(session, transfer)
        elif link.partial is None:
            self._begin(session, link, transfer, payload)
        else:
            self._continue(link, link.partial, transfer, payload)

    def _pass_over(self, session: Session, transfer: Transfer) -> None:
        """Counts the delivery-ids on a link that we have detached, and discards the transfers."""
        state, delivery_id = session.state, transfer.delivery_id
        if delivery_id is None or state.next_incoming_delivery not in (None, delivery_id):
            return
        state.next_incoming_delivery = serial.add(delivery_id, 1)
        if self.releases_late and not transfer.settled:
            settling = session.settling_received
            if settling.must_send_before(RELEASED, settled=True):
                settling.send(session)
            settling.add([delivery_id], RELEASED, settled=True)

    def _begin(
        self, session: Session, link: IncomingLink, transfer: Transfer, payload: bytes
    ) -> None:
        """Handles the first transfer of a delivery."""
        number = _take_id(session.state, transfer)
        tag = transfer.delivery_tag
        if tag is None:
            raise Fault(Rule.DELIVERY_TAG, link=link)
        state = link.state
        if state.allowance + link.excess <= 0:
            raise Fault(Rule.TRANSFER_LIMIT, link=link)
        if link.takes_resumed_only and not transfer.resume:
            raise Fault(Rule.INCOMPLETE_UNSETTLED, link=link)
        if isinstance(transfer.state, TransactionalState):
            raise Fault(Rule.TRANSACTION, link=link)
        if link.is_asking:
            link.is_asking = False
            self._runs.add(AttachConfirmed(link.link))
        settled = transfer.settled is True or transfer.aborted
        is_second = not settled and _settles_second(link, transfer)
        state.allowance -= 1
        state.credit = max(0, state.credit - 1)
        state.delivery_count = serial.add(state.delivery_count, 1)
        state.deliveries += 1
        delivery = ReceivedDelivery(
            number,
            DeliveryTag(tag),
            payload,
            message_format=transfer.message_format or 0,
            settled=settled,
            state=_state_of(transfer),
            resume=transfer.resume,
            settles_second=is_second,
            settles_first=link.state.settles_second and not (settled or is_second),
        )
        if not settled:
            session.incoming[number] = link
        if transfer.more or transfer.aborted:
            partial = Partial(delivery, settled)
            link.set_partial(partial)
            self._gather(link, partial, transfer, payload)
            return
        if not transfer.resume:  # §3.4.6 settles resumed ones whatever mode the link has
            self._check_settled(link, settled)
        size = len(payload)
        if 0 < state.max_message_octets < size:
            raise Fault(Rule.MESSAGE_SIZE, f"{size} octets", link)
        state.payload_octets += size
        self._fill(link, delivery)
        self._runs.receive(state.link, delivery)
        if link.is_draining and not self._may_send(state):
            self._end_drain(link)

    def _may_send(self, state: LinkState) -> bool:
        """Returns whether deliveries may come before a drain is answered.

        A router answers each drain by a flow. Until then it may send what it was granted before.
        """
        return bool(state.allowance if self._answers_drains else state.credit)

    def _end_drain(self, link: IncomingLink) -> None:
        """Ends a drain that deliveries have completed: some senders then send no flow (§2.6.7)."""
        link.is_draining = False
        self._runs.add(CreditReturned(link.state.link, 0))

    def _check_settled(self, link: IncomingLink, settled: bool) -> None:
        if not self._may_be(link, settled):
            mode = SenderSettleMode(link.state.sender_settle_mode).name.lower()
            raise Fault(Rule.SETTLED_MODE, f"settled {settled}, mode {mode}", link)

    # --- later transfers --------------------------------------------------------------------------

    def _continue(
        self, link: IncomingLink, partial: Partial, transfer: Transfer, payload: bytes
    ) -> None:
        delivery = partial.delivery
        if (
            transfer.delivery_id not in (None, delivery.number)
            or transfer.delivery_tag not in (None, delivery.tag)
            or transfer.message_format not in (None, delivery.message_format)
        ):
            raise Fault(Rule.CONTINUATION, f"delivery {delivery.number}", link)
        if isinstance(transfer.state, TransactionalState):
            raise Fault(Rule.TRANSACTION, link=link)
        if _state_of(transfer) is not None:
            self._take_state(link, partial, transfer)
        if transfer.settled and not partial.settled:
            partial.settled = True
            link.session.incoming.pop(delivery.number, None)
            if not partial.is_reported:
                delivery.settled = True
                delivery.settles_second = False
        self._gather(link, partial, transfer, payload)

    def _take_state(self, link: IncomingLink, partial: Partial, transfer: Transfer) -> None:
        """Handles a transfer's state like a disposition just before the transfer (§2.7.5)."""
        if partial.is_reported:
            self._runs.update(link.link, [partial.delivery.number], transfer.state, False)
        else:
            partial.delivery.state = transfer.state

    def _gather(
        self, link: IncomingLink, partial: Partial, transfer: Transfer, payload: bytes
    ) -> None:
        if transfer.aborted:
            self._abort(link, partial)
            return
        partial.parts.append(payload)
        partial.total_octets += len(payload)
        link.state.payload_octets += len(payload)
        most = link.state.max_message_octets
        if 0 < most < partial.total_octets:
            limit = f"more than {most} octets"
            raise Fault(Rule.MESSAGE_SIZE, limit, link)
        self.gathering[link] = None
        if not transfer.more:
            self._check_settled(link, partial.settled)
            self._end(link)
            self._report(link, partial, more=False)

    def _abort(self, link: IncomingLink, partial: Partial) -> None:
        """Aborts a delivery; it is reported to the core nevertheless, because it used credit."""
        number = partial.delivery.number
        self._end(link)
        link.session.incoming.pop(number, None)
        if not partial.is_reported:
            partial.parts.clear()
            self._report(link, partial, more=True)
        self._runs.add(DeliveryAborted(link.link, number))
        if link.is_draining and not self._may_send(link.state):
            self._end_drain(link)

    def _end(self, link: IncomingLink) -> None:
        link.set_partial(None)
        self.gathering.pop(link, None)

    # --- reporting --------------------------------------------------------------------------------

    def report_gathered(self) -> None:
        """Reports the gathered parts of incomplete deliveries."""
        if not self.gathering:
            return
        waiting: dict[IncomingLink, None] = {}
        for link in self.gathering:
            partial = link.partial
            if partial is None or not link.is_live:
                continue
            if not partial.is_reported and self._waits_for_head(link, partial):
                waiting[link] = None
            else:
                self._report(link, partial, more=True)
        self.gathering = waiting

    def _waits_for_head(self, link: IncomingLink, partial: Partial) -> bool:
        if partial.total_octets >= HEAD_OCTETS or partial.delivery.message_format:
            return False
        if len(partial.parts) > 1:
            partial.parts = [b"".join(partial.parts)]
        reads_all = link.is_anonymous or self._reads_annotations(link)
        return not is_head_whole(partial.parts[0], reads_all)

    def _report(self, link: IncomingLink, partial: Partial, more: bool) -> None:
        payload = b"".join(partial.parts)
        partial.parts.clear()
        delivery = partial.delivery
        if partial.is_reported:
            part = DeliveryContinued(link.link, delivery.number, payload, more, partial.settled)
            self._runs.add(part)
        else:
            partial.is_reported = True
            delivery.payload = payload
            delivery.more = more
            self._fill(link, delivery)
            self._runs.receive(link.link, delivery)
        if link.is_draining and not more and not self._may_send(link.state):
            self._end_drain(link)


def _state_of(transfer: Transfer) -> DeliveryState | None:
    """Returns a transfer's state; ``received`` is ignored unless a delivery resumes (§3.4.1)."""
    is_void = isinstance(transfer.state, Received) and not transfer.resume
    return None if is_void else transfer.state


def _take_id(session: SessionState, transfer: Transfer) -> DeliveryNumber:
    delivery_id = transfer.delivery_id
    expected = session.next_incoming_delivery
    if delivery_id is None or delivery_id != (delivery_id if expected is None else expected):
        raise Fault(Rule.DELIVERY_ID, f"{delivery_id} where {expected} was due")
    session.next_incoming_delivery = serial.add(delivery_id, 1)
    return DeliveryNumber(delivery_id)


def _settles_second(link: IncomingLink, transfer: Transfer) -> bool:
    """Returns whether we settle second: a transfer may ask for less than the link, not for more."""
    mode = transfer.rcv_settle_mode
    if mode is None:
        return link.state.settles_second
    if mode is ReceiverSettleMode.SECOND and not link.state.settles_second:
        raise Fault(Rule.RECEIVER_MODE, link=link)
    return mode is ReceiverSettleMode.SECOND
