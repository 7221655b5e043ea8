"""TLS with real peers: which certificates are good enough, on both sides, and what is said.

Every client is the unmodified library, told to verify. So a flaw of the router's certificate is
refused by the client, and a flaw of the client's by the router.
"""

import json
import ssl
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support import peers
from tests.support.certificates import (
    CLIENT_FLAWS,
    CLIENT_NAME,
    SERVER_FLAWS,
    Certificates,
    make_certificates,
)
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.interop

TIMEOUT_SECONDS = 60
HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
BODY = "over tls"
MUTUAL = "mutual"


@attrs.frozen
class House:
    """A router with one listener for each of its certificates, and one that wants the peer's."""

    router: RunningRouter
    certificates: Certificates
    ports: dict[str, int]


def _listener(house: Certificates, port: int, flaw: str) -> str:
    tls = f"{{cert: {house.server(flaw)}, key: {house.server(flaw)}}}"
    return f"  - {{bind: 127.0.0.1:{port}, tls: {tls}}}\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("tls")
    certificates = make_certificates(folder)
    ports = {flaw: free_port() for flaw in (*SERVER_FLAWS, MUTUAL)}
    good = certificates.server("good")
    config = (
        "router: {id: tls, workers: 1, admin: off}\nlisteners:\n"
        + "".join(_listener(certificates, ports[flaw], flaw) for flaw in SERVER_FLAWS)
        + f"  - bind: 127.0.0.1:{ports[MUTUAL]}\n"
        f"    tls: {{cert: {good}, key: {good}, ca: {certificates.authorities},"
        " verify_client: required}\n"
        "    sasl: {mechanisms: [EXTERNAL]}\n"
        "routes:\n  - address: tls.#\n"
        "policy:\n  rules:\n"
        f"    - {{name: app, users: [{CLIENT_NAME}], send: [tls.#], receive: [tls.#]}}\n"
        "    - {name: others, users: [anonymous, guest], send: [tls.#], receive: [tls.#]}\n"
    )
    with running_router(config, folder) as router:
        yield House(router, certificates, ports)


@attrs.frozen
class RefusedError(Exception):
    """The exchange did not come about; ``text`` is what the client said."""

    text: str


def run(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


# The clients: each exchanges one message with itself, or raises RefusedError


def openssl(port: int, authorities: Path, identity: Path | None) -> str:
    """Goes as far as the header of AMQP: there is no client inside."""
    command = [
        *("openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}"),
        *("-CAfile", str(authorities), "-verify_return_error", "-verify_hostname", "localhost"),
        *("-alpn", "amqp"),
        *(() if identity is None else ("-cert", str(identity), "-key", str(identity))),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        try:
            client.stdin.write(HEADER if identity is None else SASL_HEADER)
            client.stdin.flush()
        except BrokenPipeError:
            pass  # it has given up already
        answer = client.stdout.read(8)
        client.kill()
        text = client.stderr.read().decode()
    if answer not in (HEADER, SASL_HEADER):
        raise RefusedError(text)
    return BODY


def proton(port: int, authorities: Path, identity: Path | None) -> str:
    peers.need_python("proton")
    from proton import Message, ProtonException, SSLDomain
    from proton.utils import BlockingConnection

    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authorities))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if identity is not None:
        domain.set_credentials(str(identity), str(identity), None)
    address = f"tls.{uuid.uuid4().hex}"
    try:
        connection = BlockingConnection(
            f"amqps://localhost:{port}", timeout=TIMEOUT_SECONDS, ssl_domain=domain
        )
        receiver = connection.create_receiver(address, credit=1)
        sender = connection.create_sender(address)
        delivery = sender.link.send(Message(body=BODY))
        body: str = receiver.receive(timeout=TIMEOUT_SECONDS).body
        receiver.accept()
        connection.wait(lambda: delivery.settled, timeout=TIMEOUT_SECONDS)
        connection.close()
    except ProtonException as error:
        raise RefusedError(str(error)) from error
    return body


def pika(port: int, authorities: Path, identity: Path | None) -> str:
    peers.need_python("pika")
    import pika
    from pika.credentials import ExternalCredentials
    from pika.exceptions import AMQPConnectionError

    context = ssl.create_default_context(cafile=str(authorities))
    named: dict[str, Any] = {}
    if identity is not None:
        context.load_cert_chain(identity)
        named["credentials"] = ExternalCredentials()
    parameters = pika.ConnectionParameters(
        "localhost", port, ssl_options=pika.SSLOptions(context, "localhost"), **named
    )
    queue = f"tls.{uuid.uuid4().hex}"
    try:
        connection = pika.BlockingConnection(parameters)
    except (AMQPConnectionError, OSError) as error:
        raise RefusedError(repr(error) + repr(error.__cause__) + repr(error.args)) from error
    channel = connection.channel()
    channel.queue_declare(queue)
    consumed = channel.consume(queue, inactivity_timeout=TIMEOUT_SECONDS)
    connection.process_data_events(0)
    channel.basic_publish("", queue, BODY.encode())
    method, _, body = next(consumed)
    assert method is not None, "nothing came"
    channel.basic_ack(method.delivery_tag)
    connection.close()
    return str(body.decode())


def _node(kind: str) -> Callable[[int, Path, Path | None], str]:
    def exchange(port: int, authorities: Path, identity: Path | None) -> str:
        peers.need_node(kind)
        output = run(
            *("node", "tests/interop/node/tls.js", kind, str(port), authorities),
            *(f"tls.{uuid.uuid4().hex}", identity or "-"),
        )
        return str(json.loads(output)["body"])

    return exchange


CLIENTS = {
    "openssl": openssl,
    "proton": proton,
    "rhea": _node("rhea"),
    "pika": pika,
    "amqplib": _node("amqplib"),
}
SIGNS = {
    "expired": ("certificate has expired",),
    "wrong-host": ("hostname mismatch", "altnames"),
    "wrong-ca": ("unable to get local issuer", "unable to verify the first"),
}
"""What a client's error speaks of; proton says of each only that verification failed."""


@pytest.mark.parametrize("flaw", SERVER_FLAWS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_verifies_takes_only_a_good_certificate(
    house: House, client: str, flaw: str
) -> None:
    exchange = CLIENTS[client]
    port, authorities = house.ports[flaw], house.certificates.authorities
    if flaw == "good":
        assert exchange(port, authorities, None) == BODY
        return
    with pytest.raises(RefusedError) as refused:
        exchange(port, authorities, None)
    said = refused.value.text.lower()
    signs = ("certificate verify failed",) if client == "proton" else SIGNS[flaw]
    assert any(sign in said for sign in signs), said


REASONS = {
    "expired": "certificate has expired",
    "wrong-ca": "unable to get local issuer certificate",
    "missing": "peer did not return a certificate",
}


@pytest.mark.parametrize("flaw", CLIENT_FLAWS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_router_takes_only_a_good_certificate_and_logs_why_not(
    house: House, client: str, flaw: str
) -> None:
    exchange = CLIENTS[client]
    port, authorities = house.ports[MUTUAL], house.certificates.authorities
    identity = house.certificates.client(flaw)
    if flaw == "good":
        assert exchange(port, authorities, identity) == BODY
        return
    seen = len(house.router.log)
    with pytest.raises(RefusedError):
        exchange(port, authorities, identity)
    house.router.wait_for(REASONS[flaw], since=seen)


def test_the_application_protocol_is_agreed_upon(house: House) -> None:
    import socket

    context = ssl.create_default_context(cafile=str(house.certificates.authorities))
    for offered, agreed in ((["amqp"], "amqp"), (["h2", "amqp"], "amqp"), ([], None)):
        context.set_alpn_protocols(offered)
        with (
            socket.create_connection(("127.0.0.1", house.ports["good"])) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            assert secured.selected_alpn_protocol() == agreed


# The other way round: the router dials


def _container(house: Certificates, name: str, port: int, identity: Path | None) -> str:
    own = "" if identity is None else f", cert: {identity}, key: {identity}"
    return (
        f"  {name}: {{url: amqps://localhost:{port}, tls: {{ca: {house.authorities}{own}}},"
        " sasl: {mechanisms: [ANONYMOUS]}}\n"
    )


DIALED = {
    "expired": "certificate has expired",
    "wrong-host": "Hostname mismatch, certificate is not valid for 'localhost'.",
    "wrong-ca": "unable to get local issuer certificate",
}


def test_the_router_dials_only_peers_with_good_certificates(tmp_path: Path) -> None:
    peers.need_node("rhea")
    certificates = make_certificates(tmp_path)
    ports = {flaw: free_port() for flaw in (*SERVER_FLAWS, MUTUAL)}
    doors = [f"{ports[flaw]}={certificates.server(flaw)}" for flaw in SERVER_FLAWS]
    doors.append(f"{ports[MUTUAL]}+={certificates.server('good')}")
    config = "router: {id: dialer, workers: 1, admin: off}\nlisteners: []\ncontainers:\n"
    config += "".join(_container(certificates, flaw, ports[flaw], None) for flaw in SERVER_FLAWS)
    config += _container(certificates, MUTUAL, ports[MUTUAL], certificates.client("good"))
    config += _container(certificates, "unknown", ports[MUTUAL], None)
    config += _container(certificates, "stranger", ports[MUTUAL], certificates.client("wrong-ca"))
    with subprocess.Popen(
        ["node", "tests/interop/node/tls.js", "serve", str(certificates.authorities), *doors],
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdout is not None
        try:
            assert peer.stdout.readline() == "listening\n"
            with running_router(config, tmp_path) as router:
                for flaw, reason in DIALED.items():
                    line = router.wait_for(f'"container": "{flaw}"')
                    assert f"the peer's certificate is refused: {reason}" in line, line
                assert [peer.stdout.readline() for _ in range(2)] == ["opened dialer\n"] * 2
                for name in ("unknown", "stranger"):
                    router.wait_for(f'"container": "{name}"')
        finally:
            peer.kill()
