"""A target that is away for three days, and what came meanwhile.

The store's engine, its desk and its log do all that they do in a router, on a real disk; the clock
is the test's. ``ROUTER_AWAY_MESSAGES`` says how many messages come, of 1 KiB each.
"""

import os
import time
from pathlib import Path

import pytest

from router.journal.disk import Disk
from router.journal.store.queues import Bounds
from router.model.commands import AttachLink, GrantCredit, UpdateDeliveries
from router.model.events import CreditGranted, DeliveriesReceived
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Target
from tests.support.shelved import SHELF, Shelved

MESSAGES = int(os.environ.get("ROUTER_AWAY_MESSAGES", "10000000"))
AWAY_SECONDS = 72 * 3600.0
DAY_NS = 24 * 3600 * 1_000_000_000
HEAD = b"." * 1016
STEP = 1000
CREDIT = 1000
NEWCOMER_EACH = 10
"""So many messages are forwarded for each one that comes while the store is emptied."""

FIRST_DECADE = 10_000
"""Stored messages after which memory is looked at first, and then after ten times as many."""

GROWTH_OCTETS = 48 << 20
LEFT_OCTETS = 64 << 20


def resident_octets() -> int:
    """Returns how much memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def stored_octets(directory: Path) -> int:
    """Returns how much is on the disk."""
    return sum(each.stat().st_size for each in directory.iterdir())


class Away(Shelved):
    """Keeps what the core was told no longer than it is looked at."""

    next_number = 1
    expected = 1

    def come(self, count: int) -> None:
        """Messages come, as many as there is credit for."""
        assert max(e.credit for e in self.events if isinstance(e, CreditGranted)) >= count
        self.put(self.next_number, count, head=HEAD)
        self.next_number += count

    def forget_events(self) -> None:
        """What came of credit last is kept."""
        granted = [e for e in self.events if isinstance(e, CreditGranted) and e.link == SHELF]
        self.events[:] = granted[-1:]

    def forward(self, link: LinkId) -> int:
        """The target accepts what it was sent, in its order; returns how many that were."""
        count = 0
        for run in [each for each in self.events if isinstance(each, DeliveriesReceived)]:
            assert run.link == link
            for delivery in run.deliveries:
                assert delivery.payload == HEAD + b"%08d" % self.expected
                self.expected += 1
            count += len(run.deliveries)
            numbers = [each.number for each in run.deliveries]
            self.engine.execute(UpdateDeliveries(link, numbers, ACCEPTED, True))
        self.forget_events()
        self.order(GrantCredit(link, CREDIT))
        return count


@pytest.mark.slow
def test_a_target_is_away_for_three_days_and_memory_stays_flat(tmp_path: Path) -> None:
    away = Away(files=Disk(), directory=tmp_path, bounds=Bounds(age_ns=7 * DAY_NS))
    away.attach()
    away.come(1)
    link = away.inlets()["telemetry.a", False]
    begun, before, most, decades = time.monotonic(), 0, 0, dict[int, int]()
    while away.next_number <= MESSAGES:
        away.come(min(STEP, MESSAGES + 1 - away.next_number))
        away.forget_events()
        away.wait(AWAY_SECONDS * STEP / MESSAGES)
        most = max(most, resident_octets())
        if not before and away.next_number > MESSAGES // 10:
            before = resident_octets()
        if away.next_number > FIRST_DECADE * 10 ** len(decades):
            decades[FIRST_DECADE * 10 ** len(decades)] = resident_octets()
    stored_seconds = time.monotonic() - begun
    assert away.messages == MESSAGES
    held = stored_octets(tmp_path)

    begun = time.monotonic()
    target = Target(address="telemetry.a")
    name = LinkName("inlet")
    away.order(AttachLink(link=link, name=name, role=Role.RECEIVER, source=None, target=target))
    away.order(GrantCredit(link, CREDIT))
    while away.expected <= MESSAGES:  # newcomers are behind all that was stored before
        count = away.forward(link)
        assert count
        away.come(max(1, count // NEWCOMER_EACH))
        most = max(most, resident_octets())
    while away.expected < away.next_number:
        assert away.forward(link)
    drained_seconds = time.monotonic() - begun
    away.wait(1.0)
    print("resident:", *(f"{each >> 20} MiB at {n:,};" for n, each in decades.items()))
    print(
        f"{MESSAGES:,} messages, {held >> 20:,} MiB: stored at {MESSAGES / stored_seconds:,.0f}/s,"
        f" drained at {away.expected / drained_seconds:,.0f}/s with"
        f" {away.next_number - MESSAGES - 1:,} newcomers behind; resident {before >> 20} MiB after"
        f" a tenth, {most >> 20} MiB at most; {stored_octets(tmp_path) >> 20} MiB left on the disk"
    )
    assert away.messages == 0
    assert most - before < GROWTH_OCTETS
    assert stored_octets(tmp_path) < LEFT_OCTETS
