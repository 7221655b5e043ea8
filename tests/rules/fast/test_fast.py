"""The rules of AMQP/Fast's document, by frames against a router that runs."""

import hashlib
import time

import pytest

from router.wire.fast import commands as c
from router.wire.fast.framing import frame
from tests.rules.fast.conftest import Dial, FastSocket, body_of
from tests.support.fast_peer import message

TUNE = c.ConnectionTune(65536, 256, 4096, 60)
"""What the router offers."""

# --- start, login, tuning (§3.2) ------------------------------------------------------------------


def test_the_start_is_answered_by_a_challenge_of_version_1(dial: Dial) -> None:
    challenge = dial().write(b"\x80\x01").take()
    assert isinstance(challenge, c.ConnectionChallenge)
    assert challenge.version == 1
    assert "ANONYMOUS" in challenge.mechanisms.split()


def test_a_higher_version_is_answered_by_ours(dial: Dial) -> None:
    assert dial().write(b"\x80\x09").take().version == 1


@pytest.mark.parametrize("octets", [b"\x81\x01", b"\xff\xff", b"\x80\x00"])
def test_another_start_is_not_served(dial: Dial, octets: bytes) -> None:
    client = dial().write(octets)
    client.socket.settimeout(10)
    octets = b""
    while more := client.socket.recv(100):
        octets += more
    assert octets in (b"", b"AMQP\x00\x01\x00\x00")  # 128 is AMQP/Fast's, the others are not


def test_a_wrong_login_ends_the_connection(dial: Dial) -> None:
    client = dial().write(b"\x80\x01")
    client.take()
    answer = client.ask(c.ConnectionResponse("NONSENSE"))
    assert isinstance(answer, c.ConnectionClose)
    assert answer.reply_code == 403


def test_tune_offers_limits_and_less_is_taken(dial: Dial) -> None:
    client = dial().write(b"\x80\x01")
    client.take()
    offered = client.ask(c.ConnectionResponse("ANONYMOUS"))
    assert isinstance(offered, c.ConnectionTune)
    assert offered.frame_max >= 1024
    client.send(c.ConnectionTune(1024, 1, 1, 0), c.ConnectionOpen(7, "/"))
    assert client.take() == c.ConnectionReply(7, 200, "")
    client.send(c.ChannelOpen(1, 1), c.ChannelOpen(2, 1))
    assert client.take() == c.ChannelReply(1, 1, 200, "")
    assert isinstance(client.take(), c.ConnectionClose | c.ChannelClose)


@pytest.mark.parametrize("command", [c.ConnectionResponse, c.ConnectionTune])
def test_a_frame_above_4096_octets_is_refused_before_tuning(dial: Dial, command: type) -> None:
    client = dial().write(b"\x80\x01")
    client.take()
    arguments: list[object] = ["ANONYMOUS"]
    if command is c.ConnectionTune:
        client.ask(c.ConnectionResponse("ANONYMOUS"))
        arguments = [65536, 10, 10, 0]
    bare = len(frame(command(*arguments, {"x": b""})))
    client.send(command(*arguments, {"x": bytes(4096 + 2 - bare)}))  # the size leaves itself out
    assert client.rest() == ([] if command is c.ConnectionTune else [TUNE])
    client = dial().write(b"\x80\x01")
    client.take()
    if command is c.ConnectionTune:
        client.ask(c.ConnectionResponse("ANONYMOUS"))
    close = client.ask(command(*arguments, {"x": bytes(4096 + 3 - bare)}))
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 501


def test_a_frame_or_fragment_above_what_was_agreed_is_refused(dial: Dial) -> None:
    client = dial().open(frame_max=2000).handle(1, "nobody.1")
    fits = message(bytes(2000 - len(message(b""))))
    client.send((c.HandleSend(1, 5, len(fits)), fits))
    assert client.take().reply_code == 404
    client = dial().open(frame_max=2000).handle(1, "nobody.1").post(bytes(2000))
    assert client.take().reply_code == 501


@pytest.mark.parametrize(
    "tune", [(1 << 30, 10, 10, 0), (0, 10, 10, 0), (1023, 10, 10, 0), (4096, 0xFFFF, 10, 0)]
)
def test_more_than_was_offered_is_answered_by_close(
    dial: Dial, tune: tuple[int, int, int, int]
) -> None:
    client = dial().write(b"\x80\x01")
    client.take()
    client.ask(c.ConnectionResponse("ANONYMOUS"))
    assert isinstance(client.ask(c.ConnectionTune(*tune)), c.ConnectionClose)


def test_open_without_a_confirm_tag_is_not_confirmed(dial: Dial) -> None:
    client = dial().login().send(c.ConnectionOpen(0, "/"), c.ChannelOpen(1))
    assert client.rest() == []


def test_a_client_name_is_active_on_one_connection(dial: Dial) -> None:
    answers = []
    for _ in range(4):  # of two workers
        client = dial().login().send(c.ConnectionOpen(1, "/", "one"))
        answers.append(client.take().reply_code)
    assert set(answers) == {200, 320}
    assert answers.count(200) <= 2


def test_virtual_hosts_are_apart_and_unknown_ones_refused(dial: Dial) -> None:
    here, there = dial().open(), dial().open(path="/other")
    for client, body in ((here, b"here"), (there, b"there")):
        client.handle(1, "q.vhost").send(c.HandleConsume(1, prefetch=9)).post(body)
    assert here.bodies(1) == [b"here"]
    assert there.bodies(1) == [b"there"]
    refused = dial().login().send(c.ConnectionOpen(1, "/nowhere")).take()
    assert refused.reply_code == 402


def test_a_ping_is_answered_by_a_ping_that_asks_for_nothing(dial: Dial) -> None:
    client = dial().open()
    assert client.ask(c.ConnectionPing(True)) == c.ConnectionPing(False)
    assert client.send(c.ConnectionPing(False)).rest() == []


def test_pings_come_as_often_as_was_asked_for(dial: Dial) -> None:
    client = dial().open(heartbeat=1)
    began = time.monotonic()
    for _ in range(2):
        assert isinstance(client.take(3), c.ConnectionPing)
    assert time.monotonic() - began < 2.5


@pytest.mark.parametrize(
    "command",
    [
        c.ConnectionChallenge(1, "PLAIN"),
        c.ConnectionReply(0, 200),
        c.ChannelReply(1, 0, 200),
        c.HandleCreated(1, "x"),
        c.HandleIndex(1, 0, b""),
        c.HandleReply(1, 0, 200),
        (c.HandleNotify(1, 1, 1), b"x"),
    ],
)
def test_what_a_server_never_expects_ends_the_connection(
    dial: Dial, command: c.Command | tuple[c.Command, bytes]
) -> None:
    client = dial().open().handle(1, "q.1").send(command)
    answers = client.rest()
    assert isinstance(answers[0], c.ConnectionClose)
    assert answers[0].reply_code == 503


def test_a_close_is_answered_by_close(dial: Dial) -> None:
    client = dial().open()
    assert isinstance(client.ask(c.ConnectionClose(200)), c.ConnectionClose)
    assert client.end() == []


def test_behind_a_close_of_the_servers_commands_are_discarded(dial: Dial) -> None:
    client = dial().open().send(c.ConnectionReply(0, 200))
    assert isinstance(client.take(), c.ConnectionClose)
    client.send(c.ConnectionPing(True), c.ChannelOpen(2, 1), c.ConnectionClose(200))
    assert client.end() == []


# --- frames (§2.2.4, §3.1) ------------------------------------------------------------------------


def test_a_size_may_be_written_in_six_octets(dial: Dial) -> None:
    client = dial().open()
    command = frame(c.ConnectionPing(True))[2:]
    client.write(b"\xff\xff" + len(command).to_bytes(4, "big") + command)
    assert client.take() == c.ConnectionPing(False)


@pytest.mark.parametrize("octets", [b"\x00\x03\x0e\x01\xcd", b"\x00\x00", b"\x00\x01\xce"])
def test_a_broken_frame_ends_the_connection(dial: Dial, octets: bytes) -> None:
    client = dial().open().write(octets)
    assert [type(each) for each in client.rest()] in ([], [c.ConnectionClose])


@pytest.mark.parametrize("number", [0, 15, 24, 38, 50, 255])
def test_an_unknown_command_ends_the_connection(dial: Dial, number: int) -> None:
    client = dial().open().write(b"\x00\x02" + bytes((number,)) + b"\xce")
    assert isinstance(client.take(), c.ConnectionClose)


def test_a_zero_octet_in_a_short_string_ends_the_connection(dial: Dial) -> None:
    opened = frame(c.HandleOpen(1, 1, 1, dest_name="q.?"))
    client = dial().open().write(opened.replace(b"?", b"\0"))
    close = client.take()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code == 502


# --- channels (§3.3) ------------------------------------------------------------------------------


def test_commands_are_confirmed_by_their_tags_alone(dial: Dial) -> None:
    client = dial().open()
    client.send(c.ChannelOpen(2, 5), c.ChannelOpen(3), c.HandleOpen(2, 1, 1, 6, True))
    client.send(c.ChannelAck(2, 7, 0))
    assert client.take() == c.ChannelReply(2, 5, 200, "")
    assert client.take() == c.HandleReply(1, 6, 200, "")
    assert client.take() == c.ChannelReply(2, 7, 200, "")
    assert client.rest() == []


def test_an_open_channel_is_not_opened_and_channel_0_never(dial: Dial) -> None:
    client = dial().open()
    assert isinstance(client.ask(c.ChannelOpen(1)), c.ChannelClose)
    other = dial().open()
    assert isinstance(other.ask(c.ChannelOpen(0)), c.ConnectionClose | c.ChannelClose)


def test_a_fault_on_a_channel_leaves_the_others(dial: Dial) -> None:
    client = dial().open().send(c.ChannelOpen(2))
    close = client.ask(c.ChannelCommit(1, 1))  # it has no transactions
    assert isinstance(close, c.ChannelClose)
    assert client.send(c.ChannelClose(1, 200)).rest() == []
    assert client.ask(c.ChannelOpen(1, 3)) == c.ChannelReply(1, 3, 200, "")
    assert client.ask(c.ChannelAck(2, 4, 0)) == c.ChannelReply(2, 4, 200, "")


def test_an_ack_covers_all_handles_up_to_a_number_that_need_not_exist(dial: Dial) -> None:
    client = dial().open().handle(1, "q.acka").handle(2, "q.ackb")
    client.send(c.HandleConsume(1, prefetch=9), c.HandleConsume(2, prefetch=9))
    for handle in (1, 2, 1):
        client.post(b"x", handle, tag=9)
    found = [client.take() for _ in range(3)]
    assert [each[0].message_nbr for each in found] == [1, 2, 3]
    client.send(c.ChannelAck(1, 0, 1000))
    replies = client.rest()
    assert [each.reply_code for each in replies] == [200] * 3  # type: ignore[union-attr]


def test_a_transaction_counts_with_its_commit_and_not_with_a_rollback(dial: Dial) -> None:
    client, consumer = dial().open(), dial().open()
    consumer.handle(1, "q.tx").send(c.HandleConsume(1, prefetch=9, unreliable=True))
    client.send(c.ChannelOpen(2, transacted=True), c.HandleOpen(2, 1, 1, 0, True, dest_name="q.tx"))
    client.post(b"forgotten")
    assert client.ask(c.ChannelRollback(2, 1)) == c.ChannelReply(2, 1, 200, "")
    client.post(b"1").post(b"2")
    assert consumer.rest() == []
    assert client.ask(c.ChannelCommit(2, 2)) == c.ChannelReply(2, 2, 200, "")
    assert consumer.bodies(2) == [b"1", b"2"]


def test_a_rollback_gives_back_what_was_received(dial: Dial) -> None:
    client, publisher = dial().open(), dial().open()
    client.send(c.ChannelOpen(2, transacted=True))
    client.send(c.HandleOpen(2, 1, 1, 0, False, True, dest_name="q.back"))
    client.send(c.HandleConsume(1, prefetch=1))
    publisher.handle(1, "q.back").post(b"x")
    assert client.bodies(1) == [b"x"]
    client.send(c.ChannelAck(2, 0, 1), c.ChannelRollback(2, 1))
    again = [each for each in client.rest(1) if isinstance(each, tuple)]
    assert [body_of(each[1]) for each in again] == [b"x"]
    assert isinstance(again[0][0], c.HandleNotify)
    assert again[0][0].redelivered


# --- restartable transfers (§3.3.2.2, §3.5.13) ----------------------------------------------------


def prepared(body: bytes, content_hash: str) -> tuple[c.Command, bytes]:
    octets = message(body, identifier="file")
    return c.HandlePrepare(1, 100, content_hash), octets[:100]


def test_an_announced_message_is_answered_by_what_is_here(dial: Dial) -> None:
    client = dial().open().send(c.ChannelOpen(2, restartable=True))
    client.send(c.HandleOpen(2, 1, 1, 0, True, dest_name="q.file"))
    body = bytes(1000)
    octets = message(body, identifier="file")
    client.send(prepared(body, hashlib.sha1(body).hexdigest()))
    ready = client.take()
    assert isinstance(ready, c.HandleReady)
    assert ready.message_size == 100 - (len(octets) - len(body))  # octets of the body
    left = octets[100:]
    client.send((c.HandleSend(1, 5, len(left), recovery=True), left))
    consumer = dial().open().handle(1, "q.file").send(c.HandleConsume(1, prefetch=1))
    assert consumer.bodies(1) == [body]
    consumer.send(c.ChannelAck(1, 0, 1))
    assert client.take() == c.HandleReply(1, 5, 200, "")


def test_a_wrong_hash_is_542(dial: Dial) -> None:
    client = dial().open().send(c.ChannelOpen(2, restartable=True))
    client.send(c.HandleOpen(2, 1, 1, 0, True, dest_name="q.wrong"))
    body = bytes(1000)
    client.send(prepared(body, "0" * 40))
    client.take()
    left = message(body, identifier="file")[100:]
    client.send((c.HandleSend(1, 5, len(left), recovery=True), left))
    answers = client.rest()
    assert [each.reply_code for each in answers] == [542]  # type: ignore[union-attr]


# --- destinations (§3.5) --------------------------------------------------------------------------


def test_a_handle_is_opened_once_and_on_an_open_channel(dial: Dial) -> None:
    client = dial().open().handle(1, "q.1").handle(1, "q.1")
    assert isinstance(client.take(), c.HandleClose)
    client = dial().open().send(c.HandleOpen(9, 1, 1))
    assert isinstance(client.take(), c.ConnectionClose)


def test_names_go_on_where_the_handles_end(dial: Dial) -> None:
    client = dial().open().handle(1, "q.alt.rec.").handle(2, "")
    for name in ("q.alt.rec.pets", "q.alt.rec.pets.cats"):
        client.send(c.HandleConsume(2, prefetch=9, unreliable=True, dest_name=name))
    client.post(b"1", name="pets").post(b"2", name="pets.cats")
    notes = [client.take()[0] for _ in range(2)]
    assert sorted(each.dest_name for each in notes) == ["q.alt.rec.pets", "q.alt.rec.pets.cats"]


def test_a_destination_that_is_not_there_closes_the_handle(dial: Dial) -> None:
    client = dial().open().handle(1, "alt.rec.pets").post(b"x", name="alt")
    close = client.take()
    assert isinstance(close, c.HandleClose)
    assert close.reply_code == 404
    client.send(c.HandleClose(1, 200)).handle(1, "q.again", confirm_tag=3)
    assert client.take() == c.HandleReply(1, 3, 200, "")


def test_writing_to_all_destinations_is_404(dial: Dial) -> None:
    client = dial().open().handle(1, "").post(b"x")
    assert client.take().reply_code == 404


def test_a_queue_gives_each_message_to_one_and_a_topic_to_all(dial: Dial) -> None:
    clients, publisher = [dial().open(), dial().open()], dial().open()
    for client in clients:
        client.handle(1, "q.each").handle(2, "t.all", 2)
        client.send(c.HandleConsume(1, prefetch=99, unreliable=True))
        client.send(c.HandleConsume(2, 5, prefetch=99, unreliable=True))
        assert client.take() == c.HandleReply(2, 5, 200, "")
    publisher.handle(1, "q.each").handle(2, "t.all", 2)
    for _ in range(20):
        publisher.post(b"queue", 1).post(b"topic", 2)
    found = [body_of(each[1]) for one in clients for each in one.rest(1) if isinstance(each, tuple)]
    assert (found.count(b"queue"), found.count(b"topic")) == (20, 40)


def test_the_service_must_be_the_routes(dial: Dial) -> None:
    client = dial().open().handle(1, "t.all", 1).send(c.HandleConsume(1))
    assert client.take().reply_code == 401


@pytest.mark.parametrize("service", [0, 4, 99])
def test_an_unknown_service_is_refused(dial: Dial, service: int) -> None:
    assert dial().open().handle(1, "q.1", service).take().reply_code == 401


def post_when_known(client: FastSocket, name: str, *bodies: bytes) -> None:
    """Posts to a name that another worker may not have heard of yet."""
    for number in range(1, 50):
        client.handle(number, name).post(bodies[0], number)
        if not client.rest(0.2):
            break
        client.send(c.HandleClose(number, 200))
    for body in bodies[1:]:
        client.post(body, number)


def test_a_temporary_queue_has_a_name_of_the_servers_and_goes_with_its_channel(dial: Dial) -> None:
    client, other = dial().open().handle(1, "", temporary=True), dial().open()
    created = client.take()
    assert isinstance(created, c.HandleCreated)
    post_when_known(other, created.dest_name, b"x")
    client.send(c.HandleConsume(1, prefetch=1))
    assert client.bodies(1) == [b"x"]
    client.send(c.ChannelClose(1, 200))
    assert isinstance(client.take(), c.ChannelClose)
    other.handle(99, created.dest_name).post(b"y", 99)
    codes = [each.reply_code for each in other.rest(1) if isinstance(each, c.HandleClose)]
    assert set(codes) == {404}


def test_a_temporary_name_of_the_clients_own_is_refused(dial: Dial) -> None:
    assert dial().open().handle(1, "mine", temporary=True).take().reply_code == 403


def test_no_more_is_sent_than_the_prefetch(dial: Dial) -> None:
    client, publisher = dial().open().handle(1, "q.window"), dial().open().handle(1, "q.window")
    client.send(c.HandleConsume(1, prefetch=3))
    for _ in range(10):
        publisher.post(b"x")
    assert len(client.rest(0.6)) == 3
    client.send(c.ChannelAck(1, 0, 2))
    assert len(client.rest()) == 2
    refused = dial().open().handle(1, "q.window").ask(c.HandleConsume(1, prefetch=0))
    assert refused.reply_code == 502


def test_a_paused_handle_gets_nothing_and_queues_serve_others(dial: Dial) -> None:
    client, other = dial().open().handle(1, "q.pause"), dial().open().handle(1, "q.pause")
    for each in (client, other):
        each.send(c.HandleConsume(1, 1, prefetch=99, unreliable=True))
        each.take()
    assert client.ask(c.HandleFlow(1, 4, True)) == c.HandleReply(1, 4, 200, "")
    publisher = dial().open().handle(1, "q.pause")
    for _ in range(10):
        publisher.post(b"x")
    assert len(other.bodies(10)) == 10
    assert client.rest() == []
    other.send(c.HandleFlow(1, 0, True))
    other.rest()
    client.send(c.HandleFlow(1, 0, False))
    publisher.post(b"again")
    assert client.bodies(1) == [b"again"]


def test_what_is_ungot_goes_to_another_and_is_redelivered(dial: Dial) -> None:
    """The other one has a message before, so that all workers know of it, and no room for more."""
    other = dial().open().handle(1, "q.unget").send(c.HandleConsume(1, 1, prefetch=1))
    other.take()
    client, publisher = dial().open().handle(1, "q.unget"), dial().open().handle(1, "q.unget")
    publisher.post(b"0")
    assert other.bodies(1) == [b"0"]
    client.send(c.HandleConsume(1, prefetch=9))
    for body in (b"1", b"2", b"3", b"4"):
        publisher.post(body)
    assert client.bodies(4) == [b"1", b"2", b"3", b"4"]
    client.send(c.HandleUnget(1, 0, 3), c.ChannelAck(1, 0, 4))
    other.send(c.ChannelAck(1, 0, 1))
    note, octets = other.take()
    assert body_of(octets) == b"3"
    assert note.redelivered
    assert client.rest() == []
    late = client.ask(c.HandleUnget(1, 0, 4))  # it is acknowledged already
    assert late.reply_code == 310


@pytest.mark.parametrize(
    "command",
    [
        c.HandleConsume(1, identifier="durable"),
        c.HandleConsume(1, selector=b"x"),
        c.HandleConsume(1, no_local=True),
        c.HandleQuery(1),
    ],
)
def test_what_a_router_cannot_do_is_540(dial: Dial, command: c.Command) -> None:
    client = dial().open().handle(1, "t.cannot", 2)
    assert client.ask(command).reply_code == 540


@pytest.mark.parametrize(
    "command",
    [c.HandleConsume(1), c.HandleFlow(1, 0, True), c.HandleQuery(1), c.HandleUnget(1, 0, 1)],
)
def test_these_are_not_valid_for_peers(dial: Dial, command: c.Command) -> None:
    options = {"producer": False, "consumer": False, "browser": False}
    client = dial().open().handle(1, "q.peer", 3, **options)
    assert client.ask(command).reply_code == 503


def test_a_temporary_queue_is_listed_and_browsed(dial: Dial) -> None:
    client, other = dial().open().handle(1, "", temporary=True), dial().open()
    name = client.take().dest_name
    post_when_known(other, name, b"1", b"2", b"3")
    client.rest(0.6)
    index = client.ask(c.HandleQuery(1))
    assert isinstance(index, c.HandleIndex)
    assert (index.message_list, index.message_nbr) == (b"1-3", 0)
    client.send(c.HandleBrowse(1, 4, 2))
    answers = client.rest()
    [(note, octets)] = [each for each in answers if isinstance(each, tuple)]
    assert isinstance(note, c.HandleNotify)
    assert (body_of(octets), note.delivered) == (b"2", False)
    assert client.ask(c.HandleBrowse(1, 5, 9)).reply_code == 310


@pytest.mark.parametrize("is_first", [True, False])
def test_a_query_or_browse_sees_what_its_channel_has_sent_before(
    dial: Dial, is_first: bool
) -> None:
    """§2.2.5: commands of a channel are taken up in order."""
    client = dial().open()
    asked: list[c.Command | tuple[c.Command, bytes]] = [c.HandleQuery(1)]
    for body in (b"1", b"2"):
        octets = message(body)
        asked.insert(-1, (c.HandleSend(1, 0, len(octets)), octets))
    asked += [c.HandleBrowse(1, 7, 2), c.HandleBrowse(1, 8, 3)]
    if not is_first:
        client.handle(1, "", temporary=True).take()
        client.send(*asked)
    else:  # before the destination has a name
        opened = c.HandleOpen(1, 1, 1, producer=True, consumer=True, browser=True, temporary=True)
        client.send(opened, *asked)
        assert isinstance(client.take(), c.HandleCreated)
    assert client.take() == c.HandleIndex(1, 0, b"1-2")
    assert client.take() == c.HandleReply(1, 7, 200)
    note, octets = client.take()
    assert (note.delivered, body_of(octets)) == (False, b"2")
    assert client.take().reply_code == 310


def test_a_close_behind_a_query_waits_for_its_answer(dial: Dial) -> None:
    client = dial().open().handle(1, "", temporary=True)
    client.take()
    octets = message(b"1")
    send = (c.HandleSend(1, 0, len(octets)), octets)
    client.send(send, c.HandleQuery(1), c.HandleClose(1, 200))
    assert client.take() == c.HandleIndex(1, 0, b"1")
    assert client.take() == c.HandleClose(1, 200)


def test_a_query_of_a_full_destination_is_answered(dial: Dial) -> None:
    client = dial().open().handle(1, "", temporary=True)
    client.take()
    for _ in range(150):  # it has room for 100
        client.post(b"x")
    listed = client.ask(c.HandleQuery(1))
    assert listed == c.HandleIndex(1, 0, b"1-100")
    client.send(c.HandleConsume(1, 0, 200))
    assert client.bodies(150) == [b"x"] * 150


def test_a_message_in_fragments_is_one_and_may_be_mixed_with_other_channels(dial: Dial) -> None:
    client = dial().open().send(c.ChannelOpen(2))
    client.handle(1, "q.parts").send(c.HandleOpen(2, 2, 1, 0, True, dest_name="q.parts"))
    consumer = dial().open().handle(1, "q.parts").send(c.HandleConsume(1, prefetch=9))
    first, second = message(b"a" * 50), message(b"b" * 50)
    client.send((c.HandleSend(1, 0, 30, partial=True), first[:30]))
    client.send((c.HandleSend(2, 0, len(second)), second))
    client.send((c.HandleSend(1, 0, len(first) - 30), first[30:]))
    assert consumer.bodies(2) == [b"b" * 50, b"a" * 50]


def test_an_out_of_band_channel_or_message_is_540(dial: Dial) -> None:
    assert dial().open().ask(c.ChannelOpen(2, out_of_band="shm")).reply_code == 540
    client = dial().open().handle(1, "q.1")
    assert client.ask(c.HandleSend(1, 0, 10, out_of_band=True)).reply_code == 540


def test_streams_are_for_peers(dial: Dial) -> None:
    client = dial().open().handle(1, "q.1")
    octets = message(b"")
    client.send((c.HandleSend(1, 0, len(octets), partial=True, streaming=True), octets))
    assert client.take().reply_code in (502, 503)


def test_a_close_of_a_handle_or_channel_is_answered(dial: Dial) -> None:
    client = dial().open().handle(1, "q.1")
    assert isinstance(client.ask(c.HandleClose(1, 200)), c.HandleClose)
    assert isinstance(client.ask(c.ChannelClose(1, 200)), c.ChannelClose)
    assert client.ask(c.ChannelOpen(1, 2)) == c.ChannelReply(1, 2, 200, "")


NOT_OPEN: list[tuple[int, c.Command]] = [
    (504, c.ChannelAck(5, 1, 1)),
    (504, c.ChannelCommit(5, 1)),
    (504, c.ChannelRollback(5, 1)),
    (504, c.ChannelClose(5, 200)),
    (505, c.HandleSend(5, 1, 0)),
    (505, c.HandleConsume(5, 1, 1)),
    (505, c.HandleCancel(5, 1, "", "x")),
    (505, c.HandleFlow(5, 1, True)),
    (505, c.HandleUnget(5, 1, 1)),
    (505, c.HandleQuery(5)),
    (505, c.HandleBrowse(5, 1, 1)),
    (505, c.HandlePrepare(5, 0)),
    (505, c.HandleReady(5, 0)),
    (505, c.HandleClose(5, 200)),
]


@pytest.mark.parametrize(("code", "command"), NOT_OPEN)
def test_what_is_not_open_is_not_used(dial: Dial, code: int, command: c.Command) -> None:
    """§2.2.8.2-7, and each command's channel-id or handle-id: it "must be open"."""
    answer = dial().open().handle(1, "q.1").ask(command)
    assert isinstance(answer, c.ConnectionClose)
    assert answer.reply_code == code


def test_nothing_comes_before_it_is_asked_for(dial: Dial) -> None:
    """§2.2.8.4."""
    client = dial().open().handle(1, "q.asked")
    dial().open().handle(1, "q.asked").post(b"x")
    assert client.rest() == []
    client.send(c.HandleConsume(1, 0, 1))
    assert client.bodies(1) == [b"x"]


def test_all_data_is_on_the_stream(dial: Dial) -> None:
    """§3.5.11: out-of-band is 0, and the message follows its command."""
    client = dial().open().handle(1, "q.stream").send(c.HandleConsume(1, 0, 1)).post(b"x")
    note, octets = client.take()
    assert isinstance(note, c.HandleNotify)
    assert (note.out_of_band, note.fragment_size) == (False, len(octets))


def test_prepare_is_for_restartable_channels(dial: Dial) -> None:
    """§3.3.2.2."""
    octets = message(bytes(100))
    client = dial().open().handle(1, "q.1").send((c.HandlePrepare(1, len(octets)), octets))
    answer = client.take()
    assert isinstance(answer, c.ChannelClose)
    assert answer.reply_code == 503


def test_no_topic_has_durable_subscriptions(dial: Dial) -> None:
    """§3.5.4: least of all a temporary one."""
    client = dial().open().handle(1, "t.1", 2).send(c.HandleConsume(1, 0, 1, identifier="d"))
    assert client.take().reply_code == 540
    client = dial().open().handle(1, "", 2, temporary=True)
    assert isinstance(client.take(), c.HandleCreated)
    assert client.ask(c.HandleConsume(1, 0, 1, identifier="d")).reply_code == 540


def test_a_body_size_that_is_not_the_bodys_is_542(dial: Dial) -> None:
    """§3.4.4."""
    octets = message(b"12345")
    client = dial().open().handle(1, "nobody.1").send((c.HandleSend(1, 7, len(octets)), octets))
    assert client.take().reply_code == 404
    client = dial().open().handle(1, "nobody.1")
    client.send((c.HandleSend(1, 7, len(octets) - 1), octets[:-1]))
    assert client.take().reply_code == 542


def test_a_message_that_no_route_takes_is_told_by_its_tag(dial: Dial) -> None:
    client = dial().open().handle(1, "nobody.1").post(b"x", tag=9)
    answer = client.take()
    assert answer.reply_code == 404
