"""Presents all workers as one router: asks every worker and merges the answers.

``RouterControl`` is the admin endpoint's interface to the router. It asks each worker through its
``Control``, and the process as a whole (``Steering``, implemented by ``run``) about listeners,
drain, reload and the log. A worker that does not answer within ``ANSWER_SECONDS`` is left out and
listed as silent; it does not delay the others.

All workers are surveyed at the same moment, so that their counts can be added up. The merged survey
is reused for ``FRESH_SECONDS``, whoever asks for it: a worker's own recent survey would be of
another moment than the others'.
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
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
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
from router.journal.store.looking import Drop
from router.journal.store.queues import RouteKey
from router.net.store import operating
from router.routes.match import PatternError
from router.routes.table import RoutingTable
from router.service.books import Books
from router.service.certificates import NO_TLS, TlsRecord, tell_in_use
from router.service.config.process import LogLevel
from router.service.control import (
    FRESH_SECONDS,
    SAME_MOMENT_SECONDS,
    ConnectionEntry,
    ContainerRecord,
    Control,
    MeshRecord,
    Replayed,
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
from router.service.lease import LeaseRecord
from router.service.lives import NONE_WAIT, WaitingClients, WorkerLives
from router.service.merge import merge_containers, merge_cores
from router.service.rehearsal import FindRecord, ListLinks
from router.service.route_list import RouteList

REHEARSED_LINKS: Final = 10_000
"""Links of one route that a rehearsal looks at."""

_LINKS_AT_ONCE: Final = 500

ANSWER_SECONDS: Final = 5.0

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Position = TypeVar("Position")


_Some = Callable[[Control, int, Position], Awaitable[tuple[Sequence[Item], Position | None]]]


@attrs.frozen(kw_only=True)
class ListenerRecord:
    """One listener of the configuration.

    Attributes:
        addresses: where it listens, with the ports that the system chose for port 0; none: it is
            closed.
    """

    name: str
    addresses: tuple[str, ...]
    protocols: tuple[str, ...]
    has_tls: bool


@attrs.frozen(kw_only=True)
class ReloadReport:
    """Result of a reload of the configuration file.

    Attributes:
        differences: the changes applied; none if there are problems.
        problems: why the file was refused, as ``router check`` would print them.
        refusal: why the router reads no file now; None: it has read it.
        refused: why changed TLS files are not used, whatever the reload did.
    """

    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()
    refusal: str | None = None
    refused: tuple[str, ...] = ()


class Steering(Interface):
    """State and operations of the router as a whole, as opposed to one worker."""

    @property
    def id(self) -> str:
        """The router's container-id."""

    @property
    def started_at(self) -> float:
        """Start time of the router, in seconds since 1970, by the clock as it stood then."""

    @property
    def uptime_seconds(self) -> float:
        """Time since the router was started, however its clock was set since."""

    @property
    def is_draining(self) -> bool:
        """Whether the router is draining."""

    @property
    def required_containers(self) -> Sequence[str]:
        """Names of the containers without which the router is not ready."""

    @property
    def books(self) -> Books:
        """What is written down beside serving."""

    @property
    def tls(self) -> TlsRecord:
        """The certificates of the admin endpoint."""

    @property
    def awaits_restart(self) -> Sequence[str]:
        """Options whose values in the file wait for a restart."""

    @property
    def is_standby(self) -> bool:
        """Whether this router waits until it may lead."""

    @property
    def lives(self) -> Sequence[WorkerLives]:
        """What became of the workers' processes; none: the only worker is this process."""

    @property
    def waiting(self) -> WaitingClients:
        """Accepted connections that wait for a worker which is being started."""

    @property
    def table(self) -> RoutingTable:
        """The routing table in force."""

    @property
    def log_level(self) -> LogLevel:
        """The least severity that is logged; can be set."""

    @log_level.setter
    def log_level(self, level: LogLevel) -> None: ...

    def listeners(self) -> tuple[ListenerRecord, ...]:
        """Returns the listeners and their addresses."""

    def why_no_worker(self) -> str:
        """Says what the router does while it has no worker that serves."""

    def why_no_handover(self) -> str | None:
        """Returns why the lease cannot be left to a standby; None: it can, or this is under way."""

    def drain(self, *, to_standby: bool = False) -> None:
        """Starts to drain the router; further calls have no effect, save that to end prevails.

        Args:
            to_standby: it then waits as a standby, and leaves the lease to another router; without
                effect if there is a reason against it (``why_no_handover``).
        """

    async def reload(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reads the configuration file again and applies it if it is valid."""

    async def rehearse(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reads the configuration file again and reports what a reload would change."""


@attrs.frozen(kw_only=True)
class RouterSnapshot:
    """The state of the whole router at one time.

    Attributes:
        at: time of the snapshot, in seconds since 1970.
        started_at: likewise, by the clock as it stood then.
        uptime_seconds: since then, however the clock was set.
        silent: numbers of workers that did not answer.
        journal_trouble: why the journal cannot be opened or, on PostgreSQL, written; None: it can,
            or there is none.
        lease: who leads; None: the journal is in files, or there is none.
        is_standby: this router waits until it may lead.
        tls: the certificates of all workers and of the admin endpoint.
        awaits_restart: options whose values in the file wait for a restart.
        lives: what became of the workers' processes, if there are several.
        waiting: accepted connections that wait for a worker.
        core: merged snapshot of all workers' cores, with the routes that have been used.
        routes: all routes.
        containers: merged records of all workers, in the order of the file.
        ledger_trouble: why the ledger is not kept up to date; None: it is, or none is kept.
        tracing_trouble: why spans are not exported; None: they are, or none are wanted.
        tracing_dropped: segments that were dropped before their spans were exported.
        tracing_refused: spans that the collector has refused for good.
        tracing_refusal: why it has last refused some; None: it has refused none.
    """

    id: str
    version: str
    at: float
    started_at: float
    uptime_seconds: float
    is_draining: bool
    required_containers: tuple[str, ...]
    listeners: tuple[ListenerRecord, ...]
    workers: tuple[WorkerSnapshot, ...]
    silent: tuple[int, ...]
    core: Snapshot
    routes: RouteList
    containers: tuple[ContainerRecord, ...]
    ledger_trouble: str | None = None
    tracing_trouble: str | None = None
    tracing_dropped: int = 0
    tracing_refused: int = 0
    tracing_refusal: str | None = None
    journal_trouble: str | None = None
    lease: LeaseRecord | None = None
    is_standby: bool = False
    tls: TlsRecord = NO_TLS
    awaits_restart: tuple[str, ...] = ()
    lives: tuple[WorkerLives, ...] = ()
    waiting: WaitingClients = NONE_WAIT


@attrs.frozen
class Page(Generic[Item]):
    """Some items of a list, each with the number of its worker.

    Attributes:
        next: cursor of the next page; None: this is the last page.
        is_cut: the list was too long to search; its rest is left out.
        on_lane: deliveries on the express lane that are only counted.
        gaps: for deliveries in doubt, what the journal misses.
    """

    items: tuple[tuple[int, Item], ...]
    next: str | None
    is_cut: bool = False
    on_lane: int = 0
    gaps: tuple[str, ...] = ()


@attrs.frozen
class SilentError(RouterError):
    """No worker has answered.

    Attributes:
        reason: why there is none that could; None: none has answered in time.
    """

    reason: str | None = None

    def __str__(self) -> str:
        return self.reason or f"no worker answers within {ANSWER_SECONDS:g} s"


class FleetFeed(Interface):
    """Lines of a running trace, each with the number of its worker."""

    async def take(self) -> list[tuple[int, TraceLine]]:
        """Waits for lines and returns them; none: the trace has ended."""


@attrs.frozen(kw_only=True)
class _Survey:
    """What the workers have answered at one moment.

    Attributes:
        taken_at: when the last one answered, on Trio's clock.
        asked: numbers of the workers that were asked.
        table: the routing table that was in force.
    """

    taken_at: float
    asked: tuple[int, ...]
    table: RoutingTable
    answers: tuple[WorkerSnapshot, ...]
    core: Snapshot
    containers: tuple[ContainerRecord, ...]


@attrs.define(eq=False)
class RouterControl:
    """One router, as the admin endpoint sees it.

    Attributes:
        steering: the process as a whole.
        workers: returns the workers that are up, in the order of their numbers.
        fresh_seconds: greatest age of a survey that is reused.
    """

    steering: Steering
    workers: Callable[[], Sequence[Control]]
    fresh_seconds: float = FRESH_SECONDS
    _surveying: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _last: _Survey | None = attrs.field(default=None, init=False)
    _silent_at: float = attrs.field(default=float("-inf"), init=False)

    async def snapshot(self) -> RouterSnapshot:
        """Asks every worker for its state and merges the answers.

        Raises:
            SilentError: no worker answers.
        """
        asked_at = trio.current_time()
        if not self.workers():
            raise SilentError(self.steering.why_no_worker())
        async with self._surveying:
            if self._silent_at >= asked_at:  # the survey that this request has waited for
                raise SilentError
            survey = self._last
            if survey is None or not self._is_fresh(survey):
                survey = self._last = await self._survey()
        steering, books = self.steering, self.steering.books
        answered = {answer.worker for answer in survey.answers}
        return RouterSnapshot(
            id=steering.id,
            version=__version__,
            at=max(answer.at for answer in survey.answers),
            started_at=steering.started_at,
            uptime_seconds=steering.uptime_seconds,
            is_draining=steering.is_draining,
            required_containers=tuple(steering.required_containers),
            listeners=steering.listeners(),
            workers=survey.answers,
            silent=tuple(number for number in survey.asked if number not in answered),
            core=survey.core,
            routes=RouteList.of(steering.table, survey.core.routes),
            containers=survey.containers,
            ledger_trouble=books.ledger.trouble,
            tracing_trouble=books.tracing.trouble,
            tracing_dropped=books.tracing.dropped,
            tracing_refused=books.tracing.refused,
            tracing_refusal=books.tracing.refusal,
            journal_trouble=books.journal_trouble,
            lease=books.lease,
            is_standby=steering.is_standby,
            tls=TlsRecord.merged((*(each.tls for each in survey.answers), steering.tls)),
            awaits_restart=tuple(steering.awaits_restart),
            lives=tuple(steering.lives),
            waiting=steering.waiting,
        )

    def _is_fresh(self, survey: _Survey) -> bool:
        is_young = trio.current_time() - survey.taken_at <= self.fresh_seconds
        asked = tuple(control.number for control in self.workers())
        return is_young and survey.asked == asked and survey.table is self.steering.table

    async def _survey(self) -> _Survey:
        table = self.steering.table
        asked = tuple(control.number for control in self.workers())
        found = await self._ask(lambda control: control.snapshot(SAME_MOMENT_SECONDS))
        if not found:
            self._silent_at = trio.current_time()
            raise SilentError
        answers = tuple(found.values())
        return _Survey(
            taken_at=trio.current_time(),
            asked=asked,
            table=table,
            answers=answers,
            core=merge_cores([answer.core for answer in answers]),
            containers=merge_containers(answer.containers for answer in answers),
        )

    async def rehearse(self) -> ReloadReport:
        """Reports what a reload would change; changes nothing.

        Raises:
            SilentError: no worker answers.
        """
        snapshot = await self.snapshot()
        report = await self.steering.rehearse(snapshot.routes.used.get, self._links_of)
        return attrs.evolve(report, refused=snapshot.tls.refused)

    async def reload(self) -> ReloadReport:
        """Reads the configuration file again and applies it if it is valid.

        Without an answer of the workers the report does not say what was affected.
        """
        try:
            snapshot = await self.snapshot()
        except SilentError:
            report = await self.steering.reload(lambda _: None, _no_links)
        else:
            report = await self.steering.reload(snapshot.routes.used.get, self._links_of)
        if report.problems or report.refusal is not None:
            return report
        with suppress(SilentError):
            report = attrs.evolve(report, refused=await self.tell_certificates())
        return report

    async def tell_certificates(self) -> tuple[str, ...]:
        """Logs which certificates in use are not valid, or will not be before long.

        Returns:
            Why changed TLS files are not used.

        Raises:
            SilentError: no worker answers.
        """
        self._last = None  # from before the reload
        snapshot = await self.snapshot()
        tell_in_use(snapshot.tls, snapshot.at)
        return snapshot.tls.refused

    async def _links_of(self, route: str) -> Sequence[LinkRecord] | None:
        """Returns all links of a route; None: there are too many."""
        found: list[LinkRecord] = []
        cursor = None
        while len(found) < REHEARSED_LINKS:
            page = await self.links(Filter(route=route), _LINKS_AT_ONCE, cursor)
            found += (link for _, link in page.items)
            cursor = page.next
            if cursor is None:
                return found
        return None

    # Lists

    async def connections(
        self, wanted: Filter, most: int, cursor: str | None
    ) -> Page[ConnectionEntry]:
        """Lists connections, worker by worker, in the order of their arrival.

        Raises:
            CursorError: the cursor is not one of this list.
        """

        async def some(
            control: Control, count: int, after: tuple[int]
        ) -> tuple[Sequence[ConnectionEntry], tuple[int] | None]:
            page = await control.connections(wanted, count, *after)
            return page.entries, None if page.next is None else (page.next,)

        first, after = decode(cursor, read_number, (0,))
        return await self._in_turn(some, most, (first, after), (0,))

    async def links(self, wanted: Filter, most: int, cursor: str | None) -> Page[LinkRecord]:
        """Lists links, worker by worker, in the order of their attaching.

        Raises:
            CursorError: the cursor is not one of this list.
        """

        async def some(
            control: Control, count: int, after: LinkPosition
        ) -> tuple[Sequence[LinkRecord], LinkPosition | None]:
            page = await control.links(wanted, count, after)
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
            some: asks one worker for up to so many items after a position.
            most: items of the page, at least one.
            begin: the first worker to ask, and the position in its list.
            beginning: the position before the first item.
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
            CursorError: the cursor is not one of this list.
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

    async def look(self, route: RouteKey | None, most: int) -> operating.Depths:
        """Asks the message store which addresses hold most.

        Args:
            route: of the addresses; None: any.
            most: addresses that are answered.

        Raises:
            StoreAwayError: the store does not answer.
        """
        path, router = self._store_place()
        with _answering_in_time():
            return await operating.look(path, router, route, most)

    def _store_place(self) -> tuple[Path, str]:
        """Returns the socket of the message store, and whose it is.

        Raises:
            StoreAwayError: there is none.
        """
        path = self.steering.books.message_store
        if path is None:
            raise operating.StoreAwayError("no route stores messages")
        return path, self.steering.id

    # Orders

    async def pause(self, route: str) -> None:
        """Pauses a route: its deliveries are no longer forwarded.

        Raises:
            UnknownRouteError: there is no route of that name.
        """
        await self._order(lambda control: control.pause(route))

    async def resume(self, route: str) -> None:
        """Resumes a paused route.

        Raises:
            UnknownRouteError: there is no route of that name.
        """
        await self._order(lambda control: control.resume(route))

    async def resolve(self, tag: bytes, link: str | None, decision: Decision) -> int:
        """Resolves the deliveries in doubt that have a tag; returns how many there were."""
        counts = await self._order(lambda control: control.resolve(tag, link, decision))
        return sum(counts.values())

    async def drop(self, wanted: Drop) -> int:
        """Drops stored messages; returns how many there were.

        Raises:
            StoreAwayError: the store does not answer.
        """
        count = 0
        path, router = self._store_place()
        steps = operating.drop(path, router, wanted)
        async with aclosing(steps):
            while True:
                with _answering_in_time():
                    step = await anext(steps, None)
                if step is None:
                    return count
                count += step

    async def replay(self, route: str | None, address: str | None) -> Replayed:
        """Tries stored messages at once that rest, and dead letters that wait."""
        answers = await self._order(lambda control: control.replay(route, address))
        return Replayed(
            resting=sum(each.resting for each in answers.values()),
            revived=sum(each.revived for each in answers.values()),
        )

    async def mesh(self, address: str | None) -> MeshRecord | None:
        """Returns the mesh as the worker knows it that serves it; None: there is none."""
        answers = await self._ask(lambda control: control.mesh(address))
        return next((each for each in answers.values() if each is not None), None)

    async def _order(self, order: Callable[[Control], Awaitable[Answer]]) -> dict[int, Answer]:
        """Has all workers do something, after which the last survey is out of date."""
        try:
            return await self._ask(order)
        finally:
            self._last = None

    @asynccontextmanager
    async def trace(self, pattern: str, most: int) -> AsyncIterator[FleetFeed]:
        """Traces the next ``most`` deliveries, on each worker, of addresses that match a pattern.

        Raises:
            PatternError: the pattern is malformed.
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
            UnknownRouteError, PatternError: some worker refuses the question.
        """
        answers: dict[int, Answer] = {}
        refusals: list[RouterError] = []

        async def ask(control: Control) -> None:
            try:
                answers[control.number] = await question(control)
            except (UnknownRouteError, PatternError) as error:
                refusals.append(error)
            except RouterError:
                return  # the worker is gone or ending, and counts as silent

        with trio.move_on_after(ANSWER_SECONDS):
            async with trio.open_nursery() as nursery:
                for control in self.workers():
                    nursery.start_soon(ask, control)
        if refusals:
            raise refusals[0]
        return dict(sorted(answers.items()))


async def _no_links(route: str) -> Sequence[LinkRecord]:
    """Returns no links: none are known."""
    return ()


@contextmanager
def _answering_in_time() -> Iterator[None]:
    """Bounds the time of a question to the message store.

    Raises:
        StoreAwayError: it does not answer.
    """
    try:
        with trio.fail_after(ANSWER_SECONDS):
            yield
    except trio.TooSlowError:
        raise operating.StoreAwayError(f"not within {ANSWER_SECONDS:g} s") from None


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
