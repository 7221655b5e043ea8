"""Commands and properties of classes file (9) and stream (10), which no client has to know.

As with ``router.wire.v0_10.records``: fields are in wire order, and None is one that is absent.
"""

from typing import Final, TypeAlias

import attrs

from router.wire.v0_10.records import (
    Bit,
    DateTime,
    Map,
    Str8,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Words8,
)

FILE_CLASS: Final = 9
STREAM_CLASS: Final = 10

TOO_LARGE, NO_ROUTE, NO_CONSUMERS = 311, 312, 313
"""Values of return-code."""


# --- class file (9) -------------------------------------------------------------------------------


@attrs.frozen
class FileQos:
    """How much of files may be sent ahead of acknowledgements; without a value or 0: any."""

    prefetch_size: UInt32 = None
    prefetch_count: UInt16 = None
    global_: Bit = False


@attrs.frozen
class FileQosOk:
    """What was wanted was heard."""


@attrs.frozen(kw_only=True)
class FileConsume:
    """The files of a queue are wanted."""

    queue: Str8 = None
    consumer_tag: Str8 = None
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Map = None


@attrs.frozen
class FileConsumeOk:
    """The consumer is there."""

    consumer_tag: Str8 = None


@attrs.frozen
class FileCancel:
    """A consumer is to end."""

    consumer_tag: Str8 = None


@attrs.frozen
class FileOpen:
    """Asks how much of a file the other side has of an earlier attempt."""

    identifier: Str8 = None
    content_size: UInt64 = None


@attrs.frozen
class FileOpenOk:
    """So many octets of the file are here already."""

    staged_size: UInt64 = None


@attrs.frozen
class FileStage:
    """The rest of the file that was opened; content follows."""


@attrs.frozen(kw_only=True)
class FilePublish:
    """Publishes what was staged."""

    exchange: Str8 = None
    routing_key: Str8 = None
    mandatory: Bit = False
    immediate: Bit = False
    identifier: Str8 = None


@attrs.frozen(kw_only=True)
class FileReturn:
    """A file that was not taken comes back; content follows."""

    reply_code: UInt16 = None
    reply_text: Words8 = None
    exchange: Str8 = None
    routing_key: Str8 = None


@attrs.frozen(kw_only=True)
class FileDeliver:
    """What was staged is for a consumer."""

    consumer_tag: Str8 = None
    delivery_tag: UInt64 = None
    redelivered: Bit = False
    exchange: Str8 = None
    routing_key: Str8 = None
    identifier: Str8 = None


@attrs.frozen
class FileAck:
    """Files were processed."""

    delivery_tag: UInt64 = None
    multiple: Bit = False


@attrs.frozen
class FileReject:
    """A file cannot be processed."""

    delivery_tag: UInt64 = None
    requeue: Bit = False


@attrs.frozen(kw_only=True)
class FileProperties:
    """What a file is."""

    content_type: Str8 = None
    content_encoding: Str8 = None
    headers: Map = None
    priority: UInt8 = None
    reply_to: Str8 = None
    message_id: Str8 = None
    filename: Str8 = None
    timestamp: DateTime = None
    cluster_id: Str8 = None


# --- class stream (10) ----------------------------------------------------------------------------


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
    reply_text: Words8 = None
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
    FileQos
    | FileQosOk
    | FileConsume
    | FileConsumeOk
    | FileCancel
    | FileOpen
    | FileOpenOk
    | FileStage
    | FilePublish
    | FileReturn
    | FileDeliver
    | FileAck
    | FileReject
    | StreamQos
    | StreamQosOk
    | StreamConsume
    | StreamConsumeOk
    | StreamCancel
    | StreamPublish
    | StreamReturn
    | StreamDeliver
)
