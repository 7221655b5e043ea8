"""Answers without a known end: streams towards a peer's client (RFC 006 §3.5.3.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.commands import AbortDelivery, ContinueDelivery, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    DeliveriesUpdated,
    DeliveryContinued,
    LinkDetached,
    OutputPending,
    PartsTaken,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, DeliveryState, Rejected
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.downstream import MAX_HEAD_OCTETS, Body
from router.wire.fast.message import body_octets, decode_head, head_octets
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties, encode_message
from router.wire.v1_0.types import Symbol
from tests.support.fast_peer import Client, message, outgoing

_NUMBER = DeliveryNumber(7)


def streaming(**options: bool) -> tuple[Client, LinkId]:
    """A client that streams to "camera" by handle 1; and where its answers come from."""
    client = Client().open().channel(1, **options).handle(1, "camera", service=3)
    (answers,) = client.say_yes()
    octets = message(b"")
    client.send((c.HandleSend(1, 0, len(octets), partial=True, streaming=True), octets))
    client.say_yes()
    client.read()
    return client, answers.link


def sections(*data: bytes, ttl_ms: int | None = None) -> bytes:
    return encode_message(
        AnnotatedMessage(
            header=Header(ttl_ms=ttl_ms),
            properties=Properties(content_type=Symbol("video/mpeg")),
            data=list(data),
        )
    )


def begin(client: Client, link: LinkId, payload: bytes, *, settled: bool = False) -> None:
    delivery = OutgoingDelivery(
        _NUMBER, DeliveryTag(b"t"), payload, Protocol.AMQP_1_0, settled=settled, more=True
    )
    client.do(SendDeliveries(link, [delivery]))


def go_on(client: Client, link: LinkId, payload: bytes, *, more: bool = True) -> None:
    client.do(ContinueDelivery(link, _NUMBER, payload, more))


def updates(client: Client) -> list[tuple[list[int], DeliveryState | None]]:
    return [
        (list(each.numbers), each.state)
        for each in client.take_events()
        if isinstance(each, DeliveriesUpdated)
    ]


def test_the_core_hears_that_a_handle_takes_parts_when_its_client_streams() -> None:
    client, link = streaming()
    assert [each for each in client.events if isinstance(each, PartsTaken)] == [PartsTaken(link)]


def test_a_handle_that_does_not_stream_is_sent_whole_messages() -> None:
    client = Client().open().channel().handle(1, "clock", service=3)
    client.say_yes()
    client.post(b"?")
    assert not any(isinstance(each, PartsTaken) for each in client.events)


def test_an_answer_goes_out_as_it_comes_and_its_end_closes_the_handle() -> None:
    client, link = streaming()
    payload = sections(b"onetwothree", ttl_ms=500)
    cut = payload.index(b"two")
    begin(client, link, payload[:cut])
    ((first, fragment),) = client.fragments()
    assert first == c.HandleNotify(
        1, 1, len(fragment), partial=True, delivered=True, streaming=True
    )
    size = head_octets(fragment, 0, len(fragment))
    assert body_octets(fragment, 0) == 0  # "the message body size must be zero"
    assert decode_head(fragment, 0, size or 0)[0].mime_type == "video/mpeg"
    assert fragment[size:] == b"one"
    go_on(client, link, payload[cut : cut + 3])
    ((again, fragment),) = client.fragments()
    assert again == c.HandleNotify(1, 1, 3, partial=True, delivered=True, streaming=True)
    assert fragment == b"two"
    assert updates(client) == []
    go_on(client, link, payload[cut + 3 :], more=False)
    last, close = client.read()
    assert isinstance(last, tuple)
    assert last[1] == b"three"
    assert close == c.HandleClose(1, 200)
    assert updates(client) == [([7], ACCEPTED)]


def test_the_orderly_end_of_an_answer_ends_what_its_client_streams() -> None:
    client, link = streaming()
    begin(client, link, sections(b"one"))
    client.take_events()
    go_on(client, link, b"", more=False)
    assert [each.more for each in client.events if isinstance(each, DeliveryContinued)] == [False]
    assert any(isinstance(each, LinkDetached) and each.link == link for each in client.events)


def test_a_head_that_comes_in_pieces_is_awaited() -> None:
    client, link = streaming()
    payload = sections(b"one")
    for at in range(len(payload) - 3):
        if at:
            go_on(client, link, payload[at : at + 1])
        else:
            begin(client, link, payload[:1])
        assert (client.read() == []) is (at < len(payload) - 4)
    go_on(client, link, b"one", more=False)
    assert len(client.read()) == 2


def test_large_parts_are_cut_into_fragments() -> None:
    client, link = streaming()
    begin(client, link, sections(bytes(200_000)))
    found = client.fragments()
    assert [command.fragment_size for command, _ in found[:-1]] == [65536] * 3
    assert sum(len(fragment) for _, fragment in found) > 200_000


def test_an_answer_that_is_settled_is_not_settled_again() -> None:
    client, link = streaming()
    begin(client, link, sections(b"one"), settled=True)
    go_on(client, link, b"", more=False)
    assert updates(client) == []


def test_an_answer_that_breaks_off_closes_the_handle() -> None:
    client, link = streaming()
    begin(client, link, sections(b"one"))
    client.read()
    client.do(AbortDelivery(link, _NUMBER))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 541
    assert updates(client) == []


def test_an_answer_that_breaks_off_before_its_body_is_nothing() -> None:
    client, link = streaming()
    begin(client, link, sections(b"one")[:4])
    client.do(AbortDelivery(link, _NUMBER))
    go_on(client, link, b"more")
    assert client.read() == []
    begin(client, link, sections(b"two"))
    assert len(client.fragments()) == 1


@pytest.mark.parametrize("how", ["handle", "channel", "connection"])
def test_a_client_that_closes_has_not_got_the_answer(how: str) -> None:
    client, link = streaming()
    begin(client, link, sections(b"one"))
    client.take_events()
    closes: dict[str, c.Command] = {
        "handle": c.HandleClose(1, 200),
        "channel": c.ChannelClose(1, 200),
        "connection": c.ConnectionClose(200),
    }
    client.send(closes[how])
    assert updates(client) == [([7], MODIFIED_FAILED)]
    go_on(client, link, b"late")
    assert not any(isinstance(each, tuple) for each in client.read()[1:])


def test_a_body_that_is_not_data_is_refused() -> None:
    client, link = streaming()
    begin(client, link, encode_message(AnnotatedMessage(value="text"))[:-1])
    ((numbers, state),) = updates(client)
    assert numbers == [7]
    assert isinstance(state, Rejected)
    assert client.read() == []
    begin(client, link, sections(b"one"))
    assert len(client.fragments()) == 1


def test_what_breaks_in_the_middle_closes_the_handle() -> None:
    client, link = streaming()
    begin(client, link, sections(b"one"))
    client.read()
    client.take_events()
    go_on(client, link, b"\xff" * 20)
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 541
    assert updates(client) == [([7], MODIFIED_FAILED)]


def test_other_messages_of_the_channel_wait_for_the_streams_end() -> None:
    """§3.5.3.1: "it cannot send other messages on that channel"."""
    client, link = streaming()
    client.handle(2, "orders").send(c.HandleConsume(2, 0, 10))
    (asked,) = client.say_yes()
    begin(client, link, sections(b"one"))
    client.read()
    client.do(SendDeliveries(asked.link, [outgoing(1, b"other")]))
    assert client.read() == []
    go_on(client, link, b"", more=False)
    close, other = client.read()
    assert close == c.HandleClose(1, 200) or isinstance(close, tuple)
    assert {type(close), type(other)} == {c.HandleClose, tuple}


def test_a_stream_waits_for_a_message_that_was_announced() -> None:
    client, link = streaming(restartable=True)
    client.handle(2, "orders").send(c.HandleConsume(2, 0, 10))
    (asked,) = client.say_yes()
    client.do(SendDeliveries(asked.link, [outgoing(1, bytes(100_000))]))
    client.read()
    begin(client, link, sections(b"one"))
    assert client.read() == []
    client.send(c.HandleReady(2, 0))
    assert len(client.fragments()) == 3


def test_what_waits_for_the_line_counts_as_output() -> None:
    client = Client(
        server=EngineSettings(
            is_server=True, container="router", output_high_octets=5000, output_low_octets=1000
        )
    )
    client.open().channel(1, restartable=True).handle(1, "camera", service=3)
    (answers,) = client.say_yes()
    octets = message(b"")
    client.send((c.HandleSend(1, 0, len(octets), partial=True, streaming=True), octets))
    client.handle(2, "orders").send(c.HandleConsume(2, 0, 10))
    asked = client.say_yes()[-1]
    client.do(SendDeliveries(asked.link, [outgoing(1, bytes(100_000))]))
    client.read()
    client.settle()
    client.take_events()
    begin(client, answers.link, sections(bytes(6000)))
    assert client.read() == []
    assert OutputPending(True) in client.take_events()
    client.send(c.HandleReady(2, 0))
    client.read()
    client.settle()
    assert OutputPending(False) in client.take_events()


# --- sections in pieces ---------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=400), min_size=1, max_size=4),
    st.lists(st.integers(0, 2500), max_size=12),
)
def test_data_is_found_wherever_a_message_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    octets = encode_message(
        AnnotatedMessage(
            header=Header(durable=True),
            message_annotations={Symbol("x-a"): "b" * 300},
            properties=Properties(to="t"),
            data=parts,
            footer={Symbol("x-f"): 1},
        )
    )
    ends = [*sorted(cuts), len(octets)]
    body, found, at = Body(), b"", 0
    for end in ends:
        found += body.feed(octets[at:end])
        at = max(at, end)
    assert found == b"".join(parts)
    assert octets.startswith(body.head)
    assert body.has_begun


@pytest.mark.parametrize(
    "octets",
    [
        b"\x01\x53\x70\x45",  # no descriptor
        b"\x00\x44\x70\x45",
        b"\x00\x53\x76\x45",  # a sequence
        b"\x00\x53\x77\xa1\x01x",  # a value
        b"\x00\x53\x70\x70\x00",  # a header that is a number
        b"\x00\x53\x6f\x45",  # no section at all
    ],
)
def test_what_is_no_stream_of_data_is_found(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        Body().feed(octets)


def test_descriptors_may_be_long() -> None:
    body = Body()
    assert body.feed(b"\x00\x80" + bytes(7) + b"\x70\x45") == b""
    assert body.feed(b"\x00\x80" + bytes(7) + b"\x75\xb0\x00\x00\x00\x02hi") == b"hi"


def test_a_head_without_end_is_not_kept() -> None:
    body = Body()
    with pytest.raises(DecodeError):
        body.feed(b"\x00\x53\x72\xd1\xff\xff\xff\xff" + bytes(MAX_HEAD_OCTETS))
