"""Every configuration in the documentation passes `router check`; those that can run here do."""

import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from router.service.config import RouterConfig, json_schema, read

PAGES = sorted(Path("docs/recipes").glob("*.md"))
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
