"""Makes deliveries ready to leave in the draft's encoding."""

from typing import Final

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.outgoing import Outgoing, Ready
from router.wire.v0_9r1.content import (
    fold,
    largest_header,
    read_properties,
    unfold,
    write_properties,
)
from router.wire.v0_9r1.tables import CHILDREN

_MARK: Final = CHILDREN.encode()


class DraftOutgoing(Outgoing):
    """Makes deliveries ready for one connection."""

    def __init__(self) -> None:
        super().__init__(Protocol.AMQP_0_9R1)

    def ready(self, delivery: OutgoingDelivery) -> Ready:
        """Makes a delivery ready; children stand where they will when a peer sends it back.

        Raises:
            TranslationError: it cannot be sent; the field at fault is named.
        """
        made = super().ready(delivery)
        if _MARK in made.header:
            try:
                made.header = fold(unfold(made.header, made.body))
            except DecodeError as error:
                raise TranslationError(CHILDREN, error.rule) from error
        return made

    def header_octets(self, header: bytes) -> int:
        """Tells how large the largest header frame of a content will be."""
        return largest_header(unfold(header, b"")) if _MARK in header else len(header)

    def read_properties(self, header: bytes) -> Properties:
        """Decodes the properties of a content header."""
        return read_properties(header)

    def write_properties(self, properties: Properties) -> bytes:
        """Encodes properties."""
        return write_properties(properties)
