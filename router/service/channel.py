"""The channel between the supervisor and one of its workers: questions, answers, reports.

Both sides may ask and report at any time, over one Unix stream socket. The octets::

    +----------------+----------------------------------+
    | length, 4      | one JSON array, UTF-8            |
    | big-endian     |                                  |
    +----------------+----------------------------------+

    ["ask", number, name, [argument, ...]]      a question; answers may come in any order
    ["give", number, result]                    its answer
    ["refuse", number, kind, [field, ...]]      its answer is an error, see ``REFUSALS``
    ["tell", name, body]                        a report, which is not answered

Arguments, results and reports are frozen records of plain values, which are serialized by their
types (``errands`` has the list). Nothing that one side sends can make the other run code. Two sides
of different versions detect that they are incompatible.

Sockets are passed over a separate ``SOCK_SEQPACKET`` pair: each packet carries one descriptor
(SCM_RIGHTS) and a short JSON object that states the socket's purpose. A packet arrives whole or not
at all, so no descriptor is taken for another.

The end of the stream means that the other side is gone; ``run`` then returns.
"""

import array
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs
import trio
from cattrs.preconf.json import make_converter

from router.errors import RouterError
from router.routes.match import PatternError
from router.service.control import UnknownRouteError

LONGEST_OCTETS: Final = 1 << 30
"""Largest message; a survey of a hundred thousand routes takes some 100 MB."""

PACKET_OCTETS: Final = 4096
"""Largest JSON object that accompanies a socket."""

BUFFER_OCTETS: Final = 1 << 20

_LENGTH: Final = 4

Result = TypeVar("Result")


@attrs.frozen
class Question(Generic[Result]):
    """A question that one side may ask the other.

    Attributes:
        name: its name on the wire.
        takes: types of its arguments.
        gives: type of its result.
    """

    name: str
    takes: tuple[Any, ...]
    gives: Any


@attrs.frozen
class ChannelError(RouterError):
    """The other side is gone, or its answer is malformed."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class RefusedError(RouterError):
    """The other side refuses, for the reason that it states."""

    reason: str

    def __str__(self) -> str:
        return self.reason


REFUSALS: Final[Mapping[str, type[RouterError]]] = {
    each.__name__: each for each in (UnknownRouteError, PatternError, RefusedError)
}
"""Errors that keep their type over the channel, with text fields; others: ``RefusedError``."""

converter: Final = make_converter()
"""Converts records to plain values and back."""

converter.register_structure_hook(type(None), lambda nothing, kind: None)

Responder = Callable[..., Awaitable[Any]]
Listener = Callable[[Any], None]


@attrs.define(eq=False)
class _Asked:
    answered: trio.Event = attrs.field(factory=trio.Event)
    result: Any = None
    error: RouterError | None = None


@attrs.define(eq=False, kw_only=True)
class Channel:
    """One side of the channel.

    Attributes:
        stream: the socket, connected.
        hears: reports that this side accepts, by name: their type and their handler.
    """

    stream: trio.SocketStream
    hears: Mapping[str, tuple[Any, Listener]] = attrs.field(factory=dict)
    _answers: dict[str, tuple[Question[Any], Responder]] = attrs.field(factory=dict, init=False)
    _asked: dict[int, _Asked] = attrs.field(factory=dict, init=False)
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count, init=False)
    _outbox: trio.MemorySendChannel[bytes] = attrs.field(init=False)
    _outgoing: trio.MemoryReceiveChannel[bytes] = attrs.field(init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._outbox, self._outgoing = trio.open_memory_channel(float("inf"))

    def serve(self, answers: Mapping[Question[Any], Responder]) -> None:
        """Answers these questions from now on; call it before the other side may ask them."""
        self._answers |= {question.name: (question, who) for question, who in answers.items()}

    async def run(self) -> None:
        """Reads and answers messages until the other side is gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                async for message in self._messages():
                    match message:
                        case ["ask", number, name, arguments]:
                            nursery.start_soon(self._answer, number, self._answers[name], arguments)
                        case ["tell", name, body]:
                            kind, listener = self.hears[name]
                            listener(converter.structure(body, kind))
                        case _:
                            self._take_answer(message)
                nursery.cancel_scope.cancel()
        finally:
            self._is_over = True
            for asked in self._asked.values():
                asked.error = ChannelError("it is gone")
                asked.answered.set()
            self.stream.socket.close()

    def close(self) -> None:
        """Closes the channel; ``run`` returns."""
        self.stream.socket.close()

    async def ask(self, question: Question[Result], *arguments: object) -> Result:
        """Asks the other side a question and returns its answer.

        Raises:
            ChannelError: the other side is gone.
            RouterError: the other side refuses.
        """
        if self._is_over:
            raise ChannelError("it is gone")
        number = next(self._numbers)
        asked = self._asked[number] = _Asked()
        taken_apart = [
            converter.unstructure(argument, unstructure_as=kind)
            for argument, kind in zip(arguments, question.takes, strict=True)
        ]
        self._send(["ask", number, question.name, taken_apart])
        try:
            await asked.answered.wait()
        finally:
            del self._asked[number]
        if asked.error is not None:
            raise asked.error
        result: Result = converter.structure(asked.result, question.gives)
        return result

    def tell(self, name: str, body: object) -> None:
        """Sends a report, which arrives unless the other side is gone."""
        self._send(["tell", name, converter.unstructure(body)])

    async def _answer(
        self, number: int, known: tuple[Question[Any], Responder], arguments: list[Any]
    ) -> None:
        question, responder = known
        try:
            put_together = [
                converter.structure(argument, kind)
                for argument, kind in zip(arguments, question.takes, strict=True)
            ]
            result = await responder(*put_together)
        except RouterError as error:
            kind = type(error).__name__
            fields = _fields_of(error) if kind in REFUSALS else [str(error)]
            self._send(["refuse", number, kind, fields])
            return
        self._send(["give", number, converter.unstructure(result, unstructure_as=question.gives)])

    def _take_answer(self, message: list[Any]) -> None:
        asked = self._asked.get(message[1])
        if asked is None:
            return  # the task that asked was cancelled
        match message:
            case ["give", _, result]:
                asked.result = result
            case ["refuse", _, kind, fields]:
                asked.error = REFUSALS.get(kind, RefusedError)(*fields)
            case _:
                asked.error = ChannelError(f"it answers {message[0]!r}")
        asked.answered.set()

    def _send(self, message: list[object]) -> None:
        octets = json.dumps(message, separators=(",", ":")).encode()
        self._outbox.send_nowait(len(octets).to_bytes(_LENGTH, "big") + octets)

    async def _write(self) -> None:
        try:
            async for octets in self._outgoing:
                await self.stream.send_all(octets)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the reader sees the end as well

    async def _messages(self) -> Any:
        buffer = bytearray()
        while True:
            try:
                octets = await self.stream.receive_some(BUFFER_OCTETS)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not octets:
                return
            buffer += octets
            while len(buffer) >= _LENGTH:
                end = _LENGTH + int.from_bytes(buffer[:_LENGTH], "big")
                if end > LONGEST_OCTETS:
                    return
                if len(buffer) < end:
                    break
                yield json.loads(buffer[_LENGTH:end])
                del buffer[:end]


def _fields_of(error: Any) -> list[str]:
    """Returns the fields of an error of ``REFUSALS``, in the order of its constructor."""
    return [str(getattr(error, field.name)) for field in attrs.fields(type(error))]


def send_socket(pair: socket.socket, purpose: Mapping[str, object], sock: socket.socket) -> None:
    """Passes a socket to the other side; it stays open on this side.

    Raises:
        OSError: the other side is gone, or its queue is full (``BlockingIOError``).
    """
    rights = array.array("i", [sock.fileno()])
    pair.sendmsg([json.dumps(purpose).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


async def receive_socket(pair: socket.socket) -> tuple[dict[str, Any], socket.socket] | None:
    """Waits for a socket; returns its purpose and the socket, None when the other side is gone."""
    size = socket.CMSG_SPACE(array.array("i").itemsize)
    while True:
        await trio.lowlevel.wait_readable(pair)
        try:
            octets, ancillary, _, _ = pair.recvmsg(PACKET_OCTETS, size, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            return None
        if not octets:
            return None
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptor = array.array("i", rights)[0]
                return json.loads(octets), socket.socket(fileno=descriptor)
        # the process is out of descriptors: the kernel has dropped and closed the socket
