"""Buffers between an engine and its socket, for every protocol.

Theory of operation. Input is read in place: an engine gets complete receives, handles the complete
frames, and returns the incomplete tail. The tail is kept here as the chunks in which it arrived,
and joined once, when enough has arrived for its frame; so a peer that sends a large frame octet by
octet costs memory and time in proportion to the octets it sends.

Output is peeked, sent and only then removed (peek, then confirm): octets that the socket did not
accept are returned again. Returned octets are never changed, so a view may be kept while more is
appended.
"""

from collections.abc import Callable, Iterable
from typing import Final

SHOWN_OCTETS: Final = 1 << 18
"""How much output is joined for one ``peek``, in octets: more than sockets accept in one send."""

_EMPTY: Final = memoryview(b"")


class ReceiveBuffer:
    """Keeps the incomplete tail of received octets.

    Attributes:
        octets: size of the tail.
    """

    __slots__ = ("_chunks", "_wanted", "octets")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._wanted = 0
        self.octets = 0

    def join(self, octets: bytes | memoryview) -> bytes | None:
        """Appends received octets to the tail.

        Returns:
            all of it, for the caller to read and to ``keep`` the rest of; None as long as it is
            less than the caller needs.
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
        """Keeps ``octets`` from ``start`` on, until at least ``wanted`` octets have arrived."""
        if start < len(octets):
            tail = octets[start:] if start else octets
            self._chunks.append(tail)
            self.octets = len(tail)
            self._wanted = wanted


class SendBuffer:
    """Output: appended at the end, peeked and removed at the front.

    Attributes:
        octets: size of the output.
        sent: octets confirmed since the beginning.
        on_dirty: called when the first octets are added to an empty buffer; None: no callback.
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
        """Appends octets."""
        if self.on_dirty is not None and not self.octets:
            self.on_dirty()
        self._chunks.append(octets)
        self.octets += len(octets)

    def extend(self, chunks: Iterable[bytes], octets: int) -> None:
        """Appends many pieces; ``octets`` is the sum of their sizes."""
        if self.on_dirty is not None and not self.octets:
            self.on_dirty()
        self._chunks.extend(chunks)
        self.octets += octets

    def peek(self) -> memoryview:
        """Returns the first octets to send; empty if there are none."""
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
        """Removes the first ``count`` octets, at most as many as ``peek`` has returned."""
        self._at += count
        self.octets -= count
        self.sent += count
        if self._at == len(self._shown):
            self._shown = b""
            self._at = 0
