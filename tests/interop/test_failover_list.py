"""The list of other places in our open, as unmodified clients read it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.interop

CONFIG = """\
router: {{admin: off, workers: 1}}
listeners:
  - bind: "127.0.0.1:{port}"
    failover: [b.example, "amqps://c.example/west", "wss://d.example/amqp"]
routes: [{{address: "#"}}]
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    chosen = free_port()
    with running_router(CONFIG.format(port=chosen), tmp_path_factory.mktemp("router")):
        yield chosen


def expected(port: int) -> list[dict[str, Any]]:
    return [
        {"network-host": "b.example", "port": port},
        {"network-host": "c.example", "port": 5671, "hostname": "west", "scheme": "amqps"},
        {"network-host": "d.example", "port": 443, "scheme": "wss", "path": "/amqp"},
    ]


def test_proton_reads_the_list(port: int) -> None:
    peers.need_python("proton")
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=20)
    try:
        told = connection.conn.remote_properties["failover-server-list"]
    finally:
        connection.close()
    assert [{str(key): value for key, value in each.items()} for each in told] == expected(port)


def test_rhea_reads_the_list(port: int) -> None:
    peers.need_node("rhea")
    finished = subprocess.run(
        ["node", str(Path("tests/interop/node/opened.js")), str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == expected(port)
