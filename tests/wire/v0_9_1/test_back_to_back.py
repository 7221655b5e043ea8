"""Our client engine against our server engine, random conversations, and garbage.

Between the two stands no core but the test: what the server side receives from the client side
is compared with what was sent, and the other way round.
"""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import Role, SenderSettleMode, Source, Target
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_sender import BrokerSender
from router.wire.v0_9_1.client import ClientEngine
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.framing import METHOD, PROTOCOL_HEADER, frame
from router.wire.v0_9_1.server import ServerEngine
from tests.support.accepting import accepting
from tests.support.basic_messages import content
from tests.support.basic_peer import BrokerPeer, ClientPeer, Content, attach
from tests.support.basic_peer import settings as engine_settings


class Pair:
    """A client engine and a server engine, joined; a core of few words behind the server."""

    def __init__(self, chunk: int = 1 << 20) -> None:
        self.server = ServerEngine(engine_settings())
        self.client = ClientEngine(engine_settings(is_server=False))
        self.chunk = chunk
        self.now = 0.0
        self.events: dict[object, list[Event]] = {self.server: [], self.client: []}
        self.refuses: set[str] = set()

    def _carry(self, source: ServerEngine | ClientEngine, sink: ServerEngine | ClientEngine) -> int:
        view = source.data_to_send()
        octets = bytes(view[: self.chunk])
        if octets:
            source.bytes_sent(len(octets))
            self._take(sink, sink.receive_data(octets, self.now))
        return len(octets)

    def _take(self, engine: ServerEngine | ClientEngine, events: Sequence[Event]) -> None:
        for event in events:
            if engine is self.server and isinstance(event, LinkAttached):
                self._answer(event)
            self.events[engine].append(event)

    def _answer(self, event: LinkAttached) -> None:
        """The server's core: everything is routed but what is not."""
        terminus = event.target if event.role is Role.RECEIVER else event.source
        address = terminus.address if isinstance(terminus, Source | Target) else None
        if address in self.refuses:
            refused: Command = RefuseLink(event.link, Condition(NOT_FOUND, "no route"))
        else:
            refused = accepting(event)
        self.server.execute(refused)

    def run(self) -> None:
        """Carries octets and deadlines until nothing moves."""
        moved = True
        while moved:
            moved = False
            for source, sink in ((self.client, self.server), (self.server, self.client)):
                moved |= self._carry(source, sink) > 0
                deadline = sink.deadline
                if deadline is not None and deadline <= self.now:
                    self._take(sink, sink.handle_deadline(self.now))

    def do(self, engine: ServerEngine | ClientEngine, *commands: Command) -> None:
        for command in commands:
            engine.execute(command)
        self.run()

    def take(self, engine: ServerEngine | ClientEngine) -> list[Event]:
        events, self.events[engine] = self.events[engine], []
        return events

    def links(self, role: Role) -> list[LinkId]:
        """Links that the server's core was asked for and that are not detached."""
        asked = {
            event.link
            for event in self.events[self.server]
            if isinstance(event, LinkAttached) and event.role is role
        }
        gone = {event.link for event in self.events[self.server] if isinstance(event, LinkDetached)}
        return sorted(asked - gone)


def sending(number: int, payload: bytes) -> OutgoingDelivery:
    return OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"t"), payload, Protocol.AMQP_0_9_1)


def received(events: list[Event]) -> list[bytes]:
    return [
        one.payload
        for event in events
        if isinstance(event, DeliveriesReceived)
        for one in event.deliveries
    ]


def outcomes(events: list[Event]) -> dict[int, DeliveryState | None]:
    return {
        number: event.state
        for event in events
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    }


@pytest.mark.parametrize("chunk", [1 << 20, 100, 7])
def test_what_one_publishes_the_other_receives_and_decides(chunk: int) -> None:
    pair = Pair(chunk)
    pair.run()
    pair.do(pair.client, attach(Role.SENDER, "q"))
    payloads = [
        content(Properties(message_id=str(number)), b"x" * number * 50, routing_key=b"q")
        for number in range(1, 21)
    ]
    pair.take(pair.client)
    pair.events[pair.server].clear()
    pair.do(
        pair.client,
        SendDeliveries(LinkId(1), [sending(n, one) for n, one in enumerate(payloads, 1)]),
    )
    [link] = pair.links(Role.RECEIVER)
    pair.do(pair.server, GrantCredit(link, 100))
    assert received(pair.take(pair.server)) == payloads
    states: dict[int, DeliveryState] = {
        1: ACCEPTED,
        2: RELEASED,
        3: Rejected(Condition(NOT_FOUND)),
        4: REJECTED,
    }
    for number in range(1, 21):
        state = states.get(number, ACCEPTED)
        pair.do(pair.server, UpdateDeliveries(link, [DeliveryNumber(number)], state, True))
    told = outcomes(pair.take(pair.client))
    assert set(told) == set(range(1, 21))
    assert told[1] == told[20] == ACCEPTED
    assert told[2] == told[4] == RELEASED
    third = told[3]
    assert isinstance(third, Rejected)
    assert third.error is not None
    assert third.error.name == NOT_FOUND


@pytest.mark.parametrize("chunk", [1 << 20, 100, 7])
def test_what_one_delivers_the_other_receives_and_acknowledges(chunk: int) -> None:
    pair = Pair(chunk)
    pair.run()
    pair.do(pair.client, attach(Role.RECEIVER, "q"), GrantCredit(LinkId(1), 50))
    [link] = pair.links(Role.SENDER)
    assert CreditGranted(link, 50) in pair.events[pair.server]
    payloads = [
        content(Properties(message_id=str(n)), b"x" * n * 50, exchange=b"e", routing_key=b"k")
        for n in range(1, 21)
    ]
    pair.take(pair.server)
    pair.do(
        pair.server, SendDeliveries(link, [sending(n, one) for n, one in enumerate(payloads, 1)])
    )
    assert received(pair.take(pair.client)) == payloads
    for number, state in ((2, ACCEPTED), (1, REJECTED), (3, RELEASED), (4, ACCEPTED)):
        pair.do(pair.client, UpdateDeliveries(LinkId(1), [DeliveryNumber(number)], state, True))
    assert outcomes(pair.take(pair.server)) == {
        2: ACCEPTED,
        1: REJECTED,
        3: MODIFIED_FAILED,
        4: ACCEPTED,
    }


def test_a_drain_from_one_end_to_the_other_is_exact() -> None:
    pair = Pair()
    pair.run()
    pair.do(pair.client, attach(Role.RECEIVER, "q"), GrantCredit(LinkId(1), 3, drain=True))
    [link] = pair.links(Role.SENDER)
    assert CreditGranted(link, 1, drain=True) in pair.take(pair.server)
    pair.do(pair.server, SendDeliveries(link, [sending(1, content(Properties(), b"1"))]))
    pair.do(pair.server, ReturnCredit(link))  # answers the drain, though all it asked for came
    pair.do(pair.server, ReturnCredit(link))
    events = pair.take(pair.client)
    assert len(received(events)) == 1
    assert CreditReturned(LinkId(1), 0) in events


def test_what_is_not_routed_there_is_refused_here() -> None:
    pair = Pair()
    pair.refuses = {"nowhere"}
    pair.run()
    for link, role in ((1, Role.SENDER), (2, Role.RECEIVER)):
        pair.do(pair.client, attach(role, "nowhere", link))
        detached = pair.take(pair.client)[-1]
        assert isinstance(detached, LinkDetached)
        assert detached.condition is not None
        assert detached.condition.name == NOT_FOUND


def test_closing_from_either_side_ends_both() -> None:
    for closes_first in ("client", "server"):
        pair = Pair()
        pair.run()
        pair.do(getattr(pair, closes_first), CloseConnection())
        assert pair.client.finished
        assert pair.server.finished
        for engine in (pair.client, pair.server):
            ends = [one for one in pair.events[engine] if isinstance(one, ConnectionClosed)]
            assert len(ends) == 1
            assert ends[0].condition is None


# --- garbage --------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.binary(max_size=200), st.booleans())
def test_random_octets_end_in_a_close_at_worst(octets: bytes, is_server: bool) -> None:
    peer = ClientPeer() if is_server else BrokerPeer()
    peer.feed(octets)
    assert sum(isinstance(event, ConnectionClosed) for event in peer.events) <= 1


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.binary(max_size=30)), max_size=8)
)
def test_random_frames_end_in_a_close_at_worst(frames: list[tuple[int, int, bytes]]) -> None:
    for peer in (ClientPeer().open(1, 2), BrokerPeer().open()):
        peer.do(attach(Role.RECEIVER, "q"))
        for kind, number, payload in frames:
            peer.feed(frame(kind, number, payload))
        assert sum(isinstance(event, ConnectionClosed) for event in peer.events) <= 1


def mutated(rng: random.Random, octets: bytes) -> bytes:
    changed = bytearray(octets)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(3):
            case 0 if at < len(changed):
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randrange(9)]
            case _:
                changed[at:at] = rng.randbytes(rng.randrange(9))
    return bytes(changed)


QUEUES = ("q", "q", "mine", "router/temp/3", "")
KEYS = ("a", "b", "q")
EXCHANGES = ("", "", "amq.fanout", "amq.topic", "amq.headers", "e")
TAGS = ("c", "d")


def client_methods(rng: random.Random) -> m.Method:
    """A method that a client might send."""
    tag = rng.randrange(12)
    queue, exchange, key = rng.choice(QUEUES), rng.choice(EXCHANGES), rng.choice(KEYS)
    flag = rng.random() < 0.5
    choices: tuple[m.Method, ...] = (
        m.BasicAck(tag, flag),
        m.BasicAck(tag, flag),
        m.BasicNack(tag, flag, rng.random() < 0.5),
        m.BasicReject(tag, flag),
        m.BasicRecover(),
        m.BasicQos(prefetch_count=rng.randrange(4), all_consumers=flag),
        m.BasicConsume(queue=queue, consumer_tag=rng.choice(TAGS), no_ack=flag),
        m.BasicConsume(queue=queue, no_ack=flag),
        m.BasicCancel(rng.choice(TAGS), no_wait=flag),
        m.BasicGet(queue=queue, no_ack=flag),
        m.ChannelFlow(flag),
        m.ChannelOpen(),
        m.ChannelClose(),
        m.ChannelCloseOk(),
        m.ConfirmSelect(),
        m.TxSelect(),
        m.TxCommit(),
        m.TxRollback(),
        m.QueueDeclare(queue=queue, exclusive=flag, auto_delete=rng.random() < 0.5),
        m.QueueDeclare(queue=queue, passive=flag),
        m.QueueBind(queue=queue, exchange=exchange, routing_key=key),
        m.QueueUnbind(queue=queue, exchange=exchange, routing_key=key),
        m.QueuePurge(queue=queue),
        m.QueueDelete(queue=queue),
        m.ExchangeDeclare(exchange="e", type=rng.choice(("fanout", "topic")), passive=flag),
    )
    return rng.choice(choices)


class Harassed:
    """One engine, a peer that talks at random, and a core that mostly makes sense."""

    def __init__(self, rng: random.Random, peer: ClientPeer | BrokerPeer) -> None:
        self.rng = rng
        self.peer = peer
        self.credit: dict[LinkId, int] = {}
        self.undecided: list[tuple[LinkId, DeliveryNumber]] = []
        self.unanswered: list[LinkAttached] = []
        self.number = 0
        self.ends = 0

    def hear(self) -> None:
        """Takes the engine's events as a core would."""
        for event in self.peer.take_events():
            match event:
                case LinkAttached(is_answer=False):
                    self.unanswered.append(event)
                case CreditGranted(link=link, credit=credit):
                    self.credit[link] = credit
                case DeliveriesReceived(link=link, deliveries=deliveries):
                    self.undecided += [(link, one.number) for one in deliveries if not one.settled]
                case LinkDetached(link=link):
                    self.credit.pop(link, None)
                    self.undecided = [one for one in self.undecided if one[0] != link]
                case ConnectionClosed():
                    self.ends += 1

    def command(self) -> None:
        """Lets the core do something that it may do."""
        rng, peer = self.rng, self.peer
        for event in self.unanswered[: rng.randrange(3)]:
            self.unanswered.remove(event)
            if rng.random() < 0.15:
                peer.do(RefuseLink(event.link, Condition(NOT_FOUND, "no route")))
            else:
                assert isinstance(peer, ClientPeer)
                peer.accept(event)
                if event.role is Role.RECEIVER:
                    peer.do(GrantCredit(event.link, rng.randrange(5)))
        for link, credit in list(self.credit.items()):
            count = min(credit, rng.randrange(4))
            if count and rng.random() < 0.7:
                self.credit[link] -= count
                peer.do(SendDeliveries(link, [self.delivery() for _ in range(count)]))
            elif rng.random() < 0.1:
                peer.do(ReturnCredit(link))
        for link, number in self.undecided[: rng.randrange(5)]:
            self.undecided.remove((link, number))
            state = rng.choice((ACCEPTED, ACCEPTED, RELEASED, Rejected(Condition(NOT_FOUND)), None))
            peer.do(UpdateDeliveries(link, [number], state, rng.random() < 0.9))
        if rng.random() < 0.3:
            peer.do(self.odd_command())

    def delivery(self) -> OutgoingDelivery:
        self.number += 1
        odd = self.rng.random() < 0.1
        payload = b"\x00\x00" if odd else content(Properties(message_id="m"), b"body")
        one = sending(self.number, payload)
        one.settled = self.rng.random() < 0.2
        one.delivery_count = self.rng.choice((None, 0, 1, 5))
        return one

    def odd_command(self) -> Command:
        """Any command for any link, whether it is there or not."""
        rng = self.rng
        link = LinkId(rng.randrange(1, 15))
        commands: tuple[Command, ...] = (
            GrantCredit(link, rng.randrange(4), drain=rng.random() < 0.3),
            HoldWindow(link, rng.random() < 0.5),
            ReturnCredit(link),
            DetachLink(link, True),
            RefuseLink(link, Condition(NOT_FOUND)),
            AttachLink(
                link=LinkId(100 + link),
                name=LinkName("n"),
                role=rng.choice((Role.SENDER, Role.RECEIVER)),
                source=Source(address="q"),
                target=Target(address=rng.choice(("q", "e/k", None))),
                sender_settle_mode=rng.choice(list(SenderSettleMode)),
            ),
        )
        return rng.choice(commands)

    def talk(self) -> bytes:
        """What the peer says next."""
        rng, peer = self.rng, self.peer
        if isinstance(peer, BrokerPeer):
            return self.answers()
        parts = []
        for _ in range(rng.randrange(1, 6)):
            number = rng.choice((1, 1, 1, 2, 3))
            if rng.random() < 0.4:
                publish = m.BasicPublish(
                    exchange=rng.choice(EXCHANGES),
                    routing_key=rng.choice(KEYS),
                    mandatory=rng.random() < 0.5,
                )
                parts.append(peer.content(number, publish, rng.randbytes(rng.choice((0, 5, 5000)))))
            else:
                parts.append(frame(METHOD, number, CODEC.encode(client_methods(rng))))
        return b"".join(parts)

    def answers(self) -> bytes:
        """A broker's answers to what the engine has sent, and some of its own account."""
        rng, peer = self.rng, self.peer
        parts = []
        for number, one in peer.received():
            method = one.method if isinstance(one, Content) else one
            reply = _ANSWERS.get(type(method))
            if reply is not None and rng.random() < 0.97:
                parts.append(frame(METHOD, number, CODEC.encode(reply)))
        for number in list(peer.engine.channels):
            if rng.random() < 0.5:
                parts.append(self.of_its_own(number))
        return b"".join(parts)

    def of_its_own(self, number: int) -> bytes:
        rng, peer = self.rng, self.peer
        channel = peer.engine.channels[number]
        self.number += 1
        if rng.random() < 0.05:
            blocked = rng.choice((m.ConnectionBlocked("memory"), m.ConnectionUnblocked()))
            return frame(METHOD, 0, CODEC.encode(blocked))
        if rng.random() < 0.05:
            return frame(METHOD, number, CODEC.encode(m.ChannelFlow(rng.random() < 0.5)))
        if isinstance(channel, BrokerSender):
            tag = rng.randrange(20)
            if rng.random() < 0.2:
                return peer.content(number, m.BasicReturn(), b"body", Properties(message_id="m"))
            told = rng.choice((m.BasicAck(tag, rng.random() < 0.5), m.BasicNack(tag, False)))
            return frame(METHOD, number, CODEC.encode(told))
        if rng.random() < 0.1:
            return peer.content(number, m.BasicGetOk(delivery_tag=self.number), b"body")
        if rng.random() < 0.03:
            return frame(METHOD, number, CODEC.encode(m.BasicCancel("router", True)))
        deliver = m.BasicDeliver(
            consumer_tag="router", delivery_tag=self.number, redelivered=rng.random() < 0.5
        )
        return peer.content(number, deliver, rng.randbytes(rng.choice((0, 5, 5000))))


_ANSWERS: dict[type, m.Method] = {
    m.ChannelOpen: m.ChannelOpenOk(),
    m.QueueDeclare: m.QueueDeclareOk("q"),
    m.QueueBind: m.QueueBindOk(),
    m.ExchangeDeclare: m.ExchangeDeclareOk(),
    m.ConfirmSelect: m.ConfirmSelectOk(),
    m.BasicQos: m.BasicQosOk(),
    m.BasicConsume: m.BasicConsumeOk("router"),
    m.BasicCancel: m.BasicCancelOk("router"),
    m.BasicGet: m.BasicGetEmpty(),
    m.ChannelClose: m.ChannelCloseOk(),
}


def harass(seed: int) -> None:
    """Plays one random conversation."""
    rng = random.Random(seed)
    peer = ClientPeer().open(1, 2) if rng.random() < 0.6 else BrokerPeer().open()
    harassed = Harassed(rng, peer)
    if isinstance(peer, BrokerPeer):
        for link, role in ((1, Role.SENDER), (2, Role.RECEIVER), (3, Role.RECEIVER)):
            address = rng.choice(("q", "e/k"))
            mode = rng.choice(list(SenderSettleMode))
            peer.do(attach(role, address, link, mode=mode))
            peer.do(GrantCredit(LinkId(link), rng.randrange(9), drain=rng.random() < 0.2))
    for _ in range(rng.randrange(5, 40)):
        octets = harassed.talk()
        if rng.random() < 0.05:
            octets = mutated(rng, octets)
        while octets:
            size = rng.choice((len(octets), rng.randrange(1, len(octets) + 1)))
            peer.feed(octets[:size])
            octets = octets[size:]
            harassed.hear()
            harassed.command()
            harassed.hear()
        if rng.random() < 0.1:
            peer.wait(rng.choice((1.0, 30.0)))
        if isinstance(peer, ClientPeer):
            peer.octets()
    if rng.random() < 0.3:
        peer.send(0, m.ConnectionClose())
    harassed.hear()
    peer.events += peer.engine.receive_eof(peer.now)
    harassed.hear()
    assert harassed.ends == 1
    assert peer.engine.finished


@pytest.mark.parametrize("block", range(8))
def test_nothing_that_a_peer_sends_raises(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        harass(seed)


def test_octets_before_the_end_of_the_handshake_raise_nothing() -> None:
    rng = random.Random(5)
    for _ in range(300):
        octets = PROTOCOL_HEADER + frame(
            METHOD, 0, CODEC.encode(m.ConnectionStartOk(response=b"\0a\0b"))
        )
        octets += frame(METHOD, 0, CODEC.encode(m.ConnectionTuneOk(10, 4096, 0)))
        peer = ClientPeer()
        peer.feed(mutated(rng, octets))


# --- the fast lane --------------------------------------------------------------------------------


def runs_joined(events: list[Event]) -> list[object]:
    """Events with each delivery on its own, so that the length of runs does not matter."""
    flat: list[object] = []
    for event in events:
        if isinstance(event, DeliveriesReceived):
            flat += [(event.link, one) for one in event.deliveries]
        else:
            flat.append(event)
    return flat


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_fast_lane_says_what_the_general_way_says(seed: int) -> None:
    rng = random.Random(seed)
    peers = [ClientPeer().open(1, 2) for _ in range(2)]
    peers[1].engine.take_run = lambda octets, at, end: at  # type: ignore[method-assign]
    for peer in peers:
        if seed % 2:
            peer.send(1, m.ConfirmSelect())
    steps: list[bytes] = []
    for _ in range(rng.randrange(2, 12)):
        parts = []
        for _ in range(rng.randrange(1, 6)):
            method = m.BasicPublish(routing_key=rng.choice("ab"), mandatory=rng.random() < 0.3)
            told = Properties(
                expiration=rng.choice((None, None, "50")), message_id=rng.choice((None, "m"))
            )
            body = rng.randbytes(rng.choice((0, 3, 40, 5000)))
            parts.append(peers[0].content(rng.choice((1, 1, 2)), method, body, told))
        octets = b"".join(parts)
        if rng.random() < 0.1:
            octets = mutated(rng, octets)
        steps.append(octets)
    credit = rng.randrange(1, 20)
    for octets in steps:
        cut = rng.randrange(len(octets) + 1)
        for part in (octets[:cut], octets[cut:]):
            told_by = []
            for peer in peers:
                peer.feed(part)
                for event in [one for one in peer.events if isinstance(one, LinkAttached)]:
                    if event.link not in peer.engine.inlets:
                        continue
                    inlet = peer.engine.inlets[event.link]
                    if not inlet.is_attached:
                        peer.accept(event)
                        peer.events.insert(0, event)
                        peer.do(GrantCredit(event.link, credit))
                told_by.append((runs_joined(peer.take_events()), peer.octets()))
            assert told_by[0] == told_by[1]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_runs_of_a_brokers_frames_say_what_single_frames_say(seed: int) -> None:
    rng = random.Random(seed)
    peers = [BrokerPeer().open() for _ in range(2)]
    peers[1].engine.take_run = lambda octets, at, end: at  # type: ignore[method-assign]
    for peer in peers:
        peer.do(attach(Role.RECEIVER, "q"), GrantCredit(LinkId(1), 20))
        peer.answer(1, m.ChannelOpenOk(), m.QueueDeclareOk("q"))
        peer.send(1, m.BasicQosOk(), m.BasicConsumeOk("router"))
        peer.take_events()
    parts = []
    for tag in range(1, rng.randrange(2, 30)):
        method = m.BasicDeliver(
            consumer_tag="router",
            delivery_tag=tag,
            redelivered=rng.random() < 0.3,
            exchange=rng.choice(("", "e")),
            routing_key=rng.choice(("", "key")),
        )
        told = Properties(message_id="m", headers={"x-delivery-count": 3})
        body = rng.randbytes(rng.choice((0, 3, 5000)))
        parts.append(peers[0].content(1, method, body, told))
    octets = b"".join(parts)
    if rng.random() < 0.3:
        octets = mutated(rng, octets)
    cut = rng.randrange(len(octets) + 1)
    for part in (octets[:cut], octets[cut:]):
        told_by = []
        for peer in peers:
            peer.feed(part)
            told_by.append((runs_joined(peer.take_events()), peer.octets()))
        assert told_by[0] == told_by[1]
