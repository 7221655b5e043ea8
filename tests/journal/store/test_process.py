import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.journal.client import ClientState
from router.journal.protocol import Refusal
from router.journal.segment import numbered, segment_name
from router.journal.store.asks import (
    Back,
    Bound,
    Flow,
    QueueNews,
    RouteNews,
    Survey,
    UnreadableNews,
)
from router.journal.store.client import StoreClient
from router.journal.store.queues import Bounds
from router.journal.store.reading import StoredMessage
from tests.support.journal import SOURCE, START_NS, key
from tests.support.journal_process import JournalUnderTest, WorkerUnderTest, journal_under_test
from tests.support.stored import ACCEPTED, ADDRESS, ROUTE, claims, messages_in, numbers

pytestmark = pytest.mark.processes

NAME = ADDRESS.encode()
OPTIONS = ("--messages", "--segment-octets", "20000")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalUnderTest]:
    with journal_under_test(tmp_path) as under_test:
        yield under_test


class Storer(WorkerUnderTest):
    """A worker that stores, reads and forwards."""

    def __init__(
        self, journal: JournalUnderTest, worker: int = 1, incarnation: int = START_NS
    ) -> None:
        super().__init__(journal, worker, incarnation)
        self.client: StoreClient = StoreClient(router="dc1", worker=worker, incarnation=incarnation)

    def put(self, first: int, count: int, octets: int = 100) -> None:
        """Writes messages."""
        for number in range(first, first + count):
            self.client.records.stored(
                START_NS,
                key(number),
                SOURCE,
                b"t",
                (b"%08d" % number).ljust(octets, b"."),
                route=ROUTE,
                address=ADDRESS,
                priority=4,
                protocol=1,
            )

    def read(self, count: int) -> list[StoredMessage]:
        """Asks for messages and waits for so many."""
        self.client.ask(Flow(ROUTE, NAME, count))
        self.send()
        found: list[StoredMessage] = []
        while len(found) < count:
            found += self.take()
            if len(found) < count:
                self.receive()
        return found

    def take(self) -> list[StoredMessage]:
        """Takes the messages that have come."""
        found = messages_in(self.client.answers)
        self.client.answers.clear()
        return found

    def forward(self, messages: list[StoredMessage]) -> None:
        """Says that messages are gone, and waits until that is durable."""
        self.client.records.forwarded(START_NS, claims(messages), ACCEPTED)
        self.make_durable()


@pytest.mark.long
def test_what_was_stored_is_read_back_in_order_and_room_is_free_when_it_is_gone(
    journal: JournalUnderTest,
) -> None:
    journal.start(*OPTIONS)
    worker = Storer(journal)
    worker.open()
    for first in range(0, 1000, 100):
        worker.put(first, 100)
        worker.make_durable()
    assert len(list(journal.directory.glob("*.segment"))) > 5
    for first in range(0, 1000, 100):
        messages = worker.read(100)
        assert numbers(messages) == [*range(first, first + 100)]
        worker.forward(messages)
    worker.put(1000, 100)  # begins a segment: what is behind it can go
    worker.make_durable()
    worker.forward(worker.read(100))
    worker.put(1100, 1)
    worker.make_durable()
    left = numbered([path.name for path in journal.directory.iterdir()], "segment")
    assert len(left) <= 3
    assert journal.cut_lifeline() == 0


def test_a_segment_that_cannot_be_read_is_said_and_what_stands_before_it_goes_on(
    journal: JournalUnderTest, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unreadable file stops neither the process, nor what stands elsewhere."""
    journal.start(*OPTIONS, "--log-format", "json")
    worker = Storer(journal)
    worker.open()
    for first in range(0, 400, 100):
        worker.put(first, 100)
        worker.make_durable()
    worker.lose()
    assert journal.cut_lifeline() == 0
    path, kept = journal.directory / segment_name(2), journal.directory / "kept"
    path.rename(kept)
    path.symlink_to("/proc/self/mem")  # its first page cannot be read: EIO
    journal.start(*OPTIONS, "--log-format", "json")
    worker = Storer(journal, incarnation=START_NS + 1)
    worker.open()
    assert numbers(worker.read(100)) == [*range(100)]
    worker.client.ask(Flow(ROUTE, NAME, 200))
    said: list[UnreadableNews] = []
    while not said:
        worker.client.ask(Survey())
        worker.send()
        worker.receive()
        said = [each for each in worker.client.answers if isinstance(each, UnreadableNews)]
    assert "Input/output error" in said[0].words
    assert path.name in said[0].words
    kept.rename(path)
    worker.client.answers.clear()
    found = worker.read(100)  # of the 300 that were asked for by now
    while len(found) < 300:
        worker.receive()
        found += worker.take()
    assert numbers(found) == [*range(100, 400)]
    assert journal.terminate() == 0
    lines = [json.loads(each) for each in capfd.readouterr().out.splitlines()]
    (told,) = [each for each in lines if each["event"] == "store.unreadable"]
    assert (told["segment"], told["level"]) == (path.name, "error")
    assert told["messages"] > 0
    assert "store.readable" in [each["event"] for each in lines]
    assert "store.incomplete" not in [each["event"] for each in lines]


@pytest.mark.parametrize("options", [(), ("--messages",)])
def test_a_newest_segment_that_cannot_be_read_is_named_by_the_process_that_ends(
    options: tuple[str, ...], journal: JournalUnderTest, capfd: pytest.CaptureFixture[str]
) -> None:
    journal.directory.mkdir()
    (journal.directory / segment_name(7)).symlink_to("/proc/self/mem")
    assert journal.start(*options, "--log-format", "json").wait(30) == 2
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line)["error"] == f"{segment_name(7)}: Input/output error"


def test_long_messages_go_there_and_back(journal: JournalUnderTest) -> None:
    journal.start("--messages")
    worker = Storer(journal)
    worker.open()
    worker.put(0, 3, octets=5_000_000)
    worker.make_durable()
    messages = worker.read(3)
    assert numbers(messages) == [0, 1, 2]
    assert {len(message.payload) for message in messages} == {5_000_000}


def test_what_becomes_too_old_in_years_is_waited_for(journal: JournalUnderTest) -> None:
    """The system waits for 24 days at most, and a log without new records for nothing else."""
    journal.start("--messages", "--rotate-seconds", "0.05")
    worker = Storer(journal)
    worker.open()
    worker.client.ask(Bound(ROUTE, Bounds(age_ns=100 * 365 * 86400 * 1_000_000_000)))
    worker.client.ask(Flow(ROUTE, None, 1))
    worker.put(0, 1)
    worker.make_durable()
    while len(list(journal.directory.glob("*.segment"))) < 2:
        worker.client.ask(Flow(ROUTE, NAME, 0))
        worker.send()
    assert numbers(worker.read(1)) == [0]


def test_asks_are_answered_between_records(journal: JournalUnderTest) -> None:
    journal.start(*OPTIONS)
    worker = Storer(journal)
    worker.open()
    worker.client.ask(Bound(ROUTE, Bounds(messages=2)))
    worker.client.ask(Flow(ROUTE, NAME, 0))
    worker.send()
    while not worker.client.answers:
        worker.receive()
    worker.put(0, 2)
    worker.make_durable()
    while len(worker.client.answers) < 3:
        worker.receive()
    first, *others = worker.client.answers
    assert first == RouteNews(ROUTE, 0, 0, is_full=False)
    assert [type(answer) for answer in others] == [QueueNews, RouteNews]
    worker.client.answers.clear()
    (message,) = worker.read(1)
    worker.client.ask(Back(message.claim))
    assert numbers(worker.read(2)) == [0, 1]


def test_a_new_process_hears_what_is_gone_before_it_is_asked_for_messages(
    journal: JournalUnderTest,
) -> None:
    journal.start(*OPTIONS)
    worker = Storer(journal)
    worker.open()
    worker.put(0, 4)
    worker.make_durable()
    messages = worker.read(2)
    journal.kill()
    worker.lose()
    worker.client.records.forwarded(START_NS, claims(messages), ACCEPTED)
    journal.start(*OPTIONS)
    worker.open()
    assert numbers(worker.read(2)) == [2, 3]


def test_a_journal_answers_no_asks(journal: JournalUnderTest) -> None:
    journal.start()
    worker = Storer(journal)
    worker.open()
    worker.client.ask(Flow(ROUTE, NAME, 1))
    worker.send()
    worker.receive()
    assert (worker.client.state, worker.client.refusal) == (
        ClientState.REFUSED,
        Refusal.BROKEN_BLOCK,
    )


def test_a_successor_of_a_killed_reader_is_given_what_was_not_gone(
    journal: JournalUnderTest,
) -> None:
    journal.start(*OPTIONS)
    first = Storer(journal)
    first.open()
    first.put(0, 10)
    first.make_durable()
    messages = first.read(6)
    first.client.records.forwarded(START_NS, claims(messages[:3]), ACCEPTED)
    first.send()
    first.peer.close()
    second = Storer(journal, incarnation=START_NS + 1)
    second.open()
    assert numbers(second.read(7)) == [3, 4, 5, 6, 7, 8, 9]


def test_a_process_killed_again_and_again_loses_doubles_and_reorders_nothing(
    journal: JournalUnderTest,
) -> None:
    """NoLoss, NoDouble, FifoPerQueue: what is read after a kill goes on where durable ends."""
    draw = random.Random(4)
    worker = Storer(journal)
    stored = gone = 0
    for _ in range(12):
        journal.start(*OPTIONS)
        worker.open()
        for _ in range(draw.randrange(1, 6)):
            worker.put(stored, 40)
            stored += 40
            worker.make_durable()
            messages = worker.read(draw.randrange(1, 30))
            assert numbers(messages) == [*range(gone, gone + len(messages))]
            worker.forward(messages)
            gone += len(messages)
        worker.put(stored, 20)
        stored += 20
        worker.send()  # and perhaps it is durable
        journal.kill()
        worker.lose()
        worker.client.answers.clear()
    journal.start(*OPTIONS)
    worker.open()
    assert numbers(worker.read(stored - gone)) == [*range(gone, stored)]
