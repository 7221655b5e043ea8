"""Commands and properties of class stream (10), which no client of 0-10 has to know.

As with ``router.wire.v0_10.records``: fields are in wire order, and None is one that is absent.
"""

from typing import Final, TypeAlias

import attrs

from router.wire.v0_10.records import Bit, DateTime, Map, Str8, UInt8, UInt16, UInt32, UInt64

STREAM_CLASS: Final = 10

TOO_LARGE, NO_ROUTE, NO_CONSUMERS = 311, 312, 313
"""Values of return-code."""


@attrs.frozen(kw_only=True)
class StreamQos:
    """What the client wants of all streams: a prefetch, octets a second."""

    prefetch_size: UInt32 = None
    prefetch_count: UInt16 = None
    consume_rate: UInt32 = None
    global_: Bit = False


@attrs.frozen
class StreamQosOk:
    """What was wanted was heard."""


@attrs.frozen(kw_only=True)
class StreamConsume:
    """The packets of a queue are wanted."""

    queue: Str8 = None
    consumer_tag: Str8 = None
    no_local: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Map = None


@attrs.frozen
class StreamConsumeOk:
    """The consumer is there."""

    consumer_tag: Str8 = None


@attrs.frozen
class StreamCancel:
    """A consumer is to end."""

    consumer_tag: Str8 = None


@attrs.frozen(kw_only=True)
class StreamPublish:
    """One packet of a stream; content follows."""

    exchange: Str8 = None
    routing_key: Str8 = None
    mandatory: Bit = False
    immediate: Bit = False


@attrs.frozen(kw_only=True)
class StreamReturn:
    """A packet that nobody took comes back; content follows."""

    reply_code: UInt16 = None
    reply_text: Str8 = None
    exchange: Str8 = None
    routing_key: Str8 = None


@attrs.frozen(kw_only=True)
class StreamDeliver:
    """A packet for a consumer; content follows."""

    consumer_tag: Str8 = None
    delivery_tag: UInt64 = None
    exchange: Str8 = None
    queue: Str8 = None


@attrs.frozen(kw_only=True)
class StreamProperties:
    """What a packet is."""

    content_type: Str8 = None
    content_encoding: Str8 = None
    headers: Map = None
    priority: UInt8 = None
    timestamp: DateTime = None


OptionalCommand: TypeAlias = (
    StreamQos
    | StreamQosOk
    | StreamConsume
    | StreamConsumeOk
    | StreamCancel
    | StreamPublish
    | StreamReturn
    | StreamDeliver
)
