"""When a worker gives memory back to the system."""

import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from router.service.relief import LOOK_SECONDS, LOOKS, relieve


@pytest.mark.parametrize(
    ("mebioctets", "looks"),
    [
        ([300] * 50, []),  # in use all the time
        ([300, *[240] * 50], []),  # too little has gone
        ([300, *[100] * 50], [11]),
        ([300, *[100] * 9, 300, *[100] * 50], [21]),  # it came back at first
        ([300, *[100] * 20, 300, *[200] * 50], [11, 32]),
        ([100, 0, 100, 0] * 12, []),  # it comes and goes
    ],
)
async def test_memory_is_given_back_once_after_each_peak(
    mebioctets: list[int], looks: list[int], autojump_clock: MockClock
) -> None:
    began, given_back = trio.current_time(), []
    measured = iter(mebioctets)

    def in_use() -> int:
        return next(measured) << 20

    def give_back() -> None:
        given_back.append(round((trio.current_time() - began) / LOOK_SECONDS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(relieve, in_use, give_back)
        await trio.sleep(LOOK_SECONDS * (len(mebioctets) + 0.5))
        nursery.cancel_scope.cancel()
    assert len(mebioctets) > LOOKS
    assert given_back == looks


HOLES = """
import sys
from router.service.garbage import resident_octets
from router.service.relief import trim
ballast = bytes(30 << 20)
del ballast  # what is smaller than the largest that was freed comes from the heap from now on
kept = [b"x" * 100_000 for _ in range(2000)]
del kept[1::2]  # every other one, so that the rest holds the heap's end
before = resident_octets()
trim()
print(before - resident_octets() > 60 << 20)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux does it")
def test_what_is_free_between_what_is_in_use_goes_back_to_the_system() -> None:
    command = [sys.executable, "-c", HOLES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
