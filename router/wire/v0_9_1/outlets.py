"""The links behind queues: what they receive from, and what of it they want.

An *outlet* is an outgoing link of the core's, from one address. Behind a local queue it is there
as long as the queue, behind a routed one as long as somebody consumes, behind ``basic.get`` as
long as the channel, behind a purge as long as that. A *watch* is no link of deliveries: by it the
core tells which addresses of a pattern somebody sends to, and each of them gets an outlet.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from router.model.condition import Condition
from router.model.identity import LinkId
from router.wire.v0_9_1.exchanges import Gate
from router.wire.v0_9_1.types import encode_shortstr

if TYPE_CHECKING:
    from router.wire.v0_9_1.getting import Getter
    from router.wire.v0_9_1.purging import Purge
    from router.wire.v0_9_1.queues import Queue
    from router.wire.v0_9_1.server_channel import ServerChannel


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
        drained: called once when the core has sent all it has, or the link goes; no credit is
            granted meanwhile.
        route: exchange and routing key to tell for a message that has none of its own.
        is_shared: others may receive from the address, too, and what this link does not take is
            not lost; so it takes nothing for a queue that nobody consumes from.
        is_exact: its route promises exactly-once.
    """

    link: LinkId
    owner: "Queue | Getter | Purge"
    address: str
    filters: list[tuple[Gate, ...]] = attrs.field(factory=list)
    credit: int = 0
    unsettled: int = 0
    is_attached: bool = False
    is_leaving: bool = False
    drained: list[Callable[[], None]] = attrs.field(factory=list)
    route: bytes = b"\x00\x00"
    is_shared: bool = False
    is_exact: bool = False

    def name_route(self, name: str) -> None:
        """Works ``route`` out from what the client calls the address."""
        self.route = b"\x00" + encode_shortstr(name[:63])

    def end_drain(self) -> None:
        """Goes on with what waited for the core to have sent all it has."""
        waiting, self.drained = self.drained, []
        for go_on in waiting:
            go_on()


@attrs.define(eq=False)
class Waiter:
    """A channel that waits (``park``) for the core's answer to a watch, or to another channel.

    Attributes:
        accepted, refused: one of them is called, once, when the channel goes on.
    """

    channel: "ServerChannel"
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
    queue: "Queue"
    pattern: str
    is_probe: bool = False
    addresses: set[str] = attrs.field(factory=set)
    unanswered: int = 0
    waiting: list[Waiter] = attrs.field(factory=list)
    is_answered: bool = False

    def take_waiting(self) -> list[Waiter]:
        """Gives who waits, and forgets them."""
        waiting, self.waiting = self.waiting, []
        return waiting
