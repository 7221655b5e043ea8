"""The links of what clients send, and what their messages are expected to look like."""

from typing import Protocol as Interface

import attrs

from router.wire.fast.reply import PeerError
from router.wire.inlets import CountedInlet


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
        handles: those that sent by it.
    """

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
