"""One router of two workers, which the rules of AMQP/Fast are tried against, and its client."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from router.wire.fast import commands as c
from router.wire.fast.framing import LONG_SIZE, START, frame
from tests.support.answer_socket import QUIET_SECONDS, SECONDS, AnswerSocket
from tests.support.fast_peer import Received, message
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: fast, admin: off, workers: 2}}
listeners: [{{bind: '127.0.0.1:{port}'}}]
routes:
  - address: q.#
  - {{address: t.#, distribution: multicast}}
  - {{address: nobody.#, unroutable: reject}}
  - {{address: q.#, vhost: other}}
"""


class FastSocket(AnswerSocket[Received]):
    """One connection; what it receives are commands, each with its message octets."""

    def login(self, **tune: int) -> Self:
        """Goes as far as CONNECTION TUNE."""
        self.write(START)
        self.take()
        self.send(c.ConnectionResponse("ANONYMOUS"))
        self.take()
        limits = {"frame_max": 65536, "heartbeat": 0} | tune
        return self.send(c.ConnectionTune(limits["frame_max"], 100, 100, limits["heartbeat"]))

    def open(self, *, path: str = "/", name: str = "", **tune: int) -> Self:
        """Goes through the handshake and opens channel 1."""
        self.login(**tune)
        self.send(c.ConnectionOpen(1, path, name))
        self.take()
        return self.send(c.ChannelOpen(1))

    def send(self, *commands: c.Command | tuple[c.Command, bytes]) -> Self:
        """Sends commands in one piece, each with the message octets that belong to it."""
        octets = b""
        for each in commands:
            command, fragment = each if isinstance(each, tuple) else (each, b"")
            octets += frame(command) + fragment
        return self.write(octets)

    def handle(self, number: int, name: str, service: int = 1, **options: Any) -> Self:
        """Opens a handle for everything."""
        options = {"producer": True, "consumer": True, "browser": True, **options}
        return self.send(c.HandleOpen(1, number, service, dest_name=name, **options))

    def post(self, body: bytes, handle: int = 1, tag: int = 0, name: str = "", **head: Any) -> Self:
        """Sends a message in one fragment."""
        octets = message(body, **head)
        return self.send((c.HandleSend(handle, tag, len(octets), dest_name=name), octets))

    def ask(self, command: c.Command) -> Any:
        """Sends a command and takes the next answer."""
        self.send(command)
        return self.take()

    def take(self, seconds: float = SECONDS) -> Any:
        """Takes the next command.

        Raises:
            AssertionError: none came in time, or the server has ended the stream.
        """
        return self.take_next(seconds)

    def rest(self, seconds: float = QUIET_SECONDS) -> list[Received]:
        """Takes all that comes until nothing has come for a while."""
        return self.take_rest(seconds)

    def end(self, seconds: float = SECONDS) -> list[Received]:
        """Waits for the end of the stream; returns what came before."""
        return self.take_end(seconds)

    def bodies(self, count: int) -> list[bytes]:
        """Takes the messages that are waited for, and returns their bodies."""
        found: list[bytes] = []
        while len(found) < count:
            one = self.take()
            if isinstance(one, tuple):
                found.append(body_of(one[1]))
        return found

    def _take_answers(self) -> bool:
        octets = self._octets
        start, size = 2, int.from_bytes(octets[:2], "big")
        if size == LONG_SIZE:
            start, size = 6, int.from_bytes(octets[2:6], "big")
        stop = start + size
        if len(octets) < max(start, 2) or len(octets) < stop:
            return False
        assert octets[stop - 1] == 0xCE
        command = c.decode_command(octets, start, stop - 1)
        if isinstance(command, c.HandleSend | c.HandleNotify | c.HandlePrepare):
            after = stop + command.fragment_size
            if len(octets) < after:
                return False
            self.received.append((command, octets[stop:after]))
            stop = after
        else:
            self.received.append(command)
        self._octets = octets[stop:]
        return True


def body_of(octets: bytes) -> bytes:
    """The body of a message, whose size its head tells."""
    return octets[len(octets) - int.from_bytes(octets[:4], "big") :]


Dial = Callable[[], FastSocket]
"""Connects, and says nothing yet."""


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    with running_router(CONFIG.format(port=found), tmp_path_factory.mktemp("fast")):
        yield found


@pytest.fixture
def dial(port: int) -> Iterator[Dial]:
    """Of two connections one after the other each is at another worker."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(FastSocket(port))
