"""Whatever octets a peer sends as names, others are served, and the workers stay one router."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from tests.support.speech import SPEECHES, Speech
from tests.support.town import Town

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
    for worker in (1, 2):
        speech: Speech = data.draw(SPEECHES[protocol])
        guest = town.guest(protocol, worker)
        for piece in speech:
            guest.say(piece)
            town.settle()
        town.check(pairs[-1:])
    for guest in town.guests:
        guest.leave()
    town.check(pairs)
