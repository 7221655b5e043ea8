"""Attaches that were held up and arrive behind their successors: nothing is lost or doubled.

A *late* peer attaches on a connection of its own and never shows that it reads the answer, as one
that has long gone on to another connection.
"""

import attrs
import pytest

from router.core.listing import Filter
from router.core.policy import PeerLimits, Policy, PolicyRule
from router.core.resolve import Decision
from router.core.settings import CoreSettings
from router.links.attaches import ATTACH, AttachNumber
from router.model.condition import INVALID_FIELD, STOLEN
from router.model.events import LinkAttached
from router.model.identity import DeliveryTag, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    Received,
)
from router.model.terminus import ExpiryPolicy, Role, Source, Target
from router.routes.route import Distribution, Endpoint, Guarantee, InDoubt, Route
from tests.support.fleet import Fleet
from tests.support.journaled import Journaled
from tests.support.play import RESUMING, Map, Peer, Play, ReceiverEnd, SenderEnd, table

EXACTLY = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
TO_EAST = Route(address="orders", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE)
T0, T1 = DeliveryTag(b"t0"), DeliveryTag(b"t1")
ALL = Received(1, 0)
ROUTER = attrs.evolve(RESUMING, is_router=True)


def body(text: str) -> bytes:
    octets = text.encode()
    return b"\x00\x53\x75\xa0" + bytes([len(octets)]) + octets


def numbered(number: tuple[int, int] | None) -> dict[object, object]:
    return {} if number is None else {ATTACH: list(number)}


def attach_sender(
    peer: Peer,
    unsettled: Map | None,
    *,
    address: str = "orders",
    second: bool = True,
    number: tuple[int, int] | None = None,
    seconds: int = 300,
) -> SenderEnd:
    return peer.attach_sender(
        address,
        name="out",
        second=second,
        unsettled=unsettled,
        seconds=seconds,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        properties=numbered(number),
    )


def attach_receiver(
    peer: Peer,
    unsettled: Map | None,
    *,
    address: str = "orders",
    second: bool = True,
    credit: int = 10,
    number: tuple[int, int] | None = None,
) -> ReceiverEnd:
    return peer.attach_receiver(
        address,
        name="in",
        second=second,
        unsettled=unsettled,
        seconds=300,
        credit=credit,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        properties=numbered(number),
    )


def late(play: Play, container: str) -> Peer:
    peer = play.connect(container)
    peer.is_silent = True
    return peer


def sender(play: Play, unsettled: Map | None = None, *, second: bool = True) -> SenderEnd:
    return attach_sender(play.connect("app"), unsettled, second=second)


def receiver(
    play: Play, unsettled: Map | None = None, *, second: bool = True, credit: int = 10
) -> ReceiverEnd:
    return attach_receiver(play.connect("shop"), unsettled, second=second, credit=credit)


def answered_map(end: SenderEnd | ReceiverEnd) -> Map | None:
    assert end.attach is not None
    return None if end.attach.unsettled is None else dict(end.attach.unsettled)


def used_octets(play: Play) -> int:
    return play.core._registry.process.used


# Where we receive


@pytest.mark.parametrize("late_map", [None, {}, {T1: None}])
def test_what_a_late_map_lacks_is_there_when_its_sender_comes_back(late_map: Map | None) -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("k"))
    attach_sender(late(play, "app"), late_map)
    assert good.is_detached()
    back = sender(play, {T0: None})
    assert answered_map(back) == {T0: ALL}
    back.send(body("k"), tag=T0, resume=True)
    assert there.payloads == [body("k")]


def test_what_a_late_map_lacks_among_others_is_there_when_its_sender_comes_back() -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("j"))
    good.send(body("k"))
    stale = attach_sender(late(play, "app"), {T0: None})
    assert answered_map(stale) == {T0: ALL}
    back = sender(play, {T0: None, T1: None})
    assert answered_map(back) == {T0: ALL, T1: ALL}
    assert there.payloads == [body("j"), body("k")]


def test_an_outcome_that_comes_meanwhile_waits_as_if_nothing_had_been_said() -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("j"))
    good.send(body("k"))
    attach_sender(late(play, "app"), {T0: None})
    there.update(*there.unsettled, settled=False)
    assert not there.told
    assert answered_map(sender(play, {T0: None, T1: None})) == {T0: ACCEPTED, T1: ACCEPTED}


def test_a_sender_that_is_heard_has_settled_what_its_map_lacks() -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    numbers = [*good.send(body("j")), *good.send(body("k"))]
    there.update(*there.unsettled, settled=False)
    assert good.outcome(numbers[1]) == (ACCEPTED, False)
    good.peer.lose()
    silent = late(play, "app")
    back = attach_sender(silent, {T0: None})
    assert not there.told
    silent.speak(back)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert there.told_last(there.received[0].number) is None
    assert not any(link.unconfirmed for link in play.core._registry.attached.values())


def test_a_sender_without_state_begins_anew_when_it_is_heard_and_not_before() -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    good.peer.lose()
    silent = late(play, "app")
    back = attach_sender(silent, None)
    assert len(play.core._registry.suspended) == 1
    silent.speak(back)
    assert not play.core._registry.suspended
    (number,) = back.send(body("y"), tag=T0)
    assert there.payloads == [body("x"), body("y")]
    assert len({delivery.tag for delivery in there.received}) == 2, "the tag was given out anew"
    there.update(*there.unsettled, settled=False)
    assert back.outcome(number) == (ACCEPTED, False)


def test_a_sender_that_never_speaks_is_waited_for_until_its_terminus_expires() -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    good.peer.lose()
    attach_sender(late(play, "app"), None)
    play.wait(299)
    there.update(there.last.number, settled=False)
    assert not there.told
    play.wait(2)
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    assert not play.core._registry.suspended
    assert used_octets(play) == 0


def test_a_link_that_a_late_attach_has_stolen_ends_with_the_connection_that_it_was_on() -> None:
    play = Play(EXACTLY)
    receiver(play)
    good = sender(play)
    good.send(body("x"))
    attach_sender(late(play, "app"), None)
    play.wait(10_000)
    assert play.core._registry.suspended
    good.peer.lose()
    play.wait(301)
    assert not play.core._registry.suspended


def test_a_refused_attach_leaves_the_link_that_it_stole_to_its_time() -> None:
    play = Play(EXACTLY, "bills")
    receiver(play)
    good = sender(play)
    good.send(body("x"))
    assert attach_sender(late(play, "app"), None, address="nowhere").refused is not None
    assert good.is_detached()
    good.peer.lose()
    play.wait(301)
    assert not play.core._registry.suspended


def test_what_is_kept_counts_in_limits_and_is_listed() -> None:
    limits = PeerLimits(unsettled_per_link=4)
    rules = Policy((PolicyRule(name="all", send=("#",), receive=("#",), limits=limits),))
    play = Play(EXACTLY, policy=rules)
    receiver(play)
    good = sender(play)
    good.send(body("j"))
    good.send(body("k"))
    used = used_octets(play)
    good.peer.lose()
    silent = late(play, "app")
    back = attach_sender(silent, {T0: None})
    back.send(body("j"), tag=T0, resume=True)
    assert used_octets(play) == used
    assert back.credit + len(back.unsettled) + 1 <= 4
    page = play.core.lister.deliveries(Filter(), 10, None, play.now)
    assert len(page.deliveries) == 2


@pytest.mark.parametrize("late_map", [None, {}, {T0: None}])
@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_behind_a_late_attach_ends_nothing(late_map: Map | None, closed: bool) -> None:
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    attach_sender(late(play, "app"), late_map).detach(closed=closed)
    there.update(there.last.number, settled=False)
    assert not there.told
    assert answered_map(sender(play, {T0: None})) == {T0: ACCEPTED}


def test_a_late_attach_to_another_address_ends_nothing() -> None:
    play = Play(EXACTLY, "bills")
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    attach_sender(late(play, "app"), None, address="bills")
    assert answered_map(sender(play, {T0: None})) == {T0: ALL}
    assert there.payloads == [body("x")]


def test_a_name_for_another_address_is_another_link_once_its_peer_is_heard() -> None:
    play = Play(EXACTLY, "bills")
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    good.peer.lose()
    silent = late(play, "app")
    other = attach_sender(silent, {}, address="bills")
    silent.speak(other)
    assert not play.core._registry.suspended
    there.update(there.last.number, settled=False)
    assert there.told_last(there.last.number) == (ACCEPTED, True)


def test_engines_that_answer_for_their_maps_are_believed_at_once() -> None:
    """Sessions of 0-10 are known to our own engine: what its map lacks is settled."""
    play = Play(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("x"))
    there.update(there.last.number, settled=False)
    good.peer.lose()
    silent = late(play, "app")
    link = play.next_link()
    silent.sends[link] = SenderEnd(peer=silent, link=link, name=LinkName("out"))
    kept = Target(address="orders", expiry_policy=ExpiryPolicy.CONNECTION_CLOSE, expiry_seconds=300)
    silent.happens(
        LinkAttached(
            link=link,
            name=LinkName("out"),
            role=Role.RECEIVER,
            is_answer=False,
            source=Source(address="here"),
            target=kept,
            unsettled={},
        )
    )
    assert there.told_last(there.last.number) == (ACCEPTED, True)
    answer = silent.sends[link].attach
    assert answer is not None
    assert answer.challenge is None


def test_a_link_with_nothing_unsettled_is_asked_nothing() -> None:
    play = Play(EXACTLY)
    for end in (sender(play, {}), receiver(play, {})):
        assert end.attach is not None
        assert end.attach.challenge is None


# Where we send


@pytest.mark.parametrize("credit", [0, 5])
def test_what_a_late_map_lacks_goes_to_nobody_else(credit: int) -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    (number,) = here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    stale = attach_receiver(late(play, "shop"), {}, credit=credit)
    assert good.is_detached()
    assert not other.received
    assert [delivery.tag for delivery in stale.received] == [tag] * bool(credit)
    back = receiver(play, {tag: ACCEPTED})
    assert [(each.tag, each.resume, each.state) for each in back.received] == [
        (tag, True, ACCEPTED)
    ]
    assert here.outcome(number) == (ACCEPTED, False)
    here.settle(number)
    assert not back.unsettled
    assert not other.received
    assert used_octets(play) == 0


def test_what_a_map_lacks_goes_to_anybody_once_its_receiver_is_heard() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    here.send(body("k"))
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    good.peer.lose()
    silent = late(play, "shop")
    back = attach_receiver(silent, {}, credit=0)
    assert not other.received
    silent.speak(back)
    assert other.payloads == [body("k")]


def test_what_was_sent_again_before_its_receiver_was_heard_stays_with_it() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    (number,) = here.send(body("k"))
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    good.peer.lose()
    silent = late(play, "shop")
    back = attach_receiver(silent, {}, credit=1)
    assert back.payloads == [body("k")]
    assert not back.last.resume
    silent.speak(back)
    back.update(back.last.number, settled=False)
    assert here.outcome(number) == (ACCEPTED, False)
    assert not other.received


def test_what_an_engine_gives_back_unsent_goes_to_nobody_else() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    stale = attach_receiver(late(play, "shop"), {}, credit=1)
    stale.update(stale.last.number, state=RELEASED, settled=True)
    stale.peer.lose()
    assert not other.received
    back = receiver(play, {tag: ACCEPTED})
    assert back.last.tag == tag


def test_what_the_journal_holds_back_goes_to_nobody_else() -> None:
    play = Journaled(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    here.send(body("k"))
    play.flush()
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    stale = attach_receiver(late(play, "shop"), {}, credit=1)
    assert not stale.received
    stale.peer.lose()  # before its record is durable
    play.flush()
    assert not other.received
    back = receiver(play, {tag: ACCEPTED})
    play.flush()
    assert back.last.tag == tag


def test_an_outcome_of_a_late_map_is_not_believed() -> None:
    """The sender has given the tag out anew: the outcome is that of another delivery."""
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    (number,) = here.send(body("j"), tag=T0)
    tag = good.last.tag
    good.update(good.last.number, settled=False)
    here.settle(number)
    (number,) = here.send(body("k"), tag=T0)
    assert good.last.tag == tag
    attach_receiver(late(play, "shop"), {tag: ACCEPTED})
    assert here.outcome(number) is None
    back = receiver(play, {})
    assert back.payloads == [body("k")]
    back.update(back.last.number, state=REJECTED, settled=False)
    assert here.outcome(number) == (REJECTED, False)


def test_what_a_late_map_says_too_little_of_is_not_aborted() -> None:
    settings = CoreSettings(router_id="dc1", keep_octets=4)
    play = Play("orders", settings=settings)
    good, here = receiver(play, {}, second=False), sender(play, second=False)
    (number,) = here.send(body("0123456789"), more=True)
    here.go_on(b"", more=False)
    tag = good.last.tag
    attach_receiver(late(play, "shop"), {tag: None}, second=False)
    assert here.outcome(number) is None
    back = receiver(play, {tag: ACCEPTED}, second=False)
    assert here.outcome(number) == (ACCEPTED, True)
    assert not back.aborted


def test_what_was_answered_and_a_late_map_lacks_is_still_told_in_ours() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    (number,) = here.send(body("k"))
    tag = good.last.tag
    good.update(good.last.number, settled=False)
    attach_receiver(late(play, "shop"), {})
    back = receiver(play, {tag: ACCEPTED})
    assert answered_map(back) == {tag: ACCEPTED}
    here.settle(number)
    assert not back.unsettled


def test_at_least_once_it_is_sent_again_by_its_tag_and_counted_as_failed() -> None:
    play = Play("orders")
    good, here = receiver(play, second=False), sender(play, second=False)
    (number,) = here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10)
    good.peer.lose()
    silent = late(play, "shop")
    back = attach_receiver(silent, None, second=False)
    assert [(each.tag, each.delivery_count) for each in back.received] == [(tag, 1)]
    assert back.payloads == [body("k")]
    assert not other.received
    silent.speak(back)
    back.accept()
    assert here.outcome(number) == (ACCEPTED, True)


def test_at_least_once_the_last_attempt_is_not_given_up_before_the_receiver_is_heard() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", attempts=1))
    good, here = receiver(play, second=False), sender(play, second=False)
    (number,) = here.send(body("k"))
    good.peer.lose()
    silent = late(play, "shop")
    back = attach_receiver(silent, None, second=False)
    assert here.outcome(number) is None
    assert not back.received
    silent.speak(back)
    assert here.outcome(number) == (MODIFIED_FAILED, True)


def test_in_doubt_resend_waits_for_the_receiver_too() -> None:
    play = Play(attrs.evolve(EXACTLY, in_doubt=InDoubt.RESEND))
    good, here = receiver(play), sender(play)
    here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    attach_receiver(late(play, "shop"), None, credit=0)
    assert not other.received
    back = receiver(play, {tag: ACCEPTED})
    assert back.last.resume
    assert not other.received


def test_what_is_held_for_a_person_is_decided_by_a_person() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play), sender(play)
    (number,) = here.send(body("k"))
    good.peer.lose()
    silent = late(play, "shop")
    back = attach_receiver(silent, None)
    _, orders = play.core.resolve(T0, None, Decision.ACCEPT, play.now)
    play.carry_out(orders)
    assert here.outcome(number) == (ACCEPTED, False)
    silent.speak(back)
    assert not back.received


def test_a_reload_sends_nothing_again_that_a_late_map_has_left_open() -> None:
    play = Play(EXACTLY)
    good, here = receiver(play), sender(play)
    here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    attach_receiver(late(play, "shop"), None, credit=0)
    resending = attrs.evolve(EXACTLY, in_doubt=InDoubt.RESEND)
    play.carry_out(play.core.configure(table(resending), play.now))
    assert not other.received
    assert receiver(play, {tag: ACCEPTED}).last.resume


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("late_map", [None, {}, "whole"])
def test_a_detach_behind_a_late_attach_gives_nothing_to_others(
    closed: bool, late_map: Map | str | None
) -> None:
    play = Play(EXACTLY)
    good, here = receiver(play, {}), sender(play)
    here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    told: Map | None = {tag: None} if isinstance(late_map, str) else late_map
    attach_receiver(late(play, "shop"), told).detach(closed=closed)
    assert not other.received
    assert not play.core._registry.held
    assert receiver(play, {tag: ACCEPTED}).last.resume


def test_a_receiver_that_never_speaks_is_waited_for_until_its_terminus_expires() -> None:
    play = Play("orders")
    good, here = receiver(play, {}), sender(play, second=False)
    (number,) = here.send(body("k"))
    tag = good.last.tag
    silent = late(play, "shop")
    attach_receiver(silent, {tag: ACCEPTED})
    silent.lose()
    good.peer.lose()
    other = play.connect("depot").attach_receiver(credit=10)
    play.wait(299)
    assert (other.received, here.outcome(number)) == ([], None)
    play.wait(2)
    assert other.payloads == [body("k")]


def test_a_late_attach_to_another_address_gives_nothing_to_others() -> None:
    play = Play(EXACTLY, "bills")
    good, here = receiver(play, {}), sender(play)
    here.send(body("k"))
    tag = good.last.tag
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    stale = attach_receiver(late(play, "shop"), {}, address="bills", credit=3)
    play.connect("biller").attach_sender("bills", second=True).send(body("b"))
    assert stale.payloads == [body("b")]
    stale.peer.lose()  # with something of its own unsettled
    back = receiver(play, {tag: ACCEPTED})
    assert back.last.tag == tag
    assert not other.received
    assert len(play.core._registry.suspended) + len(play.core._registry.behind) <= 1


def test_multicast_copies_wait_for_their_receivers_to_be_heard() -> None:
    exact = attrs.evolve(EXACTLY, distribution=Distribution.MULTICAST)
    play = Play(exact)
    good = receiver(play, {})
    other = play.connect("depot").attach_receiver(credit=5, second=True)
    here = sender(play)
    (number,) = here.send(body("k"))
    tag = good.last.tag
    attach_receiver(late(play, "shop"), {})
    other.update(other.last.number, settled=False)
    assert here.outcome(number) is None
    back = receiver(play, {tag: ACCEPTED})
    assert back.last.resume
    assert here.outcome(number) == (ACCEPTED, False)


# Numbers


def test_a_lower_number_is_refused_and_changes_nothing() -> None:
    play = Play(EXACTLY)
    there = receiver(play)
    good = attach_sender(play.connect("app"), None, number=(7, 2))
    good.send(body("k"))
    stale = attach_sender(late(play, "app"), None, number=(7, 1))
    assert stale.refused is not None
    assert stale.refused.name == STOLEN
    assert not good.is_detached()
    there.update(there.last.number, settled=False)
    assert good.told
    assert "link.late" in play.events()


@pytest.mark.parametrize(("first", "second"), [((7, 1), (7, 2)), ((7, 9), (8, 1)), ((7, 1), None)])
def test_a_higher_number_or_none_is_accepted(
    first: tuple[int, int], second: tuple[int, int] | None
) -> None:
    play = Play(EXACTLY)
    old = attach_receiver(play.connect("shop"), None, number=first)
    new = attach_receiver(play.connect("shop"), {}, number=second)
    assert new.attach is not None
    assert old.is_detached()


@pytest.mark.parametrize("number", [(6, 9), (7, 1)])
def test_a_receivers_lower_number_is_refused_too(number: tuple[int, int]) -> None:
    play = Play(EXACTLY)
    good = attach_receiver(play.connect("shop"), {}, number=(7, 2))
    sender(play).send(body("k"))
    stale = attach_receiver(late(play, "shop"), {}, number=number, credit=0)
    assert stale.refused is not None
    assert not good.is_detached()


def test_a_number_lasts_over_attaches_without_one_and_the_end_of_its_link() -> None:
    play = Play(EXACTLY)
    attach_sender(play.connect("app"), None, number=(7, 5)).detach()
    attach_sender(play.connect("app"), None).detach()
    assert attach_sender(late(play, "app"), None, number=(7, 4)).refused is not None
    assert attach_sender(play.connect("app"), None, number=(7, 6)).attach is not None


def test_numbers_of_others_are_others() -> None:
    play = Play(EXACTLY)
    attach_sender(play.connect("app"), None, number=(7, 5))
    assert attach_sender(play.connect("app2"), None, number=(7, 1)).attach is not None
    as_user = play.connect("app", user="alice")
    assert attach_sender(as_user, None, number=(7, 1)).attach is not None


@pytest.mark.parametrize("value", [7, [7], [7, -1], ["a", 1], [True, 1], [7, 1, 1], [1 << 64, 0]])
def test_what_is_no_number_is_refused(value: object) -> None:
    play = Play(EXACTLY)
    end = play.connect("app").attach_sender(name="out", properties={ATTACH: value})
    assert end.refused is not None
    assert end.refused.name == INVALID_FIELD


def test_numbers_of_links_that_are_gone_are_forgotten_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.core.numbers.KEPT_LINKS", 3)
    play = Play(EXACTLY)
    play.core._attacher._numbers._sweep_at = 6
    here = play.connect("app")
    for name in "abcdef":
        end = here.attach_sender(name=name, properties=numbered((7, 5)))
        if name != "b":
            end.detach()
    again = play.connect("app")
    told = {
        name: again.attach_sender(name=name, properties=numbered((7, 1))).refused is None
        for name in "abf"
    }
    assert told == {"a": True, "b": False, "f": False}


# Numbers and the journal


def test_an_attach_is_answered_when_its_number_is_durable() -> None:
    play = Journaled(EXACTLY)
    there = attach_receiver(play.connect("shop"), None, number=(7, 1), credit=0)
    here = attach_sender(play.connect("app"), None, number=(7, 1))
    assert [there.attach, here.attach] == [None, None]
    play.flush()
    assert None not in (there.attach, here.attach)
    there.grant(5)
    assert here.credit == 5


def test_credit_does_not_pass_an_attach_that_waits() -> None:
    play = Journaled(EXACTLY)
    receiver(play)
    play.flush()
    here = attach_sender(play.connect("app"), None, number=(7, 1))
    assert (here.attach, here.credit) == (None, 0)
    play.flush()
    assert here.credit == 10


def test_an_attach_that_waits_and_is_lost_is_answered_no_more() -> None:
    play = Journaled(EXACTLY)
    here = attach_sender(play.connect("app"), None, number=(7, 1))
    here.peer.lose()
    play.flush()
    assert here.attach is None


def test_an_attach_without_a_number_waits_for_nothing() -> None:
    play = Journaled(EXACTLY)
    assert receiver(play).attach is not None


@pytest.mark.parametrize("is_unsettled", [True, False])
@pytest.mark.parametrize("role", [Role.SENDER, Role.RECEIVER])
def test_after_a_crash_a_lower_number_is_refused(role: Role, is_unsettled: bool) -> None:
    play = Journaled(EXACTLY)
    attach_receiver(play.connect("shop"), None, number=(7, 2))
    good = attach_sender(play.connect("app"), None, number=(7, 2))
    play.flush()
    if is_unsettled:
        good.send(body("k"))
        play.flush()
    play = play.crash()
    if role is Role.SENDER:
        end: SenderEnd | ReceiverEnd = attach_sender(late(play, "app"), None, number=(7, 1))
    else:
        end = attach_receiver(late(play, "shop"), {}, number=(7, 1), credit=0)
    assert end.refused is not None
    assert end.refused.name == STOLEN
    back = attach_sender(play.connect("app"), {T0: None}, number=(7, 3))
    play.flush()
    assert answered_map(back) == ({T0: ALL} if is_unsettled else {})


def test_after_a_crash_what_a_late_map_lacks_is_still_there() -> None:
    play = Journaled(EXACTLY)
    there, good = receiver(play), sender(play)
    good.send(body("k"))
    play.flush()
    assert there.payloads == [body("k")]
    play = play.crash()
    attach_sender(late(play, "app"), None)
    play = play.crash()
    attach_sender(late(play, "app"), {})
    attach_receiver(late(play, "shop"), {}, credit=0)
    other = play.connect("depot").attach_receiver(credit=10, second=True)
    play.flush()
    assert not other.received
    assert answered_map(sender(play, {T0: None})) == {T0: ALL}


def test_what_a_sender_has_settled_among_others_is_forgotten_by_the_journal() -> None:
    play = Journaled(EXACTLY)
    there, good = receiver(play), sender(play)
    numbers = [*good.send(body("j")), *good.send(body("k"))]
    play.flush()
    there.update(*there.unsettled, settled=False)
    play.flush()
    assert good.outcome(numbers[0]) == (ACCEPTED, False)
    good.peer.lose()
    sender(play, {T1: None})
    play.flush()
    assert [each.tag for each in play.remembered().values()] == [T1]


# Our own links


def number_of(peer: Peer) -> AttachNumber | None:
    (attach,) = peer.asked.values()
    value = attach.properties.get(ATTACH)
    assert value is None or isinstance(value, list)
    return None if value is None else AttachNumber(*value)


def drawn(peer: Peer) -> AttachNumber:
    number = number_of(peer)
    assert number is not None
    return number


def east(play: Play, *, is_router: bool = True) -> Peer:
    return play.dial("east", capabilities=ROUTER if is_router else RESUMING)


def test_attaches_to_other_routers_are_numbered_from_the_journal() -> None:
    play = Journaled(TO_EAST)
    sender(play)
    first = east(play)
    assert not first.asked, "not before the number is durable"
    play.flush()
    one = number_of(first)
    assert one is not None
    first.lose()
    second = east(play)
    two = number_of(second)  # covered by the same record
    assert two is not None
    assert two > one
    play = play.crash()
    sender(play)
    third = east(play)
    assert not third.asked
    play.flush()
    three = number_of(third)
    assert three is not None
    assert three > two
    assert three.epoch == one.epoch


def test_what_was_drawn_and_may_have_gone_out_is_not_drawn_again() -> None:
    play = Journaled(TO_EAST)
    sender(play)
    peer = east(play)
    play.flush()
    numbers = [drawn(peer)]
    for _ in range(600):  # more than one record covers
        peer.lose()
        peer = east(play)
        if not peer.asked:
            play.flush()
        numbers.append(drawn(peer))
    play = play.crash(loses_unhanded=True)
    sender(play)
    peer = east(play)
    play.flush()
    numbers.append(drawn(peer))
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)


def test_a_journal_that_begins_anew_has_a_greater_epoch() -> None:
    epochs = []
    for seconds in (0, 1):
        play = Journaled(TO_EAST)
        play.wait(seconds)
        sender(play)
        peer = east(play)
        play.flush()
        number = number_of(peer)
        assert number is not None
        epochs.append(number.epoch)
    assert epochs[0] < epochs[1]


def test_an_attach_that_waits_for_its_number_is_void_when_its_container_goes() -> None:
    play = Journaled(TO_EAST)
    sender(play)
    first = east(play)
    first.lose()
    second = east(play)
    play.flush()
    assert not first.asked
    assert number_of(second) is not None


def test_others_and_those_without_a_journal_are_sent_none() -> None:
    play = Journaled(TO_EAST)
    sender(play)
    assert number_of(east(play, is_router=False)) is None
    bare = Play(TO_EAST)
    sender(bare)
    assert number_of(east(bare)) is None
    plain = Journaled(EXACTLY, Route(address="plain", to=(Endpoint("east"),)))
    plain.connect().attach_sender("plain")
    assert number_of(east(plain)) is None


# By another worker


def test_a_late_attach_by_another_worker_changes_nothing() -> None:
    fleet = Fleet(3, EXACTLY)
    there = attach_receiver(fleet[1].connect("shop"), {})
    good = attach_sender(fleet[2].connect("app"), None)
    fleet.settle()
    good.send(body("k"))
    fleet.settle()
    attach_sender(late(fleet[3], "app"), None)
    fleet.settle()
    assert good.is_detached()
    back = attach_sender(fleet[1].connect("app"), {T0: None})
    fleet.settle()
    assert answered_map(back) == {T0: ALL}
    assert there.payloads == [body("k")]


def test_a_late_receiver_by_another_worker_changes_nothing() -> None:
    fleet = Fleet(3, EXACTLY)
    good = attach_receiver(fleet[2].connect("shop"), {})
    here = attach_sender(fleet[1].connect("app"), None)
    fleet.settle()
    here.send(body("k"))
    fleet.settle()
    tag = good.last.tag
    other = fleet[3].connect("depot").attach_receiver(credit=10, second=True)
    fleet.settle()
    stale = attach_receiver(late(fleet[3], "shop"), {}, credit=0)
    fleet.settle()
    assert stale.attach is not None
    assert stale.attach.challenge is not None
    assert not other.received
    back = attach_receiver(fleet[2].connect("shop"), {tag: ACCEPTED})
    fleet.settle()
    assert back.last.resume
    assert not other.received


def test_an_attach_that_is_confirmed_at_another_worker_is_confirmed_at_home() -> None:
    fleet = Fleet(2, EXACTLY)
    there = attach_receiver(fleet[1].connect("shop"), {})
    good = attach_sender(fleet[2].connect("app"), None)
    fleet.settle()
    (number,) = good.send(body("k"))
    fleet.settle()
    there.update(there.last.number, settled=False)
    fleet.settle()
    assert good.outcome(number) == (ACCEPTED, False)
    good.peer.lose()
    fleet.settle()
    silent = late(fleet[2], "app")
    back = attach_sender(silent, {})
    fleet.settle()
    assert not there.told, "the engine between answers for itself alone"
    silent.speak(back)
    fleet.settle()
    assert there.told_last(there.last.number) == (ACCEPTED, True)


def test_numbers_reach_the_home() -> None:
    fleet = Fleet(3, EXACTLY)
    good = attach_sender(fleet[2].connect("app"), None, number=(7, 2))
    fleet.settle()
    assert good.attach is not None
    stale = attach_sender(late(fleet[3], "app"), None, number=(7, 1))
    fleet.settle()
    assert stale.refused is not None
    assert stale.refused.name == STOLEN
    assert not good.is_detached()
