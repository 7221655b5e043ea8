"""What the store has lent: references to messages that are read when there is credit for them.

A target grants credit for some hundreds of messages at a time. To ask the store for as many each
time costs a turn of both processes and, at either end, as much as to forward them. So an inlet on
the express lane asks for many more, which the store answers by reference (``references``), and
reads of them what it has credit for::

    store --REFERENCE--> lent --credit--> read --> the lane
                          |
                          '-- recall --> the store has them again, in their order

What is lent is taken, for the store, but costs 4 octets for each message here. It is all of one
priority: when the store has messages of another one, it is recalled, and until only one is left
no more is asked for than can be sent. Whatever else could not wait for credit recalls it, too:
messages that the disk does not give at once, that somebody drops or that are dropped as the oldest,
that may become too old, and an inlet that ends.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

from router.journal.store.place import Place, place_of
from router.journal.store.references import POSITION_OCTETS, RunReference, Spot
from router.net.store.inlet import Inlet

AHEAD: Final = 4096
"""Messages of one address that are lent, or asked for, at once ..."""

AHEAD_IN_ALL: Final = 1 << 16
"""... and of all addresses, unless they have credit for more."""

SLICE_OCTETS: Final = 512 << 10
"""Of messages that are read together: they are sent before they leave the processor's cache."""

_FIRST: Final = 32  # messages that are read together before it is known how long they are


@attrs.define(eq=False)
class Lent:
    """References to messages of one segment, of which some were read.

    Attributes:
        reference: as the last of them came.
        pieces: what is left of it.
        count: how many messages that are.
    """

    reference: RunReference
    pieces: deque[Spot]
    count: int

    @classmethod
    def of(cls, reference: RunReference) -> "Lent":
        """Begins with all of a reference."""
        return cls(reference, deque(reference.pieces), reference.messages)

    @property
    def first(self) -> Place:
        """Where its first message stands."""
        octets = self.pieces[0].positions[:POSITION_OCTETS]
        return place_of(self.reference.segment, int.from_bytes(octets, "little"))

    def add(self, reference: RunReference) -> bool:
        """Adds messages that stand behind these; False: they are in another segment."""
        if (reference.segment, reference.queue) != (self.reference.segment, self.reference.queue):
            return False
        self.reference = reference
        self.pieces += reference.pieces
        self.count += reference.messages
        return True

    def rest(self) -> RunReference:
        """Refers to what is left."""
        return self.reference._replace(pieces=list(self.pieces))

    def take(self, most: int) -> RunReference:
        """Takes the first messages out, and refers to them."""
        taken: list[Spot] = []
        left = min(most, self.count)
        self.count -= left
        while left:
            spot = self.pieces[0]
            messages = len(spot.positions) // POSITION_OCTETS
            if messages <= left:
                taken.append(self.pieces.popleft())
                left -= messages
                continue
            (offset, heap, positions), octets = spot, left * POSITION_OCTETS
            taken.append(Spot(offset, heap, positions[:octets]))
            self.pieces[0] = Spot(offset, heap, positions[octets:])
            break
        return RunReference(*self.reference[:-1], taken)


@attrs.define(eq=False)
class _Account:
    """What is lent to one inlet.

    Attributes:
        priority: of the messages.
        lent: in the order of the messages.
        count: how many these are.
        size: mean octets of those that were read last; 0: none were.
        has_moved: some were read since ``stale`` looked.
    """

    priority: int
    lent: deque[Lent] = attrs.field(factory=deque)
    count: int = 0
    size: int = 0
    has_moved: bool = True


class Lending:
    """What is lent to all inlets."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self._accounts: dict[Inlet, _Account] = {}

    def has(self, inlet: Inlet) -> bool:
        """Returns whether anything is lent to an inlet."""
        return self.count(inlet) > 0

    def has_had(self, inlet: Inlet) -> bool:
        """Returns whether anything was lent to an inlet since it was recalled."""
        return inlet in self._accounts

    def count(self, inlet: Inlet) -> int:
        """Returns how many messages are lent to an inlet."""
        account = self._accounts.get(inlet)
        return 0 if account is None else account.count

    def may_have(self, inlet: Inlet) -> bool:
        """Returns whether an inlet may be lent messages: they wait for nothing but credit."""
        return (
            inlet.state is not None
            and inlet.state.lane is not None
            and not inlet.is_exact
            and not inlet.elders
            and len(inlet.announced) == 1
        )

    def add(self, inlet: Inlet, reference: RunReference) -> None:
        """Records that messages are lent; they stand behind all others that are."""
        account = self._accounts.get(inlet)
        if account is None:
            (priority,) = inlet.announced
            account = self._accounts[inlet] = _Account(priority)
        account.count += reference.messages
        if not account.lent or not account.lent[-1].add(reference):
            account.lent.append(Lent.of(reference))

    def take(self, inlet: Inlet, most: int) -> RunReference | None:
        """Takes the next messages that are to be read together; None: nothing is lent."""
        account = self._accounts.get(inlet)
        if account is None or not account.lent:
            return None
        together = max(1, SLICE_OCTETS // account.size if account.size else _FIRST)
        lent = account.lent[0]
        before = lent.count
        count = min(most, before)
        slices = -(-count // together)  # of one size: each costs as much as some hundred messages
        found = lent.take(-(-count // slices))
        account.count -= before - lent.count
        account.has_moved = True
        if not lent.count:
            account.lent.popleft()
        return found

    def was_read(self, inlet: Inlet, messages: int, octets: int) -> None:
        """Records how long messages were that were taken."""
        account = self._accounts.get(inlet)
        if account is not None:
            account.size = max(1, octets // messages)

    def window(self) -> int:
        """Returns how many messages each inlet may be lent; fewer than can be sent, perhaps."""
        return min(AHEAD, AHEAD_IN_ALL // max(1, len(self._accounts)))

    def recall(self, inlet: Inlet) -> list[Lent]:
        """Takes all out that is lent to an inlet, and forgets the inlet."""
        account = self._accounts.pop(inlet, None)
        return [] if account is None else list(account.lent)

    def first(self, inlet: Inlet) -> Place | None:
        """Returns where the first message stands that is lent to an inlet; None: none is."""
        account = self._accounts.get(inlet)
        return None if account is None or not account.lent else account.lent[0].first

    def rank(self, inlet: Inlet) -> tuple[int, Place] | None:
        """Returns what the first message is sorted by that is lent to an inlet; None: none is."""
        account = self._accounts.get(inlet)
        if account is None or not account.lent:
            return None
        return -account.priority, account.lent[0].first

    def stale(self) -> Iterator[Inlet]:
        """Yields the inlets that have read nothing of what is lent since it was asked last."""
        for inlet, account in tuple(self._accounts.items()):
            if account.lent and not account.has_moved:
                yield inlet
            account.has_moved = False
