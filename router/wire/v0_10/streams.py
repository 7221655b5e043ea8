"""Consumers of streams (0-10 class stream).

Theory of operation. A consumer is a subscription of accept-mode none with infinite credit: it
acknowledges nothing, and sent packets count as accepted. It gets all messages of its queue as
packets, whichever class they were published with. Packets are commands like transfers, so a session
that comes back is sent those again that it has not completed.
"""

from typing import ClassVar
from typing import Protocol as Interface

from router.errors import DecodeError, TranslationError
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.outgoing import Ready
from router.wire.v0_10.queues import Queue, SubscriptionSession
from router.wire.v0_10.reply import ErrorCode, SessionFaultError
from router.wire.v0_10.subscription import MODE_CREDIT, Subscription


class StreamSession(SubscriptionSession, Interface):
    """The session of a stream's consumer."""

    def next_packet(self) -> int:
        """Returns the number of the next packet to the client."""


class StreamConsumer(Subscription):
    """A consumer of a stream; its ``destination`` is its tag."""

    codes: ClassVar[tuple[int, int]] = (o.STREAM_CLASS, 3)
    kind: ClassVar[int] = o.STREAM_CLASS
    session: StreamSession

    def __init__(self, session: StreamSession, queue: Queue, tag: str) -> None:
        super().__init__(session, queue, r.MessageSubscribe(destination=tag, accept_mode=1))
        self.label = label_of(tag)
        self.mode = MODE_CREDIT
        self.messages = self.octets = None

    def segments(self, ready: Ready) -> tuple[bytes, bytes]:
        """Returns the command and the header segment of a packet.

        Raises:
            TranslationError: the message's properties are invalid.
        """
        try:
            header, properties = packets.from_message(o.STREAM_CLASS, ready.header)
        except DecodeError as error:
            raise TranslationError("header-segment", error.rule) from error
        deliver = o.StreamDeliver(
            consumer_tag=self.destination,
            delivery_tag=self.session.next_packet(),
            exchange=properties.exchange,
            queue=self.queue.name,
        )
        return encode_command(deliver), header


def label_of(tag: str) -> str:
    """Returns a consumer's label among the subscriptions of its session."""
    return f"stream {tag}"


def check_consume(command: o.FileConsume | o.StreamConsume) -> None:
    """Refuses an unsupported consumer (0-10 file.consume, stream.consume).

    Raises:
        SessionFaultError: it is not supported.
    """
    if not command.queue or not command.consumer_tag:
        raise SessionFaultError(ErrorCode.NOT_ALLOWED, "a consumer without queue or consumer-tag")
    if command.no_local:
        raise SessionFaultError(
            ErrorCode.NOT_IMPLEMENTED, "no-local: a router does not know who published"
        )
    asked = [each for each, value in (command.arguments or {}).items() if value]
    if asked:
        raise SessionFaultError(ErrorCode.NOT_IMPLEMENTED, f"argument {min(asked)!r}")
