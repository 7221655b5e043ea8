"""Records by which the express lane hands deliveries over to the core.

The lane (ARCHITECTURE.md, "The express lane") forwards deliveries between links without the core.
When a delivery needs more than forwarding, or a link leaves the lane, the lane returns its state
in these records and forgets it.
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
        incoming, delivery: the link on which it was received, and the delivery there.
        outgoing, outgoing_number: the link on which it was sent, and its number there; its tag
            there is the number, in four octets. None: it waits for a receiver.
        state: the receiver's state, which has been sent to the sender; None: nothing yet.
        receiver_settled: the receiver has settled; the sender is yet to settle.
        place: its position among all deliveries of the incoming link; the first is 1.
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
    """The state that a lane returns when one link, or every link, leaves it.

    Attributes:
        queued: per incoming link, deliveries received and not sent on, oldest first.
        pairs: deliveries sent on and not settled on both sides, in the order of sending.
        credits: deliveries that may still be received or sent, for each link that left.
        granted: per outgoing link that left, the credit of its peer's last flow.
    """

    queued: Mapping[LinkId, list[LanePair]] = attrs.field(factory=dict)
    pairs: list[LanePair] = attrs.field(factory=list)
    credits: Mapping[LinkId, int] = attrs.field(factory=dict)
    granted: Mapping[LinkId, int] = attrs.field(factory=dict)


@attrs.frozen
class LaneDelivery:
    """A delivery under way on a lane, to be shown to people.

    Attributes:
        incoming: the link on which it was received.
        tag: its delivery-tag there.
        place: as in ``LanePair``.
        is_settled: its sender has settled it.
        outgoing: the link on which it was sent; None: it waits for a receiver.
        is_answered: its sender has the outcome and is yet to settle.
    """

    incoming: LinkId
    tag: bytes
    octets: int
    place: int
    is_settled: bool
    outgoing: LinkId | None
    is_answered: bool


@attrs.frozen(kw_only=True)
class LaneStatistics:
    """A link's totals in lanes since it was attached.

    Attributes:
        deliveries, octets: deliveries received or sent, and their octets of payload.
        settled: deliveries received or sent settled.
        accepted: deliveries with the outcome accepted.
        unsettled: deliveries that were sent on, or sent, and are not settled on this link.
        queued: deliveries received and not sent on yet; 0 for outgoing links.
        queued_unsettled: of these, those that their sender has not settled.
        credit: deliveries that may still be received or sent.
        granted: the credit of the receiver's last flow; 0 for incoming links.
        kept_octets: payload kept of the deliveries received; 0 for outgoing links.
    """

    deliveries: int
    octets: int
    settled: int
    accepted: int
    unsettled: int
    queued: int
    queued_unsettled: int
    credit: int
    granted: int
    kept_octets: int = 0
