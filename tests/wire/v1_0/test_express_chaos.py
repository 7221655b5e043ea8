"""A kernel among peers that send anything: its counters stay right, and what it writes is whole."""

import random
import sys

import pytest

from tests.support.kernel import make_kernel, needs_kernel
from tests.support.lane_fuzz import converse_over_sockets
from tests.support.lane_world import World, converse, read_whole

pytestmark = needs_kernel

HIGH_OCTETS = (3000, 20_000, 1 << 20)


def _converse(seed: int, steps: int) -> None:
    world = World(make_kernel(), random.Random(seed).choice(HIGH_OCTETS))
    converse(world, seed, steps)
    for received in world.received:
        read_whole(bytes(received))


@pytest.mark.parametrize("seed", range(60))
def test_a_random_conversation_leaves_nothing_behind(seed: int) -> None:
    _converse(seed, 80)


@pytest.mark.skipif(sys.platform != "linux", reason="it needs epoll")
@pytest.mark.parametrize("seed", range(30))
def test_what_goes_over_carried_sockets_is_whole_frames_whatever_comes(seed: int) -> None:
    converse_over_sockets(seed, random.Random(seed).choice(HIGH_OCTETS))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_long_conversations_leave_nothing_behind(block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        _converse(seed, 300)
