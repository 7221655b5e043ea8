"""Plain sockets before the data plane has them: names, options, the few waits of a handshake."""

import contextlib
import errno
import os
import socket
import stat
from typing import Final

import trio

from router.model.place import BindAddress, TcpAddress, UnixAddress

ACCEPT_BACKLOG: Final = 1024
"""Connections that the kernel completes ahead of us; a reconnecting fleet comes all at once."""


CONGESTION_VARIABLE: Final = "ROUTER_TCP_CONGESTION"
"""Environment variable that names TCP's congestion control for all sockets (benchmarks pin it; some
of the kernel's pace even the loopback); without it the system's choice stands."""


UNIX_PATH_OCTETS: Final = 107
"""Longest path of a Unix socket (``sun_path`` with its end)."""

_LISTEN_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there ('ss -ltnp' shows which): end it, or bind"
    " another port",
    errno.EACCES: "ports below 1024 and foreign directories need a right that this user lacks: bind"
    " a port from 1024 on, or grant CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "no network interface of this machine has that address; 0.0.0.0 binds all",
    errno.EEXIST: "remove it, or bind another path",
    errno.ENAMETOOLONG: "a Unix socket's path has 107 octets at most: bind a shorter one",
    errno.ENOENT: "the directory of the socket is not there: make it, or bind another path",
}


async def open_listening(address: BindAddress) -> list[socket.socket]:
    """Opens non-blocking listening sockets, one for each address that the host's name has.

    Raises:
        OSError: the address cannot be had.
    """
    if isinstance(address, UnixAddress):
        return [_listen_unix(str(address.path))]
    bound = await _bind(address)
    try:
        for each in bound:
            each.listen(ACCEPT_BACKLOG)
            each.setblocking(False)
    except OSError:
        _close_all(bound)
        raise
    return bound


async def try_listening(address: BindAddress) -> None:
    """Checks that an address can be listened on; nobody can connect to it meanwhile.

    Raises:
        OSError: the address cannot be had.
    """
    if not isinstance(address, UnixAddress):
        _close_all(await _bind(address))
        return
    path = address.path
    if len(os.fsencode(path)) > UNIX_PATH_OCTETS:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if path.exists() and not _is_abandoned(str(path)):
        if not path.is_socket():
            raise OSError(errno.EEXIST, "the path is in use by a file that is no socket")
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    if not path.parent.is_dir():
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


async def _bind(address: TcpAddress) -> list[socket.socket]:
    """Binds a socket to each address that the host's name has."""
    found = await trio.socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    port = address.port
    try:
        for family, kind, protocol, _, where in found:
            listening = socket.socket(family, kind, protocol)
            opened.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            choose_congestion_control(listening)  # what is accepted inherits it
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((where[0], port, *where[2:]))
            port = listening.getsockname()[1]  # all families share the port that was free
    except OSError:
        _close_all(opened)
        raise
    return opened


def _close_all(opened: list[socket.socket]) -> None:
    for each in opened:
        each.close()


def _listen_unix(path: str) -> socket.socket:
    """Opens a listening Unix socket; one that nobody listens on any more is put out of the way."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            listening.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_abandoned(path):
                raise
            os.unlink(path)
            listening.bind(path)
        listening.listen(ACCEPT_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _is_abandoned(path: str) -> bool:
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == errno.ECONNREFUSED


def close_listening(listening: socket.socket, *, is_shared: bool = False) -> None:
    """Closes a listening socket, and takes a Unix one's path away unless others have it too."""
    if listening.fileno() < 0:
        return
    name = listening.getsockname()
    trio.lowlevel.notify_closing(listening)
    listening.close()
    if isinstance(name, str) and name and not is_shared:
        with contextlib.suppress(OSError):
            os.unlink(name)


def describe_refusal(error: OSError) -> str:
    """Returns why an address cannot be listened on, and what to do about it."""
    reason = error.strerror or str(error)
    advice = _LISTEN_ADVICE.get(error.errno or 0)
    if isinstance(error, socket.gaierror):
        advice = "this machine does not know that host name; give an address"
    return reason if advice is None else f"{reason}; {advice}"


def is_bound_to(listening: socket.socket, address: BindAddress) -> bool:
    """Returns whether a listening socket, opened by somebody else, is one for an address.

    A host that is a name is not looked up: it fits sockets that are bound to its own text only.
    """
    name = listening.getsockname()
    if isinstance(address, UnixAddress):
        return bool(name == str(address.path))
    if not isinstance(name, tuple) or name[1] != address.port:
        return False
    everywhere = ("", "*", "0.0.0.0", "::")
    host = address.host or ""
    return bool(name[0] == host) or (name[0] in everywhere and host in everywhere)


def describe(name: object) -> str:
    """Writes a socket's name the way the configuration does."""
    if isinstance(name, tuple):
        return str(TcpAddress(*name[:2]))
    return f"unix:{name}" if name else "unix"


def describe_peer(sock: socket.socket) -> str:
    """Writes the peer's address for people."""
    try:
        return describe(sock.getpeername())
    except OSError:
        return "gone"


def prepare(sock: socket.socket) -> None:
    """Makes a connected socket fit for the data plane: never blocking, never delaying."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for peers without heartbeats
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # turns batch better than Nagle


def choose_congestion_control(sock: socket.socket) -> None:
    """Sets what ``ROUTER_TCP_CONGESTION`` names.

    Raises:
        OSError: the system has no such algorithm.
    """
    name = os.environ.get(CONGESTION_VARIABLE)
    if name and hasattr(socket, "TCP_CONGESTION"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


async def receive_some(sock: socket.socket, most: int) -> bytes:
    """Waits for octets; empty at the end of the stream."""
    await trio.lowlevel.checkpoint_if_cancelled()
    while True:
        await trio.lowlevel.wait_readable(sock)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            return sock.recv(most)


async def send_all(sock: socket.socket, octets: bytes) -> None:
    """Sends all octets, waiting as needed."""
    rest = memoryview(octets)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_writable(sock)
