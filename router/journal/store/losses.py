"""What a message store has lost or cannot read now, and the words for people."""

from collections import Counter

from router.journal.block import BlockError
from router.journal.record import RecordError
from router.journal.segment import segment_name
from router.journal.store.changes import Changes
from router.journal.store.holdings import Holdings
from router.journal.store.index import Entry, SegmentIndex
from router.journal.store.indexes import Indexes
from router.journal.store.order import Order
from router.journal.store.place import BEGINNING, position_of, segment_of
from router.journal.store.queues import Claim
from router.journal.store.segments import StoredSegment
from router.journal.store.taken import Taken

_ADDRESSES = 5  # that are named


def lost_in(segment: int, messages: int) -> str:
    """Says how many messages of a segment are lost."""
    are = "message of {} is lost" if messages == 1 else "messages of {} are lost"
    return f"{messages:,} {are.format(segment_name(segment))}"


def of_addresses(lost: Counter[bytes]) -> str:
    """Says whose messages are lost, to be put behind how many; nothing if that is not known.

    Args:
        lost: how many of each address, UTF-8.
    """
    named = lost.most_common(_ADDRESSES)
    words = [f"{address.decode(errors='replace')} ({count:,})" for address, count in named]
    others = len(lost) - len(named)
    if others:
        words.append(f"{others:,} others ({lost.total() - sum(count for _, count in named):,})")
    return f", of {', '.join(words)}" if words else ""


class Losses:
    """Gives up what cannot be read, and counts what is left.

    Attributes:
        told: what was lost, for people.
        lost: how many messages, as far as they could be counted.
        lacks: segments that lack messages, for people; their addresses are not known yet.
        must_count: the counts of queues and routes are out of date: a segment cannot be read now.
    """

    def __init__(
        self, holdings: Holdings, indexes: Indexes, order: Order, taken: Taken, changes: Changes
    ) -> None:
        """Shares what the store knows."""
        self.told: list[str] = []
        self.lost = 0
        self.lacks: list[str] = []
        self.must_count = False
        self._is_counting = False
        self._holdings = holdings
        self._indexes = indexes
        self._order = order
        self._taken = taken
        self._changes = changes

    def lose(self, entry: Entry, error: Exception) -> None:
        """Gives up a message that cannot be read, with all that cannot for the same reason.

        What a reader has is left out: it may come to its target.
        """
        lost: Counter[bytes] = Counter()
        for each in self._lost_with(entry, error):
            queue = self._holdings.queues.get(each.queue)
            claim = Claim(each.place, each.queue, each.octets)
            if queue is None or each.place in self._taken or not self._holdings.forwarded(claim):
                continue
            self._changes.stirred.add(each.queue)
            lost[queue.address] += 1
        if lost:
            self.lost += lost.total()
            reason = error.strerror if isinstance(error, OSError) else error
            words = lost_in(segment_of(entry.place), lost.total())
            self.told.append(f"{words}{of_addresses(lost)}: {reason}")
            self._changes.may_remove = self._changes.wants_head = True

    def _lost_with(self, entry: Entry, error: Exception) -> list[Entry]:
        """Returns a message that cannot be read, and others of its block or file, if it is that."""
        number = segment_of(entry.place)
        index = self._indexes.known(number)
        if index is None or isinstance(error, RecordError):
            return [entry]
        if isinstance(error, OSError):
            return list(index.entries(BEGINNING))
        try:
            self._indexes.reader.block(number, entry.block)
        except (BlockError, OSError):
            return [each for each in index.entries(BEGINNING) if each.block == entry.block]
        return [entry]  # another block, with a part of it

    def lose_some(self, segment: StoredSegment, index: SegmentIndex) -> None:
        """Gives up messages of a segment that are not found in it any more."""
        missing = segment.stored - len(index)
        places = [entry.place for entry in index.entries(BEGINNING)]
        found_gone = sum(segment.is_gone(position_of(place)) for place in places)
        lost = missing - (segment.gone - found_gone)
        segment.stored, segment.gone = len(index), found_gone
        self._indexes.keep(index)
        if lost > 0:
            self.lost += lost
            self.lacks.append(lost_in(segment.number, lost))
        self._holdings.cloud()
        self._changes.may_remove = self._changes.wants_head = True
        self.count_anew()

    def count_anew(self) -> None:
        """Counts the messages of all queues by reading all segments, which may find more lost.

        If one cannot be read, that is done when it can; the counts stay as they are until then.
        """
        self.must_count = True
        if self._is_counting:
            return
        self._is_counting = True
        lost = Counter[bytes]() if self._indexes.unreadable else self._count_all()
        self._is_counting = False
        if self.lacks:
            self.told.append("; ".join(self.lacks) + of_addresses(lost))
            self.lacks.clear()

    def _count_all(self) -> Counter[bytes]:
        """Counts all messages; returns how many fewer there are than before, by address."""
        holdings = self._holdings
        before = holdings.counts()
        holdings.clear_counts()
        for segment in holdings.segments.values():
            index = self._indexes.of(segment)
            if index is None:
                holdings.restore_counts(before)
                return Counter()
            for entry in index.entries(BEGINNING):
                queue = holdings.queues.get(entry.queue)
                if queue is not None and not self._order.is_gone(entry):
                    holdings.count(queue, entry.place, entry.octets)
        self.must_count = False
        fewer: Counter[bytes] = Counter()
        for key, (messages, _) in before[0].items():
            queue = holdings.queues[key]
            fewer[queue.address] += messages - queue.messages
        return +fewer

    def unreadable_words(self) -> str:
        """Says what the disk does not give, for people; empty: it gives everything."""
        numbers = [*self._indexes.unreadable]
        if not numbers:
            return ""
        count = sum(map(self._holdings.waiting_in, numbers))
        others = f" and {len(numbers) - 1:,} more" if len(numbers) > 1 else ""
        first, reason = segment_name(numbers[0]), self._indexes.unreadable.reason(numbers[0])
        return f"{first}{others}: {reason}; {count:,} messages wait for it"
