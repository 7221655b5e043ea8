"""A request that takes too long is told so, and never breaks an answer that has begun."""

import http.client
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from starlette.types import Receive, Scope, Send

from router.model.place import TcpAddress
from router.service.admin import guard
from router.service.admin.guard import Guard, ProbeDoor
from router.service.admin.server import Server

Work = Callable[[Send], Awaitable[None]]
"""What an application does to answer a request."""

LIMIT = 0.2


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_SECONDS", LIMIT)


async def start(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def finish(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body})


async def quick(send: Send) -> None:
    await start(send)
    await finish(send, b"here")


async def waits(send: Send) -> None:
    await trio.sleep(2 * LIMIT)
    await quick(send)


async def computes(send: Send) -> None:
    """Lets nobody else go on for longer than the limit, as does a large answer."""
    time.sleep(2 * LIMIT)
    await quick(send)


async def dawdles(send: Send) -> None:
    await start(send)
    await trio.sleep(2 * LIMIT)
    await finish(send, b"here")


async def forgets(send: Send) -> None:
    """Waits where it cannot be interrupted."""
    with trio.CancelScope(shield=True):
        await trio.sleep(2 * LIMIT)
    await quick(send)


WORKS: Mapping[str, Work] = {
    f"/{work.__name__}": work for work in (quick, waits, computes, dawdles, forgets)
} | {"/api/v1/reload": waits, "/api/v1/trace": waits}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await WORKS[scope["path"]](send)


@asynccontextmanager
async def served(*, is_probes: bool) -> AsyncIterator[int]:
    """The port of an endpoint with this application."""
    bind = TcpAddress("127.0.0.1", 0)
    server = Server(ProbeDoor(app) if is_probes else Guard(app, "r", bind, None))
    await server.open(bind)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield int(server.addresses[0].rpartition(":")[2])
        nursery.cancel_scope.cancel()


def ask(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("is_probes", [False, True])
@pytest.mark.parametrize("path", ["/waits", "/forgets"])
async def test_what_has_not_begun_in_time_is_refused(path: str, *, is_probes: bool) -> None:
    async with served(is_probes=is_probes) as port:
        status, body = await trio.to_thread.run_sync(ask, port, path)
        assert status == 503
        assert "no answer within" in json.loads(body)["detail"]
        assert await trio.to_thread.run_sync(ask, port, "/quick") == (200, b"here")


@pytest.mark.parametrize("is_probes", [False, True])
@pytest.mark.parametrize("path", ["/computes", "/dawdles"])
async def test_what_has_begun_is_finished(path: str, *, is_probes: bool) -> None:
    async with served(is_probes=is_probes) as port:
        assert await trio.to_thread.run_sync(ask, port, path) == (200, b"here")
        assert await trio.to_thread.run_sync(ask, port, "/quick") == (200, b"here")


@pytest.mark.parametrize("path", ["/api/v1/reload", "/api/v1/trace"])
async def test_a_reload_and_a_trace_may_take_their_time(path: str) -> None:
    async with served(is_probes=False) as port:
        assert await trio.to_thread.run_sync(ask, port, path) == (200, b"here")
