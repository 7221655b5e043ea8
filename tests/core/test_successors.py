"""The place of a container turns out to be another container (§2.6.1).

A link belongs to a pair of containers: what is unsettled between this router and one of them is
never told to another, or compared with what another has.
"""

import attrs
import pytest

from router.core.listing import Filter
from router.core.settings import CoreSettings
from router.model.capabilities import Capabilities
from router.model.condition import LINK_REDIRECT, NOT_IMPLEMENTED, Condition
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, DeliveryState
from router.model.place import Alternative
from router.model.terminus import ExpiryPolicy
from router.routes.route import Distribution, Endpoint, Guarantee, InDoubt, Route
from tests.support.journaled import Journaled
from tests.support.play import AMQP, RESUMING, Peer, Play, ReceiverEnd, SenderEnd

Map = dict[DeliveryTag, DeliveryState | None]

TO_EAST = Route(address="orders", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE)
FROM_EAST = Route(address="orders", from_=Endpoint("east"), guarantee=Guarantee.EXACTLY_ONCE)
T0, T1 = DeliveryTag(b"t0"), DeliveryTag(b"t1")


def reach(play: Play, container: str, capabilities: Capabilities = AMQP) -> Peer:
    """The place of ``east`` has been dialed, and is a container."""
    return play.connect(container, capabilities=capabilities, dialed="east")


def sender(play: Play, unsettled: Map | None = None, *, second: bool = True) -> SenderEnd:
    return play.connect("app").attach_sender(
        name="out",
        second=second,
        unsettled=unsettled,
        seconds=300,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
    )


def receiver(play: Play, *, second: bool = True) -> ReceiverEnd:
    return play.connect("shop").attach_receiver(
        name="in", second=second, seconds=300, credit=10, policy=ExpiryPolicy.CONNECTION_CLOSE
    )


def asked_map(peer: Peer) -> Map | None:
    (asked,) = peer.asked.values()
    return None if asked.unsettled is None else dict(asked.unsettled)


def answer(peer: Peer, theirs: Map | None) -> ReceiverEnd:
    end = peer.answer(unsettled=theirs)
    assert isinstance(end, ReceiverEnd)
    end.grant(9)
    return end


def doubts(play: Play) -> list[str | None]:
    """The containers that deliveries in doubt were sent to."""
    page = play.core.lister.deliveries(Filter(in_doubt=True), 100, None, play.now)
    return [each.to_container for each in page.deliveries]


def sent_to_a(play: Play, *payloads: str) -> tuple[SenderEnd, list[DeliveryNumber], Map]:
    """What was sent to the container A, which is lost before it answers."""
    here = sender(play)
    a = reach(play, "A")
    target = answer(a, None)
    numbers = here.send(*payloads)
    play.pass_on()
    assert len(target.received) == len(payloads)
    a.lose()
    return here, list(numbers), dict.fromkeys(each.tag for each in target.received)


# Where the router sends


@pytest.mark.parametrize("theirs", [None, {}])
def test_what_one_container_may_have_is_never_sent_to_another(theirs: Map | None) -> None:
    play = Play(TO_EAST)
    here, numbers, _ = sent_to_a(play, "x")
    b = reach(play, "B")
    assert asked_map(b) is None
    end = answer(b, theirs)
    play.wait(1000)
    assert not end.received
    assert here.outcome(numbers[0]) is None
    assert doubts(play) == ["A"]
    here.send("y")
    assert end.payloads == [b"y"]


def test_what_is_in_doubt_with_a_container_is_resolved_when_it_is_back() -> None:
    play = Play(TO_EAST)
    here, numbers, told = sent_to_a(play, "x", "y")
    b = reach(play, "B")
    answer(b, {})
    b.lose()
    a = reach(play, "A")
    assert asked_map(a) == told
    first = next(iter(told))
    back = answer(a, {first: ACCEPTED})
    assert here.outcome(numbers[0]) == (ACCEPTED, False)
    assert back.payloads == [b"", b"y"]  # it does not have the second one
    back.update(back.last.number, settled=False)
    assert here.outcome(numbers[1]) == (ACCEPTED, False)
    assert not doubts(play)


def test_each_container_of_a_place_has_a_map_of_its_own() -> None:
    play = Play(TO_EAST)
    here, numbers, of_a = sent_to_a(play, "x")
    b = reach(play, "B")
    target = answer(b, {})
    numbers += here.send("y")
    of_b: Map = {target.last.tag: None}
    b.lose()
    for container, told in (("A", of_a), ("B", of_b), ("A", of_a)):
        peer = reach(play, container)
        assert asked_map(peer) == told
        peer.lose()
    answer(reach(play, "B"), dict.fromkeys(of_b, ACCEPTED)).peer.lose()
    answer(reach(play, "A"), dict.fromkeys(of_a, ACCEPTED))
    assert [here.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 2


def test_tags_are_told_apart_by_their_containers() -> None:
    play = Play(TO_EAST)
    here, numbers, told = sent_to_a(play, "x")
    answer(reach(play, "B"), dict.fromkeys(told, ACCEPTED))
    assert here.outcome(numbers[0]) is None
    assert doubts(play) == ["A"]


def test_at_least_once_counts_a_failed_attempt_when_another_container_is_there() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    here = sender(play, second=False)
    a = reach(play, "A", RESUMING)
    assert answer(a, None).received == []
    (number,) = here.send("x")
    a.lose()
    b = reach(play, "B", RESUMING)
    assert asked_map(b) is None
    end = answer(b, {})
    play.wait(1)
    assert end.payloads == [b"x"]
    assert end.last.delivery_count == 1
    end.accept()
    assert here.outcome(number) == (ACCEPTED, True)


def test_what_may_be_sent_twice_is_sent_again_to_another_container() -> None:
    play = Play(attrs.evolve(TO_EAST, in_doubt=InDoubt.RESEND))
    here, numbers, _ = sent_to_a(play, "x")
    end = answer(reach(play, "B"), {})
    play.wait(1)
    assert end.payloads == [b"x"]
    assert end.last.delivery_count == 1
    end.update(end.last.number, settled=False)
    assert here.outcome(numbers[0]) == (ACCEPTED, False)


def test_a_multicast_waits_no_longer_for_a_container_whose_place_is_another() -> None:
    route = Route(
        address="orders",
        to=(Endpoint("east"), Endpoint("west")),
        distribution=Distribution.MULTICAST,
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    play = Play(route)
    west = play.dial("west")
    here = sender(play)
    there = answer(west, None)
    a = reach(play, "A")
    answer(a, None)
    here.send("x")
    a.lose()
    end = answer(reach(play, "B"), {})
    here.send("y")
    assert there.payloads == [b"x", b"y"]
    assert end.payloads == [b"y"]
    assert doubts(play) == ["A"]


def test_a_container_that_refuses_maps_says_nothing_of_its_successor() -> None:
    play = Play(TO_EAST)
    sent_to_a(play, "x")
    a = reach(play, "A")
    a.refuse(Condition(NOT_IMPLEMENTED))
    a.lose()
    b = reach(play, "B")
    answer(b, None)
    here = next(iter(play.peers.values())).sends
    next(iter(here.values())).send("y")
    b.lose()
    assert asked_map(reach(play, "B")) is not None


def test_a_container_that_is_back_is_told_that_nothing_is_unsettled() -> None:
    play = Play(TO_EAST)
    sender(play)
    for container in ("A", "B"):
        peer = reach(play, container)
        assert asked_map(peer) is None
        answer(peer, None)
        peer.lose()
    assert asked_map(reach(play, "A")) == {}


def test_containers_that_are_new_each_time_leave_nothing() -> None:
    play = Play(TO_EAST)
    here = sender(play)
    for number in range(50):
        peer = reach(play, f"random-{number}")
        assert asked_map(peer) is None
        end = answer(peer, None)
        here.send("x")
        end.accept()
        peer.lose()
    assert not play.core._registry.absent()


def test_a_redirect_to_another_container_leaves_the_map_at_the_first() -> None:
    play = Play(TO_EAST)

    def divert(connection: str, other: Alternative) -> str:
        return f"east@{other.host}:5672"

    play.core.redirects.divert = divert
    here = sender(play)
    a = reach(play, "A")
    target = answer(a, None)
    (number,) = here.send("x")
    target.detach(False, Condition(LINK_REDIRECT, "there", {"network-host": "other"}))
    b = play.connect("B", dialed="east@other:5672")
    assert asked_map(b) is None
    end = answer(b, {})
    here.send("y")
    assert end.payloads == [b"y"]
    play.wait(1)
    assert doubts(play) == ["A"]
    end.detach()
    play.wait(10)
    assert asked_map(a) == {target.last.tag: None}
    answer(a, {target.last.tag: ACCEPTED})
    assert here.outcome(number) == (ACCEPTED, False)


# Where the router receives


def received_from_a(play: Play) -> tuple[ReceiverEnd, Peer]:
    there = receiver(play)
    a = reach(play, "A")
    a.answer_sender().send("x", tag=T0)
    play.pass_on()
    assert there.payloads == [b"x"]
    a.lose()
    return there, a


def test_tags_of_another_container_are_deliveries_of_their_own() -> None:
    play = Play(FROM_EAST)
    there, _ = received_from_a(play)
    b = reach(play, "B")
    assert asked_map(b) is None
    source = b.answer_sender(unsettled={T0: None, T1: None})
    numbers = source.send("p", "q")
    assert there.payloads == [b"x", b"p", b"q"]
    assert len({each.tag for each in there.received}) == 3
    there.update(*(each.number for each in there.received[1:]), settled=False)
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, False)] * 2


@pytest.mark.parametrize("theirs", [{T0: None}, {T1: None}, {}, None])
def test_another_containers_map_settles_nothing(theirs: Map | None) -> None:
    play = Play(FROM_EAST)
    there, _ = received_from_a(play)
    b = reach(play, "B")
    b.answer_sender(unsettled=theirs)
    there.update(there.last.number, settled=False)
    assert there.told_last(there.last.number) is None  # A may still ask for the outcome
    b.lose()
    a = reach(play, "A")
    assert asked_map(a) == {T0: ACCEPTED}
    back = a.answer_sender(unsettled={T0: None})
    back.send(b"", tag=T0, resume=True, state=ACCEPTED, settled=True)
    assert there.told_last(there.last.number) == (ACCEPTED, True)


def test_what_is_kept_for_a_container_expires() -> None:
    play = Play(FROM_EAST, settings=CoreSettings(router_id="dc1", expiry_seconds=500))
    there, _ = received_from_a(play)
    reach(play, "B").answer_sender()
    there.update(there.last.number, settled=False)
    play.wait(499)
    assert there.told_last(there.last.number) is None
    play.wait(2)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert not play.core._registry.absent()
    a = reach(play, "A")
    assert asked_map(a) is None  # {} would say that nothing was ever forgotten


def test_a_container_that_is_never_replaced_is_waited_for_without_limit() -> None:
    play = Play(FROM_EAST)
    received_from_a(play)
    play.wait(100_000)
    assert asked_map(reach(play, "A")) is not None


def test_what_is_kept_for_a_container_outlives_any_number_of_suspended_links() -> None:
    play = Play(FROM_EAST, settings=CoreSettings(router_id="dc1", suspended_links=2))
    there, _ = received_from_a(play)
    for number in range(5):
        peer = play.connect(f"client-{number}")
        peer.attach_receiver(None, dynamic=True, policy=ExpiryPolicy.CONNECTION_CLOSE, seconds=99)
        peer.lose()
    assert there.unsettled
    a = reach(play, "A")
    assert list(asked_map(a) or ()) == [T0]


def test_what_is_kept_for_containers_that_are_gone_is_bounded() -> None:
    play = Play(FROM_EAST, settings=CoreSettings(router_id="dc1", suspended_links=3))
    there = receiver(play)
    for number in range(8):
        peer = reach(play, f"random-{number}")
        peer.answer_sender().send("x", tag=T0)
        peer.lose()
    assert len(there.received) == 8
    reach(play, "B")
    assert len(play.core._registry.waiting()) == 3


# After a restart


def test_what_one_container_may_have_stays_in_doubt_over_a_restart() -> None:
    play = Journaled(TO_EAST)
    _, _, told = sent_to_a(play, "x")
    after = play.crash()
    b = reach(after, "B")
    assert asked_map(b) is None
    end = answer(b, {})
    after.wait(100)
    after.flush()
    assert not end.received
    assert doubts(after) == ["A"]
    b.lose()
    after = after.crash()
    here = sender(after, {T0: None})
    (number,) = here.send(b"", tag=T0, resume=True)
    a = reach(after, "A")
    assert asked_map(a) == told
    answer(a, dict.fromkeys(told, ACCEPTED))
    after.flush()
    assert here.outcome(number) == (ACCEPTED, False)


def test_links_to_several_containers_of_a_place_are_restored() -> None:
    play = Journaled(TO_EAST)
    here, _, of_a = sent_to_a(play, "x")
    b = reach(play, "B")
    target = answer(b, {})
    here.send("y")
    play.flush()
    of_b: Map = {target.last.tag: None}
    for first in ("A", "B"):
        after = play.crash()
        maps = {"A": of_a, "B": of_b}
        second = "B" if first == "A" else "A"
        peer = reach(after, first)
        assert asked_map(peer) == maps[first]
        assert doubts(after) == ["A", "B"]
        peer.lose()
        after.wait(1)
        peer = reach(after, second)
        assert asked_map(peer) == maps[second]
        answer(peer, dict.fromkeys(maps[second], ACCEPTED))
        after.flush()
        assert doubts(after) == [first]


def test_what_was_received_from_one_container_waits_for_it_over_a_restart() -> None:
    play = Journaled(FROM_EAST)
    received_from_a(play)
    after = play.crash()
    reach(after, "B").answer_sender(unsettled={T0: None}).peer.lose()
    after.wait(1)
    a = reach(after, "A")
    told = asked_map(a)
    assert told is not None
    assert list(told) == [T0]


def test_what_one_container_is_given_up_for_is_not_taken_for_anothers_failure() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    here = sender(play, second=False)
    a = reach(play, "A", RESUMING)
    answer(a, None)
    (number,) = here.send("x")
    a.lose()
    play.wait(61)
    assert here.outcome(number) == (MODIFIED_FAILED, True)
    assert asked_map(reach(play, "B", RESUMING)) is None


@pytest.mark.parametrize("crashes", [1, 3])
def test_a_worker_that_came_back_knows_that_nothing_is_unsettled(crashes: int) -> None:
    """Null would say that it keeps no state: what is on its way would be in doubt at the sender."""
    play = Journaled(FROM_EAST)
    peer = reach(play, "A")
    assert asked_map(peer) is None
    peer.answer_sender()
    for _ in range(crashes):
        play.hand_in()
        play = play.crash()
    assert asked_map(reach(play, "A")) == {}
    assert asked_map(reach(play, "B")) is None


def test_what_was_settled_is_no_reason_to_forget_the_link() -> None:
    play = Journaled(FROM_EAST)
    there = receiver(play)
    end = reach(play, "A").answer_sender()
    (number,) = end.send("x")
    play.pass_on()
    there.accept()
    play.pass_on()
    end.settle(number)
    for _ in range(2):
        play.hand_in()
        play = play.crash()
    assert asked_map(reach(play, "A")) == {}


def test_a_link_whose_state_was_forgotten_is_not_remembered() -> None:
    play = Journaled(FROM_EAST)
    received_from_a(play)
    reach(play, "B").answer_sender()
    play.wait(10_000)
    play.hand_in()
    after = play.crash()
    assert asked_map(reach(after, "A")) is None
