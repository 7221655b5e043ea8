"""The end of a log as a crash in the middle of a commit leaves it."""

import random
from pathlib import Path

from router.journal.segment import SegmentScan, Tail, numbered, segment_name


def tear(directory: Path, chance: random.Random) -> bool:
    """Writes a part of a block behind the last whole one of a log; returns whether it could.

    Nothing that was durable changes: what stands there is what nobody was told of yet.

    Args:
        directory: of the log, whose process has ended.
        chance: decides how much of the block there is, and what is missing of it.
    """
    found = numbered((each.name for each in directory.iterdir()), "segment")
    if not found:
        return False
    path = directory / segment_name(found[-1])
    scan = SegmentScan(path.read_bytes())
    blocks = [scan.octets[at : at + block.octets] for at, block in scan.blocks()]
    if scan.tail is not Tail.OPEN or len(blocks) < 2:
        return False
    torn = bytearray(chance.choice(blocks))
    kept = chance.randrange(1, len(torn))
    if chance.random() < 0.5:
        torn[kept:] = bytes(len(torn) - kept)  # pages come to the disk in any order
    else:
        torn[:kept] = bytes(kept)
    with path.open("r+b") as file:
        file.seek(scan.end)
        file.write(torn)
    return True
