"""A successor on the same state directory takes the listening sockets over."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from router.service.handover import SOCKET_NAME, Handover, UnansweredError, take_over

Named = tuple[str, socket.socket]


def handover(
    state: Path,
    sockets: Sequence[Named] = (),
    admin: Sequence[socket.socket] = (),
    leave: Callable[[], None] = lambda: None,
) -> Handover:
    """Waits for successors from now on; ``begin`` has been called."""
    made = Handover(
        state=state,
        router="r",
        config="/r.yaml",
        sockets=lambda: sockets,
        admin=lambda: admin,
        leave=leave,
    )
    made.open()
    made.begin()
    return made


def listening() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


async def test_a_successor_gets_all_sockets_and_the_old_one_leaves_when_it_is_ready(
    tmp_path: Path,
) -> None:
    ours, admin = [listening(), listening()], [listening()]
    has_left = trio.Event()
    old = handover(tmp_path, [*zip("ab", ours, strict=True)], admin, has_left.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        takeover = await take_over(tmp_path)
        assert takeover is not None
        assert (takeover.router, takeover.process) == ("r", os.getpid())
        assert [port_of(sock) for sock in takeover.sockets] == [port_of(sock) for sock in ours]
        assert [port_of(sock) for sock in takeover.admin] == [port_of(sock) for sock in admin]
        assert not takeover.keeps_admin
        assert not has_left.is_set()
        takeover.complete()
        with trio.fail_after(60):
            await has_left.wait()
    assert not old.is_waited_for
    assert not old.is_deserted
    dialed = socket.create_connection(takeover.sockets[0].getsockname())
    ours[0].close()  # the queue is shared: who has dialed is still there
    accepted, _ = takeover.sockets[0].accept()
    for sock in (dialed, accepted, ours[1], *admin, *takeover.sockets, *takeover.admin):
        sock.close()


async def test_a_successor_that_dies_changes_nothing_and_the_next_one_is_served(
    tmp_path: Path,
) -> None:
    ours = listening()
    has_left = trio.Event()
    old = handover(tmp_path, [("a", ours)], leave=has_left.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        first = await take_over(tmp_path)
        assert first is not None
        first.give_back()
        second = await take_over(tmp_path)
        assert second is not None
        assert not has_left.is_set()
        second.complete()
        with trio.fail_after(60):
            await has_left.wait()
    assert all(sock.fileno() == -1 for sock in first.sockets)
    for sock in (ours, *second.sockets):
        sock.close()


async def test_where_nobody_runs_there_is_nothing_to_take_over(tmp_path: Path) -> None:
    assert await take_over(tmp_path) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(tmp_path / SOCKET_NAME))
    assert await take_over(tmp_path) is None  # its file has outlived it


@pytest.mark.parametrize("before_us", [0, 3])
async def test_one_that_says_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, before_us: int
) -> None:
    with ExitStack() as stack:
        hung = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        hung.bind(str(tmp_path / SOCKET_NAME))
        hung.listen(1)
        for _ in range(before_us):  # its queue is full: not even its process can be told
            other = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            other.setblocking(False)
            with suppress(BlockingIOError):
                other.connect(str(tmp_path / SOCKET_NAME))
        with pytest.raises(UnansweredError, match="no answer within 45 s") as raised:
            await take_over(tmp_path, drain_seconds=30)
        assert raised.value.process == (0 if before_us else os.getpid())


async def test_a_successor_that_comes_before_its_predecessor_serves_is_answered_then(
    tmp_path: Path,
) -> None:
    old = Handover(
        state=tmp_path,
        router="r",
        config="/r.yaml",
        sockets=list,
        admin=list,
        leave=lambda: None,
    )
    old.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        with trio.move_on_after(0.05):
            raise AssertionError(await take_over(tmp_path))
        old.begin()
        takeover = await take_over(tmp_path)
        assert takeover is not None
        takeover.complete()


@pytest.mark.parametrize("is_alive", [True, False])
async def test_one_that_is_waited_for_knows_whether_its_successor_still_waits(
    tmp_path: Path, is_alive: bool
) -> None:
    has_left = trio.Event()
    old = handover(tmp_path, leave=has_left.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        takeover = await take_over(tmp_path)
        assert takeover is not None
        takeover.begin_to_wait()
        with trio.fail_after(60):
            await has_left.wait()
        assert old.is_waited_for
        if not is_alive:
            takeover.give_back()
        assert old.is_deserted is not is_alive
        takeover.give_back()


async def test_the_name_goes_with_its_owner_but_not_with_a_predecessor(tmp_path: Path) -> None:
    path = tmp_path / SOCKET_NAME
    old = handover(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    new = handover(tmp_path)
    for each, is_left in ((old, True), (new, False)):
        with trio.CancelScope() as scope:
            scope.cancel()
            await each.run()
        assert path.exists() is is_left
