"""Leads random conversations through the kernel: ``python -m tests.support.lane_fuzz FIRST LAST``.

Each without sockets, over real sockets, which the carrier reads and writes, and with core and
engines around it, against the general path. With a third argument the kernel is loaded from that
file, which may have been built with a sanitizer; what follows is handed to pytest: tests that are
to be run with it.
"""

import random
import sys

import pytest

from router.wire.v1_0.express import make_express
from tests.support.lane_sockets import CarriedWorld
from tests.support.lane_world import World, converse
from tests.support.sanitized import load

NAME = "router.wire.v1_0._express"


def main(first: int, last: int) -> None:
    from tests.support.kernel import make_kernel
    from tests.support.lane_conversations import converse as converse_with_reference

    for seed in range(first, last):
        high_octets = random.Random(seed).choice((3000, 20_000, 1 << 20))
        converse(World(make_kernel(), high_octets), seed, 120)
        converse_over_sockets(seed, high_octets)
        converse_with_reference(seed, 60, ("lines", "fans", "crowds")[seed % 3])


def converse_over_sockets(seed: int, high_octets: int = 1 << 20) -> None:
    """Leads one conversation over sockets; nobody gets a part of a frame in the end."""
    from tests.support.kernel import make_kernel

    with CarriedWorld(make_kernel(), seed, high_octets) as world:
        converse(world, seed, 120)
        assert not any(world.drain())


if __name__ == "__main__":
    if len(sys.argv) > 3:
        load(NAME, sys.argv[3])
        assert make_express("cython").states is sys.modules[NAME]  # type: ignore[union-attr]
    main(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 4:
        sys.exit(pytest.main(sys.argv[4:]))
