"""Rules of 0-10 tried anew from the text: frames made by hand, a running router, two workers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.by_hand_0_10 import (
    BODY,
    COMMAND,
    HEAD,
    Hand,
    command_of,
    delivery_properties,
    fields,
    frame,
    hand,
    ranges,
    s8,
    session,
    struct32,
    u8,
    u16,
    u32,
    u64,
    v16,
)
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: by-hand-10, workers: 2, admin: off, state: state}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes:
  - {{address: "#", distribution: multicast}}
  - address: orders.#
"""

NONE = 1

KEYS: dict[str, tuple[str, str, str | None]] = {
    "direct": ("k", "k", "z"),
    "fanout": ("", "k", None),
    "topic": ("k.*", "k.a", "z.a"),
    "headers": ("", "k", None),
}
"""Type of an exchange: key of a binding, a key that it stands for, and one that it does not."""

OWN = (8, 1, s8("own"), None, False, False, True)
"""queue.declare of an exclusive queue."""

MATCH = u32(4 + 2 + 1 + 3) + u32(1) + s8("h") + bytes((0x95,)) + v16(b"1")
HEADERS = struct32(4, 3, *[None] * 8, MATCH)
"""message-properties with a header that MATCH, as the arguments of a binding, asks for."""


def header_with(value: bytes) -> bytes:
    """Message-properties with one header, whose value is written out with its type."""
    entry = s8("a") + value
    return struct32(4, 3, *[None] * 8, u32(4 + len(entry)) + u32(1) + entry)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    folder: Path = tmp_path_factory.mktemp("by_hand_10")
    with running_router(CONFIG.format(port=found), folder):
        yield found


@pytest.fixture
def client(port: int) -> Iterator[Hand]:
    with session(port) as found:
        yield found


@pytest.fixture
def pair(port: int) -> Iterator[list[Hand]]:
    """Two, each at another worker."""
    with ExitStack() as stack:
        yield [stack.enter_context(session(port)) for _ in range(2)]


# --- names that look like patterns ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["*", "#", "a.*", "#/x", "**", ".", "n" * 255, "é" * 127, "a b"])
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_an_exchange_of_any_name_has_its_own_messages_alone(
    pair: list[Hand], name: str, kind: str
) -> None:
    receiver, sender = pair
    binding, hit, miss = KEYS[kind]
    for each in pair:
        each.command(7, 1, raw8(name), s8(kind))
        each.command(7, 1, s8("other"), s8(kind))
    receiver.command(*OWN)
    arguments = MATCH if kind == "headers" else None
    receiver.command(7, 4, s8("own"), raw8(name), s8(binding), arguments)
    receiver.subscribe("own", accept=NONE)
    receiver.sync()
    sender.transfer(b"other", exchange="other", key=hit, mode=NONE, more=HEADERS)
    if miss is not None:
        transfer(sender, b"miss", name, miss)
    transfer(sender, b"hit", name, hit)
    assert receiver.message()[2] == b"hit"


def raw8(name: str) -> bytes:
    """Writes a str8 of what may take several octets a character."""
    octets = name.encode()
    return bytes((len(octets),)) + octets


def transfer(client: Hand, body: bytes, exchange: str, key: str) -> None:
    """Transfers to an exchange of any name, with what a headers exchange looks at."""
    client.commands += 1
    client.send(
        frame(COMMAND, 1, command_of(4, 1, raw8(exchange), u8(NONE), u8(0)), flags=0x0B),
        frame(HEAD, 1, delivery_properties(key) + HEADERS, flags=0x03),
        frame(BODY, 1, body, flags=0x07),
    )


@pytest.mark.parametrize("name", ["*", "#", "q.*", "*.q", "q.#"])
def test_a_queue_named_like_a_pattern_gets_what_is_sent_to_that_name(
    pair: list[Hand], name: str
) -> None:
    receiver, sender = pair
    receiver.command(8, 1, s8(name), None, False, False, True)
    receiver.subscribe(name, accept=NONE)
    receiver.sync()
    sender.transfer(b"other", key="q.q", mode=NONE)
    receiver.transfer(b"other", key="q.q", mode=NONE)
    receiver.transfer(b"own", key=name, mode=NONE)
    assert receiver.message()[2] == b"own"


def test_a_deleted_exchange_takes_its_bindings_along(pair: list[Hand]) -> None:
    receiver, sender = pair
    receiver.command(*OWN)
    receiver.subscribe("own", accept=NONE)
    for kind, binding in (("direct", "k.a"), ("topic", "k.#"), ("fanout", ""), ("topic", "#")):
        receiver.command(7, 1, s8("e"), s8(kind))
        receiver.command(7, 4, s8("own"), s8("e"), s8(binding))
        receiver.command(7, 2, s8("e"))
    receiver.command(7, 1, s8("e"), s8("topic"))
    receiver.command(7, 6, s8("e"), s8("own"))
    assert receiver.result() == b"\x07\x02" + fields(None, None, True)
    receiver.sync()
    sender.command(7, 1, s8("e"), s8("topic"))
    sender.transfer(b"lost", exchange="e", key="k.a", mode=NONE)
    sender.transfer(b"lost", exchange="e", mode=NONE)
    receiver.command(7, 4, s8("own"), s8("e"), s8("z.*"))
    receiver.sync()
    sender.transfer(b"found", exchange="e", key="z.b", mode=NONE)
    assert receiver.message()[2] == b"found"


# --- domains and formats --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        (4, 7, s8("own"), s8("d"), u8(9), u8(0)),
        (4, 7, s8("own"), s8("d"), u8(0), u8(9)),
        (4, 3, ranges(), u16(9)),
    ],
)
def test_a_value_beyond_its_domain_is_an_illegal_argument(
    client: Hand, command: tuple[int, int, bytes]
) -> None:
    client.command(*OWN)
    client.command(*command)
    assert client.error() == 531


def test_so_is_an_acquire_mode_of_a_transfer(client: Hand) -> None:
    client.commands += 1
    client.send(
        frame(COMMAND, 1, command_of(4, 1, s8(""), u8(1), u8(9)), flags=0x0B),
        frame(HEAD, 1, delivery_properties("orders.a"), flags=0x07),
    )
    assert client.error() == 531


@pytest.mark.parametrize(
    "octets",
    [
        b"\x00\x00\x00\x01\x04",
        b"\x00\x00\x00\x00",
        b"\x00\x00",
        b"\x00\x00\xff\xff\x04\x03\x00\x00",
        b"\x00\x00\x00\x03\x04\x03\x00",
        b"\x00\x00\x00\x04\x04\x03\x00\xff",
        b"\x00\x00\x00\x06\x04\x03\x00\x00zz",
    ],
)
def test_a_header_of_broken_structs_is_an_invalid_command(client: Hand, octets: bytes) -> None:
    client.transfer(b"x", key="orders.a", mode=NONE, more=octets)
    assert client.error() == 503


def test_a_struct_that_comes_twice_in_a_header_is_an_illegal_argument(client: Hand) -> None:
    client.command(*OWN)
    client.transfer(b"x", key="own", mode=NONE, more=delivery_properties("orders.a"))
    assert client.error() == 531


@pytest.mark.parametrize(
    "value", [b"\x05\x07", b"\x3f" + bytes(8), b"\x8e\x02ab", b"\xc5" + bytes(5)]
)
def test_a_value_of_an_unknown_type_is_carried_by_the_width_of_its_code(
    client: Hand, value: bytes
) -> None:
    client.command(*OWN)
    properties = header_with(value)
    client.transfer(b"x", key="own", mode=NONE, more=properties)
    client.subscribe("own", accept=NONE)
    assert properties in client.message()[1]


def test_a_value_of_an_unknown_type_without_a_width_is_an_invalid_command(client: Hand) -> None:
    client.transfer(b"x", key="orders.a", mode=NONE, more=header_with(b"\xb3" + bytes(9)))
    assert client.error() == 503


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "octets",
    [
        bytes((8, 1, 1, 0)),
        bytes((8, 1, 1, 0, 1)),
        bytes((8, 1, 1, 0, 1, 0, 5)) + b"own",
        bytes((8, 1, 1, 0, 0, 0xFF)),
        bytes((3, 1, 1, 0, 0, 0, 0)),
        bytes((4, 2, 1, 0, 1, 0, 0, 4)) + bytes(4),
        bytes((4, 2, 1, 0, 1, 0, 0, 8)) + bytes(4),
    ],
)
def test_arguments_that_cannot_be_read_are_an_invalid_command(client: Hand, octets: bytes) -> None:
    client.send(frame(COMMAND, 1, octets))
    assert client.error() == 503


@pytest.mark.parametrize("numbers", [(2, 1), (4, 5, 1, 2), (1, 3, 3, 4), (1, 3, 2, 4)])
def test_a_set_whose_ranges_do_not_rise_is_refused(client: Hand, numbers: tuple[int, ...]) -> None:
    told = u16(4 * len(numbers)) + b"".join(map(u32, numbers))
    client.command(4, 2, told)
    assert client.error() == 531


def test_in_a_control_it_ends_the_connection(client: Hand) -> None:
    client.control(2, 10, u16(16) + b"".join(map(u32, (4, 5, 1, 2))))
    assert client.close_code() == 501


@pytest.mark.parametrize(
    ("class_code", "code", "told"),
    [
        (4, 2, ()),
        (4, 3, (None, u16(0))),
        (4, 4, ()),
        (4, 5, ()),
        (4, 6, (s8("d"),)),
        (4, 7, (None, s8("d"))),
        (4, 8, ()),
        (4, 9, (s8("d"),)),
        (4, 10, (s8("d"), None, u32(1))),
    ],
)
def test_a_required_field_that_is_left_out_is_an_illegal_argument(
    client: Hand, class_code: int, code: int, told: tuple[bytes | None, ...]
) -> None:
    client.command(class_code, code, *told)
    assert client.error() == 531


@pytest.mark.parametrize(("code", "told"), [(1, ()), (3, ()), (7, (u32(0),)), (7, (None, u64(0)))])
def test_in_a_control_of_the_session_it_ends_the_connection(
    client: Hand, code: int, told: tuple[bytes | None, ...]
) -> None:
    client.control(2, code, *told)
    assert client.close_code() == 501


@pytest.mark.parametrize(
    "value",
    [
        b"\xaa" + u32(5) + b"\xf0" + u32(0xFFFF_FFFF),
        b"\xaa" + u32(5) + b"\xf1" + u32(0x1000_0000),
        b"\xa9" + u32(4) + u32(0xFFFF_FFFF),
        b"\xa8" + u32(4) + u32(0xFFFF_FFFF),
        b"\xa0" + u32(0xFFFF_FFFF),
        b"\x85\xffab",
    ],
)
def test_hostile_lengths_in_a_map_are_an_invalid_command(client: Hand, value: bytes) -> None:
    client.transfer(b"x", key="orders.a", mode=NONE, more=header_with(value))
    assert client.error() == 503


@pytest.mark.parametrize(("class_code", "code"), [(10, 6), (9, 8)])
def test_a_packet_or_file_without_header_is_invalid(
    client: Hand, class_code: int, code: int
) -> None:
    client.command(*OWN)
    client.command(9, 6, s8("f"), u64(1))
    told = (None, s8("own")) if class_code == 10 else ()
    client.send(
        frame(COMMAND, 1, command_of(class_code, code, *told), flags=0x0B),
        frame(BODY, 1, b"x", flags=0x07),
    )
    assert client.error() == 503


# --- subscriptions --------------------------------------------------------------------------------


def test_a_queue_that_nobody_subscribes_to_any_more_is_deleted_quietly(client: Hand) -> None:
    client.command(*OWN)
    client.subscribe("own")
    client.command(4, 8, s8("d"))
    client.command(8, 2, s8("own"))
    client.sync()


def test_octets_of_credit_are_those_of_header_and_body(client: Hand) -> None:
    client.command(*OWN)
    for _ in range(2):
        client.transfer(b"x" * 100, key="own", mode=NONE)
    client.subscribe("own", accept=NONE)
    _, header, body = client.message()
    client.message()
    client.command(4, 8, s8("d"))
    client.transfer(b"x" * 100, key="own", mode=NONE)
    size = len(header) + len(body)
    client.subscribe("own", accept=NONE, octets=size - 1, destination="e")
    client.sync()
    assert not [each for each in client.said if each.name == (4, 1)]
    client.command(4, 0xA, s8("e"), u8(1), u32(1))
    assert client.message()[2] == body


# --- users ----------------------------------------------------------------------------------------

USERS = """\
router: {{id: users-10, workers: 2, admin: off, state: state}}
listeners:
  - {{bind: 127.0.0.1:{port}, sasl: {{mechanisms: [PLAIN], users: {{alice: a, bob: b}}}}}}
routes:
  - address: orders.#
"""


def test_users_may_attach_sessions_of_one_name_at_once(tmp_path: Path) -> None:
    found = free_port()
    with running_router(USERS.format(port=found), tmp_path), ExitStack() as stack:
        alice, bob, again = (stack.enter_context(hand(found)) for _ in range(3))
        alice.open(login=b"\0alice\0a")
        bob.open(login=b"\0bob\0b")
        again.open(login=b"\0alice\0a")
        alice.attach(b"mine")
        bob.attach(b"mine")
        again.control(2, 1, v16(b"mine"))
        assert again.detach_code() == 1  # session-busy
        bob.sync()
