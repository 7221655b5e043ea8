"""Ids that messages carry, found and given through AMQP 1.0 sections."""

import pytest

from router.model.capabilities import Protocol
from router.wire.message_ids import find_id, give_id
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Properties,
    decode_message,
    encode_message,
)

KEY = bytes(range(16))


def message(message_id: str | bytes | None = None, **properties: str) -> bytes:
    return encode_message(
        AnnotatedMessage(
            properties=Properties(message_id=message_id, subject="s"),
            application_properties=dict(properties) or None,
            data=[b"body"],
        )
    )


def test_a_message_id_is_found() -> None:
    found = find_id(Protocol.AMQP_1_0, message("seven"), "message-id")
    assert found is not None
    assert found.endswith(b"seven")


def test_ids_of_different_types_are_different_ids() -> None:
    one = find_id(Protocol.AMQP_1_0, message("7"), "message-id")
    assert one != find_id(Protocol.AMQP_1_0, message(b"7"), "message-id")


def test_a_property_of_the_application_can_be_the_id() -> None:
    payload = message(_AMQ_DUPL_ID="seven")
    found = find_id(Protocol.AMQP_1_0, payload, "_AMQ_DUPL_ID")
    assert found is not None
    assert found.endswith(b"seven")


@pytest.mark.parametrize("payload", [b"", b"\x00", b"garbage", message()])
def test_what_is_broken_or_has_none_has_no_id(payload: bytes) -> None:
    assert find_id(Protocol.AMQP_1_0, payload, "message-id") is None


def test_an_id_is_given_and_nothing_else_changes() -> None:
    given = give_id(Protocol.AMQP_1_0, message(), "message-id", KEY)
    assert given is not None
    after = decode_message(given[1])
    assert after.properties == Properties(message_id=KEY.hex(), subject="s")
    assert after.data == [b"body"]


def test_a_property_is_given_beside_those_that_are_there() -> None:
    given = give_id(Protocol.AMQP_1_0, message(color="red"), "_AMQ_DUPL_ID", KEY)
    assert given is not None
    assert decode_message(given[1]).application_properties == {
        "color": "red",
        "_AMQ_DUPL_ID": KEY.hex(),
    }


def test_an_id_that_is_there_stays() -> None:
    assert give_id(Protocol.AMQP_1_0, message("seven"), "message-id", KEY) is None
    payload = message(_AMQ_DUPL_ID="seven")
    assert give_id(Protocol.AMQP_1_0, payload, "_AMQ_DUPL_ID", KEY) is None
