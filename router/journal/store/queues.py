"""What a message store holds, by queue and by route; numbers alone."""

import enum
import hashlib
from typing import Final, NamedTuple, NewType

import attrs

from router.journal.record import ROW, Row
from router.journal.store.place import BEGINNING, Place
from router.journal.writer import PART_OCTETS
from router.model.delivery import Elder

QueueKey = NewType("QueueKey", int)
"""64 bits that name a queue in every segment; see ``queue_key``."""

RouteKey = NewType("RouteKey", int)
"""64 bits that name a route, whatever else changes about it."""

ELDER: Final = 0x80
"""Added to the priority of a message that goes before all that was stored for its address."""

_KIND: Final = 0x20
"""Added besides for each kind of elders; so their priorities from 31 on are one here."""

_SLACK: Final = 4  # the fourth part of a bound


class Claim(NamedTuple):
    """Names a stored message, and what it counts for.

    Attributes:
        place: where it stands.
        queue: that it is in.
        octets: of its records.
    """

    place: Place
    queue: QueueKey
    octets: int


def route_key(name: str) -> RouteKey:
    """Names a route."""
    return RouteKey(_hash(b"route", name.encode()))


def queue_key(route: RouteKey, address: bytes, priority: int) -> QueueKey:
    """Names the queue of a route's messages of one address and priority."""
    return QueueKey(_hash(route.to_bytes(8, "little"), bytes((priority,)), address))


def rank_of(priority: int, elder: Elder) -> int:
    """Returns the priority of a message in the store; priorities from 127 on are one here."""
    if not elder:
        return min(priority, ELDER - 1)
    return ELDER + (elder - 1) * _KIND + min(priority, _KIND - 1)


def priority_of(rank: int) -> int:
    """Returns the priority of the messages of a queue, elders or not."""
    return rank if rank < ELDER else rank % _KIND


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


def stored_octets(row: Row) -> int:
    """Returns what the records of a message take, from its first row."""
    return record_octets(row[10], row[5] + row[14])


def record_octets(payload_octets: int, string_octets: int) -> int:
    """Returns what the records of a message take, whose address and tag have so many octets."""
    parts = max(0, payload_octets - 1) // PART_OCTETS + 1
    return parts * ROW.size + string_octets + payload_octets


class Full(enum.StrEnum):
    """What happens when a bound of a route is reached."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop-oldest"


@attrs.frozen(kw_only=True)
class Bounds:
    """How much a route may store; None: as much as there is room for.

    Attributes:
        octets: of the records of its messages.
        messages: how many.
        age_ns: an older message is overdue.
        full: what happens at the first two.
    """

    octets: int | None = None
    messages: int | None = None
    age_ns: int | None = None
    full: Full = Full.REFUSE

    @property
    def are_unset(self) -> bool:
        """Whether nothing is bounded."""
        return self.octets is None and self.messages is None and self.age_ns is None

    def are_reached(self, messages: int, octets: int) -> bool:
        """Returns whether so many messages of so many octets are as many as the store takes."""
        most_messages, most_octets = self.most
        return (most_messages is not None and messages >= most_messages) or (
            most_octets is not None and octets >= most_octets
        )

    @property
    def most(self) -> tuple[int | None, int | None]:
        """How many messages and octets the store takes at most, dead letters that wait included."""
        if self.full is Full.REFUSE:
            return self.messages, self.octets
        return _with_slack(self.messages), _with_slack(self.octets)

    def are_exceeded(self, messages: int, octets: int) -> bool:
        """Returns whether so many messages of so many octets are too many."""
        return (self.messages is not None and messages > self.messages) or (
            self.octets is not None and octets > self.octets
        )


def _with_slack(bound: int | None) -> int | None:
    return None if bound is None else bound + -(-bound // _SLACK)


UNBOUNDED: Final = Bounds()


@attrs.define(eq=False, kw_only=True)
class StoredRoute:
    """The messages of one route.

    Attributes:
        key: of the route.
        messages: stored and not forwarded.
        octets: of their records.
        condemned: its messages up to here were dropped as the oldest, and are overdue.
        condemned_messages: how many of ``messages`` these are.
        condemned_octets: of their records.
        swept: whatever is overdue up to here has been taken.
        first: all its messages up to here are gone.
        came, left: how many messages did, since the process started.
        bounds: how much it may store.
    """

    key: RouteKey
    messages: int = 0
    octets: int = 0
    condemned: Place = BEGINNING
    condemned_messages: int = 0
    condemned_octets: int = 0
    swept: Place = BEGINNING
    first: Place = BEGINNING
    came: int = 0
    left: int = 0
    bounds: Bounds = UNBOUNDED

    @property
    def is_full(self) -> bool:
        """Whether senders of the route must wait.

        A route that drops its oldest messages lets its senders wait when a quarter of its bounds
        waits for its dead letters' target besides.
        """
        return self.bounds.are_reached(self.messages, self.octets)

    def must_drop(self) -> bool:
        """Returns whether its oldest messages must go."""
        return self.bounds.full is Full.DROP_OLDEST and self.bounds.are_exceeded(
            self.messages - self.condemned_messages, self.octets - self.condemned_octets
        )

    def stored(self, place: Place, octets: int) -> None:
        """Counts a message."""
        self.messages += 1
        self.octets += octets
        if place <= self.condemned:
            self.condemned_messages += 1
            self.condemned_octets += octets

    def condemn(self, place: Place, octets: int) -> None:
        """Drops its oldest message that was not dropped yet."""
        self.condemned = place
        self.condemned_messages += 1
        self.condemned_octets += octets

    def forwarded(self, place: Place, octets: int) -> None:
        """Records that a message is gone."""
        self.messages -= 1
        self.octets -= octets
        self.left += 1
        if place <= self.condemned:
            self.condemned_messages -= 1
            self.condemned_octets -= octets

    def forwarded_run(self, messages: int, octets: int) -> None:
        """Records that messages are gone, none of which was dropped as the oldest."""
        self.messages -= messages
        self.octets -= octets
        self.left += messages


@attrs.define(eq=False, kw_only=True)
class StoredQueue:
    """The messages of a route with one address and priority.

    Attributes:
        key: of the queue.
        route: whose messages they are.
        address: UTF-8.
        priority: 0 to 255.
        messages: stored and not forwarded.
        octets: of their records.
        read: reading goes on behind this place.
        returned: places before it to be read again, a heap.
        condemned: somebody has dropped its messages up to here; they are overdue.
    """

    key: QueueKey
    route: RouteKey
    address: bytes
    priority: int
    messages: int = 0
    octets: int = 0
    read: Place = BEGINNING
    returned: list[Place] = attrs.field(factory=list)
    condemned: Place = BEGINNING
