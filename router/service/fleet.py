"""One router out of its workers: questions go to all of them, answers come back as one.

``RouterControl`` is what the admin endpoint knows of the router. It asks each worker through its
``Control``, and whoever steers the process (``Steering``: ``run`` now, a supervisor of several
processes as well) about listeners, drain, reload and the log. A worker that does not answer within
``ANSWER_SECONDS`` is left out and named; it never holds the others up.
"""

import heapq
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Generic, TypeVar
from typing import Protocol as Interface

import attrs
import trio

from router import __version__
from router.core.listing import (
    DeliveryRecord,
    Filter,
    LinkPosition,
    LinkRecord,
)
from router.core.resolve import Decision
from router.core.snapshot import Snapshot
from router.core.trace import TraceLine
from router.errors import RouterError
from router.routes.match import PatternError
from router.routes.table import RoutingTable
from router.service.config.process import LogLevel
from router.service.control import (
    ConnectionEntry,
    ContainerRecord,
    Control,
    TraceFeed,
    UnknownRouteError,
    WorkerSnapshot,
)
from router.service.cursor import (
    decode,
    encode,
    read_link_position,
    read_number,
    read_positions,
    write_positions,
)
from router.service.difference import Difference
from router.service.merge import merge_containers, merge_cores
from router.service.route_list import RouteList

ANSWER_SECONDS: Final = 5.0

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Position = TypeVar("Position")


_Some = Callable[[Control, int, Position], Awaitable[tuple[Sequence[Item], Position | None]]]


@attrs.frozen(kw_only=True)
class ListenerRecord:
    """One listener of the configuration.

    Attributes:
        addresses: where it listens, with the ports that were given out for port 0; none: it is
            closed.
    """

    name: str
    addresses: tuple[str, ...]
    protocols: tuple[str, ...]
    has_tls: bool


@attrs.frozen(kw_only=True)
class ReloadReport:
    """What came of reading the configuration file anew.

    Attributes:
        differences: what was applied; nothing if there are problems.
        problems: why the file was refused, as ``router check`` would print them.
    """

    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()


class Steering(Interface):
    """What belongs to the router as a whole, not to a worker."""

    @property
    def id(self) -> str:
        """Its container-id."""

    @property
    def started_at(self) -> float:
        """When it was started: seconds since 1970."""

    @property
    def is_draining(self) -> bool:
        """Whether it is about to end."""

    @property
    def required_containers(self) -> Sequence[str]:
        """Names of the containers without which it is not ready."""

    @property
    def table(self) -> RoutingTable:
        """What is routed where, at present."""

    @property
    def log_level(self) -> LogLevel:
        """The least severity that is logged; may be set."""

    @log_level.setter
    def log_level(self, level: LogLevel) -> None: ...

    def listeners(self) -> tuple[ListenerRecord, ...]:
        """Returns what is listened on."""

    def drain(self) -> None:
        """Begins to end the router; a second time it changes nothing."""

    async def reload(self) -> ReloadReport:
        """Reads the configuration file anew and applies it if it is good."""


@attrs.frozen(kw_only=True)
class RouterSnapshot:
    """What the whole router knew at one time.

    Attributes:
        at: seconds since 1970.
        silent: numbers of workers that did not answer.
        core: all workers together; of routes, those that something has used.
        routes: all of them.
        containers: all workers together, in the order of the file.
    """

    id: str
    version: str
    at: float
    started_at: float
    is_draining: bool
    required_containers: tuple[str, ...]
    listeners: tuple[ListenerRecord, ...]
    workers: tuple[WorkerSnapshot, ...]
    silent: tuple[int, ...]
    core: Snapshot
    routes: RouteList
    containers: tuple[ContainerRecord, ...]


@attrs.frozen
class Page(Generic[Item]):
    """Some items of a list, each with the number of its worker.

    Attributes:
        next: cursor of the next page; None: that was all.
        is_cut: the list is too long to be looked through; its rest is left out.
        on_lane: of deliveries, those on the express lane, which are only counted.
        gaps: of deliveries in doubt, what the journal misses.
    """

    items: tuple[tuple[int, Item], ...]
    next: str | None
    is_cut: bool = False
    on_lane: int = 0
    gaps: tuple[str, ...] = ()


@attrs.frozen
class SilentError(RouterError):
    """No worker answers."""

    def __str__(self) -> str:
        return f"no worker answers within {ANSWER_SECONDS:g} s"


class FleetFeed(Interface):
    """Lines of a trace under way, each with the number of its worker."""

    async def take(self) -> list[tuple[int, TraceLine]]:
        """Waits for lines; none: the trace has come to its end."""


@attrs.define(eq=False)
class RouterControl:
    """One router, as the admin endpoint sees it.

    Attributes:
        steering: the process as a whole.
        workers: gives the workers that there are now, in the order of their numbers.
    """

    steering: Steering
    workers: Callable[[], Sequence[Control]]

    async def snapshot(self) -> RouterSnapshot:
        """Asks every worker how it fares.

        Raises:
            SilentError: none answers.
        """
        answers = await self._ask(lambda control: control.snapshot())
        if not answers:
            raise SilentError
        steering = self.steering
        core = merge_cores([answer.core for answer in answers.values()])
        return RouterSnapshot(
            id=steering.id,
            version=__version__,
            at=max(answer.at for answer in answers.values()),
            started_at=steering.started_at,
            is_draining=steering.is_draining,
            required_containers=tuple(steering.required_containers),
            listeners=steering.listeners(),
            workers=tuple(answers.values()),
            silent=tuple(each.number for each in self.workers() if each.number not in answers),
            core=core,
            routes=RouteList.of(steering.table, core.routes),
            containers=merge_containers(answer.containers for answer in answers.values()),
        )

    # Lists

    async def connections(
        self, wanted: Filter, most: int, cursor: str | None
    ) -> Page[ConnectionEntry]:
        """Lists connections, worker by worker, in the order of their coming.

        Raises:
            CursorError: the cursor is none of this list.
        """

        async def some(
            control: Control, room: int, after: tuple[int]
        ) -> tuple[Sequence[ConnectionEntry], tuple[int] | None]:
            page = await control.connections(wanted, room, *after)
            return page.entries, None if page.next is None else (page.next,)

        first, after = decode(cursor, read_number, (0,))
        return await self._in_turn(some, most, (first, after), (0,))

    async def links(self, wanted: Filter, most: int, cursor: str | None) -> Page[LinkRecord]:
        """Lists links, worker by worker, in the order of their attaching.

        Raises:
            CursorError: the cursor is none of this list.
        """

        async def some(
            control: Control, room: int, after: LinkPosition
        ) -> tuple[Sequence[LinkRecord], LinkPosition | None]:
            page = await control.links(wanted, room, after)
            return page.links, page.next

        first, after = decode(cursor, read_link_position, LinkPosition())
        return await self._in_turn(some, most, (first, after), LinkPosition())

    async def _in_turn(
        self,
        some: _Some[Position, Item],
        most: int,
        begin: tuple[int, Position],
        beginning: Position,
    ) -> Page[Item]:
        """Fills a page from one worker after the other.

        Args:
            some: asks one worker for so many items behind a position.
            most: items of the page, at least one.
            begin: the worker to begin with, and the position there.
            beginning: the position in front of everything.
        """
        found: list[tuple[int, Item]] = []
        first, position = begin
        for control in self.workers():
            if control.number < first:
                continue
            if len(found) == most:
                return Page(tuple(found), encode(control.number, beginning))
            after = position if control.number == first else beginning
            items, go_on = await some(control, most - len(found), after)
            found += ((control.number, item) for item in items)
            if go_on is not None:
                return Page(tuple(found), encode(control.number, go_on))
        return Page(tuple(found), None)

    async def deliveries(
        self, wanted: Filter, most: int, cursor: str | None
    ) -> Page[DeliveryRecord]:
        """Lists unsettled deliveries, the oldest of all workers first.

        Raises:
            CursorError: the cursor is none of this list.
        """
        positions = read_positions(cursor)
        pages = await self._ask(
            lambda control: control.deliveries(wanted, most, positions.get(control.number))
        )
        merged = heapq.merge(
            *(_numbered(number, page.deliveries) for number, page in pages.items()),
            key=lambda each: -each[1].age_seconds,
        )
        found = tuple(itertools.islice(merged, most))
        for number, record in found:
            positions[number] = record.position
        held_back = sum(len(page.deliveries) for page in pages.values()) > len(found)
        has_more = held_back or any(page.has_more for page in pages.values())
        is_cut = any(page.is_cut for page in pages.values())
        on_lane = sum(page.on_lane for page in pages.values())
        gaps = tuple(dict.fromkeys(gap for page in pages.values() for gap in page.gaps))
        cursor = write_positions(positions) if has_more else None
        return Page(found, cursor, is_cut, on_lane, gaps)

    # Orders

    async def pause(self, route: str) -> None:
        """Lets nothing move on a route any more.

        Raises:
            UnknownRouteError: there is no route of that name.
        """
        await self._ask(lambda control: control.pause(route))

    async def resume(self, route: str) -> None:
        """Lets a paused route go on.

        Raises:
            UnknownRouteError: there is no route of that name.
        """
        await self._ask(lambda control: control.resume(route))

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        """Decides about the deliveries in doubt that have a tag; returns how many there were."""
        counts = await self._ask(lambda control: control.resolve(tag, link, decision))
        return sum(counts.values())

    @asynccontextmanager
    async def trace(self, pattern: str, most: int) -> AsyncIterator[FleetFeed]:
        """Follows the next ``most`` deliveries, on each worker, of some addresses.

        Raises:
            PatternError: it is no pattern.
        """
        async with AsyncExitStack() as stack:
            feeds = [
                (control.number, await stack.enter_async_context(control.trace(pattern, most)))
                for control in self.workers()
            ]
            nursery = await stack.enter_async_context(trio.open_nursery())
            send, receive = trio.open_memory_channel[list[tuple[int, TraceLine]]](len(feeds))
            async with send:
                for number, feed in feeds:
                    nursery.start_soon(_pass_on, number, feed, send.clone())
            yield _MergedFeed(receive)
            nursery.cancel_scope.cancel()

    async def _ask(self, question: Callable[[Control], Awaitable[Answer]]) -> dict[int, Answer]:
        """Asks all workers at once; returns the answers that come in time, by worker.

        Raises:
            UnknownRouteError, PatternError: what was asked makes no sense to some worker.
        """
        answers: dict[int, Answer] = {}
        refusals: list[RouterError] = []

        async def ask(control: Control) -> None:
            try:
                answers[control.number] = await question(control)
            except (UnknownRouteError, PatternError) as error:
                refusals.append(error)
            except RouterError:
                return  # it is gone, or about to: as silent as one that does not answer

        with trio.move_on_after(ANSWER_SECONDS):
            async with trio.open_nursery() as nursery:
                for control in self.workers():
                    nursery.start_soon(ask, control)
        if refusals:
            raise refusals[0]
        return dict(sorted(answers.items()))


@attrs.define(eq=False)
class _MergedFeed:
    receive: trio.MemoryReceiveChannel[list[tuple[int, TraceLine]]]

    async def take(self) -> list[tuple[int, TraceLine]]:
        try:
            return await self.receive.receive()
        except trio.EndOfChannel:
            return []


async def _pass_on(
    number: int, feed: TraceFeed, send: trio.MemorySendChannel[list[tuple[int, TraceLine]]]
) -> None:
    async with send:
        while lines := await feed.take():
            await send.send([(number, line) for line in lines])


def _numbered(number: int, items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
    return ((number, item) for item in items)
