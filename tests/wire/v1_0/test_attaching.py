"""Sessions and links: begun, named, answered, refused, stolen, detached, closed, suspended."""

from typing import Any

import pytest

from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    RefuseLink,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import (
    DETACH_FORCED,
    FRAME_SIZE_TOO_SMALL,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    Condition,
)
from router.model.events import (
    CreditGranted,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    SessionEnded,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, RELEASED, Received, Rejected
from router.model.terminus import (
    ALL_OUTCOMES,
    Coordinator,
    Durability,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.wire.v1_0.begun import SPREAD
from router.wire.v1_0.endpoints import MISSED_REQUESTS, SUSPENDED_LINKS
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import make_express
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from router.wire.v1_0.session import UNTOLD_HANDLES
from router.wire.v1_0.types import Described, Symbol, Ulong
from tests.support.kernel import MODES
from tests.support.linked import Linked, deliveries
from tests.support.peer import Peer, attached, begun, opened, settings

ERROR = Condition(DETACH_FORCED, "because")


def own(link: int, role: Role = Role.SENDER, name: str | None = None, **changes: Any) -> AttachLink:
    return AttachLink(
        link=LinkId(link),
        name=LinkName(name or f"own-{link}"),
        role=role,
        source=Source(address="from"),
        target=Target(address="to"),
        **changes,
    )


def answer_begin(peer: Peer, channel: int, remote_channel: int, **changes: Any) -> None:
    """The peer answers a begin of ours."""
    fields = {"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000} | changes
    peer.send(Begin(remote_channel=remote_channel, **fields), channel=channel)


def test_an_answer_has_addresses_as_the_peer_wrote_them() -> None:
    peer = begun()
    written = Source(address="amqp://a/x%20y")
    peer.attach(source=written, target=Target(address="amqp://b/z"))
    event = peer.take_event(LinkAttached)
    assert isinstance(event.source, Source)
    assert event.source.address == "x y"
    target = Target(address="elsewhere")  # another one, which the peer has to know
    command = AttachLink(
        link=event.link, name=event.name, role=event.role, source=event.source, target=target
    )
    peer.engine.execute(command)
    answer = peer.expect_one(Attach)
    assert (answer.source, answer.target) == (written, target)


# --- sessions -------------------------------------------------------------------------------------


def test_a_begin_is_answered_on_the_lowest_free_channel() -> None:
    peer = opened(session_window_frames=77, handle_max=9)
    begin = peer.begin(channel=200)
    assert begin.remote_channel == 200
    assert (begin.incoming_window, begin.handle_max) == (77, 9)
    assert peer.begin(channel=5).remote_channel == 5
    peer.send(End(), channel=200)
    (seen,) = peer.take_frames()
    assert (seen.channel, seen.performative) == (0, End())
    peer.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=7)
    assert [each.channel for each in peer.take_frames()] == [0]


def test_a_session_that_ends_takes_its_links_along() -> None:
    peer = attached()
    peer.attach(Role.RECEIVER, name="other", handle=1)
    peer.answer()
    peer.send(End(Condition(NOT_IMPLEMENTED, "no")))
    peer.expect_one(End)
    lost = peer.take_events()
    assert lost == [
        *(LinkDetached(LinkId(link), False, Condition(NOT_IMPLEMENTED, "no")) for link in (1, 2)),
        SessionEnded(0),
    ]
    peer.engine.execute(DetachLink(LinkId(1), True))
    peer.expect_nothing()


def test_frames_of_one_session_do_not_reach_another() -> None:
    peer = attached()
    peer.begin(channel=1)
    peer.flow(channel=1, handle=0, link_credit=1)
    end = peer.expect_one(End)
    assert end.error is not None


# --- links of the peer's --------------------------------------------------------------------------


def test_everything_that_a_peer_says_of_a_link_reaches_the_core() -> None:
    peer = begun()
    source = Source(
        address="from",
        durability=Durability.UNSETTLED_STATE,
        expiry_policy=ExpiryPolicy.NEVER,
        expiry_seconds=60,
        distribution_mode="copy",
        filters={"selector": Described(Ulong(0x0000468C00000004), "a = 1")},
        default_outcome=RELEASED,
        outcomes=ALL_OUTCOMES,
        capabilities=("queue",),
    )
    target = Target(address="to", dynamic_node_properties={"x": 1}, capabilities=("topic",))
    unsettled = {b"one": None, b"two": Received(1, 2), b"three": ACCEPTED}
    peer.attach(
        Role.RECEIVER,
        source=source,
        target=target,
        snd_settle_mode=SenderSettleMode.UNSETTLED,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,
        incomplete_unsettled=True,
        max_message_size=10_000,
        offered_capabilities=("a",),
        desired_capabilities=("b", "c"),
        properties={"p": Symbol("v")},
    )
    assert peer.take_event(LinkAttached) == LinkAttached(
        link=LinkId(1),
        name=LinkName("link"),
        role=Role.SENDER,
        is_answer=False,
        source=source,
        target=target,
        sender_settle_mode=SenderSettleMode.UNSETTLED,
        receiver_settle_mode=ReceiverSettleMode.SECOND,
        unsettled={DeliveryTag(tag): state for tag, state in unsettled.items()},
        incomplete_unsettled=True,
        max_message_octets=10_000,
        offered_capabilities=("a",),
        desired_capabilities=("b", "c"),
        properties={"p": "v"},
        may_be_late=True,
        session=0,
    )


@pytest.mark.parametrize("express", MODES)
@pytest.mark.parametrize("most", [0, None, (1 << 63), (1 << 64) - 1])
def test_a_receiver_that_takes_any_size_says_so_in_one_way(express: str, most: int | None) -> None:
    """Azure's clients say the largest ulong (§2.7.3: zero, or no value, is no limit)."""
    peer = Peer(Engine10(settings(), make_express(express)))
    peer.greet()
    peer.begin()
    peer.attach(Role.RECEIVER, max_message_size=most)
    assert peer.take_event(LinkAttached).max_message_octets == 0


def test_the_peer_is_told_what_the_core_says_and_nothing_else() -> None:
    peer = begun()
    peer.attach(source=Source(address="from", durability=Durability.CONFIGURATION))
    event = peer.take_event(LinkAttached)
    answer = AttachLink(
        link=event.link,
        name=event.name,
        role=Role.RECEIVER,
        source=Source(address="from"),
        target=Target(address="made", dynamic=True, expiry_policy=ExpiryPolicy.LINK_DETACH),
        receiver_settle_mode=ReceiverSettleMode.SECOND,
        unsettled={DeliveryTag(b"t"): None},
        incomplete_unsettled=True,
        max_message_octets=5000,
        offered_capabilities=("x",),
        properties={"mine": 1},
    )
    peer.engine.execute(answer)
    assert peer.expect_one(Attach) == Attach(
        name="link",
        handle=0,
        role=Role.RECEIVER,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        source=Source(address="from"),
        target=Target(address="made", dynamic=True, expiry_policy=ExpiryPolicy.LINK_DETACH),
        unsettled={b"t": None},
        incomplete_unsettled=True,
        max_message_size=5000,
        offered_capabilities=("x",),
        properties={"mine": 1},
    )


def test_a_dynamic_node_is_asked_for_and_named() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER, source=Source(dynamic=True, dynamic_node_properties={"a": 1}))
    event = peer.take_event(LinkAttached)
    assert event.source is not None
    assert event.source.dynamic
    peer.engine.execute(
        AttachLink(
            link=event.link,
            name=event.name,
            role=event.role,
            source=Source(address="made-up", dynamic=True),
            target=event.target,
        )
    )
    attach = peer.expect_one(Attach)
    assert attach.source is not None
    assert attach.source.address == "made-up"
    assert attach.initial_delivery_count == 0


def test_a_coordinator_is_the_cores_to_refuse() -> None:
    peer = begun()
    peer.attach(target=Coordinator(("amqp:local-transactions",)))
    event = peer.take_event(LinkAttached)
    assert event.target == Coordinator(("amqp:local-transactions",))
    peer.engine.execute(RefuseLink(event.link, Condition(NOT_IMPLEMENTED)))
    attach, detach = peer.expect(Attach, Detach)
    assert attach.target is None
    assert detach.error == Condition(NOT_IMPLEMENTED)


def test_a_peer_may_detach_before_it_is_answered() -> None:
    peer = begun()
    peer.attach()
    peer.send(Detach(0, closed=True))
    requested, gone = peer.take_events()
    assert isinstance(requested, LinkAttached)
    assert gone == LinkDetached(LinkId(1), True)
    attach, detach = peer.expect(Attach, Detach)
    assert attach.target is None
    assert detach == Detach(0, True)
    peer.engine.execute(own(1, Role.RECEIVER, "link"))  # too late: it must not begin a new link
    peer.engine.execute(RefuseLink(LinkId(1), ERROR))
    peer.expect_nothing()
    peer.attach()
    assert peer.take_event(LinkAttached).link == 2


def test_answers_that_never_come_are_not_waited_for() -> None:
    peer = begun()
    for _ in range(MISSED_REQUESTS + 5):
        peer.attach()
        peer.send(Detach(0, closed=True))
        peer.take_frames()
    assert len(peer.engine._endpoints.missed) == MISSED_REQUESTS


def test_a_pipelined_flow_counts_before_the_attach_is_answered() -> None:
    peer = begun()
    peer.attach(Role.RECEIVER)
    peer.flow(handle=0, link_credit=7)
    requested, granted = peer.take_events()
    assert isinstance(requested, LinkAttached)
    assert granted == CreditGranted(LinkId(1), 7)
    peer.engine.execute(own(1, Role.SENDER, "link"))
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    peer.expect(Attach, Transfer)


def test_a_refused_link_may_be_asked_for_again() -> None:
    peer = begun()
    for link in (1, 2):
        peer.attach()
        assert peer.take_event(LinkAttached).link == link
        peer.engine.execute(RefuseLink(LinkId(link), ERROR))
        peer.expect(Attach, Detach)
        peer.send(Detach(0, closed=True))
        assert peer.take_events() == []


# --- names ----------------------------------------------------------------------------------------


def test_one_name_serves_both_directions() -> None:
    peer = attached()
    peer.attach(Role.RECEIVER, handle=1)
    assert peer.take_event(LinkAttached).role is Role.SENDER


@pytest.mark.parametrize("channel", [0, 1])
def test_a_name_that_is_attached_again_is_stolen(channel: int) -> None:
    peer = attached()
    if channel:
        peer.begin(channel=1)
    peer.attach(handle=1, channel=channel)
    lost, gained = peer.take_events()
    assert isinstance(lost, LinkDetached)
    assert lost.link == 1
    assert lost.closed
    assert lost.condition is not None
    assert lost.condition.name == STOLEN
    assert isinstance(gained, LinkAttached)
    assert gained.link == 2
    detach = peer.expect_one(Detach)
    assert detach.error == lost.condition
    peer.transfer(0)  # was under way on the old link
    peer.send(Detach(0, closed=True))
    peer.events.append(gained)
    peer.answer(10)
    peer.transfer(1 if channel == 0 else 0, handle=1, channel=channel)
    assert [type(each).__name__ for each in peer.take_events()] == ["DeliveriesReceived"]


def test_a_name_is_free_again_behind_a_pipelined_detach() -> None:
    peer = attached()
    peer.send(Detach(0, closed=False))
    peer.attach()
    lost, gained = peer.take_events()
    assert lost == LinkDetached(LinkId(1), False)
    assert isinstance(gained, LinkAttached)
    peer.expect_one(Detach)


def test_our_next_attach_of_a_name_waits_for_the_peers_detach() -> None:
    peer = opened()
    peer.engine.execute(own(1, name="same"))
    peer.expect(Begin, Attach)
    answer_begin(peer, 0, 0)
    peer.attach(Role.RECEIVER, name="same")
    peer.engine.execute(DetachLink(LinkId(1), True))
    peer.expect_one(Detach)
    peer.engine.execute(own(2, name="same"))
    peer.expect_nothing()
    peer.send(Detach(0, closed=True))
    assert peer.expect_one(Attach).name == "same"


def test_an_attach_that_waits_for_its_name_can_be_called_off() -> None:
    peer = opened()
    peer.engine.execute(own(1, name="same"))
    answer_begin(peer, 0, 0)
    peer.attach(Role.RECEIVER, name="same")
    peer.engine.execute(DetachLink(LinkId(1), True))
    peer.engine.execute(own(2, name="same"))
    peer.engine.execute(DetachLink(LinkId(2), True))
    peer.take_frames()
    peer.send(Detach(0, closed=True))
    peer.expect_nothing()


def test_our_next_attach_of_a_name_goes_out_when_the_session_ends() -> None:
    peer = opened()
    peer.engine.execute(own(1, name="same"))
    answer_begin(peer, 0, 0)
    peer.attach(Role.RECEIVER, name="same")
    peer.engine.execute(DetachLink(LinkId(1), True))
    peer.engine.execute(own(2, name="same"))
    peer.take_frames()
    peer.send(End())
    assert [type(each.performative) for each in peer.take_frames()] == [End, Begin, Attach]


# --- links of our own -----------------------------------------------------------------------------


def test_our_own_link_begins_a_session_and_waits_for_the_answer() -> None:
    peer = opened()
    peer.engine.execute(own(9, Role.RECEIVER))
    begin, attach = peer.expect(Begin, Attach)
    assert begin.remote_channel is None
    assert attach.initial_delivery_count is None
    peer.engine.execute(GrantCredit(LinkId(9), 3))
    peer.expect_nothing()  # the peer's delivery-count is not known yet
    answer_begin(peer, 8, 0)
    peer.attach(name="own-9", channel=8, handle=5, initial_delivery_count=7)
    event = peer.take_event(LinkAttached)
    assert event.is_answer
    assert event.link == 9
    flow = peer.expect_one(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 7, 3)


def test_an_answer_without_a_terminus_is_a_refusal() -> None:
    peer = opened()
    peer.engine.execute(own(9))
    peer.take_frames()
    answer_begin(peer, 0, 0)
    peer.attach(Role.RECEIVER, name="own-9", target=None)
    event = peer.take_event(LinkAttached)
    assert event.is_answer
    assert event.target is None
    peer.send(Detach(0, True, ERROR))
    assert peer.take_event(LinkDetached) == LinkDetached(LinkId(9), True, ERROR)
    assert peer.expect_one(Detach) == Detach(0, True)


def test_a_link_that_we_give_up_before_its_answer_is_still_brought_to_its_end() -> None:
    peer = opened()
    peer.engine.execute(own(9))
    peer.engine.execute(DetachLink(LinkId(9), True))
    peer.expect(Begin, Attach, Detach)
    peer.collect()
    assert peer.take_event(LinkDetached) == LinkDetached(LinkId(9), True)
    answer_begin(peer, 0, 0)
    peer.attach(Role.RECEIVER, name="own-9")
    peer.flow(handle=0, link_credit=10)
    assert peer.take_events() == []
    peer.send(Detach(0, True))
    peer.expect_nothing()
    peer.engine.execute(own(10))
    assert peer.expect_one(Attach).handle == 0


def test_links_that_send_share_a_session_and_links_that_receive_are_spread() -> None:
    peer = opened()
    for link in range(1, 21):
        peer.engine.execute(own(link, Role.SENDER if link % 2 else Role.RECEIVER))
    seen = peer.take_frames()
    senders = {
        each.channel
        for each in seen
        if isinstance(each.performative, Attach) and each.performative.role is Role.SENDER
    }
    receivers = {
        each.channel
        for each in seen
        if isinstance(each.performative, Attach) and each.performative.role is Role.RECEIVER
    }
    assert len(senders) == 1
    assert len(receivers) == SPREAD[Role.RECEIVER]
    assert not senders & receivers


def test_a_peer_with_one_channel_gets_all_links_on_it() -> None:
    peer = Peer()
    peer.greet(channel_max=0)
    peer.engine.execute(own(1, Role.RECEIVER))
    peer.engine.execute(own(2, Role.SENDER))
    assert {each.channel for each in peer.take_frames()} == {0}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_sessions_are_begun_than_the_file_allows_and_links_share_them(most: int) -> None:
    peer = Peer(own_sessions=most)
    peer.greet()
    for link in range(1, 9):
        peer.engine.execute(own(link, Role.SENDER if link % 2 else Role.RECEIVER))
    seen = peer.take_frames()
    assert sum(isinstance(each.performative, Begin) for each in seen) == most
    channels = [each.channel for each in seen if isinstance(each.performative, Attach)]
    assert set(channels) == set(range(most))
    assert len(channels) == 8


def test_no_channel_for_a_link_of_ours_is_told() -> None:
    peer = Peer()
    peer.greet(channel_max=0)
    peer.begin()
    peer.engine.execute(own(1))
    peer.collect()
    condition = peer.take_event(LinkDetached).condition
    assert condition is not None
    assert condition.name == RESOURCE_LIMIT_EXCEEDED
    peer.expect_nothing()


def test_handles_stay_within_what_the_peer_allows() -> None:
    peer = opened()
    peer.engine.execute(own(1))
    peer.take_frames()
    answer_begin(peer, 0, 0, handle_max=1)
    for link in (2, 3):
        peer.engine.execute(own(link))
    handles = [
        (each.channel, each.performative.handle)
        for each in peer.take_frames()
        if isinstance(each.performative, Attach)
    ]
    assert handles == [(0, 1), (1, 0)]


def test_the_lowest_free_handle_is_given_again() -> None:
    peer = begun()

    def attach(number: int) -> int:
        peer.attach(name=f"link-{number}", handle=number)
        event = peer.take_event(LinkAttached)
        peer.engine.execute(RefuseLink(event.link, ERROR))
        return next(
            each.performative.handle
            for each in peer.take_frames()
            if isinstance(each.performative, Attach)
        )

    assert [attach(number) for number in range(5)] == [0, 1, 2, 3, 4]
    for number in (3, 1):
        peer.send(Detach(number, closed=True))
    assert [attach(number) for number in (10, 11, 12)] == [1, 3, 5]


def test_handles_are_few_until_the_peer_has_told_how_many_it_allows() -> None:
    peer = opened()
    for link in range(1, UNTOLD_HANDLES + 2):
        peer.engine.execute(own(link))
    channels = [
        each.channel for each in peer.take_frames() if isinstance(each.performative, Attach)
    ]
    assert channels == [0] * UNTOLD_HANDLES + [1]


def test_no_handle_to_answer_with_is_told_to_the_core() -> None:
    peer = opened()
    peer.begin(handle_max=0)
    peer.attach()
    peer.answer()
    peer.attach(name="other", handle=1)
    event = peer.take_event(LinkAttached)
    peer.engine.execute(own(event.link, Role.RECEIVER, "other"))
    peer.collect()
    conditions = [each.condition for each in peer.take_events() if isinstance(each, LinkDetached)]
    assert [each and each.name for each in conditions] == [NOT_ALLOWED] * 2


def test_an_attach_that_does_not_fit_a_frame_is_told() -> None:
    peer = Peer()
    peer.greet(max_frame_size=512)
    unsettled = {DeliveryTag(b"%032d" % each): None for each in range(20)}
    peer.engine.execute(own(1, unsettled=unsettled))
    peer.expect_one(Begin)
    peer.collect()
    condition = peer.take_event(LinkDetached).condition
    assert condition is not None
    assert condition.name == FRAME_SIZE_TOO_SMALL
    peer.begin()
    peer.attach()
    event = peer.take_event(LinkAttached)
    peer.engine.execute(own(event.link, Role.RECEIVER, "link", unsettled=unsettled))
    peer.collect()
    assert peer.take_event(LinkDetached).link == event.link
    attach, detach = peer.expect(Attach, Detach)
    assert attach.target is None
    assert detach.error.name == FRAME_SIZE_TOO_SMALL


# --- detach ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("condition", [None, ERROR])
def test_a_peers_detach_is_answered_in_kind(closed: bool, condition: Condition | None) -> None:
    peer = attached()
    peer.send(Detach(0, closed, condition))
    assert peer.expect_one(Detach) == Detach(0, closed)
    assert peer.take_event(LinkDetached) == LinkDetached(LinkId(1), closed, condition)


@pytest.mark.parametrize("condition", [None, ERROR])
def test_what_comes_behind_our_detach_is_discarded_until_the_peers(
    condition: Condition | None,
) -> None:
    peer = attached()
    peer.transfer(0, b"begun", more=True)
    peer.take_events()
    peer.engine.execute(DetachLink(LinkId(1), True, condition))
    assert peer.expect_one(Detach) == Detach(0, True, condition)
    peer.collect()
    assert peer.take_event(LinkDetached) == LinkDetached(LinkId(1), True, condition)
    peer.transfer(None, b"continued", more=True)
    peer.transfer(None, b"ended")
    peer.transfer(1, b"next")
    peer.flow(next_outgoing_id=4, handle=0, delivery_count=2, link_credit=0)
    peer.send(Detach(0, True))
    assert peer.take_events() == []
    peer.expect_nothing()
    peer.attach()
    peer.answer(10)
    peer.transfer(2)
    assert len(peer.take_events()) == 1


def test_detaches_that_cross_need_no_answer() -> None:
    linked = Linked()
    linked.sender.execute(DetachLink(linked.outgoing, True))
    linked.receiver.execute(DetachLink(linked.incoming, True))
    linked.run()
    assert linked.take_told() == [LinkDetached(linked.outgoing, True)]
    assert linked.take_heard() == [LinkDetached(linked.incoming, True)]
    linked.attach("link", {}, {})


def test_what_was_not_sent_is_given_back_when_the_link_goes() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=1)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(1, 2, 3)))
    peer.take_events()
    peer.send(Detach(0, True))
    assert peer.take_events() == [
        DeliveriesUpdated(
            LinkId(1), [DeliveryNumber(2), DeliveryNumber(3)], RELEASED, True, is_unsent=True
        ),
        LinkDetached(LinkId(1), True),
    ]


def test_what_is_resumed_is_not_given_back_for_the_peer_may_have_it_from_before() -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=0)
    resumed, fresh = deliveries(1, 2)
    resumed.resume = True
    peer.engine.execute(SendDeliveries(LinkId(1), [resumed, fresh]))
    peer.take_events()
    peer.send_eof()
    assert peer.take_events()[0] == DeliveriesUpdated(
        LinkId(1), [DeliveryNumber(2)], RELEASED, True, is_unsent=True
    )


@pytest.mark.parametrize("frame", [End(), None])
def test_what_was_not_sent_is_given_back_when_session_or_stream_ends(frame: End | None) -> None:
    peer = attached(Role.RECEIVER)
    peer.flow(handle=0, link_credit=10, incoming_window=0)
    peer.engine.execute(SendDeliveries(LinkId(1), deliveries(7)))
    peer.take_events()
    if frame is None:
        peer.send_eof()
    else:
        peer.send(frame)
    assert peer.take_events()[0] == DeliveriesUpdated(
        LinkId(1), [DeliveryNumber(7)], RELEASED, True, is_unsent=True
    )


def test_a_detached_links_deliveries_can_still_be_settled() -> None:
    peer = attached()
    peer.transfer(0)
    peer.send(Detach(0, closed=False))
    peer.take_frames()
    peer.engine.execute(UpdateDeliveries(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True))
    assert peer.expect_one(Disposition).state == ACCEPTED
    other = attached(Role.RECEIVER)
    other.flow(handle=0, link_credit=10)
    other.engine.execute(SendDeliveries(LinkId(1), deliveries(1)))
    other.send(Detach(0, closed=False))
    assert other.take_events()[-1] == LinkDetached(LinkId(1), False, is_numbered=True)
    other.send(Disposition(Role.RECEIVER, 0, None, True, ACCEPTED))
    assert other.take_events() == [
        DeliveriesUpdated(LinkId(1), [DeliveryNumber(1)], ACCEPTED, True),
        LinkDetached(LinkId(1), False),  # nothing is left to speak of
    ]


@pytest.mark.parametrize("detach", [Detach(0, True), Detach(0, False, ERROR)])
def test_a_closed_or_broken_links_deliveries_are_forgotten(detach: Detach) -> None:
    peer = attached()
    peer.transfer(0)
    peer.send(detach)
    peer.take_frames()
    peer.engine.execute(UpdateDeliveries(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True))
    peer.expect_nothing()
    assert not peer.engine._state.sessions[0].incoming


def test_a_link_that_is_attached_again_has_nothing_to_do_with_its_old_ids() -> None:
    peer = attached()
    peer.transfer(0)
    peer.send(Detach(0, closed=False))
    peer.attach(unsettled={b"0": None})
    peer.take_frames()
    peer.engine.execute(UpdateDeliveries(LinkId(1), [DeliveryNumber(0)], ACCEPTED, True))
    peer.expect_nothing()


def test_suspended_links_are_not_kept_without_bound() -> None:
    peer = begun(handle_max=100_000)
    for each in range(SUSPENDED_LINKS + 20):
        peer.attach(name=f"link-{each}")
        peer.answer(1)
        peer.transfer(each)
        peer.send(Detach(0, closed=False))
        peer.take_frames()
        peer.take_events()
    assert len(peer.engine._endpoints.suspended) == SUSPENDED_LINKS
    assert len(peer.engine._state.sessions[0].incoming) == SUSPENDED_LINKS
    peer.send(End())
    assert not peer.engine._endpoints.suspended


def test_the_core_hears_that_a_detached_links_deliveries_are_forgotten() -> None:
    peer = begun(handle_max=100_000)
    for each in range(SUSPENDED_LINKS + 1):
        peer.attach(name=f"link-{each}")
        link = peer.answer(1)
        peer.transfer(each)
        peer.take_events()
        peer.send(Detach(0, closed=False))
        peer.take_frames()
        heard = peer.take_events()
    assert heard == [
        LinkDetached(link, False, is_numbered=True),
        LinkDetached(LinkId(1), False),
    ]


def test_detached_links_are_spoken_of_until_their_session_ends_and_each_on_its_own_session() -> (
    None
):
    peer = begun()
    peer.begin(channel=1)
    for channel in (0, 1):
        peer.attach(Role.RECEIVER, name=f"in-{channel}", channel=channel)
        link = peer.answer()
        peer.flow(channel=channel, handle=0, link_credit=10)
        peer.engine.execute(SendDeliveries(link, deliveries(1, 2)))
        peer.send(Detach(0), channel=channel)
        peer.take_events()
    peer.send(End(), channel=0)
    assert peer.take_events() == [SessionEnded(0)]
    peer.send(Disposition(Role.RECEIVER, 0, 1, True, ACCEPTED), channel=1)
    assert peer.take_events() == [
        DeliveriesUpdated(LinkId(2), [DeliveryNumber(1), DeliveryNumber(2)], ACCEPTED, True),
        LinkDetached(LinkId(2), False),
    ]


def test_one_range_settles_deliveries_of_detached_and_attached_links_across_the_wrap() -> None:
    """Delivery-ids are serial numbers: 2^32 - 2 and 2^32 - 1 come before 0 and 1 (§2.8.10)."""
    peer = Peer(Engine10(settings(), initial_id=0xFFFF_FFFE))
    peer.greet()
    peer.begin()
    for handle, name in enumerate(("one", "two", "three")):
        peer.attach(Role.RECEIVER, name=name, handle=handle)
        link = peer.answer()
        peer.flow(handle=handle, delivery_count=0xFFFF_FFFE, link_credit=10)
        peer.engine.execute(SendDeliveries(link, deliveries(handle)))
        peer.take_events()
    peer.send(Detach(0), Detach(2))
    peer.take_events()
    peer.send(Disposition(Role.RECEIVER, 0xFFFF_FFFE, 0, True, RELEASED))
    told = [each for each in peer.take_events() if isinstance(each, DeliveriesUpdated)]
    assert told == [
        DeliveriesUpdated(LinkId(link), [DeliveryNumber(link - 1)], RELEASED, True)
        for link in (1, 2, 3)
    ]


def test_deliveries_of_an_earlier_link_do_not_answer_to_a_later_one() -> None:
    linked = Linked()
    linked.send(1)
    linked.order(DetachLink(linked.outgoing, False))
    linked.outgoing, linked.incoming = linked.attach("link", {}, {})
    linked.take_told()
    linked.order(UpdateDeliveries(linked.outgoing, [DeliveryNumber(1)], Rejected(), True))
    assert linked.take_told() == []
