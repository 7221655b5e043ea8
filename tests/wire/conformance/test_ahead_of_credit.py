"""Protocols without credit hand on ahead of it what needs no outcome, where the core says so."""

from collections.abc import Callable
from typing import Protocol as Interface

import attrs
import pytest

from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    HoldWindow,
    UpdateDeliveries,
)
from router.model.events import DeliveriesReceived, Event, LinkAttached
from router.model.identity import LinkId
from router.model.outcome import ACCEPTED
from router.wire.engine import Engine
from router.wire.v0_10.server import ServerEngine as Server010
from tests.support import peer_0_10
from tests.support.basic_peer import ClientPeer
from tests.support.draft_peer import DraftClientPeer
from tests.support.fast_peer import Client as FastClientPeer
from tests.wire.conformance.test_many_addresses import SilentPeer


class Client(Interface):
    """A client of one protocol, opposite its engine."""

    @property
    def engine(self) -> Engine:
        """The engine under test."""

    def publish(self, address: str, *, asks: bool = False) -> list[Event]:
        """Publishes a message; it may want to know what becomes of that."""


class BasicClient:
    """A client of 0-9-1, or of the draft, without confirms."""

    def __init__(self, peer: ClientPeer) -> None:
        self.peer = peer
        self.engine: Engine = peer.engine
        peer.open(1)

    def publish(self, address: str, *, asks: bool = False) -> list[Event]:
        return self.peer.publish(1, routing_key=address, mandatory=asks)


class Client010:
    """A client of 0-10 with one session."""

    def __init__(self) -> None:
        self.peer = SilentPeer(Server010(peer_0_10.settings(is_server=True)))
        self.engine: Engine = self.peer.engine
        self.peer.open()
        self.peer.attach()

    def publish(self, address: str, *, asks: bool = False) -> list[Event]:
        return self.peer.publish(address, b"body", mode=0 if asks else 1)


class FastClient:
    """A client of AMQP/Fast that names an address with each message."""

    def __init__(self) -> None:
        self.peer = FastClientPeer()
        self.engine: Engine = self.peer.engine
        self.peer.open().channel().handle()

    def publish(self, address: str, *, asks: bool = False) -> list[Event]:
        return self.peer.post(b"body", dest_name=address, tag=7 if asks else 0)


CLIENTS: dict[str, Callable[[], Client]] = {
    "0-9-1": lambda: BasicClient(ClientPeer()),
    "0.9r1": lambda: BasicClient(DraftClientPeer()),
    "0-10": Client010,
    "fast": FastClient,
}


@attrs.define(eq=False)
class Core:
    """A core that takes every link, and grants no credit.

    Attributes:
        ahead: what may come settled beyond that.
        links: address → link.
        came: what has come: address, and whether it was settled.
    """

    client: Client
    ahead: int | None = 100
    links: dict[str, LinkId] = attrs.field(factory=dict)
    came: list[tuple[str, bool]] = attrs.field(factory=list)

    def publish(self, address: str = "a", *, asks: bool = False) -> None:
        self.hear(self.client.publish(address, asks=asks))

    def order(self, *commands: Command) -> None:
        for command in commands:
            self.client.engine.execute(command)
        self.hear([])

    def grant(self, ahead: int | None, credit: int = 0, address: str = "a") -> None:
        self.order(GrantCredit(self.links[address], credit, ahead=ahead))

    def reads(self) -> bool:
        """Tells whether the connection is read."""
        return not self.client.engine.input_waits

    def hear(self, events: list[Event]) -> None:
        """Acts upon events, and upon what comes of that."""
        engine = self.client.engine
        while True:
            for command in [command for event in events for command in self._answer(event)]:
                engine.execute(command)
            deadline = engine.deadline
            if deadline is None or deadline > 0:
                return
            events = engine.handle_deadline(0.0)

    def _answer(self, event: Event) -> list[Command]:
        match event:
            case LinkAttached(link=link, name=name, role=role, source=source, target=target):
                address = str(getattr(target, "address", None))
                self.links[address] = link
                taken = AttachLink(link=link, name=name, role=role, source=source, target=target)
                return [taken, GrantCredit(link, 0, ahead=self.ahead)]
            case DeliveriesReceived(link=link, deliveries=deliveries):
                address = next(name for name, each in self.links.items() if each == link)
                self.came += [(address, each.settled) for each in deliveries]
                numbers = [each.number for each in deliveries if not each.settled]
                return [UpdateDeliveries(link, numbers, ACCEPTED, True)] if numbers else []
        return []


@pytest.fixture(params=CLIENTS)
def core(request: pytest.FixtureRequest) -> Core:
    return Core(CLIENTS[str(request.param)]())


def test_what_needs_no_outcome_is_handed_on_without_credit(core: Core) -> None:
    for address in "aabab":
        core.publish(address)
    assert core.came == [(address, True) for address in "aabab"]
    assert core.reads()


def test_it_waits_for_credit_where_the_core_does_not_take_it_ahead(core: Core) -> None:
    core.ahead = None
    core.publish()
    core.publish()
    assert core.came == []
    core.grant(None, credit=1)
    assert core.came == [("a", True)]
    assert core.reads()


def test_what_needs_an_outcome_waits_for_credit_and_what_follows_it_stays_behind(
    core: Core,
) -> None:
    core.publish()
    core.publish(asks=True)
    core.publish()
    assert core.came == [("a", True)]
    core.grant(100, credit=1)
    assert core.came == [("a", True), ("a", False), ("a", True)]


def test_credit_is_used_first(core: Core) -> None:
    core.publish()
    core.grant(100, credit=2)
    core.publish()
    core.publish()
    core.publish(asks=True)
    assert core.came == [("a", True)] * 3


def test_when_the_core_wants_no_more_what_was_read_goes_on_and_no_more_is_read(core: Core) -> None:
    core.publish()
    core.grant(0)
    assert core.reads()
    core.publish()
    core.publish()
    assert core.came == [("a", True)] * 3
    assert not core.reads()
    core.grant(0, credit=5)
    assert not core.reads()
    core.grant(100, credit=5)
    assert core.reads()


def test_a_held_window_lets_nothing_go_on_and_no_more_is_read(core: Core) -> None:
    core.publish()
    core.order(HoldWindow(core.links["a"], held=True))
    assert core.reads()
    core.publish()
    assert core.came == [("a", True)]
    assert not core.reads()
    core.order(HoldWindow(core.links["a"], held=False))
    assert core.came == [("a", True)] * 2
    assert core.reads()


def test_a_link_that_is_gone_stands_in_the_way_of_reading_no_more(core: Core) -> None:
    core.publish()
    core.grant(0)
    core.publish()
    assert not core.reads()
    core.order(DetachLink(core.links["a"], closed=True))
    assert core.reads()
