"""Sessions without a channel, kept for clients that come back (0-10 session, timeout).

One store serves all connections of a worker, so that a client finds its session again on its next
connection. The key of a session is the router's name, the virtual host, the client's identity and
the session's name. A session that is not fetched within its timeout is dropped at the next check of
the store; the core forgets the links' deliveries by itself, at the same time.

If a client connects to another worker, its session is moved there (``router.wire.memory``), with
its numbers of commands and its replay copies. Its links stay in the core of the previous worker,
because their deliveries are under way there. They are attached again from the new worker, each with
the name of its home, and lead through to it (``router.core.passage``).
"""

from typing import Final

import attrs

from router.errors import DecodeError
from router.model.events import MemoryLeft
from router.wire.engine import EngineSettings
from router.wire.memory import Moves, Refusal, Store
from router.wire.v0_10 import records as r
from router.wire.v0_10.packing import pack, unpack
from router.wire.v0_10.reply import DetachCode
from router.wire.v0_10.server_session import ServerSession
from router.wire.v0_10.session import Session
from router.wire.v1_0.types import decode_value, encode_value

Place = tuple[str, str, str | None, bytes]
"""Container, virtual host, identity, name."""

MAX_SESSIONS: Final = 10_000
"""Most sessions without a channel; beyond it the one that left first is dropped."""

FILES_KEPT_OCTETS: Final = 256 << 20
"""Octets that sessions without a channel may have together of uploaded and unpublished files;
beyond it, of those that have any, the one that left first is dropped."""

STORE: Final = "amqp-0-10 sessions"
"""The name of the store in a worker's memory."""


def key_of(place: Place) -> bytes:
    """Encodes a place, for other workers."""
    return encode_value(list(place))


def _place_of(key: bytes) -> Place:
    container, vhost, user, name = decode_value(key)[0]
    return container, vhost, user, name


@attrs.define(eq=False)
class _Entry:
    session: ServerSession
    expires_at: float


class Kept(Store):
    """The attached sessions, and the kept ones.

    Attributes:
        moves: knows the sessions of other workers.
        sought: places requested from other workers, by the connection that waits for them.
    """

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self.sought: dict[Place, object] = {}
        self._places: dict[Place, _Entry] = {}
        self._place_of: dict[Session, Place] = {}

    @classmethod
    def of(cls, settings: EngineSettings) -> "Kept":
        """Returns the store that all engines with the same memory share."""
        found = settings.memory.get(STORE)
        if found is None:
            found = settings.memory[STORE] = cls(Moves.of(settings.memory))
        assert isinstance(found, cls)
        return found

    def find(self, place: Place, now: float) -> ServerSession | None:
        """Returns a session that is attached or kept; None: there is none."""
        entry = self._places.get(place)
        if entry is None:
            return None
        if entry.expires_at < now:
            self._forget(place)
            return None
        return entry.session

    def attached(self, place: Place, session: ServerSession) -> None:
        """Records that a session has a channel."""
        self._places[place] = _Entry(session, float("inf"))
        self._place_of[session] = place

    def leave_behind(self, session: Session) -> bool:
        """Frees the name of a session that ends with a connection which its client has ended.

        What came on it before is yet to be read, and goes on. A session that outlives its
        connection leaves it instead: its client sends again what it has no answer for.

        Returns:
            whether it is such a session.
        """
        if session.is_kept or not (session.is_attached and session.engine.has_left):
            return False
        place = self._place_of.pop(session, None)
        if place is not None:
            del self._places[place]
        return True

    def left(self, session: Session, now: float) -> None:
        """Records that a session has lost its channel; its timeout begins."""
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
        self._evict(now)

    def take_off(self, session: Session) -> None:
        """Detaches a session from the connection that carries it (session.attach, force)."""
        engine, place = session.engine, self._place_of.get(session)
        engine.send_control(
            session.channel, r.SessionDetached(session.name, DetachCode.SESSION_BUSY)
        )
        session.leave(is_over=not session.is_kept)
        engine.free_session(session)
        if place is not None:
            engine.runs.add(MemoryLeft(STORE, key_of(place)))
        self.moves.awakened.append(engine)

    def give(self, key: bytes, *, force: bool, now: float) -> bytes | Refusal:
        """Gives a session to another worker; see ``Store``."""
        place = _place_of(key)
        session = self.find(place, now)
        if session is not None and self.leave_behind(session):
            return Refusal.NOTHING
        if session is not None and session.is_attached:
            if not (force or session.engine.has_left):
                return Refusal.BUSY
            self.take_off(session)
            return Refusal.LEAVING
        if session is None:
            return Refusal.NOTHING
        entry = self._places.pop(place)
        del self._place_of[session]
        session.shift(-now)
        return pack(session, entry.expires_at - now)

    def take(self, key: bytes, kept: bytes, giver: str, now: float) -> None:
        """Keeps a session that another worker has given; see ``Store``."""
        seconds, session = unpack(kept)
        place = _place_of(key)
        if place in self._places:
            raise DecodeError(0, "a session that is here already")
        session.moved(lambda home: self.moves.home(home, giver))
        session.shift(now)
        self._places[place] = _Entry(session, now + seconds)
        self._place_of[session] = place
        self._evict(now)

    def _evict(self, now: float) -> None:
        away = [
            (place, each) for place, each in self._places.items() if not each.session.is_attached
        ]
        has_too_many = len(away) > MAX_SESSIONS
        octets = sum(entry.session.files.octets for _, entry in away)
        for place, entry in away:
            own = entry.session.files.octets
            is_over = entry.expires_at < now
            if is_over or has_too_many or (own and octets > FILES_KEPT_OCTETS):
                self._forget(place)
                octets -= own
                has_too_many = has_too_many and is_over

    def _forget(self, place: Place) -> None:
        entry = self._places.pop(place)
        self._place_of.pop(entry.session, None)
        if not entry.session.is_attached:
            entry.session.gone_for_good()
