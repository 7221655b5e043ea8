"""What a person asks of the message store's process, beside the workers, and what it answers.

Rows as those of ``router.journal.store.asks``, over a connection of its own (``OPERATOR``).

    ask       incoming  outgoing    message octets   further
    LOOK      route     0           messages         the addresses that hold most, so many at most;
                                                     flag MORE: of every route
    DROP      route     place       messages         address; behind that place; time: no younger
                                                     ones; flags MORE: of every route, HELD: of any
                                                     address, SETTLED: they are to be forgotten

    answer
    HELD      route     octets      messages         address; outcome: priority; time: when the
                                                     oldest message came, 0: not looked for
    LOOKED    0         0           addresses        ends the answer; so many there are in all
    DROPPED   0         place       messages         ends a step of a drop: so many, looked at up to
                                                     that place; flag MORE: there may be others
    CLAIM     place     queue       octets           of a message that is to be forgotten
    SENTENCE  route     place       0                to the workers: drop what you have of the
                                                     address up to there; flags as of DROP
"""

import enum
import heapq
from collections.abc import Iterator
from typing import Final

import attrs

from router.journal.block import OWN_WORKER
from router.journal.keys import LinkKey
from router.journal.record import RecordFlag, Row
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import Claim, QueueKey, RouteKey, StoredQueue
from router.journal.store.store import MessageStore
from router.journal.writer import RecordWriter

STEP: Final = 5000
"""Messages that are looked at in one step of a drop, some 10 ms; workers are served between."""

OPERATOR: Final = OWN_WORKER - 1
"""Number of the worker as which the admin endpoint connects."""


class LookKind(enum.IntEnum):
    """Rows that are said and not stored; apart from those of ``AskKind``."""

    LOOK = 80
    HELD = 81
    LOOKED = 82
    DROP = 83
    DROPPED = 84
    CLAIM = 85
    SENTENCE = 86


@attrs.frozen
class Look:
    """Somebody wants to know which addresses hold most.

    Attributes:
        route: of the addresses; None: any.
        most: addresses that are answered.
    """

    route: RouteKey | None
    most: int


@attrs.frozen(kw_only=True)
class Drop:
    """Somebody drops messages, the oldest first.

    Attributes:
        route: of the messages; None: any.
        address: of the messages; None: any.
        after: behind this place, where the step before has ended.
        until_ns: those that came no later.
        most: messages.
        forgets: they are not to become dead letters.
    """

    route: RouteKey | None
    address: bytes | None
    until_ns: int
    most: int
    after: Place = BEGINNING
    forgets: bool = False


@attrs.frozen(kw_only=True)
class Held:
    """What the store holds of one address and priority.

    Attributes:
        octets: of the messages' records.
        oldest_ns: when the oldest message came; None: that was not looked for.
    """

    route: RouteKey
    address: bytes
    priority: int
    messages: int
    octets: int
    oldest_ns: int | None


@attrs.frozen
class Looked:
    """The end of an answer: so many addresses there are in all."""

    addresses: int


@attrs.frozen(kw_only=True)
class Dropped:
    """The end of a step of a drop.

    Attributes:
        messages: that were dropped.
        place: up to which was looked.
        has_more: there may be others behind it.
    """

    messages: int
    place: Place
    has_more: bool


@attrs.frozen(kw_only=True)
class Sentence:
    """What a worker has of some messages is dropped.

    Attributes:
        route: of the messages; None: any.
        address: of the messages; None: any.
        place: they stand up to there.
        forgets: they are not to become dead letters: they are gone.
    """

    route: RouteKey | None
    address: bytes | None
    place: Place
    forgets: bool


LookAsk = Look | Drop
LookAnswer = Held | Looked | Dropped | Claim | Sentence


def write_ask(writer: RecordWriter, ask: LookAsk) -> None:
    """Writes an ask."""
    match ask:
        case Look(route, most):
            writer.append(
                LookKind.LOOK,
                0,
                incoming=LinkKey(route or 0),
                flags=RecordFlag.MORE if route is None else 0,
                message_octets=most,
            )
        case Drop():
            writer.append(
                LookKind.DROP,
                ask.until_ns,
                incoming=LinkKey(ask.route or 0),
                outgoing=LinkKey(ask.after),
                flags=_flags(ask.route, ask.address, forgets=ask.forgets),
                message_octets=ask.most,
                body=ask.address or b"",
            )


def _flags(route: RouteKey | None, address: bytes | None, *, forgets: bool) -> int:
    return (
        (RecordFlag.MORE if route is None else 0)
        | (RecordFlag.HELD if address is None else 0)
        | (RecordFlag.SETTLED if forgets else 0)
    )


def _chosen(row: Row, body: bytes) -> tuple[RouteKey | None, bytes | None, bool]:
    route = None if row[4] & RecordFlag.MORE else RouteKey(row[8])
    address = None if row[4] & RecordFlag.HELD else body
    return route, address, bool(row[4] & RecordFlag.SETTLED)


def ask_of(row: Row, body: bytes) -> LookAsk | None:
    """Returns the ask of a row; None: it is none of these."""
    route, address, forgets = _chosen(row, body)
    match row[0]:
        case LookKind.LOOK:
            return Look(route, row[10])
        case LookKind.DROP:
            return Drop(
                route=route,
                address=address,
                until_ns=row[6],
                most=row[10],
                after=Place(row[9]),
                forgets=forgets,
            )
        case _:
            return None


def write_answer(writer: RecordWriter, answer: LookAnswer) -> None:
    """Writes an answer."""
    match answer:
        case Held():
            writer.append(
                LookKind.HELD,
                answer.oldest_ns or 0,
                incoming=LinkKey(answer.route),
                outgoing=LinkKey(answer.octets),
                outcome=answer.priority,
                message_octets=answer.messages,
                body=answer.address,
            )
        case Looked(addresses):
            writer.append(LookKind.LOOKED, 0, message_octets=addresses)
        case Dropped():
            writer.append(
                LookKind.DROPPED,
                0,
                outgoing=LinkKey(answer.place),
                flags=RecordFlag.MORE if answer.has_more else 0,
                message_octets=answer.messages,
            )
        case Claim(place, queue, octets):
            writer.append(
                LookKind.CLAIM,
                0,
                incoming=LinkKey(place),
                outgoing=LinkKey(queue),
                message_octets=octets,
            )
        case Sentence():
            writer.append(
                LookKind.SENTENCE,
                0,
                incoming=LinkKey(answer.route or 0),
                outgoing=LinkKey(answer.place),
                flags=_flags(answer.route, answer.address, forgets=answer.forgets),
                body=answer.address or b"",
            )


def answer_of(row: Row, body: bytes) -> LookAnswer | None:
    """Returns the answer of a row; None: it is none of these."""
    match row[0]:
        case LookKind.HELD:
            return Held(
                route=RouteKey(row[8]),
                address=body,
                priority=row[1],
                messages=row[10],
                octets=row[9],
                oldest_ns=row[6] or None,
            )
        case LookKind.LOOKED:
            return Looked(row[10])
        case LookKind.DROPPED:
            more = bool(row[4] & RecordFlag.MORE)
            return Dropped(messages=row[10], place=Place(row[9]), has_more=more)
        case LookKind.CLAIM:
            return Claim(Place(row[8]), QueueKey(row[9]), row[10])
        case LookKind.SENTENCE:
            route, address, forgets = _chosen(row, body)
            return Sentence(route=route, address=address, place=Place(row[9]), forgets=forgets)
        case _:
            return None


def look(store: MessageStore, ask: Look) -> Iterator[LookAnswer]:
    """Answers a look: the addresses that hold most messages, the deepest first."""
    queues = [
        queue
        for queue in store.holdings.queues.values()
        if queue.messages and ask.route in (None, queue.route)
    ]
    deepest = heapq.nlargest(ask.most, queues, key=_depth)
    oldest = store.ages.oldest_of({queue.key for queue in deepest})
    for queue in deepest:
        yield held(queue, oldest)
    yield Looked(len(queues))


def drop(store: MessageStore, ask: Drop) -> Iterator[LookAnswer]:
    """Does a step of a drop: ``STEP`` messages are looked at, at most.

    What is to become a dead letter is marked in its queue, and comes to the reader like what is too
    old; what is one already, by age or as the oldest of too many, is not counted. What is to be
    forgotten is answered as claims: whoever asked records that it is gone.
    """
    looked = count = 0
    place, has_more = ask.after, False
    for entry, queue in store.entries(ask.route, ask.after):
        if looked == STEP or count == ask.most:
            has_more = count < ask.most
            break
        if entry.time_ns > ask.until_ns:
            break
        looked, place = looked + 1, entry.place
        if ask.address not in (None, queue.address):
            continue
        if ask.forgets:
            yield Claim(entry.place, queue.key, entry.octets)
        elif store.is_dead(entry, queue):
            continue
        else:
            store.drop(entry)
        count += 1
    yield Dropped(messages=count, place=place, has_more=has_more)


def held(queue: StoredQueue, oldest: dict[QueueKey, int]) -> Held:
    """Returns what a queue holds."""
    return Held(
        route=queue.route,
        address=queue.address,
        priority=queue.priority,
        messages=queue.messages,
        octets=queue.octets,
        oldest_ns=oldest.get(queue.key),
    )


def _depth(queue: StoredQueue) -> tuple[int, int]:
    return queue.messages, queue.octets
