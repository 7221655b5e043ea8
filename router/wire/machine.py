"""The common part of connections of protocols before AMQP 1.0: turns, heartbeats, congestion, end.

Theory of operation. 0-9-1 (with its draft), 0-10 and AMQP/Fast each have a machine of their own for
frames, handshake and faults (``machine`` in the folder of each); this is the common part. Octets
are
handled in *turns*: all complete frames are read, the turn is ended once for all of them, and the
events are returned. Phases, common to all::

    steps of the handshake: a table of the protocol          -> OPENED
    any        a fault was found, or close was ordered       -> CLOSING
    any        peer's close, answered; the stream's end      -> CLOSED
    CLOSING    the answer, or CLOSE_SECONDS have passed      -> CLOSED

The end of the connection is reported to the core once, when it begins. After our close all input is
ignored except what ends the connection.

Heartbeats. If nothing was sent for ``beat_seconds``, a heartbeat is sent. A peer that was silent
for ``silence_seconds`` is given up, but not while we do not read.

These protocols have little or no credit. So what cannot be handed on is held here, and when it is
too much the socket is not read (``input_waits``); congested output is reported to the core.

Events that a command causes are returned by the next call that returns events; ``deadline`` lies in
the past as long as any is pending.
"""

import enum
import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from router.model.commands import AttachLink
from router.model.condition import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import (
    ConnectionClosed,
    Event,
    LinkAttached,
    LinkDetached,
    OutputPending,
)
from router.model.identity import LinkId
from router.wire.engine import EngineSettings
from router.wire.inlets import Inlet
from router.wire.octets import ReceiveBuffer, SendBuffer
from router.wire.runs import Runs

CLOSE_SECONDS: Final = 5.0
"""How long the answer to our close is awaited; a peer that is gone would hold the socket."""

HELD_STOP_OCTETS: Final = 4 << 20
"""Held octets at which reading stops. It resumes when half of them are handed on."""

HELD_LIMIT_OCTETS: Final = 64 << 20
"""Held octets at which the connection is closed: its owner did not stop reading."""


class MachinePhase(enum.Enum):
    """Phases after the handshake; until then the phase is a step of the handshake."""

    OPENED = "anything"
    CLOSING = "the answer to our close"
    CLOSED = "nothing"


Steps: TypeAlias = Mapping[tuple[enum.Enum, type], Callable[..., None]]
"""Phase and type of input → the method that handles it; others are forbidden."""

Handlers: TypeAlias = Mapping[type, Callable[..., None]]
"""Type of input → the method that handles it; others are not allowed.

Tables are class attributes, defined after the methods that they name, and hold plain functions: one
table serves all instances. A class that overrides a method in a table has a table of its own that
names the override."""


class ConnectionMachine:
    """One connection, on either side.

    Attributes:
        settings: the engine's settings.
        phase: a ``MachinePhase``, or a step of the protocol's handshake, whose value describes what
            is awaited.
        runs: pending events.
        now: time of the current call, or of the last one.
        output: octets to be sent.
        gives_up_at: time limit of the handshake, or of the answer to our close.
        parked_octets: payload that is not output yet; it counts as congestion.
        has_left: the peer has ended its stream, and what it sent before is yet to be read.
    """

    def __init__(self, settings: EngineSettings, phase: enum.Enum) -> None:
        self.settings = settings
        self.phase = phase
        self.runs = Runs()
        self.now = 0.0
        self.output = SendBuffer()
        self.gives_up_at = math.inf
        self.parked_octets = 0
        self.has_left = False
        self._input = ReceiveBuffer()
        self._beat_seconds = 0.0
        self._beat_at = math.inf
        self._beat_sent = -1
        self._silence_seconds = 0.0
        self._received_at = 0.0
        self._is_timed = False
        self._has_reported_end = False
        self._is_congested = False
        self._held = 0
        self._is_full = False
        self._spent: set[LinkId] = set()

    # --- what the protocol has to say -------------------------------------------------------------

    def read(self, octets: bytes) -> None:
        """Handles complete input, keeps an incomplete rest, and closes on a fault."""
        raise NotImplementedError

    def send_heartbeat(self) -> None:
        """Sends a heartbeat."""
        raise NotImplementedError

    def cut_off(self) -> None:
        """Ends everything on the connection without sending anything."""
        raise NotImplementedError

    def overfull(self) -> Exception:
        """Returns the error that more has arrived than can wait here."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes the gathered output."""

    def on_time(self, now: float) -> None:
        """Does what one side alone does by time."""

    def end_turn(self) -> None:
        """Does what is done once per receive."""
        self.watch_output()

    # --- the face ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if events are pending."""
        if self.runs.events:
            return -math.inf
        deadline = min(self._beat_at, self.gives_up_at)
        if self._silence_seconds:
            deadline = min(deadline, self._received_at + self._silence_seconds)
        return None if deadline == math.inf else deadline

    @property
    def finished(self) -> bool:
        """Whether no more input will be read."""
        return self.phase is MachinePhase.CLOSED

    @property
    def carried(self) -> None:
        """None: the express lane supports AMQP 1.0 alone."""

    @property
    def input_waits(self) -> bool:
        """Whether the socket should not be read, because too much waits here."""
        return (self._is_full or bool(self._spent)) and self.phase is MachinePhase.OPENED

    @property
    def output_octets(self) -> int:
        """Number of octets to send."""
        self.flush()
        return self.output.octets

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Handles received octets."""
        self._set_time(now)
        if self.phase is MachinePhase.CLOSED:
            return self.runs.take()
        self._received_at = now
        joined = self._input.join(octets)
        if joined is not None:
            self.read(joined)
            self.end_turn()
        return self.runs.take()

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the stream has ended."""
        self._set_time(now)
        if self.phase is not MachinePhase.CLOSED:
            self.over(Condition(CONNECTION_FORCED, "the stream ended without a close"), True)
        return self.runs.take()

    def peer_left(self) -> None:
        """Records that the peer will not be back on this connection."""
        self.has_left = True

    def data_to_send(self) -> memoryview:
        """Returns the octets to send."""
        self.flush()
        return self.output.peek()

    def bytes_sent(self, count: int) -> None:
        """Removes octets that were sent."""
        self.output.consume(count)
        if self._is_congested:
            self.watch_output()

    def handle_deadline(self, now: float) -> list[Event]:
        """Does what is due."""
        self._set_time(now)
        if self.phase is MachinePhase.CLOSED:
            return self.runs.take()
        if self.input_waits:
            self._received_at = now  # we do not read, so silence proves nothing
        if now >= self.gives_up_at:
            self.give_up_waiting()
        elif self._silence_seconds and now >= self._received_at + self._silence_seconds:
            silent = f"no input for {self._silence_seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, silent), False)
        else:
            self.beat()
        self.on_time(now)
        self.end_turn()
        return self.runs.take()

    # --- time -------------------------------------------------------------------------------------

    def _set_time(self, now: float) -> None:
        self.now = now
        if not self._is_timed:
            self._is_timed = True
            self._received_at = now
            self.gives_up_at = now + self.settings.handshake_seconds

    def start_heartbeat(self, seconds: float) -> None:
        """Begins to send and expect heartbeats at the negotiated interval; 0: neither.

        It is checked twice per interval, and a peer that is silent for two intervals is given up.
        """
        self.keep_alive(seconds / 2, 2 * seconds)

    def keep_alive(self, beat_seconds: float, silence_seconds: float) -> None:
        """Begins to send and expect heartbeats.

        Args:
            beat_seconds: after how long without output a heartbeat is sent; 0: none.
            silence_seconds: after how long without input the peer is given up; 0: never.
        """
        self._beat_seconds = beat_seconds
        self._silence_seconds = silence_seconds
        if beat_seconds:
            self._beat_at = self.now + beat_seconds

    def beat(self) -> None:
        """Sends a heartbeat if one is due and nothing else was sent meanwhile."""
        if self.now < self._beat_at:
            return
        sent = self.output.sent + self.output.octets
        if sent == self._beat_sent:
            self.send_heartbeat()
            sent = self.output.sent + self.output.octets
        self._beat_sent = sent
        self._beat_at = self.now + self._beat_seconds

    def give_up_waiting(self) -> None:
        """Ends overdue waits: the handshake, or our close."""
        self.gives_up_at = math.inf
        if self.phase is MachinePhase.CLOSING:
            self.over(None, False)
        elif self.phase is not MachinePhase.OPENED:
            seconds = self.settings.handshake_seconds
            late = f"no {self.phase.value} within {seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, late), False)

    # --- congestion -------------------------------------------------------------------------------

    def watch_output(self) -> None:
        """Reports to the core when output becomes congested and when it has drained."""
        octets = self.output.octets + self.parked_octets
        if self._is_congested:
            if octets <= self.settings.output_low_octets:
                self._is_congested = False
                self.runs.add(OutputPending(False))
        elif octets >= self.settings.output_high_octets:
            self._is_congested = True
            self.runs.add(OutputPending(True))

    def hold_octets(self, octets: int) -> None:
        """Adds octets that cannot be handed on yet to the count; negative: subtracts them.

        Raises:
            Exception: that of ``overfull``: there are too many.
        """
        self._held += octets
        if self._held > HELD_STOP_OCTETS:
            self._is_full = True
        elif 2 * self._held <= HELD_STOP_OCTETS:
            self._is_full = False
        if octets > 0 and self._held > HELD_LIMIT_OCTETS:
            raise self.overfull()

    def stop_reading(self, inlet: Inlet) -> None:
        """Stops reading: an inlet has reached the limit of the core."""
        self._spent.add(inlet.link)

    def go_on_reading(self, inlet: Inlet) -> None:
        """Resumes reading if no inlet is at its limit."""
        if not inlet.is_spent:
            self._spent.discard(inlet.link)

    def forget_spent(self, inlet: Inlet) -> None:
        """Resumes reading: an inlet is gone."""
        self._spent.discard(inlet.link)

    # --- links ------------------------------------------------------------------------------------

    def refuse_attach(self, command: AttachLink) -> None:
        """Answers an attach without a terminus; the reason follows in a detach (§2.6.3)."""
        self.runs.add(
            LinkAttached(
                link=command.link,
                name=command.name,
                role=command.role,
                is_answer=True,
                source=None,
                target=None,
            )
        )

    def decline(self, command: AttachLink, condition: Condition) -> None:
        """Refuses a link that the core requests and that is not possible."""
        self.refuse_attach(command)
        self.runs.add(LinkDetached(command.link, True, condition))

    # --- ends -------------------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether the end of the connection has been, or is about to be, reported to the core."""
        return self.phase in (MachinePhase.CLOSING, MachinePhase.CLOSED)

    def made_up_name(self, name: str) -> str:
        """Returns a container-id for a peer without one, unique over all workers and times."""
        return f"{name}#{self.settings.life}{next(self.settings.link_ids)}"

    def opened(self) -> None:
        """Records that the handshake is over."""
        self.phase = MachinePhase.OPENED
        self.gives_up_at = math.inf

    def close(self, condition: Condition | None) -> None:
        """Closes the connection as ordered by the core."""
        raise NotImplementedError

    def await_close(self) -> None:
        """Awaits the answer to our close, and nothing else."""
        self.phase = MachinePhase.CLOSING
        self.gives_up_at = self.now + CLOSE_SECONDS

    def over(self, condition: Condition | None, by_peer: bool) -> None:
        """Stops reading."""
        if self.phase is not MachinePhase.CLOSING:
            self.cut_off()
        self.phase = MachinePhase.CLOSED
        self._silence_seconds = 0.0
        self._beat_at = self.gives_up_at = math.inf
        self.report_end(condition, by_peer)

    def report_end(self, condition: Condition | None, by_peer: bool) -> None:
        """Reports the end of the connection to the core, once."""
        if not self._has_reported_end:
            self._has_reported_end = True
            self.runs.add(ConnectionClosed(condition, by_peer))
