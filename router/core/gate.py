"""Orders that must not be seen by a peer before the journal has something on disk.

Theory of operation. A link *waits* for a sequence number of the journal. What is ordered for it
meanwhile is held, in order, behind whatever is held already; when the journal says how far it is
durable, everything up to there is let go. Credit and windows pass: they say nothing of deliveries;
but not an attach that is held, because then nobody may use them.

    order for a link -> waits, or something of it is held?  -- no -->  goes out at once
                                  | yes
                                  v
                        held: (sequence, link, command)     -- durable(sequence) -->  goes out

A link of ours that is not attached yet stands here as its ``Uplink``.

Sequence numbers in the queue never fall, so an order may wait for a little more than it needs:
for what was appended in the same group, which one flush makes durable anyhow.

What is held for a link that is lost was never sent (**KnownNotSent**): ``recall`` gives it back.
"""

from collections import deque
from collections.abc import Hashable

from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    HoldWindow,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.identity import ConnectionId

_Held = tuple[int, Hashable, ConnectionId, Command]


class Gate:
    """Holds orders back until they may be seen.

    Attributes:
        durable: all records up to this sequence number are durable.
    """

    def __init__(self) -> None:
        self.durable = 0
        self._waits: dict[Hashable, int] = {}
        self._held: deque[_Held] = deque()
        self._counts: dict[Hashable, int] = {}
        self._deliveries: dict[Hashable, int] = {}
        self._attaching: set[Hashable] = set()

    @property
    def is_open(self) -> bool:
        """Whether nothing is held."""
        return not self._held

    def wait(self, link: Hashable, sequence: int) -> None:
        """Lets nothing more be seen on a link before a record is durable."""
        if sequence > self.durable and sequence > self._waits.get(link, 0):
            self._waits[link] = sequence

    def holds(self, link: Hashable, connection: ConnectionId, command: Command) -> bool:
        """Holds an order if it has to wait; returns whether it did."""
        waits, counts = self._waits, self._counts
        if not waits and not counts:
            return False
        sequence = waits.get(link, 0)
        if link not in counts and not sequence:
            return False
        if isinstance(command, GrantCredit | HoldWindow) and link not in self._attaching:
            return False
        held = self._held
        if held and held[-1][0] > sequence:
            sequence = held[-1][0]
        held.append((sequence, link, connection, command))
        counts[link] = counts.get(link, 0) + 1
        if isinstance(command, AttachLink):
            self._attaching.add(link)
        if isinstance(command, SendDeliveries):
            self._deliveries[link] = self._deliveries.get(link, 0) + len(command.deliveries)
        return True

    def is_holding(self, link: Hashable) -> bool:
        """Returns whether anything is held for a link."""
        return link in self._counts

    def held_deliveries(self, link: Hashable) -> int:
        """Returns how many deliveries are held, of which the link's engine does not know yet."""
        return self._deliveries.get(link, 0)

    def let_go(self, durable: int) -> list[tuple[ConnectionId, Command]]:
        """Records what is durable; returns the orders that need wait no longer, in order."""
        self.durable = max(self.durable, durable)
        durable, held = self.durable, self._held
        orders: list[tuple[ConnectionId, Command]] = []
        while held and held[0][0] <= durable:
            _, link, connection, command = held.popleft()
            if isinstance(command, SendDeliveries):
                self._deliveries[link] -= len(command.deliveries)
            if isinstance(command, AttachLink):
                self._attaching.discard(link)
            self._count_down(link)
            orders.append((connection, command))
        for link in [link for link, sequence in self._waits.items() if sequence <= durable]:
            del self._waits[link]
        return orders

    def recall(
        self, link: Hashable, connection: ConnectionId | None = None, *, is_lost: bool
    ) -> list[OutgoingDelivery]:
        """Takes back what a link that is ending was never sent.

        Args:
            link: what is held for it is void; if we detach it ourselves, only deliveries are.
            connection: that it is attached on; another's, from which it was stolen, is still to be
                told of that. None: whichever.
            is_lost: the peer has gone, so nobody would read the rest either.

        Returns:
            The deliveries among it, in order.
        """
        self._waits.pop(link, None)
        if link not in self._counts:
            return []
        kept: deque[_Held] = deque()
        taken: list[OutgoingDelivery] = []
        for held in self._held:
            _, whose, on, command = held
            if whose is not link or connection not in (None, on):
                kept.append(held)
            elif isinstance(command, SendDeliveries):
                taken += command.deliveries
                self._count_down(link)
            elif is_lost or not isinstance(command, UpdateDeliveries | DetachLink):
                self._count_down(link)
            else:
                kept.append(held)
        self._held = kept
        self._deliveries.pop(link, None)
        self._attaching.discard(link)
        return taken

    def _count_down(self, link: Hashable) -> None:
        left = self._counts[link] - 1
        if left:
            self._counts[link] = left
        else:
            del self._counts[link]
            self._deliveries.pop(link, None)
