"""The dialing side: links as sessions with a broker, and the core's commands.

Theory of operation. Each link has a session of its own (``broker_session``), on a channel of its
own. Outcomes are gathered during a turn and written when output is requested; credit is granted at
the end of a turn.
"""

from typing import Any, Final

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.terminus import Coordinator, Role
from router.wire.engine import EngineSettings
from router.wire.exchange_names import is_expressible
from router.wire.v0_10 import records as r
from router.wire.v0_10.broker_receiver import BrokerReceiver
from router.wire.v0_10.broker_sender import BrokerSender
from router.wire.v0_10.broker_session import NO_CHANNEL, NO_NAME, BrokerSession
from router.wire.v0_10.client_links import ClientLinks
from router.wire.v0_10.reply import DetachCode, SessionFaultError
from router.wire.v0_10.session import SessionStage

_DETACH_REASONS: Final = {int(code): code.name.lower().replace("_", "-") for code in DetachCode}

_MEMORY: Final = "amqp-0-10 links"

BROKERS_MOST: Final = 16
"""Brokers at the place of one link whose sessions are kept. A cluster has fewer."""

_Place = tuple[str, Role, bytes, str, str]
"""Virtual host, our role and the session's name, and the identity of the broker."""


class ClientEngine(ClientLinks):
    """One connection that we dialed; implements ``router.wire.engine.Engine``."""

    sender_type = BrokerSender
    receiver_type = BrokerReceiver

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._next_channel = 0
        memory = settings.memory.setdefault(_MEMORY, {})
        assert isinstance(memory, dict)
        self._kept: dict[_Place, BrokerSession] = memory

    # --- channels ---------------------------------------------------------------------------------

    def take_session_control(self, channel: int, control: Any) -> None:
        """Handles a control of class session."""
        session = self.sessions.get(channel)
        if not isinstance(session, BrokerSession):
            return
        try:
            self._take_session(session, control)
        except SessionFaultError as fault:
            self.fault(fault, session)

    def _take_session(self, session: BrokerSession, control: Any) -> None:
        match control:
            case r.SessionAttached():
                if session.state is SessionStage.DETACHED:
                    session.broker_attached()
            case r.SessionDetached(code=code):
                self._detached(session, code)
            case r.SessionDetach(name=name):
                self.send_control(session.channel, r.SessionDetached(name or b"", 0))
                self._detached(session, DetachCode.NORMAL)
            case r.SessionAttach():
                busy = r.SessionDetached(control.name or b"", DetachCode.TRANSPORT_BUSY)
                self.send_control(session.channel, busy)
            case _:
                if session.is_attached:
                    session.take_control(control)

    def _detached(self, session: BrokerSession, code: int | None) -> None:
        condition = None
        if code:
            reason = _DETACH_REASONS.get(code, f"code {code}")
            condition = Condition(conditions.RESOURCE_LOCKED, f"the broker detached: {reason}")
        if session.begins_anew and condition is None:
            session.begin_anew()
            return
        session.broker_detached(condition)
        self.free_session(session)

    def not_attached(self, channel: int) -> None:
        """Drops frames that follow our detach; no others arrive for a channel of ours."""

    # --- links ------------------------------------------------------------------------------------

    def attach(self, command: AttachLink) -> None:
        """Begins a link that the core requests, or declines it."""
        if isinstance(command.target, Coordinator):
            none = Condition(conditions.NOT_IMPLEMENTED, "transactions of a broker")
            self.decline(command, none)
            return
        channel = self._free_channel()
        if channel is None:
            self.decline(command, NO_CHANNEL)
            return
        session = self._session_for(command, channel)
        node = session.node()
        if node is not None and not is_expressible(node):
            self.decline(command, NO_NAME)
            return
        self.sessions[channel] = session
        self.links[command.link] = session
        session.start()

    def _session_for(self, command: AttachLink, channel: int) -> BrokerSession:
        kept = self._kept.pop(self._place(command.role, command.name.encode()), None)
        if kept is not None and command.unsettled is not None:
            kept.come_back(self, channel, command)
            return kept
        kind = BrokerSender if command.role is Role.SENDER else BrokerReceiver
        return kind(self, channel, command)

    def _free_channel(self) -> int | None:
        """Returns a free channel; those used recently come last."""
        if len(self.sessions) > self.channel_max:
            return None
        channel = self._next_channel
        while channel in self.sessions:
            channel = (channel + 1) % (self.channel_max + 1)
        self._next_channel = (channel + 1) % (self.channel_max + 1)
        return channel

    # --- ends -------------------------------------------------------------------------------------

    def end_sessions(self, *, is_orderly: bool) -> None:
        """Detaches every session from the connection; those that the broker keeps are stored."""
        sessions = list(self.sessions.values())
        super().end_sessions(is_orderly=is_orderly)
        for session in sessions:
            if isinstance(session, BrokerSession) and session.is_ready and session.is_kept:
                self._keep(self._place(session.command.role, session.name), session)

    def _place(self, role: Role, name: bytes) -> _Place:
        return (self.settings.hostname or "", role, name, *self.identity)

    def _keep(self, place: _Place, session: BrokerSession) -> None:
        """Stores a session; of other brokers that were at its place, those of the last few."""
        self._kept.pop(place, None)
        self._kept[place] = session
        others = [each for each in self._kept if each[:3] == place[:3]]
        for each in others[:-BROKERS_MOST]:
            del self._kept[each]
