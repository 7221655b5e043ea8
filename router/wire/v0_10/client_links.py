"""The connection to a broker, as used by the sessions of its links.

Outcomes are gathered during a turn and written when output is requested; credit is granted at the
end of a turn.
"""

from typing import Protocol as Interface

from router.model.identity import LinkId
from router.wire.dialing import DialingMachine, LinkEnd
from router.wire.engine import EngineSettings
from router.wire.v0_10.client_handshake import ClientHandshake
from router.wire.v0_10.session import Session


class _Sending(Interface):
    """A session whose credit depends on the events of the turn."""

    channel: int

    @property
    def is_attached(self) -> bool:
        """Whether the session is attached."""

    def review(self) -> None:
        """Grants credit as far as there is capacity."""


class ClientLinks(DialingMachine, ClientHandshake):
    """The shared state of one connection's links.

    Attributes:
        links: session of each link.
        settling: channel → link with gathered outcomes.
    """

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.links: dict[LinkId, LinkEnd] = {}
        self.settling: dict[int, Session] = {}
        self._reviews: dict[int, _Sending] = {}

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if something is pending."""
        return float("-inf") if self._reviews else super().deadline

    def review(self, session: _Sending) -> None:
        """Reviews a link's credit at the end of the turn."""
        self._reviews[session.channel] = session

    def end_turn(self) -> None:
        """Grants credit as far as there is capacity."""
        reviews, self._reviews = self._reviews, {}
        for session in reviews.values():
            if session.is_attached:
                session.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the gathered outcomes."""
        settling, self.settling = self.settling, {}
        for session in settling.values():
            self.dirty[session] = None
        super().flush()

    def end_sessions(self, *, is_orderly: bool) -> None:
        """Detaches every session from the connection, and forgets the links."""
        super().end_sessions(is_orderly=is_orderly)
        self.links.clear()
        self.settling.clear()
        self._reviews.clear()
