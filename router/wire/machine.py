"""A connection of a protocol before AMQP 1.0: its turns, signs of life, congestion and end.

Theory of operation. 0-9-1 (with its draft), 0-10 and AMQP/Fast each have a machine of their own
for frames, handshake and faults (``machine`` in the folder of each); what those have in common is
here. Octets come in *turns*: what is complete is read, the turn is ended once for all of it, and
what the core has to hear is returned. Phases, of all of them::

    steps of the handshake: a table of the protocol's own    -> OPENED
    any        we found a fault, or were told to close       -> CLOSING
    any        peer's close, answered; the stream's end      -> CLOSED
    CLOSING    the answer, or CLOSE_SECONDS have passed      -> CLOSED

The core hears of the connection's end once: when it begins. Behind our close nothing is looked at
but what ends the connection.

Signs of life. If nothing was sent for ``beat_seconds``, a heartbeat is. A peer of which nothing was
heard for ``silence_seconds`` is given up; not as long as it is we who do not read.

These protocols have little or no credit to withhold. So what cannot be handed on waits here, and
when that is much the socket is not read (``input_waits``); and the core is told when output piles
up.

Events that a command brings about wait for the next call that returns events; ``deadline`` lies in
the past as long as any wait.
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
"""How long an answer to our close is awaited; peers that are gone would hold the socket."""

HELD_STOP_OCTETS: Final = 4 << 20
"""What waits here to be handed on before reading stops. It goes on when half of it is gone."""

HELD_LIMIT_OCTETS: Final = 64 << 20
"""Where the connection is closed: whoever owns the socket did not stop reading."""


class MachinePhase(enum.Enum):
    """What a connection waits for that is past its handshake; until then, a step of that."""

    OPENED = "anything"
    CLOSING = "the answer to our close"
    CLOSED = "nothing"


Steps: TypeAlias = Mapping[tuple[enum.Enum, type], Callable[..., None]]
"""Phase, and what comes → the method that handles it; what is absent is forbidden."""

Handlers: TypeAlias = Mapping[type, Callable[..., None]]
"""What comes → the method that handles it; what is absent may not come.

Tables are class attributes, written behind the methods that they name, and hold plain functions:
one table serves all instances. A class that overrides a method in a table has a table of its own
that names the override."""


class ConnectionMachine:
    """One connection, seen from either side.

    Attributes:
        settings: what it was told.
        phase: a ``MachinePhase``, or a step of the protocol's handshake, whose value words what is
            due.
        runs: events that wait.
        now: time of the call that is under way, or was last.
        output: what is to be sent.
        gives_up_at: when something has taken too long: the handshake, the answer to our close.
        parked_octets: payload that will be output and is not yet; it counts as congestion.
    """

    def __init__(self, settings: EngineSettings, phase: enum.Enum) -> None:
        self.settings = settings
        self.phase = phase
        self.runs = Runs()
        self.now = 0.0
        self.output = SendBuffer()
        self.gives_up_at = math.inf
        self.parked_octets = 0
        self._input = ReceiveBuffer()
        self._beat_seconds = 0.0
        self._beat_at = math.inf
        self._beat_sent = -1
        self._silence_seconds = 0.0
        self._received_at = 0.0
        self._is_timed = False
        self._has_told_end = False
        self._is_congested = False
        self._held = 0
        self._is_full = False
        self._spent: set[LinkId] = set()

    # --- what the protocol has to say -------------------------------------------------------------

    def read(self, octets: bytes) -> None:
        """Handles what has come, keeps what is not complete, and closes for what is not right."""
        raise NotImplementedError

    def send_heartbeat(self) -> None:
        """Sends what has no other meaning than that we are there."""
        raise NotImplementedError

    def cut_off(self) -> None:
        """Ends all that the connection carries without a word to the peer."""
        raise NotImplementedError

    def overfull(self) -> Exception:
        """Words that more has come than can wait here."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes what was gathered to be joined."""

    def on_time(self, now: float) -> None:
        """Does what one side alone has to do by time."""

    def end_turn(self) -> None:
        """Does what is done once for all that a receive brings."""
        self.watch_output()

    # --- the face ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if events wait."""
        if self.runs.events:
            return -math.inf
        deadline = min(self._beat_at, self.gives_up_at)
        if self._silence_seconds:
            deadline = min(deadline, self._received_at + self._silence_seconds)
        return None if deadline == math.inf else deadline

    @property
    def finished(self) -> bool:
        """Whether nothing will be read any more."""
        return self.phase is MachinePhase.CLOSED

    @property
    def carried(self) -> None:
        """Nothing: the express lane speaks AMQP 1.0 alone."""

    @property
    def input_waits(self) -> bool:
        """Whether the socket should not be read: what waits here is enough."""
        return (self._is_full or bool(self._spent)) and self.phase is MachinePhase.OPENED

    @property
    def output_octets(self) -> int:
        """How many octets wait to be sent."""
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
        if self.phase is MachinePhase.CLOSED:
            return self.runs.take()
        if self.input_waits:
            self._received_at = now  # nobody listens, so silence proves nothing
        if now >= self.gives_up_at:
            self.give_up_waiting()
        elif self._silence_seconds and now >= self._received_at + self._silence_seconds:
            silent = f"nothing was heard for {self._silence_seconds:g} s"
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
        """Begins to send and expect signs of life by an agreed heartbeat; 0: neither.

        It is looked at twice within its time, and a peer that is silent for twice its time is gone.
        """
        self.keep_alive(seconds / 2, 2 * seconds)

    def keep_alive(self, beat_seconds: float, silence_seconds: float) -> None:
        """Begins to send signs of life and to expect them.

        Args:
            beat_seconds: how long nothing is sent before a heartbeat is; 0: none is wanted.
            silence_seconds: how long nothing is heard before the peer is given up; 0: for ever.
        """
        self._beat_seconds = beat_seconds
        self._silence_seconds = silence_seconds
        if beat_seconds:
            self._beat_at = self.now + beat_seconds

    def beat(self) -> None:
        """Sends a sign of life if one is due and nothing else was sent meanwhile."""
        if self.now < self._beat_at:
            return
        sent = self.output.sent + self.output.octets
        if sent == self._beat_sent:
            self.send_heartbeat()
            sent = self.output.sent + self.output.octets
        self._beat_sent = sent
        self._beat_at = self.now + self._beat_seconds

    def give_up_waiting(self) -> None:
        """Ends what waits too long: the handshake, or our close."""
        self.gives_up_at = math.inf
        if self.phase is MachinePhase.CLOSING:
            self.over(None, False)
        elif self.phase is not MachinePhase.OPENED:
            seconds = self.settings.handshake_seconds
            late = f"no {self.phase.value} within {seconds:g} s"
            self.over(Condition(RESOURCE_LIMIT_EXCEEDED, late), False)

    # --- congestion -------------------------------------------------------------------------------

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
            Exception: ``overfull``'s: it is too much.
        """
        self._held += octets
        if self._held > HELD_STOP_OCTETS:
            self._is_full = True
        elif 2 * self._held <= HELD_STOP_OCTETS:
            self._is_full = False
        if octets > 0 and self._held > HELD_LIMIT_OCTETS:
            raise self.overfull()

    def stop_reading(self, inlet: Inlet) -> None:
        """Reads no further: an inlet has brought what the core wants no more of."""
        self._spent.add(inlet.link)

    def go_on_reading(self, inlet: Inlet) -> None:
        """Reads on if that was all that an inlet stood in the way with."""
        if not inlet.is_spent:
            self._spent.discard(inlet.link)

    def forget_spent(self, inlet: Inlet) -> None:
        """Reads on: an inlet is no more."""
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
        """Answers a link that the core asks for and that cannot be."""
        self.refuse_attach(command)
        self.runs.add(LinkDetached(command.link, True, condition))

    # --- ends -------------------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether the core has heard, or is about to, that the connection ends."""
        return self.phase in (MachinePhase.CLOSING, MachinePhase.CLOSED)

    def made_up_name(self, name: str) -> str:
        """Returns a container-id for a peer that has none: no peer of any worker has it, or had."""
        return f"{name}#{self.settings.life}{next(self.settings.link_ids)}"

    def opened(self) -> None:
        """Records that the handshake is over."""
        self.phase = MachinePhase.OPENED
        self.gives_up_at = math.inf

    def close(self, condition: Condition | None) -> None:
        """Closes the connection on the core's word."""
        raise NotImplementedError

    def await_close(self) -> None:
        """Waits for the answer to our close, and for no other thing."""
        self.phase = MachinePhase.CLOSING
        self.gives_up_at = self.now + CLOSE_SECONDS

    def over(self, condition: Condition | None, by_peer: bool) -> None:
        """Reads nothing any more."""
        if self.phase is not MachinePhase.CLOSING:
            self.cut_off()
        self.phase = MachinePhase.CLOSED
        self._silence_seconds = 0.0
        self._beat_at = self.gives_up_at = math.inf
        self.tell_end(condition, by_peer)

    def tell_end(self, condition: Condition | None, by_peer: bool) -> None:
        """Tells the core, once, that the connection ends."""
        if not self._has_told_end:
            self._has_told_end = True
            self.runs.add(ConnectionClosed(condition, by_peer))
