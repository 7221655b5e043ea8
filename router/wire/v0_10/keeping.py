"""Sessions without a channel, kept for clients that come back (0-10 session, timeout).

One store serves all connections of a worker, so that a client finds its session again on the
connection that it dials next. A session lies under the router's name, the virtual host, the
client's identity and its own name. What was not fetched within its timeout is forgotten when the
store is next looked at; the core forgets the links' deliveries by itself, at the same time.
"""

from typing import Final

import attrs

from router.wire.engine import EngineSettings
from router.wire.v0_10.server_session import ServerSession
from router.wire.v0_10.session import Session

Place = tuple[str, str, str | None, bytes]
"""Container, virtual host, identity, name."""

MAX_SESSIONS: Final = 10_000
"""Sessions without a channel that are kept; the one that left first makes room."""

_KEY: Final = "amqp-0-10 sessions"


@attrs.define(eq=False)
class _Entry:
    session: ServerSession
    expires_at: float


class Kept:
    """The sessions that are attached somewhere, and those that are kept."""

    def __init__(self) -> None:
        self._places: dict[Place, _Entry] = {}
        self._place_of: dict[Session, Place] = {}

    @classmethod
    def of(cls, settings: EngineSettings) -> "Kept":
        """Gives the store that all engines with the same memory share."""
        found = settings.memory.setdefault(_KEY, cls())
        assert isinstance(found, cls)
        return found

    def find(self, place: Place, now: float) -> ServerSession | None:
        """Finds a session that is attached, or not yet forgotten."""
        entry = self._places.get(place)
        if entry is None:
            return None
        if entry.expires_at < now:
            self._forget(place)
            return None
        return entry.session

    def attached(self, place: Place, session: ServerSession) -> None:
        """Takes note that a session has a channel."""
        self._places[place] = _Entry(session, float("inf"))
        self._place_of[session] = place

    def left(self, session: Session, now: float) -> None:
        """Takes note that a session has no channel any more; its timeout begins."""
        place = self._place_of.get(session)
        if place is None or session.is_attached:
            return
        if not session.is_kept:
            self._forget(place)
            return
        entry = self._places.pop(place)
        seconds = float("inf") if session.timeout is None else float(session.timeout)
        entry.expires_at = now + seconds
        self._places[place] = entry
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        away = [
            (place, each) for place, each in self._places.items() if not each.session.is_attached
        ]
        for place, entry in away:
            if entry.expires_at < now or len(away) > MAX_SESSIONS:
                self._forget(place)
                if entry.expires_at >= now:
                    return

    def _forget(self, place: Place) -> None:
        entry = self._places.pop(place)
        self._place_of.pop(entry.session, None)
        if not entry.session.is_attached:
            entry.session.gone_for_good()
