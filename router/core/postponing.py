"""Deliveries that are put off: a target refuses them now, and they are retried later.

Theory of operation. A delivery that was pulled from a container, and that its target refuses, has
no sender that could decide when to retry: a broker that gets it back delivers it again at once, for
ever. So it stays here, unsettled, and is offered again after a pause. Meanwhile it is in no queue,
and blocks neither the deliveries behind it nor the credit of its link, until 50,000 deliveries of
the link are put off or the octet budgets are used up.

Deliveries for one address are put off together, on one *shelf*, in the order of their arrival::

    put off ──pause──▶ the first is offered ──refused again──▶ a longer pause
                             │ accepted
                             ▼
                       more are offered, 32 times as many each time, until none is left

A receiver that attaches to the node ends the pause. What its sender has settled without an outcome
is in the router's custody; it stays, and waits in its queue when its link is gone. The rest is
freed then: a container redelivers what got no outcome.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.forms import expires_at
from router.core.node import Feed, Node, by_sequence, feed_of, in_custody
from router.core.settle import Settler, trunk_of
from router.core.state import State
from router.links import life
from router.links.backoff import pause_seconds
from router.links.life import Claim, Stage
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing

FIRST_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 30.0
"""Pauses between two attempts for one address: they double from the first to the last."""

LOOK_SECONDS: Final = 0.2
"""Pause between checks whether the offered deliveries have an outcome."""

GROWTH: Final = 32
"""Factor by which the next offer is larger if every delivery of the last one was accepted."""

_Key = tuple[str | None, OutgoingLink | None]


@attrs.define(eq=False)
class _Shelf:
    """The deliveries of one feed for one address, or for one receiver of a multicast.

    Attributes:
        failures: consecutive offers of which a delivery was refused.
        batch: the size of the next offer.
        offered: the last delivery of an offer of which none has been refused.
        places: the node's count of receivers ever attached, when last seen.
    """

    waiting: dict[Pairing, None] = attrs.field(factory=dict)
    failures: int = 0
    batch: int = 1
    offered: Pairing | None = None
    places: int = 0
    alarm: Alarm | None = None


class Postponer:
    """Keeps deliveries that are put off, and offers them again."""

    def __init__(self, state: State, settler: Settler, random: Callable[[], float]) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._settler = settler
        self._random = random
        self._shelves: dict[Feed, dict[_Key, _Shelf]] = {}

    def knows(self, feed: Feed, address: str | None) -> bool:
        """Returns whether a delivery of a feed is put off for an address."""
        return bool(feed.put_off) and (address, None) in self._shelves.get(feed, ())

    def holds(self, pairing: Pairing) -> bool:
        """Returns whether a delivery is put off."""
        feed = feed_of(pairing)
        shelf = self._shelves.get(feed, {}).get((pairing.delivery.address, None))
        return shelf is not None and pairing in shelf.waiting

    def take(self) -> None:
        """Puts the deliveries of the turn on their shelves."""
        for pairing, link in self._settler.take_postponed():
            shelf = self._put(pairing, link)
            if shelf.offered is not None or shelf.alarm is None:
                self._pause(feed_of(pairing), (pairing.delivery.address, link), shelf)

    def follow(self, feed: Feed, pairings: Iterable[Pairing]) -> None:
        """Puts deliveries off behind others for their address."""
        for pairing in pairings:
            feed.incoming.tally.unroutable += 1
            self._put(pairing, None)

    def review(self, node: Node) -> None:
        """Offers the shelves of a node at once if a receiver has attached to it."""
        if not self._shelves:
            return
        for feed in tuple(node.feeds.values()):
            for key, shelf in tuple(self._shelves.get(feed, {}).items()):
                if shelf.places != node.places:
                    shelf.places, shelf.failures = node.places, 0
                    if shelf.offered is None:
                        self._offer(feed, key, shelf)

    def leave(self, incoming: IncomingLink) -> None:
        """Frees what a link that is gone has left here; what is in custody waits in its queue."""
        if not self._shelves:
            return
        for feed in _feeds_of(incoming):
            for key, shelf in tuple(self._shelves.get(feed, {}).items()):
                for pairing in tuple(shelf.waiting):
                    self._remove(feed, shelf, pairing)
                    if not self._is_over(pairing):
                        self._settler.try_anew(pairing, key[1])
                self._forget(feed, key, shelf)

    def free(self, incoming: IncomingLink) -> None:
        """Takes a link's deliveries from their shelves; their sender is to be sent an outcome."""
        for feed in _feeds_of(incoming):
            for key, shelf in tuple(self._shelves.get(feed, {}).items()):
                for pairing in tuple(shelf.waiting):
                    self._remove(feed, shelf, pairing)
                self._forget(feed, key, shelf)

    def _put(self, pairing: Pairing, link: OutgoingLink | None) -> _Shelf:
        feed = feed_of(pairing)
        shelves = self._shelves.setdefault(feed, {})
        key = (pairing.delivery.address, link)
        shelf = shelves.get(key)
        if shelf is None:
            shelf = shelves[key] = _Shelf(places=feed.node.places)
        shelf.waiting[pairing] = None
        feed.put_off += 1
        feed.incoming.postponed += 1
        self._turn.review_credit(feed.incoming)
        return shelf

    def _remove(self, feed: Feed, shelf: _Shelf, pairing: Pairing) -> None:
        del shelf.waiting[pairing]
        feed.put_off -= 1
        feed.incoming.postponed -= 1
        self._turn.review_credit(feed.incoming)

    def _pause(self, feed: Feed, key: _Key, shelf: _Shelf) -> None:
        """Begins a pause, as a delivery was refused."""
        shelf.offered, shelf.batch = None, 1
        shelf.failures += 1
        pause = pause_seconds(shelf.failures, FIRST_SECONDS, LIMIT_SECONDS, self._random)
        self._look_after(pause, feed, key, shelf)

    def _look_after(self, seconds: float, feed: Feed, key: _Key, shelf: _Shelf) -> None:
        self._alarms.cancel(shelf.alarm)
        shelf.alarm = self._alarms.set(self._turn.now + seconds, partial(self._look, feed, key))

    def _look(self, feed: Feed, key: _Key) -> None:
        """Offers a shelf when its pause is over, unless outcomes of its last offer are missing."""
        shelf = self._shelves.get(feed, {}).get(key)
        if shelf is None:
            return
        if shelf.offered is not None and _is_undecided(shelf.offered):
            self._look_after(LOOK_SECONDS, feed, key, shelf)
            return
        if shelf.offered is not None:
            shelf.offered, shelf.failures = None, 0
            shelf.batch *= GROWTH
        self._offer(feed, key, shelf)

    def _offer(self, feed: Feed, key: _Key, shelf: _Shelf) -> None:
        """Offers the first deliveries of a shelf; an empty shelf is removed."""
        for pairing in tuple(shelf.waiting):
            if self._is_over(pairing):
                self._remove(feed, shelf, pairing)
        batch = sorted(shelf.waiting, key=by_sequence)[: shelf.batch]
        if not batch:
            self._forget(feed, key, shelf)
            return
        for pairing in batch:
            self._remove(feed, shelf, pairing)
            self._settler.try_anew(pairing, key[1])
        shelf.offered = batch[-1]
        self._look_after(LOOK_SECONDS, feed, key, shelf)

    def _forget(self, feed: Feed, key: _Key, shelf: _Shelf) -> None:
        self._alarms.cancel(shelf.alarm)
        shelves = self._shelves[feed]
        del shelves[key]
        if not shelves:
            del self._shelves[feed]

    def _is_over(self, pairing: Pairing) -> bool:
        """Frees a delivery that nobody waits for any more; returns whether it was one."""
        trunk = trunk_of(pairing)
        if _has_ended(pairing):
            self._settler.free(trunk)
            return True
        at = expires_at(feed_of(pairing).node, pairing)
        if at is None or at > self._turn.now or trunk is not pairing:
            return False
        self._settler.expire(pairing)
        return True


def _feeds_of(incoming: IncomingLink) -> list[Feed]:
    feeds = [incoming.queue, *incoming.queues.values()]
    return [each for each in feeds if isinstance(each, Feed)]


def _has_ended(pairing: Pairing) -> bool:
    trunk = trunk_of(pairing)
    return life.claim_of(trunk) is Claim.UNCLAIMED and not in_custody(trunk)


def _is_undecided(pairing: Pairing) -> bool:
    """Returns whether a delivery that was offered has no outcome yet."""
    stage = life.stage_of(pairing)
    if stage is Stage.WAITING:
        return pairing in feed_of(pairing).waiting  # for credit; else it is over
    return stage in (Stage.SENT, Stage.IN_DOUBT)
