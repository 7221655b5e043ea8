"""A connection's first octets are held up in front of a running router, and arrive too late.

The peers are scripted frame by frame, so that what each side sees stands here; the relay is what
holds up, as a proxy or a stalled process does.
"""

from pathlib import Path
from typing import Any

import pytest
import trio

from router.links.attaches import ATTACH, LifeCount
from router.model.condition import STOLEN
from router.model.identity import DeliveryTag, LinkName
from router.model.outcome import ACCEPTED, DeliveryState, Received
from router.model.terminus import (
    ALL_OUTCOMES,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SenderPhase, SendingLink
from router.routes.route import Guarantee
from router.wire.v1_0.performatives import Attach, Begin, Detach, Disposition, Transfer
from tests.support.framed import Framed
from tests.support.holdable import Holdable, holdable
from tests.support.running import RunningRouter, running_router
from tests.support.workers import Steady, address_of

pytestmark = pytest.mark.long

FILE = """
router: {{id: under-test, workers: {workers}, admin: off, drain_seconds: 0, state: ./state}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: orders, guarantee: exactly-once}}]
"""

BODY = b"\x00\x53\x75\xa0\x01K"
WORKERS = pytest.mark.parametrize("workers", [1, 2])
KEPT: dict[str, Any] = {"expiry_policy": ExpiryPolicy.CONNECTION_CLOSE, "expiry_seconds": 300}
Map = dict[DeliveryTag, DeliveryState | None]
K = DeliveryTag(b"K")


def sender(unsettled: Map | None, number: tuple[int, int] | None = None) -> Attach:
    return Attach(
        name="out",
        handle=0,
        role=Role.SENDER,
        source=Source(address="here", outcomes=ALL_OUTCOMES),
        target=Target(address="orders", **KEPT),
        snd_settle_mode=SenderSettleMode.UNSETTLED,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,  # type: ignore[arg-type]  # a tag is bytes there
        initial_delivery_count=0,
        properties=None if number is None else {ATTACH: list(number)},
    )


def receiver(
    unsettled: Map | None, name: str = "in", number: tuple[int, int] | None = None
) -> Attach:
    return Attach(
        name=name,
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="orders", outcomes=ALL_OUTCOMES, **KEPT),
        target=Target(address="there"),
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,  # type: ignore[arg-type]  # a tag is bytes there
        properties=None if number is None else {ATTACH: list(number)},
    )


def port_of(router: RunningRouter) -> int:
    return int(address_of(router).rpartition(":")[2])


async def receive(port: int, container: str = "shop", name: str = "in") -> Framed:
    """A receiver with credit."""
    peer = await Framed.dial(port, container)
    await peer.send(receiver({}, name))
    attach = await peer.expect_attach()
    await peer.flow(link_credit=10, delivery_count=attach.initial_delivery_count)
    return peer


async def hold_up_all(relay: Holdable, container: str, attach: Attach) -> None:
    """A connection of which all is held up: what a receiver says in one write before it reads."""
    relay.hold_next()
    peer = await Framed.dial(relay.port, container)
    await peer.send(attach)
    await peer.flow(link_credit=10)
    await (await relay.came(1)).forth.wait_held(1)


async def hold_up(relay: Holdable, container: str, attach: Attach) -> Framed:
    """A connection that opens at once, and whose attach is held up; its peer is gone by then."""
    peer = await Framed.dial(relay.port, container)
    await peer.expect(Begin)
    held = relay.connections[-1]
    held.forth.hold()
    await peer.send(attach)
    await held.forth.wait_held(1)
    return peer


async def let_go(relay: Holdable, router: RunningRouter, number: int, until: str) -> None:
    """Lets the held octets of a connection arrive; returns when the log says what they did."""
    since = len(router.log)
    relay.connections[number].forth.release()
    await trio.to_thread.run_sync(lambda: router.wait_for(until, since=since))


@WORKERS
async def test_what_came_behind_a_late_attach_arrives_once(tmp_path: Path, workers: int) -> None:
    with running_router(FILE.format(workers=workers), tmp_path) as router:
        port = port_of(router)
        async with holdable(port) as relay:
            sink = await receive(port)
            await hold_up(relay, "app", sender(None))
            good = await Framed.dial(port, "app")
            await good.send(sender(None))
            await good.expect_credit()
            await good.transfer(K, BODY)
            transfer, payload = await sink.expect_transfer()
            assert payload == BODY
            await let_go(relay, router, 0, "link.stolen")
            stolen = await good.expect(Detach)
            assert stolen.error is not None
            assert stolen.error.name == STOLEN
            back = await Framed.dial(port, "app")
            await back.send(sender({K: None}))
            answer = await back.expect_attach()
            assert answer.unsettled == {K: Received(1, 0)}
            await back.expect_credit()
            await back.transfer(K, b"", resume=True)
            await sink.send(Disposition(Role.RECEIVER, transfer.delivery_id or 0, state=ACCEPTED))
            told = await back.expect(Disposition)
            assert told.state == ACCEPTED
            seen = await sink.read_for(0.5)
            assert not [each for each in seen if isinstance(each.performative, Transfer)]


@WORKERS
async def test_what_a_late_receiver_lacks_goes_to_no_other(tmp_path: Path, workers: int) -> None:
    with running_router(FILE.format(workers=workers), tmp_path) as router:
        port = port_of(router)
        async with holdable(port) as relay:
            await hold_up_all(relay, "shop", receiver({}))
            good = await receive(port)
            source = await Framed.dial(port, "app")
            await source.send(sender(None))
            await source.expect_credit()
            await source.transfer(K, BODY)
            transfer, _ = await good.expect_transfer()
            tag = DeliveryTag(transfer.delivery_tag or b"")
            other = await receive(port, "depot", "in2")
            await let_go(relay, router, 0, "link.stolen")
            seen = await other.read_for(0.5)
            assert not [each for each in seen if isinstance(each.performative, Transfer)]
            back = await Framed.dial(port, "shop")
            await back.send(receiver({tag: ACCEPTED}))
            answer = await back.expect_attach()
            assert dict(answer.unsettled or {}) == {tag: None}
            await back.flow(link_credit=5, delivery_count=answer.initial_delivery_count)
            resumed, payload = await back.expect_transfer()
            assert (resumed.resume, resumed.state, payload) == (True, ACCEPTED, b"")
            assert (await source.expect(Disposition)).state == ACCEPTED


@WORKERS
async def test_a_lower_number_is_refused_also_after_a_kill(tmp_path: Path, workers: int) -> None:
    file = FILE.format(workers=workers)
    with running_router(file, tmp_path) as router:
        port = port_of(router)
        sink = await receive(port)
        good = await Framed.dial(port, "app")
        await good.send(sender(None, (7, 2)))
        await good.expect_credit()
        await good.transfer(K, BODY)
        await sink.expect_transfer()
        await _is_refused(port, sender(None, (7, 1)))
        assert not [
            each for each in await good.read_for(0.3) if isinstance(each.performative, Detach)
        ]
        router.kill()
    with running_router(file, tmp_path) as router:
        port = port_of(router)
        await _is_refused(port, sender(None, (7, 1)))
        back = await Framed.dial(port, "app")
        await back.send(sender({K: None}, (7, 3)))
        assert (await back.expect_attach()).unsettled == {K: Received(1, 0)}


async def _is_refused(port: int, attach: Attach) -> None:
    peer = await Framed.dial(port, "app")
    await peer.send(attach)
    detach = await peer.expect(Detach)
    assert detach.error is not None
    assert detach.error.name == STOLEN


async def test_after_a_kill_a_late_attach_without_a_number_forgets_nothing(tmp_path: Path) -> None:
    file = FILE.format(workers=1)
    with running_router(file, tmp_path) as router:
        port = port_of(router)
        sink = await receive(port)
        good = await Framed.dial(port, "app")
        await good.send(sender(None))
        await good.expect_credit()
        await good.transfer(K, BODY)
        await sink.expect_transfer()
        router.kill()
    with running_router(file, tmp_path) as router:
        port = port_of(router)
        late = await Framed.dial(port, "app")
        await late.send(sender(None))
        await late.expect_attach()
        await late.lose()
        back = await Framed.dial(port, "app")
        await back.send(sender({K: None}))
        assert (await back.expect_attach()).unsettled == {K: Received(1, 0)}


@WORKERS
async def test_our_own_clients_late_attach_is_refused_and_it_hears_nothing_of_it(
    tmp_path: Path, workers: int
) -> None:
    with running_router(FILE.format(workers=workers), tmp_path) as router:
        port = port_of(router)
        async with holdable(port) as relay, trio.open_nursery() as nursery:
            taker = Steady(f"127.0.0.1:{port}", "taker")
            giver = Steady(f"127.0.0.1:{relay.port}", "giver")
            taker.machine = ReceivingLink(
                name=LinkName("taker"),
                address="orders",
                take=taker._take,
                guarantee=Guarantee.EXACTLY_ONCE,
                count=50,
            )
            giver.machine = SendingLink(
                name=LinkName("giver"),
                address="orders",
                supply=numbered(b"x", 50),
                guarantee=Guarantee.EXACTLY_ONCE,
                window=5,
                draw_number=LifeCount(7).draw,
            )
            relay.hold_next(None)
            nursery.start_soon(giver.run)
            first = await relay.came(1)
            await first.forth.wait_held(1)
            first.cut_near()
            await relay.came(2)
            with trio.fail_after(60):
                while giver.machine.phase is not SenderPhase.ATTACHED:
                    await trio.sleep(0.01)
            await let_go(relay, router, 0, "link.late")
            nursery.start_soon(taker.run)
            with trio.fail_after(60):
                while not (giver.machine.is_done and taker.machine.is_done):
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert giver.machine.failure is None
        assert (giver.machine.report.connections, giver.machine.report.in_doubt) == (2, 0)
        assert set(taker.taken.values()) == {1}
        assert len(taker.taken) == 50
