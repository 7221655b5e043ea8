"""A restartable transfer of AMQP/Fast goes on at whichever worker its client comes back to."""

import hashlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from router.wire.fast import commands as c
from router.wire.fast.commands import decode_command
from router.wire.fast.framing import START, frame
from router.wire.fast.message import Head, encode_head
from router.wire.fast.reply import Reply
from tests.support.durable import worker_of
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

CONFIG = """\
router: {{id: parts, workers: 2, admin: off, state: state}}
listeners: [{{bind: 127.0.0.1:{port}}}]
routes: [{{address: files}}]
"""

SECONDS = 60.0

BODY = bytes(range(256)) * 4000
HEAD = encode_head(Head(identifier="large"), len(BODY))
HASH = hashlib.sha1(BODY).hexdigest()
CHUNK = 32_000


class Sender:
    """A client with one restartable channel and a handle."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self.socket.makefile("rb")
        self.socket.sendall(START)
        self.hear(c.ConnectionChallenge)
        self.say(c.ConnectionResponse("ANONYMOUS"))
        self.say(c.ConnectionTune(65536, 10, 100, 0))
        self.say(c.ConnectionOpen(1, "/", "uploader"))
        self.hear(c.ConnectionReply)

    def say(self, command: c.Command, fragment: bytes = b"") -> None:
        self.socket.sendall(frame(command) + fragment)

    def hear(self, kind: type) -> Any:
        """Waits for a command, past others."""
        while True:
            size = int.from_bytes(self._read(2), "big")
            octets = self._read(size)
            found = decode_command(octets, 0, size - 1)
            if isinstance(found, kind):
                return found

    def _read(self, count: int) -> bytes:
        found = self._file.read(count)
        assert len(found) == count, "the connection has ended"
        return found

    def prepare(self) -> int:
        """Announces the file; returns how much of it the router has."""
        self.say(c.ChannelOpen(1, 2, restartable=True))
        self.say(c.HandleOpen(1, 1, 1, producer=True, dest_name="files"))
        self.say(c.HandlePrepare(1, len(HEAD), HASH), HEAD)
        size: int = self.hear(c.HandleReady).message_size
        return size

    def send(self, start: int, stop: int, tag: int = 0) -> None:
        while start < stop:
            chunk = BODY[start : min(start + CHUNK, stop)]
            start += len(chunk)
            partial = start < len(BODY)
            self.say(c.HandleSend(1, tag, len(chunk), partial=partial, recovery=True), chunk)

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def come(router: RunningRouter, port: int, *, but: int | None = None) -> tuple[Sender, int]:
    """Dials until another worker than that one answers."""
    held: list[Sender] = []
    try:
        while True:
            sender = Sender(port)
            worker = worker_of(router, sender.socket)
            if worker != but:
                return sender, worker
            held.append(sender)
    finally:
        for each in held:
            each.close()


def test_an_upload_goes_on_at_another_worker(tmp_path: Path) -> None:
    port = free_port()
    with running_router(CONFIG.format(port=port), tmp_path) as router:
        receiver = subprocess.Popen(
            [
                *(sys.executable, "-m", "router", "receive", f"amqp://127.0.0.1:{port}"),
                *("files", "--count", "1", "--json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        first, worker = come(router, port)
        assert first.prepare() == 0
        half = len(BODY) // 2
        first.send(0, half)
        first.close()
        router.wait_for('"event": "connection.closed"', SECONDS)
        second, other = come(router, port, but=worker)
        assert other != worker
        assert second.prepare() == half
        second.send(half, len(BODY), tag=9)
        reply = second.hear(c.HandleReply)
        assert (reply.confirm_tag, reply.reply_code) == (9, Reply.OK)
        told, _ = receiver.communicate(timeout=SECONDS)
        assert receiver.returncode == 0
        assert json.loads(told.splitlines()[-1])["received"] == 1
        second.close()
