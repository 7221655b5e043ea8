"""Controls, commands and structs as records (0-10, classes connection to queue).

A record's fields are in wire order and carry their type in their annotation: the records are half
of the table that drives ``router.wire.v0_10.codec``, which has the numbers. None is a field that
is absent; a ``Bit`` has no octets but its packing flag.
"""

import uuid
from typing import Annotated, Any, TypeAlias

import attrs

from router.wire.v0_10.ranges import Ranges
from router.wire.v0_10.types import Seconds, Table

Bit: TypeAlias = Annotated[bool, "bit"]
UInt8: TypeAlias = Annotated[int | None, "uint8"]
UInt16: TypeAlias = Annotated[int | None, "uint16"]
UInt32: TypeAlias = Annotated[int | None, "uint32"]
UInt64: TypeAlias = Annotated[int | None, "uint64"]
Str8: TypeAlias = Annotated[str | None, "str8"]
Str16: TypeAlias = Annotated[str | None, "str16"]
Words8: TypeAlias = Annotated[str | None, "words8"]
Words16: TypeAlias = Annotated[str | None, "words16"]
VBin16: TypeAlias = Annotated[bytes | None, "vbin16"]
VBin32: TypeAlias = Annotated[bytes | None, "vbin32"]
DateTime: TypeAlias = Annotated[Seconds | None, "datetime"]
Uuid: TypeAlias = Annotated[uuid.UUID | None, "uuid"]
Map: TypeAlias = Annotated[Table | None, "map"]
Array: TypeAlias = Annotated[list[Any] | None, "array"]
Commands: TypeAlias = Annotated[Ranges | None, "commands"]


# --- class connection (1): controls ---------------------------------------------------------------


@attrs.frozen
class ConnectionStart:
    """The server offers SASL mechanisms."""

    server_properties: Map = None
    mechanisms: Array = None
    locales: Array = None


@attrs.frozen(kw_only=True)
class ConnectionStartOk:
    """The client chooses a mechanism."""

    client_properties: Map = None
    mechanism: Str8 = None
    response: VBin32 = None
    locale: Str8 = None


@attrs.frozen
class ConnectionSecure:
    """A SASL challenge."""

    challenge: VBin32 = None


@attrs.frozen
class ConnectionSecureOk:
    """A SASL response."""

    response: VBin32 = None


@attrs.frozen(kw_only=True)
class ConnectionTune:
    """The server's limits."""

    channel_max: UInt16 = None
    max_frame_size: UInt16 = None
    heartbeat_min: UInt16 = None
    heartbeat_max: UInt16 = None


@attrs.frozen
class ConnectionTuneOk:
    """The limits that hold, none above the server's."""

    channel_max: UInt16 = None
    max_frame_size: UInt16 = None
    heartbeat: UInt16 = None


@attrs.frozen
class ConnectionOpen:
    """The client asks for a virtual host."""

    virtual_host: Str8 = None
    capabilities: Array = None
    insist: Bit = False


@attrs.frozen
class ConnectionOpenOk:
    """The connection is open."""

    known_hosts: Array = None


@attrs.frozen
class ConnectionRedirect:
    """The client is to dial another host."""

    host: Str16 = None
    known_hosts: Array = None


@attrs.frozen
class ConnectionHeartbeat:
    """A sign of life."""


@attrs.frozen
class ConnectionClose:
    """The connection is to end."""

    reply_code: UInt16 = None
    reply_text: Words8 = None


@attrs.frozen
class ConnectionCloseOk:
    """The connection has ended."""


# --- class session (2): controls ------------------------------------------------------------------


@attrs.frozen
class SessionAttach:
    """A channel is to carry a session; ``force`` takes it from another."""

    name: VBin16 = None
    force: Bit = False


@attrs.frozen
class SessionAttached:
    """The channel carries the session."""

    name: VBin16 = None


@attrs.frozen
class SessionDetach:
    """The channel is to be freed of its session."""

    name: VBin16 = None


@attrs.frozen
class SessionDetached:
    """The channel carries no session."""

    name: VBin16 = None
    code: UInt8 = None


@attrs.frozen
class SessionRequestTimeout:
    """Asks how long a detached session is kept; seconds, absent: for ever."""

    timeout: UInt32 = None


@attrs.frozen
class SessionTimeout:
    """How long a detached session is kept; seconds, absent: for ever."""

    timeout: UInt32 = None


@attrs.frozen
class SessionCommandPoint:
    """The number of the next command, and how much of it is left out."""

    command_id: UInt32 = None
    command_offset: UInt64 = None


@attrs.frozen
class SessionExpected:
    """What commands a receiver awaits; empty: the session is new to it."""

    commands: Commands = None
    fragments: VBin32 = None


@attrs.frozen
class SessionConfirmed:
    """What commands a receiver will complete whatever happens."""

    commands: Commands = None
    fragments: VBin32 = None


@attrs.frozen
class SessionCompleted:
    """What commands a receiver has completed."""

    commands: Commands = None
    timely_reply: Bit = False


@attrs.frozen
class SessionKnownCompleted:
    """What commands a sender knows to be completed."""

    commands: Commands = None


@attrs.frozen
class SessionFlush:
    """Asks for expected, confirmed or completed."""

    expected: Bit = False
    confirmed: Bit = False
    completed: Bit = False


@attrs.frozen
class SessionGap:
    """Commands of which nothing more will come."""

    commands: Commands = None


# --- class execution (3): commands ----------------------------------------------------------------


@attrs.frozen
class ExecutionSync:
    """Is complete when all before it is."""


@attrs.frozen
class ExecutionResult:
    """What a command gave: a struct of size 4, without its size."""

    command_id: UInt32 = None
    value: VBin32 = None


@attrs.frozen(kw_only=True)
class ExecutionException:
    """Why the session ends."""

    error_code: UInt16 = None
    command_id: UInt32 = None
    class_code: UInt8 = None
    command_code: UInt8 = None
    field_index: UInt8 = None
    description: Words16 = None
    error_info: Map = None


# --- class message (4): commands ------------------------------------------------------------------


@attrs.frozen
class MessageTransfer:
    """A message; header and body segments follow."""

    destination: Str8 = None
    accept_mode: UInt8 = None
    acquire_mode: UInt8 = None


@attrs.frozen
class MessageAccept:
    """Transfers are taken."""

    transfers: Commands = None


@attrs.frozen
class MessageReject:
    """Transfers are refused."""

    transfers: Commands = None
    code: UInt16 = None
    text: Words8 = None


@attrs.frozen
class MessageRelease:
    """Transfers are given back."""

    transfers: Commands = None
    set_redelivered: Bit = False


@attrs.frozen
class MessageAcquire:
    """Transfers that were sent unacquired are wanted."""

    transfers: Commands = None


@attrs.frozen
class MessageResume:
    """Asks how much of an interrupted message is there."""

    destination: Str8 = None
    resume_id: Str16 = None


@attrs.frozen(kw_only=True)
class MessageSubscribe:
    """The messages of a queue are wanted."""

    queue: Str8 = None
    destination: Str8 = None
    accept_mode: UInt8 = None
    acquire_mode: UInt8 = None
    exclusive: Bit = False
    resume_id: Str16 = None
    resume_ttl: UInt64 = None
    arguments: Map = None


@attrs.frozen
class MessageCancel:
    """A subscription is to end."""

    destination: Str8 = None


@attrs.frozen
class MessageSetFlowMode:
    """How a destination's credit is renewed."""

    destination: Str8 = None
    flow_mode: UInt8 = None


@attrs.frozen
class MessageFlow:
    """More credit; absent or 0xFFFFFFFF is infinite."""

    destination: Str8 = None
    unit: UInt8 = None
    value: UInt32 = None


@attrs.frozen
class MessageFlush:
    """The credit is to be used up, or given back."""

    destination: Str8 = None


@attrs.frozen
class MessageStop:
    """The credit is void."""

    destination: Str8 = None


# --- class tx (5): commands -----------------------------------------------------------------------


@attrs.frozen
class TxSelect:
    """The session becomes transactional."""


@attrs.frozen
class TxCommit:
    """What was transferred and accepted since the last time counts."""


@attrs.frozen
class TxRollback:
    """What was transferred and accepted since the last time is void."""


# --- class exchange (7): commands -----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ExchangeDeclare:
    """An exchange is to be there."""

    exchange: Str8 = None
    type: Str8 = None
    alternate_exchange: Str8 = None
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    arguments: Map = None


@attrs.frozen
class ExchangeDelete:
    """An exchange is to go."""

    exchange: Str8 = None
    if_unused: Bit = False


@attrs.frozen
class ExchangeQuery:
    """Asks what an exchange is."""

    name: Str8 = None


@attrs.frozen(kw_only=True)
class ExchangeBind:
    """A queue is to get what an exchange takes for a key."""

    queue: Str8 = None
    exchange: Str8 = None
    binding_key: Str8 = None
    arguments: Map = None


@attrs.frozen
class ExchangeUnbind:
    """A binding is to go."""

    queue: Str8 = None
    exchange: Str8 = None
    binding_key: Str8 = None


@attrs.frozen(kw_only=True)
class ExchangeBound:
    """Asks whether a binding is there."""

    exchange: Str8 = None
    queue: Str8 = None
    binding_key: Str8 = None
    arguments: Map = None


# --- class queue (8): commands --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class QueueDeclare:
    """A queue is to be there."""

    queue: Str8 = None
    alternate_exchange: Str8 = None
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    arguments: Map = None


@attrs.frozen
class QueueDelete:
    """A queue is to go."""

    queue: Str8 = None
    if_unused: Bit = False
    if_empty: Bit = False


@attrs.frozen
class QueuePurge:
    """What waits in a queue is to go."""

    queue: Str8 = None


@attrs.frozen
class QueueQuery:
    """Asks what a queue is."""

    queue: Str8 = None


# --- structs --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class DeliveryProperties:
    """How a message is delivered; a broker may change it."""

    discard_unroutable: Bit = False
    immediate: Bit = False
    redelivered: Bit = False
    priority: UInt8 = None
    delivery_mode: UInt8 = None
    ttl: UInt64 = None
    timestamp: DateTime = None
    expiration: DateTime = None
    exchange: Str8 = None
    routing_key: Str8 = None
    resume_id: Str16 = None
    resume_ttl: UInt64 = None


@attrs.frozen
class FragmentProperties:
    """Which part of a message an assembly is; both bits default to set."""

    first: Bit = True
    last: Bit = True
    fragment_size: UInt64 = None


@attrs.frozen
class ReplyTo:
    """Where an answer goes."""

    exchange: Str8 = None
    routing_key: Str8 = None


ReplyToField: TypeAlias = Annotated[ReplyTo | None, "reply-to"]


@attrs.frozen(kw_only=True)
class MessageProperties:
    """What a message is; nobody changes it."""

    content_length: UInt64 = None
    message_id: Uuid = None
    correlation_id: VBin16 = None
    reply_to: ReplyToField = None
    content_type: Str8 = None
    content_encoding: Str8 = None
    user_id: VBin16 = None
    app_id: VBin16 = None
    application_headers: Map = None


@attrs.frozen
class Acquired:
    """Result of acquire."""

    transfers: Commands = None


@attrs.frozen
class MessageResumeResult:
    """Result of resume."""

    offset: UInt64 = None


@attrs.frozen(kw_only=True)
class ExchangeQueryResult:
    """Result of exchange.query."""

    type: Str8 = None
    durable: Bit = False
    not_found: Bit = False
    arguments: Map = None


@attrs.frozen(kw_only=True)
class ExchangeBoundResult:
    """Result of exchange.bound: what of the question does not hold."""

    exchange_not_found: Bit = False
    queue_not_found: Bit = False
    queue_not_matched: Bit = False
    key_not_matched: Bit = False
    args_not_matched: Bit = False


@attrs.frozen(kw_only=True)
class QueueQueryResult:
    """Result of queue.query; without a queue: there is none."""

    queue: Str8 = None
    alternate_exchange: Str8 = None
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    arguments: Map = None
    message_count: UInt32 = None
    subscriber_count: UInt32 = None


# --- unions ---------------------------------------------------------------------------------------

Control: TypeAlias = (
    ConnectionStart
    | ConnectionStartOk
    | ConnectionSecure
    | ConnectionSecureOk
    | ConnectionTune
    | ConnectionTuneOk
    | ConnectionOpen
    | ConnectionOpenOk
    | ConnectionRedirect
    | ConnectionHeartbeat
    | ConnectionClose
    | ConnectionCloseOk
    | SessionAttach
    | SessionAttached
    | SessionDetach
    | SessionDetached
    | SessionRequestTimeout
    | SessionTimeout
    | SessionCommandPoint
    | SessionExpected
    | SessionConfirmed
    | SessionCompleted
    | SessionKnownCompleted
    | SessionFlush
    | SessionGap
)

Command: TypeAlias = (
    ExecutionSync
    | ExecutionResult
    | ExecutionException
    | MessageTransfer
    | MessageAccept
    | MessageReject
    | MessageRelease
    | MessageAcquire
    | MessageResume
    | MessageSubscribe
    | MessageCancel
    | MessageSetFlowMode
    | MessageFlow
    | MessageFlush
    | MessageStop
    | TxSelect
    | TxCommit
    | TxRollback
    | ExchangeDeclare
    | ExchangeDelete
    | ExchangeQuery
    | ExchangeBind
    | ExchangeUnbind
    | ExchangeBound
    | QueueDeclare
    | QueueDelete
    | QueuePurge
    | QueueQuery
)

Struct: TypeAlias = (
    DeliveryProperties
    | FragmentProperties
    | ReplyTo
    | MessageProperties
    | Acquired
    | MessageResumeResult
    | ExchangeQueryResult
    | ExchangeBoundResult
    | QueueQueryResult
)
