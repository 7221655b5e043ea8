"""A broker keeps the session of a process that is gone; the next process has a link of its name."""

from itertools import count

from router.model.commands import AttachLink, SendDeliveries
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy, Role, Source, Target
from router.wire.engine import EngineSettings
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

    def attach_anonymous(self) -> LinkId:
        link = next(self.names)
        policy, seconds = ExpiryPolicy.CONNECTION_CLOSE, 60
        command = AttachLink(
            link=link,
            name=LinkName("up"),
            role=Role.SENDER,
            source=Source(expiry_policy=policy, expiry_seconds=seconds),
            target=Target(expiry_policy=policy, expiry_seconds=seconds),
        )
        self.order(self.client, command)
        return link


def test_nothing_is_lost_in_the_session_of_an_earlier_process() -> None:
    lives = Lives()
    lives.begin()
    link = lives.attach_anonymous()
    assert lives.client.of(LinkAttached)[-1].target is not None
    lives.send_to("q", link, b"one", b"two", b"three")
    assert lives.came() == [b"one", b"two", b"three"]
    lives.begin()
    lives.attach_anonymous()
    assert lives.client.of(LinkAttached)[-1].target is None
    assert "earlier process" in str(lives.client.of(LinkDetached)[-1].condition)
    link = lives.attach_anonymous()  # the router attaches again after a pause
    numbers = lives.send_to("q", link, b"four", b"five")
    assert lives.came()[-2:] == [b"four", b"five"]  # what the server had kept came before
    states = [lives.client.updates.get(link, {}).get(number) for number in numbers]
    assert (ACCEPTED, True) not in states, "nobody has accepted them yet"
