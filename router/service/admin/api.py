"""The handlers of the API: one method for each row of the table of operations."""

import heapq
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import structlog
import trio
from starlette.responses import Response
from starlette.types import ASGIApp

from router.core.listing import Filter
from router.core.reach import is_sibling_name
from router.core.snapshot import PeerRecord
from router.errors import RouterError
from router.journal.store.looking import Drop
from router.journal.store.queues import route_key
from router.routes.match import parse_pattern
from router.service.admin.asking import BadRequestError, DropBody, StoredBody
from router.service.admin.history import SAMPLE_SECONDS, History, Moment, Sample
from router.service.admin.ranking import RouteWish, survey_routes, weight
from router.service.admin.showing import (
    connection_view,
    located,
    page_of,
    peer_view,
    route_view,
    stored_address_view,
    stored_route_view,
    worker_views,
)
from router.service.admin.tracing import TraceResponse
from router.service.admin.views import (
    ConnectionsView,
    ContainersView,
    DeliveriesView,
    DeliveryView,
    DifferenceView,
    DroppedView,
    HistoryView,
    LinksView,
    LinkView,
    LiveView,
    LogLevelView,
    MeshView,
    OverviewView,
    PeersView,
    ProblemCounts,
    ReadyView,
    ReloadView,
    ReplayedView,
    ResolvedView,
    RouteState,
    RoutesView,
    RouteView,
    StatusView,
    StoredAddressesView,
    StoreView,
)
from router.service.control import MeshRecord, MeshSiteRecord, UnknownRouteError
from router.service.cursor import decode, encode
from router.service.diagnosis.deliveries import stalls
from router.service.diagnosis.problem import Problem
from router.service.diagnosis.readiness import reasons_not_ready, still_ready
from router.service.diagnosis.rules import broken, diagnose
from router.service.difference import Change, Difference
from router.service.fleet import ReloadReport, RouterControl, RouterSnapshot, SilentError
from router.service.metrics import CONTENT_TYPE, render
from router.service.stores import (
    StoredSummary,
    has_store,
    is_answering,
    store_trouble,
    store_unreadable,
    stored_routes,
)

_TAG: Final = re.compile(r"([0-9A-Fa-f]{2}){1,256}")

_ANY: Final = 1 << 62  # messages

DIFFERENCES_MOST: Final = 1000
"""Differences of a reload that its answer lists; it counts all."""

_SENDERS_MOST: Final = 100
"""Deliveries in doubt that are looked at for whether a tag is ambiguous."""


@attrs.frozen
class NotFoundError(RouterError):
    """The requested resource does not exist."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class ConflictError(RouterError):
    """The state of the router does not allow the operation."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class NotNowError(RouterError):
    """The router does not do that in its present state, but may later."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Asked:
    """A request that has been parsed.

    Attributes:
        path: parameters in the path.
        query: parameters in the query, defaults included.
        body: an instance of the operation's class.
    """

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any


Answer = attrs.AttrsInstance | Response | ASGIApp


@attrs.frozen
class Statused:
    """An answer with a status of its own or an action after it.

    Attributes:
        status: the HTTP status, if it is not the operation's.
        after: called when the answer has been sent.
    """

    status: int
    view: attrs.AttrsInstance
    after: Callable[[], None] | None = None


@attrs.define(eq=False)
class Api:
    """Answers requests that have been parsed."""

    control: RouterControl
    history_kept: History
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    # Probes and metrics

    async def livez(self, asked: Asked) -> LiveView:
        """Reports that the process answers, which proves that its event loop runs."""
        return LiveView()

    async def readyz(self, asked: Asked) -> ReadyView | Statused:
        """Returns whether the router is ready for traffic, and why not."""
        try:
            snapshot = await self.control.snapshot()
        except SilentError as error:
            return Statused(503, ReadyView(ready=False, reasons=(str(error),), stalls=()))
        reasons = reasons_not_ready(snapshot)
        wrong = broken(diagnose(snapshot))
        view = ReadyView(
            ready=not reasons,
            reasons=reasons,
            stalls=stalls(snapshot),
            broken=wrong,
            still_ready=still_ready(snapshot) if wrong and not reasons else None,
        )
        return view if view.ready else Statused(503, view)

    async def metrics(self, asked: Asked) -> Response:
        """Renders metrics in a thread: with many routes that would block the loop too long."""
        snapshot = await self.control.snapshot()
        text = await trio.to_thread.run_sync(render, snapshot)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    # The router

    async def status(self, asked: Asked) -> StatusView:
        """Returns a summary of the router's state."""
        snapshot = await self.control.snapshot()
        moment = await self.history_kept.moment(snapshot)
        return self._status(snapshot, moment, diagnose(snapshot))

    def _status(
        self,
        snapshot: RouterSnapshot,
        moment: Moment,
        problems: tuple[Problem, ...],
        most: int | None = None,
    ) -> StatusView:
        core = snapshot.core
        reasons = reasons_not_ready(snapshot)
        oldest = [each.oldest_seconds for each in core.routes if each.oldest_seconds is not None]
        return StatusView(
            id=snapshot.id,
            version=snapshot.version,
            at=snapshot.at,
            uptime_seconds=snapshot.uptime_seconds,
            is_ready=not reasons,
            is_draining=snapshot.is_draining,
            is_standby=snapshot.is_standby,
            lease=snapshot.lease,
            reasons=reasons,
            is_broken=bool((reasons and not snapshot.is_standby) or broken(problems)),
            problems=problems[:most],
            listeners=snapshot.listeners,
            workers=worker_views(snapshot),
            connections=core.connections,
            routes=len(snapshot.routes),
            unsettled=sum(route.incoming_unsettled for route in core.routes),
            queued=sum(route.queued for route in core.routes),
            in_doubt=sum(route.in_doubt for route in core.routes),
            oldest_seconds=max(oldest, default=None),
            payload_octets=core.payload_octets,
            payload_limit_octets=core.payload_limit_octets,
            rates=moment.total,
        )

    async def overview(self, asked: Asked) -> OverviewView:
        """Returns the state of the router at one moment, limited to what fits a screen."""
        most: int = asked.query["most"]
        snapshot = await self.control.snapshot()
        moment = await self.history_kept.moment(snapshot)
        problems = diagnose(snapshot)
        wish = RouteWish(most=most, idle_most=asked.query["idle"], match=asked.query["match"])
        away = _away(snapshot)
        counts, routes = await survey_routes(snapshot.routes, moment, away, wish)
        views = tuple(route_view(each, moment.routes, away) for each in routes)
        hidden = Counter(counts)
        hidden.subtract(each.state for each in views)
        containers = sorted(snapshot.containers, key=lambda each: each.is_connected)
        outside = _outside(snapshot)
        peers = heapq.nsmallest(most, outside, key=weight)
        stored = stored_routes(snapshot)
        deepest = heapq.nlargest(most, stored, key=lambda each: each.record.messages)
        mesh = next((each.mesh for each in snapshot.workers if each.mesh is not None), None)
        return OverviewView(
            status=self._status(snapshot, moment, problems, most),
            hidden_problems=max(0, len(problems) - most),
            problem_counts=_count_problems(problems),
            routes=views,
            hidden_routes=len(snapshot.routes) - len(views),
            hidden_states={state: hidden[state] for state in RouteState if hidden[state]},
            route_counts=counts,
            containers=tuple(containers[:most]),
            hidden_containers=max(0, len(containers) - most),
            peers=tuple(peer_view(each, moment) for each in peers),
            hidden_peers=max(0, len(outside) - most),
            store=_store_view(snapshot, deepest),
            hidden_stores=max(0, len(stored) - most),
            mesh=None if mesh is None else _mesh_view(mesh, most),
            hidden_sites=0 if mesh is None else max(0, len(mesh.sites) - most),
            samples=self._samples(asked.query["since"]),
        )

    def _samples(self, since: float | None) -> tuple[Sample, ...]:
        if since is None:
            return ()
        return tuple(sample for sample in self.history_kept.samples if sample.at > since)

    async def history(self, asked: Asked) -> HistoryView:
        """Returns the samples of the last hour."""
        since = time.time() - asked.query["seconds"]
        return HistoryView(sample_seconds=SAMPLE_SECONDS, samples=self._samples(since))

    async def drain(self, asked: Asked) -> Statused:
        """Starts to drain the router after the answer, because the drain may end at once."""
        to_standby: bool = asked.query["to_standby"]
        steering = self.control.steering
        if to_standby and (reason := steering.why_no_handover()) is not None:
            raise ConflictError(reason)
        snapshot = attrs.evolve(await self.control.snapshot(), is_draining=True)
        moment = await self.history_kept.moment(snapshot)
        status = self._status(snapshot, moment, diagnose(snapshot))
        return Statused(202, status, partial(steering.drain, to_standby=to_standby))

    async def reload(self, asked: Asked) -> ReloadView:
        """Reloads the configuration file, or tells what that would change."""
        is_dry: bool = asked.query["dry_run"]
        report = await (self.control.rehearse() if is_dry else self.control.reload())
        if report.refusal is not None:
            raise NotNowError(report.refusal)
        if report.problems:
            raise ConflictError("\n".join(report.problems))
        return _reload_view(report)

    async def log_level(self, asked: Asked) -> LogLevelView:
        """Returns the log level."""
        return LogLevelView(level=self.control.steering.log_level.value)

    async def set_log_level(self, asked: Asked) -> LogLevelView:
        """Sets the log level."""
        self.control.steering.log_level = asked.body.level
        return await self.log_level(asked)

    # Routes

    async def routes(self, asked: Asked) -> RoutesView:
        """Lists routes."""
        snapshot = await self.control.snapshot()
        some, go_on = _slice(snapshot.routes, asked)
        rates, away = (await self.history_kept.moment(snapshot)).routes, _away(snapshot)
        views = tuple(route_view(each, rates, away) for each in some)
        return RoutesView(routes=views, next=go_on)

    async def route(self, asked: Asked) -> RouteView:
        """Returns the state of one route."""
        name = asked.path["name"]
        snapshot = await self.control.snapshot()
        found = snapshot.routes.find(name)
        if found is None:
            raise UnknownRouteError(name)
        rates = (await self.history_kept.moment(snapshot)).routes
        return route_view(found, rates, _away(snapshot))

    async def pause(self, asked: Asked) -> RouteView:
        """Pauses a route."""
        await self.control.pause(asked.path["name"])
        return await self.route(asked)

    async def resume(self, asked: Asked) -> RouteView:
        """Resumes a paused route."""
        await self.control.resume(asked.path["name"])
        return await self.route(asked)

    async def mesh(self, asked: Asked) -> MeshView:
        """Returns the mesh, and the ways to an address if one is named."""
        found = await self.control.mesh(asked.query["address"])
        if found is None:
            raise NotFoundError("this router is in no mesh: its file has no section mesh")
        return _mesh_view(found)

    # The message store

    async def store(self, asked: Asked) -> StoreView:
        """Lists what the message store holds, by route."""
        snapshot = await self.control.snapshot()
        return _store_view(snapshot, stored_routes(snapshot))

    async def stored_route(self, asked: Asked) -> StoredAddressesView:
        """Lists what the message store holds of one route, by address."""
        name = asked.path["name"]
        snapshot = await self.control.snapshot()
        found = next((each for each in stored_routes(snapshot) if each.name == name), None)
        if found is None:
            if snapshot.routes.find(name) is None:
                raise UnknownRouteError(name)
            raise NotFoundError(f"route {name!r} stores nothing")
        depths = await self.control.look(route_key(name), asked.query["limit"])
        return StoredAddressesView(
            route=stored_route_view(found),
            addresses=tuple(stored_address_view(each, time.time()) for each in depths.held),
            hidden=depths.addresses - len(depths.held),
        )

    async def drop_stored(self, asked: Asked) -> DroppedView:
        """Drops stored messages, the oldest first."""
        body: DropBody = asked.body
        if body.route is None and body.address is None:
            raise BadRequestError("route or address is needed: name what is to be dropped")
        await self._find_stored(body.route)
        if not has_store(await self.control.snapshot()):
            return DroppedView(dropped=0)
        now_ns = time.time_ns()
        count = await self.control.drop(
            Drop(
                route=None if body.route is None else route_key(body.route),
                address=None if body.address is None else body.address.encode(),
                until_ns=now_ns - int(body.older_than_seconds * 1e9),
                most=_ANY if body.count is None else body.count,
                forgets=body.forget,
            )
        )
        self._log.warning(
            "store.dropped",
            route=body.route,
            address=body.address,
            messages=count,
            forgotten=body.forget,
            by=body.by,
        )
        return DroppedView(dropped=count)

    async def replay_stored(self, asked: Asked) -> ReplayedView:
        """Tries stored messages at once that rest, and dead letters that wait."""
        body: StoredBody = asked.body
        await self._find_stored(body.route)
        done = await self.control.replay(body.route, body.address)
        self._log.warning(
            "store.replayed",
            route=body.route,
            address=body.address,
            resting=done.resting,
            revived=done.revived,
            by=body.by,
        )
        return ReplayedView(resting=done.resting, revived=done.revived)

    async def _find_stored(self, name: str | None) -> None:
        """Looks for a route by its name; None is any.

        Raises:
            UnknownRouteError: there is none.
        """
        if name is not None and (await self.control.snapshot()).routes.find(name) is None:
            raise UnknownRouteError(name)

    # Containers, connections, links, deliveries

    async def containers(self, asked: Asked) -> ContainersView:
        """Lists configured containers."""
        snapshot = await self.control.snapshot()
        some, go_on = _slice(snapshot.containers, asked)
        return ContainersView(containers=some, next=go_on)

    async def peers(self, asked: Asked) -> PeersView:
        """Lists containers by the payload and deliveries that they hold."""
        snapshot = await self.control.snapshot()
        return PeersView(peers=_outside(snapshot))

    async def connections(self, asked: Asked) -> ConnectionsView:
        """Lists connections."""
        page = await self.control.connections(*_page(asked))
        return ConnectionsView(
            connections=tuple(connection_view(worker, entry) for worker, entry in page.items),
            next=page.next,
        )

    async def links(self, asked: Asked) -> LinksView:
        """Lists links."""
        page = await self.control.links(*_page(asked))
        return LinksView(links=page_of(LinkView, page), next=page.next)

    async def deliveries(self, asked: Asked) -> DeliveriesView:
        """Lists unsettled deliveries."""
        page = await self.control.deliveries(*_page(asked))
        return DeliveriesView(
            deliveries=tuple(located(DeliveryView, *each) for each in page.items),
            next=page.next,
            is_cut=page.is_cut,
            on_lane=page.on_lane,
            gaps=page.gaps,
        )

    async def resolve(self, asked: Asked) -> ResolvedView:
        """Resolves a delivery in doubt."""
        text = asked.path["tag"]
        count = 0
        if _TAG.fullmatch(text):
            tag = bytes.fromhex(text)
            if asked.body.link is None:
                await self._refuse_ambiguous(tag)
            count = await self.control.resolve(tag, asked.body.link, asked.body.decision)
        if not count:
            raise NotFoundError(f"no delivery in doubt has the tag {text!r}")
        return ResolvedView(resolved=count)

    async def _refuse_ambiguous(self, tag: bytes) -> None:
        """Refuses a tag that the deliveries in doubt of several links have.

        Many clients count from 0, so a tag alone often names deliveries of several senders.
        """
        wanted = Filter(in_doubt=True, tag=tag.hex())
        page = await self.control.deliveries(wanted, _SENDERS_MOST, None)
        links = sorted({f"{each.link} ({each.container})" for _, each in page.items})
        if len(links) > 1:
            raise ConflictError(
                f"deliveries in doubt of {len(links)} links have the tag {tag.hex()}, and none was"
                f" resolved; name the link: {', '.join(links)}"
            )

    async def trace(self, asked: Asked) -> ASGIApp:
        """Traces deliveries, line by line."""
        body = asked.body
        parse_pattern(body.address)  # before anything is answered
        return TraceResponse(self.control, body.address, body.count, body.seconds)


def _mesh_view(mesh: MeshRecord, most: int | None = None) -> MeshView:
    """Returns the mesh; of many sites this router, those that are not reached, and the nearest."""
    sites = mesh.sites
    if most is not None and len(sites) > most:
        sites = tuple(heapq.nsmallest(most, sites, key=partial(_nearness, mesh.router)))
    return MeshView(
        router=mesh.router, is_edge=mesh.is_edge, links=mesh.links, sites=sites, ways=mesh.ways
    )


def _nearness(here: str, site: MeshSiteRecord) -> tuple[bool, int]:
    return site.router != here, -1 if site.cost is None else site.cost


def _store_view(snapshot: RouterSnapshot, routes: Iterable[StoredSummary]) -> StoreView:
    return StoreView(
        is_connected=is_answering(snapshot) if has_store(snapshot) else None,
        routes=tuple(map(stored_route_view, routes)),
        trouble=store_trouble(snapshot),
        unreadable=store_unreadable(snapshot),
    )


def _away(snapshot: RouterSnapshot) -> frozenset[str]:
    """Returns the names of the containers that are not connected."""
    return frozenset(each.name for each in snapshot.containers if not each.is_connected)


def _page(asked: Asked) -> tuple[Filter, int, str | None]:
    query = asked.query
    wanted = Filter(
        route=query.get("route"),
        container=query.get("container"),
        in_doubt=query.get("in_doubt", False),
    )
    return wanted, query["limit"], query["after"]


Item = TypeVar("Item")


def _slice(items: Sequence[Item], asked: Asked) -> tuple[tuple[Item, ...], str | None]:
    """Returns a page of a list with a fixed order, and the cursor of the next page."""

    def read(position: Any) -> int:
        return max(0, int(position))

    _, begin = decode(asked.query["after"], read, 0)
    end = begin + asked.query["limit"]
    return tuple(items[begin:end]), encode(0, end) if end < len(items) else None


def _outside(snapshot: RouterSnapshot) -> tuple[PeerRecord, ...]:
    """Returns the peers without the router's own workers."""
    return tuple(each for each in snapshot.core.peers if not is_sibling_name(each.container))


def _count_problems(problems: Sequence[Problem]) -> ProblemCounts:
    counts = {"error": 0, "warning": 0, "note": 0}
    for each in problems:
        counts[each.severity] += 1
    return ProblemCounts(**counts)


def _reload_view(report: ReloadReport) -> ReloadView:
    differences = report.differences
    counts = Counter(each.change for each in differences if not each.waits_for_restart)
    return ReloadView(
        differences=tuple(
            DifferenceView(
                section=each.section,
                name=each.name,
                change=each.change,
                options=each.options,
                waits_for_restart=each.waits_for_restart,
                kept=each.kept,
                effects=each.effects,
            )
            for each in _told(differences)
        ),
        total=len(differences),
        added=counts[Change.ADDED],
        removed=counts[Change.REMOVED],
        changed=counts[Change.CHANGED],
        waiting=len(differences) - counts.total(),
        refused=report.refused,
    )


def _told(differences: Sequence[Difference]) -> Sequence[Difference]:
    """Returns the differences that an answer lists: of too many routes only the first."""
    if len(differences) <= DIFFERENCES_MOST:
        return differences

    def is_usual(at: int) -> bool:
        each = differences[at]
        return each.section == "routes" and not (each.kept or each.waits_for_restart)

    first = sorted(range(len(differences)), key=is_usual)[:DIFFERENCES_MOST]
    return [differences[at] for at in sorted(first)]
