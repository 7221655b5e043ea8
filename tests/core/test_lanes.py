"""Nodes on the express lane and off it: core, engines and kernel together."""

from collections import Counter

import pytest

from router.core.lanes import REST_SECONDS
from router.core.listing import Filter, LinkPosition
from router.links.link import Link
from router.model.outcome import ACCEPTED, REJECTED, RELEASED
from router.model.terminus import SenderSettleMode
from router.routes.route import Distribution, Guarantee, Route
from tests.support.exchange import Conversation, Outcome, message, number_of
from tests.support.kernel import MODES, needs_kernel
from tests.support.lane_meeting import Meeting

# --- the same whichever way deliveries go ---------------------------------------------------------


def _converse(seed: int, mode: str, *, has_churn: bool = False) -> Outcome:
    return Conversation(seed, mode, has_churn=has_churn).lead(120)


def _each_accepted_once(outcome: Outcome) -> bool:
    got = Counter(number for received in outcome.received for number in received)
    return all(got[number] == 1 for number, state in outcome.outcomes.items() if state == ACCEPTED)


def _has_aborted(outcome: Outcome) -> bool:
    return any(number in outcome.aborted for received in outcome.received for number in received)


@pytest.mark.parametrize("seed", range(25))
def test_outcomes_are_the_same_on_the_lane_and_off_it(seed: int) -> None:
    ends = {mode: _converse(seed, mode) for mode in MODES}
    off, lane = ends["off"].outcomes, ends[MODES[0]].outcomes
    both = off.keys() & lane.keys()
    assert {number: off[number] for number in both} == {number: lane[number] for number in both}
    assert all(_each_accepted_once(end) for end in ends.values())
    assert not any(_has_aborted(end) for end in ends.values())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(25))
def test_links_that_come_and_go_lose_nothing(seed: int) -> None:
    for mode in MODES:
        conversation = Conversation(seed, mode, has_churn=True)
        end = conversation.lead(120)
        got = {number for received in end.received for number in received}
        accepted = {number for number, state in end.outcomes.items() if state == ACCEPTED}
        assert accepted <= got
        assert not _has_aborted(end)
        assert all(each.settled for sender in conversation.senders for each in sender.sent)
        express = conversation.exchange.express
        assert express is None or express.kept_octets == 0
        assert conversation.exchange.core._registry.process.used == 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_conversations_end_the_same(block: int) -> None:
    for seed in range(1000 + block * 25, 1025 + block * 25):
        test_outcomes_are_the_same_on_the_lane_and_off_it(seed)
        test_links_that_come_and_go_lose_nothing(seed)


@needs_kernel
def test_most_conversations_use_the_lane() -> None:
    ends = [_converse(seed, "cython") for seed in range(10)]
    assert sum(end.carried for end in ends) > sum(len(end.outcomes) for end in ends) / 5


# --- promotion and demotion -----------------------------------------------------------------------


@needs_kernel
def test_an_address_is_promoted_as_soon_as_somebody_sends_and_somebody_receives() -> None:
    meeting = Meeting("cython")
    assert meeting.is_on_lane()
    meeting.send(50)
    meeting.accept()
    assert all(each.state == ACCEPTED for each in meeting.sender.sent)
    assert len(meeting.receiver.received) == 50


@needs_kernel
def test_an_address_with_plain_traffic_is_promoted_again() -> None:
    meeting = Meeting("cython")
    meeting.exchange.core.end_trace(meeting.exchange.core.trace("#", 1, meeting.exchange.now))
    assert not meeting.is_on_lane()
    meeting.promote()
    meeting.send(50)
    meeting.accept()
    assert all(each.state == ACCEPTED for each in meeting.sender.sent)
    assert len(meeting.receiver.received) == 52


@pytest.mark.parametrize(
    "route",
    [
        Route(address="#", distribution=Distribution.MULTICAST),
        Route(address="#", guarantee=Guarantee.EXACTLY_ONCE),
        Route(address="#", ttl_seconds=5),
    ],
    ids=["multicast", "exactly-once", "ttl"],
)
@needs_kernel
def test_an_address_whose_route_asks_for_more_is_not(route: Route) -> None:
    meeting = Meeting("cython", route)
    for _ in range(3):
        meeting.send(2)
        meeting.accept()
    assert not meeting.is_on_lane()
    assert len(meeting.receiver.received) == 6


@needs_kernel
def test_a_sender_that_comes_when_others_have_used_all_credit_gets_some_in_its_turn() -> None:
    meeting = Meeting("cython", credit=10)
    meeting.promote()
    meeting.send(8)
    late = meeting.attach_sender()
    meeting.exchange.wait(0)
    assert late.credit == 0
    meeting.accept()
    meeting.receiver.grant(10)
    meeting.settle_down()
    assert late.credit > 0
    late.send([message(97, 8)], settled=False)
    meeting.settle_down()
    meeting.accept()
    assert late.sent[0].state == ACCEPTED


@needs_kernel
def test_a_receiver_that_wants_all_settled_gets_all_settled() -> None:
    meeting = Meeting("cython")
    other = meeting.attach_receiver(50, mode=SenderSettleMode.SETTLED)
    meeting.send(4, settled=True)
    meeting.send(4, settled=True)
    assert meeting.is_on_lane()
    meeting.send(4)
    meeting.accept()
    assert [each.settled for each in meeting.sender.sent] == [True] * 12
    assert not other.waiting


@needs_kernel
def test_an_address_at_most_once_is_promoted_for_settled_deliveries() -> None:
    meeting = Meeting("cython", Route(address="#", guarantee=Guarantee.AT_MOST_ONCE))
    meeting.send(4)
    meeting.exchange.now += REST_SECONDS
    meeting.send(4, settled=True)
    meeting.send(4, settled=True)
    assert meeting.is_on_lane()
    meeting.send(4)
    assert len(meeting.receiver.received) == 16
    assert not meeting.receiver.waiting
    assert [each.settled for each in meeting.sender.sent] == [True] * 16


@pytest.mark.parametrize("odd", [{"ttl": True}, {"size": 3_000_000}])
@needs_kernel
def test_a_delivery_that_needs_judgement_passes_between_the_others(odd: dict[str, int]) -> None:
    meeting = Meeting("cython")
    meeting.promote()
    for _ in range(3):
        meeting.send(3)
        meeting.send(1, **odd)  # type: ignore[arg-type]
    meeting.send(3)
    assert meeting.is_on_lane()
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent
    numbers = [number_of(each) for each in meeting.receiver.received]
    assert numbers == sorted(numbers)


@needs_kernel
def test_a_delivery_that_needs_judgement_and_waits_brings_its_address_off_for_a_while() -> None:
    meeting = Meeting("cython", credit=10)
    meeting.promote()
    meeting.receiver.grant(1)
    meeting.exchange.settle_down()
    assert meeting.sender.credit > 1
    meeting.send(1)
    meeting.send(1, ttl=1000)
    assert not meeting.is_on_lane()
    meeting.receiver.grant(100)
    meeting.exchange.now += REST_SECONDS / 2
    meeting.send(3)
    meeting.send(3)
    was_on_lane_early = meeting.is_on_lane()
    meeting.exchange.now += REST_SECONDS / 2
    meeting.send(3)
    meeting.send(3)
    assert (was_on_lane_early, meeting.is_on_lane()) == (False, True)
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent
    numbers = [number_of(each) for each in meeting.receiver.received]
    assert numbers == sorted(numbers)


@needs_kernel
def test_what_waits_goes_on_the_lane_with_its_address() -> None:
    meeting = Meeting("cython", credit=2)
    meeting.sender.credit = 10  # beyond what it was granted: somebody else used the receiver's
    meeting.exchange.carry_out([])
    meeting.send(2)
    meeting.send(0)
    meeting.receiver.grant(100)
    meeting.exchange.settle_down()
    meeting.send(10)
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * len(meeting.sender.sent)


@needs_kernel
def test_released_deliveries_are_the_cores_to_offer_again() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    other = meeting.attach_receiver(100)
    meeting.sender.send([message(29, 8), message(0, 8)], False)
    meeting.exchange.settle_down()
    for _ in range(3):
        for receiver in (meeting.receiver, other):
            receiver.answer(10, True)
        meeting.exchange.settle_down()
    assert [each.state for each in meeting.sender.sent[-2:]] == [RELEASED, ACCEPTED]
    assert message(29, 8) in meeting.receiver.received
    assert message(29, 8) in other.received


@needs_kernel
def test_a_rejection_reaches_the_sender() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.sender.send([message(number, 8) for number in (0, 13, 0)], False)
    meeting.exchange.settle_down()
    meeting.accept()
    assert [each.state for each in meeting.sender.sent[-3:]] == [ACCEPTED, REJECTED, ACCEPTED]


@needs_kernel
def test_new_links_join_the_lane_of_their_address() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    second = meeting.attach_receiver(100)
    third = meeting.attach_sender()
    third.send([message(0, 8)] * 20, False)
    meeting.send(20)
    assert meeting.is_on_lane()
    assert len(second.received) == 20
    second.answer(100, True)
    meeting.accept()
    assert all(each.state == ACCEPTED for each in third.sent + meeting.sender.sent)


@needs_kernel
def test_a_receiver_that_goes_leaves_its_deliveries_to_the_others() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    other = meeting.attach_receiver(100)
    meeting.send(10)
    lost = len(other.waiting)
    assert lost == 5
    meeting.exchange.detach(other)
    meeting.exchange.settle_down()
    for _ in range(2):
        meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent


@needs_kernel
def test_a_lost_connection_leaves_nothing_behind() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.send(10)
    express = meeting.exchange.express
    assert express is not None
    assert express.kept_octets > 0
    meeting.exchange.close(meeting.receiver.client)
    meeting.exchange.settle_down()
    assert express.kept_octets == 0
    assert not meeting.is_on_lane()
    meeting.exchange.close(meeting.sender.client)
    assert meeting.exchange.core._registry.process.used == 0


@needs_kernel
def test_credit_is_asked_back_when_the_last_receiver_stops() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    assert meeting.sender.credit > 0
    meeting.receiver.grant(0)
    meeting.exchange.settle_down()
    assert meeting.sender.credit == 0
    meeting.receiver.grant(10)
    meeting.exchange.settle_down()
    assert meeting.sender.credit > 0


@needs_kernel
@pytest.mark.parametrize("drain", [False, True])
def test_credit_that_comes_in_one_breath_with_the_end_of_the_last_is_not_lost(
    *, drain: bool
) -> None:
    """The lane must not read the new credit before the core has heard that there was none."""
    meeting = Meeting("cython")
    meeting.promote()
    meeting.receiver.grant(0, drain)
    meeting.exchange.write(meeting.receiver.client)
    meeting.receiver.grant(10)
    meeting.exchange.settle_down()
    assert meeting.sender.credit > 0
    meeting.send(10)
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent


@needs_kernel
def test_a_receiver_that_drains_gets_its_answer() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.receiver.grant(50, drain=True)
    meeting.exchange.settle_down()
    meeting.receiver.grant(50)
    meeting.exchange.settle_down()
    meeting.send(5)
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent


# --- people and the lane --------------------------------------------------------------------------


@needs_kernel
def test_draining_brings_every_address_off_and_comes_to_rest() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.send(5)
    meeting.exchange.carry_out(meeting.exchange.core.drain(meeting.exchange.now))
    meeting.exchange.settle_down()
    assert not meeting.is_on_lane()
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent
    meeting.exchange.wait(5)
    assert meeting.exchange.core.is_drained


@needs_kernel
def test_a_pause_stops_an_address_on_the_lane() -> None:
    meeting = Meeting("cython", Route(address="#", name="all"))
    meeting.promote()
    core, now = meeting.exchange.core, meeting.exchange.now
    meeting.exchange.carry_out(core.pause("all", now))
    meeting.exchange.settle_down()
    assert not meeting.is_on_lane()
    assert meeting.sender.credit == 0
    meeting.exchange.carry_out(core.resume("all", now))
    meeting.exchange.settle_down()
    meeting.send(5)
    meeting.accept()
    assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * meeting.sent


@needs_kernel
def test_a_trace_sees_what_would_have_gone_by_the_lane() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    tracer = meeting.exchange.core.trace("#", 10, meeting.exchange.now)
    assert not meeting.is_on_lane()
    meeting.send(2)
    assert {line.delivery for line in tracer.take()} >= {1, 2}
    meeting.exchange.core.end_trace(tracer)
    meeting.accept()
    meeting.send()
    meeting.send()
    assert meeting.is_on_lane()


@needs_kernel
def test_a_survey_counts_what_went_by_the_lane() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.send(10)
    (route,) = meeting.exchange.core.surveyor.survey(meeting.exchange.now).routes
    assert route.received.deliveries == route.sent.deliveries == 12
    assert route.received.accepted == route.sent.accepted == 2
    assert route.incoming_unsettled == route.outgoing_unsettled == 10
    meeting.accept()
    (route,) = meeting.exchange.core.surveyor.survey(meeting.exchange.now).routes
    assert route.sent.accepted == 12
    assert route.received.octets == route.sent.octets
    assert route.incoming_unsettled == 0
    page = meeting.exchange.core.lister.links(Filter(), 10, LinkPosition(), meeting.exchange.now)
    assert sorted(each.totals.deliveries for each in page.links) == [12, 12]


@needs_kernel
def test_totals_stay_when_the_lane_gives_a_link_back() -> None:
    meeting = Meeting("cython")
    meeting.promote()
    meeting.send(10)
    meeting.exchange.detach(meeting.sender)
    meeting.exchange.settle_down()
    (route,) = meeting.exchange.core.surveyor.survey(meeting.exchange.now).routes
    assert route.received.deliveries == 12


@needs_kernel
def test_what_is_unsettled_is_known_on_the_lane_and_off_it() -> None:
    meeting = Meeting("cython")
    meeting.send(50)
    lanes = meeting.exchange.core._lanes
    (node,) = meeting.exchange.core._registry.nodes.values()
    links: list[Link] = [*node.outgoing, *node.feeds]
    assert meeting.is_on_lane()
    assert [lanes.unsettled(link) for link in links] == [50, 50]
    lanes.demote(node)
    assert [lanes.unsettled(link) for link in links] == [50, 50]


@needs_kernel
def test_a_link_to_several_receivers_takes_its_weight_to_the_lane() -> None:
    meeting = Meeting("cython")
    several = meeting.attach_receiver(100)
    core = meeting.exchange.core
    (node,) = core._registry.nodes.values()
    node.outgoing[1].receivers = 3
    assert meeting.is_on_lane()
    core._lanes.weighed(node.outgoing[1])
    meeting.send(40)
    assert (len(meeting.receiver.received), len(several.received)) == (10, 30)
    core.end_trace(core.trace("#", 1, meeting.exchange.now))
    meeting.accept()
    several.answer(1 << 30, True)
    meeting.exchange.settle_down()
    meeting.send(1)
    meeting.accept()
    several.answer(1 << 30, True)
    meeting.exchange.settle_down()
    meeting.send(40)
    assert meeting.is_on_lane()
    assert (len(meeting.receiver.received), len(several.received)) in {(20, 61), (21, 60)}
