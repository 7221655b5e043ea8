"""``queue.purge`` of a routed queue: its messages are received and dropped, as if consumed.

Theory of operation. A router holds no queue, but it can drop what it could deliver to a consumer;
the senders see their messages accepted. So a purge is a link from the queue's address, with a
priority below every consumer's: it receives only what no other consumer has capacity for. It has
credit for a moment, because publishers to an address without receivers begin to send only then;
then it drains, repeatedly while a drain has used all its credit::

    attaching -> taking      PURGE_SECONDS
    taking    -> draining    until a drain leaves credit over, or LONGEST_SECONDS have passed
    draining  -> over        purge-ok with the count

A multicast address keeps nothing, so there is nothing to be purged.
"""

import math
from typing import Final

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkDetached
from router.model.outcome import ACCEPTED
from router.wire.asking import Question
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.outlets import Outlet, Taker
from router.wire.v0_9_1.server_links import ServerLinks

PURGE_CREDIT: Final = 1000
"""Deliveries that may be under way to a purge."""

PURGE_SECONDS: Final = 0.2
"""How long publishers have to send their waiting messages."""

LONGEST_SECONDS: Final = 10.0
"""Limit of a purge while messages keep coming: those were published since it began."""

LOWEST_PRIORITY: Final = -(1 << 31)


class Purge(Taker):
    """A purge that is under way; ``count`` deliveries were dropped before it began.

    Attributes:
        outlet: its link.
        priority: of the link.
        at: when its next action is due.
    """

    channel: ClientChannel

    def __init__(
        self,
        engine: ServerLinks,
        channel: ClientChannel,
        queue: str,
        count: int,
        no_wait: bool,
    ) -> None:
        self._engine = engine
        self.channel = channel
        self.priority = LOWEST_PRIORITY
        self.outlet = Outlet(engine.next_link(), self, queue)
        self.at = math.inf
        self._no_wait = no_wait
        self._ends_at = engine.now + LONGEST_SECONDS
        self._count = count

    def begin(self) -> None:
        """Requests the link; the channel waits until the purge is over."""
        self._engine.ask_for_outlet(self.outlet, f"{self.channel.number}")
        self._engine.ask(self.outlet.link, Question(self.channel, self._attached, self._refused))
        self._engine.purges.append(self)
        self.channel.park()

    def _attached(self, answer: AttachLink) -> None:
        if self not in self._engine.purges:
            return  # the channel has ended
        self.outlet.is_attached = True
        if answer.source is not None and answer.source.distribution_mode == "copy":
            self._finish()
            return
        self._grant()
        self.at = self._engine.now + PURGE_SECONDS

    def _refused(self, condition: Condition) -> None:
        if self in self._engine.purges:
            self._engine.purges.remove(self)
            self._engine.outlets.pop(self.outlet.link, None)
            error = Asking.refusal(condition, f"queue {self.outlet.address!r}", (50, 30))
            self._engine.fault(error, self.channel)

    def _grant(self, *, drain: bool = False) -> None:
        self.outlet.credit = PURGE_CREDIT
        self._engine.runs.add(CreditGranted(self.outlet.link, PURGE_CREDIT, drain=drain))

    def on_time(self) -> None:
        """Starts the drain, after the time for publishers."""
        self.at = math.inf
        self._grant(drain=True)

    def got(self, delivery: OutgoingDelivery) -> None:
        """Drops a delivery."""
        outlet = self.outlet
        outlet.credit -= 1
        self._count += 1
        if not delivery.settled:
            outlet.unsettled += 1
            self._engine.settle(outlet, [delivery.number], ACCEPTED)
        if self.at < math.inf and 2 * outlet.credit < PURGE_CREDIT:
            self._grant()

    def got_nothing(self) -> None:
        """Handles the end of a drain."""
        if self.outlet.credit > 0 or self._engine.now >= self._ends_at:
            self._finish()
        else:
            self._grant(drain=True)

    def _finish(self) -> None:
        self.leave()
        answer = m.QueuePurgeOk(self._count)
        self.channel.go_on(lambda: self.channel.reply(answer, self._no_wait))

    def leave(self) -> None:
        """Detaches the link."""
        self._engine.purges.remove(self)
        self._engine.outlets.pop(self.outlet.link, None)
        self._engine.runs.add(LinkDetached(self.outlet.link, closed=True))

    def lost(self, condition: Condition | None) -> None:
        """Records that the core has detached the link."""
        self._refused(condition or Condition(conditions.DETACH_FORCED))
