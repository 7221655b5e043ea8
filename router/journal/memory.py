"""Turns records into the set of unsettled deliveries: the machine behind every replay.

``unsettled`` defines what the records mean, ``lives`` how they are read.
"""

from collections.abc import Mapping
from typing import Final, cast

from router.journal.block import Block
from router.journal.keys import LinkKey
from router.journal.lives import Place, make_lives
from router.journal.record import (
    NO_TTL,
    ROW,
    OutcomeCode,
    RecordError,
    RecordFlag,
    RecordKind,
    Resolution,
    Row,
    epoch_from_body,
    heap_strings,
    link_from_record,
)
from router.journal.unsettled import (
    NEXT_STAGE,
    LinkMemory,
    LinkStage,
    NumbersMemory,
    Sending,
    SendingStage,
    Unsettled,
)
from router.model.identity import DeliveryKey, DeliveryTag

_RECEIVED: Final = int(RecordKind.RECEIVED)
_LAST_DELIVERY_KIND: Final = int(RecordKind.RESOLVED)
_SETTLED_FLAG: Final = int(RecordFlag.SETTLED)
_PLACED_FLAG: Final = int(RecordFlag.PLACED)
_UNSENT_FLAG: Final = int(RecordFlag.UNSENT)
_OUTCOME_FLAGS: Final = int(
    RecordFlag.DELIVERY_FAILED | RecordFlag.UNDELIVERABLE_HERE | RecordFlag.BY_PERSON
)
_SOME_OUTCOME: Final = int(OutcomeCode.UNKNOWN)
"""The outcome of a delivery that was settled without a state."""
_LINK_STAGES: Final[Mapping[int, LinkStage]] = {
    RecordKind.LINK_SUSPENDED: LinkStage.SUSPENDED,
    RecordKind.LINK_EXPIRED: LinkStage.EXPIRED,
}


class Memory:
    """Reads records in their order and keeps the unsettled deliveries.

    Attributes:
        links: by link key.
        numbers: of our own attaches; None: none had any.
        late_records: records about deliveries that were forgotten or never known; a few are
            normal, such as when a receiver settles twice.
        misplaced_parts: parts of messages whose earlier parts are missing.
        unreadable_records: records with a valid CRC and unknown content, of another version.
    """

    def __init__(self) -> None:
        self.links: dict[LinkKey, LinkMemory] = {}
        self.numbers: NumbersMemory | None = None
        self.late_records = 0
        self.misplaced_parts = 0
        self.unreadable_records = 0
        self._blocks = 0
        self._made: dict[Place, Unsettled] = {}
        self._lives = make_lives(self._made)

    def make(self) -> None:
        """Makes all that is only followed, and lets go of the blocks that it was followed in."""
        self._lives.make_all(self._apply_row)

    @property
    def deliveries(self) -> dict[tuple[LinkKey, DeliveryKey], Unsettled]:
        """What is unsettled, by incoming link key and delivery key."""
        self.make()
        return cast("dict[tuple[LinkKey, DeliveryKey], Unsettled]", self._made)

    def apply(self, block: Block) -> None:
        """Applies all records of ``block``."""
        self._blocks += 1
        block.position = self._blocks
        self._lives.apply(block, self._apply_row)

    def oldest_first(self) -> list[Unsettled]:
        """Returns what is unsettled in the order of arrival, as the journal has it.

        Many arrive at the same time, and clocks may be set back: their order is that of their
        records.
        """
        return sorted(self.deliveries.values(), key=lambda each: each.arrival)

    def _apply_row(self, block: Block, index: int) -> None:
        row = ROW.unpack_from(block.rows, index * ROW.size)
        worker, heap = block.origin.worker, block.heap
        try:
            if row[0] == _RECEIVED:
                self._receive(row, heap, worker, (block.position, index))
            elif row[0] <= _LAST_DELIVERY_KIND:
                self._continue(row, heap, worker)
            elif row[0] == RecordKind.NUMBERS:
                self._count(row, heap, worker)
            else:
                self._link(row, heap, worker)
        except RecordError:
            self.unreadable_records += 1

    def cloud(self, worker: int | None = None) -> None:
        """Records that records of ``worker`` are missing; None: of any worker."""
        for delivery in self.deliveries.values():
            if worker is None or delivery.worker == worker:
                delivery.clouded = True
                delivery.is_torn |= not delivery.is_whole

    def forget_links(self) -> None:
        """Drops the expired links that no unsettled delivery speaks of."""
        deliveries = self.deliveries
        spoken_of = {link for link, _ in deliveries}
        for delivery in deliveries.values():
            spoken_of.update(delivery.sendings, delivery.taken_back)
        for key, link in list(self.links.items()):
            if link.stage is LinkStage.EXPIRED and key not in spoken_of:
                del self.links[key]

    def _receive(self, row: Row, heap: memoryview, worker: int, arrival: tuple[int, int]) -> None:
        flags, ttl = row[4], row[13]
        tag, address, body = heap_strings(row, heap)
        place = row[8], row[7]
        delivery = Unsettled(
            key=DeliveryKey(row[7]),
            incoming=LinkKey(row[8]),
            worker=worker,
            tag=DeliveryTag(tag),
            received_ns=row[6],
            arrival=arrival,
            guarantee=row[2],
            protocol=row[3],
            address=address,
            message_octets=row[10],
            message_format=row[11],
            delivery_count=row[12],
            ttl_milliseconds=None if ttl == NO_TTL else ttl,
            parts=[body] if flags & RecordFlag.HELD else None,
            held_octets=len(body) if flags & RecordFlag.HELD else 0,
            is_whole=not flags & RecordFlag.MORE,
            source_settled=bool(flags & _SETTLED_FLAG),
            clouded=bool(flags & RecordFlag.CLOUDED),
            is_spliced=bool(flags & RecordFlag.SPLICED),
        )
        before = self._made.get(place)
        if before is not None and flags & RecordFlag.RESUMED:
            _resume(before, delivery)
            if before.is_forgotten:
                del self._made[place]
            elif before.is_decided:
                before.drop_payload()
        else:
            self._made[place] = delivery

    def _continue(self, row: Row, heap: memoryview, worker: int) -> None:
        place = row[8], row[7]
        delivery = self._made.get(place)
        if delivery is None:
            self.late_records += 1
            return
        delivery.worker = worker
        kind, outgoing = row[0], LinkKey(row[9])
        if outgoing:
            _move_sending(delivery, outgoing, row, heap)
        elif kind == RecordKind.PART:
            self._add_part(delivery, row, heap)
        elif kind == RecordKind.SETTLED:
            delivery.source_settled = True
            delivery.is_waiting = False
        elif kind == RecordKind.OUTCOME:
            delivery.outcome = row[1] or _SOME_OUTCOME
            delivery.outcome_flags = row[4] & _OUTCOME_FLAGS
            delivery.state = heap_strings(row, heap)[2]
            if row[4] & _SETTLED_FLAG:
                delivery.source_settled = True
                delivery.is_waiting = False
        elif kind == RecordKind.RESOLVED and row[1] == Resolution.SEND_AGAIN:
            delivery.is_waiting = True
            delivery.was_returned |= not row[4] & _UNSENT_FLAG
        else:
            raise RecordError("a record about a receiver names no outgoing link")
        if delivery.is_forgotten:
            del self._made[place]
        elif delivery.parts is not None and delivery.is_decided:
            delivery.drop_payload()

    def _add_part(self, delivery: Unsettled, row: Row, heap: memoryview) -> None:
        """Adds a part, unless what stands before it is missing.

        Then what is here is the beginning of the message, and not whole, until its sender goes on
        with it from there. What stands behind the last part is void: the version before recorded
        there what a sender had sent once more of a message that was all here (§2.6.13).
        """
        if delivery.parts is not None:
            if delivery.is_whole:
                return
            is_placed = row[4] & _PLACED_FLAG
            if row[10] != delivery.held_octets if is_placed else delivery.is_torn:
                self.misplaced_parts += 1
                delivery.is_whole, delivery.is_torn = False, True
                return
            octets = heap_strings(row, heap)[2]
            delivery.parts.append(octets)
            delivery.held_octets += len(octets)
        delivery.is_whole = not row[4] & RecordFlag.MORE

    def _count(self, row: Row, heap: memoryview, worker: int) -> None:
        epoch = epoch_from_body(heap_strings(row, heap)[2])
        known = self.numbers
        if known is None or (known.epoch, known.limit) < (epoch, row[10]):
            self.numbers = NumbersMemory(epoch=epoch, limit=row[10], worker=worker, since_ns=row[6])

    def _link(self, row: Row, heap: memoryview, worker: int) -> None:
        kind, time_ns, incoming, outgoing = row[0], row[6], LinkKey(row[8]), LinkKey(row[9])
        if kind == RecordKind.LINK_ATTACHED:
            if row[4] & RecordFlag.COPY and (incoming or outgoing) in self.links:
                return
            description = link_from_record(incoming, outgoing, heap_strings(row, heap)[2], row[4])
            self.links[description.key] = LinkMemory(
                description=description,
                stage=LinkStage.ATTACHED,
                worker=worker,
                since_ns=time_ns,
            )
        elif kind in _LINK_STAGES:
            link = self.links.get(incoming or outgoing)
            if link is not None:
                link.stage, link.worker, link.since_ns = _LINK_STAGES[kind], worker, time_ns


def _resume(before: Unsettled, again: Unsettled) -> None:
    """Adds what is new of a delivery, ``again``: a payload (§2.6.13), or that it came settled."""
    before.worker, before.tag = again.worker, again.tag
    before.source_settled |= again.source_settled
    before.clouded |= again.clouded
    if again.parts is not None:
        before.parts, before.is_whole = again.parts, again.is_whole
        before.held_octets, before.is_torn = again.held_octets, False
        before.message_octets, before.is_spliced = again.message_octets, again.is_spliced


def _move_sending(delivery: Unsettled, outgoing: LinkKey, row: Row, heap: memoryview) -> None:
    """Moves a sending by the table of the module."""
    kind, sending = row[0], delivery.sendings.get(outgoing)
    is_taken_back = kind == RecordKind.RESOLVED and row[1] == Resolution.SEND_AGAIN
    if is_taken_back and outgoing not in delivery.taken_back:
        delivery.taken_back += (outgoing,)
    stage = NEXT_STAGE.get((None if sending is None else sending.stage, kind))
    if stage is None:
        return
    if is_taken_back:
        del delivery.sendings[outgoing]
        delivery.is_waiting = True
        delivery.was_returned |= not row[4] & _UNSENT_FLAG
        return
    if sending is None:
        sending = delivery.sendings[outgoing] = Sending(outgoing=outgoing, stage=stage)
    if kind == RecordKind.SENT:
        sending.tag, sending.address, _ = heap_strings(row, heap)
        sending.sent_ns, sending.delivery_count = row[6], row[12]
        sending.is_fanned = bool(row[4] & RecordFlag.FANNED)
        sending.outcome, sending.outcome_flags, sending.state = 0, 0, b""
        delivery.is_waiting = False
    elif kind == RecordKind.OUTCOME:
        sending.outcome, sending.outcome_flags = row[1] or _SOME_OUTCOME, row[4] & _OUTCOME_FLAGS
        sending.state = heap_strings(row, heap)[2] if row[16] else b""
    elif kind == RecordKind.RESOLVED:
        sending.outcome, sending.outcome_flags = row[1], row[4] & _OUTCOME_FLAGS
    if row[4] & _SETTLED_FLAG:
        stage = SendingStage.SETTLED
    sending.stage = stage
