"""Deciding about deliveries in doubt.

The link to the receiver is suspended by hand here, just as the core leaves it when a peer that
keeps its terminus goes away: without connection, what was sent kept by tag in ``adrift``.
"""

import attrs
import pytest

from router.core import orphans
from router.core.listing import DeliveryRecord, Filter
from router.core.resolve import DISCARDED, Decision
from router.links.link import OutgoingLink
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, Modified
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, InDoubt, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.journaled import Journaled
from tests.support.play import Map, Play, ReceiverEnd, SenderEnd

TAG = DeliveryTag(b"tag-1")


def suspend(play: Play, end: ReceiverEnd) -> OutgoingLink:
    """Takes a receiver's connection away and keeps its terminus."""
    registry = play.core._registry
    link = registry.connections[end.peer.id].outgoing[end.link]
    registry.detach(link)
    node = registry.leave(link)
    assert node is not None
    node.returning.add(link)
    link.credit = link.width = 0
    registry.suspended[link.key] = link
    for pairing in link.unsettled.values():
        link.adrift[pairing.outgoing_tag] = pairing
    link.unsettled.clear()
    end.peer.receives.pop(end.link)
    return link


def in_doubt(play: Play) -> tuple[SenderEnd, OutgoingLink]:
    """One delivery that went out on a link that is suspended."""
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders", name="push")
    sender.send(b"payload", tag=TAG)
    return sender, suspend(play, receiver)


def resolve(play: Play, decision: Decision, link: str | None = None) -> int:
    count, orders = play.core.resolve(TAG, link, decision, play.now)
    play.carry_out(orders)
    return count


def test_a_delivery_in_doubt_is_listed_and_counted_and_nobody_is_told() -> None:
    play = Play("orders")
    sender, _ = in_doubt(play)
    play.wait(7)
    (found,) = play.core.lister.deliveries(Filter(in_doubt=True), 10, None, play.now).deliveries
    assert (found.tag, found.state, found.link) == (TAG.hex(), "in doubt", "push")
    assert (found.to_container, found.age_seconds) == ("sink", 7)
    route = play.core.surveyor.survey(play.now).routes[0]
    assert (route.in_doubt, route.suspended) == (1, 1)
    assert not sender.told


@pytest.mark.parametrize(
    ("decision", "outcome"), [(Decision.ACCEPT, ACCEPTED), (Decision.DISCARD, DISCARDED)]
)
def test_the_sender_hears_what_was_decided(decision: Decision, outcome: object) -> None:
    play = Play("orders")
    sender, link = in_doubt(play)
    assert resolve(play, decision) == 1
    assert list(sender.told.values()) == [[(outcome, True)]]
    assert not link.adrift
    assert play.core.surveyor.survey(play.now).payload_octets == 0


def test_a_delivery_that_is_sent_again_goes_to_the_next_receiver_as_a_further_attempt() -> None:
    play = Play("orders")
    sender, link = in_doubt(play)
    assert resolve(play, Decision.RESEND) == 1
    assert not sender.told
    other = play.connect("other").attach_receiver("orders", credit=10)
    assert other.payloads == [b"payload"]
    assert other.last.delivery_count == 1
    other.accept()
    assert list(sender.told.values()) == [[(ACCEPTED, True)]]
    assert not link.adrift


def test_only_the_named_link_is_meant() -> None:
    play = Play("orders")
    in_doubt(play)
    assert resolve(play, Decision.ACCEPT, link="another") == 0
    assert resolve(play, Decision.ACCEPT, link="push") == 1


def test_what_is_not_in_doubt_is_left_alone() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    sender.send(b"payload", tag=TAG)
    assert resolve(play, Decision.DISCARD) == 0
    assert not sender.told


def test_a_delivery_whose_sender_is_gone_is_let_go() -> None:
    play = Play("orders")
    sender, link = in_doubt(play)
    sender.peer.lose()
    assert resolve(play, Decision.ACCEPT) == 1
    assert not link.adrift
    assert play.core.surveyor.survey(play.now).payload_octets == 0


def test_the_decision_is_noticed() -> None:
    play = Play("orders")
    in_doubt(play)
    resolve(play, Decision.DISCARD)
    (notice,) = [each for each in play.noticed if each.event == "delivery.resolved"]
    assert notice.fields["tag"] == TAG.hex()
    assert notice.fields["condition"] == "discard"


def exactly_once(from_: str | None = None) -> Route:
    return Route(
        address="orders",
        from_=None if from_ is None else Endpoint(from_),
        to=(Endpoint("west"),),
        guarantee=Guarantee.EXACTLY_ONCE,
        in_doubt=InDoubt.HOLD,
    )


def listed(play: Play) -> list[DeliveryRecord]:
    page = play.core.lister.deliveries(Filter(in_doubt=True), 10, None, play.now)
    assert play.core.surveyor.survey(play.now).routes[0].in_doubt == len(page.deliveries)
    return list(page.deliveries)


def decide_each(play: Play) -> None:
    for each in listed(play):
        count, orders = play.core.resolve(
            DeliveryTag(bytes.fromhex(each.tag)), None, Decision.ACCEPT, play.now
        )
        play.carry_out(orders)
        assert count == 1
    assert not listed(play)


def test_what_is_in_doubt_on_a_link_stays_listed_when_its_name_is_used_for_another_address() -> (
    None
):
    route = Route(address="orders.*", guarantee=Guarantee.EXACTLY_ONCE, in_doubt=InDoubt.HOLD)
    play = Play(route)
    for address in ("orders.a", "orders.b", "orders.c"):
        sender = play.connect("source").attach_sender(address, name=address)
        client = play.connect("sink")
        client.attach_receiver(address, name="in", credit=10)
        sender.send(b"payload", tag=b"tag of " + address.encode())
        client.lose()
    assert [each.state for each in listed(play)] == ["in doubt"] * 3
    decide_each(play)


def test_what_is_in_doubt_stays_listed_when_the_container_turns_out_not_to_resume() -> None:
    play = Play(exactly_once())
    sender = play.connect("source").attach_sender("orders", name="push")
    for attachment in range(3):
        west = play.dial("west")
        if attachment:
            west.refuse(Condition(NOT_IMPLEMENTED))
            play.wait(60)
        west.answer_receiver("orders", credit=10)
        sender.send(b"payload")
        west.lose()
        play.wait(60)
    assert [each.state for each in listed(play)] == ["in doubt"] * 3
    decide_each(play)


@pytest.mark.parametrize("unsettled", [None, {}, {DeliveryTag(b"another"): None}])
def test_each_delivery_of_a_source_that_gives_its_tags_out_anew_is_in_doubt_by_itself(
    unsettled: Map | None,
) -> None:
    play = Play(exactly_once(from_="east"))
    for _ in range(3):
        east, west = play.dial("east"), play.dial("west")
        source = east.answer_sender("orders", unsettled=unsettled)
        west.answer_receiver("orders", credit=10)
        source.send(b"payload", tag=TAG)
        west.lose()
        east.lose()
        play.wait(120)
    assert [each.state for each in listed(play)] == ["in doubt"] * 3
    count, orders = play.core.resolve(TAG, None, Decision.DISCARD, play.now)
    play.carry_out(orders)
    assert (count, listed(play)) == (3, [])


@pytest.mark.parametrize("policy", [ExpiryPolicy.SESSION_END, ExpiryPolicy.NEVER])
def test_a_client_that_gives_its_tags_out_anew_meets_no_delivery_of_its_last_life(
    policy: ExpiryPolicy,
) -> None:
    play = Play(exactly_once())
    play.connect("idle").attach_sender("orders")
    west = play.dial("west")
    receiver = west.answer_receiver("orders", credit=10)
    for _ in range(3):
        client = play.connect("client")
        sender = client.attach_sender("orders", name="push", second=True, policy=policy)
        sender.send(b"payload", tag=TAG)  # unlike all that are unsettled, or the peer fails
        client.lose()
    assert len(receiver.unsettled) == 3
    west.lose()
    assert len(listed(play)) == 3


def test_tags_derive_from_the_names_alone_when_nothing_is_left_of_a_lost_sender() -> None:
    play = Play(exactly_once())
    play.connect("idle").attach_sender("orders")
    receiver = play.dial("west").answer_receiver("orders", credit=10)
    for _ in range(2):
        client = play.connect("client")
        client.attach_sender("orders", name="push").send(b"payload", tag=TAG)
        client.lose()
        receiver.accept()
    first, second = receiver.received
    assert first.tag == second.tag


def test_links_that_left_deliveries_behind_are_forgotten_when_these_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphans, "SWEEP_LINKS", 4)
    play = Play(exactly_once())
    play.connect("idle").attach_sender("orders")
    receiver = play.dial("west").answer_receiver("orders", credit=1000)
    for number in range(50):
        client = play.connect("client")
        client.attach_sender("orders", name=f"push{number}").send(b"payload", tag=TAG)
        client.lose()
        receiver.accept()
    assert len(play.core._attacher._orphans._left) <= 5


# Where nobody receives at the moment

RESENDING = Route(
    address="orders", guarantee=Guarantee.EXACTLY_ONCE, in_doubt=InDoubt.RESEND, name="resending"
)
HOLDING = attrs.evolve(RESENDING, in_doubt=InDoubt.HOLD, name="holding")


def lost_receiver(route: Route) -> tuple[Journaled, SenderEnd]:
    """One delivery went to a receiver that has left for good; nobody else receives."""
    play = Journaled(route)
    sink = play.connect("sink")
    sink.attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders", name="push", second=True)
    sender.send(b"payload", tag=TAG)
    play.flush()
    sink.lose()
    play.wait(600)
    play.flush()
    if route.in_doubt is InDoubt.HOLD:
        assert resolve(play, Decision.RESEND) == 1
        play.flush()
    return play, sender


@pytest.mark.parametrize("unroutable", [Unroutable.RELEASE, Unroutable.REJECT, Unroutable.HOLD])
@pytest.mark.parametrize("route", [RESENDING, HOLDING], ids=lambda route: route.name)
def test_what_is_sent_again_waits_for_a_receiver_and_its_sender_is_not_bothered(
    route: Route, unroutable: Unroutable
) -> None:
    play, sender = lost_receiver(attrs.evolve(route, unroutable=unroutable))
    assert not sender.told
    late = play.connect("late").attach_receiver("orders", credit=10)
    play.flush()
    assert late.payloads == [b"payload"]
    assert late.last.delivery_count == 1
    late.accept()
    play.flush()
    assert [told for told, _ in next(iter(sender.told.values()))] == [ACCEPTED]


def test_what_is_sent_again_waits_though_unroutable_messages_go_to_dead_letters() -> None:
    route = attrs.evolve(
        RESENDING, unroutable=Unroutable.DEAD_LETTER, dead_letter=Endpoint("graveyard")
    )
    play, sender = lost_receiver(route)
    graveyard = play.dial("graveyard")
    assert not graveyard.receives
    assert not sender.told
    late = play.connect("late").attach_receiver("orders", credit=10)
    play.flush()
    assert late.payloads == [b"payload"]


def test_a_receiver_that_returns_what_was_sent_again_answers_its_sender() -> None:
    play, sender = lost_receiver(RESENDING)
    late = play.connect("late").attach_receiver("orders", credit=10)
    play.flush()
    late.update(*late.unsettled, state=Modified(delivery_failed=True))
    play.flush()
    (told,) = sender.told.values()
    assert isinstance(told[0][0], Modified)


@pytest.mark.parametrize("route", [RESENDING, HOLDING], ids=lambda route: route.name)
def test_what_is_sent_again_waits_for_a_receiver_after_a_restart_too(route: Route) -> None:
    play, _ = lost_receiver(route)
    after = play.crash()
    back = after.connect("source").attach_sender(
        "orders", name="push", second=True, unsettled={TAG: None}
    )
    after.wait(600)
    after.flush()
    assert not back.told
    late = after.connect("late").attach_receiver("orders", credit=10)
    after.flush()
    assert late.payloads == [b"payload"]
    assert late.last.delivery_count == 1


def test_what_is_sent_again_waits_for_a_receiver_when_its_sender_is_at_another_worker() -> None:
    fleet = Fleet(2, HOLDING)
    sink = fleet[2].connect("sink")
    sink.attach_receiver("orders", credit=10)
    fleet.settle()
    sender = fleet[2].connect("source").attach_sender("orders", name="push", second=True)
    fleet.settle()
    sender.send(b"payload", tag=TAG)
    fleet.settle()
    sink.lose()
    fleet.wait(600)
    assert resolve(fleet[1], Decision.RESEND) == 1
    fleet.settle()
    assert not sender.told
    late = fleet[1].connect("late").attach_receiver("orders", credit=10)
    fleet.settle()
    assert late.payloads == [b"payload"]
