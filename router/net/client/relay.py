"""A TCP relay that can cut the connections through it, as networks do: for ``router demo``."""

import socket
import struct
from typing import Final

import attrs
import trio

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of zero: closing resets the connection and drops pending octets."""


@attrs.define(eq=False)
class Relay:
    """Relays a port of this machine to another until stopped.

    Attributes:
        target_port: on 127.0.0.1.
        port: where it listens, once ``run`` has started; on 127.0.0.1 as well.
    """

    target_port: int
    port: int = 0
    _streams: set[trio.SocketStream] = attrs.field(factory=set, init=False)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Relays until it is cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    def cut(self) -> None:
        """Resets every connection."""
        for stream in tuple(self._streams):
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            stream.socket.close()
        self._streams.clear()

    async def _serve(self, near: trio.SocketStream) -> None:
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self.target_port)
        except OSError:
            await near.aclose()
            return
        self._streams |= {near, far}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far)
            nursery.start_soon(self._copy, far, near)
        self._streams -= {near, far}

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for octets in source:
                await sink.send_all(octets)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        await trio.aclose_forcefully(sink)
        await trio.aclose_forcefully(source)
