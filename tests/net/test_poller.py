"""What both pollers promise the data plane: readiness, and a wait that ends when it must."""

import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing

from router.net.poller import READABLE, EpollPoller, Poller, TaskPoller

MakePoller = Callable[[trio.Nursery], Poller]


@pytest.fixture(params=["epoll", "task"])
def make_poller(request: pytest.FixtureRequest) -> MakePoller:
    return TaskPoller if request.param == "task" else lambda _: EpollPoller()


async def test_a_wait_that_is_interrupted_ends_though_no_socket_is_ready(
    make_poller: MakePoller,
) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        async with trio.open_nursery() as nursery:
            poller = make_poller(nursery)
            poller.add(near.fileno(), READABLE)
            ended = trio.Event()

            async def wait() -> None:
                await poller.wait()
                ended.set()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert not ended.is_set()
            poller.interrupt()
            with trio.fail_after(60):
                await ended.wait()
            assert not poller.poll()
            far.send(b"x")
            with trio.fail_after(60):
                await poller.wait()  # the poller serves on
            assert [each for each, _ in poller.poll()] == [near.fileno()]
            poller.close()
            nursery.cancel_scope.cancel()
