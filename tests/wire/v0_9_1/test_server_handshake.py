"""A client dials us: who it is, and what is agreed."""

import platform
from typing import Any

import pytest

from router.model import condition as conditions
from router.model.capabilities import Credit, Protocol
from router.model.commands import GrantCredit
from router.model.events import ConnectionClosed, ConnectionOpened, DeliveriesReceived
from router.wire.engine import PeerTerms
from router.wire.machine import MachinePhase
from router.wire.mechanisms import MechanismServer
from router.wire.sasl import Challenge, Failure, Success
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC_0_8
from router.wire.v0_9_1.framing import PROTOCOL_HEADER, PROTOCOL_HEADER_0_8
from router.wire.v0_9_1.machine import Opening
from router.wire.v0_9_1.types import encode_table
from tests.support.basic_peer import ClientPeer, Content
from tests.support.draft_peer import DraftClientPeer

CLOSES = {"capabilities": {"authentication_failure_close": True}}


class Passwords:
    def verify_plain(self, user: str, password: str) -> bool:
        return (user, password) == ("me", "secret")


def plain() -> MechanismServer:
    return MechanismServer(offer=("EXTERNAL", "PLAIN"), verifier=Passwords())


def greeted(sasl: Any = None) -> tuple[ClientPeer, m.ConnectionStart]:
    peer = ClientPeer(sasl)
    peer.feed(PROTOCOL_HEADER)
    [start] = peer.methods()
    assert isinstance(start, m.ConnectionStart)
    return peer, start


def amqplain(user: str, password: str) -> bytes:
    return encode_table({"LOGIN": user, "PASSWORD": password})[4:]


# --- who the client is ----------------------------------------------------------------------------


def test_start_offers_what_the_listener_offers_and_amqplain_with_plain() -> None:
    _, start = greeted(plain())
    assert start.mechanisms == b"PLAIN AMQPLAIN"
    assert start.server_properties["product"] == "router"
    assert start.server_properties["cluster_name"] == "router"
    assert start.server_properties["platform"] == platform.system()
    assert start.server_properties["information"]
    assert start.server_properties["capabilities"]["publisher_confirms"] is True


@pytest.mark.parametrize("sasl", [None, MechanismServer()])
def test_where_anonymous_clients_are_welcome_any_password_is_and_proves_nothing(
    sasl: MechanismServer | None,
) -> None:
    for mechanism, response in (
        ("PLAIN", b"\0guest\0guest"),
        ("AMQPLAIN", amqplain("a", "b")),
        ("ANONYMOUS", b""),
    ):
        peer, start = greeted(sasl)
        assert start.mechanisms == b"ANONYMOUS PLAIN AMQPLAIN"
        peer.send(0, m.ConnectionStartOk(mechanism=mechanism, response=response))
        assert peer.engine.phase is Opening.TUNE_OK
        assert peer.engine.user is None


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", b"\0me\0secret"), ("AMQPLAIN", amqplain("me", "secret"))],
)
def test_a_login_with_the_right_password_has_its_name(mechanism: str, response: bytes) -> None:
    peer, _ = greeted(plain())
    peer.send(0, m.ConnectionStartOk(mechanism=mechanism, response=response))
    assert peer.engine.user == "me"
    assert peer.methods() == [m.ConnectionTune(2047, 65536, 60)]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0me\0wrong"),
        ("PLAIN", b"nonsense"),
        ("PLAIN", b"\0\xff\0\xff"),
        ("AMQPLAIN", amqplain("me", "wrong")),
        ("EXTERNAL", b""),
        ("SCRAM", b""),
    ],
)
@pytest.mark.parametrize("can_be_told", [True, False])
def test_a_refused_login_is_told_to_those_who_can_be_told(
    mechanism: str, response: bytes, can_be_told: bool
) -> None:
    peer, _ = greeted(plain())
    peer.send(
        0,
        m.ConnectionStartOk(
            client_properties=CLOSES if can_be_told else {},
            mechanism=mechanism,
            response=response,
        ),
    )
    [ended] = peer.events
    assert isinstance(ended, ConnectionClosed)
    assert ended.condition is not None
    assert ended.condition.name == conditions.UNAUTHORIZED_ACCESS
    if can_be_told:
        [close] = peer.methods()
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == 403
        assert "wrong" not in close.reply_text
        peer.send(0, m.ConnectionCloseOk())
    assert peer.methods() == []
    assert peer.engine.finished


def test_an_amqplain_response_that_is_no_table_is_a_syntax_error() -> None:
    peer, _ = greeted(plain())
    peer.send(0, m.ConnectionStartOk(mechanism="AMQPLAIN", response=b"\x05LOGINS"))
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 502


class Exchange:
    """A mechanism with two challenges, of which the second carries the server's proof."""

    mechanisms = ("SCRAM",)

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        return Challenge(b"challenge to " + (initial or b""))

    def step(self, response: bytes) -> Challenge | Success | Failure:
        return Success("me", b"proof") if response == b"right" else Failure("wrong")


def test_challenges_are_carried_and_the_last_word_is_one_more() -> None:
    peer, _ = greeted(Exchange())
    peer.send(0, m.ConnectionStartOk(mechanism="SCRAM", response=b"hello"))
    assert peer.methods() == [m.ConnectionSecure(b"challenge to hello")]
    peer.send(0, m.ConnectionSecureOk(b"right"))
    assert peer.methods() == [m.ConnectionSecure(b"proof")]
    assert peer.engine.phase is Opening.SECURE_OK
    peer.send(0, m.ConnectionSecureOk(b""))
    assert peer.engine.user == "me"
    assert peer.methods() == [m.ConnectionTune(2047, 65536, 60)]


def test_a_wrong_answer_to_a_challenge_is_a_refused_login() -> None:
    peer, _ = greeted(Exchange())
    peer.send(0, m.ConnectionStartOk(mechanism="SCRAM", response=b"hello"))
    peer.send(0, m.ConnectionSecureOk(b"left"))
    assert peer.engine.finished


# --- what is agreed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tune",
    [
        m.ConnectionTuneOk(255, 0, 0),
        m.ConnectionTuneOk(255, 4095, 0),
        m.ConnectionTuneOk(255, 65537, 0),
        m.ConnectionTuneOk(2048, 4096, 0),
        m.ConnectionTuneOk(0, 4096, 0),
    ],
)
def test_a_client_may_not_raise_what_the_server_offered(tune: m.ConnectionTuneOk) -> None:
    peer, _ = greeted()
    peer.send(0, m.ConnectionStartOk(response=b"\0a\0b"), tune)
    close = peer.methods()[-1]
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 530
    assert peer.engine.finished  # the close is a report: no answer is awaited


def test_a_client_has_as_many_channels_as_were_agreed() -> None:
    peer = ClientPeer().open(*range(1, 2048), channel_max=2047)
    assert len(peer.engine.channels) == 2047
    peer.send(2048, m.ChannelOpen())
    close = peer.methods()[-1]
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 504


@pytest.mark.parametrize("client", [ClientPeer, DraftClientPeer])
def test_a_virtual_host_that_nobody_knows_is_refused(client: type[ClientPeer]) -> None:
    peer = client(terms=lambda user, vhost: PeerTerms(knows_vhost=vhost == "/"))
    assert peer.open(1).engine.phase is MachinePhase.OPENED
    peer = client(terms=lambda user, vhost: PeerTerms(knows_vhost=vhost != "/"))
    peer.feed(peer.header)
    peer.send(0, m.ConnectionStartOk(mechanism="PLAIN", response=b"\0a\0b"))
    peer.send(0, m.ConnectionTuneOk(channel_max=1, frame_max=4096), m.ConnectionOpen("/"))
    close = peer.methods()[-1]
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 402
    assert not any(isinstance(event, ConnectionOpened) for event in peer.events)


def test_terms_of_the_peer_lower_its_channels() -> None:
    peer = ClientPeer(terms=lambda user, vhost: PeerTerms(channels=2)).open(1, 2)
    assert not peer.engine.finished
    peer.send(3, m.ChannelOpen())
    close = peer.methods()[-1]
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 504


def test_the_agreed_frame_max_bounds_what_is_sent() -> None:
    peer = ClientPeer().open(1, frame_max=5000)
    assert peer.engine.frame_max == 5000


def test_opening_tells_the_core_who_came() -> None:
    peer, _ = greeted(plain())
    peer.send(
        0,
        m.ConnectionStartOk(
            client_properties={"connection_name": "shop", "product": "pika", "n": 1},
            response=b"\0me\0secret",
        ),
        m.ConnectionTuneOk(10, 4096, 0),
        m.ConnectionOpen("/v"),
    )
    [opened] = peer.events
    assert isinstance(opened, ConnectionOpened)
    assert opened.container.startswith("shop#")
    assert (opened.hostname, opened.user) == ("/v", "me")
    assert opened.capabilities.protocol is Protocol.AMQP_0_9_1
    assert opened.capabilities.credit is Credit.PREFETCH
    assert not opened.capabilities.learns_outcomes
    assert opened.properties == {"connection_name": "shop", "product": "pika"}


def test_two_connections_of_one_name_are_two_containers() -> None:
    names = set()
    for number in (1, 2):
        peer = ClientPeer(link_ids=iter(range(number * 100, number * 100 + 9)))
        peer.feed(PROTOCOL_HEADER)
        peer.send(
            0,
            m.ConnectionStartOk(response=b"\0a\0b"),
            m.ConnectionTuneOk(10, 4096, 0),
            m.ConnectionOpen(),
        )
        [opened] = peer.events
        assert isinstance(opened, ConnectionOpened)
        names.add(opened.container)
    assert len(names) == 2


@pytest.mark.parametrize(
    ("secret", "expected"),
    [(b"secret", m.ConnectionUpdateSecretOk), (b"wrong", m.ConnectionClose)],
)
def test_a_new_secret_is_held_against_the_users(secret: bytes, expected: type) -> None:
    peer, _ = greeted(plain())
    peer.send(
        0,
        m.ConnectionStartOk(mechanism="PLAIN", response=b"\0me\0secret"),
        m.ConnectionTuneOk(10, 4096, 0),
        m.ConnectionOpen(),
    )
    peer.methods()
    peer.send(0, m.ConnectionUpdateSecret(secret, "expires"))
    [answer] = peer.methods()
    assert isinstance(answer, expected)
    if isinstance(answer, m.ConnectionClose):
        assert (answer.reply_code, answer.class_id, answer.method_id) == (530, 10, 70)


def test_who_logged_in_without_a_secret_may_renew_it() -> None:
    peer = ClientPeer().open()
    peer.send(0, m.ConnectionUpdateSecret(b"new", "expires"))
    assert peer.methods() == [m.ConnectionUpdateSecretOk()]


# --- 0-8 ------------------------------------------------------------------------------------------


def test_a_client_of_0_8_is_served_in_its_own_methods() -> None:
    peer = ClientPeer()
    peer.codec = CODEC_0_8
    peer.feed(PROTOCOL_HEADER_0_8)
    peer.send(
        0,
        m.ConnectionStartOk(mechanism="AMQPLAIN", response=amqplain("guest", "guest")),
        m.ConnectionTuneOk(10, 4096, 0),
        m.ConnectionOpen("/"),
    )
    peer.send(1, m.ChannelOpen(), m.AccessRequest(realm="/data", active=True))
    peer.received()
    peer.take_events()
    peer.publish(1, b"body")
    link = peer.accept()
    peer.do(GrantCredit(link, 1))
    [received] = peer.take_events()
    assert isinstance(received, DeliveriesReceived)
    peer.send(1, m.BasicConsume(queue="q", consumer_tag="c"))
    peer.accept()
    assert peer.methods() == [m.BasicConsumeOk("c")]
    peer.send(0, m.ConnectionClose())
    assert peer.methods() == [m.ConnectionCloseOk()]
    assert peer.engine.finished


def test_the_fault_of_a_client_of_0_8_is_told_in_its_own_numbers() -> None:
    peer = ClientPeer()
    peer.codec = CODEC_0_8
    peer.feed(PROTOCOL_HEADER_0_8)
    peer.received()
    peer.send(0, m.ConnectionOpen())
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert not isinstance(close, Content)
    peer.send(0, m.ConnectionCloseOk())
    assert peer.engine.finished
