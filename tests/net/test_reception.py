"""From accept to the data plane: detection, refusal, deadlines, TLS."""

import contextlib
import ssl
from pathlib import Path

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from router.model.capabilities import Protocol
from router.model.place import UnixAddress
from router.net import farewell, reception
from router.net.reception import Transport
from router.net.tls_files import TlsContext, TlsFiles
from router.wire.detect import Door, TlsOffer
from router.wire.engine import Engine
from tests.support.plain import PlainEngine
from tests.support.planes import (
    HEADER,
    SASL_HEADER,
    TLS_HEADER,
    Papers,
    house,
    listener_settings,
    papers,
    receive_exactly,
    receive_rest,
    set_clock,
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


async def test_the_engine_gets_every_octet_from_the_first_on() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        for octet in HEADER:
            await peer.send_all(bytes([octet]))
            await wait_all_tasks_blocked()
        await peer.send_all(b"and more")
        assert await receive_exactly(peer, 16) == HEADER + b"and more"


async def test_every_protocol_is_told_apart_on_one_port_by_its_first_octets() -> None:
    chosen: list[Protocol] = []

    def make(protocol: Protocol, transport: Transport) -> Engine:
        chosen.append(protocol)
        return PlainEngine()

    starts = {
        Protocol.AMQP_1_0: HEADER,
        Protocol.AMQP_0_9_1: b"AMQP\x00\x00\x09\x01",
        Protocol.AMQP_0_10: b"AMQP\x01\x01\x00\x0a",
        Protocol.AMQP_0_9R1: b"AMQP\x01\x01\x09\x01",
        Protocol.AMQP_FAST: b"\x80\x01",  # and nothing behind it until the server has spoken
    }
    everything = attrs.evolve(listener_settings(make), door=Door(protocols=frozenset(Protocol)))
    async with house() as at:
        await at.listen(everything)
        for protocol in Protocol:
            peer = await at.dial()
            await peer.send_all(starts[protocol])
            assert await receive_exactly(peer, len(starts[protocol])) == starts[protocol]
            assert chosen.pop() is protocol
            await peer.aclose()


async def test_a_peer_on_a_unix_socket_is_received_likewise(tmp_path: Path) -> None:
    async with house() as at:
        address = await at.listen(listener_settings(), UnixAddress(tmp_path / "router.sock"))
        assert address == f"unix:{tmp_path}/router.sock"
        peer = await at.dial()
        await peer.send_all(HEADER)
        assert await receive_exactly(peer, 8) == HEADER
    assert not (tmp_path / "router.sock").exists()


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP is not served on this port"),
        (b"AMQP\x00\x00\x09\x01", "AMQP 0 0 9 1 is not served on this port"),
        (b"\x80\x01", "AMQP/Fast is not served on this port"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS is not served on this port"),
        (b"\xff" * 300_000, "the first octets are of no AMQP"),
    ],
)
async def test_who_is_not_served_is_told_what_is_and_sees_the_end(
    octets: bytes, reason: str
) -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        with capture_logs() as lines:
            await peer.send_all(octets)
            assert await receive_rest(peer) == HEADER
            await peer.aclose()
        assert [line["reason"] for line in lines if line["event"] == "connection.refused"] == [
            reason
        ]


async def test_a_peer_that_says_too_little_is_told_what_is_served_and_parted_from(
    autojump_clock: MockClock,
) -> None:
    async with house() as at:
        await at.listen(listener_settings())
        for said in (b"", b"AMQP\x00\x01\x00"):
            peer = await at.dial()
            await peer.send_all(said)
            started = trio.current_time()
            assert await receive_rest(peer) == HEADER
            assert trio.current_time() - started == pytest.approx(15)
            await peer.aclose()


async def test_a_refused_peer_that_stays_is_left_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        await peer.send_all(b"\x00")
        assert await receive_rest(peer) == HEADER
        started = trio.current_time()
        while at.reception.parting_count:
            await trio.sleep(0.1)
        assert trio.current_time() - started == pytest.approx(farewell.PART_SECONDS, abs=0.2)
        await peer.aclose()


async def test_a_refused_peer_that_says_ever_more_is_left_at_last() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                await peer.send_all(bytes(1 << 16))
        assert not at.reception.parting_count


async def test_of_too_many_refused_peers_that_stay_the_oldest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(farewell, "PARTING_MOST", 3)
    monkeypatch.setattr(farewell, "PART_SECONDS", 3600)
    async with house() as at:
        await at.listen(listener_settings())
        peers = []
        for _ in range(5):
            peers.append(await at.dial())
            await peers[-1].send_all(b"\x00")
            assert await receive_rest(peers[-1]) == HEADER
        assert at.reception.parting_count == 3
        for peer in peers:
            await peer.aclose()
        while at.reception.parting_count:
            await trio.sleep(0.01)


async def test_nobody_is_accepted_while_the_account_is_empty() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        stopped = [0.0]
        set_clock(at.plane, lambda: stopped[0])  # by which nothing is ever earned
        at.plane.allowance.spend(3600)
        peer = await at.dial()  # the kernel answers
        await peer.send_all(b"\x00")
        with trio.move_on_after(1.0):
            await receive_rest(peer)
            raise AssertionError("it was accepted")
        stopped[0] = 3600.0
        assert await receive_rest(peer) == HEADER


async def test_of_too_many_unfinished_handshakes_the_oldest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reception, "HANDSHAKES_MOST", 3)
    async with house() as at:
        await at.listen(listener_settings())
        peers = []
        with capture_logs() as lines:
            for _ in range(5):
                peers.append(await at.dial())
                await wait_all_tasks_blocked()
        assert at.reception.handshake_count == 3
        assert [line["reason"] for line in lines] == ["3 others came after it"] * 2
        assert await receive_rest(peers[0]) == b""
        assert await receive_rest(peers[1]) == b""
        await peers[2].send_all(HEADER)
        assert await receive_exactly(peers[2], 8) == HEADER


async def test_a_defect_while_the_engine_is_made_ends_one_connection() -> None:
    def fail(protocol: Protocol, transport: Transport) -> Engine:
        raise ZeroDivisionError("a defect")

    async with house() as at:
        await at.listen(listener_settings(fail))
        peer = await at.dial()
        with capture_logs() as lines:
            await peer.send_all(HEADER)
            assert await receive_rest(peer) == b""
        assert [line["event"] for line in lines] == ["connection.failed"]


def over_tls(
    stream: trio.SocketStream, context: ssl.SSLContext
) -> trio.SSLStream[trio.SocketStream]:
    return trio.SSLStream(stream, context, server_hostname="localhost")


@pytest.mark.parametrize("offer", [TlsOffer.OFFERED, TlsOffer.REQUIRED])
async def test_a_client_hello_begins_tls_and_the_protocol_follows_inside(
    signed: Papers, offer: TlsOffer
) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(tls=context, offer=offer))
        peer = over_tls(await at.dial(), signed.client_context())
        await peer.send_all(HEADER + b"pipelined")
        assert await receive_exactly(peer, 17) == HEADER + b"pipelined"
        octets = bytes(range(128, 256)) * 8000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, octets)
            assert await receive_exactly(peer, len(octets)) == octets


async def test_tls_may_be_asked_for_by_the_header_that_amqp_has_for_it(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(tls=context))
        plain = await at.dial()
        await plain.send_all(TLS_HEADER)
        assert await receive_exactly(plain, 8) == TLS_HEADER
        peer = over_tls(plain, signed.client_context())
        await peer.send_all(SASL_HEADER)
        assert await receive_exactly(peer, 8) == SASL_HEADER


async def test_inside_tls_a_refusal_is_answered_inside_tls(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(tls=context))
        for octets in (b"GET / HTTP/1.1\r\n\r\n", TLS_HEADER):
            peer = over_tls(await at.dial(), signed.client_context())
            await peer.send_all(octets)
            assert await receive_rest(peer) == HEADER


async def test_without_tls_nothing_is_served_where_tls_is_required(signed: Papers) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(tls=context, offer=TlsOffer.REQUIRED))
        peer = await at.dial()
        await peer.send_all(HEADER)
        assert await receive_rest(peer) == TLS_HEADER


async def test_the_engine_is_told_whose_certificate_the_peer_showed(signed: Papers) -> None:
    transports = []

    def make(protocol: Protocol, transport: Transport) -> Engine:
        transports.append(transport)
        return PlainEngine()

    context = TlsContext(signed.server_files(verify=True), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(make, tls=context))
        peer = over_tls(await at.dial(), signed.client_context())
        await peer.send_all(HEADER)
        await receive_exactly(peer, 8)
        assert transports == [Transport(is_tls=True, identity="app")]


async def test_a_peer_without_the_certificate_that_is_asked_for_is_refused(
    signed: Papers,
) -> None:
    context = TlsContext(signed.server_files(verify=True), TlsFiles.server_context)
    async with house() as at:
        await at.listen(listener_settings(tls=context))
        nobody = ssl.create_default_context(cafile=str(signed.authorities))
        peer = over_tls(await at.dial(), nobody)
        with capture_logs() as lines:
            await peer.send_all(HEADER)
            with pytest.raises(trio.BrokenResourceError):
                await peer.receive_some()
        assert [line["reason"] for line in lines] == ["peer did not return a certificate"]


async def test_a_tls_handshake_that_stops_half_way_is_given_up(
    signed: Papers, autojump_clock: MockClock
) -> None:
    context = TlsContext(signed.server_files(), TlsFiles.server_context, lambda: 0.0)
    async with house() as at:
        await at.listen(listener_settings(tls=context))
        peer = await at.dial()
        await peer.send_all(b"\x16\x03\x01\x02\x00\x01\x00\x01")
        with capture_logs() as lines:
            assert await receive_rest(peer) == b""
        assert lines[0]["reason"] == "no end of the TLS handshake within 15 s"
        await peer.aclose()


@pytest.mark.parametrize(
    ("field", "identity"),
    [
        ("common-name", "app"),
        ("san-dns", "client.example"),
        ("san-email", "app@client.example"),
        ("san-uri", None),
    ],
)
async def test_the_field_of_the_certificate_that_names_the_peer_can_be_chosen(
    signed: Papers, field: str, identity: str | None
) -> None:
    transports = []

    def make(protocol: Protocol, transport: Transport) -> Engine:
        transports.append(transport)
        return PlainEngine()

    context = TlsContext(signed.server_files(verify=True), TlsFiles.server_context)
    async with house() as at:
        await at.listen(attrs.evolve(listener_settings(make, tls=context), identity_field=field))
        peer = over_tls(await at.dial(), signed.client_context())
        await peer.send_all(HEADER)
        await receive_exactly(peer, 8)
        assert transports == [Transport(is_tls=True, identity=identity)]


async def test_the_whole_subject_names_the_peer_if_that_is_chosen(signed: Papers) -> None:
    transports = []

    def make(protocol: Protocol, transport: Transport) -> Engine:
        transports.append(transport)
        return PlainEngine()

    context = TlsContext(signed.server_files(verify=True), TlsFiles.server_context)
    async with house() as at:
        await at.listen(
            attrs.evolve(listener_settings(make, tls=context), identity_field="subject")
        )
        peer = over_tls(await at.dial(), signed.client_context())
        await peer.send_all(HEADER)
        await receive_exactly(peer, 8)
        assert transports[0].identity is not None
        assert transports[0].identity.endswith("commonName=app")
