"""The process that reads the store for workers, as the journal's process starts and uses it.

It is given the connections of workers over a *door*, a pair of Unix sockets. A standby starts it
while it waits for the lease, so that it reads ahead (``reader``): after a takeover a worker waits
for what was written last, and for nothing else. If it has ended, it is started anew.
"""

import contextlib
import socket
import subprocess

import structlog

from router.journal.postgres.handing_over import handed_over
from router.programs import command_of

_log = structlog.get_logger("router.journal")


class Readers:
    """The process, or none."""

    def __init__(self, url: str, router: str) -> None:
        """Starts nothing yet.

        Args:
            url: of the store.
            router: id of the router.
        """
        self._url = url
        self._router = router
        self._door: socket.socket | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Starts the process, if none runs.

        Raises:
            OSError: it cannot be started.
        """
        self.reap()
        if self._door is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = self._start(theirs.fileno())
            except OSError:
                ours.close()
                raise
        self._door = ours
        self._processes.append(process)

    def _start(self, door: int) -> subprocess.Popen[bytes]:
        command = command_of("router.journal.postgres.reader")
        command += ["--router", self._router, "--door", str(door)]
        with handed_over(self._url) as url:
            return subprocess.Popen(
                [*command, "--store-fd", str(url)], pass_fds=(door, url), stdin=subprocess.DEVNULL
            )

    def hand_over(self, descriptor: int, epoch: int, first: int) -> None:
        """Has the process serve a worker's connection.

        Args:
            descriptor: of the connection; the caller closes its own.
            epoch: of the lease under which the store is read.
            first: number of the first segment of that lease.
        """
        for _ in range(2):  # the process may just have ended
            try:
                self.prepare()
                assert self._door is not None
                socket.send_fds(self._door, [b"%d %d" % (epoch, first)], [descriptor])
            except OSError as error:
                reason = error
                self._close_door()
            else:
                return
        _log.error("reader.failed", error=reason)

    def reap(self) -> None:
        """Forgets processes that have ended."""
        running = [each for each in self._processes if each.poll() is None]
        if self._processes and (not running or running[-1] is not self._processes[-1]):
            self._close_door()
        self._processes = running

    def close(self) -> None:
        """Lets the process end; who is being served is served to the end."""
        self._close_door()

    def _close_door(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            with contextlib.suppress(OSError):
                door.close()
