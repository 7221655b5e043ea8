"""The bounds of a route, whatever its links are: stored + on its way + credit is never more."""

import random

import pytest

from router.journal.store.queues import Bounds, Full
from router.links.sharing import IDLE_SECONDS
from router.model.commands import DetachLink, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, MODIFIED_UNDELIVERABLE, RELEASED, Rejected
from router.net.store.burials import Cause
from router.net.store.room import WINDOW
from tests.support.shelved import KEY, SHELF, Shelved, tag

SHELVES = [LinkId(SHELF + number) for number in range(6)]


def address_of(link: LinkId) -> str:
    return f"telemetry.{link - SHELF}"


class Filling(Shelved):
    """Knows what its senders may send, as the core does."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds=bounds)
        self.seen = self.number = self.on_the_way = 0
        self.may_send: dict[LinkId, int] = {}

    def join(self, link: LinkId) -> None:
        """A link of another address is attached."""
        self.attach(link, address_of(link))
        self.may_send[link] = 0

    def follow_credit(self) -> dict[LinkId, int]:
        """Returns the credit of all links."""
        for each in self.events[self.seen :]:
            if isinstance(each, CreditGranted) and each.link in self.may_send:
                self.may_send[each.link] = each.credit
        self.seen = len(self.events)
        return self.may_send

    def send(self, link: LinkId, count: int, octets: int = 0) -> None:
        """Sends some messages, within credit."""
        assert count <= self.follow_credit()[link]
        self.may_send[link] -= count
        numbers = range(self.number, self.number + count)
        self.number += count
        made = [
            OutgoingDelivery(DeliveryNumber(n), tag(n), b"%08d".rjust(octets, b".") % n)
            for n in numbers
        ]
        self.order(SendDeliveries(link, made))

    @property
    def octets(self) -> int:
        """Returns what is stored of the route."""
        return self.log.store.holdings.route(KEY).octets


def test_several_links_are_never_granted_more_than_a_route_may_store() -> None:
    filling = Filling(Bounds(messages=2000))
    for link in SHELVES:
        filling.join(link)
    while any(filling.follow_credit().values()):
        link = max(SHELVES, key=lambda each: filling.may_send[each])
        filling.send(link, filling.may_send[link])
        assert filling.messages + sum(filling.follow_credit().values()) <= 2000
    assert filling.messages == 2000


def test_a_link_alone_may_send_all_that_a_route_may_store() -> None:
    filling = Filling(Bounds(messages=2000))
    filling.join(SHELF)
    filling.send(SHELF, WINDOW)
    filling.send(SHELF, WINDOW)
    assert (filling.messages, filling.follow_credit()[SHELF]) == (2000, 0)


def test_what_a_target_takes_is_room_at_once() -> None:
    filling = Filling(Bounds(messages=10))
    filling.join(SHELF)
    filling.send(SHELF, 10)
    link = filling.answer(100, address=address_of(SHELF))
    filling.outcome(link, ACCEPTED, 0, 1, 2)
    assert filling.follow_credit()[SHELF] == 3
    filling.outcome(link, RELEASED, 3)
    assert filling.follow_credit()[SHELF] == 3


def test_what_somebody_forgets_is_room() -> None:
    filling = Filling(Bounds(messages=10))
    filling.join(SHELF)
    filling.send(SHELF, 10)
    filling.forget(list(filling.log.store.claims(KEY))[:4])
    filling.wait(2.0)
    assert filling.follow_credit()[SHELF] == 4


def test_links_that_send_nothing_do_not_hold_the_room() -> None:
    filling = Filling(Bounds(messages=600))
    for link in SHELVES:
        filling.join(link)
    assert filling.follow_credit()[SHELF] == 100
    filling.send(SHELF, 100)
    filling.wait(IDLE_SECONDS)
    while count := filling.follow_credit()[SHELF]:
        filling.send(SHELF, count)
        filling.wait(IDLE_SECONDS)
    assert filling.messages >= 595, "the others may send one each"


def test_what_was_granted_to_a_link_that_ends_is_free() -> None:
    filling = Filling(Bounds(messages=100))
    filling.join(SHELVES[0])
    filling.join(SHELVES[1])
    filling.order(DetachLink(SHELVES[0], True))
    filling.send(SHELVES[1], 50)
    assert filling.follow_credit()[SHELVES[1]] == 50


def test_a_route_that_may_store_less_from_now_on_takes_credit_back() -> None:
    filling = Filling(Bounds(messages=1000))
    filling.join(SHELF)
    filling.send(SHELF, 10)
    filling.engine.follow({KEY: Bounds(messages=30)}, (KEY,))
    filling.exchange()
    assert filling.follow_credit()[SHELF] == 20
    filling.engine.follow({KEY: Bounds(messages=5)}, (KEY,))
    filling.exchange()
    assert filling.follow_credit()[SHELF] == 0
    filling.engine.follow({KEY: Bounds()}, (KEY,))
    filling.exchange()
    assert filling.follow_credit()[SHELF] == WINDOW


def test_a_route_that_drops_its_oldest_has_room_for_a_quarter_of_dead_letters() -> None:
    filling = Filling(Bounds(messages=40, full=Full.DROP_OLDEST))
    for link in SHELVES[:2]:
        filling.join(link)
    while any(filling.follow_credit().values()):
        link = max(SHELVES[:2], key=lambda each: filling.may_send[each])
        filling.send(link, filling.may_send[link])
    assert filling.messages == 50, "senders wait then"
    assert sum(each.dead for each in filling.engine.inlets.delays().values()) == 10
    for link in SHELVES[:2]:
        address = address_of(link)
        if (address, True) in filling.inlets():
            filling.accept_all(filling.answer(100, is_dead=True, address=address))
    assert filling.messages + sum(filling.follow_credit().values()) == 50


def test_credit_is_for_as_many_messages_as_fit_by_their_mean_size() -> None:
    filling = Filling(Bounds(octets=1 << 20))
    filling.join(SHELF)
    first = filling.follow_credit()[SHELF]
    assert first == 16, "of messages of 64 KiB, before one is known"
    filling.send(SHELF, 4, octets=10_000)
    assert 95 < filling.follow_credit()[SHELF] < 101
    while count := filling.follow_credit()[SHELF]:
        filling.send(SHELF, min(count, 10), octets=10_000)
    assert 1 << 20 <= filling.octets < (1 << 20) + 11_000, "by less than one message"


def test_large_messages_behind_small_ones_are_reckoned_with_when_they_come() -> None:
    filling = Filling(Bounds(octets=1 << 20))
    filling.join(SHELF)
    filling.send(SHELF, 10, octets=100)
    filling.send(SHELF, 1, octets=100_000)
    assert filling.follow_credit()[SHELF] <= 10


def test_bounds_hold_whatever_comes_and_goes() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        most = chance.choice([3, 20, 500])
        filling = Filling(Bounds(messages=most))
        inlets: dict[LinkId, LinkId] = {}
        for _ in range(80):
            link = chance.choice(SHELVES)
            doing = chance.randrange(8)
            if link not in filling.may_send:
                filling.join(link)
            elif doing == 0:
                filling.order(DetachLink(link, True))
                del filling.may_send[link]
            elif doing < 5:
                filling.is_committing = chance.random() < 0.7
                filling.send(link, chance.randint(0, filling.follow_credit()[link]))
            elif doing == 5:
                filling.is_committing = True
                filling.commit()
                filling.exchange()
            elif doing == 6:
                filling.wait(chance.choice([0.1, 1.0]))
            elif (address_of(link), False) in filling.inlets():
                filling.is_committing = True
                inlets[link] = filling.answer(100, address=address_of(link))
                filling.accept_all(inlets[link])
            waits = sum(each.waiting for each in filling.engine.shelves._by_link.values())
            filling.follow_credit()
            assert filling.messages + sum(filling.may_send.values()) <= most, seed
            assert waits <= most


def test_what_becomes_a_dead_letter_is_counted_by_its_cause() -> None:
    filling = Filling(Bounds(messages=4, age_ns=10**9, full=Full.DROP_OLDEST))
    filling.join(SHELF)
    filling.send(SHELF, 5)
    link = filling.answer(2, address=address_of(SHELF))
    first = min(map(int, filling.sent(link)))
    filling.outcome(link, Rejected(), first)
    filling.wait(3.0)
    assert filling.engine.inlets.burials.deaths[KEY] == {
        Cause.DROPPED: 1,
        Cause.REJECTED: 1,
        Cause.EXPIRED: 2,
    }, "one is at its target"


@pytest.mark.parametrize(
    ("age_ns", "ttl_milliseconds"),
    [(10**9, 9000), (None, 500)],
    ids=["by its route", "by itself"],
)
def test_what_became_too_old_while_it_was_the_core_s_was_not_rejected(
    age_ns: int | None, ttl_milliseconds: int
) -> None:
    shelved = Shelved(bounds=Bounds(age_ns=age_ns))
    shelved.attach()
    shelved.put(1, 3, ttl_milliseconds=ttl_milliseconds)
    link = shelved.answer(3)
    assert shelved.sent(link) == [1, 2, 3]
    shelved.outcome(link, MODIFIED_UNDELIVERABLE, 1)
    shelved.seconds += 1.0
    shelved.outcome(link, MODIFIED_UNDELIVERABLE, 2)
    shelved.outcome(link, Rejected(), 3)
    burials = shelved.engine.inlets.burials
    assert burials.deaths[KEY] == {Cause.REJECTED: 2, Cause.EXPIRED: 1}
    assert shelved.engine.inlets.replay(None, None)[1] == 2, "what is too old stays a dead letter"
