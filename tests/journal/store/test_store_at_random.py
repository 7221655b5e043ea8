"""Whatever is stored, read, forwarded and given back, and wherever a crash or fault intervenes:

NoLoss: what was durable and is not gone is shown.   NoDouble: what is durably gone is not shown.
FifoPerQueue: what a queue shows is in the order of its arrival, but for what was given back.
CountsAgree: the counts are those of what is shown.
"""

import errno
import random

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from router.journal.store.queues import Claim
from tests.support.journal import SECOND_NS, CrashError, FakeDisk, Fault, HeldFlusher
from tests.support.stored import ROUTE, Custodian, claims, numbers, queue

QUEUES = [("a", 4), ("a", 9), ("b", 4)]
STEPS = ["put", "put", "put", "commit", "flush", "read", "forward", "back", "free", "lose"]


@attrs.define(eq=False)
class Model:
    """What a store must show.

    Attributes:
        written: messages handed in and not known to be durable.
        durable: those known to be, by number: their queue.
        going: forwarded, and not known to be durably gone.
        gone: durably gone.
        records: the records by which a message is stored, or gone: their sequence numbers.
    """

    written: dict[int, int] = attrs.field(factory=dict)
    durable: dict[int, int] = attrs.field(factory=dict)
    going: set[int] = attrs.field(factory=set)
    gone: set[int] = attrs.field(factory=set)
    records: dict[int, int] = attrs.field(factory=dict)

    def committed(self, sequence: int) -> None:
        """Everything up to a record is durable."""
        for number in [each for each in self.written if self.records[each] <= sequence]:
            self.durable[number] = self.written.pop(number)
        gone = {number for number in self.going if self.records[number] <= sequence}
        self.gone |= gone
        self.going -= gone

    def check(self, shown: dict[int, list[int]]) -> None:
        """Compares with what a new reader is shown, by queue."""
        everything = [number for numbers in shown.values() for number in numbers]
        assert len(everything) == len(set(everything))
        assert not set(everything) & self.gone
        must = set(self.durable) - self.gone - self.going
        assert must <= set(everything)
        for of, seen in shown.items():
            assert seen == sorted(seen)
            may = {**self.durable, **self.written}
            assert all(may[number] == of for number in seen)


def show_all(custodian: Custodian) -> dict[int, list[int]]:
    """Gives what a new reader is shown, and takes it."""
    shown = {}
    for address, priority in QUEUES:
        of = queue(address, priority)
        shown[of] = numbers(custodian.read(of=of))
    return shown


def counted(custodian: Custodian, shown: dict[int, list[int]]) -> None:
    """Compares the counts with what is shown."""
    holdings = custodian.store.holdings
    for of, seen in shown.items():
        known = holdings.queues.get(of)  # type: ignore[call-overload]
        assert (known.messages if known else 0) == len(seen)
    of_route = holdings.routes.get(ROUTE)
    assert (of_route.messages if of_route else 0) == sum(map(len, shown.values()))


class Run:
    """Random steps over lives."""

    def __init__(
        self, draw: random.Random, segment_octets: int, *, is_failing: bool, is_apart: bool
    ) -> None:
        self.draw = draw
        self.segment_octets = segment_octets
        self.is_failing = is_failing
        self.is_apart = is_apart
        self.flusher: HeldFlusher | None = None
        self.disk = FakeDisk()
        self.model = Model()
        self.number = 0
        self.held: list[tuple[int, Claim]] = []

    def live(self, life: int, crash_at: int) -> None:
        """Lives until a crash or the end of the steps, then crashes."""
        self.held.clear()
        self.flusher = HeldFlusher() if self.is_apart else None
        custodian = Custodian(
            self.disk, life=life, segment_octets=self.segment_octets, flusher=self.flusher
        )
        custodian.now_ns += life * 3600 * SECOND_NS
        try:
            custodian.open()
            self._check(custodian)
            if self.is_failing:
                self._plan_faults()
            self.disk.crash_at = self.disk.operations + crash_at
            for _ in range(60):
                self._step(custodian)
            self._change_readers(custodian)
        except CrashError:
            pass
        self.disk = self.disk.crashed(self.draw)

    def _plan_faults(self) -> None:
        operation = self.draw.choice(["write", "flush", "create", "sync_directory", "remove"])
        code = self.draw.choice([errno.EIO, errno.ENOSPC])
        self.disk.faults.append(Fault(operation, code, after=self.draw.randrange(9), times=2))
        self.disk.failed_flush_keeps = self.draw.random() < 0.5

    def _check(self, custodian: Custodian) -> None:
        """A new life: what may or may not have become durable is known now."""
        assert custodian.store.losses == []
        shown = show_all(custodian)
        self.model.check(shown)
        counted(custodian, shown)
        custodian.store.give_back_all(ROUTE)
        seen = {number: of for of, numbers_ in shown.items() for number in numbers_}
        self.model.durable = seen
        self.model.gone |= set(self.model.going) - set(seen)
        self.model.going.clear()
        self.model.written.clear()

    def _change_readers(self, custodian: Custodian) -> None:
        """A new reader is shown all that is durable, and nothing that the last one forwarded."""
        custodian.append()
        custodian.store.give_back_all(ROUTE)
        shown = show_all(custodian)
        everything = {number for numbers_ in shown.values() for number in numbers_}
        assert everything == set(self.model.durable) - self.model.gone - self.model.going
        assert all(seen == sorted(seen) for seen in shown.values())
        custodian.store.give_back_all(ROUTE)
        self.held.clear()

    def _committed(self, custodian: Custodian) -> None:
        self.model.committed(custodian.log.durable[custodian.writer_origin] - 1)

    def _step(self, custodian: Custodian) -> None:
        match self.draw.choice(STEPS):
            case "lose":
                self._change_readers(custodian)
            case "put":
                address, priority = self.draw.choice(QUEUES)
                octets = self.draw.choice([10, 10, 900])
                custodian.put(self.number, address=address, priority=priority, octets=octets)
                self.model.written[self.number] = queue(address, priority)
                self.model.records[self.number] = custodian.writer.next_sequence - 1
                self.number += 1
            case "commit":
                custodian.now_ns += SECOND_NS
                custodian.commit()
                self._committed(custodian)
            case "flush" if self.flusher is not None and self.flusher.is_busy():
                self.flusher.is_held = False
                custodian.log.commit(custodian.now_ns)
                self._committed(custodian)
            case "read":
                take = self.draw.choice([custodian.read, custodian.refer])
                read = take(self.draw.randint(1, 8), of=queue(*self.draw.choice(QUEUES)))
                assert numbers(read) == sorted(numbers(read))
                known = self.model.gone | self.model.going | {number for number, _ in self.held}
                assert not set(numbers(read)) & known
                self.held += zip(numbers(read), claims(read), strict=True)
            case "forward" if self.held:
                number, claim = self.held.pop(self.draw.randrange(len(self.held)))
                custodian.forward([claim])
                self.model.going.add(number)
                self.model.records[number] = custodian.writer.next_sequence - 1
            case "back" if self.held:
                _, claim = self.held.pop(self.draw.randrange(len(self.held)))
                custodian.store.give_back(claim)
            case "free":
                try:
                    custodian.store.remove_done()
                except OSError:
                    return
            case _:
                pass


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    crashes=st.lists(st.integers(0, 90), min_size=1, max_size=4),
    segment_octets=st.sampled_from([1500, 4000, 1 << 20]),
    is_failing=st.booleans(),
    is_apart=st.booleans(),
)
def test_nothing_is_lost_doubled_or_reordered_through_any_crash(
    seed: int, crashes: list[int], segment_octets: int, *, is_failing: bool, is_apart: bool
) -> None:
    """NoLoss, NoDouble, FifoPerQueue, CountsAgree."""
    run = Run(random.Random(seed), segment_octets, is_failing=is_failing, is_apart=is_apart)
    for life, crash_at in enumerate(crashes):
        run.live(life, crash_at)
    custodian = Custodian(run.disk, life=len(crashes), segment_octets=segment_octets)
    custodian.open()
    shown = show_all(custodian)
    run.model.check(shown)
    counted(custodian, shown)
