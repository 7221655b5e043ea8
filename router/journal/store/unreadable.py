"""Segments of a message store that the disk does not give now, though their files are there.

    readable  --an error that may end-->  unreadable  --the whole file can be read, or is gone-->
                                                                                       readable

Messages of such a segment wait, and so does what stands behind them in their queues; nothing is
given up, for the disk may come back. After a pause the whole file is read, so that one sector that
stays bad does not have its segment come and go. With ``MOST`` of them the disk itself is at fault,
and segments that have not been read yet are not tried either.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from router.journal.disk import Disk
from router.journal.segment import segment_name
from router.journal.store.reading import MISSING

PAUSE_NS: Final = 1_000_000_000
"""Before a segment is looked at again; twice as long each time, up to ``PAUSE_MOST_NS``."""

PAUSE_MOST_NS: Final = 8_000_000_000
MOST: Final = 64


@attrs.define(eq=False)
class _Segment:
    reason: str
    due_ns: int = 0  # not known yet
    pause_ns: int = PAUSE_NS


class Unreadable:
    """The segments that cannot be read now."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        """Begins with none."""
        self._disk = disk
        self._directory = directory
        self._segments: dict[int, _Segment] = {}
        self._news: list[tuple[int, str | None]] = []
        self._pause_most_ns = PAUSE_MOST_NS if disk.has_files else PAUSE_NS

    def __contains__(self, number: int) -> bool:
        return number in self._segments

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._segments))

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_disk(self) -> bool:
        """Whether there are so many that no other segment is tried."""
        return len(self._segments) >= MOST

    def reason(self, number: int) -> str:
        """Returns why a segment cannot be read."""
        return self._segments[number].reason

    def note(self, number: int, error: OSError) -> None:
        """Records that a segment could not be read."""
        reason = os.strerror(error.errno) if error.errno else str(error)
        known = self._segments.get(number)
        if known is None:
            self._segments[number] = _Segment(reason)
        if known is None or known.reason != reason:
            self._segments[number].reason = reason
            self._news.append((number, reason))

    def forget(self, number: int) -> None:
        """Records that a segment is needed no more."""
        self._segments.pop(number, None)

    def take_news(self) -> list[tuple[int, str | None]]:
        """Returns, once, the segments that cannot be read, with the reason, or None: they can."""
        news, self._news = self._news, []
        return news

    @property
    def due_ns(self) -> int | None:
        """When ``look_again`` has something to do; None: never."""
        return min([each.due_ns for each in self._segments.values()], default=None)

    def look_again(self, now_ns: int) -> list[int]:
        """Tries the segments whose pauses have ended; returns those that can be read, or are gone.

        A pause is no longer if the clock was set back.
        """
        found = []
        for number, segment in list(self._segments.items()):
            if not segment.due_ns:
                segment.due_ns = now_ns + segment.pause_ns
            elif not now_ns < segment.due_ns <= now_ns + segment.pause_ns:
                if self._can_be_read(number):
                    del self._segments[number]
                    self._news.append((number, None))
                    found.append(number)
                    continue
                segment.pause_ns = min(2 * segment.pause_ns, self._pause_most_ns)
                segment.due_ns = now_ns + segment.pause_ns
        return found

    def _can_be_read(self, number: int) -> bool:
        try:
            self._disk.read(self._directory / segment_name(number))
        except MISSING:
            return True
        except OSError as error:
            self.note(number, error)
            return False
        return True
