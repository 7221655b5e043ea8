"""Names that are no text, over real sockets: two workers stay one router, and all is shown."""

import contextlib
import socket
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import trio

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.framing import METHOD, PROTOCOL_HEADER, frame
from router.wire.v1_0.frames import AMQP_HEADER
from router.wire.v1_0.frames import frame as frame_1_0
from router.wire.v1_0.performatives import Open, encode
from tests.support.clients import receiving, sending
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.workers import address_of, lines

pytestmark = pytest.mark.long

FILE = """
router: {{id: under-test, workers: 2, admin: "127.0.0.1:{admin}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: "#"}}]
"""
PAIRS = 6
ODD = "t\udcff"


def client(address: str, name: str, *methods: m.Method) -> tuple[socket.socket, bytes]:
    """A client of 0-9-1 that says all that at once; gives what it is told until it is silent."""
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.settimeout(3)
    start = m.ConnectionStartOk(
        client_properties={"connection_name": name}, response=b"\0guest\0guest"
    )
    opening = (start, m.ConnectionTuneOk(255, 4096, 0), m.ConnectionOpen())
    peer.sendall(PROTOCOL_HEADER)
    peer.sendall(b"".join(frame(METHOD, 0, CODEC.encode(each)) for each in opening))
    peer.sendall(
        b"".join(frame(METHOD, 1, CODEC.encode(each)) for each in (m.ChannelOpen(), *methods))
    )
    told = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while octets := peer.recv(65536):
            told += octets
            if b"SYNTAX_ERROR" in told or CODEC.encode(m.QueueBindOk()) in told:
                break
    return peer, told


BINDING = (
    m.ExchangeDeclare(exchange=ODD, type="topic"),
    m.QueueDeclare(queue="", exclusive=True),
    m.QueueBind(queue="", exchange=ODD, routing_key="k.#"),
)


async def test_names_that_are_no_text_break_nothing_between_workers(tmp_path: Path) -> None:
    admin = free_port()
    with running_router(FILE.format(admin=admin), tmp_path) as router:
        address = address_of(router)
        refused = [client(address, "binder", *BINDING) for _ in range(3)]
        assert all(b"SYNTAX_ERROR - ExchangeDeclare.exchange" in told for _, told in refused)
        peers = [client(address, ODD)[0] for _ in range(4)]
        for number in range(PAIRS):
            bodies = [b"%d" % each for each in range(50)]
            async with (
                receiving(address, f"good.{number}") as sink,
                sending(address, f"good.{number}", bodies) as source,
            ):
                await source.wait_until(partial(lambda it: it.outcomes["Accepted"] == 50, source))
                assert sink.bodies == bodies
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
            assert "t\\\\\\\\xff#" in answer.read().decode()
        for peer in (*peers, *(peer for peer, _ in refused)):
            peer.close()
        assert not lines(router, "connection.failed")
        assert not [line for line in router.log if "Traceback" in line]


async def test_an_open_with_a_long_or_steering_name_is_one_printable_line_of_the_log(
    tmp_path: Path,
) -> None:
    with running_router(FILE.format(admin=free_port()), tmp_path) as router:
        host, _, port = address_of(router).rpartition(":")
        for name in ("\x1b[2J\r\nforged", "x" * 60_000):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(AMQP_HEADER + frame_1_0(0, encode(Open(container_id=name))))
                with trio.fail_after(30):
                    while not any(name[-5:] in line for line in tuple(router.log)):
                        await trio.sleep(0.05)
        opened = [
            line for line in router.log if "connection.opened" in line and "127.0.0.1" in line
        ]
        assert len(opened) == 2
        assert all(line.rstrip("\n").isprintable() and len(line) < 3000 for line in opened)
