"""One machine under test, and neighbors that say what a test wants them to."""

from collections.abc import Sequence

from router.routes.mesh.events import (
    Event,
    MessageReceived,
    NeighborConnected,
    Order,
    SendMessage,
)
from router.routes.mesh.mesh import Mesh, Settings
from router.routes.mesh.nouns import (
    Body,
    Carried,
    Entries,
    Entry,
    Hello,
    Key,
    Kind,
    Links,
    Message,
    RouterId,
    Version,
)
from router.routes.mesh.policy import Policy
from tests.routes.mesh.simulator import forge, notary_for

ME = RouterId("me")


class Scripted:
    """The machine ``me``; neighbors are up once they are greeted.

    Attributes:
        mesh: the machine.
        orders: all that are no messages.
        sent: to whom it sent which messages.
    """

    def __init__(
        self, *, epoch: int = 1, advertise: tuple[str, ...] = (), policy: Policy | None = None
    ) -> None:
        self.now = 100.0
        settings = Settings(
            router=ME,
            epoch=epoch,
            advertise=advertise,
            policy=Policy.parse({}) if policy is None else policy,
        )
        self.mesh = Mesh(settings, notary_for(ME), self.now)
        self.orders: list[Order] = []
        self.sent: list[tuple[RouterId, Message]] = []
        self._up: list[RouterId] = []
        self._sent: dict[RouterId, int] = {}

    def tell(self, event: Event) -> list[Order]:
        return self._keep(self.mesh.handle(event, self.now))

    def hear(self, neighbor: RouterId, message: Message) -> list[Order]:
        orders = self.tell(MessageReceived(neighbor, message))
        self.work()
        return orders

    def work(self) -> None:
        """Calls the machine until it has nothing to do at once."""
        while self.mesh.deadline is not None and self.mesh.deadline <= self.now:
            self._keep(self.mesh.handle_deadline(self.now))

    def wait(self, seconds: float) -> None:
        """Lets time go by; neighbors that are up keep saying hello."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.25)
            for neighbor in self._up:
                self.hear(neighbor, Hello(router=neighbor, epoch=1, heard=1))
            self.work()

    def greet(self, *neighbors: RouterId) -> None:
        """Brings links to neighbors up; they say that they have a link to ``me``, too."""
        for neighbor in neighbors:
            self.tell(NeighborConnected(neighbor))
            self.hear(neighbor, Hello(router=neighbor, epoch=1, heard=1))
            self._up.append(neighbor)
            self.say(neighbor, neighbor, Links({ME: 10}))
        self.wait(0.5)

    def say(
        self,
        via: RouterId,
        origin: RouterId,
        body: Body,
        *,
        sequence: int = 1,
        epoch: int = 1,
        part: int = 0,
        signer: RouterId | None = None,
    ) -> Entry:
        """Has a neighbor send an entry."""
        kind = Kind(type(body).__name__.lower())
        key, version = Key(origin, kind, part), Version(epoch, sequence)
        entry = forge(key, version, body, signer or origin)
        self.send(via, [entry])
        return entry

    def send(self, via: RouterId, entries: Sequence[Entry], idle: int = 0) -> None:
        number = self._sent[via] = self._sent.get(via, 0) + 1
        self.hear(via, Entries(number, tuple(Carried(entry, idle) for entry in entries)))

    def of(self, kind: type[Order]) -> list[Order]:
        return [order for order in self.orders if isinstance(order, kind)]

    def entries_to(self, neighbor: RouterId) -> list[Entry]:
        return [
            carried.entry
            for to, message in self.sent
            if to == neighbor and isinstance(message, Entries)
            for carried in message.carried
        ]

    def _keep(self, orders: list[Order]) -> list[Order]:
        for order in orders:
            if isinstance(order, SendMessage):
                self.sent.append((order.neighbor, order.message))
            else:
                self.orders.append(order)
        return orders
