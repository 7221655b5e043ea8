"""Following deliveries: each test reads what a person would see."""

import pytest

from router.core import trace
from router.core.trace import Tracer
from router.model.condition import INVALID_FIELD, Condition
from router.model.outcome import RELEASED, Rejected
from router.model.terminus import SenderSettleMode
from router.routes.match import PatternError
from router.routes.route import Distribution, Endpoint, Guarantee, Route
from tests.support.fleet import Fleet
from tests.support.journaled import EXACT, Journaled
from tests.support.play import Play


def follow(play: Play, pattern: str = "orders", most: int = 10) -> Tracer:
    return play.core.trace(pattern, most, play.now)


def told(tracer: Tracer) -> list[str]:
    """Lines as a person reads them: which delivery, from or to whom, what."""
    shown = []
    for line in tracer.take():
        arrow = {True: "<", False: ">", None: "="}[line.is_incoming]
        who = "" if line.container is None else f" {line.container}"
        shown.append(f"{line.delivery or '-'} {arrow}{who} {line.what}: {line.text}")
    return shown


def test_a_delivery_is_followed_from_its_coming_to_its_settlement() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=1)
    sender.send(b"secret", tag=b"\x01")
    assert told(tracer) == [
        "1 < source transfer: tag 01, 6 octets, unsettled",
        "1 = decision: route orders: 'orders' is the only route that matches;"
        " the only receiver, 9 credit left",
        "1 > sink transfer: tag 00000000, 6 octets, unsettled",
    ]
    assert not tracer.is_done
    receiver.accept()
    assert told(tracer) == [
        "1 < sink disposition: accepted, settled",
        "1 > source disposition: accepted, settled",
    ]
    assert tracer.is_done


def test_payload_is_never_shown() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play)
    sender.send(b"secret")
    sender.send(b"secret", more=True)
    sender.go_on(b"secret", more=False)
    receiver.accept()
    assert "secret" not in str(tracer.lines)


def test_only_so_many_deliveries_are_followed() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=2)
    sender.send(b"1", b"2", b"3")
    lines = [line for line in tracer.take() if line.what == "transfer"]
    assert [line.delivery for line in lines] == [1, 2, 1, 2]


def test_deliveries_of_other_addresses_are_left_out() -> None:
    play = Play("orders", "prices")
    sink, source = play.connect("sink"), play.connect("source")
    tracer = follow(play, "orders")
    receiver = sink.attach_receiver("prices", credit=10)
    source.attach_sender("prices").send(b"1")
    receiver.accept()
    assert told(tracer) == []


def test_a_pattern_follows_many_addresses() -> None:
    play = Play("#")
    tracer = follow(play, "orders.*")
    source = play.connect("source")
    play.connect("sink").attach_receiver("orders.eu", credit=1)
    source.attach_sender("orders.eu").send(b"1")
    assert "1 < source transfer: tag 7430, 1 octets, unsettled" in told(tracer)


def test_a_delivery_that_waits_says_for_what() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=1)
    sender = play.connect("source").attach_sender("orders")
    receiver.grant(0)
    tracer = follow(play)
    sender.send(b"1")
    assert told(tracer)[-1] == "1 = decision: waits: none of 1 receivers has credit"
    receiver.grant(5)
    assert any(line.startswith("1 > sink transfer") for line in told(tracer))


def test_a_delivery_that_waits_for_a_paused_route_says_so() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play)
    play.carry_out(play.core.pause("orders", play.now))
    sender.send(b"1")
    assert told(tracer) == [
        "- > source flow: credit 0, drain",
        "1 < source transfer: tag 7430, 1 octets, unsettled",
        "1 = decision: waits: route orders is paused",
    ]


def test_a_released_delivery_is_seen_going_to_the_next_receiver() -> None:
    play = Play("orders")
    first = play.connect("first").attach_receiver("orders", credit=5)
    second = play.connect("second").attach_receiver("orders", credit=5)
    tracer = follow(play)
    play.connect("source").attach_sender("orders").send(b"1")
    told(tracer)
    first.update(first.last.number, state=RELEASED)
    lines = told(tracer)
    assert lines[0] == "1 < first disposition: released, settled"
    assert lines[-1].startswith("1 > second transfer")
    assert lines[-2].endswith("again")
    second.accept()
    assert told(tracer)[-1] == "1 > source disposition: accepted, settled"


def test_multicast_shows_every_receiver() -> None:
    play = Play(Route(address="prices", distribution=Distribution.MULTICAST))
    for name in ("one", "two"):
        play.connect(name).attach_receiver("prices", credit=5)
    sender = play.connect("source").attach_sender("prices")
    tracer = follow(play, "prices")
    sender.send(b"1", settled=True)
    sent = [line for line in told(tracer) if "> " in line]
    assert sent == [
        "1 > one transfer: tag 00000000, 1 octets, unsettled",
        "1 > two transfer: tag 00000000, 1 octets, unsettled",
    ]


def test_a_delivery_that_goes_out_settled_ends_when_it_is_sent() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=5, mode=SenderSettleMode.SETTLED)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=1)
    sender.send(b"1", settled=True)
    assert tracer.is_done


def test_a_delivery_that_came_settled_ends_when_it_is_accepted() -> None:
    play = Play("orders")
    sink = play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=1)
    sender.send(b"1", settled=True)
    sink.update(sink.last.number, state=RELEASED)
    assert not tracer.is_done
    sink.accept()
    assert told(tracer)[-1] == "1 < sink disposition: accepted, settled"
    assert tracer.is_done


def test_parts_and_an_abort_are_shown() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=1)
    sender.send(b"1234", more=True)
    sender.go_on(b"56")
    sender.abort()
    lines = [line for line in told(tracer) if "transfer" in line]
    assert lines == [
        "1 < source transfer: tag 7430, 4 octets, unsettled, more",
        "1 > sink transfer: tag 00000000, 4 octets, unsettled, more",
        "1 < source transfer: 2 octets, more",
        "1 > sink transfer: 2 octets, more",
        "1 < source transfer: aborted",
        "1 > sink transfer: aborted",
    ]
    assert tracer.is_done


def test_a_rejection_shows_its_reason() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play)
    sender.send(b"1")
    told(tracer)
    receiver.update(
        receiver.last.number, state=Rejected(Condition(INVALID_FIELD, "no such customer"))
    )
    expected = "rejected (amqp:invalid-field: no such customer), settled"
    assert told(tracer) == [
        f"1 < sink disposition: {expected}",
        f"1 > source disposition: {expected}",
    ]


def test_attaches_answers_and_detaches_are_shown() -> None:
    play = Play("orders")
    tracer = follow(play, "#")
    client = play.connect("client")
    receiver = client.attach_receiver("orders", name="mine")
    client.attach_sender("prices")
    receiver.detach(condition=Condition("amqp:link:detach-forced", "bye"))
    assert told(tracer) == [
        "- < client attach: receiver at orders asks",
        "- > client attach: attached",
        "- < client attach: sender at prices asks",
        "- > client attach: refused: amqp:not-found: no route for the address 'prices'",
        "- < client detach: closed: amqp:link:detach-forced: bye",
    ]


def test_a_bridge_is_followed_by_its_own_address_and_the_containers_names() -> None:
    play = Play(Route(address="orders", from_=Endpoint("east", "q1"), to=(Endpoint("west"),)))
    east, west = play.dial("east"), play.dial("west")
    receiver = west.answer_receiver(credit=10)
    sender = east.answer_sender()
    tracer = follow(play, most=1)
    sender.send(b"1")
    receiver.accept()
    lines = told(tracer)
    assert lines[0] == "1 < east transfer: tag 7430, 1 octets, unsettled"
    assert lines[-1] == "1 > east disposition: accepted, settled"
    assert tracer.is_done


def test_seconds_count_from_the_beginning() -> None:
    play = Play("orders")
    receiver = play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play)
    play.wait(2)
    sender.send(b"1")
    play.wait(3)
    receiver.accept()
    assert {line.seconds for line in tracer.take()} == {2, 5}


def test_a_trace_that_has_ended_sees_nothing() -> None:
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=5)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play)
    play.core.end_trace(tracer)
    sender.send(b"1")
    assert tracer.lines == []


def test_a_trace_never_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LINES_MOST", 5)
    play = Play("orders")
    play.connect("sink").attach_receiver("orders", credit=50)
    sender = play.connect("source").attach_sender("orders")
    tracer = follow(play, most=50)
    sender.send(*[b"x"] * 40)
    assert len(tracer.lines) == 5
    assert tracer.is_done


def test_a_text_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(PatternError):
        follow(Play("orders"), "orders.#x")


def test_what_waits_for_the_journal_is_seen_to_wait_and_then_to_go() -> None:
    play = Journaled(EXACT)
    receiver = play.connect("sink").attach_receiver("orders", credit=10)
    sender = play.connect("source").attach_sender("orders")
    play.flush()
    tracer = follow(play, most=1)
    sender.send(b"secret", tag=b"\x01")
    assert told(tracer)[-1] == "1 = decision: waits until the journal has it"
    play.flush()
    decision, transfer = told(tracer)
    assert decision.startswith("1 = decision: route orders: ")
    assert transfer.startswith("1 > sink transfer: tag ")
    receiver.accept()
    play.flush()
    assert told(tracer)[-2:] == [
        "1 < sink disposition: accepted, settled",
        "1 > source disposition: accepted, settled",
    ]
    assert tracer.is_done


def test_deliveries_of_guests_are_followed_where_their_links_are_kept() -> None:
    fleet = Fleet(2, Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE))
    receiver = fleet[2].connect("sink").attach_receiver("orders")
    receiver.grant(10)
    fleet.settle()
    sender = fleet[2].connect("source").attach_sender("orders")
    fleet.settle()
    tracer = follow(fleet[1], most=1)
    sender.send(b"secret", tag=b"\x01")
    fleet.settle()
    receiver.accept()
    fleet.settle()
    lines = told(tracer)
    assert lines[0] == "1 < source transfer: tag 01, 6 octets, unsettled"
    assert any(line.startswith("1 > sink transfer: tag ") for line in lines)
    assert lines[-2:] == [
        "1 < sink disposition: accepted, settled",
        "1 > source disposition: accepted, settled",
    ]
    assert tracer.is_done
