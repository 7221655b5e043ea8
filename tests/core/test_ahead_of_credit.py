"""On exactly-once routes what publishers without credit have settled is taken ahead of credit."""

import attrs
import pytest

from router.core.credit import AHEAD_DELIVERIES, AHEAD_OCTETS
from router.core.policy import PeerLimits, Policy, PolicyRule
from router.core.reach import sibling_name
from router.core.settings import CoreSettings
from router.model.capabilities import Capabilities, Protocol
from router.model.events import OutputPending
from router.routes.route import Distribution, Guarantee, InDoubt, Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.journaled import EXACT, Journaled
from tests.support.play import AMQP, Play, ReceiverEnd, SenderEnd, table

BASIC = Capabilities(protocol=Protocol.AMQP_0_9_1, names_itself=False, sends_ahead=True)
"""What a client of 0-9-1 can do, as far as it matters here."""

PLAIN = Route(address="orders")


def publisher(play: Play, name: str = "shop") -> SenderEnd:
    return play.connect(name, capabilities=BASIC).attach_sender()


def publish(end: SenderEnd, count: int, octets: int = 1) -> list[bytes]:
    """Publishes without confirms; the payloads differ."""
    payloads = [b"%d" % at + b"x" * octets for at in range(count)]
    end.send(*payloads, settled=True)
    return payloads


def accept_all(play: Journaled, end: ReceiverEnd) -> None:
    """Lets a receiver take everything."""
    for _ in range(1000):
        play.flush()
        if not end.unsettled:
            return
        end.accept()
        end.grant(end.credit + 10)
    raise AssertionError("it never ends")


# What is taken ahead


def test_nobody_has_to_receive_and_a_crash_loses_nothing() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    assert (shop.credit, bool(shop.ahead)) == (0, True)
    payloads = publish(shop, 100)
    play.flush()
    after = play.crash()
    store = after.connect("store").attach_receiver(credit=10)
    accept_all(after, store)
    assert store.payloads == payloads
    assert not after.remembered()


def test_what_was_never_sent_is_no_further_attempt_after_a_restart() -> None:
    play = Journaled(EXACT)
    publish(publisher(play), 3)
    play.flush()
    after = play.crash()
    again = after.crash()
    store = again.connect("store").attach_receiver(credit=10)
    again.flush()
    assert [each.delivery_count for each in store.received] == [None] * 3


def test_what_waited_at_the_gate_and_was_taken_back_is_no_further_attempt_after_a_restart() -> None:
    play = Journaled(EXACT)
    store = play.connect("store")
    first = store.attach_receiver(credit=10)
    play.flush()
    publish(publisher(play), 3)
    store.lose()  # before the journal has let the transfers go
    assert not first.payloads
    play.flush()
    after = play.crash()
    late = after.connect("late").attach_receiver(credit=10)
    after.flush()
    assert [each.delivery_count for each in late.received] == [None] * 3


@pytest.mark.parametrize("crashes", [1, 2])
def test_what_may_have_arrived_is_a_further_attempt_after_a_restart(crashes: int) -> None:
    play = Journaled(attrs.evolve(EXACT, in_doubt=InDoubt.RESEND))
    store = play.connect("store")
    first = store.attach_receiver(credit=10)
    publish(publisher(play), 3)
    play.flush()
    assert len(first.payloads) == 3
    store.lose()
    play.flush()
    for _ in range(crashes):
        play = play.crash()
        play.flush()
    late = play.connect("late").attach_receiver(credit=10)
    play.flush()
    assert [each.delivery_count for each in late.received] == [1] * 3


def test_what_goes_beyond_the_credit_of_receivers_outlives_the_worker() -> None:
    play = Journaled(EXACT)
    early = play.connect("store").attach_receiver(credit=3)
    shop = publisher(play)
    assert shop.credit == 3
    payloads = publish(shop, 10)
    play.flush()
    assert early.payloads == payloads[:3]
    early.accept()
    play.flush()
    after = play.crash()
    late = after.connect("store").attach_receiver(credit=10)
    accept_all(after, late)
    assert late.payloads == payloads[3:]


def test_it_goes_to_receivers_in_order_as_they_give_credit() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    payloads = publish(shop, 10)
    store = play.connect("store").attach_receiver(credit=3)
    payloads += publish(shop, 10)
    accept_all(play, store)
    assert store.payloads == payloads


@pytest.mark.parametrize("guarantee", [Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE])
def test_other_routes_take_nothing_ahead(guarantee: Guarantee) -> None:
    play = Play(Route(address="orders", guarantee=guarantee))
    play.connect("store").attach_receiver(credit=3)
    shop = publisher(play)
    assert (shop.credit, shop.ahead) == (3, None)


def test_senders_with_credit_of_their_own_send_nothing_ahead() -> None:
    play = Journaled(EXACT)
    play.connect("store").attach_receiver(credit=3)
    shop = play.connect("shop", capabilities=AMQP).attach_sender()
    play.flush()
    assert (shop.credit, shop.ahead) == (3, None)


@pytest.mark.parametrize(
    "limits", [PeerLimits(messages_per_second=5), PeerLimits(unsettled_per_link=5)]
)
def test_a_limit_that_withholds_credit_lets_nothing_come_ahead(limits: PeerLimits) -> None:
    rule = PolicyRule(name="all", send=("#",), receive=("#",), limits=limits)
    play = Play(EXACT, policy=Policy((rule,)))
    shop = publisher(play)
    assert shop.ahead is None


@pytest.mark.parametrize("distribution", list(Distribution))
def test_every_distribution_takes_it(distribution: Distribution) -> None:
    play = Journaled(attrs.evolve(EXACT, distribution=distribution))
    shop = publisher(play)
    payloads = publish(shop, 10)
    store = play.connect("store").attach_receiver(credit=3)
    accept_all(play, store)
    assert store.payloads == payloads


def test_a_route_that_rejects_what_nobody_takes_drops_it() -> None:
    play = Journaled(attrs.evolve(EXACT, unroutable=Unroutable.REJECT))
    shop = publisher(play)
    publish(shop, 10)
    play.flush()
    assert "delivery.dropped" in play.events()
    assert not play.remembered()


def test_a_paused_route_takes_it_and_lets_it_go_when_it_goes_on() -> None:
    play = Journaled(EXACT)
    store = play.connect("store").attach_receiver(credit=100)
    shop = publisher(play)
    play.carry_out(play.core.pause("orders", play.now))
    shop.give_back_credit()
    payloads = publish(shop, 10)
    play.flush()
    assert store.payloads == []
    play.carry_out(play.core.resume("orders", play.now))
    play.flush()
    assert store.payloads == payloads


def test_a_reload_that_changes_the_guarantee_changes_what_comes_ahead() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    told = [shop.ahead]
    for route in (PLAIN, EXACT):
        play.carry_out(play.core.configure(table(route), play.now))
        told.append(shop.ahead)
    assert told == [AHEAD_DELIVERIES, None, AHEAD_DELIVERIES]


@pytest.mark.parametrize("receives", [False, True])
def test_a_drain_takes_what_was_read_and_reads_on_only_from_who_receives(receives: bool) -> None:
    play = Journaled(EXACT)
    play.connect("store").attach_receiver(credit=3)
    shop = publisher(play)
    if receives:
        shop.peer.attach_receiver(credit=0)
    publish(shop, 10)
    play.flush()
    play.carry_out(play.core.drain(play.now))
    assert bool(shop.ahead) is receives
    publish(shop, 10)
    play.flush()
    assert len(play.remembered()) == 20


# How much


def big(end: SenderEnd, octets: int) -> None:
    """Publishes payloads of together so many octets, and a few more."""
    publish(end, octets >> 16, 1 << 16)


def test_a_publisher_is_stopped_when_enough_waits_and_goes_on_when_half_has_gone() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    big(shop, AHEAD_OCTETS // 2)
    assert shop.ahead
    big(shop, AHEAD_OCTETS)
    assert shop.ahead == 0
    store = play.connect("store").attach_receiver(credit=1000)
    play.flush()
    assert shop.ahead == 0
    store.accept(*list(store.unsettled)[:10])
    assert shop.ahead == 0
    store.accept()
    play.flush()
    assert shop.ahead


def test_what_stops_one_link_stops_all_of_its_connection_and_those_that_come_later() -> None:
    play = Journaled(Route(address="orders.#", guarantee=Guarantee.EXACTLY_ONCE))
    peer = play.connect("shop", capabilities=BASIC)
    first, second = peer.attach_sender("orders.a"), peer.attach_sender("orders.b")
    other = play.connect("other", capabilities=BASIC).attach_sender("orders.c")
    big(first, 2 * AHEAD_OCTETS)
    third = peer.attach_sender("orders.d")
    assert (second.ahead, third.ahead) == (0, 0)
    assert other.ahead
    store = play.connect("store").attach_receiver("orders.a", credit=1000)
    play.flush()
    store.accept()
    play.flush()
    assert first.ahead
    assert second.ahead
    assert third.ahead


def test_the_budget_of_a_connection_counts_if_it_is_smaller() -> None:
    settings = CoreSettings(router_id="dc1", connection_octets=1 << 17)
    play = Journaled(EXACT, settings=settings)
    shop = publisher(play)
    big(shop, 1 << 17)
    assert shop.ahead == 0
    assert shop.held


def test_all_publishers_together_leave_half_of_the_budget_of_the_process() -> None:
    settings = CoreSettings(router_id="dc1", process_octets=4 << 20, connection_octets=4 << 20)
    play = Journaled(EXACT, settings=settings)
    shops = [publisher(play, f"shop{number}") for number in range(4)]
    for shop in shops[:3]:
        big(shop, 1 << 20)
    assert [shop.ahead for shop in shops] == [0] * 4
    assert not any(shop.held for shop in shops)
    store = play.connect("store").attach_receiver(credit=1000)
    play.flush()
    store.accept()
    play.flush()
    assert all(shop.ahead for shop in shops)


def test_while_the_journal_cannot_write_nothing_comes_ahead() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    play.carry_out(play.core.journal_stuck(is_stuck=True, now=play.now))
    assert shop.ahead == 0
    play.carry_out(play.core.journal_stuck(is_stuck=False, now=play.now))
    assert shop.ahead


# Budgets, whoever sends


def test_a_link_that_is_attached_while_its_connection_is_held_is_held_too() -> None:
    settings = CoreSettings(router_id="dc1", connection_octets=1 << 16)
    play = Play("orders.#", settings=settings)
    play.connect("store").attach_receiver("orders.a", credit=10)
    peer = play.connect("shop")
    first = peer.attach_sender("orders.a")
    first.send(b"x" * (1 << 16))
    assert first.held
    second = peer.attach_sender("orders.b")
    assert second.held


def test_a_drain_holds_windows_at_the_budget_too() -> None:
    settings = CoreSettings(router_id="dc1", connection_octets=1 << 16)
    play = Play("orders", settings=settings)
    store = play.connect("store").attach_receiver(credit=10)
    shop = play.connect("shop").attach_sender()
    play.carry_out(play.core.drain(play.now))
    shop.send(b"x" * (1 << 16))
    assert shop.held
    store.accept()
    assert not shop.held


# Over two workers: the link leads through to the first


def far_publisher(fleet: Fleet) -> SenderEnd:
    end = fleet[2].connect("shop", capabilities=BASIC).attach_sender("orders", name="out")
    fleet.settle()
    return end


def waiting(fleet: Fleet) -> int:
    """How many deliveries wait at the first worker."""
    node = fleet[1].core._registry.find("orders")
    return 0 if node is None else sum(len(feed.waiting) for feed in node.rotation)


def take(fleet: Fleet, worker: int) -> list[bytes]:
    """A receiver at a worker takes everything that is there."""
    store = fleet[worker].connect("store").attach_receiver("orders", name="in", credit=10)
    fleet.settle()
    for _ in range(1000):
        if not store.unsettled:
            return store.payloads
        store.accept()
        store.grant(store.credit + 10)
        fleet.settle()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("worker", [1, 2])
@pytest.mark.parametrize("credit", [0, 3])
def test_what_comes_to_another_worker_is_at_the_first_ahead_of_credit(
    credit: int, worker: int
) -> None:
    fleet = Fleet(2, EXACT)
    early = fleet[1].connect("early").attach_receiver("orders", credit=credit)
    shop = far_publisher(fleet)
    assert (shop.credit, bool(shop.ahead)) == (credit, True)
    payloads = publish(shop, 2500)
    fleet.settle()
    assert waiting(fleet) == 2500 - credit
    assert shop.ahead
    payloads += publish(shop, 10)
    fleet.settle()
    early.accept()
    early.detach()
    assert early.payloads + take(fleet, worker) == payloads


def test_what_a_publisher_left_at_another_worker_is_at_the_first() -> None:
    fleet = Fleet(2, EXACT)
    shop = far_publisher(fleet)
    payloads = publish(shop, 2500)
    shop.detach()
    fleet.settle()
    assert waiting(fleet) == 2500
    assert fleet[2].core._parts.passages.count == 0
    assert take(fleet, 1) == payloads


def test_a_publisher_at_another_worker_is_stopped_when_enough_waits_at_the_first() -> None:
    fleet = Fleet(2, EXACT)
    shop = far_publisher(fleet)
    sent: list[bytes] = []
    while shop.ahead:
        sent += publish(shop, 4, 1 << 16)
        fleet.settle()
        assert len(sent) << 16 < 4 * AHEAD_OCTETS
    assert len(sent) << 16 >= AHEAD_OCTETS
    sent += publish(shop, 4, 1 << 16)  # it had been read
    fleet.settle()
    assert take(fleet, 2) == sent
    assert shop.ahead


def test_a_flood_at_another_worker_stops_until_the_first_has_asked_for_it() -> None:
    fleet = Fleet(2, EXACT)
    shop = far_publisher(fleet)
    sent = publish(shop, 2000, 1 << 10)
    assert shop.ahead == 0
    fleet.settle()
    assert shop.ahead
    assert take(fleet, 1) == sent


def test_while_output_to_the_first_has_piled_up_nothing_goes_there_ahead_of_credit() -> None:
    fleet = Fleet(2, EXACT)
    shop = far_publisher(fleet)
    connections = fleet[2].core._registry.connections.values()
    home = next(each for each in connections if each.configured == sibling_name(1))
    fleet[2].carry_out(fleet[2].core.handle(home.id, [OutputPending(True)], 0.0))
    sent = publish(shop, 8, 1 << 16)
    fleet.settle()
    assert (waiting(fleet), shop.ahead) == (0, 0)
    fleet[2].carry_out(fleet[2].core.handle(home.id, [OutputPending(False)], 0.0))
    fleet.settle()
    assert (waiting(fleet), bool(shop.ahead)) == (8, True)
    assert take(fleet, 1) == sent


def test_what_needs_an_outcome_keeps_its_place_on_the_way_to_the_first() -> None:
    fleet = Fleet(2, EXACT)
    store = fleet[1].connect("store").attach_receiver("orders", credit=2)
    shop = far_publisher(fleet)
    shop.send("a", settled=True)
    shop.send("b")
    shop.send("c", "d", settled=True)
    fleet.settle()
    store.accept()
    store.grant(10)
    fleet.settle()
    assert store.payloads == [b"a", b"b", b"c", b"d"]
    assert shop.outcome(next(iter(shop.told))) is not None


def test_credit_that_is_asked_back_stops_nothing_for_good() -> None:
    fleet = Fleet(2, EXACT)
    store = fleet[1].connect("store").attach_receiver("orders", credit=5)
    shop = far_publisher(fleet)
    store.grant(0)
    fleet.settle()
    assert shop.was_drained()
    shop.give_back_credit()
    fleet.settle()
    assert (shop.credit, bool(shop.ahead)) == (0, True)
    payloads = publish(shop, 20)
    fleet.settle()
    assert waiting(fleet) == 20
    store.detach()
    assert take(fleet, 1) == payloads


# What a protocol confirms all the same


def test_a_publisher_hears_that_it_is_on_record_when_it_is_durable() -> None:
    play = Journaled(EXACT)
    shop = publisher(play)
    publish(shop, 3)
    shop.await_record()
    publish(shop, 3)
    assert shop.records_reported == 0
    play.flush()
    assert shop.records_reported == 1
    shop.await_record()
    assert shop.records_reported == 2


def test_on_other_routes_it_hears_so_at_once() -> None:
    shop = publisher(Play(PLAIN))
    shop.await_record()
    assert shop.records_reported == 1


def exact_fleet() -> tuple[Fleet, Journaled]:
    fleet = Fleet(2, EXACT, make=Journaled)
    first = fleet[1]
    assert isinstance(first, Journaled)
    return fleet, first


def test_a_publisher_at_another_worker_hears_so_when_it_is_durable_at_the_first() -> None:
    fleet, first = exact_fleet()
    shop = far_publisher(fleet)
    publish(shop, 3)
    shop.await_record()
    fleet.settle()
    assert (waiting(fleet), shop.records_reported) == (3, 0)
    first.flush()
    fleet.settle()
    assert shop.records_reported == 1


def test_what_is_queued_on_the_way_to_the_first_is_asked_about_behind_it() -> None:
    fleet, first = exact_fleet()
    shop = far_publisher(fleet)
    connections = fleet[2].core._registry.connections.values()
    home = next(each for each in connections if each.configured == sibling_name(1))
    fleet[2].carry_out(fleet[2].core.handle(home.id, [OutputPending(True)], 0.0))
    publish(shop, 8)
    shop.await_record()
    fleet.settle()
    first.flush()
    fleet.settle()
    assert (waiting(fleet), shop.records_reported) == (0, 0)
    fleet[2].carry_out(fleet[2].core.handle(home.id, [OutputPending(False)], 0.0))
    fleet.settle()
    assert (waiting(fleet), shop.records_reported) == (8, 0)
    first.flush()
    fleet.settle()
    assert shop.records_reported == 1
