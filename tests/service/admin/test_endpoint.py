"""The admin endpoint of a real router process, asked as curl would."""

import contextlib
import http.client
import itertools
import json
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from router.service.admin.server import HEADER_SECONDS, IDLE_SECONDS
from tests.support.clients import receiving, sending
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

FILE = """
router: {id: under-test, workers: 1, admin: "127.0.0.1:0"}
listeners: [{bind: "127.0.0.1:0"}]
routes:
  - {address: orders, stall_seconds: 500ms}
  - {address: "#"}
"""

PROBE_SECONDS = 60.0
"""After which a probe's client gives up; not the kubelet's 3 s, for this machine may be busy."""

READY = {"ready": True, "reasons": [], "stalls": [], "broken": [], "still_ready": None}


@attrs.define(eq=False)
class Site:
    """Where the admin endpoint is."""

    router: RunningRouter
    place: str
    token: str | None = None
    context: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        if self.place.startswith("unix:"):
            return _Unix(self.place.removeprefix("unix:"))
        if self.context is not None:
            return http.client.HTTPSConnection(self.place, timeout=10, context=self.context)
        return http.client.HTTPConnection(self.place, timeout=10)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = self.connect()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        octets = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, octets, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return json.loads(body)

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as ``name{a=b}``."""
        status, body = self.ask("GET", "/metrics")
        assert status == 200
        found = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
        return found


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def answers(admin: Site) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return admin.ask("GET", "/livez")[0] == 200
    return False


@contextlib.contextmanager
def site(folder: Path, text: str = FILE, **fields: Any) -> Iterator[Site]:
    with running_router(text, folder) as router:
        line = json.loads(router.wait_for("router.ready"))
        yield Site(router, line["admin"][0], **fields)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A router for tests that change nothing of it and count nothing."""
    with site(tmp_path_factory.mktemp("shared")) as admin:
        yield admin


def address_of(router: RunningRouter) -> str:
    return str(json.loads(router.wait_for("router.ready"))["listeners"][0])


def wait_until(is_true: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def test_probes_status_and_metrics_are_answered(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        assert admin.get("/livez") == {"live": True}
        assert admin.get("/readyz") == READY
        status = admin.get("/api/v1/status")
        assert status["id"] == "under-test"
        # a busy machine may rightly be said to run the worker late
        assert [each for each in status["problems"] if "late" not in each["text"]] == []
        assert status["workers"][0]["process"] == admin.router.process.pid
        metrics = admin.metrics()
        assert metrics["router_ready{}"] == 1
        assert metrics["router_route_links{direction=incoming,route=orders}"] == 0
        assert admin.ask("GET", "/")[1].startswith(b"<!doctype html>")


async def test_traffic_shows_in_routes_links_and_metrics(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        address = address_of(admin.router)
        async with (
            receiving(address, "prices") as sink,
            sending(address, "prices", [b"x" * 100] * 1000) as source,
        ):
            await source.wait_until(lambda: source.outcomes["Accepted"] == 1000)
            assert len(sink.bodies) == 1000
            time.sleep(0.6)
            route = admin.get("/api/v1/routes/%23")
            assert (route["received"]["accepted"], route["sent"]["accepted"]) == (1000, 1000)
            links = admin.get("/api/v1/links?route=%23")["links"]
            assert {link["role"] for link in links} == {"sender", "receiver"}
            connections = admin.get("/api/v1/connections")["connections"]
            assert {each["container"] for each in connections} == {
                sink.attach.name,
                source.attach.name,
            }
            metrics = admin.metrics()
        deliveries = "router_route_deliveries_total{direction=incoming,route=#}"
        assert metrics[deliveries] == 1000
        assert metrics["router_open_connections{}"] == 2
        time.sleep(0.6)
        assert admin.metrics()[deliveries] == 1000  # the links are gone, the total is not


async def test_a_stall_shows_in_log_metrics_status_and_readiness_detail(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        address = address_of(admin.router)
        async with sending(address, "orders", [b"x"]) as source:
            await source.wait_until(lambda: source.is_attached)
            wait_until(lambda: bool(admin.get("/readyz")["stalls"]))
            ready = admin.get("/readyz")
            assert ready["ready"]
            assert ready["stalls"][0].startswith(
                "route orders is stalled: 1 sender waits: nobody receives from it"
            )
            assert admin.get("/api/v1/routes/orders")["state"] == "stalled"
            problem = admin.get("/api/v1/status")["problems"][0]
            assert (problem["severity"], problem["name"]) == ("error", "orders")
            metrics = admin.metrics()
            assert metrics["router_route_stalled{route=orders}"] == 1
            assert metrics["router_route_stalls_total{route=orders}"] == 1
        stalled = [line for line in admin.router.log if "route.stalled" in line]
        assert len(stalled) == 1


async def test_a_trace_comes_while_deliveries_pass(shared: Site) -> None:
    address = address_of(shared.router)
    connection = shared.connect()
    body = json.dumps({"address": "prices", "count": 2, "seconds": 10}).encode()
    connection.request("POST", "/api/v1/trace", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    async with (
        receiving(address, "prices"),
        sending(address, "prices", [b"secret"] * 5) as source,
    ):
        await source.wait_until(lambda: source.outcomes["Accepted"] == 5)
    lines = [json.loads(line) for line in answer.read().splitlines() if line]
    connection.close()
    assert {line["what"] for line in lines} >= {"attach", "transfer", "disposition", "decision"}
    assert max(line["delivery"] or 0 for line in lines) == 2
    assert "secret" not in str(lines)


def test_drain_ends_the_router_with_0(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        status, body = admin.ask("POST", "/api/v1/drain")
        assert (status, json.loads(body)["is_draining"]) == (202, True)
        assert admin.router.process.wait(15) == 0


def test_a_draining_router_is_alive_and_not_ready(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        host, _, port = address_of(admin.router).rpartition(":")
        with socket.create_connection((host, int(port))) as peer:  # never answers a close
            peer.sendall(b"AMQP\x00\x01\x00\x00")
            assert peer.recv(8) == b"AMQP\x00\x01\x00\x00"
            admin.ask("POST", "/api/v1/drain")
            assert admin.get("/livez") == {"live": True}
            status, body = admin.ask("GET", "/readyz")
            assert (status, json.loads(body)["reasons"]) == (503, ["it is draining"])


def test_reload_tells_the_difference_or_why_not(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        file = tmp_path / "router.yaml"
        file.write_text(FILE + "  - {address: new}\n")
        status, body = admin.ask("POST", "/api/v1/reload")
        assert status == 200
        (difference,) = json.loads(body)["differences"]
        assert (difference["section"], difference["name"], difference["change"]) == (
            "routes",
            "new",
            "added",
        )
        assert admin.get("/api/v1/routes/new")["state"] == "idle"
        file.write_text(FILE + "nonsense: 1\n")
        status, body = admin.ask("POST", "/api/v1/reload")
        assert status == 409
        assert "router.yaml:7:1: unknown key" in json.loads(body)["detail"]
        assert admin.get("/api/v1/routes/new")


async def test_a_pause_holds_traffic_and_outlives_a_reload(shared: Site) -> None:
    address = address_of(shared.router)
    assert shared.ask("POST", "/api/v1/routes/%23/pause")[0] == 200
    assert shared.ask("POST", "/api/v1/reload")[0] == 200
    async with (
        receiving(address, "prices"),
        sending(address, "prices", [b"x"]) as source,
    ):
        await source.wait_until(lambda: source.is_attached)
        assert shared.get("/api/v1/routes/%23")["state"] == "paused"
        assert not source.sent
        assert shared.ask("POST", "/api/v1/routes/%23/resume")[0] == 200
        await source.wait_until(lambda: source.outcomes["Accepted"] == 1)


def test_the_log_level_can_be_set(shared: Site) -> None:
    seen = len(shared.router.log)
    assert shared.ask("PUT", "/api/v1/log-level", {"level": "error"})[0] == 200
    assert shared.get("/api/v1/log-level") == {"level": "error"}
    shared.ask("POST", "/api/v1/routes/orders/pause")
    assert shared.ask("PUT", "/api/v1/log-level", {"level": "info"})[0] == 200
    shared.ask("POST", "/api/v1/routes/orders/resume")
    shared.router.wait_for("route.resumed", since=seen)
    assert not any("route.paused" in line for line in shared.router.log[seen:])


def test_a_required_container_that_is_away_makes_it_unready(tmp_path: Path) -> None:
    text = """
router: {id: under-test, workers: 1, admin: "unix:admin.sock", wait_for: [east]}
listeners: [{bind: "127.0.0.1:0"}]
containers: {east: {url: "amqp://app:secret@127.0.0.1:1"}}
routes: [{address: orders, to: east}]
"""
    with running_router(text, tmp_path, until="listener.opened") as router:
        admin = Site(router, f"unix:{tmp_path}/admin.sock")
        wait_until(lambda: b"refused" in admin.ask("GET", "/readyz")[1])
        status, body = admin.ask("GET", "/readyz")
        assert status == 503
        reasons = json.loads(body)["reasons"]
        assert reasons == ["container east is not connected: Connection refused"]
        problem = admin.get("/api/v1/status")["problems"][0]
        assert "is it running, is the port right?" in problem["advice"]
        assert "secret" not in str(admin.get("/api/v1/overview"))


def test_a_unix_socket_is_its_owners_and_gone_afterwards(tmp_path: Path) -> None:
    text = FILE.replace('"127.0.0.1:0"}\nl', '"unix:admin.sock"}\nl')
    with site(tmp_path, text) as admin:
        assert admin.get("/livez") == {"live": True}
        assert (tmp_path / "admin.sock").stat().st_mode & 0o777 == 0o660
    assert not (tmp_path / "admin.sock").exists()


def test_with_tls_and_a_token_only_the_token_opens(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    admin = "{bind: '127.0.0.1:0', token: s3cret, tls_cert: cert.pem, tls_key: key.pem}"
    text = FILE.replace('"127.0.0.1:0"}\nl', admin + "}\nl")
    with site(tmp_path, text, context=context) as guarded:
        assert guarded.get("/livez") == {"live": True}
        assert guarded.ask("GET", "/api/v1/status")[0] == 401
        guarded.token = "wrong"
        assert guarded.ask("GET", "/api/v1/status")[0] == 401
        guarded.token = "s3cret"
        assert guarded.get("/api/v1/status")["is_ready"]
        assert not any("s3cret" in line for line in guarded.router.log)


def test_an_address_in_use_that_the_file_asks_for_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = FILE.replace('127.0.0.1:0"}\nl', f'127.0.0.1:{taken.getsockname()[1]}"}}\nl')
        with (
            pytest.raises(AssertionError, match=r"router\.admin.*in use"),
            running_router(text, tmp_path),
        ):
            pass


class Drip:
    """Connections that send one octet of a request's head after the other, and come again.

    Attributes:
        closed: how often one was closed by the endpoint.
        turn: held by whoever comes; a probe holds it until it has asked, for a client that comes
            and says nothing while many others come is one of these.
    """

    def __init__(
        self, place: str, count: int, octets: bytes = b"GET /livez HTTP/1.1\r\nA: "
    ) -> None:
        self._place, self._count, self._octets = place, count, octets
        self._is_over = False
        self.closed = 0
        self.turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Drip":
        self._thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join(30)

    def _run(self) -> None:
        host, _, port = self._place.rpartition(":")
        peers: list[tuple[socket.socket, int]] = []
        while not self._is_over:
            while len(peers) < self._count:
                with self.turn:
                    peers.append((socket.create_connection((host, int(port))), 0))
            peers = [(peer, sent + 1) for peer, sent in peers if self._drip(peer, sent)]
            self.closed += self._count - len(peers)
            time.sleep(0.05)
        for peer, _ in peers:
            peer.close()

    def _drip(self, peer: socket.socket, sent: int) -> bool:
        with contextlib.suppress(OSError):
            peer.sendall(self._octets[sent : sent + 1] or b"a")
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                if not peer.recv(100):
                    peer.close()
                    return False
            peer.setblocking(True)
            return True
        peer.close()
        return False


def check_probes(*sites: Site, times: int, among: Drip) -> None:
    """Wants every probe answered: none is refused, reset, or left until its client gives up."""
    statuses = Counter(
        probe(each, path, among.turn)
        for _ in range(times)
        for each, path in itertools.product(sites, ("/livez", "/readyz"))
    )
    assert statuses == {200: times * len(sites) * 2}
    assert among.closed > 0, "there was room for everybody"


def probe(site: Site, path: str, turn: threading.Lock) -> int:
    """Asks as the kubelet does; returns the status."""
    connection = site.connect()
    connection.timeout = PROBE_SECONDS
    try:
        with turn:
            connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.mark.parametrize("count", [40, 64, 200])
def test_probes_are_answered_while_slow_connections_drip_octets(count: int, shared: Site) -> None:
    with Drip(shared.place, count) as drip:
        check_probes(shared, times=40, among=drip)


def probing(admin: Site) -> Site:
    """The door for probes of a router that has one."""
    line = json.loads(admin.router.wait_for("router.ready"))
    return Site(admin.router, line["probes"][0])


@pytest.mark.parametrize("where", ['"127.0.0.1:0"', "off", "unix:admin.sock"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_door_for_probes_answers_nothing_else(workers: int, where: str, tmp_path: Path) -> None:
    file = FILE.replace("workers: 1", f"workers: {workers}")
    file = file.replace('admin: "127.0.0.1:0"', f'admin: {where}, probes: "127.0.0.1:0"')
    with running_router(file, tmp_path) as router:
        line = json.loads(router.wait_for("router.ready"))
        door = Site(router, line["probes"][0])
        assert line.get("admin") != line["probes"]
        assert door.get("/livez") == {"live": True}
        assert door.get("/readyz") == READY
        assert door.ask("HEAD", "/readyz") == (200, b"")
        assert door.ask("POST", "/livez")[0] == 405
        for path in (
            "/",
            "/metrics",
            "/api/v1/status",
            "/console/app.js",
            "/openapi.json",
            "/live",
        ):
            assert door.ask("GET", path)[0] == 404, path


def test_the_door_for_probes_asks_for_no_name_and_no_token(tmp_path: Path) -> None:
    keys = '{bind: "127.0.0.1:0", token: secret}, probes: "127.0.0.1:0"'
    with site(tmp_path, FILE.replace('"127.0.0.1:0"', keys, 1)) as admin:
        connection = probing(admin).connect()
        connection.request("GET", "/readyz", headers={"Host": "10.1.2.3:8673"})
        assert connection.getresponse().status == 200
        connection.close()


def test_a_router_that_is_not_ready_says_so_at_the_door_for_probes(tmp_path: Path) -> None:
    file = FILE.replace('"127.0.0.1:0"', '"127.0.0.1:0", probes: "127.0.0.1:0"', 1)
    file += 'containers: {away: {url: "amqp://127.0.0.1:1"}}\n'
    port = free_port()
    file = file.replace("workers: 1", "workers: 1, wait_for: away")
    file = file.replace('probes: "127.0.0.1:0"', f'probes: "127.0.0.1:{port}"')
    with running_router(file, tmp_path, until="router.started") as router:
        door = Site(router, f"127.0.0.1:{port}")
        wait_until(lambda: answers(door))
        status, body = door.ask("GET", "/readyz")
        assert status == 503
        assert "away" in str(json.loads(body)["reasons"])


def test_an_address_for_probes_that_is_taken_ends_the_router(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        file = FILE.replace('"127.0.0.1:0"', f'"127.0.0.1:0", probes: "{place}"', 1)
        with running_router(file, tmp_path, until="router.failed") as router:
            reason = json.loads(router.wait_for("router.failed"))["reason"]
            assert re.search(rf"router\.yaml:\d+:\d+: router\.probes: {place}: .*in use; ", reason)


def test_neither_door_is_shut_by_a_crowd_at_the_other(tmp_path: Path) -> None:
    file = FILE.replace('"127.0.0.1:0"', '"127.0.0.1:0", probes: "127.0.0.1:0"', 1)
    with site(tmp_path, file) as admin:
        door = probing(admin)
        for crowded in (admin, door):
            with Drip(crowded.place, 200) as drip:
                check_probes(admin, door, times=20, among=drip)


def test_a_head_that_does_not_end_in_time_ends_its_connection(shared: Site) -> None:
    host, _, port = shared.place.rpartition(":")
    began = time.monotonic()
    with contextlib.ExitStack() as open_ones:
        peers = []
        for octets in (b"", b"G", b"GET /livez HTTP/1.1\r\n"):
            peer = socket.create_connection((host, int(port)), timeout=30)
            peers.append(open_ones.enter_context(peer))
            peer.sendall(octets)
        for peer in peers:
            while peer.recv(1000):
                pass
            assert HEADER_SECONDS - 1 < time.monotonic() - began < IDLE_SECONDS - 1


@pytest.mark.long
def test_a_connection_is_kept_for_the_next_request_and_not_for_a_slow_one(shared: Site) -> None:
    host, _, port = shared.place.rpartition(":")
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as kept:
        for pause_seconds in (HEADER_SECONDS + 1, 1):
            kept.sendall(request)
            answer = b""
            while not answer.endswith(b'{"live":true}'):
                part = kept.recv(1000)
                assert part, answer
                answer += part
            time.sleep(pause_seconds)
        kept.sendall(request[:20])
        began = time.monotonic()
        while kept.recv(1000):
            pass
        assert time.monotonic() - began < IDLE_SECONDS - 1


def test_a_crowd_is_logged_and_whoever_asks_keeps_his_place(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        connection = admin.connect()
        body = json.dumps({"address": "prices", "count": 2, "seconds": 3}).encode()
        connection.request("POST", "/api/v1/trace", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        with Drip(admin.place, 64):
            assert answer.read() is not None
        assert "admin.crowded" in admin.router.wait_for("admin.crowded")
        connection.close()


def test_a_peer_that_reads_nothing_does_not_keep_the_router_from_ending(tmp_path: Path) -> None:
    with site(tmp_path) as admin:
        host, _, port = admin.place.rpartition(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect((host, int(port)))
            request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with contextlib.suppress(BlockingIOError):
                lazy.setblocking(False)
                lazy.sendall(request * 400)
            time.sleep(0.5)
            assert admin.get("/livez") == {"live": True}
            began = time.monotonic()
            assert admin.router.stop() == 0
            assert time.monotonic() - began < 25


def test_garbage_is_refused_and_harms_nobody(shared: Site) -> None:
    host, _, port = shared.place.rpartition(":")
    for garbage in (b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"A" * 50_000, b"AMQP\x00\x01"):
        peer = socket.create_connection((host, int(port)), timeout=5)
        with peer, contextlib.suppress(OSError):
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
    assert shared.get("/livez") == {"live": True}
    assert not any("admin.failed" in line for line in shared.router.log)


def test_two_workers_answer_as_one_router(tmp_path: Path) -> None:
    with site(tmp_path, FILE.replace("workers: 1", "workers: 2")) as admin:
        status = admin.get("/api/v1/status")
        assert len(status["workers"]) == 2
        assert len({worker["process"] for worker in status["workers"]}) == 2
        assert admin.get("/readyz")["ready"]
        assert admin.ask("POST", "/api/v1/routes/orders/pause")[0] == 200
        assert admin.get("/api/v1/routes/orders")["state"] == "paused"
        metrics = admin.metrics()
        workers = [name for name in metrics if name.startswith("router_worker_resident")]
        assert len(workers) == 2
