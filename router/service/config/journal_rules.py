"""Rules about the journal's store."""

import importlib.util
from collections.abc import Iterator

from router.journal.postgres.url import why_unusable
from router.service.config.problems import Problem
from router.service.config.process import OldSegments, Router


def journal_problems(router: Router) -> Iterator[Problem]:
    """Yields what forbids that the journal is kept where the file says."""
    journal = router.journal
    if "store" in journal.where.broken:
        return
    if journal.store is None:
        if journal.standby:
            problem = "standby: no other machine can read a journal in files"
            advice = "set store to a PostgreSQL database"
            yield Problem(journal.where.of("standby"), f"{problem}; {advice}")
        return
    if (reason := why_unusable(journal.store.reveal())) is not None:
        yield Problem(journal.where.of("store"), f"store: {reason}")
    if importlib.util.find_spec("psycopg") is None:
        problem = "store: PostgreSQL needs the extra router[postgres]"
        advice = "pip install '.[postgres]' in the folder of the source"
        yield Problem(journal.where.of("store"), f"{problem}: {advice}")
    if journal.old_segments is OldSegments.KEEP:
        problem = "old_segments: segments on PostgreSQL are not kept for the pipeline"
        advice = "set router.compaction, which gets them as files"
        yield Problem(journal.where.of("old_segments"), f"{problem}; {advice}")
    if journal.standby and "id" not in router.where.keys:
        problem = "standby: both routers must have the same router.id, and here it is the host's"
        yield Problem(journal.where.of("standby"), f"{problem} name; set it")
