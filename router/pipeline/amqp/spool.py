"""The durable spool of a writer: a batch is sent when it is complete, each message once.

    walDir/sink.json               who this spool belongs to
           lock                    held by whoever sends
           attaches.json           numbers of the link's attaches (``numbers``)
           <uuid>.spool            messages of one task's attempt (Arrow, one column)
           batch.json              which spools make up the batch that is being sent
           round-B-R.json          which messages of batch B are sent in round R
           sent-B-R                what the link has done: how far it has sent, which are settled
           done.json               the last batch of which every message was accepted

A batch that is written again after a crash comes with other spools: they are dropped, those that
``batch.json`` names are the batch. So it does not matter whether the rows came in the same order.
What was sent and not settled when the writer died is found again by resuming the link with the
unsettled map that ``sent-B-R`` gives (§2.6.13). What a receiver gives back goes in another round.
When a batch is done no other has begun: whatever spools are left are of attempts that died.
"""

import contextlib
import fcntl
import json
import os
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
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
from router.pipeline.amqp.wal import LOCK_SECONDS, LogError, read_arrow, write_arrow, write_json

SCHEMA: Final = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
ROUND_SECONDS: Final = 0.2
"""Pause before released messages are sent again."""

_ENTRY: Final = struct.Struct(">BQ")
_SENT: Final = 1
_SETTLED: Final = 2


class SpoolError(RouterError):
    """A batch cannot be sent with the requested guarantee."""


def write_spool(directory: Path, payloads: Iterator[bytes]) -> tuple[str, int]:
    """Makes the messages of one task durable; returns the spool's name and their number."""
    directory.mkdir(parents=True, exist_ok=True)
    name, count = f"{uuid.uuid4().hex}.spool", 0
    batches = []
    for run in _runs(payloads):
        batches.append(pa.RecordBatch.from_arrays([pa.array(run, pa.binary())], schema=SCHEMA))
        count += len(run)
    if count:
        write_arrow(directory / name, batches)
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
    """The progress of one round, in a file that survives the process.

    Attributes:
        sent: numbers below this were handed to the connection, or may have been.
        settled: numbers of those that are settled.
    """

    def __init__(self, path: Path) -> None:
        self.sent = 0
        self.settled: set[int] = set()
        with contextlib.suppress(FileNotFoundError):
            octets = path.read_bytes()
            whole = len(octets) - len(octets) % _ENTRY.size
            for what, number in _ENTRY.iter_unpack(octets[:whole]):
                if what == _SENT:
                    self.sent = max(self.sent, number)
                else:
                    self.settled.add(number)
            if whole < len(octets):
                os.truncate(path, whole)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note_sent(self, number: int) -> None:
        """Records, before sending, that the peer may have the numbers below this one."""
        if number > self.sent:
            os.write(self._file, _ENTRY.pack(_SENT, number))
            self.sent = number

    def note_settled(self, numbers: Sequence[int]) -> None:
        """Records that these are settled, before the peer is told so."""
        os.write(self._file, b"".join(_ENTRY.pack(_SETTLED, number) for number in numbers))
        self.settled.update(numbers)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


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
    """The messages of a round, by number, from memory-mapped files."""

    def __init__(self, directory: Path, spools: Sequence[tuple[str, int]], chosen: Any) -> None:
        """Maps the files.

        Args:
            directory: of the spools.
            spools: name and count of each.
            chosen: places of the messages among all of the batch's; None: all.
        """
        self._column = pa.chunked_array(
            [
                chunk
                for name, count in spools
                if count
                for chunk in read_arrow(directory / name).column("payload").chunks
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


@attrs.define(eq=False)
class Publisher:
    """Sends batches from a directory."""

    options: Options
    directory: Path
    id: str = attrs.field(init=False)
    _lock: int = attrs.field(default=-1, init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "sink.json"
        with contextlib.suppress(FileExistsError):
            noted = {"id": uuid.uuid4().hex, "address": self.options.address}
            write_json(path, noted, is_first=True)
        noted = json.loads(path.read_bytes())
        if noted["address"] != self.options.address:
            raise LogError(f"{self.directory} is the spool of another address")
        self.id = noted["id"]

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
        self._take_lock()
        try:
            done = self._read("done.json")
            if done is not None and done["query"] == query and batch <= done["batch"]:
                self.drop(name for name, _ in spools)
                return
            manifest = self._read("batch.json")
            if manifest is not None and manifest != done and not self._is_ours(manifest, query):
                raise SpoolError(
                    f"{self.directory} has an unfinished batch of another query; finish that one,"
                    " or remove the directory"
                )
            if manifest is None or manifest["query"] != query or manifest["batch"] != batch:
                self._sweep("sent-*", "round-*")  # a batch of this number may have been before
                manifest = {"query": query, "batch": batch, "spools": [list(s) for s in spools]}
                write_json(self.directory / "batch.json", manifest)
            else:
                kept = {name for name, _ in manifest["spools"]}
                self.drop(name for name, _ in spools if name not in kept)
            self._send(batch, [(name, count) for name, count in manifest["spools"]])
            write_json(self.directory / "done.json", manifest)
            self._sweep("sent-*", "round-*", "*.spool", ".*.spool.*")
        finally:
            os.close(self._lock)

    def drop(self, names: Iterator[str]) -> None:
        """Removes spools that are not, or no longer, part of a batch."""
        manifest, done = self._read("batch.json"), self._read("done.json")
        needed = set()
        if manifest is not None and manifest != done:
            needed = {name for name, _ in manifest["spools"]}
        for name in names:
            if name not in needed:
                (self.directory / name).unlink(missing_ok=True)

    def _sweep(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)

    @staticmethod
    def _is_ours(manifest: dict[str, Any], query: str) -> bool:
        return bool(manifest["query"] == query)

    def _read(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.directory / name).read_bytes())
            return found
        return None

    def _take_lock(self) -> None:
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LogError(f"{self.directory} is used by another query") from None
                time.sleep(0.05)
            else:
                return

    def _send(self, batch: int, spools: list[tuple[str, int]]) -> None:
        """Sends in rounds, until no message was released."""
        number, chosen = self._last_round(batch)
        until = time.monotonic() + self.options.dial_seconds
        while True:
            payloads = Payloads(self.directory, spools, chosen)
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
            write_json(self.directory / f"round-{batch}-{number}.json", {"places": chosen})

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
        progress = Progress(self.directory / f"sent-{batch}-{number}")
        try:
            link = PublishingLink(
                name=LinkName(f"spark-{self.id}"),
                address=self.options.address,
                supply=(payloads[each] for each in range(progress.sent, len(payloads))),
                guarantee=self.options.guarantee,
                progress=progress,
                draw_number=DurableCount(self.directory).draw,
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
