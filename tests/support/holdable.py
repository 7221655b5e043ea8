"""A TCP relay that holds up what clients say, as a slow proxy does, and lets it go later.

For tests of what arrives late: octets of a connection that its client has given up long ago still
reach the router, in order, whenever they are let go.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from tests.support.cuttable import RESET

RECEIVE_OCTETS = 1 << 16


@attrs.define(eq=False)
class Stretch:
    """One direction of a relayed connection.

    Attributes:
        passes: octets that still go through before all that follows is held up; None: all.
        holds_behind_first: all is held up behind what is said first, in one write.
        holds_at: all is held up from the write on that has these octets; empty: nothing is.
        passes_there: so many octets of that write still go through.
        held: what has come and was not let through.
        has_ended: the side that sends has; told to the other side behind what is held.
    """

    passes: int | None = None
    holds_behind_first: bool = False
    holds_at: bytes = b""
    passes_there: int = 0
    held: bytearray = attrs.field(factory=bytearray)
    has_ended: bool = False
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    def hold(self, after: int = 0) -> None:
        """Holds up all that follows the next ``after`` octets."""
        self.passes = after

    def release(self) -> None:
        """Lets go what is held, and all that follows."""
        self.passes, self.holds_at = None, b""
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def wait_held(self, octets: int, seconds: float = 20.0) -> None:
        """Returns when at least so many octets are held."""
        with trio.fail_after(seconds):
            while len(self.held) < octets:
                await self._news.wait()

    async def fill(self, source: trio.SocketStream) -> None:
        """Takes what the one side sends, whether or not it may go on."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            while octets := await source.receive_some(RECEIVE_OCTETS):
                if self.holds_behind_first:
                    self.holds_behind_first, self.passes = False, len(octets)
                elif self.holds_at and self.holds_at in octets:
                    self.holds_at, self.passes = b"", len(self.held) + self.passes_there
                self.held += octets
                self._wake()
        self.has_ended = True
        self._wake()

    async def drain(self, sink: trio.SocketStream) -> None:
        """Gives the other side what may go on; returns when that was all there will ever be."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            while True:
                share = len(self.held) if self.passes is None else min(self.passes, len(self.held))
                if share:
                    octets = bytes(self.held[:share])
                    del self.held[:share]
                    if self.passes is not None:
                        self.passes -= share
                    await sink.send_all(octets)
                elif self.has_ended and not self.held:
                    return
                else:
                    await self._news.wait()


@attrs.define(eq=False)
class Relayed:
    """One connection through the relay.

    Attributes:
        number: from 1, in the order of coming.
        forth: what the client says.
        back: what it is told.
    """

    number: int
    near: trio.SocketStream
    far: trio.SocketStream
    forth: Stretch = attrs.field(factory=Stretch)
    back: Stretch = attrs.field(factory=Stretch)

    def cut(self) -> None:
        """Resets both sides; what is held is lost."""
        _reset(self.near)
        _reset(self.far)

    def cut_near(self) -> None:
        """Resets the client's side; what it has said, and is held, can still be let go."""
        _reset(self.near)

    async def carry(self) -> None:
        """Carries octets both ways, until the far side has ended or been told that the near has.

        A client that is gone is no reason to end: what it has said may still be held.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.forth.fill, self.near)
            nursery.start_soon(self.back.fill, self.far)
            nursery.start_soon(self._tell)
            await self.forth.drain(self.far)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                await self.far.send_eof()
            while not self.back.has_ended:
                await self.back._news.wait()
            nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(self.near)
        await trio.aclose_forcefully(self.far)

    async def _tell(self) -> None:
        """Gives the client all that it is told, and then the end."""
        await self.back.drain(self.near)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            await self.near.send_eof()


def _reset(stream: trio.SocketStream) -> None:
    if stream.socket.fileno() >= 0:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        stream.socket.close()


@attrs.define(eq=False)
class Holdable:
    """Relays 127.0.0.1:``port`` to 127.0.0.1:``target_port``.

    Attributes:
        connections: all that have come, in order.
    """

    target_port: int
    port: int = 0
    connections: list[Relayed] = attrs.field(factory=list)
    _came: Callable[[Relayed], None] = lambda relayed: None

    def hold_next(self, after: int | None = 0) -> None:
        """Holds up the next connection's client.

        Args:
            after: behind so many octets; None: behind what it says first, in one write.
        """

        def hold(relayed: Relayed) -> None:
            if after is None:
                relayed.forth.holds_behind_first = True
            else:
                relayed.forth.hold(after)
            self._came = lambda _: None

        self._came = hold

    def hold_next_at(self, octets: bytes, passes: int = 0) -> None:
        """Holds up the next connection's client from a write on that has these octets.

        Args:
            octets: to look for; in one write.
            passes: so many octets of that write go through.
        """

        def hold(relayed: Relayed) -> None:
            relayed.forth.holds_at, relayed.forth.passes_there = octets, passes
            self._came = lambda _: None

        self._came = hold

    async def came(self, count: int, seconds: float = 30.0) -> Relayed:
        """Returns the ``count``-th connection, when it has come."""
        with trio.fail_after(seconds):
            while len(self.connections) < count:
                await trio.sleep(0.01)
        return self.connections[count - 1]

    def cut(self) -> int:
        """Resets every connection; returns how many there were."""
        for relayed in self.connections:
            relayed.cut()
        return len(self.connections)

    async def relay(self, near: trio.SocketStream) -> None:
        """Carries one accepted connection."""
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self.target_port)
        except OSError:
            await near.aclose()
            return
        relayed = Relayed(len(self.connections) + 1, near, far)
        self._came(relayed)
        self.connections.append(relayed)
        await relayed.carry()


@asynccontextmanager
async def holdable(target_port: int) -> AsyncIterator[Holdable]:
    """Runs a relay towards 127.0.0.1:``target_port`` for the length of the block."""
    relay = Holdable(target_port)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        relay.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, relay.relay, listeners)
        yield relay
        nursery.cancel_scope.cancel()
