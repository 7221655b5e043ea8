"""Buffers between an engine and its socket, for every protocol.

Theory of operation. What comes in is read in place: an engine gets whole receives, works through
the frames that are complete, and gives back the incomplete tail. The tail waits here as the chunks
it came in, and is joined once, when enough has come for the frame that it begins; so a peer that
sends a large frame octet by octet costs memory and time in proportion to the octets it sends.

What goes out is shown, sent and only then forgotten (peek, then confirm): what the socket did not
take is shown again. What is shown is never changed, so a view may be kept while more is appended.
"""

from collections.abc import Callable, Iterable
from typing import Final

SHOWN_OCTETS: Final = 1 << 18
"""How much waiting output is joined to be shown at once: more than sockets take in one send."""

_EMPTY: Final = memoryview(b"")


class ReceiveBuffer:
    """Keeps the incomplete tail of what has been received.

    Attributes:
        octets: how many wait.
    """

    __slots__ = ("_chunks", "_wanted", "octets")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._wanted = 0
        self.octets = 0

    def join(self, octets: bytes | memoryview) -> bytes | None:
        """Puts what has come behind what waits.

        Returns:
            all of it, for the caller to read and ``keep`` the rest of; None as long as it is less
            than the caller said it needs.
        """
        chunk = octets if type(octets) is bytes else bytes(octets)
        if not self._chunks:
            return chunk
        self._chunks.append(chunk)
        self.octets += len(chunk)
        if self.octets < self._wanted:
            return None
        joined = b"".join(self._chunks)
        self._chunks.clear()
        self.octets = 0
        return joined

    def keep(self, octets: bytes, start: int, wanted: int) -> None:
        """Keeps ``octets`` from ``start`` on, until at least ``wanted`` octets are there."""
        if start < len(octets):
            tail = octets[start:] if start else octets
            self._chunks.append(tail)
            self.octets = len(tail)
            self._wanted = wanted


class SendBuffer:
    """Grows at the end, is shown and shrinks at the front.

    Attributes:
        octets: how many wait.
        sent: how many have been confirmed since the beginning.
        on_dirty: called when the first octets come into an empty buffer; None: nobody cares.
    """

    __slots__ = ("_at", "_chunks", "_shown", "octets", "on_dirty", "sent")

    def __init__(self, on_dirty: Callable[[], object] | None = None) -> None:
        self._chunks: list[bytes] = []
        self._shown = b""
        self._at = 0
        self.octets = 0
        self.sent = 0
        self.on_dirty = on_dirty

    def append(self, octets: bytes) -> None:
        """Puts octets behind what waits."""
        if self.on_dirty is not None and not self.octets:
            self.on_dirty()
        self._chunks.append(octets)
        self.octets += len(octets)

    def extend(self, chunks: Iterable[bytes], octets: int) -> None:
        """Puts many pieces behind what waits; ``octets`` is their sum."""
        if self.on_dirty is not None and not self.octets:
            self.on_dirty()
        self._chunks.extend(chunks)
        self.octets += octets

    def peek(self) -> memoryview:
        """Shows the first octets that wait; empty if there are none."""
        if self._at == len(self._shown):
            if not self._chunks:
                return _EMPTY
            self._shown = self._join()
            self._at = 0
        return memoryview(self._shown)[self._at :]

    def _join(self) -> bytes:
        if self.octets <= SHOWN_OCTETS:
            joined = b"".join(self._chunks)
            self._chunks.clear()
            return joined
        total = count = 0
        while total < SHOWN_OCTETS:
            total += len(self._chunks[count])
            count += 1
        joined = b"".join(self._chunks[:count])
        del self._chunks[:count]
        return joined

    def consume(self, count: int) -> None:
        """Forgets the first ``count`` octets, at most as many as ``peek`` has shown."""
        self._at += count
        self.octets -= count
        self.sent += count
        if self._at == len(self._shown):
            self._shown = b""
            self._at = 0
