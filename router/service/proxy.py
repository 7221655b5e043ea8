"""A worker in another process, as the admin endpoint sees it: ``Control`` over the channel."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from router.core.listing import DeliveryPage, DeliveryPosition, Filter, LinkPage, LinkPosition
from router.core.resolve import Decision
from router.core.trace import TraceLine
from router.service import errands
from router.service.channel import Channel, ChannelError, Question, Responder
from router.service.control import (
    ConnectionEntries,
    Control,
    LocalControl,
    MeshRecord,
    Replayed,
    TraceFeed,
    WorkerSnapshot,
)


@attrs.define(eq=False)
class RemoteControl:
    """Asks a worker over the channel."""

    channel: Channel
    number: int

    async def snapshot(self, most_seconds: float) -> WorkerSnapshot:
        """Returns the worker's state, as ``Control`` says."""
        return await self.channel.ask(errands.SNAPSHOT, most_seconds)

    async def connections(self, wanted: Filter, most: int, after: int) -> ConnectionEntries:
        """Lists connections, as ``Control`` says."""
        return await self.channel.ask(errands.CONNECTIONS, wanted, most, after)

    async def links(self, wanted: Filter, most: int, after: LinkPosition) -> LinkPage:
        """Lists links, as ``Control`` says."""
        return await self.channel.ask(errands.LINKS, wanted, most, after)

    async def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None
    ) -> DeliveryPage:
        """Lists deliveries, as ``Control`` says."""
        return await self.channel.ask(errands.DELIVERIES, wanted, most, after)

    async def pause(self, route: str) -> None:
        """Pauses a route, as ``Control`` says."""
        await self.channel.ask(errands.PAUSE, route)

    async def resume(self, route: str) -> None:
        """Resumes a route, as ``Control`` says."""
        await self.channel.ask(errands.RESUME, route)

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        """Resolves deliveries in doubt, as ``Control`` says."""
        return await self.channel.ask(errands.RESOLVE, tag, link, decision)

    async def replay(self, route: str | None, address: str | None) -> Replayed:
        """Tries stored messages at once, as ``Control`` says."""
        return await self.channel.ask(errands.REPLAY, route, address)

    async def mesh(self, address: str | None) -> MeshRecord | None:
        """Returns the mesh, as ``Control`` says."""
        return await self.channel.ask(errands.MESH, address)

    @asynccontextmanager
    async def trace(self, pattern: str, most: int) -> AsyncIterator[TraceFeed]:
        """Traces deliveries, as ``Control`` says."""
        trace = await self.channel.ask(errands.BEGIN_TRACE, pattern, most)
        try:
            yield _RemoteFeed(self.channel, trace)
        finally:
            with (
                trio.CancelScope(shield=True, deadline=trio.current_time() + 1),
                contextlib.suppress(ChannelError),  # a worker's traces end with it
            ):
                await self.channel.ask(errands.END_TRACE, trace)


@attrs.define(eq=False)
class _RemoteFeed:
    channel: Channel
    trace: int

    async def take(self) -> list[TraceLine]:
        return await self.channel.ask(errands.TAKE_TRACE, self.trace)


@attrs.define(eq=False)
class Traces:
    """The traces that the supervisor has begun; a worker's end of ``RemoteControl.trace``."""

    control: LocalControl
    nursery: trio.Nursery
    _feeds: dict[int, tuple[TraceFeed, trio.Event]] = attrs.field(factory=dict, init=False)
    _begun: int = attrs.field(default=0, init=False)

    async def begin(self, pattern: str, most: int) -> int:
        """Begins a trace; returns its number."""
        trace: int = await self.nursery.start(self._follow, pattern, most)
        return trace

    async def _follow(self, pattern: str, most: int, task_status: trio.TaskStatus[int]) -> None:
        async with self.control.trace(pattern, most) as feed:
            self._begun += 1
            number, ended = self._begun, trio.Event()
            self._feeds[number] = (feed, ended)
            task_status.started(number)
            await ended.wait()

    async def take(self, trace: int) -> list[TraceLine]:
        """Waits for lines of a trace and returns them."""
        known = self._feeds.get(trace)
        return [] if known is None else await known[0].take()

    async def end(self, trace: int) -> None:
        """Ends a trace."""
        known = self._feeds.pop(trace, None)
        if known is not None:
            known[1].set()


def answers(control: Control, traces: Traces) -> dict[Question[Any], Responder]:
    """Returns the responders to the questions that the admin endpoint may ask a worker."""
    return {
        errands.SNAPSHOT: control.snapshot,
        errands.CONNECTIONS: control.connections,
        errands.LINKS: control.links,
        errands.DELIVERIES: control.deliveries,
        errands.PAUSE: control.pause,
        errands.RESUME: control.resume,
        errands.RESOLVE: control.resolve,
        errands.REPLAY: control.replay,
        errands.MESH: control.mesh,
        errands.BEGIN_TRACE: traces.begin,
        errands.TAKE_TRACE: traces.take,
        errands.END_TRACE: traces.end,
    }
