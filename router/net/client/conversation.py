"""Carries one client link over as many connections as it takes.

Theory of operation. One connection is two tasks: one reads octets and hands their events to the
link machine, one writes. The writer asks the machine for more only when all output is with the
socket, so a slow peer slows the machine; the reader never waits for the writer, so outcomes are
received while payload is sent.

A connection that ends before the machine is done is replaced after a pause, jittered and doubling.
The conversation gives up when for ``patience_seconds`` no connection was of use: none moved a
delivery, or was open for that long.

Where it dials next the ``course`` says: a redirect is followed at once, without a pause.
"""

import itertools
import math
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final
from typing import Protocol as Interface

import attrs
import trio

from router.errors import RouterError
from router.links.backoff import pause_seconds
from router.model.commands import CloseConnection, Command, RefuseLink
from router.model.condition import (
    NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.events import ConnectionClosed, ConnectionOpened, Event, LinkAttached
from router.model.identity import ContainerId, LinkId
from router.net.client.course import Course
from router.net.client.report import Report
from router.net.dialing import Wait, system_reason
from router.net.tls import describe_error
from router.wire.engine import Engine

RECEIVE_OCTETS: Final = 1 << 18
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 15.0
"""For TCP and TLS of one attempt; the engine gives the open as long."""

OPEN_SECONDS: Final = 1.0

HELD_UP_SECONDS: Final = 0.5
"""What is due so late says that the process was stopped, or held up by a pipe nobody reads."""

GLANCE_SECONDS: Final = 0.05
"""How long is read then before what is due is done: what has arrived comes before the verdict that
the peer is silent."""

BROKEN_SECONDS: Final = 1.0
"""How long to read on when nothing can be written any more: the last word may be under way."""

HOPELESS: Final = frozenset((UNAUTHORIZED_ACCESS, NOT_ALLOWED, NOT_FOUND))
"""Reasons for a close that another connection would meet again."""


class LinkMachine(Interface):
    """What a conversation needs of ``SendingLink`` and ``ReceivingLink``.

    Attributes:
        frame_octets: the largest frame that the other end takes; 0: any.
        peer: the container at the other end.
        moved: the redirect with which the link was ended, for the ``course``; None: it was not.
    """

    report: Report
    frame_octets: int
    peer: ContainerId | None
    moved: Condition | None
    failure: Condition | None
    interruption: str | None

    @property
    def is_done(self) -> bool:
        """Whether there is no more to do."""

    def attach(self, link_ids: Iterator[LinkId]) -> list[Command]:
        """Begins, or begins again, on a connection that has just opened."""

    def handle(self, events: Sequence[Event]) -> list[Command]:
        """Handles events."""

    def pull(self) -> list[Command]:
        """Returns more to send, when the output is empty."""

    def finish(self) -> list[Command]:
        """Ends the link for good."""


@attrs.frozen(kw_only=True)
class Dialing:
    """How to reach the other end.

    Attributes:
        dial: opens a stream to it; raises ``OSError`` or what streams raise.
        course: chooses the place for each ``dial``; None: there is no choice.
        places: how many ``dial`` tries in turn; it pauses when all of them have had theirs.
        make_engine: makes the client engine of one connection, which takes its link ids from
            what it is given.
        patience_seconds: how long to dial without success before ``UnreachableError``.
        open_seconds: a connection has at least this long to open, if less of the patience is left.
        on_lost: called with the reason each time that a connection was lost or failed.
    """

    dial: Callable[[], Awaitable[trio.abc.Stream]]
    make_engine: Callable[[Iterator[LinkId]], Engine]
    places: int = 1
    course: "Course[Any] | None" = None
    patience_seconds: float = 60.0
    open_seconds: float = OPEN_SECONDS
    on_lost: Callable[[str], None] = lambda reason: None


class UnreachableError(RouterError):
    """The other end cannot be reached."""


@attrs.define(eq=False)
class Conversation:
    """Runs a link machine until it is done, over as many connections as it takes.

    Attributes:
        is_opened: a connection stands.
        is_finishing: the end was asked for.
    """

    dialing: Dialing
    machine: LinkMachine
    is_opened: bool = attrs.field(default=False, init=False)
    is_finishing: bool = attrs.field(default=False, init=False)
    _current: "_Connection | None" = attrs.field(default=None, init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _farewell: Condition | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _limit: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> None:
        """Converses until the machine is done, or ``finish`` was called.

        Raises:
            UnreachableError: no connection served for ``patience_seconds``, or the peer's
                certificate is refused.
        """
        failures = 0
        known: str | None = None
        failing_since: float | None = None
        with self._scope:
            while not self._is_over():
                progress = self.machine.report.progress
                since = trio.current_time() if failing_since is None else failing_since
                until = since + self.dialing.patience_seconds
                self._limit = trio.CancelScope()
                self._limit.deadline = max(until, trio.current_time() + self.dialing.open_seconds)
                patience = max(self.dialing.open_seconds, self.dialing.patience_seconds)
                # an attempt that time cuts off says less than one that has failed before it
                reason = known or str(Wait(patience))
                with self._limit:
                    reason = await self._one_connection()
                if self._is_over():
                    return
                if self._goes_on():
                    failing_since = since
                    continue
                if self._is_over():
                    return
                self.dialing.on_lost(reason)
                now = trio.current_time()
                stood = 0.0 if self._opened_at is None else now - self._opened_at
                served = self.machine.report.progress > progress or (
                    self._opened_at is not None and stood >= self.dialing.patience_seconds
                )
                if served or failing_since is None:
                    failing_since = now if served else since
                    failures = 0
                known = reason
                failures += 1
                course = self.dialing.course
                places = self.dialing.places if course is None else course.places
                rounds, others = divmod(failures, places)
                pause = 0.0
                if not others:
                    pause = pause_seconds(
                        rounds, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, random.random
                    )
                left = failing_since + self.dialing.patience_seconds - now
                if left <= 0:
                    raise UnreachableError(reason)
                await trio.sleep(min(pause, left))

    def _goes_on(self) -> bool:
        """Returns whether another place is to be dialed at once, because of a redirect."""
        course, machine = self.dialing.course, self.machine
        moved, machine.moved = machine.moved, None
        if moved is not None:
            if course is not None and course.link_redirected(moved):
                return True
            machine.failure = moved
            return False
        if course is None:
            return False
        return course.redirected(self._farewell) or course.lost(
            had_opened=self._opened_at is not None
        )

    def finish(self) -> None:
        """Ends the conversation properly, soon; deliveries unsettled by then stay unsettled."""
        self.is_finishing = True
        if self._current is None or not self.is_opened:
            self._scope.cancel()
        else:
            self._current.wake()

    def closed(self, condition: Condition | None) -> None:
        """Records what the peer has closed the connection with."""
        self._farewell = condition

    def opened(self, alternatives: object) -> None:
        """Records that the connection stands, and what the peer says of other places."""
        if self.dialing.course is not None:
            self.dialing.course.opened(alternatives)
        self.is_opened = True
        self._opened_at = trio.current_time()
        self._limit.deadline = math.inf

    def wake(self) -> None:
        """Makes the machine look for more to send, after a change outside of it."""
        if self._current is not None:
            self._current.wake()

    def _is_over(self) -> bool:
        return self.is_finishing or self.machine.is_done

    async def _one_connection(self) -> str:
        """Converses over one connection; returns why it ended."""
        self._opened_at = self._farewell = None
        if self.dialing.course is not None:
            self.dialing.course.advance()
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = await self.dialing.dial()
        except trio.TooSlowError:
            return str(Wait(CONNECT_SECONDS))
        except (OSError, trio.BrokenResourceError) as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise UnreachableError(_explain(error)) from None  # it would be the same again
            return _explain(error)
        link_ids = map(LinkId, itertools.count(1))
        connection = _Connection(self, stream, self.dialing.make_engine(link_ids), link_ids)
        self._current = connection
        try:
            async with stream:
                return await connection.run()
        finally:
            self._current = None
            self.is_opened = False


@attrs.define(eq=False)
class _Connection:
    """One connection of a conversation."""

    conversation: Conversation
    stream: trio.abc.Stream
    engine: Engine
    link_ids: Iterator[LinkId]
    _reason: str = attrs.field(default="the connection was lost", init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)
    _patience: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> str:
        """Reads and writes until the connection is over; returns why."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            await self._read()
            self.wake()
            nursery.cancel_scope.deadline = trio.current_time() + BROKEN_SECONDS
        self._lose(self._reason)
        return self.conversation.machine.interruption or self._reason

    def wake(self) -> None:
        """Wakes the writer."""
        self._more.set()
        self._patience.deadline = self._deadline()

    def _deadline(self) -> float:
        deadline = self.engine.deadline
        return math.inf if deadline is None else deadline

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self.engine.finished:
            octets: bytes | bytearray | None = None
            try:
                with trio.CancelScope(deadline=self._deadline()) as self._patience:
                    octets = await self.stream.receive_some(RECEIVE_OCTETS)
                if octets is None and -math.inf < self._deadline() < _a_while_ago():
                    with trio.move_on_after(GLANCE_SECONDS):
                        octets = await self.stream.receive_some(RECEIVE_OCTETS)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._lose(_explain(error))
                return
            now = trio.current_time()
            if octets is None:
                self._handle(self.engine.handle_deadline(now))
            elif octets:
                self._handle(self.engine.receive_data(bytes(octets), now))
            else:
                self._lose("the connection was lost")
            self._more.set()

    def _lose(self, reason: str) -> None:
        """Records that the stream has ended; deliveries never sent are taken back."""
        if not self.engine.finished:
            self._handle(self.engine.receive_eof(trio.current_time()))
            self._reason = reason

    def _handle(self, events: Sequence[Event]) -> None:
        if not events:
            return
        machine = self.conversation.machine
        for event in events:
            match event:
                case ConnectionOpened(container=container, capabilities=capabilities):
                    self.conversation.opened(event.alternatives)
                    machine.frame_octets = capabilities.frame_octets
                    machine.peer = container
                    machine.report.connections += 1
                    self._execute(machine.attach(self.link_ids))
                case LinkAttached(is_answer=False, link=link):
                    condition = Condition(NOT_ALLOWED, "this client offers no nodes")
                    self._execute([RefuseLink(link, condition)])
                case ConnectionClosed(condition=condition) if not self._is_leaving:
                    self._closed(condition, event.by_peer)
                case _:
                    pass
        self._execute(machine.handle(events))

    def _closed(self, condition: Condition | None, by_peer: bool) -> None:
        self._reason = "closed by the peer" if condition is None else str(condition)
        machine = self.conversation.machine
        if by_peer:
            self.conversation.closed(condition)
        if by_peer and condition is not None and condition.name in HOPELESS:
            machine.failure = condition

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self.engine.execute(command)

    # --- writing ----------------------------------------------------------------------------------

    async def _write(self, whole: trio.CancelScope) -> None:
        engine = self.engine
        try:
            while True:
                self._more = trio.Event()
                while view := engine.data_to_send():
                    await self.stream.send_all(view)
                    engine.bytes_sent(len(view))
                if engine.finished:
                    break
                if self._look_for_work():
                    continue
                self._patience.deadline = self._deadline()
                await self._more.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._reason = _explain(error)
            whole.deadline = trio.current_time() + BROKEN_SECONDS

    def _look_for_work(self) -> bool:
        """Finds something to send; returns whether there is."""
        if self._is_leaving or not self.conversation.is_opened:
            if self.conversation.is_finishing and not self._is_leaving:
                self._leave([])
                return True
            return False
        machine = self.conversation.machine
        if machine.interruption is not None:
            self._leave([])
            return True
        commands = machine.pull()
        if commands:
            self._execute(commands)
            return True
        waits = self.engine.waiting_octets and machine.failure is None
        if self.conversation.is_finishing or (machine.is_done and not waits):
            self._leave(machine.finish())
            return True
        return False

    def _leave(self, commands: Sequence[Command]) -> None:
        self._is_leaving = True
        self._execute([*commands, CloseConnection()])


def _a_while_ago() -> float:
    return trio.current_time() - HELD_UP_SECONDS


def _explain(error: BaseException) -> str:
    """Returns the reason in the system's words, or in those of TLS."""
    cause = error.__cause__
    if isinstance(cause, BaseException) and not isinstance(cause, BaseExceptionGroup):
        return _explain(cause)
    if isinstance(error, ssl.SSLError):
        return describe_error(error)
    return system_reason(error) or "the connection was lost"
