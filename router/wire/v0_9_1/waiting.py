"""What waits for the core's answer: watches, bindings, and the channels that asked for them.

A *watch* is no link of deliveries: by it the core tells which addresses of a pattern somebody sends
to, and the queue that stands for the pattern gets an outlet for each of them.
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
        accepted, refused: one of them is called, once, when the channel goes on.
    """

    channel: Channel
    accepted: Callable[[], None]
    refused: Callable[[Condition], None]


@attrs.define(eq=False)
class Watch:
    """A pattern that a queue stands for: an outlet each for those of its addresses in use.

    Attributes:
        link: names it to the core.
        addresses: those that somebody sends to.
        is_probe: the queue stands for nothing; it only wants to know whether it could.
        unanswered: outlets that the core has yet to answer before those who wait go on.
        waiting: who wants to know whether the core takes it.
        is_answered: it does, and what was in use of it is attached.
    """

    link: LinkId
    pattern: str
    is_probe: bool = False
    addresses: set[str] = attrs.field(factory=set)
    unanswered: int = 0
    waiting: list[Waiter] = attrs.field(factory=list)
    is_answered: bool = False

    def take_waiting(self) -> list[Waiter]:
        """Returns who waits, and forgets them."""
        waiting, self.waiting = self.waiting, []
        return waiting


@attrs.define(eq=False)
class Attempt:
    """A binding that the core has yet to allow.

    Attributes:
        owner: what is bound: a queue, or the exchanges of the connection.
        waiting: other channels that have asked for the same binding.
    """

    owner: object
    binding: Binding | ExchangeBinding
    waiting: list[Waiter] = attrs.field(factory=list)
