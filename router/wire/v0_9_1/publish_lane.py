"""The fast path for publishes.

Theory of operation. A publish is three frames, and for publishes of one client to one address the
first is always the same octets. So these octets are the key to everything derived from them
(``PublishShape``), and a run of publishes is read by comparing octets (``scan``). It has no rules
of
its own: anything but three complete frames, without properties that must be read, is left to the
general path, frame by frame; tests require the same events from both.
"""

from collections.abc import Callable
from typing import Final

import attrs

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.text import encode_text
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import ChannelPhase, Expect
from router.wire.v0_9_1.framing import END_OCTET, OVERHEAD_OCTETS
from router.wire.v0_9_1.posts import Inlet
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.scan import scan_publishes
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9_1.twins import chosen

_PUBLISH: Final = b"\x00\x3c\x00\x28"

_scan = chosen("scan_publishes", scan_publishes)

_SHAPES_LIMIT: Final = 1024


@attrs.define(eq=False)
class PublishShape:
    """The cached meaning of a publish's method frame.

    Attributes:
        octets: the frame.
        prefix: first octets of the contents.
        settled: the publisher gets no outcomes.
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

    def __init__(
        self, engine: ServerLinks, publishing_of: Callable[[int], Publishing | None]
    ) -> None:
        self._engine = engine
        self._publishing_of = publishing_of
        self._shapes: dict[bytes, PublishShape] = {}

    def forget(self) -> None:
        """Drops all shapes: a link is gone, or a channel's mode has changed."""
        self._shapes.clear()

    def take(self, octets: bytes, at: int, end: int) -> int:
        """Handles publishes of one shape; returns where it stopped, ``at`` if at once."""
        stop = at + 8 + int.from_bytes(octets[at + 3 : at + 7], "big")
        method = octets[at:stop]
        shape = self._shapes.get(method) or self._find_shape(method)
        return at if shape is None else self._take_all(shape, octets, at, end)

    def _find_shape(self, octets: bytes) -> PublishShape | None:
        """Derives the shape of a publish's method frame; None: not on the fast path."""
        if octets[7:11] != _PUBLISH or octets[-1] != END_OCTET:
            return None
        number = octets[1] << 8 | octets[2]
        publishing = self._publishing_of(number)
        if publishing is None or publishing.transaction is not None:
            return None
        try:
            method = self._engine.codec.decode(octets, 7, len(octets) - 1, from_client=True)
        except DecodeError:
            return None
        assert isinstance(method, m.BasicPublish)
        if method.exchange in self._engine.exchanges.internal:
            return None
        address = self._engine.address_of(method.exchange, method.routing_key)
        inlet = publishing.inlets.get(address)
        if inlet is None or method.immediate:
            return None
        shape = PublishShape(
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

    def _take_all(self, shape: PublishShape, octets: bytes, at: int, end: int) -> int:
        """Handles publishes until one has another shape."""
        inlet, publishing = shape.inlet, shape.publishing
        channel = publishing.channel
        if (
            channel.waits
            or channel.expect is not Expect.METHOD
            or channel.phase is not ChannelPhase.OPEN
        ):
            return at
        limit = self._engine.frame_limit - OVERHEAD_OCTETS
        found, at = _scan(
            octets,
            at,
            end,
            method=shape.octets,
            prefix=shape.prefix,
            limit=limit,
            body_limit=min(limit, inlet.max_message_octets or limit),
        )
        if found:
            first, settled = publishing.published + 1, shape.settled
            deliveries = [
                ReceivedDelivery(
                    DeliveryNumber(number),
                    DeliveryTag(number.to_bytes(8, "big")),
                    content,
                    Protocol.AMQP_0_9_1,
                    0,
                    settled,
                )
                for number, content in enumerate(found, first)
            ]
            publishing.published += len(found)
            publishing.hand_on(inlet, deliveries, shape.is_mandatory)
        return at
