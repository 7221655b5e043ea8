"""Sessions that the router begins for links that it initiates (§2.5.1).

Theory of operation. Sending links share one session: more sessions would only split dispositions
that could be combined. Receiving links are spread over a few sessions, because a held window
(``HoldWindow``) stops every transfer of its session. When a session has no free handle, the next
one is begun. Where the peer or the file allows fewer sessions, links of both directions share them.
"""

from typing import Final

from router.model.terminus import Role
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.session import Session
from router.wire.v1_0.settling import Settling

SPREAD: Final = {Role.SENDER: 1, Role.RECEIVER: 8}
"""Role → number of sessions over which our links of that role are spread."""


class OwnSessions:
    """Finds or begins sessions for links that we initiate."""

    __slots__ = ("_begun", "_endpoints")

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._begun: dict[Role, list[Session]] = {}

    def make(self) -> Session:
        """Creates a session endpoint that is not registered yet."""
        endpoints = self._endpoints
        connection = endpoints.connection.state
        state = endpoints.states.SessionState(connection, endpoints.settings.session_window_frames)
        state.next_outgoing_id = endpoints.initial_id
        state.next_outgoing_delivery = endpoints.initial_id
        return Session(state, connection, Settling(Role.RECEIVER), Settling(Role.SENDER))

    def find(self, role: Role) -> Session | None:
        """Returns the session for one more link of ours; None if no channel or handle is free."""
        ours = [each for each in self._begun.get(role, ()) if each.can_attach]
        if len(ours) < SPREAD[role]:
            session = self._begin(role)
            if session is not None:
                return session
        if not ours:
            ours = [each for begun in self._begun.values() for each in begun if each.can_attach]
        return min(ours, key=lambda each: len(each.by_handle), default=None)

    def _begin(self, role: Role) -> Session | None:
        endpoints = self._endpoints
        most = endpoints.settings.own_sessions
        if most is not None and sum(map(len, self._begun.values())) >= most:
            return None
        channel = endpoints.free_channel()
        if channel is None:
            return None
        session = self.make()
        endpoints.outgoing[channel] = session
        session.send_begin(channel, endpoints.settings.handle_max)
        self._begun.setdefault(role, []).append(session)
        return session

    def forget(self, session: Session) -> None:
        """Records that a session has ended."""
        for begun in self._begun.values():
            if session in begun:
                begun.remove(session)
