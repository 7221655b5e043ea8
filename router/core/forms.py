"""Makes the outgoing form of a delivery for a link."""

from struct import Struct

from router.core.node import Node, feed_of
from router.core.reach import is_sibling
from router.core.state import State
from router.links.link import OutgoingLink
from router.links.pairing import Pairing
from router.links.tags import derived_tag
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.ways import Stop
from router.routes.vhost import outside
from router.wire.original import with_address

pack_tag = Struct(">I").pack
SERIAL_MASK = 0xFFFF_FFFF
"""Delivery-tags that need not derive from anything are numbers of 32 bits."""

_pack_sequence = Struct(">q").pack


class Forms:
    """Makes outgoing deliveries of incoming ones."""

    def __init__(self, state: State) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._ledger = state.ledger

    def outgoing(
        self, link: OutgoingLink, pairing: Pairing, number: DeliveryNumber
    ) -> OutgoingDelivery:
        """Returns the outgoing form of a delivery for a link."""
        delivery = pairing.delivery
        if link.carries_tags:
            tag = carried_tag(pairing)
            if link.keeps and delivery.key is not None:  # the store names it by that for long
                tag = DeliveryTag(delivery.key)
        else:
            tag = DeliveryTag(pack_tag(number & SERIAL_MASK))
        sends_count = pairing.attempts or pairing.parts is not None  # see OutgoingDelivery
        if pairing.incoming.is_delayed and delivery.delivery_count:
            sends_count = True
        count = delivery.delivery_count + pairing.attempts if sends_count else None
        outgoing = OutgoingDelivery(
            number,
            tag,
            delivery.payload,
            delivery.protocol,
            delivery.message_format,
            state=delivery.state,
            ttl_milliseconds=self._ttl_left(feed_of(pairing).node, pairing),
            delivery_count=count,
        )
        if link.carries_tags and pairing.parts is None:
            self._ledger.give_id(pairing, outgoing)
        if link.is_fallback and not (is_sibling(link.connection) or delivery.message_format):
            address = outside(feed_of(pairing).node.key.address)
            made = with_address(delivery.protocol, delivery.payload, address)
            outgoing.protocol, outgoing.payload = made
        if link.names is not None:
            outgoing.address = link.names.find(delivery.address)
        if link.is_traced:
            outgoing.hops = self._hops(link, pairing)
        if link.is_router or link.keeps:
            outgoing.key = delivery.key
        if link.keeps:
            outgoing.elder = pairing.elder
            outgoing.delivery_count = delivery.delivery_count + pairing.attempts
            if outgoing.ttl_milliseconds is None:
                outgoing.ttl_milliseconds = delivery.ttl_milliseconds
        return outgoing

    def _hops(self, link: OutgoingLink, pairing: Pairing) -> tuple[Stop, ...] | None:
        """Returns the stops of a delivery, towards a router including the node that it leaves.

        Between workers a delivery stays at its node.
        """
        hops = pairing.delivery.hops
        if not link.traces:
            return hops or None
        is_older = link.node is None  # it knows routers, not their nodes
        return (*hops, self._settings.router_id if is_older else feed_of(pairing).node.stop)

    def _ttl_left(self, node: Node, pairing: Pairing) -> int | None:
        """Returns the new value of header.ttl; None: it need not be rewritten."""
        at = expires_at(node, pairing)
        if at is None:
            return None
        left = max(1, round((at - self._turn.now) * 1000))
        is_written = left == pairing.delivery.ttl_milliseconds and not pairing.incoming.is_delayed
        return None if is_written else left


def expires_at(node: Node, pairing: Pairing) -> float | None:
    """Returns when a delivery expires; None: never."""
    ttl = pairing.delivery.ttl_milliseconds
    at = None if ttl is None else pairing.arrived + ttl / 1000
    if node.route.ttl_seconds is not None:
        latest = pairing.arrived + node.route.ttl_seconds
        return latest if at is None else min(at, latest)
    return at


def carried_tag(pairing: Pairing) -> DeliveryTag:
    """Returns the tag that a delivery keeps towards its target, whichever link sends it again.

    A sender may reuse the tag of a settled delivery at once; a delivery key is used only once.
    """
    delivery, prefix = pairing.delivery, pairing.incoming.tag_prefix
    if not delivery.settled:
        return derived_tag(prefix, delivery.tag)
    return derived_tag(prefix, DeliveryTag(delivery.key or _pack_sequence(pairing.sequence)))
