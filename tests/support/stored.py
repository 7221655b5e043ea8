"""For tests of the message store: a store on a disk that crashes, and what was handed to it."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from router.journal.block import Origin, open_block
from router.journal.flusher import Flusher
from router.journal.store.asks import Answer, MessageRead
from router.journal.store.gone import GoneColumns
from router.journal.store.log import StoreLog
from router.journal.store.place import position_of, segment_of
from router.journal.store.queues import Bounds, Claim, queue_key, route_key
from router.journal.store.reading import StoredMessage
from router.journal.store.records import StoreWriter
from router.journal.store.references import RunReader
from router.journal.store.runs import MessagesRead
from router.journal.store.store import MessageStore
from tests.support.journal import DIRECTORY, SOURCE, START_NS, FakeDisk, key

ROUTE = route_key("telemetry.#")
OTHER = route_key("orders.#")
ADDRESS = "telemetry.a"
ACCEPTED = 0x24


def queue(address: str = ADDRESS, priority: int = 4, route: int = ROUTE) -> int:
    """Gives the key of a queue."""
    return queue_key(route, address.encode(), priority)  # type: ignore[arg-type]


class Custodian:
    """One worker and one log process in one: it stores, reads and forwards.

    Attributes:
        log: of the store.
        store: what is in it.
        writer: of the worker.
    """

    def __init__(
        self,
        disk: FakeDisk,
        *,
        folder: Path = DIRECTORY,
        life: int = 0,
        segment_octets: int = 4000,
        reserve_octets: int = 1024,
        flusher: Flusher | None = None,
        spare_octets: int = 0,
    ) -> None:
        incarnation = START_NS + life
        self._disk = disk
        self.log = StoreLog(
            folder,
            "dc1",
            disk=disk,
            incarnation=incarnation,
            segment_octets=segment_octets,
            reserve_octets=reserve_octets,
            flusher=flusher,
            spare_octets=spare_octets,
        )
        self.store: MessageStore = self.log.store
        self.writer = StoreWriter(worker=1, incarnation=incarnation)
        self.now_ns = incarnation

    def open(self) -> None:
        """Opens the log, as the process does when it starts."""
        self.log.open(self.now_ns)
        self.log.admit(self.writer_origin, 1)

    @property
    def writer_origin(self) -> Origin:
        """Names the worker."""
        return Origin(self.writer.worker, self.writer.incarnation)

    def put(
        self,
        number: int,
        *,
        address: str = ADDRESS,
        priority: int = 4,
        route: int = ROUTE,
        octets: int = 20,
        ttl_milliseconds: int = 0xFFFFFFFF,
        guarantee: int = 2,
    ) -> int:
        """Writes a message whose payload begins with its number; gives its sequence number."""
        return self.writer.stored(
            self.now_ns,
            key(number),
            SOURCE,
            b"tag-%d" % number,
            (b"%08d" % number).ljust(octets, b"."),
            route=route,  # type: ignore[arg-type]
            address=address,
            priority=priority,
            guarantee=guarantee,
            protocol=1,
            ttl_milliseconds=ttl_milliseconds,
        )

    def forward(self, claims: Sequence[Claim]) -> None:
        """Writes that messages are gone: by columns, if there are some of one queue and segment."""
        segments, queues = (
            {segment_of(each.place) for each in claims},
            {each.queue for each in claims},
        )
        if len(claims) > 1 and len(segments) == len(queues) == 1:
            self.writer.forwarded_run(self.now_ns, columns(claims), ACCEPTED)
        else:
            self.writer.forwarded(self.now_ns, claims, ACCEPTED)

    def append(self) -> None:
        """Hands in what was written."""
        for sealed in self.writer.take_blocks():
            self.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])

    def commit(self) -> bool:
        """Hands in what was written and makes it durable."""
        self.append()
        return self.log.commit(self.now_ns)

    def read(self, count: int = 1000, *, of: int | None = None) -> list[StoredMessage]:
        """Takes messages of a queue."""
        return self.store.read(queue() if of is None else of, count, self.now_ns)  # type: ignore[arg-type]

    def refer(self, count: int = 1000, *, of: int | None = None) -> list[StoredMessage]:
        """Takes messages of a queue, as a worker does that reads the files itself, if it can."""
        key = queue() if of is None else of
        found = self.store.refer(key, count, self.now_ns)  # type: ignore[arg-type]
        if found is None:
            return self.read(count, of=of)
        return RunReader(self._disk, self.log.directory).run(found).messages

    def overdue(self, count: int = 1000) -> list[StoredMessage]:
        """Takes what is overdue."""
        return self.store.read_overdue(ROUTE, count, self.now_ns)

    def bound(self, bounds: Bounds) -> None:
        """Bounds the route."""
        self.store.bound(ROUTE, bounds)


def columns(claims: Sequence[Claim]) -> GoneColumns:
    """Gives the names of messages of one queue and segment by columns."""
    numbers = [position_of(each.place) for each in claims] + [each.octets for each in claims]
    body = struct.pack(f"<{len(numbers)}I", *numbers)
    return GoneColumns(segment_of(claims[0].place), claims[0].queue, body)


def numbers(messages: Sequence[StoredMessage]) -> list[int]:
    """Gives the numbers of messages."""
    return [int(message.payload[:8]) for message in messages]


def messages_in(answers: Iterable[Answer]) -> list[StoredMessage]:
    """Gives the messages among answers, in their order."""
    found: list[StoredMessage] = []
    for answer in answers:
        if isinstance(answer, MessageRead):
            found.append(answer.message)
        elif isinstance(answer, MessagesRead):
            found += answer.messages
    return found


def claims(messages: Sequence[StoredMessage]) -> list[Claim]:
    """Gives what names messages."""
    return [message.claim for message in messages]
