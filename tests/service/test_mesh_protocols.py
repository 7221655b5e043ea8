"""Clients of every protocol over a mesh of two sites: send, receive, and reply to who asked."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for
from router.wire.v0_9_1 import methods as m
from tests.service.test_others_addresses import Basic, asking
from tests.support.clients import message, receiving, sending
from tests.support.planes import dial
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

FILE = """
router: {{id: {name}, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
mesh: {{listen: "127.0.0.1:{mesh}", links: {{{links}}}, advertise: ["{name}.#"]}}
routes: [{{address: "#"}}]
"""
COUNT = 40
OCTETS = 300
SECONDS = 60.0
BODIES = [b"%0*d" % (OCTETS, number) for number in range(COUNT)]
"""All protocols write their length in four octets."""


@contextlib.asynccontextmanager
async def two_sites(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Runs two routers; yields where clients connect."""
    names = ("dc1", "dc2")
    mesh = {name: free_port() for name in names}
    ports = {name: free_port() for name in names}
    with contextlib.ExitStack() as stack:
        for name, dials in zip(names, ("dc2", ""), strict=True):
            (folder / name).mkdir()
            links = f'{dials}: {{host: "127.0.0.1:{mesh[dials]}"}}' if dials else ""
            text = FILE.format(name=name, port=ports[name], mesh=mesh[name], links=links)
            running = running_router(text, folder / name)
            router = await trio.to_thread.run_sync(stack.enter_context, running)
        await trio.to_thread.run_sync(router.wait_for, "mesh.link_up", SECONDS)
        yield (f"127.0.0.1:{ports['dc1']}", f"127.0.0.1:{ports['dc2']}")


async def converse(protocol: Protocol, router: str, machine: SendingLink | ReceivingLink) -> None:
    """Has a client of a protocol do what its machine says, until that is done."""

    def engine(link_ids: Iterator[LinkId]) -> Engine:
        settings = EngineSettings(
            is_server=False,
            container="client",
            link_ids=link_ids,
            hostname=vhost_to_ask_for(protocol, None, "localhost"),
            sasl_client=lambda: MechanismClient(user=None, password=None),
            handshake_seconds=60,
        )
        return PROTOCOLS[protocol].make(settings, None)

    dialing = Dialing(dial=lambda: dial(router), make_engine=engine, patience_seconds=SECONDS)
    with trio.fail_after(SECONDS):
        await Conversation(dialing, machine).run()
    assert machine.failure is None, machine.failure


async def send(protocol: Protocol, router: str, address: str) -> None:
    """Sends all bodies, and waits until they are settled."""
    machine = SendingLink(
        name=LinkName("sender"),
        address=address,
        supply=map(message, BODIES),
        guarantee=Guarantee.AT_LEAST_ONCE,
        window=10,
    )
    await converse(protocol, router, machine)
    assert machine.report.outcomes.total() == COUNT


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_clients_of_every_protocol_send_receive_and_reply_across_sites(
    protocol: Protocol, tmp_path: Path
) -> None:
    taken: list[bytes] = []

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        taken.append(bytes(delivery.payload)[-OCTETS:])
        return ACCEPTED

    async with two_sites(tmp_path) as (here, there):
        async with receiving(there, "dc2.orders") as receiver:
            await send(protocol, here, "dc2.orders")
            await receiver.wait_until(lambda: len(receiver.bodies) == COUNT)
            assert Counter(receiver.bodies) == Counter(BODIES)
        async with asking(there) as asker:
            await send(protocol, here, asker.node)
            await asker.wait_until(lambda: len(asker.bodies) == COUNT)
            assert Counter(asker.bodies) == Counter(BODIES)
        machine = ReceivingLink(
            name=LinkName("receiver"),
            address="dc1.orders",
            take=take,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(converse, protocol, here, machine)
            async with sending(there, "dc1.orders", BODIES) as sender:
                await sender.wait_until(lambda: sender.outcomes["Accepted"] == COUNT)
            nursery.cancel_scope.cancel()
        assert Counter(taken) == Counter(BODIES)


async def test_a_reply_from_another_site_finds_the_queue_that_the_server_has_named(
    tmp_path: Path,
) -> None:
    async with two_sites(tmp_path) as (here, there):
        owner = Basic(here)
        owner.say(1, m.QueueDeclare(queue="", exclusive=True, auto_delete=True))
        (declared,) = owner.hear(1)
        assert isinstance(declared, m.QueueDeclareOk)
        owner.say(1, m.BasicConsume(queue=declared.queue, no_ack=True))
        owner.hear(1)
        async with sending(there, declared.queue, BODIES) as source:
            await source.wait_until(lambda: source.outcomes["Accepted"] == COUNT)
        owner.close()
