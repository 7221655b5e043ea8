"""Direct reply-to: answers that come to a channel without a queue (RabbitMQ).

Theory of operation. A client that asks consumes from ``amq.rabbitmq.reply-to``, and writes that
name into ``reply-to`` of what it publishes on the same channel. As an address it would be
everybody's. So the consumer has a queue of its own behind the scenes, a dynamic node of the core's,
and the name is replaced by the node's address on the way in. Whoever answers, over whatever
protocol and at whatever worker, publishes to that as to any server-named queue. The queue goes with
its consumer.

    consume from the name     a queue with an address of the core's; no-ack is required
    publish with the name     reply-to says the address instead; 406 if nothing consumes
    publish to the name       not found: nobody means that
    declare the name          it is there; some clients ask before they use it
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
    """What answers ask of the channel that consumes them."""

    def make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        """Makes a consumer as it was asked for."""

    def start(self, consumer: Consumer, no_wait: bool) -> None:
        """Lets a consumer have what its queue has; its links are there."""


class Replies:
    """The answers of one channel."""

    def __init__(self, engine: ServerLinks, channel: ConsumingChannel, asking: Asking) -> None:
        self._engine = engine
        self._channel = channel
        self._asking = asking
        self._queue: Queue | None = None

    @property
    def address(self) -> str | None:
        """Where answers are to be sent; None: nobody consumes them."""
        queue = self._queue
        return None if queue is None or queue.is_deleted else queue.own_address

    def consume(self, method: m.BasicConsume) -> None:
        """Handles a ``basic.consume`` of answers."""
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
        """Puts the address of answers into a content header that names the channel instead."""
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
