"""rhea over WebSocket and TLS: in Node, and in a page of a real browser."""

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support import peers
from tests.support.browser import chromium, wait_until
from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.running import running_router

pytestmark = [pytest.mark.interop, pytest.mark.long]

COUNT = 10_000
SCRIPT = Path("tests/interop/node/websocket.js")
QUEUE = "browser.orders"

CONFIG = """\
router: {{id: web, admin: off}}
listeners:
  - bind: 127.0.0.1:{port}
    tls: {{cert: {cert}, key: {cert}}}
    websocket: {{origins: ["http://127.0.0.1:{page}"]}}
    sasl: {{mechanisms: [PLAIN], users: {{app: open sesame}}}}
"""

DIRECT = (
    CONFIG
    + """\
routes: [{{address: "#"}}]
"""
)

TO_RABBIT = (
    CONFIG
    + """\
containers:
  rabbit: {{url: "amqp://guest:guest@127.0.0.1:{rabbit}", protocol: amqp-0-9-1}}
routes: [{{address: browser.orders, to: rabbit}}]
"""
)

PAGE = """\
<!doctype html>
<script src="rhea.js"></script>
<script src="websocket.js"></script>
<script>
const [url, address, count] = location.hash.slice(1).split(',');
exchange(require('rhea'), WebSocket, url, address, Number(count)).then(
    (report) => { window.report = JSON.stringify(report); },
    (error) => { window.report = JSON.stringify({failed: String(error)}); },
);
</script>
"""


@attrs.frozen
class Web:
    """A router that serves wss, and the port whose pages may connect."""

    port: int
    page: int
    certificates: Certificates
    folder: Path

    @property
    def url(self) -> str:
        return f"wss://localhost:{self.port}/"


@contextlib.contextmanager
def serving(config: str, folder: Path, rabbit: int = 0) -> Iterator[Web]:
    served = Web(free_port(), free_port(), make_certificates(folder), folder)
    cert = served.certificates.server("good")
    text = config.format(port=served.port, page=served.page, cert=cert, rabbit=rabbit)
    with running_router(text, folder):
        yield served


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(DIRECT, tmp_path) as served:
        yield served


@pytest.fixture
def web_to_rabbit(rabbit_node: RabbitNode, tmp_path: Path) -> Iterator[Web]:
    declare(rabbit_node)
    with serving(TO_RABBIT, tmp_path, rabbit_node.port) as served:
        yield served


def declare(node: RabbitNode) -> None:
    """Makes the queue anew."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    channel = connection.channel()
    channel.queue_delete(QUEUE)
    channel.queue_declare(QUEUE, durable=True)
    connection.close()


def left_in_queue(node: RabbitNode) -> int:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    queue = connection.channel().queue_declare(QUEUE, durable=True, passive=True)
    count: int = queue.method.message_count
    connection.close()
    return count


@contextlib.contextmanager
def pages(folder: Path, port: int) -> Iterator[str]:
    """Serves the page, with rhea as its package has it for browsers."""
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(PAGE)
    shutil.copy(peers.NODE_MODULES / "rhea/dist/rhea.js", folder)
    shutil.copy(SCRIPT, folder)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/index.html"
        finally:
            server.shutdown()
            thread.join()


def trusting(certificate: Path) -> str:
    """Returns the browser's option to trust this certificate's key alone."""
    read = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    key = read.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    return f"--ignore-certificate-errors-spki-list={digest}"


def report_of_page(web: Web, port: int, address: str, count: int) -> dict[str, Any]:
    """Opens the page in a browser and returns what it reports."""
    peers.need_node("rhea")
    trust = trusting(web.certificates.server("good"))
    with pages(web.folder / "pages", port) as page, chromium(web.folder, flags=[trust]) as browser:
        browser.get(f"{page}#{web.url},{address},{count}")
        report = wait_until(
            browser,
            lambda: browser.execute_script("return window.report"),
            "the page's report",
            seconds=240,
        )
        return dict(json.loads(report))


def check(report: dict[str, Any], count: int) -> None:
    rate = 2 * count / report.pop("seconds")
    print(f"{rate:,.0f} messages a second, sent and received")
    assert report == {"received": count, "doubled": 0, "accepted": count, "other": 0}


def report_of_node(web: Web, address: str) -> dict[str, Any]:
    for package in ("rhea", "ws"):
        peers.need_node(package)
    finished = subprocess.run(
        ["node", SCRIPT, web.url, address, str(COUNT), web.certificates.authorities],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(finished.stdout))


def test_a_page_exchanges_ten_thousand_messages_with_a_queue_of_rabbitmq(
    web_to_rabbit: Web, rabbit_node: RabbitNode
) -> None:
    check(report_of_page(web_to_rabbit, web_to_rabbit.page, QUEUE, COUNT), COUNT)
    assert left_in_queue(rabbit_node) == 0


def test_node_exchanges_ten_thousand_messages_with_a_queue_of_rabbitmq(
    web_to_rabbit: Web, rabbit_node: RabbitNode
) -> None:
    check(report_of_node(web_to_rabbit, QUEUE), COUNT)
    assert left_in_queue(rabbit_node) == 0


def test_a_page_exchanges_ten_thousand_messages_with_itself(web: Web) -> None:
    check(report_of_page(web, web.page, "direct", COUNT), COUNT)


def test_a_page_of_another_origin_does_not_connect(web: Web) -> None:
    assert "failed" in report_of_page(web, free_port(), "direct", 1)


def test_node_exchanges_ten_thousand_messages_with_itself(web: Web) -> None:
    check(report_of_node(web, "direct"), COUNT)
