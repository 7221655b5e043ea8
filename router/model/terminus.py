"""What a link end is attached to (§3.5), and how it settles (§2.8.1-3)."""

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from router.model.outcome import Outcome

SUBSCRIPTION: Final = "router:subscription"
"""Property of ``AttachLink``: name of the durable queue that is bound to the source, an exchange;
it outlives the link until ``DetachLink.unsubscribes``."""

STREAM_OFFSET: Final = "rabbitmq:stream-offset-spec"
"""Filter of a source: where in a stream of RabbitMQ a link begins."""

ADDRESSES: Final = "router:addresses"
"""Property of ``AttachLink`` to the anonymous terminus: the pattern of the addresses of all that is
sent on the link."""

PRIORITY: Final = "rabbitmq:priority"
"""Link property of a receiver: it gets only deliveries for which no receiver of a higher priority
has credit."""

OPEN: Final = "router:open"
"""Link property of an attach that asks for a dynamic node: other clients may receive from it."""


class Role(enum.Enum):
    """The role of a link endpoint (§2.8.1). In this program always that of our own end."""

    SENDER = "sender"
    RECEIVER = "receiver"

    @property
    def other(self) -> "Role":
        """The role of the peer's end."""
        return Role.RECEIVER if self is Role.SENDER else Role.SENDER


class SenderSettleMode(enum.IntEnum):
    """When the sender settles (§2.8.2)."""

    UNSETTLED = 0
    SETTLED = 1
    MIXED = 2


class ReceiverSettleMode(enum.IntEnum):
    """Whether the receiver settles first, or only after the sender did (§2.8.3)."""

    FIRST = 0
    SECOND = 1


class Durability(enum.IntEnum):
    """Which state of a terminus survives a restart of its container (§3.5.5)."""

    NONE = 0
    CONFIGURATION = 1
    UNSETTLED_STATE = 2


class ExpiryPolicy(enum.StrEnum):
    """When the countdown to a terminus' end begins (§3.5.6)."""

    LINK_DETACH = "link-detach"
    SESSION_END = "session-end"
    CONNECTION_CLOSE = "connection-close"
    NEVER = "never"


@attrs.frozen(kw_only=True)
class Source:
    """Where a link's messages come from (§3.5.3).

    Attributes:
        address: name of the node; None with ``dynamic`` asks the peer to make one.
        expiry_seconds: field ``timeout``: how long the terminus outlives its countdown's start.
        dynamic_node_properties: keyed by symbol, values in AMQP types, lifetime policy included.
        filters: field ``filter``, keyed by symbol, values described types as they came.
        outcomes: symbolic descriptors (``amqp:accepted:list`` …) of the outcomes that the sender
            may be sent; empty: not given.
    """

    address: str | None = None
    durability: Durability = Durability.NONE
    expiry_policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    expiry_seconds: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[object, object] | None = None
    distribution_mode: str | None = None
    filters: Mapping[object, object] | None = None
    default_outcome: Outcome | None = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Target:
    """Where a link's messages go (§3.5.4).

    Attributes:
        address: name of the node; None without ``dynamic`` is the anonymous terminus: each
            message goes where its own ``to`` says.
        expiry_seconds: as in ``Source``.
    """

    address: str | None = None
    durability: Durability = Durability.NONE
    expiry_policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    expiry_seconds: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[object, object] | None = None
    capabilities: tuple[str, ...] = ()


@attrs.frozen
class Coordinator:
    """The target of a transaction controller's link (§4.5.1)."""

    capabilities: tuple[str, ...] = ()


ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
"""Connection capability: the anonymous terminus is served."""

ALL_OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)
