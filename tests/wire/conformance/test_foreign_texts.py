"""What a broker says may be any octets: its messages pass, and the core is told text.

Two engines of ours talk, and on the way from the one that was dialed a word is exchanged for octets
that are no text, of the same number.
"""

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from router.model.commands import (
    AttachLink,
    CloseConnection,
    DetachLink,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import CONNECTION_FORCED, INVALID_FIELD, NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import ConnectionClosed, DeliveriesUpdated, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkName
from router.model.outcome import Rejected
from router.model.terminus import Role, Source, Target
from router.wire import hub
from router.wire.v1_0.sections import AnnotatedMessage, Properties
from router.wire.v1_0.types import Symbol
from tests.support.meeting import PAIRS, Meeting, Pair, Side
from tests.support.town import check_text

WORD = "zorro"
BROKEN = (b"\xff\xfe\xfd\xfc\xfb", b"caf\xe9s", b"\xed\xa0\x80ab", b"\0\0\0\0\0", b"\x1b[2Jx")

pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
words = pytest.mark.parametrize("word", BROKEN)
older = pytest.mark.parametrize(
    "pair", [each for name, each in PAIRS.items() if name != "amqp-1.0"], ids=lambda p: p.protocol
)


class Mangled(Meeting):
    """A meeting in which the server's word is exchanged, once that is switched on.

    Attributes:
        word: the octets that the client gets; empty: all as it was sent.
    """

    word = b""

    def run(self) -> None:
        """Carries octets until both are silent."""
        is_moving = True
        while is_moving:
            before = len(self.server.events), len(self.client.events)
            self._carry(self.client, self.server, b"")
            self._carry(self.server, self.client, self.word)
            is_moving = before != (len(self.server.events), len(self.client.events)) or any(
                len(side.engine.data_to_send()) or self._is_due(side)
                for side in (self.client, self.server)
            )
        for side in (self.client, self.server):
            for event in side.events:
                check_text(event)

    def _is_due(self, side: Side) -> bool:
        deadline = side.engine.deadline
        return deadline is not None and deadline <= self.now

    def _carry(self, source: Side, sink: Side, word: bytes) -> None:
        octets = bytes(source.engine.data_to_send())
        source.engine.bytes_sent(len(octets))
        if word:
            octets = octets.replace(WORD.encode(), word)
        if octets:
            sink.take(sink.engine.receive_data(octets, self.now), self.grant)
        if self._is_due(sink):
            sink.take(sink.engine.handle_deadline(self.now), self.grant)


def receiving(pair: Pair) -> tuple[Mangled, int, int]:
    """A client that receives; gives the server's link and the client's, too."""
    meeting = Mangled(pair)
    meeting.run()
    own = meeting.attach(Role.RECEIVER)
    return meeting, meeting.link_at(meeting.server, Role.SENDER), own


def message(pair: Pair) -> bytes:
    """A message with the word wherever the protocol has a place for a string."""
    made = AnnotatedMessage(
        message_annotations={
            Symbol("x-exchange"): WORD,
            Symbol("x-routing-key"): WORD,
            Symbol("x-other"): WORD,
        },
        properties=Properties(
            message_id=WORD,
            to=WORD,
            subject=WORD,
            reply_to=WORD,
            correlation_id=WORD,
            content_type=Symbol(WORD),
            content_encoding=Symbol(WORD),
            group_id=WORD,
        ),
        application_properties={WORD: WORD},
        data=[b"body"],
    )
    return hub.from_sections(pair.protocol, made)


def sent(meeting: Mangled, link: int, payload: bytes, number: int = 1) -> OutgoingDelivery:
    """Has the server send a message of any protocol."""
    delivery = OutgoingDelivery(
        DeliveryNumber(number), DeliveryTag(b"%d" % number), payload, meeting.pair.protocol
    )
    meeting.order(meeting.server, SendDeliveries(link, [delivery]))  # type: ignore[arg-type]
    return delivery


def mangled_message(pair: Pair, word: bytes) -> ReceivedDelivery:
    """What comes of a broker's message in which each string is that."""
    meeting, out, into = receiving(pair)
    meeting.word = word
    sent(meeting, out, message(pair))
    assert not meeting.client.engine.finished
    assert not meeting.client.of(LinkDetached)
    (delivery,) = meeting.client.received[into]  # type: ignore[index]
    assert word in delivery.payload
    return delivery


@pairs
@words
def test_a_message_whose_strings_are_no_text_comes_and_costs_its_broker_nothing(
    pair: Pair, word: bytes
) -> None:
    meeting, out, into = receiving(pair)
    meeting.word = word
    sent(meeting, out, message(pair))
    meeting.word = b""
    sent(meeting, out, message(pair), 2)
    assert not meeting.client.engine.finished
    assert [each.number for each in meeting.client.received[into]]  # type: ignore[index]
    assert len(meeting.client.received[into]) == 2  # type: ignore[index]


@pairs
@words
def test_such_a_message_passes_unchanged_to_a_peer_of_the_same_protocol(
    pair: Pair, word: bytes
) -> None:
    delivery = mangled_message(pair, word)
    onward, out, into = receiving(pair)
    sent(onward, out, delivery.payload)
    (again,) = onward.client.received[into]  # type: ignore[index]
    assert again.payload.count(word) == delivery.payload.count(word)
    assert again.payload[-4:] == b"body"


@pytest.mark.parametrize("target", PAIRS.values(), ids=PAIRS)
@pairs
@words
def test_such_a_message_is_translated_or_refused_and_nothing_else(
    pair: Pair, target: Pair, word: bytes
) -> None:
    delivery = mangled_message(pair, word)
    onward, out, into = receiving(target)
    outgoing = OutgoingDelivery(
        DeliveryNumber(1), DeliveryTag(b"1"), delivery.payload, delivery.protocol
    )
    onward.order(onward.server, SendDeliveries(out, [outgoing]))  # type: ignore[arg-type]
    assert not onward.client.engine.finished
    assert not onward.server.engine.finished
    came = len(onward.client.received.get(into, ()))  # type: ignore[call-overload]
    refused = [
        event.state
        for event in onward.server.of(DeliveriesUpdated)
        if isinstance(event.state, Rejected)
    ]
    assert came + len(refused) == 1


@older
@words
def test_the_words_in_which_a_broker_closes_are_text(pair: Pair, word: bytes) -> None:
    meeting, _, _ = receiving(pair)
    meeting.word = word
    meeting.order(meeting.server, CloseConnection(Condition(CONNECTION_FORCED, WORD)))
    assert meeting.client.engine.finished
    assert len(meeting.client.of(ConnectionClosed)) == 1


@older
@words
def test_the_words_in_which_a_broker_detaches_or_refuses_are_text(pair: Pair, word: bytes) -> None:
    meeting, out, _ = receiving(pair)
    meeting.word = word
    meeting.order(meeting.server, DetachLink(out, True, Condition(NOT_FOUND, WORD)))  # type: ignore[arg-type]
    own = meeting.attach(Role.SENDER)
    meeting.send(meeting.client, own, b"first")
    into = meeting.link_at(meeting.server, Role.RECEIVER)
    (first,) = meeting.server.received[into]
    rejected = Rejected(Condition(NOT_FOUND, WORD))
    meeting.order(meeting.server, UpdateDeliveries(into, [first.number], rejected, True))
    assert meeting.client.of(DeliveriesUpdated)


@pairs
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(word=st.binary(min_size=len(WORD), max_size=len(WORD)))
def test_any_octets_in_a_message_leave_the_connection_alone(pair: Pair, word: bytes) -> None:
    mangled_message(pair, word)


@older
@words
def test_what_a_broker_says_of_itself_is_text(pair: Pair, word: bytes) -> None:
    meeting = Mangled(pair)
    meeting.word = word
    name = "about" if pair.protocol is Protocol.AMQP_0_9R1 else WORD  # its names obey a rule
    meeting.server.engine.settings.properties[Symbol(name)] = WORD  # type: ignore[attr-defined]
    meeting.run()
    assert not meeting.client.engine.finished


LONG = ("q" * 300, "e" * 300 + "/k", "e/" + "k" * 300, "é" * 200, "x" * 4096)
"""Addresses with names that no protocol before AMQP 1.0 has a string for."""


@pytest.mark.parametrize("address", LONG, ids=lambda address: f"{address[:3]}{len(address)}")
@pytest.mark.parametrize("role", Role)
@older
def test_a_link_to_what_a_broker_cannot_be_told_is_declined_and_no_other_suffers(
    pair: Pair, role: Role, address: str
) -> None:
    meeting = Meeting(pair)
    meeting.run()
    link = next(meeting.ids)
    command = AttachLink(
        link=link,
        name=LinkName("long"),
        role=role,
        source=Source(address=address if role is Role.RECEIVER else None),
        target=Target(address=address if role is Role.SENDER else None),
    )
    meeting.order(meeting.client, command)
    (detached,) = meeting.client.of(LinkDetached)
    assert detached.condition is not None
    assert detached.condition.name == INVALID_FIELD
    assert not meeting.client.engine.finished
    own = meeting.attach(Role.SENDER)
    meeting.send(meeting.client, own, b"good")
    into = meeting.link_at(meeting.server, Role.RECEIVER)
    assert len(meeting.server.received[into]) == 1


@pytest.mark.parametrize("address", LONG, ids=lambda address: f"{address[:3]}{len(address)}")
@older
def test_a_message_to_what_a_broker_cannot_be_told_is_rejected_and_the_next_goes_on(
    pair: Pair, address: str
) -> None:
    meeting = Meeting(pair)
    meeting.run()
    link = next(meeting.ids)
    command = AttachLink(
        link=link, name=LinkName("any"), role=Role.SENDER, source=Source(), target=Target()
    )
    meeting.order(meeting.client, command)
    run = [
        attrs.evolve(meeting.delivery(body), address=where)
        for body, where in ((b"long", address), (b"good", "q"))
    ]
    meeting.order(meeting.client, SendDeliveries(link, run))
    assert not meeting.client.engine.finished
    state, settled = meeting.client.updates[link][run[0].number]
    assert isinstance(state, Rejected)
    assert settled
    arrived = [each for runs in meeting.server.received.values() for each in runs]
    assert [meeting.body(each.payload) for each in arrived] == [b"good"]
