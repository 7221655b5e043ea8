"""The anonymous terminus: each delivery of one link goes where its own address says.

Order is kept per address, not between addresses: every address has a queue of its own. Queues of
addresses not used lately are forgotten, so a peer cannot fill memory with made-up addresses.

A delivery that has no way is rejected. Where its sender cannot hear that, since it has settled the
delivery or its source does not have that outcome, the link is detached with the error, whose info
names the delivery by its tag (AMQP Anonymous Terminus for Message Routing, section 2.2.2).
"""

import itertools
from collections.abc import Sequence
from typing import Final

from router.core.attach import Attacher, Place
from router.core.detach import Detacher
from router.core.forward import Forwarder
from router.core.homes import Homes
from router.core.node import Feed, Node, NodeKey, feed_of_link
from router.core.outcomes import narrow
from router.core.policy import Operation
from router.core.postponing import Postponer
from router.core.refusals import Refusals
from router.core.settle import Settler
from router.core.state import State
from router.core.unroutable import naming
from router.core.uplinks import Uplinks
from router.links import life
from router.links.link import IncomingLink
from router.links.pairing import Pairing
from router.model.condition import NOT_ALLOWED, NOT_FOUND, Condition
from router.model.delivery import ReceivedDelivery
from router.model.outcome import Rejected
from router.model.terminus import Role
from router.model.url_address import path_of
from router.routes.route import Guarantee, Route

REMEMBERED_ADDRESSES: Final = 256
"""Queues kept per link beside those in which something waits."""

_NO_ADDRESS: Final = Condition(NOT_FOUND, "the message has no address, and neither has the link")


class Relay:
    """Finds the way of deliveries that have an address of their own."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        forwarder: Forwarder,
        attacher: Attacher,
        uplinks: Uplinks,
        *,
        detacher: Detacher,
        homes: Homes,
        postponer: Postponer,
        refusals: Refusals,
    ) -> None:
        self._postponer = postponer
        self._refusals = refusals
        self._registry = state.registry
        self._turn = state.turn
        self._rejections = state.rejections
        self._settler = settler
        self._forwarder = forwarder
        self._attacher = attacher
        self._uplinks = uplinks
        self._homes = homes
        self._detacher = detacher
        self._nowhere = Node(key=NodeKey(""), route=Route(address="#"))

    def received(self, incoming: IncomingLink, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Handles a run of deliveries, each for its own address."""
        known = (delivery for delivery in deliveries if not _is_void(delivery))
        for address, run in itertools.groupby(known, lambda delivery: delivery.address):
            if incoming.is_gone:
                return  # one has ended the link: what comes behind it is void, as on the wire
            feed = self._feed(incoming, address)
            if isinstance(feed, Feed) and self._postponer.knows(feed, address):
                self._postponer.follow(feed, self._forwarder.pair(feed, list(run)))
            elif isinstance(feed, Feed):
                self._forwarder.received(feed, list(run))
            else:
                self._refuse(incoming, list(run), feed)

    def _feed(self, incoming: IncomingLink, address: str | None) -> Feed | Condition:
        if address is None:
            return _NO_ADDRESS
        known = incoming.queues.pop(address, None)
        if isinstance(known, Feed):
            incoming.queues[address] = known  # the last one used stands last
            self._registry.keep(known.node)
            return known
        if incoming.connection is None:
            return _NO_ADDRESS
        if incoming.scatters:
            place = self._attacher.find(address, Role.RECEIVER)
        else:
            place = self._attacher.enter(incoming.connection, path_of(address), Operation.SEND)
        if isinstance(place, Condition):
            return place
        if self._is_kept_elsewhere(incoming, place):
            return Condition(NOT_ALLOWED, f"this worker is not the home of '{address}'")
        return self._open(incoming, address, place)

    def _is_kept_elsewhere(self, incoming: IncomingLink, place: Place) -> bool:
        """Returns whether a delivery has come to another home than that of its address.

        The worker that its peer is connected to sends each where it belongs (``branches``), by the
        same rules; if they differ for a moment, the delivery must not be kept here.
        """
        if incoming.scatters or place.route.guarantee is not Guarantee.EXACTLY_ONCE:
            return False
        return self._homes.elsewhere(place.key.address, place.route) is not None

    def _open(self, incoming: IncomingLink, address: str, place: Place) -> Feed:
        node = self._registry.node(place.key, place.route, place.match)
        feed = incoming.queues[address] = self._registry.feed(node, incoming)
        self._uplinks.used(node)
        self._forget_idle(incoming)
        return feed

    def _forget_idle(self, incoming: IncomingLink) -> None:
        """Forgets the queue used longest ago if there are too many."""
        if len(incoming.queues) <= REMEMBERED_ADDRESSES:
            return
        for address, feed in incoming.queues.items():
            if isinstance(feed, Feed) and not (feed.waiting or feed.put_off):
                del incoming.queues[address]
                self._registry.starve(feed.node, incoming)
                self._turn.leave(feed.node)
                return

    def _refuse(
        self, incoming: IncomingLink, deliveries: Sequence[ReceivedDelivery], reason: Condition
    ) -> None:
        if incoming.scatters:
            for pairing in self._forwarder.pair(feed_of_link(incoming), deliveries):
                self._refusals.strand(pairing, reason)
            return
        rejected = Rejected(reason)
        is_known = narrow(rejected, incoming.outcomes) is rejected
        sent_settled: Pairing | None = None
        for pairing in self._forwarder.pair(Feed(incoming, self._nowhere), deliveries):
            if pairing.is_settled or not is_known:
                sent_settled = sent_settled or pairing
            if pairing.is_settled or is_known:
                self._settler.answer(pairing, rejected)
            else:
                self._rejections.by_router(pairing, rejected)
                life.leave(pairing)
                self._settler.free(pairing)
        if sent_settled is not None:
            self._detacher.detach(incoming, naming(sent_settled, reason))


def _is_void(delivery: ReceivedDelivery) -> bool:
    """Returns whether a delivery was aborted before its address could be read (§2.7.5).

    The engine reports it because it has used credit, and then that it was aborted. Otherwise it
    reports a first part when that contains the message's properties.
    """
    is_empty = delivery.more and not delivery.payload and not delivery.message_format
    return is_empty and delivery.address is None
