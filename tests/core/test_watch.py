"""Receivers of patterns hear which addresses are sent to."""

import attrs
import pytest

from router.core.network import PATIENCE_SECONDS
from router.model.commands import AttachLink
from router.model.condition import NOT_FOUND
from router.model.events import AddressesReached
from router.model.outcome import RELEASED
from router.model.terminus import Target
from router.routes.match import overlaps, parse_pattern
from router.routes.route import Distribution, Endpoint, Route
from tests.support.fleet import Fleet
from tests.support.play import Play

SHOP = Route(address="shop.#", distribution=Distribution.MULTICAST)


def test_senders_that_are_there_are_told_at_once() -> None:
    play = Play(SHOP)
    play.connect().attach_sender("shop.eu.orders")
    play.connect().attach_sender("shop.us")
    assert play.connect().watch("shop.*.orders").addresses == {"shop.eu.orders"}


def test_senders_that_come_and_go_are_told_once_each() -> None:
    play = Play(SHOP)
    watch = play.connect().watch("shop/#")
    assert watch.addresses == set()
    first = play.connect().attach_sender("shop.eu")
    second = play.connect().attach_sender("shop.eu")
    assert watch.addresses == {"shop.eu"}
    first.detach()
    assert watch.addresses == {"shop.eu"}
    second.peer.lose()
    assert watch.addresses == set()


def test_a_sender_to_the_anonymous_terminus_counts_for_the_addresses_it_names() -> None:
    play = Play(SHOP)
    watch = play.connect().watch("shop.*")
    play.connect().attach_sender(None).send("one", address="shop.eu")
    assert watch.addresses == {"shop.eu"}


def test_deliveries_whose_sender_has_left_wait_for_their_watchers_until_they_are_gone() -> None:
    play = Play(SHOP)
    client, publisher = play.connect(), play.connect()
    watch = client.watch("shop.*")
    publisher.attach_sender(None).send(b"one", b"two", address="shop.eu", settled=True)
    publisher.lose()
    assert watch.addresses == {"shop.eu"}
    receiver = client.attach_receiver("shop.eu", credit=1)
    assert watch.addresses == {"shop.eu"}
    receiver.grant(1)
    assert receiver.payloads == [b"one", b"two"]
    assert watch.addresses == set()


def test_a_watcher_that_attaches_gets_what_is_sent_as_any_receiver() -> None:
    play = Play(SHOP)
    client = play.connect()
    client.watch("shop.*")
    sender = play.connect().attach_sender("shop.eu")
    assert sender.credit == 0
    receiver = client.attach_receiver("shop.eu")
    receiver.grant(10)
    sender.send(b"one")
    assert receiver.payloads == [b"one"]


def test_a_message_passes_no_watcher_that_is_about_to_attach() -> None:
    play = Play(SHOP)
    quick, slow = play.connect(), play.connect()
    quick.watch("shop.*")
    slow.watch("#.eu")
    sender = play.connect().attach_sender("shop.eu")
    first = quick.attach_receiver("shop.eu", credit=10)
    assert sender.credit == 0
    second = slow.attach_receiver("shop.eu", credit=10)
    sender.send(b"one")
    assert first.payloads == second.payloads == [b"one"]


def test_the_first_message_to_an_address_waits_for_its_watchers() -> None:
    play = Play(SHOP)
    quick, slow = play.connect(), play.connect()
    quick.watch("shop.*")
    slow.watch("#.eu")
    sender = play.connect().attach_sender(None)
    sender.send(b"one", address="shop.eu")
    first = quick.attach_receiver("shop.eu", credit=10)
    assert first.payloads == []
    second = slow.attach_receiver("shop.eu", credit=10)
    assert first.payloads == second.payloads == [b"one"]


@pytest.mark.parametrize("leaves", ["ends", "is lost", "never attaches"])
def test_a_watcher_that_does_not_attach_is_not_waited_for_for_ever(leaves: str) -> None:
    play = Play(SHOP)
    attaching, other = play.connect(), play.connect()
    attaching.watch("shop.*")
    watch = other.watch("#.eu")
    sender = play.connect().attach_sender(None)
    sender.send(b"one", address="shop.eu")
    receiver = attaching.attach_receiver("shop.eu", credit=10)
    assert receiver.payloads == []
    if leaves == "ends":
        watch.end()
    elif leaves == "is lost":
        other.lose()
    else:
        play.wait(PATIENCE_SECONDS)
    assert receiver.payloads == [b"one"]


def test_a_watcher_that_was_attached_already_says_so_and_is_waited_for_no_longer() -> None:
    play = Play(SHOP)
    client, slow = play.connect(), play.connect()
    receiver = client.attach_receiver("shop.eu", credit=10)
    watch, other = client.watch("shop.*"), slow.watch("#.eu")
    play.connect().attach_sender(None).send(b"one", address="shop.eu")
    client.happens(AddressesReached(watch.link))
    assert receiver.payloads == []  # the other one has still to come
    slow.happens(AddressesReached(other.link))
    assert receiver.payloads == [b"one"]


def test_whoever_says_so_and_watches_nothing_changes_nothing() -> None:
    play = Play(SHOP)
    client = play.connect()
    watch = client.watch("shop.*")
    watch.end()
    assert not client.happens(AddressesReached(watch.link))


def test_what_no_watcher_comes_for_is_released() -> None:
    play = Play(SHOP)
    play.connect().watch("shop.*")
    sender = play.connect().attach_sender(None)
    (number,) = sender.send(b"one", address="shop.eu")
    assert sender.outcome(number) is None
    play.wait(PATIENCE_SECONDS)
    assert sender.outcome(number) == (RELEASED, True)


def test_nothing_is_told_after_the_end() -> None:
    play = Play(SHOP)
    ended, lost = play.connect().watch("shop.*"), play.connect().watch("shop.*")
    ended.end()
    lost.peer.lose()
    play.connect().attach_sender("shop.eu")
    assert (ended.addresses, lost.addresses) == (set(), set())


def test_senders_on_other_workers_are_told_of_before_the_watch_is_answered() -> None:
    fleet = Fleet(2, SHOP)
    sender = fleet[2].connect().attach_sender("shop.eu")
    fleet.settle()
    client = fleet[1].connect()
    watch = client.watch("shop.*")
    assert not watch.is_answered
    fleet.settle()
    assert watch.addresses == {"shop.eu"}
    receiver = client.attach_receiver("shop.eu")
    receiver.grant(10)
    fleet.settle()
    sender.send(b"one")
    fleet.settle()
    assert receiver.payloads == [b"one"]


@pytest.mark.parametrize("comes", [True, False])
def test_a_multicast_waits_for_a_watcher_of_another_worker_that_is_about_to_attach(
    comes: bool,
) -> None:
    fleet = Fleet(2, SHOP)
    near, far = fleet[1].connect(), fleet[2].connect()
    near.watch("shop.*")
    watch = far.watch("#.eu")
    fleet.settle()
    sender = fleet[1].connect().attach_sender(None)
    sender.send(b"one", address="shop.eu")
    fleet.settle()
    assert watch.addresses == {"shop.eu"}
    first = near.attach_receiver("shop.eu", credit=10)
    fleet.settle()
    assert first.payloads == []
    second = far.attach_receiver("shop.eu", credit=10) if comes else None
    fleet.settle() if comes else fleet.wait(PATIENCE_SECONDS + 1)
    assert first.payloads == [b"one"]
    assert second is None or second.payloads == [b"one"]


def test_senders_on_other_workers_that_come_and_go_are_told() -> None:
    fleet = Fleet(2, SHOP)
    watch = fleet[1].connect().watch("shop.*")
    fleet.settle()
    assert watch.addresses == set()
    sender = fleet[2].connect().attach_sender("shop.eu")
    fleet.settle()
    assert watch.addresses == {"shop.eu"}
    sender.detach()
    fleet.wait(120)
    assert watch.addresses == set()


def test_a_watch_that_has_ended_draws_nothing_from_other_workers() -> None:
    fleet = Fleet(2, SHOP)
    client = fleet[1].connect()
    watch = client.watch("shop.*")
    fleet.settle()
    watch.end()
    fleet.settle()
    fleet[2].connect().attach_sender("shop.eu")
    fleet.settle()
    commands = [each for end in fleet.joints[1, 2] for each in end.commands]
    assert Target(address="shop.eu") not in [
        each.target for each in commands if isinstance(each, AttachLink)
    ]


def test_a_sibling_that_says_nothing_is_not_waited_for_for_ever() -> None:
    fleet = Fleet(2, SHOP)
    watch = fleet[1].connect().watch("shop.*")
    fleet[1].wait(PATIENCE_SECONDS + 1)
    assert watch.addresses == set()


@pytest.mark.parametrize("pattern", ["bank.*", "north.#", "$vhost.#", "shop.a*"])
def test_a_pattern_for_which_receivers_meet_no_senders_is_refused(pattern: str) -> None:
    play = Play(SHOP, Route(address="north.#", to=(Endpoint("north"),)))
    watch = play.connect().watch(pattern)
    assert watch.addresses is None
    assert watch.refused is not None
    if "a*" not in pattern:
        assert watch.refused.name == NOT_FOUND


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("#", "x.y.z", True),
        ("*.b.#", "a.#.c", True),
        ("a.#.c", "a.#.d", False),
        ("#.a.#", "#.b.#", True),
        ("*.*", "#.a", True),
        ("*", "a.#.b", False),
        ("#", "#", True),
    ],
)
def test_patterns_overlap_if_an_address_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlaps(parse_pattern(one), parse_pattern(other)) is expected
    assert overlaps(parse_pattern(other), parse_pattern(one)) is expected


@pytest.mark.parametrize("distribution", [Distribution.BALANCED, Distribution.MULTICAST])
def test_watchers_of_every_worker_get_what_a_sender_has_left_behind(
    distribution: Distribution,
) -> None:
    fleet = Fleet(2, attrs.evolve(SHOP, distribution=distribution))
    far, near = fleet[1].connect(), fleet[2].connect()
    watches = far.watch("shop.*"), near.watch("#.eu")
    fleet.settle()
    publisher = fleet[2].connect()
    publisher.attach_sender(None).send(b"one", b"two", address="shop.eu", settled=True)
    publisher.lose()
    fleet.settle()
    assert [watch.addresses for watch in watches] == [{"shop.eu"}, {"shop.eu"}]
    first = far.attach_receiver("shop.eu", credit=10)
    fleet.settle()
    second = near.attach_receiver("shop.eu", credit=10)
    fleet.settle()
    everything = [b"one", b"two"]
    if distribution is Distribution.MULTICAST:
        assert first.payloads == second.payloads == everything
    else:
        assert sorted(first.payloads + second.payloads) == everything
    first.accept()
    second.accept()
    fleet.settle()
    fleet.wait(120)
    assert [watch.addresses for watch in watches] == [set(), set()]
