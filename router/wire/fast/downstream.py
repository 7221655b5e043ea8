"""Answers without a known end, which are sent to a peer's handle as streams (RFC 006 §3.5.3.1).

Theory of operation. A message's head has the body's size, so a message that is incomplete cannot be
begun; only a stream has no size, and only peer services have streams. So the core learns that a
peer's handle accepts deliveries in parts as soon as its client streams by it; from then on an
incomplete delivery is sent part by part::

    state      input                         becomes
    HEAD       sections before the body      HEAD       kept, until the body begins
    HEAD       first data section            FLOWING    the channel's line; then HANDLE NOTIFY
    FLOWING    octets of data                FLOWING    HANDLE NOTIFY, as large as fragments may be
    FLOWING    the delivery's last part      ENDED      accepted; HANDLE CLOSE, which ends a stream
    any        the delivery is aborted       ENDED      HANDLE CLOSE 541
    any        another body than data        ENDED      refused, if nothing has been sent yet; else
                                                        aborted
    any        the client closes             ENDED      modified, delivery-failed

The octets are those of AMQP 1.0's sections, cut anywhere: ``Body`` finds the data in them.
"""

import enum
import struct
from typing import Final
from typing import Protocol as Interface

import attrs

from router.errors import DecodeError, TranslationError
from router.model.delivery import OutgoingDelivery
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, DeliveryState
from router.wire.fast import commands as c
from router.wire.fast.consuming import Outlet
from router.wire.fast.framing import frame
from router.wire.fast.line import Line
from router.wire.fast.outgoing import Ready, refusal
from router.wire.fast.reply import PeerError, Reply
from router.wire.fast.server_links import ServerLinks

MAX_HEAD_OCTETS: Final = 1 << 20
"""Most octets kept of a message before its body; a head that fits a fragment is smaller."""

_DATA: Final = 0x75
_FOOTER: Final = 0x78
_FIRST: Final = 0x70
_U32: Final = struct.Struct(">I").unpack_from
_U64: Final = struct.Struct(">Q").unpack_from

_SMALL, _LARGE = 1, 4
_WIDTHS: Final = {
    **dict.fromkeys((0xA0, 0xC0, 0xC1), _SMALL),
    **dict.fromkeys((0xB0, 0xD0, 0xD1), _LARGE),
}
"""Constructor → size of the size field after it."""
_EMPTY_LIST: Final = 0x45


class Body:
    """Finds the data in a message whose sections arrive in pieces (§3.2).

    Attributes:
        head: the sections before the body.
        has_begun: the body has begun.
    """

    def __init__(self) -> None:
        self.head = b""
        self.has_begun = False
        self._rest = b""
        self._missing = 0
        self._is_over = False

    def feed(self, octets: bytes) -> bytes:
        """Handles a piece; returns the data in it.

        Raises:
            DecodeError: it is not a message, or its body is not data.
        """
        rest = self._rest + octets if self._rest else octets
        found = []
        at = 0
        while not self._is_over:
            if self._missing:
                piece = rest[at : at + self._missing]
                self._missing -= len(piece)
                at += len(piece)
                found.append(piece)
            after = None if self._missing else self._section(rest, at)
            if after is None:
                break
            at = after
        self._rest = b"" if self._is_over else rest[at:]
        if len(self.head) + len(self._rest) > MAX_HEAD_OCTETS:
            raise DecodeError(0, "the sections before the body are too large")
        return found[0] if len(found) == 1 else b"".join(found)

    def _section(self, octets: bytes, at: int) -> int | None:
        """Skips a section, or returns the offset of the data in it; None: it is incomplete."""
        here = octets[at : at + 16]
        if len(here) < 4 or (here[1] == 0x80 and len(here) < 11):
            return None
        code, value_at = (here[2], 3) if here[1] != 0x80 else (_U64(here, 2)[0], 10)
        if here[0] or here[1] not in (0x53, 0x80):
            raise DecodeError(at, "no descriptor of a section")
        kind = here[value_at]
        if code == _FOOTER:
            self._is_over = True
            return at
        if not (_FIRST <= code <= _DATA):
            raise DecodeError(at, "a stream's body is data")
        width = _WIDTHS.get(kind, 0)
        if kind != _EMPTY_LIST and not width:
            raise DecodeError(at, f"a section's value with constructor {kind:#04x}")
        start = value_at + 1 + width
        if len(here) < start:
            return None
        size = 0
        if width:
            size = here[value_at + 1] if width == _SMALL else _U32(here, value_at + 1)[0]
        if code == _DATA:
            self.has_begun = True
            self._missing = size
            return at + start
        end = at + start + size
        if end > len(octets):
            return None
        self.head += octets[at:end]
        return end


class AnswerState(enum.Enum):
    """The state of an answer (see the module)."""

    HEAD = "head"
    FLOWING = "flowing"
    ENDED = "ended"


class StreamOwner(Interface):
    """Sends streams on a channel (``receiving``)."""

    line: Line
    engine: ServerLinks

    def number(self) -> int:
        """Returns the number of the next message."""


@attrs.define(eq=False)
class Downstream:
    """One answer without a known end; a ``Parcel`` that occupies its channel's line while it flows.

    Attributes:
        message_nbr: assigned when it begins.
    """

    receiving: StreamOwner
    outlet: Outlet
    delivery: OutgoingDelivery
    message_nbr: int = 0
    state: AnswerState = AnswerState.HEAD
    _body: Body = attrs.field(factory=Body, init=False)
    _ready: Ready | None = attrs.field(default=None, init=False)
    _held: list[bytes] = attrs.field(factory=list, init=False)
    _is_complete: bool = attrs.field(default=False, init=False)
    _has_line: bool = attrs.field(default=False, init=False)

    @property
    def handle(self) -> int:
        """The handle by which it is sent."""
        return self.outlet.handle.id

    @property
    def flows(self) -> bool:
        """True: it has no known end."""
        return True

    @property
    def head(self) -> bytes:
        """Empty: the line does not split it."""
        return b""

    @property
    def body(self) -> bytes:
        """Empty: the line does not split it."""
        return b""

    def frame(self, size: int, partial: bool, recovery: bool) -> bytes:
        """Encodes the frame of HANDLE NOTIFY before a fragment of ``size`` octets."""
        return frame(
            c.HandleNotify(
                self.handle,
                self.message_nbr & 0xFFFF_FFFF,
                size,
                partial=partial,
                delivered=True,
                redelivered=self._ready is not None and self._ready.redelivered,
                streaming=True,
            )
        )

    def push(self, payload: bytes, more: bool) -> None:
        """Handles a part of the delivery."""
        if self.state is AnswerState.ENDED:
            return
        try:
            data = self._body.feed(payload)
            if self._ready is None and (self._body.has_begun or not more):
                self._ready = self._make_head()
        except (DecodeError, TranslationError) as error:
            self._refuse(error)
            return
        if data:
            self._held.append(data)
            self.receiving.engine.parked_octets += len(data)
        self._is_complete = not more
        if self._ready is None:
            return
        if self.state is AnswerState.HEAD:
            self.state = AnswerState.FLOWING
            self.receiving.line.send(self)
        elif self._has_line:
            self._flow()

    def _make_head(self) -> Ready:
        whole = attrs.evolve(self.delivery, payload=self._body.head, more=False)
        return self.receiving.engine.outgoing.ready(whole)

    def begin(self) -> bool:
        """Handles its turn in the channel's line."""
        if self.state is not AnswerState.FLOWING:
            return False
        self._has_line = True
        self.message_nbr = self.receiving.number()
        self._flow()
        return self.state is AnswerState.FLOWING

    def _flow(self) -> None:
        """Sends the data that has arrived."""
        line = self.receiving.line
        held = self._take_held()
        ready = self._ready
        assert ready is not None
        if ready.head:
            held, ready.head = ready.head + held, b""
        for start in range(0, len(held), line.limit):
            piece = held[start : start + line.limit]
            line.write(self.frame(len(piece), True, False) + piece)
        if self._is_complete:
            self._settle(ACCEPTED)
            self._close(PeerError(Reply.OK, ""))

    def _take_held(self) -> bytes:
        held, self._held = b"".join(self._held), []
        self.receiving.engine.parked_octets -= len(held)
        return held

    def _refuse(self, error: DecodeError | TranslationError) -> None:
        if self._has_line:
            self._settle(MODIFIED_FAILED)
            self._close(PeerError(Reply.INTERNAL_ERROR, "the stream cannot go on"))
            return
        if isinstance(error, DecodeError):
            error = TranslationError("body", error.rule)
        self._settle(refusal(error))
        self.ended()

    def abort(self) -> None:
        """Records that the sender has aborted the delivery."""
        if self.state is AnswerState.ENDED:
            return
        has_line = self._has_line
        self.ended()
        if has_line:
            self._close(PeerError(Reply.INTERNAL_ERROR, "the stream was aborted"))

    def given_up(self) -> None:
        """Records that the client refuses the rest of it."""
        if self.state is not AnswerState.ENDED:
            self._settle(MODIFIED_FAILED)
            self.ended()

    def _settle(self, state: DeliveryState) -> None:
        delivery, outlet = self.delivery, self.outlet
        if not delivery.settled and outlet.is_attached:
            self.receiving.engine.runs.update(outlet.link, [delivery.number], state, True)

    def _close(self, reason: PeerError) -> None:
        """Ends the stream, as either side does, by closing its handle."""
        self.ended()
        handle = self.outlet.handle
        if handle.is_open:
            handle.close(reason)

    def ended(self) -> None:
        """Records that nothing more of it is sent."""
        if self.state is not AnswerState.ENDED:
            self.state = AnswerState.ENDED
            self.outlet.unacknowledged -= 1
            self.outlet.stream = None
            self._take_held()
            self.receiving.line.let_go(self)
