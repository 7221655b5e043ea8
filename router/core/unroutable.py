"""What becomes of deliveries that nobody can take at present: by the route's word.

Where that is to reject them, and the sender to the anonymous terminus has settled its delivery, its
link is detached with the error instead (see ``relay``); whoever has a link to that very address has
asked for no such word.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from router.core.dead_letters import find_dead_letters
from router.core.detach import Detacher
from router.core.node import Feed, Node, feed_of, in_custody
from router.core.reach import are_back, comes_far, is_sibling, receivers_for
from router.core.settle import Settler
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing
from router.model.condition import NOT_FOUND, Condition
from router.model.outcome import Rejected
from router.routes.route import Unroutable

DELIVERY_TAG: Final = "delivery-tag"

_NOBODY: Final = Condition(NOT_FOUND, "nobody receives here")


class Strander:
    """Answers for deliveries that wait where nobody receives, or sends them elsewhere."""

    def __init__(
        self, state: State, settler: Settler, uplinks: Uplinks, detacher: Detacher
    ) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._settler = settler
        self._uplinks = uplinks
        self._detacher = detacher

    def bury(self, dead: Sequence[Pairing]) -> None:
        """Sends deliveries in custody to the dead dead_letters of their routes."""
        for pairing in dead:
            pairing.fan = None
            self._bury(feed_of(pairing).node, pairing)

    def review(self, node: Node) -> None:
        """Looks at a node after everything that could be sent on has been.

        A route that holds such deliveries has them wait where their senders are: what came from
        another worker or a router goes back there, where others may receive.
        """
        if not node.rotation or node.returning or node.awaited:
            return
        is_held = node.route.unroutable is Unroutable.HOLD
        for feed in tuple(node.rotation):
            if is_held and (node.pending or not comes_far(feed.incoming)):
                continue
            receivers = receivers_for(node, feed.incoming)
            if not receivers or (node.has_ways and _is_for_others(feed, receivers)):
                self._strand(node, feed, lambda pairing: True)
            elif node.has_ways:
                self._strand(node, feed, partial(_has_passed, receivers))
        self._turn.leave(node)

    def _strand(self, node: Node, feed: Feed, is_stranded: Callable[[Pairing], bool]) -> None:
        stranded = [
            pairing
            for pairing in feed.waiting
            if is_stranded(pairing) and not _is_only_here(node, pairing)
        ]
        if not stranded or feed not in node.rotation:
            return
        node.withdraw_all(feed, stranded)
        self._turn.review_credit(feed.incoming)
        for pairing in stranded:
            self._answer(node, pairing)
        if node.route.unroutable is Unroutable.REJECT and feed.incoming.address is None:
            self._end(feed.incoming, stranded)

    def _end(self, incoming: IncomingLink, stranded: list[Pairing]) -> None:
        """Ends the link of a sender that has settled what is rejected, or some of it."""
        rejected = (each for each in stranded if each.tried is None and not each.attempts)
        unheard = [each for each in rejected if each.delivery.settled]
        if unheard and incoming.link is not None:
            self._detacher.detach(incoming, naming(unheard[0], _NOBODY))

    def _answer(self, node: Node, pairing: Pairing) -> None:
        was_offered = pairing.tried is not None or pairing.attempts
        has_others = bool(pairing.delivery.hops and node.outgoing)  # who sent it may
        is_back = has_others or is_sibling(pairing.incoming.connection)
        policy = node.route.unroutable
        if policy is Unroutable.DEAD_LETTER and in_custody(pairing):
            self._bury(node, pairing)
        elif was_offered or is_back or policy is Unroutable.RELEASE:
            self._settler.give_up(pairing)
        elif policy is Unroutable.DEAD_LETTER:
            self._bury(node, pairing)
        else:
            self._settler.answer(pairing, Rejected(_NOBODY))

    def _bury(self, node: Node, pairing: Pairing) -> None:
        """Sends a delivery to the route's dead dead_letters, where it waits as long as it takes."""
        assert node.match is not None, "the route came from the table"
        place = find_dead_letters(node.match)
        assert place is not None, "the table sees to it"
        key, route = place
        dead_letters = self._registry.node(key, route, node.match)
        same = (feed for feed in dead_letters.rotation if feed.incoming is pairing.incoming)
        feed = next(same, None) or Feed(pairing.incoming, dead_letters)
        pairing.queue = feed
        pairing.arrived = self._turn.now  # it is not to expire on the way there
        dead_letters.put(feed, pairing)
        self._uplinks.used(dead_letters)
        self._turn.touch(dead_letters)


def naming(pairing: Pairing, reason: Condition) -> Condition:
    """Returns the error of a link that ends because of one delivery."""
    info = {**(reason.info or {}), DELIVERY_TAG: bytes(pairing.delivery.tag)}
    return Condition(reason.name, reason.description, info)


def _is_for_others(feed: Feed, receivers: list[OutgoingLink]) -> bool:
    """Returns whether deliveries came from a router or a worker that may have somebody for them.

    The receivers here are routers behind which nobody receives.
    """
    return comes_far(feed.incoming) and all(link.ways == () for link in receivers)


def _has_passed(receivers: list[OutgoingLink], pairing: Pairing) -> bool:
    """Returns whether a delivery was wherever the receivers lead to."""
    hops = pairing.delivery.hops
    return bool(hops) and are_back(receivers, hops)


def _is_only_here(node: Node, pairing: Pairing) -> bool:
    """Returns whether a delivery waits whatever its route says, since no sender can have it back.

    That is one in custody that would only be released, and one that was in doubt; where the route
    holds what nobody takes, each that nobody waits for.
    """
    if node.route.unroutable is Unroutable.HOLD:
        return pairing.is_settled
    if in_custody(pairing) and node.route.unroutable is Unroutable.RELEASE:
        return True
    return node.is_exact and pairing.is_settled and pairing.attempts > 0
