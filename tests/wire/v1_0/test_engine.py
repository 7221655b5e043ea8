"""The engine's face: headers, SASL, open, signs of life and close."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import MisuseError
from router.model.capabilities import Capabilities, Protocol
from router.model.commands import CloseConnection
from router.model.condition import (
    CONNECTION_FORCED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.events import ConnectionClosed, ConnectionOpened, LinkAttached
from router.model.identity import ContainerId
from router.model.terminus import Role, Source, Target
from router.wire.engine import Engine
from router.wire.mechanisms import MechanismClient, MechanismServer
from router.wire.v1_0.connection import CLOSE_SECONDS
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL,
    SASL_HEADER,
    TLS_HEADER,
    frame,
    read_frame_header,
)
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode,
    encode,
)
from tests.support.peer import Peer, converse, settings


class Passwords:
    """Knows one user."""

    def verify_plain(self, user: str, password: str) -> bool:
        return (user, password) == ("app", "secret")


def plain_server() -> MechanismServer:
    return MechanismServer(offer=("PLAIN",), verifier=Passwords())


def sasl(
    *performatives: SaslMechanisms | SaslInit | SaslResponse | SaslOutcome | SaslChallenge,
) -> bytes:
    return b"".join(frame(0, encode(each), kind=SASL) for each in performatives)


def test_the_engine_shows_the_face_of_engines() -> None:
    engine: Engine = Engine10(settings())
    assert engine.finished is False
    assert engine.output_octets == 0


def assert_over(peer: Peer) -> None:
    assert peer.engine.finished


# --- headers --------------------------------------------------------------------------------------


def test_a_server_says_nothing_before_the_client() -> None:
    peer = Peer()
    peer.expect_nothing()
    peer.send_octets(AMQP_HEADER[:7])
    peer.expect_nothing()
    peer.send_octets(AMQP_HEADER[7:])
    peer.expect_octets(AMQP_HEADER)
    peer.expect_nothing()  # no open of ours before the client's


@pytest.mark.parametrize(
    ("octets", "server", "required", "answer"),
    [
        (b"GET / HTTP/1.1\r\n", None, False, AMQP_HEADER),
        (b"\x80\x01", None, False, AMQP_HEADER),
        (b"AMQP\x00\x00\x09\x01", None, False, AMQP_HEADER),
        (b"AMQP\x00\x01\x01\x00", None, False, AMQP_HEADER),
        (SASL_HEADER, None, False, AMQP_HEADER),
        (TLS_HEADER, None, False, AMQP_HEADER),
        (AMQP_HEADER, plain_server, True, SASL_HEADER),
        (TLS_HEADER, plain_server, True, SASL_HEADER),
        (b"GET /", plain_server, False, SASL_HEADER),
    ],
)
def test_a_header_that_is_not_served_is_answered_with_one_that_is(
    octets: bytes, server: type | None, required: bool, answer: bytes
) -> None:
    peer = Peer(sasl_server=server, sasl_required=required)
    peer.send_octets(octets)
    assert peer.take_octets() == answer
    assert peer.engine.finished
    closed = peer.take_event(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == NOT_IMPLEMENTED
    assert not closed.by_peer


def test_a_server_with_optional_sasl_takes_a_client_without() -> None:
    peer = Peer(sasl_server=plain_server)
    peer.greet()


def test_a_client_sends_header_and_open_at_once() -> None:
    peer = Peer(is_server=False, hostname="vhost")
    peer.expect_octets(AMQP_HEADER)
    assert peer.expect_one(Open).hostname == "vhost"


def test_a_client_refuses_a_server_of_another_protocol_in_silence() -> None:
    peer = Peer(is_server=False)
    peer.take_octets()
    peer.send_octets(b"AMQP\x00\x00\x09\x01")
    peer.expect_nothing()
    assert peer.engine.finished
    assert not peer.take_event(ConnectionClosed).by_peer


# --- SASL -----------------------------------------------------------------------------------------


def test_everything_may_be_pipelined_behind_sasl_init() -> None:
    peer = Peer(sasl_server=plain_server, sasl_required=True)
    own = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    attach = Attach(
        name="name",
        handle=0,
        role=Role.SENDER,
        source=Source(),
        target=Target(address="to"),
        initial_delivery_count=0,
    )
    peer.send_octets(
        SASL_HEADER
        + sasl(SaslInit("PLAIN", b"\0app\0secret"))
        + AMQP_HEADER
        + frame(0, encode(Open(container_id="pipelining")))
        + frame(0, encode(own))
        + frame(0, encode(attach))
    )
    opened, attached = peer.take_events()
    assert isinstance(opened, ConnectionOpened)
    assert opened.user == "app"
    assert isinstance(attached, LinkAttached)
    peer.expect_octets(SASL_HEADER + sasl(SaslMechanisms(("PLAIN",)), SaslOutcome(SaslCode.OK)))
    peer.expect_octets(AMQP_HEADER)
    peer.expect(Open, Begin)


def test_a_server_does_not_open_ahead_of_the_client_behind_sasl() -> None:
    peer = Peer(sasl_server=plain_server)
    peer.send_octets(SASL_HEADER)
    peer.send_octets(sasl(SaslInit("PLAIN", b"\0app\0secret")))
    peer.expect_octets(SASL_HEADER + sasl(SaslMechanisms(("PLAIN",)), SaslOutcome(SaslCode.OK)))
    peer.expect_nothing()


def test_a_client_that_sends_no_first_response_is_asked_for_it() -> None:
    peer = Peer(sasl_server=plain_server)
    peer.send_octets(SASL_HEADER + sasl(SaslInit("PLAIN")))
    peer.expect_octets(SASL_HEADER + sasl(SaslMechanisms(("PLAIN",)), SaslChallenge(b"")))
    peer.send_octets(sasl(SaslResponse(b"\0app\0secret")))
    peer.expect_octets(sasl(SaslOutcome(SaslCode.OK)))


@pytest.mark.parametrize("init", [SaslInit("PLAIN", b"\0app\0wrong"), SaslInit("ANONYMOUS", b"")])
def test_failed_sasl_never_falls_through(init: SaslInit) -> None:
    peer = Peer(sasl_server=plain_server)
    octets = SASL_HEADER + sasl(init) + AMQP_HEADER + frame(0, encode(Open(container_id="me")))
    peer.send_octets(octets)
    closed = peer.take_event(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == UNAUTHORIZED_ACCESS
    assert not closed.by_peer
    assert peer.engine.finished
    assert peer.take_octets() == SASL_HEADER + sasl(
        SaslMechanisms(("PLAIN",)), SaslOutcome(SaslCode.AUTH)
    )
    peer.send_octets(AMQP_HEADER)
    assert peer.take_events() == []
    peer.expect_nothing()


def test_behind_sasl_only_the_plain_header_is_taken() -> None:
    peer = Peer(sasl_server=plain_server)
    peer.send_octets(SASL_HEADER + sasl(SaslInit("PLAIN", b"\0app\0secret")) + SASL_HEADER)
    assert peer.engine.finished
    peer.take_event(ConnectionClosed)


def client() -> Peer:
    def make() -> MechanismClient:
        return MechanismClient(user="app", password="secret")

    peer = Peer(is_server=False, sasl_client=make, hostname="vhost")
    peer.expect_octets(SASL_HEADER)
    peer.expect_nothing()
    return peer


def test_a_client_goes_through_sasl_and_opens_behind_it() -> None:
    peer = client()
    peer.send_octets(SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS", "PLAIN"))))
    peer.expect_octets(sasl(SaslInit("PLAIN", b"\0app\0secret", "vhost")))
    peer.expect_nothing()
    peer.send_octets(sasl(SaslOutcome(SaslCode.OK)) + AMQP_HEADER)
    peer.expect_octets(AMQP_HEADER)
    peer.expect_one(Open)
    peer.send(Open(container_id="broker"))
    assert peer.take_event(ConnectionOpened).container == "broker"


@pytest.mark.parametrize("code", [code for code in SaslCode if code is not SaslCode.OK])
def test_a_client_that_is_refused_stops(code: SaslCode) -> None:
    peer = client()
    peer.send_octets(SASL_HEADER + sasl(SaslMechanisms(("PLAIN",))))
    peer.take_octets()
    peer.send_octets(sasl(SaslOutcome(code)) + AMQP_HEADER)
    closed = peer.take_event(ConnectionClosed)
    assert closed.by_peer
    assert closed.condition is not None
    assert closed.condition.name == UNAUTHORIZED_ACCESS
    assert peer.engine.finished
    peer.expect_nothing()


def test_a_client_leaves_if_no_mechanism_will_do() -> None:
    peer = client()
    peer.send_octets(SASL_HEADER + sasl(SaslMechanisms(("GSSAPI",))))
    peer.expect_nothing()
    assert peer.engine.finished
    condition = peer.take_event(ConnectionClosed).condition
    assert condition is not None
    assert "GSSAPI" in str(condition)


def test_a_client_leaves_if_the_server_does_not_prove_itself() -> None:
    class Suspicious(MechanismClient):
        def check(self, additional: bytes | None) -> bool:
            return False

    peer = Peer(is_server=False, sasl_client=Suspicious)
    peer.send_octets(SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS",)), SaslOutcome(SaslCode.OK)))
    assert peer.engine.finished
    peer.take_event(ConnectionClosed)


def test_a_client_answers_challenges() -> None:
    class Talking:
        def choose(self, offered: Sequence[str]) -> tuple[str, bytes | None] | None:
            return "TALK", None

        def step(self, challenge: bytes) -> bytes:
            return challenge[::-1]

        def check(self, additional: bytes | None) -> bool:
            return additional == b"bye"

    peer = Peer(is_server=False, sasl_client=Talking)
    peer.expect_octets(SASL_HEADER)
    peer.send_octets(SASL_HEADER + sasl(SaslMechanisms(("TALK",)), SaslChallenge(b"abc")))
    peer.expect_octets(sasl(SaslInit("TALK"), SaslResponse(b"cba")))
    peer.send_octets(sasl(SaslChallenge(b"xy")))
    peer.expect_octets(sasl(SaslResponse(b"yx")))
    peer.send_octets(sasl(SaslOutcome(SaslCode.OK, b"bye")))
    peer.expect_octets(AMQP_HEADER)


def test_a_server_may_challenge_more_than_once() -> None:
    from router.wire.sasl import Challenge, Failure, Success

    class Curious:
        mechanisms = ("TALK",)

        def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
            return Challenge(b"1")

        def step(self, response: bytes) -> Challenge | Success | Failure:
            return Success("me", b"done") if response == b"2" else Challenge(b"2")

    peer = Peer(sasl_server=Curious)
    peer.send_octets(SASL_HEADER + sasl(SaslInit("TALK"), SaslResponse(b"1"), SaslResponse(b"2")))
    peer.expect_octets(
        SASL_HEADER
        + sasl(
            SaslMechanisms(("TALK",)),
            SaslChallenge(b"1"),
            SaslChallenge(b"2"),
            SaslOutcome(SaslCode.OK, b"done"),
        )
    )


# --- open -----------------------------------------------------------------------------------------


def test_the_open_tells_our_limits_and_half_of_our_patience() -> None:
    peer = Peer(
        idle_seconds=60.0, max_frame_octets=4096, channel_max=7, properties={"version": "1"}
    )
    own = peer.greet()
    assert own == Open(
        container_id="router",
        max_frame_size=4096,
        channel_max=7,
        idle_time_out=30_000,
        offered_capabilities=("ANONYMOUS-RELAY",),
        desired_capabilities=("ANONYMOUS-RELAY",),
        properties={"product": "router", "version": "1"},
    )


def test_no_patience_means_no_time_out() -> None:
    assert Peer(idle_seconds=0.0).greet().idle_time_out is None


def test_a_clients_open_keeps_within_512_octets() -> None:
    peer = Peer(is_server=False, properties={"long": "x" * 500})
    octets = peer.take_octets()
    assert len(octets) <= 8 + 512
    header = read_frame_header(octets, 8, len(octets))
    assert header is not None
    own, _ = decode(octets, header.body, header.end)
    assert isinstance(own, Open)
    assert own.properties == {"product": "router"}


def test_the_core_hears_who_has_opened() -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="me", hostname="vhost", properties={"product": "thing"}))
    assert peer.take_event(ConnectionOpened) == ConnectionOpened(
        container=ContainerId("me"),
        hostname="vhost",
        user=None,
        capabilities=Capabilities(
            protocol=Protocol.AMQP_1_0,
            settles_second=True,
            streams=True,
            annotates=True,
            names_links=True,
            writes_urls=True,
            filters=True,
            accepts_links=True,
            releases_unroutable=True,
            frame_octets=65536,
        ),
        properties={"product": "thing"},
    )


@pytest.mark.parametrize(
    ("trusted", "product", "is_router"),
    [(True, "router", True), (True, "other", False), (False, "router", False)],
)
def test_a_router_is_who_says_so_and_is_trusted(
    trusted: bool, product: str, is_router: bool
) -> None:
    peer = Peer(peer_is_trusted_router=trusted)
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="me", properties={"product": product}))
    assert peer.take_event(ConnectionOpened).capabilities.is_router is is_router


@pytest.mark.parametrize(("product", "is_able"), [("RabbitMQ", False), ("other", True)])
def test_a_broker_that_refuses_to_settle_second_is_known(product: str, is_able: bool) -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="me", properties={"product": product}))
    assert peer.take_event(ConnectionOpened).capabilities.settles_second is is_able


# --- signs of life --------------------------------------------------------------------------------


def test_the_clock_begins_with_the_first_call() -> None:
    engine = Engine10(settings(is_server=False, handshake_seconds=10.0))
    assert engine.deadline == -math.inf
    assert engine.handle_deadline(1000.0) == []
    assert engine.deadline == 1010.0


@given(st.integers(10, 100_000), st.floats(0, 1))
def test_frames_come_at_twice_the_rate_that_the_peer_asks_for(idle: int, offset: float) -> None:
    peer = Peer(idle_seconds=0.0)
    peer.greet(idle_time_out=idle)
    peer.now = 5.0
    peer.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    peer.take_octets()
    sent_at = peer.now
    end = peer.now + idle / 1000 * 5
    while peer.now < end:
        deadline = peer.engine.deadline
        assert deadline is not None
        peer.wait(max(0.0, deadline - peer.now))
        if peer.engine.output_octets:
            assert peer.now - sent_at <= idle / 1000 / 2 + 1e-9
            assert peer.take_octets() == HEARTBEAT
            sent_at = peer.now


def test_no_empty_frame_is_added_while_something_waits_to_be_sent() -> None:
    peer = Peer(idle_seconds=0.0)
    peer.greet(idle_time_out=1000)
    peer.wait(3.0)  # the socket takes nothing
    assert peer.take_octets() == HEARTBEAT


def test_a_peer_without_idle_time_out_gets_no_empty_frames() -> None:
    peer = Peer(idle_seconds=0.0)
    peer.greet()
    assert peer.engine.deadline is None


def test_empty_frames_keep_a_connection_alive_on_any_channel() -> None:
    peer = Peer(idle_seconds=30.0)
    peer.greet()
    for channel in range(5):
        peer.wait(29.0)
        peer.send_octets(frame(channel, b""))
    assert peer.take_events() == []
    peer.wait(30.0)
    condition = peer.take_event(ConnectionClosed).condition
    assert condition is not None
    assert condition.name == RESOURCE_LIMIT_EXCEEDED


# --- close ----------------------------------------------------------------------------------------


def test_a_peers_close_is_answered_and_ends_it() -> None:
    peer = Peer()
    peer.greet()
    peer.send(Close())
    assert peer.expect_one(Close).error is None
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(None, by_peer=True)
    assert peer.engine.finished


def test_a_peers_reason_reaches_the_core() -> None:
    peer = Peer()
    peer.greet()
    peer.send(Close(Condition(CONNECTION_FORCED, "going home")))
    closed = peer.take_event(ConnectionClosed)
    assert closed == ConnectionClosed(Condition(CONNECTION_FORCED, "going home"), by_peer=True)


@pytest.mark.parametrize("condition", [None, Condition(CONNECTION_FORCED, "shutting down")])
def test_our_close_waits_for_the_peers(condition: Condition | None) -> None:
    peer = Peer()
    peer.greet()
    peer.engine.execute(CloseConnection(condition))
    assert peer.expect_one(Close).error == condition
    peer.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    peer.send_octets(frame(0, b"not even a performative"))
    assert peer.take_events() == []
    assert peer.engine.finished is False
    peer.send(Close())
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(None, by_peer=False)
    assert_over(peer)
    peer.expect_nothing()


def test_our_close_does_not_wait_for_ever() -> None:
    peer = Peer(idle_seconds=0.0)
    peer.greet()
    peer.now = 100.0  # nothing has happened for a long time
    peer.engine.execute(CloseConnection())
    peer.take_octets()
    peer.wait(CLOSE_SECONDS - 0.1)
    assert peer.engine.finished is False
    peer.wait(0.1)
    assert_over(peer)
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(None, by_peer=False)
    assert peer.engine.deadline is None


def test_simultaneous_closes_end_it() -> None:
    first, second = Engine10(settings()), Engine10(settings(is_server=False))
    converse(first, second)
    first.execute(CloseConnection())
    second.execute(CloseConnection(Condition(CONNECTION_FORCED)))
    told = converse(first, second)
    assert told == ([ConnectionClosed(None)], [ConnectionClosed(None)])
    assert first.finished
    assert second.finished


@pytest.mark.parametrize("octets", [b"", AMQP_HEADER])
def test_a_close_before_the_peers_open(octets: bytes) -> None:
    peer = Peer()
    peer.send_octets(octets)
    peer.engine.execute(CloseConnection())
    if octets:
        peer.expect_octets(AMQP_HEADER)
        peer.expect(Open, Close)
        peer.send(Open(container_id="late"), Close())
    assert peer.engine.finished
    peer.collect()
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(None, by_peer=False)


def test_a_dialing_engine_may_close_before_anything_came() -> None:
    peer = Peer(is_server=False)
    peer.engine.execute(CloseConnection())
    peer.expect_octets(AMQP_HEADER)
    peer.expect(Open, Close)
    peer.send_octets(AMQP_HEADER)
    peer.send(Open(container_id="late"), Close())
    assert peer.engine.finished
    assert peer.take_event(ConnectionClosed) == ConnectionClosed(None, by_peer=False)


def test_a_second_close_is_ignored() -> None:
    peer = Peer()
    peer.greet()
    peer.engine.execute(CloseConnection())
    peer.expect_one(Close)
    peer.engine.execute(CloseConnection())
    peer.expect_nothing()


def test_a_stream_that_ends_without_close_is_an_error() -> None:
    peer = Peer()
    peer.greet()
    peer.send_eof()
    closed = peer.take_event(ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == CONNECTION_FORCED
    assert closed.by_peer
    assert peer.engine.finished
    peer.send_eof()
    peer.send_octets(HEARTBEAT)
    assert peer.take_events() == []


def test_a_stream_that_ends_behind_our_close_is_none() -> None:
    peer = Peer()
    peer.greet()
    peer.engine.execute(CloseConnection())
    peer.send_eof()
    assert peer.take_event(ConnectionClosed).condition is None


def test_what_is_no_command_is_misuse() -> None:
    with pytest.raises(MisuseError):
        Engine10(settings()).execute(object())  # type: ignore[arg-type]


# --- octets ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), min_size=1), st.booleans())
def test_how_octets_are_cut_changes_nothing(sizes: list[int], is_view: bool) -> None:
    octets = (
        SASL_HEADER
        + sasl(SaslInit("PLAIN", b"\0app\0secret"))
        + AMQP_HEADER
        + frame(0, encode(Open(container_id="slow")))
        + frame(0, encode(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
        + frame(0, encode(Close()))
    )
    whole = Peer(sasl_server=plain_server)
    whole.send_octets(octets)
    cut = Peer(sasl_server=plain_server)
    at = 0
    for index in range(len(octets)):
        size = sizes[index % len(sizes)]
        piece = bytearray(octets[at : at + size])
        cut.events += cut.engine.receive_data(memoryview(piece) if is_view else bytes(piece), 0.0)
        piece[:] = bytes(len(piece))  # the engine must not lean on it any more
        at += size
    assert cut.take_events() == whole.take_events()
    assert cut.take_octets() == whole.take_octets()


def test_output_is_shown_until_it_is_confirmed() -> None:
    peer = Peer()
    peer.send_octets(AMQP_HEADER)
    engine = peer.engine
    first = engine.data_to_send()
    peer.send(Open(container_id="peer"))
    assert bytes(first) == AMQP_HEADER  # a view that was shown does not change
    assert bytes(engine.data_to_send()) == AMQP_HEADER
    engine.bytes_sent(3)
    assert bytes(engine.data_to_send()) == AMQP_HEADER[3:]
    engine.bytes_sent(5)
    assert engine.output_octets == len(engine.data_to_send()) > 0
