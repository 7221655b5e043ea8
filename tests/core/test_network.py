"""Several workers are one router: what they tell each other, and what follows from it."""

import attrs
import pytest

from router.core import memories
from router.core.joint import CREDIT
from router.core.loads import LOOK_LIMIT_SECONDS, LOOK_SECONDS
from router.core.network import (
    ADDRESS,
    ENTRIES_MOST,
    FORM,
    LINK,
    PATIENCE_SECONDS,
    Advertisement,
    Entry,
)
from router.core.node import NodeKey
from router.core.policy import PeerLimits, Policy, PolicyRule
from router.errors import DecodeError
from router.model.commands import AttachLink, SendDeliveries
from router.model.condition import NOT_FOUND
from router.model.outcome import ACCEPTED, RELEASED, Modified
from router.model.terminus import Source, Target
from router.net.siblings import FRAME_OCTETS
from router.routes.match import MAX_ADDRESS_CHARACTERS
from router.routes.route import Distribution, Endpoint, Route, Unroutable
from router.routes.table import RoutingTable
from router.wire.v1_0.types import Ubyte, Uint, Ulong, encode_value
from tests.support.fleet import Fleet, Joint
from tests.support.play import ReceiverEnd

TO = Route(address="orders.#", to=(Endpoint("east"),))
LETTERS = Route(
    address="orders.*",
    unroutable=Unroutable.DEAD_LETTER,
    dead_letter=Endpoint("east", "dead.*"),
)
FROM = Route(address="news", from_=Endpoint("east", "news"))
CLOSEST = Route(address="near", distribution=Distribution.CLOSEST)
MULTICAST = Route(address="all", distribution=Distribution.MULTICAST)


def told(joint: Joint) -> list[Advertisement]:
    """What one end of a joint has advertised so far."""
    ours = {
        each.link
        for each in joint.commands
        if isinstance(each, AttachLink) and each.name == ADDRESS
    }
    return [
        Advertisement.decode(delivery.payload)
        for each in joint.commands
        if isinstance(each, SendDeliveries) and each.link in ours
        for delivery in each.deliveries
    ]


def receiver_at(fleet: Fleet, worker: int, address: str, credit: int = 10) -> ReceiverEnd:
    receiver = fleet[worker].connect(f"receiver-{worker}").attach_receiver(address)
    receiver.grant(credit)
    fleet.settle()
    return receiver


def test_sender_reaches_a_receiver_on_another_worker_and_hears_its_outcome() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    assert sender.credit == 10
    (number,) = sender.send("hello")
    fleet.settle()
    assert receiver.payloads == [b"hello"]
    assert sender.outcome(number) is None
    receiver.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_it_does_not_matter_who_comes_first() -> None:
    fleet = Fleet(2, "#")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    assert sender.credit == 0
    receiver = receiver_at(fleet, 1, "q")
    assert sender.credit == 10
    sender.send("hello")
    fleet.settle()
    assert receiver.payloads == [b"hello"]


def test_nothing_is_attached_between_workers_that_do_not_need_each_other() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    fleet[1].connect().attach_sender("q").send("a")
    fleet.settle()
    assert receiver.payloads == [b"a"]
    names = {
        each.name
        for end in fleet.joints[1, 2]
        for each in end.commands
        if isinstance(each, AttachLink)
    }
    assert names == {ADDRESS, memories.ADDRESS}


def test_when_the_last_receiver_leaves_credit_is_taken_back_and_what_comes_is_released() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    receiver.detach()
    fleet.settle()
    assert sender.was_drained()
    (number,) = sender.send("too late")
    fleet.settle()
    assert sender.outcome(number) == (RELEASED, True)


def test_what_was_sent_to_a_receiver_that_leaves_has_failed_and_is_answered_once() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    (number,) = sender.send("a")
    fleet.settle()
    receiver.detach()
    fleet.settle()
    fleet.wait(1)
    outcome = sender.outcome(number)
    assert outcome is not None
    assert isinstance(outcome[0], Modified)
    assert outcome[0].delivery_failed


def test_what_came_from_a_sibling_goes_to_no_other() -> None:
    fleet = Fleet(3, "#")
    near = receiver_at(fleet, 1, "q", credit=1)
    far = receiver_at(fleet, 3, "q", credit=100)
    local = fleet[1].connect().attach_sender("q")
    fleet.settle()
    local.send(*map(str, range(5)))  # worker 1 has feeds and a receiver, and a link to worker 3
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    sender.send(*map(str, range(20)))
    fleet.settle()
    assert len(near.payloads) == 1
    assert len(far.payloads) == 24
    node = fleet[1].core._registry.find("q")
    assert node is not None
    (crossing,) = [link for link in node.outgoing if link.cost]
    assert crossing.tally.deliveries == 4  # all of them of its own sender


def test_sender_is_granted_for_receivers_of_all_workers_a_sibling_for_its_own() -> None:
    fleet = Fleet(2, "#")
    receiver_at(fleet, 1, "q", credit=5)
    receiver_at(fleet, 2, "q", credit=5)
    one = fleet[1].connect().attach_sender("q")
    two = fleet[2].connect().attach_sender("q")
    fleet.settle()
    assert (one.credit, two.credit) == (10, 10)


def test_balanced_uses_receivers_of_all_workers() -> None:
    fleet = Fleet(2, "#")
    near, far = receiver_at(fleet, 1, "q", 50), receiver_at(fleet, 2, "q", 50)
    sender = fleet[1].connect().attach_sender("q")
    fleet.settle()
    sender.send(*map(str, range(40)))
    fleet.settle()
    assert (len(near.payloads), len(far.payloads)) == (20, 20)


def test_balanced_takes_a_worker_with_three_receivers_for_three() -> None:
    fleet = Fleet(2, "#")
    near = receiver_at(fleet, 1, "q", 50)
    far = [receiver_at(fleet, 2, "q", 50) for _ in range(3)]
    sender = fleet[1].connect().attach_sender("q")
    fleet.settle()
    sender.send(*map(str, range(40)))
    fleet.settle()
    assert [len(each.payloads) for each in (near, *far)] == [10, 10, 10, 10]
    near.accept()
    for each in far:
        each.accept()
    far.pop().detach()
    fleet.settle()
    sender.send(*map(str, range(30)))
    fleet.settle()
    assert [len(each.payloads) for each in (near, *far)] == [20, 20, 20]


def test_balanced_counts_what_others_have_sent_to_another_worker() -> None:
    fleet = Fleet(3, "#")
    busy = receiver_at(fleet, 2, "q", 100)
    local = fleet[2].connect().attach_sender("q")
    sender = fleet[1].connect().attach_sender("q")
    fleet.settle()
    local.send(*map(str, range(40)))
    free = receiver_at(fleet, 3, "q", 100)
    for _ in range(3):
        fleet.wait(LOOK_SECONDS)
    sender.send(*map(str, range(30)))
    fleet.settle()
    assert (len(busy.unsettled), len(free.unsettled)) == (40, 30)
    sender.send(*map(str, range(20)))
    fleet.settle()
    assert (len(busy.unsettled), len(free.unsettled)) == (45, 45)


def test_a_burst_that_is_gone_at_the_next_look_moves_nobody() -> None:
    fleet = Fleet(2, "#")
    near, far = receiver_at(fleet, 1, "q", 100), receiver_at(fleet, 2, "q", 100)
    sender = fleet[1].connect().attach_sender("q")
    local = fleet[2].connect().attach_sender("q")
    fleet.settle()
    for _ in range(5):
        local.send(*map(str, range(20)))
        fleet.settle()
        fleet.wait(LOOK_SECONDS)
        near.accept()
        far.accept()
        near.grant(100)
        far.grant(100)
        fleet.settle()
        fleet.wait(LOOK_SECONDS)
    node = fleet[1].core._registry.find("q")
    assert node is not None
    assert [link.elsewhere for link in node.outgoing if link.cost] == [0]
    assert sender.credit


def test_what_was_told_of_a_load_is_taken_back_when_it_has_gone() -> None:
    fleet = Fleet(2, "#")
    near, far = receiver_at(fleet, 1, "q", 100), receiver_at(fleet, 2, "q", 100)
    fleet[1].connect().attach_sender("q")
    fleet.settle()
    local = fleet[2].connect("local").attach_sender("q")
    fleet.settle()
    local.send(*map(str, range(40)))
    fleet.settle()
    near.accept()
    fleet.wait(LOOK_SECONDS)
    fleet.wait(LOOK_LIMIT_SECONDS)
    node = fleet[1].core._registry.find("q")
    assert node is not None
    assert [link.elsewhere for link in node.outgoing if link.cost] == [20]
    far.accept()
    fleet.settle()
    fleet.wait(LOOK_LIMIT_SECONDS)
    assert [link.elsewhere for link in node.outgoing if link.cost] == [0]


def test_closest_prefers_the_own_worker_until_its_receivers_have_no_credit() -> None:
    fleet = Fleet(2, CLOSEST)
    near, far = receiver_at(fleet, 1, "near", 5), receiver_at(fleet, 2, "near", 50)
    sender = fleet[1].connect().attach_sender("near")
    fleet.settle()
    sender.send(*map(str, range(8)))
    fleet.settle()
    assert (len(near.payloads), len(far.payloads)) == (5, 3)


def test_multicast_reaches_every_receiver_of_every_worker_once() -> None:
    fleet = Fleet(3, MULTICAST)
    receivers = [receiver_at(fleet, worker, "all") for worker in (1, 2, 3, 3)]
    senders = [fleet[worker].connect(f"s{worker}").attach_sender("all") for worker in (1, 3)]
    fleet.settle()
    numbers = [sender.send("x")[0] for sender in senders]
    fleet.settle()
    assert [len(receiver.payloads) for receiver in receivers] == [2, 2, 2, 2]
    for receiver in receivers:
        receiver.accept()
    fleet.settle()
    for sender, number in zip(senders, numbers, strict=True):
        assert sender.outcome(number) == (ACCEPTED, True)


def test_receiver_of_a_multicast_is_answered_when_all_workers_know_of_it() -> None:
    fleet = Fleet(3, MULTICAST)
    receiver = fleet[1].connect().attach_receiver("all")
    answers = [receiver.attach]
    for one, other in ((1, 2), (2, 1), (1, 3), (3, 1)):
        fleet.carry(one, other)
        answers.append(receiver.attach)
    assert [answer is not None for answer in answers] == [False, False, False, False, True]
    another = fleet[1].connect().attach_receiver("all")
    assert another.attach is not None


def test_what_a_link_says_while_its_attach_waits_is_heard_in_order() -> None:
    fleet = Fleet(2, MULTICAST)
    receiver = fleet[1].connect().attach_receiver("all", credit=7)
    other = fleet[1].connect().attach_receiver("all", credit=7)
    other.detach()
    fleet.settle()
    sender = fleet[2].connect().attach_sender("all")
    fleet.settle()
    assert sender.credit == 7
    sender.send("x")
    fleet.settle()
    assert (receiver.payloads, other.payloads) == ([b"x"], [])


def test_sender_with_credit_sends_past_no_receiver_that_has_been_answered() -> None:
    fleet = Fleet(2, MULTICAST)
    near = receiver_at(fleet, 2, "all")
    sender = fleet[2].connect("sender").attach_sender("all")
    assert sender.credit == 10
    far = fleet[1].connect().attach_receiver("all", credit=10)
    fleet.carry(1, 2)
    fleet.carry(2, 1)
    assert far.attach is not None  # the link between the workers is not there yet
    sender.send("x")
    assert near.payloads == []
    fleet.settle()
    assert (near.payloads, far.payloads) == ([b"x"], [b"x"])


def test_sender_that_comes_later_gets_no_credit_before_every_receiver_can_be_reached() -> None:
    fleet = Fleet(2, MULTICAST)
    near = receiver_at(fleet, 2, "all")
    far = receiver_at(fleet, 1, "all")
    sender = fleet[2].connect("sender").attach_sender("all")
    anonymous = fleet[2].connect("anonymous").attach_sender(None)
    anonymous.send("a", address="all")
    assert (sender.credit, near.payloads) == (0, [])
    fleet.settle()
    assert sender.credit == 10
    assert (near.payloads, far.payloads) == ([b"a"], [b"a"])


def test_nobody_waits_for_a_worker_that_dies_or_hangs() -> None:
    fleet = Fleet(3, MULTICAST)
    receiver = fleet[1].connect().attach_receiver("all")
    fleet.carry(1, 2)
    fleet.carry(2, 1)
    for joint in fleet.joints.pop((1, 3)):
        joint.play.carry_out(joint.play.core.connection_lost(joint.id, joint.play.now))
    assert receiver.attach is not None
    assert "advertisement.unacknowledged" not in fleet[1].events()
    receiver.detach()
    fleet.settle()
    late = fleet[1].connect().attach_receiver("all")
    fleet[1].wait(PATIENCE_SECONDS)
    assert late.attach is not None
    assert "advertisement.unacknowledged" in fleet[1].events()


def test_a_multicast_goes_on_without_a_sibling_that_dies_while_it_is_waited_for() -> None:
    fleet = Fleet(2, MULTICAST)
    near = receiver_at(fleet, 2, "all")
    sender = fleet[2].connect("sender").attach_sender("all")
    fleet[1].connect().attach_receiver("all", credit=10)
    fleet.carry(1, 2)
    sender.send("x")
    assert near.payloads == []
    fleet.cut(1, 2)
    assert near.payloads == [b"x"]
    sender.send("y")
    assert near.payloads == [b"x", b"y"]


def test_a_claim_is_taken_back_when_nothing_comes_of_it() -> None:
    fleet = Fleet(2, MULTICAST)
    client = fleet[1].connect()
    client.attach_receiver("all")
    client.lose()
    fleet.settle()
    assert fleet[2].core._network._reach.receivers == {}
    assert not fleet[1].core._network._here
    assert not fleet[1].core._network._claims


def test_connections_of_an_identity_are_counted_on_all_workers() -> None:
    fleet = Fleet(3, "#")
    names = {"connections": "limits.connections_per_identity"}
    policy = Policy((PolicyRule(name="all"),), PeerLimits(connections=2), names)
    for play in fleet.plays.values():
        play.carry_out(play.core.govern(policy, {}, play.now))
    peers = []
    for worker in (1, 2, 3):
        peers.append(fleet[worker].connect(user="app"))
        fleet.settle()
    assert [peer.closed is None for peer in peers] == [True, True, False]
    assert fleet[3].connect(user="other").closed is None
    peers[0].lose()
    fleet.settle()
    assert fleet[3].connect(user="app").closed is None


def test_reply_queue_of_one_worker_is_found_from_another() -> None:
    fleet = Fleet(2)
    replies = fleet[1].connect().attach_receiver(None, dynamic=True)
    replies.grant(5)
    fleet.settle()
    assert replies.attach is not None
    assert replies.attach.source is not None
    address = replies.attach.source.address
    fleet[2].connect().attach_sender(address).send("answer")
    fleet.settle()
    assert replies.payloads == [b"answer"]
    refused = fleet[2].connect().attach_sender("dc1/temp/nobody").refused
    assert refused is not None
    assert refused.name == NOT_FOUND


@pytest.mark.parametrize("is_receiver", [True, False])
def test_a_dynamic_node_is_answered_when_every_worker_knows_it(is_receiver: bool) -> None:
    fleet = Fleet(3)
    maker = fleet[1].connect("maker")
    attach = maker.attach_receiver if is_receiver else maker.attach_sender
    made = attach(None, dynamic=True)
    for other in (2, 3):
        assert made.attach is None, "its name would be unknown at one"
        fleet.carry(1, other)
        fleet.carry(other, 1)
    assert made.attach is not None
    terminus = made.attach.source if is_receiver else made.attach.target
    assert isinstance(terminus, Source | Target)
    for worker in (2, 3):  # before anything else has gone between workers
        assert fleet[worker].connect("service").attach_sender(terminus.address).refused is None
    fleet.settle()
    made.detach()
    fleet.settle()
    for worker in (1, 2, 3):
        refused = fleet[worker].connect("late").attach_sender(terminus.address).refused
        assert refused is not None
        assert refused.name == NOT_FOUND


def test_a_dynamic_node_does_not_wait_for_ever_for_a_silent_worker() -> None:
    fleet = Fleet(2)
    made = fleet[1].connect("maker").attach_receiver(None, dynamic=True)
    fleet[1].wait(PATIENCE_SECONDS / 2)
    waited = made.attach is None
    fleet[1].wait(PATIENCE_SECONDS)
    assert waited
    assert made.attach is not None
    assert "advertisement.unacknowledged" in fleet[1].events()


def test_a_maker_that_leaves_before_its_node_was_known_leaves_nothing() -> None:
    fleet = Fleet(2)
    peer = fleet[1].connect("maker")
    made = peer.attach_receiver(None, dynamic=True)
    assert made.attach is None
    peer.lose()
    fleet.settle()
    address = "dc1/temp/token1"
    for worker in (1, 2):
        refused = fleet[worker].connect("late").attach_sender(address).refused
        assert refused is not None
        assert refused.name == NOT_FOUND


def test_route_to_a_container_leads_through_the_worker_that_dials_it() -> None:
    fleet = Fleet(2, TO, owned=[["east"]])
    east = fleet[1].dial("east")
    sender = fleet[2].connect().attach_sender("orders.eu")
    fleet.settle()
    target = east.answer_receiver("orders.eu", credit=5)
    fleet.settle()
    (number,) = sender.send("a")
    fleet.settle()
    target.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_container_that_stays_away_from_another_worker_is_given_up() -> None:
    fleet = Fleet(2, TO, owned=[["east"]])
    east = fleet[1].dial("east")
    sender = fleet[2].connect().attach_sender(None)
    (sent,) = sender.send("sent", address="orders.eu")
    fleet.settle()
    target = east.answer_receiver("orders.eu", credit=5)
    fleet.settle()
    assert target.payloads == [b"sent"]
    target.grant(0)
    fleet.settle()
    (waits,) = sender.send("waits", address="orders.eu")
    (fresh,) = sender.send("fresh", address="orders.us")
    fleet.settle()
    east.lose()
    fleet.settle()
    fleet.wait(55)
    assert [sender.outcome(each) for each in (sent, waits, fresh)] == [None, None, None]
    for _ in range(8):
        fleet.wait(10)
    assert sender.outcome(waits) == (RELEASED, True)
    assert sender.outcome(fresh) == (RELEASED, True)
    outcome = sender.outcome(sent)
    assert outcome is not None
    assert isinstance(outcome[0], Modified)


def test_container_that_comes_back_to_another_worker_gets_what_has_waited() -> None:
    fleet = Fleet(2, TO, owned=[["east"]])
    east = fleet[1].dial("east")
    sender = fleet[2].connect().attach_sender("orders.eu")
    fleet.settle()
    east.answer_receiver("orders.eu", credit=5)
    fleet.settle()
    east.lose()
    relay = fleet[2].connect("relay").attach_sender(None)
    fleet.settle()
    (early,) = relay.send("early", address="orders.eu")
    fleet.wait(30)
    east = fleet[1].dial("east")
    fleet.settle()
    target = east.answer_receiver("orders.eu", credit=5)
    fleet.settle()
    assert target.payloads == [b"early"]
    (late,) = sender.send("late")
    fleet.settle()
    target.accept()
    fleet.settle()
    assert (relay.outcome(early), sender.outcome(late)) == ((ACCEPTED, True), (ACCEPTED, True))


def test_dead_letters_go_to_a_container_that_another_worker_dials() -> None:
    fleet = Fleet(2, LETTERS, owned=[["east"]])
    east = fleet[1].dial("east")
    relay = fleet[2].connect().attach_sender(None)
    (number,) = relay.send("x", address="orders.eu")
    fleet.settle()
    letters = east.answer_receiver("dead.eu", credit=5)
    fleet.settle()
    assert letters.payloads == [b"x"]
    letters.accept()
    fleet.settle()
    assert relay.outcome(number) == (ACCEPTED, True)
    relay.detach()
    fleet.wait(60)
    fleet.wait(60)
    assert letters.detached is not None
    assert [play.core._registry.nodes for play in (fleet[1], fleet[2])] == [{}, {}]


def test_what_a_container_of_another_worker_does_not_take_goes_to_the_dead_letters_of_a_third() -> (
    None
):
    route = attrs.evolve(LETTERS, to=(Endpoint("east"),), dead_letter=Endpoint("west", "dead"))
    fleet = Fleet(3, route, owned=[["east"], ["west"]])
    fleet[1].dial("east").lose()
    west = fleet[2].dial("west")
    relay = fleet[3].connect().attach_sender(None)
    (number,) = relay.send("x", address="orders.eu")
    fleet.settle()
    for _ in range(7):
        fleet.wait(10)
    letters = west.answer_receiver("dead", credit=5)
    fleet.settle()
    assert letters.payloads == [b"x"]
    letters.accept()
    fleet.settle()
    assert relay.outcome(number) == (ACCEPTED, True)


def test_dead_letters_on_their_way_are_not_touched_by_another_table() -> None:
    fleet = Fleet(2, LETTERS, owned=[["east"]])
    relay = fleet[2].connect().attach_sender(None)
    (number,) = relay.send("x", address="orders.eu")
    fleet.settle()
    for play in (fleet[1], fleet[2]):
        table = RoutingTable([LETTERS, MULTICAST])
        play.carry_out(play.core.configure(table, play.now))
    fleet.settle()
    east = fleet[1].dial("east")
    fleet.settle()
    letters = east.answer_receiver("dead.eu", credit=5)
    fleet.settle()
    assert letters.payloads == [b"x"]
    letters.accept()
    fleet.settle()
    assert relay.outcome(number) == (ACCEPTED, True)


def test_dead_letters_and_others_go_to_one_address_by_links_of_their_own() -> None:
    fleet = Fleet(1, LETTERS, Route(address="dead.*", to=(Endpoint("east"),)), owned=[["east"]])
    east = fleet[1].dial("east")
    relay = fleet[1].connect().attach_sender(None)
    relay.send("x", address="orders.eu")
    relay.send("y", address="dead.eu")
    links = [east.answer_receiver("dead.eu", credit=5) for _ in range(2)]
    assert len({link.name for link in links}) == 2
    assert sorted(link.payloads for link in links) == [[b"x"], [b"y"]]


def test_receiver_pulls_from_a_container_that_another_worker_dials() -> None:
    fleet = Fleet(2, TO, owned=[["east"]])
    east = fleet[1].dial("east")
    receiver = fleet[2].connect().attach_receiver("orders.eu")
    receiver.grant(3)
    fleet.settle()
    source = east.answer_sender("orders.eu")
    fleet.settle()
    assert source.credit == 3
    source.send("pulled")
    fleet.settle()
    assert receiver.payloads == [b"pulled"]


def test_container_that_feeds_an_address_feeds_receivers_on_every_worker() -> None:
    fleet = Fleet(2, FROM, owned=[["east"]])
    source = fleet[1].dial("east").answer_sender("news")
    receiver = receiver_at(fleet, 2, "news")
    assert source.credit == 10
    source.send("news")
    fleet.settle()
    assert receiver.payloads == [b"news"]


def test_container_that_comes_after_receivers_on_another_worker_feeds_them() -> None:
    fleet = Fleet(2, FROM, owned=[["east"]])
    receiver = receiver_at(fleet, 2, "news")
    source = fleet[1].dial("east").answer_sender("news")
    fleet.settle()
    assert source.credit == 10
    source.send("news")
    fleet.settle()
    assert receiver.payloads == [b"news"]


def test_when_a_container_moves_to_another_worker_senders_follow() -> None:
    fleet = Fleet(2, TO, owned=[["east"]])
    old = fleet[1].dial("east")
    sender = fleet[2].connect().attach_sender("orders.eu")
    fleet.settle()
    old.answer_receiver("orders.eu", credit=5)
    fleet.settle()
    fleet.cut(1, 2)  # worker 1 is dead
    play = fleet[2]
    play.carry_out(play.core.own(frozenset({"east"}), play.now))
    target = play.dial("east").answer_receiver("orders.eu", credit=5)
    sender.send("a")
    assert target.payloads == [b"a"]


def test_what_a_dead_worker_had_is_sent_to_the_living_and_told_to_be_a_second_attempt() -> None:
    fleet = Fleet(2, "#")
    receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    (number,) = sender.send("a")
    fleet.settle()
    other = receiver_at(fleet, 2, "q", credit=0)
    fleet.cut(1, 2)
    other.grant(5)
    assert other.payloads == [b"a"]
    assert other.last.delivery_count == 1
    other.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_all_is_told_again_in_full_when_workers_are_joined_anew() -> None:
    fleet = Fleet(2, "#")
    receiver_at(fleet, 1, "gone")
    fleet.cut(1, 2)
    receiver_at(fleet, 1, "q")
    fleet.join(1, 2)
    (first, *_) = told(fleet.joints[1, 2][0])
    assert first.is_full
    assert {entry.name for entry in first.come} == {"gone", "q"}
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    assert sender.credit == 10


def test_a_change_is_told_as_a_change_with_the_next_version() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    receiver.detach()
    fleet.settle()
    full, come, gone = told(fleet.joints[1, 2][0])
    assert (full.is_full, come.is_full, gone.is_full) == (True, False, False)
    assert [each.version for each in (full, come, gone)] == [1, 2, 3]
    assert [entry.name for entry in come.come if entry.kind != LINK] == ["q"]
    assert gone.gone == ((0, "q"),)


@pytest.mark.thorough
def test_many_addresses_are_told_in_messages_of_bounded_size_within_credit() -> None:
    fleet = Fleet(2, "#")
    fleet.cut(1, 2)
    client = fleet[1].connect()
    count = ENTRIES_MOST * (CREDIT + 20)
    for number in range(count):
        client.attach_receiver(f"q.{number}")
    fleet.join(1, 2)
    messages = told(fleet.joints[1, 2][0])
    assert max(len(message.come) for message in messages) <= ENTRIES_MOST
    assert sum(len(message.come) for message in messages) == count
    assert len(fleet[2].core._network._reach.receivers) == count


@pytest.mark.parametrize("letter", ["x", "\U0001f4e8"])
def test_receivers_with_the_longest_addresses_are_told_in_messages_that_fit_a_frame(
    letter: str,
) -> None:
    fleet = Fleet(2, "#")
    client = fleet[1].connect()
    names = [f"{number:04}{letter * (MAX_ADDRESS_CHARACTERS - 4)}" for number in range(300)]
    fleet.cut(1, 2)
    for name in names:
        client.attach_receiver(name)
    fleet.join(1, 2)
    messages = told(fleet.joints[1, 2][0])
    assert max(len(message.encode()) for message in messages) < FRAME_OCTETS
    assert [message.is_full for message in messages].count(True) == 1
    assert set(fleet[2].core._network._reach.receivers) == set(names)


def test_what_is_no_text_is_claimed_to_nobody_and_spoils_nothing() -> None:
    fleet = Fleet(2, "#")
    fleet[1].core._network.claim((0, "t\udcff"))
    fleet[1].core._network.count("user\udcff", 3)
    receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    assert sender.credit == 10
    assert set(fleet[2].core._network._reach.receivers) == {"q"}
    fleet[1].core._network.unclaim((0, "t\udcff"))
    fleet.settle()


def test_a_broken_entry_is_passed_over_and_the_others_count() -> None:
    good = [Ubyte(0), "good", Uint(1), [], None]
    broken = [
        [Ubyte(0), "short"],
        [Ubyte(2), "no.pat#tern", Uint(0), [], None],
        [Ubyte(2), "x" * 5000, Uint(0), [], None],
        ["zero", "kind", Uint(0), [], None],
        [Ubyte(6), "made", Uint(0), [], ["of one"]],
        7,
    ]
    come = [*broken[:2], good, *broken[2:]]
    fields = [Ubyte(FORM), "dc1/2", Ulong(1), True, come, [[Ubyte(0), "gone"], [Ubyte(0)], None]]
    heard = Advertisement.decode(b"\x00\x53\x77" + encode_value(fields))
    assert heard.come == (Entry(0, "good", 1),)
    assert heard.gone == ((0, "gone"),)


def test_a_gap_in_the_versions_makes_the_other_begin_anew() -> None:
    fleet = Fleet(2, "#")
    receiver_at(fleet, 1, "lost")
    (joint,) = fleet[1].core._network._joints.values()
    joint.sent += 1
    receiver_at(fleet, 1, "q")
    assert "advertisement.refused" in fleet[2].events()
    (last,) = [each for each in told(fleet.joints[1, 2][0]) if each.is_full][1:]
    assert {entry.name for entry in last.come} == {"lost", "q"}
    assert set(fleet[2].core._network._reach.receivers) == {"lost", "q"}


def test_what_has_passed_this_router_or_too_many_is_not_believed() -> None:
    fleet = Fleet(2, "#")
    network = fleet[2].core._network
    (joint,) = network._joints.values()
    advertisement = Advertisement(
        origin="dc9",
        version=1,
        is_full=True,
        come=(
            Entry(0, "loop", 2, ("dc3", "dc1")),
            Entry(0, "far", 20, tuple(f"dc{n}" for n in range(20, 36))),
            Entry(0, "good", 3, ("dc3", "dc4")),
        ),
        gone=(),
    )
    assert Advertisement.decode(advertisement.encode()) == advertisement
    network._take(joint, advertisement)
    assert network._reach.receivers == {"good": {"/1": 4}}


@pytest.mark.parametrize("payload", [b"", b"\x00\x53\x77\x45", b"\x00\x53\x77\xc0\x03\x01\x50\x02"])
def test_what_is_no_advertisement_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        Advertisement.decode(payload)


def test_nothing_is_left_behind_when_all_have_gone() -> None:
    fleet = Fleet(2, "#")
    receiver = receiver_at(fleet, 1, "q")
    sender = fleet[2].connect().attach_sender("q")
    fleet.settle()
    sender.detach()
    receiver.detach()
    fleet.wait(40)
    for play in fleet.plays.values():
        core = play.core
        assert NodeKey("q") not in core._registry.nodes
        assert not core._uplinks._of_node
        assert not core._registry.attached
