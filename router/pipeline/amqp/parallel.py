"""Reads an address by several links at once, each in a task of its own, on any executor.

Spark's driver plans numbered batches; a task receives its share over its link, and makes it a file
before Spark sees a row of it. All state is whole files in ``walDir``, a path or a URL (``store``):

    walDir/links.json                    who this log belongs to: an id, the address, how many links
           owner.json                    epoch of the driver that plans batches now
           committed                     last batch that Spark has committed
           batch-0000000000000007-link-0003.arrow       what link 3 received in batch 7, or nothing

    plan batch n     Spark has committed all up to n - 1 (offsets/n was written after commits/n-1)
    task (n, link)   if its file exists: gives its rows, the same as ever
                     else: attaches link with the rows of its older files as unsettled map, all
                     accepted (§2.6.13); receives; creates the file; suspends the link; gives rows
    file goes        when the peer has settled all of its deliveries

So a delivery is accepted in the batch after its own. When nothing comes any more, that batch has no
rows. A task whose attempt died before the file was there has shown nothing to Spark: its deliveries
are not in the map, and come again. With at-least-once the peer is told ``accepted`` as soon as the
file is there, because it may give a suspended link's deliveries to others.

Two attempts of a task at the same time: the later one steals the link (§2.6.1), because its attach
number is greater (``links.attaches``): the epoch of the driver, then Spark's number of the attempt.
The file that was there first counts; on an object store the earlier attempt may overwrite it in the
moment between its last look at the link and its write, so speculation has to be off.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from router.links.attaches import AttachNumber, next_epoch
from router.model.identity import LinkName
from router.pipeline.amqp.holding import HoldingLink
from router.pipeline.amqp.messages import to_batch
from router.pipeline.amqp.options import OptionError, Options
from router.pipeline.amqp.wal import Kept, LogError
from router.pipeline.store import Store, open_store
from router.routes.route import Guarantee

if TYPE_CHECKING:
    from router.pipeline.amqp.dialogue import Dialogue

POLL_SECONDS: Final = 0.02
DAY_SECONDS: Final = 86_400.0
"""How long the files of batch reads are kept, for tasks that are run again."""

SETTLE_SECONDS: Final = 10.0
"""How long a task waits for the peer to settle; the next batch tells it again."""

ROWS_BITS: Final = 24
"""Bits of ``sequence`` for the row; above them the batch and the link."""

_NAME: Final = re.compile(r"batch-([0-9]{16})-link-([0-9]{4})\.arrow")
_LINKS, _OWNER, _COMMITTED = "links.json", "owner.json", "committed"
_ATTEMPT_BITS: Final = 16


def file_name(batch: int, link: int) -> str:
    """Returns the name of the file with what a link received in a batch."""
    return f"batch-{batch:016d}-link-{link:04d}.arrow"


class LinkShare(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """The share of one link in one batch.

    Attributes:
        link: number of the link, from 0.
        links: how many there are.
        id: of the log, or of the batch read.
        epoch: of the driver.
        rows: most deliveries to receive.
        stays: the link is suspended at the end, to be resumed by the next batch.
    """

    def __init__(
        self, *, batch: int, link: int, links: int, id: str, epoch: int, rows: int, stays: bool
    ) -> None:
        super().__init__((batch, link))
        self.batch = batch
        self.link = link
        self.links = links
        self.id = id
        self.epoch = epoch
        self.rows = rows
        self.stays = stays

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first row."""
        return ((self.batch * self.links + self.link) << ROWS_BITS) + 1

    @property
    def file(self) -> str:
        """Name of the file with the share."""
        if self.stays:
            return file_name(self.batch, self.link)
        return f"{self.id}-{self.link:04d}.arrow"


def has_links(store: Store) -> bool:
    """Returns whether the log in a directory is one of several links."""
    return store.read(_LINKS) is not None


class ParallelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a streaming query with several links; Spark's driver has one that plans."""

    def __init__(self, options: Options) -> None:
        if options.dedupe:
            raise OptionError("option dedupe needs one link: leave minPartitions out")
        self._options = options
        self._store = open_store(options.place_of_log)
        self._noted: dict[str, Any] | None = None
        self._epoch = 0
        self._is_bounded = False
        self._is_begun = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"])  # type: ignore[misc]

    # --- Spark's calls ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Returns the position before the first batch."""
        return {"wal": self._log()["id"], "batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Returns the limit of a batch."""
        return ReadMaxRows(self._options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Makes the query end when the address is empty."""
        self._is_bounded = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Plans the next batch: the tasks find out what there is.

        Raises:
            LogError: log and checkpoint do not match, or another query has taken the log over.
        """
        begun = self._check(start)
        self._own()
        if self._is_begun and not self._has_rows(begun):
            if self._is_bounded:
                return start
            time.sleep(self._options.idle_seconds)
        self._is_begun = True
        return {**start, "batch": begun + 1}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Returns how many files the log has; it appears in the query's progress."""
        files = [name for name in self._store.sizes() if _NAME.fullmatch(name)]
        return {"links": self._log()["links"], "files": len(files)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LinkShare]:
        """Returns one partition for each link.

        Raises:
            LogError: log and checkpoint do not match.
        """
        self._check(start)
        epoch, log = self._own(), self._log()
        links: int = log["links"]
        return [
            LinkShare(
                batch=end["batch"],
                link=link,
                links=links,
                id=log["id"],
                epoch=epoch,
                rows=max(1, share_of(self._options.most_rows, link, links)),
                stays=True,
            )
            for link in range(links)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Returns the rows of a share; in an executor."""
        if isinstance(partition, LinkShare):
            yield from read_share(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Records that Spark has committed a batch; its deliveries are accepted in the next one."""
        self._own()
        self._store.write(_COMMITTED, str(end["batch"]).encode())

    def stop(self) -> None:
        """Does nothing: no link is attached between batches."""

    # --- inside -----------------------------------------------------------------------------------

    def _log(self) -> dict[str, Any]:
        """Returns what ``links.json`` says; the first reader writes it.

        Raises:
            LogError: the log is that of another address.
        """
        if self._noted is None:
            noted = {
                "id": uuid.uuid4().hex,
                "address": self._options.address,
                "links": self._options.partitions,
            }
            octets = self._store.read(_LINKS)
            if octets is None:
                self._store.create(_LINKS, json.dumps(noted).encode())
                octets = self._store.read(_LINKS) or b"{}"
            noted = json.loads(octets)
            if noted["address"] != self._options.address:
                raise LogError(
                    f"{self._options.store} is the log of another address, {noted['address']}"
                )
            self._noted = noted
        return self._noted

    def _own(self) -> int:
        """Makes this the reader that plans; returns its epoch.

        Raises:
            LogError: another reader has become that since.
        """
        octets = self._store.read(_OWNER)
        last = None if octets is None else int(json.loads(octets)["epoch"])
        if self._epoch:
            if last != self._epoch:
                raise LogError(f"{self._options.store} is used by another query")
            return self._epoch
        self._epoch = next_epoch(last, time.time_ns())
        self._store.write(_OWNER, json.dumps({"epoch": self._epoch}).encode())
        return self._epoch

    def _check(self, start: dict[str, Any]) -> int:
        """Returns the batch that the next one follows."""
        log, begun = self._log(), int(start.get("batch", 0))
        if start["wal"] != log["id"]:
            raise LogError(
                f"{self._options.store} is not the log that this checkpoint was made with"
            )
        committed = int(self._store.read(_COMMITTED) or b"0")
        if begun < committed and not self._options.loses:
            raise LogError(
                f"the checkpoint is at batch {begun}, and {self._options.store} has forgotten all"
                f" up to {committed}; failOnDataLoss=false goes on from there"
            )
        return max(begun, committed)

    def _has_rows(self, batch: int) -> bool:
        names = {file_name(batch, link) for link in range(self._log()["links"])}
        return any(size for name, size in self._store.sizes().items() if name in names)


def share_of(rows: int, link: int, links: int) -> int:
    """Returns how many of a batch's rows a link may receive."""
    return min(rows // links + (link < rows % links), 1 << ROWS_BITS)


def sweep_old_files(store: Store) -> None:
    """Removes the files of batch reads that began more than a day ago, by their time."""
    for name, modified in store.times().items():
        if name.startswith("read-") and time.time() - modified > DAY_SECONDS:
            store.remove(name)


# --- in an executor -------------------------------------------------------------------------------


def read_share(options: Options, share: LinkShare) -> Iterator[Any]:
    """Yields the rows of a share: those of its file, or else what the link brings.

    Raises:
        PeerError: the peer cannot be reached, or cannot give the guarantee.
        LogError: another task has received this share, and its file has gone.
    """
    store = open_store(options.place_of_log)
    octets = store.read(share.file)
    if octets is None:
        octets = _receive(options, share, store)
    if octets:
        with pa.ipc.open_file(octets) as file:
            for index in range(file.num_record_batches):
                yield file.get_batch(index)


def _receive(options: Options, share: LinkShare, store: Store) -> bytes:
    """Receives a share and creates its file; returns the file's octets."""
    older = _older_files(store, share)
    name = share.file
    with _attached(options, share, store, older) as (link, dialogue):
        if older:
            _wait(lambda: not link.settling, dialogue, SETTLE_SECONDS)
            if not link.settling:
                for each in older:
                    store.remove(each)
        _gather(link, dialogue, share.rows, options)
        link.drain()
        _wait(lambda: link.is_drained, dialogue, options.dial_seconds)
        taken = link.take(share.rows, 1 << 62, share.first_sequence)
        octets = _encoded(to_batch(taken, options.address, share.first_sequence)) if taken else b""
        dialogue.check()
        if not store.create(name, octets):
            kept = store.read(name)
            if kept is None:
                raise LogError(f"{options.store}: {name} has gone, because a later batch has begun")
            return kept
        if not share.stays or options.guarantee is not Guarantee.EXACTLY_ONCE:
            link.accept(share.first_sequence + len(taken))
            _wait(lambda: not link.unsettled, dialogue, SETTLE_SECONDS)
        return octets


@contextmanager
def _attached(
    options: Options, share: LinkShare, store: Store, older: Sequence[str]
) -> Iterator[tuple[HoldingLink, "Dialogue"]]:
    """Attaches the link of a share, or resumes it; suspends or ends it in the end.

    Raises:
        PeerError: the peer cannot be reached, or cannot give the guarantee.
    """
    from router.pipeline.amqp.dialogue import Dialogue, PeerError  # noqa: PLC0415  a second of CPU

    link = HoldingLink(
        name=LinkName(f"spark-{share.id}-{share.link}"),
        address=options.address,
        guarantee=options.guarantee,
        window=share.rows,
        most=None if share.stays else share.rows,
        link_seconds=options.link_seconds,
        draw_number=_Numbers(share.epoch).draw,
    )
    link.remember(_kept(store, older))
    dialogue = Dialogue(link, options, container=link.name)
    try:
        _wait(lambda: link.was_attached, dialogue, options.dial_seconds)
        if not link.was_attached:
            raise PeerError(f"{options.address}: no answer to the attach")
        yield link, dialogue
    except BaseException:
        dialogue.leave()
        raise
    if share.stays and options.guarantee is Guarantee.EXACTLY_ONCE:
        dialogue.leave()
    else:
        dialogue.end()


@attrs.define
class _Numbers:
    """Numbers the attaches of one attempt of a task: later attempts have greater ones."""

    epoch: int
    _n: int = attrs.field(default=0, init=False)

    def draw(self) -> AttachNumber:
        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        self._n += 1
        return AttachNumber(self.epoch, (attempt << _ATTEMPT_BITS) + self._n)


def _older_files(store: Store, share: LinkShare) -> list[str]:
    """Returns the files of a link's earlier batches, oldest first; Spark has committed them."""
    found = []
    for name in store.sizes():
        match = _NAME.fullmatch(name)
        if match and share.stays and int(match[2]) == share.link and int(match[1]) < share.batch:
            found.append(name)
    return sorted(found)


def _kept(store: Store, names: Sequence[str]) -> Iterator[Kept]:
    """Yields the deliveries of files, as the unsettled map of their link has them."""
    for name in names:
        octets = store.read(name)
        if octets:
            table = pa.ipc.open_file(octets).read_all().select(["sequence", "tag"])
            for row in table.to_pylist():
                yield Kept(
                    sequence=row["sequence"], tag=row["tag"], is_committed=True, message_id=None
                )


def _gather(link: HoldingLink, dialogue: "Dialogue", rows: int, options: Options) -> None:
    """Waits until a share is full, or nothing has come for ``idleTimeoutMs``."""
    octets = options.most_octets // max(1, options.partitions)
    before, until = 0, time.monotonic() + options.idle_seconds
    while link.waiting < rows and link.report.octets < octets and time.monotonic() < until:
        if link.waiting > before:
            before, until = link.waiting, time.monotonic() + options.idle_seconds
        time.sleep(POLL_SECONDS)
        dialogue.check()


def _wait(is_so: Callable[[], bool], dialogue: "Dialogue", seconds: float) -> None:
    """Waits until something is so, with a time limit."""
    dialogue.wake()
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        dialogue.check()
        time.sleep(POLL_SECONDS)


def _encoded(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets
