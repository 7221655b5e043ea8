"""Direct reply-to: replies to a channel without a queue (RabbitMQ).

Theory of operation. The requesting client consumes from ``amq.rabbitmq.reply-to``, and sets that
name as ``reply-to`` of its publishes on the same channel. As an address the name would not be
unique. So the consumer has an internal queue of its own, a dynamic node of the core's, and the name
is replaced by the node's address in incoming publishes. The responder, over any protocol and at any
worker, publishes to that address as to any server-named queue. The queue is deleted with its
consumer.

    consume from the name     a queue with an address of the core's; no-ack is required
    publish with the name     reply-to gets the address instead; 406 without a consumer
    publish to the name       not found
    declare the name          it exists; some clients check that first
"""

from typing import Final
from typing import Protocol as Interface

from router.model.condition import Condition
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.consumers import Consumer
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.names import DIRECT_REPLIES
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks

_REPLY_TO: Final = FLAGS["reply_to"]


class ConsumingChannel(Interface):
    """The part of a channel that direct replies use."""

    def make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        """Creates a consumer as requested."""

    def start(self, consumer: Consumer, no_wait: bool) -> None:
        """Starts deliveries to a consumer; its links exist."""


class Replies:
    """The direct replies of one channel."""

    def __init__(self, engine: ServerLinks, channel: ConsumingChannel, asking: Asking) -> None:
        self._engine = engine
        self._channel = channel
        self._asking = asking
        self._queue: Queue | None = None

    @property
    def address(self) -> str | None:
        """The address for replies; None: there is no consumer."""
        queue = self._queue
        return None if queue is None or queue.is_deleted else queue.own_address

    def consume(self, method: m.BasicConsume) -> None:
        """Handles a ``basic.consume`` of direct replies."""
        if not method.no_ack:
            raise PeerError(Reply.PRECONDITION_FAILED, f"{DIRECT_REPLIES} is consumed with no-ack")
        if self.address is not None:
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"{DIRECT_REPLIES} is consumed already on this channel"
            )
        engine, channel = self._engine, self._channel
        queue = Queue(engine, "", is_local=True, is_exclusive=True, auto_delete=True)
        consumer = channel.make_consumer(method, queue)

        def attached() -> None:
            self._queue = queue
            channel.start(consumer, method.no_wait)

        def refused(condition: Condition) -> None:
            raise self._asking.refusal(condition, f"an address for {DIRECT_REPLIES}", (60, 20))

        self._asking.ask(queue, "", attached, refused)

    def addressed(self, header: bytes) -> bytes:
        """Replaces the name in a content header's reply-to by the address for replies."""
        if not (header[12] << 8 & _REPLY_TO):
            return header
        outgoing = self._engine.outgoing
        properties = outgoing.read_properties(header)
        if properties.reply_to != DIRECT_REPLIES:
            return header
        if self.address is None:
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"nothing on this channel consumes {DIRECT_REPLIES}"
            )
        properties.reply_to = self.address
        return header[:12] + outgoing.write_properties(properties)
