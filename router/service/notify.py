"""What systemd, or whoever speaks its words, is told and gives: readiness, watchdog, sockets.

``NOTIFY_SOCKET``: lines go there as datagrams (sd_notify(3)). ``WATCHDOG_USEC``: it wants to hear
from us at least so often; we speak twice as often. ``LISTEN_FDS``: listening sockets that were
opened for us (sd_listen_fds(3)); a listener whose address is that of such a socket takes it.
"""

import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

import attrs
import trio

FIRST_DESCRIPTOR: Final = 3
"""Of the inherited sockets (SD_LISTEN_FDS_START)."""


@attrs.define(eq=False)
class Notifier:
    """Tells the service manager how we fare; without one, nobody.

    Attributes:
        path: of its socket; one that begins with ``@`` is abstract. None: there is none.
        watchdog_seconds: how often it wants to hear that we live; None: it does not.
    """

    path: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Notifier":
        """Reads what the environment says, and takes it out: children have no part in it."""
        path = environment.pop("NOTIFY_SOCKET", None)
        period = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", str(os.getpid()))
        is_watched = period.isdigit() and int(period) > 0 and process == str(os.getpid())
        return cls(path, int(period) / 1e6 if is_watched else None)

    def tell(self, *lines: str) -> None:
        """Sends lines; that nobody takes them is no trouble of ours."""
        if not self.path:
            return
        address = "\0" + self.path[1:] if self.path.startswith("@") else self.path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(lines).encode(), address)
            except OSError:
                return

    def ready(self) -> None:
        """Every listener accepts."""
        self.tell("READY=1", f"MAINPID={os.getpid()}")

    def succeeding(self) -> None:
        """The main process is about to leave its place to this one."""
        self.tell(f"MAINPID={os.getpid()}")

    def reloading(self) -> None:
        """The file is being read anew; ``ready`` follows."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.tell("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def stopping(self) -> None:
        """The end has begun."""
        self.tell("STOPPING=1")

    async def watch(self) -> None:
        """Says again and again that we live, for as long as the event loop does."""
        if self.watchdog_seconds is None:
            return
        while True:
            self.tell("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 2)


def inherited_sockets(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Takes the listening sockets that were opened for us, and what the environment says of them.

    Those that do not listen for streams are left alone.
    """
    process = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.setblocking(False)
            found.append(sock)
        else:
            sock.detach()
    return found
