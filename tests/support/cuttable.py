"""A TCP relay in the test process that can cut the connections through it, as networks do."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero: closing sends RST, so that nothing is flushed."""


@attrs.define(eq=False)
class Cuttable:
    """Relays 127.0.0.1:``port`` to a target until told otherwise.

    Attributes:
        refuse: while true, new connections are closed at once.
        is_silent: while true, octets are swallowed, and nobody hears of that.
        streams: both ends of each connection that stands.
        hung: those of connections whose octets are swallowed, as if both ends had stopped.
    """

    target_port: int
    port: int = 0
    refuse: bool = False
    is_silent: bool = False
    cuts: int = 0
    octets: int = 0
    hung: set[trio.SocketStream] = attrs.field(factory=set, init=False)
    streams: set[trio.SocketStream] = attrs.field(factory=set, init=False)

    def hang(self) -> int:
        """Lets no octet of these connections through any more; returns how many there are."""
        self.hung |= self.streams
        return len(self.streams) // 2

    def cut(self) -> int:
        """Resets every connection; returns how many pairs there were."""
        pairs = len(self.streams) // 2
        for stream in tuple(self.streams):
            if stream.socket.fileno() < 0:
                continue  # its other half is about to be closed
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            stream.socket.close()
        self.streams.clear()
        self.cuts += 1
        return pairs

    async def relay(self, near: trio.SocketStream) -> None:
        """Carries octets both ways for one accepted connection."""
        if self.refuse:
            await near.aclose()
            return
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self.target_port)
        except OSError:
            await near.aclose()
            return
        self.streams |= {near, far}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far)
            nursery.start_soon(self._copy, far, near)
        self.streams -= {near, far}

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for octets in source:
                self.octets += len(octets)
                if not (self.is_silent or source in self.hung):
                    await sink.send_all(octets)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        await trio.aclose_forcefully(sink)
        await trio.aclose_forcefully(source)


@asynccontextmanager
async def cuttable(target_port: int) -> AsyncIterator[Cuttable]:
    """Runs a relay towards 127.0.0.1:``target_port`` for the length of the block."""
    relay = Cuttable(target_port)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        relay.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, relay.relay, listeners)
        yield relay
        nursery.cancel_scope.cancel()
