"""Writes the records of a message store: messages, and that they were forwarded."""

from collections.abc import Sequence
from typing import Final

from router.journal.block_writer import ROW_OCTETS, ROWS_OCTETS
from router.journal.keys import LinkKey
from router.journal.record import NO_KEY, NO_TTL, ROW, RecordFlag, RecordKind
from router.journal.store.gone import GoneColumns
from router.journal.store.place import place_of
from router.journal.store.queues import Claim, RouteKey
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey

_STORED: Final = int(RecordKind.STORED)
_FORWARDED: Final = int(RecordKind.FORWARDED)
_FORWARDED_RUN: Final = int(RecordKind.FORWARDED_RUN)
_pack_into: Final = ROW.pack_into


class StoreWriter(RecordWriter):
    """Writes the records of one (worker, incarnation) for a message store."""

    def stored(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        payload: bytes,
        *,
        route: RouteKey,
        address: str,
        priority: int,
        guarantee: int = 0,
        protocol: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """Appends a whole message; if it is long, in several records.

        Args:
            time_ns: when it arrived.
            key: of the delivery, which it keeps.
            incoming: link that it came over.
            tag: on that link.
            payload: the message.
            route: has it stored.
            address: of the message.
            priority: ``rank_of`` it, 0 to 255; each one is a queue of its own.
            guarantee: a ``GuaranteeCode``.
            protocol: encoding of ``payload``, one of ``PROTOCOL_CODES``.
            message_format: §2.8.11.
            delivery_count: earlier failed attempts.
            ttl_milliseconds: counts from ``time_ns``.

        Returns:
            The sequence number of the last record; the message is durable when that is.

        Raises:
            RecordError: the address is longer than 65,535 octets.
        """
        return self._message(
            _STORED, time_ns, key, incoming, tag, payload, address=address, outgoing=LinkKey(route),
            outcome=priority, guarantee=guarantee, protocol=protocol,
            message_format=message_format, delivery_count=delivery_count,
            ttl_milliseconds=ttl_milliseconds,
        )  # fmt: skip

    def forwarded(
        self,
        time_ns: int,
        claims: Sequence[Claim],
        outcome: int,
        *,
        by_person: bool = False,
    ) -> int:
        """Records how messages ended: they leave the store. Returns the last record's number.

        Args:
            time_ns: now.
            claims: of at least one message.
            outcome: an ``OutcomeCode``.
            by_person: somebody decided it.
        """
        flags = int(RecordFlag.BY_PERSON) if by_person else 0
        first, count = 0, len(claims)
        while first < count:
            at, heap = self._rows_octets, len(self._heap)
            last = min(count, first + (ROWS_OCTETS - at) // ROW_OCTETS)
            for claim in claims[first:last]:
                _pack_into(
                    self._rows, at, _FORWARDED, outcome, 0, 0, flags, 0, time_ns, NO_KEY, *claim,
                    0, 0, NO_TTL, 0, heap, 0,
                )  # fmt: skip
                at += ROW_OCTETS
            self._appended(at, last - first)
            first = last
        return self.next_sequence - 1

    def forwarded_run(self, time_ns: int, gone: GoneColumns, outcome: int) -> int:
        """Records how messages of one queue and one segment ended; returns the record's number."""
        return self.append(
            _FORWARDED_RUN,
            time_ns,
            incoming=LinkKey(place_of(gone.segment, 0)),
            outgoing=LinkKey(gone.queue),
            outcome=outcome,
            message_octets=gone.messages,
            body=gone.body,
        )
