"""Prepares deliveries in the encoding of AMQP/Fast.

A message is sent unchanged unless the delivery requires another ttl or delivery-count. Messages
that
would end the connection are refused one at a time, with the field named: a message of another
protocol that cannot be translated, an invalid head, and one that fits no fragment of the peer's.
"""

from typing import Final

import attrs

from router.errors import DecodeError, MisuseError, TranslationError
from router.model.capabilities import Protocol
from router.model.condition import INVALID_FIELD, Condition
from router.model.delivery import OutgoingDelivery
from router.model.outcome import Rejected
from router.wire import hub
from router.wire.fast.message import (
    DELIVERY_COUNT,
    KNOWN_LIMIT,
    KNOWN_OCTETS,
    TTL,
    decode_head,
    encode_head,
    layout_of,
)
from router.wire.fast.types import TableValue, decode_carried

_MAX_INT: Final = (1 << 31) - 1


@attrs.define
class Ready:
    """A delivery that can be sent.

    Attributes:
        redelivered: there was an earlier attempt.
    """

    head: bytes
    body: bytes
    redelivered: bool


class Outgoing:
    """Prepares deliveries for one connection.

    Attributes:
        limit: octets of the largest fragment that the peer accepts.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._known: set[bytes] = set()

    def ready(self, delivery: OutgoingDelivery) -> Ready:
        """Prepares a delivery.

        Raises:
            TranslationError: it cannot be sent; names the field.
        """
        payload = delivery.payload
        if delivery.protocol is not Protocol.AMQP_FAST:
            payload = hub.translate(payload, delivery.protocol, Protocol.AMQP_FAST)
        try:
            layout = layout_of(payload)
            head = payload[layout.head_start : layout.body_start]
            self._check(head)
        except DecodeError as error:
            raise TranslationError("head", error.rule) from error
        redelivered = layout.redelivered
        count = delivery.delivery_count
        if count is not None:
            redelivered = count > 0
        if delivery.ttl_milliseconds is not None or (count or 0) > 1:
            head = _changed(delivery, head, len(payload) - layout.body_start)
        if len(head) > self.limit:
            reason = f"a head of {len(head)} octets fits no fragment of the peer's"
            raise TranslationError("headers", reason)
        return Ready(head, payload[layout.body_start :], redelivered)

    def _check(self, head: bytes) -> None:
        rest = head[4:]  # without body-size
        if rest in self._known:
            return
        decode_head(head, 0, len(head), decode_carried)
        if len(rest) <= KNOWN_OCTETS:
            if len(self._known) >= KNOWN_LIMIT:
                self._known.clear()
            self._known.add(rest)


def _changed(delivery: OutgoingDelivery, octets: bytes, size: int) -> bytes:
    head = decode_head(octets, 0, len(octets), decode_carried)[0]
    changes: dict[str, TableValue] = {}
    if delivery.ttl_milliseconds is not None:
        changes[TTL] = min(delivery.ttl_milliseconds, _MAX_INT)
    if (delivery.delivery_count or 0) > 1:
        changes[DELIVERY_COUNT] = min(delivery.delivery_count or 0, _MAX_INT)
    head.headers = {**head.headers, **changes}
    try:
        return encode_head(head, size)
    except MisuseError as error:
        raise TranslationError("headers", error.reason) from error


def with_ttl(payload: bytes, ttl_milliseconds: int) -> bytes:
    """Returns a payload, whose head is valid, with another ttl."""
    layout = layout_of(payload)
    octets = payload[layout.head_start : layout.body_start]
    head = decode_head(octets, 0, len(octets), decode_carried)[0]
    head.headers = {**head.headers, TTL: min(ttl_milliseconds, _MAX_INT)}
    body = payload[layout.body_start :]
    return b"".join((payload[: layout.head_start], encode_head(head, len(body)), body))


def refusal(error: TranslationError) -> Rejected:
    """Returns the outcome of a delivery that cannot be sent."""
    return Rejected(Condition(INVALID_FIELD, str(error)))
