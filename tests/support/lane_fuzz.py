"""Leads random conversations through both twins: ``python -m tests.support.lane_fuzz FIRST LAST``.

Then through the Cython twin alone over real sockets, which its carrier reads and writes. With a
third argument that twin is loaded from that file, which may have been built with a sanitizer; what
follows is handed to pytest: tests that are to be run with it.
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
    from tests.support.twins import TWINS, make_twin

    assert len(TWINS) == 2, "there is nothing to compare"
    for seed in range(first, last):
        high_octets = random.Random(seed).choice((3000, 20_000, 1 << 20))
        converse([World(make_twin(twin), high_octets) for twin in TWINS], seed, 120)
        converse_over_sockets(seed, high_octets)


def converse_over_sockets(seed: int, high_octets: int = 1 << 20) -> None:
    """Leads one conversation over sockets; nobody gets a part of a frame in the end."""
    from tests.support.twins import make_twin

    with CarriedWorld(make_twin("cython"), seed, high_octets) as world:
        converse([world], seed, 120)
        assert not any(world.drain())


if __name__ == "__main__":
    if len(sys.argv) > 3:
        load(NAME, sys.argv[3])
        assert make_express("cython").states is sys.modules[NAME]  # type: ignore[union-attr]
    main(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 4:
        sys.exit(pytest.main(sys.argv[4:]))
