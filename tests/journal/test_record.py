import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.journal.keys import NO_LINK, LinkKey, delivery_key, link_key
from router.journal.record import (
    NO_TTL,
    PROTOCOL_CODES,
    ROW,
    LinkDescription,
    RecordError,
    RecordKind,
    Row,
    link_from_record,
    record_from_row,
)
from router.model.capabilities import Protocol
from router.model.identity import ContainerId, DeliveryTag, LinkName

HEAP = b"...tagaddressbody"


def row(**changes: int | bytes) -> Row:
    fields: dict[str, int | bytes] = {
        "kind": RecordKind.SENT,
        "outcome": 0x24,
        "guarantee": 3,
        "protocol": 1,
        "flags": 0x0103,
        "address_octets": 7,
        "time_ns": 0x1112131415161718,
        "key": bytes(range(0xA0, 0xB0)),
        "incoming": 0x2122232425262728,
        "outgoing": 0x3132333435363738,
        "message_octets": 0x4142434445464748,
        "message_format": 0x51525354,
        "delivery_count": 0x61626364,
        "ttl": 0x71727374,
        "tag_octets": 3,
        "heap_offset": 3,
        "heap_octets": 14,
    }
    values = {**fields, **changes}
    return ROW.unpack(ROW.pack(*values.values()))


def test_a_row_has_the_octets_of_the_drawing() -> None:
    assert ROW.pack(*row()).hex(" ", 8) == (
        "0324030103010700 1817161514131211 a0a1a2a3a4a5a6a7 a8a9aaabacadaeaf "
        "2827262524232221 3837363534333231 4847464544434241 5453525164636261 "
        "7473727103000000 030000000e000000"
    )


def test_the_numbers_of_the_format_stay_what_they_are() -> None:
    assert {kind.name: kind.value for kind in RecordKind} == {
        "RECEIVED": 1,
        "PART": 2,
        "SENT": 3,
        "OUTCOME": 4,
        "SETTLED": 5,
        "IN_DOUBT": 6,
        "RESOLVED": 7,
        "LINK_ATTACHED": 16,
        "LINK_SUSPENDED": 17,
        "LINK_EXPIRED": 18,
        "WORKER_ENDED": 24,
        "GAP": 25,
        "ARCHIVED": 26,
        "NUMBERS": 27,
        "STORED": 28,
        "FORWARDED": 29,
        "TRACED": 30,
        "FORWARDED_RUN": 31,
        "SEGMENT": 32,
        "MARK": 33,
        "FENCE": 34,
        "SEGMENT_END": 35,
        "SNAPSHOT": 36,
        "STATE": 37,
    }
    assert set(PROTOCOL_CODES) == set(Protocol)
    assert list(PROTOCOL_CODES.values()) == [1, 2, 3, 4, 5]


def test_a_row_reads_back_as_a_record() -> None:
    record = record_from_row(row(), HEAP, sequence=9, worker=2, incarnation=5)
    assert (record.sequence, record.worker, record.incarnation) == (9, 2, 5)
    assert record.kind is RecordKind.SENT
    assert (record.tag, record.address, record.body) == (b"tag", "address", b"body")
    assert record.ttl_milliseconds == 0x71727374
    assert record.message_octets == 0x4142434445464748


def test_the_largest_ttl_means_none() -> None:
    record = record_from_row(row(ttl=NO_TTL), HEAP, sequence=1, worker=1, incarnation=1)
    assert record.ttl_milliseconds is None


def test_a_kind_of_a_later_version_keeps_its_number() -> None:
    record = record_from_row(row(kind=200), HEAP, sequence=1, worker=1, incarnation=1)
    assert record.kind == 200


@pytest.mark.parametrize(
    "changes",
    [{"heap_offset": 4}, {"heap_octets": 15}, {"tag_octets": 8}, {"address_octets": 12}],
)
def test_a_row_that_points_outside_of_its_heap_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(RecordError):
        record_from_row(row(**changes), HEAP, sequence=1, worker=1, incarnation=1)


def test_an_address_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RecordError):
        record_from_row(
            row(), b"...tag\xff\xff\xff\xff\xff\xff\xffbody", sequence=1, worker=1, incarnation=1
        )


names = st.text(max_size=40)
links = st.builds(
    LinkDescription,
    key=st.integers(1, 2**64 - 1).map(LinkKey),
    is_incoming=st.booleans(),
    local=names,
    remote=names,
    name=names,
    address=names,
    identity=names,
    terminus=st.binary(max_size=40),
)


@given(links)
def test_a_link_reads_back_as_it_was_written(link: LinkDescription) -> None:
    incoming, outgoing = (link.key, NO_LINK) if link.is_incoming else (NO_LINK, link.key)
    assert link_from_record(incoming, outgoing, link.encoded()) == link


@given(links, st.data())
def test_a_link_that_is_cut_short_is_refused_or_has_a_shorter_terminus(
    link: LinkDescription, data: st.DataObject
) -> None:
    body = link.encoded()
    cut = body[: data.draw(st.integers(0, len(body)))]
    try:
        read = link_from_record(link.key, NO_LINK, cut)
    except RecordError:
        assert len(cut) < len(body) - len(link.terminus)
    else:
        assert link.terminus.startswith(read.terminus)


def test_a_link_name_too_long_for_its_length_is_refused() -> None:
    link = LinkDescription(
        key=LinkKey(1), is_incoming=True, local="a", remote="b", name="n" * 70_000
    )
    with pytest.raises(RecordError):
        link.encoded()


def test_link_keys_tell_apart_what_the_specification_does() -> None:
    def key_of(local: str, remote: str, name: str, *, is_incoming: bool) -> LinkKey:
        return link_key(
            ContainerId(local), ContainerId(remote), LinkName(name), is_incoming=is_incoming
        )

    keys = {
        key_of("a", "b", "c", is_incoming=True),
        key_of("a", "b", "c", is_incoming=False),
        key_of("b", "a", "c", is_incoming=True),
        key_of("a", "bc", "", is_incoming=True),
        key_of("ab", "", "c", is_incoming=True),
    }
    assert len(keys) == 5
    assert NO_LINK not in keys
    assert key_of("a", "b", "c", is_incoming=True) == key_of("a", "b", "c", is_incoming=True)


def test_delivery_keys_tell_apart_two_uses_of_one_tag() -> None:
    origin, link, tag = ContainerId("a"), LinkName("l"), DeliveryTag(b"0")
    first, again = delivery_key(origin, link, tag, 1), delivery_key(origin, link, tag, 2)
    assert len(first) == 16
    assert first != again
    assert first == delivery_key(origin, link, tag, 1)
