"""Prepares deliveries for sending in the encoding of 0-9-1.

Theory of operation. A content is sent unchanged unless the delivery requires another ttl or
delivery-count, or carries a user-id that the broker would refuse. Messages that would end the
connection are refused one at a time, with the field named: a message of another protocol that
cannot be translated, invalid properties (whoever published it), and a header that does not fit a
frame (it cannot be split).
"""

from typing import Final

import attrs

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.condition import INVALID_FIELD, Condition
from router.model.delivery import OutgoingDelivery
from router.model.outcome import Rejected
from router.wire import hub
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import FLAGS, ContentLayout, Properties
from router.wire.v0_9_1.framing import OVERHEAD_OCTETS
from router.wire.v0_9_1.passing import is_sound
from router.wire.v0_9_1.twins import chosen

_USER_ID: Final = FLAGS["user_id"]

_is_sound = chosen("is_sound", is_sound)


@attrs.define
class Ready:
    """A delivery that can be sent.

    Attributes:
        route: exchange and routing key of the content, both as short strings.
        header: the content header.
        body: the body.
        redelivered: an earlier attempt was made.
    """

    route: bytes
    header: bytes
    body: bytes
    redelivered: bool


class Outgoing:
    """Prepares deliveries for one connection.

    Attributes:
        protocol: the peer's encoding.
        frame_max: octets of the largest frame that the peer accepts.
        login: the only user-id that the peer accepts, empty if unknown; None: any.
    """

    def __init__(self, protocol: Protocol = Protocol.AMQP_0_9_1) -> None:
        self.protocol = protocol
        self.frame_max = 0
        self.login: str | None = None

    def ready(self, delivery: OutgoingDelivery) -> Ready:
        """Prepares a delivery.

        Raises:
            TranslationError: it cannot be sent; names the invalid field.
        """
        content = delivery.payload
        is_translated = delivery.protocol is not self.protocol
        if is_translated:
            content = hub.translate(content, delivery.protocol, self.protocol)
        try:
            layout = contents.content_layout(content)
            header = content[layout.route_end : layout.body_start]
            if not is_translated:  # the publisher may have written anything
                self.check_properties(header)
        except DecodeError as error:
            raise TranslationError("content-header", error.rule) from error
        redelivered = layout.redelivered
        if delivery.delivery_count is not None:
            redelivered = delivery.delivery_count > 0
        if self._must_change(delivery, layout):
            header = self._changed(delivery, header, layout.body_octets)
        if self.header_octets(header) + OVERHEAD_OCTETS > self.frame_max:
            raise TranslationError(
                "headers", f"a content header of {len(header)} octets fits no frame of the peer's"
            )
        return Ready(
            content[1 : layout.route_end], header, content[layout.body_start :], redelivered
        )

    def with_ttl(self, content: bytes, milliseconds: int) -> bytes:
        """Writes the remaining time to live into a valid content."""
        layout = contents.content_layout(content)
        properties = self.read_properties(content[layout.route_end : layout.body_start])
        properties.expiration = str(milliseconds)
        octets = self.write_properties(properties)
        header = contents.encode_content_header(layout.body_octets, octets)
        return content[: layout.route_end] + header + content[layout.body_start :]

    def header_octets(self, header: bytes) -> int:
        """Returns the encoded size of a content header."""
        return len(header)

    def read_properties(self, header: bytes) -> Properties:
        """Decodes the properties of a content header."""
        return contents.header_properties(header)

    def write_properties(self, properties: Properties) -> bytes:
        """Encodes properties."""
        return contents.encode_properties(properties)

    def check_properties(self, header: bytes) -> None:
        """Checks that properties are valid.

        Raises:
            DecodeError: names the invalid property.
        """
        if not _is_sound(header):
            self.read_properties(header)

    def may_pass(self, delivery: OutgoingDelivery) -> bool:
        """Returns whether a delivery requires no change of its content."""
        return (
            delivery.protocol is self.protocol
            and delivery.ttl_milliseconds is None
            and (delivery.delivery_count or 0) <= 1
        )

    @property
    def refused_flags(self) -> int:
        """Flags of properties with which a content is never sent unchanged."""
        return 0 if self.login is None else _USER_ID

    def _must_change(self, delivery: OutgoingDelivery, layout: ContentLayout) -> bool:
        if delivery.ttl_milliseconds is not None or (delivery.delivery_count or 0) > 1:
            return True
        return self.login is not None and bool(layout.flags & _USER_ID)

    def _changed(self, delivery: OutgoingDelivery, header: bytes, body_octets: int) -> bytes:
        properties = self.read_properties(header)
        if delivery.ttl_milliseconds is not None:
            properties.expiration = str(delivery.ttl_milliseconds)
        if (delivery.delivery_count or 0) > 1:
            _headers(properties)[marks.DELIVERY_COUNT] = delivery.delivery_count
        if self.login is not None and properties.user_id not in (None, self.login):
            # Brokers close the channel of a publisher that speaks for another.
            _headers(properties)[marks.USER_ID] = properties.user_id
            properties.user_id = None
        return contents.encode_content_header(body_octets, self.write_properties(properties))


def _headers(properties: Properties) -> dict[str, object]:
    if properties.headers is None:
        properties.headers = {}
    return properties.headers


def refusal(error: TranslationError) -> Rejected:
    """Returns the outcome of a delivery that cannot be sent."""
    return Rejected(Condition(INVALID_FIELD, str(error)))
