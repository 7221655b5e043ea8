"""The table of the operations that a running router offers over HTTP."""

from typing import Final

from router.service.admin.api import Api
from router.service.admin.asking import (
    PAGE_MOST,
    PAGE_USUAL,
    DropBody,
    LogLevelBody,
    Parameter,
    ResolveBody,
    StoredBody,
    TraceBody,
)
from router.service.admin.openapi import Operation
from router.service.admin.views import (
    ConnectionsView,
    ContainersView,
    DeliveriesView,
    DroppedView,
    HistoryView,
    LinksView,
    LiveView,
    LogLevelView,
    MeshView,
    OverviewView,
    PeersView,
    ReadyView,
    ReloadView,
    ReplayedView,
    ResolvedView,
    RoutesView,
    RouteView,
    StatusView,
    StoredAddressesView,
    StoreView,
)

METRICS_TYPE: Final = "text/plain"
LINES_TYPE: Final = "application/x-ndjson"
ROOT: Final = "/api/v1"

_ROUTE = Parameter(name="route", description="only items of the route with this name")
_CONTAINER = Parameter(
    name="container",
    description="only items of this container: its container-id, or its name in the configuration",
)
_NAME = Parameter(name="name", description="name of the route", in_path=True)
_PAGE = (
    Parameter(
        name="limit",
        description="items on a page",
        kind=int,
        bounds={"minimum": 1, "maximum": PAGE_MOST},
        default=PAGE_USUAL,
    ),
    Parameter(
        name="after",
        description="cursor: `next` of the page before",
        bounds={"maxLength": 8192, "pattern": "^[A-Za-z0-9_-]*$"},
    ),
)
_NO_ROUTE = {404: "there is no route of that name"}
_NO_PAGE = {404: "the cursor does not belong to this list"}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/livez",
        summary="Whether the process answers; needs no token.",
        handler=Api.livez,
        answer=LiveView,
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        summary="Whether traffic should be sent here, and why not; needs no token.",
        handler=Api.readyz,
        answer=ReadyView,
        is_open=True,
        also={503: "not ready"},
    ),
    Operation(
        method="GET",
        path="/metrics",
        summary="Metrics in the text format of Prometheus.",
        handler=Api.metrics,
        answer=METRICS_TYPE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/status",
        summary="The router's status in short, and its problems.",
        handler=Api.status,
        answer=StatusView,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/overview",
        summary="Overview: status, routes, containers and peers, the worst first.",
        handler=Api.overview,
        answer=OverviewView,
        parameters=(
            Parameter(
                name="most",
                description="problems, routes, containers and peers that are shown",
                kind=int,
                bounds={"minimum": 1, "maximum": PAGE_MOST},
                default=50,
            ),
            Parameter(
                name="idle",
                description="if there are more idle routes than that, none of them is shown; left"
                " out: they are shown after the others",
                kind=int,
                bounds={"minimum": 0},
            ),
            Parameter(
                name="match",
                description="only routes with this text in their name, address, from or to",
            ),
            Parameter(
                name="since",
                description="samples of the history that are later, in seconds since 1970; left"
                " out: none",
                kind=int,
                bounds={"minimum": 0},
            ),
        ),
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/history",
        summary="The router's history of the last hour.",
        handler=Api.history,
        answer=HistoryView,
        parameters=(
            Parameter(
                name="seconds",
                description="how far back",
                kind=int,
                bounds={"minimum": 1, "maximum": 3600},
                default=900,
            ),
        ),
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/routes",
        summary="Routes, in the order of the configuration.",
        handler=Api.routes,
        answer=RoutesView,
        parameters=_PAGE,
        errors=_NO_PAGE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/routes/{{name}}",
        summary="One route.",
        handler=Api.route,
        answer=RouteView,
        parameters=(_NAME,),
        errors=_NO_ROUTE,
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/routes/{{name}}/pause",
        summary="Pause a route: received deliveries wait; outcomes of sent ones are still handled.",
        handler=Api.pause,
        answer=RouteView,
        parameters=(_NAME,),
        errors=_NO_ROUTE,
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/routes/{{name}}/resume",
        summary="Resume a paused route.",
        handler=Api.resume,
        answer=RouteView,
        parameters=(_NAME,),
        errors=_NO_ROUTE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/mesh",
        summary="The mesh as this router knows it: links, sites, and the ways to an address.",
        handler=Api.mesh,
        answer=MeshView,
        parameters=(
            Parameter(name="address", description="also the ways that a message to it may take"),
        ),
        errors={404: "the router is in no mesh"},
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/store",
        summary="What the message store holds, by route, in the order of the configuration.",
        handler=Api.store,
        answer=StoreView,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/store/{{name}}",
        summary="What the message store holds of one route: the addresses that hold most.",
        handler=Api.stored_route,
        answer=StoredAddressesView,
        parameters=(
            _NAME,
            Parameter(
                name="limit",
                description="addresses that are listed",
                kind=int,
                bounds={"minimum": 1, "maximum": PAGE_MOST},
                default=PAGE_USUAL,
            ),
        ),
        errors={404: "there is no route of that name, or it stores nothing"},
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/store-drop",
        summary="Drop stored messages, the oldest first: they become dead letters, or are deleted.",
        handler=Api.drop_stored,
        answer=DroppedView,
        body=DropBody,
        errors=_NO_ROUTE,
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/store-replay",
        summary="Try stored messages now that rest after failures, and dead letters that wait.",
        handler=Api.replay_stored,
        answer=ReplayedView,
        body=StoredBody,
        errors=_NO_ROUTE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/containers",
        summary="Configured containers, in the order of the configuration.",
        handler=Api.containers,
        answer=ContainersView,
        parameters=_PAGE,
        errors=_NO_PAGE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/peers",
        summary="Containers by their unsettled deliveries and traffic, configured or not.",
        handler=Api.peers,
        answer=PeersView,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/connections",
        summary="Open connections, in the order in which they opened.",
        handler=Api.connections,
        answer=ConnectionsView,
        parameters=(_CONTAINER, *_PAGE),
        errors=_NO_PAGE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/links",
        summary="Links, in the order of their attach; suspended links last.",
        handler=Api.links,
        answer=LinksView,
        parameters=(_ROUTE, _CONTAINER, *_PAGE),
        errors=_NO_PAGE,
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/deliveries",
        summary="Unsettled deliveries, the oldest first.",
        handler=Api.deliveries,
        answer=DeliveriesView,
        parameters=(
            _ROUTE,
            _CONTAINER,
            Parameter(
                name="in_doubt",
                description="only deliveries in doubt",
                kind=bool,
                bounds={},
                default=False,
            ),
            *_PAGE,
        ),
        errors=_NO_PAGE,
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/deliveries/{{tag}}/resolve",
        summary="Resolve a delivery in doubt.",
        handler=Api.resolve,
        answer=ResolvedView,
        parameters=(
            Parameter(
                name="tag",
                description="its delivery-tag, in hexadecimal digits",
                in_path=True,
                bounds={"pattern": "^([0-9A-Fa-f]{2})+$", "maxLength": 512},
            ),
        ),
        body=ResolveBody,
        errors={
            404: "no delivery in doubt has that tag",
            409: "deliveries of several links have that tag, and `link` names none of them",
        },
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/trace",
        summary="Trace the next deliveries of an address: one JSON object per line.",
        handler=Api.trace,
        answer=LINES_TYPE,
        body=TraceBody,
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/drain",
        summary="Drain: finish open deliveries, accept no new ones, and end.",
        handler=Api.drain,
        answer=StatusView,
        status=202,
        parameters=(
            Parameter(
                name="to_standby",
                description="do not end: leave the lease to the standby, and become its standby",
                kind=bool,
                bounds={},
                default=False,
            ),
        ),
        errors={409: "this router cannot become a standby: the file has none, it is one, or ends"},
    ),
    Operation(
        method="POST",
        path=f"{ROOT}/reload",
        summary="Read the configuration file again, and apply it if it is valid.",
        handler=Api.reload,
        answer=ReloadView,
        parameters=(
            Parameter(
                name="dry_run",
                description="only tell what a reload would change",
                kind=bool,
                bounds={},
                default=False,
            ),
        ),
        errors={
            409: "the file has problems; nothing has changed",
            503: "the router is a standby, is draining, or has not begun to serve",
        },
    ),
    Operation(
        method="GET",
        path=f"{ROOT}/log-level",
        summary="The least severity that is logged.",
        handler=Api.log_level,
        answer=LogLevelView,
    ),
    Operation(
        method="PUT",
        path=f"{ROOT}/log-level",
        summary="Set the least severity that is logged, until the next start.",
        handler=Api.set_log_level,
        answer=LogLevelView,
        body=LogLevelBody,
    ),
)
"""One row for each operation."""
