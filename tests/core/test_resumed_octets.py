"""A message that was cut off on its way to a receiver is completed there octet for octet (§3.4.1).

A receiver states positions in the message as it was sent to it: with the sections that the router
has added to it, which the message of its sender lacks.
"""

import itertools
from typing import Any

import attrs
import pytest

from router.links.position import octets_before, position_at_end
from router.model.capabilities import Capabilities, Protocol
from router.model.delivery import OutgoingDelivery
from router.model.outcome import ACCEPTED, Received
from router.model.terminus import ExpiryPolicy
from router.model.trace import Sampling
from router.routes.route import Route
from router.wire import hub
from router.wire.v1_0.head import rewritten
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Header,
    Properties,
    encode_message,
)
from tests.support.journaled import EXACT, Journaled
from tests.support.play import RESUMING, Map, ReceiverEnd

KEPT: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 3000}
ROUTER = attrs.evolve(RESUMING, is_router=True)
TRACED = attrs.evolve(EXACT, tracing=Sampling.ALWAYS)
SHORT_LIVED = attrs.evolve(EXACT, ttl_seconds=60.0)
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLAIN = AnnotatedMessage(properties=Properties(message_id="m"), data=[b"0123456789" * 4])
WHOLE = attrs.evolve(
    PLAIN,
    header=Header(durable=True, ttl_ms=90_000),
    delivery_annotations={"mine": 1},
    message_annotations={"yours": 2},
)
OF_A_TRACE = attrs.evolve(WHOLE, application_properties={"traceparent": SPAN, "tracestate": "a=b"})


def in_1_0(delivery: OutgoingDelivery, octets: bytes) -> bytes:
    """What the engine sends of a delivery."""
    payload = hub.translate(octets, delivery.protocol, Protocol.AMQP_1_0)
    if isinstance(delivery.state, Received):
        return payload
    return rewritten(payload, delivery, is_router=True)


def spliced(had: bytes, receiving: ReceiverEnd) -> bytes:
    """What a receiver has when a delivery has been resumed of which it had the beginning."""
    delivery = receiving.last
    came = in_1_0(delivery, receiving.bodies[delivery.number])
    if not isinstance(delivery.state, Received):
        return had + came[len(had) :]
    start = octets_before(had, delivery.state)
    assert start == len(had), "it goes on where the receiver has asked for"
    return had + came


@pytest.mark.parametrize("capabilities", [RESUMING, ROUTER], ids=["client", "router"])
@pytest.mark.parametrize(
    ("route", "message"),
    [
        *itertools.product([EXACT, TRACED, SHORT_LIVED], [PLAIN, WHOLE]),
        (TRACED, OF_A_TRACE),
    ],
)
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.long), 3])
def test_a_message_is_completed_wherever_it_was_cut(
    capabilities: Capabilities, route: Route, message: AnnotatedMessage, crashes: bool, parts: int
) -> None:
    if parts == 1:  # an engine removes them on arrival of the whole message (§3.2.2)
        message = attrs.evolve(message, delivery_annotations=None)
    octets = encode_message(message)
    cuts = [0, len(octets)] if parts == 1 else [0, len(octets) - 30, len(octets)]
    cuts = cuts if parts < 3 else [0, len(octets) - 30, len(octets) - 9, len(octets)]
    for end in range(1, 400):
        play = Journaled(route)
        peer = play.connect("east", capabilities=capabilities)
        first = peer.attach_receiver(name="in", second=True, credit=5, **KEPT)
        sending = play.connect("west").attach_sender(name="out", second=True, **KEPT)
        sending.send(octets[: cuts[1]], more=parts > 1)
        for number in range(1, parts):
            sending.go_on(octets[cuts[number] : cuts[number + 1]], more=number + 1 < parts)
        play.flush()
        sent = in_1_0(first.last, first.bodies[first.last.number])
        assert (b"traceparent" in first.bodies[first.last.number]) == (route is TRACED)
        if end >= len(sent):
            break
        had = sent[:end]
        unsettled: Map = {first.last.tag: position_at_end(had)}
        after = play.crash() if crashes else play
        if not crashes:
            peer.lose()
        play.now += 0.5
        again = after.connect("east", capabilities=capabilities)
        second = again.attach_receiver(
            name="in", second=True, credit=5, unsettled=unsettled, **KEPT
        )
        after.flush()
        if second.aborted:  # the header's ttl is another one by now: the two are not spliced
            assert route is SHORT_LIVED
            assert not position_at_end(had).section_number
        else:
            assert spliced(had, second) == sent, f"cut behind {end} octets of {len(sent)}"
    else:
        raise AssertionError("it was cut everywhere")


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("message", [PLAIN, WHOLE], ids=["bare", "annotated"])
def test_a_sender_whose_message_this_hop_has_changed_adds_nothing_to_it(
    message: AnnotatedMessage, crashes: bool
) -> None:
    """What a sender is told counts sections of the changed message: it may name one that is not."""
    octets = encode_message(message)
    arrived = encode_message(attrs.evolve(message, delivery_annotations=None))
    play = Journaled(TRACED)
    first = play.connect("east", capabilities=RESUMING).attach_receiver(
        name="in", second=True, credit=5, **KEPT
    )
    peer = play.connect("west")
    sending = peer.attach_sender(name="out", second=True, **KEPT)
    (number,) = sending.send(arrived)
    tag = sending.unsettled[number]
    play.flush()
    sent = first.payloads
    after = play.crash() if crashes else play
    if not crashes:
        peer.lose()
    back = after.connect("west").attach_sender(
        name="out", second=True, unsettled={tag: None}, **KEPT
    )
    assert back.attach is not None
    known = (back.attach.unsettled or {})[tag]
    assert isinstance(known, Received)
    start = octets_before(octets, known)
    rest = b"" if start is None else octets[start:]
    delivery = back.delivery(rest, tag=tag, resume=True, state=known)
    back.peer.happens(back.run([delivery]))
    after.flush()
    receiving = first
    if crashes:
        receiving = after.connect("east", capabilities=RESUMING).attach_receiver(
            name="in", second=True, credit=5, unsettled={first.last.tag: None}, **KEPT
        )
        after.flush()
    assert receiving.payloads == sent
    receiving.update(receiving.last.number, settled=False)
    after.flush()
    assert back.outcome(delivery.number) == (ACCEPTED, False)
