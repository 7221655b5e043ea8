"""The connection to a server, as its links know it.

What is sent to join (acknowledgements) is gathered while a turn lasts and written when output is
asked for; credit is granted when a turn ends.
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


class _Settling(Interface):
    """A link that gathers acknowledgements."""

    def flush(self) -> None:
        """Writes the acknowledgements that are due."""


class _Sending(Interface):
    """A link whose credit depends on what the turn has brought."""

    number: int

    def review(self) -> None:
        """Grants what there is room for now."""


class ClientLinks(DialingMachine, ClientHandshake):
    """What the links of one connection share.

    Attributes:
        links: those that the core knows.
        settling: channel → link with an acknowledgement to be written.
        budget: counts what is gathered.
        heads: looks at the heads of messages.
    """

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, area)
        self.links: dict[LinkId, LinkEnd] = {}
        self.settling: dict[int, _Settling] = {}
        self.budget = Budget()
        self.heads = Heads(decode_carried)
        self._reviews: dict[int, _Sending] = {}

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if something waits for it."""
        return float("-inf") if self._reviews else super().deadline

    def review(self, link: _Sending) -> None:
        """Looks at a link's credit when the turn ends."""
        self._reviews[link.number] = link

    def end_turn(self) -> None:
        """Grants what there is room for now."""
        reviews, self._reviews = self._reviews, {}
        for link in reviews.values():
            link.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the acknowledgements that are due."""
        settling, self.settling = self.settling, {}
        for link in settling.values():
            link.flush()

    def free(self, number: int) -> None:
        """Records that the number of a link may be used again."""
        raise NotImplementedError
