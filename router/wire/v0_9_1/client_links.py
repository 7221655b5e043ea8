"""The connection to a broker, as the channels of its links know it.

What is sent to join (acknowledgments) is gathered while a turn lasts and written when output is
asked for; credit is granted when a turn ends.
"""

from typing import Protocol as Interface

from router.model.identity import LinkId
from router.wire.dialing import DialingMachine, LinkEnd
from router.wire.engine import EngineSettings
from router.wire.v0_9_1.channel import ChannelPhase
from router.wire.v0_9_1.client_handshake import ClientHandshake


class _Settling(Interface):
    """A channel that gathers acknowledgments."""

    number: int
    phase: ChannelPhase

    def flush(self) -> None:
        """Writes the acknowledgments that were gathered."""


class _Sending(Interface):
    """A channel whose credit depends on what the turn has brought."""

    number: int
    phase: ChannelPhase

    def review(self) -> None:
        """Grants what there is room for now."""


class ClientLinks(DialingMachine, ClientHandshake):
    """What the links of one connection share.

    Attributes:
        links: channel of each link.
        is_blocked: the broker reads no publishes (connection.blocked).
        settling: channel number → link with acknowledgments to be written.
        suspects: address → how many publishes to it the next link sends one by one
            (``broker_sender``).
    """

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.links: dict[LinkId, LinkEnd] = {}
        self.is_blocked = False
        self.settling: dict[int, _Settling] = {}
        self.suspects: dict[str | None, int] = {}
        self._reviews: dict[int, _Sending] = {}

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` wants to be called; in the past if something waits for it."""
        return float("-inf") if self._reviews else super().deadline

    def review(self, channel: _Sending) -> None:
        """Looks at a link's credit when the turn ends."""
        self._reviews[channel.number] = channel

    def end_turn(self) -> None:
        """Grants what there is room for now."""
        reviews, self._reviews = self._reviews, {}
        for channel in reviews.values():
            if channel.phase is ChannelPhase.OPEN:
                channel.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the acknowledgments that were gathered."""
        settling, self.settling = self.settling, {}
        for channel in settling.values():
            if channel.phase is ChannelPhase.OPEN:
                channel.flush()
