"""Stored routes that are passed through: the store has messages only while no target takes them."""

import attrs
import pytest

from router.core.node import Taker
from router.core.stored import STORE
from router.core.storing import LOOK_SECONDS, SETTLE_SECONDS, START_SECONDS
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.routes.route import Distribution, Endpoint, Route, Storing
from router.routes.table import RoutingTable
from tests.support.play import RESUMING, Peer, Play, ReceiverEnd, SenderEnd

ROUTE = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(),
    dead_letter=Endpoint("cloud", "dead"),
)
BRIDGE = attrs.evolve(ROUTE, address="orders", name="orders", from_=Endpoint("east"))
ADDRESS = "telemetry.a"


class Stage:
    """A sender, the store and a target of one address."""

    def __init__(self, route: Route = ROUTE, *, credit: int = 10, resumes: bool = False) -> None:
        self.resumes = resumes
        self.play = Play(route)
        self.store = self.play.dial(STORE)
        self.cloud = self.dial()
        self.sender = self.play.connect().attach_sender(ADDRESS)
        self.shelf = self.store.answer_receiver(ADDRESS, credit=10)
        self.target = self.cloud.answer_receiver(ADDRESS, credit=credit)

    def dial(self) -> Peer:
        """The target's container is connected."""
        return (
            self.play.dial("cloud", capabilities=RESUMING)
            if self.resumes
            else self.play.dial("cloud")
        )

    @property
    def taker(self) -> Taker | None:
        """Who is sent messages now."""
        found = [
            node
            for node in self.play.core._registry.nodes.values()
            if node.key.address in {ADDRESS, "orders"} and node.taker is not None
        ]
        return found[0].taker if found else None

    def stored(self) -> SenderEnd:
        """The store attaches the link of its messages."""
        return self.store.attach_sender(ADDRESS)


def test_a_target_that_takes_messages_gets_them_past_the_store() -> None:
    stage = Stage()
    (number,) = stage.sender.send("1")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1"], [])
    stage.target.accept()
    assert stage.sender.outcome(number) == (ACCEPTED, True)


def test_what_a_target_rejects_on_the_way_past_the_store_its_sender_hears() -> None:
    stage = Stage()
    (number,) = stage.sender.send("1")
    stage.target.update(stage.target.last.number, state=Rejected(), settled=True)
    assert stage.sender.outcome(number) == (Rejected(), True)


def test_nothing_passes_before_the_store_has_said_what_it_holds() -> None:
    play = Play(ROUTE)
    cloud = play.dial("cloud")
    sender = play.connect().attach_sender(ADDRESS)
    target = cloud.answer_receiver(ADDRESS, credit=5)
    assert sender.credit == 0
    store = play.dial(STORE)
    inlet = store.attach_sender(ADDRESS)
    shelf = store.answer_receiver(ADDRESS, credit=5)
    sender.send("2")
    assert (target.payloads, shelf.payloads) == ([], [b"2"])
    forwarding = cloud.answer_receiver(ADDRESS, credit=5)
    inlet.send("1")
    assert forwarding.payloads == [b"1"]


def test_messages_are_stored_while_the_target_is_away_and_pass_when_the_store_is_empty() -> None:
    stage = Stage()
    stage.cloud.lose()
    (number,) = stage.sender.send("1")
    assert stage.shelf.payloads == [b"1"]
    inlet = stage.stored()
    stage.shelf.accept()
    assert stage.sender.outcome(number) == (ACCEPTED, True)
    cloud = stage.dial()
    direct, forwarding = _both(cloud)
    stage.sender.send("2")
    assert (direct.payloads, stage.shelf.payloads) == ([], [b"1", b"2"])
    inlet.send("1", "2")
    forwarding.accept()
    stage.shelf.accept()
    inlet.detach()
    stage.sender.send("3")
    assert direct.payloads == [b"3"]


def _both(cloud: Peer) -> tuple[ReceiverEnd, ReceiverEnd]:
    """Answers the links to a target: that of the senders, and that of the store."""
    ends = [cloud.answer_receiver(ADDRESS, credit=10), cloud.answer_receiver(ADDRESS, credit=10)]
    ends.sort(key=lambda end: "$>" in end.name)
    return ends[0], ends[1]


def test_what_was_on_its_way_to_a_lost_target_is_stored_before_what_came_since() -> None:
    stage = Stage(credit=2)
    stage.sender.send("1", "2")
    stage.sender.send("3")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1", b"2"], [])
    stage.cloud.lose()
    assert stage.shelf.payloads == [b"1", b"2", b"3"]


def test_a_target_that_grants_no_credit_is_passed_over_after_a_while() -> None:
    stage = Stage(credit=1)
    stage.sender.send("1")
    stage.target.accept()
    stage.sender.send("2")
    assert (stage.taker, stage.shelf.payloads) == (Taker.TARGETS, [])
    stage.play.wait(3 * LOOK_SECONDS)
    assert (stage.taker, stage.shelf.payloads) == (Taker.STORE, [b"2"])


def test_what_is_under_way_to_such_a_target_is_awaited_before_others_are_stored() -> None:
    stage = Stage(credit=1)
    stage.sender.send("1")
    stage.sender.send("2")
    stage.play.wait(2 * LOOK_SECONDS + 0.1)
    assert (stage.taker, stage.shelf.payloads) == (Taker.NOBODY, [])
    stage.target.update(stage.target.last.number, state=RELEASED, settled=True)
    assert stage.shelf.payloads == [b"1", b"2"]


def test_a_target_that_answers_nothing_does_not_hold_up_others_for_long() -> None:
    stage = Stage(credit=1)
    stage.sender.send("1")
    stage.sender.send("2")
    stage.play.wait(2 * LOOK_SECONDS + SETTLE_SECONDS + 1)
    assert (stage.taker, stage.shelf.payloads) == (Taker.STORE, [b"2"])
    stage.target.accept()
    assert len(stage.shelf.payloads) == 1


def test_what_a_target_returns_is_stored_and_what_comes_next_behind_it() -> None:
    stage = Stage()
    stage.sender.send("1")
    stage.target.update(stage.target.last.number, state=RELEASED, settled=True)
    stage.sender.send("2")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1"], [b"1", b"2"])


def test_others_wait_until_all_that_was_on_its_way_has_come_back() -> None:
    stage = Stage()
    stage.sender.send("1", "2")
    first, second = (each.number for each in stage.target.received)
    stage.target.update(first, state=RELEASED, settled=True)
    stage.sender.send("3")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1", b"2"], [])
    stage.target.update(second, state=RELEASED, settled=True)
    assert stage.shelf.payloads == [b"1", b"2", b"3"]


def test_a_target_that_resumes_its_link_has_a_moment_to_come_back() -> None:
    stage = Stage(resumes=True)
    (number,) = stage.sender.send("1")
    stage.cloud.lose()
    stage.sender.send("2")
    assert stage.shelf.payloads == []
    stage.play.wait(SETTLE_SECONDS + 0.1)
    assert stage.shelf.payloads == [b"1", b"2"]
    stage.stored()
    stage.shelf.accept()
    assert stage.sender.outcome(number) == (ACCEPTED, True)


def test_messages_are_stored_soon_if_the_target_is_away_from_the_beginning() -> None:
    play = Play(ROUTE)
    store = play.dial(STORE)
    sender = play.connect().attach_sender(ADDRESS)
    shelf = store.answer_receiver(ADDRESS, credit=5)
    sender.send("1")
    assert shelf.payloads == [b"1"]


def test_a_target_that_is_being_attached_is_awaited_for_a_moment() -> None:
    play = Play(ROUTE)
    store, cloud = play.dial(STORE), play.dial("cloud")
    sender = play.connect().attach_sender(ADDRESS)
    shelf = store.answer_receiver(ADDRESS, credit=5)
    assert sender.credit == 0
    target = cloud.answer_receiver(ADDRESS)
    play.wait(START_SECONDS / 2)
    assert sender.credit == 0
    play.wait(START_SECONDS)
    sender.send("1")
    assert (target.payloads, shelf.payloads) == ([], [b"1"])


def test_a_lost_store_is_awaited_and_the_target_still_takes_what_comes() -> None:
    stage = Stage()
    stage.store.lose()
    stage.sender.send("1")
    assert stage.target.payloads == [b"1"]
    stage.target.accept()
    stage.cloud.lose()
    assert stage.taker is Taker.NOBODY
    store = stage.play.dial(STORE)
    shelf = store.answer_receiver(ADDRESS, credit=5)
    stage.sender.send("2")
    assert shelf.payloads == [b"2"]


def test_nothing_passes_while_the_store_that_holds_something_is_away() -> None:
    stage = Stage()
    stage.cloud.lose()
    stage.sender.send("1")
    stage.stored()
    stage.shelf.accept()
    stage.store.lose()
    direct, _ = _both(stage.dial())
    assert (stage.taker, stage.sender.credit) == (Taker.STORE, 0)
    store = stage.play.dial(STORE)
    store.attach_sender(ADDRESS)
    shelf = store.answer_receiver(ADDRESS, credit=5)
    stage.sender.send("2")
    assert (direct.payloads, shelf.payloads) == ([], [b"2"])


def test_a_bridge_passes_the_store_by() -> None:
    play = Play(BRIDGE)
    store, east, cloud = play.dial(STORE), play.dial("east"), play.dial("cloud")
    source = east.answer_sender("orders")
    shelf = store.answer_receiver("orders", credit=5)
    target = cloud.answer_receiver("orders", credit=5)
    source.send("1")
    assert (target.payloads, shelf.payloads) == ([b"1"], [])
    cloud.lose()
    source.send("2")
    assert shelf.payloads == [b"1", b"2"]


def test_a_multicast_to_several_targets_is_always_stored() -> None:
    route = attrs.evolve(
        ROUTE,
        to=(Endpoint("cloud"), Endpoint("east")),
        distribution=Distribution.MULTICAST,
    )
    assert not route.passes_through
    assert attrs.evolve(route, distribution=Distribution.BALANCED).passes_through


@pytest.mark.parametrize("answers", [True, False])
def test_a_reload_to_always_stores_what_comes_from_then_on(answers: bool) -> None:
    """Once the target has answered what it was sent, or has not for 5 seconds."""
    stage = Stage()
    stage.sender.send("1")
    always = attrs.evolve(ROUTE, store=Storing(always=True))
    stage.play.carry_out(stage.play.core.configure(RoutingTable([always]), stage.play.now))
    stage.sender.send("2")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1"], [])
    if answers:
        stage.target.accept()
    else:
        stage.play.wait(SETTLE_SECONDS)
    stage.sender.send("3")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1"], [b"2", b"3"])


def test_a_reload_that_removes_the_store_lets_what_is_on_its_way_there_finish() -> None:
    stage = Stage()
    stage.cloud.lose()
    stage.sender.send("1")
    plain = attrs.evolve(ROUTE, store=None, dead_letter=None)
    stage.play.carry_out(stage.play.core.configure(RoutingTable([plain]), stage.play.now))
    cloud = stage.dial()
    direct = cloud.answer_receiver(ADDRESS, credit=10)
    inlet = stage.stored()
    stage.shelf.accept()
    forwarding = cloud.answer_receiver(ADDRESS, credit=10)
    inlet.send("1")
    assert (direct.payloads, forwarding.payloads) == ([], [b"1"])
    forwarding.accept()
    inlet.detach()
    stage.play.wait(1)
    stage.sender.send("2")
    assert direct.payloads == [b"2"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_node_without_senders_ends_whoever_took_its_messages(is_stored: bool) -> None:
    stage = Stage()
    if is_stored:
        stage.cloud.lose()
    stage.sender.detach()
    stage.play.wait(120)
    stage.play.wait(120)
    nodes = stage.play.core._registry.nodes
    assert not [key for key in nodes if key.address == ADDRESS]


def test_what_is_pulled_by_a_pattern_is_stored_or_passed_on_by_the_address_of_each() -> None:
    route = attrs.evolve(BRIDGE, address="prices/#", name="prices", from_=Endpoint("east"))
    play = Play(route)
    store, east, cloud = play.dial(STORE), play.dial("east"), play.dial("cloud")
    source = east.answer_sender("prices/#")
    source.send("1", address="prices/eu")
    shelf = store.answer_receiver("prices/eu", credit=5)
    target = cloud.answer_receiver("prices/eu", credit=5)
    assert (target.payloads, shelf.payloads) == ([b"1"], [])
    target.accept()
    cloud.lose()
    source.send("2", address="prices/eu")
    source.send("3", address="prices/us")
    other = store.answer_receiver("prices/us", credit=5)
    assert (shelf.payloads, other.payloads) == ([b"2"], [b"3"])
    shelf.accept()
    other.accept()
    assert not source.unsettled


def test_a_target_is_used_again_if_a_reload_wants_it_before_its_link_has_ended() -> None:
    stage = Stage()
    stage.sender.send("1")
    for store in (Storing(always=True), Storing()):
        route = attrs.evolve(ROUTE, store=store)
        stage.play.carry_out(stage.play.core.configure(RoutingTable([route]), stage.play.now))
    stage.sender.send("2")
    assert (stage.target.payloads, stage.shelf.payloads) == ([b"1", b"2"], [])
