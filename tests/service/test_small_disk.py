"""A router whose disk is small: stored routes fill it, their senders wait, and all of it drains."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState
from router.routes.route import Guarantee
from tests.service.test_stored_routes import FAR, NEAR, PATIENCE_SECONDS, Places, until
from tests.support.chaos import Books, number_of, receiving, sending

pytestmark = pytest.mark.long

DISK_OCTETS = 64 << 20
MESSAGE_OCTETS = 1000

SMALL = """
import errno, os
from pathlib import Path
from router.journal.disk import Disk

write, folder, limit = Disk.write, Path({folder!r}), {octets}

def used():
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                pass
    return found

def limited_write(self, file, octets, offset):
    if offset + len(octets) > os.fstat(file).st_size and used() + len(octets) > limit:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(self, file, octets, offset)

Disk.write = limited_write
Disk.room = lambda self, directory: (max(0, limit - used()), limit)
"""
"""A ``sitecustomize`` for a disk of so many octets, of which files have whole ones."""

EXACT = "    guarantee: exactly-once\n"


def wide(numbers: Iterator[int]) -> Iterator[bytes]:
    """Makes messages that end with their numbers."""
    for number in numbers:
        body = b"%0*d" % (MESSAGE_OCTETS, number)
        yield b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("always", ["true", "false"])
async def test_a_full_small_disk_drains_by_itself(
    tmp_path: Path, guarantee: Guarantee, always: str
) -> None:
    """What leaves an exactly-once route is recorded by a journal on the same disk."""
    places, modules = Places(tmp_path, always=always), tmp_path / "modules"
    modules.mkdir()
    state = str(tmp_path / "near-state")
    (modules / "sitecustomize.py").write_text(SMALL.format(folder=state, octets=DISK_OCTETS))
    near, far = NEAR, FAR
    if guarantee is Guarantee.EXACTLY_ONCE:
        near = near.replace("limit_seconds: 1s", "limit_seconds: 1s, is_router: true") + EXACT
        far = far.replace("telemetry.#\n", f"telemetry.#\n{EXACT}")
    books, order, is_over = Books(), list[int](), False

    def supply() -> Iterator[bytes]:
        numbers = itertools.takewhile(lambda _: not is_over, itertools.count())
        return wide(books.count(numbers))

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    sender = sending("sender", "telemetry.a", places.near, supply(), guarantee=guarantee)
    accepted = sender.machine.report.outcomes
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            places.running("near", near, {"PYTHONPATH": str(modules)}),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(sender.run)
            before = -1
            while (now := accepted["accepted"]) != before or not now:
                before = now
                await trio.sleep(3.0)
            assert now * MESSAGE_OCTETS > DISK_OCTETS // 2, "it waits though there is room"
            is_over = True
            async with places.running("far", far):
                receiver = receiving("receiver", "telemetry.a", places.far, take)
                nursery.start_soon(receiver.run)
                await until(lambda: not books.lost and accepted["accepted"] == len(books.sent))
                nursery.cancel_scope.cancel()
    assert order == sorted(books.sent)
