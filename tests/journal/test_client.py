import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import MisuseError
from router.journal.block import Block, open_block
from router.journal.client import ClientState, JournalClient, JournalReplyError
from router.journal.protocol import REFUSED, REPLY, Health, Refusal, is_hello
from router.journal.record import ROW
from tests.support.journal import SOURCE, START_NS, key


def new_client(**budget: int) -> JournalClient:
    return JournalClient(router="dc1", worker=3, incarnation=START_NS, **budget)


def reply(durable: int, *, health: int = Health.WRITING, reason: int = 0) -> bytes:
    return REPLY.pack(health, reason, durable)


def sent(client: JournalClient) -> list[Block]:
    """Sends all that the client shows and gives its blocks."""
    octets = bytearray()
    while shown := client.data_to_send():
        octets += shown
        client.bytes_sent(len(shown))
    blocks, position = [], 0
    while position < len(octets):
        blocks.append(open_block(memoryview(bytes(octets)), position))
        position += blocks[-1].octets
    return blocks


def opened(client: JournalClient) -> JournalClient:
    client.connection_made()
    sent(client)
    client.receive_data(reply(client.durable_sequence))
    return client


def settle(client: JournalClient, count: int = 1) -> int:
    for _ in range(count):
        sequence = client.records.settled(START_NS, key(1), SOURCE)
    return sequence


def test_a_reply_of_the_format_reads_as_drawn() -> None:
    assert REPLY.pack(1, 28, 0x1112131415161718).hex(" ", 8) == "010000001c000000 1817161514131211"


def test_it_says_hello_and_waits_for_the_first_reply() -> None:
    client = new_client()
    settle(client)
    assert not client.data_to_send()
    client.connection_made()
    (hello,) = sent(client)
    assert is_hello(hello)
    assert (hello.origin.worker, hello.origin.incarnation) == (3, START_NS)
    assert (hello.first_sequence, bytes(hello.heap)) == (1, b"dc1")
    assert not client.data_to_send()
    client.receive_data(reply(0))
    (block,) = sent(client)
    assert (block.first_sequence, block.row_count) == (1, 1)


def test_records_of_one_turn_go_out_as_one_block() -> None:
    client = opened(new_client())
    settle(client, 10)
    assert [block.row_count for block in sent(client)] == [10]
    assert sent(client) == []


def test_what_is_durable_is_told_and_forgotten() -> None:
    client = opened(new_client())
    settle(client, 2)
    sent(client)
    settle(client, 3)
    assert client.waiting_octets > 5 * ROW.size
    assert client.receive_data(reply(2)) == 2
    sent(client)
    assert client.receive_data(reply(5)) == 5
    assert (client.durable_sequence, client.appended_sequence, client.waiting_octets) == (5, 5, 0)


def test_replies_may_come_in_any_pieces() -> None:
    client = opened(new_client())
    settle(client, 2)
    sent(client)
    durable = [client.receive_data(bytes([octet])) for octet in reply(1) + reply(2)]
    assert durable == [0] * 15 + [1] * 16 + [2]


def test_octets_go_out_in_any_pieces() -> None:
    client = opened(new_client())
    settle(client, 3)
    octets = bytearray()
    while shown := client.data_to_send():
        octets += shown[:7]
        client.bytes_sent(min(7, len(shown)))
    assert open_block(memoryview(octets)).row_count == 3


def test_after_a_lost_connection_all_that_is_not_durable_goes_out_again() -> None:
    client = opened(new_client())
    settle(client, 2)
    sent(client)
    client.receive_data(reply(2))
    settle(client, 3)
    shown = client.data_to_send()
    client.bytes_sent(len(shown) // 2)
    client.connection_lost()
    assert not client.data_to_send()
    settle(client, 1)
    client.connection_made()
    (hello,) = sent(client)
    assert hello.first_sequence == 3
    client.receive_data(reply(2))
    assert [(b.first_sequence, b.row_count) for b in sent(client)] == [(3, 3), (6, 1)]


def test_what_became_durable_before_the_connection_was_lost_is_not_sent_again() -> None:
    client = opened(new_client())
    for _ in range(3):
        settle(client, 2)
        sent(client)
    client.connection_lost()
    client.connection_made()
    sent(client)
    assert client.receive_data(reply(4)) == 4
    assert [(b.first_sequence, b.row_count) for b in sent(client)] == [(5, 2)]


def test_a_journal_that_lost_what_it_called_durable_is_told_about() -> None:
    client = opened(new_client())
    settle(client, 10)
    sent(client)
    client.receive_data(reply(10))
    client.connection_lost()
    client.connection_made()
    sent(client)
    client.receive_data(reply(0))
    assert client.lost_records == 10
    assert client.durable_sequence == 10
    settle(client)
    assert [b.first_sequence for b in sent(client)] == [11]


def test_over_its_budget_it_says_so_and_still_takes_records() -> None:
    client = opened(new_client(budget_octets=1000))
    told = []
    settle(client, 12)
    told.append(client.is_over_budget)
    settle(client)
    told.append(client.is_over_budget)
    assert settle(client) == 14
    sent(client)
    told.append(client.is_over_budget)  # sent is not durable
    client.receive_data(reply(14))
    told.append(client.is_over_budget)
    assert told == [False, True, True, False]


def test_a_full_disk_is_told_while_records_are_kept() -> None:
    client = opened(new_client())
    settle(client)
    sent(client)
    client.receive_data(reply(0, health=Health.DISK_FULL, reason=errno.ENOSPC))
    told = (client.health, client.errno, client.durable_sequence)
    assert told == (Health.DISK_FULL, errno.ENOSPC, 0)
    client.receive_data(reply(1))
    told = (client.health, client.errno, client.durable_sequence)
    assert told == (Health.WRITING, 0, 1)


def test_a_refusal_is_told_and_ends_the_conversation() -> None:
    client = new_client()
    client.connection_made()
    sent(client)
    client.receive_data(reply(0, health=REFUSED, reason=Refusal.WRONG_ROUTER))
    assert (client.state, client.refusal) == (ClientState.REFUSED, Refusal.WRONG_ROUTER)
    settle(client)
    assert not client.data_to_send()


@pytest.mark.parametrize(
    "octets",
    [reply(0, health=7), reply(0, health=REFUSED, reason=99), reply(2), b"HTTP/1.1 400 Bad"],
)
def test_replies_that_cannot_be_true_are_refused(octets: bytes) -> None:
    client = opened(new_client())
    settle(client)
    with pytest.raises(JournalReplyError):
        client.receive_data(octets)


def test_misuse_is_refused() -> None:
    client = opened(new_client())
    with pytest.raises(MisuseError):
        client.connection_made()
    with pytest.raises(MisuseError):
        client.bytes_sent(1)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["append", "send", "partly", "durable", "lose"]), max_size=60))
def test_whatever_happens_to_connections_the_journal_gets_every_record_once(
    steps: list[str],
) -> None:
    """KeptUntilDurable."""
    client, stored, arrived = new_client(), 0, b""
    lived = 0

    def arrive() -> None:
        """The journal takes the whole blocks that came, as its process does."""
        nonlocal stored, arrived
        while len(arrived) >= 40 and len(arrived) >= int.from_bytes(arrived[8:12], "little"):
            block = open_block(memoryview(arrived))
            arrived = arrived[block.octets :]
            if is_hello(block):
                client.receive_data(reply(stored))
            elif block.last_sequence > stored:
                assert block.first_sequence == stored + 1
                stored = block.last_sequence

    for step in [*steps, "lose", "send", "send", "durable"]:
        if client.state is ClientState.LOST:
            client.connection_made()
            arrived = b""
        if step == "append":
            settle(client, 3)
            lived += 3
        elif step == "send":
            while shown := client.data_to_send():
                arrived += shown
                client.bytes_sent(len(shown))
            arrive()
        elif step == "partly":
            shown = client.data_to_send()[:50]
            arrived += shown
            client.bytes_sent(len(shown))
            arrive()
        elif step == "durable" and client.state is ClientState.OPEN:
            client.receive_data(reply(stored))
        elif step == "lose":
            client.connection_lost()
            client.connection_made()
            arrived = b""
    assert stored == client.durable_sequence == client.appended_sequence == lived
    assert client.waiting_octets == 0
    assert client.lost_records == 0
