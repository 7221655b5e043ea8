"""Ages of deliveries on the express lane, which are only counted."""

import attrs

from router.core.ages import MARKS_MOST, LaneAges
from router.core.snapshot import AGE_BOUNDS_SECONDS
from router.links.link import IncomingLink, LinkKey
from router.model.identity import ContainerId, LinkName
from router.model.terminus import Role

BUCKETS = len(AGE_BOUNDS_SECONDS) + 1


@attrs.define(eq=False)
class Watch:
    """A link, a clock and surveys of both."""

    link: IncomingLink = attrs.field(
        factory=lambda: IncomingLink(
            key=LinkKey(None, ContainerId("source"), LinkName("link"), Role.RECEIVER),
            address="orders",
            source=None,
            target=None,
            connection=None,
            link=None,
        )
    )
    lane: LaneAges = attrs.field(factory=LaneAges)
    now: float = 100.0

    def survey(self) -> tuple[float, list[int]]:
        ages = [0] * BUCKETS
        self.lane.begin()
        return self.lane.count(self.link, self.now, ages), ages

    def pass_on(self, seconds: float, arrived: int = 0, settled: int = 0) -> None:
        self.now += seconds
        self.link.tally.deliveries += arrived
        self.link.lane_unsettled += arrived - settled


def test_what_came_since_the_last_survey_is_young() -> None:
    watch = Watch()
    watch.pass_on(0, arrived=10)
    oldest, ages = watch.survey()
    assert (oldest, ages[0]) == (0, 10)


def test_what_is_not_settled_grows_old() -> None:
    watch = Watch()
    watch.pass_on(0, arrived=10)
    watch.survey()
    watch.pass_on(50)
    oldest, ages = watch.survey()
    assert oldest == 50
    assert ages[AGE_BOUNDS_SECONDS.index(60.0)] == 10


def test_a_link_that_flows_stays_young_for_ever() -> None:
    watch = Watch()
    watch.pass_on(0, arrived=5)
    for _ in range(1000):
        watch.survey()
        watch.pass_on(5, arrived=1000, settled=1000)
        oldest, ages = watch.survey()
        assert (oldest, ages[0]) == (0, 5)


def test_outcomes_in_order_settle_the_oldest() -> None:
    watch = Watch()
    watch.pass_on(0, arrived=10)
    watch.survey()
    watch.pass_on(30, arrived=10, settled=4)
    oldest, ages = watch.survey()
    assert oldest == 30
    assert ages[0] == 10
    assert ages[AGE_BOUNDS_SECONDS.index(60.0)] == 6
    watch.pass_on(1, settled=6)
    oldest, ages = watch.survey()
    assert oldest == 1
    assert sum(ages) == 10


def test_marks_stay_few_and_the_oldest_is_kept() -> None:
    watch = Watch()
    for _ in range(10 * MARKS_MOST):
        watch.pass_on(5, arrived=1)
        oldest, ages = watch.survey()
    assert oldest == 5 * (10 * MARKS_MOST - 1)
    assert sum(ages) == 10 * MARKS_MOST


def test_a_link_that_a_survey_does_not_come_by_is_forgotten() -> None:
    watch = Watch()
    watch.pass_on(0, arrived=3)
    watch.survey()
    watch.lane.begin()
    watch.pass_on(40)
    oldest, _ = watch.survey()
    assert oldest == 0
