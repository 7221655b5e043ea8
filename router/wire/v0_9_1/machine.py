"""A connection of 0-9-1: frames, handshake and errors, the common part of both sides.

Theory of operation. Turns, heartbeats, congestion and the end are common to all protocols
(``router.wire.machine``). Octets become frames here; methods on channel 0 move the connection's
phase by a table (``steps`` of each side), all others go to their channel. A peer's mistake is
raised as ``PeerError`` where it is found and caught only here: a soft one ends its channel, a hard
one the connection. Earlier frames in the same octets have been handled by then.

Phases, and what moves them (C: the client's method, S: the server's)::

    server                                          client
    HEADER     C: protocol header  -> START_OK      START        S: start      -> NEGOTIATING
    START_OK   C: start-ok         -> SECURE_OK     NEGOTIATING  S: secure     -> NEGOTIATING
                                   or TUNE_OK                    S: tune       -> OPEN_OK
    SECURE_OK  C: secure-ok        -> the same      OPEN_OK      S: open-ok    -> OPENED
    TUNE_OK    C: tune-ok          -> OPEN
    OPEN       C: open             -> OPENED

In CLOSING all frames but ``close`` and ``close-ok`` are ignored.
"""

import enum
from typing import Any, ClassVar, Final

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.condition import Condition
from router.wire.engine import EngineSettings
from router.wire.machine import ConnectionMachine, MachinePhase, Steps
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import MAX_BODY_OCTETS, Channel, ChannelPhase, End
from router.wire.v0_9_1.codec import CODEC, MethodCodec, Sender, Spec
from router.wire.v0_9_1.confirms import encode_ack
from router.wire.v0_9_1.framing import (
    BODY,
    END_OCTET,
    FRAMING,
    HEADER,
    HEARTBEAT,
    METHOD,
    MIN_FRAME_MAX,
    PROTOCOL_HEADER,
    Framing,
)
from router.wire.v0_9_1.reply import (
    HARD_ERRORS,
    BrokenStreamError,
    PeerError,
    Reply,
    condition_of,
    connection_reply,
    reply_text,
)

PRODUCT: Final = "router"

HEADER_OCTETS: Final = len(PROTOCOL_HEADER)

GATHER_LIMIT_OCTETS: Final = MAX_BODY_OCTETS
"""Octets of incomplete bodies on all channels at which the connection is closed (506)."""


class Opening(enum.Enum):
    """The steps of the handshake (see the module)."""

    HEADER = "protocol header"
    START_OK = "start-ok"
    SECURE_OK = "secure-ok"
    TUNE_OK = "tune-ok"
    OPEN = "open"
    START = "start"
    NEGOTIATING = "secure or tune"
    OPEN_OK = "open-ok"


class Machine(ConnectionMachine):
    """One connection; ``ServerEngine`` and ``ClientEngine`` are its two sides.

    Attributes:
        codec: of the spoken version.
        channels: by number.
        frame_max: octets of the largest frame that the peer accepts.
        frame_limit: octets of the largest frame that we accept: our own limit until one is
            negotiated.
        channel_max: the highest channel number, as negotiated.
    """

    steps: ClassVar[Steps] = {}
    """Phase and method on channel 0 → handler; others are forbidden (503)."""

    peer: ClassVar[Sender]
    """Which side the peer is."""

    protocol: ClassVar[Protocol] = Protocol.AMQP_0_9_1
    """The protocol, and the encoding of payloads."""

    framing: ClassVar[Framing] = FRAMING

    first_codec: ClassVar[MethodCodec] = CODEC
    """Methods, until the peer's header selects another version."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings, Opening.HEADER)
        self.codec = self.first_codec
        self.channels: dict[int, Channel] = {}
        self.frame_max = MIN_FRAME_MAX
        self.frame_limit = max(settings.max_frame_octets, MIN_FRAME_MAX)
        self.channel_max = min(settings.basic_channel_max, 0xFFFF)
        self._gathered = 0

    # --- frames -----------------------------------------------------------------------------------

    def read(self, octets: bytes) -> None:
        """Handles the frames that are complete."""
        try:
            self._read_frames(octets)
        except PeerError as error:
            self.fail(error)

    def _read_frames(self, octets: bytes) -> None:
        head_octets, overhead = self.framing.head_octets, self.framing.overhead_octets
        counted = overhead if self.framing.counts_overhead else 0
        at, end, wanted = 0, len(octets), overhead
        if self.phase is Opening.HEADER:
            at = self.read_header(octets)
            if self.phase is Opening.HEADER:
                wanted = HEADER_OCTETS
        unpack = self.framing.head.unpack_from
        while end - at >= overhead and self.phase is not MachinePhase.CLOSED:
            if self.phase is MachinePhase.OPENED:
                at = self.take_run(octets, at, end)
                if end - at < overhead:
                    break
            kind, number, size = unpack(octets, at)
            start = at + head_octets
            stop = start + size
            if size + counted > self.frame_limit:
                raise PeerError(
                    Reply.FRAME_ERROR,
                    f"a frame of {size + counted} octets, frame-max is {self.frame_limit}",
                )
            if stop >= end:
                wanted = stop + 1 - at
                break
            if octets[stop] != END_OCTET:
                raise self.broken_frame(f"a frame ends in octet {octets[stop]:#04x}")
            self._take_frame(kind, number, octets, start, stop)
            at = stop + 1
        if self.phase is not MachinePhase.CLOSED:
            self._input.keep(octets, at, wanted)

    def read_header(self, octets: bytes) -> int:
        """Handles the protocol header; returns the offset after it, 0 if it is incomplete."""
        raise NotImplementedError

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles this side's most common frames in runs; returns the offset where it stopped."""
        return at

    def _take_frame(self, kind: int, number: int, octets: bytes, start: int, end: int) -> None:
        if kind not in (METHOD, HEADER, BODY):
            self.take_other_frame(kind, number, end - start)
            return
        if self.phase is MachinePhase.CLOSING:
            self._look_for_close(kind, number, octets, start)
            return
        if number:
            self._take_channel_frame(kind, number, octets, start, end)
            return
        if kind != METHOD:
            raise PeerError(Reply.CHANNEL_ERROR, "content on channel 0")
        spec, method = self.decode_method(octets, start, end)
        if isinstance(method, m.ConnectionClose):
            self.take_close(method)
            return
        handler = self.steps.get((self.phase, type(method)))
        if handler is None:
            raise PeerError(
                Reply.COMMAND_INVALID,
                f"{type(method).__name__} where {self.phase.value} is expected",
                spec.class_id,
                spec.method_id,
            )
        handler(self, method)

    def broken_frame(self, text: str) -> PeerError:
        """Describes why octets are not a frame."""
        return BrokenStreamError(Reply.FRAME_ERROR, text)

    def take_other_frame(self, kind: int, number: int, size: int) -> None:
        """Handles a frame that is neither method nor content, by the size of its payload."""
        if kind != HEARTBEAT:
            raise BrokenStreamError(Reply.FRAME_ERROR, f"a frame of type {kind}")
        if number:
            raise PeerError(Reply.FRAME_ERROR, f"a heartbeat frame on channel {number}")
        if size:
            raise PeerError(Reply.FRAME_ERROR, f"a heartbeat frame with {size} octets of payload")

    def _take_channel_frame(
        self, kind: int, number: int, octets: bytes, start: int, end: int
    ) -> None:
        if self.phase is not MachinePhase.OPENED:
            raise PeerError(Reply.CHANNEL_ERROR, f"channel {number} before the connection is open")
        channel = self.channels.get(number)
        if channel is None:
            self.take_unknown_channel(kind, number, octets, start, end)
            return
        try:
            channel.take_frame(kind, octets, start, end)
        except PeerError as error:
            self.fault(error, channel)

    def take_unknown_channel(
        self, kind: int, number: int, octets: bytes, start: int, end: int
    ) -> None:
        """Handles a frame for a channel that is not open."""
        raise PeerError(Reply.CHANNEL_ERROR, f"channel {number} is not open")

    def decode_method(self, octets: bytes, start: int, end: int) -> tuple[Spec, Any]:
        """Decodes a method that the peer may send.

        Raises:
            PeerError: it is unknown, invalid, or only the other side may send it.
        """
        class_id, method_id = _index_at(octets, start, end)
        try:
            is_client = self.peer is Sender.CLIENT
            method = self.codec.decode(octets, start, end, from_client=is_client)
        except DecodeError as error:
            raise PeerError(Reply.SYNTAX_ERROR, error.rule, class_id, method_id) from error
        if method is None:
            raise PeerError(
                Reply.NOT_IMPLEMENTED, f"method {class_id}.{method_id}", class_id, method_id
            )
        spec = self.codec.spec_of(type(method))
        if not spec.sender & self.peer:
            name = type(method).__name__
            raise PeerError(
                Reply.COMMAND_INVALID, f"{name} is not for this side to get", class_id, method_id
            )
        return spec, method

    def record_at(self, octets: bytes, start: int) -> type | None:
        """Returns the type of the method frame with payload at ``start``, without decoding it."""
        spec = self.codec.spec_at(*_index_at(octets, start, start + 4))
        return None if spec is None else spec.record

    # --- output -----------------------------------------------------------------------------------

    @property
    def waiting_octets(self) -> int:
        """0: deliveries become output at once, since there are no windows."""
        return 0

    def send_heartbeat(self) -> None:
        """Sends a heartbeat frame."""
        self.output.append(self.framing.heartbeat)

    def send_method(self, number: int, method: m.Method) -> None:
        """Sends a method on a channel."""
        self.output.append(self.framing.frame(METHOD, number, self.codec.encode(method)))

    def content_frames(self, number: int, header: bytes, body: bytes) -> bytes:
        """Encodes the frames of a content for a channel."""
        return self.framing.content_frames(number, header, body, self.frame_max)

    def ack_frame(self, number: int, tag: int, multiple: bool) -> bytes:
        """Encodes the frame of ``basic.ack`` on a channel."""
        return encode_ack(number, tag, multiple)

    def index_of(self, error: PeerError) -> tuple[int, int]:
        """Returns class and method of a fault, in the numbers of the spoken version."""
        return error.class_id, error.method_id

    def gather(self, octets: int) -> None:
        """Adds octets of incomplete bodies to the count; negative: subtracts them.

        Raises:
            PeerError: the limit is exceeded.
        """
        self._gathered += octets
        if self._gathered > GATHER_LIMIT_OCTETS:
            raise PeerError(Reply.RESOURCE_ERROR, "the bodies under way are too large together")

    def overfull(self) -> PeerError:
        """Describes that more has arrived than can wait here."""
        return PeerError(Reply.RESOURCE_ERROR, "more was published than can wait here")

    # --- ends -------------------------------------------------------------------------------------

    def fault(self, error: PeerError, channel: Channel) -> None:
        """Ends the channel or connection that a fault concerns."""
        if error.code in HARD_ERRORS:
            self.fail(error)
        elif channel.phase in (ChannelPhase.OPEN, ChannelPhase.OPENING):
            channel.close(error)

    def fail(self, error: PeerError) -> None:
        """Closes the connection for a fault of the peer, with or without a close method."""
        if isinstance(error, BrokenStreamError):
            self.over(condition_of(error.code, error.text), False)
            return
        if self.is_ending:
            return
        self.start_close(error.code, str(error), *self.index_of(error))
        self.report_end(condition_of(error.code, error.text), False)

    def close(self, condition: Condition | None) -> None:
        """Closes the connection as ordered by the core."""
        if self.is_ending:
            return
        code = connection_reply(condition)
        text = "" if condition is None else condition.description or condition.name
        self.start_close(code, reply_text(code, text) if condition else "", 0, 0)
        self.report_end(condition, False)

    def start_close(self, code: Reply, text: str, class_id: int, method_id: int) -> None:
        """Sends our close, and awaits the answer."""
        self.flush()
        self.end_channels()
        if self.phase is Opening.HEADER:
            self.phase = MachinePhase.CLOSED
            return
        self.await_close()
        self.send_method(
            0,
            m.ConnectionClose(
                reply_code=code, reply_text=text, class_id=class_id, method_id=method_id
            ),
        )

    def take_close(self, close: m.ConnectionClose) -> None:
        """Handles the peer's close."""
        self.flush()
        self.end_channels(close)
        self.send_method(0, m.ConnectionCloseOk())
        orderly = close.reply_code == Reply.SUCCESS
        condition = None if orderly else condition_of(close.reply_code, close.reply_text)
        self.over(condition, True)

    def _look_for_close(self, kind: int, number: int, octets: bytes, start: int) -> None:
        """Looks for close and close-ok among frames that follow our close."""
        if kind != METHOD or number:
            return
        record = self.record_at(octets, start)
        if record is m.ConnectionClose:
            self.send_method(0, m.ConnectionCloseOk())
        elif record is m.ConnectionCloseOk:
            self.over(None, False)

    def cut_off(self) -> None:
        """Ends all channels: the connection is lost, or the peer at fault."""
        self.end_channels()

    def end_channels(self, reason: End | None = None) -> None:
        """Ends all channels without sending anything."""
        for channel in list(self.channels.values()):
            if channel.phase is not ChannelPhase.CLOSING:
                channel.ended(reason)
            channel.gone()
        self.channels.clear()

    def free_channel(self, channel: Channel) -> None:
        """Records that a channel's number may be used again."""
        channel.gone()
        self.channels.pop(channel.number, None)


def _index_at(octets: bytes, start: int, end: int) -> tuple[int, int]:
    """Reads class and method, as far as a payload contains them."""
    index = octets[start : min(start + 4, end)]
    return int.from_bytes(index[:2], "big"), int.from_bytes(index[2:], "big")
