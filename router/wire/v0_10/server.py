"""The serving side: channels, sessions, links, and the core's commands.

Theory of operation. A client's commands become events of links: transfers of *inlets*,
subscriptions of *outlets* (``publishing``, ``queues``). The core's commands are passed to the owner
of the link. Its answers to attaches answer questions of a session (``declaring``): the session
continues and handles parked commands, so a command of the core can cause events and output.

A command that finds the client at fault (a queue that it requested is not routed) ends the session,
as a command of the client would.

How a channel handles controls of class session, while it carries no session, one, or one that we
have detached, is the table ``channel_steps``. A session that was detached, or cut off with its
connection, and has a timeout is *kept* (``keeping``), and found again by its name and the client's
identity. If it is not kept here, the router's other workers are asked for it before the client is
answered; until then the client's input waits.
"""

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, ParamSpec

from router.model.commands import AddressesChanged, AttachLink, MemoryFound, UpdateDeliveries
from router.model.condition import Condition
from router.model.events import MemorySought
from router.model.identity import LinkId
from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase
from router.wire.v0_10 import records as r
from router.wire.v0_10.keeping import STORE, Kept, Place, key_of
from router.wire.v0_10.machine import Machine
from router.wire.v0_10.posts import Inlet
from router.wire.v0_10.queues import Outlet, Queue
from router.wire.v0_10.reply import ConnectionFaultError, DetachCode, SessionFaultError
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.server_session import ServerSession
from router.wire.v0_10.session import Session, SessionStage

_P = ParamSpec("_P")


class On(enum.Enum):
    """The session state of a channel when a control arrives."""

    NOTHING = "no session"
    SESSION = "a session"
    ENDED = "a session that we have detached"


class ServerEngine(ServerLinks):
    """One connection that a client dialed; implements ``router.wire.engine.Engine``.

    Attributes:
        kept: sessions without a channel, of all connections.
    """

    faults = (SessionFaultError, ConnectionFaultError)

    _sought: tuple[int, r.SessionAttach, Place] | None = None
    """The session sought at other workers: channel, the client's attach, place."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.kept = Kept.of(settings)
        self._closing: r.ConnectionClose | None = None
        self._detaching: dict[int, tuple[ServerSession, bytes]] = {}

    # --- channels ---------------------------------------------------------------------------------

    def take_session_control(self, channel: int, control: Any) -> None:
        """Handles a control of class session."""
        session = self.sessions.get(channel)
        if session is None:
            on = On.NOTHING
        else:
            on = On.ENDED if session.state is SessionStage.DETACHING else On.SESSION
        handler = self.channel_steps.get((on, type(control)))
        if handler is not None:
            handler(self, channel, control)
        elif session is None:
            self.not_attached(channel)
        elif on is On.SESSION:
            self._guard(session, session.take_control, control)

    def not_attached(self, channel: int) -> None:
        """Answers input for a channel without a session."""
        session = self.sessions.get(channel)
        if session is None:
            self.send_control(channel, r.SessionDetached(b"", DetachCode.NOT_ATTACHED))

    def _ignore(self, channel: int, control: Any) -> None:
        """Handles an answer that nobody waits for."""

    def _answer_detach(self, channel: int, control: r.SessionDetach) -> None:
        self.send_control(channel, r.SessionDetached(control.name or b"", DetachCode.NORMAL))

    def _attach_session(self, channel: int, control: r.SessionAttach) -> None:
        place = self._place(control)
        if self.kept.find(place, self.now) is None and self.kept.moves.siblings:
            self._seek(channel, control, place)
        else:
            self._attach_here(channel, control)

    def _place(self, control: r.SessionAttach) -> Place:
        return self.settings.container, self.vhost, self.user, control.name or b""

    def _seek(self, channel: int, control: r.SessionAttach, place: Place) -> None:
        """Asks other workers for a session; the client's input waits for their answers."""
        other = self.kept.sought.get(place)
        if isinstance(other, Machine) and not (other.finished or other.has_left):
            self._send_busy(channel, control)
            return
        self.kept.sought[place] = self
        self._sought = channel, control, place
        self.is_seeking = True
        self.runs.add(MemorySought(STORE, key_of(place), control.force))

    def found(self, command: MemoryFound) -> None:
        """Continues an attach: the session of another worker, if any, is kept here now."""
        if self._sought is None or command.key != key_of(self._sought[2]):
            return
        channel, control, place = self._sought
        self._stop_seeking()
        try:
            if command.is_busy and self.kept.find(place, self.now) is None:
                self._send_busy(channel, control)
            else:
                self._attach_here(channel, control)
            self.read_on()
        except ConnectionFaultError as fault:
            self.fail(fault)

    def _stop_seeking(self) -> None:
        if self._sought is not None:
            if self.kept.sought.get(self._sought[2]) is self:
                del self.kept.sought[self._sought[2]]
            self._sought = None

    def _send_busy(self, channel: int, control: r.SessionAttach) -> None:
        busy = r.SessionDetached(control.name or b"", DetachCode.SESSION_BUSY)
        self.send_control(channel, busy)

    def _attach_here(self, channel: int, control: r.SessionAttach) -> None:
        """Attaches a session that is kept here, or a new one."""
        name = control.name or b""
        place = self._place(control)
        known = self.kept.find(place, self.now)
        is_left_behind = known is not None and self.kept.leave_behind(known)
        if known is not None and known.is_attached and not is_left_behind:
            if known.engine is self or not (control.force or known.engine.has_left):
                self._send_busy(channel, control)
                return
            self.kept.take_off(known)
            known = self.kept.find(place, self.now)
        session = None if is_left_behind else known
        if session is None:
            session = ServerSession(self, channel, name)
            if is_left_behind:
                session.link_mark = f"~{next(self.settings.link_ids)}"
        self.kept.attached(place, session)
        self.sessions[channel] = session
        session.attached(self, channel)
        self.send_control(channel, r.SessionAttached(name))
        if session is known:
            self._guard(session, session.come_back)
            session.ask_replay()

    def _attach_again(self, channel: int, control: r.SessionAttach) -> None:
        session = self.sessions[channel]
        if session.name == (control.name or b"") and session.is_attached:
            self.send_control(channel, r.SessionAttached(session.name))
        elif session.is_attached:
            busy = r.SessionDetached(control.name or b"", DetachCode.TRANSPORT_BUSY)
            self.send_control(channel, busy)
        else:
            self._detached(channel, None)
            self._attach_session(channel, control)

    def _detach_session(self, channel: int, control: r.SessionDetach) -> None:
        session = self.sessions[channel]
        assert isinstance(session, ServerSession)
        if session.name != (control.name or b""):
            busy = r.SessionDetached(control.name or b"", DetachCode.NOT_ATTACHED)
            self.send_control(channel, busy)
        elif session.is_busy and not session.is_kept:
            self._detaching[channel] = (session, session.name)
            self.await_drained()
        else:
            self._finish_detach(session)

    def _finish_detach(self, session: ServerSession) -> None:
        self._detaching.pop(session.channel, None)
        session.flush()
        session.leave(is_over=not session.is_kept)
        self.free_session(session)
        self.send_control(session.channel, r.SessionDetached(session.name, DetachCode.NORMAL))

    def _detached(self, channel: int, control: r.SessionDetached | None) -> None:
        session = self.sessions[channel]
        if session.is_attached:
            session.leave(is_over=not session.is_kept)
        session.state = SessionStage.DETACHED
        self.free_session(session)

    def fault(self, fault: SessionFaultError, session: Any) -> None:
        """Ends a session for a fault of the client."""
        session.timeout = 0
        super().fault(fault, session)
        self.kept.left(session, self.now)

    def free_session(self, session: Session) -> None:
        """Records that a channel no longer carries its session; one with a timeout is kept."""
        super().free_session(session)
        self.kept.left(session, self.now)

    # --- commands ---------------------------------------------------------------------------------

    def at_fault(self, fault: Exception, inlet: Inlet) -> None:
        """Ends the session or connection of a client found at fault about an inlet."""

        def found() -> None:
            raise fault

        self.guarded(inlet.publishing.session, found)

    def _guard(
        self, session: Any, action: Callable[_P, object], *arguments: _P.args, **options: _P.kwargs
    ) -> None:
        """Runs code that may find the client at fault."""
        try:
            action(*arguments, **options)
        except SessionFaultError as fault:
            self.fault(fault, session)

    def guarded(
        self, session: Any, action: Callable[_P, object], *arguments: _P.args, **options: _P.kwargs
    ) -> None:
        """Runs code, outside of a receive, that may find the client at fault."""
        try:
            self._guard(session, action, *arguments, **options)
        except ConnectionFaultError as fault:
            self.fail(fault)

    def attached(self, command: AttachLink) -> bool:
        """Handles the core's acceptance of a link that is no inlet; returns whether it is known."""
        questions = self._questions.pop(command.link, None)
        for question in questions or ():
            self.guarded(question.asker, question.accepted, command)
        return questions is not None

    def settled(self, command: UpdateDeliveries) -> None:
        """Forgets the outcomes of deliveries that the home of their link has settled."""
        outlet = self.outlets.get(command.link)
        if outlet is not None and outlet.told:
            outlet.queue.confirmed(outlet, command.numbers)

    def follow(self, command: AddressesChanged) -> None:
        """Updates a queue's outlets to the addresses of a pattern that are in use."""
        watch = self.watches.get(command.link)
        if watch is not None:
            self.guarded(watch.session, watch.session.watching.follow, watch, command)

    def refused(self, link: LinkId, condition: Condition) -> None:
        """Handles the core's refusal of a link that is no inlet."""
        watch = self.watches.pop(link, None)
        if watch is not None and watch.refused is not None:
            self.guarded(watch.session, watch.refused, condition)
        for question in self._questions.pop(link, ()):
            self.guarded(question.asker, question.refused, condition)

    def lost(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the end of an outlet, as ordered by the core."""
        questions = self._questions.pop(outlet.link, ())
        session = outlet.queue.session
        self.guarded(session, session.lose, outlet, condition)
        for question in questions:
            self.guarded(question.asker, question.refused, condition)

    def ask_for_record(self, outlet: Outlet) -> None:
        """Asks the core to report when outcomes are on record, once it has been told them all."""
        if outlet.has_told_all:
            super().ask_for_record(outlet)

    def recorded(self, outlet: Outlet, waiters: Sequence[int]) -> None:
        """Completes commands whose outcomes are on record."""
        session = outlet.queue.session
        for number in waiters:
            self.guarded(session, session.finished, number)
        outlet.queue.detach_if_done(outlet)

    def unknown(self, outlet: Outlet, waiters: Sequence[int], condition: Condition) -> None:
        """Fails commands: a link has ended before the core has reported that it is on record."""
        session = outlet.queue.session
        for number in waiters:
            self.guarded(session, session.unknown, outlet, number, condition)

    # --- links ------------------------------------------------------------------------------------

    @property
    def files_octets(self) -> int:
        """Octets of uploaded files in all sessions of the connection."""
        sessions = self.sessions.values()
        return sum(each.files.octets for each in sessions if isinstance(each, ServerSession))

    def own_queue(self, exchange: str, key: str) -> Queue | None:
        """Returns the queue that accepts this connection's transfers, without the core."""
        for session in self.sessions.values() if not exchange else ():
            if isinstance(session, ServerSession) and session.is_attached:
                found = session.queues.get(key)
                if found is not None and found.takes_own:
                    return found
        return None

    def is_exclusive_elsewhere(self, name: str, asker: Session) -> bool:
        """Returns whether a queue is exclusive to another session of this connection."""
        found = (each for each in self.sessions.values() if isinstance(each, ServerSession))
        return any(
            queue.is_exclusive
            for queue in (each.queues.get(name) for each in found if each is not asker)
            if queue is not None
        )

    def knows_exchange(self, name: str) -> bool:
        """Returns whether an exchange was declared on this connection, or is predeclared."""
        sessions = self.sessions.values()
        return any(name in each.exchanges for each in sessions if isinstance(each, ServerSession))

    def forget_shapes(self) -> None:
        """Clears cached meanings of transfers: queues have changed."""
        for session in self.sessions.values():
            if isinstance(session, ServerSession):
                session.publishing.shapes.clear()

    # --- turns ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if something is pending."""
        if self._reviews or self._pumps:
            return -math.inf
        own = super().deadline
        if self._wakes_at == math.inf:
            return own
        return self._wakes_at if own is None else min(own, self._wakes_at)

    def on_time(self, now: float) -> None:
        """Drops expired transfers, and hands on those that may be."""
        if now >= self._wakes_at:
            self._wakes_at = math.inf
            for session in self.sessions.values():
                if isinstance(session, ServerSession) and session.publishing.held:
                    self.pump_later(session.publishing)

    def end_turn(self) -> None:
        """Hands on held transfers, and grants credit as far as subscriptions have capacity."""
        pumps, self._pumps = self._pumps, {}
        for publishing in pumps.values():
            if publishing.session.is_attached and publishing.session.engine is self:
                self.guarded(publishing.session, publishing.on_time)
        reviews, self._reviews = self._reviews, {}
        if self.phase is MachinePhase.OPENED:
            for queue in reviews.values():
                queue.review()
        self.watch_output()

    # --- ends -------------------------------------------------------------------------------------

    def take_close(self, close: r.ConnectionClose) -> None:
        """Handles the client's close, after its earlier transfers are handed on."""
        if self.phase is MachinePhase.OPENED and any(self._busy()):
            self._closing = close
            self.await_drained()
            return
        super().take_close(close)

    def _busy(self) -> Iterator[bool]:
        for session in self.sessions.values():
            if isinstance(session, ServerSession) and session.is_attached:
                yield session.is_busy and not session.is_kept

    def drained(self) -> None:
        """Records that a session holds no transfers any more."""
        for session, _ in list(self._detaching.values()):
            if not session.is_busy:
                self._finish_detach(session)
        close = self._closing
        if close is not None and not any(self._busy()):
            self._closing = None
            super().take_close(close)

    def give_up_waiting(self) -> None:
        """Ends overdue waits: the handshake, our close, or a deferred end."""
        if self.phase is not MachinePhase.OPENED:
            super().give_up_waiting()
            return
        self.gives_up_at = float("inf")
        for session, _ in list(self._detaching.values()):
            self._finish_detach(session)
        close, self._closing = self._closing, None
        if close is not None:
            super().take_close(close)

    def end_sessions(self, *, is_orderly: bool) -> None:
        """Detaches every session from the connection; those with a timeout are kept."""
        self._stop_seeking()
        sessions = list(self.sessions.values())
        super().end_sessions(is_orderly=is_orderly)
        for session in sessions:
            self.kept.left(session, self.now)
        self.inlets.clear()
        self.outlets.clear()
        self.watches.clear()
        self._questions.clear()
        self._reviews.clear()
        self._pumps.clear()
        self._wakes_at = math.inf
        self._detaching.clear()

    channel_steps: ClassVar[Mapping[tuple[On, type], Callable[[Any, int, Any], None]]] = {
        (On.NOTHING, r.SessionAttach): _attach_session,
        (On.NOTHING, r.SessionDetach): _answer_detach,
        (On.NOTHING, r.SessionDetached): _ignore,
        (On.SESSION, r.SessionAttach): _attach_again,
        (On.SESSION, r.SessionDetach): _detach_session,
        (On.SESSION, r.SessionDetached): _detached,
        (On.ENDED, r.SessionAttach): _attach_again,
        (On.ENDED, r.SessionDetach): _answer_detach,
        (On.ENDED, r.SessionDetached): _detached,
    }
    """State of a channel, and control → handler. All other controls go to the session; without one
    they are answered with detached, not-attached; after our detach they are dropped."""
