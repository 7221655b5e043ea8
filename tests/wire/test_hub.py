from unittest.mock import patch

import pytest

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message

MESSAGE = AnnotatedMessage(properties=Properties(subject="s"), data=[b"body"])


def test_sections_of_1_0_are_their_own_payload() -> None:
    payload = encode_message(MESSAGE)
    assert hub.to_sections(Protocol.AMQP_1_0, payload) == MESSAGE
    assert hub.from_sections(Protocol.AMQP_1_0, MESSAGE) == payload


def test_equal_protocols_pass_octets_on_unread() -> None:
    broken = b"\xff"
    assert hub.translate(broken, Protocol.AMQP_1_0, Protocol.AMQP_1_0) is broken


def test_a_protocol_that_is_registered_translates_both_ways() -> None:
    translator = hub.Translator(
        lambda payload: AnnotatedMessage(data=[payload]), lambda message: b"".join(message.data)
    )
    with patch.dict(hub._translators):
        hub.register(Protocol.AMQP_FAST, translator)
        payload = hub.translate(b"fast", Protocol.AMQP_FAST, Protocol.AMQP_1_0)
        assert payload == encode_message(AnnotatedMessage(data=[b"fast"]))
        assert hub.translate(payload, Protocol.AMQP_1_0, Protocol.AMQP_FAST) == b"fast"


def test_a_quick_translator_is_asked_first_and_may_decline() -> None:
    translator = hub.Translator(
        lambda payload: AnnotatedMessage(data=[payload]),
        lambda message: b"".join(message.data),
        lambda payload: b"quick up" if payload == b"plain" else None,
        lambda payload: b"quick down" if payload == b"plain" else None,
    )
    with patch.dict(hub._translators):
        hub.register(Protocol.AMQP_FAST, translator)
        up, down = Protocol.AMQP_1_0, Protocol.AMQP_FAST
        assert hub.translate(b"plain", down, up) == b"quick up"
        assert hub.translate(b"plain", up, down) == b"quick down"
        sections = encode_message(AnnotatedMessage(data=[b"other"]))
        assert hub.translate(b"other", down, up) == sections
        assert hub.translate(sections, up, down) == b"other"


def test_a_broken_payload_cannot_be_translated() -> None:
    with pytest.raises(TranslationError) as caught:
        hub.to_sections(Protocol.AMQP_1_0, b"\x00\x53\x75\xa0\xff")
    assert caught.value.field == "payload"


def test_a_protocol_that_is_not_built_in_is_told() -> None:
    missing = {Protocol.AMQP_FAST: "router.wire.nowhere.translate"}
    with patch.dict(hub._MODULES, missing), patch.dict(hub._translators, clear=False):
        hub._translators.pop(Protocol.AMQP_FAST, None)
        with pytest.raises(TranslationError) as caught:
            hub.to_sections(Protocol.AMQP_FAST, b"")
    assert caught.value.field == "protocol"


@pytest.mark.parametrize("protocol", Protocol)
def test_every_protocol_is_known_to_the_hub(protocol: Protocol) -> None:
    assert protocol in hub._MODULES or protocol in hub._translators
