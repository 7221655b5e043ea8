"""How the supervisor connects workers: another socket pair for those that take too long."""

import itertools
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from router.service.config import load
from router.service.errands import WorkerReport
from router.service.lives import WaitingClients
from router.service.member import Stage
from router.service.supervisor import JOIN_SECONDS, LONGEST_JOIN_SECONDS, Supervisor

LOOKS = 300


def make_supervisor(directory: Path) -> Supervisor:
    """Makes one whose two workers are up."""
    file = directory / "router.yaml"
    file.write_text("router: {workers: 2, admin: off}")
    supervisor = Supervisor(load(file), True)
    for member in supervisor._members:
        member.stage = Stage.UP
    return supervisor


def given(supervisor: Supervisor) -> int:
    """Returns how many socket pairs the first worker has been given since the last call."""
    for member in supervisor._members:
        count = len(member._joints.parcels) // 2
        while member._joints.parcels:
            member._joints.parcels.popleft().sock.close()
    return count


async def pauses(supervisor: Supervisor) -> list[float]:
    """Lets the supervisor look for a while, and returns the seconds between two pairs."""
    times = []
    for _ in range(LOOKS):
        supervisor._join_up()
        if given(supervisor):
            times.append(trio.current_time())
        await trio.sleep(JOIN_SECONDS / 2)
    return [after - before for before, after in itertools.pairwise(times)]


async def test_workers_that_are_slow_to_connect_have_longer_each_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    waited = await pauses(make_supervisor(tmp_path))
    assert waited[:3] == pytest.approx([JOIN_SECONDS, 2 * JOIN_SECONDS, 4 * JOIN_SECONDS])
    assert waited == sorted(waited)
    assert max(waited) == pytest.approx(LONGEST_JOIN_SECONDS)


async def test_workers_that_were_connected_are_again_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    supervisor = make_supervisor(tmp_path)
    await pauses(supervisor)
    one, two = supervisor._members
    one.report, two.report = WorkerReport(siblings=(2,)), WorkerReport(siblings=(1,))
    supervisor._join_up()
    assert given(supervisor) == 0
    one.report = two.report = WorkerReport()
    supervisor._join_up()
    assert given(supervisor) == 1


async def test_a_new_process_is_connected_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    supervisor = make_supervisor(tmp_path)
    await pauses(supervisor)
    two = supervisor._members[1]
    two.is_retired = True
    supervisor._went_down(two, [])
    supervisor._join_up()
    assert given(supervisor) == 1


async def test_connections_that_no_worker_takes_yet_are_counted_until_one_does(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    supervisor = make_supervisor(tmp_path)
    name = "127.0.0.1:5672"
    for member in supervisor._members:
        assert not member.is_open
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with theirs:
            supervisor.admit(ours, name)
        await trio.sleep(3.0)
    assert supervisor.waiting == WaitingClients(2, 6.0)
    first = supervisor._members[0]
    supervisor._open_up(first, is_late=True)
    assert supervisor.waiting.connections == 0
    while first._doors.parcels:
        first._doors.parcels.popleft().sock.close()
    assert str(WaitingClients(1, 6.0)) == "1 accepted connection waits for a worker"
