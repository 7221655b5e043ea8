"""Restartable transfers: prepare, ready, recovery, hashes, what is kept (RFC 006 §3.3.2.2,
§3.5.13-14)."""

import hashlib

import pytest

from router.errors import RouterError
from router.model.commands import MemoryFound, SendDeliveries
from router.model.events import DeliveriesReceived, DeliveriesUpdated, MemorySought
from router.model.outcome import RELEASED
from router.model.terminus import Role
from router.wire import hub
from router.wire.fast import commands as c
from router.wire.fast.area import Area, Owner, PartKey, content_hash
from router.wire.fast.gather import MESSAGE_LIMIT_OCTETS, Budget, Gatherer
from router.wire.fast.message import Head, encode_head
from router.wire.fast.reply import Level, PeerError, Reply
from router.wire.memory import Moves, Refusal
from tests.support.fast_peer import Client, Server, message, outgoing

BODY = bytes(range(256)) * 100
HASH = hashlib.sha1(BODY).hexdigest()
HEAD = encode_head(Head(identifier="large"), len(BODY))
OWNER = Owner("user", "client", "/")


def gatherer(area: Area | None = None, *, restartable: bool = True) -> Gatherer:
    return Gatherer(Budget(), area or Area(), OWNER, is_restartable=restartable)


# --- gathering: states × inputs -------------------------------------------------------------------


def nothing() -> Gatherer:
    return gatherer()


def gathering() -> Gatherer:
    made = gatherer()
    assert made.take(1, HEAD + BODY[:10], partial=True, recovery=False) is None
    return made


def prepared() -> Gatherer:
    made = gatherer()
    assert made.prepare(1, HEAD + BODY[:10], HASH) == 10
    return made


def recovering() -> Gatherer:
    made = prepared()
    assert made.take(1, BODY[10:20], partial=True, recovery=True) is None
    return made


STATES = {each.__name__: each for each in (nothing, gathering, prepared, recovering)}

OTHER = message(b"other")

INPUTS = {
    "partial": lambda made: made.take(1, HEAD, partial=True, recovery=False),
    "last": lambda made: made.take(1, OTHER, partial=False, recovery=False),
    "other handle": lambda made: made.take(2, OTHER, partial=False, recovery=False),
    "recovery": lambda made: made.take(1, BODY[10:], partial=False, recovery=True),
    "recovery, other handle": lambda made: made.take(2, BODY[10:], partial=False, recovery=True),
    "prepare": lambda made: made.prepare(1, HEAD, HASH),
    "prepare, other handle": lambda made: made.prepare(2, HEAD, ""),
}

TABLE: dict[tuple[str, str], object] = {
    ("nothing", "partial"): None,
    ("nothing", "last"): OTHER,
    ("nothing", "other handle"): OTHER,
    ("nothing", "recovery"): Reply.NOT_VALID_NOW,
    ("nothing", "recovery, other handle"): Reply.NOT_VALID_NOW,
    ("nothing", "prepare"): 0,
    ("nothing", "prepare, other handle"): 0,
    ("gathering", "partial"): None,
    ("gathering", "last"): HEAD + BODY[:10] + OTHER,
    ("gathering", "other handle"): Level.CHANNEL,
    ("gathering", "recovery"): HEAD + BODY,
    ("gathering", "recovery, other handle"): Level.CHANNEL,
    ("gathering", "prepare"): Level.CHANNEL,
    ("gathering", "prepare, other handle"): Level.CHANNEL,
    ("prepared", "partial"): None,
    ("prepared", "last"): OTHER,
    ("prepared", "other handle"): OTHER,
    ("prepared", "recovery"): HEAD + BODY,
    ("prepared", "recovery, other handle"): Reply.NOT_VALID_NOW,
    ("prepared", "prepare"): 10,
    ("prepared", "prepare, other handle"): 0,
    ("recovering", "partial"): None,
    ("recovering", "last"): Reply.CONTENTS_INVALID,
    ("recovering", "other handle"): Level.CHANNEL,
    ("recovering", "recovery"): Reply.CONTENTS_INVALID,  # octets 10 to 20 came twice
    ("recovering", "recovery, other handle"): Level.CHANNEL,
    ("recovering", "prepare"): Level.CHANNEL,
    ("recovering", "prepare, other handle"): Level.CHANNEL,
}


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_answers_every_input(state: str, given: str) -> None:
    expected = TABLE[state, given]
    made = STATES[state]()
    if isinstance(expected, Reply | Level):
        with pytest.raises(PeerError) as raised:
            INPUTS[given](made)
        if isinstance(expected, Level):
            assert (raised.value.level, raised.value.code) == (expected, Reply.NOT_VALID_NOW)
        else:
            assert raised.value.code is expected
    else:
        assert INPUTS[given](made) == expected


# --- the area -------------------------------------------------------------------------------------


def test_a_part_is_kept_by_owner_head_and_hash() -> None:
    area = Area()
    key = PartKey(OWNER, HEAD, HASH)
    area.keep(key, b"abc")
    assert area.fetch(PartKey(Owner("other", "client", "/"), HEAD, HASH)) == b""
    assert area.fetch(PartKey(OWNER, HEAD + b"x", HASH)) == b""
    assert area.fetch(PartKey(OWNER, HEAD, "other")) == b""
    assert area.fetch(key) == b"abc"
    assert area.fetch(key) == b""
    assert area.octets == 0


def test_the_area_is_bounded_and_the_oldest_parts_make_room() -> None:
    area = Area(limit=100)
    keys = [PartKey(OWNER, b"%d" % each, HASH) for each in range(10)]
    for key in keys:
        area.keep(key, bytes(30))
        assert area.octets <= 100
    assert [len(area.fetch(key)) for key in keys] == [0] * 7 + [30] * 3
    area.keep(keys[0], bytes(101))
    area.keep(keys[1], b"")
    assert area.octets == 0


def test_what_is_gathered_is_bounded_over_all_channels() -> None:
    budget = Budget()
    one, other = (Gatherer(budget, Area(), OWNER, is_restartable=True) for _ in range(2))
    half = bytes(MESSAGE_LIMIT_OCTETS // 2)
    one.take(1, half, partial=True, recovery=False)
    with pytest.raises(RouterError):
        other.take(2, half + b"x", partial=True, recovery=False)
    one.keep()
    other.keep()
    assert budget.octets == 0


# --- as a server ----------------------------------------------------------------------------------


def restartable(area: Area | None = None, *, name: str = "one", frame_max: int = 65536) -> Client:
    client = Client(client_name=name, area=area, frame_max=frame_max).open()
    return client.channel(1, restartable=True).handle(1, "files")


def prepare(client: Client, body: bytes, announced: str = HASH) -> c.HandleReady:
    client.send((c.HandlePrepare(1, len(HEAD) + len(body), announced), HEAD + body))
    (ready,) = client.read()
    assert isinstance(ready, c.HandleReady)
    return ready


def bodies(client: Client) -> list[bytes]:
    client.say_yes()
    return [
        b"".join(hub.to_sections(each.protocol, each.payload).data)
        for event in client.events
        if isinstance(event, DeliveriesReceived)
        for each in event.deliveries
    ]


def rest(client: Client, start: int, *, until: int | None = None, tag: int = 0) -> None:
    """Sends the body from an offset on."""
    stop = len(BODY) if until is None else until
    while start < stop:
        chunk = BODY[start : min(start + 4000, stop)]
        start += len(chunk)
        partial = start < len(BODY)
        client.send((c.HandleSend(1, tag, len(chunk), partial=partial, recovery=True), chunk))


def test_a_new_message_is_answered_by_what_prepare_brought() -> None:
    """§3.5.14: "In the case of new messages, will be the size of the body data provided"."""
    client = restartable()
    assert prepare(client, BODY[:1000]).message_size == 1000
    rest(client, 1000)
    assert bodies(client) == [BODY]


def test_a_transfer_goes_on_where_it_broke_off() -> None:
    """§3.3.2.2: "the original sender can resume sending from the last data sent"."""
    client = restartable()
    prepare(client, BODY[:1000])
    rest(client, 1000, until=9000)
    client.engine.receive_eof(1.0)
    again = restartable(client.engine.area)
    assert prepare(again, BODY[:1000]).message_size == 9000
    rest(again, 9000)
    assert bodies(again) == [BODY]
    assert again.engine.area.octets == 0


@pytest.mark.parametrize("close", [c.HandleClose(1, 200), c.ChannelClose(1, 200)])
def test_a_transfer_goes_on_after_any_end(close: c.Command) -> None:
    client = restartable()
    prepare(client, BODY[:1000])
    client.send(close)
    client.read()
    if isinstance(close, c.ChannelClose):
        client.channel(1, restartable=True)
    client.handle(1, "files")
    assert prepare(client, b"").message_size == 1000


def test_only_who_began_a_transfer_goes_on_with_it() -> None:
    client = restartable(name="one")
    prepare(client, BODY[:1000])
    client.engine.receive_eof(1.0)
    assert prepare(restartable(client.engine.area, name="two"), b"").message_size == 0
    assert prepare(restartable(client.engine.area, name=""), b"").message_size == 0
    assert prepare(restartable(client.engine.area, name="one"), b"").message_size == 1000


def test_without_a_hash_nothing_is_kept() -> None:
    client = restartable()
    prepare(client, BODY[:1000], "")
    client.engine.receive_eof(1.0)
    assert prepare(restartable(client.engine.area), b"", "").message_size == 0


@pytest.mark.parametrize("tag", [0, 7])
def test_a_wrong_hash_is_told_and_nothing_is_handed_on(tag: int) -> None:
    """§3.3.2.2: "The recipient MUST reply with an error code 542"."""
    client = restartable()
    prepare(client, b"", "0" * 40)
    rest(client, 0, tag=tag)
    (answer,) = client.read()
    assert isinstance(answer, c.HandleReply if tag else c.HandleClose)
    assert answer.reply_code == 542
    assert bodies(client) == []
    assert client.engine.area.octets == 0


def test_a_message_with_too_much_body_is_invalid() -> None:
    client = restartable()
    octets = HEAD + BODY + b"x"
    client.send((c.HandlePrepare(1, len(octets), HASH), octets))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 542


def test_a_message_that_is_too_large_closes_the_channel() -> None:
    """§3.5.14: "it closes the channel with the reply code 311 (message too large)"."""
    client = restartable()
    head = encode_head(Head(), MESSAGE_LIMIT_OCTETS + 1)
    client.send((c.HandlePrepare(1, len(head), HASH), head))
    (close,) = client.read()
    assert isinstance(close, c.ChannelClose)
    assert close.reply_code == 311


def test_the_peer_is_sent_only_what_it_has_not() -> None:
    """§3.3.2.2: "The sender then sends the rest of the data"."""
    client = restartable(frame_max=4096)
    client.send(c.HandleConsume(1, 0, 10))
    (asked,) = client.say_yes()
    client.read()
    deliveries = [outgoing(1, BODY, identifier="large"), outgoing(2, b"small")]
    client.do(SendDeliveries(asked.link, deliveries))
    ((announced, octets),) = client.fragments()
    assert isinstance(announced, c.HandlePrepare)
    assert announced.content_hash == HASH
    assert octets == (HEAD + BODY)[:4096]
    assert client.engine.waiting_octets == len(BODY) + len(b"small")
    client.send(c.HandleReady(1, 20000))
    *fragments, (last, small) = client.fragments()
    assert b"".join(each[1] for each in fragments) == BODY[20000:]
    commands = [each[0] for each in fragments]
    assert all(each.recovery and each.message_nbr == 1 for each in commands)
    assert [each.partial for each in commands] == [True] * (len(commands) - 1) + [False]
    assert [each.dest_name for each in commands][-1] == "files"
    assert (last.message_nbr, small) == (2, message(b"small"))
    assert client.engine.waiting_octets == 0


def test_a_peer_that_has_it_all_is_sent_an_empty_fragment() -> None:
    client = restartable(frame_max=4096)
    client.send(c.HandleConsume(1, 0, 10))
    (asked,) = client.say_yes()
    client.do(SendDeliveries(asked.link, [outgoing(1, BODY, identifier="large")]))
    client.read()
    client.send(c.HandleReady(1, len(BODY)))
    ((command, octets),) = client.fragments()
    assert octets == b""
    assert not command.partial


def test_a_peer_cannot_have_more_than_there_is() -> None:
    client = restartable(frame_max=4096)
    client.send(c.HandleConsume(1, 0, 10))
    (asked,) = client.say_yes()
    client.do(SendDeliveries(asked.link, [outgoing(1, BODY)]))
    client.read()
    events = client.send(c.HandleReady(1, len(BODY) + 1))
    (close,) = client.read()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 502
    (update,) = [event for event in events if isinstance(event, DeliveriesUpdated)]
    assert (list(update.numbers), update.state) == ([1], RELEASED)


def test_channels_that_are_not_restartable_get_plain_fragments() -> None:
    """§3.3.2.2: "will never send HANDLE PREPARE unless the client ... restartable mode"."""
    client = Client(frame_max=4096).open().channel().handle(1, "files")
    client.send(c.HandleConsume(1, 0, 10))
    (asked,) = client.say_yes()
    client.read()
    client.do(SendDeliveries(asked.link, [outgoing(1, BODY, identifier="large")]))
    fragments = client.fragments()
    assert b"".join(each[1] for each in fragments) == HEAD + BODY
    assert all(len(each[1]) <= 4096 for each in fragments)


# --- as a client ----------------------------------------------------------------------------------


def test_a_client_announces_large_messages_and_goes_on_where_it_is_told() -> None:
    server = Server().open(4096)
    link = server.attached(Role.SENDER)
    server.do(SendDeliveries(link, [outgoing(1, BODY, identifier="large")]))
    ((announced, octets),) = server.fragments()
    assert isinstance(announced, c.HandlePrepare)
    assert octets == (HEAD + BODY)[:4096]
    server.send(c.HandleReady(1, 20000))
    fragments = server.fragments()
    assert b"".join(each[1] for each in fragments) == BODY[20000:]


def test_a_client_keeps_what_broke_off() -> None:
    area = Area()
    server = Server(area=area).open(4096)
    server.attached(Role.RECEIVER)
    server.send((c.HandlePrepare(1, len(HEAD) + 1000, HASH), HEAD + BODY[:1000]))
    assert server.read() == [c.HandleReady(1, 1000)]
    chunk = BODY[1000:5000]
    server.send((c.HandleNotify(1, 1, 4000, partial=True, recovery=True, delivered=True), chunk))
    server.engine.receive_eof(1.0)
    assert area.octets == 5000 + len(HEAD)
    again = Server(area=area).open(4096)
    again.attached(Role.RECEIVER)
    again.send((c.HandlePrepare(1, len(HEAD), content_hash(BODY)), HEAD))
    assert again.read() == [c.HandleReady(1, 5000)]


# --- between workers ------------------------------------------------------------------------------


def broken_off(octets: int) -> Area:
    """A worker that has kept the beginning of the body."""
    area = Area()
    client = restartable(area)
    prepare(client, BODY[:octets])
    client.engine.receive_eof(1.0)
    assert area.octets == octets + len(HEAD)
    return area


def elsewhere() -> tuple[Client, MemorySought]:
    """A client that has come to another worker, which asks for the parts."""
    area = Area(moves=Moves("/2", {"/1"}))
    client = restartable(area)
    client.take_events()
    client.send((c.HandlePrepare(1, len(HEAD), HASH), HEAD))
    assert client.read() == []
    (sought,) = client.take_events()
    assert isinstance(sought, MemorySought)
    return client, sought


def move(giver: Area, sought: MemorySought, taker: Area) -> None:
    given = giver.give(sought.key, force=False, now=1.0)
    assert isinstance(given, bytes)
    taker.take(sought.key, given, "/1", 1.0)
    assert giver.give(sought.key, force=False, now=1.0) is Refusal.NOTHING


def test_a_transfer_goes_on_at_another_worker() -> None:
    before = broken_off(5000)
    client, sought = elsewhere()
    move(before, sought, client.engine.area)
    client.do(MemoryFound(sought.store, sought.key))
    assert client.read() == [c.HandleReady(1, 5000)]
    rest(client, 5000)
    assert bodies(client) == [BODY]
    assert before.octets == client.engine.area.octets == 0


@pytest.mark.parametrize("is_busy", [False, True])
def test_what_no_worker_has_begins_anew(is_busy: bool) -> None:
    client, sought = elsewhere()
    client.do(MemoryFound(sought.store, b"of another message"))
    assert client.read() == []
    client.do(MemoryFound(sought.store, sought.key, is_busy))
    assert client.read() == [c.HandleReady(1, 0)]
    rest(client, 0)
    assert bodies(client) == [BODY]


def test_parts_that_come_for_nobody_are_kept() -> None:
    client, sought = elsewhere()
    client.send(c.HandleClose(1, Reply.OK, ""))
    client.read()
    move(broken_off(5000), sought, client.engine.area)
    client.do(MemoryFound(sought.store, sought.key))
    assert client.read() == []
    assert client.engine.area.octets == 5000 + len(HEAD)


def test_a_worker_keeps_the_longer_of_two_beginnings() -> None:
    area, (_, sought) = broken_off(5000), elsewhere()
    area.take(sought.key, BODY[:100], "/1", 1.0)
    assert area.give(sought.key, force=False, now=1.0) == BODY[:5000]


def test_what_was_kept_here_is_not_sought() -> None:
    area = broken_off(5000)
    area.moves = Moves("/2", {"/1"})
    assert prepare(restartable(area), b"").message_size == 5000


def test_what_prepare_brings_whole_is_not_sought() -> None:
    client = restartable(Area(moves=Moves("/2", {"/1"})))
    head = encode_head(Head(identifier="small"), 3)
    client.send((c.HandlePrepare(1, len(head) + 3, content_hash(b"abc")), head + b"abc"))
    assert client.read() == [c.HandleReady(1, 3)]
