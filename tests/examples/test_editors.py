"""Editors find the schema of every configuration in the repository, and it fits the schema."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from router.service.config import json_schema

FILES = sorted([*Path("examples").rglob("*.yaml"), Path("deploy/router.yaml")])
MARK = "# yaml-language-server: $schema="


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_first_line_names_the_schema_for_editors(file: Path) -> None:
    first = file.read_text().partition("\n")[0]
    assert first.startswith(MARK)
    named = file.parent / first.removeprefix(MARK)
    assert named.resolve() == Path("share/router/router.schema.json").resolve()


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_file_fits_the_schema(file: Path) -> None:
    jsonschema.validate(yaml.safe_load(file.read_text()), json_schema())


def test_the_schema_refuses_what_the_router_refuses() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"routs": []}, json_schema())
