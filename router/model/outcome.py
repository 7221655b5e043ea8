"""Delivery states and outcomes (§3.4), and the coordinator's (§4.5)."""

from collections.abc import Mapping
from typing import Final

import attrs

from router.model.condition import Condition


@attrs.frozen
class Received:
    """How much the receiver has received; a resuming sender continues from here (§3.4.1).

    Attributes:
        section_number: section of the message, counted from 0.
        section_offset: first octet of that section not received.
    """

    section_number: int
    section_offset: int


@attrs.frozen
class Accepted:
    """The receiver has taken the message (§3.4.2)."""


@attrs.frozen
class Rejected:
    """The message is invalid for the receiver (§3.4.3)."""

    error: Condition | None = None


@attrs.frozen
class Released:
    """The message was not and will not be acted upon (§3.4.4)."""


@attrs.frozen
class Modified:
    """Released, with changes for the next attempt (§3.4.5)."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Mapping[object, object] | None = None


@attrs.frozen
class Declared:
    """A transaction was begun (§4.5.5)."""

    txn_id: bytes


@attrs.frozen
class TransactionalState:
    """A state that counts only when its transaction commits (§4.5.8)."""

    txn_id: bytes
    outcome: "Outcome | None" = None


@attrs.frozen
class UnknownState:
    """A state of a type that this program does not know, passed on octet for octet.

    Attributes:
        octets: the whole encoded value, constructor included, in AMQP 1.0's encoding.
    """

    octets: bytes


Outcome = Accepted | Rejected | Released | Modified
DeliveryState = (
    Received
    | Accepted
    | Rejected
    | Released
    | Modified
    | Declared
    | TransactionalState
    | UnknownState
)

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
REJECTED: Final = Rejected()
MODIFIED_FAILED: Final = Modified(delivery_failed=True)
MODIFIED_UNDELIVERABLE: Final = Modified(undeliverable_here=True)

UNSENT: Final = Modified(message_annotations={"router:unsent": True})
"""Between workers and routers: a delivery was sent to no receiver; it is queued again, and no
attempt is counted."""


def may_go_on(state: DeliveryState | None) -> bool:
    """Returns whether a delivery with this outcome may be sent to another receiver (§3.4.4-5).

    Changes of the message that ``modified`` asks for are left to the sender.
    """
    match state:
        case Released():
            return True
        case Modified(message_annotations=annotations):
            return not annotations
        case _:
            return False


def is_outcome(state: DeliveryState | None) -> bool:
    """Returns whether ``state`` is terminal (§3.4); transactional: if it holds an outcome."""
    match state:
        case Accepted() | Rejected() | Released() | Modified() | Declared():
            return True
        case TransactionalState(outcome=outcome):
            return outcome is not None
        case _:
            return False
