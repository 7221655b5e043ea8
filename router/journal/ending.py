"""Where the last segment of a log ended when its process was stopped: the file ``ended``.

What a kill or a crash leaves may end in a torn tail, of which nobody was told that it is durable.
After an orderly end nothing is torn: whatever is missing then had been durable. The file names the
last segment with records that was closed in order; it stays true, for nobody writes to that again.

    segment, octets of it that are durable, messages that it held: 16 digits each

Messages are those of a message store; a journal says 0.
"""

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from router.journal.disk import Disk
from router.journal.segment import END_OCTETS, Damage, SegmentScan, Tail
from router.journal.segment_file import write_note

NAME: Final = "ended"


class Ending(NamedTuple):
    """Where a segment ended.

    Attributes:
        segment: its number; 0: none is known.
        octets: of it, without its seal.
        messages: of a message store that it held, gone or not.
    """

    segment: int = 0
    octets: int = 0
    messages: int = 0

    def cut(self, scan: SegmentScan) -> Damage | None:
        """Returns what is missing at the end of this segment, whose blocks were read; or None."""
        end = scan.end - (END_OCTETS if scan.tail is Tail.SEALED else 0)
        return Damage(end, self.octets - end) if end < self.octets else None


NO_ENDING: Final = Ending()
"""Nothing was closed in order, as far as known."""


def write_ending(disk: Disk, directory: Path, ending: Ending) -> None:
    """Records where a segment ended, as far as the disk allows."""
    with contextlib.suppress(OSError):
        write_note(disk, directory / NAME, b"%016d %016d %016d\n" % ending)


def read_ending(disk: Disk, directory: Path) -> Ending:
    """Reads where a segment ended; none if that is not known."""
    with contextlib.suppress(OSError, ValueError):
        segment, octets, messages = map(int, disk.read(directory / NAME).split())
        return Ending(segment, octets, messages)
    return NO_ENDING
