"""What the core tells of itself: totals, credit, ages, stalls."""

import attrs
import pytest

from router.core.ages import AGES_MOST
from router.core.policy import PeerLimits, Policy, PolicyRule
from router.core.snapshot import (
    AGE_BOUNDS_SECONDS,
    ANONYMOUS,
    DYNAMIC,
    OTHERS,
    PEERS_MOST,
    PeerRecord,
    RouteRecord,
    Snapshot,
    UplinkRecord,
)
from router.core.survey import STEP_LINKS, idle_record
from router.model.condition import NOT_FOUND, Condition
from router.model.outcome import RELEASED, Rejected
from router.model.steps import at_once
from router.model.terminus import Role
from router.routes.route import Endpoint, Guarantee, Route, Unroutable
from router.service.merge import merge_cores
from tests.support.fleet import Fleet
from tests.support.play import Play, ReceiverEnd, SenderEnd

BRIDGE = Route(
    address="orders", name="bridge", from_=Endpoint("east"), to=(Endpoint("west", "orders.eu"),)
)


def survey(play: Play) -> Snapshot:
    return play.core.surveyor.survey(play.now)


def route_of(play: Play, name: str = "orders") -> RouteRecord:
    return next(route for route in survey(play).routes if route.name == name)


def peer_of(play: Play, container: str) -> PeerRecord:
    return next(peer for peer in survey(play).peers if peer.container == container)


def test_a_core_without_connections_has_nothing_to_tell() -> None:
    play = Play("prices.*")
    snapshot = survey(play)
    assert snapshot.routes == ()
    assert (snapshot.connections, snapshot.peers, snapshot.is_draining) == (0, (), False)
    assert snapshot.payload_limit_octets == play.settings.process_octets


def test_a_bridge_is_in_use_from_the_beginning() -> None:
    (bridge,) = survey(Play("prices.*", BRIDGE)).routes
    assert [uplink.container for uplink in bridge.uplinks] == ["east", "west"]


def test_a_route_that_nothing_has_used_tells_what_the_file_says() -> None:
    bridge = idle_record(BRIDGE)
    assert (bridge.name, bridge.from_, bridge.to) == ("bridge", "east", ("west/orders.eu",))
    assert bridge.guarantee == "at-least-once"
    assert bridge.distribution == "balanced"


def pause(play: Play, route: str) -> None:
    play.carry_out(play.core.pause(route, play.now))


def test_the_routes_of_a_survey_are_those_that_something_has_used() -> None:
    play = Play("prices.*", "orders.*", "paused")
    play.connect("in").attach_receiver("orders.eu", credit=10)
    pause(play, "paused")
    assert {route.name for route in survey(play).routes} == {"orders.*", "paused"}


def test_a_route_that_was_used_stays_known_when_its_links_are_gone() -> None:
    play = Play("prices.*", "orders.*")
    target, source = play.connect("in"), play.connect("out")
    receiver = target.attach_receiver("orders.eu", credit=10)
    source.attach_sender("orders.eu").send(b"a")
    receiver.accept(receiver.received[0].number)
    source.close()
    target.close()
    assert route_of(play, "orders.*").received.deliveries == 1


def test_records_are_made_in_steps_however_many_routes_are_used() -> None:
    names = [f"route-{number}" for number in range(3 * STEP_LINKS)]
    play = Play(*names)
    for name in names:
        pause(play, name)
    assert len(list(play.core.surveyor.steps(play.now))) == 3


def test_a_route_adds_up_its_links_and_their_totals() -> None:
    play = Play("orders.*")
    receiver = play.connect("in").attach_receiver("orders.eu", credit=10)
    sender = play.connect("out").attach_sender("orders.eu")
    sender.send(b"a", b"bb", b"ccc")
    receiver.accept(receiver.received[0].number)
    route = route_of(play, "orders.*")
    assert (route.addresses, route.senders, route.receivers) == (1, 1, 1)
    assert (route.incoming_unsettled, route.outgoing_unsettled, route.queued) == (2, 2, 0)
    assert route.outgoing_credit == 7
    assert route.incoming_credit == sender.credit
    assert (route.received.deliveries, route.received.octets, route.received.accepted) == (3, 6, 1)
    assert (route.sent.deliveries, route.sent.octets, route.sent.accepted) == (3, 6, 1)
    assert route.payload_octets == 5


def test_totals_stay_when_links_go() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"one", b"two")
    receiver.accept()
    before = route_of(play)
    sender.peer.lose()
    receiver.detach()
    after = route_of(play)
    assert (after.received, after.sent) == (before.received, before.sent)
    assert (after.senders, after.receivers) == (0, 0)


def test_an_outcome_that_comes_after_the_sender_left_is_still_counted() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"one")
    sender.peer.lose()
    assert route_of(play).outgoing_unsettled == 1
    receiver.accept()
    assert route_of(play).sent.accepted == 1


def test_deliveries_that_wait_are_queued_and_unsettled() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=2)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"1", b"2")
    receiver.grant(0)
    sender.send(b"3")  # it was on its way when the credit was taken back
    route = route_of(play)
    assert (route.queued, route.incoming_unsettled, route.outgoing_unsettled) == (1, 3, 2)


def test_each_configured_container_is_told_of_by_its_name() -> None:
    play = Play(BRIDGE)
    east, west = play.dial("east"), play.dial("west")
    west.answer_receiver(credit=10)
    sender = east.answer_sender()
    sender.send(b"one")
    found = peer_of(play, "east")
    assert found.is_configured
    assert found.routes == (("bridge", Role.RECEIVER),)
    assert (found.senders, found.receivers, found.incoming_unsettled) == (1, 0, 1)
    assert (found.received.deliveries, found.sent.deliveries) == (1, 0)
    assert peer_of(play, "west").outgoing_unsettled == 1


def test_a_containers_totals_go_on_over_its_connections() -> None:
    play = Play(BRIDGE)
    west = play.dial("west").answer_receiver(credit=10)
    east = play.dial("east")
    east.answer_sender().send(b"one")
    west.accept()
    east.lose()
    assert peer_of(play, "east").received.deliveries == 1
    assert peer_of(play, "east").connections == 0
    play.dial("east").answer_sender().send(b"two", b"three")
    found = peer_of(play, "east")
    assert (found.connections, found.received.deliveries) == (1, 3)
    assert route_of(play, "bridge").received.deliveries == 3


def test_too_many_peers_are_told_of_together() -> None:
    play = Play("orders")
    for number in range(PEERS_MOST + 5):
        play.connect(f"client-{number}").attach_sender("orders")
    snapshot = survey(play)
    assert len(snapshot.peers) == PEERS_MOST + 1
    assert snapshot.peers[-1].container == OTHERS
    assert snapshot.peers[-1].connections == 5
    assert sum(peer.senders for peer in snapshot.peers) == PEERS_MOST + 5


def test_dynamic_nodes_share_one_record() -> None:
    play = Play("orders")
    client = play.connect()
    client.attach_receiver(None, dynamic=True, credit=1)
    client.attach_receiver(None, dynamic=True, credit=1)
    route = route_of(play, DYNAMIC)
    assert (route.addresses, route.receivers) == (2, 2)


def test_uplinks_in_trouble_come_first() -> None:
    play = Play(BRIDGE)
    play.dial("east").answer_sender()
    assert {each.step for each in route_of(play, "bridge").uplinks} == {"attached", "away"}
    play.dial("west").refuse(Condition(NOT_FOUND, "no such queue"))
    worst = route_of(play, "bridge").uplinks[0]
    assert worst == UplinkRecord(
        container="west",
        address="orders.eu",
        role=Role.SENDER,
        step="paused",
        failures=1,
        error="amqp:not-found: no such queue",
    )


# Ages


def test_ages_are_counted_by_bucket_and_the_oldest_is_told() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=100)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"old")
    play.wait(50)
    sender.send(b"middle", b"middle")
    play.wait(3)
    sender.send(b"young")
    route = route_of(play)
    assert route.oldest_seconds == 53
    by_bound = dict(zip((*AGE_BOUNDS_SECONDS, None), route.ages, strict=True))
    assert by_bound == {0.1: 1, 1.0: 0, 5.0: 2, 15.0: 0, 60.0: 1, 300.0: 0, 3600.0: 0, None: 0}


def test_of_very_many_old_deliveries_the_rest_counts_with_the_last_one_seen() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=5000)
    sender = play.connect("out").attach_sender("orders")
    sender.send(*[b"x"] * (AGES_MOST + 500))
    play.wait(2)
    route = route_of(play)
    assert sum(route.ages) == route.incoming_unsettled == AGES_MOST + 500
    assert route.ages[AGE_BOUNDS_SECONDS.index(5.0)] == AGES_MOST + 500


def test_nothing_unsettled_has_no_age() -> None:
    play = Play("orders")
    play.connect("in").attach_receiver("orders", credit=10)
    assert route_of(play).oldest_seconds is None


# Stalls


STALLING = Route(address="orders", stall_seconds=30)


def test_deliveries_that_a_receiver_does_not_answer_stall_their_route() -> None:
    play = Play(STALLING)
    play.connect("lazy").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders").send(b"one", b"two")
    assert route_of(play).stall is None
    play.wait(29)
    assert route_of(play).stall is None
    play.wait(1)
    stall = route_of(play).stall
    assert stall is not None
    assert (stall.address, stall.seconds) == ("orders", 30)
    assert stall.reason == "2 deliveries wait: lazy does not answer"


def test_anything_that_moves_ends_a_stall() -> None:
    play = Play(STALLING)
    receiver = play.connect("lazy").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders").send(b"one", b"two")
    survey(play)
    play.wait(31)
    assert route_of(play).stall is not None
    receiver.accept(receiver.received[0].number)
    assert route_of(play).stall is None
    play.wait(30)
    assert route_of(play).stall is not None


def test_a_sender_without_credit_waits_and_the_reason_is_named() -> None:
    play = Play(STALLING)
    play.connect("out").attach_sender("orders")
    survey(play)
    play.wait(30)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 sender waits: nobody receives from it"


def test_a_container_from_which_nobody_here_receives_is_idle() -> None:
    play = Play(attrs.evolve(STALLING, from_=Endpoint("east")))
    play.dial("east").answer_sender("orders")
    survey(play)
    play.wait(60)
    assert route_of(play).stall is None
    play.connect("in").attach_receiver("orders")
    survey(play)
    play.wait(60)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 sender waits: in gives no credit"
    assert stall.deliveries == 0


def test_a_bridge_to_a_container_that_has_no_receiver_yet_is_idle() -> None:
    play = Play(attrs.evolve(STALLING, from_=Endpoint("east"), to=(Endpoint("west"),)))
    east = play.dial("east").answer_sender("orders")
    west = play.dial("west").answer_receiver("orders")
    assert not east.credit
    survey(play)
    play.wait(60)
    assert route_of(play).stall is None
    west.grant(1)
    east.send(b"one")
    west.accept()
    survey(play)
    play.wait(60)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 sender waits: west-id gives no credit"


def test_a_sender_here_waits_for_a_container_that_has_no_receiver_yet() -> None:
    play = Play(attrs.evolve(STALLING, to=(Endpoint("west"),)))
    play.connect("out").attach_sender("orders")
    play.dial("west").answer_receiver("orders")
    survey(play)
    play.wait(60)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 sender waits: west-id gives no credit"


def test_a_sender_that_has_reached_its_limit_of_unsettled_deliveries_is_named_with_it() -> None:
    limits = PeerLimits(unsettled_per_link=2)
    rule = PolicyRule(name="all", send=("#",), receive=("#",), limits=limits)
    play = Play(STALLING, policy=Policy((rule,)))
    play.connect("lazy").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders").send(b"one", b"two")
    survey(play)
    play.wait(30)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == (
        "2 deliveries wait: out has 2 unsettled deliveries, its limit (unsettled_per_link)"
    )


def test_what_was_rejected_and_went_to_dead_letters_is_counted_apart() -> None:
    route = Route(
        address="orders",
        unroutable=Unroutable.DEAD_LETTER,
        dead_letter=Endpoint("graveyard"),
    )
    play = Play(route)
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    sender = play.connect("out").attach_sender("orders")
    sender.send(b"one", settled=True)
    sender.send(b"two")
    receiver.update(*receiver.unsettled, state=Rejected(Condition("amqp:decode-error")))
    rejection = route_of(play).rejection
    assert rejection is not None
    assert (rejection.count, rejection.untold) == (2, 1)


def test_an_idle_sender_with_credit_does_not_wait() -> None:
    play = Play(STALLING)
    play.connect("in").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders")
    survey(play)
    play.wait(3600)
    assert route_of(play).stall is None


def test_a_receiver_without_credit_is_named() -> None:
    play = Play(STALLING)
    play.connect("slow").attach_receiver("orders", credit=1)
    play.connect("out").attach_sender("orders").send(b"one")
    survey(play)
    play.wait(30)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 delivery waits: slow gives no credit while it owes 1 outcomes"


def test_a_bridge_whose_target_is_away_says_so() -> None:
    play = Play(attrs.evolve(BRIDGE, stall_seconds=30))
    play.dial("east").answer_sender()
    survey(play)
    play.wait(30)
    stall = route_of(play, "bridge").stall
    assert stall is not None
    assert stall.reason == "1 sender waits: container west is not connected"


def test_a_bridge_whose_target_refuses_the_link_says_why() -> None:
    play = Play(attrs.evolve(BRIDGE, stall_seconds=30))
    play.dial("east").answer_sender()
    west = play.dial("west")
    west.refuse(Condition(NOT_FOUND, "no such queue"))
    survey(play)
    while west.asked or play.now < 1030:
        if west.asked:
            west.refuse(Condition(NOT_FOUND, "no such queue"))
        play.wait(1)
    stall = route_of(play, "bridge").stall
    assert stall is not None
    assert "west has ended the link to orders.eu: amqp:not-found: no such queue" in stall.reason


def test_a_congested_receiver_is_named() -> None:
    play = Play(STALLING)
    stuck = play.connect("stuck")
    stuck.attach_receiver("orders", credit=5)
    stuck.congest()
    play.connect("out").attach_sender("orders").send(b"one")
    survey(play)
    play.wait(30)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 delivery waits: stuck reads nothing from its connection"


def test_a_sender_that_stops_in_the_middle_is_named() -> None:
    play = Play(STALLING)
    play.connect("in").attach_receiver("orders", credit=5)
    play.connect("halting").attach_sender("orders").send(b"first part", more=True)
    survey(play)
    play.wait(30)
    stall = route_of(play).stall
    assert stall is not None
    assert stall.reason == "1 delivery waits: halting has begun a delivery and does not end it"


def test_a_paused_route_does_not_stall_and_starts_anew_when_it_goes_on() -> None:
    play = Play(STALLING)
    play.connect("lazy").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders").send(b"one")
    survey(play)
    play.wait(20)
    play.carry_out(play.core.pause("orders", play.now))
    survey(play)
    play.wait(100)
    assert route_of(play).stall is None
    play.carry_out(play.core.resume("orders", play.now))
    assert route_of(play).stall is None
    play.wait(30)
    assert route_of(play).stall is not None


def test_a_stall_at_one_address_is_not_hidden_by_traffic_at_another() -> None:
    play = Play(Route(address="orders.*", stall_seconds=30))
    receiver = play.connect("in").attach_receiver("orders.good", credit=100)
    good = play.connect("out").attach_sender("orders.good")
    play.connect("alone").attach_sender("orders.bad")
    survey(play)
    for _ in range(4):
        play.wait(10)
        good.send(b"x")
        receiver.accept()
        survey(play)
    stall = route_of(play, "orders.*").stall
    assert stall is not None
    assert stall.address == "orders.bad"


# Cost


def test_steps_give_way_after_each_hundred_links() -> None:
    play = Play("orders.#")
    client = play.connect()
    for number in range(3 * STEP_LINKS):
        client.attach_sender(f"orders.{number}")
    steps = play.core.surveyor.steps(play.now)
    assert len(list(steps)) == 6  # 300 links, 300 addresses


def test_everything_may_go_away_in_the_middle_of_a_survey() -> None:
    play = Play("orders.#")
    client = play.connect()
    for number in range(3 * STEP_LINKS):
        client.attach_sender(f"orders.{number}")
    steps = play.core.surveyor.steps(play.now)
    next(steps)
    client.lose()
    assert at_once(steps).routes[0].addresses == 0


def test_a_link_that_goes_in_the_middle_of_a_survey_is_counted_once() -> None:
    play = Play("orders.#")
    receiver = play.connect("in").attach_receiver("orders.x", credit=10)
    sender = play.connect("out").attach_sender("orders.x")
    sender.send(b"1", b"2")
    receiver.accept()
    crowd = play.connect("crowd")
    for number in range(2 * STEP_LINKS):
        crowd.attach_sender(f"orders.{number}")
    steps = play.core.surveyor.steps(play.now)
    next(steps)
    receiver.peer.lose()
    assert at_once(steps).routes[0].sent.deliveries == 2
    assert route_of(play, "orders.#").sent.deliveries == 2


def test_a_link_that_goes_before_a_survey_comes_by_is_counted_once() -> None:
    play = Play("orders.#")
    crowd = play.connect("crowd")
    for number in range(2 * STEP_LINKS):
        crowd.attach_sender(f"orders.{number}")
    receiver = play.connect("in").attach_receiver("orders.x", credit=10)
    play.connect("out").attach_sender("orders.x").send(b"1", b"2")
    receiver.accept()
    steps = play.core.surveyor.steps(play.now)
    next(steps)
    receiver.peer.lose()
    assert at_once(steps).routes[0].sent.deliveries == 2


def test_a_containers_connection_that_goes_in_the_middle_of_a_survey_is_counted_once() -> None:
    play = Play(BRIDGE, "crowd.#")
    east = play.dial("east")
    play.dial("west").answer_receiver(credit=10)
    east.answer_sender().send(b"1", b"2")
    crowd = play.connect("crowd")
    for number in range(2 * STEP_LINKS):
        crowd.attach_sender(f"crowd.{number}")
    steps = play.core.surveyor.steps(play.now)
    next(steps)
    east.lose()
    found = next(peer for peer in at_once(steps).peers if peer.container == "east")
    assert found.received.deliveries == 2
    assert peer_of(play, "east").received.deliveries == 2


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_every_guarantee_is_told(guarantee: Guarantee) -> None:
    play = Play(Route(address="orders", guarantee=guarantee))
    play.connect("in").attach_receiver("orders", credit=10)
    assert route_of(play).guarantee == guarantee


def test_outcomes_are_counted_apart() -> None:
    play = Play("orders")
    receiver = play.connect("in").attach_receiver("orders", credit=10)
    play.connect("out").attach_sender("orders").send(b"1", b"2", b"3")
    first, second, third = (each.number for each in receiver.received)
    receiver.update(first, state=Rejected())
    receiver.update(second, state=RELEASED)
    receiver.update(third)
    route = route_of(play)
    assert (route.sent.rejected, route.sent.released, route.sent.accepted) == (1, 1, 1)
    assert (route.received.rejected, route.received.released, route.received.accepted) == (1, 1, 1)


def test_the_anonymous_terminus_has_a_record_of_its_own() -> None:
    play = Play("orders")
    play.connect("out").attach_sender(None)
    assert route_of(play, ANONYMOUS).senders == 1


def whole_route(fleet: Fleet, *workers: int, name: str = "#") -> RouteRecord:
    """What the workers of a router tell of a route, added up."""
    whole = merge_cores([survey(fleet[worker]) for worker in workers])
    return next(route for route in whole.routes if route.name == name)


def crossing() -> tuple[Fleet, SenderEnd, ReceiverEnd]:
    """Three deliveries have come in at one worker and gone out at another."""
    fleet = Fleet(2, "#")
    receiver = fleet[1].connect("in").attach_receiver("q")
    receiver.grant(10)
    fleet.settle()
    sender = fleet[2].connect("out").attach_sender("q")
    fleet.settle()
    sender.send(b"a", b"bb", b"ccc")
    fleet.settle()
    return fleet, sender, receiver


def test_what_crosses_from_worker_to_worker_counts_once() -> None:
    fleet, sender, receiver = crossing()
    receiver.accept(receiver.received[0].number)
    fleet.settle()
    route = whole_route(fleet, 1, 2)
    assert (route.senders, route.receivers, route.outgoing_credit) == (1, 1, 7)
    assert route.incoming_credit == sender.credit
    assert (route.incoming_unsettled, route.outgoing_unsettled, sum(route.ages)) == (2, 2, 2)
    assert (route.received.deliveries, route.received.octets, route.received.accepted) == (3, 6, 1)
    assert (route.sent.deliveries, route.sent.octets, route.sent.accepted) == (3, 6, 1)


def test_what_has_crossed_counts_once_when_the_links_between_workers_have_gone() -> None:
    fleet, sender, receiver = crossing()
    receiver.accept()
    fleet.settle()
    before = whole_route(fleet, 1, 2)
    sender.peer.lose()
    receiver.detach()
    fleet.settle()
    fleet.wait(60)
    after = whole_route(fleet, 1, 2)
    assert (after.received, after.sent) == (before.received, before.sent)
    assert (after.received.accepted, after.sent.accepted) == (3, 3)


def test_connections_between_workers_are_nobody_who_dials() -> None:
    fleet = Fleet(3, "#")
    assert [survey(fleet[worker]).connections for worker in (1, 2, 3)] == [0, 0, 0]
    fleet[2].connect("in")
    assert [survey(fleet[worker]).connections for worker in (1, 2, 3)] == [0, 1, 0]
