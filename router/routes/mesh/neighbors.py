"""One connection to a neighbor: hellos, timers, the output that waits.

States::

    CONNECTED -- hello --> HEARD -- hello that has heard us --> UP
        |                    |                                  |
        +--------------------+-- connection lost, or silence ---+--> (gone)

A link is part of the link state while it is UP: both ends have heard each other on this connection.
Entries are exchanged from HEARD on, when the version is agreed. A hello goes out each second; its
``heard`` names the epoch of the other end, so what was said to an earlier life does not count.

A lost connection counts at once, silence after ``DEAD_SECONDS``. A router that was paused itself
finds all neighbors silent when it wakes up although their hellos are waiting in its sockets; so
time during which the machine was not called does not count as silence (``excuse``).
"""

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from router.routes.mesh.messages import ENTRIES_MOST, common_version
from router.routes.mesh.nouns import (
    Carried,
    EdgeAddresses,
    Entries,
    Entry,
    Hello,
    Key,
    Role,
    RouterId,
)

HELLO_SECONDS: Final = 1.0
DEAD_SECONDS: Final = 2.75
"""Two hellos may be missed. With what follows (``topology.COALESCE_SECONDS``, links to attach)
traffic moves within 3 s of the silence."""

ENTRIES_OCTETS_MOST: Final = 48 * 1024
"""Octets of bodies in one message; one larger body goes alone."""


Idle: TypeAlias = Callable[[RouterId], int]
"""For how many seconds no way has led to an origin."""


class Phase(enum.Enum):
    """How far two neighbors have come (module docstring)."""

    CONNECTED = "connected"
    HEARD = "heard"
    UP = "up"


@attrs.define(eq=False)
class Neighbor:
    """A neighbor on one connection.

    Attributes:
        id: who it is, authenticated.
        heard_at: when its last hello came, or the connection was opened.
        phase: see the module.
        epoch: its epoch, from its hello; 0: unknown.
        role: router or edge.
        cost: of the link, as it says.
        digest: of its entries, as its last hello said.
        hello_at: when the next hello is due.
        outbox: entries that it lacks, as far as is known.
        sent: how many ``Entries`` messages it was sent.
        received: the number of the last ``Entries`` message that came.
        is_active: of an edge: it uses this uplink.
        edge_number: the number of the last ``EdgeAddresses`` that came; -1: the whole is awaited.
    """

    id: RouterId
    heard_at: float
    phase: Phase = attrs.field(default=Phase.CONNECTED, init=False)
    epoch: int = attrs.field(default=0, init=False)
    role: Role = attrs.field(default=Role.ROUTER, init=False)
    cost: int = attrs.field(default=0, init=False)
    digest: int = attrs.field(default=0, init=False)
    hello_at: float = attrs.field(default=0.0, init=False)
    outbox: dict[Key, Entry] = attrs.field(factory=dict, init=False)
    sent: int = attrs.field(default=0, init=False)
    received: int = attrs.field(default=0, init=False)
    is_active: bool = attrs.field(default=False, init=False)
    edge_number: int = attrs.field(default=0, init=False)

    @property
    def is_up(self) -> bool:
        """Whether both ends have heard each other."""
        return self.phase is Phase.UP

    @property
    def floods(self) -> bool:
        """Whether entries are exchanged with it."""
        return self.phase is not Phase.CONNECTED and self.role is Role.ROUTER

    @property
    def dead_at(self) -> float:
        """When it counts as dead."""
        return self.heard_at + DEAD_SECONDS

    def hear(self, hello: Hello, own_epoch: int, now: float) -> str | None:
        """Handles a hello.

        Returns:
            The rule that it breaks; None: none.
        """
        if hello.router != self.id:
            return f"a hello of {hello.router} on the connection of {self.id}"
        version = common_version(hello)
        if isinstance(version, str):
            return version
        if self.epoch and hello.epoch != self.epoch:
            return f"epoch {hello.epoch} after {self.epoch} on one connection"
        if self.phase is not Phase.CONNECTED and hello.role is not self.role:
            return f"role {hello.role} after {self.role} on one connection"
        self.heard_at = now
        self.epoch, self.role = hello.epoch, hello.role
        self.cost, self.digest = hello.cost, hello.digest
        self.is_active = hello.is_active
        if hello.heard == own_epoch:
            self.phase = Phase.UP
        elif self.phase is Phase.CONNECTED:
            self.phase = Phase.HEARD
        return None

    def silence(self, now: float) -> float:
        """Returns for how many seconds nothing was heard."""
        return now - self.heard_at

    def excuse(self, seconds: float) -> None:
        """Does not count time during which this router was not running as silence."""
        self.heard_at += seconds

    def offer(self, entry: Entry) -> None:
        """Puts an entry into the outbox, in place of an older one."""
        if self.floods:
            self.outbox[entry.key] = entry

    def has(self, entry: Entry) -> None:
        """Records that the neighbor has an entry, since it has sent it."""
        waiting = self.outbox.get(entry.key)
        if waiting is not None and waiting.version <= entry.version:
            del self.outbox[entry.key]

    def next_entries(self, idle: Idle) -> Entries | None:
        """Takes one message out of the outbox; None: it is empty."""
        carried: list[Carried] = []
        octets = 0
        for entry in self.outbox.values():
            octets += len(entry.body)
            if len(carried) == ENTRIES_MOST or (carried and octets > ENTRIES_OCTETS_MOST):
                break
            carried.append(Carried(entry, idle(entry.key.origin)))
        if not carried:
            return None
        for one in carried:
            del self.outbox[one.entry.key]
        self.sent += 1
        return Entries(self.sent, tuple(carried))

    def count(self, number: int) -> bool:
        """Records the number of an ``Entries`` message; returns whether one is missing."""
        is_gap = number != self.received + 1
        self.received = number
        return is_gap

    def follows(self, message: EdgeAddresses) -> bool:
        """Records a message of an edge; returns whether it can be used."""
        if not message.is_whole and message.number != self.edge_number + 1:
            self.edge_number = -1
            return False
        self.edge_number = message.number
        return True
