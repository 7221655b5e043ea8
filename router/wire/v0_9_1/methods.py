"""All methods as records (0-9-1 §1.4-1.8), with RabbitMQ's extensions.

A record's fields are in wire order and carry their wire type in their annotation: the records are
half of the codec's table, ``router.wire.v0_9_1.codec``, which has the numbers.
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
    """The negotiated limits, none above the server's."""

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
    """The client is to connect elsewhere (0-8 and 0-9)."""

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
    """The client renews its credential (RabbitMQ)."""

    new_secret: LongStr = b""
    reason: Words = ""


@attrs.frozen
class ConnectionUpdateSecretOk:
    """The new credential is accepted (RabbitMQ)."""


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
    """Acknowledges channel.flow."""

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
    """A ticket, which is ignored."""

    ticket: Short = 1


# --- class exchange (40) --------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ExchangeDeclare:
    """Declares an exchange, or checks that it exists."""

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
    """The exchange exists."""


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
    """Declares a queue, or checks that it exists."""

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
    """The queue exists; with its name."""

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
    """Removes the waiting messages of a queue."""

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
    """Limits unacknowledged deliveries; ``all_consumers`` as RabbitMQ defines it."""

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    all_consumers: Bit = False


@attrs.frozen
class BasicQosOk:
    """The limits are in effect."""


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
    """The consumer is started; with its tag."""

    consumer_tag: ShortStr = ""


@attrs.frozen
class BasicCancel:
    """Cancels a consumer; from the server: it is cancelled (RabbitMQ)."""

    consumer_tag: ShortStr = ""
    no_wait: Bit = False


@attrs.frozen
class BasicCancelOk:
    """The consumer is cancelled."""

    consumer_tag: ShortStr = ""


@attrs.frozen(kw_only=True)
class BasicPublish:
    """Publishes a message to an exchange; content follows."""

    reserved_1: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@attrs.frozen(kw_only=True)
class BasicReturn:
    """Returns a message that could not be routed; content follows."""

    reply_code: Short = 312
    reply_text: Words = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@attrs.frozen(kw_only=True)
class BasicDeliver:
    """Delivers a message to a consumer; content follows."""

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
    """No message is available."""

    reserved_1: ShortStr = ""


@attrs.frozen
class BasicAck:
    """Acknowledges deliveries; from the server: confirms publishes (RabbitMQ)."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


@attrs.frozen
class BasicReject:
    """Rejects a delivery."""

    delivery_tag: LongLong = 0
    requeue: Bit = True


@attrs.frozen
class BasicNack:
    """Rejects deliveries; from the server: publishes (RabbitMQ)."""

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@attrs.frozen
class BasicRecoverAsync:
    """Recover, without an answer."""

    requeue: Bit = True


@attrs.frozen
class BasicRecover:
    """Redelivers, or requeues, unacknowledged deliveries."""

    requeue: Bit = True


@attrs.frozen
class BasicRecoverOk:
    """The deliveries are redelivered."""


# --- class tx (90) and class confirm (85, RabbitMQ) -----------------------------------------------


@attrs.frozen
class TxSelect:
    """Makes the channel transactional."""


@attrs.frozen
class TxSelectOk:
    """The channel is transactional."""


@attrs.frozen
class TxCommit:
    """Commits the transaction's publishes and acknowledgments."""


@attrs.frozen
class TxCommitOk:
    """The transaction is committed; the next has begun."""


@attrs.frozen
class TxRollback:
    """Rolls the transaction's publishes and acknowledgments back."""


@attrs.frozen
class TxRollbackOk:
    """The transaction is rolled back; the next has begun."""


@attrs.frozen
class ConfirmSelect:
    """Enables confirms of the channel's publishes."""

    no_wait: Bit = False


@attrs.frozen
class ConfirmSelectOk:
    """Confirms are enabled."""


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
