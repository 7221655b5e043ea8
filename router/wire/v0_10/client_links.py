"""The connection to a broker, as the sessions of its links know it.

What is sent to join (outcomes) is gathered while a turn lasts and written when output is asked for;
credit is granted when a turn ends.
"""

from typing import Protocol as Interface

from router.model.identity import LinkId
from router.wire.dialing import DialingMachine, LinkEnd
from router.wire.engine import EngineSettings
from router.wire.v0_10.client_handshake import ClientHandshake
from router.wire.v0_10.session import Session


class _Sending(Interface):
    """A session whose credit depends on what the turn has brought."""

    channel: int

    @property
    def is_attached(self) -> bool:
        """Whether the session is attached."""

    def review(self) -> None:
        """Grants what there is room for now."""


class ClientLinks(DialingMachine, ClientHandshake):
    """What the links of one connection share.

    Attributes:
        links: session of each link.
        settling: channel → link with outcomes to be written.
    """

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.links: dict[LinkId, LinkEnd] = {}
        self.settling: dict[int, Session] = {}
        self._reviews: dict[int, _Sending] = {}

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if something waits for it."""
        return float("-inf") if self._reviews else super().deadline

    def review(self, session: _Sending) -> None:
        """Looks at a link's credit when the turn ends."""
        self._reviews[session.channel] = session

    def end_turn(self) -> None:
        """Grants what there is room for now."""
        reviews, self._reviews = self._reviews, {}
        for session in reviews.values():
            if session.is_attached:
                session.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the outcomes that were gathered."""
        settling, self.settling = self.settling, {}
        for session in settling.values():
            self.dirty[session] = None
        super().flush()

    def end_sessions(self, *, is_orderly: bool) -> None:
        """Takes every session off the connection, and forgets the links."""
        super().end_sessions(is_orderly=is_orderly)
        self.links.clear()
        self.settling.clear()
        self._reviews.clear()
