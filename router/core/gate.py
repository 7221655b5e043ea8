"""The gate holds orders that a peer must not see before a journal record is durable.

Theory of operation. A link *waits* for a sequence number of the journal. Orders for the link are
held meanwhile, in order, behind those already held; when the journal reports how far it is durable,
all orders up to there are released. Credit and windows pass the gate, because they do not concern
deliveries; but they do not pass a held attach, before which the peer could not use them. Credit
that is asked back so that the peer hears first what was given back (``follows``) passes nothing.

    order for a link -> waits, or something of it is held?  -- no -->  goes out at once
                                  | yes
                                  v
                        held: (sequence, link, command)     -- durable(sequence) -->  goes out

A link of ours that is not attached yet is represented by its ``Uplink``.

Sequence numbers in the queue never fall, so an order may wait for slightly more than it needs: for
records of the same group, which one flush makes durable anyway.

Orders held for a link that is lost were never sent (**KnownNotSent**): ``recall`` returns them.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final

from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    HoldWindow,
    ReportRecorded,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.identity import ConnectionId

_Held = tuple[int, Hashable, ConnectionId, Command]

_LAST: Final = (UpdateDeliveries, ReportRecorded, DetachLink)
"""What is still sent on a link that we detach."""


class Gate:
    """Holds orders until peers may see them.

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
        """Whether no order is held."""
        return not self._held

    def wait(self, link: Hashable, sequence: int) -> None:
        """Holds all further orders of a link until a record is durable."""
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
        if _passes(command) and link not in self._attaching:
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
        """Returns whether orders are held for a link."""
        return link in self._counts

    def held_deliveries(self, link: Hashable) -> int:
        """Returns how many deliveries are held that the link's engine has not been given yet."""
        return self._deliveries.get(link, 0)

    def let_go(self, durable: int) -> list[tuple[ConnectionId, Command]]:
        """Records how far the journal is durable; returns the released orders, in order."""
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
        """Removes the held orders of a link that is ending.

        Args:
            link: its held orders are void; if we detach it ourselves, only deliveries are.
            connection: that it is attached on; orders for another connection, from which the link
                was stolen, are kept. None: any connection.
            is_lost: the peer is gone, so the other orders are void as well.

        Returns:
            The deliveries among the removed orders, in order.
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
            elif is_lost or not isinstance(command, _LAST):
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


def _passes(command: Command) -> bool:
    """Returns whether an order need not wait for what its link waits for."""
    if isinstance(command, GrantCredit):
        return not command.follows
    return isinstance(command, HoldWindow)
