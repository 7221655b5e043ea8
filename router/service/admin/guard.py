"""Access control of the admin endpoint: authorization, origin checks, and a limit of requests.

Any peer that can reach the endpoint through loopback or a Unix socket is authorized, unless a token
is configured; then every request must carry it, except probes and the console's own files.
Pages of other sites must not send requests through a browser: without a token the ``Host`` has to
be a name of this machine (otherwise a foreign page could use a name that resolves to it), and a
request whose ``Origin`` is another site is always refused.

A request may name the router that it is meant for (``ROUTER_HEADER``). Another one refuses it: by
their addresses, routers of one host may be taken for each other.

A request has ``REQUEST_SECONDS`` until its answer begins; otherwise it is answered with status 503.
From then on its reader sets the pace, within limits of its own (``server``). A reload is answered
when it is done, however long it takes: it is applied as a whole.

At most ``REQUESTS_MOST`` requests are answered at a time; others get status 503. Probes are always
answered.

The separate endpoint for probes serves nothing else and needs no authorization.
"""

import hmac
import ipaddress
import math
from typing import Final
from urllib.parse import unquote

import attrs
import trio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.model.place import BindAddress, TcpAddress
from router.service.admin.crowd import VISIT, Request
from router.service.admin.problems import problem
from router.service.config.whereabouts import ROUTER_HEADER

REQUESTS_MOST: Final = 16
REQUEST_SECONDS: Final = 30.0
"""Time limit for producing an answer, until it begins; a trace has limits of its own."""

PROBES: Final = ("/livez", "/readyz")
OPEN_PATHS: Final = (*PROBES, "/", "/favicon.ico")
OPEN_PREFIX: Final = "/console/"
LONG_PATHS: Final = ("/api/v1/trace", "/api/v1/reload")

SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none';"
        b" form-action 'none'",
    ),
)


@attrs.define(eq=False)
class Guard:
    """Passes a request to ``app``, or refuses it.

    Attributes:
        router: id of the router.
        bind: where the endpoint listens.
        token: that requests must carry; None: they need none.
    """

    app: ASGIApp
    router: str
    bind: BindAddress
    token: str | None
    _under_way: int = attrs.field(default=0, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; WebSockets are not supported."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        visit = scope.get(VISIT)
        if isinstance(visit, Request) and not _is_open(scope["path"]):
            visit.admit()
        self._under_way += 1
        try:
            seconds = math.inf if scope["path"] in LONG_PATHS else REQUEST_SECONDS
            await _within(seconds, self.app, scope, receive, _with_headers(send))
        finally:
            self._under_way -= 1

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if not self._is_own_site(headers):
            return problem(403, "the request is from another site")
        path = scope["path"]
        if not _is_open(path) and not self._has_token(headers):
            answer = problem(401, "this needs the token of router.admin.token")
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        meant = headers.get(ROUTER_HEADER)
        if meant is not None and unquote(meant) != self.router:
            return problem(421, f"this is router {self.router}, not {unquote(meant)}")
        if self._under_way >= REQUESTS_MOST and path not in PROBES:
            answer = problem(503, f"{REQUESTS_MOST} requests are under way")
            answer.headers["retry-after"] = "1"
            return answer
        return None

    def _has_token(self, headers: Headers) -> bool:
        if self.token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and kind.lower() == "bearer"

    def _is_own_site(self, headers: Headers) -> bool:
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return False
        return self.token is not None or self._is_this_machine(host)

    def _is_this_machine(self, host: str) -> bool:
        if not isinstance(self.bind, TcpAddress):
            return True  # browsers cannot connect to a Unix socket
        name = host.rpartition(":")[0] if _has_port(host) else host
        name = name.strip("[]").lower()
        if name in ("localhost", self.bind.host.lower()):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


@attrs.frozen
class ProbeDoor:
    """Passes every request to ``app``, which answers probes only."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http":
            send = _with_headers(send)
            await _within(REQUEST_SECONDS, self.app, scope, receive, send)


async def _within(seconds: float, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request, or says that it takes too long; an answer that has begun is finished."""
    limit = trio.CancelScope(deadline=trio.current_time() + seconds)

    async def send_in_time(message: Message) -> None:
        if message["type"] == "http.response.start":
            await trio.lowlevel.checkpoint_if_cancelled()  # before anything of it is sent
            limit.deadline = math.inf
        await send(message)

    with limit:
        await app(scope, receive, send_in_time)
    if limit.cancelled_caught:
        late = problem(503, f"no answer within {seconds:.0f} s: the router is busy, ask again")
        late.headers["retry-after"] = "5"
        await late(scope, receive, send)


def _is_open(path: str) -> bool:
    """Returns whether a path needs no authorization."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.count(":") == 1 or "]:" in host)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS]}
        await send(message)

    return send_with_headers
