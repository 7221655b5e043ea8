"""Listening sockets, and the accepting of connections on them.

Theory of operation. ``Listeners`` holds the open listeners, by name. Each listening socket has one
task that accepts all waiting connections and hands each accepted socket over, with the name of
the listener, to ``admit``, which may serve it in this process or pass it to
another. So a reload only opens new listeners and closes removed ones, and established connections
stay open.

When the process has no descriptor left, accepting pauses for a moment: the kernel's queue holds the
waiting connections, without a busy loop.
"""

import errno
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.place import BindAddress
from router.net.sockets import (
    close_listening,
    describe,
    describe_refusal,
    is_bound_to,
    open_listening,
    try_listening,
)

PAUSE_SECONDS: Final = 0.1
"""Pause in accepting when the process is out of descriptors or memory."""

_ACCEPT_MOST: Final = 16
"""Accepted in a row before other tasks run."""

_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))

Ready = Callable[[], Awaitable[None]]
"""Returns when there is time for newcomers."""

Admit = Callable[[socket.socket, str], None]
"""Takes over an accepted socket, with the name of its listener."""


class ListenError(OSError):
    """A listener's address cannot be had.

    Attributes:
        listener: its name.
    """

    def __init__(self, listener: str, cause: OSError) -> None:
        super().__init__(cause.errno, f"listener {listener}: {describe_refusal(cause)}")
        self.listener = listener


async def _always() -> None:
    """There is time."""


@attrs.define(eq=False)
class Listening:
    """One listener that is open.

    Attributes:
        address: what it was to bind.
        sockets: one for each address that its host's name has.
        is_inherited: they were open before.
    """

    address: BindAddress
    sockets: list[socket.socket]
    is_inherited: bool = False

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
        return [describe(each.getsockname()) for each in self.sockets]

    def close(self, *, is_shared: bool = False) -> None:
        """Listens no more; what another process has as well goes on."""
        for each in self.sockets:
            close_listening(each, is_shared=is_shared)


@attrs.define(eq=False)
class Listeners:
    """What is open.

    Attributes:
        admit: takes accepted sockets over.
        nursery: where the accepting tasks live.
        inherited: sockets that listen already; a listener whose address is theirs takes them.
        ready: awaited before accepting; meanwhile connections wait in the kernel's queue.
    """

    admit: Admit
    nursery: trio.Nursery
    inherited: list[socket.socket] = attrs.field(factory=list)
    ready: Ready = _always
    _open: dict[str, Listening] = attrs.field(factory=dict, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def addresses(self) -> list[str]:
        """What is listened on, with the ports that were given out for port 0."""
        return [each for listening in self._open.values() for each in listening.addresses]

    def addresses_of(self, name: str) -> list[str]:
        """Where one listener listens; nothing: it is closed."""
        listening = self._open.get(name)
        return [] if listening is None else listening.addresses

    async def configure(self, wanted: Mapping[str, BindAddress]) -> None:
        """Opens and closes sockets until the open ones are the wanted ones, keyed by name.

        What is new is opened before anything else changes, so a failure changes nothing.

        Raises:
            ListenError: an address cannot be had.
        """
        self.serve(wanted, await self.open(wanted))

    async def try_open(self, wanted: Mapping[str, BindAddress]) -> None:
        """Checks that ``open`` would succeed; opens nothing that anybody could connect to.

        Raises:
            ListenError: an address cannot be had.
        """
        for name, address in wanted.items():
            is_had = any(is_bound_to(each, address) for each in self.inherited)
            if is_had or self._is_open(name, address):
                continue
            try:
                await try_listening(address)
            except OSError as error:
                raise ListenError(name, error) from error

    async def open(self, wanted: Mapping[str, BindAddress]) -> dict[str, Listening]:
        """Opens the missing ones of ``wanted``; connections are accepted after ``serve``.

        Raises:
            ListenError: an address cannot be had.
        """
        opened: dict[str, Listening] = {}
        try:
            for name, address in wanted.items():
                if not self._is_open(name, address):
                    sockets = self._take_inherited(address)
                    opened[name] = (
                        Listening(address, sockets, is_inherited=True)
                        if sockets
                        else Listening(address, await _open(name, address))
                    )
        except OSError:
            self.abandon(opened)
            raise
        return opened

    @staticmethod
    def abandon(opened: Mapping[str, Listening]) -> None:
        """Closes opened sockets that are not to be served; inherited ones may go to others."""
        for listening in opened.values():
            listening.close(is_shared=listening.is_inherited)

    def serve(self, wanted: Mapping[str, BindAddress], opened: Mapping[str, Listening]) -> None:
        """Accepts on the opened sockets, and closes those not wanted any more."""
        for name in tuple(self._open):
            if name not in wanted or name in opened:
                self._close(name)
        for name, listening in opened.items():
            self._serve(name, listening)

    def _take_inherited(self, address: BindAddress) -> list[socket.socket]:
        taken = [each for each in self.inherited if is_bound_to(each, address)]
        for each in taken:
            self.inherited.remove(each)
        return taken

    def _is_open(self, name: str, address: BindAddress) -> bool:
        listening = self._open.get(name)
        return listening is not None and listening.address == address

    def close(self, *, is_shared: bool = False) -> None:
        """Stops accepting; ``is_shared``: another process goes on with the same sockets."""
        for name in tuple(self._open):
            self._close(name, is_shared=is_shared)

    def sockets(self) -> list[tuple[str, socket.socket]]:
        """Returns the open sockets, each with the name of its listener."""
        return [(name, sock) for name, each in self._open.items() for sock in each.sockets]

    def drop_inherited(self) -> None:
        """Closes inherited sockets that no listener has taken."""
        while self.inherited:
            self.inherited.pop().close()

    def _serve(self, name: str, listening: Listening) -> None:
        self._open[name] = listening
        for each in listening.sockets:
            self.nursery.start_soon(self._accept, each, name)
        self._log.info("listener.opened", listener=name, addresses=listening.addresses)

    def _close(self, name: str, *, is_shared: bool = False) -> None:
        self._open.pop(name).close(is_shared=is_shared)
        self._log.info("listener.closed", listener=name)

    async def _accept(self, sock: socket.socket, name: str) -> None:
        while sock.fileno() >= 0:  # closed while we paused
            try:
                await trio.lowlevel.wait_readable(sock)
                await self.ready()
            except trio.ClosedResourceError:
                return
            for _ in range(_ACCEPT_MOST):
                try:
                    accepted, _ = sock.accept()
                except (BlockingIOError, InterruptedError):
                    break
                except OSError as error:
                    await self._rest(error, name)
                    break
                self.admit(accepted, name)

    async def _rest(self, error: OSError, name: str) -> None:
        """Pauses if the process is exhausted; other errors are the one peer's that has left."""
        if error.errno in _EXHAUSTED:
            self._log.warning(
                "listener.paused",
                listener=name,
                reason=error.strerror,
                seconds=PAUSE_SECONDS,
            )
            await trio.sleep(PAUSE_SECONDS)


async def _open(name: str, address: BindAddress) -> list[socket.socket]:
    try:
        return await open_listening(address)
    except OSError as error:
        raise ListenError(name, error) from error
