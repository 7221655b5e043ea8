"""Links of exactly-once routes wait until the journal's unsettled deliveries are restored."""

from router.core.core import Core
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.fleet import Fleet
from tests.support.journaled import EXACT, Journaled, decode
from tests.support.play import Play, ReceiverEnd, SenderEnd

TAG = DeliveryTag(b"tag-1")
TOWARDS = Route(address="orders", to=(Endpoint("target"),), guarantee=Guarantee.EXACTLY_ONCE)


def restoring(*routes: Route | str, after: Journaled | None = None) -> Journaled:
    """Gives a worker whose journal has not been read yet."""
    if after is not None:
        after.hand_in()
    play = Journaled(*routes, blocks=() if after is None else tuple(after.blocks))
    play.core._ledger.is_restoring = True
    return play


def restore(play: Journaled) -> None:
    """Reads the journal."""
    memory = play.memory()
    deliveries = sorted(memory.deliveries.values(), key=lambda each: each.received_ns)
    play.core.restore(deliveries, memory.links, play.now, decode=decode, numbers=memory.numbers)
    resume_attaching(play, play.core)


def resume_attaching(play: Play, core: Core) -> None:
    play.carry_out(core.resume_attaching(play.now))


def answered(*ends: SenderEnd | ReceiverEnd) -> list[bool]:
    return [end.attach is not None for end in ends]


def test_only_links_that_may_need_the_journal_wait() -> None:
    play = restoring(EXACT, "prices")
    peer = play.connect("peer")
    waiting = (peer.attach_sender("orders"), peer.attach_receiver("orders", credit=5))
    anonymous = peer.attach_sender(None)
    others = (peer.attach_sender("prices"), peer.attach_receiver("prices", credit=5))
    assert answered(*waiting, anonymous, *others) == [False, False, False, True, True]
    others[0].send(b"now")
    assert others[1].payloads == [b"now"]
    restore(play)
    play.flush()
    assert answered(*waiting, anonymous) == [True, True, True]
    waiting[0].send(b"later")
    play.flush()
    assert waiting[1].payloads == [b"later"]


def test_a_link_to_the_anonymous_terminus_does_not_wait_where_no_route_is_exactly_once() -> None:
    play = restoring("prices")
    end = play.connect("peer").attach_sender(None)
    play.flush()
    assert answered(end) == [True]


def test_who_comes_back_too_early_finds_what_was_unsettled() -> None:
    before = Journaled(EXACT)
    never = ExpiryPolicy.NEVER
    receiver = before.connect("sink").attach_receiver(
        "orders", name="in", credit=5, policy=never, second=True
    )
    sender = before.connect("source").attach_sender("orders", name="out", policy=never, second=True)
    sender.send(b"one", tag=TAG)
    before.flush()
    (sent,) = receiver.received
    after = restoring(EXACT, after=before)
    early = after.connect("sink").attach_receiver(
        "orders", name="in", credit=5, unsettled={sent.tag: ACCEPTED}, policy=never, second=True
    )
    back = after.connect("source").attach_sender(
        "orders", name="out", unsettled={TAG: None}, policy=never, second=True
    )
    assert answered(early, back) == [False, False]
    restore(after)
    after.flush()
    assert answered(early, back) == [True, True]
    assert b"one" not in early.payloads  # it has it
    assert back.attach is not None
    assert back.attach.unsettled is not None
    assert TAG in back.attach.unsettled


def test_uplinks_of_exactly_once_routes_wait_too() -> None:
    play = restoring(TOWARDS, Route(address="prices", to=(Endpoint("target"),)))
    target, peer = play.dial("target"), play.connect("peer")
    peer.attach_sender("prices")
    peer.attach_sender("orders")
    assert len(target.asked) == 1
    assert target.wants_receiver() == "prices"
    restore(play)
    play.flush()
    assert len(target.asked) == 2


def test_links_that_end_while_they_wait_leave_nothing() -> None:
    play = restoring(EXACT)
    first, second = play.connect("first"), play.connect("second")
    first.attach_sender("orders")
    first.lose()
    end = second.attach_receiver("orders", credit=5)
    end.detach()
    restore(play)
    play.flush()
    assert not play.core._registry.attached


def test_peers_that_dial_again_and_again_while_they_wait_leave_nothing() -> None:
    play = restoring(EXACT)
    lasting = play.connect("lasting").attach_receiver("orders", credit=5)
    for _ in range(3000):
        peer = play.connect("again")
        peer.attach_sender("orders")
        peer.lose()
    waiting = play.core._parts.events._restore_wait
    assert len(waiting._waiting) < 1200
    assert len(waiting._links) < 1200
    restore(play)
    play.flush()
    assert answered(lasting) == [True]


def test_links_that_lead_through_another_worker_wait_at_their_home() -> None:
    fleet = Fleet(2, EXACT)
    fleet[1].core._ledger.is_restoring = True
    sender = fleet[2].connect("source").attach_sender("orders")
    receiver = fleet[2].connect("sink").attach_receiver("orders", credit=5)
    fleet.settle()
    assert answered(sender, receiver) == [False, False]
    resume_attaching(fleet[1], fleet[1].core)
    fleet.settle()
    assert answered(sender, receiver) == [True, True]
    sender.send(b"one")
    fleet.settle()
    assert receiver.payloads == [b"one"]
