"""The common part of both sides of a connection of the draft, in addition to 0-9-1's machine.

Out-of-band frames need a transport that ``channel.open`` would have named: none is supported, so
they are refused (540). A trace frame has no handler here and is dropped; on a channel it is an
error (501), as a heartbeat is. An unknown frame type, or a frame that does not end in 0xCE, ends
the
connection at once: the following octets cannot be trusted.
"""

from typing import Any, Final

from router.model.capabilities import Protocol
from router.wire.v0_9_1.codec import Spec
from router.wire.v0_9_1.machine import Machine
from router.wire.v0_9_1.reply import BrokenStreamError, PeerError, Reply
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.content import frames, unfold
from router.wire.v0_9r1.framing import FRAMING, OUT_OF_BAND, FrameType

_METHODS_LIMIT: Final = 256
_LONGEST_METHOD: Final = 512
"""Most cached methods of a connection, and their largest size."""


class DraftMachine(Machine):
    """One connection."""

    protocol = Protocol.AMQP_0_9R1
    framing = FRAMING
    first_codec = d.CODEC

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.known_methods: dict[bytes, tuple[Spec, Any]] = {}

    def decode_method(self, octets: bytes, start: int, end: int) -> tuple[Spec, Any]:
        """Decodes a method that the peer may send; repeated octets are cached.

        Raises:
            PeerError: it is unknown, invalid, or only the other side may send it.
        """
        payload = octets[start:end]
        found = self.known_methods.get(payload)
        if found is None:
            found = super().decode_method(octets, start, end)
            if end - start <= _LONGEST_METHOD:
                if len(self.known_methods) >= _METHODS_LIMIT:
                    self.known_methods.clear()
                self.known_methods[payload] = found
        return found

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Leaves every frame to the general path."""
        return at

    def take_other_frame(self, kind: int, number: int, size: int) -> None:
        """Handles a frame that is neither a method nor content, by the size of its payload."""
        if kind in OUT_OF_BAND:
            raise PeerError(Reply.NOT_IMPLEMENTED, "no out-of-band transport was agreed upon")
        if kind not in (FrameType.TRACE, FrameType.HEARTBEAT):
            raise BrokenStreamError(Reply.FRAME_ERROR, f"a frame of type {kind}")
        if number:
            name = FrameType(kind).name.lower()
            raise PeerError(Reply.FRAME_ERROR, f"a {name} frame on channel {number}")
        if size and kind == FrameType.HEARTBEAT:
            raise PeerError(Reply.FRAME_ERROR, f"a heartbeat frame with {size} octets of payload")

    def index_of(self, error: PeerError) -> tuple[int, int]:
        """Returns class and method of a fault; shared modules name them by 0-9-1's numbers."""
        index = error.class_id, error.method_id
        return d.INDEXES.get(index, index)

    def content_frames(self, number: int, header: bytes, body: bytes) -> bytes:
        """Encodes the frames of a content and its children for a channel."""
        return frames(number, unfold(header, body), self.frame_max)

    def ack_frame(self, number: int, tag: int, multiple: bool) -> bytes:
        """Encodes the frame of ``basic.ack`` on a channel."""
        return FRAMING.frame(
            FrameType.METHOD, number, d.ACK_HEAD + tag.to_bytes(8, "big") + bytes((multiple,))
        )
