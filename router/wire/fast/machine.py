"""A connection of AMQP/Fast: frames, phases, errors and signs of life, the same for both sides.

Theory of operation. Octets become commands here, message octets with them; phase and command look
up who takes it (``steps`` of each side), and what is absent is forbidden. A peer's mistake is
raised as ``PeerError`` where it is found; its level says what is ended (RFC 006 §2.2.10). What came
before it in the same octets has been taken already.

Phases, and what moves them (C: the client's command, S: the server's)::

    server                                     client
    START      C: 128 1      -> RESPONSE       CHALLENGE    S: challenge -> NEGOTIATING
    RESPONSE   C: response   -> RESPONSE,      NEGOTIATING  S: challenge -> NEGOTIATING
                                or TUNE                     S: tune      -> REPLY
    TUNE       C: tune       -> OPEN           REPLY        S: reply     -> OPENED
    OPEN       C: open       -> OPENED

    any        we found a fault, or were told to close     -> CLOSING
    any        peer's close, answered                      -> CLOSED
    CLOSING    close, or CLOSE_SECONDS have passed         -> CLOSED

A fault before OPENED is taken for an attack (§3.2.12): the close is sent and not waited for. The
core hears of the connection's end once: when it begins. Two sentences are not followed: that each
command behind our close be answered by another close (§3.2.9, §3.3.7) - a client that has a few
under way would take the second close for one of whatever it opened next - so they are discarded;
and that a confirmation hold up everything else to the client (§3.2.11), which would stop a client
that waits for its own message.

Signs of life (§3.2.7). Each side's TUNE says how often it wants to hear something. If nothing was
sent for half of what the peer wants, a PING is. A peer silent for half of our own idle time is sent
a PING that asks for an answer, and one silent for all of it is given up.

Events that a command brings about wait for the next call that returns events; ``deadline`` lies in
the past as long as any wait.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from router.errors import DecodeError
from router.model.condition import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import ConnectionClosed, Event, OutputPending
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.commands import SPEC_OF, Command, Sender, decode_command
from router.wire.fast.framing import (
    END_OCTET,
    FIRST_FRAME_MAX,
    LONG_SIZE,
    frame,
)
from router.wire.fast.line import Line
from router.wire.fast.reply import (
    Level,
    PeerError,
    Reply,
    condition_of,
    reply_of,
    words_of,
)
from router.wire.fast.types import cut_short
from router.wire.octets import ReceiveBuffer, SendBuffer
from router.wire.v1_0.runs import Runs

CLOSE_SECONDS: Final = 5.0
"""How long an answer to our close is awaited; peers that are gone would hold the socket."""

HELD_STOP_OCTETS: Final = 4 << 20
"""Messages that wait here before reading stops: the protocol has no credit to withhold. It goes on
when half of them are gone."""

HELD_LIMIT_OCTETS: Final = 64 << 20
"""Where the connection is closed (506): whoever owns the socket did not stop reading."""

_NO_FRAGMENT: Final = b""


class Phase(enum.Enum):
    """What the connection waits for (see the module)."""

    START = "128 1"
    RESPONSE = "CONNECTION RESPONSE"
    TUNE = "CONNECTION TUNE"
    OPEN = "CONNECTION OPEN"
    CHALLENGE = "CONNECTION CHALLENGE"
    NEGOTIATING = "CONNECTION CHALLENGE or TUNE"
    REPLY = "CONNECTION REPLY"
    OPENED = "anything"
    CLOSING = "CONNECTION CLOSE"
    CLOSED = "nothing"


Steps = Mapping[tuple[Phase, type], str]


class Machine:
    """One connection; ``ServerEngine`` and ``ClientEngine`` are its two sides.

    Attributes:
        settings: what it was told.
        phase: see the module.
        frame_max: octets of the largest frame or fragment that the peer takes.
        frame_limit: octets of the largest one that we take.
        runs: events that wait.
        now: time of the call that is under way, or was last.
    """

    steps: ClassVar[Steps] = {}
    """Phase and command → name of what takes it; what is absent is forbidden (503)."""

    peer: ClassVar[Sender]
    """Which side the peer is."""

    def __init__(self, settings: EngineSettings, phase: Phase) -> None:
        self.settings = settings
        self.phase = phase
        self.frame_max = FIRST_FRAME_MAX
        self.frame_limit = max(settings.max_frame_octets, FIRST_FRAME_MAX)
        self.runs = Runs()
        self.now = 0.0
        self.output = SendBuffer()
        self._input = ReceiveBuffer()
        self._beat_seconds = 0.0
        self._beat_at = math.inf
        self._beat_sent = -1
        self._idle_seconds = 0.0
        self._heard_at = 0.0
        self._asked_at = -math.inf
        self.gives_up_at = math.inf  # handshake, close, or a client's close that was put off
        self._is_timed = False
        self._has_told_end = False
        self._is_congested = False
        self._held = 0
        self.parked_octets = 0
        self._is_full = False

    # --- the face ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if events wait."""
        if self.runs.events:
            return -math.inf
        deadline = min(self._beat_at, self.gives_up_at)
        if self._idle_seconds:
            deadline = min(deadline, self._idle_deadline())
        return None if deadline == math.inf else deadline

    def _idle_deadline(self) -> float:
        if self._asked_at < self._heard_at:
            return self._heard_at + self._idle_seconds / 2
        return self._heard_at + self._idle_seconds

    @property
    def finished(self) -> bool:
        """Whether nothing will be read any more."""
        return self.phase is Phase.CLOSED

    @property
    def waiting_octets(self) -> int:
        """How many octets wait for the peer to say how much of a message it has."""
        return sum(line.octets for line in self.lines())

    def lines(self) -> Iterable[Line]:
        """All lines on which messages go out."""
        raise NotImplementedError

    @property
    def input_waits(self) -> bool:
        """Whether the socket should not be read: what waits here is enough."""
        return self._is_full and self.phase is Phase.OPENED

    @property
    def output_octets(self) -> int:
        """How many octets wait to be sent."""
        self.flush()
        return self.output.octets

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
        elif self._idle_seconds and now >= self._heard_at + self._idle_seconds:
            reason = f"nothing was heard for {self._idle_seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, reason), False)
        else:
            self._beat(now)
        self.end_turn()
        return self.runs.take()

    # --- time -------------------------------------------------------------------------------------

    def _set_time(self, now: float) -> None:
        self.now = now
        if not self._is_timed:
            self._is_timed = True
            self._heard_at = now
            self.gives_up_at = now + self.settings.handshake_seconds

    def start_beating(self, seconds: float) -> None:
        """Begins to send signs of life as often as the peer wants them, and to expect some."""
        self._idle_seconds = self.settings.idle_seconds
        self._beat_seconds = seconds / 2
        if seconds:
            self._beat_at = self.now + self._beat_seconds

    def _beat(self, now: float) -> None:
        if self._idle_seconds and self._asked_at < self._heard_at:
            if now >= self._heard_at + self._idle_seconds / 2:
                self._asked_at = now
                self.send(c.ConnectionPing(respond=True))
        if now < self._beat_at:
            return
        sent = self.output.sent + self.output.octets
        if sent == self._beat_sent:
            self.send(c.ConnectionPing())
            sent = self.output.sent + self.output.octets
        self._beat_sent = sent
        self._beat_at = now + self._beat_seconds

    def give_up_waiting(self) -> None:
        """Ends what waits too long: the handshake, or our close."""
        self.gives_up_at = math.inf
        if self.phase is Phase.CLOSING:
            self.over(None, False)
        elif self.phase is not Phase.OPENED:
            seconds = self.settings.handshake_seconds
            late = f"no {self.phase.value} within {seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, late), False)

    # --- frames -----------------------------------------------------------------------------------

    def _read(self, octets: bytes) -> None:
        at, end, wanted = 0, len(octets), 2
        if self.phase is Phase.START:
            at = self.read_start(octets)
            if not at:
                self._keep(octets, 0, 2)
                return
        while end - at >= 2 and self.phase is not Phase.CLOSED:
            at = self.take_run(octets, at, end)
            found = self._find_frame(octets, at, end)
            if isinstance(found, int):
                wanted = found
                break
            start, stop = found
            command = self._decode(octets, start, stop - 1)
            size = self._fragment_octets(command)
            if stop + size > end:
                wanted = stop + size - at
                break
            at = stop + size
            try:
                self._take(command, octets[stop:at] if size else _NO_FRAGMENT)
            except PeerError as error:
                self.fail(error)
            wanted = 2
        self._keep(octets, at, wanted)

    def _keep(self, octets: bytes, at: int, wanted: int) -> None:
        if self.phase is not Phase.CLOSED:
            self._input.keep(octets, at, wanted)

    def _find_frame(self, octets: bytes, at: int, end: int) -> tuple[int, int] | int:
        """Finds a frame's command and its end; or how many octets are needed for that."""
        if end - at < 2:
            return 2
        start = at + 2
        size = octets[at] << 8 | octets[at + 1]
        if size == LONG_SIZE:
            if end - at < 6:
                return 6
            start = at + 6
            size = int.from_bytes(octets[at + 2 : start], "big")
        if not 2 <= size <= self.frame_limit:
            text = f"a frame of {size} octets; 2 to {self.frame_limit} are taken"
            raise PeerError(Reply.FRAMING_ERROR, text, Level.CONNECTION)
        stop = start + size
        if stop > end:
            return stop - at
        if octets[stop - 1] != END_OCTET:
            text = f"a frame ends in {octets[stop - 1]:#04x}, not 0xce"
            raise PeerError(Reply.FRAMING_ERROR, text, Level.CONNECTION)
        return start, stop

    def _decode(self, octets: bytes, start: int, end: int) -> Command:
        try:
            return decode_command(octets, start, end)
        except DecodeError as error:
            raise PeerError(Reply.SYNTAX_ERROR, error.rule, Level.CONNECTION) from error

    def _fragment_octets(self, command: Command) -> int:
        """How many message octets follow a command's frame."""
        if isinstance(command, c.HandleSend | c.HandleNotify):
            size = 0 if command.out_of_band else command.fragment_size
        elif isinstance(command, c.HandlePrepare):
            size = command.fragment_size
        else:
            return 0
        if size > self.frame_limit:
            text = f"a fragment of {size} octets, frame-max is {self.frame_limit}"
            raise PeerError(Reply.FRAMING_ERROR, text, Level.CONNECTION)
        return size

    def read_start(self, octets: bytes) -> int:
        """Takes the initiation, and returns the offset behind it; 0 if there is none yet."""
        raise NotImplementedError

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Takes the commands that this side sees most, in runs; returns where it stopped."""
        return at

    def _take(self, command: Command, fragment: bytes) -> None:
        """Takes a command, with the message octets behind it."""
        if isinstance(command, c.ConnectionClose):
            self.take_close(command)
            return
        if self.phase is Phase.CLOSING:
            return
        if isinstance(command, c.ConnectionPing):
            if command.respond:
                self.send(c.ConnectionPing())
            return
        name = self.steps.get((self.phase, type(command)))
        spec = SPEC_OF[type(command)]
        if name is None or not spec.sender & self.peer:
            text = f"{spec.name} where {self.phase.value} is due"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CONNECTION)
        if spec.has_fragment:
            getattr(self, name)(command, fragment)
        else:
            getattr(self, name)(command)

    # --- output -----------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Sends a command."""
        self.output.append(frame(command))

    def flush(self) -> None:
        """Writes what was gathered to be joined."""

    def end_turn(self) -> None:
        """Does what is done once for all commands of a receive."""

    def watch_output(self) -> None:
        """Tells the core when output piles up and when it has gone."""
        octets = self.output.octets + self.parked_octets
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
            text = "more was sent than can wait here"
            raise PeerError(Reply.INSUFFICIENT_RESOURCES, text, Level.CONNECTION)

    # --- ends -------------------------------------------------------------------------------------

    def fail(self, error: PeerError) -> None:
        """Closes the connection for a fault of the peer's."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        told = condition_of(error.code, error.text)
        if self.phase is Phase.OPENED:
            self.start_close(error.code, str(error))
            self.tell_end(told, False)
            return
        if self.phase is not Phase.START:
            self.send(c.ConnectionClose(error.code, str(error)))
        self.over(told, False)

    def close(self, condition: Condition | None) -> None:
        """Closes the connection on the core's word."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        self.start_close(reply_of(condition), words_of(condition))
        self.tell_end(condition, False)

    def start_close(self, code: int, text: str) -> None:
        """Sends our close, and waits for the answer."""
        self.flush()
        self.end_channels(None)
        if self.phase is Phase.START:
            self.phase = Phase.CLOSED
            return
        self.phase = Phase.CLOSING
        self.gives_up_at = self.now + CLOSE_SECONDS
        self.send(c.ConnectionClose(code, cut_short(text)))

    def take_close(self, close: c.ConnectionClose) -> None:
        """Takes the peer's close: its wish, or its answer to ours (§3.2.9)."""
        if self.phase is Phase.CLOSING:
            self.over(None, False)
            return
        self.flush()
        self.end_channels(close)
        self.send(c.ConnectionClose(Reply.OK))
        self.over(condition_of(close.reply_code, close.reply_text), True)

    def over(self, condition: Condition | None, by_peer: bool) -> None:
        """Reads nothing any more."""
        if self.phase is not Phase.CLOSING:
            self.end_channels(None)
        self.phase = Phase.CLOSED
        self._idle_seconds = 0.0
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

    def end_channels(self, close: c.ConnectionClose | None) -> None:
        """Ends all channels without a word to the peer.

        Args:
            close: the peer's, if it closed in order; None: it is gone, or at fault.
        """
