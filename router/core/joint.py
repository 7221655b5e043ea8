"""A joint: what two workers tell each other on one connection, in messages of the router's own.

Each end attaches one link to an address that no route has, and sends messages on it. ``network``
and ``memories`` have such an exchange each, and say what the messages are.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from router.core.turn import Turn
from router.links.link import Connection
from router.model.commands import AttachLink, GrantCredit, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.terminus import Role, SenderSettleMode, Source, Target

CREDIT: Final = 100
"""Messages that a sibling may send; granted anew when half of it is used."""

AMQP_VALUE: Final = b"\x00\x53\x77"
"""Begins each message: one section ``amqp-value`` (§3.2.8)."""


@attrs.define(eq=False)
class Joint:
    """One end of an exchange with a sibling.

    Attributes:
        name: the sibling's, as ``reach.sibling_name`` gives it.
        address: what the links of both ends are attached to.
        turn: carries out what is ordered.
        ours: our link, on which we send messages; None: it was never attached.
        credit: that the sibling has granted on our link.
        sent: number of messages sent, on all attachments of our link.
        theirs: the sibling's link; None: it is not attached.
        left: credit that the sibling has left.
    """

    connection: Connection
    name: str
    address: str
    turn: Turn
    ours: LinkId | None = None
    credit: int = 0
    sent: int = 0
    theirs: LinkId | None = None
    left: int = 0

    def attach(self, link: LinkId, mode: SenderSettleMode) -> None:
        """Attaches our link, for the first time or again."""
        self.ours, self.credit = link, 0
        attach = AttachLink(
            link=link,
            name=LinkName(self.address),
            role=Role.SENDER,
            source=Source(address=self.address),
            target=Target(address=self.address),
            sender_settle_mode=mode,
        )
        self.turn.order_connection(self.connection, attach)

    def is_theirs(self, event: LinkAttached) -> bool:
        """Returns whether the sibling attaches its link of this exchange."""
        target = event.target
        is_here = isinstance(target, Target) and target.address == self.address
        return is_here and event.role is Role.RECEIVER and not event.is_answer

    def accept(self, event: LinkAttached) -> None:
        """Answers the sibling's attach, and grants it credit."""
        self.theirs, self.left = event.link, CREDIT
        answer = AttachLink(
            link=event.link,
            name=event.name,
            role=Role.RECEIVER,
            source=event.source,
            target=event.target,
            sender_settle_mode=event.sender_settle_mode,
        )
        self.turn.order_connection(self.connection, answer)
        self.turn.order_connection(self.connection, GrantCredit(event.link, CREDIT))

    def send(self, messages: Sequence[bytes], *, settled: bool) -> None:
        """Sends messages, no more than there is credit; the last one's number is ``sent``."""
        assert self.ours is not None
        run: list[OutgoingDelivery] = []
        for message in messages:
            self.sent += 1
            tag = DeliveryTag((self.sent & 0xFFFF_FFFF).to_bytes(4, "big"))
            run.append(
                OutgoingDelivery(DeliveryNumber(self.sent), tag, payload=message, settled=settled)
            )
        self.credit -= len(run)
        self.turn.order_connection(self.connection, SendDeliveries(self.ours, run))

    def received(self, count: int) -> None:
        """Records messages received, and grants credit anew when half of it is used."""
        self.left -= count
        if self.left <= CREDIT // 2 and self.theirs is not None:
            self.left = CREDIT
            self.turn.order_connection(self.connection, GrantCredit(self.theirs, CREDIT))
