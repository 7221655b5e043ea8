"""What a worker keeps for each connection beside its engine."""

import enum
import math
import socket
from collections.abc import Callable

import attrs

from router.model.condition import Condition
from router.model.events import ConnectionOpened
from router.model.identity import ConnectionId
from router.net.allowance import Talk
from router.net.tls_stream import TlsStream
from router.net.transcript import Held, Transcript
from router.wire.carrier import Carried
from router.wire.engine import Engine


class Stage(enum.Enum):
    """How far the end of a connection has come; see ``dataplane`` for who moves it."""

    OPEN = "open"
    FINISHING = "finishing"
    LINGERING = "lingering"
    GONE = "gone"


@attrs.define(eq=False, kw_only=True, weakref_slot=False)
class Connection:
    """One connection of a worker.

    Attributes:
        address: the peer's, for people.
        listener: where it came in; None if we dialed.
        container: the configured container that we dialed, else the peer's container-id once it
            is known.
        since: when it came to the data plane, on the clock of ``now``.
        opened_at: when its open was complete; None: not yet.
        interest: what the poller watches its socket for.
        is_unwatched: the poller ignores its socket for a while.
        saw_end: the peer's end of the stream has come.
        has_left: it is known to come, behind what is yet to be read.
        is_dirty: it waits for the end of the turn, to have its output sent.
        is_deadline_stale: something has happened that may have brought its deadline nearer.
        woken_at: the last deadline of its engine; infinity: none.
        stream: TLS on its socket; None: the socket itself is read and written.
        carried: what its engine shares with a carrier, if one moves octets past the data plane.
        is_uncarried: a carrier may move octets once it stays here.
        transcript: what has passed, as long as it may be handed to another worker.
        held: another worker is asked to take it over; nothing is read and sent meanwhile.
        condition: why it ended; None as well if orderly or not at all yet.
        failure: why it ended, if not by protocol: a phrase about the socket, or a defect of ours.
        by_peer: the peer gave the condition.
        talk: what it has said that moved nothing.
        has_moved: it has moved payload since it last talked long.
        slice_octets: of its input, handled before the next look at the clock.
        brings_runs: a process of ours is at its other end, and sends payload in long runs.
        read_octets, written_octets: through the socket so far, but for TLS and what was carried.
        on_end: called once, after the core has been informed of the end.
        on_open: called when its open is complete.
        on_failed_login: called once if the peer could not log in; gives when it is to hear of it.
        answers_at: when it is; None: it could log in, or has not tried.
    """

    id: ConnectionId
    engine: Engine
    socket: socket.socket
    address: str
    listener: str | None
    container: str | None
    since: float
    on_end: Callable[["Connection"], None] | None
    on_failed_login: Callable[["Connection", float], float] | None = None
    on_open: Callable[[ConnectionOpened], None] | None = None
    answers_at: float | None = None
    stage: Stage = Stage.OPEN
    opened_at: float | None = None
    interest: int = 0
    is_unwatched: bool = False
    saw_end: bool = False
    has_left: bool = False
    is_dirty: bool = False
    is_deadline_stale: bool = True
    woken_at: float = math.inf
    stream: TlsStream | None = None
    carried: Carried | None = None
    is_uncarried: bool = False
    transcript: Transcript | None = None
    held: Held | None = None
    talk: Talk = attrs.field(factory=Talk)
    has_moved: bool = False
    slice_octets: int = 4096
    brings_runs: bool = False
    read_octets: int = 0
    written_octets: int = 0
    condition: Condition | None = None
    failure: str | None = None
    by_peer: bool = False

    @property
    def octets_in(self) -> int:
        """Octets that have been received so far."""
        if self.stream is not None:
            return self.stream.octets_in
        return self.read_octets + (0 if self.carried is None else self.carried.octets_in)

    @property
    def octets_out(self) -> int:
        """Octets that have been sent so far."""
        if self.stream is not None:
            return self.stream.octets_out
        return self.written_octets + (0 if self.carried is None else self.carried.octets_out)
