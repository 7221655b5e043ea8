"""A receiver that repeats what it said of deliveries, before it has heard that all is done."""

import pytest

from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from tests.support.kernel import MODES
from tests.support.lane_meeting import Meeting
from tests.support.lane_world import disposition


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    "ranges", [[(0, 4), (0, 4)], [(3, 4), (0, 3), (1, 2)], [(2, 2), (2, 2), (0, 4), (4, 4)]]
)
def test_a_repeated_disposition_changes_nothing(
    mode: str, settled: bool, ranges: list[tuple[int, int]]
) -> None:
    meeting = Meeting(mode)
    meeting.send(5, settled=settled)
    client = meeting.receiver.client
    for first, last in ranges:
        client.outbox += disposition(Role.RECEIVER, first, last, settled=False)
    meeting.exchange.push(client)  # all of it in one read
    client.outbox += disposition(Role.RECEIVER, 0, 4, settled=False)
    meeting.settle_down()
    assert all(each.settled for each in meeting.sender.sent)
    if not settled:
        assert [each.state for each in meeting.sender.sent] == [ACCEPTED] * 5
    exchange = meeting.exchange
    assert exchange.core._registry.process.used == 0
    assert exchange.express is None or exchange.express.kept_octets == 0
