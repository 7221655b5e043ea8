"""The fast lane for publishes.

Theory of operation. A publish comes as three frames, and of those of one client to one address the
first is the same octets again and again. So these octets are the key to all that they mean
(``Shape``), and a run of publishes is read by comparing octets; where properties and the size of
the body repeat, too, all up to the body is one comparison. Nothing is decided here that the
general way would decide otherwise: whatever is not exactly three whole frames, with no property
that must be looked at, is left to it, frame by frame; tests want the same events from both.
"""

import struct
from typing import TYPE_CHECKING, Final

import attrs

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Expect, Phase
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.framing import BODY, END_OCTET, FRAME, HEADER, OVERHEAD_OCTETS
from router.wire.v0_9_1.publishing import Inlet, Publishing
from router.wire.v0_9_1.types import encode_text

if TYPE_CHECKING:
    from router.wire.v0_9_1.server import ServerEngine

_PUBLISH: Final = b"\x00\x3c\x00\x28"

_CONTENT_HEAD: Final = struct.Struct(">BHIHHQH").unpack_from
"""Frame header, class, weight, body size and first flags of a content header's frame."""
_CONTENT_HEAD_OCTETS: Final = 21

_LOOKED_AT: Final = FLAGS["expiration"] | FLAGS["user_id"]
"""Properties that take a publish off the fast lane."""

_SHAPES_LIMIT: Final = 1024


@attrs.define(eq=False)
class Shape:
    """What the octets of a publish's method frame stand for.

    Attributes:
        octets: the frame.
        prefix: what its contents begin with.
        settled: its publisher cannot be told an outcome.
    """

    octets: bytes
    number: int
    inlet: Inlet
    publishing: Publishing
    prefix: bytes
    is_mandatory: bool
    settled: bool


class PublishLane:
    """The shapes of one connection's publishes."""

    def __init__(self, engine: "ServerEngine") -> None:
        self._engine = engine
        self._shapes: dict[bytes, Shape] = {}

    def forget(self) -> None:
        """Works all shapes out anew: a link is gone, or a channel's mode is another."""
        self._shapes.clear()

    def take(self, octets: bytes, at: int, end: int) -> int:
        """Takes publishes of one shape; returns where it stopped, ``at`` if it took none."""
        stop = at + 8 + int.from_bytes(octets[at + 3 : at + 7], "big")
        method = octets[at:stop]
        shape = self._shapes.get(method) or self._find_shape(method)
        return at if shape is None else self._take_all(shape, octets, at, end)

    def _find_shape(self, octets: bytes) -> Shape | None:
        """Works out what a publish's method frame stands for, if it can be taken fast."""
        if octets[7:11] != _PUBLISH or octets[-1] != END_OCTET:
            return None
        number = octets[1] << 8 | octets[2]
        publishing = self._engine.publishing_of(number)
        if publishing is None or publishing.transaction is not None:
            return None
        try:
            method = self._engine.codec.decode(octets, 7, len(octets) - 1)
        except DecodeError:
            return None
        assert isinstance(method, m.BasicPublish)
        address = self._engine.address_of(method.exchange, method.routing_key)
        inlet = publishing.inlets.get(address)
        if inlet is None or method.immediate:
            return None
        shape = Shape(
            octets,
            number,
            inlet,
            publishing,
            contents.content_prefix(encode_text(method.exchange), encode_text(method.routing_key)),
            method.mandatory,
            publishing.unconfirmed is None and not method.mandatory,
        )
        if len(self._shapes) >= _SHAPES_LIMIT:
            self._shapes.clear()
        self._shapes[octets] = shape
        return shape

    def _take_all(self, shape: Shape, octets: bytes, at: int, end: int) -> int:
        """Takes publishes as long as they are of one shape."""
        inlet, publishing = shape.inlet, shape.publishing
        channel = publishing.channel
        if channel.waits or channel.expect is not Expect.METHOD or channel.phase is not Phase.OPEN:
            return at
        settled = shape.settled
        limit = self._engine.frame_limit - OVERHEAD_OCTETS
        body_limit = min(limit, inlet.max_message_octets or limit)
        number = publishing.published
        deliveries: list[ReceivedDelivery] = []
        lead, width, content_head, body = _NOTHING_KNOWN
        while at < end:
            if not octets.startswith(lead, at):
                known = _look_at(shape, octets, at, end, limit)
                if known is None or known[3] > body_limit:
                    break
                lead, width, content_head, body = known
            body_start = at + width
            body_end = body_start + body
            if body_end >= end or octets[body_end] != END_OCTET:
                break
            number += 1
            deliveries.append(
                ReceivedDelivery(
                    DeliveryNumber(number),
                    DeliveryTag(number.to_bytes(8, "big")),
                    content_head + octets[body_start:body_end],
                    Protocol.AMQP_0_9_1,
                    0,
                    settled,
                )
            )
            at = body_end + 1
        if deliveries:
            publishing.published = number
            publishing.hand_on(inlet, deliveries, shape.is_mandatory)
        return at


_Known = tuple[bytes, int, bytes, int]
"""All of a publish up to its body, with which the next one may begin, too: method frame, header
frame and head of the body's frame; where the body begins in it; what the content begins with; how
many octets the body has. Without a body it begins, and ends, at the header frame's last octet."""

_NOTHING_KNOWN: Final[_Known] = (b"\0", 0, b"", 0)
"""No frame begins with type 0."""


def _look_at(shape: Shape, octets: bytes, at: int, end: int, limit: int) -> _Known | None:
    """Looks at one publish; None if it is not of the shape, or not for the fast lane."""
    start = at + len(shape.octets)
    if end - start <= _CONTENT_HEAD_OCTETS or not octets.startswith(shape.octets, at):
        return None
    kind, number, size, class_id, weight, body, flags = _CONTENT_HEAD(octets, start)
    header_end = start + 7 + size
    if (
        kind != HEADER
        or number != shape.number
        or class_id != contents.BASIC_CLASS
        or weight
        or not contents.HEADER_OCTETS <= size <= limit
        or header_end >= end
        or octets[header_end] != END_OCTET
        or flags & _LOOKED_AT
    ):
        return None
    content_head = shape.prefix + octets[start + 7 : header_end]
    if not body:
        return octets[at : header_end + 1], header_end - at, content_head, 0
    body_start = header_end + 8
    if body_start > end or FRAME.unpack_from(octets, header_end + 1) != (BODY, number, body):
        return None
    return octets[at:body_start], body_start - at, content_head, body
