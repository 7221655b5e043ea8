"""Publishing, consuming, acknowledging and transactions (0-9-1 §3.1.7-9, §4.5-4.7, basic, tx)."""

import time
from typing import Any

import pytest

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import Properties
from tests.rules.v0_9_1.conftest import Dial
from tests.support.basic_peer import Content
from tests.support.basic_socket import BasicSocket


def consume(queue: str, tag: str = "c", **options: bool) -> m.BasicConsume:
    return m.BasicConsume(queue=queue, consumer_tag=tag, **options)  # type: ignore[arg-type]


def got(client: BasicSocket, queue: str) -> Any:
    """Gets until something is there, for a while: it may be on its way from another worker."""
    for _ in range(30):
        client.send(1, m.BasicGet(queue=queue))
        answer = client.take()
        if isinstance(answer, Content):
            return answer
        time.sleep(0.05)
    return None


def contents(client: BasicSocket, seconds: float = 0.4) -> list[Any]:
    """Takes all messages that come until nothing has come for a while."""
    return [one for one in client.rest(seconds) if isinstance(one, Content)]


def told(client: BasicSocket, seconds: float = 0.4) -> list[object]:
    """Names of what came, and codes of what came back."""
    found: list[object] = []
    for one in client.rest(seconds):
        if isinstance(one, Content) and isinstance(one.method, m.BasicReturn):
            found.append(one.method.reply_code)
        else:
            found.append(type(one).__name__)
    return found


# --- publishing -----------------------------------------------------------------------------------


def test_publishing_to_an_exchange_that_is_not_there_is_404(dial: Dial) -> None:
    client = dial()
    client.publish(b"x", "k", exchange="nowhere")
    assert client.take().reply_code == 404


def test_a_blank_exchange_leads_to_the_queue_of_the_key(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.publish(b"x", "own")
    client.send(1, m.BasicGet(queue="own", no_ack=True))
    assert client.take().body == b"x"


def test_publishing_to_an_internal_exchange_is_403(dial: Dial) -> None:
    client = dial()
    client.ask(m.ExchangeDeclare(exchange="ex.inside", type="fanout", internal=True))
    client.publish(b"x", "", exchange="ex.inside")
    assert client.take().reply_code == 403


@pytest.mark.parametrize("confirms", [True, False])
def test_a_mandatory_message_without_a_queue_comes_back_with_312(
    dial: Dial, confirms: bool
) -> None:
    client = dial()
    if confirms:
        client.ask(m.ConfirmSelect())
    client.publish(b"x", "nobody.here", mandatory=True)
    returned = client.take()
    assert (returned.method.reply_code, returned.body) == (312, b"x")
    assert (returned.method.exchange, returned.method.routing_key) == ("", "nobody.here")
    client.publish(b"y", "nobody.here")
    assert told(client) == (["BasicAck", "BasicAck"] if confirms else [])


def test_immediate_is_540(dial: Dial) -> None:
    client = dial()
    client.write(client.content(m.BasicPublish(routing_key="q.1", immediate=True)))
    assert client.take().reply_code == 540


def test_an_overfull_queue_discards_nothing_persistent(dial: Dial) -> None:
    publisher, consumer = dial(), dial()
    said = Properties(delivery_mode=2)
    for number in range(300):
        publisher.publish(b"%d" % number, "q.flood", properties=said)
    consumer.ask(consume("q.flood", no_ack=True))
    assert consumer.bodies(300) == [b"%d" % number for number in range(300)]


def test_messages_are_not_sorted_by_priority(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for body, priority in ((b"1", 0), (b"2", 0), (b"3", 9)):
        client.publish(body, "own", properties=Properties(priority=priority))
    client.send(1, consume("own", no_ack=True))
    found = contents(client)
    assert [one.body for one in found] == [b"1", b"2", b"3"]
    assert found[2].properties.priority == 9


def test_order_is_kept_whatever_the_persistence(dial: Dial) -> None:
    consumer, publisher = dial(), dial()
    consumer.ask(consume("q.order", no_ack=True))
    for number in range(200):
        mode = Properties(delivery_mode=1 + number % 2)
        publisher.publish(b"%d" % number, "q.order", properties=mode)
    assert consumer.bodies(200) == [b"%d" % number for number in range(200)]


# --- consuming ------------------------------------------------------------------------------------


def test_delivery_tags_begin_at_1_and_belong_to_their_channel(dial: Dial) -> None:
    client = dial(1, 2)
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.publish(b"1", "own").publish(b"2", "own")
    client.send(1, m.BasicGet(queue="own"))
    assert client.take().method.delivery_tag == 1
    client.send(2, m.BasicGet(queue="own"))
    assert client.take().method.delivery_tag == 1
    client.send(2, m.BasicAck(1))
    assert client.code(m.BasicAck(1), 2) == 406


def test_no_more_is_sent_than_the_prefetch_allows(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.BasicQos(prefetch_count=3))
    client.ask(consume("q.window"))
    for number in range(10):
        publisher.publish(b"%d" % number, "q.window")
    first = contents(client, 0.6)
    assert len(first) == 3
    client.send(1, m.BasicAck(2, multiple=True))
    assert len(contents(client)) == 2
    client.send(1, m.BasicAck(0, multiple=True))
    assert len(contents(client)) == 3


def test_prefetch_size_is_540(dial: Dial) -> None:
    assert dial().code(m.BasicQos(prefetch_size=1000)) == 540


def test_a_queue_has_room_for_many_consumers_which_take_turns(dial: Dial) -> None:
    client, publisher = dial(), dial()
    for number in range(100):
        client.send(1, consume("q.many", f"c{number}", no_ack=True))
    assert client.rest(1) == [m.BasicConsumeOk(f"c{number}") for number in range(100)]
    for _ in range(200):
        publisher.publish(b"x", "q.many")
    tags = [one.method.consumer_tag for one in contents(client, 1)]
    assert len(tags) == 200
    assert len(set(tags)) > 16


def test_a_tag_in_use_is_530_and_free_on_another_channel(dial: Dial) -> None:
    client = dial(1, 2)
    assert client.ask(consume("q.tags")) == m.BasicConsumeOk("c")
    assert client.ask(consume("q.tags"), 2) == m.BasicConsumeOk("c")
    assert client.ask(m.BasicCancel("c"), 2) == m.BasicCancelOk("c")
    assert client.code(consume("q.tags"), 1) == 530


def test_a_shared_queue_is_promised_to_no_consumer_alone(dial: Dial) -> None:
    first, second = dial(), dial()
    assert first.code(consume("q.alone", exclusive=True)) == 403
    assert first.ask(consume("q.alone")) == m.BasicConsumeOk("c")
    assert second.code(consume("q.alone", exclusive=True)) == 403


def test_cancelling_a_consumer_that_is_not_there_is_confirmed(dial: Dial) -> None:
    client = dial()
    assert client.ask(m.BasicCancel("nobody")) == m.BasicCancelOk("nobody")
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.ask(consume("own"))
    client.send(1, m.QueueDelete(queue="own"))
    client.rest()
    assert client.ask(m.BasicCancel("c")) == m.BasicCancelOk("c")


def test_nothing_is_delivered_before_consume_ok_or_behind_cancel_ok(dial: Dial) -> None:
    client, publisher = dial(), dial()
    for number in range(20):
        publisher.publish(b"%d" % number, "q.sync")
        client.send(1, consume("q.sync", no_ack=True))
        assert client.take() == m.BasicConsumeOk("c")
        assert client.take().body == b"%d" % number
        assert client.ask(m.BasicCancel("c")) == m.BasicCancelOk("c")
    publisher.publish(b"later", "q.sync")
    assert client.rest() == []


def test_unacknowledged_delivery_needs_no_ack(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.BasicQos(prefetch_count=1))
    client.ask(consume("q.noack", no_ack=True))
    for number in range(50):
        publisher.publish(b"%d" % number, "q.noack")
    assert len(client.bodies(50)) == 50
    assert client.code(m.BasicAck(1)) == 406


def test_what_is_not_acknowledged_comes_again_redelivered(dial: Dial) -> None:
    first, publisher = dial(), dial()
    first.ask(consume("q.half"))
    for number in range(10):
        publisher.publish(b"%d" % number, "q.half")
    assert len(first.bodies(10)) == 10
    first.send(1, m.BasicAck(5, multiple=True))
    first.send(0, m.ConnectionClose(reply_code=200))
    first.end()
    second = dial()
    second.ask(consume("q.half", no_ack=True))
    found = [second.take() for _ in range(5)]
    assert sorted(one.body for one in found) == [b"5", b"6", b"7", b"8", b"9"]
    assert all(one.method.redelivered for one in found)
    assert second.rest() == []


def test_a_channel_that_closes_gives_back_what_was_not_acknowledged(dial: Dial) -> None:
    first, publisher = dial(1), dial()
    first.ask(consume("q.closed"))
    publisher.publish(b"x", "q.closed")
    assert first.take().body == b"x"
    first.ask(m.ChannelClose(reply_code=200))
    again = got(publisher, "q.closed")
    assert again is not None
    assert (again.body, again.method.redelivered) == (b"x", True)


@pytest.mark.parametrize("end", ["channel", "connection", "error", "hard error", "socket"])
def test_however_a_channel_ends_what_it_had_is_delivered_again(dial: Dial, end: str) -> None:
    """§4.5: by the handshake, of its own or of its connection, by an error, with the socket."""
    queue = "q.ends." + end.replace(" ", ".")
    first, publisher = dial(1), dial()
    first.ask(consume(queue))
    publisher.publish(b"x", queue)
    assert first.take().body == b"x"
    match end:
        case "channel":
            first.ask(m.ChannelClose(reply_code=200))
        case "connection":
            first.send(0, m.ConnectionClose(reply_code=200))
        case "error":
            first.send(1, m.BasicAck(delivery_tag=9))
        case "hard error":
            first.send(1, m.ChannelOpen())
        case _:
            first.socket.close()
    again = got(publisher, queue)
    assert again is not None
    assert (again.body, again.method.redelivered) == (b"x", True)


def test_a_message_goes_to_one_consumer_of_a_queue(dial: Dial) -> None:
    first, second, publisher = dial(), dial(), dial()
    for client in (first, second):
        client.ask(consume("q.one", no_ack=True))
    for number in range(40):
        publisher.publish(b"%d" % number, "q.one")
    found = [one.body for each in (first, second) for one in each.rest(1)]
    assert sorted(found) == sorted(b"%d" % number for number in range(40))


# --- getting --------------------------------------------------------------------------------------


def test_a_get_of_an_empty_queue_is_empty(dial: Dial) -> None:
    assert isinstance(dial().ask(m.BasicGet(queue="q.empty")), m.BasicGetEmpty)


def test_a_get_tells_how_many_are_left_every_time(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    for _ in range(10):
        for body in (b"1", b"2", b"3"):
            client.publish(body, "own")
        for left in (2, 1, 0):
            client.send(1, m.BasicGet(queue="own", no_ack=True))
            assert client.take().method.message_count == left


@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("has_left", [True, False])
def test_a_get_finds_what_was_published_at_another_worker(
    dial: Dial, confirms: bool, has_left: bool
) -> None:
    getter, publisher = dial(), dial()
    queue = f"q.get{confirms}{has_left}"
    if confirms and not has_left:
        publisher.ask(m.ConfirmSelect())
    publisher.publish(b"1", queue).publish(b"2", queue)
    if has_left:
        publisher.send(0, m.ConnectionClose(reply_code=200))
        publisher.end()
    began = time.monotonic()
    found = [got(getter, queue), got(getter, queue)]
    assert sorted(one.body for one in found if one is not None) == [b"1", b"2"]
    assert time.monotonic() - began < 6
    getter.send(1, m.BasicAck(0, multiple=True))
    if confirms and not has_left:
        assert set(told(publisher)) == {"BasicAck"}


# --- acknowledging --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [m.BasicAck(1), m.BasicAck(1, multiple=True), m.BasicNack(1), m.BasicReject(1)]
)
def test_a_tag_that_was_not_delivered_is_406_also_in_a_transaction(
    dial: Dial, method: m.Method
) -> None:
    client = dial(1, 2)
    assert client.code(method) == 406
    client.ask(m.TxSelect(), 2)
    assert client.code(method, 2) == 406


def test_a_message_is_acknowledged_once(dial: Dial) -> None:
    client = dial()
    client.ask(m.QueueDeclare(queue="own", exclusive=True))
    client.publish(b"x", "own")
    client.send(1, m.BasicGet(queue="own"))
    client.take()
    client.send(1, m.BasicAck(1))
    assert client.code(m.BasicAck(1)) == 406


def test_a_rejected_message_goes_to_another_consumer_or_to_the_same_one(dial: Dial) -> None:
    first, publisher = dial(), dial()
    first.ask(consume("q.reject"))
    publisher.publish(b"x", "q.reject")
    assert first.take().body == b"x"
    first.send(1, m.BasicReject(1, requeue=True))
    again = first.take()  # nobody else is there
    assert (again.body, again.method.redelivered) == (b"x", True)
    second = dial()
    second.ask(consume("q.reject"))
    first.send(1, m.BasicReject(2, requeue=True))
    assert second.take().body == b"x"
    second.send(1, m.BasicReject(1, requeue=False))
    assert (first.rest(), second.rest()) == ([], [])


@pytest.mark.parametrize("method", [m.BasicRecover, m.BasicRecoverAsync])
def test_what_is_recovered_comes_again_redelivered(
    dial: Dial, method: type[m.BasicRecover]
) -> None:
    client, publisher = dial(), dial()
    queue = f"q.{method.__name__}"
    client.ask(consume(queue))
    publisher.publish(b"1", queue).publish(b"2", queue)
    assert client.bodies(2) == [b"1", b"2"]
    client.send(1, method(requeue=True))
    answers = client.rest(1)
    found: list[Any] = [one for one in answers if isinstance(one, Content)]
    assert sorted(one.body for one in found) == [b"1", b"2"]
    assert all(one.method.redelivered for one in found)
    assert (m.BasicRecoverOk() in answers) is (method is m.BasicRecover)


def test_recover_without_requeue_is_540(dial: Dial) -> None:
    assert dial().code(m.BasicRecover(requeue=False)) == 540


def test_methods_are_read_while_content_is_sent(dial: Dial) -> None:
    client, publisher = dial(frame_max=65536), dial(frame_max=65536)
    client.ask(m.BasicQos(prefetch_count=20))
    client.ask(consume("q.large"))
    for _ in range(40):
        publisher.publish(bytes(60_000), "q.large")
    acked = 0
    while acked < 40:  # what is read is rejected while the rest is on its way
        tag = client.take().method.delivery_tag
        acked += 1
        client.send(1, m.BasicReject(tag, requeue=False))
    assert client.rest() == []


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()])
def test_commit_and_rollback_need_a_transaction(dial: Dial, method: m.Method) -> None:
    assert dial().code(method) == 406


def test_publishes_count_with_their_commit_and_not_with_a_rollback(dial: Dial) -> None:
    client, consumer = dial(), dial()
    consumer.ask(consume("q.tx", no_ack=True))
    assert client.ask(m.TxSelect()) == m.TxSelectOk()
    client.publish(b"forgotten", "q.tx")
    assert client.ask(m.TxRollback()) == m.TxRollbackOk()
    client.publish(b"1", "q.tx").publish(b"2", "q.tx")
    assert consumer.rest() == []
    assert client.ask(m.TxCommit()) == m.TxCommitOk()
    assert consumer.bodies(2) == [b"1", b"2"]


def test_acks_count_with_their_commit_and_a_rollback_delivers_nothing_again(dial: Dial) -> None:
    client, publisher = dial(), dial()
    client.ask(m.TxSelect())
    client.ask(consume("q.txack"))
    publisher.publish(b"1", "q.txack").publish(b"2", "q.txack")
    assert client.bodies(2) == [b"1", b"2"]
    client.send(1, m.BasicAck(2, multiple=True))
    assert client.ask(m.TxRollback()) == m.TxRollbackOk()
    assert client.rest() == []  # they are unacknowledged again, and recover would bring them
    client.send(1, m.BasicAck(1))
    assert client.ask(m.TxCommit()) == m.TxCommitOk()
    client.send(0, m.ConnectionClose(reply_code=200))
    client.end()
    again = got(publisher, "q.txack")
    assert again is not None
    assert again.body == b"2"
    publisher.send(1, m.BasicGet(queue="q.txack"))
    assert isinstance(publisher.take(), m.BasicGetEmpty)


def test_a_commit_of_one_queue_waits_until_its_messages_were_taken(dial: Dial) -> None:
    client, consumer = dial(), dial()
    client.ask(m.TxSelect())
    client.publish(b"1", "q.late")
    client.send(1, m.TxCommit())
    assert client.rest() == []
    consumer.ask(consume("q.late", no_ack=True))
    assert client.take() == m.TxCommitOk()
