"""What the express lane hands back to the core: deliveries that need the core's judgement.

The lane (ARCHITECTURE.md, "The express lane") forwards deliveries between links without the core
seeing them. When one needs more than forwarding, or a link leaves the lane, the lane gives up
what it knows in these records and forgets it.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import DeliveryState

NOT_SENT: Final = DeliveryNumber(-1)
"""The outgoing number of what waits for a receiver."""


@attrs.define(slots=True, eq=True)
class LanePair:
    """A delivery received on one link, and not settled on both.

    Attributes:
        incoming, delivery: where it came from, and as what.
        outgoing, outgoing_number: where it went, and as what; the tag there is the number, in
            four octets. None: it waits for a receiver.
        state: what the receiver has said and the sender has been told; None: nothing yet.
        receiver_settled: the receiver has settled; only the sender's settling is awaited.
        place: among all deliveries of the incoming link, the first being 1.
    """

    incoming: LinkId
    delivery: ReceivedDelivery
    outgoing: LinkId | None = None
    outgoing_number: DeliveryNumber = NOT_SENT
    state: DeliveryState | None = None
    receiver_settled: bool = False
    place: int = 0


@attrs.frozen
class Remains:
    """What a lane gives up when a link leaves it, or all of them do.

    Attributes:
        queued: per incoming link, received and not sent on, oldest first.
        pairs: sent on and not settled on both sides, in the order of their sending.
        credits: deliveries that may still be received or sent, for each link that left.
        granted: per outgoing link that left, the credit that its peer's last flow gave.
    """

    queued: Mapping[LinkId, list[LanePair]] = attrs.field(factory=dict)
    pairs: list[LanePair] = attrs.field(factory=list)
    credits: Mapping[LinkId, int] = attrs.field(factory=dict)
    granted: Mapping[LinkId, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class LaneStatistics:
    """What a link has done in lanes; totals since it was attached.

    Attributes:
        deliveries, octets: received or sent; octets of payload.
        settled: those that came or went settled beforehand.
        accepted: those whose outcome it was.
        unsettled: deliveries of the lane not settled on this link.
        queued: received, not sent on yet; 0 for outgoing links.
        credit: deliveries that may still be received or sent, without those that wait in an engine.
        granted: the credit that the receiver's last flow gave; 0 for incoming links.
    """

    deliveries: int
    octets: int
    settled: int
    accepted: int
    unsettled: int
    queued: int
    credit: int
    granted: int
