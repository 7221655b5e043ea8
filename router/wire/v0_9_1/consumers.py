"""Consumers and their capacity."""

import attrs

from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.prefetch import UNBOUNDED_CAPACITY, Window
from router.wire.v0_9_1.queues import Queue


@attrs.define(eq=False)
class Consumer:
    """A consumer (0-9-1 §1.8.3.3).

    Attributes:
        head: class, method and consumer tag of its ``basic.deliver``, encoded.
        window: its own prefetch; the channel's holds besides.
        priority: others get only what those of a higher one have no capacity for.
        is_exclusive: nobody else consumes from the queue.
    """

    tag: str
    channel: ClientChannel
    queue: Queue
    no_ack: bool
    window: Window
    priority: int = 0
    is_exclusive: bool = False
    head: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.head = self.channel.deliver_head(self.tag)

    @property
    def capacity(self) -> int:
        """Number of deliveries that the consumer accepts now."""
        channel = self.channel
        if channel.is_paused:
            return 0
        if self.no_ack:
            return UNBOUNDED_CAPACITY
        capacity = self.window.capacity
        return min(capacity, channel.window.capacity) if channel.window.limit else capacity
