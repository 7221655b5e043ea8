"""Sessions: numbered commands in both directions, their completion and replay (0-10 session).

Theory of operation. Commands of each direction are numbered from ``command-point`` on. The receiver
reports by ``completed`` which are done. A session outlives its channel, and its connection, by the
negotiated timeout; its state is the numbers of received, completed and sent commands.

    DETACHED   -> ATTACHED    attach, answered with attached (a server), or attached (a client)
    ATTACHED   -> DETACHED    the peer's detach or detached; the connection's end
    ATTACHED   -> DETACHING   we sent detach; everything but detached is dropped
    DETACHING  -> DETACHED    the peer's detached

*Receiving.* ``taken`` is the first command that has not been handled. After a session was attached
again the peer continues from an earlier command: commands before ``taken`` are repeats and are
dropped, which is how 0-10 achieves exactly-once. While the core has to answer, the session waits:
later commands are parked in order, and not handled; if the connection is lost meanwhile they count
as never received. A command may complete out of order; ``execution.sync`` completes when all
earlier ones have.

*Sending.* While a timeout above 0 is negotiated, every command sent is kept until the peer reports
its completion. When the session is attached again, the peer is asked which command it expects; from
there on commands are sent again with their old numbers. A command that was not kept, because it was
sent before there was a timeout, is a *gap*.

Sets of completed commands omit those that the peer is known to know; peers that never report that
are asked to (timely-reply) before the sets grow.
"""

import enum
from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

import attrs

from router.errors import DecodeError
from router.model.text import name_of
from router.wire.asking import Asker
from router.wire.engine import EngineSettings
from router.wire.inlets import Inlet
from router.wire.machine import Handlers
from router.wire.octets import SendBuffer
from router.wire.runs import Runs
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import (
    UNSERVED,
    CommandHead,
    Sender,
    decode_command_head,
    encode_command,
)
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.optional import OptionalCommand
from router.wire.v0_10.ranges import Range, Ranges, RangeSet, long_ranges, unwrap
from router.wire.v0_10.reply import (
    DetachCode,
    ErrorCode,
    SessionFaultError,
    decode_fault,
    framing_error,
    short_text,
)

ASK_KNOWN_RANGES: Final = 64
"""Ranges in a set of completed commands from which on the peer is asked for known-completed."""

ASK_KNOWN_COMMANDS: Final = 1 << 16
"""Commands after which it is asked in any case, as Qpid's programs do."""

REPORT_KNOWN_COMMANDS: Final = 1024
"""Completions that are answered by one known-completed, unless the peer asks for it."""

ASK_COMPLETED_COMMANDS: Final = 1024
"""Kept commands after which the peer is asked for completion, as Qpid's programs do."""

REPLAY_LIMIT_OCTETS: Final = 64 << 20
"""Octets of kept commands; beyond it the session is ended."""

MAX_DESCRIPTION_OCTETS: Final = 1024
"""Octets of an exception's description; the protocol allows 65,535."""

MESSAGE_CLASS: Final = 4


class SessionStage(enum.Enum):
    """Whether the session has a channel."""

    DETACHED = "detached"
    ATTACHED = "attached"
    DETACHING = "detaching"


@attrs.define
class Sent:
    """A command that may have to be sent again.

    Attributes:
        head: the command's segment.
        content: header and body segments, if it has any.
    """

    head: bytes
    content: tuple[bytes, bytes] | None

    @property
    def octets(self) -> int:
        """How much memory it takes."""
        return len(self.head) + sum(map(len, self.content or ()))


Parked = tuple[int, bytes, bytes | None, bytes]
"""A parked command: its number, head, header and body."""


class SessionConnection(Interface):
    """The part of a connection that its sessions use.

    Attributes:
        dirty: sessions with gathered output.
        has_left: the peer has ended its stream, and what it sent before is yet to be read.
    """

    settings: EngineSettings
    runs: Runs
    output: SendBuffer
    frame_max: int
    now: float
    has_left: bool
    dirty: "dict[Session, None]"

    @property
    def peer(self) -> Sender:
        """Which side the peer is."""

    def send_control(self, channel: int, control: r.Control) -> None:
        """Sends a control on a channel."""

    def flush(self) -> None:
        """Writes the gathered output of sessions."""

    def hold_octets(self, octets: int) -> None:
        """Adds octets that cannot be handed on yet to the count; negative: subtracts them."""

    def stop_reading(self, inlet: Inlet) -> None:
        """Stops reading: an inlet has reached the limit of the core."""

    def go_on_reading(self, inlet: Inlet) -> None:
        """Resumes reading if no inlet is at its limit."""

    def forget_spent(self, inlet: Inlet) -> None:
        """Resumes reading: an inlet is gone."""

    def drop_assembly(self, channel: int) -> None:
        """Discards an incomplete command that will not be continued (session.gap)."""

    def fault(self, fault: SessionFaultError, session: "Session") -> None:
        """Ends a session for a fault of the peer."""

    def free_session(self, session: "Session") -> None:
        """Records that a channel no longer carries its session."""


class Session(Asker):
    """One session, on either side.

    Attributes:
        name: unique among the sessions of one identity.
        engine: of the connection that carries it, or carried it last.
        channel: its number there.
        state: see the module.
        timeout: how long it outlives its channel, in seconds; None: for ever.
        taken: the first command not handled; None: none has arrived.
        completed: completed commands of the peer, without those it knows of.
        incomplete: handled commands that are not complete, ascending.
        waits: the core's answer must arrive before other commands are handled.
        is_committing: it waits, but for the outcome of a command that has been handled.
        next_out: number of the next command to be sent.
        outstanding: our commands that the peer has not completed, ascending, with their notes.
    """

    handlers: ClassVar[Handlers] = {}
    """Commands, with content or without; others are not allowed."""

    def __init__(self, engine: SessionConnection, channel: int, name: bytes) -> None:
        self.name = name
        self.engine = engine
        self.channel = channel
        self.state = SessionStage.DETACHED
        self.timeout: int | None = 0
        self.taken: int | None = None
        self.completed = RangeSet()
        self.incomplete: dict[int, None] = {}
        self.next_out = 0
        self.outstanding: dict[int, Any] = {}
        self.is_committing = False
        self._next_in: int | None = None
        self._parked: deque[Parked] = deque()
        self._syncs: deque[int] = deque()
        self._completion_due = False
        self._has_point = False
        self._awaits_replay = False
        self._replay: dict[int, Sent] = {}
        self._replay_octets = 0
        self._known_due: list[Range] = []
        self._known_count = 0
        self._asked_at = 0

    @property
    def is_attached(self) -> bool:
        """Whether it has a channel and takes part."""
        return self.state is SessionStage.ATTACHED

    link_mark = ""
    """Of the names of its links, if another session of its name may still have some."""

    @property
    def link_prefix(self) -> str:
        """What the names of its links begin with."""
        return name_of(self.name) + self.link_mark

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its channel."""
        return self.timeout is None or self.timeout > 0

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait for the peer's credit."""
        return 0

    # --- commands that come -----------------------------------------------------------------------

    def receive(self, head: bytes, header: bytes | None, body: bytes) -> None:
        """Handles a command, or parks it.

        Raises:
            SessionFaultError: the command is not allowed, or cannot be carried out.
            ConnectionFaultError: too much waits.
        """
        number = self._next_in
        if number is None:
            self.detached_by_us(DetachCode.UNKNOWN_IDS)
            return
        self._next_in = number + 1
        taken = self.taken
        if taken is not None and number < taken:
            self._completion_due = self._completion_due or number in self.completed
            self.touch()
        elif self.waits:
            self._parked.append((number, head, header, body))
            self.engine.hold_octets(len(head) + len(header or b"") + len(body))
        else:
            self._take(number, head, header, body)

    def _take(self, number: int, head: bytes, header: bytes | None, body: bytes) -> None:
        self.taken = number + 1
        self.incomplete[number] = None
        try:
            found = decode_command_head(head)
        except DecodeError as error:
            raise SessionFaultError(
                ErrorCode.COMMAND_INVALID, error.rule, command=number
            ) from error
        try:
            self._take_up(number, found, head, header, body)
        except SessionFaultError as fault:
            if fault.command is not None:
                raise
            raise SessionFaultError(
                fault.error, fault.text, found.class_code, found.code, number
            ) from None

    def _take_up(
        self, number: int, found: CommandHead, head: bytes, header: bytes | None, body: bytes
    ) -> None:
        row = found.row
        if row is None:
            what = UNSERVED.get(found.class_code)
            if what is not None:
                raise SessionFaultError(
                    ErrorCode.NOT_IMPLEMENTED, f"class {what}: not what a router can do"
                )
            raise SessionFaultError(
                ErrorCode.COMMAND_INVALID, f"command {found.class_code}.{found.code} is none"
            )
        try:
            is_client = self.engine.peer is Sender.CLIENT
            command = row.decode(head, found.fields_at, len(head), from_client=is_client)
        except DecodeError as error:
            raise decode_fault(error) from error
        handler = self.handlers.get(type(command))
        if handler is None or not row.spec.sender & self.engine.peer:
            raise SessionFaultError(
                ErrorCode.COMMAND_INVALID, f"{type(command).__name__} is not for this side to get"
            )
        if row.spec.has_content:
            if header is None and found.class_code != MESSAGE_CLASS:
                raise SessionFaultError(
                    ErrorCode.COMMAND_INVALID, f"{type(command).__name__} without its header"
                )
            handler(self, number, command, header or b"", body)
        elif header is not None or body:
            raise SessionFaultError(
                ErrorCode.COMMAND_INVALID, f"{type(command).__name__} with header or body"
            )
        else:
            handler(self, number, command)

    def resume(self) -> None:
        """Handles the commands received since ``park``, until the session must wait again."""
        self.waits = False
        parked = self._parked
        while parked and not self.waits and self.state is SessionStage.ATTACHED:
            number, head, header, body = parked.popleft()
            self.engine.hold_octets(-(len(head) + len(header or b"") + len(body)))
            try:
                self._take(number, head, header, body)
            except SessionFaultError as fault:
                self.engine.fault(fault, self)

    def _drop_parked(self) -> None:
        octets = sum(
            len(head) + len(header or b"") + len(body) for _, head, header, body in self._parked
        )
        self._parked.clear()
        self.engine.hold_octets(-octets)

    # --- completion of what came ------------------------------------------------------------------

    def complete(self, number: int) -> None:
        """Records that a command is carried out; the peer is notified at the end of the turn."""
        incomplete = self.incomplete
        if number not in incomplete:
            return
        del incomplete[number]
        self.completed.add(number, number)
        if self._syncs:
            self._complete_syncs()
        if not self._completion_due:
            self._completion_due = True
            self.touch()

    def complete_all(self, numbers: Iterable[int]) -> None:
        """Records that commands are carried out."""
        for number in numbers:
            self.complete(number)

    def take_sync(self, number: int, command: r.ExecutionSync) -> None:
        """Completes when all commands before it have."""
        if next(iter(self.incomplete)) == number:
            self.complete(number)
        else:
            self._syncs.append(number)

    def _complete_syncs(self) -> None:
        while self._syncs and next(iter(self.incomplete)) == self._syncs[0]:
            number = self._syncs.popleft()
            del self.incomplete[number]
            self.completed.add(number, number)

    def touch(self) -> None:
        """Schedules a ``flush`` for the next output."""
        if self.state is SessionStage.ATTACHED:
            self.engine.dirty[self] = None

    def flush(self) -> None:
        """Writes the gathered output: first commands, then completions."""
        if self.state is not SessionStage.ATTACHED:
            return
        self.write_gathered()
        if self._replay_octets > REPLAY_LIMIT_OCTETS:
            self.drop_replay()
            text = "too much was sent that the peer has not completed"
            self.engine.fault(SessionFaultError(ErrorCode.RESOURCE_LIMIT_EXCEEDED, text), self)
            return
        if self._completion_due and not self._awaits_replay:  # answers go before completion
            self._completion_due = False
            self.send_completed()

    def write_gathered(self) -> None:
        """Writes gathered commands."""

    def send_completed(self) -> None:
        """Sends the completed commands, except those that the peer knows."""
        ranges = self.completed.ranges
        taken = self.taken or 0
        asks = len(ranges) > ASK_KNOWN_RANGES or taken - self._asked_at > ASK_KNOWN_COMMANDS
        if asks:
            self._asked_at = taken
        self.control(r.SessionCompleted(tuple(ranges), asks))

    # --- commands that we send --------------------------------------------------------------------

    def send(
        self,
        command: r.Command | OptionalCommand,
        *,
        sync: bool = False,
        note: Any = None,
        content: tuple[bytes, bytes] | None = None,
    ) -> int:
        """Sends a command; returns its number.

        Args:
            command: the command.
            sync: requests completion at once.
            note: passed to the handler of its completion.
            content: header and body segments after it.
        """
        return self.send_encoded(encode_command(command, sync=sync), note, content)

    def send_encoded(
        self, head: bytes, note: Any = None, content: tuple[bytes, bytes] | None = None
    ) -> int:
        """Sends a command's segment; see ``send``."""
        number = self.next_out
        self.next_out = number + 1
        if self.is_kept:
            self.outstanding[number] = note
            self._keep(number, Sent(head, content))
        elif note is not None:
            self.outstanding[number] = note
        if self._awaits_replay:
            return number  # it is sent in its turn
        if not self._has_point:
            self._send_point(number)
        self._write(head, content)
        return number

    def _keep(self, number: int, sent: Sent) -> None:
        """Keeps a command until it is completed; a peer that completes nothing is asked to."""
        self._replay[number] = sent
        self._replay_octets += sent.octets
        if not number % ASK_COMPLETED_COMMANDS and not self._awaits_replay:
            self.control(r.SessionFlush(completed=True))
        self.touch()

    def _write(self, head: bytes, content: tuple[bytes, bytes] | None) -> None:
        engine = self.engine
        engine.output.append(assembly(COMMAND, self.channel, head, engine.frame_max, content))

    def _send_point(self, number: int) -> None:
        self._has_point = True
        self.control(r.SessionCommandPoint(number & 0xFFFF_FFFF, 0))

    def control(self, control: r.Control) -> None:
        """Sends a control on the session's channel."""
        self.engine.send_control(self.channel, control)

    def ask_replay(self) -> None:
        """Asks the peer, after the session was attached again, which command it expects."""
        self._awaits_replay = True
        self.control(r.SessionFlush(expected=True, completed=True))

    def replay(self, expected: int | None) -> None:
        """Sends commands again that the peer has not handled.

        Args:
            expected: the first command that it lacks; None: it had none.
        """
        self._awaits_replay = False
        lost: list[int] = []
        start = 0 if expected is None else expected
        self._has_point = False
        for number in [each for each in self.outstanding if each >= start]:
            sent = self._replay.get(number)
            if sent is None:
                lost.append(number)
                continue
            if not self._has_point:
                self._send_point(number)
            elif lost:
                self.control(r.SessionGap(((lost[0], lost[-1]),)))
            lost = []
            self._write(sent.head, sent.content)
        if not self._has_point:
            self._send_point(max(start, self.next_out) if expected is None else self.next_out)
        for number in lost:
            self.gave_up(number)
        self.touch()

    def start_anew(self) -> None:
        """Forgets all sent and received commands: the peer has lost the session."""
        self._awaits_replay = False
        self._has_point = False
        self.drop_replay()
        self.outstanding.clear()
        self.incomplete.clear()
        self.completed.ranges.clear()
        self.next_out = 0
        self.taken = None

    def drop_replay(self) -> None:
        """Forgets the kept commands."""
        self._replay.clear()
        self._replay_octets = 0

    def gave_up(self, number: int) -> None:
        """Handles a command of ours that never arrived and cannot be sent again."""
        self.outstanding.pop(number, None)

    # --- controls ---------------------------------------------------------------------------------

    def take_control(self, control: Any) -> None:
        """Handles a control of an attached session.

        Raises:
            ConnectionFaultError: it is not allowed now.
        """
        match control:
            case r.SessionCommandPoint():
                self._take_point(control)
            case r.SessionCompleted():
                self._take_completed(control)
            case r.SessionKnownCompleted(commands=commands):
                for first, last in self._long_in(commands):
                    self.completed.remove(first, last)
            case r.SessionFlush():
                self._take_flush(control)
            case r.SessionGap(commands=commands):
                self._take_gap(commands)
            case r.SessionRequestTimeout(timeout=timeout):
                self.requested_timeout(timeout)
            case r.SessionTimeout(timeout=timeout):
                self.granted_timeout(timeout)
            case r.SessionExpected(commands=commands):
                awaited = [first for first, _ in self._long_out(commands)]
                self.expected(min(awaited) if awaited else None)
            case r.SessionConfirmed():
                pass  # confirmed commands will be completed: nothing to do before

    def _long_in(self, commands: Ranges | None) -> list[Range]:
        return long_ranges(commands or (), self.taken or 0)

    def _long_out(self, commands: Ranges | None) -> list[Range]:
        return long_ranges(commands or (), self.next_out)

    def _take_point(self, point: r.SessionCommandPoint) -> None:
        if point.command_id is None or point.command_offset:
            raise framing_error("command-point: whole commands are expected here, never parts")
        taken = self.taken
        number = unwrap(point.command_id, taken or 0)
        if taken is not None and number > taken:
            text = f"command-point {point.command_id}, {taken & 0xFFFF_FFFF} is expected"
            self.engine.fault(SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, text), self)
            return
        self._next_in = number
        self.engine.drop_assembly(self.channel)  # the next frame begins a command
        if self._parked:
            self._drop_parked()

    def _take_completed(self, completed: r.SessionCompleted) -> None:
        ranges = self._long_out(completed.commands)
        done = self._within(ranges)
        for number in done:
            sent = self._replay.pop(number, None)
            if sent is not None:
                self._replay_octets -= sent.octets
        if done:
            self.done(done)
        self._known_due = ranges
        self._known_count += len(done)
        if completed.timely_reply or self._known_count >= REPORT_KNOWN_COMMANDS:
            self._known_count = 0
            self.control(r.SessionKnownCompleted(tuple(ranges)))

    def _within(self, ranges: list[Range]) -> list[int]:
        """Returns our outstanding commands that are in a set, ascending."""
        outstanding = self.outstanding
        found: list[int] = []
        for first, last in ranges:
            if last - first < len(outstanding):
                found += [each for each in range(first, last + 1) if each in outstanding]
            else:
                found += [each for each in outstanding if first <= each <= last]
        return sorted(set(found)) if len(ranges) > 1 else found

    def done(self, numbers: list[int]) -> None:
        """Records that the peer has completed commands of ours."""
        for number in numbers:
            self.outstanding.pop(number, None)

    def _take_flush(self, flush: r.SessionFlush) -> None:
        self.engine.flush()
        if flush.expected:
            taken = self.taken
            number = 0 if taken is None else taken & 0xFFFF_FFFF
            self.control(r.SessionExpected(() if taken is None else ((number, number),)))
        if flush.confirmed:
            self.control(r.SessionConfirmed(tuple(self.completed.ranges)))
        if flush.completed:
            self.send_completed()

    def _take_gap(self, commands: Ranges | None) -> None:
        self.engine.drop_assembly(self.channel)
        for first, last in self._long_in(commands):
            number = self._next_in
            if number is None:
                continue
            if self.taken is None or last >= self.taken:
                self.completed.add(max(first, self.taken or 0), last)
                self.taken = last + 1
            if first <= number <= last:
                self._next_in = last + 1
            self._completion_due = True
        self.touch()

    def requested_timeout(self, timeout: int | None) -> None:
        """Handles a requested timeout: not granted, unless overridden."""
        self.control(r.SessionTimeout(0))

    def granted_timeout(self, timeout: int | None) -> None:
        """Handles the answer to a request of ours."""

    def expected(self, first: int | None) -> None:
        """Handles the answer to ``ask_replay``."""
        if self._awaits_replay:
            self.replay(first)

    # --- attaching and the end --------------------------------------------------------------------

    def attached(self, engine: SessionConnection, channel: int) -> None:
        """Records that the session has a channel now."""
        self.engine = engine
        self.channel = channel
        self.state = SessionStage.ATTACHED
        self._next_in = None
        self._has_point = False
        self.touch()

    def detached_by_us(self, code: DetachCode) -> None:
        """Detaches the session, because the peer violated the numbering of commands."""
        self.control(r.SessionDetached(self.name, code))
        self.timeout = 0
        self.leave(is_over=True)
        self.engine.free_session(self)

    def fail(self, fault: SessionFaultError) -> None:
        """Ends the session for a fault of the peer, or for a missing resource."""
        if self.state is not SessionStage.ATTACHED:
            return
        self.flush()
        text = short_text(fault.text, MAX_DESCRIPTION_OCTETS)
        exception = r.ExecutionException(
            error_code=fault.error,
            command_id=None if fault.command is None else fault.command & 0xFFFF_FFFF,
            class_code=fault.class_code or None,
            command_code=fault.code or None,
            description=text,
        )
        self.send(exception)
        self.control(r.SessionDetach(self.name))
        self.leave(is_over=True)
        self.state = SessionStage.DETACHING

    def cut(self) -> None:
        """Records that the connection is over."""
        if self.state is SessionStage.ATTACHED:
            self.leave(is_over=not self.is_kept)
        self.state = SessionStage.DETACHED

    def leave(self, *, is_over: bool) -> None:
        """Leaves the channel.

        Args:
            is_over: the session ends, and returns its deliveries; else it may come back.
        """
        self.write_gathered()
        self.state = SessionStage.DETACHED
        self._drop_parked()
        self._forget_unanswered()
        self.ended(is_over=is_over)

    def _forget_unanswered(self) -> None:
        """Treats the command that waits for the core's answer as never received."""
        if self.is_committing:
            return
        if self.waits and self.taken is not None and self.incomplete:
            last = next(reversed(self.incomplete))
            if last == self.taken - 1:
                del self.incomplete[last]
                self.taken = last
        self.waits = False

    def ended(self, *, is_over: bool) -> None:
        """Ends or suspends the links of the session."""
