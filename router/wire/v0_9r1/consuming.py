"""Consumers of files and streams.

Theory of operation. A consumer of a stream acknowledges nothing; what it is sent is accepted at
once. If it names a rate, octets a second, the next packet goes out when the ones before have had
their time::

    capacity, nothing due     -> a packet goes out; the next one is due octets / rate seconds later
    capacity, not yet due     -> waits; ``DraftServer`` wakes the consumer when it is due

A consumer of files takes few at a time, since each is whole in memory until it is staged at the
client (``router.wire.v0_9r1.files``).
"""

from typing import Final

import attrs

from router.wire.v0_9_1.consumers import Consumer

PACKETS_AHEAD: Final = 16
"""Packets that a consumer with a rate is granted beyond the one that is due."""

FILES_AHEAD: Final = 4
"""Files that are on their way to one consumer: each is in memory."""


@attrs.define(eq=False)
class StreamConsumer(Consumer):
    """A consumer of class stream.

    Attributes:
        rate: octets a second; 0: as fast as they come.
        due_at: when the next packet may go out.
    """

    rate: int = 0
    due_at: float = attrs.field(default=float("-inf"), init=False)

    @property
    def capacity(self) -> int:
        """How many packets it takes now."""
        if not self.rate:
            return super().capacity
        if self.channel.is_paused or self.channel.machine.now < self.due_at:
            return 0
        return PACKETS_AHEAD

    def spend(self, octets: int, now: float) -> None:
        """Counts a packet that has gone out."""
        if self.rate:
            self.due_at = max(self.due_at, now) + octets / self.rate


@attrs.define(eq=False)
class FileConsumer(Consumer):
    """A consumer of class file.

    Attributes:
        under_way: files that are not at the client yet.
    """

    under_way: int = attrs.field(default=0, init=False)

    @property
    def capacity(self) -> int:
        """How many files it takes now."""
        return min(super().capacity - (0 if self.no_ack else self.under_way), self.left)

    @property
    def left(self) -> int:
        """How many more may be on their way."""
        return FILES_AHEAD - self.under_way
