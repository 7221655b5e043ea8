"""What is in doubt, or decided by a person, lasts: over reloads, restarts and senders that go."""

import attrs
import pytest

from router.core.listing import Filter
from router.core.resolve import Decision
from router.journal.block import open_block
from router.journal.block_writer import SealedBlock
from router.journal.memory import Memory
from router.journal.record import RecordKind
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, InDoubt, Route
from tests.support.journaled import Journaled, decode
from tests.support.play import Peer, ReceiverEnd, SenderEnd, table

KEPT = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
TAG = DeliveryTag(b"a")
HOLD = Route(
    address="orders",
    to=(Endpoint("target"),),
    guarantee=Guarantee.EXACTLY_ONCE,
    in_doubt=InDoubt.HOLD,
)
RESEND = attrs.evolve(HOLD, in_doubt=InDoubt.RESEND)


def sender(play: Journaled, address: str | None = "orders", **fields: object) -> SenderEnd:
    asked = {**KEPT, **fields}
    return play.connect("west").attach_sender(address, name="out", second=True, **asked)  # type: ignore[arg-type]


def in_doubt(play: Journaled) -> int:
    return len(play.core.lister.deliveries(Filter(in_doubt=True), 100, None, play.now).deliveries)


def sent_in_doubt(*, forgets: bool = True) -> tuple[Journaled, SenderEnd, Peer]:
    """One delivery is in doubt: its target has been lost, and is back without a memory."""
    play = Journaled(HOLD)
    sending = sender(play)
    first = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one", tag=TAG)
    play.flush()
    assert first.payloads == [b"one"]
    first.peer.lose()
    target = play.dial("target")
    if forgets:
        target.refuse(Condition(NOT_IMPLEMENTED))
        play.wait(60)
    return play, sending, target


def reload(play: Journaled, *routes: Route | str) -> None:
    play.routes = routes
    play.carry_out(play.core.configure(table(*routes), play.now))


def decide(play: Journaled, decision: Decision) -> int:
    count, orders = play.core.resolve(TAG, None, decision, play.now)
    play.carry_out(orders)
    play.flush()
    return count


def come_back(play: Journaled) -> ReceiverEnd:
    target = play.dial("target").answer_receiver("orders", credit=5)
    play.flush()
    return target


# A person has it sent again whose sender is gone


def gone_and_decided() -> Journaled:
    """The sender of what is in doubt closes its link; a person decides while the target is away."""
    play, sending, target = sent_in_doubt()
    play.flush()
    sending.detach(closed=True)
    play.flush()
    target.lose()
    assert decide(play, Decision.RESEND) == 1
    return play


def test_what_a_person_has_sent_again_waits_for_its_target_though_its_sender_is_gone() -> None:
    play = gone_and_decided()
    play.wait(1000)
    target = come_back(play)
    assert target.payloads == [b"one"]
    target.accept()
    play.flush()
    assert not play.remembered()


def test_what_a_person_has_sent_again_outlives_a_crash_though_its_sender_is_gone() -> None:
    after = gone_and_decided().crash().crash()
    after.wait(1000)
    target = come_back(after)
    assert target.payloads == [b"one"]
    target.accept()
    after.flush()
    assert not after.remembered()


def test_a_link_whose_doubts_a_person_ended_goes_on_and_is_known_after_a_crash() -> None:
    play, sending, target = sent_in_doubt(forgets=False)
    held = target.answer_receiver("orders", credit=5)
    held.detach(closed=True)
    assert decide(play, Decision.ACCEPT) == 1
    play.wait(60)
    again = target.answer_receiver("orders", credit=5)
    sending.send("two", tag=DeliveryTag(b"b"))
    play.flush()
    assert again.payloads == [b"two"]
    after = play.crash()
    assert in_doubt(after) == 1


# Reloads


@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_held_is_sent_again_when_the_route_says_so_now(crashes: bool) -> None:
    play, _, target = sent_in_doubt()
    if crashes:
        play.routes = (RESEND,)
        play = play.crash()
        target = play.dial("target")
        target.refuse(Condition(NOT_IMPLEMENTED))
        play.wait(2)
        again = target.answer_receiver("orders", credit=5)
    else:
        again = target.answer_receiver("orders", credit=5)
        play.flush()
        reload(play, RESEND)
    play.flush()
    assert again.payloads == [b"one"]
    assert in_doubt(play) == 0


def test_what_is_in_doubt_on_an_attached_link_is_sent_again_when_the_route_says_so_now() -> None:
    play, _, target = sent_in_doubt(forgets=False)
    again = target.answer(unsettled=None)
    assert isinstance(again, ReceiverEnd)
    again.grant(5)
    play.flush()
    assert (again.payloads, in_doubt(play)) == ([], 1)
    reload(play, RESEND)
    play.flush()
    assert (again.payloads, in_doubt(play)) == ([b"one"], 0)


def test_a_reload_that_still_holds_leaves_what_is_in_doubt_alone() -> None:
    play, _, target = sent_in_doubt()
    again = target.answer_receiver("orders", credit=5)
    reload(play, attrs.evolve(HOLD, ttl_seconds=1000.0))
    play.flush()
    assert (again.payloads, in_doubt(play)) == ([], 1)


@pytest.mark.parametrize("crashes", [False, True])
def test_what_is_in_doubt_stays_listed_when_its_route_is_gone(crashes: bool) -> None:
    play, _, _ = sent_in_doubt()
    play.flush()
    if crashes:
        play.routes = ("other",)
        play = play.crash()
    else:
        reload(play, "other")
    assert in_doubt(play) == 1
    assert decide(play, Decision.ACCEPT) == 1
    assert in_doubt(play) == 0


# Routes that are gone after a restart, and links that carry all addresses


def anonymous() -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    play = Journaled(HOLD)
    sending = sender(play, None)
    target = play.dial("target")
    sending.send("one", tag=TAG, address="orders")
    receiving = target.answer_receiver("orders", credit=5)
    play.flush()
    assert receiving.payloads == [b"one"]
    play.routes = ("other",)
    return play, sending, receiving


def test_what_an_anonymous_sender_sent_stays_in_doubt_when_its_route_is_gone() -> None:
    play, _, _ = anonymous()
    after = play.crash()
    assert in_doubt(after) == 1
    assert len(after.remembered()) == 1


def test_an_anonymous_sender_hears_its_outcome_though_the_route_is_gone() -> None:
    play, _, receiving = anonymous()
    receiving.accept()
    after = play.crash()
    back = sender(after, None, unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: ACCEPTED}


# Records that are missing


def test_what_may_have_been_sent_in_records_that_are_missing_is_held_and_listed() -> None:
    """HoleIsSeen: what is known is a lower bound, and a person decides."""
    play = Journaled(HOLD)
    sending = sender(play)
    target = play.dial("target").answer_receiver("orders", credit=1)
    sending.send("zero")
    play.flush()
    target.accept()
    sending.send("one", tag=TAG)
    play.hand_in()
    known = tuple(play.blocks)
    target.grant(1)
    play.flush()
    assert target.payloads == [b"zero", b"one"]
    after = crash_without(play, known)
    assert in_doubt(after) == 1
    after.flush()
    again = after.dial("target").answer_receiver("orders", credit=5)
    after.wait(60)
    after.flush()
    assert (again.payloads, in_doubt(after)) == ([], 1)
    later = after.crash()
    assert in_doubt(later) == 1
    again = later.dial("target").answer_receiver("orders", credit=5)
    count, orders = later.core.resolve(TAG, None, Decision.RESEND, later.now)
    later.carry_out(orders)
    later.flush()
    assert (count, again.payloads, in_doubt(later)) == (1, [b"one"], 0)


def test_what_may_have_been_sent_is_sent_again_where_the_route_says_so() -> None:
    play = Journaled(RESEND)
    sender(play).send("one", "two")
    play.flush()
    after = crash_without(play, tuple(play.blocks))
    target = after.dial("target").answer_receiver("orders", credit=5)
    after.wait(1)
    after.flush()
    assert target.payloads == [b"one", b"two"]
    assert [each.delivery_count for each in target.received] == [1, 1]


@pytest.mark.parametrize("route", [HOLD, RESEND])
@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize("sender_first", [True, False])
def test_what_lacks_records_is_not_sent_cut_short(
    route: Route, kept: int, sender_first: bool
) -> None:
    """It may have been sent by what is missing: it is held as its route says, and fails after."""
    large = b"\x00\x53\x75\xb0\x00\x30\x00\x00" + bytes(range(256)) * 12288
    play = Journaled(route)
    sending = sender(play)
    sending.send(large, tag=TAG)
    play.hand_in()
    [first] = [
        number
        for number, sealed in enumerate(play.blocks)
        for record in open_block(memoryview(sealed.octets)).records()
        if record.kind is RecordKind.RECEIVED
    ]
    after = crash_without(play, tuple(play.blocks[: first + kept]))
    back = None
    if sender_first:
        back = sender(after, unsettled={TAG: None})
        back.peer.happens(back.run([again := back.delivery(b"", tag=TAG, resume=True)]))
    target = after.dial("target").answer_receiver("orders", credit=5)
    after.wait(1)
    after.flush()
    if back is None:
        back = sender(after, unsettled={TAG: None})
        back.peer.happens(back.run([again := back.delivery(b"", tag=TAG, resume=True)]))
    after.flush()
    assert target.payloads == []
    if route is HOLD:
        assert in_doubt(after) == 1
        assert back.outcome(again.number) is None
        assert decide(after, Decision.RESEND) == 1
        after.wait(1)
        after.flush()
    assert target.payloads == []
    outcome = back.outcome(again.number)
    assert outcome is not None
    assert outcome[0] == MODIFIED_FAILED


def test_what_was_sent_on_a_link_that_nobody_knows_any_more_is_listed() -> None:
    play = Journaled(HOLD)
    sending = sender(play)
    play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one", "two", tag=None)
    play.flush()
    memory = play.memory()
    for key, link in list(memory.links.items()):
        if not link.description.is_incoming:
            del memory.links[key]
    after = restored(play, memory)
    assert in_doubt(after) == 2


def crash_without(play: Journaled, blocks: tuple[SealedBlock, ...]) -> Journaled:
    """Kills the worker and loses what came after ``blocks``, which the journal notices."""
    memory = Journaled(*play.routes, blocks=blocks).memory()
    memory.cloud()
    return restored(play, memory, blocks)


def restored(
    play: Journaled, memory: Memory, blocks: tuple[SealedBlock, ...] | None = None
) -> Journaled:
    after = Journaled(*play.routes, blocks=tuple(play.blocks) if blocks is None else blocks)
    after.now = play.now
    after.core.restore(list(memory.deliveries.values()), memory.links, after.now, decode=decode)
    return after
