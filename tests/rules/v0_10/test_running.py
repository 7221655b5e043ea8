"""Rules of 0-10 tried by hand: frames from the text, a running router with two workers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.by_hand_0_10 import (
    BODY,
    COMMAND,
    CONTROL,
    HEAD,
    Field,
    Hand,
    body_of,
    command_of,
    delivery_properties,
    fields,
    frame,
    hand,
    is_redelivered,
    ranges,
    s8,
    session,
    struct32,
    u8,
    u16,
    u32,
    u64,
    v16,
    v32,
)
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: by-hand, workers: 2, admin: off, state: state}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes:
  - address: orders.#
  - {{address: amq.topic/#, distribution: multicast}}
  - {{address: amq.fanout, distribution: multicast}}
  - address: shop/#
"""

NONE, EXPLICIT = 1, 0
OWN = (8, 1, s8("own"), None, False, False, True)
"""queue.declare of an exclusive queue."""

Command = tuple[int, int, *tuple[Field, ...]]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    folder: Path = tmp_path_factory.mktemp("by_hand")
    with running_router(CONFIG.format(port=found), folder):
        yield found


@pytest.fixture
def client(port: int) -> Iterator[Hand]:
    with session(port) as found:
        yield found


@pytest.fixture
def clients(port: int) -> Iterator[list[Hand]]:
    """Several, of which some are at either worker."""
    with ExitStack() as stack:
        yield [stack.enter_context(session(port)) for _ in range(4)]


# --- connection -----------------------------------------------------------------------------------


def test_start_offers_mechanisms_and_en_us(port: int) -> None:
    with hand(port) as client:
        told = client.start()
        assert b"ANONYMOUS" in told
        assert v16(b"en_US") in told


@pytest.mark.parametrize("header", [b"AMQP\x01\x01\x00\x0b", b"AMQP\x02\x01\x00\x0a", b"GET / HT"])
def test_what_is_no_header_of_ours_ends_the_stream(port: int, header: bytes) -> None:
    with hand(port) as client:
        client.send(header)
        octets = b""
        while got := client.sock.recv(4096):
            octets += got
        assert octets[:4] == b"AMQP"
        assert len(octets) == 8


def test_a_mechanism_that_was_not_offered_ends_the_stream_without_a_word(port: int) -> None:
    with hand(port) as client:
        client.start("KERBEROS_V4")
        assert client.has_ended()


@pytest.mark.parametrize("excess", [(1, 0, 0), (0, 0, 1)])
def test_more_than_was_offered_ends_the_stream_without_a_word(
    port: int, excess: tuple[int, int, int]
) -> None:
    with hand(port) as client:
        client.start()
        channels, size, _, beat = 0, 0, 0, 0
        told = client.until(1, 5)[2:]
        channels, size, beat = (int.from_bytes(told[at : at + 2], "big") for at in (0, 2, 6))
        more = (channels + excess[0], size, beat + excess[2])
        client.control(1, 6, *map(u16, more), channel=0)
        assert client.has_ended()


def test_a_start_ok_of_4096_octets_is_taken(port: int) -> None:
    rest = s8("ANONYMOUS") + v32(b"") + s8("en_US")
    room = 4096 - 12 - 4 - len(rest) - 4 - 4 - 3 - 4
    entry = s8("x") + bytes((0xA0,)) + v32(bytes(room))
    table = u32(4 + len(entry)) + u32(1) + entry
    told = body_of(1, 2, table, s8("ANONYMOUS"), v32(b""), s8("en_US"))
    assert 12 + len(told) == 4096
    with hand(port) as client:
        client.start(properties=table)
        client.until(1, 5)


def test_channels_are_0_to_n_minus_1(port: int) -> None:
    with hand(port) as client:
        client.start()
        client.tune(channels=5)
        client.control(1, 7, s8("/"), channel=0)
        client.until(1, 8)
        client.attach(b"last", channel=4)
        client.control(2, 1, v16(b"one more"), channel=5)
        assert client.close_code() == 501


def test_a_frame_above_the_agreed_size_is_a_framing_error(port: int) -> None:
    with hand(port) as client:
        client.open(size=4096)
        client.attach(b"s")
        client.send(frame(COMMAND, 1, command_of(8, 4, s8("q")) + bytes(4096)))
        assert client.close_code() == 501


def test_insist_is_answered_by_open_ok(port: int) -> None:
    with hand(port) as client:
        client.start()
        client.tune()
        client.control(1, 7, s8("/"), None, True, channel=0)
        assert client.next().name == (1, 8)


def test_close_is_answered_by_close_ok_and_the_end(client: Hand) -> None:
    client.control(1, 0xB, u16(200), s8("bye"), channel=0)
    client.until(1, 0xC)
    assert client.has_ended()


@pytest.mark.parametrize(
    "octets",
    [
        frame(CONTROL, 1, body_of(2, 0xC), track=1),
        frame(COMMAND, 1, command_of(3, 1), track=0),
        frame(HEAD, 1, b""),
        frame(BODY, 1, b"x", flags=0x07),
        frame(COMMAND, 1, command_of(3, 1), flags=0x0D),
        frame(4, 1, b""),
        frame(CONTROL, 1, b"\x02"),
        frame(CONTROL, 1, body_of(2, 0x63)),
        frame(CONTROL, 1, body_of(1, 1)),
        b"\x0f\x00\x00\x0b" + bytes(8),
    ],
)
def test_what_is_no_segment_where_it_comes_is_a_framing_error(client: Hand, octets: bytes) -> None:
    client.send(octets)
    assert client.close_code() == 501


# --- session --------------------------------------------------------------------------------------


def test_a_channel_without_a_session_answers_not_attached(client: Hand) -> None:
    client.control(2, 0xC, True, channel=3)
    assert client.detach_code() == 3
    client.command(3, 1, channel=3)
    assert client.detach_code() == 3
    client.control(2, 4, v16(b"x"), u8(0), channel=3)  # answered by nothing
    assert client.sync() == [(0, 0)]


def test_a_second_session_on_a_channel_is_transport_busy(client: Hand) -> None:
    client.control(2, 1, v16(b"another"))
    assert client.detach_code() == 2


def test_a_session_is_busy_wherever_else_it_is_attached_and_can_be_forced(
    clients: list[Hand],
) -> None:
    first, *others = clients
    first.attach(b"mine", channel=2)
    for other in others:
        other.control(2, 1, v16(b"mine"), channel=2)
        assert other.detach_code() == 1
    others[0].control(2, 1, v16(b"mine"), True, channel=2)
    others[0].until(2, 2)
    assert first.detach_code() == 1


def test_an_attach_of_the_own_session_is_attached(client: Hand) -> None:
    client.attach(b"again", channel=2)
    client.attach(b"again", channel=2, point=None)
    client.attach(b"again", channel=2, point=None)


def test_a_detach_is_answered_and_its_channel_free(client: Hand) -> None:
    client.attach(b"short", channel=2)
    client.control(2, 3, v16(b"short"), channel=2)
    assert client.detach_code() == 0
    client.attach(b"next", channel=2)


def test_commands_without_a_point_are_unknown_ids(client: Hand) -> None:
    client.attach(b"no point", channel=2, point=None)
    client.command(3, 1, channel=2)
    assert client.detach_code() == 4


def test_a_point_within_a_command_is_a_framing_error(client: Hand) -> None:
    client.control(2, 7, u32(0), u64(5))
    assert client.close_code() == 501


def test_a_command_goes_on_behind_no_point(client: Hand) -> None:
    client.send(
        frame(COMMAND, 1, command_of(4, 1, s8(""), u8(0), u8(0)), flags=0x0B),
        frame(CONTROL, 1, body_of(2, 7, u32(0), u64(0))),
        frame(BODY, 1, b"x", flags=0x07),
    )
    assert client.close_code() == 501


def test_a_timeout_is_granted_up_to_a_limit(client: Hand) -> None:
    client.control(2, 5, u32(7))
    assert client.until(2, 6)[-4:] == u32(7)
    client.control(2, 5)
    assert int.from_bytes(client.until(2, 6)[-4:], "big") > 7


def test_flush_gives_the_sets(client: Hand) -> None:
    client.control(2, 0xC, True)
    assert client.until(2, 8)[2:] == ranges()
    client.sync()
    client.control(2, 0xC, True, True, True)
    assert client.until(2, 8)[2:] == ranges((1, 1))
    assert client.until(2, 9)[2:] == ranges((0, 0))
    assert client.completed() == [(0, 0)]
    client.control(2, 0xB, ranges((0, 0)))
    client.control(2, 0xC, False, False, True)
    assert client.completed() == []


def test_a_gap_is_complete_and_commands_go_on_behind_it(client: Hand) -> None:
    client.control(2, 0xD, ranges((0, 4)))
    client.commands = 5
    assert client.sync() == [(0, 5)]


def test_a_timely_reply_is_given(client: Hand) -> None:
    client.command(7, 3, s8("amq.direct"))
    client.result()
    client.control(2, 0xA, ranges((0, 0)), True)
    assert client.until(2, 0xB)[2:] == ranges((0, 0))


# --- commands that end a session ------------------------------------------------------------------

SUBSCRIBE = (4, 7, s8("own"), s8("d"), u8(0), u8(0))
EXCLUSIVE = (4, 7, s8("own"), s8("e"), u8(0), u8(0), True)
MAP = u32(4 + 2 + 1 + 3) + u32(1) + s8("x") + bytes((0x95,)) + v16(b"y")


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([(11, 1)], 503),
        ([(4, 0x63)], 503),
        ([(4, 7, s8("nowhere"), s8("d"), u8(0), u8(0))], 404),
        ([OWN, SUBSCRIBE, SUBSCRIBE], 530),
        ([OWN, SUBSCRIBE, EXCLUSIVE], 405),
        ([OWN, EXCLUSIVE, SUBSCRIBE], 405),
        ([(4, 8, s8("nobody"))], 404),
        ([(4, 9, s8("nobody"), u8(0))], 404),
        ([(4, 0xA, s8("nobody"), u8(0), u32(1))], 404),
        ([(4, 0xC, s8("nobody"))], 404),
        ([OWN, SUBSCRIBE, (4, 0xA, s8("d"), u8(7), u32(1))], 531),
        ([OWN, SUBSCRIBE, (4, 0xA, s8("d"), u8(0), u32(1)), (4, 9, s8("d"), u8(0))], 409),
        ([(4, 6, s8("no exchange"), v16(b"r"))], 404),
        ([(5, 2)], 409),
        ([(5, 3)], 409),
        ([(5, 1), (5, 1)], 409),
        ([(5, 1), OWN, (4, 7, s8("own"), s8("d"), u8(1), u8(0))], 530),
        ([OWN, (4, 7, s8("own"), s8("d"), u8(1), u8(0)), (5, 1)], 530),
        ([(6, 1)], 540),
        ([(6, 8)], 540),
        ([(7, 1, s8("amq.mine"), s8("topic"))], 530),
        ([(7, 1, s8(""), s8("topic"))], 542),
        ([(7, 1, s8("e"), s8("odd"))], 404),
        ([(7, 1, s8("e"), s8("topic")), (7, 1, s8("e"), s8("fanout"))], 530),
        ([(7, 1, s8("none"), s8("topic"), None, True)], 404),
        ([(7, 1, s8("e"), s8("topic"), None, False, False, False, MAP)], 540),
        ([(7, 2, s8(""))], 542),
        ([(7, 2, s8("none"))], 404),
        ([(7, 2, s8("amq.topic"))], 530),
        ([OWN, (7, 4, s8("own"), s8("none"), s8("k"))], 404),
        ([OWN, (7, 4, s8("own"), s8(""), s8("k"))], 542),
        ([(7, 4, s8(""), s8("amq.topic"), s8("k"))], 542),
        ([(7, 4, s8("none"), s8("amq.topic"), s8("k"))], 404),
        ([OWN, (7, 4, s8("own"), s8("amq.topic"), s8("k"), MAP)], 540),
        ([OWN, (7, 5, s8("own"), s8("amq.topic"), s8("k"))], 404),
        ([OWN, (7, 5, s8("own"), s8(""), s8("k"))], 542),
        ([(8, 1, s8("amq.q"))], 530),
        ([(8, 1, s8("amq.q"), None, False, False, True)], 530),
        ([(8, 1, s8("nowhere"), None, True)], 404),
        ([(8, 1, s8("own"), None, False, False, True, False, MAP)], 540),
        ([(8, 2, s8(""))], 542),
        ([(8, 2, s8("nowhere"))], 404),
        ([OWN, SUBSCRIBE, (8, 2, s8("own"), True)], 406),
        ([(8, 3, s8(""))], 542),
        ([(8, 3, s8("nowhere"))], 404),
        ([(9, 3, s8(""), s8("c"))], 530),
        ([(9, 0xC, u64(5))], 531),
        ([(9, 9, None, s8("own"), False, False, s8("none"))], 404),
        ([(10, 3, s8("own"), s8(""))], 530),
    ],
)
def test_a_command_that_may_not_be_ends_its_session_by_its_code(
    client: Hand, commands: list[Command], code: int
) -> None:
    for each in commands:
        client.command(*each)
    assert client.error() == code
    client.until(2, 3)  # detach, which is answered
    client.control(2, 4, v16(b"any"), u8(0))
    client.attach(b"afresh", point=None)


@pytest.mark.parametrize(
    ("exchange", "delivery", "more", "code"),
    [
        ("none", delivery_properties("k"), b"", 404),
        ("none", delivery_properties("k", discards=True), b"", 404),
        ("", delivery_properties("orders.a", immediate=True), b"", 540),
        ("", delivery_properties("orders.a"), struct32(4, 2, True, False), 540),
        (
            "",
            delivery_properties("orders.a"),
            struct32(4, 3, None, None, None, None, None, None, v16(b"root")),
            403,
        ),
        ("", b"\x00\x00\x00\x09\x04\x01", b"", 503),
    ],
)
@pytest.mark.parametrize("mode", [EXPLICIT, NONE])
def test_a_transfer_that_may_not_be_ends_its_session_by_its_code(
    client: Hand, *, mode: int, exchange: str, delivery: bytes, more: bytes, code: int
) -> None:
    client.transfer(b"x", exchange=exchange, mode=mode, delivery=delivery, more=more)
    assert client.error() == code


def test_an_accept_mode_that_is_none_is_an_illegal_argument(client: Hand) -> None:
    client.transfer(b"x", key="orders.a", mode=9)
    assert client.error() == 531


def test_content_behind_a_command_without_content_is_invalid(client: Hand) -> None:
    client.send(frame(COMMAND, 1, command_of(3, 1), flags=0x0B), frame(BODY, 1, b"x", flags=0x07))
    assert client.error() == 503


# --- messages -------------------------------------------------------------------------------------


def test_what_no_route_takes_is_rejected_dropped_or_accepted(client: Hand) -> None:
    client.transfer(b"x", key="nowhere")
    assert client.until(4, 3)[4:16] == ranges((0, 0)) + u16(1)
    client.transfer(b"x", key="nowhere", mode=NONE)
    client.transfer(b"x", delivery=delivery_properties("nowhere", discards=True))
    assert client.until(4, 2)[4:] == ranges((2, 2))
    assert client.sync() == [(0, 3)]


def test_a_message_goes_to_a_subscriber_at_any_worker_and_its_outcome_back(
    clients: list[Hand],
) -> None:
    publisher, *subscribers = clients
    for place, subscriber in enumerate(subscribers):
        subscriber.subscribe(f"orders.{place}")
        subscriber.sync()
        publisher.transfer(b"one", key=f"orders.{place}")
        _, header, body = subscriber.message()
        assert (body, is_redelivered(header)) == (b"one", False)
        subscriber.command(4, 2, ranges((0, 0)))
        assert publisher.until(4, 2)[4:] == ranges((place, place))


def test_what_a_session_left_unaccepted_comes_redelivered_to_another_at_any_worker(
    clients: list[Hand],
) -> None:
    publisher, *subscribers = clients
    publisher.transfer(b"one", key="orders.left", mode=NONE)
    for place, subscriber in enumerate(subscribers):
        subscriber.subscribe("orders.left")
        _, header, body = subscriber.message()
        assert (body, is_redelivered(header)) == (b"one", place > 0)
        subscriber.control(1, 0xB, u16(200), channel=0)
        subscriber.until(1, 0xC)


def test_an_own_queue_answers_a_transfer_before_anybody_subscribes(client: Hand) -> None:
    client.command(*OWN)
    client.transfer(b"", key="own")
    assert client.until(4, 2)[4:] == ranges((1, 1))
    client.sync()
    client.subscribe("own")
    client.until(4, 1)
    kinds = [client.next().kind for _ in range(2)]
    assert kinds == [HEAD, BODY]


def test_credit_begins_at_zero_and_counts_both_units(client: Hand) -> None:
    client.command(*OWN)
    for _ in range(3):
        client.transfer(b"x" * 100, key="own", mode=NONE)
    client.subscribe("own", messages=None)
    client.command(4, 0xA, s8("d"), u8(0), u32(5))
    client.sync()
    assert not [each for each in client.said if each.name == (4, 1)]
    client.command(4, 0xA, s8("d"), u8(1), u32(150))
    client.message()
    client.command(4, 0xC, s8("d"))
    client.sync()
    assert not [each for each in client.said if each.name == (4, 1)]


def test_a_window_opens_with_completion(client: Hand) -> None:
    client.command(*OWN)
    for body in (b"1", b"2"):
        client.transfer(body, key="own", mode=NONE)
    client.subscribe("own", messages=1)
    assert client.message()[2] == b"1"
    client.command(4, 2, ranges((0, 0)))
    client.sync()
    assert not [each for each in client.said if each.name == (4, 1)]
    client.control(2, 0xA, ranges((0, 0)))
    assert client.message()[2] == b"2"


def test_acquire_is_answered_once_and_rejecting_the_unacquired_does_nothing(client: Hand) -> None:
    client.command(*OWN)
    client.transfer(b"1", key="own", mode=NONE)
    client.subscribe("own", acquire=1)
    client.message()
    client.command(4, 3, ranges((0, 0)), u16(0))
    client.command(4, 5, ranges((0, 0)))
    assert client.result() == b"\x04\x04" + fields(ranges((0, 0)))
    client.command(4, 5, ranges((9, 9)))
    assert client.result() == b"\x04\x04" + fields(ranges())


def test_a_ttl_ends_in_a_queue(client: Hand) -> None:
    client.command(*OWN)
    client.transfer(b"1", delivery=delivery_properties("own", ttl=1))
    client.transfer(b"2", delivery=delivery_properties("own", redelivered=True))
    client.sync()
    client.subscribe("own")
    _, header, body = client.message()
    assert (body, is_redelivered(header)) == (b"2", True)


def test_a_transaction_is_there_when_it_commits_and_gone_when_rolled_back(
    clients: list[Hand],
) -> None:
    publisher, subscriber, *_ = clients
    subscriber.subscribe("orders.tx", accept=1)
    subscriber.sync()
    publisher.command(5, 1)
    publisher.transfer(b"back", key="orders.tx")
    publisher.transfer(b"nowhere", key="nowhere")
    assert publisher.until(4, 3)[4:14] == ranges((2, 2))
    publisher.command(5, 3)
    publisher.transfer(b"there", key="orders.tx")
    publisher.command(5, 2, sync=True)
    assert subscriber.message()[2] == b"there"
    assert publisher.sync()


def test_bindings_count_at_all_workers_and_a_message_comes_once(clients: list[Hand]) -> None:
    publisher, *subscribers = clients
    for subscriber in subscribers:
        subscriber.command(*OWN)
        for key in ("a.b", "a.*", "a.#", "#"):
            subscriber.command(7, 4, s8("own"), s8("amq.topic"), s8(key))
        subscriber.command(7, 4, s8("own"), s8("amq.fanout"), s8(""))
        subscriber.subscribe("own")
        subscriber.sync()
    publisher.transfer(b"topic", exchange="amq.topic", key="a.b", mode=NONE)
    publisher.transfer(b"fanout", exchange="amq.fanout", key="any", mode=NONE)
    publisher.sync()
    for subscriber in subscribers:
        got = {subscriber.message()[2], subscriber.message()[2]}
        assert got == {b"topic", b"fanout"}
        subscriber.sync()
        assert not [each for each in subscriber.said if each.name == (4, 1)]


def test_queries_say_what_is_there(client: Hand) -> None:
    client.command(8, 4, s8("nowhere"))
    assert client.result() == b"\x08\x01" + fields()
    client.command(8, 4, s8("orders.a"))
    assert client.result()[4:] == s8("orders.a") + u32(0) + u32(0)
    client.command(7, 3, s8("amq.headers"))
    assert client.result() == b"\x07\x01" + fields(s8("headers"), True)
    client.command(7, 3, s8("none"))
    assert client.result() == b"\x07\x01" + fields(None, False, True)


def test_a_packet_and_a_file_go_to_one_queue(client: Hand) -> None:
    client.command(*OWN)
    told = struct32(10, 1, s8("text/plain"))
    client.send(
        frame(COMMAND, 1, command_of(10, 6, None, s8("own")), flags=0x0B),
        frame(HEAD, 1, told, flags=0x03),
        frame(BODY, 1, b"packet", flags=0x07),
    )
    client.command(9, 6, s8("f"), u64(4))
    assert client.until(9, 7)[-8:] == u64(0)
    client.send(
        frame(COMMAND, 1, command_of(9, 8), flags=0x0B),
        frame(HEAD, 1, struct32(9, 1), flags=0x03),
        frame(BODY, 1, b"file", flags=0x07),
    )
    client.command(9, 9, None, s8("own"), False, False, s8("f"))
    client.subscribe("own")
    assert [client.message()[2] for _ in range(2)] == [b"packet", b"file"]
