"""Deliveries between sites: five routers in virtual time, no sockets."""

import random

import attrs
import pytest

from router.core.lanes import REST_SECONDS
from router.model.commands import AttachLink, DetachLink
from router.model.events import DeliveriesReceived, Event
from router.model.identity import DeliveryNumber, LinkName
from router.model.outcome import ACCEPTED, Modified
from router.model.terminus import SenderSettleMode
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.exact_sites import ExactSites
from tests.support.fleet import Joint
from tests.support.kernel import MODES, needs_kernel
from tests.support.play import ReceiverEnd, SenderEnd
from tests.support.sites import Line, Sites

LINE: list[Line] = [("dc1", "dc2", 10), ("dc2", "dc3", 10), ("dc3", "dc4", 10), ("dc4", "dc5", 10)]
RING: list[Line] = [*LINE, ("dc5", "dc1", 50)]
SERVED = {"dc5": ["orders.#"]}


@pytest.fixture(autouse=True, params=MODES)
def express(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether transits are on the lane."""
    monkeypatch.setattr(Sites, "express", request.param)
    return str(request.param)


COUNTED = b"\x00Sp\xc0\x07\x05@@@@R\x01"
"""A header whose delivery-count is 1."""

DATA = b"\x00Su\xa0"
"""Begins a section of data, up to its length."""


def send(
    sender: SenderEnd, *texts: str, settled: bool = False, address: str | None = None
) -> list[DeliveryNumber]:
    """Sends messages of one section each."""
    return sender.send(
        *(DATA + bytes([len(t)]) + t.encode() for t in texts), settled=settled, address=address
    )


def got(receiver: ReceiverEnd) -> list[str]:
    """Gives what has been received, without what routers have added."""
    return [payload.partition(DATA)[2][1:].decode() for payload in receiver.payloads]


def test_a_direct_route_reaches_over_three_transits_and_the_outcome_comes_back() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    assert sender.credit == 10
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    assert sender.outcome(number) is None
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_an_address_under_no_prefix_is_found_while_it_has_receivers() -> None:
    sites = Sites(LINE, "#")
    sender = sites.sender("dc1", "a.b")
    assert sender.credit == 0
    receiver = sites.receiver("dc3", "a.b")
    sites.run(1.0)
    assert sender.credit == 10
    receiver.detach()
    sites.run(2.0)
    assert sender.credit == 0


def test_credit_is_that_of_the_egress_and_transit_makes_none() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu", credit=2)
    sender = sites.sender("dc1", "orders.eu")
    assert sender.credit == 2
    send(sender, "one", "two")
    sites.settle()
    assert sender.credit == 0
    assert len(got(receiver)) == 2
    receiver.accept()
    receiver.grant(1)
    sites.settle()
    assert sender.credit == 1


def test_a_site_that_serves_a_prefix_and_has_no_receivers_gives_no_credit() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    assert sites.sender("dc1", "orders.eu").credit == 0


def test_a_receiver_of_one_address_that_stops_holds_up_no_other_address() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    sites.receiver("dc5", "orders.stopped", credit=0)
    receiver = sites.receiver("dc5", "orders.eu")
    stopped = sites.sender("dc1", "orders.stopped")
    sender = sites.sender("dc1", "orders.eu")
    assert (stopped.credit, sender.credit) == (0, 10)
    send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]


def closest(address: str = "#") -> Route:
    return Route(address=address, distribution=Distribution.CLOSEST)


def test_closest_takes_the_cheapest_site_that_has_credit() -> None:
    sites = Sites(RING, closest())
    near, far = sites.receiver("dc3", "a", credit=2), sites.receiver("dc5", "a", credit=5)
    sender = sites.sender("dc1", "a")
    send(sender, "1", "2", "3")
    sites.settle()
    assert got(near) == ["1", "2"]
    assert got(far) == ["3"]


def test_closest_prefers_receivers_of_the_own_site() -> None:
    sites = Sites(LINE, closest())
    far, here = sites.receiver("dc2", "a"), sites.receiver("dc1", "a", credit=1)
    sender = sites.sender("dc1", "a")
    send(sender, "1", "2")
    sites.settle()
    assert (got(here), got(far)) == (["1"], ["2"])


def test_balanced_counts_the_cost_of_the_way_as_load() -> None:
    sites = Sites([("dc1", "dc2", 3)], "#")
    far, here = sites.receiver("dc2", "a", credit=20), sites.receiver("dc1", "a", credit=20)
    sender = sites.sender("dc1", "a")
    send(sender, *map(str, range(9)))
    sites.settle()
    assert (len(got(here)), len(got(far))) == (6, 3)


def test_what_came_over_the_mesh_stays_at_its_egress() -> None:
    sites = Sites(LINE, "#", advertise={"dc2": ["a"], "dc3": ["a"]})
    receiver = sites.receiver("dc2", "a", credit=1)
    other = sites.receiver("dc3", "a", credit=1)
    sites.sender("dc2", "a")  # so that dc2 has a link to dc3, too
    sender = sites.sender("dc1", "a")
    numbers = send(sender, "1", "2")
    sites.settle()
    assert sorted([*got(receiver), *got(other)]) == ["1", "2"]
    assert len(got(receiver)) == 1
    for end in (receiver, other):
        end.accept()
    sites.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 2


def test_after_a_cut_new_deliveries_and_those_without_outcome_take_another_way() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (first,) = send(sender, "one")
    sites.settle()
    sites.cut("dc3", "dc4")
    sites.run(1.0)
    (second,) = send(sender, "two")
    sites.settle()
    assert got(receiver) == ["one", "one", "two"]  # nobody knows what became of the first
    assert [payload.startswith(COUNTED) for payload in receiver.payloads] == [False, True, False]
    assert "link.failed" not in sites["dc2"].events()  # transit turns no chain back
    receiver.accept()
    sites.settle()
    assert sender.outcome(second) == (ACCEPTED, True)
    assert sender.outcome(first) == (ACCEPTED, True)


def test_a_better_way_is_taken_and_what_is_under_way_is_not_sent_again() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    sites.cut("dc2", "dc3")
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (first,) = send(sender, "one")
    sites.settle()
    before = sites.transfers("dc1", "dc5")
    sites.dial("dc2", "dc3")
    sites.run(2.0)
    (second,) = send(sender, "two")
    sites.settle()
    assert got(receiver) == ["one", "two"]
    assert sites.transfers("dc4", "dc5") > 0
    receiver.accept()
    sites.run(1.0)
    assert [sender.outcome(number) for number in (first, second)] == [(ACCEPTED, True)] * 2
    assert chains(sites, "dc1") == ["dc2"]
    assert before > 0


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_cut_nothing_is_lost(seed: int) -> None:
    chosen = random.Random(seed)
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu", credit=10)
    sender = sites.sender("dc1", "orders.eu")
    lost: list[tuple[str, str]] = []
    numbers: dict[str, DeliveryNumber] = {}
    for _ in range(40):
        match chosen.choice(["send", "send", "cut", "dial", "accept", "wait"]):
            case "send" if sender.credit:
                text = str(len(numbers))
                (numbers[text],) = send(sender, text)
            case "cut" if sites.wires:
                lost.append(chosen.choice(sites.wires).ends)
                sites.cut(*lost[-1])
            case "dial" if lost:
                sites.dial(*lost.pop(chosen.randrange(len(lost))))
            case "accept":
                receiver.accept()
                receiver.grant(10)
            case _:
                sites.run(chosen.choice([0.01, 0.1, 1.0]))
        sites.settle()
    for ends in lost:
        sites.dial(*ends)
    for _ in range(6):
        sites.run(2.0)
        receiver.accept()
        receiver.grant(10)
    sites.run(2.0)
    for text, number in numbers.items():
        outcome = sender.outcome(number)
        assert outcome is not None, text
        assert outcome != (ACCEPTED, True) or text in got(receiver)
    assert sender.credit > 0
    assert chains(sites, "dc1") == ["dc2"]


def chains(sites: Sites, router: str) -> list[str]:
    """Gives the neighbors to which a router's chains lead."""
    node = sites[router].core._registry.find("orders.eu")
    assert node is not None
    links = (link for link in node.outgoing if link.chain is not None)
    return [link.key.container for link in links]


def test_a_loss_at_the_first_hop_moves_the_traffic_too() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu", credit=5)
    sender = sites.sender("dc1", "orders.eu")
    sites.cut("dc1", "dc2")
    sites.run(1.0)
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_silence_moves_the_traffic_within_heartbeats() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu", credit=5)
    sender = sites.sender("dc1", "orders.eu")
    sites.silence("dc2", "dc3")
    (number,) = send(sender, "one")
    sites.run(4.0)
    assert got(receiver) == ["one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_what_is_unsettled_waits_for_a_partition_to_end() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (number,) = send(sender, "one")
    sites.settle()
    sites.cut("dc3", "dc4")
    sites.run(5.0)
    assert sender.outcome(number) is None
    assert sender.credit == 0
    sites.dial("dc3", "dc4")
    sites.run(2.0)
    assert got(receiver) == ["one", "one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)
    assert sender.credit > 0


def test_a_partition_that_lasts_returns_what_is_unsettled_to_its_sender() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (number,) = send(sender, "one")
    sites.settle()
    sites.cut("dc3", "dc4")
    sites.run(90.0)
    outcome = sender.outcome(number)
    assert outcome is not None
    assert isinstance(outcome[0], Modified)
    assert outcome[0].delivery_failed


def test_what_transit_gives_back_before_the_ingress_knows_goes_another_way() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (number,) = send(sender, "one")
    sites.settle()
    sites.slow("dc1", "dc2", 0.2)
    sites.cut("dc3", "dc4")
    sites.run(3.0)
    assert sender.outcome(number) is None
    receiver.accept()
    sites.run(1.0)
    assert sender.outcome(number) == (ACCEPTED, True)


def test_at_most_once_is_sent_settled_at_every_hop() -> None:
    route = Route(address="orders.#", guarantee=Guarantee.AT_MOST_ONCE)
    sites = Sites(LINE, route, advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    assert receiver.last.settled
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_settled_delivery_of_at_least_once_is_in_custody_until_a_receiver_has_it() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    peer = sites["dc1"].connect("sender")
    sender = peer.attach_sender("orders.eu", mode=SenderSettleMode.SETTLED)
    sites.run(0.5)
    send(sender, "one", settled=True)
    sites.settle()
    sites.cut("dc2", "dc3")
    sites.run(2.0)
    assert set(got(receiver)) == {"one"}


def test_a_large_message_is_streamed_through_every_hop() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    (number,) = sender.send(b"\x00\x53\x75\xb0\x00\x03\x00\x00" + bytes(1 << 16), more=True)
    sites.settle()
    if Sites.express == "off":  # the lane gathers what is not larger than this
        assert receiver.partial is not None  # the first part is there before the last one is sent
    sender.go_on(bytes(1 << 16))
    sender.go_on(bytes(1 << 16), more=False)
    sites.settle()
    (payload,) = receiver.payloads
    assert payload.endswith(bytes(3 << 16))
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


@pytest.mark.parametrize("receivers", [("dc2",), ("dc3", "dc5"), ("dc1", "dc4", "dc5")])
def test_multicast_reaches_every_site_that_has_receivers(receivers: tuple[str, ...]) -> None:
    sites = Sites(LINE, Route(address="prices", distribution=Distribution.MULTICAST))
    ends = [sites.receiver(name, "prices") for name in receivers]
    sender = sites.sender("dc1", "prices")
    numbers = send(sender, "1", "2")
    sites.settle()
    assert [got(end) for end in ends] == [["1", "2"]] * len(ends)
    for end in ends:
        end.accept()
    sites.settle()
    assert [sender.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 2


def test_an_advertised_address_without_a_route_is_reached_and_received_from() -> None:
    sites = Sites(LINE, advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    assert receiver.refused is None
    assert sender.refused is None
    send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    unknown = sites.sender("dc1", "prices")
    assert unknown.refused is not None


def test_what_is_recorded_keeps_its_key_over_every_transit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By it the audit knows it at the other end."""
    keys: list[tuple[str, object]] = []
    whole = Joint.happens

    def happens(self: Joint, events: list[Event]) -> None:
        came = [event for event in events if isinstance(event, DeliveriesReceived)]
        for delivery in (each for event in came for each in event.deliveries):
            if b"one" in delivery.payload:
                keys.append((self.play.settings.router_id, delivery.key))
        whole(self, events)

    monkeypatch.setattr(Joint, "happens", happens)
    sites = ExactSites(LINE, Route(address="orders.#", is_recorded=True), advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    assert [router for router, _ in keys] == ["dc2", "dc3", "dc4", "dc5"]
    assert len({key for _, key in keys}) == 1
    assert keys[0][1] is not None


def test_sites_whose_routes_promise_different_things_refuse_each_others_links() -> None:
    exact, weak = Route(address="orders.#", guarantee=Guarantee.EXACTLY_ONCE), "orders.#"
    ingress = Sites(LINE, weak, advertise=SERVED, own_routes={"dc1": [exact]})
    ingress.receiver("dc5", "orders.eu")
    assert ingress.sender("dc1", "orders.eu").credit == 0
    egress = Sites(LINE, weak, advertise=SERVED, own_routes={"dc5": [exact]})
    egress.receiver("dc5", "orders.eu")
    assert egress.sender("dc1", "orders.eu").credit == 0
    (failed, *_) = (each for each in egress["dc1"].noticed if each.event == "link.failed")
    assert "is exactly-once here" in str(failed.fields["condition"])


def test_senders_that_are_gone_leave_no_chain_behind() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    sender.detach()
    sites.run(200.0)
    for name in ("dc1", "dc2", "dc3", "dc4"):
        nodes = sites[name].core._registry.nodes
        assert not any(node.key.chain or node.key.address == "orders.eu" for node in nodes.values())


def address_of(receiver: ReceiverEnd) -> str:
    """Gives the address of the dynamic node that was made for a receiver."""
    assert receiver.attach is not None
    assert receiver.attach.source is not None
    assert receiver.attach.source.address is not None
    return receiver.attach.source.address


def test_a_reply_finds_the_dynamic_node_at_the_site_that_made_it() -> None:
    sites = Sites(LINE, advertise=SERVED)
    service = sites.receiver("dc5", "orders.eu")
    client = sites["dc1"].connect("client")
    replies = client.attach_receiver(None, dynamic=True, credit=5)
    requests = client.attach_sender(None)  # the anonymous terminus
    sites.run(1.0)
    send(requests, "request", address="orders.eu")
    sites.run(1.0)
    assert got(service) == ["request"]
    answers = sites["dc5"].connect("service").attach_sender(None)
    (number,) = send(answers, "reply", address=address_of(replies))
    sites.run(1.0)
    assert got(replies) == ["reply"]
    replies.accept()
    sites.run(1.0)
    assert answers.outcome(number) == (ACCEPTED, True)


@pytest.mark.parametrize("claimed", [[], ["dc1.temp.#"], ["#"]])
def test_nobody_at_another_site_attracts_what_is_for_the_maker_of_a_dynamic_node(
    claimed: list[str],
) -> None:
    sites = Sites(LINE, "#", advertise={**SERVED, "dc4": claimed})
    replies = sites["dc1"].connect("client").attach_receiver(None, dynamic=True, credit=5)
    thief = sites.receiver("dc4", address_of(replies))
    sites.run(1.0)
    sender = sites.sender("dc5", address_of(replies))
    send(sender, "1", "2", "3")
    sites.settle()
    assert got(replies) == ["1", "2", "3"]
    assert got(thief) == []


def test_what_the_router_before_sends_again_is_not_called_dropped() -> None:
    sites = Sites(RING, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu", credit=1)
    sender = sites.sender("dc1", "orders.eu")
    send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    sites.cut("dc4", "dc5")
    sites.cut("dc1", "dc2")
    sites.run(2.0)
    assert {
        name for name, play in sites.plays.items() if "delivery.dropped" in play.events()
    } == set()


REFUSING = Route(address="orders.#", to=(Endpoint("broker"),))


@pytest.mark.parametrize("links", [LINE, [("dc1", "dc5", 10)]])
def test_the_ingress_hears_why_the_egress_refuses_an_address(links: list[Line]) -> None:
    own: dict[str, list[Route | str]] = {"dc5": [REFUSING]}
    sites = Sites(links, "orders.#", advertise=SERVED, own_routes=own)
    sender = sites.sender("dc1", "orders.eu")
    sites.run(1.0)
    assert sender.credit == 0
    reason = "amqp:not-found: 'orders.eu' is not shared with other sites"
    assert sites["dc1"].core.mesh_refusals("orders.eu") == {"dc5": reason}
    failed = [note for note in sites["dc1"].noticed if note.event == "link.failed"]
    assert failed
    assert failed[-1].fields["condition"] == reason


def test_a_chain_that_is_refused_again_and_again_is_logged_once_for_each_reason() -> None:
    own: dict[str, list[Route | str]] = {"dc5": [REFUSING]}
    sites = Sites(LINE, "orders.#", advertise=SERVED, own_routes=own)
    sites.sender("dc1", "orders.eu")
    sites.run(240.0)
    for name, play in sites.plays.items():
        failed = [note.fields for note in play.noticed if note.event == "link.failed"]
        assert len(failed) == len({str(each["condition"]) for each in failed}), name
    assert "link.failed" in sites["dc1"].events()


# On the express lane


def transits_on_the_lane(sites: Sites) -> list[str]:
    """Gives the routers that have a chain's node on the lane."""
    return [
        name
        for name, play in sites.plays.items()
        for node in play.core._registry.nodes.values()
        if node.key.chain is not None and node.is_express
    ]


@needs_kernel
@pytest.mark.parametrize("express", ["cython"], indirect=True)
def test_transits_are_on_the_lane_and_deliveries_carry_no_stops() -> None:
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    assert transits_on_the_lane(sites) == ["dc2", "dc3", "dc4"]
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


@needs_kernel
@pytest.mark.parametrize("express", ["cython"], indirect=True)
def test_a_transit_that_a_circle_may_begin_at_leaves_the_lane_and_asks_for_stops() -> None:
    """The next hop believes that the way leads back: it attaches the chain, too."""
    sites = Sites(LINE, "orders.#", advertise=SERVED)
    receiver = sites.receiver("dc5", "orders.eu")
    sender = sites.sender("dc1", "orders.eu")
    wire = sites.wire("dc3", "dc4")
    (attach,) = (
        each
        for each in wire.joints[wire.ends.index("dc3")].commands
        if isinstance(each, AttachLink) and "orders.eu" in each.name
    )
    back = sites.wire("dc2", "dc3")
    joint = back.joints[back.ends.index("dc3")]
    again = attrs.evolve(attach, link=joint.play.next_link(), name=LinkName("in a circle"))
    joint.engine.execute(again)
    sites.settle()
    assert "dc2" not in transits_on_the_lane(sites)
    (node,) = (each for each in sites["dc2"].core._registry.nodes.values() if each.key.chain)
    assert [(link.is_traced, link.credit > 0) for link in node.feeds] == [
        (True, True),
        (True, False),
    ]
    (first,) = (each for each in sites["dc1"].core._registry.nodes.values() if each.outgoing)
    assert first.outgoing[0].is_traced
    (number,) = send(sender, "one")
    sites.settle()
    assert got(receiver) == ["one"]
    receiver.accept()
    sites.settle()
    assert sender.outcome(number) == (ACCEPTED, True)
    joint.engine.execute(DetachLink(again.link, True))
    sites.run(2 * REST_SECONDS)
    send(sender, "two")
    sites.settle()
    assert transits_on_the_lane(sites) == ["dc2", "dc3", "dc4"]
