"""Who may ask, and how much at a time."""

import json
from pathlib import Path

import pytest
import trio

from router.model.place import TcpAddress, UnixAddress
from router.service.admin.guard import REQUESTS_MOST
from tests.support.fleets import Answer, FakeControl, Site, fleet

TOKEN = "s3cret"


def guarded() -> Site:
    return Site(bind=TcpAddress("0.0.0.0", 8672), token=TOKEN)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/", "/console/app.js"])
async def test_probes_and_the_consoles_files_need_no_token(path: str) -> None:
    assert (await guarded().get(path, host="router.example:8672")).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/status", "/openapi.json", "/nothing"])
async def test_everything_else_needs_the_token(path: str) -> None:
    answer = await guarded().get(path)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        ("Bearer ", 401),
        (TOKEN, 401),
        ("Bearer sécret", 401),
    ],
)
async def test_only_the_very_token_opens(given: str, status: int) -> None:
    answer = await guarded().get("/api/v1/status", authorization=given)
    assert answer.status == status


async def test_a_request_may_name_the_router_that_it_is_meant_for() -> None:
    site = Site()
    own = json.loads((await site.get("/api/v1/status")).body)["id"]
    assert (await site.get("/api/v1/status", **{"router-id": own})).status == 200
    refused = await site.get("/api/v1/status", **{"router-id": "%C3%BCber"})
    assert refused.status == 421
    assert json.loads(refused.body)["detail"] == f"this is router {own}, not über"


async def test_without_a_configured_token_loopback_may_ask() -> None:
    assert (await Site().get("/api/v1/status")).status == 200


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8672", "127.0.0.1:8672", "127.0.0.2", "[::1]:8672", "::1"]
)
async def test_names_of_this_machine_are_its_own(host: str) -> None:
    assert (await Site().get("/api/v1/status", host=host)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8672", "10.0.0.1:8672", ""])
async def test_a_foreign_name_that_leads_here_is_refused(host: str) -> None:
    assert (await Site().get("/api/v1/status", host=host)).status == 403


async def test_the_bound_name_is_its_own() -> None:
    site = Site(bind=TcpAddress("router.internal", 8672))
    assert (await site.get("/livez", host="router.internal:8672")).status == 200


async def test_behind_a_unix_socket_any_name_will_do() -> None:
    site = Site(bind=UnixAddress(Path("/run/router.sock")))
    assert (await site.get("/api/v1/status", host="anything")).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8672", 200),
        ("http://evil.example", 403),
        ("http://localhost:1", 403),
        ("null", 403),
    ],
)
async def test_a_page_from_elsewhere_cannot_order_anything(origin: str, status: int) -> None:
    answer = await Site().post("/api/v1/routes/orders/pause", origin=origin)
    assert answer.status == status


async def test_a_page_from_elsewhere_cannot_even_with_the_token() -> None:
    answer = await guarded().post(
        "/api/v1/drain", authorization=f"Bearer {TOKEN}", origin="http://evil.example"
    )
    assert answer.status == 403


async def test_answers_carry_the_headers_that_browsers_obey() -> None:
    for path in ("/", "/api/v1/status", "/nothing"):
        headers = (await Site().get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"


async def test_too_many_requests_at_a_time_are_told_to_come_again(autojump_clock: object) -> None:
    site = Site(fleet(FakeControl(is_silent=True)))
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await site.get("/api/v1/status"))

    async with trio.open_nursery() as nursery:
        for _ in range(REQUESTS_MOST):
            nursery.start_soon(ask)
        await trio.sleep(0.1)
        busy = await site.get("/api/v1/status")
        assert (busy.status, busy.headers["retry-after"]) == (503, "1")
        assert (await site.get("/livez")).status == 200
    assert len(answers) == REQUESTS_MOST
    assert (await site.get("/livez")).status == 200


async def test_web_sockets_are_not_answered() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        sent.append(message)

    await Site().app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == []
