"""Prepares deliveries in the encoding of 0-10.

Theory of operation. A content is sent unchanged unless the delivery requires another ttl or
delivery-count, or has its exchange at the start (a client of ours published it), or carries a
user-id that the broker would refuse. Invalid messages are refused one at a time, with the field
named, so that they end no session.
"""

from typing import Any, Final

import attrs

from router.errors import DecodeError, MisuseError, TranslationError
from router.model.capabilities import Protocol
from router.model.condition import INVALID_FIELD, Condition
from router.model.delivery import OutgoingDelivery
from router.model.outcome import Rejected
from router.model.text import decode_text
from router.wire import hub
from router.wire.v0_10 import marks
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r

_KNOWN_LIMIT: Final = 1024
"""Cached header segments that are valid, so that a stream of similar messages is checked once."""


@attrs.define
class Ready:
    """A delivery that can be sent.

    Attributes:
        header: the header segment.
        body: the body.
    """

    header: bytes
    body: bytes

    @property
    def octets(self) -> int:
        """Octets that count against credit in octets: the payload of header and body frames."""
        return len(self.header) + len(self.body)


@attrs.frozen
class _Extra:
    """Fields of delivery-properties that the sending link sets; None: left as they are."""

    key: str | None
    resume_id: str | None = None
    resume_ttl: int | None = None


class Outgoing:
    """Prepares deliveries for one connection.

    Attributes:
        login: the only user-id that the peer accepts, empty if none, or unknown; None: any.
    """

    def __init__(self) -> None:
        self.login: str | None = None
        self._known: dict[tuple[bytes, str, str | None], bytes] = {}

    def ready(
        self,
        delivery: OutgoingDelivery,
        key: str | None = None,
        resume: tuple[str | None, int | None] = (None, None),
    ) -> Ready:
        """Prepares a delivery.

        Args:
            delivery: the delivery from the core.
            key: routing key to set; None: as in the message.
            resume: resume-id and resume-ttl to set.

        Raises:
            TranslationError: it cannot be sent; names the field.
        """
        content = delivery.payload
        if delivery.protocol is not Protocol.AMQP_0_10:
            content = hub.translate(content, delivery.protocol, Protocol.AMQP_0_10)
        try:
            layout = messages.content_layout(content)
            header = content[layout.header_at : layout.body_at]
            header = self._header(delivery, header, layout.exchange, _Extra(key, *resume))
        except DecodeError as error:
            raise TranslationError("header-segment", error.rule) from error
        except MisuseError as error:
            raise TranslationError("header-segment", error.reason) from error
        return Ready(header, content[layout.body_at :])

    def _header(
        self, delivery: OutgoingDelivery, header: bytes, exchange: str, extra: _Extra
    ) -> bytes:
        is_unchanged = delivery.ttl_milliseconds is None and delivery.delivery_count is None
        if not is_unchanged or extra.resume_id is not None:
            return self._changed(delivery, header, exchange, extra)
        place = (header, exchange, extra.key)
        found = self._known.get(place)
        if found is None:
            found = self._changed(delivery, header, exchange, extra)
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            self._known[place] = found
        return found

    def _changed(
        self, delivery: OutgoingDelivery, header: bytes, exchange: str, extra: _Extra
    ) -> bytes:
        properties, message, others = messages.read_header(header)
        wanted = self._delivery_properties(delivery, properties, exchange, extra)
        described = self._message_properties(delivery, message)
        if wanted == properties and described is message:
            return header
        if described is message:
            return messages.replace_delivery_properties(header, wanted)
        return messages.write_header(wanted, described, others)

    @staticmethod
    def _delivery_properties(
        delivery: OutgoingDelivery, known: r.DeliveryProperties, exchange: str, extra: _Extra
    ) -> r.DeliveryProperties:
        changes: dict[str, Any] = {}
        if extra.key is not None:
            changes = {"exchange": None, "routing_key": extra.key or None}
        elif exchange:
            changes["exchange"] = exchange
        if delivery.ttl_milliseconds is not None:
            changes["ttl"] = delivery.ttl_milliseconds
        if delivery.delivery_count is not None:
            changes["redelivered"] = known.redelivered or delivery.delivery_count > 0
        if extra.resume_id is not None:
            changes |= {"resume_id": extra.resume_id, "resume_ttl": extra.resume_ttl}
        return attrs.evolve(known, **changes) if changes else known

    def _message_properties(
        self, delivery: OutgoingDelivery, properties: r.MessageProperties
    ) -> r.MessageProperties:
        headers: dict[str, Any] = {}
        if (delivery.delivery_count or 0) > 1:
            headers[marks.DELIVERY_COUNT] = delivery.delivery_count
        user = properties.user_id
        if self.login is not None and user is not None and decode_text(user) != self.login:
            # Brokers end the session of a publisher that speaks for another.
            headers[marks.USER_ID] = user
            properties = attrs.evolve(properties, user_id=None)
        if not headers:
            return properties
        return attrs.evolve(
            properties, application_headers={**(properties.application_headers or {}), **headers}
        )


def refusal(error: TranslationError) -> Rejected:
    """Returns the outcome of a delivery that cannot be sent."""
    return Rejected(Condition(INVALID_FIELD, str(error)))
