"""Workers as one router, over real sockets: what must hold whichever worker a client gets."""

import contextlib
from functools import partial
from pathlib import Path

from tests.support.clients import Sender, receiving, sending
from tests.support.running import running_router
from tests.support.workers import address_of

MULTICAST = """
router: {id: under-test, workers: 3, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "all.#", distribution: multicast}]
"""

ROUNDS = 15


def _has_accepted(sender: Sender, count: int) -> bool:
    return sender.outcomes["Accepted"] == count


async def test_a_multicast_misses_no_receiver_that_has_been_answered(tmp_path: Path) -> None:
    """Each round is a race of its own: an address that no worker has heard of before."""
    with running_router(MULTICAST, tmp_path) as router:
        address = address_of(router)
        for number in range(ROUNDS):
            news = f"all.{number}"
            async with contextlib.AsyncExitStack() as stack:
                early = await stack.enter_async_context(receiving(address, news))
                sender = await stack.enter_async_context(sending(address, news, [b"a", b"b"]))
                late = [await stack.enter_async_context(receiving(address, news)) for _ in "12"]
                await sender.wait_until(partial(_has_accepted, sender, 2))
                assert early.bodies == [b"a", b"b"]
                last = await stack.enter_async_context(sending(address, news, [b"c"]))
                await last.wait_until(partial(_has_accepted, last, 1))
                for receiver in (early, *late):
                    assert receiver.bodies[-1:] == [b"c"], number
