"""The table of methods against the published lists, number by number."""

import pytest

from router.wire.v0_9_1.codec import SPECS as BASIC_SPECS
from router.wire.v0_9_1.codec import Spec
from router.wire.v0_9r1.methods import CODEC, INDEXES, INFERRED_SPECS, SPECS
from tests.support.draft_peer import hexed

PUBLISHED = """
    access 3: request request_ok
    exchange 4: declare declare_ok delete delete_ok
    queue 5: declare declare_ok bind bind_ok purge purge_ok delete delete_ok
    basic 6: consume consume_ok cancel cancel_ok publish return deliver get get_ok get_empty ack
             reject
    file 7: consume consume_ok cancel cancel_ok open open_ok stage publish return deliver ack reject
    stream 8: consume consume_ok cancel cancel_ok publish return deliver
    test 11: integer integer_ok string string_ok table table_ok content content_ok
    tx 9: select select_ok commit commit_ok rollback rollback_ok
"""
"""Classes and methods as they were declared with this header, December 2005; ids count from 1."""

INFERRED = """
    connection 1: start start_ok secure secure_ok tune tune_ok open open_ok redirect close close_ok
    channel 2: open open_ok flow close close_ok
"""
"""As of July 2005, where method 9 of connection was called unknown."""


def listed(text: str) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    class_name, class_id = "", 0
    for line in text.split("\n"):
        head, colon, rest = line.rpartition(":")
        if colon:
            class_name, number = head.split()
            class_id, count = int(number), 0
        for name in rest.split():
            count += 1
            found[class_id, count] = f"{class_name}{name.title().replace('_', '')}".lower()
    return found


@pytest.mark.parametrize(
    ("text", "specs"),
    [(INFERRED, INFERRED_SPECS), (PUBLISHED, SPECS[len(INFERRED_SPECS) :])],
    ids=["inferred", "published"],
)
def test_every_method_has_its_number_and_no_other_is_served(
    text: str, specs: tuple[Spec, ...]
) -> None:
    found = {(one.class_id, one.method_id): one.record.__name__.lower() for one in specs}
    known = listed(text)
    assert found.keys() == known.keys()
    for index, name in found.items():
        assert name == known[index]


GOLDEN = [
    # exchange.declare: ticket exchange type passive durable auto-delete internal arguments
    ((4, 1), "0004 0001 0000 00 06'direct' 00 00000000"),
    # exchange.delete: ticket exchange if-unused
    ((4, 3), "0004 0003 0000 00 00"),
    # queue.declare: ticket queue passive durable exclusive auto-delete arguments
    ((5, 1), "0005 0001 0000 00 00 00000000"),
    # queue.declare-ok: queue message-count consumer-count
    ((5, 2), "0005 0002 00 00000000 00000000"),
    # queue.bind: ticket queue exchange routing-key arguments
    ((5, 3), "0005 0003 0000 00 00 00 00000000"),
    # queue.purge: ticket queue
    ((5, 5), "0005 0005 0000 00"),
    # queue.delete: ticket queue if-unused if-empty
    ((5, 7), "0005 0007 0000 00 00"),
    # basic.consume: ticket queue prefetch-size prefetch-count no-local auto-ack exclusive
    ((6, 1), "0006 0001 0000 00 00000000 0000 00"),
    ((6, 2), "0006 0002 0000"),
    ((6, 3), "0006 0003 0000"),
    ((6, 4), "0006 0004"),
    # basic.publish: ticket exchange routing-key mandatory immediate
    ((6, 5), "0006 0005 0000 00 00 00"),
    # basic.return: reply-code reply-text exchange routing-key
    ((6, 6), "0006 0006 0138 00 00 00"),
    # basic.deliver: consumer-tag delivery-tag redelivered exchange routing-key
    ((6, 7), "0006 0007 0000 0000000000000000 00 00 00"),
    # basic.get: ticket queue auto-ack
    ((6, 8), "0006 0008 0000 00 00"),
    # basic.get-ok: delivery-tag redelivered exchange routing-key message-count
    ((6, 9), "0006 0009 0000000000000000 00 00 00 00000000"),
    ((6, 10), "0006 000a"),
    # basic.ack: delivery-tag multiple
    ((6, 11), "0006 000b 0000000000000000 00"),
    # basic.reject: delivery-tag requeue
    ((6, 12), "0006 000c 0000000000000000 01"),
    # file.consume: ticket queue prefetch-size prefetch-count no-local auto-ack exclusive
    ((7, 1), "0007 0001 0000 00 00000000 0000 00"),
    # file.open: identifier content-size
    ((7, 5), "0007 0005 00 0000000000000000"),
    ((7, 6), "0007 0006 0000000000000000"),
    ((7, 7), "0007 0007"),
    # file.publish: ticket exchange routing-key mandatory immediate identifier
    ((7, 8), "0007 0008 0000 00 00 00 00"),
    # file.return: reply-code reply-text exchange routing-key
    ((7, 9), "0007 0009 0000 00 00 00"),
    # file.deliver: consumer-tag delivery-tag redelivered exchange routing-key identifier
    ((7, 10), "0007 000a 0000 0000000000000000 00 00 00 00"),
    ((7, 11), "0007 000b 0000000000000000 00"),
    ((7, 12), "0007 000c 0000000000000000 00"),
    # stream.consume: ticket queue prefetch-size prefetch-count consume-rate no-local exclusive
    ((8, 1), "0008 0001 0000 00 00000000 0000 00000000 00"),
    # stream.publish: ticket exchange routing-key mandatory immediate
    ((8, 5), "0008 0005 0000 00 00 00"),
    # stream.deliver: delivery-tag exchange queue
    ((8, 7), "0008 0007 0000000000000000 00 00"),
    # test.integer: integer-1 integer-2 integer-3 integer-4 operation
    ((11, 1), "000b 0001 00 0000 00000000 0000000000000000 00"),
    # test.string: string-1 string-2 operation
    ((11, 3), "000b 0003 00 00000000 00"),
    # test.table: table integer-op string-op
    ((11, 5), "000b 0005 00000000 00 00"),
    ((11, 8), "000b 0008 00000000"),
    # channel.open, its only field is out-of-band
    ((2, 1), "0002 0001 00"),
    ((2, 2), "0002 0002"),
    ((2, 3), "0002 0003 01"),
    # channel.close: reply-code reply-text class-id method-id
    ((2, 4), "0002 0004 00c8 00 0000 0000"),
    # connection.tune: channel-max frame-max heartbeat
    ((1, 5), "0001 0005 0000 00000000 0000"),
    # connection.open: virtual-host capabilities insist
    ((1, 7), "0001 0007 01'/' 00 00"),
    ((9, 3), "0009 0003"),
]


@pytest.mark.parametrize(("index", "octets"), GOLDEN, ids=str)
def test_the_fields_of_a_method_are_those_that_were_published(
    index: tuple[int, int], octets: str
) -> None:
    spec = CODEC.spec_at(*index)
    assert spec is not None
    assert CODEC.encode(spec.record()) == hexed(octets)
    assert CODEC.decode(hexed(octets), 0, len(hexed(octets))) == spec.record()


def test_faults_of_shared_rooms_find_their_methods_here() -> None:
    assert INDEXES[60, 40] == (6, 5)
    assert INDEXES[60, 20] == (6, 1)
    assert INDEXES[50, 10] == (5, 1)
    assert INDEXES[20, 10] == (2, 1)
    gone = {(one.class_id, one.method_id) for one in BASIC_SPECS} - INDEXES.keys()
    assert (60, 10) in gone  # basic.qos
    assert (85, 10) in gone  # confirm.select
