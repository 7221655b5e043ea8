"""The connection: headers, open, close, and idle time-outs (§2.2, §2.4).

Theory of operation. ``TRANSITIONS`` is the specification's state diagram (§2.4.6-7) as a table:
frames received and sent move the phase. What has no entry is forbidden: the peer gets a fault, our
own code a ``MisuseError``. Two choices within it:

- a server does not pipeline: our header answers the peer's header, our open the peer's open
  (some clients fail if a server pipelines its open);
- a client sends header and open at once (§2.4.2), within the 512 octets and on the channel 0 that
  every peer accepts.

After our close all input is discarded until the peer's close, or until ``CLOSE_SECONDS`` have
passed. A fault that is found before our open was sent sends open and close together, because close
must follow an open.

Time. Each direction has its own idle time-out (§2.4.5). The peer is given up after
``idle_seconds``, and half of that is advertised. Four times within the peer's time-out the machine
checks whether anything was sent, and sends an empty frame if not; so consecutive frames are at most
half of that time-out apart.
"""

import enum
import math
from collections.abc import Mapping
from typing import Final

import attrs

from router.errors import MisuseError
from router.model.condition import Condition
from router.model.terminus import ANONYMOUS_RELAY
from router.wire.alternatives import FAILOVER_SERVER_LIST, as_map
from router.wire.engine import EngineSettings
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.fitting import fitting
from router.wire.v1_0.frames import HEADER_OCTETS, HEARTBEAT, MIN_MAX_FRAME_OCTETS, frame
from router.wire.v1_0.performatives import Close, Open, encode
from router.wire.v1_0.state import ConnectionState

PRODUCT: Final = "router"
"""Our ``product`` in the properties of open; routers recognize each other by it."""

TRACE: Final = "router:trace"
"""Capability that a router offers in its open: it reads and writes the stops of deliveries."""

CLOSE_SECONDS: Final = 5.0
"""How long the answer to our close is awaited; a peer that is gone would hold the socket."""

SHORTEST_IDLE_MILLISECONDS: Final = 10
"""A shorter idle time-out of a peer is refused: this machine's timers are not precise enough."""

LARGEST_FRAME_SENT_OCTETS: Final = 65536
"""Largest frame that we send, whatever the peer accepts, so that links share a connection."""


RABBITMQ: Final = "RabbitMQ"
"""A product whose limits show in no capability: it ends the session of a peer that attaches with
receiver-settle-mode second, and before version 4 its queues may crash the session of a peer that
drains (its issue 7119), and what it sends on a link that is being detached stays with the session,
for nobody, until that ends or the delivery is settled."""


class ConnectionPhase(enum.Enum):
    """The states of a connection endpoint (§2.4.6)."""

    START = "START"
    HDR_RCVD = "HDR_RCVD"
    HDR_SENT = "HDR_SENT"
    HDR_EXCH = "HDR_EXCH"
    OPEN_PIPE = "OPEN_PIPE"
    OC_PIPE = "OC_PIPE"
    OPEN_RCVD = "OPEN_RCVD"
    OPEN_SENT = "OPEN_SENT"
    CLOSE_PIPE = "CLOSE_PIPE"
    OPENED = "OPENED"
    CLOSE_RCVD = "CLOSE_RCVD"
    CLOSE_SENT = "CLOSE_SENT"
    DISCARDING = "DISCARDING"
    END = "END"


class Step(enum.Enum):
    """What moves a connection: R_ is received, S_ is sent."""

    R_HEADER = "R:HDR"
    S_HEADER = "S:HDR"
    R_OPEN = "R:OPEN"
    S_OPEN = "S:OPEN"
    R_FRAME = "R:frame of a session"
    R_CLOSE = "R:CLOSE"
    S_CLOSE = "S:CLOSE"
    S_CLOSE_ERROR = "S:CLOSE(error)"


TRANSITIONS: Final[Mapping[tuple[ConnectionPhase, Step], ConnectionPhase]] = {
    (ConnectionPhase.START, Step.R_HEADER): ConnectionPhase.HDR_RCVD,
    (ConnectionPhase.START, Step.S_HEADER): ConnectionPhase.HDR_SENT,
    (ConnectionPhase.HDR_RCVD, Step.S_HEADER): ConnectionPhase.HDR_EXCH,
    (ConnectionPhase.HDR_SENT, Step.R_HEADER): ConnectionPhase.HDR_EXCH,
    (ConnectionPhase.HDR_SENT, Step.S_OPEN): ConnectionPhase.OPEN_PIPE,
    (ConnectionPhase.HDR_EXCH, Step.R_OPEN): ConnectionPhase.OPEN_RCVD,
    (ConnectionPhase.HDR_EXCH, Step.S_OPEN): ConnectionPhase.OPEN_SENT,
    (ConnectionPhase.OPEN_PIPE, Step.R_HEADER): ConnectionPhase.OPEN_SENT,
    (ConnectionPhase.OPEN_PIPE, Step.S_CLOSE): ConnectionPhase.OC_PIPE,
    (ConnectionPhase.OPEN_PIPE, Step.S_CLOSE_ERROR): ConnectionPhase.OC_PIPE,
    (ConnectionPhase.OC_PIPE, Step.R_HEADER): ConnectionPhase.CLOSE_PIPE,
    (ConnectionPhase.CLOSE_PIPE, Step.R_OPEN): ConnectionPhase.DISCARDING,
    (ConnectionPhase.OPEN_RCVD, Step.S_OPEN): ConnectionPhase.OPENED,
    (ConnectionPhase.OPEN_RCVD, Step.R_FRAME): ConnectionPhase.OPEN_RCVD,
    (ConnectionPhase.OPEN_SENT, Step.R_OPEN): ConnectionPhase.OPENED,
    (ConnectionPhase.OPEN_SENT, Step.S_CLOSE): ConnectionPhase.CLOSE_PIPE,
    (ConnectionPhase.OPEN_SENT, Step.S_CLOSE_ERROR): ConnectionPhase.CLOSE_PIPE,
    (ConnectionPhase.OPENED, Step.R_FRAME): ConnectionPhase.OPENED,
    (ConnectionPhase.OPENED, Step.R_CLOSE): ConnectionPhase.CLOSE_RCVD,
    (ConnectionPhase.OPENED, Step.S_CLOSE): ConnectionPhase.CLOSE_SENT,
    (ConnectionPhase.OPENED, Step.S_CLOSE_ERROR): ConnectionPhase.DISCARDING,
    (ConnectionPhase.CLOSE_RCVD, Step.S_CLOSE): ConnectionPhase.END,
    (ConnectionPhase.CLOSE_SENT, Step.R_FRAME): ConnectionPhase.CLOSE_SENT,
    (ConnectionPhase.CLOSE_SENT, Step.R_CLOSE): ConnectionPhase.END,
    (ConnectionPhase.DISCARDING, Step.R_FRAME): ConnectionPhase.DISCARDING,
    (ConnectionPhase.DISCARDING, Step.R_CLOSE): ConnectionPhase.END,
}

_RECEIVED: Final = frozenset((Step.R_HEADER, Step.R_OPEN, Step.R_FRAME, Step.R_CLOSE))

CLOSING: Final = frozenset(
    (
        ConnectionPhase.OC_PIPE,
        ConnectionPhase.CLOSE_PIPE,
        ConnectionPhase.CLOSE_SENT,
        ConnectionPhase.DISCARDING,
        ConnectionPhase.END,
    )
)
"""Phases in which our close has been sent, or is no longer needed."""


def follow(phase: ConnectionPhase, step: Step) -> ConnectionPhase:
    """Returns the next phase (§2.4.7).

    Raises:
        Fault: if the peer may not do that in this phase.
        MisuseError: if we may not.
    """
    following = TRANSITIONS.get((phase, step))
    if following is not None:
        return following
    if step in _RECEIVED:
        raise Fault(Rule.FRAME_STATE, f"{step.value} in {phase.value}")
    raise MisuseError(f"connection: {step.value} in {phase.value}")


@attrs.define(eq=False)
class Connection:
    """One connection endpoint.

    Attributes:
        state: the shared counters (also used by the express lane).
        phase: its state (§2.4.6).
        remote: the peer's open; None before it has arrived.
        drains: the peer can be asked to drain.
        forgets_late: the peer takes back by itself what it has sent on a link that is detached.
        settles_second: the peer supports receiver-settle-mode second, in both directions.
    """

    settings: EngineSettings
    state: ConnectionState
    phase: ConnectionPhase = attrs.field(init=False, default=ConnectionPhase.START)
    remote: Open | None = attrs.field(init=False, default=None)
    drains: bool = attrs.field(init=False, default=True)
    forgets_late: bool = attrs.field(init=False, default=True)
    settles_second: bool = attrs.field(init=False, default=True)
    _started_at: float | None = attrs.field(init=False, default=None)
    _look_at: float = attrs.field(init=False, default=math.inf)
    _look_seconds: float = attrs.field(init=False, default=math.inf)
    _sent_then: int = attrs.field(init=False, default=0)
    _close_is_sent: bool = attrs.field(init=False, default=False)
    _closed_at: float | None = attrs.field(init=False, default=None)

    def step(self, step: Step) -> None:
        """Applies a step by the table; raises as ``follow`` does."""
        self.phase = follow(self.phase, step)
        self.state.is_open = self.phase is ConnectionPhase.OPENED

    def end(self) -> None:
        """Moves to the end from any phase: nothing more is read or written."""
        self.phase = ConnectionPhase.END
        self.state.is_open = False

    # --- open and close ---------------------------------------------------------------------------

    def send_header(self, header: bytes) -> None:
        """Sends a protocol header (§2.2)."""
        self.step(Step.S_HEADER)
        self.state.output.append(header)

    def send_open(self) -> None:
        """Sends our open (§2.7.1)."""
        self.step(Step.S_OPEN)
        settings = self.settings
        offered = (ANONYMOUS_RELAY, TRACE) if settings.is_router else (ANONYMOUS_RELAY,)
        own = Open(
            container_id=settings.container,
            hostname=settings.hostname,
            max_frame_size=settings.max_frame_octets,
            channel_max=settings.channel_max,
            idle_time_out=min(int(settings.idle_seconds * 500), 0xFFFF_FFFF) or None,
            offered_capabilities=offered,
            desired_capabilities=(ANONYMOUS_RELAY,),
            properties=self._properties(),
        )
        body = encode(own)
        # §2.4.1: until the peer's open has arrived, frames have 512 octets at most.
        most = MIN_MAX_FRAME_OCTETS if self.remote is None else self.remote.max_frame_size
        if len(body) + HEADER_OCTETS > most:
            body = encode(attrs.evolve(own, properties={"product": PRODUCT}))
        self.state.output.append(frame(0, body))

    def _properties(self) -> dict[object, object]:
        properties: dict[object, object] = {"product": PRODUCT}
        properties.update(self.settings.properties)
        if self.settings.alternatives:
            properties[FAILOVER_SERVER_LIST] = list(map(as_map, self.settings.alternatives))
        return properties

    def receive_open(self, channel: int, remote: Open, now: float) -> None:
        """Handles the peer's open and applies its limits from now on (§2.4.1)."""
        self.step(Step.R_OPEN)
        if channel != 0:
            raise Fault(Rule.OPEN_CHANNEL, f"channel {channel}")
        if remote.max_frame_size < MIN_MAX_FRAME_OCTETS:
            raise Fault(Rule.MAX_FRAME_SIZE_SMALL, str(remote.max_frame_size))
        idle = remote.idle_time_out or 0
        if 0 < idle < SHORTEST_IDLE_MILLISECONDS:
            raise Fault(Rule.IDLE_TIME_OUT_SHORT, f"{idle} ms")
        self.remote = remote
        properties = remote.properties or {}
        if properties.get("product") == RABBITMQ:
            self.settles_second = False
            self.drains = self.forgets_late = not str(properties.get("version")).startswith("3.")
        self.state.max_frame_octets = min(remote.max_frame_size, LARGEST_FRAME_SENT_OCTETS)
        if idle:
            self._look_seconds = idle / 4000
            self._look_at = now + self._look_seconds
            self._sent_then = self.state.output.sent

    def receive_close(self) -> None:
        """Handles the peer's close; answers it if ours was not the first (§2.4.3)."""
        self.step(Step.R_CLOSE)
        if self.phase is ConnectionPhase.CLOSE_RCVD:
            self.step(Step.S_CLOSE)
            self.state.output.append(frame(0, encode(Close())))

    def send_close(self, condition: Condition | None) -> None:
        """Sends our close; before our open, open and close (§2.4.3).

        Before the exchange of headers the connection just ends. The time for the peer's answer
        begins with the next ``tick``.
        """
        if self.phase in (ConnectionPhase.HDR_EXCH, ConnectionPhase.OPEN_RCVD):
            self.send_open()
        if (self.phase, Step.S_CLOSE) not in TRANSITIONS:
            self.end()
            return
        self.step(Step.S_CLOSE if condition is None else Step.S_CLOSE_ERROR)
        self._close_is_sent = True
        body = fitting(
            lambda error: encode(Close(error)), condition, self.state.max_frame_octets - 8
        )
        self.state.output.append(frame(0, body))

    # --- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When ``tick`` is due; in the past until the clock was first seen."""
        if self.phase is ConnectionPhase.END:
            return math.inf
        if self._started_at is None:
            return -math.inf
        if self._close_is_sent:
            return -math.inf if self._closed_at is None else self._closed_at + CLOSE_SECONDS
        if self.phase is not ConnectionPhase.OPENED:
            return self._started_at + self.settings.handshake_seconds
        idle = self.settings.idle_seconds
        return min(self._look_at, self.state.received_at + idle if idle else math.inf)

    def record_input(self, now: float) -> None:
        """Records that octets have arrived."""
        if self._started_at is None:
            self._started_at = now
        self.state.received_at = now

    def tick(self, now: float) -> None:
        """Sends heartbeats and checks time-outs.

        Raises:
            Fault: if the peer has been silent for too long.
        """
        if self._started_at is None:
            self.record_input(now)
        if now < self.deadline:
            return
        if self._close_is_sent:
            if self._closed_at is None:
                self._closed_at = now
            else:
                self.end()
        elif self.phase is not ConnectionPhase.OPENED:
            raise Fault(Rule.HANDSHAKE, f"{self.settings.handshake_seconds:g} s")
        elif (
            self.settings.idle_seconds
            and now >= self.state.received_at + self.settings.idle_seconds
        ):
            raise Fault(Rule.IDLE, f"{self.settings.idle_seconds:g} s")
        else:
            self._show_life(now)

    def _show_life(self, now: float) -> None:
        output = self.state.output
        if output.sent == self._sent_then and not output.octets:
            output.append(HEARTBEAT)
        self._sent_then = output.sent
        self._look_at = now + self._look_seconds
