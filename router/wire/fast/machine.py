"""A connection of AMQP/Fast: frames, handshake, errors and pings, the common part of both sides.

Theory of operation. Turns, heartbeats, congestion and the end are common to all protocols
(``router.wire.machine``). Octets become commands here, with their message octets; phase and command
select the handler (``steps`` of each side), and others are forbidden. A peer's mistake is raised as
``PeerError`` where it is found; its level says what is ended (RFC 006 §2.2.10). Earlier commands in
the same octets have been handled by then.

Phases, and what moves them (C: the client's command, S: the server's)::

    server                                     client
    START      C: 128 1      -> RESPONSE       CHALLENGE    S: challenge -> NEGOTIATING
    RESPONSE   C: response   -> RESPONSE,      NEGOTIATING  S: challenge -> NEGOTIATING
                                or TUNE                     S: tune      -> REPLY
    TUNE       C: tune       -> OPEN           REPLY        S: reply     -> OPENED
    OPEN       C: open       -> OPENED

A fault before OPENED counts as an attack (§3.2.12): the close is sent and its answer not awaited.
In CLOSING the peer's close is the answer to ours. Two rules of the specification are not followed:
that each command after our close be answered by another close (§3.2.9, §3.3.7), because a client
with a few commands under way would take the second close for one of whatever it opened next, so
they are discarded; and that a confirmation hold up everything else to the client (§3.2.11), which
would block a client that waits for its own message.

Heartbeats (§3.2.7). Each side's TUNE says how often it expects input. If nothing was sent for half
of the peer's time, a PING is sent. A peer silent for half of our own idle time is sent a PING that
requests an answer, and one silent for all of it is given up.
"""

import enum
import math
from collections.abc import Iterable
from typing import ClassVar, Final

from router.errors import DecodeError
from router.model.condition import Condition
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
from router.wire.machine import ConnectionMachine, MachinePhase, Steps

_NO_FRAGMENT: Final = b""


class Opening(enum.Enum):
    """The steps of the handshake (see the module)."""

    START = "128 1"
    RESPONSE = "CONNECTION RESPONSE"
    TUNE = "CONNECTION TUNE"
    OPEN = "CONNECTION OPEN"
    CHALLENGE = "CONNECTION CHALLENGE"
    NEGOTIATING = "CONNECTION CHALLENGE or TUNE"
    REPLY = "CONNECTION REPLY"


class Machine(ConnectionMachine):
    """One connection; ``ServerEngine`` and ``ClientEngine`` are its two sides.

    Attributes:
        frame_max: octets of the largest frame or fragment that the peer accepts.
        frame_limit: octets of the largest one that we accept: for CONNECTION CHALLENGE, RESPONSE
            and TUNE the specification's limit (§3.2.3-5), then the negotiated one.
        frame_offer: octets of the largest one that we would agree to.
    """

    steps: ClassVar[Steps] = {}
    """Phase and command → handler; others are forbidden (503)."""

    peer: ClassVar[Sender]
    """Which side the peer is."""

    def __init__(self, settings: EngineSettings, phase: Opening) -> None:
        super().__init__(settings, phase)
        self.frame_max = FIRST_FRAME_MAX
        self.frame_limit = FIRST_FRAME_MAX
        self.frame_offer = max(settings.max_frame_octets, FIRST_FRAME_MAX)
        self._asked_at = -math.inf

    @property
    def waiting_octets(self) -> int:
        """Octets that wait for the peer to say how much of a message it has."""
        return sum(line.octets for line in self.lines())

    def lines(self) -> Iterable[Line]:
        """All lines of outgoing messages."""
        raise NotImplementedError

    # --- signs of life (§3.2.7) -------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due, also to ping a silent peer."""
        if self.runs.events:
            return -math.inf
        deadline = min(self._beat_at, self.gives_up_at)
        if self._silence_seconds:
            patience = self._silence_seconds
            if self._asked_at < self._received_at:
                patience /= 2
            deadline = min(deadline, self._received_at + patience)
        return None if deadline == math.inf else deadline

    def start_beating(self, seconds: float) -> None:
        """Begins to send heartbeats as often as the peer requires, and to expect some."""
        self.keep_alive(seconds / 2, self.settings.idle_seconds)

    def beat(self) -> None:
        """Pings a silent peer, and sends a heartbeat if one is due."""
        if self._silence_seconds and self._asked_at < self._received_at:
            if self.now >= self._received_at + self._silence_seconds / 2:
                self._asked_at = self.now
                self.send(c.ConnectionPing(respond=True))
        super().beat()

    def send_heartbeat(self) -> None:
        """Sends a PING without requesting an answer."""
        self.send(c.ConnectionPing())

    # --- frames -----------------------------------------------------------------------------------

    def read(self, octets: bytes) -> None:
        """Handles the commands that are complete."""
        try:
            self._read_frames(octets)
        except PeerError as error:
            self.fail(error)

    def _read_frames(self, octets: bytes) -> None:
        at, end, wanted = 0, len(octets), 2
        if self.phase is Opening.START:
            at = self.read_start(octets)
            if not at:
                self._keep(octets, 0, 2)
                return
        while end - at >= 2 and self.phase is not MachinePhase.CLOSED:
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
        if self.phase is not MachinePhase.CLOSED:
            self._input.keep(octets, at, wanted)

    def _find_frame(self, octets: bytes, at: int, end: int) -> tuple[int, int] | int:
        """Returns a frame's command and its end, or how many octets are needed for that."""
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
            text = f"a frame of {size} octets; 2 to {self.frame_limit} are accepted"
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
        """Returns how many message octets follow a command's frame."""
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
        """Handles the initiation; returns the offset after it, 0 if it is incomplete."""
        raise NotImplementedError

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles this side's most common commands in runs; returns where it stopped."""
        return at

    def _take(self, command: Command, fragment: bytes) -> None:
        """Handles a command and its message octets."""
        if isinstance(command, c.ConnectionClose):
            self.take_close(command)
            return
        if self.phase is MachinePhase.CLOSING:
            return
        if isinstance(command, c.ConnectionPing):
            if command.respond:
                self.send(c.ConnectionPing())
            return
        handler = self.steps.get((self.phase, type(command)))
        spec = SPEC_OF[type(command)]
        if handler is None or not spec.sender & self.peer:
            text = f"{spec.name} where {self.phase.value} is expected"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CONNECTION)
        if spec.has_fragment:
            handler(self, command, fragment)
        else:
            handler(self, command)

    # --- output -----------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Sends a command."""
        self.output.append(frame(command))

    def overfull(self) -> PeerError:
        """Returns the error that more has arrived than can wait here."""
        text = "more was sent than can wait here"
        return PeerError(Reply.INSUFFICIENT_RESOURCES, text, Level.CONNECTION)

    # --- ends -------------------------------------------------------------------------------------

    def fail(self, error: PeerError) -> None:
        """Closes the connection for a fault of the peer."""
        if self.is_ending:
            return
        condition = condition_of(error.code, error.text)
        if self.phase is MachinePhase.OPENED:
            self.start_close(error.code, str(error))
            self.report_end(condition, False)
            return
        if self.phase is not Opening.START:
            self.send(c.ConnectionClose(error.code, str(error)))
        self.over(condition, False)

    def close(self, condition: Condition | None) -> None:
        """Closes the connection as ordered by the core."""
        if self.is_ending:
            return
        self.start_close(reply_of(condition), words_of(condition))
        self.report_end(condition, False)

    def start_close(self, code: int, text: str) -> None:
        """Sends our close, and awaits the answer."""
        self.flush()
        self.end_channels(None)
        if self.phase is Opening.START:
            self.phase = MachinePhase.CLOSED
            return
        self.await_close()
        self.send(c.ConnectionClose(code, cut_short(text)))

    def take_close(self, close: c.ConnectionClose) -> None:
        """Handles the peer's close: its request, or its answer to ours (§3.2.9)."""
        if self.phase is MachinePhase.CLOSING:
            self.over(None, False)
            return
        self.flush()
        self.end_channels(close)
        self.send(c.ConnectionClose(Reply.OK))
        self.over(condition_of(close.reply_code, close.reply_text, Level.CONNECTION), True)

    def cut_off(self) -> None:
        """Ends all channels: the connection is lost, or the peer at fault."""
        self.end_channels(None)

    def end_channels(self, close: c.ConnectionClose | None) -> None:
        """Ends all channels without sending anything.

        Args:
            close: the peer's, if it closed in order; None: it is gone, or at fault.
        """
