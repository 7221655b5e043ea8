"""Links of our own to configured containers."""

import attrs

from router.core.uplink import _NEXT, Input, Step, next_step
from router.model.condition import DETACH_FORCED, NOT_ALLOWED, NOT_FOUND, Condition
from router.model.events import LinkDetached
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.routes.route import Declaration, Endpoint, QueueType, Route
from tests.support.play import AMQP, Play

TO = Route(address="orders.#", to=(Endpoint("east"),))
BRIDGE = Route(
    address="orders.eu",
    from_=Endpoint("east", "orders.eu"),
    to=(Endpoint("west", "orders.europe"),),
)


def test_bridge_attaches_at_both_ends_and_renames() -> None:
    play = Play(BRIDGE)
    east, west = play.dial("east"), play.dial("west")
    source = east.answer_sender("orders.eu")
    assert source.credit == 0
    target = west.answer_receiver("orders.europe", credit=20)
    assert source.credit == 20
    (number,) = source.send("hello")
    assert target.payloads == [b"hello"]
    target.accept()
    assert source.outcome(number) == (ACCEPTED, True)


def test_local_senders_join_a_bridge_and_local_receivers_are_refused() -> None:
    play = Play(BRIDGE)
    target = None
    play.dial("east")
    target = play.dial("west").answer_receiver(credit=20)
    client = play.connect()
    client.attach_sender("orders.eu").send("local")
    assert target.payloads == [b"local"]
    refused = client.attach_receiver("orders.eu").refused
    assert refused is not None
    assert refused.name == NOT_ALLOWED
    assert "bridge" in str(refused)


def test_route_to_a_container_is_attached_with_the_first_sender() -> None:
    play = Play(TO)
    east = play.dial("east")
    assert not east.asked
    sender = play.connect().attach_sender("orders.eu")
    (attach,) = east.asked.values()
    assert attach.role is Role.SENDER
    target = east.answer_receiver("orders.eu", credit=5)
    assert sender.credit == 5
    sender.send("a")
    assert target.payloads == [b"a"]
    sender.detach()
    target.accept()
    play.wait(29)
    assert not target.is_detached()
    play.wait(2)
    assert target.is_detached()


def test_a_container_is_asked_to_declare_only_if_the_route_says_so_and_it_can() -> None:
    route = attrs.evolve(BRIDGE, declare=Declaration(queue=QueueType.QUORUM))
    play = Play(route)
    able = play.dial("east", capabilities=attrs.evolve(AMQP, declares=True))
    unable = play.dial("west")
    (asked,) = able.asked.values()
    assert asked.properties["declare"] == {
        "durable": True,
        "auto-delete": False,
        "type": "topic",
        "arguments": {"x-queue-type": "quorum"},
    }
    assert [dict(each.properties) for each in unable.asked.values()] == [{}]
    silent = Play(BRIDGE).dial("east", capabilities=attrs.evolve(AMQP, declares=True))
    assert [dict(each.properties) for each in silent.asked.values()] == [{}]


def test_local_receiver_pulls_from_the_container() -> None:
    play = Play(TO)
    east = play.dial("east")
    receiver = play.connect().attach_receiver("orders.eu", credit=7)
    source = east.answer_sender("orders.eu")
    assert source.credit == 7
    source.send("x")
    assert receiver.payloads == [b"x"]


def test_refused_link_is_tried_again_ever_later() -> None:
    play = Play(BRIDGE)
    west = play.dial("west")
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        west.refuse(Condition(NOT_FOUND))
        play.wait(pause - 0.01)
        assert not west.asked
        play.wait(0.02)
        assert west.asked
    assert play.events().count("link.failed") == 8


def test_a_container_that_gives_no_reason_is_logged_as_such() -> None:
    play = Play(BRIDGE)
    play.dial("west").refuse()
    (failed,) = (each for each in play.noticed if each.event == "link.failed")
    assert failed.fields["condition"] == "the peer gave no reason"


def test_detach_forced_is_routine() -> None:
    play = Play(BRIDGE)
    west = play.dial("west")
    target = west.answer_receiver()
    play.wait(600)
    west.receives.pop(target.link)
    west.happens(LinkDetached(target.link, True, Condition(DETACH_FORCED)))
    assert west.asked
    assert "link.failed" not in play.events()


def test_container_that_answers_not_implemented_is_tried_again_not_hammered() -> None:
    play = Play(BRIDGE, random=lambda: 0.0)
    west = play.dial("west")
    west.refuse(Condition(NOT_FOUND))
    play.wait(0.49)
    assert not west.asked
    play.wait(0.02)
    assert west.asked


def test_second_and_third_reconnect_work_as_the_first() -> None:
    play = Play(BRIDGE)
    sent = []
    for turn in range(4):
        east, west = play.dial("east"), play.dial("west")
        source = east.answer_sender()
        target = west.answer_receiver(credit=5)
        assert source.credit == 5
        sent += source.send("x")
        assert target.payloads[-1:] == [b"x"]
        target.accept()
        (east if turn % 2 else west).lose()
        (west if turn % 2 else east).lose()


def test_connection_dialed_anew_before_the_old_one_is_known_to_be_lost() -> None:
    play = Play(BRIDGE)
    old = play.dial("west")
    target = old.answer_receiver(credit=5)
    new = play.dial("west")
    assert new.asked
    again = new.answer_receiver(credit=5)
    play.connect().attach_sender("orders.eu").send("x")
    assert again.payloads == [b"x"]
    assert not target.received
    old.lose()
    play.connect().attach_sender("orders.eu").send("y")
    assert again.payloads == [b"x", b"y"]


def test_link_names_are_the_same_at_every_attachment() -> None:
    play = Play(BRIDGE)
    names = []
    for _ in range(2):
        west = play.dial("west")
        names += [attach.name for attach in west.asked.values()]
        west.lose()
    assert names == ["dc1:orders.eu>west/orders.europe"] * 2


def test_route_to_several_containers_balances_between_them() -> None:
    play = Play(Route(address="orders", to=(Endpoint("east"), Endpoint("west", "other"))))
    east, west = play.dial("east"), play.dial("west")
    sender = play.connect().attach_sender("orders")
    one = east.answer_receiver("orders", credit=5)
    two = west.answer_receiver("other", credit=5)
    sender.send(*"abcd")
    assert one.payloads == [b"a", b"c"]
    assert two.payloads == [b"b", b"d"]
    east.lose()
    assert two.payloads == [b"b", b"d", b"a", b"c"]


def test_route_from_a_container_feeds_local_receivers() -> None:
    play = Play(Route(address="news", from_=Endpoint("east", "feed")))
    east = play.dial("east")
    source = east.answer_sender("feed")
    assert source.credit == 0
    receiver = play.connect().attach_receiver("news", credit=3)
    assert source.credit == 3
    source.send("x")
    assert receiver.payloads == [b"x"]
    receiver.detach()
    assert source.credit == 0


def test_unsettled_deliveries_keep_a_lazy_link_attached() -> None:
    play = Play(TO)
    east = play.dial("east")
    sender = play.connect().attach_sender("orders.eu")
    target = east.answer_receiver(credit=5)
    sender.send("x")
    sender.detach()
    play.wait(100)
    assert not target.is_detached()
    target.accept()
    play.wait(31)
    assert target.is_detached()
    assert not play.core._registry.nodes


def test_sender_that_comes_back_in_time_keeps_the_lazy_link() -> None:
    play = Play(TO)
    east = play.dial("east")
    client = play.connect()
    sender = client.attach_sender("orders.eu")
    target = east.answer_receiver(credit=5)
    sender.detach()
    play.wait(20)
    client.attach_sender("orders.eu")
    play.wait(20)
    assert not target.is_detached()


def test_table_of_steps_has_no_step_without_a_way_on() -> None:
    reached = {step for (_, _), step in _NEXT.items()}
    assert reached | {Step.AWAY} == set(Step)
    for step in Step:
        assert any(start is step for start, _ in _NEXT)
    for step in Step:
        for happening in Input:
            assert next_step(step, happening) == _NEXT.get((step, happening))
        if step is not Step.AWAY:
            assert next_step(step, Input.LEFT) is Step.AWAY
