"""What is on the express lane is listed as it is off the lane, and stays there."""

import struct

import pytest

from router.core import listing
from router.core.listing import DeliveryPage, DeliveryPosition, Filter
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import Role
from tests.support.kernel import MODES, needs_kernel
from tests.support.lane_reference import Worker
from tests.support.lane_world import disposition
from tests.support.one_line import grant, one_line, payload, received, send

Listed = tuple[int, str, bool, int]


def page(
    worker: Worker,
    wanted: Filter | None = None,
    most: int = 1000,
    after: DeliveryPosition | None = None,
    now: float = 0.0,
) -> DeliveryPage:
    return worker.core.lister.deliveries(wanted or Filter(), most, after, now)


def listed(worker: Worker, wanted: Filter | None = None) -> list[Listed]:
    """Number, state, whether the router is responsible, and octets of each, as they are listed."""
    return [
        (struct.unpack(">I", bytes.fromhex(each.tag))[0], each.state, each.in_custody, each.octets)
        for each in page(worker, wanted).deliveries
    ]


def row(number: int, state: str, *, in_custody: bool = False) -> Listed:
    return (number, state, in_custody, len(payload(number)))


def answer(worker: Worker, number: int, *, settled: bool, state: DeliveryState = ACCEPTED) -> None:
    worker.feed(0, disposition(Role.RECEIVER, number, number, settled, state, 0))
    worker.end_turn()


@pytest.mark.parametrize("mode", MODES)
def test_what_is_sent_and_what_waits_are_told_apart(mode: str) -> None:
    worker = one_line(mode, 10)
    grant(worker, 2)
    send(worker, range(4))
    assert listed(worker) == [
        row(0, "sent"),
        row(1, "sent"),
        row(2, "queued"),
        row(3, "queued"),
    ]
    first, *_, last = page(worker).deliveries
    assert (first.route, first.address, first.attempts) == ("#", "address", 0)
    assert (first.to_container, last.to_container) != (None, None)
    assert (last.to_container, last.to_link) == (None, None)
    assert page(worker).on_lane == 0
    answer(worker, 0, settled=True)
    assert listed(worker) == [row(1, "sent"), row(2, "queued"), row(3, "queued")]


@pytest.mark.parametrize("mode", MODES)
def test_what_its_sender_has_settled_is_the_routers_own(mode: str) -> None:
    worker = one_line(mode, 10)
    grant(worker, 1)
    send(worker, range(2), settled=True)
    send(worker, range(2, 3))
    assert listed(worker) == [
        row(0, "sent", in_custody=True),
        row(1, "queued", in_custody=True),
        row(2, "queued"),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_what_only_its_sender_has_to_settle_is_answered(mode: str) -> None:
    worker = one_line(mode, 10, second=True)
    send(worker, range(3))
    answer(worker, 0, settled=False)
    answer(worker, 1, settled=True)
    states = {number: state for number, state, *_ in listed(worker)}
    assert states == {0: "answered", 1: "answered", 2: "sent"}


@needs_kernel
def test_a_list_changes_nothing_on_the_lane() -> None:
    worker = one_line("cython", 10)
    grant(worker, 2)
    send(worker, range(4))
    (link,) = worker.core.lister._lanes.nodes
    for _ in range(3):
        assert len(listed(worker)) == 4
    assert worker.core.lister._lanes.nodes == {link: None}.keys(), "it is still on the lane"
    assert len(received(worker)) == 2
    grant(worker, 10)
    assert received(worker) == [payload(2), payload(3)]
    for number in range(4):
        answer(worker, number, settled=True)
    assert listed(worker) == []


@pytest.mark.parametrize("mode", MODES)
def test_filters_hold_on_the_lane(mode: str) -> None:
    worker = one_line(mode, 10)
    grant(worker, 1)
    send(worker, range(3))
    sender, receiver = page(worker).deliveries[0].container, page(worker).deliveries[0].to_container
    assert len(listed(worker, Filter(route="#"))) == 3
    assert listed(worker, Filter(route="other")) == []
    assert len(listed(worker, Filter(container=sender))) == 3
    assert listed(worker, Filter(container=receiver)) == [row(0, "sent")]
    assert listed(worker, Filter(container="nobody")) == []
    assert listed(worker, Filter(in_doubt=True)) == []


@pytest.mark.parametrize("mode", MODES)
def test_pages_leave_nothing_out_and_repeat_nothing(mode: str) -> None:
    worker = one_line(mode, 20)
    grant(worker, 5)
    send(worker, range(10))
    seen: list[int] = []
    after: DeliveryPosition | None = None
    now = 0.0
    while True:
        found = page(worker, most=3, after=after, now=now)
        seen += [int(each.tag, 16) for each in found.deliveries]
        if not found.has_more:
            break
        after, now = found.deliveries[-1].position, now + 1
    assert seen == list(range(10))


@needs_kernel
def test_what_is_too_much_to_list_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LANE_MOST", 4)
    worker = one_line("cython", 20)
    grant(worker, 5)
    send(worker, range(10))
    found = page(worker)
    assert (len(found.deliveries), found.on_lane) == (4, 6)


@needs_kernel
def test_the_age_on_the_lane_is_as_well_known_as_surveys_have_it() -> None:
    worker = one_line("cython", 20)
    send(worker, range(2))
    worker.core.surveyor.survey(10.0)
    send(worker, range(2, 4))
    ages = [each.age_seconds for each in page(worker, now=25.0).deliveries]
    assert ages == [15.0, 15.0, 0.0, 0.0]
    ages = [each.age_seconds for each in page(worker, now=30.0).deliveries]
    assert ages == [20.0, 20.0, 5.0, 5.0]


@pytest.mark.parametrize("mode", MODES)
def test_what_waits_is_queued_and_unsettled_and_stalls(mode: str) -> None:
    worker = one_line(mode, 20)
    grant(worker, 2)
    send(worker, range(5))
    send(worker, range(5, 7), settled=True)
    for now in (0.0, 100.0, 200.0):
        survey = worker.core.surveyor.survey(now)
    (route,) = survey.routes
    assert (route.queued, route.incoming_unsettled, route.outgoing_unsettled) == (5, 5, 2)
    assert sum(route.ages) == 5
    assert route.stall is not None
    assert route.stall.reason.startswith("5 deliveries wait")
