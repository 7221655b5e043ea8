"""What a client publishes, while it waits here and until it is answered.

An *inlet* is the link that publishes to one address go on; its owner sends by it. A *post* is a
publish in a transaction; a *commit* waits for the outcomes of as many.
"""

from typing import Final
from typing import Protocol as Interface

import attrs

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import Modified
from router.wire import inlets, publishing
from router.wire.inlets import CountedInlet
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.content import FLAGS

_EXPIRATION: Final = FLAGS["expiration"]

DROPPED: Final = Modified(delivery_failed=True, undeliverable_here=True)
"""Outcome of what a queue takes and drops, has no room for, or what has waited too long. What no
binding of a queue takes, that says to be undeliverable here, but not to have failed."""


@attrs.define(eq=False)
class Inlet(CountedInlet):
    """An incoming link for what one channel publishes to one address.

    Attributes:
        is_exact: the route promises exactly-once.
    """

    publishing: "InletOwner" = attrs.field(kw_only=True)
    is_exact: bool = False


class InletOwner(inlets.InletOwner, Interface):
    """Whoever sends by an inlet: a channel, or a queue that offers what it keeps."""

    @property
    def channel(self) -> Channel:
        """The channel that ends if a command finds its client at fault."""


class ChannelPublisher(InletOwner, Interface):
    """Whoever publishes on a channel."""

    def on_time(self) -> None:
        """Hands on what waits, and ends what has waited too long."""

    def flush(self) -> None:
        """Writes the confirms that are due."""


Held = tuple[Inlet, ReceivedDelivery, bool]
"""A delivery that waits here: its link, itself, and whether its publish was mandatory."""


@attrs.frozen
class Post:
    """A publish in a transaction, which has no number yet that counts.

    Attributes:
        content: see ``router.wire.v0_9_1.content``.
    """

    inlet: Inlet
    content: bytes
    is_mandatory: bool


@attrs.define(eq=False)
class Commit(publishing.Commit):
    """A transaction that is to be committed when all its publishes have their outcome.

    Attributes:
        returns: frames of those that are sent back, ahead of the answer.
    """

    returns: list[bytes] = attrs.field(factory=list)


def received(number: int, content: bytes, settled: bool, protocol: Protocol) -> ReceivedDelivery:
    """Makes the delivery of a content; tags are the numbers."""
    route_end = 3 + content[1]
    route_end += content[route_end - 1]
    flags = content[route_end + 12] << 8 | content[route_end + 13]
    ttl = None
    if flags & _EXPIRATION:
        ttl = contents.ttl_in(content)
    return ReceivedDelivery(
        DeliveryNumber(number),
        DeliveryTag(number.to_bytes(8, "big")),
        content,
        protocol,
        0,
        settled,
        ttl_milliseconds=ttl,
    )
