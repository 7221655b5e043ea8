"""Rules of AMQP 1.0 against a running router with two workers, frame by frame."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from router.model.condition import STOLEN, Condition
from router.model.outcome import ACCEPTED
from router.model.terminus import Coordinator, Role, Source, Target
from router.wire.v1_0.performatives import Attach, Detach, Disposition, Transfer
from router.wire.v1_0.sections import AnnotatedMessage, Header, Properties, encode_message
from router.wire.v1_0.types import Described, Symbol, Ulong
from tests.support.framed import Framed
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

FILE = """
router: {id: under-test, workers: 2, admin: off, drain_seconds: 0, state: ./state}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: orders}, {address: "prices.#", distribution: multicast}]
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRouter]:
    with running_router(FILE, tmp_path_factory.mktemp("router")) as running:
        yield running


@pytest.fixture(scope="module")
def port(router: RunningRouter) -> int:
    return int(address_of(router).rpartition(":")[2])


async def test_sockets_have_keep_alive(port: int) -> None:
    """The kernel says of each socket which timer runs: 02 is that of keep-alive."""
    peer = await Framed.dial(port, "alive")
    await peer.read_for(0.5)
    theirs = peer.stream.socket.getsockname()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [row for row in rows if row[1].endswith(f":{port:04X}")]
    (row,) = [row for row in ends if row[2].endswith(f":{theirs:04X}")]
    assert row[5].startswith("02:")
    await peer.lose()


# --- attaching ------------------------------------------------------------------------------------


def sender(address: str | None = "orders", name: str = "out", **fields: Any) -> Attach:
    target = fields.pop("target", None) or Target(address=address)
    base: dict[str, Any] = {"source": Source(address="here"), "initial_delivery_count": 0}
    return Attach(name=name, handle=0, role=Role.SENDER, target=target, **base | fields)


def receiver(address: str | None = "orders", name: str = "in", **fields: Any) -> Attach:
    source = fields.pop("source", None) or Source(address=address)
    base: dict[str, Any] = {"target": Target(address="there")}
    return Attach(name=name, handle=0, role=Role.RECEIVER, source=source, **base | fields)


async def attached(port: int, container: str, attach: Attach) -> tuple[Framed, Attach]:
    peer = await Framed.dial(port, container)
    await peer.send(attach)
    return peer, await peer.expect_attach()


async def receiving(port: int, container: str, address: str = "orders") -> Framed:
    peer, _ = await attached(port, container, receiver(address))
    await peer.flow(link_credit=100, delivery_count=0)
    return peer


async def refusal(port: int, attach: Attach) -> Condition:
    peer, answer = await attached(port, "refused", attach)
    assert (answer.target if attach.role is Role.SENDER else answer.source) is None
    detach = await peer.expect(Detach)
    await peer.lose()
    assert detach.closed
    assert detach.error is not None
    return detach.error


@pytest.mark.parametrize("role", Role)
async def test_a_link_is_stolen_by_its_container_at_whichever_worker_that_is(
    port: int, role: Role
) -> None:
    """Sockets go to the worker with the fewest, so neighbours are at different ones."""
    make = sender if role is Role.SENDER else receiver
    before, _ = await attached(port, "thief", make(name="mine"))
    for _ in range(3):
        await trio.sleep(0.2)  # of two that come at once either may stay
        after, _ = await attached(port, "thief", make(name="mine"))
        detach = await before.expect(Detach)
        assert detach.error is not None
        assert detach.error.name == STOLEN
        await before.lose()
        before = after
    await before.lose()


LIFETIME = Symbol("lifetime-policy")
NO_LINKS: dict[object, object] = {LIFETIME: Described(Ulong(0x2C), [])}


@pytest.mark.parametrize("role", Role)
async def test_a_dynamic_node_has_an_address_of_the_routers_whatever_was_asked_for(
    port: int, role: Role
) -> None:
    if role is Role.RECEIVER:
        attach = receiver(source=Source(address="orders", dynamic=True))
    else:
        attach = sender(target=Target(address="orders", dynamic=True))
    peer, answer = await attached(port, "maker", attach)
    made = answer.source if role is Role.RECEIVER else answer.target
    assert isinstance(made, Source | Target)
    assert made.dynamic
    assert made.address is not None
    assert made.address.startswith("under-test/temp/")
    assert made.dynamic_node_properties is None
    await peer.lose()


@pytest.mark.parametrize("role", Role)
async def test_properties_of_a_node_are_told_of_dynamic_ones_only(port: int, role: Role) -> None:
    if role is Role.RECEIVER:
        source = Source(address="orders", dynamic_node_properties=NO_LINKS)
        peer, answer = await attached(port, "asker", receiver(source=source))
        told = answer.source
    else:
        target = Target(address="orders", dynamic_node_properties=NO_LINKS)
        peer, answer = await attached(port, "asker", sender(target=target))
        told = answer.target  # type: ignore[assignment]
    assert isinstance(told, Source | Target)
    assert told.dynamic_node_properties is None
    assert not told.dynamic
    await peer.lose()


async def test_a_node_outlives_its_maker_as_its_policy_says(port: int) -> None:
    """On workers as the supervisor hands them out: each client may be at either.

    Nobody but its maker receives from it, whichever of its connections it uses.
    """
    source = Source(dynamic=True, dynamic_node_properties=NO_LINKS)
    maker, answer = await attached(port, "maker", receiver(source=source))
    assert answer.source is not None
    address = answer.source.address
    assert answer.source.dynamic_node_properties == NO_LINKS
    await trio.sleep(0.3)  # the other worker hears of the node beside the answer
    others = [await attached(port, f"s{each}", sender(address)) for each in range(4)]
    assert all(each.target is not None for _, each in others)
    await maker.send(Detach(0, closed=True))
    await maker.expect(Detach)
    _, attach = await attached(port, "stranger", receiver(address))
    assert attach.source is None
    late, attach = await attached(port, "maker", receiver(address))
    assert attach.source is not None
    await late.flow(link_credit=10, delivery_count=0)
    for index, (peer, _) in enumerate(others):
        await peer.expect_credit()
        await peer.transfer(b"%d" % index, BODY)
    for _ in others:
        await late.expect_transfer()
    await late.send(Disposition(Role.RECEIVER, 0, 3, settled=True, state=ACCEPTED))
    for peer, _ in others:
        disposition = await peer.expect(Disposition)
        assert disposition.state == ACCEPTED
        await peer.lose()
    await late.lose()


async def test_a_coordinator_is_refused(port: int) -> None:
    error = await refusal(port, sender(target=Coordinator()))
    assert error.name == "amqp:not-implemented"


# --- messages -------------------------------------------------------------------------------------

BODY = b"\x00\x53\x75\xa0\x01x"


def message(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "header": Header(durable=True, priority=7),
        "message_annotations": {Symbol("x-opt-a"): 1, Symbol("strange"): "kept"},
        "properties": Properties(message_id="m", user_id=b"u", to="t", subject="s"),
        "application_properties": {"k": 1, "l": None},
        "data": [b"one", b"two"],
        "footer": {Symbol("x-opt-f"): b"f"},
    }
    return encode_message(AnnotatedMessage(**fields | changes))


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_message_comes_as_it_was_but_for_its_delivery_annotations(
    port: int, parts: int
) -> None:
    sink = await receiving(port, "sink")
    plain = message()
    annotated = message(delivery_annotations={Symbol("x-opt-d"): 1})
    source, _ = await attached(port, "source", sender())
    for index, payload in enumerate((plain, annotated, plain)):
        await source.expect_credit() if not index else None
        if parts == 1:
            await source.transfer(b"%d" % index, payload)
            continue
        cuts = [len(payload) * each // parts for each in range(parts + 1)]
        first, *others = [payload[one:other] for one, other in pairwise(cuts)]
        await source.transfer(b"%d" % index, first, more=True)
        for part in others:
            await trio.sleep(0.05)
            await source.send(Transfer(handle=0, more=part is not others[-1]), payload=part)
    seen = []
    for _ in range(3):
        payload, transfer = b"", None
        while transfer is None or transfer.more:
            transfer, part = await sink.expect_transfer()
            payload += part
        seen.append(payload.replace(b"\x00\x53\x71\xc1\x01\x00", b""))
    assert seen == [plain] * 3
    await source.lose()
    await sink.send(Disposition(Role.RECEIVER, 0, 2, settled=True, state=ACCEPTED))
    await sink.send(Detach(0, closed=True))
    await sink.expect(Detach)
    await sink.lose()


async def test_annotations_that_nobody_knows_pass(port: int) -> None:
    sink = await receiving(port, "sink", "prices.a")
    source, _ = await attached(port, "source", sender("prices.a"))
    await source.expect_credit()
    await source.transfer(b"0", message(message_annotations={Symbol("no-such-thing"): 1}))
    _, payload = await sink.expect_transfer()
    assert payload == message(message_annotations={Symbol("no-such-thing"): 1})
    await source.lose()
    await sink.lose()
