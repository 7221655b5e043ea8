"""An outline of a segment's index says of runs what the index says, in a fraction of the memory."""

import random

import pytest

from router.journal.bulk import shortcuts
from router.journal.store import index as index_module
from router.journal.store import indexes, outline
from router.journal.store.index import Entry, SegmentIndex
from router.journal.store.place import Place, place_of
from router.journal.store.queues import QueueKey
from tests.journal.store.test_references import custodian
from tests.support.stored import Custodian, claims, queue

SEGMENT = 5


def filled(draw: random.Random, stretch: int) -> SegmentIndex:
    """Gives an index of blocks in which queues alternate."""
    made, block = SegmentIndex(SEGMENT), 64
    for _ in range(draw.randint(1, 6)):
        position, rows = block + 48, draw.randint(1, 60)
        made._heaps[block] = position + 80 * rows
        name = QueueKey(1)
        for _ in range(rows):
            if not draw.randrange(stretch):
                name = QueueKey(draw.randint(1, 4))
            if draw.random() < 0.9:  # else it is no message
                place = place_of(SEGMENT, position)
                made.add(Entry(place, name, 200, draw.randint(10, 1000), block))
            position += 80
        block = position + draw.randrange(64, 4000)
    return made


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_an_outline_finds_the_runs_that_the_index_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(outline, "shortcuts", None)
        monkeypatch.setattr(index_module, "shortcuts", None)
    elif shortcuts is None:
        pytest.skip("the shortcuts were not built")
    draw = random.Random(seed)
    made = filled(draw, draw.choice((1, 2, 20)))
    found = made.outline()
    assert found is not None
    oldest = min(entry.time_ns for entry in made.entries(Place(0)))
    positions = [entry.place for entry in made.entries(Place(0))]
    for _ in range(300):
        after = Place(draw.choice(positions) + draw.randint(-90, 90))
        after = draw.choice((after, Place(0), place_of(SEGMENT + 1, 0), place_of(SEGMENT, 0)))
        name, count = QueueKey(draw.randint(1, 5)), draw.choice((1, 3, 20, 1000))
        wanted, answer = made.run(after, name, count), found.run(after, name, count)
        assert (answer is None) == (wanted is None)
        if wanted is not None and answer is not None:
            assert answer[0] == wanted[0]
            assert answer[1] == oldest <= wanted[1]
            assert all(made.heap_of(block) == found.heap_of(block) for block, _ in answer[0])


def test_what_is_unusual_or_not_wholly_known_has_no_outline() -> None:
    made = SegmentIndex(SEGMENT)
    assert made.outline() is None
    made.add(Entry(place_of(SEGMENT, 100), QueueKey(1), 200, 5, 64), is_unusual=True)
    assert made.outline() is None
    assert SegmentIndex(SEGMENT, 64).outline() is None


def test_each_segment_is_read_once_however_far_one_address_is_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "_ENTRIES_KEPT", 200)
    monkeypatch.setattr(indexes, "INDEXES_KEPT", 2)
    made = custodian(0, segment_octets=10_000)
    for number in range(1600):
        made.put(number, address="few" if number % 16 == 0 else "many")
        if number % 40 == 39:
            assert made.commit()
    segments = len(made.store.holdings.segments)
    assert segments > 15
    made.log.close(made.now_ns)
    made = Custodian(made._disk, life=1, segment_octets=10_000)  # which knows no index yet
    made.open()
    read: list[int] = []
    plain = indexes.Indexes._read_next

    def noted(self: indexes.Indexes, segment: object, found: SegmentIndex) -> SegmentIndex:
        read.append(found.segment)
        return plain(self, segment, found)  # type: ignore[arg-type]

    monkeypatch.setattr(indexes.Indexes, "_read_next", noted)
    for address, wanted in (("few", 100), ("many", 1500)):
        count = 0
        while count < wanted:
            found = made.store.refer(QueueKey(queue(address)), 30, made.now_ns)
            assert found is not None
            count += found.messages
    assert len(made.store.indexes) <= 8
    assert max(map(read.count, read)) == 1


@pytest.mark.parametrize("octets", [0, 2000, 1 << 20])
def test_outlines_take_no_more_memory_than_they_may(
    octets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_ENTRIES_KEPT", 200)
    monkeypatch.setattr(indexes, "INDEXES_KEPT", 2)
    monkeypatch.setattr(indexes, "_OUTLINE_OCTETS_KEPT", octets)
    made = custodian(0, segment_octets=10_000)
    for number in range(1600):
        made.put(number, address="few" if number % 16 == 0 else "many")
        if number % 40 == 39:
            assert made.commit()
    kept = made.store.indexes
    assert sum(each.octets for each in kept._outlines.values()) == kept._outline_octets <= octets
    assert (octets == 0) == (not kept._outlines)
    for address, count in (("few", 100), ("many", 1500)):
        places: list[Place] = []
        while len(places) < count:
            found = made.store.refer(QueueKey(queue(address)), 50, made.now_ns)
            assert found is not None
            places += found.places
        assert places == sorted(set(places))
    for route in made.store.holdings.routes:
        made.store.give_back_all(route)
    everything = made.read(2000, of=queue("few")) + made.read(2000, of=queue("many"))
    made.forward(claims(everything))
    assert made.commit()
    made.store.remove_done()
    assert len(everything) == 1600
    assert not kept._outlines
    assert not kept._outline_octets
