"""Deliveries that no receiver can take at present: the route's ``unroutable`` decides.

If that is reject, and the sender to the anonymous terminus has settled its delivery, its link is
detached with the error instead (see ``relay``). A sender attached to the address itself has not
asked for that error.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from router.core.dead_letters import find_dead_letters
from router.core.detach import Detacher
from router.core.mesh.names import comes_by_mesh
from router.core.node import Feed, Node, feed_of, in_custody
from router.core.reach import are_back, comes_far, is_sibling, receivers_for
from router.core.refusals import Refusals
from router.core.settle import Settler
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing
from router.model.condition import NOT_FOUND, Condition
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.routes.route import Unroutable

DELIVERY_TAG: Final = "delivery-tag"

_NOBODY: Final = Condition(NOT_FOUND, "nobody receives here")


class Strander:
    """Rejects, releases, holds or redirects deliveries at nodes without receivers."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        uplinks: Uplinks,
        detacher: Detacher,
        *,
        refusals: Refusals,
        goes_over: Callable[[Node, Pairing], bool],
    ) -> None:
        self._goes_over = goes_over
        self._refusals = refusals
        self._registry = state.registry
        self._turn = state.turn
        self._settler = settler
        self._uplinks = uplinks
        self._detacher = detacher

    def bury(self, dead: Sequence[Pairing]) -> None:
        """Sends deliveries in custody to the dead letters of their routes."""
        for pairing in dead:
            pairing.fan = None
            self._bury(feed_of(pairing).node, pairing)

    def review(self, node: Node) -> None:
        """Reviews a node after everything that could be forwarded has been.

        A route that holds such deliveries keeps them at their senders' worker: deliveries from
        another worker or a router are released to it, where others may receive. While draining,
        what can go back to its sender stays unsettled: nobody receives because this router stops.
        """
        if not node.rotation or node.returning or node.awaited:
            return
        is_held = node.route.vacant is Unroutable.HOLD
        for feed in tuple(node.rotation):
            if is_held and (node.pending or not comes_far(feed.incoming)):
                continue
            receivers = receivers_for(node, feed.incoming)
            if self._uplinks.is_draining and not is_sibling(feed.incoming.connection):
                self._strand(node, feed, in_custody)
            elif not receivers or (node.has_ways and _is_for_others(feed, receivers)):
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
        if node.twin is not None:
            stranded = [each for each in stranded if not self._goes_over(node, each)]
        if feed.incoming.takes_back:
            for pairing in stranded:
                self._hand_back(pairing)
            return
        if feed.incoming.scatters:
            for pairing in stranded:
                self._refusals.strand(pairing, _NOBODY)
            return
        if node.route.answers_vacant and not comes_far(feed.incoming):
            self._refusals.note(feed.incoming, stranded, _NOBODY)
        for pairing in stranded:
            self._answer(node, pairing)
        if node.route.vacant is Unroutable.REJECT and feed.incoming.address is None:
            self._end(feed.incoming, stranded)

    def _hand_back(self, pairing: Pairing) -> None:
        """Handles a delivery that was pulled from a fallback when its receivers had left."""
        if pairing.incoming.is_closing:
            self._settler.answer(pairing, RELEASED)
        else:
            self._settler.postpone(pairing)

    def _end(self, incoming: IncomingLink, stranded: list[Pairing]) -> None:
        """Detaches a sender that has settled some of the rejected deliveries."""
        rejected = (each for each in stranded if each.tried is None and not each.attempts)
        sent_settled = [each for each in rejected if each.delivery.settled]
        if sent_settled and incoming.link is not None:
            self._detacher.detach(incoming, naming(sent_settled[0], _NOBODY))

    def _answer(self, node: Node, pairing: Pairing) -> None:
        was_offered = pairing.tried is not None or pairing.attempts
        has_others = bool(pairing.delivery.hops and node.outgoing)  # who sent it may
        is_back = has_others or _may_go_elsewhere(pairing.incoming)
        policy = node.route.vacant
        if policy is Unroutable.DEAD_LETTER and in_custody(pairing):
            self._bury(node, pairing)
        elif was_offered or is_back or policy in {Unroutable.RELEASE, Unroutable.HOLD}:
            self._settler.give_up(pairing)  # what is held is so at the router that has sent it
        elif policy is Unroutable.DEAD_LETTER:
            self._bury(node, pairing)
        elif policy is Unroutable.DROP:
            self._settler.answer(pairing, ACCEPTED)
        else:
            self._settler.answer(pairing, Rejected(_NOBODY))

    def _bury(self, node: Node, pairing: Pairing) -> None:
        """Sends a delivery to the route's dead letters, where it waits without a time limit."""
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
    """Returns the error for a link that is detached because of one delivery."""
    info = {**(reason.info or {}), DELIVERY_TAG: bytes(pairing.delivery.tag)}
    return Condition(reason.name, reason.description, info)


def _may_go_elsewhere(incoming: IncomingLink) -> bool:
    """Returns whether another worker, or another site, may have receivers for deliveries."""
    return is_sibling(incoming.connection) or comes_by_mesh(incoming)


def _is_for_others(feed: Feed, receivers: list[OutgoingLink]) -> bool:
    """Returns whether a router or worker that sent deliveries may have receivers for them.

    The receivers here are routers without receivers.
    """
    return comes_far(feed.incoming) and all(link.ways == () for link in receivers)


def _has_passed(receivers: list[OutgoingLink], pairing: Pairing) -> bool:
    """Returns whether a delivery has been at every stop to which the receivers lead."""
    hops = pairing.delivery.hops
    return bool(hops) and are_back(receivers, hops)


def _is_only_here(node: Node, pairing: Pairing) -> bool:
    """Returns whether a delivery is held whatever its route says.

    Its sender cannot get it back: that is a delivery in custody that would only be released, and
    one that was in doubt; where the route holds unroutable deliveries, every one that its sender
    has settled. Likewise one of an exactly-once route that is sent again after it was in doubt:
    its sender waits for the outcome of the receiver. (Other routers and workers get it back: they
    may have receivers.)
    """
    if pairing.was_in_doubt and node.is_exact and not comes_far(pairing.incoming):
        return True
    if node.route.vacant is Unroutable.HOLD:
        return pairing.is_settled
    if in_custody(pairing) and node.route.vacant is Unroutable.RELEASE:
        return True
    return node.is_exact and pairing.is_settled and pairing.attempts > 0
