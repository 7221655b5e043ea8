"""Rules of AMQP 1.0 against a running router with two workers, frame by frame."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.framed import Framed
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

FILE = """
router: {id: under-test, workers: 2, admin: off, drain_seconds: 0, state: ./state}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: orders}, {address: "prices.#", distribution: multicast}]
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRouter]:
    with running_router(FILE, tmp_path_factory.mktemp("router")) as running:
        yield running


@pytest.fixture(scope="module")
def port(router: RunningRouter) -> int:
    return int(address_of(router).rpartition(":")[2])


async def test_sockets_have_keep_alive(port: int) -> None:
    """The kernel says of each socket which timer runs: 02 is that of keep-alive."""
    peer = await Framed.dial(port, "alive")
    await peer.read_for(0.5)
    theirs = peer.stream.socket.getsockname()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [row for row in rows if row[1].endswith(f":{port:04X}")]
    (row,) = [row for row in ends if row[2].endswith(f":{theirs:04X}")]
    assert row[5].startswith("02:")
    await peer.lose()
