"""Controls, commands and structs as records (0-10, classes connection to queue).

A record's fields are in wire order and carry their type in their annotation: the records are half
of the codec's table, ``router.wire.v0_10.codec``, which has the numbers. None is an absent field; a
``Bit`` has no octets but its packing flag.
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
    """The negotiated limits, none above the server's."""

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
    """The client is to connect to another host."""

    host: Str16 = None
    known_hosts: Array = None


@attrs.frozen
class ConnectionHeartbeat:
    """A heartbeat."""


@attrs.frozen
class ConnectionClose:
    """Closes the connection."""

    reply_code: UInt16 = None
    reply_text: Words8 = None


@attrs.frozen
class ConnectionCloseOk:
    """The connection has ended."""


# --- class session (2): controls ------------------------------------------------------------------


@attrs.frozen
class SessionAttach:
    """Attaches a session to a channel; ``force`` takes it from another."""

    name: VBin16 = None
    force: Bit = False


@attrs.frozen
class SessionAttached:
    """The session is attached."""

    name: VBin16 = None


@attrs.frozen
class SessionDetach:
    """Detaches a session from its channel."""

    name: VBin16 = None


@attrs.frozen
class SessionDetached:
    """The session is detached."""

    name: VBin16 = None
    code: UInt8 = None


@attrs.frozen
class SessionRequestTimeout:
    """Requests how long a detached session is kept; seconds, absent: for ever."""

    timeout: UInt32 = None


@attrs.frozen
class SessionTimeout:
    """How long a detached session is kept; seconds, absent: for ever."""

    timeout: UInt32 = None


@attrs.frozen
class SessionCommandPoint:
    """The number of the next command, and how much of it is omitted."""

    command_id: UInt32 = None
    command_offset: UInt64 = None


@attrs.frozen
class SessionExpected:
    """The commands that a receiver expects; empty: the session is new to it."""

    commands: Commands = None
    fragments: VBin32 = None


@attrs.frozen
class SessionConfirmed:
    """The commands that a receiver will complete in any case."""

    commands: Commands = None
    fragments: VBin32 = None


@attrs.frozen
class SessionCompleted:
    """The commands that a receiver has completed."""

    commands: Commands = None
    timely_reply: Bit = False


@attrs.frozen
class SessionKnownCompleted:
    """The commands that a sender knows to be completed."""

    commands: Commands = None


@attrs.frozen
class SessionFlush:
    """Requests expected, confirmed or completed."""

    expected: Bit = False
    confirmed: Bit = False
    completed: Bit = False


@attrs.frozen
class SessionGap:
    """Commands that will not be continued."""

    commands: Commands = None


# --- class execution (3): commands ----------------------------------------------------------------


@attrs.frozen
class ExecutionSync:
    """Completes when all earlier commands have."""


@attrs.frozen
class ExecutionResult:
    """The result of a command: a struct of size 4, without its size."""

    command_id: UInt32 = None
    value: VBin32 = None


@attrs.frozen(kw_only=True)
class ExecutionException:
    """The error that ends the session."""

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
    """Transfers a message; header and body segments follow."""

    destination: Str8 = None
    accept_mode: UInt8 = None
    acquire_mode: UInt8 = None


@attrs.frozen
class MessageAccept:
    """Accepts transfers."""

    transfers: Commands = None


@attrs.frozen
class MessageReject:
    """Rejects transfers."""

    transfers: Commands = None
    code: UInt16 = None
    text: Words8 = None


@attrs.frozen
class MessageRelease:
    """Releases transfers."""

    transfers: Commands = None
    set_redelivered: Bit = False


@attrs.frozen
class MessageAcquire:
    """Acquires transfers that were sent unacquired."""

    transfers: Commands = None


@attrs.frozen
class MessageResume:
    """Asks how much of an interrupted message is present."""

    destination: Str8 = None
    resume_id: Str16 = None


@attrs.frozen(kw_only=True)
class MessageSubscribe:
    """Subscribes to a queue."""

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
    """Cancels a subscription."""

    destination: Str8 = None


@attrs.frozen
class MessageSetFlowMode:
    """Sets how a destination's credit is renewed."""

    destination: Str8 = None
    flow_mode: UInt8 = None


@attrs.frozen
class MessageFlow:
    """Adds credit; absent or 0xFFFFFFFF is infinite."""

    destination: Str8 = None
    unit: UInt8 = None
    value: UInt32 = None


@attrs.frozen
class MessageFlush:
    """Requests that credit is used up or returned."""

    destination: Str8 = None


@attrs.frozen
class MessageStop:
    """Revokes all credit."""

    destination: Str8 = None


# --- class tx (5): commands -----------------------------------------------------------------------


@attrs.frozen
class TxSelect:
    """Makes the session transactional."""


@attrs.frozen
class TxCommit:
    """Commits the transaction's transfers and accepts."""


@attrs.frozen
class TxRollback:
    """Rolls the transaction's transfers and accepts back."""


# --- class exchange (7): commands -----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ExchangeDeclare:
    """Declares an exchange."""

    exchange: Str8 = None
    type: Str8 = None
    alternate_exchange: Str8 = None
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    arguments: Map = None


@attrs.frozen
class ExchangeDelete:
    """Deletes an exchange."""

    exchange: Str8 = None
    if_unused: Bit = False


@attrs.frozen
class ExchangeQuery:
    """Queries an exchange."""

    name: Str8 = None


@attrs.frozen(kw_only=True)
class ExchangeBind:
    """Binds a queue to an exchange."""

    queue: Str8 = None
    exchange: Str8 = None
    binding_key: Str8 = None
    arguments: Map = None


@attrs.frozen
class ExchangeUnbind:
    """Removes a binding."""

    queue: Str8 = None
    exchange: Str8 = None
    binding_key: Str8 = None


@attrs.frozen(kw_only=True)
class ExchangeBound:
    """Asks whether a binding exists."""

    exchange: Str8 = None
    queue: Str8 = None
    binding_key: Str8 = None
    arguments: Map = None


# --- class queue (8): commands --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class QueueDeclare:
    """Declares a queue."""

    queue: Str8 = None
    alternate_exchange: Str8 = None
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    arguments: Map = None


@attrs.frozen
class QueueDelete:
    """Deletes a queue."""

    queue: Str8 = None
    if_unused: Bit = False
    if_empty: Bit = False


@attrs.frozen
class QueuePurge:
    """Removes the waiting messages of a queue."""

    queue: Str8 = None


@attrs.frozen
class QueueQuery:
    """Queries a queue."""

    queue: Str8 = None


# --- structs --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class DeliveryProperties:
    """Delivery properties of a message; a broker may change them."""

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
    """The part of a message that an assembly is; both bits default to set."""

    first: Bit = True
    last: Bit = True
    fragment_size: UInt64 = None


@attrs.frozen
class ReplyTo:
    """The address for replies."""

    exchange: Str8 = None
    routing_key: Str8 = None


ReplyToField: TypeAlias = Annotated[ReplyTo | None, "reply-to"]


@attrs.frozen(kw_only=True)
class MessageProperties:
    """Properties of a message; nobody changes them."""

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
    """Result of exchange.bound: the parts of the question that do not hold."""

    exchange_not_found: Bit = False
    queue_not_found: Bit = False
    queue_not_matched: Bit = False
    key_not_matched: Bit = False
    args_not_matched: Bit = False


@attrs.frozen(kw_only=True)
class QueueQueryResult:
    """Result of queue.query; without a queue: it does not exist."""

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
