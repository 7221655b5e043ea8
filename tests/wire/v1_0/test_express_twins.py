"""The two twins of the express lane behave the same, octet for octet, whatever happens."""

import random
import sys

import pytest

from router.wire.v1_0.express import make_express
from tests.support.lane_fuzz import converse_over_sockets
from tests.support.lane_world import World, converse
from tests.support.twins import TWINS

HIGH_OCTETS = (3000, 20_000, 1 << 20)


def _converse(seed: int, steps: int) -> None:
    high_octets = random.Random(seed).choice(HIGH_OCTETS)
    worlds = []
    for twin in TWINS:
        express = make_express(twin)
        assert express is not None
        worlds.append(World(express, high_octets))
    converse(worlds, seed, steps)


@pytest.mark.parametrize("seed", range(60))
def test_twins_agree_on_a_random_conversation(seed: int) -> None:
    _converse(seed, 80)


@pytest.mark.skipif("cython" not in TWINS, reason="only the compiled twin has a carrier")
@pytest.mark.skipif(sys.platform != "linux", reason="it needs epoll")
@pytest.mark.parametrize("seed", range(30))
def test_what_goes_over_carried_sockets_is_whole_frames_whatever_comes(seed: int) -> None:
    converse_over_sockets(seed, random.Random(seed).choice(HIGH_OCTETS))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_twins_agree_on_many_long_conversations(block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        _converse(seed, 300)
