"""Messages without a known end, which clients send to peer services (RFC 006 §3.5.3.1).

Theory of operation. A stream is one delivery that is handed on part by part: its first fragment has
the head, whose body-size is 0, and every fragment is a further part of the body. It ends when the
client closes handle or channel, and is aborted when the connection is lost or at fault. Parts are
handed on as sections of AMQP 1.0, each fragment a data section, because a part of a message of this
protocol cannot be translated by itself.

    state      input                       becomes
    WAITING    credit                      FLOWING    arrived parts are handed on
    WAITING    fragment                    WAITING    held
    FLOWING    fragment                    FLOWING    handed on; held while the window is
    any        close in order              ENDED      the delivery's last part, an empty one
    any        connection lost, fault      ENDED      the delivery is aborted
"""

from typing import Final

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.events import DeliveryAborted, DeliveryContinued
from router.model.identity import DeliveryNumber, DeliveryTag
from router.wire.fast.inlet import Inlet
from router.wire.fast.message import body_octets, decode_head, encode_head, head_octets
from router.wire.fast.reply import PeerError, Reply
from router.wire.fast.server_links import ServerLinks
from router.wire.fast.to_sections import to_message
from router.wire.v1_0.sections import encode_message
from router.wire.v1_0.types import encode_binary

_DATA: Final = b"\x00\x53\x75"


def first_part(prefix: bytes, fragment: bytes) -> tuple[bytes, bytes]:
    """Splits a stream's first fragment into sections and the beginning of the body.

    Args:
        prefix: of the payload (``router.wire.fast.message``).
        fragment: head, and perhaps some body.

    Raises:
        PeerError: the head is incomplete, is invalid, or has a size.
    """
    size = head_octets(fragment, 0, len(fragment))
    if size is None:
        raise PeerError(Reply.SYNTAX_ERROR, "a stream's first fragment holds no whole head")
    if body_octets(fragment, 0):
        raise PeerError(Reply.CONTENTS_INVALID, "body-size of a stream is not 0 (§3.5.3)")
    try:
        head = decode_head(fragment, 0, size)[0]
        message = to_message(prefix + encode_head(head, 0))
    except (DecodeError, TranslationError) as error:
        raise PeerError(Reply.SYNTAX_ERROR, f"message head: {error}") from error
    message.data = []
    message.footer = None
    return encode_message(message), fragment[size:]


class Stream:
    """A message without end, under way to the core."""

    def __init__(self, engine: ServerLinks, inlet: Inlet, number: int, head: bytes) -> None:
        self.inlet = inlet
        self._engine = engine
        self._number = DeliveryNumber(number)
        self._head = head
        self._held: list[bytes] = []
        self._is_flowing = False

    @property
    def waits(self) -> bool:
        """Whether arrived parts are still to be handed on."""
        return bool(self._held)

    def push(self, body: bytes) -> None:
        """Handles a fragment's part of the body."""
        self._held.append(body)
        self._engine.hold_octets(len(body))
        self.pump()

    def pump(self) -> None:
        """Hands on arrived parts, if allowed."""
        inlet = self.inlet
        if inlet.reserve is not None or not (self._is_flowing or inlet.credit > 0):
            return
        held, self._held = self._held, []
        self._engine.hold_octets(-sum(len(body) for body in held))
        payload = b"".join(_DATA + encode_binary(body) for body in held if body)
        if not self._is_flowing:
            self._is_flowing = True
            inlet.credit -= 1
            self._engine.runs.receive(
                inlet.link,
                ReceivedDelivery(
                    self._number,
                    DeliveryTag(self._number.to_bytes(8, "big")),
                    self._head + payload,
                    Protocol.AMQP_1_0,
                    settled=True,
                    more=True,
                ),
            )
        elif payload:
            more = DeliveryContinued(inlet.link, self._number, payload, True, settled=True)
            self._engine.runs.add(more)

    def end(self, *, is_orderly: bool) -> None:
        """Ends the delivery, or aborts it."""
        held = b"".join(_DATA + encode_binary(body) for body in self._held if body)
        self._engine.hold_octets(-sum(len(body) for body in self._held))
        self._held = []
        if not self._is_flowing:
            return
        self._is_flowing = False
        link = self.inlet.link
        if is_orderly:
            self._engine.runs.add(DeliveryContinued(link, self._number, held, False, settled=True))
        else:
            self._engine.runs.add(DeliveryAborted(link, self._number))
