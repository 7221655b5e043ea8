"""Replacement without a gap: a new process takes the listening sockets over from the old one.

Theory of operation. A router that runs listens on ``handover.sock`` in its state directory. Another
one that is started on the same directory connects there and asks; both then go through::

    new                                      old
     connects                          ───▶  sends each listening socket, with its listener's name,
                                             and goes on accepting
     opens what the old one did not have,
     accepts as well
     "ready"                           ───▶  stops accepting without closing what it shares,
                                             drains, and ends
     takes ``handover.sock`` over

A journal has one owner. Where there is one the new process says "ready" first and waits for the end
of the old one before it opens the journal and accepts; who dials meanwhile waits in the queue.

The kernel has one queue of connections for a listening socket, whoever holds it, so nobody who
dials is refused at any moment. If the new process ends before it is ready, the old one sees the
end of the stream and goes on as if nothing had been asked.

Another router, told by its container-id, is no successor: it gives back what it got, and does not
start. Two files of one folder have the same state directory if they do not say otherwise.

One packet (``SOCK_SEQPACKET``) a socket, as ``channel.send_socket`` writes it; one with the purpose
``{"end": true, "router": ID}`` and no meaning of its socket ends the list. The directory is only
its owner's to enter, which is what protects the sockets.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.errors import RouterError
from router.service.channel import receive_socket, send_socket

SOCKET_NAME: Final = "handover.sock"

ANSWER_SECONDS: Final = 5.0
"""Within which the old process has to hand its sockets over; it may be too busy dying."""

READY: Final = b"ready"

_CREDENTIALS: Final = struct.Struct("3i")
"""Of a peer (``SO_PEERCRED``): process, user, group."""

_ACCEPT_PAUSE_SECONDS: Final = 0.1


class OccupiedError(RouterError):
    """Another router runs on the state directory.

    Attributes:
        state: the directory.
        router: its container-id.
        process: its process id.
    """

    def __init__(self, state: str, router: str, process: int) -> None:
        self.state = state
        self.router = router
        self.process = process
        super().__init__(
            f"router.state: {state} is in use by the running router {router!r} (process"
            f" {process}); give every router a directory of its own"
        )


@attrs.define(eq=False)
class Takeover:
    """What a new process has been given, and the connection to the old one.

    Attributes:
        sockets: that listen already.
        router: container-id of the old one; None: it is too old to say.
        process: its id.
    """

    sockets: list[socket.socket]
    router: str | None
    process: int
    _pair: socket.socket

    def give_back(self) -> None:
        """Leaves the old process in its place."""
        for each in (*self.sockets, self._pair):
            each.close()

    async def complete(self, *, waits_for_end: bool) -> None:
        """Tells the old process to leave; what connects waits in the queues of the sockets.

        Args:
            waits_for_end: return only when the old process has ended, and with it its hold on the
                journal.
        """
        with contextlib.suppress(OSError), self._pair:
            self._pair.send(READY)
            while waits_for_end:
                await trio.lowlevel.wait_readable(self._pair)
                with contextlib.suppress(BlockingIOError):
                    waits_for_end = bool(self._pair.recv(64))


async def take_over(state: Path) -> Takeover | None:
    """Asks the process that runs on a state directory for its sockets; None: there is none."""
    pair = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair.setblocking(False)
    sockets: list[socket.socket] = []
    try:
        pair.connect(str(state / SOCKET_NAME))
        with trio.fail_after(ANSWER_SECONDS):
            while (received := await receive_socket(pair)) is not None:
                purpose, sock = received
                if "end" in purpose:
                    sock.close()
                    return Takeover(sockets, purpose.get("router"), _process_behind(pair), pair)
                sock.setblocking(False)
                sockets.append(sock)
    except (OSError, trio.TooSlowError):
        pass
    for sock in sockets:
        sock.close()
    pair.close()
    return None


def _process_behind(pair: socket.socket) -> int:
    """Gives the id of the process at the other end."""
    octets = pair.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process: int = _CREDENTIALS.unpack(octets)[0]
    return process


@attrs.define(eq=False)
class Handover:
    """Waits for a successor, and hands over to it.

    Attributes:
        state: the state directory.
        router: our container-id.
        sockets: gives what listens at present.
        leave: called when the successor accepts: stop accepting, drain, end.
    """

    state: Path
    router: str
    sockets: Callable[[], Iterable[tuple[str, socket.socket]]]
    leave: Callable[[], None]
    _listening: socket.socket = attrs.field(init=False)
    _inode: int = attrs.field(default=0, init=False)
    _pair: socket.socket | None = attrs.field(default=None, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def open(self) -> None:
        """Takes the place of whoever listened before.

        Raises:
            OSError: the directory cannot be used.
        """
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.state / SOCKET_NAME
        fresh = path.with_name(f"{SOCKET_NAME}.{os.getpid()}")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.setblocking(False)
        fresh.unlink(missing_ok=True)
        self._listening.bind(str(fresh))
        fresh.chmod(0o600)
        self._listening.listen(1)
        self._inode = fresh.stat().st_ino
        fresh.replace(path)  # at once: there is always somebody to ask

    async def run(self) -> None:
        """Serves successors, one after the other, until one has taken over."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._listening)
                try:
                    pair, _ = self._listening.accept()
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EINTR):
                        await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                    continue
                pair.setblocking(False)
                if await self._serve(pair):
                    self._pair = pair  # its end is ours
                    self.leave()
                    return
                pair.close()
        finally:
            self._close()

    async def _serve(self, pair: socket.socket) -> bool:
        """Hands the sockets over; returns whether the successor has become ready."""
        self._log.info("handover.begun", process=_process_behind(pair), state=str(self.state))
        try:
            for name, sock in self.sockets():
                await _send(pair, {"listener": name}, sock)
            await _send(pair, {"end": True, "router": self.router}, self._listening)
            await trio.lowlevel.wait_readable(pair)
            is_ready = pair.recv(64) == READY
        except OSError:
            is_ready = False
        self._log.info("handover.ended", completed=is_ready)
        return is_ready

    def _close(self) -> None:
        """Takes the socket's name away, unless it is the successor's by now."""
        self._listening.close()
        path = self.state / SOCKET_NAME
        with contextlib.suppress(OSError):
            if path.stat().st_ino == self._inode:
                path.unlink()


async def _send(pair: socket.socket, purpose: dict[str, object], sock: socket.socket) -> None:
    while True:
        try:
            send_socket(pair, purpose, sock)
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_writable(pair)
        else:
            return
