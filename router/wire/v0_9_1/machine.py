"""A connection of 0-9-1: frames, phases, errors and signs of life, the same for both sides.

Theory of operation. Octets become frames here; methods on channel 0 move the connection's phase by
a table (``steps`` of each side), everything else goes to its channel. A peer's mistake is raised
as ``PeerError`` where it is found and caught here alone: a soft one ends its channel, a hard one
the connection. What came before it in the same octets has been taken already.

Phases, and what moves them (C: the client's method, S: the server's)::

    server                                          client
    HEADER     C: protocol header  -> START_OK      START        S: start      -> NEGOTIATING
    START_OK   C: start-ok         -> SECURE_OK     NEGOTIATING  S: secure     -> NEGOTIATING
                                   or TUNE_OK                    S: tune       -> OPEN_OK
    SECURE_OK  C: secure-ok        -> the same      OPEN_OK      S: open-ok    -> OPENED
    TUNE_OK    C: tune-ok          -> OPEN
    OPEN       C: open             -> OPENED

    any        we found a fault, or were told to close     -> CLOSING
    any        peer's close, answered                      -> CLOSED
    CLOSING    close-ok, or CLOSE_SECONDS have passed      -> CLOSED

The core hears of the connection's end once: when it begins. In CLOSING only ``close`` and
``close-ok`` are looked at.

Signs of life. The agreed heartbeat is looked at twice within its time: if nothing was sent since, a
heartbeat frame is. A peer of which nothing was heard for twice the heartbeat is given up.

Events that a command brings about wait for the next call that returns events; ``deadline`` lies in
the past as long as any wait.
"""

import enum
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.condition import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import ConnectionClosed, Event, OutputPending
from router.wire.engine import EngineSettings
from router.wire.octets import ReceiveBuffer, SendBuffer
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import MAX_BODY_OCTETS, Channel, End
from router.wire.v0_9_1.channel import Phase as ChannelPhase
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
    PeerError,
    Reply,
    condition_of,
    connection_reply,
    reply_text,
)
from router.wire.v1_0.runs import Runs

PRODUCT: Final = "router"

HEADER_OCTETS: Final = len(PROTOCOL_HEADER)

CLOSE_SECONDS: Final = 5.0
"""How long an answer to our close is awaited; peers that are gone would hold the socket."""

HELD_STOP_OCTETS: Final = 4 << 20
"""Publishes and methods that wait here before reading stops: 0-9-1 has no credit to withhold. It
goes on when half of them are gone."""

GATHER_LIMIT_OCTETS: Final = MAX_BODY_OCTETS
"""Bodies of all channels that have come in part: where the connection is closed (506)."""

HELD_LIMIT_OCTETS: Final = 64 << 20
"""Where the connection is closed (506): whoever owns the socket did not stop reading."""


class Phase(enum.Enum):
    """What the connection waits for (see the module)."""

    HEADER = "protocol header"
    START_OK = "start-ok"
    SECURE_OK = "secure-ok"
    TUNE_OK = "tune-ok"
    OPEN = "open"
    START = "start"
    NEGOTIATING = "secure or tune"
    OPEN_OK = "open-ok"
    OPENED = "anything"
    CLOSING = "close-ok"
    CLOSED = "nothing"


class Machine:
    """One connection; ``ServerEngine`` and ``ClientEngine`` are its two sides.

    Attributes:
        settings: what it was told.
        phase: see the module.
        codec: of the version that is spoken.
        channels: by number.
        frame_max: octets of the largest frame that the peer takes.
        channel_max: the highest channel number that was agreed.
        runs: events that wait.
        now: time of the call that is under way, or was last.
    """

    steps: ClassVar[Mapping[tuple[Phase, type], str]] = {}
    """Phase and method on channel 0 → name of what takes it; what is absent is forbidden (503)."""

    peer: ClassVar[Sender]
    """Which side the peer is."""

    protocol: ClassVar[Protocol] = Protocol.AMQP_0_9_1
    """What is spoken, and the encoding of payloads."""

    framing: ClassVar[Framing] = FRAMING

    first_codec: ClassVar[MethodCodec] = CODEC
    """Methods, until the peer's header tells of another version."""

    def __init__(self, settings: EngineSettings, phase: Phase) -> None:
        self.settings = settings
        self.phase = phase
        self.codec = self.first_codec
        self.channels: dict[int, Channel] = {}
        self.frame_max = MIN_FRAME_MAX
        self.channel_max = settings.channel_max
        self.runs = Runs()
        self.now = 0.0
        self.output = SendBuffer()
        self._input = ReceiveBuffer()
        self.frame_limit = max(settings.max_frame_octets, MIN_FRAME_MAX)
        self._heartbeat = 0.0
        self._beat_at = math.inf
        self._beat_sent = -1
        self._heard_at = 0.0
        self.gives_up_at = math.inf  # handshake or close
        self._is_timed = False
        self._has_told_end = False
        self._is_congested = False
        self._held = 0
        self._is_full = False
        self._gathered = 0

    # --- the face ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if events wait."""
        if self.runs.events:
            return -math.inf
        deadline = min(self._beat_at, self.gives_up_at)
        if self._heartbeat:
            deadline = min(deadline, self._heard_at + 2 * self._heartbeat)
        return None if deadline == math.inf else deadline

    @property
    def finished(self) -> bool:
        """Whether nothing will be read any more."""
        return self.phase is Phase.CLOSED

    @property
    def input_waits(self) -> bool:
        """Whether the socket should not be read: what waits here is enough."""
        return self._is_full and self.phase is Phase.OPENED

    @property
    def output_octets(self) -> int:
        """How many octets wait to be sent."""
        self.flush()
        return self.output.octets

    @property
    def waiting_octets(self) -> int:
        """None: what is sent is output at once, there being no windows."""
        return 0

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Takes octets in."""
        self._set_time(now)
        if self.phase is Phase.CLOSED:
            return self.runs.take()
        self._heard_at = now
        joined = self._input.join(octets)
        if joined is not None:
            try:
                self._read(joined)
            except PeerError as error:
                self.fail(error)
            self.end_turn()
        return self.runs.take()

    def receive_eof(self, now: float) -> list[Event]:
        """Takes note that the stream has ended."""
        self._set_time(now)
        if self.phase is not Phase.CLOSED:
            self.over(Condition(CONNECTION_FORCED, "the stream ended without a close"), True)
        return self.runs.take()

    def data_to_send(self) -> memoryview:
        """Shows octets to send."""
        self.flush()
        return self.output.peek()

    def bytes_sent(self, count: int) -> None:
        """Forgets octets that were sent."""
        self.output.consume(count)
        if self._is_congested:
            self.watch_output()

    def handle_deadline(self, now: float) -> list[Event]:
        """Does what time asks for."""
        self._set_time(now)
        if self.phase is Phase.CLOSED:
            return self.runs.take()
        if self.input_waits:
            self._heard_at = now  # nobody listens, so silence proves nothing
        if now >= self.gives_up_at:
            self.give_up_waiting()
        elif self._heartbeat and now >= self._heard_at + 2 * self._heartbeat:
            seconds = 2 * self._heartbeat
            silent = Condition(RESOURCE_LIMIT_EXCEEDED, f"nothing was heard for {seconds:g} s")
            self.over(silent, False)
        elif now >= self._beat_at:
            self._beat(now)
        self.on_time(now)
        self.end_turn()
        return self.runs.take()

    # --- time -------------------------------------------------------------------------------------

    def _set_time(self, now: float) -> None:
        self.now = now
        if not self._is_timed:
            self._is_timed = True
            self._heard_at = now
            self.gives_up_at = now + self.settings.handshake_seconds

    def start_heartbeat(self, seconds: float) -> None:
        """Begins to send and expect signs of life; 0: neither."""
        self._heartbeat = seconds
        if seconds:
            self._beat_at = self.now + seconds / 2

    def _beat(self, now: float) -> None:
        sent = self.output.sent + self.output.octets
        if sent == self._beat_sent:
            self.output.append(self.framing.heartbeat)
            sent += len(self.framing.heartbeat)
        self._beat_sent = sent
        self._beat_at = now + self._heartbeat / 2

    def give_up_waiting(self) -> None:
        """Ends what waits too long: the handshake, or our close."""
        self.gives_up_at = math.inf
        if self.phase is Phase.CLOSING:
            self.over(None, False)
        elif self.phase is not Phase.OPENED:
            seconds = self.settings.handshake_seconds
            late = f"no {self.phase.value} within {seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, late), False)

    def on_time(self, now: float) -> None:
        """Does what one side alone has to do by time."""

    # --- frames -----------------------------------------------------------------------------------

    def _read(self, octets: bytes) -> None:
        head_octets, overhead = self.framing.head_octets, self.framing.overhead_octets
        counted = overhead if self.framing.counts_overhead else 0
        at, end, wanted = 0, len(octets), overhead
        if self.phase is Phase.HEADER:
            at = self.read_header(octets)
            if self.phase is Phase.HEADER:
                wanted = HEADER_OCTETS
        unpack = self.framing.head.unpack_from
        while end - at >= overhead and self.phase is not Phase.CLOSED:
            if self.phase is Phase.OPENED:
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
        if self.phase is not Phase.CLOSED:
            self._input.keep(octets, at, wanted)

    def read_header(self, octets: bytes) -> int:
        """Takes the protocol header, and returns the offset behind it; 0 if there is none yet."""
        raise NotImplementedError

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Takes the frames that this side sees most, in runs; returns where it stopped."""
        return at

    def _take_frame(self, kind: int, number: int, octets: bytes, start: int, end: int) -> None:
        if kind not in (METHOD, HEADER, BODY):
            self.take_other_frame(kind, number)
            return
        if self.phase is Phase.CLOSING:
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
        name = self.steps.get((self.phase, type(method)))
        if name is None:
            raise PeerError(
                Reply.COMMAND_INVALID,
                f"{type(method).__name__} where {self.phase.value} is due",
                spec.class_id,
                spec.method_id,
            )
        getattr(self, name)(method)

    def broken_frame(self, text: str) -> PeerError:
        """Words what is wrong with octets that are no frame."""
        return PeerError(Reply.FRAME_ERROR, text)

    def take_other_frame(self, kind: int, number: int) -> None:
        """Takes a frame that is neither a method nor content."""
        if kind != HEARTBEAT or number:
            raise PeerError(Reply.FRAME_ERROR, f"type {kind} on channel {number}")

    def _take_channel_frame(
        self, kind: int, number: int, octets: bytes, start: int, end: int
    ) -> None:
        if self.phase is not Phase.OPENED:
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
        """Takes a frame for a channel that is not open."""
        raise PeerError(Reply.CHANNEL_ERROR, f"channel {number} is not open")

    def decode_method(self, octets: bytes, start: int, end: int) -> tuple[Spec, Any]:
        """Decodes a method that the peer may send.

        Raises:
            PeerError: it is none, is broken, or is for the other side to send.
        """
        class_id, method_id = _index_at(octets, start)
        try:
            method = self.codec.decode(octets, start, end)
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
        """Tells which method's frame has its payload at ``start``, without decoding it."""
        spec = self.codec.spec_at(*_index_at(octets, start))
        return None if spec is None else spec.record

    # --- output -----------------------------------------------------------------------------------

    def send_method(self, number: int, method: m.Method) -> None:
        """Sends a method on a channel."""
        self.output.append(self.framing.frame(METHOD, number, self.codec.encode(method)))

    def content_frames(self, number: int, header: bytes, body: bytes) -> bytes:
        """Makes the frames of a content, as they are sent on a channel."""
        return self.framing.content_frames(number, header, body, self.frame_max)

    def ack_frame(self, number: int, tag: int, multiple: bool) -> bytes:
        """Makes the frame of ``basic.ack`` on a channel."""
        return encode_ack(number, tag, multiple)

    def index_of(self, error: PeerError) -> tuple[int, int]:
        """Gives class and method of a fault, in the numbers of what is spoken."""
        return error.class_id, error.method_id

    def flush(self) -> None:
        """Writes what was gathered to be joined."""

    def end_turn(self) -> None:
        """Does what is done once for all frames of a receive."""

    def watch_output(self) -> None:
        """Tells the core when output piles up and when it has gone."""
        octets = self.output.octets
        if self._is_congested:
            if octets <= self.settings.output_low_octets:
                self._is_congested = False
                self.runs.add(OutputPending(False))
        elif octets >= self.settings.output_high_octets:
            self._is_congested = True
            self.runs.add(OutputPending(True))

    def hold_octets(self, octets: int) -> None:
        """Counts what waits here because it cannot be handed on; negative when it could.

        Raises:
            PeerError: it is too much.
        """
        self._held += octets
        if self._held > HELD_STOP_OCTETS:
            self._is_full = True
        elif 2 * self._held <= HELD_STOP_OCTETS:
            self._is_full = False
        if octets > 0 and self._held > HELD_LIMIT_OCTETS:
            raise PeerError(Reply.RESOURCE_ERROR, "more was published than can wait here")

    def gather(self, octets: int) -> None:
        """Counts what has come of bodies that are not complete; negative when they are.

        Raises:
            PeerError: it is too much.
        """
        self._gathered += octets
        if self._gathered > GATHER_LIMIT_OCTETS:
            raise PeerError(Reply.RESOURCE_ERROR, "the bodies under way are too large together")

    # --- ends -------------------------------------------------------------------------------------

    def fault(self, error: PeerError, channel: Channel) -> None:
        """Ends what a fault on a channel concerns, and no more."""
        if error.code in HARD_ERRORS:
            self.fail(error)
        elif channel.phase in (ChannelPhase.OPEN, ChannelPhase.OPENING):
            channel.close(error)

    def fail(self, error: PeerError) -> None:
        """Closes the connection for a fault of the peer's."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        self.start_close(error.code, str(error), *self.index_of(error))
        self.tell_end(condition_of(error.code, error.text), False)

    def close(self, condition: Condition | None) -> None:
        """Closes the connection on the core's word."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        code = connection_reply(condition)
        text = "" if condition is None else condition.description or condition.name
        self.start_close(code, reply_text(code, text) if condition else "", 0, 0)
        self.tell_end(condition, False)

    def start_close(self, code: Reply, text: str, class_id: int, method_id: int) -> None:
        """Sends our close, and waits for the answer."""
        self.flush()
        self.end_channels()
        if self.phase is Phase.HEADER:
            self.phase = Phase.CLOSED
            return
        self.phase = Phase.CLOSING
        self.gives_up_at = self.now + CLOSE_SECONDS
        self.send_method(
            0,
            m.ConnectionClose(
                reply_code=code, reply_text=text, class_id=class_id, method_id=method_id
            ),
        )

    def take_close(self, close: m.ConnectionClose) -> None:
        """Takes the peer's close."""
        self.flush()
        self.end_channels(close)
        self.send_method(0, m.ConnectionCloseOk())
        orderly = close.reply_code == Reply.SUCCESS
        condition = None if orderly else condition_of(close.reply_code, close.reply_text)
        self.over(condition, True)

    def _look_for_close(self, kind: int, number: int, octets: bytes, start: int) -> None:
        """Looks for close and close-ok among frames that come behind our close."""
        if kind != METHOD or number:
            return
        record = self.record_at(octets, start)
        if record is m.ConnectionClose:
            self.send_method(0, m.ConnectionCloseOk())
        elif record is m.ConnectionCloseOk:
            self.over(None, False)

    def over(self, condition: Condition | None, by_peer: bool) -> None:
        """Reads nothing any more."""
        if self.phase is not Phase.CLOSING:
            self.end_channels()
        self.phase = Phase.CLOSED
        self._heartbeat = 0.0
        self._beat_at = self.gives_up_at = math.inf
        self.tell_end(condition, by_peer)

    def tell_end(self, condition: Condition | None, by_peer: bool) -> None:
        """Tells the core, once, that the connection ends."""
        if not self._has_told_end:
            self._has_told_end = True
            self.runs.add(ConnectionClosed(condition, by_peer))

    def opened(self) -> None:
        """Takes note that the handshake is over."""
        self.phase = Phase.OPENED
        self.gives_up_at = math.inf

    def end_channels(self, reason: End | None = None) -> None:
        """Ends all channels without a word to the peer."""
        for channel in list(self.channels.values()):
            if channel.phase is not ChannelPhase.CLOSING:
                channel.ended(reason)
            channel.gone()
        self.channels.clear()

    def free_channel(self, channel: Channel) -> None:
        """Takes note that a channel's number may be used again."""
        channel.gone()
        self.channels.pop(channel.number, None)


def _index_at(octets: bytes, start: int) -> tuple[int, int]:
    """Reads class and method."""
    index = octets[start : start + 4]
    return int.from_bytes(index[:2], "big"), int.from_bytes(index[2:], "big")
