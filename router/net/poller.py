"""Reports ready sockets to the data plane, without a Trio task for each of them.

Theory of operation. The data plane alternates ``poll`` (never waits) and, when that finds
nothing, ``wait`` (returns once something may be ready). Readiness is level-triggered: a socket is
named again in each poll for as long as what it is watched for holds. Two pollers do the same:

- ``EpollPoller`` keeps an epoll descriptor of its own and lets Trio wait for *that*: one Trio
  wake-up for any number of sockets, and no task, no scope and some 0.4 KiB less than a task per
  socket.
- ``TaskPoller`` spends a Trio task on each socket. It works wherever Trio does.

A wait in Trio costs 10 to 15 us beside the system's, which is more than most messages do. So the
``EpollPoller`` waits in Trio's stead while no other task has anything to do: it waits for its own
descriptor and for Trio's, until Trio's next deadline (``Bystanders``). If anything comes up that
is not its own, it goes back to Trio, which finds it there.
"""

import contextlib
import select
import sys
from typing import Any, Final
from typing import Protocol as Interface

import attrs
import trio

READABLE = 1
"""Octets, the end of the stream or an error can be read; the value of EPOLLIN."""

WRITABLE = 4
"""Octets can be written; the value of EPOLLOUT."""

ENDED = 0x2000
"""EPOLLRDHUP: the peer has ended its stream; what it sent before may be unread. ``TaskPoller`` does
not report it."""

BROKEN = 24
"""EPOLLERR and EPOLLHUP, which are reported unasked: reading tells more."""


class Poller(Interface):
    """Watches sockets by their descriptors."""

    def add(self, descriptor: int, interest: int) -> None:
        """Begins to watch; ``interest`` is a union of READABLE, WRITABLE and ENDED."""

    def change(self, descriptor: int, interest: int) -> None:
        """Watches for something else; 0 watches for nothing but breakage."""

    def remove(self, descriptor: int) -> None:
        """Stops watching; to be called before the descriptor is closed."""

    def poll(self) -> list[tuple[int, int]]:
        """Returns (descriptor, readiness) of the sockets that are ready, without waiting."""

    async def wait(self) -> None:
        """Returns when ``poll`` is worth another call, or ``interrupt`` was called meanwhile."""

    def interrupt(self) -> None:
        """Has the task that waits go on."""

    def is_alone(self) -> bool:
        """Returns whether no other task has anything to do: a checkpoint would be for nothing."""

    def idle_seconds(self) -> float:
        """Returns how long other tasks have nothing to do unless something comes for them."""

    @property
    def others(self) -> int:
        """A descriptor that is readable when something has come for other tasks; -1: none is."""

    @property
    def descriptor(self) -> int | None:
        """The epoll descriptor that watches the sockets, for use instead of ``poll``."""

    def close(self) -> None:
        """Releases the poller's descriptors; no socket may be watched any more."""


class Bystanders(trio.abc.Instrument):
    """The other tasks of a Trio run, as one of its tasks sees them.

    Trio has no public name for what they wait for. What is used of its insides is looked for once
    (``find``); where it is missing, all waits are Trio's.

    Attributes:
        descriptor: readable when something has come that a task waits for in Trio.

    Trio runs tasks in batches: all that are runnable when a wait of its own has ended. Whether one
    runs alone is known from their number then, unless a deadline has passed since.
    """

    def __init__(self, context: Any, own: int) -> None:
        runner = context.runner
        theirs = runner.io_manager._epoll.fileno()
        self._context = context
        self._runner = runner
        self.descriptor = theirs
        self._own = own
        self._batch = 0
        self._batch_until = 0.0
        self._theirs = select.poll()
        self._theirs.register(theirs, select.POLLIN)
        self._both = select.poll()
        self._both.register(own, select.POLLIN)
        self._both.register(theirs, select.POLLIN)

    @classmethod
    def find(cls, own: int) -> "Bystanders | None":
        """Returns those of the present task; None: this Trio is another, or its clock is no clock.

        Args:
            own: the descriptor that the task waits for.
        """
        with contextlib.suppress(ImportError, AttributeError):
            from trio._core import _run  # noqa: PLC0415  there may be none

            context: Any = _run.GLOBAL_RUN_CONTEXT
            found = cls(context, own)
            found.after_io_wait(0.0)
            found.is_cancelled()
            if found.idle_seconds() >= 0 and type(context.runner.clock) is _run.SystemClock:
                trio.lowlevel.add_instrument(found)
                return found
        return None

    def after_io_wait(self, timeout: float) -> None:
        """Records the tasks that will run, and until when no deadline adds others."""
        self._batch = len(self._runner.runq)
        self._batch_until = self._runner.deadlines.next_deadline()

    def idle_seconds(self) -> float:
        """Returns how long none of them has anything to do if nothing comes; 0: one has now."""
        runner = self._runner
        now: float = runner.clock.current_time()
        if self._batch != 1 or now >= self._batch_until:
            return 0.0
        if runner.runq or runner.waiting_for_idle or self.is_cancelled():
            return 0.0
        deadline: float = runner.deadlines.next_deadline()
        return max(0.0, deadline - now)

    def is_cancelled(self) -> bool:
        """Returns whether the present task's next checkpoint raises; asking Trio costs 16 calls."""
        cancelled: bool = self._context.task._cancel_status.effectively_cancelled
        return cancelled

    def are_idle(self) -> bool:
        """Returns whether none of them has anything to do."""
        return self.idle_seconds() > 0 and not self._theirs.poll(0)

    def wait(self) -> bool:
        """Waits while none of them has anything to do; returns whether only ``own`` is ready."""
        seconds = self.idle_seconds()
        if not seconds:
            return False
        ready = self._both.poll(min(seconds, _LONGEST_SECONDS) * 1000)
        return len(ready) == 1 and ready[0][0] == self._own

    def leave(self) -> None:
        """Observes the run no more."""
        trio.lowlevel.remove_instrument(self)


_LONGEST_SECONDS: Final = 3600.0
"""The system cannot wait for ever."""


@attrs.define(eq=False)
class EpollPoller:
    """An epoll descriptor that Trio waits for (Linux)."""

    _epoll: "select.epoll" = attrs.field(factory=select.epoll, init=False)
    _others: Bystanders | None = attrs.field(init=False)

    @_others.default
    def _find_others(self) -> Bystanders | None:
        return Bystanders.find(self._epoll.fileno())

    def add(self, descriptor: int, interest: int) -> None:
        """Registers with the epoll descriptor, level-triggered."""
        self._epoll.register(descriptor, interest)

    def change(self, descriptor: int, interest: int) -> None:
        """Modifies the registration."""
        self._epoll.modify(descriptor, interest)

    def remove(self, descriptor: int) -> None:
        """Ends the registration."""
        self._epoll.unregister(descriptor)

    def poll(self) -> list[tuple[int, int]]:
        """Asks the kernel, once."""
        return self._epoll.poll(0)

    @property
    def descriptor(self) -> int:
        """The epoll descriptor."""
        return self._epoll.fileno()

    async def wait(self) -> None:
        """Waits until the epoll descriptor itself turns readable; a scope would cost as much."""
        if self._others is not None and self._others.wait():
            return
        try:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        except trio.ClosedResourceError:
            return  # interrupted

    def interrupt(self) -> None:
        """Ends the wait as if the descriptor were about to be closed."""
        trio.lowlevel.notify_closing(self._epoll.fileno())

    def is_alone(self) -> bool:
        """Asks Trio's insides."""
        return self._others is not None and self._others.are_idle()

    def idle_seconds(self) -> float:
        """Asks Trio's insides."""
        return 0.0 if self._others is None else self._others.idle_seconds()

    @property
    def others(self) -> int:
        """Trio's epoll descriptor."""
        return -1 if self._others is None else self._others.descriptor

    def close(self) -> None:
        """Closes the epoll descriptor."""
        if self._others is not None:
            self._others.leave()
            self._others = None
        self._epoll.close()


@attrs.define(eq=False)
class _Watch:
    """One socket of a ``TaskPoller``: the scopes of the tasks that wait, by what they wait for."""

    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)


@attrs.define(eq=False)
class TaskPoller:
    """A plain Trio task for each socket and direction.

    Attributes:
        nursery: where the tasks live; it must outlast the poller.
    """

    nursery: trio.Nursery
    _watches: dict[int, _Watch] = attrs.field(factory=dict, init=False)
    _ready: dict[int, int] = attrs.field(factory=dict, init=False)
    _something: trio.Event = attrs.field(factory=trio.Event, init=False)
    _taken: trio.Event = attrs.field(factory=trio.Event, init=False)

    def add(self, descriptor: int, interest: int) -> None:
        """Starts the tasks that ``interest`` asks for."""
        self._watches[descriptor] = _Watch()
        self.change(descriptor, interest)

    def change(self, descriptor: int, interest: int) -> None:
        """Starts and cancels tasks until they match ``interest``."""
        watch = self._watches[descriptor]
        if descriptor in self._ready:
            self._ready[descriptor] &= interest
        for direction in (READABLE, WRITABLE):
            scope = watch.scopes.get(direction)
            if interest & direction and scope is None:
                scope = watch.scopes[direction] = trio.CancelScope()
                self.nursery.start_soon(self._watch, descriptor, direction, scope)
            elif not interest & direction and scope is not None:
                del watch.scopes[direction]
                scope.cancel()

    def remove(self, descriptor: int) -> None:
        """Cancels the socket's tasks."""
        self.change(descriptor, 0)
        del self._watches[descriptor]
        self._ready.pop(descriptor, None)
        trio.lowlevel.notify_closing(descriptor)

    def poll(self) -> list[tuple[int, int]]:
        """Returns the readiness that the tasks have recorded, and lets them wait again."""
        ready = [each for each in self._ready.items() if each[1]]
        self._ready.clear()
        self._something = trio.Event()
        taken, self._taken = self._taken, trio.Event()
        taken.set()
        return ready

    def interrupt(self) -> None:
        """Ends the wait as if a task had recorded something."""
        self._something.set()

    def is_alone(self) -> bool:
        """There are always its own tasks."""
        return False

    def idle_seconds(self) -> float:
        """There are always its own tasks."""
        return 0.0

    @property
    def others(self) -> int:
        """There is none."""
        return -1

    @property
    def descriptor(self) -> None:
        """There is none."""
        return None

    async def wait(self) -> None:
        """Waits until a task has noted something."""
        await self._something.wait()

    def close(self) -> None:
        """Cancels all tasks."""
        for descriptor in tuple(self._watches):
            self.remove(descriptor)

    async def _watch(self, descriptor: int, direction: int, scope: trio.CancelScope) -> None:
        wait = trio.lowlevel.wait_readable if direction == READABLE else trio.lowlevel.wait_writable
        with scope:
            while not scope.cancel_called:  # or the descriptor may be another socket's by now
                try:
                    await wait(descriptor)
                except trio.ClosedResourceError:
                    return
                self._ready[descriptor] = self._ready.get(descriptor, 0) | direction
                self._something.set()
                await self._taken.wait()


def default_poller(nursery: trio.Nursery) -> Poller:
    """Makes the best poller that this system has."""
    return EpollPoller() if sys.platform == "linux" else TaskPoller(nursery)
