"""Listening sockets: addresses, and what a reload does to them."""

import resource
import socket
import stat
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from router.model.place import TcpAddress, UnixAddress
from router.net.listener import ListenError
from tests.support.planes import HEADER, dial, house, listener_settings, receive_exactly


async def test_a_reload_opens_what_is_new_closes_what_is_gone_and_leaves_the_rest(
    tmp_path: Path,
) -> None:
    kept, gone, new = (UnixAddress(tmp_path / name) for name in ("kept", "gone", "new"))
    async with house() as at:
        for name in ("kept", "gone", "new"):
            at.listener_settings[name] = listener_settings()
        await at.listeners.configure({"kept": kept, "gone": gone})
        standing = await dial(str(kept))
        leaving = await dial(str(gone))
        for peer in (standing, leaving):
            await peer.send_all(HEADER)
            await receive_exactly(peer, 8)
        with capture_logs() as lines:
            await at.listeners.configure({"kept": kept, "new": new})
        assert [(line["event"], line["listener"]) for line in lines] == [
            ("listener.closed", "gone"),
            ("listener.opened", "new"),
        ]
        for peer in (standing, leaving, await dial(str(new)), await dial(str(kept))):
            await peer.send_all(HEADER)
            assert await receive_exactly(peer, 8) == HEADER
        with pytest.raises(FileNotFoundError):
            await dial(str(gone))


async def test_a_listener_that_moves_is_opened_there_before_it_is_closed_here(
    tmp_path: Path,
) -> None:
    here, there = UnixAddress(tmp_path / "here"), UnixAddress(tmp_path / "there")
    async with house() as at:
        await at.listen(listener_settings(), here)
        await at.listen(listener_settings(), there)
        assert at.listeners.addresses == [str(there)]
        peer = await at.dial()
        await peer.send_all(HEADER)
        assert await receive_exactly(peer, 8) == HEADER


async def test_an_address_that_cannot_be_had_changes_nothing_and_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        blocked = TcpAddress("127.0.0.1", taken.getsockname()[1])
        kept, new = UnixAddress(tmp_path / "kept"), UnixAddress(tmp_path / "new")
        async with house() as at:
            await at.listeners.configure({"kept": kept})
            with pytest.raises(OSError, match="listener blocked: Address already in use"):
                await at.listeners.configure({"new": new, "blocked": blocked})
            assert at.listeners.addresses == [str(kept)]
            assert not (tmp_path / "new").exists()


async def test_a_unix_path_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "router.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with house() as at:
        await at.listen(listener_settings(), UnixAddress(path))
        await at.dial()


async def test_a_unix_path_that_is_in_use_or_no_socket_is_left_alone(tmp_path: Path) -> None:
    used, file = tmp_path / "used", tmp_path / "file"
    file.write_text("precious")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(used))
        other.listen()
        async with house() as at:
            for path in (used, file):
                with pytest.raises(OSError, match="in use"):
                    await at.listen(listener_settings(), UnixAddress(path))
    assert stat.S_ISSOCK(used.stat().st_mode)
    assert file.read_text() == "precious"


async def test_trying_to_open_refuses_what_opening_refuses_and_listens_nowhere(
    tmp_path: Path,
) -> None:
    used, free = UnixAddress(tmp_path / "used"), UnixAddress(tmp_path / "free")
    missing = UnixAddress(tmp_path / "no-folder" / "path")
    async with house() as at:
        at.listener_settings["used"] = listener_settings()
        await at.listeners.configure({"used": used})
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = TcpAddress("127.0.0.1", taken.getsockname()[1])
            for address in (used, port, missing):
                with pytest.raises(ListenError, match="listener new: ") as refused:
                    await at.listeners.try_open({"new": address})
                assert refused.value.listener == "new"
        for address in (free, port):
            await at.listeners.try_open({"new": address, "used": used})  # used is its own
            with pytest.raises(OSError):
                await dial(str(address))


async def test_a_name_with_several_addresses_listens_on_all_of_them_at_one_port() -> None:
    async with house() as at:
        await at.listen(listener_settings(), TcpAddress("", 0))
        ports = {address.rpartition(":")[2] for address in at.listeners.addresses}
        assert len(ports) == 1
        peer = await dial(f"127.0.0.1:{ports.pop()}")
        await peer.send_all(HEADER)
        assert await receive_exactly(peer, 8) == HEADER


async def test_accepting_pauses_while_the_process_is_out_of_descriptors() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        peer = trio.socket.socket()
        probe = socket.socket()
        lowest_free = probe.fileno()
        probe.close()
        host, _, port = at.listeners.addresses[0].rpartition(":")
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            with capture_logs() as lines:
                await peer.connect((host, int(port)))
                with trio.move_on_after(0.25):
                    await trio.sleep_forever()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert 1 <= len([line for line in lines if line["event"] == "listener.paused"]) <= 3
        stream = trio.SocketStream(peer)
        await stream.send_all(HEADER)
        assert await receive_exactly(stream, 8) == HEADER


async def test_congestion_control_can_be_pinned_and_a_wrong_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with house() as at:
        monkeypatch.setenv("ROUTER_TCP_CONGESTION", "reno")
        await at.listen(listener_settings())
        peer = await at.dial()
        await peer.send_all(HEADER)
        await receive_exactly(peer, 8)
        (connection,) = at.plane.switchboard.connections.values()
        chosen = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"
        monkeypatch.setenv("ROUTER_TCP_CONGESTION", "no-such-algorithm")
        with pytest.raises(OSError, match="listener test: No such file or directory"):
            await at.listen(listener_settings(), TcpAddress("127.0.0.2", 0))
