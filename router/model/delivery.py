"""Deliveries as they enter and leave an engine.

These records are made once per delivery on the general path, so they are plain slotted classes;
treat them as values all the same.
"""

import enum

import attrs

from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState
from router.model.trace import Splice


class Elder(enum.IntEnum):
    """Why a message goes before all that is stored for its address; the greatest one goes first.

    A target reads in order. So of what it was sent on one link, that which it returns is older than
    what never arrived, and that is older than what had not been sent yet.

    Attributes:
        NOT: it does not.
        TAKEN_BACK: it was to be sent to a target, and was not.
        RESTORED: one of these, or of the next ones, before the last crash.
        LOST: it was sent to a target that was lost, and did not arrive.
        RETURNED: a target had it, and has returned it.
    """

    NOT = 0
    TAKEN_BACK = 1
    RESTORED = 2
    LOST = 3
    RETURNED = 4


@attrs.define(slots=True, eq=True)
class ReceivedDelivery:
    """A delivery that a peer has sent us, or the first part of one (§2.7.5).

    Attributes:
        number: the engine's number for it; commands about the delivery name it by this.
        tag: as received, or made up by the engine for protocols that have none.
        payload: the message, or its first part, in the encoding ``protocol``.
        protocol: whose encoding ``payload`` is in (1.0: annotated message sections).
        message_format: §2.8.11; 0 for AMQP 1.0 messages.
        settled: the sender wants no outcome.
        more: further parts follow as ``DeliveryContinued``.
        state: the sender's delivery state, as on a resumed delivery.
        resume: this continues a delivery of the unsettled maps (§2.6.13).
        settles_second: this delivery alone asks the receiver to settle second.
        settles_first: this delivery alone asks the receiver, who settles second, to settle first.
        address: its destination, on a link whose target is the anonymous terminus.
        ttl_milliseconds: header.ttl, None if absent.
        delivery_count: header.delivery-count: earlier failed attempts.
        key: the ledger key that an earlier hop assigned, in an annotation.
        hops: routers that it has passed, oldest first (trace annotation).
        splice: of a delivery in parts: how it is changed where it leaves; None: it is not.
    """

    number: DeliveryNumber
    tag: DeliveryTag
    payload: bytes
    protocol: Protocol = Protocol.AMQP_1_0
    message_format: int = 0
    settled: bool = False
    more: bool = False
    state: DeliveryState | None = None
    resume: bool = False
    settles_second: bool = False
    address: str | None = None
    ttl_milliseconds: int | None = None
    delivery_count: int = 0
    key: DeliveryKey | None = None
    hops: tuple[str, ...] = ()
    settles_first: bool = False
    splice: Splice | None = None


@attrs.define(slots=True, eq=True)
class OutgoingDelivery:
    """A delivery that an engine is to send, or its first part.

    The engine passes ``payload`` on unchanged if ``protocol`` is its own, and otherwise
    translates through AMQP 1.0 sections. A field that is None leaves the message as it is.

    Attributes:
        number: the core's number for it on this link; events about the delivery name it by this.
        tag: the tag to send, for protocols that have tags.
        ttl_milliseconds: the rest of header.ttl, if the header must be rewritten.
        delivery_count: header.delivery-count, if the header must be rewritten; always given for a
            delivery in parts, whose header has not been parsed yet.
        key: ledger key to pass on, if the peer is a router.
        hops: trace to pass on, if the peer is a router.
        elder: for the message store: whether it goes before all that is stored for its address.
    """

    number: DeliveryNumber
    tag: DeliveryTag
    payload: bytes
    protocol: Protocol = Protocol.AMQP_1_0
    message_format: int = 0
    settled: bool = False
    more: bool = False
    state: DeliveryState | None = None
    resume: bool = False
    address: str | None = None
    ttl_milliseconds: int | None = None
    delivery_count: int | None = None
    key: DeliveryKey | None = None
    hops: tuple[str, ...] | None = None
    elder: Elder = Elder.NOT
