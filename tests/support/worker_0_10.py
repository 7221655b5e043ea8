"""A worker without sockets: a core, and clients of AMQP 0-10 that are connected to it."""

import itertools
from collections import deque
from collections.abc import Sequence

from router.core.core import Core
from router.core.settings import CoreSettings
from router.core.turn import Order
from router.journal.writer import RecordWriter
from router.model.events import Event
from router.model.identity import ConnectionId, LinkId
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v0_10 import message as messages
from router.wire.v0_10.server import ServerEngine
from router.wire.v1_0.tables import encode_state
from tests.support.journaled import EPOCH_NS, id_in_payload, put_id
from tests.support.peer_0_10 import Peer, Transfer


class Worker:
    """A core and the engines of those who are connected."""

    def __init__(self, *routes: Route) -> None:
        self.links = map(LinkId, itertools.count(1))
        self.core = Core(CoreSettings(router_id="dc1"), RoutingTable(routes), self.links)
        self.clients: dict[ConnectionId, Client] = {}

    def connect(self) -> "Client":
        client = Client(self, ConnectionId(len(self.clients) + 1))
        self.clients[client.id] = client
        client.open()
        client.attach(b"s%d" % client.id)
        return client

    def happened(self, connection: ConnectionId, events: Sequence[Event]) -> None:
        self.carry_out(self.core.handle(connection, events, 1.0))

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Carries out orders, and what follows from them."""
        waiting: deque[tuple[ConnectionId, Sequence[Event]]] = deque()
        while True:
            for each, command in orders:
                self.clients[each].engine.execute(command)
            for each, client in self.clients.items():
                due = client.engine.deadline
                if due is not None and due <= client.now:
                    more = client.engine.handle_deadline(client.now)
                    if more:
                        waiting.append((each, more))
            if not waiting:
                return
            orders = self.core.handle(*waiting.popleft(), 1.0)

    @property
    def octets(self) -> int:
        return self.core._registry.process.used


class JournaledWorker(Worker):
    """A worker with a journal, which flushes when it is told to."""

    def __init__(self, *routes: Route) -> None:
        super().__init__(*routes)
        self.writer = RecordWriter(worker=0, incarnation=1)
        self.core.journal(
            self.writer, EPOCH_NS, identify=id_in_payload, give_id=put_id, encode=encode_state
        )

    def flush(self) -> None:
        """The journal makes everything durable, and says so."""
        self.writer.take_blocks()
        self.carry_out(self.core.durable(self.writer.next_sequence - 1, 1.0))


class Client(Peer):
    """A client, opposite the worker."""

    def __init__(self, worker: Worker, connection: ConnectionId) -> None:
        settings = EngineSettings(is_server=True, container="dc1", link_ids=worker.links)
        super().__init__(ServerEngine(settings))
        self.worker, self.id, self.now = worker, connection, 1.0

    def take(self, events: list[Event]) -> list[Event]:
        self.worker.happened(self.id, events)
        return events

    def lose(self) -> None:
        self.worker.happened(self.id, self.engine.receive_eof(self.now))

    def got(self) -> list[tuple[bytes, bool]]:
        """Bodies of what came, and whether they were marked as redelivered."""
        return [(each.body, _is_again(each)) for each in self.said(Transfer)]


def _is_again(transfer: Transfer) -> bool:
    _, told = messages.routing_of(transfer.header)
    return told is not None and told.redelivered
