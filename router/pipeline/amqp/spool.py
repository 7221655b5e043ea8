"""The durable spool of a writer: a batch is sent when it is complete, each message once.

    walDir/sink.json               who this spool belongs to
           lock                    held by whoever sends
           attaches.json           numbers of the link's attaches (``numbers``)
           <uuid>.spool            messages of one task's attempt (Arrow, one column)
           batch.json              which spools make up the batch that is being sent
           round-B-R.json          which messages of batch B are sent in round R
           sent-B-R                what the link has done: how far it has sent, which are settled
           sent-B-R.N.<uuid>       the same on a shared store, a file for each entry
           owner                   on a shared store, in place of the lock: whoever sends
           done.json               the last batch of which every message was accepted

A batch that is written again after a crash comes with other spools: they are dropped, those that
``batch.json`` names are the batch. So it does not matter whether the rows came in the same order.
What was sent and not settled when the writer died is found again by resuming the link with the
unsettled map that ``sent-B-R`` gives (§2.6.13). What a receiver gives back goes in another round.
When a batch is done no other has begun: whatever spools are left are of attempts that died.

On a shared store there is no lock. A driver that was given up and still sends is fenced by the
number of its attach, which is smaller (``links.attaches``); its entries say no more than that
messages may have been sent, or are settled.
"""

import contextlib
import fcntl
import fnmatch
import json
import os
import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from router.errors import RouterError
from router.model.commands import Command
from router.model.events import Event, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkName
from router.model.outcome import Accepted, DeliveryState, Rejected
from router.net.client.sender import Outstanding, SendingLink
from router.net.client.terminus import lacks_durability
from router.pipeline.amqp.numbers import DurableCount
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.wal import LOCK_SECONDS, LogError, read_arrow, write_arrow
from router.pipeline.store import LocalStore, Store, open_store

SCHEMA: Final = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
ROUND_SECONDS: Final = 0.2
"""Pause before released messages are sent again."""

_ENTRY: Final = struct.Struct(">BQ")
_OWNER: Final = "owner"
_SENT: Final = 1
_SETTLED: Final = 2


class SpoolError(RouterError):
    """A batch cannot be sent with the requested guarantee."""


def write_spool(store: Store, payloads: Iterator[bytes]) -> tuple[str, int]:
    """Makes the messages of one task durable; returns the spool's name and their number."""
    name, count = f"{uuid.uuid4().hex}.spool", 0
    batches = []
    for run in _runs(payloads):
        batches.append(pa.RecordBatch.from_arrays([pa.array(run, pa.binary())], schema=SCHEMA))
        count += len(run)
    if isinstance(store, LocalStore):
        store.directory.mkdir(parents=True, exist_ok=True)
        if count:
            write_arrow(store.directory / name, batches)
    elif count:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
        store.write(name, sink.getvalue().to_pybytes())
    return name, count


def _runs(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    run: list[bytes] = []
    for payload in payloads:
        run.append(payload)
        if len(run) == _RUN:
            yield run
            run = []
    if run:
        yield run


_RUN: Final = 10_000


class Progress:
    """The progress of one round, which survives the process.

    Attributes:
        sent: numbers below this were handed to the connection, or may have been.
        settled: numbers of those that are settled.
    """

    def __init__(self, octets: bytes) -> None:
        """Reads the entries that are there."""
        self.sent = 0
        self.settled: set[int] = set()
        for what, number in _ENTRY.iter_unpack(octets[: len(octets) // _ENTRY.size * _ENTRY.size]):
            if what == _SENT:
                self.sent = max(self.sent, number)
            else:
                self.settled.add(number)

    def note_sent(self, number: int) -> None:
        """Records, before sending, that the peer may have the numbers below this one."""
        if number > self.sent:
            self._append(_ENTRY.pack(_SENT, number))
            self.sent = number

    def note_settled(self, numbers: Sequence[int]) -> None:
        """Records that these are settled, before the peer is told so."""
        self._append(b"".join(_ENTRY.pack(_SETTLED, number) for number in numbers))
        self.settled.update(numbers)

    def close(self) -> None:
        """Ends it in this process."""

    def _append(self, entries: bytes) -> None:
        raise NotImplementedError


class FileProgress(Progress):
    """Progress in a file of this machine."""

    def __init__(self, path: Path) -> None:
        octets = b""
        with contextlib.suppress(FileNotFoundError):
            octets = path.read_bytes()
            if len(octets) % _ENTRY.size:
                os.truncate(path, len(octets) - len(octets) % _ENTRY.size)
        super().__init__(octets)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _append(self, entries: bytes) -> None:
        os.write(self._file, entries)


class StoreProgress(Progress):
    """Progress on a store whose files cannot be appended to: a file for each time."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        names = [each for each in store.sizes() if each.startswith(f"{name}.")]
        super().__init__(b"".join(store.read(each) or b"" for each in names))
        self._next = len(names)

    def _append(self, entries: bytes) -> None:
        self._store.write(f"{self._name}.{self._next:08d}.{uuid.uuid4().hex}", entries)
        self._next += 1


def open_progress(store: Store, name: str) -> Progress:
    """Opens the progress of a round, or begins it."""
    if isinstance(store, LocalStore):
        return FileProgress(store.directory / name)
    return StoreProgress(store, name)


@attrs.define(eq=False, kw_only=True)
class PublishingLink(SendingLink):
    """A sending link that another process can resume.

    Attributes:
        progress: of the round.
        returned: numbers of the messages that were released.
        rejected: how many messages were rejected.
    """

    progress: Progress
    returned: list[int] = attrs.field(factory=list, init=False)
    rejected: int = attrs.field(default=0, init=False)
    _ended: list[int] = attrs.field(factory=list, init=False)

    def restore(self, payloads: "Payloads") -> None:
        """Continues where an earlier process stopped; call it before the first connection."""
        self._next = self.progress.sent
        for number in range(self.progress.sent):
            if number not in self.progress.settled:
                tag = DeliveryTag(number.to_bytes(4, "big"))
                payload = payloads[number]
                key = DeliveryNumber(number)
                self._unsettled[key] = Outstanding(key, tag, payload, is_sent=True)
                self._unsettled_octets += len(payload)
        self._was_attached = self.progress.sent > 0

    def handle(self, events: Sequence[Event]) -> list[Command]:
        """As ``SendingLink`` does; settlements are recorded before they are sent."""
        commands = SendingLink.handle(self, events)
        self._note()
        return commands

    def pull(self) -> list[Command]:
        """As ``SendingLink`` does; messages are recorded before they are sent."""
        commands = SendingLink.pull(self)
        self.progress.note_sent(self._next)
        self._note()
        return commands

    def _begin(self, event: LinkAttached) -> None:
        self.failure = lacks_durability(self._terms, event.target)
        if self.failure is None:
            SendingLink._begin(self, event)

    def _note(self) -> None:
        if self._ended:
            self.progress.note_settled(self._ended)
            self._ended = []

    def _settle(self, number: DeliveryNumber, state: DeliveryState | None) -> bool:
        if not SendingLink._settle(self, number, state):
            return False
        if isinstance(state, Rejected):
            self.rejected += 1
        elif not isinstance(state, Accepted):
            self.returned.append(int(number))
            return True  # it is settled only once the next round has it
        self._ended.append(int(number))
        return True


class Payloads:
    """The messages of a round, by number; files of this machine are memory-mapped."""

    def __init__(self, store: Store, spools: Sequence[tuple[str, int]], chosen: Any) -> None:
        """Opens the files.

        Args:
            store: of the spools.
            spools: name and count of each.
            chosen: places of the messages among all of the batch's; None: all.
        """
        self._column = pa.chunked_array(
            [
                chunk
                for name, count in spools
                if count
                for chunk in _read_spool(store, name).column("payload").chunks
            ],
            type=pa.binary(),
        )
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._column) if self._chosen is None else len(self._chosen)

    def __getitem__(self, number: int) -> bytes:
        place = number if self._chosen is None else self._chosen[number]
        payload: bytes = self._column[place].as_py()
        return payload

    def place_of(self, number: int) -> int:
        """Returns the place in the batch of a message of this round."""
        return number if self._chosen is None else int(self._chosen[number])


def _read_spool(store: Store, name: str) -> Any:
    if isinstance(store, LocalStore):
        return read_arrow(store.directory / name)
    octets = store.read(name)
    if octets is None:
        raise FileNotFoundError(name)
    return pa.ipc.open_file(octets).read_all()


@attrs.define(eq=False)
class Publisher:
    """Sends batches from a store.

    Attributes:
        place: of the store, for messages.
    """

    options: Options
    store: Store
    place: str
    id: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        noted = {"id": uuid.uuid4().hex, "address": self.options.address}
        if self._read("sink.json") is None:
            self.store.create("sink.json", json.dumps(noted).encode())
        noted = self._read("sink.json") or noted
        if noted["address"] != self.options.address:
            raise LogError(f"{self.place} is the spool of another address")
        self.id = noted["id"]

    @classmethod
    def at(cls, options: Options, place: str) -> "Publisher":
        """Opens a directory, by its path or URL."""
        return cls(options, open_store(place), place)

    def publish(self, query: str, batch: int, spools: Sequence[tuple[str, int]]) -> None:
        """Sends a batch; returns when every message was accepted.

        Args:
            query: id of the streaming query, which its checkpoint keeps.
            batch: number of the batch.
            spools: of its tasks.

        Raises:
            PeerError: the peer cannot be reached, or refuses.
            SpoolError: messages were rejected or are in doubt, or the spool is another query's.
        """
        with self._owned():
            done = self._read("done.json")
            if done is not None and done["query"] == query and batch <= done["batch"]:
                self.drop(name for name, _ in spools)
                return
            manifest = self._read("batch.json")
            if manifest is not None and manifest != done and not self._is_ours(manifest, query):
                raise SpoolError(
                    f"{self.place} has an unfinished batch of another query; finish that one,"
                    " or remove the directory"
                )
            if manifest is None or manifest["query"] != query or manifest["batch"] != batch:
                self._sweep("sent-*", "round-*")  # a batch of this number may have been before
                manifest = {"query": query, "batch": batch, "spools": [list(s) for s in spools]}
                self._write("batch.json", manifest)
            else:
                kept = {name for name, _ in manifest["spools"]}
                self.drop(name for name, _ in spools if name not in kept)
            self._send(batch, [(name, count) for name, count in manifest["spools"]])
            self._write("done.json", manifest)
            self._sweep("sent-*", "round-*", "*.spool")
            if isinstance(self.store, LocalStore):
                for path in self.store.directory.glob(".*.spool.*"):
                    path.unlink(missing_ok=True)

    def drop(self, names: Iterator[str]) -> None:
        """Removes spools that are not, or no longer, part of a batch."""
        manifest, done = self._read("batch.json"), self._read("done.json")
        needed = set()
        if manifest is not None and manifest != done:
            needed = {name for name, _ in manifest["spools"]}
        for name in names:
            if name not in needed:
                self.store.remove(name)

    def _sweep(self, *patterns: str) -> None:
        for name in self.store.sizes():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                self.store.remove(name)

    @staticmethod
    def _is_ours(manifest: dict[str, Any], query: str) -> bool:
        return bool(manifest["query"] == query)

    def _read(self, name: str) -> dict[str, Any] | None:
        octets = self.store.read(name)
        found: dict[str, Any] | None = None if octets is None else json.loads(octets)
        return found

    def _write(self, name: str, noted: Mapping[str, Any]) -> None:
        self.store.write(name, json.dumps(noted).encode())

    @contextlib.contextmanager
    def _owned(self) -> Iterator[None]:
        """Makes this the process that sends.

        Raises:
            LogError: another one is.
        """
        if isinstance(self.store, LocalStore):
            with _locked(self.store.directory):
                yield
            return
        token = uuid.uuid4().hex.encode()
        self.store.write(_OWNER, token)
        yield
        if self.store.read(_OWNER) != token:
            raise LogError(f"{self.place} is used by another query")

    def _send(self, batch: int, spools: list[tuple[str, int]]) -> None:
        """Sends in rounds, until no message was released."""
        number, chosen = self._last_round(batch)
        until = time.monotonic() + self.options.dial_seconds
        while True:
            payloads = Payloads(self.store, spools, chosen)
            returned = self._send_round(batch, number, payloads)
            if not returned:
                return
            if len(returned) < len(payloads):
                until = time.monotonic() + self.options.dial_seconds
            elif time.monotonic() > until:
                raise SpoolError(f"{self.options.address} gives {len(returned)} messages back")
            time.sleep(ROUND_SECONDS)
            chosen = [payloads.place_of(each) for each in returned]
            number += 1
            self._write(f"round-{batch}-{number}.json", {"places": chosen})

    def _last_round(self, batch: int) -> tuple[int, list[int] | None]:
        number, chosen = 0, None
        while (noted := self._read(f"round-{batch}-{number + 1}.json")) is not None:
            number, chosen = number + 1, noted["places"]
        return number, chosen

    def _send_round(self, batch: int, number: int, payloads: Payloads) -> list[int]:
        """Sends a round; returns the numbers of the messages to send again."""
        from router.pipeline.amqp.dialogue import Dialogue  # noqa: PLC0415  not in executors

        if not len(payloads):
            return []
        progress = open_progress(self.store, f"sent-{batch}-{number}")
        try:
            link = PublishingLink(
                name=LinkName(f"spark-{self.id}"),
                address=self.options.address,
                supply=(payloads[each] for each in range(progress.sent, len(payloads))),
                guarantee=self.options.guarantee,
                progress=progress,
                draw_number=DurableCount(self.store).draw,
            )
            link.restore(payloads)
            Dialogue(link, self.options, container=f"spark-{self.id}").wait_end()
            if link.rejected:
                raise SpoolError(f"{self.options.address}: {link.rejected} messages were rejected")
            settled = progress.settled
            left = [each for each in range(len(payloads)) if each not in settled]
            doubtful = len(left) - len(link.returned)
            if doubtful and not self.options.resends:
                raise SpoolError(
                    f"{self.options.address}: {doubtful} messages may have arrived or not: the peer"
                    " has forgotten the link; inDoubt=resend sends them again"
                )
            return left
        finally:
            progress.close()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the lock of a directory.

    Raises:
        LogError: another process holds it.
    """
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LogError(f"{directory} is used by another query") from None
                time.sleep(0.05)
            else:
                break
        yield
    finally:
        os.close(lock)
