"""Rules of messaging and of types (parts 3 and 1) that no other test shows."""

import pytest

from router.errors import DecodeError
from router.model.condition import DECODE_ERROR, INVALID_FIELD
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Modified
from router.model.terminus import ALL_OUTCOMES, Role, Source
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Attach, Close, SaslMechanisms, decode, encode
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Header,
    Properties,
    encode_message,
    peek,
    rewrite,
    walk,
)
from router.wire.v1_0.types import Symbol, decode_value
from tests.support.peer import begun
from tests.support.play import Play

EVERYTHING = AnnotatedMessage(
    header=Header(durable=True, ttl_ms=1000),
    message_annotations={Symbol("x-opt-a"): 1},
    properties=Properties(message_id="m", to="t"),
    application_properties={"k": "v"},
    data=[b"one", b"two"],
    footer={Symbol("x-opt-f"): 1},
)


def test_a_header_that_is_left_out_says_what_its_defaults_say() -> None:
    seen = peek(encode_message(AnnotatedMessage(data=[b"x"])))
    assert (seen.durable, seen.priority, seen.ttl_ms) == (False, 4, None)
    assert (seen.first_acquirer, seen.delivery_count) == (False, 0)


def test_a_header_is_all_that_changes_when_it_must() -> None:
    payload = encode_message(EVERYTHING)
    changed = rewrite(payload, ttl_ms=7, delivery_count=2)
    assert (peek(changed).ttl_ms, peek(changed).delivery_count) == (7, 2)
    (before, *_), (after, *_) = walk(payload), walk(changed)
    assert changed[after.end :] == payload[before.end :]


@pytest.mark.parametrize(("outcome", "count"), [(RELEASED, 0), (MODIFIED_FAILED, 1)])
def test_only_a_failed_attempt_is_counted(outcome: Modified, count: int) -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=1)
    play.connect("s").attach_sender().send("x")
    second = play.connect("b").attach_receiver(credit=1)
    first.update(*first.unsettled, state=outcome)
    assert (second.last.delivery_count or 0) == count


def test_what_was_accepted_is_sent_to_nobody_again() -> None:
    play = Play("orders")
    first = play.connect("a").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    (number,) = sender.send("x")
    first.accept()
    first.peer.lose()
    second = play.connect("b").attach_receiver(credit=5)
    sender.peer.lose()
    assert sender.outcome(number) == (ACCEPTED, True)
    assert second.payloads == []


def test_our_source_lists_the_outcomes_by_name() -> None:
    receiver = Play("orders").connect().attach_receiver()
    assert receiver.attach is not None
    assert receiver.attach.source is not None
    assert receiver.attach.source.outcomes == ALL_OUTCOMES
    assert all(name.startswith("amqp:") and name.endswith(":list") for name in ALL_OUTCOMES)


def test_a_default_outcome_that_is_none_closes_the_connection() -> None:
    source = Source(address="orders", default_outcome=ACCEPTED)
    octets = frame(0, encode(Attach(name="l", handle=0, role=Role.RECEIVER, source=source)))
    accepted, received = b"\x00\x53\x24\x45", b"\x00\x53\x23\x45"
    assert octets.count(accepted) == 1
    peer = begun()
    peer.send_octets(octets.replace(accepted, received))
    error = peer.expect_one(Close).error
    assert error is not None
    assert error.name in {DECODE_ERROR, INVALID_FIELD}


@pytest.mark.parametrize("names", [b"\x40", b"\xe0\x02\x00\xa3"])
def test_a_field_that_must_have_values_is_not_null_and_not_empty(names: bytes) -> None:
    good = encode(SaslMechanisms(("PLAIN",)))
    fields = b"\x01" + names
    octets = good[:3] + b"\xc0" + bytes([len(fields)]) + fields
    with pytest.raises(DecodeError, match="mandatory"):
        decode(octets, 0, len(octets))


def test_a_map_has_as_many_values_as_keys() -> None:
    with pytest.raises(DecodeError):
        decode_value(b"\xc1\x04\x03\x43\x43\x43", 0)
    assert decode_value(b"\xc1\x03\x02\x43\x43", 0)[0] == {0: 0}
