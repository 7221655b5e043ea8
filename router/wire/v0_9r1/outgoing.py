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

_KNOWN_LIMIT: Final = 1024
"""Words of properties that were found well formed and are remembered, so that a stream of messages
alike is looked at once."""


class DraftOutgoing(Outgoing):
    """Makes deliveries ready for one connection."""

    def __init__(self) -> None:
        super().__init__(Protocol.AMQP_0_9R1)
        self._known: set[bytes] = set()

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

    def check_properties(self, header: bytes) -> None:
        """Checks that properties keep to the draft's format.

        Raises:
            DecodeError: naming the property at fault.
        """
        octets = header[12:]
        if octets in self._known:
            return
        self.read_properties(header)
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known.add(octets)

    def header_octets(self, header: bytes) -> int:
        """Returns how large the largest header frame of a content will be."""
        return largest_header(unfold(header, b"")) if _MARK in header else len(header)

    def read_properties(self, header: bytes) -> Properties:
        """Decodes the properties of a content header."""
        return read_properties(header)

    def write_properties(self, properties: Properties) -> bytes:
        """Encodes properties."""
        return write_properties(properties)
