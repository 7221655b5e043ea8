"""The web application: the table of operations, the OpenAPI document and the console's files."""

import gzip
import hashlib
import importlib.resources
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import structlog
import trio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from router.errors import RouterError
from router.model.place import BindAddress
from router.routes.match import PatternError
from router.service.admin.api import Api, Asked, ConflictError, NotFoundError, NotNowError, Statused
from router.service.admin.asking import (
    BODY_OCTETS_MOST,
    BadRequestError,
    Parameter,
    read_body,
    read_query,
)
from router.service.admin.guard import PROBES, Guard, ProbeDoor
from router.service.admin.history import History
from router.service.admin.openapi import Operation, document
from router.service.admin.operations import OPERATIONS
from router.service.admin.problems import problem
from router.service.admin.showing import as_json
from router.service.control import UnknownRouteError
from router.service.cursor import CursorError
from router.service.fleet import RouterControl

BODY_SECONDS: Final = 10.0
"""Time in which a body has to arrive."""

GZIP_OCTETS: Final = 1400
"""Shorter answers fit a packet, and are not compressed."""

GZIP_LEVEL: Final = 1
"""The console's answers shrink to a tenth, at 8 us per KiB."""

_WANTED: Final = re.compile(r"gzip;q=(1(\.0*)?|0?\.[0-9]*[1-9][0-9]*)")

_STATUSES: Final[Mapping[type[RouterError], int]] = {
    BadRequestError: 400,
    PatternError: 400,
    CursorError: 404,
    NotFoundError: 404,
    UnknownRouteError: 404,
    ConflictError: 409,
    NotNowError: 503,
}
"""Any other error of ours means that the request cannot be served now, because a worker has just
ended for example."""

_SCRIPTS: Final = ["api", "app", "boxes", "dom", "plots", "sites", "summary", "tables", "topology"]

_FILES: Final = {
    "index.html": "text/html",
    "style.css": "text/css",
    **dict.fromkeys((f"{name}.js" for name in _SCRIPTS), "text/javascript"),
    "icon.svg": "image/svg+xml",
}
"""Files of the console, and their media types."""

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def make_app(
    control: RouterControl, history: History, bind: BindAddress, token: str | None
) -> ASGIApp:
    """Makes the application.

    Args:
        control: the router.
        history: samples of the last hour; the caller runs it.
        bind: the address where the application is served.
        token: that requests must carry; None: they need none.
    """
    routes = _routes(Api(control, history), OPERATIONS)
    routes += [_text_route("/openapi.json", json.dumps(document(OPERATIONS)), "application/json")]
    routes += _console_routes()
    return Guard(_application(routes), control.steering.id, bind, token)


def make_probe_app(control: RouterControl) -> ASGIApp:
    """Makes the application that answers probes alone.

    Args:
        control: the router.
    """
    some = [operation for operation in OPERATIONS if operation.path in PROBES]
    return ProbeDoor(_application(_routes(Api(control, History()), some)))


def _application(routes: Sequence[BaseRoute]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _answer_http_error, Exception: _answer_defect},
    )
    app.router.redirect_slashes = False
    return app


def _routes(api: Api, operations: Iterable[Operation]) -> list[BaseRoute]:
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    longest_first = sorted(by_path.items(), key=lambda each: -each[0].count("/"))
    return [_route(api, path, some) for path, some in longest_first]


def _route(api: Api, path: str, operations: list[Operation]) -> Route:
    """Serves one path; its operations differ in their methods."""
    by_method = {operation.method: operation for operation in operations}

    async def answer(request: Request) -> ASGIApp:
        method = "GET" if request.method == "HEAD" else request.method
        return await _answer(api, by_method[method], request)

    # a name in the path may hold slashes
    return Route(path.replace("}", ":path}"), answer, methods=list(by_method))


async def _answer(api: Api, operation: Operation, request: Request) -> ASGIApp:
    try:
        asked = await _read(operation, request)
        answer = await operation.handler(api, asked)
    except _RefusedBodyError as error:
        return problem(error.status, error.reason)
    except RouterError as error:
        return problem(_STATUSES.get(type(error), 503), str(error))
    status, after = operation.status, None
    if isinstance(answer, Statused):
        status, after, answer = answer.status, answer.after, answer.view
    if attrs.has(type(answer)) and not callable(answer):
        octets = json.dumps(as_json(answer), separators=(",", ":")).encode()
        headers = {"cache-control": "no-store", "vary": "accept-encoding"}
        if len(octets) >= GZIP_OCTETS and _accepts_gzip(request):
            octets = gzip.compress(octets, GZIP_LEVEL, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(
            octets,
            status,
            headers=headers,
            media_type="application/json",
            background=None if after is None else _Afterwards(after),
        )
    done: ASGIApp = answer
    return done


def _accepts_gzip(request: Request) -> bool:
    """Returns whether an answer may be compressed (RFC 9110, 12.5.3)."""
    given = request.headers.get("accept-encoding", "").lower().replace(" ", "").split(",")
    return any(each == "gzip" or _WANTED.fullmatch(each) for each in given)


class _Afterwards(BackgroundTask):
    """Calls a function when an answer has been sent; in the loop, not in a thread."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(action)
        self._action = action

    async def __call__(self) -> None:
        """Calls the function."""
        self._action()


@attrs.frozen
class _RefusedBodyError(RouterError):
    status: int
    reason: str


async def _read(operation: Operation, request: Request) -> Asked:
    path = {name: str(value) for name, value in request.path_params.items()}
    _check_path(operation.parameters, path)
    query = read_query(operation.parameters, request.query_params.multi_items())
    octets = await _read_octets(request)
    body = None
    if operation.body is not None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _RefusedBodyError(415, "the body is application/json here")
        body = read_body(operation.body, octets)
    return Asked(path=path, query=query, body=body)


def _check_path(parameters: "tuple[Parameter, ...] | Any", path: Mapping[str, str]) -> None:
    for parameter in parameters:
        most = parameter.bounds.get("maxLength")
        if parameter.in_path and most is not None and len(path[parameter.name]) > most:
            raise BadRequestError(f"parameter {parameter.name!r} is more than {most} characters")


async def _read_octets(request: Request) -> bytes:
    """Reads the body, even of an operation that ignores it, within its bounds."""
    octets = b""
    try:
        with trio.fail_after(BODY_SECONDS):
            async for some in request.stream():
                octets += some
                if len(octets) > BODY_OCTETS_MOST:
                    raise _RefusedBodyError(413, f"a body has {BODY_OCTETS_MOST} octets at most")
    except trio.TooSlowError:
        raise _RefusedBodyError(408, f"no body within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise _RefusedBodyError(400, "the body ends in the middle") from None
    return octets


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = problem(error.status_code, error.detail)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _answer_defect(request: Request, error: Exception) -> Response:
    structlog.get_logger().error("admin.failed", address=request.url.path, exc_info=error)
    return problem(500, "a defect of the router; its log says more")


# Files


def _console_routes() -> list[BaseRoute]:
    folder = importlib.resources.files("router.service.admin") / "console"
    texts = {name: (folder / name).read_text("utf-8") for name in _FILES}
    served = [_text_route(f"/console/{name}", text, _FILES[name]) for name, text in texts.items()]
    served.append(_text_route("/", texts["index.html"], "text/html"))
    served.append(_text_route("/favicon.ico", texts["icon.svg"], "image/svg+xml"))
    return list(served)


def _text_route(path: str, text: str, media_type: str) -> Route:
    """Serves a text that never changes while the process lives."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(text, headers=headers, media_type=media_type)

    return Route(path, answer, methods=["GET"])
