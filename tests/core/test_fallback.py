"""A route's fallback takes what nobody receives, and is pulled back when somebody does."""

from collections.abc import Mapping
from random import Random

import attrs
import pytest

from router.core.snapshot import RouteRecord
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED, Modified, Rejected
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Unroutable
from router.routes.table import RoutingTable
from router.wire.original import ADDRESS_ANNOTATION
from router.wire.v1_0.sections import AnnotatedMessage, Properties, decode_message, encode_message
from tests.support.fleet import Fleet
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd

ROUTE = Route(address="rpc.a", fallback=Endpoint("broker", "overflow"))
SHARED = Route(address="rpc.#", fallback=Endpoint("broker", "overflow"))
NOT_TAKEN: tuple[object, ...] = (None, (RELEASED, True))
NO_ROOM = Rejected(Condition("amqp:resource-limit-exceeded", "the queue is full"))


def message(text: str, **fields: object) -> bytes:
    return encode_message(AnnotatedMessage(data=[text.encode()], **fields))  # type: ignore[arg-type]


def text_of(delivery: OutgoingDelivery) -> str:
    return b"".join(decode_message(delivery.payload).data).decode()


def texts(end: ReceiverEnd) -> list[str]:
    return [text_of(delivery) for delivery in end.received]


def marks(end: ReceiverEnd) -> list[object]:
    """The addresses that messages carry."""
    found = (decode_message(each.payload).message_annotations or {} for each in end.received)
    return [dict(each).get(ADDRESS_ANNOTATION) for each in found]


def waiting(route: Route = ROUTE, credit: int = 10) -> tuple[Play, Peer, SenderEnd, ReceiverEnd]:
    """A sender whose address nobody receives from, and the fallback's queue."""
    play = Play(route)
    broker = play.dial("broker")
    sender = play.connect().attach_sender("rpc.a")
    return play, broker, sender, broker.answer_receiver("overflow", credit=credit)


def bring_back(source: SenderEnd, queue: ReceiverEnd) -> list[DeliveryNumber]:
    """The broker sends what its queue has, as it got it."""
    return [
        number
        for delivery in queue.received
        for number in source.send(delivery.payload, protocol=delivery.protocol)
    ]


def configure(play: Play, *routes: Route) -> None:
    play.carry_out(play.core.configure(RoutingTable(routes), play.now))


def record(play: Play, name: str = "rpc.a") -> RouteRecord:
    return next(each for each in play.core.surveyor.survey(play.now).routes if each.name == name)


# --- towards the fallback -------------------------------------------------------------------------


def test_what_nobody_receives_goes_to_the_fallback_and_its_outcome_to_the_sender() -> None:
    play, _, sender, queue = waiting()
    assert sender.credit == 10
    accepted, rejected = sender.send(message("a"), message("b"))
    assert texts(queue) == ["a", "b"]
    assert sender.outcome(accepted) is None
    queue.update(queue.received[0].number, state=ACCEPTED)
    queue.update(queue.received[1].number, state=NO_ROOM)
    assert sender.outcome(accepted) == (ACCEPTED, True)
    assert sender.outcome(rejected) == (NO_ROOM, True)
    assert "fallback.used" in play.events()


def test_each_message_carries_its_address_and_its_bare_message_is_untouched() -> None:
    _, _, sender, queue = waiting()
    plain = message("a", properties=Properties(to="elsewhere", message_id="m"))
    annotated = message("b", message_annotations={"x-mine": 1})
    sender.send(plain, annotated)
    assert marks(queue) == ["rpc.a", "rpc.a"]
    assert queue.received[0].payload.endswith(plain)
    annotations = decode_message(queue.received[1].payload).message_annotations
    assert isinstance(annotations, Mapping)
    assert annotations["x-mine"] == 1


def test_the_fallback_gets_nothing_while_somebody_receives() -> None:
    play, _, sender, queue = waiting()
    receiver = play.connect().attach_receiver("rpc.a", credit=2)
    sender.send(message("a"), message("b"), message("c"))
    assert texts(receiver) == ["a", "b"]
    assert not queue.received
    receiver.accept()
    receiver.detach()
    assert texts(queue) == ["c"]
    assert play.events().count("fallback.used") == 2
    assert play.events().count("fallback.unused") == 1


def test_what_every_receiver_has_returned_goes_to_the_fallback() -> None:
    play, _, sender, queue = waiting()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    (number,) = sender.send(message("a"))
    receiver.update(receiver.last.number, state=RELEASED)
    assert texts(queue) == ["a"]
    queue.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_what_is_returned_without_an_outcome_to_give_goes_there_too() -> None:
    play, _, sender, queue = waiting()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    sender.send(message("a"), settled=True)
    receiver.update(receiver.last.number, state=RELEASED)
    assert texts(queue) == ["a"]


def test_a_returned_delivery_waits_for_the_credit_of_the_fallback() -> None:
    play, _, sender, queue = waiting(credit=0)
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    (number,) = sender.send(message("a"))
    receiver.update(receiver.last.number, state=RELEASED)
    assert not queue.received
    assert sender.outcome(number) is None
    receiver.detach()
    queue.grant(5)
    play.wait(40)
    assert texts(queue) == ["a"]


def test_what_receiver_and_fallback_return_is_the_senders_again() -> None:
    play, _, sender, queue = waiting()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    (number,) = sender.send(message("a"))
    receiver.update(receiver.last.number, state=RELEASED)
    queue.update(queue.last.number, state=RELEASED)
    assert sender.outcome(number) == (RELEASED, True)


def test_a_full_fallback_leaves_the_senders_without_credit() -> None:
    _, _, sender, queue = waiting(credit=2)
    sender.send(message("a"), message("b"))
    assert sender.credit == 0
    queue.grant(3)
    assert sender.credit == 3


def test_a_message_in_parts_goes_there_when_it_is_whole() -> None:
    _, _, sender, queue = waiting()
    octets = message("a" * 1000)
    sender.send(octets[:100], more=True)
    assert not queue.received
    sender.go_on(octets[100:], more=False)
    assert texts(queue) == ["a" * 1000]
    assert marks(queue) == ["rpc.a"]


def test_a_message_that_is_no_amqp_goes_there_as_it_is() -> None:
    _, _, sender, queue = waiting()
    sender.send(b"any", message_format=7)
    assert queue.payloads == [b"any"]


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [(Unroutable.RELEASE, RELEASED), (Unroutable.REJECT, Rejected), (Unroutable.DROP, ACCEPTED)],
)
def test_while_the_fallback_is_away_messages_wait_and_then_unroutable_decides(
    policy: Unroutable, outcome: object
) -> None:
    play, broker, sender, queue = waiting(attrs.evolve(ROUTE, unroutable=policy))
    broker.congest()
    numbers = sender.send(message("a"))
    broker.lose()
    assert sender.outcome(numbers[0]) is None
    play.wait(play.settings.failover_seconds or 60)
    told = sender.outcome(numbers[0])
    assert told is not None
    assert told[0] == outcome or (isinstance(outcome, type) and isinstance(told[0], outcome))
    assert not queue.received


def test_what_waits_for_a_fallback_that_is_away_goes_to_a_receiver_that_comes() -> None:
    play = Play(ROUTE)
    broker = play.dial("broker")
    sender = play.connect().attach_sender("rpc.a")
    queue = broker.answer_receiver("overflow", credit=10)
    broker.congest()
    sender.send(message("a"))
    assert not queue.received
    receiver = play.connect().attach_receiver("rpc.a", credit=10)
    assert texts(receiver) == ["a"]


def test_a_message_that_expires_does_not_go_there() -> None:
    play, broker, sender, queue = waiting(attrs.evolve(ROUTE, ttl_seconds=5.0))
    broker.congest()
    (number,) = sender.send(message("a"))
    play.wait(6)
    told = sender.outcome(number)
    assert told is not None
    assert isinstance(told[0], Modified)
    broker.congest(False)
    assert not queue.received


def test_the_rest_of_the_time_to_live_goes_with_it() -> None:
    _, _, sender, queue = waiting(attrs.evolve(ROUTE, ttl_seconds=5.0))
    sender.send(message("a"))
    assert queue.last.ttl_milliseconds == 5000


def test_a_multicast_goes_to_the_fallback_once() -> None:
    play, _, sender, queue = waiting(attrs.evolve(ROUTE, distribution=Distribution.MULTICAST))
    (number,) = sender.send(message("a"))
    queue.accept()
    assert sender.outcome(number) == (ACCEPTED, True)
    one = play.connect().attach_receiver("rpc.a", credit=5)
    other = play.connect().attach_receiver("rpc.a", credit=5)
    sender.send(message("b"))
    assert (texts(one), texts(other), texts(queue)) == (["b"], ["b"], ["a"])


def test_an_at_most_once_route_sends_settled_to_it_and_pulls_unsettled() -> None:
    play, broker, sender, queue = waiting(attrs.evolve(ROUTE, guarantee=Guarantee.AT_MOST_ONCE))
    (number,) = sender.send(message("a"))
    assert queue.last.settled
    assert sender.outcome(number) == (ACCEPTED, True)
    play.connect().attach_receiver("rpc.a", credit=5)
    source = broker.answer_sender("overflow")
    (back,) = bring_back(source, queue)
    assert source.outcome(back) == (ACCEPTED, True)  # it was sent


# --- back -----------------------------------------------------------------------------------------


def test_nothing_is_pulled_while_nobody_receives() -> None:
    _, broker, _, _ = waiting()
    assert broker.wants_sender() is None


def test_what_waits_in_the_fallback_goes_to_the_first_receiver_as_it_was_sent() -> None:
    play, broker, sender, queue = waiting()
    sent = [message("a", properties=Properties(to="x")), message("b")]
    sender.send(*sent)
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    source = broker.answer_sender("overflow")
    assert source.credit > 0
    numbers = bring_back(source, queue)
    assert receiver.payloads == sent
    receiver.accept()
    assert [source.outcome(number) for number in numbers] == [(ACCEPTED, True)] * 2
    assert not source.unsettled
    route = record(play)
    assert (route.sent.fallback, route.received.fallback) == (2, 2)


def test_what_was_pulled_goes_before_what_came_since() -> None:
    play, broker, sender, queue = waiting()
    sender.send(message("a"), message("b"))
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=1)
    sender.send(message("c"))
    sender.send(message("d"))
    source = broker.answer_sender("overflow")
    bring_back(source, queue)
    assert texts(receiver) == ["c"]
    for _ in range(3):
        receiver.accept(receiver.last.number)
        receiver.grant(1)
    assert texts(receiver) == ["c", "a", "b", "d"]


def test_what_was_pulled_does_not_go_to_the_fallback_again() -> None:
    play, broker, sender, queue = waiting()
    sender.send(message("a"), message("b"))
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=1)
    source = broker.answer_sender("overflow")
    numbers = bring_back(source, queue)
    assert texts(receiver) == ["a"]
    receiver.detach()
    assert texts(queue) == ["a", "b"]
    (late,) = source.send(queue.received[1].payload)  # it was on its way
    assert source.outcome(late) == (RELEASED, True)
    source.give_back_credit()
    play.wait(1)
    assert source.is_detached()
    assert all(source.outcome(number) in NOT_TAKEN for number in numbers)


def test_a_receiver_that_leaves_settles_what_it_has_before_the_link_ends() -> None:
    """Its deliveries are in doubt until it returns, so the queue must not send them again."""
    play, broker, sender, queue = waiting()
    sender.send(message("a"), message("b"))
    queue.accept()
    client = play.connect("robot")
    one = client.attach_receiver("rpc.a", credit=5, name="r", seconds=30)
    source = broker.answer_sender("overflow")
    numbers = bring_back(source, queue)
    one.accept(one.received[0].number)
    one.detach()
    assert source.outcome(numbers[0]) == (ACCEPTED, True)
    assert source.outcome(numbers[1]) in NOT_TAKEN
    again = play.connect("other").attach_receiver("rpc.a", credit=5)
    fresh = broker.answer_sender("overflow") if broker.wants_sender() else source
    assert not again.received
    fresh.send(queue.received[1].payload)
    assert texts(again) == ["b"]


def test_what_the_receivers_return_is_put_off_and_tried_again() -> None:
    play, broker, sender, queue = waiting()
    sender.send(message("a"))
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    source = broker.answer_sender("overflow")
    (number,) = bring_back(source, queue)
    receiver.update(receiver.last.number, state=RELEASED)
    assert source.outcome(number) is None
    assert len(queue.received) == 1
    play.wait(2)
    assert texts(receiver) == ["a", "a"]
    receiver.accept(receiver.last.number)
    assert source.outcome(number) == (ACCEPTED, True)


def test_one_queue_serves_many_addresses() -> None:
    play = Play(SHARED)
    broker = play.dial("broker")
    client = play.connect()
    senders = {name: client.attach_sender(name) for name in ("rpc.a", "rpc.b.c")}
    queues = [broker.answer_receiver("overflow", credit=10) for _ in senders]
    for name, sender in senders.items():
        sender.send(message(name))
    assert [marks(queue) for queue in queues] == [["rpc.a"], ["rpc.b.c"]]
    one = client.attach_receiver("rpc.a", credit=5)
    source = broker.answer_sender("overflow")
    for queue in reversed(queues):
        bring_back(source, queue)
    assert texts(one) == ["rpc.a"]
    other = client.attach_receiver("rpc.b.c", credit=5)
    assert texts(other) == ["rpc.b.c"]
    one.accept()
    other.accept()
    assert not source.unsettled
    assert broker.wants_sender() is None
    one.detach()
    assert source.is_live()
    other.detach()
    play.wait(6)
    assert source.is_detached()


def test_each_address_may_have_a_queue_of_its_own() -> None:
    play = Play(attrs.evolve(SHARED, address="rpc.*", fallback=Endpoint("broker", "wait.*")))
    broker = play.dial("broker")
    sender = play.connect().attach_sender("rpc.a")
    queue = broker.answer_receiver("wait.a", credit=10)
    sender.send(message("a"))
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=10)
    source = broker.answer_sender("wait.a")
    source.send(message("no mark"))
    bring_back(source, queue)
    assert texts(receiver) == ["no mark", "a"]


@pytest.mark.parametrize("foreign", ["other", "$management"])
def test_a_message_for_an_address_of_another_route_goes_nowhere(foreign: str) -> None:
    play = Play(SHARED, "other", "$management")
    broker = play.dial("broker")
    receiver = play.connect().attach_receiver("other", credit=10)
    play.connect().attach_receiver("rpc.a", credit=10)
    source = broker.answer_sender("overflow")
    (number,) = source.send(message("a", message_annotations={ADDRESS_ANNOTATION: foreign}))
    assert not receiver.received
    assert source.outcome(number) is None
    assert "delivery.unroutable" in play.events()


def test_messages_that_a_lost_fallback_will_bring_again_are_dropped_here() -> None:
    play, broker, sender, queue = waiting()
    sender.send(message("a"), message("b"))
    queue.accept()
    receiver = play.connect().attach_receiver("rpc.a", credit=1)
    source = broker.answer_sender("overflow")
    bring_back(source, queue)
    broker.lose()
    receiver.grant(5)
    assert texts(receiver) == ["a"]


# --- reloads --------------------------------------------------------------------------------------


def test_a_reload_adds_and_removes_the_fallback() -> None:
    plain = attrs.evolve(ROUTE, fallback=None)
    play = Play(plain)
    broker = play.dial("broker")
    sender = play.connect().attach_sender("rpc.a")
    assert (sender.credit, broker.wants_receiver()) == (0, None)
    configure(play, ROUTE)
    queue = broker.answer_receiver("overflow", credit=5)
    assert sender.credit == 5
    (number,) = sender.send(message("a"))
    configure(play, plain)
    assert queue.is_live()  # until the outcome is known
    assert sender.was_drained()
    queue.accept()
    assert sender.outcome(number) == (ACCEPTED, True)
    play.wait(1)
    assert queue.is_detached()
    receiver = play.connect().attach_receiver("rpc.a", credit=5)
    assert broker.wants_sender() is None
    configure(play, ROUTE)
    assert broker.wants_sender() == "overflow"
    source = broker.answer_sender("overflow")
    (back,) = bring_back(source, queue)
    configure(play, plain)
    assert source.is_live()
    receiver.accept()
    assert source.outcome(back) == (ACCEPTED, True)
    play.wait(6)
    assert source.is_detached()


def test_a_reload_moves_the_fallback_to_another_queue() -> None:
    play, broker, sender, queue = waiting()
    sender.send(message("a"))
    configure(play, attrs.evolve(ROUTE, fallback=Endpoint("broker", "other")))
    other = broker.answer_receiver("other", credit=5)
    sender.send(message("b"))
    assert (texts(queue), texts(other)) == (["a"], ["b"])
    queue.accept()
    play.wait(1)
    assert queue.is_detached()
    assert other.is_live()


# --- two workers ----------------------------------------------------------------------------------


def two(route: Route = ROUTE) -> tuple[Fleet, Peer]:
    """Two workers, of which the first dials the fallback's container."""
    fleet = Fleet(2, route, owned=[{"broker"}])
    broker = fleet[1].dial("broker")
    fleet.settle()
    return fleet, broker


def test_a_sender_at_another_worker_reaches_the_fallback() -> None:
    fleet, broker = two()
    sender = fleet[2].connect().attach_sender("rpc.a")
    fleet.settle()
    queue = broker.answer_receiver("overflow", credit=5)
    fleet.settle()
    assert sender.credit == 5
    (number,) = sender.send(message("a"))
    fleet.settle()
    assert (texts(queue), marks(queue)) == (["a"], ["rpc.a"])
    queue.accept()
    fleet.settle()
    assert sender.outcome(number) == (ACCEPTED, True)


@pytest.mark.parametrize("sending", [1, 2])
@pytest.mark.parametrize("receiving", [1, 2])
def test_receivers_at_any_worker_come_before_the_fallback(sending: int, receiving: int) -> None:
    fleet, broker = two()
    sender = fleet[sending].connect().attach_sender("rpc.a")
    fleet.settle()
    queue = broker.answer_receiver("overflow", credit=50)
    fleet.settle()
    sender.send(message("a"))
    fleet.settle()
    queue.accept()
    fleet.settle()
    receiver = fleet[receiving].connect().attach_receiver("rpc.a", credit=5)
    fleet.settle()
    sender.send(message("b"))
    fleet.settle()
    assert texts(queue) == ["a"]
    source = broker.answer_sender("overflow")
    fleet.settle()
    (number,) = source.send(queue.received[0].payload)
    fleet.settle()
    assert sorted(texts(receiver)) == ["a", "b"]
    receiver.accept()
    fleet.settle()
    assert source.outcome(number) == (ACCEPTED, True)
    receiver.detach()
    fleet.settle()
    fleet.wait(6)
    assert source.is_detached()
    sender.send(message("c"))
    fleet.settle()
    assert texts(queue) == ["a", "c"]


def test_the_other_worker_is_no_receiver_because_it_has_the_fallback() -> None:
    fleet, broker = two()
    sender = fleet[2].connect().attach_sender("rpc.a")
    own = fleet[1].connect().attach_sender("rpc.a")
    fleet.settle()
    queue = broker.answer_receiver("overflow", credit=50)
    fleet.settle()
    assert (sender.credit, own.credit) == (50, 50)
    receiver = fleet[2].connect().attach_receiver("rpc.a", credit=20)
    fleet.settle()
    for _ in range(10):
        sender.send(message("a"))
        own.send(message("b"))
        fleet.settle()
    assert len(receiver.received) == 20
    assert not queue.received


def test_the_links_between_workers_change_their_meaning_with_the_receivers() -> None:
    fleet, broker = two()
    sender = fleet[2].connect().attach_sender("rpc.a")
    fleet.settle()
    queue = broker.answer_receiver("overflow", credit=50)
    fleet.settle()
    for turn in range(3):
        far = fleet[1].connect().attach_receiver("rpc.a", credit=5)
        fleet.settle()
        sender.send(message(f"far {turn}"))
        fleet.settle()
        assert texts(far) == [f"far {turn}"]
        far.accept()
        far.detach()
        fleet.settle()
        sender.send(message(f"queue {turn}"))
        fleet.settle()
        assert texts(queue)[-1] == f"queue {turn}"
        queue.accept(queue.last.number)
        fleet.settle()
    assert not sender.unsettled


# --- at random ------------------------------------------------------------------------------------


class Broker:
    """A queue that keeps what it accepted, and gives it back in order."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.kept: list[bytes] = []
        self.given: dict[tuple[SenderEnd, int], bytes] = {}
        self.seen = 0

    def work(self) -> None:
        peer = self.peer
        while peer.wants_receiver():
            peer.answer_receiver(credit=7)
        while peer.wants_sender():
            peer.answer_sender()
        for queue in tuple(peer.receives.values()):
            for delivery in [each for each in queue.received if each.number in queue.unsettled]:
                self.kept.append(delivery.payload)
                queue.accept(delivery.number)
            if queue.is_live():
                queue.grant(7)
        for (source, number), payload in tuple(self.given.items()):
            told = source.outcome(DeliveryNumber(number))
            if told is None and source.is_live():
                continue
            del self.given[source, number]
            if told is None or told[0] != ACCEPTED:
                self.kept.insert(0, payload)
        for source in tuple(peer.sends.values()):
            while source.is_live() and source.credit > 0 and self.kept:
                payload = self.kept.pop(0)
                (number,) = source.send(payload)
                self.given[source, number] = payload


class Crowd:
    """Senders and receivers of two addresses at two workers, which act at random."""

    names = ("rpc.a", "rpc.b")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.returns = 0.3
        self.fleet = Fleet(2, SHARED, owned=[{"broker"}])
        self.broker = Broker(self.fleet[1].dial("broker"))
        self.fleet.settle()
        self.senders = [
            (name, self.fleet[worker].connect().attach_sender(name))
            for name in self.names
            for worker in (1, 2)
        ]
        self.sent: list[str] = []
        self.taken: list[str] = []
        self.unsettled: dict[tuple[SenderEnd, int], str] = {}
        self.receivers: list[tuple[str, ReceiverEnd]] = []

    def send(self) -> None:
        name, sender = self.random.choice(self.senders)
        while sender.credit > 0 and self.random.random() < 0.8:
            text = f"{name} {len(self.sent)}"
            self.sent.append(text)
            is_settled = self.random.random() < 0.2
            (number,) = sender.send(message(text), settled=is_settled)
            if not is_settled:
                self.unsettled[sender, number] = text

    def join(self, name: str, worker: int, credit: int) -> None:
        end = self.fleet[worker].connect().attach_receiver(name, credit=credit)
        self.receivers.append((name, end))

    def receive(self, leaving: ReceiverEnd | None = None) -> None:
        for name, end in self.receivers:
            for delivery in [each for each in end.received if each.number in end.unsettled]:
                if end is leaving or self.random.random() < self.returns:
                    end.update(delivery.number, state=RELEASED)
                    continue
                assert text_of(delivery).startswith(f"{name} ")
                self.taken.append(text_of(delivery))
                end.accept(delivery.number)
            if end is not leaving:
                end.grant(self.random.randint(1, 5))

    def leave(self) -> None:
        name, end = self.random.choice(self.receivers)
        self.receive(end)
        self.receivers.remove((name, end))
        end.detach()

    def step(self) -> None:
        chance = self.random.random
        self.send()
        self.fleet.settle()
        if chance() < 0.7:
            self.broker.work()
        self.fleet.settle()
        if chance() < 0.2:
            self.join(self.random.choice(self.names), self.random.choice((1, 2)), 3)
        self.fleet.settle()
        self.receive()
        self.fleet.settle()
        if self.receivers and chance() < 0.3:
            self.leave()
        self.fleet.settle()
        self.fleet.wait(self.random.choice((0.01, 0.3, 2)))

    def finish(self) -> None:
        for name in self.names:
            self.join(name, 1, 50)
        self.returns = 0.0
        for _ in range(100):
            self.fleet.settle()
            self.broker.work()
            self.fleet.settle()
            self.receive()
            self.fleet.wait(1)


@pytest.mark.parametrize("seed", range(6))
def test_while_receivers_come_and_go_no_message_is_lost_or_doubled(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(60):
        crowd.step()
    crowd.finish()
    told = {
        text: end.outcome(DeliveryNumber(number)) for (end, number), text in crowd.unsettled.items()
    }
    returned = [text for text, outcome in told.items() if outcome == (RELEASED, True)]
    assert set(told.values()) <= {(ACCEPTED, True), (RELEASED, True)}
    assert sorted(crowd.taken + returned) == sorted(crowd.sent)
    assert len(returned) < len(crowd.sent) / 10
    assert not crowd.broker.kept
