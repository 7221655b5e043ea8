"""Validation of the heads of incoming messages."""

from router.errors import DecodeError
from router.wire.fast.message import KNOWN_LIMIT, KNOWN_OCTETS, decode_head, ttl_and_count_in
from router.wire.fast.reply import PeerError, Reply
from router.wire.fast.types import ReadShort, decode_short

_BODY_SIZE = b"\0\0\0\0"


class Heads:
    """Validates heads, and caches valid ones with their ttl and delivery-count.

    Args:
        read_short: reads short strings: a client's are names, a server's are carried.
    """

    def __init__(self, read_short: ReadShort = decode_short) -> None:
        self._read_short = read_short
        self._known: dict[bytes, tuple[int | None, int]] = {}

    def look_at(self, head: bytes) -> tuple[int | None, int]:
        """Validates a head, without its body-size; returns its ttl and delivery-count.

        Raises:
            PeerError: it is invalid.
        """
        known = self._known.get(head)
        if known is not None:
            return known
        whole = _BODY_SIZE + head
        try:
            decode_head(whole, 0, len(whole), self._read_short)
        except DecodeError as error:
            raise PeerError(Reply.SYNTAX_ERROR, f"message head: {error.rule}") from error
        found = ttl_and_count_in(whole)
        if len(head) <= KNOWN_OCTETS:
            if len(self._known) >= KNOWN_LIMIT:
                self._known.clear()
            self._known[head] = found
        return found
