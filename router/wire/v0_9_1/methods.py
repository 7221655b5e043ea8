"""All methods as records (0-9-1 §1.4-1.8), RabbitMQ's extensions among them.

A record's fields are in wire order and carry their wire type in their annotation: the records
are half of the table that drives the codec, ``router.wire.v0_9_1.codec``, which has the numbers.
"""

from typing import Annotated, TypeAlias

import attrs

from router.wire.v0_9_1.types import Table

Bit: TypeAlias = Annotated[bool, "bit"]
Octet: TypeAlias = Annotated[int, "octet"]
Short: TypeAlias = Annotated[int, "short"]
Long: TypeAlias = Annotated[int, "long"]
LongLong: TypeAlias = Annotated[int, "longlong"]
ShortStr: TypeAlias = Annotated[str, "shortstr"]
Words: TypeAlias = Annotated[str, "words"]
LongStr: TypeAlias = Annotated[bytes, "longstr"]
FieldTable: TypeAlias = Annotated[Table, "table"]


@attrs.frozen
class OtherMethod:
    """Base of records that only another version of the protocol has."""


# --- class connection (10) ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ConnectionStart:
    """The server names the protocol's version and offers SASL mechanisms."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable = attrs.field(factory=dict)
    mechanisms: LongStr = b"PLAIN"
    locales: LongStr = b"en_US"


@attrs.frozen(kw_only=True)
class ConnectionStartOk:
    """The client chooses a mechanism."""

    client_properties: FieldTable = attrs.field(factory=dict)
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


@attrs.frozen
class ConnectionSecure:
    """A SASL challenge."""

    challenge: LongStr = b""


@attrs.frozen
class ConnectionSecureOk:
    """A SASL response."""

    response: LongStr = b""


@attrs.frozen
class ConnectionTune:
    """The server's limits; 0 is no limit, and no heartbeat."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@attrs.frozen
class ConnectionTuneOk:
    """The limits that hold, none above the server's."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@attrs.frozen
class ConnectionOpen:
    """The client asks for a virtual host."""

    virtual_host: ShortStr = "/"
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


@attrs.frozen
class ConnectionOpenOk:
    """The virtual host is open."""

    reserved_1: ShortStr = ""


@attrs.frozen(kw_only=True)
class ConnectionClose:
    """The connection ends; with the method at fault if one is."""

    reply_code: Short = 200
    reply_text: Words = ""
    class_id: Short = 0
    method_id: Short = 0


@attrs.frozen
class ConnectionCloseOk:
    """The connection has ended."""


@attrs.frozen
class ConnectionRedirect:
    """The client is to go elsewhere (0-8 and 0-9)."""

    host: ShortStr = ""
    known_hosts: ShortStr = ""


@attrs.frozen
class ConnectionBlocked:
    """The server reads no more publishes for now (RabbitMQ)."""

    reason: Words = ""


@attrs.frozen
class ConnectionUnblocked:
    """The server reads publishes again (RabbitMQ)."""


@attrs.frozen
class ConnectionUpdateSecret:
    """The client renews the credential it came with (RabbitMQ)."""

    new_secret: LongStr = b""
    reason: Words = ""


@attrs.frozen
class ConnectionUpdateSecretOk:
    """The new credential holds (RabbitMQ)."""


# --- class channel (20) ---------------------------------------------------------------------------


@attrs.frozen
class ChannelOpen:
    """The client opens a channel."""

    reserved_1: ShortStr = ""


@attrs.frozen
class ChannelOpenOk:
    """The channel is open."""

    reserved_1: LongStr = b""


@attrs.frozen
class ChannelFlow:
    """The peer is to stop or resume sending content."""

    active: Bit = True


@attrs.frozen
class ChannelFlowOk:
    """The wish is known."""

    active: Bit = True


@attrs.frozen(kw_only=True)
class ChannelClose:
    """The channel ends; with the method at fault if one is."""

    reply_code: Short = 200
    reply_text: Words = ""
    class_id: Short = 0
    method_id: Short = 0


@attrs.frozen
class ChannelCloseOk:
    """The channel has ended and its number is free."""


# --- class access (30), gone from 0-9-1 and still answered ----------------------------------------


@attrs.frozen(kw_only=True)
class AccessRequest:
    """The client asks for a ticket (0-8 and 0-9)."""

    realm: ShortStr = ""
    exclusive: Bit = False
    passive: Bit = False
    active: Bit = False
    write: Bit = False
    read: Bit = False


@attrs.frozen
class AccessRequestOk:
    """A ticket, which nothing looks at."""

    ticket: Short = 1


# --- class exchange (40) --------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ExchangeDeclare:
    """Makes an exchange, or checks that it is there."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class ExchangeDeclareOk:
    """The exchange is there."""


@attrs.frozen(kw_only=True)
class ExchangeDelete:
    """Deletes an exchange."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    no_wait: Bit = False


@attrs.frozen
class ExchangeDeleteOk:
    """The exchange is gone."""


@attrs.frozen(kw_only=True)
class ExchangeBind:
    """Binds an exchange to another (RabbitMQ)."""

    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class ExchangeBindOk:
    """The exchanges are bound (RabbitMQ)."""


@attrs.frozen(kw_only=True)
class ExchangeUnbind:
    """Unbinds an exchange from another (RabbitMQ)."""

    reserved_1: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class ExchangeUnbindOk:
    """The exchanges are bound no more (RabbitMQ)."""


# --- class queue (50) -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class QueueDeclare:
    """Makes a queue, or checks that it is there."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class QueueDeclareOk:
    """The queue is there, with its name."""

    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@attrs.frozen(kw_only=True)
class QueueBind:
    """Binds a queue to an exchange."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class QueueBindOk:
    """The queue is bound."""


@attrs.frozen(kw_only=True)
class QueueUnbind:
    """Unbinds a queue from an exchange."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class QueueUnbindOk:
    """The queue is bound no more."""


@attrs.frozen(kw_only=True)
class QueuePurge:
    """Removes what waits in a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    no_wait: Bit = False


@attrs.frozen
class QueuePurgeOk:
    """The queue is empty."""

    message_count: Long = 0


@attrs.frozen(kw_only=True)
class QueueDelete:
    """Deletes a queue."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@attrs.frozen
class QueueDeleteOk:
    """The queue is gone."""

    message_count: Long = 0


# --- class basic (60) -----------------------------------------------------------------------------


@attrs.frozen
class BasicQos:
    """Bounds what is delivered and not yet acknowledged; RabbitMQ's sense of ``all_consumers``."""

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    all_consumers: Bit = False


@attrs.frozen
class BasicQosOk:
    """The bounds hold."""


@attrs.frozen(kw_only=True)
class BasicConsume:
    """Starts a consumer."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = attrs.field(factory=dict)


@attrs.frozen
class BasicConsumeOk:
    """The consumer is there, with its tag."""

    consumer_tag: ShortStr = ""


@attrs.frozen
class BasicCancel:
    """Ends a consumer; from the server: it has ended (RabbitMQ)."""

    consumer_tag: ShortStr = ""
    no_wait: Bit = False


@attrs.frozen
class BasicCancelOk:
    """The consumer has ended."""

    consumer_tag: ShortStr = ""


@attrs.frozen(kw_only=True)
class BasicPublish:
    """A message for an exchange; content follows."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@attrs.frozen(kw_only=True)
class BasicReturn:
    """A message that could not be routed; content follows."""

    reply_code: Short = 312
    reply_text: Words = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@attrs.frozen(kw_only=True)
class BasicDeliver:
    """A message for a consumer; content follows."""

    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@attrs.frozen(kw_only=True)
class BasicGet:
    """Asks a queue for one message."""

    reserved_1: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@attrs.frozen(kw_only=True)
class BasicGetOk:
    """The message asked for; content follows."""

    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


@attrs.frozen
class BasicGetEmpty:
    """No message waits."""

    reserved_1: ShortStr = ""


@attrs.frozen
class BasicAck:
    """Deliveries are done; from the server: publishes are (RabbitMQ)."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


@attrs.frozen
class BasicReject:
    """A delivery is not taken."""

    delivery_tag: LongLong = 0
    requeue: Bit = True


@attrs.frozen
class BasicNack:
    """Deliveries are not taken; from the server: publishes are not (RabbitMQ)."""

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@attrs.frozen
class BasicRecoverAsync:
    """As recover, without an answer."""

    requeue: Bit = True


@attrs.frozen
class BasicRecover:
    """Deliver again, or requeue, what is not acknowledged."""

    requeue: Bit = True


@attrs.frozen
class BasicRecoverOk:
    """The deliveries come again."""


# --- class tx (90) and class confirm (85, RabbitMQ) -----------------------------------------------


@attrs.frozen
class TxSelect:
    """The channel becomes transactional."""


@attrs.frozen
class TxSelectOk:
    """The channel is transactional."""


@attrs.frozen
class TxCommit:
    """The transaction's publishes and acknowledgments are to count."""


@attrs.frozen
class TxCommitOk:
    """The transaction counts; the next has begun."""


@attrs.frozen
class TxRollback:
    """The transaction's publishes and acknowledgments are void."""


@attrs.frozen
class TxRollbackOk:
    """The transaction is void; the next has begun."""


@attrs.frozen
class ConfirmSelect:
    """The channel confirms its publishes."""

    no_wait: Bit = False


@attrs.frozen
class ConfirmSelectOk:
    """The channel confirms."""


Method: TypeAlias = (
    ConnectionStart
    | ConnectionStartOk
    | ConnectionSecure
    | ConnectionSecureOk
    | ConnectionTune
    | ConnectionTuneOk
    | ConnectionOpen
    | ConnectionOpenOk
    | ConnectionClose
    | ConnectionCloseOk
    | ConnectionRedirect
    | ConnectionBlocked
    | ConnectionUnblocked
    | ConnectionUpdateSecret
    | ConnectionUpdateSecretOk
    | ChannelOpen
    | ChannelOpenOk
    | ChannelFlow
    | ChannelFlowOk
    | ChannelClose
    | ChannelCloseOk
    | AccessRequest
    | AccessRequestOk
    | ExchangeDeclare
    | ExchangeDeclareOk
    | ExchangeDelete
    | ExchangeDeleteOk
    | ExchangeBind
    | ExchangeBindOk
    | ExchangeUnbind
    | ExchangeUnbindOk
    | QueueDeclare
    | QueueDeclareOk
    | QueueBind
    | QueueBindOk
    | QueueUnbind
    | QueueUnbindOk
    | QueuePurge
    | QueuePurgeOk
    | QueueDelete
    | QueueDeleteOk
    | BasicQos
    | BasicQosOk
    | BasicConsume
    | BasicConsumeOk
    | BasicCancel
    | BasicCancelOk
    | BasicPublish
    | BasicReturn
    | BasicDeliver
    | BasicGet
    | BasicGetOk
    | BasicGetEmpty
    | BasicAck
    | BasicReject
    | BasicNack
    | BasicRecoverAsync
    | BasicRecover
    | BasicRecoverOk
    | TxSelect
    | TxSelectOk
    | TxCommit
    | TxCommitOk
    | TxRollback
    | TxRollbackOk
    | ConfirmSelect
    | ConfirmSelectOk
    | OtherMethod
)
