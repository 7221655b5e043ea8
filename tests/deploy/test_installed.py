"""The package as people install it: wheel and source distribution, in an empty environment.

Nothing here sees the source tree: the files are built from a copy, the environments stand in a
folder of their own, and where the tests run as root the router runs as a user who is not.
"""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support import peers
from tests.support.installed import ROOT, Installation, find_python, install
from tests.support.ports import free_port

pytestmark = pytest.mark.installed

CONSOLE_FILES: Final = sorted(
    path.name for path in (ROOT / "router/service/admin/console").iterdir() if path.is_file()
)
FILE: Final = """
router: {{id: installed, workers: 2, admin: "127.0.0.1:{admin}", state: ./state}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: "#", guarantee: exactly-once}}]
"""


@pytest.fixture(
    scope="module", params=["wheel", "sdist, no compiler", "sdist, 3.12", "sdist, 3.13"]
)
def installation(request: pytest.FixtureRequest, distributions: Path) -> Installation:
    """The wheel; the source distribution without a compiler; it with one, by other Pythons."""
    kind, _, how = str(request.param).partition(", ")
    if how == "no compiler":
        return install(distributions, kind, CC="false")
    if not how:
        return install(distributions, kind)
    interpreter = find_python(how)
    if interpreter is None:
        peers.leave_out(f"Python {how} is not installed: pyenv install {how}")
    return install(distributions, kind, interpreter=interpreter)


@contextmanager
def _serving(installation: Installation, port: int, admin: int) -> Iterator[None]:
    path = installation.folder / "home/router.yaml"
    path.write_text(FILE.format(port=port, admin=admin))
    path.chmod(0o644)
    process = installation.popen("router", "run")
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "router.ready" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest


def _get(admin: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}{path}", timeout=20) as answer:
        content: bytes = answer.read()
    return content


def test_the_compiled_parts_are_there_where_they_should_be(
    request: pytest.FixtureRequest, installation: Installation
) -> None:
    is_compiled = installation.describes.startswith("cython")
    has_compiler = request.node.callspec.params["installation"] != "sdist, no compiler"
    assert is_compiled == has_compiler, installation.describes


def test_a_user_who_is_not_root_runs_two_workers_with_the_admin_endpoint(
    installation: Installation,
) -> None:
    port, admin = free_port(), free_port()
    with _serving(installation, port, admin):
        page = _get(admin, "/").decode()
        assert {name for name in CONSOLE_FILES if name in page} >= {"app.js", "style.css"}
        for name in CONSOLE_FILES:
            assert _get(admin, "/" if name == "index.html" else f"/console/{name}"), name
        url = f"amqp://127.0.0.1:{port}"
        receiver = installation.popen(
            "router", "receive", url, "orders", "--count", "100", "--json"
        )
        sent = installation.run("router", "send", url, "orders", "--count", "100", "--json")
        received, _ = receiver.communicate(timeout=60)
        assert receiver.returncode == 0, received
        assert json.loads(sent)["outcomes"] == {"accepted": 100}, sent
        until = time.monotonic() + 30
        while not re.search(rb'(?m)^router_.*route="#".* 100(\.0)?$', _get(admin, "/metrics")):
            assert time.monotonic() < until, _get(admin, "/metrics").decode()[-2000:]
            time.sleep(0.2)
        assert _get(admin, "/livez")
        assert _get(admin, "/readyz")
        assert "ready" in installation.run(
            "router", "status", "--admin", f"http://127.0.0.1:{admin}"
        )


def test_manual_pages_completions_and_the_schema_are_beside_the_program(
    installation: Installation,
) -> None:
    share, ours = installation.folder / "env/share", ROOT / "share"
    missing = [
        str(path.relative_to(ours))
        for path in sorted(ours.rglob("*"))
        if path.is_file() and not (share / path.relative_to(ours)).is_file()
    ]
    assert missing == []
    printed = installation.run("router", "check", "--schema")
    assert json.loads(printed) == json.loads((share / "router/router.schema.json").read_text())


def test_the_demo_counts_nothing_lost_and_nothing_doubled(installation: Installation) -> None:
    said = installation.run("router", "demo", seconds=300)
    assert re.search(r"lost +0", said), said
    assert re.search(r"duplicated +0", said), said


def test_spark_finds_the_format_of_the_wheel(distributions: Path) -> None:
    spark = install(distributions, "wheel", "requirements-spark.lock")
    home = spark.folder / "home"
    shutil.copy(ROOT / "tests/support/amqp_format_job.py", home / "job.py")
    port, admin = free_port(), free_port()
    with _serving(spark, port, admin):
        url = f"amqp://127.0.0.1:{port}"
        sender = spark.popen("router", "send", url, "lot", "--count", "7")
        said = spark.run("python", "job.py", url, "lot", "7", str(home / "wal"), seconds=300)
        assert "consumed 7" in said, said
        sender.communicate(timeout=60)
        assert sender.returncode == 0
