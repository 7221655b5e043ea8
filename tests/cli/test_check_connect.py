"""`router check --connect`, as a user runs it, against a router, a web server and nobody."""

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from router.model.capabilities import Protocol
from tests.support.certificates import Certificates
from tests.support.commands import run
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

SECRET = "s3cret"


@attrs.frozen
class Far:
    """A router that is dialed, and its ports."""

    router: RunningRouter
    plain: int
    guarded: int
    secured: int
    papers: Certificates


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    folder = tmp_path_factory.mktemp("far")
    papers = Certificates(folder)
    papers.write()
    pem = papers.server("good")
    plain, guarded, secured = (free_port() for _ in range(3))
    file = f"""
router: {{id: far, workers: 1, admin: off}}
listeners:
  - {{bind: "127.0.0.1:{plain}", websocket: {{}}}}
  - {{bind: "127.0.0.1:{guarded}", sasl: {{mechanisms: [PLAIN], users: {{app: right}}}}}}
  - bind: 127.0.0.1:{secured}
    tls: {{cert: {pem}, key: {pem}, required: true}}
    websocket: {{}}
routes:
  - address: there
"""
    with running_router(file, folder) as router:
        yield Far(router, plain, guarded, secured, papers)


@contextmanager
def web(answers_at_once: bool) -> Iterator[int]:
    """Serves HTTP, as consoles of brokers do: at once, or when a whole line has come."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(sock,), daemon=True).start()

        def answer(sock: socket.socket) -> None:
            with sock:
                octets = b""
                while not (octets.endswith(b"\r\n\r\n") or (answers_at_once and octets)):
                    arrived = sock.recv(4096)
                    if not arrived:
                        return
                    octets += arrived
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def check(folder: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "router.yaml").write_text(text)
    done = run("check", "--connect", *options, folder=folder)
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize("protocol", [each.value for each in Protocol])
def test_every_protocol_tells_what_is_there_and_nothing_moves(
    tmp_path: Path, far: Far, protocol: str
) -> None:
    text = f"""\
containers:
  east: {{url: "amqp://127.0.0.1:{far.plain}", protocol: {protocol}}}
routes:
  - {{address: a, to: east/there}}
  - {{address: b, from: east/there}}
  - {{address: c.#, to: east}}
"""
    seen = len(far.router.log)
    done = check(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    opened, first, second, pattern, last = done.stdout.splitlines()
    place = f"router.yaml:2:15: containers.east: amqp://127.0.0.1:{far.plain}: "
    assert opened.startswith(f"{place}open over {protocol} as nobody (ANONYMOUS); it is ")
    assert re.match(r"router.yaml:4:15: route a: to east/there: .* 'there'", first)
    assert re.match(r"router.yaml:5:15: route b: from east/there: .* 'there'", second)
    assert pattern == (
        "router.yaml:6:15: route c.#: to east: not looked for, because its addresses are known"
        " only when they are used"
    )
    assert last == "router.yaml: 1 container dialed, 0 problems"
    far.router.wait_for("connection.closed", since=seen)
    for line in map(json.loads, far.router.log[seen:]):
        assert not line.get("deliveries_in")
        assert not line.get("deliveries_out")
        assert line.get("container") != "near"


@pytest.mark.parametrize("protocol", [each.value for each in Protocol])
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_every_protocol_is_found_behind_a_websocket(
    tmp_path: Path, far: Far, scheme: str, protocol: str
) -> None:
    port = far.plain if scheme == "ws" else far.secured
    tls = f", tls: {{ca: {far.papers.authorities}}}" if scheme == "wss" else ""
    url = f"{scheme}://localhost:{port}/any/path"
    text = f"""\
containers: {{east: {{url: "{url}", protocol: {protocol}{tls}}}}}
routes: [{{address: a, to: east/there}}]
"""
    done = check(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{url}: open over {protocol} as nobody" in done.stdout


def test_who_serves_no_websocket_and_a_proxy_that_is_none_are_told(
    tmp_path: Path, far: Far
) -> None:
    with web(answers_at_once=False) as port:
        text = f"""\
containers:
  east: {{url: "ws://127.0.0.1:{port}/"}}
  west: {{url: "ws://127.0.0.1:{far.guarded}/"}}
  north: {{url: "amqp://h", proxy: "http://u:{SECRET}@127.0.0.1:{port}"}}
routes: [{{address: a, to: [east/x, west/x, north/x]}}]
"""
        done = check(tmp_path, text)
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert "WebSocket is refused: HTTP/1.1 400 Bad Request; check the path in" in told
    assert "the peer speaks no WebSocket, nor HTTP; no WebSocket is served there" in told
    assert f"proxy 127.0.0.1:{port}: it answers 400 Bad Request; check the container's" in told


@pytest.mark.parametrize("protocol", ["amqp-1.0", "amqp-0-9-1", "amqp-0-10", "amqp-0-9r1"])
def test_an_address_that_is_not_there_is_told_with_place_and_advice(
    tmp_path: Path, far: Far, protocol: str
) -> None:
    text = f"""\
containers: {{east: {{url: "amqp://127.0.0.1:{far.plain}", protocol: {protocol}}}}}
routes:
  - {{address: a, to: [east/there, east/missing]}}
  - {{address: b, from: east/missing}}
  - {{address: c, unroutable: dead-letter, dead_letter: east/letters}}
"""
    done = check(tmp_path, text)
    assert done.returncode == 1
    assert "route a: to east/there: found 'there'" in done.stdout
    assert done.stdout.endswith("router.yaml: 1 container dialed, 3 problems\n")
    told = done.stderr.splitlines()
    assert [line.partition(": amqp:not-found: ")[0] for line in told] == [
        "router.yaml:3:15: route a: to east/missing",
        "router.yaml:4:15: route b: from east/missing",
        "router.yaml:5:15: route c: to east/letters",
    ]
    assert all(line.endswith("or correct the address in the route") for line in told)


def test_each_way_to_dial_wrongly_is_told_with_what_to_write(tmp_path: Path, far: Far) -> None:
    nobody = free_port()
    with web(answers_at_once=True) as console, web(answers_at_once=False) as slow:
        text = f"""\
containers:
  wrong: {{url: "amqp://app:{SECRET}@127.0.0.1:{far.guarded}"}}
  basic: {{url: "amqp://app:{SECRET}@127.0.0.1:{far.guarded}", protocol: amqp-0-9-1}}
  none: {{url: "amqp://127.0.0.1:{far.guarded}"}}
  gone: {{url: "amqp://127.0.0.1:{nobody}"}}
  clear: {{url: "amqps://127.0.0.1:{far.plain}"}}
  tls: {{url: "amqp://127.0.0.1:{far.secured}"}}
  stranger: {{url: "amqps://localhost:{far.secured}"}}
  console: {{url: "amqp://127.0.0.1:{console}"}}
  slow: {{url: "amqp://127.0.0.1:{slow}"}}
  slower: {{url: "amqp://127.0.0.1:{slow}", protocol: amqp-fast}}
  host: {{url: "amqp://no-such-host.invalid"}}
"""
        done = check(tmp_path, text, "--seconds", "5")
    assert done.returncode == 1
    found = re.findall(r"^router\.yaml:\d+:\d+: containers\.(\w+): (.*)$", done.stderr, re.M)
    told = dict(found)
    wanted = {
        "wrong": "check the user and password in containers.wrong",
        "basic": "check the user and password in containers.basic",
        "none": "write user and password in containers.none.url (amqp://user:password@host)",
        "gone": f"nothing listens at amqp://127.0.0.1:{nobody}",
        "clear": "write amqp:// in containers.clear.url",
        "tls": "write amqps:// in containers.tls.url",
        "stranger": "name the authority that signed its certificate in containers.stranger.tls.ca",
        "console": "write the port of AMQP, usually 5672 (with TLS 5671), in containers.console.",
        "slow": "the peer speaks HTTP; a console or management listens there",
        "slower": "the peer speaks HTTP; a console or management listens there",
        "host": "this machine does not know the host name",
    }
    assert told.keys() == wanted.keys()
    for name, advice in wanted.items():
        assert advice in told[name], name


def test_tls_with_the_right_authority_is_told_as_open(tmp_path: Path, far: Far) -> None:
    text = f"""\
containers:
  east:
    url: amqps://localhost:{far.secured}
    tls: {{ca: {far.papers.authorities}}}
"""
    done = check(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    assert "open over amqp-1.0" in done.stdout


def test_a_url_that_another_one_stands_in_for_is_no_problem(tmp_path: Path, far: Far) -> None:
    text = f"containers: {{east: {{url: [amqp://127.0.0.1:1, amqp://127.0.0.1:{far.plain}]}}}}\n"
    done = check(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    refused, opened, _ = done.stdout.splitlines()
    assert refused.endswith("(no problem as long as a later URL opens)")
    assert "open over amqp-1.0" in opened


def test_a_bad_file_exits_with_2_and_nobody_is_dialed(tmp_path: Path) -> None:
    done = check(tmp_path, "containers: {east: {}}\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("router.yaml:1:20: containers.east: needs the key 'url'")
