"""Targets that refuse what was pulled from a container that is away meanwhile.

A refused delivery is tried again, as the route says, whether its source is connected or not. What
the source has settled is nobody else's: it is never dropped because the source has gone.
"""

import attrs
import pytest

from router.model.condition import NOT_FOUND, Condition
from router.model.outcome import ACCEPTED, RELEASED, Outcome, Rejected
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from router.routes.table import RoutingTable
from tests.core.test_pulls import BRIDGE, BROKER, DIRECT, NO_BINDING, TERMS
from tests.support.journaled import Journaled
from tests.support.play import RESUMING, Peer, Play, ReceiverEnd, SenderEnd

PLAIN = Route(address="q", from_=Endpoint("east", "q"), to=(Endpoint("west", "q"),))
EXACT = attrs.evolve(PLAIN, guarantee=Guarantee.EXACTLY_ONCE)
KEEPING = attrs.evolve(RESUMING, releases_unroutable=False)


def both(route: Route) -> tuple[Play, Peer, SenderEnd, ReceiverEnd]:
    """A play with both ends of a bridge attached."""
    play = Play(route, terms=TERMS, random=lambda: 1.0)
    east = play.dial("east", capabilities=BROKER)
    west = play.dial("west", capabilities=BROKER)
    return play, east, east.answer_sender(), west.answer_receiver(credit=100)


def refuse(target: ReceiverEnd, outcome: Outcome = NO_BINDING) -> None:
    target.update(*tuple(target.unsettled), state=outcome)


@pytest.mark.parametrize("outcome", [NO_BINDING, RELEASED])
@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("route", [PLAIN, BRIDGE])
def test_what_the_source_has_settled_is_tried_again_however_often_its_target_refuses_it(
    route: Route, comes_back: bool, outcome: Outcome
) -> None:
    play, east, source, target = both(route)
    source.send("a", address="prices/eu" if route is BRIDGE else None, settled=True)
    east.lose()
    if comes_back:
        play.dial("east", capabilities=BROKER).answer_sender()
    for pause in (1, 2, 4, 8, 16, 30, 30):
        refuse(target, outcome)
        assert not target.unsettled
        play.wait(pause + 0.01)
        assert len(target.unsettled) == 1
    target.accept()
    play.wait(60)
    assert set(target.payloads) == {b"a"}
    assert play.core._registry.process.used == 0
    assert "delivery.dropped" not in play.events()


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("outcome", [NO_BINDING, RELEASED])
@pytest.mark.parametrize("pauses", [(1,), (1, 2)])
@pytest.mark.parametrize("lost_first", [False, True])
def test_nothing_is_looked_after_any_more_when_a_target_has_taken_what_it_refused(
    lost_first: bool, pauses: tuple[int, ...], outcome: Outcome, settled: bool
) -> None:
    """Its source settled it before there was an outcome, so that none was awaited."""
    play, east, source, target = both(PLAIN)
    (number,) = source.send("a")
    source.settle(number)
    if lost_first:
        east.lose()
    for pause in pauses:
        refuse(target, outcome)
        play.wait(pause + 0.01)
    if not lost_first:
        east.lose()
    target.update(*tuple(target.unsettled), state=ACCEPTED, settled=settled)
    play.wait(60)
    assert not play.core._postponer._shelves
    play.carry_out(play.core.configure(RoutingTable([]), play.now))
    target.peer.lose()
    play.wait(1000)
    assert play.core.deadline is None


def test_what_was_pulled_stays_that_when_a_reload_names_another_source() -> None:
    play, _, source, target = both(PLAIN)
    source.send("a", settled=True)
    other = RoutingTable([attrs.evolve(PLAIN, from_=Endpoint("west", "other"))])
    play.carry_out(play.core.configure(other, play.now))
    for pause in (1, 2):
        refuse(target)
        play.wait(pause + 0.01)
    target.accept()
    assert target.payloads == [b"a"] * 3


@pytest.mark.parametrize("waits", [0.0, 30.0])
@pytest.mark.parametrize("passers_by", [0, 1, 2])
def test_what_the_source_has_settled_waits_for_a_receiver_though_the_source_is_gone(
    waits: float, passers_by: int
) -> None:
    play = Play(DIRECT, terms=TERMS)
    east = play.dial("east", capabilities=BROKER)
    east.answer_sender("prices/#").send("a", address="prices/eu", settled=True)
    east.lose()
    play.wait(waits)
    for _ in range(passers_by):
        play.connect().attach_receiver("prices/eu").peer.lose()
        play.wait(waits)
    late = play.connect().attach_receiver("prices/eu", credit=10)
    play.wait(60)
    assert late.payloads == [b"a"]


def test_what_the_source_will_deliver_again_is_freed_when_a_target_refuses_it() -> None:
    play, east, source, target = both(PLAIN)
    source.send("a")
    east.lose()
    refuse(target)
    assert play.core._registry.process.used == 0
    play.wait(60)
    assert target.payloads == [b"a"]


@pytest.mark.parametrize("outcome", [NO_BINDING, RELEASED])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_source_that_resumes_is_not_told_that_a_target_refused_meanwhile(
    crashes: bool, outcome: Outcome
) -> None:
    """The outcome would end the delivery at the source."""
    play = Journaled(EXACT)
    source = play.dial("east", capabilities=KEEPING).answer_sender()
    target = play.dial("west", capabilities=KEEPING).answer_receiver(credit=10)
    assert isinstance(target, ReceiverEnd)
    (number,) = source.send("a", tag=b"t")
    play.flush()
    tag = target.last.tag
    if crashes:
        play = play.crash()
        west = play.dial("west", capabilities=KEEPING)
        again = west.answer(unsettled={tag: None})
        assert isinstance(again, ReceiverEnd)
        target = again
        target.grant(10)
    else:
        source.peer.lose()
    assert list(target.unsettled.values()) == [tag]
    refuse(target, outcome)
    play.flush()
    play.wait(1.01)
    play.flush()
    east = play.dial("east", capabilities=KEEPING)
    play.flush()
    (asked,) = east.asked.values()
    assert not any(isinstance(state, Rejected) for state in (asked.unsettled or {}).values())
    back = east.answer_sender(unsettled={b"t": None})
    (number,) = back.send("a", tag=b"t", resume=True)
    play.wait(5)
    play.flush()
    target.update(*tuple(target.unsettled), state=ACCEPTED, settled=False)
    play.flush()
    assert back.outcome(number) == (ACCEPTED, False)


def test_what_is_in_custody_after_a_crash_is_tried_again_when_its_target_refuses_it() -> None:
    play = Journaled(EXACT)
    source = play.dial("east", capabilities=KEEPING).answer_sender()
    source.send("a", settled=True)
    play.flush()
    play = play.crash()
    west = play.dial("west", capabilities=KEEPING)
    target = west.answer_receiver(credit=10)
    play.flush()
    for pause in (60, 2):  # other receivers may come back after the crash
        assert target.payloads[-1] == b"a"
        refuse(target)
        play.wait(pause + 1.01)
        play.flush()
    assert len(target.unsettled) == 1


def test_one_target_of_a_multicast_that_refuses_gets_it_again_though_the_source_is_gone() -> None:
    route = attrs.evolve(
        PLAIN,
        to=(Endpoint("west", "q"), Endpoint("east", "copies")),
        distribution=Distribution.MULTICAST,
    )
    play = Play(route, random=lambda: 1.0)
    east = play.dial("east", capabilities=BROKER)
    source = east.answer_sender()
    east.answer_receiver(credit=10)
    target = play.dial("west", capabilities=BROKER).answer_receiver(credit=10)
    source.send("a", settled=True)
    east.lose()
    for pause in (1, 2):
        refuse(target)
        play.wait(pause + 0.01)
    assert target.payloads == [b"a"] * 3


@pytest.mark.parametrize("policy", [Unroutable.DROP, Unroutable.REJECT])
def test_a_route_that_drops_or_rejects_does_so_though_the_source_is_gone(
    policy: Unroutable,
) -> None:
    play, east, source, target = both(attrs.evolve(PLAIN, unroutable=policy))
    source.send("a", settled=True)
    east.lose()
    refuse(target, Rejected(Condition(NOT_FOUND)))
    play.wait(60)
    assert target.payloads == [b"a"]
    assert play.core._registry.process.used == 0
