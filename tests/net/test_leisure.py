"""Work in steps: all of it is done, its result comes back, and other tasks run in between."""

from collections.abc import Generator

import pytest
import trio

from router.model.steps import at_once
from router.net.leisure import at_leisure


def counted(seen: list[int], count: int) -> Generator[None, None, int]:
    for number in range(count):
        seen.append(number)
        yield
    return sum(seen)


def test_all_steps_are_done_at_once() -> None:
    seen: list[int] = []
    assert at_once(counted(seen, 3)) == 3
    assert seen == [0, 1, 2]


def test_work_without_a_step_has_its_result_too() -> None:
    assert at_once(counted([], 0)) == 0


async def test_other_tasks_run_between_two_steps() -> None:
    seen: list[int] = []
    between: list[int] = []

    async def look() -> None:
        while len(seen) < 50:
            between.append(len(seen))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        assert await at_leisure(counted(seen, 50)) == sum(range(50))
    assert len(set(between)) > 10


def broken() -> Generator[None, None, None]:
    yield
    raise ValueError("the second step")


async def test_what_a_step_raises_comes_out() -> None:
    with pytest.raises(ValueError, match="second"):
        at_once(broken())
    with pytest.raises(ValueError, match="second"):
        await at_leisure(broken())
