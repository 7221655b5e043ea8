"""Containers that dial in, through running routers: their status, reconnects, and exactly-once."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from router.model.terminus import Role, Source, Target
from router.wire.v1_0.performatives import Attach
from tests.support.container import Container, body
from tests.support.cuttable import cuttable
from tests.support.framed import Framed
from tests.support.ports import free_port
from tests.support.running import router_beside

CONFIG = """\
router: {{admin: "127.0.0.1:{admin}", workers: {workers}}}
listeners:
  - bind: "127.0.0.1:{port}"
  - {{bind: "127.0.0.1:{plants}", sasl: {{mechanisms: [PLAIN], users: {{plant7: plant7}}}}}}
containers:
  plant7: {{dials_in: true, identity: plant7, several: {several}, failover_seconds: 60s}}
routes:
  - {{address: orders, to: plant7}}
  - {{address: readings, from: plant7/sensors}}
"""

EXACT = """\
router: {{id: {name}, admin: off, workers: 1, state: {name}}}
listeners: [{{bind: "127.0.0.1:{port}"{sasl}}}]
containers: {{{containers}}}
routes: [{{address: "plant7/#", guarantee: exactly-once{to}}}]
"""


CUTS = 4
CUT_SECONDS = 0.7


async def ask(admin: int, path: str) -> Any:
    def get() -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/v1/{path}") as answer:
            return json.load(answer)

    return await trio.to_thread.run_sync(get)


async def state_of(admin: int) -> dict[str, Any]:
    found = await ask(admin, "containers")
    (container,) = found["containers"]
    return dict(container)


async def connected(admin: int, is_connected: bool = True) -> dict[str, Any]:
    with trio.fail_after(30):
        while (found := await state_of(admin))["is_connected"] is not is_connected:
            await trio.sleep(0.05)
    return found


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
async def test_a_service_behind_a_firewall_serves_through_reconnects(
    tmp_path: Path, workers: int
) -> None:
    port, plants, admin = free_port(), free_port(), free_port()
    config = CONFIG.format(workers=workers, port=port, plants=plants, admin=admin, several="refuse")
    plant = Container(name="gateway")
    async with router_beside(config, tmp_path) as router:
        found = await state_of(admin)
        assert (found["is_connected"], found["urls"]) == (False, [])
        assert found["seconds"] < 300  # away since the router began
        clients = [await Framed.dial(port, f"client{n}") for n in range(2 * workers)]
        for client in clients:
            await attach(client, Role.SENDER, "orders")
        reader = await Framed.dial(port, "reader")
        await attach(reader, Role.RECEIVER, "readings")
        await reader.flow(link_credit=100, delivery_count=0)
        for life in range(4):
            plant.messages["sensors"] += [f"reading {life}"]
            async with plant.dialed_in(plants, "plant7"):
                found = await connected(admin)
                assert found["address"].startswith("127.0.0.1:")
                for number, client in enumerate(clients):
                    await client.transfer(b"%d" % life, body(f"{life}/{number}"))
                assert f"reading {life}".encode() in (await reader.expect_transfer())[1]
                wanted = (life + 1) * len(clients)
                with trio.fail_after(30):
                    while len(plant.received["orders"]) < wanted:
                        await trio.sleep(0.02)
            await connected(admin, is_connected=False)
        other = Container(name="other")
        async with plant.dialed_in(plants, "plant7"):
            await connected(admin)
            async with other.dialed_in(plants, "plant7"):
                await other.until(lambda it: it.ended)
            (condition,) = other.ended
            assert condition is not None
            assert condition.name == "amqp:resource-limit-exceeded"
            assert "'plant7' is connected already" in str(condition)
        for client in (*clients, reader):
            await client.lose()
        await trio.to_thread.run_sync(router.wait_for, "container.dialed_in")
    bodies = b" ".join(plant.received["orders"])
    for life in range(4):
        for number in range(2 * workers):
            assert bodies.count(b"%d/%d" % (life, number)) == 1


@pytest.mark.parametrize("workers", [1, 2])
async def test_several_of_one_identity_share_the_work(tmp_path: Path, workers: int) -> None:
    port, plants, admin = free_port(), free_port(), free_port()
    config = CONFIG.format(
        workers=workers, port=port, plants=plants, admin=admin, several="balance"
    )
    shared = [Container(name=f"instance{n}") for n in range(4)]
    async with router_beside(config, tmp_path), AsyncExitStack() as stack:
        for each in shared:
            await stack.enter_async_context(each.dialed_in(plants, "plant7"))
        clients = [await Framed.dial(port, f"client{n}") for n in range(2)]
        for client in clients:
            await attach(client, Role.SENDER, "orders")
        for each in shared:
            await each.until(lambda it: "orders" in it.targets)
        for number in range(40):
            for client in clients:
                await client.transfer(b"%d" % number, body(f"{number}"))
        with trio.fail_after(30):
            while sum(len(each.received["orders"]) for each in shared) < 80:
                await trio.sleep(0.02)
        assert all(each.received["orders"] for each in shared)
        for client in clients:
            await client.lose()


async def attach(client: Framed, role: Role, address: str) -> None:
    """Attaches a link with handle 0."""
    await client.send(
        Attach(
            name=f"{role.value} of {address}",
            handle=0,
            role=role,
            source=Source(address=address),
            target=Target(address=address),
            initial_delivery_count=0 if role is Role.SENDER else None,
        )
    )
    await client.expect_attach()


def router_command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "router", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("is_source", [False, True])
async def test_exactly_once_holds_with_it_while_its_connection_is_cut(
    tmp_path: Path, is_source: bool
) -> None:
    hub, plant, count = free_port(), free_port(), 3_000
    sasl = ", sasl: {mechanisms: [PLAIN, ANONYMOUS], users: {plant7: plant7}}"
    dials = "plant7: {dials_in: true, identity: plant7, resumes: true}"
    async with cuttable(hub) as relay, AsyncExitStack() as stack:
        there = f'hub: {{url: "amqp://plant7:plant7@127.0.0.1:{relay.port}", retry_seconds: 20ms}}'
        for name, port, accepts, containers, to in (
            ("hub", hub, sasl, dials, ", to: plant7"),
            ("plant", plant, "", there, ""),
        ):
            config = EXACT.format(name=name, port=port, sasl=accepts, containers=containers, to=to)
            (tmp_path / name).mkdir()
            router = await stack.enter_async_context(router_beside(config, tmp_path / name))
        del router
        near, far = (plant, hub) if is_source else (hub, plant)
        options = ("plant7/q", "--count", str(count), "--settle", "exactly-once", "--timeout", "90")
        receiver = router_command("receive", f"amqp://127.0.0.1:{far}", *options)
        sender = router_command("send", f"amqp://127.0.0.1:{near}", *options)
        for _ in range(CUTS):
            await trio.sleep(CUT_SECONDS)
            relay.cut()
        said = await trio.to_thread.run_sync(sender.communicate)
        await trio.sleep(1.0)
        receiver.send_signal(signal.SIGINT)
        told = await trio.to_thread.run_sync(receiver.communicate)
    assert relay.octets, "it was in use"
    (sent,) = re.findall(r"sent ([\d,]+), accepted ([\d,]+)((?:, \w+ [\d,]+)*)", said[0])
    (received,) = re.findall(r"received ([\d,]+), accepted ([\d,]+)", told[0])
    others = sum(number_of(each) for each in re.findall(r" ([\d,]+)", sent[2]))
    accepted = number_of(sent[1])
    assert number_of(sent[0]) == count
    assert accepted + others == count, f"an outcome is known for each: {said[0]}"
    assert [number_of(each) for each in received] == [accepted] * 2, "each came once"
    assert accepted > count // 2


def number_of(text: str) -> int:
    return int(text.replace(",", ""))
