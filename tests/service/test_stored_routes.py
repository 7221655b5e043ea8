"""A route with ``store`` through running routers: senders go on while the target is away."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.journal.record import RecordKind
from router.model.delivery import ReceivedDelivery
from router.model.outcome import DeliveryState, Rejected
from tests.support.chaos import Books, number_of, numbered, receiving, sending
from tests.support.journal import records_in
from tests.support.ports import free_port
from tests.support.running import RunningRouter, router_beside

PATIENCE_SECONDS = 240

NEAR = """
router: {{id: near, workers: 1, admin: off, state: {folder}/near-state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers: {{cloud: {{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s}}}}
routes:
  - address: telemetry.#
    to: cloud
    store: {{always: {always}{store}}}
    dead_letter: cloud/dead
    archive: {archive}
"""

FAR = """
router: {{id: far, workers: 1, admin: off, state: {folder}/far-state, log_format: json}}
listeners: [{{bind: "127.0.0.1:{far}"}}]
routes:
  - address: telemetry.#
  - address: dead
"""


@attrs.define
class Places:
    """Two routers, of which either may be away."""

    folder: Path
    store: str = ""
    always: str = "true"
    archive: str = "false"
    near: int = attrs.field(factory=free_port)
    far: int = attrs.field(factory=free_port)

    def filled(self, text: str) -> str:
        """Returns a file for these places."""
        return text.format(
            folder=self.folder,
            near=self.near,
            far=self.far,
            store=self.store,
            always=self.always,
            archive=self.archive,
        )

    @asynccontextmanager
    async def running(
        self, name: str, text: str, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[RunningRouter]:
        """Runs one of them."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        async with router_beside(self.filled(text), folder, environment) as router:
            yield router

    def store_runs(self) -> AbstractAsyncContextManager[RunningRouter]:
        return self.running("near", NEAR)

    def target_runs(self) -> AbstractAsyncContextManager[RunningRouter]:
        return self.running("far", FAR)

    async def send(self, address: str, first: int, count: int, books: Books) -> None:
        """Returns when the store has accepted so many messages."""
        supply = numbered(books.count(iter(range(first, first + count))), 100)
        await sending(f"sender-{address}-{first}", address, self.near, supply).run()


def books_grew(books: Books, known: int) -> bool:
    """Returns whether more messages were taken."""
    return len(books.taken) > known


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until something is so."""
    while not is_so():
        await trio.sleep(0.02)


async def test_messages_are_accepted_while_the_target_is_away_and_arrive_in_order_later(
    tmp_path: Path,
) -> None:
    places, books, order = Places(tmp_path, archive="true"), Books(), []

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs():
            await places.send("telemetry.a", 0, 1000, books)
            async with places.target_runs(), trio.open_nursery() as nursery:
                receiver = receiving("receiver", "telemetry.a", places.far, take)
                nursery.start_soon(receiver.run)
                await until(lambda: len(order) >= 1000)
                await places.send("telemetry.a", 1000, 500, books)
                await until(lambda: len(order) >= 1500)
                nursery.cancel_scope.cancel()
    assert order == [*range(1500)]
    archived = records_in(tmp_path / "near-state" / "archive", RecordKind.ARCHIVED)
    assert sorted(int(each.body[-20:]) for each in archived) == order


@pytest.mark.long
async def test_a_target_that_comes_and_goes_gets_everything_once_and_in_order(
    tmp_path: Path,
) -> None:
    """Passing through and storing take turns while a sender never pauses for long.

    It pauses while the receiver leaves: what that has taken is to be accepted, or it comes again.
    """
    places, books, order = Places(tmp_path, always="false"), Books(), []
    rounds, sent = 5, 0
    is_paused = False
    is_over = trio.Event()

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        order.append(number_of(delivery))
        return books.take(delivery)

    async def send() -> None:
        nonlocal sent
        while not is_over.is_set():
            if not is_paused:
                await places.send("telemetry.a", sent, 40, books)
                sent += 40
            await trio.sleep(0.1)

    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs() as near, trio.open_nursery() as sender:
            sender.start_soon(send)
            for number in range(rounds):
                async with places.target_runs(), trio.open_nursery() as nursery:
                    nursery.start_soon(receiving(f"r{number}", "telemetry.a", places.far, take).run)
                    await until(partial(_has_passed, near, number + 1))
                    await trio.sleep(0.5)
                    is_paused = True
                    if number == rounds - 1:
                        is_over.set()
                    await trio.sleep(0.5)
                    await until(lambda: len(order) >= sent)
                    nursery.cancel_scope.cancel()
                    is_paused = False
    assert not books.lost
    assert not books.duplicated
    assert order == [*range(sent)]


def _has_passed(router: RunningRouter, times: int) -> bool:
    """Returns whether a router has gone over to passing through so often."""
    return sum('"store.passed"' in line for line in tuple(router.log)) >= times


@pytest.mark.long
async def test_whatever_is_killed_nothing_that_was_accepted_is_lost(tmp_path: Path) -> None:
    """At least once: what was under way when something was killed may arrive twice."""
    places, books, sent = Places(tmp_path), Books(), 0
    with trio.fail_after(PATIENCE_SECONDS):
        for victim in ("store", "router", "target", "router", "store"):
            async with places.store_runs() as near, trio.open_nursery() as nursery:
                await places.send("telemetry.a", sent, 300, books)
                sent += 300
                async with places.target_runs() as far:
                    receiver = receiving(f"{victim}-{sent}", "telemetry.a", places.far, books.take)
                    nursery.start_soon(receiver.run)
                    known = len(books.taken)
                    await until(partial(books_grew, books, known))
                    if victim == "store":
                        started = near.wait_for("messages.started")
                        os.kill(json.loads(started)["process"], signal.SIGKILL)
                        await places.send("telemetry.a", sent, 300, books)
                        sent += 300
                        await until(lambda: not books.lost)
                    elif victim == "router":
                        near.kill()
                    else:
                        far.kill()
                    nursery.cancel_scope.cancel()
        async with places.store_runs(), places.target_runs(), trio.open_nursery() as nursery:
            receiver = receiving("last", "telemetry.a", places.far, books.take)
            nursery.start_soon(receiver.run)
            await until(lambda: not books.lost)
            nursery.cancel_scope.cancel()
    assert len(books.taken) == sent


@pytest.mark.long
async def test_what_is_rejected_and_what_is_too_old_goes_to_the_dead_letters(
    tmp_path: Path,
) -> None:
    places, books, dead = Places(tmp_path, store=", age: 3s"), Books(), Books()

    def reject_odd(delivery: ReceivedDelivery) -> DeliveryState:
        accepted = books.take(delivery)
        return Rejected() if number_of(delivery) % 2 else accepted

    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs(), places.target_runs(), trio.open_nursery() as nursery:
            nursery.start_soon(receiving("good", "telemetry.a", places.far, reject_odd).run)
            nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
            await places.send("telemetry.a", 0, 100, books)
            await until(lambda: len(dead.taken) == 50)
            assert set(dead.taken) == set(range(1, 100, 2))
            await places.send("telemetry.b", 100, 20, books)  # nobody receives them
            await until(lambda: len(dead.taken) == 70)
            nursery.cancel_scope.cancel()
    assert not dead.duplicated


@pytest.mark.long
async def test_a_full_route_lets_its_senders_wait_and_another_goes_on(tmp_path: Path) -> None:
    places, books, other = Places(tmp_path, store=", messages: 40"), Books(), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs(), trio.open_nursery() as nursery:
            done = trio.Event()

            async def send() -> None:
                await places.send("telemetry.a", 0, 200, books)
                done.set()

            nursery.start_soon(send)
            with trio.move_on_after(3):
                await done.wait()
            assert not done.is_set()
            async with places.target_runs():
                nursery.start_soon(receiving("receiver", "telemetry.a", places.far, other.take).run)
                await done.wait()
                await until(lambda: len(other.taken) == 200)
                nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_the_oldest_messages_are_dropped_to_the_dead_letters(tmp_path: Path) -> None:
    store = ", messages: 40, full: drop-oldest"
    places, books, dead, late = Places(tmp_path, store=store), Books(), Books(), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs(), places.target_runs(), trio.open_nursery() as nursery:
            nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
            await places.send("telemetry.a", 0, 200, books)
            await until(lambda: len(dead.taken) == 160)
            nursery.start_soon(receiving("late", "telemetry.a", places.far, late.take).run)
            await until(lambda: len(late.taken) == 40)
            nursery.cancel_scope.cancel()
    assert (set(dead.taken), set(late.taken)) == (set(range(160)), set(range(160, 200)))


@pytest.mark.long
async def test_a_successor_takes_the_store_over(tmp_path: Path) -> None:
    places, books, taken = Places(tmp_path), Books(), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs() as before:
            await places.send("telemetry.a", 0, 100, books)
            async with places.store_runs(), places.target_runs(), trio.open_nursery() as nursery:
                await until(lambda: before.process.poll() is not None)
                await places.send("telemetry.a", 100, 100, books)
                nursery.start_soon(receiving("receiver", "telemetry.a", places.far, taken.take).run)
                await until(lambda: len(taken.taken) == 200)
                nursery.cancel_scope.cancel()
    assert not taken.duplicated


@pytest.mark.parametrize("always", ["true", "false"])
async def test_what_is_stored_is_forwarded_though_its_route_stores_no_more(
    tmp_path: Path, always: str
) -> None:
    """What the target rejects then has no place to go; newcomers do not wait for it."""
    places, books, taken = Places(tmp_path, always=always), Books(), Books()

    def reject_some(delivery: ReceivedDelivery) -> DeliveryState:
        accepted = taken.take(delivery)
        return Rejected() if number_of(delivery) in {7, 70} else accepted

    plain = NEAR.replace("    store: {{always: {always}{store}}}\n", "").replace(
        "    dead_letter: cloud/dead\n", ""
    )
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.store_runs() as near:
            await places.send("telemetry.a", 0, 100, books)
            (tmp_path / "near" / "router.yaml").write_text(places.filled(plain))
            near.process.send_signal(signal.SIGHUP)
            near.wait_for("config.reloaded")
            async with places.target_runs(), trio.open_nursery() as nursery:
                nursery.start_soon(
                    receiving("receiver", "telemetry.a", places.far, reject_some).run
                )
                await until(lambda: len(taken.taken) == 100)
                await places.send("telemetry.a", 100, 10, books)
                nursery.cancel_scope.cancel()
    assert not taken.duplicated
