import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.condition import DECODE_ERROR, INVALID_FIELD
from router.wire.v1_0.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    KEEP,
    MESSAGE_ANNOTATIONS,
    NO_VALUE,
    PROPERTIES,
    AnnotatedMessage,
    Header,
    Properties,
    decode_message,
    encode_message,
    peek,
    rewrite,
    walk,
)
from router.wire.v1_0.types import (
    Described,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    decode_value,
    encode_value,
)
from tests.support.amqp_values import LEAVES, any_form, leaves, mutated, same, small_values

uints = st.integers(0, 2**32 - 1)
texts = LEAVES[str]
names = st.text(st.characters(max_codepoint=127), max_size=8)
ids = texts | LEAVES[bytes] | LEAVES[uuid.UUID] | LEAVES[Ulong]
times = st.integers(-(2**63), 2**63 - 1)
annotations = st.dictionaries(LEAVES[Symbol] | LEAVES[Ulong], small_values, max_size=2)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=maybe(st.integers(0, 255)),
    ttl_ms=maybe(uints),
    first_acquirer=st.booleans(),
    delivery_count=uints | st.just(0),
)
properties = st.builds(
    Properties,
    message_id=maybe(ids),
    user_id=maybe(LEAVES[bytes]),
    to=maybe(texts),
    subject=maybe(texts),
    reply_to=maybe(texts),
    correlation_id=maybe(ids),
    content_type=maybe(names),
    content_encoding=maybe(names),
    absolute_expiry_time=maybe(times),
    creation_time=maybe(times),
    group_id=maybe(texts),
    group_sequence=maybe(uints),
    reply_to_group_id=maybe(texts),
)
bodies: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.lists(LEAVES[bytes], min_size=1, max_size=3).map(lambda data: {"data": data}),
    st.lists(st.lists(small_values, max_size=3), min_size=1, max_size=3).map(
        lambda sequences: {"sequences": sequences}
    ),
    small_values.map(lambda value: {"value": value}),
)


@st.composite
def messages(draw: st.DrawFn) -> AnnotatedMessage:
    return AnnotatedMessage(
        header=draw(maybe(headers)),
        delivery_annotations=draw(maybe(annotations)),
        message_annotations=draw(maybe(annotations)),
        properties=draw(maybe(properties)),
        application_properties=draw(maybe(st.dictionaries(texts, leaves, max_size=3))),
        footer=draw(maybe(annotations)),
        **draw(bodies),
    )


def sections_as_values(payload: bytes) -> list[Any]:
    found = []
    at = 0
    while at < len(payload):
        value, at = decode_value(payload, at)
        found.append(value)
    return found


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Messages with each section in some legal form, its descriptor too."""
    parts = []
    for value in sections_as_values(encode_message(draw(messages()))):
        symbol = _SYMBOLIC[int(value.descriptor)]
        descriptor = symbol if draw(st.booleans()) and draw(st.booleans()) else value.descriptor
        parts.append(any_form(Described(descriptor, value.value), draw))
    return b"".join(parts)


_SYMBOLIC = {
    HEADER: Symbol("amqp:header:list"),
    DELIVERY_ANNOTATIONS: Symbol("amqp:delivery-annotations:map"),
    MESSAGE_ANNOTATIONS: Symbol("amqp:message-annotations:map"),
    PROPERTIES: Symbol("amqp:properties:list"),
    APPLICATION_PROPERTIES: Symbol("amqp:application-properties:map"),
    DATA: Symbol("amqp:data:binary"),
    AMQP_SEQUENCE: Symbol("amqp:amqp-sequence:list"),
    AMQP_VALUE: Symbol("amqp:amqp-value:*"),
    FOOTER: Symbol("amqp:footer:map"),
}


def as_octets(message: AnnotatedMessage) -> bytes:
    """The message's canonical octets: equality of values, NaN and types included."""
    return encode_message(message)


@given(messages())
def test_decoding_a_message_undoes_encoding_it(message: AnnotatedMessage) -> None:
    payload = encode_message(message)
    decoded = decode_message(payload)
    assert as_octets(decoded) == payload
    assert decoded.header == message.header
    assert decoded.properties == message.properties
    assert same(decoded.data, message.data)
    assert same(decoded.sequences, message.sequences)
    assert (
        decoded.value is NO_VALUE
        if message.value is NO_VALUE
        else same(decoded.value, message.value)
    )


@given(payloads())
def test_walking_finds_each_section_and_its_bounds(payload: bytes) -> None:
    for kind in (bytes, bytearray, memoryview):
        at = 0
        for section in walk(kind(payload)):
            assert section.start == at
            described, at = decode_value(payload, at)
            assert section.end == at
            assert described.descriptor in (section.code, _SYMBOLIC[section.code])
            body, after = decode_value(payload, section.body_start)
            assert after == section.end
            assert same(body, described.value)
        assert at == len(payload)


@given(payloads())
def test_a_message_is_read_in_every_legal_form(payload: bytes) -> None:
    message = decode_message(payload)
    canonical = encode_message(message)
    assert as_octets(decode_message(canonical)) == canonical
    assert [section.code for section in walk(canonical)] == [
        section.code for section in walk(payload)
    ]


@given(payloads())
def test_peeking_reads_what_decoding_reads(payload: bytes) -> None:
    message = decode_message(payload)
    for kind in (bytes, bytearray, memoryview):
        seen = peek(kind(payload))
        assert seen.is_whole
        header = message.header or Header()
        assert seen.header == header
        assert seen.properties == (message.properties or Properties())
        assert same(seen.delivery_annotations, message.delivery_annotations or {})
        assert same(seen.message_annotations, message.message_annotations or {})
        assert seen.durable == header.durable
        assert seen.priority == (4 if header.priority is None else header.priority)
        assert seen.ttl_ms == header.ttl_ms
        assert seen.first_acquirer == header.first_acquirer
        assert seen.delivery_count == header.delivery_count
        assert seen.to == seen.properties.to
        assert seen.subject == seen.properties.subject
        assert seen.reply_to == seen.properties.reply_to
        assert seen.user_id == seen.properties.user_id
        assert seen.message_id == seen.properties.message_id
        assert seen.correlation_id == seen.properties.correlation_id


@given(payloads(), st.integers(0, 10_000))
def test_peeking_into_a_first_part_says_whether_it_saw_all(payload: bytes, cut: int) -> None:
    part = payload[: cut % (len(payload) + 1)]
    seen = peek(part, partial=True)
    before_body = [section for section in walk(payload) if section.code < DATA]
    reached = [section for section in before_body if section.end <= len(part)]
    if seen.is_whole:
        assert reached == before_body
        assert seen.properties == peek(payload).properties
    assert seen.header == (
        peek(payload).header if HEADER in [s.code for s in reached] else Header()
    )


rewrites = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": maybe(uints),
        "delivery_count": uints,
        "delivery_annotations": maybe(annotations),
    },
)


def split(payload: bytes) -> tuple[bytes, bytes]:
    """Head (header and delivery annotations) and all that is behind them."""
    end = 0
    for section in walk(payload):
        if section.code <= DELIVERY_ANNOTATIONS:
            end = section.end
    return payload[:end], payload[end:]


@given(payloads(), rewrites)
@settings(max_examples=300)
def test_rewriting_changes_the_head_alone(payload: bytes, changes: dict[str, Any]) -> None:
    for kind in (bytes, bytearray, memoryview):
        changed = rewrite(kind(payload), **changes)
        assert split(changed)[1] == split(payload)[1]
        before, after = peek(payload), peek(changed)
        assert after.ttl_ms == changes.get("ttl_ms", before.ttl_ms)
        assert after.delivery_count == changes.get("delivery_count", before.delivery_count)
        assert after.durable == before.durable
        assert after.header.priority == before.header.priority
        assert after.first_acquirer == before.first_acquirer
        expected = changes.get("delivery_annotations", before.delivery_annotations) or {}
        assert same(after.delivery_annotations, expected)


@given(payloads())
def test_rewriting_nothing_changes_no_octet(payload: bytes) -> None:
    assert rewrite(payload) == payload
    assert rewrite(payload, ttl_ms=KEEP, delivery_count=KEEP, delivery_annotations=KEEP) == payload


LONGEST_DESCRIPTOR_OCTETS = 40
"""A descriptor may be a symbol, of which amqp:application-properties:map is the longest."""


@given(payloads(), annotations, st.integers(0, 10_000))
def test_rewriting_the_first_part_is_rewriting_the_whole(
    payload: bytes, new: dict[Any, Any], cut: int
) -> None:
    head, bare = split(payload)
    first = head + bare[: cut % (len(bare) + 1)]
    if head and len(first) == len(head):
        assert (
            rewrite(first, ttl_ms=5, delivery_annotations=new)
            == split(rewrite(payload, ttl_ms=5, delivery_annotations=new))[0]
        )
    elif len(first) - len(head) > LONGEST_DESCRIPTOR_OCTETS:
        rest = payload[len(first) :]
        assert rewrite(first, ttl_ms=5, delivery_annotations=new) + rest == rewrite(
            payload, ttl_ms=5, delivery_annotations=new
        )


def test_no_header_is_put_in_only_to_say_what_its_absence_says() -> None:
    payload = encode_message(AnnotatedMessage(data=[b"x"]))
    assert rewrite(payload, ttl_ms=None, delivery_count=0) == payload
    assert rewrite(payload, delivery_annotations={}) == payload
    assert rewrite(payload, delivery_annotations=None) == payload
    assert rewrite(b"", delivery_count=1) == bytes.fromhex("005370c00605" + "4040404052" + "01")[
        :4
    ] + bytes.fromhex("0705404040405201")


def test_annotations_are_taken_with_names_for_symbols() -> None:
    payload = rewrite(b"\x00\x53\x75\xa0\x00", delivery_annotations={"x-opt-hops": 3})
    assert same(peek(payload).delivery_annotations, {Symbol("x-opt-hops"): 3})
    assert payload.endswith(b"\x00\x53\x75\xa0\x00")


def section(code: int, value: Any) -> bytes:
    return encode_value(Described(Ulong(code), value))


SPECIMENS = {
    HEADER: section(HEADER, [True]),
    DELIVERY_ANNOTATIONS: section(DELIVERY_ANNOTATIONS, {}),
    MESSAGE_ANNOTATIONS: section(MESSAGE_ANNOTATIONS, {}),
    PROPERTIES: section(PROPERTIES, []),
    APPLICATION_PROPERTIES: section(APPLICATION_PROPERTIES, {}),
    DATA: section(DATA, b"x"),
    AMQP_SEQUENCE: section(AMQP_SEQUENCE, []),
    AMQP_VALUE: section(AMQP_VALUE, None),
    FOOTER: section(FOOTER, {}),
}


@pytest.mark.parametrize("first", SPECIMENS)
@pytest.mark.parametrize("second", SPECIMENS)
def test_every_pair_of_sections_is_in_order_or_refused(first: int, second: int) -> None:
    body = (DATA, AMQP_SEQUENCE, AMQP_VALUE)
    if first == second:
        allowed = first in (DATA, AMQP_SEQUENCE)
    elif first in body and second in body:
        allowed = False
    else:
        allowed = first < second
    payload = SPECIMENS[first] + SPECIMENS[second]
    if allowed:
        assert [found.code for found in walk(payload)] == [first, second]
    else:
        with pytest.raises(DecodeError, match="may not follow"):
            list(walk(payload))
        with pytest.raises(DecodeError, match="may not follow"):
            decode_message(payload)
        if max(first, second) < DATA:
            with pytest.raises(DecodeError, match="may not follow"):
                peek(payload)
        if first == second and first <= DELIVERY_ANNOTATIONS and first == HEADER:
            with pytest.raises(DecodeError, match="may not follow"):
                rewrite(payload, ttl_ms=1)


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (section(0x79, []), "0x79 is no section"),
        (section(0x24, []), "0x24 is no section"),
        (encode_value(Described(Symbol("x"), [])), "is no section"),
        (encode_value(Described("amqp:data", b"")), "is no section"),
        (encode_value("text"), "is not described"),
        (section(HEADER, {}), "header has a value of another type"),
        (section(PROPERTIES, None), "properties has a value of another type"),
        (section(DELIVERY_ANNOTATIONS, []), "delivery-annotations has a value of another type"),
        (section(APPLICATION_PROPERTIES, []), "application-properties has a value of another type"),
        (section(DATA, "text"), "data has a value of another type"),
        (section(AMQP_SEQUENCE, {}), "amqp-sequence has a value of another type"),
        (section(FOOTER, Described(Ulong(1), {})), "footer has a value of another type"),
        (section(DATA, b"abc")[:-1], "ends beyond"),
        (b"\x00", "ends beyond"),
    ],
)
def test_what_is_no_section_is_refused(payload: bytes, rule: str) -> None:
    with pytest.raises(DecodeError, match=rule):
        list(walk(payload))
    with pytest.raises(DecodeError, match=rule):
        decode_message(payload)


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (section(HEADER, [Uint(1)]), r"header\.durable: is no boolean"),
        (section(HEADER, [None, Uint(1)]), r"header\.priority: is no ubyte"),
        (section(HEADER, [None] * 6), "header has 6 fields, 5 are known"),
        (section(PROPERTIES, [1]), r"properties\.message-id: is no ulong"),
        (section(PROPERTIES, [None, "x"]), r"properties\.user-id: is no binary"),
        (section(PROPERTIES, [None, None, b"x"]), r"properties\.to: is no string"),
        (section(PROPERTIES, [None] * 8 + [5]), r"absolute-expiry-time: is no timestamp"),
        (section(PROPERTIES, [None] * 9 + [Ulong(5)]), r"creation-time: is no timestamp"),
        (section(PROPERTIES, [None] * 14), "properties has 14 fields, 13 are known"),
    ],
)
def test_a_field_that_breaks_its_rule_is_refused_when_it_is_read(payload: bytes, rule: str) -> None:
    assert len(list(walk(payload))) == 1
    seen = peek(payload)
    with pytest.raises(DecodeError, match=rule) as caught:
        _ = seen.header, seen.properties
    assert caught.value.condition == INVALID_FIELD
    with pytest.raises(DecodeError, match=rule):
        decode_message(payload)


def test_what_is_no_value_inside_a_section_cannot_be_decoded() -> None:
    payload = b"\x00\x53\x77\xc0\x02\x01\x46"
    assert len(list(walk(payload))) == 1
    with pytest.raises(DecodeError, match="0x46 is not known") as caught:
        decode_message(payload)
    assert caught.value.condition == DECODE_ERROR


@given(mutated(payloads()), rewrites)
@settings(max_examples=500)
def test_damaged_payloads_raise_nothing_but_decode_errors(
    payload: bytes, changes: dict[str, Any]
) -> None:
    with contextlib.suppress(DecodeError):
        list(walk(payload))
    with contextlib.suppress(DecodeError):
        message = decode_message(payload)
        assert as_octets(decode_message(encode_message(message))) == encode_message(message)
    for partial in (False, True):
        with contextlib.suppress(DecodeError):
            seen = peek(payload, partial=partial)
            assert seen.header is seen.header
            assert seen.properties is seen.properties
            assert seen.delivery_annotations is not None
    with contextlib.suppress(DecodeError):
        assert isinstance(rewrite(payload, **changes), bytes)


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_random_octets_raise_nothing_but_decode_errors(octets: bytes) -> None:
    for payload in (octets, b"\x00\x53\x70\xc0" + octets, b"\x00\x53\x73\xc0" + octets):
        for reader in (lambda p: list(walk(p)), decode_message, lambda p: rewrite(p, ttl_ms=1)):
            with contextlib.suppress(DecodeError):
                reader(payload)


def test_a_body_may_be_null_empty_or_absent() -> None:
    for message in (
        AnnotatedMessage(),
        AnnotatedMessage(value=None),
        AnnotatedMessage(data=[b""]),
        AnnotatedMessage(sequences=[[]]),
        AnnotatedMessage(header=Header(), properties=Properties()),
    ):
        assert decode_message(encode_message(message)) == message


def test_an_integer_for_an_id_is_sent_as_ulong() -> None:
    message = AnnotatedMessage(properties=Properties(message_id=7, creation_time=5))  # type: ignore[arg-type]
    decoded = decode_message(encode_message(message))
    assert decoded.properties is not None
    assert type(decoded.properties.message_id) is Ulong
    fields = decode_value(encode_message(message))[0].value
    assert type(fields[9]) is Timestamp


def test_two_kinds_of_body_are_our_own_misuse() -> None:
    for message in (
        AnnotatedMessage(data=[b""], value=None),
        AnnotatedMessage(data=[b""], sequences=[[]]),
        AnnotatedMessage(sequences=[[]], value=1),
    ):
        with pytest.raises(MisuseError, match="more than one kind"):
            encode_message(message)


@pytest.mark.parametrize(
    "header", [Header(priority=256), Header(ttl_ms=-1), Header(delivery_count=2**32)]
)
def test_a_header_out_of_range_is_our_own_misuse(header: Header) -> None:
    with pytest.raises(MisuseError):
        encode_message(AnnotatedMessage(header=header))


def test_a_priority_of_a_peer_is_an_octet() -> None:
    assert peek(section(HEADER, [None, Ubyte(9)])).priority == 9
