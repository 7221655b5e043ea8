"""How a worker reads the store on PostgreSQL: it asks a process of the journal's.

The worker connects to the journal's socket, sends a HELLO with the flag ASKS, and waits for an
empty answer: another process has the connection then. Now it asks, one line at a time, and gets an
answer of a length (u64, little-endian) and as many octets:

    names           the names of segments and snapshots, one a line
    read NAME       the octets of one; the length is 2^64 - 1 if there is none
    newest          the number of the newest segment with something durable, in digits
    epoch           the lease's epoch, in digits
"""

import errno
import socket
import struct
from typing import Final

from router.journal.block import Block, BlockFlag, Origin, seal_block
from router.journal.ending import Ending

LENGTH: Final = struct.Struct("<Q")
MISSING: Final = (1 << 64) - 1
SECONDS: Final = 60.0
"""How long an answer may take."""


def question_block(router: str, origin: Origin) -> bytes:
    """Returns the first block of a connection that reads."""
    return seal_block(
        b"",
        router.encode(),
        first_sequence=1,
        worker=origin.worker,
        incarnation=origin.incarnation,
        flags=BlockFlag.HELLO | BlockFlag.ASKS,
    )


def is_question(block: Block) -> bool:
    """Returns whether a connection that begins with ``block`` reads."""
    return bool(block.flags & BlockFlag.HELLO and block.flags & BlockFlag.ASKS)


class RemoteStorage:
    """The store as a worker reads it: ``storage.Readable``."""

    def __init__(self, sock: socket.socket, router: str, worker: int, *, title: str) -> None:
        """Begins to read over a connected socket.

        Args:
            sock: connected to the journal's process.
            router: id of the router.
            worker: number of the worker.
            title: of the store, for messages.

        Raises:
            OSError: the journal's process has gone.
        """
        sock.settimeout(SECONDS)
        self._socket = sock
        self._title = title
        sock.sendall(question_block(router, Origin(worker, 1)))
        self._receive(LENGTH.unpack(self._receive(LENGTH.size))[0])  # it begins to answer

    def __str__(self) -> str:
        return self._title

    def names(self) -> list[str]:
        """Lists what there is."""
        return self._ask("names").decode().split()

    def read(self, name: str) -> bytes:
        """Returns a segment or snapshot."""
        return self._ask(f"read {name}")

    def newest(self) -> int:
        """Returns the number of the newest segment that holds something durable."""
        return int(self._ask("newest"))

    def ended(self) -> Ending:
        """Returns that nothing is known: a database has no torn tail that could be mistaken."""
        return Ending()

    def epoch(self) -> int:
        """Returns the epoch of the lease under which the journal is written now."""
        return int(self._ask("epoch"))

    def close(self) -> None:
        """Ends the connection, and the process that answers."""
        self._socket.close()

    def _ask(self, question: str) -> bytes:
        self._socket.sendall(f"{question}\n".encode())
        (length,) = LENGTH.unpack(self._receive(LENGTH.size))
        if length == MISSING:
            raise FileNotFoundError(errno.ENOENT, "the store does not have it", question)
        return self._receive(length)

    def _receive(self, octets: int) -> bytes:
        received = bytearray(octets)
        view = memoryview(received)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise OSError(errno.EIO, f"{self._title} cannot be read now; see the log")
            view = view[count:]
        return bytes(received)
