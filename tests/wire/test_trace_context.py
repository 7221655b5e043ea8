import pytest

from router.model.capabilities import Protocol
from router.wire import hub, trace_context
from router.wire.trace_context import parse
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties, encode_message

CREATOR = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HOP = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
NEXT = "00-0af7651916cd43dd8448eb211c80319c-1111111111111111-01"
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
BINARY = b"\x00\x00" + bytes(range(1, 17)) + b"\x01" + bytes(range(1, 9)) + b"\x02\x01"

OLDER = [each for each in Protocol if each is not Protocol.AMQP_1_0]


def message(
    annotations: dict[str, object] | None = None, properties: dict[str, object] | None = None
) -> AnnotatedMessage:
    return AnnotatedMessage(
        header=Header(priority=4),
        message_annotations=annotations,
        properties=Properties(message_id="m"),
        application_properties=properties,
        data=[b"body"],
    )


def after(protocol: Protocol, made: AnnotatedMessage) -> tuple[bytes, AnnotatedMessage]:
    """What a peer of another protocol gets, and what comes back from there."""
    octets = hub.translate(encode_message(made), Protocol.AMQP_1_0, protocol)
    back = hub.translate(octets, protocol, Protocol.AMQP_1_0)
    return octets, hub.to_sections(Protocol.AMQP_1_0, back)


@pytest.mark.parametrize("protocol", OLDER)
@pytest.mark.parametrize(
    ("annotations", "properties", "header"),
    [
        (None, {"traceparent": CREATOR, "tracestate": STATE}, CREATOR),
        ({"traceparent": HOP, "tracestate": STATE}, None, HOP),
        ({"traceparent": HOP}, {"traceparent": CREATOR, "tracestate": STATE}, HOP),
        ({"traceparent": HOP, "tracestate": "a=b"}, {"traceparent": CREATOR, "other": "x"}, HOP),
        ({"traceparent": HOP}, {"traceparent": HOP}, HOP),
    ],
)
def test_the_header_is_what_a_reader_of_the_draft_takes_and_both_contexts_come_back(
    protocol: Protocol,
    annotations: dict[str, object] | None,
    properties: dict[str, object] | None,
    header: str,
) -> None:
    made = message(annotations, properties)
    octets, back = after(protocol, made)
    assert header.encode() in octets
    assert header == _header(protocol, octets)
    found = dict((back.message_annotations or {}).items())
    assert {name: found.get(name) for name in trace_context.NAMES} == {
        name: (annotations or {}).get(name) for name in trace_context.NAMES
    }
    assert dict((back.application_properties or {}).items()) == (properties or {})
    assert not [name for name in found if str(name).startswith("x-opt-creator")]


def _header(protocol: Protocol, octets: bytes) -> object:
    """The header ``traceparent`` as a library of the protocol reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_context, "from_headers", lambda message: message)
        found = hub.to_sections(protocol, octets).application_properties or {}
    return dict(found.items()).get("traceparent")


@pytest.mark.parametrize("protocol", OLDER)
def test_a_peer_that_changes_the_header_has_begun_its_own_span(protocol: Protocol) -> None:
    made = message({"traceparent": HOP}, {"traceparent": CREATOR})
    octets, _ = after(protocol, made)
    changed = [
        octets[:at] + NEXT.encode() + octets[at + len(HOP) :]
        for at in range(len(octets))
        if octets.startswith(HOP.encode(), at)
    ]  # the header, and what the router keeps of the annotation
    headers = {_header(protocol, each): each for each in changed}
    back = hub.to_sections(protocol, headers[NEXT])
    assert dict((back.application_properties or {}).items())["traceparent"] == NEXT
    assert "traceparent" not in (back.message_annotations or {})


@pytest.mark.parametrize("protocol", OLDER)
def test_a_binary_context_of_a_hop_is_text_in_headers(protocol: Protocol) -> None:
    context = parse(BINARY)
    assert context is not None
    octets, back = after(protocol, message({"traceparent": BINARY}))
    assert _header(protocol, octets) == context.text
    assert dict((back.message_annotations or {}).items())["traceparent"] == BINARY


@pytest.mark.parametrize(
    "value",
    [
        "", "00", CREATOR[:-1], CREATOR + "-", CREATOR.upper(), CREATOR.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01", "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        BINARY[:-1], b"\x01" + BINARY[1:], bytes(29), 7, None,
    ],
)  # fmt: skip
def test_an_invalid_context_is_none(value: object) -> None:
    assert parse(value) is None


@pytest.mark.parametrize("value", [CREATOR, BINARY])
def test_a_context_is_written_in_the_form_in_which_it_was_read(value: object) -> None:
    context = parse(value)
    assert context is not None
    assert context.encoded() == value
    assert context.is_sampled


def test_a_later_version_of_the_text_is_read_as_far_as_it_is_known() -> None:
    context = parse("01" + CREATOR[2:] + "-more")
    assert context is not None
    assert context.text == CREATOR
