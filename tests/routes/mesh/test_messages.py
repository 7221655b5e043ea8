"""Messages and bodies survive their octets; whatever is wrong with them is named."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.mesh_octets import Codec10, decode_message, encode_message
from router.routes.mesh.bodies import Bad, body_value, read_body
from router.routes.mesh.fields import FieldError
from router.routes.mesh.messages import BUCKETS, common_version, read_message, to_value
from router.routes.mesh.nouns import (
    Addresses,
    Ask,
    Body,
    Carried,
    EdgeAddresses,
    EdgeAsk,
    Entries,
    Entry,
    Foreign,
    Held,
    Hello,
    Holdings,
    Key,
    Kind,
    Links,
    Message,
    Prefixes,
    Refusal,
    Role,
    RouterId,
    Summary,
    Unknown,
    Version,
    signed_octets,
)
from router.wire.v1_0.types import encode_value
from tests.routes.mesh.simulator import forge, name, notary_for

TEXTS = st.sampled_from(["dc1", "\x80", "x" * 255, "a.b/c", "é", "*.#"]) | st.text(
    st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters="\x7f"),
    min_size=1,
    max_size=6,
)
ROUTERS = TEXTS.map(RouterId)
NUMBERS = st.integers(1, (1 << 63) - 1)
STAMPS = st.integers(0, (1 << 64) - 1)
KEYS = st.builds(Key, ROUTERS, TEXTS.map(lambda text: text[:8]), st.integers(0, 255))
VERSIONS = st.builds(Version, NUMBERS, NUMBERS)
ENTRIES = st.builds(
    Entry,
    key=KEYS,
    version=VERSIONS,
    body=st.binary(min_size=1, max_size=99),
    signature=st.binary(max_size=99),
)


def tuples(items: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=most).map(tuple)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Hello,
        router=ROUTERS,
        epoch=NUMBERS,
        least=st.integers(1, 9),
        most=st.integers(9, 65535),
        heard=NUMBERS,
        cost=st.integers(1, 65535),
        role=st.sampled_from(Role),
        digest=STAMPS,
        is_active=st.booleans(),
    ),
    st.builds(Entries, NUMBERS, tuples(st.builds(Carried, ENTRIES, NUMBERS))),
    st.builds(Summary, STAMPS.map(lambda first: (first, *range(1, BUCKETS)))),
    st.builds(
        Holdings,
        tuples(st.integers(0, BUCKETS - 1)),
        tuples(st.builds(Held, KEYS, VERSIONS, STAMPS)),
    ),
    st.builds(Ask, tuples(KEYS)),
    st.builds(EdgeAddresses, NUMBERS, st.just(False), tuples(TEXTS), tuples(TEXTS)),
    st.builds(EdgeAddresses, NUMBERS, st.just(True), tuples(TEXTS)),
    st.just(EdgeAsk()),
    st.builds(Refusal, TEXTS),
)

BODIES: st.SearchStrategy[tuple[str, Body]] = st.one_of(
    st.dictionaries(ROUTERS, st.integers(1, 65535), max_size=5).map(
        lambda costs: (Kind.LINKS, Links(costs))
    ),
    st.lists(TEXTS, unique=True, max_size=5).map(lambda all: (Kind.PREFIXES, Prefixes(tuple(all)))),
    st.lists(TEXTS, unique=True, max_size=5).map(
        lambda all: (Kind.ADDRESSES, Addresses(tuple(all)))
    ),
)

ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(MESSAGES)
def test_a_message_survives_its_octets(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(BODIES)
def test_a_body_survives_its_octets(body: tuple[str, Body]) -> None:
    kind, said = body
    origin = RouterId("the origin")
    if isinstance(said, Links) and origin in said.costs:
        return
    codec = Codec10()
    read = read_body(Key(origin, kind, 0), codec.decode(codec.encode(body_value(said))))
    assert read == said


@given(MESSAGES, st.data())
def test_fields_of_later_versions_are_ignored(message: Message, data: st.DataObject) -> None:
    value = to_value(message)
    value["later"] = data.draw(ODD)
    for key in ("entries", "held", "keys"):
        for row in value.get(key, ()):
            row.append(data.draw(ODD))
    assert read_message(value) == message


def test_messages_of_later_versions_are_ignored() -> None:
    assert read_message({"message": "weather", "rain": True}) == Unknown("weather")


@given(MESSAGES, st.data())
def test_a_wrong_field_is_named(message: Message, data: st.DataObject) -> None:
    value = to_value(message)
    fields = sorted(value.keys() - {"message"})
    if not fields:
        return
    field = data.draw(st.sampled_from(fields))
    wrong: Any = data.draw(st.sampled_from([None, math.pi, {}]))
    value[field] = wrong
    with pytest.raises(FieldError, match=f"{value['message']}.{field}"):
        read_message(value)
    del value[field]
    with pytest.raises(FieldError, match=f"{value['message']}.{field} is missing"):
        read_message(value)


@given(MESSAGES, st.data())
def test_changed_octets_make_a_message_or_a_rule_and_nothing_else(
    message: Message, data: st.DataObject
) -> None:
    octets = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at] = data.draw(st.integers(0, 255))
    decode_message(bytes(octets[: data.draw(st.integers(0, len(octets)))]))


@given(ODD)
def test_any_value_is_a_message_or_names_its_fault(value: object) -> None:
    decoded = decode_message(encode_value(value))
    assert isinstance(decoded, str | Unknown)


@given(ODD, st.sampled_from(Kind))
def test_any_value_is_a_body_or_names_its_fault(value: object, kind: Kind) -> None:
    with pytest.raises(FieldError, match=f"^{kind.value}"):
        read_body(Key(name(1), kind, 0), value)


def hello(**changes: object) -> dict[str, object]:
    return {**to_value(Hello(router=name(1), epoch=1)), **changes}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (hello(epoch=0), "hello.epoch is from 1 to 9223372036854775807, not 0"),
        (hello(epoch=True), "hello.epoch is a whole number, not bool"),
        (hello(router=""), "hello.router has 1 to 255 octets, not 0"),
        (hello(router="x" * 256), "hello.router has 1 to 255 octets, not 256"),
        (hello(router="a\nb"), "hello.router has no control characters"),
        (hello(role="king"), r"hello.role is router or edge, not king"),
        (hello(least=3, most=2), "hello.most is from 3 to 65535, not 2"),
        (hello(cost=0), "hello.cost is from 1 to 65535, not 0"),
        (hello(digest=b"123"), "hello.digest has 8 to 8 octets, not 3"),
        (hello(active=1), "hello.active is a boolean, not int"),
        ({"message": "entries", "number": 1, "entries": [[]] * 65}, "has at most 64 items, not 65"),
        ({"message": "entries", "number": 1, "entries": [[]]}, r"entries\[0\] has at least 8"),
        ({"message": "ask", "keys": [["r", "links", 256]]}, "part is from 0 to 255, not 256"),
        ([], "message is a map, not list"),
        ({}, "message.message is missing"),
    ],
)
def test_what_is_wrong_is_said_with_the_rule(value: object, rule: str) -> None:
    with pytest.raises(FieldError, match=rule):
        read_message(value)


def test_a_whole_list_of_addresses_removes_none() -> None:
    value = to_value(EdgeAddresses(1, False, (), ("a",))) | {"whole": True}
    with pytest.raises(FieldError, match=r"addresses.removed is empty"):
        read_message(value)


def test_an_unknown_message_is_not_sent() -> None:
    with pytest.raises(TypeError):
        to_value(Unknown("weather"))


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"version": 1, "links": [["r0001", 5]]}, "is another router, named once"),
        ({"version": 1, "links": [["a", 5], ["a", 5]]}, "is another router, named once"),
        ({"version": 1, "links": [["a", 0]]}, "cost is from 1 to 65535"),
        ({"version": 1}, "links.links is missing"),
        ({"links": []}, "links.version is missing"),
    ],
)
def test_links_against_the_rules_are_named(body: object, rule: str) -> None:
    with pytest.raises(FieldError, match=rule):
        read_body(Key(name(1), Kind.LINKS, 0), body)


def test_a_body_of_a_later_version_is_carried_and_not_understood() -> None:
    body = read_body(Key(name(1), Kind.LINKS, 0), {"version": 2, "graph": 5})
    assert body == Foreign("version 2 of links, of which 1 is understood")
    assert read_body(Key(name(1), "weather", 0), {"version": 1}) == Foreign(
        "kind weather is not known"
    )


@pytest.mark.parametrize(
    ("least", "most", "common"),
    [
        (1, 1, 1),
        (1, 7, 1),
        (2, 3, "r0001 understands versions 2 to 3 of the mesh's control plane, this router "
               "version 1"),
    ],
)  # fmt: skip
def test_neighbors_without_a_common_version_are_refused_by_name(
    least: int, most: int, common: int | str
) -> None:
    assert common_version(Hello(router=name(1), epoch=1, least=least, most=most)) == common


CHANGES: list[Callable[[Entry], Entry]] = [
    lambda one: Entry(
        key=one.key._replace(origin=name(2)),
        version=one.version,
        body=one.body,
        signature=one.signature,
    ),
    lambda one: Entry(
        key=one.key,
        version=one.version._replace(sequence=2),
        body=one.body,
        signature=one.signature,
    ),
    lambda one: Entry(
        key=one.key, version=one.version, body=one.body + b"@", signature=one.signature
    ),
]


@pytest.mark.parametrize("change", CHANGES)
def test_an_entry_that_was_changed_on_its_way_is_forged(change: Callable[[Entry], Entry]) -> None:
    entry = forge(Key(name(1), Kind.LINKS, 0), Version(1, 1), Links({}), name(1))
    assert notary_for(name(3)).open(entry) == Links({})
    changed = notary_for(name(3)).open(change(entry))
    assert isinstance(changed, Bad)
    assert changed.is_forged


@given(KEYS, KEYS, st.binary(max_size=9), st.binary(max_size=9))
def test_different_entries_have_different_octets_to_sign(
    one: Key, other: Key, body: bytes, rest: bytes
) -> None:
    version = Version(1, 1)
    if (one, body) != (other, rest):
        assert signed_octets(one, version, body) != signed_octets(other, version, rest)
