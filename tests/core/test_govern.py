"""Policy at work: attaches, deliveries of the anonymous terminus, limits, pace, virtual hosts."""

import pytest

from router.core.policy import PeerLimits, Policy, PolicyRule
from router.core.settings import ContainerTerms, CoreSettings
from router.model.condition import (
    INVALID_FIELD,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    Condition,
)
from router.model.outcome import ACCEPTED, Rejected
from router.routes.route import Endpoint, Route
from router.routes.vhost import inside
from tests.support.fleet import Fleet
from tests.support.play import Play, ReceiverEnd, SenderEnd

APPS = Policy([PolicyRule(name="apps", send=("orders",), receive=("replies", "dc1/temp/#"))])


def refusal(end: SenderEnd | ReceiverEnd) -> Condition:
    assert end.refused is not None
    return end.refused


def limited(**limits: int) -> Policy:
    return Policy(limits=PeerLimits(**limits))


# Addresses


def test_attaching_to_an_address_out_of_bounds_is_refused_and_the_rule_named() -> None:
    play = Play("#", policy=APPS)
    bob = play.connect(user="bob")
    assert bob.attach_sender("orders").refused is None
    assert bob.attach_receiver("replies").refused is None
    denied = refusal(bob.attach_sender("replies"))
    assert denied.name == UNAUTHORIZED_ACCESS
    assert denied.description == "rule 'apps' does not let 'bob' send to 'replies'"
    assert refusal(bob.attach_receiver("orders")).name == UNAUTHORIZED_ACCESS


def test_an_address_out_of_bounds_does_not_tell_whether_it_has_a_route() -> None:
    bob = Play("orders", policy=APPS).connect(user="bob")
    assert refusal(bob.attach_sender("secret")).name == UNAUTHORIZED_ACCESS


def test_each_delivery_of_the_anonymous_terminus_is_looked_at() -> None:
    play = Play("#", policy=APPS)
    play.connect("container", dialed="east").attach_receiver("orders", credit=10)
    sender = play.connect(user="bob").attach_sender(None)
    (good,) = sender.send("x", address="orders")
    (bad,) = sender.send("x", address="payroll")
    assert sender.outcome(good) is None
    told = sender.outcome(bad)
    assert told is not None
    state, settled = told
    assert settled
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.name == UNAUTHORIZED_ACCESS
    assert "rule 'apps'" in (state.error.description or "")


def test_dynamic_addresses_are_looked_at_like_any_other() -> None:
    play = Play("#", policy=APPS)
    bob = play.connect(user="bob")
    assert bob.attach_receiver(None, dynamic=True).refused is None
    assert refusal(bob.attach_sender(None, dynamic=True)).name == UNAUTHORIZED_ACCESS


def test_containers_that_the_router_dials_stand_above_the_policy() -> None:
    play = Play("#", policy=APPS)
    assert play.dial("east").attach_sender("payroll").refused is None


def test_a_stricter_policy_detaches_what_it_does_not_allow() -> None:
    play = Play("#")
    bob = play.connect(user="bob")
    good, bad, anonymous = (bob.attach_sender(each) for each in ("orders", "payroll", None))
    play.carry_out(play.core.govern(APPS, {}, play.now))
    assert good.is_live()
    assert anonymous.is_live()
    assert bad.detached is not None
    assert bad.detached.condition is not None
    assert bad.detached.condition.name == UNAUTHORIZED_ACCESS
    assert refusal(bob.attach_sender("payroll")).name == UNAUTHORIZED_ACCESS


def test_a_stricter_policy_ends_an_anonymous_link_that_has_sent_to_what_it_denies() -> None:
    play = Play("#")
    play.connect().attach_receiver("payroll", credit=10)
    anonymous = play.connect(user="bob").attach_sender(None)
    anonymous.send("x", address="payroll")
    play.carry_out(play.core.govern(APPS, {}, play.now))
    assert anonymous.is_detached()


# Limits


def test_one_connection_too_many_of_an_identity_is_closed_with_the_limit_named() -> None:
    policy = Policy(
        [PolicyRule(name="apps", send=("#",), limits=PeerLimits(connections=2))],
    )
    play = Play("#", policy=policy)
    first = play.connect(user="bob")
    play.connect(user="bob")
    third = play.connect(user="bob")
    assert third.closed is not None
    assert third.closed.condition is not None
    assert third.closed.condition.name == RESOURCE_LIMIT_EXCEEDED
    assert "limits.connections of rule 'apps': 2" in (third.closed.condition.description or "")
    assert play.connect(user="alice").closed is None
    third.lose()
    first.lose()
    assert play.connect(user="bob").closed is None


def test_links_beyond_the_limit_are_refused_and_the_limit_named() -> None:
    peer = Play("#", policy=limited(links_per_connection=2)).connect()
    peer.attach_sender("a")
    last = peer.attach_receiver("b")
    refused = refusal(peer.attach_sender("c"))
    assert refused == Condition(RESOURCE_LIMIT_EXCEEDED, "limits.links_per_connection: 2")
    last.detach()
    assert peer.attach_sender("c").refused is None


def test_credit_and_unsettled_deliveries_never_exceed_their_limit() -> None:
    play = Play("orders", policy=limited(unsettled_per_link=8))
    receiver = play.connect().attach_receiver(credit=1000)
    sender = play.connect().attach_sender()
    assert sender.credit == 8
    for _ in range(5):
        sender.send(*"x" * sender.credit)
        assert sender.credit + len(sender.unsettled) <= 8
        assert sender.credit == 0
        first, *_ = receiver.unsettled
        receiver.accept(first)
        assert sender.credit + len(sender.unsettled) <= 8
        receiver.accept()
        assert sender.credit == 8


def test_largest_credit_and_message_are_those_of_the_rule() -> None:
    policy = Policy(
        [PolicyRule(name="s", send=("#",), limits=PeerLimits(link_credit=7, max_message_octets=9))]
    )
    play = Play("orders", policy=policy)
    play.dial("east").attach_receiver(credit=1000)
    sender = play.connect().attach_sender()
    assert sender.credit == 7
    assert sender.attach is not None
    assert sender.attach.max_message_octets == 9
    assert play.connect().attach_sender(None).credit == 7


def test_credit_is_paced_to_the_messages_of_a_second() -> None:
    play = Play("orders", policy=limited(messages_per_second=100))
    receiver = play.connect().attach_receiver(credit=100_000)
    sender = play.connect().attach_sender()
    sent = 0
    for _ in range(1000):
        while sender.credit:
            sent += 1
            sender.send("x")
        receiver.grant(100_000)
        play.wait(0.01)
    assert 1000 <= sent <= 1101  # ten seconds, and one second's worth to begin with


def test_links_of_one_connection_share_its_pace() -> None:
    play = Play("a", "b", policy=limited(messages_per_second=100))
    receiver = play.connect()
    receiver.attach_receiver("a", credit=10_000)
    receiver.attach_receiver("b", credit=10_000)
    peer = play.connect()
    assert sum(peer.attach_sender(each).credit for each in "ab") == 100


def test_paced_credit_that_is_taken_back_may_be_granted_again() -> None:
    play = Play("orders", policy=limited(messages_per_second=100))
    sender = play.connect().attach_sender()
    for _ in range(5):
        receiver = play.connect().attach_receiver(credit=1000)
        assert sender.credit == 100
        receiver.detach()
        sender.give_back_credit()


# Containers


def test_each_container_has_its_own_credit_and_patience() -> None:
    terms = {
        "east": ContainerTerms(link_credit=5, failover_seconds=None),
        "west": ContainerTerms(failover_seconds=10),
    }
    play = Play(
        Route(address="jobs", from_=Endpoint("east")),
        Route(address="a", to=(Endpoint("east", "a"),)),
        Route(address="b", to=(Endpoint("west", "b"),)),
        settings=CoreSettings(router_id="dc1", failover_seconds=60),
        terms=terms,
    )
    play.connect().attach_receiver("jobs", credit=1000)
    east, west = play.dial("east"), play.dial("west")
    assert east.answer_sender("jobs").credit == 5
    client = play.connect()
    patient, hasty = client.attach_sender("a"), client.attach_sender("b")
    east.answer_receiver("a", credit=10)
    west.answer_receiver("b", credit=10)
    east.lose()
    west.lose()
    (kept,), (given_up,) = patient.send("x"), hasty.send("y")
    play.wait(5)
    assert hasty.outcome(given_up) is None
    play.wait(10_000)
    assert hasty.outcome(given_up) is not None
    assert patient.outcome(kept) is None


# Virtual hosts


def tenants() -> Play:
    return Play(
        Route(address="orders"),
        *(
            Route(address=inside(each, "#"), name=each, vhost=each)
            for each in ("a.example", "b/c", "b")
        ),
    )


@pytest.mark.parametrize("other", ["b", "b/c", "elsewhere", None, "/"])
def test_equal_addresses_of_different_virtual_hosts_never_meet(other: str | None) -> None:
    play = tenants()
    here = play.connect(vhost="a.example").attach_receiver("orders", credit=10)
    there = play.connect(vhost=other).attach_receiver("orders", credit=10)
    sender = play.connect(vhost="a.example").attach_sender("orders")
    sender.send("x")
    relayed = play.connect(vhost="a.example").attach_sender(None)
    relayed.send("y", address="orders")
    assert here.payloads == [b"x", b"y"]
    assert there.payloads == []
    here.accept()
    assert sender.outcome(here.received[0].number) == (ACCEPTED, True)


def test_a_virtual_host_with_routes_of_its_own_does_not_see_those_of_others() -> None:
    play = Play(Route(address="orders"), Route(address=inside("t", "jobs"), name="t", vhost="t"))
    assert refusal(play.connect(vhost="t").attach_sender("orders")).name == NOT_FOUND
    assert refusal(play.connect().attach_sender("jobs")).name == NOT_FOUND


@pytest.mark.parametrize("address", ["$vhost/b/orders", "$vhost.b.orders", "$vhost/b%2Fc/orders"])
def test_nobody_reaches_into_another_virtual_host_by_its_inner_names(address: str) -> None:
    play = Play("#", *(Route(address=inside("b", "#"), name="b", vhost="b"),))
    peer = play.connect()
    assert refusal(peer.attach_sender(address)).name == NOT_FOUND
    assert refusal(peer.attach_receiver(address)).name == NOT_FOUND
    sender = peer.attach_sender(None)
    (number,) = sender.send("x", address=address)
    told = sender.outcome(number)
    assert told is not None
    assert isinstance(told[0], Rejected)


def test_peers_and_containers_never_see_inner_names() -> None:
    play = Play(Route(address=inside("t", "jobs.*"), name="t", vhost="t", to=(Endpoint("east"),)))
    east = play.dial("east")
    client = play.connect(vhost="t")
    client.attach_sender("jobs.one")
    assert east.wants_receiver() == "jobs.one"
    play = tenants()
    dynamic = play.connect(vhost="b").attach_receiver(None, dynamic=True)
    assert dynamic.attach is not None
    assert dynamic.attach.source is not None
    assert dynamic.attach.source.address == "dc1/temp/token1"
    assert play.connect(vhost="b").attach_sender("dc1/temp/token1").refused is None
    assert refusal(play.connect().attach_sender("dc1/temp/token1")).name == NOT_FOUND


def test_links_of_one_name_in_different_virtual_hosts_do_not_steal_from_each_other() -> None:
    play = tenants()
    first = play.connect(vhost="b", user="bob").attach_sender("orders", name="same")
    play.connect(vhost="b/c", user="bob").attach_sender("orders", name="same")
    assert first.is_live()


# Floods


def test_a_hundred_thousand_attaches_leave_no_more_than_the_limit() -> None:
    play = Play("#", policy=limited(links_per_connection=100))
    peer = play.connect()
    refused = sum(peer.attach_sender("a").refused is not None for _ in range(2_000))
    assert refused == 1_900
    assert len(peer.sends) == 100
    assert len(play.core.notices.take()) <= play.core.notices.LIMIT


# Lengths


def test_a_container_id_beyond_all_measure_is_refused() -> None:
    play = Play("#")
    good, bad = play.connect("x" * 4096), play.connect("x" * 4097)
    assert good.closed is None
    assert bad.closed is not None
    assert bad.closed.condition == Condition(
        INVALID_FIELD, "the container-id has 4097 characters; at most 4096 are allowed"
    )
    assert play.events() == ["connection.refused"]
    brokers = play.connect("x" * 5000, dialed="east")
    assert brokers.closed is None, "it is called as the file calls it"


def test_a_link_with_a_name_beyond_all_measure_is_refused_and_others_stay() -> None:
    peer = Play("#").connect()
    good = peer.attach_sender("q", name="x" * 16_384)
    assert refusal(peer.attach_sender("q", name="x" * 16_385)).name == INVALID_FIELD
    assert good.refused is None


def test_the_longest_names_lead_through_to_another_worker() -> None:
    fleet = Fleet(2, "#")
    address = "q" * 4096
    receiver = fleet[2].connect("x" * 4096).attach_receiver(address, name="r" * 16_384, credit=1)
    fleet.settle()
    sender = fleet[1].connect("y" * 4096).attach_sender(address, name="s" * 16_384)
    fleet.settle()
    assert sender.credit == 1
    sender.send(b"x")
    fleet.settle()
    assert receiver.payloads == [b"x"]
