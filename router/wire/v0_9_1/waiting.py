"""Pending answers of the core: watches, bindings, and the channels that asked for them.

A *watch* is not a link for deliveries: with it the core reports which addresses of a pattern have
senders, and the queue with the pattern gets an outlet for each of them.
"""

from collections.abc import Callable

import attrs

from router.model.condition import Condition
from router.model.identity import LinkId
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.exchanges import Binding, ExchangeBinding


@attrs.define(eq=False)
class Waiter:
    """A channel that waits (``park``) for the core's answer to a watch, or to another channel.

    Attributes:
        accepted, refused: one of them is called, once, when the channel continues.
    """

    channel: Channel
    accepted: Callable[[], None]
    refused: Callable[[Condition], None]


@attrs.define(eq=False)
class Watch:
    """A pattern of a queue: one outlet per address in use.

    Attributes:
        link: its id with the core.
        addresses: those in use.
        is_probe: the queue only asks whether it could receive from the pattern.
        unanswered: outlets that the core has not answered yet.
        waiting: channels that wait for the core's answer.
        is_answered: the core has accepted it, and the addresses in use are attached.
    """

    link: LinkId
    pattern: str
    is_probe: bool = False
    addresses: set[str] = attrs.field(factory=set)
    unanswered: int = 0
    waiting: list[Waiter] = attrs.field(factory=list)
    is_answered: bool = False

    def take_waiting(self) -> list[Waiter]:
        """Removes and returns the waiting channels."""
        waiting, self.waiting = self.waiting, []
        return waiting


@attrs.define(eq=False)
class Attempt:
    """A binding that the core has not answered yet.

    Attributes:
        owner: the bound queue, or the exchanges of the connection.
        waiting: other channels that have asked for the same binding.
    """

    owner: object
    binding: Binding | ExchangeBinding
    waiting: list[Waiter] = attrs.field(factory=list)
