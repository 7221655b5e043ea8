"""Does work that comes in steps without holding up the other tasks."""

from collections.abc import Generator

import trio

from router.model.steps import Result, Steps


async def at_leisure(generator: Generator[None, None, Result]) -> Result:
    """Lets other tasks run after each step, and returns the result."""
    steps = Steps(generator)
    for _ in steps:
        await trio.lowlevel.checkpoint()
    return steps.result
