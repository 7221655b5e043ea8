"""Other places that a container names for itself: which are dialed, and which are not."""

import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from router.links.trail import RefusedDiversionError
from router.model.condition import CONNECTION_REDIRECT, Condition
from router.model.place import Alternative
from router.net.connector import Connector
from router.net.diversion import DiversionPolicy
from router.service.assembly import assemble, share
from router.service.config.load import read
from router.service.inquiry import inquire
from router.wire.alternatives import as_map
from tests.support.container import SECONDS, Container
from tests.support.planes import House, house
from tests.support.ports import free_port
from tests.support.running import router_beside


def config_of(first: Container, *lines: str) -> str:
    more = "".join(f"    {line}\n" for line in lines)
    return (
        "router: {admin: off, workers: 1}\n"
        "containers:\n"
        "  east:\n"
        f'    url: "amqp://127.0.0.1:{first.port}"\n{more}'
    )


@asynccontextmanager
async def connecting(at: House, text: str, folder: Path) -> AsyncIterator[Connector]:
    config = read(text, "router.yaml", folder)
    endpoints = assemble(config, share(config)).endpoints["east"]
    connector = Connector(
        container="east",
        endpoints=endpoints,
        plane=at.plane,
        retry_seconds=0.01,
        retry_limit_seconds=0.05,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connector.run)
        yield connector
        connector.stop()
    await at.plane.wait_empty()


def place(container: Container, **fields: Any) -> dict[object, object]:
    return as_map(Alternative(host="127.0.0.1", port=container.port, **fields))


def to(container: Container, **fields: Any) -> Condition:
    return Condition(CONNECTION_REDIRECT, "there", place(container, **fields))


def listing(*entries: object) -> dict[str, object]:
    return {"failover-server-list": list(entries)}


async def until_connected(connector: Connector, container: Container) -> None:
    with trio.fail_after(SECONDS):
        while connector.status.address != f"127.0.0.1:{container.port}":
            await trio.sleep(0.005)


async def lose(container: Container) -> None:
    for line in [*container.lines]:
        await trio.aclose_forcefully(line.stream)


def reasons(log: Any, event: str) -> list[str]:
    return [each["reason"] for each in log if each["event"] == event]


async def test_the_next_place_of_the_list_is_dialed_when_the_connection_is_lost(
    tmp_path: Path,
) -> None:
    a, b, c = Container(), Container(), Container()
    a.properties = listing(place(b), place(c))
    async with (
        b.listening(),
        c.listening(),
        house() as at,
        connecting(at, config_of(a), tmp_path) as connector,
    ):
        async with a.listening():
            await until_connected(connector, a)
            assert connector.status.others == (
                f"127.0.0.1:{b.port}",
                f"127.0.0.1:{c.port}",
            )
        await until_connected(connector, b)
        await lose(b)
        await until_connected(connector, c)
        await lose(c)
        await until_connected(connector, b)  # round again: a is away, and stays in the round
        async with a.listening():
            await lose(b)
            await until_connected(connector, c)
            await lose(c)
            await until_connected(connector, a)


async def test_the_list_of_the_newest_open_counts_and_an_open_without_one_changes_nothing(
    tmp_path: Path,
) -> None:
    a, b, c = Container(), Container(), Container()
    a.properties = listing(place(b))
    async with (
        a.listening(),
        b.listening(),
        c.listening(),
        house() as at,
        connecting(at, config_of(a), tmp_path) as connector,
    ):
        await until_connected(connector, a)
        await lose(a)
        await until_connected(connector, b)  # its open has no list
        assert connector.status.others == (f"127.0.0.1:{b.port}",)
        a.properties = listing(place(c))
        await lose(b)
        await until_connected(connector, a)
        assert connector.status.others == (f"127.0.0.1:{c.port}",)
        a.properties = listing()
        c.properties = listing()
        await lose(a)
        await until_connected(connector, c)
        assert not connector.status.others


async def test_wrong_entries_are_refused_by_name_and_ignored(tmp_path: Path) -> None:
    a, b = Container(), Container()
    a.properties = listing("", 7, place(b, scheme="amqps"), {"network-host": "x.example"}, place(b))
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            house() as at,
            connecting(at, config_of(a), tmp_path) as connector,
        ):
            await until_connected(connector, a)
            await lose(a)
            await until_connected(connector, b)
    assert reasons(log, "container.failover_refused") == [
        "entry 1 is text, and no map",
        "entry 2 is a number, and no map",
        f"amqps://127.0.0.1:{b.port}: the URL has no TLS, and amqps would",
        "x.example: failover_hosts does not name the host x.example",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"network-host": "a..example"},
        {"network-host": "a" * 64},
        {"network-host": "127.0.0.1", "port": 1, "scheme": "ws", "path": "/a b"},
    ],
)
async def test_a_host_or_path_of_no_form_ends_no_connector(
    tmp_path: Path, entry: dict[object, object]
) -> None:
    a = Container(properties=listing(entry))
    with capture_logs() as log:
        async with (
            a.listening(),
            house() as at,
            connecting(at, config_of(a, 'failover_hosts: "*"'), tmp_path) as connector,
        ):
            await until_connected(connector, a)
            a.farewell = Condition(CONNECTION_REDIRECT, "there", entry)
            await lose(a)
            await a.until(lambda it: len(it.opened) >= 4)
            assert not connector.status.others
    assert reasons(log, "container.failover_refused")
    assert reasons(log, "container.redirect_refused")


@pytest.mark.parametrize("value", ["b:5672", {}, 7])
async def test_what_is_no_list_is_refused_by_name_and_ignored(tmp_path: Path, value: Any) -> None:
    a = Container(properties={"failover-server-list": value})
    with capture_logs() as log:
        async with (
            a.listening(),
            house() as at,
            connecting(at, config_of(a), tmp_path) as connector,
        ):
            await until_connected(connector, a)
            await lose(a)
            await until_connected(connector, a)
    assert all(each.endswith("no list") for each in reasons(log, "container.failover_refused"))
    assert reasons(log, "container.failover_refused")


async def test_other_places_are_not_dialed_if_the_file_ignores_them(tmp_path: Path) -> None:
    a, b = Container(), Container()
    a.properties = listing(place(b))
    with capture_logs() as log:
        async with a.listening(), b.listening(), house() as at:
            text = config_of(a, "failover: ignore")
            async with connecting(at, text, tmp_path) as connector:
                await until_connected(connector, a)
                await lose(a)
                await a.until(lambda it: len(it.opened) == 2)
                a.farewell = to(b)
                await lose(a)
                await a.until(lambda it: len(it.opened) == 4)
    assert not b.opened
    assert set(reasons(log, "container.redirect_refused")) == {"the file says failover: ignore"}


async def test_a_redirect_is_followed_and_named(tmp_path: Path) -> None:
    a, b, c = Container(), Container(), Container()
    a.farewell, b.farewell = to(b), to(c, hostname="virtual.example")
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            c.listening(),
            house() as at,
            connecting(at, config_of(a), tmp_path) as connector,
        ):
            await until_connected(connector, c)
            assert connector.status.redirected_from == f"127.0.0.1:{b.port}"
            assert c.opened[0].hostname == "virtual.example"  # §2.8.16
            a.farewell = None
            await lose(c)
            await until_connected(connector, a)
            last = connector.status
            assert last.redirected_from is None
    told = [each for each in log if each["event"] == "container.redirected"]
    assert [(each["address"], each["to"], each["hops"]) for each in told] == [
        (f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}", 1),
        (f"127.0.0.1:{b.port}", f"127.0.0.1:{c.port}", 2),
    ]


async def test_redirects_in_a_circle_are_refused_and_named(tmp_path: Path) -> None:
    a, b = Container(), Container()
    a.farewell, b.farewell = to(b), to(a)
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            house() as at,
            connecting(at, config_of(a), tmp_path) as connector,
        ):
            await a.until(lambda it: len(it.opened) == 3)
            with trio.fail_after(10):  # it is for as long as the close takes that says where to
                while connector.is_connected:
                    await trio.sleep(0.01)
    circle = f"127.0.0.1:{a.port} -> 127.0.0.1:{b.port} -> 127.0.0.1:{a.port}"
    assert set(reasons(log, "container.redirect_refused")) == {
        f"redirects go round in a circle: {circle}"
    }
    assert abs(len(a.opened) - len(b.opened)) <= 1  # one of each in a round, with pauses between


async def test_a_chain_of_redirects_has_an_end(tmp_path: Path) -> None:
    chain = [Container() for _ in range(12)]
    for one, following in itertools.pairwise(chain):
        one.farewell = to(following)
    with capture_logs() as log:
        async with trio.open_nursery() as nursery, house() as at:
            for each in chain:
                nursery.start_soon(serve_for_ever, each)
            async with connecting(at, config_of(chain[0]), tmp_path):
                await chain[0].until(lambda it: len(it.opened) == 2)
            nursery.cancel_scope.cancel()
    (told,) = set(reasons(log, "container.redirect_refused"))
    assert told.startswith("more than 8 redirects in a row")
    assert [bool(each.opened) for each in chain] == [True] * 9 + [False] * 3


async def serve_for_ever(container: Container) -> None:
    async with container.listening():
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (Condition(CONNECTION_REDIRECT, "x"), "the redirect names no network-host"),
        (
            Condition(CONNECTION_REDIRECT, None, {"network-host": "evil.example", "port": 5672}),
            "failover_hosts does not name the host evil.example",
        ),
    ],
)
async def test_a_redirect_that_leads_nowhere_allowed_is_refused_and_the_next_url_has_its_turn(
    tmp_path: Path, condition: Condition, reason: str
) -> None:
    a, b = Container(farewell=condition), Container()
    text = config_of(a).replace(
        f'"amqp://127.0.0.1:{a.port}"', f"[amqp://127.0.0.1:{a.port}, amqp://127.0.0.1:{b.port}]"
    )
    with capture_logs() as log:
        async with (
            a.listening(),
            b.listening(),
            house() as at,
            connecting(at, text, tmp_path) as connector,
        ):
            await until_connected(connector, b)
    assert reasons(log, "container.redirect_refused") == [reason]


@pytest.mark.parametrize(
    ("hosts", "host", "is_allowed"),
    [
        (("a.example",), "a.example", True),
        (("a.example",), "A.Example.", True),
        (("a.example",), "b.example", False),
        (("*.example.com",), "b.example.com", True),
        (("*.example.com",), "c.b.example.com", True),
        (("*.example.com",), "example.com", False),
        (("*.example.com",), "evil-example.com", False),
        (("*.example.com",), "b.example.com.evil.net", False),
        (("*",), "anything", True),
        ((), "a.example", False),
    ],
)
def test_policy_allows_hosts_by_name_or_domain(
    hosts: tuple[str, ...], host: str, is_allowed: bool
) -> None:
    assert DiversionPolicy(is_obeyed=True, hosts=hosts).allows(host) is is_allowed


@pytest.mark.parametrize("scheme", ["amqp", "ws"])
def test_a_place_without_tls_is_refused_to_a_url_with_tls(scheme: str, tmp_path: Path) -> None:
    text = 'containers: {east: {url: "amqps://user:secret@a.example", failover_hosts: "*"}}'
    config = read(text, "router.yaml", tmp_path)
    (endpoint,) = assemble(config, share(config)).endpoints["east"]
    assert endpoint.divert is not None
    with pytest.raises(RefusedDiversionError, match=f"the URL has TLS, and {scheme} would not"):
        endpoint.divert(Alternative(host="a.example", scheme=scheme))
    same = endpoint.divert(Alternative(host="b.example", port=5673))
    assert same.tls is not None
    assert (same.host, same.port, same.server_name) == ("b.example", 5673, None)
    websocket = endpoint.divert(Alternative(host="b.example", scheme="wss", path="/amqp"))
    assert (websocket.port, websocket.path) == (443, "/amqp")


def test_a_virtual_host_that_is_no_host_is_no_name_for_tls(tmp_path: Path) -> None:
    text = "containers: {east: {url: 'amqps://a.example', failover_hosts: '*'}}"
    config = read(text, "router.yaml", tmp_path)
    (endpoint,) = assemble(config, share(config)).endpoints["east"]
    assert endpoint.divert is not None
    assert endpoint.divert(Alternative(host="a.example", hostname=".x")).server_name is None
    assert endpoint.divert(Alternative(host="a.example", hostname="x")).server_name == "x"


def test_tls_verifies_a_name_that_policy_allows(tmp_path: Path) -> None:
    text = "containers: {east: {url: 'amqps://a.example', failover_hosts: ['*.example']}}"
    config = read(text, "router.yaml", tmp_path)
    (endpoint,) = assemble(config, share(config)).endpoints["east"]
    assert endpoint.divert is not None
    named = endpoint.divert(Alternative(host="b.example", hostname="a.example"))
    assert named.server_name == "a.example"
    foreign = endpoint.divert(Alternative(host="b.example", hostname="evil.net"))
    assert foreign.server_name is None  # the host that is dialed


async def test_a_check_that_connects_follows_redirects_and_says_where_they_lead(
    tmp_path: Path,
) -> None:
    a, b = Container(), Container(name="second")
    a.farewell = to(b)
    async with a.listening(), b.listening():
        config = read(config_of(a), "router.yaml", tmp_path)
        (found,) = await inquire(config, 5.0)
        assert f"redirects to 127.0.0.1:{b.port} open over amqp-1.0" in found.text
        b.farewell = to(a)
        (found,) = await inquire(config, 5.0)
        assert found.is_problem
        assert "redirects go round in a circle" in found.text


HUB = """\
router: {{id: hub, admin: off, workers: 1, state: {state}}}
listeners: [{{bind: "127.0.0.1:{port}", failover: ["127.0.0.1:{other}"]}}]
routes: [{{address: q, guarantee: exactly-once}}]
"""

EDGE = """\
router: {{id: edge, admin: off, workers: 1}}
listeners: [{{bind: "127.0.0.1:{edge}"}}]
containers: {{hub: {{url: "amqp://127.0.0.1:{port}", is_router: true, retry_seconds: 20ms}}}}
routes:
  - {{address: into, to: hub/q, guarantee: exactly-once}}
  - {{address: out, from: hub/q, guarantee: exactly-once}}
"""


def client(verb: str, port: int, address: str, count: int) -> "subprocess.Popen[str]":
    words = ["--count", str(count), "--settle", "exactly-once", "--timeout", "90"]
    return subprocess.Popen(
        [sys.executable, "-m", "router", verb, f"amqp://127.0.0.1:{port}", address, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.long
async def test_a_second_router_with_the_state_of_the_killed_first_serves_exactly_once(
    tmp_path: Path,
) -> None:
    """The edge knows the second from the list of the first; links are resumed by their names."""
    first, second, edge, count = free_port(), free_port(), free_port(), 15_000
    state = tmp_path / "state"
    for name in ("first", "second", "edge"):
        (tmp_path / name).mkdir()
    async with AsyncExitStack() as stack:
        text = HUB.format(state=state, port=first, other=second)
        hub = await stack.enter_async_context(router_beside(text, tmp_path / "first"))
        text = EDGE.format(edge=edge, port=first)
        near = await stack.enter_async_context(router_beside(text, tmp_path / "edge"))
        receiver = client("receive", edge, "out", count)
        sender = client("send", edge, "into", count)
        await trio.sleep(1.0)
        await trio.to_thread.run_sync(hub.kill)
        assert sender.poll() is None, "it was killed in the middle"
        text = HUB.format(state=state, port=second, other=first)
        await stack.enter_async_context(router_beside(text, tmp_path / "second"))
        said = await trio.to_thread.run_sync(sender.communicate)
        told = await trio.to_thread.run_sync(receiver.communicate)
        await trio.to_thread.run_sync(partial(near.wait_for, f"127.0.0.1:{second}"))
    assert f"sent {count:,}, accepted {count:,}" in said[0], said[0]
    assert f"received {count:,}, accepted {count:,}" in told[0], told[0]
