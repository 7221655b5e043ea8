"""What both pollers promise the data plane: readiness, and a wait that ends when it must."""

import math
import socket
import threading
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from router.net.poller import READABLE, Bystanders, EpollPoller, Poller, TaskPoller

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


async def test_other_tasks_go_on_while_the_poller_waits(make_poller: MakePoller) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            poller = make_poller(nursery)
            rounds = [0, 0, 0]

            async def wait() -> None:
                while True:
                    await poller.wait()
                    poller.poll()

            async def sleep() -> None:
                for _ in range(20):
                    await trio.sleep(0.001)
                    rounds[0] += 1

            async def use_threads() -> None:
                for _ in range(20):
                    rounds[1] += await trio.to_thread.run_sync(lambda: 1)

            async def talk() -> None:
                here, there = trio.socket.socketpair()
                with here, there:
                    for _ in range(20):
                        await here.send(b"x")
                        await there.recv(1)
                        await trio.lowlevel.checkpoint()
                        rounds[2] += 1

            nursery.start_soon(wait)
            async with trio.open_nursery() as others:
                for each in (sleep, use_threads, talk):
                    others.start_soon(each)
            assert rounds == [20, 20, 20]
            nursery.cancel_scope.cancel()
        poller.close()


async def test_a_wait_whose_scope_is_cancelled_or_over_ends(make_poller: MakePoller) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            poller = make_poller(nursery)
            with trio.CancelScope() as scope:
                scope.cancel()
                await poller.wait()
            with trio.move_on_after(0.01) as scope:
                await poller.wait()
            assert scope.cancelled_caught
            poller.close()
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class Waits(trio.abc.Instrument):
    """Counts the waits of Trio."""

    count: int = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_while_only_sockets_of_the_poller_are_ready_trio_is_not_asked() -> None:
    poller, waits = EpollPoller(), Waits()
    near, far = socket.socketpair()

    def echo() -> None:
        while octets := far.recv(100):
            far.send(octets)

    thread = threading.Thread(target=echo)
    thread.start()
    with trio.fail_after(60), near, far:
        near.setblocking(False)
        poller.add(near.fileno(), READABLE)
        await trio.lowlevel.checkpoint()
        trio.lowlevel.add_instrument(waits)
        for _ in range(100):
            near.send(b"x")
            await poller.wait()
            assert poller.poll() == [(near.fileno(), READABLE)]
            near.recv(100)
        assert waits.count < 50
        assert poller.is_alone()
        trio.lowlevel.remove_instrument(waits)
        near.shutdown(socket.SHUT_WR)
        thread.join()
    poller.close()


async def test_this_trio_shows_what_its_tasks_wait_for() -> None:
    found = Bystanders.find(0)
    assert found is not None
    await trio.lowlevel.checkpoint()
    assert found.idle_seconds() > 0
    found.leave()


async def test_who_waits_by_a_clock_of_a_test_waits_in_trio(
    autojump_clock: trio.testing.MockClock,
) -> None:
    poller = EpollPoller()
    with trio.move_on_after(1000):
        await poller.wait()
    assert not poller.is_alone()
    assert math.isclose(trio.current_time(), 1000)
    poller.close()
