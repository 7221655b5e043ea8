"""Names of the ledger's files: of one segment each, or merged from several (``merging``)."""

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final

MERGED: Final = "-merged.parquet"
"""Suffix of files that were made from others of the same day and router."""

OPEN: Final = "-open.parquet"
"""Suffix of files that may grow, and that another file replaces later."""

_NAME: Final = re.compile(r"([0-9]{16})-([0-9]{16})-([0-9a-f]{16})-merged\.parquet")
_SEGMENT: Final = re.compile(r"([0-9]{16})-[0-9a-f]{8}\.parquet")


def merged_name(segments: Sequence[str]) -> str:
    """Returns the name of a file with the records of segments, given by their names, sorted."""
    return f"{segments[0][:16]}-{segments[-1][:16]}-{_hash(segments)}{MERGED}"


def merged_before(files: Collection[str], seen: Collection[str]) -> set[str]:
    """Returns the merged files that have no record but those of files that were read before.

    Args:
        files: paths.
        seen: paths of the files that were read before.
    """
    folders: dict[str, list[str]] = {}
    for file in seen:
        folder, _, name = file.rpartition("/")
        if _SEGMENT.fullmatch(name):
            folders.setdefault(folder, []).append(name[: -len(".parquet")])
    found = set()
    for file in files:
        folder, _, name = file.rpartition("/")
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        parts = sorted(
            each for each in folders.get(folder, ()) if match[1] <= each[:16] <= match[2]
        )
        if parts and _hash(parts) == match[3]:
            found.add(file)
    return found


def _hash(segments: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(segments).encode()).hexdigest()[:16]
