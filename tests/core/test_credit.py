"""Credit from end to end: senders are granted what receivers can take."""

import pytest

from router.core.settings import CoreSettings
from router.links.credit import grant, is_over, reserve
from router.model.condition import NOT_FOUND
from router.model.outcome import ACCEPTED, Rejected
from router.routes.route import Distribution, Endpoint, Route, Unroutable
from tests.support.play import Play


def test_grant_follows_the_rule() -> None:
    assert grant(1000, 10, 0, 0) == 10
    assert grant(1000, 10, 5, 0) == 10
    assert grant(1000, 10, 6, 0) is None
    assert grant(1000, 10, 2, 3) == 7
    assert grant(5, 10, 0, 0) == 5
    assert grant(1000, 1, 0, 0) == 1
    assert grant(1000, 1, 1, 0) is None
    assert grant(1000, 0, 0, 0) is None
    assert grant(1000, 10, 0, 6) is None


def test_credit_is_the_sum_of_what_receivers_take() -> None:
    play = Play("orders")
    play.connect("a").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    assert sender.credit == 10
    play.connect("b").attach_receiver(credit=30)
    assert sender.credit == 40


def test_credit_is_bounded_by_the_setting_and_by_the_route() -> None:
    play = Play("orders", Route(address="slow", link_credit=7))
    client = play.connect()
    client.attach_receiver("orders", credit=100_000)
    client.attach_receiver("slow", credit=100_000)
    assert client.attach_sender("orders").credit == 1000
    assert client.attach_sender("slow").credit == 7


def test_credit_is_renewed_when_half_is_used_and_the_receiver_renews() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    sender.send(*"abcd")
    assert sender.credit == 6
    sender.send("e")
    assert sender.credit == 10
    sender.send(*"fghij")
    assert (receiver.credit, sender.credit) == (0, 5)
    receiver.accept()
    assert sender.credit == 5
    receiver.grant(10)
    assert sender.credit == 10


@pytest.mark.parametrize("distribution", list(Distribution))
def test_where_nobody_receives_the_route_answers_if_it_says_how(distribution: Distribution) -> None:
    play = Play(Route(address="orders", unroutable=Unroutable.REJECT, distribution=distribution))
    sender = play.connect("s").attach_sender("orders")
    assert sender.credit == 1000
    (number,) = sender.send("x")
    outcome = sender.outcome(number)
    assert outcome is not None
    assert isinstance(outcome[0], Rejected)
    assert outcome[0].error is not None
    assert outcome[0].error.name == NOT_FOUND
    receiver = play.connect("r").attach_receiver("orders")
    assert sender.was_drained()
    sender.give_back_credit()
    receiver.grant(10)
    assert sender.credit == 10
    sender.send("y")
    assert receiver.payloads == [b"y"]
    receiver.accept()
    receiver.detach()
    assert sender.credit == 1000


def test_where_somebody_is_expected_back_nothing_is_answered() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),), unroutable=Unroutable.REJECT))
    east = play.dial("east")
    sender = play.connect("s").attach_sender("orders")
    assert sender.credit == 0
    east.answer_receiver(credit=5)
    assert sender.credit == 5


def test_what_waits_counts() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    sender.send(*"abcdefgh")
    assert sender.credit == 10
    sender.send(*"ijklmnop")
    assert len(receiver.received) == 10
    assert sender.credit == 2
    receiver.grant(10)
    assert len(receiver.received) == 16
    assert sender.credit == 10


def test_receiver_that_pauses_takes_the_credit_back() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    receiver.grant(0)
    assert sender.was_drained()
    assert sender.credit == 0
    sender.give_back_credit()
    assert sender.credit == 0
    receiver.grant(4)
    assert sender.credit == 4
    assert not sender.was_drained()


def test_delivery_under_way_waits_while_a_receiver_is_attached_without_credit() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=10)
    sender = play.connect("s").attach_sender()
    receiver.grant(0)
    (late,) = sender.send("late")
    assert sender.outcome(late) is None
    receiver.grant(1)
    assert receiver.payloads == [b"late"]


def test_consumer_that_flaps_never_leaves_the_sender_stuck() -> None:
    play = Play("orders")
    sender = play.connect("s").attach_sender()
    sent = []
    for turn in range(50):
        receiver = play.connect(f"r{turn}").attach_receiver(credit=1 + turn % 3)
        assert sender.credit > 0
        sent += sender.send("x")
        receiver.accept()
        if turn % 2:
            receiver.detach()
        else:
            receiver.peer.lose()
        assert sender.credit == 0
        if turn % 3 == 0:
            sender.give_back_credit()
    assert all(sender.outcome(number) == (ACCEPTED, True) for number in sent)


def test_many_senders_share_a_slow_receiver_in_turns() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=4)
    senders = [play.connect(f"s{n}").attach_sender() for n in range(4)]
    for sender in senders:
        sender.send(*(f"{sender.name}-{n}" for n in range(4)))
    receiver.grant(8)
    by_sender = [payload.split(b"-")[1] for payload in receiver.payloads[4:]]
    assert sorted(by_sender) == sorted([b"3"] * 0 + [b"4", b"5", b"6"] * 2 + [b"4", b"5"]) or (
        max(map(by_sender.count, set(by_sender))) - min(map(by_sender.count, set(by_sender))) <= 1
    )


def test_octet_budget_of_a_connection_holds_its_windows() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", connection_octets=1000))
    receiver = play.connect("r").attach_receiver(credit=100)
    sender = play.connect("s").attach_sender()
    other = play.connect("t").attach_sender()
    sender.send(*[b"x" * 300] * 4)
    assert sender.is_held()
    assert not other.is_held()
    credit = sender.credit
    sender.send(*[b"x"] * 60)
    assert sender.credit == credit - 60
    receiver.accept(receiver.received[0].number)
    assert sender.is_held()
    receiver.accept()
    assert not sender.is_held()
    assert sender.credit == 100


def test_octet_budget_of_the_process_holds_who_sends() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", process_octets=1000))
    receiver = play.connect("r").attach_receiver(credit=100)
    one, two = (play.connect(name).attach_sender() for name in "st")
    one.send(b"x" * 600)
    two.send(b"x" * 600)
    assert two.is_held()
    assert not one.is_held()
    receiver.accept()
    assert not two.is_held()


def test_links_whose_receivers_settle_nothing_leave_others_their_credit() -> None:
    play = Play("hog.#", "good", settings=CoreSettings(router_id="dc1", process_octets=1 << 20))
    hogs = []
    for number in range(4):
        play.connect(f"r{number}").attach_receiver(f"hog.{number}", credit=1_000_000)
        hogs.append(play.connect(f"s{number}").attach_sender(f"hog.{number}"))
    receiver = play.connect("r").attach_receiver("good", credit=100_000)
    sender = play.connect("s").attach_sender("good")
    while any(hog.credit > 500 for hog in hogs):
        for hog in hogs:
            if hog.credit > 500:
                hog.send(*[b"x" * 100] * 100)
    assert all(hog.credit <= 500 for hog in hogs)
    for _ in range(10):
        sender.send(*[b"x" * 10] * 600)
        receiver.accept()
        assert sender.credit == 1000


def test_a_link_that_kept_too_much_has_credit_again_when_some_is_settled() -> None:
    play = Play("orders", settings=CoreSettings(router_id="dc1", process_octets=1 << 20))
    receiver = play.connect("r").attach_receiver(credit=1_000_000)
    sender = play.connect("s").attach_sender()
    while sender.credit > 500:
        sender.send(*[b"x" * 1000] * 100)
    assert sender.credit <= 500
    receiver.accept()
    assert sender.credit == 1000


@pytest.mark.parametrize(
    ("octets", "left", "expected"),
    [(0, 0, False), (255, -9, False), (256, 0, True), (799, 100, False), (800, 100, True)],
)
def test_a_link_is_over_its_share_by_the_rule(octets: int, left: int, expected: bool) -> None:
    assert is_over(octets, left, reserve(1 << 20)) is expected


def test_drained_receiver_gets_its_answer() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2)
    sender = play.connect("s").attach_sender()
    sender.send("a")
    receiver.grant(5, drain=True)
    assert receiver.drains_answered == 1
    assert receiver.credit == 0
    assert receiver.payloads == [b"a"]


def test_drain_sends_what_waits_first() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=2)
    sender = play.connect("s").attach_sender()
    receiver.grant(0)
    sender.send("a")
    receiver.grant(5, drain=True)
    assert receiver.payloads == [b"a"]
    assert receiver.drains_answered == 0
    sender.give_back_credit()  # nor has it anything more
    assert receiver.drains_answered == 1


def test_drain_while_congested_waits_until_what_waits_is_sent() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    receiver.peer.congest()
    sender.send("a")
    receiver.grant(5, drain=True)
    assert receiver.drains_answered == 0
    receiver.peer.congest(False)
    assert receiver.payloads == [b"a"]
    assert receiver.drains_answered == 1


def test_drain_reaches_the_container_that_feeds_the_receiver() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"),)))
    east = play.dial("east")
    receiver = play.connect("r").attach_receiver(credit=5)
    source = east.answer_sender()
    receiver.grant(5, drain=True)
    assert receiver.drains_answered == 0
    assert source.was_drained()
    assert source.credit == 5
    source.send("last")
    source.give_back_credit()
    assert receiver.payloads == [b"last"]
    assert receiver.drains_answered == 1
    assert source.credit == 0
    receiver.grant(3)
    assert source.credit == 3


def test_congested_receiver_gets_nothing_until_it_clears() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    sender = play.connect("s").attach_sender()
    receiver.peer.congest()
    sender.send("a", "b")
    assert not receiver.received
    receiver.peer.congest(False)
    assert receiver.payloads == [b"a", b"b"]


def test_closest_prefers_what_is_attached_here() -> None:
    play = Play(Route(address="orders", distribution=Distribution.CLOSEST))
    client = play.connect()
    one = client.attach_receiver(credit=2)
    two = client.attach_receiver(credit=2)
    link = play.core._registry.connections[client.id].outgoing[one.link]
    link.cost = 1
    sender = client.attach_sender()
    sender.send(*"abcd")
    assert two.payloads == [b"a", b"b"]
    assert one.payloads == [b"c", b"d"]
