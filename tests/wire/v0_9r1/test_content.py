"""Contents with children: on the wire, and as one header between engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError
from router.model.text import decode_text
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9r1.content import (
    HEAD,
    MAX_DEPTH,
    Content,
    fold,
    frames,
    read_properties,
    unfold,
    unpack,
    write_properties,
)
from router.wire.v0_9r1.methods import BASIC_CLASS
from router.wire.v0_9r1.tables import CHILDREN
from tests.support.basic_messages import tables
from tests.support.draft_peer import hexed


def made(body: bytes, *children: Content, properties: Properties | None = None) -> Content:
    """A content as a peer would send it."""
    octets = write_properties(properties or Properties())
    header = HEAD.pack(BASIC_CLASS, len(children), len(body)) + octets
    return Content(header, children, body)


trees = st.recursive(
    st.binary(max_size=9).map(made),
    lambda inner: st.tuples(st.binary(max_size=9), st.lists(inner, max_size=3)).map(
        lambda one: made(one[0], *one[1])
    ),
    max_leaves=8,
)


def test_a_content_is_drawn_as_the_document_has_it() -> None:
    content = made(b"parent", made(b"child"))
    assert frames(1, content, 4096) == hexed(
        "02 00 0001 0000000e  0006 0001 0000000000000006 0000  ce",  # [parent-header weight = 1]
        "02 00 0001 0000000e  0006 0000 0000000000000005 0000  ce",  # [child-header weight = 0]
        "03 00 0001 00000005  'child'  ce",
        "03 00 0001 00000006  'parent' ce",
    )


def test_bodies_are_split_to_fit() -> None:
    octets = frames(1, made(b"0123456789"), 9 + 4)
    assert octets.count(b"\x03\x00\x00\x01") == 3


@given(trees)
def test_children_become_a_header_and_are_children_again(content: Content) -> None:
    header = fold(content)
    class_id, weight, octets = HEAD.unpack_from(header)
    assert (class_id, weight, octets) == (contents.BASIC_CLASS, 0, len(content.body))
    assert unfold(header, content.body) == content
    assert fold(unfold(header, content.body)) == header


def test_children_keep_company_with_other_headers() -> None:
    content = made(b"", made(b"x"), properties=Properties(headers={"a": "b"}, priority=3))
    found = read_properties(fold(content))
    assert found.priority == 3
    assert found.headers is not None
    assert list(found.headers) == ["a", CHILDREN]
    assert unfold(fold(content), b"") == content


@pytest.mark.parametrize("value", ["", "no", "\0\0\0\x0e" + "\0" * 14, "\0\0\0\xff", "é"])
def test_a_header_that_only_looks_like_children_stays_one(value: str) -> None:
    header = contents.encode_content_header(
        0, contents.encode_properties(Properties(headers={CHILDREN: value}))
    )
    content = unfold(header, b"")
    assert content.children == ()
    if value:
        assert read_properties(content.header).headers == {CHILDREN: value}


@given(st.binary(max_size=80))
def test_random_octets_are_children_or_refused(octets: bytes) -> None:
    try:
        children = unpack(octets)
    except DecodeError:
        return
    assert unpack(b"".join(_pack(each) for each in children)) == children


def _pack(content: Content) -> bytes:
    size = len(content.header).to_bytes(4, "big")
    return size + content.header + b"".join(map(_pack, content.children)) + content.body


def test_contents_nested_too_deep_are_no_children() -> None:
    content = made(b"")
    for _ in range(MAX_DEPTH):
        content = made(b"", content)
    assert unpack(_pack(content.children[0]))
    with pytest.raises(DecodeError, match="nested"):
        unpack(_pack(content))


@given(tables)
def test_headers_of_any_kind_survive(table: dict[str, object]) -> None:
    properties = Properties(headers=dict(table))
    header = contents.encode_content_header(0, write_properties(properties))
    assert read_properties(header).headers is not None


def test_the_property_that_the_draft_lacks_is_no_property() -> None:
    header = contents.encode_content_header(
        0, contents.encode_properties(Properties(cluster_id="c"))
    )
    with pytest.raises(DecodeError, match="flag"):
        read_properties(header)


def test_octets_that_are_no_text_pass_through_a_header() -> None:
    content = made(b"", made(b"\xff\xfe\x00"))
    found = read_properties(fold(content))
    assert found.headers is not None
    assert found.headers[CHILDREN].endswith(decode_text(b"\xff\xfe\x00"))
