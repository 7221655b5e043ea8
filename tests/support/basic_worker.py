"""A worker without sockets: the real core, and clients of 0-9-1 that say and hear octets."""

import itertools
from collections import deque
from typing import Self

from router.core.core import Core
from router.core.settings import CoreSettings
from router.core.turn import Order
from router.model.commands import Command
from router.model.events import Event
from router.model.identity import ConnectionId, LinkId
from router.routes.route import Route
from router.routes.table import RoutingTable
from tests.support.basic_peer import ClientPeer


class Worker:
    """The core, and everybody connected to it."""

    def __init__(self, *routes: Route) -> None:
        self.link_ids = map(LinkId, itertools.count(1))
        self.core = Core(CoreSettings(router_id="router"), RoutingTable(routes), self.link_ids)
        self.clients: dict[ConnectionId, WorkerClient] = {}
        self.now = 100.0

    def connect(self, *channels: int) -> "WorkerClient":
        """A client has connected and opened channels."""
        client = WorkerClient(self, ConnectionId(len(self.clients) + 1))
        self.clients[client.id] = client
        return client.open(*channels or (1,))

    def configure(self, *routes: Route) -> None:
        """Puts other routes into force."""
        self._carry_out(self.core.configure(RoutingTable(routes), self.now))

    def happened(self, connection: ConnectionId, events: list[Event]) -> None:
        """Has the core act upon events, and what comes of that, until nothing comes any more."""
        self._carry_out(self.core.handle(connection, events, self.now))

    def _carry_out(self, orders: list[Order]) -> None:
        waiting = deque([orders])
        while waiting:
            for each, group in itertools.groupby(waiting.popleft(), lambda order: order[0]):
                brought = self.clients[each].carry_out([command for _, command in group])
                if brought:
                    waiting.append(self.core.handle(each, brought, self.now))
            self.core.orders_done()


class WorkerClient(ClientPeer):
    """A client, opposite the worker."""

    def __init__(self, worker: Worker, connection: ConnectionId) -> None:
        super().__init__(link_ids=worker.link_ids)
        self.worker = worker
        self.id = connection
        self.now = worker.now

    def feed(self, octets: bytes) -> list[Event]:
        """Says octets, and waits until the worker has done what follows."""
        events = self.engine.receive_data(octets, self.now)
        events += self._due()
        self.worker.happened(self.id, events)
        return events

    def wait(self, seconds: float) -> list[Event]:
        """Lets time pass, deadline by deadline."""
        until = self.now + seconds
        while (deadline := self.engine.deadline) is not None and deadline <= until:
            self.now = self.worker.now = max(self.now, deadline)
            self.worker.happened(self.id, self._due())
        self.now = self.worker.now = until
        return []

    def carry_out(self, commands: list[Command]) -> list[Event]:
        """Has the engine execute commands; returns what they bring about."""
        for command in commands:
            self.engine.execute(command)
        return self._due()

    def _due(self) -> list[Event]:
        deadline = self.engine.deadline
        if deadline is None or deadline > self.now:
            return []
        return self.engine.handle_deadline(self.now)

    def lose(self) -> Self:
        """Loses the connection."""
        self.worker.happened(self.id, self.engine.receive_eof(self.now))
        return self
