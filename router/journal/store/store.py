"""The message store: keeps messages durable until they were forwarded, and shows them in order.

It is a log (``router.journal.log``) in a directory of its own, with these records in its segments:

    STORED, PART    a message; durable with them, its sender can hear ``accepted``
    FORWARDED,      it is gone: the target has it, or the dead letters have, or somebody dropped it;
    FORWARDED_RUN   messages of one queue and one segment are
    SETTLED         its sender, which promises exactly-once, knows that it is here
    STATE           in the head of each segment: all that was known then, see ``state``

One reader takes messages, queue by queue, each queue first in first out. A message that was taken
is the reader's until it says FORWARDED or gives it back; when the reader is lost it all comes back.

    stored --append, commit--> waiting --read--> taken --FORWARDED, commit--> gone
                                  ^                |
                                  '-- give_back ---'

**OneSegment**: the parts of a message are appended together, so one commit makes them durable, in
one segment. **StateBeforeRemoval**: a segment is removed when all its messages are gone and the
head of a later one is durable: what it said about other segments stands there, too.
**KnownUntilSettled**: a delivery of an exactly-once route is named, by link and key, from the
commit that makes it durable to that of its SETTLED, also if it is gone by then. **GoneStaysGone**:
a message whose FORWARDED was durable is never shown again; a crash only shows again what was taken.
**DamageIsListed**: what cannot be read costs what it held, and is listed; if it may have held
FORWARDED records, the messages that these may have named are clouded. **UnreadableWaits**: what the
disk does not give, but may give later, is neither lost nor passed: its queues wait.

Memory: for each segment its counts and one bit for 80 octets of what is not wholly gone; for each
queue with messages its counts; columns for the few segments that are read or written just now, and
for each message that a reader has a bit and a position (``taken``).
"""

import contextlib
import errno
import heapq
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from router.journal.block import BLOCK_OCTETS_LIMIT, HEADER, Block, BlockError
from router.journal.disk import Disk
from router.journal.record import RecordError
from router.journal.segment import segment_name
from router.journal.store.ages import Ages
from router.journal.store.changes import Changes
from router.journal.store.gone import GoneRun, claims_in
from router.journal.store.holdings import Holdings
from router.journal.store.index import (
    Entry,
    SegmentIndex,
    StoredColumns,
    StoredRow,
    Unsettled,
    columns_of,
    rows_of,
)
from router.journal.store.indexes import Indexes
from router.journal.store.losses import Losses
from router.journal.store.opening import read_store
from router.journal.store.order import Order
from router.journal.store.place import (
    BEGINNING,
    Place,
    place_of,
    places_of,
    position_of,
    segment_of,
)
from router.journal.store.queues import (
    Bounds,
    Claim,
    QueueKey,
    RouteKey,
    StoredQueue,
)
from router.journal.store.reading import MISSING, StoredMessage
from router.journal.store.references import RunReference, Spot
from router.journal.store.runs import StoredRun, piece_of
from router.journal.store.segments import StoredSegment
from router.journal.store.state import state_blocks
from router.journal.store.taken import Taken
from router.journal.store.unreadable import Unreadable

STORE_SEGMENT_OCTETS: Final = 16 << 20
"""Small, so that a segment is read in some milliseconds, and room is soon free again."""

STORE_SEGMENT_SHARE: Final = 64
"""A segment is no larger than this part of the disk, of which an eighth is left free."""

STORE_RESERVE_SEGMENTS: Final = 2
STORE_RESERVE_OCTETS: Final = STORE_RESERVE_SEGMENTS * STORE_SEGMENT_OCTETS
"""Zeros kept ahead. When the disk is full at least half of it is left, and the records that all the
messages of one segment are gone take less than these messages did: so a segment can be emptied and
removed."""


class MessageStore:
    """What the store's log holds; ``contents`` of that log.

    Attributes:
        holdings: the counts.
        changes: what somebody is to act upon.
        indexes: of the segments that are read or written just now.
        ages: of the messages.
    """

    def __init__(self, directory: Path, *, disk: Disk, incarnation: int) -> None:
        """Knows nothing before ``restore``.

        Args:
            directory: of the log's segments.
            disk: the operating system's, or a test's.
            incarnation: of the log.
        """
        self.holdings = Holdings()
        self.changes = Changes()
        self.indexes = Indexes(disk, directory, self._lacks)
        self._taken = Taken()
        self._order = Order(self.holdings, self.indexes, self._taken)
        self.ages = Ages(self.holdings, self.indexes, self._order, self._taken)
        self._losses = Losses(self.holdings, self.indexes, self._order, self._taken, self.changes)
        self._directory = directory
        self._disk = disk
        self._incarnation = incarnation
        self._appended: list[tuple[Block, list[GoneRun]]] = []
        self._written = 0
        self._headed = 0
        self._leftovers: list[int] = []
        self._dropped: dict[QueueKey, None] = {}

    def _lacks(self, segment: StoredSegment, index: SegmentIndex) -> None:
        self._losses.lose_some(segment, index)

    @property
    def losses(self) -> list[str]:
        """What was durable and cannot be read, for people."""
        return self._losses.told

    @property
    def lost(self) -> int:
        """Messages that were lost with it, as far as they could be counted."""
        return self._losses.lost

    @property
    def unreadable(self) -> Unreadable:
        """Segments that the disk does not give now."""
        return self.indexes.unreadable

    # The log's side

    def restore(self, now_ns: int) -> None:
        """Reads what the directory holds.

        Raises:
            OSError: a file cannot be read.
            ForeignFileError: a later version wrote one; nothing was changed.
        """
        found = read_store(self._directory, self._disk)
        self.holdings.become(found.holdings)
        self._leftovers = found.leftovers
        self.holdings.tick(now_ns)
        self._losses.told += found.losses
        for number in sorted(found.indexes):
            self.indexes.keep(found.indexes[number])
        self.changes.stirred = set(self.holdings.queues)
        queues = self.holdings.queues.values()
        self._dropped = {each.key: None for each in queues if each.condemned != BEGINNING}
        self.changes.wants_head = bool(self.losses or found.missing)  # told once, not at each start
        for number, count in found.missing.items():
            self._losses.lacks.append(f"segment {number} is missing with {count:,} messages")
        if found.missing:
            self._losses.count_anew()

    def head(self, now_ns: int) -> bytes:
        """Returns blocks for the head of the next segment."""
        self.holdings.tick(now_ns)
        self.holdings.forget_empty()
        self.changes.owes_head |= self.changes.wants_head
        self.changes.wants_head = False
        return state_blocks(self.holdings, self._incarnation, now_ns)

    def written(self) -> None:
        """Records that all appended blocks were written."""
        self._written = len(self._appended)

    def landed(self, segment: int, offset: int) -> None:
        """Counts the records of all blocks that were written, which are durable now."""
        self._headed = max(self._headed, segment)
        self.changes.owes_head = False
        if self.indexes.open is None or self.indexes.open.segment != segment:
            self.indexes.open = SegmentIndex(segment)
            self.indexes.keep(self.indexes.open)
            self.changes.may_remove = True
        holdings = self.holdings
        known = holdings.segment(segment)
        blocks, self._appended = self._appended[: self._written], self._appended[self._written :]
        self._written = 0
        for block, gone in blocks:
            is_more = sum([run.rows for run in gone]) < block.row_count
            if is_more:
                self.indexes.open.holds(offset, block)
            columns = columns_of(offset, block) if is_more else None
            if columns is not None:
                self._landed_run(segment, columns)
            elif is_more:
                for row in rows_of(segment, offset, block):
                    if isinstance(row, StoredRow):
                        self._landed(row)
                    elif isinstance(row, Unsettled):
                        holdings.settle(row)
            self._left(gone)
            offset += block.octets
        known.end = offset

    def _left(self, gone: list[GoneRun]) -> None:
        """Counts messages that are gone, durably; what a block says of them stands in any order."""
        for run in gone:
            self._taken.remove_run(run.segment, run.positions)
            self.changes.stirred.add(run.queue)
        self.changes.may_remove |= self.holdings.forwarded_run(gone)

    def _landed_run(self, segment: int, columns: StoredColumns) -> None:
        """Counts the messages of a block; as ``_landed`` does, which is the reference."""
        if not columns.positions:
            return
        holdings, known = self.holdings, self.holdings.segment(segment)
        for each in columns.queues:
            behind = Place(place_of(segment, columns.positions[each.numbers[0]]) - 1)
            queue = holdings.queue(each.route, each.address, each.priority, behind=behind)
            holdings.stored_run(queue, len(each.numbers), each.octets)
            self.changes.stirred.add(queue.key)
        known.hold_run([each.queue for each in columns.queues], columns.times)
        assert self.indexes.open is not None
        self.indexes.open.add_columns(columns)

    def _landed(self, row: StoredRow) -> None:
        entry, holdings = row.entry, self.holdings
        assert self.indexes.open is not None
        behind = Place(entry.place - 1)
        queue = holdings.queue(row.route, row.address, row.priority, behind=behind)
        holdings.stored(queue, entry.place, entry.octets, entry.time_ns)
        self.indexes.open.add(entry, is_unusual=row.is_unusual)
        self.changes.stirred.add(queue.key)
        if row.unsettled is not None:
            holdings.unsettle(row.unsettled)

    def appended(self, blocks: list[Block]) -> None:
        """Records that the log got blocks; the next commit makes them durable, in this order.

        What they say to be gone is not read any more, however long the commit takes.
        """
        for block in blocks:
            gone = claims_in(block)
            self._appended.append((block, gone))
            for run in gone:
                self._taken.add_run(run.segment, run.queue, run.positions)

    # The reader's side

    @property
    def has_files(self) -> bool:
        """Whether the log is in files, which others may read."""
        return self._disk.has_files

    def bound(self, route: RouteKey, bounds: Bounds) -> None:
        """Sets how much a route may store from now on."""
        self.holdings.route(route).bounds = bounds

    def read(
        self, key: QueueKey, count: int, now_ns: int, *, until: Place | None = None
    ) -> list[StoredMessage]:
        """Takes the next messages of a queue.

        Args:
            key: of the queue.
            count: no more than this.
            now_ns: decides which of them are overdue.
            until: no message behind this place; None: any.

        Returns:
            Nothing if the disk does not give the next one; it may do so later.
        """
        queue = self.holdings.queues.get(key)
        messages: list[StoredMessage] = []
        if queue is None:
            return messages
        with contextlib.closing(self._order.waiting(queue)) as waiting:
            while len(messages) < count and (entry := next(waiting, None)) is not None:
                if until is not None and entry.place > until:
                    self._return(entry.place, queue)
                    break
                try:
                    message = self._take(entry, queue, now_ns)
                except OSError:
                    self._return(entry.place, queue)
                    break
                if message is not None:
                    messages.append(message)
        return messages

    def read_run(self, key: QueueKey, count: int, now_ns: int) -> StoredRun | None:
        """Takes the next messages of a queue that stand in one segment, if nothing is unusual.

        Returns:
            None: nothing was taken, and ``read`` has to look.
        """
        self.indexes.is_referring = False
        found = self._next_run(key, count, now_ns)
        if found is None:
            return None
        segment, positions, pieces = found
        queue = self.holdings.queues[key]
        places = places_of(segment.number, positions)
        run = self._cut(StoredRun(queue.route, key, places, []), segment.number, pieces)
        if not run.pieces:
            return None
        self._take_run(queue, segment.number, positions[: len(run.places) * 4])
        return run

    def refer(self, key: QueueKey, count: int, now_ns: int) -> RunReference | None:
        """Takes what ``read_run`` does, and says where it stands; it is not read."""
        self.indexes.is_referring = True
        found = self._next_run(key, count, now_ns)
        if found is None:
            return None
        segment, positions, pieces = found
        queue, index = self.holdings.queues[key], self.indexes.at_hand(segment)
        if index is None or not self.indexes.is_whole(segment, index, pieces[-1][0]):
            return None
        self._take_run(queue, segment.number, positions)
        spots = [Spot(offset, index.heap_of(offset), positions) for offset, positions in pieces]
        number, end = segment.number, segment.end
        return RunReference(queue.route, key, queue.address, number, end, spots)

    def _take_run(self, queue: StoredQueue, segment: int, positions: bytes) -> None:
        chosen = array("I", positions)
        queue.read = place_of(segment, chosen[-1])
        self._taken.add_run(segment, queue.key, chosen)

    def _next_run(
        self, key: QueueKey, count: int, now_ns: int
    ) -> tuple[StoredSegment, bytes, list[tuple[int, bytes]]] | None:
        """Finds the next messages of a queue that stand in one segment.

        Returns:
            The segment, their positions, u32 each, and the blocks that they stand in, by offset,
            each with its part of these; None: there are none, something is unusual, or the disk
            does not give them now.
        """
        queue, holdings = self.holdings.queues.get(key), self.holdings
        if queue is None or queue.returned:
            return None
        for segment in holdings.segments_from(queue.read):
            found = None
            if segment.may_hold(key):
                index = self.indexes.ahead_of(segment, queue, count)
                if index is None:
                    return None
                found = index.run(queue.read, key, count)
            if found is not None:
                break
        else:
            return None
        pieces, oldest_ns = found
        if not pieces:
            return None
        positions = b"".join([each for _, each in pieces])
        first = place_of(segment.number, int.from_bytes(positions[:4], sys.byteorder))
        route = holdings.routes[queue.route]
        age_ns, passed = route.bounds.age_ns, max(route.condemned, queue.condemned)
        if (
            first <= max(passed, holdings.clouded)
            or (age_ns is not None and oldest_ns + age_ns <= now_ns)
            or segment.is_any_gone(positions)
            or self._taken.has_any(segment.number, positions)
        ):
            return None
        return segment, positions, pieces

    def _cut(self, run: StoredRun, segment: int, pieces: list[tuple[int, bytes]]) -> StoredRun:
        """Finds the messages of a run, up to the first that is unusual or cannot be read."""
        count, octets = 0, HEADER.size
        for offset, positions in pieces:
            try:
                block = self.indexes.reader.block(segment, offset)
            except (BlockError, *MISSING):
                break
            except OSError as error:
                self.unreadable.note(segment, error)
                break
            piece = piece_of(block, offset, positions)
            if piece is None:
                break
            octets += block.octets
            if count and octets > BLOCK_OCTETS_LIMIT:
                break
            run.pieces.append(piece)
            count += len(positions) // 4
        return run._replace(places=run.places[:count])

    def read_overdue(self, key: RouteKey, count: int, now_ns: int) -> list[StoredMessage]:
        """Takes the oldest messages of a route that are too old or were dropped.

        Those whose own time to live has ended are shown as overdue when their turn comes.
        """
        route = self.holdings.routes.get(key)
        messages = self._read_dropped(key, count, now_ns)
        if route is None:
            return messages
        self.drop_oldest(key)
        self.holdings.tick(now_ns)
        age_ns = route.bounds.age_ns
        is_any_old = age_ns is not None and self.ages.old_from_ns(route) + age_ns <= now_ns
        if not is_any_old and route.condemned <= route.swept:
            return messages
        after, is_first = max(route.swept, route.first), route.first >= route.swept
        for entry, queue in self._order.entries(key, after):
            if is_first:
                route.first, is_first = Place(entry.place - 1), False
            is_old = age_ns is not None and entry.time_ns + age_ns <= now_ns
            if len(messages) >= count:
                break
            if not (is_old or entry.place <= route.condemned):
                if entry.place in self._taken:
                    continue  # its reader looks after it; the clock may have been set back since
                break
            try:
                message = None if entry.place in self._taken else self._take(entry, queue, now_ns)
            except OSError:
                continue
            route.swept = entry.place
            if message is not None:
                messages.append(message)
        return messages

    def _read_dropped(self, key: RouteKey, count: int, now_ns: int) -> list[StoredMessage]:
        """Takes messages of a route that somebody has dropped."""
        messages: list[StoredMessage] = []
        for name in list(self._dropped):
            queue = self.holdings.queues.get(name)
            if queue is None or not queue.messages:
                del self._dropped[name]
                continue
            if queue.route != key:
                continue
            if len(messages) >= count:
                break
            found = self.read(name, count - len(messages), now_ns, until=queue.condemned)
            messages += found
            if not found:
                del self._dropped[name]
        return messages

    def is_dead(self, entry: Entry, queue: StoredQueue) -> bool:
        """Returns whether a message is too old, or was dropped: a dead letter, if not gone."""
        return self.ages.is_late(entry.place, entry.time_ns, queue, self.holdings.clock_ns)

    def drop(self, entry: Entry) -> None:
        """Records that somebody has dropped a message, and all before it in its queue."""
        queue = self.holdings.queues[entry.queue]
        queue.condemned = max(queue.condemned, entry.place)
        self._dropped[queue.key] = None
        self.changes.stirred.add(queue.key)
        self.changes.wants_head = True

    def entries(self, route: RouteKey | None, after: Place) -> Iterator[tuple[Entry, StoredQueue]]:
        """Yields what is stored of a route, or of all, behind a place, oldest first.

        Of each queue it ends where the disk does not give the next message.
        """
        return self._order.entries(route, after)

    def drop_oldest(self, key: RouteKey) -> None:
        """Drops the oldest messages of a route that drops them, as many as are too many."""
        route = self.holdings.routes.get(key)
        if route is None or not route.must_drop():
            return
        for entry, _ in self._order.entries(key, route.condemned, passes=False):
            route.condemn(entry.place, entry.octets)
            if not route.must_drop():
                return

    def give_back(self, claim: Claim) -> None:
        """Returns a message that was taken: it is read again, before what stands behind it."""
        if claim.place in self._taken:
            self._give_back(claim.place, claim.queue)

    def _give_back(self, place: Place, key: QueueKey) -> None:
        self._taken.remove(place)
        queue = self.holdings.queues.get(key)
        if queue is not None:
            self._return(place, queue)
            route = self.holdings.routes[queue.route]
            route.swept = min(route.swept, Place(place - 1))

    def give_back_run(self, key: QueueKey, segment: int, positions: bytes) -> None:
        """Returns messages of a queue in one segment that were taken, except those that are going.

        Reading comes to them again in its turn, run by run.

        Args:
            key: of the queue.
            segment: that they stand in.
            positions: of the messages, u32 each, ascending; at least one.
        """
        queue, going = self.holdings.queues.get(key), self._going()
        places = [place for place in places_of(segment, positions) if place not in going]
        if queue is None or not places:
            return
        self._taken.remove_run(segment, array("I", map(position_of, places)))
        before = Place(places[0] - 1)
        queue.read = min(queue.read, before)
        queue.returned = [place for place in queue.returned if place <= before]
        heapq.heapify(queue.returned)
        route = self.holdings.routes[queue.route]
        route.swept = min(route.swept, before)
        self.changes.stirred.add(key)

    def take_stirred(self) -> set[QueueKey]:
        """Returns, once, the queues that got or lost a message, or got one back."""
        return self.changes.take_stirred()

    def _return(self, place: Place, queue: StoredQueue) -> None:
        self.changes.stirred.add(queue.key)
        if place <= queue.read:  # else reading comes to it in its turn
            heapq.heappush(queue.returned, place)

    def give_back_all(self, route: RouteKey) -> None:
        """Returns what the reader of a route has taken: the reader is lost.

        What it has said to be gone stays gone, durable or not.
        """
        queues, going = self.holdings.queues.values(), self._going()
        keys = {queue.key for queue in queues if queue.route == route}
        for place, key in self._taken.of(keys):
            if place not in going:
                self._give_back(place, key)

    def _going(self) -> set[Place]:
        """Returns the messages that are gone with the next commit."""
        return {place for _, gone in self._appended for run in gone for place in run.places}

    def is_taken(self, place: Place) -> bool:
        """Returns whether a reader has a message, or has said that it is gone."""
        return place in self._taken

    def recall(self, place: Place, now_ns: int) -> StoredMessage | None:
        """Takes a message that nobody has taken, by its place; None: it is gone.

        Raises:
            OSError: the disk does not give it; it may do so later.
        """
        segment = self.holdings.segments.get(segment_of(place))
        index = None if segment is None else self.indexes.of(segment)
        if segment is not None and index is None:
            raise OSError(errno.EIO, "the segment cannot be read now")
        entry = None if index is None else index.at(place)
        queue = None if entry is None else self.holdings.queues.get(entry.queue)
        if entry is None or queue is None or self._order.is_gone(entry):
            return None
        return self._take(entry, queue, now_ns)

    def claims(self, route: RouteKey) -> Iterator[Claim]:
        """Yields what a route has stored, oldest first, for somebody who wants to drop it."""
        for entry, queue in self._order.entries(route, BEGINNING):
            yield Claim(entry.place, queue.key, entry.octets)

    @property
    def taken(self) -> int:
        """How many messages the readers have."""
        return len(self._taken)

    def removable(self) -> list[int]:
        """Returns the segments that can be removed."""
        if not self._headed:
            return []
        segments = self.holdings.segments.values()
        done = [each.number for each in segments if each.is_done and each.number < self._headed]
        return [*self._leftovers, *done]

    def remove_done(self) -> int:
        """Removes the segments that can be, and returns how many there were.

        Raises:
            OSError: the disk failed; they are removed another time.
        """
        if not self.changes.may_remove:
            return 0
        numbers = self.removable()
        for number in numbers:
            with contextlib.suppress(*MISSING):
                self._disk.remove(self._directory / segment_name(number))
            self.holdings.segments.pop(number, None)
            self.indexes.forget(number)
            if number in self._leftovers:
                self._leftovers.remove(number)
        self.changes.may_remove = False
        return len(numbers)

    # Entries

    def _take(self, entry: Entry, queue: StoredQueue, now_ns: int) -> StoredMessage | None:
        """Reads a message; None: it is lost.

        Raises:
            OSError: the disk does not give it; it may do so later.
        """
        claim = Claim(entry.place, queue.key, entry.octets)
        try:
            message = self.indexes.reader.message(entry, queue)
        except (BlockError, RecordError, *MISSING) as error:
            self._losses.lose(entry, error)
            return None
        except OSError as error:
            self.unreadable.note(segment_of(entry.place), error)
            raise
        self._taken.add(claim.place, queue.key)
        return message._replace(
            is_overdue=self.ages.is_overdue(message, queue, now_ns),
            is_clouded=entry.place < self.holdings.clouded,
        )

    # What the disk does not give

    def unreadable_words(self) -> str:
        """Says what the disk does not give, for people; empty: it gives everything."""
        return self._losses.unreadable_words()

    def look_again(self, now_ns: int) -> None:
        """Tries segments that could not be read, when their pauses have ended."""
        found = self.unreadable.look_again(now_ns)
        if not found:
            return
        before = Place(max(BEGINNING, place_of(min(found), 0) - 1))
        for route in self.holdings.routes.values():  # what stands there was left out
            route.swept, route.first = min(route.swept, before), min(route.first, before)
        queues = self.holdings.queues.values()
        self.changes.stirred |= {each.key for each in queues}
        self._dropped |= {each.key: None for each in queues if each.condemned != BEGINNING}
        if self._losses.must_count:
            self._losses.count_anew()
