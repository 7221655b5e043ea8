"""Reading ``format("amqp")``: as a stream, exactly once, and as a bounded batch.

With ``minPartitions`` tasks read by links of their own (``parallel``). A stream has one otherwise:
Spark's runner process holds the connection and the log (``wal``); what follows is in this order:

    latestOffset    takes what has come, makes it durable in the log, tells the last number
    partitions      names the segments between two offsets
    read            in an executor: maps the segments into memory, hands them over as they are
    commit(end)     notes it in the log, then accepts everything up to ``end`` with the peer

Spark commits a batch only when it plans the next one. So when nothing new comes and something is
not committed yet, ``latestOffset`` gives the same position with another ``beat``: Spark makes an
empty batch of it, and commits (the *settle tick*).
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from router.links.attaches import LifeCount
from router.model.identity import LinkName
from router.pipeline.amqp.holding import HoldingLink
from router.pipeline.amqp.messages import to_batch
from router.pipeline.amqp.numbers import DurableCount
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.parallel import (
    LinkShare,
    has_links,
    read_share,
    share_of,
    sweep_old_files,
)
from router.pipeline.amqp.wal import Log, LogError, read_arrow
from router.pipeline.schema import MESSAGES, arrow_schema
from router.pipeline.store import LocalStore, local_path, open_store
from router.routes.route import Guarantee

if TYPE_CHECKING:
    from router.pipeline.amqp.dialogue import Dialogue

POLL_SECONDS: Final = 0.1
"""How long ``latestOffset`` waits for something to come; Spark asks again at once."""

SETTLE_SECONDS: Final = 5.0
"""How long to wait for the peer to settle the last outcomes; the next run sends the rest again."""

GATHER_SECONDS: Final = 0.02
"""How long to wait after the first delivery for more in the same batch."""


LOOK_SECONDS: Final = 0.01
"""How often a batch read checks for more deliveries."""


class Rows(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """Rows that travel with the plan, as an Arrow IPC stream: no file is needed."""

    def __init__(self, octets: bytes) -> None:
        super().__init__(len(octets))
        self.octets = octets


class Slice(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """Rows of one file: those with a sequence number above ``after`` and up to ``last``."""

    def __init__(self, path: str, after: int, last: int) -> None:
        super().__init__(path)
        self.path = path
        self.after = after
        self.last = last


def read_slice(partition: InputPartition) -> Iterator[Any]:
    """Yields the rows of a slice as record batches; in an executor.

    Without slices Spark reads an empty partition of its own.
    """
    if not isinstance(partition, Slice):
        return
    table = read_arrow(Path(partition.path))
    first = table.column("sequence")[0].as_py()
    begin = max(0, partition.after + 1 - first)
    part = table.slice(begin, partition.last - first + 1 - begin)
    yield from part.cast(arrow_schema(MESSAGES)).to_batches()


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One streaming query's reader; Spark makes several, and one of them receives."""

    def __init__(self, options: Options) -> None:
        self._options = options
        options.log  # noqa: B018  it must have been given
        self._log: Log | None = None
        self._link: HoldingLink | None = None
        self._dialogue: Dialogue | None = None
        self._is_bounded = False
        self._is_drained = False
        self._through = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"])  # type: ignore[misc]

    # --- Spark's calls ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Returns the position before the first delivery."""
        return {"wal": self._opened().id, "seq": 0, "beat": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Returns the limit of a batch."""
        return ReadMaxRows(self._options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Makes the query end when the address is empty."""
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Receives deliveries, makes them durable, and returns the last position.

        Raises:
            PeerError: the peer cannot be reached or cannot give the guarantee.
            LogError: log and checkpoint do not match.
        """
        log, link = self._received()
        self._check(start)
        seq: int = start["seq"]
        known = self._last_within(seq, self._most(limit))
        if known > seq:
            return {**start, "seq": known}
        patience = self._options.idle_seconds if self._is_bounded else POLL_SECONDS
        if not self._is_drained and link.wait(patience):
            time.sleep(GATHER_SECONDS)
            last = log.last
            taken = link.take(self._most(limit), self._options.most_octets, last + 1)
            segment = log.append(to_batch(taken, self._options.address, last + 1))
            self._wake()
            return {**start, "seq": segment.last}
        self._dialogue_checked()
        self._is_drained = self._is_bounded
        if seq > log.committed:
            return {**start, "beat": start.get("beat", 0) + 1}
        log.clean()  # the peer may have settled since the last commit
        return start

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Returns the latest position available; it appears in the query's progress."""
        log, link = self._log, self._link
        if log is None or link is None:
            return {"seq": self._opened().last}
        return {
            "seq": log.last,
            "waiting": link.waiting,
            "uncommitted": log.last - log.committed,
            "unsettled": link.unsettled,
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Slice]:
        """Names the segments between two positions.

        Raises:
            LogError: some of them no longer exist.
        """
        self._check(start)
        return self._slices(start["seq"], end["seq"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Returns rows."""
        return read_slice(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Accepts everything up to ``end`` with the peer."""
        log, link = self._received()
        log.commit(end["seq"])
        link.accept(end["seq"])
        self._wake()
        if self._is_bounded:  # this process may be ended as soon as the last batch is committed
            until = time.monotonic() + SETTLE_SECONDS
            while link.settling and link.failure is None and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
        log.clean()

    def stop(self) -> None:
        """Drops the connection; the link is suspended, to be resumed."""
        if self._dialogue is not None:
            self._dialogue.leave()
        if self._log is not None:
            self._log.close()
        self._log = self._link = self._dialogue = None

    # --- inside -----------------------------------------------------------------------------------

    def _opened(self) -> Log:
        if self._log is None:
            self._log = Log.open(self._options.log, self._options.address)
        return self._log

    def _received(self) -> tuple[Log, HoldingLink]:
        """Returns the log and the attached link; attaches it on first use."""
        log = self._opened()
        if self._link is None:
            log.lock()
            self._link, self._dialogue = open_link(self._options, log)
        self._dialogue_checked()
        return log, self._link

    def _dialogue_checked(self) -> None:
        if self._dialogue is not None:
            self._dialogue.check()

    def _wake(self) -> None:
        if self._dialogue is not None:
            self._dialogue.wake()

    def _check(self, start: dict[str, Any]) -> None:
        log = self._opened()
        if start["wal"] != log.id:
            raise LogError(f"{log.directory} is not the log that this checkpoint was made with")
        if start["seq"] < log.committed and not self._options.loses:
            raise LogError(
                f"the checkpoint is at {start['seq']}, and {log.directory} has forgotten all up to"
                f" {log.committed}; failOnDataLoss=false goes on from there"
            )

    def _most(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.most_rows

    def _last_within(self, after: int, most: int) -> int:
        """Returns the last number of whole segments after a position, ``most`` rows if possible."""
        last = after
        for segment in self._opened().segments():
            if segment.last > after and (last == after or segment.last - after <= most):
                last = segment.last
        return last

    def _slices(self, after: int, last: int) -> list[Slice]:
        slices: list[Slice] = []
        reached = after
        for segment in self._opened().segments():
            begin, end = max(after, segment.first - 1), min(last, segment.last)
            if begin >= end:
                continue
            if begin > reached and not self._options.loses:
                break
            reached = end
            step = -(-(end - begin) // self._options.partitions)
            slices += [
                Slice(str(segment.path), at, min(at + step, end)) for at in range(begin, end, step)
            ]
        if reached < last and not self._options.loses:
            raise LogError(f"rows {reached + 1} to {last} are not in {self._options.log} any more")
        return slices


def has_one_link(options: Options) -> bool:
    """Returns whether a stream is read by one link on the driver, not by one in each task.

    A ``walDir`` stays what its first reader made it.
    """
    path = local_path(options.place_of_log)
    if path is None:
        return False
    if (path / "wal.json").exists():
        return True
    return options.partitions == 1 and not has_links(LocalStore(path))


def link_of(options: Options, log: Log) -> HoldingLink:
    """Makes the link of a log, with the state in the log."""
    link = HoldingLink(
        name=LinkName(f"spark-{log.id}"),
        address=options.address,
        guarantee=options.guarantee,
        window=options.most_rows,
        link_seconds=options.link_seconds,
        dedupe=options.dedupe,
        draw_number=DurableCount(LocalStore(log.directory)).draw,
        on_forgotten=log.forget,
    )
    link.remember(log.kept())
    if options.dedupe:
        log.buries = True
        link.recognize(log.known_ids(), log.committed)
    return link


def open_link(options: Options, log: Log) -> tuple[HoldingLink, "Dialogue"]:
    """Attaches the link of a log, or resumes it; returns when the peer has answered.

    Raises:
        PeerError: the peer cannot be reached, or cannot give the guarantee.
    """
    from router.pipeline.amqp.dialogue import Dialogue  # noqa: PLC0415  not in executors

    link = link_of(options, log)
    dialogue = Dialogue(link, options, container=link.name)
    until = time.monotonic() + options.dial_seconds
    while not link.was_attached:
        dialogue.check()
        if time.monotonic() > until:
            dialogue.end()
            dialogue.check()
            break
        link.news.wait(POLL_SECONDS)
    dialogue.check()
    return link, dialogue


def _await(is_so: Callable[[], bool], dialogue: "Dialogue", seconds: float) -> None:
    """Waits for the peer's answer, with a time limit."""
    dialogue.wake()
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        dialogue.check()
        time.sleep(LOOK_SECONDS)


class AmqpBatchReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed here
    """A bounded read of the available deliveries, up to ``maxDeliveriesPerTrigger``.

    ``browse`` releases everything, and its rows travel with the plan. ``consume`` accepts rows
    once they are durable in ``walDir/reads``, for tasks that are run again; these files go when a
    later read finds them a day old.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Receives, or plans a link for each task."""
        if self._options.mode == "browse":
            return self._browse()
        sweep_old_files(open_store(_reads(self._options).place_of_log))
        name, links = f"read-{uuid.uuid4().hex}", self._options.partitions
        return [
            LinkShare(
                batch=0,
                link=link,
                links=links,
                id=name,
                epoch=time.time_ns(),
                rows=share_of(self._options.most_rows, link, links),
                stays=False,
            )
            for link in range(min(links, self._options.most_rows))
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Returns rows; without any Spark reads an empty partition of its own."""
        if isinstance(partition, LinkShare):
            yield from read_share(_reads(self._options), partition)
        elif isinstance(partition, Rows):
            with pa.ipc.open_stream(partition.octets) as batches:
                yield from batches

    def _browse(self) -> Sequence[Rows]:
        """Receives over one link, and releases everything."""
        from router.pipeline.amqp.dialogue import Dialogue  # noqa: PLC0415  not in executors

        options = self._options
        name = LinkName(f"spark-read-{uuid.uuid4().hex}")
        link = HoldingLink(
            name=name,
            address=options.address,
            guarantee=options.guarantee if options.names_guarantee else Guarantee.AT_LEAST_ONCE,
            window=options.most_rows,
            gives_back=True,
            most=options.most_rows,
            draw_number=LifeCount(time.time_ns()).draw,
        )
        dialogue = Dialogue(link, options, container=name)
        try:
            while not link.was_attached:
                dialogue.check()
                link.news.wait(POLL_SECONDS)
            before, until = 0, time.monotonic() + options.idle_seconds
            while link.waiting < options.most_rows and time.monotonic() < until:
                if link.waiting > before:
                    before, until = link.waiting, time.monotonic() + options.idle_seconds
                time.sleep(LOOK_SECONDS)
                dialogue.check()
            link.drain()
            _await(lambda: link.is_drained, dialogue, options.dial_seconds)
            taken = link.take(options.most_rows, options.most_octets, 1)
            link.give_rest_back()
            link.accept(len(taken))  # that is: releases, because the link gives back
            _await(lambda: not link.unsettled, dialogue, options.dial_seconds)
        finally:
            dialogue.end()
        if not taken:
            return []
        batch = to_batch(taken, options.address, 1)
        step = -(-len(taken) // options.partitions)
        return [Rows(_stream_of(batch.slice(begin, step))) for begin in range(0, len(taken), step)]


def _reads(options: Options) -> Options:
    """Returns the options with the directory of batch reads as ``walDir``."""
    return attrs.evolve(options, store=f"{options.place_of_log.rstrip('/')}/reads")


def _stream_of(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets
