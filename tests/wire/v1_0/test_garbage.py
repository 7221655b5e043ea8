"""Octets that no peer should send: nothing raises, nothing hangs, nothing grows."""

import gc
import random
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.commands import (
    GrantCredit,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesReceived,
    Event,
    LinkAttached,
)
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.wire.mechanisms import MechanismServer
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import AMQP_HEADER, SASL, SASL_HEADER, frame
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Transfer,
    encode,
)
from tests.support.accepting import accepting
from tests.support.linked import deliveries
from tests.support.peer import Peer, settings

NUMBERS = st.one_of(st.integers(0, 5), st.sampled_from([255, 256, 2**31, 2**32 - 1]))


def serve(engine: Engine10, events: list[Event]) -> None:
    """A core that does something with everything."""
    numbers = iter(range(1 << 30))
    for event in events:
        match event:
            case LinkAttached(link=link) if link % 5 == 4:
                engine.execute(RefuseLink(link, Condition("x:no")))
            case LinkAttached():
                engine.execute(accepting(event))
                if event.role is Role.RECEIVER:
                    engine.execute(GrantCredit(event.link, 100))
            case DeliveriesReceived(link=link, deliveries=run):
                mine = [each.number for each in run]
                engine.execute(UpdateDeliveries(link, mine, ACCEPTED, True))
                engine.execute(GrantCredit(link, 100))
            case CreditGranted(link=link, credit=credit, drain=drain):
                run_length = min(credit, 3)
                own = deliveries(*[next(numbers) for _ in range(run_length)], payload=bytes(700))
                engine.execute(SendDeliveries(link, own))
                if drain:
                    engine.execute(ReturnCredit(link))
            case _:
                pass


def feed(engine: Engine10, octets: bytes, size: int) -> list[Event]:
    """Feeds octets in pieces and takes the output; returns the events."""
    told: list[Event] = []
    for at in range(0, len(octets), size):
        events = engine.receive_data(octets[at : at + size], 0.0)
        serve(engine, events)
        told += events
        while shown := engine.data_to_send():
            engine.bytes_sent(len(shown))
        deadline = engine.deadline
        if deadline is not None and deadline <= 0.0:
            told += engine.handle_deadline(0.0)
    return told


def check(engine: Engine10, told: list[Event]) -> None:
    """What must hold whatever came."""
    ends = [event for event in told if isinstance(event, ConnectionClosed)]
    assert len(ends) <= 1
    if ends:
        assert told[-1] is ends[0]
    if engine.finished:
        assert ends
        assert engine.receive_data(b"more", 1.0) == []


GREETING = AMQP_HEADER + frame(0, encode(Open(container_id="peer")))


@given(st.binary(max_size=300), st.integers(1, 300))
def test_random_octets_from_the_first_on(octets: bytes, size: int) -> None:
    for server in (None, MechanismServer):
        engine = Engine10(settings(sasl_server=server))
        check(engine, feed(engine, octets, size))


@given(st.binary(max_size=300), st.integers(1, 300))
def test_random_octets_behind_headers_and_open(octets: bytes, size: int) -> None:
    greetings = (AMQP_HEADER, SASL_HEADER, GREETING)
    for greeting in greetings:
        engine = Engine10(settings(sasl_server=MechanismServer))
        check(engine, feed(engine, greeting + octets, size))
    client = Engine10(settings(is_server=False))
    check(client, feed(client, GREETING + octets, size))


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=60)), max_size=10))
def test_random_bodies_in_good_frames(bodies: list[tuple[int, bytes]]) -> None:
    octets = b"".join(frame(channel, body) for channel, body in bodies)
    engine = Engine10(settings())
    check(engine, feed(engine, GREETING + octets, 1 << 20))


def attach(role: Role, handle: int, name: str) -> Attach:
    return Attach(
        name=name,
        handle=handle,
        role=role,
        source=Source(address="from"),
        target=Target(address="to"),
        initial_delivery_count=0,
    )


ROLES = st.sampled_from(Role)
CONDITIONS = st.sampled_from([None, Condition("x:why")])
PERFORMATIVES = st.one_of(
    st.builds(
        Begin,
        remote_channel=st.sampled_from([None, None, 0, 1]),
        next_outgoing_id=NUMBERS,
        incoming_window=NUMBERS,
        outgoing_window=NUMBERS,
        handle_max=NUMBERS,
    ),
    st.builds(attach, ROLES, st.integers(0, 3), st.sampled_from("ab")),
    st.builds(
        Flow,
        next_incoming_id=st.one_of(st.none(), NUMBERS),
        incoming_window=NUMBERS,
        next_outgoing_id=NUMBERS,
        outgoing_window=NUMBERS,
        handle=st.one_of(st.none(), st.integers(0, 3)),
        delivery_count=st.one_of(st.none(), NUMBERS),
        link_credit=st.one_of(st.none(), NUMBERS),
        drain=st.booleans(),
        echo=st.booleans(),
    ),
    st.builds(
        Transfer,
        handle=st.integers(0, 3),
        delivery_id=st.one_of(st.none(), NUMBERS),
        delivery_tag=st.one_of(st.none(), st.binary(max_size=4)),
        message_format=st.sampled_from([None, 0, 0, 7]),
        settled=st.sampled_from([None, True, False]),
        more=st.booleans(),
        aborted=st.sampled_from([False, False, True]),
        resume=st.booleans(),
    ),
    st.builds(
        Disposition,
        role=ROLES,
        first=NUMBERS,
        last=st.one_of(st.none(), NUMBERS),
        settled=st.booleans(),
        state=st.sampled_from([None, ACCEPTED]),
    ),
    st.builds(Detach, handle=st.integers(0, 3), closed=st.booleans(), error=CONDITIONS),
    st.builds(End, error=CONDITIONS),
    st.sampled_from([Close(), Open(container_id="again")]),
)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 1]), PERFORMATIVES, st.binary(max_size=20)),
        max_size=40,
    ),
    st.integers(1, 400),
)
def test_good_performatives_in_any_order(frames: list[tuple[int, Begin, bytes]], size: int) -> None:
    begin = Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5)
    octets = GREETING + frame(0, encode(begin))
    octets += b"".join(frame(channel, encode(each), payload) for channel, each, payload in frames)
    engine = Engine10(settings(session_window_frames=4, handle_max=2))
    check(engine, feed(engine, octets, size))


def _conversation() -> bytes:
    """A good conversation: both roles, parts, flows, dispositions, detach, end, close."""
    peer = Peer()
    recorded: list[bytes] = []

    def record(octets: bytes) -> None:
        recorded.append(octets)
        serve(peer.engine, peer.engine.receive_data(octets, 0.0))

    peer.send_octets = record  # type: ignore[method-assign]
    peer.send_octets(GREETING)
    peer.send(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
    peer.attach(name="in")
    peer.attach(Role.RECEIVER, name="out", handle=1)
    peer.flow(handle=1, link_credit=50)
    for delivery_id in range(10):
        peer.transfer(delivery_id, b"\x00\x53\x70\x45\x00\x53\x75\xa0\x03abc", settled=False)
    peer.transfer(10, b"\x00\x53\x75\xa0\x06abc", more=True)
    peer.transfer(None, b"def")
    peer.send(Disposition(Role.RECEIVER, 0, 2, True, ACCEPTED))
    peer.flow(next_incoming_id=4, next_outgoing_id=12, handle=1, delivery_count=3, link_credit=9)
    peer.send(Detach(0, True), Detach(1, True), End(), Close())
    return b"".join(recorded)


CONVERSATION = _conversation()


def mutate(dice: random.Random, octets: bytes) -> bytes:
    """Changes, cuts, doubles or moves a few octets."""
    changed = bytearray(octets)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(8, len(changed))
        size = dice.randrange(1, 20)
        match dice.randrange(6):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                changed[at] ^= 1 << dice.randrange(8)
            case 2:
                del changed[at : at + size]
            case 3:
                changed[at:at] = changed[at : at + size]
            case 4:
                changed[at:at] = dice.randbytes(size)
            case _:
                changed[at : at + size] = bytes(len(changed[at : at + size]))
        if len(changed) < 10:
            break
    return bytes(changed)


def test_the_good_conversation_is_good() -> None:
    engine = Engine10(settings())
    told = feed(engine, CONVERSATION, 1 << 20)
    assert told[-1] == ConnectionClosed(None, by_peer=True)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_conversations(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(30):
        engine = Engine10(settings())
        octets = mutate(dice, CONVERSATION)
        check(engine, feed(engine, octets, dice.choice([1 << 20, 100, 7])))


@pytest.mark.slow
def test_many_damaged_conversations() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        seed = time.time_ns()
        dice = random.Random(seed)
        engine = Engine10(settings())
        octets = mutate(dice, mutate(dice, CONVERSATION))
        try:
            check(engine, feed(engine, octets, dice.choice([1 << 20, 100, 7, 1])))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


# --- growth ---------------------------------------------------------------------------------------


def grown(engine: Engine10, octets: bytes, times: int) -> int:
    """How many octets of memory are held after the same input came many times over."""
    for _ in range(times // 4):
        feed(engine, octets, len(octets))
    tracemalloc.start()
    for _ in range(times):
        feed(engine, octets, len(octets))
        assert not engine.finished
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size


def test_links_that_come_and_go_leave_nothing_behind() -> None:
    peer = Peer()
    peer.greet()
    peer.begin()
    frames = [
        attach(role, handle, name)
        for handle, (role, name) in enumerate([(Role.SENDER, "a"), (Role.RECEIVER, "b")])
    ]
    octets = b"".join(frame(0, encode(each)) for each in frames)
    octets += b"".join(frame(0, encode(Detach(handle, True))) for handle in (0, 1))
    assert grown(peer.engine, octets, 200) < 30_000


def test_sessions_that_come_and_go_leave_nothing_behind() -> None:
    peer = Peer()
    peer.greet()
    begin = Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5)
    octets = frame(3, encode(begin)) + frame(3, encode(attach(Role.SENDER, 0, "a")))
    octets += frame(3, encode(End()))
    assert grown(peer.engine, octets, 200) < 30_000


def test_empty_frames_flows_and_void_dispositions_leave_nothing_behind() -> None:
    peer = Peer()
    peer.greet()
    peer.begin()
    octets = frame(0, b"") + frame(0, encode(Flow(0, 100, 0, 100, echo=True)))
    octets += frame(0, encode(Disposition(Role.SENDER, 0, 2**31 - 1, True, ACCEPTED)))
    assert grown(peer.engine, octets, 300) < 10_000


def test_a_frame_that_comes_octet_by_octet_costs_no_more_than_its_octets() -> None:
    peer = Peer()
    peer.greet()
    body = encode(Open(container_id="x" * 60_000))
    octets = frame(0, body)
    tracemalloc.start()
    for at in range(len(octets) - 1):
        assert peer.engine.receive_data(octets[at : at + 1], 0.0) == []
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 20 * len(octets)


def test_a_frame_larger_than_we_take_is_refused_before_it_has_come() -> None:
    peer = Peer(max_frame_octets=512)
    peer.greet()
    peer.send_octets(b"\x7f\xff\xff\xff\x02\x00\x00\x00")
    peer.take_event(ConnectionClosed)


def test_a_sasl_frame_of_any_size_is_not_waited_for() -> None:
    peer = Peer(sasl_server=MechanismServer)
    peer.send_octets(SASL_HEADER + b"\x00\x01\x00\x00\x02\x01\x00\x00")
    peer.take_event(ConnectionClosed)
    other = Peer(sasl_server=MechanismServer)
    other.send_octets(SASL_HEADER + frame(0, encode(SaslInit("ANONYMOUS")), b"x", kind=SASL))
    other.take_event(ConnectionClosed)
