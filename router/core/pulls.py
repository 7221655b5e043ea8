"""Deliveries pulled from containers by a pattern: each has an address of its own.

A route that pulls, and whose address has wildcards, has a node named by its pattern, to which its
link from the container belongs. Deliveries of that link are forwarded in one of two ways, depending
on the route (``pull_plan``)::

    every target of a bridge accepts     they stay at the node of the pattern; one link to each
    addresses on one link, or has one    target carries them, each with its address
    address for all of them              (``OutgoingLink.names``)
    otherwise                            *scattered*: each goes to the node of its own address, as
                                         if it had arrived on a link to the anonymous terminus

Both ways keep the order of each address: while a delivery for it is put off (``postponing``), later
ones are put off behind it.
"""

import itertools
from collections.abc import Sequence

from router.core.fallback import Fallbacks
from router.core.forward import Forwarder
from router.core.node import Feed, feed_of_link
from router.core.postponing import Postponer
from router.core.relay import Relay
from router.links.link import IncomingLink
from router.model.delivery import ReceivedDelivery


class Pulls:
    """Forwards the deliveries of links that pull by a pattern."""

    def __init__(
        self, forwarder: Forwarder, relay: Relay, postponer: Postponer, fallbacks: Fallbacks
    ) -> None:
        self._fallbacks = fallbacks
        self._forwarder = forwarder
        self._relay = relay
        self._postponer = postponer

    def received(self, incoming: IncomingLink, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Handles a run of deliveries of a link that gives each its address."""
        if incoming.takes_back:
            for delivery in deliveries:
                self._fallbacks.restore(incoming, delivery)
            self._relay.received(incoming, deliveries)
            queues = (incoming.queues.get(each.address or "") for each in deliveries)
            self._fallbacks.fed(queue for queue in queues if isinstance(queue, Feed))
            return
        assert incoming.names is not None
        for delivery in deliveries:
            delivery.address = incoming.names.find(delivery.address)
        if incoming.scatters:
            self._relay.received(incoming, deliveries)
            return
        feed = feed_of_link(incoming)
        if not incoming.postponed:
            self._forwarder.received(feed, deliveries)
            return
        for is_put_off, run in itertools.groupby(
            deliveries, lambda delivery: self._postponer.knows(feed, delivery.address)
        ):
            if is_put_off:
                self._postponer.follow(feed, self._forwarder.pair(feed, list(run)))
            else:
                self._forwarder.received(feed, list(run))
