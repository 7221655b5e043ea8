"""Turns events of the core into records.

Each worker has one ``RecordWriter``, which counts the worker's sequence. Each method
appends one record and returns its sequence number, to be compared with the durable one.

Records about every message are written in runs (``received_run``, ``sent_run``, ``outcome_run``,
``settled_run``), whose rows ``BlockWriter`` writes at once. The four methods for single records
write their row in place.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from router.journal.block_writer import (
    BLOCK_HEAP_OCTETS,
    ROW_HEAD,
    ROW_OCTETS,
    ROWS_OCTETS,
    BlockWriter,
)
from router.journal.keys import NO_LINK, LinkKey
from router.journal.record import (
    NO_KEY,
    NO_TTL,
    ROW,
    LinkDescription,
    RecordError,
    RecordFlag,
    RecordKind,
    Resolution,
    encode_epoch,
    encode_hop,
)
from router.model.identity import DeliveryKey
from router.model.trace import Hop

PART_OCTETS: Final = 1 << 20
"""A longer payload is split, so that no block comes near to its limit of four times this."""

_RECEIVED: Final = int(RecordKind.RECEIVED)
_ARCHIVED: Final = int(RecordKind.ARCHIVED)
_SENT: Final = int(RecordKind.SENT)
_TRACED: Final = int(RecordKind.TRACED)
_OUTCOME: Final = int(RecordKind.OUTCOME)
_SETTLED: Final = int(RecordKind.SETTLED)
_PLACED: Final = int(RecordFlag.PLACED)
_HELD: Final = int(RecordFlag.HELD)  # an enumeration's own "or" costs more than the row
_MORE: Final = int(RecordFlag.MORE)
_ADDRESS_OCTETS_LIMIT: Final = 0xFFFF  # the row counts them in a u16
_pack_into: Final = ROW.pack_into


class RecordWriter(BlockWriter):
    """Writes the records of one (worker, incarnation).

    Times are nanoseconds since 1970. Keys are 16 octets; see ``record`` for all fields.
    """

    def received(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        payload: bytes | memoryview | None = None,
        message_octets: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """A delivery, or its first part if ``flags`` say MORE, came in (§2.7.5).

        With ``payload`` the journal holds the message, so that it can be sent after a crash; if
        it is long it becomes several records, and the number of the last one is returned.

        Raises:
            RecordError: the address is longer than 65,535 octets.
        """
        heap, at = self._heap, self._rows_octets
        heap_offset = len(heap)
        address_octets = 0
        if address:
            encoded = _encoded_address(address)
            address_octets = len(encoded)
            heap += tag + encoded
        else:
            heap += tag
        parts: Iterator[memoryview] | None = None
        if payload is not None:
            flags |= _HELD
            if len(payload) > PART_OCTETS:
                parts = _split(payload)
                heap += next(parts)
                flags |= _MORE
            else:
                heap += payload
        _pack_into(
            self._rows, at, _RECEIVED, 0, guarantee, protocol, flags, address_octets, time_ns, key,
            incoming, 0, message_octets, message_format, delivery_count, ttl_milliseconds,
            len(tag), heap_offset, len(heap) - heap_offset,
        )  # fmt: skip
        at += ROW_OCTETS
        self._rows_octets = at
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        if at == ROWS_OCTETS or len(heap) > BLOCK_HEAP_OCTETS:
            self._close_block()
        if parts is not None:
            return self._parts(time_ns, key, incoming, parts, PART_OCTETS)
        return sequence

    def traced(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        hop: Hop,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        message_octets: int = 0,
    ) -> int:
        """A delivery that comes now is part of a trace; RECEIVED follows."""
        heap, at = self._heap, self._rows_octets
        heap_offset, encoded = len(heap), _encoded_address(address)
        heap += encoded
        heap += encode_hop(hop)
        _pack_into(
            self._rows, at, _TRACED, 0, guarantee, protocol, flags, len(encoded), time_ns, key,
            incoming, 0, message_octets, 0, 0, NO_TTL, 0, heap_offset, len(heap) - heap_offset,
        )  # fmt: skip
        self._appended(at + ROW_OCTETS, 1)
        return self.next_sequence - 1

    def archived(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        payload: bytes,
        *,
        address: str,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """A message, or its first part if ``flags`` say MORE, for the archive.

        Raises:
            RecordError: the address is longer than 65,535 octets.
        """
        return self._message(
            _ARCHIVED, time_ns, key, incoming, tag, payload, address=address, guarantee=guarantee,
            protocol=protocol, flags=flags, message_format=message_format,
            delivery_count=delivery_count, ttl_milliseconds=ttl_milliseconds,
        )  # fmt: skip

    def part(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        payload: bytes | memoryview,
        *,
        more: bool,
        offset: int,
    ) -> int:
        """Another part of a delivery came in that was ``received`` with HELD and MORE.

        ``offset`` says how many octets of it were recorded before.
        """
        return self._parts(time_ns, key, incoming, _split(payload), offset, more=more)

    def sent(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        tag: bytes,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        message_octets: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
    ) -> int:
        """The delivery goes out over ``outgoing`` under ``tag`` (§2.7.5).

        Written before the transfer is (DurableBeforeSend).

        Raises:
            RecordError: the address is longer than 65,535 octets.
        """
        heap, at = self._heap, self._rows_octets
        heap_offset = len(heap)
        address_octets = 0
        if address:
            encoded = _encoded_address(address)
            address_octets = len(encoded)
            heap += tag + encoded
        else:
            heap += tag
        _pack_into(
            self._rows, at, _SENT, 0, guarantee, protocol, flags, address_octets, time_ns, key,
            incoming, outgoing, message_octets, message_format, delivery_count, NO_TTL,
            len(tag), heap_offset, len(heap) - heap_offset,
        )  # fmt: skip
        at += ROW_OCTETS
        self._rows_octets = at
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        if at == ROWS_OCTETS:
            self._close_block()
        return sequence

    def outcome(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        outcome: int,
        *,
        flags: int = 0,
        state: bytes = b"",
    ) -> int:
        """An outcome was learned from ``outgoing``, or decided here if that is 0 (§3.4).

        Args:
            time_ns: now.
            key: which delivery.
            incoming: the link on which it was received.
            outgoing: who says so.
            outcome: an ``OutcomeCode``.
            flags: SETTLED if the receiver has settled with it, and those of modified.
            state: the whole state in AMQP 1.0's encoding, where the code does not say it all. One
                that is longer than ``PART_OCTETS`` is left out: a peer must not fill the journal
                with the reason of a rejection.
        """
        if len(state) > PART_OCTETS:
            state = b""
        heap, at = self._heap, self._rows_octets
        heap_offset = len(heap)
        if state:
            heap += state
        _pack_into(
            self._rows, at, _OUTCOME, outcome, 0, 0, flags, 0, time_ns, key,
            incoming, outgoing, 0, 0, 0, NO_TTL, 0, heap_offset, len(state),
        )  # fmt: skip
        at += ROW_OCTETS
        self._rows_octets = at
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        if at == ROWS_OCTETS or len(heap) > BLOCK_HEAP_OCTETS:
            self._close_block()
        return sequence

    def settled(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
    ) -> int:
        """The delivery is settled with the receiver at ``outgoing``, or with the sender if 0."""
        at = self._rows_octets
        _pack_into(
            self._rows, at, _SETTLED, outcome, 0, 0, 0, 0, time_ns, key,
            incoming, outgoing, 0, 0, 0, NO_TTL, 0, len(self._heap), 0,
        )  # fmt: skip
        at += ROW_OCTETS
        self._rows_octets = at
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        if at == ROWS_OCTETS:
            self._close_block()
        return sequence

    # Runs

    def received_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        payloads: Sequence[bytes],
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        is_held: bool = True,
    ) -> int:
        """Deliveries came in whole, without any field that is not named here; see ``received``.

        Keys, tags and payloads are of one each; the rest is of all. Unless ``is_held`` the journal
        is told the sizes of the messages and not what is in them.

        Returns:
            The sequence number of the last one's record.
        """
        if is_held:
            flags |= _HELD
        head = ROW_HEAD.pack(_RECEIVED, 0, guarantee, protocol, flags, 0, time_ns)
        octets = sum(map(len, payloads)) if is_held else 0
        first, count = 0, len(keys)
        while first < count:
            end = min(count, first + (ROWS_OCTETS - self._rows_octets) // ROW_OCTETS)
            if octets > BLOCK_HEAP_OCTETS:
                end = first + 1  # large ones: each may fill a block
            if octets > BLOCK_HEAP_OCTETS and len(payloads[first]) > PART_OCTETS:
                self.received(
                    time_ns, keys[first], incoming, tags[first], guarantee=guarantee,
                    protocol=protocol, flags=flags, payload=payloads[first],
                    message_octets=len(payloads[first]),
                )  # fmt: skip
            else:
                self._string_rows(
                    head, incoming, NO_LINK, keys[first:end], tags[first:end],
                    payloads[first:end], is_held=is_held,
                )  # fmt: skip
            first = end
        return self.next_sequence - 1

    def sent_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        *,
        guarantee: int = 0,
        flags: int = 0,
    ) -> int:
        """Records deliveries sent on one link; see ``sent``. Returns the last record's number."""
        head = ROW_HEAD.pack(_SENT, 0, guarantee, 0, flags, 0, time_ns)
        first, count = 0, len(keys)
        while first < count:
            end = min(count, first + (ROWS_OCTETS - self._rows_octets) // ROW_OCTETS)
            self._string_rows(head, incoming, outgoing, keys[first:end], tags[first:end])
            first = end
        return self.next_sequence - 1

    def outcome_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        outcome: int,
        *,
        flags: int = 0,
        state: bytes = b"",
    ) -> int:
        """Records one outcome of many deliveries; see ``outcome``. Returns the last number."""
        if len(state) > PART_OCTETS:
            state = b""
        head = ROW_HEAD.pack(_OUTCOME, outcome, 0, 0, flags, 0, time_ns)
        return self._bare_rows(head, incoming, outgoing, keys, state)

    def settled_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        *,
        flags: int = 0,
    ) -> int:
        """Deliveries of one pair of links are settled; see ``settled``."""
        head = ROW_HEAD.pack(_SETTLED, 0, 0, 0, flags, 0, time_ns)
        return self._bare_rows(head, incoming, outgoing, keys, b"")

    # What is rare

    def in_doubt(self, time_ns: int, key: DeliveryKey, incoming: LinkKey, outgoing: LinkKey) -> int:
        """Records that the connection was lost after the transfer and before an outcome."""
        return self.append(
            RecordKind.IN_DOUBT, time_ns, key=key, incoming=incoming, outgoing=outgoing
        )

    def resolved(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        resolution: Resolution,
        *,
        by_person: bool = False,
        is_unsent: bool = False,
    ) -> int:
        """Records that a doubt has ended, by the peer's unsettled map or by an operator.

        ``is_unsent`` says that the receiver certainly does not have a delivery to be sent again.
        """
        flags = RecordFlag.BY_PERSON if by_person else 0
        return self.append(
            RecordKind.RESOLVED,
            time_ns,
            key=key,
            incoming=incoming,
            outgoing=outgoing,
            outcome=resolution,
            flags=flags | (RecordFlag.UNSENT if is_unsent else 0),
        )

    def link_attached(self, time_ns: int, link: LinkDescription, *, flags: int = 0) -> int:
        """A link is attached, for the first time or again (§2.6.3)."""
        self._is_defining = True
        return self.append(
            RecordKind.LINK_ATTACHED,
            time_ns,
            incoming=link.key if link.is_incoming else NO_LINK,
            outgoing=NO_LINK if link.is_incoming else link.key,
            flags=flags | (RecordFlag.ROUTER if link.is_router else 0),
            body=link.encoded(),
        )

    def link_suspended(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """The link lost its connection and keeps its terminus (§2.6.5)."""
        return self.append(RecordKind.LINK_SUSPENDED, time_ns, incoming=incoming, outgoing=outgoing)

    def link_expired(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """Records that a terminus has ended: closed, or expired (§3.5.3, §3.5.4)."""
        self._is_defining = True
        return self.append(RecordKind.LINK_EXPIRED, time_ns, incoming=incoming, outgoing=outgoing)

    def gap(self, time_ns: int, count: int) -> int:
        """So many deliveries of routes that wait for nothing came, and are on no record."""
        return self.append(RecordKind.GAP, time_ns, message_octets=count)

    def numbers(self, time_ns: int, epoch: int, limit: int) -> int:
        """Attaches of ours may have numbers of an epoch below a limit (``core.numbers``)."""
        body = encode_epoch(epoch)
        return self.append(RecordKind.NUMBERS, time_ns, message_octets=limit, body=body)

    def worker_ended(self, time_ns: int) -> int:
        """The worker ends in good order: no record of this incarnation follows."""
        return self.append(RecordKind.WORKER_ENDED, time_ns)

    def append(
        self,
        kind: int,
        time_ns: int,
        *,
        key: DeliveryKey = NO_KEY,
        incoming: LinkKey = NO_LINK,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
        flags: int = 0,
        message_octets: int = 0,
        body: bytes | memoryview = b"",
    ) -> int:
        """Appends a record of any kind that has neither tag nor address."""
        heap_offset = len(self._heap)
        self._heap += body
        _pack_into(
            self._rows, self._rows_octets, kind, outcome, 0, 0, flags, 0, time_ns, key,
            incoming, outgoing, message_octets, 0, 0, NO_TTL, 0, heap_offset, len(body),
        )  # fmt: skip
        self._rows_octets += ROW_OCTETS
        self.next_sequence += 1
        if self._rows_octets == ROWS_OCTETS or len(self._heap) > BLOCK_HEAP_OCTETS:
            self._close_block()
        return self.next_sequence - 1

    def _message(  # noqa: PLR0917  those of ``archived``
        self,
        kind: int,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        payload: bytes,
        *,
        address: str,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """Appends a message with its address, in as many records as it is long."""
        parts = _split(payload)
        first, encoded = next(parts), _encoded_address(address)
        heap, at = self._heap, self._rows_octets
        heap_offset = len(heap)
        heap += tag + encoded
        heap += first
        is_long = len(payload) > PART_OCTETS
        _pack_into(
            self._rows, at, kind, outcome, guarantee, protocol,
            flags | _HELD | (_MORE if is_long else 0), len(encoded), time_ns, key,
            incoming, outgoing, len(payload), message_format, delivery_count, ttl_milliseconds,
            len(tag), heap_offset, len(heap) - heap_offset,
        )  # fmt: skip
        self._appended(at + ROW_OCTETS, 1)
        if is_long:
            return self._parts(time_ns, key, incoming, parts, PART_OCTETS, more=bool(flags & _MORE))
        return self.next_sequence - 1

    def _parts(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        parts: Iterator[memoryview],
        offset: int,
        *,
        more: bool = False,
    ) -> int:
        """Appends ``parts``, all but the last with MORE, the last with it if ``more``."""
        waiting = next(parts)
        for following in parts:
            self._part(time_ns, key, incoming, waiting, offset, more=True)
            offset += len(waiting)
            waiting = following
        return self._part(time_ns, key, incoming, waiting, offset, more=more)

    def _part(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        body: memoryview,
        offset: int,
        *,
        more: bool,
    ) -> int:
        return self.append(
            RecordKind.PART,
            time_ns,
            key=key,
            incoming=incoming,
            flags=_PLACED | _MORE if more else _PLACED,
            message_octets=offset,
            body=body,
        )


def _encoded_address(address: str) -> bytes:
    encoded = address.encode()
    if len(encoded) > _ADDRESS_OCTETS_LIMIT:
        raise RecordError("an address is longer than 65,535 octets")
    return encoded


def _split(payload: bytes | memoryview) -> Iterator[memoryview]:
    """Cuts ``payload`` into parts of at most ``PART_OCTETS``; at least one, maybe empty."""
    octets = memoryview(payload)
    yield octets[:PART_OCTETS]
    for start in range(PART_OCTETS, len(octets), PART_OCTETS):
        yield octets[start : start + PART_OCTETS]
