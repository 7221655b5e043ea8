"""Messages between the draft and AMQP 1.0, both ways."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import translate as basic
from router.wire.v0_9_1.content import FLAGS, Properties
from router.wire.v0_9_1.types import Seconds, TableDecimal
from router.wire.v0_9r1.content import Content, fold, read_properties, unfold, write_properties
from router.wire.v0_9r1.tables import decode_table
from router.wire.v0_9r1.translate import from_sections, to_sections
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from router.wire.v1_0.sections import Properties as Sections
from router.wire.v1_0.types import Int, Symbol
from tests.support.amqp_values import same
from tests.support.basic_messages import PROPERTIES, content, properties
from tests.wire.v0_9r1.test_content import made

_DRAFT_NAMES = st.from_regex(r"[A-Za-z$#][A-Za-z0-9_$#]{0,9}", fullmatch=True).filter(
    lambda name: name not in ("$router", "$children")
)
_DRAFT_VALUES = st.recursive(
    st.text(max_size=5)
    | st.integers(-(1 << 31), (1 << 31) - 1).map(Int)
    | st.builds(TableDecimal, st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1))
    | st.integers(0, 1 << 40).map(Seconds),
    lambda inner: st.dictionaries(_DRAFT_NAMES, inner, max_size=3),
    max_leaves=6,
)
DRAFT_PROPERTIES = {name: PROPERTIES[name] for name in FLAGS if name != "cluster_id"} | {
    "headers": st.dictionaries(_DRAFT_NAMES, _DRAFT_VALUES, max_size=4)
}


def parts(octets: bytes) -> tuple[dict[str, Any], bytes, tuple[bytes, bytes]]:
    """Properties, body and route of a content."""
    layout = contents.content_layout(octets)
    found = read_properties(octets[layout.route_end : layout.body_start])
    told = attrs.asdict(found, recurse=False)
    told["headers"] = told["headers"] or {}
    return told, octets[layout.body_start :], contents.content_route(octets)


def agree(left: bytes, right: bytes) -> bool:
    ours, theirs = parts(left), parts(right)
    return alike(ours[0], theirs[0]) and ours[1:] == theirs[1:]


def alike(left: Any, right: Any) -> bool:
    """The same, whatever the order of fields in tables."""
    return same(_in_order(left), _in_order(right))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=repr)}
    return value


@given(properties(DRAFT_PROPERTIES), st.binary(max_size=20), st.booleans())
def test_a_message_of_the_draft_comes_back_from_1_0_as_it_was(
    made: Properties, body: bytes, redelivered: bool
) -> None:
    octets = content(made, body, exchange=b"e", routing_key=b"k", redelivered=redelivered)
    encoded = encode_message(to_sections(octets))
    again = from_sections(sections.decode_message(encoded))
    assert agree(again, octets)
    assert again[0] == octets[0]


@example(Properties(headers={"late": Seconds((1 << 64) - 1)}), b"")
@given(properties(), st.binary(max_size=20))
def test_a_message_of_0_9_1_comes_back_from_the_draft_as_from_0_9_1(
    made: Properties, body: bytes
) -> None:
    octets = content(made, body, exchange=b"e", routing_key=b"k")
    message = basic.to_sections(octets)
    carried = from_sections(message)
    layout = contents.content_layout(carried)
    header = carried[layout.route_end : layout.body_start]
    raw = contents.header_properties(header)
    assert raw.cluster_id is None
    if raw.headers is not None:
        table = write_properties(Properties(headers=dict(raw.headers)))
        decode_table(table, 2, len(table))  # lawful names and types alone
    by_0_9_1 = basic.to_sections(basic.from_sections(message))
    assert alike(attrs.asdict(to_sections(carried)), attrs.asdict(by_0_9_1))


@given(
    st.dictionaries(
        st.text(max_size=6), st.booleans() | st.integers(0, 1 << 40) | st.floats(), max_size=3
    ),
    st.text(max_size=6) | st.none(),
)
def test_a_message_of_1_0_comes_back_from_the_draft_as_from_0_9_1(
    application: dict[str, Any], subject: str | None
) -> None:
    message = AnnotatedMessage(
        header=Header(durable=True, priority=3, ttl_ms=500),
        message_annotations={Symbol("x-opt-a"): True, Symbol("other"): "o"},
        properties=Sections(message_id="1", subject=subject, to="t", group_id="g"),
        application_properties=application or None,
        data=[b"body"],
        footer={Symbol("f"): 1},
    )
    by_0_9_1 = basic.to_sections(basic.from_sections(message))
    by_draft = to_sections(from_sections(message))
    assert alike(attrs.asdict(by_draft), attrs.asdict(by_0_9_1))


def test_children_are_carried_to_1_0_and_back() -> None:
    tree = made(b"parent", made(b"\xff", made(b"grandchild")), made(b"b"))
    octets = contents.content_prefix(b"", b"k") + fold(tree) + tree.body
    message = sections.decode_message(encode_message(to_sections(octets)))
    assert message.data == [b"parent"]
    again = from_sections(message)
    layout = contents.content_layout(again)
    found = unfold(again[layout.route_end : layout.body_start], b"parent")
    assert found == Content(tree.header, tree.children, b"parent")


@given(
    properties({name: PROPERTIES[name] for name in FLAGS if name not in ("headers", "cluster_id")}),
    st.binary(max_size=9),
)
def test_the_quick_way_and_the_general_one_agree(made: Properties, body: bytes) -> None:
    octets = content(made, body, routing_key=b"k")
    general = encode_message(to_sections(octets))
    assert hub.translate(octets, Protocol.AMQP_0_9R1, Protocol.AMQP_1_0) == general
    assert agree(
        hub.translate(general, Protocol.AMQP_1_0, Protocol.AMQP_0_9R1),
        from_sections(sections.decode_message(general)),
    )


def test_each_property_has_the_home_that_0_9_1_gives_it() -> None:
    octets = content(
        Properties(
            content_type="text/plain",
            delivery_mode=2,
            priority=4,
            correlation_id="c",
            reply_to="r",
            expiration="1000",
            message_id="m",
            timestamp=Seconds(7),
            type="t",
            user_id="u",
            headers={"n": Int(1)},
        ),
        b"body",
    )
    message = to_sections(octets)
    assert message.header == Header(durable=True, priority=4, ttl_ms=1000)
    assert message.properties is not None
    assert message.properties.message_id == "m"
    assert message.properties.subject == "t"
    assert message.properties.creation_time == 7000
    assert message.application_properties == {"n": 1}
    assert message.data == [b"body"]


@pytest.mark.parametrize("headers", [b"\0\0\0\7\1at\1\0\0\0", b"\0\0\0\4\1aI\0", b"\0\0\0\xff"])
def test_headers_with_letters_of_other_versions_are_refused_with_the_property_named(
    headers: bytes,
) -> None:
    octets = contents.content_prefix(b"", b"") + contents.encode_content_header(
        0, FLAGS["headers"].to_bytes(2, "big") + headers
    )
    with pytest.raises(TranslationError, match="headers"):
        to_sections(octets)


@given(st.binary(max_size=60))
def test_random_octets_are_translated_or_refused(octets: bytes) -> None:
    for source in (octets, contents.content_prefix(b"", b"") + octets):
        try:
            to_sections(source)
        except TranslationError:
            continue
