"""The record that a delivery is part of a trace."""

import pytest

from router.journal.block import open_block
from router.journal.keys import LinkKey, hop_identity, send_identity
from router.journal.memory import Memory
from router.journal.record import RecordError, RecordKind, encode_hop, hop_from_body
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from router.model.trace import Hop

KEY = DeliveryKey(bytes(range(16)))
SOURCE, TARGET = LinkKey(7), LinkKey(8)
ROOT = Hop(trace=bytes(range(1, 17)), span=bytes(range(1, 9)))
FULL = Hop(
    trace=ROOT.trace, span=ROOT.span, parent=b"parentid", flags=3, creator=b"c" * 24, state="a=é"
)


@pytest.mark.parametrize("hop", [ROOT, FULL])
def test_a_hop_is_read_as_it_was_written(hop: Hop) -> None:
    assert hop_from_body(encode_hop(hop)) == hop


@pytest.mark.parametrize("body", [b"", encode_hop(ROOT)[:-1], encode_hop(ROOT) + b"\xff"])
def test_what_is_no_hop_is_refused(body: bytes) -> None:
    with pytest.raises(RecordError):
        hop_from_body(body)


def test_the_record_names_delivery_link_and_address() -> None:
    writer = RecordWriter(worker=1, incarnation=2)
    writer.traced(5, KEY, SOURCE, FULL, guarantee=2, protocol=1, address="å", message_octets=9)
    [block] = writer.take_blocks()
    [record] = open_block(memoryview(block.octets)).records()
    assert (record.kind, record.key, record.incoming) == (RecordKind.TRACED, KEY, SOURCE)
    assert (record.address, record.message_octets, record.guarantee) == ("å", 9, 2)
    assert hop_from_body(record.body) == FULL


def test_a_replay_passes_over_the_record() -> None:
    writer = RecordWriter(worker=1, incarnation=2)
    writer.traced(5, KEY, SOURCE, FULL)
    writer.received(5, KEY, SOURCE, b"tag", payload=b"message", guarantee=3)
    writer.traced(6, KEY, SOURCE, FULL)
    writer.sent_run(6, SOURCE, TARGET, [KEY], [b"tag"], guarantee=3)
    memory = Memory()
    for block in writer.take_blocks():
        memory.apply(open_block(memoryview(block.octets)))
    [delivery] = memory.deliveries.values()
    assert delivery.payload == b"message"
    assert list(delivery.sendings) == [TARGET]
    assert (memory.unreadable_records, memory.late_records) == (0, 0)


def test_spans_have_the_same_ids_in_every_life_and_others_for_other_links_and_attempts() -> None:
    identity = hop_identity(SOURCE, KEY)
    assert identity.hex() == "670913f7c94ed12b87d2b9069235b11965d51a2f498ac5c3"
    assert identity != hop_identity(TARGET, KEY)
    span = identity[:8]
    ids = {send_identity(span, link, n) for link in (SOURCE, TARGET) for n in (0, 1)}
    assert len({span, *ids}) == 5
