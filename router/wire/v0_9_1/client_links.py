"""The connection to a broker, as used by the channels of its links.

Acknowledgments are gathered during a turn and written when output is requested; credit is granted
at the end of a turn.
"""

from typing import Protocol as Interface

from router.model.identity import LinkId
from router.wire.dialing import DialingMachine, LinkEnd
from router.wire.engine import EngineSettings
from router.wire.holding import Holding
from router.wire.v0_9_1.channel import ChannelPhase
from router.wire.v0_9_1.client_handshake import ClientHandshake


class _Settling(Interface):
    """A channel that gathers acknowledgments."""

    number: int
    phase: ChannelPhase

    def flush(self) -> None:
        """Writes the gathered acknowledgments."""


class _Sending(Interface):
    """A channel whose credit depends on the events of the turn."""

    number: int
    phase: ChannelPhase

    def review(self) -> None:
        """Grants credit as far as there is capacity."""


class ClientLinks(DialingMachine, ClientHandshake):
    """The shared state of one connection's links.

    Attributes:
        links: channel of each link.
        is_blocked: the broker reads no publishes (connection.blocked).
        settling: channel number → link with gathered acknowledgments.
        holding: links that hold messages without credit.
        suspects: address → how many publishes to it the next link sends one by one
            (``broker_sender``).
    """

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.links: dict[LinkId, LinkEnd] = {}
        self.is_blocked = False
        self.settling: dict[int, _Settling] = {}
        self.suspects: dict[str | None, int] = {}
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

    def unsubscribed(self) -> None:
        """Records that the binding of a link that has ended is gone, or stays for good."""
        raise NotImplementedError

    def review(self, channel: _Sending) -> None:
        """Reviews a link's credit at the end of the turn."""
        self._reviews[channel.number] = channel

    def end_turn(self) -> None:
        """Grants credit as far as there is capacity."""
        reviews, self._reviews = self._reviews, {}
        for channel in reviews.values():
            if channel.phase is ChannelPhase.OPEN:
                channel.review()
        self.watch_output()

    def flush(self) -> None:
        """Writes the gathered acknowledgments."""
        settling, self.settling = self.settling, {}
        for channel in settling.values():
            if channel.phase is ChannelPhase.OPEN:
                channel.flush()
