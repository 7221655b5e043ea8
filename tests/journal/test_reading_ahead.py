"""A standby reads ahead what the leader writes, and a worker is answered from that."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.journal.postgres.lease import URL_VARIABLE
from router.journal.postgres.remote import RemoteStorage
from router.journal.segment import SegmentScan, segment_name
from tests.journal.test_postgres_log import ONE, write
from tests.support.journal import START_NS, new_writer
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


def content(storage: Any) -> dict[str, bytes]:
    """Returns what it has, without what is another each time; closes it."""
    found = {}
    for name in sorted(storage.names()):
        blocks = [block for _, block in SegmentScan(storage.read(name)).blocks()]
        if name != max(storage.names()):
            blocks.pop()  # its end, which says when it was read
        found[name] = b"".join(bytes(block.rows) + bytes(block.heap) for block in blocks)
    storage.close()
    return found


def ahead_of(store: Postgres) -> Any:
    storage: Any = store.storage()
    storage.read_ahead()
    return storage


def test_what_was_read_ahead_is_what_is_read_then(store: Postgres) -> None:
    log, writer = written(store, range(50))
    ahead = ahead_of(store)
    for first in range(50, 400, 50):  # over several segments
        write(log, writer, range(first, first + 50))
        commit(log)
        ahead.read_ahead()
    write(log, writer, range(400, 450))
    commit(log)
    found = content(ahead)
    assert len(found) > 1
    assert found == content(store.storage())
    store.kill(log)


def test_rows_that_were_read_ahead_are_not_read_again(store: Postgres) -> None:
    log, _ = written(store, range(50))
    ahead = ahead_of(store)
    with ahead._use() as connection:
        connection.execute("UPDATE router_journal.blocks SET octets = '' WHERE segment = 1")
    assert len(ahead.read(segment_name(1))) > 1000
    ahead.close()
    store.kill(log)


def test_what_was_read_ahead_is_forgotten_with_the_connection(store: Postgres) -> None:
    """Another server may not have it: its commit may not have reached that."""
    from router.journal.postgres.storage import StoreError, connect

    log, _ = written(store, range(50))
    ahead = ahead_of(store)
    with ahead._use() as connection:
        process = connection.info.backend_pid
    with connect(store.url) as other:
        other.execute("DELETE FROM router_journal.blocks WHERE commit > 0")
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (process,))
    with pytest.raises(StoreError):
        ahead.names()
    assert content(ahead) == content(store.storage())
    store.kill(log)


def test_a_segment_that_was_let_go_of_is_forgotten(store: Postgres) -> None:
    log, writer = written(store, range(50))
    for first in range(50, 400, 50):
        write(log, writer, range(first, first + 50))
        commit(log)
    ahead = ahead_of(store)
    store.storage().let_go(1, None)
    ahead.read_ahead()
    assert segment_name(1) not in ahead._ahead
    with pytest.raises(FileNotFoundError):
        ahead.read(segment_name(1))
    store.kill(log)


def test_what_is_read_is_of_the_server_on_which_the_lease_was_taken(store: Postgres) -> None:
    from router.journal.postgres.storage import StoreError

    log, _ = written(store, range(5))
    ahead = ahead_of(store)
    ahead.follow(log.epoch)
    with pytest.raises(StoreError, match="epoch"):
        ahead.follow(log.epoch + 1)
    assert ahead._ahead is not None
    store.kill(log)


def test_the_process_that_reads_serves_workers_before_and_after_a_while(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from router.journal.postgres.readers import Readers

    monkeypatch.setenv(URL_VARIABLE, store.url)
    log, _ = written(store, range(50))
    readers = Readers(ROUTER)
    readers.prepare()
    found = []
    for worker in (1, 2):
        ours, theirs = socket.socketpair()
        remote = _handed_over(readers, ours, theirs, log.epoch, worker)
        assert remote.epoch() == log.epoch
        found.append(content(remote))
        if worker == 1:  # one that has ended is replaced
            readers._processes[-1].kill()
            readers._processes[-1].wait()
        remote.close()
    readers.close()
    readers._processes[-1].wait(30)
    assert found == [content(store.storage())] * 2
    store.kill(log)


def _handed_over(
    readers: Any, ours: socket.socket, theirs: socket.socket, epoch: int, worker: int
) -> RemoteStorage:
    """Connects a worker as the journal's process does, which reads its question first."""
    from router.journal.block import Origin
    from router.journal.postgres.remote import question_block

    with theirs:
        descriptor = os.dup(theirs.fileno())
        readers.hand_over(descriptor, epoch)
        os.close(descriptor)
    question = question_block(ROUTER, Origin(worker, 1))

    class Asked(socket.socket):
        """Keeps the question, which the journal's process has read, from the one that answers."""

        def sendall(self, octets: Any, *flags: int) -> None:
            if octets != question:
                super().sendall(octets, *flags)

    return RemoteStorage(Asked(fileno=ours.detach()), ROUTER, worker, title="the store")
