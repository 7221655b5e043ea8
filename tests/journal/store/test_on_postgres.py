"""The message store on PostgreSQL: what is durable, what is fenced, and what is read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.journal.block import Origin
from router.journal.protocol import Health
from router.journal.segment import SegmentScan, Tail, segment_name
from router.journal.store.log import StoreLog
from tests.support.journal import START_NS
from tests.support.storages import ROUTER, Postgres, store_under_test
from tests.support.stored import Custodian, claims, numbers

pytestmark = pytest.mark.processes
FOLDER = Path("messages")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Postgres]:
    with store_under_test("postgres", tmp_path) as store:
        assert isinstance(store, Postgres)
        yield store


def leading(database: Postgres, holder: str = "here") -> Any:
    """Takes the lease, and lets others have it at once; gives the log that has it."""
    log: Any = database.new_log(incarnation=START_NS + database.lives, holder=holder)
    log.open(START_NS)
    database.kill(log)
    return log


def disk_of(database: Postgres, epoch: int) -> Any:
    from router.journal.postgres.disk import PostgresDisk

    return PostgresDisk(database.url, ROUTER, epoch)


def custodian(database: Postgres, epoch: int, *, life: int = 0) -> Custodian:
    found = Custodian(disk_of(database, epoch), life=life)
    found.open()
    return found


def numbers_of(found: Custodian) -> list[int]:
    """Takes all messages from the store, oldest first; gives their numbers."""
    return numbers(found.read())


def test_what_is_durable_is_there_for_whoever_leads_next(database: Postgres) -> None:
    first = custodian(database, leading(database).epoch)
    for number in range(100):
        first.put(number)
        assert first.commit()
    assert first.log.number > 2, "it has several segments"
    second = custodian(database, leading(database, "there").epoch, life=1)
    assert numbers_of(second) == list(range(100))


def test_a_store_that_was_taken_over_inserts_and_removes_nothing(database: Postgres) -> None:
    from router.journal.postgres.log import FencedError

    first = custodian(database, leading(database).epoch)
    first.put(1)
    assert first.commit()
    second = custodian(database, leading(database, "there").epoch, life=1)
    first.put(2)
    with pytest.raises(FencedError):
        first.commit()
    with pytest.raises(FencedError):
        first.log._disk.remove(FOLDER / segment_name(1))
    assert numbers_of(second) == [1]
    third = custodian(database, leading(database, "here").epoch, life=2)
    assert numbers_of(third) == [1]


def test_segments_are_dropped_when_all_in_them_is_forwarded(database: Postgres) -> None:
    first = custodian(database, leading(database).epoch)
    for number in range(100):
        first.put(number)
        first.commit()
    before = len(disk_of(database, 0).names(FOLDER))
    first.forward(claims(first.read(90)))
    assert first.commit()
    first.put(100)
    assert first.commit()
    assert first.store.remove_done()
    assert len(disk_of(database, 0).names(FOLDER)) < before
    second = custodian(database, leading(database, "there").epoch, life=1)
    assert numbers_of(second) == list(range(90, 101))


def test_a_flush_that_was_not_answered_is_neither_lost_nor_doubled(database: Postgres) -> None:
    """The log gives the segment up; what was committed all the same is dropped as a repeat."""
    first = custodian(database, leading(database).epoch)
    first.put(1)
    assert first.commit()
    disk: Any = first.log._disk
    insert = disk._insert

    def unanswered(*arguments: Any) -> None:
        insert(*arguments)
        raise OSError("the connection was lost")

    disk._insert = unanswered
    first.put(2)
    assert not first.commit()
    assert first.log.health is Health.IO_ERROR
    disk._insert = insert
    first.now_ns += 2_000_000_000
    assert first.commit()
    second = custodian(database, leading(database, "there").epoch, life=1)
    assert numbers_of(second) == [1, 2]


def test_while_the_database_is_away_it_waits_and_goes_on_then(database: Postgres) -> None:
    from router.journal.postgres.storage import connect

    first = custodian(database, leading(database).epoch)
    first.put(1)
    assert first.commit()
    with connect(database.url) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    first.put(2)
    first.commit()
    first.now_ns += 2_000_000_000
    assert first.commit()
    assert first.log.health is Health.WRITING
    assert numbers_of(first) == [1, 2]


@pytest.mark.parametrize("octets", [1000, 70_000, 3_000_000])
def test_parts_of_segments_are_read_where_they_are(database: Postgres, octets: int) -> None:
    from router.journal.postgres import disk as room

    disk, path = disk_of(database, leading(database).epoch), FOLDER / segment_name(7)
    content = bytes(range(256)) * (octets // 100)
    file = disk.create(path)
    for first in range(0, len(content), max(7, len(content) // 5)):
        disk.write(file, content[first : first + max(7, len(content) // 5)], first)
        disk.flush(file)
    assert disk.read(path) == content
    assert disk.octets(path) == len(content)
    for first in (0, 1, len(content) // 2, len(content) - 5, room.WINDOW_OCTETS - 3):
        assert disk.read_part(path, first, 20) == content[first : first + 20]
    for missing in (disk.read, lambda each: disk.read_part(each, 0, 1)):
        with pytest.raises(FileNotFoundError):
            missing(FOLDER / segment_name(8))


def test_a_log_that_ends_leaves_its_segment_sealed_and_without_zeros(database: Postgres) -> None:
    disk = disk_of(database, leading(database).epoch)
    log = StoreLog(FOLDER, ROUTER, disk=disk, incarnation=START_NS)
    log.open(START_NS)
    log.admit(Origin(1, 1), 1)
    assert log.close(START_NS)
    scan = SegmentScan(disk.read(FOLDER / segment_name(1)))
    assert len(list(scan.blocks())) > 1
    assert (scan.tail, scan.torn_octets) == (Tail.SEALED, 0)
