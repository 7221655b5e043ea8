"""Exactly-once deliveries in parts that are cut off, by crashes too: whole, or not at all."""

import attrs
import pytest

from router.core.listing import Filter
from router.core.resolve import Decision
from router.journal.block import open_block
from router.journal.record import RecordKind
from router.links.position import octets_before
from router.links.unsettled import ALL
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState, Received
from router.model.terminus import ExpiryPolicy
from router.routes.route import Unroutable
from tests.support.journaled import EXACT, Journaled
from tests.support.play import AMQP, Peer, ReceiverEnd, SenderEnd

TAG = DeliveryTag(b"a")
BODY = b"\x00\x53\x75\xb0\x00\x00\x00\x1e" + b"0123456789" * 3
CUTS = (BODY[:10], BODY[10:20], BODY[20:])
ABSENT = "absent"
POSITIONS = (ABSENT, None, Received(0, 0), Received(0, 10))


def sender(peer: Peer, **fields: object) -> SenderEnd:
    asked = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300, **fields}
    return peer.attach_sender(name="out", second=True, **asked)  # type: ignore[arg-type]


def receiver(peer: Peer, **fields: object) -> ReceiverEnd:
    asked = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 3000, "credit": 5, **fields}
    return peer.attach_receiver(name="in", second=True, **asked)  # type: ignore[arg-type]


def begun(parts: int) -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    """So many parts of a delivery have come, and have gone on."""
    play = Journaled(EXACT)
    receiving = receiver(play.connect("east"))
    sending = sender(play.connect("west"))
    sending.send(CUTS[0], tag=TAG, more=True)
    play.flush()
    for number in range(1, parts):
        sending.go_on(CUTS[number], more=number + 1 < len(CUTS))
        play.flush()
    assert receiving.bodies[receiving.last.number] == b"".join(CUTS[:parts])
    return play, sending, receiving


def theirs(tag: DeliveryTag, state: object) -> dict[DeliveryTag, DeliveryState | None]:
    assert state is None or isinstance(state, str | DeliveryState)
    return {} if isinstance(state, str) else {tag: state}


def gone_on(play: Journaled, parts: int) -> tuple[SenderEnd, ReceivedDelivery]:
    """The sender comes back, and sends the rest from where so many parts end."""
    back = sender(play.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    known = (back.attach.unsettled or {})[TAG]
    assert isinstance(known, Received)
    start = octets_before(BODY, known)
    assert start == len(b"".join(CUTS[:parts]))
    delivery = back.delivery(BODY[start:], tag=TAG, resume=True, state=known)
    back.peer.happens(back.run([delivery]))
    play.flush()
    return back, delivery


def check_accepted(play: Journaled, back: SenderEnd, delivery: ReceivedDelivery) -> None:
    """Wants the sender to have been told so; when it has settled nothing is left."""
    assert back.outcome(delivery.number) == (ACCEPTED, False)
    back.settle(delivery.number, state=ACCEPTED)
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0


def in_doubt(play: Journaled) -> int:
    return len(play.core.lister.deliveries(Filter(in_doubt=True), 100, None, play.now).deliveries)


def arrived(receiving: ReceiverEnd, state: object) -> list[bytes]:
    """What the receiver has of the delivery that it had begun to take, or has taken anew."""
    had = b""
    if isinstance(state, Received):
        had = BODY[: state.section_offset]
    return [had + body if receiving.last.state else body for body in receiving.payloads]


@pytest.mark.parametrize("state", POSITIONS)
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("sender_first", [True, False])
def test_a_crash_in_the_middle_leaves_it_to_be_resumed_from_where_it_was(
    parts: int, state: object, sender_first: bool
) -> None:
    play, _, receiving = begun(parts)
    after = play.crash()
    assert in_doubt(after) == 1
    again: ReceiverEnd | None = None
    if not sender_first:
        again = receiver(after.connect("east"), unsettled=theirs(receiving.last.tag, state))
        after.flush()
    back, delivery = gone_on(after, parts)
    if again is None:
        again = receiver(after.connect("east"), unsettled=theirs(receiving.last.tag, state))
        after.flush()
    assert arrived(again, state) == [BODY]
    again.update(again.last.number, settled=False)
    after.flush()
    check_accepted(after, back, delivery)


@pytest.mark.parametrize("is_in_one", [True, False])
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("sender_first", [True, False])
def test_an_outcome_that_comes_before_the_rest_of_the_delivery_is_the_senders(
    parts: int, sender_first: bool, is_in_one: bool
) -> None:
    """The receiver has had more than is on record here."""
    play, _, receiving = begun(parts)
    after = play.crash()
    map_there: dict[DeliveryTag, DeliveryState | None] = {receiving.last.tag: ACCEPTED}
    if not sender_first:
        receiver(after.connect("east"), unsettled=map_there)
        after.flush()
    back = sender(after.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    known = (back.attach.unsettled or {})[TAG]
    start = octets_before(BODY, known) if isinstance(known, Received) else 0
    assert start is not None
    cut = len(BODY) if is_in_one else (start + len(BODY)) // 2
    state = known if isinstance(known, Received) else None
    delivery = back.delivery(BODY[start:cut], tag=TAG, resume=True, state=state, more=not is_in_one)
    back.peer.happens(back.run([delivery]))
    if not is_in_one:
        back.go_on(BODY[cut:], more=False)
    after.flush()
    if sender_first:
        receiver(after.connect("east"), unsettled=map_there)
        after.flush()
    check_accepted(after, back, delivery)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("sender_first", [True, False])
def test_a_receiver_that_has_all_of_it_is_never_told_to_drop_it(
    parts: int, sender_first: bool
) -> None:
    """It is a router that was sent all, of which a part is on record here."""
    play, _, receiving = begun(parts)
    after = play.crash()
    map_there: dict[DeliveryTag, DeliveryState | None] = {receiving.last.tag: ALL}
    again: ReceiverEnd | None = None
    if not sender_first:
        again = receiver(after.connect("east"), unsettled=map_there)
        after.flush()
    back, delivery = gone_on(after, parts)
    if again is None:
        again = receiver(after.connect("east"), unsettled=map_there)
        after.flush()
    assert again.aborted == []
    assert (again.last.resume, again.last.payload, again.last.more) == (True, b"", False)
    again.update(again.last.number, settled=False)
    after.flush()
    check_accepted(after, back, delivery)


def test_a_router_is_told_that_all_of_a_delivery_is_here() -> None:
    play = Journaled(EXACT)
    receiver(play.connect("east"))
    router = attrs.evolve(AMQP, is_neighbor=True, resumes_links=True)
    sending = sender(play.connect("west", capabilities=router))
    sending.send(BODY, tag=TAG)
    play.flush()
    sending.peer.lose()
    back = sender(play.connect("west", capabilities=router), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: ALL}


@pytest.mark.parametrize("state", POSITIONS)
@pytest.mark.parametrize("crashes", [True, False])
def test_what_its_sender_never_finishes_is_given_up_and_never_arrives(
    crashes: bool, state: object
) -> None:
    play, sending, receiving = begun(2)
    tag = receiving.last.tag
    if crashes:
        play = play.crash()
    else:
        receiving.peer.lose()
        sending.peer.lose()
    play.wait(1000)
    again = receiver(play.connect("east"), unsettled=theirs(tag, state))
    play.flush()
    assert [body for body in again.payloads if body] == []
    assert [each.number for each in again.received] == again.aborted
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("decision", Decision)
def test_what_was_never_whole_is_not_sent_again_whatever_a_person_says(decision: Decision) -> None:
    play, _, _ = begun(2)
    after = play.crash()
    after.wait(1000)  # its sender has not come back in time
    other = after.connect("north").attach_receiver(name="other", credit=5, second=True)
    assert in_doubt(after) == 1
    count, orders = after.core.resolve(TAG, None, decision, after.now)
    after.carry_out(orders)
    after.flush()
    assert (count, in_doubt(after), other.payloads) == (1, 0, [])


@pytest.mark.parametrize("offset", [0, 4, 10])
@pytest.mark.parametrize("flushes", [True, False])
def test_a_second_crash_finds_what_came_after_the_first(offset: int, flushes: bool) -> None:
    """Whether the sender went on from where it was asked to, or from before that (§2.6.13)."""
    play, _, receiving = begun(1)
    state = Received(0, offset)
    second = play.crash()
    back = sender(second.connect("west"), unsettled={TAG: None})
    resumed = back.delivery(BODY[offset:12], tag=TAG, resume=True, state=state, more=True)
    back.peer.happens(back.run([resumed]))
    back.go_on(BODY[12:20], more=True)
    if flushes:
        again = receiver(second.connect("east"), unsettled={receiving.last.tag: Received(0, 10)})
        second.flush()
        assert again.bodies[again.last.number] == BODY[10:20]
    third = second.crash()
    back = sender(third.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: Received(0, 20)}
    rest = back.delivery(BODY[20:], tag=TAG, resume=True, state=Received(0, 20))
    back.peer.happens(back.run([rest]))
    again = receiver(third.connect("east"), unsettled={receiving.last.tag: Received(0, 15)})
    third.flush()
    assert again.payloads == [BODY[15:]]


def test_a_receiver_that_has_more_than_is_known_here_is_not_sent_a_mixture() -> None:
    """A machine that stopped has lost parts that had gone on."""
    play, _, receiving = begun(1)
    after = play.crash()
    again = receiver(after.connect("east"), unsettled={receiving.last.tag: Received(0, 20)})
    after.flush()
    assert [each.number for each in again.received] == again.aborted
    back = sender(after.connect("west"), unsettled={TAG: None})
    rest = back.delivery(BODY[10:], tag=TAG, resume=True, state=Received(0, 10))
    back.peer.happens(back.run([rest]))
    after.flush()
    outcome = back.outcome(rest.number)
    assert again.payloads == []
    assert outcome is not None
    assert outcome[0] != ACCEPTED


@pytest.mark.parametrize("lost", ["sender", "sender, receiver", "receiver, sender", "nobody"])
@pytest.mark.parametrize("credit", [5, 0])
@pytest.mark.parametrize("crashes", [0, 1, 2])
@pytest.mark.parametrize("parts", [1, 2])
def test_what_a_lost_sender_left_unfinished_comes_back_as_far_as_it_had_come(
    lost: str, credit: int, crashes: int, parts: int
) -> None:
    play = Journaled(attrs.evolve(EXACT, unroutable=Unroutable.HOLD))
    receiving = receiver(play.connect("east"), credit=credit)
    sending = sender(play.connect("west"))
    sending.credit = 1
    sending.send(CUTS[0], tag=TAG, more=True)
    play.flush()
    for number in range(1, parts):
        sending.go_on(CUTS[number])
        play.flush()
    for name in lost.split(", "):
        if name != "nobody":
            (sending if name == "sender" else receiving).peer.lose()
            play.flush()
    for _ in range(crashes):
        play = play.crash()
    back = sender(play.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    here = b"".join(CUTS[:parts])
    assert back.attach.unsettled == {TAG: Received(0, len(here))}
    began = bool(receiving.received) and not receiving.aborted
    if receiving.is_live() and not crashes:
        again = receiving
        again.grant(5)
    else:
        told: dict[DeliveryTag, DeliveryState | None] = {}
        if began:
            told = {receiving.last.tag: Received(0, len(here))}
        again = receiver(play.connect("east"), unsettled=told)
    state = Received(0, len(here))
    rest = back.delivery(BODY[len(here) :], tag=TAG, resume=True, state=state)
    back.peer.happens(back.run([rest]))
    play.flush()
    assert [here + body if began and again.last.state else body for body in again.payloads] == [
        BODY
    ]
    again.update(again.last.number, settled=False)
    play.flush()
    assert back.outcome(rest.number) == (ACCEPTED, False)
    back.settle(rest.number, state=ACCEPTED)
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0


def test_what_a_lost_sender_left_unfinished_and_never_finishes_is_given_up() -> None:
    play, sending, receiving = begun(2)
    sending.peer.lose()
    play.flush()
    assert receiving.aborted
    play = play.crash()
    assert len(play.remembered()) == 1
    other = receiver(play.connect("north"))
    play.wait(1000)
    play.flush()
    assert other.received == []
    assert not play.remembered()
    assert play.core._registry.process.used == 0


def test_what_a_sender_that_redelivers_left_unfinished_is_brought_again() -> None:
    play = Journaled(EXACT)
    receiver(play.connect("east"))
    sending = play.connect("west").attach_sender(name="out")
    sending.send(CUTS[0], tag=TAG, more=True)
    play.flush()
    sending.peer.lose()
    play = play.crash()
    again = receiver(play.connect("north"))
    back = play.connect("west").attach_sender(name="out")
    back.send(BODY, tag=TAG)
    play.flush()
    assert again.payloads == [BODY]
    assert not [each for each in play.remembered().values() if not each.is_whole]


@pytest.mark.parametrize("credit", [5, 0])
@pytest.mark.parametrize("cuts", [(BODY,), (BODY[:30], BODY[30:]), CUTS, (*CUTS, b"")])
@pytest.mark.parametrize("offset", [0, 10])
def test_what_a_sender_sends_once_more_of_a_message_that_is_all_here_is_not_recorded(
    offset: int, cuts: tuple[bytes, ...], credit: int
) -> None:
    """It need not send any of it, and may send all (§2.6.13)."""
    play = Journaled(attrs.evolve(EXACT, unroutable=Unroutable.HOLD))
    receiving = receiver(play.connect("east"), credit=credit)
    sending = sender(play.connect("west"))
    sending.credit = 1
    sending.send(CUTS[0], tag=TAG, more=True)
    sending.go_on(CUTS[1])
    sending.go_on(CUTS[2], more=False)
    play.flush()
    sending.peer.lose()
    back = sender(play.connect("west"), unsettled={TAG: None})
    state, first = Received(0, offset), cuts[0][offset:]
    resumed = back.delivery(first, tag=TAG, resume=True, state=state, more=len(cuts) > 1)
    back.peer.happens(back.run([resumed]))
    for number, cut in enumerate(cuts[1:], 2):
        back.go_on(cut, more=number < len(cuts))
        (kept,) = play.remembered().values()
        assert kept.payload == BODY
    assert play.memory().misplaced_parts == 0
    after = play.crash()
    again = sender(after.connect("west"), unsettled={TAG: None})
    told = {receiving.last.tag: None} if credit else {}
    taker = receiver(after.connect("east"), unsettled=told)
    after.flush()
    assert taker.payloads == [BODY]
    known = again.delivery(b"", tag=TAG, resume=True)
    again.peer.happens(again.run([known]))
    taker.update(taker.last.number, settled=False)
    after.flush()
    check_accepted(after, again, known)


def settled_from(first: int, play: Journaled) -> SenderEnd:
    """Sends a delivery in three transfers, settled from one of them on (§2.7.5)."""
    sending = sender(play.connect("west"))
    sending.credit = 1
    sending.send(CUTS[0], tag=TAG, more=True, settled=first == 0)
    for number in (1, 2):
        play.flush()
        sending.go_on(CUTS[number], more=number == 1, settled=number >= first)
    sending.unsettled.clear()
    play.flush()
    return sending


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("crashes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("way", ["stays", "is lost", "comes back", "leaves"])
def test_what_any_of_its_transfers_says_is_settled_is_the_routers(
    way: str, crashes: tuple[bool, bool], first: int
) -> None:
    play = Journaled(attrs.evolve(EXACT, unroutable=Unroutable.HOLD))
    receiver(play.connect("east"), credit=0)
    sending = settled_from(first, play)
    if way == "leaves":
        sending.detach()
    elif way != "stays":
        sending.peer.lose()
    play.flush()
    play = play.crash() if crashes[0] else play
    if way == "comes back":
        sender(play.connect("west"), unsettled={}).send(b"next", tag=b"b")
        play.flush()
    play = play.crash() if crashes[1] else play
    other = receiver(play.connect("north"))
    play.flush()
    play.wait(1000)
    play.flush()
    assert other.payloads.count(BODY) == 1
    for each in list(other.received):
        other.update(each.number, settled=True)
    play.flush()
    play.wait(1000)
    play.flush()
    assert not [each for each in play.remembered().values() if each.tag == TAG]


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("crashes", [False, True])
def test_what_was_settled_by_a_later_transfer_and_is_returned_goes_to_the_next(
    crashes: bool, first: int
) -> None:
    play = Journaled(attrs.evolve(EXACT, unroutable=Unroutable.HOLD))
    receiving = receiver(play.connect("east"), credit=1)
    settled_from(first, play)
    assert receiving.bodies[receiving.last.number] == BODY
    receiving.update(receiving.last.number, state=RELEASED, settled=True)
    play.flush()
    play = play.crash() if crashes else play
    other = receiver(play.connect("north"))
    play.flush()
    assert other.payloads == [BODY]
    other.update(other.last.number, settled=True)
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0


LARGE = b"\x00\x53\x75\xb0\x00\x30\x00\x00" + bytes(range(256)) * 12288
LARGE_RECORDS = 4


def cut_off(kept: int, protocol: Protocol = Protocol.AMQP_1_0) -> Journaled:
    """A worker was killed when so many records of a large delivery that came as one were there."""
    play = Journaled(EXACT)
    receiver(play.connect("east"))
    sender(play.connect("west")).send(LARGE, tag=TAG, protocol=protocol)
    play.hand_in()
    [first] = [
        block.first_sequence + row
        for block in (open_block(memoryview(sealed.octets)) for sealed in play.blocks)
        for row, record in enumerate(block.records())
        if record.kind is RecordKind.RECEIVED
    ]
    return play.crash(keeps=first + kept - 1)


@pytest.mark.parametrize("kept", range(1, LARGE_RECORDS))
@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("protocol", [Protocol.AMQP_1_0, Protocol.AMQP_0_10])
def test_what_came_as_one_and_is_not_all_on_record_is_not_known_and_comes_again(
    kept: int, crashes: int, protocol: Protocol
) -> None:
    """Nobody was sent it, so its sender may begin anew: it need not send parts, nor positions."""
    play = cut_off(kept, protocol)
    for _ in range(1, crashes):
        play = play.crash()
    assert not play.remembered()
    receiving = receiver(play.connect("east"), unsettled={})
    back = sender(play.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {}
    (number,) = back.send(LARGE, tag=TAG, protocol=protocol)
    play.flush()
    assert [each.payload == LARGE for each in receiving.received] == [True]
    receiving.update(receiving.last.number, settled=False)
    play.flush()
    assert back.outcome(number) == (ACCEPTED, False)
    back.settle(number, state=ACCEPTED)
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0


def test_what_came_as_one_is_brought_back_if_all_of_it_is_on_record() -> None:
    play = cut_off(LARGE_RECORDS)
    back = sender(play.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    assert back.attach.unsettled == {TAG: Received(1, 0)}
    receiving = receiver(play.connect("east"), unsettled={})
    play.flush()
    assert [each.payload == LARGE for each in receiving.received] == [True]


@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("sender_first", [True, False])
@pytest.mark.parametrize("rest", [(b"",), (BODY[:15],), (BODY[:4], BODY[4:15]), (b"", b"", b"")])
def test_a_sender_that_resumes_with_less_than_is_here_has_not_sent_all(
    rest: tuple[bytes, ...], sender_first: bool, crashes: bool
) -> None:
    play, sending, receiving = begun(2)
    if crashes:
        play = play.crash()
    else:
        receiving.peer.lose()
        sending.peer.lose()
        play.flush()
    told = {receiving.last.tag: Received(0, 20)}
    again = None if sender_first else receiver(play.connect("east"), unsettled=told)
    play.flush()
    back = sender(play.connect("west"), unsettled={TAG: None})
    cut = back.delivery(rest[0], tag=TAG, resume=True, more=len(rest) > 1)
    back.peer.happens(back.run([cut]))
    for number, part in enumerate(rest[1:], 2):
        back.go_on(part, more=number < len(rest))
    again = again or receiver(play.connect("east"), unsettled=told)
    play.flush()
    assert again.payloads == []
    assert [each.number for each in again.received] == again.aborted
    outcome = back.outcome(cut.number)
    assert outcome is not None
    assert outcome[0] == MODIFIED_FAILED
    assert [each.is_whole for each in play.remembered().values()] in ([], [False])
    back.settle(cut.number, state=MODIFIED_FAILED)
    play.flush()
    assert not play.remembered()
    assert play.core._registry.process.used == 0


@pytest.mark.parametrize("clouds", [False, True])
@pytest.mark.parametrize("missing", [10, 20])
@pytest.mark.parametrize("state", POSITIONS)
def test_a_part_that_cannot_be_read_after_a_crash_is_asked_of_the_sender_again(
    state: object, missing: int, clouds: bool
) -> None:
    """A damaged block in the middle: no receiver gets what stands around it as the message."""
    play, _, receiving = begun(3)
    play.hand_in()
    lacking = [each for each in play.blocks if missing not in places_in(each.octets)]
    assert len(lacking) == len(play.blocks) - 1
    play.blocks, play.is_clouded = lacking, clouds
    after = play.crash()
    assert in_doubt(after) == 1
    again = receiver(after.connect("east"), unsettled=theirs(receiving.last.tag, state))
    after.flush()
    assert b"".join(again.payloads) in (b"", BODY[:missing])
    back = sender(after.connect("west"), unsettled={TAG: None})
    assert back.attach is not None
    known = (back.attach.unsettled or {})[TAG]
    assert isinstance(known, Received)
    assert octets_before(BODY, known) == missing
    delivery = back.delivery(BODY[missing:], tag=TAG, resume=True, state=known)
    back.peer.happens(back.run([delivery]))
    after.flush()
    assert arrived(again, state) == [BODY]


@pytest.mark.parametrize(
    ("missing", "clouds"), [(10, False), (20, False), (10, True), (20, True), (None, False)]
)
def test_a_message_in_custody_of_which_a_part_cannot_be_read_is_lost_and_not_sent(
    missing: int | None, clouds: bool
) -> None:
    play = Journaled(EXACT)
    sending = play.connect("west").attach_sender()
    play.connect("east").attach_receiver(name="full", credit=1)
    play.flush()
    sending.send(b"first", settled=True)
    sending.send(CUTS[0], tag=TAG, more=True, settled=True)
    for number in (1, 2):
        play.flush()
        sending.go_on(CUTS[number], more=number == 1)
    play.flush()
    whole = len(play.remembered())
    play.blocks = [each for each in play.blocks if missing not in places_in(each.octets)]
    play.is_clouded = clouds
    after = play.crash()
    receiving = after.connect("north").attach_receiver(name="other", credit=5)
    after.flush()
    after.wait(1000)
    arrived = [body for body in receiving.payloads if body.startswith(BODY[:5])]
    assert arrived == ([] if missing else [BODY])
    assert whole == 2


def places_in(octets: bytes) -> list[int]:
    """Says of each part in a block where in its message it belongs."""
    rows = open_block(memoryview(octets)).unpacked_rows()
    return [row[10] for row in rows if row[0] == RecordKind.PART]
