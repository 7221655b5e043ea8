"""Tags towards a target that derive from the source's."""

from hypothesis import given
from hypothesis import strategies as st

from router.links.tags import MAX_TAG_OCTETS, derived_tag, tag_prefix
from router.model.identity import ContainerId, DeliveryTag, LinkName

PREFIX = tag_prefix(ContainerId("app"), LinkName("out"))


def test_short_tag_is_kept_behind_the_hash_of_its_origin() -> None:
    assert derived_tag(PREFIX, DeliveryTag(b"t1")) == PREFIX + b"t1"
    assert len(PREFIX) == 8


def test_tags_are_the_same_after_a_restart() -> None:
    """These octets are on the disks and in the memory of peers: they may never change."""
    assert PREFIX.hex() == "4740772b43548baa"
    assert derived_tag(PREFIX, DeliveryTag(bytes(25))).hex() == "1c19bc59efa8de9e5a47abe08175c0b0"


def test_longest_tag_that_is_kept_and_shortest_that_is_hashed() -> None:
    assert len(derived_tag(PREFIX, DeliveryTag(bytes(24)))) == 32
    assert len(derived_tag(PREFIX, DeliveryTag(bytes(25)))) == 16


def test_origins_are_told_apart_even_where_their_names_run_together() -> None:
    first = tag_prefix(ContainerId("ab"), LinkName("c"))
    assert first != tag_prefix(ContainerId("a"), LinkName("bc"))


@given(st.sets(st.binary(min_size=1, max_size=32), max_size=20))
def test_derived_tags_are_legal_and_differ(tags: set[bytes]) -> None:
    derived = {derived_tag(PREFIX, DeliveryTag(tag)) for tag in tags}
    assert len(derived) == len(tags)
    assert all(1 <= len(tag) <= MAX_TAG_OCTETS for tag in derived)


def test_another_identity_with_the_same_names_has_other_tags() -> None:
    app, out = ContainerId("app"), LinkName("out")
    prefixes = {PREFIX, tag_prefix(app, out, "a"), tag_prefix(app, out, "b")}
    prefixes |= {tag_prefix(app, out, "a", "v"), tag_prefix(app, out, None, "v")}
    assert len(prefixes) == 5


def test_anything_that_tells_links_apart_has_a_prefix_of_its_own() -> None:
    names = ("t\udcff", "t\udcfe", "t\ud800", "t\xff", "t")
    assert len({tag_prefix(ContainerId(name), LinkName("l")) for name in names}) == len(names)
