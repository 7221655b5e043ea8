"""The interface of all protocol engines (ARCHITECTURE.md, "One face over five protocols").

An engine is one connection's protocol machine. It never does I/O, never reads a clock, never logs
and never raises for a peer's fault: octets and time go in, events and octets come out.

Order of use, by the owner of the socket::

    events = engine.receive_data(view, now)     # or receive_eof, or handle_deadline
    for order in core.handle(...): other_engine.execute(order)
    view = engine.data_to_send(); n = socket.send(view); engine.bytes_sent(n)

``data_to_send`` returns octets and ``bytes_sent`` removes them: unconfirmed octets are returned
again. There may be output after any call, on any engine. When ``finished`` becomes true, the owner
sends the remaining output and closes the socket.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol as Interface

import attrs

from router.model.commands import Command
from router.model.events import Event
from router.model.identity import LinkId
from router.model.place import Alternative
from router.wire.carrier import Carried
from router.wire.sasl import SaslClient, SaslServer


class Engine(Interface):
    """One connection's protocol machine."""

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due, on the clock of ``now``; None: never."""

    @property
    def finished(self) -> bool:
        """Whether the connection is over and no more input will be read."""

    @property
    def output_octets(self) -> int:
        """Number of octets to send, including gathered output that is not encoded yet."""

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait for the peer's credit or window to become output."""

    @property
    def input_waits(self) -> bool:
        """Whether the owner should not read from the peer for now, because too much waits here.

        Only engines of protocols without credit return True. It changes with octets and commands.
        """

    @property
    def carried(self) -> Carried | None:
        """The state by which a carrier moves octets; None: only the owner of the socket can."""

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Handles received octets; the caller may reuse ``octets`` after the return."""

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the peer will send no more, orderly or not."""

    def peer_left(self) -> None:
        """Records that the peer has ended its stream, though what it sent is not all read yet.

        Called while ``input_waits``. Whatever the peer alone may use is free from now on.
        """

    def execute(self, command: Command) -> None:
        """Carries out a command.

        A command for a link or delivery that the peer has ended meanwhile is ignored.

        Raises:
            MisuseError: the command is invalid in any state, a defect of ours.
        """

    def data_to_send(self) -> memoryview:
        """Returns octets to send, perhaps not all; empty if there are none."""

    def bytes_sent(self, count: int) -> None:
        """Removes the first ``count`` octets returned by ``data_to_send``."""

    def handle_deadline(self, now: float) -> list[Event]:
        """Does what is due: heartbeats, idle time-outs, unanswered closes."""


@attrs.frozen(kw_only=True)
class PeerTerms:
    """Settings for one peer, once its identity is known.

    Attributes:
        is_router: a trusted router: its annotations are believed.
        sessions: most sessions at a time.
        channels: most channels of 0-9-1 and its draft.
        knows_vhost: the requested virtual host exists; for protocols before AMQP 1.0.
    """

    is_router: bool = False
    sessions: int = 65536
    channels: int = 65535
    knows_vhost: bool = True


@attrs.frozen(kw_only=True)
class EngineSettings:
    """Settings of an engine.

    Attributes:
        is_server: we accepted the connection; otherwise we dialed.
        container: our container-id.
        link_ids: generator of ``LinkId`` numbers, shared by all engines of a worker.
        life: unique id of the process, over all workers and times; part of the generated
            container-ids of clients without one, which must be unique.
        hostname: virtual host to request when we dial.
        max_frame_octets: largest frame that we accept (open.max-frame-size), 512 or more.
        typical_frame_octets: larger frames are rare, and are read off the fast path; 0: none are.
        channel_max: highest channel that we accept, i.e. sessions minus one.
        own_sessions: most sessions that we begin ourselves, over AMQP 1.0; None: some for each
            direction, as far as the peer allows.
        basic_channel_max: highest channel of 0-9-1 and its draft, which number them from 1.
        handle_max: highest handle that we accept per session, i.e. links minus one.
        idle_seconds: silence after which the peer is given up; half of it is advertised. 0 = never.
        handshake_seconds: how long the peer may take until its open is complete.
        session_window_frames: incoming-window, in transfer frames, that is kept open (§2.5.6).
        output_high_octets, output_low_octets: marks of ``OutputPending``.
        sasl_server: authenticates a dialing peer; None: the peer may connect without SASL.
        sasl_required: a dialing peer must use SASL.
        passwords_allowed: a dialing peer may be offered PLAIN: the transport is encrypted, or the
            configuration allows it. If false, no protocol offers PLAIN.
        sasl_client: our authentication when we dial; None: no SASL layer.
        properties: for our open frame, keyed by symbol.
        alternatives: other places of our container, which a dialing peer is told.
        is_redirectable: when we dial, the peer may redirect us (0-10: ``insist`` is not set).
        peer_is_trusted_router: whether all router annotations of this peer are believed.
        is_router: we route, and advertise it; stops of deliveries are sent to routers alone.
        is_mesh: the connection is one between routers of a mesh.
        terms: returns the settings for a dialing peer, by its authenticated identity and requested
            virtual host; None: no others than these.
        memory: shared by all engines of a worker: state that a protocol keeps inside its engines
            for peers that reconnect.
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
    own_sessions: int | None = None
    basic_channel_max: int = 2047
    handle_max: int = 4095
    idle_seconds: float = 120.0
    handshake_seconds: float = 15.0
    session_window_frames: int = 4096
    output_high_octets: int = 1 << 20
    output_low_octets: int = 1 << 18
    sasl_server: Callable[[], SaslServer] | None = None
    sasl_required: bool = False
    passwords_allowed: bool = True
    sasl_client: Callable[[], SaslClient] | None = None
    properties: Mapping[str, object] = attrs.field(factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    is_redirectable: bool = False
    peer_is_trusted_router: bool = False
    is_router: bool = False
    is_mesh: bool = False
    terms: Callable[[str | None, str | None], PeerTerms] | None = None
    memory: dict[str, object] = attrs.field(factory=dict, eq=False, repr=False)
    expiry_seconds: int = 3600
