"""The priority of a message, whatever protocol it came by."""

import pytest

from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.priority import DEFAULT_PRIORITY, priority_in
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message


def message(priority: int | None) -> bytes:
    """A message with a priority."""
    return encode_message(AnnotatedMessage(header=Header(priority=priority), data=[b"x"]))


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("priority", [0, 7, 9])
def test_a_message_keeps_its_priority_in_any_protocol(protocol: Protocol, priority: int) -> None:
    payload = hub.translate(message(priority), Protocol.AMQP_1_0, protocol)
    assert priority_in(protocol, payload) == priority


def test_a_message_without_a_priority_has_the_default_one() -> None:
    assert priority_in(Protocol.AMQP_1_0, message(None)) == DEFAULT_PRIORITY
    assert priority_in(Protocol.AMQP_1_0, b"no message") == DEFAULT_PRIORITY
