"""Runs the journal's process, and workers that talk to it over blocking sockets."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from router.journal.client import ClientState, JournalClient
from tests.support.journal import START_NS

PATIENCE_SECONDS = 30.0


class JournalUnderTest:
    """The process, its listening socket, and the lifeline that keeps it alive.

    The socket outlives the process, as the supervisor's does: who connects while no process runs
    is served by the next one.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "journal"
        self.archive = directory / "archive"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(directory / "socket"))
        self.listener.listen(128)
        self.process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def start(self, *options: str, file_octets: int | None = None) -> subprocess.Popen[bytes]:
        """Starts the process.

        Args:
            options: further ones of its command line.
            file_octets: no file may grow beyond (RLIMIT_FSIZE).
        """
        readable, self._lifeline = os.pipe()
        command = [
            *(sys.executable, "-m", "router.journal.process", "--router", "dc1"),
            *("--directory", str(self.directory), "--retry-seconds", "0.05"),
            *("--listen-fd", str(self.listener.fileno()), "--lifeline-fd", str(readable)),
            *options,
        ]
        if file_octets is not None:
            command = ["prlimit", f"--fsize={file_octets}:unlimited", *command]
        self.process = subprocess.Popen(command, pass_fds=(self.listener.fileno(), readable))
        os.close(readable)
        return self.process

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        os.close(self._lifeline)
        self._lifeline = -1

    def cut_lifeline(self) -> int:
        """Lets the supervisor die, as it looks from inside; gives the exit code."""
        assert self.process is not None
        os.close(self._lifeline)
        self._lifeline = -1
        return self.process.wait(PATIENCE_SECONDS)

    def terminate(self) -> int:
        """Sends SIGTERM and gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    def connect(self) -> socket.socket:
        """Connects a socket of a worker."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(PATIENCE_SECONDS)
        peer.connect(self.listener.getsockname())
        return peer

    def close(self) -> None:
        """Ends everything."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
        self.listener.close()


class WorkerUnderTest:
    """A client with its socket."""

    def __init__(
        self, journal: JournalUnderTest, worker: int = 1, incarnation: int = START_NS
    ) -> None:
        self.client = JournalClient(router="dc1", worker=worker, incarnation=incarnation)
        self.peer = socket.socket()
        self._journal = journal

    def greet(self) -> None:
        """Connects and says HELLO."""
        self.peer.close()
        self.peer = self._journal.connect()
        self.client.connection_made()
        self.send()

    def open(self) -> None:
        """Connects and waits until the journal lets it begin."""
        self.greet()
        while self.client.state is ClientState.GREETING:
            self.receive()

    def send(self) -> None:
        """Sends all that the client shows."""
        while octets := self.client.data_to_send():
            self.client.bytes_sent(self.peer.send(octets))

    def receive(self) -> None:
        """Waits for replies; none come any more if the journal is gone: then EOFError."""
        octets = self.peer.recv(4096)
        if not octets:
            raise EOFError
        self.client.receive_data(octets)

    def make_durable(self) -> None:
        """Sends all there is and waits until it is durable."""
        self.send()
        while self.client.durable_sequence < self.client.appended_sequence:
            self.receive()

    def lose(self) -> None:
        """Drops the connection."""
        self.peer.close()
        self.client.connection_lost()


@contextmanager
def journal_under_test(directory: Path) -> Iterator[JournalUnderTest]:
    """Gives a journal that is not started, and ends it."""
    journal = JournalUnderTest(directory)
    try:
        yield journal
    finally:
        journal.close()
