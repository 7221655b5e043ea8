"""Reminders, against a model that keeps the earliest for each item."""

import math
import weakref

from hypothesis import given
from hypothesis import strategies as st

from router.net.timers import Timers

STEPS = st.lists(
    st.tuples(st.sampled_from("rfd"), st.integers(0, 5), st.integers(0, 50)), max_size=200
)


@given(STEPS)
def test_an_item_comes_once_at_its_earliest_reminder(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, float] = {}
    for verb, item, when in steps:
        if verb == "r":
            timers.remind(item, when)
            model[item] = min(when, model.get(item, math.inf))
        elif verb == "f":
            timers.forget(item)
            model.pop(item, None)
        else:
            due = timers.due(when)
            assert sorted(due) == sorted(each for each in model if model[each] <= when)
            assert [model[each] for each in due] == sorted(model[each] for each in due)
            for each in due:
                del model[each]
        assert timers.next_due <= min(model.values(), default=math.inf)


def test_reminders_that_were_overtaken_do_not_pile_up() -> None:
    timers: Timers[str] = Timers()
    for round_number in range(10_000):
        timers.remind("far", 1e9)
        timers.remind("near", round_number)
        assert timers.due(round_number) == ["near"]
        timers.remind("near", 1e9 - round_number)
        timers.forget("near")
    assert len(timers._heap) < 100


def test_what_was_forgotten_is_not_kept_alive() -> None:
    class Thing:
        pass

    timers: Timers[Thing] = Timers()
    thing = Thing()
    gone = weakref.ref(thing)
    timers.remind(thing, 100)
    timers.remind(thing, 50)
    timers.forget(thing)
    del thing
    assert gone() is None
