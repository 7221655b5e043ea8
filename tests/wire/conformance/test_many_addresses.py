"""Clients of protocols whose messages name their addresses, publishing to more than links are kept.

Every such engine makes a link for an address when it is first published to (``router.wire.inlets``)
and gives links up that nobody needs. What waits here, for credit or for its commit, must come
through all the same.
"""

from collections.abc import Callable
from typing import Protocol as Interface

import attrs
import pytest

from router.model.commands import AttachLink, Command, GrantCredit, UpdateDeliveries
from router.model.events import DeliveriesReceived, Event, LinkAttached, LinkDetached
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED
from router.wire.engine import Engine
from router.wire.fast import commands as c
from router.wire.inlets import INLETS_KEPT
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.server import ServerEngine as Server091
from router.wire.v0_10 import records as r
from router.wire.v0_10.server import ServerEngine as Server010
from tests.support import peer_0_10
from tests.support.basic_peer import ClientPeer
from tests.support.draft_peer import DraftClientPeer
from tests.support.fast_peer import Client as FastClientPeer

ADDRESSES = [f"address.{number}" for number in range(200)]


class Client(Interface):
    """A client of one protocol, opposite its engine."""

    @property
    def engine(self) -> Engine:
        """The engine under test."""

    def begin(self, *, in_transaction: bool) -> None:
        """Makes ready to publish."""

    def publish(self, address: str) -> list[Event]:
        """Publishes a message, which wants to be answered; returns the events."""

    def commit(self) -> list[Event]:
        """Commits the transaction; returns the events."""

    def roll_back(self) -> list[Event]:
        """Rolls the transaction back; returns the events."""

    def commits(self) -> int:
        """Counts the commits that were answered since the last call."""


class BasicClient:
    """A client of 0-9-1, or of the draft, which has no confirms."""

    def __init__(self, peer: ClientPeer) -> None:
        self.peer = peer
        self._mandatory = False

    @property
    def engine(self) -> Engine:
        return self.peer.engine

    def begin(self, *, in_transaction: bool) -> None:
        self.peer.open(1)
        if in_transaction:
            self.peer.send(1, m.TxSelect())
        elif type(self.peer.engine) is Server091:
            self.peer.send(1, m.ConfirmSelect())
        else:
            self._mandatory = True
        self.peer.received()

    def publish(self, address: str) -> list[Event]:
        return self.peer.publish(1, routing_key=address, mandatory=self._mandatory)

    def commit(self) -> list[Event]:
        return self.peer.send(1, m.TxCommit())

    def roll_back(self) -> list[Event]:
        return self.peer.send(1, m.TxRollback())

    def commits(self) -> int:
        return self.peer.methods().count(m.TxCommitOk())


class SilentPeer(peer_0_10.Peer):
    """A client of 0-10 whose core is somebody else's to play."""

    def _answer(self, event: LinkAttached) -> None:
        pass


class Client010:
    """A client of 0-10 with one session."""

    def __init__(self) -> None:
        self.peer = SilentPeer(Server010(peer_0_10.settings(is_server=True)))
        self._commands = 0

    @property
    def engine(self) -> Engine:
        return self.peer.engine

    def begin(self, *, in_transaction: bool) -> None:
        self.peer.open()
        self.peer.attach()
        if in_transaction:
            self._say(r.TxSelect())

    def _say(self, command: r.Command) -> list[Event]:
        self._commands += 1
        return self.peer.command(command)

    def publish(self, address: str) -> list[Event]:
        self._commands += 1
        return self.peer.publish(address, b"body")

    def commit(self) -> list[Event]:
        self.peer.read()
        return self._say(r.TxCommit())

    def roll_back(self) -> list[Event]:
        return self._say(r.TxRollback())

    def commits(self) -> int:
        committed = self._commands - 1
        told = [each.commands or () for each in self.peer.said(r.SessionCompleted)]
        return sum(first <= committed <= last for ranges in told for first, last in ranges)


class FastClient:
    """A client of AMQP/Fast that names an address with each message."""

    def __init__(self) -> None:
        self.peer = FastClientPeer()

    @property
    def engine(self) -> Engine:
        return self.peer.engine

    def begin(self, *, in_transaction: bool) -> None:
        self.peer.open().channel(transacted=in_transaction).handle()
        self.peer.read()

    def publish(self, address: str) -> list[Event]:
        return self.peer.post(b"body", dest_name=address, tag=7)

    def commit(self) -> list[Event]:
        return self.peer.send(c.ChannelCommit(1, 9))

    def roll_back(self) -> list[Event]:
        return self.peer.send(c.ChannelRollback(1, 8))

    def commits(self) -> int:
        return self.peer.read().count(c.ChannelReply(1, 9, 200))


@attrs.define
class Core:
    """A core that takes every link and every message.

    Attributes:
        credit: what it grants each link when it takes it.
        links: those that are attached, and what they lead to.
        delivered: addresses of the messages that came, in order.
        most: how many links there were at a time.
    """

    client: Client
    credit: int
    links: dict[LinkId, str] = attrs.field(factory=dict)
    delivered: list[str] = attrs.field(factory=list)
    most: int = 0

    def hear(self, events: list[Event]) -> None:
        """Acts upon events, and upon what comes of that."""
        engine = self.client.engine
        while events:
            for command in [command for event in events for command in self._answer(event)]:
                engine.execute(command)
            deadline = engine.deadline
            events = engine.handle_deadline(0.0) if deadline is not None and deadline <= 0 else []

    def grant_all(self) -> None:
        """Grants credit to every link."""
        for link in list(self.links):
            self.client.engine.execute(GrantCredit(link, 10))
        self.hear(self.client.engine.handle_deadline(0.0))

    def _answer(self, event: Event) -> list[Command]:
        match event:
            case LinkAttached(link=link, name=name, role=role, source=source, target=target):
                assert target is not None
                address = getattr(target, "address", None)
                assert address is not None
                self.links[link] = address
                self.most = max(self.most, len(self.links))
                taken = AttachLink(link=link, name=name, role=role, source=source, target=target)
                return [taken, GrantCredit(link, self.credit)] if self.credit else [taken]
            case LinkDetached(link=link):
                del self.links[link]
            case DeliveriesReceived(link=link, deliveries=deliveries):
                self.delivered += [self.links[link]] * len(deliveries)
                numbers = [each.number for each in deliveries if not each.settled]
                return [UpdateDeliveries(link, numbers, ACCEPTED, True)] if numbers else []
        return []


CLIENTS: dict[str, Callable[[], Client]] = {
    "0-9-1": lambda: BasicClient(ClientPeer()),
    "0.9r1": lambda: BasicClient(DraftClientPeer()),
    "0-10": Client010,
    "fast": FastClient,
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[str(request.param)]()


def test_a_transaction_over_many_addresses_is_answered_and_delivers_everything(
    client: Client,
) -> None:
    client.begin(in_transaction=True)
    core = Core(client, credit=10)
    for address in ADDRESSES:
        core.hear(client.publish(address))
    assert core.delivered == []
    core.hear(client.commit())
    assert core.delivered == ADDRESSES
    assert client.commits() == 1


def test_a_second_transaction_over_the_same_addresses_is_answered_too(client: Client) -> None:
    client.begin(in_transaction=True)
    core = Core(client, credit=10)
    for _ in range(2):
        for address in ADDRESSES:
            core.hear(client.publish(address))
        core.hear(client.commit())
        assert client.commits() == 1
    assert core.delivered == 2 * ADDRESSES


def test_what_waits_for_credit_at_many_addresses_is_delivered_when_there_is_some(
    client: Client,
) -> None:
    client.begin(in_transaction=False)
    core = Core(client, credit=0)
    for address in ADDRESSES:
        core.hear(client.publish(address))
    assert core.delivered == []
    core.grant_all()
    assert core.delivered == ADDRESSES


def test_links_that_nobody_needs_are_given_up_again(client: Client) -> None:
    client.begin(in_transaction=False)
    core = Core(client, credit=0)
    for address in ADDRESSES:
        core.hear(client.publish(address))
    assert len(core.links) == len(ADDRESSES)
    core.grant_all()
    core.credit = 10
    for number in range(len(ADDRESSES)):
        core.hear(client.publish(f"another.{number}"))
    assert len(core.links) == INLETS_KEPT
