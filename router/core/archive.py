"""The archive: keeps every message of routes with ``archive: true``, for the pipeline to replay.

The archive is a second journal, with a process and a directory of its own (``state/archive``), so
that records of the journal never wait behind payload; nothing waits for the archive. Its segments
have the journal's format (``router.journal.segment``), and hold for each delivery:

    ARCHIVED   delivery key, time, link, tag, ttl; its address; the message, or its first part
    PART       further parts, while the previous record has MORE; ARCHIVED instead: it begins anew
    GAP        number of deliveries that were not kept, because the disk was full or slow

Messages are AMQP 1.0 sections. A message that cannot be translated, or arrives in parts over
another protocol, keeps its own encoding, which the record names.
"""

from collections.abc import Callable, Sequence
from typing import Protocol as Interface

from router.core.node import Node
from router.core.records import GUARANTEE_CODES
from router.core.turn import Turn
from router.journal.keys import LinkKey
from router.journal.record import NO_TTL, PROTOCOL_CODES, RecordFlag
from router.links.pairing import Pairing
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey

ToSections = Callable[[Protocol, bytes], bytes | None]
"""Returns a message as encoded AMQP 1.0 sections; None: it cannot be translated."""

NANOSECONDS = 1_000_000_000


class ArchiveRecords(Interface):
    """The part of ``router.journal.writer.RecordWriter`` that the archive uses."""

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
        """Records a message, or its first part."""

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
        """Records a further part."""

    def gap(self, time_ns: int, count: int) -> int:
        """Records how many deliveries were not kept."""


class Archive:
    """Writes messages to the archive.

    Attributes:
        is_on: there is an archive.
        missed: deliveries received while the archive could not be written.
    """

    def __init__(self, turn: Turn) -> None:
        """Begins without an archive."""
        self.is_on = False
        self.missed = 0
        self._turn = turn
        self._is_stuck = False
        self._unrecorded = 0
        self._records: ArchiveRecords
        self._to_sections: ToSections
        self._epoch_ns = 0

    def open(self, records: ArchiveRecords, epoch_ns: int, to_sections: ToSections) -> None:
        """Begins to write messages."""
        self._records = records
        self._epoch_ns = epoch_ns
        self._to_sections = to_sections
        self.is_on = True

    def stuck(self, is_stuck: bool) -> None:
        """Records that the archive cannot be written, or that it can again."""
        self._is_stuck = is_stuck
        if not is_stuck and self._unrecorded:
            self._records.gap(self._now_ns(), self._unrecorded)
            self._unrecorded = 0

    def miss(self, count: int) -> None:
        """Records deliveries that are not kept."""
        self.missed += count
        self._unrecorded += count

    def _now_ns(self) -> int:
        return int(self._turn.now * NANOSECONDS) + self._epoch_ns

    def received(self, node: Node, source: LinkKey, pairings: Sequence[Pairing]) -> None:
        """Writes the deliveries that a node of an archived route has received."""
        if self._is_stuck:
            self.miss(len(pairings))
            return
        now_ns = self._now_ns()
        for pairing in pairings:
            delivery, parts = pairing.delivery, pairing.parts
            if delivery.key is None:
                continue
            protocol, flags = delivery.protocol, 0
            if parts is not None:
                payload, flags = parts.joined(), int(RecordFlag.MORE)
            else:
                sections = self._to_sections(protocol, delivery.payload)
                payload = delivery.payload if sections is None else sections
                protocol = protocol if sections is None else Protocol.AMQP_1_0
            ttl = delivery.ttl_milliseconds
            self._records.archived(
                now_ns,
                delivery.key,
                source,
                delivery.tag,
                payload,
                address=node.key.address,
                guarantee=GUARANTEE_CODES[node.route.guarantee],
                protocol=PROTOCOL_CODES[protocol],
                flags=flags,
                message_format=delivery.message_format,
                delivery_count=delivery.delivery_count,
                ttl_milliseconds=NO_TTL if ttl is None else ttl,
            )
            if parts is not None:
                pairing.archived_octets = len(payload)

    def continued(self, source: LinkKey, pairing: Pairing, payload: bytes, *, more: bool) -> None:
        """Writes a further part: what is new in it."""
        key, offset = pairing.delivery.key, pairing.archived_octets
        if offset is not None and key is not None:
            self._records.part(self._now_ns(), key, source, payload, more=more, offset=offset)
            pairing.archived_octets = offset + len(payload)

    def gone_on(
        self, node: Node, source: LinkKey, pairing: Pairing, payload: bytes, *, more: bool
    ) -> None:
        """Writes what is new in the transfer by which a delivery in parts is resumed.

        A delivery that a killed worker had received is written anew: the last records of that
        worker may be missing.
        """
        if pairing.archived_octets is None:
            self.received(node, source, [pairing])
        self.continued(source, pairing, payload, more=more)
