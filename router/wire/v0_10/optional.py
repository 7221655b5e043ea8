"""Commands and properties of the optional classes file (9) and stream (10).

As in ``router.wire.v0_10.records``, fields are in wire order, and None is an absent field.
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
    """The prefetch of files, ahead of acknowledgments; without a value or 0: no limit."""

    prefetch_size: UInt32 = None
    prefetch_count: UInt16 = None
    global_: Bit = False


@attrs.frozen
class FileQosOk:
    """Acknowledges file.qos."""


@attrs.frozen(kw_only=True)
class FileConsume:
    """Requests the files of a queue."""

    queue: Str8 = None
    consumer_tag: Str8 = None
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Map = None


@attrs.frozen
class FileConsumeOk:
    """The consumer is started."""

    consumer_tag: Str8 = None


@attrs.frozen
class FileCancel:
    """Cancels a consumer."""

    consumer_tag: Str8 = None


@attrs.frozen
class FileOpen:
    """Asks how much of a file the other side has from an earlier attempt."""

    identifier: Str8 = None
    content_size: UInt64 = None


@attrs.frozen
class FileOpenOk:
    """How many octets of the file are present."""

    staged_size: UInt64 = None


@attrs.frozen
class FileStage:
    """The remainder of the file that was opened; content follows."""


@attrs.frozen(kw_only=True)
class FilePublish:
    """Publishes the staged file."""

    exchange: Str8 = None
    routing_key: Str8 = None
    mandatory: Bit = False
    immediate: Bit = False
    identifier: Str8 = None


@attrs.frozen(kw_only=True)
class FileReturn:
    """Returns a file that was not accepted; content follows."""

    reply_code: UInt16 = None
    reply_text: Words8 = None
    exchange: Str8 = None
    routing_key: Str8 = None


@attrs.frozen(kw_only=True)
class FileDeliver:
    """Delivers the staged file to a consumer."""

    consumer_tag: Str8 = None
    delivery_tag: UInt64 = None
    redelivered: Bit = False
    exchange: Str8 = None
    routing_key: Str8 = None
    identifier: Str8 = None


@attrs.frozen
class FileAck:
    """Acknowledges files."""

    delivery_tag: UInt64 = None
    multiple: Bit = False


@attrs.frozen
class FileReject:
    """Rejects a file."""

    delivery_tag: UInt64 = None
    requeue: Bit = False


@attrs.frozen(kw_only=True)
class FileProperties:
    """Properties of a file."""

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
    """The client's limits for all streams: a prefetch, octets per second."""

    prefetch_size: UInt32 = None
    prefetch_count: UInt16 = None
    consume_rate: UInt32 = None
    global_: Bit = False


@attrs.frozen
class StreamQosOk:
    """Acknowledges stream.qos."""


@attrs.frozen(kw_only=True)
class StreamConsume:
    """Requests the packets of a queue."""

    queue: Str8 = None
    consumer_tag: Str8 = None
    no_local: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Map = None


@attrs.frozen
class StreamConsumeOk:
    """The consumer is started."""

    consumer_tag: Str8 = None


@attrs.frozen
class StreamCancel:
    """Cancels a consumer."""

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
    """Returns a packet that was not accepted; content follows."""

    reply_code: UInt16 = None
    reply_text: Words8 = None
    exchange: Str8 = None
    routing_key: Str8 = None


@attrs.frozen(kw_only=True)
class StreamDeliver:
    """Delivers a packet to a consumer; content follows."""

    consumer_tag: Str8 = None
    delivery_tag: UInt64 = None
    exchange: Str8 = None
    queue: Str8 = None


@attrs.frozen(kw_only=True)
class StreamProperties:
    """Properties of a packet."""

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
