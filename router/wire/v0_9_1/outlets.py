"""The links behind queues: what they receive from.

An *outlet* is an outgoing link of the core's, from one address. Behind a local queue it is there
as long as the queue, behind a routed one as long as somebody consumes, behind ``basic.get`` as
long as the channel, behind a purge as long as that.
"""

from collections.abc import Callable
from functools import partial

import attrs

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import LinkId
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.exchanges import Gate
from router.wire.v0_9_1.reply import PeerError
from router.wire.v0_9_1.types import encode_shortstr


class OutletOwner:
    """Whoever the deliveries of an outlet are for.

    Attributes:
        priority: of the link.
    """

    priority: int

    def take(self, outlet: "Outlet", deliveries: list[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        raise NotImplementedError

    def drained(self, outlet: "Outlet") -> None:
        """Records that the core has sent all that it had for a link."""
        raise NotImplementedError


class Taker(OutletOwner):
    """Whoever takes the deliveries of an outlet one by one: a get, or a purge.

    Attributes:
        channel: the channel that ends if a delivery finds its client at fault.
    """

    channel: Channel

    def take(self, outlet: "Outlet", deliveries: list[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        for delivery in deliveries:
            self._guard(partial(self.got, delivery))

    def drained(self, outlet: "Outlet") -> None:
        """Records that the core has sent all that it had for a link."""
        self._guard(self.got_nothing)

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except PeerError as error:
            self.channel.machine.fault(error, self.channel)

    def got(self, delivery: OutgoingDelivery) -> None:
        """Takes a delivery."""
        raise NotImplementedError

    def got_nothing(self) -> None:
        """Takes note that a drain is over."""
        raise NotImplementedError

    def lost(self, condition: Condition | None) -> None:
        """Takes note that the core has taken the link away."""
        raise NotImplementedError


@attrs.define(eq=False)
class Outlet:
    """An outgoing link behind a queue, or behind one ``basic.get``.

    Attributes:
        address: where it receives from; empty until the core names a dynamic node.
        filters: gates of several exchanges; of one of these a message must pass all. Empty: it
            needs to pass none.
        credit: deliveries that the core may still send.
        unsettled: numbers of deliveries without an outcome.
        is_attached: the core has answered and gives it.
        is_leaving: to be detached when nothing is unsettled.
        draining: called once when the core has sent all it has, or the link goes; no credit is
            granted meanwhile.
        route: exchange and routing key to tell for a message that has none of its own.
        is_shared: others may receive from the address, too, and what this link does not take is
            not lost; so it takes nothing for a queue that nobody consumes from.
        is_exact: its route promises exactly-once.
    """

    link: LinkId
    owner: OutletOwner
    address: str
    filters: list[tuple[Gate, ...]] = attrs.field(factory=list)
    credit: int = 0
    unsettled: int = 0
    is_attached: bool = False
    is_leaving: bool = False
    draining: list[Callable[[], None]] = attrs.field(factory=list)
    route: bytes = b"\x00\x00"
    is_shared: bool = False
    is_exact: bool = False

    def name_route(self, name: str) -> None:
        """Works ``route`` out from what the client calls the address."""
        self.route = b"\x00" + encode_shortstr(name[:63])

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Handles what the core sends."""
        self.owner.take(self, deliveries)

    def drained(self) -> None:
        """Records that the core has sent all that it had."""
        self.owner.drained(self)

    def end_drain(self) -> None:
        """Goes on with what waited for the core to have sent all it has."""
        waiting, self.draining = self.draining, []
        for go_on in waiting:
            go_on()
