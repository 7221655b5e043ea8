"""The performatives as records, fields named as the specification names them (§2.7, §5.3.3).

Transfer, Disposition and Flow are created once or more per delivery, so they are slotted classes
without attrs; treat them as values like the others.
"""

import enum
from collections.abc import Mapping

import attrs

from router.model.condition import Condition
from router.model.outcome import DeliveryState
from router.model.terminus import (
    Coordinator,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)


@attrs.frozen(kw_only=True)
class Open:
    """Negotiates a connection's limits (§2.7.1).

    Attributes:
        max_frame_size: octets of the largest frame that the sender of this accepts.
        channel_max: highest channel number.
        idle_time_out: milliseconds; None or 0: none.
    """

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 0xFFFF_FFFF
    channel_max: int = 0xFFFF
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] = ()
    incoming_locales: tuple[str, ...] = ()
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[object, object] | None = None


@attrs.frozen(kw_only=True)
class Begin:
    """Begins a session on a channel (§2.7.2)."""

    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 0xFFFF_FFFF
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[object, object] | None = None


@attrs.frozen(kw_only=True)
class Attach:
    """Attaches a link to a session (§2.7.3).

    Attributes:
        role: of the end that sends this.
        unsettled: delivery-tag → state; None: unsettled, without a known state.
        initial_delivery_count: mandatory from a sender, ignored from a receiver.
        max_message_size: octets; None or 0: no limit.
    """

    name: str
    handle: int
    role: Role
    snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
    rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Mapping[bytes, DeliveryState | None] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[object, object] | None = None


@attrs.define
class Flow:
    """Updates a session's windows and, with a handle, a link's credit (§2.7.4)."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Mapping[object, object] | None = None


@attrs.define
class Transfer:
    """Carries a message or a part of one (§2.7.5).

    A further part of a delivery may omit id, tag, format and ``settled``.
    """

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: ReceiverSettleMode | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@attrs.define
class Disposition:
    """Reports the state of deliveries ``first`` to ``last``, both included (§2.7.6).

    Attributes:
        role: of the end that sends this.
        last: None if the same as ``first``.
    """

    role: Role
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@attrs.frozen
class Detach:
    """Detaches a link's end; ``closed`` ends the terminus too (§2.7.7)."""

    handle: int
    closed: bool = False
    error: Condition | None = None


@attrs.frozen
class End:
    """Ends a session (§2.7.8)."""

    error: Condition | None = None


@attrs.frozen
class Close:
    """Closes a connection (§2.7.9)."""

    error: Condition | None = None


class SaslCode(enum.IntEnum):
    """The result of a SASL exchange (§5.3.3.6)."""

    OK = 0
    AUTH = 1
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


@attrs.frozen
class SaslMechanisms:
    """The mechanisms that a server offers (§5.3.3.1)."""

    sasl_server_mechanisms: tuple[str, ...]


@attrs.frozen
class SaslInit:
    """The mechanism that a client has chosen, and its first response (§5.3.3.2)."""

    mechanism: str
    initial_response: bytes | None = attrs.field(default=None, repr=False)
    hostname: str | None = None


@attrs.frozen
class SaslChallenge:
    """A challenge from the server (§5.3.3.3)."""

    challenge: bytes = attrs.field(repr=False)


@attrs.frozen
class SaslResponse:
    """A response from the client (§5.3.3.4)."""

    response: bytes = attrs.field(repr=False)


@attrs.frozen
class SaslOutcome:
    """The result of the exchange (§5.3.3.5)."""

    code: SaslCode
    additional_data: bytes | None = attrs.field(default=None, repr=False)


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslPerformative = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
