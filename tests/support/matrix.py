"""One row and one column of resumption for each of many links (§2.6.13, §3.4.6).

A cell is a delivery on a link of its own: what the router says of it in its unsettled map, and what
its peer does. Many cells share a connection, so what comes on it is sorted by link here.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from router.model.outcome import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    is_outcome,
)
from router.model.terminus import Role, SenderSettleMode
from router.wire.v1_0.performatives import Attach, Disposition, Flow, Transfer
from tests.support.frame_line import SECONDS, Came, FrameLine, Unsettled

ABSENT: Final = "absent"
"""The map has no such delivery."""

State = DeliveryState | str | None
"""What a map says of a delivery: nothing at all (``ABSENT``), null, or a state."""

SECTION: Final = b"\x00\x53\x75\xa0\x04"
"""A data section with four characters begins so."""

NAMED: Final = b"\x00\x53\x73\xc0\x05\x01\xa1\x02id"
"""Properties with a message-id: by that the router knows what is brought again (``repeats``)."""

BODY: Final = NAMED + SECTION + b"over"
PART_OCTETS: Final = len(BODY) - 4
PART: Final = Received(1, len(SECTION))
"""The first octet of the second section's content."""

MIDDLE: Final = Received(1, 0)
"""A point that lies before ``PART``, and behind the start."""

MODIFIED: Final = Modified(delivery_failed=True)
REJECTED: Final = Rejected()
OUTCOMES: Final[tuple[DeliveryState, ...]] = (ACCEPTED, REJECTED, RELEASED, MODIFIED)

_numbers = itertools.count(1)


def name_of(state: State) -> str:
    """A word for a state."""
    if state is ABSENT or state is None:
        return str(state or "null")
    return "received" if isinstance(state, Received) else type(state).__name__.lower()


def octets_to(position: Received, body: bytes = BODY) -> int:
    """How many octets of a message of ours, of two sections or one, lie before a position."""
    starts = [0, len(NAMED)] if body == BODY else [0]
    if position.section_number >= len(starts):
        return len(body)
    return starts[position.section_number] + position.section_offset


@attrs.define(eq=False)
class Cell:
    """One link with one delivery.

    Attributes:
        row: what was done so that the router has its state; ``column``: the peer's state.
        number: of the link, on both connections; ``address``: that nobody else uses.
        ours: what the router's map says, once the link is attached again.
        tag: of the delivery on the link that is tried.
    """

    row: str
    column: State
    number: int
    address: str
    body: bytes = BODY
    ours: State = ABSENT
    tag: bytes = b"K"

    def __str__(self) -> str:
        return f"{self.row} (told as {self.ours!r}) against {name_of(self.column)}"


@attrs.define(eq=False)
class Board:
    """One connection with a link for each cell.

    Attributes:
        transfers: that have come, by cell; ``told``: dispositions, by cell.
    """

    line: FrameLine
    role: Role
    is_second: bool = True
    mode: SenderSettleMode = SenderSettleMode.MIXED
    transfers: dict[int, list[tuple[Transfer, bytes]]] = attrs.field(factory=dict)
    told: dict[int, list[Disposition]] = attrs.field(factory=dict)
    limits: dict[int, int] = attrs.field(factory=dict)
    counts: dict[int, int] = attrs.field(factory=dict)
    _handles: dict[int, int] = attrs.field(factory=dict)
    _ids: dict[int, int] = attrs.field(factory=dict)
    _next_id: int = 0
    _amid: dict[int, int] = attrs.field(factory=dict)

    def attach(self, cell: Cell, unsettled: Unsettled | None = None, **changes: Any) -> Attach:
        """Attaches the link of a cell; returns the answer."""
        number = cell.number
        asked: dict[str, Any] = {"handle": number, "second": self.is_second, "mode": self.mode}
        attach = self.line.attach_sender if self.role is Role.SENDER else self.line.attach_receiver
        answer = attach(f"{self.role.value}-{number}", cell.address, unsettled, **(asked | changes))
        self._handles[answer.handle] = number
        self.transfers.setdefault(number, [])
        self.told.setdefault(number, [])
        self.counts[number] = answer.initial_delivery_count or 0
        if self.role is Role.RECEIVER:
            self.line.grant(9, handle=number, count=self.counts[number])
        return answer

    # --- hearing ----------------------------------------------------------------------------------

    def read(self, seconds: float = 0.0) -> None:
        """Sorts what has come; waits so long for something."""
        self.line.read(seconds)
        while self.line.read(0):
            pass
        came, self.line.came = self.line.came, []
        for each in came:
            self._take(each)

    def _take(self, came: Came) -> None:
        match came.performative:
            case Transfer() as transfer:
                number = self._handles[transfer.handle]
                self.transfers[number].append((transfer, came.payload))
                if transfer.delivery_id is not None:
                    self._ids[transfer.delivery_id] = number
                    self.counts[number] += 1
            case Disposition() as told:
                last = told.first if told.last is None else told.last
                for number in {self._ids[each] for each in range(told.first, last + 1)}:
                    self.told[number].append(told)
            case Flow(handle=int() as handle) as flow:
                number = self._handles[handle]
                if self.role is Role.SENDER:
                    self.limits[number] = (flow.delivery_count or 0) + (flow.link_credit or 0)
                elif flow.echo:
                    self.line.grant(9, handle=number, count=flow.delivery_count)
            case Flow():
                pass
            case other:
                raise AssertionError(f"{self.role}: {other}")

    def until(self, done: Callable[[], bool], what: object = "") -> None:
        """Reads until something is so."""
        limit = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < limit, f"{self.role.value}: {what}"
            assert not self.line.is_over, f"{self.role.value} has lost its connection: {what}"
            self.read(0.2)

    def fence(self) -> None:
        """Reads all that the router says by now."""
        seen: list[Flow] = []
        self.line.send(Flow(None, 1 << 30, self.line.sent[0], 1 << 20, echo=True))
        limit = time.monotonic() + SECONDS
        while not seen:
            assert time.monotonic() < limit
            self.line.read(0.2)
            came, self.line.came = self.line.came, []
            for each in came:
                if isinstance(each.performative, Flow) and each.performative.handle is None:
                    seen.append(each.performative)
                self._take(each)

    def await_credit(self, cell: Cell) -> None:
        """Waits until a link has credit, and repeats it: its attach has been read (§2.7.4)."""
        number = cell.number
        self.until(lambda: self.limits.get(number, 0) > self.counts[number], f"no credit: {cell}")
        self.line.send(
            Flow(
                next_incoming_id=0,
                incoming_window=1 << 30,
                next_outgoing_id=self.line.sent[0],
                outgoing_window=1 << 20,
                handle=number,
                delivery_count=self.counts[number],
                link_credit=self.limits[number] - self.counts[number],
            )
        )

    # --- a sender ---------------------------------------------------------------------------------

    def send(self, cell: Cell, payload: bytes, *, more: bool = False, **fields: Any) -> None:
        """Sends a delivery, in as many frames as it takes."""
        number, delivery_id = cell.number, self._next_id
        self._next_id += 1
        self.counts[number] += 1
        self._ids[delivery_id] = number
        parts = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)] or [b""]
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            self.line.transfer(
                delivery_id if not place else None,
                cell.tag if not place else None,
                part,
                handle=number,
                more=more or not is_last,
                **(fields if not place else {}),
            )
        self._amid[number] = delivery_id

    def settle(self, cell: Cell, state: DeliveryState | None) -> None:
        """Settles what was sent last, unless the router did."""
        if not any(told.settled for told in self.told[cell.number]):
            an_id = self._amid[cell.number]
            self.line.dispose(Role.SENDER, an_id, state=state, settled=True)

    # --- a receiver -------------------------------------------------------------------------------

    def has_whole(self, cell: Cell) -> bool:
        """Tells whether the last delivery has come to its end."""
        found = self.transfers[cell.number]
        return bool(found) and not (found[-1][0].more or found[-1][0].aborted)

    def dispose(self, cell: Cell, state: DeliveryState, *, settled: bool) -> None:
        """Says what became of the last delivery."""
        ids = [transfer.delivery_id for transfer, _ in self.transfers[cell.number]]
        delivery_id = [each for each in ids if each is not None][-1]
        self.line.dispose(Role.RECEIVER, delivery_id, state=state, settled=settled)

    def is_settled(self, cell: Cell) -> bool:
        """Tells whether the router has settled the last delivery."""
        settled = any(told.settled for told in self.told[cell.number])
        return settled or any(transfer.settled for transfer, _ in self.transfers[cell.number])


def fresh_address(route: str) -> str:
    """An address that nobody has used."""
    return f"{route}.{next(_numbers)}"


def is_decided(state: State) -> bool:
    """Tells whether a state is an outcome."""
    return state is not ABSENT and state is not None and is_outcome(state)  # type: ignore[arg-type]  # no str
