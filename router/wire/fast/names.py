"""Addresses of the router, and the destinations of a server that it dials.

An address is a queue's name. A topic, or a peer service, has a prefix::

    orders          queue orders
    /queue/orders   queue orders
    /topic/news     topic news
    /peer/clock     peer service clock

The protocol's names have no "/" (RFC 006 §3.5.2.3 excludes it), so a name is never mistaken for one
of these. A terminus with the capability ``topic`` is a topic as well.
"""

from typing import Final

import attrs

from router.wire.fast.handle import Service

_SERVICES: Final = {
    "/queue/": Service.QUEUE,
    "/topic/": Service.TOPIC,
    "/peer/": Service.PEER,
}

TOPIC: Final = "topic"
"""Capability of a terminus."""


@attrs.frozen
class Destination:
    """The destination that an address names on a server."""

    service: Service
    name: str


def destination(address: str, capabilities: tuple[str, ...] = ()) -> Destination:
    """Reads an address as a name on a server (see the module)."""
    for prefix, service in _SERVICES.items():
        if address.startswith(prefix) and len(address) > len(prefix):
            return Destination(service, address[len(prefix) :])
    return Destination(Service.TOPIC if TOPIC in capabilities else Service.QUEUE, address)
