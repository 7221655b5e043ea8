"""The protocol of systemd and compatible service managers: readiness, watchdog, sockets.

``NOTIFY_SOCKET``: state changes are sent there as datagrams (sd_notify(3)). ``WATCHDOG_USEC``: the
interval in which the manager expects a sign of life; we send one twice as often. ``LISTEN_FDS``:
listening sockets that the manager opened for us (sd_listen_fds(3)); a listener with the address of
such a socket uses it.
"""

import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

import attrs
import trio

FIRST_DESCRIPTOR: Final = 3
"""First descriptor of the inherited sockets (SD_LISTEN_FDS_START)."""


@attrs.define(eq=False)
class Notifier:
    """Reports our state to the service manager, if there is one.

    Attributes:
        path: of the manager's socket; one that begins with ``@`` is abstract. None: no manager.
        watchdog_seconds: interval in which it expects a sign of life; None: it has no watchdog.
    """

    path: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Notifier":
        """Reads the manager's variables and removes them, so that children do not inherit them."""
        path = environment.pop("NOTIFY_SOCKET", None)
        period = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", str(os.getpid()))
        is_watched = period.isdigit() and int(period) > 0 and process == str(os.getpid())
        return cls(path, int(period) / 1e6 if is_watched else None)

    def tell(self, *lines: str) -> None:
        """Sends lines; errors are ignored."""
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
        """Reports that every listener accepts."""
        self.tell("READY=1", f"MAINPID={os.getpid()}")

    def succeeding(self) -> None:
        """Reports that this process is about to replace the main process."""
        self.tell(f"MAINPID={os.getpid()}")

    def reloading(self) -> None:
        """Reports that the configuration is being reloaded; ``ready`` follows."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.tell("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def stopping(self) -> None:
        """Reports that the router is stopping."""
        self.tell("STOPPING=1")

    async def watch(self) -> None:
        """Sends signs of life to the watchdog, until cancelled."""
        if self.watchdog_seconds is None:
            return
        while True:
            self.tell("WATCHDOG=1")
            await trio.sleep(self.watchdog_seconds / 2)


def inherited_sockets(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Returns the listening sockets that were opened for us, and removes their variables.

    Sockets that do not listen for streams are left alone.
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
