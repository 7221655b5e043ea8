"""Moves a journal from files to PostgreSQL and back, while its router does not run.

    1  lock the state directory, and take the lease: no router writes either store
    2  replay the store that is left, and keep a snapshot of that in the other, which must be empty
    3  make the store that is left unusable: rename its directory, or drop its partitions

What routes with ``in: journal`` have stored moves before that, in the same steps: segment by
segment, octet for octet.

While it is in files, the row of the lease says so, and where (``lease.MOVED``): no router begins
another one in the database.

After a crash between two steps both stores hold the same; the next run finds that out and goes on
with the third. A router refuses to start with the store that is not the journal's (``elsewhere``).
"""

import fcntl
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.disk import Disk
from router.journal.files import FileStorage
from router.journal.postgres.disk import PostgresDisk
from router.journal.postgres.lease import MOVED, LeaseFile
from router.journal.postgres.log import RENEW_SECONDS, PostgresLog
from router.journal.postgres.mark import Mark
from router.journal.postgres.schema import LEASE_SECONDS
from router.journal.postgres.storage import PostgresStorage
from router.journal.postgres.url import shown
from router.journal.reclaim import snapshot_octets
from router.journal.replay import Replayed, replay_from
from router.journal.segment import (
    NEWEST_NAME,
    SegmentScan,
    newest_octets,
    numbered,
    segment_name,
)
from router.journal.segment_file import write_all
from router.journal.storage import Storage
from router.service.config import RouterConfig
from router.service.elsewhere import (
    begin_return,
    end_return,
    held_in,
    marks_of,
    note_copied,
    place_of,
    put_aside,
    was_copied,
)
from router.service.journal import Store, journal_directory, stores_on_postgres

_LOOK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 1.0
"""How long after its end a lease that nobody renews has been seen to end, at the latest."""


class MoveError(RouterError):
    """The journal cannot be moved now."""


def move_to_postgres(config: RouterConfig, url: str, now_ns: int) -> int:
    """Moves a journal from files to PostgreSQL; returns how many deliveries are unsettled.

    Raises:
        MoveError: the router runs, or both stores hold a journal.
        OSError: a store cannot be used.
    """
    directory, messages = journal_directory(config), Store.MESSAGES.directory(config)
    with _locked(config):
        files = FileStorage(directory)
        has_journal = directory.is_dir() and bool(_held(files))
        has_messages = stores_on_postgres(config) and messages.is_dir()
        if not has_journal and not has_messages:
            raise MoveError(f"there is no journal in {directory}")
        replayed = replay_from(files) if has_journal else Replayed()
        numbers = replayed.memory.numbers
        least = 0 if numbers is None else numbers.epoch + 1
        with _leased(config, url, max(now_ns, least)) as (storage, lease):
            if has_messages:
                _copy_messages(messages, Disk(), lease.disk)
                lease.check()
                _put_aside(messages, url, now_ns)
            if has_journal:
                _hand_over(replayed, files, storage, now_ns)
                lease.check()
                storage.note_place(lease.epoch, f"move {now_ns}", lease.place)
                _put_aside(directory, url, now_ns)
    return len(replayed.memory.deliveries)


def _put_aside(directory: Path, url: str, now_ns: int) -> None:
    put_aside(directory, shown(url), now_ns)
    Disk().sync_directory(directory.parent)


def move_to_files(config: RouterConfig, url: str, now_ns: int) -> int:
    """Moves a journal from PostgreSQL to files; returns how many deliveries are unsettled.

    Raises:
        MoveError: the router runs, or both stores hold a journal.
        OSError: a store cannot be used.
    """
    directory, messages = journal_directory(config), Store.MESSAGES.directory(config)
    mark = Mark(config.router.state, config.router.id)
    with _locked(config), _leased(config, url, now_ns, mark) as (storage, lease):
        stored = lease.disk.names(messages)
        if not _held(storage) and not stored:
            return _end_return(config, storage, url)
        if _held(storage):
            begin_return(directory, shown(url), now_ns)
        if stored:
            begin_return(messages, shown(url), now_ns)
        Disk().sync_directory(directory.parent)
        if stored:
            is_again = was_copied(messages, stored)
            _copy_messages(messages, lease.disk, Disk(), is_again=is_again)
            lease.check()
            note_copied(messages, stored)
            for name in stored:
                lease.disk.remove(messages / name)
        replayed = Replayed()
        if _held(storage):
            Disk().make_directory(directory)
            files = FileStorage(directory)
            if not (_held(files) and was_copied(directory, storage.names())):
                number = _hand_over(replay_from(storage), storage, files, now_ns)
                (directory / NEWEST_NAME).write_bytes(newest_octets(number))
                note_copied(directory, storage.names())
            replayed = replay_from(files)
            lease.check()
            storage.note_place(lease.epoch, MOVED, lease.place)
            _forget(storage)
        _take_marks_away(config)
    return len(replayed.memory.deliveries)


def _end_return(config: RouterConfig, storage: PostgresStorage, url: str) -> int:
    """Ends a move to files that has left nothing in the database but did not take the marks away.

    Raises:
        MoveError: there is none, or it was from another database.
    """
    directories = journal_directory(config), Store.MESSAGES.directory(config)
    marks = [each for directory in directories for each in marks_of(directory)]
    places = {place for each in marks if (place := place_of(each)) is not None}
    if elsewhere := places - {shown(url)}:
        went = ", ".join(sorted(elsewhere))
        raise MoveError(f"there is no journal in the database; it was moved to {went}")
    if not marks or not all(held_in(each) for each in directories if marks_of(each)):
        raise MoveError("there is no journal in the database")
    directory = journal_directory(config)
    replayed = replay_from(FileStorage(directory)) if held_in(directory) else Replayed()
    storage.forget_newest()
    _take_marks_away(config)
    return len(replayed.memory.deliveries)


def _take_marks_away(config: RouterConfig) -> None:
    Mark(config.router.state, config.router.id).forget()
    end_return(Store.MESSAGES.directory(config))  # all may have been forwarded
    if held_in(journal_directory(config)):
        end_return(journal_directory(config))
    Disk().sync_directory(config.router.state)


def _forget(storage: PostgresStorage) -> None:
    """Removes a journal that was moved."""
    for name in storage.names():
        for segment in numbered([name], "segment"):
            storage.let_go(segment, None)
        for snapshot in numbered([name], "snapshot"):
            storage.drop_snapshot(snapshot)
    storage.forget_newest()


def _copy_messages(directory: Path, old: Disk, new: Disk, *, is_again: bool = False) -> None:
    """Copies the segments of the message store; what an earlier try has copied stays.

    Args:
        directory: of the message store.
        old: holds them.
        new: is to hold them.
        is_again: an earlier try has copied all of them, and removed some.

    Raises:
        MoveError: both stores hold messages.
    """
    new.make_directory(directory)
    there = set(new.names(directory))
    for number in numbered(old.names(directory), "segment"):
        path = directory / segment_name(number)
        octets = _whole_blocks(old.read(path))
        if octets and path.name not in there:
            _write_segment(new, path, octets)
        elif octets and _whole_blocks(new.read(path)) != octets:
            raise MoveError(f"both stores hold messages, and {path.name} differs")
        there.discard(path.name)
    if numbered(there, "segment") and not is_again:
        raise MoveError("both stores hold messages; one of them must be empty")


def _whole_blocks(octets: bytes) -> bytes:
    """Returns a segment without its torn tail, and the zeros that were written ahead."""
    scan = SegmentScan(octets)
    for _ in scan.blocks():
        pass
    return octets[: scan.end]


def _write_segment(disk: Disk, path: Path, octets: bytes) -> None:
    """Writes a segment, which is there as a whole or not."""
    unfinished = path if isinstance(disk, PostgresDisk) else path.with_suffix(".unfinished")
    if unfinished != path:
        unfinished.unlink(missing_ok=True)
    file = disk.create(unfinished)
    try:
        write_all(disk, file, octets, 0)
        disk.flush(file)
    finally:
        disk.close(file)
    if unfinished != path:
        disk.rename(unfinished, path)
        disk.sync_directory(path.parent)


def _held(storage: Storage) -> list[int]:
    names = storage.names()
    return [*numbered(names, "segment"), *numbered(names, "snapshot")]


def _hand_over(replayed: Replayed, old: Storage, new: Storage, now_ns: int) -> int:
    """Keeps in ``new`` what ``old`` replays to; returns the number of the snapshot."""
    if replayed.gaps:
        raise MoveError(f"it is damaged: {'; '.join(replayed.gaps)}")
    number = max(_held(old))
    there = _held(new)
    if there:
        if numbered(new.names(), "segment") or not _is_same(replayed, replay_from(new)):
            raise MoveError("both stores hold a journal; one of them must be empty")
        return max(there)
    new.keep_snapshot(number, snapshot_octets(replayed, number, now_ns))
    if not _is_same(replayed, replay_from(new)):
        raise MoveError("the copy differs; nothing was removed")
    return number


def _is_same(one: Replayed, other: Replayed) -> bool:
    return (
        one.memory.deliveries == other.memory.deliveries
        and one.memory.links == other.memory.links
        and one.memory.numbers == other.memory.numbers
        and one.follower.expected == other.follower.expected
    )


@contextmanager
def _locked(config: RouterConfig) -> Iterator[None]:
    """Keeps the router from starting."""
    path: Path = Store.JOURNAL.lock(config)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise MoveError(f"the router runs: {error.strerror}") from error
    finally:
        os.close(lock)


@contextmanager
def _leased(
    config: RouterConfig, url: str, now_ns: int, mark: Mark | None = None
) -> Iterator[tuple[PostgresStorage, "_Renewing"]]:
    """Keeps other routers from leading, for as long as this takes.

    Args:
        config: of the router.
        url: of the database.
        now_ns: the epoch is no less.
        mark: what the database must have; None: the journal is in files.
    """
    storage = PostgresStorage(url, config.router.id)
    path = config.router.state / f"moving-{os.getpid()}.lease"
    lease = LeaseFile(path)
    place = f"{platform.node()}, {config.router.state.absolute()}"
    known = storage.leader()  # what it says of files holds until the move has ended
    holder, known_place = f"move {now_ns}", place
    if known.holder == MOVED:
        holder, known_place = MOVED, known.place
    log = PostgresLog(
        *(url, config.router.id),
        incarnation=now_ns,
        holder=holder,
        place=known_place,
        lease=lease,
        mark=mark,
    )
    try:
        _take(log, storage, now_ns)
        disk = PostgresDisk(url, config.router.id, log.epoch)
        with _renewing(log, _Renewing(disk, log.epoch, place)) as renewing:
            yield storage, renewing
        disk.disconnect()
    finally:
        log.release()
        storage.close()
        path.unlink(missing_ok=True)


def _take(log: PostgresLog, storage: PostgresStorage, now_ns: int) -> None:
    """Takes the lease, if need be when that of a router which renews it no more has expired.

    Raises:
        MoveError: a router leads.
        OSError: the database cannot be used.
    """
    seen, ends_at = storage.leader(), time.monotonic() + LEASE_SECONDS + _LATE_SECONDS
    while True:
        try:
            log.take(now_ns)
        except BlockingIOError:
            leader = storage.leader()
            is_renewed = (leader.epoch, leader.renewed) != (seen.epoch, seen.renewed)
            if is_renewed or time.monotonic() >= ends_at:
                raise MoveError(f"the router runs: {leader}") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return


@attrs.define
class _Renewing:
    """A lease that a thread renews.

    Attributes:
        disk: the messages that are there under this lease.
        epoch: of the lease.
        place: of the files.
    """

    disk: PostgresDisk
    epoch: int
    place: str
    is_lost: bool = False

    def check(self) -> None:
        """Checks that nobody else has led meanwhile.

        Raises:
            MoveError: somebody may have.
        """
        if self.is_lost:
            raise MoveError("the lease was lost meanwhile; nothing was removed")


@contextmanager
def _renewing(log: PostgresLog, renewing: _Renewing) -> Iterator[_Renewing]:
    """Renews a lease until the end of the block."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW_SECONDS):
            try:
                renewing.is_lost |= not log.renew_now()
            except OSError:
                renewing.is_lost = True

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield renewing
    finally:
        ended.set()
        thread.join()
