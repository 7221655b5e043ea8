"""The far end of an engine of the draft 0.9r1 under test."""

from router.wire.engine import EngineSettings
from router.wire.v0_9r1.client import DraftClient
from router.wire.v0_9r1.content import Content, frames, unfold
from router.wire.v0_9r1.framing import FRAMING, PROTOCOL_HEADER, VERSION, FrameType
from router.wire.v0_9r1.kinds import FILE, STREAM, to_basic
from router.wire.v0_9r1.server import DraftServer
from tests.support.basic_peer import BrokerPeer, ClientPeer, Peer, Received

_KINDS = {kind.class_id: kind for kind in (FILE, STREAM)}


class _DraftFrames(Peer):
    """What both ends write otherwise than those of 0-9-1."""

    def _read(self, kind: int, number: int, payload: bytes) -> list[Received]:
        """Reads a frame; contents of every class have their properties by basic's names."""
        if kind == FrameType.HEADER and payload[1] in _KINDS:
            payload = to_basic(_KINDS[payload[1]], payload)
        return super()._read(kind, number, payload)

    def content_frames(self, number: int, header: bytes, body: bytes, frame_max: int) -> bytes:
        """Makes the frames of a content."""
        return frames(number, unfold(header, body), frame_max)


class DraftClientPeer(_DraftFrames, ClientPeer):
    """A client, opposite a ``DraftServer``."""

    engine: DraftServer
    header = PROTOCOL_HEADER

    def make(self, made: EngineSettings) -> DraftServer:
        return DraftServer(made)


class DraftBrokerPeer(_DraftFrames, BrokerPeer):
    """A broker, opposite a ``DraftClient``."""

    engine: DraftClient
    header = PROTOCOL_HEADER
    version = VERSION

    def make(self, made: EngineSettings) -> DraftClient:
        return DraftClient(made)


def method(number: int, payload: bytes) -> bytes:
    """The frame of a method whose octets are given."""
    return FRAMING.frame(FrameType.METHOD, number, payload)


def wire(channel: int, *contents: Content) -> bytes:
    """The frames of contents."""
    return b"".join(frames(channel, each, 4096) for each in contents)


def hexed(*lines: str) -> bytes:
    """Octets as drawn in a golden conversation: hexadecimal digits, and text in quotes."""
    made = b""
    for line in lines:
        for at, piece in enumerate(line.split("'")):
            made += piece.encode() if at % 2 else bytes.fromhex(piece)
    return made
