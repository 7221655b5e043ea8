"""A channel: methods, contents made of frames, and the close handshake (0-9-1 §2.2.5, §4.2.6).

Theory of operation. What a channel may receive next is a table, ``steps``: a method, or after a
method with content a header, or after a header as many body frames as the body needs. Any other
frame is unexpected and ends the connection (505); a content may not be interrupted by another
method of its channel.

Closing. After our ``close`` everything but ``close`` and ``close-ok`` is discarded, and the channel
number is free only after the peer's ``close-ok``. The peer's ``close`` frees it with our
``close-ok``; if both have closed, ours is answered too.

    OPEN     -> CLOSING   we sent close
    OPEN     -> GONE      peer's close, our close-ok
    CLOSING  -> GONE      peer's close-ok

A channel that waits for the core's answer (``park``) keeps later frames and handles them in order
after the answer: 0-9-1 promises that methods of a channel act in order.
"""

import enum
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias
from typing import Protocol as Interface

from router.wire.asking import Asker
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import MethodCodec, Spec
from router.wire.v0_9_1.content import BASIC_CLASS, HEADER_OCTETS, plain_header
from router.wire.v0_9_1.framing import BODY, HEADER, METHOD
from router.wire.v0_9_1.reply import PeerError, Reply

_CONTENT_HEADER = struct.Struct(">HHQ").unpack_from

MAX_BODY_OCTETS: Final = 1 << 29
"""Largest body that is gathered; a link may accept less."""


End: TypeAlias = PeerError | m.ChannelClose | m.ConnectionClose
"""Why a channel ends: our fault or the peer's close."""


class ChannelPhase(enum.Enum):
    """The states of a channel."""

    OPENING = "opening"  # requested by us
    OPEN = "open"
    CLOSING = "closing"  # its end requested by us
    GONE = "gone"


class Expect(enum.Enum):
    """The next frame that is allowed on an open channel."""

    METHOD = "method"
    HEADER = "header"
    BODY = "body"


MethodHandlers: TypeAlias = Mapping[type, Callable[[Any, Any], None]]
"""Method → its handler (see ``router.wire.machine.Handlers``)."""

ContentHandlers: TypeAlias = Mapping[type, Callable[[Any, Any, bytes, bytes], None]]
"""Method with content → its handler, which gets content header and body."""

FrameSteps: TypeAlias = Mapping[tuple[Expect, int], Callable[[Any, bytes, int, int], None]]
"""Expected part and frame type → the frame's handler."""


class ChannelConnection(Interface):
    """The part of a connection that its channels use."""

    codec: MethodCodec

    def decode_method(self, octets: bytes, start: int, end: int) -> tuple[Spec, Any]:
        """Decodes a method that the peer may send."""

    def record_at(self, octets: bytes, start: int) -> type | None:
        """Returns the type of the method frame with payload at ``start``, without decoding it."""

    def send_method(self, number: int, method: m.Method) -> None:
        """Sends a method on a channel."""

    def flush(self) -> None:
        """Writes the gathered frames."""

    def gather(self, octets: int) -> None:
        """Adds octets of incomplete bodies to the count; negative: subtracts them."""

    def hold_octets(self, octets: int) -> None:
        """Adds octets that cannot be handed on yet to the count; negative: subtracts them."""

    def index_of(self, error: PeerError) -> tuple[int, int]:
        """Returns class and method of a fault, in the numbers of the spoken version."""

    def fault(self, error: PeerError, channel: "Channel") -> None:
        """Ends the channel or connection that a fault concerns."""

    def free_channel(self, channel: "Channel") -> None:
        """Records that a channel's number may be used again."""


class Channel(Asker):
    """One channel of a connection.

    Attributes:
        number: its number, 1 or more.
        phase: see the module.
        expect: what may come next.
        waits: the core's answer must arrive before other frames are handled.
    """

    handlers: ClassVar[MethodHandlers] = {}
    """Methods without content; others are not allowed (503)."""

    content_handlers: ClassVar[ContentHandlers] = {}
    """Methods with content."""

    misplaced: ClassVar[Reply] = Reply.UNEXPECTED_FRAME
    """Reply code for a frame that is not expected."""

    def __init__(
        self, machine: ChannelConnection, number: int, phase: ChannelPhase = ChannelPhase.OPEN
    ) -> None:
        self.machine = machine
        self.number = number
        self.phase = phase
        self.expect = Expect.METHOD
        self._parked: deque[tuple[int, bytes]] = deque()
        self._method: m.Method | None = None
        self._header = b""
        self._body: list[bytes] = []
        self._missing = 0
        self._here = 0

    # --- frames -----------------------------------------------------------------------------------

    def take_frame(self, kind: int, octets: bytes, start: int, end: int) -> None:
        """Handles the payload of a frame, ``octets[start:end]``."""
        if self.waits:
            self._park(kind, octets[start:end])
            return
        if self.phase is ChannelPhase.CLOSING:
            self._take_while_closing(kind, octets, start, end)
            return
        step = self.steps.get((self.expect, kind))
        if step is None:
            raise PeerError(
                self.misplaced,
                f"channel {self.number}: frame of type {kind} where a {self.expect.value}"
                " is expected",
            )
        step(self, octets, start, end)

    def _take_while_closing(self, kind: int, octets: bytes, start: int, end: int) -> None:
        if kind != METHOD:
            return
        record = self.machine.record_at(octets, start)
        if record is m.ChannelCloseOk:
            self.machine.free_channel(self)
        elif record is m.ChannelClose:
            self.send(m.ChannelCloseOk())

    def _take_method(self, octets: bytes, start: int, end: int) -> None:
        spec, method = self.machine.decode_method(octets, start, end)
        try:
            if spec.has_content:
                if spec.record not in self.content_handlers:
                    raise self.unwanted(method)
                self._method = method
                self.expect = Expect.HEADER
            else:
                self.take_method(method)
        except PeerError as error:
            raise self.blame(error, spec) from None

    @staticmethod
    def blame(error: PeerError, spec: Spec) -> PeerError:
        """Adds the handled method to a fault that names none."""
        if error.class_id:
            return error
        return PeerError(error.code, error.text, spec.class_id, spec.method_id)

    def take_method(self, method: m.Method) -> None:
        """Handles a method without content."""
        handler = self.handlers.get(type(method))
        if handler is None:
            raise self.unwanted(method)
        handler(self, method)

    def unwanted(self, method: m.Method) -> PeerError:
        """Describes why a method is not allowed now."""
        return PeerError(
            Reply.COMMAND_INVALID,
            f"{type(method).__name__} is out of place on channel {self.number}",
        )

    # --- content ----------------------------------------------------------------------------------

    def _take_header(self, octets: bytes, start: int, end: int) -> None:
        if end - start < HEADER_OCTETS:
            raise PeerError(Reply.SYNTAX_ERROR, "content header: too short for its property flags")
        class_id, weight, body_octets = _CONTENT_HEADER(octets, start)
        if class_id != BASIC_CLASS or weight != 0:
            raise PeerError(
                Reply.FRAME_ERROR,
                f"content header of class {class_id} and weight {weight} behind a basic method",
            )
        self.check_body(body_octets)
        self._header = plain_header(octets[start:end])
        self._missing = body_octets
        self.expect = Expect.BODY
        if not body_octets:
            self._finish_content()

    def check_body(self, body_octets: int) -> None:
        """Refuses a body that is too large."""
        if body_octets > MAX_BODY_OCTETS:
            raise PeerError(
                Reply.CONTENT_TOO_LARGE,
                f"a body of {body_octets} octets, at most {MAX_BODY_OCTETS} are accepted",
                BASIC_CLASS,
            )

    def _take_body(self, octets: bytes, start: int, end: int) -> None:
        self._missing -= end - start
        if self._missing < 0:
            raise PeerError(
                Reply.UNEXPECTED_FRAME, f"{-self._missing} octets more than the content's body-size"
            )
        self._body.append(octets[start:end])
        if not self._missing:
            self._finish_content()
        else:
            self.count_body(end - start)

    def _finish_content(self) -> None:
        method, header = self._method, self._header
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self.drop_content()
        try:
            self.content_handlers[type(method)](self, method, header, body)
        except PeerError as error:
            raise self.blame(error, self.machine.codec.spec_of(type(method))) from None

    def count_body(self, octets: int) -> None:
        """Counts octets of an incomplete body."""
        self._here += octets
        self.machine.gather(octets)

    def drop_content(self) -> None:
        """Discards an incomplete content."""
        if self._here:
            self.machine.gather(-self._here)
            self._here = 0
        self._method = None
        self._header = b""
        self._body = []
        self._missing = 0
        self.expect = Expect.METHOD

    # --- waiting for the core ---------------------------------------------------------------------

    def _park(self, kind: int, payload: bytes) -> None:
        self._parked.append((kind, payload))
        self.machine.hold_octets(len(payload))

    def resume(self) -> None:
        """Handles the frames received since ``park``, until the channel must wait again."""
        self.waits = False
        parked = self._parked
        while parked and not self.waits and self.phase is not ChannelPhase.GONE:
            kind, payload = parked.popleft()
            self.machine.hold_octets(-len(payload))
            try:
                self.take_frame(kind, payload, 0, len(payload))
            except PeerError as error:
                self.machine.fault(error, self)
        if self.phase is ChannelPhase.GONE:
            self._drop_parked()

    def _drop_parked(self) -> None:
        self.machine.hold_octets(-sum(len(payload) for _, payload in self._parked))
        self._parked.clear()

    # --- output and end ---------------------------------------------------------------------------

    def send(self, method: m.Method) -> None:
        """Sends a method."""
        self.machine.send_method(self.number, method)

    def close(self, error: PeerError) -> None:
        """Closes the channel, for a fault or on our own initiative."""
        self.machine.flush()
        self.drop_content()
        self.ended(error)
        self.phase = ChannelPhase.CLOSING
        self.waits = False
        class_id, method_id = self.machine.index_of(error)
        self.send(
            m.ChannelClose(
                reply_code=error.code,
                reply_text=str(error),
                class_id=class_id,
                method_id=method_id,
            )
        )
        self.resume()

    def take_close(self, close: m.ChannelClose) -> None:
        """Handles the peer's close."""
        self.machine.flush()
        self.ended(close)
        self.send(m.ChannelCloseOk())
        self.machine.free_channel(self)

    def gone(self) -> None:
        """Records that the channel number is free, or the connection over."""
        self.phase = ChannelPhase.GONE
        self.waits = False
        self.drop_content()
        self._drop_parked()

    def ended(self, reason: End | None) -> None:
        """Ends what lives on the channel: links, consumers, transactions.

        Args:
            reason: our fault or the peer's close; None: the connection is gone.
        """

    steps: ClassVar[FrameSteps] = {
        (Expect.METHOD, METHOD): _take_method,
        (Expect.HEADER, HEADER): _take_header,
        (Expect.BODY, BODY): _take_body,
    }
