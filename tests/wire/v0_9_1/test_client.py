"""We dial a broker: handshake and links."""

import pytest

from router.model import condition as conditions
from router.model.capabilities import Credit, Protocol
from router.model.commands import (
    AttachLink,
    CloseConnection,
    DetachLink,
    GrantCredit,
    RefuseLink,
    ReturnCredit,
)
from router.model.condition import Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import LinkId
from router.model.terminus import Coordinator, Role, Target
from router.wire.machine import MachinePhase
from router.wire.mechanisms import MechanismClient
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_sender import WINDOW
from router.wire.v0_9_1.framing import FRAMING
from router.wire.v0_9_1.machine import Opening
from tests.support.basic_peer import BrokerPeer, attach

START = m.ConnectionStart(
    server_properties={"product": "RabbitMQ", "cluster_name": "rabbit@host", "version": "3.10"},
    mechanisms=b"AMQPLAIN PLAIN",
)


# --- handshake ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"AMQP\x00\x01\x00\x00", "the peer speaks amqp-1.0 without SASL"),
        (b"AMQP\x01\x01\x00\x0a", "the peer speaks amqp-0-10"),
        (b"AMQP\x00\x00\x09\x01", "it seems that the peer wants TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the peer wants TLS"),
        (b"HTTP/1.1 400 Bad Request", "the peer speaks HTTP"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_peer_that_does_not_take_our_header_is_told_by_what_it_speaks(
    answer: bytes, said: str, is_whole: bool
) -> None:
    peer = BrokerPeer(MechanismClient(user="me", password="secret"))
    for octets in (answer,) if is_whole else (answer[:1], answer[1:]):
        peer.feed(octets)
    [closed] = peer.take_events()
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == conditions.NOT_IMPLEMENTED
    if is_whole or answer.startswith(b"AMQP"):
        assert (closed.condition.description or "").startswith(said)


def test_the_handshake_takes_the_lower_of_both_sides_limits() -> None:
    peer = BrokerPeer(
        MechanismClient(user="me", password="secret"), hostname="/v", properties={"platform": "x"}
    )
    peer.send(0, START)
    [start_ok] = peer.methods()
    assert isinstance(start_ok, m.ConnectionStartOk)
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", b"\0me\0secret")
    assert peer.engine.outgoing.login == "me"
    assert start_ok.client_properties["capabilities"]["connection.blocked"] is True
    assert start_ok.client_properties["platform"] == "x"
    peer.send(0, m.ConnectionTune(channel_max=2047, frame_max=131072, heartbeat=30))
    assert peer.methods() == [m.ConnectionTuneOk(2047, 65536, 30), m.ConnectionOpen("/v")]
    assert peer.events == []
    peer.send(0, m.ConnectionOpenOk())
    [opened] = peer.take_events()
    assert isinstance(opened, ConnectionOpened)
    assert opened.container == "rabbit@host"
    assert opened.properties["version"] == "3.10"
    assert opened.capabilities.protocol is Protocol.AMQP_0_9_1
    assert opened.capabilities.credit is Credit.PREFETCH
    assert peer.engine.deadline == 15.0


def test_no_limits_of_the_brokers_leave_ours() -> None:
    peer = BrokerPeer(idle_seconds=0.0)
    peer.send(0, START)
    peer.send(0, m.ConnectionTune(0, 0, 60))
    assert peer.methods()[1] == m.ConnectionTuneOk(0xFFFF, 65536, 0)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (b"ANONYMOUS PLAIN", ("ANONYMOUS", b"")),
        (b"PLAIN AMQPLAIN", ("PLAIN", b"\0guest\0guest")),
        (b"EXTERNAL", None),
    ],
)
def test_who_names_no_login_comes_as_a_guest(
    offered: bytes, chosen: tuple[str, bytes] | None
) -> None:
    peer = BrokerPeer()
    peer.send(0, m.ConnectionStart(mechanisms=offered))
    if chosen is None:
        [ended] = peer.events
        assert isinstance(ended, ConnectionClosed)
        assert ended.condition is not None
        assert ended.condition.name == conditions.UNAUTHORIZED_ACCESS
        assert peer.engine.finished
    else:
        [start_ok] = peer.methods()
        assert isinstance(start_ok, m.ConnectionStartOk)
        assert (start_ok.mechanism, start_ok.response) == chosen


class Proving:
    """A mechanism with a challenge, whose last word proves something or does not."""

    def __init__(self, proof: bool) -> None:
        self.proof = proof

    def choose(self, offered: object) -> tuple[str, bytes | None]:
        return ("SCRAM", b"first")

    def step(self, challenge: bytes) -> bytes:
        return b"answer to " + challenge

    def check(self, additional: bytes | None) -> bool:
        return self.proof


@pytest.mark.parametrize("proof", [True, False])
def test_challenges_are_answered_and_the_last_word_is_checked(proof: bool) -> None:
    peer = BrokerPeer(Proving(proof))
    peer.send(0, START)
    peer.received()
    peer.send(0, m.ConnectionSecure(b"challenge"))
    assert peer.methods() == [m.ConnectionSecureOk(b"answer to challenge")]
    peer.send(0, m.ConnectionTune())
    assert (peer.engine.phase is Opening.OPEN_OK) is proof
    assert (peer.engine.phase is MachinePhase.CLOSED) is not proof


def test_a_broker_that_hangs_up_during_the_login_has_refused_it() -> None:
    peer = BrokerPeer()
    peer.send(0, START)
    [ended] = peer.engine.receive_eof(1.0)
    assert isinstance(ended, ConnectionClosed)
    assert ended.by_peer
    assert ended.condition is not None
    assert ended.condition.name == conditions.UNAUTHORIZED_ACCESS


def test_a_refused_login_or_host_is_told_with_its_reason() -> None:
    for code, name in ((403, conditions.UNAUTHORIZED_ACCESS), (530, conditions.NOT_ALLOWED)):
        peer = BrokerPeer()
        peer.send(0, START)
        peer.send(0, m.ConnectionClose(reply_code=code, reply_text="refused"))
        [ended] = peer.events
        assert isinstance(ended, ConnectionClosed)
        assert ended.condition == Condition(name, f"{code} refused")


def test_a_broker_of_another_version_is_not_served() -> None:
    peer = BrokerPeer()
    peer.send(0, m.ConnectionStart(version_major=8, version_minor=0))
    assert peer.engine.finished


def test_heartbeats_go_both_ways() -> None:
    peer = BrokerPeer().open(heartbeat=10)
    peer.wait(5.1)
    peer.received()
    peer.wait(5.0)
    assert peer.received() == [(0, None)]
    peer.feed(FRAMING.heartbeat)
    peer.wait(20.1)
    assert peer.engine.finished


# --- links ----------------------------------------------------------------------------------------


def test_a_link_to_a_queue_checks_that_it_is_there_and_asks_for_confirms() -> None:
    peer = BrokerPeer().open()
    command = attach(Role.SENDER, "orders")
    peer.do(command)
    assert peer.received() == [(1, m.ChannelOpen())]
    peer.send(1, m.ChannelOpenOk())
    assert peer.received() == [(1, m.QueueDeclare(queue="orders", passive=True))]
    peer.send(1, m.QueueDeclareOk("orders", 0, 0))
    assert peer.received() == [(1, m.ConfirmSelect())]
    assert peer.events == []
    peer.send(1, m.ConfirmSelectOk())
    attached, granted = peer.take_events()
    assert isinstance(attached, LinkAttached)
    assert (attached.link, attached.name, attached.is_answer) == (1, "link1", True)
    assert attached.target == Target(address="orders")
    assert granted == CreditGranted(LinkId(1), WINDOW)


@pytest.mark.parametrize(
    ("address", "checks"),
    [
        ("shop/orders", [m.ExchangeDeclare(exchange="shop", passive=True)]),
        ("amq.topic/a.b", [m.ExchangeDeclare(exchange="amq.topic", passive=True)]),
        ("/queues/a%2Fb", [m.QueueDeclare(queue="a/b", passive=True)]),
        (None, []),
    ],
)
def test_a_link_to_an_exchange_checks_the_exchange(
    address: str | None, checks: list[m.Method]
) -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.SENDER, address))
    peer.send(1, m.ChannelOpenOk())
    assert peer.methods()[1:] == (checks or [m.ConfirmSelect()])


def test_a_route_that_says_so_declares() -> None:
    peer = BrokerPeer().open()
    told = {"durable": False, "auto-delete": True, "arguments": {"x-queue-type": "quorum"}}
    for link, (address, declare, expected) in enumerate(
        (
            ("q", True, m.QueueDeclare(queue="q", durable=True)),
            (
                "q",
                told,
                m.QueueDeclare(queue="q", auto_delete=True, arguments={"x-queue-type": "quorum"}),
            ),
            ("e/k", True, m.ExchangeDeclare(exchange="e", type="topic", durable=True)),
            (
                "e/k",
                {"type": "fanout"},
                m.ExchangeDeclare(exchange="e", type="fanout", durable=True),
            ),
            ("q", False, m.QueueDeclare(queue="q", passive=True)),
        ),
        start=1,
    ):
        peer.do(attach(Role.SENDER, address, link, declare=declare))
        peer.received()
        peer.send(link, m.ChannelOpenOk())
        assert peer.received() == [(link, expected)]


def test_a_queue_that_is_not_there_is_a_refusal_with_the_brokers_reason() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "nowhere"))
    peer.send(1, m.ChannelOpenOk())
    peer.received()
    peer.send(1, m.ChannelClose(reply_code=404, reply_text="NOT_FOUND - no queue"))
    assert peer.received() == [(1, m.ChannelCloseOk())]
    refusal, detached = peer.take_events()
    assert isinstance(refusal, LinkAttached)
    assert refusal.source is None
    assert refusal.target is None
    reason = Condition(conditions.NOT_FOUND, "404 NOT_FOUND - no queue")
    assert detached == LinkDetached(LinkId(1), True, reason)


def test_a_link_is_detached_by_closing_its_channel_and_the_number_is_used_again_later() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.SENDER, "q"))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"), m.ConfirmSelectOk())
    peer.received()
    peer.take_events()
    peer.do(DetachLink(LinkId(1), True))
    assert peer.take_events() == [LinkDetached(LinkId(1), True)]
    [(number, close)] = peer.received()
    assert number == 1
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 200
    peer.do(attach(Role.SENDER, "q", 2))
    assert peer.received() == [(2, m.ChannelOpen())]
    peer.send(1, m.ChannelCloseOk())
    assert sorted(peer.engine.channels) == [2]


def test_a_link_detached_before_it_was_attached_is_refused() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.SENDER, "q"), DetachLink(LinkId(1), True))
    assert [type(event) for event in peer.take_events()] == [LinkAttached, LinkDetached]
    peer.send(1, m.ChannelOpenOk())
    assert peer.events == []
    peer.received()
    peer.send(1, m.ChannelCloseOk())
    assert peer.engine.channels == {}


def test_more_links_than_the_broker_takes_channels_are_refused() -> None:
    peer = BrokerPeer().open(channel_max=2)
    peer.do(*(attach(Role.SENDER, "q", link) for link in (1, 2, 3)))
    refusal, detached = peer.take_events()
    assert isinstance(refusal, LinkAttached)
    assert isinstance(detached, LinkDetached)
    assert detached.condition is not None
    assert detached.condition.name == conditions.RESOURCE_LIMIT_EXCEEDED


def test_transactions_of_a_broker_are_not_served() -> None:
    peer = BrokerPeer().open()
    command = attach(Role.SENDER, "q")
    peer.do(
        AttachLink(
            link=command.link,
            name=command.name,
            role=command.role,
            source=command.source,
            target=Coordinator(),
        )
    )
    assert [type(event) for event in peer.events] == [LinkAttached, LinkDetached]
    assert peer.received() == []


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclareOk("q"),
        m.ConfirmSelectOk(),
        m.BasicConsumeOk("c"),
        m.BasicAck(1),
        m.BasicGetEmpty(),
    ],
)
def test_an_answer_that_nobody_asked_for_closes_the_connection(method: m.Method) -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.RECEIVER, "q"))
    peer.received()
    peer.send(1, method)
    [close] = peer.methods()
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 503


def test_commands_for_links_that_are_gone_are_void() -> None:
    peer = BrokerPeer().open()
    gone = LinkId(9)
    peer.do(
        GrantCredit(gone, 1),
        DetachLink(gone, True),
        RefuseLink(gone, Condition(conditions.NOT_FOUND)),
        ReturnCredit(gone),
    )
    assert peer.events == []
    assert peer.received() == []


def test_the_end_of_the_connection_is_told_alone() -> None:
    peer = BrokerPeer().open()
    peer.do(attach(Role.SENDER, "q"))
    peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"), m.ConfirmSelectOk())
    peer.take_events()
    peer.do(CloseConnection())
    [ended] = peer.events
    assert isinstance(ended, ConnectionClosed)
    peer.do(attach(Role.SENDER, "q", 2))
    assert len(peer.events) == 1
