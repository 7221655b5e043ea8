"""TLS with several workers: a client that dials again may meet another one."""

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from router.net.tls_stream import why_slower
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import Open, encode
from tests.support.planes import papers
from tests.support.running import running_router
from tests.support.workers import address_of, spread

pytestmark = pytest.mark.skipif(why_slower() is not None, reason="needs compiled TLS streams")

FILE = """
router: {id: test, workers: 2, admin: off}
listeners: [{bind: "127.0.0.1:0", tls: {cert: server.pem, key: server.pem}}]
routes: [{address: "#"}]
"""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_resumes_its_session_at_any_worker(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    signed = papers(tmp_path)
    context = ssl.create_default_context(cafile=str(signed.authorities))
    context.maximum_version = version
    with running_router(FILE, tmp_path) as router, contextlib.ExitStack() as stack:
        host, _, port = address_of(router).rpartition(":")
        former, reused = None, []
        for number in range(6):
            sock = stack.enter_context(socket.create_connection((host, int(port)), 30))
            tls = stack.enter_context(
                context.wrap_socket(sock, server_hostname="localhost", session=former)
            )
            opening = encode(Open(container_id=f"client {number}"))
            tls.sendall(AMQP_HEADER + frame(0, opening))
            octets = b""
            while len(octets) <= len(AMQP_HEADER):
                octets += tls.recv(4096)
            former = tls.session  # with 1.3 the ticket has come before the first octets
            reused.append(tls.session_reused)
        router.wait_for("client 5")
        assert len(spread(router)) == 2
    assert reused == [False, *[True] * 5]
