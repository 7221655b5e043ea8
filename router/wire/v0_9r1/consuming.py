"""Consumers of files and streams.

Theory of operation. A consumer of a stream acknowledges nothing; sent packets count as accepted. If
it names a rate, in octets per second, the next packet is sent when the earlier ones have had their
time::

    capacity, nothing due     -> a packet is sent; the next one is due octets / rate seconds later
    capacity, not yet due     -> waits; ``DraftServer`` wakes the consumer when it is due

A consumer of files accepts few at a time, since each is completely in memory until it is staged at
the client (``router.wire.v0_9r1.files``).
"""

from typing import Final

import attrs

from router.wire.v0_9_1.consumers import Consumer

PACKETS_AHEAD: Final = 16
"""Packets that a consumer with a rate is granted beyond the one that is due."""

FILES_AHEAD: Final = 4
"""Files under way to one consumer: each is in memory."""


@attrs.define(eq=False)
class StreamConsumer(Consumer):
    """A consumer of class stream.

    Attributes:
        rate: octets per second; 0: unlimited.
        due_at: when the next packet may be sent.
    """

    rate: int = 0
    due_at: float = attrs.field(default=float("-inf"), init=False)

    @property
    def capacity(self) -> int:
        """Number of packets that the consumer accepts now."""
        if not self.rate:
            return super().capacity
        if self.channel.is_paused or self.channel.machine.now < self.due_at:
            return 0
        return PACKETS_AHEAD

    def spend(self, octets: int, now: float) -> None:
        """Counts a sent packet."""
        if self.rate:
            self.due_at = max(self.due_at, now) + octets / self.rate


@attrs.define(eq=False)
class FileConsumer(Consumer):
    """A consumer of class file.

    Attributes:
        under_way: files that have not arrived at the client yet.
    """

    under_way: int = attrs.field(default=0, init=False)

    @property
    def capacity(self) -> int:
        """Number of files that the consumer accepts now."""
        return min(super().capacity - (0 if self.no_ack else self.under_way), self.left)

    @property
    def left(self) -> int:
        """Number of further files that may be under way."""
        return FILES_AHEAD - self.under_way
