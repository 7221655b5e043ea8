"""What may go wrong while messages are stored: disk, clock, files of others, and what people do."""

import json
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.journal.segment import SEGMENT_MAGIC, SegmentScan, segment_name
from router.journal.store.index import StoredRow, rows_of
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation
from router.net.client.message import numbered
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.protocols import PROTOCOLS
from tests.service.test_disk_full import SPOILED
from tests.service.test_store_commands import NEAR_WITH_ADMIN, asked, store
from tests.service.test_stored_routes import FAR, NEAR, PATIENCE_SECONDS, Places, until
from tests.support.chaos import Books, number_of, receiving
from tests.support.clock_set import ClockSet
from tests.support.conversing import conversing
from tests.support.running import RunningRouter
from tests.support.torn import tear

pytestmark = pytest.mark.long

DAY = 24 * 3600.0
YEAR = 365 * DAY


def lines(router: RunningRouter, event: str) -> list[str]:
    """Returns the lines of a router's log about an event."""
    return [line for line in tuple(router.log) if f'"{event}"' in line]


async def kill_with_store(router: RunningRouter) -> None:
    """Kills a router and the process of its store at once, and waits until both have ended."""
    process = json.loads(lines(router, "messages.started")[-1])["process"]
    for each in (router.process.pid, process):
        os.kill(each, signal.SIGKILL)
    await trio.to_thread.run_sync(router.process.wait)
    await until(lambda: not _is_there(process))


def _is_there(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def drain(places: Places, address: str, count: int, *, far: str = FAR) -> list[int]:
    """Runs the target until so many messages have come; returns their numbers in order."""
    order: list[int] = []
    books = Books()

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    async with places.running("far", far), trio.open_nursery() as nursery:
        nursery.start_soon(receiving(f"r-{address}", address, places.far, take).run)
        await until(lambda: len(order) >= count)
        await trio.sleep(0.5)  # there may be more than there should be
        nursery.cancel_scope.cancel()
    return order


# --- the disk -------------------------------------------------------------------------------------


def messages_of(path: Path) -> list[tuple[int, int, int]]:
    """Returns offset, length and number of messages of each block of a segment with any."""
    scan, found = SegmentScan(path.read_bytes()), list[tuple[int, int, int]]()
    for offset, block in scan.blocks():
        count = sum(isinstance(row, StoredRow) for row in rows_of(1, offset, block))
        if count:
            found.append((offset, block.octets, count))
    return found


async def test_a_damaged_block_costs_what_it_held_and_a_torn_tail_nothing(tmp_path: Path) -> None:
    places, books = Places(tmp_path), Books()
    segment = tmp_path / "near-state" / "messages" / segment_name(1)
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs() as near:
            for first in range(0, 100, 20):
                await places.send("telemetry.a", first, 20, books)
            await kill_with_store(near)
        blocks = messages_of(segment)
        offset, octets, count = blocks[len(blocks) // 2]
        before = sum(each[2] for each in blocks[: len(blocks) // 2])
        content = bytearray(segment.read_bytes())
        content[offset + octets // 2] ^= 0xFF
        segment.write_bytes(content)
        assert tear(segment.parent, random.Random(1))
        async with places.store_runs() as near:
            order = await drain(places, "telemetry.a", 100 - count)
            losses = [json.loads(line)["loss"] for line in lines(near, "store.incomplete")]
    assert order == [*range(before), *range(before + count, 100)]
    assert any(f"{octets} octets from offset {offset}" in each for each in losses), losses
    assert any(segment.name in each for each in losses), losses
    assert any(f"{count} records" in each for each in losses), losses


@attrs.define(eq=False)
class Client:
    """A sender of one protocol, which may send as many as it is allowed to."""

    protocol: Protocol
    port: int
    allowed: int = 0
    machine: SendingLink = attrs.field(init=False)
    speech: Conversation = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = SendingLink(
            name=LinkName(f"sender of {self.protocol}"),
            address=self.address,
            supply=self._supply(),
            guarantee=Guarantee.AT_LEAST_ONCE,
            window=20,
        )
        self.speech = conversing(
            self.machine, self.protocol, self.port, f"sender of {self.protocol}"
        )

    @property
    def address(self) -> str:
        return f"telemetry.{'abcde'[list(PROTOCOLS).index(self.protocol)]}"

    @property
    def accepted(self) -> int:
        return self.machine.report.outcomes["accepted"]

    def allow(self, count: int) -> None:
        self.allowed += count
        self.speech.wake()

    def _supply(self) -> Iterator[bytes | None]:
        supply, sent = numbered(b"x" * 100, None), 0
        while True:
            if sent < self.allowed:
                sent += 1
                yield next(supply)
            else:
                yield None


async def test_senders_of_all_protocols_wait_while_the_disk_is_full(tmp_path: Path) -> None:
    places, spoil, modules = Places(tmp_path), tmp_path / "trouble", tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SPOILED.format(trouble=str(spoil)))
    clients = [Client(protocol, places.near) for protocol in PROTOCOLS]
    taken: dict[str, list[int]] = {}

    def take(client: Client, delivery: ReceivedDelivery) -> DeliveryState:
        properties = hub.to_sections(delivery.protocol, delivery.payload).properties
        assert properties is not None
        taken.setdefault(client.address, []).append(int(str(properties.message_id)))
        return ACCEPTED

    with trio.fail_after(PATIENCE_SECONDS):
        environment = {"PYTHONPATH": str(modules)}
        async with (
            places.running("near", NEAR, environment) as near,
            trio.open_nursery() as nursery,
        ):
            for client in clients:
                nursery.start_soon(client.speech.run)
                client.allow(30)
            await until(lambda: all(each.accepted == 30 for each in clients))
            spoil.write_text("write ENOSPC")
            for client in clients:
                client.allow(100)
            await until(lambda: bool(lines(near, "messages.stuck")))
            seen = [each.accepted for each in clients]
            await trio.sleep(2.0)
            assert [each.accepted for each in clients] == seen
            assert all(count < 130 for count in seen)
            spoil.unlink()
            await until(lambda: all(each.accepted == 130 for each in clients))
            assert lines(near, "messages.moving")
            async with places.target_runs():
                for client in clients:
                    name, port = f"r-{client.address}", places.far
                    receiver = receiving(name, client.address, port, partial(take, client))
                    nursery.start_soon(receiver.run)
                await until(lambda: sum(map(len, taken.values())) >= 5 * 130)
                nursery.cancel_scope.cancel()
    assert list(taken.values()) == [[*range(130)]] * 5


# --- the clock ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [DAY, -DAY, -YEAR])
async def test_a_clock_that_somebody_sets_makes_no_dead_letters(
    tmp_path: Path, seconds: float
) -> None:
    places, books, dead = Places(tmp_path, store=", age: 7d"), Books(), Books()
    clock, text = ClockSet(tmp_path / "clock"), NEAR.replace("workers: 1", "workers: 2")
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.running("near", text, clock.environment) as near:
            await places.send("telemetry.a", 0, 50, books)
            clock.set(seconds)
            await places.send("telemetry.a", 50, 50, books)
            worker = json.loads(lines(near, "worker.started")[-1])["process"]
            os.kill(worker, signal.SIGKILL)
            await places.send("telemetry.a", 100, 50, books)
            await kill_with_store(near)
        async with places.running("near", text, clock.environment):
            await places.send("telemetry.a", 150, 50, books)
            if abs(seconds) < YEAR:  # what came before would be a year old
                clock.set(0)
            await places.send("telemetry.a", 200, 50, books)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
                order = await drain(places, "telemetry.a", 250)
                nursery.cancel_scope.cancel()
    assert order == [*range(250)]
    assert not dead.taken


# --- what people change ---------------------------------------------------------------------------


LESS = "store: {{always: {always}, messages: 30}}"
CHANGES = {
    "less room": NEAR.replace("store: {{always: {always}{store}}}", LESS),
    "another container": NEAR.replace("cloud", "other"),
    "another name": NEAR.replace("telemetry.#", "telemetry.*"),
    "another number of workers": NEAR.replace("workers: 1", "workers: 3"),
}


@pytest.mark.parametrize(
    ("change", "restarts"),
    [(change, restarts) for change in CHANGES for restarts in (False, True)],
)
async def test_what_is_stored_is_forwarded_whatever_changes_in_the_file(
    tmp_path: Path, change: str, restarts: bool
) -> None:
    places, books = Places(tmp_path), Books()
    text = places.filled(CHANGES[change])
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs() as near:
            await places.send("telemetry.a", 0, 100, books)
            if not restarts:
                await _reload(near, tmp_path, text)
                await _send_behind(places, books)
                return
        async with places.running("near", CHANGES[change]):
            await _send_behind(places, books)


async def _send_behind(places: Places, books: Books) -> None:
    """Sends newcomers, which may have to wait, and wants all in order."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(places.send, "telemetry.a", 100, 50, books)
        assert await drain(places, "telemetry.a", 150) == [*range(150)]


async def _reload(near: RunningRouter, folder: Path, text: str) -> None:
    known = len(near.log)
    (folder / "near" / "router.yaml").write_text(text)
    near.process.send_signal(signal.SIGHUP)
    await trio.to_thread.run_sync(partial(near.wait_for, "config.reloaded", since=known))


async def test_a_store_of_a_later_version_is_refused_by_the_name_of_its_file(
    tmp_path: Path,
) -> None:
    places, books = Places(tmp_path), Books()
    segment = tmp_path / "near-state" / "messages" / segment_name(1)
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs():
            await places.send("telemetry.a", 0, 100, books)
        known = segment.read_bytes()
        later = b"AMQPJNL2" + known[len(SEGMENT_MAGIC) :]
        segment.write_bytes(later)
        async with places.store_runs() as near:
            await until(lambda: bool(lines(near, "messages.refused")))
            told = json.loads(lines(near, "messages.refused")[0])["error"]
            near.kill()
        assert segment.name in told
        assert segment.read_bytes() == later
        segment.write_bytes(known)
        async with places.store_runs():
            assert await drain(places, "telemetry.a", 100) == [*range(100)]


# --- bounds and people, while messages move -------------------------------------------------------


async def test_senders_wait_when_the_oldest_cannot_be_dropped_any_more(tmp_path: Path) -> None:
    """The dead letters' container is away, too; a quarter of the bound may wait for it."""
    places = Places(tmp_path, store=", messages: 40, full: drop-oldest")
    books, dead, late = Books(), Books(), Books()
    done = trio.Event()

    async def send() -> None:
        await places.send("telemetry.a", 0, 2000, books)
        done.set()

    with trio.fail_after(PATIENCE_SECONDS):
        async with places.running("near", NEAR_WITH_ADMIN), trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while not (held := (await asked(places))["routes"]) or not held[0]["is_full"]:
                await trio.sleep(0.1)
            with trio.move_on_after(2.0):
                await done.wait()
            assert not done.is_set()
            async with places.target_runs():
                nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
                nursery.start_soon(receiving("late", "telemetry.a", places.far, late.take).run)
                await done.wait()
                await until(lambda: len(dead.taken) + len(late.taken) >= 2000)
                nursery.cancel_scope.cancel()
    assert not dead.taken.keys() & late.taken.keys()
    assert dead.taken.keys() | late.taken.keys() == set(range(2000))
    assert not dead.duplicated
    assert not late.duplicated


async def test_what_is_dropped_and_replayed_while_messages_leave_goes_to_one_place(
    tmp_path: Path,
) -> None:
    places, books, dead, late = Places(tmp_path), Books(), Books(), Books()
    count = 600
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.running("near", NEAR_WITH_ADMIN), trio.open_nursery() as nursery:
            await places.send("telemetry.a", 0, count, books)
            async with places.target_runs():
                nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
                receiver = receiving("late", "telemetry.a", places.far, late.take, window=20)
                nursery.start_soon(receiver.run)
                await until(lambda: len(late.taken) > 20)
                code, text = await store(places, "drop", "telemetry.#", "--count", "300", "--yes")
                assert code == 0, text
                code, text = await store(places, "replay", "telemetry.#")
                assert code == 0, text
                await until(lambda: len(dead.taken) + len(late.taken) >= count)
                await trio.sleep(0.5)
                nursery.cancel_scope.cancel()
    assert not dead.taken.keys() & late.taken.keys()
    assert len(dead.taken) + len(late.taken) == count
    assert not dead.duplicated
    assert not late.duplicated
