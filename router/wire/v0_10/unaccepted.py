"""What a client has been sent and has not settled."""

import attrs

from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.v0_10.queues import Outlet
from router.wire.v0_10.subscription import Subscription


@attrs.define(eq=False)
class Unaccepted:
    """A transfer that the client has and has not settled.

    Attributes:
        number: the core's; None if the core has settled it, or does not know it yet again.
        tag: what it is known by when links are resumed.
        is_acquired: the client may accept it.
        delivery: itself, if other subscriptions of its queue may be offered it, or if it is the
            queue's own.
    """

    outlet: Outlet
    number: DeliveryNumber | None
    tag: DeliveryTag
    subscription: Subscription
    is_acquired: bool
    delivery: OutgoingDelivery | None = None

    @property
    def was_had(self) -> bool:
        """Whether the client may have acted upon it: no message that it was only shown."""
        return self.is_acquired or self.subscription.shows_files
