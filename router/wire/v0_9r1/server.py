"""The serving side of the draft.

Theory of operation. Everything is as in 0-9-1 (``router.wire.v0_9_1.server``) unless the draft
differs: a consumer has its own prefetch and a number as its tag; there are no confirms, no qos, no
nack, no recover and no ``no-wait``; ``channel.flow`` has no answer. Other classes are supported
beside basic: file (``files``), stream (``consuming``), test (``trials``).
"""

import struct
from typing import ClassVar, Final

from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase, Steps
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import End
from router.wire.v0_9_1.content import HEADER_OCTETS, MORE_FLAGS, encode_content_header
from router.wire.v0_9_1.framing import END_OCTET
from router.wire.v0_9_1.machine import Opening
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server import ServerEngine
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.framing import FRAMING, PROTOCOL_HEADER, VERSION, FrameType
from router.wire.v0_9r1.outgoing import DraftOutgoing
from router.wire.v0_9r1.server_channel import DraftServerChannel
from router.wire.v0_9r1.server_links import DraftLinks

_HEADER: Final = struct.Struct(">BxHIHHQ")
"""A content header's frame: type, channel, size, class, weight, body size."""

_head: Final = FRAMING.head.pack


class DraftServer(DraftLinks, ServerEngine):
    """One connection that a client dialed; implements ``router.wire.engine.Engine``."""

    header = PROTOCOL_HEADER
    versions: ClassVar[dict[bytes, tuple[int, int]]] = {PROTOCOL_HEADER: VERSION}
    names_known_hosts = True
    channel_type = DraftServerChannel
    channels: dict[int, DraftServerChannel]  # type: ignore[assignment]

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing = DraftOutgoing()

    def _take_open(self, method: m.ConnectionOpen) -> None:
        self.vhost = method.virtual_host
        super()._take_open(method)

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if something is pending."""
        deadline = super().deadline
        for consumer in self.paced:
            deadline = consumer.due_at if deadline is None else min(deadline, consumer.due_at)
        return deadline

    def on_time(self, now: float) -> None:
        """Sends packets that are due to consumers of streams."""
        super().on_time(now)
        for consumer in [each for each in self.paced if each.due_at <= now]:
            del self.paced[consumer]
            consumer.queue.dispatch()
            self.review(consumer.queue)

    def end_channels(self, reason: End | None = None) -> None:
        """Ends all channels; incomplete uploads are kept for clients that reconnect."""
        super().end_channels(reason)
        self.paced.clear()
        uploads, self.uploads = self.uploads, {}
        self.files_octets = 0
        for upload in uploads.values():
            self.shelf.keep(upload)

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles common publishes: a known method, a header, and one body."""
        after = at
        while after >= 0 and self.phase is MachinePhase.OPENED:
            at = after
            after = self._take_publish(octets, at, end)
        return max(at, after)

    def _take_publish(self, octets: bytes, at: int, end: int) -> int:
        """Handles a publish; returns where it ends, -1: it is left to the general path."""
        head = FRAMING.head_octets
        method_end = at + head + int.from_bytes(octets[at + 4 : at + head], "big")
        found = self.known_methods.get(octets[at + head : method_end])
        header_at = method_end + 1
        if found is None or type(found[1]) is not m.BasicPublish or end - header_at < _HEADER.size:
            return -1
        kind, number, size, class_id, weight, body_octets = _HEADER.unpack_from(octets, header_at)
        body_at = header_at + head + size + 1
        start = body_at + head
        after: int = start + body_octets + 1
        channel = self.channels.get(number)
        is_whole = (
            after <= end
            and size >= HEADER_OCTETS
            and 0 < body_octets <= self.frame_limit >= size
            and (class_id, weight) == (d.BASIC_CLASS, 0)
            and octets[at : at + head] == _head(FrameType.METHOD, number, method_end - at - head)
            and kind == FrameType.HEADER
            and not octets[header_at + head + 13] & MORE_FLAGS
            and octets[body_at:start] == _head(FrameType.BODY, number, body_octets)
            and octets[method_end] == octets[body_at - 1] == octets[after - 1] == END_OCTET
        )
        if not is_whole or channel is None or not channel.is_ready:
            return -1
        properties = octets[header_at + head + 12 : body_at - 1]
        header = encode_content_header(body_octets, properties)
        try:
            channel.take_publish(found[1], header, octets[start : after - 1])
        except PeerError as error:
            self.fault(channel.blame(error, found[0]), channel)
        return after

    def check_open(self, method: m.ChannelOpen) -> None:
        """Refuses a channel with out-of-band transport."""
        if method.reserved_1:
            raise PeerError(Reply.NOT_IMPLEMENTED, f"out-of-band {method.reserved_1!r}", 20, 10)

    steps: ClassVar[Steps] = {
        **ServerEngine.steps,
        (Opening.OPEN, m.ConnectionOpen): _take_open,
    }
