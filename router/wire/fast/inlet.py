"""The links of what clients send, and what their messages are expected to look like."""

from collections.abc import Sequence
from typing import Protocol as Interface

import attrs

from router.model.condition import Condition
from router.model.outcome import DeliveryState
from router.wire.fast.reply import PeerError
from router.wire.inlets import CountedInlet


class InletOwner(Interface):
    """Whoever sends by an inlet (``publishing``)."""

    def attached(self, inlet: "Inlet", max_message_octets: int) -> None:
        """Takes the core's consent to an inlet."""

    def refused(self, inlet: "Inlet", condition: Condition) -> None:
        """Takes the core's refusal of an inlet."""

    def lost(self, inlet: "Inlet", condition: Condition) -> None:
        """Takes note that the core has taken the link away."""

    def granted(self, inlet: "Inlet", credit: int, drain: bool) -> None:
        """Takes credit, or its end."""

    def hold(self, inlet: "Inlet", held: bool) -> None:
        """Stops or resumes handing on, whatever the credit."""

    def decided(self, inlet: "Inlet", numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Takes the outcome of deliveries, which it settles."""


class InletHandle(Interface):
    """A handle that has sent by an inlet."""

    @property
    def is_open(self) -> bool:
        """Whether the client may still be told anything by it."""

    def close(self, error: PeerError) -> None:
        """Closes the handle for a fault."""


@attrs.define(eq=False)
class Inlet(CountedInlet):
    """An incoming link for what one channel sends to one address.

    Attributes:
        publishing: whose it is.
        handles: those that sent by it.
    """

    publishing: InletOwner = attrs.field(kw_only=True)
    handles: dict[InletHandle, None] = attrs.field(factory=dict)


@attrs.define(eq=False)
class SendShape:
    """What the next message of a handle to a name is expected to look like.

    Attributes:
        prefix: of its payload.
        head: its head behind body-size.
        ttl_milliseconds: as the head tells.
    """

    inlet: Inlet
    prefix: bytes
    head: bytes
    ttl_milliseconds: int | None


def confirm(handle: int, confirm_tag: int) -> bytes:
    """Makes the frame of a HANDLE REPLY of 200 without words: most replies are that."""
    return b"".join(
        (
            b"\x00\x09\x30",
            handle.to_bytes(2, "big"),
            confirm_tag.to_bytes(2, "big"),
            b"\x00\xc8\x00\xce",
        )
    )
