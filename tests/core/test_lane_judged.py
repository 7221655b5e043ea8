"""Deliveries that the express lane leaves to the core, on an address that stays on the lane."""

from typing import Any

import pytest

from router.routes.route import Guarantee, Route
from tests.support.lane_meeting import Meeting

pytest.importorskip("router.wire.v1_0._express", reason="the express lane was not built")

LOSSY = Route(address="#", guarantee=Guarantee.AT_MOST_ONCE)
"""On such a route the lane takes only what is settled beforehand."""


def test_no_more_is_accepted_than_there_is_credit_to_send() -> None:
    meeting = Meeting("cython", LOSSY, credit=10)
    meeting.promote()
    before = len(meeting.receiver.received)
    sent = len(meeting.sender.sent)
    meeting.receiver.grant(2)
    meeting.exchange.settle_down()
    meeting.send(5)
    assert len(meeting.receiver.received) - before == 2
    assert sum(each.settled for each in meeting.sender.sent[sent:]) == 2
    meeting.receiver.grant(10)
    meeting.exchange.settle_down()
    assert all(each.settled for each in meeting.sender.sent)


def test_a_sender_gets_no_more_credit_than_receivers_have_given() -> None:
    meeting = Meeting("cython", LOSSY, credit=50)
    meeting.promote()
    for _ in range(5):
        meeting.receiver.grant(2)
        meeting.exchange.settle_down()
        meeting.send(10)
        meeting.exchange.wait(2)
        meeting.receiver.grant(50)
        meeting.exchange.settle_down()
    assert meeting.sender.credit <= 50
    assert all(link.queued == 0 for node in _nodes(meeting) for link in node.feeds)


def _nodes(meeting: Meeting) -> list[Any]:
    return list(meeting.exchange.core._registry.nodes.values())
