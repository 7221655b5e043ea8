"""Ports for what tests start keep apart: from the kernel's choice, and from other processes."""

import socket
import subprocess
import sys

import pytest

from tests.support import ports
from tests.support.ports import NoPortError


def test_ports_are_outside_of_the_ephemeral_range() -> None:
    low, high = ports.ephemeral_range()
    found = [ports.free_port() for _ in range(10)]
    assert len(set(found)) == len(found)
    assert not [port for port in found if low <= port <= high]


@pytest.mark.parametrize(
    ("ephemeral", "count", "first", "last"),
    [
        ((32768, 60999), 135, 10_000, 65_399),
        ((1024, 40_000), 127, 40_001, 65_400),
        ((1024, 65_535), 277, 10_000, 65_399),
    ],
    ids=["Linux", "above only", "nothing outside"],
)
def test_blocks_are_disjoint_and_outside_where_that_is_possible(
    ephemeral: tuple[int, int], count: int, first: int, last: int
) -> None:
    blocks = ports.blocks(ephemeral)
    assert len(blocks) == count
    assert (blocks[0][0], blocks[-1][-1]) == (first, last)
    everything = [port for block in blocks for port in block]
    assert len(set(everything)) == count * ports.BLOCK_SIZE


def test_another_process_is_given_other_ports() -> None:
    ours = ports.free_port()
    script = "from tests.support.ports import free_port; print(free_port())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert abs(int(done.stdout) - ours) >= 1
    assert int(done.stdout) // ports.BLOCK_SIZE != ours // ports.BLOCK_SIZE


def test_a_block_is_free_again_when_its_owner_has_ended() -> None:
    candidates = ports.blocks(ports.ephemeral_range())[-2:]
    first, block = ports.claim(candidates)
    second, other = ports.claim(candidates)
    assert {block, other} == set(candidates)
    with pytest.raises(NoPortError):
        ports.claim(candidates)
    first.close()
    again, found = ports.claim(candidates)
    assert found == block
    for held in (second, again):
        held.close()


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    upcoming = ports.free_port() + 1
    with socket.create_server(("127.0.0.1", upcoming)):
        assert ports.free_port() != upcoming
