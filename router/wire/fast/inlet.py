"""The links of clients' messages, and the expected form of these messages."""

from typing import Protocol as Interface

import attrs

from router.wire.fast.reply import PeerError
from router.wire.inlets import CountedInlet


class InletHandle(Interface):
    """A handle that has sent by an inlet."""

    @property
    def is_open(self) -> bool:
        """Whether commands may still be sent on the handle."""

    def close(self, error: PeerError) -> None:
        """Closes the handle for a fault."""


@attrs.define(eq=False)
class Inlet(CountedInlet):
    """An incoming link for one channel's messages to one address.

    Attributes:
        handles: handles that have sent by it.
    """

    handles: dict[InletHandle, None] = attrs.field(factory=dict)


@attrs.define(eq=False)
class SendShape:
    """The expected form of the next message of a handle to a name.

    Attributes:
        prefix: first octets of its payload.
        head: its head after body-size.
        ttl_milliseconds: from the head.
    """

    inlet: Inlet
    prefix: bytes
    head: bytes
    ttl_milliseconds: int | None


def confirm(handle: int, confirm_tag: int) -> bytes:
    """Encodes the frame of a HANDLE REPLY of 200 without text, the most frequent reply."""
    return b"".join(
        (
            b"\x00\x09\x30",
            handle.to_bytes(2, "big"),
            confirm_tag.to_bytes(2, "big"),
            b"\x00\xc8\x00\xce",
        )
    )
