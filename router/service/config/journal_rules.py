"""Rules about the journal's store."""

import importlib.util
from collections.abc import Iterator

from router.service.config.problems import Problem
from router.service.config.process import Journal, OldSegments


def journal_problems(journal: Journal) -> Iterator[Problem]:
    """Yields what forbids that the journal is kept on PostgreSQL."""
    if journal.store is None or "store" in journal.where.broken:
        return
    if importlib.util.find_spec("psycopg") is None:
        problem = "store: PostgreSQL needs the extra router[postgres]"
        advice = "pip install '.[postgres]' in the folder of the source"
        yield Problem(journal.where.of("store"), f"{problem}: {advice}")
    if journal.old_segments is OldSegments.KEEP:
        problem = "old_segments: segments on PostgreSQL are not kept for the pipeline"
        advice = "set router.compaction, which gets them as files"
        yield Problem(journal.where.of("old_segments"), f"{problem}; {advice}")
