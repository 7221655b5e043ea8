"""Ways: through which nodes, of which routers, a receiver is reached.

A *stop* names one node of one router: two deliveries that pass the same stop have been at the same
place. A *way* is the stops from a router on to the one where somebody receives. What a delivery has
passed, its hops, are stops, too; those of older routers are plain router ids.
"""

from typing import Final

import attrs

Stop = str


@attrs.frozen
class Way:
    """A way to where somebody receives.

    Attributes:
        stops: one at least.
        gains: how many receivers have come to its end so far, as far as that matters to whoever is
            told: with one more it is another way, and worth trying once more.
    """

    stops: tuple[Stop, ...]
    gains: int = 0


Ways = tuple[Way, ...]
"""Empty: nobody receives there."""

NODE: Final = "router:node"
"""Property of attaches between routers: the stop of the sender's node at its end of the link."""

WAYS_MOST: Final = 16
"""Told of one node, the shortest first: each is the way to another router that has receivers."""

STOPS_MOST: Final = 64
"""Of one way; the hop limit is far below."""
