"""The message store: keeps messages durable until they were forwarded, and shows them in order.

It is a log (``router.journal.log``) in a directory of its own, with these records in its segments:

    STORED, PART    a message; durable with them, its sender can hear ``accepted``
    FORWARDED       it is gone: the target has it, or the dead letters have, or somebody dropped it
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
from collections import Counter, OrderedDict
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Final

from router.journal.block import BLOCK_OCTETS_LIMIT, HEADER, Block, BlockError
from router.journal.disk import Disk
from router.journal.record import RecordError
from router.journal.segment import SEGMENT_HEADER_OCTETS, segment_name
from router.journal.store.holdings import Holdings
from router.journal.store.index import (
    Entry,
    GoneRun,
    SegmentIndex,
    StoredColumns,
    StoredRow,
    Unsettled,
    claims_in,
    columns_of,
    rows_of,
)
from router.journal.store.losses import lost_in, of_addresses
from router.journal.store.opening import Found, read_store
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
    StoredRoute,
)
from router.journal.store.reading import MISSING, SegmentReader, StoredMessage
from router.journal.store.references import RunReference, Spot
from router.journal.store.runs import StoredRun, piece_of
from router.journal.store.segments import StoredSegment
from router.journal.store.state import state_blocks
from router.journal.store.taken import Taken
from router.journal.store.unreadable import Unreadable

STORE_SEGMENT_OCTETS: Final = 8 << 20
"""Small, so that a segment is read in some milliseconds, and room is soon free again."""

STORE_SEGMENT_SHARE: Final = 64
"""A segment is no larger than this part of the disk, of which an eighth is left free."""

STORE_RESERVE_SEGMENTS: Final = 2
STORE_RESERVE_OCTETS: Final = STORE_RESERVE_SEGMENTS * STORE_SEGMENT_OCTETS
"""Zeros kept ahead. When the disk is full at least half of it is left, and the records that all the
messages of one segment are gone take less than these messages did: so a segment can be emptied and
removed."""

_INDEXES_KEPT: Final = 8
_MORE_INDEXES_KEPT: Final = 64
_ENTRIES_KEPT: Final = 400_000  # in these: some 14 MB
"""A queue with few messages is read far ahead of one with many, so several segments are read at
once; it costs as much to read one again as to forward its messages."""


class MessageStore:
    """What the store's log holds; ``contents`` of that log.

    Attributes:
        holdings: the counts.
        losses: what was durable and cannot be read, for people.
        lost: messages that were lost with it, as far as they could be counted.
        unreadable: segments that the disk does not give now.
        wants_head: somebody has dropped messages, which the head of a new segment has to say.
        owes_head: that head is not known to be durable.
    """

    def __init__(self, directory: Path, *, disk: Disk, incarnation: int) -> None:
        """Knows nothing before ``restore``.

        Args:
            directory: of the log's segments.
            disk: the operating system's, or a test's.
            incarnation: of the log.
        """
        self.holdings = Holdings()
        self.losses: list[str] = []
        self.lost = 0
        self.unreadable = Unreadable(disk, directory)
        self.wants_head = self.owes_head = False
        self._directory = directory
        self._disk = disk
        self._incarnation = incarnation
        self._reader = SegmentReader(disk, directory)
        self._scanner = SegmentReader(disk, directory, stretches=1)
        self._is_referring = False
        self._indexes: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._open: SegmentIndex | None = None
        self._appended: list[tuple[Block, list[GoneRun]]] = []
        self._written = 0
        self._headed = 0
        self._leftovers: list[int] = []
        self._taken = Taken()
        self._stirred: set[QueueKey] = set()
        self._is_counting = self._must_count = False
        self._lacks: list[str] = []
        self._may_remove = True
        self._dropped: dict[QueueKey, None] = {}

    # The log's side

    def restore(self, now_ns: int) -> None:
        """Reads what the directory holds.

        Raises:
            OSError: a file cannot be read.
            ForeignFileError: a later version wrote one; nothing was changed.
        """
        found = read_store(self._directory, self._disk)
        self.holdings, self._leftovers = found.holdings, found.leftovers
        self.holdings.tick(now_ns)
        self.losses += found.losses
        self._keep_indexes(found)
        self._stirred = set(self.holdings.queues)
        queues = self.holdings.queues.values()
        self._dropped = {each.key: None for each in queues if each.condemned != BEGINNING}
        self.wants_head = bool(self.losses or found.missing)  # told once, not at each start
        for number, count in found.missing.items():
            self._lacks.append(f"segment {number} is missing with {count:,} messages")
        if found.missing:
            self._count_anew()

    def head(self, now_ns: int) -> bytes:
        """Returns blocks for the head of the next segment."""
        self.holdings.tick(now_ns)
        self.holdings.forget_empty()
        self.owes_head |= self.wants_head
        self.wants_head = False
        return state_blocks(self.holdings, self._incarnation, now_ns)

    def written(self) -> None:
        """Records that all appended blocks were written."""
        self._written = len(self._appended)

    def landed(self, segment: int, offset: int) -> None:
        """Counts the records of all blocks that were written, which are durable now."""
        self._headed = max(self._headed, segment)
        self.owes_head = False
        if self._open is None or self._open.segment != segment:
            self._open = SegmentIndex(segment)
            self._keep_index(self._open)
            self._may_remove = True
        holdings = self.holdings
        known = holdings.segment(segment)
        blocks, self._appended = self._appended[: self._written], self._appended[self._written :]
        self._written = 0
        for block, gone in blocks:
            is_more = sum([len(run.positions) for run in gone]) < block.row_count
            if is_more:
                self._open.holds(offset, block)
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
            self._stirred.add(run.queue)
        self._may_remove |= self.holdings.forwarded_run(gone)

    def _landed_run(self, segment: int, columns: StoredColumns) -> None:
        """Counts the messages of a block; as ``_landed`` does, which is the reference."""
        if not columns.positions:
            return
        holdings, known = self.holdings, self.holdings.segment(segment)
        for each in columns.queues:
            behind = Place(place_of(segment, columns.positions[each.numbers[0]]) - 1)
            queue = holdings.queue(each.route, each.address, each.priority, behind=behind)
            holdings.stored_run(queue, len(each.numbers), each.octets)
            self._stirred.add(queue.key)
        known.hold_run([each.queue for each in columns.queues], columns.times)
        assert self._open is not None
        self._open.add_columns(columns)

    def _landed(self, row: StoredRow) -> None:
        entry, holdings = row.entry, self.holdings
        assert self._open is not None
        behind = Place(entry.place - 1)
        queue = holdings.queue(row.route, row.address, row.priority, behind=behind)
        holdings.stored(queue, entry.place, entry.octets, entry.time_ns)
        self._open.add(entry, is_unusual=row.is_unusual)
        self._stirred.add(queue.key)
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
        with contextlib.closing(self._waiting(queue)) as waiting:
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
        self._is_referring = False
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
        self._is_referring = True
        found = self._next_run(key, count, now_ns)
        if found is None:
            return None
        segment, positions, pieces = found
        queue, index = self.holdings.queues[key], self._begun_index(segment)
        if index is None or not self._is_whole(segment, index, pieces[-1][0]):
            return None
        self._take_run(queue, segment.number, positions)
        spots = [Spot(offset, index.heap_of(offset), positions) for offset, positions in pieces]
        number, end = segment.number, segment.end
        return RunReference(queue.route, key, queue.address, number, end, spots)

    def _is_whole(self, segment: StoredSegment, index: SegmentIndex, last: int) -> bool:
        """Checks the blocks of a segment up to one, as far as they were not since they came."""
        begin = max(index.checked, SEGMENT_HEADER_OCTETS)
        while begin <= last:
            try:
                found = self._scanner.next_blocks(segment.number, begin, segment.end)
            except (BlockError, *MISSING):
                return False
            except OSError as error:
                self.unreadable.note(segment.number, error)
                return False
            offset, block = found[-1]
            begin = index.checked = offset + block.octets
        return True

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
                index = self._index_of(segment, queue, count)
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
                block = self._reader.block(segment, offset)
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
        is_any_old = age_ns is not None and self._old_from_ns(route) + age_ns <= now_ns
        if not is_any_old and route.condemned <= route.swept:
            return messages
        after, is_first = max(route.swept, route.first), route.first >= route.swept
        for entry, queue in self._entries(key, after):
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
        return self._is_late(entry.place, entry.time_ns, queue, self.holdings.clock_ns)

    def drop(self, entry: Entry) -> None:
        """Records that somebody has dropped a message, and all before it in its queue."""
        queue = self.holdings.queues[entry.queue]
        queue.condemned = max(queue.condemned, entry.place)
        self._dropped[queue.key] = None
        self._stirred.add(queue.key)
        self.wants_head = True

    def entries(self, route: RouteKey | None, after: Place) -> Iterator[tuple[Entry, StoredQueue]]:
        """Yields what is stored of a route, or of all, behind a place, oldest first.

        Of each queue it ends where the disk does not give the next message.
        """
        return self._entries(route, after)

    def drop_oldest(self, key: RouteKey) -> None:
        """Drops the oldest messages of a route that drops them, as many as are too many."""
        route = self.holdings.routes.get(key)
        if route is None or not route.must_drop():
            return
        for entry, _ in self._entries(key, route.condemned, passes=False):
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

    def take_stirred(self) -> set[QueueKey]:
        """Returns, once, the queues that got or lost a message, or got one back."""
        stirred, self._stirred = self._stirred, set()
        return stirred

    def _return(self, place: Place, queue: StoredQueue) -> None:
        self._stirred.add(queue.key)
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
        index = None if segment is None else self._index(segment)
        if segment is not None and index is None:
            raise OSError(errno.EIO, "the segment cannot be read now")
        entry = None if index is None else index.at(place)
        queue = None if entry is None else self.holdings.queues.get(entry.queue)
        if entry is None or queue is None or self._is_gone(entry):
            return None
        return self._take(entry, queue, now_ns)

    def claims(self, route: RouteKey) -> Iterator[Claim]:
        """Yields what a route has stored, oldest first, for somebody who wants to drop it."""
        for entry, queue in self._entries(route, BEGINNING):
            yield Claim(entry.place, queue.key, entry.octets)

    def becomes_old_ns(self, key: RouteKey) -> int | None:
        """Returns when a message that no reader has may become too old; None: none will.

        That is no later than when the first one does.
        """
        route = self.holdings.routes.get(key)
        if route is None or route.bounds.age_ns is None or not route.messages:
            return None
        age_ns = route.bounds.age_ns
        earliest_ns = self._old_from_ns(route) + age_ns
        if earliest_ns > self.holdings.clock_ns:
            return earliest_ns
        oldest_ns = self.oldest_ns(key, is_waiting=True)
        return None if oldest_ns is None else oldest_ns + age_ns

    def _old_from_ns(self, route: StoredRoute) -> int:
        """Returns a time before which no message came that is not known to be overdue or gone."""
        after = max(route.swept, route.first)
        segment = next(self.holdings.segments_from(after), None)
        return self.holdings.clock_ns if segment is None else segment.first_ns

    def oldest_ns(self, key: RouteKey, *, is_waiting: bool = False) -> int | None:
        """Returns when the oldest message of a route arrived; None: it has none.

        Args:
            key: of the route.
            is_waiting: the oldest one that no reader has.
        """
        route = self.holdings.routes.get(key)
        if route is None or not route.messages:
            return None
        is_first, held_up = True, [] if is_waiting else self._held_up(key)
        for entry, _ in self._entries(key, route.first):
            if is_first:
                route.first, is_first = Place(entry.place - 1), False
            if not (is_waiting and entry.place in self._taken):
                return min([entry.time_ns, *held_up])
        return min(held_up, default=None)

    def _held_up(self, route: RouteKey) -> list[int]:
        """Returns when the first messages came of segments that cannot be read, if of a route."""
        queues, segments = self.holdings.queues, map(self.holdings.segments.get, self.unreadable)
        return [
            segment.first_ns
            for segment in segments
            if segment is not None
            and segment.queues is not None
            and any(key in queues and queues[key].route == route for key in segment.queues)
        ]

    def oldest_of(self, keys: Collection[QueueKey]) -> dict[QueueKey, int]:
        """Returns when the oldest messages of queues arrived, of those that are found soon.

        No more than ``_INDEXES_KEPT`` segments are looked at: others have to wait meanwhile.
        """
        found: dict[QueueKey, int] = {}
        looked = 0
        for segment in self.holdings.segments_from(BEGINNING):
            wanted = {key for key in keys if key not in found and segment.may_hold(key)}
            if not wanted:
                continue
            if looked == _INDEXES_KEPT:
                break
            looked += 1
            index = self._index(segment)
            if index is None:
                keys = [key for key in keys if key not in wanted]
                continue
            for key in wanted:
                entries = index.entries(BEGINNING, key)
                first = next((each for each in entries if not self._is_gone(each)), None)
                if first is not None:
                    found[key] = first.time_ns
        return found

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
        if not self._may_remove:
            return 0
        numbers = self.removable()
        for number in numbers:
            with contextlib.suppress(*MISSING):
                self._disk.remove(self._directory / segment_name(number))
            self.unreadable.forget(number)
            self.holdings.segments.pop(number, None)
            self._indexes.pop(number, None)
            if number in self._leftovers:
                self._leftovers.remove(number)
        self._may_remove = False
        return len(numbers)

    # Entries

    def _waiting(self, queue: StoredQueue) -> Generator[Entry, None, None]:
        """Yields what of a queue is neither taken nor gone; it counts as read then.

        It ends where the disk does not give the next one.
        """
        while queue.returned:
            segment = self.holdings.segments.get(segment_of(queue.returned[0]))
            index = None if segment is None else self._index(segment)
            if segment is not None and index is None:
                return
            place = heapq.heappop(queue.returned)
            entry = None if index is None else index.at(place)
            if entry is not None and self._is_waiting(entry):
                yield entry
        for segment in self.holdings.segments_from(queue.read):
            if not segment.may_hold(queue.key):
                continue
            index = self._index(segment)
            if index is None:
                return
            for entry in index.entries(queue.read, queue.key):
                queue.read = entry.place
                if self._is_waiting(entry):
                    yield entry

    def _entries(
        self, route: RouteKey | None, after: Place, *, passes: bool = True
    ) -> Iterator[tuple[Entry, StoredQueue]]:
        """Yields what a route, or any, has stored behind a place, oldest first, taken or not.

        Args:
            route: of the messages; None: any.
            after: they stand behind it.
            passes: go on behind a segment that cannot be read, with queues that have nothing there.
        """
        queues = self.holdings.queues
        waiting = self._waiting_before(after)
        if waiting is None:
            return
        for segment in self.holdings.segments_from(after):
            if segment.queues is not None and not any(
                key in queues and route in (None, queues[key].route) for key in segment.queues
            ):
                continue
            index = self._index(segment)
            for entry in () if index is None else index.entries(after):
                queue = queues.get(entry.queue)
                if queue is None or route not in (None, queue.route) or entry.queue in waiting:
                    continue
                if not self._is_gone(entry):
                    yield entry, queue
            if segment.number in self.unreadable or index is None:  # perhaps only since
                if not passes or segment.queues is None:
                    return
                waiting |= segment.queues

    def _waiting_before(self, place: Place) -> set[QueueKey] | None:
        """Returns the queues that wait for segments before that of a place; None: all may."""
        found: set[QueueKey] = set()
        for number in self.unreadable:
            segment = self.holdings.segments.get(number)
            if segment is None or number >= segment_of(place):
                continue
            if segment.queues is None:
                return None
            found |= segment.queues
        return found

    def _is_waiting(self, entry: Entry) -> bool:
        return entry.place not in self._taken and not self._is_gone(entry)

    def _is_gone(self, entry: Entry) -> bool:
        segment = self.holdings.segments.get(segment_of(entry.place))
        return segment is None or segment.is_gone(position_of(entry.place))

    def _take(self, entry: Entry, queue: StoredQueue, now_ns: int) -> StoredMessage | None:
        """Reads a message; None: it is lost.

        Raises:
            OSError: the disk does not give it; it may do so later.
        """
        claim = Claim(entry.place, queue.key, entry.octets)
        try:
            message = self._reader.message(entry, queue)
        except (BlockError, RecordError, *MISSING) as error:
            self._lose(entry, error)
            return None
        except OSError as error:
            self.unreadable.note(segment_of(entry.place), error)
            raise
        self._taken.add(claim.place, queue.key)
        return message._replace(
            is_overdue=self._is_overdue(message, queue, now_ns),
            is_clouded=entry.place < self.holdings.clouded,
        )

    def _is_overdue(self, message: StoredMessage, queue: StoredQueue, now_ns: int) -> bool:
        ends_ns = message.ttl_ends_ns
        return self._is_late(message.claim.place, message.time_ns, queue, now_ns) or (
            ends_ns is not None and ends_ns <= now_ns
        )

    def _is_late(self, place: Place, time_ns: int, queue: StoredQueue, now_ns: int) -> bool:
        """Returns whether a message is older than its route allows, or was dropped."""
        route = self.holdings.routes[queue.route]
        age_ns = route.bounds.age_ns
        return place <= max(route.condemned, queue.condemned) or (
            age_ns is not None and time_ns + age_ns <= now_ns
        )

    # Indexes

    def _index(self, segment: StoredSegment) -> SegmentIndex | None:
        """Returns the index of a segment; None: the disk does not give it now."""
        index = self._begun_index(segment)
        while index is not None and index.next_block is not None:
            index = self._read_on(segment, index)
        return index

    def _index_of(
        self, segment: StoredSegment, queue: StoredQueue, count: int
    ) -> SegmentIndex | None:
        """Returns the index of a segment, as far as the next messages of a queue need it.

        None: the disk does not give it now.
        """
        index = self._begun_index(segment)
        while (
            index is not None
            and index.next_block is not None
            and index.count_behind(queue.read, queue.key) < count
        ):
            index = self._read_on(segment, index)
        return index

    def _begun_index(self, segment: StoredSegment) -> SegmentIndex | None:
        if segment.number in self.unreadable:
            return None
        index = self._indexes.get(segment.number)
        if index is None and self.unreadable.is_disk:
            return None
        if index is None:
            index = SegmentIndex(segment.number, SEGMENT_HEADER_OCTETS)
            self._keep_index(index)
        self._indexes.move_to_end(segment.number)
        return index

    def _read_on(self, segment: StoredSegment, index: SegmentIndex) -> SegmentIndex | None:
        """Reads the next blocks of a segment; returns its index, another one if there is damage.

        None: the disk does not give them now.
        """
        try:
            return self._read_next(segment, index)
        except OSError as error:
            self.unreadable.note(segment.number, error)
            return None

    def _read_next(self, segment: StoredSegment, index: SegmentIndex) -> SegmentIndex:
        assert index.next_block is not None
        reader = self._scanner if self._is_referring else self._reader
        try:
            found = reader.next_blocks(segment.number, index.next_block, segment.end)
        except (BlockError, *MISSING):
            index = SegmentIndex(segment.number)
            found = list(self._reader.blocks(segment.number, segment.end))
            index.checked = segment.end
            self._indexes[segment.number] = index
        else:
            last, block = found[-1]
            index.next_block = index.checked = last + block.octets
            if index.next_block >= segment.end:
                index.next_block = None
        for offset, block in found:
            index.add_block(offset, block)
        if index.next_block is None and len(index) < segment.stored:
            self._lose_some(segment, index)
        return index

    def _keep_indexes(self, found: Found) -> None:
        for number in sorted(found.indexes):
            self._keep_index(found.indexes[number])

    def _keep_index(self, index: SegmentIndex) -> None:
        self._indexes[index.segment] = index
        entries = sum(map(len, self._indexes.values()))
        for number in list(self._indexes)[: max(0, len(self._indexes) - _INDEXES_KEPT)]:
            if len(self._indexes) <= _MORE_INDEXES_KEPT and entries <= _ENTRIES_KEPT:
                break
            if self._open is None or number != self._open.segment:
                entries -= len(self._indexes.pop(number))

    # Losses

    def _lose(self, entry: Entry, error: Exception) -> None:
        """Gives up a message that cannot be read, with all that cannot for the same reason.

        What a reader has is left out: it may come to its target.
        """
        lost: Counter[bytes] = Counter()
        for each in self._lost_with(entry, error):
            queue = self.holdings.queues.get(each.queue)
            claim = Claim(each.place, each.queue, each.octets)
            if queue is None or each.place in self._taken or not self.holdings.forwarded(claim):
                continue
            self._stirred.add(each.queue)
            lost[queue.address] += 1
        if lost:
            self.lost += lost.total()
            reason = error.strerror if isinstance(error, OSError) else error
            words = lost_in(segment_of(entry.place), lost.total())
            self.losses.append(f"{words}{of_addresses(lost)}: {reason}")
            self._may_remove = self.wants_head = True

    def _lost_with(self, entry: Entry, error: Exception) -> list[Entry]:
        """Returns a message that cannot be read, and others of its block or file, if it is that."""
        number = segment_of(entry.place)
        index = self._indexes.get(number)
        if index is None or isinstance(error, RecordError):
            return [entry]
        if isinstance(error, OSError):
            return list(index.entries(BEGINNING))
        try:
            self._reader.block(number, entry.block)
        except (BlockError, OSError):
            return [each for each in index.entries(BEGINNING) if each.block == entry.block]
        return [entry]  # another block, with a part of it

    def _lose_some(self, segment: StoredSegment, index: SegmentIndex) -> None:
        """Gives up messages of a segment that are not found in it any more."""
        missing = segment.stored - len(index)
        places = [entry.place for entry in index.entries(BEGINNING)]
        found_gone = sum(segment.is_gone(position_of(place)) for place in places)
        lost = missing - (segment.gone - found_gone)
        segment.stored, segment.gone = len(index), found_gone
        self._keep_index(index)
        if lost > 0:
            self.lost += lost
            self._lacks.append(lost_in(segment.number, lost))
        self.holdings.cloud()
        self._may_remove = self.wants_head = True
        self._count_anew()

    def _count_anew(self) -> None:
        """Counts the messages of all queues by reading all segments, which may find more lost.

        If one cannot be read, that is done when it can; the counts stay as they are until then.
        """
        self._must_count = True
        if self._is_counting:
            return
        self._is_counting = True
        lost = Counter[bytes]() if self.unreadable else self._count_all()
        self._is_counting = False
        if self._lacks:
            self.losses.append("; ".join(self._lacks) + of_addresses(lost))
            self._lacks.clear()

    def _count_all(self) -> Counter[bytes]:
        """Counts all messages; returns how many fewer there are than before, by address."""
        holdings = self.holdings
        before = holdings.counts()
        holdings.clear_counts()
        for segment in holdings.segments.values():
            index = self._index(segment)
            if index is None:
                holdings.restore_counts(before)
                return Counter()
            for entry in index.entries(BEGINNING):
                queue = holdings.queues.get(entry.queue)
                if queue is not None and not self._is_gone(entry):
                    holdings.count(queue, entry.place, entry.octets)
        self._must_count = False
        fewer: Counter[bytes] = Counter()
        for key, (messages, _) in before[0].items():
            queue = holdings.queues[key]
            fewer[queue.address] += messages - queue.messages
        return +fewer

    # What the disk does not give

    def waiting_in(self, number: int) -> int:
        """Returns how many messages of a segment are not gone."""
        segment = self.holdings.segments.get(number)
        return 0 if segment is None else segment.stored - segment.gone

    def unreadable_words(self) -> str:
        """Says what the disk does not give, for people; empty: it gives everything."""
        numbers = [*self.unreadable]
        if not numbers:
            return ""
        count = sum(map(self.waiting_in, numbers))
        others = f" and {len(numbers) - 1:,} more" if len(numbers) > 1 else ""
        first, reason = segment_name(numbers[0]), self.unreadable.reason(numbers[0])
        return f"{first}{others}: {reason}; {count:,} messages wait for it"

    def look_again(self, now_ns: int) -> None:
        """Tries segments that could not be read, when their pauses have ended."""
        found = self.unreadable.look_again(now_ns)
        if not found:
            return
        before = Place(max(BEGINNING, place_of(min(found), 0) - 1))
        for route in self.holdings.routes.values():  # what stands there was left out
            route.swept, route.first = min(route.swept, before), min(route.first, before)
        queues = self.holdings.queues.values()
        self._stirred |= {each.key for each in queues}
        self._dropped |= {each.key: None for each in queues if each.condemned != BEGINNING}
        if self._must_count:
            self._count_anew()
