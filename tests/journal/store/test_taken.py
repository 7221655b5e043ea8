"""What is taken, as bits and notes, is what a dict of places would say."""

import random
from array import array

import pytest

from router.journal.bulk import shortcuts
from router.journal.store import taken
from router.journal.store.place import Place, place_of
from router.journal.store.queues import QueueKey
from router.journal.store.taken import Taken, set_marks


def at(*rows: int) -> "array[int]":
    """Gives the positions of rows."""
    return array("I", [56 + 80 * row for row in rows])


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_taken_is_what_a_dict_says(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(taken, "shortcuts", None)
    monkeypatch.setattr(taken, "_SLACK", 20)
    draw, found = random.Random(seed), Taken()
    reference: dict[Place, QueueKey] = {}
    for _ in range(600):
        segment, first = draw.randint(1, 3), draw.randrange(200)
        rows = sorted({first + draw.randrange(12) for _ in range(draw.randint(1, 8))})
        positions = at(*rows)
        places = [place_of(segment, each) for each in positions]
        match draw.randrange(4):
            case 0:
                queue = QueueKey(segment * 10 + first // 50)
                rows = [row for row in rows if row // 50 == first // 50]  # each is of one queue
                found.add_run(segment, queue, at(*rows))
                reference.update(dict.fromkeys(places[: len(rows)], queue))
            case 1:
                was_taken = places[0] in reference
                assert found.remove(places[0]) == was_taken
                reference.pop(places[0], None)
            case _:
                count = sum(place in reference for place in places)
                assert found.remove_run(segment, positions) == count
                for place in places:
                    reference.pop(place, None)
        assert len(found) == len(reference)
        assert found.has_any(segment, positions.tobytes()) == any(
            place in reference for place in places
        )
        assert (places[0] in found) == (places[0] in reference)
        queues = {QueueKey(draw.randint(10, 33)) for _ in range(12)}
        wanted = {place: queue for place, queue in reference.items() if queue in queues}
        assert dict(found.of(queues)) == wanted
        assert sum(each.noted for each in found._segments.values()) <= 2 * len(found) + 3 * 30


def test_a_message_is_taken_once_however_often_that_is_said() -> None:
    found = Taken()
    found.add_run(1, QueueKey(5), at(1, 2, 3))
    found.add_run(1, QueueKey(5), at(2, 3))
    assert len(found) == 3
    assert found.remove_run(1, at(1, 2, 3, 4)) == 3
    assert not found.of({QueueKey(5)})
    assert not found._segments, "nothing stays of a segment of which nothing is taken"


@pytest.mark.skipif(shortcuts is None, reason="the shortcuts were not built")
@pytest.mark.parametrize("seed", range(6))
def test_marks_are_set_alike_with_and_without_shortcuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    one, other = bytearray(), bytearray()
    for _ in range(100):
        positions = at(*(draw.randrange(3000) for _ in range(draw.randint(0, 40))))
        is_set = draw.random() < 0.6
        count = set_marks(one, positions, is_set=is_set)
        with monkeypatch.context() as patch:
            patch.setattr(taken, "shortcuts", None)
            assert set_marks(other, positions, is_set=is_set) == count
        assert one == other
