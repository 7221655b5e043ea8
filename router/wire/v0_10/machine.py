"""A connection of 0-10: frames, assemblies, handshake and errors, the common part of both sides.

Theory of operation. Turns, heartbeats, congestion and the end are common to all protocols
(``router.wire.machine``). Octets become frames, frames segments, segments assemblies
(``assembling``). Controls of class connection move the connection's phase by a table (``steps`` of
each side); all others go to the session of their channel. A peer's mistake is raised where it is
found and caught only here: a ``SessionFaultError`` ends its session, a ``ConnectionFaultError`` the
connection. Earlier frames in the same octets have been handled by then.

Phases, and what moves them (C: the client's control, S: the server's)::

    server                                          client
    HEADER     C: protocol header  -> START_OK      HEADER       S: protocol header -> START
    START_OK   C: start-ok         -> SECURE_OK     START        S: start      -> NEGOTIATING
                                   or TUNE_OK       NEGOTIATING  S: secure     -> NEGOTIATING
    SECURE_OK  C: secure-ok        -> the same                   S: tune       -> OPEN_OK
    TUNE_OK    C: tune-ok          -> OPEN          OPEN_OK      S: open-ok    -> OPENED
    OPEN       C: open             -> OPENED                     S: redirect   -> CLOSED

In CLOSING all controls but ``close`` and ``close-ok`` are ignored.
"""

import enum
from typing import Any, ClassVar, Final

from router.errors import DecodeError
from router.model.condition import Condition
from router.wire.engine import EngineSettings
from router.wire.machine import ConnectionMachine, MachinePhase, Steps
from router.wire.v0_10 import records as r
from router.wire.v0_10.assembling import MAX_ASSEMBLY_OCTETS, Assembling
from router.wire.v0_10.codec import Sender, decode_control, encode_control
from router.wire.v0_10.framing import (
    BODY,
    COMMAND,
    CONTROL,
    FIRST_FRAME,
    FIRST_SEGMENT,
    FRAME,
    FRAME_OCTETS,
    HEADER,
    LAST_FRAME,
    LAST_SEGMENT,
    MAX_FRAME_MAX,
    MIN_FRAME_MAX,
    PROTOCOL_HEADER,
    assembly,
)
from router.wire.v0_10.reply import (
    CloseCode,
    ConnectionFaultError,
    SessionFaultError,
    close_code,
    close_condition,
    framing_error,
    short_text,
)
from router.wire.v0_10.session import Session

PRODUCT: Final = "router"

GATHER_LIMIT_OCTETS: Final = MAX_ASSEMBLY_OCTETS
"""Octets of incomplete assemblies on all channels at which the connection is closed."""

_HEAD_FRAME: Final = FIRST_SEGMENT | FIRST_FRAME | LAST_FRAME
_HEADER_FRAME: Final = FIRST_FRAME | LAST_FRAME
_BODY_FRAME: Final = LAST_SEGMENT | FIRST_FRAME | LAST_FRAME
"""Flags of the frames of a transfer with three frames at most."""


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
        sessions: by channel, those that are attached or being attached.
        frame_max: octets of the largest frame that the peer accepts.
        frame_limit: octets of the largest frame that we accept: the negotiated one, once there is
            one.
        channel_max: the highest channel number, as negotiated.
        reports_links: each link's end is reported to the core; not if the connection's end implies
            it.
        dirty: sessions with gathered output.
        is_seeking: no input is handled until other workers have answered.
    """

    steps: ClassVar[Steps] = {}
    """Phase and control → handler; others are forbidden."""

    peer: ClassVar[Sender]
    """Which side the peer is."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings, Opening.HEADER)
        self.sessions: dict[int, Session] = {}
        self.frame_max = MIN_FRAME_MAX
        self.frame_limit = min(max(settings.max_frame_octets, MIN_FRAME_MAX), MAX_FRAME_MAX)
        self.channel_max = min(settings.channel_max, 0xFFFF)
        self.dirty: dict[Session, None] = {}
        self.reports_links = True
        self.is_seeking = False
        self._assemblies: dict[tuple[int, int], Assembling] = {}
        self._gathered = 0

    @property
    def input_waits(self) -> bool:
        """Whether the socket should not be read: too much waits here, or a session is sought."""
        return super().input_waits or (self.is_seeking and self.phase is MachinePhase.OPENED)

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait for the peer's credit."""
        return sum(session.waiting_octets for session in self.sessions.values())

    # --- frames -----------------------------------------------------------------------------------

    def read(self, octets: bytes) -> None:
        """Handles the frames that are complete."""
        try:
            self._read_frames(octets)
        except ConnectionFaultError as fault:
            self.fail(fault)

    def _read_frames(self, octets: bytes) -> None:
        at, end, wanted = 0, len(octets), FRAME_OCTETS
        if self.phase is Opening.HEADER:
            at = self._read_header(octets)
            if not at:
                return
        unpack = FRAME.unpack_from
        while (
            end - at >= FRAME_OCTETS
            and self.phase is not MachinePhase.CLOSED
            and not self.is_seeking
        ):
            flags, kind, size, _, track, channel = unpack(octets, at)
            if not FRAME_OCTETS <= size <= self.frame_limit:
                raise framing_error(
                    f"a frame of {size} octets; at most {self.frame_limit} are accepted"
                )
            if flags >> 6 or kind > BODY or track & 0x0F > COMMAND:
                raise framing_error(f"a frame with octets {flags:#04x} {kind:#04x} {track:#04x}")
            if end - at < size:
                wanted = size
                break
            if flags == _HEAD_FRAME and kind == COMMAND:
                after = self._take_whole(octets, at, end)
                if after != at:
                    at = after
                    continue
            self._take_frame(flags, kind, track & 0x0F, channel, octets[at + 12 : at + size])
            at += size
        if self.phase is not MachinePhase.CLOSED:
            self._input.keep(octets, at, wanted)

    def read_on(self) -> None:
        """Handles the input received while other workers were asked; called outside of a receive.

        Raises:
            ConnectionFaultError: the peer violated a rule.
        """
        self.is_seeking = False
        waiting = self._input.join(b"")
        if waiting:
            self._read_frames(waiting)

    def _take_whole(self, octets: bytes, at: int, end: int) -> int:
        """Handles a transfer of exactly three frames; returns ``at`` if it is another."""
        if self.phase is not MachinePhase.OPENED or self._assemblies:
            return at
        unpack = FRAME.unpack_from
        _, _, size, _, track, channel = unpack(octets, at)
        header_at = at + size
        if end - header_at < FRAME_OCTETS or track != COMMAND:
            return at
        place = (0, track, channel)
        flags, kind, size, *found = unpack(octets, header_at)
        if (flags, kind, *found) != (_HEADER_FRAME, HEADER, *place) or size < FRAME_OCTETS:
            return at
        body_at = header_at + size
        if end - body_at < FRAME_OCTETS or size > self.frame_limit:
            return at
        flags, kind, size, *found = unpack(octets, body_at)
        after: int = body_at + size
        if (flags, kind, *found) != (_BODY_FRAME, BODY, *place) or size < FRAME_OCTETS:
            return at
        if after > end or size > self.frame_limit:
            return at
        self.take_command(
            channel,
            octets[at + FRAME_OCTETS : header_at],
            octets[header_at + FRAME_OCTETS : body_at],
            octets[body_at + FRAME_OCTETS : after],
        )
        return after

    def _read_header(self, octets: bytes) -> int:
        """Handles the protocol header; returns the offset after it, 0 if it is incomplete."""
        header = octets[: len(PROTOCOL_HEADER)]
        if len(header) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(header[:4]):
            self._input.keep(octets, 0, len(PROTOCOL_HEADER))
            return 0
        if header != PROTOCOL_HEADER:
            self.refuse_header(header)
            return 0
        self.take_header()
        return len(header)

    def refuse_header(self, header: bytes) -> None:
        """Handles a header of another protocol or version."""
        raise NotImplementedError

    def take_header(self) -> None:
        """Handles the peer's protocol header."""
        raise NotImplementedError

    def _take_frame(self, flags: int, kind: int, track: int, channel: int, payload: bytes) -> None:
        place = (channel, track)
        assembling = self._assemblies.get(place)
        if assembling is None:
            assembling = Assembling(track)
        if not assembling.take(flags, kind, payload):
            self._assemblies[place] = assembling
            self.check_channel(channel)
            self._gathered += len(payload)
            if self._gathered > GATHER_LIMIT_OCTETS:
                raise framing_error(f"assemblies of more than {GATHER_LIMIT_OCTETS} octets")
            return
        if self._assemblies.pop(place, None) is not None:
            self._gathered += len(payload) - assembling.octets
        if track == CONTROL:
            self._take_control(channel, assembling.head)
        elif self.phase is MachinePhase.OPENED:
            self.take_command(channel, assembling.head, assembling.header, assembling.body)
        elif self.phase is not MachinePhase.CLOSING:
            raise framing_error(f"a command where {self.phase.value} is expected")

    def check_channel(self, channel: int) -> None:
        """Refuses a channel number beyond the limit, before anything is gathered for it."""
        if channel > self.channel_max:
            raise framing_error(f"channel {channel}, channel-max is {self.channel_max}")

    # --- controls ---------------------------------------------------------------------------------

    def _take_control(self, channel: int, octets: bytes) -> None:
        try:
            found = decode_control(octets, from_client=self.peer is Sender.CLIENT)
        except DecodeError as error:
            if self.phase is MachinePhase.CLOSING:
                return
            raise framing_error(error.rule) from error
        if found is None:
            if self.phase is MachinePhase.CLOSING:
                return
            raise framing_error(f"control {octets[0]}.{octets[1]} is none")
        spec, control = found
        if self.phase is MachinePhase.CLOSING:
            self._look_for_close(control)
        elif not spec.sender & self.peer:
            raise framing_error(f"{spec.record.__name__} is not for this side to get")
        elif spec.class_code == 1:
            self._take_connection_control(control)
        elif self.phase is not MachinePhase.OPENED:
            raise framing_error(f"{spec.record.__name__} where {self.phase.value} is expected")
        else:
            self.check_channel(channel)
            self.take_session_control(channel, control)

    def _take_connection_control(self, control: Any) -> None:
        match control:
            case r.ConnectionClose():
                self.take_close(control)
            case r.ConnectionHeartbeat():
                pass
            case _:
                handler = self.steps.get((self.phase, type(control)))
                if handler is None:
                    what = type(control).__name__
                    raise framing_error(f"{what} where {self.phase.value} is expected")
                handler(self, control)

    def take_session_control(self, channel: int, control: Any) -> None:
        """Handles a control of class session."""
        raise NotImplementedError

    def take_command(self, channel: int, head: bytes, header: bytes | None, body: bytes) -> None:
        """Handles a command with its content for the session of its channel."""
        session = self.sessions.get(channel)
        if session is None or not session.is_attached:
            self.check_channel(channel)
            self.not_attached(channel)
            return
        try:
            session.receive(head, header, body)
        except SessionFaultError as fault:
            self.fault(fault, session)

    def not_attached(self, channel: int) -> None:
        """Answers input for a channel without a session (session.detached, 3)."""
        raise NotImplementedError

    # --- output -----------------------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Sends a heartbeat."""
        self.send_control(0, r.ConnectionHeartbeat())

    def send_control(self, channel: int, control: r.Control) -> None:
        """Sends a control on a channel."""
        octets = encode_control(control)
        self.output.append(assembly(CONTROL, channel, octets, self.frame_max))

    def flush(self) -> None:
        """Writes the gathered output of sessions."""
        if self.dirty:
            dirty, self.dirty = self.dirty, {}
            for session in dirty:
                session.flush()

    def overfull(self) -> ConnectionFaultError:
        """Describes that more has arrived than can wait here."""
        return ConnectionFaultError(
            CloseCode.CONNECTION_FORCED, "more was transferred than can wait here"
        )

    # --- ends -------------------------------------------------------------------------------------

    def fault(self, fault: SessionFaultError, session: Session) -> None:
        """Ends a session for a fault of the peer."""
        session.fail(fault)

    def fail(self, fault: ConnectionFaultError) -> None:
        """Closes the connection for a fault of the peer."""
        if self.is_ending:
            return
        self.start_close(fault.code, fault.text)
        self.report_end(close_condition(fault.code, fault.text), False)

    def close(self, condition: Condition | None) -> None:
        """Closes the connection as ordered by the core."""
        if self.is_ending:
            return
        text = "" if condition is None else condition.description or condition.name
        self.start_close(close_code(condition), text)
        self.report_end(condition, False)

    def start_close(self, code: CloseCode, text: str) -> None:
        """Sends our close, and awaits the answer."""
        self.flush()
        self.end_sessions(is_orderly=False)
        if self.phase is Opening.HEADER:
            self.phase = MachinePhase.CLOSED
            return
        self.await_close()
        self.send_control(0, r.ConnectionClose(code, short_text(text)))

    def take_close(self, close: r.ConnectionClose) -> None:
        """Handles the peer's close."""
        self.flush()
        condition = close_condition(close.reply_code, close.reply_text)
        self.end_sessions(is_orderly=condition is None)
        self.send_control(0, r.ConnectionCloseOk())
        self.over(condition, True)

    def _look_for_close(self, control: Any) -> None:
        """Looks for close and close-ok among input that follows our close."""
        if isinstance(control, r.ConnectionClose):
            self.send_control(0, r.ConnectionCloseOk())
        elif isinstance(control, r.ConnectionCloseOk):
            self.over(None, False)

    def over(self, condition: Condition | None, by_peer: bool) -> None:
        """Stops reading."""
        super().over(condition, by_peer)
        self._assemblies.clear()

    def cut_off(self) -> None:
        """Detaches every session: the connection is lost, or the peer at fault."""
        self.end_sessions(is_orderly=False)

    def end_sessions(self, *, is_orderly: bool) -> None:
        """Detaches every session from the connection, without sending anything.

        Args:
            is_orderly: the peer closed without a fault, so its deliveries can be returned.
        """
        self.reports_links = is_orderly
        self.is_seeking = False
        for session in list(self.sessions.values()):
            session.cut()
        self.sessions.clear()
        self.dirty.clear()

    def free_session(self, session: Session) -> None:
        """Records that a channel no longer carries its session."""
        if self.sessions.get(session.channel) is session:
            del self.sessions[session.channel]
        self.dirty.pop(session, None)

    def partial(self, channel: int) -> tuple[bytes, bytes] | None:
        """Returns the incomplete command of a channel: its head, and the part of its body."""
        found = self._assemblies.get((channel, COMMAND))
        return None if found is None else (found.head, found.arrived)

    def drop_assembly(self, channel: int) -> None:
        """Discards an incomplete command that will not be continued (session.gap)."""
        dropped = self._assemblies.pop((channel, COMMAND), None)
        if dropped is not None:
            self._gathered -= dropped.octets
