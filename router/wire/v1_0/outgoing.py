"""Sending deliveries: split into transfers, wait for window and credit (§2.6.14, §2.5.6).

Theory of operation. Deliveries are sent while the peer's window and the link's credit last; the
others wait in the link's queue, in order, and the link joins the session's waiting links. When a
flow opens the window, these take turns, a few frames each. No delivery of a link may overtake its
queue.

A delivery gets its delivery-id, enters the unsettled maps and uses its credit with its first
transfer, not before. Payload is split here, by the peer's max-frame-size, because this is where
transfers are counted.

``send_run`` handles the common case: complete deliveries that fit a frame, without fields other
than handle, id, tag and settled, and with no annotations for a router but the key. Their transfers
differ in few octets, so the constant part is cached per link (``Form``); the output is the same as
that of ``encode_transfer``. What waits is sent in the same way, a run at each turn.
"""

import struct
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, cast

import attrs

from router.model import serial
from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.wire.v1_0 import bulk
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.fitting import fit_settlement, fit_state
from router.wire.v1_0.head import KEY_LEAD, KEY_OCTETS, KEYED_OCTETS, place_of_key
from router.wire.v1_0.link import LinkPhase, OutgoingLink, Verb, Waiting
from router.wire.v1_0.performatives import Transfer, encode, encode_transfer
from router.wire.v1_0.session import Session

FRAMES_A_TURN: Final = 8
"""Transfers that a waiting link sends before the next link has its turn."""

RUN_A_TURN: Final = 64
"""The same of common deliveries, which are small: no more octets than in as many full frames. The
peer reads each link's run at once, so shorter ones cost both ends more."""

_HEAD_OCTETS: Final = 80
"""Upper bound of the size of a delivery's first transfer without its state."""

_WIDE_ID: Final = 256
"""Delivery-ids below have shorter encodings; ``Form`` has the common one."""

_UNSETTLED: Final = b"\x43\x42"
_SETTLED: Final = b"\x43\x41"
"""message-format 0 and settled, at the end of a transfer."""


@attrs.frozen
class Form:
    """The constant parts of a link's transfers with tags of one size.

    Attributes:
        pack: packs size, ``head``, delivery-id, ``tag_head``, tag and the end.
        head: from after the frame's size to the constructor of the delivery-id.
        tag_head: constructor and size of the tag.
        octets: size of the frame without payload.
    """

    pack: Callable[..., bytes]
    head: bytes
    tag_head: bytes
    octets: int


def _form(link: OutgoingLink, tag_octets: int) -> Form:
    """Derives the form for tags of ``tag_octets`` from a transfer encoded field by field."""
    specimen = encode_transfer(link.state.handle, _WIDE_ID, b"\0" * tag_octets, 0, False)
    id_at = len(specimen) - len(_UNSETTLED) - tag_octets - 2 - 4
    channel = link.session.state.channel
    head = struct.pack(">BBH", 2, 0, channel) + specimen[:id_at]
    form = struct.Struct(f">I{len(head)}sI2s{tag_octets}s2s")
    return Form(form.pack, head, specimen[id_at + 4 : id_at + 6], form.size)


class Outgoing:
    """Sends the deliveries of one connection."""

    __slots__ = ("_endpoints", "is_router")

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self.is_router = False

    # --- runs of usual deliveries -----------------------------------------------------------------

    def send_run(self, link: OutgoingLink, deliveries: list[OutgoingDelivery], start: int) -> int:
        """Sends common deliveries from ``start`` on; returns how many it sent."""
        return 0 if link.queue else self._send_common(link, deliveries, start)

    def _send_common(
        self, link: OutgoingLink, deliveries: list[OutgoingDelivery], start: int
    ) -> int:
        """Does what ``send_run`` does, whatever waits in the link's queue."""
        state = link.state
        session = link.session
        counters = session.state
        first_id = counters.next_outgoing_delivery
        most = min(len(deliveries) - start, state.credit, counters.remote_incoming_window)
        if (
            link.phase is not LinkPhase.ATTACHED
            or link.begun is not None
            or first_id < _WIDE_ID
            or first_id + most > serial.MASK
        ):
            return 0
        if most <= 0:
            return 0
        chunks, octets, count = self._write_run(link, deliveries, start, start + most)
        if count:
            self._enter_run(link, deliveries, start, count)
            counters.next_outgoing_delivery = first_id + count
            counters.next_outgoing_id = serial.add(counters.next_outgoing_id, count)
            counters.remote_incoming_window -= count
            state.credit -= count
            state.delivery_count = serial.add(state.delivery_count, count)
            state.deliveries += count
            run = deliveries if count == len(deliveries) else deliveries[start : start + count]
            state.payload_octets += sum([len(delivery.payload) for delivery in run])
            if self.is_router:
                keys = sum([delivery.key is not None for delivery in run])
                state.payload_octets += keys * KEYED_OCTETS
            counters.output.extend(chunks, octets)
        return count

    def _write_run(
        self, link: OutgoingLink, deliveries: list[OutgoingDelivery], start: int, end: int
    ) -> tuple[list[bytes], int, int]:
        """Encodes frames until a delivery is not of the common kind.

        Returns:
            the frames, their octets, and the number of deliveries.
        """
        chunks: list[bytes] = []
        largest_frame = link.session.connection.max_frame_octets
        largest = link.state.max_message_octets or largest_frame
        is_router = self.is_router
        octets = 0
        delivery_id = link.session.state.next_outgoing_delivery
        if bulk.shortcuts is not None:
            tag_octets = len(deliveries[start].tag)
            form = self._form_for(link, tag_octets)
            frames, count = bulk.shortcuts.write_run(
                deliveries, start, end, form.head, form.tag_head, tag_octets, delivery_id,
                largest, largest_frame, is_router,
            )  # fmt: skip
            if count:
                return [frames], len(frames), count
        for at in range(start, end):
            delivery = deliveries[at]
            if (
                delivery.ttl_milliseconds is not None
                or delivery.delivery_count is not None
                or delivery.more
                or delivery.state is not None
                or delivery.resume
                or delivery.message_format
                or delivery.protocol is not Protocol.AMQP_1_0
                or (is_router and delivery.hops is not None)
            ):
                break
            tag = delivery.tag
            payload = delivery.payload
            if is_router and delivery.key is not None:
                before = place_of_key(payload)
                if before < 0 or len(delivery.key) != KEY_OCTETS:
                    break
                payload = b"".join((payload[:before], KEY_LEAD, delivery.key, payload[before:]))
            form = self._form_for(link, len(tag))
            size = len(payload)
            frame_octets = size + form.octets
            if size > largest or frame_octets > largest_frame:
                break
            tail = _SETTLED if delivery.settled else _UNSETTLED
            chunks.append(form.pack(frame_octets, form.head, delivery_id, form.tag_head, tag, tail))
            chunks.append(payload)
            octets += frame_octets
            delivery_id += 1
        return chunks, octets, len(chunks) >> 1

    @staticmethod
    def _form_for(link: OutgoingLink, tag_octets: int) -> Form:
        form = cast("Form | None", link.forms.get(tag_octets))
        if form is None:
            form = link.forms[tag_octets] = _form(link, tag_octets)
        return form

    @staticmethod
    def _enter_run(
        link: OutgoingLink, deliveries: list[OutgoingDelivery], start: int, count: int
    ) -> None:
        """Enters a run, which gets the next delivery-ids, into the unsettled maps."""
        session = link.session
        first_id = session.state.next_outgoing_delivery
        if bulk.shortcuts is not None:
            bulk.shortcuts.enter_run(
                deliveries, start, count, first_id, link,
                session.outgoing, session.numbers, link.ids,
            )  # fmt: skip
            return
        run = deliveries[start : start + count]
        ids = range(first_id, first_id + count)
        numbers = [delivery.number for delivery in run if not delivery.settled]
        if len(numbers) < len(run):
            pairs = zip(ids, run, strict=True)
            unsettled = [each for each, delivery in pairs if not delivery.settled]
        else:
            unsettled = list(ids)
        session.outgoing.update(dict.fromkeys(unsettled, link))
        session.numbers.update(zip(unsettled, numbers, strict=True))
        link.ids.update(zip(numbers, unsettled, strict=True))

    # --- one item ---------------------------------------------------------------------------------

    def send(self, link: OutgoingLink, item: Waiting) -> None:
        """Sends an item; the part that cannot be sent now waits in the link's queue."""
        if link.queue or not self._send_frames(link, item, len(item.payload) + 1):
            link.hold(item)
            if item.is_unsent:
                link.queued_deliveries += 1
            self._endpoints.waiting_octets += len(item.payload) - item.at
            if not link.is_waiting:
                link.is_waiting = True
                link.session.waiting.append(link)
        link.mark_progress()

    def _send_frames(self, link: OutgoingLink, item: Waiting, most: int) -> bool:
        """Sends up to ``most`` transfers of an item; returns whether it is done."""
        if link.phase is not LinkPhase.ATTACHED:
            return False
        counters = link.session.state
        for _ in range(most):
            if not counters.remote_incoming_window:
                return False
            if item.is_unsent:
                if not link.state.credit:
                    return False
                done = self._send_first(link, item)
            elif item.verb is Verb.ABORT:
                body = encode(Transfer(link.state.handle, settled=True, aborted=True))
                self._send_frame(link.session, body, b"")
                done = True
            else:
                done = self._send_next(link, item)
            if done:
                return True
        return False

    @staticmethod
    def _send_frame(session: Session, body: bytes, payload: bytes) -> None:
        state = session.state
        state.next_outgoing_id = serial.add(state.next_outgoing_id, 1)
        state.remote_incoming_window -= 1
        session.send(body, payload)

    def _send_first(self, link: OutgoingLink, item: Waiting) -> bool:
        """Sends the first transfer of a delivery, with its id and tag (§2.7.5)."""
        delivery = item.delivery
        assert delivery is not None, "what begins a delivery has it"
        state = link.state
        delivery_id = self._name(link, delivery)
        item.has_begun = True
        size = len(item.payload)
        state.payload_octets += size
        most = link.session.max_body_octets
        body = _first_body(state.handle, delivery, delivery_id, item.more, most)
        payload_octets = most - len(body)
        if size <= payload_octets:
            item.at = size
            self._send_frame(link.session, body, item.payload)
            return True
        if not item.more:
            body = _first_body(state.handle, delivery, delivery_id, True, most)
            payload_octets = most - len(body)
        item.at = payload_octets
        self._send_frame(link.session, body, item.payload[:payload_octets])
        return False

    @staticmethod
    def _name(link: OutgoingLink, delivery: OutgoingDelivery) -> int:
        """Assigns the delivery-id, enters the delivery into the maps, and uses one credit."""
        session = link.session
        counters = session.state
        delivery_id = counters.next_outgoing_delivery
        counters.next_outgoing_delivery = serial.add(delivery_id, 1)
        state = link.state
        state.credit -= 1
        state.delivery_count = serial.add(state.delivery_count, 1)
        state.deliveries += 1
        if not delivery.settled:
            session.outgoing[delivery_id] = link
            session.numbers[delivery_id] = delivery.number
            link.ids[delivery.number] = delivery_id
        return delivery_id

    def _send_next(self, link: OutgoingLink, item: Waiting) -> bool:
        """Sends a later transfer of a delivery; id, tag, format and settled are omitted (§2.7.5).

        A part without octets is sent for its ``more`` field, which may end the delivery.
        """
        session = link.session
        body = encode_transfer(link.state.handle, more=item.more)
        payload_octets = session.max_body_octets - len(body)
        left = len(item.payload) - item.at
        if item.verb is Verb.CONTINUE and not item.has_begun:
            item.has_begun = True
            link.state.payload_octets += left
        if left <= payload_octets:
            self._send_frame(session, body, item.payload[item.at :])
            item.at += left
            return True
        if not item.more:
            body = encode_transfer(link.state.handle, more=True)
            payload_octets = session.max_body_octets - len(body)
        self._send_frame(session, body, item.payload[item.at : item.at + payload_octets])
        item.at += payload_octets
        return False

    # --- what waits -------------------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """Sends waiting items as far as window and credit allow; links take turns."""
        waiting = session.waiting
        stuck = 0
        while stuck < len(waiting) and session.state.remote_incoming_window:
            link = waiting.pop(0)
            moved = self._send_queue(link)
            if link.queue:
                waiting.append(link)
                stuck = 0 if moved else stuck + 1
            else:
                link.is_waiting = False
            link.mark_progress()
            self._return_if_due(link)

    def _send_queue(self, link: OutgoingLink) -> bool:
        """Sends the link's queue for one turn; returns whether anything was sent."""
        queue = link.queue
        if self._send_queued_run(link):
            return True
        frames_left = FRAMES_A_TURN
        before = link.session.state.next_outgoing_id
        while queue and frames_left:
            item = queue[0]
            at, was_unsent = item.at, item.is_unsent
            frames_before = link.session.state.next_outgoing_id
            done = self._send_frames(link, item, frames_left)
            frames_left -= serial.distance(frames_before, link.session.state.next_outgoing_id)
            self._endpoints.waiting_octets -= item.at - at
            if was_unsent and not item.is_unsent:
                link.queued_deliveries -= 1
            if not done:
                break
            queue.popleft()
        return link.session.state.next_outgoing_id != before

    def _send_queued_run(self, link: OutgoingLink) -> int:
        """Sends common deliveries at the head of a link's queue; returns how many."""
        run: list[OutgoingDelivery] = []
        octets_left = FRAMES_A_TURN * link.session.max_body_octets
        for item in islice(link.queue, RUN_A_TURN):
            octets_left -= len(item.payload)
            if item.delivery is None or item.more or not item.is_unsent or octets_left < 0:
                break
            run.append(item.delivery)
        count = self._send_common(link, run, 0) if run else 0
        for _ in range(count):
            self._endpoints.waiting_octets -= len(link.queue.popleft().payload)
        link.queued_deliveries -= count
        return count

    def _return_if_due(self, link: OutgoingLink) -> None:
        if link.return_due and not (link.queue and link.state.credit):
            self.return_credit(link)
        if link.awaits_record and not link.queue:
            link.session.links_due[link] = None
            self._endpoints.due[link.session] = None

    def return_credit(self, link: OutgoingLink) -> None:
        """Answers a drain: adds the credit left to the delivery-count, sends a flow (§2.6.7)."""
        link.return_due = False
        state = link.state
        state.delivery_count = serial.add(state.delivery_count, state.credit)
        state.credit = 0
        link.session.links_due[link] = None
        self._endpoints.due[link.session] = None

    def drop_waiting(self, link: OutgoingLink) -> list[DeliveryNumber]:
        """Empties a link's queue; returns the deliveries that were not sent at all.

        A resumed delivery was sent in part on an earlier attachment.
        """
        unsent = [
            item.number
            for item in link.queue
            if item.is_unsent and not (item.delivery is not None and item.delivery.resume)
        ]
        for item in link.queue:
            self._endpoints.waiting_octets -= len(item.payload) - item.at
        link.queue.clear()
        link.queued_deliveries = 0
        link.mark_progress()
        if link.is_waiting:
            link.is_waiting = False
            link.session.waiting.remove(link)
        return unsent

    def give_up(self, link: OutgoingLink, number: DeliveryNumber) -> bool:
        """Aborts a delivery that is under way: drops its waiting part, aborts the rest (§2.7.5).

        Returns:
            whether nothing of it was sent, so that its credit is still available.
        """
        mine = [item for item in link.queue if item.number == number]
        for item in mine:
            link.queue.remove(item)
            self._endpoints.waiting_octets -= len(item.payload) - item.at
        is_unsent = any(item.is_unsent for item in mine)
        if is_unsent:
            link.queued_deliveries -= 1
            link.mark_progress()
        else:
            forget(link, (number,))
            self.send(link, Waiting(Verb.ABORT, number, b"", False))
        self._return_if_due(link)
        return is_unsent


def _first_body(
    handle: int, delivery: OutgoingDelivery, delivery_id: int, more: bool, octets: int
) -> bytes:
    """Encodes the first transfer of a delivery in at most ``octets``."""
    if delivery.state is None and not delivery.resume:
        return encode_transfer(
            handle, delivery_id, delivery.tag, delivery.message_format, delivery.settled, more
        )
    transfer = Transfer(
        handle,
        delivery_id,
        delivery.tag,
        delivery.message_format,
        delivery.settled,
        more,
        state=delivery.state,
        resume=delivery.resume,
    )
    body = encode(transfer)
    if len(body) > octets:
        fit = fit_settlement if delivery.settled else fit_state
        transfer.state = fit(delivery.state, octets - _HEAD_OCTETS)
        body = encode(transfer)
    return body


def forget(link: OutgoingLink, numbers: Iterable[DeliveryNumber]) -> list[int]:
    """Forgets sent deliveries as settled; returns the ids of those that were known."""
    take, session = link.ids.pop, link.session
    if bulk.shortcuts is not None and isinstance(numbers, list):
        return bulk.shortcuts.forget(numbers, link.ids, session.outgoing, session.numbers)
    ids = [known for number in numbers if (known := take(number, None)) is not None]
    outgoing, numbers_by_id = session.outgoing, session.numbers
    for delivery_id in ids:
        outgoing.pop(delivery_id, None)
        numbers_by_id.pop(delivery_id, None)
    return ids
