"""Outgoing messages, fragment by fragment (RFC 006 §3.4.2-3, §3.5.13-14).

Theory of operation. A message and its head are one block, split where a fragment is full. On a
restartable channel a message of two or more fragments is announced by HANDLE PREPARE, which carries
its beginning; the part that the peer has, by its HANDLE READY, is not sent again. Since READY names
a handle and no message, one message is announced at a time, and later messages of the channel wait:
messages of a channel stay in order. A stream occupies the channel as long as it flows (§3.5.3.1):
later messages wait likewise.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from router.wire.fast import commands as c
from router.wire.fast.area import content_hash
from router.wire.fast.framing import frame
from router.wire.fast.reply import PeerError, Reply


class Parcel(Protocol):
    """An outgoing message."""

    @property
    def flows(self) -> bool:
        """Whether it has no known end: it sends itself, and frees the line when it is over."""

    @property
    def handle(self) -> int:
        """The handle by which it is sent."""

    @property
    def head(self) -> bytes:
        """The message's head."""

    @property
    def body(self) -> bytes:
        """The message's body."""

    def begin(self) -> bool:
        """Called once before the first frame; False: it is no longer to be sent."""

    def frame(self, size: int, partial: bool, recovery: bool) -> bytes:
        """Encodes the frame of the command before a fragment of ``size`` octets."""


class Line:
    """The outgoing messages of one channel.

    Attributes:
        is_restartable: the channel was opened restartable.
        limit: octets of the largest fragment that the peer accepts.
        octets: of the waiting bodies.
    """

    def __init__(
        self, output: Callable[[bytes], None], limit: int, *, is_restartable: bool
    ) -> None:
        self.is_restartable = is_restartable
        self.limit = limit
        self.octets = 0
        self._output = output
        self._waiting: deque[Parcel] = deque()
        self._announced: Parcel | None = None

    def send(self, parcel: Parcel) -> None:
        """Sends a message, or queues it."""
        if self._announced is not None or self._waiting:
            self._waiting.append(parcel)
            self.octets += len(parcel.body)
        else:
            self._start(parcel)

    def _start(self, parcel: Parcel) -> None:
        if parcel.flows:
            self._announced = parcel
            parcel.begin()
            return
        head, body = parcel.head, parcel.body
        size = len(head) + len(body)
        if size <= self.limit:
            if parcel.begin():
                self._output(b"".join((parcel.frame(size, False, False), head, body)))
        elif self.is_restartable:
            first = body[: self.limit - len(head)]
            size = len(head) + len(first)
            prepare = c.HandlePrepare(parcel.handle, size, content_hash(body))
            self._announced = parcel
            self.octets += len(body)
            self._output(b"".join((frame(prepare), head, first)))
        elif parcel.begin():
            first = body[: self.limit - len(head)]
            self._output(b"".join((parcel.frame(self.limit, True, False), head, first)))
            self._rest(parcel, len(first), recovery=False)

    def _rest(self, parcel: Parcel, start: int, *, recovery: bool) -> None:
        """Sends the body from an offset on."""
        body, limit = parcel.body, self.limit
        while True:
            chunk = body[start : start + limit]
            start += limit
            partial = start < len(body)
            self._output(parcel.frame(len(chunk), partial, recovery) + chunk)
            if not partial:
                return

    def ready(self, handle: int, size: int) -> None:
        """Handles HANDLE READY: continues after the peer's part of the message.

        Raises:
            PeerError: nothing was announced there, or not so much.
        """
        parcel = self._announced
        if parcel is None or parcel.handle != handle or parcel.flows:
            raise PeerError(Reply.NOT_VALID_NOW, "HANDLE READY where nothing was prepared")
        if size > len(parcel.body):
            text = f"HANDLE READY, message-size: {size} of {len(parcel.body)} octets"
            raise PeerError(Reply.SYNTAX_ERROR, text)
        self._announced = None
        self.octets -= len(parcel.body)
        if parcel.begin():
            self._rest(parcel, size, recovery=True)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._announced is None:
            parcel = self._waiting.popleft()
            self.octets -= len(parcel.body)
            self._start(parcel)

    def write(self, octets: bytes) -> None:
        """Writes octets of a message without a known end."""
        self._output(octets)

    def let_go(self, parcel: Parcel) -> None:
        """Records that a message without a known end is over."""
        if self._announced is parcel:
            self._announced = None
            self._go_on()
        elif parcel in self._waiting:
            self._waiting.remove(parcel)

    def drop(self, handle: int) -> list[Parcel]:
        """Removes the messages of a handle, and returns those that were not begun."""
        dropped = [parcel for parcel in self._waiting if parcel.handle == handle]
        if dropped:
            self._waiting = deque(each for each in self._waiting if each.handle != handle)
        announced = self._announced
        is_announced = announced is not None and announced.handle == handle
        if announced is not None and is_announced:
            dropped.insert(0, announced)
            self._announced = None
        self.octets -= sum(len(parcel.body) for parcel in dropped)
        if is_announced:
            self._go_on()
        return dropped
