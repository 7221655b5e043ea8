"""AMQP/Fast on real sockets, through a running router, to and from AMQP 1.0."""

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.wire.fast import commands as c
from router.wire.fast.commands import decode_command
from router.wire.fast.framing import START, frame
from router.wire.fast.message import Head, encode_head
from tests.support.commands import begun
from tests.support.fast_peer import message
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: cli, admin: off, workers: 1}}  # parts of messages are kept by each worker alone
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - address: orders.#
  - {{address: news.#, distribution: multicast}}
"""

SECONDS = 60.0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("fast")
    port = free_port()
    with running_router(CONFIG.format(port=port), folder):
        yield port


class Wire:
    """A client of 2005, by hand."""

    def __init__(self, port: int, client_name: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._octets = b""
        self.socket.sendall(START)
        assert isinstance(self.read(), c.ConnectionChallenge)
        self.send(c.ConnectionResponse("ANONYMOUS"))
        tune = self.read()
        assert isinstance(tune, c.ConnectionTune)
        self.send(c.ConnectionTune(4096, 5, 5, 0), c.ConnectionOpen(1, "/", client_name))
        assert self.read() == c.ConnectionReply(1, 200)

    def send(self, *commands: c.Command | tuple[c.Command, bytes]) -> None:
        for each in commands:
            command, octets = each if isinstance(each, tuple) else (each, b"")
            self.socket.sendall(frame(command) + octets)

    def _take(self, count: int) -> bytes:
        while len(self._octets) < count:
            octets = self.socket.recv(65536)
            assert octets, "the router hung up"
            self._octets += octets
        taken, self._octets = self._octets[:count], self._octets[count:]
        return taken

    def read(self) -> c.Command:
        size = int.from_bytes(self._take(2), "big")
        octets = self._take(size)
        return decode_command(octets, 0, size - 1)

    def read_message(self) -> tuple[c.HandleNotify, bytes]:
        command = self.read()
        assert isinstance(command, c.HandleNotify)
        return command, self._take(command.fragment_size)


def test_a_1_0_receivers_outcome_comes_back_to_a_fast_sender(port: int) -> None:
    url, address = f"amqp://127.0.0.1:{port}", "orders.to"
    options = ["--count", "20", "--json", "--timeout", "60"]
    with begun("receive", url, address, "--outcome", "rejected", *options) as receiver:
        with begun("send", url, address, "--protocol", "amqp-fast", *options) as sender:
            account = json.loads(sender.communicate(timeout=SECONDS)[0])
        receiver.communicate(timeout=SECONDS)
    assert sender.returncode == 1
    assert account["outcomes"] == {"rejected": 20}


def test_a_fast_receivers_outcome_comes_back_to_a_1_0_sender(port: int) -> None:
    url, options = f"amqp://127.0.0.1:{port}", ["--count", "50", "--json", "--timeout", "60"]
    with begun("receive", url, "orders.back", "--protocol", "amqp-fast", *options) as receiver:
        with begun("send", url, "orders.back", "--size", "9000", *options) as sender:
            account = json.loads(sender.communicate(timeout=SECONDS)[0])
        received = json.loads(receiver.communicate(timeout=SECONDS)[0])
    assert account["outcomes"] == {"accepted": 50}
    assert received["received"] == 50


def test_a_transfer_that_was_cut_goes_on_and_arrives_whole(port: int) -> None:
    """§3.3.2.2, with a receiver of AMQP 1.0 that sees nothing of it."""
    body = ("0123456789" * 3_000).encode()  # less than a pipe holds
    head = encode_head(Head(identifier="file-1"), len(body))
    announced = hashlib.sha1(body).hexdigest()
    url = f"amqp://127.0.0.1:{port}"
    options = ["--count", "1", "--show", "--timeout", "60"]
    with begun("receive", url, "orders.file", *options) as receiver:
        first = Wire(port, "restarting")
        first.send(c.ChannelOpen(1, restartable=True))
        first.send(c.HandleOpen(1, 1, 1, producer=True, dest_name="orders.file"))
        first.send((c.HandlePrepare(1, len(head) + 1000, announced), head + body[:1000]))
        assert first.read() == c.HandleReady(1, 1000)
        for at in range(1000, 21_000, 4000):
            chunk = body[at : at + 4000]
            first.send((c.HandleSend(1, 0, 4000, partial=True, recovery=True), chunk))
        first.send(c.ConnectionPing(True))
        assert first.read() == c.ConnectionPing(False)
        first.socket.close()
        second = again(port, "restarting")
        second.send(c.ChannelOpen(1, restartable=True))
        second.send(c.HandleOpen(1, 1, 1, producer=True, dest_name="orders.file"))
        second.send((c.HandlePrepare(1, len(head), announced), head))
        assert second.read() == c.HandleReady(1, 21_000)
        for at in range(21_000, len(body), 4000):
            chunk = body[at : at + 4000]
            partial = at + len(chunk) < len(body)
            second.send((c.HandleSend(1, 7, len(chunk), partial=partial, recovery=True), chunk))
        assert second.read() == c.HandleReply(1, 7, 200)
        output, _ = receiver.communicate(timeout=SECONDS)
    assert output.splitlines()[0] == body.decode()


def again(port: int, client_name: str) -> Wire:
    """Comes back as soon as the router has noticed that the first connection is gone (320)."""
    for _ in range(1000):
        try:
            return Wire(port, client_name)
        except AssertionError:
            continue
    raise AssertionError("the client-name was never free")


def test_a_topic_reaches_all_and_a_call_is_answered(port: int) -> None:
    """§2.2.6: publish and subscribe, and remote procedure call, all over one port."""
    one, other, service = Wire(port), Wire(port), Wire(port)
    for wire in (one, other):
        wire.send(c.ChannelOpen(1), c.HandleOpen(1, 1, 2, consumer=True, dest_name="news.eu"))
        wire.send(c.HandleConsume(1, 5, 10))
        assert wire.read() == c.HandleReply(1, 5, 200)
    service.send(c.ChannelOpen(1), c.HandleOpen(1, 1, 1, consumer=True, dest_name="orders.clock"))
    service.send(c.HandleConsume(1, 5, 10), c.HandleOpen(1, 2, 1, producer=True))
    assert service.read() == c.HandleReply(1, 5, 200)
    octets = message(b"news")
    service.send(c.HandleOpen(1, 3, 2, producer=True, dest_name="news."))
    service.send((c.HandleSend(3, 0, len(octets), dest_name="eu"), octets))
    for wire in (one, other):
        notify, found = wire.read_message()
        assert (notify.dest_name, found) == ("news.eu", octets)
        wire.send(c.ChannelAck(1, 0, notify.message_nbr))
    call = message(b"what time is it")
    one.send(c.HandleOpen(1, 2, 3, dest_name="orders.clock"))
    one.send((c.HandleSend(2, 0, len(call)), call))
    _, asked = service.read_message()
    at = asked.index(b"x-amqp-reply-to") + len(b"x-amqp-reply-to") + 1
    size = int.from_bytes(asked[at : at + 2], "big")
    where = asked[at + 2 : at + 2 + size].decode()
    answer = message(b"noon")
    service.send((c.HandleSend(2, 0, len(answer), dest_name=where), answer))
    notify, found = one.read_message()
    assert (notify.handle_id, found) == (2, answer)
