"""A client's publishes, while they wait here and until they are answered.

An *inlet* is the incoming link for publishes to one address; its owner sends by it. A *post* is a
publish in a transaction; a *commit* waits for the outcomes of all of them.
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
"""Outcome of a message that a queue accepts and drops, has no capacity for, or that has expired.
One that no binding of a queue matches is undeliverable here, but has not failed."""


@attrs.define(eq=False)
class Inlet(CountedInlet):
    """An incoming link for one channel's publishes to one address.

    Attributes:
        is_exact: the route promises exactly-once.
    """

    publishing: "InletOwner" = attrs.field(kw_only=True)
    is_exact: bool = False


class InletOwner(inlets.InletOwner, Interface):
    """The owner of an inlet: a channel, or a queue that offers its kept messages."""

    @property
    def channel(self) -> Channel:
        """The channel that ends if the client is at fault."""


class ChannelPublisher(InletOwner, Interface):
    """The publisher of a channel."""

    def on_time(self) -> None:
        """Hands on held deliveries, and ends expired ones."""

    def flush(self) -> None:
        """Writes the confirms that are due."""


Held = tuple[Inlet, ReceivedDelivery, bool]
"""A held delivery: its link, itself, and whether its publish was mandatory."""


@attrs.frozen
class Post:
    """A publish in a transaction, which has no valid number yet.

    Attributes:
        content: see ``router.wire.v0_9_1.content``.
    """

    inlet: Inlet
    content: bytes
    is_mandatory: bool


@attrs.define(eq=False)
class Commit(publishing.Commit):
    """A transaction that is committed when all its publishes have their outcome.

    Attributes:
        returns: frames of returned publishes, sent before the answer.
    """

    returns: list[bytes] = attrs.field(factory=list)


def received(number: int, content: bytes, settled: bool, protocol: Protocol) -> ReceivedDelivery:
    """Creates the delivery of a content; its tag is its number."""
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
