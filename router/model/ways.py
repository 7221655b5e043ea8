"""Ways: through which nodes, of which routers, a receiver is reached.

A *stop* names one node of one router: two deliveries that pass the same stop have been at the same
node. A *way* is the list of stops from a router to the one that has receivers. The hops of a
delivery, which it has passed, are stops, too; hops of older routers are plain router ids.
"""

from typing import Final, NamedTuple

import attrs

Stop = str


@attrs.frozen
class Way:
    """A way to a node that has receivers.

    Attributes:
        stops: one at least.
        gains: how many receivers have attached at its end so far, as far as that matters to the
            peer that is told: with one more it counts as a new way, which is worth another try.
        is_open: receivers at its end grant credit, as far as the peer has told. Not compared: a way
            that opens is the same way.
    """

    stops: tuple[Stop, ...]
    gains: int = 0
    is_open: bool = attrs.field(default=True, eq=False)


Ways = tuple[Way, ...]
"""Empty: there are no receivers."""


class Chain(NamedTuple):
    """Names the links on which deliveries of an address pass from one site of a mesh to another.

    Attributes:
        ingress: id of the router where the deliveries enter the mesh.
        egress: id of the router that has the receivers.
    """

    ingress: str
    egress: str


NODE: Final = "router:node"
"""Property of attaches between routers: the stop of the sender's node at its end of the link."""

WAYS_MOST: Final = 16
"""Ways reported for one node, the shortest first, each to another router that has receivers."""

STOPS_MOST: Final = 64
"""The most stops of one way; the hop limit is far lower."""
