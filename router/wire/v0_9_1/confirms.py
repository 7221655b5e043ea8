"""Publisher confirms: decided publishes of a channel, reported in the fewest frames.

Theory of operation. Publishes on a channel count from 1. ``basic.ack`` and ``basic.nack`` name one
number, or with ``multiple`` all pending numbers up to it. So publishes decided in order are joined
into one frame, and those decided out of order are confirmed one by one, at once: a confirm must not
wait for a neighbor that may never be decided.

    published 1 2 3 4 5 6        decided 1 2 3 5      sent: ack 5, then ack 3 multiple
                                 decided 4            sent: ack 4
                                 decided 6            sent: ack 6

``Confirms`` is the confirming side, ``Unconfirmed`` the publishing side.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from router.wire.v0_9_1.framing import END, FRAME, METHOD

_ACK = b"\x00\x3c\x00\x50"
_NACK = b"\x00\x3c\x00\x78"

T = TypeVar("T")


def encode_ack(channel: int, number: int, multiple: bool) -> bytes:
    """Encodes the frame of ``basic.ack``."""
    return b"".join(
        (
            FRAME.pack(METHOD, channel, 13),
            _ACK,
            number.to_bytes(8, "big"),
            b"\x01" if multiple else b"\x00",
            END,
        )
    )


def encode_nack(channel: int, number: int, multiple: bool, requeue: bool) -> bytes:
    """Encodes the frame of ``basic.nack``; ``requeue`` is ignored by publishers."""
    return b"".join(
        (
            FRAME.pack(METHOD, channel, 13),
            _NACK,
            number.to_bytes(8, "big"),
            bytes((multiple | requeue << 1,)),
            END,
        )
    )


class Confirms:
    """Decisions that the publisher has not been sent yet.

    Attributes:
        is_due: whether ``frames`` has any.
    """

    __slots__ = ("_acked", "_early", "_nacked", "_open", "is_due")

    def __init__(self) -> None:
        self.is_due = False
        self._open = 1  # the first number that is not decided
        self._early: set[int] = set()  # decided beyond it, and confirmed
        self._acked: list[int] = []
        self._nacked: list[int] = []

    def decide(self, numbers: Iterable[int], is_taken: bool) -> None:
        """Records that publishes were accepted, or were not; each number is decided once."""
        (self._acked if is_taken else self._nacked).extend(numbers)
        self.is_due = True

    def frames(self, channel: int) -> bytes:
        """Returns the frames for the decisions since the last call."""
        self.is_due = False
        acked, nacked = self._acked, self._nacked
        if not nacked and not self._early:
            first = acked[0]
            last = acked[-1]
            if first == self._open and len(acked) == last - first + 1 and _rises(acked):
                self._acked = []
                self._open = last + 1
                return encode_ack(channel, last, multiple=last > first)
        return self._frames_out_of_order(channel)

    def _frames_out_of_order(self, channel: int) -> bytes:
        acked, nacked = set(self._acked), self._nacked
        self._acked, self._nacked = [], []
        decided = self._early.union(acked, nacked)
        parts = [encode_nack(channel, number, False, False) for number in sorted(nacked)]
        low = self._open
        while self._open in decided:
            decided.discard(self._open)
            self._open += 1
        self._early = decided
        joined = sorted(number for number in acked if low <= number < self._open)
        parts += [encode_ack(channel, number, False) for number in sorted(acked & decided)]
        if joined:
            parts.append(encode_ack(channel, joined[-1], multiple=len(joined) > 1))
        return b"".join(parts)


def _rises(numbers: list[int]) -> bool:
    """Returns whether numbers, whose ends fit a range, are that range in order."""
    return len(numbers) < 3 or numbers == list(range(numbers[0], numbers[-1] + 1))


class Unconfirmed(Generic[T]):
    """Publishes that a broker has not decided, oldest first.

    Attributes:
        published: number of the last publish.
        open: number → the publisher's item for it.
    """

    __slots__ = ("open", "published")

    def __init__(self) -> None:
        self.published = 0
        self.open: dict[int, T] = {}

    def publish(self, item: T) -> None:
        """Counts a publish and stores its item."""
        self.published += 1
        self.open[self.published] = item

    def decided(self, number: int, multiple: bool) -> list[T]:
        """Removes and returns the items that an ack or nack decides; decided numbers are ignored.

        With ``multiple``, 0 stands for all (0-9-1 §1.8.3.13).
        """
        if not multiple:
            item = self.open.pop(number, None)
            return [] if item is None else [item]
        limit = number or self.published
        if limit >= self.published:
            everything = list(self.open.values())
            self.open.clear()
            return everything
        taken = []
        for each in self.open:
            if each > limit:
                break
            taken.append(each)
        return [self.open.pop(each) for each in taken]
