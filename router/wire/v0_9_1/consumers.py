"""Consumers, and how much each has room for: 0-9-1's prefetch."""

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from router.wire.v0_9_1.queues import Queue
    from router.wire.v0_9_1.server_channel import ServerChannel

UNBOUNDED_ROOM: Final = 1000
"""Room of a consumer that set no prefetch: what is under way to it is bounded by this alone, and
what it may leave unacknowledged by nothing."""


@attrs.define(eq=False)
class Window:
    """A prefetch: how many deliveries may be unacknowledged.

    Attributes:
        limit: 0: no limit.
        used: deliveries not acknowledged.
    """

    limit: int = 0
    used: int = 0

    @property
    def room(self) -> int:
        """How many more may go out."""
        return self.limit - self.used if self.limit else UNBOUNDED_ROOM


@attrs.define(eq=False)
class Consumer:
    """A consumer (0-9-1 §1.8.3.3).

    Attributes:
        head: class, method and consumer tag of its ``basic.deliver``, encoded.
        window: its own prefetch; the channel's holds besides.
        priority: others get only what those of a higher one have no room for.
        is_exclusive: nobody else consumes from the queue.
    """

    tag: str
    channel: "ServerChannel"
    queue: "Queue"
    no_ack: bool
    window: Window
    priority: int = 0
    is_exclusive: bool = False
    head: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.head = self.channel.deliver_head(self.tag)

    @property
    def room(self) -> int:
        """How many deliveries it takes now."""
        channel = self.channel
        if channel.is_paused:
            return 0
        if self.no_ack:
            return UNBOUNDED_ROOM
        room = self.window.room
        return min(room, channel.window.room) if channel.window.limit else room
