"""Workers as one router, over real sockets: what must hold whichever worker a client gets."""

import contextlib
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.support.clients import Sender, receiving, sending
from tests.support.running import running_router
from tests.support.workers import address_of, lines

pytestmark = pytest.mark.long

MULTICAST = """
router: {id: under-test, workers: 3, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "all.#", distribution: multicast}]
"""

ROUNDS = 15


RELOADED = """
router: {id: under-test, workers: 2, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes:
  - address: "q.#"
"""


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


async def test_a_reload_of_a_thousand_routes_touches_no_traffic(tmp_path: Path) -> None:
    more = "".join(f"  - address: new.{number}.#\n" for number in range(1000))
    bodies = [b"%d" % number for number in range(20_000)]
    with running_router(RELOADED, tmp_path) as router:
        address = address_of(router)
        async with (
            receiving(address, "q.a") as sink,
            sending(address, "q.a", bodies) as near,
            sending(address, "q.b", bodies) as far,
            receiving(address, "q.b") as other,
        ):
            for text in (RELOADED + more, RELOADED):
                count = len(lines(router, "config.reloaded"))
                (tmp_path / "router.yaml").write_text(text)
                router.process.send_signal(signal.SIGHUP)
                with trio.fail_after(120):
                    while len(lines(router, "config.reloaded")) == count:
                        await trio.sleep(0.05)
            for sender in (near, far):
                await sender.wait_until(partial(_has_accepted, sender, len(bodies)))
            assert sink.bodies == bodies
            assert other.bodies == bodies
            assert not lines(router, "link.detached")


@pytest.mark.parametrize("limit", ["connections", "connections_per_source"])
async def test_connections_are_limited_over_all_workers(tmp_path: Path, limit: str) -> None:
    with running_router(RELOADED + f"limits: {{{limit}: 3}}\n", tmp_path) as router:
        address = address_of(router)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(receiving(address, "q.a"))
            refused = await stack.enter_async_context(sending(address, "q.a", []))
            await refused.wait_until(lambda: refused.closed is not None)
        assert refused.closed is not None
        assert f"limits.{limit}: 3" in str(refused.closed.condition)
        with trio.fail_after(120):
            is_refused = True
            while is_refused:  # until it is known that the others have gone
                async with receiving(address, "q.a") as again:
                    is_refused = again.closed is not None
