"""Sessions of 0-10 follow their client to whichever worker it comes back to."""

import random
from collections import Counter

import pytest

from router.core.memories import PATIENCE_SECONDS
from router.routes.route import Distribution, Guarantee, Route
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.reply import DetachCode
from tests.support.fleet import Fleet
from tests.support.peer_0_10 import Transfer
from tests.support.roaming import Roamer, Town, Wanderer, led_through

ORDERS = Route(address="orders")
EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
NEWS = Route(address="news", distribution=Distribution.MULTICAST)
NEW = r.SessionExpected(())


def town(*routes: Route, workers: int = 3) -> Town:
    return Town(Fleet(workers, *(routes or (ORDERS,))))


def receiver(place: Town, worker: int, name: bytes = b"sink", address: str = "orders") -> Roamer:
    client = place.come(worker)
    client.enter(name)
    client.control(r.SessionCommandPoint(0, 0))
    client.subscribe(address)
    return client


def sender(place: Town, worker: int, *bodies: bytes, name: bytes = b"source") -> Roamer:
    client = place.come(worker)
    client.enter(name)
    client.control(r.SessionCommandPoint(0, 0))
    client.publish("orders", *bodies)
    return client


def back(place: Town, worker: int, name: bytes, expected: int | None, **options: bool) -> Roamer:
    """The client of a session comes back; it says what it expects."""
    client = place.come(worker)
    assert r.SessionAttached(name) in client.enter(name, **options)
    client.control(r.SessionExpected(() if expected is None else ((expected, expected),)))
    return client


def test_a_session_that_is_nowhere_is_new() -> None:
    place = town()
    client = place.come(2)
    assert r.SessionAttached(b"s") in client.enter()
    assert client.expected() == NEW


@pytest.mark.parametrize("comes_back", [1, 2, 3])
@pytest.mark.parametrize("route", [ORDERS, EXACT])
def test_a_sender_hears_the_outcome_wherever_it_comes_back(route: Route, comes_back: int) -> None:
    place = town(route)
    sink = receiver(place, 1)
    source = sender(place, 2, b"one", b"two")
    assert sink.bodies() == Counter([b"one", b"two"])
    source.lose()
    sink.command(r.MessageAccept(((0, 1),)))  # nobody is there to hear it
    again = back(place, comes_back, b"source", None)
    assert again.expected() == r.SessionExpected(((2, 2),))
    assert again.heard(r.MessageAccept) == [r.MessageAccept(((0, 1),))]
    again.control(r.SessionCommandPoint(0, 0))
    again.publish("orders", b"one", b"two", b"three")  # it replays all that it has
    assert sink.bodies() == Counter([b"three"])
    sink.command(r.MessageAccept(((2, 2),)))
    assert again.heard(r.MessageAccept) == [r.MessageAccept(((2, 2),))]
    for worker in (1, 2, 3):
        assert not place.fleet[worker].core._registry.suspended


@pytest.mark.parametrize("comes_back", [1, 2, 3])
@pytest.mark.parametrize("route", [ORDERS, EXACT])
def test_a_receiver_gets_what_it_lacks_and_no_more(route: Route, comes_back: int) -> None:
    place = town(route)
    sink = receiver(place, 2)
    source = sender(place, 3, b"one", b"two", b"three")
    assert sink.bodies() == Counter([b"one", b"two", b"three"])
    sink.lose()
    again = back(place, comes_back, b"sink", 2)  # the third was lost
    assert again.bodies() == Counter([b"three"])
    again.control(r.SessionCommandPoint(4, 0))
    again.command(r.MessageAccept(((0, 2),)))
    accepts = [each.transfers for each in source.heard(r.MessageAccept)]
    assert accepts == [((0, 2),)]
    source.publish("orders", b"four")
    assert again.bodies() == Counter([b"four"])


def test_a_session_goes_on_from_place_to_place() -> None:
    place = town()
    sink = receiver(place, 1)
    client = sender(place, 1, b"a")
    for number, worker in enumerate((2, 3, 1, 3, 2), 1):
        client.lose()
        client = back(place, worker, b"source", None)
        assert client.expected() == r.SessionExpected(((number, number),))
        client.control(r.SessionCommandPoint(number, 0))
        client.publish("orders", b"%d" % number)
    assert sink.bodies() == Counter([b"a", b"1", b"2", b"3", b"4", b"5"])
    sink.command(r.MessageAccept(((0, 5),)))
    told: list[int] = []
    for each in client.heard(r.MessageAccept):
        for first, last in each.transfers or ():
            told += range(first, last + 1)
    assert sorted(told) == [0, 1, 2, 3, 4, 5]


def test_what_waits_for_a_receiver_goes_along() -> None:
    place = town()
    client = sender(place, 2, b"one", b"two")
    client.lose()
    again = back(place, 3, b"source", None)
    assert again.expected() == r.SessionExpected(((2, 2),))
    sink = receiver(place, 1)
    assert sink.bodies() == Counter([b"one", b"two"])


def test_subscriptions_go_on_where_the_session_is() -> None:
    place = town(NEWS)
    listener = receiver(place, 2, address="news")
    listener.lose()
    again = back(place, 3, b"sink", 0)
    source = place.come(1)
    source.enter(b"source")
    source.control(r.SessionCommandPoint(0, 0))
    source.publish("news", b"late")
    assert again.bodies() == Counter([b"late"])
    assert not led_through(place.fleet, 3)  # nothing was unsettled where it was


def test_a_session_in_use_is_busy_on_every_worker() -> None:
    place = town()
    client = place.come(1)
    client.enter()
    other = place.come(2)
    assert r.SessionDetached(b"s", DetachCode.SESSION_BUSY) in other.enter()
    assert not other.heard(r.SessionAttached)
    assert not client.heard(r.SessionDetached)


def test_whoever_insists_takes_it_from_a_connection_of_another_worker() -> None:
    place = town()
    sink = receiver(place, 1)
    client = sender(place, 2, b"one", b"two")
    other = back(place, 3, b"source", None, force=True)
    assert client.heard(r.SessionDetached) == [
        r.SessionDetached(b"source", DetachCode.SESSION_BUSY)
    ]
    client.publish("orders", b"void")  # it has no session any more
    assert sink.bodies() == Counter([b"one", b"two"])
    assert other.expected() == r.SessionExpected(((2, 2),))
    sink.command(r.MessageAccept(((0, 1),)))
    assert other.heard(r.MessageAccept) == [r.MessageAccept(((0, 1),))]


def test_a_session_without_a_timeout_ends_when_it_is_taken_and_the_new_one_begins_anew() -> None:
    place = town()
    client = place.come(2)
    client.attach(b"s", timeout=0)
    client.publish("orders", b"one")
    other = place.come(3)
    assert r.SessionAttached(b"s") in other.enter(force=True)
    assert other.expected() == NEW


def test_another_identity_gets_nothing() -> None:
    place = town()
    sink = receiver(place, 1)
    client = place.come(2, user="alice")
    client.enter()
    client.control(r.SessionCommandPoint(0, 0))
    client.publish("orders", b"one")
    client.lose()
    assert sink.bodies() == Counter([b"one"])
    for user in ("bob", None):
        other = place.come(3, user=user)
        other.enter(force=True)
        assert other.expected() == NEW
        other.lose()
    again = place.come(3, user="alice")
    again.enter()
    assert again.expected() == r.SessionExpected(((1, 1),))


def test_what_the_client_says_meanwhile_is_taken_up_behind_the_answer() -> None:
    place = town()
    client = place.come(2)
    place.fleet.cut(1, 2)
    place.fleet.join(1, 2)
    sink = receiver(place, 1)
    client.enter()
    client.control(r.SessionCommandPoint(0, 0))
    client.publish("orders", b"one")
    assert sink.bodies() == Counter([b"one"])


def test_a_sibling_that_dies_while_it_is_asked_has_nothing() -> None:
    place = town()
    client = sender(place, 2, b"one")
    client.lose()
    place.fleet.cut(2, 3)
    again = back(place, 3, b"source", None)
    assert again.expected() == NEW


def asking(place: Town, worker: int) -> Roamer:
    """A client whose attach has reached its worker, and nobody else so far."""
    client = place.come(worker)
    events = client.engine.receive_data(attach_octets(b"s"), client.play.now)
    client.hand_over(events)
    return client


def attach_octets(name: bytes) -> bytes:
    from router.wire.v0_10.codec import encode_control
    from router.wire.v0_10.framing import CONTROL, assembly

    return assembly(CONTROL, 1, encode_control(r.SessionAttach(name)), 65535)


def test_of_two_that_come_at_the_same_time_at_most_one_gets_it() -> None:
    place = town()
    one, two = asking(place, 2), asking(place, 3)
    place.settle()
    answers = [client.heard(r.SessionAttached) for client in (one, two)]
    assert answers.count([]) >= 1


def test_a_session_is_kept_even_if_its_client_leaves_before_it_arrives() -> None:
    place = town()
    client = place.come(2)
    client.enter()
    client.control(r.SessionCommandPoint(5, 0))
    client.command(r.ExecutionSync())
    client.lose()
    early = asking(place, 3)
    early.lose()
    again = place.come(1)
    again.enter()
    assert again.expected() == r.SessionExpected(((6, 6),))


def test_a_sibling_that_does_not_answer_makes_the_session_busy() -> None:
    place = town(workers=2)
    client = asking(place, 2)
    client.play.wait(PATIENCE_SECONDS + 1)
    assert client.heard(r.SessionDetached) == [r.SessionDetached(b"s", DetachCode.SESSION_BUSY)]
    assert "memory.unanswered" in client.play.events()


def test_a_session_larger_than_a_frame_moves_whole() -> None:
    place = town()
    bodies = [bytes([n]) * 300_000 for n in range(3)]
    client = sender(place, 2, *bodies)
    client.lose()
    again = back(place, 3, b"source", None)
    assert again.expected() == r.SessionExpected(((3, 3),))
    sink = receiver(place, 1)
    assert sink.bodies() == Counter(bodies)


def test_when_the_worker_dies_where_links_were_left_what_was_open_is_offered_again() -> None:
    place = town()
    sink = receiver(place, 1)
    client = sender(place, 2, b"one")
    client.lose()
    client = back(place, 3, b"source", None)
    assert led_through(place.fleet, 3) == 1
    place.fleet.cut(2, 3)
    place.fleet.cut(1, 2)
    assert client.heard(r.ConnectionClose)
    client.is_gone = True
    assert sink.bodies() == Counter([b"one"])
    sink.control(r.SessionCompleted(((0, 0),)))
    again = back(place, 1, b"source", None)
    assert again.expected() == r.SessionExpected(((1, 1),))
    (repeated,) = sink.heard(Transfer)
    assert repeated.body == b"one"


def lost_on_its_way(place: Town, client: Roamer, *commands: r.Command) -> None:
    """The client of the second worker says something, and the home is lost before it hears that."""
    octets = [assembly(COMMAND, 1, encode_command(each), 65535) for each in commands]
    client.hand_over(client.engine.receive_data(b"".join(octets), client.play.now))
    place.fleet.cut(1, 2)
    assert client.heard(r.ConnectionClose)
    client.lose()
    place.fleet.join(1, 2)


@pytest.mark.parametrize("comes_back", [1, 2, 3])
@pytest.mark.parametrize("kind", [r.MessageAccept, r.MessageReject, r.MessageRelease])
def test_an_outcome_that_was_lost_on_its_way_to_the_home_is_told_again(
    kind: type[r.MessageAccept | r.MessageReject | r.MessageRelease], comes_back: int
) -> None:
    place = town(EXACT)
    sink = receiver(place, 2)
    source = sender(place, 3, b"one", b"two", b"three")
    assert sink.bodies() == Counter([b"one", b"two", b"three"])
    lost_on_its_way(place, sink, kind(((0, 1),)))
    again = back(place, comes_back, b"sink", 3)
    assert not again.bodies()
    assert [each.transfers for each in source.heard(kind)] == [((0, 1),)]
    again.control(r.SessionCommandPoint(5, 0))
    again.command(r.MessageAccept(((2, 2),)))
    assert [each.transfers for each in source.heard(r.MessageAccept)] == [((2, 2),)]
    source.publish("orders", b"four")
    assert again.bodies() == Counter([b"four"])


@pytest.mark.parametrize("comes_back", [1, 2, 3])
def test_a_subscription_that_is_over_tells_again_what_was_lost(comes_back: int) -> None:
    place = town(EXACT)
    sink = receiver(place, 2)
    source = sender(place, 3, b"one")
    assert sink.bodies() == Counter([b"one"])
    lost_on_its_way(place, sink, r.MessageAccept(((0, 0),)), r.MessageCancel("orders"))
    again = back(place, comes_back, b"sink", 1)
    assert not again.bodies()
    assert source.heard(r.MessageAccept) == [r.MessageAccept(((0, 0),))]
    for worker in (1, 2, 3):
        core = place.fleet[worker].core
        assert not core._registry.suspended
        assert not [each for each in core._registry.attached.values() if each.unsettled]
    other = receiver(place, 1, b"other")
    source.publish("orders", b"two")
    assert other.bodies() == Counter([b"two"])


def test_local_queues_bindings_and_patterns_go_along() -> None:
    shown = Distribution.MULTICAST
    place = town(
        Route(address="news/#", distribution=shown), Route(address="heads", distribution=shown)
    )
    client = place.come(2)
    client.enter(b"sink")
    client.control(r.SessionCommandPoint(0, 0))
    client.command(
        r.ExchangeDeclare(exchange="news", type="topic"),
        r.ExchangeDeclare(exchange="heads", type="headers"),
        r.QueueDeclare(queue="mine", exclusive=True, auto_delete=True),
        r.ExchangeBind(queue="mine", exchange="news", binding_key="sport.#"),
        r.ExchangeBind(queue="mine", exchange="news", binding_key="local"),
        r.ExchangeBind(
            queue="mine", exchange="heads", binding_key="h", arguments={"x-match": "any", "a": 1}
        ),
    )
    assert not client.heard(r.ExecutionException)
    source = place.come(1)
    source.enter(b"source")
    source.control(r.SessionCommandPoint(0, 0))

    def tell(key: str, body: bytes) -> None:
        source.transfer(
            body,
            r.DeliveryProperties(routing_key=key),
            command=r.MessageTransfer("news", 0, 0),
        )

    tell("sport.a", b"one")
    tell("local", b"two")
    client.lose()
    again = back(place, 3, b"sink", 0)
    assert again.expected() == r.SessionExpected(((6, 6),))
    again.control(r.SessionCommandPoint(6, 0))
    again.command(
        r.MessageSubscribe(queue="mine", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, 10),
    )
    assert again.bodies() == Counter([b"one", b"two"])
    tell("sport.b", b"three")
    tell("local", b"four")
    assert again.bodies() == Counter([b"three", b"four"])


def test_a_transaction_goes_along() -> None:
    place = town()
    sink = receiver(place, 1)
    client = place.come(2)
    client.enter(b"source")
    client.control(r.SessionCommandPoint(0, 0))
    client.command(r.TxSelect())
    client.publish("orders", b"one", b"two")
    client.lose()
    again = back(place, 3, b"source", 0)
    assert again.expected() == r.SessionExpected(((3, 3),))
    again.control(r.SessionCommandPoint(3, 0))
    again.command(r.TxCommit())
    assert sink.bodies() == Counter([b"one", b"two"])
    sink.command(r.MessageAccept(((0, 1),)))
    again.control(r.SessionFlush(completed=True))
    assert again.heard(r.SessionCompleted)[-1].commands == ((0, 3),)


def test_what_waits_in_the_middle_of_a_commit_goes_along() -> None:
    place = town()
    sink = receiver(place, 1)
    client = place.come(2)
    client.enter(b"source")
    client.control(r.SessionCommandPoint(0, 0))
    client.command(r.TxSelect())
    client.publish("orders", b"one", b"two")
    client.command(r.TxCommit())
    assert sink.bodies() == Counter([b"one", b"two"])
    client.lose()
    again = back(place, 3, b"source", 0)
    assert again.expected() == r.SessionExpected(((4, 4),))
    sink.command(r.MessageAccept(((0, 1),)))
    again.control(r.SessionFlush(completed=True))
    assert again.heard(r.SessionCompleted)[-1].commands == ((0, 3),)


@pytest.mark.parametrize("worker", [1, 2, 3])
def test_a_message_larger_than_a_frame_leads_through_to_who_takes_no_parts(worker: int) -> None:
    place = town(EXACT)
    sink = receiver(place, worker)
    bodies = [b"x" * 300_000, b"small", b"y" * 200_000]
    source = sender(place, 2, *bodies)
    assert sink.bodies() == Counter(bodies)
    sink.command(r.MessageAccept(((0, 2),)))
    assert source.heard(r.MessageAccept) == [r.MessageAccept(((0, 2),))]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("route", [ORDERS, EXACT])
@pytest.mark.parametrize("is_slow", [False, True])
def test_whoever_wanders_whenever_everything_comes_and_is_answered_once(
    is_slow: bool, route: Route, seed: int
) -> None:
    chance = random.Random(seed)
    place = Town(Fleet(3, route), chance if is_slow else None)
    sink, source = Wanderer(place, b"sink"), Wanderer(place, b"source")
    sink.come(chance.randint(1, 3))
    sink.command(
        r.MessageSubscribe(queue="orders", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, chance.choice((3, 1000))),
    )
    sent: list[bytes] = []

    def publish() -> None:
        for _ in range(chance.randint(1, 5)):
            sent.append(b"%d" % len(sent))
            source.transfer("orders", sent[-1])

    def move(client: Wanderer) -> None:
        if client.client is None:
            client.come(chance.randint(1, 3))
        else:
            client.lose()

    def accept() -> None:
        sink.read()
        sink.acknowledge()

    steps = [publish, lambda: move(source), lambda: move(sink), accept, source.read]
    for _ in range(60):
        chance.choice(steps)()
    place.chance = None
    place.settle()
    for client in (sink, source):
        if client.client is None:
            client.come(chance.randint(1, 3))
        client.read()
    for _ in range(2 * len(sent)):
        accept()
        source.read()
    assert sorted(sink.bodies) == sorted(sent)
    assert len(set(source.accepted)) == len(source.accepted) == len(sent)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_whenever_the_home_is_lost_everything_comes_and_is_answered_once(seed: int) -> None:
    chance = random.Random(seed)
    place = Town(Fleet(3, EXACT))
    sink, source = Wanderer(place, b"sink"), Wanderer(place, b"source")
    workers = {sink: 2, source: 3}
    for client, worker in workers.items():
        client.come(worker)
    sink.command(
        r.MessageSubscribe(queue="orders", destination="d", accept_mode=0, acquire_mode=0),
        r.MessageFlow("d", 1, None),
        r.MessageFlow("d", 0, chance.choice((3, 1000))),
    )
    place.chance = chance
    sent: list[bytes] = []

    def publish() -> None:
        for _ in range(chance.randint(1, 5)):
            sent.append(b"%d" % len(sent))
            source.transfer("orders", sent[-1])

    def accept() -> None:
        sink.read()
        sink.acknowledge()

    def move(client: Wanderer) -> None:
        if client.client is None:
            client.come(workers[client])
        else:
            client.lose()

    def lose_home() -> None:
        client = chance.choice((sink, source))
        place.fleet.cut(1, workers[client])
        if client.client is not None:
            client.lose()
        place.fleet.join(1, workers[client])

    steps = [publish, publish, accept, accept, source.read, source.read, lose_home]
    steps += [lambda: move(sink), lambda: move(source)]
    for _ in range(80):
        chance.choice(steps)()
    place.chance = None
    place.settle()
    for client in (sink, source):
        if client.client is None:
            client.come(workers[client])
        client.read()
    for _ in range(2 * len(sent)):
        accept()
        source.read()
    assert sorted(sink.bodies) == sorted(sent)
    assert len(set(source.accepted)) == len(source.accepted) == len(sent)
