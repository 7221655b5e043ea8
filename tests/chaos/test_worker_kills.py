"""Workers die at any moment while messages flow: nothing is lost, and nothing is told twice."""

import random
from collections import Counter
from pathlib import Path

import pytest
import trio

from router.net.client.sender import SendingLink
from tests.support.running import running_router
from tests.support.workers import Steady, address_of, kill, processes

pytestmark = pytest.mark.long

FILE = """
router: {id: under-test, workers: 2, admin: off}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: "q.#"}]
"""

MESSAGES = 10_000
KILLS = 2


async def test_every_message_arrives_and_is_answered_once(tmp_path: Path) -> None:
    chance = random.Random(5)
    with running_router(FILE, tmp_path) as router:
        address = address_of(router)
        receivers = [Steady.receiver(address, f"r{n}", "q.a") for n in range(3)]
        senders = [Steady.sender(address, f"s{n}", "q.a", MESSAGES) for n in range(2)]
        async with trio.open_nursery() as nursery:
            for each in receivers:
                nursery.start_soon(each.run)
            async with trio.open_nursery() as sending:
                for each in senders:
                    sending.start_soon(each.run)
                for _ in range(KILLS):
                    await trio.sleep(chance.uniform(0.2, 0.6))
                    with trio.fail_after(60):
                        while len(processes(router)) < 2:
                            await trio.sleep(0.05)
                    kill(processes(router)[chance.choice((1, 2))])
            nursery.cancel_scope.cancel()
    for each in senders:
        assert isinstance(each.machine, SendingLink)
        report = each.machine.report
        assert report.sent == MESSAGES
        assert report.settled == MESSAGES
        assert report.outcomes["rejected"] == 0
    accepted = sum(each.machine.report.outcomes["accepted"] for each in senders)
    arrived = sum((each.taken for each in receivers), Counter[int]())
    # both senders number their messages alike: what both had accepted came twice, or more often
    assert len(arrived) == MESSAGES
    assert arrived.total() >= accepted
    lost = sum(each.machine.report.outcomes["modified"] for each in senders)
    assert accepted + lost == 2 * MESSAGES
