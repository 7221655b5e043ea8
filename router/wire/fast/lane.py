"""Runs of common messages: one fragment each, equal except for the body.

Theory of operation. A HANDLE SEND of one complete fragment to a name that the handle has sent to
before, with the same head as the last one except for its body-size, needs no decoding. Such
commands are gathered until another one follows, and handed on together. Any other command is left
to the general path, which alone decides on faults; the resulting octets are the same.
"""

import struct
from typing import Final

from router.wire.fast.framing import END_OCTET
from router.wire.fast.handle import Handle, HandleState
from router.wire.fast.inlet import SendShape
from router.wire.fast.server_links import ServerLinks

_HEAD: Final = struct.Struct(">HBHHIBB").unpack_from
"""Size, number, handle, confirm-tag, fragment-size, bits and the length of the name."""

_SEND: Final = 31
_NAME_AT: Final = 13
_LEAST: Final = 14
_SIZE_WITHOUT_NAME: Final = 12


class SendLane:
    """Handles runs of messages for one connection."""

    def __init__(self, engine: ServerLinks) -> None:
        self._engine = engine

    def take(self, octets: bytes, at: int, end: int) -> int:
        """Handles messages of one shape; returns where it stopped, ``at`` if at once."""
        if end - at < _LEAST or octets[at + 2] != _SEND:
            return at
        handle = self._engine.handles.get(octets[at + 3] << 8 | octets[at + 4])
        if (
            handle is None
            or handle.state is not HandleState.OPEN
            or not handle.channel.sending.is_plain
        ):
            return at
        name = octets[at + _NAME_AT : at + _NAME_AT + octets[at + 12]]
        shape = handle.shapes.get(name)
        if shape is None:
            return at
        return self._take_run(handle, shape, octets, at, end)

    def _take_run(self, handle: Handle, shape: SendShape, octets: bytes, at: int, end: int) -> int:
        head, prefix = shape.head, shape.prefix
        name_at, tags, payloads = at + _NAME_AT, [], []
        name = octets[name_at : name_at + octets[at + 12]]
        size_of_frame = _SIZE_WITHOUT_NAME + len(name)
        wanted = (size_of_frame, _SEND, handle.id)
        least, limit = len(head) + 4, self._engine.frame_limit
        while end - at >= _LEAST:
            size, number, handle_id, tag, fragment, bits, length = _HEAD(octets, at)
            start = at + 2 + size
            stop = start + fragment
            if (
                (size, number, handle_id) != wanted
                or bits
                or stop > end
                or not least <= fragment <= limit
                or length != len(name)
                or octets[start - 1] != END_OCTET
                or not octets.startswith(head, start + 4)
                or not octets.startswith(name, at + _NAME_AT)
                or int.from_bytes(octets[start : start + 4], "big") != fragment - least
            ):
                break
            tags.append(tag)
            payloads.append(prefix + octets[start:stop])
            at = stop
        if tags:
            handle.channel.publishing.submit_run(handle, shape, tags, payloads)
        return at
