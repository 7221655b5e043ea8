"""`router status` of setups that a stranger has got wrong: it says what to fix."""

import json
import socket
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from router.cli.main import main
from tests.support.certificates import Certificates
from tests.support.clients import receiving, sending
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

SECONDS = 60


async def wait_for_status(folder: Path, *texts: str) -> str:
    """Asks until the status says what it should, and gives it."""
    config = str(folder / "router.yaml")

    def ask() -> str:
        return CliRunner().invoke(main, ["status", "--config", config]).output

    shown = ""
    with trio.move_on_after(SECONDS):
        while True:
            shown = await trio.to_thread.run_sync(ask)
            if all(text in " ".join(shown.split()) for text in texts):
                return shown
            await trio.sleep(0.2)
    raise AssertionError(f"no {texts} in:\n{shown}")


def address_of(router: RunningRouter) -> str:
    return str(json.loads(router.wait_for("router.ready"))["listeners"][0])


async def test_a_wrong_password_is_told_at_both_ends(tmp_path: Path) -> None:
    port = free_port()
    near = tmp_path / "near"
    far = tmp_path / "far"
    for folder in (near, far):
        folder.mkdir()
    far_file = f"""
router: {{id: far, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners:
  - {{bind: "127.0.0.1:{port}", sasl: {{mechanisms: [PLAIN], users: {{app: right}}}}}}
"""
    near_file = f"""
router: {{id: near, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://app:wrong@127.0.0.1:{port}", retry_seconds: 100ms}}
routes: [{{address: orders, to: east}}]
"""
    with running_router(far_file, far), running_router(near_file, near):
        await wait_for_status(
            near,
            "error container east is not connected",
            "check the user",
            "containers.east",
        )
        await wait_for_status(
            far, "warning peer 127.0.0.1 has failed to log in", "check the user and password"
        )


async def test_a_container_that_is_not_there_is_told_by_its_url(tmp_path: Path) -> None:
    port = free_port()
    file = f"""
router: {{id: near, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqp://127.0.0.1:{port}"}}
  west: {{url: "amqp://no-such-host.invalid"}}
routes: [{{address: orders, to: east}}]
"""
    with running_router(file, tmp_path):
        await wait_for_status(
            tmp_path,
            f"nothing listens at amqp://127.0.0.1:{port}: is it running, is the port right?",
            "this machine does not know the host name in amqp://no-such-host.invalid:5672",
        )


async def test_an_address_without_receivers_is_told_with_who_waits(tmp_path: Path) -> None:
    file = f"""
router: {{id: near, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: orders, stall_seconds: 500ms}}]
"""
    with running_router(file, tmp_path) as router:
        async with sending(address_of(router), "orders", [b"x"]):
            await wait_for_status(
                tmp_path, "error route orders is stalled", "nobody receives", "router trace"
            )
        async with receiving(address_of(router), "orders"):
            pass


async def test_a_peer_that_speaks_something_else_is_told(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        file = f"""
router: {{id: near, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  east: {{url: "amqps://127.0.0.1:{deaf.getsockname()[1]}", connect_seconds: 500ms}}
routes: [{{address: orders, to: east}}]
"""
        with running_router(file, tmp_path):
            await wait_for_status(
                tmp_path, "no TLS handshake within 0.5 s", "is that the port of AMQP"
            )


async def test_a_container_that_is_dialed_in_the_wrong_way_is_told_with_the_right_one(
    tmp_path: Path,
) -> None:
    papers = Certificates(tmp_path)
    papers.write()
    plain, basic, tls, mutual = (free_port() for _ in range(4))
    pem = papers.server("good")
    near, far = tmp_path / "near", tmp_path / "far"
    for folder in (near, far):
        folder.mkdir()
    far_file = f"""
router: {{id: far, workers: 1, admin: off}}
listeners:
  - {{bind: "127.0.0.1:{plain}"}}
  - {{bind: "127.0.0.1:{basic}", protocols: [amqp-0-9-1]}}
  - {{bind: "127.0.0.1:{tls}", tls: {{cert: {pem}, key: {pem}}}}}
  - bind: 127.0.0.1:{mutual}
    tls: {{cert: {pem}, key: {pem}, ca: {papers.authorities}, verify_client: required}}
"""
    trusting = f"tls: {{ca: {papers.authorities}}}"
    near_file = f"""
router: {{id: near, workers: 1, admin: "127.0.0.1:{free_port()}"}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  plain: {{url: "amqps://localhost:{plain}", retry_seconds: 100ms}}
  basic: {{url: "amqp://localhost:{basic}", retry_seconds: 100ms}}
  secured: {{url: "amqp://localhost:{tls}", retry_seconds: 100ms}}
  also-secured: {{url: "amqp://localhost:{tls}", protocol: amqp-0-9-1, retry_seconds: 100ms}}
  stranger: {{url: "amqps://localhost:{tls}", retry_seconds: 100ms}}
  mutual: {{url: "amqps://localhost:{mutual}", retry_seconds: 100ms, {trusting}}}
"""
    with running_router(far_file, far) as router:
        router.wait_for("router.ready")
        with running_router(near_file, near):
            await wait_for_status(
                near,
                "the peer does not speak TLS (wrong version number)",
                "write amqp:// in containers.plain.url",
                "the peer speaks amqp-0-9-1 (it began with 41 4d 51 50 00 00 09 01)",
                "write amqp-0-9-1 in containers.basic.protocol",
                "write amqps:// in containers.secured.url",
                "write amqps:// in containers.also-secured.url",
                "name the authority that signed its certificate in containers.stranger.tls.ca",
                "TLS alert of the peer: certificate required",
                "check cert and key in containers.mutual.tls",
            )


@pytest.mark.parametrize("level", ["debug", "error"])
async def test_the_log_level_is_changed_while_it_runs(tmp_path: Path, level: str) -> None:
    import http.client

    file = """
router: {id: near, workers: 1, admin: "127.0.0.1:0", log_level: info}
listeners: [{bind: "127.0.0.1:0"}]
"""
    with running_router(file, tmp_path) as router:
        place = json.loads(router.wait_for("router.ready"))["admin"][0]
        connection = http.client.HTTPConnection(place, timeout=SECONDS)
        body = json.dumps({"level": level})
        headers = {"content-type": "application/json"}
        connection.request("PUT", "/api/v1/log-level", body, headers)
        assert json.loads(connection.getresponse().read()) == {"level": level}
        connection.close()
        seen = len(router.log)
        async with sending(address_of(router), "orders", []) as client:
            await client.wait_until(lambda: client.is_attached or client.detached is not None)
        if level == "debug":
            await trio.to_thread.run_sync(router.wait_for, "connection.closed", SECONDS, seen)
        else:
            assert not [line for line in router.log[seen:] if '"level": "info"' in line]
