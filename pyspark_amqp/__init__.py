"""Lets Spark find ``format("amqp")`` by itself: it looks into modules named ``pyspark_*``.

Spark looks with the first ``python3`` on PATH. Where that is another Python than the one that runs
the job, as in an environment that is not activated, ``import pyspark_amqp`` before the session is
made has Spark use this one (``PYSPARK_PYTHON``, unless it is set).
"""

import os
import shutil
import sys
from pathlib import Path

from router.pipeline.amqp.datasource import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]


def _is_first() -> bool:
    """Returns whether ``python3`` on PATH is that of this environment."""
    found = shutil.which("python3")
    return found is not None and Path(found).parent == Path(sys.executable).parent


if not _is_first():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
