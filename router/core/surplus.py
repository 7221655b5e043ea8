"""Surplus: what waits at one worker or router for credit goes where receivers have some.

Each worker and router that sends to an address is granted the same credit of its receivers. So
several may send more than these take, and what is too much waits where they are, although others
are idle elsewhere. It is told of, recalled and returned, one step each::

    egress                                        ingress
    it waits, and would for PATIENCE_SECONDS ──▶  n wait (``ReportWaiting``)
    the last m go back as ``UNSENT``         ◀──  others have credit for m (``RecallDeliveries``)
    and credit that was not used is asked back
                                                  they go to others, or wait here for any credit

Who has no use for a report passes it on to those that send to him, and a recall likewise the other
way; so both pass the transits of a chain. Chains of exactly-once routes lead it through.

What may never happen. *A copy*: only what was sent to no receiver goes back, settled with its
outcome, as released deliveries do; so an exactly-once delivery leaves its egress because that has
released it, and the rules of ``mesh.chains`` hold. *To and fro*: no more is recalled than others
have credit for, the link has none until its receivers grant more, and a delivery is recalled
``RETURNS_MOST`` times at most. *Disorder*: the last ones go back, to their place in the queue; they
may come behind later ones where they go to another receiver, as what a receiver has released may.

Nothing is told while receivers keep up: links from workers and routers are looked at every
``LOOK_SECONDS``, and less often the longer nothing waits on them.
"""

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import Final
from weakref import WeakKeyDictionary

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.forward import may_take
from router.core.lanes import Lanes
from router.core.mesh.names import comes_by_mesh
from router.core.node import Feed, Node, is_able
from router.core.reach import (
    can_lead_on,
    comes_far,
    is_sibling,
    open_links,
    receivers_for,
)
from router.core.settle import Settler
from router.core.state import State
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.links.pairing import UNNUMBERED, Pairing
from router.model.commands import RecallDeliveries, ReportWaiting
from router.model.delivery import Elder
from router.model.events import DeliveriesRecalled, DeliveriesUpdated, Event, WaitingReported
from router.model.outcome import RELEASED, UNSENT

LOOK_SECONDS: Final = 0.25
LOOK_LIMIT_SECONDS: Final = 1.0

LINKS_MOST: Final = 500
"""Most links looked at in one go: about a millisecond's work."""

PATIENCE_SECONDS: Final = 1.0
"""What waits no longer than that, at the pace of the receivers, is not told of."""

PAUSE_SECONDS: Final = 1.0
"""Pause between two reports about one link."""

NEWS_SECONDS: Final = 3.0
"""For so long a report is news: longer than the pause between two."""

RETURNS_MOST: Final = 3
"""How often one delivery is recalled."""


@attrs.define(eq=False)
class _Waiting:
    """What is known of a link on which deliveries wait.

    Attributes:
        moved: how many deliveries the receivers had been sent by then.
        at: when it was looked at.
        told_at: when it was told of.
    """

    moved: int
    at: float
    told_at: float = -PAUSE_SECONDS


@attrs.define(eq=False)
class Surplus:
    """Tells of deliveries that wait here, returns them, and recalls those that wait elsewhere.

    Attributes:
        _links: from workers and routers; the first is looked at next.
        _known: the same.
        _waiting: those on which deliveries wait.
        _reported: by link, how many wait behind it, and when that was told.
        _owed: by sender, how many are recalled for it from elsewhere, and until when that counts.
        _returns: how often deliveries have come back.
    """

    _state: State
    _settler: Settler
    _granter: Granter
    _lanes: Lanes
    _links: deque[IncomingLink] = attrs.field(factory=deque, init=False)
    _known: set[IncomingLink] = attrs.field(factory=set, init=False)
    _waiting: dict[IncomingLink, _Waiting] = attrs.field(factory=dict, init=False)
    _reported: "WeakKeyDictionary[OutgoingLink, tuple[int, float]]" = attrs.field(
        factory=WeakKeyDictionary, init=False
    )
    _owed: dict[IncomingLink, tuple[int, float]] = attrs.field(factory=dict, init=False)
    _returns: "WeakKeyDictionary[Pairing, int]" = attrs.field(factory=WeakKeyDictionary, init=False)
    _alarm: Alarm | None = attrs.field(default=None, init=False)
    _pause_seconds: float = attrs.field(default=LOOK_SECONDS, init=False)

    # Where deliveries wait

    def attached(self, link: Link) -> None:
        """Records that a link was attached."""
        if not isinstance(link, IncomingLink) or link in self._known or not _comes_far(link):
            return
        self._known.add(link)
        self._links.append(link)
        if self._alarm is None:
            self._pause_seconds = LOOK_SECONDS
            self._set_alarm()

    def _set_alarm(self) -> None:
        at = self._state.turn.now + self._pause_seconds
        self._alarm = self._state.alarms.set(at, self._look)

    def _look(self) -> None:
        self._alarm = None
        left = LINKS_MOST
        for _ in range(len(self._links)):
            if left <= 0:
                break
            link = self._links.popleft()
            left -= 1
            if link.link is None or link.is_gone:
                self._known.discard(link)
                self._waiting.pop(link, None)
                self._owed.pop(link, None)
                continue
            self._links.append(link)
            left -= self._look_at(link)
        if self._links:
            longer = min(LOOK_LIMIT_SECONDS, self._pause_seconds * 2)
            self._pause_seconds = LOOK_SECONDS if self._waiting else longer
            self._set_alarm()

    def _look_at(self, link: IncomingLink) -> int:
        """Tells the sender if too much waits for too long; returns how many links that has cost."""
        feed, now = link.queue, self._state.turn.now
        count = self._lanes.waiting(link) if isinstance(feed, Feed) else 0
        if not count or not isinstance(feed, Feed) or not _is_shared(feed.node):
            self._waiting.pop(link, None)
            return 0
        moved = self._lanes.sent(feed.node)
        before = self._waiting.get(link)
        if before is None:
            self._waiting[link] = _Waiting(moved, now)
            return len(feed.node.outgoing)
        is_slow = count * (now - before.at) > (moved - before.moved) * PATIENCE_SECONDS
        before.moved, before.at = moved, now
        if is_slow and now - before.told_at >= PAUSE_SECONDS and not link.is_draining:
            before.told_at = now
            self._tell(link, count)
        return len(feed.node.outgoing)

    def _tell(self, link: IncomingLink, count: int) -> None:
        assert link.link is not None
        self._state.turn.order(link, ReportWaiting(link.link, count))

    def recalled(self, connection: Connection, event: Event) -> None:
        """Returns what a sender has asked for, as far as it still waits here or behind here."""
        assert isinstance(event, DeliveriesRecalled)
        link = connection.incoming.get(event.link)
        feed = None if link is None else link.queue
        if link is None or not isinstance(feed, Feed) or not _is_shared(feed.node):
            return
        if link.adrift or link.is_reducing:
            return  # its credit is for what it resumes
        self._lanes.demote(feed.node, rests=True)
        self._granter.withdraw(link)  # or else they come again
        last: list[Pairing] = []
        for pairing in reversed(feed.waiting):
            if len(last) == event.count or not _is_untouched(pairing):
                break
            last.append(pairing)
        if last:
            feed.node.withdraw_all(feed, last)
        for pairing in reversed(last):
            self._settler.answer(pairing, UNSENT)
        self._state.turn.review_credit(link)
        if len(last) < event.count:
            self._recall_for(link, feed.node, event.count - len(last))

    def _recall_for(self, link: IncomingLink, node: Node, count: int) -> None:
        """Recalls from elsewhere what a sender has asked for."""
        self._owed[link] = count, self._state.turn.now + NEWS_SECONDS
        for receiver in node.outgoing:
            waiting = min(count, self._count_waiting(receiver))
            if waiting and can_lead_on(node, receiver, link):
                self._recall(receiver, waiting)
                count -= waiting

    # Where they came from

    def reported(self, connection: Connection, event: Event) -> None:
        """Recalls what waits elsewhere, if others have credit for it; else passes the news on."""
        assert isinstance(event, WaitingReported)
        link = connection.outgoing.get(event.link)
        node = None if link is None else self._state.registry.node_of(link)
        if link is None or node is None or not _is_shared(node):
            return
        now = self._state.turn.now
        _, told_at = self._reported.get(link, (0, -PAUSE_SECONDS))
        self._reported[link] = event.count, now
        if now - told_at < PAUSE_SECONDS / 2:
            return
        self._lanes.refresh((node,))
        if not node.rotation and any(each is not link and is_able(each) for each in node.outgoing):
            self._lanes.demote(node, rests=True)
            count = self._count_recallable(node, link, event.count)
            if count:
                self._recall(link, count)
                return
        for incoming in node.feeds:
            if _comes_far(incoming) and incoming.link is not None and not incoming.is_draining:
                if can_lead_on(node, link, incoming):
                    self._tell(incoming, event.count)

    def _recall(self, link: OutgoingLink, count: int) -> None:
        assert link.link is not None
        self._reported[link] = 0, self._state.turn.now
        self._state.turn.order(link, RecallDeliveries(link.link, count))

    def _count_waiting(self, link: OutgoingLink) -> int:
        """Returns how many deliveries wait behind a link, by the news."""
        count, at = self._reported.get(link, (0, 0.0))
        return count if self._state.turn.now - at < NEWS_SECONDS else 0

    def _count_recallable(self, node: Node, link: OutgoingLink, most: int) -> int:
        """Returns how many of the last deliveries of a link others would be sent at once."""
        count, able = 0, dict[IncomingLink, list[OutgoingLink]]()
        for pairing in _from_last(link):
            others = able.get(pairing.incoming)
            if others is None:
                receivers = receivers_for(node, pairing.incoming)
                free = [each for each in receivers if each is not link and is_able(each)]
                others = able[pairing.incoming] = open_links(node, free, pairing.incoming)
            if count == most or count >= sum(each.credit for each in others):
                break
            if self._returns.get(pairing, 0) >= RETURNS_MOST or not _may_go(pairing, others):
                break
            count += 1
        return count

    def returned(self, link: OutgoingLink, event: DeliveriesUpdated) -> None:
        """Queues deliveries again that have come back, or returns them to who has recalled them."""
        released = attrs.evolve(event, state=RELEASED)
        self._state.ledger.receiver_updated(link, released)
        for number in event.numbers:
            pairing = link.unsettled.get(number)
            if pairing is None:
                continue
            if not _may_return(pairing) or self._returns.get(pairing, 0) >= RETURNS_MOST:
                self._settler.receiver_updated(link, attrs.evolve(released, numbers=[number]))
                continue
            self._settler.take_back_unsent(link, pairing, event.settled)
            if self._owes(pairing):
                self._settler.answer(pairing, UNSENT)
            else:
                self._returns[pairing] = self._returns.get(pairing, 0) + 1
                self._settler.send_again(pairing, link, has_failed=False)

    def _owes(self, pairing: Pairing) -> bool:
        """Returns whether the sender of a delivery has recalled it, and counts that."""
        count, until = self._owed.get(pairing.incoming, (0, 0.0))
        if not count or self._state.turn.now >= until or pairing.is_settled:
            return False
        self._owed[pairing.incoming] = count - 1, until
        return pairing.number != UNNUMBERED


def is_between_routers(link: OutgoingLink) -> bool:
    """Returns whether a link leads to another worker or router."""
    return is_sibling(link.connection) or link.traces or link.chain is not None


def _comes_far(incoming: IncomingLink) -> bool:
    """Returns whether a link's deliveries come from another worker, router or site."""
    return comes_far(incoming) or comes_by_mesh(incoming)


def _is_shared(node: Node) -> bool:
    """Returns whether each delivery of a node goes to one receiver, whichever can take it."""
    return not (node.is_multicast or node.is_paused or node.is_lossy or node.taker is not None)


def _is_untouched(pairing: Pairing) -> bool:
    """Returns whether a queued delivery was surely sent to no receiver, and its sender waits."""
    return not (
        pairing.is_settled
        or pairing.number == UNNUMBERED
        or pairing.parts is not None
        or pairing.tried is not None
        or pairing.attempts
        or pairing.was_in_doubt
        or pairing.elder is not Elder.NOT
    )


def _from_last(link: OutgoingLink) -> Iterator[Pairing]:
    """Returns the deliveries of a link that may come back, the last one first."""
    return takewhile(_may_return, reversed(link.unsettled.values()))


def _may_return(pairing: Pairing) -> bool:
    """Returns whether a delivery that was sent may come back as if it never was."""
    return pairing.fan is None and pairing.parts is None and pairing.outcome is None


def _may_go(pairing: Pairing, links: list[OutgoingLink]) -> bool:
    """Returns whether a delivery may be sent on one of some links."""
    return any(may_take(link, pairing) for link in links)
