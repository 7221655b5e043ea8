"""A successor on the same state directory takes the listening sockets over."""

import os
import socket
from pathlib import Path

import trio

from router.service.handover import SOCKET_NAME, Handover, take_over


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
    ours = [listening(), listening()]
    has_left = trio.Event()
    old = Handover(tmp_path, "r", lambda: zip("ab", ours, strict=True), has_left.set)
    old.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        takeover = await take_over(tmp_path)
        assert takeover is not None
        assert (takeover.router, takeover.process) == ("r", os.getpid())
        assert [port_of(sock) for sock in takeover.sockets] == [port_of(sock) for sock in ours]
        assert not has_left.is_set()
        await takeover.complete(waits_for_end=False)
        with trio.fail_after(60):
            await has_left.wait()
    dialed = socket.create_connection(takeover.sockets[0].getsockname())
    ours[0].close()  # the queue is shared: who has dialed is still there
    accepted, _ = takeover.sockets[0].accept()
    for sock in (dialed, accepted, ours[1], *takeover.sockets):
        sock.close()


async def test_a_successor_that_dies_changes_nothing_and_the_next_one_is_served(
    tmp_path: Path,
) -> None:
    ours = listening()
    has_left = trio.Event()
    old = Handover(tmp_path, "r", lambda: [("a", ours)], has_left.set)
    old.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run)
        first = await take_over(tmp_path)
        assert first is not None
        first.give_back()
        second = await take_over(tmp_path)
        assert second is not None
        assert not has_left.is_set()
        await second.complete(waits_for_end=False)
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


async def test_one_that_says_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung:
        hung.bind(str(tmp_path / SOCKET_NAME))
        hung.listen(1)
        assert await take_over(tmp_path) is None


async def test_the_name_goes_with_its_owner_but_not_with_a_predecessor(tmp_path: Path) -> None:
    old = Handover(tmp_path, "r", list, lambda: None)
    new = Handover(tmp_path, "r", list, lambda: None)
    path = tmp_path / SOCKET_NAME
    old.open()
    assert path.stat().st_mode & 0o777 == 0o600
    new.open()
    for each, is_left in ((old, True), (new, False)):
        with trio.CancelScope() as scope:
            scope.cancel()
            await each.run()
        assert path.exists() is is_left
