"""Clients of protocols that confirm acknowledgments, on real sockets: they consume, and commit."""

from collections.abc import Callable
from socket import create_connection
from typing import Any, ClassVar, Final, Self

from router.wire.fast import commands as c
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9r1 import methods as d
from router.wire.v0_10 import records as r
from tests.rules.fast.conftest import FastSocket, body_of
from tests.rules.v0_9r1.conftest import DraftSocket
from tests.support.basic_peer import Content
from tests.support.basic_socket import BasicSocket
from tests.support.peer_0_10 import Line, Transfer

SECONDS: Final = 30.0


class Committing:
    """A consumer of one address.

    Its methods are each protocol's: ``take`` returns the bodies of messages that it waits for,
    ``commit`` acknowledges all that were taken, and asks for a confirmation, and ``is_confirmed``
    returns whether it comes in time. A confirmation of a failure, and the end of the connection,
    are none.
    """

    def __init__(self, port: int, address: str) -> None:
        raise NotImplementedError

    def begin(self, prefetch: int) -> Self:
        """Consumes."""
        raise NotImplementedError

    def take(self, count: int) -> list[bytes]:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def is_confirmed(self, seconds: float = SECONDS) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Basic(Committing):
    """In a transaction, on the socket of a version of 0-9."""

    kind: type[BasicSocket] = BasicSocket

    def __init__(self, port: int, address: str) -> None:
        self.client = self.kind(port).open(1)
        self.address = address
        self._early: list[Content] = []
        self._last = 0

    def begin(self, prefetch: int) -> Self:
        self.client.ask(m.TxSelect())
        self.client.ask(m.BasicQos(0, prefetch, False))
        self.client.ask(m.BasicConsume(queue=self.address))
        return self

    def take(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            answer = self._early.pop(0) if self._early else self.client.take(SECONDS)
            if isinstance(answer, Content) and isinstance(
                answer.method, m.BasicDeliver | d.BasicDeliver
            ):
                self._last = answer.method.delivery_tag
                found.append(answer.body)
        return found

    def commit(self) -> None:
        self.client.send(1, m.BasicAck(self._last, multiple=True), m.TxCommit())

    def is_confirmed(self, seconds: float = SECONDS) -> bool:
        try:
            while True:
                answer = self.client.take(seconds)
                if not isinstance(answer, Content):
                    return isinstance(answer, m.TxCommitOk)
                self._early.append(answer)
        except AssertionError:
            return False

    def close(self) -> None:
        self.client.socket.close()


class _Draft(_Basic):
    kind = DraftSocket

    def begin(self, prefetch: int) -> Self:
        self.client.ask(m.TxSelect())
        self.client.ask(d.BasicConsume(queue=self.address, prefetch_count=prefetch))
        return self


class _New(Committing):
    """A session of 0-10, without transactions: a command is complete."""

    def __init__(self, port: int, address: str) -> None:
        self.socket = create_connection(("127.0.0.1", port), SECONDS)
        self.line = Line(self.socket)
        self.line.open()
        self.address = address
        self.last = -1
        self.commands = 0
        self._accepted = 0

    def begin(self, prefetch: int) -> Self:
        self.line.control(r.SessionAttach(b"confirmed"))
        self.line.await_(r.SessionAttached)
        self.line.control(r.SessionCommandPoint(0, 0))
        self.prepare()
        self.command(
            r.MessageSubscribe(queue=self.address, destination="d", accept_mode=0, acquire_mode=0),
            r.MessageFlow("d", 1, None),
            r.MessageFlow("d", 0, 100 * prefetch),  # as it does not complete transfers
        )
        return self

    def prepare(self) -> None:
        """Does what has to be done before it subscribes."""

    def command(self, *commands: r.Command) -> None:
        self.line.command(*commands, sync=True)
        self.commands += len(commands)

    def take(self, count: int) -> list[bytes]:
        self.last += count
        return [self.line.await_(Transfer).body for _ in range(count)]

    def commit(self) -> None:
        accept = r.MessageAccept(((self._accepted, self.last),))
        self._accepted = self.last + 1
        self.command(accept, *self.ending())

    def ending(self) -> tuple[r.Command, ...]:
        """Commands behind the accept."""
        return ()

    def is_confirmed(self, seconds: float = SECONDS) -> bool:
        self.socket.settimeout(seconds)
        try:
            while True:
                done = self.line.await_(r.SessionCompleted).commands or ()
                if any(first <= self.commands - 1 <= last for first, last in done):
                    return True
        except (OSError, EOFError):
            return False
        finally:
            self.socket.settimeout(SECONDS)

    def close(self) -> None:
        self.socket.close()


class _NewTransaction(_New):
    def prepare(self) -> None:
        self.command(r.TxSelect())

    def ending(self) -> tuple[r.Command, ...]:
        return (r.TxCommit(),)


class _Fast(Committing):
    """A channel of AMQP/Fast, without transactions: CHANNEL ACK is confirmed."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, port: int, address: str) -> None:
        self.client = FastSocket(port).open()
        self.client.send(c.ChannelOpen(2, **self.options))
        handle = c.HandleOpen(2, 1, 1, dest_name=address, consumer=True)
        self.client.send(handle)
        self._early: list[tuple[Any, bytes]] = []
        self._last = 0
        self._tag = 0

    def begin(self, prefetch: int) -> Self:
        self.client.send(c.HandleConsume(1, 0, prefetch))
        return self

    def take(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            answer = self._early.pop(0) if self._early else self.client.take(SECONDS)
            if isinstance(answer, tuple) and isinstance(answer[0], c.HandleNotify):
                self._last = answer[0].message_nbr
                found.append(body_of(answer[1]))
        return found

    def commit(self) -> None:
        self._tag += 1
        self.client.send(*self.ending(self._tag, self._last))

    def ending(self, tag: int, last: int) -> tuple[c.Command, ...]:
        """Commands that acknowledge, the last of them to be confirmed."""
        return (c.ChannelAck(2, tag, last),)

    def is_confirmed(self, seconds: float = SECONDS) -> bool:
        try:
            while True:
                answer = self.client.take(seconds)
                if isinstance(answer, c.ChannelReply) and answer.confirm_tag == self._tag:
                    return answer.reply_code == 200
                if isinstance(answer, tuple):
                    self._early.append(answer)
        except AssertionError:
            return False

    def close(self) -> None:
        self.client.socket.close()


class _FastTransaction(_Fast):
    options: ClassVar[dict[str, Any]] = {"transacted": True}

    def ending(self, tag: int, last: int) -> tuple[c.Command, ...]:
        return (c.ChannelAck(2, 0, last), c.ChannelCommit(2, tag))


PROTOCOLS: Final[dict[str, Callable[[int, str], Committing]]] = {
    "0-9-1": _Basic,
    "draft": _Draft,
    "0-10": _New,
    "0-10 tx": _NewTransaction,
    "fast": _Fast,
    "fast tx": _FastTransaction,
}
