"""How memory is collected in a worker."""

import contextlib
import gc
import mmap
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from router.at_rest import at_rest
from router.service import garbage
from router.service.config.load import load


class Knot:
    """Something that only the cyclic collector can free."""

    def __init__(self) -> None:
        self.itself = self


def test_what_stands_after_start_up_is_out_of_the_collectors_sight() -> None:
    before = gc.get_threshold()
    try:
        garbage.settle()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == garbage.THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_the_process_knows_its_own_size() -> None:
    before = garbage.resident_octets()
    with mmap.mmap(-1, 64 << 20) as ballast:  # new pages: a large process has old ones to spare
        ballast.write(b"x" * len(ballast))
        assert 60 << 20 < garbage.resident_octets() - before < 160 << 20


@pytest.mark.parametrize(
    ("sizes", "is_swept"),
    [
        ([100, 100, 115], False),  # MiB: less than a step
        ([100, 100, 126], True),  # a quarter
        ([20, 20, 30], False),  # more than a quarter, less than 16 MiB
        ([20, 20, 37], True),
        ([100, 80, 100], False),
    ],
)
async def test_everything_is_walked_when_the_process_has_grown_by_a_step(
    sizes: list[int], is_swept: bool, autojump_clock: MockClock
) -> None:
    gc.collect()
    gc.disable()
    try:
        knot = Knot()
        garbage_left = weakref.ref(knot)
        del knot
        measured = iter(sizes)

        def measure() -> int:
            return next(measured, sizes[-1]) << 20

        async with trio.open_nursery() as nursery:
            nursery.start_soon(garbage.sweep, measure)
            await trio.sleep(garbage.LOOK_SECONDS * 5.5)
            nursery.cancel_scope.cancel()
        assert (garbage_left() is None) is is_swept
    finally:
        gc.enable()


async def test_a_large_configuration_is_not_walked_when_it_replaces_another(
    autojump_clock: MockClock,
) -> None:
    sizes = iter([100, 100, 200, 300, 300, 300])
    walks: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            walks.append(info["generation"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(garbage.sweep, lambda: next(sizes, 300) << 20)
        await trio.sleep(garbage.LOOK_SECONDS * 1.5)
        frozen = gc.get_freeze_count()
        gc.callbacks.append(note)
        try:
            with garbage.exchange(garbage.LARGE_OCTETS):
                assert walks == [2]
                made = [[number] for number in range(20_000)]
                await trio.sleep(garbage.LOOK_SECONDS * 2)
            await trio.sleep(garbage.LOOK_SECONDS * 2)
            assert walks.count(2) == 1
            assert gc.get_freeze_count() - frozen >= len(made)
            nursery.cancel_scope.cancel()
        finally:
            gc.callbacks.remove(note)
            gc.unfreeze()


@pytest.mark.parametrize("octets", [garbage.LARGE_OCTETS - 1, garbage.LARGE_OCTETS])
def test_a_small_configuration_and_one_that_fails_are_not_frozen(octets: int) -> None:
    frozen = gc.get_freeze_count()
    with contextlib.suppress(ValueError), garbage.exchange(octets):
        if octets >= garbage.LARGE_OCTETS:
            raise ValueError
    assert gc.get_freeze_count() == frozen
    assert gc.isenabled()


def test_nothing_is_collected_while_a_configuration_is_read(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("routes:\n" + "".join(f"  - address: r{number}\n" for number in range(2000)))
    walks: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            walks.append(phase)

    gc.callbacks.append(note)
    try:
        load(file)
        assert len(walks) <= 1  # when it is over
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)


COUNTING = """
import gc
walks = []
gc.callbacks.append(lambda phase, info: walks.append(phase))
{program}
print(len(walks))
"""
WORKER = """
import router.service.worker_program
from router.wire.protocols import load_engines
load_engines()
"""
COMMAND = """
from router.cli.main import main
main.get_command(None, "run")
"""


@pytest.mark.processes
@pytest.mark.parametrize("program", [WORKER, COMMAND], ids=["worker", "command"])
def test_imports_are_not_held_up_by_the_collector(program: str) -> None:
    command = [sys.executable, "-c", COUNTING.format(program=program)]
    walks = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert walks < 100  # without a rest: 400 and 600


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
