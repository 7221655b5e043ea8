"""The head of a message: the parts that the router reads and writes (§3.2.1, §3.2.2).

Theory of operation. Routing needs the ttl and the count of earlier attempts; the address, where the
link leads to the anonymous terminus; and, from a router, the trace and the ledger key. None of them
is decoded unless the first octets show that it is present.

Routers use two annotations, both in the delivery annotations, which are for the next hop only::

    x-opt-router-hops   list of strings: the stops passed (``model.ways``), oldest first
    x-opt-router-key    binary: the delivery's ledger key, 16 octets; accepted from trusted routers
                        only

Delivery annotations are addressed to this router and are not forwarded (§3.2.2). They are removed
from a complete message on arrival. A message in parts keeps them until it is sent, and is sent with
an empty section in their place, because positions (§3.4.1) count sections and octets of the message
as it was received. A head in parts that exceeds ``HEAD_OCTETS`` is not waited for; its annotations
are forwarded.
"""

from typing import Final

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryKey
from router.wire import hub
from router.wire.v1_0.sections import (
    KEEP,
    Peek,
    peek,
    rewrite,
)
from router.wire.v1_0.types import Pairs, Symbol

HOPS_ANNOTATION: Final = Symbol("x-opt-router-hops")
KEY_ANNOTATION: Final = Symbol("x-opt-router-key")
KEY_OCTETS: Final = 16

HEAD_OCTETS: Final = 65536
"""How much of a message is held back at most until its head is complete, in octets."""

_LEAD: Final = b"\x00\x53\x70"
"""The first octets of a header section in the common encoding."""

_ANNOTATIONS_LEAD: Final = b"\x00\x53\x71"
"""The first octets of delivery annotations in the common encoding."""

KEY_LEAD: Final = _ANNOTATIONS_LEAD + b"\xc1\x25\x02\xa3\x10x-opt-router-key\xa0\x10"
"""Delivery annotations with nothing but a key, up to the key."""

KEYED_OCTETS: Final = len(KEY_LEAD) + KEY_OCTETS

_NO_ANNOTATIONS: Final = _ANNOTATIONS_LEAD + b"\xc1\x01\x00"
"""An empty section of delivery annotations."""

_WIDE_DESCRIPTORS: Final = (b"\x80", b"\xa3", b"\xb3")
"""Constructors of the other encodings of a descriptor (§1.2)."""


class HeaderMemory:
    """Caches the last header read, since senders repeat themselves.

    Attributes:
        last: octets of the complete section, if there is one, and the descriptor of the next
            section, which is not that of delivery annotations; a payload that begins with them has
            the same header.
        ttl_and_count: ttl in milliseconds and delivery-count.
        has_ttl_or_count: they differ from the defaults.
    """

    __slots__ = ("has_ttl_or_count", "last", "ttl_and_count")

    def __init__(self) -> None:
        self.last = _LEAD + b"\x45\x00\x53\x75"
        self.ttl_and_count: tuple[int | None, int] = (None, 0)
        self.has_ttl_or_count = False

    def fill(self, delivery: ReceivedDelivery) -> None:
        """Sets a received delivery's fields from its header, and caches the header."""
        payload = delivery.payload
        fill(delivery, is_anonymous=False, reads_annotations=False)
        end = 0
        if payload[:3] == _LEAD:
            if payload[3:4] == b"\xc0" and len(payload) > 4:
                end = 5 + payload[4]
            elif payload[3:4] == b"\x45":
                end = 4
            else:
                return
        if payload[end : end + 2] == b"\x00\x53" and payload[end + 2 : end + 3] > b"\x71":
            self.last = payload[: end + 3]
            self.ttl_and_count = (delivery.ttl_milliseconds, delivery.delivery_count)
            self.has_ttl_or_count = self.ttl_and_count != (None, 0)


class KeyMemory(HeaderMemory):
    """The same of deliveries from a trusted router: the header, and what annotates a key.

    A payload that begins with ``last`` has the same header, and its key follows; so it has no
    other delivery annotations.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.last = KEY_LEAD

    def fill(self, delivery: ReceivedDelivery) -> None:
        """Sets a received delivery's fields from its head, and caches its header."""
        payload = delivery.payload
        fill(delivery, is_anonymous=False, reads_annotations=True)
        end = _end_of_header(payload)
        if end >= 0 and delivery.key is not None and payload.startswith(KEY_LEAD, end):
            self.last = payload[: end + len(KEY_LEAD)]
            self.ttl_and_count = (delivery.ttl_milliseconds, delivery.delivery_count)
            self.has_ttl_or_count = self.ttl_and_count != (None, 0)


def _end_of_header(payload: bytes) -> int:
    """Returns where a header of the common forms ends, 0 if there is none; -1: another form."""
    if payload[:3] != _LEAD:
        return 0
    if payload[3:4] == b"\x45":
        return 4
    if payload[3:4] == b"\xc0" and payload[4:5] > b"\x00":
        return 5 + payload[4]
    return -1


def place_of_key(payload: bytes) -> int:
    """Returns where ``rewritten`` would put delivery annotations with a key; -1: ask it.

    That is behind the header, in a message that has no delivery annotations.
    """
    at = _end_of_header(payload)
    is_usual = 0 <= at < len(payload) - 3 and payload[at : at + 2] == b"\x00\x53"
    return at if is_usual and 0x71 < payload[at + 2] < 0x79 else -1


def fill(
    delivery: ReceivedDelivery,
    is_anonymous: bool,
    reads_annotations: bool,
    believes_keys: bool = True,
) -> None:
    """Sets a received delivery's fields from its head; removes its delivery annotations (§3.2.2).

    An invalid head sets nothing: the message is forwarded as it is, and a delivery that needs an
    address has none.
    """
    payload = delivery.payload
    if delivery.message_format:
        return
    if not (is_anonymous or reads_annotations or _has_head(payload)):
        return
    try:
        seen = peek(payload, partial=True)
        _read(delivery, seen, is_anonymous, reads_annotations)
    except DecodeError:
        return
    if not believes_keys:
        delivery.key = None
    if not (delivery.more or delivery.resume) and seen.annotations_at is not None:
        start, end = seen.annotations_at
        delivery.payload = payload[:start] + payload[end:]


def _has_head(payload: bytes) -> bool:
    """Returns whether a payload begins with a header that is not empty, or with annotations."""
    if payload[1:2] in _WIDE_DESCRIPTORS:
        return True
    if payload[:4] == _LEAD + b"\x45":
        return payload[5:6] in _WIDE_DESCRIPTORS or payload[6:7] == b"\x71"
    return payload[:3] in (_LEAD, _ANNOTATIONS_LEAD)


def _read(
    delivery: ReceivedDelivery, seen: Peek, is_anonymous: bool, reads_annotations: bool
) -> None:
    delivery.ttl_milliseconds = seen.ttl_ms
    delivery.delivery_count = seen.delivery_count
    if is_anonymous:
        delivery.address = seen.to
    if reads_annotations:
        annotations = seen.delivery_annotations
        if isinstance(annotations, Pairs):
            return
        key = annotations.get(KEY_ANNOTATION)
        if type(key) is bytes and len(key) == KEY_OCTETS:
            delivery.key = DeliveryKey(key)
        hops = annotations.get(HOPS_ANNOTATION)
        if type(hops) is list and all(type(hop) is str for hop in hops):
            delivery.hops = tuple(hops)


def is_head_whole(payload: bytes, reads_all: bool) -> bool:
    """Returns whether the first part of a message contains all that ``fill`` reads.

    Args:
        payload: the first part.
        reads_all: more than header and delivery annotations is needed.
    """
    if reads_all or payload[1:2] in _WIDE_DESCRIPTORS:
        try:
            return peek(payload, partial=True).is_whole
        except DecodeError:
            return True
    at = 0
    for lead in (_LEAD, _ANNOTATIONS_LEAD):
        seen = payload[at : at + 3]
        if seen != lead[: len(seen)]:
            continue
        if len(payload) < at + 8:
            return payload[at + 3 : at + 5] == b"\x45\x00" and payload[at + 6 : at + 7] > b"\x71"
        at += _octets_of_section(payload, at)
    return len(payload) >= at


def _octets_of_section(payload: bytes, at: int) -> int:
    """Returns the size of the list or map that a section of a known descriptor holds."""
    constructor = payload[at + 3]
    if constructor == 0x45:
        return 4
    if constructor in (0xC0, 0xC1):
        return 5 + payload[at + 4]
    return 8 + int.from_bytes(payload[at + 4 : at + 8], "big")


def rewritten(payload: bytes, delivery: OutgoingDelivery, is_router: bool) -> bytes:
    """Returns a payload with the head changed as the delivery requires.

    Annotations of the received message are not forwarded (§3.2.2).

    Raises:
        DecodeError: if the head that is to be changed is invalid.
    """
    carries = is_router and (delivery.key is not None or delivery.hops is not None)
    if delivery.ttl_milliseconds is None and not delivery.delivery_count and not carries:
        return payload if delivery.delivery_count is None else _without_annotations(payload)
    if not carries:
        payload = _without_annotations(payload)
    elif delivery.key is not None and _has_only_key(delivery):
        at = place_of_key(payload)
        if at >= 0:
            return b"".join((payload[:at], KEY_LEAD, delivery.key, payload[at:]))
    annotations: dict[object, object] = {}
    if delivery.key is not None:
        annotations[KEY_ANNOTATION] = delivery.key
    if delivery.hops is not None:
        annotations[HOPS_ANNOTATION] = list(delivery.hops)
    return rewrite(
        payload,
        ttl_ms=KEEP if delivery.ttl_milliseconds is None else delivery.ttl_milliseconds,
        delivery_count=KEEP if delivery.delivery_count is None else delivery.delivery_count,
        delivery_annotations=annotations if carries else KEEP,
    )


def _has_only_key(delivery: OutgoingDelivery) -> bool:
    """Returns whether a key is all that is to be added to a message, and is one of ours."""
    return (
        delivery.ttl_milliseconds is None
        and delivery.delivery_count is None
        and delivery.hops is None
        and delivery.key is not None
        and len(delivery.key) == KEY_OCTETS
    )


def as_sent(delivery: OutgoingDelivery, is_router: bool) -> bytes:
    """Returns a message as it was sent before, in which its receiver states positions (§3.4.1).

    Only the ttl in its header may differ from what was sent then.

    Args:
        delivery: with the whole message, or its parts so far from the first one on.
        is_router: as with ``rewritten``.

    Raises:
        DecodeError, TranslationError: it cannot have been sent.
    """
    payload = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_1_0)
    if delivery.message_format:
        return payload
    made = rewritten(payload, delivery, is_router)
    # what was restored as a whole may have come, and have been sent, in parts
    return _without_annotations(payload) if made is payload else made


def _without_annotations(payload: bytes) -> bytes:
    """Replaces a message's delivery annotations by an empty section."""
    try:
        found = peek(payload, partial=True).annotations_at
    except DecodeError:
        return payload
    if found is None:
        return payload
    start, end = found
    return payload[:start] + _NO_ANNOTATIONS + payload[end:]
