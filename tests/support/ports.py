"""TCP ports for what tests start: nobody else on the machine gets one of them meanwhile.

The kernel picks the port of an outgoing connection, and of a listener on port 0, from the
ephemeral range. A port from there that is free when a test chooses it may be taken when its broker
binds it. So the ports come from outside of that range. Each process that asks owns a block of them
and holds the block's first port bound while it lives: two workers of one run, or two runs, never
share a block.
"""

import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL: Final = (32768, 60999)
"""Linux's own, where the kernel does not say."""

FIRST_PORT: Final = 10_000
"""Well-known services and the default ports of brokers are below, but for a few."""

LAST_PORT: Final = 65_535
BLOCK_SIZE: Final = 200
"""Many more than a test holds at once: a port comes round again long after it was given back."""


class NoPortError(Exception):
    """All ports outside of the ephemeral range are taken."""


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 that nobody listens on, and that no other process is given.

    Raises:
        NoPortError: every port of this process's block is in use.
    """
    block = _own_block()
    for _ in range(BLOCK_SIZE):
        port = block.pop(0)
        block.append(port)
        if (probe := _bound(port)) is not None:
            probe.close()
            return port
    raise NoPortError(f"{min(block)} to {max(block)} are all in use")


def blocks(ephemeral: tuple[int, int]) -> Sequence[range]:
    """Returns the blocks of ports outside of the ephemeral range, those below it first.

    Where that range leaves none, which some machines of many connections have set, they are
    inside: our own processes still keep apart.

    Args:
        ephemeral: the first and the last port of the range.
    """
    low, high = ephemeral
    outside = [*_blocks(FIRST_PORT, low - 1), *_blocks(max(high + 1, FIRST_PORT), LAST_PORT)]
    return outside or _blocks(FIRST_PORT, LAST_PORT)


def _blocks(first: int, last: int) -> list[range]:
    starts = range(first, last - BLOCK_SIZE + 2, BLOCK_SIZE)
    return [range(start, start + BLOCK_SIZE) for start in starts]


def claim(candidates: Sequence[range]) -> tuple[socket.socket, range]:
    """Takes the first block that is nobody's; it is ours while the socket is open.

    Raises:
        NoPortError: each has an owner.
    """
    for block in candidates:
        if (held := _bound(block[0])) is not None:
            return held, block
    raise NoPortError(f"each of {len(candidates)} blocks of ports has an owner")


def ephemeral_range() -> tuple[int, int]:
    """Returns the first and the last port that the kernel picks from."""
    try:
        low, high = map(int, EPHEMERAL_RANGE.read_text().split())
    except OSError:
        return DEFAULT_EPHEMERAL
    return low, high


@cache
def _own_block() -> list[int]:
    held, block = claim(blocks(ephemeral_range()))
    _held.append(held)
    return list(block[1:])


_held: Final[list[socket.socket]] = []
"""Keeps the claim of this process open."""


def _bound(port: int) -> socket.socket | None:
    """Returns a socket on that port, without a listener; None if it is in use."""
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        return None
    return probe
