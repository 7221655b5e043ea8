"""A client of 0-10 whose sessions outlive its connections, and that chooses the worker it comes to.

It does what the specification asks of both sides (0-10, session): it numbers its commands and keeps
them, counts what it gets, and after a loss both sides say what they expect and go on from there.
"""

import itertools
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from router.service.errands import LOAD_SECONDS
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.message import write_header
from tests.support.peer_0_10 import Line, Transfer
from tests.support.running import RunningRouter
from tests.support.workers import processes

SECONDS = 60.0


def worker_of(router: RunningRouter, sock: socket.socket) -> int:
    """The worker that has a connection, as the log tells it."""
    host, port = sock.getsockname()[:2]
    line = router.wait_for(f'"address": "{host}:{port}"', SECONDS)
    return int(json.loads(line)["worker"])


def dial(router: RunningRouter, port: int, *, but: int | None = None) -> tuple[Line, int]:
    """Opens a connection, and says which worker it has come to.

    Args:
        router: whom.
        port: of its listener.
        but: a worker that it is not to come to; connections there are held until there is another.
    """
    held: list[socket.socket] = []
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            if set(processes(router)) <= {but}:
                time.sleep(0.05)  # the other one is being started
                continue
            sock = socket.create_connection(("127.0.0.1", port), SECONDS)
            line = Line(sock)
            try:
                line.open()
            except (OSError, EOFError):  # it was given to a worker that has just been killed
                sock.close()
                continue
            worker = worker_of(router, sock)
            if worker != but:
                return line, worker
            held.append(sock)
            time.sleep(LOAD_SECONDS)  # by then it is known where there are fewer
    finally:
        for each in held:
            each.close()
    raise AssertionError(f"every connection comes to worker {but}")


class Durable:
    """One session, over as many connections as it takes.

    Attributes:
        name: of the session.
        worker: that has its connection, or had it last.
        bodies: of messages that have come, in order.
        accepted: which of our transfers were accepted, counted from 0.
        given_back: how many were released, because nobody was there; they are sent again.
        began_anew: how often the router knew nothing of the session.
    """

    def __init__(self, router: RunningRouter, port: int, name: bytes) -> None:
        self.name = name
        self.worker: int | None = None
        self.bodies: list[bytes] = []
        self.accepted: list[int] = []
        self.given_back = 0
        self.began_anew = 0
        self.line: Line | None = None
        self._router = router
        self._port = port
        self._sent: list[bytes] = []
        self._serials: list[int] = []
        self._count = itertools.count()
        self._speaks = False
        self._next_in: int | None = None
        self._next = 0
        self._acknowledged = 0

    def come(self, *, but: int | None = None) -> None:
        """Dials, and goes on with the session, at another worker than the last time.

        Args:
            but: another worker than this one, instead.
        """
        self.line, self.worker = dial(
            self._router, self._port, but=self.worker if but is None else but
        )
        self.line.control(r.SessionAttach(self.name, True))
        self.line.await_(r.SessionAttached)
        self.line.control(r.SessionRequestTimeout(120))
        self.line.await_(r.SessionTimeout)
        self.line.control(r.SessionFlush(expected=True))
        expected = self._await_expected()
        if expected is None:
            self.began_anew += 1
            self._begin_anew()
            expected = 0
        self.line.control(r.SessionCommandPoint(expected, 0))
        for octets in self._sent[expected:]:
            self.line.send(octets)
        self._speaks = True

    def _begin_anew(self) -> None:
        """The router knows nothing, so what it has not accepted is sent again, as something new."""
        self._next_in, self._acknowledged = None, 0
        left = set(self._serials) - set(self.accepted)
        open_ = [at for at, serial in enumerate(self._serials) if serial in left]
        self._sent = [self._sent[at] for at in open_]
        self._serials = [self._serials[at] for at in open_]

    def _await_expected(self) -> int | None:
        while True:
            found = self._read()
            if isinstance(found, r.SessionExpected):
                return found.commands[0][0] if found.commands else None

    def _read(self) -> Any:
        assert self.line is not None
        found = self.line.next()
        match found:
            case r.SessionFlush(expected=True):
                at = self._next_in
                self.line.control(r.SessionExpected(() if at is None else ((at, at),)))
            case r.SessionCommandPoint(command_id=number):
                assert number is not None
                self._next = number
            case Transfer() | r.MessageAccept() | r.MessageRelease() | r.ExecutionResult():
                assert self._next_in is None or self._next == self._next_in, "a hole, or a repeat"
                self._next += 1
                self._next_in = self._next
                self._take(found)
        return found

    def _take(self, found: Any) -> None:
        if isinstance(found, Transfer):
            self.bodies.append(found.body)
        elif isinstance(found, r.MessageAccept):
            for first, last in found.transfers or ():
                self.accepted += self._serials[first : last + 1]
        elif isinstance(found, r.MessageRelease):
            for first, last in found.transfers or ():
                for number in range(first, last + 1):
                    self.given_back += 1
                    self._send(self._sent[number], self._serials[number])

    def command(self, *commands: r.Command) -> None:
        """Sends commands."""
        for each in commands:
            self._send(assembly(COMMAND, 1, encode_command(each), 65535))

    def transfer(self, key: str, *bodies: bytes) -> None:
        """Transfers messages to the default exchange, accept-mode explicit; each has its id."""
        head = encode_command(r.MessageTransfer("", 0, 0))
        for body in bodies:
            named = r.MessageProperties(message_id=uuid.uuid5(uuid.NAMESPACE_OID, body.hex()))
            header = write_header(r.DeliveryProperties(routing_key=key), named)
            self._send(assembly(COMMAND, 1, head, 65535, (header, body)), next(self._count))

    def _send(self, octets: bytes, serial: int = -1) -> None:
        self._sent.append(octets)
        self._serials.append(serial)
        if self.line is not None and self._speaks:
            with suppress(OSError):  # it is sent when we have come back
                self.line.send(octets)

    def subscribe(self, address: str, window: int) -> None:
        """Subscribes with credit for so many messages, renewed as they are completed."""
        self.command(
            r.MessageSubscribe(queue=address, destination="d", accept_mode=0, acquire_mode=0),
            r.MessageFlow("d", 1, None),
            r.MessageFlow("d", 0, window),
        )

    def await_bodies(self, count: int) -> None:
        """Waits until so many messages have come in all."""
        while len(self.bodies) < count:
            self._read()

    def receive(self, count: int) -> None:
        """Waits until so many messages have come in all, and accepts what it has not so far."""
        self.await_bodies(count)
        self.acknowledge()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Accepts whatever comes meanwhile; ends with its connection."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            assert self.line is not None
            self.line.shut()
            thread.join(SECONDS)

    def _serve(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                self._read()
                self.acknowledge()

    def acknowledge(self) -> None:
        """Accepts and completes all that has come."""
        assert self.line is not None
        if self._next_in is None or self._acknowledged == self._next_in:
            return
        last = self._next_in - 1
        self.command(r.MessageAccept(((self._acknowledged, last),)))
        self.line.control(r.SessionCompleted(((0, last),)))
        self._acknowledged = self._next_in

    def hear(self, count: int) -> None:
        """Waits until so many transfers of ours have been accepted in all."""
        while len(self.accepted) < count:
            self._read()

    def cut(self, *, amid: Sequence[bytes] = ()) -> None:
        """Loses the connection, perhaps in the middle of what it sends."""
        assert self.line is not None
        for octets in amid:
            self.line.send(octets)
        self.line.close()
        self.line, self._speaks = None, False
