"""Every configuration in the documentation passes `router check`; those that can run here do."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from router.service.config import RouterConfig, json_schema, read
from tests.support.ports import free_port
from tests.support.running import running_router

PAGES = sorted(Path("docs/recipes").glob("*.md"))
BROKER = """
router: {{id: broker, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes: [{{address: "#"}}]
"""
_FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def configurations() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for match in _FENCE.finditer(path.read_text()):
            yield f"{path}:{path.read_text().count(chr(10), 0, match.start()) + 2}", match[1]


CONFIGURATIONS = dict(configurations())


def load(text: str) -> RouterConfig:
    named = re.findall(r"\$\{(\w+)\}", text)
    return read(text, "router.yaml", Path.cwd(), dict.fromkeys(named, "c2VjcmV0"))


@pytest.mark.parametrize("text", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_configuration_passes_check_and_gives_what_it_asks_for(text: str) -> None:
    config = load(text)
    assert config.notes == ()
    for promise in config.promises:
        assert promise.flows[0].gives is promise.asked
    jsonschema.validate(yaml.safe_load(text), json_schema())


def test_every_recipe_has_a_configuration_and_stands_in_the_list() -> None:
    listed = set(re.findall(r"\((\S+\.md)\)", Path("docs/recipes/README.md").read_text()))
    recipes = {path.name for path in PAGES} - {"README.md"}
    assert listed == recipes | {"../tutorial.md"}
    assert {Path(place.partition(":")[0]).name for place in CONFIGURATIONS} == recipes


def test_the_recipe_for_kubernetes_shows_the_configuration_of_its_manifest() -> None:
    documents = yaml.safe_load_all(Path("deploy/kubernetes/sidecar.yaml").read_text())
    (written,) = [each["data"]["router.yaml"] for each in documents if each["kind"] == "ConfigMap"]
    (shown,) = [text for place, text in CONFIGURATIONS.items() if "kubernetes" in place]
    assert yaml.safe_load(shown) == yaml.safe_load(written)


@pytest.mark.long
def test_the_sidecar_brings_messages_to_a_broker_that_is_restarted(tmp_path: Path) -> None:
    port, door = free_port(), free_port()
    text = next(text for place, text in CONFIGURATIONS.items() if "sidecar.md" in place)
    text = text.replace(
        "amqps://app:${BROKER_PASSWORD}@broker.example.com", f"amqp://127.0.0.1:{port}"
    )
    text = text.replace("127.0.0.1:5672", f"127.0.0.1:{door}")
    text = text.replace("  workers: 1\n", "  workers: 1\n  admin: off\n")
    broker = BROKER.format(port=port)
    (tmp_path / "broker").mkdir()
    (tmp_path / "sidecar").mkdir()
    with running_router(text, tmp_path / "sidecar", {"HOSTNAME": "here"}) as sidecar:
        with running_router(broker, tmp_path / "broker"):
            sidecar.wait_for("connection.opened")
        sender = _router("send", f"amqp://127.0.0.1:{door}", "orders", "--count", "500")
        with running_router(broker, tmp_path / "broker"):
            receiver = _router("receive", f"amqp://127.0.0.1:{port}", "orders", "--count", "500")
            sent, _ = sender.communicate(timeout=120)
            received, _ = receiver.communicate(timeout=120)
    assert sent.startswith("sent 500, accepted 500"), sent
    assert received.startswith("received 500, accepted 500"), received


def _router(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "router", *words, "--timeout", "100"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
