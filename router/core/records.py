"""What the core asks of the journal, of payloads and of states: given to it, none of it its own."""

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
from router.routes.route import Guarantee

Identify = Callable[[Protocol, bytes, str], bytes | None]
"""Returns the id that a payload has as ``message-id`` or as a property of that name, if any."""

GiveId = Callable[[Protocol, bytes, str, bytes], "tuple[Protocol, bytes] | None"]
"""Puts an id under a name into a payload that has none; gives encoding and payload, or None."""

EncodeState = Callable[[DeliveryState], bytes]
"""Returns a state in AMQP 1.0's encoding."""


class Records(Interface):
    """What is asked of ``router.journal.writer.RecordWriter``.

    All methods give the sequence number of the last record that they appended.

    Attributes:
        incarnation: which life of the worker this is.
    """

    @property
    def incarnation(self) -> int:
        """Which life of the worker this is."""

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
        """A delivery, or its first part, came in."""

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
        """Whole deliveries came in, with nothing unusual about them."""

    def part(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        payload: bytes | memoryview,
        *,
        more: bool,
    ) -> int:
        """Another part came in."""

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
        """Deliveries go out."""

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
        """An outcome was learned, or decided here."""

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
        """One outcome of several deliveries was learned."""

    def settled(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey = NO_LINK,
        outcome: int = 0,
    ) -> int:
        """A delivery is settled with the receiver, or with the sender."""

    def settled_run(
        self,
        time_ns: int,
        incoming: LinkKey,
        outgoing: LinkKey,
        keys: Sequence[DeliveryKey],
        *,
        flags: int = 0,
    ) -> int:
        """Deliveries are settled with the receiver, or with the sender."""

    def in_doubt(self, time_ns: int, key: DeliveryKey, incoming: LinkKey, outgoing: LinkKey) -> int:
        """The connection was lost after the transfer and before an outcome."""

    def resolved(
        self,
        time_ns: int,
        key: DeliveryKey,
        incoming: LinkKey,
        outgoing: LinkKey,
        resolution: Resolution,
        *,
        by_person: bool = False,
    ) -> int:
        """The doubt has been ended."""

    def gap(self, time_ns: int, count: int) -> int:
        """Records how many deliveries went unrecorded."""

    def numbers(self, time_ns: int, epoch: int, limit: int) -> int:
        """Attaches of ours may have numbers of an epoch below a limit."""

    def link_attached(self, time_ns: int, link: LinkDescription, *, flags: int = 0) -> int:
        """A link is attached."""

    def link_suspended(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """A link keeps its terminus."""

    def link_expired(
        self, time_ns: int, incoming: LinkKey = NO_LINK, outgoing: LinkKey = NO_LINK
    ) -> int:
        """A terminus is gone."""


GUARANTEE_CODES: Final = {
    Guarantee.AT_MOST_ONCE: int(GuaranteeCode.AT_MOST_ONCE),
    Guarantee.AT_LEAST_ONCE: int(GuaranteeCode.AT_LEAST_ONCE),
    Guarantee.EXACTLY_ONCE: int(GuaranteeCode.EXACTLY_ONCE),
}


def outcome_fields(state: DeliveryState | None, encode: EncodeState) -> tuple[int, int, bytes]:
    """Returns code, flags and, where these do not say it all, octets of an outcome's record."""
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
    """Finds no ids."""
    return None


def no_change(
    protocol: Protocol, payload: bytes, name: str, key: bytes
) -> tuple[Protocol, bytes] | None:
    """Returns no ids."""
    return None


def no_state(state: DeliveryState) -> bytes:
    """Encodes nothing."""
    return b""
