"""The links behind queues, by which they receive.

An *outlet* is an outgoing link of the core's, from one address. Behind a local queue it lasts as
long as the queue, behind a routed one as long as there is a consumer, behind ``basic.get`` as long
as the channel, behind a purge as long as the purge.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import LinkId
from router.wire.recording import Unrecorded
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.exchanges import Gate
from router.wire.v0_9_1.reply import PeerError
from router.wire.v0_9_1.types import encode_shortstr


class OutletOwner:
    """The receiver of an outlet's deliveries.

    Attributes:
        priority: of the link.
    """

    priority: int

    def take(self, outlet: "Outlet", deliveries: list[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
        raise NotImplementedError

    def drained(self, outlet: "Outlet") -> None:
        """Records that the core has nothing more for a link."""
        raise NotImplementedError


class Taker(OutletOwner):
    """Handles the deliveries of an outlet one by one: a get, or a purge.

    Attributes:
        channel: the channel that ends if the client is at fault.
    """

    channel: Channel

    def take(self, outlet: "Outlet", deliveries: list[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
        for delivery in deliveries:
            self._guard(partial(self.got, delivery))

    def drained(self, outlet: "Outlet") -> None:
        """Records that the core has nothing more for a link."""
        self._guard(self.got_nothing)

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except PeerError as error:
            self.channel.machine.fault(error, self.channel)

    def got(self, delivery: OutgoingDelivery) -> None:
        """Handles a delivery."""
        raise NotImplementedError

    def got_nothing(self) -> None:
        """Records that a drain is complete."""
        raise NotImplementedError

    def lost(self, condition: Condition | None) -> None:
        """Records that the core has detached the link."""
        raise NotImplementedError


@attrs.define(eq=False)
class Outlet:
    """An outgoing link behind a queue, or behind ``basic.get``.

    Attributes:
        address: the address that it receives from; empty until the core names a dynamic node.
        filters: gates of several exchanges; a message must pass all of one of them. Empty: no
            condition.
        credit: deliveries that the core may still send.
        unsettled: number of unsettled deliveries.
        is_attached: the core has accepted it.
        is_leaving: it is detached when nothing is unsettled.
        draining: called once when a drain is complete, or the link is gone; no credit is granted
            meanwhile.
        route: exchange and routing key for a message that has none of its own.
        is_shared: others may receive from the address, too, and deliveries that this link does not
            accept are not lost; so it accepts none for a queue without consumers.
        is_exact: its route promises exactly-once.
        unrecorded: commits that wait until what they acknowledge is on record.
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
    unrecorded: Unrecorded[Any] = attrs.field(factory=Unrecorded)

    def name_route(self, name: str) -> None:
        """Sets ``route`` from the client's name of the address."""
        self.route = b"\x00" + encode_shortstr(name[:63])

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Handles deliveries from the core."""
        self.owner.take(self, deliveries)

    def drained(self) -> None:
        """Records that the core has nothing more."""
        self.owner.drained(self)

    def end_drain(self) -> None:
        """Runs the continuation of a drain."""
        waiting, self.draining = self.draining, []
        for go_on in waiting:
            go_on()
