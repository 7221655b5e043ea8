"""Several senders are granted the credit of one receiver: where the surplus waits, and for what."""

import pytest

from router.model.outcome import ACCEPTED
from router.routes.route import Route, Unroutable
from tests.support.fleet import Fleet
from tests.support.play import ReceiverEnd, SenderEnd

BODIES = [b"\x00Su\xa0\x01%d" % number for number in range(6)]


def surplus(policy: Unroutable) -> tuple[Fleet, ReceiverEnd, ReceiverEnd, list[SenderEnd]]:
    """Has three deliveries wait at the second worker, while somebody at the first one is idle."""
    fleet = Fleet(2, Route(address="x", unroutable=policy))
    busy = fleet[2].connect("busy").attach_receiver("x", credit=3)
    fleet.settle()
    senders = [fleet[number].connect("sender").attach_sender("x") for number in (1, 2)]
    fleet.settle()
    assert [sender.credit for sender in senders] == [3, 3]
    for place, sender in enumerate(senders):
        sender.send(*BODIES[place * 3 : place * 3 + 3])
    fleet.settle()
    idle = fleet[1].connect("idle").attach_receiver("x", credit=10)
    fleet.settle()
    assert (len(busy.payloads), idle.payloads) == (3, [])
    return fleet, busy, idle, senders


@pytest.mark.parametrize("policy", [Unroutable.RELEASE, Unroutable.HOLD])
def test_what_others_used_the_credit_for_waits_until_the_receiver_has_more(
    policy: Unroutable,
) -> None:
    fleet, busy, idle, senders = surplus(policy)
    busy.accept()
    fleet.settle()
    assert (len(busy.payloads), idle.payloads) == (3, [])
    busy.grant(3)
    fleet.settle()
    assert sorted(busy.payloads) == BODIES
    busy.accept()
    fleet.settle()
    assert [told for sender in senders for told in sender.told.values()] == [[(ACCEPTED, True)]] * 6


@pytest.mark.parametrize("policy", [Unroutable.RELEASE, Unroutable.HOLD])
def test_what_others_used_the_credit_for_goes_elsewhere_when_the_receiver_leaves(
    policy: Unroutable,
) -> None:
    fleet, busy, idle, senders = surplus(policy)
    busy.accept()
    fleet.settle()
    busy.detach()
    fleet.settle()
    assert sorted([*busy.payloads, *idle.payloads]) == BODIES
    idle.accept()
    fleet.settle()
    assert [told for sender in senders for told in sender.told.values()] == [[(ACCEPTED, True)]] * 6
