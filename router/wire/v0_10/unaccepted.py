"""A client's unsettled deliveries."""

import attrs

from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.v0_10.queues import Outlet
from router.wire.v0_10.subscription import Subscription


@attrs.define(eq=False)
class Unaccepted:
    """A transfer that the client has received and not settled.

    Attributes:
        number: the core's number; None if the core has settled it, or not named it again yet.
        tag: identifies it when links are resumed.
        is_acquired: the client may accept it.
        delivery: the delivery, if it may be offered to other subscriptions of its queue, or is the
            queue's own.
        is_lost: its link is gone, and the core has no outcome of it.
    """

    outlet: Outlet
    number: DeliveryNumber | None
    tag: DeliveryTag
    subscription: Subscription
    is_acquired: bool
    delivery: OutgoingDelivery | None = None
    is_lost: bool = False

    @property
    def was_had(self) -> bool:
        """Whether the client may have acted upon it: not a message that it could only browse."""
        return self.is_acquired or self.subscription.shows_files
