"""The head of a message, as far as the router reads and writes it (§3.2.1, §3.2.2).

Theory of operation. Routing needs the time to live and the count of earlier attempts, the address
where the link leads to the anonymous terminus, and from a router the trace and the ledger key. None
of it is read unless the first octets show that it is there.

The annotations of routers, both in the delivery annotations, which are for the next hop only::

    x-opt-router-hops   list of strings: container-ids of the routers passed, oldest first
    x-opt-router-key    binary: the delivery's ledger key, 16 octets
"""

from typing import Final

from router.errors import DecodeError
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryKey
from router.wire.v1_0.sections import (
    KEEP,
    Annotations,
    Peek,
    peek,
    rewrite,
)
from router.wire.v1_0.types import Pairs, Symbol

HOPS_ANNOTATION: Final = Symbol("x-opt-router-hops")
KEY_ANNOTATION: Final = Symbol("x-opt-router-key")
KEY_OCTETS: Final = 16

HEAD_OCTETS: Final = 65536
"""How much of a message is held back at most until its head is complete."""

_LEAD: Final = b"\x00\x53\x70"
"""How a header section begins, if it begins as all senders write it."""


class HeaderMemory:
    """Remembers the header last seen, since senders repeat themselves.

    Attributes:
        last: its octets, the whole section, or the descriptor of the section that stood in its
            place; a payload that begins with them says the same.
        told: ttl in milliseconds and delivery-count.
        is_telling: they are not what a delivery has anyway.
    """

    __slots__ = ("is_telling", "last", "told")

    def __init__(self) -> None:
        self.last = _LEAD + b"\x45"
        self.told: tuple[int | None, int] = (None, 0)
        self.is_telling = False

    def fill(self, delivery: ReceivedDelivery) -> None:
        """Fills in what the header of a received delivery says, and remembers it."""
        fill(delivery, is_anonymous=False, reads_annotations=False)
        payload = delivery.payload
        if len(payload) < 5 or payload[:2] != b"\x00\x53":
            return
        end = 3
        if payload[2] == 0x70:
            if payload[3] != 0xC0 or len(payload) < 5 + payload[4]:
                return
            end = 5 + payload[4]
        self.last = payload[:end]
        self.told = (delivery.ttl_milliseconds, delivery.delivery_count)
        self.is_telling = self.told != (None, 0)


def fill(delivery: ReceivedDelivery, is_anonymous: bool, reads_annotations: bool) -> None:
    """Fills in what the head of a received delivery says.

    A head that breaks a rule says nothing: the message is carried on as it is, and a delivery that
    needs an address has none.
    """
    payload = delivery.payload
    if delivery.message_format:
        return
    if not (is_anonymous or reads_annotations):
        if payload[1:3] != b"\x53\x70" and payload[1:2] not in (b"\x80", b"\xa3", b"\xb3"):
            return  # no header, in none of the forms that a descriptor may have (§1.2)
        if payload[:4] == _LEAD + b"\x45":
            return
    try:
        _read(delivery, peek(payload, partial=True), is_anonymous, reads_annotations)
    except DecodeError:
        return


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
    """Tells whether the first part of a message holds all that ``fill`` reads.

    Args:
        payload: the first part.
        reads_all: more than the header is read.
    """
    if reads_all:
        try:
            return peek(payload, partial=True).is_whole
        except DecodeError:
            return True
    if payload[:3] != b"\x00\x53\x70"[: len(payload)]:
        return True
    if len(payload) < 8:
        return payload[3:4] == b"\x45"
    size = payload[4] + 5 if payload[3] == 0xC0 else int.from_bytes(payload[4:8], "big") + 8
    return len(payload) >= size


def rewritten(payload: bytes, delivery: OutgoingDelivery, is_router: bool) -> bytes:
    """Returns a payload, its head changed as the delivery asks.

    Raises:
        DecodeError: if the head that is to be changed breaks a rule.
    """
    carries = is_router and (delivery.key is not None or delivery.hops is not None)
    if delivery.ttl_milliseconds is None and delivery.delivery_count is None and not carries:
        return payload
    annotations: Annotations | None = None
    if carries:
        found = peek(payload, partial=True).delivery_annotations
        annotations = dict(found) if isinstance(found, dict) else {}
        if delivery.key is not None:
            annotations[KEY_ANNOTATION] = delivery.key
        if delivery.hops is not None:
            annotations[HOPS_ANNOTATION] = list(delivery.hops)
    return rewrite(
        payload,
        ttl_ms=KEEP if delivery.ttl_milliseconds is None else delivery.ttl_milliseconds,
        delivery_count=KEEP if delivery.delivery_count is None else delivery.delivery_count,
        delivery_annotations=KEEP if annotations is None else annotations,
    )
