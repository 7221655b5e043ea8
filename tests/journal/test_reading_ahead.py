"""A standby reads ahead what the leader writes, and a worker is answered from that."""

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.journal.ending import Ending
from router.journal.postgres.remote import RemoteStorage
from router.journal.record import RecordFlag
from router.journal.replay import replay_from
from router.journal.segment import snapshot_name
from tests.journal.test_postgres_log import ONE, write
from tests.support.journal import SOURCE, START_NS, TARGET, append, key, new_writer
from tests.support.storages import ROUTER, Postgres, commit, store_under_test

pytestmark = pytest.mark.processes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Postgres]:
    with store_under_test("postgres", tmp_path) as store:
        assert isinstance(store, Postgres)
        yield store


def written(store: Postgres, numbers: range) -> tuple[Any, Any]:
    log, writer = store.new_log(), new_writer()
    log.open(START_NS)
    log.admit(ONE, 1)
    write(log, writer, numbers)
    commit(log)
    return log, writer


def unsettled(storage: Any) -> tuple[Any, ...]:
    """Returns what a worker restores from a storage; closes it."""
    replayed = replay_from(storage)
    storage.close()
    memory = replayed.memory
    assert not replayed.gaps
    return memory.deliveries, memory.links, memory.numbers, dict(replayed.follower.expected)


def ahead_of(store: Postgres) -> Any:
    from router.journal.postgres.ahead import ReplayedAhead

    ahead = ReplayedAhead(store.storage())  # type: ignore[arg-type]
    ahead.advance()
    return ahead


@attrs.frozen
class Shown:
    """A storage that shows what was read ahead."""

    number: int
    octets: bytes

    def names(self) -> list[str]:
        return [snapshot_name(self.number)]

    def read(self, name: str) -> bytes:
        return self.octets

    def newest(self) -> int:
        return self.number

    def ended(self) -> Ending:
        return Ending()

    def close(self) -> None:
        """Does nothing."""


def write_lives(store: Postgres, count: int, each: Callable[[int], None] = lambda _: None) -> int:
    """Writes lives of deliveries, of which each ends elsewhere, over several segments.

    Args:
        store: the store.
        count: how many.
        each: called after each of them is durable, with the number of the segment.

    Returns:
        The number of the segment behind all of them.
    """
    log, writer = written(store, range(0))
    for number in range(count):
        now_ns, place = START_NS + number, (key(number), SOURCE)
        writer.received(now_ns, *place, b"tag-%d" % number, payload=b"x" * 100)
        if number % 5 > 0:
            writer.sent(now_ns, *place, TARGET, b"out-%d" % number)
        if number % 5 > 1:
            writer.outcome(now_ns, *place, TARGET, 0x24, flags=RecordFlag.SETTLED)
        if number % 5 > 2:
            writer.settled(now_ns, *place)
        append(log, writer)
        commit(log)
        each(log.number)
    store.kill(log)
    return int(log.number) + 1


def test_what_was_read_ahead_is_restored_like_what_is_read_then(store: Postgres) -> None:
    ahead, count = ahead_of(store), itertools.count()

    def each(segment: int) -> None:
        if next(count) % 30 == 7:
            ahead.advance()

    after = write_lives(store, 200, each)
    assert after > 3
    assert unsettled(Shown(*ahead.snapshot(after))) == unsettled(store.storage())


def test_rows_that_were_read_ahead_are_not_read_again(store: Postgres) -> None:
    after = write_lives(store, 50)
    ahead = ahead_of(store)
    before = unsettled(store.storage())
    with ahead._tail._storage._use() as connection:
        connection.execute("UPDATE router_journal.blocks SET octets = ''")
    assert unsettled(Shown(*ahead.snapshot(after))) == before


def test_what_was_read_ahead_is_forgotten_with_the_connection(store: Postgres) -> None:
    """Another server may not have it: its commit may not have reached that."""
    from router.journal.postgres.storage import StoreError, connect

    after = write_lives(store, 50)
    ahead = ahead_of(store)
    with ahead._tail._storage._use() as connection:
        process = connection.info.backend_pid
    with connect(store.url) as other:
        last = "(SELECT max(segment) FROM router_journal.blocks)"
        other.execute(f"DELETE FROM router_journal.blocks WHERE commit > 3 AND segment = {last}")
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (process,))
    with pytest.raises(StoreError):
        ahead.advance()
    assert unsettled(Shown(*ahead.snapshot(after))) == unsettled(store.storage())


def test_what_was_reclaimed_behind_its_back_is_begun_anew(store: Postgres) -> None:
    from router.journal.reclaim import reclaim_from

    ahead, seen, count = ahead_of(store), [], itertools.count()

    def each(segment: int) -> None:
        number = next(count)
        if number == 50:
            ahead.advance()
        if number == 150:
            through = reclaim_from(store.storage(), segment - 1, now_ns=START_NS).segments[-1]
            seen.extend([ahead._tail.number, through])
            ahead.advance()

    after = write_lives(store, 200, each)
    assert seen[0] < seen[1], "it has not read all of what was reclaimed"
    assert unsettled(Shown(*ahead.snapshot(after))) == unsettled(store.storage())


def test_with_something_missing_it_shows_nothing(store: Postgres) -> None:
    from router.journal.postgres.storage import connect

    after = write_lives(store, 50)
    with connect(store.url) as other:
        other.execute("DELETE FROM router_journal.blocks WHERE segment = 1 AND commit > 3")
    assert ahead_of(store).snapshot(after) is None


def test_what_is_read_is_of_the_server_on_which_the_lease_was_taken(store: Postgres) -> None:
    from router.journal.postgres.storage import StoreError

    log, _ = written(store, range(5))
    storage: Any = store.storage()
    storage.follow(log.epoch)
    with pytest.raises(StoreError, match="epoch"):
        storage.follow(log.epoch + 1)
    storage.close()
    store.kill(log)


def test_the_process_that_reads_serves_workers_before_and_after_a_while(
    store: Postgres,
) -> None:
    from router.journal.postgres.readers import Readers

    write_lives(store, 100)
    log: Any = store.new_log(holder="there")
    log.open(START_NS + 1)
    readers = Readers(store.url, ROUTER)
    readers.prepare()
    found = []
    for worker in (1, 2):
        ours, theirs = socket.socketpair()
        remote = _handed_over(readers, ours, theirs, log, worker)
        assert remote.epoch() == log.epoch
        found.append(unsettled(remote))
        if worker == 1:  # one that has ended is replaced
            readers._processes[-1].kill()
            readers._processes[-1].wait()
    readers.close()
    readers._processes[-1].wait(30)
    assert found == [unsettled(store.storage())] * 2
    store.kill(log)


def _handed_over(
    readers: Any, ours: socket.socket, theirs: socket.socket, log: Any, worker: int
) -> RemoteStorage:
    """Connects a worker as the journal's process does, which reads its question first."""
    from router.journal.block import Origin
    from router.journal.postgres.remote import question_block

    with theirs:
        descriptor = os.dup(theirs.fileno())
        readers.hand_over(descriptor, log.epoch, log.first)
        os.close(descriptor)
    question = question_block(ROUTER, Origin(worker, 1))

    class Asked(socket.socket):
        """Keeps the question, which the journal's process has read, from the one that answers."""

        def sendall(self, octets: Any, *flags: int) -> None:
            if octets != question:
                super().sendall(octets, *flags)

    return RemoteStorage(Asked(fileno=ours.detach()), ROUTER, worker, title="the store")
