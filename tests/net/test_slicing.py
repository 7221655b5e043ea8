"""How the input of connections is cut into slices, and what counts as talk."""

from typing import Any

import attrs
import pytest

from router.net.allowance import Allowance, Talk
from router.net.slicing import (
    LARGEST_SLICE_OCTETS,
    SHARE_SECONDS,
    SLICE_OCTETS,
    SLICE_SECONDS,
    Slicer,
)

DELIVERY_OCTETS = 10 * 1024
EACH_SECONDS = 40e-6
"""For any slice, whatever it holds; what an octet takes beside is not the point here."""


@attrs.define(eq=False)
class Engine:
    finished: bool = False


@attrs.define(eq=False)
class Fake:
    """A connection as far as a slicer knows it."""

    talk: Talk = attrs.field(factory=Talk)
    has_moved: bool = False
    slice_octets: int = SLICE_OCTETS
    brings_runs: bool = False
    failure: str | None = None
    engine: Engine = attrs.field(factory=Engine)


@attrs.define(eq=False)
class Worker:
    """Takes time for each slice; deliveries are complete after ``delivery_octets`` each.

    Attributes:
        away: seconds of ``now`` in which others had the core; ``pause``: of each slice.
    """

    now: float = 0.0
    away: float = 0.0
    pause: float = 0.0
    seconds: float = EACH_SECONDS
    moves: bool = True
    delivery_octets: int = DELIVERY_OCTETS
    slices: list[int] = attrs.field(factory=list)

    def clock(self) -> float:
        return self.now

    def busy_clock(self) -> float:
        return self.now - self.away

    def receive(self, connection: object, octets: bytes, now: float) -> int:
        before = sum(self.slices)
        self.slices.append(len(octets))
        self.now += self.seconds + self.pause
        self.away += self.pause
        after = before + len(octets)
        each = self.delivery_octets
        return (after // each - before // each) if self.moves else 0

    def touch(self, connection: object) -> None: ...


def slicer(worker: Any) -> Slicer:
    made = Slicer(worker, worker.clock, Allowance())
    made.busy_clock = worker.busy_clock
    return made


def test_a_process_of_ours_never_talks_however_few_octets_take_long() -> None:
    worker, connection = Worker(seconds=0.01, moves=False), Fake(brings_runs=True)
    made = slicer(worker)
    for _ in range(200):
        made.receive(connection, bytes(500))  # type: ignore[arg-type]
    assert not connection.talk.is_long
    assert not made.has_talkers


def test_payload_in_parts_of_a_slice_is_no_talk() -> None:
    worker, connection = Worker(), Fake()
    sliced: Any = slicer(worker)
    for _ in range(1000):
        sliced.receive(connection, bytes(DELIVERY_OCTETS))
        assert not connection.talk.is_long
    assert not sliced.is_behind(connection)


def test_time_in_which_others_had_the_core_is_no_talk() -> None:
    worker, connection = Worker(pause=0.02), Fake()
    sliced: Any = slicer(worker)
    for _ in range(10):
        sliced.receive(connection, bytes(SLICE_OCTETS))
    assert not connection.talk.is_long
    assert not sliced.allowance.is_empty


def test_slices_of_a_connection_that_moves_payload_begin_as_large_as_they_last_were() -> None:
    worker, connection = Worker(), Fake()
    sliced: Any = slicer(worker)
    for _ in range(10):
        sliced.receive(connection, bytes(DELIVERY_OCTETS))
    assert worker.slices[-3:] == [DELIVERY_OCTETS] * 3
    for _ in range(5):
        sliced.receive(connection, bytes(1 << 20))
    assert connection.slice_octets == LARGEST_SLICE_OCTETS


def test_the_next_slice_is_cut_to_what_its_time_allows() -> None:
    worker, connection = Worker(delivery_octets=100), Fake()
    sliced: Any = slicer(worker)
    for _ in range(5):
        sliced.receive(connection, bytes(1 << 20))
    assert connection.slice_octets == LARGEST_SLICE_OCTETS
    worker.seconds = 2 * SLICE_SECONDS
    sliced.receive(connection, bytes(LARGEST_SLICE_OCTETS))
    assert connection.slice_octets == LARGEST_SLICE_OCTETS // 2
    worker.seconds = 0.75 * SLICE_SECONDS
    sliced.receive(connection, bytes(LARGEST_SLICE_OCTETS // 2))
    assert connection.slice_octets == LARGEST_SLICE_OCTETS // 2


@pytest.mark.parametrize("seconds", [SHARE_SECONDS * 2, SHARE_SECONDS * 100])
def test_slices_begin_small_again_after_one_that_took_more_than_a_share(seconds: float) -> None:
    worker, connection = Worker(), Fake()
    sliced: Any = slicer(worker)
    for _ in range(10):
        sliced.receive(connection, bytes(DELIVERY_OCTETS))
    worker.seconds = seconds
    sliced.receive(connection, bytes(DELIVERY_OCTETS * 20))
    assert connection.slice_octets == SLICE_OCTETS


def test_slices_stay_long_while_others_have_the_core() -> None:
    worker, connection = Worker(pause=SHARE_SECONDS / 3), Fake()
    sliced: Any = slicer(worker)
    for _ in range(10):
        sliced.receive(connection, bytes(DELIVERY_OCTETS))
    assert worker.slices[-3:] == [DELIVERY_OCTETS] * 3


def test_slices_of_a_connection_that_moves_nothing_always_begin_small() -> None:
    worker, connection = Worker(moves=False, seconds=1e-6), Fake()
    sliced: Any = slicer(worker)
    for _ in range(10):
        sliced.receive(connection, bytes(DELIVERY_OCTETS))
        assert connection.slice_octets == SLICE_OCTETS
