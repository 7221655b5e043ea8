"""Prepares deliveries in the draft's encoding."""

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
"""Cached words of valid properties, so that a stream of similar messages is checked once."""


class DraftOutgoing(Outgoing):
    """Prepares deliveries for one connection."""

    def __init__(self) -> None:
        super().__init__(Protocol.AMQP_0_9R1)
        self._known: set[bytes] = set()

    def ready(self, delivery: OutgoingDelivery) -> Ready:
        """Prepares a delivery, with its children where the draft expects them.

        Raises:
            TranslationError: it cannot be sent; names the field.
        """
        made = super().ready(delivery)
        if _MARK in made.header:
            try:
                made.header = fold(unfold(made.header, made.body))
            except DecodeError as error:
                raise TranslationError(CHILDREN, error.rule) from error
        return made

    def check_properties(self, header: bytes) -> None:
        """Checks that properties are valid in the draft.

        Raises:
            DecodeError: names the invalid property.
        """
        octets = header[12:]
        if octets in self._known:
            return
        self.read_properties(header)
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known.add(octets)

    def header_octets(self, header: bytes) -> int:
        """Returns the size of the largest header frame of a content."""
        return largest_header(unfold(header, b"")) if _MARK in header else len(header)

    def read_properties(self, header: bytes) -> Properties:
        """Decodes the properties of a content header."""
        return read_properties(header)

    def write_properties(self, properties: Properties) -> bytes:
        """Encodes properties."""
        return write_properties(properties)
