"""The connection to a server, as used by its links.

Acknowledgments are gathered during a turn and written when output is requested; credit is granted
at the end of a turn.
"""

from typing import Protocol as Interface

from router.model.identity import LinkId
from router.wire.dialing import DialingMachine, LinkEnd
from router.wire.engine import EngineSettings
from router.wire.fast.area import Area
from router.wire.fast.client_handshake import ClientHandshake
from router.wire.fast.gather import Budget
from router.wire.fast.heads import Heads
from router.wire.fast.types import decode_carried
from router.wire.holding import Holding


class _Settling(Interface):
    """A link that gathers acknowledgments."""

    def flush(self) -> None:
        """Writes the gathered acknowledgments."""


class _Sending(Interface):
    """A link whose credit depends on the events of the turn."""

    number: int

    def review(self) -> None:
        """Grants credit as far as there is capacity."""


class ClientLinks(DialingMachine, ClientHandshake):
    """The shared state of one connection's links.

    Attributes:
        links: the links that the core knows.
        settling: channel → link with a gathered acknowledgment.
        budget: counts octets of incomplete messages.
        heads: validates heads of messages.
        holding: links that hold messages without credit.
    """

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, area)
        self.links: dict[LinkId, LinkEnd] = {}
        self.settling: dict[int, _Settling] = {}
        self.budget = Budget()
        self.heads = Heads(decode_carried)
        self.holding = Holding()
        self._reviews: dict[int, _Sending] = {}

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; in the past if something is pending."""
        return float("-inf") if self._reviews else self.holding.deadline(super().deadline)

    def on_time(self, now: float) -> None:
        """Returns what links have held for long without credit."""
        super().on_time(now)
        self.holding.on_time(now)

    def review(self, link: _Sending) -> None:
        """Reviews a link's credit at the end of the turn."""
        self._reviews[link.number] = link

    def end_turn(self) -> None:
        """Grants credit as far as there is capacity."""
        reviews, self._reviews = self._reviews, {}
        for link in reviews.values():
            link.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the gathered acknowledgments."""
        settling, self.settling = self.settling, {}
        for link in settling.values():
            link.flush()

    def free(self, number: int) -> None:
        """Records that the number of a link is free."""
        raise NotImplementedError
