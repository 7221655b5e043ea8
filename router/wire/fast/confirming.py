"""Replies to a channel's acknowledgments, in the order of the commands (§3.3.6, §3.3.8).

Theory of operation. On a route that promises exactly-once a reply waits until the outcomes are on
record (``router.wire.recording``); replies to later acknowledgments of the channel wait behind it.
Where nothing is recorded, and nothing waits, a reply is sent at once. If the core ends a link
before it has reported, nobody knows whether the acknowledgments count: the channel is closed.
"""

from collections import deque
from collections.abc import Callable, Iterable

import attrs

from router.model.condition import Condition
from router.wire.fast.consuming import Outlet
from router.wire.fast.handle import HandleChannel
from router.wire.fast.reply import Level, PeerError, reply_of
from router.wire.fast.server_links import ServerLinks


@attrs.define(eq=False)
class Confirmation:
    """A reply that is due.

    Attributes:
        reply: sends it.
        unrecorded: number of outlets of which the core has not reported that they are on record.
    """

    reply: Callable[[], None]
    unrecorded: int


class Confirming:
    """The replies of one channel.

    Attributes:
        line: those that wait, oldest first.
    """

    def __init__(self, engine: ServerLinks, channel: HandleChannel) -> None:
        self._engine = engine
        self._channel = channel
        self.line: deque[Confirmation] = deque()

    def settle(
        self, outlets: Iterable[Outlet], settle: Callable[[], None], reply: Callable[[], None]
    ) -> None:
        """Settles messages, and replies when that is on record.

        Args:
            outlets: of the messages.
            settle: reports their outcomes to the core.
            reply: sends the reply.
        """
        exact = {id(each): each for each in outlets if each.is_exact and each.is_attached}
        confirmation = Confirmation(reply, len(exact))
        for outlet in exact.values():
            outlet.unrecorded.add((self, confirmation))
        settle()
        for outlet in exact.values():
            self._engine.ask_for_record(outlet)
        self.line.append(confirmation)
        self._go_on()

    def recorded(self, confirmation: Confirmation) -> None:
        """Records that the outcomes on one link are on record."""
        confirmation.unrecorded -= 1
        self._go_on()
        if not self.line:
            self._channel.drained()

    def unknown(self, confirmation: Confirmation, address: str, condition: Condition) -> None:
        """Closes the channel: a link has ended before the core has reported."""
        if confirmation in self.line:
            text = f"{condition}; whether acknowledgments for {address!r} count is unknown"
            error = PeerError(reply_of(condition), text, Level.CHANNEL)
            self._engine.fault(error, self._channel, None)

    def _go_on(self) -> None:
        while self.line and not self.line[0].unrecorded:
            self.line.popleft().reply()
