"""Every pair of states in two unsettled maps, through a router that runs (§2.6.13, §3.4.6).

The router receives, and its peer is a sender that comes back; the router sends, and its peer is a
receiver that comes back. What the router has is its row, what the peer has the column. Rows follow
from what has happened, columns are what the peer says: it may have lost its memory, or have decided
by itself. Each cell is a link with one delivery; all cells of a matrix share two connections, which
are dropped, or the router is killed.

What is demanded is the specification's table, written down here a second time (``sent_by_peer``,
``demanded``). Then each delivery is brought to its end: one message has come whole to the receiver,
both ends know the outcome, and neither map of the router's has anything left.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import pytest

from router.model.outcome import RELEASED, DeliveryState, Received
from router.model.terminus import Role, SenderSettleMode
from router.wire.v1_0.performatives import Transfer
from tests.support.durable import worker_of
from tests.support.frame_line import FrameLine, Unsettled
from tests.support.matrix import (
    ABSENT,
    BODY,
    MIDDLE,
    MODIFIED,
    OUTCOMES,
    PART,
    PART_OCTETS,
    Board,
    Cell,
    State,
    fresh_address,
    is_decided,
    name_of,
    octets_to,
)
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

pytestmark = pytest.mark.long

CONFIG = """
router:
  {{id: under-test, workers: {workers}, admin: off, log_format: json, drain_seconds: 1s,
    state: ./state}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes:
  - {{address: once.#, guarantee: exactly-once}}
  - {{address: least.#}}
"""

COLUMNS: Final[tuple[State, ...]] = (ABSENT, None, MIDDLE, *OUTCOMES)
DECIDED: Final = {name_of(outcome): outcome for outcome in OUTCOMES}
RECEIVED_ROWS: Final = ("absent", "null", "part", "whole", *DECIDED)
SENT_ROWS: Final = ("absent", "null", "received", *DECIDED)
WHOLE: Final = Received(2, 0)
NOTHING: Final = Received(0, 0)

LARGE: Final = b"\x00\x53\x75\xb0" + (1_300_000).to_bytes(4, "big") + bytes(1_300_000)
"""More than the router keeps of a message whose parts have all been sent (1 MiB)."""

Places = tuple[int, int, int]
"""How many workers there are; where the peer that comes back is, and where the other one."""

PLACES: Final[tuple[Places, ...]] = ((1, 1, 1), (2, 1, 2), (2, 2, 1))


@attrs.frozen
class Case:
    """One matrix.

    Attributes:
        kills: the router is killed; else the peer's connection is dropped.
    """

    route: str
    places: Places
    is_second: bool
    mode: SenderSettleMode
    kills: bool = False

    def __str__(self) -> str:
        loss = "killed" if self.kills else "dropped"
        second = "second" if self.is_second else "first"
        places = "".join(map(str, self.places))
        return f"{self.route}-{places}-{second}-{self.mode.name.lower()}-{loss}"


MODES: Final = (SenderSettleMode.UNSETTLED, SenderSettleMode.MIXED)
ALL: Final = [
    Case(route, places, is_second, mode, kills)
    for route, kills in (("once", False), ("least", False), ("once", True))
    for places in PLACES
    for is_second in (True, False)
    for mode in MODES
]
QUICK: Final = [
    Case("once", (1, 1, 1), True, SenderSettleMode.UNSETTLED),
    Case("least", (1, 1, 1), False, SenderSettleMode.MIXED),
    Case("once", (2, 2, 1), True, SenderSettleMode.MIXED),
    Case("once", (1, 1, 1), True, SenderSettleMode.MIXED, True),
]
CASES: Final = [
    *(pytest.param(case, id=str(case)) for case in QUICK),
    *(
        pytest.param(case, id=str(case), marks=pytest.mark.slow)
        for case in ALL
        if case not in QUICK
    ),
]


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], RunningRouter]]:
    """Gives a router with so many workers."""
    running: dict[int, RunningRouter] = {}
    with ExitStack() as stack:

        def give(workers: int) -> RunningRouter:
            if workers not in running:
                folder = tmp_path_factory.mktemp(f"workers-{workers}")
                config = CONFIG.format(workers=workers)
                running[workers] = stack.enter_context(running_router(config, folder))
            return running[workers]

        yield give


class Stage:
    """A router, which may be killed, and connections to it."""

    def __init__(self, case: Case, give: Callable[[int], RunningRouter], folder: Path) -> None:
        self.case, self._folder, self._stack = case, folder, ExitStack()
        self._lines: list[FrameLine] = []
        self.router = self._start() if case.kills else give(case.places[0])

    def _start(self) -> RunningRouter:
        config = CONFIG.format(workers=self.case.places[0])
        return self._stack.enter_context(running_router(config, self._folder))

    def kill(self) -> None:
        """Kills the router, and starts it again."""
        self.router.kill()
        self.router = self._start()

    def line(self, container: str, at: int) -> FrameLine:
        """Opens a connection that comes to a worker."""
        while True:
            line = FrameLine(address_of(self.router), container)
            self._lines.append(line)  # those at the other worker stay, so that the next comes here
            if self.case.places[0] == 1 or worker_of(self.router, line.sock) == at:
                line.begin()
                return line

    def close(self) -> None:
        for line in self._lines:
            if not line.is_over:
                line.cut()
        self._stack.close()


@contextmanager
def staged(case: Case, give: Callable[[int], RunningRouter], folder: Path) -> Iterator[Stage]:
    """A stage for the length of a ``with`` block."""
    stage = Stage(case, give, folder)
    try:
        yield stage
    finally:
        stage.close()


def cells_of(rows: tuple[str, ...], route: str) -> list[Cell]:
    """All pairs, each with a link."""
    pairs = [(row, column) for row in rows for column in COLUMNS]
    return [
        Cell(row, column, number, fresh_address(route))
        for number, (row, column) in enumerate(pairs)
    ]


def confirm(stage: Stage, receiver: Board, number: int) -> None:
    """Returns when all that a receiver has said so far is known at home, and durable.

    A message goes the same way behind it: its sender hears the outcome when that is durable.
    """
    probe = Cell("probe", None, number, fresh_address(stage.case.route))
    receiver.attach(probe)
    sender = Board(stage.line(f"probe-{probe.address}", stage.case.places[1]), Role.SENDER)
    sender.attach(probe)
    sender.await_credit(probe)
    sender.send(probe, BODY)
    receiver.until(lambda: receiver.has_whole(probe), "the probe")
    receiver.dispose(probe, OUTCOMES[0], settled=False)
    sender.until(lambda: bool(sender.told[number]), "the probe's outcome")
    sender.settle(probe, OUTCOMES[0])
    receiver.until(lambda: receiver.is_settled(probe), "the probe's settlement")
    sender.line.cut()


def expect_nothing_left(stage: Stage, cells: list[Cell], role: Role, container: str) -> None:
    """Attaches all links once more, by an incomplete map: all that is unsettled must be told."""
    board = Board(stage.line(container, stage.case.places[1]), role, stage.case.is_second)
    left: dict[str, object] = {}
    for cell in cells:
        answer = board.attach(cell, {b"none such": None}, incomplete_unsettled=True)
        if answer.unsettled:
            left[str(cell)] = answer.unsettled
    assert not left
    board.line.cut()


# --- the router receives --------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_sender_comes_back(
    case: Case, routers: Callable[[int], RunningRouter], tmp_path: Path
) -> None:
    with staged(case, routers, tmp_path) as stage:
        Receiving(stage).play()


class Receiving:
    """A sender comes back to the router; a receiver, which settles second, gets what it sends.

    Attributes:
        whole: cells of which the receiver has had the whole message; ``undecided`` there.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.case = stage, stage.case
        self.cells = cells_of(RECEIVED_ROWS, self.case.route)
        self.who = self.cells[0].address
        self.tags: dict[int, bytes] = {}
        self.settled: set[int] = set()
        self.receiver = Board(stage.line(f"to-{self.who}", self.case.places[2]), Role.RECEIVER)
        self.sender = self.new_sender()

    def new_sender(self) -> Board:
        line = self.stage.line(f"from-{self.who}", self.case.places[1])
        return Board(line, Role.SENDER, self.case.is_second, self.case.mode)

    def play(self) -> None:
        self.set_rows()
        self.lose_sender()
        self.decide()
        if self.case.kills:
            self.stage.kill()
            self.receiver_returns()
        self.come_back()
        self.bring_to_an_end()
        self.sender.line.cut()
        self.receiver.line.cut()
        expect_nothing_left(self.stage, self.cells, Role.SENDER, f"from-{self.who}")
        expect_nothing_left(self.stage, self.cells, Role.RECEIVER, f"to-{self.who}")

    # Rows

    def set_rows(self) -> None:
        for cell in self.cells:
            self.receiver.attach(cell)
            self.sender.attach(cell)
        for cell in self.cells:
            self.sender.await_credit(cell)
            match cell.row:
                case "absent":
                    pass
                case "null":
                    self.sender.send(cell, b"", more=True)
                case "part":
                    self.sender.send(cell, BODY[:PART_OCTETS], more=True)
                case _:
                    self.sender.send(cell, BODY)
        for cell in self.cells:
            if has_come(cell):  # then all that was sent before has come to the router's home
                self.receiver.until(partial(self.receiver.has_whole, cell), cell)
                ((transfer, _),) = self.receiver.transfers[cell.number]
                self.tags[cell.number] = transfer.delivery_tag or b""

    def lose_sender(self) -> None:
        """Drops the sender's connection; returns when the router's home of its links knows that."""
        since = len(self.stage.router.log)
        self.sender.line.cut()
        link = f'"link": "sender-{self.cells[-1].number}"'
        self.stage.router.wait_for(f'{link}, "address": "{self.cells[-1].address}"', since=since)

    def decide(self) -> None:
        """The receiver answers while the sender is away."""
        for cell in self.cells:
            if cell.row in DECIDED:
                self.receiver.dispose(cell, DECIDED[cell.row], settled=False)
        confirm(self.stage, self.receiver, len(self.cells))

    def receiver_returns(self) -> None:
        """The receiver remembers all that it has had whole."""
        line = self.stage.line(f"to-{self.who}", self.case.places[2])
        self.receiver = Board(line, Role.RECEIVER)
        for cell in self.cells:
            told: Unsettled = {}
            if has_come(cell):
                told[self.tags[cell.number]] = DECIDED.get(cell.row, WHOLE)
            answer = self.receiver.attach(cell, told)
            if not told.keys() <= (answer.unsettled or {}).keys():
                self.settled.add(cell.number)  # what the router gave to others, say

    # Columns

    def come_back(self) -> None:
        self.sender = self.new_sender()
        for cell in self.cells:
            told: Unsettled = {}
            if cell.column is not ABSENT:
                told[cell.tag] = cell.column  # type: ignore[assignment]  # ABSENT is the only text
            answer = self.sender.attach(cell, told)
            cell.ours = dict(answer.unsettled or {}).get(cell.tag, ABSENT)
            self.check_row(cell)
        for cell in self.cells:
            self.sender.await_credit(cell)
            self.send_again(cell)

    def check_row(self, cell: Cell) -> None:
        """What the router says it has is what has come."""
        if cell.column is ABSENT:
            return  # it may have taken that for what it means before it answered
        known: tuple[State, ...]
        match cell.row:
            case "absent":
                known = (ABSENT,)
            case "null":
                known = (ABSENT, None, NOTHING)  # nothing has come: it SHOULD NOT retain that
            case "part":
                is_kept = self.case.route == "once" and not self.case.kills
                known = (PART,) if is_kept else (PART, ABSENT, None, NOTHING)
            case "whole":
                known = (WHOLE,)
            case outcome:
                known = (DECIDED[outcome],)
        if has_come(cell) and self.is_repeated():
            known += (ABSENT,)
        assert cell.ours in known, cell

    def is_repeated(self) -> bool:
        """Tells whether the sender's maps mean nothing to the router after it was killed.

        Of links that settle first it remembers deliveries, by their tags: those that are brought
        again are no new ones.
        """
        return self.case.kills and not self.case.is_second

    def send_again(self, cell: Cell) -> None:
        """Does what §3.4.6 asks of a sender with this state, told that one."""
        theirs, ours, send = cell.column, cell.ours, self.sender.send
        if theirs is ABSENT:
            return
        if is_decided(theirs):
            if ours is ABSENT:
                return  # delivery-tag 10
            if not is_decided(ours):
                send(cell, b"", resume=True, aborted=True)  # 11, 14
            elif ours == theirs:
                send(cell, b"", resume=True, state=theirs, settled=True)  # 12
            else:
                send(cell, b"", resume=True, state=theirs)  # 13
        elif ours is ABSENT:
            send(cell, BODY)  # 1, 5
        elif is_decided(ours):
            if theirs is None:
                send(cell, b"", resume=True, state=ours, settled=True)  # 3
            else:
                send(cell, b"", resume=True)  # 8, settled when the outcome is told again
        elif must_abort(cell):
            send(cell, b"", resume=True, aborted=True)  # 7, 9
        else:
            start = theirs if isinstance(theirs, Received) else NOTHING
            send(cell, BODY[octets_to(start) :], resume=True, state=theirs)  # 2, 4, 6

    # The end

    def bring_to_an_end(self) -> None:
        for cell in self.cells:
            if is_completed(cell):
                self.receiver.until(partial(self.receiver.has_whole, cell), cell)
                assert self.whole_of(cell) == BODY, cell
            if is_completed(cell) or cell.row == "whole":
                self.accept(cell)
        for cell in self.cells:
            self.hear(cell)
        for cell in self.cells:
            if has_come(cell) or is_completed(cell):
                self.receiver.until(partial(self.is_done, cell), f"not settled: {cell}")
        self.sender.fence()
        self.receiver.fence()
        for cell in self.cells:
            expected = not self.case.kills and has_come(cell)
            came = self.deliveries_of(cell)
            assert came == (1 if expected or is_completed(cell) else 0), cell

    def accept(self, cell: Cell) -> None:
        """The receiver accepts what it has whole; after a kill when the router has resumed it."""
        self.receiver.until(lambda: bool(self.receiver.transfers[cell.number]), cell)
        self.receiver.dispose(cell, OUTCOMES[0], settled=False)

    def hear(self, cell: Cell) -> None:
        """The sender hears the outcome, if it waits for one, and settles."""
        told = self.sender.told[cell.number]
        theirs, ours = cell.column, cell.ours
        if theirs is ABSENT or (is_decided(theirs) and (not is_decided(ours) or ours == theirs)):
            return
        if is_decided(theirs):  # it is definitive: the receiver echoes it and settles
            self.sender.until(lambda: any(each.settled for each in told), f"no echo: {cell}")
            assert told[-1].state == theirs, cell
        elif is_decided(ours):
            if theirs is not None:
                self.sender.until(lambda: bool(told), f"not told again: {cell}")
                assert told[-1].state == ours, cell
                self.sender.settle(cell, told[-1].state)
        elif not must_abort(cell):
            self.sender.until(lambda: bool(told), f"no outcome: {cell}")
            expected = OUTCOMES[0] if is_completed(cell) else DECIDED.get(cell.row, OUTCOMES[0])
            assert told[-1].state == expected, cell
            self.sender.settle(cell, told[-1].state)

    def is_done(self, cell: Cell) -> bool:
        """Tells whether the receiver's delivery is settled; it echoes what is restated."""
        if self.receiver.is_settled(cell) or cell.number in self.settled:
            return True
        for transfer, _ in self.receiver.transfers[cell.number]:
            had = DECIDED.get(cell.row)
            if transfer.resume and is_decided(transfer.state) and transfer.state != had:
                assert transfer.state is not None
                self.receiver.dispose(cell, transfer.state, settled=True)
                self.settled.add(cell.number)
        return cell.number in self.settled

    def whole_of(self, cell: Cell) -> bytes:
        """Gives the payload of the last delivery, without a header that the router has put."""
        parts = self.receiver.transfers[cell.number]
        first = [at for at, (each, _) in enumerate(parts) if each.delivery_id is not None]
        start = next(
            at for at in first if parts[at][0].delivery_id == parts[first[-1]][0].delivery_id
        )
        return b"".join(payload for _, payload in parts[start:])[-len(BODY) :]

    def deliveries_of(self, cell: Cell) -> int:
        """Counts the messages that have come whole and were not resumed."""
        ended = [
            transfer
            for transfer, _ in self.receiver.transfers[cell.number]
            if not (transfer.more or transfer.aborted or transfer.resume)
        ]
        return len(ended)


def has_come(cell: Cell) -> bool:
    """Tells whether the receiver has had the message before the sender was lost."""
    return cell.row == "whole" or cell.row in DECIDED


def must_abort(cell: Cell) -> bool:
    """Tells whether a sender can send less than the router wants (delivery-tags 7 and 9)."""
    if not isinstance(cell.column, Received) or cell.ours is ABSENT or is_decided(cell.ours):
        return False
    wanted = cell.ours if isinstance(cell.ours, Received) else NOTHING
    assert isinstance(wanted, Received)
    return octets_to(wanted) < octets_to(cell.column)


def is_completed(cell: Cell) -> bool:
    """Tells whether the message comes whole to the receiver only when its sender is back.

    What the receiver has given back is not remembered of links that settle first, after a kill.
    """
    is_forgotten = cell.ours is ABSENT and DECIDED.get(cell.row) in (RELEASED, MODIFIED)
    if (has_come(cell) and not is_forgotten) or cell.column is ABSENT or is_decided(cell.column):
        return False
    return not must_abort(cell)


# --- the router sends -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_receiver_comes_back(
    case: Case, routers: Callable[[int], RunningRouter], tmp_path: Path
) -> None:
    with staged(case, routers, tmp_path) as stage:
        Sending(stage).play()


class Demand:
    """What the router must send for a cell."""

    NOTHING, ANEW, RESUMED, OUTCOME, ABORTED = range(5)


class Sending:
    """A receiver comes back to the router; what it gets comes from a sender in mode second."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.case = stage, stage.case
        self.cells = cells_of(SENT_ROWS, self.case.route)
        self.who = self.cells[0].address
        self.sender = Board(stage.line(f"from-{self.who}", self.case.places[2]), Role.SENDER)
        self.receiver = self.new_receiver()
        self.tags: dict[int, bytes] = {}
        for cell in self.cells:
            cell.body = LARGE if cell.row == "received" else BODY

    def new_receiver(self) -> Board:
        line = self.stage.line(f"to-{self.who}", self.case.places[1])
        return Board(line, Role.RECEIVER, self.case.is_second, self.case.mode)

    def play(self) -> None:
        self.set_rows()
        self.receiver.line.cut()
        if self.case.kills:
            self.stage.kill()
            self.sender_returns()
        self.come_back()
        self.check_demands()
        self.bring_to_an_end()
        self.sender.line.cut()
        self.receiver.line.cut()
        cells = [cell for cell in self.cells if not self.is_held(cell)]
        expect_nothing_left(self.stage, cells, Role.RECEIVER, f"to-{self.who}")
        expect_nothing_left(self.stage, cells, Role.SENDER, f"from-{self.who}")

    # Rows

    def set_rows(self) -> None:
        for cell in self.cells:
            self.receiver.attach(cell)
            self.sender.attach(cell)
        for cell in self.cells:
            self.tags[cell.number] = b"none such"
            if cell.row != "absent":
                self.sender.await_credit(cell)
                self.sender.send(cell, cell.body)
                self.receiver.until(partial(self.receiver.has_whole, cell), cell)
                (transfer, _), *_ = self.receiver.transfers[cell.number]
                self.tags[cell.number] = transfer.delivery_tag or b""
        for cell in self.cells:
            if cell.row in DECIDED:
                self.receiver.dispose(cell, DECIDED[cell.row], settled=False)
        for cell in self.cells:
            if cell.row in DECIDED:
                told = self.sender.told[cell.number]
                self.sender.until(partial(bool, told), cell)
                assert told[-1].state == DECIDED[cell.row], cell

    def sender_returns(self) -> None:
        """The sender knows no outcome; it resumes what the router has, to hear it again."""
        self.sender = Board(self.stage.line(f"from-{self.who}", self.case.places[2]), Role.SENDER)
        for cell in self.cells:
            told: Unsettled = {} if cell.row == "absent" else {cell.tag: None}
            answer = self.sender.attach(cell, told)
            if told:
                assert cell.tag in (answer.unsettled or {}), cell
                self.sender.await_credit(cell)
                self.sender.send(cell, cell.body, resume=True)

    # Columns

    def come_back(self) -> None:
        self.receiver = self.new_receiver()
        for cell in self.cells:
            tag, told = self.tags[cell.number], {}
            if cell.column is not ABSENT:
                told = {tag: cell.column}
            answer = self.receiver.attach(cell, told)  # type: ignore[arg-type]  # no text in it
            cell.ours = dict(answer.unsettled or {}).get(tag, ABSENT)
            self.check_row(cell)

    def check_row(self, cell: Cell) -> None:
        """What the router says it has is what it has sent and heard."""
        match cell.row:
            case "absent":
                assert cell.ours is ABSENT, cell
            case "null":
                assert cell.ours is None, cell
            case "received":
                assert cell.ours is None or isinstance(cell.ours, Received), cell
            case outcome:
                is_told = any(told.settled for told in self.sender.told[cell.number])
                is_given_back = DECIDED[outcome] in (RELEASED, MODIFIED)
                is_elsewhere = self.case.route == "least" and self.case.places[0] == 2
                if cell.ours is ABSENT:  # the router has settled it: another worker has it
                    assert is_given_back or is_told or is_elsewhere, cell
                else:
                    assert cell.ours == DECIDED[outcome], cell

    def is_held(self, cell: Cell) -> bool:
        """Tells whether a person has to decide: the receiver may have had it, and settled first."""
        is_sure = self.case.is_second or self.case.route == "least"
        return cell.column is ABSENT and cell.row in ("null", "received") and not is_sure

    def demand(self, cell: Cell) -> int:
        """Gives what §3.4.6 asks of the router, with its state and the receiver's."""
        theirs, ours = cell.column, cell.ours
        if ours is ABSENT or self.is_held(cell):
            return Demand.NOTHING
        if is_decided(ours):
            if theirs is ABSENT:
                return Demand.NOTHING  # delivery-tag 10
            return Demand.OUTCOME if is_decided(theirs) else Demand.ABORTED  # 12, 13; 11, 14
        if is_decided(theirs):
            return Demand.OUTCOME  # 3, 8
        if isinstance(ours, Received):  # it has not kept the message
            return Demand.NOTHING if theirs is ABSENT else Demand.ABORTED  # 5; 7, 9
        return Demand.ANEW if theirs is ABSENT else Demand.RESUMED  # 1; 2, 4

    def check_demands(self) -> None:
        for cell in self.cells:
            came = self.receiver.transfers[cell.number]
            demand = self.demand(cell)
            if demand == Demand.NOTHING:
                continue
            self.receiver.until(partial(self.has_answer, cell), f"nothing: {cell}")
            self.check_transfer(cell, demand, *came[0])
        self.sender.fence()
        self.receiver.fence()
        for cell in self.cells:
            if self.demand(cell) == Demand.NOTHING:
                assert self.receiver.transfers[cell.number] == [], cell

    def has_answer(self, cell: Cell) -> bool:
        came = self.receiver.transfers[cell.number]
        return bool(came) and (not came[-1][0].more or came[-1][0].aborted)

    def check_transfer(self, cell: Cell, demand: int, first: Transfer, payload: bytes) -> None:
        came = self.receiver.transfers[cell.number]
        payload = b"".join(each for _, each in came)
        tag = self.tags[cell.number]
        assert first.resume == (demand != Demand.ANEW), cell
        assert first.delivery_tag == tag or demand == Demand.ANEW, cell
        match demand:
            case Demand.ANEW:
                assert payload.endswith(cell.body), cell
                assert not first.settled, cell
            case Demand.RESUMED:
                start = first.state if isinstance(first.state, Received) else NOTHING
                wanted = cell.column if isinstance(cell.column, Received) else NOTHING
                assert octets_to(start, cell.body) <= octets_to(wanted, cell.body), cell
                assert payload == cell.body[octets_to(start, cell.body) :], cell
            case Demand.OUTCOME:
                expected = cell.ours if is_decided(cell.ours) else cell.column
                assert first.state == expected, cell
                assert payload == b"", cell
                if expected != cell.column:
                    assert not first.settled, cell
            case Demand.ABORTED:
                assert came[-1][0].aborted, cell

    # The end

    def bring_to_an_end(self) -> None:
        is_second = self.case.is_second
        for cell in self.cells:
            match self.demand(cell):
                case Demand.ANEW | Demand.RESUMED:
                    self.receiver.dispose(cell, OUTCOMES[0], settled=not is_second)
                case Demand.OUTCOME if cell.ours != cell.column and is_decided(cell.ours):
                    state = self.receiver.transfers[cell.number][0][0].state
                    assert state is not None
                    self.receiver.dispose(cell, state, settled=True)  # 13: echoed, and settled
                case _:
                    pass
        for cell in self.cells:
            expected = self.outcome(cell)
            if expected is None:
                continue
            told = self.sender.told[cell.number]
            self.sender.until(partial(bool, told), f"the sender hears nothing: {cell}")
            assert told[-1].state == expected, cell
            self.sender.settle(cell, expected)
        for cell in self.cells:
            demand = self.demand(cell)
            is_echoed = is_decided(cell.ours) and cell.ours != cell.column
            is_open = demand == Demand.OUTCOME and not is_echoed
            if is_open or (demand in (Demand.ANEW, Demand.RESUMED) and is_second):
                self.receiver.until(partial(self.receiver.is_settled, cell), f"not settled: {cell}")
        self.sender.fence()
        self.receiver.fence()

    def outcome(self, cell: Cell) -> DeliveryState | None:
        """Gives what the sender must hear in the end; None: nothing."""
        if cell.row == "absent" or self.is_held(cell):
            return None
        if cell.row in DECIDED:
            return DECIDED[cell.row]
        if is_decided(cell.column):
            return cell.column  # type: ignore[return-value]  # an outcome is no text
        if self.demand(cell) in (Demand.ANEW, Demand.RESUMED):
            return OUTCOMES[0]
        return MODIFIED  # it may not have arrived, and cannot be sent once more
