"""`router run` is killed, and its file changed: what was unsettled ends as it must, and once.

Clients keep unsettled maps and settle second. The senders here act upon what they hear, and let the
router know only when the test says so.
"""

import json
import os
import shutil
import signal
import sys
from collections import Counter
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.model.commands import GrantCredit, SendDeliveries, UpdateDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    RELEASED,
    DeliveryState,
)
from router.model.terminus import Role
from tests.support.clients import LINK, Client, attach_of, body_of, message, resuming_as
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import lines

pytestmark = pytest.mark.long

CONFIG = """\
router: {{id: kept, workers: {workers}, admin: off, log_format: json, state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - {{address: other}}
"""
ROUTE = "  - {address: orders, guarantee: exactly-once}\n"
BODIES = [b"%d" % number for number in range(5)]

Map = dict[DeliveryTag, DeliveryState | None]


@attrs.define(eq=False)
class Source(Client):
    """Sends when it is told to, and settles when it is told to.

    Attributes:
        credit: that it has.
        theirs: the map that the router answered with.
        tags: by number, what has been sent on this connection.
        heard: outcomes, by tag.
    """

    credit: int = 0
    theirs: Map = attrs.field(factory=dict)
    tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    heard: dict[DeliveryTag, DeliveryState | None] = attrs.field(factory=dict)

    def react(self, event: Event) -> None:
        match event:
            case LinkAttached():
                self.theirs = dict(event.unsettled or {})
            case CreditGranted(credit=credit):
                self.credit = credit
            case DeliveriesUpdated(numbers=numbers, state=state):
                self.heard |= dict.fromkeys((self.tags[number] for number in numbers), state)
            case _:
                pass

    async def send(self, bodies: list[bytes], prefix: bytes = b"", *, resume: bool = False) -> None:
        """Sends bodies; tags derive from them."""
        await self.wait_until(lambda: self.credit >= len(bodies))
        run = []
        for body in bodies:
            number, tag = DeliveryNumber(len(self.tags)), DeliveryTag(prefix + body)
            self.tags[number] = tag
            run.append(OutgoingDelivery(number, tag, message(body), resume=resume))
        await self.command(SendDeliveries(LINK, run))

    async def settle(self) -> None:
        """Settles all whose outcome it has heard."""
        numbers = [number for number, tag in self.tags.items() if tag in self.heard]
        await self.command(UpdateDeliveries(LINK, numbers, None, settled=True))


@attrs.define(eq=False)
class Sink(Client):
    """Takes what comes, and says of it what it is told to say; None: nothing.

    Attributes:
        says: the outcome.
        bodies: what has come with a payload that is not resumed.
        unsettled: its map.
        tags: by number, what has come on this connection.
    """

    says: DeliveryState | None = ACCEPTED
    bodies: Counter[bytes] = attrs.field(factory=Counter)
    unsettled: Map = attrs.field(factory=dict)
    tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)

    def react(self, event: Event) -> None:
        match event:
            case LinkAttached():
                self.engine.execute(GrantCredit(LINK, 20))
            case DeliveriesReceived(deliveries=deliveries):
                for each in deliveries:
                    if each.settled:
                        self.unsettled.pop(each.tag, None)
                        continue
                    if not each.resume:
                        self.bodies[body_of(each.payload)] += 1
                    self.unsettled[each.tag] = self.says
                    self.tags[each.number] = each.tag
                numbers = [each.number for each in deliveries if not each.settled]
                if self.says is not None and numbers:
                    self.engine.execute(UpdateDeliveries(LINK, numbers, self.says, settled=False))
            case DeliveriesUpdated(numbers=settled, settled=True):
                for number in settled:
                    del self.unsettled[self.tags[number]]
            case _:
                pass


def source(port: int, unsettled: Map | None = None) -> AbstractAsyncContextManager[Source]:
    attach = attach_of(Role.SENDER, "orders", "source")
    return resuming_as(Source, f"127.0.0.1:{port}", "source", attach, unsettled)


def sink(
    port: int,
    name: str,
    unsettled: Map | None = None,
    *,
    says: DeliveryState | None = ACCEPTED,
) -> AbstractAsyncContextManager[Sink]:
    attach = attach_of(Role.RECEIVER, "orders", name)
    make = partial(Sink, says=says)
    return resuming_as(make, f"127.0.0.1:{port}", name, attach, unsettled)


def kill(router: RunningRouter) -> None:
    """Ends the journal's process and the router with SIGKILL, in that order."""
    (journal,) = (json.loads(line) for line in router.log if '"journal.started"' in line)
    os.kill(journal["process"], signal.SIGKILL)
    router.kill()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("state", [RELEASED, MODIFIED_UNDELIVERABLE, MODIFIED_FAILED], ids=repr)
async def test_what_a_sender_heard_is_not_taken_back_by_a_router_that_was_killed(
    tmp_path: Path, state: DeliveryState, workers: int
) -> None:
    port = free_port()
    config = CONFIG.format(workers=workers, port=port, state=tmp_path / "state") + ROUTE
    with trio.fail_after(180):
        with running_router(config, tmp_path) as router:
            async with sink(port, "first", says=state), source(port) as sender:
                await sender.send(BODIES)
                await sender.wait_until(lambda: len(sender.heard) == len(BODIES))
                assert set(sender.heard.values()) == {state}
                kill(router)
        with running_router(config, tmp_path) as router:
            async with sink(port, "second") as other:
                await trio.sleep(1.0)  # whatever the router would send by itself, it sends now
                assert other.bodies == {}
                async with source(port, {}) as sender:  # it has settled them, and sends them anew
                    assert not sender.theirs
                    await sender.send(BODIES, b"again-")
                    await sender.wait_until(lambda: len(sender.heard) == len(BODIES))
                    await sender.settle()
                    assert set(sender.heard.values()) == {ACCEPTED}
                assert other.bodies == dict.fromkeys(BODIES, 1)
            assert router.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kills", [0, 1])
async def test_a_route_that_is_back_goes_on_with_what_was_unsettled(
    tmp_path: Path, workers: int, kills: int
) -> None:
    port, file = free_port(), tmp_path / "router.yaml"
    without = CONFIG.format(workers=workers, port=port, state=tmp_path / "state")
    with trio.fail_after(240):
        with running_router(without + ROUTE, tmp_path) as router:
            async with sink(port, "first", says=None) as before, source(port) as sender:
                await sender.send(BODIES)
                await before.wait_until(lambda: len(before.unsettled) == len(BODIES))
                file.write_text(without)
                await reload(router)
                await sender.wait_until(lambda: sender.detached is not None)
                await before.wait_until(lambda: before.detached is not None)
                assert sender.detached is not None
                assert not sender.detached.closed
            removed = json.loads(router.wait_for('"config.changed"'))
            assert (removed["name"], removed["change"], removed["kept"]) == ("orders", "removed", 5)
            if kills:
                kill(router)
            else:
                await bring_back(router, file, without + ROUTE)
                await go_on(port, before)
                assert router.stop() == 0
        if kills:
            with running_router(without, tmp_path) as router:  # nothing asks for a journal
                replayed = lines(router, "journal.replayed")  # one of each worker
                assert sum(int(str(each["deliveries"])) for each in replayed) == 5
                assert sum(int(str(each["in_doubt"])) for each in replayed) == 5
                await bring_back(router, file, without + ROUTE)
                await go_on(port, before)
                assert router.stop() == 0


@pytest.mark.parametrize("loses", ["the segment", "all of it"])
async def test_a_journal_that_has_lost_what_it_had_is_told_of(tmp_path: Path, loses: str) -> None:
    port, admin, state = free_port(), free_port(), tmp_path / "state"
    config = CONFIG.format(workers=1, port=port, state=state) + ROUTE
    config = config.replace("admin: off", f'admin: "127.0.0.1:{admin}"')
    with trio.fail_after(180):
        with running_router(config, tmp_path) as router:
            async with sink(port, "first", says=None) as before, source(port) as sender:
                await sender.send(BODIES)
                await before.wait_until(lambda: len(before.unsettled) == len(BODIES))
                kill(router)
        (segment,) = (state / "journal").glob("*.segment")
        segment.unlink()
        if loses == "all of it":
            shutil.rmtree(state / "journal")
        gap = "segment 1 is missing"
        with running_router(config, tmp_path) as router:
            told = json.loads(router.wait_for('"journal.incomplete"'))
            assert (told["level"], told["gaps"]) == ("error", [gap])
            for arguments, code, text in (
                (["deliveries", "--in-doubt", "--admin", f"127.0.0.1:{admin}"], 0, gap),
                (["deliveries", "--admin", f"127.0.0.1:{admin}"], 0, "nothing is listed"),
                (["journal", "inspect", str(state)], 1, "*** missing: segment 1"),
            ):
                done = await trio.run_process(
                    [sys.executable, "-m", "router", *arguments],
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                )
                assert done.returncode == code, done.stderr
                assert text in (done.stdout + done.stderr).decode()
                assert (gap in done.stderr.decode()) is ("--in-doubt" in arguments)
            assert router.stop() == 0


async def reload(router: RunningRouter) -> None:
    count = sum("config.reloaded" in line for line in tuple(router.log))
    router.process.send_signal(signal.SIGHUP)
    while sum("config.reloaded" in line for line in tuple(router.log)) == count:
        await trio.sleep(0.02)


async def bring_back(router: RunningRouter, file: Path, text: str) -> None:
    file.write_text(text)
    await reload(router)


async def go_on(port: int, before: Sink) -> None:
    """Both peers come back with what they know; each message has come to the receiver once."""
    known: Map = dict.fromkeys(before.unsettled, ACCEPTED)  # it has processed them meanwhile
    ours: Map = {DeliveryTag(body): None for body in BODIES}
    async with sink(port, "first", known) as after, source(port, ours) as sender:
        await sender.wait_until(lambda: sender.is_attached)
        assert set(sender.theirs) == set(ours)
        await sender.send(BODIES, resume=True)
        await sender.wait_until(lambda: len(sender.heard) == len(BODIES))
        assert set(sender.heard.values()) == {ACCEPTED}
        await sender.settle()
        await after.wait_until(lambda: not after.unsettled)
    assert before.bodies + after.bodies == dict.fromkeys(BODIES, 1)
