"""Routes that promise less than exactly-once, in the ledger: all is written, nothing waits."""

import attrs
import pytest

from router.core.listing import Filter
from router.core.settings import ContainerTerms
from router.core.stored import STORE
from router.journal.block import open_block
from router.journal.record import GuaranteeCode, Record, RecordFlag, RecordKind
from router.journal.writer import RecordWriter
from router.model.capabilities import Capabilities, Protocol
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, RELEASED, Received, Rejected
from router.model.terminus import ExpiryPolicy, ReceiverSettleMode
from router.pipeline.selection import Keeping, Selection
from router.routes.route import Endpoint, Guarantee, InDoubt, Route, Storing, Unroutable
from tests.support.fleet import Fleet
from tests.support.journaled import EPOCH_NS, EXACT, Journaled
from tests.support.play import Play, ReceiverEnd, SenderEnd

RECORDED = Route(address="orders", is_recorded=True)
AT_MOST_ONCE = Route(address="orders", guarantee=Guarantee.AT_MOST_ONCE, is_recorded=True)
ARCHIVED = Route(address="orders", archive=True)
NEVER = ExpiryPolicy.NEVER
DOUBTFUL = Filter(in_doubt=True)
LINKS = (RecordKind.LINK_ATTACHED, RecordKind.LINK_EXPIRED, RecordKind.LINK_SUSPENDED)


def read(writer: RecordWriter) -> list[Record]:
    """Gives what was written, links left out."""
    blocks = [open_block(memoryview(each.octets)) for each in writer.take_blocks()]
    return [each for block in blocks for each in block.records() if each.kind not in LINKS]


def kinds(records: list[Record]) -> list[str]:
    """Names them; with "!" where the record says settled."""
    return [
        RecordKind(each.kind).name + ("!" if each.flags & RecordFlag.SETTLED else "")
        for each in records
    ]


def meeting(*routes: Route) -> tuple[Journaled, SenderEnd, ReceiverEnd]:
    play = Journaled(*routes)
    receiving = play.connect("east").attach_receiver(credit=10)
    return play, play.connect("west").attach_sender(), receiving


def test_the_whole_life_of_a_delivery_is_written_and_nothing_waits_for_it() -> None:
    play, sending, receiving = meeting(RECORDED)
    (number,) = sending.send("one")
    assert receiving.payloads == [b"one"]
    receiving.update(receiving.last.number, settled=False)
    assert sending.outcome(number) == (ACCEPTED, True)
    records = read(play.writer)
    assert kinds(records) == ["RECEIVED", "SENT", "OUTCOME", "SETTLED", "SETTLED"]
    assert {each.key for each in records} == {records[0].key}
    assert records[0].guarantee == records[1].guarantee == GuaranteeCode.AT_LEAST_ONCE
    assert records[0].message_octets == 3
    assert not records[0].flags & RecordFlag.HELD
    assert records[1].tag == receiving.last.tag


@pytest.mark.parametrize(
    "sender",
    [
        pytest.param(Capabilities(protocol=Protocol.AMQP_1_0), id="a client"),
        pytest.param(Capabilities(protocol=Protocol.AMQP_1_0, is_router=True), id="trusted"),
        pytest.param(Capabilities(protocol=Protocol.AMQP_1_0, is_neighbor=True), id="untrusted"),
    ],
)
def test_links_of_trusted_routers_are_on_record_as_such_and_no_others(
    sender: Capabilities,
) -> None:
    play = Journaled(RECORDED)
    router = Capabilities(protocol=Protocol.AMQP_1_0, is_router=True, is_neighbor=True)
    receiving = play.connect("east", capabilities=router).attach_receiver(credit=10)
    play.connect("west", capabilities=sender).attach_sender().send("one")
    assert receiving.payloads == [b"one"]
    blocks = [open_block(memoryview(each.octets)) for each in play.writer.take_blocks()]
    links = [each for block in blocks for each in block.records() if each.kind in LINKS]
    assert {bool(each.outgoing): each.flags for each in links} == {
        True: RecordFlag.ROUTER,
        False: 0,
    }


def test_a_life_that_is_over_leaves_nothing_to_remember() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one", "two")
    receiving.accept(*[each.number for each in receiving.received])
    assert not play.remembered()


def test_what_was_only_recorded_does_not_come_back_after_a_crash() -> None:
    play, sending, _ = meeting(RECORDED)
    sending.send("one")
    assert len(play.remembered()) == 1
    after = play.crash()
    assert after.connect("east").attach_receiver(credit=10).payloads == []
    assert not after.remembered()


def test_deliveries_settled_beforehand_have_two_records_at_most_once() -> None:
    play, sending, receiving = meeting(AT_MOST_ONCE)
    sending.send("one", settled=True)
    assert receiving.payloads == [b"one"]
    assert kinds(read(play.writer)) == ["RECEIVED!", "SENT!"]


def test_deliveries_settled_beforehand_have_their_outcome_on_record() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one", settled=True)
    assert receiving.payloads == [b"one"]
    receiving.accept()
    assert kinds(read(play.writer)) == ["RECEIVED!", "SENT", "OUTCOME!"]
    assert not play.remembered()


def test_deliveries_settled_beforehand_that_come_back_are_sent_again_and_all_is_on_record() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one", settled=True)
    sending.peer.lose()
    receiving.update(receiving.last.number, state=RELEASED)
    receiving.accept()
    assert kinds(read(play.writer)) == [
        *("RECEIVED!", "SENT", "RESOLVED", "OUTCOME!", "SENT", "OUTCOME!")
    ]
    assert not play.remembered()


def test_deliveries_settled_beforehand_that_are_rejected_end_on_record() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one", settled=True)
    receiving.update(receiving.last.number, state=Rejected())
    assert kinds(read(play.writer))[-2:] == ["OUTCOME", "SETTLED"]
    assert not play.remembered()


def test_at_most_once_tells_a_sender_that_wants_to_know_and_records_it() -> None:
    play, sending, _ = meeting(AT_MOST_ONCE)
    (number,) = sending.send("one")
    assert sending.outcome(number) == (ACCEPTED, True)
    assert kinds(read(play.writer)) == ["RECEIVED", "SENT!", "OUTCOME", "SETTLED"]
    assert not play.remembered()


def test_what_nobody_takes_is_on_record_as_that() -> None:
    play = Journaled(attrs.evolve(RECORDED, unroutable=Unroutable.REJECT))
    sending = play.connect("west").attach_sender()
    receiving = play.connect("east").attach_receiver(credit=1)
    sending.send("one", settled=True)
    receiving.peer.lose()
    sending.send("two", settled=True)
    play.wait(100)
    records = read(play.writer)
    assert kinds(records)[-3:] == ["RECEIVED!", "OUTCOME", "SETTLED"]
    assert not play.remembered()


def test_a_delivery_given_back_is_sent_to_the_next_and_both_are_on_record() -> None:
    play, sending, receiving = meeting(RECORDED)
    other = play.connect("north").attach_receiver(credit=1)
    (number,) = sending.send("one")
    first, second = (receiving, other) if receiving.payloads else (other, receiving)
    first.update(first.last.number, state=RELEASED)
    second.accept()
    assert sending.outcome(number) == (ACCEPTED, True)
    assert kinds(read(play.writer)) == [
        *("RECEIVED", "SENT", "OUTCOME!", "SENT", "OUTCOME!", "SETTLED")
    ]


def test_a_sender_that_leaves_leaves_nothing_to_remember() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one")
    sending.peer.lose()
    receiving.accept()
    assert not play.remembered()


def test_while_the_journal_is_stuck_traffic_goes_on_and_is_counted() -> None:
    play, sending, receiving = meeting(RECORDED)
    sending.send("one")
    play.carry_out(play.core.journal_stuck(True, play.now))
    numbers = sending.send("two", "three")
    receiving.accept(*[each.number for each in receiving.received])
    assert sending.outcome(numbers[-1]) == (ACCEPTED, True)
    play.carry_out(play.core.journal_stuck(False, play.now))
    sending.send("four")
    records = read(play.writer)
    assert kinds(records) == ["RECEIVED", "SENT", "OUTCOME!", "SETTLED", "GAP", "RECEIVED", "SENT"]
    assert records[4].message_octets == 2


def test_routes_that_are_not_recorded_are_not() -> None:
    play, _, _ = meeting(RECORDED, Route(address="others"))
    other = play.connect("south").attach_receiver("others", credit=1)
    play.connect("west").attach_sender("others").send("one")
    assert other.payloads == [b"one"]
    assert read(play.writer) == []


# The archive


def archiving(*routes: Route) -> tuple[Journaled, SenderEnd, ReceiverEnd, RecordWriter]:
    play, sending, receiving = meeting(*routes)
    return play, sending, receiving, open_archive(play)


def open_archive(play: Journaled, life: int = 1) -> RecordWriter:
    archive = RecordWriter(worker=0, incarnation=life)

    def to_sections(protocol: Protocol, payload: bytes) -> bytes | None:
        return payload if protocol is Protocol.AMQP_1_0 else b"sections of " + payload

    play.core.archive(archive, EPOCH_NS, to_sections)
    return archive


def test_archived_messages_are_kept_whole_with_key_address_and_time() -> None:
    play, sending, receiving, archive = archiving(ARCHIVED)
    sending.send("one", ttl_milliseconds=5000)
    assert receiving.payloads == [b"one"]
    (kept,) = read(archive)
    assert (kept.kind, kept.address, kept.body) == (RecordKind.ARCHIVED, "orders", b"one")
    assert kept.ttl_milliseconds == 5000
    assert kept.time_ns == EPOCH_NS + int(play.now * 1e9)
    assert kept.key == read(play.writer)[0].key


def test_messages_of_other_protocols_are_kept_as_sections() -> None:
    _, sending, _, archive = archiving(ARCHIVED)
    sending.send("one", protocol=Protocol.AMQP_0_9_1)
    (kept,) = read(archive)
    assert kept.body == b"sections of one"
    assert kept.protocol == 1


def test_a_message_in_parts_is_kept_as_it_comes() -> None:
    _, sending, receiving, archive = archiving(ARCHIVED)
    sending.send("one", more=True)
    sending.go_on(b"two")
    sending.go_on(b"three", more=False)
    records = read(archive)
    assert kinds(records) == ["ARCHIVED", "PART", "PART"]
    assert b"".join(each.body for each in records) == b"onetwothree"
    assert [bool(each.flags & RecordFlag.MORE) for each in records] == [True, True, False]
    assert receiving.last.payload


@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("start", [0, 8, 12])
@pytest.mark.parametrize("ends", [True, False])
def test_a_message_in_parts_that_was_cut_off_is_kept_whole(
    ends: bool, start: int, crashes: bool
) -> None:
    """Its sender may begin before what is here; what a killed worker has kept is kept anew."""
    play = Journaled(attrs.evolve(EXACT, archive=True))
    archive = open_archive(play)
    body, tag = b"\x00\x53\x75\xb0\x00\x00\x00\x1e" + b"0123456789" * 3, DeliveryTag(b"a")
    play.connect("east").attach_receiver(credit=10, second=True)
    peer = play.connect("west")
    sending = peer.attach_sender(name="out", second=True, policy=NEVER)
    sending.send(body[:10], tag=tag, more=True)
    sending.go_on(body[10:12])
    play.flush()
    blocks = list(archive.take_blocks())
    if crashes:
        play = play.crash()
        archive = open_archive(play, 2)
    else:
        peer.lose()
    back = play.connect("west").attach_sender(
        name="out", second=True, policy=NEVER, unsettled={tag: None}
    )
    state = Received(0, start) if start else None
    again = back.delivery(body[start:] if ends else body[start:11], tag=tag, resume=True)
    again.state, again.more = state, not ends
    back.peer.happens(back.run([again]))
    if not ends:
        back.go_on(body[max(start, 11) : 20])
        back.go_on(body[20:], more=False)
    play.flush()
    blocks += archive.take_blocks()
    kept = Keeping(Selection())
    for sealed in blocks:
        for record in open_block(memoryview(sealed.octets)).records():
            kept.take(record)
    assert kept.selected.payloads == {"orders": [body]}


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_a_stored_message_is_archived_once_when_it_comes_from_its_sender(
    guarantee: Guarantee,
) -> None:
    """The store sends what has been kept: the target's copy is no other message."""
    cloud = Endpoint("cloud")
    route = Route(
        address="orders",
        to=(cloud,),
        store=Storing(always=True),
        dead_letter=Endpoint("cloud", "dead"),
        guarantee=guarantee,
        archive=True,
    )
    play = Journaled(route)
    archive = open_archive(play)
    store, target = play.dial(STORE), play.dial("cloud")
    sender = play.connect().attach_sender("orders")
    shelf = store.answer_receiver("orders", credit=10)
    sender.send("one")
    play.flush()
    assert shelf.payloads == [b"one"]
    inlet = store.attach_sender("orders")
    there = target.answer_receiver("orders", credit=5)
    inlet.send("one")
    play.flush()
    assert there.payloads == [b"one"]
    play.core.archive_stuck(True, play.now)
    inlet.send("two")
    play.core.archive_stuck(False, play.now)
    (kept,) = read(archive)
    assert (kept.kind, kept.body) == (RecordKind.ARCHIVED, b"one")


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_a_message_that_passes_two_workers_is_archived_once(guarantee: Guarantee) -> None:
    fleet = Fleet(2, attrs.evolve(ARCHIVED, guarantee=guarantee), make=Journaled)
    plays = [each for each in fleet.plays.values() if isinstance(each, Journaled)]
    archives = [open_archive(play) for play in plays]

    def settle() -> None:
        fleet.settle()
        for play in plays:
            play.flush()
        fleet.settle()

    receiver = fleet[1].connect("receiver").attach_receiver("orders", credit=10)
    settle()
    sender = fleet[2].connect("sender").attach_sender("orders")
    settle()
    sender.send(b"\x00Su\xa0\x03one")
    settle()
    assert len(receiver.payloads) == 1
    (kept,) = [record for archive in archives for record in read(archive)]
    assert (kept.kind, kept.body) == (RecordKind.ARCHIVED, b"\x00Su\xa0\x03one")


def test_what_the_archive_cannot_take_is_counted_and_goes_on() -> None:
    play, sending, receiving, archive = archiving(ARCHIVED)
    play.core.archive_stuck(True, play.now)
    sending.send("one", "two")
    play.core.archive_stuck(False, play.now)
    assert receiving.payloads == [b"one", b"two"]
    (gap,) = read(archive)
    assert (gap.kind, gap.message_octets) == (RecordKind.GAP, 2)


# What the configuration says of containers

BRIDGE = Route(
    address="orders",
    from_=Endpoint("source"),
    to=(Endpoint("target"),),
    guarantee=Guarantee.EXACTLY_ONCE,
    in_doubt=InDoubt.HOLD,
)


def bridge(resumes: bool) -> Play:
    terms = {name: ContainerTerms(resumes=resumes) for name in ("source", "target")}
    return Play(BRIDGE, terms=terms)


def test_a_container_that_does_not_resume_is_told_no_map_and_its_word_is_not_taken() -> None:
    play = bridge(resumes=False)
    source = play.dial("source").answer_sender("orders")
    assert source.attach is not None
    assert source.attach.receiver_settle_mode is ReceiverSettleMode.FIRST
    target = play.dial("target").answer_receiver("orders", credit=5)
    source.send("one")
    target.peer.lose()
    again = play.dial("target")
    (attach,) = again.asked.values()
    assert attach.unsettled is None
    back = again.answer_receiver("orders", credit=5)
    assert back.payloads == []  # it says that it knows nothing, which proves nothing: held
    page = play.core.lister.deliveries(DOUBTFUL, 100, None, play.now)
    assert len(page.deliveries) == 1


@pytest.mark.parametrize("resumes", [False, None])
def test_more_in_doubt_than_a_map_holds_does_not_keep_a_link_from_going_on(
    resumes: bool | None,
) -> None:
    terms = {name: ContainerTerms(resumes=resumes) for name in ("source", "target")}
    play = Play(BRIDGE, terms=terms, frame_octets=180)
    source = play.dial("source").answer_sender("orders")
    target = play.dial("target").answer_receiver("orders", credit=8)
    source.send(*[f"before {number}" for number in range(8)])
    target.peer.lose()
    back = play.dial("target").answer_receiver("orders", credit=8)
    source.send("after")
    assert back.payloads == [b"after"]
    assert len(play.core.lister.deliveries(DOUBTFUL, 100, None, play.now).deliveries) == 8


def test_a_container_that_resumes_is_told_the_map_whatever_the_route_promises() -> None:
    route = Route(address="orders", to=(Endpoint("target"),))
    play = Play(route, terms={"target": ContainerTerms(resumes=True)})
    sending = play.connect().attach_sender()
    target = play.dial("target").answer_receiver("orders", credit=5)
    sending.send("one")
    tag = target.last.tag
    target.peer.lose()
    (attach,) = play.dial("target").asked.values()
    assert attach.unsettled == {tag: None}
