"""The engine of AMQP 1.0: the facade of connection, sessions and links.

Theory of operation. Octets go to the ``greeting`` until frames begin. Each frame is decoded and
dispatched to the module that handles it::

    open close                       connection
    begin end attach detach          attaching    (session, link: the state tables)
    flow                             flowing      (windows: the arithmetic)
    transfer                         incoming
    disposition                      settlement
    SendDeliveries and the like      sending      (outgoing: split and wait)

A module that finds a rule violated raises ``Fault``; the engine turns it into a detach, an end or a
close, and the events that report it to the core. No fault leaves the engine.

Output is delayed where frames can be combined: dispositions and flows are gathered during a turn
and encoded when output is requested, or before a frame that must not overtake them.

Events that a command causes (a message that cannot be sent, congested output) are returned by the
next call that returns events; ``deadline`` lies in the past as long as any is pending.
"""

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from router.errors import DecodeError, MisuseError
from router.model.capabilities import Capabilities, Protocol, shared
from router.model.commands import (
    AbortDelivery,
    AdvertiseWays,
    AttachLink,
    AwaitRecord,
    CloseConnection,
    Command,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RecallDeliveries,
    RefuseLink,
    ReportAttachConfirmed,
    ReportRecorded,
    ReportWaiting,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesAdopted,
    Event,
    OutputPending,
)
from router.model.identity import ContainerId, DeliveryNumber
from router.model.outcome import DeliveryState, TransactionalState
from router.model.terminus import Role
from router.wire.alternatives import FAILOVER_SERVER_LIST
from router.wire.engine import EngineSettings
from router.wire.octets import ReceiveBuffer
from router.wire.runs import Runs
from router.wire.v1_0 import state
from router.wire.v1_0.attaching import Attaching
from router.wire.v1_0.connection import CLOSING, PRODUCT, TRACE, Connection, ConnectionPhase, Step
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.express import Express
from router.wire.v1_0.faults import Fault, Level, Rule
from router.wire.v1_0.flowing import Flowing
from router.wire.v1_0.frames import (
    AMQP,
    HEADER_OCTETS,
    read_frame_header,
)
from router.wire.v1_0.greeting import Greeting, Stage
from router.wire.v1_0.incoming import Receiving
from router.wire.v1_0.link import Link
from router.wire.v1_0.outgoing import Outgoing
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
    decode,
)
from router.wire.v1_0.sending import Sending
from router.wire.v1_0.session import Session
from router.wire.v1_0.session import Step as SessionStep
from router.wire.v1_0.settlement import take_disposition
from router.wire.v1_0.state import ConnectionState

_unpack_header = struct.Struct(">IBBH").unpack_from
"""Size, DOFF, type and channel of a frame (§2.3.1)."""


_TRANSFER = b"\x14"
"""The last octet of a transfer's descriptor in the common encoding (§2.7.5)."""


class Engine10:
    """One connection of AMQP 1.0; implements ``router.wire.engine.Engine``."""

    def __init__(
        self, settings: EngineSettings, express: Express | None = None, *, initial_id: int = 0
    ) -> None:
        """Creates the engine; a dialing engine has output at once.

        Args:
            settings: the engine's settings.
            express: the worker's express lane; None: the worker has none.
            initial_id: the "arbitrary point" (§2.5.6, §2.6.7) where our transfer-ids, delivery-ids
                and delivery-counts begin, 32 bits.
        """
        states = state if express is None else express.states
        self._settings = settings
        self._express = express
        self._state: ConnectionState = states.ConnectionState()
        self._state.owner = self
        self._largest_frame = settings.max_frame_octets
        typical = settings.typical_frame_octets or settings.max_frame_octets
        self._state.max_incoming_frame_octets = min(typical, settings.max_frame_octets)
        self._output = self._state.output
        self._output.high_octets = settings.output_high_octets
        self._output.low_octets = settings.output_low_octets
        self._input = ReceiveBuffer()
        self._runs = Runs()
        self._connection = Connection(settings, self._state)
        self._greeting = Greeting(settings, self._connection)
        self._endpoints = Endpoints(
            settings, self._connection, self._runs, states, express, initial_id
        )
        self._outgoing = Outgoing(self._endpoints)
        self._attaching = Attaching(self._endpoints, self._outgoing)
        self._flowing = Flowing(self._endpoints, self._outgoing)
        self._receiving = Receiving(self._runs, answers_drains=settings.peer_is_trusted_router)
        self._sending = Sending(self._endpoints, self._outgoing)
        self._is_over = False
        self._has_reported_end = False
        self._now = 0.0
        if not settings.is_server:
            self._greeting.dial()

    # --- the face ---------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if events are pending."""
        if self._runs.events or self._endpoints.credit_changes:
            return -math.inf
        deadline = self._connection.deadline
        return None if deadline == math.inf else deadline

    @property
    def carried(self) -> ConnectionState:
        """The state by which a carrier moves the connection's octets."""
        return self._state

    @property
    def finished(self) -> bool:
        """Whether no more input will be read."""
        return self._is_over

    @property
    def output_octets(self) -> int:
        """Number of octets to send."""
        self._flush()
        waiting: int = self._output.octets
        return waiting

    @property
    def input_waits(self) -> bool:
        """Always false: credit and windows limit a peer's input."""
        return False

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait for credit or window and are not yet output."""
        return self._endpoints.waiting_octets

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Handles received octets."""
        if self._is_over:
            return self._take_events()
        self._now = now
        self._connection.record_input(now)
        if self._receiving.overtaken:
            self._receiving.release_lanes()
        state = self._state
        octets = state.take_tail(octets)
        if state.lanes and self._express is not None and not self._input.octets:
            taken = self._express.feed(state, octets, 0, len(octets))
            if taken == len(octets):
                return self._take_events()
            octets = octets[taken:]
        joined = self._input.join(octets)
        state.has_input = self._input.octets > 0
        if joined is not None:
            try:
                self._read(joined)
            except DecodeError as error:
                self._close(Condition(error.condition, error.rule))
            except Fault as fault:
                self._close(fault.condition)
            self._end_turn()
        return self._take_events()

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the stream has ended."""
        self._now = now
        if not self._is_over:
            ended = Condition(CONNECTION_FORCED, "the stream ended without a close")
            self._over(None if self._connection.phase in CLOSING else ended, by_peer=True)
        return self._take_events()

    def peer_left(self) -> None:
        """Never called: there is credit, so input does not wait."""

    def execute(self, command: Command) -> None:
        """Carries out a command.

        Raises:
            MisuseError: if the command is none of this protocol's, or a value in it cannot be
                encoded.
        """
        executor = self._executors.get(type(command))
        if executor is not None:
            if self._connection.phase is ConnectionPhase.OPENED:
                executor(self, command)
                self._watch_output()
        elif isinstance(command, CloseConnection):
            self._execute_close(command)
        else:
            raise MisuseError(f"{type(command).__name__} is no command")

    def data_to_send(self) -> memoryview:
        """Returns the octets to send; ``bytes_sent`` removes them."""
        self._flush()
        shown: memoryview = self._output.peek()
        return shown

    def bytes_sent(self, count: int) -> None:
        """Removes octets that were sent from the output."""
        self._output.consume(count)
        if self._state.is_pending:
            self._watch_output()

    def handle_deadline(self, now: float) -> list[Event]:
        """Sends heartbeats and checks time-outs (§2.4.5)."""
        self._now = now
        try:
            self._connection.tick(now)
        except Fault as fault:
            self._close(fault.condition)
        if self._connection.phase is ConnectionPhase.END and not self._is_over:
            self._over(None, by_peer=False)
        return self._take_events()

    # --- frames -----------------------------------------------------------------------------------

    def _read(self, octets: bytes) -> None:
        """Reads all complete frames; keeps an incomplete one."""
        at = 0
        end = len(octets)
        wanted = HEADER_OCTETS
        greeting = self._greeting
        if greeting.stage is not Stage.FRAMES:
            at, wanted = greeting.read(octets, at, end)
            if greeting.stage is Stage.REFUSED:
                self._over(greeting.refusal, greeting.is_by_peer)
        if greeting.stage is Stage.FRAMES:
            at, wanted = self._read_frames(octets, at, end)
        if not (self._is_over or self._state.keep_tail(octets, at)):
            self._input.keep(octets, at, wanted)
            self._state.has_input = self._input.octets > 0

    def _read_frames(self, octets: bytes, at: int, end: int) -> tuple[int, int]:
        """Reads complete frames in order; common frames take the shortcuts."""
        state = self._state
        receiving, endpoints = self._receiving, self._endpoints
        while not self._is_over:
            if state.is_open:
                if self._express is not None and state.lanes and not endpoints.awaits_core:
                    at = self._express.feed(state, octets, at, end)
                if octets[at + 10 : at + 11] == _TRANSFER:
                    after = receiving.take_run(state, octets, at, end)
                    if after != at:
                        at = after
                        continue  # the next link's run may follow
            if end - at < HEADER_OCTETS:
                return at, HEADER_OCTETS
            size, doff, kind, channel = _unpack_header(octets, at)
            body = at + doff * 4
            after = at + size
            if kind != AMQP or body > after or doff < 2 or size > self._largest_frame:
                read_frame_header(octets, at, end, self._largest_frame)
                raise Fault(Rule.FRAME_TYPE)
            if after > end:
                return at, size
            if body != after:
                self._read_frame(octets, at, channel, body, after)
            at = after
        return at, HEADER_OCTETS

    def _read_frame(self, octets: bytes, at: int, channel: int, body: int, after: int) -> None:
        """Reads the frame in [``at``, ``after``), whose body is not empty."""
        if not self._state.is_open and self._connection.phase in CLOSING:
            self._discard_frame(octets, body, after)
            return
        performative, payload_at = decode(octets, body, after)
        handler = self._handlers.get(type(performative))
        if handler is None:
            self._take_connection_frame(channel, performative)
            return
        session = self._find_session(channel)
        if not session.state.is_open and type(performative) is not End:
            session.step(SessionStep.R_FRAME)
            return
        try:
            handler(self, channel, session, performative, octets[payload_at:after])
        except Fault as fault:
            self._contain(session, fault)
        else:
            if type(performative) is Transfer:
                self._receiving.learn(session, performative, octets[at:payload_at])

    def _find_session(self, channel: int) -> Session:
        """Returns the session that a frame belongs to."""
        if self._connection.phase is not ConnectionPhase.OPENED:
            self._connection.step(Step.R_FRAME)
        found = self._state.sessions.get(channel)
        if found is None:
            self._check_channel(channel)
            raise Fault(Rule.CHANNEL_UNMAPPED, f"channel {channel}")
        session: Session = found.owner
        return session

    def _check_channel(self, channel: int) -> None:
        if channel > self._settings.channel_max:
            limit = f"limits.sessions_per_connection: {self._settings.channel_max + 1}"
            raise Fault(Rule.CHANNEL_MAX, f"channel {channel}; {limit}")

    def _discard_frame(self, octets: bytes, body: int, after: int) -> None:
        """Looks for the peer's close among frames that follow our close (§2.4.6, DISCARDING)."""
        try:
            performative, _ = decode(octets, body, after)
        except DecodeError:
            return
        if isinstance(performative, Close):
            self._over(None, by_peer=False)
        elif isinstance(performative, Open):
            self._connection.step(Step.R_OPEN)

    def _contain(self, session: Session, fault: Fault) -> None:
        """Ends the link, session or connection that a fault concerns."""
        level = fault.rule.level
        if level is Level.CONNECTION:
            raise fault
        self._settle_up()
        link = fault.link
        if level is Level.LINK and isinstance(link, Link) and link.is_live:
            # Unsettled deliveries survive a delivery that merely came too early (§2.6.5).
            closed = fault.rule is not Rule.INCOMPLETE_UNSETTLED
            self._attaching.detach(link, closed, fault.condition)
        elif session.state.is_open:
            self._attaching.end(session, fault.condition)

    def _take_connection_frame(self, channel: int, performative: object) -> None:
        match performative:
            case Open():
                self._connection.receive_open(channel, performative, self._now)
                self._open(performative)
            case Begin():
                self._connection.step(Step.R_FRAME)
                self._check_channel(channel)
                self._attaching.receive_begin(channel, performative)
            case Close(error=error):
                self._check_channel(channel)
                self._settle_up()
                self._connection.receive_close()
                self._over(error, by_peer=True)
            case _:
                raise Fault(Rule.FRAME_TYPE, type(performative).__name__.lower())

    def _apply_terms(self, remote: Open) -> None:
        """Applies the terms of the peer, whose identity is now known, to the settings."""
        settings = self._settings
        if settings.terms is None:
            return
        terms = settings.terms(self._greeting.user, remote.hostname)
        channel_max = min(settings.channel_max, terms.sessions - 1)
        if channel_max < settings.channel_max or terms.is_router:
            self._settings = self._connection.settings = attrs.evolve(
                settings, channel_max=channel_max, peer_is_trusted_router=terms.is_router
            )

    def _open(self, remote: Open) -> None:
        self._apply_terms(remote)
        if self._connection.phase is ConnectionPhase.OPEN_RCVD:
            self._connection.send_open()
        product = (remote.properties or {}).get("product")
        is_router = self._settings.peer_is_trusted_router and product == PRODUCT
        offers_trace = self._settings.is_router and TRACE in remote.offered_capabilities
        traces = is_router or offers_trace
        self._receiving.reads_annotations = self._flowing.reads_ways = traces
        self._receiving.believes_keys = is_router
        self._receiving.releases_late = not self._connection.forgets_late
        self._outgoing.is_router = traces
        self._runs.add(
            ConnectionOpened(
                container=ContainerId(remote.container_id),
                hostname=remote.hostname,
                user=self._greeting.user,
                capabilities=shared(
                    Capabilities(
                        protocol=Protocol.AMQP_1_0,
                        settles_second=self._connection.settles_second,
                        resumes_links=is_router,
                        streams=True,
                        express=self._express is not None,
                        is_router=is_router,
                        is_neighbor=offers_trace,
                        is_site=self._settings.is_mesh,
                        releases_unroutable=True,
                        annotates=True,
                        names_links=True,
                        writes_urls=True,
                        filters=True,
                        accepts_links=True,
                        drains=self._connection.drains,
                        frame_octets=self._state.max_frame_octets,
                    )
                ),
                properties=remote.properties or {},
                alternatives=(remote.properties or {}).get(FAILOVER_SERVER_LIST),
            )
        )

    # --- frames of sessions -----------------------------------------------------------------------

    def _on_attach(self, channel: int, session: Session, attach: Attach, payload: bytes) -> None:
        self._settle_up()
        self._attaching.receive_attach(session, attach)

    def _on_detach(self, channel: int, session: Session, detach: Detach, payload: bytes) -> None:
        state = session.state.links.get(detach.handle)
        if state is None:
            raise Fault(Rule.HANDLE_UNKNOWN, f"handle {detach.handle}")
        self._settle_up()
        self._attaching.receive_detach(state.owner, detach)

    def _on_flow(self, channel: int, session: Session, flow: Flow, payload: bytes) -> None:
        self._receiving.report_gathered()
        self._flowing.receive_flow(session, flow)

    def _on_transfer(
        self, channel: int, session: Session, transfer: Transfer, payload: bytes
    ) -> None:
        self._receiving.take(session, transfer, payload)

    def _on_disposition(
        self, channel: int, session: Session, disposition: Disposition, payload: bytes
    ) -> None:
        if isinstance(disposition.state, TransactionalState):
            raise Fault(Rule.TRANSACTION)
        self._receiving.report_gathered()
        if self._express is not None and session.state.rings is not None:
            self._evict(self._express, session, disposition)
        take_disposition(session, disposition, self._report_update)

    def _evict(self, express: Express, session: Session, disposition: Disposition) -> None:
        """Takes over deliveries whose disposition the express lane does not handle."""
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        is_outgoing = disposition.role is Role.RECEIVER
        pairs = express.evict(session.state, is_outgoing, first, last)
        if pairs:
            self._runs.add(DeliveriesAdopted(pairs))

    def _report_update(
        self, link: Link, numbers: list[DeliveryNumber], state: DeliveryState | None, settled: bool
    ) -> None:
        if link.is_asking:
            self._endpoints.confirm_attach(link)
        self._runs.update(link.link, numbers, state, settled)
        if settled and self._endpoints.suspended:
            self._attaching.settled(link)

    def _on_end(self, channel: int, session: Session, end: End, payload: bytes) -> None:
        self._settle_up()
        self._attaching.receive_end(channel, session, end)

    # --- ends -------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Reports gathered events and renews windows at the end of a turn."""
        receiving = self._receiving
        receiving.report_gathered()
        if receiving.touched:
            for session in receiving.touched:
                if session.state.is_open:
                    self._flowing.renew(session)
                    if not session.settling_received.is_empty:
                        self._endpoints.due[session] = None
            receiving.touched.clear()

    def _execute_detach(self, command: DetachLink) -> None:
        self._settle_up()
        self._attaching.execute_detach(command)

    def _execute_close(self, command: CloseConnection) -> None:
        if self._connection.phase in CLOSING:
            return
        self._settle_up()
        self._attaching.lose_all()
        self._connection.send_close(command.condition)
        if self._connection.phase is ConnectionPhase.END:
            self._over(None, by_peer=False)

    def _close(self, condition: Condition) -> None:
        """Closes the connection because of a fault found here."""
        if self._connection.phase in CLOSING:
            self._over(None, by_peer=False)
            return
        self._settle_up()
        self._attaching.lose_all()
        self._connection.send_close(condition)
        self._report_end(condition, by_peer=False)
        if self._connection.phase is ConnectionPhase.END:
            self._is_over = True

    def _over(self, condition: Condition | None, by_peer: bool) -> None:
        """Stops reading, and reports the end of the connection."""
        self._attaching.lose_all()
        self._is_over = True
        self._connection.end()
        self._report_end(condition, by_peer)

    def _report_end(self, condition: Condition | None, by_peer: bool) -> None:
        if not self._has_reported_end:
            self._has_reported_end = True
            self._runs.add(ConnectionClosed(condition, by_peer))

    # --- output -----------------------------------------------------------------------------------

    def _settle_up(self) -> None:
        """Reports and encodes everything gathered, before a frame that must not overtake it."""
        self._receiving.report_gathered()
        if self._express is not None and self._state.lanes:
            self._express.flush()
        self._flush()

    def _flush(self) -> None:
        """Encodes gathered dispositions and flows."""
        due = self._endpoints.due
        if not due or not self._state.is_open:
            return
        for session in due:
            if session.can_send:
                session.send_dispositions()
                self._flowing.flush(session)
        due.clear()

    def _watch_output(self) -> None:
        """Reports to the core when output becomes congested and when it has drained."""
        settings = self._settings
        octets = self._output.octets + self._endpoints.waiting_octets
        if self._state.is_pending:
            if octets <= settings.output_low_octets:
                self._state.is_pending = False
                self._runs.add(OutputPending(False))
        elif octets >= settings.output_high_octets:
            self._state.is_pending = True
            self._runs.add(OutputPending(True))

    def _take_events(self) -> list[Event]:
        if self._endpoints.credit_changes:
            self._endpoints.report_credit()
        self._endpoints.awaits_core = False
        return self._runs.take()

    _handlers: ClassVar[Mapping[type, Callable[["Engine10", int, Session, Any, bytes], None]]] = {
        Attach: _on_attach,
        Detach: _on_detach,
        Flow: _on_flow,
        Transfer: _on_transfer,
        Disposition: _on_disposition,
        End: _on_end,
    }
    _executors: ClassVar[Mapping[type, Callable[["Engine10", Any], None]]] = {
        SendDeliveries: lambda self, command: self._sending.send(command),
        UpdateDeliveries: lambda self, command: self._sending.update(command),
        GrantCredit: lambda self, command: self._flowing.grant(command),
        AdvertiseWays: lambda self, command: self._flowing.advertise_ways(command),
        ReportWaiting: lambda self, command: self._flowing.report_waiting(command),
        RecallDeliveries: lambda self, command: self._flowing.recall(command),
        ContinueDelivery: lambda self, command: self._sending.proceed(command),
        AbortDelivery: lambda self, command: self._sending.abort(command),
        ReturnCredit: lambda self, command: self._flowing.give_back(command),
        HoldWindow: lambda self, command: self._flowing.hold(command),
        AttachLink: lambda self, command: self._attaching.attach(command),
        RefuseLink: lambda self, command: self._attaching.refuse(command),
        DetachLink: _execute_detach,
        ReportAttachConfirmed: lambda self, command: self._flowing.report_attach_confirmed(command),
        AwaitRecord: lambda self, command: self._flowing.await_record(command),
        ReportRecorded: lambda self, command: self._flowing.report_recorded(command),
    }
