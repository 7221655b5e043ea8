"""Replacement without a gap: a new process takes the listening sockets over from the old one.

Theory of operation. A running router listens on ``handover.sock`` in its state directory. A router
that is started on the same directory connects there, and the two processes converse::

    new                                      old
     connects                          ───▶  sends each listening socket, with its listener's name,
                                             and goes on accepting
     "admin"                           ───▶  sends the sockets of the admin endpoint
     opens what the old one did not have,
     accepts as well
     "ready"                           ───▶  stops accepting without closing what it shares,
                                             drains, and ends

A journal has one owner: with a journal, the new process serves only after the old one has ended::

     opens what the old one did not have,
     accepts nothing
     "waiting"                         ───▶  stops accepting, drains, and ends
     sees the process end, opens the journal, accepts

Clients that connect meanwhile wait in the sockets' queues. The old process keeps the sockets until
it ends: if the new one has ended by then, the old one serves again.

The kernel has one queue of connections for a listening socket, whichever process holds it, so no
client is refused at any moment. If the new process ends before it has said "ready" or "waiting",
the old one sees the end of the stream and goes on serving.

A router with another container-id is no successor: it gives the sockets back and does not start.
Nor is one whose file is another and names no ``router.id``. (Two configuration files in one folder
have the same state directory by default, and the host's name for an id.)

Each packet (``SOCK_SEQPACKET``) carries one socket, as ``channel.send_socket`` writes it; a packet
with the purpose ``{"end": true, "router": ID, "config": FILE, "format": 2}`` ends each list, and
its socket is ignored. A packet without ``format`` comes from an older version, which knows only
the word "ready", closes the stream while it still drains, and keeps its admin endpoint until it
ends. An older version that takes over does not ask for the admin endpoint; it says "ready", and
with a journal it then waits for the end of the stream. Only the owner may enter the directory,
which protects the sockets.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.errors import RouterError
from router.net.journal import short_path
from router.service.channel import receive_socket, send_socket

SOCKET_NAME: Final = "handover.sock"

FORMAT: Final = 2
"""Version of this conversation; version 1 knew only "ready"."""

ANSWER_SECONDS: Final = 15.0
"""Time in which the old process has to hand its sockets over, beyond its drain time: it does not
answer while it waits for the end of its own predecessor."""

ADMIN: Final = b"admin"
READY: Final = b"ready"
WAITING: Final = b"waiting"

_WORD_OCTETS: Final = 64
"""Read size; no word is longer."""

_CREDENTIALS: Final = struct.Struct("3i")
"""Credentials of a peer (``SO_PEERCRED``): process, user, group."""

_ACCEPT_PAUSE_SECONDS: Final = 0.1
_CONNECT_PAUSE_SECONDS: Final = 0.1


class OccupiedError(RouterError):
    """Another router runs on the state directory.

    Attributes:
        state: the directory.
        router: its container-id.
        process: its process id.
        config: its file, if that is what sets it apart.
    """

    def __init__(self, state: str, router: str, process: int, config: str | None = None) -> None:
        self.state = state
        self.router = router
        self.process = process
        self.config = config
        advice = "give every router a directory of its own"
        if config is not None:
            advice = (
                f"it runs with {config}: give this one a router.state of its own, or the"
                " router.id of that one if it is to take its place"
            )
        super().__init__(
            f"router.state: {state} is in use by the running router '{router}' (process"
            f" {process}); {advice}"
        )


@attrs.frozen
class UnansweredError(RouterError):
    """A process runs on the state directory and does not answer."""

    state: Path
    process: int
    seconds: float

    def __str__(self) -> str:
        who = f"process {self.process}" if self.process else "several that are being started"
        return (
            f"router.state: {self.state} is in use ({who}), and there is no answer within"
            f" {self.seconds:g} s"
        )


@attrs.define(eq=False)
class Takeover:
    """The sockets that a new process has received, and its connection to the old process.

    Attributes:
        sockets: the listeners' sockets, which listen already.
        admin: the admin endpoint's sockets, which listen already.
        router: container-id of the old process; None: its version does not report it.
        config: its file; None: its version does not report it.
        process: process id of the old process.
    """

    sockets: list[socket.socket]
    admin: list[socket.socket]
    router: str | None
    config: str | None
    process: int
    _format: int
    _pair: socket.socket

    async def begin(self, path: Path) -> None:
        """Connects to the old process, and receives its sockets.

        Raises:
            OSError: no process listens there, or it has ended.
        """
        await self._connect(path)
        self.process = _process_behind(self._pair)
        end = await _receive(self._pair, self.sockets)
        self.router, self._format = end.get("router"), end.get("format", 1)
        self.config = end.get("config")
        if self._format >= FORMAT:
            self._pair.send(ADMIN)
            await _receive(self._pair, self.admin)

    async def _connect(self, path: Path) -> None:
        while True:
            try:
                with _reachable(path) as short:
                    self._pair.connect(short)
            except BlockingIOError:  # the queue is full of other processes' requests
                await trio.sleep(_CONNECT_PAUSE_SECONDS)
            else:
                return

    @property
    def keeps_admin(self) -> bool:
        """Whether the old process is of a version that does not hand its admin endpoint over."""
        return self._format < FORMAT

    def give_back(self) -> None:
        """Ends the takeover; the old process goes on serving."""
        for each in (*self.sockets, *self.admin, self._pair):
            each.close()

    def complete(self) -> None:
        """Tells the old process to leave, because this one serves."""
        with contextlib.suppress(OSError), self._pair:
            self._pair.send(READY)

    def begin_to_wait(self) -> None:
        """Tells the old process to leave; new connections wait in the sockets' queues."""
        with contextlib.suppress(OSError):
            self._pair.send(WAITING if self._format >= FORMAT else READY)

    async def wait_for_end(self) -> None:
        """Returns when the old process has ended and has thereby released the journal."""
        with self._pair, _watched(self.process) as process:
            is_open = True
            while is_open:
                await trio.lowlevel.wait_readable(self._pair)
                try:
                    is_open = bool(self._pair.recv(_WORD_OCTETS))
                except BlockingIOError:
                    continue
                except OSError:
                    is_open = False
            if process is not None:  # an older version closes the stream long before
                await trio.lowlevel.wait_readable(process)


async def take_over(state: Path, drain_seconds: float = 0.0) -> Takeover | None:
    """Asks the process that runs on a state directory for its sockets; None: no process runs.

    Args:
        state: the directory.
        drain_seconds: how long that process may itself have to wait for a predecessor.

    Raises:
        UnansweredError: the process does not answer.
    """
    pair = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair.setblocking(False)
    takeover = Takeover([], [], None, None, 0, 1, pair)
    seconds = drain_seconds + ANSWER_SECONDS
    try:
        with trio.fail_after(seconds):
            await takeover.begin(state / SOCKET_NAME)
    except trio.TooSlowError:
        takeover.give_back()
        raise UnansweredError(state, takeover.process, seconds) from None
    except OSError:
        takeover.give_back()
        return None
    return takeover


async def _receive(pair: socket.socket, sockets: list[socket.socket]) -> dict[str, Any]:
    """Receives the sockets of a list; returns the purpose of the packet that ends it.

    Raises:
        OSError: the other side is gone.
    """
    while (received := await receive_socket(pair)) is not None:
        purpose, sock = received
        if "end" in purpose:
            sock.close()
            return purpose
        sock.setblocking(False)
        sockets.append(sock)
    raise BrokenPipeError(errno.EPIPE, "it has closed the connection")


def _process_behind(pair: socket.socket) -> int:
    """Returns the process id of the peer."""
    octets = pair.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process: int = _CREDENTIALS.unpack(octets)[0]
    return process


@contextmanager
def _watched(process: int) -> Iterator[int | None]:
    """Opens a descriptor that becomes readable when a process ends; None: it cannot be watched."""
    try:
        descriptor = os.pidfd_open(process)
    except (AttributeError, OSError):  # not Linux; process ended, or in another namespace
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Yields a path of a socket that is short enough for a Unix socket address.

    Raises:
        OSError: the directory does not exist.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield short_path(folder, path)
    finally:
        os.close(folder)


@attrs.define(eq=False, kw_only=True)
class Handover:
    """Waits for a successor and hands the sockets over to it.

    Its owner keeps this object until the process ends: a waiting successor notices the end of the
    process by the end of the connection that is kept here.

    Attributes:
        state: the state directory.
        router: our container-id.
        config: our file.
        sockets: returns the listeners' sockets.
        admin: returns the admin endpoint's sockets.
        leave: called when the successor is ready or waiting: stop accepting, drain, end.
        is_waited_for: the successor serves only when this process has ended.
    """

    state: Path
    router: str
    config: str
    sockets: Callable[[], Iterable[tuple[str, socket.socket]]]
    admin: Callable[[], Iterable[socket.socket]]
    leave: Callable[[], None]
    is_waited_for: bool = attrs.field(default=False, init=False)
    _has_begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _listening: socket.socket = attrs.field(init=False)
    _inode: int = attrs.field(default=0, init=False)
    _pair: socket.socket | None = attrs.field(default=None, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def open(self) -> None:
        """Listens on ``handover.sock``, in place of the process that listened there before.

        Raises:
            OSError: the directory cannot be used.
        """
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.state / SOCKET_NAME
        fresh = path.with_name(f"{SOCKET_NAME}.{os.getpid()}")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.setblocking(False)
        fresh.unlink(missing_ok=True)
        with _reachable(fresh) as short:
            self._listening.bind(short)
        fresh.chmod(0o600)
        self._listening.listen(1)
        self._inode = fresh.stat().st_ino
        fresh.replace(path)  # atomic: at any time some process listens at the path

    def begin(self) -> None:
        """Answers successors from now on; until this call they wait."""
        self._has_begun.set()

    async def run(self) -> None:
        """Answers successors, one after the other, until one has taken over."""
        try:
            await self._has_begun.wait()
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
                    self._pair = pair  # open until this process ends
                    self.leave()
                    return
                pair.close()
        finally:
            self._close()

    @property
    def is_deserted(self) -> bool:
        """Whether the successor that waited for the end of this process has itself ended."""
        if self._pair is None or not self.is_waited_for:
            return False
        try:
            return not self._pair.recv(_WORD_OCTETS)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def _serve(self, pair: socket.socket) -> bool:
        """Hands the sockets over; returns whether the successor is ready or waiting."""
        self._log.info("handover.begun", process=_process_behind(pair), state=str(self.state))
        try:
            word = await self._converse(pair)
        except OSError:
            word = b""
        self.is_waited_for = word == WAITING
        is_completed = word in {READY, WAITING}
        self._log.info("handover.ended", completed=is_completed)
        return is_completed

    async def _converse(self, pair: socket.socket) -> bytes:
        """Sends the sockets that a successor asks for; returns its last word.

        Raises:
            OSError: the successor is gone.
        """
        for name, sock in self.sockets():
            await _send(pair, {"listener": name}, sock)
        await self._send_end(pair)
        while True:
            await trio.lowlevel.wait_readable(pair)
            try:
                word = pair.recv(_WORD_OCTETS)
            except (BlockingIOError, InterruptedError):
                continue
            if word != ADMIN:
                return word
            for sock in self.admin():
                await _send(pair, {"admin": True}, sock)
            await self._send_end(pair)

    async def _send_end(self, pair: socket.socket) -> None:
        end = {"end": True, "router": self.router, "config": self.config, "format": FORMAT}
        await _send(pair, end, self._listening)

    def _close(self) -> None:
        """Removes the socket's path, unless the successor has replaced it."""
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
