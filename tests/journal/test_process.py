import errno
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from router.journal.block import Origin, seal_block
from router.journal.client import ClientState
from router.journal.process import warn_of_another_name
from router.journal.protocol import REFUSED, REPLY, Health, Refusal, hello_block
from router.journal.record import ROW
from router.journal.replay import replay
from router.journal.segment import SegmentScan, Tail, numbered, segment_name
from tests.support.journal import SOURCE, START_NS, key, write_life
from tests.support.journal_process import (
    PATIENCE_SECONDS,
    JournalUnderTest,
    WorkerUnderTest,
    journal_under_test,
)

pytestmark = pytest.mark.processes

ONE = Origin(1, START_NS)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalUnderTest]:
    with journal_under_test(tmp_path) as under_test:
        yield under_test


def write_lives(worker: WorkerUnderTest, count: int) -> None:
    for number in range(count):
        write_life(worker.client.records, number)


def tails(journal: JournalUnderTest) -> list[Tail]:
    found = []
    for path in sorted(journal.directory.glob("*.segment")):
        scan = SegmentScan(path.read_bytes())
        assert list(scan.records())
        found.append(scan.tail)
    return found


# ------------------------------------------------------------------ durability


def test_what_is_called_durable_is_there_after_the_process_was_killed(
    journal: JournalUnderTest,
) -> None:
    journal.start()
    workers = [WorkerUnderTest(journal, number) for number in (1, 2, 3)]
    for worker in workers:
        worker.open()
    for worker in workers:
        write_lives(worker, 100)
        worker.client.records.received(START_NS, key(500), SOURCE, b"t", payload=b"held")
        worker.make_durable()
    journal.kill()
    read = replay(journal.directory)
    assert read.follower.expected == {Origin(number, START_NS): 402 for number in (1, 2, 3)}
    assert read.holes == []
    # all three speak of the same delivery on the same link: one memory, the last writer's
    assert [d.payload for d in read.memory.deliveries.values()] == [b"held"]


def test_a_process_killed_again_and_again_under_load_loses_and_repeats_nothing(
    journal: JournalUnderTest,
) -> None:
    """ToldIsDurable, KeptUntilDurable."""
    draw = random.Random(1)
    worker = WorkerUnderTest(journal)
    written = 0
    for life in range(6):
        process = journal.start("--segment-octets", "200000")
        worker.open()
        killer = threading.Timer(draw.uniform(0.05, 0.4), process.kill)
        killer.start()
        try:
            while True:
                for _ in range(draw.choice([1, 5, 50, 400])):
                    write_life(worker.client.records, written)
                    written += 1
                worker.send()
                worker.receive()
        except (EOFError, OSError):
            worker.lose()
        killer.join()
        journal.kill()
        durable = worker.client.durable_sequence
        assert durable > 100 * life
        read = replay(journal.directory)
        assert read.holes == []
        assert read.damage == []
        assert read.follower.expected[ONE] > durable
    journal.start()
    worker.open()
    worker.make_durable()
    worker.peer.close()
    assert journal.cut_lifeline() == 0
    read = replay(journal.directory)
    assert read.follower.expected == {ONE: 4 * written + 1}
    assert read.holes == []
    assert read.memory.deliveries == {}
    assert worker.client.lost_records == 0


def test_all_that_arrived_is_durable_when_the_supervisor_is_gone(
    journal: JournalUnderTest,
) -> None:
    journal.start()
    worker = WorkerUnderTest(journal)
    worker.open()
    write_lives(worker, 1000)
    worker.send()
    worker.peer.close()
    assert journal.cut_lifeline() == 0
    assert replay(journal.directory).follower.expected == {ONE: 4001}
    assert set(tails(journal)) == {Tail.SEALED}


def test_a_worker_may_hand_in_its_last_records_after_sigterm(journal: JournalUnderTest) -> None:
    process = journal.start()
    worker = WorkerUnderTest(journal)
    worker.open()
    process.send_signal(signal.SIGTERM)
    for _ in range(10):
        write_lives(worker, 10)
        worker.make_durable()
    worker.peer.close()
    assert process.wait(PATIENCE_SECONDS) == 0
    assert replay(journal.directory).follower.expected == {ONE: 401}


def test_it_does_not_wait_for_ever_for_a_worker_that_stays(journal: JournalUnderTest) -> None:
    journal.start("--grace-seconds", "0.1")
    worker = WorkerUnderTest(journal)
    worker.open()
    assert journal.terminate() == 0


def test_an_interrupt_from_the_terminal_is_the_supervisors_affair(
    journal: JournalUnderTest,
) -> None:
    process = journal.start()
    worker = WorkerUnderTest(journal)
    worker.open()
    process.send_signal(signal.SIGINT)
    write_lives(worker, 1)
    worker.make_durable()
    assert process.poll() is None


# ------------------------------------------------------------------ workers come and go


def test_a_successor_waits_until_its_predecessor_is_read_to_its_end(
    journal: JournalUnderTest,
) -> None:
    """PredecessorFirst."""
    journal.start()
    old = WorkerUnderTest(journal, 1, START_NS)
    new = WorkerUnderTest(journal, 1, START_NS + 1)
    other = WorkerUnderTest(journal, 2)
    old.open()
    new.greet()
    other.open()
    write_lives(old, 2000)
    old.send()
    old.peer.close()
    assert new.client.state is ClientState.GREETING
    new.receive()
    assert replay(journal.directory).follower.expected[ONE] == 8001
    write_lives(new, 1)
    new.make_durable()
    expected = replay(journal.directory).follower.expected
    assert expected[Origin(1, START_NS + 1)] == 5


def test_a_worker_that_does_not_read_holds_up_nobody(journal: JournalUnderTest) -> None:
    journal.start()
    deaf, other = WorkerUnderTest(journal, 1), WorkerUnderTest(journal, 2)
    deaf.open()
    other.open()
    for number in range(1500):
        write_life(deaf.client.records, number)
        deaf.send()
        write_life(other.client.records, number)
        other.make_durable()
    while deaf.client.durable_sequence < 6000:
        deaf.receive()
    assert other.client.durable_sequence == 6000


def test_a_worker_that_comes_back_goes_on_where_it_was(journal: JournalUnderTest) -> None:
    journal.start()
    worker = WorkerUnderTest(journal)
    for _ in range(5):
        worker.open()
        write_lives(worker, 3)
        worker.send()
        worker.lose()
    worker.open()
    worker.make_durable()
    journal.kill()
    read = replay(journal.directory)
    assert (read.follower.expected, read.holes) == ({ONE: 61}, [])


def row_block(first_sequence: int, *, worker: int = 1, rows: int = 1) -> bytes:
    return seal_block(
        bytes(rows * ROW.size),
        b"",
        first_sequence=first_sequence,
        worker=worker,
        incarnation=START_NS,
    )


HELLO = hello_block("dc1", ONE, 1)
BROKEN = bytearray(row_block(1))
BROKEN[50] ^= 1


@pytest.mark.parametrize(
    ("octets", "refusal"),
    [
        (row_block(1), Refusal.NO_HELLO),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", Refusal.BROKEN_BLOCK),
        (hello_block("dc2", ONE, 1), Refusal.WRONG_ROUTER),
        (hello_block("dc1", Origin(0xFFFF, 1), 1), Refusal.BROKEN_BLOCK),
        (hello_block("dc1", Origin(9, START_NS - 1), 1), Refusal.OLD_INCARNATION),
    ],
    ids=["no hello", "another protocol", "another router", "the journal itself", "a dead worker"],
)
def test_who_does_not_belong_here_is_refused(
    journal: JournalUnderTest, octets: bytes, refusal: Refusal
) -> None:
    journal.start()
    nine = WorkerUnderTest(journal, 9)
    nine.open()
    nine.lose()
    peer = journal.connect()
    peer.sendall(octets)
    assert REPLY.unpack(peer.recv(4096))[:2] == (REFUSED, refusal)
    assert peer.recv(4096) == b""
    nine.open()


def test_a_clock_that_was_set_back_between_two_lives_keeps_nobody_out(
    journal: JournalUnderTest,
) -> None:
    journal.start()
    before = WorkerUnderTest(journal)
    before.open()
    write_lives(before, 2)
    before.make_durable()
    before.lose()
    after = WorkerUnderTest(journal, incarnation=START_NS - 3_600_000_000_000)
    after.client.records.received(START_NS, key(1), SOURCE, b"t")  # before it is let in
    with pytest.raises(EOFError):
        after.open()
    after.lose()
    after.open()
    assert after.client.state is ClientState.OPEN
    write_lives(after, 3)
    after.make_durable()
    read = replay(journal.directory)
    assert read.holes == []
    assert max(read.follower.expected) == Origin(1, START_NS + 1)
    after.lose()
    before.open()
    assert before.client.refusal is Refusal.OLD_INCARNATION


@pytest.mark.parametrize(
    ("octets", "refusal"),
    [
        (row_block(2), Refusal.GAP),
        (row_block(1) + row_block(3), Refusal.GAP),
        (row_block(1, worker=2), Refusal.BROKEN_BLOCK),
        (row_block(1, rows=0), Refusal.BROKEN_BLOCK),
        (bytes(BROKEN), Refusal.BROKEN_BLOCK),
        (HELLO, Refusal.BROKEN_BLOCK),
    ],
    ids=["a gap", "a later gap", "another's", "empty", "broken", "hello again"],
)
def test_a_worker_that_hands_in_what_cannot_be_is_refused(
    journal: JournalUnderTest, octets: bytes, refusal: Refusal
) -> None:
    journal.start()
    peer = journal.connect()
    peer.sendall(HELLO)
    assert REPLY.unpack(peer.recv(4096)) == (0, 0, 0)
    peer.sendall(octets)
    replies = b""
    while received := peer.recv(4096):
        replies += received
    assert REPLY.unpack(replies[-REPLY.size :])[:2] == (REFUSED, refusal)
    worker = WorkerUnderTest(journal, 3)
    worker.open()
    write_lives(worker, 1)
    worker.make_durable()


def test_connections_that_end_anywhere_disturb_nobody(journal: JournalUnderTest) -> None:
    journal.start()
    worker = WorkerUnderTest(journal, 2)
    worker.open()
    conversation = HELLO + row_block(1)
    for length in range(0, len(conversation), 3):
        with journal.connect() as peer:
            peer.sendall(conversation[:length])
    write_lives(worker, 1)
    worker.make_durable()
    assert replay(journal.directory).holes == []


def test_records_that_were_lost_with_the_directory_leave_a_hole_that_is_told(
    journal: JournalUnderTest,
) -> None:
    journal.start()
    worker = WorkerUnderTest(journal)
    worker.open()
    write_lives(worker, 10)
    worker.make_durable()
    journal.kill()
    worker.lose()
    for path in journal.directory.iterdir():
        path.unlink()
    journal.start()
    worker.open()
    write_lives(worker, 1)
    worker.make_durable()
    assert worker.client.lost_records == 40
    assert [(hole.first, hole.last) for hole in replay(journal.directory).holes] == [(1, 40)]


# ------------------------------------------------------------------ the disk


def is_greeting(worker: WorkerUnderTest) -> bool:
    return worker.client.state is ClientState.GREETING


def limit_files(process: subprocess.Popen[bytes], octets: str) -> None:
    subprocess.run(["prlimit", f"--pid={process.pid}", f"--fsize={octets}:"], check=True)


def test_a_full_disk_is_told_keeps_everything_and_heals(journal: JournalUnderTest) -> None:
    process = journal.start(file_octets=4096)
    worker = WorkerUnderTest(journal)
    worker.open()
    told = [(worker.client.health, worker.client.errno)]
    write_lives(worker, 500)
    worker.send()
    limit_files(process, "unlimited")
    worker.make_durable()
    told.append((worker.client.health, worker.client.errno))
    assert told == [(Health.DISK_FULL, errno.EFBIG), (Health.WRITING, 0)]
    journal.kill()
    assert replay(journal.directory).follower.expected == {ONE: 2001}


def test_a_full_disk_lets_other_workers_begin(journal: JournalUnderTest) -> None:
    process = journal.start(file_octets=4096)
    one, two, successor = (
        WorkerUnderTest(journal, 1),
        WorkerUnderTest(journal, 2),
        WorkerUnderTest(journal, 1, START_NS + 1),
    )
    one.open()
    write_lives(one, 500)
    one.send()
    two.open()
    one.peer.close()
    successor.greet()
    three = WorkerUnderTest(journal, 3)
    three.open()
    assert is_greeting(successor)  # its predecessor's records are not there
    limit_files(process, "unlimited")
    while is_greeting(successor):
        successor.receive()
    assert replay(journal.directory).follower.expected[ONE] == 2001


def test_a_full_disk_stops_the_workers_and_not_the_memory(journal: JournalUnderTest) -> None:
    process = journal.start(file_octets=4096)
    worker = WorkerUnderTest(journal)
    worker.open()
    worker.peer.settimeout(2.0)
    for number in range(64):
        worker.client.records.received(START_NS, key(number), SOURCE, b"t", payload=bytes(1 << 20))
    with pytest.raises(socket.timeout):
        worker.send()
    assert worker.client.waiting_octets > 64 << 20
    told = [worker.client.is_over_budget]
    limit_files(process, "unlimited")
    worker.peer.settimeout(PATIENCE_SECONDS)
    worker.make_durable()
    told.append(worker.client.is_over_budget)
    assert told == [True, False]
    journal.kill()
    assert len(replay(journal.directory).memory.deliveries) == 64


def test_files_that_may_not_grow_far_are_many(journal: JournalUnderTest) -> None:
    journal.start("--keep", file_octets=2 << 20)
    worker = WorkerUnderTest(journal)
    worker.open()
    for _ in range(20):
        write_lives(worker, 1000)
        worker.make_durable()
    assert worker.client.health is Health.WRITING
    journal.kill()
    read = replay(journal.directory)
    assert read.segments > 3
    assert (read.follower.expected, read.holes) == ({ONE: 80_001}, [])


def test_a_router_that_has_another_name_than_its_journal_is_told_what_that_means() -> None:
    with capture_logs() as told:
        for written_by in (None, "dc1", "dc2"):
            warn_of_another_name(written_by, "dc1")
    assert [(line["event"], line["written_by"]) for line in told] == [("journal.renamed", "dc2")]


def test_a_directory_of_a_later_format_is_refused_in_words(tmp_path: Path) -> None:
    later = tmp_path / segment_name(3)
    later.write_bytes(b"AMQPJNL2" + bytes(range(256)))
    command = [sys.executable, "-m", "router.journal.process", "--router", "dc1"]
    command += ["--directory", str(tmp_path), "--listen", str(tmp_path / "socket")]
    refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert f"{later} is not of the format AMQPJNL1" in refused.stdout + refused.stderr
    assert later.read_bytes().startswith(b"AMQPJNL2")


def test_only_one_process_writes_a_directory(journal: JournalUnderTest) -> None:
    journal.start()
    WorkerUnderTest(journal).open()
    command = [*map(str, journal.process.args)] if journal.process else []  # type: ignore[arg-type]
    command = [word for word in command if word not in {"--lifeline-fd", command[-1]}]
    second = subprocess.run(
        command, pass_fds=(journal.listener.fileno(),), timeout=PATIENCE_SECONDS, check=False
    )
    assert second.returncode == 2


def test_old_segments_go_to_the_pipeline_while_the_log_goes_on(
    journal: JournalUnderTest,
) -> None:
    journal.start("--segment-octets", "300000", "--archive", str(journal.archive))
    worker = WorkerUnderTest(journal)
    worker.open()
    worker.client.records.received(START_NS, key(10**6), SOURCE, b"t", payload=b"held")
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not journal.archive.exists() and time.monotonic() < give_up_at:
        write_lives(worker, 500)
        worker.make_durable()
    assert journal.archive.exists()
    worker.peer.close()
    assert journal.cut_lifeline() == 0
    read = replay(journal.directory)
    assert [d.payload for d in read.memory.deliveries.values()] == [b"held"]
    assert (read.holes, read.damage) == ([], [])
    assert read.follower.expected == {ONE: worker.client.durable_sequence + 1}
    archived = numbered([path.name for path in journal.archive.iterdir()], "segment")
    kept = numbered([path.name for path in journal.directory.iterdir()], "segment")
    assert set(archived) | set(kept) == set(range(1, max(kept) + 1))


def test_many_workers_share_one_flush(journal: JournalUnderTest) -> None:
    journal.start()
    workers = [WorkerUnderTest(journal, number) for number in range(8)]
    for worker in workers:
        worker.open()
    for turn in range(50):
        for worker in workers:
            write_life(worker.client.records, turn)
            worker.send()
        for worker in workers:
            worker.make_durable()
    for worker in workers:
        worker.peer.close()
    assert journal.cut_lifeline() == 0
    read = replay(journal.directory)
    assert read.follower.expected == {Origin(number, START_NS): 201 for number in range(8)}
    fences = sum(
        record.kind == 34
        for path in journal.directory.glob("*.segment")
        for record in SegmentScan(path.read_bytes()).records()
    )
    assert fences < 8 * 50
