"""TLS streams: what comes and goes, in whatever pieces, and how they end."""

import _decimal
import os
import random
import socket
import ssl
import sys
from pathlib import Path
from typing import cast

import pytest
import trio

from router.errors import MisuseError
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.events import ConnectionClosed, Event, OutputPending
from router.net import tls_stream
from router.net.tls import (
    FORGIVING_OCTETS,
    IDLE_RECORDS,
    Idleness,
    TlsError,
    TlsSession,
    resumable,
)
from router.net.tls_stream import (
    MARGIN_OCTETS,
    TOO_IDLE,
    MemoryStream,
    explained,
    open_stream,
    why_slower,
)
from tests.support.plain import stream_pair
from tests.support.planes import papers
from tests.support.tls_ends import (
    KINDS,
    Contexts,
    Unusual,
    compiled_streams,
    ends,
    is_unusual_possible,
    make_contexts,
    make_stream,
    shake_hands,
)

each_kind = pytest.mark.parametrize("kind", KINDS)
needs_openssl = pytest.mark.skipif(
    "openssl" not in KINDS, reason="it was not built, or cannot be used here"
)
needs_functions = pytest.mark.skipif(
    not is_unusual_possible(), reason="this Python's OpenSSL cannot be called"
)


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="this Python may have another OpenSSL")
def test_the_compiled_stream_is_tried_in_ci() -> None:
    """Else its tests would leave themselves out, and nobody would see."""
    assert why_slower() is None


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return make_contexts(tmp_path_factory.mktemp("papers"))


@each_kind
def test_what_came_with_the_handshake_is_read_first(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"early") as at:
        at.line.sendall(at.tell(b"late"))
        assert at.receive() == b"early"
        assert at.receive() == b"late"


@each_kind
def test_nothing_has_come_with_the_handshake(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts) as at:
        with pytest.raises(BlockingIOError):
            at.receive()
        with pytest.raises(BlockingIOError):
            at.receive()
        assert not at.stream.is_over


@each_kind
@pytest.mark.parametrize("seed", range(3))
def test_octets_arrive_in_order_however_the_stream_is_cut(
    kind: str, seed: int, contexts: Contexts
) -> None:
    choice = random.Random(seed)
    with ends(kind, contexts, early=b"!") as at:
        got = at.receive()
        sent = b"!"
        for _ in range(60):
            octets = choice.randbytes(choice.choice((1, 100, 16_384, 40_000)))
            sent += octets
            sealed = at.tell(octets)
            while sealed:
                cut = choice.choice((1, 5, 3000, 20_000))
                at.line.sendall(sealed[:cut])
                sealed = sealed[cut:]
                try:
                    got += at.receive(choice.choice((1, 200, 16_384, 200_000)))
                except BlockingIOError:
                    continue
        while len(got) < len(sent):
            got += at.receive()
        assert got == sent
        assert at.stream.octets_in > len(sent) - 1


@each_kind
def test_what_has_been_received_is_decrypted_in_the_same_call(
    kind: str, contexts: Contexts
) -> None:
    """Or epoll would not report it again."""
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        at.line.sendall(b"".join(at.tell(bytes([number]) * 500) for number in range(100)))
        assert len(at.receive()) == 50_000
        with pytest.raises(BlockingIOError):
            at.ours.recv(1)


@each_kind
@pytest.mark.parametrize("octets", [1, 16_384, 16_385, 100_000, 1_000_000])
def test_octets_of_any_number_are_sent(kind: str, octets: int, contexts: Contexts) -> None:
    sent = random.Random(octets).randbytes(octets)
    with ends(kind, contexts) as at:
        rest = memoryview(sent)
        heard = b""
        while rest:
            rest = rest[at.stream.send(rest) :]
            while not at.stream.flush():
                heard += at.hear()
            heard += at.hear()
        assert heard == sent
        assert at.stream.octets_out > octets


@each_kind
def test_a_socket_that_accepts_no_more_has_the_rest_wait(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, buffer_octets=4096) as at:
        sent = random.Random(1).randbytes(200_000)
        count = at.stream.send(sent)
        assert at.stream.waiting_octets
        with pytest.raises(BlockingIOError):
            at.stream.send(b"more")
        assert not at.stream.flush()
        heard = at.hear()
        while at.stream.waiting_octets:
            at.stream.flush()
            heard += at.hear()
        assert heard == sent[:count]
        assert at.stream.send(b"more") == 4
        assert at.hear() == b"more"


@each_kind
def test_close_notify_ends_what_comes_and_not_what_goes(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        last = at.tell(b"the last")
        with pytest.raises(ssl.SSLWantReadError):
            at.peer.tls.unwrap()
        at.line.sendall(last + at.peer.outgoing.read())
        assert at.receive() == b"the last"
        assert at.stream.is_over
        assert at.receive() == b""
        assert not at.stream.saw_end
        assert at.stream.alert is None
        assert at.stream.send(b"an answer") == 9
        at.stream.finish()
        at.stream.finish()
        assert at.stream.flush()
        heard = at.line.recv(1 << 16)
        at.peer.receive(heard)
        assert at.peer.tls.read() == b"an answer"
        at.peer.tls.unwrap()  # returns: the close_notify has come


@each_kind
def test_the_end_of_the_stream_ends_tls_without_a_close_notify(
    kind: str, contexts: Contexts
) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        at.line.sendall(at.tell(b"cut")[:-1])
        at.line.shutdown(socket.SHUT_WR)
        with pytest.raises(BlockingIOError):
            at.receive()
        assert at.receive() == b""
        assert at.stream.is_over
        assert at.stream.saw_end


@each_kind
def test_octets_that_are_no_record_end_tls_and_the_peer_is_told(
    kind: str, contexts: Contexts
) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        good = at.tell(b"good")
        bad = bytearray(at.tell(b"bad"))
        bad[-1] ^= 1
        at.line.sendall(good + bytes(bad))
        assert at.receive() == b"good"
        assert at.stream.is_over
        assert at.stream.alert is None
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            at.hear()
        assert at.stream.send(b"in vain") == 7
        at.stream.finish()
        assert at.stream.flush()
        with pytest.raises(BlockingIOError):
            at.line.recv(1)


@each_kind
def test_the_alert_of_a_peer_says_why(kind: str, contexts: Contexts, tmp_path: Path) -> None:
    demanding = TlsSession(contexts.signed.server_files(verify=True).server_context())
    nobody = ssl.create_default_context(cafile=str(contexts.signed.authorities))
    client = TlsSession(nobody, "localhost")
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        shake_hands(client, demanding)
    client.receive(demanding.outgoing.read())
    ours, line = stream_pair(None)
    with ours, line:
        stream = make_stream(kind, client, ours)
        assert stream.receive_into(memoryview(bytearray(1 << 18)), 1000) == 0
        assert stream.alert == "TLS alert of the peer: certificate required"


@each_kind
@needs_functions
def test_keys_are_updated_and_octets_go_on(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        unusual = Unusual(at.peer)
        for number in range(3):
            at.line.sendall(unusual.update_keys())
            with pytest.raises(BlockingIOError):
                at.receive()
            at.line.sendall(at.tell(b"%d" % number))
            assert at.receive() == b"%d" % number
            assert at.stream.send(b"an answer") == 9
            assert at.hear() == b"an answer"
        assert at.stream.alert is None


@each_kind
@needs_functions
def test_a_flood_of_key_updates_ends_tls(kind: str, contexts: Contexts) -> None:
    """Each costs as much as 20 KiB of payload, and an answer that the peer need not read."""
    with ends(kind, contexts, buffer_octets=4096, early=b"!") as at:
        at.receive()
        unusual = Unusual(at.peer)
        at.line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        at.line.sendall(at.tell(b"good") + b"".join(unusual.update_keys() for _ in range(60)))
        assert at.receive() == b"good"
        was_over = at.stream.is_over
        at.line.sendall(b"".join(unusual.update_keys() for _ in range(10)) + at.tell(b"late"))
        at.receive()
        assert (was_over, at.stream.is_over) == (False, True)
        assert at.stream.alert == TOO_IDLE
        assert not at.stream.saw_end
        at.stream.finish()


@each_kind
@needs_functions
def test_payload_makes_up_for_key_updates(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        unusual = Unusual(at.peer)
        payload = bytes(FORGIVING_OCTETS)
        for _ in range(2 * IDLE_RECORDS):
            at.line.sendall(unusual.update_keys() + at.tell(payload))
            got = 0
            while got < len(payload):
                got += len(at.receive())
            at.hear()
        assert at.stream.alert is None


@each_kind
def test_many_small_records_are_received(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        at.line.sendall(b"".join(at.tell(b"x") for _ in range(2000)))
        got = b""
        while len(got) < 2000:
            got += at.receive()
        assert not at.stream.is_over


def test_records_are_counted_however_they_are_cut() -> None:
    records = b"".join(b"\x17\x03\x03" + n.to_bytes(2) + bytes(n) for n in (1, 0, 300, 16_400, 7))
    for cut in (1, 2, 3, 6, 100, 20_000):
        idleness = Idleness()
        for begin in range(0, len(records), cut):
            idleness.receive(memoryview(records)[begin : begin + cut])
        assert idleness.records == 5


@each_kind
def test_tickets_are_no_plaintext(kind: str, contexts: Contexts) -> None:
    server, client = TlsSession(contexts.server), TlsSession(contexts.client, "localhost")
    shake_hands(client, server)
    server.tls.write(b"after the tickets")
    ours, line = stream_pair(None)
    with ours, line:
        stream = make_stream(kind, client, ours)
        buffer = memoryview(bytearray(1 << 18))
        with pytest.raises(BlockingIOError):
            stream.receive_into(buffer, 1000)
        line.sendall(server.outgoing.read())
        assert bytes(buffer[: stream.receive_into(buffer, 1000)]) == b"after the tickets"
        assert client.tls.session is not None
        assert client.tls.session.has_ticket


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_names_the_client(version: ssl.TLSVersion, contexts: Contexts) -> None:
    context = contexts.signed.server_files(verify=True).server_context()
    context.maximum_version = version
    client_context = contexts.signed.client_context()
    former = None
    for _ in range(3):
        client, server = TlsSession(client_context, "localhost", former), TlsSession(context)
        shake_hands(client, server)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.read()
        assert server.identity("common-name") == "app"
        assert bool(server.tls.session_reused) == (former is not None)
        former = resumable(client.tls)


NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME: a session begins as if the certificate were valid still."""

BOTH_WAYS_INVALID = pytest.mark.parametrize(
    ("begins", "ends", "why"),
    [(-90.0, -1.0, "certificate has expired"), (1.0, 30.0, "certificate is not yet valid")],
)


async def resume(client: TlsSession, server: TlsSession) -> None:
    """Takes both through their handshake, as they do with peers."""
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.shake_hands, one, b"", trio.Lock())
            nursery.start_soon(server.shake_hands, other, b"", trio.Lock())


def begin_session(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLSession | None:
    """Returns what a client can resume of a session that it had."""
    ours, theirs = TlsSession(client, "localhost"), TlsSession(server)
    shake_hands(ours, theirs)
    with pytest.raises(ssl.SSLWantReadError):
        ours.tls.read()
    former = resumable(ours.tls)
    ours.receive(theirs.seal(b""))  # what ends otherwise is forgotten by its context
    assert ours.tls.read() == b""
    return former


@needs_openssl
@BOTH_WAYS_INVALID
@pytest.mark.parametrize("has_tickets", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_whose_certificate_is_not_valid_any_more_is_verified_anew(
    *,
    version: ssl.TLSVersion,
    has_tickets: bool,
    begins: float,
    ends: float,
    why: str,
    tmp_path: Path,
) -> None:
    signed = papers(tmp_path)
    signed.write_client(ends, begins=begins)
    context = signed.server_files(verify=True).server_context()
    context.maximum_version = version
    context.verify_flags |= NO_CHECK_TIME
    client_context = signed.client_context()
    if not has_tickets:
        client_context.options |= ssl.OP_NO_TICKET
    former = begin_session(client_context, context)
    context.verify_flags &= ~NO_CHECK_TIME
    client, server = TlsSession(client_context, "localhost", former), TlsSession(context)
    with pytest.raises(ssl.SSLCertVerificationError, match=why):
        shake_hands(client, server)
    signed.write_client()
    client_context.load_cert_chain(signed.client)  # renewed, and the session is offered still
    client, server = TlsSession(client_context, "localhost", former), TlsSession(context)
    shake_hands(client, server)
    assert server.identity("common-name") == "app"


@BOTH_WAYS_INVALID
async def test_a_client_whose_certificate_is_not_valid_any_more_resumes_nothing(
    begins: float, ends: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "_module", lambda: None)  # nothing was compiled
    signed = papers(tmp_path)
    signed.write_client(ends, begins=begins)
    context = signed.server_files(verify=True).server_context()
    context.verify_flags |= NO_CHECK_TIME
    client_context = signed.client_context()
    former = begin_session(client_context, context)
    server = TlsSession(context)
    with pytest.RaisesGroup(pytest.RaisesExc(TlsError, match=why)):
        await resume(TlsSession(client_context, "localhost", former), server)
    assert server.tls.session_reused


@BOTH_WAYS_INVALID
async def test_nothing_is_resumed_with_a_container_whose_certificate_is_not_valid_any_more(
    begins: float, ends: float, why: str, tmp_path: Path
) -> None:
    signed = papers(tmp_path)
    signed.write_server(days=ends, begins=begins)
    context = signed.server_files().server_context()
    client_context = signed.client_context()
    client_context.verify_flags |= NO_CHECK_TIME
    former = begin_session(client_context, context)
    client = TlsSession(client_context, "localhost", former)
    with pytest.RaisesGroup(pytest.RaisesExc(TlsError, match=why)):
        await resume(client, TlsSession(context))
    assert client.tls.session_reused


def test_a_session_that_cannot_be_copied_is_not_resumed() -> None:
    class Odd:
        @property
        def session(self) -> ssl.SSLSession:
            raise ValueError("i2d() failed")

    assert resumable(cast(ssl.SSLObject, Odd())) is None


def test_nothing_is_resumed_of_a_session_without_a_handshake(contexts: Contexts) -> None:
    assert resumable(TlsSession(contexts.client, "localhost").tls) is None


@each_kind
@needs_functions
def test_nobody_may_renegotiate(kind: str, tmp_path: Path) -> None:
    contexts = make_contexts(tmp_path)
    contexts.client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert contexts.server.options & ssl.OP_NO_RENEGOTIATION
    contexts.client.options &= ~ssl.OP_NO_RENEGOTIATION
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        at.line.sendall(Unusual(at.peer).renegotiate())
        with pytest.raises(BlockingIOError):
            at.receive()
        assert at.stream.send(b"as before") == 9
        assert not at.stream.is_over
        at.peer.receive(at.line.recv(1 << 16))
        with pytest.raises(ssl.SSLError, match="NO_RENEGOTIATION"):
            at.peer.tls.do_handshake()


@each_kind
def test_the_failure_of_one_session_is_not_seen_by_others(kind: str, contexts: Contexts) -> None:
    """OpenSSL's queue of errors belongs to the thread."""
    with ends(kind, contexts, early=b"!") as one, ends(kind, contexts, early=b"!") as other:
        one.receive()
        other.receive()
        one.line.sendall(b"this is no record of TLS" * 9)
        assert one.receive() == b""
        one.stream.finish()
        with pytest.raises(BlockingIOError):
            other.receive()
        assert other.stream.send(b"as before") == 9
        assert other.hear() == b"as before"
        shake_hands(TlsSession(contexts.client, "localhost"), TlsSession(contexts.server))


@needs_openssl
def test_a_buffer_without_a_margin_is_refused(contexts: Contexts) -> None:
    with ends("openssl", contexts, early=b"!") as at:
        with pytest.raises(OSError, match="Invalid argument"):
            at.stream.receive_into(memoryview(bytearray(MARGIN_OCTETS)), 1000)
        assert at.receive() == b"!"


@needs_openssl
def test_a_pipe_holds_its_stream(contexts: Contexts) -> None:
    with ends("openssl", contexts) as at:
        counts = [sys.getrefcount(at.stream)]
        pipe = at.stream.pipe
        counts.append(sys.getrefcount(at.stream))
        del pipe
        counts.append(sys.getrefcount(at.stream))
        assert counts == [counts[0], counts[0] + 1, counts[0]]


@each_kind
def test_a_socket_that_is_broken_raises(kind: str, contexts: Contexts) -> None:
    with ends(kind, contexts, early=b"!") as at:
        at.receive()
        at.line.close()
        with pytest.raises(BrokenPipeError):
            at.stream.send(b"x")


def test_only_the_peers_end_is_explained() -> None:
    why = "TLS alert of the peer: certificate required"
    by_peer = ConnectionClosed(None, by_peer=True)
    events: list[Event] = [OutputPending(True), by_peer, ConnectionClosed(None, by_peer=False)]
    assert explained(list(events), why) == [
        events[0],
        ConnectionClosed(Condition(CONNECTION_FORCED, why), by_peer=True),
        events[2],
    ]


@pytest.fixture
def undecided() -> None:
    why_slower.cache_clear()


@pytest.mark.usefixtures("undecided")
def test_the_variable_chooses_the_streams(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(why_slower.cache_clear)
    monkeypatch.setenv("ROUTER_TLS", "python")
    assert why_slower() == "ROUTER_TLS=python"
    assert isinstance(open_stream(TlsSession(contexts.server), socket.socket()), MemoryStream)
    why_slower.cache_clear()
    monkeypatch.setenv("ROUTER_TLS", "fast")
    with pytest.raises(MisuseError, match="ROUTER_TLS=fast: must be openssl or python"):
        why_slower()


@pytest.mark.usefixtures("undecided")
def test_where_it_was_not_built_the_ssl_module_does_it(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(why_slower.cache_clear)
    monkeypatch.delenv("ROUTER_TLS", raising=False)
    monkeypatch.setattr(tls_stream, "compiled", lambda name: None)
    assert why_slower() == "it was not built; build with a C compiler to have it"
    assert isinstance(open_stream(TlsSession(contexts.server), socket.socket()), MemoryStream)
    why_slower.cache_clear()
    monkeypatch.setenv("ROUTER_TLS", "openssl")
    with pytest.raises(MisuseError, match="ROUTER_TLS=openssl: it was not built"):
        why_slower()


@needs_openssl
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OPENSSL_VERSION", "LibreSSL 3.8.2", "it is LibreSSL 3.8.2"),
        ("OPENSSL_VERSION_INFO", (1, 1, 0, 0, 0), "it is OpenSSL"),
        ("OPENSSL_VERSION_NUMBER", 0x1010100F, "two versions of OpenSSL"),
        ("_ssl", _decimal, "SSL_read_ex is not found"),
        ("_ssl", ssl, "the library of Python's ssl module is not found"),
    ],
)
def test_an_openssl_that_is_different_is_not_called(
    name: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = compiled_streams()
    assert module is not None
    with monkeypatch.context() as patch:
        patch.setattr(ssl, name, value)
        with pytest.raises(module.Unsupported, match=reason):
            module.load()
    module.load()


@needs_openssl
def test_a_session_of_another_layout_is_not_used(contexts: Contexts) -> None:
    from router.model.compiled import compiled

    module = compiled("router.net._tls")
    assert module is not None
    module.load()
    session = TlsSession(contexts.server)
    module.try_session(session.tls)

    class Other:
        context = contexts.server
        _sslobj = object()

    for inner in (object(), ssl.MemoryBIO(), [None] * 9, contexts.server):
        Other._sslobj = inner
        with pytest.raises(module.Unsupported):
            module.try_session(Other)
    Other._sslobj, Other.context = session.tls._sslobj, contexts.client  # type: ignore[attr-defined]
    with pytest.raises(module.Unsupported):
        module.try_session(Other)
