"""One worker as its supervisor sees it: its load, its lives, and what it was not given."""

import itertools
import socket
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from router.core.passage import HOME_WAIT_SECONDS
from router.service.channel import Channel, Question, receive_socket
from router.service.errands import Duty, WorkerReport
from router.service.member import PAUSE_LIMIT_SECONDS, Member, Parcel, Stage


@attrs.define(eq=False, kw_only=True)
class Sleeper(Member):
    """A member whose process says nothing and does nothing.

    Attributes:
        spawned: processes so far.
        ends: the last process's of doors and joints.
    """

    ends: list[socket.socket] = attrs.field(factory=list, init=False)
    spawned: list[trio.Process] = attrs.field(factory=list, init=False)

    async def _spawn(self) -> trio.Process:
        ours, _ = socket.socketpair()
        ours.setblocking(False)
        self.ends = [self._doors.make(), self._joints.make()]
        self.channel = Channel(stream=trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        self.spawned.append(await trio.lowlevel.open_process(["sleep", "1000"]))
        return self.spawned[-1]

    async def _begin(self) -> None:
        await trio.sleep_forever()


@attrs.define(eq=False)
class Told:
    """What a member has called."""

    fared: int = 0
    down: list[list[Parcel]] = attrs.field(factory=list)

    def member(self) -> Sleeper:
        return Sleeper(
            number=1,
            duty=_duty,
            came_up=lambda _: None,
            fared=self._fared,
            went_down=lambda _, parcels: self.down.append(parcels),
        )

    def _fared(self, member: Member) -> None:
        self.fared += 1


@attrs.define(eq=False, kw_only=True)
class Failing(Sleeper):
    """A member whose processes end as soon as they are started.

    Attributes:
        began: when each of them was.
    """

    began: list[float] = attrs.field(factory=list, init=False)

    async def _live(self) -> None:
        self.began.append(trio.current_time())
        self._failures += 1
        self.is_retired = len(self.began) == 30


def _duty() -> Duty:
    raise AssertionError("nobody is asked to work here")


def parcel(listener: str | None = "in", source: str | None = None) -> Parcel:
    return Parcel({}, socket.socket(), listener, source)


def test_what_it_has_been_given_counts_until_it_reports() -> None:
    told = Told()
    member = told.member()
    for source in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        member.give(parcel(source=source))
    member.give(parcel(listener=None))  # leads to a sibling
    assert (member.load.connections, member.load.handed) == (3, 3)
    assert member.count_from("10.0.0.1") == 2
    member._keep_report(
        WorkerReport(taken=2, connections=2, sources={"10.0.0.1": 1, "10.0.0.2": 1})
    )
    assert (member.load.connections, told.fared) == (3, 1)
    assert member.count_from("10.0.0.1") == 2
    member._keep_report(WorkerReport(taken=3, connections=1))
    assert (member.load.connections, member.load.handed) == (1, 3)
    assert member.count_from("10.0.0.1") == member.count_from(None) == 0


def test_a_claim_to_containers_ends_with_the_first_failure_until_it_serves_again() -> None:
    member = Told().member()
    claims = [member.has_claim]
    member._failures = 1
    claims.append(member.has_claim)
    member.stage = Stage.UP
    claims.append(member.has_claim)
    member.is_retired = True
    claims.append(member.has_claim)
    assert claims == [True, False, True, False]


@attrs.define(eq=False)
class Asked:
    """A channel that answers everything."""

    names: list[str] = attrs.field(factory=list)

    async def ask(self, question: Question[Any], *arguments: object) -> Any:
        self.names.append(question.name)
        return "off"


async def test_a_process_prepares_itself_and_serves_when_it_may_begin() -> None:
    came_up: list[Member] = []
    member = Member(
        number=1,
        duty=lambda: None,  # type: ignore[arg-type,return-value]
        came_up=came_up.append,
        fared=lambda _: None,
        went_down=lambda *_: None,
    )
    asked = Asked()
    member.channel = asked  # type: ignore[assignment]
    member.stage = Stage.STARTING
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member._begin)
        await trio.testing.wait_all_tasks_blocked()
        assert asked.names == ["get_ready"]
        assert not came_up
        member._process = await trio.lowlevel.open_process(["true"])
        member.may_begin.set()
    assert asked.names == ["get_ready", "begin"]
    assert came_up == [member]
    assert member.is_up


async def start(member: Sleeper, nursery: trio.Nursery) -> None:
    """Runs a member, until it has a process."""
    nursery.start_soon(member.run)
    with trio.fail_after(60):
        while not member.spawned:
            await trio.sleep(0.01)


async def test_sockets_to_siblings_do_not_wait_behind_clients() -> None:
    told = Told()
    member = told.member()
    async with trio.open_nursery() as nursery:
        await start(member, nursery)
        for _ in range(2000):
            member.give(parcel())
        member.give(parcel(listener=None))
        joints = member.ends[1]
        joints.setblocking(False)
        with trio.fail_after(60):
            received = await receive_socket(joints)
        assert received is not None
        received[1].close()
        assert member._doors.parcels  # nobody reads them
        member.is_retired = True
        member.kill()
    for each in told.down[0]:
        each.sock.close()


@pytest.mark.parametrize("was_up", [True, False])
async def test_when_its_process_ends_another_follows_and_what_it_was_not_given_comes_back(
    was_up: bool,
) -> None:
    told = Told()
    member = told.member()
    async with trio.open_nursery() as nursery:
        await start(member, nursery)
        if was_up:
            member.stage, member.is_open = Stage.UP, True
        left = parcel()
        member._doors.parcels.append(left)  # they are full
        member.kill()
        with trio.fail_after(60):
            while len(member.spawned) < 2:
                await trio.sleep(0.01)
        assert told.down == [[left]]
        assert not member.is_open
        assert member.load.connections == 0
        member.is_retired = True
        member.kill()
    assert len(member.spawned) == 2


async def test_links_wait_longer_for_their_home_than_it_pauses_between_two_lives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    member = Failing(
        number=1,
        duty=_duty,
        came_up=lambda _: None,
        fared=lambda _: None,
        went_down=lambda *_: None,
    )
    await member.run()
    pauses = [after - before for before, after in itertools.pairwise(member.began)]
    assert PAUSE_LIMIT_SECONDS / 2 <= max(pauses) <= HOME_WAIT_SECONDS / 2
