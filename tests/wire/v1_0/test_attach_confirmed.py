"""Proof that a peer has read our attach: frames that prove it, and frames that do not."""

from typing import Any

import pytest

from router.model.commands import GrantCredit, ReportAttachConfirmed, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    AttachConfirmed,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v1_0.flowing import ATTACH_CONFIRMED
from router.wire.v1_0.performatives import Attach, Detach, Disposition, Flow
from tests.support.accepting import accepting
from tests.support.peer import Peer, begun

CHALLENGE = 0x2345_6789
BODY = b"\x00\x53\x75\xa0\x01a"
CONFIRMED = AttachConfirmed(LinkId(1))


def asked(role: Role, **settings: Any) -> Peer:
    """A peer whose attach has been answered with a challenge; ``role`` is the peer's."""
    peer = begun(**settings)
    peer.attach(role, unsettled={})
    event = peer.take_event(LinkAttached)
    assert event.may_be_late
    command = accepting(
        event,
        unsettled={},
        challenge=CHALLENGE,
    )
    peer.engine.execute(command)
    return peer


def is_confirmed(peer: Peer) -> bool:
    """Whether the engine has emitted ``AttachConfirmed`` by now; takes all its events."""
    return CONFIRMED in peer.take_events()


def send(peer: Peer) -> None:
    delivery = OutgoingDelivery(DeliveryNumber(0), DeliveryTag(b"t"), BODY)
    peer.engine.execute(SendDeliveries(LinkId(1), [delivery]))


# Where we send


def test_a_receiver_is_asked_with_a_count_of_its_own_and_for_an_echo() -> None:
    peer = asked(Role.RECEIVER)
    attach, flow = peer.expect(Attach, Flow)
    assert attach.initial_delivery_count == CHALLENGE
    assert (flow.delivery_count, flow.echo) == (CHALLENGE, True)


def test_nobody_is_asked_without_a_challenge() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER, unsettled={})
    event = peer.take_event(LinkAttached)
    peer.engine.execute(accepting(event))
    assert peer.expect_one(Attach).initial_delivery_count == 0
    peer.flow(handle=0, delivery_count=0, link_credit=5)
    assert not is_confirmed(peer)


@pytest.mark.parametrize("count", [None, 0, CHALLENGE - 1, CHALLENGE + 1])
def test_a_flow_with_another_count_may_be_from_before_and_its_credit_counts(
    count: int | None,
) -> None:
    peer = asked(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=count, link_credit=5)
    assert peer.take_events() == [CreditGranted(LinkId(1), 5, False)]


def test_a_flow_that_repeats_our_count_is_proof() -> None:
    peer = asked(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=CHALLENGE, link_credit=5)
    assert peer.take_events() == [CONFIRMED, CreditGranted(LinkId(1), 5, False)]


def test_a_count_that_we_have_come_to_is_proof_and_no_other_is_asked_for() -> None:
    peer = asked(Role.RECEIVER)
    peer.flow(handle=0, delivery_count=None, link_credit=5)
    send(peer)
    peer.take_events()
    peer.flow(handle=0, delivery_count=CHALLENGE + 1, link_credit=5)
    assert is_confirmed(peer)
    peer.flow(handle=0, delivery_count=CHALLENGE + 1, link_credit=6, echo=True)
    assert not is_confirmed(peer)
    assert not peer.take_frames()[-1].performative.echo  # type: ignore[union-attr]


def test_a_flow_that_came_before_our_answer_is_none() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER, unsettled={})
    (event,) = peer.take_events()
    assert isinstance(event, LinkAttached)
    peer.flow(handle=0, delivery_count=CHALLENGE, link_credit=5)  # it would have to guess it
    peer.engine.execute(
        accepting(
            event,
            challenge=CHALLENGE,
        )
    )
    assert not is_confirmed(peer)
    send(peer)
    assert len(peer.take_frames()) == 3  # attach, flow, and the transfer on credit from before


def test_a_disposition_of_what_was_sent_is_proof() -> None:
    peer = asked(Role.RECEIVER)
    peer.flow(handle=0, link_credit=5)
    send(peer)
    peer.take_events()
    peer.send(Disposition(Role.RECEIVER, 0, state=ACCEPTED, settled=True))
    told = peer.take_events()
    updated = DeliveriesUpdated(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True)
    assert told == [CONFIRMED, updated]


def test_a_disposition_of_nothing_is_none() -> None:
    peer = asked(Role.RECEIVER)
    peer.send(Disposition(Role.RECEIVER, 0, last=9, state=ACCEPTED, settled=True))
    assert not is_confirmed(peer)


def test_a_detach_is_none() -> None:
    peer = asked(Role.RECEIVER)
    peer.send(Detach(0, True))
    assert peer.take_events() == [LinkDetached(LinkId(1), True, None)]


# Where we receive


def test_a_sender_is_asked_with_its_credit() -> None:
    peer = asked(Role.SENDER)
    peer.expect(Attach)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    flow = peer.expect_one(Flow)
    assert (flow.link_credit, flow.echo) == (5, True)


@pytest.mark.parametrize("credit", [None, 0, 6])
def test_a_flow_without_our_credit_may_be_from_before(credit: int | None) -> None:
    peer = asked(Role.SENDER)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    peer.flow(handle=0, delivery_count=0, link_credit=credit)
    assert not is_confirmed(peer)


def test_credit_that_nobody_has_granted_is_no_proof() -> None:
    peer = asked(Role.SENDER)
    peer.flow(handle=0, delivery_count=0, link_credit=1)
    assert not is_confirmed(peer)


def test_a_flow_with_our_credit_is_proof() -> None:
    peer = asked(Role.SENDER)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    peer.flow(handle=0, delivery_count=0, link_credit=5)
    assert is_confirmed(peer)


def test_credit_that_comes_back_is_proof() -> None:
    peer = asked(Role.SENDER)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    peer.engine.execute(GrantCredit(LinkId(1), 0, drain=True))
    peer.flow(handle=0, delivery_count=5, link_credit=0, drain=True)
    assert is_confirmed(peer)


@pytest.mark.parametrize("more", [False, True])
def test_a_transfer_on_credit_is_proof_and_is_told_behind_it(more: bool) -> None:
    peer = asked(Role.SENDER)
    peer.engine.execute(GrantCredit(LinkId(1), 5))
    peer.transfer(0, BODY * 20, more=more)
    confirmed, received = peer.take_events()
    assert confirmed == CONFIRMED
    assert isinstance(received, DeliveriesReceived)
    peer.transfer(None if more else 1, BODY, more=False)
    assert not is_confirmed(peer)


def test_runs_of_transfers_are_taken_as_ever_once_their_sender_is_confirmed() -> None:
    peer = asked(Role.SENDER)
    peer.engine.execute(GrantCredit(LinkId(1), 50))
    for number in range(9):
        peer.transfer(number, BODY)
    told: list[Event] = peer.take_events()
    assert told[0] == CONFIRMED
    runs = [event for event in told if isinstance(event, DeliveriesReceived)]
    assert sum(len(run.deliveries) for run in runs) == 9
    assert told.count(CONFIRMED) == 1


# Between siblings


def test_a_sibling_is_told_that_a_peer_has_confirmed_the_attach() -> None:
    """It must not take the answers of the engine in between for those of the peer."""
    near = begun(peer_is_trusted_router=True)
    near.attach(Role.SENDER)
    near.answer(credit=5)
    near.engine.execute(ReportAttachConfirmed(LinkId(1)))
    told = near.expect_one(Flow)
    assert told.properties == {ATTACH_CONFIRMED: True}
    assert told.handle is not None
    home = begun(peer_is_trusted_router=True)
    home.attach(Role.SENDER)
    home.answer(credit=5)
    home.flow(handle=0, delivery_count=0, link_credit=5)
    assert not is_confirmed(home)
    home.flow(handle=0, delivery_count=0, link_credit=5, properties={ATTACH_CONFIRMED: True})
    assert is_confirmed(home)


def test_others_cannot_say_so() -> None:
    peer = asked(Role.SENDER)
    peer.flow(handle=0, delivery_count=0, link_credit=0, properties={ATTACH_CONFIRMED: True})
    assert not is_confirmed(peer)
