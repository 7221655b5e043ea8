"""Exactly-once between sites: bind, chain, break, resume; in virtual time, with journals."""

import attrs
import pytest

from router.core.listing import DeliveryRecord, Filter
from router.core.mesh.names import VOUCHED
from router.core.resolve import Decision
from router.links.attaches import ATTACH
from router.links.link import OutgoingLink
from router.model.commands import AttachLink, RefuseLink
from router.model.condition import STOLEN, UNAUTHORIZED_ACCESS, Condition
from router.model.events import LinkAttached
from router.model.identity import DeliveryTag, LinkName
from router.model.outcome import ACCEPTED, RELEASED
from router.model.terminus import ExpiryPolicy, Role
from router.routes.route import Distribution, Unroutable
from tests.core.test_exactly_once import Receiver, Sender
from tests.support.exact_sites import EXACT, FOREVER, ExactSites
from tests.support.sites import Line, unreachable

PAIR: list[Line] = [("dc1", "dc5", 10)]
LINE: list[Line] = [("dc1", "dc2", 10), ("dc2", "dc4", 10), ("dc4", "dc5", 10)]
DIAMOND: list[Line] = [*LINE, ("dc1", "dc3", 25), ("dc3", "dc5", 25)]
SERVED = {"dc5": ["orders.#"]}
BOTH_SERVED = {**SERVED, "dc6": ["orders.#"]}


class World:
    """A sender at dc1 and a receiver at dc5."""

    def __init__(self, links: list[Line], advertise: dict[str, list[str]] = SERVED) -> None:
        self.sites = ExactSites(links, EXACT, advertise=advertise)
        self.receiver = Receiver(self.sites["dc5"], "receiver", False)
        self.sender = Sender(self.sites["dc1"], "sender", False)
        self.receiver.attach()
        self.sites.run(1.0)
        self.sender.attach()
        self.sites.run(1.0)

    def crash(self, name: str) -> None:
        """Kills a router, with the connections of its client."""
        after = self.sites.crash(name)
        for client in (self.receiver, self.sender):
            if client.play.settings.router_id == name:
                client.play, client.peer, client.is_cut = after, None, True

    def work(self, seconds: float = 0.1) -> None:
        """Lets both clients do what there is to do, and time pass."""
        for client in (self.receiver, self.sender):
            if client.is_cut:
                client.attach()
        for _ in range(4):
            self.receiver.catch_up()
            self.sender.go_on()
            self.sender.look()
            self.sender.settle()
            self.sites.run(seconds)

    def check(self, count: int) -> None:
        """Holds that so many were sent, all processed once, and nothing is left anywhere."""
        for _ in range(40):
            self.work(0.2)
        processed = self.receiver.processed
        assert all(times == 1 for times in processed.values())
        assert set(processed) == self.sender.sent == self.sender.accepted
        assert len(processed) == count
        assert not self.receiver.unsettled
        assert not self.sender.unsettled
        for name in self.sites.plays:
            assert not self.sites.remembered(name), name

    def send(self, *numbers: int) -> None:
        before = len(self.sender.sent)
        for number in numbers:
            self.sender.send(number)
        assert len(self.sender.sent) == before + len(numbers), "no credit"
        self.sites.settle()


def test_a_delivery_passes_to_a_neighbor_and_its_outcome_comes_back() -> None:
    world = World(PAIR)
    world.send(1)
    world.receiver.look()
    assert sum(world.receiver.processed.values()) == 1
    world.receiver.answer()
    world.sites.settle()
    world.sender.look()
    assert list(world.sender.unsettled.values()) == [ACCEPTED]
    world.check(1)


def test_a_delivery_passes_two_transits_that_keep_nothing_of_it() -> None:
    world = World(LINE)
    world.send(1, 2)
    for name in ("dc2", "dc4"):
        core = world.sites[name].core
        assert not core._registry.nodes
        assert not world.sites.remembered(name)
    world.check(2)


def test_a_cut_path_is_left_for_another_and_nothing_is_lost_or_doubled() -> None:
    leave_a_cut_path(World(DIAMOND))


def leave_a_cut_path(world: World) -> None:
    world.send(1, 2)
    world.receiver.look()
    world.receiver.answer()
    world.sites.cut("dc2", "dc4")
    world.sites.run(0.5)
    world.work()
    assert world.sites.transfers("dc3", "dc5") > 0
    world.check(2)


def test_a_chain_is_attached_again_when_its_only_path_comes_back() -> None:
    world = World(LINE)
    world.send(1, 2)
    world.sites.cut("dc4", "dc5")
    world.work()
    world.sites.run(20.0)
    world.sites.dial("dc4", "dc5")
    world.sites.run(5.0)
    world.check(2)


def test_the_end_of_a_chain_outlives_any_number_of_suspended_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ExactSites, "suspended_links", 3)
    world = World(LINE)
    world.send(1, 2)
    world.receiver.look()
    world.sites.cut("dc4", "dc5")
    egress = world.sites["dc5"]
    for number in range(10):
        peer = egress.connect(f"client-{number}")
        peer.attach_receiver(
            None, dynamic=True, policy=ExpiryPolicy.CONNECTION_CLOSE, seconds=FOREVER
        )
        peer.lose()
    waiting = egress.core._registry.waiting()
    assert len([link for link in waiting if isinstance(link, OutgoingLink)]) == 3
    world.sites.dial("dc4", "dc5")
    world.sites.run(5.0)
    world.check(2)


def test_transit_crashes() -> None:
    world = World(LINE)
    world.send(1, 2)
    world.receiver.look()
    world.crash("dc4")
    world.sites.come_back("dc4")
    world.sites.run(5.0)
    world.check(2)


def test_the_egress_crashes() -> None:
    world = World(LINE)
    world.send(1, 2)
    world.receiver.look()
    world.receiver.answer()
    world.crash("dc5")
    world.sites.run(2.0)
    world.sites.come_back("dc5")
    world.sites.run(5.0)
    world.check(2)


def test_the_ingress_crashes_and_finds_its_link_before_there_is_any_path() -> None:
    world = World(LINE)
    world.send(1, 2)
    world.receiver.look()
    world.crash("dc1")
    world.sites.run(2.0)
    world.sites.come_back("dc1")
    world.sites.run(5.0)
    world.check(2)


# What is bound


RIVALS: list[Line] = [("dc1", "dc2", 10), ("dc2", "dc5", 10), ("dc2", "dc6", 30)]


def rivals() -> tuple[World, Receiver]:
    """A sender at dc1, and receivers at two sites; gives the second."""
    world = World(RIVALS, BOTH_SERVED)
    other = Receiver(world.sites["dc6"], "other", False)
    other.attach()
    world.sites.run(1.0)
    return world, other


def doubts(world: World) -> list[DeliveryRecord]:
    lister = world.sites["dc1"].core.lister
    listed = lister.deliveries(Filter(), 100, None, world.sites["dc1"].now)
    return [each for each in listed.deliveries if each.state == "in doubt"]


def test_what_a_site_may_have_goes_to_no_other_and_names_it() -> None:
    world, other = rivals()
    world.send(1)
    assert len(world.receiver.end.received if world.receiver.end else ()) == 1
    world.sites.cut("dc2", "dc5")
    world.sites.run(30.0)
    assert other.end is not None
    assert not other.end.received
    (doubt,) = doubts(world)
    assert (doubt.to_container, doubt.to_link) == ("dc5", "dc1>dc5:orders")
    assert unreachable(world.sites["dc1"]) == 1
    world.send(2)  # what is new goes where there is a way
    assert len(other.end.received) == 1
    other.look()
    assert sum(other.processed.values()) == 1


def test_a_person_may_send_elsewhere_what_is_in_doubt() -> None:
    world, other = rivals()
    world.send(1)
    world.sites.cut("dc2", "dc5")
    world.sites.run(5.0)
    (doubt,) = doubts(world)
    play = world.sites["dc1"]
    tag = DeliveryTag(bytes.fromhex(doubt.tag))
    count, orders = play.core.resolve(tag, None, Decision.RESEND, play.now)
    play.carry_out(orders)
    world.sites.settle()
    assert count == 1
    assert other.end is not None
    assert len(other.end.received) == 1


def test_what_a_site_has_released_goes_to_another() -> None:
    world, other = rivals()
    world.receiver.says = RELEASED
    world.send(1)
    world.receiver.look()
    world.receiver.answer()
    world.sites.run(1.0)
    assert other.end is not None
    assert len(other.end.received) == 1


def test_what_a_site_never_got_goes_to_another_when_that_site_has_said_so() -> None:
    world, other = rivals()
    world.sites.silence("dc2", "dc5")
    world.send(1)
    assert world.receiver.end is not None
    assert not world.receiver.end.received
    world.receiver.end.detach()  # and so it has no receivers when it is back
    world.sites.run(10.0)
    assert other.end is not None
    assert not other.end.received
    world.sites.cut("dc2", "dc5")
    world.sites.dial("dc2", "dc5")
    world.sites.run(5.0)
    assert len(other.end.received) == 1


# Numbered attaches


def answers(world: World) -> int:
    """How many attaches of the chain dc5 has answered on its present connection."""
    (wire,) = (wire for wire in world.sites.wires if set(wire.ends) == {"dc4", "dc5"})
    end = wire.joints[wire.ends.index("dc5")]
    return sum(isinstance(each, AttachLink) and "#" in each.name for each in end.commands)


def test_the_egress_answers_a_numbered_attach_when_its_number_is_durable() -> None:
    """Else an attach with a lower number could be believed after a crash of the egress."""
    world = World(LINE)
    world.send(1)
    world.sites.cut("dc4", "dc5")
    world.sites.run(5.0)
    world.sites.flushes = False
    world.sites.dial("dc4", "dc5")
    for _ in range(20):
        world.sites.run(0.5)
        world.sites.flush("dc1")  # the ingress has drawn the number
        world.sites.settle()
    assert answers(world) == 0
    world.sites.flush("dc5")
    world.sites.settle()
    assert answers(world) == 1
    world.sites.flushes = True
    world.check(1)


# Late attaches, and forged ones


def chain_attach(world: World, **changes: object) -> LinkAttached:
    """Gives the attach of the chain as it came to dc5 last, for another link."""
    (wire,) = (wire for wire in world.sites.wires if set(wire.ends) == {"dc4", "dc5"})
    end = wire.joints[wire.ends.index("dc4")]
    sent = [each for each in end.commands if isinstance(each, AttachLink) and "#" in each.name]
    event = LinkAttached(
        link=world.sites["dc5"].next_link(),
        name=LinkName("elsewhere#1"),
        role=Role.RECEIVER,
        is_answer=False,
        source=sent[-1].source,
        target=sent[-1].target,
        sender_settle_mode=sent[-1].sender_settle_mode,
        receiver_settle_mode=sent[-1].receiver_settle_mode,
        unsettled={},
        properties=sent[-1].properties,
        may_be_late=True,
    )
    return attrs.evolve(event, **changes)  # type: ignore[arg-type]


def refusal(world: World, event: LinkAttached) -> Condition | None:
    """Has the neighbor dc4 attach a link at dc5; gives why it is refused."""
    play = world.sites["dc5"]
    (connection,) = (id for id, each in play.core._registry.connections.items() if each.configured)
    orders = play.core.handle(connection, [event], play.now)
    play.carry_out(orders)
    return next((each.condition for _, each in orders if isinstance(each, RefuseLink)), None)


def test_an_attach_that_comes_once_more_is_refused_and_changes_nothing() -> None:
    world = World(LINE)
    world.send(1)
    condition = refusal(world, chain_attach(world))
    assert condition is not None
    assert condition.name == STOLEN
    world.check(1)


def test_no_router_speaks_as_the_ingress_of_another() -> None:
    world = World(LINE)
    world.send(1)
    event = chain_attach(world)
    number = [*event.properties[ATTACH]]  # type: ignore[misc]
    number[1] += 1
    forged = {**event.properties, ATTACH: number}
    condition = refusal(world, attrs.evolve(event, properties=forged))
    assert condition is not None
    assert condition.name == UNAUTHORIZED_ACCESS
    assert "dc1 has not signed" in str(condition)
    refused = [each for each in world.sites["dc5"].noticed if each.event == "link.refused"]
    assert refused
    unsigned = {key: value for key, value in event.properties.items() if key != VOUCHED}
    assert refusal(world, attrs.evolve(event, properties=unsigned)) is not None
    world.check(1)


def test_a_chain_that_comes_back_in_a_circle_is_refused() -> None:
    world = World(LINE)
    play = world.sites["dc4"]
    connections = play.core._registry.connections
    event = chain_attach(world)
    (near,) = (id for id, each in connections.items() if each.container == "dc2")
    passages = play.core._parts.passages
    name = next(iter(passages._passing))
    again = attrs.evolve(event, link=play.next_link(), name=name)
    orders = play.core.handle(near, [again], play.now)
    (refused,) = (each for _, each in orders if isinstance(each, RefuseLink))
    assert "in a circle" in str(refused.condition)


# Multicast


def test_a_multicast_is_one_bound_delivery_for_each_site() -> None:
    every = attrs.evolve(EXACT, distribution=Distribution.MULTICAST)
    sites = ExactSites(RIVALS, every, advertise=BOTH_SERVED)
    receivers = [Receiver(sites[name], f"receiver-{name}", False) for name in ("dc5", "dc6")]
    sender = Sender(sites["dc1"], "sender", False)
    for client in (*receivers, sender):
        client.attach()
        sites.run(1.0)
    sender.send(1)
    sites.cut("dc2", "dc5")
    for _ in range(20):
        receivers[1].look()
        receivers[1].answer()
        sender.look()
        sites.run(0.2)
    assert [len(each.processed) for each in receivers] == [0, 1]
    assert list(sender.unsettled.values()) == [None], "one of both is in doubt"
    sites.dial("dc2", "dc5")
    for _ in range(20):
        for receiver in receivers:
            receiver.catch_up()
        sender.look()
        sender.settle()
        sites.run(0.2)
    assert [list(each.processed.values()) for each in receivers] == [[1], [1]]
    assert sender.accepted == sender.sent
    assert not any(sites.remembered(name) for name in sites.plays)


@pytest.mark.parametrize("unroutable", [Unroutable.REJECT, Unroutable.RELEASE, Unroutable.HOLD])
def test_what_finds_no_receiver_at_its_site_any_more_goes_to_another(
    unroutable: Unroutable,
) -> None:
    route = attrs.evolve(EXACT, unroutable=unroutable)
    sites = ExactSites([*PAIR, ("dc1", "dc6", 20)], route, advertise=BOTH_SERVED)
    first, other = (Receiver(sites[name], f"at-{name}", False) for name in ("dc5", "dc6"))
    sender = Sender(sites["dc1"], "sender", False)
    for client in (first, sender):
        client.attach()
        sites.run(1.0)
    sites.wire("dc1", "dc5").heard_at = sites["dc1"].now + 0.2
    sender.send(1)
    assert first.end is not None
    first.end.detach()
    other.attach()
    sites.run(1.0)
    other.catch_up()
    assert sum(other.processed.values()) == 1
