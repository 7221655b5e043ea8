"""The face that every protocol engine shows (ARCHITECTURE.md, "One face over five protocols").

An engine is one connection's protocol machine. It never does I/O, never reads a clock, never
logs and never raises for what a peer did: octets and time go in, events and octets come out.

Order of use, by whoever owns the socket::

    events = engine.receive_data(view, now)     # or receive_eof, or handle_deadline
    for order in core.handle(...): other_engine.execute(order)
    view = engine.data_to_send(); n = socket.send(view); engine.bytes_sent(n)

``data_to_send`` shows, ``bytes_sent`` forgets: what was not confirmed is shown again. Output may
be waiting after any call, on any engine. When ``finished`` turns true, the owner sends what is
left and closes the socket.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol as Interface

import attrs

from router.model.commands import Command
from router.model.events import Event
from router.model.identity import LinkId
from router.wire.carrier import Carried
from router.wire.sasl import SaslClient, SaslServer


class Engine(Interface):
    """One connection's protocol machine."""

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called, on the clock of ``now``; None: never."""

    @property
    def finished(self) -> bool:
        """Whether the connection is over and nothing will be read from it any more."""

    @property
    def output_octets(self) -> int:
        """How many octets wait to be sent; what is gathered and not written yet counts, too."""

    @property
    def waiting_octets(self) -> int:
        """How many octets of payload wait for the peer's credit or window to become output."""

    @property
    def input_waits(self) -> bool:
        """Whether the owner should not read from the peer for now: what waits here is enough.

        Only engines of protocols without credit ever say so. It changes with octets and commands.
        """

    @property
    def carried(self) -> Carried | None:
        """What a carrier moves its octets by, past its owner; None: only its owner can."""

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Takes octets in; ``octets`` may be reused by the caller as soon as this returns."""

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the peer will send no more, orderly or not."""

    def execute(self, command: Command) -> None:
        """Carries out a command.

        A command for a link or delivery that has meanwhile ended on the peer's word is ignored.

        Raises:
            MisuseError: the command makes no sense from any state, a defect of ours.
        """

    def data_to_send(self) -> memoryview:
        """Shows octets to send, perhaps not all that wait; empty if there are none."""

    def bytes_sent(self, count: int) -> None:
        """Forgets the first ``count`` octets shown by ``data_to_send``."""

    def handle_deadline(self, now: float) -> list[Event]:
        """Does what time asks for: heartbeats, idle time-outs, unanswered closes."""


@attrs.frozen(kw_only=True)
class PeerTerms:
    """What an engine is told of one peer once it is known who that is.

    Attributes:
        is_router: a router of ours: its annotations are believed.
        sessions: that it may have at a time.
        channels: of 0-9-1 and its draft, likewise.
        knows_vhost: the virtual host that it asks for is one; protocols before AMQP 1.0 tell that.
    """

    is_router: bool = False
    sessions: int = 65536
    channels: int = 65535
    knows_vhost: bool = True


@attrs.frozen(kw_only=True)
class EngineSettings:
    """What an engine is told when it is made.

    Attributes:
        is_server: we accepted the connection; otherwise we dialed.
        container: our container-id.
        link_ids: shared by all engines of a worker; hands out ``LinkId`` numbers.
        life: of the process, like no other of any worker at any time; part of the names that are
            made up for clients without a container-id, which must not be taken for each other.
        hostname: virtual host to ask for when we dial.
        max_frame_octets: largest frame we take (open.max-frame-size), 512 or more.
        typical_frame_octets: larger frames are rare, and are read off the fast path; 0: none are.
        channel_max: highest channel we take, i.e. sessions minus one.
        basic_channel_max: highest channel of 0-9-1 and its draft, which number them from 1.
        handle_max: highest handle we take per session, i.e. links minus one.
        idle_seconds: silence after which we give the peer up; half of it is what we advertise.
            0 = never.
        handshake_seconds: how long the peer may take until its open is complete.
        session_window_frames: incoming-window, in transfer frames, that we keep open (§2.5.6).
        output_high_octets, output_low_octets: marks of ``OutputPending``.
        sasl_server: checks a dialing peer; None: the peer may come without SASL.
        sasl_required: a dialing peer must go through SASL.
        passwords_allowed: a dialing peer may be offered PLAIN: nobody on the way can read along,
            or the file allows it. Where it is false no protocol offers it on its own account.
        sasl_client: how we identify when we dial; None: no SASL layer.
        properties: for our open frame, keyed by symbol.
        peer_is_trusted_router: whether all router annotations of this peer are believed.
        is_router: we route, and tell peers so; what has passed a router is told to routers alone.
        terms: gives what holds for a dialing peer, by its authenticated identity and the virtual
            host that it asks for; None: nothing but what stands here.
        memory: shared by all engines of a worker: what a protocol keeps inside its engines for
            peers that come back on another connection.
        expiry_seconds: longest time that anything is kept for an absent peer.
    """

    is_server: bool
    container: str
    link_ids: Iterator[LinkId] = attrs.field(factory=lambda: map(LinkId, itertools.count(1)))
    life: str = ""
    hostname: str | None = None
    max_frame_octets: int = 65536
    typical_frame_octets: int = 0
    channel_max: int = 255
    basic_channel_max: int = 2047
    handle_max: int = 4095
    idle_seconds: float = 120.0
    handshake_seconds: float = 15.0
    session_window_frames: int = 512
    output_high_octets: int = 1 << 20
    output_low_octets: int = 1 << 18
    sasl_server: Callable[[], SaslServer] | None = None
    sasl_required: bool = False
    passwords_allowed: bool = True
    sasl_client: Callable[[], SaslClient] | None = None
    properties: Mapping[str, object] = attrs.field(factory=dict)
    peer_is_trusted_router: bool = False
    is_router: bool = False
    terms: Callable[[str | None, str | None], PeerTerms] | None = None
    memory: dict[str, object] = attrs.field(factory=dict, eq=False, repr=False)
    expiry_seconds: int = 3600
