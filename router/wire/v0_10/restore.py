"""Conversions on which both directions of the translation must agree."""

import uuid
from typing import Any, Final

from router.errors import MisuseError, TranslationError
from router.model.text import encode_text
from router.wire.v0_10 import marks
from router.wire.v0_10 import records as r
from router.wire.v0_10.types import Seconds, encode_list, encode_map
from router.wire.v0_10.values import from_v1_0
from router.wire.v1_0.types import Ulong

MILLISECONDS_FROM: Final = 100_000_000_000
"""Greater datetimes are milliseconds, as Qpid for Java writes them; in seconds: the year 5138."""

_MAX_MILLISECONDS: Final = (1 << 63) - 1


def milliseconds_of(value: int) -> int | None:
    """Returns a datetime in milliseconds; None: AMQP 1.0 cannot hold it."""
    value = value if value > MILLISECONDS_FROM else value * 1000
    return value if value <= _MAX_MILLISECONDS else None


def datetime_of(milliseconds: int) -> Seconds | None:
    """Returns milliseconds as a datetime in seconds; None: it is before 1970."""
    return Seconds(milliseconds // 1000) if milliseconds >= 0 else None


def is_inexact(milliseconds: int) -> bool:
    """Returns whether a datetime in seconds would lose precision."""
    made = datetime_of(milliseconds)
    return made is None or milliseconds_of(made) != milliseconds


def text_or_octets(octets: bytes) -> str | bytes:
    """Returns octets as text if they are UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def correlation_octets(value: Any) -> bytes | None:
    """Returns a correlation-id as octets; None: it is too long."""
    if isinstance(value, bytes):
        octets = value
    elif isinstance(value, uuid.UUID):
        octets = value.urn.encode()
    elif isinstance(value, Ulong):
        octets = str(int(value)).encode()
    else:
        octets = encode_text(value)
    return octets if len(octets) <= 0xFFFF else None


def reply_to_of(address: str) -> r.ReplyTo | None:
    """Returns an address as exchange and routing key; None: it does not fit them."""
    exchange, slash, key = address.partition("/")
    found = r.ReplyTo(exchange, key) if slash and exchange else r.ReplyTo(None, address)
    texts = (found.exchange or "", found.routing_key or "")
    return found if all(len(encode_text(text)) <= 255 for text in texts) else None


def is_count(delivery: r.DeliveryProperties, value: Any) -> bool:
    """Returns whether a header is the delivery-count of a redelivered message."""
    return delivery.redelivered and type(value) is int and 1 < value <= 0xFFFF_FFFF


def needs_wrapping(name: str) -> bool:
    """Returns whether an annotation cannot be a header of its own name."""
    return not name.startswith("x-") or marks.is_reserved(name)


def is_wrapped_property(name: str) -> bool:
    """Returns whether an application property cannot be a header of its own name."""
    return marks.is_reserved(name) and name != marks.APP_ID


def is_simple(value: Any) -> bool:
    """Returns whether an amqp-value is a map or list that 0-10 can hold."""
    if type(value) not in (dict, list):
        return False
    try:
        plain = from_v1_0(value, "amqp-value")
        (encode_map if type(plain) is dict else encode_list)(plain)
    except (TranslationError, MisuseError):
        return False
    return True
