"""How the URL of the store, with its password, comes to a child process: through a pipe.

Command lines and environments of processes can be read in /proc, and end up in core dumps and
reports. The child reads the pipe to its end when it starts, and nothing of it remains.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

_MOST_OCTETS: Final = 65536
"""A pipe takes as many though nobody reads yet."""


@contextlib.contextmanager
def handed_over(url: str) -> Iterator[int]:
    """Yields the descriptor of a pipe that reads as ``url``; a child is to inherit it.

    Raises:
        OSError: there are no descriptors left, or the URL is too long.
    """
    octets = url.encode()
    if len(octets) > _MOST_OCTETS:
        raise OSError("the URL of the store is too long")
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        with open(writing, "wb") as pipe:
            pipe.write(octets)
        yield reading
    finally:
        os.close(reading)


def take_over(descriptor: int) -> str:
    """Returns what ``handed_over`` has put into a pipe, and closes it."""
    with open(descriptor, "rb") as pipe:
        return pipe.read().decode()
