"""Peers that take small frames, or have more unsettled than any frame takes, resume their links.

Raw frames against a router that runs, with one worker and with two.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from router.model.condition import NOT_ALLOWED
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.service.errands import LOAD_SECONDS
from router.wire.v1_0.fitting import AT_END
from router.wire.v1_0.performatives import Detach, Disposition, Flow, Transfer
from tests.support.durable import worker_of
from tests.support.frame_line import FrameLine, Unsettled
from tests.support.frame_resuming import ResumingReceiver, ResumingSender
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

CONFIG = """
router:
  {{id: under-test, workers: {workers}, admin: off, log_format: json, drain_seconds: 1s}}
listeners: [{{bind: "127.0.0.1:0"}}]
limits: {{link_credit: 10000}}
routes:
  - {{address: once.#, guarantee: exactly-once, unroutable: hold, link_credit: 10000}}
  - {{address: least.#, unroutable: hold, link_credit: 10000}}
"""

SIZES = [(512, 40), (4096, 240), (65536, 5000)]
"""Largest frame of the peer, and how many deliveries it has unsettled."""

PLACES = [(1, 1, 1), (2, 1, 2), (2, 2, 1)]
"""How many workers there are; where the connection is that resumes, and the other one."""


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, RunningRouter]]:
    """A router with one worker, and one with two."""
    with ExitStack() as stack:
        yield {
            workers: stack.enter_context(
                running_router(
                    CONFIG.format(workers=workers), tmp_path_factory.mktemp(f"workers-{workers}")
                )
            )
            for workers in (1, 2)
        }


class Lines:
    """Opens connections, at the worker that is wanted, and closes them all."""

    def __init__(self, router: RunningRouter, workers: int) -> None:
        self.router, self.workers = router, workers
        self.all: list[FrameLine] = []
        self._name = uuid.uuid4().hex[:8]  # the log suppresses lines of a container that has many

    def open(self, container: str, at: int, max_frame_size: int = 65536) -> FrameLine:
        while True:
            line = FrameLine(address_of(self.router), f"{container}-{self._name}", max_frame_size)
            self.all.append(line)
            if self.workers == 1 or worker_of(self.router, line.sock) == at:
                line.begin()
                return line
            time.sleep(LOAD_SECONDS)  # by then it is known where there are fewer

    def close(self) -> None:
        for line in self.all:
            if not line.is_over:
                line.cut()


@pytest.fixture
def lines(routers: dict[int, RunningRouter], places: tuple[int, int, int]) -> Iterator[Lines]:
    """Connections to the router with as many workers as the places say."""
    made = Lines(routers[places[0]], places[0])
    yield made
    made.close()


def body(number: int) -> bytes:
    return b"\x00\x53\x75\xa0\x04%04d" % number


def tag(number: int) -> bytes:
    return b"%04d" % number


def send_all(line: FrameLine, count: int) -> None:
    """Sends deliveries as fast as credit comes."""
    credit = sent = 0
    while sent < count:
        if sent == credit:
            flow = line.expect(Flow, lambda flow: flow.handle is not None)
            credit = (flow.delivery_count or 0) + (flow.link_credit or 0)
            continue
        line.transfer(sent, tag(sent), body(sent))
        sent += 1


def received(line: FrameLine, count: int) -> dict[bytes, int]:
    """Takes deliveries; gives the ids of their tags."""
    found: dict[bytes, int] = {}
    while len(found) < count:
        transfer = line.expect(Transfer)
        assert transfer.delivery_tag is not None
        assert transfer.delivery_id is not None
        found[transfer.delivery_tag] = transfer.delivery_id
    return found


def await_settled(line: FrameLine, count: int) -> None:
    """Waits until so many deliveries have been settled by the router."""
    settled = 0
    while settled < count:
        told = line.expect(Disposition, lambda told: told.settled)
        settled += 1 + ((told.last or told.first) - told.first)
    assert settled == count


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize(("octets", "count"), SIZES[:2])
def test_a_sender_with_small_frames_resumes_what_it_has_unsettled(
    lines: Lines, places: tuple[int, int, int], route: str, octets: int, count: int
) -> None:
    address = f"{route}.out.{octets}.{places[1]}"
    other = lines.open("east", places[2])
    other.attach_receiver("in", address, credit=count)
    line = lines.open("west", places[1], octets)
    line.attach_sender("out", address)
    send_all(line, count)
    numbers = received(other, count)
    line.cut()
    other.dispose(Role.RECEIVER, 0, max(numbers.values()), state=ACCEPTED)
    other.fence()
    line = lines.open("west", places[1], octets)
    sender = ResumingSender(
        name="out",
        address=address,
        line=line,
        unsettled={tag(number): None for number in range(count)},
        bodies={tag(number): body(number) for number in range(count)},
    )
    sender.resume()
    await_settled(other, count)
    assert not sender.unsettled
    assert not sender.anew
    assert line.largest <= octets
    assert sender.rounds <= 2 + count // 3
    assert sum(len(each) for each in sender.maps) <= count * 2


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize(("octets", "count"), SIZES[:2])
def test_a_receiver_with_small_frames_resumes_what_it_has_unsettled(
    lines: Lines, places: tuple[int, int, int], route: str, octets: int, count: int
) -> None:
    address = f"{route}.in.{octets}.{places[1]}"
    line = lines.open("east", places[1], octets)
    line.attach_receiver("in", address, credit=count)
    other = lines.open("west", places[2])
    other.attach_sender("out", address)
    send_all(other, count)
    numbers = received(line, count)
    assert len(numbers) == count
    line.cut()
    line = lines.open("east", places[1], octets)
    receiver = ResumingReceiver(
        name="in", address=address, line=line, unsettled=dict.fromkeys(numbers, ACCEPTED)
    )
    settle_as_told(other, receiver, count)
    assert not receiver.unsettled
    assert not receiver.taken
    assert line.largest <= octets


def settle_as_told(other: FrameLine, receiver: ResumingReceiver, count: int) -> None:
    """Has a receiver resume while the sender settles what it is told."""
    told = 0

    def settle() -> None:
        nonlocal told
        while told < count:
            each = other.expect(Disposition)
            last = each.first if each.last is None else each.last
            assert each.state == ACCEPTED
            told += last - each.first + 1
            other.dispose(Role.SENDER, each.first, last, state=ACCEPTED, settled=True)

    thread = threading.Thread(target=settle)
    thread.start()
    receiver.resume()
    thread.join()
    assert told == count


MANY = 5000
"""Unsettled at both ends: more than their maps, of 500 entries, and those of the router tell."""


@pytest.mark.parametrize("lost", [0, 500])
@pytest.mark.parametrize("octets", [4096, 16384])
@pytest.mark.parametrize("places", PLACES)
def test_a_sender_that_was_reset_behind_its_settlements_comes_to_an_end_of_reducing(
    lines: Lines, places: tuple[int, int, int], octets: int, lost: int
) -> None:
    """It has settled 500, and perhaps sent 500, of which the router has heard nothing."""
    address = f"once.many.{octets}.{lost}.{places[1]}"
    other = lines.open("east", places[2])
    other.attach_receiver("in", address, credit=MANY + lost + 1)
    line = lines.open("west", places[1], octets)
    line.attach_sender("out", address)
    send_all(line, MANY)
    numbers = received(other, MANY)
    other.dispose(Role.RECEIVER, 0, max(numbers.values()), state=ACCEPTED)
    other.fence()
    line.cut()
    line = lines.open("west", places[1], octets)
    everything = range(MANY + lost)
    sender = ResumingSender(
        name="out",
        address=address,
        line=line,
        unsettled={tag(number): None for number in everything[500:]},
        bodies={tag(number): body(number) for number in everything},
        entries=500,
    )
    sender.resume()
    sender.repeat_credit()
    await_settled(other, MANY)
    assert not sender.unsettled
    assert sorted(sender.anew) == [tag(number) for number in everything[MANY:]]
    sender.transfer(b"new", body(9999))
    _, payload = other.wait(Transfer)
    assert payload == body(9999)


@pytest.mark.parametrize("lost", [0, 500])
@pytest.mark.parametrize("octets", [4096, 16384])
@pytest.mark.parametrize("places", PLACES)
def test_a_receiver_that_has_not_heard_settlements_comes_to_an_end_of_reducing(
    lines: Lines, places: tuple[int, int, int], octets: int, lost: int
) -> None:
    """It has not heard that 500 are settled, and perhaps never got the last 500."""
    address = f"once.more.{octets}.{lost}.{places[1]}"
    line = lines.open("east", places[1], octets)
    line.attach_receiver("in", address, credit=MANY + lost)
    other = lines.open("west", places[2])
    other.attach_sender("out", address)
    send_all(other, MANY)
    numbers = received(line, MANY)
    tags = sorted(numbers, key=lambda each: numbers[each])
    line.dispose(Role.RECEIVER, 0, 499, state=ACCEPTED)
    told = other.expect(Disposition)
    assert (told.first, told.last) == (0, 499)
    other.dispose(Role.SENDER, 0, 499, state=ACCEPTED, settled=True)
    other.fence()
    if lost:
        for number in range(MANY, MANY + lost):
            other.transfer(number, tag(number), body(number))
        other.fence()
    line.cut()
    line = lines.open("east", places[1], octets)
    receiver = ResumingReceiver(
        name="in",
        address=address,
        line=line,
        unsettled=dict.fromkeys(tags, ACCEPTED),
        entries=500,
        awaits=lost,
    )
    settle_as_told(other, receiver, MANY - 500 + lost)
    assert not receiver.unsettled
    assert receiver.taken == [body(number) for number in range(MANY, MANY + lost)]


@pytest.mark.parametrize("places", PLACES)
def test_what_is_new_after_an_incomplete_map_of_ours_is_answered_with_a_detach(
    lines: Lines, places: tuple[int, int, int]
) -> None:
    """§2.7.3: "MUST detach with an error"; what is unsettled is not lost by that."""
    address = f"once.new.{places[1]}"
    other = lines.open("east", places[2])
    other.attach_receiver("in", address, credit=100)
    line = lines.open("west", places[1], 512)
    line.attach_sender("out", address)
    send_all(line, 40)
    received(other, 40)
    line.cut()
    line = lines.open("west", places[1], 512)
    told: Unsettled = {tag(number): None for number in range(40)}
    answer = line.attach_sender("out", address, told)
    assert answer.incomplete_unsettled
    line.expect(Flow, lambda flow: (flow.link_credit or 0) > 0)
    line.transfer(0, b"new", body(41))
    detach = line.expect(Detach)
    assert detach.error is not None
    assert detach.error.name == NOT_ALLOWED
    assert not detach.closed
    line.send(Detach(0))
    other.dispose(Role.RECEIVER, 0, 39, state=ACCEPTED)
    other.fence()
    line = lines.open("west", places[1], 65536)
    answer = line.attach_sender("out", address, told)
    kept = dict(answer.unsettled or {})
    assert kept.keys() == told.keys()
    assert set(kept.values()) <= {ACCEPTED, AT_END}  # no outcome is told that is not durable yet
    assert other.take(Transfer) == []
