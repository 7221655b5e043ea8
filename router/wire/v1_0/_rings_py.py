"""The unsettled deliveries of the express lane, pure twin: runs, and rings that find them by id.

Theory of operation. A run is some deliveries that came one after the other on one link and went,
one after the other, to another link: n-th in, n-th out. A ring belongs to one session and one
direction; the slot ``delivery-id & mask`` holds the run that the id is part of. So a range of ids
is found, checked and cleared by slices, at the speed of C.

Invariants: every id in the slots lies in [lowest, highest); highest - lowest never exceeds the
ring's size, so no two ids meet in a slot; ``taken[slot]`` is 1 exactly where ``slots[slot]`` is a
run. A ring doubles while it is more than half full. One that is not, and yet too short, has old
deliveries stuck at its low end: these are spilled into a dict, so that one receiver that never
answers costs what it holds and no more.
"""

from typing import Any, Final

from router.model.serial import HALF, MASK
from router.wire.v1_0.state import LinkState

FIRST_SLOTS: Final = 256
"""Slots of a new ring: a usual window, 2 KiB."""

MOST_SLOTS: Final = 1 << 20
"""Where rings stop to grow and spill instead."""

UNTOLD: Final = 0
TOLD: Final = 1
DONE: Final = 2
"""States of a delivery where the receiver settles second: nothing heard; accepted, and the sender
knows; the same, and the receiver has settled. Where the receiver settles first there are none: with
the outcome the delivery is gone."""


class Run:
    """Deliveries received and sent on together.

    Attributes:
        link, out: the link they came on and the one they went to.
        first_in, first_out: delivery-ids of the first of them.
        first_number: of the first of them on ``out``; its tag there.
        count: how many they were.
        tags, payloads: as they came; a payload that is needed no more is None.
        octets: of each payload, if all are equal; else -1.
        is_settled: beforehand, by the sender.
        states: one octet each, where the receiver settles second; else None.
    """

    __slots__ = (
        "count",
        "first_in",
        "first_number",
        "first_out",
        "is_settled",
        "link",
        "octets",
        "out",
        "payloads",
        "states",
        "tags",
    )

    def __init__(  # noqa: PLR0917  made per run on the hot path; keywords cost
        self,
        link: LinkState,
        out: LinkState,
        first_in: int,
        first_out: int,
        first_number: int,
        tags: list[bytes],
        payloads: list[bytes],
        octets: int,
        is_settled: bool,
    ) -> None:
        self.link = link
        self.out = out
        self.first_in = first_in
        self.first_out = first_out
        self.first_number = first_number
        self.count = len(tags)
        self.tags = tags
        self.payloads: list[bytes | None] = payloads  # type: ignore[assignment]  # taken over
        self.octets = octets
        self.is_settled = is_settled
        self.states = bytearray(len(tags)) if link.settles_second and not is_settled else None

    def forget(self, at: int, count: int) -> int:
        """Lets payloads go; returns how many octets they were."""
        if self.octets >= 0:
            octets = self.octets * count
        else:
            octets = sum(map(len, self.payloads[at : at + count]))  # type: ignore[arg-type]
        if count != self.count:
            self.payloads[at : at + count] = [None] * count
        return octets


Piece = tuple[Run, int, int]
"""A run, the id of a delivery in it, and how many from that one on."""


class Ring:
    """Finds the unsettled deliveries of one session in one direction.

    Attributes:
        is_incoming: whether the ids are those of received deliveries.
        live: how many ids are in the slots.
        spilled: id → run, for what was stuck.
    """

    __slots__ = (
        "_highest",
        "_lowest",
        "_mask",
        "_slots",
        "_taken",
        "is_incoming",
        "live",
        "spilled",
    )

    def __init__(self, is_incoming: bool) -> None:
        self.is_incoming = is_incoming
        self.live = 0
        self.spilled: dict[int, Run] = {}
        self._mask = FIRST_SLOTS - 1
        self._slots: list[Run | None] = [None] * FIRST_SLOTS
        self._taken = bytearray(FIRST_SLOTS)
        self._lowest = 0
        self._highest = 0

    def put(self, first: int, run: Run) -> None:
        """Enters a whole run; ``first`` is the id of its first delivery here."""
        count = run.count
        lowest, highest = first, (first + count) & MASK
        if self.live:
            if (first - self._lowest) & MASK < HALF:
                lowest = self._lowest
            if (self._highest - highest) & MASK < HALF:
                highest = self._highest
        if (highest - lowest) & MASK > self._mask + 1:
            lowest = self._make_room(lowest, highest, count)
            while count and (first - lowest) & MASK >= HALF:  # it is late, and stuck like these
                self.spilled[first] = run
                first = (first + 1) & MASK
                count -= 1
        self._lowest, self._highest = lowest, highest
        self._fill_slots(first, count, run)

    def _make_room(self, lowest: int, highest: int, count: int) -> int:
        """Makes the ids from ``lowest`` to ``highest`` fit; returns the lowest id that may stay."""
        span = (highest - lowest) & MASK
        while span > self._mask + 1 <= MOST_SLOTS // 2 and (self.live + count) * 2 > self._mask + 1:
            pieces = self._in_slots()
            self._mask = self._mask * 2 + 1
            self._slots = [None] * (self._mask + 1)
            self._taken = bytearray(self._mask + 1)
            self.live = 0
            for run, an_id, length in pieces:
                self._fill_slots(an_id, length, run)
        if span <= self._mask + 1:
            return lowest
        lowest = (highest - self._mask - 1) & MASK
        for run, an_id, length in self._in_slots():
            behind = (lowest - an_id) & MASK
            if 0 < behind < HALF:
                stuck = min(length, behind)
                self.spilled.update(((an_id + step) & MASK, run) for step in range(stuck))
                self._clear_slots(an_id, stuck)
        return lowest

    def _fill_slots(self, first: int, count: int, run: Run) -> None:
        slot = first & self._mask
        until = slot + count
        if until <= self._mask + 1:
            self._slots[slot:until] = [run] * count
            self._taken[slot:until] = b"\x01" * count
        else:
            for at in range(slot, until):
                self._slots[at & self._mask] = run
                self._taken[at & self._mask] = 1
        self.live += count

    def find(self, first: int, last: int) -> list[Piece]:
        """Returns what is unsettled from ``first`` to ``last``, in serial order.

        The range may be any that a peer can write; the work is bounded by what is unsettled.
        """
        pieces: list[Piece] = []
        if self.spilled:
            span = (last - first) & MASK
            found = [each for each in self.spilled if (each - first) & MASK <= span]
            found.sort(key=lambda each: (each - first) & MASK)
            pieces += [(self.spilled[each], each, 1) for each in found]
        if not self.live:
            return pieces
        lowest = self._lowest
        until = (last + 1 - lowest) & MASK
        if until == 0 or until > HALF:
            return pieces
        start = (first - lowest) & MASK
        if start >= HALF:
            start = 0
        return pieces + self._find_in_slots(start, min(until, (self._highest - lowest) & MASK))

    def everything(self) -> list[Piece]:
        """Returns all that is unsettled, in serial order."""
        return [(run, each, 1) for each, run in self.spilled.items()] + self._in_slots()

    def _in_slots(self) -> list[Piece]:
        if not self.live:
            return []
        return self._find_in_slots(0, (self._highest - self._lowest) & MASK)

    def _find_in_slots(self, start: int, until: int) -> list[Piece]:
        """Finds ids from ``lowest + start`` to before ``lowest + until``."""
        slots, taken, mask, lowest = self._slots, self._taken, self._mask, self._lowest
        pieces: list[Piece] = []
        at = start
        while at < until:
            slot = (lowest + at) & mask
            reach = min(until - at, mask + 1 - slot)
            begin = taken.find(1, slot, slot + reach)
            if begin < 0:
                at += reach
                continue
            at += begin - slot
            reach -= begin - slot
            run = slots[begin]
            assert run is not None
            an_id = (lowest + at) & MASK
            first = run.first_in if self.is_incoming else run.first_out
            count = min(reach, (first + run.count - an_id) & MASK)
            hole = taken.find(0, begin, begin + count)
            if hole >= 0:
                count = hole - begin
            pieces.append((run, an_id, count))
            at += count
        return pieces

    def clear(self, first: int, count: int) -> None:
        """Forgets ids that are there, all of them."""
        if self.spilled:
            left = [
                each & MASK
                for each in range(first, first + count)
                if self.spilled.pop(each & MASK, None) is None
            ]
            for each in left:
                self._clear_slots(each, 1)
        else:
            self._clear_slots(first, count)
        if self.live:
            self._raise_lowest()

    def _clear_slots(self, first: int, count: int) -> None:
        slot = first & self._mask
        until = slot + count
        if until <= self._mask + 1:
            self._slots[slot:until] = [None] * count
            self._taken[slot:until] = bytes(count)
        else:
            for at in range(slot, until):
                self._slots[at & self._mask] = None
                self._taken[at & self._mask] = 0
        self.live -= count

    def _raise_lowest(self) -> None:
        slot = self._lowest & self._mask
        if self._taken[slot]:
            return
        at = self._taken.find(1, slot)
        if at < 0:
            at = self._taken.find(1, 0, slot) + self._mask + 1
        self._lowest = (self._lowest + at - slot) & MASK


class Rings:
    """What the lane keeps for a session.

    Attributes:
        incoming, outgoing: unsettled deliveries by delivery-id.
        sayings: per kind, what is to be told: first, last, first, last and so on.
        is_speaking: it waits in ``Express`` for the end of the turn.
        blocked: lanes that passed over one of its links because its window was used up.
        gathering: its links with a delivery of which more is to come.
    """

    __slots__ = ("blocked", "gathering", "incoming", "is_speaking", "outgoing", "sayings")

    def __init__(self) -> None:
        self.incoming = Ring(is_incoming=True)
        self.outgoing = Ring(is_incoming=False)
        self.sayings: tuple[list[int], ...] = ([], [], [])
        self.is_speaking = False
        self.blocked: list[Any] = []
        self.gathering: list[LinkState] = []
