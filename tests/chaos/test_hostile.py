"""Peers that mean harm against a running router: memory, other clients, and what they are told.

The other clients are a sender that keeps to a rate and a receiver, as an application would. They
have to be served all through each attack. The full sizes, and the rates, belong to the long tier.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio

from router.model.commands import SendDeliveries
from router.model.events import CreditGranted, Event
from tests.support.clients import LINK, Sender, receiving, sending, sending_as
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

MEBI = 1 << 20
MEMORY_OCTETS = 96 * MEBI
"""What the router may grow by: its budgets of payload are 16 MiB and 64 MiB here."""

RATE = 2000
"""Messages per second of the other clients."""

STEP_SECONDS = 0.02
SHARE_LEAST = 0.9

FILE = """
router: {{id: target, workers: 1, admin: off}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: "#"
limits:
  connections: 20000
  handshake_seconds: 3s
  links_per_connection: 1000
  connection_octets: 16MiB
  process_octets: 64MiB
"""


@attrs.frozen
class Attack:
    """One kind of attack.

    Attributes:
        short, full: its sizes.
        signs: what the attacker has to be told, one of them; empty: it is borne.
        log: what the log has to say of it.
    """

    kind: str
    short: int
    full: int
    signs: tuple[str, ...] = ()
    log: str | None = None


ATTACKS = (
    Attack("slow_handshakes", 100, 2_000, log="connection.refused"),
    Attack("oversized_frames", 5, 200, ("amqp:connection:framing-error",), "max"),
    Attack("attaches", 3_000, 100_000, ("limits.links_per_connection: 1000",)),
    Attack("standing_attaches", 3_000, 100_000, ("limits.links_per_connection: 1000",)),
    Attack("credit", 20_000, 2_000_000),
    Attack("dispositions", 20_000, 2_000_000),
    Attack("echoes", 20_000, 2_000_000),
    Attack("ways", 20_000, 200_000),
    Attack("nesting", 5, 500, ("amqp:decode-error",)),
    Attack("tables", 6, 600, ("SYNTAX_ERROR - ", "FRAME_ERROR - ")),
)

CROWD = Attack("crowd", 130, 1_300, ("amqp:connection:framing-error",))


@attrs.define(eq=False)
class PacedSender(Sender):
    """Sends so many messages a second, as credit allows.

    Attributes:
        wanted: how many were to be sent so far.
        count: how many were.
        is_over: it sends no more.
    """

    wanted: int = 0
    count: int = 0
    is_over: bool = False
    _credit: int = 0

    def react(self, event: Event) -> None:
        if isinstance(event, CreditGranted):
            self._credit = event.credit
        else:
            super().react(event)

    async def pace(self) -> None:
        """Sends what is due every other moment."""
        began = trio.current_time()
        while not self.is_over:
            await trio.sleep(STEP_SECONDS)
            self.wanted = int((trio.current_time() - began) * RATE)
            due = min(self.wanted - self.count, self._credit)
            if due > 0:
                run = [self._next(b"%d" % (self.count + number)) for number in range(due)]
                self.count += due
                self._credit -= due
                await self.command(SendDeliveries(LINK, run))


async def strike(attack: Attack, port: int, size: int) -> dict[str, Any]:
    """Runs the attacker; gives its account."""
    done = await trio.run_process(
        [sys.executable, "tests/support/hostile.py", attack.kind, str(port), str(size)],
        capture_stdout=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


async def measure(attack: Attack, router: RunningRouter, port: int, size: int) -> dict[str, Any]:
    """Attacks a router while others use it; gives an account of all."""
    place = f"127.0.0.1:{port}"
    seen = len(router.log)
    with trio.fail_after(400):
        async with (
            receiving(place, "good") as sink,
            sending_as(PacedSender, place, "good") as source,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(source.pace)
            await sink.wait_until(lambda: len(sink.bodies) >= RATE // 4)
            memory = router.resident_octets()
            before, wanted, began = len(sink.bodies), source.wanted, trio.current_time()
            account = await strike(attack, port, size)
            seconds = trio.current_time() - began
            moved, wanted = len(sink.bodies) - before, source.wanted - wanted
            grown = router.resident_octets() - memory
            source.is_over = True
            await source.wait_until(lambda: len(source.accepted) == source.count)
            assert sink.bodies == [b"%d" % number for number in range(source.count)]
    if attack.log is not None:
        await trio.to_thread.run_sync(router.wait_for, attack.log, 90, seen)
    return {
        "attack": attack.kind,
        "size": size,
        "seconds": round(seconds, 1),
        "grown_mebi": round(grown / MEBI, 1),
        "share": round(moved / wanted, 3),
        **account,
    }


def check(attack: Attack, account: dict[str, Any]) -> None:
    assert account["grown_mebi"] * MEBI < MEMORY_OCTETS, account
    if attack.signs:
        told = " ".join(account["told"])
        assert any(sign in told for sign in attack.signs), account


@attrs.frozen
class Target:
    router: RunningRouter
    port: int


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    port = free_port()
    with running_router(FILE.format(port=port), tmp_path_factory.mktemp("target")) as router:
        yield Target(router, port)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.kind)
async def test_an_attack_is_borne_or_refused_and_others_are_served(
    attack: Attack, target: Target
) -> None:
    check(attack, await measure(attack, target.router, target.port, attack.short))


async def bear_a_crowd(target: Target, size: int) -> dict[str, Any]:
    """Lets a crowd come, while somebody feeds its slow readers; each has to be told and closed."""
    place = f"127.0.0.1:{target.port}"
    async with sending(place, "flood", itertools.repeat(bytes(16 << 10))):
        account = await measure(CROWD, target.router, target.port, size)
    check(CROWD, account)
    assert account["over"] == size, account
    assert account["greeted"] == size, account
    behind = sum(number % 13 in range(7, 10) for number in range(size))
    assert account["told"]["amqp:connection:framing-error"] == behind, account
    return account


async def test_a_crowd_of_random_octets_half_headers_and_slow_readers_is_parted_from(
    target: Target,
) -> None:
    await bear_a_crowd(target, CROWD.short)


@pytest.mark.slow
async def test_a_crowd_at_full_size_leaves_others_nine_tenths_of_their_rate(
    target: Target,
) -> None:
    is_quiet = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
    account = await bear_a_crowd(target, CROWD.full)
    print(json.dumps(account))
    if is_quiet:
        assert account["share"] >= SHARE_LEAST, account


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.kind)
async def test_an_attack_at_full_size_leaves_others_nine_tenths_of_their_rate(
    attack: Attack, target: Target
) -> None:
    is_quiet = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
    account = await measure(attack, target.router, target.port, attack.full)
    print(json.dumps(account))
    check(attack, account)
    if is_quiet:  # on a busy machine a rate says nothing of the router
        assert account["share"] >= SHARE_LEAST, account
