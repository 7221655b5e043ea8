"""Closes refused connections in such a way that their peers receive the reason.

Theory of operation. The last octets are sent and our end of the stream is shut; then the peer's
input is thrown away until it ends, because closing earlier would reset the stream and could
discard the last octets. A single task checks all such sockets every ``LOOK_SECONDS``, so a refused
peer costs a few system calls. There are at most ``PARTING_MOST``: a new one replaces the oldest.
"""

import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

PART_SECONDS: Final = 2.0
"""How long a refused peer may take to read why and to leave."""

PART_OCTETS: Final = 1 << 20
"""How much of a refused peer's input is thrown away before the socket is closed all the same."""

PARTING_MOST: Final = 1024
"""Sockets that wait for their peer's end."""

LOOK_SECONDS: Final = 0.05

_RECEIVE_OCTETS: Final = 64 * 1024
_LOOK_OCTETS: Final = 256 * 1024
"""Thrown away of one peer's input at a time: what the kernel has of it by then, about."""


@attrs.define(eq=False)
class _Parting:
    sock: socket.socket
    until: float
    octets_left: int = PART_OCTETS

    def is_over(self, now: float) -> bool:
        """Discards received octets; returns whether the peer has gone, or its time is over."""
        if now >= self.until or self.octets_left <= 0:
            return True
        look = _LOOK_OCTETS
        while look > 0:
            try:
                count = len(self.sock.recv(_RECEIVE_OCTETS))
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                return True
            if not count:
                return True
            look -= count
            self.octets_left -= count
        return False


@attrs.define(eq=False)
class Farewells:
    """Sockets whose peers have been sent a refusal.

    Attributes:
        nursery: where the task lives that looks at them.
        clock: seconds.
    """

    nursery: trio.Nursery
    clock: Callable[[], float]
    _parting: deque[_Parting] = attrs.field(factory=deque, init=False)
    _is_looking: bool = attrs.field(default=False, init=False)

    @property
    def count(self) -> int:
        """How many sockets there are."""
        return len(self._parting)

    def part(self, sock: socket.socket, octets: bytes) -> None:
        """Takes over a non-blocking socket, sends ``octets``, and closes it when the peer has gone.

        Args:
            sock: the socket, of which at most a few octets have been sent before.
            octets: the last words, which fit into its buffer.
        """
        try:
            if octets:
                sock.send(octets)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            sock.close()
            return
        self._parting.append(_Parting(sock, self.clock() + PART_SECONDS))
        if len(self._parting) > PARTING_MOST:
            self._parting.popleft().sock.close()
        if not self._is_looking:
            self._is_looking = True
            self.nursery.start_soon(self._look)

    async def _look(self) -> None:
        """Looks at all now and then, until there are none."""
        try:
            while self._parting:
                await trio.sleep(LOOK_SECONDS)
                now = self.clock()
                for _ in range(len(self._parting)):
                    parting = self._parting.popleft()
                    if parting.is_over(now):
                        parting.sock.close()
                    else:
                        self._parting.append(parting)
        finally:
            self._is_looking = False
            for parting in self._parting:
                with contextlib.suppress(OSError):
                    parting.sock.close()
            self._parting.clear()
