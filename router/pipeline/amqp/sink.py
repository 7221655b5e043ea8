"""Writing ``format("amqp")``: tasks spool their rows, the commit of the batch sends them.

Nothing is sent before all tasks of a batch have ended, so a task that is tried again, or a batch
that is written again after a crash, sends nothing twice (``spool``). Spark may commit the same
batch again; what was sent then is known by (query, batch).
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from router.pipeline.amqp.messages import payloads_of
from router.pipeline.amqp.options import OptionError, Options
from router.pipeline.amqp.parallel import DAY_SECONDS
from router.pipeline.amqp.spool import Publisher, write_spool
from router.pipeline.store import open_store
from router.pipeline.tree import Tree

JOB: Final = "write-"
"""How the names of the folders of batch jobs begin."""

QUERY: Final = "sql.streaming.queryId"
"""Local property of Spark's tasks: the query id that the checkpoint keeps."""


class Spooled(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed here
    """One task's message to the commit."""

    def __init__(self, query: str, name: str, count: int) -> None:
        self.query = query
        self.name = name
        self.count = count


def _spool(place: str, batches: Iterator[Any], query: str) -> Spooled:
    token = uuid.uuid4().hex

    def payloads() -> Iterator[bytes]:
        place = 0
        for batch in batches:
            yield from payloads_of(batch, f"{token}-{place}")
            place += batch.num_rows

    name, count = write_spool(open_store(place), payloads())
    return Spooled(query, name, count)


def _given(messages: Sequence[Any]) -> list[tuple[str, int]]:
    return [(each.name, each.count) for each in messages if each is not None and each.count]


class AmqpStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """One streaming query's writer; Spark makes others for each batch."""

    def __init__(self, options: Options, given: Mapping[str, str]) -> None:
        self._options = options
        self._checkpoint = {k.lower(): v for k, v in given.items()}.get("checkpointlocation", "")
        options.place_of_log  # noqa: B018  it must have been given
        if not self._checkpoint:
            raise OptionError("option checkpointLocation is missing")

    def write(self, iterator: Iterator[Any]) -> Spooled:
        """Makes the rows of a task durable."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        return _spool(self._options.place_of_log, iterator, query or self._checkpoint)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Sends the batch."""
        spools = _given(messages)
        if spools:
            query = next(each.query for each in messages if each is not None)
            Publisher.at(self._options, self._options.place_of_log).publish(query, batchId, spools)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Drops what was spooled, unless it is being sent."""
        names = (name for name, _ in _given(messages))
        Publisher.at(self._options, self._options.place_of_log).drop(names)


class AmqpBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed here
    """The writer of one batch job; its folder in ``walDir`` goes when the job has ended."""

    def __init__(self, options: Options, given: Mapping[str, str]) -> None:
        self._options = options
        self._job = f"{JOB}{uuid.uuid4().hex}"
        sweep_old_jobs(Tree.open(options.place_of_log))

    def write(self, iterator: Iterator[Any]) -> Spooled:
        """Makes the rows of a task durable."""
        return _spool(self._place, iterator, self._job)

    def commit(self, messages: Sequence[Any]) -> None:
        """Sends everything."""
        try:
            Publisher.at(self._options, self._place).publish(self._job, 0, _given(messages))
        finally:
            self._remove()

    def abort(self, messages: Sequence[Any]) -> None:
        """Drops what was spooled."""
        self._remove()

    @property
    def _place(self) -> str:
        return f"{self._options.place_of_log.rstrip('/')}/{self._job}"

    def _remove(self) -> None:
        """Removes the job's folder, and ``walDir`` if nothing else is in it."""
        tree = Tree.open(self._options.place_of_log)
        tree.remove_folder(self._job)
        tree.leave()


def sweep_old_jobs(tree: Tree) -> None:
    """Removes the folders of jobs that died more than a day ago, by their latest change."""
    for name in tree.folders():
        if name.startswith(JOB) and time.time() - tree.changed_at(name) > DAY_SECONDS:
            tree.remove_folder(name)
