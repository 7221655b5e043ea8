"""Interfaces that the core is given: the journal's writer, message ids, the encoding of states."""

from collections.abc import Callable, Sequence
from typing import Final
from typing import Protocol as Interface

from router.journal.keys import NO_LINK, LinkKey
from router.journal.record import (
    NO_TTL,
    GuaranteeCode,
    LinkDescription,
    OutcomeCode,
    RecordFlag,
    Resolution,
)
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey
from router.model.outcome import Accepted, DeliveryState, Modified, Rejected, Released
from router.model.trace import Hop, Joined
from router.routes.route import Guarantee

Identify = Callable[[Protocol, bytes, str], bytes | None]
"""Returns the id that a payload has as ``message-id`` or as a property of that name, if any."""

GiveId = Callable[[Protocol, bytes, str, bytes], "tuple[Protocol, bytes] | None"]
"""Adds an id under a name to a payload without one; returns encoding and payload, or None."""

JoinTrace = Callable[[Protocol, bytes, bytes, bool, bool], Joined | None]
"""Has the hop with this identity join a message's trace: encoding, payload, identity, whether it is
traced whatever its sender says, whether it is whole."""

EncodeState = Callable[[DeliveryState], bytes]
"""Returns a state in AMQP 1.0's encoding."""


class Records(Interface):
    """The methods of ``router.journal.writer.RecordWriter`` that the core calls.

    Each returns the sequence number of the last record that it appended.

    Attributes:
        incarnation: number of this life of the worker.
    """

    @property
    def incarnation(self) -> int:
        """Number of this life of the worker."""

    def received(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        tag: bytes,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        payload: bytes | memoryview | None = None,
        message_octets: int = 0,
        message_format: int = 0,
        delivery_count: int = 0,
        ttl_milliseconds: int = NO_TTL,
    ) -> int:
        """Records a received delivery, or its first part."""

    def received_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        payloads: Sequence[bytes],
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        is_held: bool = True,
    ) -> int:
        """Records complete received deliveries without optional fields."""

    def traced(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        hop: Hop,
        *,
        guarantee: int = 0,
        protocol: int = 0,
        flags: int = 0,
        address: str = "",
        message_octets: int = 0,
    ) -> int:
        """Records that a delivery that comes now is part of a trace."""

    def part(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        payload: bytes | memoryview,
        *,
        more: bool,
        offset: int,
    ) -> int:
        """Records a further received part."""

    def sent_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        tags: Sequence[bytes],
        *,
        guarantee: int = 0,
        flags: int = 0,
    ) -> int:
        """Records deliveries that are sent."""

    def outcome(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        outcome: int,
        *,
        flags: int = 0,
        state: bytes = b"",
    ) -> int:
        """Records an outcome that was received, or decided here."""

    def outcome_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        outcome: int,
        *,
        flags: int = 0,
        state: bytes = b"",
    ) -> int:
        """Records one outcome of several deliveries."""

    def settled(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
    ) -> int:
        """Records that a delivery is settled with the receiver, or with the sender."""

    def settled_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        *,
        flags: int = 0,
    ) -> int:
        """Records that deliveries are settled with the receiver, or with the sender."""

    def in_doubt(self, time_ns: int, key: DeliveryKey, incoming: LinkKey, outgoing: LinkKey) -> int:
        """Records that the connection was lost between the transfer and the outcome."""

    def resolved(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        resolution: Resolution,
        *,
        by_person: bool = False,
        is_unsent: bool = False,
    ) -> int:
        """Records how a delivery in doubt was resolved."""

    def gap(self, time_ns: int, count: int) -> int:
        """Records how many deliveries went unrecorded."""

    def numbers(self, time_ns: int, epoch: int, limit: int) -> int:
        """Records the limit below which our attaches may use numbers of an epoch."""

    def link_attached(self, time_ns: int, link: LinkDescription, *, flags: int = 0) -> int:
        """Records that a link is attached."""

    def link_suspended(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """Records that a link is suspended: its terminus is kept."""

    def link_expired(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """Records that a terminus has ended."""


GUARANTEE_CODES: Final = {
    Guarantee.AT_MOST_ONCE: int(GuaranteeCode.AT_MOST_ONCE),
    Guarantee.AT_LEAST_ONCE: int(GuaranteeCode.AT_LEAST_ONCE),
    Guarantee.EXACTLY_ONCE: int(GuaranteeCode.EXACTLY_ONCE),
}


def outcome_fields(state: DeliveryState | None, encode: EncodeState) -> tuple[int, int, bytes]:
    """Returns code, flags and, where these are not enough, octets of an outcome's record."""
    match state:
        case None:
            return OutcomeCode.NONE, 0, b""
        case Accepted():
            return OutcomeCode.ACCEPTED, 0, b""
        case Released():
            return OutcomeCode.RELEASED, 0, b""
        case Rejected(error=error):
            octets = b"" if error is None else encode(state)
            return OutcomeCode.REJECTED, 0, octets
        case Modified():
            flags = RecordFlag.DELIVERY_FAILED if state.delivery_failed else 0
            if state.undeliverable_here:
                flags |= RecordFlag.UNDELIVERABLE_HERE
            octets = encode(state) if state.message_annotations else b""
            return OutcomeCode.MODIFIED, flags, octets
        case _:
            return OutcomeCode.UNKNOWN, 0, encode(state)


def no_id(protocol: Protocol, payload: bytes, name: str) -> bytes | None:
    """Returns None: stands in where no ids are read."""
    return None


def no_change(
    protocol: Protocol, payload: bytes, name: str, key: bytes
) -> tuple[Protocol, bytes] | None:
    """Returns None: stands in where no ids are added."""
    return None


def no_trace(
    protocol: Protocol, payload: bytes, identity: bytes, always: bool, is_whole: bool
) -> Joined | None:
    """Returns None: stands in where no trace is joined."""
    return None


def no_state(state: DeliveryState) -> bytes:
    """Returns no octets: stands in where no states are encoded."""
    return b""
