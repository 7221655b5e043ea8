"""Containers that dial in: routes lead to them and from them, wherever and whenever they come."""

import attrs
import pytest

from router.core.settings import ContainerTerms, DialIn
from router.core.terms import decode_terms, encode_terms
from router.model.condition import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED
from router.model.outcome import ACCEPTED, RELEASED
from router.model.terminus import Role
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.container import body
from tests.support.fleet import Fleet
from tests.support.play import AMQP, RESUMING, Peer, Play

TO = Route(address="orders", to=(Endpoint("plant7"),))
FROM = Route(address="readings", from_=Endpoint("plant7", "sensors"))
PLANT = {"plant7": ContainerTerms(dials_in=DialIn(identity="plant7"), failover_seconds=20.0)}
SHARED = {"plant7": ContainerTerms(dials_in=DialIn(identity="plant7", is_shared=True))}
BY_ID = {"plant7": ContainerTerms(dials_in=DialIn(container_id="seven"))}
OLD = attrs.evolve(AMQP, accepts_links=False)


def plant(play: Play, container: str = "p", **more: object) -> Peer:
    return play.connect(container, user="plant7", **more)  # type: ignore[arg-type]


def test_a_client_of_that_identity_is_the_container_and_gets_what_is_sent_to_it() -> None:
    play = Play(TO, terms=PLANT)
    sender = play.connect().attach_sender("orders")
    plant(play).answer_receiver("orders", credit=5)
    assert sender.credit == 5
    (number,) = sender.send("a")
    (receiver,) = (peer.receives for peer in play.peers.values() if peer.container == "p")
    (end,) = receiver.values()
    assert end.payloads == [b"a"]
    end.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_others_are_clients_and_so_is_a_peer_that_accepts_no_links() -> None:
    for terms, peer in (
        (PLANT, {"container": "p", "user": "plant8"}),
        (PLANT, {"container": "plant7", "user": None}),
        (PLANT, {"container": "p", "user": "plant7", "capabilities": OLD}),
        (BY_ID, {"container": "eight", "user": "plant7"}),
    ):
        play = Play(TO, FROM, terms=terms)
        play.connect().attach_sender("orders")
        other = play.connect(**peer)
        assert not other.asked
        assert other.closed is None
    play = Play(FROM, terms=BY_ID)
    assert play.connect("seven", user="anybody").asked


def test_what_it_offers_is_pulled_as_soon_as_it_comes() -> None:
    play = Play(FROM, terms=PLANT)
    received = play.connect().attach_receiver("readings", credit=2)
    plant(play).answer_sender("sensors").send("21 C")
    assert received.payloads == [b"21 C"]


def test_a_link_route_leads_to_what_the_service_serves_and_it_may_be_a_client_too() -> None:
    play = Play(TO, "results", terms=PLANT)
    service = plant(play)
    received = play.connect().attach_receiver("orders", credit=1)
    service.answer_sender("orders").send("served")
    assert received.payloads == [b"served"]
    results = play.connect("other").attach_receiver("results", credit=1)
    service.attach_sender("results").send("done")
    assert results.payloads == [b"done"]


def test_what_was_sent_is_sent_again_when_it_has_reconnected() -> None:
    play = Play(TO, terms=PLANT)
    first = plant(play)
    sender = play.connect().attach_sender("orders")
    end = first.answer_receiver("orders", credit=5)
    (number,) = sender.send("a")
    assert end.payloads == [b"a"]
    first.lose()
    assert sender.outcome(number) is None
    again = plant(play, "p2").answer_receiver("orders", credit=5)
    assert again.payloads == [b"a"]
    again.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_while_it_is_away_senders_wait_as_for_a_container_that_is_dialed() -> None:
    play = Play(TO, terms=PLANT)
    service = plant(play)
    sender = play.connect().attach_sender("orders")
    service.answer_receiver("orders", credit=5)
    service.lose()
    (number,) = sender.send("a")
    play.wait(19)
    assert sender.outcome(number) is None
    play.wait(2)
    assert sender.outcome(number) == (RELEASED, True)


@pytest.mark.parametrize("is_source", [False, True])
def test_exactly_once_links_are_resumed_when_it_dials_in_again(is_source: bool) -> None:
    terms = {"plant7": attrs.evolve(PLANT["plant7"], resumes=True)}
    exact = Guarantee.EXACTLY_ONCE
    routes = [attrs.evolve(FROM if is_source else TO, guarantee=exact)]
    play = Play(*routes, terms=terms)
    first = plant(play, capabilities=RESUMING)
    client = play.connect(capabilities=RESUMING)
    if is_source:
        received = client.attach_receiver("readings", credit=5, second=True)
        (asked,) = first.asked.values()
        source = first.answer_sender("sensors")
        (number,) = source.send("a")
        assert received.payloads == [b"a"]
        first.lose()
        second = plant(play, capabilities=RESUMING)
        (again,) = second.asked.values()
        assert again.name == asked.name
        assert again.unsettled is not None
        assert set(again.unsettled) == {source.unsettled[number]}
        return
    sender = client.attach_sender("orders", second=True)
    (asked,) = first.asked.values()
    end = first.answer_receiver("orders", credit=5)
    sender.send("a")
    assert end.payloads == [b"a"]
    (tag,) = end.unsettled.values()
    first.lose()
    second = plant(play, capabilities=RESUMING)
    (again,) = second.asked.values()
    assert again.name == asked.name
    assert again.unsettled is not None
    assert set(again.unsettled) == {tag}
    resumed = second.answer(None, Role.SENDER, unsettled={tag: ACCEPTED})
    assert not resumed.told or resumed.payloads == []  # type: ignore[union-attr]


def test_a_second_one_is_refused_while_another_is_connected() -> None:
    play = Play(TO, terms=PLANT)
    first = plant(play, "a")
    second = plant(play, "b")
    assert second.closed is not None
    assert second.closed.condition is not None
    assert second.closed.condition.name == RESOURCE_LIMIT_EXCEEDED
    assert first.closed is None
    assert play.core.dialed_in["plant7"].refused == 1
    first.lose()
    third = plant(play, "b")
    assert third.closed is None


def test_the_same_container_id_takes_over_and_the_older_connection_is_closed() -> None:
    play = Play(TO, terms=PLANT)
    first = plant(play, "a")
    sender = play.connect().attach_sender("orders")
    end = first.answer_receiver("orders", credit=5)
    sender.send("a")
    second = plant(play, "a")
    assert first.closed is not None
    assert first.closed.condition is not None
    assert first.closed.condition.name == CONNECTION_FORCED
    assert end.payloads == [b"a"]
    assert second.answer_receiver("orders", credit=5).payloads == [b"a"]
    first.lose()
    sender.send("b")
    (live,) = second.receives.values()
    assert live.payloads == [b"a", b"b"]


def test_those_that_share_are_given_work_in_turn_and_what_one_leaves_the_other_gets() -> None:
    play = Play(TO, FROM, terms=SHARED)
    one, two = plant(play, "a"), plant(play, "b")
    sender = play.connect().attach_sender("orders")
    ends = [each.answer_receiver("orders", credit=10) for each in (one, two)]
    assert sender.credit == 20
    for number in range(4):
        sender.send(f"{number}")
    assert [len(end.received) for end in ends] == [2, 2]
    one.lose()
    assert sorted(ends[1].payloads) == [b"0", b"1", b"2", b"3"]
    received = play.connect("r").attach_receiver("readings", credit=5)
    two.answer_sender("sensors").send("21 C")
    assert received.payloads == [b"21 C"]


def test_links_that_it_attaches_as_a_client_are_not_taken_for_ours() -> None:
    play = Play(TO, "results", terms=PLANT)
    service = plant(play)
    play.connect().attach_sender("orders")
    ours = service.answer_receiver("orders")
    theirs = service.attach_sender("results")
    connection = play.core._registry.connections[service.id]
    owns = [
        decode_terms(encode_terms(link)).is_own
        for link in (connection.outgoing[ours.link], connection.incoming[theirs.link])
    ]
    assert owns == [True, False]


def test_a_reload_makes_a_client_the_container_and_a_client_again() -> None:
    play = Play(TO, terms={"plant7": ContainerTerms()})
    service = plant(play)
    play.connect().attach_sender("orders")
    assert not service.asked
    play.carry_out(play.core.govern(play.core._registry.policy, PLANT, play.now))
    end = service.answer_receiver("orders", credit=3)
    play.carry_out(
        play.core.govern(play.core._registry.policy, {"plant7": ContainerTerms()}, play.now)
    )
    assert end.is_detached()
    assert service.closed is None
    assert not play.core.dialed_in


# Several workers


def is_closed(peer: Peer) -> bool:
    return peer.closed is not None


def fleet(*routes: Route | str, shared: bool = False) -> Fleet:
    return Fleet(2, *routes, owned=[["plant7"], []], terms=SHARED if shared else PLANT)


@pytest.mark.parametrize("at", [1, 2])
def test_senders_at_every_worker_reach_it_wherever_it_has_dialed_in(at: int) -> None:
    both = fleet(TO)
    senders = [both[n].connect(f"c{n}").attach_sender("orders") for n in (1, 2)]
    both.settle()
    service = plant(both[at])
    both.settle()
    end = service.answer_receiver("orders", credit=10)
    both.settle()
    for number, sender in enumerate(senders):
        assert sender.credit > 0
        sender.send(f"{number}")
    both.settle()
    assert sorted(end.payloads) == [b"0", b"1"]


@pytest.mark.parametrize("at", [1, 2])
def test_receivers_at_every_worker_get_what_it_offers(at: int) -> None:
    both = fleet(FROM, TO)
    service = plant(both[at])
    both.settle()
    pulled = [both[n].connect(f"r{n}").attach_receiver("readings", credit=5) for n in (1, 2)]
    routed = both[3 - at].connect("far").attach_receiver("orders", credit=1)
    both.settle()
    source = service.answer_sender("sensors")
    served = service.answer_sender("orders")
    both.settle()
    for number in range(4):
        source.send(f"{number}")
        both.settle()
    served.send("served")
    both.settle()
    assert sorted(pulled[0].payloads + pulled[1].payloads) == [b"0", b"1", b"2", b"3"]
    assert routed.payloads == [b"served"]


@pytest.mark.parametrize("at", [1, 2])
def test_it_comes_back_at_the_other_worker_and_nothing_is_lost(at: int) -> None:
    both = fleet(TO, FROM)
    first = plant(both[at])
    sender = both[1].connect().attach_sender("orders")
    received = both[2].connect("r").attach_receiver("readings", credit=5)
    both.settle()
    first.answer_receiver("orders", credit=5)
    first.answer_sender("sensors").send(body("one"))
    both.settle()
    (number,) = sender.send(body("a"))
    both.settle()
    first.lose()
    both.settle()
    second = plant(both[3 - at], "p2")
    both.settle()
    end = second.answer_receiver("orders", credit=5)
    second.answer_sender("sensors").send(body("two"))
    both.settle()
    assert [b"a" in each for each in end.payloads] == [True]  # its delivery-count is raised
    end.accept()
    both.settle()
    assert sender.outcome(number) == (ACCEPTED, True)
    assert received.payloads == [body("one"), body("two")]


@pytest.mark.parametrize("at", [1, 2])
def test_another_one_is_refused_at_the_other_worker_and_the_same_one_takes_over(at: int) -> None:
    both = fleet(TO)
    first = plant(both[at], "a")
    both.settle()
    refused = plant(both[3 - at], "b")
    assert refused.closed is not None
    assert not is_closed(first)
    again = plant(both[3 - at], "a")
    both.settle()
    assert not is_closed(again)
    assert is_closed(first)
    sender = both[at].connect().attach_sender("orders")
    both.settle()
    end = again.answer_receiver("orders", credit=5)
    both.settle()
    sender.send("a")
    both.settle()
    assert end.payloads == [b"a"]


def test_when_the_same_one_comes_to_both_workers_at_once_one_of_them_stays() -> None:
    both = fleet(TO)
    ends = [plant(both[n], "a") for n in (1, 2)]
    both.settle()
    assert [end.closed is None for end in ends].count(True) == 1


def test_those_that_share_are_reached_at_both_workers_from_both() -> None:
    both = fleet(TO, shared=True)
    services = [plant(both[n], f"s{n}") for n in (1, 2)]
    both.settle()
    senders = [both[n].connect(f"c{n}").attach_sender("orders") for n in (1, 2)]
    both.settle()
    ends = [each.answer_receiver("orders", credit=10) for each in services]
    both.settle()
    for number in range(6):
        for sender in senders:
            sender.send(f"{number}")
        both.settle()
    assert sum(len(end.received) for end in ends) == 12
    assert all(len(end.received) >= 4 for end in ends)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("is_source", [False, True])
def test_a_bridge_between_it_and_a_container_that_another_worker_dials(
    at: int, is_source: bool
) -> None:
    ends = [Endpoint("plant7", "sensors"), Endpoint("west", "in")]
    source, target = ends if is_source else reversed(ends)
    route = Route(address="b", from_=source, to=(target,))
    both = Fleet(2, route, owned=[["plant7", "west"], []], terms=PLANT)
    west = both[1].dial("west")
    both.settle()
    service = plant(both[at])
    both.settle()
    sender, receiver = (service, west) if is_source else (west, service)
    taken = receiver.answer_receiver(credit=5)
    both.settle()
    given = sender.answer_sender()
    both.settle()
    (number,) = given.send("over")
    both.settle()
    assert taken.payloads == [b"over"]
    taken.accept()
    both.settle()
    assert given.outcome(number) == (ACCEPTED, True)


def test_its_links_have_the_same_name_at_every_worker() -> None:
    both = fleet(TO)
    names = set()
    both[1].connect("c1").attach_sender("orders")
    for worker in (1, 2):
        service = plant(both[worker])
        both.settle()
        names |= {each.name for each in service.asked.values()}
        service.lose()
        both.settle()
    assert len(names) == 1
