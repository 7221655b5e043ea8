"""Stored routes of several workers: the first one has the store, and the others reach it there."""

import attrs
import pytest

from router.core.stored import STORE
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED
from router.routes.route import Endpoint, Route, Storing
from tests.support.fleet import Fleet

ALWAYS = Route(
    address="telemetry.#",
    to=(Endpoint("cloud"),),
    store=Storing(always=True),
    dead_letter=Endpoint("cloud", "dead"),
)
PASSING = attrs.evolve(ALWAYS, store=Storing())
ADDRESS = "telemetry.a"


def test_what_another_worker_is_sent_is_stored_by_the_first_one() -> None:
    fleet = Fleet(2, ALWAYS, owned=[["cloud", STORE]])
    store = fleet[1].dial(STORE)
    fleet.settle()
    sender = fleet[2].connect().attach_sender(ADDRESS)
    fleet.settle()
    shelf = store.answer_receiver(ADDRESS, credit=10)
    fleet.settle()
    (number,) = sender.send("1")
    fleet.settle()
    assert shelf.payloads == [b"1"]
    shelf.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_it_passes_by_the_store_to_a_target_there() -> None:
    fleet = Fleet(2, PASSING, owned=[["cloud", STORE]])
    store, cloud = fleet[1].dial(STORE), fleet[1].dial("cloud")
    sender = fleet[2].connect().attach_sender(ADDRESS)
    fleet.settle()
    shelf = store.answer_receiver(ADDRESS, credit=10)
    target = cloud.answer_receiver(ADDRESS, credit=10)
    fleet.settle()
    sender.send("1")
    fleet.settle()
    assert (shelf.payloads, target.payloads) == ([], [b"1"])
    cloud.lose()
    fleet.settle()
    sender.send("2")
    fleet.settle()
    assert shelf.payloads == [b"1", b"2"]


@pytest.mark.parametrize("route", [ALWAYS, PASSING])
def test_what_is_stored_goes_to_a_target_that_another_worker_has(route: Route) -> None:
    fleet = Fleet(2, route, owned=[[STORE], ["cloud"]])
    store, cloud = fleet[1].dial(STORE), fleet[2].dial("cloud")
    fleet.settle()
    sender = fleet[2].connect().attach_sender(ADDRESS)
    inlet = store.attach_sender(ADDRESS)
    fleet.settle()
    target = cloud.answer_receiver(ADDRESS, credit=10)
    fleet.settle()
    (number,) = inlet.send("1")
    fleet.settle()
    assert target.payloads == [b"1"]
    target.accept()
    fleet.settle()
    assert inlet.outcome(number) == (ACCEPTED, True)
    shelf = store.answer_receiver(ADDRESS, credit=10)
    fleet[1].wait(2)
    fleet.settle()
    sender.send("2")
    fleet.settle()
    assert (shelf.payloads, target.payloads) == ([b"2"], [b"1"])


@pytest.mark.parametrize("route", [ALWAYS, PASSING])
def test_what_is_on_its_way_to_another_worker_is_not_sent_before_what_a_target_returns(
    route: Route,
) -> None:
    fleet = Fleet(2, route, owned=[[STORE], ["cloud"]])
    store, cloud = fleet[1].dial(STORE), fleet[2].dial("cloud")
    fleet.settle()
    inlet = store.attach_sender(ADDRESS)
    fleet.settle()
    target = cloud.answer_receiver(ADDRESS, credit=20)
    fleet.settle()
    numbers = inlet.send("1", "2", "3")
    fleet.settle()
    numbers += inlet.send("4", "5")
    target.update(DeliveryNumber(target.last.number - 1), state=RELEASED, settled=True)
    target.accept(*target.unsettled)
    numbers += inlet.send("6")
    fleet.carry(1, 2)
    numbers += inlet.send("7")
    fleet.settle()
    assert target.payloads == [b"1", b"2", b"3"]
    back = [number for number in numbers if inlet.outcome(number) == (RELEASED, True)]
    assert back == [numbers[1], *numbers[3:]]
    while inlet.was_drained():
        inlet.give_back_credit()
        fleet.settle()
    inlet.send("2", "4", "5", "6", "7")
    fleet.settle()
    assert target.payloads[3:] == [b"2", b"4", b"5", b"6", b"7"]


def test_senders_elsewhere_wait_while_the_worker_with_the_store_is_dead() -> None:
    fleet = Fleet(2, PASSING, owned=[["cloud", STORE]])
    store, cloud = fleet[1].dial(STORE), fleet[1].dial("cloud")
    sender = fleet[2].connect().attach_sender(ADDRESS)
    fleet.settle()
    store.answer_receiver(ADDRESS, credit=10)
    target = cloud.answer_receiver(ADDRESS, credit=10)
    fleet.settle()
    (number,) = sender.send("1")
    fleet.settle()
    fleet.cut(1, 2)
    assert (sender.credit, sender.outcome(number)) == (0, None)
    fleet.join(1, 2)
    fleet.settle()
    assert [each for each in target.payloads if each == b"1"]
