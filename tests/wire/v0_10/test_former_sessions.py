"""A broker keeps the session of a process that is gone; the next process has a link of its name."""

from itertools import count

import pytest

from router.model.commands import AttachLink, SendDeliveries
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy, Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.v0_10.broker_session import DECLARE
from router.wire.v0_10.engine import make_engine
from tests.support.meeting import PAIRS, Meeting, Side

PAIR = PAIRS["amqp-0-10"]


class Lives(Meeting):
    """A client that begins anew, at a server that does not."""

    def __init__(self) -> None:
        super().__init__(PAIR)
        self.kept: dict[str, object] = {}
        self.names = map(LinkId, count(100))

    def begin(self) -> None:
        """Another process of the client connects; it knows nothing of the one before."""
        for side in (self.server, self.client):
            side.take(side.engine.receive_eof(self.now), self.grant)
        settings = EngineSettings(
            is_server=True, container="server", link_ids=self.ids, memory=self.kept
        )
        self.server = Side(make_engine(settings))
        settings = EngineSettings(is_server=False, container="client", link_ids=self.ids)
        self.client = Side(make_engine(settings))
        self.run()

    def send_to(self, address: str, link: LinkId, *bodies: bytes) -> list[DeliveryNumber]:
        """Sends messages, each with its address."""
        run = [self.delivery(body) for body in bodies]
        for each in run:
            each.address = address
        self.order(self.client, SendDeliveries(link, run))
        return [each.number for each in run]

    def came(self) -> list[bytes]:
        """What the server has received in this life."""
        runs = self.server.received.values()
        return [self.body(each.payload) for run in runs for each in run]

    def send_from_server(self, *bodies: bytes) -> None:
        """Sends messages to the client's subscription of this life."""
        subscribed = [each for each in self.server.of(LinkAttached) if each.role is Role.SENDER]
        run = [self.delivery(body) for body in bodies]
        self.order(self.server, SendDeliveries(subscribed[-1].link, run))

    def came_back(self) -> list[bytes]:
        """What the client has received in this life."""
        runs = self.client.received.values()
        return [self.body(each.payload) for run in runs for each in run]

    def come(self, role: Role, address: str | None, *, declares: bool = False) -> LinkId:
        """Attaches the link ``up`` of a router that keeps what is unsettled on it."""
        link = next(self.names)
        policy, seconds = ExpiryPolicy.CONNECTION_CLOSE, 60
        there = {Role.SENDER: (None, address), Role.RECEIVER: (address, None)}[role]
        command = AttachLink(
            link=link,
            name=LinkName("up"),
            role=role,
            source=Source(address=there[0], expiry_policy=policy, expiry_seconds=seconds),
            target=Target(address=there[1], expiry_policy=policy, expiry_seconds=seconds),
            properties={DECLARE: True} if declares else {},
        )
        self.order(self.client, command)
        return link

    def is_attached(self) -> bool:
        """Whether the client's link is there, without ever having been refused in this life."""
        answers = self.client.of(LinkAttached)
        has_both = (
            bool(answers) and answers[-1].source is not None and answers[-1].target is not None
        )
        return has_both and not self.client.of(LinkDetached)


@pytest.mark.parametrize(("address", "declares"), [(None, False), ("q", False), ("q", True)])
def test_nothing_is_lost_in_the_session_of_an_earlier_process(
    address: str | None, declares: bool
) -> None:
    lives = Lives()
    lives.begin()
    link = lives.come(Role.SENDER, address, declares=declares)
    assert lives.is_attached()
    lives.send_to("q", link, b"one", b"two", b"three")
    assert lives.came() == [b"one", b"two", b"three"]
    lives.begin()
    link = lives.come(Role.SENDER, address, declares=declares)
    assert lives.is_attached()
    numbers = lives.send_to("q", link, b"four", b"five")
    assert lives.came()[-2:] == [b"four", b"five"]  # what the server had kept came before
    states = [lives.client.updates.get(link, {}).get(number) for number in numbers]
    assert (ACCEPTED, True) not in states, "nobody has accepted them yet"


@pytest.mark.parametrize("address", ["q", "x/k"])
def test_a_receiver_begins_anew_in_the_session_of_an_earlier_process(address: str) -> None:
    lives = Lives()
    lives.begin()
    lives.come(Role.RECEIVER, address)
    assert lives.is_attached()
    lives.send_from_server(b"one", b"two")
    assert lives.came_back() == [b"one", b"two"]
    lives.begin()
    lives.come(Role.RECEIVER, address)
    assert lives.is_attached()
    assert not lives.came_back(), "what was sent to the earlier process has been released"
    lives.send_from_server(b"three")
    assert lives.came_back() == [b"three"]
