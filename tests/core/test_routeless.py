"""A route is taken out of the file while deliveries are unsettled, and comes back."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from router.core.listing import Filter
from router.core.resolve import Decision
from router.model.condition import NOT_FOUND, RESOURCE_DELETED
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, RELEASED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Distribution, Endpoint, InDoubt, Route
from tests.support.journaled import EXACT, Journaled
from tests.support.play import Map, Peer, ReceiverEnd, SenderEnd, table

KEPT: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
BRIDGE = attrs.evolve(EXACT, from_=Endpoint("west"), to=(Endpoint("east"),))
TAGS = [DeliveryTag(b"%d" % number) for number in range(5)]


def sender(peer: Peer, **fields: Any) -> SenderEnd:
    return peer.attach_sender(**{"name": "out", "second": True, **KEPT, **fields})


def receiver(peer: Peer, **fields: Any) -> ReceiverEnd:
    asked = {"name": "in", "second": True, "credit": 10, **KEPT, **fields}
    return peer.attach_receiver(**asked)


def reload(play: Journaled, *routes: Route | str) -> None:
    play.routes = routes
    play.carry_out(play.core.configure(table(*routes), play.now))


def send(end: SenderEnd, *tags: DeliveryTag) -> None:
    run = [end.delivery(b"body " + tag, tag) for tag in tags]
    end.peer.happens(end.run(run))


def listed(play: Journaled, *, in_doubt: bool = False) -> list[tuple[str, str]]:
    page = play.core.lister.deliveries(Filter(in_doubt=in_doubt), 100, None, play.now)
    return [(bytes.fromhex(record.tag).decode(), record.state) for record in page.deliveries]


def five() -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    """Two are at the receiver, one is answered and not settled, two wait."""
    play = Journaled(EXACT, "other")
    receiving = receiver(play.connect("east"), credit=3)
    sending = sender(play.connect("west"))
    sending.credit = 5
    send(sending, *TAGS)
    play.flush()
    receiving.update(receiving.received[0].number, settled=False)
    play.flush()
    return play, sending, receiving


def test_a_reload_that_takes_a_route_away_says_how_many_deliveries_are_unsettled() -> None:
    play, sending, receiving = five()
    reload(play, "other")
    assert play.core.kept == {"orders": 5}
    (ended,) = [notice for notice in play.noticed if notice.event == "node.ended"]
    assert ended.fields["unsettled"] == 5
    for end in (sending, receiving):
        assert end.detached is not None
        assert not end.detached.closed
        assert end.detached.condition is not None
        assert end.detached.condition.name == RESOURCE_DELETED


Step = Callable[[Journaled], Journaled]


def crash(play: Journaled) -> Journaled:
    return play.crash()


def stay(play: Journaled) -> Journaled:
    return play


def come_back(
    play: Journaled, map_of_sender: Map, map_of_receiver: Map
) -> tuple[SenderEnd, ReceiverEnd]:
    back = sender(play.connect("west"), unsettled=map_of_sender)
    again = receiver(play.connect("east"), unsettled=map_of_receiver)
    play.flush()
    return back, again


@pytest.mark.parametrize("first", [stay, crash])
@pytest.mark.parametrize("second", [stay, crash])
@pytest.mark.parametrize("third", [stay, crash])
def test_what_was_unsettled_goes_on_when_the_route_is_back(
    first: Step, second: Step, third: Step
) -> None:
    play, _, receiving = five()
    tags = [delivery.tag for delivery in receiving.received]
    play = first(play)
    reload(play, "other")
    assert {tag for tag, _ in listed(play)} == {"0", "1", "2", "3", "4"}
    assert {tag for tag, _ in listed(play, in_doubt=True)} == {"1", "2"}
    play.wait(4000)  # longer than any terminus is kept
    play = second(play)
    assert {tag for tag, _ in listed(play)} == {"0", "1", "2", "3", "4"}
    assert {tag for tag, _ in listed(play, in_doubt=True)} == {"1", "2"}
    assert len(play.remembered()) == 5
    reload(play, EXACT, "other")
    play = third(play)
    back, again = come_back(
        play, dict.fromkeys(TAGS), {tags[0]: ACCEPTED, tags[1]: ACCEPTED, tags[2]: None}
    )
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert set(back.attach.unsettled) == set(TAGS)
    assert back.attach.unsettled[TAGS[0]] == ACCEPTED
    bodies = [each.payload for each in again.received if not each.resume]
    assert sorted(bodies) == [b"body 3", b"body 4"]
    assert [each.tag for each in again.received if each.resume and each.payload] == [tags[2]]
    resumed = [back.delivery(b"body " + tag, tag, resume=True) for tag in TAGS]
    back.peer.happens(back.run(resumed))
    again.update(*again.unsettled, settled=False)
    play.flush()
    assert [back.outcome(each.number) for each in resumed] == [(ACCEPTED, False)] * 5
    back.settle(*[each.number for each in resumed])
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0
    send(back, DeliveryTag(b"new"))
    play.flush()
    assert again.last.payload == b"body new"


@pytest.mark.parametrize("step", [stay, crash])
def test_nobody_attaches_while_there_is_no_route(step: Step) -> None:
    play, _, receiving = five()
    reload(play, "other")
    play = step(play)
    for fields in ({}, {"unsettled": dict.fromkeys(TAGS)}, {"name": "another"}):
        back = sender(play.connect("west"), **fields)
        assert back.refused is not None
        assert back.refused.name == NOT_FOUND
    for fields in ({}, {"unsettled": {receiving.received[0].tag: None}}, {"name": "another"}):
        again = receiver(play.connect("east"), **fields)
        assert again.refused is not None
        assert again.refused.name == NOT_FOUND
    assert len(play.remembered()) == 5
    assert len(listed(play)) == 5


@pytest.mark.parametrize("step", [stay, crash])
def test_a_person_decides_what_is_in_doubt_without_a_route(step: Step) -> None:
    play, _, receiving = five()
    reload(play, "other")
    play = step(play)
    for tag, decision in ((TAGS[1], Decision.ACCEPT), (TAGS[2], Decision.RESEND)):
        count, orders = play.core.resolve(tag, None, decision, play.now)
        play.carry_out(orders)
        assert count == 1
    play.flush()
    play.wait(4000)
    play = step(play)
    assert listed(play, in_doubt=True) == []
    assert dict(listed(play)) == {
        **{"0": "answered", "1": "answered"},
        **{"2": "queued", "3": "queued", "4": "queued"},
    }
    reload(play, EXACT)
    back, again = come_back(play, dict.fromkeys(TAGS), {receiving.received[0].tag: ACCEPTED})
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert back.attach.unsettled[TAGS[1]] == ACCEPTED
    assert sorted(each.payload[-6:] for each in again.received if not each.resume) == [
        b"body 2",
        b"body 3",
        b"body 4",
    ]


def test_what_its_sender_forgets_meanwhile_stays_in_doubt_at_the_receiver() -> None:
    play, sending, receiving = five()
    tags = [delivery.tag for delivery in receiving.received]
    reload(play, "other")
    sending.peer.lose()
    reload(play, EXACT)
    come_back(play, {}, dict.fromkeys(tags[1:], ACCEPTED))
    play.wait(10)
    play.flush()
    assert listed(play, in_doubt=True) == []


@pytest.mark.parametrize("step", [stay, crash])
def test_links_expire_again_when_the_route_is_back(step: Step) -> None:
    play, _, _ = five()
    reload(play, "other")
    reload(play, EXACT)
    play = step(play)
    play.wait(299)
    assert len(play.core._registry.suspended) == 2
    play.wait(2)
    assert {link.key.name for link in play.core._registry.suspended.values()} == {"in"}  # held
    assert {tag for tag, _ in listed(play, in_doubt=True)} == {"1", "2"}


@pytest.mark.parametrize("step", [stay, crash])
def test_peers_that_were_away_already_find_all_when_the_route_is_back(step: Step) -> None:
    play, sending, receiving = five()
    sending.peer.lose()
    receiving.peer.lose()
    play.wait(100)
    reload(play, "other")
    assert play.core.kept == {"orders": 5}
    play = step(play)
    play.wait(1000)
    reload(play, EXACT)
    maps = {delivery.tag: ACCEPTED for delivery in receiving.received}
    back, again = come_back(play, dict.fromkeys(TAGS), dict(maps))
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert set(back.attach.unsettled) == set(TAGS)
    assert sorted(each.payload for each in again.received if not each.resume) == [
        b"body 3",
        b"body 4",
    ]


@pytest.mark.parametrize("step", [stay, crash])
def test_receivers_that_do_not_resume_leave_in_doubt_what_they_had(step: Step) -> None:
    play = Journaled(EXACT)
    receiving = play.connect("east").attach_receiver(credit=2)
    sending = sender(play.connect("west"))
    sending.credit = 3
    send(sending, *TAGS[:3])
    play.flush()
    reload(play)
    assert receiving.detached is not None
    assert receiving.detached.closed
    assert play.core.kept == {"orders": 3}
    play = step(play)
    play.wait(4000)
    assert {tag for tag, _ in listed(play, in_doubt=True)} == {"0", "1"}
    reload(play, EXACT)
    play.wait(1)
    other = play.connect("north").attach_receiver(name="other", credit=5)
    play.flush()
    assert other.payloads == [b"body 2"]
    assert {tag for tag, _ in listed(play, in_doubt=True)} == {"0", "1"}


@pytest.mark.parametrize("first", [stay, crash])
@pytest.mark.parametrize("second", [stay, crash])
def test_a_bridge_goes_on_with_both_containers(first: Step, second: Step) -> None:
    play = Journaled(BRIDGE)
    target = play.dial("east").answer_receiver("orders", credit=3)
    source = play.dial("west").answer_sender("orders")
    send(source, *TAGS[:4])
    play.flush()
    target.update(target.received[0].number, settled=False)
    play.flush()
    tags = [delivery.tag for delivery in target.received]
    reload(play)
    assert play.core.kept == {"orders": 4}
    for end in (source, target):
        assert end.detached is not None
        assert not end.detached.closed
    play = first(play)
    play.wait(5000)
    east, west = play.dial("east"), play.dial("west")
    assert not east.asked
    assert not west.asked
    assert {tag for tag, _ in listed(play)} == {"0", "1", "2", "3"}
    reload(play, BRIDGE)
    play = second(play)
    east, west = play.dial("east"), play.dial("west")
    (asked,) = west.asked.values()
    assert asked.unsettled is not None
    assert set(asked.unsettled) == set(TAGS[:4])
    back = west.answer_sender("orders", unsettled=dict.fromkeys(TAGS[:4]))
    (asked,) = east.asked.values()
    assert asked.unsettled is not None
    assert set(asked.unsettled) == set(tags)
    end = east.answer("orders", unsettled=dict.fromkeys(tags, ACCEPTED))
    assert isinstance(end, ReceiverEnd)
    end.grant(5)
    resumed = [back.delivery(b"", tag, resume=True) for tag in TAGS[:4]]
    back.peer.happens(back.run(resumed))
    play.flush()
    assert [each.payload for each in end.received if not each.resume] == [b"body 3"]
    assert [back.outcome(each.number) for each in resumed[:3]] == [(ACCEPTED, False)] * 3


def test_a_target_that_is_away_when_its_route_goes_is_resumed_later() -> None:
    route = attrs.evolve(EXACT, to=(Endpoint("east"),))
    play = Journaled(route)
    sending = sender(play.connect("west"))
    target = play.dial("east").answer_receiver("orders", credit=3)
    send(sending, *TAGS[:2])
    play.flush()
    tags = [delivery.tag for delivery in target.received]
    target.peer.lose()
    reload(play)
    play.wait(1000)
    reload(play, route)
    east = play.dial("east")
    (asked,) = east.asked.values()
    assert asked.unsettled is not None
    assert set(asked.unsettled) == set(tags)


@pytest.mark.parametrize("step", [stay, crash])
def test_a_sender_to_any_address_stays_attached_and_goes_on(step: Step) -> None:
    play = Journaled(EXACT, "other")
    receiving = receiver(play.connect("east"), credit=1)
    sending = sender(play.connect("west"), address=None)
    numbers = sending.send("one", "two", address="orders")
    play.flush()
    reload(play, "other")
    assert play.core.kept == {"orders": 2}
    assert sending.detached is None
    (refused,) = sending.send("three", address="orders")
    outcome = sending.outcome(refused)
    assert outcome is not None
    assert outcome[0] not in (None, ACCEPTED, RELEASED)
    play = step(play)
    play.wait(100)
    assert len(listed(play)) >= 2
    reload(play, EXACT, "other")
    again = receiver(play.connect("east"), unsettled={receiving.last.tag: ACCEPTED})
    play.flush()
    assert [each.payload for each in again.received if not each.resume] == [b"two"]
    if step is stay:
        play.flush()
        assert sending.outcome(numbers[0]) == (ACCEPTED, False)
        sending.send("four", address="orders")
        play.flush()
        assert again.last.payload == b"four"


def test_another_route_of_the_address_goes_on_at_once() -> None:
    play, _, receiving = five()
    reload(play, attrs.evolve(EXACT, address="#"))
    assert play.core.kept == {}
    assert receiving.detached is None
    receiving.grant(5)
    play.flush()
    assert receiving.payloads[3:] == [b"body 3", b"body 4"]


def test_a_route_that_leads_the_other_way_round_goes_on_with_what_is_here() -> None:
    play, _, receiving = five()
    tags = [delivery.tag for delivery in receiving.received]
    reload(play, attrs.evolve(EXACT, to=(Endpoint("north"),)))
    assert play.core.kept == {"orders": 5}
    north = play.dial("north").answer_receiver("orders", credit=9)
    play.flush()
    assert north.payloads == [b"body 3", b"body 4"]
    back = sender(play.connect("west"), unsettled=dict.fromkeys(TAGS))
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert set(back.attach.unsettled) == set(TAGS)
    again = receiver(play.connect("east"), unsettled=dict.fromkeys(tags, ACCEPTED))
    resumed = [back.delivery(b"", tag, resume=True) for tag in TAGS]
    back.peer.happens(back.run(resumed))
    play.flush()
    assert [each.payload for each in again.received if not each.resume] == []
    assert [back.outcome(each.number) for each in resumed[:3]] == [(ACCEPTED, False)] * 3
    send(back, DeliveryTag(b"new"))
    play.flush()
    assert north.last.payload == b"body new"


def test_a_multicast_goes_on_at_the_receivers_that_had_not_answered() -> None:
    route = attrs.evolve(EXACT, distribution=Distribution.MULTICAST)
    play = Journaled(route)
    ends = [receiver(play.connect(f"east{number}")) for number in range(2)]
    sending = sender(play.connect("west"))
    send(sending, TAGS[0])
    play.flush()
    ends[0].update(*ends[0].unsettled)
    reload(play)
    assert play.core.kept == {"orders": 1}
    play = play.crash()
    reload(play, route)
    back = sender(play.connect("west"), unsettled={TAGS[0]: None})
    again = receiver(play.connect("east1"), unsettled={ends[1].last.tag: ACCEPTED})
    (resumed,) = [back.delivery(b"", TAGS[0], resume=True)]
    back.peer.happens(back.run([resumed]))
    play.flush()
    assert [each.payload for each in again.received] == [b""]
    assert back.outcome(resumed.number) == (ACCEPTED, False)


@pytest.mark.parametrize("step", [stay, crash])
def test_a_sender_that_redelivers_brings_again_what_it_did_not_hear(step: Step) -> None:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"), credit=1)
    sending = play.connect("west").attach_sender(name="out")
    sending.credit = 2
    sending.send("id=1 one", "id=2 two")
    play.flush()
    tag = receiving.last.tag
    reload(play)
    play = step(play)
    reload(play, EXACT)
    back = play.connect("west").attach_sender(name="out")
    again = receiver(play.connect("east"), unsettled={tag: ACCEPTED})
    numbers = back.send("id=1 one", "id=2 two")
    play.flush()
    assert [each.payload for each in again.received if not each.resume] == [b"id=2 two"]
    assert back.outcome(numbers[0]) == (ACCEPTED, True)


def test_routes_that_promise_less_end_what_is_unsettled() -> None:
    play = Journaled("orders")
    receiving = receiver(play.connect("east"), credit=1)
    sending = sender(play.connect("west"))
    sending.credit = 2
    numbers = sending.send("one", "two")
    reload(play)
    assert play.core.kept == {}
    assert receiving.detached is not None
    assert receiving.detached.closed
    assert sending.detached is not None
    assert sending.detached.closed
    assert numbers
    assert not play.core._registry.nodes


def test_a_route_with_nothing_unsettled_leaves_nothing() -> None:
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"))
    sending = sender(play.connect("west"))
    reload(play)
    for end in (sending, receiving):
        assert end.detached is not None
        assert end.detached.closed
    assert play.core.kept == {}
    assert not play.core._registry.nodes


@pytest.mark.parametrize("step", [stay, crash])
def test_a_route_that_comes_back_with_resend_sends_again_what_is_in_doubt(step: Step) -> None:
    play = Journaled(EXACT)
    play.connect("east").attach_receiver(credit=1)
    sending = sender(play.connect("west"))
    send(sending, TAGS[0])
    play.flush()
    reload(play)
    play = step(play)
    play.wait(1000)
    reload(play, attrs.evolve(EXACT, in_doubt=InDoubt.RESEND))
    other = play.connect("north").attach_receiver(credit=1)
    play.wait(1)
    play.flush()
    assert [each.payload for each in other.received] == [b"body 0"]
    assert other.last.delivery_count == 1
