"""Whatever octets a peer sends as names, others are served, and the workers stay one router."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from router.routes.route import Endpoint, Route
from tests.support.speech import BROKERS, SPEECHES, Speech
from tests.support.town import Town

pytestmark = pytest.mark.long

GOOD = ("t", "q", "k.one", "t/k.one", "apart/from/all")
"""Addresses of good pairs, most of which peers may use, too."""


@pytest.mark.parametrize("protocol", SPEECHES, ids=str)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_whatever_a_client_says_only_its_own_connection_suffers(
    protocol: Protocol, data: st.DataObject
) -> None:
    town = Town()
    pairs = [town.pair(address) for address in GOOD]
    for worker, spoken in ((1, protocol), (2, data.draw(st.sampled_from(list(SPEECHES))))):
        speech: Speech = data.draw(SPEECHES[spoken])
        guest = town.guest(spoken, worker)
        for piece in speech:
            guest.say(piece)
            town.settle()
        town.check(pairs[-1:])
    for guest in town.guests:
        guest.leave()
    town.check(pairs)


ROUTES = (
    "#",
    Route(address="out", to=(Endpoint("east", "q"),)),
    Route(address="in", from_=Endpoint("east", "q")),
)


@pytest.mark.parametrize("protocol", BROKERS, ids=str)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_whatever_a_broker_says_only_its_own_connection_suffers(
    protocol: Protocol, data: st.DataObject
) -> None:
    town = Town(*ROUTES, owned=[["east"]])
    pairs = [town.pair("apart/from/all")]
    town[1].connect().attach_sender("out")
    town[2].connect().attach_receiver("in", credit=10)
    guest = town.guest(protocol, dialed="east")
    town.settle()
    for piece in data.draw(BROKERS[protocol]):
        guest.say(piece)
        town.settle()
        town.check(pairs)
    guest.leave()
    town.check(pairs)
