"""Facts that the head of each segment repeats: the sequence of each origin, and the live links."""

import contextlib
from collections.abc import Mapping

from router.journal.block import Block, Origin
from router.journal.keys import LinkKey
from router.journal.record import RecordError, RecordFlag, RecordKind, heap_strings
from router.journal.segment import LinkRow, mark_of_row


class LatestFacts:
    """Collects these facts from the blocks that are written.

    Attributes:
        marks: next sequence number of each origin.
        durable: the same of what is durable; the log says when that is more.
        links: by incoming and outgoing link key, one of which is 0.
    """

    def __init__(self) -> None:
        self.marks: dict[Origin, int] = {}
        self.durable: dict[Origin, int] = {}
        self.links: dict[tuple[int, int], LinkRow] = {}

    def admit(self, origin: Origin, first_sequence: int) -> None:
        """Admits ``origin`` in place of its worker's other lives; see ``Log.admit``."""
        for other in [other for other in self.marks if other.worker == origin.worker]:
            if other != origin:
                del self.marks[other]
        self.marks[origin] = max(self.marks.get(origin, 1), first_sequence)
        self.durable = {
            known: sequence for known, sequence in self.durable.items() if known in self.marks
        }
        self.durable[origin] = self.marks[origin]

    def flushed(self, marks: Mapping[Origin, int] | None = None) -> None:
        """Records that blocks are durable.

        Args:
            marks: what ``marks`` was when the last one was learned of; None: all are durable.
        """
        for origin, following in (self.marks if marks is None else marks).items():
            if origin in self.marks:
                self.durable[origin] = max(following, self.durable.get(origin, 1))

    def has_pending(self, worker: int) -> bool:
        """Returns whether records of a worker, of any of its lives, are not durable yet."""
        return any(
            self.durable.get(origin, 1) < following
            for origin, following in self.marks.items()
            if origin.worker == worker
        )

    def learn(self, block: Block) -> None:
        """Records the changes of ``block``."""
        if block.is_own:
            for row in block.unpacked_rows():
                if row[0] == RecordKind.MARK:
                    origin, next_sequence = mark_of_row(row)
                    self.marks[origin] = next_sequence
        else:
            self.marks[block.origin] = block.last_sequence + 1
        if block.may_define:
            self._learn_links(block)

    def _learn_links(self, block: Block) -> None:
        for row in block.unpacked_rows():
            incoming, outgoing = LinkKey(row[8]), LinkKey(row[9])
            if row[0] == RecordKind.LINK_ATTACHED:
                with contextlib.suppress(RecordError):
                    self.links[incoming, outgoing] = LinkRow(
                        time_ns=row[6],
                        incoming=incoming,
                        outgoing=outgoing,
                        body=heap_strings(row, block.heap)[2],
                        flags=row[4] & RecordFlag.ROUTER,
                    )
            elif row[0] == RecordKind.LINK_EXPIRED:
                self.links.pop((incoming, outgoing), None)
