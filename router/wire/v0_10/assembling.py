"""Assembles segments and assemblies from frames (see ``router.wire.v0_10.framing``).

Theory of operation. What may come next on a track of a channel is a table, ``STEPS``: the state,
the kind of segment and the frame's four flags decide. Any other frame is a framing error::

    IDLE       first segment, first frame          -> IN_HEAD, or BETWEEN, or done
    IN_HEAD    the first segment's further frames  -> the same
    BETWEEN    first frame of header or body       -> IN_HEADER, IN_BODY, or BETWEEN, or done
    IN_HEADER  the header's further frames         -> the same
    IN_BODY    the body's further frames           -> the same

A header may occur once, before any body; bodies are joined. A control is one segment.
"""

import enum
from typing import Final

from router.wire.v0_10.framing import (
    BODY,
    COMMAND,
    CONTROL,
    FIRST_FRAME,
    FIRST_SEGMENT,
    HEADER,
    LAST_FRAME,
    LAST_SEGMENT,
    WHOLE,
)
from router.wire.v0_10.reply import framing_error

MAX_ASSEMBLY_OCTETS: Final = 1 << 29
"""Largest assembly that is gathered; a link may accept less."""

MAX_HEAD_OCTETS: Final = 1 << 20
"""Largest control or command, without content, that is gathered."""


class AssemblyState(enum.Enum):
    """The state of an assembly."""

    IDLE = "the first segment"
    IN_HEAD = "more of the first segment"
    BETWEEN = "a further segment"
    IN_HEADER = "more of the header"
    IN_BODY = "more of the body"


_INSIDE: Final = {
    CONTROL: AssemblyState.IN_HEAD,
    COMMAND: AssemblyState.IN_HEAD,
    HEADER: AssemblyState.IN_HEADER,
}

STEPS: Final = frozenset(
    {
        (AssemblyState.IDLE, CONTROL, True, True),
        (AssemblyState.IDLE, COMMAND, True, True),
        (AssemblyState.IN_HEAD, CONTROL, True, False),
        (AssemblyState.IN_HEAD, COMMAND, True, False),
        (AssemblyState.BETWEEN, HEADER, False, True),
        (AssemblyState.BETWEEN, BODY, False, True),
        (AssemblyState.IN_HEADER, HEADER, False, False),
        (AssemblyState.IN_BODY, BODY, False, False),
    }
)
"""The allowed combinations: AssemblyState, kind of segment, first segment, first frame."""


class Assembling:
    """One incomplete assembly.

    Attributes:
        track: its track.
        state: see the module.
        head: the control or command.
        header: the header segment; None: there is none.
        octets: what has arrived, unless all of it came in one frame.
    """

    __slots__ = ("_bodies", "_is_last", "_parts", "head", "header", "octets", "state", "track")

    def __init__(self, track: int) -> None:
        self.track = track
        self.state = AssemblyState.IDLE
        self.head = b""
        self.header: bytes | None = None
        self._bodies: list[bytes] = []
        self._parts: list[bytes] = []
        self.octets = 0
        self._is_last = False

    @property
    def body(self) -> bytes:
        """The body segments, joined; empty if there are none."""
        bodies = self._bodies
        return bodies[0] if len(bodies) == 1 else b"".join(bodies)

    @property
    def arrived(self) -> bytes:
        """The part of the body that has arrived."""
        parts = self._parts if self.state is AssemblyState.IN_BODY else ()
        return b"".join((*self._bodies, *parts))

    def take(self, flags: int, kind: int, payload: bytes) -> bool:
        """Handles a frame; returns whether the assembly is complete.

        Raises:
            ConnectionFaultError: the frame is not allowed now.
        """
        if flags & 0x0F == WHOLE and self.state is AssemblyState.IDLE and kind == self.track:
            self.head = payload
            return True
        is_first = bool(flags & FIRST_FRAME)
        step = (self.state, kind, bool(flags & FIRST_SEGMENT), is_first)
        if step not in STEPS or (kind < HEADER and kind != self.track):
            raise framing_error(
                f"track {self.track}: a frame of kind {kind} and flags {flags & 15:#x}"
                f" where {self.state.value} is expected"
            )
        is_last = bool(flags & LAST_SEGMENT)
        if is_first:
            self._is_last = is_last
        elif is_last is not self._is_last:
            raise framing_error(f"track {self.track}: last-segment changes within a segment")
        self.octets += len(payload)
        most = MAX_HEAD_OCTETS if kind < HEADER else MAX_ASSEMBLY_OCTETS
        if self.octets > most:
            raise framing_error(f"an assembly of more than {most} octets")
        self._parts.append(payload)
        if not flags & LAST_FRAME:
            self.state = _INSIDE.get(kind, AssemblyState.IN_BODY)
            return False
        self._end_segment(kind)
        return is_last

    def _end_segment(self, kind: int) -> None:
        parts = self._parts
        octets = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self.state = AssemblyState.BETWEEN
        if kind < HEADER:
            self.head = octets
        elif kind == BODY:
            self._bodies.append(octets)
        elif self.header is not None or self._bodies:
            raise framing_error("a header behind a header or body")
        else:
            self.header = octets
