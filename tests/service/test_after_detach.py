"""What a peer says of deliveries after it has detached their link counts (§2.6.4, §2.7.6).

Raw frames against a router that runs: a receiver that disposes of deliveries, a sender that settles
them, with one worker and with two, by links that lead through to another worker and by such that do
not.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import attrs
import pytest

from router.model.condition import INTERNAL_ERROR, Condition
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.model.terminus import ALL_OUTCOMES, ExpiryPolicy, Role, Source, Target
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Detach, Disposition, Flow, Transfer, encode
from tests.support.durable import worker_of
from tests.support.frame_line import KEPT, FrameLine, Unsettled
from tests.support.running import RunningRouter, running_router
from tests.support.workers import address_of

CONFIG = """
router:
  {{id: under-test, workers: {workers}, admin: off, log_format: json, drain_seconds: 1s}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes:
  - {{address: once.#, guarantee: exactly-once, unroutable: hold}}
  - {{address: least.#}}
"""

BODIES = [b"\x00\x53\x75\xa0\x01%d" % number for number in range(6)]
REJECTED = Rejected(Condition("test:bad", "no"))

Places = tuple[int, int, int]
"""How many workers there are, where the receiver's connection is, and where the sender's."""

PLACES: list[Places] = [(1, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2)]

_names = itertools.count(1)


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


@attrs.define(eq=False)
class Scene:
    """A sender and a receiver of an address that nobody else uses.

    Attributes:
        keeping: of the termini at the router.
    """

    routers: dict[int, RunningRouter]
    places: Places
    route: str
    is_second: bool = True
    keeping: dict[str, Any] = attrs.field(factory=dict)
    number: int = attrs.field(factory=lambda: next(_names), init=False)
    lines: list[FrameLine] = attrs.field(factory=list, init=False)
    receiver: FrameLine = attrs.field(init=False)
    sender: FrameLine = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        _, receiver_at, sender_at = self.places
        self.receiver = self.line("east", receiver_at)
        self.sender = self.line("west", sender_at)

    def line(self, container: str, at: int) -> FrameLine:
        """Opens a connection that comes to a worker."""
        workers = self.places[0]
        router = self.routers[workers]
        while True:
            line = FrameLine(address_of(router), f"{container}-{self.number}")
            self.lines.append(line)  # those at the other worker stay, so that the next comes here
            if workers == 1 or worker_of(router, line.sock) == at:
                line.begin()
                return line

    @property
    def address(self) -> str:
        return f"{self.route}.{self.number}"

    def receive(
        self, name: str = "in", unsettled: Unsettled | None = None, handle: int = 0, credit: int = 9
    ) -> Unsettled | None:
        """Attaches the receiver's link, and grants credit; returns the router's map."""
        source = Source(address=self.address, outcomes=ALL_OUTCOMES, **self.keeping)
        answer = self.receiver.attach_receiver(
            name,
            self.address,
            unsettled,
            credit=credit,
            handle=handle,
            second=self.is_second,
            source=source,
        )
        return None if answer.unsettled is None else dict(answer.unsettled)

    def send(self, count: int = 1, name: str = "out", handle: int = 0, first: int = 0) -> None:
        """Attaches the sender's link, and sends."""
        self.sender.attach_sender(
            name,
            self.address,
            handle=handle,
            second=self.is_second,
            target=Target(address=self.address, **self.keeping),
        )
        self.sender.expect(
            Flow, lambda flow: flow.handle is not None and (flow.link_credit or 0) >= count
        )
        for number in range(first, first + count):
            self.sender.transfer(number, b"%d" % number, BODIES[number], handle=handle)

    def received(self, count: int) -> list[int]:
        """Waits for deliveries; returns their ids."""
        found = [self.receiver.wait(Transfer) for _ in range(count)]
        return [transfer.delivery_id or 0 for transfer, _ in found]

    def heard(self) -> Disposition:
        """Waits for the next disposition for the sender."""
        return self.sender.expect(Disposition)

    def settle(self, told: Disposition) -> None:
        """Settles as the sender what it was told of, where it was not settled by that."""
        if not told.settled:
            last = told.first if told.last is None else told.last
            self.sender.dispose(Role.SENDER, told.first, last, state=told.state, settled=True)

    def close(self) -> None:
        """Ends all connections."""
        for line in self.lines:
            if not line.is_over:
                line.cut()


@pytest.fixture
def make(routers: dict[int, RunningRouter]) -> Iterator[Callable[..., Scene]]:
    """Makes scenes, which are closed when the test is over."""
    made: list[Scene] = []

    def make_one(*arguments: Any, **fields: Any) -> Scene:
        made.append(Scene(routers, *arguments, **fields))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_that_a_receiver_tells_after_its_detach_reaches_the_sender(
    make: Callable[..., Scene],
    places: Places,
    route: str,
    state: DeliveryState,
    settled: bool,
) -> None:
    scene = make(places, route)
    scene.receive()
    scene.send()
    (number,) = scene.received(1)
    scene.receiver.detach()
    scene.receiver.dispose(Role.RECEIVER, number, state=state, settled=settled)
    told = scene.heard()
    assert (told.first, told.state) == (0, state)
    scene.settle(told)
    if not settled:
        final = scene.receiver.expect(Disposition)
        assert (final.first, final.state, final.settled) == (number, state, True)
    assert not scene.receive()
    scene.receiver.fence()
    assert scene.receiver.take(Transfer) == []


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED])
def test_what_a_receiver_gives_back_after_its_detach_goes_to_the_next_one(
    make: Callable[..., Scene],
    places: Places,
    route: str,
    state: DeliveryState,
) -> None:
    scene = make(places, route, keeping=KEPT)
    scene.receive()
    scene.send()
    (number,) = scene.received(1)
    scene.receive("other", handle=1)
    scene.receiver.detach()
    scene.receiver.dispose(Role.RECEIVER, number, state=state, settled=True)
    _, payload = scene.receiver.wait(Transfer)
    assert payload.endswith(BODIES[0])
    assert (payload == BODIES[0]) is (state is RELEASED)


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
def test_a_sender_hears_and_settles_after_its_detach(
    make: Callable[..., Scene], places: Places, route: str
) -> None:
    scene = make(places, route)
    scene.receive()
    scene.send(2)
    first, second = scene.received(2)
    scene.receiver.dispose(Role.RECEIVER, first, state=ACCEPTED)
    assert scene.heard().first == 0
    scene.sender.detach()
    scene.sender.dispose(Role.SENDER, 0, state=ACCEPTED, settled=True)
    final = scene.receiver.expect(Disposition)
    assert (final.first, final.settled) == (first, True)
    scene.receiver.dispose(Role.RECEIVER, second, state=REJECTED)
    told = scene.heard()
    assert (told.first, told.state) == (1, REJECTED)
    scene.settle(told)
    final = scene.receiver.expect(Disposition)
    assert (final.first, final.settled) == (second, True)


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
def test_one_disposition_speaks_of_detached_and_attached_links(
    make: Callable[..., Scene], places: Places, route: str
) -> None:
    scene = make(places, route)
    for handle in range(3):
        scene.receive(f"in-{handle}", handle=handle, credit=6)
    scene.send(6)
    numbers = scene.received(6)
    scene.receiver.detach(0)
    scene.receiver.detach(2)
    scene.receiver.dispose(Role.RECEIVER, min(numbers), max(numbers), state=ACCEPTED, settled=True)
    told: set[int] = set()
    while len(told) < 6:
        each = scene.heard()
        assert each.state == ACCEPTED
        scene.settle(each)
        told |= set(range(each.first, (each.first if each.last is None else each.last) + 1))
    assert told == set(range(6))


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
def test_what_follows_a_detach_in_the_same_octets_counts(
    make: Callable[..., Scene],
    places: Places,
    route: str,
    state: DeliveryState,
) -> None:
    scene = make(places, route)
    scene.receive()
    scene.send(2)
    first, second = scene.received(2)
    told = Disposition(Role.RECEIVER, first, second, True, state)
    scene.receiver.sock.sendall(frame(0, encode(Detach(0))) + frame(0, encode(told)))
    scene.receiver.expect(Detach)
    heard = scene.heard()
    assert (heard.first, heard.last, heard.state) == (0, 1, state)


@pytest.mark.parametrize("route", ["once", "least"])
@pytest.mark.parametrize("places", PLACES)
def test_with_the_default_terminus_another_receiver_gets_it_when_the_session_ends(
    make: Callable[..., Scene], places: Places, route: str
) -> None:
    """The terminus expires with its session (§3.5.6), though the connection stays."""
    scene = make(places, route, is_second=False)
    scene.receive()
    scene.send()
    scene.received(1)
    other = scene.line("other", places[1])
    other.attach_receiver("in", scene.address, credit=1, second=False)
    scene.receiver.detach()
    other.fence()
    assert other.take(Transfer) == []
    scene.receiver.end()
    if route == "once":  # it may have been taken, so it is in doubt
        other.fence()
        assert other.take(Transfer) == []
    else:
        _, payload = other.wait(Transfer)
        assert payload.endswith(BODIES[0])


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("how", [{"closed": True}, {"error": Condition(INTERNAL_ERROR)}])
def test_what_follows_a_close_or_an_error_does_not_count(
    make: Callable[..., Scene],
    places: Places,
    how: dict[str, Any],
) -> None:
    """The link's end is destroyed by it (§2.6.5, §2.6.6)."""
    scene = make(places, "least", is_second=False)
    scene.receive()
    scene.send()
    (number,) = scene.received(1)
    other = scene.line("other", places[1])
    other.attach_receiver("in", scene.address, credit=1, second=False)
    scene.receiver.detach(**how)
    scene.receiver.dispose(Role.RECEIVER, number, state=REJECTED, settled=True)
    scene.receiver.end()
    _, payload = other.wait(Transfer)
    assert payload.endswith(BODIES[0])
    assert scene.sender.take(Disposition) == []


def test_a_terminus_of_policy_link_detach_counts_down_with_its_deliveries_spoken_of(
    make: Callable[..., Scene],
) -> None:
    for places in ((1, 1, 1), (2, 2, 2)):
        keeping = {"expiry_policy": ExpiryPolicy.LINK_DETACH, "expiry_seconds": 1}
        scene = make(places, "once", keeping=keeping)
        scene.receive()
        scene.send(2)
        first, _ = scene.received(2)
        scene.receiver.detach()
        scene.receiver.dispose(Role.RECEIVER, first, state=ACCEPTED, settled=True)
        assert scene.heard().first == 0
        held = f'"address": "{scene.address}", "count": 1, "event": "link.held"'
        scene.routers[places[0]].wait_for(held)
