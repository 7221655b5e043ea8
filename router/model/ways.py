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
        credit: what the receivers at its end grant together, as far as the peer has told, rounded
            up (``rounded``); 0: nothing, the way is shut; None: as much as its link has. Not
            compared: a way that opens is the same way.
    """

    stops: tuple[Stop, ...]
    gains: int = 0
    credit: int | None = attrs.field(default=None, eq=False)

    @property
    def is_open(self) -> bool:
        """Whether receivers at its end grant credit."""
        return self.credit != 0


Ways = tuple[Way, ...]
"""Empty: there are no receivers."""


def rounded(credit: int) -> int:
    """Returns credit rounded up to a power of two, so that small changes need not be told."""
    return 1 << (credit - 1).bit_length() if credit > 0 else 0


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

CREDIT_MOST: Final = (1 << 32) - 1
"""The most credit that is told of a way."""

GAINS_MOST: Final = (1 << 32) - 1
"""The most gains that are told of a way."""

STOP_CHARACTERS_MOST: Final = 512
"""Of the longest stop that another router's ways may name."""

STOPS_MOST: Final = 64
"""The most stops of one way; the hop limit is far lower."""
