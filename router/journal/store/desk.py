"""The desk: gives stored messages to the workers that ask for them. A machine without I/O.

    worker                              desk
    BOUND route       ------------->
                      <-------------    ROUTE, whenever it becomes full or has room again
    FLOW route        ------------->    this worker reads the route from now on
                      <-------------    QUEUE for each queue with messages, and when it has none
    FLOW address, n   ------------->
                      <-------------    MESSAGE, n at most, the highest priority first
    FORWARDED         ------------->    it is gone when that is durable
    BACK, RETURN      ------------->    it is read again
    RECALL place      ------------->    the worker may have sent it in an earlier life
                      <-------------    RECALLED, or GONE
    UNSETTLED link    ------------->
                      <-------------    UNSETTLED: what of it is stored and not settled
    READS             ------------->    messages are answered by reference, if nothing is unusual
    HALT address      ------------->    its credit is forgotten
                      <-------------    HALTED, behind all that was answered before

**OneReader**: a route is read by the worker that asked last. When another one asks, or its
connection is lost, all that it has taken and has not said to be gone is read again. So a worker
that connects again is given messages that it has: it knows them by their places.

Reading costs nothing while nothing happens: a queue is looked at when it got or lost a message, or
when credit for its address arrived. If the disk does not give a message, its queue rests until the
store can read the segment again (``unreadable``).
"""

from typing import Final

import attrs

from router.journal.block import Block, Origin
from router.journal.store.asks import (
    AnswerWriter,
    AskUnsettled,
    AskWriter,
    Back,
    Bound,
    Flow,
    Gone,
    Halt,
    Halted,
    MessageRead,
    QueueNews,
    Reads,
    Recall,
    Return,
    RouteNews,
    Survey,
    UnreadableNews,
    UnsettledKeys,
    asks_of,
)
from router.journal.store.looking import Drop, Dropped, Look, LookAnswer, Sentence, drop, look
from router.journal.store.place import Place
from router.journal.store.queues import QueueKey, RouteKey, StoredQueue, StoredRoute
from router.journal.store.reading import StoredMessage
from router.journal.store.store import MessageStore

OUTPUT_OCTETS: Final = 1 << 20
"""So much is read for a worker at once; the rest when it has taken that."""

_REFERRED_OCTETS: Final = 4 << 20  # of a run that a worker reads itself ...
_REFERRED_SHARE: Final = 8  # ... and that counts for so much less: it is only checked here
_RUN: Final = 256  # messages that are read of one queue before the output is measured
_Name = tuple[RouteKey, bytes]  # of an address of a route


@attrs.define(eq=False)
class Reader:
    """A worker, as a reader.

    Attributes:
        origin: who it is.
        credit: messages that it still wants, by route and address.
        overdue: the same of what is overdue, by route.
        announced: queues of which it knows that they have messages: route, address and priority.
        waiting: addresses with credit that may have messages, a set in the order of asking.
        bounded: routes of which it wants to know whether they are full, and what they have dropped
            as the oldest; and what it was told.
        is_surveying: it wants to know what all routes hold.
        unreadable: what it was told last about segments that cannot be read.
        reads_files: it reads the files of the log itself.
        recalled: places of messages that it wants to have, and their routes.
        answers: what a person wants to know, what others have dropped, and what is unsettled.
        writer: writes what it is answered.
    """

    origin: Origin
    credit: dict[_Name, int] = attrs.field(factory=dict)
    overdue: dict[RouteKey, int] = attrs.field(factory=dict)
    announced: dict[QueueKey, tuple[RouteKey, bytes, int]] = attrs.field(factory=dict)
    waiting: dict[_Name, None] = attrs.field(factory=dict)
    bounded: dict[RouteKey, tuple[bool, Place] | None] = attrs.field(factory=dict)
    is_surveying: bool = False
    unreadable: str = ""
    reads_files: bool = False
    recalled: dict[Place, RouteKey] = attrs.field(factory=dict)
    answers: list[LookAnswer | UnsettledKeys | Halted] = attrs.field(factory=list)
    writer: AnswerWriter = attrs.field(factory=AnswerWriter)


class Desk:
    """Handles asks, and composes answers."""

    def __init__(self, store: MessageStore) -> None:
        """Begins without a reader."""
        self._store = store
        self._readers: dict[Origin, Reader] = {}
        self._reader_of: dict[RouteKey, Reader] = {}
        self._queues: dict[_Name, set[QueueKey]] = {}
        self._news: dict[Origin, dict[QueueKey, None]] = {}

    def asked(self, origin: Origin, block: Block) -> None:
        """Handles a block of asks.

        Raises:
            RecordError: the block is malformed.
        """
        reader = self._reader(origin)
        for ask in asks_of(block):
            match ask:
                case Bound(route, bounds):
                    self._store.bound(route, bounds)
                    reader.bounded[route] = None
                case Flow(route, address, count):
                    self._read(route, reader)
                    if address is None:
                        reader.overdue[route] = reader.overdue.get(route, 0) + count
                    elif count:
                        name = route, address
                        reader.credit[name] = reader.credit.get(name, 0) + count
                        reader.waiting[name] = None
                case Back(claim):
                    self._store.give_back(claim)
                case Return(segment, queue, positions):
                    if self._reads(reader, queue):
                        self._store.give_back_run(queue, segment, positions)
                case Survey():
                    reader.is_surveying = True
                case Recall(route, place):
                    self._read(route, reader)
                    reader.recalled[place] = route
                case AskUnsettled(link):
                    keys = tuple(self._store.holdings.unsettled.get(link, ()))
                    reader.answers.append(UnsettledKeys(link, keys))
                case Reads(is_able):
                    reader.reads_files = is_able and self._store.has_files
                case Halt(route, address):
                    reader.credit.pop((route, address), None)
                    reader.waiting.pop((route, address), None)
                    reader.answers.append(Halted(route, address))
                case Look():
                    reader.answers += look(self._store, ask)
                case Drop():
                    self._drop(ask, reader)

    def _reads(self, reader: Reader, key: QueueKey) -> bool:
        """Returns whether a worker is the reader of a queue."""
        queue = self._store.holdings.queues.get(key)
        return queue is not None and self._reader_of.get(queue.route) is reader

    def _drop(self, ask: Drop, person: Reader) -> None:
        """Drops some messages, and has the workers drop what they have of them."""
        *claims, dropped = drop(self._store, ask)
        person.answers += [*claims, dropped]
        assert isinstance(dropped, Dropped)
        sentence = Sentence(
            route=ask.route, address=ask.address, place=dropped.place, forgets=ask.forgets
        )
        for reader in self._readers.values():
            if reader is not person and dropped.messages:
                reader.answers.append(sentence)

    def lost(self, origin: Origin) -> None:
        """Records that a worker's connection is gone."""
        reader = self._readers.pop(origin, None)
        self._news.pop(origin, None)
        for route in [route for route, by in self._reader_of.items() if by is reader]:
            del self._reader_of[route]
            self._store.give_back_all(route)

    def output(self, origin: Origin, now_ns: int) -> memoryview:
        """Returns the next answers for a worker; empty: there are none now.

        They stay as they are until the next ones are asked for.
        """
        self._store.look_again(now_ns)
        self._stir()
        reader = self._readers.get(origin)
        if reader is None:
            return memoryview(b"")
        writer = reader.writer
        self._tell_queues(reader, writer)  # first: news of a route say that its queues are known
        for key in reader.bounded:
            self._store.drop_oldest(key)
        if reader.is_surveying:
            self._survey(reader, writer)
        self._tell_routes(reader, writer)
        for answer in reader.answers:
            writer.answer(answer)
        reader.answers.clear()
        self._give(reader, writer, now_ns)
        return writer.take()

    def deadline_ns(self) -> int | None:
        """Returns when ``output`` may have more though nothing happens; None: never."""
        retry_ns = self._store.unreadable.due_ns
        due = [] if retry_ns is None else [retry_ns]
        for route, reader in self._reader_of.items():
            if reader.overdue.get(route):
                becomes_old_ns = self._store.ages.becomes_old_ns(route)
                if becomes_old_ns is not None:
                    due.append(becomes_old_ns)
        return min(due, default=None)

    def _reader(self, origin: Origin) -> Reader:
        reader = self._readers.get(origin)
        if reader is None:
            reader = self._readers[origin] = Reader(origin)
        return reader

    def _read(self, route: RouteKey, reader: Reader) -> None:
        """Makes a worker the reader of a route."""
        before = self._reader_of.get(route)
        if before is reader:
            return
        self._stir()
        if before is not None:
            self._store.give_back_all(route)
            before.overdue.pop(route, None)
            for name in [name for name in before.credit if name[0] == route]:
                del before.credit[name]
        self._reader_of[route] = reader
        news = self._news.setdefault(reader.origin, {})
        for queue in self._store.holdings.queues.values():
            if queue.route == route:
                news[queue.key] = None

    def _stir(self) -> None:
        """Finds out whose queues changed."""
        for key in self._store.take_stirred():
            queue = self._store.holdings.queues.get(key)
            if queue is None:  # it is empty, and forgotten
                for reader in self._readers.values():
                    if key in reader.announced:
                        self._news.setdefault(reader.origin, {})[key] = None
                continue
            name = queue.route, queue.address
            self._queues.setdefault(name, set()).add(key)
            by = self._reader_of.get(queue.route)
            if by is not None:
                self._news.setdefault(by.origin, {})[key] = None
                if name in by.credit:
                    by.waiting[name] = None

    def _tell_routes(self, reader: Reader, writer: AskWriter) -> None:
        for key, told in reader.bounded.items():
            route = self._store.holdings.route(key)
            if (route.is_full, route.condemned) != told:
                reader.bounded[key] = route.is_full, route.condemned
                writer.answer(self._news_of(route))

    def _survey(self, reader: Reader, writer: AskWriter) -> None:
        """Tells what every route with messages, or with bounds, holds.

        First those that the reader may not know of, so that it reads these before it goes on.
        """
        reader.is_surveying = False
        unreadable = self._store.unreadable_words()
        if unreadable != reader.unreadable:
            reader.unreadable = unreadable
            writer.answer(UnreadableNews(unreadable))
        routes = self._store.holdings.routes
        for key, route in sorted(routes.items(), key=lambda each: each[0] in reader.bounded):
            if route.messages or key in reader.bounded:
                writer.answer(self._news_of(route))

    def _news_of(self, route: StoredRoute) -> RouteNews:
        return RouteNews(
            route.key,
            route.messages,
            route.octets,
            route.is_full,
            self._store.ages.oldest_ns(route.key) or 0,
            route.came,
            route.left,
            route.condemned,
        )

    def _tell_queues(self, reader: Reader, writer: AskWriter) -> None:
        for key in self._news.pop(reader.origin, {}):
            queue = self._store.holdings.queues.get(key)
            if queue is not None and queue.messages:
                if key not in reader.announced and self._reader_of.get(queue.route) is reader:
                    reader.announced[key] = name = queue.route, queue.address, queue.priority
                    writer.answer(QueueNews(*name, queue.messages))
            elif key in reader.announced:
                writer.answer(QueueNews(*reader.announced.pop(key), 0))

    def _give(self, reader: Reader, writer: AnswerWriter, now_ns: int) -> None:
        """Reads as many messages as there is credit for and as make one output."""
        self._recall(reader, writer, now_ns)
        octets = 0
        for route, count in list(reader.overdue.items()):
            if count and self._reader_of.get(route) is reader:
                messages = self._store.read_overdue(route, min(count, _RUN), now_ns)
                reader.overdue[route] -= len(messages)
                octets += _answer_all(writer, route, messages, is_swept=True)
        while reader.waiting and octets < OUTPUT_OCTETS:
            name = next(iter(reader.waiting))
            count, size = self._next_run(reader, name, writer, now_ns)
            if not count:
                del reader.waiting[name]
                continue
            octets += size
            reader.credit[name] -= count
            if not reader.credit[name]:
                del reader.credit[name], reader.waiting[name]

    def _recall(self, reader: Reader, writer: AskWriter, now_ns: int) -> None:
        """Answers for messages that were recalled, except those that are about to be gone.

        One that the disk does not give is answered when it does.
        """
        for place, route in tuple(reader.recalled.items()):
            if self._store.is_taken(place):
                continue
            try:
                message = self._store.recall(place, now_ns)
            except OSError:
                continue
            if message is None:
                writer.answer(Gone(route, place))
            else:
                writer.answer(MessageRead(route, message, is_recalled=True))
            del reader.recalled[place]

    def _next_run(
        self, reader: Reader, name: _Name, writer: AnswerWriter, now_ns: int
    ) -> tuple[int, int]:
        """Answers with some messages of an address, of the highest priority that has some.

        Returns:
            How many, and their octets; nothing if the disk does not give the next one.
        """
        credit = reader.credit.get(name, 0)
        if not credit or self._reader_of.get(name[0]) is not reader:
            return 0, 0
        for queue in sorted(self._queues_of(name), key=lambda each: -each.priority):
            count = min(credit, _run_of(queue, OUTPUT_OCTETS, _RUN))
            if reader.reads_files:
                most = _run_of(queue, _REFERRED_OCTETS, credit)
                reference = self._store.refer(queue.key, most, now_ns)
                if reference is not None:
                    writer.answer(reference)
                    count = reference.messages
                    return count, count * queue.octets // queue.messages // _REFERRED_SHARE
            elif (run := self._store.read_run(queue.key, count, now_ns)) is not None:
                writer.run(run)
                return len(run.places), run.octets
            messages = self._store.read(queue.key, count, now_ns)
            if messages:
                return len(messages), _answer_all(writer, name[0], messages)
        return 0, 0

    def _queues_of(self, name: _Name) -> list[StoredQueue]:
        """Returns the queues of an address that have messages, and forgets the others."""
        known = self._queues.get(name, set())
        queues = self._store.holdings.queues
        full = [queues[key] for key in known if key in queues and queues[key].messages]
        if known:
            self._queues[name] = {queue.key for queue in full}
            if not full:
                del self._queues[name]
        return full


def _run_of(queue: StoredQueue, octets: int, most: int) -> int:
    """Returns how many messages of a queue have so many octets, by their mean size."""
    return max(1, min(most, octets * queue.messages // queue.octets))


def _answer_all(
    writer: AskWriter, route: RouteKey, messages: list[StoredMessage], *, is_swept: bool = False
) -> int:
    """Answers with messages, and returns their octets."""
    for message in messages:
        writer.answer(MessageRead(route, message, is_swept))
    return sum(message.claim.octets for message in messages)
