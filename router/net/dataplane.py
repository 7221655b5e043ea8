"""The one task of a worker that moves octets between all its sockets.

Theory of operation. The task takes *turns*: it asks the poller which sockets are ready, reads
each of them once (at most ``RECEIVE_OCTETS`` into one shared buffer), has the
switchboard process the input, and at the end of the turn sends once for each connection
whose output has grown. Between waiting and sending nothing is awaited, so no locks are
needed. After ``WORK_SECONDS`` of work it sends what is due and lets Trio's other tasks run. A
second task fires the deadlines of engines and core from one heap.

If the express lane has a *carrier*, the carrier takes the turns: it asks the poller's epoll itself,
and reads and sends for connections as long as they carry the lane's traffic only. It hands all
other sockets over to this task, one by one. When the time for work is up, it goes on by itself if
no other task has anything to do and nothing waits to be sent by this one.

A socket whose send buffer is full is watched for room to write; the rest of its output stays in the
engine, which reports ``OutputPending`` to the core. If a peer keeps asking for output that it never
reads, its own input waits (``OUTPUT_STOP_OCTETS``). Likewise while the engine sets ``input_waits``;
if the peer ends its stream meanwhile, the engine is told (``Engine.peer_left``), and what the peer
sent before is read later.

Long engine work is time-sliced, and control floods are throttled: ``slicing``. Connections that end
at once take turns: ``endings``.

The stages of a connection::

    OPEN       until its engine is finished, or the stream has ended or failed
    FINISHING  the core has been informed; the rest of the output is sent; input is discarded
    LINGERING  our end of the stream is shut; input is thrown away until the peer's end comes,
               so that closing does not reset the stream under the last frame we sent
    GONE       the socket is closed, or another worker has it

    OPEN -> FINISHING        engine finished, end of stream
    OPEN -> GONE             socket error, defect
    FINISHING -> LINGERING   output gone
    FINISHING -> GONE        output gone after the end of stream; socket error; time is up
    LINGERING -> GONE        end of stream, socket error, time is up

The answer to a failed login waits in its engine for as long as ``attempts`` says.

A connection that is *held* (``handing``) is OPEN; nothing is read from it or sent meanwhile. If
another worker takes it over, it is GONE here without a word to the peer.

Other callers (listeners, connectors, admin) run in the same thread between turns, and
each call ends with a flush of its own: a turn always begins with nothing dirty.
"""

import math
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.commands import CloseConnection
from router.model.condition import UNAUTHORIZED_ACCESS, Condition
from router.model.events import ConnectionOpened, OutputPending
from router.model.identity import ConnectionId
from router.net.allowance import Allowance
from router.net.connection import Connection, Stage
from router.net.endings import Endings
from router.net.journal import JournalPort
from router.net.poller import BROKEN, ENDED, READABLE, WRITABLE, Poller
from router.net.slicing import Slicer
from router.net.switchboard import Order, Switchboard
from router.net.timers import Timers
from router.net.tls_stream import TlsStream
from router.net.transcript import Held, Transcript
from router.wire.carrier import Carrier
from router.wire.engine import Engine

RECEIVE_OCTETS: Final = 256 * 1024
"""Read from one connection in one turn, at most; a larger buffer gains nothing."""

TALK_OCTETS: Final = 16 * 1024
"""Read in one turn from a connection that has moved no payload: so a thousand floods wait in
16 MiB."""

WORK_SECONDS: Final = 0.002
"""Work between two chances for other tasks: keeps their delay near this. A chance takes some 0.1 ms
by itself."""

OUTPUT_STOP_OCTETS: Final = 4 << 20
"""Output a connection may have waiting before its own input waits, too. Payload stops much
earlier, at the mark of ``OutputPending``; only answers to a peer that never reads them get this
far."""

FINISH_SECONDS: Final = 10.0
"""Time limit for sending the rest of a connection's output, to a peer that reads slowly."""

HELD_UP_SECONDS: Final = 0.5
"""A reminder that comes so late says that the process was stopped, or had no processor."""

GLANCE_SECONDS: Final = 0.5
"""How long it reads then before what is due is done: peers that went on are not called silent."""

LINGER_SECONDS: Final = 2.0
"""Time that the peer gets to end its stream once it has been sent everything."""


@attrs.define(eq=False)
class DataPlane:
    """Turns over ready sockets.

    Attributes:
        switchboard: engines and core.
        poller: tells which sockets are ready.
        clock: seconds, on the scale of all deadlines.
        journals: journal and archive; they get their records before any output is sent.
        allowance: pays for input that moves nothing, and for newcomers.
        slicer: passes received octets to engines, time-sliced.
        endings: ends connections whose stream is over, time-sliced.
    """

    switchboard: Switchboard
    poller: Poller
    clock: Callable[[], float] = attrs.field(
        factory=lambda: trio.lowlevel.current_clock().current_time
    )
    journals: list[JournalPort] = attrs.field(factory=list, init=False)
    allowance: Allowance = attrs.field(factory=Allowance, init=False)
    slicer: Slicer = attrs.field(init=False)
    endings: Endings = attrs.field(init=False)
    _carrier: Carrier | None = attrs.field(init=False)
    _by_descriptor: dict[int, Connection] = attrs.field(factory=dict, init=False)
    _timers: Timers[Connection | None] = attrs.field(factory=Timers, init=False)
    _alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _buffer: memoryview = attrs.field(
        factory=lambda: memoryview(bytearray(RECEIVE_OCTETS)), init=False
    )
    _yield_at: float = attrs.field(default=0.0, init=False)
    _empty: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _turned: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @slicer.default
    def _make_slicer(self) -> Slicer:
        return Slicer(self.switchboard, self.clock, self.allowance)

    @endings.default
    def _make_endings(self) -> Endings:
        return Endings(self.clock, self._hear_end, self._postpone_end)

    @_carrier.default
    def _make_carrier(self) -> Carrier | None:
        lanes, descriptor = self.switchboard.lanes, self.poller.descriptor
        if lanes is None or descriptor is None:
            return None
        return lanes.make_carrier(descriptor, self._take, self._fail, self.poller.others)

    @property
    def connection_count(self) -> int:
        """How many sockets it holds, connections on their way out included."""
        return len(self._by_descriptor)

    @property
    def has_output(self) -> bool:
        """Whether something waits to be sent on some socket."""
        return any(
            each.engine.output_octets or (each.stream is not None and each.stream.waiting_octets)
            for each in self._by_descriptor.values()
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Turns until cancelled; then every socket is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._fire_timers)
                task_status.started()
                turn = self._turn if self._carrier is None else self._carried_turn
                while True:
                    if not await turn():
                        await self._rest()
        finally:
            for connection in tuple(self._by_descriptor.values()):
                self._end(connection, "the router is shutting down")
            self.poller.close()

    def add(
        self,
        sock: socket.socket,
        engine: Engine,
        *,
        address: str,
        octets: bytes | None = None,
        stream: TlsStream | None = None,
        transcript: Transcript | None = None,
        listener: str | None = None,
        container: str | None = None,
        on_end: Callable[[Connection], None] | None = None,
        on_failed_login: Callable[[Connection, float], float] | None = None,
        on_open: Callable[[ConnectionOpened], None] | None = None,
    ) -> Connection:
        """Adds a connected, non-blocking socket and the engine that serves it.

        Args:
            sock: the socket; closed when the connection has ended.
            engine: its engine.
            address: the peer's address, for people.
            octets: octets already read from the socket, perhaps none; plain ones.
            stream: TLS on that socket; None: it is not encrypted.
            transcript: to be kept; None: the connection stays here in any case.
            listener: name of the listener that accepted it.
            container: name of the configured container that was dialed.
            on_end: called once when the connection is over.
            on_failed_login: called if the peer could not log in; gives when it is to hear of it.
            on_open: called when the connection's open is complete.

        Raises:
            OSError: the system watches no more sockets; the socket is still the caller's.
        """
        now = self.clock()
        connection = Connection(
            id=self.switchboard.next_id(),
            engine=engine,
            socket=sock,
            address=address,
            listener=listener,
            container=container,
            since=now,
            on_end=on_end,
            on_failed_login=on_failed_login,
            on_open=on_open,
            interest=READABLE,
            stream=stream,
            transcript=transcript,
            is_uncarried=True,
        )
        self.poller.add(sock.fileno(), READABLE)
        self._by_descriptor[sock.fileno()] = connection
        if transcript is None:
            self._carry(connection)
        self.switchboard.add(connection)
        if octets is not None:
            connection.read_octets += len(octets)
            self.slicer.read(connection, octets, now)
        if stream is not None:  # what arrived with the handshake is not reported by the poller
            self._receive(connection, now)
            if self.slicer.is_behind(connection):
                self.poller.interrupt()  # no socket may be ready before the rest is read
        self.flush(now)
        return connection

    def _carry(self, connection: Connection) -> None:
        """Has the carrier move a connection's octets, if there is one that can."""
        connection.is_uncarried = False
        stream, carried = connection.stream, connection.engine.carried
        pipe = None if stream is None else stream.pipe
        if self._carrier is not None and carried is not None and (stream is None or pipe):
            connection.carried = carried
            self._carrier.watch(connection.socket.fileno(), carried, pipe)
            carried.interest = connection.interest

    def rehearse(
        self,
        sock: socket.socket,
        engine: Engine,
        spoken: Iterable[tuple[float, bytes | None]],
        *,
        address: str,
        listener: str,
        on_end: Callable[[Connection], None],
    ) -> tuple[Connection, bytes]:
        """Repeats what was said on a connection of another worker, which still has it.

        Nothing is read from the socket or sent. The connection is held until ``take_up`` or
        ``let_go``.

        Args:
            sock: the socket; closed when the connection has ended.
            engine: a fresh engine for it.
            spoken: how many seconds ago octets came, and which; None: a deadline was due.
            address: the peer's address, for people.
            listener: name of the listener that accepted it.
            on_end: called once when the connection is over.

        Returns:
            The connection, and what its engine has said.
        """
        now = self.clock()
        connection = Connection(
            id=self.switchboard.next_id(),
            engine=engine,
            socket=sock,
            address=address,
            listener=listener,
            container=None,
            since=now,
            on_end=on_end,
            is_unwatched=True,
            is_uncarried=True,
        )
        self._by_descriptor[sock.fileno()] = connection
        self.switchboard.add(connection)
        self.switchboard.core.expect(connection.id)
        said = bytearray()
        for age, octets in spoken:
            self.switchboard.repeat(connection, octets, now - age, now)
            while (output := engine.data_to_send()) and connection.failure is None:
                said += output
                length = len(output)
                del output
                engine.bytes_sent(length)
            connection.read_octets += 0 if octets is None else len(octets)
        connection.written_octets = len(said)
        connection.held = Held([])
        self.flush(now)
        return connection, bytes(said)

    def take_up(self, connection: Connection, octets: Iterable[bytes | None]) -> None:
        """Serves a rehearsed connection from now on, beginning with octets received elsewhere."""
        now = self.clock()
        connection.held = connection.transcript = None
        for each in octets:
            if each is None:
                self.switchboard.handle_deadline(connection, now)
            else:
                connection.read_octets += len(each)
                self.slicer.receive(connection, each)
        self._go_on(connection, now)

    def keep(self, connection: Connection) -> None:
        """Goes on with a connection that was held: it stays here."""
        held = connection.held
        if held is None or connection.stage is not Stage.OPEN:
            return
        now = self.clock()
        connection.held = connection.transcript = None
        self.switchboard.hand_in(connection, held.events, now)
        if held.late:
            self.slicer.receive(connection, bytes(held.late))
        self._go_on(connection, now)

    def _go_on(self, connection: Connection, now: float) -> None:
        connection.is_deadline_stale = True
        self.switchboard.touch(connection)
        self.flush(now)
        if self.slicer.is_behind(connection):
            self.poller.interrupt()  # no socket may be ready before the rest is read

    def let_go(self, connection: Connection) -> None:
        """Forgets a held connection that another worker has; the peer hears nothing of it."""
        if connection.stage is not Stage.OPEN:
            return
        now = self.clock()
        self.slicer.forget(connection)
        self.switchboard.lose(connection, now)
        if connection.on_end is not None:
            connection.on_end(connection)
        self._drop(connection)
        self.flush(now)

    async def wait_for_capacity(self) -> None:
        """Returns when there is time for newcomers."""
        allowance = self.allowance
        allowance.settle(self.clock())
        while allowance.is_empty:
            await trio.sleep(allowance.wait_seconds)
            allowance.settle(self.clock())

    def carry_out(self, orders: Iterable[Order]) -> None:
        """Carries out orders that came about outside of a turn, and sends what follows."""
        self.switchboard.carry_out(orders)
        self.flush(self.clock())

    def close(self, connection: Connection, condition: Condition | None = None) -> None:
        """Begins to close a connection by protocol."""
        self.carry_out([(connection.id, CloseConnection(condition))])

    async def wait_empty(self) -> None:
        """Returns when no socket is left."""
        while self._by_descriptor:
            await self._empty.park()

    async def _rest(self) -> None:
        """Waits until a socket is ready, or talkers may go on."""
        allowance = self.allowance
        allowance.rest(self.clock())
        if self.slicer.has_talkers:
            with trio.move_on_after(allowance.wait_seconds):
                await self.poller.wait()
        else:
            await self.poller.wait()
        now = self.clock()
        allowance.work(now)
        self._yield_at = now + WORK_SECONDS

    async def _turn(self) -> bool:
        """Runs a turn; false: nothing was ready."""
        ready = self.poller.poll()
        for descriptor, readiness in ready:
            now = self.clock()
            if now > self._yield_at:
                await self._yield(now)
            self._take(descriptor, readiness, None)
        was_behind = self.slicer.work_off()
        was_behind |= self.endings.work_off()
        if ready or was_behind:
            await self._end_turn()
        return bool(ready) or was_behind

    async def _carried_turn(self) -> bool:
        """Runs a turn with the carrier; false: nothing was ready."""
        carrier = self._carrier
        assert carrier is not None
        is_alone = not (self.slicer.is_busy or self.endings or self.switchboard.dirty)
        was_ready = carrier.turn(self.clock(), self._yield_at, is_alone, self.poller.idle_seconds)
        if carrier.rested:
            self.allowance.rested(carrier.rested)
            self._yield_at += carrier.rested  # others had nothing to do meanwhile
            carrier.rested = 0.0
        was_behind = self.slicer.work_off()
        if not carrier.is_midway:  # on a busy machine, what is ready takes it many turns
            was_behind |= self.endings.work_off()
        if was_ready or was_behind:
            await self._end_turn()
        return was_ready or was_behind

    async def wait_turn(self) -> None:
        """Returns when a turn has done something."""
        await self._turned.park()

    async def _end_turn(self) -> None:
        if self._turned:
            self._turned.unpark_all()
        now = self.clock()
        if now > self._yield_at:
            await self._yield(now)
        else:
            self.flush(now)

    def _take(self, descriptor: int, readiness: int, octets: bytes | None) -> None:
        """Does what a socket is ready for; ``octets`` have been received from it already."""
        connection = self._by_descriptor.get(descriptor)
        if connection is None:  # ended earlier in this turn, or a journal's
            for journal in self.journals:
                if journal.descriptor == descriptor:
                    journal.ready()
            return
        if octets is not None:
            self.slicer.receive(connection, octets)
            return
        if readiness & BROKEN and self.slicer.is_talker(connection):
            self._unwatch(connection)  # it would be told again and again until it is heard
            return
        if readiness & (READABLE | BROKEN):
            self._receive(connection, self.clock())
        elif readiness & ENDED:
            connection.has_left = True
            connection.engine.peer_left()
            self._watch_for(connection, connection.interest & ~ENDED)
        if readiness & WRITABLE:
            connection.is_deadline_stale = True  # output that has gone may be news to the core
            self.switchboard.touch(connection)

    def _fail(self, descriptor: int, error: Exception) -> None:
        """Ends a connection whose socket is broken, or whose engine is."""
        connection = self._by_descriptor.get(descriptor)
        if connection is None:
            return
        if isinstance(error, OSError):
            self.endings.hear(connection, error.strerror or str(error))
        else:
            self.switchboard.fail(connection, error)

    async def _yield(self, now: float) -> float:
        """Sends due output, lets other tasks run if any can, and returns the time after that."""
        self.flush(now)
        if not self.poller.is_alone():
            await trio.lowlevel.checkpoint()
        now = self.clock()
        self._yield_at = now + WORK_SECONDS
        return now

    def _receive(self, connection: Connection, now: float) -> None:
        """Reads a socket once; the octets are discarded once the engine is finished."""
        if self.slicer.is_behind(connection):  # the stream has broken; what came before goes first
            return
        if connection.held is not None:
            return
        stream = connection.stream if connection.stage is Stage.OPEN else None
        is_payload = connection.has_moved or connection.brings_runs
        most = RECEIVE_OCTETS if is_payload else TALK_OCTETS
        try:
            if stream is None:
                count = connection.socket.recv_into(self._buffer[:most])
            else:
                count = self._receive_from(connection, stream, most)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.endings.hear(connection, error.strerror or str(error))
            return
        connection.read_octets += count
        if not count:
            self.endings.hear(connection, None)
        elif connection.stage is Stage.OPEN:
            self.slicer.receive(connection, self._buffer[:count])

    def _receive_from(self, connection: Connection, stream: TlsStream, most: int) -> int:
        """Receives plaintext; what takes time and yields none is charged like other talk."""
        began = self.slicer.busy_clock()
        try:
            count = stream.receive_into(self._buffer, most)
        finally:
            if stream.waiting_octets:  # an answer of TLS itself
                self.switchboard.touch(connection)
            self.slicer.charge(connection, began, most)
        if stream.is_over:
            self.switchboard.touch(connection)
        return count

    def _hear_end(self, connection: Connection, failure: str | None) -> None:
        """Does what the end of a connection's stream, or its failure, asks for."""
        if failure is not None:
            self._end(connection, failure)
            return
        stream = connection.stream if connection.stage is Stage.OPEN else None
        if connection.stage is Stage.OPEN:
            now = self.clock()
            self.switchboard.receive_eof(connection, now)
            if connection.failure is None:
                self._finish(connection, now)
        connection.saw_end = stream is None or stream.saw_end
        self.switchboard.touch(connection)

    def _postpone_end(self, connection: Connection) -> None:
        if not connection.is_unwatched:
            self._unwatch(connection)
        self.poller.interrupt()  # no socket may be ready before its turn
        self._forsake(connection)

    def _forsake(self, connection: Connection) -> None:
        """Has core and lane send no more deliveries to a connection that is about to end."""
        if connection.stage is not Stage.OPEN:
            return
        self.switchboard.hand_in(connection, [OutputPending(congested=True)], self.clock())
        if self._carrier is not None and connection.carried is not None:
            self._carrier.forsake(connection.carried)

    def _unwatch(self, connection: Connection) -> None:
        """Stops watching a broken socket until what came before its end has been dealt with."""
        connection.is_unwatched = True
        if connection.carried is not None:
            connection.carried.interest = 0
        self.poller.remove(connection.socket.fileno())

    def _watch(self, connection: Connection) -> None:
        self.poller.add(connection.socket.fileno(), READABLE)
        connection.is_unwatched = False
        connection.interest = READABLE
        if connection.carried is not None:
            connection.carried.interest = READABLE

    def flush(self, now: float) -> None:
        """Sends for every dirty connection, moves the stages, and sets the timers."""
        switchboard = self.switchboard
        for journal in self.journals:
            journal.flush()
        while dirty := switchboard.take_dirty():
            for connection in dirty:
                if connection.stage is Stage.GONE:
                    continue
                try:
                    if connection.failure is None:
                        self._flush_one(connection, now)
                        continue
                except Exception as error:  # noqa: BLE001  a defect of one engine, as everywhere
                    switchboard.fail(connection, error)
                self._end(connection)
        switchboard.log_notices()
        self._remind(None, switchboard.core_deadline)

    def _flush_one(self, connection: Connection, now: float) -> None:
        if connection in self.endings:
            return
        if connection.held is not None and connection.stage is Stage.OPEN:
            if not connection.is_unwatched:
                self._unwatch(connection)
            return
        if connection.condition is not None and self._holds_answer(connection, now):
            if connection.saw_end and not connection.is_unwatched:
                self._watch_for(connection, 0)  # or it would be told of the end in each turn
            return
        engine = connection.engine
        try:
            is_blocked = not self._send(connection)
        except OSError as error:
            self.endings.hear(connection, error.strerror or str(error))
            return
        if connection.stage is Stage.OPEN:
            if engine.finished or (connection.stream is not None and self._has_ended(connection)):
                self._finish(connection, now)
            elif connection.is_deadline_stale:
                connection.is_deadline_stale = False
                self._remind_of(connection, engine.deadline)
        elif connection.stage is Stage.LINGERING:
            if connection.saw_end:
                self._end(connection)
                return
        elif not is_blocked and not self._linger(connection, now):
            return
        if connection.is_unwatched:
            if self.slicer.is_behind(connection):
                return
            self._watch(connection)
        if connection.transcript is not None or connection.is_uncarried:
            self._keep_transcript(connection)
        interest = WRITABLE if is_blocked else 0
        if not (connection.saw_end or self._must_stop_input(connection, is_blocked)):
            interest |= READABLE
        elif engine.input_waits and not (connection.saw_end or connection.has_left):
            interest |= ENDED
        if interest != connection.interest:
            self._watch_for(connection, interest)

    def _keep_transcript(self, connection: Connection) -> None:
        """Marks what has been answered; a connection without a transcript may be carried."""
        transcript = connection.transcript
        if transcript is None:
            if connection.is_uncarried and connection.stage is Stage.OPEN:
                self._carry(connection)
        elif transcript.is_too_long or connection.stage is not Stage.OPEN:
            connection.transcript = None
            self.switchboard.touch(connection)
        elif not connection.engine.output_octets:
            transcript.mark()

    def _watch_for(self, connection: Connection, interest: int) -> None:
        """Has the poller report something else of a socket that it watches."""
        if interest != connection.interest:
            connection.interest = interest
            if connection.carried is not None:
                connection.carried.interest = interest
            self.poller.change(connection.socket.fileno(), interest)

    def _holds_answer(self, connection: Connection, now: float) -> bool:
        """Returns whether the peer could not log in and is not to hear of it yet."""
        if connection.answers_at is None:
            condition, ask = connection.condition, connection.on_failed_login
            if ask is None or condition is None or connection.opened_at is not None:
                return False
            if connection.by_peer or condition.name != UNAUTHORIZED_ACCESS:
                return False
            connection.answers_at = ask(connection, now)
            self._remind(connection, connection.answers_at)
        return now < connection.answers_at

    def _must_stop_input(self, connection: Connection, is_blocked: bool) -> bool:
        if connection.stage is not Stage.OPEN:
            return False
        engine = connection.engine
        if self.slicer.is_behind(connection):
            return True
        return engine.input_waits or (is_blocked and engine.output_octets > OUTPUT_STOP_OCTETS)

    def _has_ended(self, connection: Connection) -> bool:
        """Returns whether TLS has ended below an engine that has read everything."""
        stream = connection.stream
        return stream is not None and stream.is_over and not self.slicer.is_behind(connection)

    def _send(self, connection: Connection) -> bool:
        """Sends what the engine shows; returns whether nothing is left."""
        stream = connection.stream
        if stream is None:
            return self._send_through(connection, connection.socket)
        if stream.waiting_octets and not stream.flush():
            return False
        if not self._send_through(connection, stream):
            return False
        if connection.stage is not Stage.OPEN:
            stream.finish()
        return stream.flush()

    def _send_through(self, connection: Connection, way: socket.socket | TlsStream) -> bool:
        """Sends what the engine shows; returns whether it shows nothing any more."""
        engine = connection.engine
        if self._carrier is not None and connection.carried is not None:
            if not engine.output_octets:  # it has written what it owes when it says so
                return True
            connection.is_deadline_stale |= connection.carried.is_pending
            is_done = self._carrier.write(connection.carried)
            engine.bytes_sent(0)
            return is_done
        while True:
            octets = engine.data_to_send()
            length = len(octets)
            if not length:
                return True
            try:
                count = way.send(octets)
            except (BlockingIOError, InterruptedError):
                return False
            octets_sent = b"" if connection.transcript is None else bytes(octets[:count])
            del octets  # the engine may move its buffer now
            if connection.transcript is not None:
                connection.transcript.sent += octets_sent
            connection.written_octets += count
            engine.bytes_sent(count)
            if count < length:
                return False
            if not engine.output_octets:
                return True

    def _finish(self, connection: Connection, now: float) -> None:
        """OPEN -> FINISHING: the core forgets the connection, the socket does not yet."""
        self.switchboard.receive_eof(connection, now)  # a command may have made it say its last
        connection.stage = Stage.FINISHING
        self._timers.forget(connection)
        self._remind(connection, now + FINISH_SECONDS)
        self._leave(connection, now)
        self.switchboard.touch(connection)

    def _linger(self, connection: Connection, now: float) -> bool:
        """FINISHING -> LINGERING; or -> GONE, and false, if there is nothing to wait for."""
        if not connection.saw_end:
            try:
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the peer has reset the stream
            else:
                connection.stage = Stage.LINGERING
                self._remind(connection, now + LINGER_SECONDS)
                return True
        self._end(connection)
        return False

    def cut(self, connections: Iterable[ConnectionId], reason: str) -> None:
        """Ends connections at once; nothing more is sent there, not even what is due."""
        for each in list(connections):
            connection = self.switchboard.connections.get(each)
            if connection is not None:
                self._end(connection, reason)

    def _end(self, connection: Connection, failure: str | None = None) -> None:
        """Any stage -> GONE."""
        if connection.stage is Stage.GONE:
            return
        if connection.stage is Stage.OPEN:
            now = self.clock()
            if connection.failure is None:  # no defect: the engine can be asked
                self.switchboard.receive_eof(connection, now)
            connection.failure = connection.failure or failure
            self._leave(connection, now)
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        connection.stage = Stage.GONE
        self.endings.forget(connection)
        descriptor = connection.socket.fileno()
        del self._by_descriptor[descriptor]
        if self._carrier is not None and connection.carried is not None:
            self._carrier.forget(connection.carried)
        self._timers.forget(connection)
        if not connection.is_unwatched:
            self.poller.remove(descriptor)
        if connection.stream is not None:
            connection.stream.close()
        connection.socket.close()
        if not self._by_descriptor:
            self._empty.unpark_all()

    def _leave(self, connection: Connection, now: float) -> None:
        """Informs core, log and supervisor of the end of a connection, once."""
        self.slicer.forget(connection)
        self.switchboard.lose(connection, now)
        self._log.info(
            "connection.closed",
            connection=connection.id,
            container=connection.container,
            address=connection.address,
            listener=connection.listener,
            condition=None if connection.condition is None else str(connection.condition),
            by_peer=connection.by_peer,
            failure=connection.failure,
            octets_in=connection.octets_in,
            octets_out=connection.octets_out,
            seconds=round(now - connection.since, 3),
        )
        if connection.on_end is not None:
            connection.on_end(connection)

    def _remind_of(self, connection: Connection, when: float | None) -> None:
        connection.woken_at = math.inf if when is None else when
        self._remind(connection, when)

    def _remind(self, whom: Connection | None, when: float | None) -> None:
        if when is None or not self._timers.remind(whom, when):
            return
        if when < self._alarm.deadline:  # noqa: PLR1730  setting it costs, even to the same
            self._alarm.deadline = when

    async def _fire_timers(self) -> None:
        while True:
            began = self.clock()
            self._alarm = trio.CancelScope(deadline=self._timers.next_due)
            with self._alarm:
                await trio.sleep_forever()
            if began < self._timers.next_due < self.clock() - HELD_UP_SECONDS:
                await trio.sleep(GLANCE_SECONDS)
            self._handle_due(self.clock())

    def _handle_due(self, now: float) -> None:
        for connection in self._timers.due(now):
            if connection is None:
                self.switchboard.handle_core_deadline(now)
            elif connection.stage is not Stage.OPEN:
                self._end(connection)
            else:
                if connection.answers_at is not None:
                    self.switchboard.touch(connection)
                deadline = connection.engine.deadline
                if deadline is not None and deadline <= now:
                    self.switchboard.handle_deadline(connection, now)
                else:
                    self._remind_of(connection, deadline)
        self.flush(now)
