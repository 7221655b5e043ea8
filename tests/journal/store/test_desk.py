import errno
import random

import pytest

from router.journal.block import BlockFlag, Origin, open_block
from router.journal.store.asks import (
    Answer,
    AnswerReader,
    Ask,
    AskWriter,
    Back,
    Bound,
    Flow,
    MessageRead,
    QueueNews,
    Reads,
    Return,
    RouteNews,
    Survey,
)
from router.journal.store.desk import OUTPUT_OCTETS, Desk
from router.journal.store.looking import (
    OPERATOR,
    STEP,
    Drop,
    Dropped,
    Held,
    Look,
    Looked,
    Sentence,
)
from router.journal.store.place import Place, position_of, segment_of
from router.journal.store.queues import Bounds, Full
from router.journal.store.reading import StoredMessage
from router.journal.store.references import RunReference
from tests.support.journal import SECOND_NS, START_NS, FakeDisk, Fault
from tests.support.stored import ADDRESS, OTHER, ROUTE, Custodian, claims, messages_in, numbers

ONE = Origin(1, START_NS)
TWO = Origin(2, START_NS)
OPERATING = Origin(OPERATOR, START_NS)
NAME = ADDRESS.encode()


class Counter:
    """A desk, and what it says to each worker."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.custodian = Custodian(disk or FakeDisk(), segment_octets=1 << 20)
        self.custodian.open()
        self.desk = Desk(self.custodian.store)
        self._readers: dict[Origin, AnswerReader] = {}

    def put(self, first: int, count: int = 1, **fields: object) -> None:
        """Stores messages."""
        for number in range(first, first + count):
            self.custodian.put(number, **fields)  # type: ignore[arg-type]
        assert self.custodian.commit()

    def ask(self, *asks: Ask, origin: Origin = ONE) -> list[Answer]:
        """Asks, and gives the next answers."""
        writer = AskWriter(BlockFlag.ASKS)
        for ask in asks:
            writer.ask(ask)
        octets = memoryview(writer.take_octets())
        if octets:
            block = open_block(octets)
            assert block.flags == BlockFlag.ASKS
            self.desk.asked(origin, block)
        return self.answers(origin)

    def answers(self, origin: Origin = ONE) -> list[Answer]:
        """Gives the next answers."""
        octets = memoryview(bytes(self.desk.output(origin, self.custodian.now_ns)))
        reader = self._readers.setdefault(origin, AnswerReader())
        found: list[Answer] = []
        at = 0
        while at < len(octets):
            block = open_block(octets, at, is_checked=True)
            at += block.octets
            found += reader.answers_of(block)
        return found

    def forward(self, messages: list[StoredMessage]) -> None:
        """Says that messages are gone, durably."""
        self.custodian.forward(claims(messages))
        assert self.custodian.commit()


def read(answers: list[Answer]) -> list[StoredMessage]:
    """Gives the messages among answers."""
    return messages_in(answers)


def news(answers: list[Answer]) -> list[tuple[bytes, int, int]]:
    """Gives what answers say about queues."""
    found = [answer for answer in answers if isinstance(answer, QueueNews)]
    return [(each.address, each.priority, each.messages) for each in found]


def test_a_reader_gets_as_many_messages_as_it_asked_for_in_order() -> None:
    counter = Counter()
    counter.put(0, 5)
    first = counter.ask(Flow(ROUTE, NAME, 3))
    assert numbers(read(first)) == [0, 1, 2]
    assert counter.answers() == []
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 9)))) == [3, 4]
    counter.put(5, 2)
    assert numbers(read(counter.answers())) == [5, 6], "its credit is still there"


def test_an_answer_says_all_that_was_stored() -> None:
    counter = Counter()
    counter.put(1, octets=3 << 20, priority=9, ttl_milliseconds=500)
    (message,) = read(counter.ask(Flow(ROUTE, NAME, 1)))
    counter.custodian.store.give_back(message.claim)
    (kept,) = counter.custodian.store.read(message.claim.queue, 1, START_NS)
    assert message == kept
    assert (len(message.payload), message.tag, message.is_overdue) == (3 << 20, b"tag-1", False)


def test_the_higher_priority_of_an_address_is_read_first() -> None:
    counter = Counter()
    for number in range(12):
        counter.put(number, priority=number % 3)
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 6)))) == [2, 5, 8, 11, 1, 4]


def test_a_reader_hears_which_queues_have_messages_and_when_they_have_none() -> None:
    counter = Counter()
    counter.put(0, 2)
    counter.put(2, address="b")
    counter.put(3, route=OTHER)
    answers = counter.ask(Flow(ROUTE, NAME, 0))
    assert sorted(news(answers)) == [(b"b", 4, 1), (NAME, 4, 2)]
    counter.put(4)
    assert counter.answers() == [], "it knows"
    counter.forward(read(counter.ask(Flow(ROUTE, NAME, 2))))
    assert news(counter.answers()) == []
    counter.forward(read(counter.ask(Flow(ROUTE, NAME, 1))))
    assert news(counter.answers()) == [(NAME, 4, 0)]
    counter.put(5)
    assert news(counter.answers()) == [(NAME, 4, 1)]


def test_a_queue_that_the_store_has_forgotten_is_reported_empty_all_the_same() -> None:
    counter = Counter()
    counter.put(0)
    counter.forward(read(counter.ask(Flow(ROUTE, NAME, 1))))
    counter.custodian.store.head(START_NS)
    assert counter.custodian.store.holdings.queues == {}
    assert news(counter.answers()) == [(NAME, 4, 0)]


def test_what_is_given_back_is_read_again_first() -> None:
    counter = Counter()
    counter.put(0, 4)
    messages = read(counter.ask(Flow(ROUTE, NAME, 3)))
    answers = counter.ask(Back(messages[1].claim), Flow(ROUTE, NAME, 5))
    assert numbers(read(answers)) == [1, 3]


def test_another_reader_gets_what_the_one_before_it_did_not_finish() -> None:
    """OneReader."""
    counter = Counter()
    counter.put(0, 4)
    messages = read(counter.ask(Flow(ROUTE, NAME, 9)))
    counter.custodian.forward(claims(messages[:1]))
    counter.custodian.append()
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 9), origin=TWO))) == [1, 2, 3]
    assert counter.custodian.commit()
    counter.put(4)
    assert counter.answers(ONE) == []
    assert numbers(read(counter.answers(TWO))) == [4]


def test_a_worker_whose_connection_was_lost_is_given_everything_again() -> None:
    counter = Counter()
    counter.put(0, 4)
    counter.ask(Flow(ROUTE, NAME, 2))
    counter.desk.lost(ONE)
    assert counter.answers() == []
    answers = counter.ask(Flow(ROUTE, NAME, 9))
    assert numbers(read(answers)) == [0, 1, 2, 3]
    assert news(answers) == [(NAME, 4, 4)]


def test_who_bounds_a_route_hears_when_it_is_full_and_when_it_has_room() -> None:
    counter = Counter()
    bound = Bound(ROUTE, Bounds(messages=2, octets=5000, age_ns=SECOND_NS, full=Full.REFUSE))
    (first,) = counter.ask(bound, origin=TWO)
    assert first == RouteNews(ROUTE, 0, 0, is_full=False)
    assert counter.custodian.store.holdings.route(ROUTE).bounds == bound.bounds
    counter.put(0, 1)
    assert counter.answers(TWO) == []
    counter.put(1, 1)
    (second,) = counter.answers(TWO)
    assert isinstance(second, RouteNews)
    assert (second.messages, second.is_full) == (2, True)
    counter.forward(read(counter.ask(Flow(ROUTE, NAME, 1))))
    (third,) = counter.answers(TWO)
    assert isinstance(third, RouteNews)
    assert (third.messages, third.is_full) == (1, False)


def test_what_is_overdue_goes_to_who_asks_for_that_when_it_is_due() -> None:
    counter = Counter()
    counter.ask(Bound(ROUTE, Bounds(age_ns=10 * SECOND_NS)), Flow(ROUTE, None, 3))
    assert counter.desk.deadline_ns() is None
    counter.put(0, 2)
    counter.put(2, address="b")
    assert read(counter.answers()) == []
    assert counter.desk.deadline_ns() == START_NS + 10 * SECOND_NS
    counter.custodian.now_ns += 10 * SECOND_NS
    overdue = read(counter.answers())
    assert numbers(overdue) == [0, 1, 2]
    assert all(message.is_overdue for message in overdue)
    assert counter.desk.deadline_ns() is None


@pytest.mark.parametrize("octets", [100, 20_000, 700_000])
def test_one_output_is_bounded_and_the_rest_comes_with_the_next(octets: int) -> None:
    counter = Counter()
    counter.put(0, 200 if octets < 1000 else 70, octets=octets)
    seen: list[int] = []
    answers = read(counter.ask(Flow(ROUTE, NAME, 500)))
    while answers:
        assert sum(len(message.payload) for message in answers) < 2 * OUTPUT_OCTETS
        seen += numbers(answers)
        answers = read(counter.answers())
    assert seen == [*range(200 if octets < 1000 else 70)]


def test_references_come_many_together_however_long_their_messages_are() -> None:
    counter, addresses = Counter(), [f"telemetry.{number}" for number in range(8)]
    for address in addresses:
        counter.put(0, 10, address=address, octets=OUTPUT_OCTETS // 40)
    flows = [Flow(ROUTE, address.encode(), 10) for address in addresses]
    answers = counter.ask(Reads(), *flows)
    assert sum(each.messages for each in answers if isinstance(each, RunReference)) == 80
    assert not counter.answers()


def test_a_disk_that_does_not_give_a_message_is_asked_again_after_a_pause() -> None:
    disk = FakeDisk()
    counter = Counter(disk)
    counter.put(0, 3)
    disk.faults.append(Fault("read_part", errno.EIO))
    assert read(counter.ask(Flow(ROUTE, NAME, 3))) == []
    assert read(counter.answers()) == []
    assert counter.desk.deadline_ns() == START_NS + SECOND_NS
    assert read(counter.answers()) == []
    counter.custodian.now_ns += SECOND_NS
    assert numbers(read(counter.answers())) == [0, 1, 2]
    assert counter.desk.deadline_ns() is None


def test_readers_that_come_and_go_at_random_get_each_message_until_it_is_gone() -> None:
    draw = random.Random(7)
    counter, gone, next_number = Counter(), set[int](), 0
    held: dict[Origin, list[StoredMessage]] = {ONE: [], TWO: []}
    for _ in range(600):
        origin = draw.choice([ONE, TWO])
        other = TWO if origin is ONE else ONE
        match draw.choice(["put", "flow", "flow", "forward", "lose", "back"]):
            case "put":
                counter.put(next_number, 3)
                next_number += 3
            case "flow":
                held[other].clear()
                held[origin] += read(counter.ask(Flow(ROUTE, NAME, 2), origin=origin))
                assert not set(numbers(held[origin])) & gone
                assert len(set(numbers(held[origin]))) == len(held[origin])
            case "forward" if held[origin]:
                message = held[origin].pop(0)
                counter.forward([message])
                gone |= set(numbers([message]))
            case "lose":
                counter.desk.lost(origin)
                held[origin].clear()
            case "back" if held[origin]:
                counter.ask(Back(held[origin].pop().claim), Flow(ROUTE, NAME, 0), origin=origin)
            case _:
                pass
        held[origin] += read(counter.answers(origin))
    counter.desk.lost(ONE)
    counter.desk.lost(TWO)
    left = [number for number in range(next_number) if number not in gone]
    seen: list[int] = []
    answers = read(counter.ask(Flow(ROUTE, NAME, 10_000)))
    while answers:
        seen += numbers(answers)
        answers = read(counter.answers())
    assert seen == left


def test_a_person_is_shown_the_deepest_addresses_and_how_many_there_are() -> None:
    counter = Counter()
    counter.put(0, 5)
    counter.put(10, 9, address="b")
    counter.put(20, 1, address="c")
    counter.put(30, 20, route=OTHER)
    *held, looked = counter.ask(Look(ROUTE, 2), origin=OPERATING)
    assert [(each.address, each.messages) for each in held if isinstance(each, Held)] == [
        (b"b", 9),
        (NAME, 5),
    ]
    assert looked == Looked(3)
    assert {each.oldest_ns for each in held if isinstance(each, Held)} == {START_NS}
    *everything, looked = counter.ask(Look(None, 100), origin=OPERATING)
    assert (len(everything), looked) == (4, Looked(4))


def test_whoever_looks_takes_nothing() -> None:
    counter = Counter()
    counter.put(0, 5)
    counter.ask(Look(ROUTE, 10), origin=OPERATING)
    counter.desk.lost(OPERATING)
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 9)))) == [0, 1, 2, 3, 4]


def test_news_of_a_route_say_how_many_messages_came_and_left_and_how_old_the_oldest_is() -> None:
    counter = Counter()
    counter.put(0, 5)
    counter.custodian.now_ns += SECOND_NS
    counter.put(5, 2)
    counter.forward(read(counter.ask(Flow(ROUTE, NAME, 5))))
    (news,) = [each for each in counter.ask(Survey()) if isinstance(each, RouteNews)]
    assert (news.messages, news.came, news.left) == (2, 7, 5)
    assert news.oldest_ns == START_NS + SECOND_NS


def test_the_oldest_message_is_found_again_whatever_has_gone_before_it() -> None:
    draw, counter = random.Random(7), Counter()
    stored: dict[int, tuple[int, StoredMessage | None]] = {}
    for number in range(300):
        counter.custodian.now_ns += SECOND_NS
        counter.put(number)
        stored[number] = counter.custodian.now_ns, None
        if draw.random() < 0.7:
            for message in read(counter.ask(Flow(ROUTE, NAME, 1))):
                stored[int(message.payload[:8])] = message.time_ns, message
        taken = [(key, each) for key, (_, each) in stored.items() if each is not None]
        if taken and draw.random() < 0.6:
            key, message = draw.choice(taken)
            counter.forward([message])
            del stored[key]
        expected = min((time_ns for time_ns, _ in stored.values()), default=None)
        assert counter.custodian.store.ages.oldest_ns(ROUTE) == expected


def drop(**fields: object) -> Drop:
    """Gives a drop of the oldest messages of the route."""
    usual = {"route": ROUTE, "address": None, "until_ns": 2 * START_NS, "most": 1000}
    return Drop(**{**usual, **fields})  # type: ignore[arg-type]


def test_the_oldest_messages_that_somebody_drops_come_as_dead_letters_and_the_others_as_ever() -> (
    None
):
    counter = Counter()
    counter.put(0, 4)
    counter.put(10, 4, address="b")
    counter.ask(Flow(ROUTE, None, 100))
    (dropped,) = counter.ask(drop(most=3), origin=OPERATING)
    assert isinstance(dropped, Dropped)
    assert (dropped.messages, dropped.has_more) == (3, False)
    swept = [each for each in counter.answers() if isinstance(each, MessageRead)]
    assert [each.is_swept and each.message.is_overdue for each in swept] == [True] * 3
    assert numbers(read([*swept])) == [0, 1, 2]
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 9)))) == [3]
    assert numbers(read(counter.ask(Flow(ROUTE, b"b", 9)))) == [10, 11, 12, 13]


def test_what_was_dropped_stays_dropped_when_the_process_is_killed() -> None:
    disk = FakeDisk()
    counter = Counter(disk)
    counter.put(0, 4)
    counter.put(10, 4, address="b")
    counter.ask(drop(address=b"b", most=2), origin=OPERATING)
    assert counter.custodian.commit(), "as the server does before it answers"
    later = Counter(disk.crashed(random.Random(1)))
    later.custodian.now_ns += SECOND_NS
    assert numbers(read(later.ask(Flow(ROUTE, None, 9)))) == [10, 11]
    assert numbers(read(later.ask(Flow(ROUTE, b"b", 9)))) == [12, 13]
    assert numbers(read(later.ask(Flow(ROUTE, NAME, 9)))) == [0, 1, 2, 3]


def test_a_drop_leaves_younger_messages_and_other_routes_alone() -> None:
    counter = Counter()
    counter.put(0, 2)
    counter.put(20, 2, route=OTHER)
    counter.custodian.now_ns += 10 * SECOND_NS
    counter.put(2, 2)
    (dropped,) = counter.ask(drop(until_ns=START_NS + SECOND_NS), origin=OPERATING)
    assert isinstance(dropped, Dropped)
    assert dropped.messages == 2
    assert numbers(read(counter.ask(Flow(ROUTE, NAME, 9)))) == [0, 1, 2, 3]
    others = read(counter.ask(Flow(OTHER, NAME, 9)))
    assert [each.is_overdue for each in others] == [False, False]


def test_what_is_a_dead_letter_already_is_not_dropped_again() -> None:
    counter = Counter()
    counter.ask(Bound(ROUTE, Bounds(messages=10, age_ns=100 * SECOND_NS, full=Full.DROP_OLDEST)))
    counter.put(0, 2)
    counter.custodian.now_ns += 99 * SECOND_NS
    counter.put(2, 11)
    counter.custodian.now_ns += SECOND_NS
    assert numbers(read(counter.ask(Flow(ROUTE, None, 9)))) == [0, 1, 2], "too many, too old"
    (dropped,) = counter.ask(drop(most=4), origin=OPERATING)
    assert isinstance(dropped, Dropped)
    assert (dropped.messages, dropped.has_more) == (4, False)
    assert numbers(read(counter.answers())) == [3, 4, 5, 6]
    (again,) = counter.ask(drop(), origin=OPERATING)
    assert isinstance(again, Dropped)
    assert again.messages == 6
    (none,) = counter.ask(drop(), origin=OPERATING)
    assert isinstance(none, Dropped)
    assert none.messages == 0


def test_a_long_drop_goes_step_by_step() -> None:
    counter = Counter()
    counter.put(0, STEP + 10)
    (first,) = counter.ask(drop(most=STEP + 5), origin=OPERATING)
    assert isinstance(first, Dropped)
    assert (first.messages, first.has_more) == (STEP, True)
    (last,) = counter.ask(drop(most=5, after=first.place), origin=OPERATING)
    assert isinstance(last, Dropped)
    assert (last.messages, last.has_more) == (5, False)


def test_what_is_to_be_forgotten_is_claimed_and_the_worker_hears_of_it() -> None:
    counter = Counter()
    counter.put(0, 4)
    messages = read(counter.ask(Flow(ROUTE, NAME, 2)))
    *found, dropped = counter.ask(drop(most=3, forgets=True), origin=OPERATING)
    assert found[:2] == claims(messages)
    assert isinstance(dropped, Dropped)
    assert dropped.messages == 3
    (sentence,) = counter.answers()
    assert sentence == Sentence(route=ROUTE, address=None, place=dropped.place, forgets=True)


def returned(messages: list[StoredMessage]) -> Return:
    """Gives messages of one segment back."""
    places: list[Place] = [message.claim.place for message in messages]
    positions = b"".join([position_of(place).to_bytes(4, "little") for place in places])
    return Return(segment_of(places[0]), messages[0].claim.queue, positions)


def test_a_run_that_is_given_back_is_read_again_in_its_turn() -> None:
    counter = Counter()
    counter.put(0, 10)
    messages = messages_in(counter.ask(Flow(ROUTE, NAME, 10)))
    again = messages_in(counter.ask(returned(messages[4:]), Flow(ROUTE, NAME, 20)))
    assert numbers(again) == [*range(4, 10)]
    assert not messages_in(counter.answers())


def test_what_is_given_back_twice_or_in_parts_is_read_once() -> None:
    counter = Counter()
    counter.put(0, 10)
    messages = messages_in(counter.ask(Flow(ROUTE, NAME, 10)))
    counter.ask(Back(messages[7].claim), returned(messages[5:]), returned(messages[2:4]))
    again = messages_in(counter.ask(Flow(ROUTE, NAME, 20)))
    assert numbers(again) == [2, 3, *range(5, 10)]


def test_what_is_said_to_be_gone_is_not_given_back() -> None:
    counter = Counter()
    counter.put(0, 10)
    messages = messages_in(counter.ask(Flow(ROUTE, NAME, 10)))
    counter.custodian.forward([messages[6].claim])
    counter.custodian.append()
    again = messages_in(counter.ask(returned(messages[4:]), Flow(ROUTE, NAME, 20)))
    assert numbers(again) == [4, 5, 7, 8, 9]


def test_who_does_not_read_a_route_any_more_gives_nothing_back() -> None:
    counter = Counter()
    counter.put(0, 10)
    messages = messages_in(counter.ask(Flow(ROUTE, NAME, 10)))
    assert len(messages_in(counter.ask(Flow(ROUTE, NAME, 10), origin=TWO))) == 10
    counter.ask(returned(messages), origin=ONE)
    assert not messages_in(counter.ask(Flow(ROUTE, NAME, 10), origin=TWO))
