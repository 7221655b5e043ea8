"""Reads the store for one worker, and answers it until it hangs up; see ``remote``.

The journal's process starts it as ``-m router.journal.postgres.reader``. The URL is in the
environment, where command lines of other users' process lists do not show it.
"""

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Sequence

from router.journal.postgres.lease import URL_VARIABLE
from router.journal.postgres.remote import LENGTH, MISSING
from router.journal.postgres.storage import PostgresStorage


def serve(sock: socket.socket, storage: PostgresStorage, epoch: int) -> None:
    """Answers until the worker hangs up.

    Raises:
        OSError: the store cannot be read.
    """
    sock.sendall(LENGTH.pack(0))
    with sock.makefile("rb") as lines:
        for line in lines:
            question, _, name = line.decode().strip().partition(" ")
            try:
                answer = _answer(question, name, storage, epoch)
            except FileNotFoundError:
                sock.sendall(LENGTH.pack(MISSING))
            else:
                sock.sendall(LENGTH.pack(len(answer)))
                sock.sendall(answer)


def _answer(question: str, name: str, storage: PostgresStorage, epoch: int) -> bytes:
    match question:
        case "names":
            return "\n".join(storage.names()).encode()
        case "read":
            return storage.read(name)
        case "newest":
            return b"%d" % storage.newest()
        case _:
            return b"%d" % epoch


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns 0 when the worker has hung up, 1 if the store cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m router.journal.postgres.reader")
    parser.add_argument("--router", required=True, help="id of the router")
    parser.add_argument("--epoch", type=int, required=True, help="of the lease")
    parser.add_argument("--socket", type=int, required=True, help="descriptor")
    options = parser.parse_args(arguments)
    storage = PostgresStorage(os.environ[URL_VARIABLE], options.router)
    with socket.socket(fileno=options.socket) as sock:
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                serve(sock, storage, options.epoch)
        except OSError as error:
            print(f"reader: {error.strerror or error}", file=sys.stderr)  # noqa: T201
            return 1
        finally:
            storage.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
