"""Protocol violations of a peer, and their consequences (§2.8.15-18).

Every rule that the engine checks is a row here: the level of the consequence (the link is detached,
the session ended or the connection closed) and the error condition. ``Fault`` is raised where the
violation is found and handled by the engine, which does what the row says; it never leaves the
engine.

Where the specification leaves the level or the condition open, the choice and its reason are noted
at the row.
"""

import enum

from router.model.condition import (
    ERRANT_LINK,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_UNKNOWN_ID,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    Condition,
)


class Level(enum.Enum):
    """What a violation ends."""

    LINK = "link"
    SESSION = "session"
    CONNECTION = "connection"


class Rule(enum.Enum):
    """A rule, the level of its consequence, and the error condition for its violation."""

    FRAME_STATE = (
        Level.CONNECTION,
        ILLEGAL_STATE,
        "the frame is not permitted in this state of the connection (§2.4.6)",
    )
    OPEN_CHANNEL = (Level.CONNECTION, NOT_ALLOWED, "open comes on channel 0 (§2.4.1)")
    FRAME_TYPE = (
        Level.CONNECTION,
        FRAMING_ERROR,
        "a SASL frame comes outside of the SASL layer (§5.3.1)",
    )
    SASL_FRAME = (
        Level.CONNECTION,
        ILLEGAL_STATE,
        "the frame is not permitted in this state of the SASL exchange (§5.3.2)",
    )
    SASL_FRAME_TYPE = (
        Level.CONNECTION,
        FRAMING_ERROR,
        "only SASL frames with a body come in the SASL layer (§5.3.1)",
    )
    CHANNEL_MAX = (
        Level.CONNECTION,
        FRAMING_ERROR,
        "the channel is above channel-max (§2.7.1)",
    )
    MAX_FRAME_SIZE_SMALL = (
        Level.CONNECTION,
        INVALID_FIELD,
        "max-frame-size is at least 512 (§2.7.1)",
    )
    # §2.4.5: one that cannot support the peer's idle-time-out closes with an error explaining why.
    IDLE_TIME_OUT_SHORT = (
        Level.CONNECTION,
        NOT_IMPLEMENTED,
        "idle-time-out is shorter than this program supports (§2.4.5)",
    )
    IDLE = (
        Level.CONNECTION,
        RESOURCE_LIMIT_EXCEEDED,
        "no frame came within the idle time-out (§2.4.5)",
    )
    HANDSHAKE = (
        Level.CONNECTION,
        RESOURCE_LIMIT_EXCEEDED,
        "the open did not come in time",
    )
    # §2.5 does not say; a channel that nobody began has no session that could be ended.
    CHANNEL_UNMAPPED = (
        Level.CONNECTION,
        ILLEGAL_STATE,
        "no session has begun on the channel (§2.5.1)",
    )
    CHANNEL_IN_USE = (
        Level.CONNECTION,
        ILLEGAL_STATE,
        "a session has begun on the channel already (§2.5.1)",
    )
    REMOTE_CHANNEL = (
        Level.CONNECTION,
        INVALID_FIELD,
        "remote-channel names no session that waits for its begin (§2.5.1)",
    )
    NO_CHANNEL_LEFT = (
        Level.CONNECTION,
        NOT_ALLOWED,
        "the peer begins more sessions than its own channel-max lets us answer (§2.7.1)",
    )
    # §2.7.2: close, and framing-error, although the channel is known.
    HANDLE_MAX = (
        Level.CONNECTION,
        FRAMING_ERROR,
        "the handle is above handle-max (§2.7.2)",
    )
    WINDOW = (
        Level.SESSION,
        WINDOW_VIOLATION,
        "a transfer came into a closed incoming-window (§2.5.6)",
    )
    # §2.7.3 says both "close" and "session-error"; as a session error it ends the session.
    HANDLE_TAKEN = (
        Level.SESSION,
        HANDLE_IN_USE,
        "the handle is in use for an attached link (§2.7.3)",
    )
    HANDLE_UNKNOWN = (
        Level.SESSION,
        UNATTACHED_HANDLE,
        "the handle is in use for no attached link (§2.8.17)",
    )
    ATTACH_AFTER_ERROR = (
        Level.SESSION,
        ERRANT_LINK,
        "a link detached with an error is attached, not resumed (§2.6.5)",
    )
    # §2.6.5: input that may have been under way when our detach was sent is ignored.
    INPUT_AFTER_ERROR = (
        Level.SESSION,
        ERRANT_LINK,
        "input for a link came after its detach with an error was read (§2.6.5)",
    )
    # §2.7.2 does not say; without a handle there is no attach or detach that could refuse the link.
    NO_HANDLE_LEFT = (
        Level.SESSION,
        NOT_ALLOWED,
        "the peer attaches more links than its own handle-max lets us answer (§2.7.2)",
    )
    FLOW_FIELDS = (
        Level.SESSION,
        INVALID_FIELD,
        "fields of a link's flow need a handle (§2.7.4)",
    )
    DELIVERY_ID = (
        Level.SESSION,
        INVALID_FIELD,
        "delivery-id is mandatory at the first transfer and counts by one (§2.6.12, §2.7.5)",
    )
    DISPOSITION_RANGE = (
        Level.SESSION,
        INVALID_FIELD,
        "last comes before first (§2.7.6)",
    )
    TRANSFER_ROLE = (
        Level.LINK,
        NOT_ALLOWED,
        "a transfer came on a link where the peer receives (§2.6)",
    )
    INITIAL_DELIVERY_COUNT = (
        Level.LINK,
        INVALID_FIELD,
        "initial-delivery-count is mandatory from a sender (§2.7.3)",
    )
    DELIVERY_TAG = (
        Level.LINK,
        INVALID_FIELD,
        "delivery-tag is mandatory at the first transfer (§2.7.5)",
    )
    CONTINUATION = (
        Level.LINK,
        INVALID_FIELD,
        "delivery-id, delivery-tag and message-format of a delivery do not change (§2.7.5)",
    )
    SETTLED_MODE = (
        Level.LINK,
        INVALID_FIELD,
        "settled contradicts the link's snd-settle-mode (§2.7.5)",
    )
    RECEIVER_MODE = (
        Level.LINK,
        INVALID_FIELD,
        "rcv-settle-mode second on a link of mode first (§2.7.5)",
    )
    TRANSFER_LIMIT = (
        Level.LINK,
        TRANSFER_LIMIT_EXCEEDED,
        "a delivery came without credit (§2.6.7)",
    )
    MESSAGE_SIZE = (
        Level.LINK,
        MESSAGE_SIZE_EXCEEDED,
        "the message exceeds max-message-size (§2.7.3)",
    )
    # §4.5.8; a disposition names no link, so one that names a transaction ends its session.
    TRANSACTION = (
        Level.LINK,
        TRANSACTION_UNKNOWN_ID,
        "a state names a transaction, and none was declared here (§4.4)",
    )
    INCOMPLETE_UNSETTLED = (
        Level.LINK,
        NOT_ALLOWED,
        "a new delivery came although our unsettled map was incomplete (§2.7.3)",
    )

    @property
    def level(self) -> Level:
        """What a violation of the rule ends."""
        return self.value[0]

    @property
    def condition(self) -> str:
        """The error condition for a violation."""
        return self.value[1]

    @property
    def phrase(self) -> str:
        """The rule in one phrase."""
        return self.value[2]


class Fault(Exception):  # noqa: N818  it is the peer's, no error here
    """A peer has violated a rule.

    Attributes:
        rule: the rule.
        condition: the error sent to the peer.
        link: the link endpoint, if the level is the link's.
    """

    def __init__(self, rule: Rule, detail: str = "", link: object = None) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.condition = Condition(
            rule.condition, f"{rule.phrase}: {detail}" if detail else rule.phrase
        )
        self.link = link
