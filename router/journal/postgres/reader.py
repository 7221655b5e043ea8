"""Reads the store for workers, and answers each until it hangs up; see ``remote`` and ``readers``.

The journal's process starts it as ``-m router.journal.postgres.reader`` with one end of a *door*.
Each packet there carries the connection of a worker, and the epoch of the lease. Until the first
one comes, this process reads ahead: whatever is written meanwhile, by another router of the same
id, it has when it is asked. When all workers are served and none has come for a while, it forgets
that, and waits for workers that start anew.

The URL of the store comes through a pipe (``handing_over``).
"""

import argparse
import contextlib
import selectors
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

from router.journal.postgres.ahead import ReplayedAhead
from router.journal.postgres.handing_over import take_over
from router.journal.postgres.remote import LENGTH, MISSING
from router.journal.postgres.storage import PostgresStorage
from router.journal.segment import ForeignFileError, numbered, segment_name, snapshot_name
from router.model.log_values import reason_of

AHEAD_SECONDS: Final = 0.5
"""Between two looks at what has been written."""

LINGER_SECONDS: Final = 10.0
"""Workers that start together ask within some seconds of each other."""

_PACKET_OCTETS: Final = 64


class Reader:
    """Answers workers, one at a time, each in a thread that waits for its questions."""

    def __init__(self, storage: PostgresStorage) -> None:
        """Reads nothing yet."""
        self._storage = storage
        self._ahead: ReplayedAhead | None = None
        self._snapshot: tuple[int, bytes] | None = None
        self._turn = threading.Lock()

    def read_ahead(self) -> None:
        """Reads what has been written lately; what fails is tried another time."""
        try:
            if self._ahead is None:
                self._ahead = ReplayedAhead(self._storage)
            self._ahead.advance()
        except (OSError, ForeignFileError):
            self.forget()

    def forget(self) -> None:
        """Closes the connection to the database, with which goes what was read."""
        with self._turn:
            self._storage.close()
            self._ahead = self._snapshot = None

    def serve(self, sock: socket.socket, epoch: int, first: int) -> None:
        """Answers until the worker hangs up.

        Args:
            sock: connected to the worker.
            epoch: of the lease.
            first: number of its first segment; what is before that is shown as one snapshot if it
                was read ahead.
        """
        with sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                self._serve(sock, epoch, first)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except (OSError, ForeignFileError) as error:
                print(f"reader: {reason_of(error)}", file=sys.stderr)  # noqa: T201

    def _serve(self, sock: socket.socket, epoch: int, first: int) -> None:
        with self._turn:
            self._storage.follow(epoch)
            if self._ahead is not None and self._snapshot is None:
                self._snapshot = self._ahead.snapshot(first)
        sock.sendall(LENGTH.pack(0))
        with sock.makefile("rb") as lines:
            for line in lines:
                question, _, name = line.decode().strip().partition(" ")
                try:
                    with self._turn:
                        answer = self._answer(question, name, epoch)
                except FileNotFoundError:
                    sock.sendall(LENGTH.pack(MISSING))
                else:
                    sock.sendall(LENGTH.pack(len(answer)))
                    sock.sendall(answer)

    def _answer(self, question: str, name: str, epoch: int) -> bytes:
        match question:
            case "names":
                return "\n".join(self._names()).encode()
            case "read":
                return self._read(name)
            case "newest":
                return b"%d" % self._storage.newest()
            case _:
                return b"%d" % epoch

    def _names(self) -> list[str]:
        """Lists what there is; the snapshot that was read ahead, until there is a later one."""
        names = self._storage.names()
        if self._snapshot is None or self._snapshot[0] < max(
            numbered(names, "snapshot"), default=0
        ):
            return names
        number, _ = self._snapshot
        behind = [segment_name(each) for each in numbered(names, "segment") if each > number]
        return [snapshot_name(number), *behind]

    def _read(self, name: str) -> bytes:
        if self._snapshot is not None and name == snapshot_name(self._snapshot[0]):
            return self._snapshot[1]
        return self._storage.read(name)


def run(door: socket.socket, storage: PostgresStorage) -> None:
    """Serves whoever comes through the door, until it closes."""
    reader, is_ahead = Reader(storage), True
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        while True:
            if is_ahead and not selector.select(0):
                reader.read_ahead()
            if not selector.select(AHEAD_SECONDS if is_ahead else LINGER_SECONDS):
                if not is_ahead:
                    reader.forget()
                continue
            packet, descriptors, _, _ = socket.recv_fds(door, _PACKET_OCTETS, 1)
            if not packet:
                return
            is_ahead = False
            epoch, first = map(int, packet.split())
            for descriptor in descriptors:
                sock = socket.socket(fileno=descriptor)
                sock.setblocking(True)
                threading.Thread(target=reader.serve, args=(sock, epoch, first)).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it until the door closes and who is being served has hung up; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m router.journal.postgres.reader")
    parser.add_argument("--router", required=True, help="id of the router")
    parser.add_argument("--door", type=int, required=True, help="descriptor")
    parser.add_argument("--store-fd", type=int, required=True, help="pipe with the store's URL")
    options = parser.parse_args(arguments)
    with socket.socket(fileno=options.door) as door:
        run(door, PostgresStorage(take_over(options.store_fd), options.router))
    return 0


if __name__ == "__main__":
    sys.exit(main())
