"""Connections are handed to the home of their first link, whatever they speak."""

import socket
from functools import partial

import attrs
import pytest
import trio

from router.core.policy import PeerLimits, Policy, PolicyRule
from router.model.capabilities import Protocol
from router.model.commands import SendDeliveries
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    DeliveriesReceived,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.terminus import Role
from router.net.connection import Connection
from router.net.handing import Handing
from router.service.config import Secret
from router.service.users import WrittenUsers
from router.wire.mechanisms import Mechanism, MechanismClient, MechanismServer
from router.wire.sasl import SaslClient, SaslServer
from router.wire.v0_10 import records as r
from tests.support.handed import Node, Talker, attach, hear, home_of, quiet, talker, two_workers
from tests.support.peer_0_10 import Line

HANDED = (Protocol.AMQP_1_0, Protocol.AMQP_0_9_1, Protocol.AMQP_0_9R1)
ROLES = (Role.SENDER, Role.RECEIVER)
MESSAGE = b"\x00\x53\x75\xa0\x01a"


async def conversation(node: Node, protocol: Protocol, role: Role, home: int) -> Talker:
    """Has a client attach to an address whose home is the worker of that number."""
    client = talker(node, protocol, f"client-{role.name}")
    await client.converse()
    await client.order(*attach(home_of(home), role))
    return client


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("protocol", HANDED)
async def test_a_client_is_handed_to_the_home_of_its_first_link(
    protocol: Protocol, role: Role
) -> None:
    async with two_workers() as (near, home):
        client = await conversation(near, protocol, role, 2)
        assert (near.clients, home.clients) == (0, 1)
        assert client.told(LinkAttached)
        assert not client.told(ConnectionClosed)
        assert near.reception.admitted_count == 0
        assert home.reception.admitted_count == 1
        client.sock.close()
        await quiet()
        assert (home.clients, home.reception.admitted_count) == (0, 0)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("protocol", [Protocol.AMQP_0_10, Protocol.AMQP_FAST])
async def test_a_client_that_comes_back_to_what_its_worker_keeps_stays_there(
    protocol: Protocol, role: Role
) -> None:
    memory: dict[str, object] = {}
    async with two_workers() as (near, home):
        for _ in range(3):
            client = talker(near, protocol, f"client-{role.name}", memory=memory)
            await client.converse()
            await client.order(*attach(home_of(2), role))
            assert client.told(LinkAttached)
            assert (near.clients, home.clients) == (1, 0)
            client.sock.close()
            client.engine.receive_eof(trio.current_time())
            await quiet()


async def test_a_session_of_0_10_that_comes_back_to_its_worker_is_not_left_busy_there() -> None:
    def come(sock: socket.socket, *, is_new: bool) -> None:
        sock.settimeout(20)
        line = Line(sock)
        line.open()
        line.control(r.SessionAttach(b"s"))
        line.await_(r.SessionAttached)
        line.control(r.SessionRequestTimeout(60))
        line.await_(r.SessionTimeout)
        if is_new:
            line.control(r.SessionCommandPoint(0, 0))
            asked = r.MessageSubscribe(
                queue=home_of(2), destination="d", accept_mode=0, acquire_mode=0
            )
            line.command(asked, sync=True)
            line.await_(r.SessionCompleted)

    async with two_workers() as (near, home):
        for is_new in (True, False, False):
            sock = near.connect()
            await trio.to_thread.run_sync(partial(come, sock, is_new=is_new))
            assert (near.clients, home.clients) == (1, 0)
            sock.close()
            await quiet()


@pytest.mark.parametrize("protocol", [*HANDED, Protocol.AMQP_0_10, Protocol.AMQP_FAST])
async def test_messages_cross_or_not_and_come_once(protocol: Protocol) -> None:
    async with two_workers() as (near, _):
        sink = await conversation(near, protocol, Role.RECEIVER, 2)
        source = await conversation(near, protocol, Role.SENDER, 2)
        link = LinkId(1)
        sent = [
            OutgoingDelivery(DeliveryNumber(n), DeliveryTag(b"%d" % n), MESSAGE) for n in (1, 2, 3)
        ]
        await source.order(SendDeliveries(link, sent))
        await sink.converse()
        await source.converse()
        taken = [
            delivery
            for event in sink.told(DeliveriesReceived)
            if isinstance(event, DeliveriesReceived)
            for delivery in event.deliveries
        ]
        assert len(taken) == 3
        assert not source.told(ConnectionClosed)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("protocol", HANDED)
async def test_however_its_octets_are_cut_it_hears_what_a_client_of_the_home_hears(
    protocol: Protocol, role: Role
) -> None:
    """What has been received when the worker offers it, what comes while it is held, and after."""
    async with two_workers() as (near, home):
        direct = await conversation(home, protocol, role, 2)
        said, heard = bytes(direct.said), bytes(direct.heard)
        direct.sock.close()
        await quiet()
        for cut in range(1, len(said)):
            sock = near.connect()
            sock.sendall(said[:cut])
            await quiet()
            sock.sendall(said[cut:])
            await quiet()
            assert hear(sock) == heard, cut
            assert (near.clients, home.clients) == (0, 1), cut
            sock.close()
            await quiet()
            assert (near.clients, home.clients) == (0, 0), cut


@pytest.mark.parametrize("protocol", HANDED)
async def test_octets_that_come_one_by_one(protocol: Protocol) -> None:
    async with two_workers() as (near, home):
        direct = await conversation(home, protocol, Role.RECEIVER, 2)
        said, heard = bytes(direct.said), bytes(direct.heard)
        direct.sock.close()
        sock = near.connect()
        for octet in said:
            sock.sendall(bytes([octet]))
            await trio.testing.wait_all_tasks_blocked()
        await quiet()
        assert hear(sock) == heard
        assert (near.clients, home.clients) == (0, 1)


@pytest.mark.parametrize("express", ["off", "cython"])
async def test_octets_that_come_while_it_is_held_are_read_at_its_home(express: str) -> None:
    async with two_workers(express=express) as (near, home):
        direct = await conversation(home, Protocol.AMQP_1_0, Role.SENDER, 2)
        said, heard = bytes(direct.said), bytes(direct.heard)
        sock = near.connect()
        sock.sendall(said + b"\0\0\0\x08\x02\0\0\0")  # a heartbeat in the same read
        await quiet()
        assert hear(sock) == heard
        assert home.clients == 2


@pytest.mark.parametrize("protocol", HANDED)
async def test_a_client_whose_link_is_at_home_or_on_another_route_stays(
    protocol: Protocol,
) -> None:
    async with two_workers() as (near, home):
        at_home = await conversation(near, protocol, Role.RECEIVER, 1)
        assert at_home.told(LinkAttached)
        plain = talker(near, protocol)
        await plain.converse()
        await plain.order(*attach("plain.a", Role.RECEIVER))
        await plain.order(*attach(home_of(2), Role.RECEIVER, 2))
        assert len(plain.told(LinkAttached)) == 2
        assert (near.clients, home.clients) == (2, 0)


async def test_a_client_with_links_of_two_homes_is_at_that_of_the_first() -> None:
    async with two_workers() as (near, home):
        client = talker(near, Protocol.AMQP_1_0)
        await client.converse()
        pair = *attach(home_of(2), Role.RECEIVER, 1), *attach(home_of(1), Role.RECEIVER, 2)
        await client.order(*pair)
        assert len(client.told(LinkAttached)) == 2
        assert (near.clients, home.clients) == (0, 1)


# --- what can go wrong ----------------------------------------------------------------------------


async def stays(near: Node, home: Node, protocol: Protocol = Protocol.AMQP_1_0) -> Talker:
    """Has a client attach that stays where it is, and whose link crosses."""
    client = await conversation(near, protocol, Role.RECEIVER, 2)
    assert client.told(LinkAttached)
    assert not client.told(ConnectionClosed)
    assert (near.clients, home.clients) == (1, 0)
    assert home.plane.connection_count == 1, "the sibling alone"
    assert home.reception.admitted_count == 0
    return client


@pytest.mark.parametrize("protocol", HANDED)
async def test_it_stays_if_the_home_would_say_something_else(protocol: Protocol) -> None:
    async with two_workers() as (near, home):
        home.engine_settings = attrs.evolve(
            home.engine_settings, max_frame_octets=8192, container="other"
        )
        client = await stays(near, home, protocol)
        client.sock.close()


async def test_it_stays_if_the_home_does_not_accept_connections() -> None:
    async with two_workers() as (near, home):
        home.is_closed = True
        await stays(near, home)


async def test_it_stays_if_nobody_reads_the_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.net.handing.PATIENCE_SECONDS", 0.05)
    async with two_workers() as (near, home):
        assert home.handing is not None
        _mute(monkeypatch, home.handing)
        client = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        with trio.fail_after(20):
            while not client.told(LinkAttached):
                await trio.sleep(0.05)
                await client.converse()
        assert (near.clients, home.clients) == (1, 0)


async def test_it_stays_if_the_pair_is_gone_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_workers() as (near, home):
        assert near.handing is not None
        assert home.handing is not None
        _mute(monkeypatch, home.handing)
        client = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        assert (near.clients, home.clients) == (1, 1), "held at both"
        home.handing.close()
        await client.converse()
        assert client.told(LinkAttached)
        assert (near.clients, home.clients) == (1, 0)


async def test_the_home_forgets_what_it_has_rehearsed_when_the_other_worker_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_workers() as (near, home):
        assert near.handing is not None
        monkeypatch.setattr(Handing, "_decide", lambda self, serial, refusal: None)
        client = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        assert (near.clients, home.clients) == (1, 1)
        near.plane.cut([each.id for each in _clients_of(near)], "killed")
        near.handing.close()
        await client.converse()
        assert client.is_over
        assert (near.clients, home.clients) == (0, 0)
        assert home.reception.admitted_count == 0


async def test_one_that_is_closed_while_it_is_held_stays_and_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_workers() as (near, home):
        assert near.handing is not None
        decide = Handing._decide

        def close_first(self: Handing, serial: int, refusal: str | None) -> None:
            (held,) = _clients_of(near)
            near.plane.close(held, Condition(CONNECTION_FORCED, "by hand"))
            decide(self, serial, refusal)

        monkeypatch.setattr(Handing, "_decide", close_first)
        client = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        (closed,) = client.told(ConnectionClosed)
        assert isinstance(closed, ConnectionClosed)
        assert "by hand" in str(closed.condition)
        assert home.clients == 0


async def test_a_client_that_leaves_while_it_is_held_is_gone_everywhere() -> None:
    async with two_workers() as (near, home):
        direct = await conversation(home, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        said = bytes(direct.said)
        direct.sock.close()
        sock = near.connect()
        sock.sendall(said)
        sock.close()
        await quiet()
        assert (near.clients, home.clients) == (0, 0)
        assert (near.reception.admitted_count, home.reception.admitted_count) == (0, 0)


def _mute(monkeypatch: pytest.MonkeyPatch, handing: Handing) -> None:
    """Loses whatever one side says."""
    send = Handing._send
    monkeypatch.setattr(
        Handing, "_send", lambda self, packet: self is handing or send(self, packet)
    )


def _clients_of(node: Node) -> list[Connection]:
    connections = node.plane.switchboard.connections.values()
    return [each for each in connections if each.listener is not None]


# --- who it is ------------------------------------------------------------------------------------


async def test_limits_count_a_handed_connection_once() -> None:
    limited = Policy(
        (PolicyRule(name="few", send=("#",), receive=("#",), limits=PeerLimits(connections=2)),)
    )
    async with two_workers(policy=limited) as (near, home):
        first = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        second = await conversation(near, Protocol.AMQP_1_0, Role.SENDER, 2)
        assert (near.clients, home.clients) == (0, 2)
        for node in (near, home):
            third = talker(node, Protocol.AMQP_1_0, "third")
            await third.converse()
            assert third.told(ConnectionClosed)
        first.sock.close()
        await quiet()
        again = await conversation(near, Protocol.AMQP_1_0, Role.RECEIVER, 2)
        assert again.told(LinkAttached)
        assert not second.told(ConnectionClosed)


async def test_heartbeats_go_on_where_a_connection_is_handed_to() -> None:
    async with two_workers(seconds=2.0) as (near, home):
        direct = talker(home, Protocol.AMQP_1_0, seconds=2.0)
        await direct.converse()
        await direct.order(*attach(home_of(2), Role.RECEIVER))
        said = bytes(direct.said)
        direct.sock.close()
        sock: socket.socket = near.connect()
        opened = len(said) - 60
        sock.sendall(said[:opened])
        await trio.sleep(1.1)  # the worker has sent a heartbeat of its own
        sock.sendall(said[opened:])
        await quiet()
        assert home.clients == 1
        hear(sock)
        for _ in range(2):
            await trio.sleep(1.1)
            sock.sendall(b"\0\0\0\x08\x02\0\0\0")
            assert hear(sock), "a heartbeat"
        assert home.clients == 1


@pytest.mark.parametrize("mechanism", [Mechanism.PLAIN, Mechanism.SCRAM_SHA_256])
@pytest.mark.parametrize("protocol", HANDED)
async def test_who_has_logged_in_is_not_asked_again(
    protocol: Protocol, mechanism: Mechanism
) -> None:
    """Challenges are made up by chance, and yet the home's engine says the same ones."""
    limited = Policy((PolicyRule(name="shop", users=("shop",), send=("q.#",), receive=("q.#",)),))

    def server() -> SaslServer:
        users = WrittenUsers({"shop": Secret("secret")})
        return MechanismServer(offer=(mechanism,), verifier=users, find_secret=users.find_secret)

    def client_login() -> SaslClient:
        return MechanismClient(allowed=(mechanism,), user="shop", password="secret")

    async with two_workers(login=server, policy=limited) as (near, home):
        client = talker(near, protocol, login=client_login)
        await client.converse()
        await client.order(*attach(home_of(2), Role.RECEIVER))
        assert client.told(LinkAttached)
        assert (near.clients, home.clients) == (0, 1)
        (known,) = (
            each for each in home.core._registry.connections.values() if each.configured is None
        )
        assert known.user == "shop"
