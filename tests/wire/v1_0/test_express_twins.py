"""The two twins of the express lane behave the same, octet for octet, whatever happens."""

import random
import sys

import pytest

from router.wire.v1_0._choice_py import Ability, Choice
from router.wire.v1_0.express import make_express
from router.wire.v1_0.state import LinkState
from tests.support.lane_fuzz import converse_over_sockets
from tests.support.lane_world import World, converse
from tests.support.twins import TWINS, make_twin

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


def _next_of_all(choice: Choice, source: LinkState, octets: int) -> LinkState | None:
    """The balanced rule as it reads, by a look at all links."""
    able = [
        link
        for link in choice.links
        if not (link.is_far and source.is_far) and choice.look_at(link, octets) is Ability.ABLE
    ]
    loads = {link: (link.unsettled + link.elsewhere) // link.receivers for link in able}
    return min(able, key=lambda link: (loads[link], link.last_used), default=None)


@pytest.mark.parametrize("seed", range(30))
def test_a_look_at_all_links_would_choose_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(choice: Choice, source: LinkState, octets: int) -> LinkState | None:
        expected = _next_of_all(choice, source, octets)
        chosen = quickly(choice, source, octets)
        assert chosen is expected
        return chosen

    quickly = Choice.choose
    monkeypatch.setattr(Choice, "choose", choose)
    for part in range(4):
        world = World(make_twin("python"), HIGH_OCTETS[part % 3])
        converse([world], 400 + 4 * seed + part, 120)


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
