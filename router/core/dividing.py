"""Divides what the message store takes of an address among the senders.

Elsewhere each sender may have as much credit as the receivers (``links.credit``): what is too much
waits here for a moment. What is too much for a stored route that is nearly full waits until its
target is back. So on routes that bound their messages, while these are stored::

    credit of all senders + what they have sent that waits here  <=  credit of the store's link

Each sender gets a part. While one has nothing left, others are asked for their credit that have
more than a part, or have used none for ``IDLE_SECONDS``; the latter then get one at a time until
they send again. What they were asked for counts until they have answered, but no longer than that.

Workers without the store divide what the worker that has it grants them, if the bound is low: only
then is it worth that these messages keep off the express lane.
"""

from functools import partial
from typing import Final

import attrs

from router.core.node import Node, Taker
from router.core.reach import is_sibling
from router.core.state import State
from router.links.link import IncomingLink
from router.links.sharing import IDLE_SECONDS

ELSEWHERE_MOST: Final = 16_000
"""Bounds up to which workers without the store divide what they are granted."""


def divides(node: Node) -> bool:
    """Returns whether the senders of a node share what its receivers grant."""
    store = node.route.store
    if store is None or store.messages is None or not node.outgoing:
        return False
    if node.taker is Taker.TARGETS:
        return False
    if all(link.keeps for link in node.outgoing):
        return True
    return divides_elsewhere(node) and all(is_sibling(e.connection) for e in node.outgoing)


def divides_elsewhere(node: Node) -> bool:
    """Returns whether the senders of a node share what another worker's store grants."""
    store = node.route.store
    return store is not None and store.messages is not None and store.messages <= ELSEWHERE_MOST


LOOK_SECONDS: Final = 0.25
"""Pause between two looks at who has credit, while somebody has none."""


@attrs.define(eq=False)
class _Division:
    """What is known of the senders of one node.

    Attributes:
        idle: senders that used none of their credit, with what they had sent by then.
        asked: what senders were asked for, and until when that counts.
        seen: what each one had sent, and since when that is all.
        is_watched: somebody gets too little.
    """

    idle: dict[IncomingLink, int] = attrs.field(factory=dict)
    asked: dict[IncomingLink, tuple[int, float]] = attrs.field(factory=dict)
    seen: dict[IncomingLink, tuple[int, float]] = attrs.field(factory=dict)
    is_watched: bool = False


class Divider:
    """Knows how much of a node's credit a sender may have."""

    def __init__(self, state: State) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._divisions: dict[Node, _Division] = {}
        self._asked: list[IncomingLink] = []

    def share(self, node: Node, incoming: IncomingLink) -> int:
        """Returns how much a sender may have, credit and what waits here of it together."""
        division = self._division(node)
        own = incoming.credit + incoming.queued
        part = 1 if incoming in division.idle else _part(node, division)
        share = min(part, own + max(0, _free(node, division)))
        if share < part and not own:
            node.uncredited[incoming] = None
            self._watch(node, division)
        return share

    def fit(self, node: Node) -> None:
        """Asks for credit that the store does not cover any more."""
        division = self._division(node)
        lacking = -_free(node, division)
        for each in sorted(node.feeds, key=lambda each: -each.credit):
            if lacking <= 0:
                return
            lacking -= each.credit
            self._ask(division, each)

    def take_asked(self) -> list[IncomingLink]:
        """Returns, once, the senders that are to be asked for their credit."""
        asked, self._asked = self._asked, []
        return asked

    def _division(self, node: Node) -> _Division:
        """Forgets senders that have left, sent something, or answered."""
        division = self._divisions.get(node)
        if division is None:
            division = self._divisions[node] = _Division()
        for each, sent in tuple(division.idle.items()):
            if each not in node.feeds or each.tally.deliveries != sent:
                del division.idle[each]
        for each, (_, until) in tuple(division.asked.items()):
            is_answered = not each.is_draining and each not in self._asked
            if each not in node.feeds or is_answered or self._turn.now >= until:
                del division.asked[each]
        return division

    def _watch(self, node: Node, division: _Division) -> None:
        if not division.is_watched:
            division.is_watched = True
            self._alarms.set(self._turn.now + LOOK_SECONDS, partial(self._look, node))

    def _look(self, node: Node) -> None:
        """Asks those for credit who have too much, if somebody has none."""
        if not (node.feeds and divides(node)):
            self._divisions.pop(node, None)
            return
        division, now = self._division(node), self._turn.now
        division.is_watched = False
        seen, division.seen = division.seen, {}
        if not any(each in node.feeds and not each.credit for each in node.uncredited):
            return
        part = _part(node, division)
        for each in node.feeds:
            sent, since = seen.get(each, (-1, now))
            since = since if sent == each.tally.deliveries else now
            division.seen[each] = each.tally.deliveries, since
            is_idle = each.credit > 0 and now - since >= IDLE_SECONDS
            if is_idle:
                division.idle[each] = each.tally.deliveries
            if is_idle or each.credit > part:
                self._ask(division, each)
        self._turn.review_credits(node.uncredited)
        self._watch(node, division)

    def _ask(self, division: _Division, incoming: IncomingLink) -> None:
        if incoming.credit and incoming not in self._asked:
            division.asked[incoming] = incoming.credit, self._turn.now + IDLE_SECONDS
            self._asked.append(incoming)


def _free(node: Node, division: _Division) -> int:
    """Returns what nobody was granted; below zero: more was granted than there is."""
    promised = sum(each.credit + each.queued for each in node.feeds if each not in division.asked)
    promised += sum(credit + each.queued for each, (credit, _) in division.asked.items())
    return sum(link.credit for link in node.outgoing) - promised


def _part(node: Node, division: _Division) -> int:
    """Returns what each sender may have that is not idle."""
    idle = len(division.idle)
    return max(1, (node.width - idle) // max(1, len(node.feeds) - idle))
