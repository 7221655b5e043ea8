"""A client that is gone, though not all that it sent has been read: its name is free again."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from router.wire.fast import commands as c
from router.wire.fast.message import Head, encode_head
from tests.service.test_parts_fast import CONFIG, Sender
from tests.support.ports import free_port
from tests.support.running import running_router

SECONDS = 20.0
COUNT = 100
BODY = bytes(43_000)
"""A little more than the engine holds for want of a receiver, all together; the end of the stream
is known as soon as the system has all of the rest."""


def come_back(port: int) -> Sender:
    """Dials until it is not refused with 320, as it is while the router is still reading."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            return Sender(port)
        except AssertionError:
            assert time.monotonic() < until, "the name is in use"
            time.sleep(0.1)


def test_a_client_of_fast_comes_back_under_its_name_and_all_that_it_sent_arrives(
    tmp_path: Path,
) -> None:
    port = free_port()
    config = CONFIG.format(port=port).replace("workers: 2", "workers: 1")
    with running_router(config, tmp_path):
        first = Sender(port)
        first.say(c.ChannelOpen(1))
        first.say(c.HandleOpen(1, 1, 1, producer=True, dest_name="files"))
        for number in range(COUNT):
            octets = encode_head(Head(identifier=str(number)), len(BODY)) + BODY
            first.say(c.HandleSend(1, 0, len(octets)), octets)
        first.socket.shutdown(socket.SHUT_WR)
        again = come_back(port)
        receiver = subprocess.run(
            [
                *(sys.executable, "-m", "router", "receive", f"amqp://127.0.0.1:{port}"),
                *("files", "--count", str(COUNT), "--json-lines", "--wait", "60"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = [json.loads(line) for line in receiver.stdout.splitlines()]
        assert len(found) == COUNT
        again.close()
        first.close()
