"""The lane for runs of messages gives what the general way gives, octet for octet."""

import random

import pytest

from router.model.commands import GrantCredit, UpdateDeliveries
from router.model.events import DeliveriesReceived, Event
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED
from router.wire.fast import commands as c
from router.wire.fast.framing import frame
from tests.support.fast_peer import Client, message


def opened(credit: int) -> Client:
    client = Client(credit=credit).open().channel().handle(1, "a.").handle(2, "b")
    client.channel(2, transacted=True).handle(3, "c", channel=2)
    client.handle(4, "d", mime_type="text/plain")
    return client


def sends(dice: random.Random) -> bytes:
    """Messages, mostly alike, some odd, some broken."""
    octets = b""
    for _ in range(dice.randrange(1, 12)):
        handle = dice.choice([1, 1, 1, 2, 2, 3, 4])
        whole = message(
            bytes(dice.choice([0, 3, 3, 500])),
            identifier=dice.choice(["", "", "", "id"]),
            headers=dice.choice([{}, {}, {"x-amqp-ttl": 5}]),
        )
        name = dice.choice(["x", "x", "yy"]) if handle == 1 else ""
        partial = dice.random() < 0.1
        command = c.HandleSend(
            handle, dice.choice([0, 5, 6]), len(whole), partial=partial, dest_name=name
        )
        made = frame(command) + whole
        if dice.random() < 0.02:
            damaged = bytearray(made)
            damaged[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
            made = bytes(damaged)
        octets += made
    return octets


def deliveries(events: list[Event]) -> list[object]:
    """Events with runs taken apart: how they are joined is nobody's business."""
    found: list[object] = []
    for event in events:
        if isinstance(event, DeliveriesReceived):
            found += [(event.link, delivery) for delivery in event.deliveries]
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("seed", range(120))
def test_with_the_lane_or_without_it_is_the_same(seed: int) -> None:
    dice = random.Random(seed)
    credit = dice.choice([3, 1000])
    clients = [opened(credit), opened(credit)]
    clients[1].engine._lane.take = lambda octets, at, end: at  # type: ignore[method-assign]
    for _ in range(12):
        octets = sends(dice)
        size = dice.choice([len(octets), 7, 100])
        grant = dice.choice([0, 2, 1000])
        link = LinkId(dice.randrange(1, 8))
        number = DeliveryNumber(dice.randrange(1, 30))
        told = []
        for client in clients:
            for start in range(0, len(octets), size):
                client.feed(octets[start : start + size])
            client.say_yes()
            client.do(GrantCredit(link, grant))
            client.do(UpdateDeliveries(link, [number], ACCEPTED, True))
            told.append((deliveries(client.take_events()), client.octets()))
        assert told[0] == told[1]
        assert clients[0].engine.phase is clients[1].engine.phase


def test_a_run_of_messages_is_one_event() -> None:
    client = opened(1000)
    client.post(b"first", handle=2)
    client.say_yes()
    client.take_events()
    whole = message(b"body")
    client.feed((frame(c.HandleSend(2, 9, len(whole))) + whole) * 50)
    (run,) = client.take_events()
    assert isinstance(run, DeliveriesReceived)
    assert [delivery.number for delivery in run.deliveries] == list(range(2, 52))
    client.do(UpdateDeliveries(run.link, [each.number for each in run.deliveries], ACCEPTED, True))
    assert client.read() == [c.HandleReply(2, 9, 200)] * 50
