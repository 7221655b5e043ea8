"""The machine's clock is set while messages wait: what `age` and times to live make of that.

Ages are counted by the clock as it stands. Set ahead, messages are as much older; set back, those
that are stored live as much longer. Newcomers are never older than they are, and nothing is lost.
"""

import pytest

from router.journal.store.queues import Bounds
from router.model.identity import LinkId
from tests.support.shelved import Shelved

DAY = 24 * 3600.0
YEAR = 365 * DAY
AGE_NS = int(7 * DAY * 1e9)
HOUR = 3600.0


class Jumping(Shelved):
    """A store and an engine whose clock somebody sets.

    Attributes:
        ahead_seconds: how much later it is by the clock than it was to be.
    """

    ahead_seconds = 0.0

    @property
    def now_ns(self) -> int:
        return super().now_ns + int(self.ahead_seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Sets the clock, and lets both look at it."""
        self.ahead_seconds += seconds
        self.wait(1.0)


def jumping(before: Jumping | None = None) -> Jumping:
    """Returns a store with an age of seven days; the one of a later life."""
    bounds = Bounds(age_ns=AGE_NS)
    if before is None:
        return Jumping(bounds=bounds)
    Jumping.ahead_seconds, seconds = before.ahead_seconds, before.seconds
    try:
        again = Jumping(disk=before.disk, life=1, bounds=bounds)
    finally:
        Jumping.ahead_seconds = 0.0
    again.ahead_seconds, again.seconds = before.ahead_seconds, seconds
    return again


def outcome(stage: Jumping) -> tuple[list[int], list[int]]:
    """Lets the target and the dead letters take all; returns the numbers of both."""
    links: dict[bool, LinkId] = {}
    for _ in range(3):
        for _, is_dead in stage.inlets():
            if is_dead not in links:
                links[is_dead] = stage.answer(1000, is_dead=is_dead)
        stage.wait(1.0)
    found = {is_dead: stage.sent(link) for is_dead, link in links.items()}
    return found.get(False, []), found.get(True, [])


def outcome_of_jump(seconds: float, *, restarts: bool) -> tuple[list[int], list[int]]:
    """Stores 1 to 3 before the clock jumps, and 4 to 6 after; returns the numbers of both ends."""
    stage = jumping()
    stage.attach()
    stage.put(1, 3)
    stage.wait(HOUR)
    stage.jump(seconds)
    if restarts:
        stage.log.close(stage.now_ns)
        stage = jumping(stage)
        stage.attach()
    stage.put(4, 3)
    stage.wait(HOUR)
    return outcome(stage)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seconds", [DAY, -DAY, -YEAR])
def test_nothing_becomes_too_old_by_a_day_or_by_a_clock_that_is_set_back(
    seconds: float, restarts: bool
) -> None:
    assert outcome_of_jump(seconds, restarts=restarts) == ([1, 2, 3, 4, 5, 6], [])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_year_ahead_makes_dead_letters_of_what_was_there_and_not_of_newcomers(
    restarts: bool,
) -> None:
    assert outcome_of_jump(YEAR, restarts=restarts) == ([4, 5, 6], [1, 2, 3])


@pytest.mark.parametrize("seconds", [DAY, YEAR])
@pytest.mark.parametrize("restarts", [False, True])
def test_newcomers_are_forwarded_after_a_clock_that_was_ahead_was_set_right(
    seconds: float, restarts: bool
) -> None:
    stage = jumping()
    stage.jump(seconds)
    stage.attach()
    stage.put(1, 3)
    stage.wait(HOUR)
    stage.jump(-seconds)
    if restarts:
        stage.log.close(stage.now_ns)
        stage = jumping(stage)
        stage.attach()
    stage.put(4, 3, ttl_milliseconds=2 * 3600 * 1000)
    stage.wait(HOUR)
    assert outcome(stage) == ([1, 2, 3, 4, 5, 6], [])


def test_ages_count_on_after_the_clock_was_set_back() -> None:
    stage = jumping()
    stage.attach()
    stage.put(1, 3)
    stage.jump(-YEAR)
    stage.put(4, 3)
    stage.wait(8 * DAY)
    forwarded, dead = outcome(stage)
    assert (forwarded, dead) == ([1, 2, 3], [4, 5, 6]), "the first live a year longer"


@pytest.mark.parametrize("seconds", [-DAY, -YEAR])
def test_after_the_clock_was_set_back_no_message_is_said_to_live_longer_than_it_came_with(
    seconds: float,
) -> None:
    stage = jumping()
    stage.attach()
    stage.put(1, ttl_milliseconds=5000)
    stage.jump(seconds)
    (message,) = stage.received(stage.answer(1))
    assert message.ttl_milliseconds == 5000
